//! Static routes in the kernel: they are restored after events that remove them, those to one prefix are one route, and
//! routes of others stay as they are.

use crate::harness::daemon::{Daemon, cli, lanyard};
use crate::harness::{Bed, Plane, scenarios, wait_for};
use nix::sys::signal::Signal;
use std::process::Command;

scenarios! {
    come_back: ebpf soft;
    equal_cost: ebpf soft;
    routes_of_others: ebpf;
    /// Each of two instances removes only its own routes, also when the daemon of one was killed.
    two_instances: ebpf;
}

/// Hosts 1 to 3 are in VLANs 10 to 30; host 4 is behind a routed port.
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
interface vlan 20
 ip address 10.0.20.254 255.255.255.0
 ipv6 address fd00:20::254/64
interface vlan 30
 ip address 10.0.30.254 255.255.255.0
 ipv6 address fd00:30::254/64
interface p4
 no switchport
 ip address 10.0.4.254 255.255.255.0
";

fn world(plane: Plane) -> Bed {
    let bed = Bed::new(plane, 4, CONFIG);
    bed.chatter.set(true);
    bed.exact.set(false);
    bed
}

fn ip(bed: &Bed, arguments: &str) -> String {
    let output = bed.net.output(Command::new("ip").args(arguments.split(' ')));
    String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Waits until the kernel prints this route; white space is not compared.
fn has(bed: &Bed, prefix: &str, want: &str) {
    let family = if prefix.contains(':') { "-6" } else { "-4" };
    let list = || ip(bed, &format!("{family} route show {prefix}"));
    wait_for(&format!("the route to {prefix} {want}: {}", list()), || list().contains(want).then_some(()));
}

fn come_back(plane: Plane) {
    let mut bed = world(plane);
    bed.configure(
        "ip route 10.9.0.0 255.255.0.0 10.0.20.1\nip route 10.8.0.0 255.255.0.0 10.0.4.1\n\
         ipv6 route fd00:9::/32 fd00:20::1",
    );
    let all = |bed: &Bed| {
        has(bed, "10.9.0.0/16", "via 10.0.20.1 dev vlan20");
        has(bed, "10.8.0.0/16", "via 10.0.4.1 dev p4");
        has(bed, "fd00:9::/32", "via fd00:20::1 dev vlan20");
    };
    all(&bed);
    for interface in ["vlan 20", "p4"] {
        bed.configure(&format!("interface {interface}\nshutdown"));
        bed.configure(&format!("interface {interface}\nno shutdown"));
        all(&bed);
    }
    // An administrator takes interfaces down and up, and removes routes.
    bed.net.ip("link set vlan20 down\nlink set p4 down");
    bed.net.ip("link set vlan20 up\nlink set p4 up");
    all(&bed);
    bed.net.ip("route delete 10.9.0.0/16\nroute delete fd00:9::/32");
    all(&bed);
    // Netdevs that are made again: a VLAN interface by the switch, a port by the host that connects it.
    bed.net.ip("link delete vlan20");
    all(&bed);
    bed.host(4).net.ip("link delete eth0");
    bed.rewire(4);
    all(&bed);
}

fn equal_cost(plane: Plane) {
    let bed = world(plane);
    bed.configure("ip route 10.9.0.0 255.255.0.0 10.0.20.1\nip route 10.9.0.0 255.255.0.0 10.0.30.1");
    bed.configure("ipv6 route fd00:9::/32 fd00:20::1\nipv6 route fd00:9::/32 fd00:30::1");
    has(&bed, "10.9.0.0/16", "nexthop via 10.0.20.1 dev vlan20 weight 1");
    has(&bed, "10.9.0.0/16", "nexthop via 10.0.30.1 dev vlan30 weight 1");
    has(&bed, "fd00:9::/32", "nexthop via fd00:20::1 dev vlan20 weight 1");
    has(&bed, "fd00:9::/32", "nexthop via fd00:30::1 dev vlan30 weight 1");
    let view = bed.show("show ip route 10.9.0.1");
    assert_eq!(view["routes"][0]["nexthops"].as_array().map(Vec::len), Some(2), "{view}");
    // When the interface of one next hop is shut down, the other next hop stays.
    bed.configure("interface vlan 30\nshutdown");
    has(&bed, "10.9.0.0/16", "via 10.0.20.1 dev vlan20");
    has(&bed, "fd00:9::/32", "via fd00:20::1 dev vlan20");
    bed.configure("interface vlan 30\nno shutdown");
    has(&bed, "10.9.0.0/16", "nexthop via 10.0.30.1 dev vlan30 weight 1");
    has(&bed, "fd00:9::/32", "nexthop via fd00:30::1 dev vlan30 weight 1");
    bed.configure("no ip route 10.9.0.0 255.255.0.0 10.0.30.1\nno ipv6 route fd00:9::/32 fd00:20::1");
    has(&bed, "10.9.0.0/16", "10.9.0.0/16 via 10.0.20.1 dev vlan20");
    has(&bed, "fd00:9::/32", "fd00:9::/32 via fd00:30::1 dev vlan30");
    bed.configure("no ip route 10.9.0.0 255.255.0.0 10.0.20.1\nno ipv6 route fd00:9::/32 fd00:30::1");
    assert_eq!(ip(&bed, "-4 route show 10.9.0.0/16") + &ip(&bed, "-6 route show fd00:9::/32"), "");
}

fn routes_of_others(plane: Plane) {
    let bed = world(plane);
    bed.net.ip("route add 10.7.0.0/16 via 10.0.20.1 metric 1");
    let theirs = ip(&bed, "-4 route show 10.7.0.0/16");
    let refused = bed.try_configure("ip route 10.7.0.0 255.255.0.0 10.0.30.1").unwrap_err();
    assert!(refused.contains("% the static route to 10.7.0.0/16 is not installed"), "{refused}");
    assert!(!bed.exec(&["show running-config"]).contains("10.7.0.0"));
    assert_eq!(ip(&bed, "-4 route show 10.7.0.0/16"), theirs);
    // A route with another distance can exist beside it.
    bed.configure("ip route 10.7.0.0 255.255.0.0 10.0.30.1 5");
    has(&bed, "10.7.0.0/16", "via 10.0.30.1 dev vlan30");
    bed.configure("no ip route 10.7.0.0 255.255.0.0 10.0.30.1");
    assert_eq!(ip(&bed, "-4 route show 10.7.0.0/16"), theirs);
}

fn two_instances(plane: Plane) {
    let bed = world(plane);
    bed.configure("ip route 10.9.0.0 255.255.0.0 10.0.20.1");
    bed.exec(&["write memory"]);
    let second = format!("{}-b", bed.instance);
    let config = bed.file("second-config");
    std::fs::write(&config, "ip routing\nipv6 unicast-routing\nip route 10.6.0.0 255.255.0.0 10.0.30.1\n")
        .unwrap();
    let start = || {
        let mut daemon = Daemon::spawn(&bed.net, &second, plane, Some(&config), &bed.file("second-log"));
        daemon.ready().unwrap_or_else(|printed| panic!("the second switch: {printed}"));
        daemon
    };
    let forwarding = || {
        let value = bed.net.output(Command::new("cat").arg("/proc/sys/net/ipv6/conf/all/forwarding")).stdout;
        String::from_utf8_lossy(&value).trim().to_owned()
    };
    let both = || {
        has(&bed, "10.9.0.0/16", "via 10.0.20.1 dev vlan20");
        has(&bed, "10.6.0.0/16", "via 10.0.30.1 dev vlan30");
        assert_eq!(forwarding(), "1");
    };
    let mut daemon = start();
    both();
    daemon.signal(Signal::SIGKILL);
    daemon.end();
    both();
    let mut daemon = start();
    both();
    assert!(cli(&second, &["show running-config"]).unwrap().contains("10.6.0.0"));
    // One daemon is killed, and the other instance is detached: it removes only its own routes.
    bed.end_daemon(Signal::SIGKILL);
    lanyard(Some(&bed.net), &["detach", "--instance", &second]).unwrap();
    daemon.end();
    for place in ["/run/lanyard", "/var/lib/lanyard"] {
        let _ = std::fs::remove_dir_all(format!("{place}/{second}"));
    }
    has(&bed, "10.9.0.0/16", "via 10.0.20.1 dev vlan20");
    assert_eq!(ip(&bed, "-4 route show 10.6.0.0/16"), "");
    assert_eq!(forwarding(), "1");
    bed.start();
    has(&bed, "10.9.0.0/16", "via 10.0.20.1 dev vlan20");
    bed.detach().unwrap();
    assert_eq!(forwarding(), "0");
    assert_eq!(ip(&bed, "-4 route show 10.9.0.0/16"), "");
}
