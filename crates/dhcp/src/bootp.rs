//! BOOTP messages as a relay sees them: the fixed part, and the options as one run of bytes.
//!
//! Read RFC 2131, section 2, RFC 2132, section 2, and RFC 3046, section 2. Invariant: what a relay does not change leaves
//! as it came, option by option; padding between options is not kept.

use lanyard_types::MacAddr;
use std::net::Ipv4Addr;

/// Bytes of the fixed part, the magic cookie not included.
const FIXED: usize = 236;
/// What the options begin with (RFC 2131, 3).
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Longest message that is sent, in bytes: what fits an Ethernet frame with the headers of IPv4 and UDP.
pub const MAX_MESSAGE: usize = 1472;
/// BOOTP's shortest message, which old clients insist on (RFC 1542, 2.1).
const MIN_MESSAGE: usize = 300;

const PAD: u8 = 0;
const END: u8 = 255;
/// Relay agent information (RFC 3046).
const RELAY: u8 = 82;

/// A client's message.
pub const REQUEST: u8 = 1;
/// A server's message.
pub const REPLY: u8 = 2;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    fixed: Vec<u8>,
    /// Options in their order, without relay information; `None` when there is no cookie (BOOTP without extensions).
    options: Option<Vec<u8>>,
    /// The relay information, its sub-options.
    relay: Option<Vec<u8>>,
}

impl Message {
    /// Reads a message; `None` when it is damaged. One without an end option is taken as it is.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let fixed = bytes.get(..FIXED)?.to_vec();
        let rest = bytes.get(FIXED..)?;
        let Some(mut rest) = rest.strip_prefix(&COOKIE) else {
            return Some(Self { fixed, options: None, relay: None });
        };
        let mut options = Vec::with_capacity(rest.len());
        let mut relay: Option<Vec<u8>> = None;
        while let Some((&code, tail)) = rest.split_first() {
            match code {
                END => break,
                PAD => rest = tail,
                code => {
                    let (&len, tail) = tail.split_first()?;
                    let value = tail.get(..usize::from(len))?;
                    rest = tail.get(usize::from(len)..)?;
                    if code == RELAY {
                        // One that was split is put together (RFC 3396).
                        relay.get_or_insert_default().extend(value);
                    } else {
                        options.extend([code, len]);
                        options.extend(value);
                    }
                }
            }
        }
        Some(Self { fixed, options: Some(options), relay })
    }
    /// The bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.fixed.clone();
        if let Some(options) = &self.options {
            bytes.extend(COOKIE);
            bytes.extend(options);
            for part in self.relay.iter().flat_map(|relay| relay.chunks(255)) {
                bytes.extend([RELAY, u8::try_from(part.len()).unwrap_or(u8::MAX)]);
                bytes.extend(part);
            }
            bytes.push(END);
        }
        if bytes.len() < MIN_MESSAGE {
            bytes.resize(MIN_MESSAGE, PAD);
        }
        bytes
    }
    /// Length of [`Self::to_bytes`] with relay information of `sub_options` bytes.
    pub(crate) fn len_with(&self, sub_options: usize) -> usize {
        let options = self.options.as_ref().map_or(0, |options| COOKIE.len() + options.len() + 1);
        FIXED + options + sub_options + sub_options.div_ceil(255) * 2
    }

    fn u8(&self, at: usize) -> u8 {
        self.fixed.get(at).copied().unwrap_or(0)
    }
    fn address(&self, at: usize) -> Ipv4Addr {
        [self.u8(at), self.u8(at + 1), self.u8(at + 2), self.u8(at + 3)].into()
    }
    /// [`REQUEST`] or [`REPLY`].
    #[must_use]
    pub fn op(&self) -> u8 {
        self.u8(0)
    }
    /// Relays it has been through.
    #[must_use]
    pub fn hops(&self) -> u8 {
        self.u8(3)
    }
    pub(crate) fn set_hops(&mut self, hops: u8) {
        if let Some(byte) = self.fixed.get_mut(3) {
            *byte = hops;
        }
    }
    /// The client wants broadcasts.
    #[must_use]
    pub fn wants_broadcast(&self) -> bool {
        self.u8(10) & 0x80 != 0
    }
    /// The address the client has.
    #[must_use]
    pub fn ciaddr(&self) -> Ipv4Addr {
        self.address(12)
    }
    /// The address the client is given.
    #[must_use]
    pub fn yiaddr(&self) -> Ipv4Addr {
        self.address(16)
    }
    /// The first relay.
    #[must_use]
    pub fn giaddr(&self) -> Ipv4Addr {
        self.address(24)
    }
    pub(crate) fn set_giaddr(&mut self, address: Ipv4Addr) {
        if let Some(bytes) = self.fixed.get_mut(24..28) {
            bytes.copy_from_slice(&address.octets());
        }
    }
    /// The client's MAC address, when it is an Ethernet's.
    #[must_use]
    pub fn chaddr(&self) -> Option<MacAddr> {
        let bytes: [u8; 6] = self.fixed.get(28..34)?.try_into().ok()?;
        (self.u8(1) == 1 && self.u8(2) == 6)
            .then_some(MacAddr(bytes))
            .filter(|mac| !mac.is_group() && !mac.is_zero())
    }
    /// True when hardware address length and operation make sense.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        matches!(self.op(), REQUEST | REPLY) && self.u8(2) <= 16
    }
    /// True when options can be added.
    #[must_use]
    pub fn has_options(&self) -> bool {
        self.options.is_some()
    }
    /// The relay information: its sub-options.
    #[must_use]
    pub fn relay(&self) -> Option<&[u8]> {
        self.relay.as_deref()
    }
    pub(crate) fn set_relay(&mut self, relay: Option<Vec<u8>>) {
        self.relay = relay;
    }
}

/// The value of a sub-option; `None` when there is none, or the list is damaged before it.
#[must_use]
pub fn sub_option(mut list: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [code, len, tail @ ..] = list {
        let value = tail.get(..usize::from(*len))?;
        if *code == wanted {
            return Some(value);
        }
        list = tail.get(usize::from(*len)..)?;
    }
    None
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A discover with these giaddr, hops, flags and options.
    pub fn message(op: u8, giaddr: &str, hops: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0u8; FIXED];
        bytes[..4].copy_from_slice(&[op, 1, 6, hops]);
        bytes[24..28].copy_from_slice(&giaddr.parse::<Ipv4Addr>().unwrap_or([0, 0, 0, 0].into()).octets());
        bytes[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        bytes.extend(COOKIE);
        bytes.extend(options);
        bytes.push(END);
        bytes
    }

    #[test]
    fn there_and_back() {
        let message_type = [53, 1, 1];
        for (options, relay) in [
            (message_type.to_vec(), None),
            ([&message_type[..], &[82, 3, 1, 1, 7]].concat(), Some(vec![1, 1, 7])),
            ([&[0, 0, 82, 2, 1, 0][..], &message_type, &[82, 1, 9]].concat(), Some(vec![1, 0, 9])),
        ] {
            let read = Message::parse(&message(REQUEST, "10.0.0.1", 3, &options)).expect("a message");
            assert_eq!(
                (read.giaddr(), read.hops(), read.relay()),
                ([10, 0, 0, 1].into(), 3, relay.as_deref())
            );
            assert_eq!(read.chaddr(), Some(MacAddr([2, 0, 0, 0, 0, 9])));
            let bytes = read.to_bytes();
            assert!(bytes.len() >= MIN_MESSAGE);
            assert_eq!(Message::parse(&bytes), Some(read));
        }
        let long =
            Message { relay: Some(vec![1; 300]), ..Message::parse(&message(1, "", 0, &[])).expect("one") };
        assert_eq!(Message::parse(&long.to_bytes()), Some(long.clone()));
        assert_eq!(long.len_with(300), long.to_bytes().len());
    }

    #[test]
    fn damaged() {
        let whole = message(REQUEST, "", 0, &[82, 4, 1, 2, 3, 4]);
        assert!(Message::parse(&whole[..FIXED - 1]).is_none());
        let bare = Message::parse(&whole[..FIXED]).expect("BOOTP");
        assert!(!bare.has_options());
        for options in [&[82, 5, 1][..], &[82], &[53]] {
            let mut bytes = message(REQUEST, "", 0, options);
            bytes.pop();
            assert!(Message::parse(&bytes).is_none(), "{options:?}");
        }
        assert_eq!(sub_option(&[1, 1, 7, 2, 2, 8, 9], 2), Some(&[8, 9][..]));
        assert_eq!(sub_option(&[1, 9, 7], 1), None);
    }
}
