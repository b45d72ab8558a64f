//! Other programs that work for the switch (keepalived, radvd): they are started, get their configuration, are watched
//! and ended, and are found again after a restart.
//!
//! Read `lanyard_switch::services` first, which decides which programs run, and with which configuration;
//! pidfd_open(2). Invariants: a process is identified by its id and its start time, so no other process is ever
//! signalled. It runs in the namespace of its VRF. Like the plane it continues when the daemon ends; only `detach` and
//! the configuration end it.

use crate::context::{Context, Module};
use crate::files;
use crate::kernel::{KernelError, within};
use crate::os;
use crate::paths::Paths;
use lanyard_switch::services::{self, Service};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A program that ends by itself is started again after this time; the time doubles with each
/// failure.
const RETRY_MIN_MS: u64 = 1000;
const RETRY_MAX_MS: u64 = 60_000;
/// After a program has run for this time, the wait starts at the minimum again.
const STEADY_MS: u64 = 60_000;
/// How long `detach` waits for a program to end before it kills it.
const PATIENCE_MS: u16 = 3000;
/// Longest configuration read back, in bytes.
const MAX_TEXT: usize = 16 << 20;

/// A service in a namespace.
type Key = (Service, Option<String>);

/// The programs that run.
pub(crate) struct Children {
    running: BTreeMap<Key, Child>,
    retry: BTreeMap<Key, Retry>,
    /// Services that are wanted but not installed; each is reported once.
    missing: Vec<Service>,
    /// Directories in which programs are searched.
    folders: Vec<PathBuf>,
    epoll: Option<Epoll>,
    adopted: bool,
}

/// The reason why a program was not started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{}: {cause}", path.display())]
    File {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error(transparent)]
    Namespace(#[from] KernelError),
    #[error("watching process {pid}: {cause}")]
    Watch {
        pid: i32,
        #[source]
        cause: std::io::Error,
    },
}

/// A running program.
struct Child {
    id: Identity,
    pidfd: OwnedFd,
    /// Its configuration.
    text: String,
    /// True after it was asked to end.
    ending: bool,
    since_ms: u64,
}

/// A start that is to be tried again.
struct Retry {
    at_ms: u64,
    wait_ms: u64,
}

/// The identity of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    pid: i32,
    /// The start time, in clock ticks since the machine was started.
    started: u64,
}

/// The data that is saved for a restart of the daemon.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    program: String,
    vrf: Option<String>,
    id: Identity,
}

impl Default for Children {
    /// Programs are searched in `PATH` and in the directories for system programs, which not every
    /// `PATH` contains.
    fn default() -> Self {
        let path = std::env::var("PATH").unwrap_or_default();
        let folders = path.split(':').chain(["/usr/sbin", "/usr/local/sbin", "/sbin"]).map(PathBuf::from);
        Self::with_programs_in(folders.collect())
    }
}

impl Children {
    /// The process numbers of the running programs.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.running.values().filter_map(|child| u32::try_from(child.id.pid).ok()).collect()
    }
    pub(crate) fn with_programs_in(folders: Vec<PathBuf>) -> Self {
        Self {
            running: BTreeMap::new(),
            retry: BTreeMap::new(),
            missing: Vec::new(),
            folders,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).ok(),
            adopted: false,
        }
    }
    /// Becomes readable when a program has ended.
    pub(crate) fn fd(&self) -> Option<RawFd> {
        self.epoll.as_ref().map(|epoll| epoll.0.as_raw_fd())
    }
    /// True while a service runs in a namespace.
    pub(crate) fn runs(&self, service: Service, vrf: Option<&str>) -> bool {
        self.running.get(&(service, vrf.map(str::to_owned))).is_some_and(|child| !child.ending)
    }
    fn watch(&self, pidfd: &OwnedFd) {
        if let Some(epoll) = &self.epoll {
            let _ = epoll.add(pidfd, EpollEvent::new(EpollFlags::EPOLLIN, 0));
        }
    }
}

/// Reads a field of /proc/PID/stat, counted from 1 as in proc(5), beginning with the third: the second may contain any
/// text, in parentheses.
fn stat(pid: i32, field: usize) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(field.checked_sub(3)?)?.parse().ok()
}

fn started(pid: i32) -> Option<u64> {
    stat(pid, 22)
}

/// The processes that a program has forked: the other members of its process group. radvd keeps one for its privileges,
/// which ends only after it has noticed the end of its parent.
fn forked_by(leader: i32) -> Vec<OwnedFd> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let members = pids.filter(|pid| *pid != leader && stat(*pid, 5) == u64::try_from(leader).ok());
    members.filter_map(|pid| os::pidfd(pid).ok()).collect()
}

fn has_ended(pidfd: &OwnedFd, wait_ms: u16) -> bool {
    let timeout = PollTimeout::from(wait_ms);
    poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], timeout).is_ok_and(|count| count > 0)
}

impl Module for Children {
    /// The descriptor is readable, because programs may have ended.
    type Event<'a> = ();
    fn configure(&mut self, ctx: &mut Context) {
        self.adopt(ctx);
        let wanted = services::wanted(ctx.switch.config(), ctx.switch.facts(), &ctx.tracks);
        if wanted.is_empty() && self.running.is_empty() && self.retry.is_empty() {
            self.missing.clear();
            return;
        }
        let running: Vec<Key> = self.running.keys().cloned().collect();
        for key in running.iter().filter(|key| !wanted.contains_key(*key)) {
            self.end(key);
        }
        self.retry.retain(|key, _| wanted.contains_key(key));
        let now_ms = ctx.clock.now_ms();
        for (key, text) in wanted {
            let waits = self.retry.get(&key).is_some_and(|retry| retry.at_ms > now_ms);
            match self.running.get(&key).map(|child| child.text != text) {
                None if waits => {}
                None => self.start(ctx, &key, text),
                Some(true) => self.change(ctx, &key, text),
                Some(false) => {}
            }
        }
        forward_virtual(ctx);
    }
    fn handle(&mut self, ctx: &mut Context, (): ()) -> usize {
        self.reap(ctx)
    }
    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        self.retry.values().map(|retry| retry.at_ms).filter(|at_ms| *at_ms != u64::MAX).min()
    }
    /// Starts programs that have ended again, when their wait is over.
    fn tick(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        if self.next_ms(ctx).is_some_and(|at_ms| at_ms <= now_ms) {
            self.configure(ctx);
            // A running program's entry only remembers how long the last wait was.
            for (key, retry) in &mut self.retry {
                if self.running.contains_key(key) {
                    retry.at_ms = u64::MAX;
                }
            }
        }
    }
}

fn child_file(paths: &Paths, (service, vrf): &Key, extension: &str) -> PathBuf {
    let vrf = vrf.as_ref().map_or_else(String::new, |vrf| format!("-{vrf}"));
    paths.run.join(format!("{}{vrf}.{extension}", service.program()))
}

fn note_file(paths: &Paths) -> PathBuf {
    paths.run.join("children.json")
}

/// Sets forwarding on a virtual router's netdev as on its interface: the kernel creates it with
/// forwarding off.
fn forward_virtual(ctx: &Context) {
    let config = ctx.switch.config();
    for (name, interface) in &config.interfaces {
        let Some(link) = ctx.facts().get(&name.to_string()) else { continue };
        for group in interface.layer3.vrrp.keys() {
            let vmac = services::vmac_name(link.ifindex, *group);
            let value = if config.ip_routing { "1" } else { "0" };
            let _ = within(&*ctx.kernel, link.vrf.as_deref(), || {
                // The netdev may not exist yet.
                let _ = os::ordinary(|| lanyard_netdev::sysctl::set_ipv4_conf(&vmac, "forwarding", value));
            });
        }
    }
}

impl Children {
    /// Takes over the programs that an earlier run has left.
    fn adopt(&mut self, ctx: &Context) {
        if std::mem::replace(&mut self.adopted, true) {
            return;
        }
        let text = files::read_text(&note_file(&ctx.paths), MAX_TEXT).unwrap_or_default();
        let notes: Vec<Note> = serde_json::from_str(&text).unwrap_or_default();
        for Note { program, vrf, id } in notes {
            let service = Service::ALL.into_iter().find(|service| service.program() == program);
            let Some(service) = service.filter(|_| started(id.pid) == Some(id.started)) else { continue };
            let key = (service, vrf);
            let text = files::read_text(&child_file(&ctx.paths, &key, "conf"), MAX_TEXT).unwrap_or_default();
            if let Ok(pidfd) = os::pidfd(id.pid) {
                self.watch(&pidfd);
                let since_ms = ctx.clock.now_ms();
                self.running.insert(key, Child { id, pidfd, text, ending: false, since_ms });
            }
        }
    }

    fn start(&mut self, ctx: &mut Context, key: &Key, text: String) {
        let (service, vrf) = key;
        let found =
            self.folders.iter().map(|folder| folder.join(service.program())).find(|path| path.is_file());
        let Some(path) = found else {
            if !self.missing.contains(service) {
                self.missing.push(*service);
                let text = format!("{} is not installed: {}", service.program(), service.purpose());
                ctx.notices.push(text.clone());
                ctx.log("SERVICE", 4, "MISSING", &text);
            }
            return;
        };
        self.missing.retain(|missing| missing != service);
        let result = Self::spawn(ctx, key, &path, &text);
        match result {
            Ok((id, pidfd)) => {
                self.watch(&pidfd);
                let since_ms = ctx.clock.now_ms();
                self.running.insert(key.clone(), Child { id, pidfd, text, ending: false, since_ms });
                self.note(ctx);
            }
            Err(reason) => {
                let of = vrf.as_ref().map_or_else(String::new, |vrf| format!(" in VRF {vrf}"));
                ctx.log("SERVICE", 3, "START", &format!("{}{of}: {reason}", service.program()));
                self.try_again(ctx, key.clone(), 0);
            }
        }
    }

    fn spawn(
        ctx: &Context,
        key: &Key,
        program: &PathBuf,
        text: &str,
    ) -> Result<(Identity, OwnedFd), StartError> {
        let (service, vrf) = key;
        let config = child_file(&ctx.paths, key, "conf");
        let wrong = |path: &PathBuf, cause| StartError::File { path: path.clone(), cause };
        files::replace(&config, text.as_bytes()).map_err(|cause| wrong(&config, cause))?;
        let mut command = Command::new(program);
        match service {
            Service::Radvd => {
                command.args(["-n", "-m", "syslog", "-C"]).arg(&config);
                command.arg("-p").arg(child_file(&ctx.paths, key, "pid"));
            }
            Service::Keepalived => {
                command.args(["-n", "-P", "-f"]).arg(&config);
                command.arg("-p").arg(child_file(&ctx.paths, key, "pid"));
                command.arg("-r").arg(child_file(&ctx.paths, key, "vrrp.pid"));
            }
        }
        // In a process group of its own it receives no signals of the terminal.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let spawned = within(&*ctx.kernel, vrf.as_deref(), || command.spawn())?;
        let child = spawned.map_err(|cause| wrong(program, cause))?;
        let pid = child.id().cast_signed();
        let pidfd = os::pidfd(pid).map_err(|cause| StartError::Watch { pid, cause })?;
        Ok((Identity { pid, started: started(pid).unwrap_or(0) }, pidfd))
    }

    /// Both programs reread their configuration at SIGHUP and keep their state.
    fn change(&mut self, ctx: &mut Context, key: &Key, text: String) {
        let config = child_file(&ctx.paths, key, "conf");
        let Some(child) = self.running.get_mut(key).filter(|child| !child.ending) else { return };
        match files::replace(&config, text.as_bytes()) {
            Ok(()) => {
                child.text = text;
                let _ = kill(Pid::from_raw(child.id.pid), Signal::SIGHUP);
            }
            Err(error) => ctx.log("SERVICE", 3, "CONFIG", &format!("{}: {error}", config.display())),
        }
    }

    fn end(&mut self, key: &Key) {
        if let Some(child) = self.running.get_mut(key).filter(|child| !child.ending) {
            child.ending = true;
            if !has_ended(&child.pidfd, 0) {
                let _ = kill(Pid::from_raw(child.id.pid), Signal::SIGTERM);
            }
        }
    }

    /// Handles programs that have ended; returns how many have.
    fn reap(&mut self, ctx: &mut Context) -> usize {
        let ended = |(key, child): (&Key, &Child)| has_ended(&child.pidfd, 0).then(|| key.clone());
        let ended: Vec<Key> = self.running.iter().filter_map(ended).collect();
        for key in &ended {
            let Some(child) = self.running.remove(key) else { continue };
            // An adopted program is not a child of this process, so waiting for it fails.
            let _ = waitpid(Pid::from_raw(child.id.pid), Some(WaitPidFlag::WNOHANG));
            Self::forget(ctx, key);
            if !child.ending {
                let steady_ms = ctx.clock.now_ms().saturating_sub(child.since_ms);
                let of = key.1.as_ref().map_or_else(String::new, |vrf| format!(" in VRF {vrf}"));
                ctx.log("SERVICE", 3, "ENDED", &format!("{}{of} has ended by itself", key.0.program()));
                self.try_again(ctx, key.clone(), steady_ms);
            }
        }
        if !ended.is_empty() {
            self.note(ctx);
            // A program that was asked to end may be wanted again by now.
            self.configure(ctx);
        }
        ended.len()
    }

    fn try_again(&mut self, ctx: &Context, key: Key, steady_ms: u64) {
        let before = self.retry.get(&key).filter(|_| steady_ms < STEADY_MS);
        let wait_ms = before.map_or(RETRY_MIN_MS, |retry| (retry.wait_ms * 2).min(RETRY_MAX_MS));
        let at_ms = ctx.clock.now_ms() + wait_ms;
        self.retry.insert(key, Retry { at_ms, wait_ms });
    }

    fn forget(ctx: &Context, key: &Key) {
        for extension in ["conf", "pid", "vrrp.pid"] {
            let _ = std::fs::remove_file(child_file(&ctx.paths, key, extension));
        }
    }

    /// Saves the list of running programs for a restart.
    fn note(&self, ctx: &mut Context) {
        let note = |((service, vrf), child): (&Key, &Child)| Note {
            program: service.program().to_owned(),
            vrf: vrf.clone(),
            id: child.id.clone(),
        };
        let notes: Vec<Note> = self.running.iter().map(note).collect();
        let path = note_file(&ctx.paths);
        let result = match notes.is_empty() {
            true => std::fs::remove_file(&path).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
            false => files::replace(&path, &serde_json::to_vec(&notes).unwrap_or_default()),
        };
        if let Err(error) = result {
            ctx.log("SERVICE", 3, "RECORD", &format!("{}: {error}", path.display()));
        }
    }

    /// Ends every program and waits until it has ended.
    pub(crate) fn end_all(&mut self, ctx: &mut Context) {
        self.adopt(ctx);
        let forked: Vec<OwnedFd> = self.running.values().flat_map(|child| forked_by(child.id.pid)).collect();
        let keys: Vec<Key> = self.running.keys().cloned().collect();
        keys.iter().for_each(|key| self.end(key));
        for key in keys {
            let Some(child) = self.running.remove(&key) else { continue };
            if !has_ended(&child.pidfd, PATIENCE_MS) {
                let _ = kill(Pid::from_raw(child.id.pid), Signal::SIGKILL);
                has_ended(&child.pidfd, PATIENCE_MS);
            }
            let _ = waitpid(Pid::from_raw(child.id.pid), Some(WaitPidFlag::WNOHANG));
            Self::forget(ctx, &key);
        }
        for pidfd in &forked {
            if !has_ended(pidfd, PATIENCE_MS) {
                // It may end by itself meanwhile.
                let _ = os::kill(pidfd);
                has_ended(pidfd, PATIENCE_MS);
            }
        }
        self.retry.clear();
        self.note(ctx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, accept, config, messages};
    use std::os::unix::fs::PermissionsExt;

    const TEXT: &str = "ipv6 unicast-routing\ninterface eth1\n no switchport\n ipv6 address 2001:db8::1/64";

    /// A world that needs router advertisements, and a directory in which `radvd` is this script.
    fn world(script: &str) -> (World, tempfile::TempDir) {
        let mut world = World::new();
        world.kernel.add("eth1");
        world.ctx.refresh();
        accept(&mut world.ctx, config(TEXT));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("radvd");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("made a program");
        (world, folder)
    }
    fn children(folder: &tempfile::TempDir) -> Children {
        Children::with_programs_in(vec![folder.path().to_owned()])
    }

    #[test]
    fn a_program_runs_on_through_a_restart_until_it_is_not_wanted() {
        let (mut world, folder) = world("trap '' HUP\nexec sleep 600");
        let mut first = children(&folder);
        first.configure(&mut world.ctx);
        assert!(first.runs(Service::Radvd, None));
        let conf = world.ctx.paths.run.join("radvd.conf");
        assert!(std::fs::read_to_string(&conf).expect("written").contains("2001:db8::/64"));
        let pid =
            |children: &Children| children.running.values().map(|child| child.id.pid).collect::<Vec<_>>();
        let pids = pid(&first);
        drop(first);
        let mut second = children(&folder);
        second.configure(&mut world.ctx);
        assert_eq!(pid(&second), pids, "found again");
        accept(&mut world.ctx, config(&TEXT.replace("db8::1", "db8:1::1")));
        second.configure(&mut world.ctx);
        assert_eq!(pid(&second), pids, "notified of its new configuration");
        assert!(std::fs::read_to_string(&conf).expect("written").contains("2001:db8:1::/64"));
        accept(&mut world.ctx, config("hostname sw"));
        second.configure(&mut world.ctx);
        assert!(!second.runs(Service::Radvd, None), "it was asked to end");
        second.end_all(&mut world.ctx);
        assert!(!conf.exists() && !note_file(&world.ctx.paths).exists());
    }

    /// radvd's second process ends some time after the first.
    #[test]
    fn ending_a_program_ends_its_forked_processes_too() {
        let (mut world, folder) = world("sh -c \"trap '' TERM; sleep 0.3\" &\nexec sleep 600");
        let mut children = children(&folder);
        children.configure(&mut world.ctx);
        let leader = children.running.values().next().expect("started").id.pid;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut forked = forked_by(leader);
        while forked.is_empty() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
            forked = forked_by(leader);
        }
        assert!(!forked.is_empty(), "the script has forked");
        children.end_all(&mut world.ctx);
        assert!(forked.iter().all(|pidfd| has_ended(pidfd, 0)));
    }

    #[test]
    fn one_that_ends_by_itself_is_started_again_later_and_later() {
        let (mut world, folder) = world("exit 0");
        let mut children = children(&folder);
        children.configure(&mut world.ctx);
        for wait_ms in [1000, 2000, 4000] {
            let ended = children.running.values().all(|child| has_ended(&child.pidfd, 10_000));
            assert!(ended, "it ends at once");
            assert_eq!(children.handle(&mut world.ctx, ()), 1);
            let now_ms = world.ctx.clock.now_ms();
            assert_eq!(children.next_ms(&world.ctx), Some(now_ms + wait_ms));
            children.tick(&mut world.ctx);
            assert!(children.running.is_empty(), "not due yet");
            world.clock.set(now_ms + wait_ms);
            children.tick(&mut world.ctx);
            assert_eq!(children.running.len(), 1);
        }
        assert!(messages(&world.ctx).contains(&"ENDED: radvd has ended by itself".into()));
        children.end_all(&mut world.ctx);
    }

    #[test]
    fn one_that_is_not_installed_is_reported_once() {
        let (mut world, folder) = world("");
        std::fs::remove_file(folder.path().join("radvd")).expect("removed");
        let mut children = children(&folder);
        children.configure(&mut world.ctx);
        children.configure(&mut world.ctx);
        assert_eq!(messages(&world.ctx).len(), 1);
        assert_eq!(world.ctx.notices, ["radvd is not installed: router advertisements are not sent"]);
    }
}
