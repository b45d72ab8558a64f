//! Chooses and opens the plane: the one named by `--plane`, or the best one available.

use crate::accepted;
use crate::files::FileError;
use crate::paths::Paths;
use lanyard_driver::AsicPlane;
use lanyard_driver::chip::Place;
use lanyard_ebpf::EbpfPlane;
use lanyard_plane::{Plane, PlaneError};
use lanyard_soft::SoftPlane;
use std::path::{Path, PathBuf};

/// `--plane`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// `ebpf` if possible, otherwise `soft`.
    Auto,
    /// The eBPF plane in the kernel.
    Ebpf,
    /// The soft plane in this process.
    Soft,
    /// A switch chip, through its SDK.
    Asic,
}

/// The arguments of `--plane asic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chip {
    /// The platform file.
    pub platform: PathBuf,
    /// The netdevs to which the ports of a simulated chip are connected: `PORT=NETDEV`.
    pub wires: Vec<String>,
}

/// A plane, and the reason why it is not a better one.
pub struct Opened {
    /// The plane.
    pub plane: Box<dyn Plane>,
    /// The reason why `auto` did not choose `ebpf`.
    pub reason: Option<PlaneError>,
    /// True when a plane of this instance was forwarding already.
    pub was_live: bool,
}

/// Why no plane is opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The requested plane is not available.
    #[error("plane {plane} is not available: {cause}")]
    Unavailable {
        /// Its name.
        plane: &'static str,
        /// The reason.
        #[source]
        cause: PlaneError,
    },
    /// Another plane of this instance is forwarding already.
    #[error("{}", other_plane_live(.refused, .live, .instance))]
    OtherPlaneLive {
        /// The plane that is refused.
        refused: &'static str,
        /// The plane that is forwarding.
        live: &'static str,
        /// The instance.
        instance: String,
    },
    /// The eBPF plane of the instance is forwarding, and cannot be opened.
    #[error("plane ebpf is not available: {cause}; {}", other_plane_live("soft", "eBPF", .instance))]
    Live {
        /// The instance.
        instance: String,
        /// Why it cannot be opened.
        #[source]
        cause: PlaneError,
    },
    /// `--plane asic` without a platform file, although no earlier run has driven a chip.
    #[error("plane asic needs a platform: name its file with `--platform FILE`")]
    NoPlatform,
    /// The platform file does not exist, or the file that names the chip for the next run cannot be written.
    #[error("plane asic is not available: {0}")]
    ChipFile(#[source] FileError),
    /// `auto`, and neither plane can be had.
    #[error("no plane is available: ebpf: {ebpf}; soft: {soft}")]
    Neither {
        /// Why the eBPF plane cannot be had.
        ebpf: PlaneError,
        /// Why the soft plane cannot be had.
        #[source]
        soft: PlaneError,
    },
}

/// Opens a plane for `instance`, or adopts an existing one. `chip` is needed for a chip that no earlier run has driven.
///
/// # Errors
/// The reason why the requested plane is not available.
pub fn open(choice: Choice, chip: Option<&Chip>, instance: &str, paths: &Paths) -> Result<Opened, OpenError> {
    let options = ebpf_options(instance, paths);
    let was_live = EbpfPlane::is_live(&options);
    let ebpf = || EbpfPlane::open(&options).map(|plane| Box::new(plane) as Box<dyn Plane>);
    let soft = || SoftPlane::new().map(|plane| Box::new(plane) as Box<dyn Plane>);
    let opened = |plane| Opened { plane, reason: None, was_live };
    let unavailable = |plane| move |cause| OpenError::Unavailable { plane, cause };
    let refused =
        |refused, live| Err(OpenError::OtherPlaneLive { refused, live, instance: instance.to_owned() });
    let known = known_chip(paths);
    if let Some(chip) = chip.or(known.as_ref()) {
        return match choice {
            Choice::Asic if was_live => refused("asic", "eBPF"),
            Choice::Asic | Choice::Auto => asic(chip, instance, paths),
            Choice::Ebpf => refused("ebpf", "asic"),
            Choice::Soft => refused("soft", "asic"),
        };
    }
    match choice {
        Choice::Ebpf => ebpf().map(opened).map_err(unavailable("ebpf")),
        Choice::Soft if was_live => refused("soft", "eBPF"),
        Choice::Soft => soft().map(opened).map_err(unavailable("soft")),
        Choice::Asic => Err(OpenError::NoPlatform),
        Choice::Auto => match accepted::open(&options, paths) {
            Ok(plane) => Ok(opened(Box::new(plane))),
            Err(cause) if was_live => Err(OpenError::Live { instance: instance.to_owned(), cause }),
            Err(ebpf) => match soft() {
                Ok(plane) => Ok(Opened { plane, reason: Some(ebpf), was_live }),
                Err(soft) => Err(OpenError::Neither { ebpf, soft }),
            },
        },
    }
}

/// The chip that an earlier run of this instance has driven.
fn known_chip(paths: &Paths) -> Option<Chip> {
    let text = std::fs::read_to_string(chip_file(paths)).ok()?;
    let mut lines = text.lines();
    let platform = lines.next().filter(|line| !line.is_empty())?;
    Some(Chip { platform: platform.into(), wires: lines.map(str::to_owned).collect() })
}

/// The file that stores the chip of an instance: the first line is its platform file, the others are its
/// wires.
fn chip_file(paths: &Paths) -> PathBuf {
    paths.run.join("chip")
}

/// The socket of the chip that an instance drives, in its run directory. The default instance also uses a chip that was
/// started by hand, at the default socket of `lanyard asic`.
fn chip_socket(instance: &str, paths: &Paths) -> PathBuf {
    let own = paths.run.join("asic.sock");
    let shared = paths.run.parent().map(|all| all.join("asic.sock"));
    match shared.filter(|shared| instance == "default" && !own.exists() && shared.exists()) {
        Some(shared) => shared,
        None => own,
    }
}

fn asic(chip: &Chip, instance: &str, paths: &Paths) -> Result<Opened, OpenError> {
    let platform = std::fs::canonicalize(&chip.platform).map_err(chip_file_error(&chip.platform))?;
    let place = Place {
        socket: chip_socket(instance, paths),
        pid_file: paths.run.join("chip.pid"),
        log: paths.run.join("chip.log"),
        program: std::env::current_exe().ok(),
        platform: platform.clone(),
        wires: chip.wires.clone(),
    };
    let was_live = AsicPlane::is_live(&place);
    let options = lanyard_driver::Options { instance: instance.to_owned(), place, run: paths.run.clone() };
    let plane = AsicPlane::open(options).map_err(|cause| OpenError::Unavailable { plane: "asic", cause })?;
    let lines: Vec<String> =
        std::iter::once(platform.display().to_string()).chain(chip.wires.iter().cloned()).collect();
    let file = chip_file(paths);
    std::fs::write(&file, lines.join("\n") + "\n").map_err(chip_file_error(&file))?;
    Ok(Opened { plane: Box::new(plane), reason: None, was_live })
}

fn chip_file_error(path: &Path) -> impl Fn(std::io::Error) -> OpenError {
    move |error| OpenError::ChipFile(FileError::at(path)(error))
}

/// The options for opening the eBPF plane of `instance`.
pub(crate) fn ebpf_options(instance: &str, paths: &Paths) -> lanyard_ebpf::Options {
    lanyard_ebpf::Options { state_dir: paths.run.clone(), ..lanyard_ebpf::Options::new(instance) }
}

/// The message that a plane is refused because another one of the instance is forwarding, with the remedy.
fn other_plane_live(refused: &str, live: &str, instance: &str) -> String {
    let flag = live.to_lowercase();
    format!(
        "plane {refused} is refused, because the {live} plane of instance {instance} is forwarding and every frame would be \
         forwarded twice: start with `--plane {flag}` and the rights it needs (CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON), or \
         remove that plane first: `lanyard detach --instance {instance}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pins_of_an_instance_are_below_its_run_directory() {
        let paths = Paths::below("/somewhere".as_ref());
        let options = ebpf_options("sw1", &paths);
        assert_eq!(options.state_dir, paths.run);
        assert_eq!(options.instance, "sw1");
    }

    #[test]
    fn a_chip_needs_a_platform_that_exists() {
        let directory = tempfile::tempdir().expect("a directory");
        let paths = Paths::below(directory.path());
        let refused = |chip: Option<&Chip>| {
            open(Choice::Asic, chip, "lanyard-test-absent", &paths)
                .map(drop)
                .expect_err("there is none")
                .to_string()
        };
        assert!(refused(None).contains("--platform FILE"));
        let absent = Chip { platform: "/nowhere/platform.toml".into(), wires: Vec::new() };
        assert!(refused(Some(&absent)).contains("/nowhere/platform.toml: No such file"));
    }

    #[test]
    fn a_second_plane_is_refused_with_the_way_out() {
        let text = other_plane_live("soft", "eBPF", "sw1");
        for part in ["instance sw1 is forwarding", "--plane ebpf", "lanyard detach --instance sw1"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
