//! [`LoadBalance`]: the fields of a frame that decide by which member of a port-channel it leaves.

use serde::{Deserialize, Serialize};

/// The fields of a frame that are hashed to choose the member of a port-channel (`port-channel load-balance`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalance {
    /// True if the source's fields are hashed.
    pub source: bool,
    /// True if the destination's fields are hashed. At least one of `source` and `destination` is true.
    pub destination: bool,
    /// The fields of source and destination that are hashed.
    pub fields: BalanceFields,
    /// True if both directions of a conversation get the same hash.
    pub symmetric: bool,
}

/// The fields of source and destination that are hashed. A frame without an IP header is hashed by its MAC addresses, and
/// [`BalanceFields::Port`] hashes a packet without ports by its IP addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum BalanceFields {
    /// The MAC addresses.
    Mac = 0,
    /// The IP addresses.
    Ip = 1,
    /// The transport ports.
    Port = 2,
    /// The IP addresses and the transport ports.
    IpPort = 3,
}

impl Default for LoadBalance {
    /// `src-dst-ip`, as on Catalyst switches with IOS 15.
    fn default() -> Self {
        Self { source: true, destination: true, fields: BalanceFields::Ip, symmetric: false }
    }
}

impl LoadBalance {
    /// Every keyword of `port-channel load-balance` with its meaning, without `symmetric`.
    pub const KEYWORDS: &'static [(&'static str, Self)] = &{
        const fn of(source: bool, destination: bool, fields: BalanceFields) -> LoadBalance {
            LoadBalance { source, destination, fields, symmetric: false }
        }
        use BalanceFields::{Ip, IpPort, Mac, Port};
        [
            ("dst-ip", of(false, true, Ip)),
            ("dst-mac", of(false, true, Mac)),
            ("dst-mixed-ip-port", of(false, true, IpPort)),
            ("dst-port", of(false, true, Port)),
            ("src-dst-ip", of(true, true, Ip)),
            ("src-dst-mac", of(true, true, Mac)),
            ("src-dst-mixed-ip-port", of(true, true, IpPort)),
            ("src-dst-port", of(true, true, Port)),
            ("src-ip", of(true, false, Ip)),
            ("src-mac", of(true, false, Mac)),
            ("src-mixed-ip-port", of(true, false, IpPort)),
            ("src-port", of(true, false, Port)),
        ]
    };

    /// The keyword of `port-channel load-balance` for these fields, whether `symmetric` is true or not.
    #[must_use]
    pub fn keyword(self) -> &'static str {
        let plain = Self { symmetric: false, ..self };
        Self::KEYWORDS.iter().find(|(_, is)| *is == plain).map_or("", |(word, _)| word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_has_one_meaning() {
        for (word, means) in LoadBalance::KEYWORDS {
            assert_eq!(means.keyword(), *word);
            assert!(means.source || means.destination, "{word}");
        }
        assert_eq!(LoadBalance::default().keyword(), "src-dst-ip");
    }
}
