//! ERSPAN types II and III: copies of frames in GRE over IPv4, draft-foschiano-erspan-03, 4.2 and 4.3; RFC 2784 and RFC 2890 for
//! GRE.
//!
//! Invariant: [`is_erspan`] recognises the packet that [`payload`] makes, so a sender that calls it before it copies a frame
//! never sends a copy of a copy.

mod received;

pub use received::{Copied, Unreadable, read};

use crate::TAG_LEN;

/// The IP protocol number of GRE.
pub const GRE: u8 = 47;
/// The bytes of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;

const GRE_LEN: usize = 8;
const ERSPAN_LEN: usize = 8;
/// GRE's protocol types: of ERSPAN type II (and I), and of type III.
const TYPE_II: u16 = 0x88be;
const TYPE_III: u16 = 0x22eb;
/// GRE: a sequence number is present (RFC 2890, 2).
const SEQUENCE: u16 = 0x1000;
/// Two values of the field En of type II. `NO_TAG`: the frame had no tag; `TAG_PRESERVED`: the copy still has the frame's tag.
const NO_TAG: u16 = 0b00;
const TAG_PRESERVED: u16 = 0b11;
/// The EtherTypes of tags.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// The type of an ERSPAN header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Type II.
    Two,
    /// Type III.
    Three {
        /// When the copy was made: a count of 100 microseconds (Gra is 0), which wraps.
        ticks: u32,
    },
}

impl Kind {
    /// The bytes of the headers of [`payload`]: GRE with a sequence number, and ERSPAN.
    #[must_use]
    pub const fn overhead(self) -> usize {
        match self {
            Self::Two => GRE_LEN + ERSPAN_LEN,
            Self::Three { .. } => GRE_LEN + ERSPAN_LEN + 4,
        }
    }
}

/// The fields of the headers that do not follow from the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The type.
    pub kind: Kind,
    /// GRE's sequence number.
    pub sequence: u32,
    /// The session's identifier, 10 bits.
    pub session: u16,
    /// The frame's VLAN, 12 bits; 0 for none.
    pub vlan: u16,
}

/// Replaces `out` by the payload of the IPv4 packet that carries `frame`: the headers and at most `room` bytes of the frame.
pub fn payload(header: Header, frame: &[u8], room: usize, out: &mut Vec<u8>) {
    let kept = frame.get(..room).unwrap_or(frame);
    let (cos, tag) = match frame.get(12..16) {
        Some([a, b, tci, _]) if TAGS.contains(&u16::from_be_bytes([*a, *b])) => {
            (u16::from(tci >> 5), TAG_PRESERVED)
        }
        _ => (0, NO_TAG),
    };
    let truncated = u16::from(kept.len() < frame.len());
    // In place of En, type III has the frame's integrity. 0: the frame is good, or was not checked.
    let (protocol, version, tag) = match header.kind {
        Kind::Two => (TYPE_II, 1, tag),
        Kind::Three { .. } => (TYPE_III, 2, 0),
    };
    out.clear();
    out.extend_from_slice(&SEQUENCE.to_be_bytes());
    out.extend_from_slice(&protocol.to_be_bytes());
    out.extend_from_slice(&header.sequence.to_be_bytes());
    out.extend_from_slice(&(version << 12 | header.vlan & 0x0fff).to_be_bytes());
    out.extend_from_slice(&(cos << 13 | tag << 11 | truncated << 10 | header.session & 0x03ff).to_be_bytes());
    match header.kind {
        // The reserved bits and the index, whose meaning depends on the platform, are 0.
        Kind::Two => out.extend_from_slice(&[0; 4]),
        Kind::Three { ticks } => {
            out.extend_from_slice(&ticks.to_be_bytes());
            // No security group tag; an Ethernet frame (P is set, the frame type is 0); hardware, direction and granularity are
            // 0; no platform-specific subheader (O).
            out.extend_from_slice(&[0, 0, 0x80, 0]);
        }
    }
    out.extend_from_slice(kept);
}

/// Splits a copy in front of whose own tags the plane has put a tag with the frame's VLAN (`MirrorCopy::name_vlan`): returns the
/// VLAN ID of that tag, and replaces `out` by the frame without it. `None` if there is no such tag.
pub fn unmark(copy: &[u8], out: &mut Vec<u8>) -> Option<u16> {
    let (addresses, rest) = copy.split_at_checked(12)?;
    let (tag, rest) = rest.split_at_checked(TAG_LEN)?;
    let [0x81, 0x00, high, low] = *tag else { return None };
    out.clear();
    out.extend_from_slice(addresses);
    out.extend_from_slice(rest);
    Some(u16::from_be_bytes([high, low]) & 0x0fff)
}

/// True for a frame with ERSPAN in GRE, over IPv4 or IPv6, behind up to four VLAN tags. Also true for later fragments of GRE
/// packets, which do not show their content, and for ICMP errors about packets of both kinds, because a host may answer each of
/// them with an error.
#[must_use]
pub fn is_erspan(frame: &[u8]) -> bool {
    let mut at = 12;
    for _ in 0..4 {
        match two(frame, at) {
            Some(tag) if TAGS.contains(&tag) => at += TAG_LEN,
            _ => break,
        }
    }
    let Some(packet) = frame.get(at + 2..) else { return false };
    match two(frame, at) {
        Some(0x0800) => {
            ipv4(packet) || quoted(packet, 9, ICMP, |packet| usize::from(packet[0] & 0x0f) * 4, ipv4)
        }
        Some(0x86dd) => ipv6(packet) || quoted(packet, 6, ICMPV6, |_| 40, ipv6),
        _ => false,
    }
}

/// ICMP, and the types of its errors (RFC 792); ICMPv6 (RFC 4443), whose errors have types below 128.
const ICMP: u8 = 1;
const ICMP_ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
const ICMPV6: u8 = 58;

/// True if the packet is an error message of the protocol `icmp` about a packet for which `is` returns true. `at` is the offset
/// of the packet's protocol number, and `header` returns the length of its IP header.
fn quoted(packet: &[u8], at: usize, icmp: u8, header: fn(&[u8]) -> usize, is: fn(&[u8]) -> bool) -> bool {
    if packet.get(at) != Some(&icmp) {
        return false;
    }
    let Some(message) = packet.get(header(packet)..) else { return false };
    let is_error = match message.first() {
        Some(kind) if icmp == ICMP => ICMP_ERRORS.contains(kind),
        Some(kind) => *kind < 128,
        None => false,
    };
    is_error && message.get(8..).is_some_and(is)
}

fn ipv4(packet: &[u8]) -> bool {
    let (Some(first), Some(fragment), Some(protocol)) = (packet.first(), two(packet, 6), packet.get(9))
    else {
        return false;
    };
    *protocol == GRE && (fragment & 0x1fff != 0 || carries(packet, usize::from(first & 0x0f) * 4))
}

fn ipv6(packet: &[u8]) -> bool {
    /// The headers that may stand before GRE: hop-by-hop options, routing, destination options (RFC 8200, 4).
    const OPTIONS: [u8; 3] = [0, 43, 60];
    const FRAGMENT: u8 = 44;
    let Some(mut next) = packet.get(6).copied() else { return false };
    let mut at = 40;
    for _ in 0..8 {
        match next {
            GRE => return carries(packet, at),
            FRAGMENT => {
                let (Some(inner), Some(offset)) = (packet.get(at), two(packet, at + 2)) else { return false };
                if *inner == GRE && offset & 0xfff8 != 0 {
                    return true;
                }
                (next, at) = (*inner, at + 8);
            }
            header if OPTIONS.contains(&header) => {
                let (Some(inner), Some(len)) = (packet.get(at), packet.get(at + 1)) else { return false };
                (next, at) = (*inner, at + (usize::from(*len) + 1) * 8);
            }
            _ => return false,
        }
    }
    false
}

/// True if GRE's header at `at` announces ERSPAN.
fn carries(packet: &[u8], at: usize) -> bool {
    matches!(two(packet, at + 2), Some(TYPE_II | TYPE_III))
}

fn two(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Tag, push};
    use lanyard_types::MacAddr;

    fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
        let builder = Builder::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
        builder.ethertype(ether_type).payload(payload).build()
    }

    fn made(vlan: u16, frame: &[u8], room: usize) -> Vec<u8> {
        let mut out = vec![9; 3];
        let header = Header { kind: Kind::Two, sequence: 0x0102_0304, session: 0x3ff, vlan };
        payload(header, frame, room, &mut out);
        out
    }

    #[test]
    fn every_field_has_its_place() {
        let plain = frame(0x88b5, &[7; 46]);
        let head = |second: u16| {
            let mut head = vec![0x10, 0x00, 0x88, 0xbe, 1, 2, 3, 4, 0x1f, 0xfe];
            head.extend_from_slice(&second.to_be_bytes());
            head.extend_from_slice(&[0; 4]);
            head
        };
        assert_eq!(made(4094, &plain, 9000), [head(0x03ff), plain.clone()].concat());
        assert_eq!(head(0).len(), Kind::Two.overhead());
        let mut tagged = plain.clone();
        push(&mut tagged, 0x88a8, Tag { pcp: 5, dei: false, vid: 4094 }).expect("long enough");
        assert_eq!(made(4094, &tagged, 9000), [head(5 << 13 | 0b11 << 11 | 0x3ff), tagged.clone()].concat());
        // The header carries the tag's priority although the copy is truncated within the tag.
        for room in [0, 13, tagged.len() - 1] {
            let want = [head(5 << 13 | 0b11 << 11 | 1 << 10 | 0x3ff), tagged[..room].to_vec()].concat();
            assert_eq!(made(4094, &tagged, room), want);
        }
        assert_eq!(made(4094, &plain, plain.len()), [head(0x03ff), plain].concat(), "it fits exactly");
        // Type III: another protocol type and version, no En, a time, and the frame type.
        let mut three = Vec::new();
        let kind = Kind::Three { ticks: 0x0506_0708 };
        payload(Header { kind, sequence: 0x0102_0304, session: 0x3ff, vlan: 4094 }, &tagged, 20, &mut three);
        let mut want =
            vec![0x10, 0x00, 0x22, 0xeb, 1, 2, 3, 4, 0x2f, 0xfe, 0xa7, 0xff, 5, 6, 7, 8, 0, 0, 0x80, 0];
        assert_eq!(want.len(), kind.overhead());
        want.extend_from_slice(&tagged[..20]);
        assert_eq!(three, want);
    }

    #[test]
    fn a_mark_is_removed_and_its_vlan_returned() {
        let plain = frame(0x0800, &[0; 46]);
        for vid in [0, 1, 4094] {
            let mut marked = plain.clone();
            push(&mut marked, 0x8100, Tag { vid, ..Tag::default() }).expect("long enough");
            let mut out = vec![9; 100];
            assert_eq!((unmark(&marked, &mut out), &out), (Some(vid), &plain));
        }
        for len in 0..plain.len() {
            assert_eq!(unmark(&plain[..len], &mut Vec::new()), None);
        }
    }

    /// An IPv4 packet with GRE and this fragment offset.
    fn gre4(protocol: u16, offset: u16, options: usize) -> Vec<u8> {
        let mut packet = vec![0; 20 + options];
        packet[0] = 0x45 + (options / 4) as u8;
        packet[6..8].copy_from_slice(&offset.to_be_bytes());
        packet[9] = GRE;
        packet.extend_from_slice(&[0x10, 0]);
        packet.extend_from_slice(&protocol.to_be_bytes());
        packet.extend_from_slice(&[0; 40]);
        packet
    }

    /// An IPv6 packet with GRE behind these headers, each of which is given without its first byte.
    fn gre6(protocol: u16, headers: &[(u8, &[u8])]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[6] = headers.first().map_or(GRE, |(kind, _)| *kind);
        for (n, (_, rest)) in headers.iter().enumerate() {
            packet.push(headers.get(n + 1).map_or(GRE, |(kind, _)| *kind));
            packet.extend_from_slice(rest);
        }
        packet.extend_from_slice(&[0, 0]);
        packet.extend_from_slice(&protocol.to_be_bytes());
        packet
    }

    /// ICMP of this type that quotes a packet.
    fn icmp4(kind: u8, quoted: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        (packet[0], packet[9]) = (0x45, ICMP);
        packet.extend_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend_from_slice(quoted);
        packet
    }

    fn icmp6(kind: u8, quoted: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        (packet[0], packet[6]) = (0x60, ICMPV6);
        packet.extend_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend_from_slice(quoted);
        packet
    }

    #[test]
    fn erspan_is_recognised_and_other_packets_are_not() {
        let other_gre = |fragment| frame(0x0800, &gre4(0x0800, fragment, 0));
        let mut tcp = gre4(TYPE_II, 0, 0);
        tcp[9] = 6;
        let mut own = gre4(0, 0, 0)[..20].to_vec();
        own.extend(made(10, &frame(0x0800, &[0; 46]), 9000));
        // Options of two units of eight bytes, and of one.
        let (long, short): (&[u8], &[u8]) = (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[0; 7]);
        let fragment = |offset: u8| [0, 0, offset, 0, 0, 0, 0];
        for (frame, want) in [
            (frame(0x0800, &own), true),
            (frame(0x0800, &gre4(TYPE_II, 0, 0)), true),
            (frame(0x0800, &gre4(TYPE_III, 0x2000, 8)), true),
            (other_gre(0), false),
            // A first fragment has the ports; one behind it does not.
            (other_gre(0x2000), false),
            (other_gre(0x0001), true),
            (frame(0x0800, &tcp), false),
            (frame(0x86dd, &gre6(TYPE_II, &[])), true),
            (frame(0x86dd, &gre6(TYPE_III, &[(0, long), (60, short), (44, &fragment(0))])), true),
            (frame(0x86dd, &gre6(0x0800, &[(44, &fragment(0))])), false),
            (frame(0x86dd, &gre6(0x0800, &[(44, &fragment(8))])), true),
            (frame(0x88b5, &gre4(TYPE_II, 0, 0)), false),
            (frame(0x0800, &icmp4(3, &gre4(TYPE_II, 0, 0))), true),
            (frame(0x0800, &icmp4(3, &gre4(0x0800, 0, 0))), false),
            (frame(0x0800, &icmp4(8, &gre4(TYPE_II, 0, 0))), false),
            (frame(0x86dd, &icmp6(1, &gre6(TYPE_II, &[]))), true),
            (frame(0x86dd, &icmp6(128, &gre6(TYPE_II, &[]))), false),
        ] {
            assert_eq!(is_erspan(&frame), want, "{frame:02x?}");
            let mut tagged = frame.clone();
            for (tpid, vid) in [(0x8100, 10), (0x88a8, 20), (0x9100, 30)] {
                push(&mut tagged, tpid, Tag { vid, ..Tag::default() }).expect("long enough");
                assert_eq!(is_erspan(&tagged), want, "{tagged:02x?}");
            }
            for len in 0..frame.len() {
                let _ = is_erspan(&frame[..len]);
            }
        }
    }
}
