//! [`LinkWatch`] looks at links every few milliseconds, because the kernel may report that a link is lost a second late. Ports that
//! must react at once, such as members of port-channels, need that.
//!
//! Read first: the kernel's net/core/link_watch.c. For most devices the kernel combines the changes of carrier of the whole
//! machine into one report a second; only a machine without another change in the last second reports one at once. A driver's
//! own state is up to date, so a thread asks for it every few milliseconds (ETHTOOL_GLINK), as the kernel's bonding driver
//! does (`miimon`).
//!
//! Invariants: without ports to look at the thread does not run. It only reports changes. It may wait for the lock of the network
//! configuration, which delays nothing else.

use crate::Netdev;
use lanyard_types::PortId;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The shortest interval between two looks at the same link.
const INTERVAL: Duration = Duration::from_millis(4);
/// The interval is at least this for each member, so with many members one link is looked at every 50 microseconds on average. A
/// look takes about a microsecond.
const A_LINK: Duration = Duration::from_micros(50);

/// Returns whether the netdev of this name has a link; `None` if its driver does not report links, so no change is reported.
type Look = Box<dyn FnMut(&str) -> Option<bool> + Send>;
/// Takes a change: true if the link is back, false if it is lost. Returns false when nobody takes changes any more.
pub type Report = Box<dyn FnMut(PortId, bool) -> bool + Send>;

/// Owns the thread; see the module comment.
#[derive(Debug)]
pub struct LinkWatch {
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

/// The members that the thread looks at, and whether it has to end.
#[derive(Debug, Default)]
struct Wanted {
    members: Vec<(PortId, String)>,
    ends: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkWatch {
    /// Starts a thread of this name, which looks at netdevs in the network namespace of the caller. `begin` is called first on the
    /// thread, for its priority. A port counts as up until the first look at it: `report` is called when that finds its link lost,
    /// and for each change after it.
    ///
    /// # Errors
    /// When the system refuses a thread or a socket.
    pub fn start(name: &str, begin: impl FnOnce() + Send + 'static, report: Report) -> io::Result<Self> {
        let netdev = Netdev::open()?;
        Self::start_with(name, begin, Box::new(move |name| netdev.has_link(name).ok()), report)
    }

    fn start_with(
        name: &str,
        begin: impl FnOnce() + Send + 'static,
        look: Look,
        report: Report,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let handle = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            begin();
            run(&theirs, look, report);
        })?;
        Ok(Self { shared, handle: Some(handle) })
    }
    /// Sets the ports to look at, with the names of their netdevs.
    pub fn set(&self, members: Vec<(PortId, String)>) {
        let mut wanted = self.shared.lock();
        if wanted.members != members {
            wanted.members = members;
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.changed.notify_one();
        if let Some(handle) = self.handle.take() {
            // A thread that panicked has printed its message.
            let _ = handle.join();
        }
    }
}

fn run(shared: &Shared, mut look: Look, mut report: Report) {
    // Whether each member's link was up at the last look.
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
            let Some(up) = look(name) else { continue };
            if known.insert(*port, up).unwrap_or(true) != up && !report(*port, up) {
                return;
            }
        }
        let most = INTERVAL.max(A_LINK * u32::try_from(members.len()).unwrap_or(u32::MAX));
        let same = |wanted: &mut Wanted| wanted.members == members && !wanted.ends;
        drop(shared.changed.wait_timeout_while(shared.lock(), most, same));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

    const LONG: Duration = Duration::from_secs(10);

    fn port(number: u16) -> PortId {
        PortId::new(number).expect("a port")
    }

    struct Fixture {
        watch: LinkWatch,
        lost: Arc<Mutex<BTreeSet<String>>>,
        looks: Arc<AtomicUsize>,
        reports: Receiver<(PortId, bool)>,
    }

    impl Fixture {
        fn new() -> Self {
            let (lost, looks) =
                (Arc::new(Mutex::new(BTreeSet::<String>::new())), Arc::new(AtomicUsize::new(0)));
            let (sender, reports) = channel();
            let (theirs, count) = (lost.clone(), looks.clone());
            let look = move |name: &str| {
                count.fetch_add(1, Ordering::SeqCst);
                (name != "mute").then(|| !theirs.lock().expect("not poisoned").contains(name))
            };
            let report = move |port, up| sender.send((port, up)).is_ok();
            let watch =
                LinkWatch::start_with("links", || (), Box::new(look), Box::new(report)).expect("a thread");
            Self { watch, lost, looks, reports }
        }
        fn lose(&self, name: &str) {
            self.lost.lock().expect("not poisoned").insert(name.to_owned());
        }
        fn next(&self) -> (PortId, bool) {
            self.reports.recv_timeout(LONG).expect("a report")
        }
        /// Waits until every member has been looked at again.
        fn look_again(&self) {
            let before = self.looks.load(Ordering::SeqCst);
            while self.looks.load(Ordering::SeqCst) < before + 8 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn changes_are_reported_once() {
        let fixture = Fixture::new();
        let members = ["eth1", "eth2", "mute"].map(str::to_owned);
        fixture.watch.set((1..).map(port).zip(members).collect());
        fixture.look_again();
        fixture.lose("eth2");
        fixture.lose("mute");
        assert_eq!(fixture.next(), (port(2), false));
        fixture.look_again();
        fixture.lost.lock().expect("not poisoned").clear();
        assert_eq!(fixture.next(), (port(2), true));
        fixture.look_again();
        assert!(fixture.reports.try_recv().is_err(), "no further change");
        // A member that has no link when it is added is reported.
        fixture.lose("eth3");
        fixture.watch.set(vec![(port(3), "eth3".into())]);
        assert_eq!(fixture.next(), (port(3), false));
    }

    #[test]
    fn without_members_nothing_is_looked_at() {
        let fixture = Fixture::new();
        fixture.watch.set(vec![(port(1), "eth1".into())]);
        fixture.look_again();
        fixture.watch.set(Vec::new());
        // A look that had begun ends; then the thread waits.
        let waited = fixture.reports.recv_timeout(10 * INTERVAL);
        assert_eq!(waited, Err(RecvTimeoutError::Timeout));
        let before = fixture.looks.load(Ordering::SeqCst);
        assert_eq!(fixture.reports.recv_timeout(10 * INTERVAL), Err(RecvTimeoutError::Timeout));
        assert_eq!(fixture.looks.load(Ordering::SeqCst), before);
    }
}
