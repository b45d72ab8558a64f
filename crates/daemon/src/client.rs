//! The client's side of the control socket, blocking.

use crate::paths::{Paths, group_socket_of};
use crate::protocol::{Done, Reply, Request, line};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The longest reply line that is read, in bytes.
const MAX_REPLY: u64 = 16 << 20;

/// Why a request is not answered.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens at the socket.
    #[error("instance {instance}: no switch is running ({}: {cause})", path.display())]
    NotRunning {
        /// The instance.
        instance: String,
        /// Its socket.
        path: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The socket cannot be reached, for example because it belongs to another user.
    #[error("instance {instance}: {}: {cause}", path.display())]
    Connect {
        /// The instance.
        instance: String,
        /// Its socket.
        path: PathBuf,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The daemon has closed the connection.
    #[error("the switch has closed the connection")]
    Closed,
    /// The daemon has ended the session, for this reason.
    #[error("{0}")]
    Ended(String),
    /// The answer cannot be read.
    #[error("reading from the switch: {0}")]
    Read(#[source] io::Error),
    /// The answer is not one of [`Reply`].
    #[error("the switch's answer is no reply: {0}")]
    NoReply(#[source] serde_json::Error),
    /// [`Reply::Bytes`] with something else than pairs of hexadecimal digits.
    #[error("the switch's answer holds bytes that are not hexadecimal")]
    NotHexadecimal,
    /// The caller could not write what the daemon answered.
    #[error("writing the output: {0}")]
    Output(#[source] io::Error),
}

/// A piece of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Output that is not text.
    Bytes(&'a [u8]),
    /// Output.
    Output(&'a str),
    /// The reason why the line was refused.
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
    pub fn connect(instance: &str) -> Result<Self, ClientError> {
        let path = Paths::find(instance).socket();
        let instance = instance.to_owned();
        Self::at(&path).or_else(|cause| Self::at(&group_socket_of(&instance)).map_err(|_| cause)).map_err(
            |cause| match cause.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    ClientError::NotRunning { instance, path, cause }
                }
                _ => ClientError::Connect { instance, path, cause },
            },
        )
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
    pub fn hello(&mut self, user: &str, interactive: bool) -> Result<Done, ClientError> {
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
    ) -> Result<Done, ClientError> {
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
    ) -> Result<Done, ClientError> {
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
    ) -> Result<Done, ClientError> {
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
    ) -> Result<Done, ClientError> {
        self.ask(&Request::Brctl { words: words.to_vec() }, output)
    }
    /// Removes the plane and ends the daemon.
    ///
    /// # Errors
    /// When the connection breaks, or `output` fails.
    pub fn detach(
        &mut self,
        output: &mut dyn FnMut(Piece<'_>) -> io::Result<()>,
    ) -> Result<Done, ClientError> {
        self.ask(&Request::Detach, output)
    }
    /// Begins the login of a console; the connection then carries the bytes of its terminal.
    ///
    /// # Errors
    /// The system's.
    pub fn console(mut self, terminal: &str) -> io::Result<UnixStream> {
        let request = Request::Console { terminal: terminal.to_owned() };
        self.writer.write_all(line(&request).as_bytes())?;
        Ok(self.writer)
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
    ) -> Result<Done, ClientError> {
        send(&mut self.writer, request)?;
        let wrong = ClientError::Output;
        loop {
            match receive(&mut self.reader)? {
                Reply::Text(text) | Reply::Stream(text) => output(Piece::Output(&text)).map_err(wrong)?,
                Reply::Bytes(digits) => output(Piece::Bytes(&from_hex(&digits)?)).map_err(wrong)?,
                Reply::Refusal(text) => output(Piece::Refusal(&text)).map_err(wrong)?,
                Reply::Done(done) => return Ok(done),
                Reply::Error(reason) => return Err(ClientError::Ended(reason)),
                Reply::Completion { .. } | Reply::Help(_) | Reply::Monitor(_) | Reply::Authenticated(_) => {}
            }
        }
    }
}

impl Requests {
    /// Sends a request.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn send(&mut self, request: &Request) -> Result<(), ClientError> {
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
    pub fn receive(&mut self) -> Result<Reply, ClientError> {
        receive(&mut self.0)
    }
}

fn from_hex(digits: &str) -> Result<Vec<u8>, ClientError> {
    let pair = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    digits.as_bytes().chunks(2).map(|digits| pair(digits).ok_or(ClientError::NotHexadecimal)).collect()
}

fn send(writer: &mut UnixStream, request: &Request) -> Result<(), ClientError> {
    writer.write_all(line(request).as_bytes()).map_err(|_| ClientError::Closed)
}

fn receive(reader: &mut BufReader<UnixStream>) -> Result<Reply, ClientError> {
    let mut text = String::new();
    match reader.take(MAX_REPLY).read_line(&mut text) {
        Ok(0) => Err(ClientError::Closed),
        Ok(_) => serde_json::from_str(&text).map_err(ClientError::NoReply),
        Err(error) => Err(ClientError::Read(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A client of a daemon that answers every request with these bytes and then closes the connection.
    fn answered(bytes: Vec<u8>) -> (Client, std::thread::JoinHandle<String>) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).expect("bound");
        let client = Client::at(&path).expect("connected");
        let daemon = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("accepted");
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).expect("a request");
            (&stream).write_all(&bytes).expect("answered");
            request
        });
        (client, daemon)
    }

    fn replies(list: &[Reply]) -> Vec<u8> {
        list.iter().flat_map(|reply| line(reply).into_bytes()).collect()
    }

    /// The result of `exec` for an answer: the pieces of output, and the final result.
    fn exec(bytes: Vec<u8>) -> (Vec<String>, Result<Done, String>) {
        let (mut client, daemon) = answered(bytes);
        let mut pieces = Vec::new();
        let done = client.exec("show clock", &mut |piece| {
            pieces.push(format!("{piece:?}"));
            Ok(())
        });
        let request = daemon.join().expect("the daemon");
        assert_eq!(request, "{\"exec\":{\"line\":\"show clock\"}}\n");
        (pieces, done.map_err(|error| error.to_string()))
    }

    #[test]
    fn an_answer_in_pieces() {
        let done = Done { prompt: "sw1#".into(), ..Done::default() };
        let (pieces, result) = exec(replies(&[
            Reply::Text("a".into()),
            Reply::Monitor("not an answer".into()),
            Reply::Stream("b".into()),
            Reply::Bytes("00ff".into()),
            Reply::Refusal("% c".into()),
            Reply::Done(done.clone()),
        ]));
        assert_eq!(result, Ok(done));
        assert_eq!(pieces, ["Output(\"a\")", "Output(\"b\")", "Bytes([0, 255])", "Refusal(\"% c\")"]);
    }

    #[test]
    fn answers_that_are_none() {
        let no_hex = "the switch's answer holds bytes that are not hexadecimal";
        for (bytes, want) in [
            (Vec::new(), "the switch has closed the connection"),
            (b"HTTP/1.1 400\n".to_vec(), "the switch's answer is no reply: "),
            (b"{\"nonsense\":1}\n".to_vec(), "the switch's answer is no reply: "),
            (vec![0xff, b'\n'], "reading from the switch: "),
            (replies(&[Reply::Error("no room".into())]), "no room"),
            (replies(&[Reply::Bytes("0".into())]), no_hex),
            (replies(&[Reply::Bytes("0g".into())]), no_hex),
            (replies(&[Reply::Bytes("é".into())]), no_hex),
        ] {
            let (pieces, result) = exec(bytes);
            let reason = result.expect_err(want);
            assert!(reason.starts_with(want), "{want}: {reason}");
            assert!(pieces.is_empty(), "{want}");
        }
    }

    /// If a daemon sends a line without end, the client reads no further than the limit.
    #[test]
    fn a_reply_without_end() {
        let (client, daemon) = UnixStream::pair().expect("a pair");
        let sender = std::thread::spawn(move || {
            let piece = [b' '; 1 << 16];
            let mut daemon = daemon;
            let mut sent = 0;
            while sent < 2 * MAX_REPLY && daemon.write_all(&piece).is_ok() {
                sent += piece.len() as u64;
            }
            sent
        });
        let mut reader = BufReader::new(client);
        let error = receive(&mut reader).expect_err("too long");
        assert!(error.to_string().starts_with("the switch's answer is no reply"), "{error}");
        drop(reader);
        assert!(sender.join().expect("the daemon") < 2 * MAX_REPLY, "not all was read");
    }

    #[test]
    fn output_that_cannot_be_written() {
        let (mut client, daemon) = answered(replies(&[Reply::Text("a".into())]));
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let error = client.exec("show clock", &mut |_| Err(full())).expect_err("the reader is gone");
        assert!(error.to_string().starts_with("writing the output: "), "{error}");
        daemon.join().expect("the daemon");
    }

    #[test]
    fn an_instance_that_does_not_run() {
        let error = Client::connect("lanyard-test-absent").expect_err("none runs").to_string();
        assert!(error.starts_with("instance lanyard-test-absent: no switch is running ("), "{error}");
        assert!(error.ends_with("No such file or directory (os error 2))"), "{error}");
    }

    #[test]
    fn both_halves_at_once() {
        let (client, daemon) = answered(replies(&[Reply::Help(vec!["one".into()])]));
        let (requests, mut replies) = client.split();
        let mut other = requests.try_clone().expect("a descriptor");
        other.send(&Request::Help { line: "sh".into() }).expect("sent");
        assert_eq!(replies.receive().expect("a reply"), Reply::Help(vec!["one".into()]));
        assert_eq!(daemon.join().expect("the daemon"), "{\"help\":{\"line\":\"sh\"}}\n");
        assert!(replies.receive().is_err(), "closed");
    }
}
