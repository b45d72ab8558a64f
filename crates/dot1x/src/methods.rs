//! The methods of a session: 802.1X (IEEE 802.1X-2004, 8.2.4 and 8.2.9), MAC authentication bypass, and what follows when
//! they have failed.

use super::{Authenticator, Key};
use crate::client::Query;
use crate::config::{Fail, HostMode, PortConfig, Reauthenticate};
use crate::eapol;
use crate::events::{Action, Event};
use crate::radius::{Answer, Attributes, Code, attribute, known_vlan};
use crate::session::{Grant, GrantKind, Method, State};
use lanyard_types::{MacAddr, VlanId};

/// The time after which a query that the client had no room for is tried again, in milliseconds.
const UNSENT_MS: u64 = 1_000;
/// NAS-Port-Type: Ethernet (RFC 2865, 5.41).
const ETHERNET: u32 = 15;
/// Service-Type (RFC 2865, 5.6): Framed for 802.1X, Call Check for MAC authentication bypass.
const FRAMED: u32 = 2;
const CALL_CHECK: u32 = 10;
/// The longest EAP packet that servers may send (RFC 3580, 3.10), in bytes.
const FRAMED_MTU: u32 = 1400;

/// Why no method has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// A server has rejected a host that speaks 802.1X.
    Rejected,
    /// The host does not speak 802.1X, and no server has accepted its MAC address.
    Unknown,
}

/// The terms on which a host is let in.
struct Terms {
    kind: GrantKind,
    vlan: Option<VlanId>,
    user: String,
    /// Session-Timeout in seconds, and true if the host is authenticated again then, false if it loses its grant.
    timeout_s: Option<(u32, bool)>,
}

/// The methods of a port, in the order in which they are tried.
pub(super) fn order(config: &PortConfig) -> Vec<Method> {
    let mut order = vec![];
    order.extend(config.eap.then_some(Method::Dot1x));
    order.extend(config.mab.then_some(Method::Mab));
    if config.mab_first {
        order.reverse();
    }
    order
}

impl Authenticator {
    /// Tries the methods of the port, from the first one.
    pub(super) fn begin(&mut self, now: u64, key: Key) {
        if let Some(session) = self.session_mut(key) {
            session.tried.clear();
        }
        self.next_method(now, key, Failed::Unknown);
    }

    /// Tries the first method that has not been tried.
    fn next_method(&mut self, now: u64, key: Key, failed: Failed) {
        let Some(config) = self.settings(key) else { return };
        let order = order(config);
        let Some(session) = self.session_mut(key) else { return };
        let next = order.into_iter().find(|method| !session.tried.contains(method));
        let Some(method) = next else { return self.exhausted(now, key, failed) };
        session.tried.push(method);
        session.method = method;
        let id = session.id;
        self.log(now, Event::Started(key.0, key.1, id, method));
        match method {
            Method::Dot1x => self.connect(now, key),
            Method::Mab => {
                if let Some(session) = self.session_mut(key) {
                    session.enter(State::Mab, None);
                }
                self.ask(now, key);
            }
        }
    }

    /// CONNECTING: asks the host for its identity.
    fn connect(&mut self, now: u64, key: Key) {
        self.client.forget(key);
        let Some(tx_ms) = self.settings(key).map(|config| config.tx_ms) else { return };
        let Some(session) = self.session_mut(key) else { return };
        session.method = Method::Dot1x;
        session.radius_state = None;
        session.eap_id = session.eap_id.wrapping_add(1);
        session.eap = eapol::identity_request(session.eap_id);
        session.enter(State::Connecting, Some(now + tx_ms));
        self.send(key);
    }

    /// Sends the request that waits for an answer of the host.
    fn send(&mut self, key: Key) {
        if let Some(eap) = self.session(key).map(|session| session.eap.clone()) {
            self.send_eap(key, &eap);
        }
    }
    fn send_eap(&mut self, (port, mac): Key, eap: &[u8]) {
        let frame = eapol::frame(mac, self.config.nas.mac, eap);
        self.actions.push_back(Action::Send(port, frame));
    }

    /// Sends a request about the session's host to the servers: in state [`State::Mab`] with its MAC address, else with its
    /// last EAP packet.
    fn ask(&mut self, now: u64, key: Key) {
        let Some((session, config)) = self.session(key).zip(self.settings(key)) else { return };
        let nas = &self.config.nas;
        let mut to = Attributes::default();
        let password = if session.state == State::Mab {
            let user = bare(key.1);
            to.add(attribute::USER_NAME, user.as_bytes()).number(attribute::SERVICE_TYPE, CALL_CHECK);
            Some(user.into_bytes())
        } else {
            to.add(attribute::USER_NAME, &session.identity).number(attribute::SERVICE_TYPE, FRAMED);
            to.number(attribute::FRAMED_MTU, FRAMED_MTU).eap(&session.eap);
            None
        };
        to.add(attribute::CALLING_STATION_ID, dashed(key.1).as_bytes());
        to.add(attribute::CALLED_STATION_ID, dashed(nas.mac).as_bytes());
        to.number(attribute::NAS_PORT_TYPE, ETHERNET).number(attribute::NAS_PORT, config.number);
        to.add(attribute::NAS_PORT_ID, config.name.as_bytes());
        to.add(attribute::NAS_IDENTIFIER, nas.identifier.as_bytes());
        if let Some(address) = nas.address {
            to.add(attribute::NAS_IP_ADDRESS, &address.octets());
        }
        if let Some(state) = &session.radius_state {
            to.add(attribute::STATE, state);
        }
        let sent = self.client.ask(now, key, Query { attributes: to, password });
        if let Some(session) = self.session_mut(key) {
            session.unsent = !sent;
            session.due_ms = (!sent).then_some(now + UNSENT_MS);
        }
    }

    /// Handles EAPOL-Start.
    pub(super) fn started(&mut self, now: u64, key: Key) {
        match self.session(key).map(|session| session.state) {
            // HELD: the quiet period has not ended.
            Some(State::Held) => return,
            Some(_) => {}
            None if self.admit(now, key) => {}
            None => return,
        }
        let Some(session) = self.session_mut(key) else { return };
        session.speaks_eap = true;
        if session.state != State::Connecting {
            session.tried = vec![Method::Dot1x];
            let id = session.id;
            self.log(now, Event::Started(key.0, key.1, id, Method::Dot1x));
        }
        self.connect(now, key);
    }

    /// Handles EAPOL-Logoff. A host that was let in by its address or without authentication has nothing to log off from.
    pub(super) fn logged_off(&mut self, now: u64, key: Key) {
        let Some(session) = self.session(key) else { return };
        let running = matches!(session.state, State::Connecting | State::Request | State::Response);
        let granted = session.grant.as_ref().map(|grant| grant.kind);
        if granted == Some(GrantKind::Method(Method::Dot1x)) || (granted.is_none() && running) {
            let failure = eapol::end(false, session.eap_id);
            self.remove(now, key);
            self.send_eap(key, &failure);
        }
    }

    /// Handles an EAP response of a host.
    pub(super) fn responded(&mut self, now: u64, key: Key, id: u8, eap: &[u8]) {
        let identity = eapol::identity(eap);
        let probe = self.ports.get(&key.0).map(|port| port.probe_id);
        if self.session(key).is_none() {
            // Only an answer to the identity request that went to all hosts begins a session.
            if identity.is_none() || probe != Some(id) || !self.admit(now, key) {
                return;
            }
            if let Some(session) = self.session_mut(key) {
                session.tried = vec![Method::Dot1x];
                session.eap_id = id;
                session.enter(State::Connecting, None);
                let session = session.id;
                self.log(now, Event::Started(key.0, key.1, session, Method::Dot1x));
            }
        }
        let Some(session) = self.session_mut(key) else { return };
        match (session.state, identity) {
            (State::Connecting, Some(identity)) if id == session.eap_id || Some(id) == probe => {
                session.identity = identity.to_vec();
            }
            (State::Request, _) if id == session.eap_id => {}
            _ => return,
        }
        (session.speaks_eap, session.eap, session.eap_id) = (true, eap.to_vec(), id);
        session.enter(State::Response, None);
        self.ask(now, key);
    }

    /// Handles a server's answer.
    pub(super) fn answered(&mut self, now: u64, key: Key, answer: Answer) {
        let Some((state, method)) = self.session(key).map(|session| (session.state, session.method)) else {
            return;
        };
        match (state, answer.code) {
            (State::Response, Code::Challenge) => self.challenged(now, key, answer),
            (State::Response | State::Mab, Code::Accept) => self.accepted(now, key, method, answer),
            (State::Response, Code::Reject) => self.rejected(now, key, answer.eap),
            (State::Mab, Code::Reject | Code::Challenge) => {
                self.report(now, key, Method::Mab, false);
                let speaks_eap = self.session(key).is_some_and(|session| session.speaks_eap);
                let failed = if speaks_eap { Failed::Rejected } else { Failed::Unknown };
                self.next_method(now, key, failed);
            }
            _ => {}
        }
    }

    fn report(&mut self, now: u64, key: Key, method: Method, success: bool) {
        if let Some(id) = self.session(key).map(|session| session.id) {
            self.log(now, Event::Result(key.0, key.1, id, method, success));
        }
    }

    fn challenged(&mut self, now: u64, key: Key, answer: Answer) {
        let Some(supplicant_ms) = self.settings(key).map(|config| config.supplicant_ms) else { return };
        let request = answer.eap.filter(|eap| eap.len() <= eapol::MAX_EAP);
        let Some((eap, id)) =
            request.and_then(|eap| Some((eapol::request(&eap)?, eap))).map(|(id, eap)| (eap, id))
        else {
            return self.rejected(now, key, None);
        };
        let Some(session) = self.session_mut(key) else { return };
        (session.eap, session.eap_id, session.radius_state) = (eap, id, answer.state);
        session.enter(State::Request, Some(now + supplicant_ms));
        self.send(key);
    }

    fn rejected(&mut self, now: u64, key: Key, eap: Option<Vec<u8>>) {
        let Some(session) = self.session_mut(key) else { return };
        session.failures = session.failures.saturating_add(1);
        let failure = eap.unwrap_or_else(|| eapol::end(false, session.eap_id));
        self.report(now, key, Method::Dot1x, false);
        if self.settings(key).is_some_and(|config| config.fail == Fail::NextMethod) {
            self.next_method(now, key, Failed::Rejected);
        } else {
            self.exhausted(now, key, Failed::Rejected);
        }
        self.send_eap(key, &failure);
    }

    fn accepted(&mut self, now: u64, key: Key, method: Method, answer: Answer) {
        let Some(session) = self.session(key) else { return };
        let (id, eap_id) = (session.id, session.eap_id);
        let vlan = match answer.vlan.as_deref().map(|text| (text, known_vlan(text, &self.config.vlans))) {
            None => None,
            Some((_, Some(vlan))) => Some(vlan),
            Some((text, None)) => {
                let event = Event::NoVlan(key.0, key.1, id, text.chars().take(32).collect());
                self.log(now, event);
                return self.unauthorizable(now, key, method);
            }
        };
        let user = match (&answer.user, method) {
            (Some(user), _) => String::from_utf8_lossy(user).into_owned(),
            (None, Method::Dot1x) => String::from_utf8_lossy(&session.identity).into_owned(),
            (None, Method::Mab) => bare(key.1),
        };
        self.report(now, key, method, true);
        let timeout_s = answer.timeout_s.map(|seconds| (seconds, answer.reauthenticates));
        if !self.grant(now, key, Terms { kind: GrantKind::Method(method), vlan, user, timeout_s }) {
            return self.unauthorizable(now, key, method);
        }
        if method == Method::Dot1x {
            let success = answer.eap.unwrap_or_else(|| eapol::end(true, eap_id));
            self.send_eap(key, &success);
        }
    }

    /// Holds a host that a server has accepted, because the switch cannot put it into the server's VLAN.
    fn unauthorizable(&mut self, now: u64, key: Key, method: Method) {
        let id = self.session(key).map_or(0, |session| session.eap_id);
        self.hold(now, key);
        if method == Method::Dot1x {
            self.send_eap(key, &eapol::end(false, id));
        }
    }

    /// Handles the end of a request that no server has answered.
    pub(super) fn no_server(&mut self, now: u64, key: Key) {
        let Some(config) = self.settings(key) else { return };
        let vlan = config.server_dead;
        let Some(session) = self.session(key) else { return };
        if let Some(grant) = &session.grant {
            // A host that was let in stays, and is authenticated again after the usual time.
            let (kind, vlan, user) = (grant.kind, grant.vlan, grant.user.clone());
            self.grant(now, key, Terms { kind, vlan, user, timeout_s: None });
        } else if vlan.is_some() {
            let user = String::from_utf8_lossy(&session.identity).into_owned();
            self.grant_or_hold(now, key, Terms { kind: GrantKind::ServerDead, vlan, user, timeout_s: None });
        } else {
            self.hold(now, key);
        }
    }

    /// Authenticates the hosts that were let in because no server answered, now that one answers again; only at ports with
    /// `reinitialize`.
    pub(super) fn server_returned(&mut self, now: u64) {
        let dead = |grant: &Grant| grant.kind == GrantKind::ServerDead;
        let keys = self.keys(|key, session| {
            session.state == State::Authenticated
                && session.grant.as_ref().is_some_and(dead)
                && self.settings(key).is_some_and(|config| config.reinitialize)
        });
        keys.into_iter().for_each(|key| self.again(now, key));
    }

    /// After every method has failed: lets the host into the VLAN that is configured for this case, or holds it.
    fn exhausted(&mut self, now: u64, key: Key, failed: Failed) {
        let Some((config, session)) = self.settings(key).zip(self.session(key)) else { return };
        let user = String::from_utf8_lossy(&session.identity).into_owned();
        let granted = match (failed, config.fail, config.no_response) {
            (Failed::Rejected, Fail::Authorize(vlan, retry), _) if session.failures > retry => {
                Some((GrantKind::Fail, vlan))
            }
            (Failed::Unknown, _, Some(vlan)) => Some((GrantKind::NoResponse, vlan)),
            _ => None,
        };
        match granted {
            Some((kind, vlan)) => {
                self.grant_or_hold(now, key, Terms { kind, vlan: Some(vlan), user, timeout_s: None });
            }
            None => self.hold(now, key),
        }
    }

    /// HELD: the port is closed for the host until it may try again.
    fn hold(&mut self, now: u64, key: Key) {
        let Some((quiet_ms, restart_ms)) = self.settings(key).map(|it| (it.quiet_ms, it.restart_ms)) else {
            return;
        };
        let Some(session) = self.session_mut(key) else { return };
        let quiet_ms = if session.speaks_eap { quiet_ms } else { restart_ms };
        let (granted, id) = (session.grant.take().is_some(), session.id);
        session.enter(State::Held, Some(now + quiet_ms));
        if granted {
            self.log(now, Event::Unauthorized(key.0, key.1, id));
        }
    }

    fn grant_or_hold(&mut self, now: u64, key: Key, terms: Terms) {
        if !self.grant(now, key, terms) {
            self.hold(now, key);
        }
    }

    /// AUTHENTICATED: opens the port for the host. Returns false if its VLAN differs from that of the port's other hosts, or does
    /// not exist.
    fn grant(&mut self, now: u64, key: Key, terms: Terms) -> bool {
        let Some(config) = self.settings(key) else { return false };
        let ends = match (terms.kind, config.periodic) {
            (GrantKind::ServerDead, _) if config.reinitialize => Some((now + config.restart_ms, true)),
            (_, None) => None,
            (_, Some(Reauthenticate::After(seconds))) => Some((now + u64::from(seconds) * 1000, true)),
            (_, Some(Reauthenticate::Server)) => {
                terms.timeout_s.map(|(seconds, again)| (now + u64::from(seconds.max(1)) * 1000, again))
            }
        };
        let Some(session) = self.session(key) else { return false };
        let id = session.id;
        if terms.vlan.is_some_and(|vlan| !self.config.vlans.contains_key(&vlan)) {
            let vlan = terms.vlan.map_or_else(String::new, |vlan| vlan.to_string());
            self.log(now, Event::NoVlan(key.0, key.1, id, vlan));
            return false;
        }
        let mut vlan = terms.vlan;
        if config.host_mode == HostMode::MultiAuth {
            let others = self.ports.get(&key.0).into_iter().flat_map(super::Port::grants);
            let first = others.filter(|(mac, _)| *mac != key.1).min_by_key(|(_, grant)| grant.since_ms);
            if let Some(of) = first.map(|(_, grant)| grant.vlan) {
                if let Some(other) = vlan.filter(|_| vlan != of) {
                    self.log(now, Event::OtherVlan(key.0, key.1, id, other));
                    return false;
                }
                vlan = of;
            }
        } else {
            let others = self.keys(|(port, mac), _| port == key.0 && mac != key.1);
            others.into_iter().for_each(|other| self.remove(now, other));
        }
        let Some(session) = self.session_mut(key) else { return false };
        let before = session.grant.take();
        let since_ms = before.as_ref().map_or(now, |grant| grant.since_ms);
        let same = before.is_some_and(|grant| (grant.kind, grant.vlan) == (terms.kind, vlan));
        let kind = terms.kind;
        session.grant = Some(Grant { kind, vlan, user: terms.user, since_ms, ends });
        if matches!(kind, GrantKind::Method(_)) {
            session.failures = 0;
        }
        session.enter(State::Authenticated, None);
        if !same {
            self.log(now, Event::Authorized(key.0, key.1, id, kind, vlan));
        }
        true
    }

    /// Authenticates a host again that has been let in, by the method that has succeeded.
    fn again(&mut self, now: u64, key: Key) {
        let Some(session) = self.session_mut(key) else { return };
        let (kind, speaks_eap) = (session.grant.as_ref().map(|grant| grant.kind), session.speaks_eap);
        session.tried = match kind {
            Some(GrantKind::Method(Method::Dot1x)) => vec![Method::Mab],
            Some(GrantKind::Method(Method::Mab)) => vec![Method::Dot1x],
            Some(GrantKind::ServerDead) if !speaks_eap => vec![Method::Dot1x],
            _ => Vec::new(),
        };
        self.next_method(now, key, Failed::Unknown);
    }

    /// Handles the deadline of a session.
    pub(super) fn due(&mut self, now: u64, key: Key) {
        let Some((config, session)) = self.settings(key).cloned().zip(self.session_mut(key)) else { return };
        if session.unsent {
            return self.ask(now, key);
        }
        match session.state {
            State::Connecting | State::Request => {
                let (most, wait_ms) = match session.state {
                    State::Connecting => (config.max_reauth_req, config.tx_ms),
                    _ => (config.max_req, config.supplicant_ms),
                };
                if session.repeated < most {
                    session.repeated += 1;
                    session.due_ms = Some(now + wait_ms);
                    return self.send(key);
                }
                // A host that no longer answers has left: its earlier rejections do not count when it returns.
                session.failures = 0;
                if session.state == State::Request || session.grant.is_some() {
                    self.report(now, key, Method::Dot1x, false);
                }
                self.next_method(now, key, Failed::Unknown);
            }
            State::Authenticated => {
                let ends = session.grant.as_ref().and_then(|grant| grant.ends);
                match ends.filter(|(at, _)| *at <= now) {
                    Some((_, true)) => self.again(now, key),
                    Some((_, false)) => {
                        let failure = eapol::end(false, session.eap_id);
                        let speaks_eap = session.speaks_eap;
                        self.remove(now, key);
                        if speaks_eap {
                            self.send_eap(key, &failure);
                        }
                    }
                    None => {}
                }
            }
            // A host that has been rejected is asked again, and its rejections remain counted.
            State::Held if session.failures > 0 && config.eap => {
                session.tried = vec![Method::Dot1x];
                self.connect(now, key);
            }
            State::Held => self.remove(now, key),
            State::Response | State::Mab => session.due_ms = None,
        }
    }
}

/// A MAC address as twelve hexadecimal digits, the name and password in MAC authentication bypass, as in IOS.
fn bare(mac: MacAddr) -> String {
    mac.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A MAC address in the format of RFC 3580 (3.20): upper-case digits with hyphens.
fn dashed(mac: MacAddr) -> String {
    mac.colon().to_uppercase().replace(':', "-")
}
