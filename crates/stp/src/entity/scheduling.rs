//! Which machines run and when: marks of ports and trees, timers, the rounds of a run, and the flushes at its end.
//!
//! Invariants: machines run only for ports and trees that are marked; one call runs a bounded number of rounds.

use super::Entity;
use crate::bpdu::Bpdu;
use crate::events::Event;
use crate::machines::{
    bridge_detection, port_information, port_migration, port_receive, port_transmit, role_selection,
    role_transitions, state_transition, topology_change,
};
use crate::vars::{Effect, PortTreeVars, Role, Timer};
use std::cmp::Reverse;

/// The maximum number of rounds of one run. A change reaches all ports in two rounds; the worst known case
/// takes a dozen.
const MAX_ROUNDS: usize = 64;
/// The maximum number of steps of one port's machines for one tree in one round.
const MAX_STEPS: usize = 64;
/// The number of flushes that topology changes may cause in a tree within [`FLUSH_WINDOW_MS`]. Further
/// flushes wait for the end of the window, so that a flood of topology changes does not keep the FDB empty.
const FLUSHES_PER_WINDOW: u32 = 5;
const FLUSH_WINDOW_MS: u64 = 1000;

impl Entity {
    /// Marks a port's machines to run for a tree.
    pub(crate) fn mark(&mut self, p: usize, t: usize) {
        self.ports[p].dirty |= 1 << t;
        self.enqueue(p);
    }
    /// Marks a port's machines to run for all trees.
    pub(crate) fn mark_all_trees(&mut self, p: usize) {
        self.ports[p].dirty = u64::MAX >> (64 - self.trees.len().clamp(1, 64));
        self.enqueue(p);
    }
    fn enqueue(&mut self, p: usize) {
        if !std::mem::replace(&mut self.ports[p].queued, true) {
            self.queue.push(p);
        }
    }
    /// reselect = TRUE, selected = FALSE.
    pub(crate) fn reselect(&mut self, p: usize, t: usize) {
        self.ports[p].trees[t].selected = false;
        self.trees[t].reselect = true;
        self.trees[t].sync.valid = false;
        self.mark(p, t);
    }
    pub(crate) fn reselect_all(&mut self, t: usize) {
        for p in 0..self.ports.len() {
            self.reselect(p, t);
        }
        self.trees[t].reselect = true;
    }
    /// Records that a port of the tree has changed, so that ports that wait for allSynced or reRooted are
    /// examined again.
    pub(crate) fn note_sync_moved(&mut self, t: usize) {
        self.trees[t].sync.valid = false;
        self.sync_moved |= 1 << t;
    }

    /// fdbFlush. `urgent` is for a port that lost its link or its role: its flush belongs to the same
    /// transaction.
    pub(crate) fn fdb_flush(&mut self, p: usize, t: usize, urgent: bool) {
        let tree = &mut self.trees[t];
        tree.flush.insert(self.ports[p].id);
        tree.flush_urgent |= urgent;
    }

    /// Sets timers of a port that have run out to zero, and marks the machines that read them.
    pub(super) fn expire(&mut self, p: usize) {
        let now = self.now;
        let due = |timer: &mut Timer| {
            let due = matches!(timer, Timer::Until(at) if *at <= now);
            if due {
                *timer = Timer::Zero;
            }
            due
        };
        port_transmit::count_down(self, p);
        let port = &mut self.ports[p];
        due(&mut port.hello_when);
        let mut mask = u64::from(due(&mut port.mdelay_while) | due(&mut port.edge_delay_while));
        if due(&mut port.region_while) {
            mask = u64::MAX >> (64 - port.trees.len().clamp(1, 64));
        }
        let holds = due(&mut port.self_loop_while)
            | due(&mut port.pvid_while)
            | due(&mut port.type_while)
            | due(&mut port.pvst_while);
        let (mut re_rooted, mut ask_again) = (0u64, 0u64);
        for (t, tree) in port.trees.iter_mut().enumerate() {
            let rr = due(&mut tree.rr_while);
            let other = due(&mut tree.fd_while)
                | due(&mut tree.rb_while)
                | due(&mut tree.tc_while)
                | due(&mut tree.rcvd_info_while)
                | due(&mut tree.dispute_while);
            mask |= u64::from(rr | other) << t;
            re_rooted |= u64::from(rr) << t;
            // Agreements are valid again, so a port that still proposes sends another proposal.
            let ask = due(&mut tree.stale_while) && tree.proposing;
            ask_again |= u64::from(ask) << t;
        }
        port.dirty |= mask;
        self.enqueue(p);
        if holds {
            self.apply_holds(p);
        }
        bits(ask_again).for_each(|t| self.new_info(p, t));
        for t in bits(re_rooted) {
            if let Some(root) = self.trees[t].root_port {
                self.mark(root, t);
            }
        }
    }

    pub(super) fn schedule(&mut self, p: usize) {
        let now = self.now;
        let port = &mut self.ports[p];
        let mut least: Option<u64> = None;
        let mut consider = |timer: Timer| {
            if let Some(at) = timer.deadline(now) {
                least = Some(least.map_or(at, |least| least.min(at)));
            }
        };
        port.timers().into_iter().for_each(&mut consider);
        port.trees.iter().flat_map(PortTreeVars::timers).for_each(&mut consider);
        if let Some(at) = least
            && port.scheduled_ms.is_none_or(|scheduled| at < scheduled)
        {
            port.scheduled_ms = Some(at);
            self.heap.push(Reverse((at, p)));
        }
    }

    // ------------------------------------------------------------------------------------------ running

    /// Runs the machines until no transition is possible, then transmits, flushes and sets timers.
    pub(super) fn run(&mut self, mut rx: Option<(usize, &Bpdu)>) {
        let mut rounds = 0;
        while !self.queue.is_empty() || self.trees.iter().any(|tree| tree.reselect) {
            if rounds == MAX_ROUNDS {
                self.unsettled += 1;
                self.wake_at(self.now + 100);
                self.event(Event::NotSettled { vlan: self.vlan });
                break;
            }
            rounds += 1;
            self.round(&mut rx);
        }
        let mut touched = std::mem::take(&mut self.touched);
        for &p in &touched {
            self.ports[p].touched = false;
            bounded(|| port_transmit::step(self, p));
            self.schedule(p);
        }
        touched.clear();
        self.touched = touched;
        self.emit_flushes();
    }

    /// Runs one round: information of all marked ports, then roles, then transitions.
    fn round(&mut self, rx: &mut Option<(usize, &Bpdu)>) {
        let mut batch: Vec<(usize, u64)> = Vec::with_capacity(self.queue.len());
        let mut queue = std::mem::take(&mut self.queue);
        queue.sort_unstable();
        for p in queue {
            self.ports[p].queued = false;
            if !std::mem::replace(&mut self.ports[p].touched, true) {
                self.touched.push(p);
            }
            let bpdu = rx.filter(|(at, _)| *at == p).map(|(_, bpdu)| bpdu);
            while port_receive::step(self, p, bpdu) {}
            bounded(|| port_migration::step(self, p));
            bounded(|| bridge_detection::step(self, p));
            let mask = std::mem::take(&mut self.ports[p].dirty);
            for t in bits(mask) {
                bounded(|| port_information::step(self, p, t));
            }
            batch.push((p, mask));
        }
        *rx = None;
        for t in 0..self.trees.len() {
            role_selection::step(self, t);
        }
        for (p, mask) in batch {
            for t in bits(mask) {
                bounded(|| {
                    port_information::step(self, p, t)
                        || role_transitions::step(self, p, t)
                        || state_transition::step(self, p, t)
                        || topology_change::step(self, p, t)
                });
            }
        }
        for t in bits(std::mem::take(&mut self.sync_moved)) {
            self.wake_waiting(t);
        }
    }

    /// Marks the ports whose next transition may depend on allSynced or reRooted.
    fn wake_waiting(&mut self, t: usize) {
        for p in 0..self.ports.len() {
            let tree = &self.ports[p].trees[t];
            let waits = tree.role.active() && !tree.forward && tree.role != Role::Designated;
            let agrees = tree.role.blocks() || waits || tree.role == Role::Root;
            if waits || ((agrees || t > 0) && !tree.agree) {
                self.mark(p, t);
            }
        }
    }

    /// Requests a call of `handle_timer` at this time at the latest.
    pub(crate) fn wake_at(&mut self, at: u64) {
        self.wake_ms = Some(self.wake_ms.map_or(at, |wake| wake.min(at)));
    }

    fn emit_flushes(&mut self) {
        let now = self.now;
        let mut wake = None;
        for tree in &mut self.trees {
            if tree.flush.is_empty() {
                continue;
            }
            if now >= tree.flush_window_ms + FLUSH_WINDOW_MS {
                tree.flush_window_ms = now;
                tree.flushes_in_window = 0;
            }
            if !tree.flush_urgent && tree.flushes_in_window >= FLUSHES_PER_WINDOW {
                wake = wake.into_iter().chain([tree.flush_window_ms + FLUSH_WINDOW_MS]).min();
                continue;
            }
            tree.flushes_in_window += 1;
            tree.flush_urgent = false;
            let ports = std::mem::take(&mut tree.flush);
            self.effects.push_back(Effect::Flush { instance: tree.instance, ports });
        }
        if let Some(at) = wake {
            self.wake_at(at);
        }
    }
}

/// Repeats `step` until it returns false, at most [`MAX_STEPS`] times.
fn bounded(mut step: impl FnMut() -> bool) {
    for _ in 0..MAX_STEPS {
        if !step() {
            return;
        }
    }
}

/// The positions of the set bits, ascending.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let t = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            t
        })
    })
}
