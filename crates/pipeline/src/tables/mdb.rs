//! The multicast database (MDB): which ports get the packets of a group (IEEE 802.1Q-2018, 8.8.6; RFC 4541).
//!
//! An entry is (VLAN, group) or (VLAN, group, source), by IP address. Packets from a source with an entry of its own go by that
//! entry, all others by the entry (VLAN, group). A group without an entry (VLAN, group) is unregistered, even if it has entries
//! for sources. Multicast snooping writes the table, one change at a time ([`MdbChange`]); it is no part of `PlaneState`, because
//! hosts change it all the time.
//!
//! Invariant: there are at most [`MDB_CAPACITY`] entries; a change that needs one more is refused, counted, and changes
//! nothing.

use super::routes::{Occupancy, Refused};
use lanyard_types::{Family, PortSet, VlanId};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The maximum number of entries: a group counts once, and each of its sources once.
pub const MDB_CAPACITY: usize = 131_072;

/// Groups that are flooded for the time being although snooping is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Flooded {
    /// None.
    #[default]
    Nothing = 0,
    /// Groups without an entry, because entries were refused.
    Unregistered = 1,
    /// All groups, because the topology has changed and members may be at other ports.
    All = 2,
}

/// A change of what multicast snooping has learned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MdbChange {
    /// An entry.
    Entry {
        /// The VLAN.
        vlan: VlanId,
        /// The group.
        group: IpAddr,
        /// The source of the packets to which the entry applies; `None`: all sources without an entry of their own.
        source: Option<IpAddr>,
        /// The ports with members; `None` removes the entry.
        ports: Option<Box<PortSet>>,
    },
    /// The ports of a VLAN that lead to multicast routers.
    Routers {
        /// The VLAN.
        vlan: VlanId,
        /// The family.
        family: Family,
        /// The ports.
        ports: Box<PortSet>,
    },
    /// The groups that are flooded in a VLAN.
    Flood {
        /// The VLAN.
        vlan: VlanId,
        /// The family.
        family: Family,
        /// The groups.
        flooded: Flooded,
    },
}

#[derive(Debug, Default)]
struct Group {
    /// The ports for sources without an entry of their own.
    any: Option<PortSet>,
    sources: BTreeMap<IpAddr, PortSet>,
}

impl Group {
    fn len(&self) -> usize {
        usize::from(self.any.is_some()) + self.sources.len()
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct Mdb {
    groups: BTreeMap<(VlanId, IpAddr), Group>,
    routers: BTreeMap<(VlanId, Family), PortSet>,
    flooded: BTreeMap<(VlanId, Family), Flooded>,
    occupancy: Occupancy,
}

/// Checks an entry's addresses.
///
/// # Errors
/// [`Refused::Invalid`] when `group` is not a multicast address, or `source` is one or belongs to the other family.
pub fn check(group: IpAddr, source: Option<IpAddr>) -> Result<(), Refused> {
    if !group.is_multicast() {
        return Err(Refused::Invalid(format!("{group} is not a multicast address")));
    }
    match source {
        Some(source) if source.is_multicast() || Family::of(source) != Family::of(group) => {
            Err(Refused::Invalid(format!("{source} cannot be a source of group {group}")))
        }
        _ => Ok(()),
    }
}

impl Mdb {
    /// Carries out a change.
    ///
    /// # Errors
    /// [`Refused::Full`] when a new entry has no room; [`Refused::Invalid`] as for [`check`].
    pub fn change(&mut self, change: &MdbChange) -> Result<(), Refused> {
        match change {
            MdbChange::Entry { vlan, group, source, ports } => {
                check(*group, *source)?;
                return self.set(*vlan, *group, *source, ports.as_deref());
            }
            MdbChange::Routers { vlan, family, ports } if ports.is_empty() => {
                self.routers.remove(&(*vlan, *family));
            }
            MdbChange::Routers { vlan, family, ports } => {
                self.routers.insert((*vlan, *family), (**ports).clone());
            }
            MdbChange::Flood { vlan, family, flooded } => match flooded {
                Flooded::Nothing => _ = self.flooded.remove(&(*vlan, *family)),
                flooded => _ = self.flooded.insert((*vlan, *family), *flooded),
            },
        }
        Ok(())
    }

    fn set(
        &mut self,
        vlan: VlanId,
        address: IpAddr,
        source: Option<IpAddr>,
        ports: Option<&PortSet>,
    ) -> Result<(), Refused> {
        let known = self.entry(vlan, address, source).is_some();
        if ports.is_some() && !known && self.occupancy.used >= MDB_CAPACITY {
            self.occupancy.refused += 1;
            return Err(Refused::Full { table: "mdb", size: MDB_CAPACITY });
        }
        let group = self.groups.entry((vlan, address)).or_default();
        let before = group.len();
        match (source, ports) {
            (None, ports) => group.any = ports.cloned(),
            (Some(source), Some(ports)) => _ = group.sources.insert(source, ports.clone()),
            (Some(source), None) => _ = group.sources.remove(&source),
        }
        let after = group.len();
        if after == 0 {
            self.groups.remove(&(vlan, address));
        }
        self.occupancy.used = self.occupancy.used + after - before;
        self.occupancy.high_water = self.occupancy.high_water.max(self.occupancy.used);
        Ok(())
    }

    /// The ports of an entry.
    #[must_use]
    pub fn entry(&self, vlan: VlanId, group: IpAddr, source: Option<IpAddr>) -> Option<&PortSet> {
        let group = self.groups.get(&(vlan, group))?;
        match source {
            None => group.any.as_ref(),
            Some(source) => group.sources.get(&source),
        }
    }

    /// The entries of a group, first the one for sources without an entry of their own.
    #[must_use]
    pub fn entries(&self, vlan: VlanId, group: IpAddr) -> Vec<(Option<IpAddr>, PortSet)> {
        let Some(group) = self.groups.get(&(vlan, group)) else { return Vec::new() };
        let any = group.any.iter().map(|ports| (None, ports.clone()));
        any.chain(group.sources.iter().map(|(source, ports)| (Some(*source), ports.clone()))).collect()
    }

    /// The ports with members of a group for packets from `source`; `None` when the group is unregistered.
    #[must_use]
    pub fn lookup(&self, vlan: VlanId, group: IpAddr, source: IpAddr) -> Option<&PortSet> {
        let group = self.groups.get(&(vlan, group))?;
        let any = group.any.as_ref()?;
        Some(group.sources.get(&source).unwrap_or(any))
    }
    /// The ports that lead to multicast routers.
    #[must_use]
    pub fn routers(&self, vlan: VlanId, family: Family) -> &PortSet {
        self.routers.get(&(vlan, family)).unwrap_or(&PortSet::EMPTY)
    }
    /// The groups that are flooded.
    #[must_use]
    pub fn flooded(&self, vlan: VlanId, family: Family) -> Flooded {
        self.flooded.get(&(vlan, family)).copied().unwrap_or_default()
    }
    /// The changes that make an empty table equal to this one.
    #[must_use]
    pub fn changes(&self) -> Vec<MdbChange> {
        let mut list = Vec::new();
        for ((vlan, group), entries) in &self.groups {
            let mut add = |source: Option<IpAddr>, ports: &PortSet| {
                let ports = Some(Box::new(ports.clone()));
                list.push(MdbChange::Entry { vlan: *vlan, group: *group, source, ports });
            };
            entries.any.iter().for_each(|ports| add(None, ports));
            entries.sources.iter().for_each(|(source, ports)| add(Some(*source), ports));
        }
        list.extend(self.routers.iter().map(|((vlan, family), ports)| MdbChange::Routers {
            vlan: *vlan,
            family: *family,
            ports: Box::new(ports.clone()),
        }));
        list.extend(self.flooded.iter().map(|((vlan, family), flooded)| MdbChange::Flood {
            vlan: *vlan,
            family: *family,
            flooded: *flooded,
        }));
        list
    }
    /// The number of entries, the largest number so far, and the entries refused because the table was full.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        self.occupancy
    }
}

#[cfg(test)]
mod tests {
    use super::{MDB_CAPACITY, Mdb, MdbChange};
    use crate::tables::routes::Refused;
    use lanyard_types::{PortId, PortSet, VlanId};
    use std::net::{IpAddr, Ipv4Addr};

    fn group(n: usize) -> IpAddr {
        Ipv4Addr::from(0xef01_0000 + n as u32).into()
    }

    fn entry(n: usize, source: Option<IpAddr>, port: Option<u16>) -> MdbChange {
        let ports = port.map(|port| Box::new(PortId::new(port).into_iter().collect::<PortSet>()));
        MdbChange::Entry { vlan: VlanId::DEFAULT, group: group(n), source, ports }
    }

    #[test]
    fn a_full_table_refuses_new_entries_and_changes_old_ones() {
        let mut mdb = Mdb::default();
        for n in 0..MDB_CAPACITY {
            mdb.change(&entry(n, None, Some(1))).expect("room");
        }
        let full = Err(Refused::Full { table: "mdb", size: MDB_CAPACITY });
        assert_eq!(mdb.change(&entry(MDB_CAPACITY, None, Some(1))), full);
        assert_eq!(mdb.change(&entry(0, Some([10, 0, 0, 1].into()), Some(1))), full);
        assert_eq!((mdb.occupancy().refused, mdb.occupancy().used), (2, MDB_CAPACITY));
        mdb.change(&entry(5, None, Some(2))).expect("no new entry");
        mdb.change(&entry(6, None, None)).expect("removed");
        mdb.change(&entry(MDB_CAPACITY, None, Some(1))).expect("room again");
        assert_eq!(mdb.occupancy().high_water, MDB_CAPACITY);
    }

    #[test]
    fn the_entry_with_the_source_decides() {
        let (mut mdb, vlan) = (Mdb::default(), VlanId::DEFAULT);
        let (known, other): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let port = |n| PortId::new(n).into_iter().collect::<PortSet>();
        mdb.change(&entry(1, Some(known), Some(7))).expect("room");
        assert_eq!(mdb.lookup(vlan, group(1), known), None, "the group has no entry of its own");
        mdb.change(&entry(1, None, Some(3))).expect("room");
        assert_eq!(mdb.lookup(vlan, group(1), known), Some(&port(7)));
        assert_eq!(mdb.lookup(vlan, group(1), other), Some(&port(3)));
        let refused = mdb.change(&entry(1, Some(group(2)), Some(3)));
        assert!(matches!(refused, Err(Refused::Invalid(_))), "{refused:?}");
        let mut copy = Mdb::default();
        mdb.changes().iter().for_each(|change| copy.change(change).expect("room"));
        assert_eq!(copy.changes(), mdb.changes());
    }
}
