//! [`Key`]: the fields of a frame that rules compare, as 16-bit halves. `bpf/stages/acl_ingress.h` reads the same key.
//!
//! Invariant: reading never panics and reads a bounded number of headers. A frame whose fields cannot be read differs
//! from one that does not have them: see [`Key::unknown`].

use lanyard_types::MacAddr;
use serde::{Deserialize, Serialize};

/// The number of halves in a key.
pub const HALVES: usize = 24;
/// The first half of the source address: an IPv4 address has two, an IPv6 address eight, a MAC address three.
pub const SRC: usize = 0;
/// The first half of the destination address.
pub const DST: usize = 8;
/// The source port; for ICMP the type, and the code in the lower byte; for IGMP the type in the upper byte.
pub const L4_SRC: usize = 16;
/// The destination port.
pub const L4_DST: usize = 17;
/// The IP protocol; for IPv6 the one behind the extension headers.
pub const PROTOCOL: usize = 18;
/// The TOS or traffic class byte; [`LATER_FRAGMENT`] in the upper byte.
pub const TOS: usize = 19;
/// The EtherType.
pub const ETHERTYPE: usize = 20;
/// The VLAN, and the class of service in the upper three bits.
pub const VLAN: usize = 21;
/// The flags of a TCP header, byte 13.
pub const TCP_FLAGS: usize = 22;

/// The bit of the half [`TOS`] that says that the packet is a fragment other than the first.
pub const LATER_FRAGMENT: u16 = 0x100;
/// The halves that belong to the transport header, as a set of bits.
pub const TRANSPORT: u32 = 1 << L4_SRC | 1 << L4_DST | 1 << TCP_FLAGS;
/// The IPv6 extension headers that are followed; a packet with more has an unknown protocol.
pub const MAX_EXTENSIONS: usize = 6;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;

/// The protocol number of ICMP.
pub const ICMP: u8 = 1;
/// The protocol number of IGMP.
pub const IGMP: u8 = 2;
/// The protocol number of TCP.
pub const TCP: u8 = 6;
/// The protocol number of UDP.
pub const UDP: u8 = 17;
/// The protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// Protocols whose header begins with two ports, besides TCP: UDP, DCCP, SCTP, UDP-Lite.
const PORTS: [u8; 4] = [UDP, 33, 132, 136];

/// The family of a frame. An access list applies to the frames of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum FrameFamily {
    /// Frames with EtherType 0x0800.
    Ipv4 = 0,
    /// Frames with EtherType 0x86dd.
    Ipv6 = 1,
    /// All other frames.
    Mac = 2,
}

impl FrameFamily {
    /// Every family.
    pub const ALL: [Self; 3] = [Self::Ipv4, Self::Ipv6, Self::Mac];

    /// The family of the frames with this EtherType.
    #[must_use]
    pub const fn of(ethertype: u16) -> Self {
        match ethertype {
            IPV4 => Self::Ipv4,
            IPV6 => Self::Ipv6,
            _ => Self::Mac,
        }
    }
    /// The number, as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The fields of one frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Key {
    /// The fields, by the constants of this module; a field that the frame does not have is 0.
    pub half: [u16; HALVES],
    /// The halves that a later fragment does not have, as a set of bits. A rule with a condition on one of them matches if
    /// it permits (IOS: a fragment whose first part is denied is useless to its receiver).
    pub absent: u32,
    /// The halves that the frame should have and that cannot be read, as a set of bits: a header is cut off (RFC 1858, 3:
    /// tiny fragments), overwritten by the second fragment (RFC 3128), or behind too many extension headers. A rule with a
    /// condition on one of them matches if it denies.
    pub unknown: u32,
}

/// The fields of a frame's header in a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// The destination address.
    pub dst: MacAddr,
    /// The source address.
    pub src: MacAddr,
    /// The EtherType behind the tag that the port recognises.
    pub ethertype: u16,
    /// The VLAN; 0 at a routed port.
    pub vlan: u16,
    /// The class of service of the recognised tag, 0..=7; 0 without one.
    pub cos: u8,
}

/// The error for a frame with the EtherType of IP and without a valid IP header. No rule matches it: it is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl Key {
    /// Reads the key of a frame from its `header` and `packet`, the bytes behind it.
    ///
    /// # Errors
    /// [`Malformed`] when the EtherType is that of IPv4 or IPv6 and no such header follows.
    pub fn read(header: &Header, packet: &[u8]) -> Result<Self, Malformed> {
        let mut key = Self::default();
        key.half[ETHERTYPE] = header.ethertype;
        key.half[VLAN] = header.vlan & 0xfff | u16::from(header.cos) << 13;
        match FrameFamily::of(header.ethertype) {
            FrameFamily::Ipv4 => key.ipv4(packet)?,
            FrameFamily::Ipv6 => key.ipv6(packet)?,
            FrameFamily::Mac => {
                for n in 0..3 {
                    key.half[DST + n] = half(&header.dst.0, 2 * n).unwrap_or(0);
                    key.half[SRC + n] = half(&header.src.0, 2 * n).unwrap_or(0);
                }
            }
        }
        Ok(key)
    }

    fn ipv4(&mut self, packet: &[u8]) -> Result<(), Malformed> {
        let header: &[u8; 20] = packet.first_chunk().ok_or(Malformed)?;
        let len = usize::from(header[0] & 15) * 4;
        if header[0] >> 4 != 4 || len < 20 {
            return Err(Malformed);
        }
        for n in 0..2 {
            self.half[SRC + n] = half(header, 12 + 2 * n).unwrap_or(0);
            self.half[DST + n] = half(header, 16 + 2 * n).unwrap_or(0);
        }
        self.half[TOS] = header[1].into();
        self.half[PROTOCOL] = header[9].into();
        let offset = half(header, 6).unwrap_or(0) & 0x1fff;
        if offset != 0 {
            self.later_fragment(offset);
        } else {
            self.transport(packet.get(len..).unwrap_or_default());
        }
        Ok(())
    }

    fn ipv6(&mut self, packet: &[u8]) -> Result<(), Malformed> {
        let header: &[u8; 40] = packet.first_chunk().ok_or(Malformed)?;
        if header[0] >> 4 != 6 {
            return Err(Malformed);
        }
        for n in 0..8 {
            self.half[SRC + n] = half(header, 8 + 2 * n).unwrap_or(0);
            self.half[DST + n] = half(header, 24 + 2 * n).unwrap_or(0);
        }
        self.half[TOS] = (header[0] << 4 | header[1] >> 4).into();
        let (mut next, mut at) = (header[6], 40);
        for n in 0..=MAX_EXTENSIONS {
            let length = match extension(next) {
                None => {
                    self.half[PROTOCOL] = next.into();
                    self.transport(packet.get(at..).unwrap_or_default());
                    return Ok(());
                }
                Some(_) if n == MAX_EXTENSIONS => break,
                Some(length) => length,
            };
            let Some(ext) = packet.get(at..).and_then(|rest| rest.first_chunk::<8>()) else { break };
            let offset = if next == 44 { half(ext, 2).unwrap_or(0) >> 3 } else { 0 };
            next = ext[0];
            at += length(ext[1]);
            if offset != 0 {
                self.half[PROTOCOL] = next.into();
                self.later_fragment(offset);
                if extension(next).is_some() {
                    self.unknown |= 1 << PROTOCOL;
                }
                return Ok(());
            }
        }
        self.unknown = TRANSPORT | 1 << PROTOCOL;
        Ok(())
    }

    /// A fragment that begins `offset` times 8 bytes into the packet.
    fn later_fragment(&mut self, offset: u16) {
        self.half[TOS] |= LATER_FRAGMENT;
        if offset == 1 && self.half[PROTOCOL] == u16::from(TCP) {
            self.unknown = TRANSPORT;
        } else {
            self.absent = TRANSPORT;
        }
    }

    fn transport(&mut self, header: &[u8]) {
        let protocol = self.half[PROTOCOL] as u8;
        let (needed, ports) = match protocol {
            TCP => (14, true),
            ICMP | IGMP | ICMPV6 => (4, false),
            other if PORTS.contains(&other) => (4, true),
            _ => return,
        };
        if header.len() < needed {
            self.unknown = TRANSPORT;
            return;
        }
        self.half[L4_SRC] = half(header, 0).unwrap_or(0);
        if ports {
            self.half[L4_DST] = half(header, 2).unwrap_or(0);
        }
        if protocol == TCP {
            self.half[TCP_FLAGS] = header[13].into();
        }
    }
}

/// The length in bytes of an IPv6 extension header of this type, from its length field; `None` for other headers.
fn extension(header: u8) -> Option<fn(u8) -> usize> {
    match header {
        // Hop-by-hop options, routing, destination options, mobility, HIP, shim6: in units of 8 bytes, the first not counted.
        0 | 43 | 60 | 135 | 139 | 140 => Some(|len| (usize::from(len) + 1) * 8),
        // Authentication: in units of 4 bytes, the first two not counted.
        51 => Some(|len| (usize::from(len) + 2) * 4),
        44 => Some(|_| 8),
        _ => None,
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0xb8, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 1, 2, 3, 192, 0, 2, 9];
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet.extend(payload);
        packet
    }

    fn read(ethertype: u16, packet: &[u8]) -> Result<Key, Malformed> {
        Key::read(&Header { ethertype, vlan: 10, cos: 5, ..Header::default() }, packet)
    }

    const TCP_HEADER: [u8; 14] = [0x12, 0x34, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12];

    #[test]
    fn the_fields_of_a_tcp_packet() {
        let key = read(IPV4, &ipv4(TCP, 0x4000, &TCP_HEADER)).expect("a header");
        assert_eq!(key.half[SRC..SRC + 2], [0x0a01, 0x0203]);
        assert_eq!(key.half[DST..DST + 2], [0xc000, 0x0209]);
        assert_eq!((key.half[L4_SRC], key.half[L4_DST], key.half[TCP_FLAGS]), (0x1234, 80, 0x12));
        assert_eq!((key.half[PROTOCOL], key.half[TOS], key.half[VLAN]), (6, 0xb8, 10 | 5 << 13));
        assert_eq!((key.absent, key.unknown), (0, 0));
    }

    #[test]
    fn fragments_and_cut_headers() {
        let check = |protocol, fragment, payload: &[u8], absent, unknown, later| {
            let key = read(IPV4, &ipv4(protocol, fragment, payload)).expect("a header");
            assert_eq!(
                (key.absent, key.unknown, key.half[TOS] & LATER_FRAGMENT != 0),
                (absent, unknown, later),
                "protocol {protocol}, fragment {fragment:#x}, {} bytes",
                payload.len()
            );
        };
        check(TCP, 0x2000, &TCP_HEADER, 0, 0, false);
        check(TCP, 0x2000, &TCP_HEADER[..13], 0, TRANSPORT, false);
        check(UDP, 0, &TCP_HEADER[..4], 0, 0, false);
        check(UDP, 0, &TCP_HEADER[..3], 0, TRANSPORT, false);
        check(TCP, 2, &TCP_HEADER, TRANSPORT, 0, true);
        check(TCP, 1, &TCP_HEADER, 0, TRANSPORT, true);
        check(UDP, 1, &TCP_HEADER, TRANSPORT, 0, true);
        check(47, 0, &[], 0, 0, false);
    }

    #[test]
    fn invalid_headers() {
        let whole = ipv4(UDP, 0, &[0; 8]);
        for (at, value) in [(0, 0x35), (0, 0x44)] {
            let mut packet = whole.clone();
            packet[at] = value;
            assert_eq!(read(IPV4, &packet), Err(Malformed));
        }
        (0..20).for_each(|len| assert_eq!(read(IPV4, &whole[..len]), Err(Malformed)));
        assert_eq!(read(IPV6, &whole), Err(Malformed));
        assert!(read(0x0806, &[]).is_ok(), "other frames have no header to check");
    }

    fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x6b, 0x80, 0, 0, 0, 0, next, 64];
        packet.extend([0x20; 16]);
        packet.extend([0x30; 16]);
        packet.extend(rest);
        packet
    }

    #[test]
    fn ipv6_extension_headers() {
        let options = |next: u8, count: usize| {
            let mut chain = Vec::new();
            (0..count)
                .for_each(|n| chain.extend([if n + 1 == count { next } else { 60 }, 0, 0, 0, 0, 0, 0, 0]));
            chain
        };
        let key = read(IPV6, &ipv6(TCP, &TCP_HEADER)).expect("a header");
        assert_eq!((key.half[TOS], key.half[PROTOCOL], key.half[L4_DST]), (0xb8, 6, 80));
        assert_eq!((key.half[SRC + 7], key.half[DST]), (0x2020, 0x3030));
        for count in 1..=8 {
            let chain = [options(TCP, count), TCP_HEADER.to_vec()].concat();
            let key = read(IPV6, &ipv6(60, &chain)).expect("a header");
            let known = count <= MAX_EXTENSIONS;
            assert_eq!(key.half[L4_DST] == 80, known, "{count} headers");
            assert_eq!(key.unknown == 0, known, "{count} headers");
        }
        let fragment = |offset: u16, next: u8| {
            let [a, b] = (offset << 3).to_be_bytes();
            [vec![next, 0, a, b, 0, 0, 0, 0], TCP_HEADER.to_vec()].concat()
        };
        let of = |offset, next| read(IPV6, &ipv6(44, &fragment(offset, next))).expect("a header");
        assert_eq!((of(0, TCP).half[L4_DST], of(0, TCP).absent), (80, 0));
        assert_eq!((of(5, TCP).half[PROTOCOL], of(5, TCP).absent), (6, TRANSPORT));
        assert_eq!(of(1, TCP).unknown, TRANSPORT);
        assert_eq!(of(5, 60).unknown, 1 << PROTOCOL);
        let cut = read(IPV6, &ipv6(60, &[6, 0, 0])).expect("a header");
        assert_eq!(cut.unknown, TRANSPORT | 1 << PROTOCOL);
    }
}
