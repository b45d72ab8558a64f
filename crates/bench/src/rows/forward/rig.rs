//! A rig: a bed, a device under test and a load, up and ready. Each round of a rig gives one figure.
//!
//! Invariant: the rigs of a row are up together and are measured alternately, round by round, so both are
//! measured under the same conditions.

use crate::dut::Executable;
use anyhow::{Context, Result};
use std::time::Duration;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `lanyard` to measure.
    pub lanyard: Executable,
    /// Another build of it, which the rows `against-*` measure beside it.
    pub other: Option<Executable>,
    /// Length of one measurement.
    pub window: Duration,
    /// The core on which generator, switch and receiver run.
    pub core: usize,
    /// A second core, for loads that need two. The same core when there is only one.
    pub other_core: usize,
}

impl Settings {
    /// The settings with the build `other` in place of `lanyard`.
    ///
    /// # Errors
    /// When there is none.
    pub fn against(&self) -> Result<Self> {
        let other = self.other.clone().context("no other build: give --against PATH")?;
        Ok(Self { lanyard: other, ..self.clone() })
    }
}

/// Something that can be measured again and again.
pub trait Rig {
    /// One measurement.
    ///
    /// # Errors
    /// When something broke, or on ctrl-C.
    fn round(&mut self) -> Result<f64>;

    /// The device's description of itself.
    fn detail(&self) -> String;

    /// Changes to the bed for this measurement beyond what `ip link` makes.
    fn prepared(&self) -> Vec<String>;

    /// The reason why the last figure is less than what the row requires, or `None`. With a reason, the row
    /// can't pass.
    fn caveat(&self) -> Option<String> {
        None
    }
}
