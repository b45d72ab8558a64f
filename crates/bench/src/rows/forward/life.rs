//! Measurements of the daemon itself: frames lost while it is killed and restarted under load, its start-up
//! time, and its memory.

use super::frames::SILENT;
use super::rig::{Rig, Settings};
use crate::bed::{Bed, Traffic};
use crate::dut::{Device, Hook, Lanyard, PortMode, Startup};
use anyhow::{Context, Result, anyhow, ensure};
use lanyard_tester::os::{Pinned, check_interrupted, wait_until};
use lanyard_tester::traffic::{Arrivals, CountAt, Generator, Hosts, Order, Receiver, Stream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Frames per second while the daemon is killed and restarted. The rate is far below the limit of every hook, so
/// overload causes no loss.
const LOAD_PPS: u32 = 100_000;
/// Ports of the start-up and memory rigs.
const PORTS: u16 = 48;
/// FDB entries of the memory rig.
const ENTRIES: u32 = 10_000;
const LIMIT: Duration = Duration::from_secs(10);

/// Runs `generator` on `core` in a thread of its own while `meanwhile` runs here.
fn under_load<T>(core: usize, generator: &mut Generator, meanwhile: impl FnOnce() -> Result<T>) -> Result<T> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<()> {
            let _core = Pinned::to(core)?;
            let more = |_| (!stop.load(Ordering::Relaxed)).then_some(Duration::from_secs(1));
            generator.run_while(more).map(drop)
        });
        let result = meanwhile();
        stop.store(true, Ordering::Relaxed);
        load.join().map_err(|_| anyhow!("the generator died"))??;
        result
    })
}

/// Sends one frame every millisecond while `meanwhile` runs here, and sleeps in between. A paced stream would stay
/// in the kernel for long, and each program that Lanyard attaches would wait for the end of that system call (RCU).
fn while_knocking<T>(generator: &mut Generator, meanwhile: impl FnOnce() -> Result<T>) -> Result<T> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                generator.send(1)?;
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        let result = meanwhile();
        stop.store(true, Ordering::Relaxed);
        load.join().map_err(|_| anyhow!("the generator died"))??;
        result
    })
}

/// `kill -9` and restart under load, with the startup-config unchanged, with bad lines, or missing. The
/// figure is the number of frames lost.
pub struct HitlessRig {
    lanyard: Lanyard,
    startup: Startup,
    receiver: Receiver,
    generator: Generator,
    core: usize,
    seen: Arrivals,
    bed: Bed,
}

impl HitlessRig {
    /// Brings Lanyard up under a paced load.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn up(settings: &Settings, hook: Hook, startup: Startup) -> Result<Self> {
        let (traffic, count_at) = match hook {
            Hook::Xdp => (Traffic::XdpFrames, CountAt::Xdp),
            _ => (Traffic::Frames, CountAt::Tc),
        };
        let bed = Bed::new(1, traffic)?;
        let receiver = Receiver::new(&bed.sink, &bed.receivers(), count_at, true)?;
        let lanyard = Lanyard::up(&bed, &settings.lanyard, hook, PortMode::Access)?;
        let stream = Stream { rate_pps: Some(LOAD_PPS), ..Stream::new() };
        Generator::new(&bed.sink, "rx1", &stream.learning(true))?.send(1)?;
        let generator = Generator::new(&bed.sender, "tx0", &stream)?.with_slice(Duration::from_secs(1));
        let seen = Arrivals::default();
        Ok(Self { lanyard, startup, receiver, generator, core: settings.other_core, seen, bed })
    }

    /// The number of frames lost since the last call: sent after the first `sent_before` frames, and not arrived.
    fn lost(&mut self, sent_before: u64) -> Result<u64> {
        let sent = self.generator.sent()? - sent_before;
        let now = settled(&self.receiver)?;
        let arrived = now.frames - self.seen.frames;
        ensure!(arrived <= sent, "{arrived} frames arrived of {sent}");
        ensure!(now.late == self.seen.late, "{} frames out of order", now.late - self.seen.late);
        self.seen = now;
        Ok(sent - arrived)
    }
}

impl Rig for HitlessRig {
    fn round(&mut self) -> Result<f64> {
        let start = self.generator.sent()?;
        // Run the same load without the kill first: it must lose no frame, so any loss below is due to the
        // kill.
        under_load(self.core, &mut self.generator, || flowing(&self.receiver, self.seen.frames))?;
        let control = self.lost(start)?;
        ensure!(control == 0, "the load loses {control} frames with the daemon left alone");
        let start = self.generator.sent()?;
        let receiver = &self.receiver;
        let lanyard = &mut self.lanyard;
        let before = self.seen.frames;
        let (startup, ports) = (self.startup, self.bed.ports());
        let last_port = ports.last().context("a port")?;
        under_load(self.core, &mut self.generator, || {
            flowing(receiver, before)?;
            lanyard.kill();
            lanyard.startup(startup, last_port)?;
            flowing(receiver, receiver.arrivals()?.frames)?;
            lanyard.start()?;
            flowing(receiver, receiver.arrivals()?.frames)
        })?;
        if let Some(message) = startup.message() {
            let log = self.lanyard.show("show logging")?;
            ensure!(log.contains(message), "the daemon has not logged {message}:\n{log}");
            self.lanyard.startup(Startup::AsBefore, last_port)?;
        }
        Ok(self.lost(start)? as f64)
    }

    fn prepared(&self) -> Vec<String> {
        self.bed.prepared()
    }

    fn detail(&self) -> String {
        self.lanyard.detail()
    }
}

/// Waits until a tenth of a second's load has arrived on top of `seen` frames.
fn flowing(receiver: &Receiver, seen: u64) -> Result<()> {
    let more = u64::from(LOAD_PPS / 10);
    wait_until("frames through the device", LIMIT, || Ok(receiver.arrivals()?.frames > seen + more))
}

/// Waits until no more frames arrive and returns the count.
fn settled(receiver: &Receiver) -> Result<Arrivals> {
    let mut last = receiver.arrivals()?;
    loop {
        check_interrupted()?;
        thread::sleep(Duration::from_millis(50));
        let now = receiver.arrivals()?;
        if now == last {
            return Ok(now);
        }
        last = now;
    }
}

/// From `exec` of `lanyard run` to the first frame out of the last of 48 ports, in milliseconds. The first start on a kernel
/// loads every eBPF program, to learn whether the kernel accepts it; later starts, also after a reboot, load only those they
/// need.
pub struct StartRig {
    settings: Settings,
    first: bool,
    bed: Bed,
    detail: String,
}

impl StartRig {
    /// Makes the ports.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn up(settings: &Settings, first: bool) -> Result<Self> {
        let bed = Bed::new(PORTS - 1, Traffic::Frames)?;
        let mut settings = settings.clone();
        if first {
            // Load every program even if another instance has already started on this kernel.
            settings.lanyard = settings.lanyard.under(&["env".into(), "LANYARD_LOAD_ALL=1".into()]);
        }
        Ok(Self { settings, first, bed, detail: String::new() })
    }
}

impl Rig for StartRig {
    fn round(&mut self) -> Result<f64> {
        let up = || Lanyard::up(&self.bed, &self.settings.lanyard, Hook::Auto, PortMode::Access);
        let mut known = (!self.first).then(up).transpose()?;
        if let Some(lanyard) = &mut known {
            lanyard.stop()?;
        }
        let receiver = Receiver::new(&self.bed.sink, &self.bed.receivers(), CountAt::Tc, false)?;
        let stream = Stream { dst: SILENT, ..Stream::new() };
        let mut generator = Generator::new(&self.bed.sender, "tx0", &stream)?;
        let ports = usize::from(self.bed.outputs);
        let (lanyard, last_ns) = while_knocking(&mut generator, || {
            let lanyard = match known.take() {
                None => up()?,
                Some(mut lanyard) => {
                    lanyard.start()?;
                    lanyard
                }
            };
            let mut last_ns = 0;
            for port in 0..ports {
                wait_until("a frame out of every port", LIMIT, || {
                    let first_ns = receiver.arrivals_at(port)?.first_ns;
                    last_ns = first_ns.max(last_ns);
                    Ok(first_ns > 0)
                })?;
            }
            Ok((lanyard, last_ns))
        })?;
        self.detail = lanyard.detail();
        let taken_ns = last_ns.checked_sub(lanyard.started_ns());
        Ok(taken_ns.context("a port forwarded before lanyard was started")? as f64 / 1e6)
    }

    fn prepared(&self) -> Vec<String> {
        self.bed.prepared()
    }

    fn detail(&self) -> String {
        self.detail.clone()
    }
}

/// Resident memory of the daemon with 48 ports and 10,000 learned addresses, in megabytes.
pub struct MemoryRig {
    lanyard: Lanyard,
    bed: Bed,
}

impl MemoryRig {
    /// Starts Lanyard and lets it learn the addresses.
    ///
    /// # Errors
    /// When something does not come up, or the addresses are not learned.
    pub fn up(settings: &Settings) -> Result<Self> {
        let bed = Bed::new(PORTS - 1, Traffic::Frames)?;
        let lanyard = Lanyard::up(&bed, &settings.lanyard, Hook::Auto, PortMode::Access)?;
        let rig = Self { lanyard, bed };
        let start = Instant::now();
        while rig.learned()? < u64::from(ENTRIES) {
            ensure!(start.elapsed() < LIMIT, "{} of {ENTRIES} addresses learned", rig.learned()?);
            rig.teach()?;
        }
        Ok(rig)
    }

    fn teach(&self) -> Result<()> {
        let src = Hosts { first: 0, count: ENTRIES };
        // The destination is one of the senders. A frame for the port on which it arrived is dropped, so
        // nothing is flooded.
        let stream = Stream { src, dst: Hosts::one(0), order: Order::Sequential, ..Stream::new() };
        Generator::new(&self.bed.sender, "tx0", &stream)?.send(ENTRIES)
    }

    fn learned(&self) -> Result<u64> {
        let text = self.lanyard.show("show mac address-table dynamic | json")?;
        let json: serde_json::Value = serde_json::from_str(&text).context("show mac address-table | json")?;
        json["total"].as_u64().context("show mac address-table | json has no total")
    }
}

impl Rig for MemoryRig {
    fn round(&mut self) -> Result<f64> {
        self.teach()?;
        Ok(self.lanyard.resident_kib()? as f64 * 1024.0 / 1e6)
    }

    fn prepared(&self) -> Vec<String> {
        self.bed.prepared()
    }

    fn detail(&self) -> String {
        self.lanyard.detail()
    }
}
