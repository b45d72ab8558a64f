//! RFC 2544, 26.1 and 26.3: throughput, and frame loss rate.

use super::{Plan, Throughputs};
use crate::method::flow::Load;
use crate::method::search::{Search, Seen};
use crate::method::{Dut, Figure, Run, rate_limits, record, record_found};
use crate::report::Unit;
use crate::report::{Axis, Better};
use anyhow::Result;

/// Successive trials without loss that end the frame loss test (26.3).
const ZERO_LOSS_TRIALS: usize = 2;

/// One throughput of every device, by searches that take turns.
pub(super) fn throughput(
    run: &mut Run,
    plan: &Plan,
    size: usize,
    carries: impl Fn(usize) -> bool,
) -> Result<Throughputs> {
    let what = Figure {
        test: "throughput",
        case: "",
        clause: "RFC 2544, 26.1",
        unit: Unit::FramesPerSecond,
        better: Better::Higher,
        at: Some((Axis::FrameBytes, size as f64)),
    };
    let found = run.search(
        &format!("throughput, {size} B"),
        |dut| {
            if !carries(dut.index) {
                return Ok(None);
            }
            let flows = plan.flows(dut, size);
            let limits = rate_limits(dut, &flows, size, plan.precision);
            Ok(Some(Search::new(limits)))
        },
        |dut, load| seen(dut, plan, size, load.into()),
    )?;
    let mut throughputs = Throughputs::new();
    for (index, answer) in found.into_iter().enumerate() {
        let Some(answer) = answer else { continue };
        throughputs.insert((index, size), answer.load);
        if plan.has(super::Test::Throughput) {
            let name = run.name(index).to_owned();
            let senders = run.turn(index, |dut, _| Ok(plan.flows(dut, size).senders()))?.unwrap_or(1);
            record_found(&mut run.results, &what, &name, answer, senders as f64);
        }
    }
    Ok(throughputs)
}

/// One trial at a load: the hosts are made known first, then the load is offered.
fn seen(dut: &mut Dut, plan: &Plan, size: usize, load: Load) -> Result<Seen> {
    let flows = plan.flows(dut, size);
    dut.learn(&flows)?;
    let outcome = dut.trial(&flows, load)?;
    Ok(flows.seen(&outcome))
}

/// Frame loss from 100 % of the greatest rate down, until two trials in a row lose nothing.
pub(super) fn loss(
    run: &mut Run,
    plan: &Plan,
    size: usize,
    carries: impl Fn(usize) -> bool,
    first_round: bool,
) -> Result<()> {
    let most = greatest_rate(run, plan, size, &carries)?;
    let steps = (1.0 / plan.loss_step).round().max(1.0) as usize;
    let case = format!("{size} B");
    let mut done = vec![0; run.devices()];
    for step in (1..=steps).rev() {
        let load = step as f64 / steps as f64;
        let what = Figure {
            test: "frame loss rate",
            case: &case,
            clause: "RFC 2544, 26.3",
            unit: Unit::Fraction,
            better: Better::Lower,
            at: Some((Axis::Load, load)),
        };
        run.say(format!("frame loss rate, {size} B: {:.0} %", load * 100.0));
        run.each(|dut, results| {
            // Later rounds use the loads of the first round, so that every figure has as many
            // rounds.
            let key =
                crate::report::Key { at: what.at, ..crate::report::Key::new(what.test, what.case, dut.name) };
            let wanted =
                if first_round { done[dut.index] < ZERO_LOSS_TRIALS } else { results.get(&key).is_some() };
            if !wanted || !carries(dut.index) {
                return Ok(());
            }
            let seen = seen(dut, plan, size, Load::Rate(most * load))?;
            done[dut.index] = if seen.loss == 0.0 { done[dut.index] + 1 } else { 0 };
            let series = record(results, &what, dut.name, seen.loss);
            if seen.offered < most * load * 0.98 {
                let caveat = format!("the tester offered {:.0} % instead", seen.offered / most * 100.0);
                if !series.caveats.contains(&caveat) && series.caveats.is_empty() {
                    series.caveats.push(caveat);
                }
            }
            if seen.loss > 0.0 {
                dut.rest()?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The rate that 100 % stands for: the line's rate or, without a line, the most that the tester
/// could offer to any device.
fn greatest_rate(run: &mut Run, plan: &Plan, size: usize, carries: &impl Fn(usize) -> bool) -> Result<f64> {
    let name = format!("frame_loss_100_percent_pps_{size}");
    // Determined once, so that places on the axis mean the same in all rounds.
    if let Some(known) = run.results.parameters.get(&name).and_then(|text| text.parse().ok()) {
        return Ok(known);
    }
    let offered = run.each(|dut, _| {
        if !carries(dut.index) {
            return Ok(0.0);
        }
        if let Some(line) = dut.subject.tester().line_rate_pps(size) {
            return Ok(line);
        }
        let flows = plan.flows(dut, size);
        dut.learn(&flows)?;
        let brief = (dut.timing.window / 4).max(std::time::Duration::from_millis(100));
        let outcome = dut.trial_for(&flows, Load::Everything, brief.min(dut.timing.window))?;
        dut.rest()?;
        Ok(flows.seen(&outcome).offered)
    })?;
    let most = offered.into_iter().flatten().fold(super::super::flow::RATE_MIN, f64::max).round();
    run.results.parameter(&name, most);
    Ok(most)
}
