//! The search for the greatest load that a device takes. It runs no trials itself: [`Search::next`] names the next
//! load, and [`Search::record`] takes the result of the trial.
//!
//! Read first: RFC 2544, 26.1 (throughput: the fastest rate at which no frame is lost); MLRsearch
//! (draft-ietf-bmwg-mlrsearch), from which two ideas are taken. First, the rate that an overloaded device forwards is
//! the best first guess at its throughput. Second, a load is judged by several trials, because on a computer with other
//! work any single trial may lose a frame. Invariant: the answer has passed, and a load at most one step above it has
//! failed, by a majority of trials each. The search ends for every device. A trial that lost frames while the
//! hypervisor had taken a processor from this machine is repeated.

/// The range of a search, its precision, and when to give up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The greatest possible load (a line's rate); `None`: the greatest that the tester can offer.
    pub max: Option<f64>,
    /// The least load that is tried.
    pub min: f64,
    /// The precision of the search, as a part of the load: 0.01 is one percent.
    pub resolution: f64,
    /// The part of the frames that may be lost in a trial that passes. RFC 2544 allows none.
    pub tolerance: f64,
    /// Trials that agree before a load is judged: 1 is RFC 2544's search, 2 is the best of three.
    pub votes: u32,
    /// The most trials of the search.
    pub trials: u32,
    /// True if loads are whole numbers: bursts, addresses.
    pub whole: bool,
}

impl Limits {
    /// No loss, a precision of one percent, best of three, 60 trials.
    #[must_use]
    pub const fn new(min: f64) -> Self {
        Self { max: None, min, resolution: 0.01, tolerance: 0.0, votes: 2, trials: 60, whole: false }
    }
}

/// The next step of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Run a trial at this load; `None` is the greatest load that the tester can offer.
    Try(Option<f64>),
    /// The search is over.
    Done(Found),
}

/// The result of a trial, in the unit of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// The load that was actually offered.
    pub offered: f64,
    /// The load that arrived.
    pub delivered: f64,
    /// The part of the frames that was lost, 0..=1. It is separate from the loads, because a single lost frame matters.
    pub loss: f64,
    /// The part of the trial in which a processor was taken from this machine.
    pub stolen: f64,
}

impl Seen {
    /// The result of a trial without steal time.
    #[must_use]
    pub const fn new(offered: f64, delivered: f64, loss: f64) -> Self {
        Self { offered, delivered, loss, stolen: 0.0 }
    }
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With the requested precision.
    Settled,
    /// The device takes the greatest load that the tester, or the line, can offer.
    Limit,
    /// The device loses frames at the least load.
    NothingPasses,
    /// The trials are used up.
    GaveUp,
}

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// The greatest load that passed; 0 when none did.
    pub load: f64,
    /// The distance from `load` to the least load that failed: how precisely `load` is known. 0 for [`End::Limit`].
    pub step: f64,
    /// How it ended.
    pub end: End,
    /// The number of trials.
    pub trials: u32,
}

/// A trial that lost this part of its frames decides alone, however many votes are required: no disturbance
/// of the machine causes so much loss.
const GROSS_LOSS: f64 = 0.25;
/// If less than this part of the load was offered, the trial shows the limit of the tester, not of the
/// device.
const OFFERED_ENOUGH: f64 = 0.98;
/// If the tester offered less than [`OFFERED_ENOUGH`] of a load in this many trials, it cannot offer the load. In fewer trials,
/// another process may have had the tester's core.
const SHORT_TRIALS: u32 = 5;

/// Trials that lost frames during steal time do not count against the device. A search may repeat one in this many of its trials
/// for this reason; constant steal time is part of the measurement.
const STOLEN_PART: u32 = 4;

/// The first jump while only one bound is known, in steps of the resolution, and the factor by which each further jump
/// grows. A bad guess then costs few trials, and a good one hardly any.
const FIRST_JUMP: f64 = 2.0;
const FARTHER: f64 = 3.0;

/// One search.
#[derive(Debug, Clone)]
pub struct Search {
    limits: Limits,
    /// The greatest load that passed.
    low: Option<f64>,
    /// The least load that failed.
    high: Option<f64>,
    /// The load being judged; `None` is the greatest that the tester can offer.
    load: Option<f64>,
    passed: Vec<f64>,
    failed: Vec<Seen>,
    /// The number of trials of this load without loss in which the tester did not offer the load, and the most that it offered.
    short: (u32, f64),
    /// Trials that lost frames while a processor was taken from the machine.
    stolen: u32,
    /// The size of the next jump while only one of `low` and `high` is known, as a part of the load.
    jump: f64,
    trials: u32,
    over: Option<Found>,
}

impl Search {
    /// A search that begins with the load `limits.max` or, without it, with the greatest load that the tester can offer.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let mut search = Self {
            limits,
            low: None,
            high: None,
            load: limits.max,
            passed: Vec::new(),
            failed: Vec::new(),
            short: (0, 0.0),
            stolen: 0,
            jump: limits.resolution * FIRST_JUMP,
            trials: 0,
            over: None,
        };
        if limits.max.is_some_and(|max| max < limits.min) {
            search.end(End::NothingPasses);
        }
        search
    }

    /// The next step.
    #[must_use]
    pub fn next(&self) -> Step {
        match self.over {
            Some(found) => Step::Done(found),
            None => Step::Try(self.load),
        }
    }

    /// True when the last trial lost frames: the device may need a rest before the next.
    #[must_use]
    pub fn after_loss(&self) -> bool {
        !self.failed.is_empty() || (self.passed.is_empty() && self.high.is_some())
    }

    /// Takes the result of the trial that [`Search::next`] returned.
    pub fn record(&mut self, seen: Seen) {
        if self.over.is_some() {
            return;
        }
        self.trials += 1;
        let votes = self.limits.votes.max(1) as usize;
        let reached = self.load.is_none_or(|load| seen.offered >= load * OFFERED_ENOUGH);
        let failed = seen.loss > self.limits.tolerance;
        let excused = seen.stolen > 0.0 && seen.loss < GROSS_LOSS;
        if failed && excused && self.stolen < self.limits.trials / STOLEN_PART {
            self.stolen += 1;
        } else if failed {
            self.failed.push(seen);
        } else if reached {
            self.passed.push(seen.offered);
        } else {
            self.short = (self.short.0 + 1, self.short.1.max(seen.offered));
        }
        if self.short.0 >= SHORT_TRIALS {
            self.low = Some(self.low.map_or(self.short.1, |low| low.max(self.short.1)));
            self.end(End::Limit);
        } else if self.passed.len() >= votes {
            self.judge_passed();
        } else if self.failed.len() >= votes || seen.loss >= GROSS_LOSS.max(self.limits.tolerance) {
            self.judge_failed();
        }
        if self.over.is_none() && self.trials >= self.limits.trials + self.stolen {
            self.end(End::GaveUp);
        }
    }

    fn judge_passed(&mut self) {
        let offered = mean(self.passed.iter().copied());
        self.forget();
        self.low = Some(self.low.map_or(offered, |low| low.max(offered)));
        let everything = self.load.is_none();
        let at_max = self.limits.max.is_some_and(|max| self.load.is_some_and(|load| load >= max));
        match self.high {
            // A greater load cannot be offered, so the search ends even if a lower load has failed.
            _ if everything || at_max => self.end(End::Limit),
            Some(high) => self.between(offered, high),
            None => {
                let next = offered * (1.0 + self.jump);
                self.jump *= FARTHER;
                self.load = match self.limits.max {
                    Some(max) => Some(self.valid(next.min(max))),
                    None => Some(self.valid(next)),
                };
            }
        }
    }

    fn judge_failed(&mut self) {
        let offered = mean(self.failed.iter().map(|seen| seen.offered));
        let delivered = mean(self.failed.iter().map(|seen| seen.delivered));
        self.forget();
        // The load that failed is the one requested, unless the tester could not offer it.
        let failed = self.load.map_or(offered, |load| load.min(offered / OFFERED_ENOUGH));
        let failed = self.high.map_or(failed, |high| high.min(failed));
        self.high = Some(failed);
        match self.low {
            Some(low) => self.between(low, failed),
            None if failed <= self.limits.min => self.end(End::NothingPasses),
            None => {
                // The rate that arrived is the best guess. Each further failure jumps farther.
                let next = (failed / (1.0 + self.jump)).min(delivered);
                self.jump *= FARTHER;
                let next = self.valid(next);
                // Rounding could return the same whole number, so go down by at least one.
                self.load = Some(if next < failed { next } else { self.valid(failed - 1.0) });
            }
        }
    }

    /// Discards the votes, because another load is judged now.
    fn forget(&mut self) {
        self.passed.clear();
        self.failed.clear();
        self.short = (0, 0.0);
    }

    /// Bisects, on a logarithmic scale, between a load that passed and one that failed.
    fn between(&mut self, low: f64, high: f64) {
        let whole_done = self.limits.whole && high - low <= 1.0;
        if high <= low * (1.0 + self.limits.resolution) || whole_done {
            return self.end(End::Settled);
        }
        let middle = (low * high).sqrt();
        let next = match self.limits.whole {
            true => middle.round().clamp(low + 1.0, high - 1.0),
            false => middle,
        };
        if next <= low || next >= high {
            return self.end(End::Settled);
        }
        self.load = Some(next);
    }

    fn valid(&self, load: f64) -> f64 {
        let load = load.max(self.limits.min);
        let load = self.limits.max.map_or(load, |max| load.min(max));
        if self.limits.whole { load.floor() } else { load }
    }

    fn end(&mut self, end: End) {
        let load = self.low.unwrap_or(0.0);
        let step = match (end, self.high) {
            (End::Limit, _) => 0.0,
            (_, Some(high)) => (high - load).max(0.0),
            (_, None) => load * self.limits.resolution,
        };
        self.over = Some(Found { load, step, end, trials: self.trials });
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::noise::Noise;

    /// Runs a search against `device`, which returns the rate it delivers at an offered rate. The tester can offer
    /// `tester`.
    fn run(mut search: Search, tester: f64, mut device: impl FnMut(f64) -> f64) -> Found {
        loop {
            match search.next() {
                Step::Done(found) => return found,
                Step::Try(load) => {
                    let offered = load.unwrap_or(f64::INFINITY).min(tester);
                    let delivered = device(offered);
                    search.record(Seen::new(offered, delivered, 1.0 - delivered / offered));
                }
            }
        }
    }

    fn limits() -> Limits {
        Limits::new(100.0)
    }

    #[track_caller]
    fn near_knee(found: Found, knee: f64, resolution: f64, what: &str) {
        assert_eq!(found.end, End::Settled, "{what}: {found:?}");
        assert!(found.load <= knee * 1.000_001, "{what}: {found:?} is above {knee}");
        assert!(found.load >= knee / (1.0 + resolution) * 0.999_999, "{what}: {found:?} is far below {knee}");
        assert!(found.load + found.step >= knee * 0.999_999, "{what}: {found:?} does not say how far");
    }

    #[test]
    fn a_knee_is_found_within_the_resolution() {
        for resolution in [0.05, 0.01, 0.001] {
            for votes in [1, 2, 3] {
                for knee in [150.0, 1_000.0, 33_333.3, 1e6, 9.9e6] {
                    let limits = Limits { resolution, votes, trials: 200, ..limits() };
                    let found = run(Search::new(limits), 1e7, |offered| offered.min(knee));
                    near_knee(found, knee, resolution, &format!("{knee} {resolution} {votes}"));
                    assert!(found.trials <= 25 * votes, "{found:?} for {knee} at {resolution}");
                }
            }
        }
    }

    /// Past saturation a device may deliver a tenth of its throughput. That is a bad first guess, but the search
    /// still finds the throughput.
    #[test]
    fn a_device_that_collapses_is_searched_all_the_same() {
        for collapse in [0.5, 0.1, 0.001] {
            let device = |offered: f64| if offered <= 8e5 { offered } else { 8e5 * collapse };
            let found = run(Search::new(limits()), 3e6, device);
            near_knee(found, 8e5, 0.01, &format!("{collapse}"));
        }
    }

    #[test]
    fn a_line_or_a_tester_may_be_the_limit() {
        let at_line = run(Search::new(Limits { max: Some(1.488e6), ..limits() }), 1e7, |offered| offered);
        assert_eq!((at_line.end, at_line.load, at_line.step, at_line.trials), (End::Limit, 1.488e6, 0.0, 2));
        let at_tester = run(Search::new(limits()), 2e6, |offered| offered);
        assert_eq!((at_tester.end, at_tester.load), (End::Limit, 2e6));
        // A paced stream may not reach the rate of an unpaced one.
        let mut paced = Search::new(limits());
        let found = loop {
            match paced.next() {
                Step::Done(found) => break found,
                Step::Try(None) => paced.record(Seen::new(4e6, 3e6, 0.25)),
                Step::Try(Some(load)) => {
                    let offered = load.min(2e6);
                    paced.record(Seen::new(offered, offered, 0.0));
                }
            }
        };
        assert_eq!((found.end, found.load), (End::Limit, 2e6));
    }

    #[test]
    fn a_device_that_always_loses_is_given_up_at_the_least_load() {
        let one_in_a_hundred = |offered: f64| offered * 0.99;
        let found = run(Search::new(limits()), 1e6, one_in_a_hundred);
        assert_eq!((found.end, found.load), (End::NothingPasses, 0.0), "{found:?}");
        assert!(found.trials < 50, "{found:?}");
        // The device passes with a tolerance above its loss.
        let found = run(Search::new(Limits { tolerance: 0.011, ..limits() }), 1e6, one_in_a_hundred);
        assert_eq!((found.end, found.load), (End::Limit, 1e6));
        let dead = run(Search::new(limits()), 1e6, |_| 0.0);
        assert_eq!((dead.end, dead.load), (End::NothingPasses, 0.0));
        assert!(dead.trials < 30, "{dead:?}");
    }

    /// One trial in ten is disturbed and loses a thousandth. A search by single trials often ends far too low, a search
    /// by majority seldom does.
    #[test]
    fn a_disturbance_does_not_decide() {
        let mut noise = Noise::new(7);
        let mut far_below = |votes| {
            let searches = 400;
            let astray = (0..searches).filter(|_| {
                let device = |offered: f64| {
                    let disturbed = noise.uniform() < 0.1;
                    // Overload halves the delivered rate, so the search begins far from the throughput.
                    let delivered = if offered <= 1e6 { offered } else { 5e5 };
                    delivered * if disturbed { 0.999 } else { 1.0 }
                };
                let found = run(Search::new(Limits { votes, ..limits() }), 4e6, device);
                found.load + found.step < 0.999e6
            });
            astray.count() as f64 / f64::from(searches)
        };
        let (single, majority, of_five) = (far_below(1), far_below(2), far_below(3));
        assert!(single > 0.25, "the noise is no noise: {single}");
        assert!(majority < 0.2 && majority < single / 2.0, "{majority} of {single}");
        assert!(of_five < 0.1 && of_five < majority / 1.5, "{of_five} of {majority}");
    }

    /// The throughput varies from trial to trial, as a machine's speed does.
    #[test]
    fn a_wandering_knee_is_met_in_its_middle() {
        let mut noise = Noise::new(8);
        let mut loads = Vec::new();
        for _ in 0..300 {
            let device = |offered: f64| offered.min(1e6 * (1.0 + 0.01 * noise.normal()));
            let found = run(Search::new(limits()), 4e6, device);
            assert!(found.end == End::Settled, "{found:?}");
            loads.push(found.load);
        }
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        assert!((0.97e6..1.01e6).contains(&mean), "{mean}");
        assert!(loads.iter().all(|load| (0.93e6..1.04e6).contains(load)), "{loads:?}");
    }

    /// Sometimes another process takes the tester's core. A load that was not offered counts as not tried,
    /// and is tried again.
    #[test]
    fn a_tester_that_stumbles_is_asked_again() {
        let mut noise = Noise::new(10);
        let mut astray = 0;
        for _ in 0..200 {
            let mut search = Search::new(limits());
            let found = loop {
                match search.next() {
                    Step::Done(found) => break found,
                    Step::Try(load) => {
                        let part = if noise.uniform() < 0.25 { noise.uniform() } else { 1.0 };
                        let offered = load.unwrap_or(4e6).min(4e6) * part;
                        let delivered = offered.min(1e6);
                        search.record(Seen::new(offered, delivered, 1.0 - delivered / offered));
                    }
                }
            };
            if !(found.end == End::Settled && (0.985e6..=1e6).contains(&found.load)) {
                astray += 1;
            }
        }
        // Wrong by three percent: the first two trials both fell short by three quarters, or five trials in a
        // row did.
        assert!(astray <= 12, "{astray} of 200");
    }

    /// On a shared machine the hypervisor takes a processor now and then: such a trial is repeated. Constant
    /// steal time is not excluded.
    #[test]
    fn a_processor_that_is_taken_is_not_held_against_the_device() {
        let mut noise = Noise::new(11);
        let mut search_with = |part: f64| {
            let mut search = Search::new(limits());
            loop {
                match search.next() {
                    Step::Done(found) => return found,
                    Step::Try(load) => {
                        let stolen = if noise.uniform() < part { 0.02 } else { 0.0 };
                        let offered = load.unwrap_or(4e6).min(4e6);
                        let delivered = offered.min(1e6) * (1.0 - stolen);
                        let loss = 1.0 - delivered / offered;
                        search.record(Seen { stolen, ..Seen::new(offered, delivered, loss) });
                    }
                }
            }
        };
        let found: Vec<Found> = (0..200).map(|_| search_with(0.3)).collect();
        let near = |found: &&Found| found.end == End::Settled && (0.985e6..=1e6).contains(&found.load);
        assert!(found.iter().filter(near).count() >= 196, "{found:?}");
        let always = search_with(1.0);
        assert!(matches!(always.end, End::NothingPasses | End::GaveUp), "{always:?}");
    }

    #[test]
    fn whole_numbers_are_found_exactly_when_they_are_small() {
        for capacity in [1.0, 2.0, 7.0, 64.0, 1000.0, 8192.0] {
            let limits =
                Limits { max: Some(65_536.0), min: 1.0, resolution: 1e-6, whole: true, votes: 1, ..limits() };
            let found = run(Search::new(limits), 1e9, |offered| offered.min(capacity));
            assert_eq!((found.load, found.step), (capacity, 1.0), "{found:?}");
        }
    }

    /// The search ends for any results: loads that pass above loads that fail, trials that offered nothing,
    /// values that are not numbers.
    #[test]
    fn the_search_ends_for_any_trial_results() {
        let mut noise = Noise::new(9);
        for seed in 0..500 {
            let mut search = match seed % 2 {
                0 => Search::new(limits()),
                _ => Search::new(Limits { max: Some(1e6), whole: true, ..limits() }),
            };
            let mut trials = 0;
            while let Step::Try(load) = search.next() {
                trials += 1;
                assert!(trials <= limits().trials, "it does not end");
                assert!(load.is_none_or(|load| load.is_finite() && load >= limits().min), "{load:?}");
                let offered = load.unwrap_or(3e6) * noise.uniform();
                let loss = if noise.uniform() < 0.5 { 0.0 } else { noise.uniform() };
                search.record(Seen::new(offered, offered * (1.0 - loss), loss));
            }
            let Step::Done(found) = search.next() else { unreachable!("it is over") };
            assert!(found.load >= 0.0 && found.step >= 0.0 && found.load.is_finite(), "{found:?}");
        }
    }
}
