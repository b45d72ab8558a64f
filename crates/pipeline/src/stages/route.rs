//! route: frames for the router's own addresses: header checks, longest match, next hop, rewrite.
//!
//! Read first: RFC 1812, 5.2 and 5.3; RFC 8200, 3 and 4; RFC 3704 (reverse path). The order of the checks is that of
//! [`run`]: header, martians, options, reverse path, longest match, TTL, next hop, MTU.
//!
//! A packet that the plane can't handle goes to the kernel unchanged, with a reason, and the kernel handles it. A frame
//! that leaves by its ingress interface is forwarded, and no ICMP redirect is sent for it: only the kernel sends
//! redirects, for packets that it forwards itself. Invariant: this stage has no effect on a frame that is not addressed
//! to the router.

use super::Arrival;
use super::parse::Parsed;
use super::trap;
use super::vlan_ingress::{Class, PRIORITY_VID};
use crate::route::{RifAttachment, RifState, RouteTarget, Urpf, flow_bucket};
use crate::state::{PortKind, PortState};
use crate::tables::Tables;
use crate::trace::{Fact, Notes, Verdict};
use ipnet::IpNet;
use lanyard_types::{AdjacencyId, DropReason, MacAddr, PortId, RifId, Stage, TrapReason, VlanId, VrfId};
use lanyard_wire::ip::{IPV4, IPV6, IpHeader};
use lanyard_wire::{Frame, HEADER_LEN, TAG_LEN};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The way of a frame after this stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onward {
    /// It is not for the router and is bridged unchanged.
    Bridge,
    /// It is routed.
    Routed {
        /// The rewrite before it leaves.
        rewrite: Rewrite,
        /// The adjacency that it goes to.
        adjacency: AdjacencyId,
        /// The route that matched.
        route: (VrfId, IpNet),
        /// The VLAN or port by which it leaves.
        out: Out,
    },
    /// It comes from the host's end of a subinterface and leaves by the routed port.
    FromHost(Out),
    /// It goes to the kernel.
    Up {
        /// The reason.
        reason: TrapReason,
        /// The pipeline's end of the host's interface; `None` means the stack of the ingress netdev.
        port: Option<PortId>,
    },
}

/// The VLAN or port by which a routed frame leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    /// It is bridged in this VLAN.
    Vlan(VlanId),
    /// It leaves by this routed port.
    Port {
        /// The port.
        port: PortId,
        /// A subinterface's tag.
        tag: Option<VlanId>,
    },
}

/// The changes to a routed frame: its addresses, and a TTL or hop limit that is one less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewrite {
    /// The next hop's MAC address.
    pub dst: MacAddr,
    /// The router interface's MAC address.
    pub src: MacAddr,
}

/// Decides whether the frame is routed, and how.
pub(super) fn run(
    tables: &Tables,
    arrival: &Arrival<'_>,
    ingress: &PortState,
    frame: &Parsed,
    class: Option<&Class>,
    notes: &mut Notes,
) -> Result<Onward, Verdict> {
    let (rif, up) = match ingress.kind {
        PortKind::Subinterface { parent, vlan } => {
            notes.say(Stage::Route, || Fact::FromHost { parent: tables.ports.name(parent), vlan });
            return Ok(Onward::FromHost(Out::Port { port: parent, tag: Some(vlan) }));
        }
        PortKind::Svi(_) => return Ok(Onward::Bridge),
        PortKind::Netdev => {
            let Some((id, rif)) =
                class.and_then(|class| tables.rifs.on_vlan(tables.vlans.routed(class.vlan)))
            else {
                return Ok(Onward::Bridge);
            };
            (Some((id, rif)), None)
        }
        PortKind::Routed => {
            match frame.tag.map_or(PRIORITY_VID, |tag| tag.vid) {
                PRIORITY_VID => (tables.rifs.on_port(arrival.port), None),
                vid => {
                    let end = VlanId::new(vid).and_then(|vlan| tables.ports.subinterface(arrival.port, vlan));
                    // Without a subinterface for the tag, the kernel's stack of the netdev handles the frame.
                    (end.and_then(|end| tables.rifs.on_port(end)), end)
                }
            }
        }
    };
    let ethertype = inner_ethertype(arrival, frame);
    let ours = rif.filter(|(_, rif)| is_for(rif, frame.dst) && routes(rif, ethertype));
    match (ours, class) {
        (Some((id, rif)), _) => {
            notes.say(Stage::Route, || Fact::ForRouter(rif.name.clone()));
            let ingress = Ingress { tables, id, rif, up: rif.attachment.up() };
            ingress.route(arrival, frame, ethertype, notes)
        }
        (None, Some(_)) => Ok(Onward::Bridge),
        (None, None) => {
            let packet = arrival.bytes.get(l3_offset(frame)..).unwrap_or_default();
            let reason = trap::host_reason(frame.dst, ethertype, packet).unwrap_or(TrapReason::HostStack);
            Ok(to_kernel(tables, reason, up, notes))
        }
    }
}

/// The EtherType of the packet; 0 if the frame ends before it.
pub(super) fn inner_ethertype(arrival: &Arrival<'_>, frame: &Parsed) -> u16 {
    let at = l3_offset(frame) - 2;
    arrival.bytes.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// The offset of the packet: behind the recognised tag.
pub(super) fn l3_offset(frame: &Parsed) -> usize {
    HEADER_LEN + if frame.tag.is_some() { TAG_LEN } else { 0 }
}

pub(super) fn is_for(rif: &RifState, dst: MacAddr) -> bool {
    rif.mac == dst || rif.virtual_macs.contains(&dst)
}

fn routes(rif: &RifState, ethertype: u16) -> bool {
    match ethertype {
        IPV4 => rif.ipv4,
        IPV6 => rif.ipv6,
        _ => false,
    }
}

/// Records that the frame goes to the kernel, and where.
fn to_kernel(tables: &Tables, reason: TrapReason, port: Option<PortId>, notes: &mut Notes) -> Onward {
    notes.say(Stage::Route, || Fact::Up { reason, port: port.map(|port| tables.ports.name(port)) });
    Onward::Up { reason, port }
}

/// The interface that received a frame for the router.
struct Ingress<'t> {
    tables: &'t Tables,
    id: RifId,
    rif: &'t RifState,
    up: Option<PortId>,
}

impl Ingress<'_> {
    fn route(
        &self,
        arrival: &Arrival<'_>,
        frame: &Parsed,
        ethertype: u16,
        notes: &mut Notes,
    ) -> Result<Onward, Verdict> {
        let packet = arrival.bytes.get(l3_offset(frame)..).unwrap_or_default();
        let segmented = arrival.longest < arrival.bytes.len();
        let header = IpHeader::read(ethertype, packet, segmented)
            .map_err(|_| Verdict::Dropped(DropReason::IpHeaderInvalid))?;
        let up = |reason, notes: &mut Notes| {
            let discovers = reason == TrapReason::LocalAddress && trap::is_neighbour(ethertype, packet);
            let reason = if discovers { TrapReason::Neighbour } else { reason };
            Ok(to_kernel(self.tables, reason, self.up, notes))
        };
        if is_group(header.dst) {
            return up(TrapReason::Martian, notes);
        }
        if is_martian(header.src) || is_group(header.src) || is_martian(header.dst) {
            return Err(Verdict::Dropped(DropReason::Martian));
        }
        if self.is_own(header.src) {
            return Err(Verdict::Dropped(DropReason::MartianSource));
        }
        let link_local = is_link_local(header.src);
        // The kernel would forward a packet with a link-local IPv4 address, which RFC 3927, 2.7 forbids.
        let stays = header.src.is_ipv4() && (link_local || is_link_local(header.dst));
        if header.options {
            return if stays {
                Err(Verdict::Dropped(DropReason::Martian))
            } else {
                up(TrapReason::IpOptions, notes)
            };
        }
        if !link_local && !self.reverse_path(header.src) {
            return Err(Verdict::Dropped(DropReason::UrpfFailed));
        }
        if header.dst.is_ipv6() && is_link_local(header.dst) {
            // No router forwards a packet to a link-local address. The kernel gets it, because every interface has such an
            // address.
            return up(TrapReason::LocalAddress, notes);
        }
        let found = self.tables.routes.longest(self.rif.vrf, header.dst);
        notes.say(Stage::Route, || Fact::Route { dst: header.dst, found });
        let target = found.map(|(_, target)| target);
        let prefix = found.map_or_else(|| header.dst.into(), |(prefix, _)| prefix);
        if stays && target != Some(RouteTarget::Up(TrapReason::LocalAddress)) {
            return Err(Verdict::Dropped(DropReason::Martian));
        }
        let group = match target {
            None => return up(TrapReason::NoRoute, notes),
            Some(RouteTarget::Up(reason)) => return up(reason, notes),
            Some(RouteTarget::Connected(_)) => return up(TrapReason::Glean, notes),
            Some(RouteTarget::Blackhole) => return Err(Verdict::Dropped(DropReason::RouteBlackhole)),
            Some(RouteTarget::Group(group)) => group,
        };
        if link_local {
            return up(TrapReason::Martian, notes);
        }
        if header.ttl <= 1 {
            return up(TrapReason::TtlExpired, notes);
        }
        let buckets = self.tables.routes.buckets(group);
        let bucket = flow_bucket(self.tables.salt, &header, buckets.len());
        let Some(adjacency) = buckets.get(bucket).copied() else { return up(TrapReason::Glean, notes) };
        notes.say(Stage::Route, || Fact::NextHop { group, bucket, buckets: buckets.len(), adjacency });
        let neighbour = self.tables.routes.adjacency(adjacency);
        let egress =
            neighbour.and_then(|neighbour| Some((self.tables.rifs.get(neighbour.rif)?, neighbour.mac?)));
        let Some((egress, mac)) = egress else { return up(TrapReason::Glean, notes) };
        let len = if segmented { frame.untagged_len.saturating_sub(HEADER_LEN) } else { header.len };
        if len > egress.mtu as usize {
            return up(TrapReason::RouteMtu, notes);
        }
        notes.say(Stage::Route, || Fact::Rewritten { mac, rif: egress.name.clone(), ttl: header.ttl - 1 });
        let out = match egress.attachment {
            RifAttachment::Vlan { vlan, .. } => Out::Vlan(vlan),
            RifAttachment::Port(port) => Out::Port { port, tag: None },
            RifAttachment::Subinterface { parent, vlan, .. } => Out::Port { port: parent, tag: Some(vlan) },
        };
        let route = (self.rif.vrf, prefix);
        Ok(Onward::Routed { rewrite: Rewrite { dst: mac, src: egress.mac }, adjacency, route, out })
    }

    /// True for an address of the switch in the interface's routing table. No packet from a wire has such a source (RFC
    /// 1812, 5.3.7).
    fn is_own(&self, address: IpAddr) -> bool {
        let found = self.tables.routes.longest(self.rif.vrf, address);
        matches!(found, Some((_, RouteTarget::Up(TrapReason::LocalAddress))))
    }

    /// True if the source passes the reverse path check of the interface (RFC 3704, 2.2 to 2.4).
    fn reverse_path(&self, src: IpAddr) -> bool {
        let urpf = if src.is_ipv4() { self.rif.urpf_ipv4 } else { self.rif.urpf_ipv6 };
        if urpf == Urpf::Off {
            return true;
        }
        let routes = &self.tables.routes;
        match routes.longest(self.rif.vrf, src).map(|(_, target)| target) {
            None | Some(RouteTarget::Blackhole) => false,
            // The plane cannot check a source behind a route that only the kernel carries out, so it passes.
            // The source in a connected subnet is reachable.
            Some(RouteTarget::Up(reason)) => matches!(reason, TrapReason::RoutePolicy | TrapReason::Glean),
            Some(RouteTarget::Connected(rif)) => urpf == Urpf::Loose || rif == self.id,
            Some(RouteTarget::Group(group)) => {
                let leads_here = |id: &AdjacencyId| {
                    routes.adjacency(*id).is_some_and(|adjacency| adjacency.rif == self.id)
                };
                urpf == Urpf::Loose || routes.buckets(group).iter().any(leads_here)
            }
        }
    }
}

/// True for a multicast address or the limited broadcast address.
fn is_group(address: IpAddr) -> bool {
    address.is_multicast() || address == Ipv4Addr::BROADCAST
}

/// True for an address that no packet on a wire may have (RFC 1812, 5.3.7; RFC 4291, 2.5.2, 2.5.3 and
/// 2.5.5.2).
fn is_martian(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets()[0], 0 | 127 | 240..),
        IpAddr::V6(address) => {
            matches!(address, Ipv6Addr::UNSPECIFIED | Ipv6Addr::LOCALHOST)
                || address.to_ipv4_mapped().is_some()
        }
    }
}

/// True for an address that is valid on one link only (RFC 3927, RFC 4291); no router forwards from or to it.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => Ipv4Addr::is_link_local(&address),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

impl Rewrite {
    /// Carries the rewrite out on a frame with or without a recognised tag.
    pub(crate) fn apply(&self, frame: &mut [u8], has_tag: bool) {
        if Frame::new(frame).is_ok() {
            frame[..6].copy_from_slice(&self.dst.0);
            frame[6..12].copy_from_slice(&self.src.0);
            lanyard_wire::ip::decrement_ttl(frame, HEADER_LEN + if has_tag { TAG_LEN } else { 0 });
        }
    }
}
