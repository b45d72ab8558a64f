//! The format of LLDP frames and of their TLVs (IEEE 802.1AB-2016, clause 8 and annexes D and F of 802.1Q and 802.3;
//! TIA-1057 for LLDP-MED).
//!
//! Invariant: a frame that [`decode`] returns has the three mandatory TLVs in their order, every length was checked,
//! and every text is printable. A wrong mandatory TLV refuses the whole frame; a wrong optional TLV is discarded alone
//! (9.2.7.7.2).

use crate::location::Location;
use crate::text::{cut, ip, printable};
use lanyard_types::{MacAddr, VlanId};
use lanyard_wire::Frame;
use std::fmt;
use std::net::IpAddr;

/// The EtherType of LLDP.
pub const ETHERTYPE: u16 = 0x88cc;
/// Most bytes of an LLDPDU: what fits into one Ethernet frame (8.2).
pub const MAX_PDU: usize = 1500;
/// Most bytes of a TLV's value (8.4.2).
const MAX_VALUE: usize = 511;
/// Most bytes of a text (8.5.5.3, 8.5.6.3, 8.5.7.3) and of an identifier (8.5.2.4).
const MAX_TEXT: usize = 255;
/// Most management addresses and VLAN names that are kept of a neighbour.
const MAX_LIST: usize = 16;
/// Most locations of a neighbour: one of each format.
const MAX_LOCATIONS: usize = 3;

mod types {
    pub(super) const END: u8 = 0;
    pub(super) const CHASSIS_ID: u8 = 1;
    pub(super) const PORT_ID: u8 = 2;
    pub(super) const TTL: u8 = 3;
    pub(super) const PORT_DESCRIPTION: u8 = 4;
    pub(super) const SYSTEM_NAME: u8 = 5;
    pub(super) const SYSTEM_DESCRIPTION: u8 = 6;
    pub(super) const CAPABILITIES: u8 = 7;
    pub(super) const MANAGEMENT: u8 = 8;
    pub(super) const ORGANIZATION: u8 = 127;
}

/// Organization codes of TLV 127.
mod oui {
    pub(super) const IEEE_802_1: [u8; 3] = [0x00, 0x80, 0xc2];
    pub(super) const IEEE_802_3: [u8; 3] = [0x00, 0x12, 0x0f];
    pub(super) const TIA_MED: [u8; 3] = [0x00, 0x12, 0xbb];
}

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
    /// The destination is none of the protocol's addresses.
    Destination = "destination";
    /// The source is a group address or zero.
    Source = "source";
    /// The EtherType, or the LLC and SNAP headers, are another protocol's.
    Encapsulation = "encapsulation";
    /// A TLV extends beyond the frame.
    TlvTruncated = "tlv_truncated";
    /// The first TLV is no chassis ID, or one with a length outside 2 to 256.
    ChassisId = "chassis_id";
    /// The second TLV is no port ID, or one with a length outside 2 to 256.
    PortId = "port_id";
    /// The third TLV is no TTL, or one shorter than 2 bytes.
    Ttl = "ttl";
    /// A mandatory TLV occurs twice.
    Duplicate = "duplicate";
    /// CDP: the version is neither 1 nor 2.
    Version = "version";
    /// CDP: the checksum is wrong.
    Checksum = "checksum";
}

/// A chassis ID or a port ID (8.5.2, 8.5.3). Two are equal when subtype and bytes are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identifier {
    /// The subtype of the TLV.
    pub subtype: u8,
    /// The identifier, 1 to 255 bytes.
    pub bytes: Vec<u8>,
    is_port: bool,
}

impl Identifier {
    /// A chassis ID with a MAC address (subtype 4).
    #[must_use]
    pub fn chassis_mac(mac: MacAddr) -> Self {
        Self { subtype: 4, bytes: mac.0.to_vec(), is_port: false }
    }
    /// A port ID with an interface name (subtype 5), of which at most 255 bytes are taken.
    #[must_use]
    pub fn port_name(name: &str) -> Self {
        Self { subtype: 5, bytes: cut(name, MAX_TEXT).as_bytes().to_vec(), is_port: true }
    }
    fn read(value: &[u8], is_port: bool) -> Option<Self> {
        let (subtype, bytes) = value.split_first()?;
        (1..=MAX_TEXT).contains(&bytes.len()).then(|| Self {
            subtype: *subtype,
            bytes: bytes.to_vec(),
            is_port,
        })
    }
    /// The MAC address, if the identifier is one.
    #[must_use]
    pub fn mac(&self) -> Option<MacAddr> {
        let bytes = <[u8; 6]>::try_from(self.bytes.as_slice()).ok()?;
        (self.subtype == if self.is_port { 3 } else { 4 }).then_some(MacAddr(bytes))
    }
    fn write(&self, kind: u8, out: &mut Vec<u8>) {
        tlv(out, kind, &[&[self.subtype], self.bytes.as_slice()]);
    }
}

/// A MAC address as `00:11:22:33:44:55`, a network address in its notation, anything else as text.
impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mac) = self.mac() {
            return f.pad(&mac.colon());
        }
        let network = self.subtype == if self.is_port { 4 } else { 5 };
        // The first byte is the IANA address family: 1 is IPv4, 2 is IPv6.
        if network
            && let Some((1 | 2, rest)) = self.bytes.split_first().map(|(family, rest)| (*family, rest))
            && let Some(address) = ip(rest)
        {
            return f.pad(&address.to_string());
        }
        f.pad(&printable(&self.bytes))
    }
}

/// System capabilities (8.5.8), as bits of the TLV.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// The capabilities that the system has.
    pub supported: u16,
    /// The capabilities that are enabled.
    pub enabled: u16,
}

impl Capabilities {
    /// A MAC bridge (IEEE 802.1Q).
    pub const BRIDGE: u16 = 1 << 2;
    /// A router (RFC 1812).
    pub const ROUTER: u16 = 1 << 4;
    /// A telephone (RFC 4293).
    pub const TELEPHONE: u16 = 1 << 5;

    /// The letters of `show lldp neighbors`, comma-separated.
    #[must_use]
    pub fn letters(bits: u16) -> String {
        let all = ["O", "P", "B", "W", "R", "T", "C", "S"];
        let set: Vec<&str> = all
            .iter()
            .enumerate()
            .filter(|(bit, _)| bits >> bit & 1 == 1)
            .map(|(_, letter)| *letter)
            .collect();
        set.join(",")
    }
}

/// IEEE 802.3 MAC/PHY configuration and status (802.3-2018, 79.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacPhy {
    /// True if the port can negotiate.
    pub autoneg_supported: bool,
    /// True if the port negotiates.
    pub autoneg_enabled: bool,
    /// The advertised abilities (ifMauAutoNegCapAdvertisedBits).
    pub advertised: u16,
    /// The operational MAU type (dot3MauType), 0 if unknown.
    pub mau_type: u16,
}

/// A network policy of LLDP-MED (TIA-1057, 10.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkPolicy {
    /// The application: 1 is voice.
    pub application: u8,
    /// True if the policy is unknown to the sender.
    pub unknown: bool,
    /// True for a tagged VLAN.
    pub tagged: bool,
    /// The VLAN identifier, 0 for priority tags.
    pub vlan: u16,
    /// The 802.1Q priority, 0 to 7.
    pub priority: u8,
    /// The DSCP, 0 to 63.
    pub dscp: u8,
}

/// LLDP-MED (TIA-1057).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Med {
    /// Supported TLV sets, as bits (10.2.2.1).
    pub capabilities: u16,
    /// The device type: 1 to 3 is an endpoint of that class, 4 is a network connectivity device.
    pub device_type: u8,
    /// Network policies.
    pub policies: Vec<NetworkPolicy>,
    /// Locations, at most one of each format (10.2.4).
    pub locations: Vec<Location>,
    /// Extended power via MDI: the byte with type, source and priority as it was received, and the power in tenths of a watt.
    pub power: Option<(u8, u16)>,
    /// Inventory (10.2.6): hardware, firmware and software revision, serial number, manufacturer, model, asset.
    pub inventory: [Option<String>; 7],
}

/// An LLDPDU without its headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lldpdu {
    /// The chassis ID.
    pub chassis_id: Identifier,
    /// The port ID.
    pub port_id: Identifier,
    /// The time to live in seconds; 0 withdraws the information (shutdown).
    pub ttl_s: u16,
    /// The port description.
    pub port_description: Option<String>,
    /// The system name.
    pub system_name: Option<String>,
    /// The system description.
    pub system_description: Option<String>,
    /// The system capabilities.
    pub capabilities: Option<Capabilities>,
    /// IP addresses for management, each with its interface number (0 if unknown).
    pub management: Vec<(IpAddr, u32)>,
    /// The port VLAN ID; 0 if the port has none (802.1Q, D.2.1).
    pub pvid: Option<u16>,
    /// VLAN names (802.1Q, D.2.3).
    pub vlan_names: Vec<(VlanId, String)>,
    /// MAC/PHY configuration.
    pub mac_phy: Option<MacPhy>,
    /// Link aggregation (802.1Q, D.2.7, or the older 802.3 form): capable, enabled, port number.
    pub aggregation: Option<(bool, bool, u32)>,
    /// The maximum frame size in bytes (802.3-2018, 79.3.4).
    pub max_frame: Option<u16>,
    /// LLDP-MED.
    pub med: Option<Med>,
    /// The number of TLVs of unknown types (statsTLVsUnrecognizedTotal). Their contents are not kept.
    pub unrecognized: u16,
    /// The number of optional TLVs with a wrong length or value (statsTLVsDiscardedTotal).
    pub discarded: u16,
}

impl Lldpdu {
    /// An LLDPDU with the mandatory TLVs alone.
    #[must_use]
    pub fn new(chassis_id: Identifier, port_id: Identifier, ttl_s: u16) -> Self {
        Self {
            chassis_id,
            port_id,
            ttl_s,
            port_description: None,
            system_name: None,
            system_description: None,
            capabilities: None,
            management: Vec::new(),
            pvid: None,
            vlan_names: Vec::new(),
            mac_phy: None,
            aggregation: None,
            max_frame: None,
            med: None,
            unrecognized: 0,
            discarded: 0,
        }
    }
}

/// Splits off the first TLV: its type, its value, the rest.
fn first(bytes: &[u8]) -> Result<(u8, &[u8], &[u8]), PduError> {
    let [high, low, rest @ ..] = bytes else { return Err(PduError::TlvTruncated) };
    let length = usize::from(high & 1) << 8 | usize::from(*low);
    if rest.len() < length {
        return Err(PduError::TlvTruncated);
    }
    let (value, rest) = rest.split_at(length);
    Ok((high >> 1, value, rest))
}

/// Decodes a frame. A tag is refused: LLDP frames have none (7.3).
///
/// # Errors
/// The reason for which the frame is refused.
pub fn decode(frame: &[u8]) -> Result<(MacAddr, Lldpdu), PduError> {
    let frame = Frame::new(frame).map_err(|_| PduError::FrameTruncated)?;
    // 7.1: nearest bridge, nearest non-TPMR bridge, nearest customer bridge.
    if !matches!(frame.dst().reserved(), Some(0x0e | 0x03 | 0x00)) {
        return Err(PduError::Destination);
    }
    if frame.src().is_group() || frame.src().is_zero() {
        return Err(PduError::Source);
    }
    if frame.ethertype() != ETHERTYPE {
        return Err(PduError::Encapsulation);
    }
    Ok((frame.src(), decode_pdu(frame.payload())?))
}

/// Decodes an LLDPDU (9.2.7.7.1).
///
/// # Errors
/// The reason for which it is refused.
pub fn decode_pdu(bytes: &[u8]) -> Result<Lldpdu, PduError> {
    let (kind, value, rest) = first(bytes)?;
    let chassis = (kind == types::CHASSIS_ID).then(|| Identifier::read(value, false)).flatten();
    let chassis = chassis.ok_or(PduError::ChassisId)?;
    let (kind, value, rest) = first(rest)?;
    let port = (kind == types::PORT_ID).then(|| Identifier::read(value, true)).flatten();
    let port = port.ok_or(PduError::PortId)?;
    let (kind, value, mut rest) = first(rest)?;
    // Bytes beyond the first two are ignored (8.5.4).
    let ([high, low, ..], true) = (value, kind == types::TTL) else { return Err(PduError::Ttl) };
    let ttl_s = u16::from_be_bytes([*high, *low]);
    let mut pdu = Lldpdu::new(chassis, port, ttl_s);
    // The End TLV may be missing when the frame's end is that of the PDU (8.5.1, 9.2.7.7.1).
    while !rest.is_empty() {
        let (kind, value, tail) = first(rest)?;
        rest = tail;
        match kind {
            types::END => break,
            types::CHASSIS_ID | types::PORT_ID | types::TTL => return Err(PduError::Duplicate),
            _ => match pdu.take(kind, value) {
                Taken::Yes => {}
                Taken::Unknown => pdu.unrecognized += 1,
                Taken::Wrong => pdu.discarded += 1,
            },
        }
    }
    Ok(pdu)
}

enum Taken {
    Yes,
    Unknown,
    Wrong,
}

impl From<Option<()>> for Taken {
    fn from(taken: Option<()>) -> Self {
        taken.map_or(Self::Wrong, |()| Self::Yes)
    }
}

impl Lldpdu {
    /// Takes an optional TLV. If a text occurs twice, the first one counts.
    fn take(&mut self, kind: u8, value: &[u8]) -> Taken {
        let text = match kind {
            types::PORT_DESCRIPTION => &mut self.port_description,
            types::SYSTEM_NAME => &mut self.system_name,
            types::SYSTEM_DESCRIPTION => &mut self.system_description,
            types::CAPABILITIES => {
                let [a, b, c, d] = value else { return Taken::Wrong };
                let (supported, enabled) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
                self.capabilities.get_or_insert(Capabilities { supported, enabled });
                return Taken::Yes;
            }
            types::MANAGEMENT => return self.management(value).into(),
            types::ORGANIZATION => return self.organization(value),
            _ => return Taken::Unknown,
        };
        if value.len() > MAX_TEXT {
            return Taken::Wrong;
        }
        text.get_or_insert_with(|| printable(value));
        Taken::Yes
    }

    /// 8.5.9: length and subtype of the address, the address, numbering subtype, interface number, length of an OID.
    fn management(&mut self, value: &[u8]) -> Option<()> {
        let (&length, rest) = value.split_first()?;
        let (address, rest) = rest.split_at_checked(usize::from(length))?;
        let (&family, address) = address.split_first()?;
        let [_, a, b, c, d, oid, tail @ ..] = rest else { return None };
        (tail.len() == usize::from(*oid) && (1..=31).contains(&address.len())).then_some(())?;
        // Only IP addresses are shown; others are valid.
        if let (1 | 2, Some(address)) = (family, ip(address))
            && self.management.len() < MAX_LIST
        {
            self.management.push((address, u32::from_be_bytes([*a, *b, *c, *d])));
        }
        Some(())
    }

    fn organization(&mut self, value: &[u8]) -> Taken {
        let [a, b, c, subtype, value @ ..] = value else { return Taken::Wrong };
        match ([*a, *b, *c], *subtype) {
            (oui::IEEE_802_1, subtype) => self.ieee_802_1(subtype, value),
            (oui::IEEE_802_3, subtype) => self.ieee_802_3(subtype, value),
            (oui::TIA_MED, subtype) => self.med.get_or_insert_default().take(subtype, value),
            _ => Taken::Unknown,
        }
    }

    fn ieee_802_1(&mut self, subtype: u8, value: &[u8]) -> Taken {
        match (subtype, value) {
            (1, [a, b]) => self.pvid = Some(u16::from_be_bytes([*a, *b])),
            (3, [a, b, length, name @ ..]) if usize::from(*length) == name.len() && name.len() <= 32 => {
                let Some(vlan) = VlanId::new(u16::from_be_bytes([*a, *b])) else { return Taken::Wrong };
                if self.vlan_names.len() < MAX_LIST {
                    self.vlan_names.push((vlan, printable(name)));
                }
            }
            (7, value) => return self.aggregation(value).into(),
            (1 | 3, _) => return Taken::Wrong,
            _ => return Taken::Unknown,
        }
        Taken::Yes
    }

    fn ieee_802_3(&mut self, subtype: u8, value: &[u8]) -> Taken {
        match (subtype, value) {
            (1, [support, a, b, c, d]) => {
                self.mac_phy = Some(MacPhy {
                    autoneg_supported: support & 1 != 0,
                    autoneg_enabled: support & 2 != 0,
                    advertised: u16::from_be_bytes([*a, *b]),
                    mau_type: u16::from_be_bytes([*c, *d]),
                });
            }
            (3, value) => return self.aggregation(value).into(),
            (4, [a, b]) => self.max_frame = Some(u16::from_be_bytes([*a, *b])),
            (1 | 4, _) => return Taken::Wrong,
            _ => return Taken::Unknown,
        }
        Taken::Yes
    }

    fn aggregation(&mut self, value: &[u8]) -> Option<()> {
        let [status, a, b, c, d] = value else { return None };
        self.aggregation = Some((status & 1 != 0, status & 2 != 0, u32::from_be_bytes([*a, *b, *c, *d])));
        Some(())
    }
}

impl Med {
    fn take(&mut self, subtype: u8, value: &[u8]) -> Taken {
        match (subtype, value) {
            (1, [a, b, device]) => {
                (self.capabilities, self.device_type) = (u16::from_be_bytes([*a, *b]), *device);
            }
            (2, [application, a, b, c]) => {
                let bits = u32::from_be_bytes([0, *a, *b, *c]);
                if self.policies.len() < MAX_LIST {
                    self.policies.push(NetworkPolicy {
                        application: *application,
                        unknown: bits >> 23 & 1 == 1,
                        tagged: bits >> 22 & 1 == 1,
                        vlan: (bits >> 9 & 0xfff) as u16,
                        priority: (bits >> 6 & 7) as u8,
                        dscp: (bits & 0x3f) as u8,
                    });
                }
            }
            (4, [kind, a, b]) => self.power = Some((*kind, u16::from_be_bytes([*a, *b]))),
            (5..=11, text) if text.len() <= 32 => {
                self.inventory[usize::from(subtype) - 5].get_or_insert_with(|| printable(text));
            }
            (3, value) => match Location::decode(value, printable) {
                Some(location) if self.locations.len() < MAX_LOCATIONS => self.locations.push(location),
                Some(_) => {}
                // Formats that the standard may define later.
                None if value.first().is_some_and(|format| *format == 0 || *format > 3) => {}
                None => return Taken::Wrong,
            },
            (1..=11, _) => return Taken::Wrong,
            _ => return Taken::Unknown,
        }
        Taken::Yes
    }
}

/// Appends a TLV, unless its value is too long for one or there is no room for it in the LLDPDU.
fn tlv(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    // Two bytes are kept for the End TLV.
    if length > MAX_VALUE || out.len() + 2 + length + 2 > MAX_PDU {
        return;
    }
    out.extend((u16::from(kind) << 9 | length as u16).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn text(out: &mut Vec<u8>, kind: u8, text: Option<&String>) {
    if let Some(text) = text {
        tlv(out, kind, &[cut(text, MAX_TEXT).as_bytes()]);
    }
}

/// Encodes an LLDPDU. Optional TLVs for which there is no room are left out. The TLVs counted in `unrecognized` and
/// `discarded` are not encoded.
#[must_use]
pub fn encode_pdu(pdu: &Lldpdu) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    pdu.chassis_id.write(types::CHASSIS_ID, &mut out);
    pdu.port_id.write(types::PORT_ID, &mut out);
    tlv(&mut out, types::TTL, &[&pdu.ttl_s.to_be_bytes()]);
    text(&mut out, types::PORT_DESCRIPTION, pdu.port_description.as_ref());
    text(&mut out, types::SYSTEM_NAME, pdu.system_name.as_ref());
    text(&mut out, types::SYSTEM_DESCRIPTION, pdu.system_description.as_ref());
    if let Some(Capabilities { supported, enabled }) = pdu.capabilities {
        tlv(&mut out, types::CAPABILITIES, &[&supported.to_be_bytes(), &enabled.to_be_bytes()]);
    }
    for (address, number) in &pdu.management {
        let (family, bytes) = match address {
            IpAddr::V4(address) => (1, address.octets().to_vec()),
            IpAddr::V6(address) => (2, address.octets().to_vec()),
        };
        // Numbering subtype 2 is ifIndex, 1 is unknown; no OID.
        let numbering = if *number == 0 { 1 } else { 2 };
        let length = bytes.len() as u8 + 1;
        tlv(
            &mut out,
            types::MANAGEMENT,
            &[&[length, family], &bytes, &[numbering], &number.to_be_bytes(), &[0]],
        );
    }
    let mut own = |oui: [u8; 3], subtype: u8, parts: &[&[u8]]| {
        let value = parts.concat();
        tlv(&mut out, types::ORGANIZATION, &[&oui, &[subtype], &value]);
    };
    if let Some(pvid) = pdu.pvid {
        own(oui::IEEE_802_1, 1, &[&pvid.to_be_bytes()]);
    }
    if let Some(MacPhy { autoneg_supported, autoneg_enabled, advertised, mau_type }) = pdu.mac_phy {
        let support = u8::from(autoneg_supported) | u8::from(autoneg_enabled) << 1;
        own(oui::IEEE_802_3, 1, &[&[support], &advertised.to_be_bytes(), &mau_type.to_be_bytes()]);
    }
    if let Some((capable, enabled, port)) = pdu.aggregation {
        own(oui::IEEE_802_1, 7, &[&[u8::from(capable) | u8::from(enabled) << 1], &port.to_be_bytes()]);
    }
    if let Some(size) = pdu.max_frame {
        own(oui::IEEE_802_3, 4, &[&size.to_be_bytes()]);
    }
    if let Some(med) = &pdu.med {
        own(oui::TIA_MED, 1, &[&med.capabilities.to_be_bytes(), &[med.device_type]]);
        for policy in &med.policies {
            let bits = u32::from(policy.unknown) << 23
                | u32::from(policy.tagged) << 22
                | u32::from(policy.vlan & 0xfff) << 9
                | u32::from(policy.priority & 7) << 6
                | u32::from(policy.dscp & 0x3f);
            own(oui::TIA_MED, 2, &[&[policy.application], &bits.to_be_bytes()[1..]]);
        }
        for location in med.locations.iter().filter_map(Location::encode) {
            own(oui::TIA_MED, 3, &[&location]);
        }
        for (at, text) in med.inventory.iter().enumerate() {
            if let Some(text) = text {
                own(oui::TIA_MED, at as u8 + 5, &[cut(text, 32).as_bytes()]);
            }
        }
    }
    // Last, because there may be many: what does not fit is left out.
    for (vlan, name) in &pdu.vlan_names {
        let name = cut(name, 32).as_bytes();
        own(oui::IEEE_802_1, 3, &[&vlan.get().to_be_bytes(), &[name.len() as u8], name]);
    }
    out.extend([0, 0]);
    out
}

/// Encodes a frame to the nearest bridge, padded to the shortest length of Ethernet.
#[must_use]
pub fn encode(source: MacAddr, pdu: &Lldpdu) -> Vec<u8> {
    frame(source, &encode_pdu(pdu))
}

/// The shutdown LLDPDU of a port (8.2): mandatory TLVs with a TTL of 0.
#[must_use]
pub fn shutdown(source: MacAddr, chassis_id: Identifier, port_id: Identifier) -> Vec<u8> {
    encode(source, &Lldpdu::new(chassis_id, port_id, 0))
}

fn frame(source: MacAddr, pdu: &[u8]) -> Vec<u8> {
    lanyard_wire::Builder::new(MacAddr::LLDP, source).ethertype(ETHERTYPE).payload(pdu).build()
}
