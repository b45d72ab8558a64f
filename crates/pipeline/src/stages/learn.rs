//! learn: enters the source address into the FDB (IEEE 802.1Q-2018, 8.7).
//!
//! A frame from an address with a drop entry is dropped even where learning is off. The addresses of a VLAN interface
//! are control-plane entries, so its frames are not learned. When a limit is reached, the entry is refused and the
//! frame goes on. In the spanning-tree state learning the address is learned and the frame is dropped.

use super::Arrival;
use super::parse::Parsed;
use super::vlan_ingress::Class;
use crate::Timestamp;
use crate::state::{PortKind, PortState, StpState};
use crate::tables::Tables;
use crate::tables::fdb::{Fdb, FdbEvent, FdbKind, Found, Limit};
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, MacAddr, PortId, Stage, VlanId};

/// What happens to the source address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learn {
    /// The FDB is not changed.
    Nothing,
    /// The address is at this port now: the entry is new, refreshed or moved.
    At {
        /// The VLAN.
        vlan: VlanId,
        /// The address.
        mac: MacAddr,
        /// The port.
        port: PortId,
    },
    /// A limit refuses a new entry, or keeps an entry at its old port.
    Refused(Limit),
}

/// Decides what happens to the source address.
pub(super) fn run(
    tables: &Tables,
    arrival: &Arrival<'_>,
    ingress: &PortState,
    frame: &Parsed,
    class: &Class,
    learn: &mut Learn,
    notes: &mut Notes,
) -> Result<(), Verdict> {
    let found = tables.fdb.get(class.vlan, frame.src);
    if found.is_some_and(|found| found.port.is_none()) {
        return Err(Verdict::Dropped(DropReason::SourceBlackhole));
    }
    let learning = tables.vlans.get(class.vlan).is_some_and(|vlan| vlan.learning);
    if !learning || !ingress.learning || matches!(ingress.kind, PortKind::Svi(_)) {
        notes.say(Stage::Learn, || Fact::LearningOff);
    } else {
        *learn = decide(tables, arrival.port, ingress, frame.src, class.vlan, found);
        notes.say(Stage::Learn, || fact(tables, ingress, frame.src, found, *learn));
    }
    if class.stp == StpState::Learning {
        return Err(Verdict::Dropped(DropReason::StpLearning));
    }
    Ok(())
}

fn decide(
    tables: &Tables,
    port: PortId,
    ingress: &PortState,
    mac: MacAddr,
    vlan: VlanId,
    found: Option<Found>,
) -> Learn {
    match found {
        Some(found) if found.kind != FdbKind::Dynamic => return Learn::Nothing,
        Some(found) if found.port == Some(port) => return Learn::At { vlan, mac, port },
        _ => {}
    }
    // A move adds no entry to the table or the VLAN, so only the limit of the new port can refuse it.
    let new = found.is_none();
    let fdb = &tables.fdb;
    let full = |count: u32, limit: Option<u32>| limit.is_some_and(|limit| count >= limit);
    if new && fdb.dynamic() >= u64::from(tables.trap.global().fdb_limit) {
        Learn::Refused(Limit::Table)
    } else if full(fdb.dynamic_at(port), ingress.fdb_limit) {
        Learn::Refused(Limit::Port)
    } else if new && full(fdb.dynamic_in(vlan), tables.vlans.get(vlan).and_then(|vlan| vlan.fdb_limit)) {
        Learn::Refused(Limit::Vlan)
    } else {
        Learn::At { vlan, mac, port }
    }
}

fn fact(tables: &Tables, ingress: &PortState, mac: MacAddr, found: Option<Found>, learn: Learn) -> Fact {
    let on = ingress.name.clone();
    let at = found.and_then(|found| found.port);
    match (learn, at) {
        (Learn::Refused(limit), _) => Fact::SourceRefused { mac, on, limit: limit.name() },
        (Learn::At { .. }, None) => Fact::SourceNew { mac, on },
        (Learn::At { port, .. }, Some(from)) if from == port => Fact::SourceKnown { mac, on },
        (Learn::At { .. }, Some(from)) => Fact::SourceMoved { mac, from: tables.ports.name(from), to: on },
        (Learn::Nothing, _) => Fact::SourceFixed { mac, kind: found.map_or("", |found| found.kind.name()) },
    }
}

/// Carries out the decision.
pub(crate) fn apply(fdb: &mut Fdb, learn: Learn, now: Timestamp) -> Option<FdbEvent> {
    match learn {
        Learn::Nothing => None,
        Learn::At { vlan, mac, port } => fdb.learn(vlan, mac, port, now),
        Learn::Refused(limit) => {
            fdb.refuse(limit);
            None
        }
    }
}
