//! Reports whether this machine can run the plane, as text.
//!
//! Invariant: only loading the programs decides whether the plane runs. A version number decides nothing,
//! because vendors add features to old kernels, and a verifier may refuse a program on a kernel with every
//! feature.

use crate::attach::has_tcx;
use crate::error::{Result, unsupported};
use crate::object;
use libbpf_rs::btf::{Btf, types::Func};
use libbpf_rs::{MapHandle, MapType};
use std::fs;
use std::sync::OnceLock;

/// The oldest kernel from kernel.org that loads the programs: bpf_loop came with 5.17, XDP programs for frames in
/// several buffers with 5.18. The version is used to explain a refusal, not to decide.
const OLDEST: (u32, u32) = (5, 18);
/// The kernel function by which a driver shows XDP a VLAN tag that it keeps out of band (a veth: Linux 6.8).
const SHOWS_TAGS: &str = "bpf_xdp_metadata_rx_vlan_tag";

/// Returns an error with the reason if this process may not create BPF maps.
pub(crate) fn rights() -> Result<()> {
    let opts = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as libbpf_rs::libbpf_sys::size_t,
        ..Default::default()
    };
    let why = match MapHandle::create(MapType::Array, Some("ly_probe"), 4, 4, 1, &opts) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == libbpf_rs::ErrorKind::PermissionDenied => {
            "this process has no CAP_BPF in the first user namespace (run it as root)".into()
        }
        Err(error) => format!("the kernel refuses a BPF map ({error})"),
    };
    Err(unsupported(format!("run here: {why}")))
}

/// A sentence to add to the kernel's reason for refusing the programs, if its age explains the
/// refusal.
pub(crate) fn explanation() -> String {
    explain(&release())
}

fn explain(release: &str) -> String {
    let (major, minor) = OLDEST;
    if version(release) < OLDEST {
        format!("this is Linux {release}, and the programs use features of Linux {major}.{minor}")
    } else {
        format!("this is Linux {release}")
    }
}

/// Checks whether this process can open the plane. The answer is cached, because it does not change
/// and loading the programs takes up to seconds.
///
/// # Errors
/// The reason.
pub fn available() -> Result<(), String> {
    static LOADS: OnceLock<Result<(), String>> = OnceLock::new();
    rights().map_err(|error| error.to_string())?;
    let load = || object::create(object::buckets_for(1), 0).map(drop).map_err(|error| error.to_string());
    LOADS.get_or_init(load).clone()
}

/// The requirements of the plane and what this machine offers, one line each. The first line says whether the
/// plane runs here.
#[must_use]
pub fn support() -> Vec<String> {
    let mut lines = vec![match available() {
        Ok(()) => format!("available (Linux {})", release()),
        Err(why) => format!("not available: {why}"),
    }];
    let yes = |on: bool, what: &str, without: &str| {
        if on { what.to_owned() } else { format!("no {what}: {without}") }
    };
    lines.push(yes(has_tcx(), "TCX", "TC runs as a clsact filter (TCX needs Linux 6.6 and CAP_NET_ADMIN)"));
    let btf = Btf::from_vmlinux().ok();
    lines.push(yes(btf.is_some(), "kernel BTF", "XDP on veth ports is refused (CONFIG_DEBUG_INFO_BTF)"));
    let tags = btf.is_some_and(|btf| btf.type_by_name::<Func<'_>>(SHOWS_TAGS).is_some());
    lines.push(yes(tags, "VLAN tags shown to XDP", "XDP on veth ports is refused (Linux 6.8)"));
    lines
}

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "0.0".into(), |text| text.trim().to_owned())
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, want) in
            [("6.18.44-fc", (6, 18)), ("5.4", (5, 4)), ("6.1.0-13-amd64", (6, 1)), ("", (0, 0))]
        {
            assert_eq!(version(text), want, "{text}");
        }
    }

    #[test]
    fn only_an_old_kernel_is_explained_by_its_age() {
        let old = "this is Linux 5.10.0-32-amd64, and the programs use features of Linux 5.18";
        assert_eq!(explain("5.10.0-32-amd64"), old);
        assert_eq!(explain("6.1.0-50-amd64"), "this is Linux 6.1.0-50-amd64");
    }

    #[test]
    fn availability_is_what_opening_a_plane_answers() {
        let options = crate::Options { fdb_capacity: 1, ..crate::Options::new("probe") };
        let opened = crate::EbpfPlane::open_private(&options).map(drop).map_err(|error| error.to_string());
        assert_eq!(available(), opened);
    }
}
