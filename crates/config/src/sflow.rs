//! `sflow ...`: the model. The agent samples the ports with `sflow enable` while there is a collector.

use crate::InterfaceName;
use lanyard_types::SamplingRate;
use std::net::Ipv4Addr;

/// The most collectors.
pub const MAX_SFLOW_COLLECTORS: usize = 4;
/// The UDP port of collectors (IANA).
pub const SFLOW_PORT: u16 = 6343;
/// The default of `sflow sampling-rate`.
pub const SFLOW_RATE: u32 = 4096;
/// The default of `sflow polling-interval`, in seconds.
pub const SFLOW_POLLING_S: u32 = 20;
/// The largest value of `sflow polling-interval`, in seconds.
pub const MAX_SFLOW_POLLING_S: u32 = 3600;

/// `sflow ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sflow {
    /// `sflow collector A [port N]`, at most [`MAX_SFLOW_COLLECTORS`], each address once.
    pub collectors: Vec<(Ipv4Addr, u16)>,
    /// `sflow sampling-rate N`, 1..=16,777,215: one of N received frames is sampled.
    pub rate: u32,
    /// `sflow polling-interval S`, in seconds: the time between two reports of an interface's counters; 0: no counters are
    /// sent.
    pub polling_s: u32,
    /// `sflow agent-ip A`: the address by which collectors identify the switch.
    pub agent: Option<Ipv4Addr>,
    /// `sflow source-interface I`: the interface whose address is the source of datagrams, and without `agent-ip` also
    /// identifies the switch.
    pub source: Option<InterfaceName>,
}

impl Default for Sflow {
    fn default() -> Self {
        Self {
            collectors: Vec::new(),
            rate: SFLOW_RATE,
            polling_s: SFLOW_POLLING_S,
            agent: None,
            source: None,
        }
    }
}

impl Sflow {
    /// The sampling rate for the planes; `None` while there is no collector.
    #[must_use]
    pub fn sampling(&self) -> Option<SamplingRate> {
        SamplingRate::new(self.rate).filter(|_| !self.collectors.is_empty())
    }
}
