//! Compares the two planes with real frames: random states and frames through `lanyard_pipeline` and through ports that
//! are veth pairs. This covers cases that dry runs cannot: frames whose bytes are in fragments, frames of which a
//! capture holds a clone, tags that reception has removed, XDP's redirect and its copies of floods, and its memo of a
//! repeated frame.
//!
//! The frames that leave every port, the ports' counters and the FDB must agree. `LANYARD_LIVE_STATES` is the number of
//! states (24 by default), `LANYARD_LIVE_SEED` the first one's seed.

#![allow(clippy::panic)] // a test that panics has failed, and says why

mod common;
#[path = "common/frames.rs"]
mod frames;

use common::{Guarded, PATIENCE, in_switch, options};
use frames::{conversation, kernel_refuses, with_foreign_tag};
use lanyard_ebpf::Options;
use lanyard_netdev::{Link, LinkChange, Netdev, PacketSocket, Veth, netns};
use lanyard_pipeline::generate::{MAX_GENERATED_PORTS, Rng, State, frame};
use lanyard_pipeline::state::{HookChoice, PortKind, PortState, Tpid, VlanState};
use lanyard_pipeline::{Output, Pipeline, Timestamp};
use lanyard_plane::{Plane, PlaneError};
use lanyard_types::{PortId, VlanId, VlanSet};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

const FRAMES_A_STATE: u64 = 150;
/// MTU of the veth pairs: more than any port's.
const MTU: u32 = 2000;

/// A veth pair: a port of the switch, and the sockets at its far end.
struct Cable {
    near: Link,
    far: PacketSocket,
    fragments: Fragments,
    /// A capture at the port. It makes the kernel clone each received frame, and does not see the frames that XDP
    /// forwards.
    capture: Option<PacketSocket>,
}

/// Sends frames whose bytes after the Ethernet header are in fragments: a ring whose pages become part of the frame
/// (packet(7), PACKET_TX_RING).
struct Fragments {
    socket: OwnedFd,
    ring: *mut u8,
}

const RING_BYTES: usize = 4096;
/// The offset of a frame in its slot: after `struct tpacket2_hdr`, which is aligned to 16 bytes.
const FRAME_AT: usize = 32;

#[allow(unsafe_code)]
impl Fragments {
    fn open(ifindex: u32) -> std::io::Result<Self> {
        let request = libc::tpacket_req {
            tp_block_size: RING_BYTES as u32,
            tp_block_nr: 1,
            tp_frame_size: RING_BYTES as u32,
            tp_frame_nr: 1,
        };
        // SAFETY: system calls with live arguments of the stated sizes; their results are checked before they are
        // used.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(std::io::Error::last_os_error());
            }
            let socket = OwnedFd::from_raw_fd(fd);
            let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
            let set = |name, value: *const libc::c_void, len: usize| {
                libc::setsockopt(fd, libc::SOL_PACKET, name, value, len as libc::socklen_t)
            };
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = ifindex as i32;
            let mut failed = set(libc::PACKET_VERSION, (&raw const version).cast(), size_of_val(&version));
            failed |= set(libc::PACKET_TX_RING, (&raw const request).cast(), size_of_val(&request));
            let len = size_of_val(&address) as libc::socklen_t;
            failed |= libc::bind(fd, (&raw const address).cast(), len);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let ring = libc::mmap(std::ptr::null_mut(), RING_BYTES, access, libc::MAP_SHARED, fd, 0);
            if failed != 0 || ring == libc::MAP_FAILED {
                return Err(std::io::Error::last_os_error());
            }
            Ok(Self { socket, ring: ring.cast() })
        }
    }

    /// Sends one frame and waits until the slot is free again: its pages belong to the frame until it has been
    /// received.
    fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        assert!(bytes.len() <= RING_BYTES - FRAME_AT);
        let header = self.ring.cast::<libc::tpacket2_hdr>();
        // SAFETY: the ring is mapped while `self` lives and has room for the header and the frame, by the assertion;
        // the kernel reads the slot only after tp_status permits it.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.ring.add(FRAME_AT), bytes.len());
            (*header).tp_len = bytes.len() as u32;
            (&raw mut (*header).tp_status).write_volatile(libc::TP_STATUS_SEND_REQUEST);
            if libc::send(self.socket.as_raw_fd(), std::ptr::null(), 0, 0) < 0 {
                (&raw mut (*header).tp_status).write_volatile(0);
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// True when the kernel has released the slot.
    fn is_free(&self) -> bool {
        // SAFETY: as in `send`.
        let status =
            unsafe { (&raw const (*self.ring.cast::<libc::tpacket2_hdr>()).tp_status).read_volatile() };
        status == 0
    }
}

#[allow(unsafe_code)]
impl Drop for Fragments {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length, and not used any more.
        unsafe { libc::munmap(self.ring.cast(), RING_BYTES) };
    }
}

/// Veth pairs for every port number that a state can have; their far ends are in a namespace of their own.
fn cables() -> BTreeMap<PortId, Cable> {
    let outside: File = netns::run_in_new(netns::current).and_then(|ns| ns).expect("a namespace");
    let netdev = Netdev::open().expect("netlink");
    let up = |ifindex| LinkChange { addrgen_none: Some(true), up: Some(true), ..LinkChange::of(ifindex) };
    let mut cables = BTreeMap::new();
    for id in PortId::all().take(MAX_GENERATED_PORTS.into()) {
        let (near, far) = (format!("p{id}"), format!("h{id}"));
        let veth = Veth {
            name: &near,
            peer: &far,
            mac: None,
            peer_mac: None,
            mtu: Some(MTU),
            peer_netns: Some(outside.as_fd()),
        };
        netdev.create_veth(&veth).expect("a veth pair");
        let near = netdev.link(&near).expect("the near end");
        let (far, fragments) = netns::run_in(&outside, || {
            let netdev = Netdev::open().expect("netlink");
            let link = netdev.link(&far).expect("the far end");
            netdev
                .change(&[up(link.ifindex)])
                .into_iter()
                .for_each(|done| done.expect("the far end comes up"));
            // Without NAPI, frames from XDP are not received.
            netdev.set_features(&far, &[("rx-gro", true)]).expect("NAPI");
            let fragments = Fragments::open(link.ifindex).expect("a ring");
            (PacketSocket::open(link.ifindex).expect("a packet socket"), fragments)
        })
        .expect("the namespace outside");
        netdev.change(&[up(near.ifindex)]).into_iter().for_each(|done| done.expect("the near end comes up"));
        let capture =
            id.get().is_multiple_of(2).then(|| PacketSocket::open(near.ifindex).expect("a capture"));
        cables.insert(id, Cable { near, far, fragments, capture });
    }
    cables
}

// SAFETY: the ring is memory of the process, not of a thread.
#[allow(unsafe_code)]
unsafe impl Send for Fragments {}

/// True for a configuration test frame, by which the plane tests whether a port takes frames from XDP.
fn is_test(frame: &[u8]) -> bool {
    frame.get(..6) == frame.get(6..12) && frame.get(12..14) == Some(&[0x90, 0x00])
}

/// Collects the frames that have left the ports so far: port and bytes, in no order between ports.
fn collect(cables: &BTreeMap<PortId, Cable>, into: &mut Vec<(PortId, Vec<u8>)>) {
    for (id, cable) in cables {
        while let Some(packet) = cable.far.receive().expect("received") {
            if !packet.outgoing && !is_test(&packet.frame) {
                into.push((*id, packet.frame));
            }
        }
    }
}

/// The number of received frames that a capture at the port has seen.
fn captured(cable: &Cable) -> Option<usize> {
    let capture = cable.capture.as_ref()?;
    let mut seen = 0;
    while let Some(packet) = capture.receive().expect("received") {
        seen += usize::from(!packet.outgoing);
    }
    Some(seen)
}

/// Counts of frames that XDP has forwarded, as far as captures show it.
#[derive(Default)]
struct AtXdp {
    unicast: u64,
    floods: u64,
}

#[test]
fn frames_between_real_ports_agree_with_the_specification() {
    in_switch(|| {
        let number = |name: &str, default| {
            std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
        };
        let (states, seed) = (number("LANYARD_LIVE_STATES", 24), number("LANYARD_LIVE_SEED", 1));
        let cables = cables();
        let mut at_xdp = AtXdp::default();
        for seed in seed..seed + states {
            for flooding in [false, true] {
                match one_state(&cables, seed, flooding, &mut at_xdp) {
                    Err(error @ PlaneError::Unsupported { .. }) => return println!("skipped: {error}"),
                    done => done.unwrap_or_else(|error| panic!("seed {seed}: {error}")),
                }
            }
        }
        println!("XDP has sent on {} unicast frames and {} floods", at_xdp.unicast, at_xdp.floods);
        assert!((at_xdp.unicast > 0 && at_xdp.floods > 0) || states < 4, "XDP did not do its part");
    });
}

/// The VLAN that all ports of a flooding state are in.
const FLOODED: u16 = 77;

/// Puts all bridged ports into one VLAN, most of them with a tag, and removes everything that makes XDP leave floods to
/// TC.
fn make_flooding(state: &mut State, rng: &mut Rng) {
    let vlan = VlanId::new(FLOODED).expect("a VLAN");
    let only: VlanSet = [vlan].into_iter().collect();
    state.plane.ports.retain(|_, port| port.kind == PortKind::Netdev);
    state.routes.clear();
    (state.plane.rifs, state.plane.stp, state.plane.fdb) = Default::default();
    state.plane.watched = Default::default();
    state.plane.vlans.insert(vlan, VlanState::default());
    for port in state.plane.ports.values_mut() {
        let tagged = rng.percent(60);
        *port = PortState {
            tpid: if tagged { Tpid::Dot1q } else { Tpid::None },
            pvid: (!tagged).then_some(vlan),
            tagged: if tagged { only.clone() } else { VlanSet::default() },
            untagged: if tagged { VlanSet::default() } else { only.clone() },
            flood_unicast: rng.percent(80),
            flood_multicast: rng.percent(80),
            ..PortState::new(&port.name, port.ifindex)
        };
    }
}

/// A frame of a flooding state: from one of two stations of a port to the broadcast address, a group or an unknown
/// station.
fn flooded_frame(rng: &mut Rng, state: &State) -> (PortId, Vec<u8>) {
    let ports: Vec<PortId> = state.plane.ports.keys().copied().collect();
    let port = ports[rng.below(ports.len() as u64) as usize];
    let mut bytes = match rng.below(3) {
        0 => vec![0xff; 6],
        1 => vec![1, 0, 0x5e, 1, 2, 3],
        _ => vec![2, 0xee, 0, 0, 0, 1],
    };
    bytes.extend([2, 0xaa, 0, 0, port.get() as u8, rng.below(2) as u8]);
    if state.plane.ports[&port].tpid != Tpid::None {
        bytes.extend([0x81, 0, rng.below(8) as u8 * 32, FLOODED as u8]);
    }
    bytes.extend([0x88, 0xb5]);
    bytes.resize(60 + rng.below(1000) as usize, 0x55);
    (port, bytes)
}

fn one_state(
    cables: &BTreeMap<PortId, Cable>,
    seed: u64,
    flooding: bool,
    at_xdp: &mut AtXdp,
) -> Result<(), PlaneError> {
    let mut state = State::new(seed);
    let mut rng = Rng::new(!seed);
    // XDP leaves frames for access lists to TC.
    if seed.is_multiple_of(2) {
        state = state.without_access_lists();
    }
    if flooding {
        make_flooding(&mut state, &mut rng);
    }
    for (id, port) in &mut state.plane.ports {
        port.ifindex = cables[id].near.ifindex;
        port.mtu = port.mtu.min(1500);
        if port.tpid == Tpid::Stacked9100 {
            port.tpid = Tpid::Dot1q;
        }
        let can = matches!(port.kind, PortKind::Netdev | PortKind::Routed);
        port.hook = if can && (flooding || seed.is_multiple_of(2) || rng.percent(50)) {
            HookChoice::Xdp
        } else {
            HookChoice::Tc
        };
    }
    let mut guarded = Guarded::open(Options { fdb_capacity: 1_000_000, ..options() });
    let plane = guarded.plane();
    plane.apply(&state.plane)?;
    let mut pipeline = Pipeline::new(plane.salt());
    pipeline.set_state(&state.plane, Timestamp::from_secs(1000), &mut |_| {});
    let refused: Vec<usize> = plane.route(&state.routes).into_iter().map(|(at, _)| at).collect();
    let wanted: Vec<usize> =
        (0..state.routes.len()).filter(|at| pipeline.route(&state.routes[*at]).is_err()).collect();
    assert_eq!(refused, wanted, "seed {seed}: routes");
    let mut last = None;
    for n in 0..FRAMES_A_STATE {
        let again = last.take().filter(|_| rng.percent(40));
        let (port, bytes) = again.unwrap_or_else(|| {
            if flooding {
                return flooded_frame(&mut rng, &state);
            }
            let (port, mut bytes) = match rng.percent(60) {
                true => conversation(&mut rng, &state, &pipeline).unwrap_or_else(|| frame(&mut rng, &state)),
                false => frame(&mut rng, &state),
            };
            with_foreign_tag(&mut rng, &state, &mut bytes);
            (port, bytes)
        });
        last = Some((port, bytes.clone()));
        let fragments = rng.percent(40);
        let own = state.plane.ports.get(&port).and_then(|port| port.tpid.ethertype());
        if !state.plane.ports.contains_key(&port) || reception_refuses(&bytes) || kernel_refuses(&bytes, own)
        {
            continue;
        }
        let what = format!("seed {seed} frame {n} port {port} fragments {fragments}: {bytes:02x?}");
        let cable = &cables[&port];
        let sent = if fragments {
            cable.fragments.send(&bytes)
        } else {
            cable.far.send(&bytes).map_err(|_| std::io::ErrorKind::Other.into())
        };
        if sent.is_err() {
            continue; // longer than a packet socket can send
        }
        let mut want = Output::default();
        pipeline.process(Timestamp::from_secs(1000), port, &bytes, &mut want);
        want.sent.append(&mut want.mirrored);
        let received = pipeline.counters().port(port).rx.frames;
        let (mut got, end) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            collect(cables, &mut got);
            let arrived = plane.port_counters(port).rx.frames == received;
            if (arrived && got.len() >= want.sent.len() && cable.fragments.is_free()) || Instant::now() > end
            {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(plane.port_counters(port).rx.frames, received, "{what}: not received");
        got.sort();
        want.sent.sort();
        assert_eq!(got, want.sent, "{what}");
        plane.poll_events(&mut |_| {});
        if captured(cable) == Some(0) {
            match want.sent.len() {
                0 => {}
                1 => at_xdp.unicast += 1,
                _ => at_xdp.floods += 1,
            }
        }
    }
    std::thread::sleep(common::SILENCE);
    let mut late = Vec::new();
    collect(cables, &mut late);
    assert_eq!(late, [], "seed {seed}: frames that the specification does not send");
    for port in state.plane.ports.keys() {
        let (got, want) = (plane.port_counters(*port), pipeline.counters().port(*port).clone());
        assert_eq!(format!("{got:?}"), format!("{want:?}"), "seed {seed} port {port}");
    }
    assert_eq!(plane.fdb_dynamic(), pipeline.fdb().dynamic(), "seed {seed}: dynamic entries");
    Ok(())
}

/// True for a frame that reception drops: shorter than a header, or too short for the tag that reception
/// removes and an EtherType.
fn reception_refuses(bytes: &[u8]) -> bool {
    let tagged = matches!(bytes.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]));
    bytes.len() < if tagged { 20 } else { 14 }
}
