//! Scenarios with more than one tree: MSTP regions, and a tree for each VLAN.

use crate::sim::check;
use lanyard_stp::bpdu::MstConfigId;
use lanyard_types::VlanSet;

const REGION: &str = "mode mst
         vlans 1,10,20
         region east 1: 1=10 2=20
         bridge A prio 0 trunk: a b c d
         bridge B prio 4096 trunk: a b c d
         bridge C prio 8192 trunk: a b c d
         link A.a B.a
         link B.b C.a
         link C.b A.b
";

#[test]
fn instances_balance_load() {
    check(
        &format!(
            "{REGION}
         set B tree 1 0
         set A tree 1 61440
         set C tree 2 0
         set A tree 2 61440
         settle within 30s
         expect tree
         expect A is root
         expect vlan 10 B is root
         expect vlan 20 C is root
         expect C.a alternate discarding
         expect vlan 10 C.a root forwarding
         expect vlan 10 A.b designated discarding
         expect vlan 20 A.b root forwarding
         cut B.b
         run 1s
         expect tree
         expect vlan 10 C.b root forwarding
         set C.b tree 1 cost 77
         run 100ms
         expect vlan 10 C cost 20077"
        )
        .replace("expect vlan 10 A.b designated discarding", "expect vlan 10 A.b alternate discarding"),
    );
}

#[test]
fn regions_meet_at_boundaries_and_master_ports() {
    check(
        &format!(
            "{REGION}
         region west 1: 1=10 2=20
         bridge W prio 12288 trunk: a b c d
         bridge X prio 16384 trunk: a b c d
         link W.a X.a
         link A.c W.c
         link C.c X.c
         settle within 60s
         expect tree
         expect A is root
         expect W.c root forwarding boundary       # the region's way to the CIST root
         expect vlan 10 W.c master forwarding
         expect vlan 20 W.c master forwarding
         expect X.c alternate discarding
         expect vlan 10 X.c alternate discarding
         expect X.a root forwarding
         expect X cost 200000                      # the external cost does not change within the region
         cut A.c
         run 2s
         expect X.c root forwarding
         expect vlan 10 X.c master forwarding
         expect tree"
        )
        .replace("200000                      ", "20000                       "),
    );
}

#[test]
fn mst_rstp_and_stp_mixed() {
    check(
        "mode mst
         vlans 1,10
         region east 1: 1=10
         bridge A prio 4096 trunk: a b c
         bridge B prio 8192 trunk: a b c
         mode rstp
         bridge R prio 0 trunk: a b c
         mode stp
         bridge S trunk: a b c
         link A.a B.a
         link A.b R.a
         link B.b S.a
         link R.b S.b
         settle within 120s
         expect R is root
         expect tree
         expect A.b root forwarding boundary
         expect vlan 10 A.b master forwarding
         expect B.b stp
         cut A.b
         settle within 120s
         expect tree",
    );
}

#[test]
fn master_port_failover_and_back() {
    check(&format!(
        "{REGION}
         mode rstp
         bridge R trunk: a b
         link A.c R.a
         link C.c R.b
         settle within 60s
         expect tree
         set R prio 0
         set A prio 4096
         set C prio 4096
         settle within 60s
         expect R is root
         expect vlan 10 A.c master
         expect tree
         cut A.c
         settle within 60s
         expect vlan 20 C.c master forwarding
         expect tree
         restore A.c
         settle within 60s
         expect tree"
    ));
}

#[test]
fn sixty_four_instances() {
    let map: String = (1..=63).map(|n| format!(" {n}={}", n + 100)).collect();
    let mut text = format!("mode mst\nvlans 1,101-163\nregion big 7:{map}\n");
    (0..4).for_each(|n| text += &format!("bridge B{n} trunk: a b c d\n"));
    for link in ["B0.a B1.a", "B1.b B2.a", "B2.b B3.a", "B3.b B0.b", "B0.c B2.c", "B1.c B3.c"] {
        text += &format!("link {link}\n");
    }
    for n in 1..=63 {
        text += &format!("set B{} tree {n} 0\n", n % 4);
    }
    text += "settle within 60s\nexpect tree\n";
    for n in 1..=63 {
        text += &format!("expect vlan {} B{} is root\n", n + 100, n % 4);
    }
    text += "cut B0.a\nrun 2s\nexpect tree\n";
    let sim = check(&text);
    assert_eq!(sim.nodes[0].bridge.view(sim.now).len(), 64);
}

#[test]
fn vlans_have_their_own_trees() {
    for mode in ["rapid-pvst", "pvst"] {
        check(&format!(
            "mode {mode}
             vlans 1,10,20
             bridge A trunk: a b c
             bridge B trunk: a b c
             bridge C trunk: a b c
             set A tree 1 0
             set B tree 10 0
             set C tree 20 0
             link A.a B.a
             link B.b C.a
             link C.b A.b
             settle within 120s
             expect tree
             expect A is root
             expect vlan 10 B is root
             expect vlan 20 C is root
             set A.a native 10
             set B.a native 10
             run 60s
             expect vlan 10 A.a consistent
             expect tree
             cut A.a
             settle within 120s
             expect tree"
        ));
    }
}

#[test]
fn pvst_finds_native_vlan_mismatch() {
    check(
        "mode rapid-pvst
         vlans 1,10
         bridge A prio 0 trunk: a b
         bridge B trunk: a b
         set B.a native 10
         link A.a B.a
         run 10s
         expect vlan 10 B.a pvid-inconsistent discarding
         expect vlan 1 B.a pvid-inconsistent discarding
         expect event PvidMismatch
         set B.a native 1
         run 15s
         expect vlan 10 B.a consistent forwarding
         expect vlan 1 B.a consistent forwarding
         expect tree",
    );
}

#[test]
fn pvst_finds_a_trunk_on_an_access_port() {
    check(
        "mode rapid-pvst
         vlans 1
         bridge A prio 0 trunk: a b
         bridge B trunk: a b
         set B.a access 1
         link A.a B.a
         run 10s
         expect B.a type-inconsistent discarding
         expect event TypeMismatch
         set A.a access 1
         run 15s
         expect B.a root forwarding consistent",
    );
}

#[test]
fn rapid_pvst_and_rstp_share_the_tree_of_vlan_1() {
    check(
        "vlans 1
         mode rapid-pvst
         bridge A prio 4096 trunk: a b
         bridge B prio 8192 trunk: a b
         mode rstp
         bridge R prio 0 trunk: a b
         link A.a B.a
         link A.b R.a
         link B.b R.b
         settle within 30s
         expect R is root
         expect A.b root forwarding
         expect B.a alternate discarding
         expect tree",
    );
}

/// Two MST bridges, and a PVST+ bridge linked to both: the border of a region.
const BORDER: &str = "vlans 1,10,20
         mode mst
         region east 1: 1=10 2=20
         bridge A prio 8192 trunk: a b
         bridge B prio 12288 trunk: a b
         mode MODE
         bridge P prio 32768 trunk: a b c
         link A.a B.a
         link A.b P.a
         link B.b P.b
         settle within 120s
";

#[test]
fn the_trees_beyond_a_border_take_a_region_for_one_bridge() {
    for mode in ["rapid-pvst", "pvst"] {
        check(&format!(
            "{}
         expect tree
         expect A is root
         expect A.b designated forwarding boundary consistent
         expect vlan 10 A.b designated forwarding
         expect P.a root forwarding
         expect vlan 10 P.a root forwarding
         expect vlan 20 P.a root forwarding
         expect vlan 20 P.b alternate discarding     # in every VLAN the same port of the region
         expect vlan 20 P cost 20000
         cut A.b
         settle within 120s
         expect vlan 10 P.b root forwarding
         expect vlan 20 P.b root forwarding
         expect no event PvstSimFail
         expect tree",
            BORDER.replace("MODE", mode)
        ));
    }
}

#[test]
fn a_vlan_with_a_root_of_its_own_beyond_the_border_is_blocked() {
    check(&format!(
        "{}
         set P tree 10 0                             # VLAN 1's root is in the region, VLAN 10's is not
         run 3s
         expect event PvstSimFail
         expect A.b designated discarding pvst-inconsistent
         expect vlan 10 A.b discarding pvst-inconsistent
         expect B.b discarding pvst-inconsistent
         run 30s
         expect A.b discarding pvst-inconsistent     # for as long as it lasts
         forget events
         set P tree 10 32768
         run 15s
         expect event PvstSimOk
         settle within 60s
         expect vlan 10 A.b designated forwarding consistent
         expect tree",
        BORDER.replace("MODE", "rapid-pvst")
    ));
}

#[test]
fn the_root_beyond_the_border_must_be_the_root_of_every_vlan() {
    check(&format!(
        "{}
         set P tree 10 0
         set P tree 20 0
         set P tree 1 4096                           # VLAN 1 last, the others better
         settle within 60s
         expect P is root
         expect A.b root forwarding boundary consistent
         expect vlan 10 A.b master forwarding
         expect B.b alternate discarding
         expect tree
         forget events
         set P tree 20 32768
         run 3s
         expect event PvstSimFail
         expect A.b discarding pvst-inconsistent
         set P tree 20 0
         settle within 60s
         expect event PvstSimOk
         expect vlan 20 A.b master forwarding consistent
         expect tree",
        BORDER.replace("MODE", "rapid-pvst")
    ));
}

#[test]
fn a_border_checks_native_vlans_and_trunks() {
    check(
        "vlans 1,10
         mode mst
         bridge A prio 0 trunk: a b
         mode rapid-pvst
         bridge P trunk: a b
         set P.a native 10
         link A.a P.a
         run 10s
         expect event PvidMismatch
         expect A.a discarding pvid-inconsistent
         set P.a native 1
         settle within 60s
         expect A.a designated forwarding consistent
         set A.a access 1
         run 10s
         expect event TypeMismatch
         expect A.a discarding type-inconsistent",
    );
}

#[test]
fn configuration_digest() {
    let id = |map: &[(u16, &str)]| {
        let sets: Vec<(u16, VlanSet)> = map.iter().map(|(id, set)| (*id, set.parse().unwrap())).collect();
        MstConfigId::new("x", 0, sets.iter().map(|(id, set)| (*id, set))).digest_text()
    };
    assert_eq!(id(&[]), "AC36177F50283CD4B83821D8AB26DE62");
    // 802.1Q-2018, table 13-2: all VLANs on MSTI 1.
    assert_eq!(id(&[(1, "1-4094")]), "E13A80F11ED0856ACD4EE3476941C73B");
    assert_ne!(id(&[(1, "10")]), id(&[(2, "10")]));
}
