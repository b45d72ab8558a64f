//! An instance on this machine: its lock, its identity, and the record of its changes to netdevs.
//!
//! Invariant: only the process that holds the [`Lock`] changes the instance's plane and files.

use crate::files::{self, FileError};
use crate::os;
use crate::paths::Paths;
use lanyard_netdev::netns;
use lanyard_switch::facts::Knob;
use lanyard_switch::{Identity, Record};
use lanyard_types::MacAddr;
use nix::fcntl::{Flock, FlockArg};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Longest state file read, in bytes.
const MAX_FILE: usize = 4 << 20;

/// Why the lock cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon holds it.
    #[error("instance {instance} is running already (process {process})")]
    Held {
        /// The instance.
        instance: String,
        /// The process id of the daemon that holds the lock, from the lock file.
        process: String,
    },
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The right to be the instance's daemon. It ends when the value is dropped or the process ends,
/// for whatever reason.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code)] Flock<File>);

impl Lock {
    /// Takes the lock and writes this process's id into it.
    ///
    /// # Errors
    /// When another daemon holds it, with that daemon's process id.
    pub fn take(instance: &str, paths: &Paths) -> Result<Self, LockError> {
        let path = paths.lock();
        let wrong = FileError::at(&path);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        match Flock::lock(file.map_err(&wrong)?, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                file.set_len(0).map_err(&wrong)?;
                writeln!(file, "{}", std::process::id()).map_err(&wrong)?;
                Ok(Self(file))
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                Err(LockError::Held { instance: instance.to_owned(), process: pid.trim().to_owned() })
            }
            Err((_, error)) => Err(wrong(error.into()).into()),
        }
    }
}

/// The identity of the instance. The base address is generated once and kept in the state
/// directory, or in the run directory if there is no state directory.
#[must_use]
pub fn identity(instance: &str, paths: &Paths) -> Identity {
    let read = |path: &Path| files::read_text(path, 64).ok()?.trim().parse::<MacAddr>().ok();
    let (kept, spare) = (paths.base_mac(), paths.run.join("base-mac"));
    let base_mac = read(&kept).or_else(|| read(&spare)).unwrap_or_else(|| {
        let base = Identity::base_from(random());
        let text = format!("{base}\n");
        if files::replace(&kept, text.as_bytes()).is_err() {
            let _ = files::replace(&spare, text.as_bytes());
        }
        base
    });
    Identity { instance: instance.to_owned(), base_mac }
}

fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// The state that an earlier run has left.
#[derive(Debug, Default)]
pub struct Found {
    /// The record of its changes to netdevs; empty if it ran in another namespace.
    pub record: Record,
    /// True if an earlier run has left anything.
    pub any: bool,
    /// The other namespace in which it ran, if any.
    pub elsewhere: Option<Elsewhere>,
}

/// A network namespace other than this one.
#[derive(Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// It exists; the text says how to enter it.
    Alive(String),
    /// It is gone, with everything that was in it.
    Gone,
}

/// Reads the record of an earlier run. If the record cannot be read, the switch runs nevertheless,
/// and takes the present state of the ports for their original one.
#[must_use]
pub fn found(paths: &Paths) -> Found {
    let text = files::read_text(&paths.record(), MAX_FILE).ok();
    let home = files::read_text(&paths.namespace(), 64).ok().and_then(|text| Namespace::parse(&text));
    let here = Namespace::current();
    let elsewhere = match (&home, &here) {
        (Some(home), Some(here)) if home != here => Some(home.find()),
        _ => None,
    };
    let record = text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let record = if elsewhere.is_some() { Record::default() } else { record };
    Found { record, any: text.is_some() || home.is_some(), elsewhere }
}

/// The original values of sysctls that other instances in this namespace have changed, from their
/// records, which outlive their daemons.
#[must_use]
pub fn shared_knobs(paths: &Paths) -> BTreeMap<Knob, bool> {
    let home = |run: &Path| files::read_text(&run.join("netns"), 64).ok();
    let Some(here) = home(&paths.run) else { return BTreeMap::new() };
    let siblings = paths.run.parent().and_then(|root| std::fs::read_dir(root).ok()).into_iter().flatten();
    let runs = siblings.filter_map(Result::ok).map(|entry| entry.path());
    let others = runs.filter(|run| *run != paths.run && home(run).as_ref() == Some(&here));
    let mut knobs = BTreeMap::new();
    for run in others {
        let text = files::read_text(&run.join("record.json"), MAX_FILE).unwrap_or_default();
        let record: Record = serde_json::from_str(&text).unwrap_or_default();
        knobs.extend(Knob::ALL.into_iter().filter_map(|knob| Some((knob, record.knob(knob)?))));
    }
    knobs
}

/// Records the present network namespace as that of the instance.
///
/// # Errors
/// When the file cannot be written.
pub fn settle(paths: &Paths) -> Result<(), FileError> {
    let Some(here) = Namespace::current() else { return Ok(()) };
    let path = paths.namespace();
    let text = format!("{} {}\n", here.cookie, here.inode);
    files::replace(&path, text.as_bytes()).map_err(FileError::at(&path))
}

/// A network namespace: the inode finds it, and the cookie distinguishes it from a later one with
/// the same inode.
#[derive(Debug, PartialEq, Eq)]
struct Namespace {
    cookie: u64,
    inode: u64,
}

impl Namespace {
    /// The calling thread's namespace; `None` before Linux 5.14.
    fn current() -> Option<Self> {
        let inode = std::fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
        Some(Self { cookie: os::netns_cookie()?, inode })
    }
    fn parse(text: &str) -> Option<Self> {
        let (cookie, inode) = text.trim().split_once(' ')?;
        Some(Self { cookie: cookie.parse().ok()?, inode: inode.parse().ok()? })
    }
    /// Searches for this namespace among the named namespaces and those of processes.
    fn find(&self) -> Elsewhere {
        let entries =
            |directory: &str| std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
        let named = entries("/run/netns").map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (entry.path(), format!("ip netns exec {name}"))
        });
        let processes = entries("/proc").filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((entry.path().join("ns/net"), format!("nsenter --net=/proc/{pid}/ns/net")))
        });
        let way = named.chain(processes).find(|(path, _)| self.is_at(path)).map(|(_, way)| way);
        way.map_or(Elsewhere::Gone, Elsewhere::Alive)
    }
    fn is_at(&self, path: &Path) -> bool {
        let same_inode = std::fs::metadata(path).is_ok_and(|meta| meta.ino() == self.inode);
        let cookie = || File::open(path).and_then(|file| netns::run_in(&file, os::netns_cookie));
        // If the namespace cannot be entered, the inode alone has to decide.
        same_inode && cookie().map_or(true, |cookie| cookie == Some(self.cookie))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(dir: &Path) -> Paths {
        let paths = Paths::below(dir);
        for path in [&paths.run, &paths.state] {
            std::fs::create_dir(path).expect("made");
        }
        paths
    }

    #[test]
    fn one_daemon_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path());
        let lock = Lock::take("x", &paths).expect("free");
        let want = format!("instance x is running already (process {})", std::process::id());
        let error = Lock::take("x", &paths).expect_err("held");
        assert!(matches!(error, LockError::Held { .. }) && error.to_string() == want, "{error}");
        drop(lock);
        assert!(Lock::take("x", &paths).is_ok());
    }

    #[test]
    fn the_base_address_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path());
        let first = identity("x", &paths);
        assert_eq!(identity("x", &paths), first);
        assert_eq!(first.base_mac.0[0] & 3, 2, "locally administered, and no group");
        assert_eq!(first.base_mac.to_u64() & 0xfff, 0, "room for VLAN interfaces");
        std::fs::remove_dir_all(&paths.state).expect("removed");
        let second = identity("x", &paths);
        assert_eq!(identity("x", &paths), second, "kept in the run directory then");
    }

    #[test]
    fn a_record_is_of_one_namespace() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path());
        assert!(!found(&paths).any);
        let record = Record { ipv6_forwarding: Some(true), ..Record::default() };
        std::fs::write(paths.record(), serde_json::to_string(&record).expect("JSON")).expect("written");
        settle(&paths).expect("written");
        let here = found(&paths);
        assert_eq!((here.record, here.elsewhere), (record, None));
        std::fs::write(paths.record(), "{broken").expect("written");
        assert_eq!(found(&paths).record, Record::default());
        let Some(namespace) = Namespace::current() else {
            return println!("skipped: this kernel has no SO_NETNS_COOKIE");
        };
        assert_ne!(namespace.find(), Elsewhere::Gone, "this process is in it");
        std::fs::write(paths.namespace(), format!("1 {}\n", namespace.inode)).expect("written");
        let there = found(&paths);
        assert_eq!((there.record, there.any), (Record::default(), true));
        // Only root of the initial user namespace may inspect every process.
        let map = std::fs::read_to_string("/proc/self/uid_map").expect("a map");
        if nix::unistd::geteuid().is_root() && map.split_whitespace().eq(["0", "0", "4294967295"]) {
            assert_eq!(there.elsewhere, Some(Elsewhere::Gone), "the inode was used again");
        }
    }
}
