//! Port security with a kernel and a plane in memory.

use crate::core::Core;
use crate::testing::{Bench, config, messages};
use lanyard_cli::backend::{PortSecurity, SecureFilter};
use lanyard_types::MacAddr;

const SECURE: &str = "\n switchport port-security";

/// A switch with two ports, and these lines under eth1.
fn text(lines: &str) -> String {
    format!("interface eth2\n switchport\ninterface eth1\n switchport\n {lines}{SECURE}")
}

fn switch(lines: &str) -> (Bench, Core) {
    let bench = Bench::new();
    bench.kernel.add("eth1");
    bench.kernel.add("eth2");
    let mut core = bench.core();
    core.take(config(&text(lines))).expect("good");
    (bench, core)
}

/// Sends a broadcast from a host at eth1, and handles the plane's events.
fn send(bench: &Bench, core: &mut Core, host: u8) {
    let port = core.ctx.switch.ports().get("eth1").expect("a port");
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, host, 0x88, 0xb5]);
    frame.resize(60, 0);
    bench.ports.borrow().as_ref().expect("a plane").push(port, &frame);
    core.plane_events();
}

/// The secure addresses as `LAST OCTET KIND`.
fn addresses(core: &mut Core) -> Vec<String> {
    let list = core.port_security().addresses;
    list.iter().map(|address| format!("{} {}", address.mac.0[5], address.kind)).collect()
}

fn logged(core: &Core, mnemonic: &str) -> usize {
    messages(&core.ctx).iter().filter(|line| line.starts_with(mnemonic)).count()
}

/// The number of frames that port security has dropped.
fn dropped(core: &mut Core) -> u64 {
    core.port_security().ports[0].dropped
}

#[test]
fn learned_addresses_become_secure_up_to_the_maximum() {
    let (bench, mut core) =
        switch("switchport port-security violation protect\n switchport port-security maximum 2");
    for host in 1..=4 {
        send(&bench, &mut core, host);
    }
    assert_eq!(addresses(&mut core), ["1 dynamic", "2 dynamic"]);
    assert_eq!(dropped(&mut core), 2);
    let port = core.port_security().ports[0].clone();
    assert_eq!((port.violations, port.total, port.status), (0, 2, "secure-up"));
    assert_eq!(port.last_source, Some(MacAddr([2, 0, 0, 0, 0, 3])));
    assert_eq!(logged(&core, "PSECURE_VIOLATION"), 0, "protect logs nothing");
    let limits: Vec<_> =
        core.ctx.plane.state().ports.values().map(|port| (port.name.clone(), port.fdb_limit)).collect();
    assert!(limits.contains(&("eth1".into(), Some(0))), "{limits:?}");
}

#[test]
fn restrict_logs_and_shutdown_shuts_the_port_down() {
    let (bench, mut core) = switch("switchport port-security violation restrict");
    for host in 1..=9 {
        send(&bench, &mut core, host);
    }
    assert_eq!(logged(&core, "PSECURE_VIOLATION"), 1, "once in a while");
    assert_eq!(core.port_security().ports[0].violations, 8);
    assert!(bench.kernel.get("eth1").admin_up);
    let (bench, mut core) = switch("description shutdown is the default");
    send(&bench, &mut core, 1);
    assert!(bench.kernel.get("eth1").admin_up);
    send(&bench, &mut core, 7);
    assert_eq!(core.port_security().ports[0].status, "secure-shutdown");
    assert!(!bench.kernel.get("eth1").admin_up);
    assert_eq!(logged(&core, "ERR_DISABLE: psecure-violation"), 1);
}

#[test]
fn sticky_addresses_are_in_the_running_configuration() {
    let (bench, mut core) = switch("switchport port-security mac-address sticky");
    send(&bench, &mut core, 5);
    assert_eq!(addresses(&mut core), ["5 sticky"]);
    let line = "switchport port-security mac-address sticky 0200.0000.0005";
    let running = lanyard_cli::text::render(core.ctx.switch.config());
    assert!(running.contains(line), "{running}");
    let kept = std::fs::read_to_string(bench.paths().running_config()).expect("written");
    assert!(kept.contains(line), "a restart keeps it");
}

#[test]
fn a_restart_keeps_learned_addresses() {
    let lines = "switchport port-security maximum 2\n switchport port-security violation protect";
    let (bench, mut core) = switch(lines);
    send(&bench, &mut core, 1);
    drop(core);
    let mut core = bench.core();
    core.take(config(&text(lines))).expect("good");
    assert_eq!(addresses(&mut core), ["1 dynamic"]);
    for host in [2, 3, 1] {
        send(&bench, &mut core, host);
    }
    assert_eq!((addresses(&mut core), dropped(&mut core)), (vec!["1 dynamic".into(), "2 dynamic".into()], 1));
}

#[test]
fn learned_addresses_age_and_their_place_is_free_again() {
    let (bench, mut core) =
        switch("switchport port-security aging time 2\n switchport port-security violation protect");
    send(&bench, &mut core, 1);
    assert_eq!(core.port_security().addresses[0].remaining_s, Some(120));
    bench.clock.set(119_999);
    core.tick();
    assert_eq!(addresses(&mut core), ["1 dynamic"]);
    bench.clock.set(120_000);
    assert!(core.next_ms().is_some_and(|at_ms| at_ms <= 120_000), "the deadline is known");
    core.tick();
    assert!(addresses(&mut core).is_empty());
    send(&bench, &mut core, 2);
    assert_eq!(addresses(&mut core), ["2 dynamic"]);
}

#[test]
fn clear_removes_addresses_of_the_named_kind() {
    let (bench, mut core) = switch(
        "switchport port-security maximum 3\n switchport port-security mac-address 0200.0000.0009\n \
         switchport port-security mac-address sticky 0200.0000.0008",
    );
    send(&bench, &mut core, 1);
    assert_eq!(addresses(&mut core), ["1 dynamic", "8 sticky", "9 configured"]);
    let none = SecureFilter::default();
    core.clear_port_security(&SecureFilter {
        sticky: true,
        mac: Some(MacAddr([2, 0, 0, 0, 0, 1])),
        ..none.clone()
    });
    assert_eq!(addresses(&mut core).len(), 3, "another kind");
    core.clear_port_security(&SecureFilter { sticky: true, ..none.clone() });
    assert_eq!(addresses(&mut core), ["1 dynamic", "9 configured"]);
    core.clear_port_security(&SecureFilter { dynamic: true, ..none });
    assert_eq!(addresses(&mut core), ["9 configured"]);
}
