//! RFC 2889, section 5: meshed traffic, congestion, the maximum forwarding rate, addresses, errored frames, broadcast.
//!
//! Read first: the RFC, and RFC 2285 for its terms. Related clauses share a file. Invariant: where the bed makes a
//! figure meaningless (no line: no forward pressure, no congested port, no check sequence), the report says so and has
//! no figure.

mod addresses;
mod forwarding;
mod frames;
#[cfg(test)]
mod tests;

use super::flow::{Flows, Pattern, Template};
use super::{Dut, Figure, Precision, Run};
use crate::report::Unit;
use crate::report::{Axis, Better};
use anyhow::Result;
use lanyard_tester::traffic::Stream;
use std::time::Duration;

/// Frame sizes of section 4 with FCS: those of RFC 2544.
pub const SIZES: [usize; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// A test of the RFC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Test {
    /// 5.1: every port to every other
    Mesh,
    /// 5.2: one port to all others
    OneToMany,
    /// 5.2: all others to one port
    ManyToOne,
    /// 5.4: half of the ports to the other half
    Unidirectional,
    /// 5.5: a congested port beside one that is not (needs a line rate)
    Congestion,
    /// 5.6: the maximum forwarding rate at any load (forward pressure can't be measured from Linux)
    MaxRate,
    /// 5.7: how many addresses it learns
    Capacity,
    /// 5.8: how fast it learns them
    LearningRate,
    /// 5.9: frames that are too short or too long
    Errored,
    /// 5.10: broadcast forwarding and its latency
    Broadcast,
}

impl Test {
    /// Every test, in the RFC's order.
    pub const ALL: [Self; 10] = [
        Self::Mesh,
        Self::OneToMany,
        Self::ManyToOne,
        Self::Unidirectional,
        Self::Congestion,
        Self::MaxRate,
        Self::Capacity,
        Self::LearningRate,
        Self::Errored,
        Self::Broadcast,
    ];

    /// True for those that are measured at every frame size.
    #[must_use]
    pub const fn by_size(self) -> bool {
        !matches!(self, Self::Capacity | Self::LearningRate | Self::Errored)
    }

    /// The least number of ports for this test.
    #[must_use]
    pub const fn ports(self) -> usize {
        match self {
            Self::Mesh | Self::OneToMany | Self::ManyToOne | Self::Capacity | Self::LearningRate => 3,
            Self::Congestion | Self::Unidirectional => 4,
            Self::MaxRate | Self::Errored | Self::Broadcast => 2,
        }
    }
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
    /// Hosts behind each port.
    pub hosts: u32,
    /// The most addresses that are tried.
    pub addresses: u32,
    /// Addresses per second while the capacity is searched.
    pub learning_pps: u32,
    /// The time for which the device remembers an address, where there is no way to make it forget.
    pub ageing: Duration,
    /// The steps down from the maximum load, as a part of it.
    pub load_step: f64,
}

impl Plan {
    /// Steps of the progress bar.
    #[must_use]
    pub fn steps(&self) -> usize {
        let by_size = self.tests.iter().filter(|test| test.by_size()).count();
        self.rounds * (by_size * self.sizes.len() + self.tests.len() - by_size)
    }

    fn template(&self, dut: &mut Dut, size: usize) -> Template {
        let ports = dut.subject.tester().ports();
        let routers = (0..ports).map(|port| dut.subject.router_mac(port)).collect();
        Template { stream: Stream { size, ..Stream::new() }, hosts: self.hosts, routers }
    }

    fn flows(&self, dut: &mut Dut, pattern: Pattern, size: usize) -> Flows {
        let ports = dut.subject.tester().ports();
        Flows::of(pattern, ports, &self.template(dut, size))
    }
}

/// Measures the plan.
///
/// # Errors
/// On ctrl-C, or when no device is left; the results until then are in the run.
pub fn measure(run: &mut Run, plan: &Plan) -> Result<()> {
    let ports = run.each(|dut, _| Ok(dut.subject.tester().ports()))?;
    let ports = ports.into_iter().flatten().min().unwrap_or(0);
    let (tests, too_many): (Vec<Test>, Vec<Test>) = plan.tests.iter().partition(|test| test.ports() <= ports);
    for test in too_many {
        run.results.note(format!(
            "{}: not measured: needs {} ports, there are {ports}",
            name(test),
            test.ports()
        ));
    }
    run.results.note(
        "5.3, partially meshed multiple devices: not measured: it takes two devices joined to each other, and each here is \
         alone",
    );
    for round in 0..plan.rounds {
        for size in &plan.sizes {
            for test in tests.iter().filter(|test| test.by_size()) {
                match test {
                    Test::Mesh => forwarding::meshed(run, plan, *size, Pattern::Mesh)?,
                    Test::OneToMany => forwarding::meshed(run, plan, *size, Pattern::OneToMany)?,
                    Test::ManyToOne => forwarding::meshed(run, plan, *size, Pattern::ManyToOne)?,
                    Test::Unidirectional => forwarding::meshed(run, plan, *size, Pattern::Halves)?,
                    Test::Congestion => forwarding::congestion(run, *size)?,
                    Test::MaxRate => forwarding::maximum(run, plan, *size)?,
                    Test::Broadcast => frames::broadcast(run, plan, *size)?,
                    Test::Capacity | Test::LearningRate | Test::Errored => continue,
                }
                run.step()?;
            }
        }
        let mut capacities = vec![None; run.devices()];
        if tests.contains(&Test::Capacity) {
            capacities = addresses::capacity(run, plan)?;
            run.step()?;
        }
        if tests.contains(&Test::LearningRate) {
            addresses::learning_rate(run, plan, &capacities)?;
            run.step()?;
        }
        if tests.contains(&Test::Errored) {
            frames::errored(run, round == 0)?;
            run.step()?;
        }
    }
    Ok(())
}

/// The name of a test in notes.
fn name(test: Test) -> &'static str {
    match test {
        Test::Mesh => "5.1, fully meshed traffic",
        Test::OneToMany => "5.2, one to many",
        Test::ManyToOne => "5.2, many to one",
        Test::Unidirectional => "5.4, unidirectional traffic",
        Test::Congestion => "5.5, congestion control",
        Test::MaxRate => "5.6, maximum forwarding rate",
        Test::Capacity => "5.7, address caching capacity",
        Test::LearningRate => "5.8, address learning rate",
        Test::Errored => "5.9, errored frames filtering",
        Test::Broadcast => "5.10, broadcast forwarding and latency",
    }
}

/// The description of a figure that is a rate by frame size.
fn rate<'a>(test: &'a str, clause: &'a str, size: usize) -> Figure<'a> {
    Figure {
        test,
        case: "",
        clause,
        unit: Unit::FramesPerSecond,
        better: Better::Higher,
        at: Some((Axis::FrameBytes, size as f64)),
    }
}
