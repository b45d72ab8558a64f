//! [`Core`]: the pipeline, the links of its ports, and the events that wait to be fetched.
//!
//! One lock guards it: the thread that carries frames takes turns with callers that change the
//! state. Invariant: the queue of events is bounded in number and in bytes of frames. Events that
//! do not fit are counted, and the count is delivered.

use crate::link::{Link, Received, vnet::Offload};
use lanyard_pipeline::stages::sample::Sample;
use lanyard_pipeline::tables::fdb::FdbEvent;
use lanyard_pipeline::trace::Verdict;
use lanyard_pipeline::{Pipeline, Sink, Timestamp};
use lanyard_plane::{PlaneEvent, Trapped};
use lanyard_types::{MAX_PORTS, MacAddr, PortId, SamplingRate, TrapGroup, TrapReason, VlanId};
use nix::sys::eventfd::EventFd;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Most events that wait.
const MAX_EVENTS: usize = 1 << 16;
/// Most trapped frames that wait for the protocol thread.
const MAX_TRAPS: usize = 1024;
/// Most bytes of trapped frames that wait among the events, where no protocol thread fetches them.
const MAX_TRAPPED_BYTES: usize = 4 << 20;

/// Events that wait to be fetched.
#[derive(Debug)]
pub struct Events {
    waiting: Vec<PlaneEvent>,
    bytes: usize,
    lost: u64,
    /// Lost trapped frames, by group, since the plane was created.
    pub lost_traps: [u64; TrapGroup::SLOTS],
    bell: EventFd,
    /// Trapped frames and their bell, when protocols fetch them on a thread of their own.
    traps: Option<Traps>,
}

/// Trapped frames that wait to be fetched.
#[derive(Debug)]
struct Traps {
    waiting: VecDeque<Trapped>,
    bell: Arc<EventFd>,
}

impl Events {
    /// Separates trapped frames from the other events: from now on they wait for [`Events::fetch_traps`]. `bell` is rung when
    /// the first one arrives.
    pub fn separate_traps(&mut self, bell: Arc<EventFd>) {
        self.traps = Some(Traps { waiting: VecDeque::new(), bell });
    }
    pub fn push(&mut self, event: PlaneEvent) {
        let event = match (event, &mut self.traps) {
            (PlaneEvent::Trapped { port, reason, frame, .. }, Some(traps)) => {
                if traps.waiting.len() >= MAX_TRAPS {
                    self.lost += 1;
                    self.lost_traps[reason.group().index()] += 1;
                    return;
                }
                if traps.waiting.is_empty() {
                    let _ = traps.bell.write(1);
                }
                traps.waiting.push_back(Trapped { port, reason, frame });
                return;
            }
            (event, _) => event,
        };
        let len = if let PlaneEvent::Trapped { frame, .. } = &event { frame.len() } else { 0 };
        if self.waiting.len() >= MAX_EVENTS || self.bytes + len > MAX_TRAPPED_BYTES {
            self.lost += 1;
            if let PlaneEvent::Trapped { reason, .. } = &event {
                self.lost_traps[reason.group().index()] += 1;
            }
            return;
        }
        if self.waiting.is_empty() {
            // The counter cannot overflow: it is rung again only after the events were fetched,
            // which resets it.
            let _ = self.bell.write(1);
        }
        self.bytes += len;
        self.waiting.push(event);
    }
    pub fn fdb(&mut self, event: FdbEvent) {
        self.push(match event {
            FdbEvent::Added(entry) => PlaneEvent::FdbAdded(entry),
            FdbEvent::Moved { entry, from } => PlaneEvent::FdbMoved { entry, from },
            FdbEvent::Aged(entry) => PlaneEvent::FdbAged(entry),
            FdbEvent::Deleted(entry) => PlaneEvent::FdbDeleted(entry),
        });
    }
    /// Returns at most `most` of the trapped frames that wait, oldest first; none before [`Events::separate_traps`].
    pub fn fetch_traps(&mut self, most: usize) -> Vec<Trapped> {
        let Some(traps) = &mut self.traps else { return Vec::new() };
        let taken = traps.waiting.drain(..most.min(traps.waiting.len())).collect();
        if traps.waiting.is_empty() {
            let _ = traps.bell.read();
        }
        taken
    }
    /// Returns all waiting events, and at the end the number of lost ones.
    pub fn fetch(&mut self) -> Vec<PlaneEvent> {
        let _ = self.bell.read();
        self.bytes = 0;
        let mut events = std::mem::take(&mut self.waiting);
        match std::mem::take(&mut self.lost) {
            0 => {}
            lost => events.push(PlaneEvent::Lost(lost)),
        }
        events
    }
}

/// The source of the plane's time.
#[derive(Debug)]
pub enum Clock {
    /// The machine's clock.
    Real(Instant),
    /// A time set by a test.
    Manual(Timestamp),
}

impl Clock {
    pub fn now(&self) -> Timestamp {
        match self {
            Self::Real(origin) => {
                Timestamp::from_nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
            Self::Manual(now) => *now,
        }
    }
}

/// The state behind the lock.
#[derive(Debug)]
pub struct Core {
    pub pipeline: Pipeline,
    pub links: Vec<Link>,
    /// Increased whenever `links` changes, so that the thread waits on the current links.
    pub generation: u64,
    pub events: Events,
    pub clock: Clock,
    pub stop: bool,
    /// The port whose link is receiving, and frames to be sent back out of it: at most as many as
    /// it received in one turn.
    away: Option<PortId>,
    returning: Vec<(Vec<u8>, Offload)>,
    /// Ports with frames that wait to be sent as a batch; empty between turns.
    unsent: Vec<PortId>,
}

impl Core {
    pub fn new(salt: u64, bell: EventFd, clock: Clock) -> Self {
        Self {
            pipeline: Pipeline::new(salt),
            links: (0..MAX_PORTS).map(|_| Link::Gone).collect(),
            generation: 1,
            events: Events {
                waiting: Vec::new(),
                bytes: 0,
                lost: 0,
                lost_traps: Default::default(),
                bell,
                traps: None,
            },
            clock,
            stop: false,
            away: None,
            returning: Vec::new(),
            unsent: Vec::new(),
        }
    }
    /// Connects a port to another link, and returns the previous one.
    pub fn connect(&mut self, port: PortId, link: Link) -> Link {
        self.count_missed(port);
        self.generation += 1;
        std::mem::replace(&mut self.links[port.index()], link)
    }
    /// Counts the frames that the port's link has missed. The kernel keeps that number; it is read
    /// when the counters are shown, and before the link is dropped.
    pub fn count_missed(&mut self, port: PortId) {
        let missed = self.links[port.index()].missed();
        self.pipeline.count_overrun(port, missed);
    }
    /// Processes the frames that wait at a port, and returns their number.
    pub fn turn(&mut self, port: PortId) -> usize {
        // While the link receives it is not in the table. Frames to be sent back out of it wait
        // until it returns.
        let mut link = std::mem::replace(&mut self.links[port.index()], Link::Gone);
        self.away = Some(port);
        // Frames read together get the same time of arrival.
        let now = self.clock.now();
        let taken = link.receive(&mut |frame| {
            self.pass(now, port, frame);
        });
        self.links[port.index()] = link;
        self.away = None;
        for (frame, offload) in std::mem::take(&mut self.returning) {
            if !self.links[port.index()].send(&frame, offload) {
                self.pipeline.count_refused(port, frame.len());
            }
        }
        self.flush();
        taken
    }
    /// Processes one frame.
    pub fn process(&mut self, port: PortId, frame: Received<'_>) -> Verdict {
        let verdict = self.pass(self.clock.now(), port, frame);
        self.flush();
        verdict
    }

    fn pass(&mut self, now: Timestamp, port: PortId, frame: Received<'_>) -> Verdict {
        let Received { bytes, offload } = frame;
        let mut out = Out {
            links: &mut self.links,
            events: &mut self.events,
            away: self.away,
            returning: &mut self.returning,
            unsent: &mut self.unsent,
            arrived: bytes.len(),
            offload,
        };
        let longest = offload.longest(bytes);
        self.pipeline.process_segments(now, port, bytes, longest, &mut out)
    }

    /// Sends what waits at any port. A frame that is refused now was already counted as sent, so
    /// correct the counters.
    fn flush(&mut self) {
        while let Some(port) = self.unsent.pop() {
            for len in self.links[port.index()].flush() {
                self.pipeline.count_refused(port, len);
            }
        }
    }
}

/// Delivers the copies of one frame.
struct Out<'a> {
    links: &'a mut Vec<Link>,
    events: &'a mut Events,
    away: Option<PortId>,
    returning: &'a mut Vec<(Vec<u8>, Offload)>,
    unsent: &'a mut Vec<PortId>,
    arrived: usize,
    offload: Offload,
}

impl Sink for Out<'_> {
    fn sample(&mut self, sample: Sample, frame: &[u8]) {
        self.events.push(PlaneEvent::Sampled {
            port: sample.port,
            len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            pool: sample.pool,
            drops: sample.drops,
            head: frame[..frame.len().min(SamplingRate::HEAD)].to_vec(),
        });
    }
    fn send(&mut self, port: PortId, frame: &[u8]) -> bool {
        // Only a tag can have been added or removed, and it precedes every offset of the offload.
        let by = frame.len() as isize - self.arrived as isize;
        let offload = self.offload.moved_unless_empty(by);
        if self.away == Some(port) {
            self.returning.push((frame.to_vec(), offload));
            return true;
        }
        let link = &mut self.links[port.index()];
        let waited = link.waits();
        let taken = link.put(frame, offload);
        if !waited && link.waits() {
            self.unsent.push(port);
        }
        taken
    }
    fn trap(&mut self, port: PortId, reason: TrapReason, frame: &[u8]) {
        self.events.push(PlaneEvent::Trapped { port, vlan: None, reason, frame: frame.to_vec() });
    }
    fn fdb(&mut self, event: FdbEvent) {
        self.events.fdb(event);
    }
    fn violation(&mut self, port: PortId, vlan: VlanId, mac: MacAddr) {
        self.events.push(PlaneEvent::Violation { port, vlan, mac });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::packet::PacketLink;
    use lanyard_netdev::{Netdev, PacketSocket, Veth, netns, sysctl};
    use lanyard_pipeline::state::{PortState, VlanState};
    use lanyard_plane::PortCounters;
    use lanyard_types::{DropReason, VlanId};
    use std::io::ErrorKind;

    /// More frames than the ring of a port holds, whatever else the kernel stores in it.
    const FRAMES: u64 = 30_000;
    /// Frames that the ring holds while the thread does other things.
    const BURST: u64 = 10_000;
    const BYTES: u64 = 1514;

    fn until(what: &str, mut done: impl FnMut() -> bool) {
        let started = Instant::now();
        while !done() {
            assert!(started.elapsed().as_secs() < 20, "{what}: never");
            std::thread::yield_now();
        }
    }

    /// A core that forwards from `p1` to a queue, without a thread: turns are taken when a test
    /// says so.
    struct Fixture {
        core: Core,
        sender: PacketSocket,
        tap: PacketSocket,
        ports: [PortId; 2],
    }

    impl Fixture {
        fn new() -> Self {
            sysctl::set_disable_ipv6("default", true).expect("IPv6 off");
            let netdev = Netdev::open().expect("netlink");
            netdev.create_veth(&Veth { name: "p0", peer: "p1", ..Veth::default() }).expect("a wire");
            let [near, far] = ["p0", "p1"].map(|name| {
                let index = netdev.link(name).expect("its end").ifindex;
                netdev.set_up(index, true).expect("up");
                index
            });
            let mut core =
                Core::new(0, EventFd::new().expect("an eventfd"), Clock::Manual(Timestamp::default()));
            let vlan = VlanId::new(10).expect("a VLAN");
            let ports = [1, 2].map(|n| PortId::new(n).expect("a port"));
            let now = Timestamp::default();
            core.pipeline.set_vlan(vlan, Some(VlanState::default()), now, &mut |_| ());
            for (port, name) in ports.into_iter().zip(["p1", "queue"]) {
                core.pipeline.set_port(port, Some(PortState::access(name, far, vlan)), now, &mut |_| ());
            }
            core.connect(ports[0], Link::Packet(PacketLink::open(far, u64::MAX).expect("a packet socket")));
            core.connect(ports[1], Link::Memory(VecDeque::new()));
            let sender = PacketSocket::sender(near).expect("a packet socket");
            Self { core, sender, tap: PacketSocket::open(far).expect("a packet socket"), ports }
        }
        /// Sends more than the ring holds, and waits until all frames have arrived or are lost.
        fn overrun(&self) {
            self.burst(FRAMES, |_| 1);
        }
        /// Sends frames from the stations with these numbers, and waits until all frames have
        /// arrived or are lost.
        fn burst(&self, frames: u64, station: impl Fn(u64) -> u32) {
            let mut frame = vec![0xff; BYTES as usize];
            frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0x88, 0xb5]);
            for number in 0..frames {
                frame[8..12].copy_from_slice(&station(number).to_be_bytes());
                self.sender.send(&frame).expect("the link is up");
                until("its arrival", || self.tap.receive().expect("the link is up").is_some());
            }
        }
        /// One turn of the receiving port. The queue of the sending port is emptied, because it holds
        /// fewer frames than the ring.
        fn turn(&mut self) {
            self.core.turn(self.ports[0]);
            if let Link::Memory(queue) = &mut self.core.links[self.ports[1].index()] {
                queue.clear();
            }
        }
        fn counters(&mut self) -> PortCounters {
            self.core.count_missed(self.ports[0]);
            self.core.pipeline.counters().port(self.ports[0]).clone()
        }
    }

    #[track_caller]
    fn in_namespace(test: impl FnOnce() + Send) {
        match netns::run_in_new(test) {
            Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::StorageFull) => {
                println!("skipped: no network namespace: {e}");
            }
            outcome => outcome.expect("a namespace"),
        }
    }

    #[test]
    fn a_burst_from_new_stations_waits_in_the_ring() {
        in_namespace(|| {
            let mut fixture = Fixture::new();
            fixture.burst(BURST, |number| number as u32);
            until("every frame's end", || {
                fixture.turn();
                fixture.counters().rx.frames == BURST
            });
            let counters = fixture.counters();
            assert_eq!(
                (counters.forwarded, counters.dropped.iter().sum::<u64>()),
                (BURST, 0),
                "{counters:?}"
            );
            assert_eq!(fixture.core.pipeline.fdb().dynamic(), BURST);
        });
    }

    #[test]
    fn frames_the_ring_had_no_room_for_are_received_and_dropped() {
        in_namespace(|| {
            let mut fixture = Fixture::new();
            let overrun = |counters: &PortCounters| counters.dropped[DropReason::Overrun.index()];
            fixture.overrun();
            let first = fixture.counters();
            assert!(overrun(&first) > 0 && first.forwarded == 0 && first.conserved(), "{first:?}");
            until("every frame's end", || {
                fixture.turn();
                fixture.counters().rx.frames == FRAMES
            });
            let all = fixture.counters();
            assert!(all.conserved(), "{all:?}");
            assert_eq!(all.forwarded + overrun(&all), FRAMES);
            assert_eq!((overrun(&all), all.rx.bytes), (overrun(&first), all.forwarded * BYTES));
            let sent = fixture.core.pipeline.counters().port(fixture.ports[1]).tx;
            assert_eq!((sent.frames, sent.bytes), (all.forwarded, all.forwarded * BYTES));
            // A link reports its missed frames before it is dropped.
            fixture.overrun();
            fixture.core.connect(fixture.ports[0], Link::Gone);
            let after = fixture.counters();
            assert!(overrun(&after) > overrun(&all) && after.conserved(), "{after:?}");
        });
    }
}
