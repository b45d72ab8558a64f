//! Which routes are used most, and room for them: hidden routes move into the chip when room comes free, or in the place of
//! colder ones.
//!
//! A route's heat is the packets that it was used for, halved each time the chip is asked, so it follows the traffic. For routes
//! in the chip the chip counts; packets of hidden ones reach the CPU, where the software plane counts them ([`Manager::hit`]).
//! A hidden route takes the place of another one only when it is more than [`MARGIN`] times as hot, so that two routes of
//! equal use do not change places for ever.

use super::{Manager, Policy, Refusal, object_of};
use crate::hardware::{Failure, Hardware};
use crate::prefixes::Prefix;
use lanyard_asic::object::Object;
use lanyard_asic::sdk::message::{Answer, Request};
use lanyard_types::VrfId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The number of hidden routes that are tried for a place in the chip when a route is removed.
const PROMOTED: usize = 4;
/// A hidden route takes the place of another route only if it is more than this many times as hot.
const MARGIN: u64 = 2;

/// The heat of routes; routes whose heat is 0 are left out.
#[derive(Debug, Default)]
pub(super) struct Heat {
    of: BTreeMap<Prefix, u64>,
    /// The same routes, the hottest first.
    order: BTreeSet<(Reverse<u64>, Prefix)>,
}

impl Heat {
    fn get(&self, prefix: Prefix) -> u64 {
        self.of.get(&prefix).copied().unwrap_or(0)
    }
    fn add(&mut self, prefix: Prefix, packets: u64) {
        let before = self.get(prefix);
        self.set(prefix, before.saturating_add(packets));
    }
    fn set(&mut self, prefix: Prefix, packets: u64) {
        if let Some(before) = self.of.remove(&prefix) {
            self.order.remove(&(Reverse(before), prefix));
        }
        if packets > 0 {
            self.of.insert(prefix, packets);
            self.order.insert((Reverse(packets), prefix));
        }
    }
    fn halve(&mut self) {
        self.of.retain(|_, packets| {
            *packets /= 2;
            *packets > 0
        });
        self.order = self.of.iter().map(|(prefix, packets)| (Reverse(*packets), *prefix)).collect();
    }
}

impl Manager<dyn Hardware> {
    /// Adds the number of packets to this address that have come to the CPU to the heat of the hidden route that they use.
    pub fn hit(&mut self, vrf: VrfId, address: IpAddr, packets: u64) {
        let Some((prefix, _)) = self.routes.longest(vrf, address) else { return };
        if self.covers.hidden().contains((vrf, prefix)) {
            self.heat.add((vrf, prefix), packets);
        }
    }

    /// Asks the chip for the next page of its counts of packets for each route. `anew` begins with the counts since the last
    /// request with `anew`, and halves the heat of all routes.
    pub(super) fn ask_activity(&mut self, anew: bool) {
        self.activity = Some(self.hardware.send(Request::Activity(anew)));
        if anew {
            self.heat.halve();
        }
    }

    pub(super) fn take_activity(&mut self, outcome: Result<Answer, Failure>) {
        match outcome {
            Ok(Answer::Activity(more, list)) => {
                for (vrf, prefix, packets) in list {
                    if self.routes.get(vrf, prefix).is_some() {
                        self.heat.add((vrf, prefix), packets);
                    }
                }
                if more {
                    self.ask_activity(false);
                }
            }
            // A device that does not count packets, or a query that a fault plan has refused: no counts, but no failure either.
            Ok(_) | Err(Failure::Refused(_)) => {}
            Err(Failure::Gone(_)) => self.suspect = true,
        }
    }

    /// Removes the heat of a route that has been removed.
    pub(super) fn cool(&mut self, prefix: Prefix) {
        self.heat.set(prefix, 0);
    }

    /// Tries to put the hottest hidden routes into the chip, because room has become free.
    pub(super) fn make_use_of_room(&mut self) {
        if self.down || self.held {
            return;
        }
        if self.hidden() > 0 {
            self.promote(PROMOTED);
        }
    }

    /// Hidden routes that may be in the chip, the hottest first.
    fn candidates(&self, most: usize) -> Vec<Prefix> {
        let hidden = self.covers.hidden();
        let hot = self.heat.order.iter().map(|(_, prefix)| *prefix).filter(|prefix| hidden.contains(*prefix));
        let cold = hidden.keys().filter(|prefix| self.heat.get(*prefix) == 0);
        let wanted = |prefix: &Prefix| self.policies.of(object_of(prefix.1)) != Policy::Bypass;
        hot.chain(cold).filter(wanted).take(most).collect()
    }

    /// Tries to put the `most` hottest hidden routes into the chip; returns how many of them fitted.
    pub fn promote(&mut self, most: usize) -> usize {
        let mut full: BTreeSet<Object> = BTreeSet::new();
        let mut promoted = 0;
        for prefix in self.candidates(most) {
            if full.contains(&object_of(prefix.1)) {
                continue;
            }
            match self.program(prefix) {
                Ok(done) => promoted += usize::from(done),
                Err(Refusal::Chip(_)) => break,
                // In a hash table another key may find room where this one did not.
                Err(_) if is_hashed(object_of(prefix.1)) => {}
                Err(_) => _ = full.insert(object_of(prefix.1)),
            }
        }
        promoted
    }

    /// Puts a hidden route into the chip. Returns false, and leaves it hidden, if it would have to trap as the cover of others.
    fn program(&mut self, prefix: Prefix) -> Result<bool, Refusal> {
        self.covers.program(prefix);
        if self.covers.traps(prefix) {
            self.covers.hide(prefix);
            return Ok(false);
        }
        self.write_routes([prefix]).inspect_err(|_| self.covers.hide(prefix))?;
        Ok(true)
    }

    /// Takes a route out of the chip and hides it.
    fn evict(&mut self, prefix: Prefix) -> Result<(), Refusal> {
        self.covers.hide(prefix);
        self.write_routes([prefix]).inspect_err(|_| self.covers.program(prefix))
    }

    /// Gives at most `most` hot hidden routes a place in the chip, that of a colder route in the same table if necessary; returns
    /// how many have moved. To be called from time to time, after [`Manager::poll`]. Only routes with [`Policy::Hybrid`] take
    /// part.
    pub fn rebalance(&mut self, most: usize) -> usize {
        if self.down || self.held || self.suspect {
            return 0;
        }
        let mut coldest: BTreeMap<Object, Vec<Prefix>> = BTreeMap::new();
        let mut moved = 0;
        for hot in self.candidates(most) {
            let (object, heat) = (object_of(hot.1), self.heat.get(hot));
            if heat == 0 || self.policies.of(object) != Policy::Hybrid {
                continue;
            }
            match self.program(hot) {
                Ok(done) => {
                    moved += usize::from(done);
                    continue;
                }
                Err(Refusal::Full { .. }) => {}
                Err(_) => break,
            }
            let cold = coldest.entry(object).or_insert_with(|| coldest_of(self, object));
            let Some(victim) = cold.pop().filter(|cold| self.heat.get(*cold).saturating_mul(MARGIN) < heat)
            else {
                continue;
            };
            if !self.may_leave(victim) || self.evict(victim).is_err() {
                continue;
            }
            match self.program(hot) {
                Ok(true) => moved += 1,
                // The freed place does not help, as may happen in a hash table: the evicted route takes it back.
                _ => _ = self.program(victim),
            }
        }
        moved
    }

    /// True when hiding a programmed route makes no other traffic slower: it is not the cover of a hidden route, and the cover
    /// that it would get traps already or does not exist.
    fn may_leave(&self, prefix: Prefix) -> bool {
        !self.covers.traps(prefix) && self.covers.cover(prefix).is_none_or(|cover| self.covers.traps(cover))
    }

    /// Sets the policy of a kind of object. With [`Policy::Bypass`] its routes and lists leave the chip; when another policy
    /// replaces it, those that fit return.
    ///
    /// # Errors
    /// When the chip fails; [`Manager::settle`] then completes the change.
    pub fn set_policy(&mut self, object: Object, policy: Policy) -> Result<(), Refusal> {
        let before = self.policies.of(object);
        self.policies.set(object, policy);
        if before == policy {
            return Ok(());
        }
        if policy == Policy::Bypass {
            let leave: Vec<Prefix> =
                self.covers.programmed().filter(|prefix| object_of(prefix.1) == object).collect();
            for prefix in leave {
                if self.down || self.held {
                    self.covers.hide(prefix);
                } else {
                    self.evict(prefix).inspect_err(|_| self.suspect = true)?;
                }
            }
        } else if before == Policy::Bypass && self.held {
            let come: Vec<Prefix> = self.covers.hidden().keys().collect();
            come.into_iter()
                .filter(|prefix| object_of(prefix.1) == object)
                .for_each(|prefix| self.covers.program(prefix));
        } else if before == Policy::Bypass && !self.down {
            self.promote(usize::MAX);
        }
        self.lists_follow_policy()
    }

    /// Sets the policy of every kind of object that a table holds; `path` is the table's in [`Manager::resources`].
    ///
    /// # Errors
    /// When there is no such table, or the chip fails.
    pub fn set_table_policy(&mut self, path: &str, policy: Policy) -> Result<(), Refusal> {
        if self.tables.is_empty() {
            self.refresh();
        }
        let Some(table) = self.tables.iter().find(|table| table.path == path) else {
            let known: Vec<&str> = self.tables.iter().map(|table| table.path.as_str()).collect();
            return Err(Refusal::Invalid(format!("no table {path}: one of {}", known.join(", "))));
        };
        let objects: Vec<Object> = table.holds.iter().map(|(object, _)| *object).collect();
        objects.into_iter().try_for_each(|object| self.set_policy(object, policy))
    }
}

/// True for routes that are found by a hash.
fn is_hashed(object: Object) -> bool {
    matches!(object, Object::Ipv4Host | Object::Ipv6Host)
}

/// The programmed routes of a kind, the coldest last.
fn coldest_of(manager: &Manager<dyn Hardware>, object: Object) -> Vec<Prefix> {
    let mut all: Vec<Prefix> =
        manager.covers.programmed().filter(|prefix| object_of(prefix.1) == object).collect();
    all.sort_by_key(|prefix| Reverse(manager.heat.get(*prefix)));
    all
}
