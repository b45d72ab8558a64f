//! The executable specification of Lanyard's forwarding pipeline: pure, no I/O, no clock, no `unsafe`.
//!
//! [`state`] is what the control plane asks for: plain declarative values, the same for every plane.
//! [`trace`] explains one frame's journey. The eBPF programs in `bpf/` must agree with this crate on every
//! frame: verdict, reason, egress set and bytes.

pub mod state;
pub mod trace;
