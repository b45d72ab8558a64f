//! Looks at the links of members of port-channels, so that frames leave by other members as soon as one loses its link.
//!
//! A chip learns of a lost link by an interrupt. A netdev's driver knows it as early, but the kernel may report it a second late
//! (net/core/link_watch.c), so a thread asks the drivers every few milliseconds.
//!
//! Invariants: without members the thread does not run. It may wait for the lock of the network configuration, which delays no
//! frame. A report that has no room waits for the next look.

use super::links::Wire;
use lanyard_netdev::Netdev;
use lanyard_types::PortId;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time between two looks at a link.
const INTERVAL: Duration = Duration::from_millis(4);
/// With many members a link is looked at no more often than this on average.
const A_LINK: Duration = Duration::from_micros(50);

#[derive(Debug, Default)]
struct Wanted {
    members: Vec<(PortId, String)>,
    /// Changes that have not been taken yet, by port.
    changes: BTreeMap<PortId, bool>,
    ends: bool,
}

#[derive(Debug)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
    /// Readable while changes wait.
    bell: EventFd,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Owns the thread; see the module comment.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread in the network namespace of the caller.
    ///
    /// # Errors
    /// When the system has no descriptor or no thread left.
    pub(super) fn start() -> io::Result<Self> {
        let netdev = Netdev::open().map_err(|error| io::Error::other(error.to_string()))?;
        let bell = bell()?;
        let shared = Arc::new(Shared { wanted: Mutex::default(), changed: Condvar::new(), bell });
        let theirs = shared.clone();
        let run = move || run(&theirs, |name| netdev.has_link(name).ok());
        let handle = std::thread::Builder::new().name("chip-links".into()).spawn(run)?;
        Ok(Self { shared, handle: Some(handle) })
    }
    /// Readable while changes wait.
    pub(super) fn bell(&self) -> &EventFd {
        &self.shared.bell
    }
    /// Sets the ports to look at; of those whose wires are no netdevs nothing is reported.
    pub(super) fn set<'a>(&self, members: impl Iterator<Item = (PortId, &'a Wire)>) {
        let members: Vec<(PortId, String)> =
            members.filter_map(|(port, wire)| Some((port, wire.name()?.to_owned()))).collect();
        let mut wanted = self.shared.lock();
        if wanted.members != members {
            wanted.members = members;
            self.shared.changed.notify_one();
        }
    }
    /// The changes since the last call: ports, and whether they have a link.
    pub(super) fn changes(&self) -> BTreeMap<PortId, bool> {
        let mut wanted = self.shared.lock();
        let _ = self.shared.bell.read();
        std::mem::take(&mut wanted.changes)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.changed.notify_one();
        if let Some(handle) = self.handle.take() {
            // A thread that panicked has printed its message.
            let _ = handle.join();
        }
    }
}

/// An eventfd that is not waited for.
pub(super) fn bell() -> io::Result<EventFd> {
    Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)
}

fn run(shared: &Shared, look: impl Fn(&str) -> Option<bool>) {
    let mut known: BTreeMap<PortId, bool> = BTreeMap::new();
    loop {
        let members = {
            let idle = |wanted: &mut Wanted| wanted.members.is_empty() && !wanted.ends;
            let wanted =
                shared.changed.wait_while(shared.lock(), idle).unwrap_or_else(PoisonError::into_inner);
            if wanted.ends {
                return;
            }
            wanted.members.clone()
        };
        known.retain(|port, _| members.iter().any(|(member, _)| member == port));
        for (port, name) in &members {
            // What a driver does not say is learned by the chip's own, slower look.
            let Some(up) = look(name) else { continue };
            if known.insert(*port, up) != Some(up) {
                shared.lock().changes.insert(*port, up);
                // The counter cannot overflow: it is far from full, and read before each look at the changes.
                let _ = shared.bell.write(1);
            }
        }
        let most = INTERVAL.max(A_LINK * u32::try_from(members.len()).unwrap_or(u32::MAX));
        let same = |wanted: &mut Wanted| wanted.members == members && !wanted.ends;
        drop(shared.changed.wait_timeout_while(shared.lock(), most, same));
    }
}
