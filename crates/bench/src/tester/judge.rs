//! What arrives, judged: in the kernel by `bpf/judge.bpf.c` at one port, or where that is not to be had by a [`Listener`].
//!
//! Invariant: when a judge is dropped, its program is detached; while it lives, frames of a trial end here, and all
//! others go on to the stack.

use super::abi::{FlowAbi, JudgingAbi};
use super::listen::Listener;
use crate::os::Netns;
use crate::tester::bpf::{self, Attached};
use crate::tester::traffic::CountAt;
use anyhow::{Context, Result, anyhow, bail};
use libbpf_rs::{MapCore, MapFlags, Object};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// A judge at a port.
pub enum Judge {
    /// In the kernel.
    Kernel(Box<Program>),
    /// In a thread, behind a packet socket.
    Socket(Listener),
}

impl Judge {
    /// A judge at a port; one in a thread stays off the cores that send.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(netns: &Netns, ifindex: u32, at: CountAt, senders: &[usize]) -> Result<Self> {
        match at {
            CountAt::Socket => Listener::new(netns, ifindex, senders).map(Self::Socket),
            CountAt::Tc | CountAt::Xdp => {
                Ok(Self::Kernel(Box::new(Program::with_capacity(netns.try_clone()?, ifindex, at, CAPACITY)?)))
            }
        }
    }

    /// Forgets everything, and counts the streams of trial `epoch` from now on; each is verified or not.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn begin(&mut self, epoch: u32, verify: &[bool]) -> Result<()> {
        match self {
            Self::Kernel(program) => program.begin(epoch, verify),
            Self::Socket(listener) => listener.begin(epoch, verify),
        }
    }

    /// What has arrived of the stream in `slot`.
    ///
    /// # Errors
    /// When the kernel won't say.
    pub fn flow(&self, slot: usize) -> Result<FlowAbi> {
        match self {
            Self::Kernel(program) => program.flow(slot),
            Self::Socket(listener) => Ok(listener.flow(slot)),
        }
    }

    /// Frames that could not be told.
    ///
    /// # Errors
    /// When the kernel won't say.
    pub fn unidentified(&self) -> Result<u64> {
        match self {
            Self::Kernel(program) => Ok(bpf::read_bss::<JudgingAbi>(&program.object)?.unidentified),
            Self::Socket(listener) => Ok(listener.unidentified()),
        }
    }

    /// Frames that arrived and that there was no time to judge.
    ///
    /// # Errors
    /// When the kernel won't say.
    pub fn missed(&self) -> Result<u64> {
        match self {
            Self::Kernel(_) => Ok(0),
            Self::Socket(listener) => listener.missed(),
        }
    }
}

/// `bpf/judge.bpf.c`, attached.
pub struct Program {
    object: Object,
    netns: Netns,
    ifindex: u32,
    at: CountAt,
    capacity: usize,
    _attached: Attached,
}

/// Streams that a judge has room for to begin with; more make it load again.
const CAPACITY: usize = 16;

impl Program {
    fn with_capacity(netns: Netns, ifindex: u32, at: CountAt, capacity: usize) -> Result<Self> {
        let object =
            bpf::load_sized(bpf::JUDGE, &[], &[("flows", capacity as u32)]).context("the receiver")?;
        let attached = {
            let _inside = netns.enter()?;
            match at {
                CountAt::Tc => bpf::attach_tc(&bpf::program(&object, "judge_tc")?, ifindex),
                CountAt::Xdp => bpf::attach_xdp(&bpf::program(&object, "judge_xdp")?, ifindex),
                CountAt::Socket => bail!("a packet socket has no program"),
            }?
        };
        Ok(Self { object, netns, ifindex, at, capacity, _attached: attached })
    }

    fn begin(&mut self, epoch: u32, verify: &[bool]) -> Result<()> {
        if verify.len() > self.capacity {
            let capacity = verify.len().next_power_of_two();
            // Two programs cannot be in XDP at once: the old one goes first.
            let (netns, ifindex, at) = (self.netns.try_clone()?, self.ifindex, self.at);
            self._attached = Attached::Nothing;
            *self = Self::with_capacity(netns, ifindex, at, capacity)?;
        }
        // No stream is known while they are written.
        bpf::write_bss(&self.object, &JudgingAbi { epoch, ..Default::default() })?;
        let flows = self.flows()?;
        for (slot, verify) in verify.iter().enumerate() {
            flows.update((slot as u32).as_bytes(), FlowAbi::empty(*verify).as_bytes(), MapFlags::ANY)?;
        }
        let streams = verify.len() as u32;
        bpf::write_bss(&self.object, &JudgingAbi { epoch, streams, unidentified: 0 })
    }

    fn flow(&self, slot: usize) -> Result<FlowAbi> {
        let bytes = self.flows()?.lookup((slot as u32).as_bytes(), MapFlags::ANY)?.unwrap_or_default();
        FlowAbi::read_from_bytes(&bytes).map_err(|e| anyhow!("flows: {e}"))
    }

    fn flows(&self) -> Result<libbpf_rs::Map<'_>> {
        self.object.maps().find(|map| map.name() == "flows").ok_or_else(|| anyhow!("no map of flows"))
    }
}
