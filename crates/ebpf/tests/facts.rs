//! Ports follow their netdevs: changes that hosts and administrators make while the switch runs, in namespaces of each
//! test's own.

#![allow(clippy::panic)] // a test that panics has failed, and says why
#![allow(unsafe_code)] // one program is loaded and attached by hand, as another tool would do it

mod common;

use common::wires::{redirected, sent, xdp_pair};
use common::{
    Guarded, Host, PATIENCE, SILENCE, access_state, arrives, assert_conserved, in_switch, options, port,
};
use lanyard_ebpf::Options;
use lanyard_netdev::{Netdev, PacketSocket};
use lanyard_pipeline::state::{FdbTarget, HookChoice, PortKind, PortState};
use lanyard_plane::{Hook, Plane, PlaneError, PlaneEvent};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Instant;

/// The verdict of an XDP program that passes a frame on.
const XDP_PASS: i32 = 2;

/// Handles the plane's events, as a daemon does, until one about `n` contains `text`.
fn until(guarded: &mut Guarded, n: u16, text: &str) {
    let began = Instant::now();
    let mut seen = Vec::new();
    while began.elapsed() < PATIENCE {
        let mut found = false;
        guarded.plane().poll_events(&mut |event| {
            if let PlaneEvent::PortChanged { port: at, what } = event {
                found |= at == port(n) && what.contains(text);
                seen.push(format!("{at}: {what}"));
            }
        });
        if found {
            println!("port {n}: {text}: after {:?}", began.elapsed());
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("port {n}: no event with {text:?}, but {seen:?}");
}

fn tc(arguments: &str) {
    tc_with(&arguments.split(' ').collect::<Vec<_>>());
}

fn tc_with(arguments: &[&str]) {
    let output = Command::new("tc").args(arguments).output().expect("tc");
    assert!(output.status.success(), "tc {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two hosts that have each other's addresses, with ports that use the hook `hook`.
fn pair(hook: HookChoice) -> (Host, Host, Guarded, bool) {
    let (a, b) = (Host::new(1), Host::new(2));
    let mut guarded = Guarded::open(options());
    let mut state = access_state(&[(&a, 10), (&b, 10)]);
    state.ports.values_mut().for_each(|port| port.hook = hook);
    let able = match guarded.plane().apply(&state) {
        Err(error @ PlaneError::Unsupported { .. }) => {
            println!("skipped: {error}");
            false
        }
        done => {
            done.expect("applied");
            true
        }
    };
    if able {
        assert!(arrives(&a.socket(), &b.socket(), "hello", PATIENCE));
        assert!(arrives(&b.socket(), &a.socket(), "hello", PATIENCE));
    }
    (a, b, guarded, able)
}

#[test]
fn xdp_is_used_while_the_far_end_runs_napi() {
    in_switch(|| {
        let (a, b, mut guarded, able) = pair(HookChoice::Xdp);
        if !able {
            return;
        }
        let (at_a, at_b) = (a.socket(), b.socket());
        assert_eq!(redirected(&a), 0, "the far end would lose the frame");
        b.set_feature("rx-gro", true);
        until(&mut guarded, 2, "takes frames from XDP");
        assert!(arrives(&at_a, &at_b, "by XDP", PATIENCE));
        assert_eq!(guarded.plane().port_hook(port(1)), Hook::Xdp);
        // The host leaves the checksum of this datagram to a device, so XDP must not forward it.
        let before = redirected(&a);
        assert!(arrives(&at_a, &at_b, "by TC", PATIENCE));
        assert_eq!(redirected(&a), before, "XDP has redirected a frame without a checksum");
        a.set_feature("tx-checksum-ip-generic", false);
        assert!(arrives(&at_a, &at_b, "by XDP, complete", PATIENCE));
        assert!(redirected(&a) > before, "XDP has not been used");
        let before = redirected(&a);
        b.set_feature("rx-gro", false);
        until(&mut guarded, 2, "no more frames from XDP");
        assert!(arrives(&at_a, &at_b, "by TC again", PATIENCE), "it vanished");
        assert_eq!(redirected(&a), before);
        assert_conserved(guarded.plane());
    });
}

/// Hosts as `ip link` makes them, except for GRO: they leave checksums to a device.
#[test]
fn tcp_of_hosts_with_checksum_offload_passes_xdp() {
    in_switch(|| {
        let (a, b, mut guarded, able) = pair(HookChoice::Xdp);
        if !able {
            return;
        }
        for (n, host) in [(1, &a), (2, &b)] {
            host.set_feature("rx-gro", true);
            until(&mut guarded, n, "takes frames from XDP");
        }
        let address = (b.addr(), 5001);
        let listener = b.enter(|| TcpListener::bind(address)).expect("listening");
        let data: Vec<u8> = (0..1 << 20).map(|at| (at ^ at >> 8) as u8).collect();
        let received = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut all = Vec::new();
                listener.accept().expect("a connection").0.read_to_end(&mut all).expect("read");
                all
            });
            let mut stream = a.enter(|| {
                let address = address.into();
                TcpStream::connect_timeout(&address, PATIENCE)
            });
            let stream = stream.as_mut().expect("a connection through XDP");
            stream.write_all(&data).expect("written");
            stream.shutdown(std::net::Shutdown::Write).expect("shut down");
            reader.join().expect("the reader")
        });
        assert!(received == data, "{} bytes of {}", received.len(), data.len());
    });
}

#[test]
fn a_qdisc_or_an_egress_program_is_not_passed_by() {
    in_switch(|| {
        let (a, b, mut guarded, _) = pair(HookChoice::Auto);
        let (at_a, at_b) = (a.socket(), b.socket());
        let through = |what: &str, device: bool| {
            let before = sent(&b);
            assert!(arrives(&at_a, &at_b, what, PATIENCE), "{what}");
            assert_eq!(sent(&b) != before, device, "{what}");
        };
        through("straight", false);
        tc("qdisc add dev sw2 root tbf rate 50mbit burst 100k latency 10ms");
        until(&mut guarded, 2, "queueing discipline tbf");
        through("tbf", true);
        tc("qdisc del dev sw2 root");
        until(&mut guarded, 2, "handed to the other end");
        through("straight again", false);
        tc("qdisc add dev sw2 clsact");
        tc_with(&["filter", "add", "dev", "sw2", "egress", "bpf", "bytecode", "1,6 0 0 0,"]);
        until(&mut guarded, 2, "egress filter");
        through("filter", true);
        tc("qdisc del dev sw2 clsact");
        until(&mut guarded, 2, "handed to the other end");
        // A program at TCX sends no notification.
        match egress_program(b.port.ifindex) {
            Err(why) => return println!("skipped: no TCX: {why}"),
            Ok(link) => {
                until(&mut guarded, 2, "egress program");
                through("program", true);
                drop(link);
            }
        }
        until(&mut guarded, 2, "handed to the other end");
        through("straight at last", false);
        assert_conserved(guarded.plane());
    });
}

/// Runs nft(8) with one command.
fn nft(command: &str) {
    let output = Command::new("nft").arg(command).output().expect("nft");
    assert!(output.status.success(), "nft {command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The kernel skips the nftables chains of a netdev for frames that TC redirects. A message names such a chain while it exists.
#[test]
fn an_nftables_chain_at_a_port_is_reported() {
    if Command::new("nft").arg("--version").output().is_err() {
        return println!("skipped: no nft");
    }
    in_switch(|| {
        let (a, b, mut guarded, _) = pair(HookChoice::Auto);
        let notes = |guarded: &mut Guarded| guarded.plane().port_notes(port(2)).join("\n");
        nft("add table netdev other");
        nft("add chain netdev other out { type filter hook egress device sw2 priority 0 ; policy drop ; }");
        until(&mut guarded, 2, "forwarded frames do not pass the nftables chain netdev other out");
        assert!(
            notes(&mut guarded)
                .contains("do not pass the nftables chain netdev other out: use an access list")
        );
        assert!(arrives(&a.socket(), &b.socket(), "not dropped", PATIENCE), "the message is wrong");
        guarded.restart().expect("adopted");
        assert!(notes(&mut guarded).contains("nftables chain"), "a restart has forgotten the chain");
        nft("add table netdev other { flags dormant ; }");
        until(&mut guarded, 2, "no nftables chain is at its netdev any more");
        nft("delete table netdev other");
        nft("add table inet another");
        nft("add chain inet another in { type filter hook ingress device sw2 priority 0 ; policy drop ; }");
        until(&mut guarded, 2, "do not pass the nftables chain inet another in");
        assert!(arrives(&b.socket(), &a.socket(), "not dropped", PATIENCE), "the message is wrong");
        nft("delete table inet another");
        until(&mut guarded, 2, "no nftables chain");
        assert_eq!(notes(&mut guarded).lines().count(), 1, "the delivery alone: {}", notes(&mut guarded));
    });
}

/// Frames that XDP redirects pass neither the queueing discipline nor the programs at the egress of a port, so XDP sends to no
/// port that has some.
#[test]
fn xdp_does_not_send_to_ports_with_a_qdisc_or_an_egress_program() {
    in_switch(|| {
        let Some((a, b, mut guarded, _)) = xdp_pair("1500") else { return };
        let (at_a, at_b) = (a.socket(), b.socket());
        let by_xdp = |guarded: &mut Guarded, what: &str, wanted: bool| {
            guarded.plane().poll_events(&mut |_| {});
            let before = redirected(&a);
            assert!(arrives(&at_a, &at_b, what, PATIENCE), "{what}");
            assert_eq!(redirected(&a) != before, wanted, "{what}");
        };
        by_xdp(&mut guarded, "nothing", true);
        tc("qdisc add dev sw2 root tbf rate 50mbit burst 100k latency 10ms");
        until(&mut guarded, 2, "no more frames from XDP: it has the queueing discipline tbf");
        by_xdp(&mut guarded, "tbf", false);
        tc("qdisc del dev sw2 root");
        until(&mut guarded, 2, "takes frames from XDP");
        by_xdp(&mut guarded, "nothing again", true);
        match egress_program(b.port.ifindex) {
            Err(why) => println!("skipped: no TCX: {why}"),
            Ok(link) => {
                until(&mut guarded, 2, "no more frames from XDP: it has a TCX egress program");
                by_xdp(&mut guarded, "program", false);
                drop(link);
                until(&mut guarded, 2, "takes frames from XDP");
            }
        }
        by_xdp(&mut guarded, "nothing at last", true);
        assert_conserved(guarded.plane());
    });
}

/// The queues of a netdev with several of them have disciplines of their own, below `mq`.
#[test]
fn a_qdisc_of_one_queue_is_not_passed_by() {
    in_switch(|| {
        let ip = |line: &str| Command::new("ip").args(line.split(' ')).status();
        if !ip("tuntap add dev sw9 mode tap multi_queue").is_ok_and(|status| status.success()) {
            return println!("skipped: no TAP with several queues");
        }
        assert!(ip("link set sw9 up").is_ok_and(|status| status.success()));
        tc("qdisc replace dev sw9 root handle 1: mq");
        tc("qdisc replace dev sw9 parent 1:1 pfifo_fast");
        let link = Netdev::open().expect("netlink").link("sw9").expect("the TAP");
        assert_eq!(link.qdisc, "mq");
        let mut guarded = Guarded::open(options());
        let mut state = access_state(&[]);
        state.vlans.insert(common::vlan(10), Default::default());
        state.ports.insert(port(9), PortState::access("sw9", link.ifindex, common::vlan(10)));
        guarded.plane().apply(&state).expect("applied");
        tc("qdisc replace dev sw9 parent 1:2 tbf rate 50mbit burst 100k latency 10ms");
        until(&mut guarded, 9, "no more frames from XDP: it has the queueing discipline tbf");
        tc("qdisc replace dev sw9 parent 1:2 pfifo_fast");
        until(&mut guarded, 9, "takes frames from XDP");
    });
}

/// Waits until the near end of a host has a link.
fn until_linked(host: &Host) {
    let (near, began) = (Netdev::open().expect("netlink"), Instant::now());
    while !near.link_by_index(host.port.ifindex).expect("the near end").link_up {
        assert!(began.elapsed() < PATIENCE, "no link");
    }
}

/// A host that turns GRO off while its end is down, with a daemon and without: the kernel goes on to report that the port takes
/// frames from XDP, and drops them (`veth_set_features`).
#[test]
fn napi_turned_off_while_the_far_end_is_down() {
    in_switch(|| {
        let Some((a, b, mut guarded, state)) = xdp_pair("1500") else { return };
        let (at_a, at_b) = (a.socket(), b.socket());
        let ways = |guarded: &mut Guarded, what: &str, xdp: bool| {
            guarded.plane().poll_events(&mut |_| {});
            let before = redirected(&a);
            assert!(arrives(&at_a, &at_b, what, PATIENCE), "{what}: it vanished");
            assert_eq!(redirected(&a) != before, xdp, "{what}");
        };
        ways(&mut guarded, "with NAPI", true);
        b.run("ip", &["link", "set", "eth0", "down"]);
        b.set_feature("rx-gro", false);
        b.run("ip", &["link", "set", "eth0", "up"]);
        until(&mut guarded, 2, "no more frames from XDP: its other end runs no NAPI");
        until_linked(&b);
        ways(&mut guarded, "without NAPI", false);
        b.set_feature("rx-gro", true);
        until(&mut guarded, 2, "takes frames from XDP");
        ways(&mut guarded, "with NAPI again", true);
        guarded.plane = None;
        b.run("ip", &["link", "set", "eth0", "down"]);
        b.set_feature("rx-gro", false);
        b.run("ip", &["link", "set", "eth0", "up"]);
        until_linked(&b);
        guarded.restart().expect("a new daemon");
        guarded.plane().apply(&state).expect("applied");
        ways(&mut guarded, "turned off while no daemon ran", false);
        guarded.plane = None;
        b.set_feature("rx-gro", true);
        guarded.restart().expect("a new daemon");
        guarded.plane().apply(&state).expect("applied");
        ways(&mut guarded, "turned on while no daemon ran", true);
        assert_conserved(guarded.plane());
    });
}

/// An XDP program that is attached to a host by a link while its NAPI runs is found as soon on a switch with many ports as on
/// one with few.
#[test]
fn an_xdp_program_of_a_host_is_found_within_a_second() {
    in_switch(|| {
        let hosts: Vec<Host> = (1..=20).map(Host::new).collect();
        hosts.iter().for_each(|host| host.set_feature("rx-gro", true));
        let mut guarded = Guarded::open(options());
        let ports: Vec<(&Host, u16)> = hosts.iter().map(|host| (host, 10)).collect();
        guarded.plane().apply(&access_state(&ports)).expect("applied");
        for n in [10, 20, 1] {
            let far = &hosts[usize::from(n) - 1];
            let link = far.enter(|| {
                let eth0 = Netdev::open().expect("netlink").link("eth0").expect("eth0");
                another_program(libbpf_sys::BPF_PROG_TYPE_XDP, eth0.ifindex, libbpf_sys::BPF_XDP, XDP_PASS)
            });
            let link = match link {
                Err(why) => return println!("skipped: no XDP by links: {why}"),
                Ok(link) => link,
            };
            let began = Instant::now();
            until(&mut guarded, n, "its other end runs an XDP program");
            assert!(began.elapsed().as_millis() < 1000, "it took {:?}", began.elapsed());
            drop(link);
        }
    });
}

/// Attaches a program that passes every frame to the TCX egress of a netdev. It is detached when the returned
/// value is dropped.
fn egress_program(ifindex: u32) -> std::io::Result<OwnedFd> {
    tcx_program(ifindex, libbpf_sys::BPF_TCX_EGRESS, -1)
}

/// Attaches a program that returns `verdict` after the existing ones.
fn tcx_program(ifindex: u32, hook: u32, verdict: i32) -> std::io::Result<OwnedFd> {
    another_program(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, ifindex, hook, verdict)
}

/// Attaches a program of `kind` that returns `verdict`.
fn another_program(kind: u32, ifindex: u32, hook: u32, verdict: i32) -> std::io::Result<OwnedFd> {
    let insn = |code: u32, imm: i32| libbpf_sys::bpf_insn { code: code as u8, imm, ..Default::default() };
    let insns = [
        insn(libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K, verdict),
        insn(libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT, 0),
    ];
    let owned = |fd: i32| {
        if fd < 0 {
            return Err(std::io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: a new descriptor that is owned by nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    // SAFETY: terminated strings and the stated number of instructions.
    let program = owned(unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"another_tool".as_ptr(),
            c"GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as _,
            std::ptr::null_mut(),
        )
    })?;
    // SAFETY: a live program and no options.
    owned(unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, hook, std::ptr::null()) })
}

/// Frames to stations behind a host's address bypass the device if the host does not forward packets. A host that
/// forwards must not take such frames for its own.
#[test]
fn unicast_for_any_station_goes_straight_to_hosts_that_do_not_forward() {
    in_switch(|| {
        const STATION: [u8; 6] = [2, 0, 0, 0, 1, 2];
        let (a, b, mut guarded, _) = pair(HookChoice::Auto);
        let (at_a, at_b) = (a.socket(), b.socket());
        let wire = b.enter(|| {
            let eth0 = Netdev::open().expect("netlink").link("eth0").expect("eth0");
            PacketSocket::open(eth0.ifindex).expect("a packet socket")
        });
        // The switch learns the station behind host b.
        let mut hello = [[0xff; 6], STATION].concat();
        hello.extend([0x88, 0xb5]);
        hello.resize(60, 0);
        wire.send(&hello).expect("sent");
        a.run("ip", &["neigh", "replace", "10.0.0.2", "lladdr", "02:00:00:00:01:02", "dev", "eth0"]);
        let received = |text: &str| {
            let began = Instant::now();
            while began.elapsed() < PATIENCE {
                match wire.receive() {
                    Ok(Some(packet)) if packet.frame.windows(text.len()).any(|w| w == text.as_bytes()) => {
                        return packet.frame.starts_with(&STATION);
                    }
                    _ => std::thread::yield_now(),
                }
            }
            false
        };
        let to_station = |text: &str, device: bool| {
            let before = sent(&b);
            let taken = arrives(&at_a, &at_b, text, SILENCE);
            assert!(received(text), "{text}");
            assert_eq!(sent(&b) != before, device, "{text}");
            assert!(!taken || !device, "{text}: the host has taken it for its own");
        };
        to_station("straight", false);
        b.run("sysctl", &["-qw", "net.ipv4.ip_forward=1"]);
        until(&mut guarded, 2, "the other end forwards packets");
        to_station("through the device", true);
        b.run("sysctl", &["-qw", "net.ipv4.ip_forward=0"]);
        until(&mut guarded, 2, "handed to the other end, too");
        to_station("straight again", false);
        // The same address becomes the host's own.
        b.run("ip", &["link", "set", "eth0", "address", "02:00:00:00:01:02"]);
        let (before, began) = (sent(&b), Instant::now());
        while !arrives(&at_a, &at_b, "for the host", SILENCE) {
            assert!(began.elapsed() < PATIENCE, "the host's new address has not been noticed");
            guarded.plane().poll_events(&mut |_| {});
        }
        assert_eq!(sent(&b), before, "it went through the device");
        // Without confirmation of the address, its frames take the device, which checks it.
        guarded.plane = None;
        b.run("ip", &["link", "set", "eth0", "address", "02:00:00:00:01:03"]);
        a.run("ip", &["neigh", "replace", "10.0.0.2", "lladdr", "02:00:00:00:01:03", "dev", "eth0"]);
        assert!(arrives(&at_b, &at_a, "here I am", PATIENCE));
        let began = Instant::now();
        while sent(&b) == before {
            arrives(&at_a, &at_b, "without a daemon", SILENCE);
            assert!(began.elapsed() < 4 * PATIENCE, "what nobody confirms is still used");
        }
        assert!(
            arrives(&at_a, &at_b, "through the device", PATIENCE),
            "the host with a new address gets nothing"
        );
    });
}

/// Packets that a routed port leaves to the kernel's stack pass other tools' programs that are attached after the
/// plane's.
#[test]
fn exceptions_pass_the_programs_behind() {
    const SHOT: i32 = 2;
    in_switch(|| {
        let a = Host::new(1);
        let mut guarded = Guarded::open(options());
        let mut state = access_state(&[(&a, 10)]);
        let routed = state.ports.get_mut(&port(1)).expect("port 1");
        routed.kind = PortKind::Routed;
        (routed.untagged, routed.tagged, routed.pvid) = Default::default();
        guarded.plane().apply(&state).expect("applied");
        let near = Command::new("ip").args(["addr", "add", "10.0.0.101/24", "dev", "sw1"]).status();
        assert!(near.expect("ip").success());
        let at_near = std::net::UdpSocket::bind("10.0.0.101:7777").expect("a socket");
        let at_a = a.socket();
        assert!(arrives(&at_a, &at_near, "to the stack", PATIENCE));
        match tcx_program(a.port.ifindex, libbpf_sys::BPF_TCX_INGRESS, SHOT) {
            Err(why) => println!("skipped: no TCX: {why}"),
            Ok(link) => {
                assert!(!arrives(&at_a, &at_near, "dropped", SILENCE), "the other program has not run");
                drop(link);
                // The kernel may run the program for a little while after its link was closed.
                let began = Instant::now();
                while !arrives(&at_a, &at_near, "again", SILENCE) {
                    assert!(began.elapsed() < PATIENCE, "nothing arrives without the other program");
                }
            }
        }
    });
}

/// Before TCX: another tool's filter with a priority and handle before the plane's is left alone, and runs.
#[test]
fn filters_of_others_stay() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        let netdev = Netdev::open().expect("netlink");
        tc("qdisc add dev sw1 clsact");
        let filter =
            ["filter", "add", "dev", "sw1", "ingress", "prio", "1", "handle", "1", "bpf", "bytecode"];
        tc_with(&[&filter[..], &["1,6 0 0 0,"]].concat());
        let filters = || netdev.clsact_filters(a.port.ifindex).expect("filters");
        let before = filters();
        let mut guarded = Guarded::open(Options { tcx: false, ..options() });
        guarded.plane().apply(&access_state(&[(&a, 10), (&b, 10)])).expect("applied");
        assert_eq!(filters(), before + 1);
        assert!(arrives(&a.socket(), &b.socket(), "through both", PATIENCE));
        // The queueing discipline also stays if a filter was added while the switch ran.
        let filter =
            ["filter", "add", "dev", "sw2", "ingress", "prio", "2", "handle", "1", "bpf", "bytecode"];
        tc_with(&[&filter[..], &["1,6 0 0 0,"]].concat());
        guarded.plane().detach().expect("detached");
        assert_eq!(filters(), before, "the other tool's filter is gone");
        assert_eq!(netdev.clsact_filters(b.port.ifindex).expect("filters"), 1);
    });
}

#[test]
fn xdp_forgets_the_last_frame_when_something_about_it_changes() {
    in_switch(|| {
        let Some((a, b, mut guarded, state)) = xdp_pair("1500") else { return };
        let (at_a, at_b) = (a.socket(), b.socket());
        let mut moved = state.clone();
        moved.vlans.insert(common::vlan(20), Default::default());
        let elsewhere = PortState::access(&b.port.name, b.port.ifindex, common::vlan(20));
        moved.ports.insert(port(2), PortState { hook: HookChoice::Xdp, ..elsewhere });
        let mut down = state.clone();
        down.ports.get_mut(&port(2)).expect("port 2").enabled = false;
        let mut apart = state.clone();
        apart.ports.values_mut().for_each(|port| port.isolated = true);
        let mut blocked = state.clone();
        blocked.fdb.insert((common::vlan(10), b.mac()), FdbTarget::Blackhole);
        let mut short = state.clone();
        short.ports.get_mut(&port(2)).expect("port 2").mtu = 68;
        for (what, changed) in [
            ("another VLAN", moved),
            ("a port that is down", down),
            ("protected ports", apart),
            ("a blackhole", blocked),
            ("a short MTU", short),
        ] {
            // As a daemon does; without one TC forwards after two seconds.
            guarded.plane().poll_events(&mut |_| {});
            let before = redirected(&a);
            for n in 0..5 {
                assert!(arrives(
                    &at_a,
                    &at_b,
                    &format!("{n} before {what}, with some more bytes in it"),
                    PATIENCE
                ));
            }
            assert!(redirected(&a) >= before + 5, "XDP has not been used before {what}");
            guarded.plane().apply(&changed).expect(what);
            assert!(!arrives(&at_a, &at_b, &format!("to {what}: {}", "more ".repeat(20)), SILENCE), "{what}");
            guarded.plane().apply(&state).expect("as before");
            assert!(arrives(&at_b, &at_a, "hello again", PATIENCE), "after {what}");
        }
        assert_conserved(guarded.plane());
    });
}
