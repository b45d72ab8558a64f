//! The ports that a flood reaches, and frames that are never relayed: protected ports, blocked floods, reserved
//! addresses, the MTU.

use crate::harness::frame::{DOT1AD, reserved};
use crate::harness::{BROADCAST, Bed, Plane, frame, mac, scenarios, wait_for};
use crate::hooks::{dropped_at_xdp, on_xdp};

scenarios! {
    protected_ports: ebpf soft;
    blocked_floods: ebpf soft;
    storm_control: ebpf soft;
    storm_control_at_xdp: ebpf;
    storm_levels: ebpf soft;
    storm_actions: ebpf soft;
    reserved_addresses: ebpf soft;
    lengths: ebpf soft;
    longer_than_the_mtu: ebpf soft;
}

const FOUR: &str = "interface range p1 - 4\n switchport\n";
const GROUP: [u8; 6] = [0x01, 0, 0x5e, 1, 2, 3];

fn protected_ports(plane: Plane) {
    let bed = Bed::new(plane, 4, &format!("{FOUR}interface range p1 - 2\n switchport protected\n"));
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[3, 4]);
    bed.expect_at(2, &frame(GROUP, mac(2)), &[3, 4]);
    bed.expect_at(1, &frame(mac(99), mac(1)), &[3, 4]);
    bed.expect_at(3, &frame(BROADCAST, mac(3)), &[1, 2, 4]);
    // Both addresses are known.
    bed.expect_drop(1, &frame(mac(2), mac(1)), "isolated");
    bed.expect_at(1, &frame(mac(3), mac(1)), &[3]);
    bed.expect_at(3, &frame(mac(1), mac(3)), &[1]);
    bed.configure("interface p1\nno switchport protected");
    bed.expect_at(1, &frame(mac(2), mac(1)), &[2]);
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3, 4]);
}

fn blocked_floods(plane: Plane) {
    let config =
        format!("{FOUR}interface p2\n switchport block unicast\ninterface p3\n switchport block multicast\n");
    let bed = Bed::new(plane, 4, &config);
    bed.expect_at(1, &frame(mac(99), mac(1)), &[3, 4]);
    bed.expect_at(1, &frame(GROUP, mac(1)), &[2, 4]);
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3, 4]);
    bed.expect_at(2, &frame(mac(99), mac(2)), &[1, 3, 4]);
    // A frame to a known station arrives.
    bed.expect_at(1, &frame(mac(2), mac(1)), &[2]);
}

fn storm_control(plane: Plane) {
    let config = format!(
        "{FOUR}interface p1\n storm-control broadcast level pps 0\n storm-control unicast level pps 0\n"
    );
    let bed = Bed::new(plane, 4, &config);
    bed.expect_drop(1, &frame(BROADCAST, mac(1)), "storm");
    bed.expect_drop(1, &frame(mac(2), mac(1)), "storm");
    bed.learned(mac(1), 1, None);
    bed.expect_at(1, &frame(GROUP, mac(1)), &[2, 3, 4]);
    // Other ports have no rate limit, and frames to a known station are not limited.
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1, 3, 4]);
    bed.expect_at(1, &frame(mac(2), mac(1)), &[2]);
    let shown = bed.show("show storm-control");
    let row = |at: usize| &shown["interfaces"][at];
    assert_eq!(
        (row(0)["type"].as_str(), row(0)["dropped"].as_u64()),
        (Some("broadcast"), Some(2)),
        "{shown}"
    );
    assert_eq!(
        (row(1)["type"].as_str(), row(1)["level_pps"].as_u64()),
        (Some("unicast"), Some(0)),
        "{shown}"
    );
    bed.configure("interface p1\nno storm-control broadcast level\nstorm-control unicast level pps 1000");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3, 4]);
    bed.expect_at(1, &frame(mac(99), mac(1)), &[2, 3, 4]);
}

/// XDP drops frames over the rate, and TC counts the others.
fn storm_control_at_xdp(plane: Plane) {
    let config = "interface range p1 - 2\n switchport\n hook xdp\ninterface p1\n storm-control broadcast level pps 0\n";
    let bed = on_xdp(plane, 2, config);
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1]);
    for _ in 0..5 {
        bed.expect_drop(1, &frame(BROADCAST, mac(1)), "storm");
    }
    assert_eq!(dropped_at_xdp(&bed, "p1"), 5, "XDP has dropped them");
    bed.learned(mac(1), 1, None);
    bed.expect_at(1, &frame(mac(2), mac(1)), &[2]);
    bed.configure("interface p1\nstorm-control broadcast level pps 1000");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
}

/// Levels in bits and in percent.
fn storm_levels(plane: Plane) {
    let bed = Bed::new(plane, 2, "interface range p1 - 2\n switchport\n");
    // The first frame leaves a debt that the rate of 1 bit/s does not pay during the test.
    bed.configure("interface p1\nstorm-control broadcast level bps 1");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    bed.expect_drop(1, &frame(BROADCAST, mac(1)), "storm");
    bed.configure("interface p1\nstorm-control broadcast level 0.00");
    bed.expect_drop(1, &frame(BROADCAST, mac(1)), "storm");
    bed.configure("interface p1\nstorm-control broadcast level 12.5");
    for _ in 0..20 {
        bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    }
    let shown = bed.show("show storm-control");
    assert_eq!(shown["interfaces"][0]["level_percent"].as_f64(), Some(12.5), "{shown}");
}

fn storm_actions(plane: Plane) {
    let config = "errdisable recovery interval 30\ninterface range p1 - 2\n switchport\n\
        interface p1\n storm-control broadcast level pps 0\n storm-control action trap\n";
    let bed = Bed::new(plane, 2, config);
    bed.expect_drop(1, &frame(BROADCAST, mac(1)), "storm");
    let logged = |text: &str| bed.exec(&["show logging"]).contains(text).then_some(());
    wait_for("the message about the storm", || logged("%STORM_CONTROL-3-FILTERED"));
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1]);
    bed.configure("interface p1\nstorm-control action shutdown");
    bed.expect_drop(1, &frame(BROADCAST, mac(1)), "storm");
    let down = || {
        let shown = bed.show("show errdisable recovery");
        let row = &shown["interfaces"][0];
        row["interface"] == "p1" && row["cause"] == "storm-control" && row["time_left_s"].is_null()
    };
    wait_for("the port to be shut down", || down().then_some(()));
    assert_eq!(logged("%PM-4-ERR_DISABLE"), Some(()));
    let status = bed.show("show interfaces status err-disabled");
    assert_eq!(status["interfaces"][0]["interface"], "p1", "{status}");
    bed.configure("interface p1\nno storm-control broadcast level\nshutdown\nno shutdown");
    assert!(bed.show("show errdisable recovery")["interfaces"][0].is_null());
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
}

fn reserved_addresses(plane: Plane) {
    let bed = Bed::new(
        plane,
        3,
        "vlan 10\ninterface p1\n switchport\ninterface p2\n switchport mode trunk\ninterface p3\n switchport\n",
    );
    let reason = |x| if x == 1 { "pause" } else { "reserved_address" };
    // Spanning tree is off, so BPDUs are relayed. No other reserved address is, tagged or not.
    bed.expect_at(1, &frame(reserved(0), mac(1)), &[2, 3]);
    for x in 1..16 {
        bed.expect_drop(1, &frame(reserved(x), mac(1)), reason(x));
        bed.expect_drop(2, &frame(reserved(x), mac(2)).vlan(10), reason(x));
    }
    bed.expect_at(1, &frame([1, 0x80, 0xc2, 0, 0, 0x10], mac(1)), &[2, 3]);
    bed.expect_at(1, &frame([1, 0x80, 0xc2, 0, 0, 0x21], mac(1)), &[2, 3]);
    // PVST+ frames are ordinary multicast.
    bed.expect_at(1, &frame([1, 0, 0x0c, 0xcc, 0xcc, 0xcd], mac(1)), &[2, 3]);
    bed.configure("reserved-address 14 forward\nreserved-address 0 drop");
    bed.expect_at(1, &frame(reserved(14), mac(1)), &[2, 3]);
    bed.expect_drop(1, &frame(reserved(0), mac(1)), "reserved_address");
    let printed = bed.try_configure("reserved-address 1 forward").unwrap_err();
    assert!(printed.contains("PAUSE"), "{printed}");
    bed.expect_drop(1, &frame(reserved(1), mac(1)), "pause");
}

/// Frames of every length from a bare header to the MTU plus a tag.
fn lengths(plane: Plane) {
    let config = "vlan 10,20\ninterface range p1 - 2\n switchport access vlan 10\ninterface p3\n switchport mode trunk\n \
        switchport trunk allowed vlan 10\ninterface range p4 - 5\n switchport access vlan 20\n";
    let bed = Bed::new(plane, 5, config);
    for len in [14, 15, 16, 60, 1514] {
        bed.expect_at(4, &frame(BROADCAST, mac(4)).len(len), &[5]);
    }
    // Linux accepts no tagged frame with less than two bytes behind its tag's EtherType.
    for len in [16, 17, 18, 46, 59, 60, 61, 64, 256, 1500, 1514] {
        let f = frame(BROADCAST, mac(1)).len(len);
        bed.expect(1, &f, &[(2, f.clone()), (3, f.vlan(10))]);
        let f = frame(BROADCAST, mac(3)).len(len);
        bed.expect(3, &f.vlan(10), &[(1, f.clone()), (2, f.clone())]);
    }
}

fn longer_than_the_mtu(plane: Plane) {
    let config = "vlan 10\ninterface range p1 - 3\n switchport mode trunk\n";
    let bed = Bed::with_mtu(plane, 3, 9000, config);
    // The MTU limits the payload: the header, and one tag, are not counted.
    let full = frame(BROADCAST, mac(1)).len(9014);
    bed.expect_at(1, &full, &[2, 3]);
    bed.configure("interface p2\nmtu 1500");
    bed.expect_at(1, &full, &[3]);
    assert_eq!(bed.drops(2, "tx_dropped"), 1);
    // The soft plane sends through a packet socket, which has room for a tag only if it is an 802.1Q tag: packet(7).
    let most = if plane == Plane::soft { 1514 } else { 1518 };
    bed.expect_at(1, &frame(BROADCAST, mac(1)).len(most), &[2, 3]);
    bed.expect_at(1, &frame(BROADCAST, mac(1)).len(1519), &[3]);
    bed.expect_at(1, &frame(BROADCAST, mac(1)).len(most).vlan(10), &[2, 3]);
    bed.expect_at(1, &frame(BROADCAST, mac(1)).tag(DOT1AD, 0, 5).len(most), &[2, 3]);
    // A frame to a known destination at a port with a smaller MTU.
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1, 3]);
    bed.expect_at(1, &frame(mac(2), mac(1)).len(most), &[2]);
    bed.expect_drop(1, &frame(mac(2), mac(1)).len(1519), "mtu_exceeded");
    bed.configure("interface p3\nmtu 1500");
    bed.expect_drop(1, &full, "mtu_exceeded");
    bed.configure("interface range p2 - 3\nno mtu");
    bed.expect_at(1, &full, &[2, 3]);
}
