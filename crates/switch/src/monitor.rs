//! Monitor sessions (SPAN, RSPAN, ERSPAN): what `monitor session` means for the plane.
//!
//! Invariants: a destination is in no VLAN and in no tree, and is no source. A session copies nothing while it lacks sources or
//! destinations. A source or destination that is no port is left out until it becomes one. The destination of an ERSPAN session
//! is a port without a line of the configuration: a netdev of the daemon's, which is given to no other use.

use crate::actions::{Action, LinkSettings};
use crate::facts::{Facts, LinkFacts};
use crate::membership::membership;
pub use crate::names::erspan_netdev;
use crate::ports::PortIds;
use crate::refused::Refused;
use lanyard_config::{
    Config, ErspanSource, Interface, InterfaceName, MonitorDirection, MonitorSession, Role, SwitchportMode,
};
use lanyard_pipeline::state::{Aggregation, Delivery, PlaneState, PortKind, PortState};
use lanyard_types::{MirrorCopy, PortId, PortMirror, VlanId, VlanSet};
use std::collections::{BTreeMap, BTreeSet};

/// The switch ports that are destinations.
pub(crate) fn destinations(config: &Config) -> impl Iterator<Item = &InterfaceName> {
    let is_port = |name: &&InterfaceName| {
        config.interfaces.get(name).is_some_and(|interface| interface.role == Role::Switchport)
    };
    config.monitor.values().flat_map(|session| &session.destinations).filter(is_port)
}

/// The longest layer-3 packet of a frame for an ERSPAN session in bytes: the most that a TAP takes.
const ERSPAN_NETDEV_MTU: u32 = 65_521;

/// The change that makes a session's netdev take copies: up, for frames of any length, and the kernel's stack sends nothing on
/// it.
#[must_use]
pub fn prepare_erspan(found: &LinkFacts) -> Action {
    let from = LinkSettings::of(found);
    let to = LinkSettings { up: true, mtu: ERSPAN_NETDEV_MTU, host: found.host.silenced(), ..from.clone() };
    Action::Link { name: found.name.clone(), from, to }
}

/// Adds the ports of ERSPAN sessions.
fn add_erspan_ports(config: &Config, facts: &Facts, ids: &PortIds, state: &mut PlaneState) {
    for (number, _) in config.erspan_tunnels() {
        let name = erspan_netdev(number);
        let Some(id) = ids.get(&name) else { continue };
        let link = facts.usable(&name);
        let mut port = PortState {
            enabled: link.is_some_and(LinkFacts::forwards),
            learning: false,
            flood_unicast: false,
            flood_multicast: false,
            mtu: link.map_or(1500, |link| link.mtu).clamp(68, 65_535),
            delivery: Delivery::Device,
            ..PortState::new(&name, link.map_or(0, |link| link.ifindex))
        };
        (port.pvid, port.tagged, port.untagged) = (None, VlanSet::EMPTY, VlanSet::EMPTY);
        port.stages.mirror.destination = true;
        state.ports.insert(id, port);
    }
}

/// Makes the ports of `state` sources and destinations.
pub(crate) fn overlay(config: &Config, facts: &Facts, ids: &PortIds, state: &mut PlaneState) {
    add_erspan_ports(config, facts, ids, state);
    for name in destinations(config) {
        let Some(port) = ids.get(&name.to_string()).and_then(|id| state.ports.get_mut(&id)) else { continue };
        let sessions = config.monitor.values();
        let remote =
            sessions.filter(|session| session.destinations.contains(name)).find_map(|s| s.remote_source);
        (port.pvid, port.tagged, port.untagged) = (None, VlanSet::EMPTY, remote.into_iter().collect());
        port.stages.mirror.destination = true;
    }
    for (number, session) in &config.monitor {
        for (id, copies) in copies(config, (*number, session), ids, state) {
            if let Some(port) = state.ports.get_mut(&id) {
                let held = &mut port.stages.mirror.copies;
                held.extend(copies);
                held.truncate(PortMirror::MAX);
            }
        }
    }
}

/// The copies of a session, by source.
fn copies(
    config: &Config,
    (number, session): (u16, &MonitorSession),
    ids: &PortIds,
    state: &PlaneState,
) -> BTreeMap<PortId, Vec<MirrorCopy>> {
    let id = |name: &InterfaceName| ids.get(&name.to_string()).filter(|id| state.ports.contains_key(id));
    let remote = session.remote_destination;
    let name_vlan = session.erspan.is_some();
    let to: Vec<PortId> = match remote {
        None if name_vlan => id(&InterfaceName::Netdev(erspan_netdev(number))).into_iter().collect(),
        None => session.destinations.iter().filter_map(id).collect(),
        Some(vlan) => trunks(config, vlan).filter_map(id).collect(),
    };
    let copy = |direction: MonitorDirection, vlans: Option<VlanSet>| {
        let (received, sent, keep_tag) = (direction.receives(), direction.sends(), session.keep_tag);
        to.iter().map(move |to| MirrorCopy {
            to: *to,
            received,
            sent,
            vlans: vlans.clone(),
            keep_tag,
            remote,
            name_vlan,
        })
    };
    let mut made: BTreeMap<PortId, Vec<MirrorCopy>> = BTreeMap::new();
    for (name, direction) in &session.interfaces {
        let sources: Vec<PortId> = match name.channel() {
            Some(channel) => config.members(channel).filter_map(|(name, _)| id(name)).collect(),
            None => id(name).into_iter().collect(),
        };
        for source in sources {
            made.entry(source).or_default().extend(copy(*direction, session.filter.clone()));
        }
    }
    for direction in DIRECTIONS {
        let of = session.vlans.iter().filter(|(_, d)| **d == direction).map(|(vlan, _)| *vlan);
        let vlans: VlanSet = of.collect();
        if vlans.is_empty() {
            continue;
        }
        for (source, _) in state.ports.iter().filter(|(id, _)| carries(state, **id, &vlans)) {
            made.entry(*source).or_default().extend(copy(direction, Some(vlans.clone())));
        }
    }
    // A trunk that carries both the source and the RSPAN VLAN does not send copies of its own frames to itself.
    for (source, copies) in &mut made {
        copies.retain(|copy| copy.to != *source);
    }
    made
}

/// The trunks by which copies leave for an RSPAN VLAN: ports in no port-channel that carry it and are no source of a session
/// with this destination.
fn trunks(config: &Config, vlan: VlanId) -> impl Iterator<Item = &InterfaceName> {
    let carries = move |(name, interface): &(&InterfaceName, &Interface)| {
        let trunk = interface.role == Role::Switchport
            && interface.switchport.mode == SwitchportMode::Trunk
            && interface.aggregation.group.is_none();
        let mut sessions = config.monitor.values().filter(|session| session.remote_destination == Some(vlan));
        trunk
            && name.channel().is_none()
            && membership(&interface.switchport, config.tag_native).tagged.contains(vlan)
            && !sessions.any(|session| session.interfaces.contains_key(*name))
    };
    config.interfaces.iter().filter(carries).map(|(name, _)| name)
}

/// True for a netdev that carries one of these VLANs: itself, or as a member of a port-channel.
fn carries(state: &PlaneState, id: PortId, vlans: &VlanSet) -> bool {
    let Some(port) = state.ports.get(&id) else { return false };
    let of = match port.aggregation {
        Aggregation::None => port,
        Aggregation::Channel(_) => return false,
        Aggregation::Member { of, .. } => state.ports.get(&of).unwrap_or(port),
    };
    let carried = |set: &VlanSet| !set.intersection(vlans).is_empty();
    port.kind == PortKind::Netdev && (carried(&of.tagged) || carried(&of.untagged))
}

/// Checks the sessions of `next`.
///
/// # Errors
/// When a session has interfaces and VLANs as sources, a port is source and destination or the destination of two sessions, a
/// destination is a port-channel, a member of one, or no switch port, or a port is the source of too many copies.
pub(crate) fn check(next: &Config) -> Result<(), Refused> {
    if next.monitor.is_empty() {
        return Ok(());
    }
    let mut seen: BTreeMap<&InterfaceName, u16> = BTreeMap::new();
    for (number, session) in &next.monitor {
        if !session.interfaces.is_empty() && !session.vlans.is_empty() {
            return Err(Refused::MonitorSources { session: *number });
        }
        remote(next, *number, session)?;
        erspan(next, *number, session)?;
        erspan_destination(next, *number, session)?;
        for name in &session.destinations {
            if let Some(other) = seen.insert(name, *number) {
                return Err(Refused::MonitorTwice { interface: name.to_string(), session: other });
            }
            let interface = next.interfaces.get(name);
            let routed = interface.is_some_and(|it| !matches!(it.role, Role::Switchport | Role::Unset));
            let member = interface.is_some_and(|it| it.aggregation.group.is_some());
            if name.channel().is_some() || member || routed || matches!(name, InterfaceName::Vlan(_)) {
                return Err(Refused::MonitorDestination { interface: name.to_string() });
            }
        }
    }
    let sources: BTreeSet<_> = next.monitor.values().flat_map(|session| session.interfaces.keys()).collect();
    if let Some(name) = seen.keys().find(|name| sources.contains(*name)) {
        return Err(Refused::MonitorSourceAndDestination { interface: name.to_string() });
    }
    too_many(next)
}

/// Checks the RSPAN VLANs of a session.
fn remote(next: &Config, number: u16, of: &MonitorSession) -> Result<(), Refused> {
    let others = !of.interfaces.is_empty() || !of.vlans.is_empty() || of.filter.is_some() || of.keep_tag;
    if of.remote_source.is_some() && (others || of.remote_destination.is_some()) {
        return Err(Refused::MonitorRemoteSource { session: number });
    }
    if of.remote_destination.is_some() && !of.destinations.is_empty() {
        return Err(Refused::MonitorRemoteDestination { session: number });
    }
    for vlan in of.remote_source.into_iter().chain(of.remote_destination) {
        if !next.vlans.get(&vlan).is_some_and(|vlan| vlan.remote_span) {
            return Err(Refused::MonitorRemoteVlan { session: number, vlan: vlan.get() });
        }
    }
    Ok(())
}

/// Refuses an ERSPAN destination session with the identifier, the address and the VRF of an earlier session.
fn erspan_destination(next: &Config, number: u16, of: &MonitorSession) -> Result<(), Refused> {
    let Some(own) = &of.erspan_destination else { return Ok(()) };
    let is_same = |(other, session): &(&u16, &MonitorSession)| {
        let from = session.erspan_destination.as_ref();
        **other < number
            && from.is_some_and(|it| (it.id, it.address, &it.vrf) == (own.id, own.address, &own.vrf))
    };
    match (own.id.zip(own.address), next.monitor.iter().find(is_same)) {
        (Some((id, address)), Some((other, _))) => {
            Err(Refused::ErspanDestinationId { session: number, id, address, other: *other })
        }
        _ => Ok(()),
    }
}

/// Refuses an ERSPAN source session whose netdev is configured for another use, or with the identifier and the collector of an
/// earlier session.
fn erspan(next: &Config, number: u16, of: &MonitorSession) -> Result<(), Refused> {
    let Some(own) = &of.erspan else { return Ok(()) };
    let name = erspan_netdev(number);
    let interface = next.interfaces.get(&InterfaceName::Netdev(name.clone()));
    if interface.is_some_and(|interface| interface.role != Role::Unset) {
        return Err(Refused::InTheWay(name));
    }
    // A collector distinguishes sessions by the identifier. The same address in another VRF is another collector.
    let is_own = |it: &ErspanSource| (it.id, it.destination, &it.vrf) == (own.id, own.destination, &own.vrf);
    let is_same = |(other, session): &(&u16, &MonitorSession)| {
        **other < number && session.erspan.as_ref().is_some_and(is_own)
    };
    match (own.id.zip(own.destination), next.monitor.iter().find(is_same)) {
        (Some((id, destination)), Some((other, _))) => {
            Err(Refused::ErspanId { session: number, id, destination, other: *other })
        }
        _ => Ok(()),
    }
}

/// The number of ports to which a session copies each frame.
fn destinations_of(next: &Config, session: &MonitorSession) -> usize {
    if let Some(erspan) = &session.erspan {
        return usize::from(erspan.tunnel().is_some());
    }
    session.remote_destination.map_or(session.destinations.len(), |vlan| trunks(next, vlan).count())
}

/// Refuses a configuration in which a port needs more copies of a frame than a plane makes. A session with VLANs as sources
/// counts as if every switch port were a source.
fn too_many(next: &Config) -> Result<(), Refused> {
    let mut everywhere = 0;
    let mut own: BTreeMap<&InterfaceName, usize> = BTreeMap::new();
    for session in next.monitor.values() {
        let used = |wanted| session.vlans.values().any(|direction| *direction == wanted);
        let directions = DIRECTIONS.into_iter().filter(|direction| used(*direction)).count();
        everywhere += directions * destinations_of(next, session);
        for name in session.interfaces.keys() {
            let members = name.channel().into_iter().flat_map(|channel| next.members(channel));
            for source in std::iter::once(name).chain(members.map(|(name, _)| name)) {
                *own.entry(source).or_default() += destinations_of(next, session);
            }
        }
    }
    let (interface, most_of_one) = match own.into_iter().max_by_key(|(_, count)| *count) {
        Some((name, count)) => (name.to_string(), count),
        None => ("a port".to_owned(), 0),
    };
    let count = everywhere + most_of_one;
    if count > PortMirror::MAX {
        return Err(Refused::MonitorCopies { interface, count, most: PortMirror::MAX });
    }
    Ok(())
}

/// The directions in which a source can be copied.
const DIRECTIONS: [MonitorDirection; 3] =
    [MonitorDirection::Rx, MonitorDirection::Tx, MonitorDirection::Both];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{compile, port_names};
    use crate::facts::HostStack;
    use crate::testing::{config as parse, facts, identity};
    use lanyard_config::{ErspanDestination, Interface};
    use lanyard_types::VlanId;

    fn netdev(name: &str) -> InterfaceName {
        InterfaceName::Netdev(name.into())
    }

    /// Four ports: eth1 and eth2 in VLAN 10, the trunk eth3, and eth9.
    fn config() -> Config {
        parse("vlan 10\nvlan 20\neth1: access 10\neth2: access 10\neth3: trunk\neth9: access 20")
    }

    /// Session 1 with these sources (`eth1 rx`) and eth9 as the destination.
    fn session(config: &mut Config, interfaces: &[(&str, MonitorDirection)]) {
        let session = config.monitor.entry(1).or_default();
        session.interfaces = interfaces.iter().map(|(name, direction)| (netdev(name), *direction)).collect();
        session.destinations = [netdev("eth9")].into();
    }

    /// The plane state, with a line for each source: `eth1: eth9 rx tx vlans 10 keep`.
    fn state(config: &Config) -> (PlaneState, PortIds, Vec<String>) {
        let ids = PortIds::default().assign(port_names(config)).expect("few ports");
        let facts = facts("eth1, eth2, eth3, eth9, lyerspan2 mtu 65521");
        let mut state = compile(config, &facts, &ids, &identity());
        overlay(config, &facts, &ids, &mut state);
        let mut lines = Vec::new();
        for port in state.ports.values() {
            for copy in &port.stages.mirror.copies {
                let flag = |on: bool, word: &'static str| if on { word } else { "" };
                lines.push(format!(
                    "{}: {}{}{}{}{}",
                    port.name,
                    ids.name(copy.to).expect("a port"),
                    flag(copy.received, " rx"),
                    flag(copy.sent, " tx"),
                    copy.vlans.as_ref().map_or(String::new(), |vlans| format!(" vlans {vlans}")),
                    flag(copy.keep_tag, " keep").to_owned() + flag(copy.name_vlan, " named"),
                ));
            }
        }
        (state, ids, lines)
    }

    #[test]
    fn sources_copy_to_the_destination_which_is_in_no_vlan() {
        let mut config = config();
        session(&mut config, &[("eth1", MonitorDirection::Rx), ("eth3", MonitorDirection::Both)]);
        let (state, ids, lines) = self::state(&config);
        assert_eq!(lines, ["eth1: eth9 rx", "eth3: eth9 rx tx"]);
        let eth9 = &state.ports[&ids.get("eth9").expect("a port")];
        assert!(eth9.stages.mirror.destination && eth9.enabled);
        assert!(eth9.pvid.is_none() && eth9.untagged.is_empty() && eth9.tagged.is_empty());
        let kept = config.monitor.get_mut(&1).expect("it");
        (kept.keep_tag, kept.filter) = (true, Some("10,20".parse().expect("a list")));
        assert_eq!(
            self::state(&config).2,
            ["eth1: eth9 rx vlans 10,20 keep", "eth3: eth9 rx tx vlans 10,20 keep"]
        );
    }

    #[test]
    fn vlans_mean_the_ports_that_carry_them() {
        let mut config = config();
        session(&mut config, &[]);
        let vlan = |n| VlanId::new(n).expect("a VLAN");
        let both = MonitorDirection::Both;
        config.monitor.get_mut(&1).expect("it").vlans =
            [(vlan(10), MonitorDirection::Rx), (vlan(20), both)].into();
        let want = [
            "eth1: eth9 rx vlans 10",
            "eth2: eth9 rx vlans 10",
            "eth3: eth9 rx vlans 10",
            "eth3: eth9 rx tx vlans 20",
        ];
        assert_eq!(state(&config).2, want, "the destination, which was in VLAN 20, is no source");
    }

    /// Session 2, an ERSPAN session that lacks nothing.
    fn erspan(config: &mut Config) -> &mut ErspanSource {
        let address = |n| Some(std::net::Ipv4Addr::new(10, 0, 0, n));
        let (id, destination, origin) = (Some(7), address(2), address(1));
        let erspan = ErspanSource { enabled: true, id, destination, origin, ..ErspanSource::default() };
        let session = config.monitor.entry(2).or_default();
        session.interfaces = [(netdev("eth1"), MonitorDirection::Both)].into();
        session.erspan.insert(erspan)
    }

    #[test]
    fn an_erspan_session_copies_to_its_netdev_while_it_lacks_nothing() {
        let mut config = config();
        session(&mut config, &[("eth1", MonitorDirection::Rx)]);
        erspan(&mut config);
        let (state, ids, lines) = self::state(&config);
        assert_eq!(lines, ["eth1: eth9 rx", "eth1: lyerspan2 rx tx named"]);
        let port = &state.ports[&ids.get("lyerspan2").expect("a port")];
        assert!(port.enabled && port.stages.mirror.destination && !port.learning && port.mtu == 65_521);
        assert!(port.pvid.is_none() && port.untagged.is_empty() && port.tagged.is_empty());
        assert_eq!(check(&config), Ok(()));
        for lacking in [
            |erspan: &mut ErspanSource| erspan.enabled = false,
            |erspan: &mut ErspanSource| erspan.id = None,
            |erspan: &mut ErspanSource| erspan.destination = None,
            |erspan: &mut ErspanSource| erspan.origin = None,
        ] {
            lacking(erspan(&mut config));
            let (state, ids, lines) = self::state(&config);
            assert_eq!(lines, ["eth1: eth9 rx"]);
            assert_eq!((ids.get("lyerspan2"), state.ports.len()), (None, 4), "no netdev");
        }
    }

    #[test]
    fn an_erspan_session_with_a_duplicate_id_or_netdev_is_refused() {
        let mut config = config();
        let one = erspan(&mut config).clone();
        let sessions = &mut config.monitor;
        sessions.insert(3, MonitorSession { erspan: Some(one), ..MonitorSession::default() });
        let refused = check(&config).expect_err("the same").to_string();
        assert!(refused.contains("monitor session 2") && refused.contains("erspan-id 7"), "{refused}");
        config.monitor.get_mut(&3).and_then(|it| it.erspan.as_mut()).expect("it").id = Some(8);
        assert_eq!(check(&config), Ok(()));
        config.interfaces.insert(netdev("lyerspan2"), config.interfaces[&netdev("eth1")].clone());
        assert!(check(&config).expect_err("the netdev").to_string().contains("lyerspan2"));
    }

    #[test]
    fn an_erspan_destination_session_makes_its_ports_destinations_and_shares_no_identifier() {
        let mut config = config();
        let from = ErspanDestination {
            enabled: true,
            id: Some(7),
            address: Some(std::net::Ipv4Addr::LOCALHOST),
            vrf: None,
        };
        let destinations = [netdev("eth9")].into();
        let one =
            MonitorSession { destinations, erspan_destination: Some(from), ..MonitorSession::default() };
        let other = MonitorSession { destinations: BTreeSet::new(), ..one.clone() };
        config.monitor.insert(4, one);
        assert_eq!(check(&config), Ok(()));
        let (state, ids, lines) = self::state(&config);
        assert_eq!(lines, [""; 0], "it copies no frame of a port");
        let eth9 = &state.ports[&ids.get("eth9").expect("a port")];
        assert!(eth9.stages.mirror.destination && eth9.pvid.is_none());
        config.monitor.insert(5, other);
        let refused = check(&config).expect_err("the same").to_string();
        assert!(refused.contains("monitor session 4") && refused.contains("erspan-id 7"), "{refused}");
        let fifth = |config: &mut Config| config.monitor.get_mut(&5)?.erspan_destination.take();
        let from = fifth(&mut config).expect("it");
        let apart = ErspanDestination { vrf: Some("red".into()), ..from };
        config.monitor.get_mut(&5).expect("it").erspan_destination = Some(apart);
        assert_eq!(check(&config), Ok(()), "an address of a VRF is another address");
    }

    #[test]
    fn the_netdev_of_an_erspan_session_is_silent_and_takes_long_frames() {
        let found = LinkFacts { name: "lyerspan2".into(), mtu: 1500, ..LinkFacts::default() };
        let from = LinkSettings::of(&found);
        let host = HostStack { ipv6_disabled: true, arp_ignore: 8, ..found.host };
        let to = LinkSettings { up: true, mtu: 65_521, host, ..from.clone() };
        assert_eq!(prepare_erspan(&found), Action::Link { name: "lyerspan2".into(), from, to });
    }

    #[test]
    fn a_port_channel_means_its_members() {
        let mut config = config();
        let channel = lanyard_types::ChannelId::new(1).expect("a port-channel");
        let of_channel = InterfaceName::of_channel(channel);
        config.interfaces.insert(of_channel.clone(), config.interfaces[&netdev("eth1")].clone());
        for name in ["eth1", "eth2"] {
            let port: &mut Interface = config.interfaces.get_mut(&netdev(name)).expect("a port");
            port.aggregation.group = Some((channel, lanyard_lacp::Mode::On));
        }
        session(&mut config, &[(&of_channel.to_string(), MonitorDirection::Tx)]);
        assert_eq!(state(&config).2, ["eth1: eth9 tx", "eth2: eth9 tx"]);
        assert_eq!(check(&config), Ok(()));
        config.monitor.get_mut(&1).expect("it").destinations = [netdev("eth1")].into();
        assert!(check(&config).expect_err("a member").to_string().contains("eth1"));
    }

    #[test]
    fn invalid_monitor_sessions_are_refused() {
        let refused = |change: fn(&mut Config), want: &str| {
            let mut config = config();
            session(&mut config, &[("eth1", MonitorDirection::Both)]);
            assert_eq!(check(&config), Ok(()));
            change(&mut config);
            let got = check(&config).expect_err(want).to_string();
            assert!(got.contains(want), "{got}");
        };
        refused(
            |config| {
                let vlan = (VlanId::DEFAULT, MonitorDirection::Rx);
                config.monitor.get_mut(&1).expect("it").vlans = [vlan].into();
            },
            "interfaces and VLANs",
        );
        refused(
            |config| _ = config.monitor.get_mut(&1).expect("it").destinations.insert(netdev("eth1")),
            "eth1 is a source",
        );
        refused(
            |config| {
                let destinations = [netdev("eth9")].into();
                config.monitor.insert(2, MonitorSession { destinations, ..MonitorSession::default() });
            },
            "session 1",
        );
        refused(
            |config| config.interfaces.get_mut(&netdev("eth9")).expect("it").role = Role::Routed,
            "eth9 cannot be a destination",
        );
        refused(
            |config| {
                let more = (4..9).map(|n| netdev(&format!("eth{n}")));
                config.monitor.get_mut(&1).expect("it").destinations.extend(more);
            },
            "6 copies",
        );
    }
}
