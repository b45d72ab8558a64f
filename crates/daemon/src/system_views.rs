//! The switch as a system, for `show`: version, users, log and clock.

use crate::core::Core;
use crate::machine;
use jiff::Timestamp;
use lanyard_cli::backend::{Interfaces, System};
use lanyard_cli::view;

impl System for Core {
    fn version(&mut self) -> view::Version {
        let identity = self.ctx.switch.identity();
        view::Version {
            version: crate::VERSION.into(),
            hostname: self.ctx.switch.config().hostname.clone(),
            instance: identity.instance.clone(),
            plane: self.ctx.plane.capabilities().name.into(),
            uptime_s: self.ctx.clock.now_ms() / 1000,
            plane_uptime_s: self.plane_since.elapsed().ok().map(|since| since.as_secs()),
            kernel: crate::kernel_release(),
            base_mac: Some(identity.base_mac),
            ports: u32::try_from(lanyard_switch::compile::ports(self.ctx.switch.config()).count())
                .unwrap_or(u32::MAX),
            startup_config: Some(self.startup_file.display().to_string()),
        }
    }
    fn users(&mut self) -> view::Users {
        self.users.view(self.ctx.clock.now_ms())
    }
    fn logging(&mut self) -> view::Logging {
        self.ctx.log.view()
    }
    fn logging_persistent(&mut self) -> Option<view::PersistentLog> {
        self.ctx.log.persistent(true)
    }
    fn clear_logging(&mut self) {
        self.ctx.log.clear();
    }
    fn log(&mut self, facility: &str, severity: u8, mnemonic: &str, text: &str) {
        self.ctx.log(facility, severity, mnemonic, text);
    }
    fn clock(&self) -> view::Clock {
        let zone = self.ctx.switch.config().appliance.timezone.as_ref();
        machine::clock(Timestamp::now(), zone, machine::is_synchronized())
    }
    fn processes(&mut self) -> view::Processes {
        view::Processes { processes: machine::processes(&self.children.pids()) }
    }
    fn inventory(&mut self) -> view::Inventory {
        machine::inventory(&self.interfaces(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config};

    #[test]
    fn the_version_counts_uptime_and_ports() {
        let bench = Bench::new();
        bench.kernel.add("eth1");
        let mut core = bench.core();
        core.take(config("hostname sw1\ninterface eth1\n switchport\ninterface vlan 1")).expect("taken");
        bench.clock.set(61_999);
        let version = core.version();
        assert_eq!((version.hostname.as_str(), version.instance.as_str()), ("sw1", "test"));
        assert_eq!((version.uptime_s, version.ports), (61, 1), "a VLAN interface is no port");
        assert_eq!(version.startup_config, Some(bench.paths().startup_config().display().to_string()));
        assert!(version.plane_uptime_s.is_some_and(|since_s| since_s < 60), "{:?}", version.plane_uptime_s);
    }

    #[test]
    fn the_log_is_shown_until_it_is_cleared() {
        let mut core = Bench::new().core();
        core.clear_logging();
        System::log(&mut core, "SYS", 5, "CONFIG_I", "Configured from vty 0 by ann");
        let shown = core.logging().messages;
        assert_eq!((shown.len(), shown[0].mnemonic.as_str()), (1, "CONFIG_I"));
        core.clear_logging();
        assert!(core.logging().messages.is_empty());
    }
}
