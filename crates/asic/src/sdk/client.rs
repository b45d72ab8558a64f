//! The driver's side of the SDK: a connection to a chip.
//!
//! [`Client::ask`] sends a request and waits for its answer. [`Client::split`] separates the two directions for two
//! threads, so that many requests can be pending; answers then arrive in the order of the requests.

use super::message::{Answer, Incoming, Notice, Refused, Request, Welcome, announced};
use super::operation::Operation;
use super::{HEADER, MAX_MESSAGE, VERSION};
use crate::tables::Usage;
use lanyard_types::{PortId, PortSet, VlanId};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The most notices that are stored until [`Client::notice`] fetches them; beyond it the oldest ones are dropped and counted.
const MAX_NOTICES: usize = 1 << 14;

/// The longest time that a chip may take to answer the hello. Its bus may have to finish the requests of other
/// clients first.
const GREETING: Duration = Duration::from_secs(5);

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum SdkError {
    /// The chip refused it; nothing has changed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The connection ended. Whether the request was carried out is not known.
    #[error("the chip's connection: {0}")]
    Gone(#[from] io::Error),
    /// The chip violates the protocol.
    #[error("the chip answered {0}")]
    Protocol(String),
}

/// The sending half of a connection.
#[derive(Debug)]
pub struct Sender {
    stream: UnixStream,
    number: u32,
}

impl Sender {
    /// Sets the longest time that a send waits for a chip that does not read. When it has passed, the send fails with
    /// `WouldBlock`, and the connection can no longer be used, because part of a message may have been sent. Without this call a
    /// send waits forever.
    ///
    /// # Errors
    /// Only if `patience` is 0.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_write_timeout(Some(patience))
    }

    /// Sends a request and returns its number. Waits while the chip does not read.
    ///
    /// # Errors
    /// When the request is longer than a message may be, or the connection has ended.
    pub fn send(&mut self, request: &Request) -> io::Result<u32> {
        self.send_all(std::slice::from_ref(request))?;
        Ok(self.number)
    }

    /// Sends requests in as few system calls as possible, with consecutive numbers.
    ///
    /// # Errors
    /// As for [`Sender::send`]; if one request is too long, none is sent.
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

/// The receiving half of a connection.
#[derive(Debug)]
pub struct Receiver {
    stream: UnixStream,
    buffer: Vec<u8>,
    filled: usize,
    taken: usize,
}

impl Receiver {
    /// Waits at most this time for the next message; `None` when none arrived. A timeout of zero waits
    /// forever.
    ///
    /// # Errors
    /// When the connection has ended or an invalid message arrived.
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

    /// Returns the next message if it has arrived completely, without waiting; otherwise `None`.
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

    /// Moves the bytes that have not been read to the front, and enlarges the buffer for the next message.
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
    /// Connects to the chip at a socket. `name` identifies the driver in the chip's messages.
    ///
    /// # Errors
    /// When no process listens there, or the chip has another protocol version.
    pub fn connect(socket: &Path, name: &str) -> Result<Self, SdkError> {
        Self::over(UnixStream::connect(socket)?, name)
    }

    /// As [`Client::connect`], but the chip must answer the hello within `limit` instead of 5 s.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub fn connect_within(socket: &Path, name: &str, limit: Duration) -> Result<Self, SdkError> {
        Self::greet(UnixStream::connect(socket)?, name, limit)
    }

    /// Opens a session with the chip at the other end of a stream.
    ///
    /// # Errors
    /// When the chip has another protocol version, the peer is not a chip, or it does not answer within 5 s: the socket of a
    /// process that is stopped still accepts connections.
    pub fn over(stream: UnixStream, name: &str) -> Result<Self, SdkError> {
        Self::greet(stream, name, GREETING)
    }

    fn greet(stream: UnixStream, name: &str, limit: Duration) -> Result<Self, SdkError> {
        let mut sender = Sender { stream: stream.try_clone()?, number: 0 };
        let mut receiver = Receiver { stream, buffer: vec![0; 1 << 16], filled: 0, taken: 0 };
        let number = sender.send(&Request::Hello(VERSION, name.to_owned()))?;
        match receiver.receive(Some(limit))? {
            Some(Incoming::Answer(to, Answer::Welcome(welcome))) if to == number => {
                Ok(Self { sender, receiver, welcome, notices: VecDeque::new(), lost: 0, patience: None })
            }
            Some(Incoming::Answer(_, Answer::Refused(refused))) => Err(refused.into()),
            Some(other) => Err(SdkError::Protocol(format!("{other:?} to a hello"))),
            None => Err(SdkError::Gone(io::ErrorKind::TimedOut.into())),
        }
    }

    /// The chip's description of itself.
    #[must_use]
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Sets the longest time that the chip may take for an answer. A chip that does not answer in time counts as gone.
    /// Without this call a client waits forever.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// Sends a request and waits for its answer. Notices that arrive before it are stored for
    /// [`Client::notice`].
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
                    return Err(SdkError::Protocol(format!("an answer to request {to}, which was not sent")));
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

    /// Returns the next notice, and waits at most `timeout` for one; `None` if none has arrived.
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
                Err(SdkError::Protocol(format!("an answer to request {to}, which was not sent")))
            }
            None => Ok(None),
        }
    }
    /// Returns the notices that are stored, without waiting for others.
    pub fn notices(&mut self) -> Vec<Notice> {
        self.notices.drain(..).collect()
    }
    /// The number of notices that this client has dropped because they were not fetched in time.
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

    /// Carries out a transaction; returns the number of entries written.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub fn commit(&mut self, operations: &[Operation]) -> Result<u64, SdkError> {
        self.done(&Request::Commit(operations.to_vec()))
    }
    /// Sends a frame through the CPU port.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn packet(&mut self, header: super::cpu::CpuHeader, frame: &[u8]) -> Result<(), SdkError> {
        self.sender.send(&Request::Packet(header, frame.to_vec()))?;
        Ok(())
    }
    /// Sends a frame out of ports of a VLAN: see [`Request::Relay`].
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn relay(
        &mut self,
        vlan: VlanId,
        from: Option<PortId>,
        ports: &PortSet,
        frame: &[u8],
    ) -> Result<(), SdkError> {
        self.sender.send(&Request::Relay(vlan, from, Box::new(ports.clone()), frame.to_vec()))?;
        Ok(())
    }
    /// Sends a request that is answered with a number: [`Request::Subscribe`], [`Request::Faults`] and others.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub fn number(&mut self, request: &Request) -> Result<u64, SdkError> {
        self.done(request)
    }
    /// Returns the figures of the tables.
    ///
    /// # Errors
    /// See [`Client::ask`].
    pub fn usage(&mut self) -> Result<Vec<Usage>, SdkError> {
        match self.ask(&Request::Usage)? {
            Answer::Usage(tables) => Ok(tables),
            other => Err(unexpected(&other)),
        }
    }
    /// Returns the chip's whole configuration at one moment.
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
    /// Returns all learned addresses at one moment.
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

    /// Separates the two directions, for two threads.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}

fn unexpected(answer: &Answer) -> SdkError {
    SdkError::Protocol(format!("{answer:?}").chars().take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_to_a_chip_that_does_not_read_ends() {
        let (stream, _chip) = UnixStream::pair().expect("a pair");
        let mut sender = Sender { stream, number: 0 };
        sender.set_patience(Duration::from_millis(10)).expect("set");
        let request = Request::Packet(crate::sdk::cpu::CpuHeader::default(), vec![0; 1000]);
        let mut sends = (0..100_000).map(|_| sender.send(&request));
        let error = sends.find_map(Result::err).expect("the socket is full");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_chip_that_does_not_answer_is_gone() {
        // Like a stopped process: its socket accepts the hello, but no answer comes.
        let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
        let error = Client::greet(ours, "test", Duration::from_millis(20)).err();
        assert!(matches!(error, Some(SdkError::Gone(error)) if error.kind() == io::ErrorKind::TimedOut));
    }
}
