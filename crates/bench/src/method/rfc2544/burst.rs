//! RFC 2544, 26.4: the longest burst at the smallest gap of which no frame is lost, and RFC 9004: the size of the
//! device's buffer that follows from it.

use super::{Plan, Throughputs, frames_in};
use crate::method::flow::Load;
use crate::method::search::{End, Limits, Search};
use crate::method::{Figure, Run, record, record_found};
use crate::report::Unit;
use crate::report::{Axis, Better};
use anyhow::Result;
use lanyard_tester::trial::Offer;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest burst that is tried: the RFC's shortest trial, 2 s.
const LONGEST: Duration = Duration::from_secs(2);

pub(super) fn burst(
    run: &mut Run,
    plan: &Plan,
    size: usize,
    carries: impl Fn(usize) -> bool,
    throughputs: &Throughputs,
) -> Result<()> {
    // Frames per second within a burst, per stream, as the tester sent it.
    let mut rates: BTreeMap<usize, f64> = BTreeMap::new();
    let found = run.search(
        &format!("back-to-back, {size} B"),
        |dut| {
            if !carries(dut.index) {
                return Ok(None);
            }
            let flows = plan.flows(dut, size);
            dut.learn(&flows)?;
            let brief = dut.timing.window.min(Duration::from_millis(100));
            let seen = flows.seen(&dut.trial_for(&flows, Load::Everything, brief)?);
            dut.rest()?;
            rates.insert(dut.index, seen.offered);
            let longest = LONGEST.min(dut.timing.window * 2).as_secs_f64();
            let max = Some(frames_in(seen.offered, longest));
            Ok(Some(Search::new(Limits {
                max,
                resolution: plan.precision.resolution,
                tolerance: plan.precision.tolerance,
                votes: plan.precision.votes,
                whole: true,
                ..Limits::new(1.0)
            })))
        },
        |dut, load| {
            let flows = plan.flows(dut, size);
            dut.learn(&flows)?;
            let frames = load.unwrap_or(1.0) as u64;
            let offer = dut.timed(Offer::burst(flows.streams(Load::Everything), frames));
            let mut seen = flows.seen(&dut.offer(&offer)?);
            // The search is for frames, not for a rate.
            seen.offered = frames as f64;
            seen.delivered = frames as f64 * (1.0 - seen.loss);
            Ok(seen)
        },
    )?;
    let at = Some((Axis::FrameBytes, size as f64));
    let frames = Figure {
        test: "back-to-back frames",
        case: "",
        clause: "RFC 2544, 26.4",
        unit: Unit::Frames,
        better: Better::Higher,
        at,
    };
    let time = Figure {
        test: "buffer time",
        case: "",
        clause: "RFC 9004",
        unit: Unit::Microseconds,
        better: Better::Neither,
        at,
    };
    for (index, answer) in found.into_iter().enumerate() {
        let Some(answer) = answer else { continue };
        let name = run.name(index).to_owned();
        let series = record_found(&mut run.results, &frames, &name, answer, 1.0);
        if answer.end == End::Limit {
            series.caveats.clear();
            series.caveats.push("at least this: no longer burst was tried".to_owned());
        }
        // While a burst fills the buffer, the device empties it at its throughput.
        if let (End::Settled, Some(rate), Some(throughput)) =
            (answer.end, rates.get(&index), throughputs.get(&(index, size)))
            && throughput < rate
        {
            let implied = answer.load / rate;
            record(&mut run.results, &time, &name, implied * (1.0 - throughput / rate) * 1e6);
        }
    }
    Ok(())
}
