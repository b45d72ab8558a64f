//! Rules and their parts as text in the grammar of IOS, which `text.rs` parses.

use crate::fields::{Address, PortMatch, TcpMatch};
use crate::groups::{NetworkMember, Service};
use crate::list::Kind;
use crate::names::{self, Names};
use crate::rule::{IpMatch, MacMatch, Matches, Protocol, Rule};
use crate::text::port_names;
use lanyard_types::MacAddr;
use std::net::Ipv4Addr;

fn number_or_name<T: PartialEq + ToString>(names: Names<T>, value: &T) -> String {
    names::name(names, value).map_or_else(|| value.to_string(), str::to_owned)
}

impl PortMatch {
    fn text(&self, names: Names<u16>) -> String {
        let name = |port: &u16| number_or_name(names, port);
        let list = |ports: &[u16]| ports.iter().map(name).collect::<Vec<_>>().join(" ");
        match self {
            Self::Eq(ports) => format!("eq {}", list(ports)),
            Self::Neq(ports) => format!("neq {}", list(ports)),
            Self::Lt(port) => format!("lt {}", name(port)),
            Self::Gt(port) => format!("gt {}", name(port)),
            Self::Range(low, high) => format!("range {} {}", name(low), name(high)),
        }
    }
}

impl Address {
    fn text(&self) -> String {
        match self {
            Self::Any => "any".into(),
            Self::V4(host, Ipv4Addr::UNSPECIFIED) => format!("host {host}"),
            Self::V4(address, wildcard) => format!("{address} {wildcard}"),
            Self::V6(net) if net.prefix_len() == 128 => format!("host {}", net.addr()),
            Self::V6(net) => net.to_string(),
            Self::Group(name) => format!("object-group {name}"),
        }
    }
}

impl NetworkMember {
    /// The member's line in an object group.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Host(host) => format!("host {host}"),
            Self::Net(net, mask) => format!("{net} {mask}"),
            Self::V6(net) => net.to_string(),
        }
    }
}

impl Service {
    /// The member's line in an object group.
    #[must_use]
    pub fn text(&self) -> String {
        let names = self.protocol.and_then(port_names).unwrap_or(&[]);
        let mut text = self.protocol.map_or("ip".into(), |number| number_or_name(names::PROTOCOLS, &number));
        self.src_port.iter().for_each(|port| text += &format!(" source {}", port.text(names)));
        self.dst_port.iter().for_each(|port| text += &format!(" {}", port.text(names)));
        text
    }
}

impl TcpMatch {
    fn text(self) -> String {
        let each = |sign: &str, flags: u8| {
            let of = names::TCP_FLAGS.iter().filter(|(_, bit)| flags & bit != 0);
            of.map(|(name, _)| format!("{sign}{name}")).collect::<Vec<_>>()
        };
        match self {
            Self::Established => "established".into(),
            Self::Any(set, 0) => each("", set).join(" "),
            Self::All(set, clear) => {
                format!("match-all {}", [each("+", set), each("-", clear)].concat().join(" "))
            }
            Self::Any(set, clear) => {
                format!("match-any {}", [each("+", set), each("-", clear)].concat().join(" "))
            }
        }
    }
}

impl IpMatch {
    fn text(&self, kind: Kind) -> String {
        let table = if kind == Kind::Ipv6 { names::PROTOCOLS6 } else { names::PROTOCOLS };
        let mut words = vec![match &self.protocol {
            Protocol::Any => if kind == Kind::Ipv6 { "ipv6" } else { "ip" }.to_owned(),
            Protocol::Number(number) => number_or_name(table, number),
            Protocol::Group(name) => format!("object-group {name}"),
        }];
        let number = if let Protocol::Number(number) = self.protocol { Some(number) } else { None };
        let ports = number.and_then(port_names).unwrap_or(&[]);
        words.push(self.src.text());
        words.extend(self.src_port.iter().map(|port| port.text(ports)));
        words.push(self.dst.text());
        words.extend(self.dst_port.iter().map(|port| port.text(ports)));
        if let Some(message) = self.icmp {
            let table = if kind == Kind::Ipv6 { names::ICMPV6 } else { names::ICMP };
            words.push(match message {
                (igmp, _) if number == Some(2) => number_or_name(names::IGMP, &igmp),
                known => match (names::name(table, &known), known) {
                    (Some(name), _) => name.to_owned(),
                    (None, (kind, Some(code))) => format!("{kind} {code}"),
                    (None, (kind, None)) => kind.to_string(),
                },
            });
        }
        words.extend(self.tcp.iter().map(|tcp| tcp.text()));
        words.extend(self.dscp.iter().map(|dscp| format!("dscp {}", number_or_name(names::DSCP, dscp))));
        let precedence = self.precedence.iter();
        words.extend(
            precedence.map(|value| format!("precedence {}", number_or_name(names::PRECEDENCE, value))),
        );
        words.extend(self.fragments.then(|| "fragments".to_owned()));
        words.join(" ")
    }
}

impl MacMatch {
    fn text(&self) -> String {
        let address = |of: &Option<(MacAddr, MacAddr)>| match of {
            None => "any".to_owned(),
            Some((host, wildcard)) if wildcard.is_zero() => format!("host {host}"),
            Some((address, wildcard)) => format!("{address} {wildcard}"),
        };
        let mut words = vec![address(&self.src), address(&self.dst)];
        words.extend(self.ethertype.iter().map(|(value, wildcard)| {
            let name = names::name(names::ETHERTYPES, value).filter(|_| *wildcard == 0);
            name.map_or_else(|| format!("0x{value:X} 0x{wildcard:X}"), str::to_owned)
        }));
        words.extend(self.vlan.iter().map(|vlan| format!("vlan {vlan}")));
        words.extend(self.cos.iter().map(|cos| format!("cos {cos}")));
        words.join(" ")
    }
}

impl Rule {
    /// The text in the running configuration, without the sequence number.
    #[must_use]
    pub fn text(&self, kind: Kind) -> String {
        self.render(kind, false)
    }
    /// The text in `show access-lists`, without sequence number and counter.
    #[must_use]
    pub fn shown(&self, kind: Kind) -> String {
        self.render(kind, true)
    }

    fn render(&self, kind: Kind, shown: bool) -> String {
        let matches = match (&self.matches, kind) {
            (Matches::Ip(ip), Kind::Standard) => match &ip.src {
                Address::V4(host, Ipv4Addr::UNSPECIFIED) => host.to_string(),
                Address::V4(address, wildcard) if shown => format!("{address}, wildcard bits {wildcard}"),
                other => other.text(),
            },
            (Matches::Ip(ip), _) => ip.text(kind),
            (Matches::Mac(mac), _) => mac.text(),
        };
        let mut text = format!("{} {matches}", self.action.name());
        self.time_range.iter().for_each(|name| text += &format!(" time-range {name}"));
        if self.log {
            text += if self.log_input { " log-input" } else { " log" };
        }
        text
    }
}
