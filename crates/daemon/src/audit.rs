//! The audit log: every configuration command that was taken, with its time, its user and where the user came from.
//!
//! A command is kept in memory for `show archive log config`, and written to stderr, from where systemd's journal keeps it.
//! It does not go into the log of `show logging`, which a pasted configuration would otherwise displace.
//!
//! Invariant: bounded by [`CAPACITY`]; commands that are dropped from it are counted.

use lanyard_cli::backend::Entered;
use lanyard_cli::view::{AuditEntry, AuditLog};
use std::collections::VecDeque;

/// The number of commands that are kept.
const CAPACITY: usize = 1000;
/// The longest command that is kept, in characters; longer ones are cut.
const MAX_COMMAND: usize = 512;

/// The commands.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    entries: VecDeque<AuditEntry>,
    overwritten: u64,
}

impl Audit {
    /// Adds a command; returns its line for stderr.
    pub(crate) fn add(&mut self, time: String, entered: Entered<'_>) -> String {
        let clean = |text: &str| -> String {
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_COMMAND).collect()
        };
        let (user, line, host) = (clean(entered.user), clean(entered.line), clean(entered.host));
        let command = clean(entered.command);
        let text = format!(
            "%PARSER-5-CFGLOG_LOGGEDCMD: User:{user} Line:{line} Host:{host} logged command:{command}"
        );
        if self.entries.len() == CAPACITY {
            self.entries.pop_front();
            self.overwritten += 1;
        }
        self.entries.push_back(AuditEntry { time, user, line, host, command });
        text
    }
    /// `show archive log config`.
    pub(crate) fn view(&self) -> AuditLog {
        AuditLog {
            commands: self.entries.iter().cloned().collect(),
            capacity: CAPACITY as u64,
            overwritten: self.overwritten,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_and_counted() {
        let mut audit = Audit::default();
        fn entered(command: &str) -> Entered<'_> {
            Entered { user: "ann", line: "vty 0", host: "local", command }
        }
        let text = audit.add("t".into(), entered("banner motd #\na#"));
        assert_eq!(
            text,
            "%PARSER-5-CFGLOG_LOGGEDCMD: User:ann Line:vty 0 Host:local logged command:banner motd # a#"
        );
        let long = "x".repeat(5000);
        for _ in 0..CAPACITY {
            audit.add("t".into(), entered(&long));
        }
        let view = audit.view();
        assert_eq!((view.commands.len(), view.overwritten), (CAPACITY, 1));
        assert_eq!(view.commands[0].command.len(), MAX_COMMAND);
    }
}
