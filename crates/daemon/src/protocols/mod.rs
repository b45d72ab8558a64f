//! The protocol thread: receives BPDUs, makes decisions, and sends the frames that neighbours wait for.
//!
//! Nothing here reads or writes files, the log or clients, sends netlink requests, or takes a lock that is
//! held during such work. Management does all of these and may wait as long as a disk or the kernel takes;
//! hellos are nevertheless sent in time. Protocols access the plane through [`ProtocolPlane`] only.
//! Management passes work to them as closures ([`Protocols::with`]), which run between two frames. Work for
//! management (log messages, ports to shut down) is returned as [`Reports`], whose number is bounded.
//!
//! A protocol implements [`Protocol`] and is a field of [`Engine`]. Read [`trees`] for one.

mod access;
pub(crate) mod aggregation;
pub(crate) mod discovery;
pub(crate) mod guard;
pub(crate) mod keeper;
mod loop_safety;
pub(crate) mod snooping;
pub(crate) mod trees;
pub(crate) mod work;

use crate::clock::Clock;
use crate::faults;
use crate::os;
use access::Access;
use aggregation::Aggregation;
use discovery::LinkDiscovery;
use guard::Guard;
use lanyard_netdev::LinkWatch;
use lanyard_plane::{Plane, PlaneError, ProtocolPlane, TRAP_WAKE, Trapped};
use lanyard_types::{PortId, TrapReason};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use snooping::Snooping;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trees::Trees;
use work::{Io, Protocol, Reports};

/// The most jobs that wait. Management has one at a time, because it waits for each answer; the thread of [`LinkWatch`] waits
/// while there is no room.
const MAX_JOBS: usize = 4;

/// The protocols and the objects they act on.
pub(crate) struct Engine {
    pub(crate) trees: Trees,
    pub(crate) discovery: LinkDiscovery,
    pub(crate) snooping: Snooping,
    pub(crate) guard: Guard,
    access: Access,
    pub(crate) aggregation: Aggregation,
    plane: Box<dyn ProtocolPlane>,
    clock: Clock,
    reports: Reports,
    bell: Arc<EventFd>,
    /// True after frames have been handled, until [`Engine::act`] does the work that they cause.
    handled: bool,
}

impl Engine {
    /// Lets the protocols do the work that is due and the work caused by frames and jobs.
    pub(crate) fn act(&mut self) {
        self.handled = false;
        let Self {
            trees, discovery, snooping, guard, access, aggregation, plane, clock, reports, bell, ..
        } = self;
        let mut io = Io { clock, plane: &mut **plane, reports };
        aggregation.act(&mut io);
        trees.act(&mut io);
        discovery.act(&mut io);
        let changed = trees.take_changed();
        if !changed.is_empty() {
            snooping.topology_changed(io.now(), &changed);
        }
        snooping.act(&mut io);
        guard.act(&mut io);
        access.act(&mut io);
        if !reports.is_empty() {
            // This wakes management, which reads the bell before it takes the reports.
            let _ = bell.write(1);
        }
    }
    /// Spanning tree and the objects it acts on, for jobs of management.
    pub(crate) fn trees_and_io(&mut self) -> (&mut Trees, Io<'_>) {
        let Self { trees, plane, clock, reports, .. } = self;
        (trees, Io { clock, plane: &mut **plane, reports })
    }
    /// Neighbour discovery and the objects it acts on, for jobs of management.
    pub(crate) fn discovery_and_io(&mut self) -> (&mut LinkDiscovery, Io<'_>) {
        let Self { discovery, plane, clock, reports, .. } = self;
        (discovery, Io { clock, plane: &mut **plane, reports })
    }
    /// Multicast snooping and the objects it acts on, for jobs of management.
    pub(crate) fn snooping_and_io(&mut self) -> (&mut Snooping, Io<'_>) {
        let Self { snooping, plane, clock, reports, .. } = self;
        (snooping, Io { clock, plane: &mut **plane, reports })
    }
    /// First-hop security and the objects it acts on, for jobs of management.
    pub(crate) fn guard_and_io(&mut self) -> (&mut Guard, Io<'_>) {
        let Self { guard, plane, clock, reports, .. } = self;
        (guard, Io { clock, plane: &mut **plane, reports })
    }
    /// Link aggregation and the objects it acts on, for jobs of management.
    pub(crate) fn aggregation_and_io(&mut self) -> (&mut Aggregation, Io<'_>) {
        let Self { aggregation, plane, clock, reports, .. } = self;
        (aggregation, Io { clock, plane: &mut **plane, reports })
    }
    /// Sends a frame by a port, unchanged. A port that refuses it has no link.
    pub(crate) fn send(&mut self, port: PortId, frame: &[u8]) {
        let _ = self.plane.inject(port, frame);
    }
    /// Milliseconds since the machine was started.
    pub(crate) fn now(&self) -> u64 {
        self.clock.boot_ms()
    }
    /// Takes the reports for management.
    pub(crate) fn take_reports(&mut self) -> Reports {
        std::mem::take(&mut self.reports)
    }
    /// Handles waiting frames and does the work that is due; returns the number of frames.
    fn turn(&mut self) -> usize {
        let count = self.receive();
        if self.handled || self.next_ms().is_some_and(|at| at <= self.now()) {
            self.act();
        }
        count
    }
    /// Handles waiting frames, and returns their number. Call this before any work that may end a timer, so that a frame that
    /// has arrived in time counts, however late this thread is.
    fn receive(&mut self) -> usize {
        let Self { trees, discovery, snooping, guard, access, aggregation, plane, clock, reports, .. } = self;
        let now = clock.boot_ms();
        let count = plane.poll_traps(&mut |Trapped { port, reason, frame }| {
            if aggregation.takes(reason.group()) {
                aggregation.handle_frame(now, port, &frame);
            } else if trees.takes(reason.group()) {
                // A BPDU belongs to the port-channel, if a member received it.
                if let Some(port) = aggregation.owner(port) {
                    trees.handle_frame(now, port, &frame);
                }
            } else if discovery.takes(reason.group()) {
                discovery.handle_frame(now, port, &frame);
            } else if snooping.takes(reason.group()) {
                snooping.handle_frame(now, port, &frame);
            } else if access.takes(reason) {
                access.handle_trapped(port, reason, &frame);
            } else if guard.takes(reason.group()) {
                guard.handle_trapped(now, port, reason, &frame);
            } else if reason == TrapReason::AclLog {
                reports.add_note(port, &frame);
            }
        });
        self.handled |= count > 0;
        count
    }
    fn next_ms(&self) -> Option<u64> {
        let all = [
            self.aggregation.next_ms(),
            self.trees.next_ms(),
            self.discovery.next_ms(),
            self.snooping.next_ms(),
            self.guard.next_ms(),
        ];
        all.into_iter().flatten().min()
    }
}

/// Work that management passes to the protocol thread.
type Job = Box<dyn FnOnce(&mut Engine) + Send>;

/// Management's access to the protocols.
pub(crate) struct Protocols {
    place: Place,
    bell: Arc<EventFd>,
}

enum Place {
    /// The protocols run on the caller's thread: before [`Protocols::start`], after its failure, and in tests.
    Here(RefCell<Box<Engine>>),
    There(Thread),
    /// While the protocols move from one place to the other.
    Nowhere,
}

struct Thread {
    /// `None` when the thread has to end.
    jobs: Option<SyncSender<Job>>,
    wake: Arc<EventFd>,
    handle: Option<JoinHandle<()>>,
    /// The thread that watches links. It passes jobs too, so it must end before the protocol thread can. `None` where the system
    /// refuses it: then only the kernel's events report lost links.
    links: Option<LinkWatch>,
}

impl Protocols {
    /// Creates the protocols of `plane`, on the thread of the caller.
    ///
    /// # Errors
    /// When the system refuses a descriptor.
    pub(crate) fn new(
        plane: &mut dyn Plane,
        clock: Clock,
        trees: impl FnOnce(&dyn ProtocolPlane) -> Trees,
    ) -> Result<Self, PlaneError> {
        let part = plane.protocols()?;
        let bell = Arc::new(bell().map_err(|error| PlaneError::System {
            what: "making an eventfd".into(),
            cause: error.to_string(),
        })?);
        let trees = trees(&*part).over(&*part);
        let (discovery, snooping, guard, reports) =
            (LinkDiscovery::default(), Snooping::default(), Guard::default(), Reports::default());
        let aggregation = Aggregation::over(&*part);
        let engine = Engine {
            trees,
            discovery,
            snooping,
            guard,
            access: Access::default(),
            aggregation,
            plane: part,
            clock,
            reports,
            bell: bell.clone(),
            handled: false,
        };
        Ok(Self { place: Place::Here(RefCell::new(Box::new(engine))), bell })
    }
    /// Moves the protocols to a thread of their own.
    ///
    /// # Errors
    /// When the system refuses a thread or a descriptor; the protocols then stay on the caller's thread.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        if faults::fails("thread") {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let wake = Arc::new(bell()?);
        let (jobs, queue) = sync_channel::<Job>(MAX_JOBS);
        // The thread receives the protocols once it runs, so they are not lost if it cannot be
        // started.
        let (hand_over, taken) = sync_channel::<Box<Engine>>(1);
        let woken = wake.clone();
        let handle = std::thread::Builder::new().name("lanyard-proto".into()).spawn(move || {
            if let Ok(engine) = taken.recv() {
                run(*engine, &queue, &woken);
            }
        })?;
        match std::mem::replace(&mut self.place, Place::Nowhere) {
            Place::Here(engine) => {
                engine.borrow_mut().trees.keep_by_thread();
                engine.borrow_mut().aggregation.keep_by_thread();
                engine.borrow_mut().guard.keep_by_thread();
                // The thread waits for this message.
                let _ = hand_over.send(engine.into_inner());
                let links = watch_links(jobs.clone(), wake.clone()).ok();
                self.place = Place::There(Thread { jobs: Some(jobs), wake, handle: Some(handle), links });
            }
            other => self.place = other,
        }
        Ok(())
    }
    /// Runs `work` on the protocols, between two frames, and returns its result.
    pub(crate) fn with<R: Send + 'static>(&self, work: impl FnOnce(&mut Engine) -> R + Send + 'static) -> R {
        match &self.place {
            Place::Here(engine) => work(&mut engine.borrow_mut()),
            Place::There(thread) => thread.run(work),
            // Only `start` sets this, and replaces it before it returns.
            Place::Nowhere => std::process::abort(),
        }
    }
    /// As [`Protocols::with`]; afterwards the protocols do the work caused by `work`.
    pub(crate) fn change<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> R {
        self.with(move |engine| {
            let answer = work(engine);
            engine.act();
            answer
        })
    }
    /// Sets the members whose links are watched ([`LinkWatch`]), with the names of their netdevs. Without effect while the
    /// protocols have no thread of their own.
    pub(crate) fn watch_links(&self, members: Vec<(PortId, String)>) {
        if let Place::There(Thread { links: Some(links), .. }) = &self.place {
            links.set(members);
        }
    }
    /// Readable while reports wait.
    pub(crate) fn fd(&self) -> RawFd {
        self.bell.as_fd().as_raw_fd()
    }
    /// Readable while frames wait for protocols that have no thread.
    pub(crate) fn frames_fd(&self) -> Option<RawFd> {
        match &self.place {
            Place::Here(engine) => Some(engine.borrow().plane.event_fd()),
            Place::There(_) | Place::Nowhere => None,
        }
    }
    /// The reports since the last call. A report that a job makes without [`Protocols::change`] is
    /// among them after the protocols have acted next.
    pub(crate) fn reports(&self) -> Reports {
        // The read does not block. An error means that there are no reports, so the protocol thread need not be asked.
        if self.bell.read().is_err() {
            return Reports::default();
        }
        self.with(Engine::take_reports)
    }
    /// Runs protocols that have no thread of their own; returns the number of frames they handled.
    pub(crate) fn turn(&self) -> usize {
        match &self.place {
            Place::Here(engine) => engine.borrow_mut().turn(),
            Place::There(_) | Place::Nowhere => 0,
        }
    }
    /// The next deadline of protocols that have no thread of their own, in milliseconds since the
    /// machine was started.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        match &self.place {
            Place::Here(engine) => engine.borrow().next_ms(),
            Place::There(_) | Place::Nowhere => None,
        }
    }
}

impl Thread {
    fn run<R: Send + 'static>(&self, work: impl FnOnce(&mut Engine) -> R + Send + 'static) -> R {
        let (answer, answered) = sync_channel(1);
        let job: Job = Box::new(move |engine| drop(answer.send(work(engine))));
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        let _ = self.wake.write(1);
        match answered.recv() {
            Ok(answer) if sent => answer,
            // The thread lives as long as this value; if it panics, the process ends ([`Fatal`]).
            _ => std::process::abort(),
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        (self.links, self.jobs) = (None, None);
        let _ = self.wake.write(1);
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

/// Ends the process when the protocol thread panics: a daemon without protocols would look alive,
/// and keep the plane's watchdog and a new daemon from helping.
struct Fatal;

impl Drop for Fatal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// Starts the thread that watches links. It passes each change to the protocol thread as a job.
fn watch_links(jobs: SyncSender<Job>, wake: Arc<EventFd>) -> io::Result<LinkWatch> {
    // Without real-time priority a lost link is noticed later while other processes compute.
    let begin = || _ = os::make_real_time(os::MANAGEMENT);
    let report = move |port: PortId, up: bool| {
        let job: Job = Box::new(move |engine| {
            let (aggregation, mut io) = engine.aggregation_and_io();
            aggregation.handle_link(&mut io, port, up);
            engine.act();
        });
        let sent = jobs.send(job).is_ok();
        let _ = wake.write(1);
        sent
    };
    LinkWatch::start("lanyard-links", begin, Box::new(report))
}

fn bell() -> io::Result<EventFd> {
    Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)
}

/// The protocol thread.
fn run(mut engine: Engine, jobs: &Receiver<Job>, wake: &EventFd) {
    let _fatal = Fatal;
    // Without real-time priority everything works, but with delays while other processes compute.
    let _ = os::make_real_time(os::PROTOCOLS);
    let traps = os::duplicate(engine.plane.event_fd());
    let mut is_readable = false;
    let mut again: Option<Instant> = None; // when to look for frames that end no wait
    loop {
        again = again.filter(|at| *at > Instant::now());
        let _ = wake.read();
        let mut count = 0;
        loop {
            match jobs.try_recv() {
                Ok(job) => {
                    count += engine.receive();
                    job(&mut engine);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        count += engine.turn();
        if count > 0 {
            is_readable = false;
            again = Some(Instant::now() + TRAP_WAKE);
            continue;
        }
        // A descriptor that is readable although there was no frame (an error, a hang-up, or an incomplete record) would end
        // every wait at once, and this thread has priority over all others: leave the descriptor out of one wait.
        is_readable = wait(&engine, wake, traps.as_ref().ok().filter(|_| !is_readable), again);
    }
}

/// Waits until a job, a frame, a deadline or the time `again` comes. Returns true if the descriptor of the frames is readable.
/// Without that descriptor, a wait ends after [`LOOK`] at the latest, so that frames are polled for.
fn wait(engine: &Engine, wake: &EventFd, traps: Option<&OwnedFd>, again: Option<Instant>) -> bool {
    let due = engine.next_ms().map(|at| Duration::from_millis(at.saturating_sub(engine.clock.boot_ms())));
    let look = traps.is_none().then_some(LOOK);
    let again = again.map(|_| MILLISECOND);
    let left = [due, look, again].into_iter().flatten().min();
    let timeout =
        left.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
    let mut fds = vec![PollFd::new(wake.as_fd(), PollFlags::POLLIN)];
    fds.extend(traps.map(|traps| PollFd::new(traps.as_fd(), PollFlags::POLLIN)));
    // An interrupted wait ends early, which does no harm.
    let _ = poll(&mut fds, timeout);
    fds.get(1).is_some_and(|traps| traps.any().unwrap_or(true))
}

/// The shortest timeout of a wait, which is longer than [`TRAP_WAKE`].
const MILLISECOND: Duration = Duration::from_millis(1);
const _: () = assert!(TRAP_WAKE.as_nanos() < MILLISECOND.as_nanos());
/// The interval of polling for frames without a descriptor.
const LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::Place;
    use crate::testing::Bench;
    use lanyard_plane::Trapped;
    use lanyard_types::TrapReason;
    use nix::sys::signal::Signal;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    /// The protocols answer from their own thread, and end with their owner.
    #[test]
    fn protocols_run_on_a_thread_of_their_own() {
        let bench = Bench::new();
        let mut core = bench.core();
        let here = std::thread::current().id();
        assert_eq!(core.ctx.protocols.with(|_| std::thread::current().id()), here);
        core.ctx.protocols.start().expect("a thread");
        let there = core.ctx.protocols.with(|_| (std::thread::current().id(), current_name()));
        assert!(there.0 != here && there.1.as_deref() == Some("lanyard-proto"), "{there:?}");
        assert_eq!(core.ctx.protocols.next_ms(), None, "the thread has its own deadlines");
        drop(core);
    }

    /// The thread waits between two polls for frames although their descriptor is always readable, because its other end is
    /// closed.
    #[test]
    fn a_descriptor_that_is_always_readable_does_not_keep_the_thread_busy() {
        let bench = Bench::new();
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        drop(writer);
        *bench.plane.trap_fd.lock() = Some(reader);
        let mut core = bench.core();
        core.ctx.protocols.start().expect("a thread");
        let polls = || bench.plane.polls.load(Ordering::Relaxed);
        let (begin, before) = (Instant::now(), polls());
        while polls() < before + 8 {
            std::thread::yield_now();
        }
        // Of every two polls, one comes after a wait of [`super::LOOK`].
        assert!(begin.elapsed() >= 3 * super::LOOK, "8 polls in {:?}", begin.elapsed());
        drop(core);
    }

    /// After a frame the thread polls for frames once more, although no descriptor ends its wait.
    #[test]
    fn frames_that_end_no_wait_are_looked_for() {
        let bench = Bench::new();
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        *bench.plane.trap_fd.lock() = Some(reader);
        let mut core = bench.core();
        core.ctx.protocols.start().expect("a thread");
        let polls = || bench.plane.polls.load(Ordering::Relaxed);
        core.ctx.protocols.with(|_| ());
        let port = lanyard_types::PortId::new(1).expect("a port");
        let frame = Trapped { port, reason: TrapReason::Igmp, frame: vec![0; 60] };
        *bench.plane.trapped.lock() = vec![frame];
        let before = polls();
        core.ctx.protocols.with(|_| ());
        // One poll takes the frame before the job, two find nothing, and one comes after [`TRAP_WAKE`], the time in which a
        // further frame does not make the descriptor readable.
        let begin = Instant::now();
        while polls() < before + 4 {
            assert!(begin.elapsed() < Duration::from_secs(60), "{} polls", polls() - before);
            std::thread::yield_now();
        }
        drop((core, writer));
    }

    fn current_name() -> Option<String> {
        std::thread::current().name().map(str::to_owned)
    }

    /// The process that `a_panic_ends_the_process` starts: its protocol thread panics while no thread waits for
    /// an answer.
    #[test]
    #[ignore = "ends its process"]
    #[allow(clippy::panic)]
    fn a_protocol_thread_that_panics() {
        let bench = Bench::new();
        let mut core = bench.core();
        core.ctx.protocols.start().expect("a thread");
        let Place::There(thread) = &core.ctx.protocols.place else { panic!("no thread") };
        thread.jobs.as_ref().expect("not ended").send(Box::new(|_| panic!("a fault"))).expect("taken");
        let _ = thread.wake.write(1);
        std::thread::sleep(Duration::from_secs(30));
    }

    /// A daemon without protocols would look alive, so a panic of their thread ends the process.
    #[test]
    fn a_panic_ends_the_process() {
        let test = std::env::current_exe().expect("this test");
        let arguments = ["--ignored", "--exact", "protocols::tests::a_protocol_thread_that_panics"];
        let output = Command::new(test).args(arguments).output().expect("started");
        assert_eq!(output.status.signal(), Some(Signal::SIGABRT as i32), "{output:?}");
    }
}
