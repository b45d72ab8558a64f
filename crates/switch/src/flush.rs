//! Decides which dynamic addresses a change of state makes stale. IEEE 802.1Q-2018, 8.8.3: entries of a port that no
//! longer forwards are useless, and harmful when the station has moved.
//!
//! Invariant: after the flushes no dynamic entry points to a port that is gone, down, or not a member of the entry's
//! VLAN.

use lanyard_pipeline::state::{PlaneState, PortState};
use lanyard_plane::FdbFilter;
use lanyard_types::{PortId, VlanSet};

/// If a port loses more VLANs than this at once, all of its entries are flushed, because each flush walks the FDB.
const SINGLE_FLUSHES: usize = 4;

/// The flushes that are due once `next` has replaced `old`.
#[must_use]
pub fn flushes(old: &PlaneState, next: &PlaneState) -> Vec<FdbFilter> {
    let gone = old.vlans.keys().filter(|vlan| !next.vlans.contains_key(vlan));
    let mut list: Vec<_> = gone.map(|vlan| FdbFilter { vlan: Some(*vlan), ..FdbFilter::default() }).collect();
    let vlans_gone: VlanSet = list.iter().filter_map(|filter| filter.vlan).collect();
    for (port, before) in &old.ports {
        list.extend(stale_at(*port, before, next.ports.get(port), &vlans_gone));
    }
    list
}

fn stale_at(
    port: PortId,
    before: &PortState,
    after: Option<&PortState>,
    vlans_gone: &VlanSet,
) -> Vec<FdbFilter> {
    let all = FdbFilter { port: Some(port), ..FdbFilter::default() };
    let Some(after) = after else { return vec![all] };
    let down = before.enabled && !after.enabled;
    // Port security counts only the addresses that are learned while it is on, so flush those from before the change.
    let secured = before.stages.secure != after.stages.secure;
    if down || secured || after.name != before.name || after.kind != before.kind {
        return vec![all];
    }
    let members = |port: &PortState| port.tagged.union(&port.untagged);
    let lost = members(before).difference(&members(after)).difference(vlans_gone);
    if lost.len() > SINGLE_FLUSHES || before.tpid != after.tpid {
        return vec![all];
    }
    lost.iter().map(|vlan| FdbFilter { vlan: Some(vlan), ..all }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{compile, port_names};
    use crate::ports::PortIds;
    use crate::testing::{config, facts, identity};

    /// Flushes as text: `port`, `vlan` or `port/vlan`.
    fn check(old: (&str, &str), next: (&str, &str), want: &str) {
        let (from, to) = (config(old.0), config(next.0));
        let ids = PortIds::default().assign(port_names(&from)).expect("few ports");
        let next_ids = ids.assign(port_names(&to)).expect("few ports");
        let before = compile(&from, &facts(old.1), &ids, &identity());
        let after = compile(&to, &facts(next.1), &next_ids, &identity());
        let show = |filter: FdbFilter| {
            let name = filter.port.and_then(|port| ids.name(port)).unwrap_or_default();
            format!("{name}/{}", filter.vlan.map_or(String::new(), |vlan| vlan.to_string()))
        };
        let list: Vec<String> = flushes(&before, &after).into_iter().map(show).collect();
        assert_eq!(list.join(" "), want, "{old:?} -> {next:?}");
    }

    #[test]
    fn changes_flush_the_learned_addresses_of_their_ports_and_vlans() {
        let trunk = "vlan 10\nvlan 20\neth1: trunk\neth2: trunk";
        let both = "eth1, eth2";
        check((trunk, both), (trunk, both), "");
        check((trunk, both), (trunk, "eth1, eth2 no-carrier"), "eth2/");
        check((trunk, "eth1, eth2 no-carrier"), (trunk, both), "");
        check((trunk, both), ("vlan 10\nvlan 20\neth1: trunk", both), "eth2/");
        check((trunk, both), ("vlan 10\nvlan 20 suspend\neth1: trunk\neth2: trunk", both), "/20");
        let narrow = "vlan 10\nvlan 20\neth1: trunk allowed 1-9,11-4094\neth2: trunk allowed 1,10";
        check((trunk, both), (narrow, both), "eth1/10 eth2/");
        check((narrow, both), (trunk, both), "");
        check(("vlan 10\neth1: access 10", both), ("vlan 10\neth1: access 1", both), "eth1/10");
        check(("eth1: access 1", both), ("eth1: tunnel 1", both), "eth1/");
    }
}
