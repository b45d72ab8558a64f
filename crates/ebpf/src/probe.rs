//! What this machine can do for the plane, in words.

use crate::attach::has_tcx;
use crate::error::{Result, unsupported};
use libbpf_rs::{MapHandle, MapType};
use std::fs;
use std::path::Path;

/// The oldest kernel: bpf_loop is of 5.17, XDP programs for frames in several buffers of 5.18.
const KERNEL: (u32, u32) = (5, 18);
/// The kernel from which a veth tells XDP of a tag it keeps out of band.
const KERNEL_TAGS: (u32, u32) = (6, 8);

/// Refuses, with the reason, where the plane cannot run.
pub(crate) fn required() -> Result<()> {
    match missing() {
        Some(why) => Err(unsupported(format!("run here: {why}"))),
        None => Ok(()),
    }
}

fn missing() -> Option<String> {
    let release = release();
    let (major, minor) = KERNEL;
    if version(&release) < KERNEL {
        return Some(format!("Linux {release} is older than {major}.{minor}"));
    }
    let opts = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as libbpf_rs::libbpf_sys::size_t,
        ..Default::default()
    };
    match MapHandle::create(MapType::Array, Some("ly_probe"), 4, 4, 1, &opts) {
        Ok(_) => None,
        Err(error) if error.kind() == libbpf_rs::ErrorKind::PermissionDenied => {
            Some("this process has no CAP_BPF in the first user namespace (run it as root)".into())
        }
        Err(error) => Some(format!("the kernel makes no BPF map ({error})")),
    }
}

/// What the plane needs and what this machine has of it, a line each; the first says whether it runs here.
#[must_use]
pub fn support() -> Vec<String> {
    let release = release();
    let mut lines = vec![match missing() {
        None => format!("available (Linux {release})"),
        Some(why) => format!("not available: {why}"),
    }];
    let yes = |on: bool, what: &str, without: &str| {
        if on { what.to_owned() } else { format!("no {what}: {without}") }
    };
    lines.push(yes(has_tcx(), "TCX", "TC runs as a clsact filter (TCX needs Linux 6.6 and CAP_NET_ADMIN)"));
    let btf = Path::new("/sys/kernel/btf/vmlinux").exists();
    lines.push(yes(btf, "kernel BTF", "XDP on veth ports is refused (CONFIG_DEBUG_INFO_BTF)"));
    let tags = version(&release) >= KERNEL_TAGS && btf;
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
}
