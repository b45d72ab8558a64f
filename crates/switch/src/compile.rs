//! Compiles the running configuration and the facts into a [`PlaneState`].
//!
//! Read IEEE 802.1Q-2018, 8.8.2 (member sets, untagged sets) and 6.9 (PVID, acceptable frame types)
//! first.
//!
//! Invariants: pure functions. A port is part of the state while it is configured. One without a
//! usable netdev has `ifindex` 0 and is not enabled, so that its number and its static addresses
//! are kept.

use crate::aggregation;
use crate::discovery;
use crate::facts::{Facts, LinkFacts};
use crate::guard;
use crate::identity::Identity;
use crate::monitor;
use crate::ports::PortIds;
use crate::private_vlan;
use crate::snooping;

pub use crate::membership::{Membership, membership};
pub use crate::names::*;

use lanyard_config::aggregation::InternalVlan;
use lanyard_config::names::channel_of;
use lanyard_config::{Config, Interface, InterfaceName, StaticTarget, SwitchportMode};
use lanyard_pipeline::state::{
    Delivery, FdbTarget, GlobalState, HookChoice, PlaneState, PortKind, PortState, VlanState,
};
use lanyard_types::{PortId, PortLock, Tunnelled, VlanGuard, VlanId, VlanSet};
use std::collections::BTreeMap;

/// The plane state for `config` with the netdevs in `facts`. `ports` has a number for each of
/// [`port_names`]; an interface without a number is left out.
#[must_use]
pub fn compile(config: &Config, facts: &Facts, ports: &PortIds, identity: &Identity) -> PlaneState {
    let mut state =
        PlaneState { global: global(config), vlans: active_vlans(config), ..PlaneState::default() };
    private_vlan::overlay(config, &mut state);
    for (name, interface) in switchports(config) {
        let Some(port) = ports.get(name) else { continue };
        let mut compiled = switchport(config, name, interface, facts);
        if let Some(channel) = channel_of(name) {
            compiled = aggregation::channel_port(config, facts, channel, compiled);
        }
        state.ports.insert(port, compiled);
    }
    for name in monitor::destinations(config) {
        let name = name.to_string();
        if let (Some(port), Some(interface)) =
            (ports.get(&name), config.interfaces.get(&InterfaceName::Netdev(name.clone())))
        {
            state.ports.insert(port, switchport(config, &name, interface, facts));
        }
    }
    for (name, channel, _, interface) in members(config) {
        let key = InterfaceName::of_channel(channel);
        let like = config.interfaces.get(&key);
        let (Some(port), Some(of), Some(like)) = (ports.get(name), ports.get(&key.to_string()), like) else {
            continue;
        };
        let own = Interface { switchport: aggregation::switchport(channel, like), ..interface.clone() };
        let own = aggregation::with_tags(config, channel, switchport(config, name, &own, facts));
        state.ports.insert(port, aggregation::member_port(of, channel, own));
    }
    routed_channel_ports(config, facts, ports, &mut state);
    for (vlan, interface) in vlan_interfaces(config) {
        if let Some(port) = ports.get(&pipeline_end(vlan)) {
            let host_up = facts.get(&host_end(vlan)).is_some_and(|link| link.admin_up);
            let enabled = host_up && line_up(vlan, interface, &state);
            let mut made = vlan_interface(&pipeline_end(vlan), vlan, enabled, interface, facts);
            private_vlan::interface(config, vlan, &mut made);
            state.ports.insert(port, made);
        }
    }
    state.fdb = fdb(config, ports, identity, &state);
    state
}

/// A routed port-channel is a port with a VLAN to itself, and an interface of that VLAN; a subinterface is one more VLAN of the
/// port, tagged. No other port is a member, trunks that carry every VLAN included.
fn routed_channel_ports(config: &Config, facts: &Facts, ports: &PortIds, state: &mut PlaneState) {
    let internal: VlanSet = config.internal_vlans().map(|it| it.vlan).collect();
    if internal.is_empty() {
        return;
    }
    for port in state.ports.values_mut() {
        port.tagged = port.tagged.difference(&internal);
        port.untagged = port.untagged.difference(&internal);
    }
    for (channel, _, interface) in config.routed_channels() {
        let name = InterfaceName::of_channel(channel).to_string();
        let Some(port) = ports.get(&name) else { continue };
        let own = Interface { switchport: aggregation::switchport(channel, interface), ..interface.clone() };
        let own = aggregation::with_tags(config, channel, switchport(config, &name, &own, facts));
        state.ports.insert(port, aggregation::channel_port(config, facts, channel, own));
    }
    for InternalVlan { vlan, name, interface, .. } in config.internal_vlans() {
        let name = name.to_string();
        let inner = pipeline_end_of(&name);
        let Some(up) = ports.get(&inner) else { continue };
        state.vlans.insert(vlan, VlanState::default());
        let host_up = facts.get(&name).is_some_and(|link| link.admin_up);
        let enabled = host_up && line_up(vlan, interface, state);
        state.ports.insert(up, vlan_interface(&inner, vlan, enabled, interface, facts));
    }
}

fn global(config: &Config) -> GlobalState {
    let mut global = GlobalState { fdb_limit: config.fdb.limit, ..GlobalState::default() };
    for (nibble, action) in &config.reserved {
        if let Some(slot) = global.reserved.get_mut(usize::from(*nibble)) {
            *slot = *action;
        }
    }
    discovery::overlay(config, &mut global);
    aggregation::overlay(config, &mut global);
    crate::dot1x::global(config, &mut global);
    global
}

fn active_vlans(config: &Config) -> BTreeMap<VlanId, VlanState> {
    let active = config.vlans.iter().filter(|(_, vlan)| !vlan.suspended && !vlan.shutdown);
    let remote_span = |vlan: VlanId| config.vlans.get(&vlan).is_some_and(|vlan| vlan.remote_span);
    let lower = |vlan: VlanId| VlanState {
        learning: !config.fdb.no_learning.contains(vlan) && !remote_span(vlan),
        fdb_limit: config.fdb.vlan_limits.get(&vlan).copied(),
        snooping: if remote_span(vlan) { [None; 2] } else { snooping::of_vlan(config, vlan) },
        guard: if remote_span(vlan) { VlanGuard::default() } else { guard::of_vlan(config, vlan) },
        ..VlanState::default()
    };
    active.map(|(vlan, _)| (*vlan, lower(*vlan))).collect()
}

fn switchport(config: &Config, name: &str, interface: &Interface, facts: &Facts) -> PortState {
    let link = facts.usable(name);
    let words = &interface.switchport;
    let plain = membership(words, config.tag_native);
    let (mut membership, mut private) = private_vlan::membership(config, words, plain);
    if words.stages.guard.lock == PortLock::Closed {
        // A closed port receives in its VLAN, so that the stage `guard` judges its frames, and is a member of no VLAN, so that
        // it sends none.
        (membership.tagged, membership.untagged, private) = (VlanSet::EMPTY, VlanSet::EMPTY, true);
    }
    PortState {
        enabled: !interface.shutdown && link.is_some_and(LinkFacts::forwards),
        tpid: membership.tpid,
        pvid: membership.pvid,
        tagged: membership.tagged,
        untagged: membership.untagged,
        private,
        access: !matches!(words.mode, SwitchportMode::Trunk | SwitchportMode::Tunnel),
        learning: words.learning,
        isolated: words.protected,
        flood_unicast: !words.block_unicast,
        flood_multicast: !words.block_multicast,
        mtu: link.map_or(interface.mtu.unwrap_or(1500), |link| link.mtu).clamp(68, 65_535),
        fdb_limit: words.fdb_limit,
        stages: words.stages.at_speed(facts.speeds.get(name).copied()),
        tunnelled: if words.mode == SwitchportMode::Tunnel { words.tunnelled } else { Tunnelled::NONE },
        hook: interface.hook,
        delivery: interface.delivery,
        ..PortState::new(name, link.map_or(0, |link| link.ifindex))
    }
}

impl LinkFacts {
    /// True when frames can be received and sent: administratively up, with link.
    #[must_use]
    pub const fn forwards(&self) -> bool {
        self.admin_up && self.carrier
    }
}

/// IOS autostate: a VLAN interface's line protocol is up when it is not shut down, its VLAN is
/// active, and a port in the VLAN is up. `state` must contain the switch ports.
fn line_up(vlan: VlanId, interface: &Interface, state: &PlaneState) -> bool {
    let member = |port: &PortState| port.tagged.contains(vlan) || port.untagged.contains(vlan);
    let netdev = |port: &&PortState| port.kind == PortKind::Netdev;
    !interface.shutdown
        && state.vlans.contains_key(&vlan)
        && state.ports.values().filter(netdev).any(|port| port.enabled && member(port))
}

/// The VLANs of VLAN interfaces, routed port-channels and their subinterfaces whose line protocol is up.
#[must_use]
pub fn lines_up(config: &Config, facts: &Facts, ports: &PortIds, identity: &Identity) -> VlanSet {
    let state = compile(config, facts, ports, identity);
    let internal = config.internal_vlans().map(|it| (it.vlan, it.interface));
    vlan_interfaces(config)
        .chain(internal)
        .filter(|(vlan, interface)| line_up(*vlan, interface, &state))
        .map(|(vlan, _)| vlan)
        .collect()
}

fn vlan_interface(
    name: &str,
    vlan: VlanId,
    enabled: bool,
    interface: &Interface,
    facts: &Facts,
) -> PortState {
    let link = facts.get(name);
    PortState {
        kind: PortKind::Svi(vlan),
        enabled: enabled && link.is_some(),
        // No learning is needed: the host's address is a self entry.
        learning: false,
        flood_unicast: false,
        mtu: link.map_or(interface.mtu.unwrap_or(1500), |link| link.mtu).clamp(68, 65_535),
        hook: HookChoice::Tc,
        delivery: Delivery::Device,
        ..PortState::access(name, link.map_or(0, |link| link.ifindex), vlan)
    }
}

fn fdb(
    config: &Config,
    ports: &PortIds,
    identity: &Identity,
    state: &PlaneState,
) -> BTreeMap<(VlanId, lanyard_types::MacAddr), FdbTarget> {
    let number = |name: &InterfaceName| -> Option<PortId> {
        let port = match name {
            InterfaceName::Netdev(netdev) => {
                // A station at a member is a station at its port-channel.
                let group = config.interfaces.get(name).and_then(|interface| interface.aggregation.group);
                match group {
                    Some((channel, _)) => ports.get(&InterfaceName::of_channel(channel).to_string()),
                    None => ports.get(netdev),
                }
            }
            InterfaceName::Vlan(vlan) => ports.get(&pipeline_end(*vlan)),
        };
        port.filter(|port| state.ports.contains_key(port))
    };
    let statics = config.fdb.statics.iter().filter_map(|(key, target)| {
        let target = match target {
            StaticTarget::Drop => FdbTarget::Blackhole,
            StaticTarget::Interface(name) => FdbTarget::Static(number(name)?),
        };
        Some((*key, target))
    });
    let own = vlan_interfaces(config).filter_map(|(vlan, interface)| {
        let mac = interface.mac.unwrap_or_else(|| identity.vlan_mac(vlan));
        Some(((vlan, mac), FdbTarget::SelfAddress(number(&InterfaceName::Vlan(vlan))?)))
    });
    let internal = config.internal_vlans().filter_map(|it| {
        let mac = it.interface.mac.or_else(|| aggregation::mac(config, it.channel, identity))?;
        let up = ports.get(&pipeline_end_of(&it.name.to_string()))?;
        Some(((it.vlan, mac), FdbTarget::SelfAddress(up)))
    });
    statics.chain(own).chain(internal).filter(|((vlan, _), _)| state.vlans.contains_key(vlan)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{config, facts, identity, link};
    use lanyard_types::MacAddr;

    /// One port as a line of text.
    fn show(port: &PortState) -> String {
        let set = |set: &VlanSet| if set.is_empty() { "-".to_owned() } else { set.to_string() };
        let flag = |on: bool, word: &'static str| if on { word } else { "" };
        format!(
            "{} if{} {} {:?} pvid {} tagged {} untagged {} mtu {}{}{}{}{}{}",
            port.name,
            port.ifindex,
            if port.enabled { "up" } else { "down" },
            port.tpid,
            port.pvid.map_or("-".into(), |vlan| vlan.to_string()),
            set(&port.tagged),
            set(&port.untagged),
            port.mtu,
            flag(port.access, " access"),
            flag(!port.learning, " mute"),
            flag(port.isolated, " isolated"),
            flag(!port.flood_unicast, " no-unicast"),
            flag(!port.flood_multicast, " no-multicast"),
        )
    }

    fn check(text: &str, links: &str, want: &[&str]) {
        let config = config(text);
        let ports = PortIds::default().assign(port_names(&config)).expect("few ports");
        let state = compile(&config, &facts(links), &ports, &identity());
        assert_eq!(state.ports.values().map(show).collect::<Vec<_>>(), want, "{text}");
    }

    #[test]
    fn access() {
        check("eth1: access 10", "eth1", &["eth1 if1 up Dot1q pvid 10 tagged - untagged 10 mtu 1500 access"]);
        check(
            "eth1: access 10 shutdown protected block-unicast block-multicast no-learning",
            "eth1 mtu 9000",
            &[
                "eth1 if1 down Dot1q pvid 10 tagged - untagged 10 mtu 9000 access mute isolated no-unicast no-multicast",
            ],
        );
    }

    #[test]
    fn trunk() {
        let line = |rest: &str| format!("eth1 if1 up Dot1q {rest} mtu 1500");
        let all = line("pvid 1 tagged 2-4094 untagged 1");
        check("eth1: trunk", "eth1", &[&all]);
        for (words, want) in [
            ("allowed 1,10,20-30", "pvid 1 tagged 10,20-30 untagged 1"),
            ("allowed 10,20-30 native 20", "pvid 20 tagged 10,21-30 untagged 20"),
            // The native VLAN is not allowed, so untagged frames belong to no VLAN.
            ("allowed 10", "pvid - tagged 10 untagged -"),
            ("allowed none", "pvid - tagged - untagged -"),
        ] {
            check(&format!("eth1: trunk {words}"), "eth1", &[&line(want)]);
        }
        check("tag-native\neth1: trunk allowed 1,10", "eth1", &[&line("pvid - tagged 1,10 untagged -")]);
        let service = "eth1 if1 up Dot1ad pvid 1 tagged 10 untagged 1 mtu 1500";
        check("eth1: trunk allowed 1,10 tpid-88a8", "eth1", &[service]);
    }

    #[test]
    fn tunnel() {
        check("eth1: tunnel 7", "eth1", &["eth1 if1 up None pvid 7 tagged - untagged 7 mtu 1500"]);
        // A tunnel port ignores the TPID that is configured for a trunk.
        check("eth1: tunnel 7 tpid-88a8", "eth1", &["eth1 if1 up None pvid 7 tagged - untagged 7 mtu 1500"]);
    }

    #[test]
    fn up_needs_everything() {
        let want = |state: &str| format!("eth1 {state} Dot1q pvid 1 tagged - untagged 1 mtu 1500 access");
        for (links, state) in [
            ("eth1", "if1 up"),
            ("eth1 down", "if1 down"),
            ("eth1 no-carrier", "if1 down"),
            ("eth2", "if0 down"),
            ("eth1 master 9", "if0 down"),
        ] {
            check("eth1: access 1", links, &[&want(state)]);
        }
    }

    #[test]
    fn routed_and_unset_are_no_ports() {
        check(
            "eth1: routed\neth2: unset\neth10: access 1\neth9: access 1",
            "eth1, eth2, eth9, eth10",
            &[
                "eth9 if3 up Dot1q pvid 1 tagged - untagged 1 mtu 1500 access",
                "eth10 if4 up Dot1q pvid 1 tagged - untagged 1 mtu 1500 access",
            ],
        );
    }

    #[test]
    fn autostate() {
        let svi = |state: &str| {
            format!("ly10 {state} Dot1q pvid 10 tagged - untagged 10 mtu 1500 access mute no-unicast")
        };
        let both = "vlan10, ly10";
        for (text, links, state) in [
            ("vlan 10\nvlan10:", format!("{both}, eth1"), "if2 down"),
            ("vlan 10\nvlan10:\neth1: trunk", format!("{both}, eth1"), "if2 up"),
            ("vlan 10\nvlan10:\neth1: access 11", format!("{both}, eth1"), "if2 down"),
            ("vlan 10\nvlan10:\neth1: access 10", format!("{both}, eth1 no-carrier"), "if2 down"),
            ("vlan 10\nvlan10: shutdown\neth1: trunk", format!("{both}, eth1"), "if2 down"),
            ("vlan 10\nvlan10:\neth1: trunk", "vlan10 down, ly10, eth1".into(), "if2 down"),
            ("vlan 10 suspend\nvlan10:\neth1: trunk", format!("{both}, eth1"), "if2 down"),
            ("vlan10:\neth1: trunk", format!("{both}, eth1"), "if2 down"),
            ("vlan 10\nvlan10:\neth1: trunk", "eth1".into(), "if0 down"),
        ] {
            let config = config(text);
            let ports = PortIds::default().assign(port_names(&config)).expect("few ports");
            let state_made = compile(&config, &facts(&links), &ports, &identity());
            let port = ports.get("ly10").and_then(|port| state_made.ports.get(&port)).map(show);
            assert_eq!(port, Some(svi(state)), "{text} | {links}");
        }
    }

    #[test]
    fn addresses() {
        let text = "vlan 10\nvlan 11 shutdown\neth1: access 10\nvlan10:\nvlan11:\n\
            static 0200.0000.0001 10 eth1\nstatic 0200.0000.0002 10 drop\nstatic 0200.0000.0003 10 eth7\n\
            static 0200.0000.0004 11 eth1";
        let config = config(text);
        let ports = PortIds::default().assign(port_names(&config)).expect("few ports");
        let state = compile(&config, &facts("eth1"), &ports, &identity());
        let port = |name: &str| ports.get(name).expect("numbered");
        let ten = VlanId::new(10).expect("a VLAN");
        let want: BTreeMap<_, _> = [
            ((ten, MacAddr([2, 0, 0, 0, 0, 1])), FdbTarget::Static(port("eth1"))),
            ((ten, MacAddr([2, 0, 0, 0, 0, 2])), FdbTarget::Blackhole),
            ((ten, identity().vlan_mac(ten)), FdbTarget::SelfAddress(port("ly10"))),
        ]
        .into();
        assert_eq!(state.fdb, want);
    }

    #[test]
    fn vlans_and_globals() {
        let mut config = config("vlan 10\nvlan 11 suspend\nvlan 12 shutdown\nvlan 13");
        config.fdb.no_learning = "10".parse().expect("a list");
        config.fdb.vlan_limits.insert(VlanId::new(13).expect("a VLAN"), 5);
        config.fdb.limit = 77;
        config.reserved.insert(14, lanyard_pipeline::state::ReservedAction::Forward);
        let state = compile(&config, &Facts::default(), &PortIds::default(), &identity());
        let vlans: Vec<_> =
            state.vlans.iter().map(|(vlan, v)| (vlan.get(), v.learning, v.fdb_limit)).collect();
        assert_eq!(vlans, [(1, true, None), (10, false, None), (13, true, Some(5))]);
        assert_eq!(state.global.fdb_limit, 77);
        assert_eq!(state.global.reserved[14], lanyard_pipeline::state::ReservedAction::Forward);
        assert_eq!(state.global.reserved[0], GlobalState::default().reserved[0]);
    }

    #[test]
    fn a_thousand_ports_keep_their_numbers() {
        let text: String = (1..=1000).map(|n| format!("eth{n}: access 1\n")).collect();
        let config = config(&text);
        let ports = PortIds::default().assign(port_names(&config)).expect("1,000 ports");
        let state = compile(&config, &[link("eth5", 1)].into_iter().collect(), &ports, &identity());
        assert_eq!(PortIds::adopt(&state), ports);
    }
}
