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
    let new = beside(&path, "new")?;
    let result = write_synced(&new, bytes).and_then(|()| rename(&new, &path));
    if result.is_err() {
        let _ = fs::remove_file(&new);
    }
    result?;
    sync_directory(&path)
}

/// Replaces `path` like [`replace`], and keeps its previous content beside it in [`previous`]. If the content is the same, both
/// files stay as they are.
///
/// # Errors
/// The system's; the old file then still exists. Its previous content may have replaced that of an earlier one.
pub fn replace_and_keep(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let held = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return replace(&path, bytes),
        held => held?,
    };
    if held == bytes {
        return Ok(());
    }
    let (new, old) = (beside(&path, "new")?, beside(&path, "old")?);
    // Both files are complete on the disk before either name changes, so a full disk changes nothing.
    let result = write_synced(&new, bytes)
        .and_then(|()| write_synced(&old, &held))
        .and_then(|()| rename(&old, &previous(&path)))
        .and_then(|()| rename(&new, &path));
    if result.is_err() {
        let _ = fs::remove_file(&new);
        let _ = fs::remove_file(&old);
    }
    result?;
    sync_directory(&path)
}

/// The file with the previous content of `path`.
#[must_use]
pub fn previous(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".previous");
    name.into()
}

/// A temporary file in the directory of `path`.
fn beside(path: &Path, suffix: &str) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.{}.{suffix}", std::process::id())))
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    faults::error("rename")?;
    fs::rename(from, to)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
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
    faults::error("write")?;
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
    fn the_previous_content_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        let held = || [&path, &previous(&path)].map(|path| fs::read_to_string(path).unwrap_or_default());
        replace_and_keep(&path, b"one").expect("written");
        assert_eq!(held(), ["one", ""]);
        replace_and_keep(&path, b"two").expect("written");
        replace_and_keep(&path, b"two").expect("nothing to write");
        assert_eq!(held(), ["two", "one"]);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        replace_and_keep(&link, b"three").expect("written");
        assert_eq!(held(), ["three", "two"]);
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 3, "nothing is left behind");
    }

    /// A disk that is full, a file system that is read-only, or an error of the device, at each step.
    #[test]
    fn a_failure_leaves_the_old_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        replace_and_keep(&path, b"one").expect("written");
        for place in ["write", "rename"] {
            for number in [libc::ENOSPC, libc::EROFS, libc::EIO] {
                let fault = faults::inject(place, number);
                for replace in [replace, replace_and_keep] {
                    let error = replace(&path, b"two").expect_err("refused");
                    assert_eq!(error.raw_os_error(), Some(number), "{place}");
                }
                drop(fault);
                assert_eq!(fs::read_to_string(&path).expect("read"), "one", "{place}");
                assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1, "{place}");
            }
        }
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
