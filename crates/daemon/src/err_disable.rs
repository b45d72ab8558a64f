//! Ports that the switch shuts down by itself ("err-disable"), and their recovery.
//!
//! Spanning tree decides about its own cause on the protocol thread and reports it; for every other cause this module keeps
//! the entry ([`lanyard_switch::ErrDisabled`]), its timer and its file. It alone changes the netdevs of such ports.
//!
//! Invariants: the file is written whenever an entry changes, so that a restart of the daemon brings no port up. A port that
//! is shut down for two causes comes up when both have ended.

use crate::context::{Context, Module};
use crate::files::{self, FileError};
use lanyard_cli::view;
use lanyard_config::InterfaceName;
use lanyard_switch::spanning::set_up;
use lanyard_switch::{ErrDisabled, links};
use lanyard_types::{ErrCause, PortId};
use std::collections::BTreeSet;

/// The longest file that is read, in bytes: more than one entry for each possible port needs.
const MAX_FILE: usize = 1024 * 1024;

/// The module. The entries are in the switch, which compiles plane states with them.
#[derive(Debug, Default)]
pub(crate) struct ErrDisabling {
    /// The entries that the file contains.
    saved: ErrDisabled,
    /// The ports that spanning tree has shut down.
    of_trees: BTreeSet<String>,
}

/// An event of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A port is to be shut down.
    Disable(PortId, ErrCause),
    /// Spanning tree has shut a port down for a cause, or, with `None`, no longer holds it down.
    Tree(PortId, Option<ErrCause>),
}

impl ErrDisabling {
    /// The module, with the entries that the last daemon has left in its file.
    pub(crate) fn new(ctx: &mut Context) -> Self {
        let text = files::read_text(&ctx.paths.err_disabled(), MAX_FILE).unwrap_or_default();
        let saved: ErrDisabled = serde_json::from_str(&text).unwrap_or_default();
        ctx.switch.err_disabled_mut().clone_from(&saved);
        Self { saved, of_trees: BTreeSet::new() }
    }

    /// Writes the entries to the file if they have changed.
    fn save(&mut self, ctx: &mut Context) {
        let held = ctx.switch.err_disabled();
        if *held == self.saved {
            return;
        }
        self.saved = held.clone();
        let path = ctx.paths.err_disabled();
        let text = serde_json::to_vec(held).unwrap_or_default();
        if let Err(error) = files::replace_quickly(&path, &text).map_err(FileError::at(&path)) {
            let text =
                format!("ports in err-disable state would come up at a restart of the daemon: {error}");
            ctx.log("PM", 3, "ERR_DISABLE_FILE", &text);
        }
    }
}

impl Module for ErrDisabling {
    type Event<'a> = Event;

    fn configure(&mut self, ctx: &mut Context) {
        let now = ctx.clock.boot_ms();
        ctx.switch.configure_err_disabled(now);
        let held = ctx.switch.err_disabled();
        let forgotten: Vec<String> = self
            .saved
            .iter()
            .map(|(name, _)| name.to_owned())
            .filter(|name| held.cause(name).is_none())
            .collect();
        // No event reports that a port has left its bridge, or that the bridge has ended.
        let of_trees = of_trees(ctx);
        let released: Vec<String> = self.of_trees.difference(&of_trees).cloned().collect();
        self.of_trees = of_trees;
        // A port without an entry stays down if the configuration shuts it down; one that has become a routed port comes up.
        forgotten.iter().chain(&released).for_each(|name| update(ctx, name));
        self.save(ctx);
    }

    fn handle(&mut self, ctx: &mut Context, event: Event) -> usize {
        let (Event::Disable(port, _) | Event::Tree(port, _)) = event;
        let Some(name) = ctx.switch.ports().name(port).map(str::to_owned) else { return 0 };
        if let Event::Disable(_, cause) = event {
            let (now, recovery) = (ctx.clock.boot_ms(), ctx.switch.config().errdisable.clone());
            if !ctx.switch.err_disabled_mut().insert(now, &name, cause, &recovery) {
                return 0;
            }
            let text = format!("{cause} error detected on {name}, putting {name} in err-disable state");
            ctx.log("PM", 4, "ERR_DISABLE", &text);
            self.save(ctx);
        }
        self.of_trees = of_trees(ctx);
        update(ctx, &name);
        1
    }

    fn next_ms(&self, ctx: &Context) -> Option<u64> {
        ctx.switch.err_disabled().next_ms().map(|at_ms| ctx.clock.of_boot(at_ms))
    }

    fn tick(&mut self, ctx: &mut Context) {
        let now = ctx.clock.boot_ms();
        for (name, cause) in ctx.switch.err_disabled_mut().recover(now) {
            let text = format!("Attempting to recover from {cause} err-disable state on {name}");
            ctx.log("PM", 4, "ERR_RECOVER", &text);
            update(ctx, &name);
        }
        self.save(ctx);
    }
}

/// The ports that spanning tree holds down.
fn of_trees(ctx: &Context) -> BTreeSet<String> {
    let held = ctx.switch.spanning().into_iter().flat_map(|spanning| spanning.bridge().err_disabled());
    held.filter_map(|(port, _)| ctx.switch.ports().name(port).map(str::to_owned)).collect()
}

/// Brings a port's netdev up or down, as configuration and causes require.
fn update(ctx: &mut Context, name: &str) {
    let key = InterfaceName::Netdev(name.to_owned());
    let interface = ctx.switch.config().interfaces.get(&key);
    let Some(shutdown) = interface.map(|interface| interface.shutdown) else { return };
    let held = ctx.switch.ports().get(name).is_some_and(|port| ctx.switch.err_cause(port).is_some());
    let Some(action) = set_up(ctx.switch.facts(), name, !shutdown && !held) else { return };
    ctx.disable_ports(links::taken_down(std::slice::from_ref(&action)));
    for error in ctx.kernel.act(&[action]).into_iter().filter_map(Result::err) {
        ctx.log("PM", 3, "ERR_DISABLE", &error.to_string());
    }
    // The next change of the port must not depend on whether the event about this one has arrived.
    ctx.refresh();
}

/// The ports that are shut down, in natural order of their names.
pub(crate) fn view(ctx: &Context) -> Vec<view::ErrDisabledPort> {
    let now = ctx.clock.boot_ms();
    let mut list: Vec<(InterfaceName, ErrCause, Option<u64>)> = Vec::new();
    if let Some(spanning) = ctx.switch.spanning() {
        for port in spanning.bridge().port_summaries(now) {
            let name = ctx.switch.ports().name(port.port).map(str::to_owned);
            if let (Some(name), Some((cause, left_ms))) = (name, port.err_disabled) {
                list.push((InterfaceName::Netdev(name), cause, left_ms));
            }
        }
    }
    list.extend(ctx.switch.err_disabled().iter().map(|(name, held)| {
        let left_ms = held.until_ms.map(|at_ms| at_ms.saturating_sub(now));
        (InterfaceName::Netdev(name.to_owned()), held.cause, left_ms)
    }));
    list.sort();
    let shown = |(name, cause, left_ms): (InterfaceName, ErrCause, Option<u64>)| view::ErrDisabledPort {
        interface: name.to_string(),
        cause,
        time_left_s: left_ms.map(|ms| ms.div_ceil(1000)),
    };
    list.into_iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use crate::core::Core;
    use crate::testing::{Bench, config, messages};
    use lanyard_cli::backend::Interfaces;
    use lanyard_types::ErrCause;

    const TEXT: &str = "errdisable recovery cause storm-control\nerrdisable recovery interval 60\n\
        interface eth1\n switchport\ninterface eth2\n switchport";

    fn bench() -> Bench {
        let bench = Bench::new();
        bench.kernel.add("eth1");
        bench.kernel.add("eth2");
        bench
    }

    fn disable(core: &mut Core, name: &str) {
        let port = core.ctx.switch.ports().get(name).expect("a port");
        core.err_disable(port, ErrCause::StormControl);
    }

    fn shown(core: &mut Core) -> Vec<(String, &'static str, Option<u64>)> {
        let list = core.err_disabled();
        list.into_iter().map(|port| (port.interface, port.cause.name(), port.time_left_s)).collect()
    }

    fn enabled(core: &Core, name: &str) -> bool {
        core.ctx.plane.state().ports.values().any(|port| port.name == name && port.enabled)
    }

    #[test]
    fn a_port_goes_down_at_once_and_recovers_after_the_interval() {
        let bench = bench();
        let mut core = bench.core();
        core.take(config(TEXT)).expect("good");
        disable(&mut core, "eth1");
        disable(&mut core, "eth1");
        assert!(!bench.kernel.get("eth1").admin_up && bench.kernel.get("eth2").admin_up);
        assert!(!enabled(&core, "eth1") && enabled(&core, "eth2"));
        assert_eq!(shown(&mut core), [("eth1".into(), "storm-control", Some(60))]);
        assert_eq!(
            core.interfaces(None).interfaces[0].error.as_deref(),
            Some("err-disabled (storm-control)")
        );
        bench.clock.set(59_999);
        core.tick();
        assert!(!bench.kernel.get("eth1").admin_up);
        bench.clock.set(60_000);
        assert!(core.next_ms().is_some_and(|at_ms| at_ms <= 60_000), "the deadline is known");
        core.tick();
        assert!(bench.kernel.get("eth1").admin_up);
        assert!(shown(&mut core).is_empty());
        let log = messages(&core.ctx);
        let count = |text: &str| log.iter().filter(|line| *line == text).count();
        let down = "ERR_DISABLE: storm-control error detected on eth1, putting eth1 in err-disable state";
        let up = "ERR_RECOVER: Attempting to recover from storm-control err-disable state on eth1";
        assert_eq!((count(down), count(up)), (1, 1), "{log:?}");
    }

    #[test]
    fn a_restart_and_a_commit_leave_the_port_down_and_shutdown_ends_it() {
        let bench = bench();
        let mut core = bench.core();
        core.take(config(TEXT)).expect("good");
        disable(&mut core, "eth1");
        drop(core);
        let mut core = bench.core();
        core.take(config(&format!("hostname other\n{TEXT}"))).expect("good");
        assert!(!bench.kernel.get("eth1").admin_up && !enabled(&core, "eth1"));
        assert_eq!(shown(&mut core), [("eth1".into(), "storm-control", Some(60))]);
        let shut = TEXT.replace("interface eth1\n", "interface eth1\n shutdown\n");
        core.take(config(&shut)).expect("good");
        assert!(shown(&mut core).is_empty());
        core.take(config(TEXT)).expect("good");
        assert!(bench.kernel.get("eth1").admin_up, "no shutdown brings it up");
    }

    #[test]
    fn a_port_that_is_no_switch_port_any_more_comes_up() {
        let bench = bench();
        let mut core = bench.core();
        core.take(config(TEXT)).expect("good");
        disable(&mut core, "eth1");
        core.take(config(&TEXT.replacen(" switchport\n", " no switchport\n", 1))).expect("good");
        assert!(shown(&mut core).is_empty());
        assert!(bench.kernel.get("eth1").admin_up);
    }
}
