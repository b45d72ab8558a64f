//! BPF programs at the hooks of netfilter (links of BPF_LINK_TYPE_NETFILTER, Linux 6.4), which the kernel neither lists with
//! the chains of nftables nor announces.
//!
//! Read linux/bpf.h (BPF_LINK_GET_NEXT_ID, struct bpf_link_info) first. The kernel does not report the network namespace of
//! such a link, but it refuses a second program at the same hook with the same priority (EBUSY). So a program that accepts
//! everything is attached for a moment, once for each link: if that succeeds, the link is in another namespace.
//!
//! Invariants: a link that may be in this namespace counts until the kernel no longer has it; one listing examines
//! [`MOST_LINKS`] at most. A listing that has not seen every link, or that found more than [`MOST`] in this namespace, is an
//! error. Links of other namespaces, however many there are, hide none of this one.

#![allow(unsafe_code)]

use super::{Hook, HookPoint, MOST};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The number of links that one listing examines; the next listing continues behind them. The same number of links of other
/// namespaces is remembered, so that they are not examined again.
const MOST_LINKS: usize = 16_384;
/// The kernel numbers links in ascending order, so a listing begins behind the last link that the previous one has seen. One
/// listing of this number begins at the first link, because the kernel begins to number anew after 2^31 links.
const WHOLE_EVERY: u32 = 60;
/// enum bpf_cmd of linux/bpf.h.
const PROG_LOAD: libc::c_int = 5;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const LINK_GET_FD_BY_ID: libc::c_int = 30;
const LINK_GET_NEXT_ID: libc::c_int = 31;
/// BPF_PROG_TYPE_NETFILTER, BPF_NETFILTER, BPF_LINK_TYPE_NETFILTER.
const PROGRAM: u32 = 32;
const ATTACH: u32 = 45;
const LINK: u32 = 10;
/// NFPROTO_IPV4 and NFPROTO_IPV6: there are no links of other families.
const IPV4: u32 = 2;
const IPV6: u32 = 10;
/// NF_INET_PRE_ROUTING, _FORWARD and _POST_ROUTING.
const HOOKS: [(u32, &str); 3] = [(0, "prerouting"), (2, "forward"), (4, "postrouting")];
/// `r0 = NF_ACCEPT; exit`, as struct bpf_insn: code, registers, offset, immediate value.
const ACCEPT: [(u8, u8, i16, i32); 2] = [(0xb7, 0, 0, 1), (0x95, 0, 0, 0)];

/// A member of union bpf_attr: BPF_LINK_GET_NEXT_ID and BPF_LINK_GET_FD_BY_ID.
#[repr(C)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

/// A member of union bpf_attr: BPF_OBJ_GET_INFO_BY_FD.
#[repr(C)]
struct GetInfo {
    fd: u32,
    length: u32,
    info: u64,
}

/// The part of struct bpf_link_info that describes a link of BPF_LINK_TYPE_NETFILTER.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Info {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    family: u32,
    hook: u32,
    priority: i32,
    flags: u32,
}

/// A member of union bpf_attr: the beginning of BPF_PROG_LOAD.
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log: [u32; 4],
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach: u32,
}

/// A member of union bpf_attr: BPF_LINK_CREATE for netfilter.
#[repr(C)]
struct Create {
    program: u32,
    target: u32,
    attach: u32,
    flags: u32,
    family: u32,
    hook: u32,
    priority: i32,
    hook_flags: u32,
}

/// The links that earlier listings have found, and where the next listing begins.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// The id of the last link that was examined.
    last: u32,
    listings: u32,
    /// True once a listing has reached the last link.
    complete: bool,
    known: Known,
}

/// The links that have been examined.
#[derive(Debug, Default)]
struct Known {
    /// Links that forwarded packets of this namespace pass, or may pass.
    here: BTreeMap<u32, Hook>,
    /// Links of other namespaces and of other hooks. One that is missing here is examined again.
    others: BTreeSet<u32>,
}

impl Known {
    fn has(&self, id: u32) -> bool {
        self.here.contains_key(&id) || self.others.contains(&id)
    }
    /// Adds an examined link. `hook` is `None` if the link is in another namespace, or not at a hook of forwarded packets.
    ///
    /// # Errors
    /// When this namespace has too many links.
    fn add(&mut self, id: u32, hook: Option<Hook>) -> io::Result<()> {
        match hook {
            Some(hook) if self.here.len() < MOST => drop(self.here.insert(id, hook)),
            Some(_) => {
                let text = format!("this network namespace has more than {MOST} BPF programs at netfilter");
                return Err(io::Error::other(text));
            }
            None if self.others.len() < MOST_LINKS => drop(self.others.insert(id)),
            None => {}
        }
        Ok(())
    }
}

impl Links {
    /// The hooks of the links in the calling thread's network namespace. There are none for a process that may not list links
    /// (without CAP_SYS_ADMIN in the first user namespace), and on a kernel without BPF.
    ///
    /// # Errors
    /// When the kernel does not list them for another reason, and when they are too many.
    pub(super) fn list(&mut self) -> io::Result<Vec<Hook>> {
        let exists = |id: u32| !matches!(link(id), Ok(None));
        if self.listings.is_multiple_of(WHOLE_EVERY) {
            self.last = 0;
            // The kernel uses a number again after 2^31 links only.
            self.known.others.retain(|id| exists(*id));
        }
        self.listings = self.listings.wrapping_add(1);
        self.known.here.retain(|id, _| exists(*id));
        for _ in 0..MOST_LINKS {
            let Some(id) = next(self.last)? else {
                self.complete = true;
                break;
            };
            if !self.known.has(id) {
                match link(id) {
                    // A link that is still being made: the next listing examines it again.
                    Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => break,
                    Err(error) => return Err(error),
                    Ok(None) => {}
                    Ok(Some(link)) => {
                        let info = info(&link)?;
                        if info.kind == LINK {
                            self.known.add(id, hook(&info).filter(|_| may_be_here(&info)))?;
                        }
                    }
                }
            }
            self.last = id;
        }
        if !self.complete {
            return Err(io::Error::other("not every BPF link has been examined yet"));
        }
        Ok(self.known.here.values().cloned().collect())
    }
}

/// The hook of a link; `None` when forwarded packets do not pass it.
fn hook(info: &Info) -> Option<Hook> {
    let (_, name) = HOOKS.into_iter().find(|(hook, _)| *hook == info.hook)?;
    (info.kind == LINK && [IPV4, IPV6].contains(&info.family)).then(|| Hook {
        ipv4: info.family == IPV4,
        ipv6: info.family == IPV6,
        point: HookPoint::Forwarding,
        owner: format!("BPF program {} at the netfilter hook {name}", info.program),
    })
}

/// False when the link is certainly in another network namespace than the calling thread.
fn may_be_here(info: &Info) -> bool {
    let Ok(program) = accepting() else { return true };
    let mut create = Create {
        program: program.as_raw_fd().cast_unsigned(),
        target: 0,
        attach: ATTACH,
        flags: 0,
        family: info.family,
        hook: info.hook,
        priority: info.priority,
        hook_flags: 0,
    };
    // Dropping the descriptor detaches the program.
    descriptor(LINK_CREATE, &mut create).is_err()
}

/// Loads a program that accepts every packet.
fn accepting() -> io::Result<OwnedFd> {
    let instructions = ACCEPT.map(|(code, registers, offset, value)| {
        let ([o0, o1], [v0, v1, v2, v3]) = (offset.to_ne_bytes(), value.to_ne_bytes());
        [code, registers, o0, o1, v0, v1, v2, v3]
    });
    let mut load = Load {
        kind: PROGRAM,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr().expose_provenance() as u64,
        license: c"MIT".as_ptr().expose_provenance() as u64,
        log: [0; 4],
        kernel_version: 0,
        flags: 0,
        name: *b"lanyard_accept\0\0",
        ifindex: 0,
        attach: ATTACH,
    };
    descriptor(PROG_LOAD, &mut load)
}

/// The id of the first link after `id`; `None` when there is none, or when this process may not list links.
fn next(id: u32) -> io::Result<Option<u32>> {
    let mut by_id = ById { id, next: 0, flags: 0 };
    match call(LINK_GET_NEXT_ID, &mut by_id) {
        Ok(_) => Ok(Some(by_id.next)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EINVAL) => Ok(None),
            _ => Err(error),
        },
    }
}

/// A descriptor of a link; `None` when the kernel no longer has it.
fn link(id: u32) -> io::Result<Option<OwnedFd>> {
    match descriptor(LINK_GET_FD_BY_ID, &mut ById { id, next: 0, flags: 0 }) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        answer => answer.map(Some),
    }
}

fn info(link: &OwnedFd) -> io::Result<Info> {
    let mut info = Info::default();
    let mut get = GetInfo {
        fd: link.as_raw_fd().cast_unsigned(),
        length: size_of::<Info>() as u32,
        info: (&raw mut info).expose_provenance() as u64,
    };
    call(OBJ_GET_INFO_BY_FD, &mut get)?;
    Ok(info)
}

/// Calls bpf(2) with a command that returns a new descriptor.
fn descriptor<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = call(command, attributes)?;
    // SAFETY: the callers' commands answer with a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls bpf(2) with a member of union bpf_attr. The kernel takes attributes beyond the end of `attributes` as 0.
fn call<T>(command: libc::c_int, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: `attributes` is exclusively borrowed for the call, and its length is given. Addresses in it are those of buffers
    // that outlive the call and have the lengths that the call gives; the callers' types are the kernel's, without padding.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { i32::try_from(answer).map_err(io::Error::other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(kind: u32, family: u32, hook: u32) -> Option<Hook> {
        super::hook(&Info { kind, program: 42, family, hook, ..Info::default() })
    }

    #[test]
    fn links_of_other_namespaces_hide_none_of_this_one() {
        let mut known = Known::default();
        let hook = || described(LINK, IPV4, 2);
        let many = u32::try_from(2 * MOST_LINKS).expect("a number");
        (1..=many).for_each(|id| known.add(id, None).expect("added"));
        assert_eq!(known.others.len(), MOST_LINKS, "memory is bounded");
        for id in (many + 1..).take(MOST) {
            known.add(id, hook()).expect("added");
        }
        assert!(known.here.len() == MOST && known.has(many + 1) && known.has(1) && !known.has(many));
        let error = known.add(u32::MAX, hook()).expect_err("one too many");
        assert!(error.to_string().contains("more than 4096 BPF programs"), "{error}");
    }

    #[test]
    fn programs_at_the_hooks_of_forwarded_packets_count() {
        let forward = described(LINK, IPV6, 2).expect("a hook");
        assert_eq!((forward.ipv4, forward.ipv6), (false, true));
        assert_eq!(forward.owner, "BPF program 42 at the netfilter hook forward");
        assert!(described(LINK, IPV4, 0).is_some_and(|hook| hook.ipv4 && !hook.ipv6));
        for (kind, family, hook) in [(LINK, IPV4, 1), (LINK, IPV4, 3), (LINK, 7, 2), (11, IPV4, 2)] {
            assert_eq!(described(kind, family, hook), None, "{kind} {family} {hook}");
        }
    }
}
