use super::*;
use crate::facts::LinkFacts;
use lanyard_config::{Role, SwitchportMode, Vlan};
use lanyard_lldp::Protocol;
use lanyard_types::MacAddr;

fn vlan(id: u16) -> VlanId {
    VlanId::new(id).expect("a VLAN")
}

fn link(name: &str, ifindex: u32) -> LinkFacts {
    LinkFacts {
        ifindex,
        name: name.into(),
        mac: Some(MacAddr([2, 0, 0, 0, 0, ifindex as u8])),
        mtu: 1500,
        admin_up: true,
        carrier: true,
        ethernet: true,
        ..LinkFacts::default()
    }
}

/// Two switch ports, a routed port and VLAN interfaces, all with a link.
fn given() -> (Config, Facts, PortIds, Identity) {
    let mut config = Config { hostname: "sw1".into(), ..Config::default() };
    config.discovery.lldp_runs = true;
    let interface = |role| Interface { role, ..Interface::default() };
    let mut trunk = interface(Role::Switchport);
    trunk.switchport.mode = SwitchportMode::Trunk;
    trunk.switchport.native_vlan = vlan(20);
    trunk.description = Some("uplink".into());
    trunk.discovery.lldp_receive = false;
    let mut routed = interface(Role::Routed);
    routed.ipv4 = vec!["10.9.0.1/24".parse().expect("a prefix")];
    let mut svi = interface(Role::Unset);
    svi.ipv4 = vec!["10.0.10.1/24".parse().expect("a prefix"), "10.0.11.1/24".parse().expect("a prefix")];
    svi.ipv6 = vec!["2001:db8::1/64".parse().expect("a prefix")];
    for (name, settings) in [("eth1", interface(Role::Switchport)), ("eth2", trunk), ("eth3", routed)] {
        config.interfaces.insert(InterfaceName::Netdev(name.into()), settings);
    }
    config.interfaces.insert(InterfaceName::Vlan(vlan(5)), interface(Role::Unset));
    config.interfaces.insert(InterfaceName::Vlan(vlan(10)), svi);
    config.vlans.insert(vlan(20), Vlan { name: Some("guests".into()), ..Vlan::default() });
    let mut facts = Facts::default();
    for (at, name) in ["eth1", "eth2", "eth3", "vlan5", "vlan10"].into_iter().enumerate() {
        facts.set(link(name, at as u32 + 1));
    }
    let ports = PortIds::default().assign(crate::compile::port_names(&config)).expect("numbers");
    let identity = Identity { instance: "test".into(), base_mac: MacAddr([2, 0, 0, 0, 0x10, 0]) };
    (config, facts, ports, identity)
}

fn lowered(config: &Config, facts: &Facts, ports: &PortIds, identity: &Identity) -> lanyard_lldp::Config {
    let medium =
        &mut |_: &str| Medium { speed_mbps: Some(1000), full_duplex: Some(true), autoneg: Some(true) };
    lower(config, facts, ports, identity, &System::default(), medium)
}

#[test]
fn each_port_announces_its_vlans_addresses_and_lldp_state() {
    let (config, facts, ports, identity) = given();
    let all = lowered(&config, &facts, &ports, &identity);
    assert_eq!(
        (all.system.name.as_str(), all.system.chassis, all.system.routes),
        ("sw1", identity.base_mac, false)
    );
    let port = |name: &str| &all.ports[&ports.get(name).expect("a port")];
    let (access, trunk, routed) = (port("eth1"), port("eth2"), port("eth3"));
    assert_eq!(all.ports.len(), 3, "a VLAN interface is no port");
    assert_eq!((access.pvid, access.vlans.len(), access.lldp), (Some(vlan(1)), 1, AdminStatus::TxRx));
    assert_eq!((trunk.pvid, trunk.lldp), (Some(vlan(20)), AdminStatus::TxOnly));
    assert_eq!(trunk.description.as_deref(), Some("uplink"));
    assert_eq!(trunk.vlans, [(vlan(1), "default".to_owned()), (vlan(20), "guests".to_owned())]);
    assert_eq!((routed.switchport, routed.pvid, routed.vlans.len()), (false, None, 0));
    // The switch is managed by the lowest VLAN interface with an address, a routed port by its own.
    let of_svi: Vec<String> =
        access.management.iter().map(|(address, index)| format!("{address} {index}")).collect();
    assert_eq!(of_svi, ["10.0.10.1 5", "2001:db8::1 5"]);
    assert_eq!(routed.management, [("10.9.0.1".parse().expect("an address"), 3)]);
    assert_eq!((access.max_frame, access.mac), (1522, MacAddr([2, 0, 0, 0, 0, 1])));
}

#[test]
fn members_in_use_say_so() {
    let (mut config, mut facts, ports, identity) = given();
    let channel = lanyard_types::ChannelId::new(7).expect("a number");
    for (name, mode) in [("eth1", lanyard_lacp::Mode::Active), ("eth2", lanyard_lacp::Mode::Active)] {
        let member = config.interfaces.get_mut(&InterfaceName::Netdev(name.into())).expect("a port");
        member.aggregation.group = Some((channel, mode));
    }
    let of = |name: &str| ports.get(name).expect("a port");
    facts.bundled.insert(of("eth2"));
    let all = lowered(&config, &facts, &ports, &identity);
    assert_eq!((all.ports[&of("eth1")].bundle, all.ports[&of("eth2")].bundle), (None, Some(7)));
}

#[test]
fn links_follow_carrier_and_state() {
    let (config, mut facts, ports, identity) = given();
    facts.set(LinkFacts { carrier: false, ..link("eth1", 1) });
    facts.set(LinkFacts { admin_up: false, ..link("eth2", 2) });
    facts.remove(3);
    let all = lowered(&config, &facts, &ports, &identity);
    let up: Vec<bool> = links(&all, &facts).into_iter().map(|(_, up)| up).collect();
    assert_eq!(up, [false, false], "a port without a netdev is no port of discovery");
}

#[test]
fn no_medium_is_read_while_neither_lldp_nor_cdp_runs() {
    let (mut config, facts, ports, identity) = given();
    config.discovery.lldp_runs = false;
    let medium = &mut |name: &str| -> Medium { unreachable!("{name}") };
    let all = lower(&config, &facts, &ports, &identity, &System::default(), medium);
    assert!(all.ports.is_empty() && all.lldp.is_none() && all.cdp.is_none());
}

#[test]
fn frames_are_trapped_only_for_enabled_discovery_protocols() {
    for running in [None, Some(Protocol::Lldp), Some(Protocol::Cdp)] {
        let mut config = Config::default();
        config.discovery.lldp_runs = running == Some(Protocol::Lldp);
        config.discovery.cdp_runs = running == Some(Protocol::Cdp);
        let mut global = GlobalState::default();
        overlay(&config, &mut global);
        assert_eq!(global.reserved[LLDP] == ReservedAction::Trap, running == Some(Protocol::Lldp));
        assert_eq!(global.trap_cdp, running == Some(Protocol::Cdp));
    }
}
