//! Programs of the machine that run for a moment: chronyc, busctl, systemctl.
//!
//! Invariant: the caller waits for a limited time and reads a limited number of bytes. The program has ended when a function
//! returns.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The reason why a program has not done what it was run for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    /// It was not started.
    #[error("{0}")]
    Start(#[source] io::Error),
    /// The system refused to wait for it or to read its output.
    #[error("{0}")]
    Wait(#[source] io::Error),
    /// It ended with an error.
    #[error("{0}")]
    Status(ExitStatus),
    /// It had not ended in time.
    #[error("no answer within {} s", .0.as_secs())]
    Slow(Duration),
    /// It printed more than the caller reads, in bytes.
    #[error("it prints more than {0} bytes")]
    TooLong(usize),
}

/// Starts a program, the first of `words`, with the others as its arguments.
fn start(words: &[&str], output: Stdio) -> Result<Child, ProgramError> {
    let [name, arguments @ ..] = words else {
        return Err(ProgramError::Start(io::ErrorKind::NotFound.into()));
    };
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
    command.spawn().map_err(ProgramError::Start)
}

/// Runs a program and returns its standard output, whatever its exit status is: a program that fails has printed the reason.
///
/// # Errors
/// When it cannot be started, has not closed its output after `patience`, or prints more than `most` bytes.
pub(crate) fn output(words: &[&str], patience: Duration, most: usize) -> Result<String, ProgramError> {
    let mut child = start(words, Stdio::piped())?;
    let result = match child.stdout.take() {
        Some(mut output) => read(&mut output, patience, most),
        None => Ok(String::new()),
    };
    // It has closed its output, or is too slow, or prints too much.
    let _ = child.kill();
    let _ = child.wait();
    result
}

fn read(output: &mut (impl Read + AsFd), patience: Duration, most: usize) -> Result<String, ProgramError> {
    let until = Instant::now() + patience;
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => return Err(ProgramError::Slow(patience)),
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(ProgramError::Wait(error.into())),
            Ok(_) => {}
        }
        let count = output.read(&mut piece).map_err(ProgramError::Wait)?;
        if count == 0 {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        bytes.extend_from_slice(&piece[..count]);
        if bytes.len() > most {
            return Err(ProgramError::TooLong(most));
        }
    }
}

/// Runs a program to its end.
///
/// # Errors
/// When it cannot be started, fails, or has not ended after `patience`.
pub(crate) fn run(words: &[&str], patience: Duration) -> Result<(), ProgramError> {
    let mut child = start(words, Stdio::null())?;
    let until = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Err(error) => return Err(ProgramError::Wait(error)),
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(ProgramError::Status(status)),
            Ok(None) if Instant::now() >= until => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(ProgramError::Slow(patience));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(200);

    #[test]
    fn a_program_has_limited_time_and_output() {
        assert_eq!(output(&["echo", "text"], PATIENCE, 1000).expect("it is installed"), "text\n");
        let began = Instant::now();
        assert!(matches!(output(&["sleep", "60"], SHORT, 1000), Err(ProgramError::Slow(SHORT))));
        assert!(matches!(run(&["sleep", "60"], SHORT), Err(ProgramError::Slow(SHORT))));
        assert!(began.elapsed() < Duration::from_secs(20));
        assert!(matches!(output(&["cat", "/dev/zero"], PATIENCE, 1000), Err(ProgramError::TooLong(1000))));
    }

    #[test]
    fn a_program_that_fails_or_is_missing() {
        run(&["true"], PATIENCE).expect("it succeeds");
        let error = run(&["false"], PATIENCE).expect_err("it fails");
        assert_eq!(error.to_string(), "exit status: 1");
        for words in [&["/no/such/program"][..], &[]] {
            assert!(matches!(run(words, PATIENCE), Err(ProgramError::Start(_))));
            assert!(matches!(output(words, PATIENCE, 1), Err(ProgramError::Start(_))));
        }
    }
}
