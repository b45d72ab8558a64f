//! Reads received ERSPAN: GRE (RFC 2784, RFC 2890) with the header of type II or III (draft-foschiano-erspan-03, 4.2 and 4.3).
//!
//! Invariant: a frame that [`read`] returns is a part of the packet and has at least an Ethernet header.

use super::{SEQUENCE, TYPE_II, TYPE_III, two};

/// A copy that a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied<'a> {
    /// The session's identifier, 10 bits.
    pub session: u16,
    /// True if the source has cut off the end of the frame.
    pub truncated: bool,
    /// The frame with its tags, without FCS.
    pub frame: &'a [u8],
}

/// Why a packet with ERSPAN carries no copy that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// The packet ends before its headers do, or the frame is shorter than an Ethernet header.
    Short,
    /// GRE's header has a routing field, a reserved bit, or a version other than 0.
    Gre,
    /// GRE's checksum is wrong.
    Checksum,
    /// ERSPAN's version does not fit GRE's protocol type.
    Version,
    /// Type I: no header of ERSPAN, so no identifier.
    TypeOne,
    /// Type III with content that is not an Ethernet frame.
    NotEthernet,
}

/// GRE's flags: a checksum, a key, a sequence number is present. All other bits have to be zero.
const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
/// The bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;
/// Type III: the bytes of the header, and of the platform-specific subheader that may follow it.
const TYPE_III_LEN: usize = 12;
const PLATFORM_LEN: usize = 8;

/// Reads the payload of an IPv4 packet of protocol [`super::GRE`]. `None` if it carries something else than ERSPAN.
///
/// # Errors
/// When it carries ERSPAN, but no copy that can be used.
pub fn read(packet: &[u8]) -> Option<Result<Copied<'_>, Unreadable>> {
    match two(packet, 2)? {
        TYPE_II => Some(behind_gre(packet).and_then(|(header, flags)| type_two(header, flags))),
        TYPE_III => Some(behind_gre(packet).and_then(|(header, _)| type_three(header))),
        _ => None,
    }
}

/// The bytes after GRE's header, and its flags.
fn behind_gre(packet: &[u8]) -> Result<(&[u8], u16), Unreadable> {
    let flags = two(packet, 0).ok_or(Unreadable::Short)?;
    if flags & !(CHECKSUM | KEY | SEQUENCE) != 0 {
        return Err(Unreadable::Gre);
    }
    let words = [CHECKSUM, KEY, SEQUENCE].into_iter().filter(|flag| flags & flag != 0).count();
    let rest = packet.get(4 + words * 4..).ok_or(Unreadable::Short)?;
    if flags & CHECKSUM != 0 && ones_sum(packet) != 0xffff {
        return Err(Unreadable::Checksum);
    }
    Ok((rest, flags))
}

/// The ones' complement sum of 16-bit words.
fn ones_sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| {
        u64::from(pair.first().copied().unwrap_or_default()) << 8
            | u64::from(pair.get(1).copied().unwrap_or_default())
    };
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u32
}

fn type_two(header: &[u8], flags: u16) -> Result<Copied<'_>, Unreadable> {
    // Type I is GRE without a sequence number, and the frame follows at once.
    if flags & SEQUENCE == 0 {
        return Err(Unreadable::TypeOne);
    }
    copied(header, 1, super::ERSPAN_LEN)
}

fn type_three(header: &[u8]) -> Result<Copied<'_>, Unreadable> {
    let kind = two(header, 10).ok_or(Unreadable::Short)?;
    let len = TYPE_III_LEN + if kind & 1 == 1 { PLATFORM_LEN } else { 0 };
    let copied = copied(header, 2, len)?;
    // The frame type; 0 is Ethernet.
    if kind >> 10 & 0x1f != 0 {
        return Err(Unreadable::NotEthernet);
    }
    Ok(copied)
}

/// Reads the fields that both types have, and the frame behind the header of `len` bytes.
fn copied(header: &[u8], version: u16, len: usize) -> Result<Copied<'_>, Unreadable> {
    let (first, second) = two(header, 0).zip(two(header, 2)).ok_or(Unreadable::Short)?;
    if first >> 12 != version {
        return Err(Unreadable::Version);
    }
    let frame = header.get(len..).filter(|frame| frame.len() >= ETHERNET_LEN).ok_or(Unreadable::Short)?;
    Ok(Copied { session: second & 0x03ff, truncated: second >> 10 & 1 == 1, frame })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::erspan::{Header, Kind, payload};

    /// GRE with these flags and words, and what follows it.
    fn gre(flags: u16, protocol: u16, words: &[u32], rest: &[u8]) -> Vec<u8> {
        let mut packet = [flags.to_be_bytes(), protocol.to_be_bytes()].concat();
        words.iter().for_each(|word| packet.extend_from_slice(&word.to_be_bytes()));
        packet.extend_from_slice(rest);
        packet
    }

    /// Type II with identifier 7, and type III with `kind`, both with this frame.
    fn two_of(frame: &[u8]) -> Vec<u8> {
        [&[0x10, 0x0a, 0, 7, 0, 0, 0, 0], frame].concat()
    }
    fn three_of(kind: u16, frame: &[u8]) -> Vec<u8> {
        [&[0x20, 0x0a, 4, 7, 1, 2, 3, 4, 0, 0][..], &kind.to_be_bytes(), frame].concat()
    }

    #[test]
    fn erspan_payloads_are_encoded_and_decoded() {
        let frame: Vec<u8> = (0..60).collect();
        for kind in [Kind::Two, Kind::Three { ticks: 0xffff_ffff }] {
            for room in [14, 59, 60, 61] {
                let mut packet = Vec::new();
                let header = Header { kind, sequence: 9, session: 1023, vlan: 4094 };
                payload(header, &frame, room, &mut packet);
                let kept = &frame[..room.min(60)];
                let want = Copied { session: 1023, truncated: room < 60, frame: kept };
                assert_eq!(read(&packet), Some(Ok(want)));
            }
        }
    }

    #[test]
    fn each_field_is_where_the_draft_has_it() {
        let frame = [9; 60];
        let want = |truncated| Some(Ok(Copied { session: 7, truncated, frame: &frame }));
        assert_eq!(read(&gre(0x1000, 0x88be, &[1], &two_of(&frame))), want(false));
        assert_eq!(read(&gre(0x3000, 0x88be, &[1, 2], &two_of(&frame))), want(false), "with a key");
        assert_eq!(read(&gre(0x1000, 0x22eb, &[1], &three_of(0, &frame))), want(true));
        assert_eq!(read(&gre(0, 0x22eb, &[], &three_of(0, &frame))), want(true), "no sequence number");
        let platform = [&[0xee; 8][..], &frame].concat();
        assert_eq!(read(&gre(0x1000, 0x22eb, &[1], &three_of(1, &platform))), want(true));
        // A checksum over GRE's header and what follows it.
        let mut sealed = gre(0x9000, 0x88be, &[0, 1], &two_of(&frame));
        let sum = !(ones_sum(&sealed) as u16);
        sealed[4..6].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(read(&sealed), want(false));
        sealed[30] ^= 1;
        assert_eq!(read(&sealed), Some(Err(Unreadable::Checksum)));
    }

    #[test]
    fn every_damage_has_its_reason() {
        let frame = [9; 60];
        let (two, three) = (two_of(&frame), three_of(0, &frame));
        for (packet, want) in [
            (gre(0x5000, 0x88be, &[1], &two), Unreadable::Gre),
            (gre(0x1001, 0x88be, &[1], &two), Unreadable::Gre),
            (gre(0x1800, 0x22eb, &[1], &three), Unreadable::Gre),
            (gre(0, 0x88be, &[], &frame), Unreadable::TypeOne),
            (gre(0x1000, 0x88be, &[1], &three), Unreadable::Version),
            (gre(0x1000, 0x22eb, &[1], &two), Unreadable::Version),
            (gre(0x1000, 0x22eb, &[1], &three_of(2 << 10, &frame)), Unreadable::NotEthernet),
            (gre(0x1000, 0x88be, &[1], &two_of(&frame[..13])), Unreadable::Short),
            (gre(0x1000, 0x22eb, &[1], &three_of(1, &frame[..21])), Unreadable::Short),
        ] {
            assert_eq!(read(&packet), Some(Err(want)), "{packet:02x?}");
        }
        assert_eq!(read(&gre(0, 0x0800, &[], &frame)), None, "IPv4 in GRE");
        assert_eq!(read(&gre(0x4fff, 0x880b, &[], &frame)), None, "PPTP");
        for packet in [gre(0xb000, 0x88be, &[0, 1, 2], &two), gre(0x1000, 0x22eb, &[1], &three)] {
            for len in 0..packet.len() {
                assert!(!matches!(read(&packet[..len]), Some(Ok(copied)) if copied.frame.len() < 14));
            }
        }
    }
}
