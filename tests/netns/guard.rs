//! First-hop security against hosts that attack, with the legitimate traffic beside them: a rogue DHCP server, ARP with
//! foreign addresses, packets with foreign sources, rogue router advertisements; restarts; floods of ARP and DHCP.

use crate::dhcp::{Client, possible, server};
use crate::harness::{BROADCAST, Bed, Frame, Host, Plane, frame, mac, scenarios, wait_for};
use crate::hooks::{on_xdp, redirected};

scenarios! {
    a_rogue_dhcp_server: ebpf soft;
    a_restart_keeps_leases: ebpf;
    leases_of_another_vlans_server: ebpf soft;
    arp_with_foreign_addresses: ebpf soft;
    a_flood_of_arp: ebpf soft;
    a_flood_of_dhcp: ebpf soft;
    packets_with_foreign_sources: ebpf soft;
    frames_in_a_row_on_xdp: ebpf;
    rogue_routers: ebpf soft;
}

const DECLINE: u8 = 4;
const RELEASE: u8 = 7;

const THREE: &str = "interface range p1 - 3\n switchport\n";

fn logged(bed: &Bed, text: &str) {
    wait_for("the message", || bed.exec(&["show logging"]).contains(text).then_some(()));
}

/// A frame with this EtherType and packet.
fn packet(dst: [u8; 6], src: [u8; 6], ethertype: u16, packet: &[u8]) -> Frame {
    let mut bytes = [&dst[..], &src[..], &ethertype.to_be_bytes(), packet].concat();
    bytes.resize(bytes.len().max(60), 0);
    Frame(bytes)
}

fn arp(op: u8, src: u16, sender: u16, address: [u8; 4], target: [u8; 4]) -> Frame {
    let to = if op == 1 { [0; 6] } else { mac(2) };
    let head = [0, 1, 8, 0, 6, 4, 0, op];
    let dst = if op == 1 { BROADCAST } else { mac(2) };
    packet(dst, mac(src), 0x0806, &[&head[..], &mac(sender), &address, &to, &target].concat())
}

/// An IPv4 packet of UDP between these addresses and ports.
fn udp(dst: [u8; 6], src: u16, from: [u8; 4], ports: [u16; 2], payload: &[u8]) -> Frame {
    let len = (28 + payload.len()) as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    ip[2..4].copy_from_slice(&len.to_be_bytes());
    ip.extend(from);
    ip.extend([10, 0, 0, 2]);
    ports.iter().for_each(|port| ip.extend(port.to_be_bytes()));
    ip.extend((len - 20).to_be_bytes());
    ip.extend([0, 0]);
    ip.extend(payload);
    packet(dst, mac(src), 0x0800, &ip)
}

/// A DHCP message of `kind` about the station `client`.
fn dhcp(op: u8, kind: u8, src: u16, client: u16) -> Frame {
    let mut message = vec![0; 236];
    message[..3].copy_from_slice(&[op, 1, 6]);
    message[16..20].copy_from_slice(&[10, 0, 0, 66]);
    message[28..34].copy_from_slice(&mac(client));
    message.extend([99, 130, 83, 99, 53, 1, kind, 255]);
    message.resize(300, 0);
    let ports = if op == 1 { [68, 67] } else { [67, 68] };
    udp(BROADCAST, src, [0; 4], ports, &message)
}

/// True for a DHCP message of this kind: its first option, behind the magic cookie, is the message type.
fn is_dhcp(frame: &Frame, kind: u8) -> bool {
    frame.0.windows(7).any(|bytes| bytes == [99, 130, 83, 99, 53, 1, kind])
}

/// The bindings as `ADDRESS INTERFACE TYPE`.
fn bindings(bed: &Bed) -> Vec<String> {
    let view = bed.show("show ip source binding");
    let text = |row: &serde_json::Value| {
        let word = |key: &str| row[key].as_str().unwrap().to_owned();
        [word("address"), word("interface"), word("type")].join(" ")
    };
    view["bindings"].as_array().unwrap().iter().map(text).collect()
}

/// A client at p1, an attacker at p2 that runs a server, the network's own server at p3, which is trusted.
fn with_servers(plane: Plane) -> Bed {
    let bed = Bed::new(
        plane,
        3,
        &format!("{THREE}ip dhcp snooping\nip dhcp snooping vlan 1\ninterface p3\n ip dhcp snooping trust\n"),
    );
    bed.chatter.set(true);
    bed.exact.set(false);
    bed.host(2).address("10.0.0.2/24");
    bed.host(3).address("10.0.0.3/24");
    bed
}

fn a_rogue_dhcp_server(plane: Plane) {
    if !possible() {
        return;
    }
    let bed = with_servers(plane);
    let _rogue = server(&bed, bed.host(2), &["--dhcp-range=10.0.0.100,10.0.0.110,255.255.255.0,1h"]);
    let _own = server(
        &bed,
        bed.host(3),
        &["--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,1h", "--dhcp-authoritative"],
    );
    let (address, lease) = Client::start(&bed, bed.host(1), "-4").leased("fixed-address");
    assert!(address.starts_with("10.0.0.5") || address == "10.0.0.60", "{address}");
    assert!(lease.contains("dhcp-server-identifier 10.0.0.3"), "{lease}");
    wait_for("the binding", || (bindings(&bed) == [format!("{address} p1 dhcp-snooping")]).then_some(()));
    let lease_s = bed.show("show ip dhcp snooping binding")["bindings"][0]["lease_s"].as_u64();
    assert!(lease_s.is_some_and(|lease_s| (3000..=3600).contains(&lease_s)), "{lease_s:?}");
    // The attacker sends replies to a client whose requests it has not received.
    bed.expect_drop(2, &dhcp(2, 2, 2, 1), "dhcp_server");
    bed.expect_drop(2, &dhcp(2, 5, 2, 1), "dhcp_server");
    logged(&bed, "%DHCP_SNOOPING-5-DHCP_SNOOPING_UNTRUSTED_PORT");
    // The attacker sends a request in the name of another station.
    bed.expect(2, &dhcp(1, 1, 2, 1), &[]);
    logged(&bed, "%DHCP_SNOOPING-5-DHCP_SNOOPING_MATCH_MAC_FAIL");
    assert_eq!(bindings(&bed), [format!("{address} p1 dhcp-snooping")]);
    // The attacker releases and declines the client's address. Its frames have the client's source address, so that
    // `verify mac-address` does not refuse them.
    for (kind, so_far) in [(RELEASE, 1), (DECLINE, 2)] {
        bed.hosts.iter().for_each(Host::drain);
        let message = dhcp(1, kind, 1, 1);
        bed.host(2).send(&message);
        wait_for("the drop", || {
            let shown = bed.show("show ip dhcp snooping statistics");
            (shown["dropped"]["binding_mismatch"] == so_far).then_some(())
        });
        let got = bed.arrivals().concat();
        assert!(
            got.iter().all(|frame| !is_dhcp(frame, kind)),
            "a message of kind {kind} is sent on: {got:?}"
        );
        assert_eq!(bindings(&bed), [format!("{address} p1 dhcp-snooping")]);
    }
    logged(&bed, "%DHCP_SNOOPING-5-DHCP_SNOOPING_FAKE_INTERFACE");
    let statistics = bed.show("show ip dhcp snooping statistics");
    assert!(statistics["forwarded"].as_u64() >= Some(4), "{statistics}");
    assert_eq!(statistics["dropped"]["source_mac_mismatch"], 1, "{statistics}");
    assert!(statistics["dropped_by_plane"].as_u64() >= Some(2), "{statistics}");
    // The leased address works while source guard verifies the port.
    bed.configure("interface p1\nip verify source");
    bed.host(1).address(&format!("{address}/24"));
    bed.host(1).reaches("10.0.0.3");
    bed.exec(&["clear ip dhcp snooping binding"]);
    assert_eq!(bindings(&bed), [""; 0]);
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.0.3"), "a source without a binding");
}

fn a_restart_keeps_leases(plane: Plane) {
    if !possible() {
        return;
    }
    let bed = with_servers(plane);
    bed.configure("interface p1\nip verify source");
    let _own = server(&bed, bed.host(3), &["--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,1h"]);
    let (address, _) = Client::start(&bed, bed.host(1), "-4").leased("fixed-address");
    wait_for("the binding", || (bindings(&bed) == [format!("{address} p1 dhcp-snooping")]).then_some(()));
    bed.host(1).address(&format!("{address}/24"));
    bed.exec(&["copy running-config startup-config"]);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    // Without the daemon the plane still lets in what has a binding, and nothing else.
    bed.host(1).reaches("10.0.0.3");
    bed.host(1).net.ip("addr add 10.0.0.200/24 dev eth0");
    assert!(!bed.host(1).ping("-c 1 -W 1 -I 10.0.0.200 10.0.0.3"));
    bed.host(1).net.ip("addr del 10.0.0.200/24 dev eth0");
    bed.start();
    assert_eq!(bindings(&bed), [format!("{address} p1 dhcp-snooping")]);
    bed.host(1).reaches("10.0.0.3");
}

/// The server is in VLAN 20 behind p2: the relay asks it for the client, and the client renews with the server itself.
fn leases_of_another_vlans_server(plane: Plane) {
    if !possible() {
        return;
    }
    let snooping = "ip dhcp snooping\nip dhcp snooping vlan 10,20\nno ip dhcp snooping information option\n\
        interface p1\n ip verify source\ninterface p2\n ip dhcp snooping trust\n";
    let bed = crate::dhcp::bed(plane, &format!("{}{snooping}", crate::dhcp::CONFIG));
    let _server = server(&bed, bed.host(2), &["--dhcp-range=10.0.10.50,10.0.10.60,255.255.255.0,1h"]);
    let (address, _) = Client::start(&bed, bed.host(1), "-4").leased("fixed-address");
    let bound = format!("{address} p1 dhcp-snooping");
    wait_for("the binding", || bindings(&bed).contains(&bound).then_some(()));
    let host: std::net::Ipv4Addr = address.parse().expect("an address");
    let view = bed.show("show ip dhcp snooping binding");
    let digits: String = view["bindings"][0]["mac"].as_str().unwrap().replace(['.', ':'], "");
    let mac = u64::from_str_radix(&digits, 16).expect("a MAC address").to_be_bytes();
    bed.host(1).address(&format!("{address}/24"));
    bed.host(1).net.ip("route add default via 10.0.10.254");
    bed.host(1).reaches("10.0.20.1");
    bed.exec(&["clear ip dhcp snooping binding"]);
    assert!(!bindings(&bed).contains(&bound));
    let mut request = vec![0; 236];
    request[..3].copy_from_slice(&[1, 1, 6]);
    request[12..16].copy_from_slice(&host.octets());
    request[28..34].copy_from_slice(&mac[2..]);
    request.extend([99, 130, 83, 99, 53, 1, 3, 255]);
    let socket = bed.host(1).net.run(|| std::net::UdpSocket::bind("0.0.0.0:68").expect("a port"));
    wait_for("the renewed binding", || {
        socket.send_to(&request, "10.0.20.1:67").expect("sent");
        bindings(&bed).contains(&bound).then_some(())
    });
    bed.host(1).reaches("10.0.20.1");
}

const ARP: &str = "ip arp inspection vlan 1\ninterface p3\n ip arp inspection trust\n\
    interface range p1 - 2\n ip arp inspection limit none\n";

fn arp_with_foreign_addresses(plane: Plane) {
    let bed = Bed::new(plane, 3, &format!("{THREE}{ARP}"));
    bed.configure("ip source binding 0200.0000.0001 vlan 1 10.0.0.1 interface p1");
    let (own, other) = ([10, 0, 0, 1], [10, 0, 0, 3]);
    bed.expect_at(1, &arp(1, 1, 1, own, other), &[2, 3]);
    // A probe for an address (RFC 5227) passes.
    bed.expect_at(1, &arp(1, 1, 1, [0; 4], own), &[2, 3]);
    // Dropped are another address, the bound address of another station, the binding's addresses at another port, and a damaged
    // packet.
    bed.expect_drop(1, &arp(1, 1, 1, other, own), "arp_inspection");
    bed.expect_drop(1, &arp(2, 1, 9, own, other), "arp_inspection");
    bed.expect_drop(2, &arp(1, 1, 1, own, other), "arp_inspection");
    let mut damaged = arp(1, 1, 1, own, other);
    damaged.0[18] = 5;
    bed.expect_drop(1, &damaged, "arp_inspection");
    // ARP packets at a trusted port are not inspected.
    bed.expect_at(3, &arp(1, 3, 3, other, own), &[1, 2]);
    logged(&bed, "%SW_DAI-4-DHCP_SNOOPING_DENY");
    bed.configure("ip arp inspection validate src-mac ip");
    bed.expect_drop(1, &arp(1, 7, 1, own, other), "arp_inspection");
    bed.expect_drop(1, &arp(1, 1, 1, [0; 4], own), "arp_inspection");
    bed.expect_at(1, &arp(1, 1, 1, own, other), &[2, 3]);
    bed.configure("ip arp inspection validate src-mac ip allow zeros");
    bed.expect_at(1, &arp(1, 1, 1, [0; 4], own), &[2, 3]);
    let shown = bed.show("show ip arp inspection statistics");
    assert_eq!(shown["interfaces"][0]["dropped"]["arp_inspection"], 5, "{shown}");
    bed.configure("no ip source binding 0200.0000.0001 vlan 1 10.0.0.1 interface p1");
    bed.expect_drop(1, &arp(1, 1, 1, own, other), "arp_inspection");
    bed.configure("no ip arp inspection vlan 1");
    bed.expect_at(1, &arp(1, 1, 1, other, own), &[2, 3]);
}

/// Waits until p1 is shut down for `cause`.
fn shut_down(bed: &Bed, cause: &str) {
    wait_for("err-disable", || {
        let shown = bed.show("show errdisable recovery");
        (shown["interfaces"][0]["interface"] == "p1" && shown["interfaces"][0]["cause"] == cause)
            .then_some(())
    });
}

fn a_flood_of_arp(plane: Plane) {
    let bed = Bed::new(plane, 3, &format!("{THREE}ip arp inspection vlan 1\n"));
    bed.configure(
        "ip source binding 0200.0000.0001 vlan 1 10.0.0.1 interface p1\n\
         ip source binding 0200.0000.0002 vlan 1 10.0.0.2 interface p2",
    );
    bed.chatter.set(true);
    for _ in 0..200 {
        // The port may be down already.
        let _ = bed.host(1).try_send(&arp(1, 1, 1, [10, 0, 0, 1], [10, 0, 0, 3]));
    }
    shut_down(&bed, "arp-inspection");
    logged(&bed, "%SW_DAI-4-PACKET_RATE_EXCEEDED");
    assert!(bed.drops(1, "arp_rate") >= 100, "{}", bed.ask("show interfaces counters drops"));
    bed.host(2).drain();
    bed.host(3).drain();
    bed.expect_at(2, &arp(1, 2, 2, [10, 0, 0, 2], [10, 0, 0, 3]), &[3]);
}

fn a_flood_of_dhcp(plane: Plane) {
    let config = "ip dhcp snooping\nip dhcp snooping vlan 1\nno ip dhcp snooping verify mac-address\n\
        interface p1\n ip dhcp snooping limit rate 10\ninterface p3\n ip dhcp snooping trust\n";
    let bed = Bed::new(plane, 3, &format!("{THREE}{config}"));
    bed.chatter.set(true);
    // The daemon sends some of the messages on.
    bed.exact.set(false);
    // As a starvation attack does, each message names another client.
    for n in 0..200 {
        let _ = bed.host(1).try_send(&dhcp(1, 1, 1, 1000 + n));
    }
    shut_down(&bed, "dhcp-rate-limit");
    logged(&bed, "%DHCP_SNOOPING-4-DHCP_SNOOPING_RATE_LIMIT_EXCEEDED");
    assert!(bed.drops(1, "dhcp_rate") >= 100, "{}", bed.ask("show interfaces counters drops"));
    bed.configure("interface p1\nno ip dhcp snooping limit rate\nshutdown\nno shutdown");
}

fn packets_with_foreign_sources(plane: Plane) {
    let config = "ip dhcp snooping\nip dhcp snooping vlan 1\ninterface p1\n ip verify source port-security\n\
        interface p3\n ip dhcp snooping trust\n";
    let bed = Bed::new(plane, 3, &format!("{THREE}{config}"));
    bed.configure("ip source binding 0200.0000.0001 vlan 1 10.0.0.1 interface p1");
    let say = |src: u16, from: [u8; 4]| udp(BROADCAST, src, from, [5000, 5001], &[1; 20]);
    bed.expect_at(1, &say(1, [10, 0, 0, 1]), &[2, 3]);
    bed.expect_drop(1, &say(1, [10, 0, 0, 9]), "source_guard");
    bed.expect_drop(1, &say(9, [10, 0, 0, 1]), "source_guard");
    bed.expect_drop(1, &packet(BROADCAST, mac(1), 0x0800, &[0x45; 10]), "source_guard");
    bed.expect_at(2, &say(2, [10, 0, 0, 9]), &[1, 3]);
    // Packets other than IPv4 are not verified.
    bed.expect_at(1, &frame(BROADCAST, mac(9)), &[2, 3]);
    logged(&bed, "%SOURCE_GUARD-4-DENY");
    let shown = bed.show("show ip verify source");
    assert_eq!(
        (&shown["filters"][0]["dropped"], &shown["filters"][0]["filter_type"]),
        (&3.into(), &"ip-mac".into()),
        "{shown}"
    );
    bed.configure("interface p1\nip verify source");
    bed.expect_at(1, &say(9, [10, 0, 0, 1]), &[2, 3]);
    bed.expect_drop(1, &say(1, [10, 0, 0, 9]), "source_guard");
    if plane == Plane::ebpf {
        bed.exec(&["copy running-config startup-config"]);
        let before = bed.drops(1, "source_guard");
        bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
        bed.host(1).send(&say(1, [10, 0, 0, 8]));
        bed.host(1).send(&say(9, [10, 0, 0, 1]));
        wait_for("the legitimate packet", || bed.host(2).next().filter(|got| got.0[26..30] == [10, 0, 0, 1]));
        bed.start();
        assert_eq!(bed.drops(1, "source_guard"), before + 1);
        bed.host(3).drain();
        bed.expect_drop(1, &say(1, [10, 0, 0, 9]), "source_guard");
    }
    bed.configure("interface p1\nno ip verify source");
    bed.expect_at(1, &say(1, [10, 0, 0, 9]), &[2, 3]);
}

/// XDP remembers its decision about frames of the same stations that come in a row (`bpf/memo_xdp.h`). No frame may bypass the
/// checks because of that.
fn frames_in_a_row_on_xdp(plane: Plane) {
    let bed = on_xdp(plane, 2, "interface range p1 - 2\n switchport\n hook xdp\n");
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1]);
    bed.expect_at(1, &frame(mac(2), mac(1)), &[2]);
    let say = |last: u8| udp(mac(2), 1, [10, 0, 0, last], [5000, 5001], &[1; 20]);
    // Sends a packet from 10.0.0.N for each N of `sources`; returns N of those that arrive at host 2.
    let arrive = |sources: &[u8]| -> Vec<u8> {
        let frames: Vec<Frame> = sources.iter().map(|last| say(*last)).collect();
        bed.exchange(1, &frames)[1].iter().map(|got| got.0[29]).collect()
    };
    let before = redirected(&bed, "p1");
    assert_eq!(arrive(&[9; 6]), [9; 6]);
    assert_eq!(redirected(&bed, "p1") - before, 6, "XDP is not used");
    bed.configure(
        "ip dhcp snooping\nip dhcp snooping vlan 1\n\
         ip source binding 0200.0000.0001 vlan 1 10.0.0.1 interface p1\ninterface p1\nip verify source",
    );
    let before = bed.drops(1, "source_guard");
    assert_eq!(arrive(&[9; 6]), [0; 0]);
    assert_eq!(arrive(&[1, 1, 1, 1, 9, 9, 1, 9]), [1; 5]);
    assert_eq!(bed.drops(1, "source_guard"), before + 9);
}

/// An IPv6 packet from fe80::1 for ff02::1: `chain` are extension headers, each with the number of its kind, and then the
/// kind of `payload`.
fn ipv6(src: u16, chain: &[(u8, [u8; 7])], last: u8, payload: &[u8]) -> Frame {
    let kinds: Vec<u8> = chain.iter().map(|(kind, _)| *kind).chain([last]).collect();
    let len = (8 * chain.len() + payload.len()) as u16;
    let mut ip = vec![0x60, 0, 0, 0, 0, 0, kinds[0], 255];
    ip[4..6].copy_from_slice(&len.to_be_bytes());
    ip.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    ip.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    for ((_, rest), next) in chain.iter().zip(&kinds[1..]) {
        ip.push(*next);
        ip.extend(rest);
    }
    ip.extend(payload);
    packet([0x33, 0x33, 0, 0, 0, 1], mac(src), 0x86dd, &ip)
}

fn rogue_routers(plane: Plane) {
    let bed = Bed::new(plane, 3, &format!("{THREE}interface p1\n ipv6 nd raguard\n ipv6 dhcp guard\n"));
    const OPTIONS: (u8, [u8; 7]) = (60, [0, 1, 4, 0, 0, 0, 0]);
    let fragment = |offset: u16| (44u8, [0, (offset >> 5) as u8, (offset << 3) as u8 | 1, 0, 0, 0, 7]);
    let advertisement = [134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    let redirect = [137, 0, 0, 0, 0, 0, 0, 0];
    let solicitation = [135, 0, 0, 0, 0, 0, 0, 0];
    let reply = [547u16.to_be_bytes(), 546u16.to_be_bytes(), [0, 12], [0, 0]].concat();
    let request = [546u16.to_be_bytes(), 547u16.to_be_bytes(), [0, 12], [0, 0]].concat();
    bed.expect_drop(1, &ipv6(1, &[], 58, &advertisement), "ra_guard");
    bed.expect_drop(1, &ipv6(1, &[], 58, &redirect), "ra_guard");
    // An advertisement behind two headers, behind more headers than the switch reads, and in a first fragment (RFC 7113).
    bed.expect_drop(1, &ipv6(1, &[OPTIONS; 2], 58, &advertisement), "ra_guard");
    bed.expect_drop(1, &ipv6(1, &[OPTIONS; 7], 58, &advertisement), "ra_guard");
    bed.expect_drop(1, &ipv6(1, &[fragment(0)], 58, &advertisement), "ra_guard");
    bed.expect_drop(1, &ipv6(1, &[], 17, &reply), "dhcpv6_guard");
    for passes in [ipv6(1, &[], 58, &solicitation), ipv6(1, &[OPTIONS], 17, &request)] {
        bed.expect_at(1, &passes, &[2, 3]);
    }
    bed.expect_at(2, &ipv6(2, &[], 58, &advertisement), &[1, 3]);
    logged(&bed, "%SISF-4-PAK_DROP");
    let shown = bed.show("show ipv6 nd raguard");
    assert_eq!(shown["interfaces"][0]["dropped"]["ra_guard"], 5, "{shown}");
    bed.configure("interface p1\nno ipv6 nd raguard\nno ipv6 dhcp guard");
    bed.expect_at(1, &ipv6(1, &[], 58, &advertisement), &[2, 3]);
}
