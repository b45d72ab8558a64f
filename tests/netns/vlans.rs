//! VLANs: which ports receive a frame and with which tag, and which frames are refused and not learned (IEEE
//! 802.1Q-2018, 6.9 and 8.6).

use crate::harness::frame::{DOT1AD, DOT1Q};
use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios};

scenarios! {
    access_and_trunk: ebpf soft;
    refused_frames_teach_nothing: ebpf soft;
    priority_is_kept: ebpf soft;
    native_vlan: ebpf soft;
    changes_take_effect_at_once: ebpf soft;
    all_vlans_on_a_trunk: ebpf soft;
    customer_tags_through_a_tunnel: ebpf soft;
    service_tags: ebpf soft;
    one_flood_many_forms: ebpf soft;
    a_telephone_at_an_access_port: ebpf soft;
}

/// Two hosts in VLAN 10, one in VLAN 20, a trunk with native VLAN 1, one with native VLAN 20. VLAN 30 is allowed on a
/// trunk and does not exist.
const CAMPUS: &str = "\
vlan 10,20
interface range p1 - 2
 switchport mode access
 switchport access vlan 10
interface p3
 switchport access vlan 20
interface p4
 switchport mode trunk
 switchport trunk allowed vlan 1,10,20,30
interface p5
 switchport mode trunk
 switchport trunk native vlan 20
 switchport trunk allowed vlan 10,20
";

fn access_and_trunk(plane: Plane) {
    let bed = Bed::new(plane, 5, CAMPUS);
    let f = frame(BROADCAST, mac(1));
    bed.expect(1, &f, &[(2, f.clone()), (4, f.vlan(10)), (5, f.vlan(10))]);
    let f = frame(BROADCAST, mac(3));
    bed.expect(3, &f, &[(4, f.vlan(20)), (5, f.clone())]);
    let f = frame(BROADCAST, mac(4));
    bed.expect(4, &f.vlan(10), &[(1, f.clone()), (2, f.clone()), (5, f.vlan(10))]);
    // An access port accepts the tag of its own VLAN.
    let f = frame(BROADCAST, mac(1));
    bed.expect(1, &f.vlan(10), &[(2, f.clone()), (4, f.vlan(10)), (5, f.vlan(10))]);
    // The addresses are known by now, so each frame goes to one port; the same address in another VLAN is
    // another station.
    let f = frame(mac(1), mac(4));
    bed.expect(4, &f.vlan(10), &[(1, f.clone())]);
    let f = frame(mac(4), mac(2));
    bed.expect(2, &f, &[(4, f.vlan(10))]);
    let f = frame(mac(1), mac(3));
    bed.expect(3, &f, &[(4, f.vlan(20)), (5, f.clone())]);
    bed.learned(mac(1), 10, Some("p1"));
    bed.learned(mac(1), 20, None);
    bed.learned(mac(4), 10, Some("p4"));
    // Frames of VLAN 1 have no egress port.
    bed.expect_drop(4, &frame(BROADCAST, mac(4)), "no_egress");
}

/// `switchport voice vlan`: the access port is a tagged member of the voice VLAN, too.
fn a_telephone_at_an_access_port(plane: Plane) {
    let bed = Bed::new(plane, 5, CAMPUS);
    bed.configure("interface p1\nswitchport voice vlan 20");
    let f = frame(BROADCAST, mac(1));
    bed.expect(1, &f, &[(2, f.clone()), (4, f.vlan(10)), (5, f.vlan(10))]);
    let f = frame(BROADCAST, mac(7));
    bed.expect(1, &f.vlan(20), &[(3, f.clone()), (4, f.vlan(20)), (5, f.clone())]);
    bed.learned(mac(7), 20, Some("p1"));
    let f = frame(mac(7), mac(3));
    bed.expect(3, &f, &[(1, f.vlan(20))]);
    bed.expect_drop(1, &frame(BROADCAST, mac(8)).vlan(1), "tagged_on_access");
    // With `dot1p` the telephone sends in the access VLAN, with priority tags or without a tag.
    bed.configure("interface p1\nswitchport voice vlan dot1p");
    bed.expect_drop(1, &frame(BROADCAST, mac(7)).vlan(20), "tagged_on_access");
    let f = frame(mac(1), mac(2));
    bed.expect(2, &f, &[(1, f.clone())]);
}

fn refused_frames_teach_nothing(plane: Plane) {
    let bed = Bed::new(plane, 5, CAMPUS);
    let stranger = mac(99);
    let f = frame(BROADCAST, stranger);
    for (from, sent, reason) in [
        (1, f.vlan(20), "tagged_on_access"),
        (1, f.vlan(1), "tagged_on_access"),
        (1, f.vlan(4095), "vlan_invalid"),
        (4, f.vlan(4095), "vlan_invalid"),
        (4, f.vlan(30), "vlan_inactive"),
        (4, f.vlan(40), "vlan_not_allowed"),
        (5, f.vlan(1), "vlan_not_allowed"),
        (5, f.vlan(30), "vlan_not_allowed"),
        (1, frame(BROADCAST, [0; 6]), "source_zero"),
        (1, frame(BROADCAST, [1, 0, 0x5e, 0, 0, 1]), "source_group"),
        (1, frame(mac(2), BROADCAST), "source_group"),
    ] {
        bed.expect_drop(from, &sent, reason);
    }
    let table = bed.show("show mac address-table");
    assert_eq!(table["total"], 0, "{table}");
    // Suspended and shut down VLANs forward nothing; when they are enabled again, they forward.
    for (off, on) in [("state suspend", "state active"), ("shutdown", "no shutdown")] {
        bed.configure(&format!("vlan 20\n{off}"));
        bed.expect_drop(3, &f, "vlan_inactive");
        bed.configure(&format!("vlan 20\n{on}"));
        bed.expect(3, &f, &[(4, f.vlan(20)), (5, f.clone())]);
    }
    bed.configure("no vlan 20");
    bed.expect_drop(3, &f, "vlan_inactive");
    bed.learned(stranger, 20, None);
}

fn priority_is_kept(plane: Plane) {
    let bed = Bed::new(plane, 5, CAMPUS);
    for pcp in [1, 7] {
        let f = frame(BROADCAST, mac(4));
        let tagged = f.tag(DOT1Q, pcp, 10);
        bed.expect(4, &tagged, &[(1, f.clone()), (2, f.clone()), (5, tagged.clone())]);
        // A priority tag gets the VLAN's number where the frame leaves tagged, and is removed where it leaves
        // untagged.
        let f = frame(BROADCAST, mac(1));
        let tagged = f.tag(DOT1Q, pcp, 10);
        bed.expect(1, &f.tag(DOT1Q, pcp, 0), &[(2, f.clone()), (4, tagged.clone()), (5, tagged)]);
        let f = frame(BROADCAST, mac(5));
        bed.expect(5, &f.tag(DOT1Q, pcp, 0), &[(3, f.clone()), (4, f.tag(DOT1Q, pcp, 20))]);
    }
    // Drop eligibility (0x1000 of the TCI) is kept as well.
    let f = frame(BROADCAST, mac(4));
    let eligible = f.tag(DOT1Q, 3, 0x1000 | 10);
    bed.expect(4, &eligible, &[(1, f.clone()), (2, f.clone()), (5, eligible.clone())]);
}

fn native_vlan(plane: Plane) {
    let bed = Bed::new(plane, 5, CAMPUS);
    let f = frame(BROADCAST, mac(5));
    bed.expect(5, &f, &[(3, f.clone()), (4, f.vlan(20))]);
    bed.expect(5, &f.vlan(20), &[(3, f.clone()), (4, f.vlan(20))]);
    bed.configure("vlan dot1q tag native");
    bed.expect_drop(5, &frame(BROADCAST, mac(5)), "untagged_not_allowed");
    let f = frame(BROADCAST, mac(3));
    bed.expect(3, &f, &[(4, f.vlan(20)), (5, f.vlan(20))]);
    bed.configure("no vlan dot1q tag native\ninterface p5\nswitchport trunk native vlan 1");
    // VLAN 1 is not allowed on this port.
    bed.expect_drop(5, &frame(BROADCAST, mac(5)), "untagged_not_allowed");
    bed.expect(3, &f, &[(4, f.vlan(20)), (5, f.vlan(20))]);
}

fn changes_take_effect_at_once(plane: Plane) {
    let bed = Bed::new(plane, 5, CAMPUS);
    let f = frame(BROADCAST, mac(1));
    bed.configure("interface p4\nswitchport trunk allowed vlan remove 10");
    bed.expect(1, &f, &[(2, f.clone()), (5, f.vlan(10))]);
    bed.configure("interface p4\nswitchport trunk allowed vlan add 10\ninterface p5\nshutdown");
    bed.expect(1, &f, &[(2, f.clone()), (4, f.vlan(10))]);
    bed.learned(mac(1), 10, Some("p1"));
    // When a port leaves a VLAN, the addresses learned there are removed.
    bed.configure("interface p1\nswitchport access vlan 20");
    bed.learned(mac(1), 10, None);
    bed.expect(1, &f, &[(3, f.clone()), (4, f.vlan(20))]);
    bed.configure("no interface p1");
    let f = frame(BROADCAST, mac(3));
    bed.expect(3, &f, &[(4, f.vlan(20))]);
    bed.learned(mac(1), 20, None);
    // A refused line changes nothing.
    let printed = bed.try_configure("interface p4\nswitchport access vlan 4095").unwrap_err();
    assert!(printed.starts_with('%'), "{printed}");
    bed.expect(3, &f, &[(4, f.vlan(20))]);
}

fn all_vlans_on_a_trunk(plane: Plane) {
    let bed = Bed::new(plane, 2, "interface range p1 - 2\n switchport mode trunk\n");
    let links = bed.net.links();
    bed.configure("vlan 2-4094");
    assert_eq!(bed.net.links(), links, "no netdev more");
    let vlans = bed.show("show vlan");
    assert_eq!(vlans["vlans"].as_array().map(Vec::len), Some(4094));
    let sent: Vec<Frame> = (1..=4094).map(|vid| frame(BROADCAST, mac(1)).vlan(vid)).collect();
    // Send no more frames at once than a socket can hold while the daemon waits to be scheduled.
    for (at, sent) in sent.chunks(256).enumerate() {
        let got = bed.exchange(1, sent);
        let mut wanted = sent.to_vec();
        if at == 0 {
            // VLAN 1 is the native VLAN, whose frame arrives untagged.
            wanted[0] = wanted[0].untagged();
        }
        assert!(got[1] == wanted, "{} frames of {} arrived", got[1].len(), wanted.len());
        assert_eq!(got[0], []);
    }
    assert_eq!(bed.show("show mac address-table count")["dynamic"], 4094);
    // The opposite direction, to a station that is known in each VLAN.
    let sent: Vec<Frame> = (2..=4094).step_by(31).map(|vid| frame(mac(1), mac(2)).vlan(vid)).collect();
    assert!(bed.exchange(2, &sent)[0] == sent);
}

/// Tunnels of two customers, a trunk with customer tags, and a trunk with service tags.
const TUNNELS: &str = "\
vlan 100,200
interface range p1 - 2
 switchport access vlan 100
 switchport mode dot1q-tunnel
interface p3
 switchport access vlan 200
 switchport mode dot1q-tunnel
interface p4
 switchport mode trunk
 switchport trunk allowed vlan 100,200
interface p5
 switchport mode trunk
 switchport trunk allowed vlan 100,200
 dot1q tunneling ethertype 0x88a8
";

fn customer_tags_through_a_tunnel(plane: Plane) {
    let bed = Bed::new(plane, 5, TUNNELS);
    let plain = frame(BROADCAST, mac(1));
    for customer in
        [plain.clone(), plain.vlan(10), plain.tag(DOT1Q, 5, 4095), plain.vlan(0), plain.vlan(7).vlan(8)]
    {
        let (inside, service) = (customer.vlan(100), customer.tag(DOT1AD, 0, 100));
        bed.expect(1, &customer, &[(2, customer.clone()), (4, inside.clone()), (5, service.clone())]);
        let (one, two) = ((1, customer.clone()), (2, customer.clone()));
        bed.expect(4, &inside, &[one.clone(), two.clone(), (5, service.clone())]);
        bed.expect(5, &service, &[one, two, (4, inside)]);
    }
    // Stations are learned across the tunnel.
    let there = frame(mac(4), mac(1)).vlan(10);
    let back = frame(mac(1), mac(4)).vlan(10);
    bed.exchange(4, &[frame(BROADCAST, mac(4)).vlan(100)]);
    bed.expect(1, &there, &[(4, there.vlan(100))]);
    bed.expect(4, &back.vlan(100), &[(1, back.clone())]);
    // The other customer's tunnel is another VLAN.
    bed.expect(3, &back, &[(4, back.vlan(200)), (5, back.tag(DOT1AD, 0, 200))]);
}

fn service_tags(plane: Plane) {
    let bed = Bed::new(plane, 3, "interface range p1 - 3\n switchport\n");
    // To an access port a service tag is ordinary payload.
    let f = frame(BROADCAST, mac(1)).tag(DOT1AD, 3, 20);
    bed.expect_at(1, &f, &[2, 3]);
    let f = frame(BROADCAST, mac(1)).ethertype(0x9100);
    bed.expect_at(1, &f, &[2, 3]);
    bed.configure("vlan 20\ninterface range p1 - 2\nswitchport mode trunk\ninterface p1\ndot1q tunneling ethertype 0x88a8");
    bed.configure("interface p3\nswitchport access vlan 20");
    let other = if plane == Plane::soft { 0x9100 } else { DOT1Q };
    match bed.try_configure("interface p2\ndot1q tunneling ethertype 0x9100") {
        Ok(_) => assert_eq!(plane, Plane::soft),
        // The kernel cannot make such tags, and the plane reports that.
        Err(printed) => {
            assert!(plane == Plane::ebpf && printed.contains("0x9100") && printed.contains("p2"), "{printed}")
        }
    }
    let f = frame(BROADCAST, mac(1));
    bed.expect(1, &f.tag(DOT1AD, 3, 20), &[(2, f.tag(other, 3, 20)), (3, f.clone())]);
    bed.expect(2, &f.tag(other, 3, 20), &[(1, f.tag(DOT1AD, 3, 20)), (3, f.clone())]);
    bed.expect(3, &f, &[(1, f.tag(DOT1AD, 0, 20)), (2, f.tag(other, 0, 20))]);
}

/// A flood to eight ports of four forms: each gets exactly one copy, in its own form, whatever the ingress
/// port.
fn one_flood_many_forms(plane: Plane) {
    let config = "\
vlan 10,11
interface range p1 - 2
 switchport access vlan 10
interface range p3 - 4
 switchport mode trunk
interface p5
 switchport mode trunk
 dot1q tunneling ethertype 0x88a8
interface p6
 switchport access vlan 10
 switchport mode dot1q-tunnel
interface p7
 switchport mode trunk
 switchport trunk native vlan 10
interface p8
 switchport access vlan 11
interface p9
 switchport mode trunk
 switchport trunk allowed vlan 11
";
    let bed = Bed::new(plane, 9, config);
    let f = frame(BROADCAST, mac(77));
    let forms = |pcp| {
        let (plain, tagged, service) = (f.clone(), f.tag(DOT1Q, pcp, 10), f.tag(DOT1AD, pcp, 10));
        [plain.clone(), plain.clone(), tagged.clone(), tagged, service, plain.clone(), plain]
    };
    for (from, pcp) in [(1, 0), (3, 0), (3, 6), (5, 0), (5, 6), (6, 0), (7, 0)] {
        let forms = forms(pcp);
        let wanted: Vec<(usize, Frame)> =
            (1..=7).filter(|at| *at != from).map(|at| (at, forms[at - 1].clone())).collect();
        bed.expect(from, &forms[from - 1], &wanted);
    }
}
