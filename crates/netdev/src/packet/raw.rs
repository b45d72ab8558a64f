//! System calls for packet sockets, packet(7).

#![allow(unsafe_code)]

use nix::sys::socket::{LinkAddr, getsockname, getsockopt, sockopt};
use std::io::{Error, Result};
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Opens a socket that is bound to no netdev and receives nothing.
pub(super) fn open() -> Result<OwnedFd> {
    // Protocol 0: nothing is received yet.
    open_raw(libc::AF_PACKET, 0)
}

/// Opens a raw socket that never blocks.
pub(crate) fn open_raw(family: i32, protocol: i32) -> Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain system call; the result is checked and owned at once.
    let fd = unsafe { libc::socket(family, kind, protocol) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds the socket to the netdev with this index, in the socket's namespace, for frames of this
/// EtherType.
pub(super) fn bind(socket: &OwnedFd, ifindex: u32, ether_type: u16) -> Result<()> {
    // SAFETY: sockaddr_ll is plain data, for which zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ether_type.to_be();
    address.sll_ifindex = index(ifindex)?;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives through the call, and `len` is its size.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// The index of the netdev to which a socket is bound; `None` if there is none any more.
pub(super) fn bound(socket: &OwnedFd) -> Option<u32> {
    let address = getsockname::<LinkAddr>(socket.as_raw_fd()).ok()?;
    u32::try_from(address.ifindex()).ok()
}

/// Makes the netdev receive frames for other stations while the socket is open.
pub(super) fn set_promiscuous(socket: &OwnedFd, ifindex: u32) -> Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index(ifindex)?,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Sets an option whose value is plain data.
pub(crate) fn set<T: Copy>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> Result<()> {
    let (fd, len) = (socket.as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: `value` is a live T and `len` its size; the kernel only reads it.
    let done = unsafe { libc::setsockopt(fd, level, option, std::ptr::from_ref(value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// The number of frames lost since the last call because there was no room.
pub(super) fn missed(socket: &OwnedFd) -> Result<u32> {
    // A socket without a ring fills in the first two fields, which are the same.
    let mut stats = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
    let mut len = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
    let (fd, value) = (socket.as_raw_fd(), (&raw mut stats).cast());
    // SAFETY: value and length live through the call, and the length is the value's size.
    let done =
        unsafe { libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, value, &raw mut len) };
    if done == 0 { Ok(stats.tp_drops) } else { Err(Error::last_os_error()) }
}

/// The number of packets for which the receive buffer of a socket of any kind had no room.
pub(crate) fn queue_drops(socket: &OwnedFd) -> Result<u32> {
    // SK_MEMINFO_DROPS of linux/sock_diag.h, the last of the words.
    const DROPS: usize = 8;
    let mut words = [0u32; DROPS + 1];
    let mut len = size_of_val(&words) as libc::socklen_t;
    let (fd, value) = (socket.as_raw_fd(), words.as_mut_ptr().cast());
    // SAFETY: words and length live through the call, and the length is that of the words.
    let done = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, value, &raw mut len) };
    if done == 0 { Ok(words[DROPS]) } else { Err(Error::last_os_error()) }
}

/// Clears a pending error, which reports that the netdev went down or was removed.
pub(super) fn clear_error(socket: &OwnedFd) {
    // Reading the error clears it.
    let _ = getsockopt(socket, sockopt::SocketError);
}

/// The tag that the kernel has removed from a frame, as bytes, from the frame's metadata.
pub(super) fn tag(status: u32, tpid: u16, tci: u16) -> Option<[u8; 4]> {
    let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let [a, b] = if known { tpid } else { libc::ETH_P_8021Q as u16 }.to_be_bytes();
    let [c, d] = tci.to_be_bytes();
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some([a, b, c, d])
}

fn index(ifindex: u32) -> Result<i32> {
    i32::try_from(ifindex).map_err(|_| Error::from_raw_os_error(libc::ENODEV))
}
