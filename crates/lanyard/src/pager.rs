//! `--More--`: prints output one page at a time.
//!
//! Invariant: when a call returns, the terminal is in the mode in which the call found it.

use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, tcgetattr, tcsetattr};
use std::io::{self, Read, Write};

/// Prints output, pausing after each page.
#[derive(Debug)]
pub struct Pager {
    /// Lines per page; with 0 the pager never pauses.
    page: usize,
    /// Lines printed since the last pause.
    printed: usize,
    /// True after `q`: further output is dropped.
    quit: bool,
}

/// The meaning of a key at `--More--`.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Page,
    Line,
    Quit,
}

fn answer(key: Option<u8>) -> Answer {
    match key {
        Some(b' ' | b'f') => Answer::Page,
        Some(b'\r' | b'\n') => Answer::Line,
        _ => Answer::Quit,
    }
}

impl Pager {
    /// Returns a pager for one command's output.
    pub const fn new(page: usize) -> Self {
        Self { page, printed: 0, quit: false }
    }
    /// Prints `text`, or drops it after `q`. Returns true when the user has pressed `q` in this text.
    pub fn print(&mut self, text: &str) -> io::Result<bool> {
        let had_quit = self.quit;
        self.feed(text, &mut io::stdout().lock(), &mut read_key)?;
        Ok(self.quit && !had_quit)
    }

    fn feed(
        &mut self,
        text: &str,
        out: &mut dyn Write,
        key: &mut dyn FnMut() -> io::Result<Option<u8>>,
    ) -> io::Result<()> {
        for line in text.split_inclusive('\n') {
            if self.quit {
                return Ok(());
            }
            if self.page > 1 && self.printed >= self.page - 1 {
                out.write_all(b" --More-- ")?;
                out.flush()?;
                let key = key()?;
                out.write_all(b"\r          \r")?;
                match answer(key) {
                    Answer::Page => self.printed = 0,
                    Answer::Line => self.printed -= 1,
                    Answer::Quit => {
                        self.quit = true;
                        continue;
                    }
                }
            }
            out.write_all(line.as_bytes())?;
            self.printed += usize::from(line.ends_with('\n'));
        }
        out.flush()
    }
}

/// Reads one key, without waiting for the end of a line and without echo.
fn read_key() -> io::Result<Option<u8>> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut raw = before.clone();
    raw.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
    raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
    raw.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
    tcsetattr(&stdin, SetArg::TCSANOW, &raw)?;
    let mut key = [0];
    // Read from the terminal and not from `Stdin`, whose buffer would take more than one key.
    let count = std::fs::File::open("/dev/tty").and_then(|mut tty| tty.read(&mut key));
    tcsetattr(&stdin, SetArg::TCSANOW, &before)?;
    Ok((count? > 0).then_some(key[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: usize, lines: usize, keys: &str, want: &str) {
        let mut keys = keys.bytes();
        let mut out = Vec::new();
        let text: String = (1..=lines).map(|n| format!("{n}\n")).collect();
        Pager::new(page).feed(&text, &mut out, &mut || Ok(keys.next())).expect("written");
        let shown = String::from_utf8(out).expect("text").replace(" --More-- \r          \r", "~");
        assert_eq!(shown.replace('\n', " ").trim_end(), want);
        assert_eq!(keys.next(), None, "every key was asked for");
    }

    #[test]
    fn pages() {
        check(0, 5, "", "1 2 3 4 5");
        check(6, 5, "", "1 2 3 4 5");
        check(4, 3, "", "1 2 3");
        check(4, 7, "  ", "1 2 3 ~4 5 6 ~7");
        check(4, 5, "\r\n", "1 2 3 ~4 ~5");
        check(4, 9, "\rq", "1 2 3 ~4 ~");
    }
}
