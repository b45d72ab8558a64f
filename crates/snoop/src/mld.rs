//! The format of MLD (versions 1 and 2), of PIM hellos, and of multicast router discovery over IPv6.

use crate::igmp::holdtime;
use crate::message::{MAX_SOURCES, Message, MessageError, Query, Received, Record, RecordKind, encode_time};
use lanyard_types::MacAddr;
use lanyard_wire::ip::{IPV6, IpHeader, ones_complement_sum};
use std::net::{IpAddr, Ipv6Addr};

const HOP_BY_HOP: u8 = 0;
const ICMPV6: u8 = 58;
const PIM: u8 = 103;
const HEADER: usize = 40;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ALL_MLD_2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

mod types {
    pub(super) const QUERY: u8 = 130;
    pub(super) const REPORT_1: u8 = 131;
    pub(super) const DONE: u8 = 132;
    pub(super) const REPORT_2: u8 = 143;
    pub(super) const ROUTER_ADVERTISEMENT: u8 = 151;
    pub(super) const ROUTER_TERMINATION: u8 = 153;
}

/// True if the checksum over the pseudo header and the payload is right (RFC 8200, 8.1).
fn checksum_is_right(source: Ipv6Addr, to: Ipv6Addr, protocol: u8, payload: &[u8]) -> bool {
    ones_complement_sum(&pseudo(source, to, protocol, payload)) == 0xffff
}

fn pseudo(source: Ipv6Addr, to: Ipv6Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [source.octets(), to.octets()].concat();
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes.extend(payload);
    bytes
}

/// Decodes the IPv6 packet of a frame, without its Ethernet header.
pub(crate) fn decode(mac: MacAddr, packet: &[u8]) -> Result<Received, MessageError> {
    let header = IpHeader::read(IPV6, packet, false).map_err(|_| MessageError::IpHeader)?;
    let (IpAddr::V6(source), IpAddr::V6(to)) = (header.src, header.dst) else {
        return Err(MessageError::IpHeader);
    };
    let payload = &packet[HEADER..header.len];
    let received = |message| Ok(Received { mac, source: header.src, message });
    match header.protocol {
        PIM if !source.is_unicast_link_local() => Err(MessageError::Source),
        PIM if !checksum_is_right(source, to, PIM, payload) => Err(MessageError::Checksum),
        PIM => match payload {
            [0x20, _, _, _, options @ ..] => received(Message::PimHello(holdtime(options)?)),
            _ => Err(MessageError::Type),
        },
        HOP_BY_HOP => {
            let icmp = behind_router_alert(payload)?;
            if header.ttl != 1 {
                return Err(MessageError::HopLimit);
            }
            let is_report = matches!(icmp.first(), Some(&(types::REPORT_1 | types::REPORT_2 | types::DONE)));
            // Reports may come from the unspecified address while a host has none yet (RFC 3590).
            let on_link = source.is_unicast_link_local() || is_report && source.is_unspecified();
            if !on_link {
                return Err(MessageError::Source);
            }
            if !checksum_is_right(source, to, ICMPV6, icmp) {
                return Err(MessageError::Checksum);
            }
            received(read(icmp, to)?)
        }
        _ => Err(MessageError::Protocol),
    }
}

/// The ICMPv6 message behind a hop-by-hop header with the router alert option for MLD (RFC 2711).
fn behind_router_alert(payload: &[u8]) -> Result<&[u8], MessageError> {
    let [next, units, ..] = payload else { return Err(MessageError::Length) };
    let length = (usize::from(*units) + 1) * 8;
    let (header, rest) = payload.split_at_checked(length).ok_or(MessageError::Length)?;
    if *next != ICMPV6 {
        return Err(MessageError::Protocol);
    }
    let mut options = &header[2..];
    while let [kind, tail @ ..] = options {
        if *kind == 0 {
            options = tail;
            continue;
        }
        let [length, tail @ ..] = tail else { return Err(MessageError::Length) };
        let (value, tail) = tail.split_at_checked(usize::from(*length)).ok_or(MessageError::Length)?;
        if (*kind, value) == (5, &[0, 0]) {
            return Ok(rest);
        }
        options = tail;
    }
    Err(MessageError::RouterAlert)
}

fn address(bytes: &[u8]) -> Result<Ipv6Addr, MessageError> {
    <[u8; 16]>::try_from(bytes).map(Ipv6Addr::from).map_err(|_| MessageError::Length)
}

fn group(bytes: &[u8]) -> Result<Ipv6Addr, MessageError> {
    address(bytes).and_then(|group| if group.is_multicast() { Ok(group) } else { Err(MessageError::Group) })
}

fn sources(bytes: &[u8]) -> Result<Vec<IpAddr>, MessageError> {
    let read = |chunk: &[u8]| {
        let source = address(chunk)?;
        if source.is_multicast() { Err(MessageError::Group) } else { Ok(source.into()) }
    };
    bytes.chunks_exact(16).map(read).collect()
}

fn read(icmp: &[u8], to: Ipv6Addr) -> Result<Message, MessageError> {
    let [kind, code, _, _, rest @ ..] = icmp else { return Err(MessageError::Length) };
    let about = || group(rest.get(4..20).ok_or(MessageError::Length)?);
    match *kind {
        types::QUERY => query(rest, to),
        types::REPORT_1 => {
            let group = about()?;
            if to != group {
                return Err(MessageError::Destination);
            }
            let record = Record { kind: RecordKind::IsExclude, group: group.into(), sources: Vec::new() };
            Ok(Message::Report { version: 1, records: vec![record] })
        }
        types::DONE => Ok(Message::Leave(about()?.into())),
        types::REPORT_2 => report(rest),
        types::ROUTER_ADVERTISEMENT => Ok(Message::RouterAdvertisement(*code)),
        types::ROUTER_TERMINATION => Ok(Message::RouterTermination),
        _ => Err(MessageError::Type),
    }
}

/// The time of a Maximum Response Code in milliseconds (RFC 3810, 5.1.3).
fn decode_response(code: u16) -> u32 {
    if code < 0x8000 {
        u32::from(code)
    } else {
        (u32::from(code & 0x0fff) | 0x1000) << ((code >> 12 & 7) + 3)
    }
}

/// RFC 3810, 8.1: a query of 24 bytes is that of version 1, a longer one is that of version 2.
fn query(rest: &[u8], to: Ipv6Addr) -> Result<Message, MessageError> {
    let [high, low, _, _, rest @ ..] = rest else { return Err(MessageError::Length) };
    let code = u16::from_be_bytes([*high, *low]);
    let queried = address(rest.get(..16).ok_or(MessageError::Length)?)?;
    let about = match queried {
        Ipv6Addr::UNSPECIFIED => None,
        group if group.is_multicast() => Some(IpAddr::V6(group)),
        _ => return Err(MessageError::Group),
    };
    if to != ALL_NODES && about != Some(to.into()) {
        return Err(MessageError::Destination);
    }
    let (version, suppress, list) = match &rest[16..] {
        [] => (1, false, Vec::new()),
        [flags, _, high, low, list @ ..] => {
            let count = usize::from(u16::from_be_bytes([*high, *low]));
            if count > MAX_SOURCES {
                return Err(MessageError::Length);
            }
            (2, flags & 8 != 0, sources(list.get(..16 * count).ok_or(MessageError::Length)?)?)
        }
        _ => return Err(MessageError::Length),
    };
    let max_response_ms = if version == 1 { code.into() } else { decode_response(code) };
    Ok(Message::Query(Query { version, group: about, sources: list, max_response_ms, suppress }))
}

fn report(rest: &[u8]) -> Result<Message, MessageError> {
    let [_, _, high, low, rest @ ..] = rest else { return Err(MessageError::Length) };
    let mut rest = rest;
    let mut records = Vec::new();
    for _ in 0..u16::from_be_bytes([*high, *low]) {
        let (fixed, tail) = rest.split_first_chunk::<20>().ok_or(MessageError::Length)?;
        let [kind, auxiliary, high, low, address @ ..] = fixed;
        let count = usize::from(u16::from_be_bytes([*high, *low]));
        if count > MAX_SOURCES {
            return Err(MessageError::Length);
        }
        let (list, tail) = tail.split_at_checked(16 * count).ok_or(MessageError::Length)?;
        rest = tail.get(4 * usize::from(*auxiliary)..).ok_or(MessageError::Length)?;
        let (group, sources) = (group(address)?.into(), sources(list)?);
        records.extend(RecordKind::of(*kind).map(|kind| Record { kind, group, sources }));
    }
    Ok(Message::Report { version: 2, records })
}

/// The MAC address of a group (RFC 2464, 7).
fn group_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// A query as a frame.
pub(crate) fn encode_query(
    mac: MacAddr,
    source: Ipv6Addr,
    query: &Query,
    robustness: u8,
    interval_s: u32,
) -> Vec<u8> {
    let group = match query.group {
        Some(IpAddr::V6(group)) => group,
        _ => Ipv6Addr::UNSPECIFIED,
    };
    let to = if group.is_unspecified() { ALL_NODES } else { group };
    // Below 32,768 ms the code is the time.
    let code = query.max_response_ms.min(0x7fff) as u16;
    let mut icmp = vec![types::QUERY, 0, 0, 0];
    icmp.extend(code.to_be_bytes());
    icmp.extend([0, 0]);
    icmp.extend(group.octets());
    if query.version == 2 {
        icmp.extend([u8::from(query.suppress) << 3 | robustness & 7, encode_time(interval_s)]);
        let list: Vec<[u8; 16]> = query
            .sources
            .iter()
            .filter_map(|source| if let IpAddr::V6(source) = source { Some(source.octets()) } else { None })
            .take(MAX_V6_SOURCES)
            .collect();
        icmp.extend((list.len() as u16).to_be_bytes());
        list.iter().for_each(|source| icmp.extend(source));
    }
    frame(mac, source, to, icmp)
}

/// A report of the switch (RFC 4541, 2.1.1, 1).
pub(crate) fn encode_report(
    mac: MacAddr,
    source: Ipv6Addr,
    version: u8,
    records: &[Record],
) -> Option<Vec<u8>> {
    let of = |address: IpAddr| if let IpAddr::V6(address) = address { Some(address) } else { None };
    if version < 2 {
        let record = records.first()?;
        let group = of(record.group)?;
        let (kind, to) = if record.leaves() { (types::DONE, ALL_ROUTERS) } else { (types::REPORT_1, group) };
        return Some(frame(mac, source, to, [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &group.octets()].concat()));
    }
    let mut icmp = vec![types::REPORT_2, 0, 0, 0, 0, 0];
    icmp.extend((records.len() as u16).to_be_bytes());
    for record in records {
        icmp.extend([record.kind.number(), 0]);
        icmp.extend((record.sources.len() as u16).to_be_bytes());
        icmp.extend(of(record.group)?.octets());
        for source in &record.sources {
            icmp.extend(of(*source)?.octets());
        }
    }
    Some(frame(mac, source, ALL_MLD_2_ROUTERS, icmp))
}

/// A frame with an MLD message from `source` to `to`, behind the router alert option.
fn frame(mac: MacAddr, source: Ipv6Addr, to: Ipv6Addr, mut icmp: Vec<u8>) -> Vec<u8> {
    let sum = !ones_complement_sum(&pseudo(source, to, ICMPV6, &icmp));
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let len = (8 + icmp.len()) as u16;
    let mut packet = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, HOP_BY_HOP, 1];
    packet.extend(source.octets());
    packet.extend(to.octets());
    // Router alert for MLD, padded with PadN.
    packet.extend([ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
    packet.extend(icmp);
    lanyard_wire::Builder::new(group_mac(to), mac).ethertype(IPV6).payload(&packet).build()
}

/// Sources that fit into a query in one Ethernet frame.
const MAX_V6_SOURCES: usize = 89;
