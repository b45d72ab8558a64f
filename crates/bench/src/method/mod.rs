//! The procedures of RFC 2544 and RFC 2889: the interface to a device and its tester, and the rotation of the devices.
//!
//! Read first: `trial.rs` (what a trial is), [`search`], then a procedure. A procedure uses only the trait [`Subject`]
//! and nothing of the operating system, so each one is tested against simulated devices (`sim`). Invariants: devices
//! take turns trial by trial, so all of them are measured under the same conditions. A device that breaks is left out,
//! and the others continue. However a run ends, the results so far are kept.

pub mod command;
pub mod devices;
pub mod flow;
#[cfg(test)]
pub(crate) mod noise;
pub mod overload;
pub mod rfc2544;
pub mod rfc2889;
pub mod search;
#[cfg(test)]
mod sim;

use crate::report::Unit;
use crate::report::{Axis, Better, DeviceNote, Key, Results, Series};
use anyhow::{Context, Result, bail};
use flow::{Flows, Load};
use indicatif::{ProgressBar, ProgressStyle};
use lanyard_tester::os::check_interrupted;
use lanyard_tester::trial::{Offer, Outcome, Tester};
use search::{End, Found, Limits, Search, Seen, Step};
use std::time::{Duration, Instant};

/// A device under test between the ports of a tester.
pub trait Subject {
    /// The tester.
    fn tester(&mut self) -> &mut dyn Tester;

    /// The device's description of itself. May be empty.
    fn detail(&self) -> String {
        String::new()
    }

    /// The MAC address of the device's port where frames from this port of the tester arrive, for those it routes;
    /// `None` for a device that bridges.
    fn router_mac(&self, port: usize) -> Option<[u8; 6]> {
        let _ = port;
        None
    }

    /// Makes the device forget all learned addresses. Returns false when there is no way to do
    /// that; the caller then waits for its ageing time.
    ///
    /// # Errors
    /// When the device does not come back.
    fn forget(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Runs a trial and resets the device `after` its beginning. `None` when no way to reset it is
    /// known.
    ///
    /// # Errors
    /// When the trial or the reset fails.
    fn trial_with_reset(&mut self, offer: &Offer, after: Duration) -> Result<Option<Outcome>> {
        let _ = (offer, after);
        Ok(None)
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// On ctrl-C.
    fn pause(&mut self, time: Duration) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            check_interrupted()?;
            std::thread::sleep(Duration::from_millis(20).min(time.saturating_sub(begin.elapsed())));
        }
        Ok(())
    }
}

/// Durations of the parts of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// One trial of a search.
    pub window: Duration,
    /// The time for which receivers listen after the last frame.
    pub settle: Duration,
    /// The pause that the device gets after a trial that lost frames.
    pub rest: Duration,
    /// The stream of a latency trial.
    pub latency: Duration,
    /// The overload before a recovery.
    pub overload: Duration,
    /// How long the device is watched after a reset.
    pub reset: Duration,
}

impl Timing {
    /// The RFCs' durations: RFC 2544, 23 (2 s for frames under way, 5 s to restabilise), 24 (60 s),
    /// 26.2 (120 s), 26.5 (60 s).
    #[must_use]
    pub const fn rfc() -> Self {
        let s = Duration::from_secs;
        Self { window: s(60), settle: s(2), rest: s(5), latency: s(120), overload: s(60), reset: s(120) }
    }

    /// Trials of `window`. Rest, latency trial and overload are in proportion to it; the time to settle is 200 ms, and the time
    /// after a reset 5 s.
    #[must_use]
    pub fn short(window: Duration) -> Self {
        let rest = (window / 4).max(Duration::from_millis(50));
        Self {
            window,
            settle: Duration::from_millis(200),
            rest,
            latency: window * 2,
            overload: window,
            reset: Duration::from_secs(5),
        }
    }

    /// Adds the durations to the parameters in the report.
    pub fn describe(&self, results: &mut Results) {
        for (name, time) in [
            ("trial_s", self.window),
            ("settle_s", self.settle),
            ("rest_s", self.rest),
            ("latency_trial_s", self.latency),
            ("overload_s", self.overload),
            ("reset_s", self.reset),
        ] {
            results.parameter(name, time.as_secs_f64());
        }
    }
}

/// A device in a run.
pub struct Slot {
    /// Its name in reports.
    pub name: String,
    /// The device, until it breaks.
    subject: Option<Box<dyn Subject>>,
    integrity: Integrity,
    learned: Learned,
}

/// When the hosts of a device last sent, and which: port, first host and number of hosts. `None` if the device may have
/// forgotten them.
type Learned = Option<(Instant, Vec<(usize, u32, u32)>)>;

/// How long a device is assumed to remember addresses: a tenth of the usual ageing time.
const REMEMBERS: Duration = Duration::from_secs(30);

/// The device under test (DUT; RFC 2544) that has its turn.
pub struct Dut<'a> {
    /// Its index in the run.
    pub index: usize,
    /// Its name.
    pub name: &'a str,
    /// The device.
    pub subject: &'a mut dyn Subject,
    /// The durations of the parts of a trial.
    pub timing: Timing,
    integrity: &'a mut Integrity,
    learned: &'a mut Learned,
}

/// How many times a trial that could not begin is repeated.
const BEGIN_AGAIN: usize = 2;

/// Counts over all trials of a device: frames received, frames with faults other than loss, and trials.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Integrity {
    trials: u64,
    received: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    /// Frames that arrived at a port to which no stream sends them.
    strays: u64,
    /// Frames that arrived but that the tester had no time to check.
    missed: u64,
    /// Trials with steal time.
    stolen: u64,
}

impl Integrity {
    /// A remark about the faults and the steal time for the report; `None` without any.
    fn printed(&self) -> Option<String> {
        let kinds = [
            ("arrived twice", self.duplicated),
            ("arrived after a later one", self.reordered),
            ("arrived spoiled", self.corrupted),
            ("arrived at a port to which they were not sent", self.strays),
            ("also arrived, but the tester had no time to check them", self.missed),
        ];
        let printed: Vec<String> =
            kinds.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} frames {what}")).collect();
        let frames = (!printed.is_empty())
            .then(|| format!("of {} frames received, {}", self.received, printed.join(", ")));
        let stolen = (self.stolen > 0).then(|| {
            format!(
                "in {} of {} trials the hypervisor took a processor; searches repeated those that lost frames",
                self.stolen, self.trials
            )
        });
        let both: Vec<String> = frames.into_iter().chain(stolen).collect();
        (!both.is_empty()).then(|| both.join("; "))
    }
}

impl Dut<'_> {
    /// Sends one frame from every host of the flows, in both directions, so that nothing has to be flooded
    /// (RFC 2544, 23; RFC 2889, 5.1.3). Does nothing if the hosts sent a short time ago.
    ///
    /// # Errors
    /// When the tester cannot send.
    pub fn learn(&mut self, flows: &Flows) -> Result<()> {
        let offers = flows.learning();
        let who = |offer: &Offer| offer.streams.first().map(|(port, s)| (*port, s.src.first, s.src.count));
        let hosts: Vec<(usize, u32, u32)> = offers.iter().filter_map(who).collect();
        if self.learned.as_ref().is_some_and(|(when, known)| when.elapsed() < REMEMBERS && *known == hosts) {
            return Ok(());
        }
        for offer in &offers {
            self.offer(offer)?;
        }
        *self.learned = Some((Instant::now(), hosts));
        Ok(())
    }

    /// Notes that the device may have forgotten its hosts, so that the next trial lets it learn
    /// them again.
    pub fn forgotten(&mut self) {
        *self.learned = None;
    }

    /// Offers the flows at a load, for the duration of a trial.
    ///
    /// # Errors
    /// When the tester cannot send, or the trial ended early.
    pub fn trial(&mut self, flows: &Flows, load: Load) -> Result<Outcome> {
        self.trial_for(flows, load, self.timing.window)
    }

    /// As [`Self::trial`], for the duration `window`.
    ///
    /// # Errors
    /// When the tester cannot send, or the trial ended early.
    pub fn trial_for(&mut self, flows: &Flows, load: Load, window: Duration) -> Result<Outcome> {
        let offer = self.timed(Offer::new(flows.streams(load), window));
        let outcome = self.offer(&offer)?;
        self.integrity.strays += flows.strays(&outcome);
        Ok(outcome)
    }

    /// The offer with the settle time of this run.
    #[must_use]
    pub fn timed(&self, offer: Offer) -> Offer {
        Offer { settle: self.timing.settle, ..offer }
    }

    /// Runs any offer.
    ///
    /// # Errors
    /// When the tester cannot send, or the trial ended early.
    pub fn offer(&mut self, offer: &Offer) -> Result<Outcome> {
        check_interrupted()?;
        let mut outcome = self.subject.tester().trial(offer);
        // A trial that could not begin may succeed a little later. A link that is down stays down.
        for _ in 0..BEGIN_AGAIN {
            if outcome.is_ok() {
                break;
            }
            self.rest()?;
            outcome = self.subject.tester().trial(offer);
        }
        let outcome = whole(outcome?)?;
        self.integrity.trials += 1;
        self.integrity.received += outcome.total(|s| s.received);
        self.integrity.duplicated += outcome.total(|s| s.duplicated);
        self.integrity.reordered += outcome.total(|s| s.reordered);
        self.integrity.corrupted += outcome.total(|s| s.corrupted);
        self.integrity.missed += outcome.missed;
        self.integrity.stolen += u64::from(outcome.cpu.iter().any(|cpu| cpu.stolen > 0.0));
        Ok(outcome)
    }

    /// Pauses after a trial that lost frames.
    ///
    /// # Errors
    /// On ctrl-C.
    pub fn rest(&mut self) -> Result<()> {
        let rest = self.timing.rest;
        self.subject.pause(rest)
    }
}

/// Returns the outcome of a trial that was not cut short.
///
/// # Errors
/// When the trial was cut short, because half a trial gives no figure.
pub fn whole(outcome: Outcome) -> Result<Outcome> {
    check_interrupted()?;
    match &outcome.cut_short {
        Some(why) => bail!("a trial ended early: {why}"),
        None => Ok(outcome),
    }
}

/// Saves the results so far.
type Keep<'a> = dyn FnMut(&Results) -> Result<()> + 'a;

/// Devices that take turns, and the results.
pub struct Run<'a> {
    /// The devices.
    slots: Vec<Slot>,
    /// The results so far.
    pub results: Results,
    /// The durations of the parts of a trial.
    pub timing: Timing,
    bar: ProgressBar,
    keep: Box<Keep<'a>>,
}

impl<'a> Run<'a> {
    /// A run of these devices. `keep` is called with the results after every step.
    pub fn new(
        results: Results,
        timing: Timing,
        devices: Vec<(String, Box<dyn Subject>)>,
        keep: impl FnMut(&Results) -> Result<()> + 'a,
    ) -> Self {
        let mut run =
            Self { slots: Vec::new(), results, timing, bar: ProgressBar::hidden(), keep: Box::new(keep) };
        for (name, subject) in devices {
            run.results.devices.push(DeviceNote {
                name: name.clone(),
                detail: subject.detail(),
                broken: None,
            });
            run.slots.push(Slot {
                name,
                subject: Some(subject),
                integrity: Integrity::default(),
                learned: None,
            });
        }
        run
    }

    /// Shows a progress bar with this many steps.
    pub fn show_progress(&mut self, steps: usize) {
        self.bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} (left {eta}) {msg}") {
            self.bar.set_style(style);
        }
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    /// Shows a status message on the progress bar.
    pub fn say(&self, what: impl Into<String>) {
        let what: String = what.into();
        self.bar.set_message(what);
    }

    /// Advances the progress bar and saves the results so far.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn step(&mut self) -> Result<()> {
        self.bar.inc(1);
        (self.keep)(&self.results)
    }

    /// How many devices there are, broken ones included.
    #[must_use]
    pub fn devices(&self) -> usize {
        self.slots.len()
    }

    /// The name of a device.
    #[must_use]
    pub fn name(&self, index: usize) -> &str {
        self.slots.get(index).map_or("", |slot| &slot.name)
    }

    /// Gives a device its turn. `None` if the device is broken or `act` fails: the reason goes into the report, and the other
    /// devices continue.
    ///
    /// # Errors
    /// On ctrl-C, or when the last device breaks.
    pub fn turn<T>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Dut, &mut Results) -> Result<T>,
    ) -> Result<Option<T>> {
        check_interrupted()?;
        let Some(slot) = self.slots.get_mut(index) else { return Ok(None) };
        let Some(subject) = &mut slot.subject else { return Ok(None) };
        let mut dut = Dut {
            index,
            name: &slot.name,
            subject: subject.as_mut(),
            timing: self.timing,
            integrity: &mut slot.integrity,
            learned: &mut slot.learned,
        };
        let why = match act(&mut dut, &mut self.results) {
            Ok(value) => return Ok(Some(value)),
            Err(why) => why,
        };
        check_interrupted()?;
        slot.subject = None;
        if let Some(note) = self.results.devices.get_mut(index) {
            note.broken = Some(format!("{why:#}"));
        }
        if self.slots.iter().all(|slot| slot.subject.is_none()) {
            return Err(why).with_context(|| format!("no device is left; the last was {}", self.name(index)));
        }
        Ok(None)
    }

    /// Gives every device a turn.
    ///
    /// # Errors
    /// On ctrl-C, or when the last device breaks.
    pub fn each<T>(
        &mut self,
        mut act: impl FnMut(&mut Dut, &mut Results) -> Result<T>,
    ) -> Result<Vec<Option<T>>> {
        (0..self.devices()).map(|index| self.turn(index, &mut act)).collect()
    }

    /// A search on every device at once, one trial of each in turn; `begin` may leave a device out.
    ///
    /// # Errors
    /// On ctrl-C, or when the last device breaks.
    pub fn search(
        &mut self,
        what: &str,
        mut begin: impl FnMut(&mut Dut) -> Result<Option<Search>>,
        mut trial: impl FnMut(&mut Dut, Option<f64>) -> Result<Seen>,
    ) -> Result<Vec<Option<Found>>> {
        let begun = self.each(|dut, _| begin(dut))?;
        let mut searches: Vec<Option<Search>> = begun.into_iter().map(Option::flatten).collect();
        let mut found = vec![None; searches.len()];
        while searches.iter().any(Option::is_some) {
            for index in 0..searches.len() {
                let Some(search) = searches[index].as_mut() else { continue };
                let load = match search.next() {
                    Step::Try(load) => load,
                    Step::Done(answer) => {
                        found[index] = Some(answer);
                        searches[index] = None;
                        continue;
                    }
                };
                self.say(format!(
                    "{what}: {} {}",
                    self.name(index),
                    load.map_or_else(|| "max".to_owned(), short)
                ));
                let after_loss = search.after_loss();
                let seen = self.turn(index, |dut, _| {
                    if after_loss {
                        dut.rest()?;
                    }
                    trial(dut, load)
                })?;
                match seen {
                    Some(seen) => search.record(seen),
                    None => searches[index] = None,
                }
            }
        }
        Ok(found)
    }

    /// Ends the progress bar and returns the results; `why` is the reason if the run ended early, else `None`.
    pub fn finish(mut self, why: Option<String>) -> Results {
        self.bar.finish_and_clear();
        for slot in &self.slots {
            self.results.parameter(&format!("trials_{}", slot.name), slot.integrity.trials);
            if let Some(printed) = slot.integrity.printed() {
                self.results.note(format!("{}: {printed}", slot.name));
            }
        }
        // Take the devices down before anything is printed.
        self.slots.clear();
        self.results.incomplete = why;
        self.results
    }
}

/// Formats a load for the progress bar.
fn short(load: f64) -> String {
    match load {
        l if l >= 1e6 => format!("{:.3} M", l / 1e6),
        l if l >= 1e4 => format!("{:.1} k", l / 1e3),
        l => format!("{l:.0}"),
    }
}

/// The description of a figure, for [`record`].
#[derive(Debug, Clone, Copy)]
pub struct Figure<'a> {
    /// The test.
    pub test: &'a str,
    /// The case; may be empty.
    pub case: &'a str,
    /// The clause that defines the figure.
    pub clause: &'a str,
    /// Unit.
    pub unit: Unit,
    /// Whether higher or lower figures are better.
    pub better: Better,
    /// The figure's place on the test's axis, if it has one.
    pub at: Option<(Axis, f64)>,
}

/// Adds one round's figure to its series.
pub fn record<'r>(results: &'r mut Results, what: &Figure, device: &str, value: f64) -> &'r mut Series {
    let key = Key { at: what.at, ..Key::new(what.test, what.case, device) };
    let series = results.series_mut(key, |key| Series::new(key, what.clause, what.unit, what.better));
    series.rounds.push(value);
    series
}

/// Adds the result of a search, in the unit of the figure (`factor` times that of the search), with a remark on how
/// the search ended if it did not end normally.
pub fn record_found<'r>(
    results: &'r mut Results,
    what: &Figure,
    device: &str,
    found: Found,
    factor: f64,
) -> &'r mut Series {
    let series = record(results, what, device, found.load * factor);
    series.resolution = series.resolution.max(found.step * factor);
    let caveat = match found.end {
        End::Settled => return series,
        End::Limit => "at least this: the tester, or the line, cannot offer more",
        End::NothingPasses => "frames are lost at the least load that was tried",
        End::GaveUp => "the search ran out of trials; the figure is known as finely as its interval says",
    };
    if !series.caveats.iter().any(|c| c == caveat) {
        series.caveats.push(caveat.to_owned());
    }
    series
}

/// The limits of a search for a rate in frames per second of each sending port.
#[must_use]
pub fn rate_limits(dut: &mut Dut, flows: &Flows, frame_bytes: usize, precision: Precision) -> Limits {
    Limits {
        max: dut.subject.tester().line_rate_pps(frame_bytes),
        resolution: precision.resolution,
        tolerance: precision.tolerance,
        votes: precision.votes,
        trials: precision.trials,
        ..Limits::new(flows.least_load())
    }
}

/// How precisely to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    /// The precision as a part of the load: 0.01 is one percent.
    pub resolution: f64,
    /// The part of the frames that may be lost in a trial that passes.
    pub tolerance: f64,
    /// The number of trials that must agree before a load is judged.
    pub votes: u32,
    /// Trials of one search, at most.
    pub trials: u32,
}
