//! sample: draws received frames at random, each independently with the chance of its port, for the control plane (sFlow).
//!
//! All frames of an enabled port are considered that `parse` and `mirror` let through, also those that a later stage drops. A
//! member of a port-channel is sampled by its own settings. The report of a sample has the number of frames that were considered
//! since the last one, so that the receiver knows exactly of how many frames it was drawn. Samples over the rate are counted,
//! and reported with the next one. Invariant: the stage changes nothing for the frame.

use super::Arrival;
use crate::Timestamp;
use crate::state::{PlaneState, PortKind};
use crate::tables::Tables;
use lanyard_types::{PortId, Rng, SamplingRate};
use std::collections::BTreeMap;

/// A frame that was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The port that received it.
    pub port: PortId,
    /// The number of frames, this one included, that were considered since the port's last sample.
    pub pool: u32,
    /// The number of samples since then that were discarded because they exceeded the rate.
    pub drops: u32,
}

/// The state that the stage keeps between frames.
#[derive(Debug)]
pub(super) struct Sampler {
    rng: Rng,
    /// The theoretical arrival time of the next sample, in nanoseconds.
    arrival_ns: u64,
    /// By port: frames considered, and samples lost, since the last report.
    counts: BTreeMap<PortId, (u32, u32)>,
}

impl Sampler {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(!seed), arrival_ns: 0, counts: BTreeMap::new() }
    }
    /// Counts a frame, and returns its sample if it is drawn and the rate allows one.
    pub(super) fn draw(&mut self, port: PortId, rate: SamplingRate, now: Timestamp) -> Option<Sample> {
        let (pool, drops) = self.counts.entry(port).or_default();
        *pool = pool.wrapping_add(1);
        if self.rng.next_u64() >> 32 >= rate.chance() {
            return None;
        }
        let now_ns = now.as_nanos();
        let at_ns = self.arrival_ns.max(now_ns);
        if at_ns - now_ns > (SamplingRate::BURST - 1) * SamplingRate::INTERVAL_NS {
            *drops = drops.wrapping_add(1);
            return None;
        }
        self.arrival_ns = at_ns + SamplingRate::INTERVAL_NS;
        let sample = Sample { port, pool: *pool, drops: *drops };
        (*pool, *drops) = (0, 0);
        Some(sample)
    }
    /// Forgets a port that was removed.
    pub(super) fn forget(&mut self, port: PortId) {
        self.counts.remove(&port);
    }
}

/// The port at which a received frame may be sampled, and the rate.
pub(super) fn run(tables: &Tables, arrival: &Arrival<'_>) -> Option<(PortId, SamplingRate)> {
    let port = tables.ports.get(arrival.port).filter(|port| port.enabled)?;
    port.stages.sample.map(|rate| (arrival.port, rate))
}

/// Samples every frame at some ports of a generated state.
pub(super) fn randomise(rng: &mut Rng, plane: &mut PlaneState) {
    let sampled = rng.percent(33);
    for port in plane.ports.values_mut().filter(|_| sampled) {
        if matches!(port.kind, PortKind::Netdev | PortKind::Routed) && rng.percent(50) {
            port.stages.sample = SamplingRate::new(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{PortState, VlanState};
    use crate::trace::Verdict;
    use crate::{Output, Pipeline};
    use lanyard_types::{DropReason, MacAddr, VlanId};
    use lanyard_wire::Builder;

    fn port(n: u16) -> PortId {
        PortId::new(n).expect("a port")
    }

    fn pipeline(rate: u32, enabled: bool) -> Pipeline {
        let mut state = PlaneState::default();
        let vlan = VlanId::new(10).expect("a VLAN");
        state.vlans.insert(vlan, VlanState::default());
        for n in 1..=2 {
            state.ports.insert(port(n), PortState::access(&format!("p{n}"), n.into(), vlan));
        }
        let sampled = state.ports.get_mut(&port(1)).expect("it");
        (sampled.stages.sample, sampled.enabled) = (SamplingRate::new(rate), enabled);
        let mut pipeline = Pipeline::new(7);
        pipeline.set_state(&state, Timestamp::default(), &mut |_| {});
        pipeline
    }

    fn frame(len: usize) -> Vec<u8> {
        let frame = Builder::new(MacAddr::BROADCAST, MacAddr([2, 0, 0, 0, 0, 1]));
        frame.ethertype(0x88b5).payload(&vec![5; len - 14]).build()
    }

    /// Sends `count` frames into a port, one each `every_ns` nanoseconds; returns the samples.
    fn send(pipeline: &mut Pipeline, from: u16, count: u64, every_ns: u64) -> Vec<(Sample, usize, Vec<u8>)> {
        let mut out = Output::default();
        for n in 0..count {
            pipeline.process(Timestamp::from_nanos(n * every_ns), port(from), &frame(1000), &mut out);
        }
        out.sampled
    }

    #[test]
    fn one_frame_in_so_many_is_drawn() {
        const FRAMES: u64 = 200_000;
        for rate in [2_u32, 10, 100] {
            let samples = send(&mut pipeline(rate, true), 1, FRAMES, SamplingRate::INTERVAL_NS);
            let mean = FRAMES as f64 / f64::from(rate);
            // Five standard deviations of a binomial distribution.
            let most = 5.0 * (mean * (1.0 - 1.0 / f64::from(rate))).sqrt();
            assert!((samples.len() as f64 - mean).abs() < most, "1 in {rate}: {}", samples.len());
            let pool: u64 = samples.iter().map(|(sample, ..)| u64::from(sample.pool)).sum();
            assert!(pool <= FRAMES && pool + 100 * u64::from(rate) > FRAMES, "1 in {rate}: pool {pool}");
            assert!(samples.iter().all(|(sample, ..)| sample.drops == 0));
        }
    }

    #[test]
    fn a_sample_has_the_length_and_the_head_of_the_frame() {
        let samples = send(&mut pipeline(1, true), 1, 1, 0);
        assert_eq!(
            samples,
            [(Sample { port: port(1), pool: 1, drops: 0 }, 1000, frame(1000)[..128].to_vec())]
        );
        assert_eq!(send(&mut pipeline(1, true), 2, 5, 0), [], "the other port is not sampled");
        assert_eq!(send(&mut pipeline(1, false), 1, 5, 0), [], "nor is a port that is down");
    }

    #[test]
    fn samples_over_the_rate_are_counted() {
        let mut pipeline = pipeline(1, true);
        let samples = send(&mut pipeline, 1, SamplingRate::BURST + 5, 0);
        assert_eq!(samples.len() as u64, SamplingRate::BURST);
        let mut out = Output::default();
        pipeline.process(Timestamp::from_secs(1), port(1), &frame(60), &mut out);
        assert_eq!(out.sampled[0].0, Sample { port: port(1), pool: 6, drops: 5 });
    }

    #[test]
    fn frames_that_are_dropped_are_sampled() {
        let mut state_frame = frame(60);
        state_frame[12..16].copy_from_slice(&[0x81, 0, 0, 30]);
        let mut out = Output::default();
        let verdict = pipeline(1, true).process(Timestamp::from_secs(1), port(1), &state_frame, &mut out);
        assert_eq!(verdict, Verdict::Dropped(DropReason::TaggedOnAccess));
        assert_eq!(out.sampled.len(), 1);
    }
}
