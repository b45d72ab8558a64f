//! The stage `guard`: what first-hop security drops and traps, and near misses that pass.

use super::support::{BROADCAST, base, host, pipeline, port, run, vlan};
use lanyard_pipeline::Pipeline;
use lanyard_pipeline::state::{FdbTarget, PlaneState, PortState, Shares, VlanState};
use lanyard_types::{
    ArpLimit, ArpValidation, BindingKey, MacAddr, PortGuard, PortLock, StpState, VerifySource, VlanGuard,
};
use lanyard_wire::Builder;
use std::net::{IpAddr, Ipv6Addr};

/// The outcome of a broadcast that port 1 receives, in the base state.
const FLOOD: &str = "2:- 5:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0";

/// The base state with checks in VLAN 10 and at port 1.
fn state(vlan_guard: VlanGuard, port_guard: PortGuard) -> PlaneState {
    let mut state = base();
    state.vlans.get_mut(&vlan(10)).unwrap().guard = vlan_guard;
    state.ports.get_mut(&port(1)).unwrap().stages.guard = port_guard;
    state
}

/// A pipeline in which 10.0.0.1 belongs to host 1 at port 1.
fn guarded(vlan_guard: VlanGuard, port_guard: PortGuard) -> Pipeline {
    let mut p = pipeline(&state(vlan_guard, port_guard));
    p.bind(key(1, 10), Some(host(1))).unwrap();
    p
}

fn key(at: u16, of: u16) -> BindingKey {
    BindingKey { port: port(at), vlan: vlan(of), address: IpAddr::from([10, 0, 0, 1]) }
}

fn packet(src: MacAddr, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    Builder::new(BROADCAST, src).ethertype(ethertype).payload(payload).build()
}

/// An ARP packet from the station `src`, in which `sender` claims 10.0.0.`last`.
fn arp(op: u8, src: u8, sender: u8, last: u8) -> Vec<u8> {
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, op];
    arp.extend(host(sender).0);
    arp.extend([10, 0, 0, last]);
    arp.extend(host(2).0);
    arp.extend([10, 0, 0, 2]);
    packet(host(src), 0x0806, &arp)
}

/// An ARP request without a sender's address.
fn probe() -> Vec<u8> {
    let mut frame = arp(1, 1, 1, 0);
    frame[28..32].fill(0);
    frame
}

/// An IPv4 packet of `protocol` from 10.0.0.`last`.
fn ipv4(src: u8, last: u8, protocol: u8, ports: [u16; 2], fragment: u16) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 40, 0, 0];
    ip.extend(fragment.to_be_bytes());
    ip.extend([64, protocol, 0, 0, 10, 0, 0, last, 10, 0, 0, 2]);
    ports.iter().for_each(|port| ip.extend(port.to_be_bytes()));
    ip.extend([0; 16]);
    packet(host(src), 0x0800, &ip)
}

/// An IPv6 packet from an address that begins with `first`: extension headers of these kinds, then `last` and its payload.
fn ipv6(first: [u8; 2], chain: &[u8], last: u8, payload: &[u8]) -> Vec<u8> {
    let kinds: Vec<u8> = chain.iter().copied().chain([last]).collect();
    let mut ip = vec![0x60, 0, 0, 0, 0, 40, kinds[0], 255, first[0], first[1]];
    ip.extend([0; 13]);
    ip.extend([1, 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    for next in &kinds[1..] {
        ip.extend([*next, 0, 1, 4, 0, 0, 0, 0]);
    }
    ip.extend(payload);
    packet(host(1), 0x86dd, &ip)
}

#[track_caller]
fn check(p: &mut Pipeline, at: u16, frame: &[u8], expected: &str) {
    assert_eq!(run(p, at, frame), expected, "{frame:02x?}");
}

const ARP: VlanGuard = VlanGuard { dhcp: false, arp: true, validate: NO_CHECKS, nd: false };
const DHCP: VlanGuard = VlanGuard { dhcp: true, arp: false, validate: NO_CHECKS, nd: false };
const ND: VlanGuard = VlanGuard { dhcp: false, arp: false, validate: NO_CHECKS, nd: true };
const NO_CHECKS: ArpValidation =
    ArpValidation { src_mac: false, dst_mac: false, ip: false, allow_zeros: false };

fn no_limit() -> PortGuard {
    PortGuard { arp_limit: ArpLimit::None, ..PortGuard::default() }
}

#[test]
fn arp_needs_a_binding_of_its_port() {
    const DENIED: &str = "dropped arp_inspection";
    let mut p = guarded(ARP, no_limit());
    check(&mut p, 1, &arp(1, 1, 1, 1), FLOOD);
    check(&mut p, 1, &arp(2, 9, 1, 1), FLOOD);
    check(&mut p, 1, &probe(), FLOOD);
    check(&mut p, 1, &arp(1, 1, 1, 3), DENIED);
    check(&mut p, 1, &arp(1, 1, 9, 1), DENIED);
    check(&mut p, 2, &arp(1, 1, 1, 1), DENIED);
    check(&mut p, 1, &arp(3, 1, 1, 1), DENIED);
    check(&mut p, 1, &packet(host(1), 0x0806, &[0, 1, 8, 0, 7, 4, 0, 1]), DENIED);
    assert!(
        p.fdb().get(vlan(10), host(9)).is_none_or(|found| found.port != Some(port(2))),
        "nothing is learned"
    );
    // The host behind the VLAN interface is trusted, and VLAN 20 is not inspected.
    assert!(!run(&mut p, 5, &arp(1, 9, 9, 9)).contains("dropped"));
    assert!(!run(&mut p, 6, &arp(1, 9, 9, 9)).contains(DENIED));
    let mut trusted = guarded(ARP, PortGuard { arp_trust: true, ..PortGuard::default() });
    check(&mut trusted, 1, &arp(1, 1, 9, 77), FLOOD);
}

#[test]
fn arp_validation() {
    const DENIED: &str = "dropped arp_inspection";
    let with = |validate| guarded(VlanGuard { validate, ..ARP }, no_limit());
    let mut p = with(ArpValidation { src_mac: true, ..NO_CHECKS });
    check(&mut p, 1, &arp(1, 1, 1, 1), FLOOD);
    check(&mut p, 1, &arp(1, 9, 1, 1), DENIED);
    let mut p = with(ArpValidation { dst_mac: true, ..NO_CHECKS });
    check(&mut p, 1, &arp(1, 1, 1, 1), FLOOD);
    check(&mut p, 1, &arp(2, 1, 1, 1), DENIED);
    let mut p = with(ArpValidation { ip: true, ..NO_CHECKS });
    check(&mut p, 1, &arp(1, 1, 1, 1), FLOOD);
    check(&mut p, 1, &probe(), DENIED);
    let mut p = with(ArpValidation { ip: true, allow_zeros: true, ..NO_CHECKS });
    check(&mut p, 1, &probe(), FLOOD);
}

#[test]
fn arp_and_dhcp_frames_over_the_rate_are_dropped() {
    let arp_rate = ArpLimit::Rate { pps: 3, interval_s: 1 };
    let mut p = guarded(ARP, PortGuard { arp_limit: arp_rate, ..PortGuard::default() });
    let got: Vec<String> = (0..5).map(|_| run_at_zero(&mut p, &arp(1, 1, 1, 1))).collect();
    assert_eq!(got, ["forwarded", "forwarded", "forwarded", "arp_rate", "arp_rate"]);
    let mut p = guarded(DHCP, PortGuard { dhcp_rate: Some(2), ..PortGuard::default() });
    let got: Vec<String> = (0..3).map(|_| run_at_zero(&mut p, &ipv4(1, 0, 17, [68, 67], 0))).collect();
    assert_eq!(got, ["trapped", "trapped", "dhcp_rate"]);
    check(&mut p, 1, &ipv4(1, 1, 17, [68, 69], 0), FLOOD);
}

/// Processes a frame at time 0; returns the verdict, or the reason of a drop. No trace is compared, because a trace takes no
/// token.
fn run_at_zero(p: &mut Pipeline, frame: &[u8]) -> String {
    use lanyard_pipeline::trace::Verdict;
    let mut out = lanyard_pipeline::Output::default();
    match p.process(lanyard_pipeline::Timestamp::default(), port(1), frame, &mut out) {
        Verdict::Forwarded => "forwarded".into(),
        Verdict::Trapped(_) => "trapped".into(),
        Verdict::Dropped(reason) => reason.to_string(),
    }
}

#[test]
fn dhcp_goes_to_the_control_plane() {
    let mut p = guarded(DHCP, PortGuard::default());
    check(&mut p, 1, &ipv4(1, 0, 17, [68, 67], 0), "trapped dhcp");
    check(&mut p, 1, &ipv4(1, 0, 17, [67, 68], 0), "dropped dhcp_server");
    check(&mut p, 1, &ipv4(1, 0, 17, [68, 69], 0), FLOOD);
    check(&mut p, 1, &ipv4(1, 0, 6, [68, 67], 0), FLOOD);
    // A packet that ends before its ports may be a server's.
    check(&mut p, 1, &ipv4(1, 0, 17, [68, 67], 0)[..14 + 20], "dropped dhcp_server");
    // A later fragment has no ports, so it passes; VLAN 20 is not snooped.
    check(&mut p, 1, &ipv4(1, 0, 17, [67, 68], 100), FLOOD);
    check(&mut p, 6, &ipv4(1, 0, 17, [67, 68], 0), "3:8100.20.0 7:8100.20.0");
    let trusted = PortGuard { dhcp_trust: true, ..PortGuard::default() };
    let mut p = guarded(DHCP, trusted);
    check(&mut p, 1, &ipv4(1, 0, 17, [67, 68], 0), "trapped dhcp");
    let mut learning = state(DHCP, trusted);
    learning.stp.insert((Default::default(), port(1)), StpState::Learning);
    check(&mut pipeline(&learning), 1, &ipv4(1, 0, 17, [68, 67], 0), "dropped stp_learning");
}

#[test]
fn sources_need_a_binding() {
    const DENIED: &str = "dropped source_guard";
    let with = |verify| guarded(DHCP, PortGuard { verify, ..PortGuard::default() });
    let mut p = with(VerifySource::Ip);
    check(&mut p, 1, &ipv4(9, 1, 17, [5, 6], 0), FLOOD);
    check(&mut p, 1, &ipv4(1, 2, 17, [5, 6], 0), DENIED);
    check(&mut p, 1, &packet(host(1), 0x0800, &[0x65; 40]), DENIED);
    check(&mut p, 1, &packet(host(1), 0x88b5, &[0; 40]), FLOOD);
    check(&mut p, 1, &ipv4(1, 0, 17, [68, 67], 0), "trapped dhcp");
    check(&mut p, 2, &ipv4(1, 2, 17, [5, 6], 0), "1:- 5:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0");
    let mut p = with(VerifySource::IpAndMac);
    check(&mut p, 1, &ipv4(1, 1, 17, [5, 6], 0), FLOOD);
    check(&mut p, 1, &ipv4(9, 1, 17, [5, 6], 0), DENIED);
    p.bind(key(1, 10), None).unwrap();
    check(&mut p, 1, &ipv4(1, 1, 17, [5, 6], 0), DENIED);
    // Without DHCP snooping in the VLAN nothing is verified.
    let mut p = guarded(ARP, PortGuard { verify: VerifySource::Ip, ..PortGuard::default() });
    check(&mut p, 1, &ipv4(1, 2, 17, [5, 6], 0), FLOOD);
}

#[test]
fn only_routers_advertise() {
    const LINK: [u8; 2] = [0xfe, 0x80];
    let guard = PortGuard { no_routers: true, no_dhcpv6_servers: true, ..PortGuard::default() };
    let mut p = guarded(VlanGuard::default(), guard);
    let icmp = |kind: u8| [kind, 0, 0, 0, 0, 0, 0, 0];
    for (chain, kind, want) in [
        (&[][..], 134, "dropped ra_guard"),
        (&[], 137, "dropped ra_guard"),
        (&[], 135, FLOOD),
        (&[60, 0, 43, 60, 60, 60], 134, "dropped ra_guard"),
        (&[60, 60, 60, 60, 60, 60], 135, FLOOD),
        // A message behind more extension headers than the stage reads.
        (&[60, 60, 60, 60, 60, 60, 60], 135, "dropped ra_guard"),
    ] {
        check(&mut p, 1, &ipv6(LINK, chain, 58, &icmp(kind)), want);
    }
    check(&mut p, 1, &ipv6([0x20, 1], &[60; 7], 58, &icmp(134)), FLOOD);
    let udp = |to: u16| [[2, 35].as_slice(), &to.to_be_bytes(), &[0, 8, 0, 0]].concat();
    check(&mut p, 1, &ipv6(LINK, &[], 17, &udp(546)), "dropped dhcpv6_guard");
    check(&mut p, 1, &ipv6(LINK, &[], 17, &udp(547)), FLOOD);
    check(&mut p, 1, &ipv6(LINK, &[], 6, &udp(546)), FLOOD);
    check(&mut p, 2, &ipv6(LINK, &[], 58, &icmp(134)), "1:- 5:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0");
}

/// fe80::`last`; 0: the unspecified address.
fn six(last: u16) -> Ipv6Addr {
    if last == 0 { Ipv6Addr::UNSPECIFIED } else { Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last) }
}

/// A pipeline in which fe80::1 belongs to host 1 at port 1.
fn discovering(port_guard: PortGuard) -> Pipeline {
    let mut p = pipeline(&state(ND, port_guard));
    p.bind(BindingKey { address: six(1).into(), ..key(1, 10) }, Some(host(1))).unwrap();
    p
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An IPv6 packet of the station `src` between these addresses.
fn packet6(src: u8, [from, to]: [Ipv6Addr; 2], next: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, hop_limit];
    ip.extend(from.octets());
    ip.extend(to.octets());
    ip.extend(payload);
    packet(host(src), 0x86dd, &ip)
}

/// A message of neighbour discovery from host `src` at fe80::`from`. Each option has a kind, and contains the MAC address of a
/// host.
fn nd(kind: u8, src: u8, from: u16, target: u16, options: &[(u8, u8)]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    if kind != 133 {
        message.extend(six(target).octets());
    }
    for (kind, station) in options {
        message.extend([*kind, 1]);
        message.extend(host(*station).0);
    }
    let to = if kind == 136 { six(7) } else { ALL_NODES };
    packet6(src, [six(from), to], 58, 255, &message)
}

const ND_TRAPPED: &str = "trapped nd";
const ND_DENIED: &str = "dropped nd_inspection";

#[test]
fn neighbour_discovery_needs_a_binding_of_its_port() {
    let mut p = discovering(PortGuard::default());
    for explained in [
        nd(135, 1, 1, 7, &[]),
        nd(135, 1, 1, 7, &[(1, 1)]),
        // Duplicate address detection for the address that is bound.
        nd(135, 1, 0, 1, &[]),
        nd(136, 1, 1, 1, &[]),
        nd(136, 1, 1, 1, &[(2, 1)]),
        nd(133, 1, 1, 0, &[]),
        nd(133, 1, 1, 0, &[(1, 1)]),
        nd(133, 1, 0, 0, &[]),
    ] {
        check(&mut p, 1, &explained, FLOOD);
    }
    for unexplained in [
        // Addresses without a binding, and the bound address with another host's MAC address.
        nd(135, 1, 2, 7, &[]),
        nd(135, 9, 1, 7, &[]),
        nd(135, 1, 0, 2, &[]),
        nd(136, 1, 2, 2, &[]),
        nd(136, 9, 1, 1, &[]),
        nd(133, 1, 2, 0, &[]),
        // Options that contain another host's MAC address, two options, an option of the wrong kind, and an option in a message
        // without a source address.
        nd(135, 1, 1, 7, &[(1, 9)]),
        nd(135, 1, 1, 7, &[(1, 1), (1, 9)]),
        nd(135, 1, 1, 7, &[(2, 1)]),
        nd(136, 1, 1, 1, &[(2, 9)]),
        nd(133, 1, 1, 0, &[(1, 9)]),
        nd(133, 1, 0, 0, &[(1, 1)]),
        // The source is not the address that is advertised.
        nd(136, 1, 7, 1, &[]),
    ] {
        check(&mut p, 1, &unexplained, ND_TRAPPED);
    }
    check(&mut p, 2, &nd(135, 1, 1, 7, &[]), ND_TRAPPED);
    assert!(
        p.fdb().get(vlan(10), host(9)).is_none_or(|found| found.port != Some(port(1))),
        "nothing is learned"
    );
    // Other messages, hosts behind the VLAN interface, and a VLAN that is not inspected.
    check(&mut p, 1, &nd(134, 1, 2, 2, &[]), FLOOD);
    assert!(!run(&mut p, 5, &nd(135, 9, 2, 7, &[])).contains("trapped"));
    assert!(!run(&mut p, 6, &nd(135, 9, 2, 7, &[])).contains("trapped"));
    let mut learning = state(ND, PortGuard::default());
    learning.stp.insert((Default::default(), port(1)), StpState::Learning);
    check(&mut pipeline(&learning), 1, &nd(135, 1, 2, 7, &[]), "dropped stp_learning");
}

#[test]
fn advertisements_to_all_nodes_go_to_the_control_plane() {
    let to_all = |from: u16| {
        let message = [&[136, 0, 0, 0, 0, 0, 0, 0][..], &six(from).octets()].concat();
        packet6(1, [six(from), ALL_NODES], 58, 255, &message)
    };
    let mut p = discovering(PortGuard::default());
    check(&mut p, 1, &to_all(1), ND_TRAPPED);
    let mut trusted = discovering(PortGuard { nd_trust: true, ..PortGuard::default() });
    check(&mut trusted, 1, &to_all(2), ND_TRAPPED);
    assert_eq!(run(&mut trusted, 5, &to_all(2)), ND_TRAPPED);
    check(&mut trusted, 1, &nd(136, 9, 2, 2, &[(2, 7)]), FLOOD);
    check(&mut trusted, 1, &nd(135, 9, 2, 2, &[]), FLOOD);
}

/// RFC 6980: hosts do not send neighbour discovery in fragments, and attackers do.
#[test]
fn hidden_neighbour_discovery_is_dropped() {
    let solicitation = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &six(7).octets()].concat();
    let say = |chain: &[u8], hop_limit: u8| {
        let mut payload = Vec::new();
        for n in 0..chain.len() {
            payload.extend([chain.get(n + 1).copied().unwrap_or(58), 0, 0, 0, 0, 0, 0, 0]);
        }
        payload.extend(&solicitation);
        packet6(1, [six(1), ALL_NODES], chain.first().copied().unwrap_or(58), hop_limit, &payload)
    };
    let mut p = discovering(PortGuard::default());
    for chain in [&[44][..], &[0], &[60, 43], &[60; 7]] {
        check(&mut p, 1, &say(chain, 255), ND_DENIED);
        // With another hop limit no host accepts the message, so it passes.
        check(&mut p, 1, &say(chain, 64), FLOOD);
    }
    // A later fragment does not contain the ICMPv6 type, and no host can reassemble it without the first, which is dropped.
    let second = [&[58, 0, 0, 9, 0, 0, 0, 7][..], &solicitation].concat();
    check(&mut p, 1, &packet6(1, [six(1), ALL_NODES], 44, 255, &second), FLOOD);
    let echo = [&[58, 0, 0, 0, 0, 0, 0, 0, 128][..], &[0; 30]].concat();
    check(&mut p, 1, &packet6(1, [six(1), ALL_NODES], 60, 255, &echo), FLOOD);
    // A message that ends before its target, and one that ends before its option.
    let cut = |len: usize, options: &[(u8, u8)]| nd(135, 1, 1, 7, options)[..len].to_vec();
    check(&mut p, 1, &cut(14 + 40 + 23, &[]), ND_DENIED);
    check(&mut p, 1, &cut(14 + 40 + 31, &[(1, 1)]), ND_DENIED);
    check(&mut p, 1, &cut(14 + 40, &[]), ND_DENIED);
    let mut trusted = discovering(PortGuard { nd_trust: true, ..PortGuard::default() });
    check(&mut trusted, 1, &say(&[44], 255), FLOOD);
}

#[test]
fn ipv6_sources_need_a_binding() {
    const DENIED: &str = "dropped source_guard";
    let guard = PortGuard { verify_ipv6: true, ..PortGuard::default() };
    let say = |src: u8, from: u16| packet6(src, [six(from), ALL_NODES], 17, 64, &[0; 20]);
    let mut p = discovering(guard);
    check(&mut p, 1, &say(1, 1), FLOOD);
    check(&mut p, 1, &say(1, 2), DENIED);
    check(&mut p, 1, &say(9, 1), DENIED);
    // A report of MLD before the host has an address.
    check(&mut p, 1, &say(1, 0), FLOOD);
    check(&mut p, 1, &packet(host(1), 0x86dd, &[0x40; 60]), DENIED);
    check(&mut p, 1, &nd(134, 1, 2, 2, &[]), DENIED);
    check(&mut p, 1, &nd(135, 1, 2, 7, &[]), ND_TRAPPED);
    check(&mut p, 1, &nd(135, 1, 0, 1, &[]), FLOOD);
    check(&mut p, 1, &ipv4(9, 9, 17, [5, 6], 0), FLOOD);
    let mut trusted = discovering(PortGuard { nd_trust: true, ..guard });
    check(&mut trusted, 1, &nd(135, 9, 2, 7, &[]), FLOOD);
    check(&mut trusted, 1, &say(1, 2), DENIED);
    // Without ND inspection in the VLAN nothing is verified.
    let mut p = guarded(DHCP, guard);
    check(&mut p, 1, &say(1, 2), FLOOD);
}

#[test]
fn a_secondary_private_vlan_has_the_bindings_of_its_primary_one() {
    let mut state = base();
    let shares = Some(Shares { primary: vlan(10), routed: false });
    state.vlans.get_mut(&vlan(10)).unwrap().guard = ARP;
    state.vlans.insert(vlan(11), VlanState { shares, ..VlanState::default() });
    let isolated = PortState {
        private: true,
        untagged: [vlan(10)].into_iter().collect(),
        ..PortState::access("p8", 8, vlan(11))
    };
    state.ports.insert(port(8), isolated);
    state.ports.get_mut(&port(2)).unwrap().untagged.insert(vlan(11));
    state.ports.get_mut(&port(8)).unwrap().stages.guard = no_limit();
    let mut p = pipeline(&state);
    check(&mut p, 8, &arp(1, 1, 1, 1), "dropped arp_inspection");
    p.bind(key(8, 10), Some(host(1))).unwrap();
    check(&mut p, 8, &arp(1, 1, 1, 1), "2:-");
}

/// A closed port forwards nothing in either direction; a port that is open for some hosts accepts frames of these hosts only.
#[test]
fn locked_ports() {
    const DENIED: &str = "dropped unauthorized";
    let locked = |lock| {
        let mut state = state(VlanGuard::default(), PortGuard { lock, ..PortGuard::default() });
        state.fdb.insert((vlan(10), host(1)), FdbTarget::Static(port(1)));
        state.fdb.insert((vlan(10), host(3)), FdbTarget::Static(port(2)));
        state
    };
    let say = |src: u8| packet(host(src), 0x0800, b"payload");
    let mut p = pipeline(&locked(PortLock::Hosts));
    check(&mut p, 1, &say(1), FLOOD);
    // A host without an entry, and one whose entry is at another port.
    check(&mut p, 1, &say(9), DENIED);
    check(&mut p, 1, &say(3), DENIED);
    assert_eq!(p.fdb().get(vlan(10), host(9)), None, "nothing is learned");
    // The stage `trap` handles EAPOL before this stage drops frames of hosts that are not authenticated.
    let eapol =
        Builder::new(MacAddr([1, 0x80, 0xc2, 0, 0, 3]), host(9)).ethertype(0x888e).payload(&[2, 1, 0, 0]);
    let eapol = eapol.build();
    check(&mut p, 1, &eapol, "dropped reserved_address");
    let mut state = locked(PortLock::Closed);
    state.global.reserved[3] = lanyard_pipeline::state::ReservedAction::Trap;
    let closed = state.ports.get_mut(&port(1)).unwrap();
    (closed.private, closed.untagged) = (true, Default::default());
    let mut p = pipeline(&state);
    check(&mut p, 1, &say(1), DENIED);
    check(&mut p, 1, &say(9), DENIED);
    check(&mut p, 1, &eapol, "trapped eapol");
    let out = run(&mut p, 2, &say(2));
    assert!(!out.contains("1:"), "nothing leaves by it: {out}");
    let to = Builder::new(host(1), host(2)).ethertype(0x0800).payload(b"payload").build();
    check(&mut p, 2, &to, "dropped private_vlan");
    // A learned entry does not open the port: only entries of the control plane do.
    let mut p = pipeline(&locked(PortLock::Open));
    check(&mut p, 1, &say(9), FLOOD);
    p.set_state(&locked(PortLock::Hosts), lanyard_pipeline::Timestamp::default(), &mut |_| ());
    check(&mut p, 1, &say(9), DENIED);
}
