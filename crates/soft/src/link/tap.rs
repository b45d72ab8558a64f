//! A TAP netdev created by the plane: Documentation/networking/tuntap.rst.
//!
//! Frames that the host sends out of the netdev are read here, and the host receives frames that
//! are written here. Frames carry a virtio_net_hdr (see `vnet`) and their tags in line. Invariant:
//! the netdev exists as long as its `TapLink`.

#![allow(unsafe_code)]

use super::Received;
use super::vnet::{HEADER_LEN, Offload};
use std::io::{Error, Result};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

/// Frames received in one turn.
const FRAMES_A_TURN: usize = 64;
/// The longest segmentation buffer, with its header and its tag.
const BUFFER: usize = 65_536 + HEADER_LEN + 64;

/// The plane's end of a TAP netdev.
#[derive(Debug)]
pub struct TapLink {
    file: Arc<OwnedFd>,
    ifindex: u32,
    buffer: Vec<u8>,
}

impl TapLink {
    /// Creates a TAP netdev in the calling thread's network namespace; it is down at first.
    pub fn create(name: &str) -> Result<Self> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0', '%']) {
            return Err(Error::from_raw_os_error(libc::EINVAL));
        }
        let file = OwnedFd::from(
            std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open("/dev/net/tun")?,
        );
        // SAFETY: ifreq is plain data, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: the request lives through the call; the name in it is shorter than its field.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } != 0 {
            return Err(Error::last_os_error());
        }
        // The work that the host may leave to the receiver of its frames. If this fails, only speed
        // is lost.
        let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        // SAFETY: the argument is a number.
        unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) };
        let ifindex = nix::net::if_::if_nametoindex(name)?;
        Ok(Self { file: Arc::new(file), ifindex, buffer: vec![0; BUFFER] })
    }
    /// The descriptor to wait on.
    pub fn fd(&self) -> Arc<OwnedFd> {
        self.file.clone()
    }
    /// The netdev's index.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }
    /// Passes waiting frames to `handle`.
    pub fn receive(&mut self, handle: &mut dyn FnMut(Received<'_>)) -> usize {
        for taken in 0..FRAMES_A_TURN {
            let Ok(len) = nix::unistd::read(&self.file, &mut self.buffer) else { return taken };
            let Some((header, frame)) = self.buffer[..len].split_first_chunk::<HEADER_LEN>() else {
                return taken;
            };
            handle(Received { bytes: frame, offload: Offload::from_bytes(*header) });
        }
        FRAMES_A_TURN
    }
    /// Sends a frame to the host.
    pub fn send(&mut self, frame: &[u8], offload: Offload) -> bool {
        let header = offload.to_bytes();
        let parts = [std::io::IoSlice::new(&header), std::io::IoSlice::new(frame)];
        nix::sys::uio::writev(&self.file, &parts).is_ok()
    }
}
