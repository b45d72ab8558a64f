//! Port role transitions, per port and tree: how a port changes its role without a loop. IEEE 802.1Q-2018,
//! 13.37; 802.1D-2004, 17.29.
//!
//! Invariant: learn and forward become true only when the timers have run out, or a neighbour has agreed, or
//! every other port of the tree is synced; and never while a guard blocks the port.

use crate::entity::Entity;
use crate::events::Event;
use crate::vars::{Role, Timer};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum State {
    #[default]
    InitPort,
    DisablePort,
    DisabledPort,
    MasterPort,
    MasterProposed,
    MasterAgreed,
    MasterSynced,
    MasterRetired,
    MasterDiscard,
    MasterLearn,
    MasterForward,
    RootPort,
    RootProposed,
    RootAgreed,
    RootSynced,
    ReRoot,
    ReRooted,
    RootDiscard,
    RootLearn,
    RootForward,
    DesignatedPort,
    DesignatedPropose,
    DesignatedAgreed,
    DesignatedSynced,
    DesignatedRetired,
    DesignatedDiscard,
    DesignatedLearn,
    DesignatedForward,
    BlockPort,
    AlternatePort,
    AlternateProposed,
    AlternateAgreed,
    BackupPort,
}

fn next(e: &Entity, p: usize, t: usize) -> Option<State> {
    let tree = &e.ports[p].trees[t];
    if tree.roles == State::InitPort {
        return Some(State::DisablePort);
    }
    if !tree.selected || tree.updt_info {
        return None;
    }
    if tree.role != tree.selected_role {
        return Some(match tree.selected_role {
            Role::Disabled => State::DisablePort,
            Role::Master => State::MasterPort,
            Role::Root => State::RootPort,
            Role::Designated => State::DesignatedPort,
            Role::Alternate | Role::Backup => State::BlockPort,
        });
    }
    match tree.role {
        Role::Disabled => next_disabled(e, p, t),
        Role::Master => next_master(e, p, t),
        Role::Root => next_root(e, p, t),
        Role::Designated => next_designated(e, p, t),
        Role::Alternate | Role::Backup => next_blocked(e, p, t),
    }
}

fn next_disabled(e: &Entity, p: usize, t: usize) -> Option<State> {
    let tree = &e.ports[p].trees[t];
    if tree.roles == State::DisablePort {
        return (!tree.learning && !tree.forwarding).then_some(State::DisabledPort);
    }
    let held = tree.fd_while == Timer::Held(e.max_age(p));
    (!held || tree.sync || tree.re_root || !tree.synced).then_some(State::DisabledPort)
}

fn next_master(e: &Entity, p: usize, t: usize) -> Option<State> {
    let port = &e.ports[p];
    let tree = &port.trees[t];
    let rr_zero = tree.rr_while.is_zero(e.now);
    let all_synced = e.all_synced(p, t);
    let go = (tree.fd_while.is_zero(e.now) || all_synced) && !tree.sync && !e.held_back(p, t);
    if tree.re_root && rr_zero {
        Some(State::MasterRetired)
    } else if sync_done(e, p, t) {
        Some(State::MasterSynced)
    } else if must_discard(e, p, t) {
        Some(State::MasterDiscard)
    } else if (all_synced && !tree.agree) || (tree.proposed && tree.agree) {
        Some(State::MasterAgreed)
    } else if tree.proposed && !tree.agree {
        Some(State::MasterProposed)
    } else if go && !tree.learn {
        Some(State::MasterLearn)
    } else {
        (go && tree.learn && !tree.forward).then_some(State::MasterForward)
    }
}

fn next_root(e: &Entity, p: usize, t: usize) -> Option<State> {
    let tree = &e.ports[p].trees[t];
    if tree.rr_while != Timer::Held(e.fwd_delay(p)) {
        return Some(State::RootPort);
    }
    if tree.re_root && tree.forward {
        return Some(State::ReRooted);
    }
    if (tree.agreed && !tree.synced) || (tree.sync && tree.synced) {
        return Some(State::RootSynced);
    }
    if (!tree.agree && e.all_synced(p, t)) || (tree.proposed && tree.agree) {
        return Some(State::RootAgreed);
    }
    if tree.proposed && !tree.agree {
        return Some(State::RootProposed);
    }
    if e.held_back(p, t) {
        return (tree.learn || tree.forward).then_some(State::RootDiscard);
    }
    if tree.forward {
        return None;
    }
    if !tree.re_root {
        return Some(State::ReRoot);
    }
    let rapid = || tree.rb_while.is_zero(e.now) && e.bridge.rstp_version() && e.re_rooted(p, t);
    if tree.fd_while.is_zero(e.now) || rapid() {
        return Some(if tree.learn { State::RootForward } else { State::RootLearn });
    }
    None
}

fn next_designated(e: &Entity, p: usize, t: usize) -> Option<State> {
    let port = &e.ports[p];
    let tree = &port.trees[t];
    let rr_zero = tree.rr_while.is_zero(e.now);
    if tree.re_root && rr_zero {
        return Some(State::DesignatedRetired);
    }
    if sync_done(e, p, t) {
        return Some(State::DesignatedSynced);
    }
    if must_discard(e, p, t) {
        return Some(State::DesignatedDiscard);
    }
    // Within a region agreements go both ways: a master port also waits for those of the designated side. The
    // port must first have done what sync demands, because DESIGNATED_AGREED clears sync.
    if t > 0 && !tree.agree && e.all_synced(p, t) {
        return Some(State::DesignatedAgreed);
    }
    let needs_no_agreement = e.needs_no_agreement(p, t);
    if !tree.forward && !tree.agreed && !tree.proposing && !needs_no_agreement {
        return Some(State::DesignatedPropose);
    }
    // A dispute lets no timer make the port forward for three hello times; the neighbour's agreement still
    // does.
    let by_timer = tree.fd_while.is_zero(e.now) && tree.dispute_while.is_zero(e.now);
    let go = (by_timer || tree.agreed || needs_no_agreement)
        && (rr_zero || !tree.re_root)
        && !tree.sync
        && !e.held_back(p, t);
    if go && !tree.learn {
        Some(State::DesignatedLearn)
    } else {
        (go && !tree.forward).then_some(State::DesignatedForward)
    }
}

fn next_blocked(e: &Entity, p: usize, t: usize) -> Option<State> {
    let tree = &e.ports[p].trees[t];
    if tree.roles == State::BlockPort {
        return (!tree.learning && !tree.forwarding).then_some(State::AlternatePort);
    }
    let held = tree.fd_while == Timer::Held(e.forward_delay(p));
    if !held || tree.sync || tree.re_root || !tree.synced {
        return Some(State::AlternatePort);
    }
    if tree.role == Role::Backup && tree.rb_while != Timer::Held(2 * e.hello_time(p)) {
        return Some(State::BackupPort);
    }
    if (!tree.agree && e.all_synced(p, t)) || (tree.proposed && tree.agree) {
        return Some(State::AlternateAgreed);
    }
    (tree.proposed && !tree.agree).then_some(State::AlternateProposed)
}

/// The condition of MASTER_SYNCED and DESIGNATED_SYNCED.
fn sync_done(e: &Entity, p: usize, t: usize) -> bool {
    let port = &e.ports[p];
    let tree = &port.trees[t];
    let quiet = !tree.learning && !tree.forwarding;
    (!tree.synced && (quiet || tree.agreed || e.needs_no_agreement(p, t))) || (tree.sync && tree.synced)
}

/// The condition of MASTER_DISCARD and DESIGNATED_DISCARD. A guard makes edge ports discard, too.
fn must_discard(e: &Entity, p: usize, t: usize) -> bool {
    let port = &e.ports[p];
    let tree = &port.trees[t];
    let in_doubt =
        (tree.sync && !tree.synced) || (tree.re_root && !tree.rr_while.is_zero(e.now)) || tree.disputed;
    ((in_doubt && !e.needs_no_agreement(p, t)) || e.held_back(p, t)) && (tree.learn || tree.forward)
}

fn enter(e: &mut Entity, p: usize, t: usize, state: State) {
    let now = e.now;
    e.ports[p].trees[t].roles = state;
    e.trees[t].sync.valid = false;
    let forward_delay = e.forward_delay(p);
    let send_rstp = e.ports[p].send_rstp;
    use State::*;
    match state {
        InitPort => {}
        DisablePort | BlockPort => {
            take_role(e, p, t);
            let tree = &mut e.ports[p].trees[t];
            tree.learn = false;
            tree.forward = false;
        }
        MasterPort | DesignatedPort => take_role(e, p, t),
        RootPort => {
            if e.ports[p].trees[t].role != Role::Root {
                take_role(e, p, t);
            }
            e.ports[p].trees[t].rr_while = Timer::Held(e.fwd_delay(p));
        }
        DisabledPort | AlternatePort => {
            let fd_ms = if state == DisabledPort { e.max_age(p) } else { forward_delay };
            let tree = &mut e.ports[p].trees[t];
            tree.fd_while = Timer::Held(fd_ms);
            tree.synced = true;
            tree.rr_while = Timer::Zero;
            tree.sync = false;
            tree.re_root = false;
        }
        BackupPort => e.ports[p].trees[t].rb_while = Timer::Held(2 * e.hello_time(p)),
        MasterProposed | RootProposed | AlternateProposed => {
            e.set_sync_tree(t);
            e.ports[p].trees[t].proposed = false;
        }
        MasterAgreed | RootAgreed | DesignatedAgreed | AlternateAgreed => {
            let tree = &mut e.ports[p].trees[t];
            tree.proposed = false;
            tree.sync &= state == AlternateAgreed;
            tree.agree = true;
            e.new_info(p, t);
        }
        MasterSynced | DesignatedSynced | RootSynced => {
            let tree = &mut e.ports[p].trees[t];
            if state != RootSynced {
                tree.rr_while = Timer::Zero;
            }
            tree.synced = true;
            tree.sync = false;
        }
        ReRoot => e.set_re_root_tree(t),
        ReRooted | MasterRetired | DesignatedRetired => e.ports[p].trees[t].re_root = false,
        DesignatedPropose => {
            e.ports[p].trees[t].proposing = true;
            if t == 0 {
                e.ports[p].edge_delay_while = Timer::start(now, e.edge_delay(p));
            }
            e.new_info(p, t);
        }
        MasterDiscard | DesignatedDiscard | RootDiscard => {
            let tree = &mut e.ports[p].trees[t];
            tree.learn = false;
            tree.forward = false;
            tree.disputed = false;
            tree.fd_while = Timer::start(now, forward_delay);
        }
        MasterLearn | DesignatedLearn | RootLearn => {
            let tree = &mut e.ports[p].trees[t];
            tree.learn = true;
            tree.fd_while = Timer::start(now, forward_delay);
        }
        MasterForward | DesignatedForward | RootForward => {
            let tree = &mut e.ports[p].trees[t];
            tree.forward = true;
            tree.fd_while = Timer::Zero;
            if state != RootForward {
                if !tree.agreed {
                    // The port forwards because its timer has run out, so information that it sent earlier
                    // has aged out.
                    tree.advertised = tree.advertised.map(|_| tree.designated_priority);
                }
                tree.agreed = send_rstp;
            }
        }
    }
}

/// Sets role = selectedRole. Timers that the old role held at their full value begin to run.
fn take_role(e: &mut Entity, p: usize, t: usize) {
    let now = e.now;
    let tree = &mut e.ports[p].trees[t];
    let old = tree.role;
    tree.role = tree.selected_role;
    tree.fd_while.release(now);
    tree.rr_while.release(now);
    tree.rb_while.release(now);
    if matches!(old, Role::Root | Role::Master) && tree.role == Role::Designated {
        // Stricter than the standard, where the port continues to forward unless another becomes root port: the
        // neighbour that was upstream must first agree to be downstream.
        tree.sync = true;
        tree.synced = false;
        tree.agreed = false;
    }
    let role = tree.role;
    e.count_masters(p, t);
    if old != role {
        let (instance, port) = (e.trees[t].instance, e.ports[p].id);
        e.event(Event::Role { instance, vlan: e.vlan, port, role });
    }
}

/// Makes one transition; returns whether it did.
pub(crate) fn step(e: &mut Entity, p: usize, t: usize) -> bool {
    let tree = &e.ports[p].trees[t];
    if !tree.agree || (tree.role == Role::Master && !tree.forward) {
        e.refresh_sync(t);
    }
    let Some(state) = next(e, p, t) else { return false };
    let forward = e.ports[p].trees[t].forward;
    enter(e, p, t, state);
    e.note_sync_moved(t);
    if t == 0 && forward != e.ports[p].trees[0].forward {
        // At a boundary the MSTIs depend on the CIST's state (`held_back`).
        e.mark_all_trees(p);
    }
    true
}
