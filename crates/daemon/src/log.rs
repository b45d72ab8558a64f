//! The log: a ring of messages for `show logging`, which are also written to stderr and sent to `terminal
//! monitor`.
//!
//! Invariant: the log is bounded; messages that are dropped from it are counted. Adding a message never waits:
//! [`crate::stderr`] writes.

use crate::clock::wall_clock;
use crate::files::FileError;
use crate::log_files::{Change, LogFiles, WriteLock};
use crate::log_rate::Limit;
use crate::os::{self, Output};
use crate::stderr::Stderr;
use crate::syslog::{Message, Receivers};
use lanyard_cli::view::{LogLimit, LogMessage, Logging, PersistentLog};
use lanyard_config::{Appliance, LOWEST_SEVERITY, TRAP_SEVERITY};
use std::collections::VecDeque;
use std::path::PathBuf;

/// The number of messages that are stored.
pub const CAPACITY: usize = 1000;
/// The longest text of a message, in characters; longer texts are cut.
const MAX_TEXT: usize = 1024;
/// The time between a message and the check whether the files could be written, in milliseconds.
const FILE_LOOK_MS: u64 = 1000;

/// The log.
#[derive(Debug)]
pub struct Log {
    messages: VecDeque<LogMessage>,
    overwritten: u64,
    stderr: Option<Stderr>,
    /// The files to which standard output and standard error led at the start.
    outputs: Vec<Output>,
    /// The highest severity number (0 to 7) of messages that the ring stores, and of messages that receivers get;
    /// `None` for no messages.
    buffered: Option<u8>,
    trap: Option<u8>,
    receivers: Receivers,
    /// The name of the switch in messages to receivers.
    hostname: String,
    /// The limit of `logging rate-limit`, and that of `logging rate-limit console`, which applies to stderr
    /// alone.
    limit: Limit,
    console_limit: Limit,
    files: Option<LogFiles>,
    files_lock: WriteLock,
    /// True once the messages from before the first configuration have been written to the files.
    had_files: bool,
    /// When the files are checked for errors; `None` while no message has been added since the last check.
    look_ms: Option<u64>,
}

/// Where a message may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Everywhere,
    /// Not to stderr.
    NotToConsole,
}

/// A message about the log itself: severity, mnemonic and text.
pub(crate) type Report = (u8, &'static str, String);

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
            limit: Limit::default(),
            console_limit: Limit::default(),
            files: None,
            files_lock: WriteLock::default(),
            had_files: false,
            look_ms: None,
        }
    }
    /// Takes over the configuration: severities, receivers, rate limits and files. `directory` is that of the
    /// files.
    pub(crate) fn configure(
        &mut self,
        now_ms: u64,
        hostname: &str,
        settings: &Appliance,
        directory: impl FnOnce() -> PathBuf,
    ) {
        hostname.clone_into(&mut self.hostname);
        (self.buffered, self.trap) = (settings.log_buffered, settings.log_trap);
        self.receivers.configure(now_ms, &settings.log_hosts);
        self.limit.configure(now_ms, settings.log_rate);
        self.console_limit.configure(now_ms, settings.log_console_rate);
        if self.files.as_ref().map(LogFiles::limits) != settings.log_persistent {
            let start = |limits| LogFiles::start(directory(), limits, &self.files_lock);
            self.files = settings.log_persistent.map(start);
        }
        if let Some(files) = self.files.as_mut().filter(|_| !self.had_files) {
            // The messages of the start came before the configuration did.
            self.messages.iter().for_each(|message| files.write(line(message)));
            self.had_files = true;
        }
    }
    /// Returns where the rates of `logging rate-limit` permit a message to go; `None` for nowhere. Messages that they
    /// do not permit are counted.
    pub(crate) fn admit(&mut self, now_ms: u64, severity: u8) -> Option<Admission> {
        if !self.limit.admits(now_ms, severity) {
            None
        } else if self.console_limit.admits(now_ms, severity) {
            Some(Admission::Everywhere)
        } else {
            Some(Admission::NotToConsole)
        }
    }
    /// When [`Log::reports`] may have something.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        [self.limit.next_ms(), self.console_limit.next_ms(), self.look_ms].into_iter().flatten().min()
    }
    /// The messages about the log itself that are due; no limit applies to them.
    pub(crate) fn reports(&mut self, now_ms: u64) -> Vec<Report> {
        let mut list = Vec::new();
        let limits = [(&mut self.limit, "rate-limit"), (&mut self.console_limit, "rate-limit console")];
        for (limit, name) in limits {
            if let Some(count) = limit.report(now_ms) {
                list.push((4, "LOGRATE", format!("{count} messages were suppressed by logging {name}")));
            }
        }
        if self.look_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.look_ms = None;
            list.extend(self.files.as_mut().and_then(LogFiles::change).map(|change| match change {
                Change::Failed(reason) => (3, "LOGFILE", format!("logging persistent: {reason}")),
                Change::Works(lost) => (
                    5,
                    "LOGFILE",
                    format!("logging persistent: files are written again, {lost} messages were lost"),
                ),
            }));
        }
        list
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
        let line = self.keep(facility, severity, mnemonic, text);
        self.print(&format!("lanyard: {line}"));
        line
    }
    /// [`Log::add`] without stderr.
    pub(crate) fn keep(&mut self, facility: &str, severity: u8, mnemonic: &str, text: &str) -> String {
        let text = plain(text);
        let line = format!("%{facility}-{severity}-{mnemonic}: {text}");
        if self.buffered.is_none_or(|highest| severity > highest) {
            return line;
        }
        if self.messages.len() == CAPACITY {
            self.messages.pop_front();
            self.overwritten += 1;
        }
        let (facility, mnemonic) = (facility.to_owned(), mnemonic.to_owned());
        let message = LogMessage { time: wall_clock(), severity, facility, mnemonic, text };
        if let Some(files) = &mut self.files {
            files.write(self::line(&message));
        }
        self.messages.push_back(message);
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
            rate_limit: limit(&self.limit),
            console_rate_limit: limit(&self.console_limit),
            persistent: self.persistent(false),
        }
    }
    /// `show logging persistent`; `None` while it is not configured.
    pub(crate) fn persistent(&self, with_lines: bool) -> Option<PersistentLog> {
        self.files.as_ref().map(|files| files.view(with_lines))
    }
    /// Schedules a check of the files for errors, because a message has been added.
    pub(crate) fn look_later(&mut self, now_ms: u64) {
        if self.files.is_some() {
            self.look_ms.get_or_insert(now_ms + FILE_LOOK_MS);
        }
    }
    /// `clear logging`.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.overwritten = 0;
        self.limit.clear();
        self.console_limit.clear();
    }
}

impl Drop for Log {
    /// Waits for a limited time until the files contain the last messages, which report why the daemon ends.
    fn drop(&mut self) {
        if let Some(files) = self.files.take() {
            files.end();
        }
    }
}

/// The view of a limit for `show logging`; `None` if it has neither a rate nor suppressed messages.
fn limit(limit: &Limit) -> Option<LogLimit> {
    let rate = limit.rate();
    let per_s = rate.map(|rate| rate.per_s);
    (rate.is_some() || limit.suppressed() > 0).then(|| LogLimit {
        per_s,
        debugging: rate.is_some_and(|rate| rate.debugging),
        except: rate.and_then(|rate| rate.except),
        suppressed: limit.suppressed(),
    })
}

/// A message with its time, as files and `show logging` have it.
fn line(message: &LogMessage) -> String {
    let LogMessage { time, severity, facility, mnemonic, text } = message;
    format!("{time}: %{facility}-{severity}-{mnemonic}: {text}")
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
        log.configure(0, "sw1", &settings, PathBuf::new);
        for severity in [3, 4, 5] {
            log.add("SYS", severity, "TEST", "text");
        }
        assert_eq!(log.view().messages.iter().map(|m| m.severity).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(log.view().receivers.len(), 1);
        settings = Appliance { log_buffered: None, ..Appliance::default() };
        log.configure(0, "sw1", &settings, PathBuf::new);
        log.add("SYS", 0, "TEST", "text");
        assert_eq!((log.view().messages.len(), log.view().receivers.len()), (2, 0));
    }
}
