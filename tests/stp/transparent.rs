//! BPDUs that are not this switch's: of trees it has no part in, and of a customer's network.

use crate::fixture::{Beds, bare, becomes, start, tree, wire};
use crate::guards::bpdu;
use crate::harness::{Plane, scenarios, wait_for};

scenarios! {
    pvst_bpdus_cross_a_vlan_without_a_tree: ebpf soft;
    a_customers_bpdus_stay_out_of_the_tree: ebpf soft;
    portfast_disable_forbids_an_edge_port: ebpf;
}

/// The switches at both ends see each other's tree of VLAN 20 through the one in the middle, which has none there.
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

/// A better bridge beyond a tunnel port changes nothing, and its BPDUs are counted as what they are.
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

/// Without the word the port would be an edge port after three seconds of silence, which a BPDU heard meanwhile does not
/// change: the other port shows when they are over.
fn portfast_disable_forbids_an_edge_port(plane: Plane) {
    let bed = bare(plane, 2);
    start(&bed, "spanning-tree mode rstp", &[]);
    bed.configure("interface p1\nspanning-tree portfast disable\nshutdown\nno shutdown");
    bed.configure("interface p2\nno spanning-tree portfast\nshutdown\nno shutdown");
    becomes(&bed, 0, "p2", "designated", "forwarding");
    becomes(&bed, 0, "p1", "designated", "discarding");
}
