//! Routes, next-hop groups and adjacencies, with the number of references to each.
//!
//! A plane with look-up structures of its own (those of the eBPF plane are in the kernel) keeps this table as well: it
//! decides which changes are refused, and finds the shorter prefix that applies when a route is removed.
//!
//! Invariant: no route refers to a missing group, and no group to a missing adjacency; a change that is refused changes
//! nothing.

use crate::route::{Adjacency, BUCKETS, RouteChange, RouteLookup, RouteTarget};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lanyard_types::{AdjacencyId, GroupId, RifId, VrfId};
use prefix_trie::PrefixMap;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// The maximum number of entries of each table, all VRFs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// IPv4 routes.
    pub ipv4: usize,
    /// IPv6 routes.
    pub ipv6: usize,
    /// Buckets of all groups together.
    pub buckets: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { ipv4: 1 << 21, ipv6: 1 << 19, buckets: 1 << 18 }
    }
}

/// Why a change was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The change would refer to a missing object, remove an object that is in use, or has a value out of
    /// range.
    Invalid(String),
    /// A table is full.
    Full {
        /// The table.
        table: &'static str,
        /// Its size in entries.
        size: usize,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) => f.write_str(why),
            Self::Full { table, size } => write!(f, "table {table} is full ({size} entries)"),
        }
    }
}

/// The occupancy of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// The number of entries.
    pub used: usize,
    /// The largest number of entries so far.
    pub high_water: usize,
    /// Entries refused because it was full.
    pub refused: u64,
}

impl Occupancy {
    fn set(&mut self, used: usize) {
        self.used = used;
        self.high_water = self.high_water.max(used);
    }
}

/// The tables of one VRF.
#[derive(Debug, Default)]
pub struct Vrf {
    /// IPv4 routes.
    pub ipv4: PrefixMap<Ipv4Net, RouteTarget>,
    /// IPv6 routes.
    pub ipv6: PrefixMap<Ipv6Net, RouteTarget>,
}

#[derive(Debug, Clone)]
struct Counted<T> {
    value: T,
    /// The number of objects that refer to it.
    users: u32,
}

/// All routes, groups and adjacencies.
#[derive(Debug, Default)]
pub struct Routes {
    limits: Limits,
    vrfs: BTreeMap<VrfId, Vrf>,
    groups: BTreeMap<GroupId, Counted<Vec<AdjacencyId>>>,
    adjacencies: BTreeMap<AdjacencyId, Counted<Adjacency>>,
    /// One value for each table, in the order of [`Routes::occupancy`].
    occupancy: [Occupancy; 5],
}

const IPV4: usize = 0;
const IPV6: usize = 1;
const GROUPS: usize = 2;
const BUCKET_POOL: usize = 3;
const ADJACENCIES: usize = 4;

impl Routes {
    /// Empty tables.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Carries out a change; `rif` returns whether a router interface exists. Returns the change that undoes
    /// it.
    ///
    /// # Errors
    /// When a reference would be to a missing object, a number is out of range, or a table is full. Nothing
    /// has changed then.
    pub fn change(
        &mut self,
        change: &RouteChange,
        rif: impl Fn(RifId) -> bool,
    ) -> Result<RouteChange, Refused> {
        match change {
            RouteChange::Adjacency(id, new) => {
                if let Some(stray) = new.filter(|new| !rif(new.rif)) {
                    return invalid(format!("adjacency {id} names no router interface: {}", stray.rif));
                }
                self.set_adjacency(*id, *new)
            }
            RouteChange::Group(id, new) => self.set_group(*id, new.as_deref()),
            RouteChange::Route(vrf, prefix, new) => self.set_route(*vrf, *prefix, *new),
            RouteChange::VrfGone(vrf) => {
                self.drop_vrf(*vrf);
                Ok(change.clone())
            }
        }
    }

    fn set_adjacency(&mut self, id: AdjacencyId, new: Option<Adjacency>) -> Result<RouteChange, Refused> {
        let old = self.adjacencies.get(&id).map(|counted| counted.value);
        match new {
            Some(value) => {
                let users = self.adjacencies.get(&id).map_or(0, |counted| counted.users);
                self.adjacencies.insert(id, Counted { value, users });
            }
            None if self.adjacencies.get(&id).is_some_and(|counted| counted.users > 0) => {
                return invalid(format!("adjacency {id} is in use by a group"));
            }
            None => _ = self.adjacencies.remove(&id),
        }
        self.occupancy[ADJACENCIES].set(self.adjacencies.len());
        Ok(RouteChange::Adjacency(id, old))
    }

    fn set_group(&mut self, id: GroupId, new: Option<&[AdjacencyId]>) -> Result<RouteChange, Refused> {
        let (users, old) = match self.groups.get(&id) {
            Some(counted) => (counted.users, Some(counted.value.clone())),
            None => (0, None),
        };
        let (had, has) = (old.as_ref().map_or(0, Vec::len), new.map_or(0, <[_]>::len));
        if let Some(new) = new {
            if !has.is_power_of_two() || has > BUCKETS {
                return invalid(format!("group {id} has {has} buckets, not a power of two up to {BUCKETS}"));
            }
            if let Some(stray) = new.iter().find(|id| !self.adjacencies.contains_key(id)) {
                return invalid(format!("group {id} names no adjacency: {stray}"));
            }
            if self.occupancy[BUCKET_POOL].used - had + has > self.limits.buckets {
                return self.full(BUCKET_POOL);
            }
        } else if users > 0 {
            return invalid(format!("group {id} is in use by {users} routes"));
        }
        for (bucket, more) in new.unwrap_or_default().iter().map(|b| (b, true)).chain(
            // Add references before removing any: an adjacency that stays in use never has none.
            old.iter().flatten().map(|b| (b, false)),
        ) {
            if let Some(adjacency) = self.adjacencies.get_mut(bucket) {
                adjacency.users = if more { adjacency.users + 1 } else { adjacency.users - 1 };
            }
        }
        match new {
            Some(new) => _ = self.groups.insert(id, Counted { value: new.to_vec(), users }),
            None => _ = self.groups.remove(&id),
        }
        self.occupancy[GROUPS].set(self.groups.len());
        self.occupancy[BUCKET_POOL].set(self.occupancy[BUCKET_POOL].used - had + has);
        Ok(RouteChange::Group(id, old))
    }

    fn set_route(
        &mut self,
        vrf: VrfId,
        prefix: IpNet,
        new: Option<RouteTarget>,
    ) -> Result<RouteChange, Refused> {
        if let Some(RouteTarget::Group(id)) = new
            && !self.groups.contains_key(&id)
        {
            return invalid(format!("the route to {prefix} names no group: {id}"));
        }
        let prefix = prefix.trunc();
        let table = if matches!(prefix, IpNet::V4(_)) { IPV4 } else { IPV6 };
        let limit = if table == IPV4 { self.limits.ipv4 } else { self.limits.ipv6 };
        let old = self.get(vrf, prefix);
        if old.is_none() && new.is_some() && self.occupancy[table].used >= limit {
            return self.full(table);
        }
        if new.is_some() || self.vrfs.contains_key(&vrf) {
            let tables = self.vrfs.entry(vrf).or_default();
            match (prefix, new) {
                (IpNet::V4(prefix), Some(new)) => _ = tables.ipv4.insert(prefix, new),
                (IpNet::V4(prefix), None) => _ = tables.ipv4.remove(&prefix),
                (IpNet::V6(prefix), Some(new)) => _ = tables.ipv6.insert(prefix, new),
                (IpNet::V6(prefix), None) => _ = tables.ipv6.remove(&prefix),
            }
        }
        self.count_users(new, true);
        self.count_users(old, false);
        let used = self.occupancy[table].used + usize::from(new.is_some()) - usize::from(old.is_some());
        self.occupancy[table].set(used);
        Ok(RouteChange::Route(vrf, prefix, old))
    }

    fn drop_vrf(&mut self, vrf: VrfId) {
        let Some(gone) = self.vrfs.remove(&vrf) else { return };
        let targets = gone.ipv4.values().chain(gone.ipv6.values());
        targets.for_each(|target| self.count_users(Some(*target), false));
        self.occupancy[IPV4].used -= gone.ipv4.len();
        self.occupancy[IPV6].used -= gone.ipv6.len();
    }

    fn count_users(&mut self, target: Option<RouteTarget>, more: bool) {
        let Some(RouteTarget::Group(id)) = target else { return };
        if let Some(group) = self.groups.get_mut(&id) {
            group.users = if more { group.users + 1 } else { group.users - 1 };
        }
    }

    fn full<T>(&mut self, table: usize) -> Result<T, Refused> {
        self.occupancy[table].refused += 1;
        let (table, size) = self.table(table);
        Err(Refused::Full { table, size })
    }

    fn table(&self, table: usize) -> (&'static str, usize) {
        match table {
            IPV4 => ("routes_ipv4", self.limits.ipv4),
            IPV6 => ("routes_ipv6", self.limits.ipv6),
            GROUPS => ("next_hop_groups", GroupId::MAX.index()),
            BUCKET_POOL => ("next_hop_buckets", self.limits.buckets),
            _ => ("adjacencies", AdjacencyId::MAX.index()),
        }
    }

    /// Name, size and occupancy of each table.
    pub fn occupancy(&self) -> impl Iterator<Item = (&'static str, usize, Occupancy)> + '_ {
        self.occupancy.iter().enumerate().map(|(table, occupancy)| {
            let (name, size) = self.table(table);
            (name, size, *occupancy)
        })
    }

    /// The VRFs that have, or had, routes.
    pub fn vrfs(&self) -> impl Iterator<Item = (VrfId, &Vrf)> {
        self.vrfs.iter().map(|(id, vrf)| (*id, vrf))
    }
    /// The tables of one VRF.
    #[must_use]
    pub fn vrf(&self, vrf: VrfId) -> Option<&Vrf> {
        self.vrfs.get(&vrf)
    }
    /// The route of exactly this prefix.
    #[must_use]
    pub fn get(&self, vrf: VrfId, prefix: IpNet) -> Option<RouteTarget> {
        let tables = self.vrfs.get(&vrf)?;
        match prefix {
            IpNet::V4(prefix) => tables.ipv4.get(&prefix).copied(),
            IpNet::V6(prefix) => tables.ipv6.get(&prefix).copied(),
        }
    }
    /// The longest match.
    #[must_use]
    pub fn longest(&self, vrf: VrfId, address: IpAddr) -> Option<(IpNet, RouteTarget)> {
        let tables = self.vrfs.get(&vrf)?;
        match address {
            IpAddr::V4(address) => {
                let found = tables.ipv4.get_lpm(&address.into());
                found.map(|(prefix, target)| (prefix.into(), *target))
            }
            IpAddr::V6(address) => {
                let found = tables.ipv6.get_lpm(&address.into());
                found.map(|(prefix, target)| (prefix.into(), *target))
            }
        }
    }
    /// The plane's decision about a destination.
    #[must_use]
    pub fn lookup(&self, vrf: VrfId, address: IpAddr) -> RouteLookup {
        let target = self.longest(vrf, address).map(|(_, target)| target);
        let buckets = match target {
            Some(RouteTarget::Group(group)) => self.buckets(group).to_vec(),
            _ => Vec::new(),
        };
        RouteLookup { target, buckets }
    }
    /// The approximate memory of one of the tables of [`Routes::occupancy`], in bytes.
    #[must_use]
    pub fn bytes(&self, table: &str) -> usize {
        match table {
            "routes_ipv4" => self.vrfs.values().map(|vrf| vrf.ipv4.mem_size()).sum(),
            "routes_ipv6" => self.vrfs.values().map(|vrf| vrf.ipv6.mem_size()).sum(),
            "next_hop_groups" => self.groups.len() * size_of::<Counted<Vec<AdjacencyId>>>(),
            "next_hop_buckets" => self.occupancy[BUCKET_POOL].used * size_of::<AdjacencyId>(),
            "adjacencies" => self.adjacencies.len() * size_of::<Counted<Adjacency>>(),
            _ => 0,
        }
    }
    /// A group's buckets; empty for a group that does not exist.
    #[must_use]
    pub fn buckets(&self, group: GroupId) -> &[AdjacencyId] {
        self.groups.get(&group).map_or(&[], |counted| &counted.value)
    }
    /// The groups.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &[AdjacencyId])> {
        self.groups.iter().map(|(id, counted)| (*id, counted.value.as_slice()))
    }
    /// The existing adjacencies.
    pub fn adjacencies(&self) -> impl Iterator<Item = AdjacencyId> + '_ {
        self.adjacencies.keys().copied()
    }
    /// An adjacency.
    #[must_use]
    pub fn adjacency(&self, id: AdjacencyId) -> Option<Adjacency> {
        self.adjacencies.get(&id).map(|counted| counted.value)
    }
}

fn invalid<T>(why: String) -> Result<T, Refused> {
    Err(Refused::Invalid(why))
}
