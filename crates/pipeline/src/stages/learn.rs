//! learn: the source address teaches where it is (IEEE 802.1Q-2018, 8.7).
//!
//! A frame from an address that is to be dropped ends here whatever learning says. Frames from a VLAN interface teach
//! nothing: its addresses are the control plane's entries. A limit that is reached refuses the entry, not the
//! frame. In the spanning tree's learning state the frame ends here, having taught.

use super::Arrival;
use super::parse::Parsed;
use super::vlan_ingress::Class;
use crate::Timestamp;
use crate::state::{PortKind, PortState, StpState};
use crate::tables::Tables;
use crate::tables::fdb::{Fdb, FdbEvent, FdbKind, Found, Limit};
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, MacAddr, PortId, Stage, VlanId};

/// What becomes of a source address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learn {
    /// The FDB stays as it is.
    Nothing,
    /// The address is at this port now: a new entry, a refreshed or a moved one.
    At {
        /// The VLAN.
        vlan: VlanId,
        /// The address.
        mac: MacAddr,
        /// The port.
        port: PortId,
    },
    /// A limit keeps a new entry out, or keeps one where it was.
    Refused(Limit),
}

/// Decides what the source address teaches.
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
    // A move takes no more of the table or the VLAN than it had, so only the new port's limit can stop it.
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

/// Carries out what was decided.
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
