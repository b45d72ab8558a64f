//! RFC 2889, 5.9 and 5.10: frames that a switch must not forward, and frames that it must forward to all
//! ports.

use super::{Plan, rate};
use crate::method::flow::{Flows, Load, Pattern, Template};
use crate::method::search::Search;
use crate::method::{Figure, Run, rate_limits, record, record_found};
use crate::report::Better;
use crate::report::Unit;
use anyhow::Result;
use lanyard_tester::os::check_interrupted;
use lanyard_tester::traffic::Stream;
use lanyard_tester::trial::Offer;

/// Frames of each kind.
const FRAMES: u64 = 1000;
/// The rate in frames per second: low enough for any device.
const RATE: f64 = 5000.0;

/// The kinds that Linux can send, and their sizes with FCS: one byte less than the minimum of Ethernet, and one byte
/// more than its maximum.
const KINDS: [(&str, usize); 2] = [("undersize, 63 B", 63), ("oversize, 1519 B", 1519)];

/// The part of the faulty frames that the device does not forward. On a device with a larger MTU an oversize
/// frame is a valid frame.
pub(super) fn errored(run: &mut Run, first_round: bool) -> Result<()> {
    const CLAUSE: &str = "RFC 2889, 5.9";
    if first_round {
        run.results.note(
            "5.9, errored frames: CRC errors, fragments, alignment errors and dribble bits: not measured: veth carries no \
             check sequence and no bits, and a network card sends none that is wrong",
        );
    }
    run.say("errored frames");
    for (kind, size) in KINDS {
        run.each(|dut, results| {
            let ports = dut.subject.tester().ports();
            let template =
                |size| Template { stream: Stream { size, ..Stream::new() }, hosts: 1, routers: Vec::new() };
            dut.learn(&Flows::of(Pattern::Pairs, ports.min(2), &template(64)))?;
            let flows = Flows::of(Pattern::Pairs, ports.min(2), &template(size));
            let offer = dut.timed(Offer::burst(flows.streams(Load::Rate(RATE)), FRAMES));
            match dut.offer(&offer) {
                Ok(outcome) => {
                    let seen = flows.seen(&outcome);
                    let what = Figure {
                        case: kind,
                        unit: Unit::Fraction,
                        better: Better::Neither,
                        at: None,
                        ..rate("errored frames filtered", CLAUSE, size)
                    };
                    record(results, &what, dut.name, seen.loss);
                }
                Err(why) => {
                    check_interrupted()?;
                    results.note(format!("5.9, {kind}: not measured on {}: {why:#}", dut.name));
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Broadcast throughput (no frame lost at any port), and the latency at that rate.
pub(super) fn broadcast(run: &mut Run, plan: &Plan, size: usize) -> Result<()> {
    const CLAUSE: &str = "RFC 2889, 5.10";
    let flows = |ports: usize| {
        let stream = Stream { size, ..Stream::new() };
        Flows::broadcast(ports, &Template { stream, hosts: 1, routers: Vec::new() })
    };
    let found = run.search(
        &format!("broadcast, {size} B"),
        |dut| {
            let flows = flows(dut.subject.tester().ports());
            Ok(Some(Search::new(rate_limits(dut, &flows, size, plan.precision))))
        },
        |dut, load| {
            let flows = flows(dut.subject.tester().ports());
            Ok(flows.seen(&dut.trial(&flows, load.into())?))
        },
    )?;
    for (index, answer) in found.into_iter().enumerate() {
        let Some(answer) = answer else { continue };
        let name = run.name(index).to_owned();
        record_found(&mut run.results, &rate("broadcast throughput", CLAUSE, size), &name, answer, 1.0);
        if answer.load <= 0.0 {
            continue;
        }
        run.turn(index, |dut, results| {
            let mut flows = flows(dut.subject.tester().ports());
            flows.0.iter_mut().for_each(|flow| flow.stream.stamp = true);
            let outcome = dut.trial_for(&flows, Load::Rate(answer.load), dut.timing.latency)?;
            let latency = outcome.latency();
            for (test, value) in [
                ("broadcast latency, median", latency.percentile(50.0)),
                ("broadcast latency, 99 %", latency.percentile(99.0)),
            ] {
                if let Some(ns) = value {
                    let what = Figure {
                        unit: Unit::Microseconds,
                        better: Better::Lower,
                        ..rate(test, CLAUSE, size)
                    };
                    record(results, &what, dut.name, ns as f64 / 1e3);
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}
