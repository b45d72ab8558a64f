//! MAC addresses: parsed from the three usual notations and printed in two of them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IEEE 802 MAC address. `Display` prints `0011.2233.4455`; JSON carries `00:11:22:33:44:55`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

/// The error for text that is not a MAC address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address (0011.2233.4455, 00:11:22:33:44:55 or 00-11-22-33-44-55)")]
pub struct ParseMacError(pub String);

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Family {
    /// IPv4; in multicast snooping it stands for IGMP (RFC 2236, RFC 3376).
    V4 = 0,
    /// IPv6; in multicast snooping it stands for MLD (RFC 2710, RFC 3810).
    V6 = 1,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The unspecified address.
    #[must_use]
    pub const fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }
    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
    /// The number, as a table index.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl MacAddr {
    /// The broadcast address, FF:FF:FF:FF:FF:FF.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// The bridge group address, 01:80:C2:00:00:00 (IEEE 802.1Q-2018, table 8-1), the destination of BPDUs.
    pub const BRIDGE_GROUP: Self = Self([0x01, 0x80, 0xc2, 0, 0, 0]);
    /// The shared spanning tree protocol address, 01:00:0C:CC:CC:CD, the destination of PVST+ BPDUs.
    pub const SSTP: Self = Self([0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcd]);
    /// The destination of Cisco's CDP, VTP, UDLD, DTP and PAgP frames, 01:00:0C:CC:CC:CC.
    pub const CISCO_DISCOVERY: Self = Self([0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcc]);

    /// The destination of LLDP frames, 01:80:C2:00:00:0E (IEEE 802.1AB-2016, 7.1: the nearest bridge).
    pub const LLDP: Self = Self([0x01, 0x80, 0xc2, 0, 0, 0x0e]);
    /// The destination of customers' control frames inside a provider's network, 01:00:0C:CD:CD:D0 (Cisco's
    /// GBPT).
    pub const TUNNEL: Self = Self([0x01, 0x00, 0x0c, 0xcd, 0xcd, 0xd0]);

    /// True for a group address: multicast or broadcast.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
    /// True for the all-ones address.
    #[must_use]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }
    /// True for the all-zeros address, which no station has.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }
    /// The last nibble of a reserved address 01:80:C2:00:00:00-0F (IEEE 802.1Q-2018, table 8-1); `None` for other
    /// addresses.
    #[must_use]
    pub fn reserved(self) -> Option<u8> {
        match self.0 {
            [0x01, 0x80, 0xc2, 0, 0, last] if last < 16 => Some(last),
            _ => None,
        }
    }
    /// True for the destinations that a provider bridge does not relay but may tunnel for its customers: those of BPDUs
    /// (IEEE and PVST+), LLDP, and Cisco's discovery protocols.
    #[must_use]
    pub fn is_layer2_protocol(self) -> bool {
        matches!(self.reserved(), Some(0x0 | 0xe)) || self == Self::SSTP || self == Self::CISCO_DISCOVERY
    }
    /// The address as a number, its first octet the most significant of 48 bits.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
    /// The address in the low 48 bits of `value`.
    #[must_use]
    pub const fn from_u64(value: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = value.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
    /// Formats the address as `00:11:22:33:44:55`, the notation of JSON output and of iproute2.
    #[must_use]
    pub fn colon(self) -> String {
        let [a, b, c, d, e, f] = self.0;
        format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        f.pad(&format!("{a:02x}{b:02x}.{c:02x}{d:02x}.{e:02x}{g:02x}"))
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.colon())
    }
}

impl std::str::FromStr for MacAddr {
    type Err = ParseMacError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let error = || ParseMacError(s.chars().take(40).collect());
        let (separator, groups, digits) = if s.contains('.') {
            ('.', 3, 4)
        } else if s.contains(':') {
            (':', 6, 2)
        } else {
            ('-', 6, 2)
        };
        let parts: Vec<&str> = s.split(separator).collect();
        let well_formed = |p: &&str| p.len() == digits && p.bytes().all(|b| b.is_ascii_hexdigit());
        if parts.len() != groups || !parts.iter().all(well_formed) {
            return Err(error());
        }
        u64::from_str_radix(&parts.concat(), 16).map(Self::from_u64).map_err(|_| error())
    }
}

impl Serialize for MacAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.colon())
    }
}

impl<'de> Deserialize<'de> for MacAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notations() {
        let want = MacAddr([0, 0x11, 0x22, 0x33, 0x44, 0x55]);
        for text in ["0011.2233.4455", "00:11:22:33:44:55", "00-11-22-33-44-55"] {
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
        assert_eq!(want.to_string(), "0011.2233.4455");
        assert_eq!(MacAddr::from_u64(want.to_u64()), want);
    }

    #[test]
    fn refused() {
        for text in
            ["", "0011.2233", "00:11:22:33:44", "00:11:22:33:44:5g", "+0:11:22:33:44:55", "001122334455"]
        {
            assert_eq!(text.parse::<MacAddr>(), Err(ParseMacError(text.into())), "{text}");
        }
    }

    #[test]
    fn reserved_block() {
        assert_eq!(MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]).reserved(), Some(14));
        assert_eq!(MacAddr([1, 0x80, 0xc2, 0, 0, 0x10]).reserved(), None);
    }
}
