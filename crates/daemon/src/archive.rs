//! The archive: checkpoints of the configuration in numbered files.
//!
//! Invariant: a checkpoint is written whole or not at all, and never changed. At most [`CAPACITY`] are kept; the oldest is
//! removed after a new one has been written.

use crate::files;
use lanyard_cli::view::Checkpoint;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The number of checkpoints that are kept.
pub(crate) const CAPACITY: usize = 50;
/// The maximum number of directory entries that are examined. The directory is the switch's own.
const MAX_ENTRIES: usize = 10_000;
/// The maximum length of the first line of a checkpoint, in bytes.
const MAX_HEAD: u64 = 512;
/// The maximum length of a user's name in a checkpoint, in characters.
const MAX_USER: usize = 64;
/// The user of the checkpoint with which a daemon started.
const STARTUP: &str = "startup";
/// The end of the names of checkpoints' files.
const SUFFIX: &str = "cfg";

/// The checkpoints of an instance.
#[derive(Debug)]
pub(crate) struct Archive {
    directory: PathBuf,
    /// The checkpoints by number; `None` until the directory has been read.
    entries: Option<BTreeMap<u32, Checkpoint>>,
    /// The configuration with which the daemon started. It becomes a checkpoint just before the first change does. Without a
    /// change the daemon therefore writes nothing.
    start: Option<String>,
}

impl Archive {
    /// The archive in `directory`, which need not exist yet.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, entries: None, start: None }
    }
    /// Notes the configuration with which the daemon started.
    pub(crate) fn begin(&mut self, text: String) {
        self.start = Some(text);
    }
    /// The directory with the checkpoints.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
    /// The checkpoints, the oldest first.
    ///
    /// # Errors
    /// The system's, when the directory cannot be read.
    pub(crate) fn list(&mut self) -> io::Result<Vec<Checkpoint>> {
        Ok(self.entries()?.values().cloned().collect())
    }
    /// The configuration text of a checkpoint of at most `limit` bytes; `None` when there is none of this number.
    ///
    /// # Errors
    /// The system's, or that it is too long or not UTF-8.
    pub(crate) fn text(&mut self, number: u32, limit: usize) -> io::Result<Option<String>> {
        if !self.entries()?.contains_key(&number) {
            return Ok(None);
        }
        let text = files::read_text(&self.path(number), limit + MAX_HEAD as usize)?;
        Ok(Some(text.split_once('\n').map_or_else(String::new, |(_, text)| text.to_owned())))
    }
    /// Saves `text` as a checkpoint, unless the latest one is equal. Returns the number of the latest one.
    ///
    /// # Errors
    /// The system's; the archive is as before then.
    pub(crate) fn save(&mut self, text: &str, user: &str, time: &str) -> io::Result<u32> {
        if let Some(start) = self.start.take_if(|start| start != text)
            && let Err(error) = self.add(&start, STARTUP, time)
        {
            self.start = Some(start);
            return Err(error);
        }
        self.add(text, user, time)
    }

    fn add(&mut self, text: &str, user: &str, time: &str) -> io::Result<u32> {
        let latest = self.entries()?.keys().next_back().copied();
        if let Some(latest) = latest
            && self.text(latest, text.len()).is_ok_and(|held| held.as_deref() == Some(text))
        {
            return Ok(latest);
        }
        let exhausted = || io::Error::other("all numbers of checkpoints have been used");
        let number = latest.map_or(Some(1), |latest| latest.checked_add(1)).ok_or_else(exhausted)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let user: String = user.chars().filter(|c| !c.is_control() && *c != ',').take(MAX_USER).collect();
        let head = format!("! checkpoint {number}, {time}, by {user}\n");
        files::replace(&self.path(number), format!("{head}{text}").as_bytes())?;
        let entries = self.entries()?;
        entries.insert(number, Checkpoint { number, time: time.to_owned(), user });
        let mut removed = Vec::new();
        while entries.len() > CAPACITY {
            removed.extend(entries.pop_first().map(|(oldest, _)| oldest));
        }
        for oldest in removed {
            // A file that cannot be removed is found and removed again after the next start.
            let _ = fs::remove_file(self.path(oldest));
        }
        Ok(number)
    }

    fn path(&self, number: u32) -> PathBuf {
        self.directory.join(format!("{number}.{SUFFIX}"))
    }
    fn entries(&mut self) -> io::Result<&mut BTreeMap<u32, Checkpoint>> {
        let entries = match self.entries.take() {
            Some(entries) => entries,
            None => scan(&self.directory)?,
        };
        Ok(self.entries.insert(entries))
    }
}

/// Reads the checkpoints of a directory; other files are ignored.
fn scan(directory: &Path) -> io::Result<BTreeMap<u32, Checkpoint>> {
    let found = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        found => found?,
    };
    let mut entries = BTreeMap::new();
    for entry in found.take(MAX_ENTRIES) {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let number = stem.and_then(|stem| stem.parse().ok()).filter(|number: &u32| *number > 0);
        if let Some(number) = number.filter(|_| path.extension().is_some_and(|suffix| suffix == SUFFIX))
            && let Ok(Some(checkpoint)) = head(&path, number)
        {
            entries.insert(number, checkpoint);
        }
    }
    Ok(entries)
}

/// Reads the first line of a checkpoint; `None` when the file is not the checkpoint `number`.
fn head(path: &Path, number: u32) -> io::Result<Option<Checkpoint>> {
    let mut line = String::new();
    BufReader::new(File::open(path)?.take(MAX_HEAD)).read_line(&mut line)?;
    let parts = line.trim_end().strip_prefix("! checkpoint ").and_then(|rest| rest.split_once(", "));
    let parts =
        parts.filter(|(of, _)| *of == number.to_string()).and_then(|(_, rest)| rest.split_once(", by "));
    Ok(parts.map(|(time, user)| Checkpoint { number, time: time.to_owned(), user: user.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::inject;

    const TIME: &str = "2026-01-31T12:00:00.000Z";

    fn numbers(archive: &mut Archive) -> Vec<u32> {
        archive.list().expect("read").iter().map(|checkpoint| checkpoint.number).collect()
    }

    #[test]
    fn checkpoints_are_numbered_and_found_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state/archive");
        let mut archive = Archive::new(path.clone());
        archive.begin("hostname a\n".into());
        assert!(numbers(&mut archive).is_empty());
        assert_eq!(archive.save("hostname a\n", "ann", TIME).expect("saved"), 1);
        assert_eq!(archive.save("hostname b\n", "ann,\n", TIME).expect("saved"), 2);
        assert_eq!(archive.save("hostname b\n", "bob", TIME).expect("nothing new"), 2);
        let mut again = Archive::new(path.clone());
        again.begin("hostname c\n".into());
        let list = again.list().expect("read");
        assert_eq!((list[1].number, list[1].user.as_str(), list[1].time.as_str()), (2, "ann", TIME));
        assert_eq!(again.text(1, 100).expect("read").as_deref(), Some("hostname a\n"));
        assert_eq!(again.text(3, 100).expect("read"), None);
        // The configuration of the start precedes the first change of this daemon.
        assert_eq!(again.save("hostname d\n", "ann", TIME).expect("saved"), 4);
        assert_eq!(again.list().expect("read")[2].user, STARTUP);
    }

    #[test]
    fn the_oldest_are_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut archive = Archive::new(directory.path().to_owned());
        for number in 1..=CAPACITY as u32 + 3 {
            assert_eq!(archive.save(&format!("vlan {number}\n"), "ann", TIME).expect("saved"), number);
        }
        let kept: Vec<u32> = (4..=CAPACITY as u32 + 3).collect();
        assert_eq!(numbers(&mut archive), kept);
        assert_eq!(numbers(&mut Archive::new(directory.path().to_owned())), kept, "and their files");
    }

    #[test]
    fn files_that_are_no_checkpoints_are_ignored() {
        let directory = tempfile::tempdir().expect("a directory");
        let put = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).expect("written");
        put("1.cfg", b"! checkpoint 1, T, by ann\nvlan 2\n");
        put("2.cfg", b"vlan 2\n");
        put("3.cfg", b"! checkpoint 4, T, by ann\n");
        put("5.txt", b"! checkpoint 5, T, by ann\n");
        put("0.cfg", b"! checkpoint 0, T, by ann\n");
        put("6.cfg", b"\xff\xfe");
        put("7.cfg", &[b'x'; 4096]);
        put("99999999999.cfg", b"! checkpoint 99999999999, T, by ann\n");
        fs::create_dir(directory.path().join("8.cfg")).expect("made");
        assert_eq!(numbers(&mut Archive::new(directory.path().to_owned())), [1]);
    }

    #[test]
    fn a_failed_write_changes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut archive = Archive::new(directory.path().to_owned());
        archive.save("vlan 2\n", "ann", TIME).expect("saved");
        for place in ["write", "rename"] {
            let fault = inject(place, libc::ENOSPC);
            let error = archive.save("vlan 3\n", "ann", TIME).expect_err("full");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{place}");
            drop(fault);
            assert_eq!(numbers(&mut archive), [1]);
            assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1, "{place}");
        }
        assert_eq!(archive.save("vlan 3\n", "ann", TIME).expect("saved"), 2);
    }
}
