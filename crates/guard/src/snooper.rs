//! [`Snooper`]: DHCP snooping in all VLANs.

use crate::bound::Bound;
use crate::config::Config;
use crate::denied::kind;
use crate::neighbour::{Change, NdDrop, Neighbour};
use crate::option82;
use crate::packet::{CLIENT, Packet};
use lanyard_dhcp::{REPLY, REQUEST};
use lanyard_types::{Binding, BindingKey, MAX_BINDINGS, MacAddr, PortId, PortSet, VlanId};
use lanyard_wire::Frame;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

/// The most clients whose answers are waited for. When there are more, the one that has waited longest is forgotten.
pub const MAX_PENDING: usize = 4096;
/// How long a client's port is remembered after its message, in milliseconds.
const PENDING_MS: u64 = 60_000;
/// The lease time if the server's message has no option 51, in seconds.
const DEFAULT_LEASE_S: u32 = 3600;
/// The lease time of a lease that never ends (RFC 2131, 3.3).
const INFINITE: u32 = u32::MAX;
/// The longest frame with an inserted option 82, in bytes (RFC 2131, 2: the MTU of Ethernet).
const MAX_FRAME: usize = 1514;

const DECLINE: u8 = 4;
const ACK: u8 = 5;
const NAK: u8 = 6;
const RELEASE: u8 = 7;
/// The types of messages that only servers send: OFFER, ACK, NAK, and the answers to lease queries (RFC 4388).
const SERVERS: [u8; 6] = [2, ACK, NAK, 11, 12, 13];

/// Why a message was not sent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Drop {
    /// The frame is not a complete DHCP message.
    Malformed = 0,
    /// A server's message at a port that is not trusted.
    Server = 1,
    /// `verify mac-address`: the frame's source is not the client's address.
    MacMismatch = 2,
    /// A message that a relay has forwarded, at a port that is not trusted.
    Relayed = 3,
    /// A client's message with an option 82, at a port that is not trusted.
    Option = 4,
    /// A client releases or declines an address that is bound to another port.
    NotOwner = 5,
    /// An answer to a client that is not known.
    NoClient = 6,
    /// There is no other trusted port to send a client's message to, or a server's message came in at the client's own port.
    NoPort = 7,
}

impl Drop {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 8] = [
        Self::Malformed,
        Self::Server,
        Self::MacMismatch,
        Self::Relayed,
        Self::Option,
        Self::NotOwner,
        Self::NoClient,
        Self::NoPort,
    ];

    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Server => "server_on_untrusted",
            Self::MacMismatch => "source_mac_mismatch",
            Self::Relayed => "relayed_on_untrusted",
            Self::Option => "option_82_on_untrusted",
            Self::NotOwner => "binding_mismatch",
            Self::NoClient => "unknown_client",
            Self::NoPort => "no_output_port",
        }
    }
}

/// The numbers of messages handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent on.
    pub forwarded: u64,
    /// Messages dropped, indexed by the number of [`Drop`].
    pub dropped: [u64; Drop::ALL.len()],
    /// Leases for which there was no room.
    pub refused: u64,
    /// Clients that were forgotten because more than [`MAX_PENDING`] waited.
    pub forgotten: u64,
}

/// A client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The VLAN.
    pub vlan: VlanId,
    /// The client.
    pub mac: MacAddr,
    /// Its address.
    pub address: Ipv4Addr,
    /// The port behind which the client is.
    pub port: PortId,
    /// When the lease ends, in milliseconds of the caller's clock; `None`: never.
    pub expires_ms: Option<u64>,
}

/// The actions for the caller, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a message, in this VLAN, out of these ports.
    Send {
        /// The VLAN.
        vlan: VlanId,
        /// The port that received it; `None`: the switch itself sends it.
        from: Option<PortId>,
        /// The ports.
        ports: Box<PortSet>,
        /// The frame, without a tag.
        frame: Vec<u8>,
    },
    /// Enter a binding into the plane, or remove it (`None`).
    Bind(BindingKey, Option<MacAddr>),
    /// A message was dropped.
    Dropped {
        /// The port.
        port: PortId,
        /// The VLAN.
        vlan: VlanId,
        /// Why.
        reason: Drop,
        /// The kind of message, such as `DHCPOFFER`.
        kind: &'static str,
        /// The frame's source.
        src: MacAddr,
        /// The client's address in the message.
        client: Option<MacAddr>,
    },
    /// ND inspection has dropped a message.
    NdDropped {
        /// Its sender, and the address that it claims.
        neighbour: Neighbour,
        /// Why.
        reason: NdDrop,
        /// The kind of message, such as `NDP::NS`.
        kind: &'static str,
    },
    /// The binding of an IPv6 address has changed.
    Neighbour(Change, Neighbour),
    /// A lease was refused, because there is no room for another binding.
    Full {
        /// The refused lease.
        lease: Lease,
    },
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    port: PortId,
    expires_ms: u64,
}

/// DHCP snooping. See the crate's documentation for the contract.
#[derive(Debug, Default)]
pub struct Snooper {
    config: Config,
    leases: BTreeMap<(VlanId, MacAddr), Lease>,
    /// The client of each address, so that an address has one client.
    owners: BTreeMap<(VlanId, Ipv4Addr), MacAddr>,
    expiries: BTreeSet<(u64, VlanId, MacAddr)>,
    pending: BTreeMap<(VlanId, MacAddr), Pending>,
    waiting: BTreeSet<(u64, VlanId, MacAddr)>,
    bound: Bound,
    counters: Counters,
    actions: VecDeque<Action>,
    /// Raised with each change of the leases.
    version: u64,
}

impl Snooper {
    /// Takes a configuration. Leases of VLANs that are no longer snooped, and of ports that are gone, end.
    pub fn configure(&mut self, config: Config) {
        self.config = config;
        let gone: Vec<(VlanId, MacAddr)> = self
            .leases
            .values()
            .filter(|lease| !self.takes(lease))
            .map(|lease| (lease.vlan, lease.mac))
            .collect();
        gone.into_iter().for_each(|(vlan, mac)| self.end(vlan, mac));
        self.touch_all();
        self.tell();
    }

    /// The present configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Takes over the state of an earlier run: its leases, and the bindings that the plane holds. Leases that have ended are left
    /// out, and those whose client or address has a lease of this run.
    pub fn restore(&mut self, now: u64, leases: &[Lease], held: &[Binding]) {
        for lease in leases {
            let ended = lease.expires_ms.is_some_and(|at| at <= now);
            let known = self.leases.contains_key(&(lease.vlan, lease.mac))
                || self.owners.contains_key(&(lease.vlan, lease.address));
            if !ended && !known && self.takes(lease) {
                self.enter(*lease);
            }
        }
        self.bound.adopt(held.iter().copied().filter(|(key, _)| key.address.is_ipv4()));
        self.touch_all();
        self.tell();
    }

    /// Every lease.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }
    /// The statistics.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// A number that grows with each change of the leases.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }
    /// Ends leases: all of them, or those that `wanted` chooses (`clear ip dhcp snooping binding`). Returns their number.
    pub fn clear(&mut self, wanted: impl Fn(&Lease) -> bool) -> usize {
        let chosen: Vec<(VlanId, MacAddr)> =
            self.leases.values().filter(|lease| wanted(lease)).map(|lease| (lease.vlan, lease.mac)).collect();
        chosen.iter().for_each(|(vlan, mac)| self.end(*vlan, *mac));
        self.tell();
        chosen.len()
    }
    /// Sets the statistics to zero.
    pub fn clear_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }
    /// When [`Snooper::handle_timer`] is to be called.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        let first = |set: &BTreeSet<(u64, VlanId, MacAddr)>| set.first().map(|(at, ..)| *at);
        first(&self.expiries).into_iter().chain(first(&self.waiting)).min()
    }
    /// Ends leases that have expired, and forgets clients that have waited for an answer too long.
    pub fn handle_timer(&mut self, now: u64) {
        while let Some((_, vlan, mac)) = self.expiries.first().copied().filter(|(at, ..)| *at <= now) {
            self.end(vlan, mac);
        }
        while let Some((_, vlan, mac)) = self.waiting.first().copied().filter(|(at, ..)| *at <= now) {
            self.forget(vlan, mac);
        }
        self.tell();
    }

    /// Handles a frame without a tag that the plane has trapped at `port`, in `vlan`.
    pub fn handle_frame(&mut self, now: u64, vlan: VlanId, port: PortId, frame: &[u8]) {
        let Some(packet) = Packet::read(frame) else {
            let src = Frame::new(frame).map(|view| view.src()).unwrap_or_default();
            return self.drop(port, vlan, Drop::Malformed, None, (src, None));
        };
        let (src, client, message_type) =
            (packet.src, packet.message.chaddr(), packet.message.message_type());
        let done = match packet.message.op() {
            REQUEST if !message_type.is_some_and(|kind| SERVERS.contains(&kind)) => {
                self.request(now, vlan, port, packet)
            }
            REQUEST | REPLY if !self.trusts(port) => Err(Drop::Server),
            _ => self.reply(now, vlan, port, packet),
        };
        match done {
            Ok(()) => self.counters.forwarded += 1,
            Err(reason) => self.drop(port, vlan, reason, message_type, (src, client)),
        }
        self.tell();
    }

    fn request(&mut self, now: u64, vlan: VlanId, port: PortId, mut packet: Packet) -> Result<(), Drop> {
        let trusted = self.trusts(port);
        let message = &packet.message;
        let client = message.chaddr();
        if !trusted {
            if !message.giaddr().is_unspecified() {
                return Err(Drop::Relayed);
            }
            if message.relay().is_some() && !self.config.allow_untrusted {
                return Err(Drop::Option);
            }
            if self.config.verify_mac && client != Some(packet.src) {
                return Err(Drop::MacMismatch);
            }
        }
        let ends = matches!(message.message_type(), Some(DECLINE | RELEASE));
        let lease = client.and_then(|mac| self.leases.get(&(vlan, mac)).copied());
        if ends && lease.is_some_and(|lease| lease.port != port) {
            return Err(Drop::NotOwner);
        }
        let to = self.trusted(vlan, port);
        if to.is_empty() {
            return Err(Drop::NoPort);
        }
        let bare = message.giaddr().is_unspecified() && message.relay().is_none() && message.has_options();
        if !trusted && self.config.insert_option && bare {
            packet.message.set_relay(Some(option82::of(vlan, port, self.config.mac)));
            // Without room for the option the message goes on as it is, as RFC 3046, 2.1 allows.
            if packet.to_bytes().is_none_or(|frame| frame.len() > MAX_FRAME) {
                packet.message.set_relay(None);
            }
        }
        let frame = packet.to_bytes().ok_or(Drop::Malformed)?;
        if let Some(mac) = client {
            self.remember(now, vlan, mac, port);
        }
        if ends && let Some(lease) = lease {
            self.end(vlan, lease.mac);
        }
        self.send(vlan, port, to, frame);
        Ok(())
    }

    /// Handles a server's message that was received at a trusted port.
    fn reply(&mut self, now: u64, vlan: VlanId, port: PortId, mut packet: Packet) -> Result<(), Drop> {
        let message = &packet.message;
        let client = message.chaddr();
        let ours = message.relay().and_then(|option| option82::port(option, vlan, self.config.mac));
        let known = client.and_then(|mac| {
            let pending = self.pending.get(&(vlan, mac)).map(|pending| pending.port);
            pending.or_else(|| self.leases.get(&(vlan, mac)).map(|lease| lease.port))
        });
        let members = self.config.vlans.get(&vlan);
        let to = ours.or(known).filter(|to| members.is_some_and(|ports| ports.contains(*to)));
        // A message for a relay, or for a client behind another trusted port.
        let Some(to) = to.filter(|_| packet.to == CLIENT) else {
            let others = self.trusted(vlan, port);
            if packet.to == CLIENT && packet.dst.is_group() || others.is_empty() {
                return Err(Drop::NoClient);
            }
            let frame = packet.to_bytes().ok_or(Drop::Malformed)?;
            self.send(vlan, port, others, frame);
            return Ok(());
        };
        if to == port {
            return Err(Drop::NoPort);
        }
        if ours.is_some() {
            packet.message.set_relay(None);
        }
        let frame = packet.to_bytes().ok_or(Drop::Malformed)?;
        if let Some(mac) = client.filter(|_| !self.trusts(to)) {
            self.learn(now, vlan, to, mac, &packet);
        }
        self.send(vlan, port, [to].into_iter().collect(), frame);
        Ok(())
    }

    /// Enters the lease that an ACK grants to the client, or ends the client's lease after a NAK.
    fn learn(&mut self, now: u64, vlan: VlanId, port: PortId, mac: MacAddr, packet: &Packet) {
        let address = packet.message.yiaddr();
        match packet.message.message_type() {
            Some(NAK) => self.end(vlan, mac),
            Some(ACK) if !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast() => {
                let seconds = packet.message.option(51).and_then(|value| value.first_chunk::<4>());
                let lease_s = seconds.map_or(DEFAULT_LEASE_S, |value| u32::from_be_bytes(*value));
                let expires_ms = (lease_s != INFINITE).then(|| now + u64::from(lease_s) * 1000);
                let lease = Lease { vlan, mac, address, port, expires_ms };
                if self.leases.len() + self.config.statics.len() >= MAX_BINDINGS
                    && !self.leases.contains_key(&(vlan, mac))
                {
                    self.counters.refused += 1;
                    self.actions.push_back(Action::Full { lease });
                    return;
                }
                self.end(vlan, mac);
                if let Some(other) = self.owners.get(&(vlan, address)).copied() {
                    self.end(vlan, other);
                }
                self.enter(lease);
            }
            _ => {}
        }
    }

    fn takes(&self, lease: &Lease) -> bool {
        self.config.vlans.contains_key(&lease.vlan) && self.config.ports.contains_key(&lease.port)
    }
    fn trusts(&self, port: PortId) -> bool {
        self.config.ports.get(&port).is_some_and(|port| port.trusted)
    }
    /// The trusted ports of a VLAN, except `without`.
    fn trusted(&self, vlan: VlanId, without: PortId) -> PortSet {
        let members = self.config.vlans.get(&vlan);
        let ports = members.into_iter().flat_map(|ports| ports.iter());
        ports.filter(|port| *port != without && self.trusts(*port)).collect()
    }

    fn enter(&mut self, lease: Lease) {
        self.version += 1;
        self.bound.touch(key_of(&lease));
        self.expiries.extend(lease.expires_ms.map(|at| (at, lease.vlan, lease.mac)));
        self.owners.insert((lease.vlan, lease.address), lease.mac);
        self.leases.insert((lease.vlan, lease.mac), lease);
    }
    fn end(&mut self, vlan: VlanId, mac: MacAddr) {
        let Some(lease) = self.leases.remove(&(vlan, mac)) else { return };
        self.version += 1;
        self.bound.touch(key_of(&lease));
        if let Some(at) = lease.expires_ms {
            self.expiries.remove(&(at, vlan, mac));
        }
        self.owners.remove(&(vlan, lease.address));
    }

    fn remember(&mut self, now: u64, vlan: VlanId, mac: MacAddr, port: PortId) {
        self.forget(vlan, mac);
        if self.pending.len() >= MAX_PENDING
            && let Some((_, vlan, mac)) = self.waiting.first().copied()
        {
            self.counters.forgotten += 1;
            self.forget(vlan, mac);
        }
        let expires_ms = now + PENDING_MS;
        self.waiting.insert((expires_ms, vlan, mac));
        self.pending.insert((vlan, mac), Pending { port, expires_ms });
    }
    fn forget(&mut self, vlan: VlanId, mac: MacAddr) {
        if let Some(pending) = self.pending.remove(&(vlan, mac)) {
            self.waiting.remove(&(pending.expires_ms, vlan, mac));
        }
    }

    fn send(&mut self, vlan: VlanId, from: PortId, ports: PortSet, frame: Vec<u8>) {
        self.actions.push_back(Action::Send { vlan, from: Some(from), ports: Box::new(ports), frame });
    }
    fn drop(
        &mut self,
        port: PortId,
        vlan: VlanId,
        reason: Drop,
        message_type: Option<u8>,
        (src, client): (MacAddr, Option<MacAddr>),
    ) {
        self.counters.dropped[reason as usize] += 1;
        self.actions.push_back(Action::Dropped { port, vlan, reason, kind: kind(message_type), src, client });
    }

    /// Queues the changes of bindings for the plane. A static binding has precedence over a lease.
    fn tell(&mut self) {
        let (statics, owners, leases) = (&self.config.statics, &self.owners, &self.leases);
        let changes = self.bound.changes(|key| {
            statics.get(key).copied().or_else(|| {
                let IpAddr::V4(address) = key.address else { return None };
                let mac = owners.get(&(key.vlan, address))?;
                leases.get(&(key.vlan, *mac)).filter(|lease| lease.port == key.port).map(|lease| lease.mac)
            })
        });
        self.actions.extend(changes.into_iter().map(|(key, mac)| Action::Bind(key, mac)));
    }

    /// Marks every binding, so that the next call of `tell` compares it with the plane's.
    fn touch_all(&mut self) {
        self.bound.touch_held();
        let leased = self.leases.values().map(key_of);
        self.config.statics.keys().copied().chain(leased).for_each(|key| self.bound.touch(key));
    }
}

const fn key_of(lease: &Lease) -> BindingKey {
    BindingKey { port: lease.port, vlan: lease.vlan, address: IpAddr::V4(lease.address) }
}

#[cfg(test)]
#[path = "snooper_tests.rs"]
mod tests;
