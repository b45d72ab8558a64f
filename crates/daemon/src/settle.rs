//! Applies events to the plane and the modules: netdevs that appear, disappear or change their link, and decisions of
//! protocols. The switch cannot refuse such a change, because it has happened already.
//!
//! Invariant: [`Core::settle`] gives the plane all of the wanted state that it takes. A port that it refuses is left out, and
//! the reason is stored with the port.

use crate::access_lists;
use crate::aggregation;
use crate::announce;
use crate::context::{Context, Module};
use crate::core::Core;
use crate::err_disable;
use crate::netdevs::{Change, learn_speeds, of_speed, pair_missing};
use crate::protocols::work::Report;
use crate::spanning;
use lanyard_pipeline::state::PlaneState;
use lanyard_switch::flush;

impl Core {
    /// Gives the plane the state that follows from configuration and facts. Used for changes that cannot be
    /// refused: a port that the plane refuses is left out, and the reason is stored.
    pub(crate) fn settle(&mut self) {
        // Do this first: a port that gets a link must be blocked in its trees before the plane enables it.
        // A lost member of a port-channel is replaced before that.
        aggregation::update(&mut self.ctx);
        spanning::links(&mut self.ctx);
        let names = of_speed(self.ctx.switch.config());
        learn_speeds(&mut self.ctx, names);
        let next = self.ctx.switch.state();
        if next != *self.ctx.plane.state() {
            let old = self.ctx.plane.state().clone();
            match self.following.apply(&mut self.ctx, &next) {
                Ok(()) => self.ports.faults.clear(),
                Err(_) => self.apply_port_by_port(&old, &next),
            }
            let now = self.ctx.plane.state().clone();
            flush_stale(&mut self.ctx, &old, &now);
            self.ctx.rename_ports();
            announce::ports(&mut self.ctx, &old, &now);
        }
        self.protocol_reports();
        self.follow_up();
    }

    /// Handles the protocols' reports; returns true if there were any.
    pub(crate) fn protocol_reports(&mut self) -> bool {
        let mut reports = self.ctx.protocols.reports();
        let any = !reports.is_empty();
        let mut bundles = false;
        let mut access = Vec::new();
        for report in std::mem::take(&mut reports.waiting) {
            match report {
                Report::Aggregation(event) => {
                    bundles = true;
                    aggregation::announce(&mut self.ctx, &event);
                }
                Report::ChannelRefused(channel, reason) => {
                    aggregation::refused(&mut self.ctx, channel, &reason);
                }
                Report::Discovery(event) => drop(self.discovery.handle(&mut self.ctx, event)),
                Report::Snooping(event) => drop(self.snooping.handle(&mut self.ctx, event)),
                Report::Guard(event) => drop(self.guard.handle(&mut self.ctx, event)),
                Report::Access(event) => access.push(event),
                other => reports.waiting.push_back(other),
            }
        }
        let notes = access_lists::Notes {
            notes: std::mem::take(&mut reports.notes),
            missed: std::mem::take(&mut reports.notes_missed),
        };
        self.access_lists.handle(&mut self.ctx, notes);
        for (port, cause) in spanning::handle(&mut self.ctx, reports) {
            self.err_disabling.handle(&mut self.ctx, err_disable::Event::Tree(port, cause));
        }
        if !access.is_empty() {
            let outcome = self.access_control.handle_all(&mut self.ctx, access);
            self.control_access(outcome);
        }
        if aggregation::refresh(&mut self.ctx) {
            // A port-channel came up or went down. `settle` calls this function again, and `refresh` then finds no further
            // change.
            self.settle();
        } else if bundles {
            // LLDP announces to neighbours which links of a port-channel are in use.
            self.discovery.configure(&mut self.ctx);
        }
        any
    }

    /// Applies everything except newly attached ports first, and then those one by one.
    fn apply_port_by_port(&mut self, old: &PlaneState, next: &PlaneState) {
        let mut state = next.clone();
        let mut risky = Vec::new();
        for (port, wanted) in &mut state.ports {
            let before = old.ports.get(port);
            if wanted.ifindex != 0 && before.is_none_or(|before| before.ifindex != wanted.ifindex) {
                risky.push((*port, wanted.clone()));
                (wanted.ifindex, wanted.enabled) = (0, false);
            }
        }
        if let Err(error) = self.following.apply(&mut self.ctx, &state) {
            self.ctx.log("PLANE", 2, "APPLY", &format!("the plane is not as configured: {error}"));
            return;
        }
        for (port, wanted) in risky {
            let without = state.clone();
            let name = wanted.name.clone();
            state.ports.insert(port, wanted);
            match self.following.apply(&mut self.ctx, &state) {
                Ok(()) => drop(self.ports.faults.remove(&name)),
                Err(error) => {
                    state = without;
                    let reason = error.to_string();
                    if self.ports.faults.insert(name.clone(), reason.clone()).as_ref() != Some(&reason) {
                        let text = format!("Interface {name} does not forward: {reason}");
                        self.ctx.log("PLANE", 3, "PORT", &text);
                    }
                }
            }
        }
    }

    /// Does the work that follows any change and may be delayed: carriers of VLAN interfaces, kernel routes,
    /// services.
    pub(crate) fn follow_up(&mut self) {
        let carriers = self.ctx.switch.carriers();
        if !carriers.is_empty() {
            for error in self.ctx.kernel.act(&carriers).into_iter().filter_map(Result::err) {
                self.ctx.log("LINK", 4, "CARRIER", &error.to_string());
            }
            self.ctx.refresh();
        }
        self.configure_services();
    }

    /// Handles changes that the kernel reports, and settles once.
    pub(crate) fn netdevs_changed(&mut self, changes: Vec<Change>) {
        if self.detached {
            return;
        }
        let gone = self.readiness.take_in(&mut self.ctx, changes);
        // If another program has deleted a VLAN interface, taking the configuration again creates it. Taking it again also
        // removes the effects of actions that failed.
        let missing = gone && pair_missing(&self.ctx);
        if missing || self.readiness.retries(&self.ctx) {
            let config = self.ctx.switch.config().clone();
            if let Err(error) = self.take(config) {
                let what = if missing { "VLANIF" } else { "UNSETTLED" };
                self.ctx.log("LINK", 3, what, &error.to_string());
            }
        }
        self.settle();
        // A file that could not be written is written once it can be.
        self.ctx.save_record();
        if self.config_unkept {
            self.keep_running_config();
        }
    }

    /// True while a port is being set up and its link is not up yet.
    pub(crate) fn awaits_links(&self) -> bool {
        let ports = lanyard_switch::compile::ports(self.ctx.switch.config());
        let mut links = ports.filter_map(|name| self.ctx.facts().usable(name));
        links.any(|link| link.admin_up && !link.carrier)
    }
}

/// Flushes the dynamic addresses that a change of the plane's state makes stale.
pub(crate) fn flush_stale(ctx: &mut Context, old: &PlaneState, next: &PlaneState) {
    for filter in flush::flushes(old, next) {
        ctx.plane.fdb_flush(&filter);
    }
}
