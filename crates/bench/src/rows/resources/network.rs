//! The network that is measured: three routed ports, a next hop behind each, routes, and packets that match the routes.

use anyhow::{Context, Result};
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::Operation;
use lanyard_pipeline::route::{Adjacency, RifAttachment, RifState, RouteTarget, Urpf};
use lanyard_pipeline::state::{PortKind, PortState};
use lanyard_types::{AdjacencyId, GroupId, MacAddr, PortId, RifId, VrfId};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The chip: 64K units of prefixes, in which no two routes collide.
const PLATFORM: &str = include_str!("../../../../../platforms/spectrum-like.toml");
/// The number of flows that are watched. One of them matches the last route.
pub(super) const FLOWS: u32 = 20;
/// The time between two frames of a flow, which is the resolution of an outage.
pub(super) const EVERY: Duration = Duration::from_millis(2);
/// Units that the strategy `prefetch` fetches at a time.
pub(super) const PREFETCH: u32 = 64;

/// The platform with a bus of these latencies, in microseconds.
pub(super) fn platform(write_us: u32, query_us: u32) -> Result<Platform> {
    let mut platform = Platform::parse(PLATFORM)?;
    platform.bus.write_us = write_us;
    platform.bus.query_us = query_us;
    Ok(platform)
}

/// The numbers of the routes whose flows are watched.
pub(super) fn watched(routes: u32) -> Vec<u32> {
    (1..=FLOWS).map(|flow| routes * flow / FLOWS - 1).collect()
}

/// The next hops, and the route by the old one that all flows take until longer routes are in the chip.
pub(super) fn beginning() -> Result<Vec<Operation>> {
    let mut batch = Vec::new();
    for number in 1..=3 {
        batch.extend(hop(number)?);
    }
    batch.push(route("11.0.0.0/8", 2)?);
    Ok(batch)
}

/// The request for route number `n` by the new next hop.
pub(super) fn wanted(n: u32) -> Result<[Operation; 1]> {
    Ok([route(&format!("{}/24", net(n)), 3)?])
}

/// Route number `n`: a /24 of 11.0.0.0/8.
pub(super) fn net(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0b00_0000 + (n << 8))
}

/// An IPv4 packet to a host behind route number `n`.
pub(super) fn packet(n: u32) -> Vec<u8> {
    let mut frame =
        [&mac(1).0[..], &mac(0x1ff).0[..], &[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1]]
            .concat();
    frame.extend((u32::from(net(n)) + 1).to_be_bytes());
    let sum: u32 =
        frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.resize(60, 0);
    frame
}

pub(super) fn mac(number: u16) -> MacAddr {
    MacAddr::from_u64(0x0200_0000_0000 | u64::from(number))
}
pub(super) fn port(number: u16) -> Result<PortId> {
    PortId::new(number).context("a port")
}

/// A routed port and its router interface.
pub(super) fn routed(number: u16) -> Result<[Operation; 2]> {
    let port = port(number)?;
    let name = format!("swp{number}");
    let state = PortState { kind: PortKind::Routed, ..PortState::new(&name, 0) };
    let rif = RifState {
        name,
        vrf: VrfId::DEFAULT,
        attachment: RifAttachment::Port(port),
        mac: mac(number),
        virtual_macs: BTreeSet::new(),
        mtu: 1500,
        ipv4: true,
        ipv6: true,
        urpf_ipv4: Urpf::Off,
        urpf_ipv6: Urpf::Off,
        while_confirmed: false,
    };
    let id = RifId::new(number).context("an interface")?;
    Ok([Operation::Port(port, Some(Box::new(state))), Operation::Rif(id, Some(Box::new(rif)))])
}

/// The next hop behind a port, and its group.
pub(super) fn hop(number: u16) -> Result<[Operation; 2]> {
    let adjacency = AdjacencyId::new(number.into()).context("an adjacency")?;
    let rif = RifId::new(number).context("an interface")?;
    let group = GroupId::new(number.into()).context("a group")?;
    let hop = Adjacency { rif, mac: Some(mac(0x100 + number)) };
    Ok([Operation::Adjacency(adjacency, Some(hop)), Operation::Group(group, Some(vec![adjacency]))])
}

pub(super) fn route(prefix: &str, group: u32) -> Result<Operation> {
    let group = GroupId::new(group).context("a group")?;
    Ok(Operation::Route(VrfId::DEFAULT, prefix.parse()?, Some(RouteTarget::Group(group))))
}
pub(super) fn group(number: u32) -> Result<GroupId> {
    GroupId::new(number).context("a group")
}
