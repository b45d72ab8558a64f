//! The two things that need `unsafe`: which network namespace this process is in, and a descriptor of our own for one
//! that a plane lends.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The namespace's cookie: unique until the machine restarts, unlike its inode. `None` before Linux 5.14.
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

/// Watches what `fd` is open on for input, by a descriptor of our own.
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
