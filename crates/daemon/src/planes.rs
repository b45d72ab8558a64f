//! Which plane: what `--plane` says, or the best there is here.

use crate::paths::Paths;
use lanyard_ebpf::EbpfPlane;
use lanyard_plane::Plane;
use lanyard_soft::SoftPlane;

/// `--plane`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// `ebpf`, else `soft`.
    Auto,
    /// In the kernel.
    Ebpf,
    /// In this process.
    Soft,
    /// A virtual switch chip.
    Asic,
}

/// A plane, and why it is not a better one.
pub struct Opened {
    /// The plane.
    pub plane: Box<dyn Plane>,
    /// Why `auto` did not choose `ebpf`.
    pub reason: Option<String>,
}

/// Opens a plane for `instance`, adopting the one that is there.
///
/// # Errors
/// Why the plane that was asked for can't be had.
pub fn open(choice: Choice, instance: &str, paths: &Paths) -> Result<Opened, String> {
    let ebpf = || ebpf(instance, paths);
    let opened = |plane| Opened { plane, reason: None };
    match choice {
        Choice::Ebpf => ebpf().map(opened).map_err(|reason| format!("plane ebpf is not available: {reason}")),
        Choice::Soft => soft().map(opened).map_err(|reason| format!("plane soft is not available: {reason}")),
        Choice::Asic => Err("plane asic is not available in this version".into()),
        Choice::Auto => match ebpf() {
            Ok(plane) => Ok(opened(plane)),
            Err(reason) => match soft() {
                Ok(plane) => Ok(Opened { plane, reason: Some(reason) }),
                Err(soft) => Err(format!("no plane is available: ebpf: {reason}; soft: {soft}")),
            },
        },
    }
}

fn ebpf(instance: &str, paths: &Paths) -> Result<Box<dyn Plane>, String> {
    let options =
        lanyard_ebpf::Options { state_dir: paths.run.clone(), ..lanyard_ebpf::Options::new(instance) };
    let plane = EbpfPlane::open(&options).map_err(|error| error.to_string())?;
    Ok(Box::new(plane))
}

fn soft() -> Result<Box<dyn Plane>, String> {
    let plane = SoftPlane::new().map_err(|error| error.to_string())?;
    Ok(Box::new(plane))
}
