//! The management thread's part of storm control: the actions at ports whose storm control drops frames
//! (`storm-control action`).
//!
//! The plane drops what exceeds a level and counts it. While a port has a level and an action, this module reads the count
//! every [`LOOK_EVERY_MS`], as often as IOS measures. Invariant: a storm causes one message when it begins, however long it
//! lasts and however many frames are dropped; it ends after an interval without drops.

use crate::context::{Context, Module};
use lanyard_config::InterfaceName;
use lanyard_switch::compile::switchports;
use lanyard_types::{DropReason, ErrCause, PortId, StormAction};
use std::collections::BTreeMap;

/// The interval between two readings of the counters, in milliseconds.
const LOOK_EVERY_MS: u64 = 1_000;

/// The ports that are watched.
#[derive(Debug, Default)]
pub(crate) struct StormControl {
    watched: BTreeMap<PortId, Watched>,
    /// When the counters are read next; `None` while no port is watched.
    next_ms: Option<u64>,
}

/// The state of a port.
#[derive(Debug, Clone, Copy)]
struct Watched {
    /// Frames that storm control had dropped at the last reading.
    dropped: u64,
    /// True while a storm lasts.
    storm: bool,
}

impl Module for StormControl {
    type Event<'a> = ();

    fn configure(&mut self, ctx: &mut Context) {
        let mut watched = BTreeMap::new();
        for (name, interface) in switchports(ctx.switch.config()) {
            let settings = &interface.switchport.stages;
            let acts = settings.storm_action != StormAction::default();
            if acts && settings.storm.iter().any(Option::is_some) {
                watched.extend(ctx.switch.ports().get(name).map(|port| (port, ())));
            }
        }
        self.watched.retain(|port, _| watched.contains_key(port));
        for (port, ()) in watched {
            self.watched.entry(port).or_insert_with(|| Watched { dropped: dropped(ctx, port), storm: false });
        }
        let now_ms = ctx.clock.now_ms();
        let any = !self.watched.is_empty();
        self.next_ms = any.then(|| self.next_ms.unwrap_or(now_ms + LOOK_EVERY_MS));
    }

    fn handle(&mut self, _ctx: &mut Context, (): ()) -> usize {
        0
    }

    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        self.next_ms
    }
}

impl StormControl {
    /// Reads the counters if that is due. Returns the ports to be shut down, with the cause.
    pub(crate) fn look(&mut self, ctx: &mut Context) -> Vec<(PortId, ErrCause)> {
        let now_ms = ctx.clock.now_ms();
        if self.next_ms.is_none_or(|at_ms| at_ms > now_ms) {
            return Vec::new();
        }
        self.next_ms = Some(now_ms + LOOK_EVERY_MS);
        let mut shut = Vec::new();
        for (port, watched) in &mut self.watched {
            let count = dropped(ctx, *port);
            let (before, stormed) = (watched.dropped, watched.storm);
            // A count that is lower has been cleared.
            *watched =
                Watched { dropped: count, storm: if count < before { count > 0 } else { count > before } };
            if !watched.storm {
                continue;
            }
            let action = action(ctx, *port);
            let name = ctx.port_name(*port);
            if action.trap && !stormed {
                let text = format!(
                    "A storm was detected on {name}. A packet filter action has been applied on the interface."
                );
                ctx.log("STORM_CONTROL", 3, "FILTERED", &text);
            }
            // This includes a storm that began before the line `storm-control action shutdown` was entered.
            if action.shutdown {
                let text = format!("A packet storm was detected on {name}. The interface has been disabled.");
                ctx.log("STORM_CONTROL", 3, "SHUTDOWN", &text);
                shut.push((*port, ErrCause::StormControl));
            }
        }
        shut
    }
}

/// Frames that storm control has dropped at a port.
fn dropped(ctx: &mut Context, port: PortId) -> u64 {
    ctx.plane.port_counters(port).dropped[DropReason::Storm.index()]
}

fn action(ctx: &Context, port: PortId) -> StormAction {
    let name = ctx.switch.ports().name(port).map(|name| InterfaceName::Netdev(name.to_owned()));
    let interface = name.and_then(|name| ctx.switch.config().interfaces.get(&name));
    interface.map(|interface| interface.switchport.stages.storm_action).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::core::Core;
    use crate::testing::{Bench, config, messages};

    fn broadcasts(bench: &Bench, core: &mut Core, count: usize) {
        let port = core.ctx.switch.ports().get("eth1").expect("a port");
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame.resize(60, 0);
        for _ in 0..count {
            bench.ports.borrow().as_ref().expect("a plane").push(port, &frame);
        }
        core.plane_events();
    }

    /// A switch whose port eth1 lets no broadcast in, with these lines.
    fn switch(lines: &str) -> (Bench, Core) {
        let bench = Bench::new();
        bench.kernel.add("eth1");
        bench.kernel.add("eth2");
        let mut core = bench.core();
        let text = format!(
            "interface eth2\n switchport\ninterface eth1\n switchport\n storm-control broadcast level 0\n{lines}"
        );
        core.take(config(&text)).expect("good");
        (bench, core)
    }

    /// Advances the clock to `ms` and does what is due.
    fn at(bench: &Bench, core: &mut Core, ms: u64) {
        bench.clock.set(ms);
        core.tick();
    }

    fn said(core: &Core, mnemonic: &str) -> usize {
        messages(&core.ctx).iter().filter(|line| line.starts_with(mnemonic)).count()
    }

    #[test]
    fn a_storm_is_logged_when_it_begins() {
        let (bench, mut core) = switch(" storm-control action trap");
        at(&bench, &mut core, 1_000);
        assert_eq!(said(&core, "FILTERED"), 0);
        for second in 2..6 {
            broadcasts(&bench, &mut core, 10);
            at(&bench, &mut core, second * 1_000);
            assert_eq!(said(&core, "FILTERED"), 1, "second {second}");
        }
        at(&bench, &mut core, 6_000);
        broadcasts(&bench, &mut core, 1);
        assert_eq!(said(&core, "FILTERED"), 1, "not before the counters are read");
        at(&bench, &mut core, 7_000);
        assert_eq!(said(&core, "FILTERED"), 2, "another storm");
        assert!(bench.kernel.get("eth1").admin_up);
    }

    #[test]
    fn a_storm_shuts_the_port_down() {
        let (bench, mut core) = switch(" storm-control action shutdown");
        broadcasts(&bench, &mut core, 1);
        at(&bench, &mut core, 1_000);
        assert_eq!((said(&core, "SHUTDOWN"), said(&core, "ERR_DISABLE"), said(&core, "FILTERED")), (1, 1, 0));
        assert!(!bench.kernel.get("eth1").admin_up && bench.kernel.get("eth2").admin_up);
    }

    #[test]
    fn storm_counters_are_not_read_without_an_action() {
        let (bench, mut core) = switch("");
        assert_eq!(core.storm_control.next_ms, None);
        broadcasts(&bench, &mut core, 1);
        at(&bench, &mut core, 5_000);
        assert_eq!(said(&core, "FILTERED"), 0);
    }
}
