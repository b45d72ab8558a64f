//! The formats of sFlow version 5, section 5: datagram, flow sample, counter sample and their records.
//!
//! Interfaces are numbered by the kernel's ifindex. An ifindex above 2^24 - 1 does not fit the compact samples; then the expanded
//! ones are used.

use crate::xdr::Writer;
use std::net::Ipv4Addr;

/// The longest datagram in bytes: with the headers of IPv4 and UDP it fits an Ethernet frame (section 5, "maximum datagram size").
pub const MAX_DATAGRAM: usize = 1400;
/// The most bytes of a frame in a sample.
pub const MAX_HEAD: usize = 128;

/// The octets of the frame check sequence, which `frame_length` counts and the plane does not have.
const FCS: u32 = 4;
/// A value that is not known.
const UNKNOWN: u32 = u32::MAX;
/// The largest ifindex of a compact sample.
const MAX_COMPACT: u32 = 0x00ff_ffff;

const FLOW_SAMPLE: u32 = 1;
const COUNTERS_SAMPLE: u32 = 2;
const EXPANDED_FLOW_SAMPLE: u32 = 3;
const EXPANDED_COUNTERS_SAMPLE: u32 = 4;
const RAW_PACKET_HEADER: u32 = 1;
const EXTENDED_SWITCH: u32 = 1001;
const GENERIC_INTERFACE: u32 = 1;
const ETHERNET_ISO8023: u32 = 1;
/// IANAifType ethernetCsmacd.
const ETHERNET_CSMACD: u32 = 6;

/// A flow sample: the facts about one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flow<'a> {
    pub sequence: u32,
    pub ifindex: u32,
    pub rate: u32,
    pub pool: u32,
    pub drops: u32,
    /// The frame's length in bytes without the frame check sequence.
    pub len: u32,
    pub head: &'a [u8],
    /// The VLAN and the priority with which it arrived; `None` for a frame in no VLAN.
    pub vlan: Option<(u16, u8)>,
}

/// The counters of an interface (RFC 2863's `ifEntry`); `None` is sent as "unknown".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The speed in bit/s; 0 if it is not known.
    pub speed_bps: u64,
    /// True for full duplex, false for half duplex; `None` if it is not known.
    pub full_duplex: Option<bool>,
    /// True if the interface is administratively up.
    pub admin_up: bool,
    /// True if the interface has a link.
    pub link_up: bool,
    /// Received bytes, without frame check sequences.
    pub in_octets: u64,
    /// Received frames.
    pub in_frames: u64,
    /// Received frames that were dropped.
    pub in_discards: u64,
    /// Received frames with errors.
    pub in_errors: Option<u64>,
    /// Sent bytes, without frame check sequences.
    pub out_octets: u64,
    /// Sent frames.
    pub out_frames: u64,
    /// Frames that could not be sent.
    pub out_discards: u64,
    /// Frames with errors when they were sent.
    pub out_errors: Option<u64>,
    /// True if the interface accepts frames to every address, as a switch port does.
    pub promiscuous: bool,
}

/// A datagram with the encoded `samples`, of which there are `count`.
pub(crate) fn datagram(
    agent: Ipv4Addr,
    sequence: u32,
    uptime_ms: u32,
    count: u32,
    samples: &Writer,
) -> Vec<u8> {
    let mut out = Writer::default();
    out.u32(5);
    out.u32(1); // an IPv4 address follows
    out.u32(agent.into());
    out.u32(0); // sub-agent: there is one
    out.u32(sequence);
    out.u32(uptime_ms);
    out.u32(count);
    out.extend(samples);
    out.into_bytes()
}

/// The bytes of a datagram before its samples.
pub(crate) const HEADER: usize = 28;

pub(crate) fn flow_sample(out: &mut Writer, flow: &Flow<'_>) {
    let expanded = flow.ifindex > MAX_COMPACT;
    out.record(if expanded { EXPANDED_FLOW_SAMPLE } else { FLOW_SAMPLE }, |out| {
        out.u32(flow.sequence);
        if expanded {
            out.u32(0); // the source is an ifindex
        }
        out.u32(flow.ifindex);
        out.u32(flow.rate);
        out.u32(flow.pool);
        out.u32(flow.drops);
        if expanded {
            out.u32(0);
        }
        out.u32(flow.ifindex);
        if expanded {
            out.u32(0);
        }
        out.u32(0); // the frame has been drawn before its egress port is known
        out.u32(1 + u32::from(flow.vlan.is_some()));
        out.record(RAW_PACKET_HEADER, |out| {
            out.u32(ETHERNET_ISO8023);
            out.u32(flow.len.saturating_add(FCS));
            out.u32(FCS);
            out.opaque(&flow.head[..flow.head.len().min(MAX_HEAD)]);
        });
        if let Some((vlan, priority)) = flow.vlan {
            out.record(EXTENDED_SWITCH, |out| {
                for _ in ["as it arrived", "as it is bridged"] {
                    out.u32(vlan.into());
                    out.u32(priority.into());
                }
            });
        }
    });
}

pub(crate) fn counters_sample(out: &mut Writer, sequence: u32, ifindex: u32, of: &Counters) {
    let expanded = ifindex > MAX_COMPACT;
    let count = |count: Option<u64>| count.map_or(UNKNOWN, wrapped);
    out.record(if expanded { EXPANDED_COUNTERS_SAMPLE } else { COUNTERS_SAMPLE }, |out| {
        out.u32(sequence);
        if expanded {
            out.u32(0);
        }
        out.u32(ifindex);
        out.u32(1);
        out.record(GENERIC_INTERFACE, |out| {
            out.u32(ifindex);
            out.u32(ETHERNET_CSMACD);
            out.u64(of.speed_bps);
            out.u32(of.full_duplex.map_or(0, |full| if full { 1 } else { 2 }));
            out.u32(u32::from(of.admin_up) | u32::from(of.link_up) << 1);
            out.u64(of.in_octets);
            out.u32(wrapped(of.in_frames));
            out.u32(UNKNOWN); // multicast and broadcast are among the frames
            out.u32(UNKNOWN);
            out.u32(wrapped(of.in_discards));
            out.u32(count(of.in_errors));
            out.u32(UNKNOWN); // unknown protocols
            out.u64(of.out_octets);
            out.u32(wrapped(of.out_frames));
            out.u32(UNKNOWN);
            out.u32(UNKNOWN);
            out.u32(wrapped(of.out_discards));
            out.u32(count(of.out_errors));
            out.u32(if of.promiscuous { 1 } else { 2 });
        });
    });
}

/// A counter of 32 bits, which wraps around (RFC 2578, 7.1.6).
const fn wrapped(count: u64) -> u32 {
    count as u32
}
