//! Users, privilege levels and the audit log, for `show`.

use serde::Serialize;

/// `show privilege`.
#[derive(Debug, Clone, Serialize)]
pub struct Privilege {
    /// The session's privilege level, 0..=15.
    pub level: u8,
}

/// `show archive log config`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AuditLog {
    /// The commands, the latest at the end.
    pub commands: Vec<AuditEntry>,
    /// The maximum number of commands that are kept.
    pub capacity: u64,
    /// The number of commands that have been overwritten since the start of the daemon.
    pub overwritten: u64,
}

/// A configuration command that was entered.
#[derive(Debug, Clone, Serialize)]
pub struct AuditEntry {
    /// The time at which it was entered, RFC 3339 in UTC.
    pub time: String,
    /// The user.
    pub user: String,
    /// The terminal line, such as `vty 0`.
    pub line: String,
    /// The host that the user came from: an address, or `local`.
    pub host: String,
    /// The command, without secrets. A command of exec mode begins with `!exec:`.
    pub command: String,
}
