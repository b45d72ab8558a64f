//! RFC 2889, 5.1, 5.2, 5.4, 5.5 and 5.6: the rate at which a device forwards traffic between many ports, at
//! several loads.
//!
//! Figures are sums over all ports: frames per second that the device forwards.

use super::{Plan, rate};
use crate::method::flow::{Flow, Flows, Load, Pattern};
use crate::method::search::Search;
use crate::method::{Figure, Run, rate_limits, record, record_found};
use crate::report::Unit;
use crate::report::statistics::Spread;
use crate::report::{Axis, Better};
use anyhow::Result;
use lanyard_tester::traffic::{Hosts, Stream};

/// Measures the throughput of a pattern, then the forwarding rate and the loss at the greatest load that can
/// be offered.
pub(super) fn meshed(run: &mut Run, plan: &Plan, size: usize, pattern: Pattern) -> Result<()> {
    let (title, clause) = match pattern {
        Pattern::OneToMany => ("one to many", "RFC 2889, 5.2"),
        Pattern::ManyToOne => ("many to one", "RFC 2889, 5.2"),
        Pattern::Halves => ("unidirectional", "RFC 2889, 5.4"),
        _ => ("fully meshed", "RFC 2889, 5.1"),
    };
    let found = run.search(
        &format!("{title}, {size} B"),
        |dut| {
            let flows = plan.flows(dut, pattern, size);
            let mut limits = rate_limits(dut, &flows, size, plan.precision);
            // All inputs share the one output.
            if pattern == Pattern::ManyToOne {
                limits.max = limits.max.map(|max| max / flows.senders() as f64);
            }
            Ok(Some(Search::new(limits)))
        },
        |dut, load| {
            let flows = plan.flows(dut, pattern, size);
            dut.learn(&flows)?;
            Ok(flows.seen(&dut.trial(&flows, load.into())?))
        },
    )?;
    let test = format!("{title} throughput");
    for (index, answer) in found.into_iter().enumerate() {
        let Some(answer) = answer else { continue };
        let name = run.name(index).to_owned();
        let senders = run.turn(index, |dut, _| Ok(plan.flows(dut, pattern, size).senders()))?;
        let factor = senders.unwrap_or(1) as f64;
        record_found(&mut run.results, &rate(&test, clause, size), &name, answer, factor);
    }
    run.say(format!("{title}, {size} B: maximum load"));
    let test = format!("{title} forwarding rate at maximum load");
    let lost = format!("{title} frame loss at maximum load");
    run.each(|dut, results| {
        let flows = plan.flows(dut, pattern, size);
        dut.learn(&flows)?;
        let seen = flows.seen(&dut.trial(&flows, Load::Everything)?);
        let all = seen.delivered * flows.senders() as f64;
        record(results, &rate(&test, clause, size), dut.name, all);
        let what = Figure { unit: Unit::Fraction, better: Better::Lower, ..rate(&lost, clause, size) };
        record(results, &what, dut.name, seen.loss);
        dut.rest()
    })?;
    Ok(())
}

/// The greatest forwarding rate at any load (RFC 2285, 3.6.3): the load goes down in steps from the greatest that can
/// be offered. Each step is a median, because the maximum of many single trials would be an outlier.
pub(super) fn maximum(run: &mut Run, plan: &Plan, size: usize) -> Result<()> {
    const CLAUSE: &str = "RFC 2889, 5.6";
    const TRIALS: usize = 3;
    run.results.note(
        "5.6, forward pressure: not measured: it takes frames with a gap of 88 instead of 96 bit times, and neither veth \
         (which has no bit times) nor a network card (which keeps the gap) lets Linux send them",
    );
    run.say(format!("maximum forwarding rate, {size} B"));
    let steps = (1.0 / plan.load_step).round().max(1.0) as usize;
    let mut most = vec![0.0f64; run.devices()];
    let mut best = vec![(0.0f64, 0.0f64); run.devices()];
    for step in (0..=steps).rev() {
        let part = step as f64 / steps as f64;
        let mut seen = vec![Vec::new(); run.devices()];
        for _ in 0..TRIALS {
            run.each(|dut, _| {
                let load = match step {
                    _ if step == steps => Load::Everything,
                    _ => Load::Rate(most[dut.index] * part),
                };
                // One input and one output, as the clause has it.
                let flows = Flows::of(Pattern::Pairs, 2, &plan.template(dut, size));
                // A load below the rate that was already forwarded cannot give a greater rate.
                if step < steps && most[dut.index] * part < best[dut.index].1 || step == 0 {
                    return Ok(());
                }
                dut.learn(&flows)?;
                let trial = flows.seen(&dut.trial(&flows, load)?);
                seen[dut.index].push((trial.offered, trial.delivered));
                if trial.loss > 0.0 { dut.rest() } else { Ok(()) }
            })?;
        }
        for index in 0..run.devices() {
            let (offered, delivered): (Vec<f64>, Vec<f64>) = seen[index].iter().copied().unzip();
            let (Some(offered), Some(delivered)) = (Spread::of(&offered), Spread::of(&delivered)) else {
                continue;
            };
            if step == steps {
                most[index] = offered.median;
                let name = run.name(index).to_owned();
                let what = rate("forwarding rate at maximum load", CLAUSE, size);
                record(&mut run.results, &what, &name, delivered.median);
            }
            if delivered.median > best[index].1 {
                best[index] = (offered.median, delivered.median);
            }
        }
    }
    for (index, (offered, delivered)) in best.into_iter().enumerate() {
        if delivered > 0.0 {
            let name = run.name(index).to_owned();
            record(&mut run.results, &rate("maximum forwarding rate", CLAUSE, size), &name, delivered);
            let what = Figure {
                better: Better::Neither,
                ..rate("load of the maximum forwarding rate", CLAUSE, size)
            };
            record(&mut run.results, &what, &name, offered);
        }
    }
    Ok(())
}

/// Port 0 sends half of a line's rate to port 2 and half to port 3. Port 1 sends a full line's rate to port 3, which
/// therefore gets 150 %. Loss at port 2 is head-of-line blocking. If port 3 loses nothing, the device applies back
/// pressure.
pub(super) fn congestion(run: &mut Run, size: usize) -> Result<()> {
    const CLAUSE: &str = "RFC 2889, 5.5";
    run.say(format!("congestion control, {size} B"));
    run.each(|dut, results| {
        let Some(line) = dut.subject.tester().line_rate_pps(size) else {
            results.note(
                "5.5, congestion control: not measured: without a line rate (veth) no output port can be congested, only \
                 the processor that serves them all",
            );
            return Ok(());
        };
        let flow = |id: u16, from: usize, to: usize, share: f64| Flow {
            from,
            to: vec![to],
            stream: Stream { size, src: Hosts::of_port(from, 1), dst: Hosts::of_port(to, 1), id, ..Stream::new() },
            share,
        };
        let flows = Flows(vec![flow(0, 0, 2, 0.5), flow(1, 0, 3, 0.5), flow(2, 1, 3, 1.0)]);
        dut.learn(&flows)?;
        let outcome = dut.trial(&flows, Load::Rate(line))?;
        let loss = |ids: &[usize]| {
            let streams = || ids.iter().filter_map(|id| outcome.streams.get(*id).zip(flows.0.get(*id)));
            let sent: u64 = streams().map(|(s, _)| s.sent).sum();
            let arrived: u64 = streams().filter_map(|(s, f)| s.received_at.get(f.to[0])).sum();
            sent.saturating_sub(arrived) as f64 / sent.max(1) as f64
        };
        let what = |case: &'static str| Figure {
            test: "congestion control, loss",
            case,
            clause: CLAUSE,
            unit: Unit::Fraction,
            better: Better::Lower,
            at: Some((Axis::FrameBytes, size as f64)),
        };
        let (free, congested) = (loss(&[0]), loss(&[1, 2]));
        record(results, &what("uncongested port"), dut.name, free);
        record(results, &what("congested port"), dut.name, congested);
        let says = |yes: bool, what: &str| format!("{}: {}{what} at {size} B", dut.name, if yes { "" } else { "no " });
        // Up to one frame in a thousand may still have been under way when the trial ended.
        results.note(says(free > 0.001, "head-of-line blocking"));
        results.note(says(congested <= 0.001, "back pressure"));
        dut.rest()
    })?;
    Ok(())
}
