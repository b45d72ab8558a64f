//! TAP netdevs: Documentation/networking/tuntap.rst. Frames that the host sends to the netdev are read here; frames
//! that are written here are received by the host.
//!
//! Frames are plain: whole, with checksums, tags in line, at most as long as the MTU allows, because no offload is announced.
//! Invariant: a [`Tap`] of [`Tap::open`] is persistent: the netdev stays, with its addresses, when the descriptor is closed,
//! without carrier until it is opened again. One of [`Tap::temporary`] ends with its descriptor.

#![allow(unsafe_code)]

use crate::is_valid_name;
use std::io::{Error, ErrorKind, Result};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// The longest frame that is read, in bytes.
const MAX_FRAME: usize = 65_536 + 64;

/// The open end of a TAP netdev. Neither reading nor writing blocks.
#[derive(Debug)]
pub struct Tap {
    file: OwnedFd,
}

impl Tap {
    /// Opens a TAP netdev of this name in the calling thread's network namespace, and makes it first if there is none.
    ///
    /// # Errors
    /// When the name is not valid or another kind of netdev has it, when somebody has it open, or without CAP_NET_ADMIN.
    pub fn open(name: &str) -> Result<Self> {
        let tap = Self::temporary(name)?;
        // SAFETY: the argument is a number.
        if unsafe { libc::ioctl(tap.file.as_raw_fd(), libc::TUNSETPERSIST, 1) } != 0 {
            return Err(Error::last_os_error());
        }
        Ok(tap)
    }

    /// As [`Tap::open`], but a netdev that this call makes is removed when the value is dropped or the process ends.
    ///
    /// # Errors
    /// As [`Tap::open`].
    pub fn temporary(name: &str) -> Result<Self> {
        if !is_valid_name(name) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{name:?} is no name of a netdev")));
        }
        let file = OwnedFd::from(
            std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
                .open("/dev/net/tun")?,
        );
        // SAFETY: ifreq is plain data, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the request lives through the call; the name in it is shorter than its field.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } != 0 {
            return Err(Error::last_os_error());
        }
        Ok(Self { file })
    }

    /// Sets or clears the netdev's carrier.
    ///
    /// # Errors
    /// When the kernel is older than 4.20.
    pub fn set_carrier(&self, on: bool) -> Result<()> {
        let value = libc::c_int::from(on);
        // SAFETY: the pointer leads to a live integer, which the kernel only reads.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETCARRIER, &raw const value) } {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    }

    /// The next frame that the host has sent; `None` when there is none at the moment. `buffer` receives it.
    ///
    /// # Errors
    /// When the netdev has gone or is down.
    pub fn receive<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<Option<&'a [u8]>> {
        buffer.resize(MAX_FRAME, 0);
        match nix::unistd::read(&self.file, buffer) {
            Ok(length) => Ok(Some(&buffer[..length])),
            Err(nix::errno::Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends a frame to the host, which receives it at the netdev.
    ///
    /// # Errors
    /// When the netdev is down or gone, or its queue is full.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        Ok(nix::unistd::write(&self.file, frame).map(drop)?)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
