//! The context of exec handlers: the state of their session, and the switch.
//!
//! Invariant: this file does not depend on the command tree, because the tree's nodes depend on it: the types of their handlers
//! use [`Exec`]. The function that applies configuration text needs the tree, so a handler gets it as [`Exec::apply`].

use crate::backend::Backend;
use crate::mode::Mode;
use crate::outcome::{Outcome, Terminal};
use crate::pipe::Pipe;
use crate::sessions::Apply;
use lanyard_config::access::LEVEL_MAX;
use serde::Serialize;
use std::collections::VecDeque;

/// The maximum number of lines of history.
pub const MAX_HISTORY: usize = 256;

/// The user of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The terminal line as `show users` names it: `vty 0`.
    pub line: String,
    /// The user's name.
    pub user: String,
    /// True when prompts and input are echoed: the caret of an error is then printed under the input. Otherwise
    /// the line is repeated before the caret, and the message comes first.
    pub interactive: bool,
    /// The host that the user comes from: an address, or `local`.
    pub host: String,
    /// The privilege level that the login gives, 0..=15. `enable` returns to it without a secret.
    pub level: u8,
    /// The highest level that `enable` may reach.
    pub limit: u8,
}

impl Default for Login {
    /// The login of a program on the same machine, with all rights.
    fn default() -> Self {
        Self {
            line: String::new(),
            user: String::new(),
            interactive: false,
            host: "local".into(),
            level: LEVEL_MAX,
            limit: LEVEL_MAX,
        }
    }
}

/// The part of a session that commands show and change.
#[derive(Debug, Clone)]
pub struct State {
    /// The user.
    pub login: Login,
    /// The mode.
    pub mode: Mode,
    /// The privilege level, 0..=15.
    pub level: u8,
    /// The terminal's settings.
    pub terminal: Terminal,
    /// The last lines, the latest at the end.
    pub history: VecDeque<String>,
    /// The number of lines that `history` keeps, at most [`MAX_HISTORY`].
    pub history_size: usize,
    /// True when the user has changed the configuration since `configure`; used for the log.
    pub changed: bool,
}

impl State {
    /// A session in exec mode, at the level of the login.
    pub fn new(login: Login) -> Self {
        Self {
            mode: Mode::exec(login.level),
            level: login.level,
            login,
            terminal: Terminal::default(),
            history: VecDeque::new(),
            history_size: 20,
            changed: false,
        }
    }
    /// Changes the privilege level, and with it the kind of exec mode.
    pub fn set_level(&mut self, level: u8) {
        self.level = level;
        if matches!(self.mode, Mode::User | Mode::Privileged) {
            self.mode = Mode::exec(level);
        }
    }
}

/// The context of an exec handler.
pub struct Exec<'a> {
    /// The session.
    pub session: &'a mut State,
    /// The switch.
    pub backend: &'a mut dyn Backend,
    /// The filters for the output.
    pub pipe: &'a Pipe,
    /// Applies configuration text, for commands that read files and configuration sessions: [`crate::apply_text`].
    pub apply: Apply,
    /// Runs one line in a new session of a user, for commands that combine the output of others.
    pub execute: Execute,
}

/// Runs a line in a new session.
pub type Execute = fn(&Login, &str, &mut dyn Backend) -> Outcome;

impl Exec<'_> {
    /// Presents a view as text, or as JSON after `| json`.
    pub fn present<T: Serialize>(&self, view: &T, text: impl FnOnce(&T) -> String) -> Outcome {
        if !self.pipe.json {
            return Outcome::Text(text(view));
        }
        match serde_json::to_string_pretty(view) {
            Ok(json) => Outcome::Text(json + "\n"),
            Err(error) => Outcome::Refused(format!("% The output can't be written as JSON: {error}\n")),
        }
    }

    /// Configuration text, or a JSON object with it.
    pub fn present_config(&self, text: String) -> Outcome {
        #[derive(Serialize)]
        struct Configuration {
            text: String,
        }
        self.present(&Configuration { text }, |view| view.text.clone())
    }

    /// The width of the terminal, in columns.
    pub fn width(&self) -> usize {
        usize::from(self.session.terminal.width)
    }
}
