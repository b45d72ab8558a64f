//! Converts a [`PlaneState`] to rows of the tables, with one pure function for each table.
//!
//! Invariant: a row depends on the state and on [`PortFacts`] alone, so writing it twice has no
//! further effect, and a table can be corrected from any content.

use crate::abi;
use crate::attach::Held;
use crate::facts::{self, Kind, Peer, Seen, XdpForm};
use crate::stages::guard::PORT_GUARD;
use crate::{qos, stages};
use lanyard_netdev::XdpFeatures;
use lanyard_pipeline::route::{RifAttachment, RifState, Urpf, VIRTUAL_MACS};
use lanyard_pipeline::state::{
    Aggregation, CHANNEL_BUCKETS, ChannelMembers, FdbTarget, PlaneState, PortKind, PortState, StpState, Tpid,
    VlanState,
};
use lanyard_plane::FdbKind;
use lanyard_types::{ChannelId, InstanceId, PortId, RifId, VlanId, VlanSet, VrfId};
use lanyard_wire::{HEADER_LEN, TAG_LEN};
use zerocopy::FromZeros;

/// The largest MTU in bytes with which each frame reaches XDP of a veth in one buffer. The driver
/// copies a frame that is not in one buffer into pages, and the first page has room for 3,520 bytes
/// of it (`veth_convert_skb_to_xdp_buff`: a page without headroom and the description).
const ONE_BUFFER_MTU: u32 = 3000;

/// Facts about a port's netdev, which are not part of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortFacts {
    /// The frames that are delivered by `bpf_redirect_peer`, or why none are.
    pub peer: Result<Peer, String>,
    /// The far end: the id of its namespace (netnsid), and its ifindex there.
    pub far: Option<(i32, u32)>,
    /// True if XDP may redirect frames to the port.
    pub xdp_tx: bool,
    /// Why XDP may not redirect frames to the port, although the port could take them.
    pub no_redirect: Option<String>,
    /// The description of an nftables chain at the netdev, which forwarded frames do not pass; `None` if there is none.
    pub unfiltered: Option<String>,
    /// True if the port accepts frames of several buffers that XDP redirects.
    pub xdp_sg: bool,
    /// True if the port accepts frames that XDP redirects only as long as its far end, which others own,
    /// runs NAPI.
    pub leased: bool,
    /// True if XDP at the port sees VLAN tags only while tag parsing (`rxvlan`) is off, which any administrator can change.
    pub leased_tags: bool,
    /// True if XDP receives each frame of the port in one buffer.
    pub whole: bool,
    /// True if XDP receives frames that may lack their transport checksum.
    pub partial: bool,
}

impl PortFacts {
    /// Derives the facts for `port` from the kernel's report and the attached hooks.
    pub(crate) fn of(port: &PortState, seen: &Seen, held: Held) -> Self {
        let scattered = XdpFeatures(XdpFeatures::NDO_XMIT.0 | XdpFeatures::NDO_XMIT_SG.0);
        let no_redirect = facts::no_redirect(port.delivery, seen);
        let takes = seen.xdp.is_some_and(|xdp| xdp.features.has(XdpFeatures::NDO_XMIT));
        Self {
            peer: facts::peer(port.delivery, seen),
            far: seen.far.as_ref().ok().map(|far| (far.netnsid, far.ifindex)),
            xdp_tx: takes && no_redirect.is_none(),
            no_redirect: no_redirect.filter(|_| takes),
            unfiltered: None,
            xdp_sg: seen.xdp.is_some_and(|xdp| xdp.features.has(scattered)),
            leased: seen.kind == Kind::Veth,
            leased_tags: held.xdp == Some(XdpForm::Plain) && seen.may_parse,
            whole: seen.kind == Kind::Veth && seen.mtu <= ONE_BUFFER_MTU,
            partial: held.xdp.is_some() && seen.kind.leaves_checksums(),
        }
    }

    /// The lines of `show interfaces` about these facts.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        match (&self.peer, self.far) {
            (Ok(peer), _) => {
                let which = if peer.any { "Unicast" } else { "Unicast for the other end's own address" };
                notes.push(format!(
                    "{which} is handed to the other end directly: a packet capture at this netdev shows received frames only"
                ));
            }
            (Err(why), Some(_)) => notes.push(format!("Frames leave through the device: {why}")),
            (Err(_), None) => {}
        }
        if let Some(chain) = &self.unfiltered {
            notes.push(format!("Forwarded frames do not pass the {chain}: use an access list"));
        }
        if self.partial {
            notes.push("Frames whose checksum the host has left to the device are forwarded by TC".into());
        }
        notes
    }
}

impl Default for PortFacts {
    /// A port without a netdev.
    fn default() -> Self {
        Self {
            peer: Err("it has no netdev".into()),
            far: None,
            xdp_tx: false,
            no_redirect: None,
            unfiltered: None,
            xdp_sg: false,
            leased: false,
            leased_tags: false,
            whole: false,
            partial: false,
        }
    }
}

/// `ports[port]`; `rif` is the router interface of a routed port. `more`: the flags of [`crate::acl::flags`].
pub(crate) fn port_row(
    port: &PortState,
    ifindex: u32,
    facts: &PortFacts,
    rif: u16,
    sets: &VlanSets,
    more: u32,
) -> abi::Port {
    let mut flags = 0;
    let mut flag = |on: bool, bit: u32| flags |= if on { bit } else { 0 };
    let channel = port.aggregation.channel();
    flag(port.enabled && (ifindex != 0 || channel.is_some()), abi::PORT_ENABLED);
    flag(port.access, abi::PORT_ACCESS);
    flag(port.isolated, abi::PORT_ISOLATED);
    flag(matches!(port.kind, PortKind::Svi(_)), abi::PORT_SVI);
    flag(port.kind == PortKind::Routed, abi::PORT_ROUTED);
    let (mut parent, tag) = match port.kind {
        PortKind::Subinterface { parent, vlan } => (parent.get(), Some(vlan)),
        _ => (0, None),
    };
    flag(parent != 0, abi::PORT_SUB);
    let mut number = channel.map_or(0, ChannelId::get);
    flag(number != 0, abi::PORT_CHANNEL);
    if let Aggregation::Member { of, channel } = port.aggregation {
        flag(true, abi::PORT_MEMBER);
        (parent, number) = (of.get(), channel.get());
    }
    flag(facts.peer.is_ok(), abi::PORT_PEER);
    flag(facts.peer.as_ref().is_ok_and(|peer| peer.any), abi::PORT_PEER_ANY);
    flag(facts.partial, abi::PORT_PARTIAL);
    flag(facts.xdp_tx, abi::PORT_XDP_TX);
    flag(facts.xdp_tx && facts.xdp_sg, abi::PORT_XDP_SG);
    flag(facts.leased, abi::PORT_LEASED);
    flag(facts.leased_tags, abi::PORT_LEASED_TAGS);
    flag(facts.whole, abi::PORT_WHOLE);
    // A private port receives in its PVID, of which it need not be a member.
    let carried = port.pvid.into_iter().collect::<VlanSet>().union(&port.tagged).union(&port.untagged);
    flag(!carried.intersection(&sets.snooped).is_empty(), abi::PORT_SNOOP);
    flag(port.private || !carried.intersection(&sets.secondary).is_empty(), abi::PORT_PRIVATE);
    let bridges = matches!(port.kind, PortKind::Netdev | PortKind::Svi(_));
    flag(bridges && !carried.intersection(&sets.guarded).is_empty(), PORT_GUARD);
    flag(port.tunnelled.stp, abi::PORT_TUNNEL_STP);
    flag(port.tunnelled.cdp, abi::PORT_TUNNEL_CDP);
    flag(port.tunnelled.lldp, abi::PORT_TUNNEL_LLDP);
    abi::Port {
        ifindex,
        flags: flags | stages::flags(port) | more,
        pvid: tag.or(port.pvid).map_or(0, VlanId::get),
        tpid: port.tpid.ethertype().unwrap_or(0),
        form: port.tpid as u8,
        channel: number,
        private: port.private.into(),
        qos: qos::bits(port),
        max_len: port.mtu.saturating_add((HEADER_LEN + TAG_LEN) as u32),
        rif,
        parent,
        peer_mac: facts.peer.as_ref().map_or(0, |peer| abi::raw_mac(peer.mac)),
    }
}

/// `channels[number]`.
pub(crate) fn channel_row(members: Option<&ChannelMembers>) -> abi::Channel {
    let mut row = abi::Channel::new_zeroed();
    let Some(members) = members else { return row };
    for port in &members.collecting {
        row.collecting[port.index() / 64] |= 1 << (port.index() % 64);
    }
    row.member.iter_mut().zip(&members.buckets).for_each(|(to, port)| *to = port.get());
    row
}

/// Converts a row of `channels` back; `None` for one that is not in use.
pub(crate) fn channel_of(row: &abi::Channel) -> Option<ChannelMembers> {
    let collects = |port: &PortId| row.collecting[port.index() / 64] >> (port.index() % 64) & 1 == 1;
    let collecting = PortId::all().filter(collects).collect();
    let buckets: Vec<PortId> = row.member.iter().filter_map(|port| PortId::new(*port)).collect();
    // If a bucket has no member, a daemon ended while it wrote the row: the protocols set it anew.
    let whole = if buckets.len() == CHANNEL_BUCKETS { buckets } else { Vec::new() };
    let members = ChannelMembers { collecting, buckets: whole };
    (members != ChannelMembers::default()).then_some(members)
}

/// By instance: a port's spanning-tree state, and whether the watchdog may block the port.
pub(crate) struct StpStates([StpState; InstanceId::MAX], [bool; InstanceId::MAX]);

impl StpStates {
    /// The spanning-tree states of `port`.
    pub(crate) fn of(state: &PlaneState, port: PortId) -> Self {
        let mut states = [StpState::Forwarding; InstanceId::MAX];
        let mut watched = [false; InstanceId::MAX];
        if !state.stp.is_empty() || !state.watched.is_empty() {
            for (at, (slot, watched)) in states.iter_mut().zip(&mut watched).enumerate() {
                let instance = u8::try_from(at).ok().and_then(InstanceId::new).unwrap_or_default();
                *slot = state.stp.get(&(instance, port)).copied().unwrap_or_default();
                *watched = state.watched.contains(&(instance, port));
            }
        }
        Self(states, watched)
    }
}

/// By number of a VLAN: whether it learns, and its instance, or `None` if it does not exist; in an array, for loops over all
/// VLANs. And the VLANs whose frames reach a router interface.
pub(crate) struct VlanView(Vec<Option<(bool, InstanceId)>>, VlanSet);

impl VlanView {
    /// Every VLAN of `state`.
    pub(crate) fn of(state: &PlaneState) -> Self {
        let mut slots = vec![None; abi::VLANS];
        state.vlans.iter().for_each(|(id, vlan)| slots[id.index()] = Some((vlan.learning, vlan.instance)));
        Self(slots, routed_vlans(state))
    }
    /// Only `vlan` of `state`.
    pub(crate) fn one(state: &PlaneState, vlan: VlanId) -> Self {
        let mut slots = vec![None; vlan.index() + 1];
        slots[vlan.index()] = state.vlans.get(&vlan).map(|vlan| (vlan.learning, vlan.instance));
        Self(slots, routed_vlans(state))
    }

    /// Lowers a (port, VLAN) pair. `live`: the port is enabled and has a netdev.
    pub(crate) fn pair(&self, port: &PortState, live: bool, stp: &StpStates, vlan: VlanId) -> Pair {
        let (tagged, untagged) = (port.tagged.contains(vlan), port.untagged.contains(vlan));
        let member = tagged || untagged;
        let (active, learns, tree, watched) = match self.0.get(vlan.index()).copied().flatten() {
            Some((learns, instance)) => (true, learns, stp.0[instance.index()], stp.1[instance.index()]),
            None => (false, false, StpState::Forwarding, false),
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
        bit(port.kind == PortKind::Netdev && self.1.contains(vlan), abi::PV_ROUTES);
        bit(watched && (member || port.private && port.pvid == Some(vlan)), abi::PV_WATCHED);
        let form = if untagged { Tpid::None as usize } else { port.tpid as usize };
        Pair { bits, flood: (live && member && active && tree == StpState::Forwarding).then_some(form) }
    }
}

/// The VLANs whose settings set flags at the ports in them. One value is made for all ports, because making it reads every VLAN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VlanSets {
    /// The VLANs whose groups are snooped. A secondary private VLAN has the groups of its primary VLAN, and is snooped with it.
    snooped: VlanSet,
    /// The VLANs with first-hop security. A secondary private VLAN has the settings of its primary VLAN.
    guarded: VlanSet,
    /// The secondary private VLANs, which share the addresses of their primary VLAN.
    secondary: VlanSet,
}

impl VlanSets {
    /// The sets of `state`.
    pub(crate) fn of(state: &PlaneState) -> Self {
        let mut sets = Self::default();
        for (id, vlan) in &state.vlans {
            if vlan.shares.is_some() {
                sets.secondary.insert(*id);
            }
            let primary = vlan.shares.map_or(Some(vlan), |shares| state.vlans.get(&shares.primary));
            if primary.is_some_and(|primary| primary.snooping.iter().any(Option::is_some)) {
                sets.snooped.insert(*id);
            }
            if primary.is_some_and(|primary| !primary.guard.is_off()) {
                sets.guarded.insert(*id);
            }
        }
        sets
    }
    /// The VLANs that are in these sets or in `other`.
    pub(crate) fn union(&self, other: &Self) -> Self {
        Self {
            snooped: self.snooped.union(&other.snooped),
            guarded: self.guarded.union(&other.guarded),
            secondary: self.secondary.union(&other.secondary),
        }
    }
}

/// The secondary private VLANs whose frames reach the router interface of `primary`.
pub(crate) fn routed_with(state: &PlaneState, primary: VlanId) -> impl Iterator<Item = VlanId> + '_ {
    let with =
        move |vlan: &VlanState| vlan.shares.is_some_and(|shares| shares.routed && shares.primary == primary);
    state.vlans.iter().filter(move |(_, vlan)| with(vlan)).map(|(id, _)| *id)
}

fn routed_vlans(state: &PlaneState) -> VlanSet {
    let vlan = |rif: &RifState| match rif.attachment {
        RifAttachment::Vlan { vlan, .. } => Some(vlan),
        _ => None,
    };
    let own: VlanSet = state.rifs.values().filter_map(vlan).collect();
    own.iter().flat_map(|vlan| routed_with(state, vlan).chain([vlan])).collect()
}

/// `rifs[rif]`.
pub(crate) fn rif_row(rif: &RifState) -> abi::Rif {
    let (port, vlan, up) = match rif.attachment {
        RifAttachment::Vlan { vlan, up } => (0, vlan.get(), up.get()),
        RifAttachment::Port(port) => (port.get(), 0, 0),
        RifAttachment::Subinterface { parent, vlan, up } => (parent.get(), vlan.get(), up.get()),
    };
    let mut flags = abi::RIF_LIVE | (rif.urpf_ipv4 as u8 | (rif.urpf_ipv6 as u8) << 2) << abi::RIF_URPF_SHIFT;
    flags |= if rif.ipv4 { abi::RIF_IPV4 } else { 0 } | if rif.ipv6 { abi::RIF_IPV6 } else { 0 };
    flags |= if rif.while_confirmed { abi::RIF_CONFIRMED } else { 0 };
    let mut row = abi::Rif {
        mac: abi::raw_mac(rif.mac),
        mtu: rif.mtu,
        port,
        vlan,
        up,
        vrf: rif.vrf.get(),
        flags,
        virtuals: rif.virtual_macs.len().min(VIRTUAL_MACS) as u8,
        ..abi::Rif::default()
    };
    row.virtual_mac.iter_mut().zip(&rif.virtual_macs).for_each(|(to, mac)| *to = abi::raw_mac(*mac));
    row
}

/// `vlan_rifs[vlan]`.
pub(crate) fn vlan_rif(id: RifId, rif: &RifState) -> u64 {
    let more = if rif.virtual_macs.is_empty() { 0 } else { abi::VLAN_RIF_VIRTUAL };
    u64::from(id.get()) << 48 | abi::raw_mac(rif.mac) | more
}

/// Converts a row back to a router interface, as far as it contains the data; `name` becomes its
/// name.
pub(crate) fn rif_of(row: &abi::Rif, name: String) -> Option<RifState> {
    let (port, vlan, up) = (PortId::new(row.port), VlanId::new(row.vlan), PortId::new(row.up));
    let attachment = match (port, vlan, up) {
        (None, Some(vlan), Some(up)) => RifAttachment::Vlan { vlan, up },
        (Some(port), None, None) => RifAttachment::Port(port),
        (Some(parent), Some(vlan), Some(up)) => RifAttachment::Subinterface { parent, vlan, up },
        _ => return None,
    };
    let urpf = |shift: u8| match row.flags >> abi::RIF_URPF_SHIFT >> shift & 3 {
        1 => Urpf::Loose,
        2 => Urpf::Strict,
        _ => Urpf::Off,
    };
    let virtuals = row.virtual_mac.iter().take(row.virtuals.into());
    (row.flags & abi::RIF_LIVE != 0).then(|| RifState {
        name,
        vrf: VrfId::new(row.vrf).unwrap_or(VrfId::DEFAULT),
        attachment,
        mac: abi::mac_of(row.mac),
        virtual_macs: virtuals.map(|raw| abi::mac_of(*raw)).collect(),
        mtu: row.mtu,
        ipv4: row.flags & abi::RIF_IPV4 != 0,
        ipv6: row.flags & abi::RIF_IPV6 != 0,
        urpf_ipv4: urpf(0),
        urpf_ipv6: urpf(2),
        while_confirmed: row.flags & abi::RIF_CONFIRMED != 0,
    })
}

/// The lowered form of a (port, VLAN) pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    /// The byte of `port_vlans[port]`.
    pub bits: u8,
    /// The index of the flood set in `vlan_ports[vlan]` that contains the port.
    pub flood: Option<usize>,
}

/// `global[0]`.
pub(crate) fn global(state: &PlaneState) -> abi::Global {
    let mut row = abi::Global::new_zeroed();
    row.trap_pvst = u8::from(!state.global.trap_pvst.is_empty());
    row.trap_cdp = u8::from(state.global.trap_cdp);
    row.balance = balance(state);
    for vlan in state.global.trap_pvst.iter() {
        row.pvst_vlans[vlan.index() / 64] |= 1 << (vlan.index() % 64);
    }
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

/// `ly_global.balance`.
fn balance(state: &PlaneState) -> u8 {
    let by = state.global.load_balance;
    let used = state.ports.values().any(|port| port.aggregation.channel().is_some());
    let flag = |on: bool, bit: u8| if on { bit } else { 0 };
    by.fields as u8
        | flag(by.source, abi::BALANCE_SRC)
        | flag(by.destination, abi::BALANCE_DST)
        | flag(by.symmetric, abi::BALANCE_SYMMETRIC)
        | flag(used, abi::BALANCE_USED)
}

/// The value of a control-plane entry, which has no time.
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
