//! Spanning tree on the protocol thread: handles BPDUs, links and timers, and carries out the decisions of
//! `lanyard_switch::spanning`: states, flushes, frames and reports.
//!
//! Invariants: a frame is sent after the plane has the states that were decided before it, and not while the
//! plane refuses one (`loop_safety`). The plane has the number of a change before both ([`super::keeper`]).
//! During a commit, which may take as long as the kernel takes, each port has the stricter of the states that
//! the running bridge and the planned bridge have decided on. Times are milliseconds since the machine was
//! started, so that they mean the same to the next daemon.

use super::keeper::{Keeper, Kept};
use super::loop_safety::LoopSafety;
use super::work::{Io, Protocol, Report};
use lanyard_cli::view::{self, TreeKey};
use lanyard_plane::{FdbFilter, ProtocolPlane, TreeStates};
use lanyard_stp::{Bridge, Event, Mode, Snapshot};
use lanyard_switch::Spanning;
use lanyard_switch::spanning::{LinkChange, Reconfigure, SpanningError, Todo, next, stricter};
use lanyard_types::{InstanceId, PortId, TrapGroup, VlanId, VlanSet};
use std::collections::BTreeSet;

/// The most rounds of carrying out the bridge's actions; each round may cause further actions.
const MAX_ROUNDS: usize = 16;

/// Spanning tree on the protocol thread; see the module comment.
pub(crate) struct Trees {
    /// `None` without spanning tree.
    spanning: Option<Spanning>,
    /// The state that the last run's spanning tree has saved, until the first configuration.
    found: Option<Snapshot>,
    /// False until the first configuration: the plane is as the last daemon left it.
    configured: bool,
    /// The states that the planned bridge has decided on, during a commit.
    held: Option<TreeStates>,
    vlans: VlanSet,
    /// VLANs whose topology has changed, for other protocols.
    changed: VlanSet,
    /// True if the plane may have other states than the decided ones.
    dirty: bool,
    /// The states that the plane accepted last, or had at the start.
    given: TreeStates,
    safety: LoopSafety,
    keeper: Keeper<Kept>,
    /// The number of the last change.
    mark: u64,
    /// The generation of the bridge whose snapshot was last queued; `None` before the first one, `Some(None)`
    /// without a bridge.
    saved: Option<Option<u64>>,
}

impl Trees {
    /// Creates it without a bridge; `found` is the state that the last run has saved.
    pub(crate) fn new(keeper: Keeper<Kept>, found: Option<Snapshot>) -> Self {
        Self {
            spanning: None,
            found,
            configured: false,
            held: None,
            vlans: VlanSet::EMPTY,
            changed: VlanSet::EMPTY,
            dirty: false,
            given: TreeStates::default(),
            safety: LoopSafety::default(),
            keeper,
            mark: 0,
            saved: None,
        }
    }
    /// Takes the VLANs whose topology has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> VlanSet {
        std::mem::take(&mut self.changed)
    }
    /// Takes over the states and the mark that the plane has.
    pub(crate) fn over(self, plane: &dyn ProtocolPlane) -> Self {
        Self { given: plane.trees(), mark: plane.marked(), ..self }
    }
    /// From now on a thread writes the snapshot.
    pub(crate) fn keep_by_thread(&mut self) {
        self.keeper.start();
    }
    /// Spanning tree, when it is on.
    pub(crate) fn spanning(&self) -> Option<&Spanning> {
        self.spanning.as_ref()
    }
    /// The bridge, for passing events to it; `None` without spanning tree.
    pub(crate) fn bridge_mut(&mut self) -> Option<&mut Bridge> {
        self.spanning.as_mut().map(Spanning::bridge_mut)
    }
    /// Tells the bridge which links have changed.
    pub(crate) fn links(&mut self, now: u64, changes: &[LinkChange]) {
        if let Some(spanning) = &mut self.spanning {
            spanning.links(now, changes);
        }
    }

    /// Begins a commit: until [`Trees::take`] or [`Trees::release`] no port forwards that the
    /// planned bridge does not let forward.
    pub(crate) fn hold(&mut self, io: &mut Io<'_>, to_come: Option<TreeStates>) {
        self.held = to_come;
        self.give_states(io);
    }
    /// Ends a commit that failed.
    pub(crate) fn release(&mut self, io: &mut Io<'_>) {
        self.held = None;
        self.give_states(io);
    }
    /// Ends a commit that succeeded: the bridge takes the new settings.
    ///
    /// # Errors
    /// Why the bridge refuses the settings, which were checked before.
    pub(crate) fn take(&mut self, now: u64, change: &Reconfigure) -> Result<(), SpanningError> {
        let next = next(now, self.spanning.as_ref(), self.found.as_ref(), change);
        (self.held, self.dirty, self.configured) = (None, true, true);
        self.vlans = change.vlans.clone();
        self.spanning = next?;
        (self.found, self.saved) = (None, None);
        Ok(())
    }
    /// Ends the bridge because the plane is being removed: nothing is sent or watched any more.
    pub(crate) fn end(&mut self, io: &mut Io<'_>) {
        (self.spanning, self.held, self.configured) = (None, None, false);
        self.keep(io);
    }

    /// Gives the plane the decided states.
    fn give_states(&mut self, io: &mut Io<'_>) {
        let wanted = self.decided();
        let given = io.plane.set_trees(&wanted);
        if given.is_ok() {
            (self.given, self.dirty) = (wanted, false);
        }
        self.safety.states_given(io, given.err());
    }

    /// The states that the bridge has decided on; during a commit the stricter ones of the running and the
    /// planned bridge. Before the first configuration, the plane's own.
    fn decided(&self) -> TreeStates {
        let running = match &self.spanning {
            Some(spanning) => spanning.decided(),
            None if self.configured => TreeStates::default(),
            None => self.given.clone(),
        };
        self.held.as_ref().map_or(running.clone(), |held| stricter(&running, held))
    }

    /// Takes the actions of the bridge, and numbers the change.
    fn todo(&mut self, io: &mut Io<'_>) -> Todo {
        let now = io.now();
        let silent = self.safety.was_silent(io, &self.given.watched) && self.spanning.is_some();
        let mut todo = Todo::default();
        if let Some(spanning) = &mut self.spanning {
            todo = spanning.todo(&self.vlans);
            if silent {
                spanning.silence(now, &self.vlans, &mut todo);
            }
        }
        self.keep(io);
        todo
    }

    /// Queues the snapshot for a restart to be written, if it has changed.
    fn keep(&mut self, io: &mut Io<'_>) {
        let generation = self.spanning.as_ref().map(|spanning| spanning.bridge().generation());
        if self.saved == Some(generation) {
            return;
        }
        self.saved = Some(generation);
        self.mark += 1;
        io.plane.mark(self.mark);
        let snapshot = self.spanning.as_ref().map(|spanning| spanning.bridge().snapshot());
        let mark = self.mark;
        if let Some(reason) = self.keeper.put(snapshot.map(|trees| Kept { mark, trees })) {
            io.reports.add(Report::NotKept { facility: "SPANTREE", reason });
        }
    }

    /// Carries out the remaining actions once the plane has the states: flushes, frames, reports.
    fn carry_out(&mut self, io: &mut Io<'_>, todo: Todo) {
        let flushes: BTreeSet<(Option<PortId>, Option<u16>)> =
            todo.flushes.iter().map(|filter| (filter.port, filter.vlan.map(VlanId::get))).collect();
        for (port, vlan) in flushes {
            let vlan = vlan.and_then(VlanId::new);
            io.plane.fdb_flush(&FdbFilter { port, vlan, ..FdbFilter::default() });
        }
        let frames = if self.safety.behind { &[] } else { &todo.frames[..] };
        for (port, frame) in frames {
            // Sending fails if the port has lost its link, which an event will report.
            let _ = io.plane.inject(*port, frame);
        }
        if let Some(spanning) = &self.spanning {
            let bridge = spanning.bridge();
            let mode = bridge.config().mode;
            for event in todo.events {
                if let Event::TopologyChange { instance, vlan, .. } = &event {
                    match vlan {
                        Some(vlan) => _ = self.changed.insert(*vlan),
                        None => self.changed = self.changed.union(&spanning.vlans_of(*instance, &self.vlans)),
                    }
                }
                let mstid = tree_of(&event).map_or(0, |instance| bridge.mstid_of(instance));
                io.reports.add(Report::Tree { event, mode, mstid });
            }
        }
        io.reports.ports.extend(todo.ports);
    }

    /// `show spanning-tree`.
    pub(crate) fn view(&self, now: u64, name: &dyn Fn(PortId) -> String) -> view::SpanningTree {
        let Some(spanning) = &self.spanning else { return view::SpanningTree::default() };
        let watchdog = Some(self.safety.view(now, &self.given.watched, name));
        view::SpanningTree { watchdog, ..view::SpanningTree::of(spanning.bridge(), now, name) }
    }

    /// See [`lanyard_cli::backend::SpanningTree::root_primary_priority`].
    pub(crate) fn root_primary(&self, now: u64, key: TreeKey) -> Option<u16> {
        let usual = Some(24576);
        let Some(spanning) = &self.spanning else { return usual };
        let bridge = spanning.bridge();
        let tree = bridge.view(now).into_iter().find(|tree| match key {
            TreeKey::Vlan(vlan) => match bridge.config().mode {
                Mode::Stp | Mode::Rstp => vlan == VlanId::DEFAULT,
                _ => tree.vlan == Some(vlan),
            },
            TreeKey::Mst(mstid) => bridge.config().mode == Mode::Mst && tree.mstid == mstid,
        });
        tree.map_or(usual, |tree| bridge.root_primary_priority(tree.instance))
    }
}

impl Protocol for Trees {
    fn takes(&self, group: TrapGroup) -> bool {
        group == TrapGroup::Stp
    }
    fn handle_frame(&mut self, now: u64, port: PortId, frame: &[u8]) {
        if let Some(bridge) = self.bridge_mut() {
            // A refused BPDU has been counted and reported as an event.
            let _ = bridge.handle_bpdu(now, port, frame);
        }
    }
    fn next_ms(&self) -> Option<u64> {
        if !self.configured {
            // Before the first configuration, and while the plane is being removed, `act` does nothing: a
            // deadline would make the thread spin.
            return None;
        }
        let timeout = self.spanning.as_ref().and_then(|spanning| spanning.bridge().next_timeout());
        timeout.into_iter().chain(self.safety.next_ms()).min()
    }
    fn act(&mut self, io: &mut Io<'_>) {
        if !self.configured {
            return;
        }
        let now = io.now();
        if let Some(bridge) = self.bridge_mut()
            && bridge.next_timeout().is_some_and(|at| at <= now)
        {
            bridge.handle_timer(now);
        }
        for _ in 0..MAX_ROUNDS {
            let todo = self.todo(io);
            let states = todo.edges_changed || !todo.states.is_empty() || self.dirty || self.safety.behind;
            if todo.is_empty() && !states {
                break;
            }
            if states {
                self.give_states(io);
            }
            self.carry_out(io, todo);
            if self.safety.behind {
                break;
            }
        }
        let bridge = self.spanning.as_ref().map(Spanning::bridge);
        self.safety.feed_watchdog(io, bridge.filter(|_| !self.given.watched.is_empty()));
    }
}

/// The tree that an event is about.
fn tree_of(event: &Event) -> Option<InstanceId> {
    match *event {
        Event::Role { instance, .. }
        | Event::State { instance, .. }
        | Event::RootChanged { instance, .. }
        | Event::TopologyChange { instance, .. }
        | Event::Disputed { instance, .. }
        | Event::RootGuard { instance, .. }
        | Event::LoopGuard { instance, .. } => Some(instance),
        _ => None,
    }
}
