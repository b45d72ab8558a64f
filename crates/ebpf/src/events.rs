//! The rings: FDB events, trapped frames and sampled frames, from the programs to the control plane.
//!
//! Invariant: one call passes on a bounded number of records. Trapped frames come first, so that a storm of new
//! addresses delays no BPDU. Records for which a ring had no room are counted there and reported once.

use crate::abi::{self, FdbEvent, FdbValue, TrapGroupRow, TrapHeader};
use crate::clock::now_s;
use crate::error::{Doing, Result};
use crate::shared::{map_bytes, ring_bytes};
use crate::stages;
use crate::tables::Tables;
use crate::words::fdb_entry;
use lanyard_plane::{FdbEntry, PlaneEvent};
use lanyard_types::{PortId, TrapGroup, TrapReason, VlanId};
use lanyard_wire::{Tag, push};
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use std::cell::RefCell;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::FromBytes;

/// The most records that one call takes from each ring.
pub(crate) const TRAPS_A_POLL: usize = 256;
const EVENTS_A_POLL: usize = 4096;
const SAMPLES_A_POLL: usize = 1024;
/// More records than fit into the ring of trapped frames.
pub(crate) const RECORDS_IN_RING: usize = 16_384;
/// The size in bytes of a record in its ring: a header of 8 and the contents.
const TRAP_RECORD: u64 = 8 + (size_of::<TrapHeader>() + abi::TRAP_BYTES) as u64;
const EVENT_RECORD: u64 = 8 + size_of::<FdbEvent>() as u64;

/// The number that epoll reports for a descriptor that is not a ring.
const WATCHED: u64 = 3;

/// The rings.
#[derive(Debug)]
pub(crate) struct Events {
    epoll: Epoll,
    fdb: RingBuffer<'static>,
    /// `None` if another thread reads the ring of trapped frames.
    traps: Option<RingBuffer<'static>>,
    samples: RingBuffer<'static>,
    waiting: Rc<RefCell<Vec<PlaneEvent>>>,
    lost: u64,
}

/// The occupancy of a ring as a finite table: sizes in records, and `bytes` of memory.
#[derive(Debug)]
pub(crate) struct Queue {
    pub name: &'static str,
    pub size: u64,
    pub used: u64,
    pub lost: u64,
    pub bytes: u64,
}

impl Events {
    pub(crate) fn open(tables: &Tables) -> Result<Self> {
        let waiting = Rc::new(RefCell::new(Vec::new()));
        let ring = |name: &str, decode: fn(&[u8]) -> Option<PlaneEvent>| -> Result<RingBuffer<'static>> {
            let waiting = Rc::clone(&waiting);
            let mut builder = RingBufferBuilder::new();
            let take = move |record: &[u8]| {
                waiting.borrow_mut().extend(decode(record));
                0
            };
            let built = builder.add(tables.map(name), take).map(drop).and_then(|()| builder.build());
            built.doing(|| format!("opening the ring {name}"))
        };
        let doing = || "watching the rings".to_owned();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).doing(doing)?;
        for (at, name) in ["fdb_events", "traps", "samples"].into_iter().enumerate() {
            epoll
                .add(tables.map(name).as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, at as u64))
                .doing(doing)?;
        }
        let (fdb, traps) = (ring("fdb_events", fdb_event)?, ring("traps", trap)?);
        let samples = ring("samples", stages::sampled)?;
        Ok(Self { epoll, fdb, traps: Some(traps), samples, waiting, lost: lost(tables) })
    }

    /// A descriptor that is readable when there are records to poll.
    pub(crate) fn fd(&self) -> i32 {
        self.epoll.0.as_raw_fd()
    }

    /// Makes the descriptor readable also when `fd` is readable.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, WATCHED);
        self.epoll.add(fd, event).doing(|| "watching the netdevs".into())
    }

    /// Leaves the ring of trapped frames to the protocol thread.
    pub(crate) fn leave_traps(&mut self, tables: &Tables) -> Result<()> {
        self.traps = None;
        self.epoll.delete(tables.map("traps").as_fd()).doing(|| "leaving the trapped frames".into())
    }

    /// Passes on the waiting records.
    pub(crate) fn poll(&mut self, tables: &Tables, handle: &mut dyn FnMut(PlaneEvent)) {
        let traps = self.traps.as_ref().map(|traps| (traps, TRAPS_A_POLL));
        let rings = [(&self.fdb, EVENTS_A_POLL), (&self.samples, SAMPLES_A_POLL)];
        for (ring, most) in traps.into_iter().chain(rings) {
            // The callbacks do not fail, so the only error is an empty ring.
            ring.consume_raw_n(most);
            let records = std::mem::take(&mut *self.waiting.borrow_mut());
            records.into_iter().for_each(&mut *handle);
        }
        let lost = lost(tables);
        if lost != self.lost {
            handle(PlaneEvent::Lost(lost.wrapping_sub(self.lost)));
            self.lost = lost;
        }
    }

    /// Drops waiting BPDUs, and keeps the other records for the next poll.
    pub(crate) fn discard_bpdus(&mut self) {
        if let Some(traps) = &self.traps {
            traps.consume_raw_n(RECORDS_IN_RING);
        }
        let is_bpdu = |event: &PlaneEvent| matches!(event, PlaneEvent::Trapped { reason, .. } if reason.group() == TrapGroup::Stp);
        self.waiting.borrow_mut().retain(|event| !is_bpdu(event));
    }

    /// The rings as finite tables, counted in records.
    pub(crate) fn queues(&self, tables: &Tables) -> [Queue; 2] {
        let queue = |name: &'static str, record: u64, lost: u64| {
            let map = tables.map(name);
            let size = u64::from(map.max_entries()) / record;
            Queue {
                name,
                size,
                used: ring_bytes(map.as_fd()).unwrap_or(0) / record,
                lost,
                bytes: map_bytes(map.as_fd()),
            }
        };
        [
            queue("fdb_events", EVENT_RECORD, tables.lost.u64(0, 0).load(Relaxed)),
            queue("traps", TRAP_RECORD, lost_traps(tables)),
        ]
    }
}

fn lost(tables: &Tables) -> u64 {
    tables.lost.u64(0, 0).load(Relaxed).wrapping_add(lost_traps(tables))
}

fn lost_traps(tables: &Tables) -> u64 {
    let group = |row| tables.trap_groups.u64(row, offset_of!(TrapGroupRow, lost)).load(Relaxed);
    (0..abi::GROUPS).fold(0, |sum: u64, row| sum.wrapping_add(group(row)))
}

fn fdb_event(record: &[u8]) -> Option<PlaneEvent> {
    let (event, _) = FdbEvent::read_from_prefix(record).ok()?;
    let value = FdbValue::from_raw(event.value);
    let entry = |now| fdb_entry(event.key, value, now);
    // A new entry has age 0; a removed one keeps the age that it had.
    let fresh: Option<FdbEntry> = entry(value.updated_s);
    Some(match event.event {
        abi::EVENT_ADDED => PlaneEvent::FdbAdded(fresh?),
        abi::EVENT_MOVED => PlaneEvent::FdbMoved { entry: fresh?, from: PortId::new(event.from)? },
        abi::EVENT_AGED => PlaneEvent::FdbAged(entry(now_s())?),
        abi::EVENT_VIOLATION => {
            let (vlan, mac) = abi::split_key(event.key)?;
            PlaneEvent::Violation { port: PortId::new(value.port)?, vlan, mac }
        }
        abi::EVENT_FLUSHED => PlaneEvent::FdbDeleted(entry(now_s())?),
        _ => return None,
    })
}

pub(crate) fn trap(record: &[u8]) -> Option<PlaneEvent> {
    let (header, bytes) = TrapHeader::read_from_prefix(record).ok()?;
    let mut frame = bytes.get(..(header.len as usize).min(abi::TRAP_BYTES))?.to_vec();
    if header.tag_proto != 0 {
        push(&mut frame, header.tag_proto, Tag::from_tci(header.tag_tci)).ok()?;
    }
    Some(PlaneEvent::Trapped {
        port: PortId::new(header.port)?,
        vlan: VlanId::new(header.vlan),
        reason: TrapReason::from_u8(header.reason)?,
        frame,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_types::MacAddr;
    use zerocopy::IntoBytes;

    #[test]
    fn a_trapped_frame_has_its_tag_in_line() {
        let header = TrapHeader {
            len: 60,
            port: 3,
            tag_proto: 0x8100,
            tag_tci: 0xa00a,
            reason: 1,
            ..TrapHeader::default()
        };
        let mut record = header.as_bytes().to_vec();
        record.extend((0..2048).map(|n| n as u8));
        let Some(PlaneEvent::Trapped { port, vlan, reason, frame }) = trap(&record) else {
            unreachable!("a trap")
        };
        assert_eq!((port.get(), vlan, reason), (3, None, TrapReason::Bpdu));
        assert_eq!(frame.len(), 64);
        assert_eq!(frame[12..18], [0x81, 0, 0xa0, 0x0a, 12, 13]);
    }

    #[test]
    fn records_that_make_no_sense_are_ignored() {
        assert_eq!(trap(&[0; 15]), None);
        assert_eq!(trap(&[0; 16]), None);
        assert_eq!(fdb_event(&[0; 24]), None);
        let mut event = FdbEvent { event: abi::EVENT_MOVED, ..FdbEvent::default() };
        event.key = abi::fdb_key(VlanId::DEFAULT, MacAddr([2, 0, 0, 0, 0, 1]));
        event.value = FdbValue { updated_s: 5, port: 2, kind: 1 }.raw();
        assert_eq!(fdb_event(event.as_bytes()), None, "moved from nowhere");
        event.from = 1;
        let Some(PlaneEvent::FdbMoved { entry, from }) = fdb_event(event.as_bytes()) else {
            unreachable!("a move")
        };
        assert_eq!((entry.age_s, from.get()), (0, 1));
    }
}
