//! Random plane states and frames from a seed, for the differential test and the fuzzers.
//!
//! Invariant: within one version the same seed gives the same states and frames on every machine, and the control
//! plane could have made every generated state.

pub mod routes;

pub use lanyard_types::Rng;

use crate::qos::PortQos;
use crate::route::RouteChange;
use crate::stages;
use crate::state::{
    Aggregation, CHANNEL_BUCKETS, ChannelMembers, FdbTarget, GlobalState, PlaneState, PortKind, PortState,
    ReservedAction, StpState, Tpid, TrapRate, VlanState,
};
use crate::tables::mdb::MdbChange;
use lanyard_types::{
    BindingKey, ChannelId, Family, InstanceId, LoadBalance, MacAddr, PortId, TrapGroup, Tunnelled, VlanGuard,
    VlanId, VlanSet,
};
use lanyard_wire::{Builder, Tag};
use std::net::IpAddr;
use std::sync::Arc;

/// A random state of a plane, with the values that a generator of frames needs to match it.
#[derive(Debug, Clone)]
pub struct State {
    /// The state.
    pub plane: PlaneState,
    /// The VLANs in use, and one that is not active.
    pub vlans: Vec<VlanId>,
    /// The port slots in use, and one that is not.
    pub ports: Vec<PortId>,
    /// Addresses of hosts, used as sources and destinations of generated frames.
    pub hosts: Vec<MacAddr>,
    /// The adjacencies, groups and routes. Each object stands before those that refer to it.
    pub routes: Vec<RouteChange>,
}

/// The maximum number of bridging ports in a generated state.
const MAX_BRIDGED_PORTS: u64 = 12;
/// The highest port number of a generated state, and one more that is not in use.
pub const MAX_GENERATED_PORTS: u16 = 40;

impl State {
    /// The same state without service policies.
    #[must_use]
    pub fn without_policies(mut self) -> Self {
        self.plane.ports.values_mut().for_each(|port| port.qos = PortQos::default());
        self
    }
    /// The same state without limits for the copies of flooded frames that the kernel's stack gets: a trace takes no token, so it
    /// does not predict which copies are left out.
    #[must_use]
    pub fn with_all_copies(mut self) -> Self {
        let global = &mut self.plane.global;
        for group in [TrapGroup::Neighbour, TrapGroup::LinkMulticast, TrapGroup::Flooded] {
            global.trap_rate[group.index()] = TrapRate::UNLIMITED;
            global.trap_port_rate[group.index()] = TrapRate::UNLIMITED;
        }
        self
    }
    /// Removes the policers of service policies. A trace ignores policers, so it predicts the verdict on a frame only in a state
    /// without them.
    pub fn remove_policers(&mut self) {
        let policies =
            self.plane.ports.values_mut().flat_map(|port| [&mut port.qos.input, &mut port.qos.output]);
        for policy in policies.flatten() {
            Arc::make_mut(policy).classes.iter_mut().for_each(|class| class.policer = None);
        }
    }
    /// The state of this seed: 2 to 12 ports of every mode and some routed ports, 1 to 6 VLANs in up to 3 spanning-tree
    /// instances, control-plane FDB entries, low and high limits and, in half of the states, routing. Ports have
    /// ifindex 100 + number; a test that has netdevs overwrites these.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let rng = &mut rng;
        let mut vlans: Vec<VlanId> = vec![VlanId::DEFAULT];
        for _ in 0..=rng.below(5) {
            vlans.extend(VlanId::new(2 + rng.below(4093) as u16).filter(|vlan| !vlans.contains(vlan)));
        }
        let mut plane = PlaneState { global: global(rng), ..PlaneState::default() };
        plane.global.trap_pvst = match rng.below(3) {
            0 => VlanSet::EMPTY,
            1 => VlanSet::all(),
            _ => vlans.iter().copied().filter(|_| rng.percent(50)).collect(),
        };
        plane.global.trap_cdp = rng.percent(50);
        for vlan in vlans.iter().skip(usize::from(rng.percent(30))) {
            let fdb_limit = rng.percent(15).then(|| rng.below(6) as u32);
            let instance = InstanceId::new(rng.below(3) as u8).unwrap_or_default();
            plane.vlans.insert(
                *vlan,
                VlanState { learning: !rng.percent(10), fdb_limit, instance, ..VlanState::default() },
            );
        }
        let count = 2 + rng.below(MAX_BRIDGED_PORTS - 1);
        let mut ports: Vec<PortId> = (1..=count as u16).filter_map(PortId::new).collect();
        for port in ports.iter().take(count as usize) {
            plane.ports.insert(*port, random_port(rng, *port, &vlans));
            for instance in (0..3).filter_map(InstanceId::new) {
                if rng.percent(12) {
                    let state = if rng.percent(50) { StpState::Learning } else { StpState::Discarding };
                    plane.stp.insert((instance, *port), state);
                }
                if rng.percent(12) {
                    plane.watched.insert((instance, *port));
                }
            }
        }
        let hosts: Vec<MacAddr> = (0..24).map(|n| MacAddr([2, 0, 0, 0, (seed & 0xff) as u8, n])).collect();
        for (n, mac) in hosts.iter().take(6).enumerate() {
            let (Some(vlan), Some(port)) = (rng.pick(&vlans), rng.pick(&ports[..count as usize])) else {
                continue;
            };
            let target = match n % 4 {
                0 => FdbTarget::Static(port),
                1 => FdbTarget::Sticky(port),
                2 => FdbTarget::SelfAddress(port),
                _ => FdbTarget::Blackhole,
            };
            plane.fdb.insert((vlan, *mac), target);
        }
        let mut changes = Vec::new();
        if rng.percent(50) {
            ports.extend(routes::interfaces(rng, &mut plane, &vlans, count as u16));
            changes = routes::routes(rng, &plane, &hosts);
        }
        stages::randomise(seed, &mut plane);
        ports.extend(aggregate(&mut Rng::new(seed ^ 0x1a66), &mut plane));
        ports.extend(PortId::new(ports.len() as u16 + 1));
        Self { plane, vlans, ports, hosts, routes: changes }
    }
}

impl State {
    /// The same state without access lists, for planes that have none.
    #[must_use]
    pub fn without_access_lists(mut self) -> Self {
        self.plane.acls.clear();
        for port in self.plane.ports.values_mut() {
            // Service policies refer to lists, too.
            (port.acl_in, port.acl_out, port.qos) = Default::default();
        }
        self.plane.vlans.values_mut().for_each(|vlan| vlan.acl = Default::default());
        self
    }
    /// The same state without monitor sessions, for planes that have none.
    #[must_use]
    pub fn without_monitor_sessions(mut self) -> Self {
        self.plane.ports.values_mut().for_each(|port| port.stages.mirror = Default::default());
        self
    }
    /// The same state without sampling, for planes that have none.
    #[must_use]
    pub fn without_sampling(mut self) -> Self {
        self.plane.ports.values_mut().for_each(|port| port.stages.sample = None);
        self
    }
    /// The same state without port-channels.
    #[must_use]
    pub fn without_channels(mut self) -> Self {
        self.plane.channels.clear();
        self.plane.ports.retain(|_, port| !matches!(port.aggregation, Aggregation::Member { .. }));
        for (id, port) in &mut self.plane.ports {
            if port.aggregation != Aggregation::None {
                (port.aggregation, port.ifindex) = (Aggregation::None, 100 + u32::from(id.get()));
            }
        }
        let unused = self.ports.pop();
        self.ports.retain(|port| self.plane.ports.contains_key(port));
        self.ports.extend(unused);
        self
    }
    /// The same state without routing: every port bridges.
    #[must_use]
    pub fn bridging(mut self) -> Self {
        self.plane.rifs.clear();
        self.plane.ports.retain(|_, port| matches!(port.kind, PortKind::Netdev | PortKind::Svi(_)));
        self.ports.retain(|port| self.plane.ports.contains_key(port));
        self.ports.extend((1..).filter_map(PortId::new).find(|port| !self.plane.ports.contains_key(port)));
        self.routes.clear();
        self
    }
}

/// Two access ports of VLAN 1. At the first one, every stage that limits rates does so, at rates that frames a few milliseconds
/// apart exceed.
#[must_use]
pub fn with_low_rates() -> PlaneState {
    let mut plane = PlaneState::default();
    let guard = VlanGuard { dhcp: true, arp: true, ..VlanGuard::default() };
    plane.vlans.insert(VlanId::DEFAULT, VlanState { guard, ..VlanState::default() });
    for id in PortId::all().take(2) {
        let port = PortState::access(&format!("p{id}"), 100 + u32::from(id.get()), VlanId::DEFAULT);
        plane.ports.insert(id, port);
    }
    if let Some(mut first) = plane.ports.first_entry() {
        first.get_mut().stages = stages::low_rates();
    }
    for (port, qos) in plane.ports.values_mut().zip(stages::low_policies()) {
        port.qos = qos;
    }
    plane
}

/// A random change of the MDB in one of the state's VLANs, for some of its ports.
#[must_use]
pub fn mdb_change(rng: &mut Rng, state: &State) -> MdbChange {
    let vlan = rng.pick(&state.vlans).unwrap_or(VlanId::DEFAULT);
    stages::snoop::random_change(rng, vlan, &state.ports.iter().copied().collect())
}

/// A random change of the bindings of first-hop security, at one of the state's ports and in one of its VLANs; `None` removes.
#[must_use]
pub fn binding_change(rng: &mut Rng, state: &State) -> Option<(BindingKey, Option<MacAddr>)> {
    let (port, vlan) = (rng.pick(&state.ports)?, rng.pick(&state.vlans)?);
    let (key, mac) = stages::guard::random_binding(rng, port, vlan);
    Some((key, (!rng.percent(15)).then_some(mac)))
}

/// The destination, EtherType and packet of a frame that snooping handles: a packet to a multicast group, or a message about
/// memberships.
#[must_use]
pub fn multicast_packet(rng: &mut Rng) -> (MacAddr, u16, Vec<u8>) {
    let family = if rng.percent(50) { Family::V4 } else { Family::V6 };
    let (group, source) =
        (stages::snoop::random_group(rng, family), stages::snoop::random_source(rng, family));
    let mut packet = match (group, source) {
        (IpAddr::V4(group), IpAddr::V4(source)) => {
            let protocol = rng.pick(&[17, 17, 17, 17, 2, 103]).unwrap_or(17);
            let first = rng.pick(&[0x45, 0x45, 0x45, 0x46, 0x65]).unwrap_or(0x45);
            let mut packet = vec![first, 0, 0, 40, 0, 0, 0, 0, 1, protocol, 0, 0];
            packet.extend(source.octets());
            packet.extend(group.octets());
            packet.push(rng.pick(&[0x20, 0x22, 0x11, 0x23]).unwrap_or(0));
            packet
        }
        (IpAddr::V6(group), IpAddr::V6(source)) => {
            let next = rng.pick(&[17, 17, 17, 0, 0, 58, 103]).unwrap_or(17);
            let mut packet = vec![0x60, 0, 0, 0, 0, 20, next, 1];
            packet.extend(source.octets());
            packet.extend(group.octets());
            packet.push(rng.pick(&[58, 58, 0x20, 17]).unwrap_or(58));
            packet.extend([rng.pick(&[0, 0, 0, 1]).unwrap_or(0), 5, 2, 0, 0, 1, 0]);
            packet.push(rng.pick(&[130, 131, 132, 143, 151, 152, 135]).unwrap_or(130));
            packet
        }
        _ => Vec::new(),
    };
    packet.resize(packet.len().max(46), 0);
    let dst = match family {
        Family::V4 => MacAddr([1, 0, 0x5e, 1, 1, rng.below(4) as u8]),
        Family::V6 => MacAddr([0x33, 0x33, 0, 0, 0, rng.below(4) as u8]),
    };
    let other = rng.percent(5);
    (dst, if (family == Family::V6) != other { 0x86dd } else { 0x0800 }, packet)
}

/// In half of the states, turns one or two switch ports into port-channels with new ports as members, some of which do not
/// collect or send; returns the members. `rng` serves this function alone, so that the rest of a state is the same as without it.
fn aggregate(rng: &mut Rng, plane: &mut PlaneState) -> Vec<PortId> {
    let mut members = Vec::new();
    if rng.percent(50) {
        return members;
    }
    let (_, by) = rng.pick(LoadBalance::KEYWORDS).unwrap_or_default();
    plane.global.load_balance = LoadBalance { symmetric: rng.percent(30), ..by };
    let switched = plane.ports.iter().filter(|(_, port)| port.kind == PortKind::Netdev);
    let switched: Vec<PortId> = switched.map(|(id, _)| *id).collect();
    for number in 1..=1 + rng.below(2) as u8 {
        let Some((channel, number)) = rng.pick(&switched).zip(ChannelId::new(number * 7)) else { continue };
        let Some(port) = plane.ports.get_mut(&channel).filter(|port| port.aggregation == Aggregation::None)
        else {
            continue;
        };
        (port.aggregation, port.ifindex) = (Aggregation::Channel(number), 0);
        let none = VlanSet::EMPTY;
        let aggregation = Aggregation::Member { of: channel, channel: number };
        let member = PortState { aggregation, tagged: none.clone(), untagged: none, ..port.clone() };
        let next = plane.ports.last_key_value().map_or(1, |(last, _)| last.get() + 1);
        let mut own = Vec::new();
        for id in (next..=next + rng.below(4) as u16).filter_map(PortId::new) {
            let (name, ifindex) = (format!("p{id}"), 100 + u32::from(id.get()));
            let enabled = !rng.percent(8);
            plane.ports.insert(id, PortState { name, ifindex, enabled, ..member.clone() });
            own.push(id);
        }
        let some: Vec<PortId> = own.iter().copied().filter(|_| rng.percent(85)).collect();
        let senders = if rng.percent(10) { Vec::new() } else { some.clone() };
        let bucket = |_| rng.pick(&senders);
        let buckets = (0..CHANNEL_BUCKETS).map_while(bucket).collect();
        plane.channels.insert(number, ChannelMembers { collecting: some.into_iter().collect(), buckets });
        members.extend(own);
    }
    members
}

fn global(rng: &mut Rng) -> GlobalState {
    let mut global = GlobalState::default();
    for action in &mut global.reserved {
        *action = match rng.below(4) {
            0 | 1 => ReservedAction::Drop,
            2 => ReservedAction::Forward,
            _ => ReservedAction::Trap,
        };
    }
    // A rate is 0 or never reached, so that no result depends on the time at which a frame arrives.
    for rate in global.trap_rate.iter_mut().chain(&mut global.trap_port_rate) {
        *rate = if rng.percent(10) {
            TrapRate { rate_pps: 0, burst: 5 }
        } else {
            TrapRate { rate_pps: 1_000_000, burst: 1_000_000 }
        };
    }
    if rng.percent(15) {
        global.fdb_limit = 1 + rng.below(8) as u32;
    }
    global
}

fn random_port(rng: &mut Rng, port: PortId, vlans: &[VlanId]) -> PortState {
    let mut state = PortState::new(&format!("p{port}"), 100 + u32::from(port.get()));
    let native = rng.pick(vlans).unwrap_or(VlanId::DEFAULT);
    let allowed: VlanSet = vlans.iter().copied().filter(|_| rng.percent(70)).collect();
    let one: VlanSet = [native].into_iter().collect();
    match rng.below(10) {
        // An access port; its PVID may name a VLAN that is not active.
        0..=3 => (state.pvid, state.untagged, state.access) = (Some(native), one, true),
        // A trunk with a native VLAN, which may not be in the allowed list.
        4..=6 => {
            state.pvid = Some(native);
            if allowed.contains(native) {
                state.untagged = one.clone();
            }
            state.tagged = allowed.difference(&one);
        }
        // A trunk that tags its native VLAN.
        7 => state.tagged = if rng.percent(20) { VlanSet::all() } else { allowed },
        // A tunnel port: tags are payload.
        8 => {
            (state.pvid, state.untagged, state.tpid, state.access) = (Some(native), one, Tpid::None, true);
            let (stp, cdp, lldp) = (rng.percent(60), rng.percent(60), rng.percent(60));
            state.tunnelled = Tunnelled { stp, cdp, lldp };
        }
        // The pipeline's end of a VLAN interface.
        _ => {
            (state.pvid, state.untagged, state.kind) = (Some(native), one, PortKind::Svi(native));
            (state.flood_unicast, state.access) = (false, true);
        }
    }
    if state.tpid != Tpid::None && rng.percent(20) {
        state.tpid = if rng.percent(70) { Tpid::Dot1ad } else { Tpid::Stacked9100 };
    }
    state.enabled = !rng.percent(8);
    state.learning = !rng.percent(10);
    state.isolated = rng.percent(20);
    state.flood_unicast &= !rng.percent(10);
    state.flood_multicast = !rng.percent(10);
    state.mtu = rng.pick(&[1500, 1500, 1500, 576, 68, 9000]).unwrap_or(1500);
    state.fdb_limit = rng.percent(15).then(|| rng.below(5) as u32);
    state
}

/// A frame and its ingress port. Most frames are valid and go between the state's hosts; others are cut off, have
/// unusual tags, an invalid source or a reserved destination, or are long.
pub fn frame(rng: &mut Rng, state: &State) -> (PortId, Vec<u8>) {
    if let Some(routed) = rng.percent(60).then(|| routes::frame(rng, state)).flatten() {
        return routed;
    }
    let known = &state.ports[..state.ports.len().saturating_sub(usize::from(!rng.percent(3)))];
    let port = rng.pick(known).or(PortId::new(1)).unwrap_or_else(|| unreachable!("1 is a port"));
    let (mut dst, payload) = (destination(rng, state), control_payload(rng));
    if let Some((_, address, _)) =
        payload.filter(|_| rng.percent(if dst.is_layer2_protocol() { 60 } else { 3 }))
    {
        dst = if rng.percent(70) { address } else { MacAddr::TUNNEL };
    }
    let multicast = rng.percent(20).then(|| multicast_packet(rng));
    if let Some((address, ..)) = multicast {
        dst = address;
    }
    let guarded = rng.percent(20).then(|| stages::guard::random_packet(rng));
    let mut src = source(rng, state);
    if let Some((from, to, ..)) = guarded {
        (src, dst) = (from, to);
    }
    let mut builder = Builder::new(dst, src);
    let own = state.plane.ports.get(&port).and_then(|port| port.tpid.ethertype());
    for depth in 0..2 {
        if rng.percent(if depth == 0 { 60 } else { 15 }) {
            let other = rng.pick(&[0x8100, 0x88a8, 0x9100, 0x9200]).unwrap_or(0x8100);
            let tpid = own.filter(|_| rng.percent(75)).unwrap_or(other);
            let tag = Tag { pcp: rng.below(8) as u8, dei: rng.percent(30), vid: vid(rng, state) };
            builder = builder.tag(tpid, tag);
        }
    }
    let ethertype = rng.pick(&[0x0800, 0x86dd, 0x0806, 0x88b5, 0x002e, 0x8100, 0x88a8, 0]).unwrap_or(0x0800);
    let edge = state.plane.ports.get(&port).map_or(1500, |port| port.mtu as usize);
    let len = match rng.below(10) {
        0..=5 => 60 + rng.below(60) as usize,
        6 => 14 + rng.below(60) as usize,
        7 => edge + 14 + rng.below(10) as usize, // about the MTU of this port
        8 => 68 + 14 + rng.below(10) as usize,   // about the smallest MTU
        _ => 600 + rng.below(1000) as usize,
    };
    let mut bytes = match (&multicast, payload) {
        _ if guarded.is_some() => {
            let (_, _, code, packet) = guarded.as_ref().unwrap_or_else(|| unreachable!("there is one"));
            builder.ethertype(*code).payload(packet).build_unpadded()
        }
        (Some((_, code, packet)), _) => builder.ethertype(*code).payload(packet).build_unpadded(),
        (None, Some((code, _, payload))) if dst.is_layer2_protocol() || dst == MacAddr::TUNNEL => {
            builder.ethertype(code).payload(payload).build_unpadded()
        }
        _ => builder.ethertype(ethertype).build_unpadded(),
    };
    while bytes.len() < len {
        bytes.push(rng.next_u64() as u8);
    }
    if rng.percent(3) {
        bytes.truncate(rng.below(19) as usize);
    }
    (port, bytes)
}

/// The beginning of a control frame that tunnels can carry, or of one that differs slightly: EtherType or length, the
/// protocol's address, and the bytes that follow. `None` in some cases.
fn control_payload(rng: &mut Rng) -> Option<(u16, MacAddr, &'static [u8])> {
    rng.pick(&[
        Some((38, MacAddr::BRIDGE_GROUP, &[0x42, 0x42, 3, 0, 0, 2, 2, 0][..])),
        Some((38, MacAddr::BRIDGE_GROUP, &[0x42, 0x42, 3])),
        Some((50, MacAddr::SSTP, &[0xaa, 0xaa, 3, 0, 0, 0x0c, 1, 0x0b, 0, 0, 2])),
        Some((200, MacAddr::CISCO_DISCOVERY, &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0, 2, 180])),
        Some((200, MacAddr::CISCO_DISCOVERY, &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 3, 1, 2])),
        Some((0x88cc, MacAddr::LLDP, &[2, 7, 4, 2, 0, 0, 0, 0, 1])),
        None,
    ])
    .flatten()
}

fn vid(rng: &mut Rng, state: &State) -> u16 {
    match rng.below(20) {
        0 | 1 => 0,
        2 => 4095,
        3 => rng.below(4096) as u16,
        _ => rng.pick(&state.vlans).map_or(1, VlanId::get),
    }
}

fn source(rng: &mut Rng, state: &State) -> MacAddr {
    match rng.below(50) {
        0 => MacAddr::default(),
        1 => MacAddr::BROADCAST,
        2 => MacAddr([1, 0, 0x5e, 0, 0, rng.below(256) as u8]),
        3 | 4 => MacAddr::from_u64(rng.next_u64() & 0xfeff_ffff_ffff),
        _ => rng.pick(&state.hosts).unwrap_or_default(),
    }
}

fn destination(rng: &mut Rng, state: &State) -> MacAddr {
    match rng.below(20) {
        0 | 1 => MacAddr::BROADCAST,
        2 => MacAddr([1, 0, 0x5e, 1, 2, rng.below(256) as u8]),
        3 => MacAddr([1, 0x80, 0xc2, 0, 0, rng.below(18) as u8]),
        4 => rng.pick(&[MacAddr::BRIDGE_GROUP, MacAddr::LLDP, MacAddr::TUNNEL]).unwrap_or_default(),
        5 => MacAddr([1, 0, 0xc, 0xcc, 0xcc, 0xcc + rng.below(2) as u8]),
        6 => MacAddr::from_u64(rng.next_u64() & 0xfeff_ffff_ffff),
        7 => MacAddr::default(),
        _ => rng.pick(&state.hosts).unwrap_or_default(),
    }
}
