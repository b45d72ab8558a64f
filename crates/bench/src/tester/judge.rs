//! What arrives, judged in the kernel: `bpf/judge.bpf.c` at one port.
//!
//! Invariant: when a judge is dropped, its program is detached; while it lives, frames of a trial end here, and all
//! others go on to the stack.

use super::abi::{FlowAbi, JudgingAbi};
use crate::bpf::{self, Attached};
use crate::os::Netns;
use crate::traffic::CountAt;
use anyhow::{Context, Result, anyhow};
use libbpf_rs::{MapCore, MapFlags, Object};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// A judge at a port.
pub struct Judge {
    object: Object,
    netns: Netns,
    ifindex: u32,
    at: CountAt,
    capacity: usize,
    _attached: Attached,
}

/// Streams that a judge has room for to begin with; more make it load again.
const CAPACITY: usize = 16;

impl Judge {
    /// Attaches a judge to a port.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(netns: &Netns, ifindex: u32, at: CountAt) -> Result<Self> {
        Self::with_capacity(netns.try_clone()?, ifindex, at, CAPACITY)
    }

    fn with_capacity(netns: Netns, ifindex: u32, at: CountAt, capacity: usize) -> Result<Self> {
        let object =
            bpf::load_sized(bpf::JUDGE, &[], &[("flows", capacity as u32)]).context("the receiver")?;
        let attached = {
            let _inside = netns.enter()?;
            match at {
                CountAt::Tc => bpf::attach_tc(&bpf::program(&object, "judge_tc")?, ifindex),
                CountAt::Xdp => bpf::attach_xdp(&bpf::program(&object, "judge_xdp")?, ifindex),
            }?
        };
        Ok(Self { object, netns, ifindex, at, capacity, _attached: attached })
    }

    /// Forgets everything, and counts the streams of trial `epoch` from now on; each is verified or not.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn begin(&mut self, epoch: u32, verify: &[bool]) -> Result<()> {
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

    /// What has arrived of the stream in `slot`.
    ///
    /// # Errors
    /// When the kernel won't say.
    pub fn flow(&self, slot: usize) -> Result<FlowAbi> {
        let bytes = self.flows()?.lookup((slot as u32).as_bytes(), MapFlags::ANY)?.unwrap_or_default();
        FlowAbi::read_from_bytes(&bytes).map_err(|e| anyhow!("flows: {e}"))
    }

    /// Frames that could not be told.
    ///
    /// # Errors
    /// When the kernel won't say.
    pub fn unidentified(&self) -> Result<u64> {
        Ok(bpf::read_bss::<JudgingAbi>(&self.object)?.unidentified)
    }

    fn flows(&self) -> Result<libbpf_rs::Map<'_>> {
        self.object.maps().find(|map| map.name() == "flows").ok_or_else(|| anyhow!("no map of flows"))
    }
}
