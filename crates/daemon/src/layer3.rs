//! Layer 3 besides forwarding: tracked objects, static routes, static ARP.
//!
//! Invariant: what can't be done now (a next hop that is not reachable, an interface that is not there) is done when it can.

use crate::core::Core;
use ipnet::IpNet;
use lanyard_cli::view;
use lanyard_config::layer3::{Track, TrackObject, split_subinterface, track_object};
use lanyard_config::{Config, InterfaceName};
use lanyard_netdev::{RouteKind, TABLE_MAIN};
use lanyard_switch::layer3::{self, Route};
use lanyard_switch::services::{self, Service};
use lanyard_types::MacAddr;
use std::collections::BTreeSet;

/// Why a static route is not installed.
fn refusal(route: &Route, reason: &str) -> String {
    let vrf = route.vrf.as_ref().map_or_else(String::new, |vrf| format!(" of VRF {vrf}"));
    format!("the static route to {}{vrf} is not installed: {reason}", route.prefix)
}

impl Core {
    /// What follows any change and can be late: tracked objects, then what goes by them.
    pub(crate) fn follow_layer3(&mut self) {
        self.look_at_tracks();
        let wanted = self.wanted_routes(self.switch.config());
        for (route, reason) in self.sync_routes(&wanted) {
            self.log("ROUTING", 3, "STATIC", &refusal(&route, &reason));
        }
        let (config, facts) = (self.switch.config(), self.switch.facts());
        self.kernel.sync_arps(&layer3::arps(config), facts);
        self.follow_relays();
        self.follow_children();
    }

    /// The kernel routes that a configuration asks for now.
    fn wanted_routes(&self, config: &Config) -> BTreeSet<Route> {
        layer3::routes(config, self.switch.facts(), &|track| self.tracks.is_up(track))
    }
    /// Brings the static routes in the kernel to `wanted`; answers which are refused that were not before, and why.
    pub(crate) fn sync_routes(&mut self, wanted: &BTreeSet<Route>) -> Vec<(Route, String)> {
        if !std::mem::replace(&mut self.routes_adopted, true) {
            let vrfs: Vec<Option<String>> =
                std::iter::once(None).chain(self.kernel.spaces.names().map(|v| Some(v.to_owned()))).collect();
            let record = &self.switch.record().routes;
            self.statics.adopt(&self.kernel, &vrfs, record, wanted, self.switch.facts());
        }
        let now_ms = self.clock.now_ms();
        if !self.statics.differs(now_ms, wanted) {
            return Vec::new();
        }
        self.switch.set_recorded_routes(self.statics.recorded(wanted));
        self.save_record();
        let refused = self.statics.sync(now_ms, &self.kernel, wanted, self.switch.facts());
        self.switch.set_recorded_routes(self.statics.recorded(&BTreeSet::new()));
        self.save_record();
        refused
    }
    /// Installs the static routes of a configuration that is about to be taken.
    ///
    /// # Errors
    /// When the kernel refuses one that is new. The routes are then those of the running configuration. At the start nothing is
    /// refused: the log says so, and the route is tried again.
    pub(crate) fn install_routes(&mut self, next: &Config) -> Result<(), String> {
        if !self.routes_adopted || next.routes == self.switch.config().routes {
            return Ok(());
        }
        let running = self.wanted_routes(self.switch.config());
        let wanted = self.wanted_routes(next);
        let refused = self.sync_routes(&wanted);
        match refused.iter().find(|(route, _)| !running.contains(route)) {
            None => Ok(()),
            Some((route, reason)) => {
                self.sync_routes(&running);
                Err(refusal(route, reason))
            }
        }
    }

    /// Takes in what the tracked objects are now, and says what has changed.
    fn look_at_tracks(&mut self) {
        let objects = self.switch.config().tracks.clone();
        if objects.is_empty() && self.tracks.states().is_empty() {
            return;
        }
        let now_ms = self.clock.now_ms();
        let mut tracks = std::mem::take(&mut self.tracks);
        let changed = tracks.look(now_ms, &objects, &mut |track| self.sees(track));
        self.tracks = tracks;
        for (number, up) in changed {
            let first = self.tracks.states().get(&number).is_none_or(|state| state.changes == 0);
            if let Some(track) = objects.get(&number).filter(|_| !first) {
                let (from, to) = if up { ("Down", "Up") } else { ("Up", "Down") };
                let text = format!("{number} {} {from} -> {to}", track_object(&track.object));
                self.log("TRACK", 6, "STATE", &text);
            }
        }
    }

    /// Is a tracked object up at this moment?
    fn sees(&mut self, track: &Track) -> bool {
        match &track.object {
            TrackObject::LineProtocol(name) => self.line_up(name),
            TrackObject::Route { vrf, prefix } => {
                let key = (vrf.clone(), *prefix);
                if let Some(seen) = self.routes_seen.get(&key) {
                    return *seen;
                }
                let seen = self.has_route(vrf.as_deref(), *prefix);
                self.routes_seen.insert(key, seen);
                seen
            }
        }
    }

    /// An interface's line protocol: administratively up, and a link; a VLAN interface's by its ports, a subinterface's
    /// by its parent.
    pub(crate) fn line_up(&self, name: &InterfaceName) -> bool {
        let config = self.switch.config();
        let shutdown = |name: &InterfaceName| config.interfaces.get(name).is_some_and(|i| i.shutdown);
        let link_up = |name: &str| self.facts().get(name).is_some_and(|link| link.admin_up && link.carrier);
        match name {
            InterfaceName::Vlan(vlan) => self.switch.lines_up().contains(*vlan),
            InterfaceName::Netdev(text) => {
                let is_sub = config
                    .interfaces
                    .get(name)
                    .is_some_and(|interface| matches!(interface.role, lanyard_config::Role::Subinterface(_)));
                let parent = split_subinterface(text).filter(|_| is_sub).map(|(parent, _)| parent);
                !shutdown(name) && link_up(parent.unwrap_or(text))
            }
        }
    }

    /// Has the kernel a route for exactly this prefix, with a next hop that can be used?
    fn has_route(&self, vrf: Option<&str>, prefix: IpNet) -> bool {
        let Ok(netdev) = self.kernel.netdev_of(vrf) else { return false };
        let family = match prefix {
            IpNet::V4(_) => lanyard_netdev::Family::V4,
            IpNet::V6(_) => lanyard_netdev::Family::V6,
        };
        let usable = |route: &lanyard_netdev::Route| {
            route.dest == prefix
                && route.kind == RouteKind::Unicast
                && (route.nexthop_id.is_some() && route.next_hops.is_empty()
                    || route.next_hops.iter().any(|hop| !hop.dead && !hop.link_down))
        };
        netdev.routes(family, TABLE_MAIN).unwrap_or_default().iter().any(usable)
    }

    pub(crate) fn view_vrrp(&self) -> view::Vrrps {
        let mut groups = Vec::new();
        for (name, interface) in &self.switch.config().interfaces {
            let netdev = name.to_string();
            let link = self.facts().get(&netdev);
            for (group, vrrp) in &interface.layer3.vrrp {
                let vrf = interface.layer3.vrf.as_deref();
                let vmac = link.map(|link| services::vmac_name(link.ifindex, *group));
                let state = match () {
                    () if !services::is_active(interface, vrrp) || !self.line_up(name) => "init",
                    () if !self.children.runs(Service::Keepalived, vrf) => "unavailable",
                    () if vmac.is_some_and(|vmac| self.has_addresses(vrf, &vmac)) => "master",
                    () => "backup",
                };
                groups.push(view::VrrpView {
                    interface: netdev.clone(),
                    group: *group,
                    state,
                    address: vrrp.addresses.first().copied(),
                    secondary_addresses: vrrp.addresses.iter().skip(1).copied().collect(),
                    // RFC 3768, 7.3.
                    mac: MacAddr([0, 0, 0x5e, 0, 1, *group]),
                    priority: services::priority(vrrp, &self.tracks),
                    configured_priority: vrrp.priority,
                    preempt: vrrp.preempt,
                    advertise_s: vrrp.advertise_s,
                    tracks_down: vrrp
                        .tracks
                        .keys()
                        .copied()
                        .filter(|track| !self.tracks.is_up(*track))
                        .collect(),
                });
            }
        }
        view::Vrrps { groups }
    }

    /// A virtual router's netdev has its addresses while it is the master.
    fn has_addresses(&self, vrf: Option<&str>, netdev: &str) -> bool {
        let Ok(kernel) = self.kernel.netdev_of(vrf) else { return false };
        let index = kernel.link(netdev).map(|link| link.ifindex);
        let addresses = index.and_then(|index| kernel.addresses(Some(index))).unwrap_or_default();
        addresses.iter().any(|address| address.net.addr().is_ipv4())
    }

    pub(crate) fn view_tracks(&self) -> view::Tracks {
        let (config, now_ms) = (self.switch.config(), self.clock.now_ms());
        let view = |(number, track): (&u16, &Track)| {
            let state = self.tracks.states().get(number);
            let routes = config.routes.iter().filter(|route| route.track == Some(*number));
            let routers = config.interfaces.iter().flat_map(|(name, interface)| {
                let groups =
                    interface.layer3.vrrp.iter().filter(|(_, vrrp)| vrrp.tracks.contains_key(number));
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
                tracked_by: routes
                    .map(|route| format!("Static route {}", route.prefix))
                    .chain(routers)
                    .collect(),
            }
        };
        view::Tracks { tracks: config.tracks.iter().map(view).collect() }
    }
}
