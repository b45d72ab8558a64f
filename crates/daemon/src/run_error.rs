//! Why the daemon does not start or end, as `lanyard run` and `lanyard detach` print it.
//!
//! Invariant: each text starts with what was wrong and names its object; the cause is kept as the source.

use crate::client::ClientError;
use crate::commit::DetachError;
use crate::files::FileError;
use crate::instance::LockError;
use crate::kernel::KernelError;
use crate::paths::{InstanceNameError, RunDirectoryError};
use crate::planes::OpenError;
use lanyard_plane::PlaneError;
use std::io;
use std::path::PathBuf;

/// Why `lanyard run` does not start, or `lanyard detach` fails.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The instance cannot have this name.
    #[error(transparent)]
    Name(#[from] InstanceNameError),
    /// There is no run directory.
    #[error(transparent)]
    Directory(#[from] RunDirectoryError),
    /// Another daemon runs.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// There is no plane.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The plane refuses.
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// The kernel refuses.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A file or the control socket cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The running daemon does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Something could not be undone.
    #[error(transparent)]
    Detach(#[from] DetachError),
    /// A descriptor or a signal handler that the event loop needs cannot be created.
    #[error("{what}: {cause}")]
    System {
        /// The object that cannot be opened.
        what: &'static str,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The instance runs in another network namespace; an instance has only one.
    #[error("instance {instance} lives in another network namespace: go there with `{way}`")]
    Elsewhere {
        /// The instance.
        instance: String,
        /// The command that enters the namespace.
        way: String,
    },
    /// The plane forwards, and neither the startup-config nor the last running configuration can be read.
    #[error(
        "startup-config {}: {cause}; the plane is forwarding and stays as it is, but the last running configuration is \
         lost, too ({kept}): restore the startup-config, or remove the switch with `lanyard detach --instance {instance}`",
        startup.display()
    )]
    ConfigLost {
        /// The instance.
        instance: String,
        /// The startup-config.
        startup: PathBuf,
        /// Why it cannot be read.
        #[source]
        cause: io::Error,
        /// Why the last running configuration cannot be read.
        kept: FileError,
    },
    /// The running daemon has refused to be taken down, for this reason.
    #[error("{0}")]
    Refused(String),
    /// `detach` of a switch that does not exist.
    #[error("instance {instance}: there is no such switch ({})", run.display())]
    Absent {
        /// The instance.
        instance: String,
        /// Its run directory, which does not exist.
        run: PathBuf,
    },
    /// `detach` could neither open the plane nor remove it without opening it.
    #[error("{cause}; {removal}")]
    Stuck {
        /// Why the switch cannot be assembled.
        #[source]
        cause: Box<RunError>,
        /// Why the plane cannot be removed.
        removal: PlaneError,
    },
    /// The switch is detached, but its daemon still holds the lock.
    #[error("detached, but {0} and does not end")]
    GoesOn(#[source] LockError),
}

impl RunError {
    /// Adds what cannot be opened to the system's reason.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |cause| Self::System { what, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    #[test]
    fn the_cause_is_kept() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let error = RunError::system("netlink")(denied());
        assert_eq!(error.to_string(), "netlink: permission denied");
        assert!(error.source().is_some_and(|cause| cause.is::<io::Error>()));
        let kept = FileError::at("/run/lanyard/sw1/running-config".as_ref())(denied());
        let (instance, startup) = ("sw1".to_owned(), PathBuf::from("/etc/sw1.cfg"));
        let error = RunError::ConfigLost { instance, startup, cause: denied(), kept };
        assert_eq!(
            error.to_string(),
            "startup-config /etc/sw1.cfg: permission denied; the plane is forwarding and stays as it is, but the last \
             running configuration is lost, too (/run/lanyard/sw1/running-config: permission denied): restore the \
             startup-config, or remove the switch with `lanyard detach --instance sw1`"
        );
        assert!(error.source().is_some_and(|cause| cause.is::<io::Error>()));
    }
}
