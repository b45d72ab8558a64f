//! Configuration sessions: `configure session NAME`, one store that all command-line sessions share.
//!
//! A session is the list of configuration lines entered in it. They are applied to a copy of the running
//! configuration whenever the result is needed, so a session never carries an old configuration back in.
//!
//! Invariant: bounded by [`MAX_SESSIONS`] and [`MAX_LINES`].

use std::collections::BTreeMap;

/// Sessions that can be pending.
pub const MAX_SESSIONS: usize = 16;
/// Lines a session can hold.
pub const MAX_LINES: usize = 20_000;

/// The pending sessions, by name.
#[derive(Debug, Clone, Default)]
pub struct ConfigSessions {
    pub(crate) _pending: BTreeMap<String, Vec<String>>,
}
