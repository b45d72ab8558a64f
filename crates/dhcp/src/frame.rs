//! Builds the Ethernet frame of a reply to a client that does not answer ARP yet.
//!
//! Read RFC 2131, section 4.1. Invariant: lengths and checksums are correct (RFC 791, RFC 768), or no frame is built.

use lanyard_types::MacAddr;
use std::net::Ipv4Addr;

const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

/// The frame that carries `message` from this relay to the client at `to`. `None` when the IPv4 packet would be longer
/// than 65,535 bytes.
#[must_use]
pub fn reply_frame(from: (MacAddr, Ipv4Addr), to: (MacAddr, Ipv4Addr), message: &[u8]) -> Option<Vec<u8>> {
    let udp_len = u16::try_from(UDP_HEADER + message.len()).ok()?;
    let total = udp_len.checked_add(IP_HEADER as u16)?;
    let mut ip = [0u8; IP_HEADER];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    // Don't fragment; TTL 64; UDP.
    (ip[6], ip[8], ip[9]) = (0x40, 64, 17);
    ip[12..16].copy_from_slice(&from.1.octets());
    ip[16..20].copy_from_slice(&to.1.octets());
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut udp = [0u8; UDP_HEADER];
    udp[0..2].copy_from_slice(&SERVER_PORT.to_be_bytes());
    udp[2..4].copy_from_slice(&CLIENT_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    let pseudo = [&[0, 17][..], &udp_len.to_be_bytes()].concat();
    let sum = checksum(&[&ip[12..20], &pseudo, &udp, message]);
    udp[6..8].copy_from_slice(&if sum == 0 { u16::MAX } else { sum }.to_be_bytes());
    let ethernet = [&to.0.0[..], &from.0.0, &[0x08, 0x00]].concat();
    Some([&ethernet[..], &ip, &udp, message].concat())
}

/// The Internet checksum (RFC 1071) of several parts. All but the last must have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum: u32 = parts.iter().flat_map(|part| part.chunks(2)).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_right() {
        let from = (MacAddr([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(10, 0, 10, 254));
        let to = (MacAddr([2, 0, 0, 0, 0, 9]), Ipv4Addr::new(10, 0, 10, 5));
        for message in [&[1u8, 2, 3][..], &[0; 300], &[0xff; 1471]] {
            let frame = reply_frame(from, to, message).expect("short enough");
            assert_eq!(frame.len(), 14 + 28 + message.len());
            let (ip, udp) = (&frame[14..34], &frame[34..]);
            assert_eq!(checksum(&[ip]), 0);
            let pseudo = [&[0, 17][..], &udp[4..6]].concat();
            assert_eq!(checksum(&[&ip[12..20], &pseudo, udp]), 0);
        }
        assert_eq!(reply_frame(from, to, &[0; 65_528]), None);
    }
}
