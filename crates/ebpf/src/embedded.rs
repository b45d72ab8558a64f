//! The eBPF objects that `build.rs` compiles, compressed within this library: most of an object is debug information for the
//! verifier (BTF), which compresses to a fifth.

use crate::error::{Doing, Result, system};
use libbpf_rs::{MapCore, MapHandle, ObjectBuilder, OpenObject};
use miniz_oxide::inflate::decompress_slice_iter_to_slice;
use std::mem::size_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use zerocopy::IntoBytes;

/// An embedded object file: its size in bytes (u64, little endian), then the file by DEFLATE (RFC 1951).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Embedded(&'static [u8]);

/// The file of [`LANYARD`], if it is in use.
static PLANE: Mutex<Weak<Object>> = Mutex::new(Weak::new());

/// The programs of the plane. Loads that run at the same time share the file, which is a megabyte.
///
/// # Errors
/// As [`Embedded::object`].
pub(crate) fn plane_object() -> Result<Arc<Object>> {
    let mut held = PLANE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(object) = held.upgrade() {
        return Ok(object);
    }
    let object = Arc::new(LANYARD.object()?);
    *held = Arc::downgrade(&object);
    Ok(object)
}

/// The programs of the plane.
pub(crate) const LANYARD: Embedded =
    Embedded(include_bytes!(concat!(env!("OUT_DIR"), "/lanyard.bpf.o.deflate")));
/// The program that prepares frames for test runs.
pub(crate) const PRESENT: Embedded =
    Embedded(include_bytes!(concat!(env!("OUT_DIR"), "/present.bpf.o.deflate")));
/// The programs that test whether a port takes frames from XDP.
pub(crate) const XDP_PROBE: Embedded =
    Embedded(include_bytes!(concat!(env!("OUT_DIR"), "/xdp_probe.bpf.o.deflate")));
/// The programs of a chip's CPU port.
pub(crate) const CPUPORT: Embedded =
    Embedded(include_bytes!(concat!(env!("OUT_DIR"), "/cpuport.bpf.o.deflate")));

/// An object file, on the boundary of 8 bytes that libelf requires.
pub(crate) struct Object {
    words: Vec<u64>,
    size: usize,
}

impl Object {
    /// The file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.size]
    }
}

impl Embedded {
    /// The compressed file.
    pub(crate) const fn compressed(self) -> &'static [u8] {
        self.0
    }

    /// Decompresses the file.
    ///
    /// # Errors
    /// When the program's own data is damaged.
    pub(crate) fn object(self) -> Result<Object> {
        let damaged =
            || system("decompressing the eBPF programs", "the program file is damaged: install it again");
        let (size, deflated) = self.0.split_first_chunk().ok_or_else(damaged)?;
        let size = u64::from_le_bytes(*size) as usize;
        let mut words = vec![0_u64; size.div_ceil(size_of::<u64>())];
        let bytes = &mut words.as_mut_bytes()[..size];
        let inflated = decompress_slice_iter_to_slice(bytes, std::iter::once(deflated), false, true);
        if inflated != Ok(size) {
            return Err(damaged());
        }
        Ok(Object { words, size })
    }

    /// Loads all programs of an object. `doing` begins the messages of errors.
    ///
    /// # Errors
    /// When the program's own data is damaged, or the kernel refuses a map or a program.
    pub(crate) fn load(self, doing: &str) -> Result<Loaded<'_>> {
        let file = self.object()?;
        let open = ObjectBuilder::default().open_memory(file.bytes());
        let object = open.and_then(OpenObject::load).doing(|| doing.into())?;
        Ok(Loaded { object, doing })
    }
}

/// A loaded object.
pub(crate) struct Loaded<'a> {
    object: libbpf_rs::Object,
    doing: &'a str,
}

impl Loaded<'_> {
    /// The map of this name.
    ///
    /// # Errors
    /// When there is none, or the process may have no more descriptors.
    pub(crate) fn map(&mut self, name: &str) -> Result<MapHandle> {
        let found = self.object.maps_mut().find(|map| map.name() == name);
        let map = found.ok_or_else(|| system(self.doing, format!("the object has no map {name}")))?;
        MapHandle::try_from(&*map).doing(|| self.doing.into())
    }

    /// The program of this name.
    ///
    /// # Errors
    /// As [`Loaded::map`].
    pub(crate) fn program(&mut self, name: &str) -> Result<OwnedFd> {
        let found = self.object.progs_mut().find(|program| program.name() == name);
        let program = found.ok_or_else(|| system(self.doing, format!("the object has no program {name}")))?;
        program.as_fd().try_clone_to_owned().doing(|| self.doing.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_an_elf_file() {
        for embedded in [LANYARD, PRESENT, XDP_PROBE, CPUPORT] {
            let object = embedded.object().expect("decompressed");
            assert_eq!(object.bytes()[..4], *b"\x7fELF");
            assert!(object.bytes().as_ptr().cast::<u64>().is_aligned());
            assert!(embedded.compressed().len() < object.bytes().len() / 2);
        }
    }

    #[test]
    fn damage_is_an_error() {
        assert!(Embedded(&[1, 0, 0]).object().is_err());
        let half = LANYARD.compressed().len() / 2;
        assert!(Embedded(&LANYARD.compressed()[..half]).object().is_err());
    }
}
