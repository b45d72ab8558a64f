//! [`Lacp`]: link aggregation on all ports, the crate's public interface.

use crate::config::{ChannelConfig, Config, Mode, PortConfig};
use crate::machines::{churn, mux, periodic, receive};
use crate::pdu::{self, Lacpdu, Marker, Pdu, PduError, PortInfo, State};
use crate::port::intervals::{FAST_PERIODIC_MS, TX_LIMIT};
use crate::port::{ChurnState, Counters, MuxState, PeriodicState, Port, RxState, Selected};
use crate::selection;
use crate::snapshot::Snapshot;
use lanyard_types::{PortId, PortSet};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most rounds in which the machines of one call make each other change state. Only a bug needs more; it then costs a
/// delay until the next call, instead of an endless loop.
const MAX_ROUNDS: usize = 16;

/// The actions for the caller, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Use these ports for a channel, and no others.
    Channel(Box<Members>),
    /// Send a frame out of a port.
    Send(PortId, Vec<u8>),
    /// Report an event.
    Event(Event),
}

/// The ports of a channel that carry frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// The channel.
    pub channel: u16,
    /// The ports whose frames are the channel's.
    pub collecting: PortSet,
    /// The ports that the channel's frames are distributed over; empty when the channel is down.
    pub distributing: PortSet,
}

/// An event for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A port sends and receives for its channel.
    Bundled {
        /// The port.
        port: PortId,
        /// The channel.
        channel: u16,
    },
    /// A port no longer sends and receives for its channel.
    Unbundled {
        /// The port.
        port: PortId,
        /// The channel.
        channel: u16,
    },
    /// A channel has come up, because it has enough members, or has gone down.
    Channel {
        /// The channel.
        channel: u16,
        /// True if it has come up.
        up: bool,
    },
    /// The two systems have not agreed on a port for a minute.
    Churn {
        /// The port.
        port: PortId,
    },
}

/// The status of a port in `show etherchannel summary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// `D`: it has no link.
    Down,
    /// `P`: it sends and receives for the channel.
    Bundled,
    /// `w`: it is selected for the channel, but does not yet send and receive.
    Waiting,
    /// `H`: hot standby, because the channel has as many members as it may have.
    HotStandby,
    /// `I`: its partner does not speak LACP.
    Individual,
    /// `s`: its partner is another one than the channel's, or does not allow aggregation.
    Suspended,
}

/// A port as `show` commands present it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortView {
    /// Its settings.
    pub config: PortConfig,
    /// The information that it sends about itself.
    pub actor: PortInfo,
    /// The known information about its partner.
    pub partner: PortInfo,
    /// Its state in the channel.
    pub member: MemberState,
    /// The state of the receive machine.
    pub rx: RxState,
    /// The state of the periodic transmission machine.
    pub periodic: PeriodicState,
    /// The state of the mux machine.
    pub mux: MuxState,
    /// The states of the churn machines: the actor's, the partner's.
    pub churn: (ChurnState, ChurnState),
    /// Its statistics.
    pub counters: Counters,
}

/// The members of a channel that were last reported to the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Reported {
    collecting: PortSet,
    distributing: PortSet,
}

/// Link aggregation. See the crate's documentation for the contract.
#[derive(Debug, Clone, Default)]
pub struct Lacp {
    config: Config,
    ports: BTreeMap<PortId, Port>,
    reported: BTreeMap<u16, Reported>,
    actions: VecDeque<Action>,
}

impl Lacp {
    /// Link aggregation without channels.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Takes a configuration. A port whose settings change leaves its channel, and is selected again.
    pub fn configure(&mut self, now: u64, config: Config) {
        self.set(config);
        self.run(now);
    }
    fn set(&mut self, config: Config) {
        let system_changed =
            (config.system, config.system_priority) != (self.config.system, self.config.system_priority);
        self.ports.retain(|id, _| config.ports.contains_key(id));
        for (id, settings) in &config.ports {
            let port = self.ports.entry(*id).or_default();
            let is_new = port.actor == PortInfo::default();
            let role = |of: &PortConfig| (of.channel, of.mode == Mode::On, of.priority);
            if is_new || system_changed || role(&port.config) != role(settings) {
                // The partner's answers will be to the new information (6.4.14.1 l).
                let Port { enabled, counters, tx_window, tx_count, .. } = *port;
                *port = Port { enabled, counters, tx_window, tx_count, ..Port::default() };
                receive::record_default(port);
            }
            port.ntt |= port.config != *settings;
            port.config = settings.clone();
            let state = &mut port.actor.state;
            state.set(State::ACTIVITY, settings.mode == Mode::Active);
            state.set(State::TIMEOUT, settings.fast);
            state.set(State::AGGREGATION, true);
            port.actor.system = config.system;
            port.actor.system_priority = config.system_priority;
            port.actor.key = settings.channel;
            port.actor.port_priority = settings.priority;
            port.actor.port = id.index() as u16;
        }
        self.config = config;
    }

    /// The state that a restarted system needs to continue; see [`Snapshot`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.ports)
    }
    /// Takes the first configuration of a system that continues from `found`. Ports that were attached are taken to have
    /// their links until [`Lacp::handle_link`] reports otherwise.
    pub fn resume(&mut self, now: u64, config: Config, found: &Snapshot) {
        // The machines must not run before `restore`: they would assume that no port has a link.
        self.set(config);
        self.ports.iter_mut().for_each(|(id, port)| found.restore(*id, port, now));
        self.run(now);
    }

    /// Takes the state of a port's link; a link in half duplex is not aggregated (5.3.1), so it counts as none.
    pub fn handle_link(&mut self, now: u64, id: PortId, up: bool) {
        if let Some(port) = self.ports.get_mut(&id).filter(|port| port.enabled != up) {
            port.enabled = up;
            self.run(now);
        }
    }

    /// Takes a frame of the slow protocols that was received at a port.
    ///
    /// # Errors
    /// The reason for which the frame was refused; it has been counted.
    pub fn handle_frame(&mut self, now: u64, id: PortId, frame: &[u8]) -> Result<(), PduError> {
        let Some(port) = self.ports.get_mut(&id).filter(|port| port.enabled && port.lacp_enabled()) else {
            return Ok(());
        };
        match pdu::decode(frame).inspect_err(|error| port.counters.errors[*error as usize] += 1)? {
            (_, Pdu::Lacp(pdu)) => {
                port.counters.received += 1;
                receive::take(port, &pdu, now);
                self.run(now);
            }
            (_, Pdu::Marker(marker)) => {
                port.counters.markers += 1;
                // The marker responder (6.5.4). Responses and LACPDUs share the limit of `TX_LIMIT` frames in a second.
                if !marker.response && admit(port, now) {
                    port.counters.marker_responses += 1;
                    let answer = pdu::encode_marker(port.config.mac, &Marker { response: true, ..marker });
                    self.actions.push_back(Action::Send(id, answer));
                }
            }
        }
        Ok(())
    }

    /// Does the work that is due.
    pub fn handle_timer(&mut self, now: u64) {
        self.run(now);
    }

    /// When [`Lacp::handle_timer`] is to be called next; `None` if nothing is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        self.ports.values().filter_map(Port::next).min()
    }

    /// The next action; `None` when there is none.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A port as `show` commands present it; `None` if it belongs to no channel.
    #[must_use]
    pub fn port(&self, id: PortId) -> Option<PortView> {
        self.ports.get(&id).map(|port| PortView {
            config: port.config.clone(),
            actor: port.actor,
            partner: port.partner,
            member: member_state(port),
            rx: port.rx,
            periodic: port.periodic,
            mux: port.mux,
            churn: (port.actor_churn, port.partner_churn),
            counters: port.counters,
        })
    }

    /// The ports that a channel's frames are distributed over.
    #[must_use]
    pub fn members(&self, channel: u16) -> PortSet {
        self.reported.get(&channel).map_or(PortSet::EMPTY, |reported| reported.distributing.clone())
    }

    /// The ports that the frames of any channel are distributed over.
    #[must_use]
    pub fn bundled(&self) -> BTreeSet<PortId> {
        self.reported.values().flat_map(|reported| reported.distributing.iter().collect::<Vec<_>>()).collect()
    }

    /// Sets the statistics of all ports to 0.
    pub fn clear_counters(&mut self) {
        self.ports.values_mut().for_each(|port| port.counters = Counters::default());
    }

    /// The channels with their ports, in the order of their numbers.
    fn channels(&self) -> BTreeMap<u16, Vec<PortId>> {
        let mut channels: BTreeMap<u16, Vec<PortId>> = BTreeMap::new();
        for (id, port) in &self.ports {
            channels.entry(port.config.channel).or_default().push(*id);
        }
        channels
    }

    fn channel_config(&self, channel: u16) -> ChannelConfig {
        self.config.channels.get(&channel).copied().unwrap_or_default()
    }

    /// Runs the machines until nothing changes, announces the members, and sends.
    fn run(&mut self, now: u64) {
        let channels = self.channels();
        for _ in 0..MAX_ROUNDS {
            let mut changed = false;
            for port in self.ports.values_mut() {
                changed |= receive::run(port, now) | periodic::run(port, now);
            }
            for (channel, members) in &channels {
                let lacp: Vec<PortId> =
                    members.iter().copied().filter(|id| self.ports[id].lacp_enabled()).collect();
                let settings = self.channel_config(*channel);
                changed |= selection::run(&mut self.ports, &lacp, settings);
                // Ready: no port that will join is still waiting for others.
                let waits =
                    |port: &Port| port.mux == MuxState::Waiting && port.selected == Selected::Selected;
                let ready = lacp
                    .iter()
                    .map(|id| &self.ports[id])
                    .all(|port| !waits(port) || mux::has_waited(port, now));
                for id in &lacp {
                    if let Some(port) = self.ports.get_mut(id) {
                        changed |= mux::run(port, ready, now);
                    }
                }
            }
            if !changed {
                break;
            }
        }
        for (id, port) in &mut self.ports {
            if churn::run(port, now) {
                self.actions.push_back(Action::Event(Event::Churn { port: *id }));
            }
        }
        self.announce(&channels);
        self.transmit(now);
    }

    /// Queues an action for each channel whose members have changed. The actions precede the LACPDUs that tell the partner so.
    fn announce(&mut self, channels: &BTreeMap<u16, Vec<PortId>>) {
        let all: BTreeSet<u16> = channels.keys().chain(self.reported.keys()).copied().collect();
        for channel in all {
            let mut next = Reported::default();
            for id in channels.get(&channel).into_iter().flatten() {
                let port = &self.ports[id];
                let fixed = !port.lacp_enabled() && port.enabled;
                if fixed || port.mux >= MuxState::Collecting {
                    next.collecting.insert(*id);
                }
                if fixed || port.mux == MuxState::Distributing {
                    next.distributing.insert(*id);
                }
            }
            if next.distributing.len() < usize::from(self.channel_config(channel).min_links) {
                next = Reported::default();
            }
            let was = self.reported.get(&channel).cloned().unwrap_or_default();
            if next == was {
                continue;
            }
            self.reported.insert(channel, next.clone());
            let Reported { collecting, distributing } = next.clone();
            self.actions.push_back(Action::Channel(Box::new(Members { channel, collecting, distributing })));
            self.report(channel, &was.distributing, &next.distributing);
        }
        self.reported
            .retain(|channel, reported| channels.contains_key(channel) || *reported != Reported::default());
    }

    fn report(&mut self, channel: u16, was: &PortSet, is: &PortSet) {
        for port in was.iter().filter(|port| !is.contains(*port)) {
            if let Some(port) = self.ports.get_mut(&port) {
                port.counters.lost += 1;
            }
            self.actions.push_back(Action::Event(Event::Unbundled { port, channel }));
        }
        for port in is.iter().filter(|port| !was.contains(*port)) {
            self.actions.push_back(Action::Event(Event::Bundled { port, channel }));
        }
        if was.is_empty() != is.is_empty() {
            self.actions.push_back(Action::Event(Event::Channel { channel, up: !is.is_empty() }));
        }
    }

    /// The transmit machine (6.4.16).
    fn transmit(&mut self, now: u64) {
        for (id, port) in &mut self.ports {
            if !port.ntt {
                continue;
            }
            if !port.may_talk() {
                port.ntt = false;
            } else if admit(port, now) {
                port.ntt = false;
                port.counters.sent += 1;
                let pdu = Lacpdu { actor: port.actor, partner: port.partner, max_delay: 0 };
                self.actions.push_back(Action::Send(*id, pdu::encode(port.config.mac, &pdu)));
            }
        }
    }
}

/// True if the port may send another frame now: at most three in Fast_Periodic_Time (6.4.16).
fn admit(port: &mut Port, now: u64) -> bool {
    if port.tx_window <= now {
        (port.tx_window, port.tx_count) = (now + FAST_PERIODIC_MS, 0);
    }
    let admitted = port.tx_count < TX_LIMIT;
    port.tx_count += u8::from(admitted);
    admitted
}

fn member_state(port: &Port) -> MemberState {
    match (port.enabled, port.mux, port.selected) {
        (false, ..) => MemberState::Down,
        _ if !port.lacp_enabled() => MemberState::Bundled,
        (true, MuxState::Distributing, _) => MemberState::Bundled,
        (true, _, Selected::Selected) => MemberState::Waiting,
        (true, _, Selected::Standby) => MemberState::HotStandby,
        _ if port.actor.state.has(State::DEFAULTED) => MemberState::Individual,
        _ => MemberState::Suspended,
    }
}
