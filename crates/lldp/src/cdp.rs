//! The format of CDP frames, versions 1 and 2 (Cisco's published description of the protocol's message format).
//!
//! Invariant: a frame that [`decode`] returns has a right checksum and a device ID, every length was checked, and every
//! text is printable. A frame with a TLV of wrong length is refused; TLVs of unknown types are skipped.

use crate::pdu::PduError;
use crate::text::{cut, ip, printable};
use lanyard_types::MacAddr;
use lanyard_wire::ip::ones_complement_sum;
use lanyard_wire::{Frame, HEADER_LEN, TAG_LEN};
use std::net::IpAddr;

/// LLC and SNAP headers of CDP: DSAP, SSAP, UI, Cisco's organization code, protocol 0x2000.
const SNAP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0];
/// Most bytes of a text that is sent.
const MAX_TEXT: usize = 255;
/// Most bytes of a text that is kept: a software version of IOS takes several lines.
const MAX_KEPT: usize = 1024;
/// Most addresses that are kept of a neighbour.
const MAX_ADDRESSES: usize = 16;

/// The kind of appliance in the TLV of the voice VLAN.
const PHONE: u8 = 1;

mod types {
    pub(super) const DEVICE_ID: u16 = 0x0001;
    pub(super) const ADDRESSES: u16 = 0x0002;
    pub(super) const PORT_ID: u16 = 0x0003;
    pub(super) const CAPABILITIES: u16 = 0x0004;
    pub(super) const SOFTWARE: u16 = 0x0005;
    pub(super) const PLATFORM: u16 = 0x0006;
    pub(super) const NATIVE_VLAN: u16 = 0x000a;
    pub(super) const DUPLEX: u16 = 0x000b;
    /// The VLAN that a telephone is to use: the kind of appliance, 1 for telephones, and the VLAN.
    pub(super) const VOICE_VLAN: u16 = 0x000e;
    pub(super) const MANAGEMENT: u16 = 0x0016;
}

/// Bits of the capabilities.
pub mod capability {
    /// A router.
    pub const ROUTER: u32 = 0x01;
    /// A transparent bridge.
    pub const BRIDGE: u32 = 0x02;
    /// A switch: a bridge that does not necessarily run spanning tree.
    pub const SWITCH: u32 = 0x08;
    /// A host.
    pub const HOST: u32 = 0x10;
    /// IGMP snooping.
    pub const IGMP: u32 = 0x20;
    /// A repeater.
    pub const REPEATER: u32 = 0x40;
    /// A telephone.
    pub const PHONE: u32 = 0x80;
}

/// The letters of `show cdp neighbors`, separated by blanks.
#[must_use]
pub fn capability_letters(bits: u32) -> String {
    let all = ["R", "T", "B", "S", "H", "I", "r", "P", "D", "C", "M"];
    let set: Vec<&str> =
        all.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, letter)| *letter).collect();
    set.join(" ")
}

/// A CDP packet without its headers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cdpdu {
    /// The version, 1 or 2.
    pub version: u8,
    /// The time to live in seconds; 0 withdraws the information.
    pub ttl_s: u8,
    /// The device ID: usually the host name.
    pub device_id: String,
    /// The port ID: the name of the sender's interface.
    pub port_id: String,
    /// Addresses of the interface.
    pub addresses: Vec<IpAddr>,
    /// Capabilities, as bits of [`capability`].
    pub capabilities: u32,
    /// The software version, of several lines.
    pub software: Option<String>,
    /// The platform.
    pub platform: Option<String>,
    /// The native VLAN; received values outside 1 to 4094 are not refused.
    pub native_vlan: Option<u16>,
    /// The VLAN for the voice of a telephone.
    pub voice_vlan: Option<u16>,
    /// True for full duplex.
    pub full_duplex: Option<bool>,
    /// Addresses for management.
    pub management: Vec<IpAddr>,
    /// The number of TLVs of unknown types.
    pub unrecognized: u16,
}

/// Decodes a frame, untagged or with a tag: Cisco's switches tag CDP frames when VLAN 1 is not native.
///
/// # Errors
/// The reason for which the frame is refused.
pub fn decode(bytes: &[u8]) -> Result<(MacAddr, Cdpdu), PduError> {
    let frame = Frame::new(bytes).map_err(|_| PduError::FrameTruncated)?;
    if frame.dst() != MacAddr::CISCO_DISCOVERY {
        return Err(PduError::Destination);
    }
    if frame.src().is_group() || frame.src().is_zero() {
        return Err(PduError::Source);
    }
    let tag = if frame.ethertype() == 0x8100 { TAG_LEN } else { 0 };
    let Some((length, payload)) = bytes.get(HEADER_LEN - 2 + tag..).and_then(<[u8]>::split_first_chunk::<2>)
    else {
        return Err(PduError::FrameTruncated);
    };
    // The bytes beyond the length field are padding, which the checksum does not cover.
    let payload = payload.get(..usize::from(u16::from_be_bytes(*length))).ok_or(PduError::FrameTruncated)?;
    let packet = payload.strip_prefix(&SNAP).ok_or(PduError::Encapsulation)?;
    Ok((frame.src(), decode_packet(packet)?))
}

/// Decodes a packet.
///
/// # Errors
/// The reason for which it is refused.
pub fn decode_packet(packet: &[u8]) -> Result<Cdpdu, PduError> {
    let [version, ttl_s, _, _, rest @ ..] = packet else { return Err(PduError::FrameTruncated) };
    if !matches!(version, 1 | 2) {
        return Err(PduError::Version);
    }
    if !checksum_is_right(packet) {
        return Err(PduError::Checksum);
    }
    let mut pdu = Cdpdu { version: *version, ttl_s: *ttl_s, ..Cdpdu::default() };
    let mut device = None;
    let mut rest = rest;
    while !rest.is_empty() {
        let [a, b, c, d, tail @ ..] = rest else { return Err(PduError::TlvTruncated) };
        let (kind, length) = (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d])));
        let length = length.checked_sub(4).ok_or(PduError::TlvTruncated)?;
        let (value, after) = tail.split_at_checked(length).ok_or(PduError::TlvTruncated)?;
        rest = after;
        pdu.take(kind, value, &mut device)?;
    }
    pdu.device_id = device.filter(|id| !id.is_empty()).ok_or(PduError::ChassisId)?;
    Ok(pdu)
}

impl Cdpdu {
    fn take(&mut self, kind: u16, value: &[u8], device: &mut Option<String>) -> Result<(), PduError> {
        let text = |value: &[u8]| printable(&value[..value.len().min(MAX_KEPT)]);
        match (kind, value) {
            (types::DEVICE_ID, id) => *device = Some(text(id)),
            (types::ADDRESSES, list) => self.addresses = addresses(list)?,
            (types::PORT_ID, id) => self.port_id = text(id),
            (types::CAPABILITIES, [a, b, c, d]) => self.capabilities = u32::from_be_bytes([*a, *b, *c, *d]),
            (types::SOFTWARE, version) => self.software = Some(text(version)),
            (types::PLATFORM, platform) => self.platform = Some(text(platform)),
            (types::NATIVE_VLAN, [a, b]) => self.native_vlan = Some(u16::from_be_bytes([*a, *b])),
            (types::VOICE_VLAN, [PHONE, a, b]) => self.voice_vlan = Some(u16::from_be_bytes([*a, *b])),
            (types::DUPLEX, [duplex]) => self.full_duplex = Some(*duplex != 0),
            (types::MANAGEMENT, list) => self.management = addresses(list)?,
            (types::CAPABILITIES | types::NATIVE_VLAN | types::DUPLEX, _) => {
                return Err(PduError::TlvTruncated);
            }
            _ => self.unrecognized += 1,
        }
        Ok(())
    }
}

/// Decodes a list of addresses: their number, and for each address its protocol type, protocol and bytes.
fn addresses(list: &[u8]) -> Result<Vec<IpAddr>, PduError> {
    let wrong = PduError::TlvTruncated;
    let (count, mut rest) = list.split_first_chunk::<4>().ok_or(wrong)?;
    let mut found = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let [_, length, tail @ ..] = rest else { return Err(wrong) };
        let (_, tail) = tail.split_at_checked(usize::from(*length)).ok_or(wrong)?;
        let (length, tail) = tail.split_first_chunk::<2>().ok_or(wrong)?;
        let (address, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or(wrong)?;
        rest = tail;
        // The length distinguishes IPv4 from IPv6; other protocols' addresses are skipped.
        if found.len() < MAX_ADDRESSES {
            found.extend(ip(address));
        }
    }
    Ok(found)
}

/// True if the packet's checksum (RFC 1071) is right. For an odd number of bytes Cisco adds the last one as a signed
/// number, one less when it is negative; both this sum and that of RFC 1071 are accepted.
fn checksum_is_right(packet: &[u8]) -> bool {
    if ones_complement_sum(packet) == 0xffff {
        return true;
    }
    let Some((&last, even)) = packet.split_last().filter(|_| packet.len() % 2 == 1) else { return false };
    let word = if last & 0x80 == 0 { [0, last] } else { [0xff, last.wrapping_sub(1)] };
    ones_complement_sum(&[even, &word].concat()) == 0xffff
}

fn tlv(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend(kind.to_be_bytes());
    out.extend((value.len() as u16 + 4).to_be_bytes());
    out.extend_from_slice(value);
}

fn address_list(addresses: &[IpAddr]) -> Vec<u8> {
    let mut out = (addresses.len() as u32).to_be_bytes().to_vec();
    for address in addresses {
        match address {
            // NLPID, protocol 0xcc.
            IpAddr::V4(address) => {
                out.extend([1, 1, 0xcc, 0, 4]);
                out.extend(address.octets());
            }
            // IEEE 802.2 with SNAP, protocol 0x86dd.
            IpAddr::V6(address) => {
                out.extend([2, 8, 0xaa, 0xaa, 3, 0, 0, 0, 0x86, 0xdd, 0, 16]);
                out.extend(address.octets());
            }
        }
    }
    out
}

/// Encodes a packet. At most 16 addresses and 255 bytes of each text are taken.
#[must_use]
pub fn encode_packet(pdu: &Cdpdu) -> Vec<u8> {
    let mut out = vec![pdu.version, pdu.ttl_s, 0, 0];
    let text = |text: &str| cut(text, MAX_TEXT).as_bytes().to_vec();
    let first = |all: &[IpAddr]| address_list(&all[..all.len().min(MAX_ADDRESSES)]);
    tlv(&mut out, types::DEVICE_ID, &text(&pdu.device_id));
    tlv(&mut out, types::ADDRESSES, &first(&pdu.addresses));
    tlv(&mut out, types::PORT_ID, &text(&pdu.port_id));
    tlv(&mut out, types::CAPABILITIES, &pdu.capabilities.to_be_bytes());
    if let Some(platform) = &pdu.platform {
        tlv(&mut out, types::PLATFORM, &text(platform));
    }
    if let Some(vlan) = pdu.native_vlan {
        tlv(&mut out, types::NATIVE_VLAN, &vlan.to_be_bytes());
    }
    if let Some(vlan) = pdu.voice_vlan {
        let [high, low] = vlan.to_be_bytes();
        tlv(&mut out, types::VOICE_VLAN, &[PHONE, high, low]);
    }
    if let Some(full) = pdu.full_duplex {
        tlv(&mut out, types::DUPLEX, &[u8::from(full)]);
    }
    if !pdu.management.is_empty() {
        tlv(&mut out, types::MANAGEMENT, &first(&pdu.management));
    }
    // Implementations disagree on the checksum of an odd length, so a blank at the end of this text makes the length even.
    let mut software = pdu.software.as_deref().map_or_else(Vec::new, text);
    if (out.len() + software.len()) % 2 == 1 {
        software.push(b' ');
    }
    tlv(&mut out, types::SOFTWARE, &software);
    let sum = !ones_complement_sum(&out);
    out[2..4].copy_from_slice(&sum.to_be_bytes());
    out
}

/// Encodes a frame.
#[must_use]
pub fn encode(source: MacAddr, pdu: &Cdpdu) -> Vec<u8> {
    let packet = encode_packet(pdu);
    lanyard_wire::Builder::new(MacAddr::CISCO_DISCOVERY, source)
        .ethertype((SNAP.len() + packet.len()) as u16)
        .payload(&SNAP)
        .payload(&packet)
        .build()
}
