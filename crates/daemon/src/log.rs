//! The log: a ring of messages for `show logging`, which are also written to stderr and sent to `terminal
//! monitor`.
//!
//! Invariant: the log is bounded; messages that are dropped from it are counted. Adding a message never waits:
//! [`crate::stderr`] writes.

use crate::clock::wall_clock;
use crate::files::FileError;
use crate::os::{self, Output};
use crate::stderr::Stderr;
use crate::syslog::{Message, Receivers};
use lanyard_cli::view::{LogMessage, Logging};
use lanyard_config::{Appliance, LOWEST_SEVERITY, TRAP_SEVERITY};
use std::collections::VecDeque;

/// The number of messages that are stored.
pub const CAPACITY: usize = 1000;
/// The longest text of a message, in bytes; longer texts are cut.
const MAX_TEXT: usize = 1024;

/// The log.
#[derive(Debug)]
pub struct Log {
    messages: VecDeque<LogMessage>,
    overwritten: u64,
    stderr: Option<Stderr>,
    /// The files to which standard output and standard error led at the start.
    outputs: Vec<Output>,
    /// The highest severity that the ring gets, and receivers get; `None` for none.
    buffered: Option<u8>,
    trap: Option<u8>,
    receivers: Receivers,
    /// The name of the switch in messages to receivers.
    hostname: String,
}

impl Log {
    /// Creates an empty log; with `quiet` nothing is written to stderr.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        Self {
            messages: VecDeque::new(),
            overwritten: 0,
            stderr: (!quiet).then(Stderr::start),
            outputs: os::outputs(),
            buffered: Some(LOWEST_SEVERITY),
            trap: Some(TRAP_SEVERITY),
            receivers: Receivers::default(),
            hostname: String::new(),
        }
    }
    /// Follows the configuration: the severities of buffer and receivers, and the receivers.
    pub(crate) fn configure(&mut self, now_ms: u64, hostname: &str, settings: &Appliance) {
        hostname.clone_into(&mut self.hostname);
        (self.buffered, self.trap) = (settings.log_buffered, settings.log_trap);
        self.receivers.configure(now_ms, &settings.log_hosts);
    }
    /// Sends a message to the receivers of `logging host`.
    pub(crate) fn send(&mut self, now_ms: u64, facility: &str, severity: u8, mnemonic: &str, text: &str) {
        if self.trap.is_some_and(|highest| severity <= highest) {
            let text: String = plain(text);
            let message = Message { hostname: &self.hostname, facility, severity, mnemonic, text: &text };
            self.receivers.send(now_ms, message);
        }
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
        let text = plain(text);
        let line = format!("%{facility}-{severity}-{mnemonic}: {text}");
        self.print(&format!("lanyard: {line}"));
        if self.buffered.is_none_or(|highest| severity > highest) {
            return line;
        }
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
            level: self.buffered,
            receivers: self.receivers.view(),
        }
    }
    /// `clear logging`.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.overwritten = 0;
    }
}

/// A message's text without control characters, at most [`MAX_TEXT`] characters of it.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_TEXT).collect()
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

    #[test]
    fn severities_and_receivers_follow_the_configuration() {
        let mut log = Log::new(true);
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let host =
            lanyard_config::LogHost { address, transport: Default::default(), port: Some(9), name: None };
        let mut settings = Appliance { log_buffered: Some(4), log_hosts: vec![host], ..Appliance::default() };
        log.configure(0, "sw1", &settings);
        for severity in [3, 4, 5] {
            log.add("SYS", severity, "TEST", "text");
        }
        assert_eq!(log.view().messages.iter().map(|m| m.severity).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(log.view().receivers.len(), 1);
        settings = Appliance { log_buffered: None, ..Appliance::default() };
        log.configure(0, "sw1", &settings);
        log.add("SYS", 0, "TEST", "text");
        assert_eq!((log.view().messages.len(), log.view().receivers.len()), (2, 0));
    }
}
