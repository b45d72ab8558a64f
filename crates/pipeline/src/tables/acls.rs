//! Access lists, compiled, and how often each rule has decided.
//!
//! Invariant: a list is replaced as a whole, so every frame is judged by the old rules or by the new ones. Counts of rules
//! that a new list still has, under the same number and with the same conditions, continue.

use lanyard_acl::compile::{TooLarge, compile};
use lanyard_acl::key::{Key, Malformed};
use lanyard_acl::note::Note;
use lanyard_acl::{Classifier, Found, PlaneList};
use lanyard_types::{AclId, MacAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The judgement of a list about a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// The list.
    pub list: AclId,
    /// The index of the rule that decided; the number of rules where none matched.
    pub rule: usize,
    /// The note for the control plane, if the rule has `log`.
    pub note: Option<Box<Note>>,
    /// The question that the software has to answer before the frame is processed further; only for a diverted list.
    pub question: Option<Box<Question>>,
}

impl Hit {
    fn of(list: AclId, rule: usize) -> Self {
        Self { list, rule, note: None, question: None }
    }
}

/// The key that a diverted list has to judge: see [`Acls::divert`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The list.
    pub list: AclId,
    /// The fields of the frame.
    pub key: Key,
    /// True if a denial ends the frame, so that no later question counts; false if it only takes one port out of a flood.
    pub ends: bool,
}

/// The software's judgement by a diverted list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The list.
    pub list: AclId,
    /// The fields of the frame.
    pub key: Key,
    /// True if the frame passes.
    pub permit: bool,
}

#[derive(Debug)]
struct Compiled {
    list: Arc<PlaneList>,
    classifier: Classifier,
    matches: Vec<u64>,
}

/// The lists.
#[derive(Debug, Default)]
pub struct Acls {
    lists: BTreeMap<AclId, Compiled>,
    diverted: BTreeSet<AclId>,
}

impl Acls {
    /// Adds, replaces or removes a list.
    ///
    /// # Errors
    /// When the list exceeds a limit; nothing has changed then.
    pub fn set(&mut self, id: AclId, list: Option<Arc<PlaneList>>) -> Result<(), TooLarge> {
        let Some(list) = list else {
            self.lists.remove(&id);
            return Ok(());
        };
        let classifier = compile(&list)?;
        let old = self.lists.get(&id).map(|old| (&*old.list, old.matches.as_slice()));
        let matches = old.map_or_else(
            || vec![0; list.rules.len() + 1],
            |(old, counts)| lanyard_acl::condition::carried(old, counts, &list),
        );
        self.lists.insert(id, Compiled { list, classifier, matches });
        Ok(())
    }
    /// Sets whether a list, which need not exist yet, is diverted: frames are not judged by it here, but by the software, whose
    /// answer comes with the frame ([`Pipeline::process_answered`](crate::Pipeline::process_answered)).
    pub fn divert(&mut self, id: AclId, on: bool) {
        if on {
            self.diverted.insert(id)
        } else {
            self.diverted.remove(&id)
        };
    }
    /// True if the list is diverted.
    #[must_use]
    pub fn is_diverted(&self, id: AclId) -> bool {
        self.diverted.contains(&id)
    }
    /// Judges a frame. A list that does not exist lets every frame pass and counts nothing. A frame without the header
    /// that its EtherType announces passes no list. `src` is the source address for a note.
    #[must_use]
    pub fn judge(&self, id: AclId, key: &Result<Key, Malformed>, src: MacAddr) -> Option<(Hit, bool)> {
        let compiled = self.lists.get(&id)?;
        let none = Hit::of(id, compiled.list.rules.len());
        let Ok(key) = key else { return Some((none, false)) };
        let Found { rule, permit } = compiled.classifier.search(key);
        let Some(at) = rule else { return Some((none, permit)) };
        let logs = compiled.list.rules.get(at).is_some_and(|rule| rule.log);
        let note = logs.then(|| Box::new(Note { list: id, rule: at as u16, key: *key, src }));
        Some((Hit { note, ..Hit::of(id, at) }, permit))
    }
    /// Judges a diverted frame by the lists that were asked for, in their order, and counts the judgements. A list that does not
    /// exist denies; after a denial that ends the frame the other lists have nothing to judge, and deny.
    pub fn answer(&mut self, questions: &[Question]) -> Vec<Answer> {
        let mut ended = false;
        let mut answer = |of: &Question| {
            // The source address is only for a note, and no note is sent here.
            let judged = if ended { None } else { self.judge(of.list, &Ok(of.key), MacAddr::default()) };
            let permit = judged.as_ref().is_some_and(|(_, permit)| *permit);
            judged.into_iter().for_each(|(hit, _)| self.count(&hit));
            ended |= of.ends && !permit;
            Answer { list: of.list, key: of.key, permit }
        };
        questions.iter().map(&mut answer).collect()
    }
    /// The class that the deciding rule of a policy's list names; `None` when no rule matches, the header is not valid, or there is
    /// no such list. Nothing is counted.
    #[must_use]
    pub fn class(&self, id: AclId, key: &Result<Key, Malformed>) -> Option<usize> {
        let compiled = self.lists.get(&id)?;
        let Found { rule, permit } = compiled.classifier.search(key.as_ref().ok()?);
        let rule = compiled.list.rules.get(rule?)?;
        permit.then_some(usize::from(rule.list))
    }
    /// Counts a judgement.
    pub fn count(&mut self, hit: &Hit) {
        let matches = self.lists.get_mut(&hit.list).and_then(|compiled| compiled.matches.get_mut(hit.rule));
        matches.into_iter().for_each(|count| *count = count.wrapping_add(1));
    }
    /// How often each rule has decided, by index, and last the frames that no rule matched; `None` when there is no such list.
    #[must_use]
    pub fn matches(&self, id: AclId) -> Option<&[u64]> {
        self.lists.get(&id).map(|compiled| compiled.matches.as_slice())
    }
    /// Sets counts of a list to 0: those of the rules that come from the access list `of`, or with `None` all.
    pub fn clear(&mut self, id: AclId, of: Option<&str>) {
        let Some(Compiled { list, matches, .. }) = self.lists.get_mut(&id) else { return };
        let cleared = matches.iter_mut().zip(list.counts_of(of)).filter(|(_, cleared)| *cleared);
        cleared.for_each(|(count, _)| *count = 0);
    }
    /// Adds to the counts of a list, which have the order of [`Acls::matches`].
    pub fn add(&mut self, id: AclId, counts: &[u64]) {
        let matches = self.lists.get_mut(&id).into_iter().flat_map(|compiled| &mut compiled.matches);
        matches.zip(counts).for_each(|(count, more)| *count = count.wrapping_add(*more));
    }
    /// The lists.
    pub fn ids(&self) -> impl Iterator<Item = AclId> + '_ {
        self.lists.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_acl::FrameFamily;
    use lanyard_acl::condition::{FlatRule, Purpose, Verdict};

    /// The driver of a chip adds counts again that the chip has cleared together with those of another access list.
    #[test]
    fn counts_are_cleared_by_access_list_and_added_again() {
        let rule = |list| FlatRule {
            verdict: Verdict::Permit,
            fragments: true,
            log: false,
            log_input: false,
            list,
            seq: 10,
            conditions: Vec::new(),
        };
        let map = PlaneList {
            name: "vlan map m".into(),
            purpose: Purpose::Filter,
            family: FrameFamily::Ipv4,
            names: ["", "a", "b"].map(String::from).to_vec(),
            rules: vec![rule(1), rule(2)],
            otherwise_permit: false,
        };
        let (id, mut lists) = (AclId::MAX, Acls::default());
        lists.set(id, Some(Arc::new(map))).expect("a short list");
        lists.add(id, &[5, 6, 7]);
        lists.clear(id, Some("a"));
        assert_eq!(lists.matches(id), Some(&[0, 6, 7][..]));
        lists.add(id, &[1, 1, 0]);
        assert_eq!(lists.matches(id), Some(&[1, 7, 7][..]));
        lists.clear(id, None);
        assert_eq!(lists.matches(id), Some(&[0, 0, 0][..]));
    }
}
