//! The list of changes from one plane state to the next, and the transaction that applies it or undoes it.
//!
//! Invariant: [`transact`] leaves the plane at `next` or, when a step fails, where it was before the call
//! (each step is undone by its inverse, the last step first).

use crate::PlaneError;
use lanyard_acl::PlaneList;
use lanyard_pipeline::route::RifState;
use lanyard_pipeline::state::{
    ChannelMembers, FdbTarget, GlobalState, PlaneState, PortState, StpState, VlanState,
};
use lanyard_types::{AclId, ChannelId, InstanceId, MacAddr, PortId, RifId, VlanId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One step between two states. `old` and `new` are never equal; `None` means absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Global settings.
    Global {
        /// The settings before.
        old: Box<GlobalState>,
        /// The settings after.
        new: Box<GlobalState>,
    },
    /// A port added, changed or removed.
    Port {
        /// The port.
        port: PortId,
        /// The state before.
        old: Option<Box<PortState>>,
        /// The state after; `None` removes the port.
        new: Option<Box<PortState>>,
    },
    /// A VLAN added, changed or removed.
    Vlan {
        /// The VLAN.
        vlan: VlanId,
        /// The state before.
        old: Option<VlanState>,
        /// The state after.
        new: Option<VlanState>,
    },
    /// A spanning-tree state.
    Stp {
        /// The tree.
        instance: InstanceId,
        /// The port.
        port: PortId,
        /// The state before.
        old: StpState,
        /// The state after.
        new: StpState,
    },
    /// Whether the watchdog blocks a port in a tree when it expires.
    Watched {
        /// The tree.
        instance: InstanceId,
        /// The port.
        port: PortId,
        /// True if the watchdog blocks it after the change; before, it was the opposite.
        new: bool,
    },
    /// The members in use of a port-channel.
    Channel {
        /// The port-channel.
        channel: ChannelId,
        /// The members before; `None` means that no member was in use.
        old: Option<Box<ChannelMembers>>,
        /// The members after.
        new: Option<Box<ChannelMembers>>,
    },
    /// A router interface added, changed or removed.
    Rif {
        /// The router interface.
        rif: RifId,
        /// The state before.
        old: Option<Box<RifState>>,
        /// The state after.
        new: Option<Box<RifState>>,
    },
    /// An access list added, replaced or removed.
    Acl {
        /// The list.
        id: AclId,
        /// The rules before.
        old: Option<Arc<PlaneList>>,
        /// The rules after.
        new: Option<Arc<PlaneList>>,
    },
    /// An FDB entry that the control plane owns: static, or the switch's own address.
    Fdb {
        /// The VLAN.
        vlan: VlanId,
        /// The address.
        mac: MacAddr,
        /// The target before.
        old: Option<FdbTarget>,
        /// The target after.
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
            Self::Channel { channel, old, new } => Self::Channel { channel, old: new, new: old },
            Self::Rif { rif, old, new } => Self::Rif { rif, old: new, new: old },
            Self::Acl { id, old, new } => Self::Acl { id, old: new, new: old },
            Self::Fdb { vlan, mac, old, new } => Self::Fdb { vlan, mac, old: new, new: old },
        }
    }
}

/// A plane's implementation of single changes.
pub trait ApplyChange {
    /// Carries out one change.
    ///
    /// # Errors
    /// When it cannot; the state is then unchanged.
    fn change(&mut self, change: &Change) -> Result<(), PlaneError>;
}

/// The changes from `old` to `next`, in an order in which no intermediate state forwards what neither `old` nor `next`
/// does. FDB entries are removed before the port that they name and added after it; ports are blocked before others are
/// unblocked. Where several ports change, each port loses its memberships before any port gains one, so a port that
/// enters a VLAN never forwards to one that is about to leave it. A port is watched before it forwards, and the watch
/// ends after all other changes.
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
    // While its router interface is absent, an address is an ordinary address of the switch: the kernel
    // routes for it.
    list.extend(rifs_gone.into_iter().map(rif));
    // A list exists before ports and VLANs refer to it, and until none does any more.
    let acl = |(id, old, new)| Change::Acl { id, old, new };
    let (acls_gone, acls): (Vec<_>, Vec<_>) =
        differences(&old.acls, &next.acls).partition(|(_, _, new)| new.is_none());
    list.extend(acls.into_iter().map(acl));
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
    // If a single port changes, it needs no intermediate state.
    let (narrowed, added) = if added.len() > 1 { narrow(added) } else { (Vec::new(), added) };
    list.extend(narrowed.into_iter().map(port));
    list.extend(differences(&old.vlans, &next.vlans).map(|(vlan, old, new)| Change::Vlan { vlan, old, new }));
    let channel = |(channel, old, new): (ChannelId, Option<ChannelMembers>, Option<ChannelMembers>)| {
        Change::Channel { channel, old: old.map(Box::new), new: new.map(Box::new) }
    };
    list.extend(differences(&old.channels, &next.channels).map(channel));
    list.extend(added.into_iter().map(port));
    list.extend(open.into_iter().map(stp));
    list.extend(come.into_iter().map(fdb));
    list.extend(rifs.into_iter().map(rif));
    list.extend(old.watched.difference(&next.watched).map(watched(false)));
    list.extend(acls_gone.into_iter().map(acl));
    list
}

/// Carries out `list`. On failure undoes the steps done so far, the last first, and returns the failure.
///
/// # Errors
/// The failed step's error. If undoing a step fails too, its error is added to the text; the plane is then
/// between two states.
pub fn transact(plane: &mut dyn ApplyChange, list: Vec<Change>) -> Result<(), PlaneError> {
    for at in 0..list.len() {
        let Err(error) = plane.change(&list[at]) else { continue };
        for done in list.into_iter().take(at).rev() {
            if let Err(undo) = plane.change(&done.inverse()) {
                return Err(PlaneError::Invalid(format!(
                    "{error}; and undoing an earlier step failed: {undo}"
                )));
            }
        }
        return Err(error);
    }
    Ok(())
}

/// A port with its state before and after.
type PortChange = (PortId, Option<PortState>, Option<PortState>);

/// Splits changes of ports into those that remove something and those that add something.
fn narrow(changed: Vec<PortChange>) -> (Vec<PortChange>, Vec<PortChange>) {
    let (mut first, mut replaced, mut then) = (Vec::new(), Vec::new(), Vec::new());
    for (id, old, new) in changed {
        if old.as_ref().zip(new.as_ref()).is_some_and(|(old, new)| old.ifindex != new.ifindex) {
            // A port with another netdev is another port: the old netdev may be gone, and cannot be changed any more. It changes
            // as a whole, before other ports gain something: none of them meets it in a VLAN that it leaves.
            replaced.push((id, old, new));
            continue;
        }
        let less = old.as_ref().zip(new.as_ref()).map(|(old, new)| common(old, new));
        match less {
            Some(less) if old.as_ref() != Some(&less) => {
                first.push((id, old, Some(less.clone())));
                if new.as_ref() != Some(&less) {
                    then.push((id, Some(less), new));
                }
            }
            _ => then.push((id, old, new)),
        }
    }
    replaced.append(&mut then);
    (first, replaced)
}

/// The intermediate state of a port: `old` without everything that `new` does not have or allow.
fn common(old: &PortState, new: &PortState) -> PortState {
    let mut less = old.clone();
    less.enabled &= new.enabled;
    less.isolated |= new.isolated;
    less.learning &= new.learning;
    if less.pvid != new.pvid {
        less.pvid = None;
    }
    if less.aggregation != new.aggregation {
        // As an ordinary port it would be in no port-channel for a moment, and as a member it is in no VLAN.
        less.enabled = false;
    }
    // Frames of a VLAN that the port keeps, tagged or untagged, are not interrupted.
    let stays = |vlan: &VlanId| new.tagged.contains(*vlan) || new.untagged.contains(*vlan);
    less.tagged = old.tagged.iter().filter(stays).collect();
    less.untagged = old.untagged.iter().filter(stays).collect();
    less
}

/// The keys whose values differ, ascending, with both values.
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

    /// A plane that only stores a state, and fails at one step.
    struct Chaos {
        state: PlaneState,
        fail_at: usize,
        step: usize,
    }

    impl ApplyChange for Chaos {
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
                Change::Channel { channel, new, .. } => {
                    set(&mut state.channels, channel, new.map(|new| *new));
                }
                Change::Rif { rif, new, .. } => set(&mut state.rifs, rif, new.map(|new| *new)),
                Change::Acl { id, new, .. } => set(&mut state.acls, id, new),
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
                while_confirmed: false,
            };
            state.rifs.insert(RifId::new(n).expect("an interface"), rif);
            let list = PlaneList {
                name: String::new(),
                purpose: lanyard_acl::Purpose::Filter,
                family: lanyard_acl::FrameFamily::Ipv4,
                names: vec![format!("list {}", n + seed)],
                rules: Vec::new(),
                otherwise_permit: false,
            };
            state.acls.insert(AclId::new(n).expect("a list"), Arc::new(list));
        }
        state.global.fdb_limit = 100 + u32::from(seed);
        state
    }

    #[test]
    fn reaches_the_next_state() {
        let (old, next) = (state(0), state(3));
        let mut plane = Chaos { state: old.clone(), fail_at: 0, step: 0 };
        assert_eq!(transact(&mut plane, changes(&old, &next)), Ok(()));
        assert_eq!(plane.state, next);
        assert!(changes(&next, &next).is_empty());
    }

    /// True if a frame that enters one port untagged may leave at the other.
    fn meet(state: &PlaneState, a: u16, b: u16) -> bool {
        let port = |n| PortId::new(n).and_then(|id| state.ports.get(&id)).filter(|port| port.enabled);
        let (Some(a), Some(b)) = (port(a), port(b)) else { return false };
        a.pvid.is_some_and(|vlan| b.untagged.contains(vlan) || b.tagged.contains(vlan))
    }

    #[test]
    fn ports_that_change_never_meet_on_the_way() {
        let vlan = |n| VlanId::new(n).expect("a VLAN");
        let state = |ports: &[(u16, u16, bool)]| {
            let mut state = PlaneState::default();
            for (n, of, enabled) in ports {
                let port = PortState { enabled: *enabled, ..PortState::access("e", (*n).into(), vlan(*of)) };
                state.ports.insert(PortId::new(*n).expect("a port"), port);
            }
            state
        };
        let old = state(&[(1, 10, false), (2, 20, true), (3, 10, true), (4, 20, true), (5, 10, true)]);
        let mut next = state(&[(1, 10, true), (2, 10, true), (3, 20, true), (4, 20, true), (5, 10, false)]);
        // One of the ports that change also has another netdev.
        next.ports.entry(PortId::new(3).expect("a port")).and_modify(|port| port.ifindex = 99);
        let pairs = || (1..=5).flat_map(|a| (1..=5).map(move |b| (a, b)));
        for (from, to) in [(&old, &next), (&next, &old)] {
            let mut plane = Chaos { state: from.clone(), fail_at: 0, step: 0 };
            for change in changes(from, to) {
                plane.change(&change).expect("nothing fails");
                for (a, b) in pairs() {
                    let allowed = meet(from, a, b) || meet(to, a, b);
                    assert!(allowed || !meet(&plane.state, a, b), "{a} to {b} after {change:?}");
                }
            }
            assert_eq!(plane.state, *to);
        }
    }

    #[test]
    fn a_port_keeps_the_vlans_that_stay() {
        let vlan = |n| VlanId::new(n).expect("a VLAN");
        let old = PortState {
            tagged: [vlan(10), vlan(30)].into_iter().collect(),
            ..PortState::access("e", 1, vlan(20))
        };
        let new =
            PortState { tagged: [vlan(20)].into_iter().collect(), ..PortState::access("e", 1, vlan(10)) };
        let less = common(&old, &new);
        assert_eq!(less.tagged, [vlan(10)].into_iter().collect());
        assert_eq!(less.untagged, [vlan(20)].into_iter().collect());
        assert_eq!(less.pvid, None);
    }

    #[test]
    fn a_port_with_a_replaced_netdev_changes_before_others_gain_its_vlan() {
        let port = |ifindex, vlan| PortState::access("e", ifindex, VlanId::new(vlan).expect("a VLAN"));
        let changed = |ifindex| {
            let ports = [(1, port(8, 20), port(8, 10)), (2, port(7, 10), port(ifindex, 20))];
            let id = |n| PortId::new(n).expect("a port");
            ports.map(|(n, old, new)| (id(n), Some(old), Some(new))).to_vec()
        };
        let numbers = |list: &[PortChange]| list.iter().map(|(id, ..)| id.get()).collect::<Vec<_>>();
        let (first, then) = narrow(changed(7));
        assert_eq!((numbers(&first), numbers(&then)), (vec![1, 2], vec![1, 2]));
        let (first, then) = narrow(changed(9));
        assert_eq!((numbers(&first), numbers(&then)), (vec![1], vec![2, 1]));
    }

    #[test]
    fn every_failing_step_leaves_the_old_state() {
        let (old, next) = (state(0), state(3));
        let list = changes(&old, &next);
        for fail_at in 1..=list.len() {
            let mut plane = Chaos { state: old.clone(), fail_at, step: 0 };
            assert!(transact(&mut plane, list.clone()).is_err());
            assert_eq!(plane.state, old, "step {fail_at}");
        }
    }
}
