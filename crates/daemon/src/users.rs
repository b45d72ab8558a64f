//! The connected sessions and their terminal lines: `show users`, `clear line`.
//!
//! Invariant: there are at most [`MAX_USERS`] sessions; a new one gets the lowest free line number.

use lanyard_cli::view::{self, User};
use lanyard_config::access::MAX_NAME;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use tokio::sync::Notify;

/// The most sessions at the same time.
pub const MAX_USERS: usize = 200;

/// There are [`MAX_USERS`] sessions already, or no line for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_USERS} sessions are open already")]
pub struct TooManyUsers;

/// A terminal line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LineName {
    /// A console: `con 0`.
    Console(usize),
    /// A session over the network or a local socket: `vty 0`.
    Vty(usize),
}

impl LineName {
    /// Its kind, as in `line console` and `line vty`.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Console(_) => "console",
            Self::Vty(_) => "vty",
        }
    }
}

impl fmt::Display for LineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Console(number) => write!(f, "con {number}"),
            Self::Vty(number) => write!(f, "vty {number}"),
        }
    }
}

/// Where a user comes from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// The kind of line, and with it the settings.
    pub(crate) line: LineName,
    /// The protocol that carries the terminal.
    pub(crate) protocol: Protocol,
    /// The host, for `show users`, the log and the limits: an address, or the terminal's name.
    pub(crate) host: String,
}

/// The transport of a session's terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// `lanyard console`.
    Serial,
    Telnet,
    Ssh,
}

/// The sessions, by line.
#[derive(Debug, Default)]
pub struct Users {
    lines: BTreeMap<LineName, Entry>,
    /// The line whose command is running.
    pub current: Option<LineName>,
    /// The sessions that were dropped because their client did not read.
    pub stalled: u64,
    /// The connections that were closed at once because there were too many.
    pub turned_away: u64,
}

#[derive(Debug)]
struct Entry {
    user: String,
    host: String,
    active_ms: u64,
    cleared: Rc<Notify>,
}

impl Users {
    /// Assigns a line of the VTY to a new session.
    ///
    /// # Errors
    /// When there are [`MAX_USERS`] already.
    pub fn add_vty(&mut self, user: &str, host: &str, now_ms: u64) -> Result<LineName, TooManyUsers> {
        self.add(LineName::Vty(0), user, host, now_ms, |_| true)
    }
    /// Assigns the first free line of the same kind as `like` to a new session; a VTY line must also satisfy
    /// `fits`.
    ///
    /// # Errors
    /// When there are [`MAX_USERS`] already, or no line fits.
    pub fn add(
        &mut self,
        like: LineName,
        user: &str,
        host: &str,
        now_ms: u64,
        fits: impl Fn(usize) -> bool,
    ) -> Result<LineName, TooManyUsers> {
        if self.lines.len() >= MAX_USERS {
            return Err(TooManyUsers);
        }
        let of = |number| match like {
            LineName::Console(_) => Some(LineName::Console(number)),
            LineName::Vty(_) => Some(LineName::Vty(number)).filter(|_| fits(number)),
        };
        let line = (0..MAX_USERS).filter_map(of).find(|line| !self.lines.contains_key(line));
        let line = line.ok_or(TooManyUsers)?;
        let cut = |text: &str| text.chars().take(MAX_NAME).collect();
        let entry =
            Entry { user: cut(user), host: cut(host), active_ms: now_ms, cleared: Rc::new(Notify::new()) };
        self.lines.insert(line, entry);
        Ok(line)
    }
    /// Records that the session on `line` has entered a line.
    pub fn touch(&mut self, line: LineName, now_ms: u64) {
        if let Some(entry) = self.lines.get_mut(&line) {
            entry.active_ms = now_ms;
        }
    }
    /// Records that the session on `line` has ended.
    pub fn remove(&mut self, line: LineName) {
        self.lines.remove(&line);
    }
    /// The user of the session on `line`.
    #[must_use]
    pub fn name(&self, line: LineName) -> Option<&str> {
        self.lines.get(&line).map(|entry| entry.user.as_str())
    }
    /// Ends the session on the line of this name, such as `vty 3`; false when there is none.
    pub fn clear(&mut self, name: &str) -> bool {
        let found = self.lines.iter().find(|(line, _)| line.to_string() == name);
        found.inspect(|(_, entry)| entry.cleared.notify_one()).is_some()
    }
    /// Notified when the session on `line` is to end.
    #[must_use]
    pub fn cleared(&self, line: LineName) -> Rc<Notify> {
        self.lines.get(&line).map(|entry| entry.cleared.clone()).unwrap_or_default()
    }
    /// `show users`.
    #[must_use]
    pub fn view(&self, now_ms: u64) -> view::Users {
        let user = |(line, entry): (&LineName, &Entry)| User {
            line: line.to_string(),
            user: entry.user.clone(),
            host: entry.host.clone(),
            idle_s: now_ms.saturating_sub(entry.active_ms) / 1000,
            own: self.current == Some(*line),
        };
        view::Users {
            users: self.lines.iter().map(user).collect(),
            stalled: self.stalled,
            turned_away: self.turned_away,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut users = Users::default();
        let vty = LineName::Vty;
        assert_eq!(
            (users.add_vty("a", "local", 0), users.add_vty("b", "local", 0)),
            (Ok(vty(0)), Ok(vty(1)))
        );
        users.remove(vty(0));
        assert_eq!(users.add_vty("c", "local", 9000), Ok(vty(0)));
        users.touch(vty(1), 4000);
        users.current = Some(vty(1));
        let console = users.add(LineName::Console(0), "d", "ttyS0", 10_000, |_| false);
        assert_eq!(console, Ok(LineName::Console(0)));
        let view = users.view(10_000).users;
        let lines: Vec<_> =
            view.iter().map(|u| (u.line.as_str(), u.user.as_str(), u.idle_s, u.own)).collect();
        assert_eq!(lines, [("con 0", "d", 0, false), ("vty 0", "c", 1, false), ("vty 1", "b", 6, true)]);
        assert_eq!(users.add(vty(0), "e", "192.0.2.1", 0, |number| number >= 8), Ok(vty(8)));
        while users.add_vty("x", "local", 0).is_ok() {}
        assert_eq!(users.view(0).users.len(), MAX_USERS);
        assert!(users.clear("vty 3") && !users.clear("vty 200") && !users.clear("aux 0"));
    }
}
