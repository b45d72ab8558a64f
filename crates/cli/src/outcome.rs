//! What a line did: [`Outcome`], for whoever carries the session (daemon, tests, fuzz targets).

use crate::view::EventKind;

/// What `Session::execute` answers. Texts end in a newline unless they are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done; this is the output, perhaps empty. A notice in it may start with `%`.
    Text(String),
    /// Refused, nothing changed: lines of which at least one starts with `%`. `lanyard cli -c` exits 1.
    Refused(String),
    /// Stream events of these kinds, a JSON [`crate::view::Event`] a line, until interrupted.
    Stream(Vec<EventKind>),
    /// Capture frames until interrupted.
    Capture(Capture),
    /// Run this fixed program for the user, its output to the session, until it ends or is interrupted.
    Run(Program),
    /// The session is over (`exit`, `logout` in exec mode).
    Close,
}

/// A packet capture in the pcapng format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// The port's netdev.
    pub interface: String,
    /// The file it goes to; to the client without one.
    pub file: Option<String>,
}

/// A program a command stands for. The first of `argv` is always one of `ping`, `traceroute`; every other is an
/// option made here, a number, or a host that has been checked not to look like an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Program and arguments; run it directly, never through a shell.
    pub argv: Vec<String>,
}

/// `terminal ...` settings of one session; the carrier of the session reads them after each line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Lines a page, 0..=512; 0 never pauses. Paging is the interactive client's.
    pub length: u16,
    /// Columns, 20..=512.
    pub width: u16,
    /// True after `terminal monitor`: log messages are to be printed as they come.
    pub monitor: bool,
}

impl Default for Terminal {
    fn default() -> Self {
        Self { length: 24, width: 80, monitor: false }
    }
}
