//! guard: first-hop security. DHCP snooping sends DHCP messages to the control plane, which inspects them and sends them on
//! itself; messages of servers at ports that are not trusted are dropped here. ARP inspection and IP source guard compare
//! the addresses of hosts with the bindings of their port (`tables::bindings`). RA guard and DHCPv6 guard drop what only
//! routers and servers send (RFC 6105, RFC 7113, RFC 7610). ND inspection lets messages of neighbour discovery pass that a
//! binding explains, and sends others to the control plane, which learns from them and sends them on (RFC 6620); IPv6 source
//! guard compares the sources of packets with the same bindings.
//!
//! Everything but the inspection of those messages is decided here, so it holds at full speed and while no daemon runs.
//! Invariant: a packet whose headers cannot be read as far as a check needs them does not pass the check: a header behind
//! too many extension headers, or in a later fragment than the first (RFC 7113, 3).
//!
//! A port with 802.1X is closed, or open for the hosts of its entries that the control plane has made in the FDB. Frames of others
//! are dropped before any other check. EAPOL does not come here: the stage `trap` has sent it up. A closed port is a member of no
//! VLAN, so nothing leaves by it; `PortState::private` lets it receive in its PVID nevertheless.
//!
//! A secondary private VLAN has the settings and the bindings of its primary VLAN.
//!
//! The stage precedes `learn`: the source of a frame that it drops is not learned, nor is that of a DHCP message, whose sender
//! may have to wait for an address of its own.

use super::Arrival;
use super::parse::Parsed;
use super::route;
use super::trap::ARP;
use super::vlan_ingress::Class;
use crate::Timestamp;
use crate::state::{PlaneState, PortKind, PortState, StpState, TrapRate};
use crate::tables::Tables;
use crate::tables::fdb::FdbKind;
use crate::tables::trap::TokenBucket;
use crate::trace::{Fact, Notes, Verdict};
use lanyard_acl::key::{self, Header, Key};
use lanyard_types::{
    ArpLimit, ArpValidation, BindingKey, DropReason, MacAddr, PortGuard, PortId, PortLock, Rng, Stage,
    TrapReason, VerifySource, VlanGuard, VlanId,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const UDP: u16 = 17;
const ICMPV6: u16 = 58;
/// The port of DHCP servers and relays.
const SERVER: u16 = 67;
/// The port of DHCP clients.
const CLIENT: u16 = 68;
/// The port of DHCPv6 clients.
const CLIENT_V6: u16 = 546;
/// ICMPv6: a router advertisement (RFC 4861, 4.2), a redirect (4.5).
const ROUTER_ADVERTISEMENT: u16 = 134;
const REDIRECT: u16 = 137;
/// ICMPv6: a router solicitation (RFC 4861, 4.1), a neighbour solicitation (4.3), a neighbour advertisement (4.4).
const ROUTER_SOLICITATION: u8 = 133;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// The length of an IPv6 header.
const IPV6_HEADER: usize = 40;
/// The hop limit with which hosts accept neighbour discovery (RFC 4861, 3.1).
const HOP_LIMIT: u8 = 255;

/// The rates of a port that the stage polices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rate {
    /// ARP packets.
    Arp,
    /// DHCP messages.
    Dhcp,
}

impl Rate {
    /// The reason for which frames above the rate are dropped.
    #[must_use]
    pub const fn reason(self) -> DropReason {
        match self {
            Self::Arp => DropReason::ArpRate,
            Self::Dhcp => DropReason::DhcpRate,
        }
    }
    /// The rate and the burst at a port; `None`: no limit.
    const fn bucket(self, guard: &PortGuard) -> Option<(u32, u32)> {
        match self {
            Self::Arp => guard.arp_bucket(),
            Self::Dhcp => guard.dhcp_bucket(),
        }
    }
}

/// Judges a frame that was received in a VLAN. Sets `rate` to the rate of first-hop security against which the frame counts, if
/// there is one.
pub(super) fn run(
    tables: &Tables,
    arrival: &Arrival<'_>,
    ingress: &PortState,
    frame: &Parsed,
    class: &Class,
    rate: &mut Option<Rate>,
    notes: &mut Notes,
) -> Result<(), Verdict> {
    let vlan = tables.vlans.get(class.shared).map(|vlan| vlan.guard).unwrap_or_default();
    let port = of_port(ingress);
    if is_locked(tables, arrival, frame, class, port.lock) {
        return Err(Verdict::Dropped(DropReason::Unauthorized));
    }
    if vlan.is_off() && !port.no_routers && !port.no_dhcpv6_servers {
        return Ok(());
    }
    let ethertype = route::inner_ethertype(arrival, frame);
    let packet = arrival.bytes.get(route::l3_offset(frame)..).unwrap_or_default();
    let judged = Judged { tables, at: arrival.port, port, vlan, class, frame, packet };
    match ethertype {
        ARP if vlan.arp => {
            *rate = port.arp_bucket().map(|_| Rate::Arp);
            if !port.arp_trust && !judged.arp() {
                return Err(Verdict::Dropped(DropReason::ArpInspection));
            }
            Ok(())
        }
        key::IPV4 if vlan.dhcp => {
            let traps = judged.ipv4(rate).map_err(Verdict::Dropped)?;
            trap(traps, TrapReason::Dhcp, frame.dst, notes)
        }
        key::IPV6 => {
            let traps = judged.ipv6().map_err(Verdict::Dropped)?;
            trap(traps, TrapReason::Nd, frame.dst, notes)
        }
        _ => Ok(()),
    }
}

/// Sends the frame to the control plane if `traps`.
fn trap(traps: bool, reason: TrapReason, dst: MacAddr, notes: &mut Notes) -> Result<(), Verdict> {
    if !traps {
        return Ok(());
    }
    notes.say(Stage::Guard, || Fact::Trapped { dst, reason });
    Err(Verdict::Trapped(reason))
}

/// True if the port is not open for the frame's source.
fn is_locked(tables: &Tables, arrival: &Arrival<'_>, frame: &Parsed, class: &Class, lock: PortLock) -> bool {
    let is_host = || {
        let found = tables.fdb.get(class.shared, frame.src);
        found.is_some_and(|found| found.port == Some(arrival.port) && found.kind != FdbKind::Dynamic)
    };
    match lock {
        PortLock::Open => false,
        PortLock::Hosts => !is_host(),
        PortLock::Closed => true,
    }
}

/// The settings of a port. The switch's own stack is trusted.
fn of_port(port: &PortState) -> PortGuard {
    match port.kind {
        PortKind::Svi(_) => {
            PortGuard { dhcp_trust: true, arp_trust: true, nd_trust: true, ..PortGuard::default() }
        }
        _ => port.stages.guard,
    }
}

struct Judged<'a> {
    tables: &'a Tables,
    at: PortId,
    port: PortGuard,
    vlan: VlanGuard,
    class: &'a Class,
    frame: &'a Parsed,
    packet: &'a [u8],
}

impl Judged<'_> {
    fn bound(&self, address: impl Into<IpAddr>) -> Option<MacAddr> {
        let address = address.into();
        self.tables.bindings.get(&BindingKey { port: self.at, vlan: self.class.shared, address })
    }
    /// True if the frame's source has a binding for the address.
    fn explains(&self, address: Ipv6Addr) -> bool {
        self.bound(address) == Some(self.frame.src)
    }

    /// True if an ARP packet (RFC 826) passes inspection.
    fn arp(&self) -> bool {
        let Some(arp) = self.packet.first_chunk::<28>() else { return false };
        let op = u16::from_be_bytes([arp[6], arp[7]]);
        if arp[..6] != [0, 1, 8, 0, 6, 4] || !matches!(op, 1 | 2) {
            return false;
        }
        let mac =
            |at: usize| MacAddr([arp[at], arp[at + 1], arp[at + 2], arp[at + 3], arp[at + 4], arp[at + 5]]);
        let address = |at: usize| Ipv4Addr::new(arp[at], arp[at + 1], arp[at + 2], arp[at + 3]);
        let (sender, reply, validate) = (address(14), op == 2, self.vlan.validate);
        let odd =
            |address: Ipv4Addr| address.is_unspecified() || address.is_broadcast() || address.is_multicast();
        if (validate.src_mac && mac(8) != self.frame.src)
            || (validate.dst_mac && reply && mac(18) != self.frame.dst)
            || (validate.ip && odd(sender) && !(validate.allow_zeros && sender.is_unspecified()))
            || (validate.ip && reply && odd(address(24)))
        {
            return false;
        }
        // A probe (RFC 5227, 2.1.1) claims no address, and enters no cache.
        (sender.is_unspecified() && !reply) || self.bound(sender) == Some(mac(8))
    }

    /// Judges an IPv4 packet; true: it is a DHCP message for the control plane.
    fn ipv4(&self, rate: &mut Option<Rate>) -> Result<bool, DropReason> {
        let verifies = self.port.verify != VerifySource::Off;
        let Ok(key) = self.key(key::IPV4) else {
            return if verifies { Err(DropReason::SourceGuard) } else { Ok(false) };
        };
        if key.half[key::PROTOCOL] == UDP && key.absent == 0 {
            let to = key.half[key::L4_DST];
            if !self.port.dhcp_trust && (to == CLIENT || key.unknown != 0) {
                return Err(DropReason::DhcpServer);
            }
            // A port that does not forward yet traps nothing: `learn` drops what it receives.
            if (to == SERVER || to == CLIENT) && self.class.stp == StpState::Forwarding {
                *rate = self.port.dhcp_bucket().map(|_| Rate::Dhcp);
                return Ok(true);
            }
        }
        if !verifies {
            return Ok(false);
        }
        let [a, b] = [key.half[key::SRC].to_be_bytes(), key.half[key::SRC + 1].to_be_bytes()];
        match (self.bound(Ipv4Addr::new(a[0], a[1], b[0], b[1])), self.port.verify) {
            (Some(mac), VerifySource::IpAndMac) if mac != self.frame.src => Err(DropReason::SourceGuard),
            (Some(_), _) => Ok(false),
            (None, _) => Err(DropReason::SourceGuard),
        }
    }

    /// Judges an IPv6 packet; true: it is a message of neighbour discovery for the control plane.
    fn ipv6(&self) -> Result<bool, DropReason> {
        self.routers_and_servers()?;
        if !self.vlan.nd {
            return Ok(false);
        }
        match self.nd()? {
            // A port that does not forward yet traps nothing: `learn` drops what it receives.
            Some(traps) => Ok(traps && self.class.stp == StpState::Forwarding),
            None if self.port.verify_ipv6 => self.source().map(|()| false),
            None => Ok(false),
        }
    }

    /// Inspects a packet (ND inspection). `None`: the packet is not a message that ND inspection judges; true: it goes to the
    /// control plane, which judges it; false: it passes.
    fn nd(&self) -> Result<Option<bool>, DropReason> {
        let (trusted, hidden) = (self.port.nd_trust, Err(DropReason::NdInspection));
        let Some(ip) = self.packet.first_chunk::<IPV6_HEADER>() else { return Ok(None) };
        // Hosts accept no message with another hop limit.
        if ip[0] >> 4 != 6 || ip[7] != HOP_LIMIT {
            return Ok(None);
        }
        if u16::from(ip[6]) != ICMPV6 {
            return if !trusted && self.hides_nd() { hidden } else { Ok(None) };
        }
        let Some(kind) = self.packet.get(IPV6_HEADER).copied() else {
            return if trusted { Ok(None) } else { hidden };
        };
        // The offset of the options in the packet.
        let options = match kind {
            ROUTER_SOLICITATION => IPV6_HEADER + 8,
            NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT => IPV6_HEADER + 24,
            _ => return Ok(None),
        };
        let to_all = kind == NEIGHBOUR_ADVERTISEMENT && ip[24] == 0xff;
        if trusted || to_all {
            return Ok(Some(to_all));
        }
        if self.packet.len() < options {
            return hidden;
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&self.packet[at..at + 16]);
            Ipv6Addr::from(octets)
        };
        let with_option =
            match (IPV6_HEADER + usize::from(u16::from_be_bytes([ip[4], ip[5]]))).checked_sub(options) {
                Some(0) => false,
                Some(8) => true,
                _ => return Ok(Some(true)),
            };
        if with_option {
            let Some(option) = self.packet.get(options..options + 8) else { return hidden };
            let link_address = if kind == NEIGHBOUR_ADVERTISEMENT { 2 } else { 1 };
            if option[..2] != [link_address, 1] || option[2..] != self.frame.src.0 {
                return Ok(Some(true));
            }
        }
        let src = address(8);
        Ok(Some(match kind {
            _ if src.is_unspecified() && with_option => true,
            ROUTER_SOLICITATION if src.is_unspecified() => false,
            NEIGHBOUR_SOLICITATION if src.is_unspecified() => !self.explains(address(IPV6_HEADER + 8)),
            NEIGHBOUR_ADVERTISEMENT => address(IPV6_HEADER + 8) != src || !self.explains(src),
            _ => !self.explains(src),
        }))
    }

    /// True for a message of neighbour discovery behind extension headers or in a fragment, which hosts do not send (RFC 6980),
    /// and for a packet that may be one.
    fn hides_nd(&self) -> bool {
        let Ok(key) = self.key(key::IPV6) else { return false };
        if key.unknown & (1 << key::PROTOCOL) != 0 {
            return true;
        }
        let kind = (key.half[key::L4_SRC] >> 8) as u8;
        key.half[key::PROTOCOL] == ICMPV6
            && key.absent == 0
            && (key.unknown != 0
                || matches!(kind, ROUTER_SOLICITATION | NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT))
    }

    /// IPv6 source guard. A packet without a source claims no address (RFC 6620, 3.2.3).
    fn source(&self) -> Result<(), DropReason> {
        let ip = self.packet.first_chunk::<IPV6_HEADER>().filter(|ip| ip[0] >> 4 == 6);
        let src = ip.map(|ip| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&ip[8..24]);
            Ipv6Addr::from(octets)
        });
        match src {
            Some(src) if src.is_unspecified() || self.explains(src) => Ok(()),
            _ => Err(DropReason::SourceGuard),
        }
    }

    /// RA guard and DHCPv6 guard.
    fn routers_and_servers(&self) -> Result<(), DropReason> {
        let PortGuard { no_routers, no_dhcpv6_servers, .. } = self.port;
        if !no_routers && !no_dhcpv6_servers {
            return Ok(());
        }
        // No host accepts a packet without a valid header.
        let Ok(key) = self.key(key::IPV6) else { return Ok(()) };
        let drops = if no_routers { DropReason::RaGuard } else { DropReason::Dhcpv6Guard };
        // Routers advertise from their link-local address, and servers answer from it: hosts ignore others.
        let link_local = key.half[key::SRC] & 0xffc0 == 0xfe80;
        let protocol = key.half[key::PROTOCOL];
        let hidden = key.unknown & (1 << key::L4_DST) != 0;
        if key.unknown & (1 << key::PROTOCOL) != 0 {
            return if link_local { Err(drops) } else { Ok(()) };
        }
        match protocol {
            ICMPV6 if no_routers && hidden => Err(drops),
            ICMPV6 if no_routers && matches!(key.half[key::L4_SRC] >> 8, ROUTER_ADVERTISEMENT | REDIRECT) => {
                Err(drops)
            }
            UDP if no_dhcpv6_servers && (hidden || key.half[key::L4_DST] == CLIENT_V6) => {
                Err(DropReason::Dhcpv6Guard)
            }
            _ => Ok(()),
        }
    }

    fn key(&self, ethertype: u16) -> Result<Key, key::Malformed> {
        let header = Header { dst: self.frame.dst, src: self.frame.src, ethertype, vlan: 0, cos: 0 };
        Key::read(&header, self.packet)
    }
}

/// The buckets, at most one for each port and rate.
#[derive(Debug, Default)]
pub(crate) struct Policers(BTreeMap<(PortId, Rate), TokenBucket>);

impl Policers {
    /// Takes a token for a frame that `port` received; false if the bucket is empty, true if the port has no such rate.
    pub(crate) fn admit(&mut self, tables: &Tables, port: PortId, rate: Rate, now: Timestamp) -> bool {
        let of = tables.ports.get(port).map(of_port).and_then(|guard| rate.bucket(&guard));
        let Some((rate_pps, burst)) = of else { return true };
        match self.0.entry((port, rate)) {
            Entry::Occupied(mut bucket) => bucket.get_mut().take(now),
            Entry::Vacant(place) => place.insert(TokenBucket::new(TrapRate { rate_pps, burst })).take(now),
        }
    }
    /// Forgets the buckets of a port whose rates change.
    pub(crate) fn change(&mut self, port: PortId, old: Option<&PortState>, new: Option<&PortState>) {
        for rate in [Rate::Arp, Rate::Dhcp] {
            let of = |port: Option<&PortState>| port.and_then(|port| rate.bucket(&of_port(port)));
            if of(old) != of(new) {
                self.0.remove(&(port, rate));
            }
        }
    }
}

/// Settings with rates that a test's frames exceed.
pub(super) const LOW: PortGuard = PortGuard {
    dhcp_trust: true,
    dhcp_rate: Some(10),
    arp_trust: true,
    arp_limit: ArpLimit::Rate { pps: 20, interval_s: 1 },
    verify: VerifySource::Off,
    no_routers: false,
    no_dhcpv6_servers: false,
    nd_trust: false,
    nd_limit: PortGuard::ND_LIMIT,
    verify_ipv6: false,
    lock: PortLock::Open,
};

/// Gives some ports and VLANs of a generated state first-hop security. Rates are 0 or never reached.
pub(super) fn randomise(rng: &mut Rng, plane: &mut PlaneState) {
    if !rng.percent(40) {
        return;
    }
    // Draw from separate generators, so that the values drawn from `rng` do not change.
    let mut locks = Rng::new(rng.next_u64());
    let locked = locks.percent(30);
    let mut discovery = Rng::new(locks.next_u64());
    for port in plane.ports.values_mut().filter(|port| port.kind == PortKind::Netdev) {
        port.stages.guard = PortGuard {
            dhcp_trust: rng.percent(40),
            dhcp_rate: rng.pick(&[None, None, Some(1_000_000), Some(0)]).flatten(),
            arp_trust: rng.percent(30),
            arp_limit: rng
                .pick(&[ArpLimit::None, ArpLimit::None, ArpLimit::Rate { pps: 0, interval_s: 1 }])
                .unwrap_or_default(),
            verify: rng
                .pick(&[VerifySource::Off, VerifySource::Ip, VerifySource::IpAndMac])
                .unwrap_or_default(),
            no_routers: rng.percent(40),
            no_dhcpv6_servers: rng.percent(40),
            nd_trust: discovery.percent(30),
            nd_limit: PortGuard::ND_LIMIT,
            verify_ipv6: discovery.percent(40),
            lock: locks
                .pick(&[PortLock::Open, PortLock::Open, PortLock::Hosts, PortLock::Closed])
                .filter(|_| locked)
                .unwrap_or_default(),
        };
    }
    for vlan in plane.vlans.values_mut() {
        let validate = ArpValidation {
            src_mac: rng.percent(30),
            dst_mac: rng.percent(30),
            ip: rng.percent(40),
            allow_zeros: rng.percent(50),
        };
        vlan.guard =
            VlanGuard { dhcp: rng.percent(60), arp: rng.percent(60), validate, nd: discovery.percent(60) };
    }
}

/// A binding of a generated state: few addresses occur, so that generated frames match them.
pub(crate) fn random_binding(rng: &mut Rng, port: PortId, vlan: VlanId) -> (BindingKey, MacAddr) {
    let address = if rng.percent(50) { random_address(rng).into() } else { random_ipv6_address(rng).into() };
    (BindingKey { port, vlan, address }, random_mac(rng))
}

fn random_ipv6_address(rng: &mut Rng) -> Ipv6Addr {
    match rng.below(8) {
        0 => Ipv6Addr::UNSPECIFIED,
        1 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        n => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1 + (n % 2) as u16),
    }
}

fn random_address(rng: &mut Rng) -> Ipv4Addr {
    match rng.below(12) {
        0 => Ipv4Addr::UNSPECIFIED,
        1 => Ipv4Addr::BROADCAST,
        2 => Ipv4Addr::new(224, 0, 0, 9),
        n => Ipv4Addr::new(10, 9, 0, 1 + (n % 3) as u8),
    }
}

fn random_mac(rng: &mut Rng) -> MacAddr {
    MacAddr([2, 0, 0, 9, 0, 1 + rng.below(2) as u8])
}

/// The source, destination, EtherType and packet of a frame for this stage. Some frames are damaged, or differ in one field from
/// those that the stage judges.
#[must_use]
pub(crate) fn random_packet(rng: &mut Rng) -> (MacAddr, MacAddr, u16, Vec<u8>) {
    let (src, mac) = (random_mac(rng), random_mac(rng));
    let dst = if rng.percent(50) { MacAddr::BROADCAST } else { random_mac(rng) };
    let (ethertype, mut packet) = match rng.below(5) {
        0 => (ARP, random_arp(rng, mac)),
        1 => (key::IPV4, random_ipv4(rng)),
        2 | 3 => (key::IPV6, random_nd(rng, src)),
        _ => (key::IPV6, random_ipv6(rng)),
    };
    if rng.percent(8) {
        packet.truncate(rng.below(packet.len() as u64) as usize);
    }
    (src, dst, ethertype, packet)
}

fn random_arp(rng: &mut Rng, sender: MacAddr) -> Vec<u8> {
    let op = rng.pick(&[1, 1, 2, 2, 3]).unwrap_or(1);
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, op];
    packet.extend(sender.0);
    packet.extend(random_address(rng).octets());
    packet.extend(if rng.percent(30) { MacAddr::BROADCAST.0 } else { random_mac(rng).0 });
    packet.extend(random_address(rng).octets());
    if rng.percent(8) {
        packet[rng.below(8) as usize] ^= 1;
    }
    packet
}

fn random_ports(rng: &mut Rng, some: &[u16]) -> Vec<u8> {
    let one = |rng: &mut Rng| rng.pick(some).unwrap_or(0).to_be_bytes();
    [one(rng), one(rng), [0, 12], [0, 0]].concat()
}

fn random_ipv4(rng: &mut Rng) -> Vec<u8> {
    let first = rng.pick(&[0x45, 0x45, 0x45, 0x45, 0x46, 0x65, 0x44]).unwrap_or(0x45);
    let fragment: u16 = rng.pick(&[0, 0, 0, 0x4000, 0x2000, 1, 3]).unwrap_or(0);
    let mut packet = vec![first, 0, 0, 40, 0, 0];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, rng.pick(&[17, 17, 17, 6, 1]).unwrap_or(17), 0, 0]);
    packet.extend(random_address(rng).octets());
    packet.extend(random_address(rng).octets());
    if first == 0x46 {
        packet.extend([1; 4]);
    }
    packet.extend(random_ports(rng, &[67, 68, 67, 68, 1000]));
    packet
}

fn random_ipv6(rng: &mut Rng) -> Vec<u8> {
    let mut chain: Vec<u8> = (0..rng.below(9)).map(|_| rng.pick(&[0, 60, 44, 43]).unwrap_or(60)).collect();
    if rng.percent(60) {
        chain.clear();
    }
    chain.push(rng.pick(&[17, 58, 58, 6]).unwrap_or(58));
    let mut packet = vec![0x60, 0, 0, 0, 0, 40, chain[0], 255];
    packet.extend([rng.pick(&[0xfe, 0x20]).unwrap_or(0xfe), 0x80, 0, 0, 0, 0, 0, 0]);
    packet.extend([0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    for next in &chain[1..] {
        packet.extend([*next, 0, 0, rng.pick(&[0, 0, 0, 1, 8]).unwrap_or(0), 0, 0, 0, 0]);
    }
    if chain.last() == Some(&17) {
        packet.extend(random_ports(rng, &[546, 547, 1000]));
    } else {
        packet.extend([rng.pick(&[134, 137, 135, 136, 133]).unwrap_or(134), 0, 0, 0, 0, 0, 0, 0]);
    }
    packet
}

/// A message of neighbour discovery of the station `src`, or one that differs slightly.
fn random_nd(rng: &mut Rng, src: MacAddr) -> Vec<u8> {
    let kind = rng.pick(&[133, 135, 135, 136, 136, 134]).unwrap_or(135);
    let (from, target) = (random_ipv6_address(rng), random_ipv6_address(rng));
    let from = if rng.percent(50) { target } else { from };
    let to = rng.pick(&[[0xff, 2], [0xfe, 0x80]]).unwrap_or([0xfe, 0x80]);
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    if kind != ROUTER_SOLICITATION {
        message.extend(target.octets());
    }
    for _ in 0..rng.pick(&[0, 0, 1, 1, 1, 2]).unwrap_or(0) {
        let own = if kind == NEIGHBOUR_ADVERTISEMENT { 2 } else { 1 };
        message.extend([rng.pick(&[own, own, own, 14]).unwrap_or(own), rng.pick(&[1, 1, 1, 2]).unwrap_or(1)]);
        message.extend(if rng.percent(80) { src.0 } else { random_mac(rng).0 });
    }
    let length = message.len() as u16 + rng.pick(&[0, 0, 0, 0, 0, 0, 8, 1]).unwrap_or(0);
    let mut packet = vec![rng.pick(&[0x60, 0x60, 0x60, 0x60, 0x60, 0x40]).unwrap_or(0x60), 0, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([
        rng.pick(&[58, 58, 58, 58, 58, 58, 17]).unwrap_or(58),
        rng.pick(&[255, 255, 255, 255, 64]).unwrap_or(255),
    ]);
    packet.extend(from.octets());
    packet.extend([to[0], to[1], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend(message);
    packet
}
