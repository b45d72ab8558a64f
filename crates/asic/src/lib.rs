//! A virtual switch chip: tables that are finite, shared and collide, as a platform file describes them, and the process and
//! protocol around them.
//!
//! Read [`platform`] first (what a chip is made of), then [`object`] (what its tables hold) and [`tables`] (how full they are
//! and when they refuse). [`chip`] is the chip itself, [`sdk`] how a driver speaks to it. A chip's figures are its own: nothing
//! here estimates.

pub mod chip;
pub mod object;
pub mod platform;
pub mod sdk;
pub mod tables;
