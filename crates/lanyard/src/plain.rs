//! The plain line mode of `lanyard cli`: for terminals that are not known to answer cursor queries, such as the
//! pseudo-terminals of expect and Netmiko.
//!
//! It echoes what is typed and sends no escape sequence. Escape sequences in the input are removed whole, so that no
//! part of one is read as a command.
//!
//! Invariant: [`Line::feed`] contains the logic and uses no terminal; a line has at most [`MAX_LINE`] bytes.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr};
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The longest line, in bytes; the command line on the switch has the same limit.
const MAX_LINE: usize = 4096;
/// How long a terminal may take to answer the one query that is sent when a session starts.
const ANSWER_WAIT: Duration = Duration::from_millis(800);
/// The maximum number of bytes read while waiting for that answer.
const MAX_AHEAD: usize = 64 << 10;
/// Prefixes of the values of TERM of terminals that answer cursor queries.
const ANSWERING: &[&str] = &[
    "xterm",
    "screen",
    "tmux",
    "rxvt",
    "linux",
    "alacritty",
    "foot",
    "kitty",
    "konsole",
    "gnome",
    "vte",
    "wezterm",
    "ghostty",
    "st-",
];

/// True if a terminal with this TERM may be sent a query.
pub fn may_answer(term: Option<&str>) -> bool {
    term.is_some_and(|term| ANSWERING.iter().any(|known| term.starts_with(known)))
}

/// The action that a byte of input causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// No action.
    None,
    /// The line is complete.
    Enter,
    /// `?`.
    Help,
    /// TAB.
    Complete,
    /// Ctrl-C: the line is discarded.
    Cancel,
    /// Ctrl-Z: in a configuration mode, run the line and leave the mode.
    End,
    /// Ctrl-D on an empty line.
    Close,
}

/// The state of the input within an escape sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    No,
    /// After ESC.
    Begun,
    /// Inside a control sequence, until its final byte (ECMA-48, 5.4).
    Control,
    /// The next byte is the last of the sequence.
    Single,
    /// Inside a control string, until BEL or ESC `\` (ECMA-48, 5.6), or the end of the line.
    String,
}

/// A line that is being typed.
#[derive(Debug)]
pub struct Line {
    bytes: Vec<u8>,
    escape: Escape,
    /// True after a carriage return: a line feed that follows it belongs to it.
    returned: bool,
}

impl Line {
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), escape: Escape::No, returned: false }
    }
    /// The text typed so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
    /// Replaces the text.
    pub fn set(&mut self, text: &str) {
        self.bytes = text.as_bytes().to_vec();
    }
    /// Processes one byte of input, and appends the bytes to be echoed to `echo`.
    pub fn feed(&mut self, byte: u8, echo: &mut Vec<u8>) -> Key {
        let after_return = std::mem::replace(&mut self.returned, byte == b'\r');
        if self.in_escape(byte) {
            return Key::None;
        }
        match byte {
            b'\n' if after_return => {}
            b'\r' | b'\n' => {
                echo.push(b'\n');
                return Key::Enter;
            }
            b'?' => {
                echo.extend(b"?\n");
                return Key::Help;
            }
            b'\t' => return Key::Complete,
            0x03 => {
                self.bytes.clear();
                echo.extend(b"^C\n");
                return Key::Cancel;
            }
            0x1a => {
                echo.extend(b"^Z\n");
                return Key::End;
            }
            0x04 if self.bytes.is_empty() => return Key::Close,
            0x08 | 0x7f => self.erase(1, echo),
            0x15 => self.erase(usize::MAX, echo),
            0x17 => {
                let text = self.text();
                let kept = text.trim_end().rfind(' ').map_or(0, |at| at + 1);
                self.erase(text.get(kept..).unwrap_or_default().chars().count(), echo);
            }
            byte if byte < 0x20 => {}
            byte if self.bytes.len() < MAX_LINE => {
                self.bytes.push(byte);
                echo.push(byte);
            }
            _ => echo.push(0x07),
        }
        Key::None
    }
    /// Erases characters at the end of the line, also on the terminal.
    fn erase(&mut self, characters: usize, echo: &mut Vec<u8>) {
        for _ in 0..characters {
            while self.bytes.pop_if(|byte| *byte & 0xc0 == 0x80).is_some() {}
            if self.bytes.pop().is_none() {
                return;
            }
            echo.extend(b"\x08 \x08");
        }
    }
    /// True when the byte is a part of an escape sequence.
    fn in_escape(&mut self, byte: u8) -> bool {
        // A sequence that is cut off ends with the line.
        if matches!(byte, b'\r' | b'\n') {
            self.escape = Escape::No;
            return false;
        }
        let (next, part) = match (self.escape, byte) {
            (_, 0x1b) => (Escape::Begun, true),
            (Escape::No, _) => (Escape::No, false),
            (Escape::Begun, b'[') => (Escape::Control, true),
            (Escape::Begun, b'O' | b'N') => (Escape::Single, true),
            (Escape::Begun, b']' | b'P' | b'X' | b'^' | b'_') => (Escape::String, true),
            (Escape::Begun, 0x20..=0x2f) => (Escape::Begun, true),
            (Escape::Begun | Escape::Single, _) | (Escape::Control, 0x40..=0x7e) | (Escape::String, 0x07) => {
                (Escape::No, true)
            }
            (same @ (Escape::Control | Escape::String), _) => (same, true),
        };
        self.escape = next;
        part
    }
}

/// The terminal in a mode without echo and line editing; dropping this value restores the mode.
pub struct Terminal {
    before: Termios,
    /// Bytes read ahead.
    ahead: VecDeque<u8>,
}

impl Terminal {
    /// Opens the terminal and changes its mode.
    pub fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let terminal = Self { before, ahead: VecDeque::new() };
        terminal.interrupts(false)?;
        Ok(terminal)
    }
    /// If `on` is true, ctrl-C becomes a signal, which interrupts the running command; otherwise it is read as a key.
    pub fn interrupts(&self, on: bool) -> io::Result<()> {
        let mut settings = self.before.clone();
        settings.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::IEXTEN);
        settings.local_flags.set(LocalFlags::ISIG, on);
        settings
            .input_flags
            .remove(nix::sys::termios::InputFlags::ICRNL | nix::sys::termios::InputFlags::IXON);
        settings.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        settings.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        Ok(tcsetattr(io::stdin(), SetArg::TCSANOW, &settings)?)
    }
    /// The next byte; `None` at the end of the input. Bytes are read one at a time, because those behind a command may
    /// be meant for its pager.
    pub fn read(&mut self) -> io::Result<Option<u8>> {
        if let Some(byte) = self.ahead.pop_front() {
            return Ok(Some(byte));
        }
        loop {
            let mut byte = [0];
            match nix::unistd::read(io::stdin(), &mut byte) {
                Ok(0) | Err(nix::errno::Errno::EIO) => return Ok(None),
                Ok(_) => return Ok(Some(byte[0])),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    /// True when more input has arrived already, such as the rest of a pasted text.
    pub fn has_more(&self) -> bool {
        let stdin = io::stdin();
        !self.ahead.is_empty()
            || poll(&mut [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).unwrap_or(0) > 0
    }
    /// Asks the terminal once for the position of its cursor; returns true if it answers and no other input arrives before the
    /// answer or with it. Such input is kept for [`Terminal::read`].
    pub fn answers(&mut self) -> io::Result<bool> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(false);
        }
        let mut out = io::stdout().lock();
        out.write_all(b"\x1b[6n")?;
        out.flush()?;
        let end = Instant::now() + ANSWER_WAIT;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let stdin = io::stdin();
            if poll(&mut [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)], left).unwrap_or(0) == 0 {
                continue;
            }
            let mut bytes = [0; 256];
            let count = nix::unistd::read(&stdin, &mut bytes)?;
            self.ahead.extend(bytes.iter().take(count));
            if let Some(length) = answer(self.ahead.make_contiguous()) {
                self.ahead.drain(..length);
                return Ok(self.ahead.is_empty());
            }
            if count == 0 || self.ahead.len() > MAX_AHEAD {
                break;
            }
        }
        Ok(false)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
    }
}

/// Asks for a secret on the terminal, which does not show it; empty at the end of the input.
pub fn secret(prompt: &str) -> io::Result<String> {
    let before = tcgetattr(io::stdin())?;
    let mut quiet = before.clone();
    quiet.local_flags.remove(LocalFlags::ECHO);
    let mut out = io::stdout().lock();
    out.write_all(prompt.as_bytes())?;
    out.flush()?;
    tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &quiet)?;
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    tcsetattr(io::stdin(), SetArg::TCSANOW, &before)?;
    out.write_all(b"\n")?;
    read.map(|_| line.trim_end_matches(['\r', '\n']).to_owned())
}

/// The length of the cursor position report at the beginning of `input`: `ESC [ LINE ; COLUMN R`.
fn answer(input: &[u8]) -> Option<usize> {
    let rest = input.strip_prefix(b"\x1b[")?;
    let end = rest.iter().position(|byte| *byte == b'R')?;
    rest[..end].iter().all(|byte| byte.is_ascii_digit() || *byte == b';').then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `input`, and compares the lines that are entered, and the echo, with the expected ones.
    fn check(input: &str, want: &[&str], echoed: &str) {
        let (mut line, mut echo, mut got) = (Line::new(), Vec::new(), Vec::new());
        for byte in input.bytes() {
            match line.feed(byte, &mut echo) {
                Key::None => {}
                Key::Enter => {
                    got.push(line.text());
                    line.set("");
                }
                other => got.push(format!("{other:?} {}", line.text())),
            }
        }
        assert_eq!(got, want, "{input:?}");
        assert_eq!(String::from_utf8_lossy(&echo), echoed, "{input:?}");
    }

    #[test]
    fn lines_and_keys() {
        check("show version\r\nend\n", &["show version", "end"], "show version\nend\n");
        check("sho\x7fw\x08\x08h\r", &["sh"], "sho\x08 \x08w\x08 \x08\x08 \x08h\n");
        check("show \u{e9}\x7fx\r", &["show x"], "show \u{e9}\x08 \x08x\n");
        check(
            "a bc d\x17e\x15f\r",
            &["f"],
            "a bc d\x08 \x08e\x08 \x08\x08 \x08\x08 \x08\x08 \x08\x08 \x08\x08 \x08f\n",
        );
        check(
            "sh?\tx\x03\x1a\x04",
            &["Help sh", "Complete sh", "Cancel ", "End ", "Close "],
            "sh?\nx^C\n^Z\n",
        );
        check("\r\r\n\n", &["", "", ""], "\n\n\n");
    }

    #[test]
    fn escape_sequences_are_dropped_whole() {
        check("\x1b[31mshow\x1b[0m version\r", &["show version"], "show version\n");
        check("\x1b[200~hostname a\x1b[201~\r", &["hostname a"], "hostname a\n");
        check("\x1b]0;write erase\x07end\r", &["end"], "end\n");
        check("\x1b]0;write erase\x1b\\end\r", &["end"], "end\n");
        check("\x1bOAa\x1b(Bb\x1bPq\rc\r", &["ab", "c"], "ab\nc\n");
    }

    #[test]
    fn only_terminals_that_may_answer_are_asked() {
        for term in ["xterm-256color", "screen", "linux", "tmux-256color"] {
            assert!(may_answer(Some(term)), "{term}");
        }
        for term in [None, Some(""), Some("dumb"), Some("vt100"), Some("network"), Some("unknown")] {
            assert!(!may_answer(term), "{term:?}");
        }
        assert_eq!(answer(b"\x1b[24;80R"), Some(8));
        assert_eq!(answer(b"\x1b[1;1Rshow"), Some(6));
        assert_eq!(answer(b"show version\r"), None);
        assert_eq!(answer(b"\x1b[A"), None);
    }
}
