//! The soft plane: the pipeline's specification run as a switch, where eBPF can't be loaded, and in tests.
//!
//! Frames come from AF_PACKET rings ([`packet(7)`](https://man7.org/linux/man-pages/man7/packet.7.html), TPACKET_V3),
//! from TAP devices or from memory; one thread carries them through `lanyard_pipeline::Pipeline`. It needs CAP_NET_RAW
//! and CAP_NET_ADMIN over its network namespace only, so `unshare -Urn` is enough.
//!
//! Read [`SoftPlane`] first, then `core` (what one frame goes through), `worker` (the thread), `link` (what a port is
//! connected to). Invariants: every queue is bounded; a netdev that goes away ends its link, never the thread; a port
//! leaves with its netdev as it was found.

mod core;
mod link;
mod memory;
mod plane;
mod protocols;
mod worker;

pub use memory::MemoryPorts;
pub use plane::{FDB_CAPACITY, SoftPlane};
