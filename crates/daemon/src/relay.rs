//! The sockets of the DHCP relays: one for each family in every namespace that has clients or servers.
//!
//! Read `lanyard_dhcp` first, which decides which messages are relayed, and how. Invariants: if another program uses
//! the port (a DHCP server on this machine), `show ip dhcp relay` reports that, and the socket is opened again at the
//! next change. A turn reads a bounded number of messages.

use crate::context::{Context, Module};
use crate::kernel::{KernelError, within};
use crate::os;
use lanyard_cli::view;
use lanyard_config::layer3::{HelperVrf, RelayPolicy};
use lanyard_config::{Config, Interface, InterfaceName};
use lanyard_dhcp::{
    Config4, Config6, Delivery, Interface4, Interface6, Policy, Relay4, Relay6, Send4, Send6, Server4,
    Server6, Source4,
};
use lanyard_netdev::PacketSocket;
use lanyard_types::Family;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrIn,
    SockaddrIn6, bind, recvmsg, sendmsg, setsockopt, socket, sockopt,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

const PORT_V4: u16 = 67;
const CLIENT_V4: u16 = 68;
const PORT_V6: u16 = 547;
/// All_DHCP_Relay_Agents_and_Servers (RFC 8415, 7.1).
const ALL_RELAYS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// Longest datagram read.
const MAX_DATAGRAM: usize = 65_535;
/// Most datagrams read from a socket in one turn.
const TURN: usize = 256;

/// The relays and their sockets.
pub(crate) struct Relaying {
    v4: Relay4,
    v6: Relay6,
    sockets4: BTreeMap<Option<String>, OwnedFd>,
    sockets6: BTreeMap<Option<String>, Socket6>,
    errors: BTreeMap<(bool, Option<String>), String>,
    epoll: Option<Epoll>,
    buffer: Vec<u8>,
}

/// The reason why a relay has no socket.
#[derive(Debug, thiserror::Error)]
enum RelayError {
    /// Most likely another DHCP server on this machine uses the port.
    #[error("UDP port {port}{}: {}", if *.port == PORT_V6 { " of IPv6" } else { "" }, cause.desc())]
    Port {
        port: u16,
        #[source]
        cause: nix::Error,
    },
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// A socket, and the interfaces at which it receives clients' messages.
struct Socket6 {
    fd: OwnedFd,
    joined: BTreeSet<u32>,
}

impl Default for Relaying {
    fn default() -> Self {
        Self {
            v4: Relay4::default(),
            v6: Relay6::default(),
            sockets4: BTreeMap::new(),
            sockets6: BTreeMap::new(),
            errors: BTreeMap::new(),
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).ok(),
            buffer: vec![0; MAX_DATAGRAM],
        }
    }
}

impl Relaying {
    /// Becomes readable when there is a message; `None` when the process has no descriptor left.
    pub(crate) fn fd(&self) -> Option<RawFd> {
        self.epoll.as_ref().map(|epoll| epoll.0.as_raw_fd())
    }
    fn watch(&self, fd: &OwnedFd) {
        if let Some(epoll) = &self.epoll {
            let _ = epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0));
        }
    }
}

impl Module for Relaying {
    /// The descriptor is readable.
    type Event<'a> = ();
    fn configure(&mut self, ctx: &mut Context) {
        let config = ctx.switch.config();
        let relays = |interface: &Interface| {
            !interface.layer3.helpers.is_empty() || !interface.layer3.relay_destinations.is_empty()
        };
        let idle = self.sockets4.is_empty() && self.sockets6.is_empty();
        if idle && !config.interfaces.values().any(relays) {
            self.errors.clear();
            self.v4.configure(Config4::default());
            self.v6.configure(Config6::default());
            return;
        }
        let (v4, v6) = (config4(ctx), config6(ctx));
        let tables4 = v4
            .interfaces
            .values()
            .flat_map(|i| i.servers.iter().map(|server| server.vrf.clone()).chain([i.vrf.clone()]));
        let tables4: BTreeSet<Option<String>> = tables4.collect();
        let tables6: BTreeSet<Option<String>> = v6.interfaces.values().map(|i| i.vrf.clone()).collect();
        self.sockets4.retain(|vrf, _| tables4.contains(vrf));
        self.sockets6.retain(|vrf, _| tables6.contains(vrf));
        self.errors.retain(|(is_v6, vrf), _| if *is_v6 { &tables6 } else { &tables4 }.contains(vrf));
        self.v4.configure(v4);
        self.v6.configure(v6);
        for vrf in tables4 {
            if !self.sockets4.contains_key(&vrf) {
                let made = open_in(ctx, vrf.as_deref(), open_v4);
                if let Some(fd) = self.opened(ctx, false, &vrf, made) {
                    self.sockets4.insert(vrf, fd);
                }
            }
        }
        for vrf in tables6 {
            if !self.sockets6.contains_key(&vrf) {
                let made = open_in(ctx, vrf.as_deref(), open_v6);
                if let Some(fd) = self.opened(ctx, true, &vrf, made) {
                    self.sockets6.insert(vrf, Socket6 { fd, joined: BTreeSet::new() });
                }
            }
        }
        self.join_groups(ctx);
    }
    fn handle(&mut self, ctx: &mut Context, (): ()) -> usize {
        self.read(ctx)
    }
}

impl Relaying {
    /// Stores the result of opening a socket, and logs a failure once.
    fn opened(
        &mut self,
        ctx: &mut Context,
        is_v6: bool,
        vrf: &Option<String>,
        made: Result<OwnedFd, RelayError>,
    ) -> Option<OwnedFd> {
        let key = (is_v6, vrf.clone());
        match made {
            Ok(fd) => {
                self.errors.remove(&key);
                self.watch(&fd);
                Some(fd)
            }
            Err(error) => {
                let reason = error.to_string();
                if self.errors.insert(key, reason.clone()).as_ref() != Some(&reason) {
                    ctx.log("DHCP", 3, "RELAY", &format!("the DHCP relay does not work: {reason}"));
                }
                None
            }
        }
    }

    /// Joins the multicast groups that clients send to, on the interfaces with clients. A netdev
    /// that was created again is joined again.
    fn join_groups(&mut self, ctx: &Context) {
        let facts = ctx.switch.facts();
        let mut wanted: BTreeMap<Option<String>, BTreeSet<u32>> = BTreeMap::new();
        for (name, interface) in &self.v6.config().interfaces {
            if let Some(link) = facts.get(name) {
                wanted.entry(interface.vrf.clone()).or_default().insert(link.ifindex);
            }
        }
        for (vrf, socket) in &mut self.sockets6 {
            let wanted = wanted.remove(vrf).unwrap_or_default();
            // Leaving fails if the netdev has been removed, which has ended the membership.
            for ifindex in socket.joined.difference(&wanted) {
                let _ = os::membership(&socket.fd, ALL_RELAYS, *ifindex, false);
            }
            socket.joined.retain(|ifindex| wanted.contains(ifindex));
            for ifindex in wanted {
                if !socket.joined.contains(&ifindex)
                    && os::membership(&socket.fd, ALL_RELAYS, ifindex, true).is_ok()
                {
                    socket.joined.insert(ifindex);
                }
            }
        }
    }

    /// Handles the messages of clients and servers; returns their number.
    fn read(&mut self, ctx: &Context) -> usize {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut count = 0;
        let tables: Vec<Option<String>> = self.sockets4.keys().cloned().collect();
        for vrf in tables {
            for _ in 0..TURN {
                let Some(fd) = self.sockets4.get(&vrf) else { break };
                let Some((len, ifindex, address)) = receive_v4(fd, &mut buffer) else { break };
                count += 1;
                let name = name_of(ctx, vrf.as_deref(), ifindex);
                let source = Source4 { vrf: vrf.clone(), address };
                let datagram = buffer.get(..len).unwrap_or_default();
                for send in self.v4.handle(&name, &source, datagram) {
                    self.send_v4(ctx, &send);
                }
            }
        }
        let tables: Vec<Option<String>> = self.sockets6.keys().cloned().collect();
        for vrf in tables {
            for _ in 0..TURN {
                let Some(socket) = self.sockets6.get(&vrf) else { break };
                let Some((len, ifindex, source)) = receive_v6(&socket.fd, &mut buffer) else { break };
                count += 1;
                let name = name_of(ctx, vrf.as_deref(), ifindex);
                let datagram = buffer.get(..len).unwrap_or_default();
                for send in self.v6.handle(vrf.as_deref(), &name, source, datagram) {
                    self.send_v6(ctx, &send);
                }
            }
        }
        self.buffer = buffer;
        count
    }

    /// Sends a message. If that fails the message is lost, as any datagram may be: the client repeats its
    /// request.
    fn send_v4(&self, ctx: &Context, send: &Send4) {
        match send {
            Send4::Server { vrf, address, message } => {
                let Some(fd) = self.sockets4.get(vrf) else { return };
                let to = SockaddrIn::from(SocketAddrV4::new(*address, PORT_V4));
                let _ = sendmsg(fd.as_raw_fd(), &[IoSlice::new(message)], &[], MsgFlags::empty(), Some(&to));
            }
            Send4::Client { interface, to, message } => {
                let Some(link) = ctx.facts().get(interface) else { return };
                let relaying = self.v4.config().interfaces.get(interface);
                let own = relaying.and_then(|i| i.addresses.first()).copied();
                let (Some(own), Some(mac)) = (own, link.mac) else { return };
                match to {
                    Delivery::Unicast(client, address) => {
                        let frame = lanyard_dhcp::reply_frame((mac, own), (*client, *address), message);
                        let index = link.ifindex;
                        let _ = frame.map(|frame| {
                            within(&*ctx.kernel, link.vrf.as_deref(), || {
                                PacketSocket::sender(index).and_then(|socket| socket.send(&frame))
                            })
                        });
                    }
                    Delivery::Broadcast => {
                        let Some(fd) = self.sockets4.get(&link.vrf) else { return };
                        broadcast(fd, link.ifindex, own, message);
                    }
                }
            }
        }
    }

    fn send_v6(&self, ctx: &Context, send: &Send6) {
        let Some(socket) = self.sockets6.get(&send.vrf) else { return };
        let scope =
            send.interface.as_ref().and_then(|name| ctx.facts().get(name)).map_or(0, |link| link.ifindex);
        let to = SockaddrIn6::from(SocketAddrV6::new(send.address, send.port, 0, scope));
        let _ =
            sendmsg(socket.fd.as_raw_fd(), &[IoSlice::new(&send.message)], &[], MsgFlags::empty(), Some(&to));
    }

    pub(crate) fn view(&self, family: Family) -> view::Relay {
        let (is_v6, relaying) = (family == Family::V6, self);
        let interfaces = match family {
            Family::V4 => relaying.v4.config().interfaces.iter().map(view_v4).collect(),
            Family::V6 => relaying.v6.config().interfaces.iter().map(view_v6).collect(),
        };
        let counters = if is_v6 { relaying.v6.counters() } else { relaying.v4.counters() };
        let counter = |(counter, messages): (lanyard_dhcp::Counter, u64)| view::RelayCounter {
            counter: counter.name(),
            messages,
        };
        let wrong: Vec<&str> = relaying
            .errors
            .iter()
            .filter(|((v6, _), _)| *v6 == is_v6)
            .map(|(_, text)| text.as_str())
            .collect();
        view::Relay {
            interfaces,
            counters: counters.iter().map(counter).collect(),
            error: (!wrong.is_empty()).then(|| wrong.join("; ")),
        }
    }
}

fn config4(ctx: &Context) -> Config4 {
    let config = ctx.switch.config();
    let settings = &config.relay;
    let with_helpers = layer3_interfaces(config).filter(|(_, i)| !i.layer3.helpers.is_empty());
    let interface = |(name, interface): (&InterfaceName, &Interface)| {
        let own = &interface.layer3.vrf;
        let server = |helper: &lanyard_config::layer3::Helper| {
            let vrf = match &helper.vrf {
                HelperVrf::Own => own.clone(),
                HelperVrf::Global => None,
                HelperVrf::Named(vrf) => Some(vrf.clone()),
            };
            let source = (vrf != *own).then(|| source_towards(ctx, vrf.as_deref(), helper.address)).flatten();
            Server4 { vrf, address: helper.address, source }
        };
        let made = Interface4 {
            vrf: own.clone(),
            addresses: interface.ipv4.iter().map(ipnet::Ipv4Net::addr).collect(),
            servers: interface.layer3.helpers.iter().map(server).collect(),
            trusted: interface.layer3.relay_trusted,
        };
        (name.to_string(), made)
    };
    Config4 {
        interfaces: with_helpers.map(interface).collect(),
        option: settings.option,
        policy: match settings.policy {
            RelayPolicy::Replace => Policy::Replace,
            RelayPolicy::Keep => Policy::Keep,
            RelayPolicy::Drop => Policy::Drop,
        },
        trust_all: settings.trust_all,
        remote_id: ctx.switch.identity().base_mac,
    }
}

/// The source address that the kernel would use for packets to `server`; a server in another VRF sends its answers
/// there.
fn source_towards(ctx: &Context, vrf: Option<&str>, server: Ipv4Addr) -> Option<Ipv4Addr> {
    let ask = || {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect((server, PORT_V4)).ok()?;
        match socket.local_addr().ok()?.ip() {
            std::net::IpAddr::V4(address) => Some(address),
            std::net::IpAddr::V6(_) => None,
        }
    };
    within(&*ctx.kernel, vrf, ask).ok().flatten()
}

fn config6(ctx: &Context) -> Config6 {
    let config = ctx.switch.config();
    let with_servers = layer3_interfaces(config).filter(|(_, i)| !i.layer3.relay_destinations.is_empty());
    let interface = |(name, interface): (&InterfaceName, &Interface)| {
        let server = |destination: &lanyard_config::layer3::RelayDestination| Server6 {
            address: destination.address,
            interface: destination.interface.as_ref().map(ToString::to_string),
        };
        let global = interface.ipv6.iter().map(ipnet::Ipv6Net::addr).filter(|a| !a.is_unicast_link_local());
        let made = Interface6 {
            vrf: interface.layer3.vrf.clone(),
            addresses: global.collect(),
            servers: interface.layer3.relay_destinations.iter().map(server).collect(),
        };
        (name.to_string(), made)
    };
    Config6 { interfaces: with_servers.map(interface).collect() }
}

fn name_of(ctx: &Context, vrf: Option<&str>, ifindex: u32) -> String {
    ctx.facts().by_index_in(vrf, ifindex).map_or_else(String::new, |link| link.name.clone())
}

fn view_v4((name, interface): (&String, &Interface4)) -> view::RelayInterface {
    let server = |server: &Server4| view::RelayServer {
        address: server.address.into(),
        vrf: server.vrf.clone(),
        interface: None,
    };
    view::RelayInterface {
        interface: name.clone(),
        servers: interface.servers.iter().map(server).collect(),
        trusted: interface.trusted,
    }
}

fn view_v6((name, interface): (&String, &Interface6)) -> view::RelayInterface {
    let server = |server: &Server6| view::RelayServer {
        address: server.address.into(),
        vrf: interface.vrf.clone(),
        interface: server.interface.clone(),
    };
    view::RelayInterface {
        interface: name.clone(),
        servers: interface.servers.iter().map(server).collect(),
        trusted: false,
    }
}

fn layer3_interfaces(config: &Config) -> impl Iterator<Item = (&InterfaceName, &Interface)> {
    config.interfaces.iter().filter(|(name, i)| matches!(name, InterfaceName::Vlan(_)) || i.is_routed())
}

fn open(family: AddressFamily) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(family, SockType::Datagram, flags, None)
}

/// Opens a socket in a VRF's namespace.
fn open_in(
    ctx: &Context,
    vrf: Option<&str>,
    open: fn() -> Result<OwnedFd, RelayError>,
) -> Result<OwnedFd, RelayError> {
    within(&*ctx.kernel, vrf, open)?
}

fn open_v4() -> Result<OwnedFd, RelayError> {
    let make = || {
        let fd = open(AddressFamily::Inet)?;
        setsockopt(&fd, sockopt::Broadcast, &true)?;
        setsockopt(&fd, sockopt::Ipv4PacketInfo, &true)?;
        bind(fd.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT_V4)))?;
        Ok(fd)
    };
    make().map_err(|cause| RelayError::Port { port: PORT_V4, cause })
}

fn open_v6() -> Result<OwnedFd, RelayError> {
    let make = || {
        let fd = open(AddressFamily::Inet6)?;
        setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
        setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true)?;
        bind(fd.as_raw_fd(), &SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, PORT_V6, 0, 0)))?;
        Ok(fd)
    };
    make().map_err(|cause| RelayError::Port { port: PORT_V6, cause })
}

/// A datagram's length, the interface that received it, and its sender.
fn receive_v4(fd: &OwnedFd, buffer: &mut [u8]) -> Option<(usize, u32, Ipv4Addr)> {
    let mut space = nix::cmsg_space!(nix::libc::in_pktinfo);
    let mut parts = [IoSliceMut::new(buffer)];
    let got = recvmsg::<SockaddrIn>(fd.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty()).ok()?;
    let index = got.cmsgs().ok()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => u32::try_from(info.ipi_ifindex).ok(),
        _ => None,
    });
    let source = got.address.map_or(Ipv4Addr::UNSPECIFIED, |address| address.ip());
    Some((got.bytes, index.unwrap_or(0), source))
}

/// A datagram's length, the interface that received it, and its sender.
fn receive_v6(fd: &OwnedFd, buffer: &mut [u8]) -> Option<(usize, u32, Ipv6Addr)> {
    let mut space = nix::cmsg_space!(nix::libc::in6_pktinfo);
    let mut parts = [IoSliceMut::new(buffer)];
    let got = recvmsg::<SockaddrIn6>(fd.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty()).ok()?;
    let index = got.cmsgs().ok()?.find_map(|message| match message {
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(info.ipi6_ifindex),
        _ => None,
    });
    let source = got.address.map_or(Ipv6Addr::UNSPECIFIED, |address| address.ip());
    Some((got.bytes, index.unwrap_or(0), source))
}

/// Sends a broadcast by an interface.
fn broadcast(fd: &OwnedFd, ifindex: u32, source: Ipv4Addr, message: &[u8]) {
    let info = nix::libc::in_pktinfo {
        ipi_ifindex: ifindex.cast_signed(),
        ipi_spec_dst: nix::libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
        ipi_addr: nix::libc::in_addr { s_addr: 0 },
    };
    let to = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_V4));
    let control = [ControlMessage::Ipv4PacketInfo(&info)];
    let _ = sendmsg(fd.as_raw_fd(), &[IoSlice::new(message)], &control, MsgFlags::empty(), Some(&to));
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
