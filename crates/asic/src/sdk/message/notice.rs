//! The bytes of [`Notice`] and [`Incoming`].

use super::{
    Answer, Event, Frame, Incoming, LearnedEntry, Notice, Question, close, frame, open, port, read_keys,
    write_key,
};
use crate::sdk::bytes::{Malformed, Reader, malformed};
use crate::sdk::cpu::CpuHeader;

impl Notice {
    /// Serialises the notice.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Packet(header, frame) => close(0xc002, 0, |body| {
                header.write(body);
                body.raw(frame);
            }),
            Self::Diverted(frame, questions) => close(0xc003, 0, |body| {
                body.u16(questions.len() as u16);
                questions.iter().for_each(|of| write_key(body, of.list, &of.key, of.ends));
                frame.write(body);
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
                Event::ExpiryAcknowledged => body.u8(6),
            }),
        }
    }

    fn read(kind: u16, body: &mut Reader<'_>) -> Result<Self, Malformed> {
        if kind == 0xc002 {
            let header = CpuHeader::read(body)?;
            return Ok(Self::Packet(header, frame(body)?));
        }
        if kind == 0xc003 {
            let questions = read_keys(body, |list, key, ends| Question { list, key, ends })?;
            return Ok(Self::Diverted(Frame::read(body)?, questions));
        }
        Ok(Self::Event(match body.u8()? {
            1 => Event::Learned(LearnedEntry::read(body)?),
            2 => Event::Moved(LearnedEntry::read(body)?, port(body)?),
            3 => Event::Gone(LearnedEntry::read(body)?),
            4 => Event::Link(port(body)?, body.flag()?),
            5 => Event::Lost(body.u64()?),
            6 => Event::ExpiryAcknowledged,
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
            0xc001..=0xc003 => Self::Notice(Notice::read(kind, &mut body)?),
            _ => Self::Answer(number, Answer::read(kind, &mut body)?),
        };
        body.end()?;
        Ok(incoming)
    }
}
