//! The line editor of remote sessions: bytes of a terminal in, keys and echo out.
//!
//! The local command line edits with reedline, which reads the process's own terminal. A session over telnet or a console
//! has only bytes, in one process with all other sessions. It uses this editor: history, cursor keys, the control keys of
//! IOS and emacs, and passwords that are not shown. The terminal is driven with backspaces, blanks and BEL alone, so any
//! terminal works. A backspace stops at the left margin, so a line that is longer than the terminal is wide is shown
//! correctly only while it is edited at its end.
//!
//! Invariant: a line has at most [`MAX_LINE`] bytes and is UTF-8 without control characters; the history is bounded; no
//! input causes a panic, and the output for one byte is at most a constant times the length of the line before and after it.

use std::collections::VecDeque;

/// The maximum length of a line, in bytes: that of a command line.
pub const MAX_LINE: usize = 4096;
/// The maximum number of lines of history.
const MAX_HISTORY: usize = 50;
/// The maximum number of bytes between `ESC [` and the final byte of an escape sequence; the byte after them ends it.
const MAX_ESCAPE: usize = 32;

/// The action that a byte of input requests of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// No action; the line may have changed.
    None,
    /// The line is complete.
    Enter(String),
    /// `?`: help for the line up to the cursor.
    Help,
    /// TAB: completion at the end of the line.
    Complete,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z, and the line that was being entered. It is not stored in the history.
    End(String),
    /// Ctrl-D on an empty line.
    Close,
}

/// The state of the decoder of escape sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    /// After ESC.
    Begun,
    /// After `ESC [` or `ESC O`, with the number of bytes received since, and the last of them (0 if there is none).
    Control(usize, u8),
    /// Within a string that ends with BEL or `ESC \`.
    Text,
}

/// A line that is being edited.
#[derive(Debug)]
pub struct Editor {
    line: Vec<char>,
    cursor: usize,
    history: VecDeque<String>,
    /// How many entries back in the history the shown line is; 0 if it is not from the history.
    back: usize,
    /// The line that the user was entering before moving to the history; it is shown when the user moves back.
    kept: String,
    escape: Escape,
    utf8: Vec<u8>,
    after_cr: bool,
    is_hidden: bool,
}

impl Default for Editor {
    fn default() -> Self {
        Self {
            line: Vec::new(),
            cursor: 0,
            history: VecDeque::new(),
            back: 0,
            kept: String::new(),
            escape: Escape::None,
            utf8: Vec::new(),
            after_cr: false,
            is_hidden: false,
        }
    }
}

impl Editor {
    /// Sets whether the line is a secret: it is not shown, and does not go into the history.
    pub fn hide(&mut self, is_hidden: bool) {
        self.is_hidden = is_hidden;
    }
    /// The line.
    #[must_use]
    pub fn text(&self) -> String {
        self.line.iter().collect()
    }
    /// The line up to the cursor.
    #[must_use]
    pub fn before_cursor(&self) -> String {
        self.line[..self.cursor].iter().collect()
    }
    /// The bytes that draw the line again behind a new prompt, with the cursor where it was.
    #[must_use]
    pub fn redraw(&self) -> Vec<u8> {
        let mut echo = Vec::new();
        if !self.is_hidden {
            echo.extend(self.text().into_bytes());
            back(&mut echo, self.line.len() - self.cursor);
        }
        echo
    }
    /// Replaces the part of the line from the byte `start` to the cursor by `text`, for completion. If the line would
    /// become too long, it stays as it is, and `echo` gets a BEL.
    pub fn complete(&mut self, start: usize, text: &str, echo: &mut Vec<u8>) {
        let before = self.before_cursor();
        let Some(kept) = before.get(..start) else { return };
        let rest: String = self.line[self.cursor..].iter().collect();
        let line = format!("{kept}{text}");
        if line.len() + rest.len() > MAX_LINE {
            return echo.push(7);
        }
        let cursor = line.chars().count();
        self.show(&format!("{line}{rest}"), cursor, echo);
    }

    /// Takes one byte of input. What the terminal is to show is appended to `echo`, with `\r\n` as the end of a line.
    pub fn feed(&mut self, byte: u8, echo: &mut Vec<u8>) -> Key {
        let after_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
        if self.escape != Escape::None {
            self.in_escape(byte, echo);
            return Key::None;
        }
        match byte {
            b'\n' | 0 if after_cr => Key::None,
            b'\r' | b'\n' => self.enter(echo),
            0x1b => {
                self.escape = Escape::Begun;
                Key::None
            }
            b'?' if !self.is_hidden => {
                echo.extend(b"?\r\n");
                Key::Help
            }
            b'\t' if !self.is_hidden => Key::Complete,
            3 => self.abandon(b"^C\r\n", Key::Interrupt, echo),
            26 => {
                let line = self.line.iter().collect();
                self.abandon(b"^Z\r\n", Key::End(line), echo)
            }
            4 if self.line.is_empty() => Key::Close,
            0x00..0x20 | 0x7f => {
                self.control(byte, echo);
                Key::None
            }
            _ => {
                self.character(byte, echo);
                Key::None
            }
        }
    }

    fn enter(&mut self, echo: &mut Vec<u8>) -> Key {
        echo.extend(b"\r\n");
        let text = self.text();
        self.clear();
        if !self.is_hidden && !text.trim().is_empty() && self.history.back() != Some(&text) {
            while self.history.len() >= MAX_HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(text.clone());
        }
        Key::Enter(text)
    }
    fn abandon(&mut self, shown: &[u8], key: Key, echo: &mut Vec<u8>) -> Key {
        self.clear();
        echo.extend(shown);
        key
    }
    fn clear(&mut self) {
        self.line.clear();
        (self.cursor, self.back) = (0, 0);
        self.utf8.clear();
    }

    fn control(&mut self, byte: u8, echo: &mut Vec<u8>) {
        let (cursor, end) = (self.cursor, self.line.len());
        match byte {
            1 => self.move_to(0, echo),
            2 => self.move_to(cursor.saturating_sub(1), echo),
            5 => self.move_to(end, echo),
            6 => self.move_to((cursor + 1).min(end), echo),
            8 | 0x7f => self.remove(cursor.saturating_sub(1), cursor, echo),
            4 => self.remove(cursor, (cursor + 1).min(end), echo),
            11 => self.remove(cursor, end, echo),
            21 | 24 => self.remove(0, cursor, echo),
            23 => self.remove(self.word_start(), cursor, echo),
            14 => self.recall(false, echo),
            16 => self.recall(true, echo),
            12 | 18 => {
                echo.extend(b"\r\n");
                echo.extend(self.redraw());
            }
            _ => {}
        }
    }

    fn in_escape(&mut self, byte: u8, echo: &mut Vec<u8>) {
        let (cursor, end) = (self.cursor, self.line.len());
        self.escape = match (self.escape, byte) {
            (Escape::Begun, b'[' | b'O') => Escape::Control(0, 0),
            (Escape::Begun, b']' | b'P' | b'^' | b'_' | b'X') => Escape::Text,
            (Escape::Begun, b'(' | b')' | b'#' | b' ') => Escape::Control(MAX_ESCAPE, 0),
            (Escape::Begun, b'b') => self.moved(self.word_start(), echo),
            (Escape::Begun, b'f') => self.moved(self.word_end(), echo),
            (Escape::Begun, _) => Escape::None,
            (Escape::Text, 7) => Escape::None,
            (Escape::Text, 0x1b) => Escape::Begun,
            (Escape::Text, b'\r' | b'\n') => Escape::None,
            (Escape::Text, _) => Escape::Text,
            (Escape::Control(count, _), 0x20..0x40) if count < MAX_ESCAPE => Escape::Control(count + 1, byte),
            (Escape::Control(count, last), _) => {
                match byte {
                    _ if count >= MAX_ESCAPE => {}
                    b'A' => self.recall(true, echo),
                    b'B' => self.recall(false, echo),
                    b'C' => self.move_to((cursor + 1).min(end), echo),
                    b'D' => self.move_to(cursor.saturating_sub(1), echo),
                    b'H' => self.move_to(0, echo),
                    b'F' => self.move_to(end, echo),
                    b'~' if last == b'3' => self.remove(cursor, (cursor + 1).min(end), echo),
                    b'~' if last == b'1' || last == b'7' => self.move_to(0, echo),
                    b'~' if last == b'4' || last == b'8' => self.move_to(end, echo),
                    _ => {}
                }
                Escape::None
            }
            (Escape::None, _) => Escape::None,
        };
    }
    fn moved(&mut self, cursor: usize, echo: &mut Vec<u8>) -> Escape {
        self.move_to(cursor, echo);
        Escape::None
    }

    fn character(&mut self, byte: u8, echo: &mut Vec<u8>) {
        self.utf8.push(byte);
        let c = match std::str::from_utf8(&self.utf8) {
            Ok(text) => text.chars().next(),
            Err(error) if error.error_len().is_none() && self.utf8.len() < 4 => return,
            Err(_) => None,
        };
        self.utf8.clear();
        let Some(c) = c.filter(|c| !c.is_control()) else { return };
        let length: usize = self.line.iter().map(|c| c.len_utf8()).sum();
        if length + c.len_utf8() > MAX_LINE {
            return echo.push(7);
        }
        self.line.insert(self.cursor, c);
        self.cursor += 1;
        if !self.is_hidden {
            echo.extend(self.line[self.cursor - 1..].iter().collect::<String>().into_bytes());
            back(echo, self.line.len() - self.cursor);
        }
    }

    fn move_to(&mut self, cursor: usize, echo: &mut Vec<u8>) {
        if !self.is_hidden {
            if cursor < self.cursor {
                back(echo, self.cursor - cursor);
            } else {
                echo.extend(self.line[self.cursor..cursor].iter().collect::<String>().into_bytes());
            }
        }
        self.cursor = cursor;
    }
    fn remove(&mut self, from: usize, to: usize, echo: &mut Vec<u8>) {
        if from == to {
            return;
        }
        self.move_to(from, echo);
        self.line.drain(from..to);
        if !self.is_hidden {
            echo.extend(self.line[from..].iter().collect::<String>().into_bytes());
            echo.extend(std::iter::repeat_n(b' ', to - from));
            back(echo, self.line.len() - from + (to - from));
        }
    }
    /// Replaces the whole line.
    fn show(&mut self, text: &str, cursor: usize, echo: &mut Vec<u8>) {
        self.move_to(0, echo);
        let before = self.line.len();
        self.line = text.chars().collect();
        self.cursor = cursor.min(self.line.len());
        echo.extend(text.as_bytes());
        let gone = before.saturating_sub(self.line.len());
        echo.extend(std::iter::repeat_n(b' ', gone));
        back(echo, gone + self.line.len() - self.cursor);
    }
    fn recall(&mut self, up: bool, echo: &mut Vec<u8>) {
        let next = if up { self.back + 1 } else { self.back.saturating_sub(1) };
        if self.is_hidden || next > self.history.len() || next == self.back {
            return;
        }
        if self.back == 0 {
            self.kept = self.text();
        }
        self.back = next;
        let text = match next {
            0 => std::mem::take(&mut self.kept),
            _ => self.history[self.history.len() - next].clone(),
        };
        self.show(&text, usize::MAX, echo);
    }

    fn word_start(&self) -> usize {
        let mut at = self.cursor;
        while at > 0 && self.line[at - 1] == ' ' {
            at -= 1;
        }
        while at > 0 && self.line[at - 1] != ' ' {
            at -= 1;
        }
        at
    }
    fn word_end(&self) -> usize {
        let mut at = self.cursor;
        while at < self.line.len() && self.line[at] == ' ' {
            at += 1;
        }
        while at < self.line.len() && self.line[at] != ' ' {
            at += 1;
        }
        at
    }
}

/// Moves the cursor to the left.
fn back(echo: &mut Vec<u8>, count: usize) {
    echo.extend(std::iter::repeat_n(8, count));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal of one line: what it shows, and the cursor.
    #[derive(Default)]
    struct Screen {
        cells: Vec<char>,
        at: usize,
    }

    impl Screen {
        fn show(&mut self, echo: &[u8]) {
            for c in String::from_utf8_lossy(echo).chars() {
                match c {
                    '\u{8}' => self.at = self.at.checked_sub(1).expect("the cursor stays on the line"),
                    '\n' => *self = Self::default(),
                    '\r' | '\u{7}' => {}
                    c => {
                        if self.at == self.cells.len() {
                            self.cells.push(c);
                        } else {
                            self.cells[self.at] = c;
                        }
                        self.at += 1;
                    }
                }
            }
        }
    }

    /// Feeds `input` and compares the keys with the expected ones; after each byte the screen shows the line.
    fn check(input: &[u8], want: &[Key]) {
        let (mut editor, mut screen, mut keys) = (Editor::default(), Screen::default(), Vec::new());
        for byte in input {
            let mut echo = Vec::new();
            let key = editor.feed(*byte, &mut echo);
            screen.show(&echo);
            if key == Key::Help {
                screen = Screen::default();
                screen.show(&editor.redraw());
            }
            let shown: String = screen.cells.iter().collect();
            assert_eq!(shown.trim_end(), editor.text().trim_end(), "{input:?}");
            assert_eq!(screen.at, editor.cursor, "{input:?}");
            if key != Key::None {
                keys.push(key);
            }
        }
        assert_eq!(keys, want, "{:?}", String::from_utf8_lossy(input));
    }

    fn enter(text: &str) -> Key {
        Key::Enter(text.into())
    }

    #[test]
    fn lines_and_keys() {
        check(b"show version\r\nend\r\0exit\n", &[enter("show version"), enter("end"), enter("exit")]);
        check(b"shoe\x08w\x7fw\r", &[enter("show")]);
        let end = |text: &str| Key::End(text.into());
        check(b"sh?ow\t\x03\x1a\x04", &[Key::Help, Key::Complete, Key::Interrupt, end(""), Key::Close]);
        check(b"mtu 9000\x1aend\r", &[end("mtu 9000"), enter("end")]);
        check(b"how\x01s\x05 clock\x02\x02X\r", &[enter("show cloXck")]);
        check(b"a bc d\x17\x17e\x15f\r", &[enter("f")]);
        check(b"abc\x1b[D\x1b[D\x04\x1b[C\x1bOD\x0bd\r", &[enter("ad")]);
        check("é\u{65e5}\u{7f}x\r".as_bytes(), &[enter("éx")]);
        check(b"one two\x1bb\x1bbX\x1bf\x1bfY\x1b[H<\x1b[F>\r", &[enter("<Xone twoY>")]);
    }

    #[test]
    fn history() {
        let one = [enter("one"), enter("two")];
        check(b"one\rtwo\r\x10\x10\r", &[&one[..], &[enter("one")]].concat());
        check(b"one\rtwo\rth\x1b[A\x1b[A\x1b[A\x1b[B\x1b[B\x1b[B!\r", &[&one[..], &[enter("th!")]].concat());
    }

    #[test]
    fn escape_sequences_are_dropped_whole() {
        check(b"\x1b[31mshow\x1b[0m\r", &[enter("show")]);
        check(b"\x1b]0;write erase\x07end\r", &[enter("end")]);
        check(b"\x1b]0;write erase\x1b\\end\r", &[enter("end")]);
        check(b"\x1b[200~hostname a\x1b[201~\r", &[enter("hostname a")]);
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut editor = Editor::default();
        editor.hide(true);
        let mut echo = Vec::new();
        let keys: Vec<Key> = b"ti?\tx\x08ger\r".iter().map(|byte| editor.feed(*byte, &mut echo)).collect();
        assert_eq!(keys.last(), Some(&enter("ti?ger")));
        assert_eq!(echo, b"\r\n");
        editor.hide(false);
        echo.clear();
        editor.feed(16, &mut echo);
        assert_eq!((editor.text().as_str(), echo.as_slice()), ("", &[][..]), "not in the history");
    }

    #[test]
    fn bounded() {
        let mut editor = Editor::default();
        let mut echo = Vec::new();
        for _ in 0..2 * MAX_LINE {
            editor.feed(b'x', &mut echo);
        }
        assert_eq!(editor.text().len(), MAX_LINE);
        assert_eq!(echo.last(), Some(&7));
        for n in 0..2 * MAX_HISTORY {
            for byte in format!("{n}\r").bytes() {
                editor.feed(byte, &mut echo);
            }
        }
        assert_eq!(editor.history.len(), MAX_HISTORY);
    }

    #[test]
    fn completion() {
        let mut editor = Editor::default();
        let mut echo = Vec::new();
        for byte in b"sh ver" {
            editor.feed(*byte, &mut echo);
        }
        editor.complete(3, "version ", &mut echo);
        assert_eq!(editor.text(), "sh version ");
        editor.complete(500, "x", &mut echo);
        assert_eq!(editor.text(), "sh version ");
    }
}
