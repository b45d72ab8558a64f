//! RFC 2544, 26.2: latency at the throughput rate.
//!
//! Read first: RFC 1242, 3.8. For a store-and-forward device, latency is the time from the last bit in to the first
//! bit out; for a bit-forwarding device, from the first bit in to the first bit out. The tester stamps a frame before
//! its first bit is sent, and sees it when its last bit has arrived. On a line, both definitions differ from the
//! tester's measurement by the time that a frame takes on the line. On veth, where a frame is handed over whole, they
//! do not differ.

use super::{Plan, Throughputs};
use crate::method::flow::{Flows, Load};
use crate::method::{Dut, Figure, Run, record};
use crate::report::Unit;
use crate::report::{Axis, Better, Key};
use anyhow::{Context, Result};
use lanyard_tester::histogram::Histogram;
use lanyard_tester::traffic::Stream;

/// Preamble, start of frame and the gap between two frames, in bytes.
const OVERHEAD: f64 = 20.0;

/// The statistics in the report, and their names.
const STATISTICS: [&str; 5] = ["least", "median", "mean", "99 %", "largest"];

pub(super) fn latency(run: &mut Run, plan: &Plan, size: usize, throughputs: &Throughputs) -> Result<()> {
    run.say(format!("latency, {size} B"));
    run.each(|dut, results| {
        let Some(rate) = throughputs.get(&(dut.index, size)).copied().filter(|rate| *rate > 0.0) else {
            return Ok(());
        };
        let load = Load::Rate(rate * plan.latency_load);
        let mut flows = plan.flows(dut, size);
        for flow in &mut flows.0 {
            flow.stream = Stream { stamp: true, ..flow.stream };
        }
        let mut all = Histogram::default();
        let mut sums = [0.0; STATISTICS.len()];
        for _ in 0..plan.latency_trials.max(1) {
            let histogram = trial(dut, &flows, load)?;
            let figures = figures(&histogram).context("no frame with a time stamp arrived")?;
            sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
            all.merge(&histogram);
        }
        let (own, line) = (dut.subject.tester().about().own_latency_ns, line_time(dut, size));
        let cases: &[(&str, f64)] = match line {
            Some(time) => &[("store and forward", 2.0 * time), ("cut-through", time)],
            None => &[("", 0.0)],
        };
        for (case, on_the_line) in cases {
            let less = own.unwrap_or(0) as f64 + on_the_line;
            for (name, sum) in STATISTICS.iter().zip(sums) {
                let test = format!("latency, {name}");
                let what = Figure {
                    test: &test,
                    case,
                    clause: "RFC 2544, 26.2",
                    unit: Unit::Microseconds,
                    better: Better::Lower,
                    at: Some((Axis::FrameBytes, size as f64)),
                };
                let mean_ns = sum / f64::from(plan.latency_trials.max(1));
                record(results, &what, dut.name, ((mean_ns - less) / 1e3).max(0.0));
            }
        }
        match own {
            Some(own) => results.note(format!(
                "latency of {}: the tester's own over a wire, {:.2} us (median), is subtracted; distributions are not corrected",
                dut.name,
                own as f64 / 1e3
            )),
            None => results.note("latency: the tester was not calibrated; its own time is in the figures"),
        }
        results.note(match line {
            Some(_) => "latency: of every frame, from both definitions of RFC 1242, 3.8",
            None => {
                "latency: of every frame; on veth a frame is handed over whole, so the two definitions of RFC 1242, 3.8 are \
                 one"
            }
        });
        let key = Key::new("latency", "", dut.name).at(Axis::FrameBytes, size as f64);
        results.add_samples(key, Unit::Microseconds, all.buckets().map(|(low, width, n)| {
            ((low as f64 + width as f64 / 2.0) / 1e3, n)
        }));
        Ok(())
    })?;
    Ok(())
}

fn trial(dut: &mut Dut, flows: &Flows, load: Load) -> Result<Histogram> {
    dut.learn(flows)?;
    Ok(dut.trial_for(flows, load, dut.timing.latency)?.latency())
}

/// The values of [`STATISTICS`] in ns; `None` without frames.
fn figures(histogram: &Histogram) -> Option<[f64; STATISTICS.len()]> {
    Some([
        histogram.min()? as f64,
        histogram.percentile(50.0)? as f64,
        histogram.mean()?,
        histogram.percentile(99.0)? as f64,
        histogram.max()? as f64,
    ])
}

/// How long a frame takes on the line in ns, without preamble and gap.
fn line_time(dut: &mut Dut, size: usize) -> Option<f64> {
    let rate = dut.subject.tester().line_rate_pps(size)?;
    Some(1e9 / rate * size as f64 / (size as f64 + OVERHEAD))
}
