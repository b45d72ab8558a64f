//! Follows the kernel's packet filter, NAT and IPsec in one namespace, as input for
//! `switch::forwarding`.
//!
//! Read `lanyard_netdev::FilterWatch` and `lanyard_switch::forwarding` first. Invariants: a new
//! hook counts as soon as it is announced; a removed one counts until a listing no longer contains
//! it. Hooks that cannot be listed are unknown, which is not the same as none.

use crate::kernel::FilterSource;
use lanyard_netdev::{Hook, HookPoint};
use lanyard_switch::forwarding::{self, PacketFilter};
use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

/// How often legacy iptables and BPF programs are listed, because they announce nothing.
const SILENT_GAP_MS: u64 = 1000;
/// The interval of listing the other hooks even without an announcement, in milliseconds.
const AUDIT_GAP_MS: u64 = 60_000;
/// A listing that took N ms is not repeated before this many times N ms have passed.
const LISTING_SHARE: u64 = 20;

/// The hooks of one namespace.
pub(crate) struct Watch {
    kernel: Box<dyn FilterSource>,
    /// Hooks of nftables and XFRM, listed or announced since.
    announced: BTreeSet<Hook>,
    /// Hooks of legacy iptables and of BPF programs.
    silent: BTreeSet<Hook>,
    /// Both sets in the form that the switch uses.
    filter: PacketFilter,
    /// Why the last listing of `announced`, and the last listing of `silent`, failed.
    failed: [Option<String>; 2],
    /// True if the announced hooks have to be listed: before the first listing, after an announcement, and after a listing that
    /// failed.
    stale: bool,
    /// When the next listing may begin.
    next_list_ms: u64,
    next_audit_ms: u64,
    next_silent_ms: u64,
}

impl Watch {
    /// Creates a watch that has not listed any hook yet.
    pub(crate) fn new(kernel: Box<dyn FilterSource>) -> Self {
        Self {
            kernel,
            announced: BTreeSet::new(),
            silent: BTreeSet::new(),
            filter: PacketFilter::default(),
            failed: [None, None],
            stale: true,
            next_list_ms: 0,
            next_audit_ms: 0,
            next_silent_ms: 0,
        }
    }
    /// Descriptors that become readable when something is announced.
    pub(crate) fn fds(&self) -> Vec<RawFd> {
        self.kernel.fds()
    }
    /// The hooks that are known.
    pub(crate) const fn filter(&self) -> &PacketFilter {
        &self.filter
    }
    /// When [`Self::turn`] has to be called even without an announcement.
    pub(crate) fn due_ms(&self) -> u64 {
        let listing = if self.stale { self.next_list_ms } else { self.next_audit_ms };
        self.next_silent_ms.min(listing)
    }

    /// Reads announcements and makes the listings that are due. Returns true when anything was
    /// announced.
    pub(crate) fn turn(&mut self, now_ms: u64) -> bool {
        let mut new = BTreeSet::new();
        let received = self.kernel.events(&mut new);
        self.stale |= received;
        let due = now_ms >= self.due_ms();
        if !received && !due {
            return false;
        }
        self.announced.append(&mut new);
        if now_ms >= self.next_list_ms && (self.stale || now_ms >= self.next_audit_ms) {
            let began = Instant::now();
            match self.kernel.list() {
                Ok(hooks) => (self.announced, self.failed[0]) = (hooks, None),
                Err(error) => self.failed[0] = Some(error.to_string()),
            }
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(AUDIT_GAP_MS);
            // A failed listing is tried again after [`SILENT_GAP_MS`], together with the next listing of the silent hooks.
            self.stale = self.failed[0].is_some();
            let gap_ms = if self.stale { SILENT_GAP_MS } else { took_ms * LISTING_SHARE };
            self.next_list_ms = now_ms + gap_ms;
            self.next_audit_ms = now_ms + AUDIT_GAP_MS.max(gap_ms);
        }
        if now_ms >= self.next_silent_ms {
            self.next_silent_ms = now_ms + SILENT_GAP_MS;
            match self.kernel.unannounced() {
                Ok(hooks) => (self.silent, self.failed[1]) = (hooks, None),
                Err(error) => self.failed[1] = Some(error.to_string()),
            }
        }
        self.publish();
        received
    }

    fn publish(&mut self) {
        let unknown = self.failed.iter().flatten().next().cloned();
        // Leave out a silent hook if an announced one sends the same packets to the kernel. A BPF program of another network
        // namespace may be listed here, because a chain of nftables at the same hook and priority also makes the kernel refuse
        // the attachment by which the listing recognises programs of this namespace.
        let adds = |hook: &&Hook| !self.announced.iter().any(|other| covers(other, hook));
        let silent = self.silent.iter().filter(adds);
        let hooks: BTreeSet<forwarding::Hook> = self.announced.iter().chain(silent).map(model_hook).collect();
        if hooks != *self.filter.hooks || unknown != self.filter.unknown {
            self.filter = PacketFilter { hooks: Arc::new(hooks), unknown };
        }
    }
}

/// True if the kernel shows all packets of `other` to `hook`, too.
fn covers(hook: &Hook, other: &Hook) -> bool {
    hook.point == other.point && hook.ipv4 >= other.ipv4 && hook.ipv6 >= other.ipv6
}

/// Converts a hook to the form that the switch uses.
fn model_hook(hook: &Hook) -> forwarding::Hook {
    let point = match &hook.point {
        HookPoint::Forwarding => forwarding::HookPoint::Forwarding,
        HookPoint::Ingress(devices) => forwarding::HookPoint::Ingress(devices.clone()),
        HookPoint::Egress(devices) => forwarding::HookPoint::Egress(devices.clone()),
    };
    forwarding::Hook { families: [hook.ipv4, hook.ipv6], point, owner: hook.owner.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// A packet filter in memory.
    #[derive(Default)]
    struct Filter {
        announced: BTreeSet<Hook>,
        /// True if something was announced that only a listing shows.
        received: bool,
        listed: Option<BTreeSet<Hook>>,
        silent: BTreeSet<Hook>,
        /// True if the silent hooks cannot be listed.
        silent_fails: bool,
        listings: usize,
        silent_listings: usize,
    }

    #[derive(Clone)]
    struct Source(Rc<RefCell<Filter>>);

    fn unreadable() -> lanyard_netdev::Error {
        let result = lanyard_netdev::sysctl::ipv4_conf("lanyardabsent", "forwarding");
        result.expect_err("there is no such netdev")
    }

    impl FilterSource for Source {
        fn fds(&self) -> Vec<RawFd> {
            vec![7]
        }
        fn events(&mut self, new: &mut BTreeSet<Hook>) -> bool {
            let mut filter = self.0.borrow_mut();
            new.append(&mut filter.announced);
            std::mem::take(&mut filter.received)
        }
        fn list(&mut self) -> lanyard_netdev::Result<BTreeSet<Hook>> {
            let mut filter = self.0.borrow_mut();
            filter.listings += 1;
            filter.listed.clone().ok_or_else(unreadable)
        }
        fn unannounced(&mut self) -> lanyard_netdev::Result<BTreeSet<Hook>> {
            let mut filter = self.0.borrow_mut();
            filter.silent_listings += 1;
            if filter.silent_fails { Err(unreadable()) } else { Ok(filter.silent.clone()) }
        }
    }

    fn hook(owner: &str, point: HookPoint) -> Hook {
        Hook { ipv4: true, ipv6: false, point, owner: owner.into() }
    }

    fn watch() -> (Watch, Rc<RefCell<Filter>>) {
        let filter = Rc::new(RefCell::new(Filter { listed: Some(BTreeSet::new()), ..Filter::default() }));
        (Watch::new(Box::new(Source(filter.clone()))), filter)
    }

    fn owners(watch: &Watch) -> Vec<String> {
        watch.filter().hooks.iter().map(|hook| hook.owner.clone()).collect()
    }

    #[test]
    fn a_new_hook_counts_at_once_and_a_removed_one_until_a_listing() {
        let (mut watch, filter) = watch();
        assert_eq!(watch.fds(), [7]);
        assert!(!watch.turn(0), "the first listing is due without an announcement");
        assert_eq!((owners(&watch).len(), filter.borrow().listings), (0, 1));
        let nft = hook("nft", HookPoint::Forwarding);
        filter.borrow_mut().announced.insert(nft.clone());
        filter.borrow_mut().received = true;
        filter.borrow_mut().listed = None;
        assert!(watch.turn(10));
        assert_eq!(owners(&watch), ["nft"], "although it cannot be listed");
        filter.borrow_mut().listed = Some(BTreeSet::from([nft]));
        watch.turn(2000);
        assert_eq!(owners(&watch), ["nft"]);
        filter.borrow_mut().listed = Some(BTreeSet::new());
        watch.turn(2010);
        assert_eq!(owners(&watch), ["nft"], "nothing was announced");
        filter.borrow_mut().received = true;
        assert!(watch.turn(2020));
        assert_eq!(owners(&watch), Vec::<String>::new());
    }

    #[test]
    fn hooks_that_cannot_be_listed_are_unknown_and_listed_again() {
        let (mut watch, filter) = watch();
        filter.borrow_mut().listed = None;
        watch.turn(0);
        let reason = watch.filter().unknown.clone().expect("unknown");
        assert_eq!(reason, unreadable().to_string());
        assert_eq!(watch.due_ms(), SILENT_GAP_MS);
        assert!(!watch.turn(SILENT_GAP_MS - 1));
        assert_eq!(filter.borrow().listings, 1, "not before it is due");
        filter.borrow_mut().listed = Some(BTreeSet::new());
        watch.turn(SILENT_GAP_MS);
        assert_eq!((watch.filter().unknown.clone(), filter.borrow().listings), (None, 2));
        filter.borrow_mut().silent_fails = true;
        watch.turn(2 * SILENT_GAP_MS);
        assert_eq!(watch.filter().unknown, Some(unreadable().to_string()));
        filter.borrow_mut().silent_fails = false;
        watch.turn(3 * SILENT_GAP_MS);
        assert_eq!(
            (watch.filter().unknown.clone(), filter.borrow().listings),
            (None, 2),
            "known again at once"
        );
    }

    #[test]
    fn packet_filters_without_events_are_listed_at_intervals() {
        let (mut watch, filter) = watch();
        watch.turn(0);
        filter.borrow_mut().silent.insert(hook("iptables", HookPoint::Ingress(vec!["eth*".into()])));
        assert!(!watch.turn(SILENT_GAP_MS - 1));
        assert!(owners(&watch).is_empty());
        assert!(!watch.turn(SILENT_GAP_MS));
        assert_eq!(owners(&watch), ["iptables"]);
        let shown = watch.filter().hooks.first().expect("a hook").clone();
        assert_eq!(shown.families, [true, false]);
        assert_eq!(shown.point, forwarding::HookPoint::Ingress(vec!["eth*".into()]));
        let turns: Vec<u64> = (2..=AUDIT_GAP_MS / SILENT_GAP_MS).map(|n| n * SILENT_GAP_MS).collect();
        turns.iter().for_each(|now_ms| _ = watch.turn(*now_ms));
        let (listings, silent) = (filter.borrow().listings, filter.borrow().silent_listings);
        assert_eq!((listings, silent), (2, 61), "the audit, and what announces nothing each second");
    }

    #[test]
    fn an_announced_hook_is_the_reason() {
        let (mut watch, filter) = watch();
        filter.borrow_mut().silent.extend([
            hook("BPF program 7", HookPoint::Forwarding),
            Hook { ipv6: true, ..hook("BPF program 8", HookPoint::Forwarding) },
        ]);
        let chain = hook("nftables chain ip f c", HookPoint::Forwarding);
        filter.borrow_mut().listed = Some([chain].into());
        watch.turn(0);
        // The chain does not concern IPv6.
        assert_eq!(owners(&watch), ["nftables chain ip f c", "BPF program 8"]);
    }
}
