//! Builds a [`Trace`] from the journal: the facts that the programs recorded, completed from the tables and
//! the state. The specification reports the same facts; `lanyard_pipeline::trace` describes them in words.

use crate::abi::{self, FdbValue, Journal};
use crate::dry::{DryRun, EmissionKind};
use crate::mdb;
use crate::routing::{Routing, decode};
use crate::tables::Tables;
use lanyard_pipeline::route::{RifAttachment, RifState, RouteTarget};
use lanyard_pipeline::state::{Aggregation, FdbTarget, PlaneState, PortKind, PortState, ReservedAction};
use lanyard_pipeline::trace::{Fact, Flood, TraceStep, Verdict};
use lanyard_plane::{FdbEntry, FdbKind, Trace};
use lanyard_types::{
    AdjacencyId, DropReason, MacAddr, PortId, PortSet, RifId, Stage, TrapReason, TunnelledProtocol, VlanId,
};
use lanyard_wire::group::Packet;
use lanyard_wire::ip::IpHeader;
use lanyard_wire::{Frame, HEADER_LEN, TAG_LEN, Tag, tunnelled_protocol};
use std::net::IpAddr;

/// An FDB entry from its key and value.
pub(crate) fn fdb_entry(key: u64, value: FdbValue, now_s: u32) -> Option<FdbEntry> {
    let (vlan, mac) = abi::split_key(key)?;
    let kind = abi::fdb_kind(value.kind)?;
    // An entry refreshed by a frame after `now_s` was read has age 0.
    let age = now_s.wrapping_sub(value.updated_s);
    let age_s = if kind == FdbKind::Dynamic && age < u32::MAX / 2 { age } else { 0 };
    Some(FdbEntry { vlan, mac, port: PortId::new(value.port), kind, age_s })
}

/// The trace of `frame` that `journal` and `run` describe.
pub(crate) fn trace(
    tables: &Tables,
    routing: &Routing,
    state: &PlaneState,
    port: PortId,
    frame: &[u8],
    journal: &Journal,
    run: DryRun,
) -> Trace {
    let verdict = run.verdict.unwrap_or(Verdict::Forwarded);
    let end = match verdict {
        Verdict::Forwarded => Stage::Count,
        Verdict::Trapped(reason) => reason.stage(),
        Verdict::Dropped(reason) => reason.stage(),
    };
    let received = state.ports.get(&port);
    let port =
        u16::try_from(journal.member).ok().and_then(PortId::new).map_or(port, |_| channel_of(received, port));
    let ingress = state.ports.get(&port);
    let mut stages = Vec::new();
    if let Ok(frame) = Frame::new(frame) {
        let describer =
            Describer { tables, routing, state, port, ingress, received, frame, journal, run: &run, end };
        for stage in Stage::ALL.iter().copied().take_while(|stage| *stage <= end) {
            let facts = describer.facts(stage);
            if !facts.is_empty() {
                stages.push(TraceStep { stage, facts });
            }
        }
    }
    if let Verdict::Dropped(reason) = verdict {
        let fact = Fact::Dropped(reason);
        match stages.last_mut().filter(|last| last.stage == end) {
            Some(last) => last.facts.push(fact),
            None => stages.push(TraceStep { stage: end, facts: vec![fact] }),
        }
    }
    Trace { stages, verdict, egress: run.sent(false), mirrored: run.sent(true) }
}

/// The port-channel of which a port is a member, or the port itself.
fn channel_of(state: Option<&PortState>, port: PortId) -> PortId {
    match state.map(|state| state.aggregation) {
        Some(Aggregation::Member { of, .. }) => of,
        _ => port,
    }
}

struct Describer<'a> {
    tables: &'a Tables,
    routing: &'a Routing,
    state: &'a PlaneState,
    /// The port that received the frame.
    received: Option<&'a PortState>,
    /// The port that received the frame, or its port-channel if that has accepted the frame.
    port: PortId,
    ingress: Option<&'a PortState>,
    frame: Frame<'a>,
    journal: &'a Journal,
    run: &'a DryRun,
    end: Stage,
}

impl Describer<'_> {
    /// The VLAN in which the frame was received, and the VLAN under which the FDB and the MDB have its addresses and groups.
    fn vlans(&self) -> Option<(VlanId, VlanId)> {
        let vlan = VlanId::new(self.journal.vlan)?;
        let shares = self.state.vlans.get(&vlan).and_then(|vlan| vlan.shares);
        Some((vlan, shares.map_or(vlan, |shares| shares.primary)))
    }
    /// The facts of a stage, without the reason of a drop.
    fn facts(&self, stage: Stage) -> Vec<Fact> {
        match stage {
            // A frame that ends at `parse` is not described.
            Stage::Parse if self.end == Stage::Parse => Vec::new(),
            Stage::Parse => vec![self.parse()],
            Stage::Mirror => self.emissions(|kind| kind == EmissionKind::MirroredReceived),
            Stage::Trap => self.trap().into_iter().collect(),
            Stage::Port => self.port(),
            Stage::VlanIngress => self.vlan_ingress().into_iter().collect(),
            Stage::Guard => self.guard().into_iter().collect(),
            Stage::Learn => self.learn().into_iter().collect(),
            Stage::Route => self.route(),
            Stage::Snoop => self.snoop().into_iter().collect(),
            Stage::Bridge => self.bridge().into_iter().collect(),
            Stage::VlanEgress => self.vlan_egress(),
            Stage::Replicate => {
                let copies = self.emissions(|kind| kind != EmissionKind::MirroredReceived);
                self.balanced().into_iter().chain(copies).collect()
            }
            Stage::Count => vec![self.count()],
            // The other stages have no facts: they pass or drop a frame, and `trace` adds the reason.
            _ => Vec::new(),
        }
    }

    /// The frames that are sent, of the kinds that `wanted` chooses.
    fn emissions(&self, wanted: fn(EmissionKind) -> bool) -> Vec<Fact> {
        let chosen = self.run.emitted.iter().filter(|(_, kind, _)| wanted(*kind));
        let fact = |(port, kind, bytes): &(PortId, EmissionKind, Vec<u8>)| match kind {
            EmissionKind::Copy => self.copy(*port, bytes),
            EmissionKind::MirroredReceived | EmissionKind::MirroredSent => {
                Fact::Mirrored { to: self.name(*port) }
            }
        };
        chosen.map(fact).collect()
    }

    fn name(&self, port: PortId) -> String {
        self.state.ports.get(&port).map_or_else(|| format!("port {port}"), |state| state.name.clone())
    }
    fn dropped(&self, reason: DropReason) -> bool {
        self.run.verdict == Some(Verdict::Dropped(reason))
    }
    /// The tag the ingress port recognises.
    fn tag(&self) -> Option<Tag> {
        let tpid = self.received.and_then(|port| port.tpid.ethertype())?;
        self.frame.tag(tpid).ok().flatten()
    }

    fn parse(&self) -> Fact {
        let outer = self.frame.ethertype();
        let tpid = self.received.and_then(|port| port.tpid.ethertype());
        let inner = tpid.and_then(|tpid| self.frame.inner_ethertype(tpid).ok()).unwrap_or(outer);
        Fact::Frame { tag: self.tag(), outer, inner, len: self.frame.bytes().len() }
    }

    fn trap(&self) -> Option<Fact> {
        let dst = self.frame.dst();
        match self.run.verdict {
            Some(Verdict::Trapped(reason)) if reason.stage() == Stage::Trap => {
                Some(Fact::Trapped { dst, reason })
            }
            Some(Verdict::Dropped(_)) if self.end == Stage::Trap => None,
            _ if self.enters_tunnel().is_some() => self.enters_tunnel().map(Fact::EntersTunnel),
            _ => match self.would_trap(dst) {
                Some(reason) if self.end == Stage::Port => Some(Fact::TrapAtDownPort(reason)),
                _ => Some(Fact::NotTrapped),
            },
        }
    }
    /// The reason why a frame for `dst` would be trapped if the port were up.
    fn would_trap(&self, dst: MacAddr) -> Option<TrapReason> {
        match dst.reserved() {
            Some(nibble) if self.state.global.reserved[usize::from(nibble)] == ReservedAction::Trap => {
                Some(TrapReason::of_reserved(nibble))
            }
            None if dst == MacAddr::SSTP && self.traps_pvst() => Some(TrapReason::PvstBpdu),
            None if dst == MacAddr::CISCO_DISCOVERY && self.state.global.trap_cdp => Some(TrapReason::Cdp),
            _ => None,
        }
    }

    fn port(&self) -> Vec<Fact> {
        let Some(port) = self.received else { return Vec::new() };
        let up = self.end != Stage::Port || port.enabled;
        let mut facts = vec![Fact::Port { name: port.name.clone(), up }];
        if let (Aggregation::Member { of, .. }, true) = (port.aggregation, up) {
            match () {
                () if self.dropped(DropReason::NotCollecting) => {}
                () if self.dropped(DropReason::PortDown) => {
                    facts.push(Fact::Port { name: self.name(of), up: false })
                }
                () => facts.push(Fact::MemberOf(self.name(of))),
            }
        }
        facts
    }

    /// The protocol of a customer's control frame, if the port carries it.
    fn enters_tunnel(&self) -> Option<TunnelledProtocol> {
        let port = self.received.filter(|port| port.enabled && port.is_tunnel())?;
        let (protocol, address) = tunnelled_protocol(self.frame.bytes(), false)?;
        (address == self.frame.dst() && port.tunnelled.carries(protocol)).then_some(protocol)
    }
    /// The tunnel ports that do not carry the protocol of a frame addressed to the tunnel.
    fn without_tunnel(&self) -> PortSet {
        if self.frame.dst() != MacAddr::TUNNEL && self.enters_tunnel().is_none() {
            return PortSet::EMPTY;
        }
        let protocol =
            tunnelled_protocol(self.frame.bytes(), self.tag().is_some()).map(|(protocol, _)| protocol);
        let carries = |port: &PortState| protocol.is_some_and(|protocol| port.tunnelled.carries(protocol));
        let ports = self.state.ports.iter().filter(|(_, port)| port.is_tunnel() && !carries(port));
        ports.map(|(id, _)| *id).collect()
    }

    fn traps_pvst(&self) -> bool {
        let tag = self.tag().map(|tag| tag.vid).filter(|vid| *vid != 0);
        let vlan = tag.map_or_else(|| self.received.and_then(|port| port.pvid), VlanId::new);
        let trapped = &self.state.global.trap_pvst;
        vlan.map_or(!trapped.is_empty(), |vlan| trapped.contains(vlan))
    }

    fn vlan_ingress(&self) -> Option<Fact> {
        self.ingress.filter(|port| matches!(port.kind, PortKind::Netdev | PortKind::Svi(_)))?;
        match self.tag().map(|tag| tag.vid).filter(|vid| *vid != 0) {
            Some(vid) => VlanId::new(vid).map(|vlan| Fact::Vlan { vlan, tagged: true }),
            None => self.ingress.and_then(|port| port.pvid).map(|vlan| Fact::Vlan { vlan, tagged: false }),
        }
    }

    fn guard(&self) -> Option<Fact> {
        match self.run.verdict {
            Some(Verdict::Trapped(reason)) if reason.stage() == Stage::Guard => {
                Some(Fact::Trapped { dst: self.frame.dst(), reason })
            }
            _ => None,
        }
    }

    fn learn(&self) -> Option<Fact> {
        let (port, (vlan, shared), mac) = (self.ingress?, self.vlans()?, self.frame.src());
        if self.dropped(DropReason::SourceBlackhole) {
            return None;
        }
        let learning = port.learning && self.state.vlans.get(&vlan).is_some_and(|vlan| vlan.learning);
        if !learning || matches!(port.kind, PortKind::Svi(_)) {
            return Some(Fact::LearningOff);
        }
        let on = port.name.clone();
        let known = PortId::new(self.journal.source_port);
        let from = known.map_or_else(|| "another port".into(), |port| self.name(port));
        Some(match self.journal.source {
            abi::SRC_NEW => Fact::SourceNew { mac, on },
            abi::SRC_MOVED => Fact::SourceMoved { mac, from, to: on },
            abi::SRC_KNOWN => Fact::SourceKnown { mac, on },
            abi::SRC_FIXED => Fact::SourceFixed { mac, kind: self.fixed(shared, mac) },
            _ => Fact::SourceRefused { mac, on, limit: self.limit(shared, known.is_some()) },
        })
    }
    /// The limit that prevents learning a new address, or moving a known one (`moving`).
    fn limit(&self, vlan: VlanId, moving: bool) -> &'static str {
        let full = |slot: usize| {
            let usage = self.tables.fdb_usage.get(slot);
            u32::try_from(usage.count).unwrap_or(0) >= usage.limit
        };
        if !moving && full(abi::USAGE_TABLE) {
            "table"
        } else if full(abi::usage_port(self.port)) {
            "port"
        } else if full(abi::usage_vlan(vlan)) {
            "VLAN"
        } else {
            "table"
        }
    }
    fn fixed(&self, vlan: VlanId, mac: MacAddr) -> &'static str {
        match self.state.fdb.get(&(vlan, mac)) {
            Some(FdbTarget::Sticky(_)) => "sticky",
            Some(FdbTarget::SelfAddress(_)) => "self",
            Some(FdbTarget::Static(_) | FdbTarget::Blackhole) => "static",
            // Learned at a port with port security.
            None => "dynamic",
        }
    }

    fn route(&self) -> Vec<Fact> {
        let journal = self.journal;
        let mut facts = Vec::new();
        if let Some(PortKind::Subinterface { parent, vlan }) = self.ingress.map(|port| port.kind) {
            return vec![Fact::FromHost { parent: self.name(parent), vlan }];
        }
        let rif = RifId::new(journal.route_rif).and_then(|rif| self.state.rifs.get(&rif));
        facts.extend(rif.map(|rif| Fact::ForRouter(rif.name.clone())));
        if let Some((rif, header)) = rif.zip(self.header()).filter(|_| journal.target != abi::NO_TARGET) {
            let prefix = self.routing.rib.longest(rif.vrf, header.dst).map(|(prefix, _)| prefix);
            let prefix = prefix.unwrap_or_else(|| header.dst.into());
            let found = decode(journal.target).map(|target| (prefix, target));
            facts.push(Fact::Route { dst: header.dst, found });
        }
        if let (Some(RouteTarget::Group(group)), Some(adjacency)) =
            (decode(journal.target), AdjacencyId::new(journal.adjacency % abi::BANK_ROWS))
        {
            let (bucket, buckets) = (journal.bucket.into(), journal.bucket_count.into());
            facts.push(Fact::NextHop { group, bucket, buckets, adjacency });
        }
        if journal.rewritten != 0 {
            let egress = RifId::new((journal.next >> 48) as u16 & (abi::RIFS - 1) as u16);
            let egress = egress.and_then(|rif| self.state.rifs.get(&rif)).map(|rif| rif.name.clone());
            let (mac, ttl) = (self.destination(), journal.ttl.wrapping_sub(1));
            facts.push(Fact::Rewritten { mac, rif: egress.unwrap_or_default(), ttl });
        }
        if let Some(reason) = TrapReason::from_u8(journal.up) {
            facts.push(Fact::Up { reason, port: self.up_port(rif).map(|port| self.name(port)) });
        }
        facts
    }
    fn header(&self) -> Option<IpHeader> {
        let bytes = self.frame.bytes();
        let at = HEADER_LEN + if self.tag().is_some() { TAG_LEN } else { 0 };
        let ethertype = bytes.get(at - 2..at)?;
        IpHeader::read(u16::from_be_bytes([ethertype[0], ethertype[1]]), bytes.get(at..)?, false).ok()
    }
    /// The host's side to which exceptions are sent.
    fn up_port(&self, rif: Option<&RifState>) -> Option<PortId> {
        match rif.map(|rif| rif.attachment) {
            Some(RifAttachment::Vlan { up, .. } | RifAttachment::Subinterface { up, .. }) => Some(up),
            Some(RifAttachment::Port(_)) => None,
            None => {
                let vlan = VlanId::new(self.tag()?.vid)?;
                let kind = PortKind::Subinterface { parent: self.port, vlan };
                self.state.ports.iter().find(|(_, port)| port.kind == kind).map(|(id, _)| *id)
            }
        }
    }
    /// The destination to which the frame is sent: its own, or that of the neighbour to which it was routed.
    fn destination(&self) -> MacAddr {
        if self.journal.rewritten != 0 { abi::mac_of(self.journal.next) } else { self.frame.dst() }
    }
    /// The VLAN in which the frame leaves.
    fn leaves_in(&self) -> u16 {
        let routed = self.journal.rewritten != 0 || self.journal.straight != 0;
        if routed { self.journal.out_vlan } else { self.journal.vlan }
    }

    /// The group and the source of a frame that snooping limits, with the ports that get it; `None` if it is not limited.
    fn members(&self) -> Option<(IpAddr, IpAddr, PortSet)> {
        let (_, vlan) = self.vlans()?;
        match self.packet()? {
            Packet::Group { group, source } => {
                mdb::members(self.tables, vlan, group, source).map(|ports| (group, source, ports))
            }
            _ => None,
        }
    }
    /// The kind of the frame for snooping.
    fn packet(&self) -> Option<Packet> {
        let bytes = self.frame.bytes();
        let at = HEADER_LEN + if self.tag().is_some() { TAG_LEN } else { 0 };
        let ethertype = bytes.get(at - 2..at)?;
        let ethertype = u16::from_be_bytes([ethertype[0], ethertype[1]]);
        Packet::read(self.frame.dst(), ethertype, bytes.get(at..)?)
    }
    fn snoop(&self) -> Option<Fact> {
        if let Some(Verdict::Trapped(reason)) = self.run.verdict
            && reason.stage() == Stage::Snoop
        {
            return Some(Fact::Trapped { dst: self.frame.dst(), reason });
        }
        let (group, source, ports) = self.members()?;
        Some(Fact::Members { group, source, ports: ports.len() })
    }
    /// True for a frame whose egress ports are a flood set. A program that finds only one port in it sends the frame as known
    /// unicast.
    fn flooded(&self) -> bool {
        self.journal.flooded != 0 || self.journal.vlan != 0 && self.frame.dst().is_group()
    }

    fn bridge(&self) -> Option<Fact> {
        if self.dropped(DropReason::DestinationBlackhole)
            || self.journal.straight != 0
            || self.journal.up != 0
        {
            return None;
        }
        let vlan = VlanId::new(self.leaves_in())?;
        self.state.vlans.get(&vlan)?;
        let dst = self.destination();
        if !self.flooded() || self.dropped(DropReason::SamePort) {
            let target = PortId::new(self.journal.target_port);
            return target.map(|port| Fact::Destination { mac: dst, on: self.name(port) });
        }
        Some(Fact::Flood { class: Flood::of(dst), ports: self.flood_set().len() })
    }
    /// The ports of the flood set, from the live tables.
    fn flood_set(&self) -> PortSet {
        let sets = self.tables.vlan_ports.get(usize::from(self.leaves_in()));
        let global = self.tables.global.get(0);
        let routed = self.journal.rewritten != 0;
        let isolated = !routed && self.ingress.is_some_and(|port| port.isolated);
        let dst = self.destination();
        let has = |set: &[u64; abi::PORT_WORDS], port: PortId| {
            set[port.index() / 64] >> (port.index() % 64) & 1 == 1
        };
        let reached = |port: &PortId| {
            (routed || *port != self.port)
                && sets.form.iter().any(|set| has(set, *port))
                && !(isolated && has(&global.isolated, *port))
                && (dst.is_group() || !has(&global.no_unicast, *port))
                && !(dst.is_group() && !dst.is_broadcast() && has(&global.no_multicast, *port))
        };
        let set = PortId::all().filter(reached).collect::<PortSet>().difference(&self.without_tunnel());
        match self.members() {
            Some((.., ports)) => set.intersection(&ports),
            None => set,
        }
    }

    fn vlan_egress(&self) -> Vec<Fact> {
        if self.journal.up != 0 {
            return Vec::new();
        }
        if !self.flooded() {
            let allowed = PortId::new(self.journal.target_port).filter(|_| self.end != Stage::VlanEgress);
            return allowed.map(|port| Fact::Allowed(self.name(port))).into_iter().collect();
        }
        let bare = self.frame.bytes().len() - if self.tag().is_some() { TAG_LEN } else { 0 };
        let too_long = |port: &PortId| bare > self.tables.ports.get(port.index()).max_len as usize;
        let reached = self.flood_set();
        let mut facts: Vec<Fact> =
            reached.iter().filter(too_long).map(|port| Fact::TooLong(self.name(port))).collect();
        let fits = |port: &PortId| !too_long(port) && self.lacks_members(*port);
        facts.extend(reached.iter().filter(fits).map(|port| Fact::NoMember(self.name(port))));
        if self.end != Stage::VlanEgress {
            facts.push(Fact::AllowedPorts(reached.len() - facts.len()));
        }
        facts
    }

    /// True for a port-channel of which no member can send.
    fn lacks_members(&self, port: PortId) -> bool {
        let channel = self.state.ports.get(&port).and_then(|port| port.aggregation.channel());
        channel.is_some_and(|channel| self.tables.channels.get(channel.index()).member[0] == 0)
    }
    /// The bucket, if a copy leaves by a port-channel.
    fn balanced(&self) -> Option<Fact> {
        let bucket = usize::try_from(self.journal.balanced.checked_sub(1)?).ok()?;
        Some(Fact::Balanced { bucket, by: self.state.global.load_balance.keyword() })
    }
    fn copy(&self, port: PortId, bytes: &[u8]) -> Fact {
        let state = self.state.ports.get(&channel_of(self.state.ports.get(&port), port));
        let vlan = VlanId::new(self.leaves_in());
        let straight = self.journal.straight != 0;
        let tagged =
            state.is_some_and(|state| vlan.is_some_and(|vlan| straight || state.tagged.contains(vlan)));
        let tag = state.and_then(|state| state.tpid.ethertype()).filter(|_| tagged).map(|tpid| {
            let tag = Frame::new(bytes).ok().and_then(|frame| frame.tag(tpid).ok().flatten());
            (tpid, tag.map_or(0, |tag| tag.vid))
        });
        Fact::Copy { port: self.name(port), tag }
    }

    fn count(&self) -> Fact {
        let port = self.received.map_or_else(|| self.name(self.port), |port| port.name.clone());
        let copies = self.run.sent(false).len();
        Fact::Counted { port, copies }
    }
}
