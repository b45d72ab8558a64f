//! Expedites RCU grace periods while many hooks change at once.
//!
//! Read first: the kernel's Documentation/admin-guide/kernel-parameters.txt on rcupdate.rcu_expedited. Each attachment
//! to a netdev ends with a wait for a grace period, about 10 ms, so 48 ports take half a second. The kernel can
//! expedite grace periods at the price of a few interrupts. Without the right to change that setting everything works,
//! but more slowly.
//!
//! Invariant: the setting belongs to the whole machine, and is turned off again when this process dies. A guardian, a
//! child process that waits for the end of a pipe from this one, turns it off then. The guardian holds a lock on a
//! marker file. A marker without a lock means that the guardian was killed, too; [`sweep`] at the next start then turns
//! the setting off.

use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SWITCH: &str = "/sys/kernel/rcu_expedited";
const MARKER: &str = "/run/lanyard/rcu_expedited";
/// The least number of hooks that makes expediting worthwhile.
const MANY: usize = 4;
/// The guardian's script, whose arguments are the paths of the setting and of the marker.
const GUARDIAN: &str = r#"trap '' HUP INT TERM; read -r line; echo 0 >"$1"; rm -f "$2""#;

/// While this exists, grace periods are expedited.
#[derive(Debug)]
pub(crate) struct Hurry {
    _expedited: Option<Expedited>,
}

impl Hurry {
    /// Expedites grace periods if `changes`, the number of hooks to be attached or detached, is large enough.
    pub(crate) fn for_changes(changes: usize) -> Self {
        let off = || fs::read_to_string(SWITCH).is_ok_and(|value| value.trim() == "0");
        let wanted = changes >= MANY && off();
        let start = || Expedited::start(SWITCH.as_ref(), MARKER.as_ref()).ok();
        Self { _expedited: wanted.then(start).flatten() }
    }
}

/// Turns the setting off if a process that turned it on was killed together with its guardian.
pub(crate) fn sweep() {
    sweep_at(SWITCH.as_ref(), MARKER.as_ref());
}

fn sweep_at(switch: &Path, marker: &Path) {
    // Nothing is left behind if there is no marker, or if a guardian holds it.
    let Ok(file) = File::open(marker) else { return };
    if let Ok(_lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock)
        && fs::write(switch, "0").is_ok()
    {
        let _ = fs::remove_file(marker);
    }
}

/// The setting, while it is turned on.
#[derive(Debug)]
struct Expedited {
    guardian: Child,
    /// Shared with the guardian: locked until both have released it.
    lock: Option<Flock<File>>,
    switch: PathBuf,
    marker: PathBuf,
}

impl Expedited {
    /// Starts the guardian, then turns the setting on.
    fn start(switch: &Path, marker: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(marker)?;
        let shared = file.try_clone()?;
        // If another instance holds the lock, that instance turns the setting off at its end.
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)?;
        let guardian = Command::new("/bin/sh")
            .args(["-c", GUARDIAN, "lanyard-rcu"])
            .args([switch, marker])
            .stdin(Stdio::piped())
            .stdout(Stdio::from(shared))
            .stderr(Stdio::null())
            // Signals to this process's group must not end the guardian.
            .process_group(0)
            .spawn()?;
        let (switch_path, marker) = (switch.to_owned(), marker.to_owned());
        let this = Self { guardian, lock: Some(lock), switch: switch_path, marker };
        fs::write(switch, "1")?;
        Ok(this)
    }
}

impl Drop for Expedited {
    fn drop(&mut self) {
        if fs::write(&self.switch, "0").is_ok() {
            let _ = fs::remove_file(&self.marker);
            // The guardian is not needed any more.
            let _ = self.guardian.kill();
        }
        // If writing the setting failed, the guardian tries it: the end of the pipe starts it.
        drop(self.guardian.stdin.take());
        let _ = self.guardian.wait();
        drop(self.lock.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    struct Bench {
        _dir: tempfile::TempDir,
        switch: PathBuf,
        marker: PathBuf,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let (switch, marker) = (dir.path().join("switch"), dir.path().join("marker"));
            fs::write(&switch, "0\n").expect("written");
            Self { _dir: dir, switch, marker }
        }
        fn start(&self) -> Expedited {
            let on = Expedited::start(&self.switch, &self.marker).expect("started");
            assert_eq!(self.value(), "1");
            on
        }
        fn value(&self) -> String {
            fs::read_to_string(&self.switch).expect("read").trim().to_owned()
        }
        fn is_off(&self) -> bool {
            self.value() == "0" && !self.marker.exists()
        }
    }

    #[test]
    fn off_again_when_done() {
        let bench = Bench::new();
        let on = bench.start();
        assert!(Expedited::start(&bench.switch, &bench.marker).is_err(), "one at a time");
        sweep_at(&bench.switch, &bench.marker);
        assert_eq!(bench.value(), "1", "a guardian watches: nothing is left behind");
        drop(on);
        assert!(bench.is_off());
    }

    /// kill -9 closes the pipe.
    #[test]
    fn off_when_the_process_is_killed() {
        let bench = Bench::new();
        let mut on = bench.start();
        drop(on.guardian.stdin.take());
        std::mem::forget(on);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !bench.is_off() {
            assert!(Instant::now() < deadline, "grace periods stay expedited");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn off_at_the_next_start_when_the_guardian_is_killed_too() {
        let bench = Bench::new();
        let mut on = bench.start();
        on.guardian.kill().expect("killed");
        on.guardian.wait().expect("ended");
        drop(on.lock.take());
        std::mem::forget(on);
        assert_eq!(bench.value(), "1");
        sweep_at(&bench.switch, &bench.marker);
        assert!(bench.is_off());
    }
}
