//! Other programs that work for the switch: started, told of changes, watched, ended, and found again after a restart.
//!
//! Read `lanyard_switch::services` first: which run, and with which configuration, is decided there. pidfd_open(2).
//! Invariants: a process is known by its id and the time it started, so no other is ever signalled; it lives in the
//! namespace of its VRF; like the plane it goes on when the daemon ends, and only `detach` and the configuration end it.

use crate::core::Core;
use crate::files;
use crate::os;
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

/// A program that ends by itself is started again after this long, twice as long each time.
const RETRY_MIN_MS: u64 = 1000;
const RETRY_MAX_MS: u64 = 60_000;
/// Who has run for so long begins with the shortest wait again.
const STEADY_MS: u64 = 60_000;
/// How long `detach` waits for a program to end before it is killed.
const PATIENCE_MS: u16 = 3000;
/// Longest configuration read back, in bytes.
const MAX_TEXT: usize = 16 << 20;

/// A service in a namespace.
type Key = (Service, Option<String>);

/// The programs.
pub(crate) struct Children {
    running: BTreeMap<Key, Child>,
    retry: BTreeMap<Key, Retry>,
    /// Services that are wanted and not installed: said once.
    missing: Vec<Service>,
    epoll: Option<Epoll>,
    adopted: bool,
}

/// One program.
struct Child {
    id: Identity,
    pidfd: OwnedFd,
    /// Its configuration.
    text: String,
    /// It was told to end.
    ending: bool,
    since_ms: u64,
}

/// When to try again.
struct Retry {
    at_ms: u64,
    wait_ms: u64,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    pid: i32,
    /// In clock ticks since the machine started.
    started: u64,
}

/// What is written down for a restart.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    program: String,
    vrf: Option<String>,
    id: Identity,
}

impl Default for Children {
    fn default() -> Self {
        Self {
            running: BTreeMap::new(),
            retry: BTreeMap::new(),
            missing: Vec::new(),
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).ok(),
            adopted: false,
        }
    }
}

impl Children {
    /// Readable when a program has ended.
    pub(crate) fn fd(&self) -> Option<RawFd> {
        self.epoll.as_ref().map(|epoll| epoll.0.as_raw_fd())
    }
    /// When a program is to be started again.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.retry.values().map(|retry| retry.at_ms).min()
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

/// Field 22 of /proc/PID/stat (proc(5)); the second may hold anything, in parentheses.
fn started(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// The program's path: where the superuser has programs is not on everybody's.
fn find(program: &str) -> Option<PathBuf> {
    let paths = std::env::var("PATH").unwrap_or_default();
    let all = paths.split(':').chain(["/usr/sbin", "/usr/local/sbin", "/sbin"]);
    all.map(|folder| PathBuf::from(folder).join(program)).find(|path| path.is_file())
}

fn has_ended(pidfd: &OwnedFd, wait_ms: u16) -> bool {
    let timeout = PollTimeout::from(wait_ms);
    poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], timeout).is_ok_and(|count| count > 0)
}

impl Core {
    fn child_file(&self, (service, vrf): &Key, extension: &str) -> PathBuf {
        let vrf = vrf.as_ref().map_or_else(String::new, |vrf| format!("-{vrf}"));
        self.paths.run.join(format!("{}{vrf}.{extension}", service.program()))
    }
    fn children_note(&self) -> PathBuf {
        self.paths.run.join("children.json")
    }

    /// Brings the programs to what configuration, netdevs and tracked objects now mean.
    pub(crate) fn follow_children(&mut self) {
        self.adopt_children();
        let wanted = services::wanted(self.switch.config(), self.switch.facts(), &self.tracks);
        let idle = self.children.running.is_empty() && self.children.retry.is_empty();
        if wanted.is_empty() && idle {
            self.children.missing.clear();
            return;
        }
        let running: Vec<Key> = self.children.running.keys().cloned().collect();
        for key in running.iter().filter(|key| !wanted.contains_key(*key)) {
            self.end_child(key);
        }
        self.children.retry.retain(|key, _| wanted.contains_key(key));
        let now_ms = self.clock.now_ms();
        for (key, text) in wanted {
            let waits = self.children.retry.get(&key).is_some_and(|retry| retry.at_ms > now_ms);
            match self.children.running.get(&key).map(|child| child.text != text) {
                None if waits => {}
                None => self.start_child(&key, text),
                Some(true) => self.change_child(&key, text),
                Some(false) => {}
            }
        }
        self.forward_virtual();
    }

    /// What a virtual router's netdev gets is forwarded as what its interface gets: the kernel has made it with neither.
    fn forward_virtual(&self) {
        let config = self.switch.config();
        for (name, interface) in &config.interfaces {
            let Some(link) = self.facts().get(&name.to_string()) else { continue };
            for group in interface.layer3.vrrp.keys() {
                let vmac = services::vmac_name(link.ifindex, *group);
                let value = if config.ip_routing { "1" } else { "0" };
                let _ = self.kernel.spaces.run(link.vrf.as_deref(), || {
                    // It may not be there yet.
                    let _ = lanyard_netdev::sysctl::set_ipv4_conf(&vmac, "forwarding", value);
                });
            }
        }
    }

    /// Takes over the programs that an earlier run has left.
    fn adopt_children(&mut self) {
        if std::mem::replace(&mut self.children.adopted, true) {
            return;
        }
        let text = files::read_text(&self.children_note(), MAX_TEXT).unwrap_or_default();
        let notes: Vec<Note> = serde_json::from_str(&text).unwrap_or_default();
        for Note { program, vrf, id } in notes {
            let service = Service::ALL.into_iter().find(|service| service.program() == program);
            let Some(service) = service.filter(|_| started(id.pid) == Some(id.started)) else { continue };
            let key = (service, vrf);
            let text = files::read_text(&self.child_file(&key, "conf"), MAX_TEXT).unwrap_or_default();
            if let Ok(pidfd) = os::pidfd(id.pid) {
                self.children.watch(&pidfd);
                let since_ms = self.clock.now_ms();
                self.children.running.insert(key, Child { id, pidfd, text, ending: false, since_ms });
            }
        }
    }

    fn start_child(&mut self, key: &Key, text: String) {
        let (service, vrf) = key;
        let Some(path) = find(service.program()) else {
            if !self.children.missing.contains(service) {
                self.children.missing.push(*service);
                let text = format!("{} is not installed: {}", service.program(), service.purpose());
                self.notices.push(text.clone());
                self.log("SERVICE", 4, "MISSING", &text);
            }
            return;
        };
        self.children.missing.retain(|missing| missing != service);
        let result = self.spawn_child(key, &path, &text);
        match result {
            Ok((id, pidfd)) => {
                self.children.watch(&pidfd);
                let since_ms = self.clock.now_ms();
                self.children.running.insert(key.clone(), Child { id, pidfd, text, ending: false, since_ms });
                self.note_children();
            }
            Err(reason) => {
                let of = vrf.as_ref().map_or_else(String::new, |vrf| format!(" in VRF {vrf}"));
                self.log("SERVICE", 3, "START", &format!("{}{of}: {reason}", service.program()));
                self.try_again(key.clone(), 0);
            }
        }
    }

    fn spawn_child(&self, key: &Key, program: &PathBuf, text: &str) -> Result<(Identity, OwnedFd), String> {
        let (service, vrf) = key;
        let config = self.child_file(key, "conf");
        files::replace(&config, text.as_bytes()).map_err(|error| format!("{}: {error}", config.display()))?;
        let mut command = Command::new(program);
        match service {
            Service::Radvd => {
                command.args(["-n", "-m", "syslog", "-C"]).arg(&config);
                command.arg("-p").arg(self.child_file(key, "pid"));
            }
            Service::Keepalived => {
                command.args(["-n", "-P", "-f"]).arg(&config);
                command.arg("-p").arg(self.child_file(key, "pid"));
                command.arg("-r").arg(self.child_file(key, "vrrp.pid"));
            }
        }
        // A terminal's signals are for the daemon.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let spawned = self.kernel.spaces.run(vrf.as_deref(), || command.spawn())?;
        let child = spawned.map_err(|error| format!("{}: {error}", program.display()))?;
        let pid = child.id().cast_signed();
        let wrong = |error: std::io::Error| error.to_string();
        let pidfd = os::pidfd(pid).map_err(wrong)?;
        Ok((Identity { pid, started: started(pid).unwrap_or(0) }, pidfd))
    }

    /// Both programs read their configuration again at SIGHUP, and go on where they were.
    fn change_child(&mut self, key: &Key, text: String) {
        let config = self.child_file(key, "conf");
        let Some(child) = self.children.running.get_mut(key).filter(|child| !child.ending) else { return };
        match files::replace(&config, text.as_bytes()) {
            Ok(()) => {
                child.text = text;
                let _ = kill(Pid::from_raw(child.id.pid), Signal::SIGHUP);
            }
            Err(error) => self.log("SERVICE", 3, "CONFIG", &format!("{}: {error}", config.display())),
        }
    }

    fn end_child(&mut self, key: &Key) {
        if let Some(child) = self.children.running.get_mut(key).filter(|child| !child.ending) {
            child.ending = true;
            if !has_ended(&child.pidfd, 0) {
                let _ = kill(Pid::from_raw(child.id.pid), Signal::SIGTERM);
            }
        }
    }

    /// Takes notice of programs that have ended; answers how many.
    pub fn child_events(&mut self) -> usize {
        let ended = |(key, child): (&Key, &Child)| has_ended(&child.pidfd, 0).then(|| key.clone());
        let ended: Vec<Key> = self.children.running.iter().filter_map(ended).collect();
        for key in &ended {
            let Some(child) = self.children.running.remove(key) else { continue };
            // One that was adopted is somebody else's to wait for.
            let _ = waitpid(Pid::from_raw(child.id.pid), Some(WaitPidFlag::WNOHANG));
            self.forget_child(key);
            if !child.ending {
                let steady_ms = self.clock.now_ms().saturating_sub(child.since_ms);
                let of = key.1.as_ref().map_or_else(String::new, |vrf| format!(" in VRF {vrf}"));
                self.log("SERVICE", 3, "ENDED", &format!("{}{of} has ended by itself", key.0.program()));
                self.try_again(key.clone(), steady_ms);
            }
        }
        if !ended.is_empty() {
            self.note_children();
            // What was to end may be wanted again by now.
            self.follow_children();
        }
        ended.len()
    }

    fn try_again(&mut self, key: Key, steady_ms: u64) {
        let before = self.children.retry.get(&key).filter(|_| steady_ms < STEADY_MS);
        let wait_ms = before.map_or(RETRY_MIN_MS, |retry| (retry.wait_ms * 2).min(RETRY_MAX_MS));
        let at_ms = self.clock.now_ms() + wait_ms;
        self.children.retry.insert(key, Retry { at_ms, wait_ms });
    }

    /// Starts again what has ended, when it is time.
    pub(crate) fn children_tick(&mut self) {
        let now_ms = self.clock.now_ms();
        if self.children.next_ms().is_some_and(|at_ms| at_ms <= now_ms) {
            self.follow_children();
            // Those that run are kept for how long they had to wait; they need no more looking after.
            for (key, retry) in &mut self.children.retry {
                if self.children.running.contains_key(key) {
                    retry.at_ms = u64::MAX;
                }
            }
        }
    }

    fn forget_child(&self, key: &Key) {
        for extension in ["conf", "pid", "vrrp.pid"] {
            let _ = std::fs::remove_file(self.child_file(key, extension));
        }
    }

    /// Writes down what runs, for a restart.
    fn note_children(&mut self) {
        let note = |((service, vrf), child): (&Key, &Child)| Note {
            program: service.program().to_owned(),
            vrf: vrf.clone(),
            id: child.id.clone(),
        };
        let notes: Vec<Note> = self.children.running.iter().map(note).collect();
        let path = self.children_note();
        let result = match notes.is_empty() {
            true => std::fs::remove_file(&path).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
            false => files::replace(&path, &serde_json::to_vec(&notes).unwrap_or_default()),
        };
        if let Err(error) = result {
            self.log("SERVICE", 3, "RECORD", &format!("{}: {error}", path.display()));
        }
    }

    /// Ends every program and waits for that.
    pub(crate) fn end_children(&mut self) {
        self.adopt_children();
        let keys: Vec<Key> = self.children.running.keys().cloned().collect();
        keys.iter().for_each(|key| self.end_child(key));
        for key in keys {
            let Some(child) = self.children.running.remove(&key) else { continue };
            if !has_ended(&child.pidfd, PATIENCE_MS) {
                let _ = kill(Pid::from_raw(child.id.pid), Signal::SIGKILL);
                has_ended(&child.pidfd, PATIENCE_MS);
            }
            let _ = waitpid(Pid::from_raw(child.id.pid), Some(WaitPidFlag::WNOHANG));
            self.forget_child(&key);
        }
        self.children.retry.clear();
        self.note_children();
    }
}
