//! The relay agent of DHCPv4.
//!
//! Read RFC 1542, section 4.1, and RFC 3046, section 2.1. Invariant: the interface of a reply is found by the giaddr and
//! the circuit ID that this relay has put into the request, and must be an interface that the relay is configured for.

use crate::bootp::{FIXED, MAX_MESSAGE, Message, REPLY, REQUEST, sub_option};
use crate::counters::{Counter, Counters};
use lanyard_types::MacAddr;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A client's message that this many relays have already forwarded is dropped (RFC 1542, 4.1.1).
const MAX_HOPS: u8 = 16;

/// Circuit and remote ID (RFC 3046, 3.1 and 3.2).
const CIRCUIT_ID: u8 = 1;
const REMOTE_ID: u8 = 2;
/// An address in the client's subnet, for a message whose giaddr is in another one (RFC 3527).
const LINK_SELECTION: u8 = 5;
/// The address that the client shall use as that of its server (RFC 5107).
const SERVER_OVERRIDE: u8 = 11;

/// The configuration of the relay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config4 {
    /// Interfaces with servers, by name. The name is the circuit ID.
    pub interfaces: BTreeMap<String, Interface4>,
    /// True if the relay adds relay information.
    pub option: bool,
    /// The treatment of relay information that a message has already.
    pub policy: Policy,
    /// True if relay information from clients is accepted on every interface.
    pub trust_all: bool,
    /// The remote ID that the relay inserts.
    pub remote_id: MacAddr,
}

/// One interface of the relay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface4 {
    /// The VRF of the interface.
    pub vrf: Option<String>,
    /// Its addresses. The first one is the primary address, which goes into giaddr.
    pub addresses: Vec<Ipv4Addr>,
    /// The servers for its clients.
    pub servers: Vec<Server4>,
    /// True if relay information from clients is accepted on this interface.
    pub trusted: bool,
}

/// A DHCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server4 {
    /// The VRF in which the server is reached.
    pub vrf: Option<String>,
    /// Its address.
    pub address: Ipv4Addr,
    /// The relay's address in that VRF, to which the server answers; `None` for the primary address of the interface.
    pub source: Option<Ipv4Addr>,
}

/// The sender of a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source4 {
    /// The VRF in which it was received.
    pub vrf: Option<String>,
    /// The sender's address.
    pub address: Ipv4Addr,
}

/// The treatment of relay information that a message has already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// It is replaced by the relay's own.
    #[default]
    Replace,
    /// It is kept.
    Keep,
    /// The message is dropped.
    Drop,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Send4 {
    /// To a server's port 67.
    Server {
        /// The VRF in which to send.
        vrf: Option<String>,
        /// The server's address.
        address: Ipv4Addr,
        /// The message.
        message: Vec<u8>,
    },
    /// To a client's port 68.
    Client {
        /// The egress interface.
        interface: String,
        /// How to address the client.
        to: Delivery,
        /// The message.
        message: Vec<u8>,
    },
}

/// How a client is addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// By broadcast, to 255.255.255.255.
    Broadcast,
    /// By unicast to these addresses, which the message contains. The client does not answer ARP for its address yet.
    Unicast(MacAddr, Ipv4Addr),
}

/// A DHCPv4 relay.
#[derive(Debug, Clone, Default)]
pub struct Relay4 {
    config: Config4,
    counters: Counters,
}

impl Relay4 {
    /// Sets the configuration.
    pub fn configure(&mut self, config: Config4) {
        self.config = config;
    }
    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Config4 {
        &self.config
    }
    /// The counters of messages.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Handles a datagram received on port 67 from `source` at `interface`. A client's message is sent to the servers of
    /// `interface`. The egress interface of a server's message is found by its contents; it is accepted only from a
    /// configured server of that interface.
    pub fn handle(&mut self, interface: &str, source: &Source4, datagram: &[u8]) -> Vec<Send4> {
        let result = match datagram.len() {
            0..FIXED => Err(Counter::DroppedTooShort),
            _ => match Message::parse(datagram).filter(Message::is_sound) {
                Some(message) if message.op() == REQUEST => self.request(interface, message),
                Some(message) if message.op() == REPLY => self.reply(source, message),
                _ => Err(Counter::DroppedMalformed),
            },
        };
        let (counter, sends) = result.unwrap_or_else(|reason| (reason, Vec::new()));
        self.counters.count(counter);
        sends
    }

    /// Handles a client's message (RFC 1542, 4.1.1; RFC 3046, 2.1).
    fn request(&mut self, name: &str, mut message: Message) -> Result<(Counter, Vec<Send4>), Counter> {
        let interface = self.config.interfaces.get(name).ok_or(Counter::DroppedUnknown)?;
        let own = *interface.addresses.first().ok_or(Counter::DroppedNoAddress)?;
        if message.hops() >= MAX_HOPS {
            return Err(Counter::DroppedHops);
        }
        let all = self.config.interfaces.values().flat_map(|interface| &interface.addresses);
        if all.clone().any(|address| *address == message.giaddr()) {
            return Err(Counter::DroppedSpoofed);
        }
        let first = message.giaddr().is_unspecified();
        if message.relay().is_some() {
            if first && !interface.trusted && !self.config.trust_all {
                return Err(Counter::DroppedUntrusted);
            }
            if self.config.option && self.config.policy == Policy::Drop {
                return Err(Counter::DroppedPolicy);
            }
        }
        // Only the first relay adds information (RFC 3046, 2.1.1); later ones may replace it.
        let adds = match message.relay() {
            Some(_) => self.config.policy == Policy::Replace,
            None => first,
        };
        message.set_hops(message.hops() + 1);
        let mut too_long = false;
        let mut sends = Vec::new();
        for server in &interface.servers {
            let mut copy = message.clone();
            let crosses = first && server.source.is_some();
            if first {
                copy.set_giaddr(server.source.unwrap_or(own));
            }
            if (self.config.option && adds || crosses) && copy.has_options() {
                let mut information = self.information(name);
                if crosses {
                    information.extend([LINK_SELECTION, 4]);
                    information.extend(own.octets());
                    information.extend([SERVER_OVERRIDE, 4]);
                    information.extend(own.octets());
                }
                if copy.len_with(information.len()) <= MAX_MESSAGE {
                    copy.set_relay(Some(information));
                } else {
                    too_long = true;
                }
            }
            let (vrf, address) = (server.vrf.clone(), server.address);
            sends.push(Send4::Server { vrf, address, message: copy.to_bytes() });
        }
        if too_long {
            self.counters.count(Counter::OptionTooLong);
        }
        Ok((Counter::ToServer, sends))
    }

    /// The relay's own sub-options: the interface's name as circuit ID, and the switch's address as remote ID in IOS's
    /// form, with a type and a length.
    fn information(&self, interface: &str) -> Vec<u8> {
        let mut list = vec![CIRCUIT_ID, u8::try_from(interface.len()).unwrap_or(0)];
        list.extend(interface.bytes().take(usize::from(u8::MAX)));
        list.extend([REMOTE_ID, 8, 0, 6]);
        list.extend(self.config.remote_id.0);
        list
    }

    /// Handles a server's message (RFC 1542, 4.1.2; RFC 3046, 2.1).
    fn reply(&mut self, source: &Source4, mut message: Message) -> Result<(Counter, Vec<Send4>), Counter> {
        let giaddr = message.giaddr();
        let circuit = message.relay().and_then(|relay| sub_option(relay, CIRCUIT_ID));
        let circuit = circuit.and_then(|id| std::str::from_utf8(id).ok());
        let answers_at = |interface: &Interface4| {
            interface.addresses.first() == Some(&giaddr)
                || interface.servers.iter().any(|server| server.source == Some(giaddr))
        };
        let interfaces = &self.config.interfaces;
        let by_circuit = circuit.and_then(|id| interfaces.get_key_value(id)).filter(|(_, i)| answers_at(i));
        let by_address = || interfaces.iter().find(|(_, i)| i.addresses.first() == Some(&giaddr));
        let ours = by_circuit.is_some();
        let (name, interface) = by_circuit.or_else(by_address).ok_or(Counter::DroppedUnknown)?;
        let is_sender = |server: &Server4| (&server.vrf, server.address) == (&source.vrf, source.address);
        if !interface.servers.iter().any(is_sender) {
            return Err(Counter::DroppedNotServer);
        }
        if ours {
            message.set_relay(None);
        }
        let address = message.yiaddr();
        let to = match message.chaddr() {
            Some(mac) if !message.wants_broadcast() && is_host(address) => Delivery::Unicast(mac, address),
            _ => Delivery::Broadcast,
        };
        let send = Send4::Client { interface: name.clone(), to, message: message.to_bytes() };
        Ok((Counter::ToClient, vec![send]))
    }
}

const fn is_host(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast() && !address.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootp::tests::message;

    fn relay(option: bool, policy: Policy) -> Relay4 {
        let server = |address: &str, source: Option<&str>| Server4 {
            vrf: source.map(|_| "up".to_owned()),
            address: address.parse().expect("an address"),
            source: source.map(|s| s.parse().expect("an address")),
        };
        let interface = |address: &str, servers, trusted| Interface4 {
            vrf: None,
            addresses: address.parse().into_iter().collect(),
            servers,
            trusted,
        };
        let interfaces = [
            (
                "vlan10",
                interface("10.0.10.254", vec![server("192.0.2.1", None), server("192.0.2.2", None)], false),
            ),
            ("vlan20", interface("10.0.20.254", vec![server("192.0.2.1", None)], true)),
            ("vlan30", interface("10.0.30.254", vec![server("192.0.2.9", Some("203.0.113.1"))], false)),
            ("vlan40", interface("", vec![server("192.0.2.1", None)], false)),
        ];
        let interfaces = interfaces.into_iter().map(|(name, i)| (name.to_owned(), i)).collect();
        let mut relay = Relay4::default();
        let remote_id = MacAddr([2, 0, 0, 0, 0x10, 0]);
        relay.configure(Config4 { interfaces, option, policy, trust_all: false, remote_id });
        relay
    }

    /// Formats a message to send as text.
    fn show(send: &Send4) -> String {
        let (who, bytes) = match send {
            Send4::Server { vrf, address, message } => {
                (format!("{address}{}", vrf.as_ref().map_or(String::new(), |vrf| format!("@{vrf}"))), message)
            }
            Send4::Client { interface, to, message } => match to {
                Delivery::Broadcast => (format!("{interface} all"), message),
                Delivery::Unicast(mac, address) => (format!("{interface} {mac} {address}"), message),
            },
        };
        let message = Message::parse(bytes).expect("a message");
        let relay = message.relay().map_or("-".into(), |relay| {
            let text = |code| sub_option(relay, code).map(|v| String::from_utf8_lossy(v).into_owned());
            let link = sub_option(relay, LINK_SELECTION).map(|v| format!(" link {v:?}"));
            format!("{}{}", text(CIRCUIT_ID).unwrap_or_default(), link.unwrap_or_default())
        });
        format!("{who} gi {} hops {} info {relay}", message.giaddr(), message.hops())
    }

    fn check(relay: &mut Relay4, interface: &str, bytes: &[u8], want: &[&str], counter: Counter) {
        check_from(relay, "192.0.2.1", interface, bytes, want, counter);
    }

    /// As [`check`], but from this sender: `192.0.2.9@up` is in the VRF `up`.
    fn check_from(
        relay: &mut Relay4,
        from: &str,
        interface: &str,
        bytes: &[u8],
        want: &[&str],
        counter: Counter,
    ) {
        let before = relay.counters().get(counter);
        let (address, vrf) = from.split_once('@').map_or((from, None), |(a, vrf)| (a, Some(vrf.to_owned())));
        let source = Source4 { vrf, address: address.parse().expect("an address") };
        let sends = relay.handle(interface, &source, bytes);
        assert_eq!(sends.iter().map(show).collect::<Vec<_>>(), want, "{interface}");
        assert_eq!(relay.counters().get(counter), before + 1, "{counter:?}: {:?}", relay.counters());
    }

    const CIRCUIT_X: &[u8] = &[82, 3, 1, 1, b'x'];

    #[test]
    fn requests() {
        use Counter::*;
        let plain = message(REQUEST, "", 0, &[53, 1, 1]);
        let mut bare = relay(false, Policy::Replace);
        let both = ["192.0.2.1 gi 10.0.10.254 hops 1 info -", "192.0.2.2 gi 10.0.10.254 hops 1 info -"];
        check(&mut bare, "vlan10", &plain, &both, ToServer);
        check(&mut bare, "vlan50", &plain, &[], DroppedUnknown);
        check(&mut bare, "vlan40", &plain, &[], DroppedNoAddress);
        check(&mut bare, "vlan10", &plain[..100], &[], DroppedTooShort);
        check(&mut bare, "vlan10", &message(7, "", 0, &[]), &[], DroppedMalformed);
        check(&mut bare, "vlan10", &message(REQUEST, "", 16, &[]), &[], DroppedHops);
        check(&mut bare, "vlan10", &message(REQUEST, "10.0.20.254", 1, &[]), &[], DroppedSpoofed);
        // The giaddr of another relay is kept.
        let relayed = message(REQUEST, "10.7.0.1", 3, &[]);
        check(&mut bare, "vlan20", &relayed, &["192.0.2.1 gi 10.7.0.1 hops 4 info -"], ToServer);
        // Relay information of an untrusted client is rejected without `option` as well.
        let with = message(REQUEST, "", 0, CIRCUIT_X);
        check(&mut bare, "vlan10", &with, &[], DroppedUntrusted);
        // Across VRFs the relay adds the client's subnet, and its own address as the one that the client uses for its server.
        let link = "192.0.2.9@up gi 203.0.113.1 hops 1 info vlan30 link [10, 0, 30, 254]";
        check(&mut bare, "vlan30", &plain, &[link], ToServer);
    }

    #[test]
    fn information() {
        use Counter::*;
        let plain = message(REQUEST, "", 0, &[53, 1, 1]);
        let with = message(REQUEST, "", 0, CIRCUIT_X);
        let relayed = message(REQUEST, "10.7.0.1", 3, CIRCUIT_X);
        let bare = message(REQUEST, "10.7.0.1", 3, &[]);
        for (policy, trusted, relayed_on) in [
            (Policy::Replace, Some("vlan20"), Some("vlan20")),
            (Policy::Keep, Some("x"), Some("x")),
            (Policy::Drop, None, None),
        ] {
            let mut relay = relay(true, policy);
            let to = |gi: &str, hops: u8, info: &str| format!("192.0.2.1 gi {gi} hops {hops} info {info}");
            let mut expect = |bytes: &[u8], gi: &str, hops, info: Option<&str>| {
                let want: Vec<String> = info.map(|info| to(gi, hops, info)).into_iter().collect();
                let want: Vec<&str> = want.iter().map(String::as_str).collect();
                let counter = if want.is_empty() { DroppedPolicy } else { ToServer };
                check(&mut relay, "vlan20", bytes, &want, counter);
            };
            expect(&plain, "10.0.20.254", 1, Some("vlan20"));
            expect(&with, "10.0.20.254", 1, trusted);
            expect(&relayed, "10.7.0.1", 4, relayed_on);
            expect(&bare, "10.7.0.1", 4, Some("-"));
            check(&mut relay, "vlan10", &with, &[], DroppedUntrusted);
        }
        // If there is no room for the relay information, the message is sent without.
        let long: Vec<u8> = (0..5).flat_map(|_| [[224, 230].to_vec(), vec![0; 230]].concat()).collect();
        let long = message(REQUEST, "", 0, &[long, [225, 50].to_vec(), vec![0; 50]].concat());
        let mut relay = relay(true, Policy::Replace);
        check(&mut relay, "vlan20", &long, &["192.0.2.1 gi 10.0.20.254 hops 1 info -"], OptionTooLong);
    }

    #[test]
    fn replies() {
        use Counter::*;
        let mut relay = relay(true, Policy::Replace);
        let circuit =
            |name: &str| [&[82, name.len() as u8 + 2, 1, name.len() as u8], name.as_bytes()].concat();
        let given = |giaddr: &str, options: &[u8], flags: u8, yiaddr: [u8; 4]| {
            let mut bytes = message(REPLY, giaddr, 0, options);
            bytes[10] = flags;
            bytes[16..20].copy_from_slice(&yiaddr);
            bytes
        };
        let lease = [10, 0, 10, 5];
        let unicast = "vlan10 0200.0000.0009 10.0.10.5 gi 10.0.10.254 hops 0 info -";
        let ours = given("10.0.10.254", &circuit("vlan10"), 0, lease);
        check(&mut relay, "vlan20", &ours, &[unicast], ToClient);
        check(&mut relay, "vlan20", &given("10.0.10.254", &[], 0, lease), &[unicast], ToClient);
        let all = "vlan10 all gi 10.0.10.254 hops 0 info -";
        check(&mut relay, "x", &given("10.0.10.254", &[], 0x80, lease), &[all], ToClient);
        check(&mut relay, "x", &given("10.0.10.254", &[], 0, [0; 4]), &[all], ToClient);
        // The server is in another VRF: only the circuit ID identifies the client's interface.
        let crossed = given("203.0.113.1", &circuit("vlan30"), 0x80, lease);
        let far = "vlan30 all gi 203.0.113.1 hops 0 info -";
        check_from(&mut relay, "192.0.2.9@up", "x", &crossed, &[far], ToClient);
        check(&mut relay, "x", &given("203.0.113.1", &[], 0, lease), &[], DroppedUnknown);
        // A circuit ID of this relay with another interface's address, and an address that no interface has.
        check(&mut relay, "x", &given("10.7.0.1", &circuit("vlan10"), 0, lease), &[], DroppedUnknown);
        check(&mut relay, "x", &given("0.0.0.0", &[], 0, lease), &[], DroppedUnknown);
        // A sender that is not a server of the client's interface, or is in another VRF than that server, is not
        // accepted.
        check_from(&mut relay, "192.0.2.2", "vlan20", &ours, &[unicast], ToClient);
        for stranger in ["192.0.2.9", "10.0.10.66", "0.0.0.0", "192.0.2.1@up"] {
            check_from(&mut relay, stranger, "vlan10", &ours, &[], DroppedNotServer);
        }
        check_from(&mut relay, "192.0.2.9", "x", &crossed, &[], DroppedNotServer);
        // Relay information that this relay did not add is not removed.
        let foreign = given("10.0.10.254", CIRCUIT_X, 0x80, lease);
        check(&mut relay, "x", &foreign, &["vlan10 all gi 10.0.10.254 hops 0 info x"], ToClient);
    }
}
