//! The messages between driver and chip: requests, answers, notices, and their framing.
//!
//! A message is a header of 12 bytes (length of the whole message, kind, zero, request number) and a body. A request's number is
//! the driver's choice and comes back in its answer. Requests of a connection are answered in their order; notices, which have
//! number 0, come between answers. The types are here; their bytes are in [`request`], [`answer`] and [`notice`].

mod answer;
mod notice;
mod request;

use super::bytes::{Malformed, Reader, Writer, malformed};
use super::cpu::{self, CpuHeader};
use super::operation::{self, Operation};
use super::{HEADER, MAX_FRAME, MAX_MESSAGE, MAX_OPERATIONS};
use crate::chip::segments::Offload;
use crate::tables::{Shortage, Usage};
use ipnet::IpNet;
use lanyard_acl::key::{HALVES, Key};
pub use lanyard_pipeline::tables::acls::{Answer as Verdict, Question};
use lanyard_pipeline::tables::fdb::FdbFilter;
use lanyard_types::{AclId, FrameCount, MacAddr, PortId, PortSet, VlanId, VrfId};

/// Greatest speed of a port in Mbit/s.
const MAX_SPEED_MBPS: u32 = 1_600_000;

/// A request of a driver. Each one has one answer, except [`Request::Packet`],
/// [`Request::Judged`] and [`Request::Relay`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first message of a connection; the driver's version and name. Answered by [`Answer::Welcome`].
    Hello(u16, String),
    /// A transaction: all operations or none. Answered by [`Answer::Done`] with the number of writes, or by
    /// [`Answer::Refused`].
    Commit(Vec<Operation>),
    /// The occupancy of every table. Answered by [`Answer::Usage`].
    Usage,
    /// The next part of the chip's configuration as operations; true starts from the beginning. Answered by
    /// [`Answer::Operations`].
    Entries(bool),
    /// The next part of the learned addresses; true starts from the beginning. Answered by
    /// [`Answer::Learned`].
    Learned(bool),
    /// A port's counters. Answered by [`Answer::Counters`].
    Counters(PortId),
    /// The front panel. Answered by [`Answer::Ports`].
    Ports,
    /// The notices that this connection receives: the sum of [`wants`](crate::chip::device::wants). Answered by
    /// [`Answer::Done`].
    Subscribe(u32),
    /// Sends a frame through the CPU port. It does not wait for the bus and has no answer; counters show the result.
    Packet(CpuHeader, Vec<u8>),
    /// Sets a fault plan; an empty one ends all faults. Answered by [`Answer::Done`] with the number of
    /// faults.
    Faults(String),
    /// Changes the size of a table. Answered by [`Answer::Done`].
    Resize(String, u32),
    /// Removes learned entries. Answered by [`Answer::Done`] with their number.
    Flush(Option<VlanId>, Option<PortId>, Option<MacAddr>),
    /// Removes learned entries not seen for this many seconds. Answered by [`Answer::Done`] with their
    /// number.
    Age(u32),
    /// The next part of the counts of packets that each route has forwarded; true begins with the routes that have forwarded
    /// packets since the last request with true. Answered by [`Answer::Activity`].
    Activity(bool),
    /// Sets the speed of a front-panel port in Mbit/s. Answered by [`Answer::Done`].
    Speed(PortId, u32),
    /// Exchanges the frames for interfaces through a netdev of the chip's network namespace instead of through connections; an
    /// empty name returns to connections. Answered by [`Answer::Done`].
    CpuNetdev(String),
    /// How often each rule of an access list has decided; true then sets the counts to zero. Answered by [`Answer::Matches`].
    Matches(AclId, bool),
    /// Gives a diverted frame back with the judgements that [`Notice::Diverted`] asked for; the chip continues its processing.
    /// The request does not wait for the bus and has no answer; counters show the result.
    Judged(Frame, Vec<Verdict>),
    /// Sends a frame in a VLAN out of those ports of the set that forward in the VLAN, except the port that has received the
    /// frame (`None`: the switch has made it), tagged as each port sends the VLAN. The request does not wait for the bus and has
    /// no answer; counters show the result.
    Relay(VlanId, Option<PortId>, Box<PortSet>, Vec<u8>),
    /// Restarts the watchdog of multicast snooping with this period in milliseconds. If the period ends without a further request
    /// of this kind, the chip stops snooping. 0 stops the watchdog. Answered by [`Answer::Done`]: 1 if it had expired, so that
    /// the chip now resumes snooping.
    SnoopingWatchdog(u32),
    /// Restarts the watchdog of spanning tree with this period in milliseconds. If the period ends without a further request of
    /// this kind, the chip blocks the watched ports ([`Operation::Watched`]). 0 stops the watchdog. The request does not wait for
    /// the bus. Answered by [`Answer::Done`].
    TreeWatchdog(u32),
    /// Asks whether the watchdog of spanning tree has expired; true also acknowledges the expiry. Until then the blocked ports
    /// discard, whatever states operations give them. The request does not wait for the bus. Answered by [`Answer::Done`]: 1 if
    /// there was an expiry that had not been acknowledged.
    TreeExpiry(bool),
}

/// A frame that the chip has diverted, on its way to the driver and back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The port where it came in.
    pub port: PortId,
    /// The work that is pending on it.
    pub pending: Offload,
    /// Its bytes; a buffer of segments is one frame.
    pub bytes: Vec<u8>,
}

/// The chip's description of itself for a driver that connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The chip's protocol version.
    pub version: u16,
    /// The platform's name.
    pub platform: String,
    /// A number that differs for each start of the chip. If the number is the one of the driver's last session, the
    /// chip still has the driver's entries.
    pub boot: u64,
    /// The salt that determines which keys collide in hash tables, by which a driver can predict collisions.
    pub salt: u64,
    /// The microseconds that one write takes.
    pub write_us: u32,
    /// The microseconds that one query takes.
    pub query_us: u32,
    /// The number of entries that one write carries.
    pub bulk: u32,
}

/// The reason why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// A table has no room.
    NoRoom = 1,
    /// The operation contradicts the configuration.
    Invalid = 2,
    /// A fault plan made it fail.
    Fault = 3,
    /// The driver has another protocol version, or its first request was not a hello.
    Version = 4,
}

impl Code {
    const ALL: [Self; 4] = [Self::NoRoom, Self::Invalid, Self::Fault, Self::Version];
}

/// A refusal. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refused {
    /// The kind of reason.
    pub code: Code,
    /// The index of the refused operation in the transaction, from 0.
    pub at: u32,
    /// The table without room; otherwise empty.
    pub table: String,
    /// The kind of shortage in that table; `None` if the refusal is not about a table's room.
    pub shortage: Option<Shortage>,
    /// The units in use and all units of that table; (0, 0) if the refusal is not about a table's room.
    pub units: (u32, u32),
    /// A message for people.
    pub text: String,
}

/// A front-panel port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// Its number, which is also its port in operations.
    pub port: PortId,
    /// The greatest speed in Mbit/s.
    pub speed_mbps: u32,
    /// True while it has a link.
    pub up: bool,
    /// Frames received.
    pub rx: FrameCount,
    /// Frames sent.
    pub tx: FrameCount,
    /// Frames dropped because its queue had no room.
    pub tail_drops: u64,
}

/// A port's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Frames received.
    pub rx: FrameCount,
    /// Frames sent.
    pub tx: FrameCount,
    /// Frames received and forwarded.
    pub forwarded: u64,
    /// Frames received and trapped, but not forwarded.
    pub trapped: u64,
    /// Copies for this port that were not sent.
    pub tx_dropped: u64,
    /// Frames for this port for which a queue had no room.
    pub tail_drops: u64,
    /// Frames received and dropped, by `DropReason` number, without reasons whose count is 0.
    pub dropped: Vec<(u8, u64)>,
}

/// A learned address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnedEntry {
    /// The VLAN.
    pub vlan: VlanId,
    /// The address.
    pub mac: MacAddr,
    /// The port at which it was seen.
    pub port: PortId,
    /// The seconds since it was last seen.
    pub age_s: u32,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The answer to [`Request::Hello`].
    Welcome(Welcome),
    /// The request was carried out; the meaning of the number depends on the request.
    Done(u64),
    /// The answer to [`Request::Usage`].
    Usage(Vec<Usage>),
    /// A part of the configuration; true if there is more.
    Operations(bool, Vec<Operation>),
    /// A part of the learned entries; true if there are more.
    Learned(bool, Vec<LearnedEntry>),
    /// A part of the routes that have forwarded packets, each with the number of packets; true if there are more.
    Activity(bool, Vec<(VrfId, IpNet, u64)>),
    /// The answer to [`Request::Counters`].
    Counters(PortCounts),
    /// The counts of the rules of a list in their order, then the count of frames that no rule matched; empty if the list does
    /// not exist.
    Matches(Vec<u64>),
    /// The answer to [`Request::Ports`].
    Ports(Vec<PortInfo>),
    /// The request was not carried out.
    Refused(Refused),
}

/// An event in the chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An address was learned.
    Learned(LearnedEntry),
    /// An address was seen at another port than before: the entry, and the previous port.
    Moved(LearnedEntry, PortId),
    /// A learned address was removed: not seen for long, flushed, or displaced.
    Gone(LearnedEntry),
    /// A port's link came up (true) or went down.
    Link(PortId, bool),
    /// The number of notices that were not delivered because the connection did not read them.
    Lost(u64),
    /// A driver has acknowledged that the watchdog of spanning tree had expired. Frames of the CPU port that come
    /// before this notice are older than the acknowledgement.
    ExpiryAcknowledged,
}

/// A message that the chip sends without a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An event.
    Event(Event),
    /// A frame for the CPU.
    Packet(CpuHeader, Vec<u8>),
    /// A frame that diverted access lists have to judge, with the questions in their order. The driver gives it back with
    /// [`Request::Judged`].
    Diverted(Frame, Vec<Question>),
}

/// A message that a driver receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// The answer to the request with this number.
    Answer(u32, Answer),
    /// A notice.
    Notice(Notice),
}

/// The length in a message's header; `None` while the header is not complete.
///
/// # Errors
/// When it is shorter than a header or longer than [`MAX_MESSAGE`].
pub fn announced(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(length) = bytes.first_chunk::<4>() else { return Ok(None) };
    match u32::from_be_bytes(*length) as usize {
        length @ HEADER..=MAX_MESSAGE => Ok(Some(length)),
        other => malformed(format!("a message of {other} bytes: {HEADER} to {MAX_MESSAGE}")),
    }
}

/// Splits a whole message into kind, number and body.
///
/// # Errors
/// When the length is not that of the message, or the two bytes after the kind are not zero.
fn open(message: &[u8]) -> Result<(u16, u32, Reader<'_>), Malformed> {
    let mut reader = Reader::new(message);
    let (length, kind, zero, number) = (reader.u32()?, reader.u16()?, reader.u16()?, reader.u32()?);
    if length as usize != message.len() || zero != 0 {
        return malformed("the header does not fit the message");
    }
    Ok((kind, number, reader))
}

fn close(kind: u16, number: u32, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u32(0);
    writer.u16(kind);
    writer.u16(0);
    writer.u32(number);
    body(&mut writer);
    let length = (writer.0.len() as u32).to_be_bytes();
    writer.0[..4].copy_from_slice(&length);
    writer.0
}

fn operations(from: &mut Reader<'_>) -> Result<Vec<Operation>, Malformed> {
    let count = from.u32()? as usize;
    if count > MAX_OPERATIONS {
        return malformed(format!("{count} operations; {MAX_OPERATIONS} is the most"));
    }
    // The count may be wrong, so the reservation is limited by the number of bytes that are there.
    let mut all = Vec::with_capacity(count.min(from.rest().len() / 4));
    for _ in 0..count {
        all.push(Operation::read(from)?);
    }
    Ok(all)
}

fn port(from: &mut Reader<'_>) -> Result<PortId, Malformed> {
    let number = from.u16()?;
    from.index("port", number, PortId::new)
}

fn frame(from: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let bytes = from.take(from.rest().len())?;
    if bytes.len() > MAX_FRAME {
        malformed(format!("a frame of {} bytes", bytes.len()))
    } else {
        Ok(bytes.to_vec())
    }
}

/// The most judgements of one frame: by a list at the ingress port, one of the VLAN, one of the interface, and one at each egress
/// port of a flood.
const MAX_JUDGEMENTS: usize = 1024;

impl Frame {
    /// The most bytes of a frame that is diverted: a buffer of segments, with its headers.
    pub const MAX: usize = 1 << 17;

    fn write(&self, body: &mut Writer) {
        body.u16(self.port.get());
        body.raw(&self.pending);
        body.raw(&self.bytes);
    }
    fn read(body: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (port, mut pending) = (port(body)?, Offload::default());
        for byte in &mut pending {
            *byte = body.u8()?;
        }
        let bytes = body.take(body.rest().len())?;
        if bytes.len() > Self::MAX {
            return malformed(format!(
                "a diverted frame of {} bytes; {} are the most",
                bytes.len(),
                Self::MAX
            ));
        }
        Ok(Self { port, pending, bytes: bytes.to_vec() })
    }
}

fn write_key(body: &mut Writer, list: AclId, key: &Key, flag: bool) {
    body.u16(list.get());
    key.half.iter().for_each(|half| body.u16(*half));
    body.u32(key.absent);
    body.u32(key.unknown);
    body.u8(u8::from(flag));
}
/// Reads what [`write_key`] has written, `count` times.
fn read_keys<T>(body: &mut Reader<'_>, of: impl Fn(AclId, Key, bool) -> T) -> Result<Vec<T>, Malformed> {
    let count = usize::from(body.u16()?);
    if count > MAX_JUDGEMENTS {
        return malformed(format!("{count} judgements; {MAX_JUDGEMENTS} are the most"));
    }
    let mut all = Vec::with_capacity(count.min(body.rest().len() / (2 * HALVES)));
    for _ in 0..count {
        let list = operation::acl(body)?;
        let mut key = Key::default();
        for half in &mut key.half {
            *half = body.u16()?;
        }
        (key.absent, key.unknown) = (body.u32()?, body.u32()?);
        all.push(of(list, key, body.flag()?));
    }
    Ok(all)
}

fn count(into: &mut Writer, count: FrameCount) {
    into.u64(count.frames);
    into.u64(count.bytes);
}
fn read_count(from: &mut Reader<'_>) -> Result<FrameCount, Malformed> {
    Ok(FrameCount { frames: from.u64()?, bytes: from.u64()? })
}

impl LearnedEntry {
    fn write(&self, into: &mut Writer) {
        into.u16(self.vlan.get());
        into.raw(&self.mac.0);
        into.u16(self.port.get());
        into.u32(self.age_s);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let vlan = from.u16()?;
        let vlan = from.index("VLAN", vlan, VlanId::new)?;
        Ok(Self { vlan, mac: from.mac()?, port: port(from)?, age_s: from.u32()? })
    }
}

/// The length in bytes of the message that carries a frame of the CPU port, without the frame.
pub const PACKET_OVERHEAD: usize = HEADER + cpu::LENGTH;
