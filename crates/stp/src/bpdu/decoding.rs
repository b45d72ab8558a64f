//! Frames to BPDUs: everything is checked here (IEEE 802.1Q-2018, 14.5).

use super::{
    Bpdu, BpduError, BpduFrame, BridgeId, ConfigBody, Encapsulation, Flags, MAX_MSTI_MESSAGES, MstConfigId,
    MstPart, MstiMessage, PortIdentifier, TICKS_PER_SECOND,
};
use lanyard_types::{MacAddr, VlanId};

/// A cursor with bounds checks: every read past the end returns the same error.
struct Reader<'a> {
    bytes: &'a [u8],
    short: BpduError,
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BpduError> {
        let (head, rest) = self.bytes.split_first_chunk::<N>().ok_or(self.short)?;
        self.bytes = rest;
        Ok(*head)
    }
    fn u8(&mut self) -> Result<u8, BpduError> {
        self.take::<1>().map(|[octet]| octet)
    }
    fn u16(&mut self) -> Result<u16, BpduError> {
        self.take().map(u16::from_be_bytes)
    }
    fn u32(&mut self) -> Result<u32, BpduError> {
        self.take().map(u32::from_be_bytes)
    }
    fn bridge_id(&mut self) -> Result<BridgeId, BpduError> {
        let id = BridgeId::from_raw(u64::from_be_bytes(self.take()?));
        if id.address().is_group() || id.address().is_zero() {
            return Err(BpduError::BridgeAddress);
        }
        Ok(id)
    }
    /// Reads a time in 1/256 s, which must be within `seconds`.
    fn time(&mut self, seconds: std::ops::RangeInclusive<u16>, wrong: BpduError) -> Result<u16, BpduError> {
        let value = self.u16()?;
        let range = seconds.start() * TICKS_PER_SECOND..=seconds.end() * TICKS_PER_SECOND;
        if range.contains(&value) { Ok(value) } else { Err(wrong) }
    }
}

/// Decodes an Ethernet frame, with or without an 802.1Q tag.
///
/// # Errors
/// The name of the first error found.
pub fn decode(frame: &[u8]) -> Result<BpduFrame, BpduError> {
    let mut r = Reader { bytes: frame, short: BpduError::FrameTruncated };
    let destination = MacAddr(r.take()?);
    let source = MacAddr(r.take()?);
    let sstp = match destination {
        MacAddr::BRIDGE_GROUP => false,
        MacAddr::SSTP => true,
        _ => return Err(BpduError::Destination),
    };
    if source.is_group() || source.is_zero() {
        return Err(BpduError::Source);
    }
    let mut length = r.u16()?;
    let mut vlan = None;
    if matches!(length, 0x8100 | 0x88a8 | 0x9100) {
        vlan = match r.u16()? & 0x0fff {
            0 => None,
            vid => Some(VlanId::new(vid).ok_or(BpduError::TagVlan)?),
        };
        length = r.u16()?;
    }
    let header = if sstp { 8 } else { 3 };
    let length = usize::from(length);
    if !(header..=1500).contains(&length) {
        return Err(BpduError::LengthField);
    }
    let llc = r.bytes.get(..length).ok_or(BpduError::FrameTruncated)?;
    if sstp {
        let pdu = llc.strip_prefix(&[0xaa, 0xaa, 0x03, 0x00, 0x00, 0x0c, 0x01, 0x0b]);
        let (bpdu, pvid) = decode_sstp(pdu.ok_or(BpduError::LlcHeader)?)?;
        return Ok(BpduFrame { source, vlan, encapsulation: Encapsulation::Sstp { pvid }, bpdu });
    }
    if vlan.is_some() {
        return Err(BpduError::Tagged);
    }
    let pdu = llc.strip_prefix(&[0x42, 0x42, 0x03]).ok_or(BpduError::LlcHeader)?;
    Ok(BpduFrame { source, vlan, encapsulation: Encapsulation::Ieee, bpdu: decode_bpdu(pdu)? })
}

/// PVST+: the BPDU in 36 octets (a configuration BPDU is padded by one), then the originating VLAN as a TLV
/// of type 0 and length 2. A TCN BPDU has neither.
fn decode_sstp(pdu: &[u8]) -> Result<(Bpdu, Option<VlanId>), BpduError> {
    let bpdu = decode_bpdu(pdu)?;
    if bpdu == Bpdu::Tcn {
        return Ok((bpdu, None));
    }
    let mut r = Reader { bytes: pdu.get(36..).unwrap_or_default(), short: BpduError::PvidTlv };
    if (r.u16()?, r.u16()?) != (0, 2) {
        return Err(BpduError::PvidTlv);
    }
    let pvid = VlanId::new(r.u16()?).ok_or(BpduError::PvidValue)?;
    Ok((bpdu, Some(pvid)))
}

/// Validates and decodes a BPDU (14.5), without its LLC header.
///
/// # Errors
/// The name of the first error found.
pub fn decode_bpdu(pdu: &[u8]) -> Result<Bpdu, BpduError> {
    let mut r = Reader { bytes: pdu, short: BpduError::BpduTruncated };
    if r.u16()? != 0 {
        return Err(BpduError::ProtocolId);
    }
    let version = r.u8()?;
    match (r.u8()?, version) {
        (0x80, _) => Ok(Bpdu::Tcn),
        (0x00, _) => decode_body(&mut r, false).map(Bpdu::Config),
        (0x02, 2..) => {
            let body = decode_body(&mut r, true)?;
            let version_1_length = r.u8()?;
            // 14.5 c, d: an MST BPDU whose later parts are invalid counts as an RST BPDU.
            if version < 3 || version_1_length != 0 {
                return Ok(Bpdu::Rst(body));
            }
            match decode_mst(&mut r)? {
                Some(mst) => Ok(Bpdu::Mst(body, mst)),
                None => Ok(Bpdu::Rst(body)),
            }
        }
        _ => Err(BpduError::BpduType),
    }
}

fn decode_body(r: &mut Reader<'_>, rapid: bool) -> Result<ConfigBody, BpduError> {
    let mut flags = Flags::from_octet(r.u8()?);
    if !rapid {
        flags = Flags { tc: flags.tc, ack_or_master: flags.ack_or_master, ..Flags::default() };
    }
    let root = r.bridge_id()?;
    let root_path_cost = r.u32()?;
    let bridge = r.bridge_id()?;
    let port = PortIdentifier(r.u16()?);
    if port.number() == 0 {
        return Err(BpduError::PortNumber);
    }
    let message_age = r.u16()?;
    let max_age = r.time(6..=40, BpduError::MaxAge)?;
    let hello_time = r.time(1..=10, BpduError::HelloTime)?;
    let forward_delay = r.time(2..=30, BpduError::ForwardDelay)?;
    // 14.5 a). In an RST BPDU only the priority information is too old (updtRcvdInfoWhile); its flags are still
    // valid.
    if !rapid && message_age >= max_age {
        return Err(BpduError::MessageAge);
    }
    Ok(ConfigBody {
        flags,
        root,
        root_path_cost,
        bridge,
        port,
        message_age,
        max_age,
        hello_time,
        forward_delay,
    })
}

/// Returns `None` when the lengths do not fit an MST BPDU (14.5 d).
fn decode_mst(r: &mut Reader<'_>) -> Result<Option<MstPart>, BpduError> {
    let Ok(length) = r.u16().map(usize::from) else { return Ok(None) };
    let messages = match length.checked_sub(64) {
        Some(rest) if rest % 16 == 0 && rest / 16 <= MAX_MSTI_MESSAGES => rest / 16,
        _ => return Ok(None),
    };
    // Configuration identifier format selector 0 is the only one defined (13.8).
    if r.bytes.len() < length || r.u8()? != 0 {
        return Ok(None);
    }
    let config_id = MstConfigId { name: r.take()?, revision: r.u16()?, digest: r.take()? };
    let internal_root_path_cost = r.u32()?;
    let bridge = r.bridge_id()?;
    let remaining_hops = r.u8()?;
    let mut mstis: Vec<MstiMessage> = Vec::with_capacity(messages);
    for _ in 0..messages {
        let message = MstiMessage {
            flags: Flags::from_octet(r.u8()?),
            regional_root: r.bridge_id()?,
            internal_root_path_cost: r.u32()?,
            bridge_priority: u16::from(r.u8()? & 0xf0) << 8,
            port_priority: r.u8()? & 0xf0,
            remaining_hops: r.u8()?,
        };
        let mstid = message.regional_root.extension();
        if mstid == 0 || mstid == 4095 {
            return Err(BpduError::MstiIdentifier);
        }
        if mstis.iter().any(|other| other.regional_root.extension() == mstid) {
            return Err(BpduError::MstiDuplicate);
        }
        mstis.push(message);
    }
    Ok(Some(MstPart { config_id, internal_root_path_cost, bridge, remaining_hops, mstis }))
}
