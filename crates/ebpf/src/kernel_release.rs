//! The kernel's release, to explain why it refuses the programs.
//!
//! Invariant: a release decides nothing, see [`crate::probe`].

use std::fs;

/// The oldest kernel from kernel.org that loads the programs: bpf_loop came with 5.17, XDP programs for frames in
/// several buffers with 5.18. The version is used to explain a refusal, not to decide.
const OLDEST: (u32, u32) = (5, 18);

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

/// The release of the running kernel, e.g. `6.18.1`.
pub(crate) fn release() -> String {
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
}
