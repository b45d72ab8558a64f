//! From one plane state to the next: the list of changes, and applying it so that a failure undoes it.
//!
//! Invariant: [`transact`] leaves the backend at `next`, or, when a step fails, where it was before the call
//! (each step is undone by its inverse, last first).

use crate::PlaneError;
use lanyard_pipeline::route::RifState;
use lanyard_pipeline::state::{FdbTarget, GlobalState, PlaneState, PortState, StpState, VlanState};
use lanyard_types::{InstanceId, MacAddr, PortId, RifId, VlanId};
use std::collections::{BTreeMap, BTreeSet};

/// One step between two states. `old` and `new` are never equal; `None` is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Global settings.
    Global {
        /// Before.
        old: Box<GlobalState>,
        /// After.
        new: Box<GlobalState>,
    },
    /// A port added, changed or removed.
    Port {
        /// Which.
        port: PortId,
        /// Before.
        old: Option<Box<PortState>>,
        /// After.
        new: Option<Box<PortState>>,
    },
    /// A VLAN added, changed or removed.
    Vlan {
        /// Which.
        vlan: VlanId,
        /// Before.
        old: Option<VlanState>,
        /// After.
        new: Option<VlanState>,
    },
    /// A spanning-tree state.
    Stp {
        /// The tree.
        instance: InstanceId,
        /// The port.
        port: PortId,
        /// Before.
        old: StpState,
        /// After.
        new: StpState,
    },
    /// Whether the watchdog blocks a port in a tree when it expires.
    Watched {
        /// The tree.
        instance: InstanceId,
        /// The port.
        port: PortId,
        /// After; before, it was the opposite.
        new: bool,
    },
    /// A router interface added, changed or removed.
    Rif {
        /// Which.
        rif: RifId,
        /// Before.
        old: Option<Box<RifState>>,
        /// After.
        new: Option<Box<RifState>>,
    },
    /// A control-plane FDB entry.
    Fdb {
        /// The VLAN.
        vlan: VlanId,
        /// The address.
        mac: MacAddr,
        /// Before.
        old: Option<FdbTarget>,
        /// After.
        new: Option<FdbTarget>,
    },
}

impl Change {
    /// The change that undoes this one.
    #[must_use]
    pub fn inverse(self) -> Self {
        match self {
            Self::Global { old, new } => Self::Global { old: new, new: old },
            Self::Port { port, old, new } => Self::Port { port, old: new, new: old },
            Self::Vlan { vlan, old, new } => Self::Vlan { vlan, old: new, new: old },
            Self::Stp { instance, port, old, new } => Self::Stp { instance, port, old: new, new: old },
            Self::Watched { instance, port, new } => Self::Watched { instance, port, new: !new },
            Self::Rif { rif, old, new } => Self::Rif { rif, old: new, new: old },
            Self::Fdb { vlan, mac, old, new } => Self::Fdb { vlan, mac, old: new, new: old },
        }
    }
}

/// What carries out single changes.
pub trait Backend {
    /// Carries out one change.
    ///
    /// # Errors
    /// When it can't; it has then changed nothing.
    fn change(&mut self, change: &Change) -> Result<(), PlaneError>;
}

/// The changes from `old` to `next`, in an order that never forwards by a half-made state: FDB entries that
/// point at something leave before it does and arrive after it; blocking comes before unblocking. A port is watched before
/// it forwards, and is no longer watched only after all else.
#[must_use]
pub fn changes(old: &PlaneState, next: &PlaneState) -> Vec<Change> {
    let mut list = Vec::new();
    let (gone, come): (Vec<_>, Vec<_>) =
        differences(&old.fdb, &next.fdb).partition(|(_, _, new)| new.is_none());
    let fdb = |((vlan, mac), old, new)| Change::Fdb { vlan, mac, old, new };
    let (rifs_gone, rifs): (Vec<_>, Vec<_>) =
        differences(&old.rifs, &next.rifs).partition(|(_, _, new)| new.is_none());
    let rif = |(rif, old, new): (RifId, Option<RifState>, Option<RifState>)| Change::Rif {
        rif,
        old: old.map(Box::new),
        new: new.map(Box::new),
    };
    // Without its router interface an address is an ordinary one of the switch: the kernel routes.
    list.extend(rifs_gone.into_iter().map(rif));
    list.extend(gone.into_iter().map(fdb));
    if old.global != next.global {
        list.push(Change::Global { old: Box::new(old.global.clone()), new: Box::new(next.global.clone()) });
    }
    let (open, blocked): (Vec<_>, Vec<_>) = differences(&old.stp, &next.stp)
        .map(|(key, old, new)| (key, old.unwrap_or_default(), new.unwrap_or_default()))
        .partition(|(_, _, new)| *new == StpState::Forwarding);
    let stp = |((instance, port), old, new)| Change::Stp { instance, port, old, new };
    list.extend(blocked.into_iter().map(stp));
    let watched = |new| {
        move |(instance, port): &(InstanceId, PortId)| Change::Watched {
            instance: *instance,
            port: *port,
            new,
        }
    };
    list.extend(next.watched.difference(&old.watched).map(watched(true)));
    let (removed, added): (Vec<_>, Vec<_>) =
        differences(&old.ports, &next.ports).partition(|(_, _, new)| new.is_none());
    let port = |(port, old, new): (PortId, Option<PortState>, Option<PortState>)| Change::Port {
        port,
        old: old.map(Box::new),
        new: new.map(Box::new),
    };
    list.extend(removed.into_iter().map(port));
    list.extend(differences(&old.vlans, &next.vlans).map(|(vlan, old, new)| Change::Vlan { vlan, old, new }));
    list.extend(added.into_iter().map(port));
    list.extend(open.into_iter().map(stp));
    list.extend(come.into_iter().map(fdb));
    list.extend(rifs.into_iter().map(rif));
    list.extend(old.watched.difference(&next.watched).map(watched(false)));
    list
}

/// Carries out `list`; on failure undoes what was done, last first, and answers the failure.
///
/// # Errors
/// The failed step's. A step that can't be undone either is added to its text: the plane is then out of step.
pub fn transact(backend: &mut dyn Backend, list: Vec<Change>) -> Result<(), PlaneError> {
    for at in 0..list.len() {
        let Err(error) = backend.change(&list[at]) else { continue };
        for done in list.into_iter().take(at).rev() {
            if let Err(undo) = backend.change(&done.inverse()) {
                return Err(PlaneError::Invalid(format!(
                    "{error}; and undoing an earlier step failed: {undo}"
                )));
            }
        }
        return Err(error);
    }
    Ok(())
}

/// Keys whose value differs, ascending, with both values.
fn differences<K: Ord + Copy, V: PartialEq + Clone>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
) -> impl Iterator<Item = (K, Option<V>, Option<V>)> {
    let keys: BTreeSet<K> =
        old.keys().chain(new.keys()).copied().filter(|key| old.get(key) != new.get(key)).collect();
    keys.into_iter().map(|key| (key, old.get(&key).cloned(), new.get(&key).cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_pipeline::route::{RifAttachment, Urpf};
    use lanyard_types::VrfId;

    /// A backend that is a state, and fails at one step.
    struct Chaos {
        state: PlaneState,
        fail_at: usize,
        step: usize,
    }

    impl Backend for Chaos {
        fn change(&mut self, change: &Change) -> Result<(), PlaneError> {
            self.step += 1;
            if self.step == self.fail_at {
                return Err(PlaneError::TableFull { table: "chaos", size: 0 });
            }
            let state = &mut self.state;
            match change.clone() {
                Change::Global { new, .. } => state.global = *new,
                Change::Port { port, new, .. } => set(&mut state.ports, port, new.map(|new| *new)),
                Change::Vlan { vlan, new, .. } => set(&mut state.vlans, vlan, new),
                Change::Stp { instance, port, new, .. } => {
                    set(
                        &mut state.stp,
                        (instance, port),
                        Some(new).filter(|new| *new != StpState::Forwarding),
                    );
                }
                Change::Watched { instance, port, new: true } => _ = state.watched.insert((instance, port)),
                Change::Watched { instance, port, new: false } => _ = state.watched.remove(&(instance, port)),
                Change::Rif { rif, new, .. } => set(&mut state.rifs, rif, new.map(|new| *new)),
                Change::Fdb { vlan, mac, new, .. } => set(&mut state.fdb, (vlan, mac), new),
            }
            Ok(())
        }
    }

    fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
        match value {
            Some(value) => map.insert(key, value),
            None => map.remove(&key),
        };
    }

    fn state(seed: u16) -> PlaneState {
        let mut state = PlaneState::default();
        let port = |n| PortId::new(n).expect("a port");
        let vlan = |n| VlanId::new(n).expect("a VLAN");
        for n in 1 + seed..6 + seed {
            state.vlans.insert(vlan(n), VlanState::default());
            state
                .ports
                .insert(port(n), PortState::access(&format!("e{n}-{}", n % (2 + seed)), n.into(), vlan(n)));
            state.stp.insert(
                (InstanceId::default(), port(n)),
                if n % 2 == seed % 2 { StpState::Learning } else { StpState::Discarding },
            );
            state.watched.insert((InstanceId::default(), port(n)));
            state.fdb.insert((vlan(n), MacAddr([2, 0, 0, 0, 0, n as u8])), FdbTarget::Static(port(n)));
            let rif = RifState {
                name: format!("vlan{n}"),
                vrf: VrfId::DEFAULT,
                attachment: RifAttachment::Vlan { vlan: vlan(n), up: port(n) },
                mac: MacAddr([2, 0, 0, 0, seed as u8, 9]),
                virtual_macs: BTreeSet::new(),
                mtu: 1500,
                ipv4: true,
                ipv6: n % 2 == 0,
                urpf_ipv4: Urpf::Off,
                urpf_ipv6: Urpf::Off,
            };
            state.rifs.insert(RifId::new(n).expect("an interface"), rif);
        }
        state.global.fdb_limit = 100 + u32::from(seed);
        state
    }

    #[test]
    fn reaches_the_next_state() {
        let (old, next) = (state(0), state(3));
        let mut backend = Chaos { state: old.clone(), fail_at: 0, step: 0 };
        assert_eq!(transact(&mut backend, changes(&old, &next)), Ok(()));
        assert_eq!(backend.state, next);
        assert!(changes(&next, &next).is_empty());
    }

    #[test]
    fn every_failing_step_leaves_the_old_state() {
        let (old, next) = (state(0), state(3));
        let list = changes(&old, &next);
        for fail_at in 1..=list.len() {
            let mut backend = Chaos { state: old.clone(), fail_at, step: 0 };
            assert!(transact(&mut backend, list.clone()).is_err());
            assert_eq!(backend.state, old, "step {fail_at}");
        }
    }
}
