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

/// How often legacy iptables is listed, because it announces nothing.
const LEGACY_GAP_MS: u64 = 1000;
/// How often the rest is listed even without an announcement.
const AUDIT_GAP_MS: u64 = 60_000;
/// A listing that took N ms is not repeated before this many times N ms have passed.
const LISTING_SHARE: u64 = 20;

/// The hooks of one namespace.
pub(crate) struct Watch {
    kernel: Box<dyn FilterSource>,
    /// Hooks of nftables and XFRM, listed or announced since.
    announced: BTreeSet<Hook>,
    legacy: BTreeSet<Hook>,
    /// Both sets in the form that the switch uses.
    filter: PacketFilter,
    /// Something was announced that only a listing shows.
    stale: bool,
    /// When the next listing may begin.
    next_list_ms: u64,
    next_audit_ms: u64,
    next_legacy_ms: u64,
}

impl Watch {
    /// Nothing is known yet.
    pub(crate) fn new(kernel: Box<dyn FilterSource>) -> Self {
        Self {
            kernel,
            announced: BTreeSet::new(),
            legacy: BTreeSet::new(),
            filter: PacketFilter::default(),
            stale: true,
            next_list_ms: 0,
            next_audit_ms: 0,
            next_legacy_ms: 0,
        }
    }
    /// Become readable when something is announced.
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
        self.next_legacy_ms.min(listing)
    }

    /// Reads announcements and makes the listings that are due. Returns true when anything was
    /// announced.
    pub(crate) fn turn(&mut self, now_ms: u64) -> bool {
        let mut new = BTreeSet::new();
        let heard = self.kernel.events(&mut new);
        self.stale |= heard;
        let due = now_ms >= self.due_ms();
        if !heard && !due {
            return false;
        }
        self.announced.append(&mut new);
        let mut unknown = self.filter.unknown.clone();
        if now_ms >= self.next_list_ms && (self.stale || now_ms >= self.next_audit_ms) {
            let began = Instant::now();
            match self.kernel.list() {
                Ok(hooks) => (self.announced, unknown) = (hooks, None),
                Err(error) => unknown = Some(error.to_string()),
            }
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(AUDIT_GAP_MS);
            // A failed listing is tried again together with the next one of legacy iptables.
            self.stale = unknown.is_some();
            let gap_ms = if self.stale { LEGACY_GAP_MS } else { took_ms * LISTING_SHARE };
            self.next_list_ms = now_ms + gap_ms;
            self.next_audit_ms = now_ms + AUDIT_GAP_MS.max(gap_ms);
        }
        if now_ms >= self.next_legacy_ms {
            self.next_legacy_ms = now_ms + LEGACY_GAP_MS;
            match self.kernel.legacy() {
                Ok(hooks) => self.legacy = hooks,
                Err(error) => unknown = Some(unknown.unwrap_or_else(|| error.to_string())),
            }
        }
        self.publish(unknown);
        heard
    }

    fn publish(&mut self, unknown: Option<String>) {
        let hooks: BTreeSet<forwarding::Hook> = self.announced.iter().chain(&self.legacy).map(told).collect();
        if hooks != *self.filter.hooks || unknown != self.filter.unknown {
            self.filter = PacketFilter { hooks: Arc::new(hooks), unknown };
        }
    }
}

/// Converts a hook to the form that the switch uses.
fn told(hook: &Hook) -> forwarding::Hook {
    let point = match &hook.point {
        HookPoint::Forwarding => forwarding::HookPoint::Forwarding,
        HookPoint::Ingress(devices) => forwarding::HookPoint::Ingress(devices.clone()),
        HookPoint::Egress(devices) => forwarding::HookPoint::Egress(devices.clone()),
    };
    forwarding::Hook { families: [hook.ipv4, hook.ipv6], point, owner: hook.owner.clone() }
}
