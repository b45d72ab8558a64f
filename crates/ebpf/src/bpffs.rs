//! The place of the pins, chosen so that they outlive the daemon however it was started.
//!
//! Read first: mount_namespaces(7), and ip-netns(8) on the effect of `ip netns exec` on /sys. A pin disappears with the
//! mount in which it was made, and `ip netns exec` gives its command a mount namespace of its own and a fresh /sys. The
//! pins are therefore in a bpffs of Lanyard's own in PID 1's mount namespace, which other namespaces reach through
//! /proc/1/root.
//!
//! Invariant: the path that [`locate`] returns is a bpffs at that moment, mounted in PID 1's mount namespace unless its
//! note says otherwise.

use crate::error::{Doing, Result, system};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{FsType, statfs};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The plane's own bpffs, in PID 1's mount namespace.
const OURS: &str = "/run/lanyard/bpf";
/// PID 1's root, seen from another mount namespace.
const INIT_ROOT: &str = "/proc/1/root";
/// The usual bpffs, in case the own one is not available.
const USUAL: &str = "/sys/fs/bpf";
/// linux/magic.h: BPF_FS_MAGIC.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

/// A bpffs, and a note about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The directory that contains one directory for each instance.
    pub root: PathBuf,
    /// A note for the operator if the pins are not in the usual place.
    pub note: Option<String>,
}

/// True for a directory on a bpffs.
pub(crate) fn is_bpffs(path: &Path) -> bool {
    // The magic's type differs between C libraries.
    #[allow(clippy::unnecessary_cast)]
    statfs(path).is_ok_and(|fs| fs.filesystem_type() == FsType(BPF_FS_MAGIC as _))
}

/// Finds or mounts the bpffs for pins.
pub(crate) fn locate() -> Result<Place> {
    let ours =
        if in_init_namespace() { PathBuf::from(OURS) } else { PathBuf::from(format!("{INIT_ROOT}{OURS}")) };
    let why = match ready(&ours) {
        Ok(()) => return Ok(Place { root: ours, note: None }),
        Err(why) => why,
    };
    let usual = Path::new(USUAL);
    if !is_bpffs(usual) {
        mount_bpffs(usual).doing(|| format!("mounting a bpffs at {OURS} ({why}) or at {USUAL}"))?;
    }
    let note = format!(
        "pins are below {USUAL}, because a bpffs at {OURS} cannot be had ({why}): they last as long as that mount, and \
         `ip netns exec` makes one of its own for each command"
    );
    Ok(Place { root: usual.join("lanyard"), note: Some(note) })
}

/// The directories that already contain pins of instances. Mounts nothing.
pub(crate) fn existing() -> Vec<PathBuf> {
    let ours =
        if in_init_namespace() { PathBuf::from(OURS) } else { PathBuf::from(format!("{INIT_ROOT}{OURS}")) };
    [(ours.clone(), ours), (PathBuf::from(USUAL), Path::new(USUAL).join("lanyard"))]
        .into_iter()
        .filter(|(mount, _)| is_bpffs(mount))
        .map(|(_, root)| root)
        .collect()
}

/// True in PID 1's mount namespace, and if that cannot be determined because PID 1 may not be
/// inspected.
fn in_init_namespace() -> bool {
    match (fs::read_link("/proc/self/ns/mnt"), fs::read_link("/proc/1/ns/mnt")) {
        (Ok(own), Ok(init)) => own == init,
        _ => true,
    }
}

/// Makes sure that `path`, which is the path of [`OURS`] in this mount namespace, is a bpffs.
fn ready(path: &Path) -> io::Result<()> {
    if is_bpffs(path) {
        return Ok(());
    }
    if path == Path::new(OURS) {
        return mount_bpffs(path);
    }
    let init = File::open("/proc/1/ns/mnt")?;
    let mounting = std::thread::Builder::new().name("mount".into()).spawn(move || -> io::Result<()> {
        // A thread that shares its root and working directory with others may not change its mount namespace.
        unshare(CloneFlags::CLONE_FS)?;
        setns(init, CloneFlags::CLONE_NEWNS)?;
        mount_bpffs(Path::new(OURS))
    })?;
    mounting.join().unwrap_or_else(|_| Err(io::Error::other("the mounting thread panicked")))?;
    if is_bpffs(path) {
        Ok(())
    } else {
        Err(io::Error::other("it is mounted, but not visible in this mount namespace"))
    }
}

fn mount_bpffs(at: &Path) -> io::Result<()> {
    fs::create_dir_all(at)?;
    if is_bpffs(at) {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("bpf"), at, Some("bpf"), flags, Some("mode=0700"))?;
    Ok(())
}

/// The pins of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pins {
    dir: PathBuf,
}

impl Pins {
    /// The pins of `instance` below `root`.
    pub(crate) fn new(root: &Path, instance: &str) -> Result<Self> {
        if instance.is_empty() || instance.starts_with('.') || instance.contains(['/', '\0']) {
            return Err(system(format!("pinning instance {instance:?}"), "that is no name for a directory"));
        }
        Ok(Self { dir: root.join(instance) })
    }
    /// The instance's directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
    /// A map's pin.
    pub(crate) fn map(&self, name: &str) -> PathBuf {
        self.dir.join("maps").join(name)
    }
    /// A program's pin.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.dir.join("programs").join(name)
    }
    /// A link's pin.
    pub(crate) fn link(&self, name: &str) -> PathBuf {
        self.dir.join("links").join(name)
    }
    /// The names of the pinned links, sorted.
    pub(crate) fn links(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.join("links")).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
    /// Makes the directories.
    pub(crate) fn make(&self) -> io::Result<()> {
        for part in ["maps", "programs", "links"] {
            fs::create_dir_all(self.dir.join(part))?;
        }
        Ok(())
    }
    /// Removes every pin and the directory. Missing ones are no error.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_names_stay_below_the_root() {
        for bad in ["", ".", "..", "a/b", "/etc", ".hidden"] {
            assert!(Pins::new(Path::new("/run"), bad).is_err(), "{bad}");
        }
        let pins = Pins::new(Path::new("/run"), "sw1").expect("a good name");
        assert_eq!(pins.map("fdb"), Path::new("/run/sw1/maps/fdb"));
    }
}
