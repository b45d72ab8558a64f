//! storm: limits the rate of broadcast, multicast and unknown unicast frames that each port receives (storm control).
//!
//! A frame over the rate is dropped before `learn`: in a loop its source address is not a station behind this port. Unicast is
//! unknown when the FDB has no entry for the destination and no router interface of the VLAN answers for it. As with traps, the
//! decision does not take the token: [`Policers::admit`] does, when the frame is processed and not only traced. A frame over the
//! rate is counted as received in its VLAN; no later stage processes it.

use super::parse::Parsed;
use super::route;
use super::vlan_ingress::Class;
use crate::Timestamp;
use crate::state::{PortKind, PortState, TrapRate};
use crate::tables::Tables;
use crate::tables::trap::TokenBucket;
use lanyard_types::{PortId, Rng, StormKind, StormLevel};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Levels by the number of the [`StormKind`].
type Levels = [Option<StormLevel>; StormKind::SLOTS];

/// Rates that a test's frames exceed.
pub(super) const LOW: Levels =
    [None, Some(StormLevel::Pps(10)), Some(StormLevel::Bps(8_000)), Some(StormLevel::Pps(100))];

/// Rates of a generated port: none, 0, or one that is never reached.
pub(super) fn random(rng: &mut Rng) -> Levels {
    let mut levels = Levels::default();
    for level in levels.iter_mut().skip(1) {
        let rates =
            [StormLevel::Pps(0), StormLevel::Pps(1_000_000), StormLevel::Bps(0), StormLevel::Bps(1 << 36)];
        *level = rng.pick(&rates).filter(|_| rng.below(4) == 0);
    }
    levels
}

/// The kind whose rate the frame counts against; `None` if the port has no rate for it, or the destination is known.
pub(super) fn run(tables: &Tables, ingress: &PortState, frame: &Parsed, class: &Class) -> Option<StormKind> {
    let levels = &ingress.stages.storm;
    if *levels == Levels::default() {
        return None;
    }
    let kind = match (frame.dst.is_broadcast(), frame.dst.is_group()) {
        (true, _) => StormKind::Broadcast,
        (_, true) => StormKind::Multicast,
        _ => StormKind::Unicast,
    };
    let routed = || {
        let rif =
            tables.rifs.on_vlan(tables.vlans.routed(class.vlan)).filter(|_| ingress.kind == PortKind::Netdev);
        rif.is_some_and(|(_, rif)| route::is_for(rif, frame.dst))
    };
    let known = kind == StormKind::Unicast && (tables.fdb.get(class.shared, frame.dst).is_some() || routed());
    levels[kind.index()].filter(|_| !known).map(|_| kind)
}

/// The buckets, at most one for each port and kind.
#[derive(Debug, Default)]
pub(crate) struct Policers(BTreeMap<(PortId, StormKind), Bucket>);

/// A token bucket whose depth is what the rate admits in one second.
#[derive(Debug)]
enum Bucket {
    Frames(TokenBucket),
    Bits(BitBucket),
}

/// A token bucket in bits. A frame passes while the bucket is not empty, and may leave it in debt: otherwise no frame longer
/// than one second's worth would ever pass.
#[derive(Debug)]
struct BitBucket {
    bps: u64,
    /// The level in bits x 10^9, so that refilling by nanoseconds is exact; negative while the bucket is in debt.
    level: i128,
    filled: Option<Timestamp>,
}

impl BitBucket {
    fn new(bps: u64) -> Self {
        Self { bps, level: i128::from(bps) * SECOND, filled: None }
    }
    fn take(&mut self, bytes: usize, now: Timestamp) -> bool {
        let elapsed_ns = self.filled.map_or(0, |filled| now.as_nanos().saturating_sub(filled.as_nanos()));
        self.filled = Some(self.filled.map_or(now, |filled| filled.max(now)));
        let full = i128::from(self.bps) * SECOND;
        self.level = (self.level + i128::from(elapsed_ns) * i128::from(self.bps)).min(full);
        let passes = self.level > 0;
        if passes {
            self.level -= bytes as i128 * 8 * SECOND;
        }
        passes
    }
}

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

impl Policers {
    /// Takes the tokens for a frame of `kind` and `bytes` bytes that `port` received; false if there are none.
    pub(crate) fn admit(
        &mut self,
        tables: &Tables,
        port: PortId,
        kind: StormKind,
        bytes: usize,
        now: Timestamp,
    ) -> bool {
        let level = tables.ports.get(port).and_then(|port| port.stages.storm[kind.index()]?.at_speed(None));
        let bucket = || match level? {
            StormLevel::Pps(rate_pps) => {
                Some(Bucket::Frames(TokenBucket::new(TrapRate { rate_pps, burst: rate_pps })))
            }
            StormLevel::Bps(bps) => Some(Bucket::Bits(BitBucket::new(bps))),
            StormLevel::Percent(_) => None,
        };
        let held = match self.0.entry((port, kind)) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(place) => match bucket() {
                Some(bucket) => place.insert(bucket),
                None => return true,
            },
        };
        match held {
            Bucket::Frames(bucket) => bucket.take(now),
            Bucket::Bits(bucket) => bucket.take(bytes, now),
        }
    }
    /// Removes the buckets of a port whose rates differ between `old` and `new`.
    pub(crate) fn change(&mut self, port: PortId, old: Option<&PortState>, new: Option<&PortState>) {
        for kind in StormKind::ALL {
            let level = |state: Option<&PortState>| state.and_then(|state| state.stages.storm[kind.index()]);
            if level(old) != level(new) {
                self.0.remove(&(port, *kind));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Levels;
    use crate::state::{PlaneState, PortState, VlanState};
    use crate::trace::Verdict;
    use crate::{Output, Pipeline, Timestamp};
    use lanyard_types::StormLevel::{Bps, Percent, Pps};
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
    fn pipeline(levels: Levels) -> Pipeline {
        let mut state = PlaneState::default();
        state.vlans.insert(VlanId::DEFAULT, VlanState::default());
        for n in 1..=2 {
            state.ports.insert(port(n), PortState::access(&format!("p{n}"), n.into(), VlanId::DEFAULT));
        }
        state.ports.get_mut(&port(1)).expect("port 1").stages.storm = levels;
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
        let mut pipeline = pipeline([None, Some(Pps(4)), None, None]);
        let times = [0, 0, 0, 0, 0, 249, 250, 251, 499, 500, 5000, 5000, 5000, 5000, 5000];
        let let_in = times.map(|ms| lets_in(&mut pipeline, ms, 1, MacAddr::BROADCAST, host(1)));
        let passed: Vec<usize> = (0..times.len()).filter(|n| let_in[*n]).collect();
        assert_eq!(passed, [0, 1, 2, 3, 6, 9, 10, 11, 12, 13]);
        let counters = pipeline.counters().port(port(1)).clone();
        assert_eq!((counters.forwarded, counters.dropped[DropReason::Storm.index()]), (10, 5));
    }

    #[test]
    fn storm_rates_apply_per_kind_and_not_to_known_unicast() {
        let mut pipeline = pipeline([None, Some(Pps(0)), None, Some(Bps(0))]);
        assert!(!lets_in(&mut pipeline, 0, 1, MacAddr::BROADCAST, host(1)));
        assert!(!lets_in(&mut pipeline, 0, 1, host(2), host(1)));
        assert!(pipeline.fdb().get(VlanId::DEFAULT, host(1)).is_none(), "a refused frame has taught the FDB");
        assert!(lets_in(&mut pipeline, 0, 1, GROUP, host(1)));
        assert!(lets_in(&mut pipeline, 0, 2, MacAddr::BROADCAST, host(2)), "the other port has no rate");
        assert!(lets_in(&mut pipeline, 0, 1, host(2), host(1)));
    }

    #[test]
    fn a_level_in_bits_counts_bytes_and_lets_long_frames_pass() {
        // 60 bytes are 480 bits, so that a second's worth is 10 frames.
        let mut pipeline = pipeline([None, Some(Bps(4_800)), None, None]);
        let broadcasts = |pipeline: &mut Pipeline, ms: u64, len: usize| -> usize {
            let frame = Builder::new(MacAddr::BROADCAST, host(1)).ethertype(0x88b5).pad(len).build();
            let now = Timestamp::from_nanos(ms * 1_000_000);
            let passes = |_: &usize| {
                pipeline.process(now, port(1), &frame, &mut Output::default()) == Verdict::Forwarded
            };
            (0..20).filter(passes).count()
        };
        assert_eq!(broadcasts(&mut pipeline, 0, 60), 10);
        assert_eq!(broadcasts(&mut pipeline, 100, 60), 1, "a tenth of a second lets one in");
        assert_eq!(broadcasts(&mut pipeline, 150, 60), 1, "half a token is enough, and leaves a debt");
        assert_eq!(broadcasts(&mut pipeline, 200, 60), 0, "which is paid first");
        // 1,500 bytes are 2.5 seconds' worth.
        assert_eq!(broadcasts(&mut pipeline, 9_000, 1_500), 1);
        assert_eq!(broadcasts(&mut pipeline, 10_400, 60), 0);
        assert_eq!(broadcasts(&mut pipeline, 10_600, 60), 1);
    }

    #[test]
    fn a_share_of_the_speed_is_a_rate() {
        assert_eq!(Percent(50).at_speed(Some(10_000)), Some(Bps(50_000_000)), "0.5 % of 10 Gbit/s");
        assert_eq!(Percent(0).at_speed(Some(10_000)), Some(Bps(0)));
        assert_eq!(Percent(10_000).at_speed(Some(10_000)), None, "100 % is no limit");
        assert_eq!(Percent(100).at_speed(None), Some(Bps(10_000_000)), "of 1 Gbit/s");
        assert_eq!(Pps(7).at_speed(Some(10)), Some(Pps(7)));
    }
}
