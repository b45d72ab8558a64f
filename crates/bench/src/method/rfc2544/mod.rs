//! RFC 2544, section 26: throughput, latency, frame loss rate, back-to-back frames, system recovery, reset.
//!
//! Read first: the RFC, and those that update it: RFC 6201 (reset), RFC 9004 (back-to-back). Each file covers one or
//! two clauses. Invariant: the results state every departure from the RFC (durations, the meaning of 100 % without a
//! line rate).

mod burst;
mod latency;
mod rate;
mod recovery;
#[cfg(test)]
mod tests;

use super::flow::{Flows, Load, Pattern, Template};
use super::{Dut, Precision, Run};
use anyhow::Result;
use lanyard_tester::traffic::Stream;
use lanyard_tester::trial::Offer;
use std::collections::BTreeMap;

/// Frame sizes of section 9.1 with FCS, and the usual jumbo frame.
pub const SIZES: [usize; 8] = [64, 128, 256, 512, 1024, 1280, 1518, 9018];
/// The largest frame that every Ethernet carries.
const SIZE_ORDINARY: usize = 1518;

/// A test of the RFC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Test {
    /// 26.1: the fastest rate at which no frame is lost
    Throughput,
    /// 26.2: the latency at the throughput rate
    Latency,
    /// 26.3: the loss at loads from 100 % of the greatest rate down
    Loss,
    /// 26.4: the longest burst without loss
    Burst,
    /// 26.5: the recovery time when the load falls from 110 % of the throughput rate to half of that
    Recovery,
    /// 26.6: the time for which nothing is forwarded after a reset
    Reset,
}

impl Test {
    /// Every test, in the RFC's order.
    pub const ALL: [Self; 6] =
        [Self::Throughput, Self::Latency, Self::Loss, Self::Burst, Self::Recovery, Self::Reset];
}

/// The measurements to make.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The tests.
    pub tests: Vec<Test>,
    /// Frame sizes.
    pub sizes: Vec<usize>,
    /// The number of rounds.
    pub rounds: usize,
    /// How precisely to search.
    pub precision: Precision,
    /// The pairs of sender and receiver, one way or both.
    pub pattern: Pattern,
    /// Hosts behind each port.
    pub hosts: u32,
    /// The load of the latency test as a part of the throughput.
    pub latency_load: f64,
    /// Latency trials whose mean is a figure (the RFC wants 20).
    pub latency_trials: u32,
    /// The steps of the frame loss test, as a part of the greatest rate.
    pub loss_step: f64,
    /// True if the receiver checks every frame's payload.
    pub verify: bool,
}

impl Plan {
    /// Steps of the progress bar.
    #[must_use]
    pub fn steps(&self) -> usize {
        let each = self.tests.iter().filter(|test| **test != Test::Reset).count() * self.sizes.len();
        self.rounds * (each + usize::from(self.tests.contains(&Test::Reset)))
    }

    fn has(&self, test: Test) -> bool {
        self.tests.contains(&test)
    }

    /// The flows of a device at a frame size.
    fn flows(&self, dut: &mut Dut, size: usize) -> Flows {
        let ports = dut.subject.tester().ports();
        let routers = (0..ports).map(|port| dut.subject.router_mac(port)).collect();
        let stream = Stream { size, verify: self.verify, ..Stream::new() };
        Flows::of(self.pattern, ports, &Template { stream, hosts: self.hosts, routers })
    }
}

/// Results of one round that later tests of the round need: the throughput by device and frame size, in frames per second of
/// each sending port.
type Throughputs = BTreeMap<(usize, usize), f64>;

/// Measures the plan.
///
/// # Errors
/// On ctrl-C, or when no device is left; the results until then are in the run.
pub fn measure(run: &mut Run, plan: &Plan) -> Result<()> {
    let unable = unable(run, plan)?;
    for round in 0..plan.rounds {
        for size in &plan.sizes {
            let mut found = Throughputs::new();
            let carries = |index: usize| !unable.contains(&(index, *size));
            if plan.has(Test::Throughput) || needs_throughput(plan) {
                // Search from the start in every round: near the previous result, rounds would
                // agree with each other more than with the device.
                found = rate::throughput(run, plan, *size, carries)?;
                if plan.has(Test::Throughput) {
                    run.step()?;
                }
            }
            if plan.has(Test::Latency) {
                latency::latency(run, plan, *size, &found)?;
                run.step()?;
            }
            if plan.has(Test::Loss) {
                rate::loss(run, plan, *size, carries, round == 0)?;
                run.step()?;
            }
            if plan.has(Test::Burst) {
                burst::burst(run, plan, *size, carries, &found)?;
                run.step()?;
            }
            if plan.has(Test::Recovery) {
                recovery::recovery(run, plan, *size, &found)?;
                run.step()?;
            }
            if plan.has(Test::Reset) && Some(size) == plan.sizes.iter().min() {
                recovery::reset(run, plan, *size, &found)?;
                run.step()?;
            }
        }
    }
    Ok(())
}

fn needs_throughput(plan: &Plan) -> bool {
    [Test::Latency, Test::Recovery, Test::Reset].iter().any(|test| plan.has(*test))
}

/// The (device, size) pairs that cannot be measured because the device does not carry frames of
/// that size. They are reported, and the device does not count as broken.
fn unable(run: &mut Run, plan: &Plan) -> Result<Vec<(usize, usize)>> {
    let mut unable = Vec::new();
    for size in plan.sizes.iter().filter(|size| **size > SIZE_ORDINARY) {
        let refused = run.each(|dut, _| {
            let flows = plan.flows(dut, *size);
            let small = plan.flows(dut, 64);
            dut.learn(&small)?;
            let few = dut.timed(Offer::burst(flows.streams(Load::Rate(1000.0)), 20));
            match dut.offer(&few) {
                Ok(outcome) => Ok((flows.seen(&outcome).loss >= 1.0).then(|| "none arrives".to_owned())),
                Err(why) => {
                    lanyard_tester::os::check_interrupted()?;
                    Ok(Some(format!("{why:#}")))
                }
            }
        })?;
        for (index, why) in refused.into_iter().enumerate() {
            if let Some(Some(why)) = why {
                let name = run.name(index).to_owned();
                run.results.note(format!("{name}: no frames of {size} B: {why}"));
                unable.push((index, *size));
            }
        }
    }
    Ok(unable)
}

/// The frames of a stream that pass in this time at this rate, for results that are counted in frames.
fn frames_in(rate: f64, seconds: f64) -> f64 {
    (rate * seconds).floor().max(1.0)
}
