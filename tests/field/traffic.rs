//! Numbered frames between random hosts, and the check of every one that arrives.

use crate::harness::{BROADCAST, Host, frame, mac};
use crate::storm::Random;
use lanyard_netdev::PacketSocket;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two frames.
const GAP: Duration = Duration::from_millis(1);
/// Arrivals that are remembered for each host: more than can be on the way.
const REMEMBERED: usize = 20_000;
/// What the payload starts with.
const MARK: &[u8] = b"storm";

/// The VLAN of each port; `None` while it forwards nothing.
pub type Vlans = Vec<Option<u16>>;

/// The frames that have arrived at a host, by source and number, and in which order.
type Seen = (HashSet<(u8, u32)>, VecDeque<(u8, u32)>);

/// Frames that are sent until it is dropped.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    /// The number of the newest entry of `epochs`.
    epoch: Arc<AtomicU32>,
    sender: Option<JoinHandle<u32>>,
    /// What the switch may do, entry by entry: between two configurations, either.
    epochs: Vec<[Vlans; 2]>,
    seen: Vec<Seen>,
    pub arrived: u64,
}

/// A frame of the storm: its epoch and number are in its payload.
fn numbered(dst: [u8; 6], from: usize, epoch: u32, number: u32) -> Vec<u8> {
    let mut bytes = frame(dst, mac(from as u16)).0;
    let payload = [MARK, &[from as u8], &epoch.to_be_bytes(), &number.to_be_bytes()].concat();
    bytes[14..14 + payload.len()].copy_from_slice(&payload);
    bytes
}

impl Traffic {
    pub fn start(hosts: &[Host], seed: u64, vlans: Vlans) -> Self {
        let open = |host: &Host| {
            let index = host.net.index("eth0");
            host.net.run(|| PacketSocket::sender(index)).unwrap()
        };
        let sockets: Vec<PacketSocket> = hosts.iter().map(open).collect();
        let (stop, epoch) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, now) = (stop.clone(), epoch.clone());
        let send = move || {
            let mut random = Random(seed | 1);
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                let from = random.below(sockets.len()) + 1;
                let to = random.below(sockets.len() + 1);
                let dst = if to == 0 { BROADCAST } else { mac(to as u16) };
                number += 1;
                // A host whose link is down sends nothing.
                let _ = sockets[from - 1].send(&numbered(dst, from, now.load(Ordering::Acquire), number));
                std::thread::sleep(GAP);
            }
            number
        };
        Self {
            stop,
            epoch,
            sender: Some(std::thread::spawn(send)),
            seen: hosts.iter().map(|_| Seen::default()).collect(),
            epochs: vec![[vlans.clone(), vlans]],
            arrived: 0,
        }
    }

    /// From now on the switch may do either.
    pub fn between(&mut self, old: &Vlans, new: &Vlans) {
        self.epochs.push([old.clone(), new.clone()]);
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Checks all that has arrived.
    pub fn check(&mut self, hosts: &[Host]) {
        for (host, at) in hosts.iter().zip(1..) {
            while let Some(frame) = host.next() {
                self.check_one(at, &frame.0);
            }
        }
    }

    pub fn check_one(&mut self, at: usize, bytes: &[u8]) {
        let Some(rest) = bytes.get(14..28).and_then(|rest| rest.strip_prefix(MARK)) else { return };
        let word = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
        let (from, epoch, number) = (rest[0], word(1), word(5));
        let source = usize::from(from);
        assert_ne!(source, at, "frame {number} comes back to the host that has sent it");
        let allowed = self.epochs[epoch as usize..].iter().flatten().any(|vlans| {
            let (a, b) = (vlans[source - 1], vlans[at - 1]);
            a.is_some() && a == b
        });
        let possible = &self.epochs[epoch as usize..];
        assert!(allowed, "frame {number} of host {source} arrives at host {at}: VLANs were {possible:?}");
        let (set, order) = &mut self.seen[at - 1];
        assert!(set.insert((from, number)), "frame {number} of host {source} arrives twice at host {at}");
        order.push_back((from, number));
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            set.remove(&oldest);
        }
        self.arrived += 1;
    }

    /// Ends the stream; answers how many frames were sent.
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
