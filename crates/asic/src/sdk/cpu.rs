//! The header of frames that pass the CPU port: the front-panel port, and the reason why the CPU gets the frame.
//!
//! | Byte | Meaning |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | flags: 1 the chip has forwarded the frame already, 2 towards the chip: run the frame through the pipeline |
//! | 2 | the reason, a `TrapReason` number; 0: the frame is for the VLAN interface or subinterface `to` |
//! | 3 | 0 |
//! | 4-5 | the port where the frame came in; 0 towards the chip |
//! | 6-7 | `to`: the port of the VLAN interface or subinterface that it is for, or 0; towards the chip, the port it leaves at |
//!
//! The chip sends a frame of the CPU out of port `to` unchanged. With flag 2, for a frame that the kernel sends at a VLAN
//! interface, the chip processes it as received at port `to` instead.

use super::bytes::{Malformed, Reader, Writer, malformed};
use lanyard_types::{PortId, TrapReason};

/// Bytes of the header.
pub const LENGTH: usize = 8;
/// Bytes of the tag that replaces the header at a netdev ([`CpuHeader::to_tag`]).
pub const TAG: usize = 4;

/// The header of a frame of the CPU port. See the module comment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuHeader {
    /// The chip has forwarded the frame to other ports already: do not forward it again.
    pub forwarded: bool,
    /// Towards the chip: run the frame through the pipeline as received at `to`.
    pub pipeline: bool,
    /// The reason why the CPU receives the frame; `None` when it is for a VLAN interface or subinterface, and towards the chip.
    pub reason: Option<TrapReason>,
    /// The ingress port; `None` towards the chip.
    pub port: Option<PortId>,
    /// The port of the VLAN interface or subinterface that the frame is for, if any; towards the chip, the port where it leaves
    /// or, with `pipeline`, enters the pipeline.
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
    /// The header in a frame at a netdev: a tag with TPID 0x88A8 after the addresses. Its 16 bits are the port (bits 0-9: `to`,
    /// or the ingress port if `to` is `None`), the flags (bit 10 `forwarded`, bit 11 `pipeline`) and the version, 1 (bits 12-15).
    /// It is a single tag, because the kernel splits a buffer of segments that has two.
    #[must_use]
    pub fn to_tag(&self) -> [u8; TAG] {
        let port = self.to.or(self.port).map_or(0, PortId::get);
        let flags = u16::from(self.forwarded) << 10 | u16::from(self.pipeline) << 11 | 1 << 12;
        let [a, b] = (port | flags).to_be_bytes();
        [0x88, 0xa8, a, b]
    }
    /// Decodes the tag of a frame on its way to the chip; `None` if the tag is not one of [`CpuHeader::to_tag`] with a port.
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
    fn cpu_headers_convert_to_tags_and_back_and_invalid_tags_are_refused() {
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
