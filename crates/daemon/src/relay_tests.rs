//! The relays' configuration, errors and datagrams. The sockets are bound to the loopback device, at ports that the
//! system chooses, so no right to a low port is needed.

use super::*;
use crate::testing::{World, accept, config, messages};
use std::net::{IpAddr, UdpSocket};

const TEXT: &str = "vrf definition red\nip dhcp relay information option\ninterface eth1\n no switchport\n \
    ip address 10.1.0.1 255.255.255.0\n ip helper-address 10.9.0.1\n ip helper-address global 10.9.0.2\n\
    interface eth2\n no switchport\n vrf forwarding red\n ip address 10.2.0.1 255.255.255.0\n \
    ip helper-address 10.9.0.3\n\
    interface eth3\n no switchport\n ipv6 address 2001:db8::1/64\n ipv6 dhcp relay destination 2001:db8:9::1";

fn world(text: &str) -> World {
    let mut world = World::new();
    for name in ["eth1", "eth2", "eth3"] {
        world.kernel.add(name);
    }
    world.ctx.refresh();
    accept(&mut world.ctx, config(text));
    world
}

#[test]
fn the_configuration_of_ipv4() {
    let world = world(TEXT);
    let made = config4(&world.ctx);
    assert_eq!(made.interfaces.keys().collect::<Vec<_>>(), ["eth1", "eth2"], "a port has no clients");
    assert!(made.option && !made.trust_all);
    let servers = |name: &str| -> Vec<(Option<String>, Ipv4Addr)> {
        made.interfaces[name].servers.iter().map(|server| (server.vrf.clone(), server.address)).collect()
    };
    let at = |last| Ipv4Addr::new(10, 9, 0, last);
    assert_eq!(servers("eth1"), [(None, at(1)), (None, at(2))]);
    assert_eq!(servers("eth2"), [(Some("red".into()), at(3))]);
    // A server in another VRF answers to the address from which the kernel would send.
    assert_eq!(made.interfaces["eth2"].servers[0].source, None);
    assert_eq!(source_towards(&world.ctx, None, Ipv4Addr::LOCALHOST), Some(Ipv4Addr::LOCALHOST));
    assert_eq!(made.interfaces["eth1"].addresses, [Ipv4Addr::new(10, 1, 0, 1)]);
    for (line, want) in [("replace", Policy::Replace), ("keep", Policy::Keep), ("drop", Policy::Drop)] {
        let mut world = World::new();
        accept(&mut world.ctx, config(&format!("ip dhcp relay information policy {line}")));
        assert_eq!(config4(&world.ctx).policy, want);
    }
}

#[test]
fn the_configuration_of_ipv6() {
    let world = world(&format!("{TEXT}\ninterface eth3\n ipv6 address fe80::1/64"));
    let made = config6(&world.ctx);
    assert_eq!(made.interfaces.keys().collect::<Vec<_>>(), ["eth3"]);
    let interface = &made.interfaces["eth3"];
    let want: Ipv6Addr = "2001:db8::1".parse().expect("an address");
    assert_eq!(interface.addresses, [want], "servers answer to a global address");
    assert_eq!(interface.servers.len(), 1);
}

#[test]
fn without_clients_there_are_no_sockets() {
    let mut world = world("interface eth1\n no switchport\n ip address 10.1.0.1 255.255.255.0");
    let mut relaying = Relaying::default();
    relaying.errors.insert((false, None), "an old error".into());
    relaying.configure(&mut world.ctx);
    assert!(relaying.sockets4.is_empty() && relaying.sockets6.is_empty());
    assert_eq!(relaying.view(Family::V4).error, None);
    assert_eq!(relaying.handle(&mut world.ctx, ()), 0);
    assert!(relaying.fd().is_some());
}

#[test]
fn a_taken_port_is_logged_once_and_shown_until_it_is_free() {
    let mut world = World::new();
    let mut relaying = Relaying::default();
    let taken = || RelayError::Port { port: PORT_V4, cause: nix::Error::EADDRINUSE };
    for _ in 0..2 {
        assert!(relaying.opened(&mut world.ctx, false, &None, Err(taken())).is_none());
    }
    let reason = "UDP port 67: Address already in use";
    assert_eq!(messages(&world.ctx), [format!("RELAY: the DHCP relay does not work: {reason}")]);
    assert_eq!(relaying.view(Family::V4).error.as_deref(), Some(reason));
    assert_eq!(relaying.view(Family::V6).error, None);
    let red = Some("red".to_owned());
    let error = RelayError::Port { port: PORT_V6, cause: nix::Error::EACCES };
    relaying.opened(&mut world.ctx, true, &red, Err(error));
    let want = "UDP port 547 of IPv6: Permission denied";
    assert_eq!(relaying.view(Family::V6).error.as_deref(), Some(want));
    let fd = open(AddressFamily::Inet).expect("a socket");
    assert!(relaying.opened(&mut world.ctx, false, &None, Ok(fd)).is_some());
    assert_eq!(relaying.view(Family::V4).error, None);
}

/// A relay's socket at the loopback device, and its address.
fn socket4() -> (OwnedFd, SocketAddrV4) {
    let fd = open(AddressFamily::Inet).expect("a socket");
    setsockopt(&fd, sockopt::Ipv4PacketInfo, &true).expect("set");
    bind(fd.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))).expect("bound");
    let at: SockaddrIn = nix::sys::socket::getsockname(fd.as_raw_fd()).expect("an address");
    (fd, SocketAddrV4::new(at.ip(), at.port()))
}

#[test]
fn a_datagram_has_its_interface_and_sender() {
    let (fd, at) = socket4();
    let mut buffer = vec![0; MAX_DATAGRAM];
    assert!(receive_v4(&fd, &mut buffer).is_none(), "it does not wait");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    sender.send_to(b"hello", at).expect("sent");
    let lo = nix::net::if_::if_nametoindex("lo").expect("loopback");
    assert_eq!(receive_v4(&fd, &mut buffer), Some((5, lo, Ipv4Addr::LOCALHOST)));
    assert_eq!(&buffer[..5], b"hello");
}

/// A client's DHCPDISCOVER: 240 bytes and the message type.
fn discover() -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0, 0, 0, 0, 1];
    message.resize(28, 0);
    message.extend([2, 0, 0, 0, 0, 7]);
    message.resize(236, 0);
    message.extend([99, 130, 83, 99, 53, 1, 1, 255]);
    message
}

#[test]
fn a_turn_relays_all_received_messages_and_counts_invalid_ones() {
    let lo = nix::net::if_::if_nametoindex("lo").expect("loopback");
    let mut world = World::new();
    world.kernel.add("eth1");
    world.kernel.change("eth1", |link| link.ifindex = lo);
    world.ctx.refresh();
    let server = Server4 { vrf: None, address: Ipv4Addr::LOCALHOST, source: None };
    let interface = Interface4 {
        vrf: None,
        addresses: vec![Ipv4Addr::new(10, 1, 0, 1)],
        servers: vec![server],
        trusted: false,
    };
    let interfaces = BTreeMap::from([("eth1".to_owned(), interface)]);
    let mut relaying = Relaying::default();
    relaying.v4.configure(Config4 { interfaces, ..Config4::default() });
    let (fd, at) = socket4();
    relaying.sockets4.insert(None, fd);
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let sent = 40;
    for _ in 0..sent {
        sender.send_to(&discover(), at).expect("sent");
    }
    sender.send_to(b"nonsense", at).expect("sent");
    assert_eq!(relaying.handle(&mut world.ctx, ()), sent + 1);
    assert_eq!(relaying.handle(&mut world.ctx, ()), 0);
    let shown = relaying.view(Family::V4);
    let counted: u64 = shown.counters.iter().map(|counter| counter.messages).sum();
    assert!(shown.counters.iter().any(|counter| counter.messages == sent as u64), "{:?}", shown.counters);
    assert!(counted > sent as u64, "what is no message is counted, too: {:?}", shown.counters);
    assert_eq!(shown.interfaces[0].servers[0].address, IpAddr::from(Ipv4Addr::LOCALHOST));
    // A message received on an interface without a relay is relayed nowhere.
    relaying.v4.configure(Config4::default());
    sender.send_to(&discover(), at).expect("sent");
    assert_eq!(relaying.handle(&mut world.ctx, ()), 1);
}

#[test]
fn names_of_interfaces_are_those_of_their_namespace() {
    let world = world(TEXT);
    let ifindex = world.kernel.get("eth1").ifindex;
    assert_eq!(name_of(&world.ctx, None, ifindex), "eth1");
    assert_eq!(name_of(&world.ctx, Some("red"), ifindex), "");
    assert_eq!(name_of(&world.ctx, None, 9999), "");
}
