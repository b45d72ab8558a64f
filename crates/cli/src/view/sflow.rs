//! The contents of `show sflow`.

use serde::Serialize;
use std::net::Ipv4Addr;

/// `show sflow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SflowView {
    /// True while datagrams are sent.
    pub running: bool,
    /// Why none are sent although there is a collector.
    pub error: Option<String>,
    /// The address by which collectors know the agent.
    pub agent_address: Option<Ipv4Addr>,
    /// The source address of datagrams; without one the kernel chooses it.
    pub source_address: Option<Ipv4Addr>,
    /// One frame in this many is sampled.
    pub sampling_rate: u32,
    /// The interval between counter samples in seconds; 0: none are sent.
    pub polling_interval_s: u32,
    /// The receivers.
    pub collectors: Vec<SflowCollector>,
    /// The interfaces with `sflow enable`.
    pub interfaces: Vec<SflowInterface>,
}

/// A receiver of datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SflowCollector {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its UDP port.
    pub port: u16,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Datagrams that the kernel refused.
    pub failed: u64,
}

/// A sampled interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SflowInterface {
    /// Its name.
    pub interface: String,
    /// The number by which datagrams name it.
    pub ifindex: u32,
    /// Flow samples.
    pub samples: u32,
    /// The frames of which they were drawn.
    pub pool: u32,
    /// Samples that were lost: over the rate, or without room in a queue.
    pub drops: u32,
    /// Counter samples.
    pub counter_samples: u32,
}
