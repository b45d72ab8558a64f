//! Test runs with the frame in the form in which the kernel presents it to TC: the outermost tag out of band.
//!
//! Read first: `bpf/present.bpf.c`, the program that moves the tag and jumps to the program under test.

use crate::embedded::PRESENT;
use crate::error::{Doing, Result, system};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The program that moves the tag and then jumps to another one.
#[derive(Debug)]
pub(crate) struct OutOfBand {
    /// The program that a test run starts.
    pub program: OwnedFd,
    /// The map with the program to jump to. It is kept open, because closing it empties it.
    _presented: MapHandle,
}

impl OutOfBand {
    /// Loads the program, which will jump to `next`.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub(crate) fn before(next: &OwnedFd) -> Result<Self> {
        let doing = "loading the program that moves a test frame's tag";
        let failed = |error: libbpf_rs::Error| system(doing, error);
        let file = PRESENT.object()?;
        let open = ObjectBuilder::default().name("present").and_then(|b| b.open_memory(file.bytes()));
        let mut object = open.and_then(libbpf_rs::OpenObject::load).map_err(failed)?;
        let presented = object.maps_mut().next().ok_or_else(|| system(doing, "the object has no map"))?;
        let presented = MapHandle::try_from(&presented).map_err(failed)?;
        let fd = next.as_raw_fd() as u32;
        presented.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        let program = object.progs_mut().next().ok_or_else(|| system(doing, "the object has no program"))?;
        let program = program.as_fd().try_clone_to_owned().doing(|| doing.into())?;
        Ok(Self { program, _presented: presented })
    }
}
