//! Loads up to twice a device's saturation, in steps: the rate that the device still forwards, its latency, and the
//! load of its processors.
//!
//! Read first: RFC 2285, 3.5.2 to 3.5.4 (offered load, overloading) and 3.6 (forwarding rates); J. T. Yu, "Performance
//! Evaluation of Linux Bridge" (2004), whose table has the same form. Invariant: saturation is found by the same search as
//! a throughput, with the allowed loss stated in the report. It is searched once for all rounds, so every step means the
//! same load in each round.

use super::flow::{Flows, Load, Pattern, Template};
use super::search::{End, Search};
use super::{Dut, Figure, Precision, Run, rate_limits, record};
use crate::report::{Axis, Better, Key, Row, Target, Unit};
use anyhow::Result;
use lanyard_tester::traffic::Stream;

/// Offered loads as parts of the saturating load.
pub const STEPS: [f64; 12] = [0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0];
/// If the tester offered less than this part of a load, the load was greater than the tester can offer.
const OFFERED_ENOUGH: f64 = 0.97;
/// The clause that defines latency; that of loss is RFC 1242, 3.6 (frame loss rate).
const LATENCY: &str = "RFC 1242, 3.8";
/// The part of its greatest rate that Lanyard must still forward at the greatest load.
const KEPT: Target = Target::AtLeast(0.95);

/// The measurements to make.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Frame sizes.
    pub sizes: Vec<usize>,
    /// The number of rounds.
    pub rounds: usize,
    /// The precision of the search for saturation.
    pub precision: Precision,
    /// Hosts behind each port.
    pub hosts: u32,
    /// Offered loads as parts of saturation, ascending.
    pub steps: Vec<f64>,
}

impl Plan {
    /// Steps of the progress bar.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.sizes.len() * (1 + self.rounds * self.steps.len())
    }

    fn flows(&self, dut: &mut Dut, size: usize) -> Flows {
        let ports = dut.subject.tester().ports();
        let routers = (0..ports).map(|port| dut.subject.router_mac(port)).collect();
        let stream = Stream { size, stamp: true, ..Stream::new() };
        Flows::of(Pattern::Pairs, ports, &Template { stream, hosts: self.hosts, routers })
    }
}

/// Measures the plan.
///
/// # Errors
/// On ctrl-C, or when no device is left; the results until then are in the run.
pub fn measure(run: &mut Run, plan: &Plan) -> Result<()> {
    for size in &plan.sizes {
        let saturation = saturation(run, plan, *size)?;
        run.step()?;
        for _ in 0..plan.rounds {
            for step in &plan.steps {
                run.say(format!("{size} B at {:.0} %", step * 100.0));
                run.each(|dut, results| {
                    let Some(load) = saturation[dut.index] else { return Ok(()) };
                    one(dut, results, plan, *size, load, *step)
                })?;
                run.step()?;
            }
        }
        kept(run, *size);
    }
    Ok(())
}

/// The saturating load of each device, frames per second and sending port.
fn saturation(run: &mut Run, plan: &Plan, size: usize) -> Result<Vec<Option<f64>>> {
    let found = run.search(
        &format!("saturation, {size} B"),
        |dut| {
            let flows = plan.flows(dut, size);
            Ok(Some(Search::new(rate_limits(dut, &flows, size, plan.precision))))
        },
        |dut, load| {
            let flows = plan.flows(dut, size);
            dut.learn(&flows)?;
            Ok(flows.seen(&dut.trial(&flows, load.into())?))
        },
    )?;
    let mut loads = Vec::new();
    for (index, answer) in found.into_iter().enumerate() {
        let name = run.name(index).to_owned();
        loads.push(answer.map(|found| found.load).filter(|load| *load > 0.0));
        let Some(answer) = answer else { continue };
        let results = &mut run.results;
        results.parameter(&format!("saturation_pps_{name}_{size}"), answer.load.round());
        match answer.end {
            End::Limit => results.note(format!(
                "{name}: {size} B: the tester can't saturate it; 100 % is what the tester offers at most"
            )),
            End::NothingPasses => results.note(format!(
                "{name}: {size} B: loses more than {:.2} % at any load; not measured",
                plan.precision.tolerance * 100.0
            )),
            End::Settled | End::GaveUp => {}
        }
    }
    Ok(loads)
}

/// One trial of a step, and its figures.
fn one(
    dut: &mut Dut,
    results: &mut crate::report::Results,
    plan: &Plan,
    size: usize,
    saturation: f64,
    step: f64,
) -> Result<()> {
    let mut flows = plan.flows(dut, size);
    dut.learn(&flows)?;
    let wanted = saturation * step;
    let mut outcome = dut.trial(&flows, Load::Rate(wanted))?;
    if step > 1.0 && flows.seen(&outcome).offered < wanted * OFFERED_ENOUGH {
        // Stamps and pacing cost the generator time. Without them it may reach a load that it could not reach
        // otherwise.
        dut.rest()?;
        flows.0.iter_mut().for_each(|flow| flow.stream.stamp = false);
        let unpaced = dut.trial(&flows, Load::Everything)?;
        if flows.seen(&unpaced).offered > flows.seen(&outcome).offered {
            outcome = unpaced;
        }
    }
    let seen = flows.seen(&outcome);
    let case = format!("{size} B");
    let figure = |test: &'static str, clause: &'static str, unit, better| Figure {
        test,
        case: "",
        clause,
        unit,
        better,
        at: Some((Axis::Load, step)),
    };
    let senders = flows.senders() as f64;
    let figures = [
        (
            figure("offered", "RFC 2285, 3.5.2", Unit::FramesPerSecond, Better::Neither),
            Some(seen.offered * senders),
        ),
        (
            figure("forwarded", "RFC 2285, 3.6.1", Unit::FramesPerSecond, Better::Higher),
            Some(seen.delivered * senders),
        ),
        (figure("lost", "RFC 1242, 3.6", Unit::Fraction, Better::Lower), Some(seen.loss)),
        (figure("latency, median", LATENCY, Unit::Microseconds, Better::Lower), percentile(&outcome, 50.0)),
        (figure("latency, 99 %", LATENCY, Unit::Microseconds, Better::Lower), percentile(&outcome, 99.0)),
        (figure("device's own time on its core", "", Unit::Fraction, Better::Lower), outcome.device_busy),
    ];
    for (figure, value) in figures {
        let Some(value) = value else { continue };
        let series = record(results, &Figure { case: &case, ..figure }, dut.name, value);
        if seen.offered < wanted * OFFERED_ENOUGH && figure.test == "forwarded" && series.caveats.is_empty() {
            series
                .caveats
                .push(format!("the tester offered {:.0} % instead", seen.offered / saturation * 100.0));
        }
    }
    for cpu in &outcome.cpu {
        let case = format!("{case}, processor {}", cpu.cpu);
        let what = figure("processor time", "", Unit::Fraction, Better::Lower);
        record(results, &Figure { case: &case, ..what }, dut.name, cpu.busy);
    }
    if seen.loss > 0.0 { dut.rest() } else { Ok(()) }
}

fn percentile(outcome: &lanyard_tester::trial::Outcome, percent: f64) -> Option<f64> {
    outcome.latency().percentile(percent).map(|ns| ns as f64 / 1e3)
}

/// Compares each device's rate at the greatest load with its greatest rate at any load: one row per device. Only
/// Lanyard's devices (their names begin with `lanyard`) have a target.
fn kept(run: &mut Run, size: usize) {
    let case = format!("{size} B");
    for index in 0..run.devices() {
        let name = run.name(index).to_owned();
        let forwarded: Vec<&crate::report::Series> = run
            .results
            .series
            .iter()
            .filter(|s| s.key.test == "forwarded" && s.key.case == case && s.key.device == name)
            .collect();
        let Some(last) = forwarded.last() else { continue };
        let kept: Vec<f64> = (0..last.rounds.len())
            .filter_map(|round| {
                let most = forwarded.iter().filter_map(|s| s.rounds.get(round)).copied().fold(0.0, f64::max);
                (most > 0.0).then(|| last.rounds[round] / most)
            })
            .collect();
        let caveats = last.caveats.clone();
        let what = Figure {
            test: "kept at the greatest load, of the most forwarded",
            case: "",
            clause: "RFC 2285, 3.6.2 and 3.6.3",
            unit: Unit::Fraction,
            better: Better::Higher,
            at: Some((Axis::FrameBytes, size as f64)),
        };
        for value in kept {
            record(&mut run.results, &what, &name, value).caveats.clone_from(&caveats);
        }
        let target = if name.starts_with("lanyard") { KEPT } else { Target::None };
        let title = "kept at the greatest load";
        let arms = vec![Key { at: what.at, ..Key::new(what.test, what.case, &name) }];
        let row = Row::new(&format!("kept-{name}-{size}"), title, what.unit, target);
        run.results.rows.push(Row { test: what.test.to_owned(), at: what.at, arms, ..row });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::sim::{Model, rounds, run};
    use crate::report::Verdict;

    fn plan() -> Plan {
        Plan {
            sizes: vec![64],
            rounds: 3,
            precision: Precision { resolution: 0.01, tolerance: 0.001, votes: 2, trials: 60 },
            hosts: 1,
            steps: STEPS.to_vec(),
        }
    }

    fn at(test: &str, case: &str, device: &str, step: f64) -> Key {
        Key::new(test, case, device).at(Axis::Load, step)
    }

    /// One device keeps its rate under overload. The other one loses half of it, as in the paper's table.
    #[test]
    fn a_collapse_is_seen_and_a_plateau_is_one() {
        let models = [("keeps", Model::new(1e6)), ("collapses", Model { collapse: 0.5, ..Model::new(1e6) })];
        let mut run = run(&models, 1);
        measure(&mut run, &plan()).expect("measured");
        let median = |key: Key| rounds(&run, &key).get(1).copied().unwrap_or(f64::NAN);
        let kept = "kept at the greatest load, of the most forwarded";
        let of = |device| rounds(&run, &Key::new(kept, "", device).at(Axis::FrameBytes, 64.0));
        assert!(of("keeps").len() == 3 && of("keeps").iter().all(|k| *k > 0.99), "{:?}", of("keeps"));
        assert!(of("collapses").iter().all(|k| (0.49..0.52).contains(k)), "{:?}", of("collapses"));
        for (step, part) in [(0.5, 0.5), (0.9, 0.9), (1.5, 1.0), (2.0, 1.0)] {
            let forwarded = median(at("forwarded", "64 B", "keeps", step));
            assert!((forwarded - 1e6 * part).abs() < 2e4, "{step}: {forwarded}");
            let busy = median(at("processor time", "64 B, processor 0", "keeps", step));
            assert!((busy - part).abs() < 0.02, "{step}: {busy}");
        }
        let late = |step| median(at("latency, median", "64 B", "keeps", step));
        assert!(late(0.5) > late(0.1) && late(0.9) > 2.0 * late(0.5), "a queue grows with the load");
        let results = run.finish(None);
        assert!(results.notes.is_empty());
        let ids: Vec<&str> = results.rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids, ["kept-keeps-64", "kept-collapses-64"]);
    }

    /// Lanyard's rate under overload has a target; the rates of other devices are only reported.
    #[test]
    fn only_lanyard_has_a_target() {
        let falls = || Model { collapse: 0.5, ..Model::new(1e6) };
        let mut run = run(&[("lanyard-xdp", falls()), ("bridge", falls())], 4);
        measure(&mut run, &plan()).expect("measured");
        let results = run.finish(None);
        let verdicts: Vec<Verdict> = results.rows.iter().map(|row| row.figures(&results).verdict).collect();
        assert_eq!(verdicts, [Verdict::Miss, Verdict::None]);
        assert!(results.missed() && results.table().contains("| MISS"), "{}", results.table());
    }

    /// The generator reaches 130 %: the report states the load that was really offered instead of 200 %.
    #[test]
    fn an_offered_load_below_the_plan_is_reported_as_a_caveat() {
        let mut run = run(&[("dut", Model { tester_pps: 1.3e6, ..Model::new(1e6) })], 2);
        measure(&mut run, &Plan { rounds: 1, ..plan() }).expect("measured");
        let series = run.results.get(&at("forwarded", "64 B", "dut", 2.0)).expect("measured");
        assert!(series.caveats[0].starts_with("the tester offered 13"), "{:?}", series.caveats);
        let none = run.results.get(&at("forwarded", "64 B", "dut", 1.25)).expect("measured");
        assert!(none.caveats.is_empty());
    }

    #[test]
    fn a_device_that_always_loses_has_no_saturation() {
        let mut run = run(&[("lossy", Model { corrupted: 0.01, ..Model::new(1e6) })], 3);
        measure(&mut run, &plan()).expect("measured");
        assert!(run.results.series.is_empty());
        assert!(
            run.results.notes[0].contains("loses more than 0.10 % at any load"),
            "{:?}",
            run.results.notes
        );
    }
}
