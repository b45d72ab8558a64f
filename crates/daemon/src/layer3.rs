//! Static routes and static ARP entries in the kernel.
//!
//! Read `lanyard_switch::layer3` first, which determines these routes and entries; then [`crate::static_routes`], which
//! reconciles the routes with the kernel's tables. Invariants: a route is in the record before the kernel is asked to
//! add it. An operation that is not possible now (a next hop is not reachable, an interface does not exist) is repeated
//! until it succeeds.

use crate::context::{Context, Module};
use crate::static_routes::{Refusal, RouteTrouble, StaticRoutes};
use lanyard_config::Config;
use lanyard_switch::{Arp, Route, layer3};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// This instance's static routes and ARP entries in the kernel.
#[derive(Debug, Default)]
pub(crate) struct Layer3 {
    routes: StaticRoutes,
    /// True once the routes that an earlier run has left are known.
    adopted: bool,
    arps: BTreeSet<Arp>,
}

/// The kernel's reports about routes and neighbours.
pub(crate) enum Event<'a> {
    /// A route of a namespace was added or removed.
    Route(Option<&'a str>, &'a lanyard_netdev::Route),
    /// Routes may have been removed without an event: an interface went down or lost its last
    /// address.
    Flushed,
    /// A neighbour of a netdev of a namespace was removed or is no longer permanent.
    Neighbour(Option<&'a str>, u32, IpAddr),
}

/// A static route is not in the kernel as configured.
#[derive(Debug, thiserror::Error)]
#[error("the static route to {}{} is not {what}: {cause}", route.prefix, of_vrf(route))]
pub(crate) struct RouteRefused {
    route: Box<Route>,
    /// `installed` or `removed`.
    what: &'static str,
    #[source]
    cause: RouteTrouble,
}

impl RouteRefused {
    fn of(Refusal { route, removing, cause }: Refusal) -> Self {
        Self { route: Box::new(route), what: if removing { "removed" } else { "installed" }, cause }
    }
}

fn of_vrf(route: &Route) -> String {
    route.vrf.as_ref().map_or_else(String::new, |vrf| format!(" of VRF {vrf}"))
}

impl Module for Layer3 {
    type Event<'a> = Event<'a>;
    fn configure(&mut self, ctx: &mut Context) {
        let wanted = wanted(ctx, ctx.switch.config());
        let refused = self.sync_routes(ctx, &wanted);
        say(ctx, &refused);
        let arps = layer3::arps(ctx.switch.config());
        self.sync_arps(ctx, &arps);
    }
    fn handle(&mut self, ctx: &mut Context, event: Event<'_>) -> usize {
        match event {
            Event::Route(vrf, route) => self.routes.doubt_about(vrf, route),
            Event::Flushed => self.routes.doubt(),
            Event::Neighbour(vrf, ifindex, address) => {
                let name = ctx.facts().by_index_in(vrf, ifindex).map(|link| link.name.as_str());
                self.arps.retain(|arp| Some(arp.interface.as_str()) != name || address != arp.address);
            }
        }
        1
    }
    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        self.routes.due_ms()
    }
    fn tick(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        if self.next_ms(ctx).is_some_and(|due_ms| due_ms <= now_ms) {
            self.configure(ctx);
        }
    }
}

/// The kernel routes that a configuration requires, given the present facts and tracked objects.
fn wanted(ctx: &Context, config: &Config) -> BTreeSet<Route> {
    layer3::routes(config, ctx.switch.facts(), &|track| ctx.tracks.is_up(track))
}

fn say(ctx: &mut Context, refused: &[RouteRefused]) {
    for refused in refused {
        ctx.log("ROUTING", 3, "STATIC", &refused.to_string());
    }
}

impl Layer3 {
    /// Installs the static routes of a configuration that is about to be taken.
    ///
    /// # Errors
    /// When the kernel refuses a new route. The routes are then those of the running configuration. At the start the
    /// configuration is not refused: the log names the route, and it is tried again. The same holds for a route that
    /// the kernel does not remove.
    pub(crate) fn install(&mut self, ctx: &mut Context, next: &Config) -> Result<(), RouteRefused> {
        if !self.adopted || next.routes == ctx.switch.config().routes {
            return Ok(());
        }
        let running = wanted(ctx, ctx.switch.config());
        let coming = wanted(ctx, next);
        let mut refused = self.sync_routes(ctx, &coming);
        let is_new = |of: &RouteRefused| coming.contains(&*of.route) && !running.contains(&*of.route);
        let why = refused.iter().position(is_new).map(|at| refused.remove(at));
        say(ctx, &refused);
        let Some(why) = why else { return Ok(()) };
        let left = self.sync_routes(ctx, &running);
        say(ctx, &left);
        Err(why)
    }

    /// Deletes all routes and ARP entries of this instance, including those of an earlier run.
    pub(crate) fn withdraw(&mut self, ctx: &mut Context) {
        self.sync_routes(ctx, &BTreeSet::new());
        self.sync_arps(ctx, &BTreeSet::new());
    }

    /// Makes the static routes in the kernel equal `wanted`. Returns the changes that are refused
    /// and were not before.
    fn sync_routes(&mut self, ctx: &mut Context, wanted: &BTreeSet<Route>) -> Vec<RouteRefused> {
        if !std::mem::replace(&mut self.adopted, true) {
            let vrfs: Vec<Option<String>> =
                std::iter::once(None).chain(ctx.kernel.vrfs().into_iter().map(Some)).collect();
            let record = &ctx.switch.record().routes;
            self.routes.adopt(&ctx.kernel, &vrfs, record, wanted, ctx.switch.facts());
        }
        let now_ms = ctx.clock.now_ms();
        if !self.routes.differs(now_ms, wanted) {
            return Vec::new();
        }
        ctx.switch.set_recorded_routes(self.routes.recorded(wanted));
        let refused = if ctx.save_record() || self.routes.contains(wanted) {
            self.routes.sync(now_ms, &ctx.kernel, wanted, ctx.switch.facts())
        } else {
            self.routes.withhold(now_ms, wanted)
        };
        ctx.switch.set_recorded_routes(self.routes.recorded(&BTreeSet::new()));
        ctx.save_record();
        refused.into_iter().map(RouteRefused::of).collect()
    }

    /// Makes the permanent neighbours equal `wanted`. Those whose netdev does not exist are left
    /// for the next call.
    fn sync_arps(&mut self, ctx: &Context, wanted: &BTreeSet<Arp>) {
        let (kernel, facts) = (&ctx.kernel, ctx.switch.facts());
        if self.arps == *wanted {
            return;
        }
        let place = |name: &str| facts.get(name).filter(|link| link.admin_up);
        let installed = self.arps.clone();
        for arp in installed.difference(wanted) {
            if let Some(link) = place(&arp.interface) {
                let _ = kernel.del_neighbour(link.vrf.as_deref(), link.ifindex, arp.address.into());
            }
            self.arps.remove(arp);
        }
        for arp in wanted.difference(&installed) {
            let set = place(&arp.interface).map(|link| {
                kernel.set_neighbour(link.vrf.as_deref(), link.ifindex, arp.address.into(), arp.mac)
            });
            if set.is_some_and(|result| result.is_ok()) {
                self.arps.insert(arp.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, accept, config};

    const TEXT: &str = "interface eth1\n no switchport\n ip address 10.0.0.1 255.255.255.0\n\
        ip route 10.8.0.0 255.255.0.0 10.0.0.8\nip route 10.9.0.0 255.255.0.0 10.0.0.9\narp 10.0.0.7 0200.0000.0007 arpa";

    fn installed(world: &World) -> Vec<String> {
        let state = world.kernel.state();
        let mut list: Vec<_> = state.routes.values().flatten().map(|route| route.dest.to_string()).collect();
        list.sort();
        list
    }

    #[test]
    fn routes_are_installed_once_their_next_hop_is_reachable() {
        let mut world = World::new();
        world.kernel.add("eth1");
        world.kernel.change("eth1", |link| (link.admin_up, link.carrier) = (true, true));
        world.kernel.state().unreachable.insert([10, 0, 0, 9].into());
        world.ctx.refresh();
        accept(&mut world.ctx, config(TEXT));
        let mut routes = Layer3::default();
        routes.configure(&mut world.ctx);
        assert_eq!(installed(&world), ["10.8.0.0/16"]);
        world.kernel.state().unreachable.clear();
        routes.configure(&mut world.ctx);
        assert_eq!(installed(&world), ["10.8.0.0/16", "10.9.0.0/16"]);
        let dumps = world.kernel.state().dumps;
        routes.configure(&mut world.ctx);
        assert_eq!(world.kernel.state().dumps, dumps, "the kernel is not asked again");

        let gone = world.kernel.state().routes.get_mut(&None).expect("routes").remove(0);
        routes.handle(&mut world.ctx, Event::Route(None, &gone));
        routes.configure(&mut world.ctx);
        assert_eq!(installed(&world).len(), 2, "what the kernel dropped is installed again");

        accept(&mut world.ctx, config(&TEXT.replace("ip route 10.8.0.0 255.255.0.0 10.0.0.8\n", "")));
        routes.configure(&mut world.ctx);
        assert_eq!(installed(&world), ["10.9.0.0/16"]);
        routes.withdraw(&mut world.ctx);
        assert_eq!(installed(&world), Vec::<String>::new());
    }

    #[test]
    fn arp_entries_follow_their_netdev() {
        let mut world = World::new();
        let ifindex = world.kernel.add("eth1");
        world.ctx.refresh();
        accept(&mut world.ctx, config(TEXT));
        let mut routes = Layer3::default();
        routes.configure(&mut world.ctx);
        assert!(world.kernel.state().neighbours.is_empty(), "the netdev is down");
        world.kernel.change("eth1", |link| link.admin_up = true);
        world.ctx.refresh();
        routes.configure(&mut world.ctx);
        let address: IpAddr = [10, 0, 0, 7].into();
        assert!(world.kernel.state().neighbours.remove(&(ifindex, address)).is_some());
        routes.handle(&mut world.ctx, Event::Neighbour(None, ifindex, address));
        routes.configure(&mut world.ctx);
        assert!(world.kernel.state().neighbours.contains_key(&(ifindex, address)), "it was changed by hand");
    }
}
