//! What the log says about a frame that a plane has dropped: [`describe`].

use crate::packet::Packet;
use lanyard_types::MacAddr;
use lanyard_wire::Frame;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A frame that first-hop security has dropped, as far as it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// An ARP packet.
    Arp {
        /// It is a reply.
        reply: bool,
        /// The sender's MAC address.
        sender: MacAddr,
        /// The address that it claims.
        address: Ipv4Addr,
        /// The target's MAC address.
        target: MacAddr,
        /// The target's address.
        target_address: Ipv4Addr,
    },
    /// A message of a DHCP server.
    DhcpServer {
        /// Its kind, such as `DHCPOFFER`.
        kind: &'static str,
        /// The frame's source.
        src: MacAddr,
    },
    /// An IPv4 packet without a binding.
    Ipv4 {
        /// Its source.
        address: Ipv4Addr,
        /// The frame's source.
        src: MacAddr,
    },
    /// An IPv6 packet that only a router or a DHCPv6 server sends.
    Ipv6 {
        /// Its source.
        address: Ipv6Addr,
        /// It is a message of a DHCPv6 server.
        dhcp: bool,
    },
    /// Another one.
    Other {
        /// The frame's source.
        src: MacAddr,
    },
}

impl Denied {
    /// A number for each kind of frame, as a key for limits.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Arp { .. } => 0,
            Self::DhcpServer { .. } => 1,
            Self::Ipv4 { .. } => 2,
            Self::Ipv6 { .. } => 3,
            Self::Other { .. } => 4,
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
            Denied::Ipv6 { address: octets.into(), dhcp: ip[6] == 17 }
        }),
        _ => other,
    })
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
        let mut ip = vec![0; 40];
        (ip[6], ip[8], ip[9], ip[23]) = (17, 0xfe, 0x80, 1);
        let address = "fe80::1".parse().expect("an address");
        assert_eq!(say(0x86dd, &ip), Some(Denied::Ipv6 { address, dhcp: true }));
        assert_eq!(describe(&[0; 13]), None);
    }
}
