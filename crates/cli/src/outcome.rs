//! The result of a line: [`Outcome`], for the carrier of a session (daemon, tests, fuzz targets).

use crate::listing::Listing;
use crate::ntp::NtpQuery;
use crate::view::EventKind;

/// The result of `Session::execute`. Texts end in a newline unless they are empty.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The line was carried out; the text is its output, perhaps empty. A notice in it may start with `%`.
    Text(String),
    /// The line was refused and changed nothing; at least one line of the text starts with `%`. `lanyard cli
    /// -c` exits 1.
    Refused(String),
    /// The line was carried out, and its output is too long to be made at once: it comes in parts. It may be interrupted.
    Listing(Listing),
    /// Ask the program that sets the machine's clock, and print its answer with [`NtpQuery::print`]. It may be interrupted.
    Ntp(NtpQuery),
    /// Stream events of these kinds until interrupted, one JSON [`crate::view::Event`] per line.
    Stream(Vec<EventKind>),
    /// Capture frames until interrupted.
    Capture(Capture),
    /// Run this program for the user, with its output to the session, until it ends or is interrupted.
    Run(Program),
    /// Ask for the secret of this privilege level, and raise the session to it: [`crate::Session::raise`].
    Password(u8),
    /// The session is over (`exit`, `logout` in exec mode).
    Close,
}

/// Joins lines to a text.
pub fn lines<T: AsRef<str>>(list: &[T]) -> String {
    list.iter().flat_map(|line| [line.as_ref(), "\n"]).collect()
}

/// A packet capture in the pcapng format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// The port's netdev.
    pub interface: String,
    /// The file to write to; without one the frames go to the client.
    pub file: Option<String>,
}

/// A program that a command runs: `ping` or `traceroute`, in a VRF by means of `nsenter`. Each argument is an option that the
/// command tree's handler has made, a number, or a host that cannot be mistaken for an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Program and arguments; to be run directly, never through a shell.
    pub argv: Vec<String>,
}

/// `terminal ...` settings of one session; the carrier of the session reads them after each line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Lines per page, 0..=512; 0 never pauses. The interactive client does the paging.
    pub length: u16,
    /// Columns, 20..=512.
    pub width: u16,
    /// True after `terminal monitor`: log messages are printed as they occur.
    pub monitor: bool,
}

impl Default for Terminal {
    fn default() -> Self {
        Self { length: 24, width: 80, monitor: false }
    }
}
