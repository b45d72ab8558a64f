//! The log's description of a frame that a plane has dropped: [`describe`].

use crate::packet::Packet;
use lanyard_types::MacAddr;
use lanyard_wire::Frame;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A frame that first-hop security has dropped, as far as it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// An ARP packet.
    Arp {
        /// True for a reply, false for a request.
        reply: bool,
        /// The sender's MAC address.
        sender: MacAddr,
        /// The IPv4 address that the sender claims.
        address: Ipv4Addr,
        /// The target's MAC address.
        target: MacAddr,
        /// The target's IPv4 address.
        target_address: Ipv4Addr,
    },
    /// A message of a DHCP server.
    DhcpServer {
        /// Its kind, such as `DHCPOFFER`.
        kind: &'static str,
        /// The frame's source.
        src: MacAddr,
    },
    /// An IPv4 packet whose source has no binding.
    Ipv4 {
        /// The packet's source.
        address: Ipv4Addr,
        /// The frame's source.
        src: MacAddr,
    },
    /// An IPv6 packet.
    Ipv6 {
        /// The packet's source.
        address: Ipv6Addr,
        /// The frame's source.
        src: MacAddr,
        /// Why it was dropped.
        kind: Denied6,
    },
    /// Any other frame.
    Other {
        /// The frame's source.
        src: MacAddr,
    },
}

/// An IPv6 packet that first-hop security has dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied6 {
    /// A router advertisement or a redirect.
    Router,
    /// A message of a DHCPv6 server.
    DhcpServer,
    /// A packet that may hide a message of neighbour discovery: a fragment, one with extension headers, or one that is cut off.
    Hidden,
    /// Any other packet: its source has no binding.
    Source,
}

impl Denied {
    /// A number for each kind of frame, as a key for limits.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Arp { .. } => 0,
            Self::DhcpServer { .. } => 1,
            Self::Ipv4 { .. } => 2,
            Self::Ipv6 { kind, .. } => 4 + *kind as u8,
            Self::Other { .. } => 3,
        }
    }
}

/// The IOS name of a DHCP message type (RFC 2132, 9.6).
pub(crate) const fn kind(message_type: Option<u8>) -> &'static str {
    match message_type {
        Some(1) => "DHCPDISCOVER",
        Some(2) => "DHCPOFFER",
        Some(3) => "DHCPREQUEST",
        Some(4) => "DHCPDECLINE",
        Some(5) => "DHCPACK",
        Some(6) => "DHCPNAK",
        Some(7) => "DHCPRELEASE",
        Some(8) => "DHCPINFORM",
        Some(10) => "DHCPLEASEQUERY",
        Some(_) => "DHCPUNKNOWN",
        None => "BOOTP",
    }
}

/// Reads a dropped frame without a tag; `None` when it is shorter than an Ethernet header.
#[must_use]
pub fn describe(frame: &[u8]) -> Option<Denied> {
    let view = Frame::new(frame).ok()?;
    let (src, packet) = (view.src(), view.payload());
    let other = Denied::Other { src };
    Some(match view.ethertype() {
        0x0806 => arp(packet).unwrap_or(other),
        0x0800 => match Packet::read(frame) {
            Some(packet) => Denied::DhcpServer { kind: kind(packet.message.message_type()), src },
            None => packet.first_chunk::<20>().map_or(other, |ip| Denied::Ipv4 {
                address: Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]),
                src,
            }),
        },
        0x86dd => packet.first_chunk::<40>().map_or(other, |ip| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&ip[8..24]);
            Denied::Ipv6 { address: octets.into(), src, kind: kind6(ip, &packet[40..]) }
        }),
        _ => other,
    })
}

/// The kind of an IPv6 packet; `rest` are the bytes behind its header.
fn kind6(ip: &[u8; 40], mut rest: &[u8]) -> Denied6 {
    let mut next = ip[6];
    for _ in 0..=6 {
        let length = match (next, rest) {
            (44, [_, _, high, low, ..]) if u16::from_be_bytes([*high, *low]) < 8 => 8,
            (0 | 43 | 60 | 135 | 139 | 140, [_, units, ..]) => (usize::from(*units) + 1) * 8,
            (51, [_, units, ..]) => (usize::from(*units) + 2) * 4,
            (58, [134 | 137, ..]) => return Denied6::Router,
            (17, [_, _, 2, 34, ..]) => return Denied6::DhcpServer,
            (58, [133 | 135 | 136, ..] | []) | (44, _) => break,
            _ => return Denied6::Source,
        };
        next = rest[0];
        rest = rest.get(length..).unwrap_or_default();
    }
    // Hosts accept neighbour discovery with hop limit 255 only (RFC 4861, 7.1). Any other packet is judged by its source.
    if ip[7] == 255 { Denied6::Hidden } else { Denied6::Source }
}

fn arp(packet: &[u8]) -> Option<Denied> {
    let arp: &[u8; 28] = packet.first_chunk()?;
    let mac = |at: usize| MacAddr([arp[at], arp[at + 1], arp[at + 2], arp[at + 3], arp[at + 4], arp[at + 5]]);
    let address = |at: usize| Ipv4Addr::new(arp[at], arp[at + 1], arp[at + 2], arp[at + 3]);
    Some(Denied::Arp {
        reply: arp[7] == 2,
        sender: mac(8),
        address: address(14),
        target: mac(18),
        target_address: address(24),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_wire::Builder;

    #[test]
    fn frames_are_described() {
        let src = MacAddr([2, 0, 0, 0, 0, 6]);
        let say = |ethertype: u16, packet: &[u8]| {
            let builder = Builder::new(MacAddr::BROADCAST, src).ethertype(ethertype).payload(packet);
            describe(&builder.build_unpadded())
        };
        let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 9, 10, 0, 0, 1];
        packet.extend([2, 0, 0, 0, 0, 5, 10, 0, 0, 2]);
        let want = Denied::Arp {
            reply: true,
            sender: MacAddr([2, 0, 0, 0, 0, 9]),
            address: [10, 0, 0, 1].into(),
            target: MacAddr([2, 0, 0, 0, 0, 5]),
            target_address: [10, 0, 0, 2].into(),
        };
        assert_eq!(say(0x0806, &packet), Some(want));
        assert_eq!(say(0x0806, &packet[..27]), Some(Denied::Other { src }));
        let mut ip = vec![0; 20];
        ip[12..16].copy_from_slice(&[192, 0, 2, 1]);
        assert_eq!(say(0x0800, &ip), Some(Denied::Ipv4 { address: [192, 0, 2, 1].into(), src }));
        assert_eq!(say(0x0800, &ip[..19]), Some(Denied::Other { src }));
        assert_eq!(say(0x86dd, &[0; 39]), Some(Denied::Other { src }));
        assert_eq!(describe(&[0; 13]), None);
    }

    #[test]
    fn ipv6_packets_are_described() {
        let src = MacAddr([2, 0, 0, 0, 0, 6]);
        let say = |next: u8, hop_limit: u8, rest: &[u8]| {
            let mut ip = vec![0; 40];
            (ip[6], ip[7], ip[8], ip[9], ip[23]) = (next, hop_limit, 0xfe, 0x80, 1);
            ip.extend(rest);
            let frame = Builder::new(MacAddr::BROADCAST, src).ethertype(0x86dd).payload(&ip).build_unpadded();
            match describe(&frame) {
                Some(Denied::Ipv6 { address, src: from, kind }) => {
                    assert_eq!((address, from), ("fe80::1".parse().expect("an address"), src));
                    kind
                }
                other => unreachable!("{other:?}"),
            }
        };
        let options = |next: u8, rest: &[u8]| [&[next, 0, 0, 0, 0, 0, 0, 0][..], rest].concat();
        assert_eq!(say(58, 255, &[134, 0]), Denied6::Router);
        assert_eq!(say(60, 255, &options(58, &[137, 0])), Denied6::Router);
        assert_eq!(say(17, 64, &[2, 35, 2, 34]), Denied6::DhcpServer);
        assert_eq!(say(17, 64, &[2, 34, 2, 35]), Denied6::Source);
        assert_eq!(say(44, 255, &options(58, &[135, 0])), Denied6::Hidden);
        assert_eq!(say(44, 255, &[58, 0, 0, 9, 0, 0, 0, 0]), Denied6::Hidden);
        assert_eq!(say(44, 64, &[58, 0, 0, 9, 0, 0, 0, 0]), Denied6::Source);
        assert_eq!(say(58, 255, &[]), Denied6::Hidden);
        assert_eq!(say(60, 255, &(0..7).fold(vec![], |rest, _| options(60, &rest))), Denied6::Hidden);
        // A report of MLD.
        assert_eq!(say(0, 1, &options(58, &[143, 0])), Denied6::Source);
        assert_eq!(say(6, 255, &[0; 20]), Denied6::Source);
    }
}
