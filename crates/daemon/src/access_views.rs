//! Users and their commands, for the command line.

use crate::clock::wall_clock;
use crate::core::Core;
use lanyard_access::secret;
use lanyard_cli::backend::{Access, Entered, Refusal};
use lanyard_cli::view::AuditLog;
use lanyard_config::Config;

impl Access for Core {
    fn hash_secrets(&mut self, config: &mut Config) -> Result<(), Refusal> {
        config.access.hash(secret::hash).map_err(|error| Refusal(error.to_string()))
    }
    fn audit(&mut self, entered: Entered<'_>) {
        let text = self.audit.add(wall_clock(), entered);
        self.ctx.log.print(&format!("lanyard: {text}"));
    }
    fn clear_line(&mut self, name: &str) -> bool {
        self.users.clear(name)
    }
    fn audit_log(&mut self) -> AuditLog {
        self.audit.view()
    }
}
