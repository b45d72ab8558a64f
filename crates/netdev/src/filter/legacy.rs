//! The tables of legacy iptables (`iptables-legacy`), which the kernel shows by getsockopt only.
//!
//! Read linux/netfilter_ipv4/ip_tables.h first. Invariants: only tables that the kernel lists as
//! loaded are requested, because a request loads the table. The kernel is given the whole length of
//! every buffer it writes into, and its contents are read with bounds.

#![allow(unsafe_code)]

use super::{Hook, HookPoint};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES; those of IPv6 have the same numbers.
const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;
/// Length of a table's name in bytes (XT_TABLE_MAXNAMELEN).
const NAME: usize = 32;
/// struct ipt_getinfo: the name, then words: valid hooks, hook entries, underflows, number of entries, size.
const INFO: usize = NAME + 52;
/// struct ipt_get_entries: the name, the size, padding.
const ENTRIES_HEADER: usize = 40;
/// The largest table that is read, in bytes. A larger one certainly has rules.
const ENTRIES_LIMIT: usize = 16 << 20;
/// The longest list of tables that is read, in bytes.
const NAMES_LIMIT: u64 = 4096;
/// NF_INET_PRE_ROUTING, _FORWARD and _POST_ROUTING.
const HOOKS: [(usize, &str); 3] = [(0, "PREROUTING"), (2, "FORWARD"), (4, "POSTROUTING")];
/// The verdict of a standard target that accepts: -NF_ACCEPT - 1.
const ACCEPT: i32 = -2;

/// The differences between IPv4 and IPv6.
struct Family {
    ipv6: bool,
    names: &'static str,
    domain: i32,
    level: i32,
    /// Offset in an entry of the field that holds the offset of its target.
    target_offset: usize,
    command: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family {
        ipv6: false,
        names: "/proc/thread-self/net/ip_tables_names",
        domain: libc::AF_INET,
        level: libc::SOL_IP,
        target_offset: 88,
        command: "iptables",
    },
    Family {
        ipv6: true,
        names: "/proc/thread-self/net/ip6_tables_names",
        domain: libc::AF_INET6,
        level: libc::SOL_IPV6,
        target_offset: 140,
        command: "ip6tables",
    },
];

/// The hooks of the calling thread's namespace: chains that have rules or a policy other than ACCEPT.
pub fn hooks() -> io::Result<BTreeSet<Hook>> {
    let mut hooks = BTreeSet::new();
    for family in &FAMILIES {
        let mut names = String::new();
        match File::open(family.names) {
            // The module is not loaded.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?.take(NAMES_LIMIT).read_to_string(&mut names)?,
        };
        if names.is_empty() {
            continue;
        }
        let socket = socket(family)?;
        for table in names.lines().filter(|name| name.len() < NAME) {
            let Some(info) = info(family, &socket, table)? else { continue };
            hooks.extend(chains(family, &socket, table, &info)?);
        }
    }
    Ok(hooks)
}

fn socket(family: &Family) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer; the result is checked and owned at once.
    let fd = unsafe { libc::socket(family.domain, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The contents of struct ipt_getinfo.
struct Info {
    valid_hooks: u32,
    hook_entry: [u32; 5],
    underflow: [u32; 5],
    size: u32,
}

/// Reads the struct ipt_getinfo of a table; `None` when the table has been removed meanwhile.
fn info(family: &Family, socket: &OwnedFd, table: &str) -> io::Result<Option<Info>> {
    let mut bytes = vec![0; INFO];
    bytes[..table.len()].copy_from_slice(table.as_bytes());
    match get(family, socket, GET_INFO, &mut bytes) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        answer => answer?,
    }
    let at = |index: usize| word(&bytes, NAME + 4 * index).unwrap_or(0);
    Ok(Some(Info {
        valid_hooks: at(0),
        hook_entry: std::array::from_fn(|hook| at(1 + hook)),
        underflow: std::array::from_fn(|hook| at(6 + hook)),
        size: at(12),
    }))
}

fn chains(family: &Family, socket: &OwnedFd, table: &str, info: &Info) -> io::Result<Vec<Hook>> {
    let mut entries = None;
    let mut hooks = Vec::new();
    for (hook, chain) in HOOKS.into_iter().filter(|(hook, _)| info.valid_hooks & 1 << hook != 0) {
        let mut counts = info.hook_entry[hook] != info.underflow[hook];
        if !counts {
            if entries.is_none() {
                entries = Some(self::entries(family, socket, table, info.size)?);
            }
            // The table changed after its size was read. Treat it as if it had rules until the next
            // look.
            let verdict =
                entries.as_ref().and_then(|bytes| policy(family, bytes.as_deref()?, info.underflow[hook]));
            counts = verdict != Some(ACCEPT);
        }
        if counts {
            hooks.push(Hook {
                ipv4: !family.ipv6,
                ipv6: family.ipv6,
                point: HookPoint::Forwarding,
                owner: format!("{} (legacy) chain {table} {chain}", family.command),
            });
        }
    }
    Ok(hooks)
}

/// The rules of a table; `None` when the table no longer matches its description.
fn entries(family: &Family, socket: &OwnedFd, table: &str, size: u32) -> io::Result<Option<Vec<u8>>> {
    let length = size as usize;
    if length > ENTRIES_LIMIT {
        return Ok(None);
    }
    let mut bytes = vec![0; ENTRIES_HEADER + length];
    bytes[..table.len()].copy_from_slice(table.as_bytes());
    bytes[NAME..NAME + 4].copy_from_slice(&size.to_ne_bytes());
    match get(family, socket, GET_ENTRIES, &mut bytes) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOENT)) => Ok(None),
        answer => answer.map(|()| Some(bytes.split_off(ENTRIES_HEADER))),
    }
}

/// The verdict of the standard target that ends a chain.
fn policy(family: &Family, entries: &[u8], underflow: u32) -> Option<i32> {
    /// struct xt_entry_target.
    const TARGET: usize = 32;
    let entry = entries.get(underflow as usize..)?;
    let offset = entry.get(family.target_offset..family.target_offset + 2)?;
    let offset = usize::from(u16::from_ne_bytes(offset.try_into().ok()?));
    word(entry, offset.checked_add(TARGET)?).map(u32::cast_signed)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn get(family: &Family, socket: &OwnedFd, option: i32, value: &mut [u8]) -> io::Result<()> {
    let wrong_size = || io::Error::from_raw_os_error(libc::EINVAL);
    let mut length = libc::socklen_t::try_from(value.len()).map_err(|_| wrong_size())?;
    // SAFETY: `value` is exclusively borrowed for the call and `length` is its length; the kernel writes no more than that.
    let result = unsafe {
        let value = value.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), family.level, option, value, &raw mut length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A truncated entry is read within its bounds.
    #[test]
    fn the_policy_of_an_entry_that_is_cut_off() {
        for family in &FAMILIES {
            let mut entry = vec![0; 160 + 40];
            entry[family.target_offset..family.target_offset + 2].copy_from_slice(&160_u16.to_ne_bytes());
            entry[192..196].copy_from_slice(&ACCEPT.to_ne_bytes());
            assert_eq!(policy(family, &entry, 0), Some(ACCEPT));
            for length in 0..196 {
                assert_eq!(policy(family, &entry[..length], 0), None, "{length} bytes");
            }
            assert_eq!(policy(family, &entry, u32::MAX), None);
        }
    }
}
