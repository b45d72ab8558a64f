//! Keeps the host's own IP stack off a port.
//!
//! AF_PACKET only copies frames: the host's stack still receives every frame of a port, and would
//! answer ARP for the switch's addresses with the port's MAC address. While a netdev is a port, it
//! does no ARP and no IPv6. Invariant: all changes are undone when the port is removed.

#![allow(unsafe_code)]

use std::fs;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The changes made to a netdev.
#[derive(Debug)]
pub struct HostStack {
    name: String,
    set_noarp: bool,
    disabled_ipv6: bool,
}

impl HostStack {
    /// Makes the host's stack ignore the netdev, as far as the rights allow.
    pub fn quiet(name: &str) -> Self {
        let mut made = Self { name: name.to_owned(), set_noarp: false, disabled_ipv6: false };
        made.repeat();
        made
    }
    /// Repeats the changes, after the netdev has been in another network namespace: the kernel has undone some of them.
    pub fn repeat(&mut self) {
        let set = noarp(&self.name, true) == Some(true);
        let disabled = fs::read_to_string(ipv6_switch(&self.name)).is_ok_and(|value| value.trim() == "0")
            && fs::write(ipv6_switch(&self.name), "1").is_ok();
        self.set_noarp |= set;
        self.disabled_ipv6 |= disabled;
    }
}

impl Drop for HostStack {
    fn drop(&mut self) {
        if self.set_noarp {
            noarp(&self.name, false);
        }
        if self.disabled_ipv6 {
            // Fails only when the netdev has been removed.
            let _ = fs::write(ipv6_switch(&self.name), "0");
        }
    }
}

fn ipv6_switch(name: &str) -> String {
    format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
}

/// Sets or clears IFF_NOARP. Returns true if the flag has changed, false if it had the value already, `None` on failure.
fn noarp(name: &str, on: bool) -> Option<bool> {
    // SAFETY: plain system call; the result is checked and owned at once.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: a new descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: ifreq is plain data, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request lives through the call; the name in it ends with a zero.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) } != 0 {
        return None;
    }
    // SAFETY: SIOCGIFFLAGS has filled in this member.
    let was = unsafe { request.ifr_ifru.ifru_flags };
    let bit = libc::IFF_NOARP as libc::c_short;
    let now = if on { was | bit } else { was & !bit };
    if now == was {
        return Some(false);
    }
    request.ifr_ifru.ifru_flags = now;
    // SAFETY: as above.
    (unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) } == 0).then_some(true)
}
