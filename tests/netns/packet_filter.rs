//! The host's packet filter, NAT, connection tracking and IPsec apply to routed packets from the moment a rule exists,
//! and from the switch's start.
//!
//! Read docs/routing.md, "The plane and the host's packet filter", first.

use crate::harness::{Bed, Net, Plane, scenarios, wait_for, wait_until};
use lanyard_netdev::Reaped;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::io::BufRead;
use std::net::{IpAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

scenarios! {
    /// A rule that exists at the start, and one that is added while the plane forwards; each family
    /// separately.
    packet_filter: ebpf soft;
    masquerade: ebpf soft;
    connection_tracking_and_flowtables: ebpf soft;
    /// Legacy iptables announces nothing, so the daemon looks at it once a second.
    legacy_iptables: ebpf soft;
    /// BPF programs at netfilter announce nothing either, and nftables does not list them.
    bpf_programs: ebpf soft;
    ipsec_policies: ebpf soft;
    forwarding_plane_setting: ebpf soft;
    /// While no daemon runs, nothing follows the hooks; the next daemon does so before it is ready.
    a_rule_added_while_no_daemon_runs: ebpf soft;
    /// When no daemon has followed the hooks for 10 s, the kernel routes, unless the configuration says that the plane always
    /// does.
    no_daemon_for_longer: ebpf;
}

/// Host 1 is in VLAN 10, host 2 in VLAN 20.
const CONFIG: &str = "\
vlan 10,20
ip routing
ipv6 unicast-routing
interface p1
 switchport access vlan 10
interface p2
 switchport access vlan 20
interface vlan 10
 ip address 10.0.10.254 255.255.255.0
 ipv6 address fd00:10::254/64
interface vlan 20
 ip address 10.0.20.254 255.255.255.0
 ipv6 address fd00:20::254/64
";
const V4: &str = "10.0.20.1";
const V6: &str = "fd00:20::1";

/// A switch in a namespace in which the command `before` was run before the switch started.
fn world(plane: Plane, before: &str) -> Bed {
    let bed = Bed::without_switch(plane, 2, 1500);
    if !before.is_empty() {
        run(&bed, before);
    }
    std::fs::write(bed.config_file(), CONFIG).unwrap();
    bed.start();
    bed.chatter.set(true);
    bed.exact.set(false);
    for (n, vlan) in [(1, 10), (2, 20)] {
        bed.host(n).join_vlan(vlan);
    }
    bed
}

/// Runs a shell command in the switch's namespace; returns its output.
fn run(bed: &Bed, command: &str) -> String {
    let output = bed.net.output(Command::new("sh").args(["-ec", command]));
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command}: {printed}");
    printed
}

fn have(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        println!("skipped: no {tool}");
    }
    found
}

/// The forwarder of a family and its reason, as `show ip cef summary` reports them.
fn routed_by(bed: &Bed, family: &str) -> Value {
    bed.ask("show ip cef summary")[family].clone()
}

/// Waits until the switch reports that `who` routes; returns the reason.
fn wait_routed_by(bed: &Bed, family: &str, who: &str) -> String {
    wait_for(&format!("{family} to be routed by the {who}: {}", routed_by(bed, family)), || {
        let view = routed_by(bed, family);
        (view["routed_by"] == who).then(|| view["reason"].as_str().unwrap_or_default().to_owned())
    })
}

fn pings(bed: &Bed, from: usize, address: &str) -> bool {
    bed.host(from).ping(&format!("-c 1 -W 1 {address}"))
}

/// Makes the router resolve its neighbours, so that a later failure is due to the packet filter alone.
fn resolve(bed: &Bed) {
    for host in ["10.0.10.1", "10.0.20.1", "fd00:10::1", "fd00:20::1"] {
        wait_for("the router to reach its neighbours", || {
            let mut ping = Command::new("ping");
            bed.net.output(ping.args(["-c", "1", "-W", "1", host])).status.success().then_some(())
        });
    }
}

/// Asserts that nothing is forwarded although the router knows its neighbours.
fn blocked(bed: &Bed, address: &str) {
    resolve(bed);
    for _ in 0..3 {
        assert!(!pings(bed, 1, address), "{address} is reached in spite of the packet filter");
    }
}

fn by_the_plane(bed: &Bed, address: &str) {
    bed.host(1).reaches(address);
    bed.by_the_plane(1, 50, address, || bed.host(1).tcp(bed.host(2), address, 4 << 20));
}

fn packet_filter(plane: Plane) {
    if !have("nft") {
        return;
    }
    let drop = "nft 'add table inet f; add chain inet f forward { type filter hook forward priority 0; policy drop; }'";
    let bed = world(plane, drop);
    let reason = "nftables chain inet f forward";
    for (family, address) in [("ipv4", V4), ("ipv6", V6)] {
        assert_eq!(wait_routed_by(&bed, family, "kernel"), reason);
        blocked(&bed, address);
    }
    assert!(bed.printed().contains(&format!("are routed by the kernel: {reason}")), "{}", bed.printed());
    let shown = bed.exec(&["show interfaces vlan 10"]);
    assert!(
        shown.contains(&format!("IPv4 packets received here are routed by the kernel: {reason}")),
        "{shown}"
    );
    run(&bed, "nft delete table inet f");
    for (family, address) in [("ipv4", V4), ("ipv6", V6)] {
        wait_routed_by(&bed, family, "plane");
        by_the_plane(&bed, address);
    }
    // While traffic flows: after nft has returned, only packets that were under way arrive.
    let began = Instant::now();
    run(&bed, drop);
    wait_routed_by(&bed, "ipv4", "kernel");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    blocked(&bed, V4);
    blocked(&bed, V6);
    // A chain of one family leaves the other family to the plane; chains of a bridge and of the host's own
    // input affect neither.
    run(
        &bed,
        "nft 'delete table inet f; add table ip6 f; add chain ip6 f pre { type filter hook prerouting priority 0; }
         add rule ip6 f pre ip6 daddr fd00:20::1 icmpv6 type echo-request drop
         add table bridge b; add chain bridge b forward { type filter hook forward priority 0; policy drop; }
         add table inet i; add chain inet i input { type filter hook input priority 0; }'",
    );
    wait_routed_by(&bed, "ipv4", "plane");
    by_the_plane(&bed, V4);
    assert_eq!(wait_routed_by(&bed, "ipv6", "kernel"), "nftables chain ip6 f pre");
    assert!(!pings(&bed, 1, V6));
    // A restarted daemon finds the rules before it routes.
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    bed.start();
    assert_eq!(wait_routed_by(&bed, "ipv6", "kernel"), "nftables chain ip6 f pre");
    assert!(!pings(&bed, 1, V6));
    by_the_plane(&bed, V4);
    // A chain at the ingress of one router interface concerns only that interface.
    run(
        &bed,
        "nft 'flush ruleset; add table netdev n
         add chain netdev n in { type filter hook ingress device vlan10 priority 0; policy drop; }'",
    );
    wait_for("vlan10 to be the kernel's", || {
        let shown = bed.exec(&["show interfaces vlan 10"]);
        shown
            .contains("IPv4 packets received here are routed by the kernel: nftables chain netdev n in")
            .then_some(())
    });
    assert!(
        bed.exec(&["show interfaces vlan 20"]).contains("IPv4 packets received here are routed by the plane")
    );
    assert!(!pings(&bed, 1, V4));
    run(&bed, "nft flush ruleset");
    wait_for("the ping to pass again", || pings(&bed, 1, V4).then_some(()));
}

fn a_rule_added_while_no_daemon_runs(plane: Plane) {
    if !have("nft") {
        return;
    }
    let bed = world(plane, "");
    for address in [V4, V6] {
        by_the_plane(&bed, address);
    }
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    run(
        &bed,
        "nft 'add table inet f; add chain inet f forward { type filter hook forward priority 0; policy drop; }'",
    );
    if plane == Plane::ebpf {
        assert!(pings(&bed, 1, V4), "the plane goes on as configured (docs/routing.md)");
    }
    bed.start();
    for (family, address) in [("ipv4", V4), ("ipv6", V6)] {
        assert_eq!(routed_by(&bed, family)["reason"], "nftables chain inet f forward", "when it is ready");
        blocked(&bed, address);
    }
    run(&bed, "nft delete table inet f");
    wait_routed_by(&bed, "ipv4", "plane");
    by_the_plane(&bed, V4);
}

fn no_daemon_for_longer(plane: Plane) {
    if !have("nft") {
        return;
    }
    let drop = "nft 'add table inet f; add chain inet f forward { type filter hook forward priority 0; policy drop; }'";
    let bed = world(plane, "");
    let counts = |bed: &Bed| {
        run(bed, drop);
        // The plane routes for 10 s as before, so that a restart within that time changes nothing.
        assert!(pings(bed, 1, V4), "the plane goes on as configured");
        let ended = wait_until(Duration::from_secs(20), || (!pings(bed, 1, V4)).then_some(()));
        ended.expect("the rule to count");
    };
    for address in [V4, V6] {
        by_the_plane(&bed, address);
    }
    bed.end_daemon(Signal::SIGKILL);
    counts(&bed);
    blocked(&bed, V4);
    blocked(&bed, V6);
    // The kernel routes what the rule no longer drops.
    run(&bed, "nft delete table inet f");
    for address in [V4, V6] {
        bed.host(1).reaches(address);
        bed.host(1).tcp(bed.host(2), address, 4 << 20);
    }
    bed.start();
    for (family, address) in [("ipv4", V4), ("ipv6", V6)] {
        wait_routed_by(&bed, family, "plane");
        by_the_plane(&bed, address);
    }
    let logged = bed.exec(&["show logging"]);
    assert!(
        logged.contains("%ROUTING-4-WATCHDOG: ") && logged.contains(" received at 2 interfaces"),
        "{logged}"
    );
    bed.configure("interface vlan 10\nip forwarding plane always");
    by_the_plane(&bed, V4);
    bed.end_daemon(Signal::SIGKILL);
    // The plane always routes what VLAN 10 receives. The kernel drops the answers, which VLAN 20 receives.
    counts(&bed);
    assert_eq!(seen_source(&bed), "10.0.10.1".parse::<IpAddr>().unwrap());
    bed.start();
    assert_eq!(routed_by(&bed, "ipv4")["reason"], "nftables chain inet f forward", "when it is ready");
    assert!(!pings(&bed, 1, V4));
    run(&bed, "nft delete table inet f");
    wait_routed_by(&bed, "ipv4", "plane");
    by_the_plane(&bed, V4);
}

/// The source address with which a datagram of host 1 arrives at host 2.
fn seen_source(bed: &Bed) -> IpAddr {
    let server = bed.host(2).net.run(|| UdpSocket::bind("10.0.20.1:9999").unwrap());
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let client = bed.host(1).net.run(|| UdpSocket::bind("10.0.10.1:0").unwrap());
    wait_for("a datagram to arrive", || {
        client.send_to(b"lanyard", "10.0.20.1:9999").unwrap();
        server.recv_from(&mut [0; 16]).ok().map(|(_, from)| from.ip())
    })
}

fn masquerade(plane: Plane) {
    if !have("nft") {
        return;
    }
    let nat = "nft 'add table ip n; add chain ip n post { type nat hook postrouting priority srcnat; }
               add rule ip n post oifname vlan20 counter masquerade'";
    let router: IpAddr = "10.0.20.254".parse().unwrap();
    let bed = world(plane, nat);
    assert_eq!(wait_routed_by(&bed, "ipv4", "kernel"), "nftables chain ip n post");
    bed.host(1).reaches(V4);
    assert_eq!(seen_source(&bed), router);
    bed.host(1).tcp(bed.host(2), V4, 4 << 20);
    run(&bed, "nft delete table ip n");
    wait_routed_by(&bed, "ipv4", "plane");
    by_the_plane(&bed, V4);
    assert_eq!(seen_source(&bed), "10.0.10.1".parse::<IpAddr>().unwrap());
    run(&bed, nat);
    wait_routed_by(&bed, "ipv4", "kernel");
    assert_eq!(seen_source(&bed), router, "a private source leaves");
    let counted = run(&bed, "nft list table ip n");
    assert!(!counted.contains("packets 0"), "{counted}");
}

fn connection_tracking_and_flowtables(plane: Plane) {
    if !have("nft") {
        return;
    }
    let bed = world(plane, "");
    bed.host(1).reaches(V4);
    let stateful = |flow: &str| {
        format!(
            "nft 'add table inet s; {}
             add chain inet s forward {{ type filter hook forward priority 0; policy drop; }}
             {}
             add rule inet s forward ct state established,related accept
             add rule inet s forward iifname vlan10 accept'",
            if flow.is_empty() {
                ""
            } else {
                "add flowtable inet s ft { hook ingress priority 0; devices = { vlan10, vlan20 }; }"
            },
            flow
        )
    };
    let probe = "nft 'add table inet probe; add flowtable inet probe ft { hook ingress priority 0; devices = { lo }; }'";
    let flowtables = bed.net.output(Command::new("sh").args(["-c", probe])).status.success();
    if !flowtables {
        println!("skipped: flowtables, which this kernel does not have (CONFIG_NF_FLOW_TABLE)");
    }
    let _ = bed.net.output(Command::new("nft").args(["delete", "table", "inet", "probe"]));
    let flow = "add rule inet s forward meta l4proto tcp ct state established counter flow add @ft";
    for flow in [""].into_iter().chain(flowtables.then_some(flow)) {
        run(&bed, &stateful(flow));
        wait_routed_by(&bed, "ipv4", "kernel");
        for address in [V4, V6] {
            wait_for("a connection from inside", || pings(&bed, 1, address).then_some(()));
            bed.host(1).tcp(bed.host(2), address, 16 << 20);
        }
        assert!(!pings(&bed, 2, "10.0.10.1"), "a connection from outside is let in");
        let rules = run(&bed, "nft list table inet s");
        assert!(!rules.contains("packets 0"), "no flow was added: {rules}");
        // Traffic to the kernel is a data path here, and is not policed.
        assert_eq!(bed.drops(1, "trap_policed") + bed.drops(2, "trap_policed"), 0);
        run(&bed, "nft delete table inet s");
        wait_routed_by(&bed, "ipv4", "plane");
        wait_for("connections from outside", || pings(&bed, 2, "10.0.10.1").then_some(()));
    }
}

fn legacy_iptables(plane: Plane) {
    if !have("iptables-legacy") {
        return;
    }
    let bed = world(plane, "ip6tables-legacy -A FORWARD -j DROP");
    assert_eq!(wait_routed_by(&bed, "ipv6", "kernel"), "ip6tables (legacy) chain filter FORWARD");
    blocked(&bed, V6);
    // Listing a table changes nothing.
    run(&bed, "iptables-legacy -S; iptables-legacy -t nat -S");
    let moved = wait_until(Duration::from_millis(2500), || {
        (routed_by(&bed, "ipv4")["routed_by"] != "plane").then_some(())
    });
    assert_eq!(moved, None);
    by_the_plane(&bed, V4);
    run(&bed, "iptables-legacy -P FORWARD DROP");
    assert_eq!(wait_routed_by(&bed, "ipv4", "kernel"), "iptables (legacy) chain filter FORWARD");
    blocked(&bed, V4);
    run(
        &bed,
        "iptables-legacy -P FORWARD ACCEPT; iptables-legacy -t nat -A POSTROUTING -o vlan20 -j MASQUERADE",
    );
    wait_for("the policy to be gone", || {
        (routed_by(&bed, "ipv4")["reason"] == "iptables (legacy) chain nat POSTROUTING").then_some(())
    });
    assert_eq!(seen_source(&bed), "10.0.20.254".parse::<IpAddr>().unwrap());
    run(&bed, "iptables-legacy -t nat -F");
    wait_routed_by(&bed, "ipv4", "plane");
    by_the_plane(&bed, V4);
}

/// Attaches a program that drops every packet at the forward hook of a namespace; `None` on a kernel without such programs. It
/// is detached when the process ends.
fn dropping_program(net: &Net, family: u8) -> Option<Reaped> {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/netns/another_program.py"));
    command
        .args(["netfilter", &family.to_string(), "2", "0", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = Reaped(net.spawn(&mut command));
    let mut line = String::new();
    std::io::BufReader::new(running.0.stdout.take()?).read_line(&mut line).ok()?;
    (line == "attached\n").then_some(running)
}

fn bpf_programs(plane: Plane) {
    let bed = world(plane, "");
    bed.host(1).reaches(V4);
    by_the_plane(&bed, V4);
    let Some(program) = dropping_program(&bed.net, 2) else {
        return println!("skipped: no BPF programs at netfilter (Linux 6.4, CONFIG_NETFILTER_BPF_LINK)");
    };
    let reason = wait_routed_by(&bed, "ipv4", "kernel");
    assert!(
        reason.starts_with("BPF program ") && reason.ends_with(" at the netfilter hook forward"),
        "{reason}"
    );
    blocked(&bed, V4);
    by_the_plane(&bed, V6);
    drop(program);
    wait_routed_by(&bed, "ipv4", "plane");
    by_the_plane(&bed, V4);
    // A program in another network namespace has no effect; a program that exists at the start has an effect at once.
    let _elsewhere = dropping_program(&bed.host(1).net, 2);
    let ours = dropping_program(&bed.net, 10);
    bed.end_daemon(Signal::SIGKILL);
    bed.start();
    assert_eq!(routed_by(&bed, "ipv6")["routed_by"], "kernel");
    blocked(&bed, V6);
    by_the_plane(&bed, V4);
    drop(ours);
    wait_routed_by(&bed, "ipv6", "plane");
}

fn ipsec_policies(plane: Plane) {
    let bed = world(plane, "");
    bed.host(1).reaches(V4);
    by_the_plane(&bed, V4);
    run(&bed, "ip xfrm policy add src 10.0.10.0/24 dst 10.0.20.0/24 dir fwd action block");
    assert_eq!(wait_routed_by(&bed, "ipv4", "kernel"), "an IPsec (XFRM) policy");
    blocked(&bed, V4);
    by_the_plane(&bed, V6);
    run(&bed, "ip xfrm policy flush");
    wait_routed_by(&bed, "ipv4", "plane");
    by_the_plane(&bed, V4);
}

fn forwarding_plane_setting(plane: Plane) {
    if !have("nft") {
        return;
    }
    let drop = "nft 'add table inet f; add chain inet f forward { type filter hook forward priority 0; policy drop; }'";
    let bed = world(plane, drop);
    bed.configure("ip forwarding plane always");
    wait_routed_by(&bed, "ipv4", "plane");
    resolve(&bed);
    by_the_plane(&bed, V4);
    // The most specific setting applies: that of the interface that receives the packet.
    bed.configure("interface vlan 10\nip forwarding plane auto");
    blocked(&bed, V4);
    let text = bed.exec(&["show running-config"]);
    assert!(
        text.contains("\nip forwarding plane always\n") && text.contains("\n ip forwarding plane auto\n"),
        "{text}"
    );
    run(&bed, "nft delete table inet f");
    wait_for("the ping to pass again", || pings(&bed, 1, V4).then_some(()));
    by_the_plane(&bed, V4);
    bed.configure("no ip forwarding plane\ninterface vlan 10\nip forwarding plane never");
    let before = bed.routed(1).1;
    bed.host(1).tcp(bed.host(2), V4, 4 << 20);
    let shown = bed.exec(&["show interfaces vlan 10"]);
    assert!(shown.contains("are routed by the kernel: ip forwarding plane never"), "{shown}");
    // The plane bridges to the router's interface, which counts as forwarding and not as an exception.
    assert_eq!(bed.routed(1).1, before, "the data path to the kernel is policed");
    bed.configure("interface vlan 10\nno ip forwarding plane");
    by_the_plane(&bed, V4);
}
