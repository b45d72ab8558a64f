//! The format of BPDUs: configuration, TCN, RST and MST BPDUs (IEEE 802.1Q-2018, clause 14; 802.1D-2004,
//! clause 9), and the SSTP encapsulation of PVST+.
//!
//! Invariant: in a BPDU that [`decode`] returns every field is in its range, and every refusal has a name
//! ([`BpduError`]), which is also the name of a counter. The state machines never see a raw offset.

use hmac::{Hmac, KeyInit, Mac};
use lanyard_types::{MacAddr, VlanId, VlanSet};
use md5::Md5;
use serde::{Deserialize, Serialize};
use std::fmt;

/// BPDUs carry times in units of 1/256 s (14.2.8); these are stored in the same unit.
pub const TICKS_PER_SECOND: u16 = 256;

/// The maximum number of MSTI configuration messages in one MST BPDU (14.4.1 g).
pub const MAX_MSTI_MESSAGES: usize = 64;

macro_rules! bpdu_errors {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// Why a frame was refused. The order is that of the counters in [`crate::view::PortCounters`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
        pub enum BpduError { $($(#[$doc])* #[error($name)] $variant,)* }

        impl BpduError {
            /// All values, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// The name in counters, text and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

bpdu_errors! {
    /// The frame is shorter than its headers, or than its length field says.
    FrameTruncated = "frame_truncated";
    /// The destination is neither the bridge group address nor the SSTP address.
    Destination = "destination";
    /// The source address is a group address or zero.
    Source = "source";
    /// The length field contains an EtherType, or is too small for the LLC header.
    LengthField = "length_field";
    /// The LLC header is not 42-42-03, or the SNAP header for SSTP is not 00-00-0C, 01-0B.
    LlcHeader = "llc_header";
    /// An IEEE BPDU has a VLAN tag; bridges send them untagged.
    Tagged = "tagged";
    /// The tag has VLAN identifier 4095.
    TagVlan = "tag_vlan";
    /// The protocol identifier is not zero (14.2.1).
    ProtocolId = "protocol_id";
    /// The BPDU type is not 0, 2 or 128 (14.2.3), or it is 2 with a version below 2.
    BpduType = "bpdu_type";
    /// Fewer octets than the BPDU type needs (14.5).
    BpduTruncated = "bpdu_truncated";
    /// Message age is not less than max age (14.5 a): the information is too old.
    MessageAge = "message_age";
    /// Max age outside 6 to 40 s (802.1D-2004, table 17-1).
    MaxAge = "max_age";
    /// Hello time outside 1 to 10 s (802.1D-2004, table 17-1).
    HelloTime = "hello_time";
    /// Forward delay outside 2 to 30 s. The standard's range begins at 4 s; the Linux bridge accepts 2 s.
    ForwardDelay = "forward_delay";
    /// The port number in the port identifier is 0.
    PortNumber = "port_number";
    /// The root or bridge address is a group address or zero.
    BridgeAddress = "bridge_address";
    /// An MSTI configuration message for MSTID 0 or 4095.
    MstiIdentifier = "msti_identifier";
    /// Two MSTI configuration messages for one MSTID.
    MstiDuplicate = "msti_duplicate";
    /// An SSTP BPDU lacks the originating VLAN's TLV, or its TLV has the wrong type or length.
    PvidTlv = "pvid_tlv";
    /// The originating VLAN is not 1 to 4094.
    PvidValue = "pvid_value";
}

/// A bridge identifier (14.2.5): priority and system ID extension in the upper 16 bits, address below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BridgeId(u64);

impl BridgeId {
    /// Makes an identifier from priority (0..=61440, a multiple of 4096), system ID extension (0..=4095) and
    /// address.
    #[must_use]
    pub const fn new(priority: u16, extension: u16, address: MacAddr) -> Self {
        Self(((priority & 0xf000 | extension & 0x0fff) as u64) << 48 | address.to_u64())
    }
    /// Priority and system ID extension together, as `show` prints them: 32769 for VLAN 1.
    #[must_use]
    pub const fn priority(self) -> u16 {
        (self.0 >> 48) as u16
    }
    /// The system ID extension: MSTID or VLAN.
    #[must_use]
    pub const fn extension(self) -> u16 {
        self.priority() & 0x0fff
    }
    /// The bridge's address.
    #[must_use]
    pub const fn address(self) -> MacAddr {
        MacAddr::from_u64(self.0 & 0xffff_ffff_ffff)
    }
    const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

/// Formats the identifier as `PRIO.MAC`, as in `show spanning-tree | json`: `32769.00:11:22:33:44:55`.
impl fmt::Display for BridgeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.priority(), self.address().colon()))
    }
}

impl fmt::Debug for BridgeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A port identifier (14.2.7): priority in the upper 4 bits, number 1..=4095 below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PortIdentifier(u16);

impl PortIdentifier {
    /// Makes an identifier from priority (0..=240, a multiple of 16) and number (1..=4095).
    #[must_use]
    pub const fn new(priority: u8, number: u16) -> Self {
        Self(((priority & 0xf0) as u16) << 8 | number & 0x0fff)
    }
    /// The priority, 0..=240.
    #[must_use]
    pub const fn priority(self) -> u8 {
        (self.0 >> 8) as u8 & 0xf0
    }
    /// The port number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0 & 0x0fff
    }
    const fn with_priority(self, priority: u8) -> Self {
        Self::new(priority, self.number())
    }
}

/// Formats the identifier as `PRIO.NUMBER`, as IOS does: `128.3`.
impl fmt::Display for PortIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.priority(), self.number()))
    }
}

impl fmt::Debug for PortIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The port role that a BPDU conveys (14.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum WireRole {
    /// 0: unknown in the CIST's flags, Master in an MSTI's.
    #[default]
    UnknownOrMaster = 0,
    /// 1.
    AlternateBackup = 1,
    /// 2.
    Root = 2,
    /// 3.
    Designated = 3,
}

/// The flags octet (14.2.4). Its top bit is TC acknowledgement in the CIST's flags and Master in an MSTI's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Flags {
    /// Topology change.
    pub tc: bool,
    /// Proposal.
    pub proposal: bool,
    /// Port role.
    pub role: WireRole,
    /// Learning.
    pub learning: bool,
    /// Forwarding.
    pub forwarding: bool,
    /// Agreement.
    pub agreement: bool,
    /// Topology change acknowledgement, or Master.
    pub ack_or_master: bool,
}

impl Flags {
    fn from_octet(octet: u8) -> Self {
        let role = match octet >> 2 & 3 {
            1 => WireRole::AlternateBackup,
            2 => WireRole::Root,
            3 => WireRole::Designated,
            _ => WireRole::UnknownOrMaster,
        };
        let bit = |n: u8| octet >> n & 1 == 1;
        Self {
            tc: bit(0),
            proposal: bit(1),
            role,
            learning: bit(4),
            forwarding: bit(5),
            agreement: bit(6),
            ack_or_master: bit(7),
        }
    }

    fn to_octet(self) -> u8 {
        u8::from(self.tc)
            | u8::from(self.proposal) << 1
            | (self.role as u8) << 2
            | u8::from(self.learning) << 4
            | u8::from(self.forwarding) << 5
            | u8::from(self.agreement) << 6
            | u8::from(self.ack_or_master) << 7
    }
}

/// The 30 octets that configuration, RST and MST BPDUs share. Times are in 1/256 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigBody {
    /// Flags; a configuration BPDU carries only `tc` and `ack_or_master`.
    pub flags: Flags,
    /// (CIST) root identifier.
    pub root: BridgeId,
    /// (CIST external) root path cost.
    pub root_path_cost: u32,
    /// Bridge identifier; in an MST BPDU the CIST regional root identifier.
    pub bridge: BridgeId,
    /// Port identifier.
    pub port: PortIdentifier,
    /// Message age.
    pub message_age: u16,
    /// Max age.
    pub max_age: u16,
    /// Hello time.
    pub hello_time: u16,
    /// Forward delay.
    pub forward_delay: u16,
}

/// The fields that an MST BPDU has besides [`ConfigBody`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MstPart {
    /// The sender's MST configuration.
    pub config_id: MstConfigId,
    /// CIST internal root path cost.
    pub internal_root_path_cost: u32,
    /// CIST bridge identifier of the sender.
    pub bridge: BridgeId,
    /// CIST remaining hops.
    pub remaining_hops: u8,
    /// MSTI configuration messages.
    pub mstis: Vec<MstiMessage>,
}

/// One MSTI configuration message (14.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MstiMessage {
    /// Flags; `ack_or_master` is Master.
    pub flags: Flags,
    /// MSTI regional root identifier; its extension is the MSTID.
    pub regional_root: BridgeId,
    /// Internal root path cost.
    pub internal_root_path_cost: u32,
    /// The sender's bridge priority for this MSTI, 0..=61440.
    pub bridge_priority: u16,
    /// The sender's port priority for this MSTI, 0..=240.
    pub port_priority: u8,
    /// Remaining hops.
    pub remaining_hops: u8,
}

impl MstiMessage {
    /// The sender's bridge identifier for this MSTI, given the sender's CIST bridge identifier.
    #[must_use]
    pub fn bridge(&self, cist: BridgeId) -> BridgeId {
        BridgeId::new(self.bridge_priority, self.regional_root.extension(), cist.address())
    }
    /// The sender's port identifier for this MSTI, given that of the CIST.
    #[must_use]
    pub fn port(&self, cist: PortIdentifier) -> PortIdentifier {
        cist.with_priority(self.port_priority)
    }
}

/// A BPDU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bpdu {
    /// Configuration BPDU: STP.
    Config(ConfigBody),
    /// Topology change notification: STP.
    Tcn,
    /// RST BPDU, and an MST BPDU whose version 3 part is not valid (14.5 d).
    Rst(ConfigBody),
    /// MST BPDU.
    Mst(ConfigBody, MstPart),
}

impl Bpdu {
    /// The common part; a TCN BPDU has none.
    #[must_use]
    pub fn body(&self) -> Option<&ConfigBody> {
        match self {
            Self::Config(body) | Self::Rst(body) | Self::Mst(body, _) => Some(body),
            Self::Tcn => None,
        }
    }
}

/// The encapsulation of a BPDU in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encapsulation {
    /// To the bridge group address, LLC 42-42-03, untagged.
    Ieee,
    /// To the SSTP address, SNAP 00-00-0C 01-0B; `pvid` is the originating VLAN, which a TCN BPDU does not
    /// have.
    Sstp {
        /// The originating VLAN's TLV.
        pvid: Option<VlanId>,
    },
}

/// A received BPDU with its encapsulation, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpduFrame {
    /// Source address.
    pub source: MacAddr,
    /// The VLAN of its tag; `None` for an untagged or priority-tagged frame.
    pub vlan: Option<VlanId>,
    /// Encapsulation.
    pub encapsulation: Encapsulation,
    /// The BPDU.
    pub bpdu: Bpdu,
}

/// MST configuration identification (13.8): bridges with the same identification are in the same region.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MstConfigId {
    /// Configuration name, padded with zeros.
    pub name: [u8; 32],
    /// Revision level.
    pub revision: u16,
    /// HMAC-MD5 over the VLAN to MSTID table.
    pub digest: [u8; 16],
}

/// The key of the configuration digest (table 13-1).
const DIGEST_KEY: [u8; 16] =
    [0x13, 0xac, 0x06, 0xa6, 0x2e, 0x47, 0xfd, 0x51, 0xf9, 0x5d, 0x2b, 0xa2, 0x43, 0xcd, 0x03, 0x46];

impl MstConfigId {
    /// Makes the identification of a region; `instances` lists the VLANs of each MSTID, and all others are on
    /// the CIST. The name is cut to 32 octets.
    #[must_use]
    pub fn new<'a>(
        name: &str,
        revision: u16,
        instances: impl IntoIterator<Item = (u16, &'a VlanSet)>,
    ) -> Self {
        let mut table = [0u8; 8192];
        for (mstid, vlans) in instances {
            for vlan in vlans.iter() {
                table[vlan.index() * 2..][..2].copy_from_slice(&mstid.to_be_bytes());
            }
        }
        let mut padded = [0; 32];
        for (to, from) in padded.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        // HMAC accepts keys of any length, so the error cannot happen. A zero digest would only put the
        // bridge into a region of its own.
        let digest = Hmac::<Md5>::new_from_slice(&DIGEST_KEY)
            .map(|mut mac| {
                mac.update(&table);
                mac.finalize().into_bytes().into()
            })
            .unwrap_or_default();
        Self { name: padded, revision, digest }
    }

    /// The name as text.
    #[must_use]
    pub fn name_text(&self) -> String {
        String::from_utf8_lossy(&self.name).trim_end_matches('\0').to_owned()
    }

    /// The digest in hexadecimal: `AC36177F50283CD4B83821D8AB26DE62` when every VLAN is on the CIST.
    #[must_use]
    pub fn digest_text(&self) -> String {
        self.digest.iter().map(|octet| format!("{octet:02X}")).collect()
    }
}

impl fmt::Debug for MstConfigId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} revision {} digest {}", self.name_text(), self.revision, self.digest_text())
    }
}

// ---------------------------------------------------------------------------------------------- decoding

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

// ---------------------------------------------------------------------------------------------- encoding

/// Encodes a BPDU without its LLC header.
#[must_use]
pub fn encode_bpdu(bpdu: &Bpdu) -> Vec<u8> {
    let (version, kind, body) = match bpdu {
        Bpdu::Tcn => return vec![0, 0, 0, 0x80],
        Bpdu::Config(body) => (0, 0x00, body),
        Bpdu::Rst(body) => (2, 0x02, body),
        Bpdu::Mst(body, _) => (3, 0x02, body),
    };
    let mut out = Vec::with_capacity(128);
    out.extend([0, 0, version, kind, body.flags.to_octet()]);
    out.extend(body.root.0.to_be_bytes());
    out.extend(body.root_path_cost.to_be_bytes());
    out.extend(body.bridge.0.to_be_bytes());
    out.extend(body.port.0.to_be_bytes());
    for time in [body.message_age, body.max_age, body.hello_time, body.forward_delay] {
        out.extend(time.to_be_bytes());
    }
    if kind == 0x02 {
        out.push(0);
    }
    if let Bpdu::Mst(_, mst) = bpdu {
        encode_mst(mst, &mut out);
    }
    out
}

fn encode_mst(mst: &MstPart, out: &mut Vec<u8>) {
    let mstis = &mst.mstis[..mst.mstis.len().min(MAX_MSTI_MESSAGES)];
    out.reserve(66 + mstis.len() * 16);
    out.extend((64 + 16 * mstis.len() as u16).to_be_bytes());
    out.push(0);
    out.extend(mst.config_id.name);
    out.extend(mst.config_id.revision.to_be_bytes());
    out.extend(mst.config_id.digest);
    out.extend(mst.internal_root_path_cost.to_be_bytes());
    out.extend(mst.bridge.0.to_be_bytes());
    out.push(mst.remaining_hops);
    for message in mstis {
        out.push(message.flags.to_octet());
        out.extend(message.regional_root.0.to_be_bytes());
        out.extend(message.internal_root_path_cost.to_be_bytes());
        out.extend([(message.bridge_priority >> 8) as u8, message.port_priority, message.remaining_hops]);
    }
}

/// Encodes a complete frame, padded to 60 octets; `tag` is the VLAN of its 802.1Q tag.
#[must_use]
pub fn encode(source: MacAddr, tag: Option<VlanId>, encapsulation: Encapsulation, bpdu: &Bpdu) -> Vec<u8> {
    let pdu = encode_bpdu(bpdu);
    let mut out = Vec::with_capacity(pdu.len() + 40);
    let sstp = matches!(encapsulation, Encapsulation::Sstp { .. });
    out.extend(if sstp { MacAddr::SSTP.0 } else { MacAddr::BRIDGE_GROUP.0 });
    out.extend(source.0);
    if let Some(vlan) = tag {
        // Priority 7: network control (802.1Q-2018, table I-2).
        out.extend([0x81, 0x00]);
        out.extend((7 << 13 | vlan.get()).to_be_bytes());
    }
    let length_at = out.len();
    out.extend([0, 0]);
    match encapsulation {
        Encapsulation::Ieee => {
            out.extend([0x42, 0x42, 0x03]);
            out.extend(pdu);
        }
        Encapsulation::Sstp { pvid } => {
            out.extend([0xaa, 0xaa, 0x03, 0x00, 0x00, 0x0c, 0x01, 0x0b]);
            let body_at = out.len();
            out.extend(pdu);
            if let Some(pvid) = pvid {
                out.resize(body_at + 36, 0);
                out.extend([0, 0, 0, 2]);
                out.extend(pvid.get().to_be_bytes());
            }
        }
    }
    let length = (out.len() - length_at - 2) as u16;
    out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    if out.len() < 60 {
        out.resize(60, 0);
    }
    out
}
