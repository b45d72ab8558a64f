//! The client's side of the control socket, blocking.

use crate::paths::Paths;
use crate::protocol::{Done, Reply, Request, line};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Longest reply line taken, in bytes.
const MAX_REPLY: u64 = 16 << 20;

/// A piece of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Output that is not text.
    Bytes(&'a [u8]),
    /// Output.
    Output(&'a str),
    /// Why the line was refused.
    Refusal(&'a str),
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    writer: UnixStream,
    reader: BufReader<UnixStream>,
}

/// The receiving half, for a thread of its own.
#[derive(Debug)]
pub struct Replies(BufReader<UnixStream>);

/// The sending half.
#[derive(Debug)]
pub struct Requests(UnixStream);

impl Client {
    /// Connects to the daemon of `instance`.
    ///
    /// # Errors
    /// When there is none, or it belongs to another user.
    pub fn connect(instance: &str) -> Result<Self, String> {
        let path = Paths::find(instance).socket();
        Self::at(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                format!("instance {instance}: no switch is running ({}: {error})", path.display())
            }
            _ => format!("instance {instance}: {}: {error}", path.display()),
        })
    }
    /// Connects to the daemon at this socket.
    ///
    /// # Errors
    /// The system's.
    pub fn at(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        Ok(Self { writer: stream.try_clone()?, reader: BufReader::new(stream) })
    }
    /// Opens a command-line session.
    ///
    /// # Errors
    /// When the daemon has too many sessions.
    pub fn hello(&mut self, user: &str, interactive: bool) -> Result<Done, String> {
        self.greet(user, interactive, &mut |_| Ok(()))
    }
    /// As [`Client::hello`]; `output` is given the banners.
    ///
    /// # Errors
    /// When the daemon has no room, or `output` fails.
    pub fn greet(
        &mut self,
        user: &str,
        interactive: bool,
        output: &mut dyn FnMut(Piece<'_>) -> io::Result<()>,
    ) -> Result<Done, String> {
        self.ask(&Request::Hello { user: user.to_owned(), interactive }, output)
    }
    /// Runs a line. `output` gets its output or the refusal, piece by piece.
    ///
    /// # Errors
    /// When the connection breaks, or `output` fails.
    pub fn exec(
        &mut self,
        line: &str,
        output: &mut dyn FnMut(Piece<'_>) -> io::Result<()>,
    ) -> Result<Done, String> {
        self.ask(&Request::Exec { line: line.to_owned(), pasted: false }, output)
    }
    /// Runs one line of a text; see [`Request::Exec`].
    ///
    /// # Errors
    /// As [`Client::exec`].
    pub fn paste(
        &mut self,
        line: &str,
        output: &mut dyn FnMut(Piece<'_>) -> io::Result<()>,
    ) -> Result<Done, String> {
        self.ask(&Request::Exec { line: line.to_owned(), pasted: true }, output)
    }
    /// Runs a classic bridge command.
    ///
    /// # Errors
    /// When the connection breaks, or `output` fails.
    pub fn brctl(
        &mut self,
        words: &[String],
        output: &mut dyn FnMut(Piece<'_>) -> io::Result<()>,
    ) -> Result<Done, String> {
        self.ask(&Request::Brctl { words: words.to_vec() }, output)
    }
    /// Takes the plane down and ends the daemon.
    ///
    /// # Errors
    /// When the connection breaks, or `output` fails.
    pub fn detach(&mut self, output: &mut dyn FnMut(Piece<'_>) -> io::Result<()>) -> Result<Done, String> {
        self.ask(&Request::Detach, output)
    }
    /// Splits the connection into both halves.
    #[must_use]
    pub fn split(self) -> (Requests, Replies) {
        (Requests(self.writer), Replies(self.reader))
    }

    fn ask(
        &mut self,
        request: &Request,
        output: &mut dyn FnMut(Piece<'_>) -> io::Result<()>,
    ) -> Result<Done, String> {
        send(&mut self.writer, request)?;
        let wrong = |error| format!("writing the output: {error}");
        loop {
            match receive(&mut self.reader)? {
                Reply::Text(text) | Reply::Stream(text) => output(Piece::Output(&text)).map_err(wrong)?,
                Reply::Bytes(digits) => output(Piece::Bytes(&from_hex(&digits)?)).map_err(wrong)?,
                Reply::Refusal(text) => output(Piece::Refusal(&text)).map_err(wrong)?,
                Reply::Done(done) => return Ok(done),
                Reply::Error(reason) => return Err(reason),
                Reply::Completion { .. } | Reply::Help(_) | Reply::Monitor(_) => {}
            }
        }
    }
}

impl Requests {
    /// Sends a request.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn send(&mut self, request: &Request) -> Result<(), String> {
        send(&mut self.0, request)
    }
    /// Another handle on the same half.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}

impl Replies {
    /// The next reply.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn receive(&mut self) -> Result<Reply, String> {
        receive(&mut self.0)
    }
}

fn from_hex(digits: &str) -> Result<Vec<u8>, String> {
    let wrong = || "the switch's answer holds bytes that are not hexadecimal".to_owned();
    let pair = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    digits.as_bytes().chunks(2).map(|digits| pair(digits).ok_or_else(wrong)).collect()
}

fn send(writer: &mut UnixStream, request: &Request) -> Result<(), String> {
    writer.write_all(line(request).as_bytes()).map_err(|_| "the switch has closed the connection".to_owned())
}

fn receive(reader: &mut BufReader<UnixStream>) -> Result<Reply, String> {
    let mut text = String::new();
    match reader.take(MAX_REPLY).read_line(&mut text) {
        Ok(0) => Err("the switch has closed the connection".into()),
        Ok(_) => {
            serde_json::from_str(&text).map_err(|error| format!("the switch's answer is no reply: {error}"))
        }
        Err(error) => Err(format!("reading from the switch: {error}")),
    }
}
