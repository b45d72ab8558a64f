//! Ensures that no packet is forwarded by a shorter prefix because the longer one is not in the chip.
//!
//! A route that is not in the chip (*hidden*) is only in the software plane's table, so its packets must reach the CPU.
//! In the chip they match the longest programmed prefix that contains them: their *cover*. A cover is therefore
//! programmed to send its packets to the CPU, where the software plane forwards each by its longest match. The packets
//! of a hidden route without a cover match nothing, which also sends them to the CPU.
//!
//! Invariant: the longest programmed prefix that contains a hidden route, and is not longer than it, is programmed to
//! trap.

use ipnet::IpNet;
use lanyard_types::VrfId;
use std::collections::{BTreeMap, BTreeSet};

/// A route's key.
pub type Prefix = (VrfId, IpNet);

/// The sets of routes that are in the chip and that are hidden.
#[derive(Debug, Clone, Default)]
pub struct Covers {
    programmed: BTreeMap<Prefix, ()>,
    hidden: BTreeSet<Prefix>,
}

impl Covers {
    /// Records that a route is in the chip.
    pub fn program(&mut self, prefix: Prefix) {
        self.hidden.remove(&prefix);
        self.programmed.insert(prefix, ());
    }
    /// Records that a route is not in the chip.
    pub fn hide(&mut self, prefix: Prefix) {
        self.programmed.remove(&prefix);
        self.hidden.insert(prefix);
    }
    /// Records that a route has been removed.
    pub fn forget(&mut self, prefix: Prefix) {
        self.programmed.remove(&prefix);
        self.hidden.remove(&prefix);
    }
    /// True when the route is in the chip.
    #[must_use]
    pub fn is_programmed(&self, prefix: Prefix) -> bool {
        self.programmed.contains_key(&prefix)
    }
    /// The hidden routes.
    #[must_use]
    pub fn hidden(&self) -> &BTreeSet<Prefix> {
        &self.hidden
    }

    /// The longest programmed prefix that contains `prefix` and is shorter.
    #[must_use]
    pub fn cover(&self, prefix: Prefix) -> Option<Prefix> {
        let (vrf, mut net) = prefix;
        while let Some(wider) = net.supernet() {
            if self.programmed.contains_key(&(vrf, wider)) {
                return Some((vrf, wider));
            }
            net = wider;
        }
        None
    }

    /// True when the programmed route has to trap because it is the cover of a hidden one.
    #[must_use]
    pub fn traps(&self, prefix: Prefix) -> bool {
        let (vrf, net) = prefix;
        // Prefixes are ordered by address, so those inside another one follow it directly.
        let last = IpNet::new(net.broadcast(), net.max_prefix_len()).unwrap_or(net);
        let first = IpNet::new(net.network(), 0).unwrap_or(net);
        self.hidden
            .range((vrf, first)..=(vrf, last))
            .any(|hidden| net.contains(&hidden.1) && self.cover(*hidden) == Some(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Prefix {
        (VrfId::DEFAULT, text.parse().expect("a prefix"))
    }

    #[test]
    fn the_nearest_cover_traps_and_no_other() {
        let mut covers = Covers::default();
        for text in ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"] {
            covers.program(key(text));
        }
        covers.hide(key("10.1.2.0/24"));
        covers.hide(key("2001:db8:1::/48"));
        let traps = |covers: &Covers| {
            ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"].map(|text| covers.traps(key(text)))
        };
        assert_eq!(traps(&covers), [false, false, true, true]);
        covers.hide(key("10.1.0.0/16"));
        assert!(traps(&covers)[1]);
        covers.program(key("10.1.2.0/24"));
        covers.forget(key("10.1.0.0/16"));
        assert_eq!(traps(&covers), [false, false, false, true]);
        covers.hide(key("192.0.2.0/24"));
        assert_eq!(covers.cover(key("192.0.2.0/24")), Some(key("0.0.0.0/0")));
        assert!(covers.traps(key("0.0.0.0/0")));
    }
}
