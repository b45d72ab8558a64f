//! bridge: where the destination is (IEEE 802.1Q-2018, 8.6.1 and 8.6.6): one port, or a flood.

use super::learn::Learn;
use super::parse::Parsed;
use super::trap::Tunnelled;
use super::vlan_ingress::Class;
use crate::state::PortState;
use crate::tables::Tables;
use crate::trace::{Fact, Flood, Notes, Verdict};
use lanyard_types::{DropReason, PortId, PortSet, Stage};

/// Where a frame is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Egress {
    /// To the one port its destination is at; what that port allows is not asked yet.
    Unicast(PortId),
    /// To these ports: members that are up, forwarding, and want such a flood.
    Flood(PortSet),
}

/// Looks the destination up. `from` is the port it came in at; `None` for a routed frame, which comes from the router: it
/// may leave by any port, and port isolation does not concern it. `tunnelled` is about a frame for the address of the tunnel:
/// ports that carry tunnels, but not of its protocol, are left out.
pub(super) fn run(
    tables: &Tables,
    from: Option<(PortId, &PortState)>,
    frame: &Parsed,
    class: &Class,
    learn: &Learn,
    tunnelled: Option<&Tunnelled>,
    notes: &mut Notes,
) -> Result<Egress, Verdict> {
    let dropped = |reason| Err(Verdict::Dropped(reason));
    if frame.dst.is_group() {
        let flood = if frame.dst.is_broadcast() {
            flood_set(tables, from, class)
        } else {
            flood_set(tables, from, class).intersection(&tables.ports.flood_multicast)
        };
        let flood = match tunnelled {
            Some(tunnelled) => flood.difference(&tunnelled.without),
            None => flood,
        };
        return flooded(Flood::of(frame.dst), flood, notes);
    }
    // The source has been learned by the time the destination is looked up: a frame to its own sender stays here.
    let learned = match learn {
        Learn::At { vlan, mac, port } if (*vlan, *mac) == (class.vlan, frame.dst) => Some(*port),
        _ => None,
    };
    let found = match (learned, tables.fdb.get(class.vlan, frame.dst)) {
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

/// Members of the VLAN that are enabled and forwarding, less the ingress and, for a protected ingress, the protected.
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
