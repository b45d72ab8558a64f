//! The log: a ring of messages for `show logging`, which are also written to stderr and sent to `terminal
//! monitor`.
//!
//! Invariant: the log is bounded; messages that are dropped from it are counted. Adding a message never waits:
//! [`crate::stderr`] writes.

use crate::clock::wall_clock;
use crate::files::FileError;
use crate::os::{self, Output};
use crate::stderr::Stderr;
use lanyard_cli::view::{LogMessage, Logging};
use std::collections::VecDeque;

/// The number of messages that are stored.
pub const CAPACITY: usize = 1000;
/// The longest text of a message, in bytes; longer texts are cut.
const MAX_TEXT: usize = 1024;

/// The log.
#[derive(Debug, Default)]
pub struct Log {
    messages: VecDeque<LogMessage>,
    overwritten: u64,
    stderr: Option<Stderr>,
    /// The files to which standard output and standard error led at the start.
    outputs: Vec<Output>,
}

impl Log {
    /// Creates an empty log; with `quiet` nothing is written to stderr.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        Self { stderr: (!quiet).then(Stderr::start), outputs: os::outputs(), ..Self::default() }
    }
    /// Opens the files of standard output and standard error again, by the names they had at the start: a program
    /// that rotates logs has renamed them since.
    ///
    /// # Errors
    /// The name of the first file that cannot be opened; output then continues to the old file.
    pub fn reopen(&self) -> Result<(), FileError> {
        let reopen = |output: &Output| output.reopen().map_err(FileError::at(output.path()));
        let reopened = self.outputs.iter().map(reopen);
        reopened.fold(Ok(()), Result::and)
    }
    /// Adds a message and returns its line, `%LINK-3-UPDOWN: Interface eth1, changed state to up`.
    pub fn add(&mut self, facility: &str, severity: u8, mnemonic: &str, text: &str) -> String {
        let text: String =
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_TEXT).collect();
        let line = format!("%{facility}-{severity}-{mnemonic}: {text}");
        self.print(&format!("lanyard: {line}"));
        if self.messages.len() == CAPACITY {
            self.messages.pop_front();
            self.overwritten += 1;
        }
        let (facility, mnemonic) = (facility.to_owned(), mnemonic.to_owned());
        self.messages.push_back(LogMessage { time: wall_clock(), severity, facility, mnemonic, text });
        line
    }
    /// Writes a line to stderr that is not part of the log.
    pub fn print(&self, line: &str) {
        if let Some(stderr) = &self.stderr {
            stderr.line(line);
        }
    }
    /// `show logging`.
    #[must_use]
    pub fn view(&self) -> Logging {
        Logging {
            messages: self.messages.iter().cloned().collect(),
            capacity: CAPACITY as u64,
            overwritten: self.overwritten,
        }
    }
    /// `clear logging`.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.overwritten = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_and_counted() {
        let mut log = Log::new(true);
        assert_eq!(log.add("SYS", 5, "CONFIG_I", "from\nconsole"), "%SYS-5-CONFIG_I: from console");
        for n in 0..CAPACITY + 4 {
            log.add("LINK", 3, "UPDOWN", &n.to_string());
        }
        let view = log.view();
        assert_eq!((view.messages.len(), view.overwritten), (CAPACITY, 5));
        assert_eq!(view.messages[0].text, "4");
    }
}
