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
/// The default of `sflow polling-interval` in seconds, and its largest value.
pub const SFLOW_POLLING_S: u32 = 20;
/// See [`SFLOW_POLLING_S`].
pub const MAX_SFLOW_POLLING_S: u32 = 3600;

/// `sflow ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sflow {
    /// `sflow collector A [port N]`, at most [`MAX_SFLOW_COLLECTORS`], each address once.
    pub collectors: Vec<(Ipv4Addr, u16)>,
    /// `sflow sampling-rate N`.
    pub rate: u32,
    /// `sflow polling-interval S`; 0: no counters are sent.
    pub polling_s: u32,
    /// `sflow agent-ip A`.
    pub agent: Option<Ipv4Addr>,
    /// `sflow source-interface I`: datagrams have its address, by which collectors also know the agent without `agent-ip`.
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
    /// The rate for the planes, while there is a collector.
    #[must_use]
    pub fn sampling(&self) -> Option<SamplingRate> {
        SamplingRate::new(self.rate).filter(|_| !self.collectors.is_empty())
    }
}
