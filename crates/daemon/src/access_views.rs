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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config, messages};
    use lanyard_config::access::{Algorithm, Secret};

    #[test]
    fn secrets_in_plain_text_are_hashed() {
        let mut core = Bench::new().core();
        let mut config = config(
            "username ann secret tiger\nusername bob privilege 15\nenable algorithm-type sha256 secret 0 lion",
        );
        core.hash_secrets(&mut config).expect("hashed");
        let ann = config.access.users["ann"].secret.clone().expect("a secret");
        for (hash, right, prefix) in [(&ann, "tiger", "$9$"), (&config.access.enable[&15], "lion", "$8$")] {
            assert!(matches!(hash, Secret::Hashed(_, text) if text.starts_with(prefix)), "{right}");
            assert!(secret::matches(hash, right) && !secret::matches(hash, "wolf"), "{right}");
        }
        let hashed = config.clone();
        core.hash_secrets(&mut config).expect("hashed");
        assert!(config == hashed, "a hash is not hashed again");
        let bob = config.access.users.get_mut("bob").expect("a user");
        bob.secret = Some(Secret::Plain(Algorithm::Md5, "bear".into()));
        let refusal = core.hash_secrets(&mut config).expect_err("refused").0;
        assert_eq!(refusal, "a secret of type 5 is not made: use type 8 or 9");
    }

    #[test]
    fn entered_commands_are_in_the_audit_log_and_not_in_the_log() {
        let mut core = Bench::new().core();
        for command in ["vlan 10", "no vlan 10"] {
            core.audit(Entered { user: "ann", line: "vty 0", host: "192.0.2.1", command });
        }
        let view = core.audit_log();
        let shown: Vec<_> = view
            .commands
            .iter()
            .map(|entry| format!("{} {} {} {}", entry.user, entry.line, entry.host, entry.command))
            .collect();
        assert_eq!(shown, ["ann vty 0 192.0.2.1 vlan 10", "ann vty 0 192.0.2.1 no vlan 10"]);
        assert_eq!(view.overwritten, 0);
        // A pasted configuration would displace the messages of the log.
        assert!(messages(&core.ctx).is_empty());
    }

    #[test]
    fn clear_line_ends_the_session_on_that_line_only() {
        let mut core = Bench::new().core();
        let lines = ["ann", "bob"].map(|user| core.users.add_vty(user, "local", 0).expect("a line"));
        let ended = lines.map(|line| core.users.cleared(line));
        assert!(!core.clear_line("vty 2"), "there is no session on it");
        assert!(core.clear_line("vty 1"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let is_ended = ended.map(|ended| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = ended.notified() => true,
                    () = std::future::ready(()) => false,
                }
            })
        });
        assert_eq!(is_ended, [false, true]);
    }
}
