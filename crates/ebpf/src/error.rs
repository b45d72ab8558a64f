//! Converts refusals by the kernel to [`PlaneError`].

use lanyard_plane::PlaneError;
use std::io;

/// The plane's name, in errors and capabilities.
pub(crate) const PLANE: &str = "ebpf";

pub(crate) type Result<T, E = PlaneError> = std::result::Result<T, E>;

/// The error for the system's answer `cause` to the operation `doing`.
pub(crate) fn system(doing: impl Into<String>, cause: impl ToString) -> PlaneError {
    PlaneError::System { what: doing.into(), cause: cause.to_string() }
}

/// The error for an operation that the plane does not support: `what` ends a sentence that begins "the ebpf
/// plane cannot".
pub(crate) fn unsupported(what: impl Into<String>) -> PlaneError {
    PlaneError::Unsupported { plane: PLANE, what: what.into() }
}

/// Converts the return value of a libbpf call: a negative value is minus an error number.
pub(crate) fn check(answer: i32) -> io::Result<i32> {
    if answer < 0 { Err(io::Error::from_raw_os_error(-answer)) } else { Ok(answer) }
}

/// Adds the name of the operation to an error.
pub(crate) trait Doing<T> {
    /// Adds `doing`, the operation.
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: ToString> Doing<T> for std::result::Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| system(doing(), cause))
    }
}
