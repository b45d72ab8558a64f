//! First-hop security of a whole switch, with a kernel and a plane in memory: messages pass through the plane's traps.

use super::*;
use crate::core::Core;
use crate::paths::Paths;
use crate::protocols::keeper::{self, Moment};
use crate::testing::{Bench, config, messages};
use lanyard_cli::backend::{Configuration, Guard as _, SnoopedFilter};

const PORTS: &str = "interface eth1\n switchport\ninterface eth2\n switchport\ninterface eth3\n switchport\n \
    ip dhcp snooping trust\n ip arp inspection trust";
const SNOOPS: &str = "ip dhcp snooping\nip dhcp snooping vlan 1\nip arp inspection vlan 1";

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;

fn up(bench: &Bench, core: &mut Core) {
    bench.plug(core, &["eth1", "eth2", "eth3"]);
}

/// A switch with three ports in VLAN 1, of which eth3 is trusted.
fn switch(lines: &str) -> (Bench, Core) {
    let bench = Bench::new();
    let mut core = bench.core();
    up(&bench, &mut core);
    core.commit(config(&format!("{PORTS}\n{SNOOPS}\n{lines}"))).expect("taken");
    (bench, core)
}

fn receive(bench: &Bench, core: &mut Core, name: &str, frame: &[u8]) {
    let port = core.ctx.switch.ports().get(name).expect("a port");
    bench.ports.borrow().as_ref().expect("a plane").push(port, frame);
    core.plane_events();
    core.tick();
}

/// A DHCP message of, or for, the client 0200.0000.0001.
fn dhcp(kind: u8) -> Vec<u8> {
    let reply = matches!(kind, OFFER | ACK);
    let mut message = vec![0u8; 236];
    message[..3].copy_from_slice(&[1 + u8::from(reply), 1, 6]);
    message[16..20].copy_from_slice(&[10, 0, 0, 5]);
    message[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    message.extend([99, 130, 83, 99, 53, 1, kind, 51, 4, 0, 0, 0, 60, 255]);
    let len = 28 + message.len() as u16;
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1 + u8::from(reply), 0x08, 0x00, 0x45, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
    frame.extend([0, 67, 0, if reply { 68 } else { 67 }]);
    frame.extend((len - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(message);
    frame
}

/// An ARP request from 10.0.0.`last`, of the station 0200.0000.0001.
fn arp(last: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, last]);
    frame.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 9]);
    frame.resize(60, 0);
    frame
}

fn lease(bench: &Bench, core: &mut Core) {
    receive(bench, core, "eth1", &dhcp(REQUEST));
    receive(bench, core, "eth3", &dhcp(ACK));
}

fn bindings(core: &mut Core) -> Vec<String> {
    let text = |binding: lanyard_cli::view::GuardBinding| {
        format!("{} {} {} {:?}", binding.address, binding.interface, binding.kind, binding.lease_s)
    };
    core.guard().bindings.into_iter().map(text).collect()
}

fn logged(core: &Core, mnemonic: &str) -> usize {
    messages(&core.ctx).iter().filter(|line| line.starts_with(mnemonic)).count()
}

fn passes(bench: &Bench, core: &mut Core, frame: &[u8]) -> bool {
    let port = core.ctx.switch.ports().get("eth1").expect("a port");
    let dropped =
        |core: &mut Core| core.ctx.plane.port_counters(port).dropped[DropReason::ArpInspection.index()];
    let before = dropped(core);
    receive(bench, core, "eth1", frame);
    dropped(core) == before
}

#[test]
fn a_lease_becomes_a_binding_until_it_ends() {
    let (bench, mut core) = switch("interface eth1\n ip arp inspection limit none");
    assert!(!passes(&bench, &mut core, &arp(5)), "no address yet");
    lease(&bench, &mut core);
    assert_eq!(bindings(&mut core), ["10.0.0.5 eth1 dhcp-snooping Some(60)"]);
    assert!(passes(&bench, &mut core, &arp(5)) && !passes(&bench, &mut core, &arp(6)));
    assert_eq!(core.guard().forwarded, 2);
    core.clear_snooped(&SnoopedFilter { address: Some([10, 0, 0, 6].into()), ..SnoopedFilter::default() });
    assert_eq!(bindings(&mut core).len(), 1, "another address");
    bench.clock.set(60_000);
    core.tick();
    assert_eq!(bindings(&mut core), [""; 0]);
    assert!(!passes(&bench, &mut core, &arp(5)));
}

#[test]
fn dropped_messages_are_logged_at_a_limited_rate() {
    let (bench, mut core) = switch("interface eth1\n ip arp inspection limit none");
    // The plane copies a few frames of a port, and 10 a second, for the log.
    for _ in 0..3 {
        receive(&bench, &mut core, "eth1", &arp(6));
        receive(&bench, &mut core, "eth1", &dhcp(OFFER));
        receive(&bench, &mut core, "eth2", &dhcp(DISCOVER));
    }
    assert_eq!(logged(&core, "DHCP_SNOOPING_DENY"), 1);
    assert_eq!(logged(&core, "DHCP_SNOOPING_UNTRUSTED_PORT"), 1);
    let shown = core.guard();
    assert_eq!(shown.ports[0].dropped, [("arp_inspection", 3), ("dhcp_server", 3)].into());
    assert_eq!(shown.forwarded, 3, "the client asks at eth2");
    bench.clock.set(REPORT_MS);
    receive(&bench, &mut core, "eth1", &arp(6));
    assert_eq!(logged(&core, "DHCP_SNOOPING_DENY"), 2);
}

/// Later than the next report.
const REPORT_MS: u64 = 6_000;

#[test]
fn a_rate_shuts_the_port_down() {
    let (bench, mut core) = switch("interface eth1\n ip arp inspection limit rate 2");
    bench.clock.set(1_000);
    core.tick();
    for _ in 0..10 {
        receive(&bench, &mut core, "eth1", &arp(6));
    }
    assert!(bench.kernel.get("eth1").admin_up, "the counters are read once a second");
    bench.clock.set(3_000);
    core.tick();
    assert_eq!((logged(&core, "PACKET_RATE_EXCEEDED"), logged(&core, "ERR_DISABLE")), (1, 1));
    assert!(!bench.kernel.get("eth1").admin_up && bench.kernel.get("eth2").admin_up);
}

#[test]
fn static_bindings() {
    let line = "ip source binding 0200.0000.0001 vlan 1 10.0.0.7 interface eth1";
    let (bench, mut core) = switch(&format!("interface eth1\n ip arp inspection limit none\n{line}"));
    assert!(passes(&bench, &mut core, &arp(7)) && !passes(&bench, &mut core, &arp(8)));
    assert_eq!(bindings(&mut core), ["10.0.0.7 eth1 static None"]);
    core.commit(config(&format!("{PORTS}\n{SNOOPS}"))).expect("taken");
    assert!(!passes(&bench, &mut core, &arp(7)));
}

/// The files of leases for a restart of the daemon and for a start of the machine.
fn files(paths: &Paths) -> [Vec<u8>; 2] {
    [&paths.run, &paths.state].map(|directory| std::fs::read(directory.join(FILE)).expect("a file"))
}

const FILE: &str = "dhcp-snooping.json";

fn write(paths: &Paths, files: &[Vec<u8>; 2]) {
    for (directory, bytes) in [&paths.run, &paths.state].into_iter().zip(files) {
        std::fs::create_dir_all(directory).expect("made");
        std::fs::write(directory.join(FILE), bytes).expect("written");
    }
}

/// The bindings of a switch that starts with these files.
fn started(files: &[Vec<u8>; 2], boot: &str, at_ms: u64) -> Vec<String> {
    let bench = Bench::new();
    let paths = bench.paths();
    write(&paths, files);
    bench.clock.set(at_ms);
    let mut core = bench.core();
    up(&bench, &mut core);
    resume(&mut core, &paths, boot);
    core.commit(config(&format!("{PORTS}\n{SNOOPS}"))).expect("taken");
    let found = bindings(&mut core);
    core.commit(config(PORTS)).expect("taken");
    assert_eq!(bindings(&mut core), [""; 0], "a VLAN that is not snooped has no leases");
    found
}

/// Makes the switch continue with the files' contents and keep its leases in these files.
fn resume(core: &mut Core, paths: &Paths, boot: &str) {
    let clock = core.ctx.clock.clone();
    let now = Moment { boot: boot.into(), boot_ms: clock.boot_ms(), unix_ms: clock.unix_ms() };
    let found = keeper::found_leases(paths, &now);
    let (keepers, boot) = ([keeper::of_leases(paths), keeper::of_lasting_leases(paths)], boot.to_owned());
    core.ctx.protocols.with(move |engine| {
        engine.guard.resume(clock, boot, keepers, found);
        engine.guard.forget_adoption();
    });
}

#[test]
fn leases_outlive_the_daemon_and_the_machine() {
    let bench = Bench::new();
    let paths = bench.paths();
    std::fs::create_dir_all(&paths.state).expect("made");
    let mut core = bench.core();
    up(&bench, &mut core);
    resume(&mut core, &paths, "one");
    core.commit(config(&format!("{PORTS}\n{SNOOPS}"))).expect("taken");
    lease(&bench, &mut core);
    let first = files(&paths);
    assert_eq!(started(&first, "one", 10_000), ["10.0.0.5 eth1 dhcp-snooping Some(50)"]);
    assert_eq!(started(&first, "two", 20_000), ["10.0.0.5 eth1 dhcp-snooping Some(40)"]);
    assert_eq!(started(&first, "two", 60_000), [""; 0], "it has ended");
    // The file in the state directory is written once in a minute, and at the end.
    bench.clock.set(1_000);
    core.clear_snooped(&SnoopedFilter::default());
    core.tick();
    let second = files(&paths);
    assert_eq!(started(&second, "one", 10_000), [""; 0]);
    assert_eq!(started(&second, "two", 10_000), ["10.0.0.5 eth1 dhcp-snooping Some(50)"]);
    bench.clock.set(60_000);
    core.tick();
    assert_eq!(started(&files(&paths), "two", 60_000), [""; 0]);
    lease(&bench, &mut core);
    assert_eq!(started(&files(&paths), "two", 70_000), [""; 0]);
    drop(core);
    assert_eq!(started(&files(&paths), "two", 70_000), ["10.0.0.5 eth1 dhcp-snooping Some(50)"]);
}

const ND: &str = "ipv6 nd inspection vlan 1\ninterface eth3\n ipv6 nd inspection trust";

/// A solicitation of the station 0200.0000.00`n`: for duplicate address detection of fe80::`last`, or from that address.
fn solicitation(n: u8, last: u8, detects: bool) -> Vec<u8> {
    let mut ip = [0; 40];
    (ip[0], ip[5], ip[6], ip[7]) = (0x60, 24, 58, 255);
    if !detects {
        (ip[8], ip[9], ip[23]) = (0xfe, 0x80, last);
    }
    ip[24..].copy_from_slice(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, last]);
    let mut message = [0; 24];
    (message[0], message[8], message[9], message[23]) = (135, 0xfe, 0x80, last);
    let pseudo = [&ip[8..40], &[0, 0, 0, 24, 0, 0, 0, 58], &message].concat();
    let sum = !lanyard_wire::ip::ones_complement_sum(&pseudo);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![0x33, 0x33, 0xff, 0, 0, last, 2, 0, 0, 0, 0, n, 0x86, 0xdd];
    frame.extend(ip);
    frame.extend(message);
    frame
}

fn neighbours(core: &mut Core) -> Vec<String> {
    let text = |binding: lanyard_cli::view::NeighborBinding| {
        format!("{} {} {} {}", binding.address, binding.interface, binding.kind, binding.state)
    };
    core.nd_inspection().bindings.into_iter().map(text).collect()
}

#[test]
fn an_address_is_learned_and_defended() {
    let (bench, mut core) = switch(ND);
    receive(&bench, &mut core, "eth1", &solicitation(1, 5, true));
    assert_eq!(neighbours(&mut core), ["fe80::5 eth1 nd INCOMPLETE"]);
    bench.clock.set(500);
    core.tick();
    assert_eq!(neighbours(&mut core), ["fe80::5 eth1 nd REACHABLE"]);
    assert_eq!(logged(&core, "ENTRY_CREATED"), 1);
    // The duplicate address detection of the first host has ended: the plane lets the host's messages pass. Then another
    // host claims the address.
    bench.clock.set(1_100);
    core.tick();
    receive(&bench, &mut core, "eth1", &solicitation(1, 5, false));
    assert_eq!(core.nd_inspection().forwarded, 1);
    for _ in 0..3 {
        receive(&bench, &mut core, "eth2", &solicitation(2, 5, false));
    }
    let shown = core.nd_inspection();
    assert_eq!((shown.dropped["binding_mismatch"], shown.probes), (3, 1));
    assert_eq!(logged(&core, "PAK_DROP"), 1, "one line for each port and kind of frame");
    assert_eq!(neighbours(&mut core), ["fe80::5 eth1 nd VERIFY"]);
    core.clear_neighbor_bindings(&SnoopedFilter {
        vlan: lanyard_types::VlanId::new(2),
        ..SnoopedFilter::default()
    });
    assert_eq!(neighbours(&mut core).len(), 1, "another VLAN");
    core.clear_neighbor_bindings(&SnoopedFilter::default());
    assert_eq!(neighbours(&mut core), [""; 0]);
    core.clear_nd_statistics();
    assert_eq!(core.nd_inspection().forwarded, 0);
}

#[test]
fn neighbours_outlive_the_daemon_and_the_machine() {
    let bench = Bench::new();
    let paths = bench.paths();
    std::fs::create_dir_all(&paths.state).expect("made");
    let mut core = bench.core();
    up(&bench, &mut core);
    resume(&mut core, &paths, "one");
    core.commit(config(&format!("{PORTS}\n{ND}"))).expect("taken");
    receive(&bench, &mut core, "eth1", &solicitation(1, 5, true));
    bench.clock.set(500);
    core.tick();
    drop(core);
    let files = files(&paths);
    for boot in ["one", "two"] {
        let next = Bench::new();
        let paths = next.paths();
        write(&paths, &files);
        let mut core = next.core();
        up(&next, &mut core);
        resume(&mut core, &paths, boot);
        core.commit(config(&format!("{PORTS}\n{ND}"))).expect("taken");
        assert_eq!(neighbours(&mut core), ["fe80::5 eth1 nd REACHABLE"]);
        receive(&next, &mut core, "eth1", &solicitation(1, 5, false));
        assert_eq!(core.nd_inspection().forwarded, 0, "the plane lets it pass");
        core.commit(config(PORTS)).expect("taken");
        assert_eq!(neighbours(&mut core), [""; 0], "a VLAN that is not inspected has no bindings");
    }
}
