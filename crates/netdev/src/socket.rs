//! A netlink socket: requests, dumps and batches, and the matching of answers to requests.
//!
//! Read netlink(7) first. Invariants: a message is accepted only from the kernel and with the
//! sequence number of the current request. A dump that the kernel reports as inconsistent is
//! repeated, a bounded number of times. No wait is longer than [`TIMEOUT_S`].

use netlink_packet_core::{
    DoneBuffer, ErrorBuffer, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR,
    NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator, parse_string, parse_u32,
};
use netlink_sys::Socket;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Size of the buffer for one datagram. The kernel sends dumps in pieces of at most 32 KiB; a
/// single answer can be larger.
const BUFFER_BYTES: usize = 256 * 1024;
/// The receive buffer requested from the kernel, in bytes.
const SOCKET_BYTES: usize = 1 << 20;
/// The kernel answers within the request, so after this time the answer was lost.
const TIMEOUT_S: i64 = 5;
/// How often a dump is tried if concurrent changes interrupt it.
const DUMP_TRIES: usize = 16;
/// The maximum number of objects read from one dump: more than any kernel table that this is used for
/// contains.
const DUMP_LIMIT: usize = 8_000_000;
/// Requests per datagram. Their acknowledgements must fit the receive buffer.
const BATCH: usize = 32;
/// The kernel's reason is cut to this many characters.
const REASON_LIMIT: usize = 200;
/// NLMSGERR_ATTR_MSG of linux/netlink.h.
const ATTR_MSG: u16 = 1;
/// Length of a netlink header in bytes.
const HEADER: usize = 16;

/// The kernel's refusal of a request.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub source: io::Error,
    pub extended: Option<String>,
}

impl From<io::Error> for Refusal {
    fn from(source: io::Error) -> Self {
        Self { source, extended: None }
    }
}

/// A netlink socket with its receive buffer.
pub(crate) struct Channel {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("fd", &self.socket.as_raw_fd()).finish_non_exhaustive()
    }
}

/// How a message answers the current request.
enum Answer<'a> {
    /// An object.
    Object { kind: u16, interrupted: bool, payload: &'a [u8] },
    /// The end of the answer: done, acknowledged or refused.
    End { interrupted: bool, result: Result<(), Refusal> },
}

impl Channel {
    /// A socket of the netlink family `protocol`, in the calling thread's network namespace.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        // Older kernels lack these options; their answers are longer and have no text.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        let fd = socket.as_fd();
        // RcvBufForce needs CAP_NET_ADMIN; without it the default size is used.
        let _ = setsockopt(&fd, sockopt::RcvBufForce, &SOCKET_BYTES);
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(TIMEOUT_S, 0))?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(BUFFER_BYTES) })
    }

    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next datagram from the kernel. Datagrams of other senders are dropped.
    pub fn receive(&mut self) -> io::Result<&[u8]> {
        loop {
            self.buffer.clear();
            match self.socket.recv_from(&mut self.buffer, libc::MSG_TRUNC) {
                Ok((_, from)) if from.port_number() != 0 => {}
                Ok((length, _)) if length > self.buffer.len() => {
                    return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
                }
                Ok(_) => return Ok(&self.buffer),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.send(bytes, 0) {
                Ok(sent) if sent == bytes.len() => return Ok(()),
                Ok(_) => return Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn encode<I: NetlinkSerializable>(&mut self, flags: u16, body: I) -> (u32, Vec<u8>) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags | NLM_F_REQUEST;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(body));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len().next_multiple_of(4)];
        message.serialize(&mut bytes);
        (self.sequence, bytes)
    }

    /// Sends one request. `each` gets the type and payload of every message before the
    /// acknowledgement.
    pub fn request<I: NetlinkSerializable>(
        &mut self,
        flags: u16,
        body: I,
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<(), Refusal> {
        let (sequence, bytes) = self.encode(flags | NLM_F_ACK, body);
        self.send(&bytes)?;
        loop {
            let datagram = self.receive().map_err(lost)?;
            let mut end = None;
            for_each_answer(datagram, sequence, |answer| match answer {
                Answer::Object { kind, payload, .. } => each(kind, payload),
                Answer::End { result, .. } => end = Some(result),
            });
            if let Some(result) = end {
                return result;
            }
        }
    }

    /// Sends a dump request and returns every object that `parse` accepts.
    pub fn dump<I: NetlinkSerializable + Clone, T>(
        &mut self,
        body: I,
        parse: impl Fn(u16, &[u8]) -> Option<T>,
    ) -> Result<Vec<T>, Refusal> {
        for _ in 0..DUMP_TRIES {
            let mut objects = Vec::new();
            if self.dump_once(body.clone(), &parse, &mut objects)? {
                return Ok(objects);
            }
        }
        Err(Refusal {
            source: io::Error::from_raw_os_error(libc::EAGAIN),
            extended: Some("the table changed during every attempt to list it".into()),
        })
    }

    /// Runs a dump once. Returns false if the kernel reported that it is inconsistent.
    fn dump_once<I: NetlinkSerializable, T>(
        &mut self,
        body: I,
        parse: &impl Fn(u16, &[u8]) -> Option<T>,
        objects: &mut Vec<T>,
    ) -> Result<bool, Refusal> {
        let (sequence, bytes) = self.encode(NLM_F_DUMP, body);
        self.send(&bytes)?;
        let mut consistent = true;
        loop {
            let datagram = self.receive().map_err(lost)?;
            let mut end = None;
            for_each_answer(datagram, sequence, |answer| match answer {
                Answer::Object { kind, interrupted, payload } => {
                    consistent &= !interrupted;
                    if objects.len() < DUMP_LIMIT {
                        objects.extend(parse(kind, payload));
                    }
                }
                Answer::End { interrupted, result } => {
                    consistent &= !interrupted;
                    end = Some(result);
                }
            });
            match end {
                Some(Ok(())) if objects.len() >= DUMP_LIMIT => {
                    let extended = Some(format!("more than {DUMP_LIMIT} objects"));
                    return Err(Refusal { source: io::Error::from_raw_os_error(libc::EMSGSIZE), extended });
                }
                Some(result) => return result.map(|()| consistent),
                None => {}
            }
        }
    }

    /// Sends requests that are answered by an acknowledgement alone, many in each system call.
    /// Returns one result for each.
    pub fn batch<I: NetlinkSerializable>(
        &mut self,
        requests: impl IntoIterator<Item = (u16, I)>,
    ) -> Vec<Result<(), Refusal>> {
        let mut results = Vec::new();
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let mut bytes = Vec::new();
            let mut first = None;
            let mut waiting = 0;
            for (flags, body) in requests.by_ref().take(BATCH) {
                let (sequence, request) = self.encode(flags | NLM_F_ACK, body);
                first.get_or_insert(sequence);
                bytes.extend_from_slice(&request);
                waiting += 1;
            }
            results.extend(self.batch_once(&bytes, first.unwrap_or_default(), waiting));
        }
        results
    }

    fn batch_once(&mut self, bytes: &[u8], first: u32, count: usize) -> Vec<Result<(), Refusal>> {
        let mut results: Vec<Option<Result<(), Refusal>>> = (0..count).map(|_| None).collect();
        let mut waiting = count;
        let mut outcome = self.send(bytes);
        while outcome.is_ok() && waiting > 0 {
            match self.receive() {
                Ok(datagram) => for_each_message(datagram, |message| {
                    let index = message.sequence_number().wrapping_sub(first) as usize;
                    if let (Some(slot @ None), Some(Answer::End { result, .. })) =
                        (results.get_mut(index), answer(&message))
                    {
                        *slot = Some(result);
                        waiting -= 1;
                    }
                }),
                Err(e) => outcome = Err(lost(e)),
            }
        }
        let code = outcome.err().and_then(|e| e.raw_os_error()).unwrap_or(libc::EIO);
        let lost = || Err(io::Error::from_raw_os_error(code).into());
        results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
    }
}

/// Reports a receive time-out (EAGAIN) as a lost answer.
fn lost(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        io::Error::from_raw_os_error(libc::ETIMEDOUT)
    } else {
        error
    }
}

/// Iterates over the messages of a datagram, up to the first that is malformed.
pub(crate) fn for_each_message<'a>(datagram: &'a [u8], mut each: impl FnMut(NetlinkBuffer<&'a [u8]>)) {
    let mut rest = datagram;
    while let Ok(message) = NetlinkBuffer::new_checked(rest) {
        let length = (message.length() as usize).next_multiple_of(4);
        each(message);
        rest = rest.get(length..).unwrap_or_default();
    }
}

fn for_each_answer<'a>(datagram: &'a [u8], sequence: u32, mut each: impl FnMut(Answer<'a>)) {
    for_each_message(datagram, |message| {
        if message.sequence_number() == sequence
            && let Some(answer) = answer(&message)
        {
            each(answer);
        }
    });
}

fn answer<'a>(message: &NetlinkBuffer<&'a [u8]>) -> Option<Answer<'a>> {
    let interrupted = message.flags() & NLM_F_DUMP_INTR != 0;
    let payload = message.payload();
    match message.message_type() {
        NLMSG_NOOP => None,
        NLMSG_OVERRUN => Some(Answer::End {
            interrupted: true,
            result: Err(io::Error::from_raw_os_error(libc::ENOBUFS).into()),
        }),
        NLMSG_DONE => {
            let (code, attributes) = match DoneBuffer::new_checked(payload) {
                Ok(done) => (done.code(), done.extended_ack()),
                Err(_) => (0, &[][..]),
            };
            Some(Answer::End { interrupted, result: verdict(code, attributes) })
        }
        NLMSG_ERROR => {
            let result = match ErrorBuffer::new_checked(payload) {
                Ok(error) => {
                    let code = error.code().map_or(0, std::num::NonZero::get);
                    verdict(code, extended(message.flags(), error.payload()))
                }
                Err(_) => Err(io::Error::from_raw_os_error(libc::EBADMSG).into()),
            };
            Some(Answer::End { interrupted, result })
        }
        kind => Some(Answer::Object { kind, interrupted, payload }),
    }
}

/// The attributes after the copy of the request in an NLMSG_ERROR message.
fn extended(flags: u16, request: &[u8]) -> &[u8] {
    if flags & NLM_F_ACK_TLVS == 0 {
        return &[];
    }
    let copied = match request.get(..4).and_then(|bytes| parse_u32(bytes).ok()) {
        Some(length) if flags & NLM_F_CAPPED == 0 => (length as usize).next_multiple_of(4),
        _ => HEADER,
    };
    request.get(copied..).unwrap_or_default()
}

fn verdict(code: i32, attributes: &[u8]) -> Result<(), Refusal> {
    if code >= 0 {
        return Ok(());
    }
    let extended = NlasIterator::new(attributes)
        .map_while(Result::ok)
        .find(|nla| nla.kind() == ATTR_MSG)
        .and_then(|nla| parse_string(nla.value()).ok())
        .map(|text| text.chars().filter(|c| !c.is_control()).take(REASON_LIMIT).collect());
    Err(Refusal { source: io::Error::from_raw_os_error(code.saturating_neg()), extended })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((HEADER as u32 + payload.len() as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// NLMSG_ERROR with the code, the request's header (and `rest` bytes of request when `capped` is false)
    /// and the text "no".
    fn refusal(capped: bool, rest: usize) -> Vec<u8> {
        let mut payload = (-22_i32).to_ne_bytes().to_vec();
        payload.extend(message(16, 0, 7, &vec![0xff; rest]));
        if capped {
            payload.truncate(4 + HEADER);
        }
        payload.extend([7, 0, 1, 0, b'n', b'o', 0, 0]);
        let flags = NLM_F_ACK_TLVS | if capped { NLM_F_CAPPED } else { 0 };
        message(NLMSG_ERROR, flags, 7, &payload)
    }

    fn outcomes(datagram: &[u8], sequence: u32) -> Vec<String> {
        let mut outcomes = Vec::new();
        for_each_answer(datagram, sequence, |answer| {
            outcomes.push(match answer {
                Answer::Object { kind, interrupted, payload } => format!("{kind} {interrupted} {payload:?}"),
                Answer::End { interrupted, result: Ok(()) } => format!("end {interrupted}"),
                Answer::End { result: Err(e), .. } => {
                    format!("{:?} {:?}", e.source.raw_os_error(), e.extended)
                }
            });
        });
        outcomes
    }

    #[test]
    fn answers() {
        let cases: [(Vec<u8>, &[&str]); 10] = [
            (message(16, 0, 7, &[1, 2]), &["16 false [1, 2]"]),
            (message(16, NLM_F_DUMP_INTR, 7, &[]), &["16 true []"]),
            (message(16, 0, 8, &[1, 2]), &[]),
            (message(NLMSG_NOOP, 0, 7, &[]), &[]),
            (message(NLMSG_DONE, 0, 7, &[]), &["end false"]),
            (message(NLMSG_DONE, NLM_F_DUMP_INTR, 7, &[0; 4]), &["end true"]),
            (
                [message(16, 0, 7, &[1]), message(NLMSG_ERROR, 0, 7, &[0; 20])].concat(),
                &["16 false [1]", "end false"],
            ),
            (refusal(true, 40), &["Some(22) Some(\"no\")"]),
            (refusal(false, 40), &["Some(22) Some(\"no\")"]),
            (message(NLMSG_ERROR, 0, 7, &[0]), &["Some(74) None"]),
        ];
        for (datagram, want) in cases {
            assert_eq!(outcomes(&datagram, 7), want, "{datagram:?}");
        }
    }

    #[test]
    fn truncated_netlink_messages_are_ignored() {
        let whole = [message(16, 0, 7, &[1, 2, 3, 4]), refusal(true, 0)].concat();
        for length in 0..whole.len() {
            let want = usize::from(length >= 20);
            assert_eq!(outcomes(&whole[..length], 7).len(), want, "{length} bytes");
        }
    }

    proptest! {
        /// No input may panic, or give more messages than headers fit into it.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u16..40, flags in any::<u16>()) {
            prop_assert!(outcomes(&bytes, 7).len() <= bytes.len() / HEADER);
            let datagram = message(kind, flags, 7, &bytes);
            prop_assert!(!outcomes(&datagram, 7).is_empty() || kind == NLMSG_NOOP);
        }
    }
}
