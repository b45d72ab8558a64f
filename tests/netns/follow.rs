//! The plane routes by the kernel's tables: hosts across VLANs, gateways that fail, many routes, lost events, a killed
//! daemon.

use crate::harness::{Bed, Plane, scenarios, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

scenarios! {
    /// Ping, TCP, a traceroute's first hop, path MTU discovery; the kernel forwards almost none of it.
    hosts_across_vlans: ebpf soft;
    /// Two gateways share the flows; when one fails, the other gets all of them.
    equal_cost_paths: ebpf soft;
    /// Ten thousand routes, as `ip -batch` adds them.
    ten_thousand_routes: ebpf soft;
    /// More routes at once than the socket has room for: the tables are compared, and the differences are
    /// written.
    overrun: ebpf soft;
    /// After `kill -9` the plane has the same routes.
    killed_with_routes: ebpf soft;
    /// With policy rules the destination alone does not decide: the kernel routes the whole family.
    policy_rules: ebpf soft;
}

const CONFIG: &str = "\
vlan 10,20,30
ip routing
ipv6 unicast-routing
interface p1
 switchport access vlan 10
interface p2
 switchport access vlan 20
interface p3
 switchport access vlan 30
interface vlan 10
 ip address 10.0.10.254 255.255.255.0
 ipv6 address fd00:10::254/64
interface vlan 20
 ip address 10.0.20.254/24
 ipv6 address fd00:20::254/64
interface vlan 30
 ip address 10.0.30.254/24
 ipv6 address fd00:30::254/64
";

/// Three hosts in three VLANs, each with a default route to the switch, whose configuration ends with `more`. `None`
/// when the plane does not route.
pub fn with_hosts(plane: Plane, more: &str) -> Option<Bed> {
    let bed = Bed::new(plane, 3, &format!("{CONFIG}{more}"));
    bed.chatter.set(true);
    bed.exact.set(false);
    if let Err(printed) = bed.try_cef("10.0.10.1") {
        assert!(printed.contains(&format!("plane {} does not route", plane.name())), "{printed}");
        println!("skipped: plane {} does not route", plane.name());
        return None;
    }
    for (n, vlan) in [(1, 10), (2, 20), (3, 30)] {
        bed.host(n).join_vlan(vlan);
    }
    Some(bed)
}

impl Bed {
    fn try_cef(&self, address: &str) -> Result<Value, String> {
        let command =
            format!("show {} cef {address} | json", if address.contains(':') { "ipv6" } else { "ip" });
        let text = crate::harness::daemon::cli(&self.instance, &[&command])?;
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }
    /// The plane's entry for an address: the action, and the next hops' interfaces.
    pub fn cef(&self, address: &str) -> (String, Vec<String>) {
        let view = self.try_cef(address).unwrap_or_else(|printed| panic!("show ip cef {address}: {printed}"));
        let entry = &view["entries"][0];
        let hops = entry["nexthops"].as_array().into_iter().flatten();
        let names = hops.filter_map(|hop| hop["interface"].as_str().map(str::to_owned)).collect();
        (entry["action"].as_str().unwrap_or("").to_owned(), names)
    }
    fn wait_cef(&self, address: &str, want: &str) {
        wait_for(&format!("{address} to be {want}: {:?}", self.cef(address)), || {
            (self.cef(address).0 == want).then_some(())
        });
    }
    /// The number of frames that the kernel's own stack has received at a VLAN interface.
    fn heard_by_kernel(&self, name: &str) -> u64 {
        self.netdev.link(name).expect("the interface is there").stats.rx.frames
    }
    fn offload(&self, prefix: &str) -> String {
        let view = self.show("show ip route");
        let routes = view["routes"].as_array().expect("routes").clone();
        let route = routes.iter().find(|route| route["prefix"] == prefix);
        route.and_then(|route| route["offload"].as_str()).unwrap_or("absent").to_owned()
    }
    /// Sends a datagram from host 1 from each of `ports`; returns the numbers that hosts 2 and 3 received.
    fn flows(&self, to: &str, ports: std::ops::Range<u16>) -> (usize, usize) {
        let address: SocketAddr = format!("{to}:9").parse().expect("an address");
        self.host(2).drain();
        self.host(3).drain();
        let count = ports.len();
        self.host(1).net.run(|| {
            for port in ports {
                // The socket of the previous call may still be open in a program that is being started.
                let socket = wait_for("the port", || UdpSocket::bind(("0.0.0.0", port)).ok());
                socket.send_to(b"lanyard", address).expect("sent");
            }
        });
        let std::net::IpAddr::V4(v4) = address.ip() else { panic!("IPv4") };
        let is = |frame: &crate::harness::Frame| {
            frame.0.get(30..34) == Some(&v4.octets()) && frame.0.get(23) == Some(&17)
        };
        let (mut at2, mut at3) = (0, 0);
        wait_for(&format!("{count} datagrams to {to}"), || {
            while let Some(frame) = self.host(2).next() {
                at2 += usize::from(is(&frame));
            }
            while let Some(frame) = self.host(3).next() {
                at3 += usize::from(is(&frame));
            }
            (at2 + at3 >= count).then_some(())
        });
        (at2, at3)
    }
}

fn hosts_across_vlans(plane: Plane) {
    let Some(bed) = with_hosts(plane, "") else { return };
    bed.host(1).reaches("10.0.20.1");
    bed.host(1).reaches("fd00:20::1");
    for address in ["10.0.20.1", "fd00:20::1", "10.0.10.1"] {
        bed.wait_cef(address, "forward");
    }
    assert_eq!(bed.cef("10.0.20.254").0, "receive");
    assert_eq!(bed.cef("10.0.20.77").0, "glean");
    assert_eq!(bed.cef("10.99.0.1").0, "none");
    assert_eq!(bed.offload("10.0.20.0/24"), "offloaded");
    let before = (bed.heard_by_kernel("vlan10"), bed.heard_by_kernel("vlan20"));
    bed.host(1).tcp(bed.host(2), "10.0.20.1", 4 << 20);
    bed.host(2).tcp(bed.host(1), "fd00:10::1", 4 << 20);
    let received = (bed.heard_by_kernel("vlan10") - before.0, bed.heard_by_kernel("vlan20") - before.1);
    assert!(received.0 < 100 && received.1 < 100, "the kernel saw {received:?} frames of 8 MB");
    // The first hop of a traceroute is the switch.
    let mut ping = std::process::Command::new("ping");
    ping.args(["-n", "-c", "1", "-W", "5", "-t", "1", "10.0.20.1"]);
    let printed = String::from_utf8_lossy(&bed.host(1).net.output(&mut ping).stdout).into_owned();
    assert!(printed.contains("10.0.10.254") && printed.contains("Time to live exceeded"), "{printed}");
    // On a path with a smaller MTU the sender gets an ICMP message.
    bed.configure("interface vlan 20\nmtu 1300");
    wait_for("the path MTU to be reported", || {
        bed.host(1).ping("-c 1 -W 1 -s 1400 -M do 10.0.20.1");
        let mut route = std::process::Command::new("ip");
        route.args(["route", "get", "10.0.20.1"]);
        String::from_utf8_lossy(&bed.host(1).net.output(&mut route).stdout).contains("mtu 1300").then_some(())
    });
    bed.configure("interface vlan 20\nno mtu\nexit\nno ip routing\nno ipv6 unicast-routing");
    wait_for("the plane to let go", || bed.try_cef("10.0.20.1").is_err().then_some(()));
}

fn equal_cost_paths(plane: Plane) {
    let Some(bed) = with_hosts(plane, "") else { return };
    bed.net.ip("route add 10.9.0.0/16 nexthop via 10.0.20.1 nexthop via 10.0.30.1 weight 3");
    bed.wait_cef("10.9.0.1", "forward");
    // Next hops are resolved before any traffic needs them.
    wait_for("both next hops to be resolved", || {
        let view = bed.try_cef("10.9.0.1").ok()?;
        let hops = view["entries"][0]["nexthops"].as_array()?.clone();
        (hops.len() == 2 && hops.iter().all(|hop| hop["mac"].is_string())).then_some(())
    });
    bed.host(1).reaches("10.0.10.254");
    let (two, three) = bed.flows("10.9.0.1", 20_000..20_400);
    assert!((40..=160).contains(&two) && three == 400 - two, "shares {two} and {three} of 1:3");
    bed.host(3).net.ip("link set eth0 down");
    wait_for("the dead next hop to be left out", || (bed.cef("10.9.0.1").1 == ["vlan20"]).then_some(()));
    assert_eq!(bed.flows("10.9.0.1", 20_000..20_100), (100, 0));
    bed.host(3).net.ip("link set eth0 up");
    wait_for("it to come back", || {
        bed.host(3).net.ip("route replace default via 10.0.30.254");
        (bed.cef("10.9.0.1").1.len() == 2).then_some(())
    });
    // When the better route is removed, the one with the next metric is used.
    bed.net.ip("route add 10.9.0.0/16 via 10.0.30.1 metric 5\nroute del 10.9.0.0/16 nexthop via 10.0.20.1 nexthop via 10.0.30.1 weight 3");
    wait_for("the other metric's route", || (bed.cef("10.9.0.1").1 == ["vlan30"]).then_some(()));
    bed.net.ip("route replace blackhole 10.9.0.0/16 metric 5");
    bed.wait_cef("10.9.0.1", "drop");
}

/// `count` routes below 11.0.0.0/8 and the following /8s, each a /24, through host 2.
fn many(count: u32, verb: &str) -> String {
    let line = |n: u32| {
        let address = std::net::Ipv4Addr::from(0x0b00_0000 + (n << 8));
        format!("route {verb} {address}/24 via 10.0.20.1\n")
    };
    (0..count).map(line).collect()
}

fn last(count: u32) -> String {
    std::net::Ipv4Addr::from(0x0b00_0000 + ((count - 1) << 8) + 1).to_string()
}

fn ten_thousand_routes(plane: Plane) {
    let Some(bed) = with_hosts(plane, "") else { return };
    bed.host(2).reaches("10.0.20.254");
    bed.net.ip(&many(10_000, "add"));
    let acknowledged = Instant::now();
    bed.wait_cef(&last(10_000), "forward");
    println!(
        "10,000 routes: the last one in the plane {:?} after its acknowledgement",
        acknowledged.elapsed()
    );
    let total = |bed: &Bed| bed.ask("show ip cef")["total"].as_u64().unwrap_or(0);
    assert!(total(&bed) >= 10_000);
    let usage = bed.cef(&last(5_000));
    assert_eq!(usage, ("forward".into(), vec!["vlan20".into()]));
    bed.net.ip(&many(10_000, "del"));
    wait_for("the routes to go", || (total(&bed) < 100).then_some(()));
}

/// The state of a netlink socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listener {
    /// Bytes of unread events.
    unread: u64,
    /// The number of events that were lost because the buffer had no room.
    lost: u64,
}

/// The netlink sockets of the switch's namespace that receive events of IPv4 routes, by inode.
fn route_listeners(bed: &Bed) -> BTreeMap<String, Listener> {
    /// RTNLGRP_IPV4_ROUTE, group 7, in the column of groups.
    const IPV4_ROUTES: u32 = 1 << 6;
    let pid = bed.daemon.borrow().as_ref().expect("a daemon").pid();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/netlink")).expect("a table");
    // sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let number = |column: usize| columns.get(column)?.parse::<u64>().ok();
        let groups = u32::from_str_radix(columns.get(3)?, 16).ok()?;
        let listens = number(1)? == 0 && groups & IPV4_ROUTES != 0;
        let listener = Listener { unread: number(4)?, lost: number(8)? };
        listens.then_some(((*columns.get(9)?).to_owned(), listener))
    };
    table.lines().skip(1).filter_map(row).collect()
}

fn overrun(plane: Plane) {
    const COUNT: u32 = 100_000;
    let Some(bed) = with_hosts(plane, "") else { return };
    bed.host(2).reaches("10.0.20.254");
    bed.host(3).reaches("10.0.30.254");
    bed.net.ip(&many(100, "add"));
    bed.wait_cef(&last(100), "forward");
    let signal = |signal| bed.daemon.borrow().as_ref().expect("a daemon").signal(signal);
    let summary = |key: &str| bed.ask("show ip cef summary")[key].as_u64().expect("a count");
    // Change one route back and forth until a buffer has no room for another event.
    let turn = |n: u32| {
        format!("route replace 11.0.6.0/24 via 10.0.{}.1\n", if n.is_multiple_of(2) { 20 } else { 30 })
    };
    let turns: String = (0..20_000).map(turn).collect();
    // A buffer has room for tens of megabytes. A busy machine needs minutes to fill it, so the loop fails when the buffers stop
    // filling, and not after a fixed time.
    let flood = || {
        let before = route_listeners(&bed);
        assert!(!before.is_empty(), "no socket listens to routes");
        let mut last = before.clone();
        loop {
            bed.net.ip(&turns);
            let now = route_listeners(&bed);
            let has_lost = |(socket, was): (&String, &Listener)| {
                now.get(socket).is_none_or(|listener| listener.lost > was.lost)
            };
            if before.iter().all(has_lost) {
                break;
            }
            assert_ne!(now, last, "no buffer grows, and none loses events; at first {before:?}");
            last = now;
        }
    };
    signal(Signal::SIGSTOP);
    flood();
    bed.net.ip(&many(COUNT, "replace"));
    bed.net.ip("route del 11.0.7.0/24");
    signal(Signal::SIGCONT);
    bed.wait_cef(&last(COUNT), "forward");
    wait_for("what was deleted to go", || (bed.cef("11.0.7.1").0 == "none").then_some(()));
    assert_eq!(bed.cef("11.0.8.1").0, "forward");
    assert!(summary("overruns") >= 1);
    // Overrun the buffer again while only one route changes: the other routes must not be written to the
    // plane again.
    let before = ["overruns", "audits", "changes"].map(summary);
    signal(Signal::SIGSTOP);
    flood();
    bed.net.ip("route replace 11.0.6.0/24 via 10.0.30.1");
    signal(Signal::SIGCONT);
    wait_for("a comparison with the kernel's tables", || {
        (summary("overruns") > before[0] && summary("audits") > before[1]).then_some(())
    });
    wait_for("the last change", || (bed.cef("11.0.6.1").1 == ["vlan30"]).then_some(()));
    let programmed = summary("changes") - before[2];
    assert!(
        programmed < 5_000,
        "{programmed} changes programmed of {COUNT} routes, one of which has changed"
    );
    assert_eq!((bed.cef("11.0.7.1").0.as_str(), bed.cef(&last(COUNT)).0.as_str()), ("none", "forward"));
    println!("{programmed} changes programmed of {COUNT} routes");
}

fn killed_with_routes(plane: Plane) {
    let Some(bed) = with_hosts(plane, "") else { return };
    bed.host(1).reaches("10.0.20.1");
    bed.net.ip(&many(1_000, "add"));
    bed.wait_cef(&last(1_000), "forward");
    bed.end_daemon(Signal::SIGKILL);
    if plane == Plane::ebpf {
        assert!(bed.host(1).ping("-c 3 -W 1 10.0.20.1"), "the plane goes on without the daemon");
    }
    bed.net.ip("route del 11.0.7.0/24");
    bed.start();
    bed.wait_cef(&last(1_000), "forward");
    wait_for("what went meanwhile to be gone", || (bed.cef("11.0.7.1").0 == "none").then_some(()));
    bed.host(1).reaches("10.0.20.1");
}

fn policy_rules(plane: Plane) {
    let Some(bed) = with_hosts(plane, "") else { return };
    bed.host(1).reaches("10.0.20.1");
    bed.wait_cef("10.0.20.1", "forward");
    bed.net.ip("rule add from 10.0.10.1 table 100\nroute add default via 10.0.30.1 table 100");
    wait_for("the routes to be left to the kernel", || {
        (bed.offload("10.0.20.0/24") == "trapped").then_some(())
    });
    assert_eq!(bed.flows("10.0.20.1", 22_000..22_010), (0, 10), "the rule decides");
    bed.host(1).reaches("fd00:20::1");
    bed.net.ip("rule del from 10.0.10.1 table 100");
    wait_for("the plane to route again", || (bed.offload("10.0.20.0/24") == "offloaded").then_some(()));
    assert_eq!(bed.flows("10.0.20.1", 22_000..22_010), (10, 0));
}
