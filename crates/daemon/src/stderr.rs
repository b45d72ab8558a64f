//! Writes lines to stderr on a thread of its own, because a terminal or pipe whose reader has stopped must
//! not stop the switch.
//!
//! Invariant: [`Stderr::line`] never waits. At most [`QUEUE`] lines wait for the reader. Further lines are
//! counted, and the count is written once the reader continues.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Most lines that wait.
const QUEUE: usize = 1024;
/// How long the daemon waits at its end for the reader of the last lines.
const END_WAIT: Duration = Duration::from_millis(500);

/// The writer's queue.
#[derive(Debug)]
pub(crate) struct Stderr {
    /// `None` when no thread could be started, and at the end.
    queue: Option<SyncSender<String>>,
    lost: Arc<AtomicU64>,
    /// Disconnected once everything has been written.
    ended: Receiver<()>,
}

impl Stderr {
    /// Starts the thread that writes to stderr.
    pub(crate) fn start() -> Self {
        Self::over(std::io::stderr())
    }
    fn over(mut output: impl Write + Send + 'static) -> Self {
        let (queue, lines) = sync_channel::<String>(QUEUE);
        let (end, ended) = sync_channel::<()>(0);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        let thread = std::thread::Builder::new().name("lanyard-stderr".into()).spawn(move || {
            for line in lines {
                // The switch must run without a working stderr.
                let _ = output.write_all(line.as_bytes());
                let lost = counted.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    let _ =
                        writeln!(output, "lanyard: {lost} messages were not written here: see show logging");
                }
            }
            drop(end);
        });
        Self { queue: thread.ok().map(|_| queue), lost, ended }
    }
    /// Queues a line, including its end, for writing.
    pub(crate) fn line(&self, text: &str) {
        let sent = self.queue.as_ref().is_some_and(|queue| queue.try_send(format!("{text}\n")).is_ok());
        if !sent {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Stderr {
    /// Waits for a limited time until the last lines are written, which say why the daemon ends.
    fn drop(&mut self) {
        if self.queue.take().is_some() {
            let _ = self.ended.recv_timeout(END_WAIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    #[test]
    fn a_reader_that_has_stopped_holds_nothing_up() {
        let (output, reader) = UnixStream::pair().expect("a pair of sockets");
        let stderr = Stderr::over(output);
        let long = "x".repeat(4096);
        let began = Instant::now();
        // More than the queue and the socket hold.
        for _ in 0..QUEUE * 4 {
            stderr.line(&long);
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let reading = std::thread::spawn(move || {
            BufReader::new(reader).lines().map_while(Result::ok).collect::<Vec<_>>()
        });
        drop(stderr);
        let lines = reading.join().expect("read to the end");
        let reported: u64 = lines
            .iter()
            .filter_map(|line| line.strip_prefix("lanyard: ")?.split(' ').next()?.parse::<u64>().ok())
            .sum();
        assert!(reported > 0, "more than the queue holds");
        // The writer may have reported some of the loss before the last line was lost.
        let written = lines.iter().filter(|line| **line == long).count();
        assert_eq!(written as u64 + reported, QUEUE as u64 * 4, "what was lost is counted");
    }
}
