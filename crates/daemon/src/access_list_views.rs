//! The counters of access lists, for `show access-lists` and `clear access-list counters`.

use crate::access_lists::minute_now;
use crate::core::Core;
use lanyard_acl::time::Minute;
use lanyard_cli::backend::AccessLists;
use std::collections::BTreeMap;

impl AccessLists for Core {
    fn access_list_matches(&mut self, name: &str) -> BTreeMap<u32, u64> {
        let lists = self.ctx.plane.state().acls.clone();
        let mut sums = BTreeMap::new();
        for (id, list) in &lists {
            // The list of a policy map names the map's classes instead of access lists.
            if list.classifies() || !list.names.iter().any(|held| held == name) {
                continue;
            }
            // The last count is that of frames that no rule matched.
            for (rule, count) in list.rules.iter().zip(self.ctx.plane.acl_matches(*id)) {
                if list.origin(rule) == name {
                    *sums.entry(rule.seq).or_default() += count;
                }
            }
        }
        sums
    }
    fn clear_access_list_matches(&mut self, only: Option<&str>) {
        let lists = self.ctx.plane.state().acls.clone();
        let named = |list: &lanyard_acl::PlaneList| {
            !list.classifies() && only.is_none_or(|only| list.names.iter().any(|name| name == only))
        };
        for (id, _) in lists.iter().filter(|(_, list)| named(list)) {
            self.ctx.plane.clear_acl_matches(*id, only);
        }
        self.access_lists.forget(only);
    }
    fn minute(&self) -> Minute {
        self.ctx.switch.config().appliance.local(minute_now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config};
    use lanyard_cli::backend::QualityOfService;

    const LISTS: &str = "ip access-list extended a\n 10 permit udp any any eq 53\n 20 permit ip any any\n\
        ip access-list extended b\n 10 permit udp any any eq 54\n 20 deny ip any any\n";
    const PORTS: &str = "interface eth1\n switchport\n ip access-group a in\ninterface eth2\n switchport\n \
        ip access-group b in";

    fn switch(text: &str) -> (Bench, Core) {
        let bench = Bench::new();
        bench.kernel.add("eth1");
        bench.kernel.add("eth2");
        let mut core = bench.core();
        core.take(config(text)).expect("good");
        (bench, core)
    }

    /// Sends packets of UDP to this port from a host at a port of the switch.
    fn send(bench: &Bench, core: &Core, name: &str, dst_port: u8, count: usize) {
        let port = core.ctx.switch.ports().get(name).expect("a port");
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00]);
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([1, 0, 0, dst_port, 0, 8, 0, 0]);
        frame.resize(60, 0);
        for _ in 0..count {
            bench.ports.borrow().as_ref().expect("a plane").push(port, &frame);
        }
    }

    fn matches(core: &mut Core, name: &str) -> Vec<(u32, u64)> {
        core.access_list_matches(name).into_iter().collect()
    }

    /// A list at a port and in a VLAN map is two lists of the plane. A class map that refers to the list counts in
    /// its class only, even if the class has the name of the list.
    #[test]
    fn matches_are_summed_over_all_places_of_a_list() {
        let text = format!(
            "{LISTS}vlan access-map m 10\n match ip address b\n action drop\nvlan access-map m 20\n \
             match ip address a\n action forward\nvlan filter m vlan-list 1\n\
             class-map a\n match access-group name a\npolicy-map p\n class a\n  set dscp ef\n{PORTS}\n\
             interface eth1\n service-policy input p"
        );
        let (bench, mut core) = switch(&text);
        assert_eq!(matches(&mut core, "a"), [(10, 0), (20, 0)]);
        send(&bench, &core, "eth1", 53, 1);
        assert_eq!(matches(&mut core, "a"), [(10, 2), (20, 0)]);
        send(&bench, &core, "eth2", 54, 3);
        assert_eq!(matches(&mut core, "b")[0], (10, 6));
        assert_eq!(matches(&mut core, "a"), [(10, 2), (20, 0)], "the map's first entry dropped the frames");
        assert_eq!(matches(&mut core, "c"), []);
        core.clear_access_list_matches(None);
        assert_eq!((matches(&mut core, "a")[0], matches(&mut core, "b")[0]), ((10, 0), (10, 0)));
        assert_eq!(core.service_policies().service_policies[0].classes[0].packets, 1, "of the class");
    }

    #[test]
    fn clear_sets_the_counters_of_the_named_list_to_0() {
        let (bench, mut core) = switch(&format!("{LISTS}{PORTS}"));
        send(&bench, &core, "eth1", 60, 2);
        send(&bench, &core, "eth2", 60, 3);
        for (only, want) in [(Some("c"), [2, 3]), (Some("a"), [0, 3]), (None, [0, 0])] {
            core.clear_access_list_matches(only);
            let counts = ["a", "b"].map(|name| core.access_list_matches(name)[&20]);
            assert_eq!(counts, want, "{only:?}");
        }
    }

    /// A VLAN map compiles its access lists together; each keeps its own counters.
    #[test]
    fn clear_leaves_the_counters_of_other_lists_in_the_same_vlan_map() {
        let text = format!(
            "{LISTS}vlan access-map m 10\n match ip address a\n action forward\nvlan access-map m 20\n \
             match ip address b\n action drop\nvlan filter m vlan-list 1\n\
             interface eth1\n switchport\ninterface eth2\n switchport"
        );
        let text = text.replace(" 20 permit ip any any\n", "");
        let (bench, mut core) = switch(&text);
        send(&bench, &core, "eth1", 53, 2);
        send(&bench, &core, "eth1", 54, 3);
        let counts = |core: &mut Core| ["a", "b"].map(|name| core.access_list_matches(name)[&10]);
        assert_eq!(counts(&mut core), [2, 3]);
        for (only, want) in [("c", [2, 3]), ("a", [0, 3]), ("b", [0, 0])] {
            core.clear_access_list_matches(Some(only));
            assert_eq!(counts(&mut core), want, "{only}");
        }
    }

    #[test]
    fn time_ranges_use_the_configured_time_zone() {
        let (_bench, core) = switch("clock timezone IST 5 30");
        let before = minute_now();
        let local = core.minute();
        assert!((before..=minute_now()).contains(&Minute(local.0 - 330)), "{local:?} {before:?}");
    }
}
