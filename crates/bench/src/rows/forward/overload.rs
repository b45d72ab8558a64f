//! More load than a device can take: the generator on a core of its own, the device on another.
//!
//! Read first: RFC 2285, 3.5.2 (overload behaviour). The device's input is polled by the kernel thread of `p0`'s
//! NAPI, pinned to the device's core, as a NIC's would be; what it has no time for is lost in front of it, in `p0`'s
//! ring.

use super::rig::{Rig, Settings};
use crate::bed::{Bed, Traffic, poll_on};
use crate::dut::{Device, Kind, PortMode};
use crate::os::Pinned;
use crate::stats::Spread;
use crate::traffic::{CountAt, Generator, Receiver, Stream};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// Offered loads in parts of the rate that was delivered of all the generator can send.
const STEPS: [f64; 6] = [0.8, 0.9, 1.0, 1.1, 1.25, 1.5];
/// How often each is tried in a round.
const SWEEPS: u32 = 3;

/// Delivered at 200 % of the saturating load, as a part of the most that was delivered at any load.
pub struct OverloadRig {
    device: Box<dyn Device>,
    receiver: Receiver,
    bed: Bed,
    core: usize,
    window: Duration,
    /// What was really offered as 200 %, as a part of the most that was delivered.
    offered: f64,
    /// Offered and delivered rate of each trial of the last round.
    curve: Vec<(f64, f64)>,
}

impl OverloadRig {
    /// Brings `kind` up with its input on one core, for a generator on the other.
    ///
    /// # Errors
    /// On a machine with one core, or when something does not come up.
    pub fn up(settings: &Settings, kind: Kind, count_at: CountAt) -> Result<Self> {
        ensure!(settings.core != settings.other_core, "needs a second core for the generator");
        let traffic = if count_at == CountAt::Xdp { Traffic::XdpFrames } else { Traffic::Frames };
        let bed = Bed::new(1, traffic)?;
        poll_on(&bed.switch, "p0", settings.core).map(drop)?;
        let receiver = Receiver::new(&bed.sink, &bed.receivers(), count_at, false)?;
        let device = kind.up(&bed, &settings.lanyard, PortMode::Access).with_context(|| kind.name())?;
        let window = settings.window / SWEEPS;
        let mut rig = Self {
            device,
            receiver,
            bed,
            core: settings.other_core,
            window,
            offered: 0.0,
            curve: Vec::new(),
        };
        rig.delivered(None)?;
        Ok(rig)
    }

    /// Offered and delivered rate in frames per second, at a load of `rate` or all there is.
    fn delivered(&mut self, rate: Option<f64>) -> Result<(f64, f64)> {
        let _core = Pinned::to(self.core)?;
        let stream = Stream { rate_pps: rate.map(|r| r as u32), ..Stream::new() };
        Generator::new(&self.bed.sink, "rx1", &stream.learning(true))?.send(1)?;
        let mut generator = Generator::new(&self.bed.sender, "tx0", &stream)?;
        // Into the steady state first: the ring fills, the thread wakes up.
        generator.run_for(self.window / 10)?;
        let (before, sent_before) = (self.receiver.arrivals()?.frames, generator.sent()?);
        let time = generator.run_for(self.window)?.as_secs_f64();
        let (after, sent) = (self.receiver.arrivals()?.frames, generator.sent()?);
        Ok(((sent - sent_before) as f64 / time, (after - before) as f64 / time))
    }
}

impl Rig for OverloadRig {
    fn round(&mut self) -> Result<f64> {
        let (_, saturated) = self.delivered(None)?;
        ensure!(saturated > 0.0, "nothing arrives");
        // The steps are tried in turn, several times over, and each is its median: the most of many noisy trials
        // would be the luckiest one, and nothing could keep up with it.
        let mut trials = vec![Vec::new(); STEPS.len()];
        for _ in 0..SWEEPS {
            for (step, trials) in STEPS.iter().zip(&mut trials) {
                trials.push(self.delivered(Some(saturated * step))?);
            }
        }
        self.curve = trials.iter().filter_map(|trials| medians(trials)).collect();
        let most = self.curve.iter().map(|trial| trial.1).fold(0.0, f64::max);
        let mut twice = Vec::new();
        for _ in 0..SWEEPS {
            let paced = self.delivered(Some(most * 2.0))?;
            // Pacing costs the generator a clock read a frame; without it, it may reach what it could not.
            twice.push(if paced.0 < most * 1.95 { self.delivered(None)? } else { paced });
        }
        let twice = medians(&twice).context("no trial")?;
        self.curve.push(twice);
        self.offered = twice.0 / most;
        Ok(twice.1 / most.max(twice.1))
    }

    fn detail(&self) -> String {
        let trials = self.curve.iter().map(|(o, d)| format!("{:.3}>{:.3}", o / 1e6, d / 1e6));
        let trials: Vec<String> = trials.collect();
        format!("offered>delivered Mpps: {}; {}", trials.join(" "), self.device.detail())
    }

    fn caveat(&self) -> Option<String> {
        let percent = self.offered * 100.0;
        (percent < 180.0).then(|| format!("the generator's core offers {percent:.0} % at most"))
    }
}

/// The median offered and the median delivered rate.
fn medians(trials: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (offered, delivered): (Vec<f64>, Vec<f64>) = trials.iter().copied().unzip();
    Some((Spread::of(&offered)?.median, Spread::of(&delivered)?.median))
}
