//! Ports that the switch has shut down by itself ("err-disable"), for all causes but those of spanning tree, which keeps
//! a list of its own because it acts on the protocol thread (`lanyard_stp::Bridge::err_disabled`).
//!
//! Invariants: an entry names a switch port that the configuration does not shut down; `shutdown` removes it. While there
//! is an entry, the port is not enabled in the plane and no action brings its netdev up. Times are milliseconds since the
//! machine was started, so that they mean the same to the next daemon.

use crate::actions::Action;
use crate::names::switchports;
use crate::ports::PortIds;
use lanyard_config::Config;
use lanyard_config::spanning_tree::ErrDisable;
use lanyard_pipeline::state::PlaneState;
use lanyard_types::ErrCause;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The ports that are shut down, by the names of their interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrDisabled {
    ports: BTreeMap<String, Held>,
}

/// Why a port is shut down, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The cause.
    pub cause: ErrCause,
    /// When the port is enabled again; `None` if the switch does not enable it by itself.
    pub until_ms: Option<u64>,
}

impl ErrDisabled {
    /// Shuts a port down. Returns false if it is shut down already; then the first cause stays.
    pub fn insert(&mut self, now: u64, name: &str, cause: ErrCause, recovery: &ErrDisable) -> bool {
        if self.ports.contains_key(name) {
            return false;
        }
        let until_ms = until(now, cause, recovery);
        self.ports.insert(name.to_owned(), Held { cause, until_ms });
        true
    }
    /// Why a port is shut down; `None` if it is not.
    #[must_use]
    pub fn cause(&self, name: &str) -> Option<ErrCause> {
        self.ports.get(name).map(|held| held.cause)
    }
    /// All ports that are shut down.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Held)> {
        self.ports.iter().map(|(name, held)| (name.as_str(), *held))
    }
    /// When the next interval ends and [`ErrDisabled::recover`] is due; `None` if no port is to be enabled again.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.ports.values().filter_map(|held| held.until_ms).min()
    }
    /// Removes the ports whose interval has passed, and returns them.
    pub fn recover(&mut self, now: u64) -> Vec<(String, ErrCause)> {
        let due = |held: &Held| held.until_ms.is_some_and(|at| at <= now);
        let list: Vec<_> = self
            .ports
            .iter()
            .filter(|(_, held)| due(held))
            .map(|(name, held)| (name.clone(), held.cause))
            .collect();
        self.ports.retain(|_, held| !due(held));
        list
    }
    /// Adapts the entries to a configuration that has been taken. A port that is shut down by it, or that is no switch port
    /// any more, is removed. If the configuration has enabled recovery for a cause, the interval of the cause's ports starts now;
    /// if it has disabled recovery, the ports stay shut down.
    pub fn configure(&mut self, now: u64, config: &Config) {
        let ports: BTreeMap<&str, bool> =
            switchports(config).map(|(name, interface)| (name, interface.shutdown)).collect();
        self.ports.retain(|name, _| ports.get(name.as_str()) == Some(&false));
        for held in self.ports.values_mut() {
            let wanted = until(now, held.cause, &config.errdisable);
            held.until_ms = wanted.map(|wanted| held.until_ms.unwrap_or(wanted).min(wanted));
        }
    }

    /// Disables the ports in a plane state that was compiled without them.
    pub(crate) fn overlay(&self, ports: &PortIds, state: &mut PlaneState) {
        for name in self.ports.keys() {
            if let Some(port) = ports.get(name).and_then(|port| state.ports.get_mut(&port)) {
                port.enabled = false;
            }
        }
    }
    /// Changes `actions` so that they do not bring up the netdevs of these ports.
    pub(crate) fn hold_down(&self, actions: &mut [Action]) {
        for action in actions {
            if let Action::Link { name, to, .. } = action
                && self.ports.contains_key(name)
            {
                to.up = false;
            }
        }
    }
}

fn until(now: u64, cause: ErrCause, recovery: &ErrDisable) -> Option<u64> {
    recovery.recovery.contains(&cause).then(|| now + u64::from(recovery.interval_s) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{compile, port_names};
    use crate::facts::Facts;
    use crate::spanning::set_up;
    use crate::testing::{config, facts, identity};

    const CAUSE: ErrCause = ErrCause::StormControl;

    fn recovers(interval_s: u32) -> ErrDisable {
        ErrDisable { recovery: [CAUSE].into(), interval_s }
    }

    fn held(ports: &ErrDisabled) -> Vec<(&str, Option<u64>)> {
        ports.iter().map(|(name, held)| (name, held.until_ms)).collect()
    }

    #[test]
    fn a_port_is_shut_down_once_and_recovers_after_the_interval() {
        let mut ports = ErrDisabled::default();
        assert!(ports.insert(1_000, "eth1", CAUSE, &recovers(30)));
        assert!(ports.insert(2_000, "eth2", CAUSE, &ErrDisable::default()));
        assert!(!ports.insert(9_000, "eth1", CAUSE, &ErrDisable::default()), "it is down already");
        assert_eq!(held(&ports), [("eth1", Some(31_000)), ("eth2", None)]);
        assert_eq!(ports.next_ms(), Some(31_000));
        assert!(ports.recover(30_999).is_empty());
        assert_eq!(ports.recover(31_000), [("eth1".to_owned(), CAUSE)]);
        assert_eq!((held(&ports), ports.next_ms()), (vec![("eth2", None)], None));
    }

    #[test]
    fn a_configuration_starts_and_stops_intervals_and_its_shutdown_forgets_the_port() {
        let mut ports = ErrDisabled::default();
        for name in ["eth1", "eth2", "eth3"] {
            ports.insert(0, name, CAUSE, &ErrDisable::default());
        }
        let mut config = config("eth1: access 1\neth2: access 1 shutdown\neth3: routed");
        config.errdisable = recovers(60);
        ports.configure(5_000, &config);
        assert_eq!(held(&ports), [("eth1", Some(65_000))]);
        ports.configure(10_000, &config);
        assert_eq!(held(&ports), [("eth1", Some(65_000))], "a later commit does not prolong it");
        config.errdisable.interval_s = 30;
        ports.configure(10_000, &config);
        assert_eq!(held(&ports), [("eth1", Some(40_000))], "a shorter interval does shorten it");
        config.errdisable.recovery.clear();
        ports.configure(11_000, &config);
        assert_eq!(held(&ports), [("eth1", None)]);
    }

    #[test]
    fn a_port_that_is_shut_down_neither_forwards_nor_comes_up() {
        let config = config("eth1: access 1\neth2: access 1");
        let ids = PortIds::default().assign(port_names(&config)).expect("few ports");
        let mut state = compile(&config, &facts("eth1, eth2"), &ids, &identity());
        let mut ports = ErrDisabled::default();
        ports.insert(0, "eth1", CAUSE, &ErrDisable::default());
        ports.insert(0, "eth9", CAUSE, &ErrDisable::default());
        ports.overlay(&ids, &mut state);
        let enabled: Vec<bool> = state.ports.values().map(|port| port.enabled).collect();
        assert_eq!(enabled, [false, true]);
        let down: Facts = facts("eth1 down, eth2 down");
        let up = |name: &str| set_up(&down, name, true).expect("it is down");
        let mut actions = [up("eth1"), up("eth2")];
        ports.hold_down(&mut actions);
        let to: Vec<bool> =
            actions.iter().map(|action| matches!(action, Action::Link { to, .. } if to.up)).collect();
        assert_eq!(to, [false, true]);
    }
}
