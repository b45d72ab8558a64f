//! The static routes of the configuration in the kernel's tables: installs, reconciles and removes them.
//!
//! Read `lanyard_switch::layer3::routes` first, which determines these routes. The kernel flushes routes without an
//! announcement when an interface goes down or loses its last address. The installed routes are therefore compared with
//! the kernel's tables after every event that may have removed a route, and at intervals.
//!
//! Invariants: only routes that this instance has installed are replaced or removed. These are the routes that the
//! kernel lists with Lanyard's protocol number and that the instance's record names, because other instances use the
//! same number. A route is in the record before the kernel is asked to add it.

use crate::kernel::{Kernel, KernelError};
use lanyard_netdev::{ROUTE_PROTOCOL, Route as KernelRoute, RouteKind};
use lanyard_switch::layer3::Hop;
use lanyard_switch::{Facts, Route};
use lanyard_types::Family;
use std::collections::{BTreeMap, BTreeSet};

/// How often the kernel's tables are compared even without an event.
const AUDIT_GAP_MS: u64 = 30_000;

/// The reason why a route is not in the kernel as it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RouteTrouble {
    #[error(
        "the kernel has a route to it with the same metric that this switch did not make; remove that route, or give this \
         one another distance"
    )]
    InTheWay(#[source] KernelError),
    #[error(transparent)]
    Kernel(KernelError),
    /// Without a record, no one could know after a crash to whom the route belongs.
    #[error("the switch's record of routes cannot be written")]
    Unrecorded,
}

/// A change of a route that is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) route: Route,
    /// True if the route should have been removed, false if installed.
    pub(crate) removing: bool,
    pub(crate) cause: RouteTrouble,
}

/// True if a next hop or an interface cannot be used now but may be usable later.
fn is_for_now(error: &KernelError) -> bool {
    use nix::libc::{EADDRNOTAVAIL, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENODEV, ENXIO};
    let transient = [ENETUNREACH, EHOSTUNREACH, ENETDOWN, ENODEV, ENXIO, EADDRNOTAVAIL];
    error.errno().is_some_and(|errno| transient.contains(&errno))
}

/// True if the route or its interface does not exist.
fn is_gone(error: &KernelError) -> bool {
    use nix::libc::{ENODEV, ENOENT, ENXIO, ESRCH};
    error.errno().is_some_and(|errno| [ESRCH, ENOENT, ENODEV, ENXIO].contains(&errno))
}

/// The kernel's routing tables: the main table of each VRF's namespace.
pub(crate) trait Tables {
    /// Adds a route where no route with this destination and metric exists.
    fn add(&self, vrf: Option<&str>, route: &KernelRoute) -> Result<(), KernelError>;
    /// Replaces the route with this destination and metric.
    fn replace(&self, vrf: Option<&str>, route: &KernelRoute) -> Result<(), KernelError>;
    /// Removes a route.
    fn delete(&self, vrf: Option<&str>, route: &KernelRoute) -> Result<(), KernelError>;
    /// The routes of one family with Lanyard's protocol number.
    fn list(&self, vrf: Option<&str>, family: Family) -> Result<Vec<KernelRoute>, KernelError>;
}

impl Tables for Box<dyn Kernel> {
    fn add(&self, vrf: Option<&str>, route: &KernelRoute) -> Result<(), KernelError> {
        self.add_route(vrf, route)
    }
    fn replace(&self, vrf: Option<&str>, route: &KernelRoute) -> Result<(), KernelError> {
        self.replace_route(vrf, route)
    }
    fn delete(&self, vrf: Option<&str>, route: &KernelRoute) -> Result<(), KernelError> {
        self.del_route(vrf, route)
    }
    fn list(&self, vrf: Option<&str>, family: Family) -> Result<Vec<KernelRoute>, KernelError> {
        self.routes_of(vrf, family, ROUTE_PROTOCOL)
    }
}

/// The identity of a route: the kernel has one per destination and metric.
type Key = (Option<String>, ipnet::IpNet, u32);

/// Routes that are not as they should be, with the reasons.
type Reasons = BTreeMap<Key, (Route, String)>;

fn key(route: &Route) -> Key {
    (route.vrf.clone(), route.prefix, route.metric)
}

/// This instance's static routes in the kernel.
#[derive(Debug, Default)]
pub(crate) struct StaticRoutes {
    installed: BTreeMap<Key, Route>,
    /// True if an event may have removed some of them.
    unverified: bool,
    next_audit_ms: u64,
    /// Routes that the kernel refuses permanently, and why.
    refused: Reasons,
    /// Routes that the kernel does not remove, and why.
    stuck: Reasons,
}

impl StaticRoutes {
    /// Takes over what an earlier run has left in the kernel: the routes in its `record`. A route
    /// that equals one in `wanted` is taken over even if it is not in the record.
    pub(crate) fn adopt(
        &mut self,
        tables: &dyn Tables,
        vrfs: &[Option<String>],
        record: &BTreeSet<Route>,
        wanted: &BTreeSet<Route>,
        facts: &Facts,
    ) {
        for (vrf, family) in vrfs.iter().flat_map(|vrf| [(vrf, Family::V4), (vrf, Family::V6)]) {
            for route in tables.list(vrf.as_deref(), family).unwrap_or_default() {
                let Some(route) = raise(vrf.as_deref(), &route, facts) else { continue };
                let ours = record.iter().chain(wanted).find(|ours| is_part(&route, ours));
                if let Some(ours) = ours {
                    let whole = if ours.hops.len() == route.hops.len() { ours.clone() } else { route };
                    self.installed.insert(key(&whole), whole);
                }
            }
        }
    }
    /// The routes that the kernel has or is about to be given, for the record.
    pub(crate) fn recorded(&self, wanted: &BTreeSet<Route>) -> BTreeSet<Route> {
        self.installed.values().chain(wanted).cloned().collect()
    }
    /// Notes that an event may have removed routes.
    pub(crate) fn doubt(&mut self) {
        self.unverified = true;
    }
    /// Handles the kernel's event about a route. It matters if the route is one of this instance's
    /// or may have replaced one.
    pub(crate) fn doubt_about(&mut self, vrf: Option<&str>, route: &KernelRoute) {
        self.unverified |= self.installed.contains_key(&(vrf.map(str::to_owned), route.dest, route.metric));
    }
    /// When the tables are compared next.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        (!self.installed.is_empty() || !self.refused.is_empty()).then_some(self.next_audit_ms)
    }
    /// True when the kernel may not have exactly `wanted`.
    pub(crate) fn differs(&self, now_ms: u64, wanted: &BTreeSet<Route>) -> bool {
        self.unverified
            || self.due_ms().is_some_and(|due_ms| due_ms <= now_ms)
            || !self.installed.values().eq(wanted.iter().map(|route| route as &Route))
    }

    /// Makes the kernel's tables equal `wanted`. Returns the routes that are refused and were not
    /// before, and why. A route whose next hop is not reachable now is left for the next call.
    pub(crate) fn sync(
        &mut self,
        now_ms: u64,
        tables: &dyn Tables,
        wanted: &BTreeSet<Route>,
        facts: &Facts,
    ) -> Vec<Refusal> {
        if self.unverified || self.due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
            self.verify(tables, facts);
        }
        self.next_audit_ms = now_ms + AUDIT_GAP_MS;
        let mut refusals = Vec::new();
        for route in wanted {
            let key = key(route);
            let before = self.installed.get(&key);
            let Some(lowered) = lower(route, facts).filter(|_| before != Some(route)) else { continue };
            let vrf = route.vrf.as_deref();
            let result = match before.and_then(|before| lower(before, facts)) {
                // Replacing has no gap: packets use either the old route or the new one.
                Some(_) => tables.replace(vrf, &lowered),
                None => tables.add(vrf, &lowered),
            };
            match result {
                Ok(()) => {
                    self.refused.remove(&key);
                    self.installed.insert(key, route.clone());
                }
                Err(error) if is_for_now(&error) => drop(self.refused.remove(&key)),
                Err(error) => {
                    let in_the_way = error.errno() == Some(nix::libc::EEXIST);
                    let trouble = if in_the_way { RouteTrouble::InTheWay } else { RouteTrouble::Kernel };
                    refusals.extend(news(&mut self.refused, route, trouble(error), false));
                }
            }
        }
        self.remove(tables, wanted, facts, &mut refusals);
        refusals
    }

    /// Removes the routes that are not wanted any more.
    fn remove(
        &mut self,
        tables: &dyn Tables,
        wanted: &BTreeSet<Route>,
        facts: &Facts,
        refusals: &mut Vec<Refusal>,
    ) {
        let keys: BTreeSet<Key> = wanted.iter().map(key).collect();
        let Self { installed, refused, stuck, .. } = self;
        refused.retain(|key, _| keys.contains(key));
        installed.retain(|key, route| {
            if keys.contains(key) {
                return true;
            }
            match lower(route, facts).map(|lowered| tables.delete(route.vrf.as_deref(), &lowered)) {
                Some(Err(error)) if !is_gone(&error) => {
                    refusals.extend(news(stuck, route, RouteTrouble::Kernel(error), true));
                    true
                }
                _ => false,
            }
        });
        stuck.retain(|key, _| installed.contains_key(key) && !keys.contains(key));
    }

    /// True if all of these routes have been installed.
    pub(crate) fn contains(&self, wanted: &BTreeSet<Route>) -> bool {
        wanted.iter().all(|route| self.installed.get(&key(route)) == Some(route))
    }

    /// Changes nothing in the kernel, because the record cannot be written. Like [`Self::sync`], returns the routes
    /// that are refused and were not before.
    pub(crate) fn withhold(&mut self, now_ms: u64, wanted: &BTreeSet<Route>) -> Vec<Refusal> {
        self.next_audit_ms = now_ms + AUDIT_GAP_MS;
        let missing = wanted.iter().filter(|route| self.installed.get(&key(route)) != Some(route));
        let refused = &mut self.refused;
        missing.filter_map(|route| news(refused, route, RouteTrouble::Unrecorded, false)).collect()
    }

    /// Compares the installed routes with the kernel's tables. A table that cannot be listed is
    /// compared at the next call.
    fn verify(&mut self, tables: &dyn Tables, facts: &Facts) {
        self.unverified = false;
        let family = |route: &Route| if route.prefix.addr().is_ipv4() { Family::V4 } else { Family::V6 };
        let places: Vec<(Option<String>, Family)> = {
            let mut places: Vec<_> =
                self.installed.values().map(|route| (route.vrf.clone(), family(route))).collect();
            places.dedup();
            places
        };
        for (vrf, of) in places {
            let Ok(list) = tables.list(vrf.as_deref(), of) else {
                self.unverified = true;
                continue;
            };
            let found: Vec<Route> = list.iter().filter_map(|r| raise(vrf.as_deref(), r, facts)).collect();
            let found: BTreeMap<Key, Route> = found.into_iter().map(|route| (key(&route), route)).collect();
            self.installed.retain(|key, ours| {
                if ours.vrf != vrf || family(ours) != of {
                    return true;
                }
                let Some(theirs) = found.get(key).filter(|theirs| is_part(theirs, ours)) else {
                    return false;
                };
                if theirs.hops.len() != ours.hops.len() {
                    // The kernel has dropped some next hops: record that, so that the route is replaced.
                    ours.hops.clone_from(&theirs.hops);
                }
                true
            });
        }
    }
}

/// A refusal, if it is not `known` for this reason already.
fn news(known: &mut Reasons, route: &Route, cause: RouteTrouble, removing: bool) -> Option<Refusal> {
    let why = (route.clone(), cause.to_string());
    let is_new = known.insert(key(route), why.clone()).as_ref() != Some(&why);
    is_new.then(|| Refusal { route: route.clone(), removing, cause })
}

/// The route in the kernel's form; `None` while none of its interfaces exists.
fn lower(route: &Route, facts: &Facts) -> Option<KernelRoute> {
    let mut lowered = KernelRoute { metric: route.metric, ..KernelRoute::new(route.prefix) };
    if route.hops.is_empty() {
        return Some(KernelRoute { kind: RouteKind::Blackhole, ..lowered });
    }
    for hop in &route.hops {
        match hop.interface.as_ref().map(|name| facts.get(name)) {
            None => lowered = lowered.via(hop.via, None),
            Some(Some(link)) => lowered = lowered.via(hop.via, Some(link.ifindex)),
            Some(None) => {}
        }
    }
    (!lowered.next_hops.is_empty()).then_some(lowered)
}

/// A kernel route in the switch's form, always with egress interfaces; `None` for one that the
/// switch could not have installed.
fn raise(vrf: Option<&str>, route: &KernelRoute, facts: &Facts) -> Option<Route> {
    let discard = route.kind == RouteKind::Blackhole;
    let unicast = route.kind == RouteKind::Unicast && !route.next_hops.is_empty();
    if route.protocol != ROUTE_PROTOCOL || !(discard || unicast) {
        return None;
    }
    let name = |ifindex: Option<u32>| Some(facts.by_index_in(vrf, ifindex?)?.name.clone());
    let hops = route.next_hops.iter().map(|hop| Hop { via: hop.via, interface: name(hop.ifindex) });
    Some(Route {
        vrf: vrf.map(str::to_owned),
        prefix: route.dest,
        metric: route.metric,
        hops: if discard { BTreeSet::new() } else { hops.collect() },
    })
}

/// True if the kernel's route `theirs` is the switch's route `ours`, perhaps without some of its next hops. A next hop
/// of `ours` without an interface matches any egress that the kernel has chosen.
fn is_part(theirs: &Route, ours: &Route) -> bool {
    let same = |their: &Hop, our: &Hop| {
        their.via == our.via && (our.interface.is_none() || our.interface == their.interface)
    };
    key(theirs) == key(ours)
        && theirs.hops.is_empty() == ours.hops.is_empty()
        && theirs.hops.iter().all(|their| ours.hops.iter().any(|our| same(their, our)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_switch::LinkFacts;
    use std::cell::RefCell;

    /// A kernel's table in memory: routes by destination and metric, and routes that it refuses.
    #[derive(Default)]
    struct Fake {
        routes: RefCell<Vec<KernelRoute>>,
        unreachable: RefCell<bool>,
    }

    fn no(errno: i32) -> Result<(), KernelError> {
        Err(KernelError::io("the test", std::io::Error::from_raw_os_error(errno)))
    }

    impl Fake {
        fn at(&self, route: &KernelRoute) -> Option<usize> {
            let same = |r: &KernelRoute| (r.dest, r.metric) == (route.dest, route.metric);
            self.routes.borrow().iter().position(same)
        }
        fn show(&self) -> Vec<String> {
            let via = |r: &KernelRoute| {
                r.next_hops.iter().filter_map(|h| h.via).map(|a| format!(" {a}")).collect::<String>()
            };
            self.routes.borrow().iter().map(|r| format!("{}{} p{}", r.dest, via(r), r.protocol)).collect()
        }
    }

    impl Tables for Fake {
        fn add(&self, _: Option<&str>, route: &KernelRoute) -> Result<(), KernelError> {
            match self.at(route) {
                Some(_) => no(nix::libc::EEXIST),
                None if *self.unreachable.borrow() => no(nix::libc::ENETUNREACH),
                None => {
                    self.routes.borrow_mut().push(route.clone());
                    Ok(())
                }
            }
        }
        fn replace(&self, _: Option<&str>, route: &KernelRoute) -> Result<(), KernelError> {
            match self.at(route) {
                Some(at) => self.routes.borrow_mut()[at] = route.clone(),
                None => self.routes.borrow_mut().push(route.clone()),
            }
            Ok(())
        }
        fn delete(&self, _: Option<&str>, route: &KernelRoute) -> Result<(), KernelError> {
            let matching = self.at(route).filter(|at| self.routes.borrow()[*at].protocol == route.protocol);
            let Some(at) = matching else { return no(nix::libc::ESRCH) };
            self.routes.borrow_mut().remove(at);
            Ok(())
        }
        fn list(&self, _: Option<&str>, family: Family) -> Result<Vec<KernelRoute>, KernelError> {
            let ours = |r: &&KernelRoute| r.dest.addr().is_ipv4() == (family == Family::V4);
            Ok(self.routes.borrow().iter().filter(ours).cloned().collect())
        }
    }

    fn facts() -> Facts {
        let link = |(ifindex, name): (u32, &str)| LinkFacts {
            ifindex,
            name: name.into(),
            admin_up: true,
            ..LinkFacts::default()
        };
        [(1, "eth1"), (2, "eth2")].into_iter().map(link).collect()
    }

    /// `10.9.0.0/16 10.0.0.2 10.0.0.3`.
    fn route(text: &str) -> Route {
        let mut words = text.split(' ');
        let prefix = words.next().and_then(|word| word.parse().ok()).expect("a prefix");
        let hop = |word: &str| Hop { via: word.parse().ok(), interface: None };
        Route { vrf: None, prefix, metric: 1, hops: words.map(hop).collect() }
    }

    fn set(list: &[&str]) -> BTreeSet<Route> {
        list.iter().map(|text| route(text)).collect()
    }

    const ONE: &str = "10.9.0.0/16 10.0.0.2";
    const TWO: &str = "10.9.0.0/16 10.0.0.2 10.0.0.3";

    #[test]
    fn routes_flushed_by_the_kernel_are_installed_again() {
        let (kernel, mut statics, facts) = (Fake::default(), StaticRoutes::default(), facts());
        let wanted = set(&[ONE, "fd00:9::/32 fd00::2"]);
        assert!(statics.sync(0, &kernel, &wanted, &facts).is_empty());
        assert_eq!(kernel.routes.borrow().len(), 2);
        assert!(!statics.differs(1, &wanted));
        // An interface goes down: the kernel sends no event about the route, and refuses to add it
        // meanwhile.
        kernel.routes.borrow_mut().clear();
        *kernel.unreachable.borrow_mut() = true;
        statics.doubt();
        assert!(statics.sync(1, &kernel, &wanted, &facts).is_empty(), "it is not refused for good");
        assert!(statics.differs(2, &wanted));
        *kernel.unreachable.borrow_mut() = false;
        statics.sync(2, &kernel, &wanted, &facts);
        assert_eq!(kernel.routes.borrow().len(), 2);
        // The kernel sends no event: only the audit finds the loss.
        kernel.routes.borrow_mut().clear();
        assert!(!statics.differs(3, &wanted));
        assert!(statics.differs(2 + AUDIT_GAP_MS, &wanted));
        statics.sync(2 + AUDIT_GAP_MS, &kernel, &wanted, &facts);
        assert_eq!(kernel.routes.borrow().len(), 2);
    }

    #[test]
    fn next_hops_of_one_route() {
        let (kernel, mut statics, facts) = (Fake::default(), StaticRoutes::default(), facts());
        for (wanted, want) in [
            (&[TWO][..], &["10.9.0.0/16 10.0.0.2 10.0.0.3 p76"][..]),
            (&[ONE], &["10.9.0.0/16 10.0.0.2 p76"]),
            (&[TWO], &["10.9.0.0/16 10.0.0.2 10.0.0.3 p76"]),
            (&["10.9.0.0/16"], &["10.9.0.0/16 p76"]),
            (&[], &[]),
        ] {
            statics.sync(0, &kernel, &set(wanted), &facts);
            assert_eq!(kernel.show(), want, "{wanted:?}");
        }
        // The kernel has dropped one of two next hops.
        statics.sync(0, &kernel, &set(&[TWO]), &facts);
        kernel.routes.borrow_mut()[0].next_hops.pop();
        statics.doubt();
        statics.sync(0, &kernel, &set(&[TWO]), &facts);
        assert_eq!(kernel.show(), ["10.9.0.0/16 10.0.0.2 10.0.0.3 p76"]);
    }

    #[test]
    fn routes_of_others() {
        let (kernel, mut statics, facts) = (Fake::default(), StaticRoutes::default(), facts());
        let other = |protocol| {
            let via = "10.0.0.7".parse().ok();
            KernelRoute { protocol, metric: 1, ..KernelRoute::new(route(ONE).prefix) }.via(via, Some(2))
        };
        // Routes of another program, and of another instance.
        for protocol in [4, ROUTE_PROTOCOL] {
            kernel.routes.borrow_mut().push(other(protocol));
            let shown = kernel.show();
            let refused = statics.sync(0, &kernel, &set(&[ONE]), &facts);
            assert_eq!(refused.len(), 1, "the refusal is reported");
            assert!(matches!(refused[0].cause, RouteTrouble::InTheWay(_)), "{refused:?}");
            assert!(statics.sync(0, &kernel, &set(&[ONE]), &facts).is_empty(), "and reported once");
            statics.sync(0, &kernel, &BTreeSet::new(), &facts);
            assert_eq!(kernel.show(), shown);
            kernel.routes.borrow_mut().clear();
        }
        // The other route replaced the switch's.
        statics.sync(0, &kernel, &set(&[ONE]), &facts);
        kernel.routes.borrow_mut()[0] = other(4);
        statics.doubt_about(None, &other(4));
        assert_eq!(statics.sync(1, &kernel, &set(&[ONE]), &facts).len(), 1);
        statics.sync(1, &kernel, &BTreeSet::new(), &facts);
        assert_eq!(kernel.show(), ["10.9.0.0/16 10.0.0.7 p4"]);
    }

    #[test]
    fn an_earlier_run_is_known_by_its_record() {
        let (kernel, facts) = (Fake::default(), facts());
        let mut first = StaticRoutes::default();
        first.sync(0, &kernel, &set(&[ONE, "10.8.0.0/16 10.0.0.2"]), &facts);
        let record = first.recorded(&BTreeSet::new());
        // A route of another instance, with the same protocol number.
        StaticRoutes::default().sync(0, &kernel, &set(&["10.7.0.0/16 10.0.0.2"]), &facts);
        let mut next = StaticRoutes::default();
        next.adopt(&kernel, &[None], &record, &set(&[ONE]), &facts);
        next.sync(0, &kernel, &set(&[ONE]), &facts);
        assert_eq!(kernel.show(), ["10.9.0.0/16 10.0.0.2 p76", "10.7.0.0/16 10.0.0.2 p76"]);
        let mut last = StaticRoutes::default();
        last.adopt(&kernel, &[None], &record, &BTreeSet::new(), &facts);
        last.sync(0, &kernel, &BTreeSet::new(), &facts);
        assert_eq!(kernel.show(), ["10.7.0.0/16 10.0.0.2 p76"]);
    }
}
