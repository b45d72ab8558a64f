//! RFC 2889, 5.7 and 5.8: the number of addresses that a device learns, and the rate at which it learns them.
//!
//! Port 1 has the addresses (the RFC's learning port). Port 0 sends to each of them (the test port). Port 2 listens
//! (the monitoring port): a frame that arrives there was flooded, so its address was not known. Every trial begins with
//! a device that knows no address.

use super::{Plan, rate};
use crate::method::search::{End, Limits, Search, Seen};
use crate::method::{Dut, Figure, Run, record_found};
use crate::report::Better;
use crate::report::Unit;
use anyhow::Result;
use lanyard_tester::traffic::{Hosts, Stream};
use lanyard_tester::trial::Offer;
use std::time::Duration;

const TEST_PORT: usize = 0;
const LEARNING_PORT: usize = 1;
const MONITORING_PORT: usize = 2;

/// The first address that is learned: away from every host of other tests.
const FIRST: u32 = 0x40_0000;
/// The most addresses in the search for a rate. The time to learn them is measured, so more are not needed.
const RATE_ADDRESSES: u32 = 8192;

/// The greatest number of addresses that each device learns, all of which it still knows when frames are sent
/// to them.
pub(super) fn capacity(run: &mut Run, plan: &Plan) -> Result<Vec<Option<f64>>> {
    let found = run.search(
        "address caching capacity",
        |_| {
            let max = Some(f64::from(plan.addresses));
            let limits = Limits { max, whole: true, ..Limits::new(1.0) };
            Ok(Some(Search::new(Limits {
                resolution: plan.precision.resolution,
                votes: plan.precision.votes,
                ..limits
            })))
        },
        |dut, load| {
            let addresses = load.unwrap_or(1.0) as u32;
            let (_, known) = learn(dut, plan, addresses, Some(plan.learning_pps))?;
            let loss = f64::from(addresses - known.min(addresses)) / f64::from(addresses);
            Ok(Seen::new(f64::from(addresses), f64::from(known), loss))
        },
    )?;
    let what = Figure {
        unit: Unit::Addresses,
        better: Better::Higher,
        at: None,
        ..rate("address caching capacity", "RFC 2889, 5.7", 64)
    };
    let mut capacities = Vec::new();
    for (index, answer) in found.into_iter().enumerate() {
        capacities.push(answer.map(|found| found.load));
        let Some(answer) = answer else { continue };
        let name = run.name(index).to_owned();
        let series = record_found(&mut run.results, &what, &name, answer, 1.0);
        if answer.end == End::Limit {
            series.caveats = vec!["at least this: no more were tried (--addresses)".to_owned()];
        }
    }
    Ok(capacities)
}

/// The greatest rate at which every new address is learned.
pub(super) fn learning_rate(run: &mut Run, plan: &Plan, capacities: &[Option<f64>]) -> Result<()> {
    let most = plan.addresses.min(RATE_ADDRESSES);
    let addresses = |index: usize| {
        let capacity = capacities.get(index).copied().flatten().filter(|capacity| *capacity >= 1.0);
        capacity.map_or(most, |capacity| most.min(capacity as u32))
    };
    let found = run.search(
        "address learning rate",
        |dut| {
            let max = dut.subject.tester().line_rate_pps(64);
            let precision = plan.precision;
            Ok(Some(Search::new(Limits {
                max,
                resolution: precision.resolution,
                votes: precision.votes,
                ..Limits::new(crate::method::flow::RATE_MIN)
            })))
        },
        |dut, load| {
            let addresses = addresses(dut.index);
            let (offered, known) = learn(dut, plan, addresses, load.map(|rate| rate as u32))?;
            let part = f64::from(known.min(addresses)) / f64::from(addresses);
            Ok(Seen::new(offered, offered * part, 1.0 - part))
        },
    )?;
    let what = Figure {
        unit: Unit::AddressesPerSecond,
        at: None,
        ..rate("address learning rate", "RFC 2889, 5.8", 64)
    };
    for (index, answer) in found.into_iter().enumerate() {
        let Some(answer) = answer else { continue };
        let name = run.name(index).to_owned();
        record_found(&mut run.results, &what, &name, answer, 1.0);
        run.results.parameter(&format!("learning_rate_addresses_{name}"), addresses(index));
    }
    Ok(())
}

/// Makes a device that knows no address learn `count` addresses at a rate, then sends a frame to each. Returns the rate
/// at which the addresses were really offered, and how many of them the device knew.
fn learn(dut: &mut Dut, plan: &Plan, count: u32, rate_pps: Option<u32>) -> Result<(f64, u32)> {
    dut.forgotten();
    if !dut.subject.forget()? {
        dut.subject.pause(plan.ageing)?;
    }
    let tester = Hosts::of_port(TEST_PORT, 1);
    let addresses = Hosts { first: FIRST, count };
    let stream = |id, src, dst, rate_pps| Stream { id, src, dst, rate_pps, ..Stream::new() };
    let frames = |port, stream: Stream, count: u32| {
        let mut offer = Offer::burst(vec![(port, stream)], u64::from(count));
        // Long enough for the lowest rate.
        offer.window = Duration::from_secs(60 + u64::from(count) / 100);
        offer
    };
    // The test port's own host sends first, so that frames to it are not flooded.
    let hello = dut.timed(frames(TEST_PORT, stream(0, tester, Hosts::one(addresses.first), Some(1000)), 1));
    dut.offer(&hello)?;
    let speak = dut.timed(frames(LEARNING_PORT, stream(1, addresses, tester, rate_pps), count));
    let spoken = dut.offer(&speak)?;
    let ask = dut.timed(frames(TEST_PORT, stream(2, tester, addresses, Some(plan.learning_pps)), count));
    let asked = dut.offer(&ask)?;
    let at = |port: usize| {
        asked.streams.first().and_then(|stream| stream.received_at.get(port)).copied().unwrap_or(0)
    };
    let known = at(LEARNING_PORT).saturating_sub(at(MONITORING_PORT)).min(u64::from(count));
    let offered = spoken.streams.first().map_or(0.0, lanyard_tester::trial::StreamOutcome::tx_pps);
    Ok((offered, known as u32))
}
