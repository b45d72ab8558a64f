//! Converts plane states to operations of the chip, and back.
//!
//! Invariant: [`state_of`] of a chip's entries is the plane state from which its operations came, except for the
//! watched ports, which a chip does not know.

use lanyard_asic::sdk::operation::Operation;
use lanyard_pipeline::state::{Delivery, HookChoice, PlaneState, PortKind, PortState};
use lanyard_plane::{Change, PlaneError};
use lanyard_types::PortId;
use std::collections::BTreeSet;

/// The operations that carry out changes, in their order. Those of spanning tree are separate, because protocols write
/// them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lowered {
    /// The operations that the resource manager writes.
    pub(crate) setup: Vec<Operation>,
    /// States of ports in trees.
    pub(crate) trees: Vec<Operation>,
}

/// Converts a list of changes to operations.
pub(crate) fn operations(changes: Vec<Change>) -> Lowered {
    let mut lowered = Lowered::default();
    for change in changes {
        let operation = match change {
            Change::Global { new, .. } => Operation::Global(new),
            Change::Port { port, new, .. } => Operation::Port(port, new),
            Change::Vlan { vlan, new, .. } => Operation::Vlan(vlan, new),
            Change::Fdb { vlan, mac, new, .. } => Operation::Fdb(vlan, mac, new),
            Change::Rif { rif, old, new } => {
                // A chip cannot move a router interface to another VRF, so remove it first.
                let moves = matches!((&old, &new), (Some(old), Some(new)) if old.vrf != new.vrf);
                if moves {
                    lowered.setup.push(Operation::Rif(rif, None));
                }
                Operation::Rif(rif, new)
            }
            Change::Stp { instance, port, new, .. } => {
                lowered.trees.push(Operation::Stp(instance, port, new));
                continue;
            }
            // The chip has no watchdog.
            Change::Watched { .. } => continue,
        };
        lowered.setup.push(operation);
    }
    lowered
}

/// The plane state that corresponds to a chip's entries.
pub(crate) fn state_of(entries: &[Operation]) -> PlaneState {
    let mut state = PlaneState::default();
    for entry in entries {
        match entry.clone() {
            Operation::Global(global) => state.global = *global,
            Operation::Port(port, Some(new)) => _ = state.ports.insert(port, *new),
            Operation::Vlan(vlan, Some(new)) => _ = state.vlans.insert(vlan, new),
            Operation::Stp(instance, port, new) => _ = state.stp.insert((instance, port), new),
            Operation::Fdb(vlan, mac, Some(new)) => _ = state.fdb.insert((vlan, mac), new),
            Operation::Rif(rif, Some(new)) => _ = state.rifs.insert(rif, *new),
            _ => {}
        }
    }
    state
}

/// Refuses what the chip cannot do: ports that are not on its front panel, and hooks.
pub(crate) fn check(state: &PlaneState, front: &BTreeSet<PortId>) -> Result<(), PlaneError> {
    for (port, state) in &state.ports {
        let on_panel = front.contains(port);
        match state.kind {
            PortKind::Netdev | PortKind::Routed if !on_panel => {
                return Err(unsupported(format!(
                    "forward at {}, which is not on the front panel: `show platform ports` lists its ports",
                    state.name
                )));
            }
            PortKind::Svi(_) | PortKind::Subinterface { .. } => continue,
            PortKind::Netdev | PortKind::Routed => check_choices(state)?,
        }
    }
    Ok(())
}

fn check_choices(state: &PortState) -> Result<(), PlaneError> {
    let what = match (state.hook, state.delivery) {
        (HookChoice::Auto, Delivery::Auto | Delivery::Device) => return Ok(()),
        (HookChoice::Tc, _) => "at the TC hook",
        (HookChoice::Xdp, _) => "at the XDP hook",
        (HookChoice::Auto, Delivery::Peer) => "with delivery to the peer",
    };
    Err(unsupported(format!("run {} {what}: the chip forwards its frames", state.name)))
}

pub(crate) fn unsupported(what: String) -> PlaneError {
    PlaneError::Unsupported { plane: "asic", what }
}
