//! Follows the kernel's routing: messages from its sockets go to the mirror (`switch::routing`), and the mirror's
//! changes go to the plane.
//!
//! Read `lanyard_switch::routing` and `lanyard_netdev::follow` first; docs/routing.md, "Following the kernel".
//!
//! Invariants: a turn does a bounded amount of work, so timers run on time whatever the kernel's tables contain. An
//! adopted plane uses the tables of the earlier run until everything has been listed once. Before a router interface is
//! removed from the plane, no route refers to it any more. This module confirms the plane's routing
//! ([`Plane::confirm_routing`]) only after it has read the kernel's hooks, and only while the plane routes no packet that a
//! hook would see.

use crate::context::{Context, Module};
use crate::follower::{Follow, TURN, Tally};
use crate::kernel::KernelError;
use crate::os::Gathered;
use crate::packet_filter::Watch;
use lanyard_cli::view;
use lanyard_config::Config;
use lanyard_pipeline::state::PlaneState;
use lanyard_plane::{Plane, PlaneError, RifState, RouteChange};
use lanyard_switch::Routers;
use lanyard_switch::forwarding::{self, Forwarders};
use lanyard_switch::routing::{Ask, Offload, Routing};
use lanyard_types::{RifId, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// How often the plane is asked which next hops it has used. The kernel keeps an unconfirmed
/// neighbour for at least a minute.
const USE_GAP_MS: u64 = 5000;
/// The plane routes for this time, in milliseconds, after this module last confirmed its routing; then it leaves packets to
/// the kernel. A daemon that starts again with 100,000 routes needs a few seconds before it follows the kernel's hooks.
const HOOKS_HOLD_MS: u64 = 10_000;
/// The interval at which this module confirms the plane's routing.
const CONFIRM_GAP_MS: u64 = 1000;
/// The least time in milliseconds between two log messages about refused changes: a plane that refuses one may refuse thousands.
const REFUSAL_GAP_MS: u64 = 60_000;

/// The followers of the kernel's routing.
pub(crate) struct Following {
    pub(crate) mirror: Routing,
    follows: BTreeMap<Option<String>, Follow>,
    gathered: Gathered,
    /// True when the plane uses the tables that were written since it was adopted.
    synced: bool,
    /// True if the last turn left work.
    busy: bool,
    next_use_ms: u64,
    next_confirm_ms: u64,
    retry_ms: Option<u64>,
    /// When a message about refused changes may be logged next, and the number of changes that were refused since the last one.
    next_refusal_ms: u64,
    unlogged: u64,
    /// True if following the switch's own namespace has begun or ended since [`Following::own_changed`] was last called.
    own_changed: bool,
    /// The forwarder of each interface's packets when it was last logged.
    forwarders: Forwarders,
    /// The number of changes programmed, accepted or not.
    pub(crate) changes: u64,
}

impl Following {
    /// Follows nothing yet.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            mirror: Routing::default(),
            follows: BTreeMap::new(),
            gathered: Gathered::new()?,
            synced: false,
            busy: false,
            next_use_ms: 0,
            next_confirm_ms: 0,
            retry_ms: None,
            next_refusal_ms: 0,
            unlogged: 0,
            own_changed: false,
            forwarders: Forwarders::new(),
            changes: 0,
        })
    }
    /// The number of a followed VRF.
    pub(crate) fn vrf(&self, name: Option<&str>) -> Option<VrfId> {
        self.follows.get(&name.map(str::to_owned)).map(|follow| follow.id)
    }
    /// The plane's treatment of a route of the kernel; [`Offload::None`] while the plane uses the tables of an earlier run.
    pub(crate) fn route_offload(
        &self,
        vrf: Option<&str>,
        prefix: ipnet::IpNet,
        metric: u32,
        local: bool,
    ) -> view::Offload {
        let id = self.vrf(vrf).filter(|_| self.synced);
        shown(id.map_or(Offload::None, |id| self.mirror.offload(id, prefix, metric, local)))
    }
    /// The plane's treatment of a neighbour of the kernel; [`Offload::None`] as for [`Self::route_offload`].
    pub(crate) fn neighbour_offload(
        &self,
        vrf: Option<&str>,
        ifindex: u32,
        address: IpAddr,
    ) -> view::Offload {
        let id = self.vrf(vrf).filter(|_| self.synced);
        shown(id.map_or(Offload::None, |id| self.mirror.neighbour_offload(id, ifindex, address)))
    }
    /// The counters of following a namespace.
    pub(crate) fn received(&self, name: Option<&str>) -> Tally {
        self.follows.get(&name.map(str::to_owned)).map(|follow| follow.tally).unwrap_or_default()
    }
}

const fn shown(offload: Offload) -> view::Offload {
    match offload {
        Offload::Offloaded => view::Offload::Offloaded,
        Offload::Trapped => view::Offload::Trapped,
        Offload::Failed => view::Offload::Failed,
        Offload::None => view::Offload::None,
    }
}

/// The result of a turn.
#[derive(Debug, Default)]
pub(crate) struct TurnOutcome {
    /// True if something was read or programmed, so there may be more.
    pub(crate) any: bool,
    /// True if the state on which router interfaces depend has changed, so the plane state may change too.
    pub(crate) routers_changed: bool,
    /// True if the sockets may have more to read.
    more: bool,
}

/// The reason why a namespace is not followed.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error("{MAX_VRFS} VRFs are routed already")]
    TooManyVrfs,
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error("event loop: {0}")]
    Watch(#[source] io::Error),
}

/// The number of VRFs besides the default one that the plane can route in.
const MAX_VRFS: u8 = VrfId::MAX.get();

impl Module for Following {
    /// The descriptor is readable. [`Following::turn`] reads a bounded part and returns what the
    /// caller has to do.
    type Event<'a> = &'a mut TurnOutcome;
    fn configure(&mut self, ctx: &mut Context) {
        let config = ctx.switch.config().clone();
        self.follow_tables(ctx, &config);
    }
    fn handle(&mut self, ctx: &mut Context, outcome: &mut TurnOutcome) -> usize {
        *outcome = self.turn(ctx);
        usize::from(outcome.any)
    }
    /// When the next turn is due, after [`Module::tick`].
    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        if self.follows.is_empty() {
            return None;
        }
        if self.busy {
            return Some(0);
        }
        let audit = self.follows.values().filter_map(|follow| follow.next_audit_ms(&self.mirror)).min();
        let filter = self.follows.values().map(|follow| follow.watch.due_ms()).min();
        let all = [
            Some(self.next_use_ms),
            Some(self.next_confirm_ms),
            self.mirror.next_ask(),
            self.retry_ms,
            audit,
            filter,
        ];
        all.into_iter().flatten().min()
    }
    /// Reports used neighbours to the kernel, and retries refused changes.
    fn tick(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        if self.next_use_ms <= now_ms {
            self.next_use_ms = now_ms + USE_GAP_MS;
            let mut used = Vec::new();
            ctx.plane.adjacencies_used(&mut |id, age_s| {
                if u64::from(age_s) * 1000 <= USE_GAP_MS + 1000 {
                    used.push(id);
                }
            });
            let asks: Vec<Ask> = used.into_iter().filter_map(|id| self.mirror.used(id)).collect();
            self.ask(&asks);
        }
        self.retry_ms = self.mirror.retry(now_ms);
    }
}

impl Following {
    /// The descriptor that the event loop waits on.
    pub(crate) fn fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.gathered)
    }
    /// True once after the switch's own namespace has begun to be followed, or ceased to be.
    pub(crate) fn own_changed(&mut self) -> bool {
        std::mem::take(&mut self.own_changed)
    }
    /// The results for the routing suite's routes since the last call.
    pub(crate) fn fpm_answers(&mut self, plane: &dyn Plane) -> Vec<(ipnet::IpNet, Offload)> {
        let settled = self.mirror.fpm_settled();
        let answer = |(vrf, dest)| match self.mirror.fpm_offload(vrf, dest) {
            Offload::Offloaded if plane.is_hidden(vrf, dest) => (dest, Offload::Trapped),
            offload => (dest, offload),
        };
        settled.into_iter().map(answer).collect()
    }

    /// Follows the namespaces in which `config` routes, and no others.
    pub(crate) fn follow_tables(&mut self, ctx: &mut Context, config: &Config) {
        let able = ctx.plane.capabilities().routing;
        let mut wanted: BTreeSet<Option<String>> = BTreeSet::new();
        if able && (config.ip_routing || config.ipv6_routing) {
            wanted.insert(None);
            wanted.extend(config.interfaces.values().filter_map(|i| i.layer3.vrf.clone()).map(Some));
        }
        let own = self.follows_own();
        let gone: Vec<_> = self.follows.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        for name in gone {
            if let Some(follow) = self.follows.remove(&name) {
                let mut changes = Vec::new();
                self.mirror.drop_vrf(follow.id, &mut changes);
                self.route(ctx, &changes);
            }
        }
        for name in wanted {
            if !self.follows.contains_key(&name)
                && let Err(error) = self.follow(ctx, name.clone())
            {
                let name = name.as_deref().unwrap_or("default");
                ctx.log("ROUTING", 3, "FOLLOW", &format!("routing table {name} is not followed: {error}"));
            }
        }
        self.own_changed |= own != self.follows_own();
        let routers = self.routers(able);
        ctx.switch.set_routers(routers);
    }
    fn follow(&mut self, ctx: &Context, name: Option<String>) -> Result<(), FollowError> {
        let follower = ctx.kernel.follow(name.as_deref())?;
        let mut watch = Watch::new(ctx.kernel.watch_filter(name.as_deref())?);
        let taken: BTreeSet<VrfId> = self.follows.values().map(|follow| follow.id).collect();
        let free = || (1..=VrfId::MAX.get()).filter_map(VrfId::new).find(|id| !taken.contains(id));
        let id = if name.is_none() { Some(VrfId::DEFAULT) } else { free() };
        let id = id.ok_or(FollowError::TooManyVrfs)?;
        for fd in follower.fds().into_iter().chain(watch.fds()) {
            self.gathered.add(fd).map_err(FollowError::Watch)?;
        }
        // Read the hooks before the plane routes: no packet may bypass a packet filter that exists already.
        watch.turn(ctx.clock.now_ms());
        self.mirror.overrun(id);
        self.busy = true;
        let mut follow = Follow::new(id, follower, watch);
        // List at once the tables that router interfaces depend on, so that those of an adopted plane stay.
        let now_ms = ctx.clock.now_ms();
        while !follow.knows_routers() && follow.listing(&mut self.mirror, now_ms) {}
        self.follows.insert(name, follow);
        Ok(())
    }
    fn routers(&self, able: bool) -> Routers {
        let mut vrfs = BTreeMap::new();
        for (name, follow) in &self.follows {
            vrfs.insert(name.clone(), follow.router());
        }
        Routers { able, vrfs }
    }

    /// Reads a bounded number of the kernel's messages and programs the plane. The caller then does
    /// what the result says and calls [`Following::end_turn`].
    fn turn(&mut self, ctx: &mut Context) -> TurnOutcome {
        if self.follows.is_empty() {
            self.busy = false;
            return TurnOutcome::default();
        }
        let now_ms = ctx.clock.now_ms();
        let (mut received, mut listed) = (0, false);
        let Following { mirror, follows, gathered, .. } = self;
        for follow in follows.values_mut() {
            received += follow.events(mirror);
            received += usize::from(follow.watch.turn(now_ms));
            listed |= follow.listing(mirror, now_ms);
            // A listing may have been begun on a new socket.
            for fd in follow.follower.fds() {
                let _ = gathered.add(fd);
            }
            let router = follow.router();
            for ipv6 in [false, true] {
                mirror.set_policy(follow.id, ipv6, router.policy[usize::from(ipv6)]);
            }
        }
        let programmed = self.program_plane(ctx);
        let routers = self.routers(ctx.plane.capabilities().routing);
        let routers_changed = routers != *ctx.switch.routers();
        if routers_changed {
            ctx.switch.set_routers(routers);
        }
        TurnOutcome {
            any: received > 0 || listed || programmed,
            routers_changed,
            more: received >= TURN || listed,
        }
    }
    /// Logs which packets the kernel routes from now on, and which the plane routes again.
    pub(crate) fn log_forwarders(&mut self, ctx: &mut Context) {
        let now = forwarding::forwarders(ctx.switch.config(), ctx.switch.routers());
        if now == self.forwarders {
            return;
        }
        for text in forwarding::changes(&self.forwarders, &now) {
            ctx.log("ROUTING", 5, "FORWARDER", &text);
        }
        self.forwarders = now;
    }
    /// Ends a turn: confirms the plane's routing, and makes the plane use the new tables, once these are complete.
    pub(crate) fn end_turn(&mut self, ctx: &mut Context, outcome: &TurnOutcome) {
        self.confirm(ctx);
        self.sync_once(ctx);
        self.busy |= outcome.more;
    }
    /// Confirms the plane's routing, unless the plane still routes packets that a hook of the kernel would see (it has refused the
    /// change that leaves them to the kernel).
    fn confirm(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        if self.follows.is_empty() || now_ms < self.next_confirm_ms {
            return;
        }
        self.next_confirm_ms = now_ms + CONFIRM_GAP_MS;
        if !forwarding::agrees(&self.forwarders, ctx.plane.state().rifs.values()) {
            return;
        }
        let hold_s = HOOKS_HOLD_MS / 1000;
        match ctx.plane.confirm_routing(Duration::from_millis(HOOKS_HOLD_MS)) {
            Ok(0) => {}
            Ok(count) => {
                let text = format!(
                    "the hooks of the kernel were not followed for {hold_s} s, so the kernel routed the packets received at \
                     {count} interfaces; the plane routes them again"
                );
                ctx.log("ROUTING", 4, "WATCHDOG", &text);
            }
            Err(error) => ctx.log("ROUTING", 3, "WATCHDOG", &error.to_string()),
        }
    }
    /// Programs the plane with the mirror's changes. Returns true when there were any.
    fn program_plane(&mut self, ctx: &mut Context) -> bool {
        let mut changes = Vec::new();
        self.busy = self.mirror.poll(TURN, &mut changes);
        self.route(ctx, &changes);
        let now_ms = ctx.clock.now_ms();
        let asks = self.mirror.asks(now_ms, TURN);
        self.ask(&asks);
        !changes.is_empty()
    }
    fn route(&mut self, ctx: &mut Context, changes: &[RouteChange]) {
        if changes.is_empty() {
            return;
        }
        self.changes += changes.len() as u64;
        let now_ms = ctx.clock.now_ms();
        let refused = ctx.plane.route(changes);
        for change in refused.iter().filter_map(|(at, _)| changes.get(*at)) {
            self.mirror.refuse(now_ms, change);
            self.busy = true;
        }
        self.log_refusals(ctx, changes, &refused);
    }
    /// Logs a refused change and the plane's reason, at most once in [`REFUSAL_GAP_MS`]. Of several it names the first, because
    /// the plane may have refused the others for what they refer to. Tables without room are left to [`crate::resources`].
    fn log_refusals(&mut self, ctx: &mut Context, changes: &[RouteChange], refused: &[(usize, PlaneError)]) {
        let Some((at, reason)) = refused.first() else { return };
        if matches!(reason, PlaneError::TableFull { .. } | PlaneError::Growing { .. }) {
            return;
        }
        self.unlogged += refused.len() as u64;
        let (now_ms, Some(change)) = (ctx.clock.now_ms(), changes.get(*at)) else { return };
        if now_ms < self.next_refusal_ms {
            return;
        }
        self.next_refusal_ms = now_ms + REFUSAL_GAP_MS;
        let others = match std::mem::take(&mut self.unlogged) - 1 {
            0 => String::new(),
            1 => " and 1 other change".into(),
            count => format!(" and {count} other changes"),
        };
        let text = format!("the plane refused {}{others}: {reason}", self.describe(change));
        ctx.log("ROUTING", 3, "PLANE", &text);
    }
    /// A change in the words of a log message.
    fn describe(&self, change: &RouteChange) -> String {
        let vrf = |id: &VrfId| match self.follows.iter().find(|(_, follow)| follow.id == *id) {
            Some((name, _)) => name.clone().unwrap_or_else(|| "default".into()),
            // It is no longer followed.
            None => format!("number {id}"),
        };
        let removed = |is: bool| if is { "the removal of " } else { "" };
        match change {
            RouteChange::Adjacency(id, to) => format!("{}adjacency {id}", removed(to.is_none())),
            RouteChange::Group(id, to) => format!("{}next-hop group {id}", removed(to.is_none())),
            RouteChange::Route(id, prefix, to) => {
                format!("{}route {prefix} of VRF {}", removed(to.is_none()), vrf(id))
            }
            RouteChange::VrfGone(id) => format!("the removal of the routes of VRF {}", vrf(id)),
        }
    }
    /// True when the switch's own namespace is followed.
    pub(crate) fn follows_own(&self) -> bool {
        self.follows.contains_key(&None)
    }
    /// Handles routes from a routing suite, which are kept beside the kernel's.
    pub(crate) fn fpm_routes(&mut self, updates: Vec<lanyard_fpm::Update>) {
        self.mirror.fpm(VrfId::DEFAULT, updates);
        self.busy = true;
    }
    /// Makes the kernel resolve or confirm neighbours.
    fn ask(&mut self, asks: &[Ask]) {
        for follow in self.follows.values_mut() {
            let of_this = asks.iter().filter(|ask| ask.vrf == follow.id);
            let list: Vec<(u32, IpAddr)> = of_this.map(|ask| (ask.ifindex, ask.address)).collect();
            if !list.is_empty() {
                follow.follower.use_neighbours(&list);
            }
        }
    }
    /// Makes the plane use the new tables, when everything has been listed and written once.
    pub(crate) fn sync_once(&mut self, ctx: &mut Context) {
        let all = self.follows.values().all(|follow| follow.first_done);
        if self.synced || !all || self.busy {
            return;
        }
        match ctx.plane.route_synced() {
            Ok(()) => self.synced = true,
            Err(error) => ctx.log("ROUTING", 3, "SYNC", &error.to_string()),
        }
    }
    /// True until the plane uses the kernel's present tables.
    pub(crate) fn syncs(&self) -> bool {
        !self.follows.is_empty() && !self.synced
    }

    /// Gives `next` to the plane, and the routes over its router interfaces, in an order in which
    /// no reference dangles.
    ///
    /// # Errors
    /// The plane's reason; nothing has changed then.
    pub(crate) fn apply(&mut self, ctx: &mut Context, next: &PlaneState) -> Result<(), PlaneError> {
        let old = ctx.plane.state().rifs.clone();
        let stays = |id: &RifId, rif: &RifState| {
            next.rifs.get(id).is_some_and(|new| (new.vrf, new.attachment) == (rif.vrf, rif.attachment))
        };
        if old.iter().any(|(id, rif)| !stays(id, rif)) {
            let left = old.into_iter().filter(|(id, rif)| stays(id, rif)).collect();
            self.set_rifs(ctx, &left);
            // The plane is about to lose the other interfaces, so nothing may refer to them.
            let mut changes = Vec::new();
            while self.mirror.poll(TURN, &mut changes) {
                self.route(ctx, &changes);
                changes.clear();
            }
            self.route(ctx, &changes);
        }
        let result = ctx.plane.apply(next);
        let lists = ctx.plane.state().acls.clone();
        ctx.switch.set_acls(&lists);
        let now = ctx.plane.state().rifs.clone();
        self.set_rifs(ctx, &now);
        result
    }
    /// Passes the present router interfaces to the mirror.
    fn set_rifs(&mut self, ctx: &mut Context, rifs: &BTreeMap<RifId, RifState>) {
        let mut changes = Vec::new();
        for follow in self.follows.values() {
            let mut map: BTreeMap<u32, RifId> = BTreeMap::new();
            for (id, rif) in rifs.iter().filter(|(_, rif)| rif.vrf == follow.id) {
                if let Some(link) = ctx.switch.facts().get(&rif.name) {
                    map.insert(link.ifindex, *id);
                }
            }
            for (child, of) in follow.seen.active() {
                if let Some(id) = map.get(&of.parent).copied() {
                    map.insert(child, id);
                }
            }
            self.mirror.set_rifs(follow.id, &map, &mut changes);
        }
        self.route(ctx, &changes);
        self.busy = true;
    }
}

#[cfg(test)]
#[allow(clippy::panic)] // a mistake in a test
#[path = "routing_tests.rs"]
mod tests;
