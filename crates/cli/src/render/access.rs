//! `show privilege` and `show archive log config`.

use super::columns;
use crate::view::{AuditLog, Privilege};

/// `show privilege`.
#[must_use]
pub fn privilege(view: &Privilege) -> String {
    format!("Current privilege level is {}\n", view.level)
}

/// `show archive log config`.
#[must_use]
pub fn audit_log(view: &AuditLog) -> String {
    let row = |entry: &crate::view::AuditEntry| {
        let at = format!("{}@{}", entry.user, entry.line);
        vec![entry.time.clone(), at, entry.host.clone(), entry.command.clone()]
    };
    let rows: Vec<_> = view.commands.iter().map(row).collect();
    let head =
        format!("{} of at most {} commands, {} overwritten\n\n", rows.len(), view.capacity, view.overwritten);
    head + &columns(&["Time", "user@line", "Host", "Logged command"], &rows, &[])
}
