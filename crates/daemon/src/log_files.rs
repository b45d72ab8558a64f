//! `logging persistent`: the log in files of bounded length, which survive a restart of the machine.
//!
//! The messages go to `current.log`. When it is full it is renamed to the next number (`17.log`), which is atomic, and the oldest
//! files are removed until the rest has room for another one. Invariants: a line is in a file whole or not at all; all files
//! together are never longer than the configured size; and [`LogFiles::write`] never waits for the disk. A thread writes, and
//! synchronizes the file whenever no further line waits. A line that cannot be written, or that finds [`QUEUE`] lines waiting, is
//! counted and lost.

use crate::faults;
use lanyard_cli::view::PersistentLog;
use lanyard_config::LogPersistent;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The maximum number of lines that wait.
const QUEUE: usize = 1024;
/// The number of lines that `show logging persistent` prints.
const RECENT: usize = 1000;
/// The length of the end of a file that is read for these lines, in bytes.
const MAX_READ: u64 = 1 << 20;
/// The maximum number of directory entries that are examined. The directory is the switch's own.
const MAX_ENTRIES: usize = 20_000;
/// How long the daemon waits at its end for the disk.
const END_WAIT: Duration = Duration::from_millis(500);
/// The file that is being written, and the end of the names of all.
const CURRENT: &str = "current.log";
const SUFFIX: &str = "log";

/// A lock that permits writing the files: one thread holds it at a time, and the thread before may still wait for the disk.
pub(crate) type WriteLock = Arc<Mutex<()>>;

/// The log's files.
#[derive(Debug)]
pub(crate) struct LogFiles {
    directory: PathBuf,
    limits: LogPersistent,
    /// `None` when no thread could be started.
    queue: Option<SyncSender<String>>,
    shared: Arc<Mutex<Progress>>,
    /// Lines that found the queue full.
    dropped: u64,
    /// Disconnected once everything has been written.
    ended: Receiver<()>,
    /// The error that was reported last.
    reported: Option<String>,
}

/// The thread's reports.
#[derive(Debug, Default)]
struct Progress {
    written: u64,
    /// Lines that could not be written.
    failed: u64,
    /// Why the last line could not be written; `None` after one that could.
    error: Option<String>,
    files: u64,
    bytes: u64,
    recent: VecDeque<String>,
}

/// A change to report in the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Lines cannot be written.
    Failed(String),
    /// Lines can be written again; the number of lines that were lost so far.
    Works(u64),
}

impl LogFiles {
    /// Starts the thread that writes into `directory`, which need not exist yet. The thread begins when it gets `lock`.
    pub(crate) fn start(directory: PathBuf, limits: LogPersistent, lock: &WriteLock) -> Self {
        let (queue, lines) = sync_channel(QUEUE);
        let (end, ended) = sync_channel::<()>(0);
        let shared = Arc::new(Mutex::new(Progress::default()));
        let mut writer = Writer::new(directory.clone(), limits, shared.clone());
        let lock = lock.clone();
        let run = move || {
            let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            writer.find();
            writer.work(&lines);
            drop(end);
        };
        let thread =
            crate::os::ordinary(|| std::thread::Builder::new().name("lanyard-log".into()).spawn(run));
        let queue = thread.ok().map(|_| queue);
        Self { directory, limits, queue, shared, dropped: 0, ended, reported: None }
    }
    pub(crate) const fn limits(&self) -> LogPersistent {
        self.limits
    }
    /// Ends the thread, and waits for a limited time until the last lines are written. Dropping the value without this call does
    /// not wait.
    pub(crate) fn end(mut self) {
        self.queue = None;
        let _ = self.ended.recv_timeout(END_WAIT);
    }
    /// Queues a line for writing.
    pub(crate) fn write(&mut self, line: String) {
        if self.queue.as_ref().is_none_or(|queue| queue.try_send(line).is_err()) {
            self.dropped += 1;
        }
    }
    /// The change since the last call, if there is one.
    pub(crate) fn change(&mut self) -> Option<Change> {
        let (error, failed) = {
            let progress = lock(&self.shared);
            (progress.error.clone(), progress.failed)
        };
        if error.is_some() == self.reported.is_some() {
            return None;
        }
        self.reported.clone_from(&error);
        Some(error.map_or(Change::Works(failed + self.dropped), Change::Failed))
    }
    /// `show logging persistent`; without the lines it is a part of `show logging`.
    pub(crate) fn view(&self, with_lines: bool) -> PersistentLog {
        let progress = lock(&self.shared);
        PersistentLog {
            directory: self.directory.display().to_string(),
            size: self.limits.size,
            file_size: self.limits.file_size,
            files: progress.files,
            bytes: progress.bytes,
            written: progress.written,
            dropped: self.dropped,
            failed: progress.failed,
            error: progress.error.clone(),
            lines: with_lines.then(|| progress.recent.iter().cloned().collect()),
        }
    }
}

/// Locks the state, also after a panic of the other thread: each field is always complete, so it remains usable.
fn lock(shared: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's state.
struct Writer {
    directory: PathBuf,
    limits: LogPersistent,
    shared: Arc<Mutex<Progress>>,
    /// The full files, the oldest first: their numbers and lengths.
    full: VecDeque<(u64, u64)>,
    current: Option<File>,
    /// The length of `current.log`.
    length: u64,
    is_synced: bool,
}

impl Writer {
    const fn new(directory: PathBuf, limits: LogPersistent, shared: Arc<Mutex<Progress>>) -> Self {
        Self { directory, limits, shared, full: VecDeque::new(), current: None, length: 0, is_synced: true }
    }
    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number}.{SUFFIX}"))
    }
    /// Finds the files of earlier daemons, and reads their last lines. Files that cannot be read are ignored.
    fn find(&mut self) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten().take(MAX_ENTRIES);
        let number = |entry: &fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_suffix(SUFFIX)?.strip_suffix('.')?.parse::<u64>().ok()?;
            Some((number, entry.metadata().ok().filter(fs::Metadata::is_file)?.len()))
        };
        let mut full: Vec<_> = entries.filter_map(|entry| number(&entry)).collect();
        full.sort_unstable();
        self.full = full.into();
        self.length = fs::metadata(self.directory.join(CURRENT)).map_or(0, |meta| meta.len());
        let mut recent = tail(&self.directory.join(CURRENT));
        for (number, _) in self.full.iter().rev() {
            if recent.len() >= RECENT {
                break;
            }
            let mut older = tail(&self.path(*number));
            older.append(&mut recent);
            recent = older;
        }
        recent.drain(..recent.len().saturating_sub(RECENT));
        self.trim();
        lock(&self.shared).recent = recent.into();
        self.count();
    }
    /// Writes what is queued until the queue ends.
    fn work(&mut self, lines: &Receiver<String>) {
        loop {
            let line = match lines.try_recv() {
                Ok(line) => line,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    self.sync();
                    match lines.recv() {
                        Ok(line) => line,
                        Err(_) => break,
                    }
                }
            };
            let result = self.append(&line);
            if result.is_err() {
                // The next line opens the file again, because the reason of the failure may no longer exist.
                self.current = None;
            }
            let mut progress = lock(&self.shared);
            match &result {
                Ok(()) => progress.written += 1,
                Err(_) => progress.failed += 1,
            }
            progress.error = result.err().map(|error| format!("{}: {error}", self.directory.display()));
            if progress.error.is_none() {
                if progress.recent.len() >= RECENT {
                    progress.recent.pop_front();
                }
                progress.recent.push_back(line);
            }
            drop(progress);
            self.count();
        }
        self.sync();
    }
    fn append(&mut self, line: &str) -> io::Result<()> {
        let bytes = format!("{line}\n").into_bytes();
        if self.length > 0 && self.length + bytes.len() as u64 > self.limits.file_size {
            self.rotate()?;
        }
        let file = match &mut self.current {
            Some(file) => file,
            None => {
                let opened = open(&self.directory)?;
                self.length = opened.metadata()?.len();
                self.current.insert(opened)
            }
        };
        self.is_synced = false;
        let result = file.write_all(&bytes);
        match result {
            Ok(()) => self.length += bytes.len() as u64,
            // Cut off a part of the line that may have been written: a full disk accepts the bytes that it has room for.
            Err(_) => drop(file.set_len(self.length)),
        }
        result
    }
    /// Closes the full file under the next number, and makes room for another one.
    fn rotate(&mut self) -> io::Result<()> {
        self.sync();
        self.current = None;
        let number = self.full.back().map_or(1, |(last, _)| last.saturating_add(1));
        fs::rename(self.directory.join(CURRENT), self.path(number))?;
        self.full.push_back((number, self.length));
        self.length = 0;
        self.trim();
        // The new name is durable before the next file has lines.
        File::open(&self.directory)?.sync_all()
    }
    /// Removes the oldest files until the others leave room for a whole one.
    fn trim(&mut self) {
        let mut total: u64 = self.full.iter().map(|(_, length)| length).sum();
        while total + self.limits.file_size > self.limits.size {
            let Some((number, length)) = self.full.pop_front() else { return };
            // A file that cannot be removed is found and removed again after the next start.
            let _ = fs::remove_file(self.path(number));
            total -= length;
        }
    }
    fn sync(&mut self) {
        if let Some(file) = self.current.as_ref().filter(|_| !self.is_synced) {
            faults::stall("log");
            // A disk that fails here also fails the next write.
            let _ = file.sync_data();
        }
        self.is_synced = true;
    }
    fn count(&self) {
        let full: u64 = self.full.iter().map(|(_, length)| length).sum();
        let mut progress = lock(&self.shared);
        progress.files = self.full.len() as u64 + u64::from(self.length > 0);
        progress.bytes = full + self.length;
    }
}

fn open(directory: &Path) -> io::Result<File> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    OpenOptions::new().append(true).create(true).mode(0o600).open(directory.join(CURRENT))
}

/// The last lines of a file, at most [`RECENT`]; none when it cannot be read.
fn tail(path: &Path) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        if !fs::metadata(path)?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(MAX_READ);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(MAX_READ).read_to_end(&mut bytes)?;
        // If the file is longer than [`MAX_READ`], the bytes begin within a line, which is left out.
        let cut =
            if start == 0 { 0 } else { bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1) };
        Ok(bytes.split_off(cut))
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let from = lines.len().saturating_sub(RECENT);
    lines[from..].to_vec()
}

#[cfg(test)]
#[path = "log_files_tests.rs"]
mod tests;
