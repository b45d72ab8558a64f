//! Faults that tests inject into a running daemon: a slow disk, slow netlink, a system that has no
//! thread left.
//!
//! Only builds with debug assertions look for faults, and only where `LANYARD_TEST_FAULTS` names a
//! directory. A file there is a fault, named after its place: `fsync` and `netlink` contain how
//! many milliseconds each call at that place takes, for as long as the file exists; with `thread`
//! the protocol thread cannot be started.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// Waits where a test wants this place to be slow.
pub(crate) fn stall(place: &str) {
    let Some(directory) = directory() else { return };
    if let Some(Ok(ms)) = content(place).map(|text| text.trim().parse()) {
        // The test waits for it.
        let _ = std::fs::write(directory.join(place).with_extension("began"), "");
        std::thread::sleep(Duration::from_millis(ms));
    }
}

/// True where a test wants this place to fail.
pub(crate) fn fails(place: &str) -> bool {
    content(place).is_some()
}

fn content(place: &str) -> Option<String> {
    std::fs::read_to_string(directory()?.join(place)).ok()
}

fn directory() -> Option<&'static PathBuf> {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    if !cfg!(debug_assertions) {
        return None;
    }
    DIRECTORY.get_or_init(|| std::env::var_os("LANYARD_TEST_FAULTS").map(PathBuf::from)).as_ref()
}
