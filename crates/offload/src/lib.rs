//! The resource manager: decides which routes a switch chip holds, and answers each request in the same call. A full
//! table never makes it misroute a packet.
//!
//! Read [`manager`] first. A [`strategy`] determines whether an entry fits. [`cover`] prevents packets from taking a shorter
//! prefix, and keeps its routes in tables whose keys are prefixes ([`prefixes`]). [`hardware`] is the interface to a chip, with
//! the implementations [`live`] (a chip's process) and [`simulated`] (a chip in this process whose clock moves only while a
//! caller waits). [`resources`] counts the use of tables and raises alarms.
//!
//! Invariants: a batch is accepted as a whole or changes nothing. A packet is forwarded by its longest match or goes to
//! the CPU, never by a shorter prefix because a longer one did not fit. When [`manager::Manager::settle`] succeeds,
//! configuration, manager and chip agree.

pub mod cover;
pub mod hardware;
pub mod live;
pub mod manager;
pub mod prefixes;
pub mod resources;
pub mod simulated;
pub mod strategy;

pub use hardware::{Failure, Hardware, Ticket};
pub use manager::{Manager, Place, Policy, Refusal};
