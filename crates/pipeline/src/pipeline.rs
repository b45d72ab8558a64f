//! [`Pipeline`]: the tables, and how a frame passes them.
//!
//! Invariant: [`Pipeline::process`] and [`Pipeline::trace`] run the same stages; only `process` also carries out
//! what they decided: it polices, learns, sends and counts.

use crate::qos::{ClassCounters, Direction};
use crate::route::{RifState, RouteChange};
use crate::stages::qos_ingress::Colours;
use crate::stages::replicate::Emission;
use crate::stages::{Arrival, Decision, Memory, count, decide, learn, mirror, replicate, trap};
use crate::state::{ChannelMembers, FdbTarget, GlobalState, PlaneState, PortState, StpState, VlanState};
use crate::tables::Tables;
use crate::tables::acls::Answer;
use crate::tables::counters::Counters;
use crate::tables::fdb::{Fdb, FdbEvent, FdbFilter, Sweep};
use crate::tables::mdb::MdbChange;
use crate::tables::routes::Refused;
use crate::tables::trap::TrapCounters;
use crate::trace::{Fact, Notes, Trace, Verdict};
use crate::{Sink, Timestamp};
use lanyard_acl::PlaneList;
use lanyard_acl::compile::TooLarge;
use lanyard_types::{
    AclId, AdjacencyId, BindingKey, ChannelId, DropReason, InstanceId, MacAddr, PortId, RifId, Stage,
    TrapGroup, TrapReason, VlanId,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The work of replication so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Frames cloned: for each frame one less than the number of its copies.
    pub clones: u64,
    /// Tags pushed, popped or rewritten.
    pub tag_operations: u64,
}

/// A forwarding pipeline.
#[derive(Debug)]
pub struct Pipeline {
    tables: Tables,
    counters: Counters,
    memory: Memory,
    work: Work,
    scratch: Vec<u8>,
    /// The time at which each adjacency last forwarded a frame.
    used: BTreeMap<AdjacencyId, Timestamp>,
}

impl Pipeline {
    /// An empty pipeline: no ports, no VLANs. `salt` makes the hashes of the FDB and of flows unpredictable; it
    /// must be random where untrusted hosts send frames.
    #[must_use]
    pub fn new(salt: u64) -> Self {
        Self {
            tables: Tables::new(salt),
            counters: Counters::default(),
            memory: Memory::new(salt),
            work: Work::default(),
            scratch: Vec::new(),
            used: BTreeMap::new(),
        }
    }

    /// Runs a frame through the stages, carries out their decision, and returns the verdict.
    pub fn process(&mut self, now: Timestamp, port: PortId, frame: &[u8], out: &mut impl Sink) -> Verdict {
        self.process_segments(now, port, frame, frame.len(), out)
    }

    /// Processes a frame that is still to be divided into segments (GSO): `longest` is the length in bytes of its
    /// longest segment on a wire, headers and tags included. It is counted as one frame.
    pub fn process_segments(
        &mut self,
        now: Timestamp,
        port: PortId,
        frame: &[u8],
        longest: usize,
        out: &mut impl Sink,
    ) -> Verdict {
        self.process_arrival(now, &Arrival { port, bytes: frame, longest, answers: &[] }, false, out)
    }

    /// Processes a frame that [`Sink::divert`] gave to the software, and that comes back with the answers about the diverted
    /// lists. The frame was counted as trapped; now it is counted under its new verdict instead. If an answer is missing, because
    /// other lists have to judge the frame by now, it is diverted again with all questions.
    pub fn process_answered(
        &mut self,
        now: Timestamp,
        port: PortId,
        (frame, longest): (&[u8], usize),
        answers: &[Answer],
        out: &mut impl Sink,
    ) -> Verdict {
        self.process_arrival(now, &Arrival { port, bytes: frame, longest, answers }, true, out)
    }

    fn process_arrival(
        &mut self,
        now: Timestamp,
        arrival: &Arrival<'_>,
        returned: bool,
        out: &mut impl Sink,
    ) -> Verdict {
        let mut colours = Colours::default();
        let mut decision = decide(&self.tables, arrival, &colours, &mut Notes::default());
        if !decision.questions().is_empty() {
            return self.divert(arrival, returned, out);
        }
        let frame = arrival.bytes;
        if let Some(sample) = self.memory.sample(&decision, now) {
            out.sample(sample, frame);
        }
        self.memory.police(&self.tables, frame.len(), now, &mut decision);
        let len = decision.length(arrival);
        for direction in Direction::ALL {
            if self.memory.meter(&self.tables, &decision, len, now, direction, &mut colours) {
                decision = decide(&self.tables, arrival, &colours, &mut Notes::default());
            }
        }
        self.memory.classes().count(&decision.classed, len.whole);
        for hit in &decision.hits {
            self.tables.acls.count(hit);
            if let Some(note) = &hit.note
                && self.tables.trap.admit(TrapReason::AclLog, decision.port, now)
            {
                out.trap(decision.port, TrapReason::AclLog, &note.bytes());
            }
        }
        if let Some(event) = learn::apply(&mut self.tables.fdb, decision.learn, now) {
            out.fdb(event);
        }
        if let Some((port, vlan, mac)) = self.memory.violation(&decision, now) {
            out.violation(port, vlan, mac);
        }
        for copy in &decision.mirrored {
            mirror::emit(*copy, frame, &mut |copy, bytes| self.send_mirrored(copy, bytes, out));
        }
        let marked = decision.marked.take();
        let sent = marked.as_deref().unwrap_or(frame);
        let mut verdict = trap::police(&mut self.tables.trap, decision.verdict, decision.port, now);
        if verdict == Verdict::Forwarded {
            verdict = self.police_copies(&mut decision, now);
        }
        match verdict {
            Verdict::Trapped(reason) if reason.stage() != Stage::Route => {
                out.trap(decision.port, reason, sent)
            }
            // The frame goes to the stack of the ingress netdev, where the caller of `process` has left it.
            Verdict::Trapped(_) if decision.plan.copies.is_empty() => {}
            Verdict::Trapped(_) | Verdict::Forwarded => {
                if self.replicate(&decision.plan, sent, out) == 0 {
                    verdict = Verdict::Dropped(DropReason::TransmitFailed);
                } else if let Some(adjacency) = decision.adjacency {
                    self.used.insert(adjacency, now);
                    decision.route.into_iter().for_each(|(vrf, prefix)| out.routed(vrf, prefix));
                }
            }
            Verdict::Dropped(reason) => {
                let report = reason.report();
                if let Some(why) = report.filter(|why| self.tables.trap.admit(*why, decision.port, now)) {
                    out.trap(decision.port, why, frame);
                }
            }
        }
        count::ended(&mut self.counters, arrival, &decision, verdict, returned);
        verdict
    }

    /// Gives a frame to the software, which judges it by the diverted lists, and does nothing else with it.
    fn divert(&mut self, arrival: &Arrival<'_>, returned: bool, out: &mut impl Sink) -> Verdict {
        // Ignore the answers that the frame may have brought: the software answers all questions of a frame at once.
        let arrival = Arrival { answers: &[], ..*arrival };
        let decision = decide(&self.tables, &arrival, &Colours::default(), &mut Notes::default());
        // The trap is not policed: the frame belongs to the port's traffic, of which only what the software has no room for is
        // dropped.
        let verdict = match out.divert(arrival.port, &decision.questions(), arrival.bytes) {
            true => Verdict::Trapped(TrapReason::AclDiverted),
            false => Verdict::Dropped(DropReason::AclUnjudged),
        };
        let fate = Decision { vlan: decision.vlan, ..Decision::new(decision.port, verdict) };
        count::ended(&mut self.counters, &arrival, &fate, verdict, returned);
        verdict
    }

    /// Runs a frame through the same stages and tables, without learning, policing, counting or sending. A frame
    /// that is over a rate is shown as one within it.
    #[must_use]
    pub fn trace(&self, port: PortId, frame: &[u8]) -> Trace {
        let mut notes = Notes::kept();
        let decision = decide(
            &self.tables,
            &Arrival { port, bytes: frame, longest: frame.len(), answers: &[] },
            &Colours::default(),
            &mut notes,
        );
        if !decision.questions().is_empty() {
            let verdict = Verdict::Trapped(TrapReason::AclDiverted);
            return Trace { stages: notes.into_steps(), verdict, egress: Vec::new(), mirrored: Vec::new() };
        }
        let (mut egress, mut mirrored) = (Vec::new(), Vec::new());
        let mut keep = |copy: mirror::Copy, bytes: &[u8]| {
            if !copy.lost {
                mirrored.push((copy.to, bytes.to_vec()));
            }
        };
        decision.mirrored.iter().for_each(|copy| mirror::emit(*copy, frame, &mut keep));
        let sent = decision.marked.as_deref().unwrap_or(frame);
        replicate::emit(&decision.plan, sent, &mut Vec::new(), &mut |emission, bytes| {
            match emission {
                Emission::Copy(port) => egress.push((port, bytes.to_vec())),
                Emission::Mirrored(copy) => keep(copy, bytes),
            }
            true
        });
        if decision.verdict == Verdict::Forwarded {
            notes.say(Stage::Count, || Fact::Counted {
                port: self.tables.ports.name(port),
                copies: egress.len(),
            });
        }
        Trace { stages: notes.into_steps(), verdict: decision.verdict, egress, mirrored }
    }

    /// Removes the copies for VLAN interfaces if the trap group has no token for them. A frame of which no copy is left is
    /// dropped.
    fn police_copies(&mut self, decision: &mut Decision, now: Timestamp) -> Verdict {
        let Some(reason) = decision.host else { return Verdict::Forwarded };
        let Tables { trap, ports, .. } = &mut self.tables;
        let hosts = decision.plan.copies.iter().map(|(_, port)| *port).filter(|port| ports.is_svi(*port));
        let refused: Vec<PortId> = hosts.filter(|_| !trap.admit(reason, decision.port, now)).collect();
        if refused.is_empty() {
            return Verdict::Forwarded;
        }
        decision.plan.leave_out(&refused);
        decision.left_out.extend(refused);
        match decision.plan.copies.is_empty() {
            true => Verdict::Dropped(DropReason::TrapPoliced),
            false => Verdict::Forwarded,
        }
    }

    /// Sends the copies; returns how many were accepted.
    fn replicate(&mut self, plan: &replicate::Plan, frame: &[u8], out: &mut impl Sink) -> u64 {
        let counters = &mut self.counters;
        let mut taken = 0;
        let mut send = |emission: Emission, bytes: &[u8]| {
            let port = match emission {
                Emission::Copy(port) => port,
                Emission::Mirrored(copy) => {
                    let sent = !copy.lost && out.mirror(copy.to, bytes);
                    count::copy(counters, copy.to, bytes.len(), sent);
                    return sent;
                }
            };
            let sent = out.send(port, bytes);
            taken += u64::from(sent);
            count::copy(counters, port, bytes.len(), sent);
            if let Some(channel) = plan.channel(port) {
                count::copy(counters, channel, bytes.len(), sent);
            }
            sent
        };
        self.work.tag_operations += replicate::emit(plan, frame, &mut self.scratch, &mut send);
        self.work.clones += (plan.copies.len() as u64).saturating_sub(1);
        taken
    }

    /// Sends a copy of a received frame for a monitor session.
    fn send_mirrored(&mut self, copy: mirror::Copy, bytes: &[u8], out: &mut impl Sink) {
        let sent = !copy.lost && out.mirror(copy.to, bytes);
        count::copy(&mut self.counters, copy.to, bytes.len(), sent);
    }

    /// The tables, read-only.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }
    /// The FDB.
    #[must_use]
    pub fn fdb(&self) -> &Fdb {
        &self.tables.fdb
    }
    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    /// The frames of each trap group, passed and policed. Losses on the way to the control plane are not
    /// known here.
    #[must_use]
    pub fn trap_counters(&self) -> [TrapCounters; TrapGroup::SLOTS] {
        *self.tables.trap.counters()
    }
    /// The work of replication so far.
    #[must_use]
    pub fn work(&self) -> Work {
        self.work
    }
    /// The counters of the classes of a service policy, by index; those of classes without frames may be missing at the end.
    #[must_use]
    pub fn class_counters(&self, port: PortId, direction: Direction) -> Vec<ClassCounters> {
        self.memory.class_counters(port, direction)
    }
    /// Sets the counters of the service policies of a port to zero.
    pub fn clear_class_counters(&mut self, port: PortId) {
        self.memory.classes().clear(port);
    }
    /// Sets a port's counters to zero.
    pub fn clear_counters(&mut self, port: PortId) {
        self.counters.clear(port);
    }
    /// Counts a control-plane frame of `len` bytes that was sent at `port` without passing the stages.
    pub fn count_injected(&mut self, port: PortId, len: usize, sent: bool) {
        count::copy(&mut self.counters, port, len, sent);
    }
    /// Counts frames that arrived at `port` and were lost before the pipeline because the caller had no room for them.
    pub fn count_overrun(&mut self, port: PortId, frames: u64) {
        count::overrun(&mut self.counters, port, frames);
    }
    /// Corrects the count of a diverted frame that `port` received and that the software did not take.
    pub fn count_unjudged(&mut self, port: PortId) {
        let channel = self.tables.ports.get(port).and_then(|state| state.aggregation.member_of());
        count::unjudged(&mut self.counters, [Some(port), channel]);
    }
    /// Corrects the count of a frame of `len` bytes that was queued at `port`, counted as sent, and then
    /// refused.
    pub fn count_refused(&mut self, port: PortId, len: usize) {
        count::refused(&mut self.counters, port, len);
    }

    /// Replaces the global settings. A lower `fdb_limit` removes no entry: new ones are refused until ageing
    /// has made room.
    pub fn set_global(&mut self, global: GlobalState) {
        self.tables.trap.set(global);
    }
    /// Adds, replaces or removes a port; the dynamic FDB entries of a removed port are removed.
    ///
    /// A port that only leaves a VLAN keeps its entries there until they age out: flushing them is decided by
    /// the switch, not by the pipeline.
    pub fn set_port(
        &mut self,
        port: PortId,
        state: Option<PortState>,
        now: Timestamp,
        on: &mut dyn FnMut(FdbEvent),
    ) {
        if state.is_none() {
            self.flush(&FdbFilter { port: Some(port), ..FdbFilter::default() }, now, on);
        }
        self.memory.change(port, self.tables.ports.get(port), state.as_ref());
        self.tables.vlans.set_membership(port, state.as_ref());
        self.tables.ports.set(port, state);
    }
    /// Activates, changes or removes a VLAN; the dynamic FDB entries of a removed VLAN are removed.
    pub fn set_vlan(
        &mut self,
        vlan: VlanId,
        state: Option<VlanState>,
        now: Timestamp,
        on: &mut dyn FnMut(FdbEvent),
    ) {
        if state.is_none() {
            self.flush(&FdbFilter { vlan: Some(vlan), ..FdbFilter::default() }, now, on);
        }
        self.tables.vlans.set(vlan, state);
    }
    /// Sets a port's spanning-tree state; the port need not exist yet.
    pub fn set_stp(&mut self, instance: InstanceId, port: PortId, state: StpState) {
        self.tables.stp.set(instance, port, state);
    }
    /// Sets the members in use of a port-channel; `None` means that no member is. The port-channel need not exist yet.
    pub fn set_channel(&mut self, channel: ChannelId, members: Option<ChannelMembers>) {
        self.tables.channels.set(channel, members);
    }
    /// Sets or removes a control-plane FDB entry; it replaces a dynamic entry with the same key.
    pub fn set_fdb(
        &mut self,
        vlan: VlanId,
        mac: MacAddr,
        target: Option<FdbTarget>,
        now: Timestamp,
        on: &mut dyn FnMut(FdbEvent),
    ) {
        self.tables.fdb.set(vlan, mac, target, now, on);
    }
    /// Changes the MDB.
    ///
    /// # Errors
    /// See [`Mdb::change`](crate::tables::mdb::Mdb::change).
    pub fn multicast(&mut self, change: &MdbChange) -> Result<(), Refused> {
        self.tables.mdb.change(change)
    }
    /// Enters, replaces or (`None`) removes a binding of first-hop security.
    ///
    /// # Errors
    /// See [`Bindings::set`](crate::tables::bindings::Bindings::set).
    pub fn bind(&mut self, key: BindingKey, mac: Option<MacAddr>) -> Result<(), Refused> {
        self.tables.bindings.set(key, mac)
    }
    /// Adds, changes or removes a router interface.
    pub fn set_rif(&mut self, rif: RifId, state: Option<RifState>) {
        self.tables.rifs.set(rif, state);
    }
    /// Adds, replaces or removes an access list.
    ///
    /// # Errors
    /// When the list exceeds a limit of the classifier; nothing has changed then.
    pub fn set_acl(&mut self, id: AclId, list: Option<Arc<PlaneList>>) -> Result<(), TooLarge> {
        self.tables.acls.set(id, list)
    }
    /// Sets whether the software judges by a list in place of this pipeline: see [`Sink::divert`].
    pub fn divert_acl(&mut self, id: AclId, on: bool) {
        self.tables.acls.divert(id, on);
    }
    /// Sets counts of a list's rules to 0: see [`Acls::clear`](crate::tables::acls::Acls::clear).
    pub fn clear_acl_matches(&mut self, id: AclId, of: Option<&str>) {
        self.tables.acls.clear(id, of);
    }
    /// Carries out a routing change.
    ///
    /// # Errors
    /// See [`Routes::change`](crate::tables::routes::Routes::change); the tables are then unchanged.
    pub fn route(&mut self, change: &RouteChange) -> Result<(), Refused> {
        let Tables { rifs, routes, .. } = &mut self.tables;
        routes.change(change, |rif| rifs.get(rif).is_some())?;
        if let RouteChange::Adjacency(id, None) = change {
            self.used.remove(id);
        }
        Ok(())
    }
    /// The time at which each adjacency last forwarded a frame; those never used are left out.
    pub fn adjacencies_used(&self) -> impl Iterator<Item = (AdjacencyId, Timestamp)> + '_ {
        self.used.iter().map(|(id, at)| (*id, *at))
    }
    /// Makes the tables equal to `state`, and keeps learned entries whose port and VLAN still exist.
    pub fn set_state(&mut self, state: &PlaneState, now: Timestamp, on: &mut dyn FnMut(FdbEvent)) {
        self.set_global(state.global.clone());
        let unused: Vec<AclId> = self.tables.acls.ids().filter(|id| !state.acls.contains_key(id)).collect();
        for (id, list) in &state.acls {
            // A list that exceeds a limit is refused before a state is accepted (`validate`).
            let _ = self.set_acl(*id, Some(list.clone()));
        }
        for id in unused {
            let _ = self.set_acl(id, None);
        }
        self.tables.fdb.retain_controlled(|vlan, mac| state.fdb.contains_key(&(vlan, mac)));
        self.tables.stp.clear();
        for ((instance, port), stp) in &state.stp {
            self.set_stp(*instance, *port, *stp);
        }
        self.tables.channels.clear();
        for (channel, members) in &state.channels {
            self.set_channel(*channel, Some(members.clone()));
        }
        for vlan in VlanId::all() {
            let next = state.vlans.get(&vlan);
            if next != self.tables.vlans.get(vlan) {
                self.set_vlan(vlan, next.cloned(), now, on);
            }
        }
        for port in PortId::all() {
            let next = state.ports.get(&port);
            if next != self.tables.ports.get(port) {
                self.set_port(port, next.cloned(), now, on);
            }
        }
        for ((vlan, mac), target) in &state.fdb {
            self.set_fdb(*vlan, *mac, Some(*target), now, on);
        }
        let gone: Vec<RifId> = self.tables.rifs.ids().filter(|rif| !state.rifs.contains_key(rif)).collect();
        gone.into_iter().for_each(|rif| self.set_rif(rif, None));
        for (rif, next) in &state.rifs {
            self.set_rif(*rif, Some(next.clone()));
        }
    }

    /// Removes the dynamic FDB entries that match `filter`; returns their number.
    pub fn flush(&mut self, filter: &FdbFilter, now: Timestamp, on: &mut dyn FnMut(FdbEvent)) -> u64 {
        self.tables.fdb.flush(filter, now, on)
    }
    /// Ages the FDB; see [`Fdb::sweep`].
    pub fn sweep(&mut self, ageing_s: Option<u32>, now: Timestamp, on: &mut dyn FnMut(FdbEvent)) -> Sweep {
        self.tables.fdb.sweep(ageing_s, now, on)
    }
}
