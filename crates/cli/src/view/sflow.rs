//! The contents of `show sflow`.

use serde::Serialize;
use std::net::Ipv4Addr;

/// `show sflow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SflowView {
    /// True while datagrams are sent.
    pub running: bool,
    /// Why no datagrams are sent although there is a collector.
    pub error: Option<String>,
    /// The address by which the agent identifies itself to collectors.
    pub agent_address: Option<Ipv4Addr>,
    /// The source address of datagrams; `None` if the kernel chooses it.
    pub source_address: Option<Ipv4Addr>,
    /// One of this number of frames is sampled, on average.
    pub sampling_rate: u32,
    /// The interval between counter samples in seconds; 0: none are sent.
    pub polling_interval_s: u32,
    /// The collectors.
    pub collectors: Vec<SflowCollector>,
    /// The interfaces with `sflow enable`.
    pub interfaces: Vec<SflowInterface>,
}

/// A collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SflowCollector {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its UDP port.
    pub port: u16,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Datagrams that the kernel refused to send.
    pub failed: u64,
}

/// A sampled interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SflowInterface {
    /// Its name.
    pub interface: String,
    /// The number by which datagrams identify the interface.
    pub ifindex: u32,
    /// The number of flow samples.
    pub samples: u32,
    /// The pool: the number of frames of which the flow samples were drawn.
    pub pool: u32,
    /// The number of samples that were lost, because they exceeded the rate or a queue was full.
    pub drops: u32,
    /// The number of counter samples.
    pub counter_samples: u32,
}
