//! Programs that the daemon runs: radvd for router advertisements, keepalived for virtual routers. Also subinterfaces,
//! because they need two switches as well.

use crate::harness::{Bed, Plane, bed, join, scenarios, wait_for};
use nix::sys::signal::Signal;
use std::path::Path;
use std::process::Command;

scenarios! {
    router_advertisements: ebpf soft;
    virtual_router_failover: ebpf soft;
    keepalived_survives_the_daemon: ebpf;
    subinterfaces: ebpf soft;
}

/// True when the program is installed; otherwise prints that it is missing.
fn installed(program: &str) -> bool {
    let there = Path::new("/usr/sbin").join(program).exists();
    if !there {
        println!("skipped: {program} is not installed");
    }
    there
}

/// The process numbers of a program in the switch's namespace.
fn pids(bed: &Bed, program: &str) -> Vec<u32> {
    let is = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == program)
    };
    let mut pids: Vec<u32> = bed.net.processes().into_iter().filter(is).collect();
    pids.sort_unstable();
    pids
}

fn router_advertisements(plane: Plane) {
    if !installed("radvd") {
        return;
    }
    let bed = Bed::new(
        plane,
        1,
        "ipv6 unicast-routing\nvlan 10\ninterface p1\n switchport access vlan 10\ninterface vlan 10\n \
         ipv6 address fd00:10::254/64\n ipv6 nd ra interval 4\n ipv6 nd other-config-flag\n",
    );
    bed.chatter.set(true);
    bed.exact.set(false);
    let host = bed.host(1);
    host.net.run(|| std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0").unwrap());
    let says = |arguments: &[&str]| {
        let output = host.net.output(Command::new("ip").args(arguments));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    wait_for("an address of the host's own making", || {
        says(&["-6", "address", "show", "dev", "eth0"]).contains("fd00:10::").then_some(())
    });
    wait_for("a default route", || {
        says(&["-6", "route", "show", "default"]).contains("proto ra").then_some(())
    });
    host.reaches("fd00:10::254");
    // The running process reads a change of the configuration.
    let running = pids(&bed, "radvd");
    assert!(!running.is_empty());
    bed.configure("interface vlan 10\nipv6 nd prefix fd00:11::/64");
    wait_for("the other prefix", || {
        says(&["-6", "address", "show", "dev", "eth0"]).contains("fd00:11::").then_some(())
    });
    assert_eq!(pids(&bed, "radvd"), running);
    bed.configure("interface vlan 10\nipv6 nd ra suppress all");
    wait_for("radvd to end", || pids(&bed, "radvd").is_empty().then_some(()));
    // When the process dies, it is started again.
    bed.configure("interface vlan 10\nno ipv6 nd ra suppress");
    let killed = wait_for("radvd", || Some(pids(&bed, "radvd")).filter(|pids| !pids.is_empty()));
    for pid in &killed {
        // The second process of radvd may have ended with the first.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
    // Process numbers wrap around, so the new ones may be lower.
    let is_new = |pids: &Vec<u32>| !pids.is_empty() && pids.iter().all(|pid| !killed.contains(pid));
    wait_for("another radvd", || Some(pids(&bed, "radvd")).filter(is_new));
    assert!(bed.exec(&["show logging"]).contains("%SERVICE-3-ENDED: radvd has ended by itself"));
}

/// Two switches in VLAN 10, with host 1 behind the first. Each has an address of its own, and they share a virtual one
/// through which host 1 reaches VLAN 20. Each switch has its own VLAN 20, and its own host 10.0.20.1 there.
fn two_routers(plane: Plane) -> (Bed, Bed) {
    let config = |address: &str, more: &str| {
        format!(
            "ip routing\nvlan 10,20\ninterface p1\n switchport access vlan 10\ninterface p2\n switchport access vlan 10\n\
             interface p3\n switchport access vlan 20\ninterface vlan 20\n ip address 10.0.20.254 255.255.255.0\n\
             interface vlan 10\n ip address {address} 255.255.255.0\n vrrp 1 ip 10.0.10.1\n{more}"
        )
    };
    let tracked = " vrrp 1 priority 120\n vrrp 1 track 1 decrement 50\ntrack 1 interface p3 line-protocol\n";
    let left = Bed::new(plane, 3, &config("10.0.10.2", tracked));
    let right = Bed::new(plane, 3, &config("10.0.10.3", ""));
    for bed in [&left, &right] {
        bed.chatter.set(true);
        bed.exact.set(false);
    }
    join(&left, 2, &right, 2);
    left.host(1).address("10.0.10.9/24");
    left.host(1).net.ip("route add default via 10.0.10.1");
    for bed in [&left, &right] {
        bed.host(3).address("10.0.20.1/24");
        bed.host(3).net.ip("route add default via 10.0.20.254");
    }
    (left, right)
}

fn state(bed: &Bed) -> String {
    bed.ask("show vrrp")["groups"][0]["state"].as_str().unwrap().to_owned()
}

fn virtual_router_failover(plane: Plane) {
    if !installed("keepalived") {
        return;
    }
    let (left, right) = two_routers(plane);
    wait_for("the first to be master", || {
        (state(&left) == "master" && state(&right) == "backup").then_some(())
    });
    let host = left.host(1);
    host.reaches("10.0.10.1");
    let neighbour = || {
        let output = host.net.output(Command::new("ip").args(["neighbor", "show", "10.0.10.1"]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(neighbour().contains("00:00:5e:00:01:01"), "{}", neighbour());
    // The planes route what host 1 sends to the virtual router, whichever switch is the master.
    // On a busy machine advertisements may be late, and the master may change for a moment: such a round is repeated.
    let routes = |bed: &Bed, port: usize| {
        host.reaches("10.0.20.1");
        wait_for("a round of pings to be routed by the plane of the master", || {
            let before = bed.routed(port);
            let answered = host.ping("-c 20 10.0.20.1");
            let after = bed.routed(port);
            (answered && after.0 - before.0 >= 20 && after.1 - before.1 <= bed::FEW).then_some(())
        });
    };
    routes(&left, 1);
    // A tracked object reduces the priority, so the other switch has the higher one and takes over.
    left.host(3).net.ip("link set eth0 down");
    wait_for("the second to take over", || {
        (state(&left) == "backup" && state(&right) == "master").then_some(())
    });
    let view = left.ask("show vrrp");
    assert_eq!(
        (&view["groups"][0]["priority"], &view["groups"][0]["tracks_down"][0]),
        (&70.into(), &1.into())
    );
    host.reaches("10.0.10.1");
    assert!(neighbour().contains("00:00:5e:00:01:01"), "{}", neighbour());
    routes(&right, 2);
    left.host(3).net.ip("link set eth0 up");
    wait_for("the first to be back", || {
        (state(&left) == "master" && state(&right) == "backup").then_some(())
    });
    host.reaches("10.0.10.1");
    // The interface is shut down, and so leaves the group.
    left.configure("interface vlan 10\nshutdown");
    wait_for("the second to be left", || (state(&left) == "init" && state(&right) == "master").then_some(()));
    host.reaches("10.0.10.1");
    let brief = right.exec(&["show vrrp brief"]);
    assert!(brief.contains("Master"), "{brief}");
}

fn keepalived_survives_the_daemon(plane: Plane) {
    if !installed("keepalived") {
        return;
    }
    let (left, right) = two_routers(plane);
    wait_for("the first to be master", || {
        (state(&left) == "master" && state(&right) == "backup").then_some(())
    });
    let before = pids(&left, "keepalived");
    assert!(!before.is_empty());
    left.exec(&["write memory"]);
    left.end_daemon(Signal::SIGKILL);
    left.host(1).reaches("10.0.10.1");
    left.start();
    assert_eq!((pids(&left, "keepalived"), state(&left).as_str()), (before, "master"));
    assert_eq!(state(&right), "backup", "nobody noticed");
    left.configure("interface vlan 10\nno vrrp 1");
    wait_for("keepalived to end", || pids(&left, "keepalived").is_empty().then_some(()));
    wait_for("the second to take over", || (state(&right) == "master").then_some(()));
    left.host(1).reaches("10.0.10.1");
}

/// Hosts in two VLANs of a plain switch, whose trunk leads to a router that has a subinterface for each.
fn subinterfaces(plane: Plane) {
    let router = Bed::new(
        plane,
        1,
        "\
ip routing
ipv6 unicast-routing
interface p1
 no switchport
 ip address 10.0.1.254 255.255.255.0
interface p1.100
 encapsulation dot1q 100
 ip address 10.0.100.254 255.255.255.0
 ipv6 address fd00:100::254/64
interface p1.200
 encapsulation dot1q 200
 ip address 10.0.200.254 255.255.255.0
 ipv6 address fd00:200::254/64
",
    );
    let switch = Bed::new(
        plane,
        4,
        "\
vlan 100,200
interface p1
 switchport mode trunk
interface p2
 switchport access vlan 100
interface p3
 switchport access vlan 200
interface p4
 switchport access vlan 1
",
    );
    for bed in [&router, &switch] {
        bed.chatter.set(true);
        bed.exact.set(false);
    }
    join(&router, 1, &switch, 1);
    for (host, net) in [(2, 100), (3, 200), (4, 1)] {
        let host = switch.host(host);
        host.address(&format!("10.0.{net}.1/24"));
        host.net.ip(&format!("route add default via 10.0.{net}.254"));
        if net != 1 {
            host.address(&format!("fd00:{net}::1/64"));
            host.net.ip(&format!("route replace default via fd00:{net}::254"));
        }
    }
    switch.host(2).reaches("10.0.100.254");
    switch.host(2).reaches("10.0.200.1");
    switch.host(3).reaches("fd00:100::1");
    switch.host(2).tcp(switch.host(3), "10.0.200.1", 1 << 20);
    // The routed port itself still works, without a tag.
    switch.host(4).reaches("10.0.1.254");
    switch.host(4).reaches("10.0.100.1");
    let printed = router.exec(&["show ip interface brief"]);
    assert!(printed.contains("p1.100") && printed.matches(" up ").count() >= 3, "{printed}");
    // A tag without a subinterface reaches no interface.
    router.configure("interface p1.200\nencapsulation dot1q 201");
    assert!(!switch.host(3).ping("-c 1 -W 1 10.0.200.254"));
    router.configure("interface p1.200\nencapsulation dot1q 200");
    switch.host(3).reaches("10.0.200.254");
    router.configure("interface p1.100\nshutdown");
    assert!(!switch.host(2).ping("-c 1 -W 1 10.0.100.254"));
    router.configure("no interface p1.100\nno interface p1.200");
    assert!(!router.net.links().iter().any(|name| name.contains('.')), "{:?}", router.net.links());
    switch.host(4).reaches("10.0.1.254");
}
