//! Frames made in the kernel: `bpf/send.bpf.c`, run on live frames in one long system call.
//!
//! Invariant: the call ends when the program says it is done, or when asked to stop; either way by a signal, because
//! the kernel has no other way. The program itself keeps to the times it was given, to the frame.

use super::abi::{SenderAbi, SendingAbi};
use super::send::{Progress, Schedule, Sends};
use super::template::Template;
use crate::bpf;
use crate::os::Netns;
use anyhow::{Context, Result, anyhow, ensure};
use libbpf_rs::{MapCore, MapFlags, Object};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// The largest frame without FCS that the kernel makes: a page, less what it keeps in it.
pub const LENGTH_MAX: usize = 3000;
/// Ports of one object (the map of devices in `send.bpf.c`).
pub const PORTS_MAX: usize = 64;
/// Runs of one system call: as many as its counter takes.
const RUNS: u32 = i32::MAX as u32;
/// Frames between two turns of the softirqs when rates are high, and when each frame's own latency counts more.
const BATCH: u32 = 64;
const BATCH_GENTLE: u32 = 4;
/// Above this rate the larger batch is needed.
const GENTLE_PPS: u64 = 600_000;

/// The streams of one core.
pub struct LiveSender {
    object: Object,
    slots: Vec<usize>,
    frame: Vec<u8>,
    batch: u32,
    thread: AtomicI32,
    running: AtomicBool,
}

impl LiveSender {
    /// Loads the program for `streams`: slot, port and template of each. `ports` are all ports of the tester.
    ///
    /// # Errors
    /// When the kernel refuses the program (no CAP_BPF; before Linux 5.18 at the first run).
    pub fn new(
        ports: &[(Netns, u32)],
        streams: &[(usize, usize, Template)],
        schedule: &Schedule,
        copies: usize,
    ) -> Result<Self> {
        ensure!(ports.len() <= PORTS_MAX, "{} ports: at most {PORTS_MAX}", ports.len());
        let count = u32::try_from(streams.len())?;
        let object =
            bpf::load_sized(bpf::SEND, &[], &[("senders", count.max(1))]).context("the generator")?;
        for (number, (netns, ifindex)) in ports.iter().enumerate() {
            // The number is looked up in the namespace of who writes it.
            let _inside = netns.enter()?;
            map(&object, "ports")?.update((number as u32).as_bytes(), ifindex.as_bytes(), MapFlags::ANY)?;
        }
        let mut longest = 0;
        let mut unfinished = 0;
        for (number, (slot, port, template)) in streams.iter().enumerate() {
            let abi = SenderAbi { port: *port as u32, ..schedule.plan(*slot, template.abi) };
            ensure!(usize::from(abi.length) <= LENGTH_MAX, "live frames have at most {LENGTH_MAX} bytes");
            longest = longest.max(abi.length);
            unfinished += u32::from(abi.limit > 0);
            map(&object, "senders")?.update((number as u32).as_bytes(), abi.as_bytes(), MapFlags::ANY)?;
        }
        let sending = SendingAbi {
            start_ns: schedule.start_ns,
            end_ns: schedule.end_ns,
            change_ns: schedule.change_ns,
            streams: count,
            unfinished,
            every_run: 1,
            ..Default::default()
        };
        bpf::write_bss(&object, &sending)?;
        let gentle = schedule.total_pps.is_some_and(|rate| rate <= GENTLE_PPS);
        let most = if gentle { BATCH_GENTLE } else { BATCH };
        Ok(Self {
            object,
            slots: streams.iter().map(|(slot, ..)| *slot).collect(),
            frame: vec![super::abi::FILL; longest.into()],
            batch: most.min((512 / copies.max(1)) as u32).max(1),
            thread: AtomicI32::new(0),
            running: AtomicBool::new(false),
        })
    }
}

fn map<'o>(object: &'o Object, name: &str) -> Result<libbpf_rs::Map<'o>> {
    object.maps().find(|map| map.name() == name).ok_or_else(|| anyhow!("no BPF map {name}"))
}

// SAFETY: the object's descriptors may be used from any thread; it is only written to before and after a run.
#[allow(unsafe_code)]
unsafe impl Sync for LiveSender {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Send for LiveSender {}

impl Sends for LiveSender {
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
        let read = |(number, slot): (usize, &usize)| {
            let bytes = senders.lookup((number as u32).as_bytes(), MapFlags::ANY)?.unwrap_or_default();
            let abi = SenderAbi::read_from_bytes(&bytes).map_err(|e| anyhow!("senders: {e}"))?;
            Ok(Progress { slot: *slot, sent: abi.sent, first_ns: abi.first_ns, last_ns: abi.last_ns })
        };
        self.slots.iter().enumerate().map(read).collect()
    }
}
