//! The connected sessions: `show users`.
//!
//! Invariant: there are at most [`MAX_USERS`]; a new session gets the lowest free line number.

use lanyard_cli::view::{self, User};
use lanyard_config::access::MAX_NAME;
use std::collections::BTreeMap;

/// The most sessions at the same time.
pub const MAX_USERS: usize = 200;

/// There are [`MAX_USERS`] sessions already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_USERS} sessions are open already")]
pub struct TooManyUsers;

/// The sessions, by line number.
#[derive(Debug, Default)]
pub struct Users {
    lines: BTreeMap<usize, Entry>,
    /// The line whose command is running.
    pub current: Option<usize>,
}

#[derive(Debug)]
struct Entry {
    user: String,
    host: String,
    active_ms: u64,
}

impl Users {
    /// Assigns a line to a new session.
    ///
    /// # Errors
    /// When there are [`MAX_USERS`] already.
    pub fn add(&mut self, user: &str, host: &str, now_ms: u64) -> Result<usize, TooManyUsers> {
        let line = (0..MAX_USERS).find(|line| !self.lines.contains_key(line));
        let line = line.ok_or(TooManyUsers)?;
        let cut = |text: &str| text.chars().take(MAX_NAME).collect();
        self.lines.insert(line, Entry { user: cut(user), host: cut(host), active_ms: now_ms });
        Ok(line)
    }
    /// Records that the session on `line` has entered a line.
    pub fn touch(&mut self, line: usize, now_ms: u64) {
        if let Some(entry) = self.lines.get_mut(&line) {
            entry.active_ms = now_ms;
        }
    }
    /// Records that the session on `line` has ended.
    pub fn remove(&mut self, line: usize) {
        self.lines.remove(&line);
    }
    /// The user of the session on `line`.
    #[must_use]
    pub fn name(&self, line: usize) -> Option<&str> {
        self.lines.get(&line).map(|entry| entry.user.as_str())
    }
    /// `show users`.
    #[must_use]
    pub fn view(&self, now_ms: u64) -> view::Users {
        let user = |(line, entry): (&usize, &Entry)| User {
            line: format!("vty {line}"),
            user: entry.user.clone(),
            host: entry.host.clone(),
            idle_s: now_ms.saturating_sub(entry.active_ms) / 1000,
            own: self.current == Some(*line),
        };
        view::Users { users: self.lines.iter().map(user).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut users = Users::default();
        assert_eq!((users.add("a", "local", 0), users.add("b", "local", 0)), (Ok(0), Ok(1)));
        users.remove(0);
        assert_eq!(users.add("c", "local", 9000), Ok(0));
        users.touch(1, 4000);
        users.current = Some(1);
        let view = users.view(10_000).users;
        let lines: Vec<_> =
            view.iter().map(|u| (u.line.as_str(), u.user.as_str(), u.idle_s, u.own)).collect();
        assert_eq!(lines, [("vty 0", "c", 1, false), ("vty 1", "b", 6, true)]);
        while users.add("x", "local", 0).is_ok() {}
        assert_eq!(users.view(0).users.len(), MAX_USERS);
    }
}
