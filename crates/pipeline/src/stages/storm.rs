//! storm: limits the rate of broadcast, multicast and unknown unicast frames that each port receives (storm control).
//!
//! A frame over the rate is dropped before `learn`: in a loop its source address is not a station behind this port. Unicast is
//! unknown when the FDB has no entry for the destination and no router interface of the VLAN answers for it. As with traps, the
//! decision does not take the token: [`Policers::admit`] does, when the frame is really processed. A frame over the rate was
//! received in its VLAN, and nothing else becomes of it.

use super::parse::Parsed;
use super::route;
use super::vlan_ingress::Class;
use crate::Timestamp;
use crate::state::{PortKind, PortState, TrapRate};
use crate::tables::Tables;
use crate::tables::trap::TokenBucket;
use lanyard_types::{PortId, Rng, StormKind};
use std::collections::BTreeMap;

/// Frames per second by the number of the [`StormKind`].
type Rates = [Option<u32>; StormKind::SLOTS];

/// Rates that a test's frames exceed.
pub(super) const LOW: Rates = [None, Some(10), Some(4), Some(100)];

/// Rates of a generated port: none, 0, or one that is never reached.
pub(super) fn random(rng: &mut Rng) -> Rates {
    let mut rates = Rates::default();
    for pps in rates.iter_mut().skip(1) {
        *pps = rng.pick(&[None, None, None, None, None, None, Some(0), Some(1_000_000)]).flatten();
    }
    rates
}

/// The kind whose rate the frame counts against; `None` where the port has no rate for it.
pub(super) fn run(tables: &Tables, ingress: &PortState, frame: &Parsed, class: &Class) -> Option<StormKind> {
    let rates = &ingress.stages.storm_pps;
    if *rates == Rates::default() {
        return None;
    }
    let kind = match (frame.dst.is_broadcast(), frame.dst.is_group()) {
        (true, _) => StormKind::Broadcast,
        (_, true) => StormKind::Multicast,
        _ => StormKind::Unicast,
    };
    let routed = || {
        let rif = tables.rifs.on_vlan(class.vlan).filter(|_| ingress.kind == PortKind::Netdev);
        rif.is_some_and(|(_, rif)| route::is_for(rif, frame.dst))
    };
    let known = kind == StormKind::Unicast && (tables.fdb.get(class.vlan, frame.dst).is_some() || routed());
    rates[kind.index()].filter(|_| !known).map(|_| kind)
}

/// The token buckets, at most one for each port and kind. A bucket holds at most the frames of one second.
#[derive(Debug, Default)]
pub(crate) struct Policers(BTreeMap<(PortId, StormKind), TokenBucket>);

impl Policers {
    /// Takes a token for a frame of `kind` that came in at `port`; false when there is none.
    pub(crate) fn admit(&mut self, tables: &Tables, port: PortId, kind: StormKind, now: Timestamp) -> bool {
        let Some(rate_pps) = tables.ports.get(port).and_then(|port| port.stages.storm_pps[kind.index()])
        else {
            return true;
        };
        let full = || TokenBucket::new(TrapRate { rate_pps, burst: rate_pps });
        self.0.entry((port, kind)).or_insert_with(full).take(now)
    }
    /// Removes the buckets of a port whose rates differ between `old` and `new`.
    pub(crate) fn change(&mut self, port: PortId, old: Option<&PortState>, new: Option<&PortState>) {
        for kind in StormKind::ALL {
            let pps =
                |state: Option<&PortState>| state.and_then(|state| state.stages.storm_pps[kind.index()]);
            if pps(old) != pps(new) {
                self.0.remove(&(port, *kind));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rates;
    use crate::state::{PlaneState, PortState, VlanState};
    use crate::trace::Verdict;
    use crate::{Output, Pipeline, Timestamp};
    use lanyard_types::{DropReason, MacAddr, PortId, VlanId};
    use lanyard_wire::Builder;

    const GROUP: MacAddr = MacAddr([1, 0, 0x5e, 1, 2, 3]);

    fn port(n: u16) -> PortId {
        PortId::new(n).expect("a port")
    }

    fn host(n: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, n])
    }

    /// A pipeline with two access ports, the first of which has these rates.
    fn pipeline(rates: Rates) -> Pipeline {
        let mut state = PlaneState::default();
        state.vlans.insert(VlanId::DEFAULT, VlanState::default());
        for n in 1..=2 {
            state.ports.insert(port(n), PortState::access(&format!("p{n}"), n.into(), VlanId::DEFAULT));
        }
        state.ports.get_mut(&port(1)).expect("port 1").stages.storm_pps = rates;
        let mut pipeline = Pipeline::new(0);
        pipeline.set_state(&state, Timestamp::default(), &mut |_| {});
        pipeline
    }

    /// True when a frame is admitted at `ms`; the only possible reason for a refusal is the rate.
    fn lets_in(pipeline: &mut Pipeline, ms: u64, at: u16, dst: MacAddr, src: MacAddr) -> bool {
        let frame = Builder::new(dst, src).ethertype(0x88b5).build();
        let now = Timestamp::from_nanos(ms * 1_000_000);
        let mut out = Output::default();
        match pipeline.process(now, port(at), &frame, &mut out) {
            Verdict::Dropped(reason) => {
                assert_eq!((reason, out), (DropReason::Storm, Output::default()));
                false
            }
            _ => true,
        }
    }

    #[test]
    fn a_second_s_worth_passes_at_once_and_then_the_rate() {
        let mut pipeline = pipeline([None, Some(4), None, None]);
        let times = [0, 0, 0, 0, 0, 249, 250, 251, 499, 500, 5000, 5000, 5000, 5000, 5000];
        let let_in = times.map(|ms| lets_in(&mut pipeline, ms, 1, MacAddr::BROADCAST, host(1)));
        let passed: Vec<usize> = (0..times.len()).filter(|n| let_in[*n]).collect();
        assert_eq!(passed, [0, 1, 2, 3, 6, 9, 10, 11, 12, 13]);
        let counters = pipeline.counters().port(port(1)).clone();
        assert_eq!((counters.forwarded, counters.dropped[DropReason::Storm.index()]), (10, 5));
    }

    #[test]
    fn each_kind_has_its_own_rate_and_what_is_known_has_none() {
        let mut pipeline = pipeline([None, Some(0), None, Some(0)]);
        assert!(!lets_in(&mut pipeline, 0, 1, MacAddr::BROADCAST, host(1)));
        assert!(!lets_in(&mut pipeline, 0, 1, host(2), host(1)));
        assert!(pipeline.fdb().get(VlanId::DEFAULT, host(1)).is_none(), "a refused frame has taught the FDB");
        assert!(lets_in(&mut pipeline, 0, 1, GROUP, host(1)));
        assert!(lets_in(&mut pipeline, 0, 2, MacAddr::BROADCAST, host(2)), "the other port has no rate");
        assert!(lets_in(&mut pipeline, 0, 1, host(2), host(1)));
    }
}
