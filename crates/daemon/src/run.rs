//! `lanyard run` and `lanyard detach`: start and end of a switch.
//!
//! Invariant: the end of the daemon, for whatever reason, does not change what the plane does; only
//! [`detach`] does.

use crate::client::{Client, Piece};
use crate::clock::Clock;
use crate::core::{Core, Parts};
use crate::event_loop::serve;
use crate::files::{self, FileError};
use crate::instance::{self, Elsewhere, Found, Lock};
use crate::kernel::Kernel;
use crate::linux::Linux;
use crate::log::Log;
use crate::paths::{Paths, check_instance};
use crate::planes::{self, Chip, Choice, Opened};
use crate::protocols::Protocols;
use crate::protocols::keeper::{self, Keeper};
use crate::protocols::trees::Trees;
use crate::routing::Following;
use crate::run_error::RunError;
use crate::startup::{self, Part, Refusal, Taker};
use lanyard_cli::backend::MAX_CONFIG_BYTES;
use lanyard_cli::{LineError, apply_text};
use lanyard_config::Config;
use lanyard_ebpf::EbpfPlane;
use lanyard_netdev::Events;
use lanyard_plane::{Plane, PlaneError};
use lanyard_stp::Snapshot;
use lanyard_switch::Switch;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use tokio::signal::unix::{SignalKind, signal};

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

/// How long `lanyard detach` waits for the end of the daemon, and how often it checks.
const END_WAIT: Duration = Duration::from_secs(10);
const END_POLL: Duration = Duration::from_millis(2);

/// Runs the switch until a signal or `detach` ends it.
///
/// # Errors
/// The reason why it could not start. Errors in the startup-config are reported and do not keep it from
/// running.
pub fn run(options: &Options) -> Result<(), RunError> {
    check_instance(&options.instance)?;
    let paths = Paths::make(&options.instance)?;
    let _lock = Lock::take(&options.instance, &paths)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(RunError::system("event loop"))?;
    // From here on SIGHUP does not end the process, as it would by default.
    let hangup = {
        let _entered = runtime.enter();
        signal(SignalKind::hangup()).map_err(RunError::system("SIGHUP"))?
    };
    let events = Events::open().map_err(RunError::system("netlink events"))?;
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
    let text = lanyard_cli::text::render(core.ctx.switch.config());
    core.archive.begin(text);
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(core, events, hangup))
}

/// Opens the parts of the switch. Returns also whether the plane was forwarding before.
fn assemble(options: &Options, paths: &Paths, quiet: bool) -> Result<(Core, bool), RunError> {
    let mut log = Log::new(quiet);
    let mut kernel = Linux::open().map_err(RunError::system("netlink"))?;
    let found = instance::found(paths);
    if let Some(Elsewhere::Alive(way)) = &found.elsewhere {
        return Err(RunError::Elsewhere { instance: options.instance.clone(), way: way.clone() });
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
    let mut facts = kernel.facts()?;
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
    let following = Following::new().map_err(RunError::system("event loop"))?;
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
) -> Result<(Protocols, Option<Snapshot>), PlaneError> {
    let mut found = None;
    let protocols = Protocols::new(plane, clock.clone(), |plane| {
        let kept = keeper::found(paths).filter(|(mark, _)| has_ports && *mark == plane.marked());
        found = kept.map(|(_, trees)| trees);
        Trees::new(Keeper::new(paths), found.clone())
    });
    let protocols = protocols?;
    let lacp = keeper::found_aggregation(paths).filter(|_| has_ports);
    let keeper = keeper::of_aggregation(paths);
    protocols.with(move |engine| engine.aggregation.resume(keeper, lacp));
    let boot =
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    let now = keeper::Moment { boot: boot.clone(), boot_ms: clock.boot_ms(), unix_ms: clock.unix_ms() };
    let leases = keeper::found_leases(paths, &now);
    let (keepers, clock) = ([keeper::of_leases(paths), keeper::of_lasting_leases(paths)], clock.clone());
    protocols.with(move |engine| engine.guard.resume(clock, boot, keepers, leases));
    Ok((protocols, found))
}

/// Opens the plane. A plane that an instance of this name has left in a namespace that no longer exists is
/// discarded.
fn open_plane(options: &Options, paths: &Paths, found: &Found) -> Result<Opened, RunError> {
    let chip = options.chip.as_ref();
    let mut opened = planes::open(options.plane, chip, &options.instance, paths)?;
    if found.elsewhere.is_some() && !opened.plane.state().ports.is_empty() {
        opened.plane.detach()?;
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

/// Reads the startup-config. An empty file means the default configuration, and so does an absent one if `named` is
/// false (without `--config`). An absent file that was named, or a file that cannot be read, means the default
/// configuration only if no plane was forwarding. A forwarding switch continues with its last running configuration,
/// because a lost file is no reason to take it down.
fn read_startup(core: &mut Core, named: bool, was_live: bool) -> Result<Startup, RunError> {
    let file = core.startup_file.clone();
    let cause = match files::read_text(&file, MAX_CONFIG_BYTES) {
        Ok(text) => return Ok(Startup { text, file }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !named => {
            return Ok(Startup { text: String::new(), file });
        }
        Err(error) => error,
    };
    let reason = format!("startup-config {}: {cause}", file.display());
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
    let text = match files::read_text(&kept, MAX_CONFIG_BYTES).map_err(FileError::at(&kept)) {
        Ok(text) => text,
        Err(kept) => {
            let instance = core.ctx.switch.identity().instance.clone();
            return Err(RunError::ConfigLost { instance, startup: file, cause, kept });
        }
    };
    let log = format!(
        "{reason}: THE SWITCH RUNS ON WITH ITS LAST RUNNING CONFIGURATION ({}): check it with `show running-config` and \
         write a startup-config with `write memory`",
        kept.display()
    );
    core.ctx.log("SYS", 1, "STARTUP", &log);
    Ok(Startup { text, file: kept })
}

/// Logs the refused lines of the startup-config.
pub(crate) fn report(core: &mut Core, file: &Path, refused: &[LineError]) {
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
    fn check(&mut self, config: &Config) -> Result<(), Refusal> {
        let checked = self.ctx.switch.check(&Config::default(), config);
        checked.map(drop).map_err(|error| Refusal::of(Part::Unknown, error))
    }
    fn take(&mut self, config: &Config) -> Result<(), Refusal> {
        Core::take(self, config.clone()).map_err(|error| Refusal::of(error.part(), error))
    }
}

/// Reads a file of configuration text.
///
/// # Errors
/// When it cannot be read, is longer than [`MAX_CONFIG_BYTES`], or is not UTF-8.
pub fn read_config(path: &Path) -> Result<String, FileError> {
    files::read_text(path, MAX_CONFIG_BYTES).map_err(FileError::at(path))
}

/// `lanyard run --check FILE`: returns the lines that would be refused whatever netdevs exist.
///
/// # Errors
/// When the file cannot be read.
pub fn check_file(path: &Path) -> Result<Vec<LineError>, FileError> {
    let text = read_config(path)?;
    Ok(apply_text(&text, &Config::default()).1)
}

/// `lanyard detach`: asks the daemon, or detaches directly if none runs.
///
/// # Errors
/// When there is nothing to detach, it is in another namespace, or something could not be undone.
pub fn detach(instance: &str) -> Result<(), RunError> {
    check_instance(instance)?;
    if let Ok(mut client) = Client::connect(instance) {
        let mut printed = String::new();
        let done = client.detach(&mut |piece| {
            if let Piece::Refusal(text) = piece {
                printed.push_str(text);
            }
            Ok(())
        })?;
        if done.refused {
            return Err(RunError::Refused(printed.trim_start_matches("% ").trim_end().to_owned()));
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
            _ => Err(RunError::Absent { instance: instance.to_owned(), run: paths.run }),
        };
    }
    if instance::found(&paths).any {
        let paths = Paths::make(instance)?;
        let _lock = Lock::take(instance, &paths)?;
        let options =
            Options { instance: instance.to_owned(), config: None, plane: Choice::Auto, chip: None };
        let assembled = assemble(&options, &paths, true).or_else(|cause| {
            // A plane that cannot be opened any more, by this program or with these rights, is
            // removed without opening it.
            match EbpfPlane::discard(&planes::ebpf_options(instance, &paths)) {
                Ok(true) => assemble(&options, &paths, true),
                Ok(false) => Err(cause),
                Err(removal) => Err(RunError::Stuck { cause: Box::new(cause), removal }),
            }
        });
        assembled?.0.detach()?;
    }
    forget(&paths);
    Ok(())
}

/// Waits until a daemon that has announced its end has ended.
fn await_end(instance: &str, paths: &Paths) -> Result<Option<Lock>, RunError> {
    let deadline = Instant::now() + END_WAIT;
    while paths.run.exists() {
        match Lock::take(instance, paths) {
            Ok(lock) => return Ok(Some(lock)),
            Err(_) if Instant::now() < deadline => std::thread::sleep(END_POLL),
            Err(error) => return Err(RunError::GoesOn(error)),
        }
    }
    Ok(None)
}

/// Removes the run directory of a detached switch. Leftovers do no harm.
fn forget(paths: &Paths) {
    let _ = std::fs::remove_dir_all(&paths.run);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, messages};
    use std::fs;

    /// The files read at the start: the configuration's text and its file, or the error; and the log.
    fn started(
        startup: Option<&[u8]>,
        kept: Option<&str>,
        named: bool,
        was_live: bool,
    ) -> (Result<Startup, RunError>, Vec<String>, Paths) {
        let bench = Bench::new();
        let mut core = bench.core();
        let paths = bench.paths();
        fs::create_dir_all(&paths.state).expect("made");
        if let Some(bytes) = startup {
            fs::write(&core.startup_file, bytes).expect("written");
        }
        if let Some(text) = kept {
            fs::write(paths.running_config(), text).expect("written");
        }
        let read = read_startup(&mut core, named, was_live);
        (read, messages(&core.ctx), paths)
    }

    #[test]
    fn the_startup_config_file_precedes_the_last_running_configuration() {
        for named in [false, true] {
            for was_live in [false, true] {
                let (read, log, paths) =
                    started(Some(b"hostname a\n"), Some("hostname b\n"), named, was_live);
                let read = read.expect("read");
                assert_eq!((read.text.as_str(), read.file), ("hostname a\n", paths.startup_config()));
                assert_eq!(log, [""; 0]);
            }
            let (read, log, _) = started(None, Some("hostname b\n"), false, named);
            assert_eq!((read.expect("defaults").text.as_str(), log.len()), ("", 0), "none was named");
        }
    }

    #[test]
    fn a_lost_startup_config_means_defaults_only_where_nothing_forwards() {
        for bytes in [None, Some(&b"\xff"[..])] {
            let (read, log, _) = started(bytes, None, true, false);
            assert_eq!(read.expect("defaults").text, "");
            assert!(log.concat().ends_with("the switch starts with the default configuration"), "{log:?}");
            let (read, log, paths) = started(bytes, Some("hostname b\n"), true, true);
            let read = read.expect("the last running configuration");
            assert_eq!((read.text.as_str(), read.file), ("hostname b\n", paths.running_config()));
            assert!(log.concat().contains("LAST RUNNING CONFIGURATION"), "{log:?}");
            let (read, _, _) = started(bytes, None, true, true);
            let error = read.map(drop).expect_err("nothing to run on with");
            assert!(matches!(error, RunError::ConfigLost { .. }), "{error}");
            assert!(error.to_string().ends_with("`lanyard detach --instance test`"), "{error}");
        }
    }

    #[test]
    fn refused_lines_are_reported_and_counted() {
        let bench = Bench::new();
        let mut core = bench.core();
        let refused = apply_text("hostname a\nnonsense\nvlan 5000", &Config::default()).1;
        report(&mut core, "start.cfg".as_ref(), &refused);
        let log = messages(&core.ctx);
        assert_eq!(log.len(), 3);
        assert!(log[0].starts_with("STARTUP: line 2, column 1: "), "{log:?}");
        assert_eq!(log[2], "STARTUP: start.cfg: 2 lines refused, the rest is applied");
        report(&mut core, "start.cfg".as_ref(), &refused[..1]);
        assert!(messages(&core.ctx).concat().ends_with("1 line refused, the rest is applied"));
    }

    #[test]
    fn a_plane_keeps_the_time_of_its_creation() {
        let bench = Bench::new();
        let paths = bench.paths();
        fs::create_dir_all(&paths.run).expect("made");
        let made = plane_since(&paths, true);
        let old = made - Duration::from_secs(3600);
        let file = fs::File::options().write(true).open(paths.run.join("plane-since")).expect("there");
        file.set_modified(old).expect("dated");
        assert_eq!(plane_since(&paths, false), old, "a restart");
        assert!(plane_since(&paths, true) > old, "another plane");
    }

    #[test]
    fn a_file_is_checked_without_a_switch() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.cfg");
        let error = check_file(&path).expect_err("absent");
        assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
        fs::write(&path, "hostname a\nnonsense\n").expect("written");
        let refused = check_file(&path).expect("read");
        assert_eq!(refused.iter().map(|error| error.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_refused_detach_reports_its_reason() {
        let error = detach("a/b").expect_err("no name");
        assert!(matches!(error, RunError::Name(_)), "{error}");
        let error = detach("lanyard-test-absent").expect_err("no switch");
        assert!(
            error.to_string().starts_with("instance lanyard-test-absent: there is no such switch ("),
            "{error}"
        );
    }

    #[test]
    fn the_end_of_a_daemon_is_its_lock() {
        let bench = Bench::new();
        let paths = bench.paths();
        assert!(await_end("test", &paths).expect("no directory").is_none());
        fs::create_dir_all(&paths.run).expect("made");
        let held = Lock::take("test", &paths).expect("free");
        let waiting = std::thread::spawn(move || await_end("test", &paths).map(|lock| lock.is_some()));
        std::thread::sleep(END_POLL);
        drop(held);
        assert!(waiting.join().expect("no panic").expect("ended"), "the lock is this process's now");
        let paths = bench.paths();
        forget(&paths);
        assert!(!paths.run.exists());
    }
}
