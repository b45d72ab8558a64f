//! Port numbers: the `PortId` of each interface.
//!
//! Invariants: an interface keeps its number while it is configured, also across restarts, because the numbers of an
//! adopted plane are taken over. A number that was just released is the last one to be assigned again.

use lanyard_plane::PlaneState;
use lanyard_types::{MAX_PORTS, PortId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Numbers by interface name. A VLAN interface is listed under the name of its pipeline end, `lyN`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortIds {
    by_name: BTreeMap<String, PortId>,
    /// Numbers reserved for the interfaces of these names, whether or not they are configured.
    fixed: Arc<BTreeMap<String, PortId>>,
}

/// A configuration has more ports than there are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("at most {} ports are possible", MAX_PORTS - 1)]
pub struct TooManyPorts;

impl PortIds {
    /// Takes over the numbers of a plane that is already running.
    #[must_use]
    pub fn adopt(state: &PlaneState) -> Self {
        let by_name = state.ports.iter().map(|(port, state)| (state.name.clone(), *port)).collect();
        Self { by_name, fixed: Arc::default() }
    }
    /// Reserves the numbers that the plane itself assigns to interfaces ([`lanyard_plane::Plane::fixed_ports`]).
    #[must_use]
    pub fn with_fixed(self, fixed: BTreeMap<String, PortId>) -> Self {
        Self { fixed: Arc::new(fixed), ..self }
    }
    /// The number of this interface.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<PortId> {
        self.by_name.get(name).copied()
    }
    /// The interface with this number.
    #[must_use]
    pub fn name(&self, port: PortId) -> Option<&str> {
        self.by_name.iter().find(|(_, id)| **id == port).map(|(name, _)| name.as_str())
    }
    /// How many numbers are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }
    /// True when no number is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
    /// Assigns numbers to exactly `names`: known names keep theirs, the others get the lowest free ones in order.
    ///
    /// # Errors
    /// When there are more names than ports.
    pub fn assign(&self, names: impl IntoIterator<Item = String>) -> Result<Self, TooManyPorts> {
        let names: Vec<String> = names.into_iter().collect();
        let mut next = Self { fixed: self.fixed.clone(), ..Self::default() };
        for name in &names {
            if let Some(port) = self.fixed.get(name).copied().or_else(|| self.get(name)) {
                next.by_name.insert(name.clone(), port);
            }
        }
        let mut taken: BTreeSet<PortId> = next.by_name.values().copied().collect();
        taken.extend(self.fixed.values());
        let held: BTreeSet<PortId> = self.by_name.values().copied().collect();
        let never = PortId::all().filter(|port| !held.contains(port) && !taken.contains(port));
        let given_up = held.iter().copied().filter(|port| !taken.contains(port));
        let mut free = never.chain(given_up);
        for name in names {
            if let std::collections::btree_map::Entry::Vacant(slot) = next.by_name.entry(name) {
                let port = free.next().ok_or(TooManyPorts)?;
                slot.insert(port);
            }
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        list.split_whitespace().map(str::to_owned).collect()
    }

    fn show(ids: &PortIds) -> String {
        ids.by_name
            .iter()
            .map(|(name, port)| format!("{name}={port} "))
            .collect::<String>()
            .trim_end()
            .to_owned()
    }

    #[test]
    fn numbers_are_kept() {
        let mut ids = PortIds::default();
        for (list, want) in [
            ("a b c", "a=1 b=2 c=3"),
            ("a c", "a=1 c=3"),
            // 2 is free by now.
            ("a c d", "a=1 c=3 d=2"),
            // 1 is released in this step, and so not assigned again yet.
            ("c d e", "c=3 d=2 e=4"),
            ("", ""),
        ] {
            ids = ids.assign(names(list)).expect("few ports");
            assert_eq!(show(&ids), want, "{list}");
        }
    }

    #[test]
    fn fixed_numbers_belong_to_their_names() {
        let fixed = [("swp1".to_owned(), PortId::new(1)), ("swp3".to_owned(), PortId::new(3))];
        let fixed = fixed.into_iter().filter_map(|(name, port)| Some((name, port?))).collect();
        let ids = PortIds::default().with_fixed(fixed);
        let ids = ids.assign(names("ly10 swp3 ly20 ly30")).expect("few ports");
        assert_eq!(show(&ids), "ly10=2 ly20=4 ly30=5 swp3=3");
        let ids = ids.assign(names("ly10 ly30 swp1")).expect("few ports");
        assert_eq!(show(&ids), "ly10=2 ly30=5 swp1=1");
    }

    #[test]
    fn all_numbers_and_no_more() {
        let all: Vec<String> = (1..MAX_PORTS).map(|n| format!("e{n}")).collect();
        let ids = PortIds::default().assign(all.clone()).expect("1,023 ports");
        let mut swapped = all.clone();
        swapped[0] = "x".into();
        assert_eq!(ids.assign(swapped).expect("a number given up").get("x"), PortId::new(1));
        assert!(ids.assign(all.into_iter().chain(["y".into()])).is_err());
    }
}
