//! Tests `lanyard asic` as a user runs it: its ready line, the arguments that it refuses with the reasons, and its clean-up.

#![allow(clippy::panic)] // how a test fails

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LANYARD: &str = env!("CARGO_BIN_EXE_lanyard");
const PLATFORMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../platforms");
/// Longest wait for anything that is to become true.
const PATIENCE: Duration = Duration::from_secs(20);

fn asic(platform: &Path, socket: &Path) -> Command {
    let mut command = Command::new(LANYARD);
    command.arg("asic").arg("--platform").arg(platform).arg("--socket").arg(socket);
    command
}
fn appliance() -> PathBuf {
    Path::new(PLATFORMS).join("appliance.toml")
}

/// A running chip; dropping this kills it.
struct Chip(Child);

impl Chip {
    /// Starts a chip, and returns the first line that it prints.
    fn start(mut command: Command) -> (Self, String) {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("run");
        let mut line = String::new();
        let stderr = child.stderr.as_mut().expect("a pipe");
        BufReader::new(stderr).read_line(&mut line).expect("its first line");
        (Self(child), line)
    }
    fn ends_after(&mut self, signal: Signal) -> Option<i32> {
        kill(Pid::from_raw(self.0.id() as i32), signal).expect("it runs");
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("a child") {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "it goes on after {signal}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Chip {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_chip_reports_ready_and_removes_its_socket_at_the_end() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("sdk.sock");
        let (mut chip, line) = Chip::start(asic(&appliance(), &socket));
        let ready = format!("lanyard: chip appliance ready: 10 ports, {}\n", socket.display());
        assert_eq!(line, ready);
        let mode = std::fs::metadata(&socket).expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut driver = UnixStream::connect(&socket).expect("a chip");
        // A terminal that is closed ends nothing: the next signal finds it running.
        kill(Pid::from_raw(chip.0.id() as i32), Signal::SIGHUP).expect("it runs");
        assert_eq!(chip.ends_after(signal), Some(0), "{signal}");
        // The connection ends, or is reset if the chip has not accepted it yet.
        assert!(!driver.read(&mut [0; 1]).is_ok_and(|count| count > 0));
        let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").collect();
        assert!(left.is_empty(), "{signal}: {left:?}");
    }
}

#[test]
fn a_second_chip_at_the_socket_is_refused_and_a_dead_one_is_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("sdk.sock");
    let (mut first, _) = Chip::start(asic(&appliance(), &socket));
    let printed = refused(&asic(&appliance(), &socket).output().expect("run"));
    assert!(
        printed.contains(&*socket.to_string_lossy()) && printed.contains("a chip listens there"),
        "{printed}"
    );
    UnixStream::connect(&socket).expect("the first one has kept its socket");
    // A killed chip cannot remove its socket; the next chip takes its place.
    assert_eq!(first.ends_after(Signal::SIGKILL), None);
    assert!(socket.exists());
    let (mut next, line) = Chip::start(asic(&appliance(), &socket));
    assert!(line.contains("ready"), "{line}");
    assert_eq!(next.ends_after(Signal::SIGTERM), Some(0));
    assert!(!socket.exists());
}

#[test]
fn invalid_files_and_options_are_reported_with_their_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("sdk.sock");
    let good = std::fs::read_to_string(appliance()).expect("a platform");
    let file = dir.path().join("bad.toml");
    for (from, to, line, reason) in [
        ("bulk = 1", "bulk = = 1", "line 9", "TOML parse error"),
        ("bulk = 1", "bulks = 1", "line 9", "unknown field `bulks`"),
        ("bulk = 1", "bulk = 9999", "line 9", "9999 is out of range: 1 to 4096"),
        ("ways = 4", "ways = 3", "line 21", "ways is a power of two"),
        ("count = 8", "count = 9", "line 96", "swp9 is listed twice"),
    ] {
        assert!(good.contains(from));
        std::fs::write(&file, good.replacen(from, to, 1)).expect("written");
        let printed = refused(&asic(&file, &socket).output().expect("run"));
        for piece in [&*file.to_string_lossy(), line, reason] {
            assert!(printed.contains(piece), "{to}: {piece:?} in {printed}");
        }
    }
    let none = dir.path().join("none.toml");
    let printed = refused(&asic(&none, &socket).output().expect("run"));
    assert!(printed.contains("none.toml") && printed.contains("No such file"), "{printed}");
    let printed =
        refused(&asic(&appliance(), &socket).args(["--wire", "swp1=no-such-netdev"]).output().expect("run"));
    assert!(printed.contains("no-such-netdev"), "{printed}");
    let printed = asic(&appliance(), &socket).args(["--wire", "swp1"]).output().expect("run");
    assert_eq!(printed.status.code(), Some(2));
    let faults = dir.path().join("faults");
    std::fs::write(&faults, "fail route at 1\nfail moon at 1\n").expect("written");
    let printed = refused(&asic(&appliance(), &socket).arg("--faults").arg(&faults).output().expect("run"));
    assert!(printed.contains("line 2") && printed.contains("moon"), "{printed}");
    assert!(!socket.exists(), "a chip that does not start makes no socket");
}
