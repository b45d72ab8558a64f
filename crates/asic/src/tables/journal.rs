//! Transactions: records the changes to the tables since the begin of a transaction, so that they can be undone exactly.
//!
//! Hash tables undo their steps one by one, because an entry's place depends on the order of all earlier steps. Tables
//! of the other kinds are small or just a number: they are copied when a transaction first changes them.
//!
//! Invariant: after a rollback every table is as it was when the transaction began, slot for slot. Only the counts of
//! refusals and the high-water marks keep their values.

use super::items::{Held, Item};
use super::{Store, Tables};
use std::collections::BTreeMap;

/// See the module comment.
#[derive(Debug, Clone, Default)]
pub(super) struct Journal {
    items: Vec<(Item, Option<Vec<Held>>)>,
    /// The changed tables by index, as they were at the begin; `None` for a hash table, which has a journal of its own.
    kept: BTreeMap<usize, Option<Store>>,
}

impl Tables {
    /// Begins a transaction. A transaction that is open is committed.
    pub fn begin(&mut self) {
        self.commit();
        self.journal = Some(Journal::default());
    }

    /// Ends a transaction; its changes stay.
    pub fn commit(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        for at in journal.kept.into_keys() {
            if let Store::Exact(table) = &mut self.tables[at].store {
                table.commit();
            }
        }
    }

    /// Ends a transaction and undoes its changes.
    pub fn rollback(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        for (item, held) in journal.items.into_iter().rev() {
            match held {
                Some(held) => _ = self.items.insert(item, held),
                None => _ = self.items.remove(&item),
            }
        }
        for (at, store) in journal.kept {
            match (&mut self.tables[at].store, store) {
                (now, Some(before)) => *now = before,
                (Store::Exact(table), None) => table.rollback(),
                _ => {}
            }
        }
    }

    /// Records the entries of an item before it changes; `None`: the item did not exist.
    pub(super) fn note(&mut self, item: &Item, held: Option<Vec<Held>>) {
        if let Some(journal) = &mut self.journal {
            journal.items.push((item.clone(), held));
        }
    }

    /// Saves a table before it changes.
    pub(super) fn keep(&mut self, at: usize) {
        let Some(journal) = &mut self.journal else { return };
        let store = &mut self.tables[at].store;
        journal.kept.entry(at).or_insert_with(|| match store {
            Store::Exact(table) => {
                table.begin();
                None
            }
            other => Some(other.clone()),
        });
    }
}
