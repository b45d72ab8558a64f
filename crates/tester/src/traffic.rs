//! Offered load and the frames that arrived of it: [`Generator`] and [`Receiver`].
//!
//! Read first: `bpf/generate.bpf.c`, `bpf/receive.bpf.c`; RFC 2544 section 9 on frame sizes. Convention: a frame's
//! size includes its FCS, as in the RFCs. A veth carries no FCS, so "64 bytes" is 60 bytes of memory. The size
//! includes the VLAN tag, if there is one.

use crate::bpf::{self, ArrivalsAbi, Attached, DEVICE_SLOTS, LoadOptions, ProgressAbi, StreamAbi, TEMPLATES};
use crate::os::{Netns, check_interrupted};
use anyhow::{Context, Result, anyhow, bail, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ProgramMut};
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros as _, IntoBytes};

/// Bytes of a frame that a veth does not carry.
pub const FCS: usize = 4;
/// The smallest frame, with FCS.
pub const SIZE_MIN: usize = 64;
/// The smallest frame of a stream of IPv6, with FCS.
pub const SIZE_MIN_V6: usize = 80;
/// The largest frame, with FCS: Ethernet's untagged maximum. The kernel's live frames end with their page.
pub const SIZE_MAX: usize = 1518;
/// The number of host numbers: three bytes of the address.
pub const HOSTS_MAX: u32 = 1 << 24;
/// The most hosts of a port: those of a /16, without the router's address.
pub const HOSTS_OF_A_PORT: u32 = 65_000;

/// A range of host numbers. Host N has the MAC address 02:4c:00:NN:NN:NN and the IPv4 address 10.NN.NN.NN, with N in three
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hosts {
    /// The first host's number.
    pub first: u32,
    /// The number of hosts, at least one.
    pub count: u32,
}

impl Hosts {
    /// One host.
    #[must_use]
    pub const fn one(number: u32) -> Self {
        Self { first: number, count: 1 }
    }

    /// The first `count` hosts at a port, at least one and at most [`HOSTS_OF_A_PORT`]. The high byte of their numbers is
    /// `port + 1`, so the hosts of one port share an IPv4 /16 and an IPv6 /64.
    #[must_use]
    pub fn of_port(port: usize, count: u32) -> Self {
        Self { first: ((port as u32 + 1) << 16) + 1, count: count.clamp(1, HOSTS_OF_A_PORT) }
    }
}

/// The order in which a stream uses its hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// In sequence: sources and destinations each cycle through their range.
    #[default]
    Sequential,
    /// At random, source and destination independently, with the same sequence in every run.
    Random,
}

/// The network layer of a stream's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ip {
    /// IPv4 and UDP. Host N has 10.NN.NN.NN.
    #[default]
    V4,
    /// IPv6 and UDP, in frames of at least 80 bytes (84 with a tag). Host N has 2001:2:0:NN::NNNN, the high byte of N
    /// before the `::` (RFC 5180, section 8, has the prefix).
    V6,
}

/// The receivers of a stream's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cast {
    /// To the hosts of `dst`.
    #[default]
    Unicast,
    /// To all hosts: ff:ff:ff:ff:ff:ff, 255.255.255.255 or ff02::1.
    Broadcast,
    /// To the groups numbered by `dst`: 239.NN.NN.NN or ff15::NN:NNNN, and their Ethernet addresses.
    Multicast,
}

/// The frames that a generator sends.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// Frame size in bytes with FCS: [`SIZE_MIN`]..=[`SIZE_MAX`] for a [`Generator`], 32 to 9216 in a trial.
    pub size: usize,
    /// The sending hosts.
    pub src: Hosts,
    /// The receiving hosts.
    pub dst: Hosts,
    /// The order in which the hosts are used.
    pub order: Order,
    /// The VLAN tag, 1..=4094.
    pub vlan: Option<u16>,
    /// The tag's priority, 0..=7.
    pub pcp: u8,
    /// IPv4 or IPv6.
    pub ip: Ip,
    /// Unicast, broadcast or multicast.
    pub cast: Cast,
    /// The MAC address of a router, to which all frames go whatever their IP destination; `None` without a router. (Host numbers
    /// with the same high byte share an IPv4 /16 and an IPv6 /64.)
    pub next_hop: Option<[u8; 6]>,
    /// If not 0, IP destinations are random addresses in this number of prefixes, for which lanyard-bench's `forward::routed`
    /// makes routes, and `dst` is the router's host number.
    pub prefixes: u32,
    /// Frames per second: 100 or more for a [`Generator`], 1 or more in a trial. `None` is the greatest possible rate.
    pub rate_pps: Option<u32>,
    /// True if each frame contains the time at which it was sent.
    pub stamp: bool,
    /// True if the payload is written into each frame anew, with a UDP checksum that the receiver checks.
    pub verify: bool,
    /// The number written into each frame, which identifies the stream.
    pub id: u16,
}

impl Stream {
    /// 64-byte frames from host 0 to host 1, untagged, at the greatest rate.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            size: SIZE_MIN,
            src: Hosts::one(0),
            dst: Hosts::one(1),
            order: Order::Sequential,
            vlan: None,
            pcp: 0,
            ip: Ip::V4,
            cast: Cast::Unicast,
            next_hop: None,
            prefixes: 0,
            rate_pps: None,
            stamp: false,
            verify: false,
            id: 0,
        }
    }

    /// Random pairs among `hosts` hosts, half of them on each side; two hosts form one pair.
    #[must_use]
    pub const fn among(hosts: u32) -> Self {
        let half = if hosts < 2 { 1 } else { hosts / 2 };
        Self {
            src: Hosts { first: 0, count: half },
            dst: Hosts { first: half, count: half },
            order: if half == 1 { Order::Sequential } else { Order::Random },
            ..Self::new()
        }
    }

    /// The same stream with frames of this size.
    #[must_use]
    pub const fn size(self, size: usize) -> Self {
        Self { size, ..self }
    }

    /// A frame of the stream's size from its first source to its first destination, to be sent by a socket: an untagged Ethernet
    /// header and zeros.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        let host = |number: u32| {
            let [_, high, middle, low] = number.to_be_bytes();
            [0x02, 0x4c, 0x00, high, middle, low]
        };
        let mut frame = vec![0; self.size - FCS];
        frame[..6].copy_from_slice(&host(self.dst.first));
        frame[6..12].copy_from_slice(&host(self.src.first));
        frame[12..14].copy_from_slice(&[0x88, 0xb5]); // IEEE 802: local experiments
        frame
    }

    /// The stream by which the senders of this one, or (`reverse`) its receivers, make themselves known to a
    /// learning switch: one frame from each host to a host of the other side.
    #[must_use]
    pub const fn learning(&self, reverse: bool) -> Self {
        let (src, dst) = if reverse { (self.dst, self.src) } else { (self.src, self.dst) };
        Self {
            src,
            dst: Hosts::one(dst.first),
            order: Order::Sequential,
            rate_pps: None,
            size: SIZE_MIN,
            ..*self
        }
    }

    fn abi(&self, ifindex: u32) -> Result<StreamAbi> {
        ensure!(
            (SIZE_MIN..=SIZE_MAX).contains(&self.size),
            "frame size {}: {SIZE_MIN}-{SIZE_MAX}",
            self.size
        );
        for hosts in [self.src, self.dst] {
            let fits =
                hosts.count >= 1 && u64::from(hosts.first) + u64::from(hosts.count) <= HOSTS_MAX.into();
            ensure!(fits, "hosts {hosts:?}: 1 to {HOSTS_MAX} of them");
        }
        let six = self.ip == Ip::V6 && self.prefixes != 0 && self.vlan.is_none() && self.size >= SIZE_MIN_V6;
        let group = self.ip == Ip::V4 && self.cast == Cast::Multicast && self.prefixes == 0;
        let plain =
            (self.ip == Ip::V4 || six) && (self.cast == Cast::Unicast || group) && self.next_hop.is_none();
        ensure!(
            plain && self.pcp == 0 && !self.verify,
            "only a tester's trial sends streams such as {self:?}"
        );
        ensure!(self.vlan.is_none_or(|v| (1..=4094).contains(&v)), "VLAN {:?}: 1-4094", self.vlan);
        ensure!(self.rate_pps.is_none_or(|r| r >= 100), "rate {:?}: at least 100 frames/s", self.rate_pps);
        let header = if self.vlan.is_some() { 18 } else { 14 };
        Ok(StreamAbi {
            ifindex,
            src_first: self.src.first,
            src_count: self.src.count,
            dst_first: self.dst.first,
            dst_count: self.dst.count,
            random: (self.order == Order::Random).into(),
            interval_256: self.rate_pps.map_or(0, interval_256),
            stamp: self.stamp.into(),
            tci: self.vlan.unwrap_or(0),
            stream: self.id,
            ip_length: (self.size - FCS - header) as u16,
            group: group.into(),
            prefixes: self.prefixes,
            six: six.into(),
            ..StreamAbi::new_zeroed()
        })
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

/// The time between frames in 1/256 ns.
fn interval_256(rate_pps: u32) -> u32 {
    (256_000_000_000 / u64::from(rate_pps)) as u32
}

/// A stream and the device through which it is sent. It sends only inside [`Generator::run_for`] and
/// [`Generator::send`], on the core of the calling thread.
pub struct Generator {
    object: Object,
    netns: Netns,
    frame: Vec<u8>,
    slice_time: Duration,
    batch: u32,
    /// Seconds per run of the program, as measured in the last slice.
    run_time: f64,
}

/// The length of one system call. The kernel needs about 25 ms after each call to clean up. Nothing is sent
/// in that time, and no measurement includes it.
const SLICE: Duration = Duration::from_millis(250);
/// Frames between two rounds of the softirqs: the number that a NAPI poll takes at once.
const BATCH: u32 = 64;
const SLICE_MIN: u32 = 16 * CLOCK_EVERY;
const SLICE_MAX: u32 = 1 << 30;
/// The assumed seconds per run at first: slower than any machine, so that the first slice is short.
const SLICE_FIRST: f64 = 10e-6;
/// Runs of the program between two readings of the clock.
const CLOCK_EVERY: u32 = 256;

impl Generator {
    /// Loads the generator for `stream`, to be sent through `device` of `netns`. The device's peer must run
    /// NAPI.
    ///
    /// # Errors
    /// For a stream out of range, a device that does not exist, or when the kernel refuses the program.
    pub fn new(netns: &Netns, device: &str, stream: &Stream) -> Result<Self> {
        Self::load(netns, &stream.abi(netns.ifindex(device)?)?, stream.size - FCS)
    }

    fn load(netns: &Netns, abi: &StreamAbi, length: usize) -> Result<Self> {
        let object =
            bpf::load(bpf::GENERATE, &LoadOptions { constants: abi.as_bytes(), ..Default::default() })
                .context("the generator")?;
        let netns = netns.try_clone()?;
        Ok(Self {
            object,
            netns,
            frame: vec![0; length],
            slice_time: SLICE,
            batch: BATCH,
            run_time: SLICE_FIRST,
        })
    }

    /// Loads the generator for the given frames, which it sends in turn, each as 60 bytes (without FCS), at `rate_pps` frames per
    /// second. With `sources`, the last three bytes of each frame's source address are random.
    ///
    /// # Errors
    /// Unless the number of frames is 1, 2, 4 or [`TEMPLATES`]; for a frame longer than 60 bytes, a rate below 100, a device that
    /// does not exist, or when the kernel refuses the program.
    pub fn of_frames(
        netns: &Netns,
        device: &str,
        frames: &[Vec<u8>],
        rate_pps: u32,
        sources: bool,
    ) -> Result<Self> {
        let count = frames.len();
        ensure!(count.is_power_of_two() && count <= TEMPLATES, "{count} frames: 1, 2, 4 or {TEMPLATES}");
        ensure!(rate_pps >= 100, "rate {rate_pps}: at least 100 frames/s");
        let mut abi = StreamAbi {
            ifindex: netns.ifindex(device)?,
            interval_256: interval_256(rate_pps),
            templates: count as u32,
            sources: sources.into(),
            ..StreamAbi::new_zeroed()
        };
        for (frame, words) in frames.iter().zip(&mut abi.words) {
            ensure!(
                frame.len() <= SIZE_MIN - FCS,
                "a frame of {} bytes: at most {}",
                frame.len(),
                SIZE_MIN - FCS
            );
            words[..frame.len()].copy_from_slice(frame);
        }
        Self::load(netns, &abi, SIZE_MIN - FCS)
    }

    /// Sets the length of one system call, by default a quarter of a second; the stream has no pause within
    /// it.
    #[must_use]
    pub fn with_slice(mut self, slice: Duration) -> Self {
        self.slice_time = slice;
        self
    }

    /// Sends fewer frames at a time than 64, for a device that makes `copies` of each: the queue between the
    /// device and the receivers (`net.core.netdev_max_backlog`, 1,000 frames) must hold all copies of a batch.
    #[must_use]
    pub fn with_copies(mut self, copies: u16) -> Self {
        self.batch = BATCH.min(512 / u32::from(copies.max(1)));
        self
    }

    /// The frames sent since the generator was created.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn sent(&self) -> Result<u64> {
        Ok(bpf::read_bss::<ProgressAbi>(&self.object)?.sent)
    }

    /// The counters that [`Generator::sent`] reads, for another thread.
    ///
    /// # Errors
    /// When the kernel gives no further descriptor for the counters.
    pub fn progress(&self) -> Result<GeneratorProgress> {
        Ok(GeneratorProgress(bpf::bss(&self.object)?))
    }

    /// Sends for about `window` and returns the time for which it really sent, by which a rate must be
    /// divided.
    ///
    /// # Errors
    /// When the kernel refuses, or on ctrl-C.
    pub fn run_for(&mut self, window: Duration) -> Result<Duration> {
        self.run_while(|sent_for| Some(window.saturating_sub(sent_for)).filter(|left| !left.is_zero()))
    }

    /// Sends as long as `more` returns a time. `more` is called before every slice with the time sent so far,
    /// and returns how much longer to send.
    ///
    /// # Errors
    /// When the kernel refuses, or on ctrl-C.
    pub fn run_while(&mut self, mut more: impl FnMut(Duration) -> Option<Duration>) -> Result<Duration> {
        let _inside = self.netns.enter()?;
        let mut total = Duration::ZERO;
        while let Some(left) = more(total) {
            let wanted = left.min(self.slice_time).as_secs_f64() / self.run_time;
            let runs = (wanted as u32).clamp(SLICE_MIN, SLICE_MAX) / CLOCK_EVERY * CLOCK_EVERY;
            let took = self.timed_run(runs)?;
            self.run_time = took.as_secs_f64().max(1e-6) / f64::from(runs);
            total += took;
        }
        Ok(total)
    }

    /// Runs the program `frames` times: sends that many frames, or fewer if the stream is paced.
    ///
    /// # Errors
    /// When the kernel refuses, or on ctrl-C.
    pub fn send(&mut self, frames: u32) -> Result<()> {
        let _inside = self.netns.enter()?;
        self.test_run(frames)
    }

    /// Runs the program `runs` times, a multiple of [`CLOCK_EVERY`], and returns the time this took by the
    /// program's own clock.
    fn timed_run(&self, runs: u32) -> Result<Duration> {
        let before = bpf::read_bss::<ProgressAbi>(&self.object)?;
        bpf::write_bss(&self.object, &ProgressAbi { runs: 0, started_ns: 0, ..before })?;
        self.test_run(runs)?;
        let after = bpf::read_bss::<ProgressAbi>(&self.object)?;
        // The clock was last read before the last CLOCK_EVERY runs.
        let seen_ns = after.latest_ns.saturating_sub(after.started_ns) as f64;
        let all_ns = seen_ns * f64::from(runs) / f64::from(runs - CLOCK_EVERY);
        Ok(Duration::from_nanos(all_ns as u64))
    }

    fn test_run(&self, repeat: u32) -> Result<()> {
        check_interrupted()?;
        let program = bpf::program(&self.object, "generate")?;
        let done = bpf::run_live(&program, &self.frame, repeat, self.batch);
        // A signal ends the call early, with EINTR. Report the signal as the reason then.
        check_interrupted()?;
        done
    }
}

/// The progress of a generator that another thread owns.
#[derive(Debug)]
pub struct GeneratorProgress(MapHandle);

impl GeneratorProgress {
    /// As [`Generator::sent`].
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn sent(&self) -> Result<u64> {
        Ok(bpf::read_variables::<ProgressAbi>(&self.0)?.sent)
    }
}

/// The hook at which a receiver counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountAt {
    /// TC ingress: the frame has become an skb.
    Tc,
    /// XDP: the frame may still be a bare buffer.
    Xdp,
    /// A packet socket, which needs no BPF program. For trials only.
    Socket,
}

impl CountAt {
    /// The one of two programs that belongs to this hook.
    ///
    /// # Errors
    /// For a packet socket.
    pub(crate) fn program_of(self, tc: &'static str, xdp: &'static str) -> Result<&'static str> {
        match self {
            Self::Tc => Ok(tc),
            Self::Xdp => Ok(xdp),
            Self::Socket => bail!("a packet socket has no program"),
        }
    }

    /// Attaches a program to this hook of a device of the current namespace.
    ///
    /// # Errors
    /// For a packet socket, or when the kernel refuses.
    pub(crate) fn attach(self, program: &ProgramMut<'_>, ifindex: u32) -> Result<Attached> {
        match self {
            Self::Tc => bpf::attach_tc(program, ifindex),
            Self::Xdp => bpf::attach_xdp(program, ifindex),
            Self::Socket => bail!("a packet socket has no program"),
        }
    }
}

/// The frames that arrived, over all devices and CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Frames of the generator.
    pub frames: u64,
    /// Their bytes without FCS.
    pub bytes: u64,
    /// When the first frame arrived, on the clock of `bpf_ktime_get_ns()`; 0 without frames.
    pub first_ns: u64,
    /// Sequence numbers that were skipped, where the receiver checks sequences. Late frames are included.
    pub missing: u64,
    /// Frames that arrived after a later one.
    pub late: u64,
}

/// Counts the generator's frames at some devices and ends them there.
pub struct Receiver {
    object: Object,
    slots: Vec<u32>,
    _attached: Vec<Attached>,
}

impl Receiver {
    /// Attaches a receiver to each of `devices` in `netns`. With `check_sequence` it checks sequence numbers,
    /// for one stream to one device.
    ///
    /// # Errors
    /// For a device that does not exist, devices whose slots collide, or when the kernel refuses.
    pub fn new(netns: &Netns, devices: &[String], at: CountAt, check_sequence: bool) -> Result<Self> {
        let name = at.program_of("receive_tc", "receive_xdp")?;
        let check_sequence = u32::from(check_sequence);
        let options =
            LoadOptions { constants: check_sequence.as_bytes(), program: Some(name), ..Default::default() };
        let object = bpf::load(bpf::RECEIVE, &options).context("the receiver")?;
        let mut slots = Vec::new();
        let mut attached = Vec::new();
        for device in devices {
            let ifindex = netns.ifindex(device)?;
            let slot = ifindex % DEVICE_SLOTS;
            ensure!(!slots.contains(&slot), "two receivers in slot {slot}: at most {DEVICE_SLOTS} devices");
            slots.push(slot);
            let _inside = netns.enter()?;
            attached.push(at.attach(&bpf::program(&object, name)?, ifindex)?);
        }
        Ok(Self { object, slots, _attached: attached })
    }

    /// The frames that have arrived so far.
    ///
    /// # Errors
    /// When the kernel does not report them.
    pub fn arrivals(&self) -> Result<Arrivals> {
        let mut sum = Arrivals::default();
        for slot in 0..self.slots.len() {
            let one = self.arrivals_at(slot)?;
            sum.frames += one.frames;
            sum.bytes += one.bytes;
            sum.missing += one.missing;
            sum.late += one.late;
            sum.first_ns = earliest(sum.first_ns, one.first_ns);
        }
        Ok(sum)
    }

    /// The frames that have arrived so far at device number `device`.
    ///
    /// # Errors
    /// When there was no such device, or the kernel does not report them.
    pub fn arrivals_at(&self, device: usize) -> Result<Arrivals> {
        let slot = self.slots.get(device).ok_or_else(|| anyhow!("no receiver number {device}"))?;
        let map = self.object.maps().find(|map| map.name() == "arrivals");
        let map = map.ok_or_else(|| anyhow!("the receiver has no map"))?;
        let per_cpu = map.lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
        let mut sum = Arrivals::default();
        for bytes in per_cpu {
            let (one, _) = ArrivalsAbi::read_from_prefix(&bytes).map_err(|e| anyhow!("arrivals: {e}"))?;
            sum.frames += one.frames;
            sum.bytes += one.bytes;
            sum.missing += one.missing;
            sum.late += one.late;
            sum.first_ns = earliest(sum.first_ns, one.first_ns);
        }
        Ok(sum)
    }
}

/// The earlier of two times, where 0 means "never".
fn earliest(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, other) | (other, 0) => other,
        _ => a.min(b),
    }
}
