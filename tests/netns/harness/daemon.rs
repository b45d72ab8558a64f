//! The program under test: the daemon as a process, and commands to it.

use super::{DEADLINE, Net, Plane, wait_until};
use lanyard_daemon::client::{Client, ClientError, Piece};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The path of the program.
pub const LANYARD: &str = env!("CARGO_BIN_EXE_lanyard");

/// A running daemon. It is killed when this is dropped.
pub struct Daemon {
    child: Child,
    log: PathBuf,
    /// The offset of this daemon's part of the log.
    from: usize,
}

impl Daemon {
    /// Starts `lanyard run` in `net`, without waiting for it.
    pub fn spawn(net: &Net, instance: &str, plane: Plane, config: Option<&Path>, log: &Path) -> Self {
        let mut command = Command::new(LANYARD);
        command.args(["run", "--instance", instance, "--plane", plane.name()]);
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        Self::spawn_command(net, &mut command, log)
    }
    /// Starts a command that becomes a daemon.
    pub fn spawn_command(net: &Net, command: &mut Command, log: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(log).expect("a log");
        let from = file.metadata().map_or(0, |meta| meta.len() as usize);
        let again: File = file.try_clone().expect("a log");
        let child = net.spawn(command.stdout(Stdio::from(again)).stderr(Stdio::from(file)));
        Self { child, log: log.to_owned(), from }
    }
    /// This daemon's output.
    pub fn printed(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(text.get(self.from..).unwrap_or_default()).into_owned()
    }
    /// Waits for the line that reports readiness; the error is what the daemon wrote when it ended or was not
    /// ready in time.
    pub fn ready(&mut self) -> Result<String, String> {
        let line = |text: &str| {
            text.lines().find(|l| l.starts_with("lanyard: ") && l.contains(" ready: ")).map(str::to_owned)
        };
        let answer = wait_until(DEADLINE, || match line(&self.printed()) {
            Some(line) => Some(Ok(line)),
            None => self
                .child
                .try_wait()
                .expect("a child")
                .map(|status| Err(format!("{status}: {}", self.printed()))),
        });
        answer.unwrap_or_else(|| Err(format!("not ready after {DEADLINE:?}: {}", self.printed())))
    }
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).expect("the daemon is there");
    }
    /// Stops the process, and waits until all of its threads have stopped.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        let stopped = || waitid(Id::Pid(pid), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG).expect("a child");
        let found = wait_until(DEADLINE, || (stopped() != WaitStatus::StillAlive).then_some(()));
        assert!(found.is_some(), "the daemon does not stop");
    }
    /// Lets the process continue.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }
    /// True while it runs.
    pub fn alive(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }
    /// Waits for its end.
    pub fn end(&mut self) -> ExitStatus {
        let status = wait_until(DEADLINE, || self.child.try_wait().expect("a child"));
        status.unwrap_or_else(|| panic!("the daemon does not end: {}", self.printed()))
    }
    /// Kills it with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `lanyard` with `arguments`: its output, or its error output when it fails.
pub fn lanyard(net: Option<&Net>, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(LANYARD);
    command.args(arguments).stdin(Stdio::null());
    let output = match net {
        Some(net) => net.output(&mut command),
        None => command.output().expect("the program runs"),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{}{}", text(&output.stdout), text(&output.stderr)))
    }
}

/// Runs commands in one session, as `lanyard cli -c ...` does, but without a process for each call, of which the tests would
/// start many thousands: the commands' output, or the output and the refusal. The tests in `console.rs` use the program.
pub fn cli(instance: &str, commands: &[&str]) -> Result<String, String> {
    let (mut output, mut refusal) = (String::new(), String::new());
    match session(instance, commands, &mut output, &mut refusal) {
        Ok(true) => Ok(output),
        Ok(false) => Err(output + &refusal),
        Err(error) => Err(format!("{output}{refusal}lanyard: {error}\n")),
    }
}

/// Runs commands up to the first one that is refused. Returns true if all were accepted.
fn session(
    instance: &str,
    commands: &[&str],
    output: &mut String,
    refusal: &mut String,
) -> Result<bool, ClientError> {
    let mut client = Client::connect(instance)?;
    client.hello("root", false)?;
    for command in commands {
        let done = client.exec(command, &mut |piece| {
            match piece {
                Piece::Output(text) => output.push_str(text),
                Piece::Bytes(bytes) => output.push_str(&String::from_utf8_lossy(bytes)),
                Piece::Refusal(text) => refusal.push_str(text),
            }
            Ok(())
        })?;
        if done.refused || done.close {
            return Ok(!done.refused);
        }
    }
    Ok(true)
}
