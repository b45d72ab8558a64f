//! The driver's side of the SDK: a connection to a chip.
//!
//! [`Client::ask`] sends a request and waits for its answer. [`Client::split`] gives the two directions to two threads, so that
//! many requests can be under way; answers then come in the order of the requests.

use super::message::{Answer, Incoming, Notice, Refused, Request, Welcome, announced};
use super::operation::Operation;
use super::{HEADER, MAX_MESSAGE, VERSION};
use crate::tables::Usage;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Most notices that wait while an answer is awaited; the oldest are dropped and counted.
const MAX_NOTICES: usize = 1 << 14;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum SdkError {
    /// The chip refused it; nothing has changed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The connection ended. Whether the request was carried out is not known.
    #[error("the chip's connection: {0}")]
    Gone(#[from] io::Error),
    /// The chip does not keep to the protocol.
    #[error("the chip answered {0}")]
    Protocol(String),
}

/// The direction to the chip.
#[derive(Debug)]
pub struct Sender {
    stream: UnixStream,
    number: u32,
}

impl Sender {
    /// Sends a request; answers its number. Waits while the chip does not read.
    ///
    /// # Errors
    /// When the request is longer than a message can be, or the connection has ended.
    pub fn send(&mut self, request: &Request) -> io::Result<u32> {
        self.send_all(std::slice::from_ref(request))?;
        Ok(self.number)
    }

    /// Sends requests in as few system calls as possible; their numbers follow each other.
    ///
    /// # Errors
    /// As for [`Sender::send`]; none is sent when one is too long.
    pub fn send_all(&mut self, requests: &[Request]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for request in requests {
            self.number = self.number.checked_add(1).unwrap_or(1);
            bytes.extend(checked(request.encode(self.number))?);
        }
        self.stream.write_all(&bytes)
    }
}

/// Refuses a message that is too long.
fn checked(message: Vec<u8>) -> io::Result<Vec<u8>> {
    if message.len() > MAX_MESSAGE {
        return Err(io::Error::other(format!(
            "a request of {} bytes; {MAX_MESSAGE} is the most",
            message.len()
        )));
    }
    Ok(message)
}

/// The direction from the chip.
#[derive(Debug)]
pub struct Receiver {
    stream: UnixStream,
    buffer: Vec<u8>,
    filled: usize,
    taken: usize,
}

impl Receiver {
    /// Waits for the next message, at most so long; `None` when there was none. A zero timeout waits for ever.
    ///
    /// # Errors
    /// When the connection has ended or what came is no message.
    pub fn receive(&mut self, timeout: Option<Duration>) -> Result<Option<Incoming>, SdkError> {
        loop {
            if let Some(message) = self.whole()? {
                let length = message.len();
                let incoming =
                    Incoming::decode(message).map_err(|error| SdkError::Protocol(error.to_string()))?;
                self.taken += length;
                return Ok(Some(incoming));
            }
            self.make_room();
            self.stream.set_read_timeout(timeout.filter(|timeout| !timeout.is_zero()))?;
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Err(SdkError::Gone(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.filled += count,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SdkError::Gone(error)),
            }
        }
    }

    /// The next message that has come, without waiting.
    ///
    /// # Errors
    /// As for [`Receiver::receive`].
    pub fn ready(&mut self) -> Result<Option<Incoming>, SdkError> {
        loop {
            if let Some(message) = self.whole()? {
                let length = message.len();
                let incoming =
                    Incoming::decode(message).map_err(|error| SdkError::Protocol(error.to_string()))?;
                self.taken += length;
                return Ok(Some(incoming));
            }
            self.make_room();
            let room = &mut self.buffer[self.filled..];
            match recv(self.stream.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(SdkError::Gone(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.filled += count,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(SdkError::Gone(errno.into())),
            }
        }
    }

    /// Moves what has not been taken to the front, and grows the buffer to the message that is coming.
    fn make_room(&mut self) {
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        let wanted = announced(&self.buffer[..self.filled]).ok().flatten().unwrap_or(HEADER);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
    }

    fn whole(&self) -> Result<Option<&[u8]>, SdkError> {
        let waiting = &self.buffer[self.taken..self.filled];
        let length = announced(waiting).map_err(|error| SdkError::Protocol(error.to_string()))?;
        Ok(length.and_then(|length| waiting.get(..length)))
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A connection to a chip.
#[derive(Debug)]
pub struct Client {
    sender: Sender,
    receiver: Receiver,
    welcome: Welcome,
    notices: VecDeque<Notice>,
    lost: u64,
    patience: Option<Duration>,
}

impl Client {
    /// Connects to the chip at a socket and greets it under a name, which the chip prints in messages.
    ///
    /// # Errors
    /// When nobody listens there, or the chip speaks another version.
    pub fn connect(socket: &Path, name: &str) -> Result<Self, SdkError> {
        Self::over(UnixStream::connect(socket)?, name)
    }

    /// Greets the chip at the other end of a stream.
    ///
    /// # Errors
    /// When the chip speaks another version, or is none.
    pub fn over(stream: UnixStream, name: &str) -> Result<Self, SdkError> {
        let mut sender = Sender { stream: stream.try_clone()?, number: 0 };
        let mut receiver = Receiver { stream, buffer: vec![0; 1 << 16], filled: 0, taken: 0 };
        let number = sender.send(&Request::Hello(VERSION, name.to_owned()))?;
        match receiver.receive(None)? {
            Some(Incoming::Answer(to, Answer::Welcome(welcome))) if to == number => {
                Ok(Self { sender, receiver, welcome, notices: VecDeque::new(), lost: 0, patience: None })
            }
            Some(Incoming::Answer(_, Answer::Refused(refused))) => Err(refused.into()),
            other => Err(SdkError::Protocol(format!("{other:?} to a hello"))),
        }
    }

    /// What the chip said of itself.
    #[must_use]
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Gives the chip so long for each answer. One that does not answer in time counts as gone. Without this call a client
    /// waits for ever.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// Sends a request and waits for its answer. Notices that come before it wait for [`Client::notice`].
    ///
    /// # Errors
    /// When it is refused or the connection ends.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, SdkError> {
        let number = self.sender.send(request)?;
        loop {
            match self.receiver.receive(self.patience)? {
                Some(Incoming::Answer(to, Answer::Refused(refused))) if to == number => {
                    return Err(refused.into());
                }
                Some(Incoming::Answer(to, answer)) if to == number => return Ok(answer),
                Some(Incoming::Answer(to, _)) => {
                    return Err(SdkError::Protocol(format!("request {to}, which was not asked")));
                }
                Some(Incoming::Notice(notice)) => self.keep(notice),
                None => return Err(SdkError::Gone(io::ErrorKind::TimedOut.into())),
            }
        }
    }

    fn keep(&mut self, notice: Notice) {
        if self.notices.len() == MAX_NOTICES {
            self.notices.pop_front();
            self.lost += 1;
        }
        self.notices.push_back(notice);
    }

    /// The next notice; waits at most so long for one.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn notice(&mut self, timeout: Duration) -> Result<Option<Notice>, SdkError> {
        if let Some(notice) = self.notices.pop_front() {
            return Ok(Some(notice));
        }
        match self.receiver.receive(Some(timeout.max(Duration::from_micros(1))))? {
            Some(Incoming::Notice(notice)) => Ok(Some(notice)),
            Some(Incoming::Answer(to, _)) => {
                Err(SdkError::Protocol(format!("request {to}, which was not asked")))
            }
            None => Ok(None),
        }
    }
    /// The notices that wait.
    pub fn notices(&mut self) -> Vec<Notice> {
        self.notices.drain(..).collect()
    }
    /// Notices that were dropped here because nobody fetched them.
    #[must_use]
    pub fn notices_lost(&self) -> u64 {
        self.lost
    }

    fn done(&mut self, request: &Request) -> Result<u64, SdkError> {
        match self.ask(request)? {
            Answer::Done(number) => Ok(number),
            other => Err(unexpected(&other)),
        }
    }

    /// Carries out a transaction; answers the entries written.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub fn commit(&mut self, operations: &[Operation]) -> Result<u64, SdkError> {
        self.done(&Request::Commit(operations.to_vec()))
    }
    /// Sends a frame by way of the CPU port.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn packet(&mut self, header: super::cpu::CpuHeader, frame: &[u8]) -> Result<(), SdkError> {
        self.sender.send(&Request::Packet(header, frame.to_vec()))?;
        Ok(())
    }
    /// Asks for a request that is answered with a number: [`Request::Subscribe`], [`Request::Faults`] and others.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub fn number(&mut self, request: &Request) -> Result<u64, SdkError> {
        self.done(request)
    }
    /// How full the tables are.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub fn usage(&mut self) -> Result<Vec<Usage>, SdkError> {
        match self.ask(&Request::Usage)? {
            Answer::Usage(tables) => Ok(tables),
            other => Err(unexpected(&other)),
        }
    }
    /// The chip's whole configuration, as of one moment.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub fn entries(&mut self) -> Result<Vec<Operation>, SdkError> {
        let mut all = Vec::new();
        let mut anew = true;
        loop {
            match self.ask(&Request::Entries(anew))? {
                Answer::Operations(more, list) => {
                    all.extend(list);
                    if !more {
                        return Ok(all);
                    }
                    anew = false;
                }
                other => return Err(unexpected(&other)),
            }
        }
    }
    /// Everything the chip has learned, as of one moment.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub fn learned(&mut self) -> Result<Vec<super::message::LearnedEntry>, SdkError> {
        let mut all = Vec::new();
        let mut anew = true;
        loop {
            match self.ask(&Request::Learned(anew))? {
                Answer::Learned(more, list) => {
                    all.extend(list);
                    if !more {
                        return Ok(all);
                    }
                    anew = false;
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// The two directions, for two threads.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}

fn unexpected(answer: &Answer) -> SdkError {
    SdkError::Protocol(format!("{answer:?}").chars().take(200).collect())
}
