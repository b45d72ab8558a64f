//! Ports follow their netdevs: what hosts and administrators change while the switch runs, in namespaces of each test's own.

#![allow(clippy::panic)] // a test that panics has failed, and says why
#![allow(unsafe_code)] // one program is loaded and attached by hand, as another tool would do it

mod common;

use common::{
    Guarded, Host, PATIENCE, SILENCE, access_state, arrives, assert_conserved, in_switch, options, port,
};
use lanyard_netdev::{Netdev, PacketSocket};
use lanyard_pipeline::state::{HookChoice, PortKind};
use lanyard_plane::{Hook, Plane, PlaneError, PlaneEvent};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Instant;

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

/// Frames that the near end of a host's wire has sent: a frame handed to the far end is not among them.
fn sent(host: &Host) -> u64 {
    let near = Netdev::open().expect("netlink");
    near.link_by_index(host.port.ifindex).expect("the near end").stats.tx.frames
}

/// Frames that the driver of a host's port has redirected for XDP.
fn redirected(host: &Host) -> u64 {
    let output = Command::new("ethtool").args(["-S", &host.port.name]).output().expect("ethtool");
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().filter(|line| line.contains("_xdp_redirect:"));
    counts.filter_map(|line| line.rsplit(' ').next()?.trim().parse::<u64>().ok()).sum()
}

/// Two hosts that know each other, by the hook `hook`.
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
        // The host leaves the checksum of this datagram to a device: XDP must not be the one to forward it.
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

/// Hosts as `ip link` makes them, but for GRO: their checksums are left to a device.
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

/// Attaches a program that lets every frame pass to the TCX egress of a netdev; it goes with what is returned.
fn egress_program(ifindex: u32) -> std::io::Result<OwnedFd> {
    tcx_program(ifindex, libbpf_sys::BPF_TCX_EGRESS, -1)
}

/// Attaches a program that answers `verdict` behind those that are there.
fn tcx_program(ifindex: u32, hook: u32, verdict: i32) -> std::io::Result<OwnedFd> {
    let insn = |code: u32, imm: i32| libbpf_sys::bpf_insn { code: code as u8, imm, ..Default::default() };
    let insns = [
        insn(libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K, verdict),
        insn(libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT, 0),
    ];
    let owned = |fd: i32| {
        if fd < 0 {
            return Err(std::io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    // SAFETY: terminated strings and as many instructions as it says.
    let program = owned(unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
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

/// Stations behind a host's address are reached without the device where the host does not forward packets: where it does, it
/// must not take their frames for its own.
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
        let heard = |text: &str| {
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
            assert!(heard(text), "{text}");
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
        // Nobody confirms the address any more: its frames take the device, which looks at it.
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

/// What a routed port leaves to the kernel's stack passes the programs of others that are attached behind the plane's.
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
                assert!(arrives(&at_a, &at_near, "again", PATIENCE));
            }
        }
    });
}

/// Before TCX: another tool's filter with the priority and handle that come first is left alone, and runs.
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
        let mut guarded = Guarded::open(lanyard_ebpf::Options { tcx: false, ..options() });
        guarded.plane().apply(&access_state(&[(&a, 10), (&b, 10)])).expect("applied");
        assert_eq!(filters(), before + 1);
        assert!(arrives(&a.socket(), &b.socket(), "through both", PATIENCE));
        // One that is added while the switch runs keeps the queueing discipline, too.
        let filter =
            ["filter", "add", "dev", "sw2", "ingress", "prio", "2", "handle", "1", "bpf", "bytecode"];
        tc_with(&[&filter[..], &["1,6 0 0 0,"]].concat());
        guarded.plane().detach().expect("detached");
        assert_eq!(filters(), before, "the other tool's filter is gone");
        assert_eq!(netdev.clsact_filters(b.port.ifindex).expect("filters"), 1);
    });
}
