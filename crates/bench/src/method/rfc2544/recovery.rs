//! RFC 2544, 26.5 and 26.6: how long an overload or a reset affects the device after it has ended.
//!
//! Read first: RFC 6201, which defines a reset and how its time is measured: by the frames lost at
//! a known rate.

use super::{Plan, Throughputs};
use crate::method::flow::Load;
use crate::method::{Figure, Run, record, whole};
use crate::report::Unit;
use crate::report::{Axis, Better};
use anyhow::Result;
use lanyard_tester::trial::{Offer, RateChange};

/// The overload of 26.5, as a part of the throughput.
const OVERLOAD: f64 = 1.1;
/// The load after the overload, as a part of the overload.
const RELIEF: f64 = 0.5;

pub(super) fn recovery(run: &mut Run, plan: &Plan, size: usize, throughputs: &Throughputs) -> Result<()> {
    run.say(format!("system recovery, {size} B"));
    let what = Figure {
        test: "system recovery",
        case: "",
        clause: "RFC 2544, 26.5",
        unit: Unit::Milliseconds,
        better: Better::Lower,
        at: Some((Axis::FrameBytes, size as f64)),
    };
    run.each(|dut, results| {
        let Some(throughput) = throughputs.get(&(dut.index, size)).filter(|rate| **rate > 0.0) else {
            return Ok(());
        };
        let line = dut.subject.tester().line_rate_pps(size).unwrap_or(f64::INFINITY);
        let flows = plan.flows(dut, size);
        dut.learn(&flows)?;
        let after = dut.timing.overload;
        let mut offer = dut.timed(Offer::new(flows.streams(Load::Rate((throughput * OVERLOAD).min(line))), after * 2));
        offer.change = Some(RateChange { after, factor: RELIEF });
        let outcome = dut.offer(&offer)?;
        let last = outcome.streams.iter().filter_map(|stream| stream.last_loss_at).max();
        match last {
            Some(last) => {
                let felt = last.saturating_sub(after).as_secs_f64() * 1e3;
                record(results, &what, dut.name, felt);
            }
            None => results.note(format!(
                "{}: no system recovery to measure at {size} B: 110 % of its throughput, as far as the tester offered \
                 it, lost nothing",
                dut.name
            )),
        }
        dut.rest()
    })?;
    Ok(())
}

pub(super) fn reset(run: &mut Run, plan: &Plan, size: usize, throughputs: &Throughputs) -> Result<()> {
    run.say("reset");
    let what = Figure {
        test: "reset",
        case: "",
        clause: "RFC 2544, 26.6; RFC 6201",
        unit: Unit::Milliseconds,
        better: Better::Lower,
        at: Some((Axis::FrameBytes, size as f64)),
    };
    run.each(|dut, results| {
        let Some(rate) = throughputs.get(&(dut.index, size)).copied().filter(|rate| *rate > 0.0) else {
            return Ok(());
        };
        let flows = plan.flows(dut, size);
        dut.learn(&flows)?;
        let before = dut.timing.window;
        // Repeat the trial without a reset: frames lost here have another cause than the reset.
        let offer = dut.timed(Offer::new(flows.streams(Load::Rate(rate)), before + dut.timing.reset));
        let undisturbed = flows.seen(&dut.trial(&flows, Load::Rate(rate))?);
        let Some(outcome) = dut.subject.trial_with_reset(&offer, before)? else {
            results.note(format!("{}: no reset: give a command with --reset CMD", dut.name));
            return Ok(());
        };
        dut.forgotten();
        let outcome = whole(outcome)?;
        let seen = flows.seen(&outcome);
        let seconds = outcome.streams.iter().map(|s| s.tx_time.as_secs_f64()).fold(0.0, f64::max);
        let series = record(results, &what, dut.name, seen.loss * seconds * 1e3);
        if seen.loss * seconds >= dut.timing.reset.as_secs_f64() * 0.98 {
            series.caveats.push("at least this: it was not back when the trial ended".to_owned());
        }
        if undisturbed.loss > 0.0 {
            let lost = undisturbed.loss * seconds * 1e3;
            series.caveats.push(format!("the same load lost {lost:.2} ms worth of frames without a reset"));
        }
        dut.rest()
    })?;
    Ok(())
}
