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
/// Bytes of the tag that stands for it at a netdev.
pub const TAG: usize = 4;

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
    /// The header as it stands in a frame at a netdev: a tag 0x88A8 behind the addresses. It has the port (bits 0-9: `to`, else
    /// the port where the frame came in), the flags (10 forwarded, 11 pipeline) and the version, 1 (12-15). One tag, because
    /// the kernel keeps buffers of segments together behind one and not behind two.
    #[must_use]
    pub fn to_tag(&self) -> [u8; TAG] {
        let port = self.to.or(self.port).map_or(0, PortId::get);
        let flags = u16::from(self.forwarded) << 10 | u16::from(self.pipeline) << 11 | 1 << 12;
        let [a, b] = (port | flags).to_be_bytes();
        [0x88, 0xa8, a, b]
    }
    /// The header towards the chip that a tag is; `None` when it is none.
    #[must_use]
    pub fn from_tag(tag: [u8; TAG]) -> Option<Self> {
        let [0x88, 0xa8, a, b] = tag else { return None };
        let word = u16::from_be_bytes([a, b]);
        let (forwarded, pipeline) = (word & 1 << 10 != 0, word & 1 << 11 != 0);
        let to = PortId::new(word & 0x3ff)?;
        (word >> 12 == 1).then_some(Self { forwarded, pipeline, reason: None, port: None, to: Some(to) })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_means_what_the_header_does() {
        for number in [1, 77, 1023] {
            let header =
                CpuHeader { pipeline: number == 77, to: PortId::new(number), ..CpuHeader::default() };
            assert_eq!(CpuHeader::from_tag(header.to_tag()), Some(header));
        }
        let from = CpuHeader { forwarded: true, port: PortId::new(5), ..CpuHeader::default() };
        assert_eq!(from.to_tag(), [0x88, 0xa8, 0x14, 5]);
        assert_eq!(CpuHeader::from_tag([0x88, 0xa8, 0, 1]), None, "another version");
        assert_eq!(CpuHeader::from_tag([0x88, 0xa8, 0x10, 0]), None, "no port");
        assert_eq!(CpuHeader::from_tag([0x81, 0, 0x10, 1]), None);
    }
}
