//! A command-line session: its mode, its history, and what becomes of a line.

use crate::outcome::Terminal;

/// One session. Any number of them share one [`crate::Backend`].
#[derive(Debug, Clone)]
pub struct Session {
    terminal: Terminal,
}

impl Session {
    /// The session's terminal settings.
    #[must_use]
    pub fn terminal(&self) -> Terminal {
        self.terminal
    }
}
