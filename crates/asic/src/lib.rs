//! A virtual switch chip: tables that are finite, shared and collide, as a platform file describes them, and the
//! protocol to it.
//!
//! Read [`platform`] first (what a chip is made of), then [`object`] (what its tables hold) and [`tables`] (how full they are
//! and when they refuse). [`sdk`] is how a driver speaks to it. A chip's figures are its own: nothing
//! here estimates.

pub mod object;
pub mod platform;
pub mod sdk;
pub mod tables;
