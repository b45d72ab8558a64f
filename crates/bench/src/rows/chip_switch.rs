//! A switch on a virtual chip, in a network namespace of its own.
//!
//! Invariant: an instance that was started here is detached when its [`ChipSwitch`] is dropped.

use anyhow::{Context, Result};
use lanyard_tester::os::{Netns, Reaped};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const PLATFORM: &str = include_str!("../../../../platforms/spectrum-like.toml");

/// A running switch on a virtual chip.
pub(super) struct ChipSwitch {
    /// The namespace in which the switch runs. Its port `swpN` is connected to the netdev `swpN-wire` there.
    pub(super) netns: Netns,
    instance: String,
    program: PathBuf,
    daemon: Option<Reaped>,
    directory: tempfile::TempDir,
}

impl ChipSwitch {
    /// Starts a switch with 32 ports on this startup-config. It may take a few seconds until it forwards.
    pub(super) fn start(netns: Netns, name: &str, config: &str) -> Result<Self> {
        let program = std::env::current_exe().context("which program is this?")?;
        let directory = tempfile::Builder::new().prefix("lanyard-bench").tempdir()?;
        let (platform, file) = (directory.path().join("platform.toml"), directory.path().join("config"));
        std::fs::write(&platform, PLATFORM)?;
        std::fs::write(&file, config)?;
        let instance = format!("bench{}-{name}", std::process::id());
        let mut switch = Self { netns, instance, program, daemon: None, directory };
        let mut command = Command::new(&switch.program);
        command.args(["run", "--instance", &switch.instance, "--plane", "asic", "--platform"]).arg(&platform);
        command.arg("--config").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        switch.daemon = Some(Reaped(switch.netns.spawn(&mut command).context("starting lanyard")?));
        Ok(switch)
    }

    /// Runs CLI commands in order until one is refused, and returns what they printed.
    pub(super) fn cli(&self, commands: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["cli", "--instance", &self.instance]);
        commands.iter().for_each(|line| _ = command.args(["-c", line]));
        self.netns.output(&mut command, "")
    }

    /// A directory for files, which lives as long as the switch.
    pub(super) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }
}

impl Drop for ChipSwitch {
    fn drop(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(["detach", "--instance", &self.instance]).stdin(Stdio::null());
        // Without `detach` the chip would keep running. The error is ignored, because a destructor cannot return it.
        let _ = self.netns.output(&mut command, "");
        self.daemon = None;
        let _ = std::fs::remove_dir_all(format!("/var/lib/lanyard/{}", self.instance));
    }
}
