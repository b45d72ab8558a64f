//! [`Groups`]: the entries that multicast snooping has learned, and the changes that still have to be written to the chip.
//!
//! The protocol thread writes each change to the chip and then notes it here, so that a chip, or the software plane, that takes
//! the place of another gets all of it.
//!
//! Invariants: a change that was accepted is in `wanted`, and the chip holds it or its key is in `pending`. A group of which an
//! entry has no room is not in `wanted` at all; it is flooded in its VLAN, and the protocols get its entries back.

use crate::figures::intern;
use lanyard_asic::sdk::message::Code;
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::sdk::{Client, Refused, SdkError};
use lanyard_pipeline::tables::mdb::{Flooded, MDB_CAPACITY, Mdb, MdbChange};
use lanyard_plane::PlaneError;
use lanyard_types::{Family, VlanId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The most operations of a transaction that writes groups. Only a group with more entries than that takes a longer one.
const PART: usize = 256;

/// A group of a VLAN.
pub(crate) type Group = (VlanId, IpAddr);

/// Identifies the object of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Routers(VlanId, Family),
    Flood(VlanId, Family),
    Entry(VlanId, IpAddr, Option<IpAddr>),
}

impl Key {
    pub(crate) fn of(change: &MdbChange) -> Self {
        match change {
            MdbChange::Entry { vlan, group, source, .. } => Self::Entry(*vlan, *group, *source),
            MdbChange::Routers { vlan, family, .. } => Self::Routers(*vlan, *family),
            MdbChange::Flood { vlan, family, .. } => Self::Flood(*vlan, *family),
        }
    }
}

/// See the module comment.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    wanted: Mdb,
    pending: BTreeSet<Key>,
    /// Entries of groups for which a chip that took over had no room.
    lost: Vec<MdbChange>,
    refused: u64,
}

impl Groups {
    /// Creates it with the groups that a chip holds.
    pub(crate) fn of(entries: &[Operation]) -> Self {
        let mut groups = Self::default();
        for change in entries.iter().filter_map(Operation::mdb_change) {
            // This does not fail: the chip has stored these entries in a table of the same type, with the same limits.
            let _ = groups.wanted.change(&change);
        }
        groups
    }
    /// The changes that create all wanted entries in an empty table.
    pub(crate) fn changes(&self) -> Vec<MdbChange> {
        self.wanted.changes()
    }
    /// The number of entries, the largest number so far, and the number of entries that a table of the chip has refused.
    pub(crate) fn figures(&self) -> (usize, usize, u64) {
        let occupancy = self.wanted.occupancy();
        (occupancy.used, occupancy.high_water, self.refused)
    }
    /// Notes a change. `taken` is true if the chip has carried it out, false if it is not known whether it has.
    pub(crate) fn note(&mut self, change: &MdbChange, taken: bool) -> Result<(), PlaneError> {
        self.wanted.change(change)?;
        let key = Key::of(change);
        if taken {
            self.pending.remove(&key);
        } else {
            self.pending.insert(key);
        }
        Ok(())
    }
    /// Counts an entry for which a table had no room; returns the error to report. An earlier change of the entry that the chip
    /// has not taken is void, because the protocols know from now on that there is no entry.
    pub(crate) fn refuse(&mut self, change: &MdbChange, refused: &Refused) -> PlaneError {
        self.refused += 1;
        if let MdbChange::Entry { vlan, group, source, .. } = change {
            let gone = MdbChange::Entry { vlan: *vlan, group: *group, source: *source, ports: None };
            // A removal needs no room, so this does not fail; and it is not pending, because the chip does not hold the entry.
            let _ = self.note(&gone, true);
        }
        match refused.table.as_str() {
            "" => PlaneError::TableFull { table: "mdb", size: MDB_CAPACITY as u64 },
            table => PlaneError::TableFull { table: intern(table), size: refused.units.1.into() },
        }
    }
    /// The changes that still have to be written to the chip.
    pub(crate) fn pending(&self) -> Vec<MdbChange> {
        self.pending.iter().map(|key| self.change(key)).collect()
    }
    /// Notes that the chip has carried out these changes, except those of the groups `without`, for which it had no room: of
    /// their changes it has carried out none, not even removals. Changes that have been replaced meanwhile are pending.
    pub(crate) fn taken(&mut self, changes: &[MdbChange], without: &BTreeSet<Group>) {
        for change in changes.iter().filter(|change| !is_of(change, without)) {
            let key = Key::of(change);
            if self.change(&key) == *change {
                self.pending.remove(&key);
            } else {
                self.pending.insert(key);
            }
        }
    }
    /// Notes that it is not known whether the chip holds these changes.
    pub(crate) fn doubt(&mut self, changes: &[MdbChange]) {
        self.pending.extend(changes.iter().map(Key::of));
    }
    /// Notes that another chip has taken over, and that it holds these entries only.
    pub(crate) fn moved(&mut self, held: &[MdbChange]) {
        let of = |changes: &[MdbChange]| -> BTreeMap<Key, MdbChange> {
            changes.iter().map(|change| (Key::of(change), change.clone())).collect()
        };
        let (held, wanted) = (of(held), of(&self.wanted.changes()));
        let keys = held.keys().chain(wanted.keys());
        self.pending = keys.filter(|key| held.get(key) != wanted.get(key)).copied().collect();
    }
    /// Gives up groups for which the chip has no room: their VLANs are flooded, and the entries go back to the protocols.
    pub(crate) fn lose(&mut self, groups: &BTreeSet<Group>) {
        for (vlan, group) in groups {
            let family = Family::of(*group);
            self.refused += 1;
            if self.wanted.flooded(*vlan, family) == Flooded::Nothing {
                let flood = MdbChange::Flood { vlan: *vlan, family, flooded: Flooded::Unregistered };
                // This does not fail: only an entry can be refused, and only when it is added.
                let _ = self.note(&flood, false);
            }
            for (source, ports) in self.wanted.entries(*vlan, *group) {
                let entry = |ports| MdbChange::Entry { vlan: *vlan, group: *group, source, ports };
                let _ = self.note(&entry(None), false);
                self.lost.push(entry(Some(Box::new(ports))));
            }
        }
    }
    /// Returns the entries that have been given up since the last call.
    pub(crate) fn take_lost(&mut self) -> Vec<MdbChange> {
        std::mem::take(&mut self.lost)
    }

    /// The change that sets the wanted value of a key.
    fn change(&self, key: &Key) -> MdbChange {
        match *key {
            Key::Entry(vlan, group, source) => {
                let ports = self.wanted.entry(vlan, group, source).cloned().map(Box::new);
                MdbChange::Entry { vlan, group, source, ports }
            }
            Key::Routers(vlan, family) => {
                let ports = Box::new(self.wanted.routers(vlan, family).clone());
                MdbChange::Routers { vlan, family, ports }
            }
            Key::Flood(vlan, family) => {
                MdbChange::Flood { vlan, family, flooded: self.wanted.flooded(vlan, family) }
            }
        }
    }
}

/// The group of an entry that changes; `None` for changes of other objects.
pub(crate) fn group(change: &MdbChange) -> Option<Group> {
    match change {
        MdbChange::Entry { vlan, group, .. } => Some((*vlan, *group)),
        MdbChange::Routers { .. } | MdbChange::Flood { .. } => None,
    }
}

/// True for an entry of one of these groups.
pub(crate) fn is_of(change: &MdbChange, groups: &BTreeSet<Group>) -> bool {
    group(change).is_some_and(|group| groups.contains(&group))
}

/// Writes changes, in the order of their keys, to a chip. Returns the groups for which it had no room; it has carried out none of
/// their changes.
pub(crate) fn write(client: &mut Client, changes: &[MdbChange]) -> Result<BTreeSet<Group>, SdkError> {
    let mut lost = BTreeSet::new();
    let (mut rest, mut most) = (changes, PART);
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(part(rest, most));
        let operations: Vec<Operation> = part.iter().map(Operation::from).collect();
        match client.commit(&operations) {
            Ok(_) => {
                rest = behind;
                most = PART.min(2 * most);
            }
            Err(SdkError::Refused(refused)) if refused.code == Code::NoRoom => {
                let at = usize::try_from(refused.at).ok().filter(|at| *at < part.len());
                let Some((at, without)) = at.and_then(|at| Some((at, group(&part[at])?))) else {
                    return Err(refused.into());
                };
                let fits = part[..at].iter().take_while(|change| group(change) != Some(without)).count();
                if fits == 0 {
                    lost.insert(without);
                    let its = rest.iter().take_while(|change| group(change) == Some(without)).count();
                    rest = &rest[its..];
                }
                // A refused transaction takes its whole time on the bus. In a full table most groups have no room, so the next
                // transactions are short.
                most = fits.max(1);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(lost)
}

/// The number of changes in the next transaction: `most`, or more if the last group has further changes, because one transaction
/// has all changes of a group.
fn part(changes: &[MdbChange], most: usize) -> usize {
    let mut end = changes.len().min(most);
    while end < changes.len()
        && group(&changes[end]).is_some()
        && group(&changes[end]) == group(&changes[end - 1])
    {
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_types::{PortId, PortSet};

    #[test]
    fn a_removal_of_a_group_without_room_stays_pending() {
        let vlan = VlanId::new(10).expect("a VLAN");
        let address = IpAddr::from([239, 1, 1, 1]);
        let ports: PortSet = PortId::new(1).into_iter().collect();
        let entry = |source: Option<u8>, on: bool| MdbChange::Entry {
            vlan,
            group: address,
            source: source.map(|last| IpAddr::from([10, 0, 0, last])),
            ports: on.then(|| Box::new(ports.clone())),
        };
        let mut groups = Groups::default();
        groups.note(&entry(None, true), true).expect("room");
        // Neither a removal nor a further entry of the group, for which the chip has no room, has been written to the chip.
        groups.note(&entry(None, false), false).expect("a removal");
        groups.note(&entry(Some(2), true), false).expect("room");
        let (pending, lost) = (groups.pending(), BTreeSet::from([(vlan, address)]));
        groups.taken(&pending, &lost);
        groups.lose(&lost);
        let left = groups.pending();
        assert!(left.contains(&entry(None, false)) && left.contains(&entry(Some(2), false)), "{left:?}");
        assert!(groups.changes().iter().all(|change| group(change).is_none()));
        groups.taken(&left, &BTreeSet::new());
        assert_eq!(groups.pending(), []);
    }

    #[test]
    fn a_change_that_was_replaced_while_the_chip_took_it_is_pending() {
        let vlan = VlanId::new(10).expect("a VLAN");
        let flood = |flooded| MdbChange::Flood { vlan, family: Family::V4, flooded };
        let mut groups = Groups::default();
        groups.note(&flood(Flooded::All), true).expect("room");
        groups.taken(&[flood(Flooded::Nothing)], &BTreeSet::new());
        assert_eq!(groups.pending(), [flood(Flooded::All)]);
        groups.doubt(&[flood(Flooded::Nothing)]);
        groups.taken(&groups.pending(), &BTreeSet::new());
        assert_eq!(groups.pending(), []);
    }
}
