//! bridge: looks the destination up (IEEE 802.1Q-2018, 8.6.1 and 8.6.6): one port, or a flood.

use super::learn::Learn;
use super::parse::Parsed;
use super::trap::Tunnelled;
use super::vlan_ingress::Class;
use crate::state::PortState;
use crate::tables::Tables;
use crate::trace::{Fact, Flood, Notes, Verdict};
use lanyard_types::{DropReason, PortId, PortSet, Stage};

/// The egress ports of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Egress {
    /// The port at which the destination is known; `vlan_egress` has not checked yet whether the frame may
    /// leave there.
    Unicast(PortId),
    /// A flood to these ports: members that are enabled, forwarding, and accept this class of flood.
    Flood(PortSet),
}

/// The limits of a flood besides the VLAN, spanning tree and the ports' own settings.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits<'a> {
    /// For a frame to the tunnel address: the tunnel ports that do not carry its protocol are left out.
    pub(super) tunnelled: Option<&'a Tunnelled>,
    /// For a frame to a multicast group: the ports to which it is limited; `None` if it is not limited.
    pub(super) members: Option<&'a PortSet>,
}

/// Looks the destination up. `from` is the ingress port, or `None` for a routed frame: it comes from the router, so it
/// may leave by any port, and port isolation does not apply.
pub(super) fn run(
    tables: &Tables,
    from: Option<(PortId, &PortState)>,
    frame: &Parsed,
    class: &Class,
    learn: &Learn,
    limits: Limits<'_>,
    notes: &mut Notes,
) -> Result<Egress, Verdict> {
    let dropped = |reason| Err(Verdict::Dropped(reason));
    if frame.dst.is_group() {
        let flood = if frame.dst.is_broadcast() {
            flood_set(tables, from, class)
        } else {
            flood_set(tables, from, class).intersection(&tables.ports.flood_multicast)
        };
        let flood = match limits.tunnelled {
            Some(tunnelled) => flood.difference(&tunnelled.without),
            None => flood,
        };
        let flood = match limits.members {
            Some(members) => flood.intersection(members),
            None => flood,
        };
        return flooded(Flood::of(frame.dst), flood, notes);
    }
    // The source counts as learned before the destination is looked up, so a frame to its own sender does not
    // leave.
    let learned = match learn {
        Learn::At { vlan, mac, port } if (*vlan, *mac) == (class.shared, frame.dst) => Some(*port),
        _ => None,
    };
    let found = match (learned, tables.fdb.get(class.shared, frame.dst)) {
        (Some(port), _) => Some(Some(port)),
        (None, found) => found.map(|found| found.port),
    };
    match found {
        Some(None) => dropped(DropReason::DestinationBlackhole),
        Some(Some(port)) => {
            notes.say(Stage::Bridge, || Fact::Destination { mac: frame.dst, on: tables.ports.name(port) });
            match from {
                Some((from, _)) if from == port => dropped(DropReason::SamePort),
                _ => Ok(Egress::Unicast(port)),
            }
        }
        None => {
            let flood = flood_set(tables, from, class).intersection(&tables.ports.flood_unicast);
            flooded(Flood::Unknown, flood, notes)
        }
    }
}

/// Members of the VLAN that are enabled and forwarding, without the ingress port and, if that is protected, without
/// the protected ports.
fn flood_set(tables: &Tables, from: Option<(PortId, &PortState)>, class: &Class) -> PortSet {
    let mut set = tables.vlans.members(class.vlan).intersection(&tables.ports.enabled);
    set = set.difference(&tables.stp.blocked(class.instance));
    if let Some((port, ingress)) = from {
        if ingress.isolated {
            set = set.difference(&tables.ports.isolated);
        }
        set.remove(port);
    }
    set
}

fn flooded(class: Flood, flood: PortSet, notes: &mut Notes) -> Result<Egress, Verdict> {
    let count = flood.len();
    notes.say(Stage::Bridge, || Fact::Flood { class, ports: count });
    if count == 0 { Err(Verdict::Dropped(DropReason::NoEgress)) } else { Ok(Egress::Flood(flood)) }
}
