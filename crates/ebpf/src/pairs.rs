//! Writes the tables of (port, VLAN) pairs, `port_vlans` and `vlan_ports`, for two threads: the one
//! that applies states, and the one that runs spanning tree.
//!
//! Invariant: both write under one lock, from one model, so that neither writes what the other has
//! replaced. The lock is held while words are stored in memory, which may map a part of a table
//! (`shared.rs`), and never over a system call that waits for a device or another process: hooks
//! are attached, files are written and netlink is asked without it. From an expiry of the watchdog
//! until it has been acknowledged, no write under the lock lets a watched pair forward.

use crate::abi::{self, Watchdog};
use crate::lower::{Pair, StpStates, VlanView, channel_row};
use crate::tables::Tables;
use lanyard_pipeline::state::{ChannelMembers, PlaneState, PortState, StpState};
use lanyard_plane::TreeStates;
use lanyard_types::{ChannelId, InstanceId, PortId, VlanId, VlanSet};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Ports of a private plane have no netdev. Their indices in the tables begin here; no kernel
/// assigns such indices.
const PRIVATE_IFINDEX: u32 = 0x4000_0000;

/// The tables of pairs, and the lock of their writers.
#[derive(Debug)]
pub(crate) struct Pairs {
    tables: Arc<Tables>,
    /// True for a plane without netdevs.
    private: bool,
    model: Mutex<Model>,
}

/// The data from which the pairs are written.
#[derive(Debug, Default)]
struct Model {
    /// The ports, VLANs, router interfaces, states of ports in trees and members of port-channels; the rest of it is empty.
    state: PlaneState,
    /// True once only `lanyard_plane::ProtocolPlane` sets the states of ports in trees and the members of port-channels.
    claimed: bool,
}

/// A part of writing a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Close,
    Rows,
    Open,
}

impl Pairs {
    pub(crate) fn new(tables: Arc<Tables>, private: bool) -> Self {
        Self { tables, private, model: Mutex::default() }
    }
    /// Locks the model for writing. The model includes the pairs that the watchdog has blocked.
    pub(crate) fn lock(&self) -> Writer<'_> {
        let mut writer =
            Writer { pairs: self, model: self.model.lock().unwrap_or_else(PoisonError::into_inner) };
        if self.expired() {
            writer.block();
        }
        writer
    }
    /// True if the watchdog has expired. While it blocks ports, which takes a millisecond at most,
    /// this waits.
    pub(crate) fn expired(&self) -> bool {
        loop {
            match self.phase().load(SeqCst) {
                abi::WATCHDOG_WAITS => return false,
                abi::WATCHDOG_EXPIRING => thread::yield_now(),
                _ => return true,
            }
        }
    }
    /// Acknowledges an expiry.
    pub(crate) fn note_expiry(&self) {
        self.phase().store(abi::WATCHDOG_WAITS, SeqCst);
    }
    fn phase(&self) -> &AtomicU64 {
        self.tables.watchdog.u64(0, offset_of!(Watchdog, phase))
    }
    /// The ifindex of a port as the tables contain it; 0 if the port has no netdev. A private plane has numbers of its own.
    pub(crate) fn ifindex(&self, id: PortId, port: &PortState) -> u32 {
        if self.private { PRIVATE_IFINDEX + u32::from(id.get()) } else { port.ifindex }
    }
}

/// The right to write pairs.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pairs: &'a Pairs,
    model: MutexGuard<'a, Model>,
}

impl Drop for Writer<'_> {
    /// Blocks again the pairs that were opened while the watchdog expired.
    fn drop(&mut self) {
        if self.pairs.expired() {
            let blocked = self.block();
            self.write_tree_ports(blocked.iter());
        }
    }
}

impl Writer<'_> {
    /// The data from which the pairs are written.
    pub(crate) fn state(&self) -> &PlaneState {
        &self.model.state
    }
    /// The model, for changes together with the pairs.
    pub(crate) fn state_mut(&mut self) -> &mut PlaneState {
        &mut self.model.state
    }
    /// Copies the ports, VLANs and router interfaces of `state`, and the states of ports in trees
    /// unless only [`Writer::set_trees`] sets these.
    pub(crate) fn follow(&mut self, state: &PlaneState) {
        let model = &mut *self.model;
        model.state.ports.clone_from(&state.ports);
        model.state.vlans.clone_from(&state.vlans);
        model.state.rifs.clone_from(&state.rifs);
        if !model.claimed {
            model.state.stp.clone_from(&state.stp);
            model.state.watched.clone_from(&state.watched);
            model.state.channels.clone_from(&state.channels);
        }
    }
    /// From now on only [`Writer::set_trees`] sets the states of ports in trees.
    pub(crate) fn claim(&mut self) {
        self.model.claimed = true;
    }
    /// True when only [`Writer::set_trees`] sets the states of ports in trees.
    pub(crate) fn claimed(&self) -> bool {
        self.model.claimed
    }
    /// The states of ports in trees.
    pub(crate) fn trees(&self) -> TreeStates {
        TreeStates { stp: self.model.state.stp.clone(), watched: self.model.state.watched.clone() }
    }

    /// Sets the states of ports in trees. Pairs that stop forwarding are written first. A pair is
    /// watched before it forwards; that a pair is no longer watched is written last.
    pub(crate) fn set_trees(&mut self, trees: &TreeStates) {
        let mut next = trees.clone();
        let state = &mut self.model.state;
        if self.pairs.expired() {
            // Pairs that were watched when the watchdog expired are blocked, and those that are to
            // be watched now.
            let watched = state.watched.union(&next.watched);
            next.stp.extend(watched.map(|pair| (*pair, StpState::Discarding)));
        }
        let keys: BTreeSet<_> = state.stp.keys().chain(next.stp.keys()).copied().collect();
        let of = |pair: &(InstanceId, PortId)| next.stp.get(pair).copied().unwrap_or_default();
        let mut open = BTreeSet::new();
        let mut closed = BTreeSet::new();
        for pair in keys.into_iter().filter(|pair| state.stp.get(pair) != next.stp.get(pair)) {
            match of(&pair) {
                StpState::Forwarding => open.insert(pair),
                _ => closed.insert(pair),
            };
        }
        let unwatched: BTreeSet<_> = state.watched.difference(&next.watched).copied().collect();
        open.extend(next.watched.difference(&state.watched).copied());
        // Until the end, old and new pairs are watched.
        state.watched.extend(next.watched.iter().copied());
        for pair in &closed {
            state.stp.insert(*pair, of(pair));
        }
        self.write_tree_ports(closed.iter());
        self.model.state.stp = next.stp;
        self.write_tree_ports(open.iter());
        self.model.state.watched = next.watched;
        self.write_tree_ports(unwatched.iter());
    }

    /// The members in use of port-channels.
    pub(crate) fn channels(&self) -> BTreeMap<ChannelId, ChannelMembers> {
        self.model.state.channels.clone()
    }
    /// Sets the members in use of a port-channel, word by word: a frame uses an old or a new member.
    pub(crate) fn set_channel(&mut self, channel: ChannelId, members: Option<&ChannelMembers>) {
        let channels = &mut self.model.state.channels;
        match members {
            Some(members) => _ = channels.insert(channel, members.clone()),
            None => _ = channels.remove(&channel),
        }
        self.pairs.tables.channels.set(channel.index(), &channel_row(members));
    }
    /// Writes the members in use of every port-channel.
    pub(crate) fn write_channels(&self) {
        for channel in (1..=ChannelId::MAX.get()).filter_map(ChannelId::new) {
            let row = channel_row(self.model.state.channels.get(&channel));
            self.pairs.tables.channels.set(channel.index(), &row);
        }
    }

    /// Marks in the model the pairs that the watchdog has blocked, and returns them.
    pub(crate) fn block(&mut self) -> Vec<(InstanceId, PortId)> {
        let state = &mut self.model.state;
        let watched: Vec<(InstanceId, PortId)> = state.watched.iter().copied().collect();
        state.stp.extend(watched.iter().map(|pair| (*pair, StpState::Discarding)));
        watched
    }

    /// Writes the flood sets of all VLANs.
    pub(crate) fn write_floods(&self, view: &VlanView, step: Step) {
        let (state, tables) = (&self.model.state, &self.pairs.tables);
        let ports: Vec<_> =
            state.ports.iter().map(|(id, port)| (id, port, StpStates::of(state, *id))).collect();
        for vlan in VlanId::all() {
            let mut row = abi::VlanPorts::default();
            for (id, port, stp) in &ports {
                if let Some(form) = view.pair(port, self.live(**id, port), stp, vlan).flood {
                    row.form[form][id.index() / 64] |= 1 << (id.index() % 64);
                }
            }
            if step == Step::Close {
                let words = row.form.as_flattened_mut().iter_mut().enumerate();
                for (word, want) in words.filter(|(_, want)| **want != 0) {
                    *want &= tables.vlan_ports.u64(vlan.index(), word * 8).load(Relaxed);
                }
            }
            tables.vlan_ports.set(vlan.index(), &row);
        }
    }

    /// Writes a port's pairs: closes or opens its flood sets in `vlans`, or writes its row.
    pub(crate) fn write_port(&self, id: PortId, view: &VlanView, vlans: &VlanSet, step: Step) {
        let port = self.model.state.ports.get(&id);
        let stp = StpStates::of(&self.model.state, id);
        let live = port.is_some_and(|port| self.live(id, port));
        let pair = |vlan| port.map(|port| view.pair(port, live, &stp, vlan)).unwrap_or_default();
        match step {
            Step::Close => vlans.iter().for_each(|vlan| self.close(id, vlan, pair(vlan))),
            Step::Open => vlans.iter().for_each(|vlan| self.open_flood(id, vlan, pair(vlan))),
            Step::Rows => {
                let mut row = abi::PortVlans { bits: [0; abi::VLANS] };
                if port.is_some() {
                    VlanId::all().for_each(|vlan| row.bits[vlan.index()] = pair(vlan).bits);
                }
                self.pairs.tables.port_vlans.set(id.index(), &row);
            }
        }
    }

    /// Writes the pairs of a VLAN with every port.
    pub(crate) fn write_vlan(&self, vlan: VlanId) {
        let state = &self.model.state;
        let view = VlanView::one(state, vlan);
        for (id, port) in &state.ports {
            self.write_pair(*id, port, &view, &StpStates::of(state, *id), vlan);
        }
    }

    /// Writes the pairs of ports with the VLANs of their trees.
    pub(crate) fn write_tree_ports<'p>(&self, ports: impl Iterator<Item = &'p (InstanceId, PortId)>) {
        let state = &self.model.state;
        let view = VlanView::of(state);
        for (instance, id) in ports {
            let Some(port) = state.ports.get(id) else { continue };
            let stp = StpStates::of(state, *id);
            for (vlan, _) in state.vlans.iter().filter(|(_, vlan)| vlan.instance == *instance) {
                self.write_pair(*id, port, &view, &stp, *vlan);
            }
        }
    }

    /// Writes everything about a (port, VLAN) pair.
    fn write_pair(&self, id: PortId, port: &PortState, view: &VlanView, stp: &StpStates, vlan: VlanId) {
        let pair = view.pair(port, self.live(id, port), stp, vlan);
        self.close(id, vlan, pair);
        self.pairs.tables.port_vlans.u8(id.index(), vlan.index()).store(pair.bits, Relaxed);
        self.open_flood(id, vlan, pair);
    }

    fn live(&self, id: PortId, port: &PortState) -> bool {
        port.enabled && (self.pairs.ifindex(id, port) != 0 || port.aggregation.channel().is_some())
    }
    fn flood_word(&self, id: PortId, vlan: VlanId, form: usize) -> &AtomicU64 {
        self.pairs.tables.vlan_ports.u64(vlan.index(), (form * abi::PORT_WORDS + id.index() / 64) * 8)
    }
    /// Removes the port from the VLAN's flood sets that it does not belong to.
    fn close(&self, id: PortId, vlan: VlanId, pair: Pair) {
        for form in (0..abi::FORMS).filter(|form| Some(*form) != pair.flood) {
            let (word, bit) = (self.flood_word(id, vlan, form), 1 << (id.index() % 64));
            let old = word.load(Relaxed);
            if old & bit != 0 {
                word.store(old & !bit, Relaxed);
            }
        }
    }
    /// Adds the port to the flood set that it belongs to.
    fn open_flood(&self, id: PortId, vlan: VlanId, pair: Pair) {
        let Some(form) = pair.flood else { return };
        let (word, bit) = (self.flood_word(id, vlan, form), 1 << (id.index() % 64));
        let old = word.load(Relaxed);
        if old & bit == 0 {
            word.store(old | bit, Relaxed);
        }
    }
}
