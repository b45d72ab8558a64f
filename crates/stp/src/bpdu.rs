//! The format of BPDUs: configuration, TCN, RST and MST BPDUs (IEEE 802.1Q-2018, clause 14; 802.1D-2004,
//! clause 9), and the SSTP encapsulation of PVST+.
//!
//! Invariant: in a BPDU that [`decode`] returns every field is in its range, and every refusal has a name
//! ([`BpduError`]), which is also the name of a counter. The state machines never see a raw offset.

mod decoding;
mod encoding;

pub use decoding::{decode, decode_bpdu};
pub use encoding::{encode, encode_bpdu};

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
