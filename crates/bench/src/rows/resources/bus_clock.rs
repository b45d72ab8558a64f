//! The measurement of [`super::rig`] on the bus's own clock, which is exact even on a busy machine.
//!
//! The chip is simulated in this process, and its clock advances for two reasons only: the bus needs time for a request that the
//! resource manager waits for, and the resource manager uses processor time, during which the bus goes on working. The figures
//! contain no delay by the scheduler and no sleep that ends late. As in [`super::rig`], the frames pass the chip's pipeline, its
//! queues and its ports.

use super::Figures;
use super::network::{EVERY, PREFETCH, beginning, packet, platform, port, routed, wanted, watched};
use anyhow::{Result, anyhow, ensure};
use lanyard_asic::sdk::Operation;
use lanyard_offload::simulated::Simulated;
use lanyard_offload::strategy::by_name;
use lanyard_offload::{Manager, Policy};
use lanyard_types::PortId;
use std::collections::BTreeSet;

const SALT: u64 = 1;
/// Longest outage that is waited for, in microseconds of the bus's clock.
const LIMIT_US: u64 = 60_000_000;

/// Nanoseconds of processor time that this thread has used.
fn processor_ns() -> u64 {
    let id = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    nix::time::clock_gettime(id)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// The flows: the frame of each, which is sent at a fixed interval, and those that have arrived at the new next hop.
struct Flows {
    frames: Vec<(Vec<u8>, Vec<u8>)>,
    arrived: BTreeSet<Vec<u8>>,
    from: PortId,
    to: PortId,
    next_us: u64,
    last_us: u64,
}

impl Flows {
    /// Sends a frame of each flow that has not arrived, if the interval is over, and takes the frames that leave the chip.
    fn pass(&mut self, chip: &mut Simulated) {
        let (now, now_us) = (chip.now(), chip.now_us());
        if now_us >= self.next_us {
            self.next_us = now_us + EVERY.as_micros() as u64;
            for (to, frame) in &self.frames {
                if !self.arrived.contains(to) {
                    chip.device().frame(now, self.from, frame);
                }
            }
        }
        for (port, frame) in chip.device().departures(now) {
            if port == self.to && self.arrived.insert(frame.get(30..34).unwrap_or_default().to_vec()) {
                self.last_us = now_us;
            }
        }
    }
    fn is_whole(&self) -> bool {
        self.arrived.len() == self.frames.len()
    }
}

/// Measures the cost of `routes` routes with the strategy `method`, on a bus with these latencies in microseconds.
pub(super) fn measure(method: &str, write_us: u32, query: u32, routes: u32) -> Result<Figures> {
    let platform = platform(write_us, query)?;
    let mut chip = Simulated::new(&platform, SALT);
    chip.meter = Some(processor_ns);
    let strategy = by_name(method, &platform, SALT, PREFETCH).map_err(|error| anyhow!(error))?;
    let mut manager = Manager::new(chip, strategy, Policy::Sync);
    for number in 1..=3 {
        manager.setup(&routed(number)?)?;
    }
    manager.request(&beginning()?)?;
    manager.settle()?;
    let frames = watched(routes).into_iter().map(packet).map(|frame| (frame[30..34].to_vec(), frame));
    let start_us = manager.hardware().now_us();
    let (from, to) = (port(1)?, port(3)?);
    let mut flows = Flows {
        frames: frames.collect(),
        arrived: BTreeSet::new(),
        from,
        to,
        next_us: start_us,
        last_us: start_us,
    };
    let requests: Vec<[Operation; 1]> = (0..routes).map(wanted).collect::<Result<_>>()?;
    for request in &requests {
        working(&mut manager, |manager| manager.request(request))?;
        flows.pass(manager.hardware());
    }
    working(&mut manager, |manager| {
        manager.flush();
        Ok(())
    })?;
    let users_us = manager.hardware().now_us() - start_us;
    while !flows.is_whole() {
        ensure!(manager.hardware().now_us() - start_us < LIMIT_US, "flows did not return");
        manager.hardware().advance(100);
        manager.poll_answers();
        flows.pass(manager.hardware());
    }
    manager.settle()?;
    ensure!(manager.written().len() as u32 == routes + 1, "a route is missing in the chip");
    Ok(Figures {
        users_ms: users_us as f64 / 1e3,
        outage_ms: (flows.last_us - start_us) as f64 / 1e3,
        write_us: write_us.into(),
        query_us: query.into(),
    })
}

/// Runs `work`, and advances the clock by the processor time that the manager used, without the time for simulating the chip.
fn working<T>(
    manager: &mut Manager<Simulated>,
    work: impl FnOnce(&mut Manager<Simulated>) -> Result<T, lanyard_offload::Refusal>,
) -> Result<T> {
    let (before, own) = (processor_ns(), manager.hardware().own_ns());
    let outcome = work(manager)?;
    let own = manager.hardware().own_ns() - own;
    let used = processor_ns().saturating_sub(before).saturating_sub(own);
    manager.hardware().advance_ns(used);
    Ok(outcome)
}
