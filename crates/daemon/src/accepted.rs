//! Remembers that the running kernel accepts every eBPF program.
//!
//! `--plane auto` chooses by loading, and a kernel may accept the program that bridges but not the one that routes. So the
//! first start after a boot loads all programs, although the switch may need only some of them. Their verification takes
//! most of a start; later starts load the programs that they need.

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
    let (file, mark) = (file(paths), mark());
    let accepted = mark.is_some() && std::fs::read_to_string(&file).ok() == mark;
    let plane = EbpfPlane::open(&Options { whole: !accepted, ..options.clone() })?;
    if let (true, false, Some(mark)) = (plane.is_whole(), accepted, mark) {
        // Without the file the next start takes longer, and nothing else changes.
        let _ = files::replace_quickly(&file, mark.as_bytes());
    }
    Ok(plane)
}

/// The file, which all instances use. No instance has a name that begins with a dot.
fn file(paths: &Paths) -> PathBuf {
    paths.run.parent().unwrap_or(&paths.run).join(".accepted")
}

/// The content of the file: the kernel's boot and the programs.
fn mark() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{} {:016x}\n", boot.trim(), lanyard_ebpf::fingerprint()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_instances_use_one_file_that_is_no_instance() {
        let run = |instance: &str| PathBuf::from("/run/lanyard").join(instance);
        let path = |instance| file(&Paths { run: run(instance), state: PathBuf::from("/var/lib/lanyard") });
        assert_eq!(path("sw1"), path("sw2"));
        let name = path("sw1").file_name().and_then(|name| name.to_str().map(str::to_owned)).expect("a name");
        assert!(crate::paths::check_instance(&name).is_err(), "{name}");
    }

    #[test]
    fn the_first_start_after_a_boot_loads_every_program() {
        if let Err(why) = lanyard_ebpf::available() {
            println!("skipped: {why}");
            return;
        }
        let done = lanyard_netdev::netns::run_in_new(|| {
            let directory = tempfile::tempdir().expect("a directory");
            let paths = Paths { run: directory.path().join("sw1"), state: directory.path().join("state") };
            std::fs::create_dir(&paths.run).expect("the run directory");
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
            std::fs::write(file(&paths), "another boot 0123456789abcdef\n").expect("written");
            assert!(start(), "after a boot");
        });
        if let Err(why) = done {
            println!("skipped: no network namespace can be made ({why})");
        }
    }
}
