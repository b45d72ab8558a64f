//! Any device: commands bring it up and take it down.
//!
//! Invariant: the second command runs whenever the first one was started, however that went.

use super::Device;
use crate::os::Netns;
use anyhow::{Context, Result};

/// A device that commands made.
pub struct Commanded {
    netns: Netns,
    ports: String,
    down: Option<String>,
}

impl Commanded {
    /// Runs `up` by the shell, in `netns`, with the names of `ports` in `$PORTS`.
    ///
    /// # Errors
    /// When it fails; then `down` has been run.
    pub fn up(netns: &Netns, ports: &[String], up: Option<&str>, down: Option<&str>) -> Result<Self> {
        let device =
            Self { netns: netns.try_clone()?, ports: ports.join(" "), down: down.map(str::to_owned) };
        if let Some(up) = up {
            device.run(up).context("--dut-up")?;
        }
        Ok(device)
    }

    fn run(&self, line: &str) -> Result<String> {
        let mut command = std::process::Command::new("sh");
        self.netns.output(command.args(["-c", line]).env("PORTS", &self.ports), "")
    }
}

impl Device for Commanded {}

impl Drop for Commanded {
    fn drop(&mut self) {
        if let Some(down) = &self.down
            && let Err(why) = self.run(down)
        {
            eprintln!("lanyard bench: --dut-down: {why:#}");
        }
    }
}
