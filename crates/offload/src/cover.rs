//! Ensures that no packet is forwarded by a shorter prefix because the longer one is not in the chip.
//!
//! A route that is not in the chip (*hidden*) is only in the software plane's table, so its packets must reach the CPU.
//! In the chip they match the longest programmed prefix that contains them: their *cover*. A cover is therefore
//! programmed to send its packets to the CPU, where the software plane forwards each by its longest match. The packets
//! of a hidden route without a cover match nothing, which also sends them to the CPU.
//!
//! Invariant: the longest programmed prefix that contains a hidden route, and is not longer than it, is programmed to
//! trap.

use crate::prefixes::{Prefix, Prefixes};

/// The sets of routes that are in the chip and that are hidden.
#[derive(Debug, Clone, Default)]
pub struct Covers {
    /// Routes in the chip, with the number of hidden routes that each is the cover of.
    programmed: Prefixes<usize>,
    hidden: Prefixes<()>,
}

impl Covers {
    /// Records that a route is in the chip.
    pub fn program(&mut self, prefix: Prefix) {
        if self.programmed.contains(prefix) {
            return;
        }
        if self.hidden.is_empty() {
            self.programmed.insert(prefix, 0);
            return;
        }
        let wider = self.cover(prefix);
        if self.hidden.remove(prefix).is_some() {
            self.count(wider, -1);
        }
        self.programmed.insert(prefix, 0);
        // Hidden routes inside it had the next wider programmed prefix as their cover.
        if wider.is_none_or(|wider| self.traps(wider)) {
            let own = self.hidden.longer(prefix).filter(|hidden| self.cover(*hidden) == Some(prefix)).count();
            self.count(Some(prefix), own as isize);
            self.count(wider, -(own as isize));
        }
    }
    /// Records that a route is not in the chip.
    pub fn hide(&mut self, prefix: Prefix) {
        self.take_out(prefix);
        if self.hidden.insert(prefix, ()).is_none() {
            self.count(self.cover(prefix), 1);
        }
    }
    /// Records that a route has been removed.
    pub fn forget(&mut self, prefix: Prefix) {
        self.take_out(prefix);
        if self.hidden.remove(prefix).is_some() {
            self.count(self.cover(prefix), -1);
        }
    }
    /// True when the route is in the chip.
    #[must_use]
    pub fn is_programmed(&self, prefix: Prefix) -> bool {
        self.programmed.contains(prefix)
    }
    /// The routes in the chip.
    pub fn programmed(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.programmed.keys()
    }
    /// The hidden routes.
    #[must_use]
    pub fn hidden(&self) -> &Prefixes<()> {
        &self.hidden
    }

    /// The longest programmed prefix that contains `prefix` and is shorter.
    #[must_use]
    pub fn cover(&self, prefix: Prefix) -> Option<Prefix> {
        self.programmed.shorter(prefix)
    }

    /// True when the programmed route has to trap because it is the cover of a hidden one.
    #[must_use]
    pub fn traps(&self, prefix: Prefix) -> bool {
        self.programmed.get(prefix).is_some_and(|covered| *covered > 0)
    }

    /// Removes a programmed route; the hidden routes that it covered get the next shorter programmed prefix as their cover.
    fn take_out(&mut self, prefix: Prefix) {
        if let Some(covered) = self.programmed.remove(prefix).filter(|covered| *covered > 0) {
            self.count(self.cover(prefix), covered as isize);
        }
    }
    fn count(&mut self, cover: Option<Prefix>, change: isize) {
        if let Some(covered) = cover.and_then(|cover| self.programmed.get_mut(cover)) {
            *covered = covered.saturating_add_signed(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::IpNet;
    use lanyard_types::VrfId;
    use proptest::prelude::*;

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

    proptest! {
        /// After any steps the counts are those that a search over all hidden routes gives.
        #[test]
        fn covers_trap_exactly_while_they_cover(steps in prop::collection::vec((0_u32..64, 0_u8..=6, 0_u8..3), 0..200)) {
            let mut covers = Covers::default();
            for (bits, length, step) in steps {
                let address = std::net::Ipv4Addr::from(0x0a00_0000 | bits << 18);
                let net = IpNet::new(address.into(), 8 + length).expect("a prefix").trunc();
                match step {
                    0 => covers.program((VrfId::DEFAULT, net)),
                    1 => covers.hide((VrfId::DEFAULT, net)),
                    _ => covers.forget((VrfId::DEFAULT, net)),
                }
                for prefix in covers.programmed() {
                    let found = covers.hidden().keys().any(|hidden| covers.cover(hidden) == Some(prefix));
                    prop_assert_eq!(covers.traps(prefix), found, "{:?}", prefix);
                }
            }
        }
    }
}
