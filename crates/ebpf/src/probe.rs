//! Reports whether this machine can run the plane, as text.
//!
//! Invariant: only loading the programs decides whether the plane runs. A version number decides nothing,
//! because vendors add features to old kernels, and a verifier may refuse a program on a kernel with every
//! feature.

use crate::error::{Result, unsupported};
use crate::kernel_release::release;
use crate::object;
use crate::tc::has_tcx;
use libbpf_rs::btf::{Btf, types::Func};
use libbpf_rs::{MapHandle, MapType};
use std::sync::OnceLock;

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

/// Checks whether this process can open the plane. The answer is cached, because it does not change
/// and loading the programs takes up to seconds.
///
/// # Errors
/// The reason.
pub fn available() -> Result<(), String> {
    static LOADS: OnceLock<Result<(), String>> = OnceLock::new();
    rights().map_err(|error| error.to_string())?;
    let load =
        || object::create(object::buckets_for(1), 0, true).map(drop).map_err(|error| error.to_string());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn availability_equals_the_result_of_opening_a_plane() {
        let options = crate::Options { fdb_capacity: 1, whole: true, ..crate::Options::new("probe") };
        let opened = crate::EbpfPlane::open_private(&options).map(drop).map_err(|error| error.to_string());
        assert_eq!(available(), opened);
    }
}
