//! Access lists, compiled, and how often each rule has decided.
//!
//! Invariant: a list is replaced as a whole, so every frame is judged by the old rules or by the new ones. Counts of rules
//! that a new list still has, under the same number and with the same conditions, continue.

use lanyard_acl::compile::{TooLarge, compile};
use lanyard_acl::key::{Key, Malformed};
use lanyard_acl::note::Note;
use lanyard_acl::{Classifier, Found, PlaneList};
use lanyard_types::{AclId, MacAddr};
use std::collections::BTreeMap;
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
}

#[derive(Debug)]
struct Compiled {
    list: Arc<PlaneList>,
    classifier: Classifier,
    matches: Vec<u64>,
}

/// The lists.
#[derive(Debug, Default)]
pub struct Acls(BTreeMap<AclId, Compiled>);

impl Acls {
    /// Adds, replaces or removes a list.
    ///
    /// # Errors
    /// When the list exceeds a limit; nothing has changed then.
    pub fn set(&mut self, id: AclId, list: Option<Arc<PlaneList>>) -> Result<(), TooLarge> {
        let Some(list) = list else {
            self.0.remove(&id);
            return Ok(());
        };
        let classifier = compile(&list)?;
        let old = self.0.get(&id).map(|old| (&*old.list, old.matches.as_slice()));
        let matches = old.map_or_else(
            || vec![0; list.rules.len() + 1],
            |(old, counts)| lanyard_acl::condition::carried(old, counts, &list),
        );
        self.0.insert(id, Compiled { list, classifier, matches });
        Ok(())
    }
    /// Judges a frame. A list that does not exist lets every frame pass and counts nothing. A frame without the header
    /// that its EtherType announces passes no list. `src` is the source address for a note.
    #[must_use]
    pub fn judge(&self, id: AclId, key: &Result<Key, Malformed>, src: MacAddr) -> Option<(Hit, bool)> {
        let compiled = self.0.get(&id)?;
        let none = Hit { list: id, rule: compiled.list.rules.len(), note: None };
        let Ok(key) = key else { return Some((none, false)) };
        let Found { rule, permit } = compiled.classifier.search(key);
        let Some(at) = rule else { return Some((none, permit)) };
        let logs = compiled.list.rules.get(at).is_some_and(|rule| rule.log);
        let note = logs.then(|| Box::new(Note { list: id, rule: at as u16, key: *key, src }));
        Some((Hit { list: id, rule: at, note }, permit))
    }
    /// The class that the deciding rule of a policy's list names; `None` when no rule matches, the header is not valid, or there is
    /// no such list. Nothing is counted.
    #[must_use]
    pub fn class(&self, id: AclId, key: &Result<Key, Malformed>) -> Option<usize> {
        let compiled = self.0.get(&id)?;
        let Found { rule, permit } = compiled.classifier.search(key.as_ref().ok()?);
        let rule = compiled.list.rules.get(rule?)?;
        permit.then_some(usize::from(rule.list))
    }
    /// Counts a judgement.
    pub fn count(&mut self, hit: &Hit) {
        let matches = self.0.get_mut(&hit.list).and_then(|compiled| compiled.matches.get_mut(hit.rule));
        matches.into_iter().for_each(|count| *count = count.wrapping_add(1));
    }
    /// How often each rule has decided, by index, and last the frames that no rule matched; `None` when there is no such list.
    #[must_use]
    pub fn matches(&self, id: AclId) -> Option<&[u64]> {
        self.0.get(&id).map(|compiled| compiled.matches.as_slice())
    }
    /// Sets the counts of a list to 0.
    pub fn clear(&mut self, id: AclId) {
        self.0.get_mut(&id).into_iter().for_each(|compiled| compiled.matches.fill(0));
    }
    /// The lists.
    pub fn ids(&self) -> impl Iterator<Item = AclId> + '_ {
        self.0.keys().copied()
    }
}
