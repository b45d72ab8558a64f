//! Network namespaces: named ones, kept as iproute2 keeps them (`ip netns`), and threads inside one.
//!
//! Read ip-netns(8) and setns(2) first. Invariants: only a fresh thread ever changes its namespace, so no
//! caller finds itself in another one afterwards; a name is one component of a path.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

/// Where iproute2 keeps the named ones.
const DIRECTORY: &str = "/run/netns";
/// The calling thread's own.
const OWN: &str = "/proc/thread-self/ns/net";
/// No path, no type, no data for mount(2).
const NOTHING: Option<&str> = None;

fn path(name: &str) -> io::Result<PathBuf> {
    let bad =
        name.is_empty() || name == "." || name == ".." || name.len() > 255 || name.contains(['/', '\0']);
    if bad {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} names no namespace")));
    }
    Ok(Path::new(DIRECTORY).join(name))
}

/// Makes the directory, and a shared mount of it so that namespaces of other mount namespaces see what is
/// added later: what `ip netns add` does.
fn prepare() -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(DIRECTORY)?;
    let share = || mount(NOTHING, DIRECTORY, NOTHING, MsFlags::MS_SHARED | MsFlags::MS_REC, NOTHING);
    if share() == Err(nix::errno::Errno::EINVAL) {
        // Not a mount point yet.
        mount(Some(DIRECTORY), DIRECTORY, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REC, NOTHING)?;
        share()?;
    }
    Ok(())
}

/// Makes the namespace `name`, as `ip netns add` does. Its loopback is down.
///
/// # Errors
/// `AlreadyExists`; no permission.
pub fn create(name: &str) -> io::Result<()> {
    let path = path(name)?;
    prepare()?;
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o000).open(&path)?;
    let made = in_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        mount(Some(OWN), &path, NOTHING, MsFlags::MS_BIND, NOTHING)
    });
    let made = made.and_then(|result| result.map_err(io::Error::from));
    if made.is_err() {
        // The name was ours a moment ago and leads nowhere.
        let _ = fs::remove_file(&path);
    }
    made
}

/// Deletes the namespace `name`, as `ip netns del` does: it goes when nothing uses it any more.
///
/// # Errors
/// `NotFound`; no permission.
pub fn delete(name: &str) -> io::Result<()> {
    let path = path(name)?;
    match umount2(&path, MntFlags::MNT_DETACH) {
        // EINVAL: a name that a failed creation left behind.
        Ok(()) | Err(nix::errno::Errno::EINVAL) => fs::remove_file(&path),
        Err(e) => Err(e.into()),
    }
}

/// The names there are, sorted.
///
/// # Errors
/// When the directory cannot be read; that it does not exist is no error.
pub fn list() -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(DIRECTORY) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Opens the namespace `name`.
///
/// # Errors
/// `NotFound`; no permission.
pub fn open(name: &str) -> io::Result<File> {
    File::open(path(name)?)
}

/// Opens the calling thread's namespace.
///
/// # Errors
/// When /proc is not there.
pub fn current() -> io::Result<File> {
    File::open(OWN)
}

/// Opens the namespace of the process `pid`.
///
/// # Errors
/// `NotFound`; no permission.
pub fn of_process(pid: u32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/ns/net"))
}

/// Runs `f` on a fresh thread inside `ns` and waits for it. A panic in `f` goes on in the caller.
///
/// # Errors
/// When the namespace cannot be entered; `f` has then not run.
pub fn run_in<T: Send>(ns: &File, f: impl FnOnce() -> T + Send) -> io::Result<T> {
    in_thread(|| {
        setns(ns, CloneFlags::CLONE_NEWNET)?;
        Ok(f())
    })?
}

/// Runs `f` on a fresh thread inside a new namespace without a name, which goes with the last thread, socket
/// or open file that holds it. A panic in `f` goes on in the caller.
///
/// # Errors
/// When no namespace can be made; `f` has then not run.
pub fn run_in_new<T: Send>(f: impl FnOnce() -> T + Send) -> io::Result<T> {
    in_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        Ok(f())
    })?
}

fn in_thread<T: Send>(f: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let handle = thread::Builder::new().name("netns".into()).spawn_scoped(scope, f)?;
        Ok(handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
