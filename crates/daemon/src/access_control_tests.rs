//! Access control of a whole switch, with a kernel and a plane in memory: EAPOL passes through the plane's traps, and a socket
//! of this test is the RADIUS server.

use crate::core::Core;
use crate::testing::{Bench, config, messages};
use lanyard_cli::backend::{AccessControl as _, AuthenticationFilter, Configuration};
use lanyard_types::PortLock;
use std::net::UdpSocket;

/// A switch with two ports, of which eth1 authenticates hosts by their MAC addresses, and the RADIUS server's socket.
fn switch(lines: &str) -> (Bench, Core, UdpSocket) {
    let bench = Bench::new();
    let mut core = bench.core();
    bench.plug(&mut core, &["eth1", "eth2"]);
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("bound").port();
    core.commit(config(&text(port, lines))).expect("taken");
    core.tick();
    (bench, core, server)
}

fn text(port: u16, lines: &str) -> String {
    format!(
        "dot1x system-auth-control\nradius server R\n address ipv4 127.0.0.1 auth-port {port}\n key 0 secret\nvlan 20\n\
         interface eth2\n switchport\ninterface eth1\n switchport\n mab\n authentication port-control auto\n{lines}"
    )
}

fn lock(core: &Core, name: &str) -> PortLock {
    let state = core.ctx.plane.state();
    state.ports.values().find(|port| port.name == name).expect("a port").stages.guard.lock
}

fn receive(bench: &Bench, core: &mut Core, name: &str, frame: &[u8]) {
    let port = core.ctx.switch.ports().get(name).expect("a port");
    bench.ports.borrow().as_ref().expect("a plane").push(port, frame);
    core.plane_events();
    core.tick();
    core.protocol_reports();
}

fn broadcast(last: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, last, 0x08, 0x06]);
    frame.resize(60, 0);
    frame
}

#[test]
fn a_controlled_port_starts_closed_and_requests_authentication() {
    let (bench, mut core, server) = switch("");
    assert_eq!((lock(&core, "eth1"), lock(&core, "eth2")), (PortLock::Closed, PortLock::Open));
    receive(&bench, &mut core, "eth1", &broadcast(5));
    let mut buffer = [0; 4096];
    let (len, _) = server.recv_from(&mut buffer).expect("a request");
    let user = b"020000000005";
    assert!(buffer[..len].windows(user.len()).any(|part| part == user));
    let view = core.access_control();
    assert_eq!((view.sessions[0].method, view.sessions[0].status), ("mab", "running"));
    assert!(!view.ports[0].authorized && view.ports[0].dropped == 1, "{:?}", view.ports);
    assert!(messages(&core.ctx).iter().any(|line| line.starts_with("START: Starting 'mab'")));
    core.clear_authentications(&AuthenticationFilter::default()).expect("cleared");
    assert!(core.access_control().sessions.is_empty());
}

#[test]
fn lines_open_and_close_a_port() {
    let (_bench, mut core, server) = switch("");
    let port = server.local_addr().expect("bound").port();
    core.commit(config(&text(port, " authentication port-control force-authorized"))).expect("taken");
    assert_eq!(lock(&core, "eth1"), PortLock::Open);
    core.commit(config(&text(port, " authentication port-control force-unauthorized"))).expect("taken");
    assert_eq!(lock(&core, "eth1"), PortLock::Closed);
    let error = core.commit(config(&text(port, " switchport mode trunk"))).expect_err("a trunk").0;
    assert!(error.contains("eth1 cannot authenticate hosts"), "{error}");
}
