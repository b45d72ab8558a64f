//! Monitor sessions (SPAN, RSPAN): what `monitor session` means for the plane.
//!
//! Invariants: a destination is in no VLAN and in no tree, and is no source. A session copies nothing while it lacks sources or
//! destinations. A source or destination that is no port is left out until it becomes one.

use crate::membership::membership;
use crate::ports::PortIds;
use crate::refused::Refused;
use lanyard_config::{
    Config, Interface, InterfaceName, MonitorDirection, MonitorSession, Role, SwitchportMode,
};
use lanyard_pipeline::state::{Aggregation, PlaneState, PortKind};
use lanyard_types::{MirrorCopy, PortId, PortMirror, VlanId, VlanSet};
use std::collections::{BTreeMap, BTreeSet};

/// The switch ports that are destinations.
pub(crate) fn destinations(config: &Config) -> impl Iterator<Item = &InterfaceName> {
    let is_port = |name: &&InterfaceName| {
        config.interfaces.get(name).is_some_and(|interface| interface.role == Role::Switchport)
    };
    config.monitor.values().flat_map(|session| &session.destinations).filter(is_port)
}

/// Makes the ports of `state` sources and destinations.
pub(crate) fn overlay(config: &Config, ids: &PortIds, state: &mut PlaneState) {
    for name in destinations(config) {
        let Some(port) = ids.get(&name.to_string()).and_then(|id| state.ports.get_mut(&id)) else { continue };
        let sessions = config.monitor.values();
        let remote =
            sessions.filter(|session| session.destinations.contains(name)).find_map(|s| s.remote_source);
        (port.pvid, port.tagged, port.untagged) = (None, VlanSet::EMPTY, remote.into_iter().collect());
        port.stages.mirror.destination = true;
    }
    for session in config.monitor.values() {
        for (id, copies) in copies(config, session, ids, state) {
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
    session: &MonitorSession,
    ids: &PortIds,
    state: &PlaneState,
) -> BTreeMap<PortId, Vec<MirrorCopy>> {
    let id = |name: &InterfaceName| ids.get(&name.to_string()).filter(|id| state.ports.contains_key(id));
    let remote = session.remote_destination;
    let to: Vec<PortId> = match remote {
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

/// The places to which a session copies each frame.
fn destinations_of(next: &Config, session: &MonitorSession) -> usize {
    session.remote_destination.map_or(session.destinations.len(), |vlan| trunks(next, vlan).count())
}

/// Refuses a port with more copies than a plane makes. The sources of a session of VLANs are all switch ports here.
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

/// The directions of sources.
const DIRECTIONS: [MonitorDirection; 3] =
    [MonitorDirection::Rx, MonitorDirection::Tx, MonitorDirection::Both];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{compile, port_names};
    use crate::testing::{config as parse, facts, identity};
    use lanyard_config::Interface;
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
        let mut state = compile(config, &facts("eth1, eth2, eth3, eth9"), &ids, &identity());
        overlay(config, &ids, &mut state);
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
                    flag(copy.keep_tag, " keep"),
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
    fn what_no_session_can_do_is_refused() {
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
