//! Access lists: a list is in the chip whole, or runs in software whole, or is refused; never half of it.
//!
//! Who has a list that is [`Place::Trapped`] sends the traffic of the ports it is bound to through the software plane. No stage of
//! the chip's pipeline matches on rules yet; what they take of the TCAM, port ranges expanded, is accounted for all the same.

use super::{Manager, Place, Policy, Refusal};
use crate::hardware::Hardware;
use lanyard_asic::object::Object;
use lanyard_asic::sdk::operation::Operation;
use lanyard_asic::tables::AclRule;

/// Most rules of a list.
const MAX_RULES: usize = 4096;

/// A configured list.
#[derive(Debug, Clone)]
pub(super) struct List {
    pub(super) rules: Vec<AclRule>,
    pub(super) place: Place,
}

impl<H: Hardware> Manager<H> {
    /// Sets a list to these rules, or removes it when there are none. A list that does not fit is refused, and the old one stays;
    /// or it runs in software with its ports' traffic, as the policy of its table says. Answers where it is carried out.
    ///
    /// # Errors
    /// Why it was refused; nothing has changed then.
    pub fn access_list(&mut self, list: u32, rules: &[AclRule]) -> Result<Place, Refusal> {
        if rules.len() > MAX_RULES {
            return Err(Refusal::Invalid(format!(
                "access list {list}: {} rules; {MAX_RULES} is the most",
                rules.len()
            )));
        }
        if let Some(stray) = rules.iter().find(|rule| rule.list != list) {
            return Err(Refusal::Invalid(format!("access list {list}: a rule of list {}", stray.list)));
        }
        let mut numbers: Vec<u32> = rules.iter().map(|rule| rule.sequence).collect();
        numbers.sort_unstable();
        if let Some(twice) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Refusal::Invalid(format!("access list {list}: two rules have number {}", twice[0])));
        }
        let old = self.lists.get(&list).filter(|old| old.place == Place::Offloaded);
        let old = old.map(|old| old.rules.clone()).unwrap_or_default();
        let place = if self.down || self.held || self.policy_of(rules) == Policy::Bypass {
            if !self.down && !self.held {
                self.write_list(&old, &[])?;
            }
            Place::Trapped
        } else {
            match self.write_list(&old, rules) {
                Ok(()) => Place::Offloaded,
                Err(Refusal::Full { .. }) if self.policy_of(rules) == Policy::Hybrid => {
                    self.write_list(&old, &[])?;
                    Place::Trapped
                }
                Err(refusal) => return Err(refusal),
            }
        };
        if rules.is_empty() {
            self.lists.remove(&list);
            if !self.down && !self.held {
                self.promote_lists();
            }
        } else {
            self.lists.insert(list, List { rules: rules.to_vec(), place });
        }
        Ok(place)
    }

    /// Where an access list is carried out; `None` for one that is not configured.
    #[must_use]
    pub fn access_list_place(&self, list: u32) -> Option<Place> {
        self.lists.get(&list).map(|list| if self.down { Place::Trapped } else { list.place })
    }

    /// Replaces the rules of a list in one transaction.
    fn write_list(&mut self, old: &[AclRule], new: &[AclRule]) -> Result<(), Refusal> {
        let leave = old.iter().filter(|rule| !new.contains(rule));
        let come = new.iter().filter(|rule| !old.contains(rule));
        let operations: Vec<Operation> = leave
            .map(|rule| Operation::Rule(rule.clone(), false))
            .chain(come.map(|rule| Operation::Rule(rule.clone(), true)))
            .collect();
        if operations.is_empty() {
            return Ok(());
        }
        self.verify(operations.clone())?;
        self.strategy.wrote(&operations);
        Ok(())
    }

    /// Tries the lists that run in software for a place in the chip.
    pub(super) fn promote_lists(&mut self) {
        let waiting: Vec<u32> = self
            .lists
            .iter()
            .filter(|(_, list)| list.place == Place::Trapped && self.policy_of(&list.rules) != Policy::Bypass)
            .map(|(number, _)| *number)
            .collect();
        for number in waiting {
            let Some(rules) = self.lists.get(&number).map(|list| list.rules.clone()) else { continue };
            if self.write_list(&[], &rules).is_ok()
                && let Some(list) = self.lists.get_mut(&number)
            {
                list.place = Place::Offloaded;
            }
        }
    }

    /// Moves lists to where their policies want them.
    pub(super) fn lists_follow_policy(&mut self) -> Result<(), Refusal> {
        if self.down || self.held {
            return Ok(());
        }
        let leave: Vec<u32> = self
            .lists
            .iter()
            .filter(|(_, list)| {
                list.place == Place::Offloaded && self.policy_of(&list.rules) == Policy::Bypass
            })
            .map(|(number, _)| *number)
            .collect();
        for number in leave {
            let rules = self.lists.get(&number).map(|list| list.rules.clone()).unwrap_or_default();
            self.write_list(&rules, &[])?;
            self.list_in_software(number);
        }
        self.promote_lists();
        Ok(())
    }

    /// A rule of the list turned out not to fit: all of the list runs in software.
    pub(super) fn list_in_software(&mut self, number: u32) {
        if let Some(list) = self.lists.get_mut(&number) {
            list.place = Place::Trapped;
        }
    }

    /// Before everything is written anew: lists belong into the chip unless their policy says otherwise.
    pub(super) fn want_lists(&mut self) {
        let places: Vec<(u32, bool)> = self
            .lists
            .iter()
            .map(|(id, list)| (*id, self.policy_of(&list.rules) == Policy::Bypass))
            .collect();
        for (number, bypass) in places {
            if let Some(list) = self.lists.get_mut(&number) {
                list.place = if bypass { Place::Trapped } else { Place::Offloaded };
            }
        }
    }
    /// The rules that should be in the chip.
    pub(super) fn wanted_rules(&self) -> impl Iterator<Item = &AclRule> {
        self.lists.values().filter(|list| list.place == Place::Offloaded).flat_map(|list| &list.rules)
    }

    /// The policy of a list: the strictest of the kinds of its rules, in the order bypass, sync, hybrid.
    fn policy_of(&self, rules: &[AclRule]) -> Policy {
        let of = |rule: &AclRule| self.policies.of(if rule.ipv6 { Object::AclIpv6 } else { Object::AclIpv4 });
        let rank = |policy: &Policy| match policy {
            Policy::Bypass => 0,
            Policy::Sync => 1,
            Policy::Hybrid => 2,
        };
        rules.iter().map(of).min_by_key(rank).unwrap_or_default()
    }
}
