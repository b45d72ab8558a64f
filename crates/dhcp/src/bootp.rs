//! BOOTP messages as a relay needs them: the fixed part, and the options as one sequence of bytes.
//!
//! Read RFC 2131, section 2, RFC 2132, section 2, and RFC 3046, section 2. Invariant: options that a relay does not
//! change are forwarded unchanged and in their order; padding between options is dropped.

use lanyard_types::MacAddr;
use std::net::Ipv4Addr;

/// Length of the fixed part in bytes, without the magic cookie.
pub(crate) const FIXED: usize = 236;
/// The magic cookie that precedes the options (RFC 2131, 3).
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Longest message that is sent, in bytes: it fits an Ethernet frame with the headers of IPv4 and UDP.
pub const MAX_MESSAGE: usize = 1472;
/// Shortest message that BOOTP allows. Old clients drop shorter ones (RFC 1542, 2.1).
const MIN_MESSAGE: usize = 300;

const PAD: u8 = 0;
const END: u8 = 255;
/// Relay agent information (RFC 3046).
const RELAY: u8 = 82;

/// The operation of a client's message ([`Message::op`]).
pub const REQUEST: u8 = 1;
/// The operation of a server's message.
pub const REPLY: u8 = 2;

/// A BOOTP or DHCP message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    fixed: Vec<u8>,
    /// The options in their order, without relay information; `None` when there is no cookie (BOOTP without
    /// extensions).
    options: Option<Vec<u8>>,
    /// The sub-options of the relay information option.
    relay: Option<Vec<u8>>,
}

impl Message {
    /// Parses a message; `None` when it is malformed. A missing end option is tolerated.
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
                        // An option may be split into several parts, which are concatenated (RFC 3396).
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
    /// The message as bytes.
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
    /// The number of relays that have forwarded the message.
    #[must_use]
    pub fn hops(&self) -> u8 {
        self.u8(3)
    }
    pub(crate) fn set_hops(&mut self, hops: u8) {
        if let Some(byte) = self.fixed.get_mut(3) {
            *byte = hops;
        }
    }
    /// True if the client asks for replies by broadcast.
    #[must_use]
    pub fn wants_broadcast(&self) -> bool {
        self.u8(10) & 0x80 != 0
    }
    /// The client's current address.
    #[must_use]
    pub fn ciaddr(&self) -> Ipv4Addr {
        self.address(12)
    }
    /// The address that the server assigns.
    #[must_use]
    pub fn yiaddr(&self) -> Ipv4Addr {
        self.address(16)
    }
    /// The address of the first relay.
    #[must_use]
    pub fn giaddr(&self) -> Ipv4Addr {
        self.address(24)
    }
    pub(crate) fn set_giaddr(&mut self, address: Ipv4Addr) {
        if let Some(bytes) = self.fixed.get_mut(24..28) {
            bytes.copy_from_slice(&address.octets());
        }
    }
    /// The client's MAC address, if its hardware type is Ethernet.
    #[must_use]
    pub fn chaddr(&self) -> Option<MacAddr> {
        let bytes: [u8; 6] = self.fixed.get(28..34)?.try_into().ok()?;
        (self.u8(1) == 1 && self.u8(2) == 6)
            .then_some(MacAddr(bytes))
            .filter(|mac| !mac.is_group() && !mac.is_zero())
    }
    /// True if the hardware address length and the operation are valid.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        matches!(self.op(), REQUEST | REPLY) && self.u8(2) <= 16
    }
    /// The value of the first option with this code, other than the relay information.
    #[must_use]
    pub fn option(&self, code: u8) -> Option<&[u8]> {
        sub_option(self.options.as_deref()?, code)
    }
    /// The DHCP message type (RFC 2132, 9.6); `None` for BOOTP.
    #[must_use]
    pub fn message_type(&self) -> Option<u8> {
        self.option(53)?.first().copied()
    }
    /// The identifier by which a client finds the answers to its request.
    #[must_use]
    pub fn xid(&self) -> u32 {
        u32::from_be_bytes([self.u8(4), self.u8(5), self.u8(6), self.u8(7)])
    }
    /// True if the message can carry options.
    #[must_use]
    pub fn has_options(&self) -> bool {
        self.options.is_some()
    }
    /// The sub-options of the relay information.
    #[must_use]
    pub fn relay(&self) -> Option<&[u8]> {
        self.relay.as_deref()
    }
    /// Replaces or removes the relay information.
    pub fn set_relay(&mut self, relay: Option<Vec<u8>>) {
        self.relay = relay;
    }
}

/// The value of a sub-option; `None` when there is none, or when the list is malformed before it.
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

    /// A message of the client 02:00:00:00:00:09 with these fields and options.
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
