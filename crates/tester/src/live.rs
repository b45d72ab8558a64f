//! Sends frames that are made in the kernel: `bpf/send.bpf.c`, run on live frames in one long system call.
//!
//! Invariant: the call ends when the program says it is done, or when asked to stop. In both cases a signal ends it,
//! because the kernel offers no other way. The program itself keeps to the given times exactly, frame by frame.

use super::Planned;
use super::abi::{SenderAbi, SendingAbi};
use super::send::{Progress, Schedule, Sends};
use crate::bpf::{self, LoadOptions};
use crate::os::Netns;
use anyhow::{Context, Result, anyhow, ensure};
use libbpf_rs::{MapCore, MapFlags, Object};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// The largest frame without FCS that the kernel makes: a page, without the space that the kernel needs in
/// it.
pub const LENGTH_MAX: usize = 3000;
/// The most ports of one object (the map of devices in `send.bpf.c`).
pub const PORTS_MAX: usize = 64;
/// Runs per system call: the largest value of its counter.
const RUNS: u32 = i32::MAX as u32;
/// Frames between two rounds of the softirqs, at high rates and at lower ones, where the latency of each frame
/// counts more.
const BATCH: u32 = 64;
const BATCH_GENTLE: u32 = 4;
/// The greatest rate of all streams together, in frames per second, at which [`BATCH_GENTLE`] is used.
const GENTLE_PPS: u64 = 600_000;

/// The sender of all streams of one core. It is loaded once and gets other streams for every trial.
pub struct LiveSender {
    object: Object,
    capacity: u32,
    streams: Vec<Stream>,
    frame: Vec<u8>,
    batch: u32,
    thread: AtomicI32,
    running: AtomicBool,
}

/// A stream's place in the offer, and its description for the kernel without the times.
struct Stream {
    slot: usize,
    abi: SenderAbi,
}

impl LiveSender {
    /// Loads the program with room for `streams` streams. `ports` are all ports of the tester.
    ///
    /// # Errors
    /// When the kernel refuses the program (no CAP_BPF; before Linux 5.18 at the first run).
    pub fn new(ports: &[(Netns, u32)], streams: usize) -> Result<Self> {
        ensure!(ports.len() <= PORTS_MAX, "{} ports: at most {PORTS_MAX}", ports.len());
        let capacity = u32::try_from(streams.next_power_of_two())?;
        let object =
            bpf::load(bpf::SEND, &LoadOptions { sizes: &[("senders", capacity)], ..Default::default() })
                .context("the generator")?;
        for (number, (netns, ifindex)) in ports.iter().enumerate() {
            // The kernel looks the ifindex up in the namespace of the thread that writes it.
            let _inside = netns.enter()?;
            map(&object, "ports")?.update((number as u32).as_bytes(), ifindex.as_bytes(), MapFlags::ANY)?;
        }
        Ok(Self {
            object,
            capacity,
            streams: Vec::new(),
            frame: Vec::new(),
            batch: BATCH,
            thread: AtomicI32::new(0),
            running: AtomicBool::new(false),
        })
    }

    /// True if the loaded program has room for this number of streams.
    pub const fn takes(&self, streams: usize) -> bool {
        streams <= self.capacity as usize
    }

    /// Takes `streams` for the next trial; the device may make `copies` of each of their frames.
    ///
    /// # Errors
    /// For frames that are too long.
    pub fn prepare(&mut self, streams: &[Planned], copies: usize) -> Result<()> {
        let length = streams.iter().map(|(.., template)| template.abi.length.into()).max().unwrap_or(0);
        ensure!(length <= LENGTH_MAX, "live frames have at most {LENGTH_MAX} bytes");
        self.frame = vec![super::abi::FILL; length];
        self.batch = BATCH.min((512 / copies.max(1)) as u32).max(1);
        let stream = |(slot, port, template): &Planned| Stream {
            slot: *slot,
            abi: SenderAbi { port: *port as u32, ..template.abi },
        };
        self.streams = streams.iter().map(stream).collect();
        Ok(())
    }
}

fn map<'o>(object: &'o Object, name: &str) -> Result<libbpf_rs::Map<'o>> {
    object.maps().find(|map| map.name() == name).ok_or_else(|| anyhow!("no BPF map {name}"))
}

// SAFETY: the object's descriptors may be used from any thread; its memory is only written before and after a
// run.
#[allow(unsafe_code)]
unsafe impl Sync for LiveSender {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Send for LiveSender {}

impl Sends for LiveSender {
    fn begin(&mut self, schedule: &Schedule) -> Result<()> {
        let senders = map(&self.object, "senders")?;
        for (number, Stream { slot, abi }) in self.streams.iter().enumerate() {
            let abi = schedule.plan(*slot, *abi);
            senders.update((number as u32).as_bytes(), abi.as_bytes(), MapFlags::ANY)?;
        }
        let streams = self.streams.len() as u32;
        let sending = SendingAbi {
            start_ns: schedule.start_ns,
            end_ns: schedule.end_ns,
            change_ns: schedule.change_ns,
            streams,
            unfinished: streams,
            every_run: schedule.timed.into(),
            ..Default::default()
        };
        if schedule.total_pps.is_some_and(|rate| rate <= GENTLE_PPS) {
            self.batch = self.batch.min(BATCH_GENTLE);
        }
        bpf::write_bss(&self.object, &sending)
    }

    fn run(&self, stop: &AtomicBool) -> Result<()> {
        self.thread.store(nix::unistd::gettid().as_raw(), Ordering::SeqCst);
        self.running.store(true, Ordering::SeqCst);
        let result = (|| {
            let program = bpf::program(&self.object, "send")?;
            while !stop.load(Ordering::SeqCst) && !self.done()? {
                match bpf::run_live_raw(&program, &self.frame, RUNS, self.batch) {
                    Err(why) if why.raw_os_error() == Some(libc::EINTR) => {}
                    other => other.context("sending live frames (Linux 5.18 or later?)")?,
                }
            }
            Ok(())
        })();
        self.running.store(false, Ordering::SeqCst);
        result
    }

    fn done(&self) -> Result<bool> {
        Ok(bpf::read_bss::<SendingAbi>(&self.object)?.done != 0)
    }

    fn nudge(&self) {
        if self.running.load(Ordering::SeqCst) {
            crate::os::nudge(self.thread.load(Ordering::SeqCst));
        }
    }

    fn progress(&self) -> Result<Vec<Progress>> {
        let senders = map(&self.object, "senders")?;
        let read = |(number, Stream { slot, .. }): (usize, &Stream)| {
            let bytes = senders.lookup((number as u32).as_bytes(), MapFlags::ANY)?.unwrap_or_default();
            let abi = SenderAbi::read_from_bytes(&bytes).map_err(|e| anyhow!("senders: {e}"))?;
            Ok(Progress { slot: *slot, sent: abi.sent, first_ns: abi.first_ns, last_ns: abi.last_ns })
        };
        self.streams.iter().enumerate().map(read).collect()
    }
}
