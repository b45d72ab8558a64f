//! The relay agent of DHCPv6.
//!
//! Read RFC 8415, sections 9 and 19. Invariant: the interface of a reply is found by the interface ID or the link
//! address that this relay has put into the request.

use crate::counters::{Counter, Counters};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;

/// HOP_COUNT_LIMIT (RFC 8415, 7.6).
const MAX_HOPS: u8 = 8;
/// Longest message that is relayed, in bytes: the relay message option has a 16-bit length, and the headers around it
/// have to fit as well.
const MAX_MESSAGE: usize = 65_000;

/// Bits of an address below its subnet (RFC 4291, 2.5.4).
const SUBNET_BITS: u32 = 64;

const ADVERTISE: u8 = 2;
const REPLY: u8 = 7;
const RECONFIGURE: u8 = 10;
const RELAY_FORWARD: u8 = 12;
const RELAY_REPLY: u8 = 13;
/// Length of the fixed part of a Relay-forward or Relay-reply message, in bytes (RFC 8415, 9).
const RELAY_HEADER: usize = 34;

const OPTION_RELAY_MESSAGE: u16 = 9;
const OPTION_INTERFACE_ID: u16 = 18;

/// The port of clients. Relays and servers use port 547.
const CLIENT_PORT: u16 = 546;
const RELAY_PORT: u16 = 547;

/// The configuration of the relay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config6 {
    /// Interfaces with servers, by name. The name is the interface ID.
    pub interfaces: BTreeMap<String, Interface6>,
}

/// One interface of the relay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface6 {
    /// The VRF of the interface and of its servers.
    pub vrf: Option<String>,
    /// Its addresses other than link-local ones. The first one is the link address of relayed messages.
    pub addresses: Vec<Ipv6Addr>,
    /// The servers for its clients.
    pub servers: Vec<Server6>,
}

/// A server or another relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server6 {
    /// Its address.
    pub address: Ipv6Addr,
    /// The egress interface, for link-local and multicast addresses.
    pub interface: Option<String>,
}

impl Server6 {
    /// True if a datagram received from `source` on interface `at` may come from this server. A server configured by a
    /// multicast address answers from its own address, which is not known here. One configured by a global address may
    /// answer from another address of its subnet: a host with a static and an autoconfigured address chooses by RFC
    /// 6724, not by the address that was asked. RFC 8415 does not say which one a server uses.
    fn is_sender(&self, at: &str, source: Ipv6Addr) -> bool {
        let here = self.interface.as_deref().is_none_or(|interface| interface == at);
        if self.address.is_multicast() {
            return here && !source.is_multicast() && !source.is_unspecified();
        }
        if source.is_unicast_link_local() {
            return self.address == source && here;
        }
        let subnet = |address: Ipv6Addr| address.to_bits() >> SUBNET_BITS;
        self.address == source
            || !self.address.is_unicast_link_local()
                && !source.is_multicast()
                && subnet(self.address) == subnet(source)
    }
}

/// A message to send from port 547.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Send6 {
    /// The VRF in which to send.
    pub vrf: Option<String>,
    /// The egress interface; `None` uses the route to the address.
    pub interface: Option<String>,
    /// The destination address.
    pub address: Ipv6Addr,
    /// The destination port.
    pub port: u16,
    /// The message.
    pub message: Vec<u8>,
}

/// A DHCPv6 relay.
#[derive(Debug, Clone, Default)]
pub struct Relay6 {
    config: Config6,
    counters: Counters,
}

impl Relay6 {
    /// Sets the configuration.
    pub fn configure(&mut self, config: Config6) {
        self.config = config;
    }
    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Config6 {
        &self.config
    }
    /// The counters of messages.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Handles a datagram received on port 547 of the VRF `vrf` at `interface` from `source`. A reply is accepted only
    /// from a configured server of the interface that it is for.
    pub fn handle(
        &mut self,
        vrf: Option<&str>,
        interface: &str,
        source: Ipv6Addr,
        datagram: &[u8],
    ) -> Vec<Send6> {
        let result = match datagram.first() {
            Some(&RELAY_REPLY) => self.reply(vrf, interface, source, datagram),
            Some(&(0 | ADVERTISE | REPLY | RECONFIGURE)) => Err(Counter::DroppedMalformed),
            Some(_) if datagram.len() < 4 => Err(Counter::DroppedTooShort),
            Some(&kind) => self.forward(interface, source, kind, datagram),
            None => Err(Counter::DroppedTooShort),
        };
        let (counter, sends) = result.unwrap_or_else(|reason| (reason, Vec::new()));
        self.counters.count(counter);
        sends
    }

    /// Relays a message towards the servers (RFC 8415, 19.1).
    fn forward(
        &self,
        name: &str,
        source: Ipv6Addr,
        kind: u8,
        datagram: &[u8],
    ) -> Result<(Counter, Vec<Send6>), Counter> {
        let interface = self.config.interfaces.get(name).ok_or(Counter::DroppedUnknown)?;
        let hops = match kind {
            RELAY_FORWARD if datagram.len() < RELAY_HEADER => return Err(Counter::DroppedTooShort),
            RELAY_FORWARD if datagram[1] >= MAX_HOPS => return Err(Counter::DroppedHops),
            RELAY_FORWARD => datagram[1] + 1,
            _ => 0,
        };
        if datagram.len() > MAX_MESSAGE {
            return Err(Counter::DroppedMalformed);
        }
        // A relay with a global address needs no link address: its own address already identifies the link
        // (19.1.2).
        let link = match kind {
            RELAY_FORWARD if !source.is_unicast_link_local() => Ipv6Addr::UNSPECIFIED,
            _ => *interface.addresses.first().ok_or(Counter::DroppedNoAddress)?,
        };
        let mut message = vec![RELAY_FORWARD, hops];
        message.extend(link.octets());
        message.extend(source.octets());
        option(&mut message, OPTION_INTERFACE_ID, name.as_bytes());
        option(&mut message, OPTION_RELAY_MESSAGE, datagram);
        let send = |server: &Server6| Send6 {
            vrf: interface.vrf.clone(),
            interface: server.interface.clone(),
            address: server.address,
            port: RELAY_PORT,
            message: message.clone(),
        };
        Ok((Counter::ToServer, interface.servers.iter().map(send).collect()))
    }

    /// Relays a server's reply towards the client (RFC 8415, 19.2).
    fn reply(
        &self,
        vrf: Option<&str>,
        at: &str,
        source: Ipv6Addr,
        datagram: &[u8],
    ) -> Result<(Counter, Vec<Send6>), Counter> {
        let address = |from: usize| -> Option<Ipv6Addr> {
            let bytes: [u8; 16] = datagram.get(from..from + 16)?.try_into().ok()?;
            Some(bytes.into())
        };
        let (Some(link), Some(peer)) = (address(2), address(18)) else {
            return Err(Counter::DroppedTooShort);
        };
        let (mut inner, mut id) = (None, None);
        let mut rest = datagram.get(RELAY_HEADER..).unwrap_or_default();
        while let [a, b, c, d, tail @ ..] = rest {
            let len = usize::from(u16::from_be_bytes([*c, *d]));
            let value = tail.get(..len).ok_or(Counter::DroppedMalformed)?;
            match u16::from_be_bytes([*a, *b]) {
                OPTION_RELAY_MESSAGE => inner = inner.or(Some(value)),
                OPTION_INTERFACE_ID => id = id.or(Some(value)),
                _ => {}
            }
            rest = tail.get(len..).unwrap_or_default();
        }
        let inner = inner.filter(|inner| !inner.is_empty()).ok_or(Counter::DroppedMalformed)?;
        let interfaces = &self.config.interfaces;
        let found = match id {
            Some(id) => std::str::from_utf8(id).ok().and_then(|id| interfaces.get_key_value(id)),
            None => interfaces.iter().find(|(_, i)| !link.is_unspecified() && i.addresses.contains(&link)),
        };
        let (name, interface) = found.ok_or(Counter::DroppedUnknown)?;
        if interface.vrf.as_deref() != vrf || !interface.servers.iter().any(|s| s.is_sender(at, source)) {
            return Err(Counter::DroppedNotServer);
        }
        if peer.is_unspecified() || peer.is_multicast() || peer.is_loopback() {
            return Err(Counter::DroppedMalformed);
        }
        let to_relay = inner.first() == Some(&RELAY_REPLY);
        let send = Send6 {
            vrf: interface.vrf.clone(),
            // A relay further away is reached by the route to it.
            interface: Some(name.clone()).filter(|_| !to_relay || peer.is_unicast_link_local()),
            address: peer,
            port: if to_relay { RELAY_PORT } else { CLIENT_PORT },
            message: inner.to_vec(),
        };
        Ok((Counter::ToClient, vec![send]))
    }
}

fn option(message: &mut Vec<u8>, code: u16, value: &[u8]) {
    message.extend(code.to_be_bytes());
    message.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
    message.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay() -> Relay6 {
        let server = |address: &str, interface: Option<&str>| Server6 {
            address: address.parse().expect("an address"),
            interface: interface.map(str::to_owned),
        };
        let interface = |vrf: Option<&str>, address: &str, servers| Interface6 {
            vrf: vrf.map(str::to_owned),
            addresses: address.parse().into_iter().collect(),
            servers,
        };
        let two = vec![server("2001:db8::1", None), server("ff05::1:3", Some("vlan20"))];
        let interfaces = [
            ("vlan10", interface(None, "2001:db8:10::fe", two)),
            ("vlan30", interface(Some("red"), "2001:db8:10::fe", vec![server("2001:db8::1", None)])),
            ("vlan40", interface(None, "", vec![server("2001:db8::1", None)])),
        ];
        let mut relay = Relay6::default();
        relay.configure(Config6 {
            interfaces: interfaces.into_iter().map(|(n, i)| (n.to_owned(), i)).collect(),
        });
        relay
    }

    fn show(send: &Send6) -> String {
        let mut text = String::new();
        let mut word = |word: String| {
            text.push_str(&word);
            text.push(' ');
        };
        send.vrf.iter().for_each(|vrf| word(format!("{vrf}:")));
        word(format!("{}.{}", send.address, send.port));
        send.interface.iter().for_each(|interface| word(format!("on {interface}")));
        if send.message[0] == RELAY_FORWARD {
            let link: [u8; 16] = send.message[2..18].try_into().expect("16 bytes");
            word(format!("forward hops {} link {}", send.message[1], Ipv6Addr::from(link)));
        } else {
            word(format!("type {}", send.message[0]));
        }
        text.trim_end().to_owned()
    }

    fn check(relay: &mut Relay6, at: &str, from: &str, bytes: &[u8], want: &[&str], counter: Counter) {
        let before = relay.counters().get(counter);
        let (at, vrf) = at.split_once('@').map_or((at, None), |(at, vrf)| (at, Some(vrf)));
        let sends = relay.handle(vrf, at, from.parse().expect("an address"), bytes);
        assert_eq!(sends.iter().map(show).collect::<Vec<_>>(), want, "{at}");
        assert_eq!(relay.counters().get(counter), before + 1, "{counter:?}: {:?}", relay.counters());
    }

    const SOLICIT: &[u8] = &[1, 0, 0, 7];

    #[test]
    fn forwards() {
        use Counter::*;
        let mut relay = relay();
        let both = [
            "2001:db8::1.547 forward hops 0 link 2001:db8:10::fe",
            "ff05::1:3.547 on vlan20 forward hops 0 link 2001:db8:10::fe",
        ];
        check(&mut relay, "vlan10", "fe80::5", SOLICIT, &both, ToServer);
        let red = "red: 2001:db8::1.547 forward hops 0 link 2001:db8:10::fe";
        check(&mut relay, "vlan30", "fe80::5", SOLICIT, &[red], ToServer);
        check(&mut relay, "vlan20", "fe80::5", SOLICIT, &[], DroppedUnknown);
        check(&mut relay, "vlan40", "fe80::5", SOLICIT, &[], DroppedNoAddress);
        for (bytes, counter) in [
            (&[][..], DroppedTooShort),
            (&[1, 0], DroppedTooShort),
            (&[7, 0, 0, 1], DroppedMalformed),
            (&[12; 20], DroppedTooShort),
            (&[12; 34], DroppedHops),
        ] {
            check(&mut relay, "vlan10", "fe80::5", bytes, &[], counter);
        }
        let nested = [&[RELAY_FORWARD, 7][..], &[0; 32]].concat();
        let red = |link: &str| format!("red: 2001:db8::1.547 forward hops 8 link {link}");
        check(&mut relay, "vlan30", "2001:db8::9", &nested, &[&red("::")], ToServer);
        check(&mut relay, "vlan30", "fe80::9", &nested, &[&red("2001:db8:10::fe")], ToServer);
    }

    #[test]
    fn server_replies_are_relayed_to_the_client_and_invalid_ones_dropped() {
        use Counter::*;
        let mut relay = relay();
        let forwarded =
            relay.handle(Some("red"), "vlan30", "fe80::5".parse().expect("one"), SOLICIT).remove(0).message;
        let answer = |mut bytes: Vec<u8>, inner: &[u8]| {
            bytes[0] = RELAY_REPLY;
            let at = bytes.len() - SOLICIT.len();
            bytes.truncate(at - 4);
            option(&mut bytes, OPTION_RELAY_MESSAGE, inner);
            bytes
        };
        let back = answer(forwarded.clone(), &[7, 0, 0, 7]);
        check(&mut relay, "x@red", "2001:db8::1", &back, &["red: fe80::5.546 on vlan30 type 7"], ToClient);
        let nested = answer(forwarded.clone(), &[&[RELAY_REPLY, 0][..], &[0; 32]].concat());
        check(&mut relay, "x@red", "2001:db8::1", &nested, &["red: fe80::5.547 on vlan30 type 13"], ToClient);
        let empty = answer(forwarded.clone(), &[]);
        check(&mut relay, "x", "2001:db8::1", &empty, &[], DroppedMalformed);
        let mut foreign = back.clone();
        let at = foreign.windows(6).position(|w| w == b"vlan30").expect("the ID");
        foreign[at..at + 6].copy_from_slice(b"vlan31");
        check(&mut relay, "x", "2001:db8::1", &foreign, &[], DroppedUnknown);
        check(&mut relay, "x", "2001:db8::1", &back[..30], &[], DroppedTooShort);
        check(&mut relay, "x", "2001:db8::1", &back[..back.len() - 1], &[], DroppedMalformed);
        // A sender is rejected if it is not a server of the client's interface and not in the subnet of one, or if it is
        // in another VRF.
        check(&mut relay, "x@red", "2001:db8:0:1::1", &back, &[], DroppedNotServer);
        check(&mut relay, "x@red", "fe80::1", &back, &[], DroppedNotServer);
        check(&mut relay, "x", "2001:db8::1", &back, &[], DroppedNotServer);
        // A server with several addresses may answer from another one of its subnet.
        check(&mut relay, "x@red", "2001:db8::2", &back, &["red: fe80::5.546 on vlan30 type 7"], ToClient);
        // Without an interface ID, the link address decides.
        let mut bare = back[..RELAY_HEADER].to_vec();
        option(&mut bare, OPTION_RELAY_MESSAGE, &[2, 0, 0, 7]);
        check(&mut relay, "x", "2001:db8::1", &bare, &["fe80::5.546 on vlan10 type 2"], ToClient);
        // A server configured by a multicast address answers from its own address, on the interface that leads to it.
        check(&mut relay, "vlan20", "2001:db8:20::7", &bare, &["fe80::5.546 on vlan10 type 2"], ToClient);
        check(&mut relay, "vlan10", "2001:db8:20::7", &bare, &[], DroppedNotServer);
    }
}
