//! The operations that need `unsafe`: identifying this process's network namespace, duplicating a descriptor
//! that a plane lends, combining descriptors, thread priorities, returning free memory, and reopening standard output and
//! error.

#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The cookie of the process's namespace: unique until the machine restarts, unlike the inode.
/// `None` before Linux 5.14.
#[must_use]
pub fn netns_cookie() -> Option<u64> {
    let socket = std::os::unix::net::UnixDatagram::unbound().ok()?;
    let mut cookie = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the whole call, and the kernel writes at most `len` bytes to `cookie`,
    // which is that long.
    let result = unsafe {
        let value = (&raw mut cookie).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, value, &raw mut len)
    };
    (result == 0 && cookie != 0).then_some(cookie)
}

/// The real-time priority of the management thread: link events must not wait for other processes.
pub const MANAGEMENT: i32 = 1;
/// The real-time priority of protocols: above management.
pub const PROTOCOLS: i32 = 2;

/// Makes the calling thread a real-time thread, with one of the priorities above: sched(7), SCHED_FIFO. It then has
/// priority over all ordinary tasks. Otherwise a hello could be late because other processes compute, and neighbours
/// would take the switch for dead. Nice values are not sufficient: where the kernel groups tasks (autogroup, control
/// groups) they count only within a group.
///
/// Threads and processes that it starts are ordinary ones. The kernel always leaves ordinary tasks a twentieth of each
/// core's time (`sched_rt_runtime_us`).
///
/// # Errors
/// Without CAP_SYS_NICE.
pub fn make_real_time(priority: i32) -> io::Result<()> {
    schedule(libc::SCHED_FIFO, priority)
}

/// Runs work as an ordinary task, also on a real-time thread ([`make_real_time`]): work that may take long, so that it
/// does not delay forwarding, and work that the kernel may repeat. The kernel repeats a write to a sysctl of an
/// interface's addresses or forwarding, and occupies the processor with it, while any other task holds the lock of the
/// network configuration (`rtnl_trylock` and `restart_syscall` in the kernel's addrconf.c and devinet.c). A real-time
/// thread would keep that task, and the RCU threads that it waits for, off the processor.
pub fn ordinary<T>(work: impl FnOnce() -> T) -> T {
    let real_time = fifo_priority();
    if real_time.is_some() {
        let _ = schedule(libc::SCHED_OTHER, 0);
    }
    let result = work();
    if let Some(priority) = real_time {
        // Setting back what was allowed before does not fail.
        let _ = schedule(libc::SCHED_FIFO, priority);
    }
    result
}

/// The priority of the calling thread, if it is a real-time thread.
fn fifo_priority() -> Option<i32> {
    let mut parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter outlives both calls; thread 0 is the calling one.
    let policy = unsafe {
        libc::sched_getparam(0, &raw mut parameter);
        libc::sched_getscheduler(0)
    };
    (policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_FIFO).then_some(parameter.sched_priority)
}

fn schedule(policy: i32, priority: i32) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter outlives the call; thread 0 is the calling one.
    let answer =
        unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const parameter) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives memory that the process has freed back to the kernel. glibc keeps what the threads of a start have freed, in an arena
/// for each thread: megabytes after the programs have been loaded.
pub fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes the allocator's own locks and has no other requirement.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// True while the kernel's clock is synchronized by a program such as chrony: adjtimex(2). False where the service may not make
/// this call (systemd's `ProtectClock`).
#[must_use]
pub fn is_synchronized() -> bool {
    // SAFETY: all zeroes is a valid `timex`, which asks for no change.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    state >= 0 && state != libc::TIME_ERROR
}

/// Runs `make` with a umask under which only this user can use the files that it creates.
pub fn private<T>(make: impl FnOnce() -> T) -> T {
    let before = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o177));
    let made = make();
    nix::sys::stat::umask(before);
    made
}

/// Registers a duplicate of `fd` with the event loop, so that a task can wait for input.
///
/// # Errors
/// When the process has no descriptor left.
pub fn watch(fd: RawFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `fd` is the event descriptor of a plane or of `Events`, whose owner the caller holds, so it is open
    // during this call.
    let own = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
    // SAFETY: an `OwnedFd` stays open, and the same, until the `AsyncFd` that owns it is dropped.
    unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }.map_err(io::Error::from)
}

/// Returns a new descriptor for the open file of `fd`.
///
/// # Errors
/// When `fd` is not open, or the process has no descriptor left.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: `fd` belongs to a plane's part that the caller holds, so it is open during this call.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// Combines many descriptors: readable while one of them is.
#[derive(Debug)]
pub struct Gathered(OwnedFd);

impl Gathered {
    /// An empty set.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointer; its result is an open descriptor that is owned by nobody else.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: see above.
        Ok(Self(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }))
    }
    /// Adds a descriptor; it leaves the set when it is closed. One that is in the set already
    /// stays.
    ///
    /// # Errors
    /// When the kernel has no memory.
    pub fn add(&self, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: `event` is read during the call; a descriptor that is not open is refused.
        let result = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error())
                .or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) }),
        }
    }
}

impl AsRawFd for Gathered {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Joins a socket to a multicast group on an interface, or leaves the group.
///
/// # Errors
/// When the interface does not exist or has no IPv6.
pub fn membership(socket: &OwnedFd, group: std::net::Ipv6Addr, ifindex: u32, join: bool) -> io::Result<()> {
    let request = libc::ipv6_mreq {
        ipv6mr_multiaddr: libc::in6_addr { s6_addr: group.octets() },
        ipv6mr_interface: ifindex,
    };
    let option = if join { libc::IPV6_ADD_MEMBERSHIP } else { libc::IPV6_DROP_MEMBERSHIP };
    let len = std::mem::size_of::<libc::ipv6_mreq>() as libc::socklen_t;
    // SAFETY: the request lives through the call, and `len` is its size.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IPV6, option, (&raw const request).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A descriptor that becomes readable when the process has ended.
///
/// # Errors
/// When there is no such process.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer; its result is a descriptor that is owned by nobody else.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = RawFd::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: see above.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) })
}

/// Kills (SIGKILL) the process of a descriptor that [`pidfd`] returned.
///
/// # Errors
/// When it has ended, or the caller may not signal it.
pub fn kill(pidfd: &OwnedFd) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open as long as the reference lives; the kernel accepts a null pointer for the information.
    let result =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), libc::SIGKILL, no_info, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Standard output or standard error, if it is a regular file, with its name at the start.
#[derive(Debug)]
pub struct Output {
    fd: RawFd,
    path: PathBuf,
    mode: u32,
}

/// Standard output and standard error, if they are regular files.
#[must_use]
pub fn outputs() -> Vec<Output> {
    let output = |fd: RawFd| {
        let link = format!("/proc/self/fd/{fd}");
        let meta = std::fs::metadata(&link).ok().filter(std::fs::Metadata::is_file)?;
        let path = std::fs::read_link(&link).ok()?;
        Some(Output { fd, path, mode: meta.mode() & 0o777 })
    };
    [libc::STDOUT_FILENO, libc::STDERR_FILENO].into_iter().filter_map(output).collect()
}

impl Output {
    /// The file's name at the start.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Opens the file of that name for appending, creates it if necessary, and redirects the
    /// descriptor to it.
    ///
    /// # Errors
    /// When it cannot be opened; the descriptor then stays as it is.
    pub fn reopen(&self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).mode(self.mode).open(&self.path)?;
        // SAFETY: both numbers are open descriptors of this process; `dup2` replaces the standard one atomically, and no
        // value of this process owns that number.
        let answer = unsafe { libc::dup2(file.as_raw_fd(), self.fd) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A secret of this process that nobody can guess. Where the kernel's generator cannot be read, it is made of the random keys
/// of the standard library's hash tables.
pub(crate) fn secret() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    use std::io::Read;
    let mut secret = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut secret));
    if read.is_err() {
        for part in secret.chunks_mut(8) {
            part.copy_from_slice(&RandomState::new().hash_one(0_u64).to_ne_bytes());
        }
    }
    secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_work_on_a_real_time_thread_has_no_fifo_priority() {
        std::thread::spawn(|| {
            assert_eq!(fifo_priority(), None, "threads are ordinary until they ask");
            assert_eq!(ordinary(fifo_priority), None);
            if make_real_time(PROTOCOLS).is_err() {
                return println!("skipped: no CAP_SYS_NICE");
            }
            assert_eq!(fifo_priority(), Some(PROTOCOLS));
            assert_eq!(ordinary(|| (fifo_priority(), ordinary(fifo_priority))), (None, None));
            assert_eq!(fifo_priority(), Some(PROTOCOLS));
            let child = std::thread::spawn(fifo_priority).join().expect("no panic");
            assert_eq!(child, None, "threads that it starts are ordinary");
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn one_descriptor_for_many_is_readable_while_one_of_them_is() {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd;
        let gathered = Gathered::new().expect("a descriptor");
        let pipes = [(); 2].map(|()| nix::unistd::pipe().expect("a pipe"));
        for (reader, _) in &pipes {
            gathered.add(reader.as_raw_fd()).expect("added");
            gathered.add(reader.as_raw_fd()).expect("is in the set already");
        }
        let readable = || {
            // SAFETY: `gathered` is open for the whole test.
            let fd = unsafe { BorrowedFd::borrow_raw(gathered.as_raw_fd()) };
            poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO).expect("polled") > 0
        };
        assert!(!readable());
        nix::unistd::write(pipes[1].1.as_fd(), b"x").expect("written");
        assert!(readable());
        nix::unistd::read(pipes[1].0.as_fd(), &mut [0; 8]).expect("read");
        assert!(!readable());
        assert!(gathered.add(-1).is_err());
    }

    #[test]
    fn a_process_is_killed_by_its_descriptor() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        let descriptor = pidfd(child.id().cast_signed()).expect("it runs");
        kill(&descriptor).expect("killed");
        let status = child.wait().expect("a child");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
        assert!(kill(&descriptor).is_err(), "it has ended");
    }

    #[test]
    fn a_process_that_has_ended_has_no_descriptor() {
        assert!(pidfd(i32::try_from(std::process::id()).expect("a small number")).is_ok());
        assert!(pidfd(i32::MAX).is_err());
        assert!(duplicate(-1).is_err());
    }

    /// A log that was renamed: output goes to a new file of the old name.
    #[test]
    fn output_goes_to_the_file_of_the_old_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, rotated) = (directory.path().join("log"), directory.path().join("log.1"));
        let mut file = std::fs::File::create(&path).expect("made");
        let output = Output { fd: file.as_raw_fd(), path: path.clone(), mode: 0o640 };
        std::fs::rename(&path, &rotated).expect("renamed");
        output.reopen().expect("reopened");
        std::io::Write::write_all(&mut file, b"after").expect("written");
        let text = |path: &Path| std::fs::read_to_string(path).expect("read");
        assert_eq!((text(&rotated).as_str(), text(&path).as_str()), ("", "after"));
        let lost = Output { fd: file.as_raw_fd(), path: directory.path().join("no/log"), mode: 0o640 };
        assert!(lost.reopen().is_err());
        std::io::Write::write_all(&mut file, b", too").expect("written");
        assert_eq!(text(&path), "after, too", "output stays where it was");
    }
}
