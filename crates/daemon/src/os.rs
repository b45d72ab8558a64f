//! The operations that need `unsafe`: identifying this process's network namespace, duplicating a descriptor
//! that a plane lends, combining descriptors, thread priorities, and reopening standard output and error.

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

/// While it lives, the calling thread has priority over all ordinary tasks: sched(7), SCHED_FIFO, with a low priority.
/// Otherwise a hello could be late because other processes compute, and neighbours would take the switch for dead.
/// Nice values are not sufficient: where the kernel groups tasks (autogroup, control groups) they count only within a
/// group.
///
/// Threads and processes that it starts are ordinary ones. The kernel always leaves ordinary tasks a twentieth of each
/// core's time (`sched_rt_runtime_us`).
#[derive(Debug)]
pub struct Urgent(i32);

impl Urgent {
    /// The priority of management: links that come and go.
    pub const MANAGEMENT: i32 = 1;
    /// The priority of protocols: above management.
    pub const PROTOCOLS: i32 = 2;

    /// Makes the calling thread urgent, with one of the priorities above.
    ///
    /// # Errors
    /// Without CAP_SYS_NICE.
    pub fn new(priority: i32) -> io::Result<Self> {
        schedule(libc::SCHED_FIFO, priority).map(|()| Self(priority))
    }

    /// Runs work that may take long as an ordinary task, so that it does not delay forwarding.
    pub fn relaxed<T>(&self, work: impl FnOnce() -> T) -> T {
        // Restoring the scheduling that was allowed before does not fail.
        let _ = schedule(libc::SCHED_OTHER, 0);
        let result = work();
        let _ = schedule(libc::SCHED_FIFO, self.0);
        result
    }
}

fn schedule(policy: i32, priority: i32) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter outlives the call; thread 0 is the calling one.
    let answer =
        unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const parameter) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits for input on what `fd` refers to, by a duplicate of the descriptor.
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
