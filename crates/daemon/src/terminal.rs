//! The terminal of a remote session: bytes of a connection in and out, through the line editor.
//!
//! Input has telnet's framing on every connection, because the size of the window is part of it. A telnet client also gets
//! telnet's negotiation and framing in the output; other clients get the bytes of their terminal.
//!
//! Invariant: input that waits is bounded by [`MAX_AHEAD`]; output goes straight to the connection, and a connection that takes
//! nothing for [`STALL`] has ended.

use lanyard_access::editor::{Editor, Key};
use lanyard_access::telnet::{self, Telnet};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How long a write may wait for its reader.
pub(crate) const STALL: Duration = Duration::from_secs(60);
/// The most input that is kept while a command runs, in bytes; further input is dropped.
const MAX_AHEAD: usize = 4096;
/// Bytes read at once.
const PIECE: usize = 1024;
/// The highest number of rows that is accepted as a window's; a higher number counts as not known.
const MAX_ROWS: u16 = 512;

/// Why a terminal has no more input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Gone {
    #[error("the client has closed the connection")]
    Closed,
    #[error("the client does not read")]
    Stalled,
}

/// The reading side of a connection.
pub(crate) type Reader = Box<dyn AsyncRead + Unpin>;
/// The writing side of a connection.
pub(crate) type Writer = Box<dyn AsyncWrite + Unpin>;

/// A remote terminal.
pub(crate) struct Terminal {
    reader: Reader,
    writer: Writer,
    telnet: Telnet,
    /// True for a telnet client: options are negotiated, and the output has telnet's framing.
    is_telnet: bool,
    editor: Editor,
    ahead: VecDeque<u8>,
    /// True after a carriage return: what a client sends with it (RFC 854: a line feed, or a zero) is no input of its own.
    after_return: bool,
    /// Answers to telnet's negotiation, which precede the next output.
    answer: Vec<u8>,
    rows: u16,
    stall: Duration,
}

impl Terminal {
    /// A terminal over a connection.
    ///
    /// # Errors
    /// When the connection has ended already.
    pub(crate) async fn open(reader: Reader, writer: Writer, is_telnet: bool) -> Result<Self, Gone> {
        let mut terminal = Self {
            reader,
            writer,
            telnet: Telnet::default(),
            is_telnet,
            editor: Editor::default(),
            ahead: VecDeque::new(),
            after_return: false,
            answer: Vec::new(),
            rows: 0,
            stall: STALL,
        };
        if is_telnet {
            terminal.send(telnet::GREETING).await?;
        }
        Ok(terminal)
    }
    /// The rows of the window; 0 when they are not known.
    pub(crate) fn rows(&self) -> u16 {
        if self.rows <= MAX_ROWS { self.rows } else { 0 }
    }
    /// The editor with the present line.
    pub(crate) fn editor(&mut self) -> &mut Editor {
        &mut self.editor
    }
    /// True if input has arrived that has not been taken yet.
    pub(crate) fn has_input(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Prints text.
    ///
    /// # Errors
    /// When the connection has ended, or its reader does not read.
    pub(crate) async fn print(&mut self, text: &str) -> Result<(), Gone> {
        let text = text.replace('\n', "\r\n");
        let bytes = if self.is_telnet { telnet::encode(text.as_bytes()) } else { text.into_bytes() };
        self.send(&bytes).await
    }
    async fn send(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        let mut out = std::mem::take(&mut self.answer);
        out.extend(bytes);
        if out.is_empty() {
            return Ok(());
        }
        let writing = async {
            self.writer.write_all(&out).await?;
            self.writer.flush().await
        };
        match tokio::time::timeout(self.stall, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Gone::Closed),
            Err(_) => Err(Gone::Stalled),
        }
    }

    /// Waits for input, and keeps it. Cancel safe.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(crate) async fn wait(&mut self) -> Result<(), Gone> {
        let mut piece = [0; PIECE];
        let count = self.reader.read(&mut piece).await.map_err(|_| Gone::Closed)?;
        if count == 0 {
            return Err(Gone::Closed);
        }
        let input = self.telnet.feed(&piece[..count]);
        self.rows = input.window.map_or(self.rows, |(_, rows)| rows);
        self.keep(&input.data);
        if self.is_telnet {
            self.answer.extend(input.answer);
        }
        Ok(())
    }
    fn keep(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let is_second = self.after_return && matches!(byte, b'\n' | 0);
            self.after_return = *byte == b'\r';
            if !is_second && self.ahead.len() < MAX_AHEAD {
                self.ahead.push_back(*byte);
            }
        }
    }
    /// Takes the next byte of the input that has arrived.
    pub(crate) fn next_byte(&mut self) -> Option<u8> {
        self.ahead.pop_front()
    }
    /// Removes the last ctrl-C from the input that has arrived, with everything before it; false when there is none.
    pub(crate) fn take_interrupt(&mut self) -> bool {
        let Some(at) = self.ahead.iter().rposition(|byte| *byte == 3) else { return false };
        self.ahead.drain(..=at);
        true
    }
    /// Edits the line with the input that has arrived. Returns the next key that does not edit, such as return; `None` if there
    /// is none yet.
    ///
    /// # Errors
    /// When the echo cannot be sent.
    pub(crate) async fn edit(&mut self) -> Result<Option<Key>, Gone> {
        let mut echo = Vec::new();
        let mut found = None;
        while let Some(byte) = self.ahead.pop_front() {
            let key = self.editor.feed(byte, &mut echo);
            if key != Key::None {
                found = Some(key);
                break;
            }
        }
        let echo = if self.is_telnet { telnet::encode(&echo) } else { echo };
        self.send(&echo).await?;
        Ok(found)
    }
    /// Asks for one line, which is not echoed if `is_hidden`. `None` after ctrl-C, ctrl-D or ctrl-Z.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(crate) async fn ask(&mut self, prompt: &str, is_hidden: bool) -> Result<Option<String>, Gone> {
        self.print(prompt).await?;
        self.editor.hide(is_hidden);
        let answer = loop {
            match self.edit().await? {
                Some(Key::Enter(line)) => break Some(line),
                Some(Key::Interrupt | Key::End(_) | Key::Close) => break None,
                Some(_) => {}
                None => self.wait().await?,
            }
        };
        self.editor.hide(false);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Runs `work` with a terminal, and a client that sends `input`; returns the result and what the client received.
    fn with<T>(input: &[u8], is_telnet: bool, work: impl AsyncFnOnce(&mut Terminal) -> T) -> (T, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(async {
            let (mut client, server) = tokio::io::duplex(1 << 16);
            client.write_all(input).await.expect("sent");
            let (reader, writer) = tokio::io::split(server);
            let opened = Terminal::open(Box::new(reader), Box::new(writer), is_telnet).await;
            let mut terminal = opened.expect("open");
            let result = work(&mut terminal).await;
            drop(terminal);
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.expect("read");
            (result, received)
        })
    }

    #[test]
    fn a_name_and_a_secret() {
        let (answers, shown) = with(b"ann\r\ntiger\r\n\x03", false, async |terminal: &mut Terminal| {
            let name = terminal.ask("Username: ", false).await;
            let secret = terminal.ask("Password: ", true).await;
            (name, secret, terminal.ask("Username: ", false).await)
        });
        assert_eq!(answers, (Ok(Some("ann".into())), Ok(Some("tiger".into())), Ok(None)));
        assert_eq!(String::from_utf8_lossy(&shown), "Username: ann\r\nPassword: \r\nUsername: ^C\r\n");
    }

    #[test]
    fn telnet_is_decoded_and_answered() {
        let input = [b"a\xff\xfb\x18\xff\xfa\x1f\x00\x50\x00\x32\xff\xf0b\r\0".as_slice(), b"x"].concat();
        let ((answer, rows), shown) = with(&input, true, async |terminal: &mut Terminal| {
            (terminal.ask("> ", false).await, terminal.rows())
        });
        assert_eq!((answer, rows), (Ok(Some("ab".into())), 50));
        assert_eq!(shown[..telnet::GREETING.len()], *telnet::GREETING);
        assert!(shown.windows(3).any(|window| window == [255, 254, 24]), "{shown:?}");
    }

    #[test]
    fn other_clients_send_the_size_of_their_window() {
        let input = [&[b'a', 255, 255, 255, 251, 24], telnet::window(80, 40).as_slice(), b"\r"].concat();
        let ((answer, rows), shown) = with(&input, false, async |terminal: &mut Terminal| {
            (terminal.ask("> ", false).await, terminal.rows())
        });
        assert_eq!((answer, rows), (Ok(Some("a".into())), 40));
        assert_eq!(String::from_utf8_lossy(&shown), "> a\r\n");
    }

    /// A line feed that arrives late must not be the key that a pager waits for.
    #[test]
    fn a_line_ends_once() {
        for input in [b"a\r\nq".as_slice(), b"a\r\0q", b"a\rq", b"a\nq"] {
            let (key, _) = with(input, false, async |terminal: &mut Terminal| {
                assert_eq!(terminal.ask("> ", false).await, Ok(Some("a".into())), "{input:?}");
                terminal.next_byte()
            });
            assert_eq!(key, Some(b'q'), "{input:?}");
        }
    }

    #[test]
    fn input_ahead_is_bounded_and_can_be_interrupted() {
        let mut input = vec![b'x'; 2 * MAX_AHEAD];
        input.push(3);
        let (ahead, _) = with(&input, false, async |terminal: &mut Terminal| {
            for _ in 0..2 * MAX_AHEAD / PIECE {
                terminal.wait().await.expect("input");
            }
            terminal.ahead.len()
        });
        assert_eq!(ahead, MAX_AHEAD);
        let (taken, _) = with(b"abc\x03d", false, async |terminal: &mut Terminal| {
            terminal.wait().await.expect("input");
            (terminal.take_interrupt(), terminal.next_byte(), terminal.take_interrupt())
        });
        assert_eq!(taken, (true, Some(b'd'), false));
    }

    #[test]
    fn a_reader_that_has_stopped_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let result = runtime.expect("a runtime").block_on(async {
            let (_client, server) = tokio::io::duplex(1024);
            let (reader, writer) = tokio::io::split(server);
            let mut terminal = Terminal::open(Box::new(reader), Box::new(writer), false).await?;
            terminal.stall = Duration::from_millis(20);
            terminal.print(&"x".repeat(1 << 20)).await
        });
        assert_eq!(result, Err(Gone::Stalled));
    }
}
