//! Frames that pass a device at the greatest rate, with generator, switch and receiver on one core. (Open vSwitch
//! polls in a thread of its own, on another core.)

use super::attack::{Attack, Attacker, WANTED_PPS};
use super::joins::Joiner;
use super::rig::{Rig, Settings};
use crate::bed::{Bed, Traffic};
use crate::dut::{Device, Kind, PortMode};
use anyhow::{Context, Result, anyhow};
use lanyard_netdev::PacketSocket;
use lanyard_tester::os::{Netns, Pinned, check_interrupted, wait_until};
use lanyard_tester::traffic::{CountAt, Generator, Hosts, Receiver, SIZE_MAX, SIZE_MIN, Stream};
use std::time::{Duration, Instant};

/// A host that never sends, so frames to it are flooded.
pub const SILENT: Hosts = Hosts::one(0xff_fff0);

/// Sends frames through the device at the greatest rate, with everything on one core. The figure is the
/// number of frames per second that arrived.
pub struct FrameRig {
    // Dropped in this order: the device goes before its ports do.
    device: Box<dyn Device>,
    generators: Vec<Generator>,
    socket: Option<PacketSocket>,
    joiner: Option<Joiner>,
    attacker: Option<Attacker>,
    receiver: Receiver,
    bed: Bed,
    stream: Stream,
    /// True if the device forwards in threads of its own; offered load and forwarding rate then differ.
    own_threads: bool,
    core: usize,
    window: Duration,
}

/// The loads that are tried, besides the greatest one, on a device with threads of its own: it may deliver more
/// at a lower load. The best rate counts.
const LIGHTER_LOADS_PPS: [u32; 4] = [1_000_000, 400_000, 200_000, 100_000];

/// The bed and the load of a [`FrameRig`].
#[derive(Debug, Clone, Copy)]
pub struct FrameLoad {
    /// The load.
    pub stream: Stream,
    /// Where arrivals are counted.
    pub count_at: CountAt,
    /// The number of output ports.
    pub outputs: u16,
    /// How Lanyard's output ports are configured.
    pub ports: PortMode,
    /// The origin of the frames.
    pub source: Source,
    /// When the sinks begin to run NAPI. XDP can send to them from then on.
    pub sinks: Sinks,
    /// The flood at the second output port during each measurement.
    pub attack: Option<Attack>,
}

/// When the sinks of a [`FrameRig`] are ready for the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sinks {
    /// Before the device comes up.
    Early,
    /// After the device came up, so that the device has to notice that the sinks now run NAPI.
    Late,
}

/// The number of frames sent to find out whether the device sends a group only to the port with its member.
const SNOOPED_PROBE: u32 = 256;

/// How long a switch may take to forget the groups that hosts have left.
const LEAVE_TIME: Duration = Duration::from_millis(300);

/// Bytes of a frame besides its payload: addresses, EtherType and FCS.
const FRAMING: usize = 18;

/// How long a device may take to notice that a sink runs NAPI.
const NOTICE_TIME: Duration = Duration::from_secs(1);

/// The origin of the frames of a [`FrameRig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The XDP generator: each frame is a page of its own.
    Xdp,
    /// A packet socket: buffers like those of a host's stack, with a system call for each. It sends between the
    /// stream's first pair of hosts only.
    Socket,
}

impl FrameRig {
    /// Brings `kind` up under `load`.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn up(settings: &Settings, kind: Kind, load: &FrameLoad) -> Result<Self> {
        let traffic = if load.count_at == CountAt::Xdp { Traffic::XdpFrames } else { Traffic::Frames };
        let bed = Bed::new(load.outputs, traffic)?;
        let jumbo = load.stream.size > SIZE_MAX;
        if jumbo {
            bed.set_mtu(load.stream.size - FRAMING)?;
        }
        let receive = || Receiver::new(&bed.sink, &bed.receivers(), load.count_at, false);
        let bring_up = || kind.up(&bed, &settings.lanyard, load.ports).with_context(|| kind.name());
        let (receiver, device) = match load.sinks {
            Sinks::Early => {
                let receiver = receive()?;
                (receiver, bring_up()?)
            }
            Sinks::Late => {
                let device = bring_up()?;
                let receiver = receive()?;
                std::thread::sleep(NOTICE_TIME);
                (receiver, device)
            }
        };
        let own_threads = kind.own_threads();
        // The generator's frames fit into a page. For jumbo frames it only makes the hosts known.
        let mut loads = vec![if jumbo { load.stream.size(SIZE_MIN) } else { load.stream }];
        if own_threads {
            loads.extend(LIGHTER_LOADS_PPS.map(|rate| Stream { rate_pps: Some(rate), ..load.stream }));
        }
        let generator =
            |stream: &Stream| Ok(Generator::new(&bed.sender, "tx0", stream)?.with_copies(load.outputs));
        let generators = loads.iter().map(generator).collect::<Result<Vec<_>>>()?;
        let socket = (load.source == Source::Socket).then(|| socket(&bed)).transpose()?;
        let joiner = (load.ports == PortMode::Joined).then(|| Joiner::new(&bed)).transpose()?;
        let attacker = load
            .attack
            .map(|attack| Attacker::new(&bed, attack, settings.other_core, settings.core, settings.window))
            .transpose()?;
        let mut rig = Self {
            device,
            generators,
            socket,
            joiner,
            attacker,
            receiver,
            bed,
            stream: load.stream,
            own_threads,
            core: settings.core,
            window: settings.window,
        };
        // Send frames before the first measurement: ports may still be attaching, and the first frames are
        // flooded.
        wait_until("the first frame through the device", Duration::from_secs(10), || {
            rig.learn()?;
            let before = rig.receiver.arrivals()?.frames;
            rig.generators[0].send(256)?;
            Ok(rig.receiver.arrivals()?.frames > before)
        })?;
        if matches!(load.ports, PortMode::Snooped | PortMode::Joined) {
            // The receiver counts the frames of all ports: a device that floods would deliver sixteen times as many.
            wait_until("a group that goes to its member alone", Duration::from_secs(20), || {
                let before = rig.receiver.arrivals()?.frames;
                rig.generators[0].send(SNOOPED_PROBE)?;
                let arrived = rig.receiver.arrivals()?.frames - before;
                Ok(arrived > 0 && arrived <= u64::from(SNOOPED_PROBE))
            })?;
        }
        Ok(rig)
    }

    /// Makes the hosts known to the device: each sends one frame, in both directions of the stream.
    fn learn(&self) -> Result<()> {
        let _core = Pinned::to(self.core)?;
        self.learn_from(&self.bed.sender, "tx0", false)?;
        if self.stream.dst != SILENT {
            self.learn_from(&self.bed.sink, "rx1", true)?;
        }
        Ok(())
    }

    /// Sends through the socket for the window. When a frame's system call returns, all its effects are
    /// complete.
    fn send_from(&self, socket: &PacketSocket) -> Result<Duration> {
        const FRAMES_A_LOOK: u32 = 64;
        let frame = self.stream.frame();
        let begin = Instant::now();
        while begin.elapsed() < self.window {
            check_interrupted()?;
            for _ in 0..FRAMES_A_LOOK {
                socket.send(&frame).context("sending from a packet socket")?;
            }
        }
        Ok(begin.elapsed())
    }

    fn learn_from(&self, netns: &Netns, device: &str, reverse: bool) -> Result<()> {
        // A device that learns in a thread of its own loses addresses that arrive faster.
        const PACE_PPS: u32 = 20_000;
        let stream = self.stream.learning(reverse);
        if self.own_threads {
            let stream = Stream { rate_pps: Some(PACE_PPS), ..stream };
            let time = Duration::from_secs_f64(f64::from(stream.src.count + 100) / f64::from(PACE_PPS));
            Generator::new(netns, device, &stream)?.run_for(time).map(drop)
        } else {
            Generator::new(netns, device, &stream)?.with_copies(self.bed.outputs).send(stream.src.count)
        }
    }
}

fn socket(bed: &Bed) -> Result<PacketSocket> {
    let ifindex = bed.sender.ifindex("tx0")?;
    let _inside = bed.sender.enter()?;
    PacketSocket::sender(ifindex).context("a packet socket at tx0")
}

impl Rig for FrameRig {
    fn round(&mut self) -> Result<f64> {
        // Only the senders send during a measurement. Let the receivers send too, or the device forgets them
        // in a long run.
        self.learn()?;
        // Start these threads before `rate` pins this thread to the switch's core: they must run on other cores.
        let joining = self.joiner.as_ref().map(|joiner| joiner.start(self.window));
        let flood = self.attacker.as_mut().map(Attacker::start).transpose()?;
        let rate = self.rate()?;
        if let (Some(attacker), Some(flood)) = (&mut self.attacker, flood) {
            attacker.end(flood)?;
        }
        if let (Some(joiner), Some(joining)) = (&self.joiner, joining) {
            joining.join().map_err(|_| anyhow!("the thread that joins groups has panicked"))??;
            joiner.leave(LEAVE_TIME)?;
        }
        Ok(rate)
    }

    fn prepared(&self) -> Vec<String> {
        self.bed.prepared()
    }

    fn detail(&self) -> String {
        let flood =
            self.attacker.as_ref().map(|attacker| format!("flood {:.2} Mpps", attacker.rate_pps() / 1e6));
        flood.unwrap_or_else(|| self.device.detail())
    }

    fn caveat(&self) -> Option<String> {
        let rate_pps = self.attacker.as_ref()?.rate_pps();
        (rate_pps < WANTED_PPS)
            .then(|| format!("the flood had {rate_pps:.0} frames/s: this core sends no more"))
    }
}

impl FrameRig {
    /// The rate of the frames that arrive.
    fn rate(&mut self) -> Result<f64> {
        let _core = Pinned::to(self.core)?;
        if let Some(socket) = &self.socket {
            let before = self.receiver.arrivals()?.frames;
            let sent_for = self.send_from(socket)?;
            return Ok((self.receiver.arrivals()?.frames - before) as f64 / sent_for.as_secs_f64());
        }
        let mut most = 0.0f64;
        for generator in &mut self.generators {
            if self.own_threads {
                // Run once before the measurement, so that caches and queues are full: the sustained rate
                // counts.
                generator.run_for(self.window)?;
            }
            let before = self.receiver.arrivals()?.frames;
            let sent_for = generator.run_for(self.window)?;
            let arrived = self.receiver.arrivals()?.frames - before;
            most = most.max(arrived as f64 / sent_for.as_secs_f64());
        }
        Ok(most)
    }
}
