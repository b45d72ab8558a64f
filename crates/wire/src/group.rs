//! The kind of a frame with a group's MAC address for multicast snooping: a message about memberships, a packet of a group that
//! is never pruned, or a packet of any other group.
//!
//! Read first: RFC 4541, 2.1 and 3. Snooping goes by the group's IP address, because 32 IPv4 groups share one MAC address
//! (RFC 1112, 6.4). Invariant: `bpf/stages/snoop.h` decides the same for every frame.

use crate::ip::{IPV4, IPV6};
use lanyard_types::{Family, MacAddr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The messages that snooping listens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// IGMP of any type.
    Igmp,
    /// MLD, or multicast router discovery over IPv6 (RFC 4286).
    Mld,
    /// A PIM hello, version 2 (RFC 7761, 4.9.2).
    PimHello,
}

/// An IP packet for a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// A message about memberships.
    Membership(Membership),
    /// A packet of a group whose packets go to every port: 224.0.0.0/24 (RFC 4541, 2.1.2), and IPv6 groups of interface or
    /// link scope, the solicited-node addresses among them.
    LinkLocal,
    /// A packet of any other group.
    Group {
        /// The group.
        group: IpAddr,
        /// The sender.
        source: IpAddr,
    },
}

const IGMP: u8 = 2;
const PIM: u8 = 103;
/// The first byte of a PIM hello: version 2 and type 0.
const PIM_HELLO: u8 = 0x20;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
/// MLD's query, report, done and version 2 report; multicast router advertisement and termination.
const MLD_TYPES: [u8; 6] = [130, 131, 132, 143, 151, 153];

/// True for groups whose frames always go to every port.
#[must_use]
pub fn is_always_flooded(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
        IpAddr::V6(group) => matches!(group.octets(), [0xff, flags, ..] if flags & 0x0f <= 2),
    }
}

impl Packet {
    /// Reads the beginning of a packet. `ethertype` is the EtherType in front of `packet`, and `dst` is the frame's
    /// destination. `None` if it is not an IP packet for a group, or if `dst` is not a MAC address of groups of its family.
    #[must_use]
    pub fn read(dst: MacAddr, ethertype: u16, packet: &[u8]) -> Option<Self> {
        match (ethertype, dst.0) {
            (IPV4, [0x01, 0x00, 0x5e, ..]) => Self::read_ipv4(packet),
            (IPV6, [0x33, 0x33, ..]) => Self::read_ipv6(packet),
            _ => None,
        }
    }
    /// The address family of an IP packet with this EtherType.
    #[must_use]
    pub const fn family(ethertype: u16) -> Family {
        if ethertype == IPV6 { Family::V6 } else { Family::V4 }
    }

    fn read_ipv4(packet: &[u8]) -> Option<Self> {
        let header: &[u8; 20] = packet.first_chunk()?;
        let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let group = address(16);
        if header[0] >> 4 != 4 || !group.is_multicast() {
            return None;
        }
        Some(match header[9] {
            IGMP => Self::Membership(Membership::Igmp),
            PIM if header[0] & 15 == 5 && packet.get(20) == Some(&PIM_HELLO) => {
                Self::Membership(Membership::PimHello)
            }
            _ => Self::of(group.into(), address(12).into()),
        })
    }

    fn read_ipv6(packet: &[u8]) -> Option<Self> {
        let header: &[u8; 40] = packet.first_chunk()?;
        let address = |at: usize| header[at..].first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes));
        let (source, group) = (address(8)?, address(24)?);
        if header[0] >> 4 != 6 || !group.is_multicast() {
            return None;
        }
        // MLD has a hop-by-hop header of eight bytes with the router alert (RFC 3810, 5).
        let mld =
            |rest: &[u8]| matches!(rest, [ICMPV6, 0, _, _, _, _, _, _, kind, ..] if MLD_TYPES.contains(kind));
        Some(match (header[6], &packet[40..]) {
            (HOP_BY_HOP, rest) if mld(rest) => Self::Membership(Membership::Mld),
            (PIM, [PIM_HELLO, ..]) => Self::Membership(Membership::PimHello),
            _ => Self::of(group.into(), source.into()),
        })
    }

    fn of(group: IpAddr, source: IpAddr) -> Self {
        if is_always_flooded(group) { Self::LinkLocal } else { Self::Group { group, source } }
    }
}

#[cfg(test)]
mod tests {
    use super::{Membership, Packet};
    use crate::ip::{IPV4, IPV6};
    use lanyard_types::MacAddr;
    use std::net::IpAddr;

    const MAC_4: MacAddr = MacAddr([1, 0, 0x5e, 1, 2, 3]);
    const MAC_6: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);

    fn ipv4(protocol: u8, group: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 1, protocol, 0, 0, 10, 0, 0, 1];
        packet.extend(group);
        packet.extend(payload);
        packet
    }

    fn ipv6(next: u8, group: &str, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 1];
        for address in ["fe80::1", group] {
            let IpAddr::V6(address) = address.parse().expect("an address") else { continue };
            packet.extend(address.octets());
        }
        packet.extend(payload);
        packet
    }

    #[track_caller]
    fn check(dst: MacAddr, ethertype: u16, packet: &[u8], expected: Option<Packet>) {
        assert_eq!(Packet::read(dst, ethertype, packet), expected, "{packet:02x?}");
        // Whatever is cut off, nothing panics, and a message without its type is no message.
        for len in 0..packet.len() {
            let read = Packet::read(dst, ethertype, &packet[..len]);
            assert!(read.is_none() || len >= 20, "{len}: {read:?}");
        }
    }

    fn group(group: &str, source: &str) -> Option<Packet> {
        let address = |text: &str| text.parse().expect("an address");
        Some(Packet::Group { group: address(group), source: address(source) })
    }

    #[test]
    fn ipv4_packets() {
        let said = |membership| Some(Packet::Membership(membership));
        check(MAC_4, IPV4, &ipv4(17, [239, 1, 2, 3], &[]), group("239.1.2.3", "10.0.0.1"));
        check(MAC_4, IPV4, &ipv4(17, [224, 0, 0, 251], &[]), Some(Packet::LinkLocal));
        check(MAC_4, IPV4, &ipv4(17, [224, 0, 1, 1], &[]), group("224.0.1.1", "10.0.0.1"));
        check(MAC_4, IPV4, &ipv4(2, [224, 0, 0, 22], &[0x22]), said(Membership::Igmp));
        check(MAC_4, IPV4, &ipv4(2, [239, 1, 2, 3], &[0x16]), said(Membership::Igmp));
        check(MAC_4, IPV4, &ipv4(103, [224, 0, 0, 13], &[0x20]), said(Membership::PimHello));
        check(MAC_4, IPV4, &ipv4(103, [224, 0, 0, 13], &[0x23]), Some(Packet::LinkLocal));
        check(MAC_4, IPV4, &ipv4(17, [10, 0, 0, 2], &[]), None);
        check(MAC_6, IPV4, &ipv4(17, [239, 1, 2, 3], &[]), None);
        check(MAC_4, IPV6, &ipv4(17, [239, 1, 2, 3], &[]), None);
    }

    #[test]
    fn ipv6_packets() {
        let said = |membership| Some(Packet::Membership(membership));
        let alert = |kind: u8| [58, 0, 5, 2, 0, 0, 1, 0, kind];
        check(MAC_6, IPV6, &ipv6(17, "ff05::5", &[]), group("ff05::5", "fe80::1"));
        check(MAC_6, IPV6, &ipv6(58, "ff02::1:ff00:1", &[135]), Some(Packet::LinkLocal));
        check(MAC_6, IPV6, &ipv6(17, "ff31::5", &[]), Some(Packet::LinkLocal));
        check(MAC_6, IPV6, &ipv6(0, "ff02::16", &alert(143)), said(Membership::Mld));
        check(MAC_6, IPV6, &ipv6(0, "ff0e::5", &alert(131)), said(Membership::Mld));
        check(MAC_6, IPV6, &ipv6(0, "ff02::16", &alert(135)), Some(Packet::LinkLocal));
        check(MAC_6, IPV6, &ipv6(103, "ff02::d", &[0x20]), said(Membership::PimHello));
        check(MAC_6, IPV6, &ipv6(17, "2001:db8::1", &[]), None);
    }
}
