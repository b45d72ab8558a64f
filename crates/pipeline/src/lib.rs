//! The executable specification of Lanyard's forwarding pipeline: pure, no I/O, no clock, no `unsafe`.
//!
//! [`state`] is what the control plane asks for: plain declarative values, the same for every plane.
//! [`stages`] decide, one file each, in the order of `lanyard_types::Stage`; [`tables`] are what they look
//! at; [`Pipeline`] runs a frame through them and carries out what they decided. [`trace`] explains one frame's
//! journey. The eBPF programs in `bpf/` must agree with this crate on every frame: verdict, reason, egress set
//! and bytes; [`generate`] makes the states and frames they are compared on.

mod fuzz;
pub mod generate;
mod pipeline;
pub mod route;
mod sink;
pub mod stages;
pub mod state;
pub mod tables;
mod time;
pub mod trace;
pub mod validate;

pub use fuzz::fuzz;
pub use pipeline::{Pipeline, Work};
pub use sink::{Output, Sink};
pub use time::Timestamp;
