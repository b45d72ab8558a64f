//! The queues in which frames wait: slices of ports, the crossbar between them, and tail drop.
//!
//! Every slice has an ingress and an egress side. With virtual output queues an ingress side has a queue for each
//! egress port, so a busy port delays only its own frames. With one queue (`fifo`) the frame at its head delays those
//! behind it, whose ports may be idle: head-of-line blocking, which limits random traffic to 58.6 % of the ports'
//! capacity (Karol, Hluchyj and Morgan, "Input versus output queueing on a space-division packet switch", 1987). With
//! buffers at the egress there are queues only there. A frame for many ports crosses the crossbar once for each slice
//! that has some of these ports, and is copied at the egress side. With virtual output queues such a copy waits at the egress
//! side. For one egress port, the copies and the other frames of an ingress side leave in the order of their arrival.
//!
//! Time is an argument: a port sends a frame in the time that its bits take at the port's speed. Invariants: a queue
//! never contains more than the platform allows; every frame that enters is sent or counted as a tail drop at its
//! egress port.

use super::segments::{NOTHING, Offload};
use crate::platform::{Buffering, Platform};
use lanyard_pipeline::Timestamp;
use lanyard_types::PortId;
use std::collections::{BTreeMap, VecDeque};

/// Preamble, start delimiter, FCS and gap of a frame, in bytes.
const OVERHEAD: u64 = 24;

#[derive(Debug, Clone)]
struct Waiting {
    port: PortId,
    bytes: Vec<u8>,
    pending: Offload,
    /// The earliest time at which it may be sent, in nanoseconds.
    since: u64,
    /// The ingress slice. `order` numbers the arrivals in the fabric; the copies of a frame have the same number.
    slice: u16,
    order: u64,
}

#[derive(Debug, Clone)]
struct Egress {
    slice: u16,
    /// The duration of one byte in picoseconds.
    byte_ps: u64,
    /// The time in nanoseconds at which the port becomes free.
    free: u64,
    /// The frames waiting at the egress side: copies made there, or all frames if the buffers are at the
    /// egress.
    queue: VecDeque<Waiting>,
    /// The ingress slice whose turn it is to send the next frame to this port.
    turn: u16,
    drops: u64,
    /// The number of frames that wait for the port, at the ingress and the egress side.
    waiting: usize,
}

/// See the module comment.
#[derive(Debug)]
pub struct Fabric {
    at: Buffering,
    limit: usize,
    slices: u16,
    ports: BTreeMap<PortId, Egress>,
    /// The queues by ingress slice and egress port; with `fifo` the port is `None`.
    ingress: BTreeMap<(u16, Option<PortId>), VecDeque<Waiting>>,
    crossings: u64,
    /// The number of waiting frames.
    waiting: usize,
    /// The number of frames that have arrived.
    arrivals: u64,
    /// The number of ports of each slice.
    sizes: Vec<u64>,
}

/// The time in nanoseconds that a port takes to send a frame of `bytes` bytes without FCS.
fn ns(bytes: usize, byte_ps: u64) -> u64 {
    ((bytes as u64 + OVERHEAD) * byte_ps).div_ceil(1000)
}

/// Picoseconds of one byte at a speed in Mbit/s.
fn byte_ps(mbps: u32) -> u64 {
    8_000_000 / u64::from(mbps.max(1))
}

impl Fabric {
    /// Creates the empty fabric of a platform. Consecutive ports are in the same slice.
    #[must_use]
    pub fn new(platform: &Platform) -> Self {
        let count = platform.ports().count().max(1) as u64;
        let slices = platform.buffer.slices;
        let mut ports = BTreeMap::new();
        let mut sizes = vec![0; usize::from(slices)];
        for (at, (number, row)) in platform.ports().enumerate() {
            let Some(port) = PortId::new(number) else { continue };
            let mbps = row.speeds.iter().copied().max().unwrap_or(1000);
            let slice = (at as u64 * u64::from(slices) / count) as u16;
            let egress = Egress {
                slice,
                byte_ps: byte_ps(mbps),
                free: 0,
                queue: VecDeque::new(),
                turn: 0,
                drops: 0,
                waiting: 0,
            };
            sizes[usize::from(slice)] += 1;
            ports.insert(port, egress);
        }
        for (parent, part) in platform.parts() {
            let Some(whole) = PortId::new(parent).and_then(|parent| ports.get(&parent)) else { continue };
            let part_of = Egress { byte_ps: byte_ps(part.speed_mbps), ..whole.clone() };
            ports.insert(part.id, part_of);
        }
        let limit = platform.buffer.queue as usize;
        Self {
            at: platform.buffer.at,
            limit,
            slices,
            ports,
            ingress: BTreeMap::new(),
            crossings: 0,
            waiting: 0,
            arrivals: 0,
            sizes,
        }
    }

    /// The ports of the front panel.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.ports.keys().copied()
    }
    /// Sets the speed of a port in Mbit/s, for frames that begin to leave from now on.
    pub fn set_speed(&mut self, port: PortId, mbps: u32) {
        if let Some(egress) = self.ports.get_mut(&port) {
            egress.byte_ps = byte_ps(mbps);
        }
    }
    /// The slice of a port.
    #[must_use]
    pub fn slice(&self, port: PortId) -> Option<u16> {
        self.ports.get(&port).map(|egress| egress.slice)
    }
    /// The number of frames for a port that were dropped because a queue had no room.
    #[must_use]
    pub fn drops(&self, port: PortId) -> u64 {
        self.ports.get(&port).map_or(0, |egress| egress.drops)
    }
    /// The number of times that a frame crossed from an ingress side to an egress side.
    #[must_use]
    pub fn crossings(&self) -> u64 {
        self.crossings
    }
    /// The number of waiting frames.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Adds the copies of one frame received at `from`. Returns the ports and lengths of the copies for which there was
    /// no room.
    pub fn enqueue(
        &mut self,
        now: Timestamp,
        from: PortId,
        copies: Vec<(PortId, Vec<u8>)>,
    ) -> Vec<(PortId, usize)> {
        self.enqueue_pending(
            now,
            from,
            copies.into_iter().map(|(port, bytes)| (port, bytes, NOTHING)).collect(),
        )
    }
    /// As [`Fabric::enqueue`], with the work that is pending on each copy.
    pub fn enqueue_pending(
        &mut self,
        now: Timestamp,
        from: PortId,
        copies: Vec<(PortId, Vec<u8>, Offload)>,
    ) -> Vec<(PortId, usize)> {
        let slice = self.slice(from).unwrap_or(0);
        let since = now.as_nanos();
        let many = copies.len() > 1;
        if many {
            let mut slices: Vec<u16> = copies.iter().filter_map(|(port, ..)| self.slice(*port)).collect();
            slices.sort_unstable();
            slices.dedup();
            self.crossings += slices.len() as u64;
        }
        let mut dropped = Vec::new();
        self.arrivals += 1;
        let order = self.arrivals;
        for (port, bytes, pending) in copies {
            let len = bytes.len();
            let waiting = Waiting { port, bytes, pending, since, slice, order };
            let limit = self.limit;
            let Some(egress) = self.ports.get_mut(&port) else {
                dropped.push((port, len));
                continue;
            };
            let queue = match self.at {
                Buffering::Egress => &mut egress.queue,
                _ if many => &mut egress.queue,
                Buffering::Ingress => self.ingress.entry((slice, Some(port))).or_default(),
                Buffering::Fifo => self.ingress.entry((slice, None)).or_default(),
            };
            if queue.len() >= limit {
                egress.drops += 1;
                dropped.push((port, len));
                continue;
            }
            queue.push_back(waiting);
            egress.waiting += 1;
            self.waiting += 1;
            self.crossings += u64::from(!many && self.at == Buffering::Egress);
        }
        dropped
    }

    /// Lets a frame for one port leave at `now` without waiting in a queue, if nothing waits for the port and the port is free;
    /// returns whether it does.
    pub fn pass(&mut self, now: Timestamp, from: PortId, port: PortId, len: usize) -> bool {
        let slice = self.slice(from).unwrap_or(0);
        // With one queue for each ingress side the order in that queue matters.
        let Some(egress) = self.ports.get_mut(&port).filter(|_| self.at != Buffering::Fifo) else {
            return false;
        };
        if egress.waiting > 0 || egress.free > now.as_nanos() {
            return false;
        }
        self.crossings += 1;
        if self.at == Buffering::Ingress {
            egress.turn = (slice + 1) % self.slices;
        }
        egress.free = now.as_nanos() + ns(len, egress.byte_ps);
        true
    }

    /// Sends the frames that can be sent until `now`. Returns them in the order in which they leave, with the time at
    /// which each begins to leave and the port.
    pub fn poll(&mut self, now: Timestamp) -> Vec<(Timestamp, PortId, Vec<u8>)> {
        self.poll_pending(now).into_iter().map(|(at, port, bytes, _)| (at, port, bytes)).collect()
    }
    /// As [`Fabric::poll`], with the work that is pending on each frame.
    pub fn poll_pending(&mut self, now: Timestamp) -> Vec<(Timestamp, PortId, Vec<u8>, Offload)> {
        let mut sent = Vec::new();
        while let Some((start, port, source)) = self.earliest().filter(|(start, ..)| *start <= now.as_nanos())
        {
            let Some(egress) = self.ports.get_mut(&port) else { break };
            let queue = match source {
                None => Some(&mut egress.queue),
                Some(key) => self.ingress.get_mut(&key),
            };
            let Some(frame) = queue.and_then(VecDeque::pop_front) else { break };
            if let Some((slice, voq)) = source {
                self.crossings += 1;
                egress.turn = (slice + 1) % self.slices;
                if voq.is_none()
                    && let Some(next) = self.ingress.get_mut(&(slice, None)).and_then(VecDeque::front_mut)
                {
                    // The next frame reaches the head when this one has left the queue. A slice passes frames as fast
                    // as all of its ports together.
                    let ports = self.sizes[usize::from(slice)].max(1);
                    next.since = next.since.max(start + ns(frame.bytes.len(), egress.byte_ps) / ports);
                }
            }
            egress.waiting -= 1;
            self.waiting -= 1;
            egress.free = start + ns(frame.bytes.len(), egress.byte_ps);
            sent.push((Timestamp::from_nanos(start), port, frame.bytes, frame.pending));
        }
        sent
    }

    /// When [`Fabric::poll`] has something to send; `None` when nothing waits.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.earliest().map(|(start, ..)| Timestamp::from_nanos(start))
    }

    /// The waiting frame that leaves first: the time in nanoseconds, the egress port, and the ingress queue in which it waits;
    /// `None` if it waits in the port's own queue.
    #[allow(clippy::type_complexity)]
    fn earliest(&self) -> Option<(u64, PortId, Option<(u16, Option<PortId>)>)> {
        if self.waiting == 0 {
            return None;
        }
        let mut best: Option<(u64, u64, PortId, Option<(u16, Option<PortId>)>)> = None;
        let mut offer = |start: u64, rank: u64, port: PortId, source| {
            if best.is_none_or(|(other, other_rank, ..)| (start, rank) < (other, other_rank)) {
                best = Some((start, rank, port, source));
            }
        };
        for (port, egress) in self.ports.iter().filter(|(_, egress)| egress.waiting > 0) {
            let copy = egress.queue.front();
            let single = if self.at == Buffering::Ingress { self.single(*port, egress, copy) } else { None };
            match (copy, single) {
                (_, Some((rank, frame))) => {
                    offer(frame.since.max(egress.free), rank, *port, Some((frame.slice, Some(*port))));
                }
                (Some(frame), None) => offer(frame.since.max(egress.free), 0, *port, None),
                (None, None) => {}
            }
        }
        if self.at == Buffering::Fifo {
            for slice in 0..self.slices {
                let Some(frame) = self.ingress.get(&(slice, None)).and_then(VecDeque::front) else {
                    continue;
                };
                let Some(egress) = self.ports.get(&frame.port) else { continue };
                let rank = 1 + u64::from((slice + self.slices - egress.turn) % self.slices);
                offer(frame.since.max(egress.free), rank, frame.port, Some((slice, None)));
            }
        }
        best.map(|(start, _, port, source)| (start, port, source))
    }

    /// The next frame from a port's virtual output queues, and its rank among the ingress slices, which take turns. `copy` is the
    /// first frame in the port's own queue; the result is `None` if it leaves before all of them. A frame that arrived after
    /// `copy` never leaves before it, and one of the same ingress slice that arrived before `copy` always does: no frame of a
    /// stream overtakes another one.
    fn single(&self, port: PortId, egress: &Egress, copy: Option<&Waiting>) -> Option<(u64, &Waiting)> {
        let head = |slice: u16| self.ingress.get(&(slice, Some(port))).and_then(VecDeque::front);
        let rank = |slice: u16| 1 + u64::from((slice + self.slices - egress.turn) % self.slices);
        let heads = (0..self.slices).filter_map(|slice| Some((rank(slice), head(slice)?)));
        let first = heads.min_by_key(|(rank, frame)| (frame.since.max(egress.free), *rank))?;
        let Some(copy) = copy.filter(|copy| copy.order < first.1.order) else { return Some(first) };
        let own = head(copy.slice).filter(|frame| frame.order < copy.order);
        own.map(|frame| (rank(copy.slice), frame))
    }
}
