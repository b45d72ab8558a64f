//! Spanning tree: STP, RSTP and MSTP (IEEE 802.1D-2004 clause 17, 802.1Q-2018 clause 13) and their per-VLAN
//! forms PVST+ and Rapid-PVST+, as one stack of pure state machines.
//!
//! Nothing here does I/O or reads a clock: [`Bridge`] takes BPDUs, link changes, configuration and the time,
//! and returns [`Action`]s. RSTP is MSTP with only the CIST, STP is RSTP with ForceProtocolVersion 0, and the
//! per-VLAN modes are one entity for each VLAN.
//!
//! Reading order: `config`, `bridge` (the public interface), `entity` and `entity/scheduling.rs` (how the machines
//! run), `vars`, then `machines/` one by one beside the standard, `procedures`, `bpdu`.

pub mod bpdu;
mod bridge;
mod config;
mod entity;
mod events;
mod fuzz;
mod machines;
mod per_vlan;
mod procedures;
mod vars;
pub mod view;

pub use bpdu::{BpduError, BridgeId, PortIdentifier};
pub use bridge::{Action, Bridge, Duplex, Snapshot};
pub use config::{
    Config, ConfigError, Guard, LinkType, Mode, MstRegion, PathCostMethod, PortConfig, PortFast, PortVlans,
    ROOT_SECONDARY_PRIORITY, TreeConfig, root_primary_priority,
};
pub use events::{Event, LogLine, tree_name};
pub use fuzz::fuzz;
pub use vars::{Inconsistent, Role};
