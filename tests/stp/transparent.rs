//! BPDUs that this switch does not process: those of trees that it does not have, and those of a customer's
//! network.

use crate::fixture::{Beds, arrives, bare, becomes, start, tree, wire};
use crate::guards::bpdu;
use crate::harness::{Bed, Net, Plane, frame, scenarios, wait_for};
use serde_json::Value;
use std::process::Command;

scenarios! {
    pvst_bpdus_cross_a_vlan_without_a_tree: ebpf soft;
    a_customers_bpdus_stay_out_of_the_tree: ebpf soft;
    a_customers_bridges_see_each_other_through_the_tunnel: ebpf soft;
    portfast_disable_forbids_an_edge_port: ebpf;
}

/// The switches at both ends receive each other's BPDUs of VLAN 20 through the middle switch, which has no tree
/// for it.
fn pvst_bpdus_cross_a_vlan_without_a_tree(plane: Plane) {
    let beds = Beds((0..3).map(|_| bare(plane, 1)).collect());
    wire((&beds[0], "right"), (&beds[1], "left"));
    wire((&beds[1], "right"), (&beds[2], "left"));
    let lines = "vlan 20\nspanning-tree mode rapid-pvst\nspanning-tree vlan 20 hello-time 1";
    start(&beds[0], &format!("{lines}\nspanning-tree vlan 20 priority 4096"), &["right"]);
    start(&beds[1], &format!("{lines}\nno spanning-tree vlan 20"), &["left", "right"]);
    start(&beds[2], lines, &["left"]);
    becomes(&beds[2], 20, "left", "root", "forwarding");
    assert_eq!(tree(&beds[2], 20)["root_id"], tree(&beds[0], 20)["bridge_id"]);
    assert!(tree(&beds[1], 20).is_null(), "the switch in the middle has no tree there");
}

/// A superior bridge beyond a tunnel port does not affect the tree, and its BPDUs are counted as a
/// customer's.
fn a_customers_bpdus_stay_out_of_the_tree(plane: Plane) {
    let bed = bare(plane, 2);
    start(&bed, "spanning-tree mode rstp", &[]);
    bed.configure("vlan 30\ninterface p1\nswitchport access vlan 30\nswitchport mode dot1q-tunnel");
    becomes(&bed, 0, "p1", "designated", "forwarding");
    let before = bed.drops(1, "tunnel_protocol");
    for _ in 0..3 {
        bed.host(1).send(&bpdu(0));
    }
    wait_for("the BPDUs to be dropped", || (bed.drops(1, "tunnel_protocol") == before + 3).then_some(()));
    assert!(tree(&bed, 0)["root_port"].is_null());
    becomes(&bed, 0, "p1", "designated", "forwarding");
}

/// Without `portfast disable` the port would be an edge port after three seconds of silence, and a customer's BPDU
/// would not prevent that; the other port shows that this time is over.
fn portfast_disable_forbids_an_edge_port(plane: Plane) {
    let bed = bare(plane, 2);
    start(&bed, "spanning-tree mode rstp", &[]);
    bed.configure("interface p1\nspanning-tree portfast disable\nshutdown\nno shutdown");
    bed.configure("interface p2\nno spanning-tree portfast\nshutdown\nno shutdown");
    becomes(&bed, 0, "p2", "designated", "forwarding");
    becomes(&bed, 0, "p1", "designated", "discarding");
}

/// True when the kernel's bridge has received the BPDUs of a better root.
fn kernel_has_root_port(peer: &Net) -> bool {
    let output = peer.output(Command::new("ip").args(["-j", "-d", "link", "show", "br0"]));
    let view: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    view[0]["linkinfo"]["info_data"]["root_port"].as_u64().expect("a bridge") != 0
}

/// Two sites of a customer with bridges of the kernel, and two provider switches between them that have a tree of their
/// own.
fn a_customers_bridges_see_each_other_through_the_tunnel(plane: Plane) {
    let (sites, beds) = ([Net::new(false), Net::new(false)], Beds((0..2).map(|_| bare(plane, 1)).collect()));
    wire((&beds[0], "middle"), (&beds[1], "middle"));
    for (n, (site, bed)) in sites.iter().zip(beds.iter()).enumerate() {
        bed.net.ip(&format!("link add w1 type veth peer name k1 netns {}", site.path()));
        site.ip(&format!(
            "link add br0 type bridge stp_state 1 priority {} forward_delay 200 hello_time 100 max_age 600\n\
             link set k1 up\nlink set k1 master br0\nlink set br0 up",
            4096 * (n + 1)
        ));
        start(bed, "spanning-tree mode rstp\nvlan 30\nvlan 31", &["middle"]);
        bed.configure(
            "interface w1\nswitchport access vlan 30\nswitchport mode dot1q-tunnel\n\
             interface p1\nswitchport access vlan 31\nswitchport mode dot1q-tunnel",
        );
    }
    let rooted = || (kernel_has_root_port(&sites[0]), kernel_has_root_port(&sites[1]));
    let dropped =
        |bed: &Bed| bed.ask("show l2protocol-tunnel interface w1")["interfaces"][0]["dropped"].as_u64();
    wait_for("BPDUs of both sites to be dropped", || {
        beds.iter().all(|bed| dropped(bed) > Some(1)).then_some(())
    });
    assert_eq!(rooted(), (false, false), "each site has a root of its own");

    beds.iter().for_each(|bed| bed.configure("interface w1\nl2protocol-tunnel stp"));
    wait_for("both sites to have one root", || (rooted() == (false, true)).then_some(()));
    for bed in beds.iter() {
        assert_eq!(tree(bed, 0)["root_id"], tree(&beds[0], 0)["root_id"], "the provider's tree is its own");
        becomes(bed, 0, "w1", "designated", "forwarding");
    }
    customers_discovery(&beds);

    beds[1].configure("interface w1\nno l2protocol-tunnel stp");
    wait_for("the sites to lose sight of each other", || (rooted() == (false, false)).then_some(()));
}

/// Sends CDP, LLDP and a PVST+ BPDU in a VLAN of the customer from one site's host to the other's.
fn customers_discovery(beds: &[Bed]) {
    let payload = |dst: [u8; 6], code: u16, bytes: &[u8]| {
        let mut frame = frame(dst, beds[0].host(1).mac).ethertype(code);
        frame.0[14..14 + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let cdp = payload([1, 0, 0xc, 0xcc, 0xcc, 0xcc], 40, &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0, 2, 180]);
    let lldp = payload([1, 0x80, 0xc2, 0, 0, 0x0e], 0x88cc, &[2, 7, 4, 2, 0, 0, 0, 0, 1]);
    let pvst =
        payload([1, 0, 0xc, 0xcc, 0xcc, 0xcd], 40, &[0xaa, 0xaa, 3, 0, 0, 0x0c, 1, 0x0b]).tag(0x8100, 7, 9);
    let lines = ["l2protocol-tunnel cdp", "l2protocol-tunnel lldp", "l2protocol-tunnel stp"];
    for (line, sent) in lines.iter().zip([&cdp, &lldp, &pvst]) {
        let before = beds[0].drops(1, "tunnel_protocol");
        beds[0].host(1).send(sent);
        wait_for("the frame to be dropped", || {
            (beds[0].drops(1, "tunnel_protocol") == before + 1).then_some(())
        });
        beds.iter().for_each(|bed| bed.configure(&format!("interface p1\n{line}")));
        beds[0].host(1).send(sent);
        arrives(&beds[1], sent);
    }
}
