//! [`Routing`]: passes routes, next-hop groups and adjacencies to the resource manager.
//!
//! If a driver finds a chip that has routes, the chip continues to use them. The changes that the driver receives are
//! only collected until [`Routing::sync`] is called, when it has received everything once. Then only the differences
//! are written, in an order in which each packet takes its old route or its new one: first objects, then routes, the
//! longest first; at last unused entries are removed.

use crate::ids::Ids;
use ipnet::IpNet;
use lanyard_asic::sdk::operation::Operation;
use lanyard_offload::live::Live;
use lanyard_offload::manager::MAX_BATCH;
use lanyard_offload::{Manager, Refusal};
use lanyard_pipeline::route::{Adjacency, RouteChange, RouteLookup, RouteTarget};
use lanyard_plane::PlaneError;
use lanyard_types::{AdjacencyId, GroupId, VrfId};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The most operations of one request to the manager.
const BATCH: usize = 1024;
const _: () = assert!(BATCH <= MAX_BATCH);

/// The changes received since the driver took over a chip with routes.
#[derive(Debug, Default)]
struct Staged {
    adjacencies: BTreeMap<AdjacencyId, Adjacency>,
    groups: BTreeMap<GroupId, Vec<AdjacencyId>>,
    routes: BTreeMap<(VrfId, IpNet), RouteTarget>,
}

/// Whether the chip's refusals have consequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Feedback {
    #[default]
    On,
    /// A route that was refused counts as programmed, as in systems without feedback. Its packets then take a shorter
    /// prefix, which this option exists to demonstrate.
    Off,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Routing {
    adjacencies: Ids<AdjacencyId>,
    groups: Ids<GroupId>,
    staged: Option<Staged>,
    feedback: Feedback,
    /// Routes that were refused, but count as programmed because of [`Feedback::Off`].
    unheard: BTreeMap<(VrfId, IpNet), RouteTarget>,
}

impl Routing {
    /// Creates it; `adopts` is true when the chip has routes already.
    pub(crate) fn new(adopts: bool) -> Self {
        Self {
            adjacencies: Ids::new(AdjacencyId::new),
            groups: Ids::new(GroupId::new),
            staged: adopts.then(Staged::default),
            feedback: Feedback::On,
            unheard: BTreeMap::new(),
        }
    }
    /// Sets whether the chip's refusals count. Routes whose refusal was ignored are requested again when feedback is turned on.
    pub(crate) fn set_feedback(&mut self, manager: &mut Manager<Live>, feedback: Feedback) {
        self.feedback = feedback;
        if feedback == Feedback::On {
            let unheard = std::mem::take(&mut self.unheard);
            let again =
                unheard.into_iter().map(|((vrf, prefix), to)| RouteChange::Route(vrf, prefix, Some(to)));
            let again: Vec<RouteChange> = again.collect();
            self.change(manager, &again);
        }
    }

    /// Carries out changes; returns the index and the error of those that were refused.
    pub(crate) fn change(
        &mut self,
        manager: &mut Manager<Live>,
        changes: &[RouteChange],
    ) -> Vec<(usize, PlaneError)> {
        if let Some(staged) = &mut self.staged {
            changes.iter().for_each(|change| staged.take(change));
            return Vec::new();
        }
        let mut refused = Vec::new();
        for (part, list) in changes.chunks(BATCH).enumerate() {
            let at = part * BATCH;
            match self.lower(manager, list) {
                Ok(batch) if manager.request(&batch).is_ok() => self.forget(list),
                // One of them is at fault. Request them one by one to find out which.
                _ => refused.extend(self.one_by_one(manager, list).into_iter().map(|(i, e)| (at + i, e))),
            }
        }
        manager.flush();
        refused
    }

    fn one_by_one(&mut self, manager: &mut Manager<Live>, list: &[RouteChange]) -> Vec<(usize, PlaneError)> {
        let mut refused = Vec::new();
        for (at, change) in list.iter().enumerate() {
            let change = std::slice::from_ref(change);
            let outcome = self
                .lower(manager, change)
                .and_then(|batch| manager.request(&batch).map_err(|refusal| error_of(&refusal)));
            match outcome {
                Ok(()) => self.forget(change),
                Err(error) => match (self.feedback, &list[at]) {
                    (Feedback::Off, RouteChange::Route(vrf, prefix, Some(target))) => {
                        self.unheard.insert((*vrf, prefix.trunc()), *target);
                    }
                    _ => refused.push((at, error)),
                },
            }
        }
        refused
    }

    /// The operations for some changes, with the chip's numbers.
    fn lower(
        &mut self,
        manager: &Manager<Live>,
        changes: &[RouteChange],
    ) -> Result<Vec<Operation>, PlaneError> {
        let mut batch = Vec::with_capacity(changes.len());
        for change in changes {
            match change {
                RouteChange::Adjacency(id, new) => {
                    let chip = self.adjacencies.assign(*id).ok_or_else(|| full("adjacencies"))?;
                    batch.push(Operation::Adjacency(chip, *new));
                }
                RouteChange::Group(id, new) => {
                    let chip = self.groups.assign(*id).ok_or_else(|| full("next_hop_groups"))?;
                    let new = new.as_ref().map(|members| self.members(members)).transpose()?;
                    batch.push(Operation::Group(chip, new));
                }
                RouteChange::Route(vrf, prefix, new) => {
                    let new = new.map(|target| self.target(target)).transpose()?;
                    batch.push(Operation::Route(*vrf, prefix.trunc(), new));
                }
                RouteChange::VrfGone(vrf) => {
                    let prefixes = routes_of(manager).into_keys().filter(|(of, _)| of == vrf);
                    batch.extend(prefixes.map(|(vrf, prefix)| Operation::Route(vrf, prefix, None)));
                }
            }
        }
        Ok(batch)
    }

    fn members(&self, members: &[AdjacencyId]) -> Result<Vec<AdjacencyId>, PlaneError> {
        let chip = |id: &AdjacencyId| self.adjacencies.get(*id).ok_or_else(|| absent("adjacency", id));
        members.iter().map(chip).collect()
    }
    fn target(&self, target: RouteTarget) -> Result<RouteTarget, PlaneError> {
        match target {
            RouteTarget::Group(id) => {
                self.groups.get(id).map(RouteTarget::Group).ok_or_else(|| absent("next-hop group", &id))
            }
            other => Ok(other),
        }
    }

    /// Frees the numbers of removed objects.
    fn forget(&mut self, changes: &[RouteChange]) {
        for change in changes {
            match change {
                RouteChange::Route(vrf, prefix, _) => _ = self.unheard.remove(&(*vrf, prefix.trunc())),
                RouteChange::Adjacency(id, None) => self.adjacencies.release(*id),
                RouteChange::Group(id, None) => self.groups.release(*id),
                _ => {}
            }
        }
    }

    /// Writes the routes of `from`, with all objects that they need, to `to`, which has none yet.
    ///
    /// # Errors
    /// The last refusal; the other routes have been written.
    pub(crate) fn copy(from: &Manager<Live>, to: &mut Manager<Live>) -> Result<(), PlaneError> {
        let routes = from.routes();
        let mut batch: Vec<Operation> =
            routes.adjacencies().map(|id| Operation::Adjacency(id, routes.adjacency(id))).collect();
        batch.extend(routes.groups().map(|(id, buckets)| Operation::Group(id, Some(buckets.to_vec()))));
        // The longest first, so that the packets of a route that does not fit are never forwarded by a
        // shorter one.
        let mut prefixes: Vec<_> = routes_of(from).into_iter().collect();
        prefixes.sort_by_key(|((_, prefix), _)| std::cmp::Reverse(prefix.prefix_len()));
        batch.extend(prefixes.into_iter().map(|((vrf, prefix), to)| Operation::Route(vrf, prefix, Some(to))));
        let mut outcome = Ok(());
        for part in batch.chunks(BATCH) {
            if let Err(refusal) = to.request(part) {
                outcome = Err(error_of(&refusal));
            }
        }
        to.flush();
        outcome
    }

    /// Called when everything has been received once: replaces the routes with which the chip was found by the
    /// received ones.
    pub(crate) fn sync(&mut self, manager: &mut Manager<Live>) -> Result<(), PlaneError> {
        let Some(staged) = self.staged.take() else { return Ok(()) };
        let had = routes_of(manager);
        let mut batch = self.bind_objects(manager, &staged)?;
        let mut wanted = BTreeMap::new();
        for (prefix, target) in &staged.routes {
            wanted.insert(*prefix, self.target(*target)?);
        }
        let mut routes: Vec<(&(VrfId, IpNet), &RouteTarget)> =
            wanted.iter().filter(|(prefix, target)| had.get(prefix) != Some(target)).collect();
        // A route that turns out not to fit is hidden while its cover still traps, before the cover gets its
        // own target.
        routes.sort_by_key(|((_, prefix), _)| std::cmp::Reverse(prefix.prefix_len()));
        batch
            .extend(routes.into_iter().map(|((vrf, prefix), to)| Operation::Route(*vrf, *prefix, Some(*to))));
        let gone = had.into_keys().filter(|prefix| !wanted.contains_key(prefix));
        batch.extend(gone.map(|(vrf, prefix)| Operation::Route(vrf, prefix, None)));
        let mut failure = Ok(());
        for part in batch.chunks(BATCH) {
            if let Err(refusal) = manager.request(part) {
                failure = Err(error_of(&refusal));
            }
        }
        self.drop_strays(manager);
        manager.flush();
        failure
    }

    /// Assigns to each received object the number under which the chip has it; returns the operations for the objects
    /// that the chip does not have.
    fn bind_objects(
        &mut self,
        manager: &Manager<Live>,
        staged: &Staged,
    ) -> Result<Vec<Operation>, PlaneError> {
        let mut batch = Vec::new();
        let routes = manager.routes();
        routes.adjacencies().for_each(|id| self.adjacencies.hold(id));
        routes.groups().for_each(|(id, _)| self.groups.hold(id));
        let mut known: BTreeMap<_, _> =
            routes.adjacencies().filter_map(|id| Some((place(routes.adjacency(id)?), id))).collect();
        for (id, adjacency) in &staged.adjacencies {
            match known.remove(&place(*adjacency)) {
                Some(chip) => self.adjacencies.bind(*id, chip),
                None => {
                    let chip = self.adjacencies.assign(*id).ok_or_else(|| full("adjacencies"))?;
                    batch.push(Operation::Adjacency(chip, Some(*adjacency)));
                }
            }
        }
        let mut known: BTreeMap<Vec<AdjacencyId>, GroupId> =
            routes.groups().map(|(id, buckets)| (buckets.to_vec(), id)).collect();
        for (id, members) in &staged.groups {
            let members = self.members(members)?;
            match known.remove(&members) {
                Some(chip) => self.groups.bind(*id, chip),
                None => {
                    let chip = self.groups.assign(*id).ok_or_else(|| full("next_hop_groups"))?;
                    batch.push(Operation::Group(chip, Some(members)));
                }
            }
        }
        Ok(batch)
    }

    /// Removes the groups and adjacencies that were not received.
    fn drop_strays(&mut self, manager: &mut Manager<Live>) {
        let groups: Vec<GroupId> =
            manager.routes().groups().map(|(id, _)| id).filter(|id| !self.groups.is_bound(*id)).collect();
        let adjacencies: Vec<AdjacencyId> =
            manager.routes().adjacencies().filter(|id| !self.adjacencies.is_bound(*id)).collect();
        for id in groups {
            if manager.request(&[Operation::Group(id, None)]).is_ok() {
                self.groups.let_go(id);
            }
        }
        for id in adjacencies {
            if manager.request(&[Operation::Adjacency(id, None)]).is_ok() {
                self.adjacencies.let_go(id);
            }
        }
    }

    /// The route that a packet to `address` takes, with the switch's numbers.
    pub(crate) fn lookup(&self, manager: &Manager<Live>, vrf: VrfId, address: IpAddr) -> RouteLookup {
        let found = manager.routes().lookup(vrf, address);
        let target = match found.target {
            Some(RouteTarget::Group(chip)) => self.groups.back(chip).map(RouteTarget::Group),
            other => other,
        };
        let buckets = found.buckets.iter().filter_map(|chip| self.adjacencies.back(*chip)).collect();
        RouteLookup { target, buckets }
    }
}

impl Staged {
    fn take(&mut self, change: &RouteChange) {
        match change {
            RouteChange::Adjacency(id, new) => set(&mut self.adjacencies, *id, *new),
            RouteChange::Group(id, new) => set(&mut self.groups, *id, new.clone()),
            RouteChange::Route(vrf, prefix, new) => set(&mut self.routes, (*vrf, prefix.trunc()), *new),
            RouteChange::VrfGone(vrf) => self.routes.retain(|(of, _), _| of != vrf),
        }
    }
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

/// The routes of the manager's configuration.
fn routes_of(manager: &Manager<Live>) -> BTreeMap<(VrfId, IpNet), RouteTarget> {
    let mut all = BTreeMap::new();
    for (vrf, tables) in manager.routes().vrfs() {
        all.extend(tables.ipv4.iter().map(|(prefix, target)| ((vrf, IpNet::V4(prefix)), *target)));
        all.extend(tables.ipv6.iter().map(|(prefix, target)| ((vrf, IpNet::V6(prefix)), *target)));
    }
    all
}

/// An adjacency in a form that can be ordered.
fn place(adjacency: Adjacency) -> (u16, Option<[u8; 6]>) {
    (adjacency.rif.get(), adjacency.mac.map(|mac| mac.0))
}

fn full(table: &'static str) -> PlaneError {
    PlaneError::TableFull { table, size: AdjacencyId::MAX.index() as u64 }
}
fn absent(what: &str, id: &dyn std::fmt::Display) -> PlaneError {
    PlaneError::Invalid(format!("{what} {id} does not exist"))
}

/// Converts the manager's refusal to the plane's error.
pub(crate) fn error_of(refusal: &Refusal) -> PlaneError {
    PlaneError::Invalid(refusal.to_string())
}
