//! The format of IGMP (versions 1 to 3), of PIM hellos, and of multicast router discovery over IPv4.

use crate::message::{
    MAX_SOURCES, Message, MessageError, Query, Received, Record, RecordKind, decode_time, encode_time,
};
use lanyard_types::MacAddr;
use lanyard_wire::HEADER_LEN;
use lanyard_wire::ip::{IPV4, IpHeader, ones_complement_sum};
use std::net::{IpAddr, Ipv4Addr};

const IGMP: u8 = 2;
const PIM: u8 = 103;
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ALL_IGMP_3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

mod types {
    pub(super) const QUERY: u8 = 0x11;
    pub(super) const REPORT_1: u8 = 0x12;
    pub(super) const REPORT_2: u8 = 0x16;
    pub(super) const LEAVE: u8 = 0x17;
    pub(super) const REPORT_3: u8 = 0x22;
    pub(super) const ROUTER_ADVERTISEMENT: u8 = 0x30;
    pub(super) const ROUTER_TERMINATION: u8 = 0x32;
}

/// True if the checksum of a message is right. The message may have an odd number of bytes.
fn checksum_is_right(bytes: &[u8]) -> bool {
    ones_complement_sum(bytes) == 0xffff
}

/// Decodes the IPv4 packet of a frame, without its Ethernet header.
pub(crate) fn decode(mac: MacAddr, packet: &[u8]) -> Result<Received, MessageError> {
    let header = IpHeader::read(IPV4, packet, false).map_err(|_| MessageError::IpHeader)?;
    let (IpAddr::V4(source), IpAddr::V4(to)) = (header.src, header.dst) else {
        return Err(MessageError::IpHeader);
    };
    // `read` has checked that the header is there.
    if packet[6] & 0x3f != 0 || packet[7] != 0 {
        return Err(MessageError::Fragment);
    }
    if source.is_multicast() || source.is_broadcast() || source.is_loopback() {
        return Err(MessageError::Source);
    }
    let payload = &packet[usize::from(packet[0] & 15) * 4..header.len];
    let message = match header.protocol {
        IGMP if header.ttl != 1 => return Err(MessageError::HopLimit),
        IGMP => read(payload, to)?,
        PIM => Message::PimHello(pim_hello(payload)?),
        _ => return Err(MessageError::Protocol),
    };
    Ok(Received { mac, source: header.src, message })
}

fn group(bytes: &[u8]) -> Result<Ipv4Addr, MessageError> {
    let group = <[u8; 4]>::try_from(bytes).map(Ipv4Addr::from).map_err(|_| MessageError::Length)?;
    if group.is_multicast() { Ok(group) } else { Err(MessageError::Group) }
}

fn sources(bytes: &[u8]) -> Result<Vec<IpAddr>, MessageError> {
    let read = |chunk: &[u8]| {
        let source = Ipv4Addr::new(chunk[0], chunk[1], chunk[2], chunk[3]);
        if source.is_multicast() { Err(MessageError::Group) } else { Ok(source.into()) }
    };
    bytes.chunks_exact(4).map(read).collect()
}

fn read(bytes: &[u8], to: Ipv4Addr) -> Result<Message, MessageError> {
    let [kind, code, _, _, rest @ ..] = bytes else { return Err(MessageError::Length) };
    if !checksum_is_right(bytes) {
        return Err(MessageError::Checksum);
    }
    let old = |version: u8| -> Result<Message, MessageError> {
        let group = group(rest.get(..4).ok_or(MessageError::Length)?)?;
        // A report is sent to the group that it reports (RFC 2236, 4).
        if to != group {
            return Err(MessageError::Destination);
        }
        let record = Record { kind: RecordKind::IsExclude, group: group.into(), sources: Vec::new() };
        Ok(Message::Report { version, records: vec![record] })
    };
    match *kind {
        types::QUERY => query(*code, rest, to),
        types::REPORT_1 => old(1),
        types::REPORT_2 => old(2),
        types::LEAVE => Ok(Message::Leave(group(rest.get(..4).ok_or(MessageError::Length)?)?.into())),
        types::REPORT_3 => report(rest),
        types::ROUTER_ADVERTISEMENT => Ok(Message::RouterAdvertisement(*code)),
        types::ROUTER_TERMINATION => Ok(Message::RouterTermination),
        _ => Err(MessageError::Type),
    }
}

/// RFC 3376, 7.1: the version of a query follows from its length and code.
fn query(code: u8, rest: &[u8], to: Ipv4Addr) -> Result<Message, MessageError> {
    let address = rest.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes)).ok_or(MessageError::Length)?;
    let about = match address {
        Ipv4Addr::UNSPECIFIED => None,
        group if group.is_multicast() => Some(IpAddr::V4(group)),
        _ => return Err(MessageError::Group),
    };
    if to != ALL_HOSTS && about != Some(to.into()) {
        return Err(MessageError::Destination);
    }
    let old = |version: u8, max_response_ms: u32| {
        Ok(Message::Query(Query {
            version,
            group: about,
            sources: Vec::new(),
            max_response_ms,
            suppress: false,
        }))
    };
    match (rest.len(), code) {
        (4, 0) => old(1, 10_000),
        (4, code) => old(2, u32::from(code) * 100),
        (8.., code) => {
            let count = usize::from(u16::from_be_bytes([rest[6], rest[7]]));
            if count > MAX_SOURCES {
                return Err(MessageError::Length);
            }
            let list = rest.get(8..8 + 4 * count).ok_or(MessageError::Length)?;
            Ok(Message::Query(Query {
                version: 3,
                group: about,
                sources: sources(list)?,
                max_response_ms: decode_time(code) * 100,
                suppress: rest[4] & 8 != 0,
            }))
        }
        _ => Err(MessageError::Length),
    }
}

fn report(rest: &[u8]) -> Result<Message, MessageError> {
    let [_, _, high, low, rest @ ..] = rest else { return Err(MessageError::Length) };
    let mut rest = rest;
    let mut records = Vec::new();
    for _ in 0..u16::from_be_bytes([*high, *low]) {
        let (fixed, tail) = rest.split_first_chunk::<8>().ok_or(MessageError::Length)?;
        let [kind, auxiliary, high, low, address @ ..] = *fixed;
        let count = usize::from(u16::from_be_bytes([high, low]));
        if count > MAX_SOURCES {
            return Err(MessageError::Length);
        }
        let (list, tail) = tail.split_at_checked(4 * count).ok_or(MessageError::Length)?;
        rest = tail.get(4 * usize::from(auxiliary)..).ok_or(MessageError::Length)?;
        let (group, sources) = (group(&address)?.into(), sources(list)?);
        // Records of unknown kinds are skipped (4.2.12).
        records.extend(RecordKind::of(kind).map(|kind| Record { kind, group, sources }));
    }
    Ok(Message::Report { version: 3, records })
}

/// The holdtime of a PIM hello (RFC 7761, 4.9.2); 105 s if it has none.
fn pim_hello(bytes: &[u8]) -> Result<u16, MessageError> {
    let [kind, _, _, _, options @ ..] = bytes else { return Err(MessageError::Length) };
    if *kind != 0x20 {
        return Err(MessageError::Type);
    }
    if !checksum_is_right(bytes) {
        return Err(MessageError::Checksum);
    }
    holdtime(options)
}

/// The holdtime among a hello's options.
pub(crate) fn holdtime(mut options: &[u8]) -> Result<u16, MessageError> {
    while !options.is_empty() {
        let (fixed, tail) = options.split_first_chunk::<4>().ok_or(MessageError::Length)?;
        let [a, b, c, d] = *fixed;
        let (value, rest) =
            tail.split_at_checked(usize::from(u16::from_be_bytes([c, d]))).ok_or(MessageError::Length)?;
        if let (1, [high, low]) = (u16::from_be_bytes([a, b]), value) {
            return Ok(u16::from_be_bytes([*high, *low]));
        }
        options = rest;
    }
    Ok(105)
}

/// The MAC address of a group (RFC 1112, 6.4).
fn group_mac(group: Ipv4Addr) -> MacAddr {
    let [_, b, c, d] = group.octets();
    MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}

/// A frame with an IGMP message from `source` to `to`, with the router alert option.
fn frame(mac: MacAddr, source: Ipv4Addr, to: Ipv4Addr, mut igmp: Vec<u8>) -> Vec<u8> {
    let sum = !ones_complement_sum(&igmp);
    igmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let len = (24 + igmp.len()) as u16;
    let mut packet = vec![0x46, 0xc0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 1, IGMP, 0, 0];
    packet.extend(source.octets());
    packet.extend(to.octets());
    packet.extend([0x94, 4, 0, 0]);
    let sum = !ones_complement_sum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(igmp);
    debug_assert!(packet.len() + HEADER_LEN <= 1514);
    lanyard_wire::Builder::new(group_mac(to), mac).ethertype(IPV4).payload(&packet).build()
}

/// A query as a frame.
pub(crate) fn encode_query(
    mac: MacAddr,
    source: Ipv4Addr,
    query: &Query,
    robustness: u8,
    interval_s: u32,
) -> Vec<u8> {
    let group = match query.group {
        Some(IpAddr::V4(group)) => group,
        _ => Ipv4Addr::UNSPECIFIED,
    };
    let to = if group.is_unspecified() { ALL_HOSTS } else { group };
    let tenths = query.max_response_ms / 100;
    let code = match query.version {
        1 => 0,
        2 => tenths.min(255) as u8,
        _ => encode_time(tenths),
    };
    let mut igmp = vec![types::QUERY, code, 0, 0];
    igmp.extend(group.octets());
    if query.version == 3 {
        igmp.extend([u8::from(query.suppress) << 3 | robustness & 7, encode_time(interval_s)]);
        let list: Vec<[u8; 4]> = query
            .sources
            .iter()
            .filter_map(|source| if let IpAddr::V4(source) = source { Some(source.octets()) } else { None })
            .take(MAX_SOURCES)
            .collect();
        igmp.extend((list.len() as u16).to_be_bytes());
        list.iter().for_each(|source| igmp.extend(source));
    }
    frame(mac, source, to, igmp)
}

/// A report of the switch (RFC 4541, 2.1.1, 1): its source is 0.0.0.0, so that no host takes it for the report of another
/// member. `None` if the version has no message for the record: version 1 has no leave.
pub(crate) fn encode_report(mac: MacAddr, version: u8, records: &[Record]) -> Option<Vec<u8>> {
    let of = |address: IpAddr| if let IpAddr::V4(address) = address { Some(address) } else { None };
    let none = Ipv4Addr::UNSPECIFIED;
    if version < 3 {
        let record = records.first()?;
        let group = of(record.group)?;
        let (kind, to) = match (version, record.leaves()) {
            (1, true) => return None,
            (1, false) => (types::REPORT_1, group),
            (_, true) => (types::LEAVE, ALL_ROUTERS),
            (_, false) => (types::REPORT_2, group),
        };
        return Some(frame(mac, none, to, [&[kind, 0, 0, 0][..], &group.octets()].concat()));
    }
    let mut igmp = vec![types::REPORT_3, 0, 0, 0, 0, 0];
    igmp.extend((records.len() as u16).to_be_bytes());
    for record in records {
        igmp.extend([record.kind.number(), 0]);
        igmp.extend((record.sources.len() as u16).to_be_bytes());
        igmp.extend(of(record.group)?.octets());
        for source in &record.sources {
            igmp.extend(of(*source)?.octets());
        }
    }
    Some(frame(mac, none, ALL_IGMP_3_ROUTERS, igmp))
}

/// A leave of all groups, by which a switch solicits a general query from the querier after a change of topology.
pub(crate) fn encode_global_leave(mac: MacAddr) -> Vec<u8> {
    frame(mac, Ipv4Addr::UNSPECIFIED, ALL_ROUTERS, vec![types::LEAVE, 0, 0, 0, 0, 0, 0, 0])
}
