//! The executable specification of Lanyard's forwarding pipeline: pure, no I/O, no clock, no `unsafe`.
//!
//! [`state`] is the configuration that the control plane gives to a plane: plain declarative values, the same
//! for every plane. The [`stages`], one file each in the order of `lanyard_types::Stage`, decide; [`tables`]
//! are the data that they read; [`Pipeline`] runs a frame through the stages and carries out their decision.
//! [`trace`] explains what each stage decided about one frame. The eBPF programs in `bpf/` must agree with this
//! crate on every frame: verdict, reason, egress set and bytes; [`generate`] makes the states and frames for
//! that comparison.

pub mod balance;
mod fuzz;
pub mod generate;
mod pipeline;
pub mod qos;
pub mod relay;
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
