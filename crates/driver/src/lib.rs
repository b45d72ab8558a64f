//! The switch's driver of a switch chip: [`AsicPlane`].
//!
//! Read docs/offload.md and docs/sdk.md first. [`plane`] is the plane; [`lower`] turns plane states into operations of the chip
//! and back; [`routes`] hands routes to the resource manager; [`groups`] keeps the multicast groups that snooping has learned,
//! [`trees`] the states of ports in trees, [`channels`] the members in use of port-channels; [`cpu`] carries frames between the
//! chip's CPU port and netdevs; [`front`] makes the netdevs of the front panel; [`splits`] lists its ports; [`settings`] carries
//! out the chip's configuration, [`partitions`] sizes and alarms of its tables, [`policies`] the policies for entries that do not
//! fit; [`takeover`] passes forwarding to the software plane when the chip has ended, and back; [`chip`] starts or joins the
//! chip's process.
//!
//! Invariants: the chip is a process of its own, which continues to forward when a driver ends. A change that the chip
//! cannot carry out is refused with a reason. When the chip ends, the pipeline in this process takes over at the same
//! wires.

mod channels;
pub mod chip;
mod cpu;
mod figures;
mod front;
#[cfg(test)]
mod group_faults;
mod groups;
mod ids;
mod kept;
mod lower;
mod partitions;
mod plane;
mod policies;
mod protocols;
mod routes;
mod settings;
mod splits;
mod takeover;
#[cfg(test)]
mod tree_faults;
mod trees;

pub use plane::{AsicPlane, Options};
