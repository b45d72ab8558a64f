//! The driver's name by SIOCETHTOOL, because ethtool netlink has no message for it.
//!
//! Read netdevice(7) and linux/ethtool.h first. Invariant: the kernel writes into `DriverInfo` and
//! nowhere else.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// ETHTOOL_GDRVINFO.
const GET_DRIVER_INFO: u32 = 3;

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

/// The name of the driver of the device `name`, in the namespace of `socket`.
pub(crate) fn driver(socket: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    if !crate::is_valid_name(name) {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
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
    let mut ifr_name = [0; libc::IFNAMSIZ];
    for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let pointer = (&raw mut info).cast();
    let mut request = libc::ifreq { ifr_name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: pointer } };
    // SAFETY: `request` is a whole ifreq whose name ends in a NUL (15 bytes at most in 16); its data pointer
    // leads to a `DriverInfo`, alive and not otherwise borrowed during the call, which is the 196 bytes that
    // the kernel reads and writes for this command.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let length = info.driver.iter().position(|b| *b == 0).unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(&info.driver[..length]).into_owned())
}
