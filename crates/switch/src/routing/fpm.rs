//! Routes that a routing suite hands over by FPM, beside the kernel's.
//!
//! Read first: `lanyard_fpm`. FRR puts what it hands over into the kernel too, so most prefixes are told of twice: a route of
//! FPM goes before the kernel's to the same prefix, and when it goes the kernel's is used. An address of the switch
//! (table local) goes before both.
//!
//! Invariant: an audit, which compares with the kernel, leaves these routes alone. A way's number may be used again while
//! the plane still has routes to the old one, so each gets a serial number of its own here.

use super::classify::is_apart;
use super::rib::{Candidate, FAILED, Kind, NONE, Rank};
use super::sets::SetKey;
use super::tell::Told;
use super::{Offload, Routing};
use ipnet::IpNet;
use lanyard_fpm::{Route, Update, Way, WayId};
use lanyard_types::{TrapReason, VrfId};
use std::collections::HashMap;

/// What a VRF remembers of FPM.
#[derive(Debug, Default)]
pub(super) struct Fpm {
    serials: HashMap<WayId, u32>,
    last: u32,
}

impl Routing {
    /// What the client has changed. What became of each route is told by [`Routing::fpm_told`] when the plane has been.
    pub fn fpm(&mut self, vrf: VrfId, updates: Vec<Update>) {
        for update in updates {
            match update {
                Update::Way(id, way) => self.set_way(vrf, id, way),
                Update::Route(prefix, route) => self.fpm_route(vrf, prefix, route),
                Update::WayGone(id) => {
                    let known = self.vrf(vrf);
                    if let Some(serial) = known.fpm.serials.remove(&id) {
                        known.around.ways.remove(&serial);
                    }
                }
            }
        }
    }
    /// The prefixes of FPM's routes that [`Routing::poll`] has dealt with since the last call. Ask after the plane has had
    /// the changes, and what it refused has been told.
    pub fn fpm_told(&mut self) -> Vec<(VrfId, IpNet)> {
        std::mem::take(&mut self.fpm_told)
    }
    /// What the plane does with FPM's route to `prefix`.
    #[must_use]
    pub fn fpm_offload(&self, vrf: VrfId, prefix: IpNet) -> Offload {
        let Some(known) = self.vrfs.get(&vrf) else { return Offload::Trapped };
        let entry = known.rib.get(prefix).filter(|entry| entry.best.rank == Rank::Fpm);
        let policy = known.policy[usize::from(!prefix.addr().is_ipv4())];
        match entry.map(|entry| (Told::unpack(entry.told), entry.flags & FAILED != 0)) {
            Some((_, true)) => Offload::Failed,
            // An address of the switch goes before it, or the plane does not route.
            None | Some((Told::Nothing, _)) => Offload::Trapped,
            // The plane can't do what it says.
            Some((Told::Up(reason), _)) if reason != TrapReason::Glean => Offload::Trapped,
            Some(_) if policy => Offload::Trapped,
            Some(_) => Offload::Offloaded,
        }
    }

    fn set_way(&mut self, vrf: VrfId, id: WayId, way: Way) {
        let known = self.vrf(vrf);
        let next = known.fpm.last.wrapping_add(1);
        let serial = *known.fpm.serials.entry(id).or_insert(next);
        if serial == next {
            known.fpm.last = next;
        }
        known.around.ways.insert(serial, way);
        let Some(slot) = self.hops.find(vrf, &SetKey::Way(serial)) else { return };
        self.evaluate(vec![slot]);
        self.resolve_members(slot);
    }
    fn fpm_route(&mut self, vrf: VrfId, prefix: IpNet, route: Option<Route>) {
        if is_apart(prefix) {
            if route.is_some() {
                self.fpm_told.push((vrf, prefix));
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
        let serial = known.fpm.serials.get(&route.way).copied().unwrap_or(0);
        let mut candidate = Candidate {
            metric: route.metric,
            set: NONE,
            rank: Rank::Fpm,
            kind: Kind::NoRoute,
            tos: 0,
            seen: 0,
        };
        if !matches!(known.around.ways.get(&serial), Some(Way::Unreachable | Way::Prohibit)) {
            let like = known.rib.get(prefix).map(|entry| entry.best.set).filter(|set| *set != NONE);
            let Some(known) = self.vrfs.get(&vrf) else { return candidate };
            candidate.kind = Kind::Unicast;
            candidate.set = self.hops.intern(&known.around, SetKey::Way(serial), like);
        }
        candidate
    }
}
