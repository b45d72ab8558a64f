//! [`Trees`]: the states of ports in trees, as the protocols have set them last and as the chip holds them, and the chip's
//! watchdog of spanning tree.
//!
//! Read first: `lanyard_asic::chip::device`, `watchdog.rs`, and docs/sdk.md, requests 21 and 22.
//!
//! Invariants: a change is written as the difference to the states that the chip holds; after a failure, and after an expiry of
//! the watchdog, these are read from the chip. An expiry is acknowledged only by the protocols, which then begin anew: if a
//! daemon ends before that, the next one finds the expiry.

use crate::lower::{self, SETUP};
use lanyard_asic::sdk::message::{Code, Request};
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::sdk::{Client, SdkError};
use lanyard_plane::TreeStates;
use lanyard_types::StpState;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// See the module comment.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    /// The states that the protocols have set last.
    pub(crate) wanted: TreeStates,
    /// The states that the chip that forwards holds; `None` while they are not known.
    pub(crate) held: Option<TreeStates>,
    /// True if the chip has a watchdog.
    pub(crate) watchdog: bool,
    /// When the watchdog expires, in nanoseconds of [`lanyard_asic::chip::serve::clock_ns`]; `None` if it has not been restarted,
    /// or was stopped.
    pub(crate) due_ns: Option<u64>,
}

impl Trees {
    /// Creates it with the states that a chip holds.
    pub(crate) fn of(held: TreeStates, watchdog: bool) -> Self {
        Self { wanted: held.clone(), held: Some(held), watchdog, due_ns: None }
    }

    /// The part of `states` that the chip gets: a chip without a watchdog watches no port.
    pub(crate) fn for_chip(&self, states: &TreeStates) -> TreeStates {
        let watched = if self.watchdog { states.watched.clone() } else { Default::default() };
        TreeStates { stp: states.stp.clone(), watched }
    }
}

/// True if the chip at a socket has a watchdog of spanning tree. A device that has none refuses the request, or ends the
/// connection as after any message that it cannot read, so the question has a connection of its own.
pub(crate) fn has_watchdog(socket: &Path) -> bool {
    let Ok(mut client) = Client::connect(socket, "probe") else { return false };
    client.set_patience(crate::chip::PATIENCE);
    match client.number(&Request::TreeExpiry(false)) {
        Ok(_) => true,
        Err(SdkError::Refused(refused)) => refused.code == Code::Fault,
        Err(_) => false,
    }
}

/// A period of a watchdog in milliseconds; 0 stops it.
pub(crate) fn period_ms(after: Option<Duration>) -> u32 {
    after.map_or(0, |after| u32::try_from(after.as_millis()).unwrap_or(u32::MAX).max(1))
}

/// The operations that lead from one set of states to another: a port is watched before it forwards, ports are blocked before
/// others forward, and watching ends last.
pub(crate) fn steps(from: &TreeStates, to: &TreeStates) -> Vec<Operation> {
    let watch = |on| move |(instance, port): &_| Operation::Watched(*instance, *port, on);
    let mut steps: Vec<Operation> = to.watched.difference(&from.watched).map(watch(true)).collect();
    let pairs: BTreeSet<_> = from.stp.keys().chain(to.stp.keys()).copied().collect();
    let changed: Vec<_> = pairs.into_iter().filter(|pair| from.stp.get(pair) != to.stp.get(pair)).collect();
    for opens in [false, true] {
        for (instance, port) in &changed {
            let state = to.stp.get(&(*instance, *port)).copied().unwrap_or_default();
            if (state == StpState::Forwarding) == opens {
                steps.push(Operation::Stp(*instance, *port, state));
            }
        }
    }
    steps.extend(from.watched.difference(&to.watched).map(watch(false)));
    steps
}

/// Writes the operations that lead from one set of states to another.
///
/// # Errors
/// When the chip refuses an operation or fails; some of the states may then be in force.
pub(crate) fn write(client: &mut Client, from: &TreeStates, to: &TreeStates) -> Result<(), SdkError> {
    for part in lower::transactions(steps(from, to), SETUP) {
        client.commit(&part)?;
    }
    Ok(())
}

/// The states that a chip holds.
pub(crate) fn held_by(client: &mut Client) -> Result<TreeStates, SdkError> {
    let state = lower::state_of(&client.entries()?);
    Ok(TreeStates { stp: state.stp, watched: state.watched })
}
