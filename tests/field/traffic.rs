//! Numbered frames between random hosts, bridged and routed, and the check of every frame that arrives.

use crate::harness::{BROADCAST, Frame, Host, frame, mac};
use crate::model::{HOSTS, History, State, Tag, VLANS};
use crate::storm::Random;
use lanyard_netdev::PacketSocket;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time between two frames of a host.
const GAP: Duration = Duration::from_millis(1);
/// The number of arrivals that are remembered for each host: more than can be under way.
const REMEMBERED: usize = 20_000;
/// The beginning of the payload.
const MARK: &[u8] = b"storm";
/// The length of the payload: the mark, the sender, the tag, the epoch, the number.
const PAYLOAD: usize = MARK.len() + 10;
/// The offset of the payload in a frame that is not IP, and in a UDP packet.
const BRIDGED_AT: usize = 14;
const ROUTED_AT: usize = 14 + 20 + 8;
/// The time to live of packets.
const TTL: u8 = 64;

/// The frames that have arrived at a host, by source and number, and their order.
type Seen = (HashSet<(u8, u32)>, VecDeque<(u8, u32)>);

/// The socket of each host; `None` while the host has no netdev.
type Sockets = Arc<Vec<Mutex<Option<PacketSocket>>>>;

/// Threads that send frames until this is dropped.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    /// The number of the newest epoch of `history`.
    epoch: Arc<AtomicU32>,
    sockets: Sockets,
    sender: Option<JoinHandle<u32>>,
    history: History,
    seen: Vec<Seen>,
    routers: [[u8; 6]; VLANS.len()],
    /// The numbers of checked arrivals, bridged and routed.
    pub bridged: u64,
    pub routed: u64,
}

/// The contents of a frame's payload.
struct Stamp {
    from: usize,
    /// The tag with which the frame was sent.
    tag: Tag,
    epoch: u32,
    number: u32,
}

fn payload(from: usize, tag: Tag, epoch: u32, number: u32) -> Vec<u8> {
    [MARK, &[from as u8, tag.unwrap_or(0) as u8], &epoch.to_be_bytes(), &number.to_be_bytes()].concat()
}

fn read(payload: Option<&[u8]>) -> Option<Stamp> {
    let rest = payload?.get(..PAYLOAD)?.strip_prefix(MARK)?;
    let word = |at: usize| u32::from_be_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
    let tag = (rest[1] != 0).then_some(rest[1].into());
    Some(Stamp { from: rest[0].into(), tag, epoch: word(2), number: word(6) })
}

/// The address of a host in a VLAN.
pub const fn address(host: usize, vlan: u16) -> [u8; 4] {
    [10, 0, vlan as u8, host as u8]
}

/// A UDP packet from host `from` to host `to`, with the addresses that they have in `vlans` (the sender's VLAN, the receiver's
/// VLAN).
pub fn packet(router: [u8; 6], from: usize, to: usize, vlans: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let length = (20 + 8 + payload.len()) as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(length.to_be_bytes());
    ip.extend([0, 0, 0, 0, TTL, 17, 0, 0]);
    ip.extend(address(from, vlans[0]));
    ip.extend(address(to, vlans[1]));
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut bytes = [&router[..], &mac(from as u16), &[8, 0], &ip].concat();
    // The discard port; UDP without a checksum.
    bytes.extend([0, 9, 0, 9]);
    bytes.extend((length - 20).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// A random frame of the storm, with its sender, epoch and number in its payload.
fn random_frame(random: &mut Random, routers: &[[u8; 6]], from: usize, epoch: u32, number: u32) -> Vec<u8> {
    let to = random.below(HOSTS) + 1;
    // One frame of four has a tag.
    let tag = VLANS.get(random.below(4 * VLANS.len())).copied();
    let payload = payload(from, tag, epoch, number);
    let untagged = match random.below(5) {
        0 | 1 => {
            let way = random.below(2);
            packet(routers[way], from, to, [VLANS[way], VLANS[1 - way]], &payload)
        }
        kind => {
            let mut bytes = frame(if kind == 2 { BROADCAST } else { mac(to as u16) }, mac(from as u16)).0;
            bytes[BRIDGED_AT..BRIDGED_AT + PAYLOAD].copy_from_slice(&payload);
            bytes
        }
    };
    tag.map_or_else(|| untagged.clone(), |vlan| Frame(untagged.clone()).vlan(vlan).0)
}

/// The tag of a frame, and the frame without it.
fn without_tag(bytes: &[u8]) -> (Tag, Vec<u8>) {
    match bytes.get(12..16) {
        Some([0x81, 0, high, low]) => {
            (Some(u16::from_be_bytes([high & 0x0f, *low])), [&bytes[..12], &bytes[16..]].concat())
        }
        _ => (None, bytes.to_vec()),
    }
}

fn socket(host: &Host) -> PacketSocket {
    let index = host.net.index("eth0");
    host.net.run(|| PacketSocket::sender(index)).unwrap()
}

impl Traffic {
    /// Starts the traffic. `routers` are the router's MAC addresses in the VLANs.
    pub fn start(hosts: &[Host], seed: u64, state: &State, routers: [[u8; 6]; VLANS.len()]) -> Self {
        let sockets: Sockets = Arc::new(hosts.iter().map(|host| Mutex::new(Some(socket(host)))).collect());
        let (stop, epoch) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, now, senders) = (stop.clone(), epoch.clone(), sockets.clone());
        let send = move || {
            let mut random = Random(seed | 1);
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                let from = random.below(HOSTS) + 1;
                number += 1;
                let epoch = now.load(Ordering::Acquire);
                let bytes = random_frame(&mut random, &routers, from, epoch, number);
                if let Some(socket) = senders[from - 1].lock().unwrap().as_ref() {
                    // While its link is down, a host cannot send.
                    let _ = socket.send(&bytes);
                }
                std::thread::sleep(GAP);
            }
            number
        };
        let mut history = History::default();
        history.any_of(vec![state.clone()]);
        Self {
            stop,
            epoch,
            sockets,
            sender: Some(std::thread::spawn(send)),
            seen: hosts.iter().map(|_| Seen::default()).collect(),
            history,
            routers,
            bridged: 0,
            routed: 0,
        }
    }

    /// Host `at` loses its netdev: it sends nothing until [`Self::back`] is called.
    pub fn away(&self, at: usize) {
        *self.sockets[at - 1].lock().unwrap() = None;
    }
    /// Replaces host `at` by a new one.
    pub fn back(&self, at: usize, host: &Host) {
        *self.sockets[at - 1].lock().unwrap() = Some(socket(host));
    }

    /// Begins an epoch in which the switch may be in any of these states.
    pub fn any_of(&mut self, states: Vec<State>) {
        let epoch = self.history.any_of(states);
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Checks all frames that have arrived.
    pub fn check(&mut self, hosts: &[Host]) {
        for (host, at) in hosts.iter().zip(1..) {
            while let Some(frame) = host.next() {
                self.check_one(at, &frame.0);
            }
        }
    }

    pub fn check_one(&mut self, at: usize, received: &[u8]) {
        let (tag, bytes) = without_tag(received);
        let bytes = &bytes[..];
        let is_ip = bytes.get(12..14) == Some(&[8, 0]);
        let at_payload = if is_ip { ROUTED_AT } else { BRIDGED_AT };
        let Some(printed) = read(bytes.get(at_payload..)) else { return };
        let Stamp { from, epoch, number, .. } = printed;
        let routed = is_ip && bytes[6..12] != mac(from as u16);
        // A router may send a packet out of the trunk that it has come from, in another VLAN.
        assert!(routed || from != at, "frame {number} comes back to the host that has sent it");
        let allowed = if routed {
            self.may_be_routed((at, tag), &printed, bytes)
        } else {
            self.may_be_bridged((at, tag), &printed)
        };
        let way = if routed { "routed" } else { "bridged" };
        assert!(
            allowed,
            "frame {number} of host {from} is {way} to host {at}: {received:02x?}; since it was sent: {:?}",
            self.history.since(epoch)
        );
        let (set, order) = &mut self.seen[at - 1];
        assert!(
            set.insert((from as u8, number)),
            "frame {number} of host {from} arrives twice at host {at}, now {way}"
        );
        order.push_back((from as u8, number));
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            set.remove(&oldest);
        }
        *(if routed { &mut self.routed } else { &mut self.bridged }) += 1;
    }

    fn may_be_bridged(&self, to: (usize, Tag), printed: &Stamp) -> bool {
        let vlan = |state: &State| state.ports[printed.from - 1]?.ingress(printed.tag);
        self.history.arrives(printed.epoch, to, vlan)
    }

    /// True when the source is the router's address in the destination's VLAN, and the time to live is one
    /// less.
    fn may_be_routed(&self, to: (usize, Tag), printed: &Stamp, bytes: &[u8]) -> bool {
        let (vlan, host) = (u16::from(bytes[32]), usize::from(bytes[33]));
        let router = crate::model::index_of(vlan).map(|index| self.routers[index]);
        let from = (printed.from, printed.tag);
        router.is_some_and(|router| bytes[6..12] == router)
            && bytes[..6] == mac(host as u16)
            && bytes[22] == TTL - 1
            && self
                .history
                .arrives(printed.epoch, to, |state| state.routes(from, host, vlan, to.0).map(|_| vlan))
    }

    /// Ends the traffic; returns the number of frames sent.
    pub fn stop(&mut self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.take().map_or(0, |sender| sender.join().unwrap())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
