//! Receives and checks the frames that arrive at one port: in the kernel by `bpf/checker.bpf.c`, or by a [`Listener`]
//! where BPF is not available.
//!
//! Invariant: when a checker is dropped, its program is detached. While it exists, the program ends frames of a trial at the
//! port, and all others go on to the stack. (A [`Listener`] only gets copies: all frames go on to the stack.)

use super::abi::{FlowAbi, JudgingAbi};
use super::listen::Listener;
use crate::bpf::{self, Attached, LoadOptions};
use crate::os::Netns;
use crate::traffic::CountAt;
use anyhow::{Context, Result, anyhow};
use libbpf_rs::{MapCore, MapFlags, Object};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// A receiver at a port that checks each frame.
pub enum Checker {
    /// A BPF program in the kernel.
    Kernel(Box<Program>),
    /// A thread that reads a packet socket.
    Socket(Listener),
}

impl Checker {
    /// Creates a checker at a port. If it is a thread, it stays off the cores that send.
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

    /// Resets all counts and counts the streams of trial `epoch` from now on. `verify` says for each stream
    /// whether its frames are verified.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn begin(&mut self, epoch: u32, verify: &[bool]) -> Result<()> {
        match self {
            Self::Kernel(program) => program.begin(epoch, verify),
            Self::Socket(listener) => listener.begin(epoch, verify),
        }
    }

    /// The counts of the stream in `slot`.
    ///
    /// # Errors
    /// When the kernel does not return them.
    pub fn flow(&self, slot: usize) -> Result<FlowAbi> {
        match self {
            Self::Kernel(program) => program.flow(slot),
            Self::Socket(listener) => Ok(listener.flow(slot)),
        }
    }

    /// Frames that could not be assigned to a stream.
    ///
    /// # Errors
    /// When the kernel does not return the count.
    pub fn unidentified(&self) -> Result<u64> {
        match self {
            Self::Kernel(program) => Ok(bpf::read_bss::<JudgingAbi>(&program.object)?.unidentified),
            Self::Socket(listener) => Ok(listener.unidentified()),
        }
    }

    /// Frames that arrived, but for which the ring of a [`Listener`] had no room. Always 0 for a program in the kernel.
    ///
    /// # Errors
    /// When the kernel does not return the count.
    pub fn missed(&self) -> Result<u64> {
        match self {
            Self::Kernel(_) => Ok(0),
            Self::Socket(listener) => listener.missed(),
        }
    }
}

/// `bpf/checker.bpf.c`, attached.
pub struct Program {
    object: Object,
    netns: Netns,
    ifindex: u32,
    at: CountAt,
    capacity: usize,
    _attached: Attached,
}

/// The number of streams for which a checker has room at first; more streams make it load its program again.
const CAPACITY: usize = 16;

impl Program {
    fn with_capacity(netns: Netns, ifindex: u32, at: CountAt, capacity: usize) -> Result<Self> {
        let program = at.program_of("check_tc", "check_xdp")?;
        let sizes = &[("flows", capacity as u32)];
        let options = LoadOptions { sizes, program: Some(program), ..Default::default() };
        let object = bpf::load(bpf::CHECKER, &options).context("the receiver")?;
        let attached = {
            let _inside = netns.enter()?;
            at.attach(&bpf::program(&object, program)?, ifindex)?
        };
        Ok(Self { object, netns, ifindex, at, capacity, _attached: attached })
    }

    fn begin(&mut self, epoch: u32, verify: &[bool]) -> Result<()> {
        if verify.len() > self.capacity {
            let capacity = verify.len().next_power_of_two();
            // XDP has room for one program at a time, so detach the old one first.
            let (netns, ifindex, at) = (self.netns.try_clone()?, self.ifindex, self.at);
            self._attached = Attached::Nothing;
            *self = Self::with_capacity(netns, ifindex, at, capacity)?;
        }
        // While the flows are written, no stream is known, so no frame is counted.
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
