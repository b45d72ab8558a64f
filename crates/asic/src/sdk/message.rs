//! The messages between driver and chip: requests, answers, notices, and their framing.
//!
//! A message is a header of 12 bytes (length of the whole message, kind, zero, request number) and a body. The driver
//! chooses a request's number, which is repeated in the answer. Requests of a connection are answered in order;
//! notices, which have number 0, may come between answers.

use super::bytes::{Malformed, Reader, Writer, malformed};
use super::cpu::{self, CpuHeader};
use super::operation::Operation;
use super::{HEADER, MAGIC, MAX_FRAME, MAX_MESSAGE, MAX_OPERATIONS};
use crate::object::{Object, Width};
use crate::tables::{Shortage, Usage};
use lanyard_pipeline::tables::fdb::FdbFilter;
use lanyard_types::{FrameCount, MacAddr, PortId, VlanId};

/// A request of a driver. Each one except [`Request::Packet`] has one answer.
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
    /// The notices that this connection receives: 1 learning, 2 links, 4 frames of the CPU port. Answered by
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
}

/// The chip's description of itself for a driver that connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The chip's protocol version.
    pub version: u16,
    /// The platform's name.
    pub platform: String,
    /// A number that differs for each start of the chip. A driver that finds the number it knows finds its
    /// entries, too.
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
    /// Another version, or no hello before the request.
    Version = 4,
}

impl Code {
    const ALL: [Self; 4] = [Self::NoRoom, Self::Invalid, Self::Fault, Self::Version];
}

/// A refusal. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refused {
    /// The reason.
    pub code: Code,
    /// The index of the refused operation in the transaction, from 0.
    pub at: u32,
    /// The table without room; otherwise empty.
    pub table: String,
    /// The kind of shortage in that table.
    pub shortage: Option<Shortage>,
    /// The units in use, and all units, of that table.
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
    /// Received.
    pub rx: FrameCount,
    /// Sent.
    pub tx: FrameCount,
    /// Received and forwarded.
    pub forwarded: u64,
    /// Received and only trapped.
    pub trapped: u64,
    /// Copies not sent.
    pub tx_dropped: u64,
    /// Frames for this port for which a queue had no room.
    pub tail_drops: u64,
    /// Received and dropped, by `DropReason` number, without reasons whose count is 0.
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
    /// The seconds since then.
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
    /// A part of the configuration, and whether there is more.
    Operations(bool, Vec<Operation>),
    /// A part of the learned entries, and whether there is more.
    Learned(bool, Vec<LearnedEntry>),
    /// The answer to [`Request::Counters`].
    Counters(PortCounts),
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
    /// A port's link came up or went down.
    Link(PortId, bool),
    /// The number of notices that were not delivered because the connection did not read them.
    Lost(u64),
}

/// A message that the chip sends without a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An event.
    Event(Event),
    /// A frame for the CPU.
    Packet(CpuHeader, Vec<u8>),
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

impl Request {
    /// Serialises the request.
    #[must_use]
    pub fn encode(&self, number: u32) -> Vec<u8> {
        let kind = match self {
            Self::Hello(..) => 1,
            Self::Commit(_) => 2,
            Self::Usage => 3,
            Self::Entries(_) => 4,
            Self::Learned(_) => 5,
            Self::Counters(_) => 6,
            Self::Ports => 7,
            Self::Subscribe(_) => 8,
            Self::Packet(..) => 9,
            Self::Faults(_) => 10,
            Self::Resize(..) => 11,
            Self::Flush(..) => 12,
            Self::Age(_) => 13,
        };
        close(kind, number, |body| match self {
            Self::Hello(version, name) => {
                body.u32(MAGIC);
                body.u16(*version);
                body.text(name);
            }
            Self::Commit(list) => {
                body.u32(list.len() as u32);
                list.iter().for_each(|operation| operation.write(body));
            }
            Self::Usage | Self::Ports => {}
            Self::Entries(anew) | Self::Learned(anew) => body.u8(u8::from(*anew)),
            Self::Counters(port) => body.u16(port.get()),
            Self::Subscribe(mask) => body.u32(*mask),
            Self::Packet(header, frame) => {
                header.write(body);
                body.raw(frame);
            }
            Self::Faults(plan) => body.text(plan),
            Self::Resize(path, size) => {
                body.text(path);
                body.u32(*size);
            }
            Self::Flush(vlan, port, mac) => {
                body.u16(vlan.map_or(0, VlanId::get));
                body.u16(port.map_or(0, PortId::get));
                body.u8(u8::from(mac.is_some()));
                body.raw(&mac.unwrap_or_default().0);
            }
            Self::Age(seconds) => body.u32(*seconds),
        })
    }

    /// Reads a whole message.
    ///
    /// # Errors
    /// When it is not a valid request.
    pub fn decode(message: &[u8]) -> Result<(u32, Self), Malformed> {
        let (kind, number, mut body) = open(message)?;
        let request = match kind {
            1 => {
                if body.u32()? != MAGIC {
                    return malformed("a hello with another magic number");
                }
                Self::Hello(body.u16()?, body.text()?.to_owned())
            }
            2 => Self::Commit(operations(&mut body)?),
            3 => Self::Usage,
            4 => Self::Entries(body.flag()?),
            5 => Self::Learned(body.flag()?),
            6 => Self::Counters(port(&mut body)?),
            7 => Self::Ports,
            8 => Self::Subscribe(body.u32()?),
            9 => {
                let header = CpuHeader::read(&mut body)?;
                Self::Packet(header, frame(&mut body)?)
            }
            10 => Self::Faults(body.text()?.to_owned()),
            11 => Self::Resize(body.text()?.to_owned(), body.u32()?),
            12 => {
                let (vlan, port, known, mac) = (body.u16()?, body.u16()?, body.flag()?, body.mac()?);
                let vlan = if vlan == 0 { None } else { Some(body.index("VLAN", vlan, VlanId::new)?) };
                let port = if port == 0 { None } else { Some(body.index("port", port, PortId::new)?) };
                Self::Flush(vlan, port, known.then_some(mac))
            }
            13 => Self::Age(body.u32()?),
            other => return malformed(format!("{other} is no request")),
        };
        body.end()?;
        Ok((number, request))
    }

    /// The filter of a [`Request::Flush`].
    #[must_use]
    pub fn filter(vlan: Option<VlanId>, port: Option<PortId>, mac: Option<MacAddr>) -> FdbFilter {
        FdbFilter { vlan, port, mac, kind: None }
    }
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

impl Answer {
    /// Serialises the answer.
    #[must_use]
    pub fn encode(&self, number: u32) -> Vec<u8> {
        let kind = match self {
            Self::Welcome(_) => 0x8001,
            Self::Done(_) => 0x8002,
            Self::Usage(_) => 0x8003,
            Self::Operations(..) => 0x8004,
            Self::Learned(..) => 0x8005,
            Self::Counters(_) => 0x8006,
            Self::Ports(_) => 0x8007,
            Self::Refused(_) => 0x8008,
        };
        close(kind, number, |body| self.write(body))
    }

    fn write(&self, body: &mut Writer) {
        match self {
            Self::Welcome(welcome) => {
                body.u16(welcome.version);
                body.text(&welcome.platform);
                body.u64(welcome.boot);
                body.u64(welcome.salt);
                [welcome.write_us, welcome.query_us, welcome.bulk]
                    .into_iter()
                    .for_each(|value| body.u32(value));
            }
            Self::Done(number) => body.u64(*number),
            Self::Usage(tables) => {
                body.u16(tables.len() as u16);
                tables.iter().for_each(|table| write_usage(body, table));
            }
            Self::Operations(more, list) => {
                body.u8(u8::from(*more));
                body.u32(list.len() as u32);
                list.iter().for_each(|operation| operation.write(body));
            }
            Self::Learned(more, list) => {
                body.u8(u8::from(*more));
                body.u16(list.len() as u16);
                list.iter().for_each(|entry| entry.write(body));
            }
            Self::Counters(counts) => {
                count(body, counts.rx);
                count(body, counts.tx);
                for value in [counts.forwarded, counts.trapped, counts.tx_dropped, counts.tail_drops] {
                    body.u64(value);
                }
                body.u16(counts.dropped.len() as u16);
                for (reason, frames) in &counts.dropped {
                    body.u8(*reason);
                    body.u64(*frames);
                }
            }
            Self::Ports(ports) => {
                body.u16(ports.len() as u16);
                for info in ports {
                    body.u16(info.port.get());
                    body.u32(info.speed_mbps);
                    body.u8(u8::from(info.up));
                    count(body, info.rx);
                    count(body, info.tx);
                    body.u64(info.tail_drops);
                }
            }
            Self::Refused(refused) => {
                body.u8(refused.code as u8);
                body.u32(refused.at);
                body.text(&refused.table);
                body.u8(refused.shortage.map_or(0, |shortage| shortage as u8 + 1));
                body.u32(refused.units.0);
                body.u32(refused.units.1);
                body.text(&refused.text);
            }
        }
    }

    fn read(kind: u16, body: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match kind {
            0x8001 => Self::Welcome(Welcome {
                version: body.u16()?,
                platform: body.text()?.to_owned(),
                boot: body.u64()?,
                salt: body.u64()?,
                write_us: body.u32()?,
                query_us: body.u32()?,
                bulk: body.u32()?,
            }),
            0x8002 => Self::Done(body.u64()?),
            0x8003 => Self::Usage((0..body.u16()?).map(|_| read_usage(body)).collect::<Result<_, _>>()?),
            0x8004 => Self::Operations(body.flag()?, operations(body)?),
            0x8005 => {
                let (more, count) = (body.flag()?, body.u16()?);
                Self::Learned(more, (0..count).map(|_| LearnedEntry::read(body)).collect::<Result<_, _>>()?)
            }
            0x8006 => {
                let (rx, tx) = (read_count(body)?, read_count(body)?);
                let (forwarded, trapped) = (body.u64()?, body.u64()?);
                let (tx_dropped, tail_drops, reasons) = (body.u64()?, body.u64()?, body.u16()?);
                let dropped =
                    (0..reasons).map(|_| Ok((body.u8()?, body.u64()?))).collect::<Result<_, _>>()?;
                Self::Counters(PortCounts { rx, tx, forwarded, trapped, tx_dropped, tail_drops, dropped })
            }
            0x8007 => {
                let info = |body: &mut Reader<'_>| {
                    let (port, speed_mbps, up) = (port(body)?, body.u32()?, body.flag()?);
                    let (rx, tx) = (read_count(body)?, read_count(body)?);
                    Ok(PortInfo { port, speed_mbps, up, rx, tx, tail_drops: body.u64()? })
                };
                Self::Ports((0..body.u16()?).map(|_| info(body)).collect::<Result<_, _>>()?)
            }
            0x8008 => {
                let code = body.u8()?;
                let Some(code) = Code::ALL.into_iter().find(|known| *known as u8 == code) else {
                    return malformed(format!("{code} is no reason to refuse"));
                };
                let (at, table) = (body.u32()?, body.text()?.to_owned());
                let shortage = match body.u8()? {
                    0 => None,
                    1 => Some(Shortage::Full),
                    2 => Some(Shortage::Collision),
                    3 => Some(Shortage::Fragmented),
                    other => return malformed(format!("{other} is no shortage")),
                };
                let units = (body.u32()?, body.u32()?);
                Self::Refused(Refused { code, at, table, shortage, units, text: body.text()?.to_owned() })
            }
            other => return malformed(format!("{other:#x} is no answer")),
        })
    }
}

fn write_usage(body: &mut Writer, table: &Usage) {
    body.text(&table.path);
    [table.size, table.used, table.high_water].into_iter().for_each(|value| body.u32(value));
    body.u64(table.refused);
    body.u8(table.holds.len() as u8);
    for (object, width) in &table.holds {
        body.u8(*object as u8);
        body.u8(width.units() as u8);
    }
}

fn read_usage(body: &mut Reader<'_>) -> Result<Usage, Malformed> {
    let path = body.text()?.to_owned();
    let (size, used, high_water, refused) = (body.u32()?, body.u32()?, body.u32()?, body.u64()?);
    let mut holds = Vec::new();
    for _ in 0..body.u8()? {
        let (number, units) = (body.u8()?, body.u8()?);
        let Some(object) = Object::ALL.get(usize::from(number)) else {
            return malformed(format!("{number} is no kind of object"));
        };
        holds.push((*object, Width::new(units.into())));
    }
    Ok(Usage { path, size, used, high_water, refused, holds })
}

impl Notice {
    /// Serialises the notice.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Packet(header, frame) => close(0xc002, 0, |body| {
                header.write(body);
                body.raw(frame);
            }),
            Self::Event(event) => close(0xc001, 0, |body| match event {
                Event::Learned(entry) => {
                    body.u8(1);
                    entry.write(body);
                }
                Event::Moved(entry, from) => {
                    body.u8(2);
                    entry.write(body);
                    body.u16(from.get());
                }
                Event::Gone(entry) => {
                    body.u8(3);
                    entry.write(body);
                }
                Event::Link(port, up) => {
                    body.u8(4);
                    body.u16(port.get());
                    body.u8(u8::from(*up));
                }
                Event::Lost(count) => {
                    body.u8(5);
                    body.u64(*count);
                }
            }),
        }
    }

    fn read(kind: u16, body: &mut Reader<'_>) -> Result<Self, Malformed> {
        if kind == 0xc002 {
            let header = CpuHeader::read(body)?;
            return Ok(Self::Packet(header, frame(body)?));
        }
        Ok(Self::Event(match body.u8()? {
            1 => Event::Learned(LearnedEntry::read(body)?),
            2 => Event::Moved(LearnedEntry::read(body)?, port(body)?),
            3 => Event::Gone(LearnedEntry::read(body)?),
            4 => Event::Link(port(body)?, body.flag()?),
            5 => Event::Lost(body.u64()?),
            other => return malformed(format!("{other} is no event")),
        }))
    }
}

impl Incoming {
    /// Reads a whole message of a chip.
    ///
    /// # Errors
    /// When it is neither an answer nor a notice.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let (kind, number, mut body) = open(message)?;
        let incoming = match kind {
            0xc001 | 0xc002 => Self::Notice(Notice::read(kind, &mut body)?),
            _ => Self::Answer(number, Answer::read(kind, &mut body)?),
        };
        body.end()?;
        Ok(incoming)
    }
}

/// The length of a CPU frame's message without the frame.
pub const PACKET_OVERHEAD: usize = HEADER + cpu::LENGTH;
