//! Requests by SIOCETHTOOL: a driver's name, for which ethtool netlink has no message, and whether a device has a link, for
//! which the message of ethtool netlink costs more.
//!
//! Read netdevice(7) and linux/ethtool.h first. Invariant: the kernel writes into the request's data and
//! nowhere else.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// ETHTOOL_GDRVINFO.
const GET_DRIVER_INFO: u32 = 3;
/// ETHTOOL_GLINK.
const GET_LINK: u32 = 10;

/// struct ethtool_drvinfo.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    rom: [u8; 32],
    reserved: [u8; 12],
    counts: [u32; 5],
}

const _: () = assert!(size_of::<DriverInfo>() == 196);

/// struct ethtool_value.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// The name of the driver of the device `name`, in the namespace of `socket`.
pub(crate) fn driver(socket: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let mut info = DriverInfo {
        command: GET_DRIVER_INFO,
        driver: [0; 32],
        version: [0; 32],
        firmware: [0; 32],
        bus: [0; 32],
        rom: [0; 32],
        reserved: [0; 12],
        counts: [0; 5],
    };
    // SAFETY: a `DriverInfo` is the 196 bytes that the kernel reads and writes for its command.
    unsafe { request(socket, name, (&raw mut info).cast()) }?;
    let length = info.driver.iter().position(|b| *b == 0).unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(&info.driver[..length]).into_owned())
}

/// True if the device `name`, in the namespace of `socket`, is up and its driver says that it has a link.
pub(crate) fn has_link(socket: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    let mut value = Value { command: GET_LINK, data: 0 };
    // SAFETY: a `Value` is the 8 bytes that the kernel reads and writes for its command.
    unsafe { request(socket, name, (&raw mut value).cast()) }?;
    Ok(value.data != 0)
}

/// Makes a request about the device `name`.
///
/// # Safety
/// `data` begins with a command, and has the length that the kernel reads and writes for it.
unsafe fn request(socket: BorrowedFd<'_>, name: &str, data: *mut libc::c_char) -> io::Result<()> {
    if !crate::is_valid_name(name) {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    let mut ifr_name = [0; libc::IFNAMSIZ];
    for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let mut request = libc::ifreq { ifr_name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: data } };
    // SAFETY: `request` is a whole ifreq whose name ends in a NUL (15 bytes at most in 16); its data is as the caller
    // promises, and alive during the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
