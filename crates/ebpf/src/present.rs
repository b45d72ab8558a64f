//! Test runs with the frame in the form in which the kernel presents it to TC: the outermost tag out of band.
//!
//! Read first: `bpf/present.bpf.c`, the program that moves the tag and jumps to the program under test.

use crate::embedded::PRESENT;
use crate::error::{Doing, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::os::fd::{AsRawFd, OwnedFd};

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
        let mut object = PRESENT.load(doing)?;
        let (presented, program) = (object.map("presented")?, object.program("present_tag_out_of_band")?);
        let fd = next.as_raw_fd() as u32;
        presented.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).doing(|| doing.into())?;
        Ok(Self { program, _presented: presented })
    }
}
