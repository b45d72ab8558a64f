//! The authenticator: the sessions of the hosts at each port, and the handlers of frames, datagrams and deadlines. The module
//! `methods` runs the authentication methods.
//!
//! Invariants: at most [`MAX_HOSTS`] sessions at a port and [`MAX_SESSIONS`] in all. A host has a grant at one port only: while
//! it has one, no other port admits its address. Hosts cause a bounded number of log events for each port.

#[path = "methods.rs"]
mod methods;

use crate::client::{Client, Outcome, ServerView};
use crate::config::{Config, Control, HostMode, PortConfig, Violation};
use crate::eapol::{self, Received};
use crate::events::{Access, Action, Event, Kept};
use crate::session::{Grant, GrantKind, Method, Session, State};
use crate::view::{SessionStatus, SessionView};
use lanyard_types::{MacAddr, PortId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most sessions at a port.
pub const MAX_HOSTS: usize = 32;
/// The most sessions in all.
pub const MAX_SESSIONS: usize = 4096;
/// Events of a port that are logged in [`LOG_WINDOW_MS`].
const LOG_EVENTS: u32 = 24;
const LOG_WINDOW_MS: u64 = 10_000;
/// After a restart, the time until the first host is authenticated again, and between one and the next, in milliseconds.
const RESTORED_FIRST_MS: u64 = 2_000;
const RESTORED_NEXT_MS: u64 = 100;

/// The key of a session: the port and the MAC address of the host.
type Key = (PortId, MacAddr);

#[derive(Debug, Default)]
struct Port {
    sessions: BTreeMap<MacAddr, Session>,
    /// When all hosts at the port are asked for their identity next. This counts only while the port has no session.
    probe_ms: u64,
    /// The EAP identifier of the last request to all hosts.
    probe_id: u8,
    log: Budget,
}

/// Limits the logged events of a port to [`LOG_EVENTS`] in [`LOG_WINDOW_MS`].
#[derive(Debug, Default)]
struct Budget {
    until_ms: u64,
    used: u32,
    suppressed: u64,
}

impl Port {
    fn grants(&self) -> impl Iterator<Item = (MacAddr, &Grant)> {
        self.sessions.iter().filter_map(|(mac, session)| Some((*mac, session.grant.as_ref()?)))
    }
    /// The oldest grant at the port. It determines the port's VLAN.
    fn first(&self) -> Option<&Grant> {
        self.grants().map(|(_, grant)| grant).min_by_key(|grant| grant.since_ms)
    }
}

/// See the crate's documentation.
pub struct Authenticator {
    config: Config,
    ports: BTreeMap<PortId, Port>,
    client: Client<Key>,
    actions: VecDeque<Action>,
    next_session: u32,
    next_ms: Option<u64>,
}

impl Authenticator {
    /// An authenticator without ports. `secret` has to be random: the authenticators of RADIUS requests are derived from it.
    #[must_use]
    pub const fn new(secret: [u8; 16]) -> Self {
        Self {
            config: Config {
                ports: BTreeMap::new(),
                servers: Vec::new(),
                deadtime_ms: 0,
                vlans: BTreeMap::new(),
                nas: crate::config::Nas { identifier: String::new(), address: None, mac: MacAddr([0; 6]) },
            },
            ports: BTreeMap::new(),
            client: Client::new(secret),
            actions: VecDeque::new(),
            next_session: 1,
            next_ms: None,
        }
    }

    /// Takes a configuration. Hosts at a port that has lost its link, or whose methods change, have to be authenticated anew.
    pub fn configure(&mut self, now: u64, config: Config) {
        let old = std::mem::replace(&mut self.config, config);
        self.client.configure(now, &self.config.servers, self.config.deadtime_ms);
        let config = &self.config;
        let gone: Vec<PortId> =
            self.ports.keys().copied().filter(|port| !config.ports.contains_key(port)).collect();
        let methods =
            |port: &PortConfig| (port.control, port.host_mode, port.eap, port.mab, port.mab_first, port.up);
        let anew: Vec<PortId> = config
            .ports
            .iter()
            .filter(|(id, port)| old.ports.get(id).map(methods) != Some(methods(port)))
            .map(|(id, _)| *id)
            .collect();
        for port in gone.iter().chain(&anew) {
            self.reset(now, *port);
        }
        gone.iter().for_each(|port| drop(self.ports.remove(port)));
        let lost = |session: &Session| {
            let vlan = session.grant.as_ref().and_then(|grant| grant.vlan);
            vlan.is_some_and(|vlan| !self.config.vlans.contains_key(&vlan))
        };
        let lost: Vec<Key> = self.keys(|_, session| lost(session));
        lost.into_iter().for_each(|key| self.remove(now, key));
        self.advance(now);
    }

    /// Continues with the hosts that an earlier run has let in at a port. Each is authenticated again soon, because another host
    /// may have taken its place.
    pub fn restore(&mut self, now: u64, port: PortId, kept: &[Kept]) {
        let Some(config) = self.config.ports.get(&port).filter(|it| it.up && it.control == Control::Auto)
        else {
            return;
        };
        let host_mode = config.host_mode;
        let first = methods::order(config).first().copied().unwrap_or(Method::Dot1x);
        for kept in kept {
            let exists = kept.vlan.is_none_or(|vlan| self.config.vlans.contains_key(&vlan));
            let several = host_mode == HostMode::MultiAuth || self.grants_at(port) == 0;
            if !exists || !several || kept.mac.is_group() || !self.has_room(now, port) {
                continue;
            }
            let others = self.count() as u64;
            let mut session = Session::new(kept.id, kept.since_ms);
            let ends = Some((now + RESTORED_FIRST_MS + others * RESTORED_NEXT_MS, true));
            let (kind, vlan, user) = (kept.kind, kept.vlan, kept.user.clone());
            session.grant = Some(Grant { kind, vlan, user, since_ms: kept.since_ms, ends });
            session.method = if let GrantKind::Method(method) = kind { method } else { first };
            session.speaks_eap = matches!(kind, GrantKind::Method(Method::Dot1x) | GrantKind::Fail);
            session.enter(State::Authenticated, None);
            self.next_session = self.next_session.max(kept.id.wrapping_add(1));
            self.ports.entry(port).or_default().sessions.insert(kept.mac, session);
        }
        self.advance(now);
    }

    /// Handles a frame for the PAE group address, without a tag.
    pub fn handle_eapol(&mut self, now: u64, port: PortId, frame: &[u8]) {
        let Some((mac, received)) = eapol::parse(frame) else { return };
        if self.config.ports.get(&port).is_some_and(|it| it.eap && it.up && it.control == Control::Auto) {
            match received {
                Received::Start => self.started(now, (port, mac)),
                Received::Logoff => self.logged_off(now, (port, mac)),
                Received::Response(id, eap) => self.responded(now, (port, mac), id, eap),
            }
        }
        self.advance(now);
    }

    /// Handles the source of a frame that the plane has dropped because the port is not open for it.
    pub fn handle_host(&mut self, now: u64, port: PortId, mac: MacAddr) {
        if self.session((port, mac)).is_none() && self.admit(now, (port, mac)) {
            self.begin(now, (port, mac));
        }
        self.advance(now);
    }

    /// Handles a datagram of a server.
    pub fn handle_datagram(&mut self, now: u64, from: std::net::SocketAddr, packet: &[u8]) {
        self.client.handle_datagram(now, from, packet);
        self.advance(now);
    }

    /// Handles every deadline that has passed: of sessions, of RADIUS requests, and for the requests to all hosts at a port.
    pub fn handle_timer(&mut self, now: u64) {
        self.client.handle_timer(now);
        for key in self.keys(|_, session| session.next_ms().is_some_and(|at| at <= now)) {
            self.due(now, key);
        }
        let asked = self.config.ports.iter().filter(|(id, config)| {
            probes(config)
                && self.ports.get(id).is_some_and(|port| port.sessions.is_empty() && port.probe_ms <= now)
        });
        let asked: Vec<(PortId, u64)> = asked.map(|(id, config)| (*id, config.tx_ms)).collect();
        for (id, tx_ms) in asked {
            let Some(port) = self.ports.get_mut(&id) else { continue };
            port.probe_ms = now + tx_ms;
            port.probe_id = port.probe_id.wrapping_add(1);
            let request = eapol::identity_request(port.probe_id);
            self.actions
                .push_back(Action::Send(id, eapol::frame(eapol::GROUP, self.config.nas.mac, &request)));
        }
        self.advance(now);
    }

    /// When [`Authenticator::handle_timer`] is to be called next, in milliseconds; `None` if there is no deadline.
    #[must_use]
    pub const fn next_timeout(&self) -> Option<u64> {
        self.next_ms
    }

    /// Takes the next action for the daemon; `None` if there is none.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Ends the sessions at `port` (`None`: at every port) of the host `mac` (`None`: of every host): the hosts have to be
    /// authenticated anew. Returns the number of sessions ended.
    pub fn clear(&mut self, now: u64, port: Option<PortId>, mac: Option<MacAddr>) -> usize {
        let keys = self
            .keys(|(at, host), _| port.is_none_or(|port| port == at) && mac.is_none_or(|mac| mac == host));
        keys.iter().for_each(|key| self.remove(now, *key));
        self.advance(now);
        keys.len()
    }

    /// The ports with access control, and whom each is open for.
    #[must_use]
    pub fn access(&self) -> BTreeMap<PortId, Access> {
        let controlled = self.config.ports.iter().filter(|(_, it)| it.control != Control::ForceAuthorized);
        let of = |(id, config): (&PortId, &PortConfig)| {
            let port = self.ports.get(id).filter(|_| config.control == Control::Auto);
            let Some((port, first)) = port.and_then(|port| Some((port, port.first()?))) else {
                return (*id, Access::default());
            };
            let hosts: BTreeSet<MacAddr> = port.grants().map(|(mac, _)| mac).collect();
            let hosts = Some(hosts).filter(|_| config.host_mode != HostMode::Multi);
            (*id, Access { vlan: first.vlan, hosts, open: true })
        };
        controlled.map(of).collect()
    }

    /// The hosts that a port is open for, for [`Authenticator::restore`].
    #[must_use]
    pub fn kept(&self, port: PortId) -> Vec<Kept> {
        let sessions = self.ports.get(&port).into_iter().flat_map(|port| &port.sessions);
        let kept = |(mac, session): (&MacAddr, &Session)| {
            let grant = session.grant.as_ref()?;
            let user = grant.user.clone();
            let (kind, vlan, since_ms) = (grant.kind, grant.vlan, grant.since_ms);
            Some(Kept { mac: *mac, kind, vlan, user, since_ms, id: session.id })
        };
        sessions.filter_map(kept).collect()
    }

    /// The sessions, by port and address.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionView> {
        let all = self.ports.iter().flat_map(|(id, port)| port.sessions.iter().map(|it| (*id, it)));
        all.map(|(port, (mac, session))| SessionView {
            port,
            mac: *mac,
            id: session.id,
            method: session.method,
            status: SessionStatus::of(session),
            grant: session.grant.as_ref().map(|grant| grant.kind),
            vlan: session.grant.as_ref().and_then(|grant| grant.vlan),
            user: session.grant.as_ref().map_or_else(
                || String::from_utf8_lossy(&session.identity).into_owned(),
                |grant| grant.user.clone(),
            ),
            since_ms: session.grant.as_ref().map_or(session.began_ms, |grant| grant.since_ms),
            ends: session.grant.as_ref().and_then(|grant| grant.ends),
        })
        .collect()
    }

    /// The servers, in the order in which they are asked.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerView> {
        self.client.view()
    }

    fn keys(&self, wanted: impl Fn(Key, &Session) -> bool) -> Vec<Key> {
        let all = self
            .ports
            .iter()
            .flat_map(|(id, port)| port.sessions.iter().map(|(mac, session)| ((*id, *mac), session)));
        all.filter(|(key, session)| wanted(*key, session)).map(|(key, _)| key).collect()
    }
    fn count(&self) -> usize {
        self.ports.values().map(|port| port.sessions.len()).sum()
    }
    fn grants_at(&self, port: PortId) -> usize {
        self.ports.get(&port).map_or(0, |port| port.grants().count())
    }
    fn session(&self, (port, mac): Key) -> Option<&Session> {
        self.ports.get(&port)?.sessions.get(&mac)
    }
    fn session_mut(&mut self, (port, mac): Key) -> Option<&mut Session> {
        self.ports.get_mut(&port)?.sessions.get_mut(&mac)
    }
    fn settings(&self, (port, _): Key) -> Option<&PortConfig> {
        self.config.ports.get(&port)
    }

    /// True if there is room for another session at a port. If there is none, first removes the port's oldest session in state
    /// HELD.
    fn has_room(&mut self, now: u64, port: PortId) -> bool {
        let full = |this: &Self| {
            this.count() >= MAX_SESSIONS
                || this.ports.get(&port).is_some_and(|port| port.sessions.len() >= MAX_HOSTS)
        };
        if full(self) {
            let held = self.ports.get(&port).into_iter().flat_map(|port| &port.sessions);
            let failed = held.filter(|(_, session)| session.grant.is_none() && session.state == State::Held);
            if let Some(mac) = failed.min_by_key(|(_, session)| session.began_ms).map(|(mac, _)| *mac) {
                self.remove(now, (port, mac));
            }
        }
        !full(self)
    }

    /// Makes a session for a host that has none, if the port may be opened for it. Returns true if it has made one.
    fn admit(&mut self, now: u64, key: Key) -> bool {
        let (port, mac) = key;
        let Some(config) = self.settings(key) else { return false };
        let (host_mode, violation) = (config.host_mode, config.violation);
        let possible = config.up && config.control == Control::Auto && (config.eap || config.mab);
        if !possible || mac.is_group() || mac.is_zero() || mac == self.config.nas.mac {
            return false;
        }
        let elsewhere = |(id, it): (&PortId, &Port)| *id != port && it.grants().any(|(host, _)| host == mac);
        if self.ports.iter().any(elsewhere) {
            return false;
        }
        if host_mode != HostMode::MultiAuth && self.grants_at(port) > 0 {
            if host_mode == HostMode::Single && violation != Violation::Protect {
                self.log(now, Event::Violation(port, mac));
                if violation == Violation::Shutdown {
                    self.actions.push_back(Action::Shut(port));
                }
            }
            return false;
        }
        if !self.has_room(now, port) {
            self.log(now, Event::Full(port, mac));
            return false;
        }
        let id = self.next_session;
        self.next_session = id.wrapping_add(1);
        self.ports.entry(port).or_default().sessions.insert(mac, Session::new(id, now));
        true
    }

    /// Ends a session, whatever its state.
    fn remove(&mut self, now: u64, key: Key) {
        self.client.forget(key);
        let Some(port) = self.ports.get_mut(&key.0) else { return };
        let Some(session) = port.sessions.remove(&key.1) else { return };
        if port.sessions.is_empty() {
            port.probe_ms = now;
        }
        if session.grant.is_some() {
            self.log(now, Event::Unauthorized(key.0, key.1, session.id));
        }
    }
    /// Ends every session of a port.
    fn reset(&mut self, now: u64, port: PortId) {
        for key in self.keys(|(at, _), _| at == port) {
            self.remove(now, key);
        }
        self.ports.entry(port).or_default().probe_ms = now;
    }

    /// Adds an event to the log, unless its port has had too many.
    fn log(&mut self, now: u64, event: Event) {
        let budget = event.port().and_then(|port| Some((port, &mut self.ports.get_mut(&port)?.log)));
        let Some((port, budget)) = budget else { return self.actions.push_back(Action::Log(event)) };
        if budget.until_ms <= now {
            (budget.until_ms, budget.used) = (now + LOG_WINDOW_MS, 0);
            let suppressed = std::mem::take(&mut budget.suppressed);
            if suppressed > 0 {
                self.actions.push_back(Action::Log(Event::Suppressed(port, suppressed)));
            }
        }
        if budget.used < LOG_EVENTS {
            budget.used += 1;
            self.actions.push_back(Action::Log(event));
        } else {
            budget.suppressed += 1;
        }
    }

    /// Handles the outcomes of RADIUS requests, queues the datagrams to servers, and finds the next deadline.
    fn advance(&mut self, now: u64) {
        loop {
            let outcomes = self.client.take_outcomes();
            if outcomes.is_empty() {
                break;
            }
            for outcome in outcomes {
                match outcome {
                    Outcome::Answered(key, answer) => self.answered(now, key, *answer),
                    Outcome::NoServer(key) => self.no_server(now, key),
                    Outcome::Dead(server) => self.log(now, Event::Dead(server)),
                    Outcome::Alive(server) => {
                        self.log(now, Event::Alive(server));
                        self.server_returned(now);
                    }
                    Outcome::Invalid(server, reason, count) => {
                        self.log(now, Event::Invalid(server, reason, count));
                    }
                }
            }
        }
        let datagrams = self.client.take_datagrams();
        self.actions.extend(datagrams.into_iter().map(|(to, packet)| Action::Ask(to, packet)));
        let sessions =
            self.ports.values().flat_map(|port| port.sessions.values()).filter_map(Session::next_ms);
        let probes = self.config.ports.iter().filter(|(_, config)| probes(config)).filter_map(|(id, _)| {
            self.ports.get(id).filter(|port| port.sessions.is_empty()).map(|port| port.probe_ms)
        });
        self.next_ms = sessions.chain(probes).chain(self.client.next_timeout()).min();
    }
}

/// True if all hosts at the port are asked for their identity while the port has no session.
fn probes(config: &PortConfig) -> bool {
    config.eap && config.up && config.control == Control::Auto
}

#[cfg(test)]
#[path = "authenticator_tests.rs"]
mod tests;
