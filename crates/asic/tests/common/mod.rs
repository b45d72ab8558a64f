//! Common code of the chip's tests: platforms, ports, operations, frames.

#![allow(dead_code)] // not every test uses all of it

use ipnet::IpNet;
use lanyard_asic::chip::device::{Device, SessionId};
use lanyard_asic::chip::{Chip, Effects};
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::Operation;
use lanyard_asic::sdk::message::{Incoming, Refused, announced};
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::balance::spread;
use lanyard_pipeline::route::{Adjacency, RifAttachment, RifState, RouteTarget, Urpf};
use lanyard_pipeline::state::{Aggregation, ChannelMembers, PortKind, PortState, VlanState};
use lanyard_types::{AdjacencyId, ChannelId, GroupId, MacAddr, PortId, PortSet, RifId, VlanId, VrfId};
use std::collections::BTreeSet;

pub const APPLIANCE: &str = include_str!("../../../../platforms/appliance.toml");
pub const SPECTRUM: &str = include_str!("../../../../platforms/spectrum-like.toml");
pub const UFT: &str = include_str!("../../../../platforms/uft-like.toml");

/// The time of operations and frames of tests in which no time passes.
pub const NOW: Timestamp = Timestamp::from_secs(1000);

/// The messages that a device has sent to a driver since the last call.
pub fn incoming(device: &mut Device, session: SessionId) -> Vec<Incoming> {
    let bytes: Vec<u8> = device.output(session).expect("a session").drain(..).collect();
    let (mut rest, mut all) = (&bytes[..], Vec::new());
    while let Some(length) = announced(rest).expect("a length") {
        all.push(Incoming::decode(&rest[..length]).expect("a message"));
        rest = &rest[length..];
    }
    all
}
/// A small chip with these entries.
pub fn chip(list: &[Operation]) -> Chip {
    let mut chip = Chip::new(&platform(APPLIANCE), 1);
    commit(&mut chip, list).expect("taken");
    chip
}
pub fn commit(chip: &mut Chip, list: &[Operation]) -> Result<u32, Refused> {
    chip.commit(NOW, list, &mut Effects::default())
}

pub fn platform(text: &str) -> Platform {
    Platform::parse(text).expect("a platform")
}
pub fn port(number: u16) -> PortId {
    PortId::new(number).expect("a port")
}
pub fn ports(numbers: impl IntoIterator<Item = u16>) -> Box<PortSet> {
    Box::new(numbers.into_iter().map(port).collect())
}
pub fn vlan(number: u16) -> VlanId {
    VlanId::new(number).expect("a VLAN")
}
pub fn station(number: u32) -> MacAddr {
    MacAddr::from_u64(0x0200_0000_0000 | u64::from(number))
}

/// VLAN 10 with access ports 1 to `ports`.
pub fn bridge(ports: u16) -> Vec<Operation> {
    let mut list = vec![Operation::Vlan(vlan(10), Some(VlanState::default()))];
    list.extend((1..=ports).map(|number| {
        let state = PortState::access(&format!("swp{number}"), 0, vlan(10));
        Operation::Port(port(number), Some(Box::new(state)))
    }));
    list
}

/// The operation that sets the members in use of a port-channel; the distributing members get equal shares of the buckets.
pub fn channel(number: u8, collecting: &[u16], distributing: &[u16]) -> Operation {
    let collecting = collecting.iter().map(|number| port(*number)).collect();
    let buckets = spread(&[], &ports(distributing.iter().copied()));
    let members = ChannelMembers { collecting, buckets };
    Operation::Channel(channel_id(number), Some(Box::new(members)))
}
pub fn channel_id(number: u8) -> ChannelId {
    ChannelId::new(number).expect("a port-channel")
}
/// The port of port-channel `number`, 100 + `number`, as an access port of VLAN 10, and its members.
pub fn bundle(number: u8, members: &[u16]) -> Vec<Operation> {
    let of = port(100 + u16::from(number));
    let aggregation = Aggregation::Channel(channel_id(number));
    let state = PortState { aggregation, ..PortState::access(&format!("port-channel{number}"), 0, vlan(10)) };
    let mut list = vec![Operation::Port(of, Some(Box::new(state)))];
    list.extend(members.iter().map(|member| {
        let aggregation = Aggregation::Member { of, channel: channel_id(number) };
        let state =
            PortState { aggregation, pvid: Some(vlan(10)), ..PortState::new(&format!("swp{member}"), 0) };
        Operation::Port(port(*member), Some(Box::new(state)))
    }));
    list
}

/// Routed ports 1 and 2, each with a router interface, and a next-hop group behind each.
pub fn router() -> Vec<Operation> {
    let mut list = Vec::new();
    for number in 1..=2_u16 {
        let state = PortState { kind: PortKind::Routed, ..PortState::new(&format!("swp{number}"), 0) };
        list.push(Operation::Port(port(number), Some(Box::new(state))));
        let rif = RifState {
            name: format!("swp{number}"),
            vrf: VrfId::DEFAULT,
            attachment: RifAttachment::Port(port(number)),
            mac: station(u32::from(number)),
            virtual_macs: BTreeSet::new(),
            mtu: 1500,
            ipv4: true,
            ipv6: true,
            urpf_ipv4: Urpf::Off,
            urpf_ipv6: Urpf::Off,
            while_confirmed: false,
        };
        let id = RifId::new(number).expect("an interface");
        list.push(Operation::Rif(id, Some(Box::new(rif))));
        let hop = Adjacency { rif: id, mac: Some(station(0x100 + u32::from(number))) };
        let adjacency = AdjacencyId::new(number.into()).expect("an adjacency");
        list.push(Operation::Adjacency(adjacency, Some(hop)));
        list.push(Operation::Group(group(number.into()), Some(vec![adjacency])));
    }
    list
}
pub fn group(number: u32) -> GroupId {
    GroupId::new(number).expect("a group")
}
pub fn prefix(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}
/// A route of the default VRF to a group, or its removal.
pub fn route(to: &str, by: Option<u32>) -> Operation {
    Operation::Route(VrfId::DEFAULT, prefix(to), by.map(|number| RouteTarget::Group(group(number))))
}

/// An Ethernet frame of 64 bytes without FCS.
pub fn frame(to: MacAddr, from: MacAddr) -> Vec<u8> {
    let mut frame = [&to.0[..], &from.0[..], &[0x88, 0xb5]].concat();
    frame.resize(60, 0);
    frame
}
