//! The bytes of [`Request`].

use super::{
    FdbFilter, Frame, MAX_SPEED_MBPS, Request, Verdict, close, frame, open, operation, operations, port,
    read_keys, write_key,
};
use crate::sdk::MAGIC;
use crate::sdk::bytes::{Malformed, malformed};
use crate::sdk::cpu::CpuHeader;
use lanyard_types::{MacAddr, PortId, VlanId};

impl Request {
    /// Serialises the request with this number.
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
            Self::Activity(_) => 14,
            Self::Speed(..) => 15,
            Self::CpuNetdev(_) => 16,
            Self::Matches(..) => 17,
            Self::Judged(..) => 18,
            Self::Relay(..) => 19,
            Self::SnoopingWatchdog(_) => 20,
            Self::TreeWatchdog(_) => 21,
            Self::TreeExpiry(_) => 22,
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
            Self::Entries(anew) | Self::Learned(anew) | Self::Activity(anew) => body.u8(u8::from(*anew)),
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
            Self::SnoopingWatchdog(after_ms) | Self::TreeWatchdog(after_ms) => body.u32(*after_ms),
            Self::TreeExpiry(acknowledges) => body.u8(u8::from(*acknowledges)),
            Self::Speed(port, mbps) => {
                body.u16(port.get());
                body.u32(*mbps);
            }
            Self::CpuNetdev(name) => body.text(name),
            Self::Matches(id, clear) => {
                body.u16(id.get());
                body.u8(u8::from(*clear));
            }
            Self::Judged(frame, answers) => {
                body.u16(answers.len() as u16);
                answers.iter().for_each(|of| write_key(body, of.list, &of.key, of.permit));
                frame.write(body);
            }
            Self::Relay(vlan, from, ports, frame) => {
                body.u16(vlan.get());
                body.u16(from.map_or(0, PortId::get));
                operation::write_ports(body, ports);
                body.raw(frame);
            }
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
            14 => Self::Activity(body.flag()?),
            15 => {
                let (port, mbps) = (port(&mut body)?, body.u32()?);
                if !(1..=MAX_SPEED_MBPS).contains(&mbps) {
                    return malformed(format!("a speed of {mbps} Mbit/s: 1 to {MAX_SPEED_MBPS}"));
                }
                Self::Speed(port, mbps)
            }
            16 => Self::CpuNetdev(body.text()?.to_owned()),
            17 => Self::Matches(operation::acl(&mut body)?, body.flag()?),
            18 => {
                let answers = read_keys(&mut body, |list, key, permit| Verdict { list, key, permit })?;
                Self::Judged(Frame::read(&mut body)?, answers)
            }
            19 => {
                let (vlan, from) = (body.u16()?, body.u16()?);
                let vlan = body.index("VLAN", vlan, VlanId::new)?;
                let from = if from == 0 { None } else { Some(body.index("port", from, PortId::new)?) };
                let ports = Box::new(operation::read_ports(&mut body)?);
                Self::Relay(vlan, from, ports, frame(&mut body)?)
            }
            20 => Self::SnoopingWatchdog(body.u32()?),
            21 => Self::TreeWatchdog(body.u32()?),
            22 => Self::TreeExpiry(body.flag()?),
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
