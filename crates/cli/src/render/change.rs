//! The commands for safe changes: checkpoints, the lock of the configuration, and a scheduled reload.

use super::table::{columns, duration};
use crate::view::{Archive, ConfigurationLock, ScheduledReload};

/// `show archive`.
pub fn archive(view: &Archive) -> String {
    let last = view.checkpoints.last().map(|checkpoint| checkpoint.number);
    let rows: Vec<Vec<String>> = view
        .checkpoints
        .iter()
        .map(|checkpoint| {
            let mark = if Some(checkpoint.number) == last { "<- most recent" } else { "" };
            let number = checkpoint.number.to_string();
            vec![number, checkpoint.time.clone(), checkpoint.user.clone(), mark.to_owned()]
        })
        .collect();
    let (count, capacity) = (rows.len(), view.capacity);
    format!(
        "{count} of at most {capacity} checkpoints, in {}\n\n{}",
        view.directory,
        columns(&["Checkpoint", "Time", "User", ""], &rows, &[0])
    )
}

/// `show configuration lock`.
pub fn configuration_lock(view: &ConfigurationLock) -> String {
    let (Some(line), Some(user), Some(since_s)) = (&view.line, &view.user, view.since_s) else {
        return "The configuration is not locked\n".into();
    };
    format!("The configuration is locked by {user} on {line} since {}\n", duration(since_s))
}

/// `show reload`.
pub fn scheduled_reload(view: &ScheduledReload) -> String {
    let Some(in_s) = view.in_s else { return "No reload is scheduled\n".into() };
    let user = view.user.as_deref().unwrap_or("unknown");
    let reason = view.reason.as_ref().map_or_else(String::new, |reason| format!("Reason: {reason}\n"));
    format!("Reload scheduled in {} by {user}\n{reason}", duration(in_s))
}
