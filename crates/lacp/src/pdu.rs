//! The format of the slow protocols' frames: LACPDUs and Marker PDUs (IEEE 802.1AX-2014, 6.4.2 and 6.5.3).
//!
//! Invariant: a frame that [`decode`] returns has TLVs of the standard's types and lengths. A higher version is read as
//! version 1, as 6.4.2.3 asks; the state machines never see a raw offset.

use lanyard_types::MacAddr;
use lanyard_wire::Frame;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The EtherType of the slow protocols (IEEE 802.3-2018, annex 57A).
pub const ETHERTYPE: u16 = 0x8809;
/// The destination of the slow protocols: 01:80:C2:00:00:02.
pub const SLOW_PROTOCOLS: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 2]);
/// Bytes of a PDU behind the EtherType.
const PDU_LEN: usize = 110;
const SUBTYPE_LACP: u8 = 1;
const SUBTYPE_MARKER: u8 = 2;

macro_rules! pdu_errors {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// Why a frame was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
        pub enum PduError { $($(#[$doc])* #[error($name)] $variant,)* }

        impl PduError {
            /// All values, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// The name in counters and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

pdu_errors! {
    /// The frame is shorter than its headers.
    FrameTruncated = "frame_truncated";
    /// The destination is not that of the slow protocols.
    Destination = "destination";
    /// The source is a group address or zero.
    Source = "source";
    /// The EtherType is not that of the slow protocols.
    EtherType = "ethertype";
    /// The subtype is neither LACP nor Marker: OAM and others, which are not for this protocol.
    Subtype = "subtype";
    /// The PDU is shorter than 110 bytes.
    PduTruncated = "pdu_truncated";
    /// The version is 0.
    Version = "version";
    /// The first TLV is not the actor's with length 20.
    ActorTlv = "actor_tlv";
    /// The second TLV is not the partner's with length 20.
    PartnerTlv = "partner_tlv";
    /// The third TLV is not the collector's with length 16.
    CollectorTlv = "collector_tlv";
    /// The TLV of a Marker PDU is neither marker information nor a marker response with length 16.
    MarkerTlv = "marker_tlv";
    /// The actor's system is a group address or zero.
    System = "system";
}

/// The state of a port in an LACPDU (6.4.2.3 m), as bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct State(pub u8);

impl State {
    /// LACP_Activity: the port sends whether or not the partner does.
    pub const ACTIVITY: u8 = 1;
    /// LACP_Timeout: the port asks for a PDU each second, and waits three seconds for it.
    pub const TIMEOUT: u8 = 1 << 1;
    /// Aggregation: the link may be aggregated.
    pub const AGGREGATION: u8 = 1 << 2;
    /// Synchronization: the port is attached to the right aggregator.
    pub const SYNCHRONIZATION: u8 = 1 << 3;
    /// Collecting: the port receives for the aggregator.
    pub const COLLECTING: u8 = 1 << 4;
    /// Distributing: the port sends for the aggregator.
    pub const DISTRIBUTING: u8 = 1 << 5;
    /// Defaulted: nothing is known of the partner but its defaults.
    pub const DEFAULTED: u8 = 1 << 6;
    /// Expired: the partner has been silent.
    pub const EXPIRED: u8 = 1 << 7;

    /// True if all of `bits` are set.
    #[must_use]
    pub const fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }
    /// Sets or clears bits.
    pub const fn set(&mut self, bits: u8, on: bool) {
        self.0 = if on { self.0 | bits } else { self.0 & !bits };
    }
    /// Eight characters, the letter of a set bit or `-`: activity, timeout, aggregation, synchronization, collecting,
    /// distributing, defaulted, expired.
    #[must_use]
    pub fn letters(self) -> String {
        "ATGSCDFE"
            .chars()
            .enumerate()
            .map(|(bit, letter)| if self.0 >> bit & 1 == 1 { letter } else { '-' })
            .collect()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.letters())
    }
}

/// The information about one side of a link: the actor's or the partner's (6.4.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct PortInfo {
    /// The priority of the system; less is better.
    pub system_priority: u16,
    /// The address of the system.
    pub system: MacAddr,
    /// The key: ports of a system with the same key may be aggregated.
    pub key: u16,
    /// The priority of the port; less is better.
    pub port_priority: u16,
    /// The number of the port.
    pub port: u16,
    /// Its state.
    pub state: State,
}

impl PortInfo {
    /// True if both describe the same port in the same role: all fields are equal, of the state only the bit Aggregation.
    #[must_use]
    pub fn is_same_link(&self, other: &Self) -> bool {
        let bare = |info: &Self| Self { state: State(info.state.0 & State::AGGREGATION), ..*info };
        bare(self) == bare(other)
    }
    fn read(bytes: &[u8; 15]) -> Self {
        let [a, b, s0, s1, s2, s3, s4, s5, k0, k1, p0, p1, n0, n1, state] = *bytes;
        Self {
            system_priority: u16::from_be_bytes([a, b]),
            system: MacAddr([s0, s1, s2, s3, s4, s5]),
            key: u16::from_be_bytes([k0, k1]),
            port_priority: u16::from_be_bytes([p0, p1]),
            port: u16::from_be_bytes([n0, n1]),
            state: State(state),
        }
    }
    fn write(&self, kind: u8, out: &mut Vec<u8>) {
        out.extend([kind, 20]);
        out.extend(self.system_priority.to_be_bytes());
        out.extend(self.system.0);
        out.extend(self.key.to_be_bytes());
        out.extend(self.port_priority.to_be_bytes());
        out.extend(self.port.to_be_bytes());
        out.extend([self.state.0, 0, 0, 0]);
    }
}

/// An LACPDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lacpdu {
    /// The sender's port.
    pub actor: PortInfo,
    /// The receiver's port, as the sender knows it.
    pub partner: PortInfo,
    /// The sender's longest delay of a frame in its collector, in units of 10 us.
    pub max_delay: u16,
}

/// A Marker PDU (6.5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// True for a response.
    pub response: bool,
    /// The requester's port.
    pub port: u16,
    /// The requester's system.
    pub system: MacAddr,
    /// The requester's transaction.
    pub transaction: u32,
}

/// A frame of the slow protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pdu {
    /// LACP.
    Lacp(Lacpdu),
    /// Marker.
    Marker(Marker),
}

/// Decodes a frame.
///
/// # Errors
/// The reason for which it is refused.
pub fn decode(frame: &[u8]) -> Result<(MacAddr, Pdu), PduError> {
    let frame = Frame::new(frame).map_err(|_| PduError::FrameTruncated)?;
    if frame.dst() != SLOW_PROTOCOLS {
        return Err(PduError::Destination);
    }
    if frame.src().is_group() || frame.src().is_zero() {
        return Err(PduError::Source);
    }
    if frame.ethertype() != ETHERTYPE {
        return Err(PduError::EtherType);
    }
    let pdu = frame.payload();
    match pdu.first() {
        None => Err(PduError::FrameTruncated),
        Some(&SUBTYPE_LACP) => Ok((frame.src(), Pdu::Lacp(decode_lacpdu(pdu)?))),
        Some(&SUBTYPE_MARKER) => Ok((frame.src(), Pdu::Marker(decode_marker(pdu)?))),
        Some(_) => Err(PduError::Subtype),
    }
}

/// Decodes an LACPDU, from its subtype on. Reserved fields and what follows the third TLV are ignored (6.4.2.3).
///
/// # Errors
/// The reason for which it is refused.
pub fn decode_lacpdu(pdu: &[u8]) -> Result<Lacpdu, PduError> {
    let pdu = pdu.first_chunk::<PDU_LEN>().ok_or(PduError::PduTruncated)?;
    if pdu[1] == 0 {
        return Err(PduError::Version);
    }
    if pdu[2..4] != [1, 20] {
        return Err(PduError::ActorTlv);
    }
    if pdu[22..24] != [2, 20] {
        return Err(PduError::PartnerTlv);
    }
    if pdu[42..44] != [3, 16] {
        return Err(PduError::CollectorTlv);
    }
    let info = |at: usize| {
        let mut bytes = [0; 15];
        bytes.copy_from_slice(&pdu[at..at + 15]);
        PortInfo::read(&bytes)
    };
    let actor = info(4);
    if actor.system.is_group() || actor.system.is_zero() {
        return Err(PduError::System);
    }
    Ok(Lacpdu { actor, partner: info(24), max_delay: u16::from_be_bytes([pdu[44], pdu[45]]) })
}

fn decode_marker(pdu: &[u8]) -> Result<Marker, PduError> {
    let pdu = pdu.first_chunk::<PDU_LEN>().ok_or(PduError::PduTruncated)?;
    if pdu[1] == 0 {
        return Err(PduError::Version);
    }
    let response = match pdu[2..4] {
        [1, 16] => false,
        [2, 16] => true,
        _ => return Err(PduError::MarkerTlv),
    };
    let mut system = [0; 6];
    system.copy_from_slice(&pdu[6..12]);
    Ok(Marker {
        response,
        port: u16::from_be_bytes([pdu[4], pdu[5]]),
        system: MacAddr(system),
        transaction: u32::from_be_bytes([pdu[12], pdu[13], pdu[14], pdu[15]]),
    })
}

fn frame(source: MacAddr, mut pdu: Vec<u8>) -> Vec<u8> {
    pdu.resize(PDU_LEN, 0);
    lanyard_wire::Builder::new(SLOW_PROTOCOLS, source).ethertype(ETHERTYPE).payload(&pdu).build()
}

/// Encodes an LACPDU as a frame.
#[must_use]
pub fn encode(source: MacAddr, pdu: &Lacpdu) -> Vec<u8> {
    let mut out = vec![SUBTYPE_LACP, 1];
    pdu.actor.write(1, &mut out);
    pdu.partner.write(2, &mut out);
    out.extend([3, 16]);
    out.extend(pdu.max_delay.to_be_bytes());
    frame(source, out.into_iter().collect())
}

/// Encodes a Marker PDU as a frame.
#[must_use]
pub fn encode_marker(source: MacAddr, marker: &Marker) -> Vec<u8> {
    let mut out = vec![SUBTYPE_MARKER, 1, if marker.response { 2 } else { 1 }, 16];
    out.extend(marker.port.to_be_bytes());
    out.extend(marker.system.0);
    out.extend(marker.transaction.to_be_bytes());
    frame(source, out)
}
