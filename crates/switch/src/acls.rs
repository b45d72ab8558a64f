//! Access lists for the plane: the lists to which ports, VLAN interfaces and VLANs refer, with numbers.
//!
//! Invariants: a list keeps its number while it is in force, and a number is not given to another list in the same step, so a
//! port never refers to a list that is not its own. A list that does not exist, or has no rules, is left out: it permits
//! everything.

pub use crate::acl_numbers::InForce;
use crate::acl_numbers::Numbered;
use crate::compile::pipeline_end;
use crate::facts::Facts;
use crate::ports::PortIds;
use lanyard_acl::FrameFamily;
use lanyard_acl::time::Minute;
use lanyard_config::{AccessGroups, Config, InterfaceName};
use lanyard_pipeline::state::{AclBindings, PlaneState};

/// Adds access lists to a plane state that has the ports and VLANs. `now` (UTC) decides which time ranges are active; without it
/// every range is. `before` are the lists in force.
pub fn overlay(
    config: &Config,
    facts: &Facts,
    ports: &PortIds,
    before: &InForce,
    now: Option<Minute>,
    state: &mut PlaneState,
) {
    let now = now.map(|utc| config.appliance.local(utc));
    let active = |name: &str| match (config.lists.times.get(name), now) {
        (Some(range), Some(now)) => range.active(now),
        _ => true,
    };
    let mut lists = Numbered::new(before);
    for (name, interface) in &config.interfaces {
        let groups = &interface.access_groups;
        if groups.names().next().is_none() {
            continue;
        }
        let (port, is_host) = match name {
            InterfaceName::Netdev(name) => (ports.get(name), false),
            InterfaceName::Vlan(vlan) => (ports.get(&pipeline_end(*vlan)), true),
        };
        let Some(port) = port.and_then(|port| state.ports.get_mut(&port)) else { continue };
        let mut bind = |names: &[Option<String>; 3]| {
            let mut bindings = AclBindings::default();
            for (family, name) in FrameFamily::ALL.into_iter().zip(names) {
                let list = name.as_ref().and_then(|name| config.lists.plane_list(name, &active));
                bindings[family.index()] =
                    list.filter(|list| list.family == family).and_then(|list| lists.number(list));
            }
            bindings
        };
        // Frames that come in at a VLAN interface leave the pipeline by its port.
        let AccessGroups { inbound, outbound } = groups;
        (port.acl_in, port.acl_out) =
            if is_host { (bind(outbound), bind(inbound)) } else { (bind(inbound), bind(outbound)) };
    }
    for (vlan, map) in &config.vlan_maps {
        let Some(vlan) = state.vlans.get_mut(vlan) else { continue };
        for family in FrameFamily::ALL {
            let list = config.lists.vlan_map_list(map, family, &active);
            vlan.acl[family.index()] = list.and_then(|list| lists.number(list));
        }
    }
    crate::qos::overlay(config, facts, ports, &mut lists, &active, state);
    state.acls = lists.state_lists;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{compile, port_names};
    use crate::testing::{config, facts, identity};
    use lanyard_acl::time::{Date, TimeRange};
    use lanyard_acl::{AccessList, Entry, Kind, text};
    use lanyard_config::Timezone;
    use std::sync::Arc;

    fn list(lines: &[&str]) -> AccessList {
        let mut list = AccessList::new(Kind::Extended);
        for (at, line) in lines.iter().enumerate() {
            let rule =
                text::parse(Kind::Extended, &line.split_whitespace().collect::<Vec<_>>()).expect("a rule");
            list.insert(at as u32 + 1, Entry::Rule(rule));
        }
        list
    }

    #[test]
    fn lists_keep_their_numbers() {
        let mut config = config("vlan 10\neth1: access 10\neth2: access 10");
        let ports = PortIds::default().assign(port_names(&config)).expect("few ports");
        let state = |config: &Config, before: &InForce| {
            let mut state = compile(config, &facts("eth1, eth2"), &ports, &identity());
            overlay(config, &Facts::default(), &ports, before, None, &mut state);
            state
        };
        let bind = |config: &mut Config, port: &str, list: Option<&str>| {
            let interface = config.interfaces.get_mut(&InterfaceName::Netdev(port.into())).expect("a port");
            interface.access_groups.inbound[0] = list.map(str::to_owned);
        };
        config.lists.access.insert("m".into(), list(&["permit ip any any"]));
        bind(&mut config, "eth1", Some("m"));
        let first = state(&config, &InForce::new());
        let (m, _) = first.acls.first_key_value().expect("a list");
        // A new list whose name sorts first does not take the number of the other list.
        config.lists.access.insert("a".into(), list(&["deny ip any any"]));
        bind(&mut config, "eth2", Some("a"));
        let second = state(&config, &first.acls);
        assert_eq!(second.acls[m].name, "access list m");
        assert!(Arc::ptr_eq(&second.acls[m], &first.acls[m]));
        let port = |state: &PlaneState, name: &str| state.ports[&ports.get(name).expect("a port")].acl_in[0];
        assert_eq!((port(&second, "eth1"), second.acls.len()), (Some(*m), 2));
        // A number that becomes free is not given away in the same step.
        config.lists.access.insert("z".into(), list(&["deny ip any any"]));
        bind(&mut config, "eth1", Some("z"));
        let third = state(&config, &second.acls);
        assert!(!third.acls.contains_key(m));
        // A list that does not exist binds nothing.
        bind(&mut config, "eth1", Some("missing"));
        assert_eq!(port(&state(&config, &third.acls), "eth1"), None);
    }

    #[test]
    fn time_ranges_follow_the_time_zone() {
        let mut config = config("vlan 10\neth1: access 10");
        let ports = PortIds::default().assign(port_names(&config)).expect("few ports");
        let noon = Date { year: 2026, month: 11, day: 24, hour: 12, minute: 0 };
        let range = TimeRange { start: Some(noon), ..TimeRange::default() };
        config.lists.times.insert("after-noon".into(), range);
        config
            .lists
            .access
            .insert("m".into(), list(&["deny ip any any time-range after-noon", "permit ip any any"]));
        let interface = config.interfaces.get_mut(&InterfaceName::Netdev("eth1".into())).expect("a port");
        interface.access_groups.inbound[0] = Some("m".into());
        let rules = |config: &Config, hour: u8| {
            let utc = Date { hour, minute: 30, ..noon }.minute_of();
            let mut state = compile(config, &facts("eth1"), &ports, &identity());
            overlay(config, &Facts::default(), &ports, &InForce::new(), utc, &mut state);
            state.acls.first_key_value().expect("a list").1.rules.iter().filter(|rule| rule.seq == 1).count()
        };
        assert_eq!((rules(&config, 11), rules(&config, 12)), (0, 1));
        config.appliance.timezone = Some(Timezone { name: "CET".into(), minutes: 60 });
        assert_eq!((rules(&config, 10), rules(&config, 11)), (0, 1));
    }
}
