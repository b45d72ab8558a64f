//! Watches the links of members of port-channels, so that frames leave by other members as soon as one loses its link.
//!
//! A chip learns of a lost link by an interrupt; here a thread asks the drivers of the netdevs every few milliseconds
//! ([`LinkWatch`]). A link whose driver does not report its state is only checked with all other wires, every 250 ms.
//!
//! Invariant: at most one change of each port waits to be fetched, the most recent one.

use super::links::Wire;
use lanyard_netdev::LinkWatch;
use lanyard_types::PortId;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Changes that have not been taken yet, by port.
#[derive(Debug)]
struct Changes {
    waiting: Mutex<BTreeMap<PortId, bool>>,
    /// Readable while changes wait.
    bell: EventFd,
}

impl Changes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PortId, bool>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module comment.
#[derive(Debug)]
pub(super) struct Watch {
    links: LinkWatch,
    changes: Arc<Changes>,
}

impl Watch {
    /// Starts the thread in the network namespace of the caller.
    ///
    /// # Errors
    /// When the system has no descriptor or no thread left.
    pub(super) fn start() -> io::Result<Self> {
        let changes = Arc::new(Changes { waiting: Mutex::default(), bell: bell()? });
        let theirs = changes.clone();
        let report = move |port, up| {
            theirs.lock().insert(port, up);
            // The counter cannot overflow: it has 64 bits, and `changes` resets it.
            let _ = theirs.bell.write(1);
            true
        };
        Ok(Self { links: LinkWatch::start("chip-links", || (), Box::new(report))?, changes })
    }
    /// Readable while changes wait.
    pub(super) fn bell(&self) -> &EventFd {
        &self.changes.bell
    }
    /// Sets the ports to watch; those whose wires are no netdevs are ignored.
    pub(super) fn set<'a>(&self, members: impl Iterator<Item = (PortId, &'a Wire)>) {
        self.links.set(members.filter_map(|(port, wire)| Some((port, wire.name()?.to_owned()))).collect());
    }
    /// The changes since the last call: ports, with true if they now have a link.
    pub(super) fn changes(&self) -> BTreeMap<PortId, bool> {
        let mut waiting = self.changes.lock();
        let _ = self.changes.bell.read();
        std::mem::take(&mut waiting)
    }
}

/// A non-blocking eventfd.
pub(super) fn bell() -> io::Result<EventFd> {
    Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)
}
