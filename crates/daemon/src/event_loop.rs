//! The event loop of management: waits for the kernel, the plane, the protocols, children, relays, sessions, deadlines and
//! signals, and passes each of them to the core.
//!
//! Invariant: readiness is edge-triggered, and a descriptor counts as read only after a read that found nothing. Every handler
//! does a bounded amount of work.

use crate::connections;
use crate::core::Core;
use crate::files::FileError;
use crate::identity::LocalSocket;
use crate::os;
use crate::run_error::RunError;
use crate::server::Shared;
use crate::systemd;
use lanyard_netdev::{Event, Events};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// How long the start waits for links that are coming up.
const LINKS_WAIT: Duration = Duration::from_millis(30);
/// How long the start waits for the kernel's routes in the plane.
const ROUTES_WAIT: Duration = Duration::from_millis(300);
/// How often a plane without a descriptor is polled for events.
const POLL_GAP: Duration = Duration::from_millis(100);
/// The most events handled before the switch updates the plane.
const MAX_BATCH: usize = 100_000;

/// The descriptors that the loop waits on. `None` where the switch does not use the source.
struct Sources {
    netlink: AsyncFd<OwnedFd>,
    routing: AsyncFd<OwnedFd>,
    vrfs: Option<AsyncFd<OwnedFd>>,
    children: Option<AsyncFd<OwnedFd>>,
    relays: Option<AsyncFd<OwnedFd>>,
    radius: Option<AsyncFd<OwnedFd>>,
    protocols: AsyncFd<OwnedFd>,
    /// Trapped frames, for protocols without a thread.
    frames: Option<AsyncFd<OwnedFd>>,
    plane: Option<AsyncFd<OwnedFd>>,
}

impl Sources {
    fn open(core: &Core, events: &Events) -> Result<Self, RunError> {
        let watch = |fd| os::watch(fd).map_err(RunError::system("event loop"));
        Ok(Self {
            netlink: watch(events.as_raw_fd())?,
            routing: watch(core.following.fd())?,
            vrfs: core.ctx.kernel.vrf_event_fd().map(watch).transpose()?,
            children: core.children.fd().map(watch).transpose()?,
            relays: core.relaying.fd().map(watch).transpose()?,
            radius: core.access_control.fd().map(watch).transpose()?,
            protocols: watch(core.ctx.protocols.fd())?,
            frames: core.ctx.protocols.frames_fd().map(watch).transpose()?,
            plane: core.ctx.plane.event_fd().map(watch).transpose()?,
        })
    }
}

/// The signals that the daemon handles.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// Runs the switch until a signal or `detach` ends it. `hangup` was registered before the switch was set up.
///
/// # Errors
/// When the control socket, a signal handler or a descriptor cannot be created.
pub(crate) async fn serve(mut core: Core, mut events: Events, hangup: Signal) -> Result<(), RunError> {
    let socket = core.ctx.paths.socket();
    let listener = listen(&socket)?;
    let terminate = signal(SignalKind::terminate()).map_err(RunError::system("SIGTERM"))?;
    let interrupt = signal(SignalKind::interrupt()).map_err(RunError::system("SIGINT"))?;
    let mut signals = Signals { hangup, terminate, interrupt };
    if let Err(error) = os::make_real_time(os::MANAGEMENT) {
        // Without real-time priority everything works, but with delays while other processes compute.
        core.ctx.log("SYS", 6, "SCHED", &format!("the daemon's threads are not real-time: {error}"));
    }
    let core = Rc::new(RefCell::new(core));
    let shared =
        Shared { core: core.clone(), changed: Rc::new(Notify::new()), detached: Rc::new(Notify::new()) };
    await_links(&core, &mut events);
    await_routes(&core);
    tokio::task::spawn_local(connections::serve(listener, shared.clone(), LocalSocket::Owner));
    tokio::task::spawn_local(connections::serve_group(shared.clone()));
    tokio::task::spawn_local(crate::telnet_sessions::serve(shared.clone()));
    tokio::task::spawn_local(crate::ssh_server::serve(shared.clone()));
    tokio::task::spawn_local(crate::fpm_server::serve(shared.clone()));
    announce(&core);
    os::return_free_memory();
    tokio::task::spawn_local(systemd::watchdog());
    let sources = Sources::open(&core.borrow(), &events)?;
    loop {
        tokio::select! {
            // Events after the switch was taken down must not be handled, because that would set it
            // up again.
            biased;
            () = shared.detached.notified() => {
                // Let the session that asked receive its answer.
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                break;
            }
            goes_on = turn(&shared, &mut events, &sources, &mut signals) => if !goes_on {
                break;
            }
        }
    }
    let _ = std::fs::remove_file(&socket);
    let paths = core.borrow().ctx.paths.clone();
    core.borrow_mut().group_socket.adopt(&paths, None);
    core.borrow_mut().ctx.log("SYS", 5, "STOP", "the daemon ends");
    Ok(())
}

/// Waits for one event and handles it; false when the daemon is to end.
async fn turn(shared: &Shared, events: &mut Events, sources: &Sources, signals: &mut Signals) -> bool {
    let core = &shared.core;
    let due = core.borrow().next_ms().map(|at_ms| core.borrow().ctx.clock.instant(at_ms));
    tokio::select! {
        mut guard = ready(Some(&sources.netlink)) => {
            let batch = drain(events);
            if batch.is_empty() {
                guard.clear_ready();
            } else {
                core.borrow_mut().netdev_events(batch);
            }
        }
        mut guard = ready(Some(&sources.routing)) => {
            if !core.borrow_mut().routing_turn() {
                guard.clear_ready();
            }
            tokio::task::yield_now().await;
        }
        mut guard = ready(sources.vrfs.as_ref()) => {
            if core.borrow_mut().vrf_events() == 0 {
                guard.clear_ready();
            }
        }
        mut guard = ready(sources.children.as_ref()) => {
            if core.borrow_mut().child_events() == 0 {
                guard.clear_ready();
            }
        }
        mut guard = ready(sources.relays.as_ref()) => {
            if core.borrow_mut().relay_events() == 0 {
                guard.clear_ready();
            }
        }
        mut guard = ready(sources.radius.as_ref()) => {
            if core.borrow_mut().radius_events() == 0 {
                guard.clear_ready();
            }
        }
        mut guard = ready(Some(&sources.protocols)) => {
            if !core.borrow_mut().protocol_reports() {
                guard.clear_ready();
            }
        }
        mut guard = ready(sources.frames.as_ref()) => {
            if core.borrow().ctx.protocols.turn() == 0 {
                guard.clear_ready();
            }
        }
        mut guard = ready(sources.plane.as_ref()) => {
            if core.borrow_mut().plane_events() == 0 {
                guard.clear_ready();
            }
            tokio::task::yield_now().await;
        }
        () = tokio::time::sleep(POLL_GAP), if sources.plane.is_none() => drop(core.borrow_mut().plane_events()),
        () = sleep_until(due) => core.borrow_mut().tick(),
        () = shared.changed.notified() => {}
        _ = signals.hangup.recv() => core.borrow_mut().reopen_logs(),
        _ = signals.terminate.recv() => return false,
        _ = signals.interrupt.recv() => return false,
    }
    true
}

/// Binds the control socket. An existing one belongs to a daemon that has ended, because this
/// process holds the lock.
fn listen(path: &Path) -> Result<UnixListener, FileError> {
    use std::os::unix::fs::PermissionsExt;
    let wrong = FileError::at(path);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(wrong(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(&wrong)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(&wrong)?;
    Ok(listener)
}

/// Waits for the links of ports that were just set up: they come up within microseconds if the
/// other end exists, and the switch should be ready only then.
fn await_links(core: &Rc<RefCell<Core>>, events: &mut Events) {
    let deadline = Instant::now() + LINKS_WAIT;
    loop {
        let batch = drain(events);
        core.borrow_mut().netdev_events(batch);
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !core.borrow().awaits_links() || !readable(events.as_fd(), left) {
            return;
        }
    }
}

/// Waits, for a limited time, until the plane has the kernel's routes, so that a switch with tables of usual size is ready
/// when it reports so. Larger tables follow later.
fn await_routes(core: &Rc<RefCell<Core>>) {
    let deadline = Instant::now() + ROUTES_WAIT;
    while core.borrow().following.syncs() && Instant::now() < deadline {
        core.borrow_mut().routing_turn();
    }
    // If nothing is followed, an adopted plane drops the routes of the earlier run.
    core.borrow_mut().sync_routing();
}

/// Returns all waiting events as one batch, so that intermediate states are not acted upon.
fn drain(events: &mut Events) -> Vec<Event> {
    let mut batch = Vec::new();
    while batch.len() < MAX_BATCH && readable(events.as_fd(), Duration::ZERO) {
        let more = events.read();
        if more.is_empty() {
            break;
        }
        batch.extend(more);
    }
    batch
}

fn readable(fd: BorrowedFd<'_>, wait: Duration) -> bool {
    let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
    poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout).is_ok_and(|count| count > 0)
}

fn announce(core: &Rc<RefCell<Core>>) {
    let core = core.borrow();
    let config = core.ctx.switch.config();
    let ports = lanyard_switch::compile::ports(config).count();
    let plane = core.ctx.plane.capabilities().name;
    core.ctx.log.print(&format!("lanyard: {} ready: {ports} ports, plane {plane}", config.hostname));
    systemd::notify("READY=1");
}

/// Waits until the descriptor is readable, or forever without one. Readiness is edge-triggered, so
/// it is cleared only after a read that found nothing.
async fn ready(fd: Option<&AsyncFd<OwnedFd>>) -> AsyncFdReadyGuard<'_, OwnedFd> {
    match fd {
        Some(fd) => match fd.readable().await {
            Ok(guard) => guard,
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config, messages};
    use lanyard_cli::backend::Configuration;
    use nix::sys::signal::{Signal as OsSignal, raise};
    use std::os::unix::fs::PermissionsExt;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, work)
    }

    #[test]
    fn the_control_socket_replaces_a_stale_one_and_is_private() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("cli.sock");
        block_on(async {
            for _ in 0..2 {
                let listener = listen(&path).expect("bound");
                assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
                drop(listener);
            }
            std::fs::remove_file(&path).expect("stale");
            std::fs::create_dir(&path).expect("made");
            let error = listen(&path).map(drop).expect_err("a directory is in the way");
            assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
        });
    }

    /// One turn handles one event: a deadline, what a session has changed, a signal.
    #[test]
    fn a_turn_handles_deadlines_and_signals() {
        let bench = Bench::new();
        block_on(async {
            let mut events = Events::open().expect("netlink");
            let core = Rc::new(RefCell::new(bench.core()));
            let sources = Sources::open(&core.borrow(), &events).expect("descriptors");
            let shared = Shared { core: core.clone(), changed: Rc::default(), detached: Rc::default() };
            let on = |kind| signal(kind).expect("a signal");
            let mut signals = Signals {
                hangup: on(SignalKind::hangup()),
                terminate: on(SignalKind::terminate()),
                interrupt: on(SignalKind::interrupt()),
            };
            core.borrow_mut().commit_confirmed(config("hostname other"), 1).expect("taken");
            bench.clock.set(60_000);
            while core.borrow().rollback_in_s().is_some() {
                assert!(turn(&shared, &mut events, &sources, &mut signals).await);
            }
            assert_eq!(core.borrow().running().hostname, "Lanyard", "rolled back");
            raise(OsSignal::SIGHUP).expect("sent");
            while !messages(&core.borrow().ctx).iter().any(|text| text.starts_with("LOGREOPEN")) {
                assert!(turn(&shared, &mut events, &sources, &mut signals).await);
            }
            raise(OsSignal::SIGTERM).expect("sent");
            while turn(&shared, &mut events, &sources, &mut signals).await {}
        });
    }
}
