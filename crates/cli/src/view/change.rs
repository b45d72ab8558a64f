//! The data of the commands for safe changes: checkpoints, the lock of the configuration, and a scheduled reload.

use serde::Serialize;

/// `show archive`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Archive {
    /// The checkpoints, the oldest first.
    pub checkpoints: Vec<Checkpoint>,
    /// The number of checkpoints that are kept.
    pub capacity: u64,
    /// The directory with their files.
    pub directory: String,
}

/// One checkpoint: a configuration that was in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// Its number, from 1; numbers are not used again.
    pub number: u32,
    /// When it was saved, RFC 3339.
    pub time: String,
    /// The user who made the change that led to this configuration; `startup` for the configuration with which a daemon started.
    pub user: String,
}

/// `show configuration lock`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ConfigurationLock {
    /// True while one session alone may change the configuration.
    pub locked: bool,
    /// The session's terminal line.
    pub line: Option<String>,
    /// The session's user.
    pub user: Option<String>,
    /// Seconds since it was locked.
    pub since_s: Option<u64>,
}

/// `show reload`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ScheduledReload {
    /// Seconds until the reload; `None` when none is scheduled.
    pub in_s: Option<u64>,
    /// The user who scheduled it.
    pub user: Option<String>,
    /// The reason that the user gave.
    pub reason: Option<String>,
}
