//! A rule as the operator writes it, and how it becomes conditions ([`Rule::lower`]).
//!
//! Read first: Cisco IOS Security Command Reference, `permit` and `deny` of `ip access-list extended`. Invariant: a rule
//! with several addresses or services (object groups) becomes one flat rule for each combination, in order.

use crate::condition::{Condition, FlatRule, Verdict};
use crate::fields::{Address, PortMatch, TcpMatch};
use crate::groups::{Groups, Service};
use crate::key::{DST, ETHERTYPE, L4_DST, L4_SRC, LATER_FRAGMENT, PROTOCOL, SRC, TCP_FLAGS, TOS, VLAN};
use lanyard_types::{MacAddr, VlanId};
use std::collections::BTreeMap;

/// The decision of a rule about the frames that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// They are dropped.
    Deny,
    /// They pass.
    Permit,
}

impl Action {
    /// The keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Permit => "permit",
        }
    }
}

/// A rule of a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Its decision.
    pub action: Action,
    /// The frames that it matches.
    pub matches: Matches,
    /// `log` or `log-input`: matches are reported in the log.
    pub log: bool,
    /// `log-input`: the log also names the interface that received the packet, and the frame's source address.
    pub log_input: bool,
    /// `time-range`: the rule applies only while the range is active.
    pub time_range: Option<String>,
}

/// The frames that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Matches {
    /// IP packets.
    Ip(IpMatch),
    /// Other frames, by their MAC addresses.
    Mac(MacMatch),
}

/// The packets that a rule matches. All conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct IpMatch {
    /// The protocol.
    pub protocol: Protocol,
    /// The source address.
    pub src: Address,
    /// The source port; of TCP, UDP and SCTP only.
    pub src_port: Option<PortMatch>,
    /// The destination address.
    pub dst: Address,
    /// The destination port; of TCP, UDP and SCTP only.
    pub dst_port: Option<PortMatch>,
    /// The type of an ICMP or IGMP message, and the code of an ICMP message.
    pub icmp: Option<(u8, Option<u8>)>,
    /// The flags of a TCP segment.
    pub tcp: Option<TcpMatch>,
    /// `dscp`, 0..=63.
    pub dscp: Option<u8>,
    /// `precedence`, 0..=7.
    pub precedence: Option<u8>,
    /// `fragments`: fragments other than the first.
    pub fragments: bool,
}

/// The protocol of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// `ip` or `ipv6`: any.
    #[default]
    Any,
    /// This protocol.
    Number(u8),
    /// The protocols and ports of an object group.
    Group(String),
}

/// The frames that a rule of a MAC list matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct MacMatch {
    /// The source address, and the bits that may differ.
    pub src: Option<(MacAddr, MacAddr)>,
    /// The destination address.
    pub dst: Option<(MacAddr, MacAddr)>,
    /// The EtherType, and the bits that may differ.
    pub ethertype: Option<(u16, u16)>,
    /// `vlan`.
    pub vlan: Option<VlanId>,
    /// `cos`, 0..=7.
    pub cos: Option<u8>,
}

type Conditions = BTreeMap<u8, Condition>;

/// Adds a condition, unless it accepts every value.
fn put(to: &mut Conditions, half: usize, condition: Condition) {
    let all = match &condition {
        Condition::Mask { mask, .. } => *mask == 0,
        Condition::Ranges(ranges) => *ranges == [(0, u16::MAX)],
    };
    if !all {
        to.insert(half as u8, condition);
    }
}

fn put_masked(to: &mut Conditions, first: usize, values: &[u8], masks: &[u8]) {
    for (n, (value, mask)) in values.chunks(2).zip(masks.chunks(2)).enumerate() {
        let both = |two: &[u8]| u16::from_be_bytes([two[0], two[1]]);
        let mask = both(mask);
        put(to, first + n, Condition::Mask { value: both(value) & mask, mask });
    }
}

/// The conditions for `address`: one set for each address that it stands for.
fn expand(address: &Address, first: usize, groups: &Groups) -> Vec<Conditions> {
    let mut one = Conditions::new();
    match address {
        Address::Any => {}
        Address::V4(address, wildcard) => {
            put_masked(&mut one, first, &address.octets(), &wildcard.octets().map(|octet| !octet));
        }
        Address::V6(net) => {
            put_masked(&mut one, first, &net.addr().octets(), &net.netmask().octets());
        }
        Address::Group(name) => {
            let members = groups.networks.get(name).map(|group| group.members.as_slice());
            let members = members.unwrap_or_default().iter();
            return members.flat_map(|member| expand(&member.address(), first, groups)).collect();
        }
    }
    vec![one]
}

impl IpMatch {
    /// The conditions on the protocol, one set for each service that the rule stands for; for a service group also those on
    /// its ports.
    fn services(&self, groups: &Groups) -> Vec<Conditions> {
        let protocol = |number: u8| (PROTOCOL as u8, Condition::Mask { value: number.into(), mask: 0xffff });
        let base = |number: Option<u8>| number.map(protocol).into_iter().collect::<Conditions>();
        match &self.protocol {
            Protocol::Group(name) => {
                let members = groups.services.get(name).map(|group| group.members.as_slice());
                let of = |service: &Service| {
                    let mut all = base(service.protocol);
                    let ports = [(L4_SRC, &service.src_port), (L4_DST, &service.dst_port)];
                    for (half, port) in ports {
                        port.iter().for_each(|port| put(&mut all, half, port.condition()));
                    }
                    all
                };
                members.unwrap_or_default().iter().map(of).collect()
            }
            Protocol::Any => vec![base(None)],
            Protocol::Number(number) => vec![base(Some(*number))],
        }
    }

    fn common(&self) -> Conditions {
        let mut all = Conditions::new();
        for (half, port) in [(L4_SRC, &self.src_port), (L4_DST, &self.dst_port)] {
            port.iter().for_each(|port| put(&mut all, half, port.condition()));
        }
        if let Some((kind, code)) = self.icmp {
            let (value, mask) = (u16::from(kind) << 8 | u16::from(code.unwrap_or(0)), 0xff00);
            put(
                &mut all,
                L4_SRC,
                Condition::Mask { value, mask: if code.is_some() { 0xffff } else { mask } },
            );
        }
        self.tcp.iter().for_each(|tcp| put(&mut all, TCP_FLAGS, tcp.condition()));
        let (mut value, mut mask) = (0, 0);
        if let Some(dscp) = self.dscp {
            (value, mask) = (u16::from(dscp) << 2, 0xfc);
        }
        if let Some(precedence) = self.precedence {
            (value, mask) = (value | u16::from(precedence) << 5, mask | 0xe0);
        }
        if self.fragments {
            (value, mask) = (value | LATER_FRAGMENT, mask | LATER_FRAGMENT);
        }
        put(&mut all, TOS, Condition::Mask { value, mask });
        all
    }
}

impl MacMatch {
    fn conditions(&self) -> Conditions {
        let mut all = Conditions::new();
        for (first, address) in [(SRC, self.src), (DST, self.dst)] {
            if let Some((address, wildcard)) = address {
                put_masked(&mut all, first, &address.0, &wildcard.0.map(|octet| !octet));
            }
        }
        if let Some((value, wildcard)) = self.ethertype {
            put(&mut all, ETHERTYPE, Condition::Mask { value: value & !wildcard, mask: !wildcard });
        }
        let (mut value, mut mask) = (0, 0);
        if let Some(vlan) = self.vlan {
            (value, mask) = (vlan.get(), 0xfff);
        }
        if let Some(cos) = self.cos {
            (value, mask) = (value | u16::from(cos) << 13, mask | 0xe000);
        }
        put(&mut all, VLAN, Condition::Mask { value, mask });
        all
    }
}

impl Rule {
    /// True if the rule refers to the network or service group `name`.
    #[must_use]
    pub fn names_group(&self, name: &str) -> bool {
        let Matches::Ip(ip) = &self.matches else { return false };
        let is_address = |address: &Address| matches!(address, Address::Group(group) if group == name);
        is_address(&ip.src)
            || is_address(&ip.dst)
            || matches!(&ip.protocol, Protocol::Group(group) if group == name)
    }
    /// A rule without further conditions.
    #[must_use]
    pub const fn new(action: Action, matches: Matches) -> Self {
        Self { action, matches, log: false, log_input: false, time_range: None }
    }

    /// The flat rules that this one stands for, in order, for list number `list` of a [`crate::PlaneList`]. An object group
    /// that does not exist has no members; a rule with such a group gives no flat rule.
    #[must_use]
    pub fn lower(&self, seq: u32, list: u16, groups: &Groups) -> Vec<FlatRule> {
        let sets = match &self.matches {
            Matches::Mac(mac) => vec![mac.conditions()],
            Matches::Ip(ip) => {
                let common = ip.common();
                let (services, srcs, dsts) =
                    (ip.services(groups), expand(&ip.src, SRC, groups), expand(&ip.dst, DST, groups));
                let mut all = Vec::new();
                for service in &services {
                    for src in &srcs {
                        for dst in &dsts {
                            // One rule above the maximum suffices for the list to be refused.
                            if all.len() <= crate::MAX_RULES {
                                let parts = [service, src, dst, &common].into_iter().flatten();
                                all.push(parts.map(|(half, c)| (*half, c.clone())).collect());
                            }
                        }
                    }
                }
                all
            }
        };
        let permits = self.action == Action::Permit;
        let verdict = if permits { Verdict::Permit } else { Verdict::Deny };
        let flat = |conditions: Conditions| FlatRule {
            verdict,
            fragments: permits,
            log: self.log,
            log_input: self.log_input,
            list,
            seq,
            conditions: conditions.into_iter().collect(),
        };
        sets.into_iter().map(flat).collect()
    }
}
