//! `lanyard run` and `lanyard detach`: start, event loop and end of a switch.
//!
//! Invariant: the end of the daemon, for whatever reason, does not change what the plane does; only
//! [`detach`] does.

use crate::client::{Client, Piece};
use crate::clock::Clock;
use crate::core::{Core, Parts};
use crate::files;
use crate::instance::{self, Elsewhere, Found, Lock};
use crate::kernel::Kernel;
use crate::linux::Linux;
use crate::log::Log;
use crate::os;
use crate::paths::{Paths, check_instance};
use crate::planes::{self, Chip, Choice, Opened};
use crate::protocols::Protocols;
use crate::protocols::keeper::{self, Keeper};
use crate::protocols::trees::Trees;
use crate::routing::Following;
use crate::server::{self, Shared};
use crate::startup::{self, Refusal, Taker};
use lanyard_cli::backend::MAX_CONFIG_BYTES;
use lanyard_cli::edit::{LineError, apply_text};
use lanyard_config::Config;
use lanyard_ebpf::EbpfPlane;
use lanyard_netdev::{Event, Events};
use lanyard_plane::Plane;
use lanyard_stp::Snapshot;
use lanyard_switch::Switch;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// `lanyard run`.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--instance`.
    pub instance: String,
    /// `--config`: the startup-config.
    pub config: Option<PathBuf>,
    /// `--plane`.
    pub plane: Choice,
    /// `--platform` and `--wire`, for [`Choice::Asic`].
    pub chip: Option<Chip>,
}

/// How long the start waits for links that are coming up.
const LINKS_WAIT: Duration = Duration::from_millis(30);
/// How long `lanyard detach` waits for the end of the daemon, and how often it checks.
const END_WAIT: Duration = Duration::from_secs(10);
const END_POLL: Duration = Duration::from_millis(2);
/// How long the start waits for the kernel's routes in the plane.
const ROUTES_WAIT: Duration = Duration::from_millis(300);
/// How often a plane without a descriptor is polled for events.
const POLL_GAP: Duration = Duration::from_millis(100);
/// The most events handled before the switch updates the plane.
const MAX_BATCH: usize = 100_000;

/// Runs the switch until a signal or `detach` ends it.
///
/// # Errors
/// The reason why it could not start. Errors in the startup-config are reported and do not keep it from
/// running.
pub fn run(options: &Options) -> Result<(), String> {
    check_instance(&options.instance)?;
    let paths = Paths::make(&options.instance)?;
    let _lock = Lock::take(&options.instance, &paths)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("event loop: {error}"))?;
    // From here on SIGHUP does not end the process, as it would by default.
    let hangup = {
        let _entered = runtime.enter();
        signal(SignalKind::hangup()).map_err(|error| format!("SIGHUP: {error}"))?
    };
    let events = Events::open().map_err(|error| format!("netlink events: {error}"))?;
    let (mut core, was_live) = assemble(options, &paths, false)?;
    if let Err(error) = core.ctx.protocols.start() {
        core.ctx.log("SYS", 3, "THREAD", &format!("protocols share the thread of management: {error}"));
    }
    let startup = read_startup(&mut core, options.config.is_some(), was_live)?;
    let running = was_live.then(|| files::read_text(&core.ctx.paths.running_config(), MAX_CONFIG_BYTES).ok());
    let refused = startup::load(&startup.text, running.flatten().as_deref(), &mut core);
    report(&mut core, &startup.file, &refused);
    for notice in std::mem::take(&mut core.ctx.notices) {
        core.ctx.log("SYS", 4, "STARTUP", &notice);
    }
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(core, events, hangup))
}

/// Opens the parts of the switch. Returns also whether the plane was forwarding before.
fn assemble(options: &Options, paths: &Paths, quiet: bool) -> Result<(Core, bool), String> {
    let mut log = Log::new(quiet);
    let mut kernel = Linux::open().map_err(|error| format!("netlink: {error}"))?;
    let found = instance::found(paths);
    if let Some(Elsewhere::Alive(way)) = &found.elsewhere {
        let instance = &options.instance;
        return Err(format!("instance {instance} lives in another network namespace: go there with `{way}`"));
    }
    let Opened { plane, reason, was_live } = open_plane(options, paths, &found)?;
    if let Some(reason) = reason {
        log.add("PLANE", 4, "FALLBACK", &format!("plane soft is used: ebpf is not available: {reason}"));
    }
    if plane.capabilities().survives_daemon {
        for note in &plane.capabilities().notes {
            log.add("PLANE", 6, "NOTE", note);
        }
    }
    instance::settle(paths)?;
    kernel.whole_frames(plane.capabilities().name == "asic");
    kernel.adopt(&found.record.homes, found.record.namespaces.iter());
    let mut facts = kernel.facts().map_err(|error| error.to_string())?;
    let touched: Vec<String> = found.record.originals.keys().cloned().collect();
    kernel.learn_hosts(&touched, &mut facts);
    let identity = instance::identity(&options.instance, paths);
    let has_ports = !plane.state().ports.is_empty();
    let clock = Clock::start();
    let mut plane = plane;
    let (protocols, trees) = protocols(&mut *plane, &clock, paths, has_ports)?;
    let switch = Switch::new(identity, facts, plane.state(), found.record)
        .with_fixed_ports(plane.fixed_ports())
        .resuming(trees);
    let startup_file = options.config.clone().unwrap_or_else(|| paths.startup_config());
    let plane_since = plane_since(paths, plane.state().ports.is_empty());
    let following = Following::new().map_err(|error| format!("event loop: {error}"))?;
    let core = Core::new(Parts {
        switch,
        plane,
        protocols,
        kernel: Box::new(kernel),
        clock,
        paths: paths.clone(),
        startup_file,
        log,
        plane_since,
        following,
    });
    Ok((core, was_live))
}

/// The protocols over the plane, and the state of spanning tree to resume: what the last daemon
/// saved, if the plane's mark says that nothing has changed since. A new plane has no states to
/// resume.
fn protocols(
    plane: &mut dyn Plane,
    clock: &Clock,
    paths: &Paths,
    has_ports: bool,
) -> Result<(Protocols, Option<Snapshot>), String> {
    let mut found = None;
    let protocols = Protocols::new(plane, clock.clone(), |plane| {
        let kept = keeper::found(paths).filter(|(mark, _)| has_ports && *mark == plane.marked());
        found = kept.map(|(_, trees)| trees);
        Trees::new(Keeper::new(paths), found.clone())
    });
    Ok((protocols.map_err(|error| error.to_string())?, found))
}

/// Opens the plane. A plane that an instance of this name has left in a namespace that no longer exists is
/// discarded.
fn open_plane(options: &Options, paths: &Paths, found: &Found) -> Result<Opened, String> {
    let chip = options.chip.as_ref();
    let mut opened = planes::open(options.plane, chip, &options.instance, paths)?;
    if found.elsewhere.is_some() && !opened.plane.state().ports.is_empty() {
        opened.plane.detach().map_err(|error| error.to_string())?;
        drop(opened);
        opened = planes::open(options.plane, chip, &options.instance, paths)?;
    }
    Ok(opened)
}

/// When the plane was created: the time of a file that exists as long as the plane does.
fn plane_since(paths: &Paths, is_new: bool) -> SystemTime {
    let path = paths.run.join("plane-since");
    if is_new {
        let _ = std::fs::write(&path, "");
    }
    std::fs::metadata(&path).and_then(|meta| meta.modified()).unwrap_or_else(|_| SystemTime::now())
}

/// The configuration to start with, and its file.
struct Startup {
    text: String,
    file: PathBuf,
}

/// Reads the startup-config. An empty file means defaults, and so does an absent one that was not named. If a named
/// file is absent, or a file cannot be read, that means defaults only when no plane is forwarding. A forwarding switch
/// continues with its last running configuration, because a lost file is no reason to take it down.
fn read_startup(core: &mut Core, named: bool, was_live: bool) -> Result<Startup, String> {
    let file = core.startup_file.clone();
    let reason = match files::read_text(&file, MAX_CONFIG_BYTES) {
        Ok(text) => return Ok(Startup { text, file }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !named => {
            return Ok(Startup { text: String::new(), file });
        }
        Err(error) => format!("startup-config {}: {error}", file.display()),
    };
    if !was_live {
        core.ctx.log(
            "SYS",
            4,
            "STARTUP",
            &format!("{reason}: the switch starts with the default configuration"),
        );
        return Ok(Startup { text: String::new(), file });
    }
    let kept = core.ctx.paths.running_config();
    let text = files::read_text(&kept, MAX_CONFIG_BYTES).map_err(|error| {
        format!(
            "{reason}; the plane is forwarding and stays as it is, but the last running configuration is lost, too \
             ({}: {error}): restore the startup-config, or remove the switch with `lanyard detach --instance {}`",
            kept.display(),
            core.ctx.switch.identity().instance
        )
    })?;
    let log = format!(
        "{reason}: THE SWITCH RUNS ON WITH ITS LAST RUNNING CONFIGURATION ({}): check it with `show running-config` and \
         write a startup-config with `write memory`",
        kept.display()
    );
    core.ctx.log("SYS", 1, "STARTUP", &log);
    Ok(Startup { text, file: kept })
}

fn report(core: &mut Core, file: &Path, refused: &[LineError]) {
    for error in refused {
        core.ctx.log("SYS", 3, "STARTUP", &error.to_string());
    }
    if !refused.is_empty() {
        let (file, count) = (file.display(), refused.len());
        let lines = if count == 1 { "line" } else { "lines" };
        core.ctx.log("SYS", 3, "STARTUP", &format!("{file}: {count} {lines} refused, the rest is applied"));
    }
}

impl Taker for Core {
    fn check(&mut self, config: &Config) -> Result<(), String> {
        self.ctx.switch.check(&Config::default(), config).map(drop)
    }
    fn take(&mut self, config: &Config) -> Result<(), Refusal> {
        Core::take(self, config.clone()).map_err(|error| Refusal::of(error.part(), &error))
    }
}

/// The event loop.
async fn serve(core: Core, mut events: Events, mut hangup: Signal) -> Result<(), String> {
    let socket = core.ctx.paths.socket();
    let listener = listen(&socket)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| format!("SIGTERM: {error}"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| format!("SIGINT: {error}"))?;
    let urgent = os::Urgent::new(os::Urgent::MANAGEMENT);
    let mut core = core;
    if let Err(error) = &urgent {
        // Without this priority everything works, but later while other processes compute.
        core.ctx.log("SYS", 6, "SCHED", &format!("the daemon's threads are not real-time: {error}"));
    }
    let core = Rc::new(RefCell::new(core));
    let shared = Shared {
        core: core.clone(),
        changed: Rc::new(Notify::new()),
        detached: Rc::new(Notify::new()),
        urgent: urgent.ok().map(Rc::new),
    };
    await_links(&core, &mut events);
    await_routes(&core);
    tokio::task::spawn_local(server::serve(listener, shared.clone()));
    tokio::task::spawn_local(crate::fpm_server::serve(shared.clone()));
    announce(&core);
    let watch = |fd| os::watch(fd).map_err(|error| format!("event loop: {error}"));
    let netlink = watch(events.as_raw_fd())?;
    let routing = watch(core.borrow().following.fd())?;
    let vrf_fd = core.borrow().ctx.kernel.vrf_event_fd();
    let vrfs = vrf_fd.map(watch).transpose()?;
    let child_fd = core.borrow().children.fd();
    let children = child_fd.map(watch).transpose()?;
    let relay_fd = core.borrow().relaying.fd();
    let relays = relay_fd.map(watch).transpose()?;
    let protocols = watch(core.borrow().ctx.protocols.fd())?;
    let frames_fd = core.borrow().ctx.protocols.frames_fd();
    let frames = frames_fd.map(watch).transpose()?;
    let plane_fd = core.borrow().ctx.plane.event_fd();
    let plane = plane_fd.map(watch).transpose()?;
    loop {
        let due = core.borrow().next_ms().map(|at_ms| core.borrow().ctx.clock.instant(at_ms));
        let turn = async {
            tokio::select! {
                mut guard = ready(Some(&netlink)) => {
                    let batch = drain(&mut events);
                    if batch.is_empty() {
                        guard.clear_ready();
                    } else {
                        core.borrow_mut().netdev_events(batch);
                    }
                }
                mut guard = ready(Some(&routing)) => {
                    if !core.borrow_mut().routing_turn() {
                        guard.clear_ready();
                    }
                    tokio::task::yield_now().await;
                }
                mut guard = ready(vrfs.as_ref()) => {
                    if core.borrow_mut().vrf_events() == 0 {
                        guard.clear_ready();
                    }
                }
                mut guard = ready(children.as_ref()) => {
                    if core.borrow_mut().child_events() == 0 {
                        guard.clear_ready();
                    }
                }
                mut guard = ready(relays.as_ref()) => {
                    if core.borrow_mut().relay_events() == 0 {
                        guard.clear_ready();
                    }
                }
                mut guard = ready(Some(&protocols)) => {
                    if !core.borrow_mut().protocol_reports() {
                        guard.clear_ready();
                    }
                }
                mut guard = ready(frames.as_ref()) => {
                    if core.borrow().ctx.protocols.turn() == 0 {
                        guard.clear_ready();
                    }
                }
                mut guard = ready(plane.as_ref()) => {
                    if core.borrow_mut().plane_events() == 0 {
                        guard.clear_ready();
                    }
                    tokio::task::yield_now().await;
                }
                () = tokio::time::sleep(POLL_GAP), if plane.is_none() => drop(core.borrow_mut().plane_events()),
                () = sleep_until(due) => core.borrow_mut().tick(),
                () = shared.changed.notified() => {}
                _ = hangup.recv() => core.borrow_mut().reopen_logs(),
                _ = terminate.recv() => return false,
                _ = interrupt.recv() => return false,
            }
            true
        };
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
            goes_on = turn => if !goes_on {
                break;
            }
        }
    }
    let _ = std::fs::remove_file(&socket);
    core.borrow_mut().ctx.log("SYS", 5, "STOP", "the daemon ends");
    Ok(())
}

/// Binds the control socket. An existing one belongs to a daemon that has ended, because this
/// process holds the lock.
fn listen(path: &Path) -> Result<UnixListener, String> {
    use std::os::unix::fs::PermissionsExt;
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(wrong(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(wrong)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(wrong)?;
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

/// Waits, for a limited time, until the plane has tables of usual size before the switch reports that it is
/// ready. Larger tables follow later.
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
    notify_systemd("READY=1");
}

/// sd_notify(3), without the library.
fn notify_systemd(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    if let (Ok(socket), Ok(address)) = (UnixDatagram::unbound(), address) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
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

/// `lanyard run --check FILE`: the lines that would be refused with any netdevs.
///
/// # Errors
/// When the file cannot be read.
pub fn check_file(path: &Path) -> Result<Vec<LineError>, String> {
    let text =
        files::read_text(path, MAX_CONFIG_BYTES).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(apply_text(&text, &Config::default()).1)
}

/// `lanyard detach`: asks the daemon, or detaches directly if none runs.
///
/// # Errors
/// When there is nothing to detach, it is in another namespace, or something could not be undone.
pub fn detach(instance: &str) -> Result<(), String> {
    check_instance(instance)?;
    if let Ok(mut client) = Client::connect(instance) {
        let mut said = String::new();
        let done = client.detach(&mut |piece| {
            if let Piece::Refusal(text) = piece {
                said.push_str(text);
            }
            Ok(())
        })?;
        if done.refused {
            return Err(said.trim_start_matches("% ").trim_end().to_owned());
        }
        let paths = Paths::find(instance);
        // The daemon may still write while it ends.
        let _lock = await_end(instance, &paths)?;
        forget(&paths);
        return Ok(());
    }
    let paths = Paths::find(instance);
    if !paths.run.exists() {
        // There are pins but no run directory: /run has been cleaned.
        return match EbpfPlane::discard(&lanyard_ebpf::Options::new(instance)) {
            Ok(true) => Ok(()),
            _ => Err(format!("instance {instance}: there is no such switch ({})", paths.run.display())),
        };
    }
    if instance::found(&paths).any {
        let paths = Paths::make(instance)?;
        let _lock = Lock::take(instance, &paths)?;
        let options =
            Options { instance: instance.to_owned(), config: None, plane: Choice::Auto, chip: None };
        let assembled = assemble(&options, &paths, true).or_else(|reason| {
            // A plane that cannot be opened any more, by this program or with these rights, is
            // removed without opening it.
            let live = EbpfPlane::discard(&planes::ebpf_options(instance, &paths))
                .map_err(|error| format!("{reason}; {error}"))?;
            if live { assemble(&options, &paths, true) } else { Err(reason) }
        });
        assembled?.0.detach().map_err(|error| error.to_string())?;
    }
    forget(&paths);
    Ok(())
}

/// Waits until a daemon that has announced its end has ended.
fn await_end(instance: &str, paths: &Paths) -> Result<Option<Lock>, String> {
    let deadline = Instant::now() + END_WAIT;
    while paths.run.exists() {
        match Lock::take(instance, paths) {
            Ok(lock) => return Ok(Some(lock)),
            Err(_) if Instant::now() < deadline => std::thread::sleep(END_POLL),
            Err(reason) => return Err(format!("detached, but {reason} and does not end")),
        }
    }
    Ok(None)
}

/// Removes the run directory of a detached switch. Leftovers do no harm.
fn forget(paths: &Paths) {
    let _ = std::fs::remove_dir_all(&paths.run);
}
