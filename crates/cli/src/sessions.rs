//! Configuration sessions: `configure session NAME`, one store that all command-line sessions share.
//!
//! A session is the list of configuration lines entered in it. They are applied to the present running
//! configuration whenever the result is needed, so a session never restores an old configuration.
//!
//! Invariant: bounded by [`MAX_SESSIONS`] and [`MAX_LINES`]; every line was accepted when it was entered.

use crate::refusal::Refusal;
use lanyard_config::Config;
use std::collections::BTreeMap;

/// The maximum number of pending sessions.
pub const MAX_SESSIONS: usize = 16;
/// The maximum number of lines in a session.
pub const MAX_LINES: usize = 20_000;

/// A refused line of a text whose other lines were applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The column of the wrong character, from 1.
    pub column: usize,
    /// The text of the line.
    pub text: String,
    /// The reason, without the leading `% `.
    pub reason: String,
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = crate::args::short(self.text.trim());
        write!(f, "line {}, column {}: {}: {text}", self.line, self.column, self.reason)
    }
}

/// A function that applies configuration text to a copy of a configuration, and returns the copy and the refused lines:
/// [`crate::apply_text`].
pub type Apply = fn(&str, &Config) -> (Config, Vec<LineError>);

/// The pending sessions, by name.
#[derive(Debug, Clone, Default)]
pub struct ConfigSessions {
    sessions: BTreeMap<String, Pending>,
}

/// One session.
#[derive(Debug, Clone, Default)]
struct Pending {
    lines: Vec<String>,
    /// The running configuration to which the lines were last applied, and the resulting configuration.
    cache: Option<(Config, Config)>,
}

impl ConfigSessions {
    /// The names of the pending sessions with their numbers of lines.
    pub fn list(&self) -> impl Iterator<Item = (&str, usize)> {
        self.sessions.iter().map(|(name, session)| (name.as_str(), session.lines.len()))
    }

    /// True when the session exists.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.sessions.contains_key(name)
    }

    /// Creates a session, or opens an existing one. If there are [`MAX_SESSIONS`], a session without lines makes room.
    ///
    /// # Errors
    /// When there are [`MAX_SESSIONS`] others with lines.
    pub fn open(&mut self, name: &str) -> Result<(), Refusal> {
        if !self.contains(name) && self.sessions.len() >= MAX_SESSIONS {
            let empty = self.sessions.iter().find(|(_, session)| session.lines.is_empty());
            let Some(empty) = empty.map(|(name, _)| name.clone()) else {
                return Err(format!(
                    "there are {MAX_SESSIONS} configuration sessions already: enter one of them (show configuration sessions) \
                     and commit or abort it"
                )
                .into());
            };
            self.sessions.remove(&empty);
        }
        self.sessions.entry(name.to_owned()).or_default();
        Ok(())
    }

    /// Discards a session; returns false when it does not exist.
    pub fn remove(&mut self, name: &str) -> bool {
        self.sessions.remove(name).is_some()
    }

    /// Removes a session's lines and keeps the session.
    pub fn clear(&mut self, name: &str) {
        if let Some(session) = self.sessions.get_mut(name) {
            *session = Pending::default();
        }
    }

    /// The number of a session's lines; 0 when it does not exist.
    #[must_use]
    pub fn len(&self, name: &str) -> usize {
        self.sessions.get(name).map_or(0, |session| session.lines.len())
    }

    /// The result of applying the session's lines to `running`.
    ///
    /// # Errors
    /// When the session does not exist, or a line is refused because `running` has changed.
    pub fn candidate(&mut self, name: &str, running: &Config, apply: Apply) -> Result<Config, Refusal> {
        let gone = || Refusal(format!("there is no configuration session {name}"));
        let session = self.sessions.get_mut(name).ok_or_else(gone)?;
        if let Some((_, candidate)) = session.cache.as_ref().filter(|(base, _)| base == running) {
            return Ok(candidate.clone());
        }
        let (candidate, errors) = apply(&session.lines.join("\n"), running);
        if let Some(error) = errors.first() {
            return Err(format!(
                "the running configuration has changed, and session {name} can no longer be applied to it: {error}"
            )
            .into());
        }
        session.cache = Some((running.clone(), candidate.clone()));
        Ok(candidate)
    }

    /// Adds lines that were accepted and turned `running` into `candidate`.
    ///
    /// # Errors
    /// When the session would have more than [`MAX_LINES`].
    pub fn record(
        &mut self,
        name: &str,
        lines: Vec<String>,
        running: &Config,
        candidate: Config,
    ) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(name) else {
            return Err(format!("there is no configuration session {name}").into());
        };
        if session.lines.len() + lines.len() > MAX_LINES {
            return Err(format!("configuration session {name} has {MAX_LINES} lines already").into());
        }
        session.lines.extend(lines);
        session.cache = Some((running.clone(), candidate));
        Ok(())
    }
}
