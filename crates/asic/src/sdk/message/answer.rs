//! The bytes of [`Answer`].

use super::{
    Answer, Code, LearnedEntry, PortCounts, PortInfo, Refused, Welcome, close, count, operations, port,
    read_count,
};
use crate::object::{Object, Width};
use crate::sdk::bytes::{Malformed, Reader, Writer, malformed};
use crate::tables::{Shortage, Usage};
use lanyard_types::VrfId;

impl Answer {
    /// Serialises the answer to the request with this number.
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
            Self::Activity(..) => 0x8009,
            Self::Matches(_) => 0x800a,
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
            Self::Activity(more, list) => {
                body.u8(u8::from(*more));
                body.u16(list.len() as u16);
                for (vrf, prefix, packets) in list {
                    body.u8(vrf.get());
                    body.prefix(prefix);
                    body.u64(*packets);
                }
            }
            Self::Matches(counts) => {
                body.u16(counts.len() as u16);
                counts.iter().for_each(|count| body.u64(*count));
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

    pub(super) fn read(kind: u16, body: &mut Reader<'_>) -> Result<Self, Malformed> {
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
            0x8009 => {
                let (more, count) = (body.flag()?, body.u16()?);
                let entry = |body: &mut Reader<'_>| {
                    let vrf = body.u8()?;
                    Ok((body.index("VRF", vrf, VrfId::new)?, body.prefix()?, body.u64()?))
                };
                Self::Activity(more, (0..count).map(|_| entry(body)).collect::<Result<_, _>>()?)
            }
            0x800a => Self::Matches((0..body.u16()?).map(|_| body.u64()).collect::<Result<_, _>>()?),
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
