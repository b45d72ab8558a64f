//! Writes to the plane: their contents, their order, and the handling of refusals.
//!
//! Read first: RFC 1812, section 5.2.4.3, on the longest match.
//!
//! Invariant: at every moment a frame meets its old longest match or its new one, or goes to the kernel. If the plane
//! has no room for a prefix, its frames would match the next shorter one; so that prefix is programmed to send frames
//! to the kernel.

use super::classify::is_apart;
use super::hops::Hops;
use super::rib::{Candidate, DIRTY, FAILED, FORCED, Kind, NONE, REFUSED, Rank};
use super::sets::{Outcome, SetKey};
use super::{Ask, Millis, RETRY_MS, Routing, Vrf};
use ipnet::IpNet;
use lanyard_plane::{RouteChange, RouteTarget};
use lanyard_types::{RifId, TrapReason, VrfId};
use std::net::IpAddr;

/// The last write to the plane for a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Programmed {
    Nothing,
    Group(u32),
    Up(TrapReason),
    Connected(RifId),
    Blackhole,
}

/// Packed values from `UP` on are reasons to trap, those from `CONNECTED` on router interfaces; lower ones are set numbers.
/// `BLACKHOLE` and [`NONE`] are single values above the reasons.
const UP: u32 = u32::MAX - 0x1ff;
const CONNECTED: u32 = u32::MAX - 0x1fff;
const BLACKHOLE: u32 = u32::MAX - 1;

impl Programmed {
    pub(super) fn pack(self) -> u32 {
        match self {
            Self::Nothing => NONE,
            Self::Group(set) => set,
            Self::Up(reason) => UP + reason as u32,
            Self::Connected(rif) => CONNECTED + u32::from(rif.get()),
            Self::Blackhole => BLACKHOLE,
        }
    }
    pub(super) fn unpack(code: u32) -> Self {
        match code {
            NONE => Self::Nothing,
            BLACKHOLE => Self::Blackhole,
            UP.. => TrapReason::from_u8((code - UP) as u8).map_or(Self::Nothing, Self::Up),
            CONNECTED.. => RifId::new((code - CONNECTED) as u16).map_or(Self::Nothing, Self::Connected),
            set => Self::Group(set),
        }
    }
    /// The target in the plane's form; `None` if the plane has no route to the prefix.
    pub(super) fn target(self, hops: &Hops) -> Option<RouteTarget> {
        match self {
            Self::Nothing => None,
            Self::Up(reason) => Some(RouteTarget::Up(reason)),
            Self::Connected(rif) => Some(RouteTarget::Connected(rif)),
            Self::Blackhole => Some(RouteTarget::Blackhole),
            Self::Group(set) => hops.group(set).map(RouteTarget::Group),
        }
    }
}

impl Routing {
    /// Appends up to about `most` changes for the plane to `out`, in order. Changes of next hops come first, so that a
    /// dead next hop leaves its groups at once. Returns true if there are more changes.
    pub fn poll(&mut self, most: usize, out: &mut Vec<RouteChange>) -> bool {
        self.flush(out);
        let start = out.len();
        for _ in 0..most {
            let Some(ask) = self.neighbours.pop_first() else { break };
            self.consider_neighbour(ask);
        }
        let vrfs: Vec<VrfId> = self.vrfs.keys().copied().collect();
        for vrf in &vrfs {
            self.scan(*vrf, most);
            self.sweep(*vrf, most);
        }
        for vrf in vrfs {
            while out.len() - start < most {
                let Some(prefix) = self.vrfs.get_mut(&vrf).and_then(Vrf::next) else { break };
                self.program(vrf, prefix, out);
            }
        }
        self.flush(out);
        let queued = |vrf: &Vrf| !(vrf.filling || vrf.coming.is_empty() && vrf.going.is_empty());
        let busy = |vrf: &Vrf| vrf.scan.is_some() || vrf.audit.sweeping.is_some() || queued(vrf);
        !self.neighbours.is_empty() || self.vrfs.values().any(busy)
    }
    pub(super) fn flush(&mut self, out: &mut Vec<RouteChange>) {
        let vrfs = &self.vrfs;
        let any = vrfs.values().find_map(|vrf| vrf.around.rifs.values().next().copied());
        self.hops.flush(&|vrf| vrfs.get(&vrf).map(|vrf| &vrf.around), any, out);
        let short = self.hops.short();
        self.hops.deny(&short);
        self.refused |= !short.is_empty();
        self.evaluate(short);
    }
    pub(super) fn evaluate(&mut self, sets: Vec<u32>) {
        for slot in sets {
            let Some(known) = self.hops.set(slot).and_then(|set| self.vrfs.get_mut(&set.vrf)) else {
                continue;
            };
            if self.hops.evaluate(&known.around, slot) {
                known.scan = Some(None);
            }
        }
    }
    fn scan(&mut self, vrf: VrfId, most: usize) {
        let Some(known) = self.vrfs.get_mut(&vrf) else { return };
        let Some(from) = known.scan else { return };
        let part = known.rib.walk(from, most);
        known.scan = part.last().map(|last| Some(*last));
        known.filling &= known.scan.is_some() || !known.audit.ever;
        for prefix in part {
            self.enqueue(vrf, prefix);
        }
    }

    /// Evaluates the host route of a neighbour on a connected network. It exists only if no longer prefix leads
    /// elsewhere.
    pub(super) fn consider_neighbour(&mut self, ask: Ask) {
        let Ask { vrf, ifindex, address } = ask;
        let Some(known) = self.vrfs.get_mut(&vrf) else { return };
        let prefix = IpNet::from(address);
        if is_apart(prefix) {
            return;
        }
        let valid = known.around.neighbours.get(&(address, ifindex)).is_some_and(|n| n.mac.is_some());
        let wanted = valid
            && known.around.rif(ifindex).is_some()
            && known.connected(&self.hops, address) == Some(ifindex);
        let key = SetKey::One(ifindex, Some(address));
        let mut list: Vec<Candidate> = known.rib.candidates(prefix).copied().collect();
        let found = self.hops.find(vrf, &key);
        let at = list.iter().position(|c| c.rank == Rank::Neighbour && Some(c.set) == found);
        match (wanted, at) {
            (true, None) => {
                let set = self.hops.intern(&known.around, key, None);
                let kind = Kind::Unicast;
                list.push(Candidate { metric: 0, set, rank: Rank::Neighbour, kind, tos: 0, seen: 0 });
            }
            (false, Some(at)) => self.hops.release(list.remove(at).set),
            _ => return,
        }
        known.rib.set(prefix, &list);
        self.enqueue(vrf, prefix);
    }

    /// Programs a prefix's target if it has changed.
    fn program(&mut self, vrf: VrfId, prefix: IpNet, out: &mut Vec<RouteChange>) {
        let Some(known) = self.vrfs.get_mut(&vrf) else { return };
        known.force_if_between(prefix);
        let Some(entry) = known.rib.get(prefix).copied() else { return };
        if entry.best.rank == Rank::Fpm {
            self.fpm_settled.push((vrf, prefix));
        }
        let mut wanted =
            if known.around.rifs.is_empty() { Programmed::Nothing } else { known.target(&self.hops, prefix) };
        let old = Programmed::unpack(entry.programmed);
        if let Programmed::Group(set) = wanted
            && old != wanted
            && !self.hops.use_group(&known.around, set, out)
        {
            (wanted, self.refused) = (Programmed::Up(TrapReason::RoutePolicy), true);
        }
        if let Some(entry) = known.rib.get_mut(prefix) {
            entry.programmed = wanted.pack();
            entry.flags &= !DIRTY;
        }
        if old != wanted {
            let target = wanted.target(&self.hops);
            out.push(RouteChange::Route(vrf, prefix, target));
            if let Programmed::Group(set) = old {
                self.hops.leave_group(set);
            }
        }
        if wanted == Programmed::Nothing {
            self.freed = true;
            if entry.flags & FORCED != 0 {
                self.force_above(vrf, prefix);
            }
            let Some(known) = self.vrfs.get_mut(&vrf) else { return };
            if entry.best.rank == Rank::Gone {
                known.failed.remove(&prefix);
                known.rib.remove(prefix);
            }
        }
    }
    /// Handles a prefix that the plane has no room for: the next shorter prefix must send its frames to the kernel.
    pub(super) fn force_above(&mut self, vrf: VrfId, prefix: IpNet) {
        let Some(known) = self.vrfs.get_mut(&vrf) else { return };
        let above =
            known.rib.above(prefix).find(|(_, entry)| entry.programmed != NONE).map(|(above, _)| above);
        if let Some(above) = above
            && let Some(entry) = known.rib.get_mut(above)
        {
            entry.flags |= FORCED;
            self.enqueue(vrf, above);
        }
    }

    /// Handles the plane's refusal of a change.
    pub fn refuse(&mut self, now: Millis, change: &RouteChange) {
        (self.refused, self.freed, self.retry_ms) = (true, false, now + RETRY_MS);
        let RouteChange::Route(vrf, prefix, Some(_)) = change else {
            let sets = self.hops.refuse(change);
            self.evaluate(sets);
            return;
        };
        let Some(known) = self.vrfs.get_mut(vrf) else { return };
        let Some(entry) = known.rib.get_mut(*prefix) else { return };
        if let Programmed::Group(set) = Programmed::unpack(entry.programmed) {
            self.hops.leave_group(set);
        }
        // The plane's entry is not what was programmed. Record another value, so that the target is programmed again in
        // any case.
        entry.programmed = Programmed::Up(TrapReason::Martian).pack();
        if entry.flags & REFUSED == 0 {
            entry.flags |= REFUSED;
        } else {
            entry.flags |= FAILED;
            known.failed.insert(*prefix);
            self.force_above(*vrf, *prefix);
        }
        self.enqueue(*vrf, *prefix);
    }
    /// Tries refused changes again if something was removed since and the last refusal is long enough ago. Returns when to call
    /// again; `None` if there is nothing to try.
    pub fn retry(&mut self, now: Millis) -> Option<Millis> {
        if !(self.refused && self.freed) {
            return None;
        }
        if now < self.retry_ms {
            return Some(self.retry_ms);
        }
        (self.refused, self.freed) = (false, false);
        let sets = self.hops.forgive();
        self.evaluate(sets);
        for known in self.vrfs.values_mut() {
            known.failed.clear();
            for prefix in known.rib.walk(None, usize::MAX) {
                if let Some(entry) = known.rib.get_mut(prefix) {
                    entry.flags &= !(REFUSED | FAILED | FORCED);
                }
            }
            known.scan = Some(None);
        }
        None
    }
}

impl Vrf {
    /// Takes the next prefix from the queue.
    pub(super) fn next(&mut self) -> Option<IpNet> {
        if self.filling {
            return None;
        }
        let coming = self.coming.pop_first().map(|(_, prefix)| prefix);
        coming.or_else(|| self.going.pop_first().map(|(_, prefix)| prefix))
    }
    /// Forces a new prefix that contains a failed one: the frames of the failed prefix now match the new prefix, and no longer
    /// the shorter one that was forced before.
    fn force_if_between(&mut self, prefix: IpNet) {
        let failed = self.failed.range(prefix..).take_while(|inside| prefix.contains(*inside));
        if failed.into_iter().any(|inside| *inside != prefix)
            && let Some(entry) = self.rib.get_mut(prefix).filter(|entry| entry.programmed == NONE)
        {
            entry.flags |= FORCED;
        }
    }
    /// The interface of the connected network that contains the address, by the longest match among the kernel's
    /// routes.
    pub(super) fn connected(&self, hops: &Hops, address: IpAddr) -> Option<u32> {
        for (prefix, _) in self.rib.matching(address) {
            let Some(best) = self.rib.candidates(prefix).find(|c| c.rank < Rank::Neighbour) else { continue };
            return match hops.set(best.set).filter(|_| best.kind == Kind::Unicast)?.outcome {
                Outcome::Connected(ifindex) => Some(ifindex),
                _ => None,
            };
        }
        None
    }
    /// The target that a prefix should have.
    fn target(&self, hops: &Hops, prefix: IpNet) -> Programmed {
        let kernel = Programmed::Up(TrapReason::RoutePolicy);
        let Some(entry) = self.rib.get(prefix).filter(|entry| entry.flags & FAILED == 0) else {
            return Programmed::Nothing;
        };
        let best = entry.best;
        if best.rank == Rank::Gone {
            return Programmed::Nothing;
        }
        if entry.flags & (REFUSED | FORCED) != 0
            || best.rank == Rank::Default
            || self.rib.candidates(prefix).any(|candidate| candidate.kind == Kind::Selective)
            || (best.rank > Rank::Local && self.rib.is_below_local(prefix))
        {
            return kernel;
        }
        match best.kind {
            Kind::Local => Programmed::Up(TrapReason::LocalAddress),
            Kind::NoRoute => Programmed::Up(TrapReason::NoRoute),
            Kind::Blackhole => Programmed::Blackhole,
            Kind::Policy | Kind::Selective => kernel,
            Kind::Unicast => match hops.set(best.set).map(|set| set.outcome) {
                Some(Outcome::Connected(ifindex)) => {
                    // A host on the link with a route of its own: if its neighbour is resolved, packets go to the neighbour.
                    let resolved = self.rib.candidates(prefix).find(|c| c.rank == Rank::Neighbour);
                    let link = || self.around.rif(ifindex).map_or(kernel, Programmed::Connected);
                    resolved.map_or_else(link, |c| Programmed::Group(c.set))
                }
                Some(Outcome::Blackhole) => Programmed::Blackhole,
                Some(Outcome::Group) => Programmed::Group(best.set),
                Some(Outcome::Kernel) | None => kernel,
            },
        }
    }
}
