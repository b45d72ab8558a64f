//! Buffers of several frames: GRO at the ports of hosts, segments that are longer than an MTU, and frames of several buffers.

#![allow(clippy::panic)] // a test that panics has failed, and says why

mod common;

use common::wires::{redirected, xdp_pair};
use common::{Guarded, Host, PATIENCE, access_state, assert_conserved, in_switch, options, port};
use lanyard_ebpf::Options;
use lanyard_netdev::{Netdev, PacketRing, RingShape};
use lanyard_pipeline::state::{FdbTarget, PortState, Tpid};
use lanyard_plane::Plane;
use lanyard_types::{DropReason, MacAddr};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Instant;

/// True when the near end of a host's wire has GRO on.
fn has_gro(host: &Host) -> bool {
    let netdev = Netdev::open().expect("netlink");
    netdev.feature(&host.port.name, "rx-gro").expect("its features").expect("a feature of the kernel")
}

fn set_gro(host: &Host, on: bool) {
    let netdev = Netdev::open().expect("netlink");
    netdev.set_features(&host.port.name, &[("rx-gro", on)]).expect("GRO");
}

#[test]
fn gro_is_on_at_veth_ports_unless_an_administrator_disables_it() {
    gro_follows(options());
}

#[test]
fn gro_is_remembered_at_clsact() {
    gro_follows(Options { tcx: false, ..options() });
}

fn gro_follows(options: Options) {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        set_gro(&b, true);
        let mut guarded = Guarded::open(options);
        guarded.plane().apply(&access_state(&[(&a, 10), (&b, 10)])).expect("applied");
        assert!(has_gro(&a) && has_gro(&b));
        set_gro(&a, false);
        until_remembered(&mut guarded, &a, false);
        assert!(!has_gro(&a), "the administrator is fought");
        guarded.restart().expect("adopted");
        guarded.plane().apply(&access_state(&[(&a, 10), (&b, 10)])).expect("applied again");
        assert!(!has_gro(&a), "the administrator's word is forgotten");
        set_gro(&a, true);
        until_remembered(&mut guarded, &a, true);
        guarded.restart().expect("adopted");
        guarded.plane().detach().expect("detached");
        assert!(!has_gro(&a), "it was off");
        assert!(has_gro(&b), "it was on");
    });
}

/// Handles the plane's events until the state file records that an administrator has switched GRO of a host's port
/// on or off.
fn until_remembered(guarded: &mut Guarded, host: &Host, on: bool) {
    let (path, began) = (guarded.options().state_dir.join("plane.json"), Instant::now());
    let wanted = format!("\"gro\":{{\"{}\":{on}}}", host.port.ifindex);
    while began.elapsed() < PATIENCE {
        guarded.plane().poll_events(&mut |_| {});
        if std::fs::read_to_string(&path).is_ok_and(|text| text.contains(&wanted)) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{wanted} is not in {}", path.display());
}

/// Sends `bytes` from one host to another over TCP, as frames of the MTU.
fn stream(from: &Host, to: &Host, bytes: usize) -> bool {
    let address = (to.addr(), 5001);
    let listener = to.enter(|| TcpListener::bind(address)).expect("listening");
    let data: Vec<u8> = (0..bytes).map(|at| (at ^ at >> 8) as u8).collect();
    let mut stream = from.enter(|| TcpStream::connect_timeout(&address.into(), PATIENCE)).expect("connected");
    let mut there = listener.accept().expect("a connection").0;
    there.set_read_timeout(Some(PATIENCE / 5)).expect("a timeout");
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut all = Vec::new();
            let _ = there.read_to_end(&mut all);
            all
        });
        stream.set_nonblocking(false).expect("blocking");
        stream.set_write_timeout(Some(PATIENCE / 5)).expect("a timeout");
        let _ = stream.write_all(&data);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        reader.join().expect("the reader") == data
    })
}

#[test]
fn segments_of_a_host_without_tso_are_merged_and_held_against_the_mtu() {
    const BYTES: usize = 4 << 20;
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        for feature in ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation"] {
            a.set_feature(feature, false);
        }
        a.set_feature("tx-tcp-mangleid-segmentation", false);
        a.set_feature("tx-generic-segmentation", false);
        let mut guarded = Guarded::open(options());
        let mut state = access_state(&[(&a, 10), (&b, 10)]);
        guarded.plane().apply(&state).expect("applied");
        assert!(stream(&a, &b, BYTES));
        let frames = guarded.plane().port_counters(port(1)).rx.frames;
        let segments = (BYTES / 1448) as u64;
        assert!(frames < segments / 2, "{frames} buffers for {segments} segments");
        // The segments are longer than the egress port's MTU, although they were merged to one buffer.
        Command::new("ip").args(["link", "set", &b.port.name, "mtu", "1000"]).status().expect("ip");
        state.ports.get_mut(&port(2)).expect("port 2").mtu = 1000;
        guarded.plane().apply(&state).expect("applied");
        assert!(!stream(&a, &b, BYTES), "segments longer than the MTU have left");
        let dropped = guarded.plane().port_counters(port(1)).dropped;
        assert!(dropped[DropReason::MtuExceeded.index()] > 0, "{dropped:?}");
        assert_conserved(guarded.plane());
    });
}

#[test]
fn xdp_forwards_frames_of_several_buffers() {
    in_switch(|| {
        let Some((a, b, mut guarded, _)) = xdp_pair("9000") else { return };
        let (at_a, at_b) = (a.socket(), b.socket());
        at_b.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // Each length four times: XDP's memo handles frames from the third one of a train on.
        for len in [100, 3400, 3600, 8900].into_iter().flat_map(|len| [len; 4]) {
            let before = redirected(&a);
            let (sent, mut got) = (vec![len as u8; len], vec![0; 9000]);
            at_a.send_to(&sent, at_b.local_addr().expect("an address")).expect("sent");
            let received = at_b.recv(&mut got).unwrap_or_else(|why| panic!("{len} bytes: {why}"));
            assert!(got[..received] == sent, "{len} bytes are not what was sent");
            assert!(redirected(&a) > before, "{len} bytes have gone by TC");
        }
        assert_conserved(guarded.plane());
        let counters = guarded.plane().port_counters(port(1));
        assert!(counters.rx.bytes > 64_000, "the bytes of the first buffer alone: {counters:?}");
        let sent = guarded.plane().port_counters(port(2)).tx;
        assert!(sent.bytes > 64_000, "the bytes of the first buffer alone: {sent:?}");
    });
}

/// A segmentation buffer of five TCP segments with `mss` bytes each, after a virtio_net_hdr as packet
/// sockets take it. `tags` are 802.1Q tags.
fn buffer(to: MacAddr, tags: &[u16], mss: u16) -> Vec<u8> {
    const GSO_TCPV4: u8 = 1;
    const NEEDS_CSUM: u8 = 1;
    let mut frame: Vec<u8> = [to.0, [2, 0xaa, 0, 0, 0, 1]].concat();
    tags.iter().for_each(|vid| frame.extend([[0x81, 0], vid.to_be_bytes()].concat()));
    frame.extend([8, 0]);
    let l4 = frame.len() as u16 + 20;
    let payload = 5 * mss;
    frame.extend([0x45, 0]);
    frame.extend((40 + payload).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0x50, 0x10, 4, 0, 0, 0, 0, 0]);
    frame.resize(frame.len() + usize::from(payload), 0x55);
    let mut bytes = vec![NEEDS_CSUM, GSO_TCPV4];
    [l4 + 20, mss, l4, 16].iter().for_each(|field| bytes.extend(field.to_ne_bytes()));
    bytes.extend(frame);
    bytes
}

#[test]
fn segments_have_room_for_one_tag_besides_their_own() {
    in_switch(|| {
        let (a, b) = (Host::new(1), Host::new(2));
        let mut guarded = Guarded::open(options());
        let mut state = access_state(&[(&a, 10), (&b, 10)]);
        for port in state.ports.values_mut() {
            let trunk = PortState::new(&port.name, port.ifindex);
            *port =
                PortState { tpid: Tpid::Dot1q, tagged: [common::vlan(10)].into_iter().collect(), ..trunk };
        }
        state.fdb.insert((common::vlan(10), b.mac()), FdbTarget::Static(port(2)));
        guarded.plane().apply(&state).expect("applied");
        let shape = RingShape { blocks: 4, block_size: 1 << 17, block_age_ms: 1, vnet_header: true };
        let ring = |host: &Host| {
            host.enter(|| {
                let eth0 = Netdev::open().expect("netlink").link("eth0").expect("eth0");
                PacketRing::open(eth0.ifindex, shape).expect("a ring")
            })
        };
        let (from, mut to) = (ring(&a), ring(&b));
        let mut from = File::from(from.socket().try_clone().expect("a descriptor"));
        // A segment has 40 bytes of headers. The MTU is 1500, and a frame may have a tag besides its own.
        for (tags, mss, leaves) in [
            (&[10][..], 1460, true),
            (&[10], 1464, true),
            (&[10], 1465, false),
            (&[10, 20], 1460, true),
            (&[10, 20], 1461, false),
            (&[10, 20, 30], 1456, true),
            (&[10, 20, 30], 1457, false),
        ] {
            for dst in [b.mac(), MacAddr::BROADCAST] {
                let what = format!("{tags:?}, {mss} bytes, to {dst}");
                let before = guarded.plane().port_counters(port(1));
                let bytes = buffer(dst, tags, mss);
                from.write_all(&bytes).expect("sent");
                let after = guarded.plane().port_counters(port(1));
                let dropped = DropReason::MtuExceeded.index();
                let ends =
                    (after.forwarded - before.forwarded, after.dropped[dropped] - before.dropped[dropped]);
                assert_eq!(ends, if leaves { (1, 0) } else { (0, 1) }, "{what}");
                let (mut got, began) = (0, Instant::now());
                while leaves && got == 0 && began.elapsed() < PATIENCE {
                    to.take(|frame| got += usize::from(frame.bytes().len() > 5 * usize::from(mss)));
                }
                assert_eq!(got, usize::from(leaves), "{what}");
            }
        }
        assert_conserved(guarded.plane());
    });
}
