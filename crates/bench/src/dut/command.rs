//! Any device that shell commands bring up and take down.
//!
//! Invariant: the second command runs whenever the first one was started, even if the first one failed.

use super::Device;
use anyhow::{Context, Result};
use lanyard_tester::os::Netns;

/// A device that is set up by a command.
pub struct Commanded {
    netns: Netns,
    ports: Vec<String>,
    down: Option<String>,
}

impl Commanded {
    /// Runs `up` by the shell, in `netns`, with the names of `ports` in `$PORTS`.
    ///
    /// # Errors
    /// When `up` fails; `down` has been run by then.
    pub fn up(netns: &Netns, ports: &[String], up: Option<&str>, down: Option<&str>) -> Result<Self> {
        let device = Self { netns: netns.try_clone()?, ports: ports.to_vec(), down: down.map(str::to_owned) };
        if let Some(up) = up {
            Self::run(&device.netns, ports, up).context("--dut-up")?;
        }
        Ok(device)
    }

    /// Runs a line by the shell in `netns`, with the names of `ports` in `$PORTS`.
    ///
    /// # Errors
    /// When it fails; the error contains its output.
    pub fn run(netns: &Netns, ports: &[String], line: &str) -> Result<String> {
        let mut command = std::process::Command::new("sh");
        netns.output(command.args(["-c", line]).env("PORTS", ports.join(" ")), "")
    }
}

impl Device for Commanded {}

impl Drop for Commanded {
    fn drop(&mut self) {
        if let Some(down) = &self.down
            && let Err(why) = Self::run(&self.netns, &self.ports, down)
        {
            eprintln!("lanyard bench: --dut-down: {why:#}");
        }
    }
}
