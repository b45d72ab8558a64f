//! The fields that a rule compares: addresses, ports, and the flags of TCP.

use crate::condition::Condition;
use ipnet::Ipv6Net;
use std::net::Ipv4Addr;

/// An address of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Address {
    /// `any`.
    #[default]
    Any,
    /// An IPv4 address; the bits that are set in the second value may differ (Cisco's wildcard mask).
    V4(Ipv4Addr, Ipv4Addr),
    /// An IPv6 prefix, without host bits.
    V6(Ipv6Net),
    /// The addresses of an object group.
    Group(String),
}

/// A condition on a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PortMatch {
    /// One of up to ten ports.
    Eq(Vec<u16>),
    /// None of up to ten ports.
    Neq(Vec<u16>),
    /// The ports below this one.
    Lt(u16),
    /// The ports above this one.
    Gt(u16),
    /// A port of the range, both ends included.
    Range(u16, u16),
}

/// A condition on the flags of a TCP segment, as bits of byte 13 of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TcpMatch {
    /// ACK or RST is set.
    Established,
    /// `match-all`: all flags of the first value are set, and none of the second.
    All(u8, u8),
    /// `match-any`: at least one flag of the first value is set, or at least one of the second is not.
    Any(u8, u8),
}

impl PortMatch {
    /// The condition on the port.
    #[must_use]
    pub fn condition(&self) -> Condition {
        let ranges = match self {
            Self::Eq(ports) => merged(ports.iter().map(|port| (*port, *port)).collect()),
            Self::Neq(ports) => {
                let (mut ranges, mut next) = (Vec::new(), Some(0_u16));
                for (low, high) in merged(ports.iter().map(|port| (*port, *port)).collect()) {
                    ranges.extend(next.filter(|next| *next < low).map(|next| (next, low - 1)));
                    next = high.checked_add(1);
                }
                ranges.extend(next.map(|next| (next, u16::MAX)));
                ranges
            }
            Self::Lt(port) => port.checked_sub(1).map(|last| (0, last)).into_iter().collect(),
            Self::Gt(port) => port.checked_add(1).map(|first| (first, u16::MAX)).into_iter().collect(),
            Self::Range(low, high) => vec![(*low.min(high), *low.max(high))],
        };
        Condition::Ranges(ranges)
    }
}

/// Sorts ranges, and joins those that overlap or are adjacent.
fn merged(mut ranges: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
    for (low, high) in ranges {
        match joined.last_mut() {
            Some(last) if u32::from(low) <= u32::from(last.1) + 1 => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    joined
}

impl TcpMatch {
    /// True when a segment with these flags matches.
    #[must_use]
    pub const fn holds(self, flags: u8) -> bool {
        match self {
            Self::Established => flags & 0x14 != 0,
            Self::All(set, clear) => flags & set == set && flags & clear == 0,
            Self::Any(set, clear) => flags & set != 0 || !flags & clear != 0,
        }
    }

    /// The condition on the flags.
    pub(crate) fn condition(self) -> Condition {
        let all = (0..=u8::MAX).filter(|flags| self.holds(*flags));
        Condition::Ranges(merged(all.map(|flags| (flags.into(), flags.into())).collect()))
    }
}
