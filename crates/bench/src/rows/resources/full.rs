//! A full table: twice as many routes are offered as fit, then about half of them are removed. Frames are sent to them meanwhile.
//!
//! The chip's table is made small, so that this takes seconds. The software plane, which is the specification with the whole
//! configuration, forwards the frames that the chip traps. A frame is right if it leaves by the next hop of its longest match,
//! out of the chip or out of the software plane.

use super::network::{PREFETCH, beginning, net, packet, platform, port, routed, wanted};
use anyhow::{Context, Result, anyhow};
use lanyard_asic::sdk::Operation;
use lanyard_offload::simulated::Simulated;
use lanyard_offload::strategy::by_name;
use lanyard_offload::{Manager, Policy, Refusal};
use lanyard_pipeline::route::RouteChange;
use lanyard_pipeline::{Output, Pipeline, Timestamp};
use lanyard_types::{PortId, VrfId};

/// The size of the small chip's table of prefixes, in units.
const UNITS: u32 = 2048;
const SALT: u64 = 1;

/// The result of [`measure`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    /// Routes that were offered.
    pub(super) offered: u32,
    /// Routes in the chip, when it was full.
    pub(super) offloaded: u32,
    /// Routes that were refused. Each refusal names the full table.
    pub(super) refused: u32,
    /// Routes that were accepted and are forwarded by the software plane.
    pub(super) hidden: u32,
    /// Routes that were refused for another reason.
    pub(super) unanswered: u32,
    /// Frames that were sent, and those of them that did not leave by the next hop of their longest match.
    pub(super) frames: u64,
    pub(super) wrong: u64,
    /// Routes that are still hidden after as many others were removed as did not fit, so that there is room for them in the chip.
    pub(super) not_recovered: u32,
}

struct Bed {
    manager: Manager<Simulated>,
    software: Pipeline,
    found: Found,
}

/// Offers twice as many routes as fit to a chip with this strategy and policy.
pub(super) fn measure(method: &str, policy: Policy) -> Result<Found> {
    let mut platform = platform(60, 35)?;
    for table in platform.memory.iter_mut().flat_map(|memory| &mut memory.table) {
        if table.name == "prefixes" {
            table.size = UNITS;
        }
    }
    let strategy = by_name(method, &platform, SALT, PREFETCH).map_err(|error| anyhow!(error))?;
    let manager = Manager::new(Simulated::new(&platform, SALT), strategy, policy);
    let mut bed = Bed { manager, software: Pipeline::new(SALT), found: Found::default() };
    for number in 1..=3 {
        let setup = routed(number)?;
        bed.manager.setup(&setup)?;
        for operation in setup {
            match operation {
                Operation::Port(port, state) => {
                    let state = state.map(|state| *state);
                    bed.software.set_port(port, state, Timestamp::default(), &mut |_| ());
                }
                Operation::Rif(rif, state) => bed.software.set_rif(rif, state.map(|state| *state)),
                _ => {}
            }
        }
    }
    let beginning = beginning()?;
    bed.manager.request(&beginning)?;
    bed.software_takes(&beginning)?;
    bed.offer()?;
    bed.recover()?;
    Ok(bed.found)
}

impl Bed {
    fn offer(&mut self) -> Result<()> {
        self.found.offered = 2 * UNITS;
        for number in 0..self.found.offered {
            let request = wanted(number)?;
            match self.manager.request(&request) {
                Ok(()) => self.software_takes(&request)?,
                Err(Refusal::Full { table, .. }) if table == "lpm/prefixes" => self.found.refused += 1,
                Err(_) => self.found.unanswered += 1,
            }
            if number.is_multiple_of(64) {
                self.frames(number)?;
            }
        }
        self.manager.settle()?;
        self.found.hidden = self.manager.hidden() as u32;
        self.found.offloaded = self.manager.written().len() as u32;
        for number in 0..self.found.offered {
            self.frame(number)?;
        }
        Ok(())
    }

    /// Removes as many routes as did not fit. The manager is expected to write the hidden routes into the chip by itself.
    fn recover(&mut self) -> Result<()> {
        for number in 0..UNITS + 8 {
            let prefix = format!("{}/24", net(number)).parse()?;
            if self.manager.routes().get(VrfId::DEFAULT, prefix).is_some() {
                let removal = [Operation::Route(VrfId::DEFAULT, prefix, None)];
                self.manager.request(&removal)?;
                self.software_takes(&removal)?;
            }
            if number.is_multiple_of(64) {
                self.frames(number)?;
            }
        }
        self.manager.settle()?;
        self.found.not_recovered = self.manager.hidden() as u32;
        for number in 0..self.found.offered {
            self.frame(number)?;
        }
        Ok(())
    }

    fn software_takes(&mut self, batch: &[Operation]) -> Result<()> {
        for operation in batch {
            let change = match operation.clone() {
                Operation::Adjacency(id, new) => RouteChange::Adjacency(id, new),
                Operation::Group(id, new) => RouteChange::Group(id, new),
                Operation::Route(vrf, prefix, new) => RouteChange::Route(vrf, prefix, new),
                _ => continue,
            };
            self.software.route(&change).map_err(|refused| anyhow!("the software plane: {refused}"))?;
        }
        Ok(())
    }

    /// Sends frames to the routes up to number `about`, and to a few others.
    fn frames(&mut self, about: u32) -> Result<()> {
        // An accepted route is in the chip only when the bus has carried its write. Until then its frames take the old next hop,
        // so wait for the writes.
        self.manager.drain();
        (about.saturating_sub(8)..=about)
            .chain([0, UNITS - 1, UNITS])
            .try_for_each(|number| self.frame(number))
    }

    /// Sends one frame to route `number` and counts it as wrong unless it leaves by the right port: out of the chip or, if the
    /// chip traps it, out of the software plane.
    fn frame(&mut self, number: u32) -> Result<()> {
        let (from, frame) = (port(1)?, packet(number));
        let chip = self.manager.hardware();
        chip.advance(10);
        let now = chip.now();
        let trapped = |chip: &mut Simulated| chip.device().chip().pipeline().counters().port(from).trapped;
        let before = trapped(chip);
        chip.device().frame(now, from, &frame);
        chip.advance(10);
        let now = chip.now();
        let mut out: Vec<PortId> = chip.device().departures(now).into_iter().map(|(port, _)| port).collect();
        if trapped(chip) > before {
            let mut sink = Output::default();
            self.software.process(now, from, &frame, &mut sink);
            out.extend(sink.sent.into_iter().map(|(port, _)| port));
        }
        let to = std::net::Ipv4Addr::from(u32::from(net(number)) + 1);
        let target = self.software.tables().routes.longest(VrfId::DEFAULT, to.into()).context("a route")?.1;
        let new = target == lanyard_pipeline::route::RouteTarget::Group(super::network::group(3)?);
        let right = port(if new { 3 } else { 2 })?;
        self.found.frames += 1;
        self.found.wrong += u64::from(out != [right]);
        Ok(())
    }
}
