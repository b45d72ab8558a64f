//! A simulated VLAN for tests of snooping: messages of hosts and routers, byte by byte, and a [`Sim`] with a clock and the plane's
//! entries.

use lanyard_snoop::{Action, Config, Family, Flood, Snooping, VlanConfig};
use lanyard_types::{MacAddr, PortId, PortSet, VlanId};
use lanyard_wire::ip::ones_complement_sum;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub const VLAN: VlanId = VlanId::DEFAULT;
pub const SWITCH: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub const GROUP: &str = "239.1.1.1";

pub fn p(id: u16) -> PortId {
    PortId::new(id).unwrap()
}

pub fn set(ports: &[u16]) -> PortSet {
    ports.iter().map(|id| p(*id)).collect()
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn v4(text: &str) -> [u8; 4] {
    text.parse::<Ipv4Addr>().unwrap().octets()
}

pub fn v6(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().unwrap().octets()
}

/// The address of host N.
pub fn host(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, n])
}

pub fn with_checksum(mut message: Vec<u8>, pseudo: &[u8]) -> Vec<u8> {
    let sum = !ones_complement_sum(&[pseudo, &message].concat());
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// A frame with an IPv4 packet of this protocol.
pub fn ipv4(mac: MacAddr, source: &str, to: &str, ttl: u8, protocol: u8, payload: Vec<u8>) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, ttl, protocol, 0, 0];
    packet.extend(v4(source));
    packet.extend(v4(to));
    let sum = !ones_complement_sum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    lanyard_wire::Builder::new(MacAddr([1, 0, 0x5e, 0, 0, 1]), mac).ethertype(0x0800).payload(&packet).build()
}

pub fn igmp(n: u8, to: &str, message: Vec<u8>) -> Vec<u8> {
    ipv4(host(n), &format!("10.0.0.{n}"), to, 1, 2, with_checksum(message, &[]))
}

pub fn old(kind: u8, n: u8, to: &str, group: &str) -> Vec<u8> {
    igmp(n, to, [&[kind, 0, 0, 0][..], &v4(group)].concat())
}

pub fn join_1(n: u8, group: &str) -> Vec<u8> {
    old(0x12, n, group, group)
}

pub fn join_2(n: u8, group: &str) -> Vec<u8> {
    old(0x16, n, group, group)
}

pub fn leave_2(n: u8, group: &str) -> Vec<u8> {
    old(0x17, n, "224.0.0.2", group)
}

/// A report of version 3 with one record.
pub fn report_3(n: u8, kind: u8, group: &str, sources: &[&str]) -> Vec<u8> {
    let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources.len() as u8];
    message.extend(v4(group));
    sources.iter().for_each(|source| message.extend(v4(source)));
    igmp(n, "224.0.0.22", message)
}

pub const IN: u8 = 1;
pub const EX: u8 = 2;
pub const TO_IN: u8 = 3;
pub const TO_EX: u8 = 4;
pub const ALLOW: u8 = 5;
pub const BLOCK: u8 = 6;

/// A general query of version 2 by a router.
pub fn query(source: &str) -> Vec<u8> {
    let message = with_checksum(vec![0x11, 100, 0, 0, 0, 0, 0, 0], &[]);
    ipv4(MacAddr([2, 0, 0, 0, 9, 9]), source, "224.0.0.1", 1, 2, message)
}

/// A frame with an ICMPv6 message behind the router alert option.
pub fn icmpv6(n: u8, source: &str, to: &str, hops: u8, message: Vec<u8>, alert: &[u8; 8]) -> Vec<u8> {
    let mut pseudo = [v6(source), v6(to)].concat();
    pseudo.extend((message.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, 58]);
    let message = with_checksum(message, &pseudo);
    let len = (8 + message.len()) as u16;
    let mut packet = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, 0, hops];
    packet.extend(v6(source));
    packet.extend(v6(to));
    packet.extend(alert);
    packet.extend(message);
    lanyard_wire::Builder::new(MacAddr([0x33, 0x33, 0, 0, 0, 1]), host(n))
        .ethertype(0x86dd)
        .payload(&packet)
        .build()
}

pub const ALERT: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];

pub fn mld(n: u8, to: &str, message: Vec<u8>) -> Vec<u8> {
    icmpv6(n, &format!("fe80::{n}"), to, 1, message, &ALERT)
}

pub fn mld_1(kind: u8, n: u8, to: &str, group: &str) -> Vec<u8> {
    mld(n, to, [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &v6(group)].concat())
}

pub fn mld_2(n: u8, kind: u8, group: &str, sources: &[&str]) -> Vec<u8> {
    let mut message = vec![143, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources.len() as u8];
    message.extend(v6(group));
    sources.iter().for_each(|source| message.extend(v6(source)));
    mld(n, "ff02::16", message)
}

/// A frame that was sent.
#[derive(Debug, Clone)]
pub struct Sent {
    pub at: u64,
    pub ports: PortSet,
    pub frame: Vec<u8>,
}

impl Sent {
    /// The type of its IGMP or ICMPv6 message.
    pub fn kind(&self) -> u8 {
        if self.frame[12..14] == [0x08, 0x00] {
            self.frame[14 + usize::from(self.frame[14] & 15) * 4]
        } else {
            self.frame[62]
        }
    }
    /// The group of an IGMP message.
    pub fn group(&self) -> Ipv4Addr {
        let at = 14 + usize::from(self.frame[14] & 15) * 4 + 4;
        Ipv4Addr::new(self.frame[at], self.frame[at + 1], self.frame[at + 2], self.frame[at + 3])
    }
}

/// Snooping with a clock and the plane's entries as the actions have made them.
pub struct Sim {
    pub snooping: Snooping,
    pub config: Config,
    pub now: u64,
    pub entries: BTreeMap<(IpAddr, Option<IpAddr>), PortSet>,
    pub routers: BTreeMap<Family, PortSet>,
    pub sent: Vec<Sent>,
    pub full: Vec<Option<PortId>>,
    pub flooded: BTreeMap<Family, Flood>,
}

impl Sim {
    pub fn new() -> Self {
        Self::with(|_| {})
    }
    pub fn with(change: impl FnOnce(&mut VlanConfig)) -> Self {
        let mut settings = VlanConfig { ports: set(&[1, 2, 3, 4]), ..VlanConfig::default() };
        change(&mut settings);
        let vlans = [((VLAN, Family::V4), settings.clone()), ((VLAN, Family::V6), settings)].into();
        let mut sim = Self {
            snooping: Snooping::new(),
            config: Config { mac: SWITCH, vlans },
            now: 1000,
            entries: BTreeMap::new(),
            routers: BTreeMap::new(),
            sent: Vec::new(),
            full: Vec::new(),
            flooded: BTreeMap::new(),
        };
        sim.configure();
        sim
    }
    pub fn settings(&mut self) -> &mut VlanConfig {
        self.config.vlans.get_mut(&(VLAN, Family::V4)).unwrap()
    }
    pub fn configure(&mut self) {
        self.snooping.configure(self.now, self.config.clone());
        self.take();
    }
    pub fn take(&mut self) {
        while let Some(action) = self.snooping.poll_action() {
            match action {
                Action::Group { group, source, ports: Some(ports), .. } => {
                    let was = self.entries.insert((group, source), *ports.clone());
                    assert_ne!(was, Some(*ports), "nothing is announced twice");
                }
                Action::Group { group, source, ports: None, .. } => {
                    assert!(self.entries.remove(&(group, source)).is_some(), "what goes was there");
                }
                Action::Routers { family, ports, .. } => drop(self.routers.insert(family, *ports)),
                Action::Send { ports, frame, .. } => {
                    self.sent.push(Sent { at: self.now, ports: *ports, frame })
                }
                Action::Flood { family, what, .. } => {
                    let was = self.flooded.insert(family, what);
                    assert_ne!(was.unwrap_or_default(), what, "nothing is announced twice");
                }
                Action::Full { port, .. } => self.full.push(port),
            }
        }
    }
    pub fn receive(&mut self, port: u16, frame: &[u8]) {
        self.snooping.handle_frame(self.now, VLAN, p(port), frame).unwrap();
        self.take();
    }
    pub fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(at) = self.snooping.next_timeout().filter(|at| *at <= end) {
            assert!(at >= self.now, "a deadline in the past makes the caller spin");
            self.now = at;
            self.snooping.handle_timer(at);
            self.take();
            assert!(self.snooping.next_timeout().is_none_or(|next| next > at), "a deadline stays due");
        }
        self.now = end;
    }
    /// The ports of a group, for sources that no member names.
    pub fn ports(&self, group: &str) -> Option<PortSet> {
        self.entries.get(&(ip(group), None)).cloned()
    }
    pub fn from(&self, group: &str, source: &str) -> Option<PortSet> {
        self.entries.get(&(ip(group), Some(ip(source)))).cloned()
    }
    pub fn sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }
}
