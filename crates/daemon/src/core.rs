//! The running switch: the modules and their order.
//!
//! Read [`crate::context`] first, which defines a module. This module passes each external event to the modules that it
//! concerns, and calls them at their deadlines. Changes of configuration and state are in [`crate::commit`].
//!
//! Invariant: results of a module for other modules (plane states, updates of the routing suite, answers to it) are
//! passed on within the same call, so that no event finds modules that disagree.

use crate::access_control::{self, AccessControl};
use crate::access_lists::{AccessLists, minute_now};
use crate::ageing::{FdbAgeing, Learned};
use crate::announce;
use crate::archive::Archive;
use crate::audit::Audit;
use crate::children::Children;
use crate::clock::Clock;
use crate::confirm::Confirmation;
use crate::context::{Context, Module};
use crate::discovery::LinkDiscovery;
use crate::err_disable::{self, ErrDisabling};
use crate::erspan::Erspan;
use crate::erspan_destination::ErspanDestinations;
use crate::fpm::{self, Fpm};
use crate::group_socket::GroupSocket;
use crate::guard::Guard;
use crate::kernel::Kernel;
use crate::layer3::{self, Layer3};
use crate::listening_port::{self, ListeningPort};
use crate::log::Log;
use crate::netdevs::{Change, Readiness};
use crate::paths::Paths;
use crate::pending::{ConfigurationLock, Reload};
use crate::port_notes::PortNotes;
use crate::port_security::{self, PortSecurity};
use crate::protocols::Protocols;
use crate::queues::Queues;
use crate::relay::Relaying;
use crate::resources::{self, Resources};
use crate::routing::{Following, TurnOutcome};
use crate::sflow::{Sampled, Sflow};
use crate::snooping::Snooping;
use crate::storm_control::StormControl;
use crate::tacacs::Tacacs;
use crate::time_servers::TimeServers;
use crate::tracking::{self, Tracking};
use crate::users::Users;
use lanyard_access::throttle::Throttle;
use lanyard_cli::sessions::ConfigSessions;
use lanyard_cli::view::EventKind;
use lanyard_config::Config;
use lanyard_netdev::{Event, NeighbourState};
use lanyard_plane::{Plane, PlaneEvent};
use lanyard_switch::Switch;
use lanyard_types::{ErrCause, PortId};
use serde_json::json;
use std::path::PathBuf;
use std::time::SystemTime;

/// The state of the daemon's management thread.
pub(crate) struct Core {
    pub(crate) ctx: Context,
    pub(crate) following: Following,
    pub(crate) fpm: Fpm,
    pub(crate) tracking: Tracking,
    pub(crate) access_lists: AccessLists,
    pub(crate) layer3: Layer3,
    pub(crate) relaying: Relaying,
    pub(crate) children: Children,
    pub(crate) time_servers: TimeServers,
    pub(crate) discovery: LinkDiscovery,
    pub(crate) snooping: Snooping,
    pub(crate) guard: Guard,
    pub(crate) err_disabling: ErrDisabling,
    pub(crate) storm_control: StormControl,
    pub(crate) queues: Queues,
    pub(crate) sflow: Sflow,
    pub(crate) erspan: Erspan,
    pub(crate) erspan_destinations: ErspanDestinations,
    pub(crate) port_security: PortSecurity,
    pub(crate) access_control: AccessControl,
    pub(crate) tacacs: Tacacs,
    pub(crate) ageing: FdbAgeing,
    pub(crate) resources: Resources,
    pub(crate) readiness: Readiness,
    pub(crate) ports: PortNotes,
    pub(crate) confirmation: Confirmation,
    pub(crate) users: Users,
    pub(crate) audit: Audit,
    pub(crate) throttle: Throttle,
    pub(crate) group_socket: GroupSocket,
    pub(crate) telnet: ListeningPort,
    pub(crate) ssh: ListeningPort,
    pub(crate) config_sessions: ConfigSessions,
    pub(crate) archive: Archive,
    pub(crate) lock: Option<ConfigurationLock>,
    pub(crate) reload: Option<Reload>,
    /// The startup-config.
    pub(crate) startup_file: PathBuf,
    /// When the plane was created, which may be before the daemon was started.
    pub(crate) plane_since: SystemTime,
    /// True after `detach`: nothing may be created again.
    pub(crate) detached: bool,
    /// True if the plane state may have changed during a commit because the state that router interfaces depend on has
    /// changed; the commit then settles.
    pub(crate) routers_changed: bool,
    /// True once the plane has the running configuration's settings of the chip. Before, it has those that an earlier daemon has
    /// left.
    pub(crate) chip_configured: bool,
    /// True while the file of the running configuration does not contain the running configuration.
    pub(crate) config_unkept: bool,
}

/// The parts of a core.
pub(crate) struct Parts {
    /// The switch, with the present facts.
    pub(crate) switch: Switch,
    pub(crate) plane: Box<dyn Plane>,
    /// The protocols over the plane.
    pub(crate) protocols: Protocols,
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) clock: Clock,
    /// The paths of files.
    pub(crate) paths: Paths,
    /// The startup-config.
    pub(crate) startup_file: PathBuf,
    pub(crate) log: Log,
    /// When the plane was created, which may be before the daemon was started.
    pub(crate) plane_since: SystemTime,
    /// The follower of the kernel's routing, which follows nothing yet.
    pub(crate) following: Following,
}

impl Core {
    /// A switch with the default configuration, which has not been applied yet.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            switch,
            plane,
            protocols,
            kernel,
            clock,
            paths,
            startup_file,
            log,
            plane_since,
            following,
        } = parts;
        let archive = Archive::new(paths.archive());
        let mut switch = switch;
        switch.set_minute(minute_now());
        let mut ctx = Context::new(switch, plane, protocols, kernel, clock, log, paths);
        Self {
            ageing: FdbAgeing::new(&ctx),
            err_disabling: ErrDisabling::new(&mut ctx),
            port_security: PortSecurity::new(&mut ctx),
            access_control: AccessControl::new(&mut ctx),
            tacacs: Tacacs::default(),
            ctx,
            following,
            fpm: Fpm::default(),
            tracking: Tracking::default(),
            access_lists: AccessLists::default(),
            layer3: Layer3::default(),
            relaying: Relaying::default(),
            children: Children::default(),
            time_servers: TimeServers::default(),
            discovery: LinkDiscovery::default(),
            snooping: Snooping::default(),
            guard: Guard::default(),
            storm_control: StormControl::default(),
            queues: Queues::default(),
            sflow: Sflow::default(),
            erspan: Erspan::default(),
            erspan_destinations: ErspanDestinations::default(),
            resources: Resources::default(),
            readiness: Readiness::default(),
            ports: PortNotes::default(),
            confirmation: Confirmation::default(),
            users: Users::default(),
            audit: Audit::default(),
            throttle: Throttle::default(),
            group_socket: GroupSocket::default(),
            telnet: ListeningPort::new(listening_port::TELNET),
            ssh: ListeningPort::new(listening_port::SSH),
            config_sessions: ConfigSessions::default(),
            archive,
            lock: None,
            reload: None,
            startup_file,
            plane_since,
            detached: false,
            routers_changed: false,
            chip_configured: false,
            config_unkept: false,
        }
    }

    /// Adapts the modules to the present configuration, facts and tracked objects: tracked objects
    /// first, then the modules that depend on them.
    pub(crate) fn configure_services(&mut self) {
        let config = self.ctx.switch.config();
        let (now_ms, paths) = (self.ctx.clock.now_ms(), &self.ctx.paths);
        self.ctx.log.configure(now_ms, &config.hostname, &config.appliance, || paths.log());
        self.tracking.configure(&mut self.ctx);
        self.access_lists.configure(&mut self.ctx);
        self.layer3.configure(&mut self.ctx);
        self.relaying.configure(&mut self.ctx);
        self.children.configure(&mut self.ctx);
        self.time_servers.configure(&mut self.ctx);
        self.discovery.configure(&mut self.ctx);
        self.snooping.configure(&mut self.ctx);
        self.guard.configure(&mut self.ctx);
        self.err_disabling.configure(&mut self.ctx);
        self.storm_control.configure(&mut self.ctx);
        self.queues.configure(&mut self.ctx);
        self.sflow.configure(&mut self.ctx);
        self.erspan.configure(&mut self.ctx);
        self.erspan_destinations.configure(&mut self.ctx);
        self.port_security.configure(&mut self.ctx);
        self.access_control.configure(&mut self.ctx);
        self.tacacs.configure(&mut self.ctx);
    }

    /// Carries out what port security has decided.
    pub(crate) fn secure(&mut self, outcome: port_security::Outcome) {
        if outcome.keep {
            self.keep_running_config();
        }
        if outcome.settle {
            self.settle();
        }
        for (port, cause) in outcome.shut {
            self.err_disable(port, cause);
        }
    }

    /// Carries out what is due in access control.
    pub(crate) fn access_turn(&mut self) {
        // While the module has work at hand, its deadline is the present time, so the clock is read after it.
        if is_due(self.access_control.next_ms(&self.ctx), self.ctx.clock.now_ms()) {
            let outcome = self.access_control.due(&mut self.ctx);
            self.control_access(outcome);
        }
    }

    /// Carries out what the authenticator has decided: ports are locked or opened before its frames are sent.
    pub(crate) fn control_access(&mut self, outcome: access_control::Outcome) {
        if outcome.settle {
            self.settle();
        }
        if !outcome.frames.is_empty() {
            self.ctx.protocols.with(move |engine| {
                outcome.frames.iter().for_each(|(port, frame)| engine.send(*port, frame));
            });
        }
        for port in outcome.shut {
            self.err_disable(port, ErrCause::SecurityViolation);
        }
    }
    /// Handles answers of RADIUS servers; returns their number.
    pub(crate) fn radius_events(&mut self) -> usize {
        let (count, outcome) = self.access_control.receive(&mut self.ctx);
        self.control_access(outcome);
        count
    }

    /// Shuts a port down for a cause.
    pub(crate) fn err_disable(&mut self, port: PortId, cause: ErrCause) {
        self.err_disabling.handle(&mut self.ctx, err_disable::Event::Disable(port, cause));
    }

    /// Handles the plane's events; returns their number.
    pub(crate) fn plane_events(&mut self) -> usize {
        let frames = self.ctx.protocols.turn();
        let mut events = Vec::new();
        self.ctx.plane.poll_events(&mut |event| events.push(event));
        let count = events.len();
        if count == 0 {
            return frames;
        }
        let ctx = &mut self.ctx;
        let fdb = ctx.bus.wants(EventKind::Fdb);
        let mut secure = Vec::new();
        for event in events {
            match &event {
                PlaneEvent::FdbAdded(entry) | PlaneEvent::FdbMoved { entry, .. }
                    if entry.port.is_some_and(|port| port_security::is_secure(ctx, port)) =>
                {
                    secure.push(port_security::Event::Learned(*entry));
                }
                PlaneEvent::Lost(_) => secure.push(port_security::Event::Lost),
                _ => {}
            }
            match event {
                PlaneEvent::FdbAdded(entry) => {
                    self.ageing.handle(ctx, Learned);
                    if fdb {
                        announce::fdb(ctx, "add", &entry, json!({}));
                    }
                }
                PlaneEvent::FdbMoved { entry, from } if fdb => {
                    let from = ctx.port_name(from);
                    announce::fdb(ctx, "change", &entry, json!({"from": *from}));
                }
                PlaneEvent::FdbAged(entry) if fdb => {
                    announce::fdb(ctx, "delete", &entry, json!({"cause": "aged"}));
                }
                PlaneEvent::FdbDeleted(entry) if fdb => {
                    announce::fdb(ctx, "delete", &entry, json!({"cause": "flushed"}));
                }
                PlaneEvent::FdbMoved { .. } | PlaneEvent::FdbAged(_) | PlaneEvent::FdbDeleted(_) => {}
                PlaneEvent::Violation { port, vlan, mac } => {
                    secure.push(port_security::Event::Violation(port, vlan, mac));
                }
                PlaneEvent::Sampled { port, len, pool, drops, head } => {
                    self.sflow.handle(ctx, Sampled { port, len, pool, drops, head: &head });
                }
                // Trapped frames go to the protocol thread.
                PlaneEvent::Trapped { .. } => {}
                PlaneEvent::PortChanged { port, what } => {
                    let name = ctx.port_name(port);
                    ctx.log("PLANE", 5, "PORT", &format!("Interface {name}: {what}"));
                }
                PlaneEvent::Chip { up, what } => {
                    let (severity, mnemonic) = if up { (5, "CHIPUP") } else { (2, "CHIPDOWN") };
                    ctx.log("PLANE", severity, mnemonic, &what);
                    ctx.bus.event(EventKind::Resource, "change", || {
                        announce::object(json!({"chip": if up { "up" } else { "down" }, "text": what}))
                    });
                }
                PlaneEvent::ListMoved { name, diverted } => {
                    let (severity, mnemonic, text) = match diverted {
                        true => (4, "DIVERTED", "does not fit into the chip: the software judges its frames"),
                        false => (5, "OFFLOADED", "is in the chip"),
                    };
                    let text = format!("{name} {text}");
                    ctx.log("RESOURCE", severity, mnemonic, &text);
                    ctx.bus.event(EventKind::Resource, "change", || {
                        announce::object(json!({"list": name, "diverted": diverted}))
                    });
                }
                PlaneEvent::Lost(lost) => {
                    self.ageing.handle(ctx, Learned);
                    ctx.bus.event(EventKind::Fdb, "change", || announce::object(json!({"lost": lost})));
                }
            }
        }
        self.resources.handle(ctx, resources::Changed);
        if !secure.is_empty() {
            let outcome = self.port_security.handle_all(&mut self.ctx, &secure);
            self.secure(outcome);
        }
        count
    }

    /// Handles the kernel's events in the switch's own namespace.
    pub(crate) fn netdev_events(&mut self, events: Vec<Event>) {
        self.netdev_events_in(None, events);
    }
    /// Handles the kernel's events in VRFs; returns their number.
    pub(crate) fn vrf_events(&mut self) -> usize {
        let mut count = 0;
        for (vrf, events) in self.ctx.kernel.vrf_events() {
            count += events.len();
            self.netdev_events_in(Some(&vrf), events);
        }
        count
    }
    fn netdev_events_in(&mut self, vrf: Option<&str>, events: Vec<Event>) {
        let ctx = &mut self.ctx;
        let mut changes = Vec::new();
        let of = || vrf.map(str::to_owned);
        for event in events {
            match event {
                // An event from before a netdev was moved is stale. In a VRF's namespace only
                // netdevs that the switch has moved there belong to it.
                Event::Link(link) if ctx.kernel.home(&link.name) != vrf => {}
                Event::Link(link) => changes.push(Change::Link(ctx.kernel.link_facts(vrf, &link))),
                Event::LinkGone { ifindex, .. } => changes.push(Change::Gone { vrf: of(), ifindex }),
                Event::Overrun => changes.push(Change::All),
                Event::Route(route) => {
                    self.tracking.handle(ctx, tracking::Event::Route(vrf, route.dest));
                    self.layer3.handle(ctx, layer3::Event::Route(vrf, &route));
                    announce::route(ctx, "add", vrf, &route);
                }
                Event::RouteGone(route) => {
                    self.tracking.handle(ctx, tracking::Event::Route(vrf, route.dest));
                    self.layer3.handle(ctx, layer3::Event::Route(vrf, &route));
                    announce::route(ctx, "delete", vrf, &route);
                }
                Event::Neighbour(neighbour) => {
                    if neighbour.state != NeighbourState::Permanent {
                        let (index, address) = (neighbour.ifindex, neighbour.addr);
                        let changed = layer3::Event::Neighbour(vrf, index, address);
                        self.layer3.handle(ctx, changed);
                    }
                    announce::neighbour(ctx, "add", vrf, &neighbour);
                }
                Event::NeighbourGone(neighbour) => {
                    let (index, address) = (neighbour.ifindex, neighbour.addr);
                    let changed = layer3::Event::Neighbour(vrf, index, address);
                    self.layer3.handle(ctx, changed);
                    announce::neighbour(ctx, "delete", vrf, &neighbour);
                }
                Event::Address(_) => {}
                // An interface loses its routes with its last address.
                Event::AddressGone(_) => drop(self.layer3.handle(ctx, layer3::Event::Flushed)),
            }
        }
        if !changes.is_empty() {
            self.tracking.handle(ctx, tracking::Event::Netdevs);
            self.layer3.handle(ctx, layer3::Event::Flushed);
        }
        self.netdevs_changed(changes);
    }

    /// Handles programs that may have ended; returns how many have.
    pub(crate) fn child_events(&mut self) -> usize {
        self.children.handle(&mut self.ctx, ())
    }
    /// Handles messages of DHCP clients and servers; returns their number.
    pub(crate) fn relay_events(&mut self) -> usize {
        self.relaying.handle(&mut self.ctx, ())
    }

    /// Reads a bounded number of the kernel's routing events and programs the plane. Returns true
    /// when there were any.
    pub(crate) fn routing_turn(&mut self) -> bool {
        let mut turn = TurnOutcome::default();
        self.following.handle(&mut self.ctx, &mut turn);
        self.fpm.answer(self.following.fpm_answers(&*self.ctx.plane));
        if turn.routers_changed {
            self.settle();
            self.following.log_forwarders(&mut self.ctx);
        }
        self.following.end_turn(&mut self.ctx, &turn);
        if turn.any {
            self.resources.handle(&mut self.ctx, resources::Changed);
        }
        turn.any
    }
    /// Makes the plane use the tables copied from the kernel once every table has been listed completely.
    pub(crate) fn sync_routing(&mut self) {
        self.following.sync_once(&mut self.ctx);
    }
    /// Follows the VRFs in which `config` routes, and no others.
    pub(crate) fn follow_tables(&mut self, config: &Config) {
        self.following.follow_tables(&mut self.ctx, config);
        if self.following.own_changed() {
            // The new follower of the routing suite's routes has none yet: give it all of them.
            self.fpm.report_again();
            self.hand_over_fpm();
        }
    }

    /// Handles the begin and end of the session with the routing suite, and rejected clients.
    pub(crate) fn fpm_event(&mut self, event: fpm::Event<'_>) {
        self.fpm.handle(&mut self.ctx, event);
    }
    /// Handles bytes from the routing suite.
    ///
    /// # Errors
    /// Why the session has to be ended.
    pub(crate) fn fpm_input(&mut self, bytes: &[u8]) -> Result<(), lanyard_fpm::Framing> {
        let result = self.fpm.input(&mut self.ctx, bytes);
        self.hand_over_fpm();
        result
    }
    /// Passes the suite's changes to the mirror of the kernel's routing, and so to the plane.
    fn hand_over_fpm(&mut self) {
        let updates = self.fpm.updates();
        if self.following.follows_own() {
            self.following.fpm_routes(updates);
        } else {
            self.fpm.not_followed(updates);
        }
    }

    /// Does the work that is due.
    pub(crate) fn tick(&mut self) {
        let now_ms = self.ctx.clock.now_ms();
        if is_due(self.ageing.next_ms(&self.ctx), now_ms) {
            self.ageing.tick(&mut self.ctx);
            self.resources.handle(&mut self.ctx, resources::Changed);
        }
        self.ctx.protocols.turn();
        self.protocol_reports();
        if is_due(self.fpm.next_ms(&self.ctx), now_ms) {
            self.fpm.tick(&mut self.ctx);
            self.hand_over_fpm();
        }
        if is_due(self.following.next_ms(&self.ctx), now_ms) {
            self.following.tick(&mut self.ctx);
            self.routing_turn();
        }
        if is_due(self.tracking.next_ms(&self.ctx), now_ms) || is_due(self.layer3.next_ms(&self.ctx), now_ms)
        {
            self.configure_services();
        }
        self.access_lists.tick(&mut self.ctx);
        if self.access_lists.times_due(&mut self.ctx) {
            self.settle();
        }
        let outcome = self.port_security.handle_all(&mut self.ctx, &[]);
        self.secure(outcome);
        if is_due(self.port_security.next_ms(&self.ctx), now_ms) && self.port_security.age(&mut self.ctx) {
            self.settle();
        }
        self.access_turn();
        self.sflow.tick(&mut self.ctx);
        self.erspan.tick(&mut self.ctx);
        self.erspan_destinations.tick(&mut self.ctx);
        self.queues.tick(&mut self.ctx);
        let mut over = self.storm_control.look(&mut self.ctx);
        over.extend(self.guard.look(&mut self.ctx));
        for (port, cause) in over {
            self.err_disable(port, cause);
        }
        if is_due(self.err_disabling.next_ms(&self.ctx), now_ms) {
            self.err_disabling.tick(&mut self.ctx);
        }
        self.children.tick(&mut self.ctx);
        if is_due(self.time_servers.next_ms(&self.ctx), now_ms) {
            self.time_servers.tick(&mut self.ctx);
        }
        if is_due(self.resources.next_ms(&self.ctx), now_ms) {
            self.resources.tick(&mut self.ctx);
        }
        if is_due(self.ctx.log.next_ms(), now_ms) {
            self.ctx.log_reports();
        }
        self.reload_if_due();
        if let Some(config) = self.confirmation.overdue(now_ms) {
            match self.take(config.clone()) {
                Ok(()) => {
                    let text = "Configuration rolled back: it was not confirmed in time";
                    self.ctx.log("SYS", 5, "CONFIG_R", text);
                }
                Err(error) => {
                    let wait_s = self.confirmation.retry(self.ctx.clock.now_ms(), config);
                    let text = format!("Configuration rollback failed: {error}; next attempt in {wait_s} s");
                    self.ctx.log("SYS", 2, "CONFIG_R", &text);
                }
            }
        }
    }
    /// SIGHUP: reopens the log files, for programs that rotate them.
    pub(crate) fn reopen_logs(&mut self) {
        match self.ctx.log.reopen() {
            Ok(()) => self.ctx.log("SYS", 6, "LOGREOPEN", "SIGHUP: logs reopened"),
            Err(reason) => self.ctx.log("SYS", 3, "LOGREOPEN", &format!("SIGHUP: {reason}")),
        }
    }
    /// When [`Core::tick`] is due next.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let ctx = &self.ctx;
        let deadlines = [
            self.ageing.next_ms(ctx),
            ctx.protocols.next_ms().map(|at_ms| ctx.clock.of_boot(at_ms)),
            self.fpm.next_ms(ctx),
            self.following.next_ms(ctx),
            self.tracking.next_ms(ctx),
            self.access_lists.next_ms(ctx),
            self.layer3.next_ms(ctx),
            self.err_disabling.next_ms(ctx),
            self.storm_control.next_ms(ctx),
            self.queues.next_ms(ctx),
            self.sflow.next_ms(ctx),
            self.erspan.next_ms(ctx),
            self.erspan_destinations.next_ms(ctx),
            self.guard.next_ms(ctx),
            self.port_security.next_ms(ctx),
            self.access_control.next_ms(ctx),
            self.children.next_ms(ctx),
            self.time_servers.next_ms(ctx),
            self.resources.next_ms(ctx),
            self.confirmation.next_ms(),
            self.reload_at_ms(),
            ctx.log.next_ms(),
        ];
        deadlines.into_iter().flatten().min()
    }
}

/// True if there is a deadline and its time has come.
fn is_due(at_ms: Option<u64>, now_ms: u64) -> bool {
    at_ms.is_some_and(|at_ms| at_ms <= now_ms)
}
