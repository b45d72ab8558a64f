//! Updates ports when their netdevs change: offloads, queueing disciplines, programs and XDP features change at any
//! time, and with them the best way of forwarding that is safe.
//!
//! Read `facts` first, which makes the decisions. This module finds the ports whose netdev, or whose far end, may have
//! changed, by the kernel's notifications (`lanyard_netdev::Watch`, `chains`) and by a timer. Each of these ports is examined
//! again as if it had just become a port.
//!
//! Invariant: after a notification, or after [`AUDIT`] at the latest for programs at TCX, no port is forwarded in a way
//! that its netdev does not allow. While this runs, `global.facts_s` is the present time. The programs rely on facts
//! that may change only while that time is recent, so a daemon that has ended leaves nothing behind that can become
//! wrong.

use crate::abi;
use crate::chains::Chains;
use crate::clock::now_s;
use crate::error::{Doing, Result};
use crate::events::Events;
use crate::lower::PortFacts;
use crate::tables::Tables;
use crate::tc;
use lanyard_netdev::{Changed, Watch};
use lanyard_pipeline::state::Delivery;
use lanyard_plane::PlaneState;
use lanyard_types::PortId;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The interval of the audit for changes without a notification.
const AUDIT: Duration = Duration::from_millis(500);
/// Ports that an audit examines completely; the following audits examine the next ones.
const PORTS_AN_AUDIT: usize = 8;

/// The notifications and the timer.
#[derive(Debug)]
pub(crate) struct Follower {
    watch: Watch,
    timer: TimerFd,
    /// The port after which the next audit begins.
    last: Option<PortId>,
}

impl Follower {
    /// Subscribes to changes; `events` becomes readable when there are any. Notes what this kernel
    /// does not report.
    pub(crate) fn open(events: &Events, notes: &mut Vec<String>) -> Result<Self> {
        let doing = || "watching the netdevs".to_owned();
        let watch = Watch::open().doing(doing)?;
        notes.extend(watch.missing().iter().map(|what| format!("no {what}")));
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)
                .doing(doing)?;
        let every = Expiration::Interval(TimeSpec::from_duration(AUDIT));
        timer.set(every, TimerSetTimeFlags::empty()).doing(doing)?;
        for fd in watch.fds() {
            events.watch(fd)?;
        }
        events.watch(timer.as_fd())?;
        Ok(Self { watch, timer, last: None })
    }
    /// The ports whose netdev, or whose far end, may have changed; and true if the audit was due. Then it also
    /// confirms the facts to the programs.
    pub(crate) fn dirty(
        &mut self,
        tables: &Tables,
        state: &PlaneState,
        facts: &BTreeMap<PortId, PortFacts>,
        chains: &mut Chains,
    ) -> (BTreeSet<PortId>, bool) {
        let mut dirty = changed_ports(&mut self.watch, state, facts);
        // The timer does not block; an error means that the audit is not due.
        let due = self.timer.wait().is_ok();
        if chains.follow(due) {
            dirty.extend(state.ports.keys());
        }
        if due {
            vouch(tables);
            audit(&mut self.last, state, facts, &mut dirty);
        }
        (dirty, due)
    }
}

/// Confirms to the programs that the facts about netdevs in the tables are correct.
pub(crate) fn vouch(tables: &Tables) {
    tables.global.u32(0, offset_of!(abi::Global, facts_s)).store(now_s(), Relaxed);
}

/// The ports that the notifications concern.
fn changed_ports(
    watch: &mut Watch,
    state: &PlaneState,
    facts: &BTreeMap<PortId, PortFacts>,
) -> BTreeSet<PortId> {
    let mut ports: BTreeMap<(Option<i32>, u32), PortId> = BTreeMap::new();
    for (id, port) in &state.ports {
        ports.insert((None, port.ifindex), *id);
        if let Some(far) = facts.get(id).and_then(|facts| facts.far) {
            ports.insert((Some(far.0), far.1), *id);
        }
    }
    let mut dirty = BTreeSet::new();
    watch.read(|changed| match changed {
        Changed::Device { netnsid, ifindex } => dirty.extend(ports.get(&(netnsid, ifindex))),
        Changed::Any => dirty.extend(state.ports.keys()),
    });
    dirty
}

/// Finds changes without a notification: programs at TCX egress of every port with peer
/// delivery, and everything else at a few ports at a time.
fn audit(
    last: &mut Option<PortId>,
    state: &PlaneState,
    facts: &BTreeMap<PortId, PortFacts>,
    dirty: &mut BTreeSet<PortId>,
) {
    let present = state.ports.iter().filter(|(_, port)| port.ifindex != 0);
    for (id, port) in present.clone() {
        let peer = port.delivery == Delivery::Auto && facts.get(id).is_some_and(|facts| facts.peer.is_ok());
        if peer && tc::egress_programs(port.ifindex).is_ok_and(|count| count != 0) {
            dirty.insert(*id);
        }
    }
    let ids: Vec<PortId> = present.map(|(id, _)| *id).collect();
    let from = ids.partition_point(|id| last.is_some_and(|last| *id <= last));
    let turn: Vec<PortId> = ids[from..].iter().chain(&ids[..from]).copied().take(PORTS_AN_AUDIT).collect();
    *last = turn.last().copied();
    dirty.extend(turn);
}
