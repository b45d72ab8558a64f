//! The management thread's part of port security: turns the addresses that the plane has learned at secure ports into secure
//! addresses, lets them age, and reacts to violations.
//!
//! The plane decides about each frame ([`lanyard_switch::port_security`] describes how). Invariants: a learned address is in
//! the file, or as a sticky one in the running configuration, before the plane has it as an entry of the switch, so that a
//! restart of the daemon keeps it. The frames of hosts cause at most one log line for each port in [`LOG_EVERY_MS`].

use crate::context::{Context, Module};
use crate::files::{self, FileError};
use lanyard_cli::backend::SecureFilter;
use lanyard_cli::view::{self, PortSecurityView, SecureAddressView, SecurePort};
use lanyard_config::{Interface, InterfaceName, SecureKind, Violation};
use lanyard_plane::{FdbEntry, FdbFilter, FdbKind};
use lanyard_switch::SecureAddresses;
use lanyard_switch::compile::switchports;
use lanyard_switch::port_security::{Learned, configured};
use lanyard_types::{DropReason, ErrCause, MacAddr, PortId, VlanId};
use std::collections::{BTreeMap, BTreeSet};

/// The least time between two log lines about violations at one port, in milliseconds.
const LOG_EVERY_MS: u64 = 5_000;
/// The longest file that is read, in bytes: more than the addresses of 1,000 ports need.
const MAX_FILE: usize = 64 * 1024 * 1024;

/// The module. The addresses are in the switch, which compiles plane states with them.
#[derive(Debug, Default)]
pub(crate) struct PortSecurity {
    /// The addresses that the file contains.
    saved: SecureAddresses,
    /// The last violation at each port.
    last: BTreeMap<PortId, Last>,
    /// True if the plane may have learned addresses that it has not reported, because events were lost or no daemon ran.
    unseen: bool,
    /// True if learned addresses have become sticky, and the file of the running configuration lacks them.
    converted: bool,
}

/// The last violation at a port.
#[derive(Debug, Clone, Copy)]
struct Last {
    vlan: VlanId,
    mac: MacAddr,
    /// When the next one may be logged.
    log_ms: u64,
}

/// The plane's reports.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// It has learned an address, or moved one, which may be at a secure port.
    Learned(FdbEntry),
    /// It has dropped a frame because of its source.
    Violation(PortId, VlanId, MacAddr),
    /// Events were lost.
    Lost,
}

/// The actions for the caller after an event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// True if the caller has to give the plane the changed addresses.
    pub(crate) settle: bool,
    /// True if the caller has to write the file of the running configuration, which has new sticky addresses.
    pub(crate) keep: bool,
    /// The ports that the caller has to shut down, each with the cause.
    pub(crate) shut: Vec<(PortId, ErrCause)>,
}

impl PortSecurity {
    /// The module, with the addresses that the last daemon has left in its file.
    pub(crate) fn new(ctx: &mut Context) -> Self {
        let text = files::read_text(&ctx.paths.secure_addresses(), MAX_FILE).unwrap_or_default();
        let saved: SecureAddresses = serde_json::from_str(&text).unwrap_or_default();
        ctx.switch.secure_mut().clone_from(&saved);
        // The plane may have learned addresses while no daemon ran.
        Self { saved, unseen: true, ..Self::default() }
    }

    /// Handles events of the plane.
    pub(crate) fn handle_all(&mut self, ctx: &mut Context, events: &[Event]) -> Outcome {
        let mut outcome = Outcome::default();
        for event in events {
            match *event {
                Event::Learned(entry) => self.learned(ctx, entry, &mut outcome),
                Event::Violation(port, vlan, mac) => self.violation(ctx, port, vlan, mac, &mut outcome),
                Event::Lost => self.unseen = true,
            }
        }
        self.look(ctx, &mut outcome);
        outcome.keep |= std::mem::take(&mut self.converted);
        self.save(ctx);
        outcome
    }

    /// Reads the plane's addresses at secure ports if it may have learned some that it has not reported.
    fn look(&mut self, ctx: &mut Context, outcome: &mut Outcome) {
        if !std::mem::take(&mut self.unseen) {
            return;
        }
        for port in secure_ports(ctx) {
            let filter = FdbFilter { port: Some(port), kind: Some(FdbKind::Dynamic), ..FdbFilter::default() };
            let mut entries = Vec::new();
            ctx.plane.fdb_walk(&filter, &mut |entry| entries.push(entry));
            entries.into_iter().for_each(|entry| self.learned(ctx, entry, outcome));
        }
    }

    fn learned(&mut self, ctx: &mut Context, entry: FdbEntry, outcome: &mut Outcome) {
        let Some(port) = entry.port.filter(|port| is_secure(ctx, *port)) else { return };
        let Some(name) = ctx.switch.ports().name(port).map(str::to_owned) else { return };
        let Some(sticky) = interface(ctx, &name).map(|it| it.switchport.security.sticky) else { return };
        if sticky {
            let added = ctx.switch.add_sticky(&name, entry.vlan, entry.mac);
            outcome.keep |= added;
            outcome.settle |= added;
        } else {
            let learned = Learned { vlan: entry.vlan, mac: entry.mac, since_ms: ctx.clock.boot_ms() };
            outcome.settle |= ctx.switch.add_secure(&name, learned);
        }
    }

    fn violation(
        &mut self,
        ctx: &mut Context,
        port: PortId,
        vlan: VlanId,
        mac: MacAddr,
        outcome: &mut Outcome,
    ) {
        let now_ms = ctx.clock.now_ms();
        let before = self.last.get(&port).map_or(0, |last| last.log_ms);
        let Some(name) = ctx.switch.ports().name(port).map(str::to_owned) else { return };
        let violation = interface(ctx, &name).map(|it| it.switchport.security.violation);
        let Some(violation) = violation.filter(|_| is_secure(ctx, port)) else { return };
        let logs = violation != Violation::Protect && before <= now_ms;
        let log_ms = if logs { now_ms + LOG_EVERY_MS } else { before };
        self.last.insert(port, Last { vlan, mac, log_ms });
        if logs {
            let text = format!(
                "Security violation occurred, caused by MAC address {mac} on port {name} in VLAN {vlan}."
            );
            ctx.log("PORT_SECURITY", 2, "PSECURE_VIOLATION", &text);
        }
        if violation == Violation::Shutdown {
            outcome.shut.push((port, ErrCause::PsecureViolation));
        }
    }

    /// Writes the addresses to the file if they have changed.
    fn save(&mut self, ctx: &mut Context) {
        if *ctx.switch.secure() == self.saved {
            return;
        }
        self.saved = ctx.switch.secure().clone();
        let path = ctx.paths.secure_addresses();
        let text = serde_json::to_vec(&self.saved).unwrap_or_default();
        if let Err(error) = files::replace_quickly(&path, &text).map_err(FileError::at(&path)) {
            let text = format!("a restart of the daemon would forget learned secure addresses: {error}");
            ctx.log("PORT_SECURITY", 3, "FILE", &text);
        }
    }

    /// Removes the addresses whose ageing time has passed. Returns true if there were any.
    pub(crate) fn age(&mut self, ctx: &mut Context) -> bool {
        let now = ctx.clock.boot_ms();
        let ages = switchports(ctx.switch.config())
            .map(|(name, it)| (name.to_owned(), u64::from(it.switchport.security.aging_min) * 60_000));
        let ages: BTreeMap<String, u64> = ages.filter(|(_, age_ms)| *age_ms > 0).collect();
        let due = |name: &str, learned: &Learned| {
            ages.get(name).is_some_and(|age_ms| learned.since_ms + age_ms <= now)
        };
        let any = ctx.switch.secure_mut().remove(due);
        self.save(ctx);
        any
    }

    /// `clear port-security`: removes the learned, sticky and configured addresses that `filter` selects.
    pub(crate) fn clear(&mut self, ctx: &mut Context, filter: &SecureFilter) -> Outcome {
        let named = |name: &str, mac: MacAddr| {
            filter.interface.as_ref().is_none_or(|only| only.to_string() == name)
                && filter.mac.is_none_or(|only| only == mac)
        };
        let learned =
            filter.dynamic && ctx.switch.secure_mut().remove(|name, learned| named(name, learned.mac));
        let kept = ctx.switch.remove_secure(|name, mac, kind| {
            named(name, mac)
                && match kind {
                    SecureKind::Static => filter.configured,
                    SecureKind::Sticky => filter.sticky,
                }
        });
        self.save(ctx);
        Outcome { settle: learned || kept, keep: kept, shut: Vec::new() }
    }
}

impl Module for PortSecurity {
    type Event<'a> = &'a [Event];

    fn configure(&mut self, ctx: &mut Context) {
        // Forget the learned addresses of a port without a link: another host may be there when the link is back. Sticky and
        // configured addresses stay, as in IOS.
        let state = ctx.plane.state();
        let down: BTreeSet<String> = state
            .ports
            .values()
            .filter(|port| port.stages.secure && !port.enabled)
            .map(|port| port.name.clone())
            .collect();
        ctx.switch.secure_mut().remove(|name, _| down.contains(name));
        self.converted |= ctx.switch.configure_secure();
        self.last.retain(|port, _| is_secure(ctx, *port));
        self.save(ctx);
    }

    fn handle(&mut self, _ctx: &mut Context, _events: &[Event]) -> usize {
        0
    }

    fn next_ms(&self, ctx: &Context) -> Option<u64> {
        ctx.switch.secure().next_ms(ctx.switch.config()).map(|at_ms| ctx.clock.of_boot(at_ms))
    }
}

fn interface<'a>(ctx: &'a Context, name: &str) -> Option<&'a Interface> {
    ctx.switch.config().interfaces.get(&InterfaceName::Netdev(name.to_owned()))
}

/// True if the plane's port with this number has port security.
pub(crate) fn is_secure(ctx: &Context, port: PortId) -> bool {
    ctx.plane.state().ports.get(&port).is_some_and(|port| port.stages.secure)
}

fn secure_ports(ctx: &Context) -> Vec<PortId> {
    let ports = &ctx.plane.state().ports;
    ports.iter().filter(|(_, port)| port.stages.secure).map(|(id, _)| *id).collect()
}

/// `show port-security`.
pub(crate) fn view(module: &PortSecurity, ctx: &mut Context) -> PortSecurityView {
    let now = ctx.clock.boot_ms();
    let config = ctx.switch.config().clone();
    let mut view = PortSecurityView::default();
    for (name, interface) in switchports(&config) {
        let (port, id) = (&interface.switchport, ctx.switch.ports().get(name));
        let Some(id) = id.filter(|_| port.stages.secure) else { continue };
        let forwards = ctx.plane.state().ports.get(&id).is_some_and(|port| port.enabled);
        let status = match (ctx.switch.err_cause(id), forwards) {
            (Some(ErrCause::PsecureViolation), _) => "secure-shutdown",
            (_, true) => "secure-up",
            (_, false) => "secure-down",
        };
        let learned = ctx.switch.secure().of(name).to_vec();
        let sticky = port.security.addresses.values().filter(|kind| **kind == SecureKind::Sticky).count();
        let last = module.last.get(&id);
        let dropped = ctx.plane.port_counters(id).dropped[DropReason::PortSecurity.index()];
        view.ports.push(SecurePort {
            interface: name.to_owned(),
            status,
            violation: port.security.violation.name(),
            maximum: port.security.maximum,
            total: port.security.addresses.len() + learned.len(),
            configured: port.security.addresses.len() - sticky,
            sticky,
            sticky_learning: port.security.sticky,
            aging_min: port.security.aging_min,
            violations: if port.security.violation == Violation::Protect { 0 } else { dropped },
            dropped,
            last_source: last.map(|last| last.mac),
            last_vlan: last.map(|last| last.vlan.get()),
        });
        view.addresses.extend(configured(port).map(|(vlan, mac, kind)| SecureAddressView {
            interface: name.to_owned(),
            vlan: vlan.get(),
            mac,
            kind: if kind == SecureKind::Sticky { "sticky" } else { "configured" },
            remaining_s: None,
        }));
        let time_ms = u64::from(port.security.aging_min) * 60_000;
        view.addresses.extend(learned.into_iter().map(|learned| SecureAddressView {
            interface: name.to_owned(),
            vlan: learned.vlan.get(),
            mac: learned.mac,
            kind: "dynamic",
            remaining_s:
                (time_ms > 0).then(|| (learned.since_ms + time_ms).saturating_sub(now).div_ceil(1000)),
        }));
    }
    view.addresses.sort_by_key(|address: &view::SecureAddressView| (address.vlan, address.mac));
    view
}

#[cfg(test)]
#[path = "port_security_tests.rs"]
mod tests;
