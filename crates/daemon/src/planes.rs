//! Chooses and opens the plane: the one that `--plane` names, or the best one available.

use crate::paths::Paths;
use lanyard_ebpf::EbpfPlane;
use lanyard_plane::Plane;
use lanyard_soft::SoftPlane;

/// `--plane`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// `ebpf` if possible, otherwise `soft`.
    Auto,
    /// The eBPF plane in the kernel.
    Ebpf,
    /// The soft plane in this process.
    Soft,
    /// The virtual switch chip, which this version does not have.
    Asic,
}

/// A plane, and why it is not a better one.
pub struct Opened {
    /// The plane.
    pub plane: Box<dyn Plane>,
    /// Why `auto` did not choose `ebpf`.
    pub reason: Option<String>,
    /// True when an eBPF plane of this instance was forwarding already.
    pub was_live: bool,
}

/// Opens a plane for `instance`, and adopts an existing one.
///
/// # Errors
/// Why the requested plane is not available.
pub fn open(choice: Choice, instance: &str, paths: &Paths) -> Result<Opened, String> {
    let options = ebpf_options(instance, paths);
    let was_live = EbpfPlane::is_live(&options);
    let ebpf = || ebpf(&options);
    let opened = |plane| Opened { plane, reason: None, was_live };
    match choice {
        Choice::Ebpf => ebpf().map(opened).map_err(|reason| format!("plane ebpf is not available: {reason}")),
        Choice::Soft if was_live => Err(twice(instance)),
        Choice::Soft => soft().map(opened).map_err(|reason| format!("plane soft is not available: {reason}")),
        Choice::Asic => Err("plane asic is not available in this version".into()),
        Choice::Auto => match ebpf() {
            Ok(plane) => Ok(opened(plane)),
            Err(reason) if was_live => {
                Err(format!("plane ebpf is not available: {reason}; {}", twice(instance)))
            }
            Err(reason) => match soft() {
                Ok(plane) => Ok(Opened { plane, reason: Some(reason), was_live }),
                Err(soft) => Err(format!("no plane is available: ebpf: {reason}; soft: {soft}")),
            },
        },
    }
}

/// How the eBPF plane of `instance` is opened.
pub(crate) fn ebpf_options(instance: &str, paths: &Paths) -> lanyard_ebpf::Options {
    lanyard_ebpf::Options { state_dir: paths.run.clone(), ..lanyard_ebpf::Options::new(instance) }
}

/// Why the soft plane is refused while an eBPF plane is forwarding, and what to do.
fn twice(instance: &str) -> String {
    format!(
        "plane soft is refused, because the eBPF plane of instance {instance} is forwarding and every frame would be \
         forwarded twice: start with `--plane ebpf` and the rights it needs (CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON), or \
         remove that plane first: `lanyard detach --instance {instance}`"
    )
}

fn ebpf(options: &lanyard_ebpf::Options) -> Result<Box<dyn Plane>, String> {
    let plane = EbpfPlane::open(options).map_err(|error| error.to_string())?;
    Ok(Box::new(plane))
}

fn soft() -> Result<Box<dyn Plane>, String> {
    let plane = SoftPlane::new().map_err(|error| error.to_string())?;
    Ok(Box::new(plane))
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
    fn a_chip_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let paths = Paths::below(directory.path());
        let error = open(Choice::Asic, "lanyard-test-absent", &paths).map(drop).expect_err("there is none");
        assert_eq!(error.to_string(), "plane asic is not available in this version");
    }

    #[test]
    fn a_second_plane_is_refused_with_the_way_out() {
        let text = twice("sw1");
        for part in ["instance sw1 is forwarding", "--plane ebpf", "lanyard detach --instance sw1"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
