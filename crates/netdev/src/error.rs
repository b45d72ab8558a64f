//! The one error: what was being done, to which device, and the kernel's reason.

use crate::socket::Refusal;
use std::io;

/// Something the kernel refused, or could not be asked.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {}", self.reason())]
pub struct Error {
    doing: String,
    source: io::Error,
    extended: Option<String>,
}

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// While `doing` ("setting the MTU of sw1p3"), `source` happened.
    pub(crate) fn new(doing: impl Into<String>, source: io::Error) -> Self {
        Self { doing: doing.into(), source, extended: None }
    }
    /// While `doing`, the kernel said no.
    pub(crate) fn refused(doing: impl Into<String>, refusal: Refusal) -> Self {
        Self { doing: doing.into(), source: refusal.source, extended: refusal.extended }
    }
    /// What was being done.
    #[must_use]
    pub fn doing(&self) -> &str {
        &self.doing
    }
    /// The kernel's reason: its own words when it gave some, else the error number's.
    #[must_use]
    pub fn reason(&self) -> String {
        let code = match self.source.raw_os_error() {
            // The C library's text speaks of a transport endpoint, which is right for sockets only.
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
    /// The device, address, route or neighbour is not (or no longer) there.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(
            self.errno(),
            Some(libc::ENODEV | libc::ENXIO | libc::ENOENT | libc::ESRCH | libc::EADDRNOTAVAIL)
        )
    }
    /// It exists already.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }
    /// The device or the kernel cannot do this at all.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self.errno(), Some(libc::EOPNOTSUPP)) || self.source.kind() == io::ErrorKind::Unsupported
    }
    /// Not allowed: CAP_NET_ADMIN is missing.
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
