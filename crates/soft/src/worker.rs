//! The thread that carries frames: it waits on all links and on its bell, and gives each link a
//! bounded turn.
//!
//! Invariant: a caller that wants to change the state gets the lock within one link's turn.

use crate::core::Core;
use lanyard_types::PortId;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::eventfd::EventFd;
use nix::unistd::Pid;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The state that the thread shares with its owner.
#[derive(Debug)]
pub struct Shared {
    core: Mutex<Core>,
    waiting: AtomicUsize,
    /// The generation of the links that the thread waits on; it holds no older ones.
    seen: AtomicU64,
    /// Notified after each change of `seen`.
    saw: Condvar,
    bell: EventFd,
}

/// How long a caller waits for the thread before it checks that the thread still runs.
const CHECK: Duration = Duration::from_millis(20);

impl Shared {
    pub fn new(core: Core, bell: EventFd) -> Self {
        let (waiting, seen) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { core: Mutex::new(core), waiting, seen, saw: Condvar::new(), bell }
    }
    /// Locks the core for a change or a query. The thread does not take the lock again before the
    /// caller has had it.
    pub fn control(&self) -> MutexGuard<'_, Core> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let core = self.lock();
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        core
    }
    /// Wakes the thread, which then reads the present links.
    pub fn ring(&self) {
        let _ = self.bell.write(1);
    }
    /// Waits until the thread has dropped the links that were replaced, at most [`CHECK`]; returns true if it has. Call
    /// [`Shared::ring`] first.
    pub fn released(&self) -> bool {
        let holds = |core: &mut Core| self.seen.load(Ordering::Acquire) != core.generation;
        let waited = self.saw.wait_timeout_while(self.control(), CHECK, holds);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Locks the core for processing frames.
    fn frames(&self) -> MutexGuard<'_, Core> {
        while self.waiting.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
        self.lock()
    }
}

/// Carries frames until the core is stopped.
pub fn run(shared: &Shared) {
    pin();
    let mut generation = 0;
    let mut waits: Vec<(PortId, Arc<OwnedFd>)> = Vec::new();
    // Ports whose netdev has left and is still configured: it may be back before the daemon has noticed.
    let mut lost: Vec<PortId> = Vec::new();
    let mut search = Instant::now();
    loop {
        {
            let core = shared.frames();
            if core.stop {
                return;
            }
            if core.generation != generation {
                generation = core.generation;
                let links = PortId::all().filter_map(|port| Some((port, core.links[port.index()].fd()?)));
                waits = links.collect();
                lost = PortId::all().filter(|port| core.links[port.index()].is_lost()).collect();
                shared.seen.store(generation, Ordering::Release);
                shared.saw.notify_all();
            }
        }
        let ready = match wait(shared, &waits, !lost.is_empty()) {
            Ok(ready) => ready,
            Err(Errno::EINTR) => continue,
            // At worst the system is out of memory. Try again, but not in a tight loop.
            Err(_) => {
                std::thread::yield_now();
                continue;
            }
        };
        for (port, events) in ready {
            let mut core = shared.frames();
            if core.generation != generation {
                break;
            }
            core.turn(port);
            if !core.links[port.index()].check(events) {
                core.connect(port, crate::link::Link::Gone);
            } else if events.contains(PollFlags::POLLERR) && core.links[port.index()].is_lost() {
                lost.push(port);
            }
        }
        if !lost.is_empty() && search.elapsed() >= SEARCH {
            search = Instant::now();
            let mut core = shared.frames();
            if core.generation == generation {
                lost.retain(|port| !core.links[port.index()].find_again());
            }
        }
    }
}

/// The time between two searches for netdevs that have left.
const SEARCH: Duration = Duration::from_millis(100);

/// Waits for events, at most for the time [`SEARCH`] if `search` is true. Returns the ports and their poll flags.
fn wait(
    shared: &Shared,
    waits: &[(PortId, Arc<OwnedFd>)],
    search: bool,
) -> nix::Result<Vec<(PortId, PollFlags)>> {
    let mut fds = Vec::with_capacity(waits.len() + 1);
    fds.push(PollFd::new(shared.bell.as_fd(), PollFlags::POLLIN));
    fds.extend(waits.iter().map(|(_, fd)| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
    let timeout =
        if search { PollTimeout::try_from(SEARCH).unwrap_or(PollTimeout::MAX) } else { PollTimeout::NONE };
    poll(&mut fds, timeout)?;
    let reported = |fd: &PollFd<'_>| fd.revents().filter(|events| !events.is_empty());
    if reported(&fds[0]).is_some() {
        shared.bell.read()?;
    }
    Ok(waits.iter().zip(&fds[1..]).filter_map(|((port, _), fd)| Some((*port, reported(fd)?))).collect())
}

/// Keeps the thread on the last processor that it may use, so that its caches stay warm. If that is
/// refused, it runs anywhere.
fn pin() {
    let this = Pid::from_raw(0);
    let Ok(allowed) = sched_getaffinity(this) else { return };
    let last = (0..CpuSet::count()).rev().find(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    let mut one = CpuSet::new();
    if last.is_some_and(|cpu| one.set(cpu).is_ok()) {
        let _ = sched_setaffinity(this, &one);
    }
}
