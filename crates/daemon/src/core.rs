//! The running switch: the plane, the kernel and the configuration kept in step.
//!
//! Read `lanyard_switch` first: what is to be done is decided there. Here it is done, in this order: netdevs,
//! plane, stale addresses, netdevs let go.
//!
//! Invariant: [`Core::take`] leaves the switch at the new configuration, or, when any step fails, where it was.

use crate::bus::Bus;
use crate::children::Children;
use crate::clock::Clock;
use crate::files;
use crate::fpm::Fpm;
use crate::kernel::Kernel;
use crate::log::Log;
use crate::paths::Paths;
use crate::relay::Relaying;
use crate::routing::Following;
use crate::spanning::snapshot_path;
use crate::static_routes::StaticRoutes;
use crate::users::Users;
use lanyard_cli::sessions::ConfigSessions;
use lanyard_config::{Config, InterfaceName};
use lanyard_pipeline::state::{PlaneState, PortKind};
use lanyard_plane::Plane;
use lanyard_switch::compile::{host_end, made_interfaces, pipeline_end, pipeline_end_of, subinterface};
use lanyard_switch::links::{self, Netdevs};
use lanyard_switch::track::Tracks;
use lanyard_switch::{Action, Ageing, Facts, LinkFacts, Plan, Record, Switch, flush};
use lanyard_types::{MAX_PORTS, PortId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// Everything the daemon's one thread works on.
pub struct Core {
    pub(crate) switch: Switch,
    pub(crate) plane: Box<dyn Plane>,
    pub(crate) kernel: Kernel,
    pub(crate) log: Log,
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) users: Users,
    pub(crate) paths: Paths,
    pub(crate) startup_file: PathBuf,
    pub(crate) config_sessions: ConfigSessions,
    pub(crate) rollback: Option<Rollback>,
    /// What the session that is being served should be told besides its command's output.
    pub(crate) notices: Vec<String>,
    /// Ports the plane refused, and why.
    pub(crate) faults: BTreeMap<String, String>,
    /// Netdevs that could not be made ready when they came, and how often that was tried: they may have been seen before all
    /// of them was there.
    unready: BTreeMap<String, u8>,
    pub(crate) ageing: Ageing,
    /// Interface names by port number.
    pub(crate) names: Vec<Option<Arc<str>>>,
    /// Netdev counters at the last `clear counters`.
    pub(crate) cleared: BTreeMap<String, lanyard_netdev::LinkStats>,
    pub(crate) resources: crate::events::Watermarks,
    pub(crate) fpm: Fpm,
    pub(crate) plane_since: SystemTime,
    /// Programs that work for the switch.
    pub(crate) children: Children,
    /// The DHCP relays.
    pub(crate) relaying: Relaying,
    /// Tracked objects.
    pub(crate) tracks: Tracks,
    /// The static routes in the kernel.
    pub(crate) statics: StaticRoutes,
    /// True once the static routes that an earlier run has left are known.
    pub(crate) routes_adopted: bool,
    /// Which of the prefixes that are tracked the kernel has a usable route for, as far as asked.
    pub(crate) routes_seen: BTreeMap<(Option<String>, ipnet::IpNet), bool>,
    saved: Record,
    /// The generation of spanning tree that is written down.
    pub(crate) spanning_saved: Option<u64>,
    /// Whether the plane has what spanning tree has decided, and when its watchdog expires.
    pub(crate) loop_safety: crate::loop_safety::LoopSafety,
    /// True once everything has been taken down: nothing is to be put up again.
    detached: bool,
    /// The kernel's routing.
    pub(crate) following: Following,
}

/// So often it is tried to make a netdev ready.
const READY_TRIES: u8 = 5;

/// A configuration to go back to.
pub(crate) struct Rollback {
    pub(crate) config: Config,
    pub(crate) at_ms: u64,
}

/// What a core is made of.
pub struct Parts {
    /// The switch, with the facts as they are now.
    pub switch: Switch,
    /// The plane.
    pub plane: Box<dyn Plane>,
    /// The kernel.
    pub kernel: Kernel,
    /// Where files go.
    pub paths: Paths,
    /// The startup-config.
    pub startup_file: PathBuf,
    /// The log.
    pub log: Log,
    /// When the plane was made, which may be before the daemon was.
    pub plane_since: SystemTime,
    /// What follows the kernel's routing; nothing yet.
    pub(crate) following: Following,
}

impl Core {
    /// A switch with the default configuration, nothing applied yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let clock = Clock::start();
        let Parts { switch, plane, kernel, paths, startup_file, log, plane_since, following } = parts;
        let saved = switch.record().clone();
        Self {
            ageing: Ageing::new(clock.now_ms(), switch.config().fdb.ageing_s),
            switch,
            plane,
            kernel,
            log,
            bus: Bus::default(),
            clock,
            users: Users::default(),
            paths,
            startup_file,
            config_sessions: ConfigSessions::default(),
            rollback: None,
            notices: Vec::new(),
            faults: BTreeMap::new(),
            unready: BTreeMap::new(),
            names: vec![None; MAX_PORTS],
            cleared: BTreeMap::new(),
            resources: Default::default(),
            fpm: Fpm::default(),
            plane_since,
            children: Children::default(),
            relaying: Relaying::default(),
            tracks: Tracks::default(),
            statics: StaticRoutes::default(),
            routes_adopted: false,
            routes_seen: BTreeMap::new(),
            saved,
            spanning_saved: None,
            loop_safety: Default::default(),
            detached: false,
            following,
        }
    }

    /// Makes `next` the running configuration, everywhere or nowhere.
    ///
    /// # Errors
    /// Why not: one line that names what was wrong.
    pub fn take(&mut self, next: Config) -> Result<(), String> {
        if self.detached {
            return Err("the switch is being taken down".into());
        }
        let listening = self.fpm.prepare(next.fpm.as_ref())?;
        self.learn_hosts(&next);
        let plan = self.switch.plan(self.clock.boot_ms(), next)?;
        self.write_ahead(&plan.actions.record);
        let found = self.plane.state().clone();
        self.close(links::taken_down(&plan.actions.before));
        if let Err(reason) = links::transact(&mut self.kernel, &plan.actions.before) {
            self.reopen(&found);
            self.refresh();
            self.save_record();
            return Err(reason);
        }
        if !plan.actions.before.is_empty() {
            self.refresh();
        }
        self.follow_tables(&plan.config);
        let state = self.switch.compile(&plan);
        let applied = self.apply(&state).map_err(|error| error.to_string());
        if let Err(reason) = applied.and_then(|()| self.install_routes(&plan.config)) {
            self.unwind(&plan.actions.before);
            self.follow_tables(&self.switch.config().clone());
            self.reopen(&found);
            return Err(reason);
        }
        self.finish(plan, &found, &state);
        self.fpm.adopt(self.clock.now_ms(), listening);
        Ok(())
    }

    /// Disables these netdevs' ports in the plane, before the netdevs go down: a frame that is sent to a netdev that is
    /// down would count as sent, and be lost.
    pub(crate) fn close<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let ports: Vec<PortId> = names.filter_map(|name| self.switch.ports().get(name)).collect();
        let mut state = self.plane.state().clone();
        for port in &ports {
            if let Some(port) = state.ports.get_mut(port) {
                port.enabled = false;
            }
        }
        if state != *self.plane.state()
            && let Err(reason) = self.apply(&state)
        {
            // What comes next is refused for the same reason, or makes it good.
            self.log("PLANE", 4, "APPLY", &format!("closing ports that go down: {reason}"));
        }
    }

    /// Undoes [`Core::close`] after a refusal.
    fn reopen(&mut self, found: &PlaneState) {
        if let Err(reason) = self.apply(found) {
            self.log("PLANE", 2, "APPLY", &format!("the plane is not as configured: {reason}"));
        }
    }

    /// Undoes `done` after the plane refused.
    fn unwind(&mut self, done: &[Action]) {
        let undo: Vec<Action> = done.iter().rev().cloned().map(Action::inverse).collect();
        for action in &undo {
            for error in self.kernel.act(std::slice::from_ref(action)).into_iter().filter_map(Result::err) {
                self.log("PLANE", 3, "UNWIND", &format!("undoing a refused change: {error}"));
            }
        }
        if !undo.is_empty() {
            self.refresh();
        }
        self.save_record();
    }

    fn finish(&mut self, plan: Plan, old: &PlaneState, state: &PlaneState) {
        let after = plan.actions.after.clone();
        self.notices.extend(plan.notices.iter().cloned());
        self.switch.accept(plan);
        self.faults.retain(|name, _| state.ports.values().any(|port| port.name == *name));
        self.flush(old, state);
        self.rename_ports();
        for result in self.run(&after) {
            if let Err(error) = result {
                self.log("LINK", 4, "RELEASE", &error);
            }
        }
        if !after.is_empty() {
            self.refresh();
        }
        self.tell_changes(old, state);
        self.tell_forwarders();
        self.save_record();
        self.ageing.set(self.clock.now_ms(), self.switch.config().fdb.ageing_s);
        self.follow_up();
        self.spanning();
        if self.switch.spanning().is_some() || !self.plane.state().stp.is_empty() {
            // New ports learn of their links; ports that the watchdog has blocked are opened when spanning tree is off.
            self.settle();
        }
    }

    fn run(&mut self, actions: &[Action]) -> Vec<Result<(), String>> {
        actions.iter().flat_map(|action| self.kernel.act(std::slice::from_ref(action))).collect()
    }

    /// Brings the plane to the state that configuration and facts now mean. For changes nobody can be refused:
    /// a port that the plane won't take is left out, with its reason.
    pub fn settle(&mut self) {
        self.spanning_links();
        let todo = self.spanning_todo();
        let next = self.switch.state();
        if next != *self.plane.state() {
            let old = self.plane.state().clone();
            match self.apply(&next) {
                Ok(()) => self.faults.clear(),
                Err(_) => self.apply_what_goes(&old, &next),
            }
            let now = self.plane.state().clone();
            self.flush(&old, &now);
            self.rename_ports();
            self.tell_changes(&old, &now);
        }
        self.spanning_rest(todo);
        self.spanning();
        self.follow_up();
    }

    /// Everything but newly attached ports first, then those one by one.
    fn apply_what_goes(&mut self, old: &PlaneState, next: &PlaneState) {
        let mut state = next.clone();
        let mut risky = Vec::new();
        for (port, wanted) in &mut state.ports {
            let before = old.ports.get(port);
            if wanted.ifindex != 0 && before.is_none_or(|before| before.ifindex != wanted.ifindex) {
                risky.push((*port, wanted.clone()));
                (wanted.ifindex, wanted.enabled) = (0, false);
            }
        }
        if let Err(reason) = self.apply(&state) {
            self.log("PLANE", 2, "APPLY", &format!("the plane is not as configured: {reason}"));
            return;
        }
        for (port, wanted) in risky {
            let without = state.clone();
            let name = wanted.name.clone();
            state.ports.insert(port, wanted);
            match self.apply(&state) {
                Ok(()) => drop(self.faults.remove(&name)),
                Err(reason) => {
                    state = without;
                    let reason = reason.to_string();
                    if self.faults.insert(name.clone(), reason.clone()).as_ref() != Some(&reason) {
                        self.log("PLANE", 3, "PORT", &format!("Interface {name} does not forward: {reason}"));
                    }
                }
            }
        }
    }

    /// What follows any change and can be late: VLAN interfaces' carriers, kernel routes.
    fn follow_up(&mut self) {
        let carriers = self.switch.carriers();
        if !carriers.is_empty() {
            for error in self.kernel.act(&carriers).into_iter().filter_map(Result::err) {
                self.log("LINK", 4, "CARRIER", &error);
            }
            self.refresh();
        }
        self.follow_layer3();
    }

    /// True while a port is set up and its link has not come.
    #[must_use]
    pub fn awaits_links(&self) -> bool {
        let ports = lanyard_switch::compile::ports(self.switch.config());
        let mut links = ports.filter_map(|name| self.facts().usable(name));
        links.any(|link| link.admin_up && !link.carrier)
    }

    /// Takes in what the kernel says has changed, and settles once.
    pub fn netdevs_changed(&mut self, changes: Vec<Change>) {
        if self.detached {
            return;
        }
        let mut came = BTreeSet::new();
        let mut gone = false;
        if !changes.is_empty() {
            // The kernel may have flushed routes with an interface, without an announcement.
            self.statics.doubt();
        }
        for change in changes {
            match change {
                Change::Link(link) => {
                    let known = self.switch.facts().by_index_in(link.vrf.as_deref(), link.ifindex);
                    let known = known.filter(|known| known.name == link.name);
                    let comes = |known: &LinkFacts| {
                        link.admin_up && !known.admin_up || link.master.is_none() && known.master.is_some()
                    };
                    let again = self.unready.get(&link.name).is_some_and(|tries| *tries < READY_TRIES);
                    if again || known.is_none_or(comes) {
                        came.insert(link.name.clone());
                    }
                    self.switch.facts_mut().set(link);
                }
                Change::Gone { vrf, ifindex } => {
                    gone = true;
                    self.switch.facts_mut().remove_in(vrf.as_deref(), ifindex);
                }
                Change::All => {
                    gone = true;
                    self.refresh();
                    came.extend(self.configured().map(str::to_owned));
                }
            }
        }
        for name in came {
            self.welcome(&name);
        }
        if gone && self.pair_missing() {
            // A VLAN interface was deleted by hand: taking the configuration again makes it anew.
            if let Err(reason) = self.take(self.switch.config().clone()) {
                self.log("LINK", 3, "VLANIF", &reason);
            }
        }
        self.settle();
    }

    fn pair_missing(&self) -> bool {
        let facts = self.switch.facts();
        let missing = |name: &str| facts.get(name).is_none() || facts.get(&pipeline_end_of(name)).is_none();
        made_interfaces(self.switch.config()).any(|(name, _)| missing(&name.to_string()))
    }

    /// Netdevs the configuration names.
    fn configured(&self) -> impl Iterator<Item = &str> {
        self.switch.config().interfaces.keys().filter_map(|name| match name {
            InterfaceName::Netdev(name) => Some(name.as_str()),
            InterfaceName::Vlan(_) => None,
        })
    }

    /// A netdev came, or came up: what the configuration says about it is done.
    fn welcome(&mut self, name: &str) {
        self.kernel.learn_hosts(std::iter::once(name), self.switch.facts_mut());
        let (actions, record) = self.switch.welcome(name);
        if actions.is_empty() {
            return;
        }
        self.write_ahead(&record);
        let errors: Vec<_> = self.run(&actions).into_iter().filter_map(Result::err).collect();
        errors.iter().for_each(|error| self.log("LINK", 4, "PREPARE", error));
        match errors.is_empty() {
            true => _ = self.unready.remove(name),
            false => *self.unready.entry(name.to_owned()).or_default() += 1,
        }
        self.switch.set_record(record);
        self.save_record();
        self.refresh();
    }

    /// Reads the facts anew.
    pub(crate) fn refresh(&mut self) {
        match self.kernel.facts() {
            Ok(facts) => *self.switch.facts_mut() = facts,
            Err(reason) => self.log("LINK", 3, "NETLINK", &reason),
        }
    }

    fn learn_hosts(&mut self, next: &Config) {
        let names = next.interfaces.keys().map(ToString::to_string).collect::<Vec<_>>();
        let pipeline = made_interfaces(next).map(|(name, _)| pipeline_end_of(&name.to_string()));
        let names: Vec<String> = names.into_iter().chain(pipeline).collect();
        let made = self.switch.record().namespaces.clone();
        self.switch.facts_mut().shared_knobs = crate::instance::shared_knobs(&self.paths);
        let vrfs = next.vrfs.keys().chain(&made).map(String::as_str);
        self.kernel.learn_namespaces(vrfs, self.switch.facts_mut());
        self.kernel.learn_hosts(names.iter().map(String::as_str), self.switch.facts_mut());
    }

    fn flush(&mut self, old: &PlaneState, next: &PlaneState) {
        for filter in flush::flushes(old, next) {
            self.plane.fdb_flush(&filter);
        }
    }

    fn rename_ports(&mut self) {
        self.names.fill(None);
        for (port, state) in &self.plane.state().ports {
            self.names[port.index()] = Some(match state.kind {
                PortKind::Netdev | PortKind::Routed => state.name.as_str().into(),
                PortKind::Subinterface { .. } => subinterface(&state.name).into(),
                PortKind::Svi(vlan) => host_end(vlan).into(),
            });
        }
    }
    /// The interface a port is, for people.
    #[must_use]
    pub fn port_name(&self, port: PortId) -> Arc<str> {
        self.names[port.index()].clone().unwrap_or_else(|| format!("port{port}").into())
    }
    /// The port an interface is.
    #[must_use]
    pub fn port_of(&self, name: &InterfaceName) -> Option<PortId> {
        let port = match name {
            InterfaceName::Netdev(name) => self.switch.ports().get(name),
            InterfaceName::Vlan(vlan) => self.switch.ports().get(&pipeline_end(*vlan)),
        };
        port.filter(|port| self.plane.state().ports.contains_key(port))
    }
    /// The facts.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        self.switch.facts()
    }

    /// Adds a message to the log.
    pub fn log(&mut self, facility: &str, severity: u8, mnemonic: &str, text: &str) {
        let line = self.log.add(facility, severity, mnemonic, text);
        self.bus.log(&line);
    }

    /// Deadlines that have passed: ageing, and a configuration nobody confirmed.
    pub fn tick(&mut self) {
        let now_ms = self.clock.now_ms();
        if self.ageing.next_ms().is_some_and(|next_ms| next_ms <= now_ms) {
            let sweep = self.plane.fdb_sweep(self.ageing.ageing_s());
            let done_ms = self.clock.now_ms();
            self.ageing.swept(done_ms, done_ms - now_ms, &sweep);
            self.watch_resources(done_ms);
        }
        self.spanning_tick();
        self.fpm_tick();
        self.routing_tick();
        let due = [self.tracks.next_ms(), self.statics.due_ms()];
        if due.into_iter().flatten().any(|due_ms| due_ms <= now_ms) {
            self.follow_layer3();
        }
        self.children_tick();
        if let Some(rollback) = self.rollback.take_if(|rollback| rollback.at_ms <= now_ms) {
            match self.take(rollback.config) {
                Ok(()) => {
                    self.log("SYS", 5, "CONFIG_R", "Configuration rolled back: it was not confirmed in time")
                }
                Err(reason) => {
                    self.log("SYS", 2, "CONFIG_R", &format!("Configuration rollback failed: {reason}"))
                }
            }
        }
    }
    /// When [`Core::tick`] has something to do next.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        let rollback = self.rollback.as_ref().map(|rollback| rollback.at_ms);
        self.ageing
            .next_ms()
            .into_iter()
            .chain(rollback)
            .chain(self.spanning_due())
            .chain(self.fpm_due())
            .chain(self.routing_due())
            .chain(self.tracks.next_ms())
            .chain(self.statics.due_ms())
            .chain(self.children.next_ms())
            .min()
    }

    /// Before netdevs are touched, what is known of their original state is on record.
    fn write_ahead(&mut self, coming: &Record) {
        let mut both = self.switch.record().clone();
        for (name, original) in &coming.originals {
            both.originals.insert(name.clone(), original.clone());
        }
        for (name, nets) in &coming.addresses {
            both.addresses.entry(name.clone()).or_default().extend(nets);
        }
        both.ipv6_forwarding = both.ipv6_forwarding.or(coming.ipv6_forwarding);
        for (vrf, knobs) in &coming.knobs {
            both.knobs.entry(vrf.clone()).or_insert_with(|| knobs.clone());
        }
        both.namespaces.extend(coming.namespaces.iter().cloned());
        both.homes.extend(coming.homes.clone());
        self.save(both);
    }
    pub(crate) fn save_record(&mut self) {
        self.save(self.switch.record().clone());
    }
    fn save(&mut self, record: Record) {
        if record == self.saved {
            return;
        }
        let text = serde_json::to_vec(&record).unwrap_or_default();
        match files::replace(&self.paths.record(), &text) {
            Ok(()) => self.saved = record,
            Err(error) => {
                let path = self.paths.record();
                self.log("SYS", 3, "RECORD", &format!("{}: {error}", path.display()));
            }
        }
    }

    /// Takes the plane down and puts every netdev back as it was found.
    ///
    /// # Errors
    /// What could not be undone; the rest is.
    pub fn detach(&mut self) -> Result<(), String> {
        self.detached = true;
        let mut failures: Vec<String> =
            self.plane.detach().err().map(|error| error.to_string()).into_iter().collect();
        self.end_children();
        self.sync_routes(&BTreeSet::new());
        self.switch.facts_mut().shared_knobs = crate::instance::shared_knobs(&self.paths);
        self.kernel.sync_arps(&BTreeSet::new(), self.switch.facts());
        let actions = self.switch.release();
        let results = self.run(&actions);
        // A netdev that goes meanwhile has nothing to be put back.
        let here = |action: &Action| !matches!(action, Action::Link { name, .. } | Action::Move { name, .. } if !self.kernel.has(name));
        let failed = actions.iter().zip(results).filter(|(action, _)| here(action));
        failures.extend(failed.filter_map(|(_, result)| result.err()));
        for path in [
            self.paths.record(),
            self.paths.namespace(),
            self.paths.run.join("plane-since"),
            snapshot_path(&self.paths),
        ] {
            let _ = std::fs::remove_file(path);
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }
}

/// What the kernel said.
pub enum Change {
    /// A netdev came or changed.
    Link(LinkFacts),
    /// A netdev is gone.
    Gone {
        /// The VRF it was in.
        vrf: Option<String>,
        /// Its index there.
        ifindex: u32,
    },
    /// Events were lost: everything may have changed.
    All,
}
