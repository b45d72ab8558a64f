//! Access lists that do not fit: refused, or *diverted*, as the policy of their table says.
//!
//! A list is one operation of the set-up, so the chip holds all of its rules or refuses it. A diverted list takes no entries: the
//! chip gives each frame that the list must judge to the driver, and continues its processing with the driver's judgement. The
//! manager tries to put a diverted list into the chip whenever room may have become free.
//!
//! Invariant: the chip judges frames by a list itself, or diverts them; no frame passes unjudged, because a list that does not
//! fit is diverted in the same transaction that sets it, and the operation that ends this also puts its entries into the tables.

use super::{Manager, Place, Policy, Refusal, audit};
use crate::hardware::{Failure, Hardware};
use lanyard_acl::{FrameFamily, PlaneList};
use lanyard_asic::object::Object;
use lanyard_asic::sdk::message::Code;
use lanyard_asic::sdk::operation::Operation;
use lanyard_types::AclId;
use std::collections::BTreeSet;

/// A list that has been diverted, or has moved into the chip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The list's name.
    pub name: String,
    /// Where it is carried out from now on.
    pub place: Place,
}

impl Manager<dyn Hardware> {
    /// Where an access list is carried out; `None` for one that is not configured.
    #[must_use]
    pub fn list_place(&self, id: AclId) -> Option<Place> {
        self.list(id)?;
        let trapped = self.down || self.diverted.contains(&id);
        Some(if trapped { Place::Trapped } else { Place::Offloaded })
    }
    /// The names of the lists that are diverted, by number.
    pub fn diverted(&self) -> impl Iterator<Item = (AclId, &str)> + '_ {
        self.diverted.iter().filter_map(|id| Some((*id, self.list(*id)?.name.as_str())))
    }
    /// The lists that have changed their place since the last call.
    pub fn moves(&mut self) -> Vec<Move> {
        let now: BTreeSet<AclId> = self.diverted.clone();
        let gone = self.reported.difference(&now).map(|id| (*id, Place::Offloaded));
        let come = now.difference(&self.reported).map(|id| (*id, Place::Trapped));
        let moved = gone.chain(come);
        let moves =
            moved.filter_map(|(id, place)| Some(Move { name: self.list(id)?.name.clone(), place })).collect();
        self.reported = now;
        moves
    }

    fn list(&self, id: AclId) -> Option<&PlaneList> {
        match self.setup.get(&audit::key(&Operation::List(id, None)))? {
            Operation::List(_, list) => list.as_deref(),
            _ => None,
        }
    }

    /// Writes operations of the set-up in one transaction. Lists among them that do not fit are diverted in the same transaction
    /// if the policy of their table is [`Policy::Hybrid`].
    pub(super) fn write_setup(&mut self, operations: &[Operation]) -> Result<(), Refusal> {
        let mut diverted = self.diverted.clone();
        let of = |id: &AclId| {
            operations.iter().rev().find_map(|operation| match operation {
                Operation::List(other, list) if other == id => Some(list.as_deref()),
                _ => None,
            })
        };
        for operation in operations {
            let Operation::List(id, Some(list)) = operation else { continue };
            match self.list_policy(list) {
                Policy::Bypass => _ = diverted.insert(*id),
                // A list that another policy has diverted must now fit as well.
                Policy::Sync => _ = diverted.remove(id),
                Policy::Hybrid => {}
            }
        }
        diverted.retain(|id| of(id).is_none_or(|list| list.is_some()));
        loop {
            let come = diverted.difference(&self.diverted).map(|id| Operation::Divert(*id, true));
            let leave = self.diverted.difference(&diverted).map(|id| Operation::Divert(*id, false));
            let all: Vec<Operation> = come.chain(operations.iter().cloned()).chain(leave).collect();
            match self.try_commit(all.clone()) {
                Ok(()) => {
                    self.strategy.wrote(&all);
                    self.diverted = diverted;
                    return Ok(());
                }
                Err(Failure::Refused(refused)) if refused.code == Code::NoRoom => {
                    match all.get(refused.at as usize) {
                        Some(Operation::List(id, Some(list)))
                            if self.list_policy(list) == Policy::Hybrid && diverted.insert(*id) => {}
                        _ => return Err(Failure::Refused(refused).into()),
                    }
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Tries the diverted lists for a place in the chip.
    pub fn promote_lists(&mut self) {
        if self.down || self.held {
            return;
        }
        for id in self.diverted.clone() {
            let wanted = self.list(id).is_some_and(|list| self.list_policy(list) != Policy::Bypass);
            let steps = [Operation::Divert(id, false)];
            if wanted && self.try_commit(steps.to_vec()).is_ok() {
                self.strategy.wrote(&steps);
                self.diverted.remove(&id);
            }
        }
    }

    /// Diverts lists, or puts them into the chip, as their policies require.
    pub(super) fn lists_follow_policy(&mut self) -> Result<(), Refusal> {
        if self.down || self.held {
            return Ok(());
        }
        for id in self.bypassed() {
            if !self.diverted.contains(&id) {
                let steps = [Operation::Divert(id, true)];
                self.try_commit(steps.to_vec()).inspect_err(|_| self.suspect = true)?;
                self.strategy.wrote(&steps);
                self.diverted.insert(id);
            }
        }
        self.promote_lists();
        Ok(())
    }

    /// Prepares for writing everything anew: only lists with the policy [`Policy::Bypass`] are diverted, all others are tried.
    pub(super) fn want_lists(&mut self) {
        self.diverted = self.bypassed();
    }

    fn bypassed(&self) -> BTreeSet<AclId> {
        let bypassed = |operation: &Operation| match operation {
            Operation::List(id, Some(list)) if self.list_policy(list) == Policy::Bypass => Some(*id),
            _ => None,
        };
        self.setup.values().filter_map(bypassed).collect()
    }

    /// The policy of the table that holds a list.
    fn list_policy(&self, list: &PlaneList) -> Policy {
        self.policies.of(if list.family == FrameFamily::Ipv6 { Object::AclIpv6 } else { Object::AclIpv4 })
    }
}
