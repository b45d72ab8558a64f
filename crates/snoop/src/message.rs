//! The content of IGMP and MLD messages, in the terms that both have in common.

use lanyard_types::MacAddr;
use std::net::IpAddr;

pub use lanyard_types::Family;
pub use lanyard_wire::group::is_always_flooded;

/// Most sources of a record that are read; a report with more is refused. An Ethernet frame has room for 366 IPv4 sources.
pub const MAX_SOURCES: usize = 366;

macro_rules! errors {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// Why a frame was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
        pub enum MessageError { $($(#[$doc])* #[error($name)] $variant,)* }

        impl MessageError {
            /// All values, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// The name in counters and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

errors! {
    /// The frame is shorter than its headers.
    FrameTruncated = "frame_truncated";
    /// The IP header is wrong: version, length or checksum.
    IpHeader = "ip_header";
    /// The packet is a fragment.
    Fragment = "fragment";
    /// The TTL or hop limit is not 1: the packet may have come through a router.
    HopLimit = "hop_limit";
    /// The source address is not that of a host on the link: a multicast address, or for MLD not link-local.
    Source = "source";
    /// The protocol is neither IGMP, nor ICMPv6 behind the hop-by-hop header, nor PIM.
    Protocol = "protocol";
    /// MLD without the router alert option (RFC 3810, 5).
    RouterAlert = "router_alert";
    /// The checksum is wrong.
    Checksum = "checksum";
    /// The message is shorter than its type needs, or than its counts require.
    Length = "length";
    /// The type is unknown.
    Type = "type";
    /// The group is no multicast address, or a source is one.
    Group = "group";
    /// The destination is not one that the message may be sent to (RFC 3376, 4.1.12 and 9.1).
    Destination = "destination";
}

/// The kinds of a record (RFC 3376, 4.2.12; RFC 3810, 5.2.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// MODE_IS_INCLUDE.
    IsInclude,
    /// MODE_IS_EXCLUDE.
    IsExclude,
    /// CHANGE_TO_INCLUDE_MODE.
    ToInclude,
    /// CHANGE_TO_EXCLUDE_MODE.
    ToExclude,
    /// ALLOW_NEW_SOURCES.
    Allow,
    /// BLOCK_OLD_SOURCES.
    Block,
}

impl RecordKind {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::IsInclude => 1,
            Self::IsExclude => 2,
            Self::ToInclude => 3,
            Self::ToExclude => 4,
            Self::Allow => 5,
            Self::Block => 6,
        }
    }
    pub(crate) const fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::IsInclude,
            2 => Self::IsExclude,
            3 => Self::ToInclude,
            4 => Self::ToExclude,
            5 => Self::Allow,
            6 => Self::Block,
            _ => return None,
        })
    }
}

/// A record of a report: a change or the state of the sources that a host wants in one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The kind.
    pub kind: RecordKind,
    /// The group.
    pub group: IpAddr,
    /// The sources.
    pub sources: Vec<IpAddr>,
}

impl Record {
    /// True if by this record the sender wants no source of the group any more.
    pub(crate) fn leaves(&self) -> bool {
        matches!(self.kind, RecordKind::IsInclude | RecordKind::ToInclude) && self.sources.is_empty()
    }
}

/// A query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The version of the protocol: 1 to 3 for IGMP, 1 or 2 for MLD.
    pub version: u8,
    /// The group; `None` for a general query.
    pub group: Option<IpAddr>,
    /// The sources of a group-and-source-specific query.
    pub sources: Vec<IpAddr>,
    /// Within which time hosts answer, in milliseconds.
    pub max_response_ms: u32,
    /// The S flag: routers do not change their timers for this query.
    pub suppress: bool,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A query of a router or querier.
    Query(Query),
    /// A report. One of an old version is decoded as one record without sources.
    Report {
        /// The version of the protocol.
        version: u8,
        /// The records.
        records: Vec<Record>,
    },
    /// A leave (IGMPv2) or done (MLDv1) of a group.
    Leave(IpAddr),
    /// A PIM hello, with its holdtime in seconds.
    PimHello(u16),
    /// A multicast router advertisement (RFC 4286), with its interval in seconds.
    RouterAdvertisement(u8),
    /// A multicast router termination.
    RouterTermination,
}

/// A message with its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The source MAC address.
    pub mac: MacAddr,
    /// The source IP address.
    pub source: IpAddr,
    /// The message.
    pub message: Message,
}

/// The time of a Max Resp Code or QQIC in its floating-point form (RFC 3376, 4.1.1), in its own units.
pub(crate) fn decode_time(code: u8) -> u32 {
    if code < 128 { u32::from(code) } else { (u32::from(code & 15) | 0x10) << ((code >> 4 & 7) + 3) }
}

/// The largest code whose time is at most `time`.
pub(crate) fn encode_time(time: u32) -> u8 {
    (0..=255u8).rev().find(|code| decode_time(*code) <= time).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{decode_time, encode_time};

    #[test]
    fn times_of_codes() {
        assert_eq!(
            [decode_time(0), decode_time(127), decode_time(128), decode_time(255)],
            [0, 127, 128, 31_744]
        );
        for time in [0, 1, 100, 127, 128, 1000, 31_744, 100_000] {
            let back = decode_time(encode_time(time));
            assert!(back <= time && (time < 128 || back * 17 / 16 >= time.min(31_744) - 1), "{time} {back}");
        }
    }
}
