//! The switch as a system, for `show`: version, users, log and clock.

use crate::clock::wall_clock;
use crate::core::Core;
use lanyard_cli::backend::System;
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
    fn clear_logging(&mut self) {
        self.ctx.log.clear();
    }
    fn log(&mut self, facility: &str, severity: u8, mnemonic: &str, text: &str) {
        self.ctx.log(facility, severity, mnemonic, text);
    }
    fn clock(&self) -> String {
        wall_clock()
    }
}
