//! Changes of the running configuration. They are carried out in kernel, plane and modules in this order: netdevs, plane,
//! stale addresses, released netdevs, modules. [`crate::settle`] has the changes that cannot be refused.
//!
//! Read `lanyard_switch` first, which decides what has to be done. Invariant: [`Core::take`] leaves the switch with the
//! new configuration or, when any step fails, with the old one.

use crate::aggregation;
use crate::announce;
use crate::context::{Context, Module};
use crate::core::Core;
use crate::discovery;
use crate::files::{self, FileError};
use crate::fpm::ListenError;
use crate::group_socket::GroupSocketError;
use crate::guard;
use crate::instance::shared_knobs;
use crate::kernel::KernelError;
use crate::layer3::{self, RouteRefused};
use crate::listening_port::PortError;
use crate::netdevs::{fixed, learn_modes, learn_speeds, of_speed};
use crate::protocols::keeper::{aggregation_path, snapshot_path};
use crate::queues::QueuesRefused;
use crate::routing::TurnOutcome;
use crate::settle::flush_stale;
use crate::snooping;
use crate::spanning;
use crate::ssh_server;
use crate::startup::Part;
use ipnet::IpNet;
use lanyard_cli::backend::{Configuration, Refusal, SafeChange};
use lanyard_cli::sessions::ConfigSessions;
use lanyard_config::{Config, TablePolicy};
use lanyard_pipeline::state::{HookChoice, PlaneState, PortKind, PortState};
use lanyard_plane::PlaneError;
use lanyard_switch::compile::{made_interfaces, pipeline_end_of};
use lanyard_switch::links::{self, Actions, TransactError};
use lanyard_switch::routing::Offload;
use lanyard_switch::{Action, Plan, Record, Refused, chip};
use std::time::{Duration, Instant};

/// How long a command that adds routes waits for the chip's answer, and how often it looks.
const PLACED_WITHIN: Duration = Duration::from_millis(300);
const PLACED_POLL: Duration = Duration::from_millis(1);

/// The reason why a configuration was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    #[error("the switch is being taken down")]
    Detached,
    #[error(transparent)]
    Fpm(#[from] ListenError),
    #[error(transparent)]
    Secret(#[from] lanyard_access::secret::HashError),
    #[error(transparent)]
    GroupSocket(#[from] GroupSocketError),
    #[error(transparent)]
    Listening(#[from] PortError),
    #[error(transparent)]
    SshServer(#[from] ssh_server::Missing),
    /// The configuration contradicts itself, the netdevs or a limit.
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Netdevs(#[from] TransactError<KernelError>),
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// The plane refuses the port of an interface.
    #[error("{cause}")]
    Port {
        interface: String,
        #[source]
        cause: PlaneError,
    },
    #[error(transparent)]
    Queues(#[from] QueuesRefused),
    #[error(transparent)]
    Route(#[from] RouteRefused),
    /// Without the record, `detach` and a restart could not restore what the change replaces.
    #[error("{0}; the change was refused because it could not be recorded")]
    Record(#[from] FileError),
    /// A table of the chip is full, and its policy refuses what does not fit.
    #[error(
        "the chip has no room for the route to {0}, and its table's policy is sync: see `show platform resources`"
    )]
    TableFull(IpNet),
}

impl CommitError {
    /// The part of the configuration that was refused.
    pub(crate) fn part(&self) -> Part {
        match self {
            Self::Fpm(_) => Part::Fpm,
            Self::Queues(error) => {
                error.interface().map_or(Part::Unknown, |name| Part::Interface(name.to_owned()))
            }
            Self::Netdevs(error) => error.interface.clone().map_or(Part::Unknown, Part::Interface),
            Self::Port { interface, .. } => Part::Interface(interface.clone()),
            Self::Detached
            | Self::Secret(_)
            | Self::GroupSocket(_)
            | Self::Listening(_)
            | Self::SshServer(_)
            | Self::Refused(_)
            | Self::Plane(_)
            | Self::Route(_)
            | Self::Record(_)
            | Self::TableFull(_) => Part::Unknown,
        }
    }
}

/// The actions that could not be undone when the switch was taken down.
#[derive(Debug, thiserror::Error)]
#[error("{}", failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct DetachError {
    failures: Vec<DetachFailure>,
}

/// An action that could not be undone.
#[derive(Debug, thiserror::Error)]
enum DetachFailure {
    #[error(transparent)]
    Plane(#[from] PlaneError),
    #[error(transparent)]
    Netdev(#[from] KernelError),
}

impl Configuration for Core {
    fn running(&self) -> &Config {
        self.ctx.switch.config()
    }
    fn commit(&mut self, candidate: Config) -> Result<(), Refusal> {
        self.check_lock()?;
        Ok(self.take(candidate)?)
    }
    fn commit_confirmed(&mut self, candidate: Config, minutes: u32) -> Result<(), Refusal> {
        self.check_lock()?;
        let before = self.ctx.switch.config().clone();
        self.take(candidate)?;
        let at_ms = self.ctx.clock.now_ms() + u64::from(minutes) * 60_000;
        self.confirmation.await_until(at_ms, before);
        self.keep_running_config();
        Ok(())
    }
    fn confirm(&mut self) -> bool {
        let awaited = self.confirmation.confirm();
        if awaited {
            self.keep_running_config();
            let user =
                self.users.current.and_then(|line| self.users.name(line)).unwrap_or("unknown").to_owned();
            if let Err(reason) = self.save_checkpoint(&user) {
                self.ctx.log("SYS", 3, "ARCHIVE", &reason.to_string());
            }
        }
        awaited
    }
    fn rollback_in_s(&self) -> Option<u64> {
        self.confirmation.left_s(self.ctx.clock.now_ms())
    }
    fn config_sessions(&mut self) -> &mut ConfigSessions {
        &mut self.config_sessions
    }
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        Self(error.to_string())
    }
}

impl Core {
    /// Makes `next` the running configuration, completely or not at all.
    ///
    /// # Errors
    /// The reason, which names the part of the configuration at fault.
    pub(crate) fn take(&mut self, mut next: Config) -> Result<(), CommitError> {
        if self.detached {
            return Err(CommitError::Detached);
        }
        next.access.hash(lanyard_access::secret::hash)?;
        let group = self.group_socket.prepare(&self.ctx.paths, next.access.socket_group.as_ref())?;
        let telnet = self.telnet.prepare(next.access.lines.telnet())?;
        if next.access.lines.ssh() {
            ssh_server::program()?;
        }
        let ssh = self.ssh.prepare(next.access.lines.ssh())?;
        let listening = self.fpm.prepare(next.fpm.as_ref())?;
        let chip = self.configure_chip(&next)?;
        let taken = self.take_netdevs(next);
        if std::mem::take(&mut self.routers_changed) {
            self.settle();
        }
        match &taken {
            Ok(()) => {
                // A port that is locked from now on is locked before the command is answered.
                self.access_turn();
                self.fpm.adopt(self.ctx.clock.now_ms(), listening);
                self.group_socket.adopt(&self.ctx.paths, group);
                self.ssh.adopt(ssh);
                if self.telnet.adopt(telnet) {
                    let text = "telnet is on: names, secrets and commands cross the network in plain text";
                    self.ctx.log("SYS", 4, "TELNET", text);
                }
            }
            Err(_) if chip => self.restore_chip(),
            Err(_) => {}
        }
        taken
    }

    /// Gives the chip the settings of a configuration, and reads the facts again, because the change may replace netdevs of
    /// ports. Returns false if the settings equal the present ones. The first time a chip gets them even then, because the plane
    /// begins with the settings that an earlier daemon has left; a refusal of these is logged.
    fn configure_chip(&mut self, next: &Config) -> Result<bool, CommitError> {
        let settings = chip::settings(next);
        if settings == chip::settings(self.ctx.switch.config()) {
            if !self.chip_configured && self.ctx.plane.chip().is_some() {
                self.restore_chip();
            }
            self.chip_configured = true;
            return Ok(false);
        }
        self.ctx.plane.configure_chip(&settings, &chip::ports_in_use(next))?;
        self.chip_configured = true;
        self.ctx.refresh();
        Ok(true)
    }
    /// Gives the chip the settings of the running configuration back.
    fn restore_chip(&mut self) {
        let config = self.ctx.switch.config();
        let (settings, in_use) = (chip::settings(config), chip::ports_in_use(config));
        if let Err(error) = self.ctx.plane.configure_chip(&settings, &in_use) {
            self.ctx.log("PLANE", 3, "CHIP", &format!("the chip's settings could not be restored: {error}"));
        }
        self.ctx.refresh();
    }

    fn take_netdevs(&mut self, next: Config) -> Result<(), CommitError> {
        learn(&mut self.ctx, &next);
        let now = self.ctx.clock.boot_ms();
        spanning::refresh(&mut self.ctx);
        aggregation::refresh(&mut self.ctx);
        let plan = self.ctx.switch.plan(now, next)?;
        self.ctx.write_ahead(&plan.actions.record)?;
        let found = self.ctx.plane.state().clone();
        self.ctx.disable_ports(links::taken_down(&plan.actions.before));
        if let Err(mut error) = links::transact(&mut *self.ctx.kernel, &plan.actions.before) {
            self.reopen(&found);
            self.ctx.refresh();
            let undoing = std::mem::take(&mut error.undoing);
            error.undoing = self.not_undone(undoing, &plan.actions.record);
            self.ctx.save_record();
            return Err(error.into());
        }
        if !plan.actions.before.is_empty() {
            self.ctx.refresh();
        }
        self.follow_tables(&plan.config);
        learn_speeds(&mut self.ctx, of_speed(&plan.config));
        let state = self.ctx.switch.compile(&plan);
        spanning::hold(&self.ctx, &plan);
        aggregation::part(&mut self.ctx, &plan.config);
        if let Err(error) = self.apply(&plan.config, &state) {
            let error = self.at_port(error, &state);
            self.unwind(&plan.actions);
            let config = self.ctx.switch.config().clone();
            self.follow_tables(&config);
            self.reopen(&found);
            spanning::release(&self.ctx);
            aggregation::update(&mut self.ctx);
            // The kernel flushes routes without an event when their interface or its address goes.
            self.layer3.handle(&mut self.ctx, layer3::Event::Flushed);
            self.layer3.configure(&mut self.ctx);
            self.queues.configure(&mut self.ctx);
            return Err(error);
        }
        self.finish(plan, &found, &state);
        Ok(())
    }

    /// Gives `state` to the plane, and the static routes of `next` to the kernel.
    fn apply(&mut self, next: &Config, state: &PlaneState) -> Result<(), CommitError> {
        self.following.apply(&mut self.ctx, state)?;
        self.queues.install(&mut self.ctx, next)?;
        self.layer3.install(&mut self.ctx, next)?;
        self.check_refusals(next)
    }

    /// Refuses new static routes that a table of the chip has no room for, when its policy is `sync`. Waits at most
    /// [`PLACED_WITHIN`] until the chip has accepted or refused each of them.
    fn check_refusals(&mut self, next: &Config) -> Result<(), CommitError> {
        if !next.chip.policies.values().any(|policy| *policy == TablePolicy::Sync) {
            return Ok(());
        }
        let before = &self.ctx.switch.config().routes;
        let new: Vec<(Option<String>, IpNet)> = next
            .routes
            .iter()
            .filter(|route| !before.contains(route))
            .map(|route| (route.vrf.clone(), route.prefix))
            .collect();
        let deadline = Instant::now() + PLACED_WITHIN;
        while !new.is_empty() {
            let mut turn = TurnOutcome::default();
            self.following.handle(&mut self.ctx, &mut turn);
            self.routers_changed |= turn.routers_changed;
            let place = |(vrf, prefix): &(Option<String>, IpNet)| {
                let vrf = self.following.vrf(vrf.as_deref())?;
                Some((*prefix, self.following.mirror.best_offload(vrf, *prefix)))
            };
            let places: Vec<(IpNet, Offload)> = new.iter().filter_map(place).collect();
            if let Some((prefix, _)) = places.iter().find(|(_, offload)| *offload == Offload::Failed) {
                return Err(CommitError::TableFull(*prefix));
            }
            if places.iter().all(|(_, offload)| *offload == Offload::Offloaded) || Instant::now() >= deadline
            {
                return Ok(());
            }
            std::thread::sleep(PLACED_POLL);
        }
        Ok(())
    }

    /// Finds the interface that a refusal by the plane is about, by adding each new port, disabled,
    /// to the plane's present state.
    fn at_port(&mut self, error: CommitError, state: &PlaneState) -> CommitError {
        let CommitError::Plane(cause) = error else { return error };
        let found = self.ctx.plane.state().clone();
        for (id, wanted) in &state.ports {
            let held = found.ports.get(id).filter(|held| held.ifindex == wanted.ifindex);
            if wanted.ifindex == 0 || held.is_some_and(|held| held.hook == wanted.hook) {
                continue;
            }
            // A plane may take a hook for one kind of port only. A subinterface is not tried as one,
            // because that needs its parent.
            let (kind, hook) = match wanted.kind {
                PortKind::Svi(_) => (wanted.kind, wanted.hook),
                PortKind::Netdev | PortKind::Routed => (PortKind::Netdev, wanted.hook),
                PortKind::Subinterface { .. } => (PortKind::Netdev, HookChoice::default()),
            };
            let bare = PortState { enabled: false, kind, ..PortState::new(&wanted.name, wanted.ifindex) };
            let port = PortState { hook, ..held.cloned().unwrap_or(bare) };
            let mut trial = found.clone();
            trial.ports.insert(*id, port);
            if self.following.apply(&mut self.ctx, &trial).is_err() {
                return CommitError::Port { interface: links::host_end_of(&wanted.name), cause };
            }
        }
        CommitError::Plane(cause)
    }

    /// Saves the configuration that a later start uses when it finds the plane but no startup-config. While a commit
    /// awaits confirmation this is the configuration from before it, because a restart must not make an unconfirmed
    /// commit final.
    pub(crate) fn keep_running_config(&mut self) {
        let config = self.confirmation.before().unwrap_or(self.ctx.switch.config());
        let (path, text) = (self.ctx.paths.running_config(), lanyard_cli::text::render(config));
        let result = files::replace_quickly(&path, text.as_bytes());
        if let Err(error) = &result {
            self.ctx.log("SYS", 3, "RECORD", &format!("{}: {error}", path.display()));
        }
        self.config_unkept = result.is_err();
    }

    /// Restores the plane state from before a refused change.
    fn reopen(&mut self, found: &PlaneState) {
        if let Err(error) = self.following.apply(&mut self.ctx, found) {
            self.ctx.log("PLANE", 2, "APPLY", &format!("the plane is not as configured: {error}"));
        }
    }

    /// Undoes the actions before a step that failed.
    fn unwind(&mut self, actions: &Actions) {
        let undo: Vec<Action> = actions.before.iter().rev().cloned().map(Action::inverse).collect();
        let failed = run(&mut self.ctx, &undo);
        if !undo.is_empty() {
            self.ctx.refresh();
        }
        self.not_undone(failed, &actions.record);
        self.ctx.save_record();
    }

    /// Logs and records the failed actions of an unwind; `coming` is the record of the refused configuration. The next event
    /// tries them again.
    fn not_undone(
        &mut self,
        failed: Vec<(Action, KernelError)>,
        coming: &Record,
    ) -> Vec<(Action, KernelError)> {
        for (_, error) in &failed {
            self.ctx.log("PLANE", 3, "UNWIND", &format!("undoing a refused change: {error}"));
        }
        leave(&mut self.ctx, &failed, coming);
        failed
    }

    fn finish(&mut self, plan: Plan, old: &PlaneState, state: &PlaneState) {
        let (after, reconfigure) = (plan.actions.after.clone(), plan.reconfigure.clone());
        let before = self.ctx.switch.record().clone();
        self.ctx.notices.extend(plan.notices.iter().cloned());
        self.ctx.switch.accept(plan);
        spanning::take(&mut self.ctx, reconfigure);
        aggregation::update(&mut self.ctx);
        self.ports.faults.retain(|name, _| state.ports.values().any(|port| port.name == *name));
        flush_stale(&mut self.ctx, old, state);
        self.ctx.rename_ports();
        let failed = run(&mut self.ctx, &after);
        for (_, error) in &failed {
            self.ctx.log("LINK", 4, "RELEASE", &error.to_string());
        }
        if !after.is_empty() {
            self.ctx.refresh();
        }
        leave(&mut self.ctx, &failed, &before);
        announce::ports(&mut self.ctx, old, state);
        self.following.log_forwarders(&mut self.ctx);
        self.ctx.save_record();
        self.keep_running_config();
        self.ageing.configure(&mut self.ctx);
        self.follow_up();
        if self.ctx.switch.spanning().is_some() || self.ctx.switch.config().channels().next().is_some() {
            // Pass the links of new ports and port-channels to spanning tree and link aggregation.
            self.settle();
        }
    }

    /// Removes the plane and restores every netdev.
    ///
    /// # Errors
    /// The changes that could not be undone; all others have been.
    pub(crate) fn detach(&mut self) -> Result<(), DetachError> {
        self.detached = true;
        spanning::end(&self.ctx);
        discovery::end(&self.ctx);
        snooping::end(&self.ctx);
        guard::end(&self.ctx);
        let mut failures: Vec<DetachFailure> =
            self.ctx.plane.detach().err().map(DetachFailure::from).into_iter().collect();
        self.children.end_all(&mut self.ctx);
        self.time_servers.end(&mut self.ctx);
        self.layer3.withdraw(&mut self.ctx);
        self.queues.withdraw(&mut self.ctx);
        self.ctx.switch.facts_mut().shared_knobs = shared_knobs(&self.ctx.paths);
        for action in self.ctx.switch.release() {
            let result = self.ctx.kernel.act(std::slice::from_ref(&action));
            let error = result.into_iter().find_map(Result::err);
            let gone = is_gone(&self.ctx, &action);
            failures.extend(error.filter(|_| !gone).map(DetachFailure::from));
        }
        if !failures.is_empty() {
            // The record keeps what is left to undo, so that the next `lanyard detach` can
            // continue.
            return Err(DetachError { failures });
        }
        for path in [
            self.ctx.paths.record(),
            self.ctx.paths.err_disabled(),
            self.ctx.paths.secure_addresses(),
            self.ctx.paths.admitted(),
            self.ctx.paths.running_config(),
            self.ctx.paths.namespace(),
            self.ctx.paths.run.join("plane-since"),
            snapshot_path(&self.ctx.paths),
            aggregation_path(&self.ctx.paths),
        ] {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }
}

/// Carries out actions one by one, regardless of failures, and returns those that failed.
fn run(ctx: &mut Context, actions: &[Action]) -> Vec<(Action, KernelError)> {
    let mut failed = Vec::new();
    for action in actions {
        let results = ctx.kernel.act(std::slice::from_ref(action));
        failed.extend(results.into_iter().filter_map(Result::err).map(|error| (action.clone(), error)));
    }
    failed
}

/// Records what actions that failed leave behind; see [`lanyard_switch::Switch::leave`].
fn leave(ctx: &mut Context, failed: &[(Action, KernelError)], other: &Record) {
    let there = failed.iter().map(|(action, _)| action).filter(|action| !is_gone(ctx, action));
    let there: Vec<Action> = there.cloned().collect();
    ctx.switch.leave(&there, other);
}

/// True if the netdev of an action was removed meanwhile, so that nothing is to be restored.
fn is_gone(ctx: &Context, action: &Action) -> bool {
    match action {
        Action::Link { name, .. }
        | Action::Move { name, .. }
        | Action::Address { name, .. }
        | Action::Speed { name, .. } => !ctx.kernel.has(name),
        Action::Namespace { .. } | Action::CreatePair(_) | Action::DeletePair(_) | Action::Knob { .. } => {
            false
        }
    }
}

/// Reads the facts that a plan for `next` depends on: the sysctls of its netdevs, the namespaces of
/// its VRFs.
fn learn(ctx: &mut Context, next: &Config) {
    let names = next.interfaces.keys().map(ToString::to_string);
    let pipeline = made_interfaces(next).map(|(name, _)| pipeline_end_of(&name.to_string()));
    let names: Vec<String> = names.chain(pipeline).collect();
    ctx.switch.facts_mut().shared_knobs = shared_knobs(&ctx.paths);
    let made = &ctx.switch.record().namespaces;
    let vrfs: Vec<String> = next.vrfs.keys().chain(made).cloned().collect();
    ctx.kernel.learn_namespaces(&vrfs, ctx.switch.facts_mut());
    ctx.kernel.learn_hosts(&names, ctx.switch.facts_mut());
    learn_modes(ctx, fixed(next));
}

#[cfg(test)]
#[allow(clippy::panic)] // a mistake in a test
#[path = "commit_fault_tests.rs"]
mod fault_tests;
#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
