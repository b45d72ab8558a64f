//! Monitor sessions (SPAN): the destination gets the frames that its sources receive and send, and nothing else; the traffic
//! itself does not change.

use crate::capture::{Dump, has_tcpdump};
use crate::harness::{BROADCAST, Bed, Plane, frame, mac, scenarios, wait_for};

scenarios! {
    a_port_in_both_directions: ebpf soft;
    tags_are_removed_or_kept: ebpf soft;
    vlans_and_filters: ebpf soft;
    frames_that_are_dropped: ebpf soft;
    two_destinations: ebpf soft;
    tcpdump_sees_a_conversation: ebpf soft;
    sources_on_xdp: ebpf;
    copies_leave_in_a_remote_vlan: ebpf soft;
    frames_of_a_remote_vlan: ebpf soft;
    a_restart_keeps_copying: ebpf;
}

/// Two access ports of VLAN 10, a trunk, and p4, the destination of the sessions.
const FOUR: &str = "vlan 10,20\ninterface range p1 - 2\n switchport access vlan 10\ninterface p3\n switchport mode trunk\n \
                    switchport trunk allowed vlan 10,20\ninterface range p4 - 5\n switchport\n";

/// A switch with this session 1; its destination is p4.
fn bed(plane: Plane, session: &[&str]) -> Bed {
    let bed = Bed::new(plane, 5, FOUR);
    for line in session {
        bed.configure(&format!("monitor session 1 {line}"));
    }
    bed.configure("monitor session 1 destination interface p4");
    bed
}

fn a_port_in_both_directions(plane: Plane) {
    let bed = bed(plane, &["source interface p1"]);
    let received = frame(BROADCAST, mac(1));
    bed.expect(1, &received, &[(2, received.clone()), (3, received.vlan(10)), (4, received.clone())]);
    let sent = frame(BROADCAST, mac(2));
    bed.expect(2, &sent, &[(1, sent.clone()), (3, sent.vlan(10)), (4, sent.clone())]);
    bed.expect_at(1, &frame(mac(2), mac(1)), &[2, 4]);
    bed.expect_at(2, &frame(mac(1), mac(2)), &[1, 4]);
    let other = frame(mac(2), mac(3));
    bed.expect(3, &other.vlan(10), &[(2, other)]);
    bed.expect_drop(4, &frame(BROADCAST, mac(4)), "mirror_destination");
    bed.learned(mac(4), 1, None);
    let shown = bed.show("show monitor session 1");
    let want = serde_json::json!([{
        "session": 1, "type": "local", "sources": [{"interface": "p1", "direction": "both"}],
        "source_rspan_vlan": null, "destination_rspan_vlan": null, "filter_vlans": null,
        "destinations": [{"interface": "p4"}], "encapsulation": "native", "ingress": false,
    }]);
    assert_eq!(shown["sessions"], want);
    bed.configure("no monitor session 1");
    let plain = frame(BROADCAST, mac(1));
    bed.expect(1, &plain, &[(2, plain.clone()), (3, plain.vlan(10))]);
    bed.expect_at(4, &frame(BROADCAST, mac(4)), &[5]);
}

fn tags_are_removed_or_kept(plane: Plane) {
    let bed = bed(plane, &["source interface p3 rx"]);
    let one = frame(mac(1), mac(3));
    bed.exchange(1, &[frame(BROADCAST, mac(1))]);
    bed.exchange(3, &[frame(BROADCAST, mac(3)).vlan(10)]);
    bed.expect(3, &one.vlan(10), &[(1, one.clone()), (4, one)]);
    bed.configure("monitor session 1 destination interface p4 encapsulation replicate");
    let two = frame(mac(1), mac(3));
    bed.expect(3, &two.vlan(10), &[(1, two.clone()), (4, two.vlan(10))]);
    bed.configure("no monitor session 1 source interface p3\nmonitor session 1 source interface p3 tx");
    let out = frame(mac(3), mac(1));
    bed.expect(1, &out, &[(3, out.vlan(10)), (4, out.vlan(10))]);
    bed.configure("monitor session 1 destination interface p4");
    let bare = frame(mac(3), mac(1));
    bed.expect(1, &bare, &[(3, bare.vlan(10)), (4, bare.clone())]);
}

fn vlans_and_filters(plane: Plane) {
    let bed = bed(plane, &["source interface p3 rx", "filter vlan 20"]);
    let other = frame(BROADCAST, mac(3));
    bed.expect(3, &other.vlan(10), &[(1, other.clone()), (2, other)]);
    let chosen = frame(BROADCAST, mac(3));
    bed.expect(3, &chosen.vlan(20), &[(4, chosen)]);
    bed.configure(
        "no monitor session 1 source\nno monitor session 1 filter\nmonitor session 1 source vlan 10 rx",
    );
    for (from, tagged) in [(1, false), (3, true)] {
        let sent = frame(mac(2), mac(from as u16));
        let _ = bed.exchange(2, &[frame(BROADCAST, mac(2))]);
        let at_port = if tagged { sent.vlan(10) } else { sent.clone() };
        bed.expect(from, &at_port, &[(2, sent.clone()), (4, sent)]);
    }
    let of_20 = frame(mac(99), mac(3));
    bed.expect(3, &of_20.vlan(20), &[]);
}

fn frames_that_are_dropped(plane: Plane) {
    let bed = bed(plane, &["source interface p1 rx"]);
    let strange = frame(BROADCAST, mac(1)).vlan(20);
    let before = bed.drops(1, "tagged_on_access");
    bed.expect(1, &strange, &[(4, strange.untagged())]);
    assert_eq!(bed.drops(1, "tagged_on_access"), before + 1);
    bed.configure("interface p4\nshutdown");
    let lost = frame(mac(99), mac(1));
    bed.expect(1, &lost, &[(2, lost.clone()), (3, lost.vlan(10))]);
    assert_eq!(bed.counters()["p4"].tx_dropped, 1, "the copy is counted where it could not leave");
}

fn two_destinations(plane: Plane) {
    let bed = bed(plane, &["source interface p1 , p2 rx", "destination interface p5"]);
    for from in 1..=2 {
        let sent = frame(mac(99), mac(from as u16));
        let other = 3 - from;
        bed.expect(
            from,
            &sent,
            &[(other, sent.clone()), (3, sent.vlan(10)), (4, sent.clone()), (5, sent.clone())],
        );
    }
    let refused = bed.try_configure("monitor session 2 destination interface p5").expect_err("it has one");
    assert!(refused.contains("p5 is the destination of monitor session 1 already"), "{refused}");
}

/// A ping and a TCP connection between two hosts, seen with tcpdump behind the destination port: every packet of both
/// directions once.
fn tcpdump_sees_a_conversation(plane: Plane) {
    if !has_tcpdump() {
        return println!("skipped: tcpdump is not installed");
    }
    let bed = bed(plane, &["source interface p1"]);
    bed.host(1).address("10.0.0.1/24");
    bed.host(2).address("10.0.0.2/24");
    let analyser = Dump::start(&bed.host(4).net, "eth0");
    bed.host(1).reaches("10.0.0.2");
    bed.host(1).tcp(bed.host(2), "10.0.0.2", 1 << 16);
    let count = |what: &str| analyser.seen().0.iter().filter(|line| line.contains(what)).count();
    // The last data and the end of the connection may be in one segment, which tcpdump shows as `[FP.]`.
    wait_for("the end of the connection at the analyser", || (count("Flags [F") >= 2).then_some(()));
    let (requests, replies) = (count("ICMP echo request"), count("ICMP echo reply"));
    assert!(requests >= 1 && requests == replies, "{requests} requests, {replies} replies");
    assert_eq!((count("Flags [S],"), count("Flags [S.],")), (1, 1), "each packet once");
}

/// XDP leaves the frames of source ports to TC, and forwards those of other ports.
fn sources_on_xdp(plane: Plane) {
    let bed = bed(plane, &["source interface p1"]);
    bed.configure("interface range p1 - 3\nhook xdp");
    for _ in 0..3 {
        bed.exchange(1, &[frame(BROADCAST, mac(1))]);
        bed.exchange(2, &[frame(BROADCAST, mac(2))]);
        // The same frame several times: the memo of XDP must not remember a decision without the copies.
        for _ in 0..4 {
            bed.expect_at(1, &frame(mac(2), mac(1)), &[2, 4]);
        }
        for _ in 0..4 {
            bed.expect_at(2, &frame(mac(1), mac(2)), &[1, 4]);
        }
    }
    bed.configure("no monitor session 1");
    for _ in 0..4 {
        bed.expect_at(1, &frame(mac(2), mac(1)), &[2]);
    }
    bed.configure("monitor session 1 source interface p1\nmonitor session 1 destination interface p4");
    for _ in 0..4 {
        bed.expect_at(1, &frame(mac(2), mac(1)), &[2, 4]);
    }
}

fn a_restart_keeps_copying(plane: Plane) {
    let bed = bed(plane, &["source interface p1 rx"]);
    bed.exec(&["write memory"]);
    let sent = frame(mac(99), mac(1));
    bed.expect(1, &sent, &[(2, sent.clone()), (3, sent.vlan(10)), (4, sent.clone())]);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    bed.start();
    let sent = frame(mac(99), mac(1));
    bed.expect(1, &sent, &[(2, sent.clone()), (3, sent.vlan(10)), (4, sent.clone())]);
    bed.expect_drop(4, &frame(BROADCAST, mac(4)), "mirror_destination");
}

/// The first switch of an RSPAN: copies have the tag of VLAN 99 in place of their own, at the trunk that carries it.
fn copies_leave_in_a_remote_vlan(plane: Plane) {
    let bed = Bed::new(plane, 5, FOUR);
    let refused =
        bed.try_configure("monitor session 1 destination remote vlan 99").expect_err("no RSPAN VLAN");
    assert!(refused.contains("remote-span"), "{refused}");
    bed.configure(
        "vlan 99\nremote-span\ninterface p5\nswitchport mode trunk\nswitchport trunk allowed vlan 99\n\
         monitor session 1 source interface p1 , p3\nmonitor session 1 destination remote vlan 99",
    );
    let received = frame(BROADCAST, mac(1));
    // The frame is copied twice: p1 receives it, and p3 sends it.
    let copy = (5, received.vlan(99));
    bed.expect(1, &received, &[(2, received.clone()), (3, received.vlan(10)), copy.clone(), copy]);
    let tagged = frame(BROADCAST, mac(3));
    bed.expect(3, &tagged.tag(0x8100, 5, 20), &[(5, tagged.vlan(99))]);
    let shown = bed.show("show monitor session 1");
    let session = &shown["sessions"][0];
    assert_eq!((&session["type"], &session["destination_rspan_vlan"]), (&"remote source".into(), &99.into()));
    bed.configure("interface p5\nswitchport trunk allowed vlan 10");
    let none = frame(mac(99), mac(1));
    bed.expect(1, &none, &[(2, none.clone()), (3, none.vlan(10)), (5, none.vlan(10))]);
}

/// The other switches of an RSPAN: frames of its VLAN are flooded and not learned, and reach the destination untagged.
fn frames_of_a_remote_vlan(plane: Plane) {
    let bed = Bed::new(plane, 5, FOUR);
    bed.configure(
        "vlan 99\nremote-span\ninterface p3\nswitchport trunk allowed vlan 10,20,99\ninterface p5\n\
         switchport mode trunk\nswitchport trunk allowed vlan 99\nmonitor session 2 source remote vlan 99\n\
         monitor session 2 destination interface p4",
    );
    // From one station to the other, in both directions: a switch that learned the addresses would not flood the second frame.
    for (dst, src) in [(mac(2), mac(1)), (mac(1), mac(2)), (mac(2), mac(1))] {
        let copy = frame(dst, src);
        bed.expect(3, &copy.vlan(99), &[(4, copy.clone()), (5, copy.vlan(99))]);
    }
    bed.learned(mac(1), 99, None);
    bed.expect_drop(4, &frame(BROADCAST, mac(4)), "mirror_destination");
    let local = frame(BROADCAST, mac(1));
    bed.expect(1, &local, &[(2, local.clone()), (3, local.vlan(10))]);
}
