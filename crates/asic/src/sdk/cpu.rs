//! The header of frames through the CPU port: which port, and why.
//!
//! | Byte | Is |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | flags: 1 the chip has forwarded the frame already, 2 through the pipeline |
//! | 2 | the reason, a `TrapReason` number; 0: for the VLAN interface named by `to` |
//! | 3 | 0 |
//! | 4-5 | the port where the frame came in; 0 towards the chip |
//! | 6-7 | `to`: the port of the VLAN interface or subinterface that it is for; towards the chip, the port it leaves at |
//!
//! Towards the chip a frame leaves at port `to` as it is. With flag 2 it enters the pipeline there instead, as what the kernel
//! sends at a VLAN interface does.

use super::bytes::{Malformed, Reader, Writer, malformed};
use lanyard_types::{PortId, TrapReason};

/// Bytes of the header.
pub const LENGTH: usize = 8;

/// The header of a frame of the CPU port. See the module comment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuHeader {
    /// The chip has forwarded the frame to other ports already: do not forward it again.
    pub forwarded: bool,
    /// Towards the chip: run the frame through the pipeline as received at `to`.
    pub pipeline: bool,
    /// The reason why the CPU receives it; `None` when it is for a VLAN interface.
    pub reason: Option<TrapReason>,
    /// The ingress port.
    pub port: Option<PortId>,
    /// The port to which it goes.
    pub to: Option<PortId>,
}

impl CpuHeader {
    /// Appends the header.
    pub fn write(&self, into: &mut Writer) {
        into.u8(1);
        into.u8(u8::from(self.forwarded) | u8::from(self.pipeline) << 1);
        into.u8(self.reason.map_or(0, |reason| reason.index() as u8));
        into.u8(0);
        into.u16(self.port.map_or(0, PortId::get));
        into.u16(self.to.map_or(0, PortId::get));
    }
    /// Reads a header.
    ///
    /// # Errors
    /// For another version, an unknown flag, reason or port.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (version, flags, reason, zero) = (from.u8()?, from.u8()?, from.u8()?, from.u8()?);
        if version != 1 || flags > 3 || zero != 0 {
            return malformed(format!(
                "CPU header: version {version}, flags {flags}, {zero} where 0 is expected"
            ));
        }
        let reason = match reason {
            0 => None,
            number => match TrapReason::from_u8(number) {
                None => return malformed(format!("{number} is no trap reason")),
                reason => reason,
            },
        };
        let mut port = || match from.u16()? {
            0 => Ok(None),
            number => PortId::new(number)
                .map_or_else(|| malformed(format!("{number} is no port")), |port| Ok(Some(port))),
        };
        let (port, to) = (port()?, port()?);
        Ok(Self { forwarded: flags & 1 != 0, pipeline: flags & 2 != 0, reason, port, to })
    }
}
