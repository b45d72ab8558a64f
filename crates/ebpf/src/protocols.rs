//! [`EbpfProtocols`]: the part of the plane that protocols use on a thread of their own.
//!
//! Invariant: this part shares only the tables and the lock of [`crate::pairs`] with the plane's
//! owner.

use crate::abi;
use crate::bindings::Bindings;
use crate::error::{Doing, Result, system};
use crate::events::{RECORDS_IN_RING, TRAPS_A_POLL, trap};
use crate::fdb::flush_call;
use crate::inject::Injector;
use crate::mdb::Mdb;
use crate::object::Programs;
use crate::pairs::Pairs;
use crate::tables::{Meta, Tables, run_call};
use crate::watchdog;
use lanyard_pipeline::state::PlaneState;
use lanyard_plane::{
    ChannelMembers, FdbFilter, MdbChange, PlaneError, PlaneEvent, ProtocolPlane, Trapped, TreeStates,
};
use lanyard_types::{Binding, BindingKey, ChannelId, MacAddr, PortId, PortSet, TrapGroup, VlanId};
use lanyard_wire::{Tag, push};
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use std::collections::{BTreeMap, VecDeque};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// See the module comment.
pub(crate) struct EbpfProtocols {
    tables: Arc<Tables>,
    pairs: Arc<Pairs>,
    /// Only this thread locks it, once the protocols run.
    mdb: Arc<Mutex<Mdb>>,
    /// As `mdb`.
    bindings: Arc<Mutex<Bindings>>,
    fdb_scan: OwnedFd,
    watchdog_set: OwnedFd,
    ring: RingBuffer<'static>,
    /// Records that the ring has passed on. Only this thread locks it, so the lock is never waited
    /// for.
    waiting: Arc<Mutex<VecDeque<Trapped>>>,
    injector: Injector,
}

impl EbpfProtocols {
    pub(crate) fn open(
        tables: Arc<Tables>,
        pairs: Arc<Pairs>,
        (mdb, bindings): (Arc<Mutex<Mdb>>, Arc<Mutex<Bindings>>),
        programs: &Programs,
    ) -> Result<Self> {
        let own = |fd: &OwnedFd| fd.try_clone().doing(|| "opening a program once more".into());
        let waiting = Arc::new(Mutex::new(VecDeque::new()));
        let taken = waiting.clone();
        let mut builder = RingBufferBuilder::new();
        let take = move |record: &[u8]| {
            if let Some(PlaneEvent::Trapped { port, reason, frame, .. }) = trap(record) {
                let mut waiting = taken.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.push_back(Trapped { port, reason, frame });
            }
            0
        };
        let ring = builder.add(tables.map("traps"), take).map(drop).and_then(|()| builder.build());
        let ring = ring.doing(|| "opening the ring traps".into())?;
        let injector = Injector::open().doing(|| "opening a packet socket".into())?;
        let (fdb_scan, watchdog_set) = (own(&programs.fdb_scan)?, own(&programs.watchdog_set)?);
        Ok(Self { tables, pairs, mdb, bindings, fdb_scan, watchdog_set, ring, waiting, injector })
    }

    fn take(&mut self, most: usize) -> VecDeque<Trapped> {
        // The callback does not fail, so the only error is an empty ring.
        self.ring.consume_raw_n(most);
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ProtocolPlane for EbpfProtocols {
    fn event_fd(&self) -> RawFd {
        self.tables.map("traps").as_fd().as_raw_fd()
    }
    fn poll_traps(&mut self, handle: &mut dyn FnMut(Trapped)) -> usize {
        let records = self.take(TRAPS_A_POLL);
        let count = records.len();
        records.into_iter().for_each(handle);
        count
    }
    fn inject(&mut self, port: PortId, frame: &[u8]) -> Result<(), PlaneError> {
        let ifindex = sender(self.pairs.lock().state(), port).ok_or(PlaneError::NoSuchPort(port))?;
        let doing = || format!("sending a frame of {} bytes out of port {port}", frame.len());
        if ifindex == 0 {
            return Err(system(doing(), "it has no netdev"));
        }
        self.injector.send(ifindex, frame).doing(doing)
    }
    fn relay(&mut self, vlan: VlanId, from: Option<PortId>, ports: &PortSet, frame: &[u8]) -> usize {
        let sets = self.tables.vlan_ports.get(vlan.index());
        let isolated = |port: PortId| self.tables.ports.get(port.index()).flags & abi::PORT_ISOLATED != 0;
        let from_isolated = from.is_some_and(isolated);
        let mut sent = 0;
        for port in ports.iter().filter(|port| Some(*port) != from) {
            let in_set =
                |set: &[u64; abi::PORT_WORDS]| set[port.index() / 64] >> (port.index() % 64) & 1 == 1;
            let Some(form) = sets.form.iter().position(in_set) else { continue };
            if from_isolated && isolated(port) {
                continue;
            }
            let row = self.tables.ports.get(port.index());
            let mut bytes = frame.to_vec();
            // The frame has a header, so it is not too short for a tag.
            if form != usize::from(abi::UNTAGGED)
                && push(&mut bytes, row.tpid, Tag { vid: vlan.get(), ..Tag::default() }).is_err()
            {
                continue;
            }
            let ifindex = sender(self.pairs.lock().state(), port).filter(|ifindex| *ifindex != 0);
            sent += usize::from(ifindex.is_some_and(|ifindex| self.injector.send(ifindex, &bytes).is_ok()));
        }
        sent
    }
    fn multicast(&mut self, change: &MdbChange) -> Result<(), PlaneError> {
        self.mdb.lock().unwrap_or_else(PoisonError::into_inner).change(change)
    }
    fn multicast_held(&self) -> Vec<MdbChange> {
        self.mdb.lock().unwrap_or_else(PoisonError::into_inner).changes()
    }
    fn bind(&mut self, key: BindingKey, mac: Option<MacAddr>) -> Result<(), PlaneError> {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner).set(key, mac)
    }
    fn bindings(&self) -> Vec<Binding> {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner).held()
    }
    fn snooping_watchdog(&mut self, after: Option<Duration>) -> Result<(), PlaneError> {
        watchdog::set(&self.watchdog_set, abi::WATCHDOG_SNOOPING, after)
    }
    fn snooping_expired(&mut self) -> bool {
        let phase = watchdog::snooping_phase(&self.tables);
        phase.compare_exchange(abi::WATCHDOG_EXPIRED, abi::WATCHDOG_WAITS, SeqCst, SeqCst).is_ok()
    }
    fn trees(&self) -> TreeStates {
        self.pairs.lock().trees()
    }
    fn set_trees(&mut self, trees: &TreeStates) -> Result<(), PlaneError> {
        self.pairs.lock().set_trees(trees);
        Ok(())
    }
    fn channels(&self) -> BTreeMap<ChannelId, ChannelMembers> {
        self.pairs.lock().channels()
    }
    fn set_channel(&mut self, channel: ChannelId, members: &ChannelMembers) -> Result<(), PlaneError> {
        self.pairs.lock().set_channel(channel, Some(members));
        Ok(())
    }
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64 {
        let Some(mut call) = flush_call(filter) else { return 0 };
        run_call(&self.fdb_scan, &mut call).map_or(0, |()| call.removed)
    }
    fn watchdog(&mut self, after: Option<Duration>) -> Result<(), PlaneError> {
        watchdog::set(&self.watchdog_set, abi::WATCHDOG_TREES, after)
    }
    fn watchdog_expired(&mut self) -> bool {
        if !self.pairs.expired() {
            return false;
        }
        // Dropping the writer blocks the pairs that were opened while the watchdog expired.
        drop(self.pairs.lock());
        let kept =
            self.take(RECORDS_IN_RING).into_iter().filter(|t| t.reason.group() != TrapGroup::Stp).collect();
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        self.pairs.note_expiry();
        true
    }
    fn mark(&mut self, mark: u64) {
        self.tables.meta.u64(0, offset_of!(Meta, mark)).store(mark, SeqCst);
    }
    fn marked(&self) -> u64 {
        self.tables.meta.u64(0, offset_of!(Meta, mark)).load(SeqCst)
    }
}

/// The ifindex of the netdev by which a frame of the control plane leaves a port: for a port-channel, that of one of its members.
/// `None` if the port does not exist.
fn sender(state: &PlaneState, port: PortId) -> Option<u32> {
    let of = state.ports.get(&port)?;
    let members = of.aggregation.channel().and_then(|channel| state.channels.get(&channel));
    let member = members.and_then(|members| members.buckets.first());
    Some(member.and_then(|member| state.ports.get(member)).map_or(of.ifindex, |member| member.ifindex))
}
