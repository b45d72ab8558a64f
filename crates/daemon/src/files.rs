//! Writes files so that a crash leaves the old or the new content, never a part.

use crate::faults;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file, directory or socket that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", path.display())]
pub struct FileError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

impl FileError {
    /// Adds the path to the system's reason.
    pub fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        move |cause| Self { path: path.to_owned(), cause }
    }
}

/// Replaces `path` atomically and durably: writes a new file, syncs it, renames it into place, and
/// syncs the directory. A symbolic link is followed and stays.
///
/// # Errors
/// The system's; the old file then still exists.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let new = parent.join(format!(".{name}.{}.new", std::process::id()));
    let result = write_synced(&new, bytes).and_then(|()| fs::rename(&new, &path));
    if result.is_err() {
        let _ = fs::remove_file(&new);
    }
    result?;
    File::open(parent)?.sync_all()
}

/// Replaces `path` atomically, for files that need not survive a crash of the machine.
///
/// # Errors
/// The system's; the old file then still exists.
pub fn replace_quickly(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    fs::rename(&new, path)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    faults::stall("fsync");
    file.sync_all()
}

/// Creates one directory; an existing one is left as it is.
///
/// # Errors
/// The system's, also when the parent directory does not exist.
pub fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

/// Reads a text file of at most `limit` bytes.
///
/// # Errors
/// The system's, or that it is too long or not UTF-8 (with the line of the first invalid byte).
pub fn read_text(path: &Path, limit: usize) -> io::Result<String> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    if fs::metadata(path)?.is_dir() {
        return Err(wrong("is a directory".into()));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(wrong(format!("longer than {limit} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = valid.len() - valid.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) + 1;
        wrong(format!("line {line}, column {column}: not UTF-8 text"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_and_reads() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        for text in ["one\n", "two\n", ""] {
            replace(&path, text.as_bytes()).expect("written");
            assert_eq!(read_text(&path, 10).expect("read"), text);
        }
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1, "nothing is left behind");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        replace(&link, b"three").expect("written");
        assert_eq!(read_text(&path, 10).expect("read"), "three");
        assert!(replace(&dir.path().join("no/such"), b"").is_err());
    }

    #[test]
    fn bad_text() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        fs::write(&path, b"ok\nx\xff").expect("written");
        assert_eq!(
            read_text(&path, 10).expect_err("no text").to_string(),
            "line 2, column 2: not UTF-8 text"
        );
        assert_eq!(read_text(&path, 4).expect_err("long").to_string(), "longer than 4 bytes");
    }
}
