//! Faults that tests inject into a running daemon: a slow disk, a disk that fails, slow netlink, a system that has no thread
//! left.
//!
//! Only builds with debug assertions look for faults, and only where `LANYARD_TEST_FAULTS` names a directory. A file there is a
//! fault, named after its place in the code. `fsync` and `netlink` contain the number of milliseconds by which each call at
//! that place is delayed, for as long as the file exists; while `thread` exists, the protocol thread cannot be started. `write`
//! and `rename` contain the number of the error with which these calls fail when a file is replaced, or `kill`: then the daemon
//! is killed there. Unit tests inject errors with `inject`.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// Waits if a test has injected a delay at this place.
pub(crate) fn stall(place: &str) {
    let Some(directory) = directory() else { return };
    if let Some(Ok(ms)) = content(place).map(|text| text.trim().parse()) {
        // This file tells the test that the delay has begun.
        let _ = std::fs::write(directory.join(place).with_extension("began"), "");
        std::thread::sleep(Duration::from_millis(ms));
    }
}

/// Fails, or kills the process, if a test has injected that at this place.
///
/// # Errors
/// The error that the test has injected.
pub(crate) fn error(place: &str) -> io::Result<()> {
    #[cfg(test)]
    if let Some(number) = tests::injected(place) {
        return Err(io::Error::from_raw_os_error(number));
    }
    let Some(fault) = content(place) else { return Ok(()) };
    if fault.trim() == "kill" {
        // The process ends at once, as at a loss of power: nothing is cleaned up.
        std::process::abort();
    }
    fault.trim().parse().map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
}

/// True if a test has injected a failure at this place.
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

#[cfg(test)]
pub(crate) use tests::inject;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    thread_local! {
        /// The error numbers by place. Each unit test has a thread of its own.
        static ERRORS: RefCell<BTreeMap<String, i32>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// A fault, which ends when this is dropped.
    pub(crate) struct Injected(String);

    impl Drop for Injected {
        fn drop(&mut self) {
            ERRORS.with_borrow_mut(|errors| errors.remove(&self.0));
        }
    }

    /// Makes a place fail with the error of this number, in this thread.
    pub(crate) fn inject(place: &str, number: i32) -> Injected {
        ERRORS.with_borrow_mut(|errors| errors.insert(place.to_owned(), number));
        Injected(place.to_owned())
    }
    /// The number of the error with which a place is to fail.
    pub(super) fn injected(place: &str) -> Option<i32> {
        ERRORS.with_borrow(|errors| errors.get(place).copied())
    }
}
