//! The stages, in order. Each is a function of the tables and of the results of earlier stages. It returns its
//! own result, or the verdict that ends the frame. No stage changes a table, so a trace runs exactly the same
//! code.
//!
//! Invariant: only [`decide`] knows the order, which is that of `lanyard_types::Stage`.
//!
//! The configuration of a stage at a port is a field of [`PortSettings`], the state that it keeps from one frame to the
//! next is a field of [`Memory`]. The rest of the crate passes both on and names no stage.

pub mod acl_egress;
pub mod acl_ingress;
pub mod bridge;
pub mod count;
pub mod guard;
pub mod learn;
pub mod mirror;
pub mod parse;
pub mod port;
pub mod qos_egress;
pub mod qos_ingress;
pub mod replicate;
pub mod route;
pub mod sample;
pub mod snoop;
pub mod storm;
pub mod trap;
pub mod vlan_egress;
pub mod vlan_ingress;

use crate::Timestamp;
use crate::balance;
use crate::qos::{ClassCounters, Direction, Excess, Length, PortQos, RateLimit};
use crate::state::{PlaneState, PortKind, PortState, StpState};
use crate::tables::Tables;
use crate::tables::acls::{Answer, Hit, Question};
use crate::trace::{Fact, Notes, Verdict};
use ipnet::IpNet;
use lanyard_types::{
    AdjacencyId, DropReason, MacAddr, PortId, PortSet, PortSettings, Rng, SamplingRate, Stage, StormKind,
    TrapReason, VlanId, VrfId,
};
use lanyard_wire::Tag;
use parse::Parsed;
use qos_ingress::{Classed, Colours};
use route::{Onward, Out};
use std::sync::Arc;
use vlan_ingress::Class;

/// Settings for tests: rates that frames a few milliseconds apart exceed. They divide 10^9, so that a plane that counts in whole
/// nanoseconds between frames agrees with one that counts in frames a second.
pub(crate) fn low_rates() -> PortSettings {
    PortSettings { storm: storm::LOW, guard: guard::LOW, ..PortSettings::default() }
}

/// Policies for tests: rates that frames a few milliseconds apart exceed, for what the first port receives and the second sends.
pub(crate) fn low_policies() -> [PortQos; 2] {
    let peak = Excess::Peak(RateLimit { bps: 4_000, burst: 200 });
    let input = Some(Arc::new(qos_ingress::low(peak)));
    let output = Some(Arc::new(qos_ingress::low(Excess::Overflow(150))));
    [PortQos { input, output: None }, PortQos { input: None, output }]
}

/// Gives the ports of a generated state random settings. Rates are 0 or never reached, so that nothing depends on the moment a
/// frame comes. Each stage draws from a generator of its own, so that a new stage does not change the settings of the others.
pub(crate) fn randomise(seed: u64, plane: &mut PlaneState) {
    let rng = |stage: Stage| Rng::new(!seed ^ (stage as u64) << 32);
    let (mut storm, mut learn) = (rng(Stage::Storm), rng(Stage::Learn));
    for port in plane.ports.values_mut().filter(|port| port.kind == PortKind::Netdev) {
        port.stages.storm = storm::random(&mut storm);
        port.stages.secure = learn.percent(20);
    }
    mirror::randomise(&mut rng(Stage::Mirror), plane);
    sample::randomise(&mut rng(Stage::Sample), plane);
    snoop::randomise(&mut rng(Stage::Snoop), plane);
    acl_ingress::randomise(&mut rng(Stage::AclIngress), plane);
    vlan_ingress::randomise(&mut rng(Stage::VlanIngress), plane);
    guard::randomise(&mut rng(Stage::Guard), plane);
    qos_ingress::randomise(&mut rng(Stage::QosIngress), plane);
}

/// The state that stages keep from one frame to the next.
#[derive(Debug)]
pub(crate) struct Memory {
    storm: storm::Policers,
    guard: guard::Policers,
    learn: learn::Reports,
    sample: sample::Sampler,
    classes: qos_ingress::Classes,
}

impl Memory {
    /// The state before the first frame. `seed` makes the choice of samples unpredictable.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            storm: storm::Policers::default(),
            guard: guard::Policers::default(),
            learn: learn::Reports::default(),
            sample: sample::Sampler::new(seed),
            classes: qos_ingress::Classes::default(),
        }
    }
    /// The sample of a received frame, if it is drawn.
    pub(crate) fn sample(&mut self, decision: &Decision, now: Timestamp) -> Option<sample::Sample> {
        decision.sampled.and_then(|(port, rate)| self.sample.draw(port, rate, now))
    }
    /// Takes the tokens that a received frame of `bytes` bytes needs. Without them, the frame is dropped, and its source is not
    /// learned.
    pub(crate) fn police(&mut self, tables: &Tables, bytes: usize, now: Timestamp, decision: &mut Decision) {
        if decision.storm.is_some_and(|kind| !self.storm.admit(tables, decision.port, kind, bytes, now)) {
            *decision = Decision {
                vlan: decision.vlan,
                storm: decision.storm,
                mirrored: std::mem::take(&mut decision.mirrored),
                sampled: decision.sampled,
                // Keep the hits of `acl_ingress` only: the frame does not reach the lists after this stage.
                hits: decision.hits.drain(..decision.ingress_hits).collect(),
                ..Decision::new(decision.port, Verdict::Dropped(DropReason::Storm))
            };
            return;
        }
        if let Some(rate) = decision.guarded
            && !self.guard.admit(tables, decision.port, rate, now)
        {
            *decision = Decision {
                vlan: decision.vlan,
                storm: decision.storm,
                guarded: decision.guarded,
                mirrored: std::mem::take(&mut decision.mirrored),
                sampled: decision.sampled,
                hits: decision.hits.drain(..decision.ingress_hits).collect(),
                ..Decision::new(decision.port, Verdict::Dropped(rate.reason()))
            };
        }
    }
    /// Asks the policers of the frame's classes in one direction. True if the frame is to be decided again with these colours.
    pub(crate) fn meter(
        &mut self,
        tables: &Tables,
        decision: &Decision,
        len: Length,
        now: Timestamp,
        direction: Direction,
        colours: &mut Colours,
    ) -> bool {
        self.classes.meter(tables, &decision.classed, len, now, direction, colours)
    }
    /// The counters of the classes of a service policy.
    pub(crate) fn class_counters(&self, port: PortId, direction: Direction) -> Vec<ClassCounters> {
        self.classes.counters(port, direction)
    }
    /// The policers and counters of all service policies, mutable.
    pub(crate) fn classes(&mut self) -> &mut qos_ingress::Classes {
        &mut self.classes
    }
    /// The violation of port security to be reported, if there is one and none was reported shortly before.
    pub(crate) fn violation(
        &mut self,
        decision: &Decision,
        now: Timestamp,
    ) -> Option<(PortId, VlanId, MacAddr)> {
        self.learn.admit(decision.learn, now)
    }
    /// Forgets what depends on settings of `port` that change from `old` to `new`.
    pub(crate) fn change(&mut self, port: PortId, old: Option<&PortState>, new: Option<&PortState>) {
        self.storm.change(port, old, new);
        self.guard.change(port, old, new);
        self.classes.change(port, old, new);
        if new.is_none() {
            self.learn.forget(port);
            self.sample.forget(port);
        }
    }
}

/// A received frame.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The port that received it.
    pub port: PortId,
    /// Its bytes, tags in line.
    pub bytes: &'a [u8],
    /// The length in bytes of the longest frame that it becomes on a wire: that of `bytes`, or of the longest
    /// segment if it is still to be divided.
    pub longest: usize,
    /// The software's judgements by diverted lists, if the frame comes back from the software.
    pub answers: &'a [Answer],
}

/// The decisions of all stages about one frame.
#[derive(Debug)]
pub struct Decision {
    /// The port that received it, or the port-channel of which that port is a member.
    pub port: PortId,
    /// The verdict, unless policing or transmission change it.
    pub verdict: Verdict,
    /// The copies of the frame as it was received, for monitor sessions.
    pub mirrored: Vec<mirror::Copy>,
    /// The port at which it may be sampled, and the rate.
    pub sampled: Option<(PortId, SamplingRate)>,
    /// The VLAN that it was admitted to.
    pub vlan: Option<VlanId>,
    /// The rate of its ingress port that it is counted against.
    pub storm: Option<StormKind>,
    /// The rate of first-hop security at its ingress port that it is counted against.
    pub guarded: Option<guard::Rate>,
    /// The treatment of its source address.
    pub learn: learn::Learn,
    /// Ports of a flood that were left out because the frame exceeds their MTU, or because they are port-channels of which no
    /// member can send.
    pub left_out: Vec<PortId>,
    /// The copies to send: to ports, or one to the host's end of an interface when the verdict is trapped by `route`.
    pub plan: replicate::Plan,
    /// The trap reason that its copies for VLAN interfaces are counted for; `None`: they are not policed.
    pub host: Option<TrapReason>,
    /// The adjacency that it was routed to.
    pub adjacency: Option<AdjacencyId>,
    /// The route that led to the adjacency.
    pub route: Option<(VrfId, IpNet)>,
    /// The rules of access lists that have decided about it.
    pub hits: Vec<Hit>,
    /// Its classes in service policies.
    pub classed: Vec<Classed>,
    /// True if it arrived with a tag that its port recognises.
    pub has_tag: bool,
    /// Its bytes, if an input policy has marked the packet.
    pub marked: Option<Vec<u8>>,
    /// The number of `hits` that `acl_ingress` has added; they come first.
    pub ingress_hits: usize,
}

impl Decision {
    /// A decision of which only the verdict is known.
    pub(crate) fn new(port: PortId, verdict: Verdict) -> Self {
        Self {
            port,
            verdict,
            mirrored: Vec::new(),
            sampled: None,
            vlan: None,
            storm: None,
            guarded: None,
            learn: learn::Learn::Nothing,
            left_out: Vec::new(),
            plan: replicate::Plan::default(),
            host: None,
            adjacency: None,
            route: None,
            hits: Vec::new(),
            classed: Vec::new(),
            marked: None,
            has_tag: false,
            ingress_hits: 0,
        }
    }
}

impl Decision {
    /// The questions that the software has to answer before the frame may go on; if there are any, the rest of this decision is
    /// void.
    pub(crate) fn questions(&self) -> Vec<Question> {
        self.hits.iter().filter_map(|hit| hit.question.as_deref().copied()).collect()
    }
    /// The length of the frame for policers.
    pub(crate) fn length(&self, arrival: &Arrival<'_>) -> Length {
        let tag = if self.has_tag { lanyard_wire::TAG_LEN } else { 0 };
        let without = |len: usize| len.saturating_sub(tag) as u64;
        Length { whole: without(arrival.bytes.len()), longest: without(arrival.longest) }
    }
}

/// Runs the stages over one frame.
pub(crate) fn decide(
    tables: &Tables,
    arrival: &Arrival<'_>,
    colours: &Colours,
    notes: &mut Notes,
) -> Decision {
    let mut decision = Decision::new(arrival.port, Verdict::Forwarded);
    if let Err(end) = run(tables, arrival, colours, &mut decision, notes) {
        decision.verdict = end;
        if let Verdict::Dropped(reason) = end {
            notes.say(reason.stage(), || Fact::Dropped(reason));
        }
    }
    decision
}

fn run(
    tables: &Tables,
    arrival: &Arrival<'_>,
    colours: &Colours,
    decision: &mut Decision,
    notes: &mut Notes,
) -> Result<(), Verdict> {
    let mut frame = parse::run(tables, arrival, notes)?;
    decision.has_tag = frame.tag.is_some();
    decision.mirrored = mirror::run(tables, arrival, &frame, notes)?;
    decision.sampled = sample::run(tables, arrival);
    trap::run(tables, arrival, &mut frame, notes)?;
    let (port, ingress) = port::run(tables, arrival, notes)?;
    decision.port = port;
    let arrival = &Arrival { port, ..*arrival };
    let mut class = match ingress.kind {
        PortKind::Netdev | PortKind::Svi(_) => {
            let class = vlan_ingress::run(tables, arrival, ingress, &frame, notes)?;
            decision.vlan = Some(class.vlan);
            acl_ingress::run(tables, arrival, ingress, &frame, Some(&class), &mut decision.hits)
                .map_err(Verdict::Dropped)?;
            decision.ingress_hits = decision.hits.len();
            decision.storm = storm::run(tables, ingress, &frame, &class);
            guard::run(tables, arrival, ingress, &frame, &class, &mut decision.guarded, notes)?;
            learn::run(tables, arrival, ingress, &frame, &class, &mut decision.learn, notes)?;
            Some(class)
        }
        // The frame is in no VLAN, and its source is not learned.
        PortKind::Routed | PortKind::Subinterface { .. } => {
            acl_ingress::run(tables, arrival, ingress, &frame, None, &mut decision.hits)
                .map_err(Verdict::Dropped)?;
            None
        }
    };
    let marked = qos_ingress::run(
        tables,
        arrival,
        ingress,
        &mut frame,
        class.as_mut(),
        colours,
        &mut decision.classed,
    )
    .map_err(Verdict::Dropped)?;
    let arrival = &Arrival { bytes: marked.as_deref().unwrap_or(arrival.bytes), ..*arrival };
    let passage = Passage { tables, arrival, ingress, colours };
    let end = passage.onward(&frame, class.as_ref(), decision, notes);
    decision.marked = marked;
    end
}

/// A frame that has passed the stages about its ingress port and VLAN.
struct Passage<'a> {
    tables: &'a Tables,
    arrival: &'a Arrival<'a>,
    ingress: &'a PortState,
    colours: &'a Colours,
}

impl Passage<'_> {
    /// Runs `route` and the stages after it.
    fn onward(
        &self,
        frame: &Parsed,
        class: Option<&Class>,
        decision: &mut Decision,
        notes: &mut Notes,
    ) -> Result<(), Verdict> {
        let Self { tables, arrival, ingress, .. } = *self;
        match (route::run(tables, arrival, ingress, frame, class, notes)?, class) {
            (Onward::Bridge, Some(class)) => {
                let members = snoop::run(tables, arrival, frame, class, notes)?;
                self.bridge(frame, class, members.as_ref(), None, decision, notes)
            }
            (Onward::Routed { rewrite, adjacency, route, out }, _) => {
                decision.adjacency = Some(adjacency);
                decision.route = Some(route);
                let frame = &Parsed { dst: rewrite.dst, src: rewrite.src, ..*frame };
                match out {
                    Out::Vlan(vlan) => {
                        let class = self.leaving(frame, vlan)?;
                        self.bridge(frame, &class, None, Some(rewrite), decision, notes)
                    }
                    Out::Port { port, tag } => {
                        self.straight(frame, port, tag, Some(rewrite), decision, notes)
                    }
                }
            }
            (Onward::FromHost(Out::Port { port, tag }), _) => {
                self.straight(frame, port, tag, None, decision, notes)
            }
            (Onward::Up { reason, port: Some(port) }, _) => {
                vlan_egress::straight(tables, frame, port).map_err(Verdict::Dropped)?;
                decision.plan = replicate::up(ingress, frame, port);
                Err(Verdict::Trapped(reason))
            }
            (Onward::Up { reason, port: None }, _) => Err(Verdict::Trapped(reason)),
            // This cannot happen: `route` bridges only frames that `vlan_ingress` has admitted to a VLAN.
            (Onward::Bridge | Onward::FromHost(Out::Vlan(_)), _) => {
                Err(Verdict::Dropped(DropReason::NoEgress))
            }
        }
    }

    /// The class of a routed frame in its egress VLAN. The router is not a port, so no ingress tree state
    /// applies. A VLAN that is not active has no egress port.
    fn leaving(&self, frame: &Parsed, vlan: VlanId) -> Result<Class, Verdict> {
        let state = self.tables.vlans.get(vlan).ok_or(Verdict::Dropped(DropReason::NoEgress))?;
        let tag = Tag { vid: vlan.get(), pcp: frame.cos, ..frame.tag.unwrap_or_default() };
        let shared = self.tables.vlans.shared(vlan);
        Ok(Class { vlan, instance: state.instance, shared, stp: StpState::Forwarding, tag })
    }

    /// Runs the remaining stages in a VLAN. A routed frame has no ingress port, so none is left out of its flood. `members`
    /// are the ports to which a group's frame is limited.
    fn bridge(
        &self,
        frame: &Parsed,
        class: &Class,
        members: Option<&PortSet>,
        rewrite: Option<route::Rewrite>,
        decision: &mut Decision,
        notes: &mut Notes,
    ) -> Result<(), Verdict> {
        let from = rewrite.is_none().then_some((self.arrival.port, self.ingress));
        let tunnelled =
            (frame.dst == MacAddr::TUNNEL).then(|| trap::Tunnelled::of(self.tables, self.arrival, frame));
        let limits = bridge::Limits { tunnelled: tunnelled.as_ref(), members };
        let egress = bridge::run(self.tables, from, frame, class, &decision.learn, limits, notes)?;
        let egress =
            vlan_egress::run(self.tables, from, frame, class, egress, &mut decision.left_out, notes)?;
        let mut judged = acl_ingress::Judged::new(self.arrival, frame, Some(class.vlan));
        let routed_into = rewrite.is_some().then_some(class.vlan);
        let egress = acl_egress::run(self.tables, &mut judged, routed_into, egress, &mut decision.hits)
            .map_err(Verdict::Dropped)?;
        let (egress, marks) =
            qos_egress::run(self.tables, &mut judged, egress, self.colours, &mut decision.classed)
                .map_err(Verdict::Dropped)?;
        let bucket = self.bucket(frame, &egress);
        decision.plan = replicate::run(self.tables, self.ingress, frame, class, &egress, bucket, notes);
        decision.plan.packet = judged.packet().filter(|_| !marks.is_empty());
        decision.plan.marks = marks;
        decision.plan.rewrite = rewrite;
        decision.plan.tunnelled = tunnelled;
        // Most frames have no copy for a VLAN interface.
        if decision.plan.copies.iter().any(|(_, port)| self.tables.ports.is_svi(*port)) {
            let packet = self.arrival.bytes.get(route::l3_offset(frame)..).unwrap_or_default();
            let ethertype = route::inner_ethertype(self.arrival, frame);
            let flood = matches!(egress, bridge::Egress::Flood(_));
            decision.host = trap::copy_reason(flood, members.is_some(), frame.dst, ethertype, packet);
        }
        Ok(())
    }

    /// The frame's bucket, if it leaves by a port-channel.
    fn bucket(&self, frame: &Parsed, egress: &bridge::Egress) -> Option<usize> {
        let is_channel = |port: PortId| self.tables.ports.channel(port).is_some();
        let balanced = match egress {
            bridge::Egress::Unicast(port) => is_channel(*port),
            bridge::Egress::Flood(ports) => ports.iter().any(is_channel),
        };
        let by = self.tables.trap.global().load_balance;
        let (bytes, has_tag) = (self.arrival.bytes, frame.tag.is_some());
        balanced.then(|| balance::bucket(self.tables.salt, by, bytes, has_tag, frame.src, frame.dst))
    }

    /// Runs the remaining stages for a frame that leaves by a routed port.
    fn straight(
        &self,
        frame: &Parsed,
        port: PortId,
        tag: Option<VlanId>,
        rewrite: Option<route::Rewrite>,
        decision: &mut Decision,
        notes: &mut Notes,
    ) -> Result<(), Verdict> {
        vlan_egress::straight(self.tables, frame, port).map_err(Verdict::Dropped)?;
        notes.say(Stage::VlanEgress, || Fact::Allowed(self.tables.ports.name(port)));
        let mut judged = acl_ingress::Judged::new(self.arrival, frame, tag);
        acl_egress::straight(self.tables, &mut judged, port, acl_ingress::Scope::Frame, &mut decision.hits)
            .map_err(Verdict::Dropped)?;
        let mut marks = Vec::new();
        qos_egress::straight(self.tables, &mut judged, port, self.colours, &mut decision.classed, &mut marks)
            .map_err(Verdict::Dropped)?;
        decision.plan = replicate::straight(self.tables, self.ingress, frame, port, tag, notes);
        decision.plan.packet = judged.packet().filter(|_| !marks.is_empty());
        decision.plan.marks = marks;
        decision.plan.rewrite = rewrite;
        Ok(())
    }
}
