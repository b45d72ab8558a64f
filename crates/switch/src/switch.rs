//! The switch: running configuration, facts and port numbers together, and the step from one
//! configuration to the next.
//!
//! Invariant: [`Switch::plan`] changes nothing; the caller calls [`Switch::accept`] after it has
//! carried out the plan.

use crate::acls::{self, InForce};
use crate::check;
use crate::compile::{compile, lines_up, port_names};
use crate::dot1x::Admitted;
use crate::err_disable::ErrDisabled;
use crate::facts::{Facts, LinkFacts};
use crate::host_routes::Route;
use crate::identity::Identity;
use crate::leftovers;
use crate::links::{self, Action, Actions, Record};
use crate::monitor;
use crate::names::switchports;
use crate::port_security::{self, Learned, SecureAddresses};
use crate::ports::PortIds;
use crate::refused::Refused;
use crate::rifs;
use crate::routers::Routers;
use crate::sflow;
use crate::spanning::{self, LinkChange, Reconfigure, Spanning};
use lanyard_acl::time::Minute;
use lanyard_config::{Config, InterfaceName, SecureKind};
use lanyard_plane::PlaneState;
use lanyard_stp::{Duplex, Snapshot};
use lanyard_types::{ErrCause, MacAddr, PortId, VlanId, VlanSet};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// A configuration that may be taken, and what taking it requires.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The configuration.
    pub config: Config,
    /// Its port numbers.
    pub ports: PortIds,
    /// The changes of netdevs.
    pub actions: Actions,
    /// Warnings for the operator; no reason to refuse.
    pub notices: Vec<String>,
    /// The bridge with its new configuration, as far as it was known when the plan was made; `None`
    /// when spanning tree is off.
    pub spanning: Option<Box<Spanning>>,
    /// The change of the running bridge that is due once the plan has been carried out.
    pub reconfigure: Reconfigure,
}

/// The whole switch.
#[derive(Debug, Clone)]
pub struct Switch {
    identity: Identity,
    config: Config,
    facts: Facts,
    routers: Routers,
    ports: PortIds,
    record: Record,
    /// False until the first configuration has been carried out. Until then the netdevs are in the
    /// state in which the last run left them.
    settled: bool,
    /// The leftovers of actions that failed, until the next configuration has been carried out.
    left: Left,
    /// A copy of the bridge, when spanning tree is on; the bridge itself runs on the protocol
    /// thread. The copy has the tree of each VLAN and the ports that a guard has shut down. Only
    /// the running bridge knows the states of ports.
    spanning: Option<Box<Spanning>>,
    /// The ports that are shut down for other causes than those of spanning tree.
    err_disabled: ErrDisabled,
    /// The learned addresses of ports with port security.
    secure: SecureAddresses,
    /// The ports that the authenticator has opened.
    admitted: Admitted,
    /// The access lists of the plane state in force.
    acls: InForce,
    /// The time in UTC, for the time ranges of access lists; `None` until it has been set.
    minute: Option<Minute>,
    /// The state of spanning tree that the last run saved; kept until the first configuration has
    /// been carried out.
    found: Option<Box<Snapshot>>,
}

/// The leftovers of actions that failed.
#[derive(Debug, Clone, Default)]
struct Left {
    /// True if there are leftovers.
    any: bool,
    /// The interfaces whose netdevs may differ from the configuration.
    interfaces: BTreeSet<String>,
}

impl Switch {
    /// A switch with the default configuration. `found` is the state of an adopted plane, `record`
    /// the record that the last run saved.
    #[must_use]
    pub fn new(identity: Identity, facts: Facts, found: &PlaneState, record: Record) -> Self {
        let ports = PortIds::adopt(found);
        Self {
            identity,
            config: Config::default(),
            facts,
            routers: Routers::default(),
            ports,
            record,
            settled: false,
            left: Left::default(),
            spanning: None,
            err_disabled: ErrDisabled::default(),
            secure: SecureAddresses::default(),
            admitted: Admitted::default(),
            acls: found.acls.clone(),
            minute: None,
            found: None,
        }
    }
    /// Sets the time, UTC, which decides with the configured time zone which time ranges of access lists are active.
    pub const fn set_minute(&mut self, now: Minute) {
        self.minute = Some(now);
    }
    /// Stores the access lists that the plane has, so that they keep their numbers.
    pub fn set_acls(&mut self, in_force: &InForce) {
        self.acls.clone_from(in_force);
    }
    /// Sets the port numbers that the plane itself assigns.
    #[must_use]
    pub fn with_fixed_ports(self, fixed: std::collections::BTreeMap<String, lanyard_types::PortId>) -> Self {
        Self { ports: self.ports.with_fixed(fixed), ..self }
    }
    /// Sets the state from which spanning tree resumes when the first configuration turns it on.
    #[must_use]
    pub fn resuming(self, found: Option<Snapshot>) -> Self {
        Self { found: found.map(Box::new), ..self }
    }
    /// The bridge, when spanning tree is on.
    #[must_use]
    pub fn spanning(&self) -> Option<&Spanning> {
        self.spanning.as_deref()
    }
    /// Replaces the copy of the running bridge.
    pub fn set_spanning(&mut self, running: Option<Spanning>) {
        self.spanning = running.map(Box::new);
    }
    /// The ports that are shut down for other causes than those of spanning tree.
    #[must_use]
    pub const fn err_disabled(&self) -> &ErrDisabled {
        &self.err_disabled
    }
    /// As [`Switch::err_disabled`], for changes.
    pub const fn err_disabled_mut(&mut self) -> &mut ErrDisabled {
        &mut self.err_disabled
    }
    /// The learned addresses of ports with port security.
    #[must_use]
    pub const fn secure(&self) -> &SecureAddresses {
        &self.secure
    }
    /// As [`Switch::secure`], for changes.
    pub const fn secure_mut(&mut self) -> &mut SecureAddresses {
        &mut self.secure
    }
    /// The ports that the authenticator has opened.
    #[must_use]
    pub const fn admitted(&self) -> &Admitted {
        &self.admitted
    }
    /// Stores the ports that the authenticator has opened.
    pub fn set_admitted(&mut self, admitted: Admitted) {
        self.admitted = admitted;
    }
    /// Adds an address that the plane has learned; see [`SecureAddresses::insert`].
    pub fn add_secure(&mut self, name: &str, learned: Learned) -> bool {
        self.secure.insert(&self.config, name, learned)
    }
    /// Adapts the learned addresses to the running configuration. Those of ports with sticky learning become sticky.
    /// Returns true if there were such addresses.
    pub fn configure_secure(&mut self) -> bool {
        self.secure.configure(&self.config);
        let sticky: Vec<(String, Vec<Learned>)> = switchports(&self.config)
            .filter(|(_, interface)| interface.switchport.security.sticky)
            .map(|(name, _)| (name.to_owned(), self.secure.of(name).to_vec()))
            .filter(|(_, learned)| !learned.is_empty())
            .collect();
        for (name, list) in &sticky {
            self.secure.remove(|held, _| held == name);
            for learned in list {
                self.add_sticky(name, learned.vlan, learned.mac);
            }
        }
        !sticky.is_empty()
    }
    /// Adapts the ports that are shut down to the running configuration; see [`ErrDisabled::configure`].
    pub fn configure_err_disabled(&mut self, now: u64) {
        self.err_disabled.configure(now, &self.config);
    }
    /// Adds a sticky address to the running configuration. Returns false if the port has it or as many as it may have.
    pub fn add_sticky(&mut self, name: &str, vlan: VlanId, mac: MacAddr) -> bool {
        let key = InterfaceName::Netdev(name.to_owned());
        let Some(interface) = self.config.interfaces.get_mut(&key) else { return false };
        let port = &mut interface.switchport;
        let vlan = Some(vlan).filter(|vlan| *vlan != port_security::vlan_of(port, None));
        let room = port.security.addresses.len() < port.security.maximum as usize;
        let new = room && !port.security.addresses.contains_key(&(mac, vlan));
        if new {
            port.security.addresses.insert((mac, vlan), SecureKind::Sticky);
        }
        new
    }
    /// Removes addresses from the running configuration: those that `remove` chooses. True if there were any.
    pub fn remove_secure(&mut self, mut remove: impl FnMut(&str, MacAddr, SecureKind) -> bool) -> bool {
        let mut any = false;
        for (name, interface) in &mut self.config.interfaces {
            let (name, addresses) = (name.to_string(), &mut interface.switchport.security.addresses);
            let before = addresses.len();
            addresses.retain(|(mac, _), kind| !remove(&name, *mac, *kind));
            any |= addresses.len() != before;
        }
        any
    }
    /// Why the switch itself has shut a port down; `None` if it has not.
    #[must_use]
    pub fn err_cause(&self, port: PortId) -> Option<ErrCause> {
        let own = || self.err_disabled.cause(self.ports.name(port)?);
        let of_tree = self.spanning().and_then(|spanning| spanning.err_cause(port));
        of_tree.or_else(own)
    }
    /// The links whose state has not been reported to the bridge; see [`Spanning::unreported`].
    pub fn unreported_links(&self, medium: &mut dyn FnMut(&str) -> (Option<u32>, Duplex)) -> Vec<LinkChange> {
        let spanning = self.spanning.as_deref();
        spanning.map_or(Vec::new(), |it| it.unreported(&self.config, &self.facts, &self.ports, medium))
    }
    /// The identity of this switch.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }
    /// The running configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }
    /// The facts about netdevs.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }
    /// The facts about netdevs, for updates from the kernel.
    pub const fn facts_mut(&mut self) -> &mut Facts {
        &mut self.facts
    }
    /// The facts about the kernel's routing.
    #[must_use]
    pub const fn routers(&self) -> &Routers {
        &self.routers
    }
    /// Stores what is known about the kernel's routing.
    pub fn set_routers(&mut self, routers: Routers) {
        self.routers = routers;
    }
    /// The port numbers.
    #[must_use]
    pub const fn ports(&self) -> &PortIds {
        &self.ports
    }
    /// The switch's changes in the kernel.
    #[must_use]
    pub const fn record(&self) -> &Record {
        &self.record
    }
    /// Checks whether `next` may be taken, given the netdevs and limits.
    ///
    /// # Errors
    /// Why it may not be taken.
    pub fn check(&self, old: &Config, next: &Config) -> Result<Vec<String>, Refused> {
        let ports = self.ports.assign(port_names(next))?;
        spanning::check(next, &ports, &self.identity)?;
        check::check(old, next, &self.facts, &self.identity)
    }
    /// Plans what taking `next` requires. `now` is in milliseconds of spanning tree's clock.
    ///
    /// # Errors
    /// Why it may not be taken.
    pub fn plan(&self, now: u64, next: Config) -> Result<Plan, Refused> {
        let notices = check::check(&self.config, &next, &self.facts, &self.identity)?;
        let ports = self.ports.assign(port_names(&next))?;
        let old = self.carried_out();
        let mut actions = links::actions(old.as_deref(), &next, &self.facts, &self.record, &self.identity);
        let cleared = if self.settled { spanning::shut(&self.config, &next, &ports) } else { Vec::new() };
        let wanted = spanning::lower(&next, &ports, &self.identity);
        let reconfigure = Reconfigure { wanted, cleared, vlans: spanning::live_vlans(&next) };
        let spanning = spanning::next(now, self.spanning.as_deref(), self.found.as_deref(), &reconfigure)?;
        if let Some(spanning) = &spanning {
            spanning.hold_down(&mut actions.before, &ports);
        }
        self.err_disabled.hold_down(&mut actions.before);
        Ok(Plan { config: next, ports, actions, notices, spanning: spanning.map(Box::new), reconfigure })
    }
    /// The configuration that the netdevs are known to have; `None` when nothing is known about any of them.
    fn carried_out(&self) -> Option<Cow<'_, Config>> {
        let mut config = self.settled.then_some(Cow::Borrowed(&self.config))?;
        if !self.left.interfaces.is_empty() {
            let left = &self.left.interfaces;
            config.to_mut().interfaces.retain(|name, _| !left.contains(&name.to_string()));
        }
        Some(config)
    }
    /// The plane state of a plan, with the netdevs as they are now.
    #[must_use]
    pub fn compile(&self, plan: &Plan) -> PlaneState {
        let effective = self.admitted.effective(&plan.config);
        let mut state = compile(&effective, &self.facts, &plan.ports, &self.identity);
        rifs::compile(&plan.config, &self.facts, &plan.ports, &self.routers, &mut state);
        acls::overlay(&plan.config, &self.facts, &plan.ports, &self.acls, self.minute, &mut state);
        if let Some(spanning) = &plan.spanning {
            spanning.overlay(&mut state);
        }
        monitor::overlay(&plan.config, &self.facts, &plan.ports, &mut state);
        sflow::overlay(&plan.config, &plan.ports, &mut state);
        self.err_disabled.overlay(&plan.ports, &mut state);
        let mut secure = self.secure.clone();
        secure.configure(&plan.config);
        secure.overlay(&plan.config, &plan.ports, &mut state);
        self.admitted.overlay(&plan.config, &plan.ports, &mut state);
        state
    }
    /// Takes over the configuration of a plan that has been carried out.
    pub fn accept(&mut self, plan: Plan) {
        self.config = plan.config;
        self.ports = plan.ports;
        // Static routes are installed separately, and recorded then.
        let routes = std::mem::take(&mut self.record.routes);
        self.record = Record { routes, ..plan.actions.record };
        self.settled = true;
        self.left = Left::default();
        self.spanning = plan.spanning;
        self.found = None;
    }
    /// Corrects the record by what the actions `failed` did not undo or release. `other` is the record of the configuration whose
    /// state the kernel still has: the refused one if undoing failed, the previous one if a release failed. The next plan
    /// corrects the kernel's state.
    pub fn leave(&mut self, failed: &[Action], other: &Record) {
        leftovers::keep(&mut self.record, failed, other, &self.facts);
        self.left.any |= !failed.is_empty();
        self.left.interfaces.extend(failed.iter().filter_map(Action::interface));
    }
    /// True while the kernel may differ from the running configuration because actions have failed. A plan for the running
    /// configuration corrects it.
    #[must_use]
    pub const fn has_leftovers(&self) -> bool {
        self.left.any
    }
    /// The plane state of the running configuration.
    #[must_use]
    pub fn state(&self) -> PlaneState {
        let effective = self.admitted.effective(&self.config);
        let mut state = compile(&effective, &self.facts, &self.ports, &self.identity);
        rifs::compile(&self.config, &self.facts, &self.ports, &self.routers, &mut state);
        acls::overlay(&self.config, &self.facts, &self.ports, &self.acls, self.minute, &mut state);
        if let Some(spanning) = &self.spanning {
            spanning.overlay(&mut state);
        }
        monitor::overlay(&self.config, &self.facts, &self.ports, &mut state);
        sflow::overlay(&self.config, &self.ports, &mut state);
        self.err_disabled.overlay(&self.ports, &mut state);
        self.secure.overlay(&self.config, &self.ports, &mut state);
        self.admitted.overlay(&self.config, &self.ports, &mut state);
        state
    }
    /// The VLANs of VLAN interfaces, routed port-channels and their subinterfaces whose line protocol is up.
    #[must_use]
    pub fn lines_up(&self) -> VlanSet {
        lines_up(&self.admitted.effective(&self.config), &self.facts, &self.ports, &self.identity)
    }
    /// The changes of carrier that are due; see [`links::carriers`].
    #[must_use]
    pub fn carriers(&self) -> Vec<Action> {
        links::carriers(&self.config, &self.facts, &self.lines_up())
    }
    /// True for a netdev that the configuration names and that the switch has not set up: the record has no netdev of this name,
    /// or one with another index.
    #[must_use]
    pub fn is_new(&self, link: &LinkFacts) -> bool {
        let name = InterfaceName::Netdev(link.name.clone());
        // A netdev in a VRF's namespace has been moved there by the switch.
        link.vrf.is_none()
            && self.config.interfaces.contains_key(&name)
            && self.record.originals.get(&link.name).is_none_or(|original| original.ifindex != link.ifindex)
    }
    /// The actions for a netdev that has appeared or come up again: its settings when it is new to
    /// the switch, and its addresses.
    #[must_use]
    pub fn welcome(&self, name: &str) -> (Vec<Action>, Record) {
        let new =
            |link: &&LinkFacts| self.record.originals.get(name).is_none_or(|o| o.ifindex != link.ifindex);
        let mut list = Actions { record: self.record.clone(), ..Actions::default() };
        if self.facts.free(name).filter(new).is_some() {
            list =
                links::actions(Some(&self.config), &self.config, &self.facts, &self.record, &self.identity);
            list.before.retain(|action| matches!(action, Action::Move { name: n, .. } | Action::Link { name: n, .. } | Action::Speed { name: n, .. } if n == name));
            // A port that was renamed to a name that is not configured is restored.
            let released = |action: &Action| matches!(action, Action::Link { name: n, .. } | Action::Speed { name: n, .. } if n == name);
            list.before.extend(std::mem::take(&mut list.after).into_iter().filter(released));
        }
        if let Some(spanning) = &self.spanning {
            spanning.hold_down(&mut list.before, &self.ports);
        }
        self.err_disabled.hold_down(&mut list.before);
        list.before.extend(links::restore_addresses(&self.config, name));
        (list.before, list.record)
    }
    /// Records which static routes are installed or about to be.
    pub fn set_recorded_routes(&mut self, routes: BTreeSet<Route>) {
        self.record.routes = routes;
    }
    /// Stores the record that [`Switch::welcome`] returned, once its actions have been carried out.
    pub fn set_record(&mut self, record: Record) {
        self.record = record;
    }
    /// The actions that give every netdev back as it was found.
    #[must_use]
    pub fn release(&self) -> Vec<Action> {
        links::release(&self.facts, &self.record, &self.identity)
    }
}
