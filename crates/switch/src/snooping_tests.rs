//! The effects of configurations on snooping.

use super::*;
use crate::compile::{compile, port_names};
use crate::testing::{config, facts, identity};
use lanyard_config::Interface;

fn vlan(id: u16) -> VlanId {
    VlanId::new(id).expect("a VLAN")
}

/// Two access ports and a trunk, one of them without a link, and the interface of VLAN 10.
fn world(change: impl FnOnce(&mut Config)) -> (Config, PlaneState, PortIds) {
    let mut config = config("vlan 10\neth1: access 10\neth2: access 10\neth3: trunk native 1 allowed 10");
    let svi = Interface { ipv4: vec!["10.0.10.1/24".parse().expect("a prefix")], ..Interface::default() };
    config.interfaces.insert(InterfaceName::Vlan(vlan(10)), svi);
    change(&mut config);
    let ports = PortIds::default().assign(port_names(&config)).expect("numbers");
    let state = compile(&config, &facts("eth1, eth2 no-carrier, eth3, vlan10"), &ports, &identity());
    (config, state, ports)
}

#[test]
fn igmp_is_snooped_everywhere_and_mld_nowhere_by_default() {
    let (config, state, ports) = world(|_| {});
    assert_eq!(of_vlan(&config, vlan(10)), [Some(Unregistered::Flood), None]);
    assert_eq!(state.vlans[&vlan(10)].snooping, [Some(Unregistered::Flood), None]);
    let lowered = lower(&config, &state, &ports, &identity());
    assert_eq!(
        lowered.vlans.keys().copied().collect::<Vec<_>>(),
        [(VlanId::DEFAULT, Family::V4), (vlan(10), Family::V4)]
    );
    let ten = &lowered.vlans[&(vlan(10), Family::V4)];
    let names: Vec<&str> = ten.ports.iter().map(|port| state.ports[&port].name.as_str()).collect();
    assert!(names.contains(&"eth1") && names.contains(&"eth3") && !names.contains(&"eth2"), "{names:?}");
    assert_eq!((ten.querier, ten.robustness, ten.membership_ms()), (None, 2, 260_000));
    let trunk = ports.get("eth3").expect("a number");
    assert_eq!(classifiers(&state)[&trunk].tpid, Some(0x8100));
}

#[test]
fn settings_of_a_vlan_go_before_those_of_all() {
    let (config, state, ports) = world(|config| {
        let name = |name: &str| InterfaceName::Netdev(name.into());
        let igmp = &mut config.snooping.igmp;
        igmp.off_vlans.insert(VlanId::DEFAULT);
        igmp.common.robustness = Some(3);
        igmp.common.querier = Some(true);
        igmp.change_vlan(vlan(10), |own| {
            own.settings.robustness = Some(4);
            own.settings.unregistered = Some(Unregistered::Routers);
            own.immediate_leave = true;
            // A port without a link, and one that does not exist, have no part.
            own.mrouters = ["eth2", "eth3", "eth9"].map(name).into();
            own.statics.insert([239, 1, 1, 1].into(), ["eth1"].map(name).into());
        });
        config.snooping.mld.on = true;
        config.snooping.mld.common.querier = Some(true);
        config.interfaces.get_mut(&name("eth1")).expect("configured").max_groups[0] = Some(5);
    });
    assert_eq!(state.vlans[&VlanId::DEFAULT].snooping, [None, Some(Unregistered::Flood)]);
    assert_eq!(state.vlans[&vlan(10)].snooping, [Some(Unregistered::Routers), Some(Unregistered::Flood)]);
    let lowered = lower(&config, &state, &ports, &identity());
    let (one, three) = (ports.get("eth1").expect("a number"), ports.get("eth3").expect("a number"));
    let set = |port: PortId| std::iter::once(port).collect::<PortSet>();
    let ten = &lowered.vlans[&(vlan(10), Family::V4)];
    assert_eq!((ten.robustness, ten.immediate_leave), (4, true));
    assert_eq!(ten.querier, Some(Querier { address: [10, 0, 10, 1].into(), version: 3 }));
    assert_eq!(
        (&ten.static_routers, &ten.static_groups[&IpAddr::from([239, 1, 1, 1])]),
        (&set(three), &set(one))
    );
    assert_eq!(ten.limits, [(one, 5)].into());
    let mld = lowered.vlans[&(VlanId::DEFAULT, Family::V6)].querier.expect("a querier");
    assert!(matches!(mld.address, IpAddr::V6(address) if address.is_unicast_link_local()));
}
