//! Remembers which kernel has accepted every eBPF program.
//!
//! `--plane auto` chooses by loading, and a kernel may accept the program that bridges but not the one that routes. So the
//! first start on a kernel loads all programs, although the switch may need only some of them. Their verification takes
//! most of a start; later starts on the same build of the kernel load the programs that they need. That a kernel has accepted
//! them does not depend on the instance, so the file is also in the directory that the state directories of all instances
//! are in: the switches of a lab, which are new instances, start as quickly. Under systemd an instance may not write there.

use crate::files;
use crate::paths::Paths;
use lanyard_ebpf::{EbpfPlane, Options};
use lanyard_plane::PlaneError;
use std::path::PathBuf;

/// Opens the plane on a kernel that accepts every program.
///
/// # Errors
/// When the plane cannot be opened, or the kernel refuses a program.
pub(crate) fn open(options: &Options, paths: &Paths) -> Result<EbpfPlane, PlaneError> {
    let (files, mark) = (files(paths), mark());
    let holds = |file: &PathBuf| std::fs::read_to_string(file).ok() == mark;
    let accepted = mark.is_some() && std::env::var_os(LOAD_ALL).is_none() && files.iter().any(holds);
    let plane = EbpfPlane::open(&Options { whole: !accepted, ..options.clone() })?;
    if let (true, false, Some(mark)) = (plane.is_whole(), accepted, mark) {
        for file in &files {
            // Without the file the next start takes longer, and nothing else changes.
            let _ = files::replace_quickly(file, mark.as_bytes());
        }
    }
    Ok(plane)
}

/// If this variable is in the environment, a start loads every program as the first start on a kernel does.
const LOAD_ALL: &str = "LANYARD_LOAD_ALL";

/// The paths of the files, which persist across reboots: one for this instance, one for all instances of the machine. The
/// second one begins with a dot, as no instance name does.
fn files(paths: &Paths) -> Vec<PathBuf> {
    let of_all = paths.state.parent().map(|parent| parent.join(".accepted"));
    [paths.state.join("accepted")].into_iter().chain(of_all).collect()
}

/// The content of the file: the programs, and the kernel with the compiler and the time of its build.
fn mark() -> Option<String> {
    let kernel = std::fs::read_to_string("/proc/version").ok()?;
    Some(format!("{:016x} {kernel}", lanyard_ebpf::fingerprint()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_on_a_kernel_loads_every_program() {
        if let Err(why) = lanyard_ebpf::available() {
            println!("skipped: {why}");
            return;
        }
        let done = lanyard_netdev::netns::run_in_new(|| {
            let directory = tempfile::tempdir().expect("a directory");
            let paths = Paths { run: directory.path().join("sw1"), state: directory.path().join("state") };
            for made in [&paths.run, &paths.state] {
                std::fs::create_dir(made).expect("a directory");
            }
            let instance = format!("accepted-{}", std::process::id());
            let options =
                Options { state_dir: paths.run.clone(), fdb_capacity: 1000, ..Options::new(&instance) };
            let start = || {
                let mut plane = open(&options, &paths).expect("opened");
                let whole = plane.is_whole();
                lanyard_plane::Plane::detach(&mut plane).expect("detached");
                whole
            };
            assert!(start(), "the first start");
            assert!(!start(), "a later start");
            let files = files(&paths);
            let (own, of_all) = (&files[0], &files[1]);
            std::fs::remove_file(own).expect("removed");
            assert!(!start(), "another instance");
            std::fs::write(of_all, "0123456789abcdef another kernel\n").expect("written");
            assert!(start(), "on another kernel");
            std::fs::remove_file(of_all).expect("removed");
            assert!(!start(), "an instance that may not write the file of all");
        });
        if let Err(why) = done {
            println!("skipped: no network namespace can be made ({why})");
        }
    }
}
