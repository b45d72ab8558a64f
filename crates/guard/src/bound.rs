//! [`Bound`]: the bindings that the plane has been given.

use lanyard_types::{Binding, BindingKey, MacAddr};
use std::collections::{BTreeMap, BTreeSet};

/// The bindings that the plane holds, and the keys of bindings whose wanted state may differ from that.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    held: BTreeMap<BindingKey, MacAddr>,
    touched: BTreeSet<BindingKey>,
}

impl Bound {
    /// Takes over the bindings that the plane holds; the next call of `changes` compares every one of them with the wanted state.
    pub(crate) fn adopt(&mut self, held: impl Iterator<Item = Binding>) {
        self.held = held.collect();
        self.touch_held();
    }
    /// Marks a binding that may have changed.
    pub(crate) fn touch(&mut self, key: BindingKey) {
        self.touched.insert(key);
    }
    /// Marks every binding that the plane holds.
    pub(crate) fn touch_held(&mut self) {
        self.touched.extend(self.held.keys());
    }
    /// The changes for the plane: first the bindings that end (`None`), so that there is room for the others. `wanted` gives the
    /// MAC address that the plane is to have for a key; `None`: no binding.
    pub(crate) fn changes(
        &mut self,
        wanted: impl Fn(&BindingKey) -> Option<MacAddr>,
    ) -> Vec<(BindingKey, Option<MacAddr>)> {
        let touched = std::mem::take(&mut self.touched);
        let changed = touched.into_iter().map(|key| (key, wanted(&key)));
        let mut changed: Vec<_> = changed.filter(|(key, mac)| self.held.get(key).copied() != *mac).collect();
        changed.sort_by_key(|(_, mac)| mac.is_some());
        for (key, mac) in &changed {
            match mac {
                Some(mac) => _ = self.held.insert(*key, *mac),
                None => _ = self.held.remove(key),
            }
        }
        changed
    }
}
