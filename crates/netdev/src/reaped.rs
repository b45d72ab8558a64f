//! A child process that does not outlive the value that holds it, for programs that a measurement, a demonstration or a test
//! starts in a namespace ([`crate::netns`]).

use std::process::Child;

/// A child process that is killed and reaped when this is dropped.
#[derive(Debug)]
pub struct Reaped(pub Child);

impl Reaped {
    /// Sends SIGKILL and waits for the process to end.
    pub fn kill(&mut self) {
        // Fails only when the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::process::Command;

    #[test]
    fn the_process_ends_with_its_value() {
        let mut child = Reaped(Command::new("sleep").arg("1000").spawn().expect("started"));
        let process = PathBuf::from(format!("/proc/{}", child.0.id()));
        assert!(child.0.try_wait().expect("a child").is_none() && process.exists());
        drop(child);
        assert!(!process.exists(), "it is not a zombie either");
    }
}
