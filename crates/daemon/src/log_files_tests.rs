use super::*;
use std::time::Instant;

const LIMITS: LogPersistent = LogPersistent { size: 16_384, file_size: 4096 };

fn start(directory: PathBuf, limits: LogPersistent) -> LogFiles {
    LogFiles::start(directory, limits, &WriteLock::default())
}

fn lines(files: &LogFiles) -> Vec<String> {
    files.view(true).lines.unwrap_or_default()
}

/// Waits until the thread has handled this many lines.
fn handled(files: &LogFiles, count: u64) {
    let until = Instant::now() + Duration::from_secs(20);
    while files.view(false).written + files.view(false).failed < count {
        assert!(Instant::now() < until, "{:?}", files.view(false));
        std::thread::yield_now();
    }
}

/// The lengths of all files, without the directory's order. A file that the thread has removed since it was listed has none.
fn lengths(directory: &Path) -> Vec<u64> {
    let listed = fs::read_dir(directory).expect("listed");
    listed.filter_map(|entry| entry.expect("an entry").metadata().ok()).map(|file| file.len()).collect()
}

#[test]
fn lines_outlive_the_daemon_in_files_of_bounded_length() {
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join("log");
    let line = |n: u32| format!("2026-01-01T00:00:00Z: %SYS-5-TEST: message number {n}");
    let mut number = 0;
    for life in 0..3 {
        let mut files = start(directory.clone(), LIMITS);
        // Fewer at once than the queue holds.
        for _ in 0..500 {
            files.write(line(number));
            number += 1;
        }
        handled(&files, 500);
        let view = files.view(false);
        assert_eq!((view.written, view.dropped, view.failed), (500, 0, 0), "{life}: {view:?}");
        assert!(view.bytes <= LIMITS.size && view.files == 4, "{view:?}");
        files.end();
        let lengths = lengths(&directory);
        assert!(lengths.iter().all(|length| *length <= LIMITS.file_size), "{lengths:?}");
        assert!(lengths.iter().sum::<u64>() <= LIMITS.size, "{lengths:?}");
        assert_eq!(lengths.len(), 4);
    }
    let files = start(directory.clone(), LIMITS);
    let until = Instant::now() + Duration::from_secs(20);
    let found = loop {
        let found = lines(&files);
        if !found.is_empty() {
            break found;
        }
        assert!(Instant::now() < until);
        std::thread::yield_now();
    };
    // The latest lines without a gap.
    assert!(found.len() > 200, "{}", found.len());
    let first = number - u32::try_from(found.len()).expect("few");
    assert_eq!(found, (first..number).map(line).collect::<Vec<_>>());
    // Smaller limits hold at once.
    files.end();
    let small = LogPersistent { size: 8192, file_size: 4096 };
    let files = start(directory.clone(), small);
    let until = Instant::now() + Duration::from_secs(20);
    while lengths(&directory).iter().sum::<u64>() > small.size {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    files.end();
}

/// A full disk, as the system reports it for `/dev/full`.
#[test]
fn a_full_disk_is_reported_and_counted_until_it_has_room() {
    let root = tempfile::tempdir().expect("a directory");
    let current = root.path().join(CURRENT);
    std::os::unix::fs::symlink("/dev/full", &current).expect("linked");
    let mut files = start(root.path().to_owned(), LIMITS);
    files.write("one".into());
    handled(&files, 1);
    assert!(matches!(files.change(), Some(Change::Failed(text)) if text.contains("No space left")));
    files.write("two".into());
    handled(&files, 2);
    assert_eq!(files.change(), None, "reported once");
    fs::remove_file(&current).expect("removed");
    files.write("three".into());
    handled(&files, 3);
    assert_eq!(files.change(), Some(Change::Works(2)));
    let view = files.view(true);
    assert_eq!((view.written, view.failed, view.error), (1, 2, None));
    assert_eq!(lines(&files), ["three"]);
    assert_eq!(fs::read_to_string(&current).expect("written"), "three\n");
}

#[test]
fn a_directory_that_cannot_be_made() {
    let root = tempfile::tempdir().expect("a directory");
    fs::write(root.path().join("file"), "").expect("written");
    let mut files = start(root.path().join("file/log"), LIMITS);
    files.write("one".into());
    handled(&files, 1);
    assert!(matches!(files.change(), Some(Change::Failed(_))));
    assert_eq!(files.view(false).failed, 1);
}

/// The writer is stopped in the middle of a line by a pipe without a reader: nothing waits for it.
#[test]
fn a_disk_that_does_not_answer_delays_nothing_and_losses_are_counted() {
    let root = tempfile::tempdir().expect("a directory");
    let current = root.path().join(CURRENT);
    nix::unistd::mkfifo(&current, nix::sys::stat::Mode::S_IRWXU).expect("made");
    let mut files = start(root.path().to_owned(), LogPersistent { size: 1 << 30, file_size: 16 << 20 });
    let began = Instant::now();
    for _ in 0..QUEUE * 3 {
        files.write("x".repeat(1000));
    }
    assert!(began.elapsed() < Duration::from_secs(5), "it waited for the disk");
    let dropped = files.view(false).dropped;
    assert!(dropped >= QUEUE as u64, "{dropped}");
    // The end waits for a limited time; a reader then lets the thread end.
    let began = Instant::now();
    files.end();
    assert!(began.elapsed() < Duration::from_secs(5));
    let mut reader = File::open(&current).expect("opened");
    let _ = io::copy(&mut reader, &mut io::sink());
}
