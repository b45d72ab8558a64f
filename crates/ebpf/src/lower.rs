//! From a [`PlaneState`] to the rows of the tables: pure functions, one for each table.
//!
//! Invariant: a table's row depends on the state and on [`PortFacts`] alone, so writing it twice is writing it once, and
//! a table can be made right from any condition it is found in.

use crate::abi;
use lanyard_pipeline::state::{FdbTarget, PlaneState, PortKind, PortState, StpState, Tpid, TrapRate};
use lanyard_plane::FdbKind;
use lanyard_types::{InstanceId, MacAddr, PortId, VlanId};
use lanyard_wire::{HEADER_LEN, TAG_LEN};

/// What the plane knows of a port that its state does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PortFacts {
    /// Frames may be handed to the far end by `bpf_redirect_peer`.
    pub peer: PeerDelivery,
    /// It takes frames that XDP redirects.
    pub xdp_tx: bool,
}

/// Whether and when `bpf_redirect_peer` is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PeerDelivery {
    /// Never.
    #[default]
    No,
    /// For frames to the far end's own address.
    Address(MacAddr),
    /// For every known unicast frame.
    All,
}

/// `ports[port]`.
pub(crate) fn port_row(port: &PortState, ifindex: u32, facts: &PortFacts) -> abi::Port {
    let mut flags = 0;
    let mut flag = |on: bool, bit: u32| flags |= if on { bit } else { 0 };
    flag(port.enabled && ifindex != 0, abi::PORT_ENABLED);
    flag(port.access, abi::PORT_ACCESS);
    flag(port.isolated, abi::PORT_ISOLATED);
    flag(matches!(port.kind, PortKind::Svi(_)), abi::PORT_SVI);
    flag(matches!(facts.peer, PeerDelivery::Address(_)), abi::PORT_PEER);
    flag(facts.peer == PeerDelivery::All, abi::PORT_PEER_ALL);
    flag(facts.xdp_tx, abi::PORT_XDP_TX);
    abi::Port {
        ifindex,
        flags,
        pvid: port.pvid.map_or(0, VlanId::get),
        tpid: port.tpid.ethertype().unwrap_or(0),
        form: port.tpid as u8,
        max_len: port.mtu.saturating_add((HEADER_LEN + TAG_LEN) as u32),
        peer_mac: if let PeerDelivery::Address(mac) = facts.peer { abi::raw_mac(mac) } else { 0 },
        ..abi::Port::default()
    }
}

/// A port's spanning-tree states, by instance.
pub(crate) struct StpStates([StpState; InstanceId::MAX]);

impl StpStates {
    /// Those of `port`.
    pub(crate) fn of(state: &PlaneState, port: PortId) -> Self {
        let mut states = [StpState::Forwarding; InstanceId::MAX];
        if !state.stp.is_empty() {
            for (at, slot) in states.iter_mut().enumerate() {
                let instance = u8::try_from(at).ok().and_then(InstanceId::new).unwrap_or_default();
                *slot = state.stp.get(&(instance, port)).copied().unwrap_or_default();
            }
        }
        Self(states)
    }
}

/// The VLANs by number, for the loops over all of them.
pub(crate) struct VlanView(Vec<Option<(bool, InstanceId)>>);

impl VlanView {
    /// Every VLAN of `state`.
    pub(crate) fn of(state: &PlaneState) -> Self {
        let mut slots = vec![None; abi::VLANS];
        state.vlans.iter().for_each(|(id, vlan)| slots[id.index()] = Some((vlan.learning, vlan.instance)));
        Self(slots)
    }
    /// `vlan` alone.
    pub(crate) fn one(state: &PlaneState, vlan: VlanId) -> Self {
        let mut slots = vec![None; vlan.index() + 1];
        slots[vlan.index()] = state.vlans.get(&vlan).map(|vlan| (vlan.learning, vlan.instance));
        Self(slots)
    }

    /// A (port, VLAN) pair. `live`: the port is enabled and has a netdev.
    pub(crate) fn pair(&self, port: &PortState, live: bool, stp: &StpStates, vlan: VlanId) -> Pair {
        let (tagged, untagged) = (port.tagged.contains(vlan), port.untagged.contains(vlan));
        let member = tagged || untagged;
        let (active, learns, tree) = match self.0.get(vlan.index()).copied().flatten() {
            Some((learns, instance)) => (true, learns, stp.0[instance.index()]),
            None => (false, false, StpState::Forwarding),
        };
        let learns = learns && port.learning && !matches!(port.kind, PortKind::Svi(_));
        let mut bits = 0;
        let mut bit = |on: bool, value: u8| bits |= if on { value } else { 0 };
        bit(member, abi::PV_MEMBER);
        bit(untagged, abi::PV_UNTAGGED);
        bit(learns && tree != StpState::Discarding, abi::PV_LEARN);
        bit(tree == StpState::Forwarding, abi::PV_FORWARD);
        bit(active, abi::PV_ACTIVE);
        bit(tree == StpState::Learning, abi::PV_STP_LEARNING);
        let form = if untagged { Tpid::None as usize } else { port.tpid as usize };
        Pair { bits, flood: (live && member && active && tree == StpState::Forwarding).then_some(form) }
    }
}

/// What one (port, VLAN) pair comes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    /// The byte of `port_vlans[port]`.
    pub bits: u8,
    /// The set of `vlan_ports[vlan]` the port is in.
    pub flood: Option<usize>,
}

/// `global[0]`.
pub(crate) fn global(state: &PlaneState) -> abi::Global {
    let mut row = abi::Global { trap_pvst: state.global.trap_pvst.into(), ..abi::Global::default() };
    for (slot, action) in row.reserved.iter_mut().zip(state.global.reserved) {
        *slot = action as u8;
    }
    let word = |port: &PortId| (port.index() / 64) as u16;
    row.first_word = state.ports.first_key_value().map_or(0, |(port, _)| word(port));
    row.end_word = state.ports.last_key_value().map_or(0, |(port, _)| word(port) + 1);
    for (id, port) in &state.ports {
        let mark = |on: bool, set: &mut [u64; abi::PORT_WORDS]| {
            set[id.index() / 64] |= u64::from(on) << (id.index() % 64);
        };
        mark(port.isolated, &mut row.isolated);
        mark(!port.flood_unicast, &mut row.no_unicast);
        mark(!port.flood_multicast, &mut row.no_multicast);
    }
    row
}

/// Interval and tolerance of a trap group's clock, in nanoseconds.
pub(crate) fn trap_rate(rate: &TrapRate) -> (u64, u64) {
    if rate.rate_pps == 0 || rate.burst == 0 {
        return (0, 0);
    }
    let interval = 1_000_000_000 / u64::from(rate.rate_pps);
    (interval.max(1), interval.saturating_mul(u64::from(rate.burst) - 1))
}

/// A control-plane entry's value; the programs do not date it.
pub(crate) fn fdb_value(target: FdbTarget) -> u64 {
    let kind = match target {
        FdbTarget::Static(_) | FdbTarget::Blackhole => FdbKind::Static,
        FdbTarget::Sticky(_) => FdbKind::Sticky,
        FdbTarget::SelfAddress(_) => FdbKind::SelfAddress,
    };
    abi::FdbValue { updated_s: 0, port: target.port().map_or(0, PortId::get), kind: kind as u8 }.raw()
}

/// The target of a control-plane entry's value; `None` for a dynamic entry.
pub(crate) fn fdb_target(value: abi::FdbValue) -> Option<FdbTarget> {
    let kind = abi::fdb_kind(value.kind)?;
    Some(match (kind, PortId::new(value.port)) {
        (FdbKind::Dynamic, _) => return None,
        (_, None) => FdbTarget::Blackhole,
        (FdbKind::Static, Some(port)) => FdbTarget::Static(port),
        (FdbKind::Sticky, Some(port)) => FdbTarget::Sticky(port),
        (FdbKind::SelfAddress, Some(port)) => FdbTarget::SelfAddress(port),
    })
}
