//! ND inspection and IPv6 source guard against hosts that attack, with the legitimate traffic beside them: advertisements and
//! solicitations for foreign addresses, foreign sources, many addresses; restarts. Where possible, the kernels of the hosts send
//! the messages.

use crate::harness::{Bed, Frame, Plane, mac, scenarios, wait_for};
use std::net::Ipv6Addr;

scenarios! {
    hosts_get_bindings: ebpf soft;
    an_attacker_gets_no_address: ebpf soft;
    ipv6_packets_with_foreign_sources: ebpf soft;
    a_port_with_too_many_addresses: ebpf soft;
    a_restart_keeps_neighbours: ebpf;
}

/// Hosts at p1 and p2, a router at p3, which is trusted.
fn bed(plane: Plane, more: &str) -> Bed {
    let config = "interface range p1 - 3\n switchport\nipv6 nd inspection vlan 1\ninterface p3\n \
        ipv6 nd inspection trust\n";
    let bed = Bed::new(plane, 3, &format!("{config}{more}"));
    bed.chatter.set(true);
    // The daemon forwards messages, and sends probes to hosts.
    bed.exact.set(false);
    bed
}

/// The bindings as `ADDRESS INTERFACE TYPE STATE`, without those of link-local addresses.
fn bindings(bed: &Bed) -> Vec<String> {
    let view = bed.show("show ipv6 neighbors binding");
    let text = |row: &serde_json::Value| {
        let word = |key: &str| row[key].as_str().unwrap().to_owned();
        [word("address"), word("interface"), word("type"), word("state")].join(" ")
    };
    let all = view["bindings"].as_array().unwrap().iter().map(text);
    all.filter(|row| !row.starts_with("fe80:")).collect()
}

fn bound(bed: &Bed, wanted: &[&str]) {
    let mut found = Vec::new();
    let done = crate::harness::wait_until(crate::harness::DEADLINE, || {
        found = bindings(bed);
        (found == wanted).then_some(())
    });
    assert!(done.is_some(), "{found:?}, not {wanted:?}");
}

fn logged(bed: &Bed, text: &str) {
    wait_for("the message", || bed.exec(&["show logging"]).contains(text).then_some(()));
}

/// Gives a host an IPv6 address; its kernel performs duplicate address detection.
fn detects(bed: &Bed, n: usize, address: &str) {
    let net = &bed.host(n).net;
    net.run(|| std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0")).expect("IPv6 on");
    net.ip(&format!("address add {address}/64 dev eth0"));
}

/// True once the kernel of a host shows a flag of an address.
fn has_flag(bed: &Bed, n: usize, address: &str, flag: &str) -> bool {
    let output = bed
        .host(n)
        .net
        .output(std::process::Command::new("ip").args(["-6", "address", "show", "dev", "eth0"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().any(|line| line.contains(&format!("inet6 {address}/")) && line.contains(flag))
}

fn six(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The sum of the 16-bit words, for the Internet checksum.
fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn packet(src: u16, [from, to]: [Ipv6Addr; 2], next: u8, hop_limit: u8, payload: &[u8]) -> Frame {
    let mut bytes = vec![0x33, 0x33];
    bytes.extend(&to.octets()[12..]);
    bytes.extend(mac(src));
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, payload.len() as u8, next, hop_limit]);
    bytes.extend(from.octets());
    bytes.extend(to.octets());
    bytes.extend(payload);
    bytes.resize(bytes.len().max(60), 0);
    Frame(bytes)
}

/// A neighbour solicitation (135) or advertisement (136) of the station `src`.
fn message(kind: u8, src: u16, addresses: [Ipv6Addr; 2], target: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message[4] = if kind == 136 { 0x20 } else { 0 };
    message.extend(target.octets());
    if !addresses[0].is_unspecified() {
        message.extend([if kind == 136 { 2 } else { 1 }, 1]);
        message.extend(mac(src));
    }
    let pseudo = [addresses[0].octets(), addresses[1].octets()].concat();
    let sum =
        !ones_complement_sum(&[&pseudo[..], &[0, 0, 0, message.len() as u8, 0, 0, 0, 58], &message].concat());
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

fn nd(kind: u8, src: u16, addresses: [Ipv6Addr; 2], target: Ipv6Addr) -> Frame {
    packet(src, addresses, 58, 255, &message(kind, src, addresses, target))
}

/// A solicitation of the station `src` for duplicate address detection of 2001:db8::`last`.
fn probe(src: u16, last: u16) -> Frame {
    let solicited = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, last);
    nd(135, src, [Ipv6Addr::UNSPECIFIED, solicited], six(last))
}

fn hosts_get_bindings(plane: Plane) {
    let bed = bed(plane, "interface p1\n ipv6 source-guard\n");
    bed.host(3).address("2001:db8::3/64");
    detects(&bed, 1, "2001:db8::1");
    bound(&bed, &["2001:db8::1 p1 nd REACHABLE"]);
    bed.host(1).reaches("2001:db8::3");
    bed.host(3).reaches("2001:db8::1");
    // The host's link-local address has a binding as well.
    let shown = bed.show("show ipv6 neighbors binding interface p1");
    assert_eq!(shown["total"], 2, "{shown}");
    // The host takes an address that is in use behind the trusted port.
    detects(&bed, 1, "2001:db8::3");
    wait_for("the duplicate", || has_flag(&bed, 1, "2001:db8::3", "dadfailed").then_some(()));
    bound(&bed, &["2001:db8::1 p1 nd REACHABLE"]);
    logged(&bed, "%SISF-6-ENTRY_CREATED");
    // The bindings are removed, and the host's own packets create its binding again.
    bed.exec(&["clear ipv6 neighbors binding"]);
    bed.host(1).reaches("2001:db8::3");
    bound(&bed, &["2001:db8::1 p1 nd REACHABLE"]);
    // The host moves to another port.
    let before = bed.show("show ipv6 nd inspection");
    assert!(before["forwarded"].as_u64() >= Some(2) && before["probes"].as_u64() >= Some(2), "{before}");
    bed.host(1).net.ip("address del 2001:db8::1/64 dev eth0");
    detects(&bed, 2, "2001:db8::1");
    bound(&bed, &["2001:db8::1 p2 nd REACHABLE"]);
    bed.host(2).reaches("2001:db8::3");
}

/// The number of messages of neighbour discovery that the switch has dropped for this reason.
fn dropped(bed: &Bed, reason: &str) -> u64 {
    bed.show("show ipv6 nd inspection")["dropped"][reason].as_u64().unwrap_or(0)
}

/// Host 1 takes 2001:db8::1, and host 2 starts duplicate address detection for the address while that of host 1 still runs, for a
/// second. The switch drops host 2's message, because host 1 would give the address up, and host 1 keeps the address.
fn claimed_during_detection(bed: &Bed) {
    const OWN: [&str; 1] = ["2001:db8::1 p1 nd REACHABLE"];
    let own_has = |flag: &str| has_flag(bed, 1, "2001:db8::1", flag);
    // On a busy machine the message may come after the owner's detection, and is then a question that the owner answers: in this
    // case the host starts again.
    let is_dropped = (0..10).any(|_| {
        detects(bed, 1, "2001:db8::1");
        bound(bed, &OWN);
        let before = dropped(bed, "binding_mismatch");
        bed.host(2).send(&probe(2, 1));
        wait_for("the drop, or the end of the detection", || {
            (dropped(bed, "binding_mismatch") > before || !own_has("tentative")).then_some(())
        });
        if dropped(bed, "binding_mismatch") > before {
            return true;
        }
        bed.host(1).net.ip("address del 2001:db8::1/64 dev eth0");
        bed.exec(&["clear ipv6 neighbors binding"]);
        false
    });
    assert!(is_dropped, "the attacker's message has always come after the owner's detection");
    wait_for("the end of the detection", || (!own_has("tentative") || own_has("dadfailed")).then_some(()));
    assert!(own_has("scope global") && !own_has("dadfailed"), "the owner has given its address up");
    // The switch has asked the owner after its detection, and the owner has answered.
    bound(bed, &OWN);
}

fn an_attacker_gets_no_address(plane: Plane) {
    let bed = bed(plane, "");
    bed.host(3).address("2001:db8::3/64");
    claimed_during_detection(&bed);
    let dropped = |reason: &str| dropped(&bed, reason);
    bed.host(1).reaches("2001:db8::3");
    let cached = || {
        let output = bed.host(3).net.output(std::process::Command::new("ip").args([
            "-6",
            "neigh",
            "show",
            "2001:db8::1",
        ]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let own = cached();
    // The attacker advertises the host's address to all nodes and to the router, solicits from it, and advertises it from another
    // address.
    for spoofed in [
        nd(136, 2, [six(1), ALL_NODES], six(1)),
        nd(136, 2, [six(1), six(3)], six(1)),
        nd(135, 2, [six(1), six(3)], six(3)),
        nd(136, 2, [six(9), six(3)], six(1)),
    ] {
        let before = dropped("binding_mismatch");
        bed.expect(2, &spoofed, &[]);
        wait_for("the drop", || (dropped("binding_mismatch") == before + 1).then_some(()));
    }
    bed.host(1).reaches("2001:db8::3");
    // An advertisement of the host's address, whose option names another station than the source of the frame.
    let poison = message(136, 2, [six(1), ALL_NODES], six(1));
    let mut frame = packet(2, [six(1), ALL_NODES], 58, 255, &poison);
    frame.0[6..12].copy_from_slice(&mac(7));
    bed.expect(2, &frame, &[]);
    wait_for("the drop", || (dropped("link_address_mismatch") == 1).then_some(()));
    // The advertisement in a fragment, and behind more extension headers than the switch reads.
    let fragment = [&[58, 0, 0, 0, 0, 0, 0, 7][..], &poison].concat();
    bed.expect_drop(2, &packet(2, [six(1), ALL_NODES], 44, 255, &fragment), "nd_inspection");
    let options = (0..7).fold(poison.clone(), |rest, n| {
        [&[if n == 0 { 58 } else { 60 }, 0, 1, 4, 0, 0, 0, 0][..], &rest].concat()
    });
    bed.expect_drop(2, &packet(2, [six(1), ALL_NODES], 60, 255, &options), "nd_inspection");
    // The owner has its binding as before, and the router's neighbour entry has not changed.
    bound(&bed, &["2001:db8::1 p1 nd REACHABLE"]);
    let station =
        |text: &str| text.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).map(str::to_owned);
    assert_eq!(station(&cached()), station(&own));
    assert!(station(&own).is_some(), "{own}");
    bed.host(3).reaches("2001:db8::1");
    logged(&bed, "%SISF-4-PAK_DROP");
    assert_eq!(bed.show("show ipv6 nd inspection")["dropped_by_plane"], 2);
    bed.exec(&["clear ipv6 nd inspection statistics"]);
    assert_eq!(dropped("link_address_mismatch"), 0);
    // Messages at a trusted port are not compared with bindings.
    bed.configure("interface p2\nipv6 nd inspection trust");
    bed.expect_at(2, &nd(135, 2, [six(1), six(3)], six(3)), &[1, 3]);
}

fn ipv6_packets_with_foreign_sources(plane: Plane) {
    let bed = bed(plane, "interface p1\n ipv6 source-guard\n");
    bed.configure("ipv6 neighbor binding vlan 1 2001:db8::1 interface p1 0200.0000.0001");
    bound(&bed, &["2001:db8::1 p1 static REACHABLE"]);
    let say = |src: u16, last: u16| packet(src, [six(last), ALL_NODES], 17, 64, &[0; 20]);
    bed.expect_at(1, &say(1, 1), &[2, 3]);
    bed.expect_drop(1, &say(1, 9), "source_guard");
    bed.expect_drop(1, &say(9, 1), "source_guard");
    bed.expect_at(2, &say(2, 9), &[1, 3]);
    // Solicitations that the static binding explains, and one that it does not.
    bed.expect_at(1, &probe(1, 1), &[2, 3]);
    bed.expect_at(1, &nd(135, 1, [six(1), six(3)], six(3)), &[2, 3]);
    bed.expect(2, &nd(135, 2, [six(1), six(3)], six(3)), &[]);
    logged(&bed, "%SISF-4-PAK_DROP");
    if plane == Plane::ebpf {
        bed.exec(&["copy running-config startup-config"]);
        let before = bed.drops(1, "source_guard");
        bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
        bed.host(1).send(&say(1, 8));
        bed.host(1).send(&say(1, 1));
        let own = |got: &Frame| got.0 == say(1, 1).0;
        wait_for("the legitimate packet", || bed.host(2).next().filter(own));
        bed.start();
        assert_eq!(bed.drops(1, "source_guard"), before + 1);
    }
    bed.configure("no ipv6 neighbor binding vlan 1 2001:db8::1 interface p1 0200.0000.0001");
    bed.expect_drop(1, &say(1, 1), "source_guard");
    bed.configure("interface p1\nno ipv6 source-guard");
    bed.expect_at(1, &say(1, 7), &[2, 3]);
}

fn a_port_with_too_many_addresses(plane: Plane) {
    let bed = bed(plane, "interface p1\n ipv6 nd inspection limit address-count 2\n");
    for last in 1..=5 {
        bed.host(1).send(&probe(1, last));
    }
    bound(&bed, &["2001:db8::1 p1 nd REACHABLE", "2001:db8::2 p1 nd REACHABLE"]);
    logged(&bed, "Reason=Address limit of the port reached");
    let shown = bed.show("show ipv6 nd inspection");
    assert_eq!(shown["dropped"]["address_limit"], 3, "{shown}");
    assert_eq!(
        (&shown["interfaces"][0]["addresses"], &shown["interfaces"][0]["address_limit"]),
        (&2.into(), &2.into())
    );
    // Another port has a limit of its own.
    bed.host(2).send(&probe(2, 7));
    wait_for("the third binding", || (bindings(&bed).len() == 3).then_some(()));
}

fn a_restart_keeps_neighbours(plane: Plane) {
    let bed = bed(plane, "interface p1\n ipv6 source-guard\n");
    bed.host(3).address("2001:db8::3/64");
    detects(&bed, 1, "2001:db8::1");
    bound(&bed, &["2001:db8::1 p1 nd REACHABLE"]);
    bed.host(1).reaches("2001:db8::3");
    bed.exec(&["copy running-config startup-config"]);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    // Packets that the binding explains pass, neighbour discovery included; another address does not.
    bed.host(1).net.ip("neigh flush all dev eth0");
    bed.host(1).reaches("2001:db8::3");
    bed.host(1).net.ip("address add 2001:db8::200/64 dev eth0 nodad");
    assert!(!bed.host(1).ping("-c 1 -W 1 -I 2001:db8::200 2001:db8::3"));
    bed.host(1).net.ip("address del 2001:db8::200/64 dev eth0");
    bed.start();
    bound(&bed, &["2001:db8::1 p1 nd REACHABLE"]);
    bed.host(1).reaches("2001:db8::3");
}
