//! The error type of this crate: the operation, the device, and the kernel's reason.

use crate::socket::Refusal;
use std::io;

/// An operation that the kernel refused or that could not be requested.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {}", self.reason())]
pub struct Error {
    doing: String,
    source: io::Error,
    extended: Option<String>,
}

/// The result of the functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error that occurred while `doing` something ("setting the MTU of sw1p3").
    pub(crate) fn new(doing: impl Into<String>, source: io::Error) -> Self {
        Self { doing: doing.into(), source, extended: None }
    }
    /// The kernel's refusal of what `doing` describes.
    pub(crate) fn refused(doing: impl Into<String>, refusal: Refusal) -> Self {
        Self { doing: doing.into(), source: refusal.source, extended: refusal.extended }
    }
    /// The operation that failed.
    #[must_use]
    pub fn doing(&self) -> &str {
        &self.doing
    }
    /// The kernel's reason: its own text if it sent one, otherwise that of the error number.
    #[must_use]
    pub fn reason(&self) -> String {
        let code = match self.source.raw_os_error() {
            // The C library's text mentions a transport endpoint, which is right for sockets only.
            Some(libc::EOPNOTSUPP) => "Operation not supported".to_owned(),
            Some(errno) => nix::errno::Errno::from_raw(errno).desc().to_owned(),
            None => self.source.to_string(),
        };
        match &self.extended {
            Some(text) => format!("{} ({code})", text.trim_end_matches(['.', '\n'])),
            None => code,
        }
    }
    /// The error number, when the kernel answered with one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
    /// True if the device, address, route or neighbour does not exist (any more).
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(
            self.errno(),
            Some(libc::ENODEV | libc::ENXIO | libc::ENOENT | libc::ESRCH | libc::EADDRNOTAVAIL)
        )
    }
    /// True if the object exists already.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }
    /// True if the device or the kernel does not support the operation.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self.errno(), Some(libc::EOPNOTSUPP)) || self.source.kind() == io::ErrorKind::Unsupported
    }
    /// True if the right is missing (CAP_NET_ADMIN).
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.source.kind(), error.to_string())
    }
}
