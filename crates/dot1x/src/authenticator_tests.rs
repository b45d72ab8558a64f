//! Hosts and a server in simulated time.

use super::*;
use crate::config::{Fail, Nas, Reauthenticate, Server};
use crate::radius::{Attributes, Code, attribute, respond};
use lanyard_types::VlanId;
use lanyard_wire::Builder;
use std::net::SocketAddr;

const KEY: &[u8] = b"testing123";

fn host(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn vlan(n: u16) -> VlanId {
    VlanId::new(n).expect("a VLAN")
}

fn port(n: u16) -> PortId {
    PortId::new(n).expect("a port")
}

struct Bed {
    it: Authenticator,
    now: u64,
    config: Config,
    frames: Vec<Vec<u8>>,
    asked: Vec<Vec<u8>>,
    log: Vec<Event>,
    shut: Vec<PortId>,
}

impl Bed {
    /// Two ports that speak 802.1X, `eth1` and `eth2`, each with the settings that `change` makes.
    fn new(change: impl Fn(&mut PortConfig)) -> Self {
        let made = |n: u16| {
            let (control, name) = (Control::Auto, format!("eth{n}"));
            let mut config = PortConfig { name, up: true, control, eap: true, ..PortConfig::default() };
            change(&mut config);
            (port(n), config)
        };
        let server = Server {
            address: SocketAddr::from(([10, 0, 0, 1], 1812)),
            key: KEY.to_vec(),
            timeout_ms: 5000,
            retransmit: 1,
        };
        let config = Config {
            ports: [made(1), made(2)].into(),
            servers: vec![server],
            deadtime_ms: 0,
            vlans: [(vlan(1), "default".into()), (vlan(20), "staff".into()), (vlan(30), "guests".into())]
                .into(),
            nas: Nas { identifier: "sw1".into(), address: Some([10, 0, 0, 9].into()), mac: host(0xaa) },
        };
        let it = Authenticator::new([7; 16]);
        let (frames, asked, log, shut) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut bed = Self { it, now: 0, config, frames, asked, log, shut };
        bed.configure();
        bed
    }
    fn configure(&mut self) {
        self.it.configure(self.now, self.config.clone());
        self.collect();
    }
    fn collect(&mut self) {
        while let Some(action) = self.it.poll_action() {
            match action {
                // Port 2 asks its hosts for their identity as well; only frames of port 1 are recorded.
                Action::Send(at, frame) => self.frames.extend(Some(frame).filter(|_| at == port(1))),
                Action::Ask(_, packet) => self.asked.push(packet),
                Action::Shut(port) => self.shut.push(port),
                Action::Log(event) => self.log.push(event),
            }
        }
    }
    /// Lets time pass.
    fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(at) = self.it.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.it.handle_timer(self.now);
            self.collect();
        }
        self.now = end;
    }
    fn eapol(&mut self, at: u16, src: MacAddr, kind: u8, eap: &[u8]) {
        let payload = [&[2, kind], &(eap.len() as u16).to_be_bytes()[..], eap].concat();
        let frame =
            Builder::new(eapol::GROUP, src).ethertype(eapol::ETHERTYPE).payload(&payload).pad(60).build();
        self.it.handle_eapol(self.now, port(at), &frame);
        self.collect();
    }
    fn respond(&mut self, src: MacAddr, id: u8, data: &[u8]) {
        let length = (4 + data.len()) as u16;
        let eap = [&[2, id], &length.to_be_bytes()[..], data].concat();
        self.eapol(1, src, 0, &eap);
    }
    /// The host `src` sends a data frame that the plane drops at port `at`.
    fn speak(&mut self, at: u16, src: MacAddr) {
        self.it.handle_host(self.now, port(at), src);
        self.collect();
    }
    /// The EAP packet that was sent last: its destination, its code and its identifier.
    fn last(&self) -> (MacAddr, u8, u8) {
        let frame = self.frames.last().expect("a frame");
        (MacAddr(*frame.first_chunk().expect("an address")), frame[18], frame[19])
    }
    /// The server answers the last request.
    fn answer(&mut self, code: Code, eap: &[u8], more: impl FnOnce(&mut Attributes)) {
        let mut of = Attributes::default();
        if !eap.is_empty() {
            of.eap(eap);
        }
        more(&mut of);
        let packet = respond(self.asked.last().expect("a request"), KEY, code, &of);
        self.it.handle_datagram(self.now, self.config.servers[0].address, &packet);
        self.collect();
    }
    fn access(&self) -> Access {
        self.it.access()[&port(1)].clone()
    }
    fn open_for(&self, hosts: &[u8]) -> bool {
        self.access().hosts == Some(hosts.iter().map(|n| host(*n)).collect()) && self.access().open
    }
    /// Host `n` sends its identity and answers one challenge; the server's final answer is `code`.
    fn logs_in(&mut self, n: u8, code: Code, more: impl FnOnce(&mut Attributes)) {
        self.eapol(1, host(n), 1, &[]);
        let (to, kind, id) = self.last();
        assert_eq!((to, kind), (host(n), 1));
        self.respond(host(n), id, b"\x01alice");
        self.answer(Code::Challenge, &[1, id.wrapping_add(1), 0, 6, 4, 9], |of| {
            of.add(attribute::STATE, b"one");
        });
        assert_eq!(self.last(), (host(n), 1, id.wrapping_add(1)));
        self.respond(host(n), id.wrapping_add(1), &[4, 7, 7]);
        let end = if code == Code::Accept { 3 } else { 4 };
        self.answer(code, &[end, id.wrapping_add(1), 0, 4], more);
    }
}

fn tunnel(of: &mut Attributes, name: &[u8]) {
    of.number(attribute::TUNNEL_TYPE, 13).number(attribute::TUNNEL_MEDIUM_TYPE, 6);
    of.add(attribute::TUNNEL_PRIVATE_GROUP_ID, name);
}

fn attributes(packet: &[u8], wanted: u8) -> Vec<Vec<u8>> {
    let (mut at, mut found) = (20, Vec::new());
    while at < packet.len() {
        let end = at + usize::from(packet[at + 1]);
        if packet[at] == wanted {
            found.push(packet[at + 2..end].to_vec());
        }
        at = end;
    }
    found
}

#[test]
fn a_host_is_let_in_and_leaves() {
    let mut bed = Bed::new(|_| ());
    assert_eq!(bed.access(), Access::default());
    bed.pass(0);
    assert_eq!(bed.last().0, eapol::GROUP, "hosts are asked once the link is up");
    bed.logs_in(1, Code::Accept, |_| ());
    assert!(bed.open_for(&[1]), "{:?}", bed.access());
    assert_eq!(bed.last(), (host(1), 3, bed.last().2));
    let first = &bed.asked[0];
    assert_eq!(attributes(first, attribute::USER_NAME), [b"alice"]);
    assert_eq!(attributes(first, attribute::CALLING_STATION_ID), [b"02-00-00-00-00-01"]);
    assert_eq!(attributes(&bed.asked[1], attribute::STATE), [b"one"]);
    assert_eq!(attributes(&bed.asked[1], attribute::EAP_MESSAGE).concat()[4..], [4, 7, 7]);
    let view = bed.it.sessions();
    assert_eq!((view[0].user.as_str(), view[0].status), ("alice", SessionStatus::Authorized));
    // Host 2 cannot log host 1 off.
    bed.eapol(1, host(2), 2, &[]);
    assert!(bed.open_for(&[1]));
    bed.eapol(1, host(1), 2, &[]);
    assert_eq!((bed.access(), bed.last().1), (Access::default(), 4));
    assert!(matches!(bed.log.last(), Some(Event::Unauthorized(..))), "{:?}", bed.log);
}

#[test]
fn a_wrong_password_is_refused_and_waits() {
    let mut bed = Bed::new(|_| ());
    bed.logs_in(1, Code::Reject, |_| ());
    assert_eq!((bed.access(), bed.last().1), (Access::default(), 4));
    let asked = bed.asked.len();
    bed.eapol(1, host(1), 1, &[]);
    bed.pass(59_000);
    assert_eq!(bed.asked.len(), asked, "the quiet period");
    bed.pass(2_000);
    assert_eq!((bed.last().0, bed.last().1), (host(1), 1), "the host is asked again");
    bed.logs_in(1, Code::Accept, |_| ());
    assert!(bed.open_for(&[1]));
}

#[test]
fn an_answer_to_the_request_for_all_begins_a_session() {
    let mut bed = Bed::new(|_| ());
    bed.pass(0);
    let (_, _, id) = bed.last();
    bed.respond(host(1), id.wrapping_add(1), b"\x01alice");
    bed.respond(host(1), id, &[4, 1]);
    assert!(bed.asked.is_empty() && bed.it.sessions().is_empty());
    bed.respond(host(1), id, b"\x01alice");
    assert_eq!(bed.asked.len(), 1);
    bed.answer(Code::Accept, &[3, id, 0, 4], |_| ());
    assert!(bed.open_for(&[1]));
}

#[test]
fn requests_are_repeated_and_end() {
    let mut bed = Bed::new(|_| ());
    bed.eapol(1, host(1), 1, &[]);
    let sent = |bed: &Bed| bed.frames.iter().filter(|frame| frame[..6] == host(1).0).count();
    bed.pass(89_000);
    assert_eq!(sent(&bed), 3);
    bed.pass(2_000);
    assert_eq!((sent(&bed), bed.it.sessions()[0].status), (3, SessionStatus::Failed));
    let mut bed = Bed::new(|_| ());
    bed.eapol(1, host(1), 1, &[]);
    let (_, _, id) = bed.last();
    bed.respond(host(1), id, b"\x01alice");
    bed.answer(Code::Challenge, &[1, 77, 0, 6, 4, 9], |_| ());
    bed.pass(91_000);
    assert_eq!(bed.frames.iter().filter(|frame| frame[..6] == host(1).0 && frame[19] == 77).count(), 3);
    assert_eq!(bed.it.sessions()[0].status, SessionStatus::Failed);
}

#[test]
fn mab_of_a_host_without_supplicant() {
    let mut bed = Bed::new(|it| it.mab = true);
    bed.speak(1, host(5));
    bed.pass(89_000);
    assert!(bed.asked.is_empty());
    bed.pass(1_000);
    let asked = bed.asked.last().expect("a request");
    assert_eq!(attributes(asked, attribute::USER_NAME), [b"020000000005"]);
    assert_eq!(attributes(asked, attribute::SERVICE_TYPE), [[0, 0, 0, 10]]);
    assert_eq!(attributes(asked, attribute::USER_PASSWORD)[0].len(), 16);
    bed.answer(Code::Accept, &[], |of| tunnel(of, b"staff"));
    assert!(bed.open_for(&[5]));
    assert_eq!(bed.access().vlan, Some(vlan(20)));
    let sessions = bed.it.sessions();
    assert_eq!(sessions[0].grant, Some(GrantKind::Method(Method::Mab)));
    // EAPOL-Logoff does not end a grant of MAC authentication bypass; EAPOL-Start begins 802.1X, and the port stays open
    // meanwhile.
    bed.eapol(1, host(5), 2, &[]);
    assert!(bed.open_for(&[5]));
    bed.logs_in(5, Code::Accept, |_| ());
    assert_eq!(bed.it.sessions()[0].grant, Some(GrantKind::Method(Method::Dot1x)));
    assert_eq!(bed.access().vlan, None);
}

#[test]
fn mab_first_and_then_802_1x() {
    let mut bed = Bed::new(|it| (it.mab, it.mab_first) = (true, true));
    bed.speak(1, host(5));
    assert_eq!(bed.asked.len(), 1);
    bed.answer(Code::Reject, &[], |_| ());
    assert_eq!(bed.last().1, 1, "802.1X follows");
    bed.pass(90_000);
    assert_eq!((bed.access(), bed.it.sessions()[0].status), (Access::default(), SessionStatus::Failed));
}

#[test]
fn vlans_of_servers_and_events() {
    for (name, want) in [(&b"20"[..], Some(20)), (b"staff", Some(20)), (b"\x01guests", None), (b"99", None)] {
        let mut bed = Bed::new(|_| ());
        bed.logs_in(1, Code::Accept, |of| tunnel(of, name));
        if name == b"99" {
            assert!(!bed.access().open && bed.last().1 == 4, "a VLAN that does not exist");
            assert!(bed.log.iter().any(|event| matches!(event, Event::NoVlan(..))));
        } else {
            assert_eq!((bed.access().vlan, bed.access().open), (want.map(vlan), true), "{name:?}");
        }
    }
    let mut bed = Bed::new(|it| it.no_response = Some(vlan(30)));
    bed.speak(1, host(1));
    bed.pass(90_000);
    assert!(bed.open_for(&[1]) && bed.access().vlan == Some(vlan(30)));
    // With one retry the second rejection opens the port, after the quiet period.
    let mut bed = Bed::new(|it| it.fail = Fail::Authorize(vlan(30), 1));
    bed.logs_in(1, Code::Reject, |_| ());
    assert!(!bed.access().open);
    bed.pass(60_000);
    bed.logs_in(1, Code::Reject, |_| ());
    assert!(bed.open_for(&[1]) && bed.access().vlan == Some(vlan(30)));
    // The earlier rejections of a host that has left do not count when it returns.
    let mut bed = Bed::new(|it| it.fail = Fail::Authorize(vlan(30), 1));
    bed.logs_in(1, Code::Reject, |_| ());
    bed.pass(60_000 + 90_000 + 60_000);
    assert!(bed.it.sessions().is_empty());
    bed.logs_in(1, Code::Reject, |_| ());
    assert!(!bed.access().open);
    let mut bed = Bed::new(|it| it.fail = Fail::Authorize(vlan(30), 0));
    bed.logs_in(1, Code::Reject, |_| ());
    assert!(bed.open_for(&[1]) && bed.access().vlan == Some(vlan(30)));
    bed.config.vlans.remove(&vlan(30));
    bed.configure();
    assert!(!bed.access().open, "the VLAN is removed");
    let mut bed = Bed::new(|it| (it.fail, it.mab) = (Fail::NextMethod, true));
    bed.logs_in(1, Code::Reject, |_| ());
    bed.answer(Code::Accept, &[], |_| ());
    assert_eq!(bed.it.sessions()[0].grant, Some(GrantKind::Method(Method::Mab)));
}

#[test]
fn host_modes() {
    let mut bed = Bed::new(|_| ());
    bed.logs_in(1, Code::Accept, |_| ());
    bed.speak(1, host(2));
    assert_eq!(
        (&bed.shut[..], bed.open_for(&[1])),
        (&[port(1)][..], true),
        "a second host at a port for one"
    );
    let mut bed = Bed::new(|it| it.violation = Violation::Restrict);
    bed.speak(1, host(2));
    bed.logs_in(1, Code::Accept, |_| ());
    bed.eapol(1, host(2), 1, &[]);
    assert!(bed.shut.is_empty() && bed.open_for(&[1]) && bed.it.sessions().len() == 1);
    assert!(bed.log.contains(&Event::Violation(port(1), host(2))));
    let mut bed = Bed::new(|it| it.host_mode = HostMode::Multi);
    bed.logs_in(1, Code::Accept, |_| ());
    assert_eq!(bed.access(), Access { open: true, ..Access::default() });
    bed.eapol(1, host(1), 2, &[]);
    assert!(!bed.access().open, "it is closed for all when the host leaves");
    let mut bed = Bed::new(|it| (it.host_mode, it.mab, it.mab_first) = (HostMode::MultiAuth, true, true));
    bed.speak(1, host(1));
    bed.answer(Code::Accept, &[], |of| tunnel(of, b"20"));
    bed.speak(1, host(2));
    bed.answer(Code::Accept, &[], |of| tunnel(of, b"30"));
    assert!(bed.open_for(&[1]), "another VLAN than that of the port");
    bed.speak(1, host(3));
    bed.answer(Code::Accept, &[], |_| ());
    assert!(bed.open_for(&[1, 3]) && bed.access().vlan == Some(vlan(20)));
    // A host that is let in at one port gets no session at another.
    let sessions = bed.it.sessions().len();
    bed.speak(2, host(1));
    assert_eq!(bed.it.sessions().len(), sessions);
    for n in 10..200 {
        bed.speak(1, host(n));
    }
    assert!(bed.it.sessions().len() <= MAX_HOSTS && bed.open_for(&[1, 3]));
    assert!(bed.log.len() <= 60, "{} events", bed.log.len());
}

#[test]
fn hosts_are_authenticated_again() {
    let mut bed = Bed::new(|it| it.periodic = Some(Reauthenticate::After(600)));
    bed.logs_in(1, Code::Accept, |_| ());
    bed.pass(600_000);
    let (to, code, id) = bed.last();
    assert_eq!((to, code, bed.open_for(&[1])), (host(1), 1, true));
    bed.respond(host(1), id, b"\x01alice");
    bed.answer(Code::Accept, &[3, id, 0, 4], |_| ());
    assert!(bed.open_for(&[1]));
    // The host has left before it is authenticated again for the second time.
    bed.pass(600_000 + 89_000);
    assert!(bed.open_for(&[1]));
    bed.pass(2_000);
    assert!(!bed.access().open);
    for (again, seconds) in [(1, 100), (0, 100)] {
        let mut bed = Bed::new(|it| it.periodic = Some(Reauthenticate::Server));
        bed.logs_in(1, Code::Accept, |of| {
            of.number(attribute::SESSION_TIMEOUT, seconds).number(attribute::TERMINATION_ACTION, again);
        });
        bed.pass(99_000);
        assert!(bed.open_for(&[1]));
        bed.pass(1_000);
        assert_eq!(bed.access().open, again == 1, "Termination-Action {again}");
    }
    let mut bed = Bed::new(|it| it.periodic = Some(Reauthenticate::Server));
    bed.logs_in(1, Code::Accept, |_| ());
    bed.pass(10_000_000);
    assert!(bed.open_for(&[1]), "the server has named no time");
}

#[test]
fn no_server_answers() {
    let mut bed = Bed::new(|_| ());
    bed.eapol(1, host(1), 1, &[]);
    let id = bed.last().2;
    bed.respond(host(1), id, b"\x01alice");
    bed.pass(10_000);
    assert_eq!(bed.it.sessions()[0].status, SessionStatus::Failed);
    assert!(matches!(bed.log.last(), Some(Event::Dead(_))), "{:?}", bed.log);
    let mut bed = Bed::new(|it| {
        (it.mab, it.mab_first, it.server_dead, it.reinitialize) = (true, true, Some(vlan(30)), true)
    });
    bed.speak(1, host(1));
    bed.pass(10_000);
    assert!(bed.open_for(&[1]) && bed.access().vlan == Some(vlan(30)));
    // Another host's answer shows that the server is back.
    bed.speak(2, host(2));
    bed.answer(Code::Accept, &[], |_| ());
    bed.answer(Code::Accept, &[], |_| ());
    assert!(bed.open_for(&[1]) && bed.access().vlan.is_none());
    // A host that was let in stays while no server answers.
    let mut bed = Bed::new(|it| it.periodic = Some(Reauthenticate::After(60)));
    bed.logs_in(1, Code::Accept, |_| ());
    bed.pass(60_000);
    let id = bed.last().2;
    bed.respond(host(1), id, b"\x01alice");
    bed.pass(10_000);
    assert!(bed.open_for(&[1]));
    bed.pass(60_000);
    assert_eq!((bed.last().1, bed.open_for(&[1])), (1, true), "and is asked again");
}

#[test]
fn a_restart_keeps_hosts_and_authenticates_them_again() {
    let mut bed = Bed::new(|_| ());
    bed.logs_in(1, Code::Accept, |of| tunnel(of, b"20"));
    let kept = bed.it.kept(port(1));
    let access = bed.access();
    let mut bed = Bed::new(|_| ());
    bed.it.restore(0, port(1), &kept);
    bed.collect();
    assert_eq!(bed.access(), access);
    bed.pass(RESTORED_FIRST_MS);
    let (to, code, id) = bed.last();
    assert_eq!((to, code, bed.access()), (host(1), 1, access.clone()));
    bed.respond(host(1), id, b"\x01alice");
    bed.answer(Code::Accept, &[3, id, 0, 4], |of| tunnel(of, b"20"));
    assert_eq!(bed.access(), access);
    // A port without a link has no hosts.
    let mut bed = Bed::new(|it| it.up = false);
    bed.it.restore(0, port(1), &kept);
    assert!(!bed.access().open);
}

#[test]
fn links_and_commands_end_sessions() {
    let mut bed = Bed::new(|_| ());
    bed.logs_in(1, Code::Accept, |_| ());
    bed.config.ports.get_mut(&port(1)).expect("a port").quiet_ms = 5_000;
    bed.configure();
    assert!(bed.open_for(&[1]), "a timer alone changes nothing");
    bed.config.ports.get_mut(&port(1)).expect("a port").up = false;
    bed.configure();
    assert!(!bed.access().open && bed.it.sessions().is_empty());
    bed.config.ports.get_mut(&port(1)).expect("a port").up = true;
    bed.configure();
    bed.logs_in(1, Code::Accept, |_| ());
    assert_eq!(bed.it.clear(bed.now, Some(port(2)), None), 0);
    assert_eq!(bed.it.clear(bed.now, Some(port(1)), Some(host(1))), 1);
    assert!(!bed.access().open);
    bed.config.ports.get_mut(&port(1)).expect("a port").control = Control::ForceAuthorized;
    bed.configure();
    assert!(!bed.it.access().contains_key(&port(1)));
    bed.config.ports.get_mut(&port(1)).expect("a port").control = Control::ForceUnauthorized;
    bed.configure();
    bed.eapol(1, host(1), 1, &[]);
    assert!(!bed.access().open && bed.it.sessions().is_empty());
}
