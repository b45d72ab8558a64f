//! Tracked objects (`track N`): the state of each, and log messages about changes.
//!
//! Read `lanyard_switch::track` first, which handles the delays. Invariant: the kernel is asked about a route
//! once, and again only when an event says that the answer may have changed.

use crate::context::{Context, Module};
use ipnet::IpNet;
use lanyard_cli::view;
use lanyard_config::InterfaceName;
use lanyard_config::layer3::{Track, TrackObject, track_object};
use lanyard_config::names::split_subinterface;
use lanyard_netdev::{RouteKind, TABLE_MAIN};
use lanyard_types::Family;
use std::collections::BTreeMap;

/// The kernel's answers about tracked routes. The states of the objects are in [`Context::tracks`].
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    routes: BTreeMap<(Option<String>, IpNet), bool>,
}

/// Events that may change the state of an object.
pub(crate) enum Event<'a> {
    /// A route to this prefix was added or removed in a namespace.
    Route(Option<&'a str>, IpNet),
    /// Netdevs have changed: a route may have lost its interface without an event about the route.
    Netdevs,
}

impl Module for Tracking {
    type Event<'a> = Event<'a>;
    fn configure(&mut self, ctx: &mut Context) {
        let objects = ctx.switch.config().tracks.clone();
        if objects.is_empty() && ctx.tracks.states().is_empty() {
            return;
        }
        let mut tracks = std::mem::take(&mut ctx.tracks);
        let now_ms = ctx.clock.now_ms();
        let changed = tracks.look(now_ms, &objects, &mut |track| self.is_up(ctx, track));
        ctx.tracks = tracks;
        for (number, up) in changed {
            let first = ctx.tracks.states().get(&number).is_none_or(|state| state.changes == 0);
            if let Some(track) = objects.get(&number).filter(|_| !first) {
                let (from, to) = if up { ("Down", "Up") } else { ("Up", "Down") };
                let text = format!("{number} {} {from} -> {to}", track_object(&track.object));
                ctx.log("TRACK", 6, "STATE", &text);
            }
        }
    }
    fn handle(&mut self, _ctx: &mut Context, event: Event<'_>) -> usize {
        match event {
            // Usually nothing is tracked, while there are hundreds of thousands of events.
            _ if self.routes.is_empty() => {}
            Event::Route(vrf, prefix) => drop(self.routes.remove(&(vrf.map(str::to_owned), prefix))),
            Event::Netdevs => self.routes.clear(),
        }
        1
    }
    fn next_ms(&self, ctx: &Context) -> Option<u64> {
        ctx.tracks.next_ms()
    }
}

impl Tracking {
    /// True if a tracked object is up at this moment.
    fn is_up(&mut self, ctx: &Context, track: &Track) -> bool {
        match &track.object {
            TrackObject::LineProtocol(name) => line_up(ctx, name),
            TrackObject::Route { vrf, prefix } => *self
                .routes
                .entry((vrf.clone(), *prefix))
                .or_insert_with(|| has_route(ctx, vrf.as_deref(), *prefix)),
        }
    }
}

/// True if an interface's line protocol is up: not shut down, and with a link. The line protocol of a VLAN
/// interface depends on its ports, that of a subinterface on its parent.
pub(crate) fn line_up(ctx: &Context, name: &InterfaceName) -> bool {
    let config = ctx.switch.config();
    let shutdown = |name: &InterfaceName| config.interfaces.get(name).is_some_and(|i| i.shutdown);
    let link_up = |name: &str| ctx.facts().get(name).is_some_and(|link| link.admin_up && link.carrier);
    match name {
        InterfaceName::Vlan(vlan) => ctx.switch.lines_up().contains(*vlan),
        InterfaceName::Netdev(text) => {
            let is_sub = config
                .interfaces
                .get(name)
                .is_some_and(|interface| matches!(interface.role, lanyard_config::Role::Subinterface(_)));
            let parent = split_subinterface(text).filter(|_| is_sub).map(|(parent, _)| parent);
            !shutdown(name) && link_up(parent.as_deref().unwrap_or(text))
        }
    }
}

/// True if the kernel has a route to exactly this prefix, with a usable next hop.
fn has_route(ctx: &Context, vrf: Option<&str>, prefix: IpNet) -> bool {
    let family = Family::of(prefix.addr());
    let usable = |route: &lanyard_netdev::Route| {
        route.dest == prefix
            && route.kind == RouteKind::Unicast
            && (route.nexthop_id.is_some() && route.next_hops.is_empty()
                || route.next_hops.iter().any(|hop| !hop.dead && !hop.link_down))
    };
    ctx.kernel.routes(vrf, family, TABLE_MAIN).unwrap_or_default().iter().any(usable)
}

/// `show track`.
pub(crate) fn view(ctx: &Context) -> view::Tracks {
    let (config, now_ms) = (ctx.switch.config(), ctx.clock.now_ms());
    let view = |(number, track): (&u16, &Track)| {
        let state = ctx.tracks.states().get(number);
        let routes = config.routes.iter().filter(|route| route.track == Some(*number));
        let routers = config.interfaces.iter().flat_map(|(name, interface)| {
            let groups = interface.layer3.vrrp.iter().filter(|(_, vrrp)| vrrp.tracks.contains_key(number));
            groups.map(move |(group, _)| format!("VRRP {name} {group}"))
        });
        view::TrackView {
            track: *number,
            object: track_object(&track.object),
            up: state.is_some_and(|state| state.up),
            pending_s: state
                .and_then(|state| state.due_ms)
                .map(|due_ms| due_ms.saturating_sub(now_ms).div_ceil(1000)),
            changes: state.map_or(0, |state| state.changes),
            last_change_s: state.map_or(0, |state| now_ms.saturating_sub(state.since_ms) / 1000),
            delay_up_s: track.up_s,
            delay_down_s: track.down_s,
            tracked_by: routes.map(|route| format!("Static route {}", route.prefix)).chain(routers).collect(),
        }
    };
    view::Tracks { tracks: config.tracks.iter().map(view).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, accept, config, messages};

    #[test]
    fn objects_follow_links_and_routes() {
        let mut world = World::new();
        world.kernel.add("eth1");
        world.kernel.change("eth1", |link| (link.admin_up, link.carrier) = (true, true));
        world.ctx.refresh();
        let text = "interface eth1\n no switchport\ntrack 1 interface eth1 line-protocol\n\
            track 2 ip route 10.9.0.0 255.255.0.0 reachability";
        accept(&mut world.ctx, config(text));
        let mut tracking = Tracking::default();
        let is_up = |world: &World| (world.ctx.tracks.is_up(1), world.ctx.tracks.is_up(2));
        tracking.configure(&mut world.ctx);
        assert_eq!(is_up(&world), (true, false));
        assert_eq!(messages(&world.ctx), Vec::<String>::new(), "a first state is no change");
        let dumps = world.kernel.state().dumps;
        tracking.configure(&mut world.ctx);
        assert_eq!(world.kernel.state().dumps, dumps, "the answer is kept");

        let prefix: IpNet = "10.9.0.0/16".parse().expect("a prefix");
        let route = lanyard_netdev::Route::new(prefix).via(None, Some(1));
        world.kernel.state().routes.entry(None).or_default().push(route);
        tracking.handle(&mut world.ctx, Event::Route(None, prefix));
        tracking.configure(&mut world.ctx);
        assert_eq!(is_up(&world), (true, true));
        world.kernel.change("eth1", |link| link.carrier = false);
        world.ctx.refresh();
        world.kernel.state().routes.clear();
        tracking.handle(&mut world.ctx, Event::Netdevs);
        tracking.configure(&mut world.ctx);
        assert_eq!(is_up(&world), (false, false));
        assert_eq!(messages(&world.ctx).len(), 3, "{:?}", messages(&world.ctx));
        assert_eq!(view(&world.ctx).tracks.iter().map(|track| track.changes).collect::<Vec<_>>(), [1, 2]);
    }
}
