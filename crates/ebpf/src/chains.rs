//! The nftables chains at netdevs (family `netdev`, and `inet` at an ingress) in the switch's namespace. Frames that the plane
//! forwards do not pass these chains, so messages to the operator name them.
//!
//! Read nft(8) on the family `netdev`, and `lanyard_netdev::FilterWatch`. TC and XDP run before a chain at an ingress, and the
//! kernel lets frames that TC or XDP redirects pass no chain at an egress (`nf_skip_egress`). Invariant: a chain is
//! known from its announcement on, and a removed chain until a listing no longer contains it.

use crate::error::Result;
use crate::events::Events;
use lanyard_netdev::{FilterWatch, Hook, HookPoint};
use std::collections::BTreeSet;

/// The chains, and the subscription to their changes.
#[derive(Debug)]
pub(crate) struct Chains {
    /// The subscription; `None` if its socket could not be opened.
    watch: Option<FilterWatch>,
    /// The known chains: few, and usually none.
    hooks: BTreeSet<Hook>,
    /// True if a change was announced since the last successful listing.
    stale: bool,
    /// True if the chains have been listed since the timer last expired.
    listed: bool,
}

impl Chains {
    /// Subscribes in the calling thread's namespace, and lists the chains.
    pub(crate) fn open() -> Self {
        let watch = FilterWatch::open_chains().ok();
        let mut chains = Self { watch, hooks: BTreeSet::new(), stale: true, listed: false };
        chains.list();
        chains
    }

    /// Makes `events` readable when chains change.
    pub(crate) fn wake(&self, events: &Events) -> Result<()> {
        self.watch.iter().flat_map(FilterWatch::fds).try_for_each(|fd| events.watch(fd))
    }

    /// Reads the announcements. `due` is true when the timer has expired; between two expiries the chains are listed at most
    /// once. Returns true if the known chains have changed.
    pub(crate) fn follow(&mut self, due: bool) -> bool {
        let Some(watch) = &mut self.watch else { return false };
        let before = self.hooks.clone();
        let mut new = BTreeSet::new();
        self.stale |= watch.events(&mut new);
        self.hooks.extend(new.into_iter().filter(|hook| netdevs(hook).is_some()));
        self.listed &= !due;
        if self.stale && !self.listed {
            self.list();
        }
        before != self.hooks
    }

    /// Lists the chains. If the kernel refuses, the listing is tried again after the timer's next expiry.
    fn list(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        if let Ok(hooks) = watch.list() {
            self.hooks = hooks.into_iter().filter(|hook| netdevs(hook).is_some()).collect();
            self.stale = false;
        }
        self.listed = true;
    }

    /// A chain at the netdev with this name, as [`Hook::owner`] describes it.
    pub(crate) fn at(&self, netdev: &str) -> Option<&str> {
        let is = |name: &String| match name.strip_suffix('*') {
            Some(prefix) => netdev.starts_with(prefix),
            None => name == netdev,
        };
        let found = self.hooks.iter().find(|hook| netdevs(hook).is_some_and(|names| names.iter().any(is)));
        found.map(|hook| hook.owner.as_str())
    }
}

/// The names of the netdevs at which a hook is; `None` for a hook that is not at netdevs.
fn netdevs(hook: &Hook) -> Option<&[String]> {
    match &hook.point {
        HookPoint::Ingress(names) | HookPoint::Egress(names) => Some(names),
        HookPoint::Forwarding => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_at_the_netdevs_that_it_names() {
        let hook = |point, owner: &str| Hook { ipv4: true, ipv6: true, point, owner: owner.into() };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let hooks = BTreeSet::from([
            hook(HookPoint::Egress(names(&["p1", "eth*"])), "out"),
            hook(HookPoint::Ingress(names(&["p2"])), "in"),
            hook(HookPoint::Forwarding, "forward"),
        ]);
        let chains = Chains { watch: None, hooks, stale: false, listed: false };
        assert_eq!(
            (chains.at("p1"), chains.at("eth7"), chains.at("p2")),
            (Some("out"), Some("out"), Some("in"))
        );
        assert_eq!((chains.at("p11"), chains.at("et")), (None, None));
    }
}
