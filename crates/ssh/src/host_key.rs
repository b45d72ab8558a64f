//! The private key of the switch, Ed25519 (RFC 8709), in the form of OpenSSH's files. It is made at the first start.
//!
//! Invariant: the file has mode 0600 from its first byte on, and is complete or absent.

use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why there is no private key.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// The file cannot be read or written.
    #[error("host key {}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: io::Error,
    },
    /// Other users can read or replace the file.
    #[error("host key {}: mode {mode:03o} lets other users in: remove it, or set mode 600 if the key is still secret", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The permissions.
        mode: u32,
    },
    /// The file contains no valid key, or a key with a passphrase; or no key could be made.
    #[error("host key {}: {cause}; remove the file, and the server makes a new key", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: russh::keys::ssh_key::Error,
    },
}

/// Reads the key from `path`; makes one if there is no such file.
///
/// # Errors
/// When the file cannot be read or made, when other users have access to it, or when it contains no usable key.
pub fn load_or_make(path: &Path) -> Result<PrivateKey, HostKeyError> {
    let file = |cause| HostKeyError::File { path: path.into(), cause };
    let key = |cause| HostKeyError::Key { path: path.into(), cause };
    match fs::metadata(path) {
        Ok(meta) if meta.mode() & 0o077 != 0 => {
            return Err(HostKeyError::Open { path: path.into(), mode: meta.mode() & 0o777 });
        }
        Ok(_) => {
            let text = fs::read_to_string(path).map_err(file)?;
            return PrivateKey::from_openssh(text).map_err(key);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(file(error)),
    }
    let made = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).map_err(key)?;
    let text = made.to_openssh(LineEnding::LF).map_err(key)?;
    write(path, text.as_bytes()).map_err(file)?;
    Ok(made)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once_and_kept_private() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("key");
        let made = load_or_make(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        assert_eq!(load_or_make(&path).expect("read").public_key(), made.public_key());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("opened");
        assert!(matches!(load_or_make(&path), Err(HostKeyError::Open { mode: 0o644, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("closed");
        fs::write(&path, "no key").expect("written");
        assert!(matches!(load_or_make(&path), Err(HostKeyError::Key { .. })));
        let missing = directory.path().join("no/directory/key");
        assert!(matches!(load_or_make(&missing), Err(HostKeyError::File { .. })));
    }
}
