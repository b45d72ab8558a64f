//! A virtual switch chip: tables that are finite, shared and subject to collisions, as a platform file describes them,
//! and the process and protocol around them.
//!
//! Read [`platform`] first (the parts of a chip), then [`object`] (the contents of its tables) and [`tables`] (their
//! occupancy, and when they refuse entries). [`chip`] is the chip itself, [`sdk`] the protocol of its drivers. All
//! figures are counted from the chip's tables; none is an estimate.

pub mod chip;
pub mod object;
pub mod platform;
pub mod sdk;
pub mod tables;
