//! The steps of a batch: configuration, places and writes; and how they are undone when it is refused.

use super::{Manager, Policy, Refusal, TRAP, object_of};
use crate::hardware::Hardware;
use crate::prefixes::Prefix;
use crate::strategy::Write;
use lanyard_asic::object::Object;
use lanyard_asic::sdk::operation::Operation;
use lanyard_pipeline::route::{RouteChange, RouteTarget};
use std::collections::BTreeSet;

/// The most operations of a batch.
pub const MAX_BATCH: usize = 16_384;

/// The most bytes of a batch: with the writes of its routes' covers it still fits a message of the SDK.
const MAX_BYTES: usize = lanyard_asic::sdk::MAX_MESSAGE * 3 / 8;

/// The most bytes that an operation takes in a message.
fn length_of(operation: &Operation) -> usize {
    match operation {
        Operation::Group(_, Some(buckets)) => 7 + 4 * buckets.len(),
        _ => 26,
    }
}

/// The place of a route before its batch: programmed, hidden, or neither if the route did not exist.
struct Was {
    prefix: Prefix,
    programmed: bool,
    hidden: bool,
}

impl Manager<dyn Hardware> {
    /// Accepts a batch of adjacencies, groups and routes as a whole, or refuses it. A route that does not fit is refused with its
    /// batch, or hidden, as the policy of its table says. The result is final, although writes may still be under way.
    ///
    /// # Errors
    /// The reason why the batch was refused.
    pub fn request(&mut self, batch: &[Operation]) -> Result<(), Refusal> {
        self.pump(false);
        if self.suspect && !self.down && !self.held {
            let _ = self.settle();
        }
        let undo = self.configure(batch)?;
        let places: Vec<Was> = touched(batch).map(|prefix| self.remember(prefix)).collect();
        let sync = touched(batch).all(|prefix| self.policies.of(object_of(prefix.1)) == Policy::Sync);
        let outcome = if self.down {
            self.place_all(batch, true);
            Ok(())
        } else if self.held {
            self.place_all(batch, false);
            Ok(())
        } else if sync {
            self.together(batch)
        } else {
            self.one_by_one(batch)
        };
        let Err(refusal) = outcome else {
            for (prefix, _) in routes_of(batch) {
                if self.routes.get(prefix.0, prefix.1).is_none() {
                    self.cool(prefix);
                }
            }
            if batch.iter().any(frees_room) {
                self.make_use_of_room();
            }
            return Ok(());
        };
        self.unwind(undo, places, !sync, matches!(refusal, Refusal::Chip(_)));
        Err(refusal)
    }

    fn remember(&self, prefix: Prefix) -> Was {
        let programmed = self.covers.is_programmed(prefix);
        Was { prefix, programmed, hidden: self.covers.hidden().contains(prefix) }
    }

    /// Restores configuration, places and chip as they were before a batch that was refused. `partly` is true if some of it may
    /// have been written, `failed` if the chip has failed.
    fn unwind(&mut self, undo: Vec<RouteChange>, places: Vec<Was>, partly: bool, failed: bool) {
        let mut inverse = Vec::with_capacity(undo.len());
        for change in undo.into_iter().rev() {
            // Undoing a change that was accepted does not fail.
            let _ = self.routes.change(&change, |_| true);
            inverse.extend(operation_of(change));
        }
        for Was { prefix, programmed, hidden } in places.into_iter().rev() {
            match (programmed, hidden) {
                (true, _) => self.covers.program(prefix),
                (false, true) => self.covers.hide(prefix),
                (false, false) => self.covers.forget(prefix),
            }
        }
        if partly && !failed {
            let plan = self.plan(&inverse);
            let whole = plan.whole;
            self.suspect |= self.drive(&plan.all(), whole).is_err();
        }
        if failed || self.suspect {
            self.suspect = true;
            let _ = self.settle();
        }
    }

    /// Stores the batch in the configuration and returns the changes that undo it.
    fn configure(&mut self, batch: &[Operation]) -> Result<Vec<RouteChange>, Refusal> {
        let bytes: usize = batch.iter().map(length_of).sum();
        if batch.len() > MAX_BATCH || bytes > MAX_BYTES {
            return Err(Refusal::Invalid(format!(
                "a batch of {} operations with {bytes} bytes; {MAX_BATCH} and {MAX_BYTES} are the most: divide it",
                batch.len()
            )));
        }
        let mut undo = Vec::with_capacity(batch.len());
        for operation in batch {
            let outcome = match operation {
                Operation::Adjacency(id, new) => Ok(RouteChange::Adjacency(*id, *new)),
                Operation::Group(id, new) => Ok(RouteChange::Group(*id, new.clone())),
                Operation::Route(vrf, prefix, new) => Ok(RouteChange::Route(*vrf, *prefix, *new)),
                other => Err(format!("a {} is not permitted in a batch of routes", other.kind().name())),
            };
            let outcome = outcome.and_then(|change| {
                self.routes
                    .change(&change, |rif| self.rifs.contains(&rif))
                    .map_err(|refused| refused.to_string())
            });
            match outcome {
                Ok(inverse) => undo.push(inverse),
                Err(why) => {
                    undo.into_iter().rev().for_each(|change| _ = self.routes.change(&change, |_| true));
                    return Err(Refusal::Invalid(why));
                }
            }
        }
        Ok(undo)
    }

    /// Writes all operations of a batch in one transaction.
    fn together(&mut self, batch: &[Operation]) -> Result<(), Refusal> {
        for (prefix, new) in routes_of(batch) {
            if new { self.covers.program(prefix) } else { self.covers.forget(prefix) }
        }
        let plan = self.plan(batch);
        let whole = plan.whole;
        self.drive(&plan.all(), whole)
    }

    /// Writes each route of a batch by itself, so that one that does not fit does not prevent the others.
    fn one_by_one(&mut self, batch: &[Operation]) -> Result<(), Refusal> {
        let objects = self.plan(batch);
        if objects.whole {
            // The objects of these routes change one after the other; meanwhile the software plane forwards the routes' packets.
            for prefix in touched(batch) {
                if self.written.contains(prefix) {
                    self.covers.hide(prefix);
                    self.write_routes([prefix])?;
                }
            }
        }
        self.drive(&objects.sets, false)?;
        for prefix in touched(batch).collect::<BTreeSet<Prefix>>() {
            let policy = self.policies.of(object_of(prefix.1));
            if self.routes.get(prefix.0, prefix.1).is_none() {
                self.covers.forget(prefix);
            } else if policy == Policy::Bypass {
                self.covers.hide(prefix);
            } else {
                self.covers.program(prefix);
            }
            match self.write_routes([prefix]) {
                Err(Refusal::Full { .. } | Refusal::Chip(_))
                    if policy == Policy::Hybrid && !self.down && self.covers.is_programmed(prefix) =>
                {
                    self.covers.hide(prefix);
                    self.write_routes([prefix])?;
                }
                outcome => outcome?,
            }
        }
        self.drive(&objects.removals, false)
    }

    /// Writes these routes, and their covers, as their places require.
    pub(super) fn write_routes(&mut self, prefixes: impl IntoIterator<Item = Prefix>) -> Result<(), Refusal> {
        let writes = self.plan_routes(prefixes.into_iter().collect());
        self.drive(&writes, false)
    }

    /// Gives the routes of a batch their places without writing anything; `hide` hides them all, because no chip answers.
    fn place_all(&mut self, batch: &[Operation], hide: bool) {
        for (prefix, new) in routes_of(batch) {
            if !new {
                self.covers.forget(prefix);
            } else if hide || self.policies.of(object_of(prefix.1)) == Policy::Bypass {
                self.covers.hide(prefix);
            } else {
                self.covers.program(prefix);
            }
        }
    }

    /// The target that a programmed route should have in the chip.
    pub(super) fn desired(&self, prefix: Prefix) -> Option<RouteTarget> {
        if !self.covers.is_programmed(prefix) {
            return None;
        }
        if self.covers.traps(prefix) { Some(TRAP) } else { self.routes.get(prefix.0, prefix.1) }
    }

    /// The writes that bring the objects and routes of a batch from their state in the chip to that of the configuration.
    fn plan(&self, batch: &[Operation]) -> Plan {
        let mut plan = Plan::default();
        let (mut groups, mut adjacencies) = (BTreeSet::new(), BTreeSet::new());
        for operation in batch {
            match operation {
                Operation::Group(id, _) => _ = groups.insert(*id),
                Operation::Adjacency(id, _) => _ = adjacencies.insert(*id),
                _ => {}
            }
        }
        for id in adjacencies {
            let (had, hop) = (self.written_adjacencies.contains(&id), self.routes.adjacency(id));
            plan.whole |= had && hop.is_some();
            let write = plain(Operation::Adjacency(id, hop));
            match (had, hop) {
                (_, Some(_)) => plan.sets.push(write),
                (true, None) => plan.removals.push(write),
                (false, None) => {}
            }
        }
        for id in groups {
            let had = self.written_groups.get(&id).copied();
            let buckets = Some(self.routes.buckets(id).to_vec()).filter(|buckets| !buckets.is_empty());
            plan.whole |= had.is_some() && buckets.is_some();
            let has = buckets.as_ref().map(|buckets| buckets.len() as u32);
            let write = group_write(Operation::Group(id, buckets), had, has);
            match (had, has) {
                (_, Some(_)) => plan.sets.push(write),
                // A group is removed before the adjacencies to which it refers.
                (Some(_), None) => plan.removals.insert(0, write),
                (None, None) => {}
            }
        }
        plan.routes = self.plan_routes(touched(batch).collect());
        plan.whole &= !plan.routes.is_empty();
        plan
    }

    /// The writes of routes and of their covers, in this order: covers begin to trap, routes are added, covers stop trapping and
    /// other targets change, routes are removed.
    fn plan_routes(&self, mut affected: BTreeSet<Prefix>) -> Vec<Write> {
        if !self.covers.hidden().is_empty() || self.trapping > 0 {
            let covers: Vec<Prefix> =
                affected.iter().filter_map(|prefix| self.covers.cover(*prefix)).collect();
            affected.extend(covers);
        }
        let mut routes: Vec<(u8, Write)> =
            affected.into_iter().filter_map(|prefix| self.route_write(prefix)).collect();
        routes.sort_by_key(|(rank, _)| *rank);
        routes.into_iter().map(|(_, write)| write).collect()
    }

    /// The write that gives one route its desired target, with its rank in the order of [`Manager::plan_routes`]; `None` if the
    /// chip has that target already.
    fn route_write(&self, prefix: Prefix) -> Option<(u8, Write)> {
        let (was, is) = (self.written.get(prefix).copied(), self.desired(prefix));
        let rank = match (was, is) {
            _ if was == is => return None,
            (Some(_), Some(TRAP)) => 0,
            (None, Some(_)) => 1,
            (Some(_), Some(_)) => 2,
            _ => 3,
        };
        let object = object_of(prefix.1);
        let write = Write {
            operation: Operation::Route(prefix.0, prefix.1, is),
            adds: if was.is_none() { vec![(object, 1)] } else { Vec::new() },
            removes: if is.is_none() { vec![(object, 1)] } else { Vec::new() },
            unsure: was.is_none() && self.vrf_routes.get(&prefix.0).is_none_or(|count| *count == 0),
        };
        Some((rank, write))
    }
}

/// The writes of a batch, in the order in which the chip can carry them out.
#[derive(Debug, Default)]
struct Plan {
    /// Adjacencies and groups to which routes will refer.
    sets: Vec<Write>,
    routes: Vec<Write>,
    /// Groups and adjacencies to which no route refers any more.
    removals: Vec<Write>,
    /// True if groups or adjacencies of the chip get another value in the same batch as routes change: unless all of it is one
    /// transaction, packets could go to a wrong next hop meanwhile.
    whole: bool,
}

impl Plan {
    fn all(self) -> Vec<Write> {
        self.sets.into_iter().chain(self.routes).chain(self.removals).collect()
    }
}

/// A write that neither takes nor frees room in a table.
fn plain(operation: Operation) -> Write {
    Write { operation, adds: Vec::new(), removes: Vec::new(), unsure: false }
}

/// The write of a group whose number of buckets in the chip changes from `had` to `has`: another number of members takes a new
/// run.
fn group_write(operation: Operation, had: Option<u32>, has: Option<u32>) -> Write {
    let mut write = plain(operation);
    if had == has {
        return write;
    }
    if has.is_some() && had.is_none() {
        write.adds.push((Object::EcmpGroup, 1));
    }
    if had.is_some() && has.is_none() {
        write.removes.push((Object::EcmpGroup, 1));
    }
    write.adds.extend(has.map(|count| (Object::EcmpMember, count)));
    write.removes.extend(had.map(|count| (Object::EcmpMember, count)));
    write
}

fn operation_of(change: RouteChange) -> Option<Operation> {
    Some(match change {
        RouteChange::Adjacency(id, new) => Operation::Adjacency(id, new),
        RouteChange::Group(id, new) => Operation::Group(id, new),
        RouteChange::Route(vrf, prefix, new) => Operation::Route(vrf, prefix, new),
        // Never reached: a batch has no such change, so it is not the inverse of one either.
        RouteChange::VrfGone(_) => return None,
    })
}

/// True for an operation after which something else may fit.
fn frees_room(operation: &Operation) -> bool {
    matches!(operation, Operation::Route(_, _, None))
}

fn routes_of(batch: &[Operation]) -> impl Iterator<Item = (Prefix, bool)> + '_ {
    batch.iter().filter_map(|operation| match operation {
        Operation::Route(vrf, prefix, target) => Some(((*vrf, *prefix), target.is_some())),
        _ => None,
    })
}

fn touched(batch: &[Operation]) -> impl Iterator<Item = Prefix> + '_ {
    routes_of(batch).map(|(prefix, _)| prefix)
}
