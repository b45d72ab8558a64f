//! Tests of link aggregation in the switch: plane states of port-channels and members, LACP's configuration, and the
//! assignment of buckets.

use super::{links, lower, spread};
use crate::compile::{compile, port_names};
use crate::facts::Facts;
use crate::ports::PortIds;
use crate::testing::{config, facts, identity};
use lanyard_config::{Config, Interface, InterfaceName};
use lanyard_lacp::Mode;
use lanyard_pipeline::state::{
    Aggregation, CHANNEL_BUCKETS, PlaneState, PortKind, PortState, ReservedAction,
};
use lanyard_pipeline::validate;
use lanyard_types::{ChannelId, PortId, PortSet, VlanId};

fn channel(n: u8) -> ChannelId {
    ChannelId::new(n).expect("a port-channel")
}

fn port(n: u16) -> PortId {
    PortId::new(n).expect("a port")
}

/// eth1 and eth2 in port-channel 1, a trunk.
fn bundle(mode: Mode) -> Config {
    let mut config =
        config("eth1: access 10\neth2: access 20\neth3: access 10\nport-channel1: trunk allowed 1,10");
    for name in ["eth1", "eth2"] {
        let interface = config.interfaces.get_mut(&InterfaceName::Netdev(name.into())).expect("configured");
        interface.aggregation.group = Some((channel(1), mode));
    }
    config
}

/// A routed port-channel has a VLAN to itself, of which no trunk is a member, and a router interface there.
#[test]
fn routed() {
    let mut config = bundle(Mode::On);
    for name in ["port-channel1", "eth1", "eth2"] {
        let interface = config.interfaces.get_mut(&InterfaceName::Netdev(name.into())).expect("configured");
        interface.role = lanyard_config::Role::Routed;
    }
    let eth3 = config.interfaces.get_mut(&InterfaceName::Netdev("eth3".into())).expect("configured");
    eth3.switchport.mode = lanyard_config::SwitchportMode::Trunk;
    let mut facts = facts("eth1, eth2, eth3, port-channel1, lypo1");
    facts.channels.insert(channel(1));
    let (state, ports) = state(&config, &facts);
    let vlan = channel(1).internal_vlan().expect("a VLAN");
    assert_eq!(vlan.get(), 1006);
    let of_vlan = |port: &&PortState| port.tagged.contains(vlan) || port.untagged.contains(vlan);
    let names: Vec<&str> = state.ports.values().filter(of_vlan).map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["port-channel1", "lypo1"]);
    let own = state.fdb.iter().filter(|((of, _), _)| *of == vlan).count();
    assert_eq!((own, state.vlans.contains_key(&vlan)), (1, true));
    let lacp = lower(&config, &facts, &ports, &identity());
    assert_eq!((lacp.lacp.ports.len(), lacp.channels.len()), (2, 1));
    // The VLAN cannot be configured meanwhile.
    let mut next = config.clone();
    next.vlans.insert(vlan, lanyard_config::Vlan::default());
    let refused = crate::check::check(&config, &next, &facts, &identity()).expect_err("internal");
    assert!(refused.to_string().starts_with("VLAN 1006 is the internal VLAN of port-channel1"), "{refused}");
}

/// A subinterface of a routed port-channel has the VLAN of its tag to itself, with the port-channel as a tagged member.
#[test]
fn subinterfaces() {
    let mut config = bundle(Mode::On);
    for name in ["port-channel1", "eth1", "eth2"] {
        let interface = config.interfaces.get_mut(&InterfaceName::Netdev(name.into())).expect("configured");
        interface.role = lanyard_config::Role::Routed;
    }
    let tag = VlanId::new(100).expect("a VLAN");
    let name = InterfaceName::of_channel_subinterface(channel(1), 5);
    let role = lanyard_config::Role::Subinterface(tag);
    config.interfaces.insert(name, Interface { role, ..Interface::default() });
    let mut facts = facts("eth1, eth2, port-channel1, lypo1, po1.5, lypo1.5");
    facts.channels.insert(channel(1));
    let (state, ports) = state(&config, &facts);
    let whole = of(&state, &ports, "port-channel1");
    assert_eq!((whole.tagged.to_string(), whole.untagged.to_string()), ("100".into(), "1006".into()));
    assert!(!whole.access && !of(&state, &ports, "eth1").access, "tags are accepted");
    let end = of(&state, &ports, "lypo1.5");
    assert_eq!((end.kind, end.enabled), (PortKind::Svi(tag), true));
    // Both interfaces have the address of the port-channel.
    let own = state.fdb.keys().map(|(vlan, mac)| (vlan.get(), *mac)).collect::<Vec<_>>();
    let mac = identity().vlan_mac(channel(1).internal_vlan().expect("a VLAN"));
    assert_eq!(own, [(100, mac), (1006, mac)]);
    let refused = |next: &Config| {
        crate::check::check(&config, next, &facts, &identity()).expect_err("refused").to_string()
    };
    let mut next = config.clone();
    next.vlans.insert(tag, lanyard_config::Vlan::default());
    assert!(refused(&next).starts_with("VLAN 100 is the internal VLAN of po1.5"), "{}", refused(&next));
    let mut next = config.clone();
    let second = Interface { role: lanyard_config::Role::Routed, ..Interface::default() };
    next.interfaces.insert(InterfaceName::of_channel(channel(2)), second);
    let of_second = InterfaceName::of_channel_subinterface(channel(2), 1);
    next.interfaces.insert(of_second, Interface { role, ..Interface::default() });
    assert!(refused(&next).contains("cannot use VLAN 100"), "{}", refused(&next));
}

fn state(config: &Config, facts: &Facts) -> (PlaneState, PortIds) {
    let ports = PortIds::default().assign(port_names(config)).expect("few ports");
    let state = compile(config, facts, &ports, &identity());
    assert_eq!(validate::check(&state), Ok(()));
    (state, ports)
}

fn of<'s>(state: &'s PlaneState, ports: &PortIds, name: &str) -> &'s PortState {
    &state.ports[&ports.get(name).expect("numbered")]
}

#[test]
fn members_have_the_membership_of_their_port_channel() {
    let mut facts = facts("eth1 mtu 9000, eth2, eth3");
    facts.channels.insert(channel(1));
    let (state, ports) = state(&bundle(Mode::Active), &facts);
    let trunk = of(&state, &ports, "port-channel1");
    assert_eq!((trunk.ifindex, trunk.enabled, trunk.mtu), (0, true, 1500), "the smallest MTU of the members");
    assert_eq!((trunk.tagged.to_string(), trunk.untagged.to_string()), ("10".into(), "1".into()));
    assert_eq!(trunk.aggregation, Aggregation::Channel(channel(1)));
    for name in ["eth1", "eth2"] {
        let member = of(&state, &ports, name);
        let of = ports.get("port-channel1").expect("numbered");
        assert_eq!(member.aggregation, Aggregation::Member { of, channel: channel(1) });
        assert_eq!((member.pvid, member.tpid), (trunk.pvid, trunk.tpid), "{name}");
        assert!(member.enabled && member.tagged.is_empty() && member.untagged.is_empty());
    }
    assert_eq!(of(&state, &ports, "eth3").aggregation, Aggregation::None);
    assert_eq!(state.global.reserved[2], ReservedAction::Trap);
}

#[test]
fn a_port_channel_is_up_while_its_members_say_so() {
    let (config, facts) = (bundle(Mode::On), facts("eth1, eth2"));
    let (before, ports) = state(&config, &facts);
    assert!(!of(&before, &ports, "port-channel1").enabled);
    assert_eq!(before.global.reserved[2], ReservedAction::Drop, "no member has LACP");
    let mut facts = facts;
    facts.channels.insert(channel(1));
    let (after, ports) = state(&config, &facts);
    assert!(of(&after, &ports, "port-channel1").enabled);
}

#[test]
fn lacp_gets_the_modes_and_links_of_the_members() {
    let mut config = bundle(Mode::Passive);
    let facts = facts("eth1, eth2 no-carrier");
    let (_, ports) = state(&config, &facts);
    let lowered = lower(&config, &facts, &ports, &identity());
    let id = |name: &str| ports.get(name).expect("numbered");
    assert_eq!(lowered.channels, [(channel(1), id("port-channel1"))].into());
    let modes: Vec<_> = lowered.lacp.ports.iter().map(|(port, it)| (*port, it.channel, it.mode)).collect();
    assert_eq!(modes, [(id("eth1"), 1, Mode::Passive), (id("eth2"), 1, Mode::Passive)]);
    let up = |config: &Config| links(config, &facts, &ports, &mut |_| false);
    assert_eq!(up(&config), [(id("eth1"), true), (id("eth2"), false)]);
    let half = links(&config, &facts, &ports, &mut |name| name == "eth1");
    assert_eq!(half, [(id("eth1"), false), (id("eth2"), false)], "half duplex is not aggregated");
    config.interfaces.get_mut(&InterfaceName::of_channel(channel(1))).expect("configured").shutdown = true;
    assert_eq!(up(&config), [(id("eth1"), false), (id("eth2"), false)], "shut down with the port-channel");
}

fn counts(buckets: &[PortId], members: &PortSet) -> Vec<usize> {
    members.iter().map(|member| buckets.iter().filter(|held| **held == member).count()).collect()
}

/// Members come and go in every order of a few hundred steps: the numbers of buckets differ by one at most, a member that
/// leaves moves only its own buckets, and one that comes takes only what becomes its own.
#[test]
fn only_buckets_that_have_to_move_do() {
    let mut rng = lanyard_pipeline::generate::Rng::new(3);
    let (mut members, mut buckets) = (PortSet::EMPTY, Vec::new());
    for step in 0..500 {
        let changed = port(1 + rng.below(8) as u16);
        let before = members.clone();
        let comes = !members.remove(changed);
        if comes {
            members.insert(changed);
        }
        let next = spread(&buckets, &members);
        if members.is_empty() {
            assert!(next.is_empty());
        } else {
            assert_eq!(next.len(), CHANNEL_BUCKETS);
            let counts = counts(&next, &members);
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(
                most.zip(least).is_some_and(|(most, least)| most - least <= 1),
                "step {step}: {counts:?}"
            );
        }
        if !before.is_empty() && !members.is_empty() {
            let moved = buckets.iter().zip(&next).filter(|(was, is)| was != is);
            for (was, is) in moved {
                assert!(if comes { *is == changed } else { *was == changed }, "step {step}: {was} to {is}");
            }
        }
        assert_eq!(spread(&next, &members), next, "nothing moves without a cause");
        buckets = next;
    }
}
