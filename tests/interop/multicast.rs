//! Routing protocols of FRR across a VLAN with multicast snooping: their groups are of link scope, and routers send no
//! reports for them.

use crate::frr::{Frr, PATIENCE, missing};
use crate::harness::{Bed, Plane, scenarios, wait_until};

scenarios! {
    ospf_neighbors_across_a_snooped_vlan: ebpf soft;
}

/// Frames go only to members of their group, except those of groups of link scope, which go to all ports.
const SWITCH: &str = "\
vlan 10
ip igmp snooping unregistered mrouter
ipv6 mld snooping
ipv6 mld snooping unregistered mrouter
interface p1
 switchport access vlan 10
interface p2
 switchport access vlan 10
interface p3
 switchport access vlan 10
";

fn router(n: usize) -> String {
    format!(
        "interface eth0\n ip ospf hello-interval 1\n ip ospf dead-interval 4\nrouter ospf\n ospf router-id 10.0.10.{n}\n network \
         10.0.10.0/24 area 0\n"
    )
}

fn ospf_neighbors_across_a_snooped_vlan(plane: Plane) {
    if let Some(reason) = missing() {
        return println!("skipped: {reason}");
    }
    let bed = Bed::new(plane, 3, SWITCH);
    bed.exact.set(false);
    bed.chatter.set(true);
    for n in 1..=3 {
        bed.host(n).address(&format!("10.0.10.{n}/24"));
    }
    let routers: Vec<Frr<'_>> =
        (1..=3).map(|n| Frr::start(&bed.host(n).net, &["ospfd"], &router(n))).collect();
    for (n, frr) in routers.iter().enumerate() {
        // Each router is fully adjacent to both others: one of the three is DR, one is BDR.
        let full = wait_until(PATIENCE, || {
            (frr.show("show ip ospf neighbor").matches("Full/").count() == 2).then_some(())
        });
        assert!(full.is_some(), "router {}: {}", n + 1, frr.show("show ip ospf neighbor"));
    }
    let groups = bed.show("show ip igmp snooping groups");
    assert_eq!(groups["groups"], serde_json::json!([]), "OSPF's groups are not limited");
}
