//! `ntp server`: gives the servers to the program of the machine that sets its clock, chrony or systemd-timesyncd.
//!
//! Read chrony.conf(5), `sourcedir`, and timesyncd.conf(5). The switch itself does not set the clock, and its systemd unit does
//! not permit it: it writes a file into the program's directory, and makes the program read it. It does so in PID 1's mount
//! namespace, because these directories are read-only in its own.
//!
//! Invariants: management never waits for a program; a thread does. The file stays when the daemon ends, and is removed with
//! the last server and by `detach`. A switch without servers and without such a file changes nothing.

use crate::context::{Context, Module};
use crate::os;
use crate::programs::{ProgramError, run};
use lanyard_config::NtpServer;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

/// How often the result of a thread is looked for.
const LOOK_MS: u64 = 200;
/// How long a program may take to read its files.
const PATIENCE: Duration = Duration::from_secs(10);
/// The root directory of PID 1, which also a process with mounts of its own sees, and this process's own.
const ROOTS: [&str; 2] = ["/proc/1/root", "/"];

/// A program that sets the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Chrony,
    Timesyncd,
}

impl Program {
    /// Finds the program that is installed below `root`; chrony if both are.
    pub(crate) fn find(root: &Path) -> Option<Self> {
        let is_there = |path: &str| root.join(path).exists();
        if is_there("etc/chrony/sources.d") {
            return Some(Self::Chrony);
        }
        let timesyncd = ["usr/lib/systemd/systemd-timesyncd", "lib/systemd/systemd-timesyncd"];
        timesyncd.into_iter().any(is_there).then_some(Self::Timesyncd)
    }
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Chrony => "chrony",
            Self::Timesyncd => "systemd-timesyncd",
        }
    }
    /// The path of the file in which the program finds the servers of an instance.
    fn file(self, root: &Path, instance: &str) -> PathBuf {
        match self {
            Self::Chrony => root.join(format!("etc/chrony/sources.d/lanyard-{instance}.sources")),
            Self::Timesyncd => root.join(format!("run/systemd/timesyncd.conf.d/lanyard-{instance}.conf")),
        }
    }
    /// The text of the file.
    fn text(self, servers: &[NtpServer]) -> String {
        let line = |server: &NtpServer| {
            let options = [(server.iburst, " iburst"), (server.prefer, " prefer")];
            let options: String = options.into_iter().filter(|(on, _)| *on).map(|(_, word)| word).collect();
            format!("server {}{options}\n", server.host)
        };
        match self {
            Self::Chrony => servers.iter().map(line).collect(),
            Self::Timesyncd => {
                // systemd-timesyncd uses the servers in this order: the preferred ones first.
                let (first, rest): (Vec<_>, Vec<_>) = servers.iter().partition(|server| server.prefer);
                let hosts: Vec<&str> = first.into_iter().chain(rest).map(|s| s.host.as_str()).collect();
                format!("[Time]\nNTP={}\n", hosts.join(" "))
            }
        }
    }
    /// The command by which it reads its files again.
    const fn reload(self) -> &'static [&'static str] {
        match self {
            Self::Chrony => &["chronyc", "reload", "sources"],
            Self::Timesyncd => &["systemctl", "try-restart", "systemd-timesyncd.service"],
        }
    }
}

/// Why a program has not got the servers.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("neither chrony nor systemd-timesyncd is installed: nothing sets the clock by `ntp server`")]
    NoProgram,
    #[error("{}: {cause}", path.display())]
    File {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("{program} has not read its new servers: {command}: {cause}")]
    Reload {
        program: &'static str,
        command: String,
        #[source]
        cause: ProgramError,
    },
}

/// The servers that a program was given.
#[derive(Debug, Default)]
pub(crate) struct TimeServers {
    /// The servers for which a thread was last started.
    given: Vec<NtpServer>,
    looked: bool,
    work: Option<Receiver<Result<Option<Program>, Failure>>>,
    look_ms: u64,
}

impl Module for TimeServers {
    type Event<'a> = ();
    fn configure(&mut self, ctx: &mut Context) {
        let wanted = &ctx.switch.config().appliance.ntp_servers;
        let is_first = !std::mem::replace(&mut self.looked, true);
        let instance = ctx.paths.instance();
        // A daemon that was started again finds the file of the one before.
        let is_left = || {
            let is_at = |root: &str, program: Program| program.file(Path::new(root), &instance).exists();
            let programs = [Program::Chrony, Program::Timesyncd];
            ROOTS.iter().any(|root| programs.iter().any(|program| is_at(root, *program)))
        };
        if *wanted == self.given && !(is_first && is_left()) {
            return;
        }
        if self.work.is_some() {
            // There is one thread at a time: `tick` calls this function again when it has ended.
            return;
        }
        self.given.clone_from(wanted);
        let servers = wanted.clone();
        let (sender, receiver) = channel();
        let run = move || drop(sender.send(give_in_init(&instance, &servers)));
        let thread = os::ordinary(|| std::thread::Builder::new().name("lanyard-ntp".into()).spawn(run));
        match thread {
            Ok(_) => {
                self.work = Some(receiver);
                self.look_ms = ctx.clock.now_ms() + LOOK_MS;
            }
            Err(error) => ctx.log("NTP", 4, "SERVERS", &format!("ntp server: {error}")),
        }
    }
    fn handle(&mut self, _ctx: &mut Context, (): ()) -> usize {
        0
    }
    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        self.work.as_ref().map(|_| self.look_ms)
    }
    fn tick(&mut self, ctx: &mut Context) {
        let Some(work) = &self.work else { return };
        self.look_ms = ctx.clock.now_ms() + LOOK_MS;
        let result = match work.try_recv() {
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => Ok(None),
            Ok(result) => result,
        };
        self.work = None;
        match result {
            Ok(Some(program)) => {
                let hosts: Vec<&str> = self.given.iter().map(|server| server.host.as_str()).collect();
                let hosts = if hosts.is_empty() { "none".into() } else { hosts.join(", ") };
                ctx.log("NTP", 6, "SERVERS", &format!("time servers of {}: {hosts}", program.name()));
            }
            Ok(None) => {}
            Err(failure) => ctx.log("NTP", 4, "SERVERS", &failure.to_string()),
        }
        // The configuration may have changed meanwhile.
        self.configure(ctx);
    }
}

impl TimeServers {
    /// Takes the servers away again, and waits for it.
    pub(crate) fn end(&mut self, ctx: &mut Context) {
        if let Some(work) = self.work.take() {
            let _ = work.recv_timeout(2 * PATIENCE);
        }
        if std::mem::take(&mut self.given).is_empty() {
            return;
        }
        let instance = ctx.paths.instance();
        if let Err(failure) = os::ordinary(|| give_in_init(&instance, &[])) {
            ctx.log("NTP", 4, "SERVERS", &failure.to_string());
        }
    }
}

/// [`give`] in PID 1's mount namespace, or in this one where that cannot be entered, as in some containers.
fn give_in_init(instance: &str, servers: &[NtpServer]) -> Result<Option<Program>, Failure> {
    let root = Path::new("/");
    let mut result = None;
    // Only entering the namespace can fail; the work returns its result in `result`.
    let _ = lanyard_netdev::in_init_mounts(|| {
        result = Some(give(root, instance, servers));
        Ok(())
    });
    result.unwrap_or_else(|| give(root, instance, servers))
}

/// Writes the file of the program that is installed below `root`, or removes it without servers, and makes the program read it.
/// Returns `None` when nothing has changed.
fn give(root: &Path, instance: &str, servers: &[NtpServer]) -> Result<Option<Program>, Failure> {
    let Some(program) = Program::find(root) else {
        return if servers.is_empty() { Ok(None) } else { Err(Failure::NoProgram) };
    };
    let path = program.file(root, instance);
    let at = |cause| Failure::File { path: path.clone(), cause };
    let held = fs::read_to_string(&path).ok();
    if servers.is_empty() {
        if held.is_none() {
            return Ok(None);
        }
        fs::remove_file(&path).map_err(at)?;
    } else {
        let text = program.text(servers);
        if held.as_ref() == Some(&text) {
            return Ok(None);
        }
        write(&path, &text).map_err(at)?;
    }
    reload(program).map(|()| Some(program))
}

/// Replaces a file that every user may read: the programs do not run as root.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    }
    // The programs read files by their suffix, so they ignore this one.
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&new)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// Makes a program read its files. chrony accepts this command only over its Unix socket, to which the systemd unit of the
/// package has no right (CAP_DAC_OVERRIDE); then systemd restarts chrony's service, if it is active.
fn reload(program: Program) -> Result<(), Failure> {
    let words = program.reload();
    let failed = |cause| Failure::Reload { program: program.name(), command: words.join(" "), cause };
    let result = run(words, PATIENCE);
    if result.is_err() && program == Program::Chrony {
        let restart = || {
            run(&["systemctl", "is-active", "--quiet", "chrony.service"], PATIENCE)?;
            run(&["systemctl", "try-restart", "chrony.service"], PATIENCE)
        };
        return restart().or(result).map_err(failed);
    }
    result.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> Vec<NtpServer> {
        let server = |host: &str, prefer, iburst| NtpServer { host: host.into(), prefer, iburst };
        vec![server("192.0.2.1", false, true), server("time.example", true, false)]
    }

    #[test]
    fn the_texts_of_both_programs() {
        assert_eq!(Program::Chrony.text(&servers()), "server 192.0.2.1 iburst\nserver time.example prefer\n");
        assert_eq!(Program::Timesyncd.text(&servers()), "[Time]\nNTP=time.example 192.0.2.1\n");
    }

    #[test]
    fn a_machine_without_either() {
        let root = tempfile::tempdir().expect("a directory");
        assert!(matches!(give(root.path(), "x", &servers()), Err(Failure::NoProgram)));
        assert!(matches!(give(root.path(), "x", &[]), Ok(None)));
    }

    #[test]
    fn the_file_comes_and_goes_with_the_servers() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("etc/chrony/sources.d")).expect("made");
        let path = Program::Chrony.file(root.path(), "x");
        // Whether a chronyd of this machine answers does not matter here; the file is written first.
        let _ = give(root.path(), "x", &servers());
        assert_eq!(fs::read_to_string(&path).expect("written"), Program::Chrony.text(&servers()));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o644);
        assert!(matches!(give(root.path(), "x", &servers()), Ok(None)), "unchanged");
        let _ = give(root.path(), "x", &[]);
        assert!(!path.exists());
    }
}
