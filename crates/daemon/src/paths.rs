//! The paths of an instance's files.
//!
//! Invariant: client and daemon determine the same directories independently. Files that must outlive the
//! daemon but not a reboot are in the run directory; files that must outlive a reboot are in the state
//! directory.

use crate::files::FileError;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directories of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `lanyard/INSTANCE` below the first of these directories where it can be created: `/run` (root only),
    /// `$XDG_RUNTIME_DIR`, `lanyard-UID` in the directory for temporary files.
    pub run: PathBuf,
    /// `/var/lib/lanyard/INSTANCE` if the run directory is below `/run/lanyard`; otherwise `lanyard/INSTANCE`
    /// below `$XDG_STATE_HOME` or `~/.local/state`.
    pub state: PathBuf,
}

/// Longest instance name in bytes: the path of the control socket must fit into the 108 bytes of a Unix
/// socket address.
pub const MAX_INSTANCE: usize = 64;

/// Directories next to those of instances: the bpffs with the pins, and the labs that are up.
const INTERNAL: [&str; 2] = ["bpf", "labs"];

/// The error in an instance name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstanceNameError {
    /// It is empty or too long, begins with a dot or a dash, or has other characters.
    #[error(
        "instance {0:?}: 1 to {MAX_INSTANCE} letters, digits, '-', '_' and '.', not starting with '.' or '-'"
    )]
    Malformed(String),
    /// A directory of Lanyard's own has this name.
    #[error("instance {0:?}: /run/lanyard/{0} is Lanyard's own; choose another name")]
    Internal(String),
}

/// Why there is no run directory.
#[derive(Debug, thiserror::Error)]
pub enum RunDirectoryError {
    /// It cannot be created or examined.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another user owns it, or it is no directory.
    #[error("{}: not a directory of this user", .0.display())]
    Foreign(PathBuf),
    /// Other users could replace its files.
    #[error("{}: writable by others", .0.display())]
    Writable(PathBuf),
    /// No place for one is known.
    #[error("there is no place for a run directory")]
    NoPlace,
}

/// Checks an instance name: letters, digits, `-`, `_` and `.`, not starting with a dot or a dash.
///
/// # Errors
/// The rule that the name violates.
pub fn check_instance(name: &str) -> Result<(), InstanceNameError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > MAX_INSTANCE || !name.chars().all(fine) || name.starts_with(['.', '-'])
    {
        return Err(InstanceNameError::Malformed(name.to_owned()));
    }
    if INTERNAL.contains(&name) {
        return Err(InstanceNameError::Internal(name.to_owned()));
    }
    Ok(())
}

impl Paths {
    /// The directories of `instance` for a daemon; creates them.
    ///
    /// # Errors
    /// When no run directory can be created, naming the last one tried.
    pub fn make(instance: &str) -> Result<Self, RunDirectoryError> {
        let mut failure = RunDirectoryError::NoPlace;
        for root in run_roots() {
            let run = root.join("lanyard").join(instance);
            match make_private(&run) {
                Ok(()) => return Ok(Self { run, state: make_state(&root, instance) }),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// The directories of `instance` for a client: those of a running daemon, or those that a
    /// daemon would create.
    #[must_use]
    pub fn find(instance: &str) -> Self {
        let candidates: Vec<PathBuf> = run_roots().map(|root| root.join("lanyard").join(instance)).collect();
        let made = candidates.iter().find(|run| run.join(SOCKET).exists());
        let run = made.or_else(|| candidates.iter().find(|run| run.exists())).or(candidates.first());
        let run = run.cloned().unwrap_or_default();
        let state = state_root(&run).join(instance);
        Self { run, state }
    }

    /// Both directories below `directory`, for tests.
    #[must_use]
    pub fn below(directory: &Path) -> Self {
        Self { run: directory.join("run"), state: directory.join("state") }
    }
    /// The name of the instance.
    #[must_use]
    pub fn instance(&self) -> String {
        self.run.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
    /// The control socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run.join(SOCKET)
    }
    /// The control socket of `platform socket group`, in a directory that every user may enter.
    #[must_use]
    pub fn group_socket(&self) -> PathBuf {
        let instance = self.instance();
        let directory = match self.run.parent().filter(|root| root.ends_with("lanyard")) {
            Some(root) => root.with_file_name("lanyard-cli"),
            None => self.run.with_file_name("lanyard-cli"),
        };
        directory.join(format!("{instance}.sock"))
    }
    /// The lock that a running daemon holds.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.run.join("lock")
    }
    /// The record of changes to netdevs.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        self.run.join("record.json")
    }
    /// The ports that the switch has shut down by itself.
    #[must_use]
    pub fn err_disabled(&self) -> PathBuf {
        self.run.join("err-disabled.json")
    }
    /// The hosts that the authenticator has let in.
    #[must_use]
    pub fn admitted(&self) -> PathBuf {
        self.run.join("admitted.json")
    }
    /// The learned addresses of ports with port security.
    #[must_use]
    pub fn secure_addresses(&self) -> PathBuf {
        self.run.join("secure-addresses.json")
    }
    /// The last running configuration. A daemon that finds a forwarding plane but no startup-config
    /// uses it.
    #[must_use]
    pub fn running_config(&self) -> PathBuf {
        self.run.join("running-config")
    }
    /// The file that names the instance's network namespace.
    #[must_use]
    pub fn namespace(&self) -> PathBuf {
        self.run.join("netns")
    }
    /// The base MAC address.
    #[must_use]
    pub fn base_mac(&self) -> PathBuf {
        self.state.join("base-mac")
    }
    /// The private key by which the SSH server proves to clients that it is this switch.
    #[must_use]
    pub fn ssh_host_key(&self) -> PathBuf {
        self.state.join("ssh_host_ed25519_key")
    }
    /// The directory of checkpoints.
    #[must_use]
    pub fn archive(&self) -> PathBuf {
        self.state.join("archive")
    }
    /// The directory of the log's files.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.state.join("log")
    }
    /// The startup-config, unless `--config` names another file.
    #[must_use]
    pub fn startup_config(&self) -> PathBuf {
        self.state.join("startup-config")
    }
}

const SOCKET: &str = "cli.sock";

/// The path of the socket of `platform socket group` below `/run/lanyard`; it exists only if the instance has
/// one.
#[must_use]
pub fn group_socket_of(instance: &str) -> PathBuf {
    Paths { run: Path::new("/run/lanyard").join(instance), state: PathBuf::new() }.group_socket()
}

/// The possible places of run directories, in order of preference.
fn run_roots() -> impl Iterator<Item = PathBuf> {
    let uid = nix::unistd::geteuid();
    let system = uid.is_root().then(|| PathBuf::from("/run"));
    let user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let last = std::env::temp_dir().join(format!("lanyard-{uid}"));
    system.into_iter().chain(user).chain([last])
}

fn state_root(run: &Path) -> PathBuf {
    if run.starts_with("/run/lanyard") {
        return "/var/lib/lanyard".into();
    }
    let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    named.or_else(home).unwrap_or_else(|| run.to_owned()).join("lanyard")
}

/// Creates the state directory. If that fails, the switch runs nevertheless: its files are then not
/// found, and an attempt to write one reports why.
fn make_state(root: &Path, instance: &str) -> PathBuf {
    let state = state_root(&root.join("lanyard")).join(instance);
    let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(&state);
    state
}

/// Creates `path` with mode 0700. Refuses a directory that another user owns or can write.
fn make_private(path: &Path) -> Result<(), RunDirectoryError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(FileError::at(path))?;
    let meta = fs::symlink_metadata(path).map_err(FileError::at(path))?;
    if !meta.is_dir() || meta.uid() != nix::unistd::geteuid().as_raw() {
        return Err(RunDirectoryError::Foreign(path.to_owned()));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(RunDirectoryError::Writable(path.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_names() {
        for name in ["default", "sw-1", "lab.sw_2", "0"] {
            assert_eq!(check_instance(name), Ok(()), "{name}");
        }
        for name in ["", ".", "..", "-x", "a/b", "a b", "é", "bpf", "labs", &"x".repeat(65)] {
            assert!(check_instance(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let open = dir.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("opened");
        assert!(matches!(make_private(&open), Err(RunDirectoryError::Writable(path)) if path == open));
        make_private(&dir.path().join("a/b")).expect("made");
        let file = dir.path().join("file");
        fs::write(&file, "").expect("written");
        let error = make_private(&file).expect_err("no directory");
        assert!(matches!(error, RunDirectoryError::File(_)), "{error}");
        let cause =
            std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
        assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::AlreadyExists));
    }
}
