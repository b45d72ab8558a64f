//! Random routing: interfaces, routes, and packets for them.
//!
//! Addresses are made of few different octets, so that prefixes cover each other and packets match them.

use super::{Rng, State};
use crate::route::{Adjacency, RifAttachment, RifState, RouteChange, RouteTarget, Urpf, VIRTUAL_MACS};
use crate::state::{FdbTarget, PlaneState, PortKind, PortState, Tpid};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lanyard_types::{AdjacencyId, GroupId, MacAddr, PortId, RifId, TrapReason, VlanId, VrfId};
use lanyard_wire::ip::ones_complement_sum;
use lanyard_wire::{Builder, Tag};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The number of VRFs in use.
const VRFS: u64 = 2;
/// The number of adjacencies of a generated state; each may be unresolved.
const ADJACENCIES: u64 = 12;
/// The number of groups of a generated state.
const GROUPS: u64 = 8;

/// The router's address number `n`.
#[must_use]
pub fn router(n: u64) -> MacAddr {
    MacAddr([2, 0xaa, 0, 0, 0, n as u8])
}

/// Adds routed ports and router interfaces to `plane`, and returns the ports. The other ports of the state end at
/// `last`.
pub(super) fn interfaces(rng: &mut Rng, plane: &mut PlaneState, vlans: &[VlanId], last: u16) -> Vec<PortId> {
    let mut made = Vec::new();
    let mut next = last;
    let mut port = |plane: &mut PlaneState, rng: &mut Rng, kind: PortKind| {
        next += 1;
        let id = PortId::new(next)?;
        let mut state = PortState::new(&format!("p{id}"), 100 + u32::from(next));
        state.kind = kind;
        state.learning = false;
        state.flood_unicast = false;
        state.enabled = !rng.percent(5);
        state.mtu = rng.pick(&[1500, 1500, 1500, 9000, 576])?;
        if let PortKind::Svi(vlan) = kind {
            (state.pvid, state.untagged, state.access) = (Some(vlan), [vlan].into_iter().collect(), true);
        } else if rng.percent(20) {
            state.tpid = Tpid::Dot1ad;
        }
        plane.ports.insert(id, state);
        made.push(id);
        Some(id)
    };
    let mut attachments = Vec::new();
    for vlan in vlans {
        if rng.percent(25) {
            continue;
        }
        let had = plane.ports.iter().find(|(_, port)| port.kind == PortKind::Svi(*vlan)).map(|(id, _)| *id);
        let up = had.or_else(|| port(plane, rng, PortKind::Svi(*vlan)));
        attachments.extend(up.map(|up| RifAttachment::Vlan { vlan: *vlan, up }));
    }
    for _ in 0..rng.below(3) {
        let Some(parent) = port(plane, rng, PortKind::Routed) else { continue };
        attachments.extend(rng.percent(85).then_some(RifAttachment::Port(parent)));
        for vlan in vlans.iter().take(rng.below(3) as usize) {
            if let Some(up) = port(plane, rng, PortKind::Subinterface { parent, vlan: *vlan }) {
                let attachment = RifAttachment::Subinterface { parent, vlan: *vlan, up };
                attachments.extend(rng.percent(85).then_some(attachment));
            }
        }
    }
    for (n, attachment) in (1..).zip(attachments) {
        let rif = interface(rng, n, attachment);
        if let (RifAttachment::Vlan { vlan, up }, true) = (attachment, rng.percent(80)) {
            plane.fdb.insert((vlan, rif.mac), FdbTarget::SelfAddress(up));
        }
        plane.rifs.extend(RifId::new(n).map(|id| (id, rif)));
    }
    made
}

fn interface(rng: &mut Rng, n: u16, attachment: RifAttachment) -> RifState {
    let urpf = |rng: &mut Rng| match rng.below(8) {
        0 => Urpf::Loose,
        1 => Urpf::Strict,
        _ => Urpf::Off,
    };
    let virtuals = if rng.percent(25) { rng.below(VIRTUAL_MACS as u64 + 1) } else { 0 };
    RifState {
        name: format!("rif{n}"),
        vrf: VrfId::new(rng.below(VRFS) as u8).unwrap_or(VrfId::DEFAULT),
        attachment,
        // Interfaces of one switch often share an address.
        mac: router(if rng.percent(50) { 1 } else { n.into() }),
        virtual_macs: (0..virtuals).map(|id| MacAddr([0, 0, 0x5e, 0, 1, id as u8])).collect(),
        mtu: rng.pick(&[1500, 1500, 1500, 1280, 100, 9000]).unwrap_or(1500),
        ipv4: !rng.percent(8),
        ipv6: !rng.percent(8),
        urpf_ipv4: urpf(rng),
        urpf_ipv6: urpf(rng),
        while_confirmed: rng.percent(50),
    }
}

/// Adjacencies, groups and routes over the interfaces of `plane`. Each object stands before those that refer
/// to it.
pub(super) fn routes(rng: &mut Rng, plane: &PlaneState, hosts: &[MacAddr]) -> Vec<RouteChange> {
    let rifs: Vec<RifId> = plane.rifs.keys().copied().collect();
    let mut changes = Vec::new();
    if rifs.is_empty() {
        return changes;
    }
    for n in 1..=ADJACENCIES {
        changes.extend(adjacency(rng, n as u32, &rifs, hosts));
    }
    for n in 1..=GROUPS {
        changes.extend(group(rng, n as u32));
    }
    for _ in 0..rng.below(80) {
        changes.push(route(rng, &rifs));
    }
    // Draw from a copy of the generator, so that the states of existing seeds stay the same.
    let mut rng = rng.clone();
    if rng.percent(12) {
        for n in GROUPS + 1..=rng.pick(&[20, 20, 100, 400]).unwrap_or(0) {
            changes.extend(next_hop_of_its_own(&mut rng, n as u32));
        }
    }
    changes
}

/// A group that no other route uses, and a route to it. Many of them make the entries of an IPv4 table wide.
fn next_hop_of_its_own(rng: &mut Rng, n: u32) -> Vec<RouteChange> {
    let (group, adjacency) = (GroupId::new(n), AdjacencyId::new(1 + rng.below(ADJACENCIES) as u32));
    let (Some(group), Some(adjacency)) = (group, adjacency) else { return Vec::new() };
    let vrf = VrfId::new(rng.below(VRFS) as u8).unwrap_or(VrfId::DEFAULT);
    let [_, _, high, low] = n.to_be_bytes();
    let near = if rng.percent(30) { ipv4(rng) } else { Ipv4Addr::new(10, 4 + high, low, 0) };
    let net = Ipv4Net::new_assert(near, if rng.percent(90) { 24 } else { 28 }).trunc();
    vec![
        RouteChange::Group(group, Some(vec![adjacency])),
        RouteChange::Route(vrf, net.into(), Some(RouteTarget::Group(group))),
    ]
}

/// A change to the objects that [`routes`] made, such as a control plane makes while frames are forwarded.
#[must_use]
pub fn churn(rng: &mut Rng, state: &State) -> Option<RouteChange> {
    let rifs: Vec<RifId> = state.plane.rifs.keys().copied().collect();
    if rifs.is_empty() {
        return None;
    }
    match rng.below(8) {
        0 => adjacency(rng, 1 + rng.clone().below(ADJACENCIES) as u32, &rifs, &state.hosts),
        1 => group(rng, 1 + rng.clone().below(GROUPS) as u32),
        2 if rng.percent(10) => VrfId::new(rng.below(VRFS) as u8).map(RouteChange::VrfGone),
        2..=4 => match route(rng, &rifs) {
            RouteChange::Route(vrf, prefix, _) => Some(RouteChange::Route(vrf, prefix, None)),
            other => Some(other),
        },
        _ => Some(route(rng, &rifs)),
    }
}

fn adjacency(rng: &mut Rng, n: u32, rifs: &[RifId], hosts: &[MacAddr]) -> Option<RouteChange> {
    let mac = (!rng.percent(12)).then(|| rng.pick(hosts)).flatten();
    let adjacency = Adjacency { rif: rng.pick(rifs)?, mac };
    Some(RouteChange::Adjacency(AdjacencyId::new(n)?, Some(adjacency)))
}

fn group(rng: &mut Rng, n: u32) -> Option<RouteChange> {
    let size = rng.pick(&[1, 1, 1, 2, 4, 8, 256])?;
    let bucket = |_| AdjacencyId::new(1 + rng.below(ADJACENCIES) as u32);
    Some(RouteChange::Group(GroupId::new(n)?, (0..size).map(bucket).collect()))
}

fn route(rng: &mut Rng, rifs: &[RifId]) -> RouteChange {
    let vrf = VrfId::new(rng.below(VRFS) as u8).unwrap_or(VrfId::DEFAULT);
    RouteChange::Route(vrf, prefix(rng), Some(target(rng, rifs)))
}

fn target(rng: &mut Rng, rifs: &[RifId]) -> RouteTarget {
    let group = GroupId::new(1 + rng.below(GROUPS) as u32);
    let rif = rng.pick(rifs);
    match (rng.below(16), group, rif) {
        (0, ..) => RouteTarget::Blackhole,
        (1, ..) => RouteTarget::Up(TrapReason::LocalAddress),
        (2, ..) => RouteTarget::Up(TrapReason::RoutePolicy),
        (3, ..) => RouteTarget::Up(TrapReason::NoRoute),
        (4, _, Some(rif)) => RouteTarget::Connected(rif),
        (_, Some(group), _) => RouteTarget::Group(group),
        _ => RouteTarget::Up(TrapReason::Glean),
    }
}

/// A prefix of either family. Every length occurs, the usual ones more often.
#[must_use]
pub fn prefix(rng: &mut Rng) -> IpNet {
    if rng.percent(50) {
        let len = rng.pick(&[0, 8, 9, 16, 16, 23, 24, 24, 25, 31, 32, 33]).filter(|len| *len < 33);
        let len = len.unwrap_or(rng.below(33) as u8);
        Ipv4Net::new(ipv4(rng), len).map_or(IpNet::default(), |net| net.trunc().into())
    } else {
        let len = rng.pick(&[0, 16, 16, 20, 32, 32, 33, 48, 64, 127, 128, 129]).filter(|len| *len < 129);
        let len = len.unwrap_or(rng.below(129) as u8);
        Ipv6Net::new(ipv6(rng), len).map_or(IpNet::default(), |net| net.trunc().into())
    }
}

fn ipv4(rng: &mut Rng) -> Ipv4Addr {
    let mut octet = || rng.pick(&[0, 1, 2, 127, 128, 255]).unwrap_or(0);
    Ipv4Addr::new(10, octet(), octet(), octet())
}

fn ipv6(rng: &mut Rng) -> Ipv6Addr {
    let mut word = |few: &[u16]| rng.pick(few).unwrap_or(0);
    let odd = [0, 1, 0x8000, 0xffff];
    let mut words = [word(&[0x2001, 0x2001, 0x2002]), word(&[0xdb8, 0xdb8, 0xdb9, 0x1db8]), 0, 0, 0, 0, 0, 0];
    words[2..].iter_mut().for_each(|w| *w = word(&odd));
    Ipv6Addr::from(words)
}

/// An address for a packet; most are ordinary unicast addresses.
#[must_use]
pub fn address(rng: &mut Rng, family4: bool) -> IpAddr {
    const ODD4: [Ipv4Addr; 8] = [
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 5),
        Ipv4Addr::new(239, 255, 255, 255),
        Ipv4Addr::new(240, 0, 0, 1),
        Ipv4Addr::new(169, 254, 3, 4),
        Ipv4Addr::new(0, 1, 2, 3),
    ];
    const ODD6: [Ipv6Addr; 7] = [
        Ipv6Addr::UNSPECIFIED,
        Ipv6Addr::LOCALHOST,
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xfebf, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x0a00, 1),
        Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 2),
    ];
    match (family4, rng.percent(8)) {
        (true, false) => ipv4(rng).into(),
        (true, true) => rng.pick(&ODD4).unwrap_or(Ipv4Addr::LOCALHOST).into(),
        (false, false) => ipv6(rng).into(),
        (false, true) => rng.pick(&ODD6).unwrap_or(Ipv6Addr::LOCALHOST).into(),
    }
}

/// A frame for one of the state's interfaces and its ingress port; `None` when there are no interfaces. Most frames
/// can be forwarded; others have one defect, and some have a byte of the header overwritten.
#[must_use]
pub fn frame(rng: &mut Rng, state: &State) -> Option<(PortId, Vec<u8>)> {
    let rifs: Vec<&RifState> = state.plane.rifs.values().collect();
    let rif = *rifs.get(rng.below(rifs.len() as u64) as usize)?;
    let (port, tag) = match rif.attachment {
        RifAttachment::Vlan { vlan, .. } => {
            let inside = |port: &&PortId| {
                state.plane.ports.get(port).is_some_and(|port| {
                    port.kind == PortKind::Netdev
                        && (port.tagged.contains(vlan) || port.untagged.contains(vlan))
                })
            };
            let ports: Vec<PortId> = state.ports.iter().filter(inside).copied().collect();
            let port = rng.pick(&ports)?;
            let tagged = state.plane.ports.get(&port)?.pvid != Some(vlan);
            (port, tagged.then_some(vlan))
        }
        RifAttachment::Port(port) => (port, None),
        RifAttachment::Subinterface { parent, vlan, .. } => (parent, Some(vlan)),
    };
    let macs: Vec<MacAddr> = rif.virtual_macs.iter().copied().collect();
    let to = rng.pick(&macs).filter(|_| rng.percent(30)).unwrap_or(rif.mac);
    let to = if rng.percent(4) { rng.pick(&state.hosts)? } else { to };
    let mut builder = Builder::new(to, rng.pick(&state.hosts)?);
    if tag.is_some() || rng.percent(10) {
        let tpid = state.plane.ports.get(&port)?.tpid.ethertype()?;
        let vid = tag.map_or(0, VlanId::get);
        builder = builder.tag(tpid, Tag { pcp: rng.below(8) as u8, dei: rng.percent(20), vid });
    }
    let (ethertype, bytes) = packet(rng);
    Some((
        port,
        builder.ethertype(ethertype).payload(&bytes).pad(rng.pick(&[0, 60, 60, 64, 80])?).build_unpadded(),
    ))
}

/// An IP packet and its EtherType.
#[must_use]
pub fn packet(rng: &mut Rng) -> (u16, Vec<u8>) {
    let family4 = rng.percent(50);
    let (src, dst) = (address(rng, family4), address(rng, family4));
    let payload: Vec<u8> = (0..match rng.below(12) {
        0 => rng.below(8),
        1 => 1440 + rng.below(60),
        2 => 60 + rng.below(40), // about the MTU of 100
        3 => 1230 + rng.below(40),
        _ => 8 + rng.below(30),
    })
        .map(|_| rng.next_u64() as u8)
        .collect();
    let ttl = rng.pick(&[64, 64, 64, 64, 64, 128, 255, 2, 2, 1, 0]).unwrap_or(64);
    let protocol = rng.pick(&[6, 6, 6, 17, 17, 17, 17, 17, 1, 1, 58, 58, 132, 47, 0, 44]).unwrap_or(17);
    let mut bytes = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let words = if rng.percent(8) { 5 + rng.below(11) as usize } else { 5 };
            let mut bytes = vec![0; words * 4];
            bytes[0] = 0x40 | words as u8;
            bytes[1] = rng.next_u64() as u8;
            bytes[2..4].copy_from_slice(&((words * 4 + payload.len()) as u16).to_be_bytes());
            let fragment = rng.pick(&[0, 0, 0x4000, 0x4000, 0x2000, 0x00b9]).unwrap_or(0_u16);
            bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
            bytes[4..6].copy_from_slice(&(rng.next_u64() as u16).to_be_bytes());
            (bytes[8], bytes[9]) = (ttl, protocol);
            bytes[12..16].copy_from_slice(&src.octets());
            bytes[16..20].copy_from_slice(&dst.octets());
            bytes[20..].fill(1);
            bytes
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut bytes = vec![0x60, rng.next_u64() as u8, 0, 0];
            bytes.extend((payload.len() as u16).to_be_bytes());
            bytes.extend([protocol, ttl]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            bytes
        }
        _ => Vec::new(),
    };
    let fuzzed = rng.percent(10);
    let at = rng.below(bytes.len().min(12) as u64) as usize;
    if fuzzed {
        bytes[at] = rng.next_u64() as u8;
    }
    // For half of the overwritten headers compute the checksum again, so that only the overwritten byte is
    // wrong.
    if family4 && (!fuzzed || rng.percent(50)) {
        bytes[10..12].fill(0);
        let header = (usize::from(bytes[0] & 15) * 4).min(bytes.len());
        let sum = !ones_complement_sum(&bytes[..header]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.extend(payload);
    if rng.percent(3) {
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
    }
    (if family4 { 0x0800 } else { 0x86dd }, bytes)
}
