//! learn: enters the source address into the FDB (IEEE 802.1Q-2018, 8.7).
//!
//! A frame from an address with a drop entry is dropped even where learning is off. The addresses of a VLAN interface
//! are control-plane entries, so its frames are not learned. When a limit is reached, the entry is refused and the
//! frame goes on. In the spanning-tree state learning the address is learned and the frame is dropped.
//!
//! At a port with port security a frame goes on only if its source has an entry at this port, or gets one. The limit of the
//! port is the number of addresses that may still be learned; the control plane replaces what was learned by entries of its
//! own and lowers the limit. An address that was learned at such a port does not move, so that no other port takes it over
//! in between.

use super::Arrival;
use super::parse::Parsed;
use super::vlan_ingress::Class;
use crate::Timestamp;
use crate::state::{PortKind, PortState, StpState};
use crate::tables::Tables;
use crate::tables::fdb::{Fdb, FdbEvent, FdbKind, Found, Limit};
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, MacAddr, PortId, Stage, VlanId};
use std::collections::BTreeMap;

/// The treatment of the source address.
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
    /// The port has port security, and the address is not one of its own.
    Violation {
        /// The VLAN.
        vlan: VlanId,
        /// The address.
        mac: MacAddr,
        /// The port.
        port: PortId,
        /// The limit that refused an entry; `None` if the address cannot have one here.
        limit: Option<Limit>,
    },
}

/// The time between two reports of violations of port security at one port, in nanoseconds.
pub const VIOLATION_INTERVAL_NS: u64 = 250_000_000;

/// When the next violation may be reported, at most one entry for each port.
#[derive(Debug, Default)]
pub(crate) struct Reports(BTreeMap<PortId, u64>);

impl Reports {
    /// Returns the violation of port security if `learn` is one and the port may report one again.
    pub(crate) fn admit(&mut self, learn: Learn, now: Timestamp) -> Option<(PortId, VlanId, MacAddr)> {
        let Learn::Violation { vlan, mac, port, .. } = learn else { return None };
        let next_ns = self.0.entry(port).or_default();
        if now.as_nanos() < *next_ns {
            return None;
        }
        *next_ns = now.as_nanos() + VIOLATION_INTERVAL_NS;
        Some((port, vlan, mac))
    }
    /// Forgets a port that is removed.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.0.remove(&port);
    }
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
    let found = tables.fdb.get(class.shared, frame.src);
    if found.is_some_and(|found| found.port.is_none()) {
        return Err(Verdict::Dropped(DropReason::SourceBlackhole));
    }
    let learning = tables.vlans.get(class.vlan).is_some_and(|vlan| vlan.learning);
    if !learning || !ingress.learning || matches!(ingress.kind, PortKind::Svi(_)) {
        notes.say(Stage::Learn, || Fact::LearningOff);
    } else {
        *learn = decide(tables, arrival.port, ingress, frame.src, class.shared, found);
        notes.say(Stage::Learn, || fact(tables, ingress, frame.src, found, *learn));
    }
    let here = found.is_some_and(|found| found.port == Some(arrival.port));
    if ingress.stages.secure && !here && !matches!(learn, Learn::At { .. }) {
        let limit = if let Learn::Refused(limit) = learn { Some(*limit) } else { None };
        *learn = Learn::Violation { vlan: class.shared, mac: frame.src, port: arrival.port, limit };
        return Err(Verdict::Dropped(DropReason::PortSecurity));
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
        Some(found) if is_secure(tables, found.port) => return Learn::Nothing,
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

fn is_secure(tables: &Tables, port: Option<PortId>) -> bool {
    port.and_then(|port| tables.ports.get(port)).is_some_and(|port| port.stages.secure)
}

fn fact(tables: &Tables, ingress: &PortState, mac: MacAddr, found: Option<Found>, learn: Learn) -> Fact {
    let on = ingress.name.clone();
    let at = found.and_then(|found| found.port);
    match (learn, at) {
        (Learn::Refused(limit), _) => Fact::SourceRefused { mac, on, limit: limit.name() },
        (Learn::At { .. }, None) => Fact::SourceNew { mac, on },
        (Learn::At { port, .. }, Some(from)) if from == port => Fact::SourceKnown { mac, on },
        (Learn::At { .. }, Some(from)) => Fact::SourceMoved { mac, from: tables.ports.name(from), to: on },
        (Learn::Nothing | Learn::Violation { .. }, _) => {
            Fact::SourceFixed { mac, kind: found.map_or("", |found| found.kind.name()) }
        }
    }
}

/// Carries out the decision.
pub(crate) fn apply(fdb: &mut Fdb, learn: Learn, now: Timestamp) -> Option<FdbEvent> {
    match learn {
        Learn::Nothing | Learn::Violation { limit: None, .. } => None,
        Learn::At { vlan, mac, port } => fdb.learn(vlan, mac, port, now),
        Learn::Refused(limit) | Learn::Violation { limit: Some(limit), .. } => {
            fdb.refuse(limit);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{FdbTarget, PlaneState, VlanState};
    use crate::{Output, Pipeline};
    use lanyard_wire::Builder;

    const SECURE: u16 = 1;
    const OTHER: u16 = 2;
    const SECURE_TOO: u16 = 3;

    fn port(n: u16) -> PortId {
        PortId::new(n).expect("a port")
    }

    fn host(n: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, n])
    }

    /// Three access ports. Ports 1 and 3 have port security: port 1 has the static address of host 9 and may learn one more, port
    /// 3 may learn `limit` addresses.
    fn state(limit: u32) -> PlaneState {
        let mut state = PlaneState::default();
        state.vlans.insert(VlanId::DEFAULT, VlanState::default());
        for n in 1..=3 {
            let mut to = PortState::access(&format!("p{n}"), n.into(), VlanId::DEFAULT);
            to.stages.secure = n != OTHER;
            to.fdb_limit = (n != OTHER).then_some(if n == SECURE { 1 } else { limit });
            state.ports.insert(port(n), to);
        }
        state.fdb.insert((VlanId::DEFAULT, host(9)), FdbTarget::Static(port(SECURE)));
        state
    }

    fn pipeline(limit: u32) -> Pipeline {
        let mut pipeline = Pipeline::new(0);
        pipeline.set_state(&state(limit), Timestamp::default(), &mut |_| {});
        pipeline
    }

    /// Processes a broadcast from `src` at port `at`. Returns true if it is forwarded and false if port security drops it, with
    /// the output.
    fn passes(pipeline: &mut Pipeline, ms: u64, at: u16, src: MacAddr) -> (bool, Output) {
        let frame = Builder::new(MacAddr::BROADCAST, src).ethertype(0x88b5).build();
        let mut out = Output::default();
        let now = Timestamp::from_nanos(ms * 1_000_000);
        match pipeline.process(now, port(at), &frame, &mut out) {
            Verdict::Forwarded => (true, out),
            verdict => {
                assert_eq!(verdict, Verdict::Dropped(DropReason::PortSecurity), "from {src} at {at}");
                (false, out)
            }
        }
    }

    #[test]
    fn a_secure_port_accepts_its_own_addresses_and_as_many_others_as_its_limit() {
        let mut pipeline = pipeline(1);
        let mut accepts = |src: u8| passes(&mut pipeline, 0, SECURE, host(src)).0;
        assert!(accepts(9), "a static address");
        assert!(accepts(1) && accepts(1), "the first other one, and again");
        assert!(!accepts(2) && !accepts(3), "more than the limit");
        assert!(accepts(1) && accepts(9), "violations displace nothing");
        assert!(pipeline.fdb().get(VlanId::DEFAULT, host(2)).is_none());
        assert!(passes(&mut pipeline, 0, OTHER, host(2)).0, "other ports accept everything");
    }

    #[test]
    fn an_address_of_a_secure_port_does_not_move() {
        let mut pipeline = pipeline(8);
        assert!(passes(&mut pipeline, 0, SECURE, host(1)).0);
        for src in [1, 9] {
            assert!(!passes(&mut pipeline, 0, SECURE_TOO, host(src)).0, "to another secure port");
            assert!(passes(&mut pipeline, 0, OTHER, host(src)).0, "another port forwards the frame");
            let found = pipeline.fdb().get(VlanId::DEFAULT, host(src)).expect("an entry");
            assert_eq!(found.port, Some(port(SECURE)));
        }
        assert!(passes(&mut pipeline, 0, OTHER, host(4)).0);
        assert!(passes(&mut pipeline, 0, SECURE_TOO, host(4)).0, "an address of another port moves here");
    }

    #[test]
    fn a_secure_port_that_cannot_learn_accepts_static_addresses_only() {
        let mut pipeline = pipeline(1);
        let mut change = |edit: &dyn Fn(&mut PlaneState)| {
            let mut next = state(1);
            edit(&mut next);
            pipeline.set_state(&next, Timestamp::default(), &mut |_| {});
            (passes(&mut pipeline, 0, SECURE, host(5)).0, passes(&mut pipeline, 0, SECURE, host(9)).0)
        };
        let first =
            |state: &mut PlaneState| state.ports.get_mut(&port(SECURE)).expect("port 1").learning = false;
        assert_eq!(change(&first), (false, true), "no learning at the port");
        let vlan = |state: &mut PlaneState| {
            state.vlans.insert(VlanId::DEFAULT, VlanState { learning: false, ..VlanState::default() });
        };
        assert_eq!(change(&vlan), (false, true), "no learning in the VLAN");
        assert_eq!(change(&|state| state.global.fdb_limit = 0), (false, true), "the table is full");
        assert_eq!(change(&|_| {}), (true, true));
    }

    #[test]
    fn violations_are_reported_four_times_a_second() {
        let mut pipeline = pipeline(0);
        let reported = |(passes, out): (bool, Output)| {
            assert!(!passes);
            out.violations
        };
        let of = |src: u8| vec![(port(SECURE_TOO), VlanId::DEFAULT, host(src))];
        assert_eq!(reported(passes(&mut pipeline, 0, SECURE_TOO, host(1))), of(1));
        assert_eq!(reported(passes(&mut pipeline, 249, SECURE_TOO, host(2))), []);
        assert_eq!(reported(passes(&mut pipeline, 250, SECURE_TOO, host(3))), of(3));
        let count = pipeline.counters().port(port(SECURE_TOO)).dropped[DropReason::PortSecurity.index()];
        assert_eq!(count, 3, "all are counted");
    }
}
