//! Routes received from a routing suite over FPM, next to those of the kernel.
//!
//! Read first: `lanyard_fpm`. FRR also installs these routes in the kernel, so most prefixes are known twice. A route
//! from FPM is preferred over the kernel's route to the same prefix; when it is removed, the kernel's is used. An
//! address of the switch (table local) is preferred over both.
//!
//! Invariant: an audit, which compares with the kernel, does not touch these routes. The number of a next-hop set may
//! be reused while the plane still has routes to the old set, so each set gets a serial number of its own here.

use super::classify::is_apart;
use super::program::Programmed;
use super::rib::{Candidate, FAILED, Kind, NONE, Rank};
use super::sets::SetKey;
use super::{Offload, Routing};
use ipnet::IpNet;
use lanyard_fpm::{NextHopSet, NextHopSetId, Route, Update};
use lanyard_types::{TrapReason, VrfId};
use std::collections::HashMap;

/// The FPM state of a VRF.
#[derive(Debug, Default)]
pub(super) struct Fpm {
    serials: HashMap<NextHopSetId, u32>,
    last: u32,
}

impl Routing {
    /// Applies the client's changes. Once the plane has been programmed, [`Routing::fpm_settled`] returns the prefixes of the
    /// routes that have an outcome.
    pub fn fpm(&mut self, vrf: VrfId, updates: Vec<Update>) {
        for update in updates {
            match update {
                Update::NextHops(id, next_hops) => self.fpm_next_hops(vrf, id, next_hops),
                Update::Route(prefix, route) => self.fpm_route(vrf, prefix, route),
                Update::NextHopsRemoved(id) => {
                    let known = self.vrf(vrf);
                    if let Some(serial) = known.fpm.serials.remove(&id) {
                        known.around.fpm_sets.remove(&serial);
                    }
                }
            }
        }
    }
    /// The prefixes of FPM's routes that [`Routing::poll`] has handled since the last call. Call it after the plane has
    /// processed the changes and its refusals have been reported.
    pub fn fpm_settled(&mut self) -> Vec<(VrfId, IpNet)> {
        std::mem::take(&mut self.fpm_settled)
    }
    /// The state in the plane of FPM's route to `prefix`.
    #[must_use]
    pub fn fpm_offload(&self, vrf: VrfId, prefix: IpNet) -> Offload {
        let Some(known) = self.vrfs.get(&vrf) else { return Offload::Trapped };
        let entry = known.rib.get(prefix).filter(|entry| entry.best.rank == Rank::Fpm);
        let policy = known.policy[usize::from(!prefix.addr().is_ipv4())];
        match entry.map(|entry| (Programmed::unpack(entry.programmed), entry.flags & FAILED != 0)) {
            Some((_, true)) => Offload::Failed,
            // An address of the switch is preferred over the route, or the plane does not route.
            None | Some((Programmed::Nothing, _)) => Offload::Trapped,
            // The plane cannot do what the route asks.
            Some((Programmed::Up(reason), _)) if reason != TrapReason::Glean => Offload::Trapped,
            Some(_) if policy => Offload::Trapped,
            Some(_) => Offload::Offloaded,
        }
    }

    fn fpm_next_hops(&mut self, vrf: VrfId, id: NextHopSetId, next_hops: NextHopSet) {
        let known = self.vrf(vrf);
        let next = known.fpm.last.wrapping_add(1);
        let serial = *known.fpm.serials.entry(id).or_insert(next);
        if serial == next {
            known.fpm.last = next;
        }
        known.around.fpm_sets.insert(serial, next_hops);
        let Some(slot) = self.hops.find(vrf, &SetKey::Fpm(serial)) else { return };
        self.evaluate(vec![slot]);
        self.resolve_members(slot);
    }
    fn fpm_route(&mut self, vrf: VrfId, prefix: IpNet, route: Option<Route>) {
        if is_apart(prefix) {
            if route.is_some() {
                self.fpm_settled.push((vrf, prefix));
            }
            return;
        }
        let candidate = route.map(|route| self.fpm_candidate(vrf, prefix, route));
        let known = self.vrf(vrf);
        let mut list: Vec<Candidate> = known.rib.candidates(prefix).copied().collect();
        let at = list.iter().position(|other| other.rank == Rank::Fpm);
        let old = at.map(|at| list.remove(at));
        if candidate.is_none() && old.is_none() {
            return;
        }
        if let Some(candidate) = candidate {
            let at = list.partition_point(|other| other.rank < Rank::Fpm);
            list.insert(at, candidate);
        }
        known.rib.set(prefix, &list);
        for (candidate, let_go) in [(candidate, false), (old, true)] {
            match candidate.map(|candidate| candidate.set).filter(|set| *set != NONE) {
                Some(set) if let_go => self.hops.release(set),
                Some(set) => self.resolve_members(set),
                None => {}
            }
        }
        self.changed(vrf, prefix, false);
    }
    fn fpm_candidate(&mut self, vrf: VrfId, prefix: IpNet, route: Route) -> Candidate {
        let known = self.vrf(vrf);
        let serial = known.fpm.serials.get(&route.next_hops).copied().unwrap_or(0);
        let mut candidate = Candidate {
            metric: route.metric,
            set: NONE,
            rank: Rank::Fpm,
            kind: Kind::NoRoute,
            tos: 0,
            seen: 0,
        };
        if !matches!(known.around.fpm_sets.get(&serial), Some(NextHopSet::Unreachable | NextHopSet::Prohibit))
        {
            let like = known.rib.get(prefix).map(|entry| entry.best.set).filter(|set| *set != NONE);
            let Some(known) = self.vrfs.get(&vrf) else { return candidate };
            candidate.kind = Kind::Unicast;
            candidate.set = self.hops.intern(&known.around, SetKey::Fpm(serial), like);
        }
        candidate
    }
}
