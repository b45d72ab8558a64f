//! Data about ports that is in neither the configuration nor the plane's tables.

use lanyard_netdev::LinkStats;
use std::collections::BTreeMap;

/// Data about ports that is in neither the configuration nor the plane's tables.
#[derive(Debug, Default)]
pub(crate) struct PortNotes {
    /// Ports that the plane refused, with the reasons.
    pub(crate) faults: BTreeMap<String, String>,
    /// Netdev counters at the last `clear counters`.
    pub(crate) cleared: BTreeMap<String, LinkStats>,
}

#[cfg(test)]
mod tests {
    use crate::core::Core;
    use crate::testing::{Bench, config, messages};
    use lanyard_cli::backend::Interfaces;
    use lanyard_config::InterfaceName;
    use lanyard_netdev::Event;

    const BOTH: &str = "interface eth1\n switchport\ninterface eth2\n switchport";
    const ONE: &str = "interface eth1\n switchport";

    fn switch() -> (Bench, Core) {
        let bench = Bench::new();
        bench.kernel.add("eth1");
        bench.kernel.add("eth2");
        let mut core = bench.core();
        core.take(config(BOTH)).expect("taken");
        (bench, core)
    }

    /// The errors that `show interfaces` has, by interface.
    fn errors(core: &mut Core) -> Vec<String> {
        let shown = core.interfaces(None).interfaces;
        shown.iter().filter_map(|it| Some(format!("{}: {}", it.name, it.error.as_ref()?))).collect()
    }

    #[test]
    fn a_refused_port_shows_its_error_until_it_leaves_the_configuration() {
        let (bench, mut core) = switch();
        let ifindex = bench.kernel.get("eth2").ifindex;
        bench.kernel.state().links.remove(&(None, "eth2".into()));
        core.netdev_events(vec![Event::LinkGone { ifindex, name: "eth2".into() }]);
        bench.kernel.add("eth2");
        *bench.plane.refused_port.lock() = Some("eth2".into());
        let came = bench.kernel.change("eth2", |_| {});
        core.netdev_events(vec![came]);
        core.settle();
        assert_eq!(errors(&mut core), ["eth2: eth2 is refused by the test"]);
        let line = "PORT: Interface eth2 does not forward: eth2 is refused by the test";
        let logged = messages(&core.ctx).into_iter().filter(|held| held == line).count();
        assert_eq!(logged, 1, "the same reason is logged once");
        core.take(config(ONE)).expect("taken");
        assert!(core.ports.faults.is_empty());
        *bench.plane.refused_port.lock() = None;
        core.take(config(BOTH)).expect("taken");
        assert_eq!(errors(&mut core), [""; 0]);
    }

    #[test]
    fn counters_stay_cleared_through_a_change_and_a_restart_shows_those_of_the_netdev() {
        let (bench, mut core) = switch();
        let count = |core: &mut Core, errors| {
            bench.kernel.change("eth1", |link| link.stats.rx.errors = errors);
            bench.kernel.change("eth2", |link| link.stats.rx.errors = errors);
            let shown = core.interfaces(None).interfaces;
            shown.iter().map(|it| it.rx.errors).collect::<Vec<_>>()
        };
        assert_eq!(count(&mut core, 5), [5, 5]);
        core.clear_counters(Some(&InterfaceName::Netdev("eth2".into()))).expect("an interface");
        assert_eq!(count(&mut core, 6), [6, 1]);
        core.take(config(&format!("{BOTH}\n description uplink"))).expect("taken");
        assert_eq!(count(&mut core, 7), [7, 2]);
        core.clear_counters(None).expect("all");
        assert_eq!(count(&mut core, 8), [1, 1]);
        drop(core);
        let mut core = bench.core();
        core.take(config(BOTH)).expect("taken");
        assert_eq!(count(&mut core, 9), [9, 9]);
    }
}
