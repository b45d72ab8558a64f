//! The journal in words: a [`Trace`] that reads like the one of `crates/pipeline`, made from what the programs noted.

use crate::abi::{self, FdbValue, Journal};
use crate::dry::DryRun;
use crate::routing::{Routing, decode};
use crate::tables::Tables;
use lanyard_pipeline::route::{self, RifAttachment, RifState, RouteTarget};
use lanyard_pipeline::stages::trap::tunnel_note;
use lanyard_pipeline::state::{FdbTarget, PlaneState, PortKind, PortState, ReservedAction};
use lanyard_pipeline::trace::{TraceStep, Verdict};
use lanyard_plane::{FdbEntry, FdbKind, Trace};
use lanyard_types::{
    AdjacencyId, DropReason, MacAddr, PortId, PortSet, RifId, Stage, TrapReason, TunnelledProtocol, VlanId,
};
use lanyard_wire::ip::IpHeader;
use lanyard_wire::{Frame, HEADER_LEN, TAG_LEN, Tag, tunnelled_protocol};

/// An FDB entry from its key and value.
pub(crate) fn fdb_entry(key: u64, value: FdbValue, now_s: u32) -> Option<FdbEntry> {
    let (vlan, mac) = abi::split_key(key)?;
    let kind = abi::fdb_kind(value.kind)?;
    // One that a frame has touched since `now_s` was asked for is no age old.
    let age = now_s.wrapping_sub(value.updated_s);
    let age_s = if kind == FdbKind::Dynamic && age < u32::MAX / 2 { age } else { 0 };
    Some(FdbEntry { vlan, mac, port: PortId::new(value.port), kind, age_s })
}

/// The journey that `journal` and `run` tell of `frame`.
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
    let ingress = state.ports.get(&port);
    let mut stages = Vec::new();
    if let Ok(frame) = Frame::new(frame) {
        let teller = Teller { tables, routing, state, port, ingress, frame, journal, run: &run, end };
        for stage in Stage::ALL.iter().copied().take_while(|stage| *stage <= end) {
            let details = teller.details(stage);
            if !details.is_empty() {
                stages.push(TraceStep { stage, detail: details.join("; ") });
            }
        }
    }
    if let Verdict::Dropped(reason) = verdict {
        let detail = format!("dropped: {reason}");
        match stages.last_mut().filter(|last| last.stage == end) {
            Some(last) => last.detail = format!("{}; {detail}", last.detail),
            None => stages.push(TraceStep { stage: end, detail }),
        }
    }
    Trace { stages, verdict, egress: run.egress }
}

struct Teller<'a> {
    tables: &'a Tables,
    routing: &'a Routing,
    state: &'a PlaneState,
    port: PortId,
    ingress: Option<&'a PortState>,
    frame: Frame<'a>,
    journal: &'a Journal,
    run: &'a DryRun,
    end: Stage,
}

impl Teller<'_> {
    /// What a stage has to say, before the reason of a drop.
    fn details(&self, stage: Stage) -> Vec<String> {
        let one = |text: String| vec![text];
        match stage {
            // A frame that parse ends is not described.
            Stage::Parse if self.end == Stage::Parse => Vec::new(),
            Stage::Parse => one(self.parse()),
            Stage::Trap => self.trap().into_iter().collect(),
            Stage::Port => {
                self.ingress.map(|port| format!("{} is {}", port.name, self.up())).into_iter().collect()
            }
            Stage::VlanIngress => self.vlan_ingress().into_iter().collect(),
            // A dry run takes no token, so it finds nothing to say.
            Stage::Storm => Vec::new(),
            Stage::Learn => self.learn().into_iter().collect(),
            Stage::Route => self.route(),
            Stage::Bridge => self.bridge().into_iter().collect(),
            Stage::VlanEgress => self.vlan_egress(),
            Stage::Replicate => self.run.egress.iter().map(|(port, bytes)| self.copy(*port, bytes)).collect(),
            Stage::Count => one(self.count()),
        }
    }

    fn name(&self, port: PortId) -> String {
        self.state.ports.get(&port).map_or_else(|| format!("port {port}"), |state| state.name.clone())
    }
    fn up(&self) -> &'static str {
        if self.end == Stage::Port { "down" } else { "up" }
    }
    fn dropped(&self, reason: DropReason) -> bool {
        self.run.verdict == Some(Verdict::Dropped(reason))
    }
    /// The tag the ingress port recognises.
    fn tag(&self) -> Option<Tag> {
        let tpid = self.ingress.and_then(|port| port.tpid.ethertype())?;
        self.frame.tag(tpid).ok().flatten()
    }

    fn parse(&self) -> String {
        let (outer, len) = (self.frame.ethertype(), self.frame.bytes().len());
        match self.tag() {
            Some(Tag { pcp, dei, vid }) => {
                let inner = self.frame.inner_ethertype(outer).unwrap_or(outer);
                let dei = if dei { ", drop eligible" } else { "" };
                format!(
                    "tag {outer:#06x} vlan {vid} priority {pcp}{dei}, EtherType {inner:#06x}, {len} bytes"
                )
            }
            None => format!("untagged, EtherType {outer:#06x}, {len} bytes"),
        }
    }

    fn trap(&self) -> Option<String> {
        let dst = self.frame.dst();
        match self.run.verdict {
            Some(Verdict::Trapped(reason)) if reason.stage() == Stage::Trap => {
                Some(format!("{dst} is {reason}: to the control plane"))
            }
            Some(Verdict::Dropped(_)) if self.end == Stage::Trap => None,
            _ if self.enters_tunnel().is_some() => self.enters_tunnel().map(tunnel_note),
            _ => match self.would_trap(dst) {
                Some(reason) if self.end == Stage::Port => Some(format!("{reason}, but the port is down")),
                _ => Some("not for the control plane".into()),
            },
        }
    }
    /// Why a frame for `dst` would go up, were the port up.
    fn would_trap(&self, dst: MacAddr) -> Option<TrapReason> {
        match dst.reserved() {
            Some(nibble) if self.state.global.reserved[usize::from(nibble)] == ReservedAction::Trap => {
                Some(match nibble {
                    0x0 => TrapReason::Bpdu,
                    0x2 => TrapReason::SlowProtocol,
                    0xe => TrapReason::Lldp,
                    _ => TrapReason::Reserved,
                })
            }
            None if dst == MacAddr::SSTP && self.traps_pvst() => Some(TrapReason::PvstBpdu),
            _ => None,
        }
    }

    /// The protocol of a customer's control frame that the port carries.
    fn enters_tunnel(&self) -> Option<TunnelledProtocol> {
        let port = self.ingress.filter(|port| port.enabled && port.is_tunnel())?;
        let (protocol, address) = tunnelled_protocol(self.frame.bytes(), false)?;
        (address == self.frame.dst() && port.tunnelled.carries(protocol)).then_some(protocol)
    }
    /// Tunnel ports that do not carry what a frame for the address of the tunnel contains.
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
        let vlan = tag.map_or_else(|| self.ingress.and_then(|port| port.pvid), VlanId::new);
        let trapped = &self.state.global.trap_pvst;
        vlan.map_or(!trapped.is_empty(), |vlan| trapped.contains(vlan))
    }

    fn vlan_ingress(&self) -> Option<String> {
        self.ingress.filter(|port| matches!(port.kind, PortKind::Netdev | PortKind::Svi(_)))?;
        match self.tag().map(|tag| tag.vid).filter(|vid| *vid != 0) {
            Some(vid) => VlanId::new(vid).map(|vlan| format!("vlan {vlan} from its tag")),
            None => self
                .ingress
                .and_then(|port| port.pvid)
                .map(|vlan| format!("vlan {vlan} from the port's PVID")),
        }
    }

    fn learn(&self) -> Option<String> {
        let (port, vlan, mac) = (self.ingress?, VlanId::new(self.journal.vlan)?, self.frame.src());
        if self.dropped(DropReason::SourceBlackhole) {
            return None;
        }
        let learning = port.learning && self.state.vlans.get(&vlan).is_some_and(|vlan| vlan.learning);
        if !learning || matches!(port.kind, PortKind::Svi(_)) {
            return Some("learning is off here".into());
        }
        let on = &port.name;
        let known = PortId::new(self.journal.source_port);
        let from = known.map_or_else(|| "another port".into(), |port| self.name(port));
        Some(match self.journal.source {
            abi::SRC_NEW => format!("{mac} is new on {on}: would be learned"),
            abi::SRC_MOVED => format!("{mac} was on {from}: would move to {on}"),
            abi::SRC_KNOWN => format!("{mac} is known on {on}"),
            abi::SRC_FIXED => format!("{mac} has a {} entry: stays as it is", self.fixed(vlan, mac)),
            _ => {
                let limit = self.limit(vlan, known.is_some());
                format!("{mac} would not be learned on {on}: the {limit}'s limit is reached")
            }
        })
    }
    /// The limit that keeps a new address out, or one that is known elsewhere (`moving`).
    fn limit(&self, vlan: VlanId, moving: bool) -> &'static str {
        let full = |slot: usize| {
            let usage = self.tables.usage.get(slot);
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
            _ => "static",
        }
    }

    /// What `crates/pipeline` says of the same decisions, from what the program decided.
    fn route(&self) -> Vec<String> {
        let journal = self.journal;
        let mut lines = Vec::new();
        if let Some(PortKind::Subinterface { parent, vlan }) = self.ingress.map(|port| port.kind) {
            return vec![format!("from the host: out of {} in vlan {vlan}", self.name(parent))];
        }
        let rif = RifId::new(journal.route_rif).and_then(|rif| self.state.rifs.get(&rif));
        lines.extend(rif.map(|rif| format!("for the router on {}", rif.name)));
        if let Some((rif, header)) = rif.zip(self.header()).filter(|_| journal.target != abi::NO_TARGET) {
            let prefix = self.routing.rib.longest(rif.vrf, header.dst).map(|(prefix, _)| prefix);
            let prefix = prefix.unwrap_or_else(|| header.dst.into());
            let target = decode(journal.target).map(|target| (prefix, target));
            lines.push(route::match_note(header.dst, target));
        }
        if let (Some(RouteTarget::Group(group)), Some(adjacency)) =
            (decode(journal.target), AdjacencyId::new(journal.adjacency % abi::BANK_ROWS))
        {
            let (bucket, count) = (journal.bucket.into(), journal.bucket_count.into());
            lines.push(route::bucket_note(group, bucket, count, adjacency));
        }
        if journal.rewritten != 0 {
            let egress = RifId::new((journal.next >> 48) as u16 & (abi::RIFS - 1) as u16);
            let egress = egress.and_then(|rif| self.state.rifs.get(&rif)).map_or("", |rif| &rif.name);
            lines.push(route::rewrite_note(self.destination(), egress, journal.ttl.wrapping_sub(1)));
        }
        if let Some(reason) = TrapReason::from_u8(journal.up) {
            lines.push(match self.up_port(rif) {
                Some(port) => format!("{reason}: up to the kernel at {}", self.name(port)),
                None => format!("{reason}: up the netdev's own stack"),
            });
        }
        lines
    }
    fn header(&self) -> Option<IpHeader> {
        let bytes = self.frame.bytes();
        let at = HEADER_LEN + if self.tag().is_some() { TAG_LEN } else { 0 };
        let ethertype = bytes.get(at - 2..at)?;
        IpHeader::read(u16::from_be_bytes([ethertype[0], ethertype[1]]), bytes.get(at..)?, false).ok()
    }
    /// The host's end that exceptions go to.
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
    /// Where the frame is sent: what it came for, or the neighbour it was routed to.
    fn destination(&self) -> MacAddr {
        if self.journal.rewritten != 0 { abi::mac_of(self.journal.next) } else { self.frame.dst() }
    }
    /// The VLAN it leaves in.
    fn leaves_in(&self) -> u16 {
        let routed = self.journal.rewritten != 0 || self.journal.straight != 0;
        if routed { self.journal.out_vlan } else { self.journal.vlan }
    }

    fn bridge(&self) -> Option<String> {
        if self.dropped(DropReason::DestinationBlackhole)
            || self.journal.straight != 0
            || self.journal.up != 0
        {
            return None;
        }
        let vlan = VlanId::new(self.leaves_in())?;
        self.state.vlans.get(&vlan)?;
        let dst = self.destination();
        if self.journal.flooded == 0 || self.dropped(DropReason::SamePort) {
            let target = PortId::new(self.journal.target_port);
            return target.map(|port| format!("{dst} is on {}", self.name(port)));
        }
        let what = match (dst.is_broadcast(), dst.is_group()) {
            (true, _) => "broadcast",
            (_, true) => "multicast",
            _ => "unknown",
        };
        let count = self.flood_set().len();
        Some(format!("{what}: flood to {count} port{}", if count == 1 { "" } else { "s" }))
    }
    /// The ports a flood reaches for, from the live tables.
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
        PortId::all().filter(reached).collect::<PortSet>().difference(&self.without_tunnel())
    }

    fn vlan_egress(&self) -> Vec<String> {
        if self.journal.up != 0 {
            return Vec::new();
        }
        if self.journal.flooded == 0 {
            let allowed = PortId::new(self.journal.target_port).filter(|_| self.end != Stage::VlanEgress);
            return allowed.map(|port| format!("{}: allowed", self.name(port))).into_iter().collect();
        }
        let bare = self.frame.bytes().len() - if self.tag().is_some() { TAG_LEN } else { 0 };
        let too_long = |port: &PortId| bare > self.tables.ports.get(port.index()).max_len as usize;
        let reached = self.flood_set();
        let mut lines: Vec<String> = reached
            .iter()
            .filter(too_long)
            .map(|port| format!("{}: longer than its MTU", self.name(port)))
            .collect();
        if self.end != Stage::VlanEgress {
            lines.push(format!("{} allowed", self.run.egress.len()));
        }
        lines
    }

    fn copy(&self, port: PortId, bytes: &[u8]) -> String {
        let state = self.state.ports.get(&port);
        let vlan = VlanId::new(self.leaves_in());
        let straight = self.journal.straight != 0;
        let tagged =
            state.is_some_and(|state| vlan.is_some_and(|vlan| straight || state.tagged.contains(vlan)));
        let name = self.name(port);
        match state.and_then(|state| state.tpid.ethertype()).filter(|_| tagged) {
            Some(tpid) => {
                let vid = Frame::new(bytes)
                    .ok()
                    .and_then(|frame| frame.tag(tpid).ok().flatten())
                    .map_or(0, |tag| tag.vid);
                format!("{name}: tagged {tpid:#06x} vlan {vid}")
            }
            None => format!("{name}: untagged"),
        }
    }

    fn count(&self) -> String {
        let copies = self.run.egress.len();
        format!(
            "received by {}, {copies} cop{} sent",
            self.name(self.port),
            if copies == 1 { "y" } else { "ies" }
        )
    }
}
