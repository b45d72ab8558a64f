//! Sysctls below /proc/sys/net, in the calling thread's network namespace (whatever the namespace
//! of a `Netdev`).
//!
//! Read the kernel's networking/ip-sysctl first. Invariant: a path is made of whole components
//! without '/', so a device called `eth0.10` is found, and nothing outside the directory can be
//! reached.

use crate::error::Error;
use crate::{Result, is_valid_name};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;

/// Longest value read, in bytes.
const VALUE_MAX: u64 = 4096;

fn path(parts: &[&str]) -> io::Result<PathBuf> {
    let mut path = PathBuf::from("/proc/sys/net");
    for part in parts {
        if part.is_empty() || *part == "." || *part == ".." || part.contains(['/', '\0']) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{part:?} is no sysctl's name")));
        }
        path.push(part);
    }
    Ok(path)
}

/// Reads `net.PARTS`, each part one component, without the newline.
///
/// # Errors
/// [`Error::is_gone`] when there is no such sysctl (or no such device).
pub fn get(parts: &[&str]) -> Result<String> {
    let read = || {
        let mut value = String::new();
        File::open(path(parts)?)?.take(VALUE_MAX).read_to_string(&mut value)?;
        Ok(value.trim_end().to_owned())
    };
    read().map_err(|e| Error::new(format!("reading net.{}", parts.join(".")), e))
}

/// Writes `net.PARTS`.
///
/// # Errors
/// [`Error::is_gone`] when there is no such sysctl (or no such device), [`Error::is_permission`], a value the
/// kernel refuses.
pub fn set(parts: &[&str], value: &str) -> Result<()> {
    let write = || OpenOptions::new().write(true).open(path(parts)?)?.write_all(value.as_bytes());
    write().map_err(|e| Error::new(format!("setting net.{} to {value}", parts.join(".")), e))
}

fn device(ifname: &str) -> Result<&str> {
    if is_valid_name(ifname) {
        return Ok(ifname);
    }
    Err(Error::new(format!("finding the sysctls of {ifname:?}"), io::Error::from_raw_os_error(libc::ENODEV)))
}

/// Reads `net.ipv4.conf.IF.KEY`; IF may be `all` or `default`.
///
/// # Errors
/// As [`get`].
pub fn ipv4_conf(ifname: &str, key: &str) -> Result<String> {
    get(&["ipv4", "conf", device(ifname)?, key])
}

/// Writes `net.ipv4.conf.IF.KEY`.
///
/// # Errors
/// As [`set`].
pub fn set_ipv4_conf(ifname: &str, key: &str, value: &str) -> Result<()> {
    set(&["ipv4", "conf", device(ifname)?, key], value)
}

/// Reads `net.ipv6.conf.IF.KEY`: `disable_ipv6`, `accept_ra`, `addr_gen_mode`, `forwarding`...
///
/// # Errors
/// As [`get`].
pub fn ipv6_conf(ifname: &str, key: &str) -> Result<String> {
    get(&["ipv6", "conf", device(ifname)?, key])
}

/// Writes `net.ipv6.conf.IF.KEY`.
///
/// # Errors
/// As [`set`].
pub fn set_ipv6_conf(ifname: &str, key: &str, value: &str) -> Result<()> {
    set(&["ipv6", "conf", device(ifname)?, key], value)
}

/// `net.ipv6.conf.IF.disable_ipv6`.
///
/// # Errors
/// As [`get`].
pub fn disable_ipv6(ifname: &str) -> Result<bool> {
    Ok(ipv6_conf(ifname, "disable_ipv6")? != "0")
}

/// Sets `net.ipv6.conf.IF.disable_ipv6`.
///
/// # Errors
/// As [`set`].
pub fn set_disable_ipv6(ifname: &str, on: bool) -> Result<()> {
    set_ipv6_conf(ifname, "disable_ipv6", bit(on))
}

/// `net.ipv4.ip_forward`.
///
/// # Errors
/// As [`get`].
pub fn ipv4_forwarding() -> Result<bool> {
    Ok(get(&["ipv4", "ip_forward"])? != "0")
}

/// Sets `net.ipv4.ip_forward` (`ip routing`).
///
/// # Errors
/// As [`set`].
pub fn set_ipv4_forwarding(on: bool) -> Result<()> {
    set(&["ipv4", "ip_forward"], bit(on))
}

/// `net.ipv6.conf.all.forwarding`.
///
/// # Errors
/// As [`get`].
pub fn ipv6_forwarding() -> Result<bool> {
    Ok(ipv6_conf("all", "forwarding")? != "0")
}

/// Sets `net.ipv6.conf.all.forwarding` (`ipv6 unicast-routing`).
///
/// # Errors
/// As [`set`].
pub fn set_ipv6_forwarding(on: bool) -> Result<()> {
    set_ipv6_conf("all", "forwarding", bit(on))
}

fn bit(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}
