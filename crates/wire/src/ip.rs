//! [`IpHeader`]: the fields of an IPv4 or IPv6 header that a router reads, checked; and the decrement of the TTL.
//!
//! Read first: RFC 1812, 5.2.2 (what makes an IPv4 header valid), RFC 8200, section 3, and RFC 1624 on updating a
//! checksum. Invariant: when `read` returns a header, the bytes contain the whole header and the whole packet that it
//! describes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;

/// The error for a header with a wrong version, length or checksum; no router forwards the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidHeader;

/// The fields that a router reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpHeader {
    /// The source address, of the same family as `dst`.
    pub src: IpAddr,
    /// The destination address.
    pub dst: IpAddr,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Protocol, or next header.
    pub protocol: u8,
    /// True when there are IPv4 options or an IPv6 hop-by-hop header, which every router on the path has to
    /// examine.
    pub options: bool,
    /// Length of the packet in bytes, header included.
    pub len: usize,
    /// Source and destination port as they stand on the wire, the source in the upper half; 0 for a protocol without ports,
    /// for fragments (the later ones have none), and behind IPv6 extension headers.
    pub ports: u32,
}

const MIN_IPV4: usize = 20;
const LEN_IPV6: usize = 40;
const HOP_BY_HOP: u8 = 0;

impl IpHeader {
    /// Reads the packet of this EtherType at the beginning of `bytes`; the bytes after the packet are padding.
    /// `segmented`: the packet is still to be divided into segments (GSO), and its length field is 0 if it is longer
    /// than 65,535 bytes.
    ///
    /// # Errors
    /// [`InvalidHeader`] also for an EtherType that is neither IPv4 nor IPv6.
    pub fn read(ethertype: u16, bytes: &[u8], segmented: bool) -> Result<Self, InvalidHeader> {
        match ethertype {
            IPV4 => Self::read_ipv4(bytes, segmented),
            IPV6 => Self::read_ipv6(bytes, segmented),
            _ => Err(InvalidHeader),
        }
    }

    fn read_ipv4(bytes: &[u8], segmented: bool) -> Result<Self, InvalidHeader> {
        let fixed: &[u8; MIN_IPV4] = bytes.first_chunk().ok_or(InvalidHeader)?;
        let header_len = usize::from(fixed[0] & 15) * 4;
        let printed = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let len = if printed == 0 && segmented { bytes.len() } else { printed };
        if fixed[0] >> 4 != 4 || header_len < MIN_IPV4 || len < header_len || len > bytes.len() {
            return Err(InvalidHeader);
        }
        if ones_complement_sum(&bytes[..header_len]) != 0xffff {
            return Err(InvalidHeader);
        }
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0;
        let [.., s1, s2, s3, s4, d1, d2, d3, d4] = *fixed;
        Ok(Self {
            src: Ipv4Addr::new(s1, s2, s3, s4).into(),
            dst: Ipv4Addr::new(d1, d2, d3, d4).into(),
            ttl: fixed[8],
            protocol: fixed[9],
            options: header_len > MIN_IPV4,
            len,
            ports: if fragment { 0 } else { ports(fixed[9], &bytes[header_len..len]) },
        })
    }

    fn read_ipv6(bytes: &[u8], segmented: bool) -> Result<Self, InvalidHeader> {
        let fixed: &[u8; LEN_IPV6] = bytes.first_chunk().ok_or(InvalidHeader)?;
        let printed = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        let len = if printed == 0 && segmented { bytes.len() } else { LEN_IPV6 + printed };
        if fixed[0] >> 4 != 6 || len > bytes.len() {
            return Err(InvalidHeader);
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&fixed[at..at + 16]);
            Ipv6Addr::from(octets).into()
        };
        Ok(Self {
            src: address(8),
            dst: address(24),
            ttl: fixed[7],
            protocol: fixed[6],
            options: fixed[6] == HOP_BY_HOP,
            len,
            ports: ports(fixed[6], &bytes[LEN_IPV6..len]),
        })
    }
}

/// The two port fields, the source in the upper half; the headers of TCP, UDP, DCCP, SCTP and UDP-Lite begin with them.
/// 0 for other protocols and for a payload that is too short.
#[must_use]
pub fn ports(protocol: u8, payload: &[u8]) -> u32 {
    match (protocol, payload.first_chunk()) {
        (6 | 17 | 33 | 132 | 136, Some(ports)) => u32::from_be_bytes(*ports),
        _ => 0,
    }
}

/// The ones' complement sum of RFC 1071 over an even number of bytes; 0xffff over a header whose checksum is
/// right.
#[must_use]
pub fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |b| u32::from(*b)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Decrements the TTL or hop limit of the packet at offset `at` and, for IPv4, updates the checksum (RFC 1624,
/// equation 3). A packet that is cut off, or whose TTL is 0, is not changed.
pub fn decrement_ttl(frame: &mut [u8], at: usize) {
    let Some(packet) = frame.get_mut(at..) else { return };
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= MIN_IPV4 && packet[8] > 0 => {
            let old = u16::from_be_bytes([packet[8], packet[9]]);
            packet[8] -= 1;
            let new = u16::from_be_bytes([packet[8], packet[9]]);
            let check = u16::from_be_bytes([packet[10], packet[11]]);
            let sum = u32::from(!check) + u32::from(!old) + u32::from(new);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        Some(6) if packet.len() >= LEN_IPV6 && packet[7] > 0 => packet[7] -= 1,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header of 20 bytes with a correct checksum, then `payload` bytes.
    fn ipv4(ttl: u8, payload: usize) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 0, 0x12, 0x34, 0, 0, ttl, 17, 0, 0, 10, 0, 0, 1, 192, 0, 2, 9];
        bytes.extend((0..payload).map(|n| n as u8));
        let len = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        seal(&mut bytes);
        bytes
    }

    fn seal(bytes: &mut [u8]) {
        bytes[10..12].fill(0);
        let header = usize::from(bytes[0] & 15) * 4;
        let sum = !ones_complement_sum(&bytes[..header.min(bytes.len())]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    #[test]
    fn every_wrong_header_is_refused() {
        let whole = ipv4(64, 12);
        let header = IpHeader::read(IPV4, &whole, false).expect("a good one");
        assert_eq!((header.ttl, header.protocol, header.len, header.ports), (64, 17, 32, 0x0001_0203));
        assert!(!header.options);
        let check = |why: &str, change: &dyn Fn(&mut Vec<u8>), sealed: bool| {
            let mut bytes = whole.clone();
            change(&mut bytes);
            if sealed {
                seal(&mut bytes);
            }
            assert_eq!(IpHeader::read(IPV4, &bytes, false), Err(InvalidHeader), "{why}");
        };
        check("version", &|b| b[0] = 0x65, true);
        check("header length 16", &|b| b[0] = 0x44, true);
        check("header longer than the packet", &|b| b[0] = 0x4f, true);
        check("total length below the header's", &|b| b[3] = 19, true);
        check("total length past the frame", &|b| b[3] = 33, true);
        check("total length 0", &|b| b[3] = 0, true);
        check("checksum", &|b| b[11] ^= 1, false);
        for len in 0..20 {
            check("short", &|b| b.truncate(len), false);
        }
        let mut padded = whole.clone();
        padded.resize(46, 0xee);
        assert_eq!(IpHeader::read(IPV4, &padded, false), Ok(header));
        let mut big = whole.clone();
        big[3] = 0;
        seal(&mut big);
        assert_eq!(IpHeader::read(IPV4, &big, true).map(|header| header.len), Ok(32));
    }

    #[test]
    fn fragments_and_options() {
        for (flags, ports) in [(0x2000_u16, 0), (1, 0), (0x4000, 0x0001_0203)] {
            let mut bytes = ipv4(64, 12);
            bytes[6..8].copy_from_slice(&flags.to_be_bytes());
            seal(&mut bytes);
            assert_eq!(IpHeader::read(IPV4, &bytes, false).map(|h| h.ports), Ok(ports), "{flags:#x}");
        }
        let mut bytes = ipv4(64, 12);
        bytes[0] = 0x46;
        seal(&mut bytes);
        assert_eq!(
            IpHeader::read(IPV4, &bytes, false).map(|h| (h.options, h.ports)),
            Ok((true, 0x0405_0607))
        );
    }

    #[test]
    fn ipv6() {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 8, 6, 3];
        bytes.extend([0x20; 16]);
        bytes.extend([0x30; 16]);
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8, 0xee]);
        let header = IpHeader::read(IPV6, &bytes, false).expect("a good one");
        assert_eq!((header.ttl, header.len, header.ports, header.options), (3, 48, 0x0102_0304, false));
        bytes[6] = 0;
        assert!(IpHeader::read(IPV6, &bytes, false).expect("a good one").options);
        for len in 0..48 {
            assert_eq!(IpHeader::read(IPV6, &bytes[..len], false), Err(InvalidHeader), "{len}");
        }
        decrement_ttl(&mut bytes, 0);
        assert_eq!(bytes[7], 2);
    }

    #[test]
    fn a_hop_leaves_the_checksum_right() {
        for ttl in 1..=255 {
            for id in (0..=u16::MAX).step_by(251) {
                let mut bytes = ipv4(ttl, 0);
                bytes[4..6].copy_from_slice(&id.to_be_bytes());
                seal(&mut bytes);
                decrement_ttl(&mut bytes, 0);
                assert_eq!(bytes[8], ttl - 1);
                assert_eq!(ones_complement_sum(&bytes), 0xffff, "TTL {ttl}, identification {id}");
            }
        }
    }
}
