//! TC of a netdev: TCX (Linux 6.6), and a filter of the clsact qdisc on older kernels.
//!
//! Read first: the kernel's Documentation/bpf/prog_sched_cls, and tc-bpf(8).

use crate::error::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The programs that the kernel takes at one hook of a netdev (BPF_MPROG_MAX).
const MOST_PROGRAMS: usize = 64;

/// How many programs run at TCX egress of a netdev; an error on kernels without TCX.
pub(crate) fn egress_programs(ifindex: u32) -> io::Result<u32> {
    let mut opts = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let target = i32::try_from(ifindex).map_err(io::Error::other)?;
    // SAFETY: options of the stated size, with no arrays to fill.
    check(unsafe { libbpf_sys::bpf_prog_query_opts(target, libbpf_sys::BPF_TCX_EGRESS, &raw mut opts) })?;
    // SAFETY: both members are the same count.
    Ok(unsafe { opts.__bindgen_anon_1.count })
}

/// True when the link with this number is at TCX ingress of a netdev of this network namespace.
pub(crate) fn has_ingress_link(ifindex: u32, link: u32) -> io::Result<bool> {
    let (mut programs, mut links) = ([0; MOST_PROGRAMS], [0; MOST_PROGRAMS]);
    let mut opts = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        prog_ids: programs.as_mut_ptr(),
        link_ids: links.as_mut_ptr(),
        ..Default::default()
    };
    opts.__bindgen_anon_1.count = MOST_PROGRAMS as u32;
    let target = i32::try_from(ifindex).map_err(io::Error::other)?;
    // SAFETY: options of the stated size, and arrays of the stated length that outlive the call.
    check(unsafe { libbpf_sys::bpf_prog_query_opts(target, libbpf_sys::BPF_TCX_INGRESS, &raw mut opts) })?;
    Ok(links.contains(&link))
}

/// True if the kernel has TCX (Linux 6.6): older kernels refuse the query, because they do not know its kind.
pub(crate) fn has_tcx() -> bool {
    // Interface 1 is every namespace's loopback.
    egress_programs(1).is_ok()
}

/// TC without TCX: a filter of the clsact qdisc, which stays attached without a link or a pin.
pub(crate) mod clsact {
    use super::{AsRawFd, FromRawFd, OwnedFd, check, io};
    use libbpf_sys::{bpf_tc_hook, bpf_tc_opts, size_t};

    /// The handle of the plane's filter. Filters run by priority, and those added without one get
    /// 49152 or less, so the plane's filter runs after them. Frames that it neither forwards nor
    /// drops continue to later filters.
    const HANDLE: u32 = 0x6c79;
    const PRIORITY: u32 = 50_000;
    /// The program's name, as the kernel keeps it.
    const PROGRAM: &[u8] = b"lanyard_tc";

    fn hook(ifindex: u32, points: u32) -> io::Result<bpf_tc_hook> {
        let ifindex = i32::try_from(ifindex).map_err(io::Error::other)?;
        let sz = size_of::<bpf_tc_hook>() as size_t;
        Ok(bpf_tc_hook { sz, ifindex, attach_point: points, ..Default::default() })
    }

    fn opts() -> bpf_tc_opts {
        let sz = size_of::<bpf_tc_opts>() as size_t;
        bpf_tc_opts { sz, handle: HANDLE, priority: PRIORITY, ..Default::default() }
    }

    /// The filter with the plane's handle and priority: `None` if there is none, otherwise whether
    /// its program is the plane's.
    fn at_our_place(ifindex: u32) -> Option<bool> {
        let (hook, mut opts) = (hook(ifindex, libbpf_sys::BPF_TC_INGRESS).ok()?, opts());
        // SAFETY: hook and options of the stated sizes.
        check(unsafe { libbpf_sys::bpf_tc_query(&raw const hook, &raw mut opts) }).ok()?;
        // SAFETY: no pointers; the returned descriptor is owned by nobody else.
        let program = check(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(opts.prog_id) }).ok()?;
        // SAFETY: as above.
        let program = unsafe { OwnedFd::from_raw_fd(program) };
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut len = size_of_val(&info) as u32;
        // SAFETY: a live descriptor, and room of the stated size; all pointers in it are null.
        let answer =
            unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len) };
        check(answer).ok()?;
        let name = info.name.iter().map(|c| *c as u8).take_while(|c| *c != 0);
        Some(name.eq(PROGRAM.iter().copied()))
    }

    /// True when the plane's filter is attached.
    pub(crate) fn present(ifindex: u32) -> bool {
        let _messages = crate::refusal::Messages::listen();
        at_our_place(ifindex) == Some(true)
    }

    /// Attaches the filter, replacing an earlier one of the plane. Returns true if the qdisc had to
    /// be created.
    pub(crate) fn attach(ifindex: u32, program: &OwnedFd) -> io::Result<bool> {
        // libbpf prints that the qdisc exists already, which is expected.
        let _messages = crate::refusal::Messages::listen();
        let mut hook = hook(ifindex, libbpf_sys::BPF_TC_INGRESS)?;
        // SAFETY: a hook of the stated size.
        let made = match unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) } {
            answer if answer == -libc::EEXIST => false,
            answer => check(answer).map(|_| true)?,
        };
        if at_our_place(ifindex) == Some(false) {
            return Err(io::Error::other(format!(
                "another program has the ingress filter with priority {PRIORITY} and handle {HANDLE:#x}; remove it with `tc filter del`"
            )));
        }
        let mut opts =
            bpf_tc_opts { prog_fd: program.as_raw_fd(), flags: libbpf_sys::BPF_TC_F_REPLACE, ..opts() };
        // SAFETY: hook and options of the stated sizes; the program's descriptor is live.
        check(unsafe { libbpf_sys::bpf_tc_attach(&raw const hook, &raw mut opts) })?;
        Ok(made)
    }

    /// True when the qdisc has other filters, which would be deleted with it.
    fn others(ifindex: u32) -> bool {
        let netdev = lanyard_netdev::Netdev::open();
        netdev.and_then(|netdev| Ok(netdev.clsact_filters(ifindex)?)).is_ok_and(|count| count > 1)
    }

    /// Removes the filter, and the qdisc if it was created for it and has no other filters.
    pub(crate) fn detach(ifindex: u32, made: bool) -> io::Result<()> {
        let made = made && !others(ifindex);
        let points = if made {
            libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS
        } else {
            libbpf_sys::BPF_TC_INGRESS
        };
        let _messages = crate::refusal::Messages::listen();
        let mut hook = hook(ifindex, points)?;
        let opts = opts();
        let answer = if made {
            // SAFETY: a hook of the stated size.
            unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut hook) }
        } else {
            // SAFETY: hook and options of the stated sizes.
            unsafe { libbpf_sys::bpf_tc_detach(&raw const hook, &raw const opts) }
        };
        // The netdev or its qdisc may have been removed first.
        if [-libc::ENOENT, -libc::ENODEV, -libc::EINVAL].contains(&answer) {
            Ok(())
        } else {
            check(answer).map(drop)
        }
    }
}
