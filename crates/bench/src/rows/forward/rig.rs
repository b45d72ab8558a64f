//! A rig: a bed, a device under test and a load, up and ready. Each round of a rig gives one figure.
//!
//! Invariant: the rigs of a row are up together and take turns, round by round, so both see the same machine.

use crate::dut::Executable;
use anyhow::Result;
use std::time::Duration;

/// What a run is given.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `lanyard` to measure.
    pub lanyard: Executable,
    /// Length of one measurement.
    pub window: Duration,
    /// The core on which generator, switch and receiver run.
    pub core: usize,
    /// Another one, for loads that need two. The same when there is no other.
    pub other_core: usize,
}

/// Something that can be measured again and again.
pub trait Rig {
    /// One measurement.
    ///
    /// # Errors
    /// When something broke, or on ctrl-C.
    fn round(&mut self) -> Result<f64>;

    /// What the device says about itself.
    fn detail(&self) -> String;

    /// What was changed on the bed for this measurement beyond what `ip link` makes.
    fn prepared(&self) -> Vec<String>;

    /// Why the last figure is less than what the row asks for, if it is: then the row can't pass.
    fn caveat(&self) -> Option<String> {
        None
    }
}
