//! Real traffic through the router: the counters of the plane's ports show what the plane forwarded and what it passed
//! to the kernel.
//!
//! Read first: RFC 1812, sections 4.3 and 5.3; RFC 8200; RFC 3704; docs/routing.md, "How the plane routes".

use crate::harness::{Bed, Frame, Host, Plane, bed, scenarios, wait_for, wait_until};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::Duration;

scenarios! {
    /// Ping and TCP of both families, between VLANs and within one, primary and secondary subnets.
    forwarded_by_the_plane: ebpf soft;
    forwarded_by_xdp: ebpf;
    /// UDP, ICMP and TCP probes: every hop answers from its address on the path.
    traceroute: ebpf soft;
    /// A path with a smaller MTU: TCP finds its segment size, and packets that may be fragmented are.
    path_mtu: ebpf soft;
    /// The first packet is not lost; for an unreachable address the sender gets an ICMP error.
    neighbours_are_resolved: ebpf soft;
    /// Neighbours that the plane uses stay reachable in the kernel; unused ones become stale.
    neighbours_are_kept_by_use: ebpf soft;
    /// Flows keep their next hop, except those whose next hop has failed.
    equal_cost_flows_stay: ebpf soft;
    reverse_path: ebpf soft;
    /// Packets that RFC 1812 and RFC 8200 forbid to forward are forwarded neither by the plane nor by the
    /// kernel.
    never_forwarded: ebpf soft;
    /// A packet that leaves by its ingress interface is forwarded, and no ICMP redirect is sent.
    no_redirects: ebpf soft;
    the_switch_itself: ebpf soft;
}

/// Hosts 1 and 4 are in VLAN 10, host 2 in VLAN 20, host 3 in VLAN 30; 10.9.0.1 and fd00:9::1 are behind host 3.
const CONFIG: &str = "\
vlan 10,20,30
ip routing
ipv6 unicast-routing
interface range p1, p4
 switchport access vlan 10
interface p2
 switchport access vlan 20
interface p3
 switchport access vlan 30
interface vlan 10
 ip address 10.0.10.254 255.255.255.0
 ip address 10.1.10.254 255.255.255.0 secondary
 ipv6 address fd00:10::254/64
interface vlan 20
 ip address 10.0.20.254 255.255.255.0
 ip address 10.1.20.254 255.255.255.0 secondary
 ipv6 address fd00:20::254/64
interface vlan 30
 ip address 10.0.30.254 255.255.255.0
 ipv6 address fd00:30::254/64
ip route 10.9.0.0 255.255.0.0 10.0.30.1
ipv6 route fd00:9::/32 fd00:30::1
";

fn world(plane: Plane) -> Bed {
    let bed = Bed::without_switch(plane, 4, 1500);
    start(&bed, CONFIG);
    bed
}

fn start(bed: &Bed, config: &str) {
    std::fs::write(bed.config_file(), config).unwrap();
    bed.start();
    bed.chatter.set(true);
    bed.exact.set(false);
    for (n, vlan, last) in [(1, 10, 1), (2, 20, 1), (3, 30, 1), (4, 10, 4)] {
        let host = bed.host(n);
        host.address(&format!("10.0.{vlan}.{last}/24"));
        host.address(&format!("fd00:{vlan}::{last}/64"));
        host.net.ip(&format!(
            "route add default via 10.0.{vlan}.254\nroute replace default via fd00:{vlan}::254"
        ));
    }
    bed.host(3).net.ip("address add 10.9.0.1/32 dev lo\naddress add fd00:9::1/128 dev lo nodad");
}

fn run(host: &Host, command: &str) -> String {
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let output = host.net.output(command.args(words));
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// The verdict of the plane's trace for a frame: `forwarded`, `trapped REASON`, `dropped REASON`.
fn fate(bed: &Bed, from: usize, frame: &Frame) -> String {
    let view = bed.ask(&format!("show platform packet-trace interface p{from} hex {}", frame.hex()));
    let [verdict, reason] =
        ["verdict", "reason"].map(|key| view[key].as_str().unwrap_or_default().to_owned());
    format!("{verdict} {reason}").trim_end().to_owned()
}

fn wait_fate(bed: &Bed, from: usize, frame: &Frame, want: &str) {
    wait_for(&format!("{frame:?} to be {want}: {}", fate(bed, from, frame)), || {
        (fate(bed, from, frame) == want).then_some(())
    });
}

/// A UDP datagram between these addresses, from a host's MAC address to the router's.
fn datagram(bed: &Bed, from: usize, src: &str, dst: &str, ttl: u8) -> Frame {
    let vlan = [10, 20, 30, 10][from - 1];
    let router =
        bed.net.run(|| lanyard_netdev::Netdev::open().unwrap().link(&format!("vlan{vlan}")).unwrap());
    let mut bytes = [router.mac.0, bed.host(from).mac].concat();
    let payload = *b"\x30\x39\x00\x09\x00\x20\x00\x00lanyard routes this.....";
    match (src.parse().unwrap(), dst.parse().unwrap()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes.extend([8, 0, 0x45, 0, 0, 52, 0, 1, 0, 0, ttl, 17, 0, 0]);
            bytes.extend([src.octets(), dst.octets()].concat());
            let words = bytes[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
            let sum: u32 = words.sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 17, ttl]);
            bytes.extend([src.octets(), dst.octets()].concat());
        }
        _ => panic!("{src} and {dst}"),
    }
    bytes.extend(payload);
    Frame(bytes)
}

/// The result of [`arrives_at`] for a frame that is not forwarded.
const NOWHERE: [usize; 0] = [];

/// True for the datagram itself, not for an error message that quotes it.
fn is_ours(frame: &Frame) -> bool {
    let protocol = if frame.0.get(12) == Some(&8) { 23 } else { 20 };
    frame.0.get(protocol) == Some(&17) && frame.0.windows(20).any(|part| part == b"lanyard routes this.")
}

/// The numbers of the hosts at which a frame arrives, once it has been processed.
fn arrives_at(bed: &Bed, from: usize, frame: &Frame) -> Vec<usize> {
    // The host's kernel may send a frame of its own, which the counter contains as well: how long ours is then waited for.
    const LATER: Duration = Duration::from_millis(500);
    bed.hosts.iter().for_each(Host::drain);
    let port = format!("p{from}");
    let before = bed.counters()[&port].rx;
    bed.host(from).send(frame);
    wait_for("the frame to be taken in", || (bed.counters()[&port].rx > before).then_some(()));
    let hosts = || {
        let arrivals = bed.arrivals();
        let at = |(n, frames): (usize, &Vec<Frame>)| frames.iter().any(is_ours).then_some(n + 1);
        let at: Vec<usize> = arrivals.iter().enumerate().filter_map(at).collect();
        (!at.is_empty()).then_some(at)
    };
    wait_until(LATER, hosts).unwrap_or_default()
}

/// The pairs of addresses: the sending host, its address, the destination address, and the host that has it.
const PAIRS: [(usize, &str, &str, usize); 8] = [
    (1, "10.0.10.1", "10.0.20.1", 2),
    (2, "10.0.20.1", "10.0.10.4", 4),
    (1, "10.0.10.1", "10.9.0.1", 3),
    (1, "10.1.10.1", "10.1.20.1", 2),
    (4, "10.0.10.4", "10.1.10.1", 1),
    (1, "fd00:10::1", "fd00:20::1", 2),
    (2, "fd00:20::1", "fd00:10::4", 4),
    (4, "fd00:10::4", "fd00:9::1", 3),
];

fn talk(bed: &Bed) {
    for (n, address) in [(1, "10.1.10.1/24"), (2, "10.1.20.1/24")] {
        bed.host(n).address(address);
    }
    for (from, source, to, at) in PAIRS {
        let what = format!("{source} to {to}");
        let ping = |count: u32| bed.host(from).ping(&format!("-c {count} -W 1 -I {source} {to}"));
        wait_for(&what, || ping(2).then_some(()));
        wait_fate(bed, from, &datagram(bed, from, source, to, 64), "forwarded");
        // An echo may be lost on a busy machine; what counts is that the kernel routes none of them.
        bed.by_the_plane(from, 20, &what, || assert!(ping(25), "{what}"));
        bed.by_the_plane(from, 50, &what, || bed.host(from).tcp(bed.host(at), to, 4 << 20));
    }
}

fn forwarded_by_the_plane(plane: Plane) {
    talk(&world(plane));
}

fn forwarded_by_xdp(plane: Plane) {
    let bed = Bed::without_switch(plane, 4, 1500);
    for host in &bed.hosts {
        // A veth accepts frames from XDP while its other end runs NAPI, and checksums must be complete in the frame.
        run(host, "ethtool -K eth0 gro on tx off");
    }
    start(&bed, &format!("{CONFIG}interface range p1 - 4\n hook xdp\n"));
    let before = redirected(&bed);
    talk(&bed);
    let sent: u64 = (1..=4).map(|n| bed.routed(n).0).sum();
    let by_xdp = redirected(&bed) - before;
    assert!(by_xdp * 10 > sent * 9, "XDP has redirected {by_xdp} of {sent} frames");
}

/// The number of frames that the ports' drivers have redirected for XDP.
fn redirected(bed: &Bed) -> u64 {
    let of = |n: usize| {
        let output = bed.net.output(Command::new("ethtool").args(["-S", &format!("p{n}")]));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let counts = text.lines().filter(|line| line.contains("_xdp_redirect:"));
        counts.filter_map(|line| line.rsplit(' ').next()?.trim().parse::<u64>().ok()).sum::<u64>()
    };
    (1..=4).map(of).sum()
}

fn traceroute(plane: Plane) {
    if !std::path::Path::new("/usr/sbin/traceroute").exists() {
        return println!("skipped: traceroute is not installed");
    }
    let bed = world(plane);
    bed.host(1).address("10.1.10.1/24");
    for (from, to, hops) in [
        ("10.0.10.1", "10.0.20.1", ["10.0.10.254", "10.0.20.1"]),
        ("10.1.10.1", "10.9.0.1", ["10.1.10.254", "10.9.0.1"]),
        ("fd00:10::1", "fd00:20::1", ["fd00:10::254", "fd00:20::1"]),
        ("fd00:10::1", "fd00:9::1", ["fd00:10::254", "fd00:9::1"]),
    ] {
        bed.host(1).reaches(to);
        for probe in ["-U", "-I", "-T"] {
            let command = format!("traceroute -n -q 1 -w 2 -m 4 -s {from} {probe} {to}");
            // The kernel limits how often it answers a host, so repeat.
            let mut printed = String::new();
            let found = crate::harness::wait_until(crate::harness::DEADLINE, || {
                printed = run(bed.host(1), &command);
                let of = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
                let found: Vec<String> = printed.lines().skip(1).filter_map(of).collect();
                (found == hops).then_some(())
            });
            assert!(found.is_some(), "{command}: {printed}");
        }
    }
    let last = datagram(&bed, 1, "10.0.10.1", "10.0.20.1", 1);
    let expired = || {
        let view = bed.ask("show platform traps");
        let all = view["reasons"].as_array().cloned().unwrap_or_default();
        all.iter().find(|row| row["reason"] == "ttl_expired").and_then(|row| row["frames"].as_u64())
    };
    assert_eq!(fate(&bed, 1, &last), "trapped ttl_expired");
    let before = expired();
    assert_eq!(arrives_at(&bed, 1, &last), NOWHERE);
    assert_eq!(expired(), before.map(|frames| frames + 1));
}

fn path_mtu(plane: Plane) {
    let bed = world(plane);
    bed.configure("interface vlan 20\nmtu 1300");
    for (to, family) in [("10.0.20.1", "-4"), ("fd00:20::1", "-6")] {
        bed.host(1).reaches(to);
        // The sender does not know the path MTU yet: its first segments are too long.
        bed.host(1).tcp(bed.host(2), to, 1 << 20);
        let known = run(bed.host(1), &format!("ip {family} route get {to}"));
        assert!(known.contains("mtu 1300"), "{known}");
        bed.by_the_plane(1, 50, to, || bed.host(1).tcp(bed.host(2), to, 4 << 20));
        let printed = run(bed.host(1), &format!("ping -n -c 1 -W 5 -M do -s 1400 {to}"));
        assert!(printed.contains("mtu") || printed.contains("too long"), "{printed}");
    }
    // The kernel fragments packets that may be fragmented.
    let before = bed.routed(4);
    wait_for("three answers to packets that may be cut", || {
        let printed = run(bed.host(4), "ping -n -c 3 -W 5 -M dont -s 1400 10.0.20.1");
        printed.contains(" 3 received").then_some(())
    });
    let after = bed.routed(4);
    let drops = bed.ask("show interfaces counters drops");
    assert!(after.1 - before.1 >= 3, "the plane forwarded some: {before:?}, then {after:?}; drops: {drops}");
    // The opposite direction has a larger MTU: host 2, which does not know the smaller one, sends long segments.
    bed.host(2).tcp(bed.host(1), "10.0.10.1", 1 << 20);
}

fn neighbours_are_resolved(plane: Plane) {
    let bed = world(plane);
    for (source, to, flush) in [
        ("10.0.10.1", "10.0.20.1", "neighbor flush dev vlan20"),
        ("fd00:10::1", "fd00:20::1", "-6 neighbor flush dev vlan20"),
    ] {
        bed.host(1).reaches(to);
        wait_fate(&bed, 1, &datagram(&bed, 1, source, to, 64), "forwarded");
        run_in(&bed, flush);
        wait_fate(&bed, 1, &datagram(&bed, 1, source, to, 64), "trapped glean");
        assert!(bed.host(1).ping(&format!("-c 1 {to}")), "the first packet to {to} is lost");
        wait_fate(&bed, 1, &datagram(&bed, 1, source, to, 64), "forwarded");
        bed.by_the_plane(1, 20, to, || assert!(bed.host(1).ping(&format!("-c 20 {to}"))));
    }
    bed.net.ip("route add prohibit 10.66.0.0/16\nroute add unreachable 10.67.0.0/16\nroute add blackhole 10.68.0.0/16");
    bed.net.ip("route add prohibit fd00:66::/32");
    for (to, fate_is, from, words) in [
        ("10.0.20.77", "trapped glean", "10.0.10.254", "Destination Host Unreachable"),
        ("10.99.0.1", "trapped no_route", "10.0.10.254", "Destination Net Unreachable"),
        ("10.66.0.1", "trapped no_route", "10.0.10.254", "Packet filtered"),
        ("10.67.0.1", "trapped no_route", "10.0.10.254", "Destination Host Unreachable"),
        ("10.68.0.1", "dropped route_blackhole", "", ""),
        ("fd00:20::77", "trapped glean", "fd00:10::254", "Address unreachable"),
        ("fd00:99::1", "trapped no_route", "fd00:10::254", "No route"),
        ("fd00:66::1", "trapped no_route", "fd00:10::254", "Administratively prohibited"),
    ] {
        let source = if to.contains(':') { "fd00:10::1" } else { "10.0.10.1" };
        let frame = datagram(&bed, 1, source, to, 64);
        wait_fate(&bed, 1, &frame, fate_is);
        if words.is_empty() {
            assert_eq!(arrives_at(&bed, 1, &frame), NOWHERE);
            continue;
        }
        let ping = format!("ping -n -c 1 -W 5 {to}");
        wait_for(&format!("{to}: {words}"), || {
            let printed = run(bed.host(1), &ping);
            (printed.contains(words) && printed.contains(&format!("From {from}"))).then_some(())
        });
    }
}

/// Runs `ip` with these arguments in the switch's namespace.
fn run_in(bed: &Bed, words: &str) -> String {
    let output = bed.net.output(Command::new("ip").args(words.split(' ')));
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn neighbours_are_kept_by_use(plane: Plane) {
    let bed = world(plane);
    // Shorten the kernel's times. It keeps probing when a confirmation is valid for no longer than the delay.
    bed.net.run(|| {
        for interface in ["vlan20", "vlan30"] {
            for (family, key, value) in [
                ("ipv4", "base_reachable_time_ms", "4000"),
                ("ipv4", "delay_first_probe_time", "1"),
                ("ipv6", "base_reachable_time_ms", "4000"),
                ("ipv6", "delay_first_probe_time", "1"),
            ] {
                lanyard_netdev::sysctl::set(&[family, "neigh", interface, key], value).unwrap();
            }
        }
    });
    // Existing neighbours still have the old times.
    run_in(&bed, "neighbor flush all");
    run_in(&bed, "-6 neighbor flush all");
    let pairs = [("10.0.20.1", "10.0.30.1"), ("fd00:20::1", "fd00:30::1")];
    for address in ["10.0.20.1", "10.0.30.1", "fd00:20::1", "fd00:30::1"] {
        bed.host(1).reaches(address);
    }
    let state = |address: &str| {
        let printed = run_in(&bed, &format!("neighbor show {address}"));
        printed.split_whitespace().last().unwrap_or("gone").to_owned()
    };
    for (_, unused) in pairs {
        // The switch reports the last use, by the ping above, to the kernel for a few seconds.
        wait_for("the last use to be long ago", || {
            let family = if unused.contains(':') { "ipv6" } else { "ip" };
            let view = bed.ask(&format!("show {family} cef {unused}"));
            let idle_s = view.pointer("/entries/0/nexthops/0/idle_s").and_then(serde_json::Value::as_u64);
            idle_s.is_none_or(|idle_s| idle_s > 6).then_some(())
        });
        wait_for("the unused one to go stale", || (state(unused) == "STALE").then_some(()));
    }
    for (used, unused) in pairs {
        let source = if used.contains(':') { "fd00:10::1" } else { "10.0.10.1" };
        let frame = datagram(&bed, 1, source, used, 64);
        wait_fate(&bed, 1, &frame, "forwarded");
        let before = bed.routed(1);
        wait_for("it to go stale", || {
            bed.host(1).send(&frame);
            (state(used) == "STALE").then_some(())
        });
        wait_for("it to be confirmed", || {
            bed.host(1).send(&frame);
            (state(used) == "REACHABLE").then_some(())
        });
        let after = bed.routed(1);
        assert!(
            after.1 - before.1 <= bed::FEW && after.0 > before.0 + 10,
            "the kernel saw it: {before:?} {after:?}"
        );
        assert_eq!(state(unused), "STALE", "{unused} is kept although nothing uses it");
    }
}

/// Sends a datagram from each source port; returns the host at which each arrived.
fn homes(bed: &Bed, to: &str, ports: std::ops::Range<u16>) -> BTreeMap<u16, usize> {
    let address: Ipv4Addr = to.parse().unwrap();
    bed.hosts.iter().for_each(Host::drain);
    let count = ports.len();
    bed.host(1).net.run(|| {
        for port in ports {
            UdpSocket::bind(("0.0.0.0", port)).unwrap().send_to(b"lanyard", (address, 9)).unwrap();
        }
    });
    let mut homes = BTreeMap::new();
    wait_for("every datagram to arrive", || {
        for n in 2..=4 {
            while let Some(frame) = bed.host(n).next() {
                if frame.0.get(30..34) == Some(&address.octets()) && frame.0.get(23) == Some(&17) {
                    homes.insert(u16::from_be_bytes([frame.0[34], frame.0[35]]), n);
                }
            }
        }
        (homes.len() == count).then_some(())
    });
    homes
}

fn equal_cost_flows_stay(plane: Plane) {
    let bed = world(plane);
    let gateways = [(2, "10.0.20.1"), (3, "10.0.30.1"), (4, "10.0.10.4")];
    let hops = gateways.map(|(_, via)| format!("nexthop via {via}")).join(" ");
    bed.net.ip(&format!("route add 10.77.0.0/16 {hops}"));
    // The destination does not exist: a gateway must not forward the packet to another one.
    gateways.iter().for_each(|(n, _)| bed.host(*n).net.ip("route add blackhole 10.77.0.0/16"));
    let alive = || {
        let view = bed.ask("show ip cef 10.77.0.1");
        let hops = view["entries"][0]["nexthops"].as_array().cloned().unwrap_or_default();
        hops.iter().filter(|hop| hop["mac"].is_string()).count()
    };
    wait_for("three next hops", || (alive() == 3).then_some(()));
    bed.host(1).reaches("10.0.10.254");
    let all = 24_000..24_300;
    let first = homes(&bed, "10.77.0.1", all.clone());
    for (n, _) in gateways {
        let share = first.values().filter(|home| **home == n).count();
        assert!((60..=140).contains(&share), "host {n} got {share} of 300 flows");
    }
    for (port, home) in first.iter().take(12) {
        let chosen = bed.ask(&format!(
            "show ip cef exact-route 10.0.10.1 src-port {port} 10.77.0.1 dest-port 9 protocol 17"
        ));
        let via = gateways.iter().find(|(n, _)| n == home).map(|(_, via)| *via);
        assert_eq!(
            (chosen["nexthop"]["via"].as_str(), chosen["choices"].as_u64()),
            (via, Some(3)),
            "{port}: {chosen}"
        );
    }
    bed.by_the_plane(1, 300, "the flows", || assert_eq!(homes(&bed, "10.77.0.1", all.clone()), first));
    bed.host(3).net.ip("link set eth0 down");
    wait_for("two next hops", || (alive() == 2).then_some(()));
    let second = homes(&bed, "10.77.0.1", all.clone());
    for (port, home) in &first {
        assert!(
            second[port] != 3 && (*home == 3 || second[port] == *home),
            "flow {port}: {home} to {}",
            second[port]
        );
    }
    bed.host(3).net.ip("link set eth0 up");
    wait_for("three next hops again", || (alive() == 3).then_some(()));
    assert_eq!(homes(&bed, "10.77.0.1", all), first, "a flow does not come back");
}

fn reverse_path(plane: Plane) {
    let bed = world(plane);
    bed.host(1).reaches("10.0.20.1");
    bed.host(1).reaches("fd00:20::1");
    let check = |mode: &str, rows: &[(&str, &str, &str)]| {
        bed.configure(&format!("interface vlan 10\n{mode}", mode = mode.replace('/', "\n")));
        for (src, dst, want) in rows {
            let frame = datagram(&bed, 1, src, dst, 64);
            assert_eq!(fate(&bed, 1, &frame), *want, "{mode}: {src} to {dst}");
            let drops = bed.drops(1, "urpf_failed");
            let at = arrives_at(&bed, 1, &frame);
            let dropped = bed.drops(1, "urpf_failed") - drops;
            let wanted: (&[usize], u64) = if *want == "forwarded" { (&[2], 0) } else { (&[], 1) };
            assert_eq!((at.as_slice(), dropped), wanted, "{mode}: {src} to {dst}");
        }
    };
    let (four, six) = ("10.0.20.1", "fd00:20::1");
    check(
        "no ip verify unicast source reachable-via rx",
        &[("10.0.30.7", four, "forwarded"), ("192.0.2.1", four, "forwarded")],
    );
    check(
        "ip verify unicast source reachable-via rx/ipv6 verify unicast source reachable-via rx",
        &[
            ("10.0.10.77", four, "forwarded"),
            ("10.1.10.77", four, "forwarded"),
            ("10.0.30.7", four, "dropped urpf_failed"),
            ("192.0.2.1", four, "dropped urpf_failed"),
            ("fd00:10::77", six, "forwarded"),
            ("fd00:30::7", six, "dropped urpf_failed"),
            ("2001:db8::1", six, "dropped urpf_failed"),
        ],
    );
    check(
        "ip verify unicast source reachable-via any/ipv6 verify unicast source reachable-via any",
        &[
            ("10.0.30.7", four, "forwarded"),
            ("192.0.2.1", four, "dropped urpf_failed"),
            ("fd00:30::7", six, "forwarded"),
            ("2001:db8::1", six, "dropped urpf_failed"),
        ],
    );
}

fn never_forwarded(plane: Plane) {
    let bed = world(plane);
    // A default route, so that a packet would be forwarded if the switch did not drop it.
    bed.configure("ip route 0.0.0.0 0.0.0.0 10.0.30.1\nipv6 route ::/0 fd00:30::1");
    for address in ["10.0.20.1", "fd00:20::1", "10.9.0.1", "fd00:9::1"] {
        bed.host(1).reaches(address);
    }
    for (source, to) in [("10.0.10.1", "203.0.113.1"), ("fd00:10::1", "2001:db8::1")] {
        let frame = datagram(&bed, 1, source, to, 64);
        // The way of the default route is known to the plane some time after it is configured.
        wait_fate(&bed, 1, &frame, "forwarded");
        assert_eq!(arrives_at(&bed, 1, &frame), [3]);
    }
    let (four, six) = ("10.0.10.1", "fd00:10::1");
    let strange4 = [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "127.9.9.9",
        "169.254.1.1",
        "224.0.0.5",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
    ];
    let strange6 = ["::", "::1", "fe80::7", "ff02::1", "ff0e::1", "::ffff:10.0.20.1"];
    let mut rows: Vec<(String, Frame)> = Vec::new();
    for (strange, own, there) in
        strange4.map(|s| (s, four, "10.0.20.1")).into_iter().chain(strange6.map(|s| (s, six, "fd00:20::1")))
    {
        rows.push((format!("from {strange}"), datagram(&bed, 1, strange, there, 64)));
        rows.push((format!("to {strange}"), datagram(&bed, 1, own, strange, 64)));
    }
    // The switch's own addresses as sources, with those of other interfaces and the subnet's broadcast
    // address.
    for (own, there) in [
        ("10.0.10.254", "10.0.20.1"),
        ("10.0.20.254", "10.0.20.1"),
        ("10.0.20.254", "10.0.10.254"),
        ("10.0.10.255", "10.0.20.1"),
        ("fd00:30::254", "fd00:20::1"),
    ] {
        let frame = datagram(&bed, 1, own, there, 64);
        assert_eq!(fate(&bed, 1, &frame), "dropped martian_source", "from {own}");
        rows.push((format!("from the switch's own {own}"), frame));
    }
    for (name, ttl) in [("no hop left", 0), ("the last hop", 1)] {
        rows.push((name.into(), datagram(&bed, 1, four, "10.0.20.1", ttl)));
        rows.push((format!("IPv6: {name}"), datagram(&bed, 1, six, "fd00:20::1", ttl)));
    }
    let spoilt = |dst: &str, spoil: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = datagram(&bed, 1, if dst.contains(':') { six } else { four }, dst, 64);
        spoil(&mut frame.0);
        frame
    };
    rows.push(("a wrong checksum".into(), spoilt("10.0.20.1", &|bytes| bytes[24] ^= 1)));
    rows.push(("version 5".into(), spoilt("10.0.20.1", &|bytes| bytes[14] = 0x55)));
    rows.push(("a header of 16 bytes".into(), spoilt("10.0.20.1", &|bytes| bytes[14] = 0x44)));
    rows.push(("longer than its frame".into(), spoilt("10.0.20.1", &|bytes| bytes[16] = 4)));
    rows.push(("IPv6: version 7".into(), spoilt("fd00:20::1", &|bytes| bytes[14] = 0x70)));
    rows.push(("IPv6: longer than its frame".into(), spoilt("fd00:20::1", &|bytes| bytes[18] = 4)));
    // Frames that are addressed to a group on the link are not for the router to forward.
    rows.push(("to a group of stations".into(), spoilt("10.0.20.1", &|bytes| bytes[..6].fill(0xff))));
    rows.push(("a directed broadcast".into(), datagram(&bed, 1, four, "10.0.20.255", 64)));
    for (name, frame) in rows {
        let at: Vec<usize> = arrives_at(&bed, 1, &frame).into_iter().filter(|n| *n != 4).collect();
        assert_eq!(at, NOWHERE, "{name} is forwarded ({}): {frame:?}", fate(&bed, 1, &frame));
    }
}

fn no_redirects(plane: Plane) {
    let bed = world(plane);
    bed.net.ip("route add 10.88.0.0/16 via 10.0.10.4\nroute add fd00:88::/32 via fd00:10::4");
    for (source, to) in [("10.0.10.1", "10.88.0.1"), ("fd00:10::1", "fd00:88::1")] {
        let frame = datagram(&bed, 1, source, to, 64);
        wait_fate(&bed, 1, &frame, "forwarded");
        bed.by_the_plane(1, 10, to, || {
            for _ in 0..10 {
                assert_eq!(arrives_at(&bed, 1, &frame), [4]);
            }
        });
        let routes = run(bed.host(1), &format!("ip route get {to}"));
        assert!(!routes.contains("redirected") && routes.contains("254"), "{routes}");
    }
    // The switch ignores redirects that other routers send to it.
    let accepts =
        |name: &str| bed.net.run(|| lanyard_netdev::sysctl::ipv4_conf(name, "accept_redirects").unwrap());
    assert_eq!((accepts("vlan10").trim(), accepts("vlan20").trim()), ("0", "0"));
}

fn the_switch_itself(plane: Plane) {
    let bed = world(plane);
    // The switch is reachable by each of its addresses, those of the near and of the far VLANs.
    for address in ["10.0.10.254", "10.1.20.254", "10.0.30.254", "fd00:10::254", "fd00:30::254"] {
        bed.host(1).reaches(address);
        let frame =
            datagram(&bed, 1, if address.contains(':') { "fd00:10::1" } else { "10.0.10.1" }, address, 64);
        assert_eq!(fate(&bed, 1, &frame), "trapped local_address", "{address}");
        let listener = bed.net.run(|| std::net::TcpListener::bind((address, 5010)).unwrap());
        let stream = bed.host(1).net.run(|| std::net::TcpStream::connect((address, 5010)));
        assert_eq!(listener.accept().unwrap().1, stream.unwrap().local_addr().unwrap(), "{address}");
    }
    // Its own packets use the same tables.
    let printed = bed.exec(&["ping 10.9.0.1 repeat 2", "ping ipv6 fd00:9::1 repeat 2"]);
    assert_eq!(printed.matches(" 0% packet loss").count(), 2, "{printed}");
}
