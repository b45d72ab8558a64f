//! The resource manager: decides which routes a switch chip holds, answers whoever asked in the same call, and never lets a packet
//! go astray because a table was full.
//!
//! Read [`manager`] first. [`strategy`] is how it knows whether something fits, [`cover`] what keeps packets from taking a shorter
//! prefix, [`hardware`] the chip's side as a trait, with [`live`] (a chip's process) and [`simulated`] (a chip in this process on
//! a clock that stands still until something waits). [`resources`] accounts for tables and raises alarms.
//!
//! Invariants: a batch is accepted whole or leaves nothing; a packet is forwarded by its longest match or goes to the CPU, never by a
//! shorter prefix because a longer one did not fit; configuration, manager and chip agree whenever [`manager::Manager::settle`] says
//! so.

pub mod cover;
pub mod hardware;
pub mod live;
pub mod manager;
pub mod resources;
pub mod simulated;
pub mod strategy;

pub use hardware::{Failure, Hardware, Ticket};
pub use manager::{Manager, Place, Policy, Refusal};
