//! Pending events apart from confirmations: the lock of the configuration, and a scheduled reload.
//!
//! [`crate::safe_change`] sets and ends both.

/// The session that alone may change the configuration.
#[derive(Debug)]
pub(crate) struct ConfigurationLock {
    /// The number of its line.
    pub(crate) line: crate::users::LineName,
    /// When it was locked, on the daemon's clock.
    pub(crate) since_ms: u64,
}

/// A reload that takes place later.
#[derive(Debug)]
pub(crate) struct Reload {
    /// When, on the daemon's clock.
    pub(crate) at_ms: u64,
    pub(crate) user: String,
    pub(crate) reason: Option<String>,
}
