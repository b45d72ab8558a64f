//! An instance on this machine: its lock, its identity, what it has done to netdevs so far.
//!
//! Invariant: who holds the [`Lock`] is the only process that changes the instance's plane and files.

use crate::files;
use crate::os;
use crate::paths::Paths;
use lanyard_switch::{Identity, Record};
use lanyard_types::MacAddr;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Longest state file read, in bytes.
const MAX_FILE: usize = 4 << 20;

/// The right to be the instance's daemon; given up when dropped, or when the process ends however it does.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code)] Flock<File>);

impl Lock {
    /// Takes the lock and writes this process's id into it.
    ///
    /// # Errors
    /// When another daemon has it, with its process id.
    pub fn take(instance: &str, paths: &Paths) -> Result<Self, String> {
        let path = paths.lock();
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        match Flock::lock(file.map_err(|error| wrong(&error))?, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                file.set_len(0).map_err(|error| wrong(&error))?;
                writeln!(file, "{}", std::process::id()).map_err(|error| wrong(&error))?;
                Ok(Self(file))
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                Err(format!("instance {instance} is running already (process {})", pid.trim()))
            }
            Err((_, error)) => Err(wrong(&error)),
        }
    }
}

/// Who the instance is. The base address is made once and kept in the state directory; without a state directory
/// it lasts as long as the run directory.
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

/// What an earlier run has done to the netdevs of this namespace.
#[derive(Debug, Default)]
pub struct Found {
    /// Its record; empty when it was about another namespace.
    pub record: Record,
    /// True when there is something of an earlier run.
    pub any: bool,
    /// True when it ran in another namespace than this one.
    pub elsewhere: bool,
}

/// Reads what an earlier run wrote down. A record that can't be read is no reason not to run: the ports are then
/// taken to be as they were found.
#[must_use]
pub fn found(paths: &Paths) -> Found {
    let text = files::read_text(&paths.record(), MAX_FILE).ok();
    let cookie =
        files::read_text(&paths.namespace(), 64).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let here = os::netns_cookie();
    let elsewhere = cookie.is_some() && here.is_some() && cookie != here;
    let record = text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    Found {
        record: if elsewhere { Record::default() } else { record },
        any: text.is_some() || cookie.is_some(),
        elsewhere,
    }
}

/// Writes down that the instance lives in this namespace.
///
/// # Errors
/// When the file can't be written.
pub fn settle(paths: &Paths) -> Result<(), String> {
    let path = paths.namespace();
    let Some(cookie) = os::netns_cookie() else { return Ok(()) };
    files::replace(&path, format!("{cookie}\n").as_bytes())
        .map_err(|error| format!("{}: {error}", path.display()))
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
        assert_eq!(Lock::take("x", &paths).err(), Some(want));
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
        assert_eq!((here.record, here.elsewhere), (record, false));
        if os::netns_cookie().is_none() {
            return println!("skipped: this kernel has no SO_NETNS_COOKIE");
        }
        std::fs::write(paths.namespace(), "1\n").expect("written");
        let there = found(&paths);
        assert_eq!((there.record, there.elsewhere, there.any), (Record::default(), true, true));
        std::fs::write(paths.record(), "{broken").expect("written");
        assert_eq!(found(&paths).record, Record::default());
    }
}
