//! How a refusal by the kernel becomes a [`PlaneError`].

use lanyard_plane::PlaneError;
use std::io;

/// The plane's name, in errors and capabilities.
pub(crate) const PLANE: &str = "ebpf";

pub(crate) type Result<T, E = PlaneError> = std::result::Result<T, E>;

/// While `doing`, the system answered `cause`.
pub(crate) fn system(doing: impl Into<String>, cause: impl ToString) -> PlaneError {
    PlaneError::System { what: doing.into(), cause: cause.to_string() }
}

/// The plane can't do `what`, the end of a sentence that begins "the ebpf plane cannot".
pub(crate) fn unsupported(what: impl Into<String>) -> PlaneError {
    PlaneError::Unsupported { plane: PLANE, what: what.into() }
}

/// What a libbpf call answered: negative is minus an error number.
pub(crate) fn check(answer: i32) -> io::Result<i32> {
    if answer < 0 { Err(io::Error::from_raw_os_error(-answer)) } else { Ok(answer) }
}

/// Adds what was being done to an error.
pub(crate) trait Doing<T> {
    /// While `doing`.
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: ToString> Doing<T> for std::result::Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| system(doing(), cause))
    }
}
