//! [`Discovery`]: LLDP and CDP on all ports, the crate's public interface.

use crate::agent::{Agent, Send, TxState};
use crate::cdp::{self, Cdpdu, capability};
use crate::config::{Cdp, Config, Lldp, PortConfig, System, Tlv};
use crate::neighbours::{Info, Neighbour, Neighbours, Protocol, Taken};
use crate::pdu::{self, Capabilities, Identifier, Lldpdu, MacPhy, Med, PduError};
use crate::receive::{Counters, RxState};
use lanyard_types::{MacAddr, PortId};
use std::collections::{BTreeMap, VecDeque};

/// The number of frames that CDP sends a second apart when it begins on a port.
const CDP_FAST: u8 = 3;
const CDP_FAST_MS: u64 = 1000;

/// The actions for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a frame out of a port.
    Send(PortId, Vec<u8>),
    /// Report an event.
    Event(Event),
}

/// An event that an operator should know about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The first frame of a neighbour was received.
    Added(Box<Neighbour>),
    /// The information of a neighbour has changed.
    Changed(Box<Neighbour>),
    /// A neighbour has withdrawn its information, or its time to live has ended (`aged`).
    Removed {
        /// The neighbour as it was known.
        neighbour: Box<Neighbour>,
        /// True if its time to live has ended.
        aged: bool,
    },
    /// A neighbour is not kept, because the table is full. Reported once, until a neighbour is removed.
    TooMany {
        /// The port that received its frame.
        port: PortId,
    },
    /// CDP: the neighbour's native VLAN differs from the port's.
    NativeVlanMismatch {
        /// The port.
        port: PortId,
        /// The VLAN of this side.
        own: u16,
        /// The VLAN of the other side.
        theirs: u16,
        /// The neighbour's device ID and port ID.
        neighbour: (String, String),
    },
    /// CDP: the neighbour's duplex differs from the port's.
    DuplexMismatch {
        /// The port.
        port: PortId,
        /// True if this side is full duplex.
        own_full: bool,
        /// The neighbour's device ID and port ID.
        neighbour: (String, String),
    },
}

/// CDP's timer at a port.
#[derive(Debug, Clone, Default)]
struct CdpPort {
    /// When the next frame leaves; `None` while CDP does not run at the port.
    next: Option<u64>,
    /// The number of frames that are still sent [`CDP_FAST_MS`] apart.
    fast: u8,
}

#[derive(Debug, Clone, Default)]
struct Port {
    link: bool,
    agent: Agent,
    cdp: CdpPort,
    lldp_counters: Counters,
    cdp_counters: Counters,
    /// True once [`Event::TooMany`] was reported, until a neighbour at the port is removed.
    full: bool,
}

/// Neighbour discovery. See the crate's documentation for the contract.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    config: Config,
    ports: BTreeMap<PortId, Port>,
    neighbours: Neighbours,
    actions: VecDeque<Action>,
}

impl Discovery {
    /// Discovery that does nothing until it is configured.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Takes a configuration. Ports that do not transmit any more withdraw their information; neighbours at ports
    /// that do not receive any more are removed (rxInitializeLLDP, 9.2.7.4).
    pub fn configure(&mut self, now: u64, config: Config) {
        // Ports that have left the configuration are withdrawn with their old settings, because the
        // neighbours know them under their old names.
        let mut gone: Vec<PortId> = Vec::new();
        for (id, port) in &mut self.ports {
            let changed = config.ports.get(id) != self.config.ports.get(id)
                || config.system != self.config.system
                || config.lldp != self.config.lldp;
            port.agent.local_change |= changed;
            if !config.ports.contains_key(id) {
                gone.push(*id);
            }
        }
        let before = std::mem::replace(&mut self.config, config);
        for id in &gone {
            if let (Some(mut port), Some(settings)) = (self.ports.remove(id), before.ports.get(id)) {
                self.withdraw(&mut port, *id, settings, &before);
            }
        }
        for id in self.config.ports.keys() {
            self.ports.entry(*id).or_default();
        }
        let ids: Vec<PortId> = self.ports.keys().copied().collect();
        for id in ids {
            self.run(now, id, &before);
        }
        let receives =
            |neighbour: &Neighbour| match (neighbour.info.protocol(), self.config.ports.get(&neighbour.port))
            {
                (Protocol::Lldp, Some(port)) => self.config.lldp.is_some() && port.lldp.receives(),
                (Protocol::Cdp, Some(port)) => self.config.cdp.is_some() && port.cdp,
                (_, None) => false,
            };
        let removed = self.neighbours.remove(|neighbour| !receives(neighbour));
        self.report_removed(removed, false);
    }

    /// Takes the state of a port's link. Neighbours at a port without a link continue to age (9.2.10).
    pub fn handle_link(&mut self, now: u64, id: PortId, up: bool) {
        if let Some(port) = self.ports.get_mut(&id).filter(|port| port.link != up) {
            port.link = up;
            let before = self.config.clone();
            self.run(now, id, &before);
        }
    }

    /// Takes a frame that was received at a port.
    ///
    /// # Errors
    /// The reason for which the frame was refused; it has been counted.
    pub fn handle_frame(&mut self, now: u64, id: PortId, frame: &[u8]) -> Result<(), PduError> {
        let Some(settings) = self.config.ports.get(&id) else { return Ok(()) };
        let Some(port) = self.ports.get_mut(&id) else { return Ok(()) };
        let is_cdp =
            lanyard_wire::Frame::new(frame).is_ok_and(|frame| frame.dst() == MacAddr::CISCO_DISCOVERY);
        let (runs, counters) = if is_cdp {
            (self.config.cdp.is_some() && settings.cdp && port.link, &mut port.cdp_counters)
        } else {
            let runs = self.config.lldp.is_some() && RxState::of(&port.agent) == RxState::WaitForFrame;
            (runs, &mut port.lldp_counters)
        };
        if !runs {
            return Ok(());
        }
        counters.received += 1;
        let decoded = if is_cdp {
            cdp::decode(frame).map(|(source, pdu)| (source, Info::Cdp(Box::new(pdu))))
        } else {
            pdu::decode(frame).map(|(source, pdu)| (source, Info::Lldp(Box::new(pdu))))
        };
        let (source, info) = decoded.inspect_err(|error| counters.refuse(*error))?;
        match &info {
            Info::Lldp(pdu) => {
                counters.tlvs_discarded += u64::from(pdu.discarded);
                counters.tlvs_unrecognized += u64::from(pdu.unrecognized);
            }
            Info::Cdp(pdu) => counters.tlvs_unrecognized += u64::from(pdu.unrecognized),
        }
        self.take(now, id, source, info);
        Ok(())
    }

    /// Does the work that is due.
    pub fn handle_timer(&mut self, now: u64) {
        // rxInfoAge.
        let aged = self.neighbours.remove(|neighbour| neighbour.expires_ms <= now);
        self.report_removed(aged, true);
        let ids: Vec<PortId> = self.ports.keys().copied().collect();
        let before = self.config.clone();
        for id in ids {
            self.run(now, id, &before);
        }
    }

    /// When [`Discovery::handle_timer`] is to be called next; `None` if nothing is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        let ports = self.ports.values().flat_map(|port| [port.agent.next(), port.cdp.next]);
        ports.flatten().chain(self.neighbours.next()).min()
    }

    /// The next action; `None` when there is none.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Withdraws the information of all ports, because the switch ends.
    pub fn shutdown(&mut self, now: u64) {
        let config = Config { system: self.config.system.clone(), ..Config::default() };
        self.configure(now, config);
    }

    /// The neighbours, in the order of their first frames.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.iter()
    }

    /// A port's states; `None` if discovery does not run at it.
    #[must_use]
    pub fn states(&self, id: PortId) -> Option<(TxState, RxState)> {
        self.ports.get(&id).map(|port| (port.agent.state, RxState::of(&port.agent)))
    }

    /// A port's statistics; `None` if discovery does not run at it.
    #[must_use]
    pub fn counters(&self, id: PortId, protocol: Protocol) -> Option<Counters> {
        self.ports.get(&id).map(|port| match protocol {
            Protocol::Lldp => port.lldp_counters,
            Protocol::Cdp => port.cdp_counters,
        })
    }

    /// Sets the statistics of a protocol to 0.
    pub fn clear_counters(&mut self, protocol: Protocol) {
        for port in self.ports.values_mut() {
            match protocol {
                Protocol::Lldp => port.lldp_counters = Counters::default(),
                Protocol::Cdp => port.cdp_counters = Counters::default(),
            }
        }
    }

    /// Removes the neighbours of a protocol. Present neighbours are found again by their next frames.
    pub fn clear_table(&mut self, protocol: Protocol) {
        let removed = self.neighbours.remove(|neighbour| neighbour.info.protocol() == protocol);
        self.report_removed(removed, false);
    }

    fn take(&mut self, now: u64, id: PortId, source: MacAddr, info: Info) {
        if info.ttl_s() == 0 {
            let key = info.key();
            let removed = self.neighbours.remove(|known| known.port == id && known.info.key() == key);
            self.report_removed(removed, false);
            return;
        }
        let neighbour = Neighbour { port: id, source, info, expires_ms: now };
        let protocol = neighbour.info.protocol();
        let taken = self.neighbours.take(now, id, source, neighbour.info.clone());
        let Some(port) = self.ports.get_mut(&id) else { return };
        match taken {
            Taken::Same => {}
            Taken::New => {
                port.agent.new_neighbor |= protocol == Protocol::Lldp;
                self.actions.push_back(Action::Event(Event::Added(Box::new(neighbour.clone()))));
            }
            Taken::Changed => {
                self.actions.push_back(Action::Event(Event::Changed(Box::new(neighbour.clone()))));
            }
            Taken::NoRoom => {
                let counters = match protocol {
                    Protocol::Lldp => &mut port.lldp_counters,
                    Protocol::Cdp => &mut port.cdp_counters,
                };
                counters.too_many += 1;
                counters.discarded += 1;
                if !std::mem::replace(&mut port.full, true) {
                    self.actions.push_back(Action::Event(Event::TooMany { port: id }));
                }
            }
        }
        if let (Taken::New | Taken::Changed, Info::Cdp(pdu)) = (taken, &neighbour.info) {
            self.compare(id, pdu);
        }
        if taken == Taken::New {
            let before = self.config.clone();
            self.run(now, id, &before);
        }
    }

    /// Reports settings that differ between the two ends of a link.
    fn compare(&mut self, id: PortId, pdu: &Cdpdu) {
        let Some(settings) = self.config.ports.get(&id) else { return };
        let neighbour = (pdu.device_id.clone(), pdu.port_id.clone());
        let vlans =
            (settings.pvid.filter(|_| settings.switchport).map(lanyard_types::VlanId::get), pdu.native_vlan);
        if let (Some(own), Some(theirs)) = vlans
            && own != theirs
        {
            let event = Event::NativeVlanMismatch { port: id, own, theirs, neighbour: neighbour.clone() };
            self.actions.push_back(Action::Event(event));
        }
        if let (Some(own_full), Some(full)) = (settings.full_duplex, pdu.full_duplex)
            && own_full != full
        {
            self.actions.push_back(Action::Event(Event::DuplexMismatch { port: id, own_full, neighbour }));
        }
    }

    fn report_removed(&mut self, removed: Vec<Neighbour>, aged: bool) {
        for neighbour in removed {
            if let Some(port) = self.ports.get_mut(&neighbour.port) {
                port.full = false;
                if aged {
                    match neighbour.info.protocol() {
                        Protocol::Lldp => port.lldp_counters.aged_out += 1,
                        Protocol::Cdp => port.cdp_counters.aged_out += 1,
                    }
                }
            }
            self.actions.push_back(Action::Event(Event::Removed { neighbour: Box::new(neighbour), aged }));
        }
    }

    /// Runs a port's machines. `before` has the settings under which the port is known to its neighbours.
    fn run(&mut self, now: u64, id: PortId, before: &Config) {
        let (Some(mut port), Some(settings)) = (self.ports.remove(&id), self.config.ports.get(&id)) else {
            return;
        };
        let lldp = self.config.lldp.clone();
        port.agent.port_enabled = port.link;
        port.agent.admin = if lldp.is_some() { settings.lldp } else { crate::AdminStatus::Disabled };
        let timers = lldp.or_else(|| before.lldp.clone()).unwrap_or_default();
        for send in port.agent.run(now, &timers) {
            let frame = match send {
                Send::Info => pdu::encode(settings.mac, &self.lldpdu(id, settings, &timers)),
                Send::Shutdown => shutdown(before.ports.get(&id).unwrap_or(settings), &before.system),
            };
            port.lldp_counters.sent += 1;
            self.actions.push_back(Action::Send(id, frame));
        }
        self.run_cdp(now, id, &mut port, before);
        self.ports.insert(id, port);
    }

    fn run_cdp(&mut self, now: u64, id: PortId, port: &mut Port, before: &Config) {
        let Some(settings) = self.config.ports.get(&id) else { return };
        let runs = self.config.cdp.filter(|_| settings.cdp && port.link);
        match (runs, port.cdp.next) {
            (None, None) => {}
            (None, Some(_)) => {
                port.cdp.next = None;
                let old = before.ports.get(&id).unwrap_or(settings);
                if port.link {
                    let pdu = Cdpdu { ttl_s: 0, ..cdpdu(old, &before.system, &Cdp::default()) };
                    port.cdp_counters.sent += 1;
                    self.actions.push_back(Action::Send(id, cdp::encode(old.mac, &pdu)));
                }
            }
            (Some(timers), next) => {
                if next.is_none() {
                    port.cdp.fast = CDP_FAST;
                }
                // A shorter timer takes effect at once.
                let latest = now + u64::from(timers.timer_s) * 1000;
                let due = next.unwrap_or(now).min(latest);
                if due > now {
                    port.cdp.next = Some(due);
                    return;
                }
                port.cdp.fast = port.cdp.fast.saturating_sub(1);
                port.cdp.next = Some(if port.cdp.fast > 0 { now + CDP_FAST_MS } else { latest });
                port.cdp_counters.sent += 1;
                let frame = cdp::encode(settings.mac, &cdpdu(settings, &self.config.system, &timers));
                self.actions.push_back(Action::Send(id, frame));
            }
        }
    }

    /// Withdraws the information that a port which leaves the configuration has sent.
    fn withdraw(&mut self, port: &mut Port, id: PortId, settings: &PortConfig, before: &Config) {
        if port.link && port.agent.state == TxState::Idle {
            self.actions.push_back(Action::Send(id, shutdown(settings, &before.system)));
        }
        if port.link && port.cdp.next.is_some() {
            let pdu = Cdpdu { ttl_s: 0, ..cdpdu(settings, &before.system, &Cdp::default()) };
            self.actions.push_back(Action::Send(id, cdp::encode(settings.mac, &pdu)));
        }
    }

    /// The port's information (mibConstrInfoLLDPDU, 9.2.7.2).
    fn lldpdu(&self, id: PortId, settings: &PortConfig, lldp: &Lldp) -> Lldpdu {
        let system = &self.config.system;
        let with = |tlv: Tlv| lldp.tlvs[tlv as usize];
        let chassis = Identifier::chassis_mac(system.chassis);
        let mut pdu = Lldpdu::new(chassis, Identifier::port_name(&settings.name), lldp.holdtime_s);
        if with(Tlv::PortDescription) {
            pdu.port_description =
                Some(settings.description.clone().unwrap_or_else(|| settings.name.clone()));
        }
        pdu.system_name = with(Tlv::SystemName).then(|| system.name.clone());
        pdu.system_description = with(Tlv::SystemDescription).then(|| system.description.clone());
        if with(Tlv::SystemCapabilities) {
            let supported = Capabilities::BRIDGE | Capabilities::ROUTER;
            let enabled = Capabilities::BRIDGE | if system.routes { Capabilities::ROUTER } else { 0 };
            pdu.capabilities = Some(Capabilities { supported, enabled });
        }
        if with(Tlv::ManagementAddress) {
            pdu.management.clone_from(&settings.management);
        }
        if with(Tlv::PortVlan) && settings.switchport {
            // 0 means that the port has no PVID (802.1Q, D.2.1.1).
            pdu.pvid = Some(settings.pvid.map_or(0, lanyard_types::VlanId::get));
        }
        if with(Tlv::VlanName) {
            pdu.vlan_names.clone_from(&settings.vlans);
        }
        if let Some(autoneg) = settings.autoneg.filter(|_| with(Tlv::MacPhy)) {
            pdu.mac_phy = Some(mac_phy(settings, autoneg));
        }
        if with(Tlv::LinkAggregation) && settings.switchport {
            // 802.1AX-2014, annex D: capable, in an aggregation, and the identifier of the aggregator's port, or 0.
            pdu.aggregation = Some((true, settings.bundle.is_some(), settings.bundle.unwrap_or(0)));
        }
        if with(Tlv::MaxFrameSize) {
            pdu.max_frame = Some(settings.max_frame);
        }
        if with(Tlv::Med) && self.has_endpoint(id) {
            pdu.med = Some(med(system, settings));
        }
        pdu
    }

    /// True if the port has received a frame of an LLDP-MED endpoint.
    fn has_endpoint(&self, id: PortId) -> bool {
        self.neighbours.iter().filter(|known| known.port == id).any(|known| match &known.info {
            Info::Lldp(pdu) => pdu.med.as_ref().is_some_and(|med| (1..=3).contains(&med.device_type)),
            Info::Cdp(_) => false,
        })
    }
}

fn shutdown(settings: &PortConfig, system: &System) -> Vec<u8> {
    let chassis = Identifier::chassis_mac(system.chassis);
    pdu::shutdown(settings.mac, chassis, Identifier::port_name(&settings.name))
}

/// The MAC/PHY configuration and status of a port. MAU types are values of IANA's dot3MauType; 0 is unknown.
fn mac_phy(settings: &PortConfig, autoneg: bool) -> MacPhy {
    let full = settings.full_duplex.unwrap_or(true);
    let mau_type = match (settings.speed_mbps, full) {
        (Some(10), false) => 10,
        (Some(10), true) => 11,
        (Some(100), false) => 15,
        (Some(100), true) => 16,
        (Some(1000), false) => 29,
        (Some(1000), true) => 30,
        (Some(10_000), _) => 54,
        _ => 0,
    };
    // Bit 0 (the highest) is "other": the abilities of the driver are not known here.
    let advertised = if autoneg { 0x8000 } else { 0 };
    MacPhy { autoneg_supported: autoneg, autoneg_enabled: autoneg, advertised, mau_type }
}

/// LLDP-MED of a network connectivity device: capabilities, the port's network policy and locations if it has any, and
/// inventory.
fn med(system: &System, settings: &PortConfig) -> Med {
    // TIA-1057, table 10: capabilities, network policy, location, inventory.
    const SETS: u16 = 1 | 1 << 1 | 1 << 2 | 1 << 5;
    let mut inventory: [Option<String>; 7] = Default::default();
    inventory[2] = Some(system.software.clone());
    inventory[4] = Some("Lanyard".into());
    inventory[5] = Some(system.platform.clone());
    Med {
        capabilities: SETS,
        device_type: 4,
        policies: settings.voice.into_iter().collect(),
        locations: settings.locations.clone(),
        inventory,
        ..Med::default()
    }
}

fn cdpdu(settings: &PortConfig, system: &System, cdp: &Cdp) -> Cdpdu {
    let addresses: Vec<_> = settings.management.iter().map(|(address, _)| *address).collect();
    Cdpdu {
        version: 2,
        ttl_s: cdp.holdtime_s,
        device_id: system.name.clone(),
        port_id: settings.name.clone(),
        capabilities: capability::SWITCH | if system.routes { capability::ROUTER } else { 0 },
        software: Some(system.description.clone()),
        platform: Some(system.platform.clone()),
        native_vlan: settings.pvid.filter(|_| settings.switchport).map(lanyard_types::VlanId::get),
        voice_vlan: settings.voice.filter(|voice| voice.vlan != 0).map(|voice| voice.vlan),
        full_duplex: settings.full_duplex,
        management: addresses.clone(),
        addresses,
        unrecognized: 0,
    }
}
