//! Network namespaces: named ones, kept as iproute2 keeps them (`ip netns`), and threads inside one.
//!
//! Read ip-netns(8) and setns(2) first. Invariants: the calling thread changes its namespace in [`enter`] and [`visit`]
//! only; everything else that has to happen inside a namespace happens on a fresh thread. A name is one component of a
//! path.

use crate::mounts;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{NSFS_MAGIC, statfs};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

/// The directory in which iproute2 keeps named namespaces.
const DIRECTORY: &str = "/run/netns";
/// The calling thread's namespace.
const OWN: &str = "/proc/thread-self/ns/net";
/// The absent path, type and data arguments of mount(2).
const NOTHING: Option<&str> = None;

/// The path of the namespace `name`, whether or not it exists.
///
/// # Errors
/// `InvalidInput` when `name` is not a single component of a path.
pub fn path(name: &str) -> io::Result<PathBuf> {
    let bad =
        name.is_empty() || name == "." || name == ".." || name.len() > 255 || name.contains(['/', '\0']);
    if bad {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} names no namespace")));
    }
    Ok(Path::new(DIRECTORY).join(name))
}

/// Creates the directory, and a shared mount of it, as `ip netns add` does: namespaces added later
/// are then visible in other mount namespaces.
fn prepare() -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(DIRECTORY)?;
    let share = || mount(NOTHING, DIRECTORY, NOTHING, MsFlags::MS_SHARED | MsFlags::MS_REC, NOTHING);
    if share() == Err(nix::errno::Errno::EINVAL) {
        // The directory is not a mount point yet.
        mount(Some(DIRECTORY), DIRECTORY, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REC, NOTHING)?;
        share()?;
    }
    Ok(())
}

/// Creates the namespace `name`, as `ip netns add` does. Its loopback device is down. A process whose mount namespace only
/// receives mounts creates the name in PID 1's, so that the namespace outlives the process and other programs find it.
///
/// # Errors
/// `AlreadyExists`; no permission.
pub fn create(name: &str) -> io::Result<()> {
    let path = path(name)?;
    if mounts::only_receives(&path) {
        match mounts::in_init(|| create_here(&path)) {
            Ok(()) if is_mounted(&path) => return Ok(()),
            // The mount is not visible here, so this process does not receive PID 1's mounts: undo it.
            Ok(()) => mounts::in_init(|| delete_here(&path))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            // PID 1's mount namespace cannot be entered, as in a container of a user without rights.
            Err(_) => {}
        }
    }
    create_here(&path)
}

/// True for a named namespace in this process's mount namespace.
fn is_mounted(path: &Path) -> bool {
    statfs(path).is_ok_and(|fs| fs.filesystem_type() == NSFS_MAGIC)
}

fn create_here(path: &Path) -> io::Result<()> {
    prepare()?;
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o000).open(path)?;
    let made = in_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        mount(Some(OWN), path, NOTHING, MsFlags::MS_BIND, NOTHING)
    });
    let made = made.and_then(|result| result.map_err(io::Error::from));
    if made.is_err() {
        // Remove the file that has just been created for the name.
        let _ = fs::remove_file(path);
    }
    made
}

/// Deletes the namespace `name`, as `ip netns del` does. The namespace exists until nothing uses it
/// any more.
///
/// # Errors
/// `NotFound`; no permission.
pub fn delete(name: &str) -> io::Result<()> {
    let path = path(name)?;
    if mounts::only_receives(&path) && mounts::in_init(|| delete_here(&path)).is_ok() {
        return Ok(());
    }
    delete_here(&path)
}

fn delete_here(path: &Path) -> io::Result<()> {
    match umount2(path, MntFlags::MNT_DETACH) {
        // EINVAL: the file of a creation that failed.
        Ok(()) | Err(nix::errno::Errno::EINVAL) => fs::remove_file(path),
        Err(e) => Err(e.into()),
    }
}

/// The names of all named namespaces, sorted.
///
/// # Errors
/// When the directory cannot be read. A missing directory is no error.
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

/// Makes a namespace without a name. It exists until the last thread, socket or open file that refers to it is gone.
///
/// # Errors
/// No permission.
pub fn unnamed() -> io::Result<File> {
    run_in_new(current)?
}

/// Moves the calling thread into `ns` for good: programs that it starts run inside as well.
///
/// # Errors
/// No permission.
pub fn enter(ns: &File) -> io::Result<()> {
    Ok(setns(ns, CloneFlags::CLONE_NEWNET)?)
}

/// Moves the calling thread into `ns` until the guard is dropped.
///
/// # Errors
/// No permission.
pub fn visit(ns: &File) -> io::Result<Visit> {
    let home = current()?;
    enter(ns)?;
    Ok(Visit { home, _thread: PhantomData })
}

/// While this exists, the thread that called [`visit`] is in another network namespace.
#[derive(Debug)]
pub struct Visit {
    home: File,
    /// The guard must be dropped on the thread that it was made on.
    _thread: PhantomData<*const ()>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Err(why) = enter(&self.home) {
            // In the wrong namespace this thread would change netdevs of other owners.
            eprintln!("lanyard: cannot leave a network namespace: {why}");
            std::process::abort();
        }
    }
}

/// Runs `f` on a fresh thread inside `ns` and waits for it. A panic in `f` continues in the caller.
///
/// # Errors
/// When the namespace cannot be entered; `f` has then not run.
pub fn run_in<T: Send>(ns: &File, f: impl FnOnce() -> T + Send) -> io::Result<T> {
    in_thread(|| {
        enter(ns)?;
        Ok(f())
    })?
}

/// Runs `f` on a fresh thread inside a new unnamed namespace, which exists until the last thread,
/// socket or open file that refers to it is gone. A panic in `f` continues in the caller.
///
/// # Errors
/// When no namespace can be created; `f` has then not run.
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
