//! Lanyard's own measurements, for which the RFCs have no procedure, as rows with targets.

mod chip_switch;
pub mod control_path;
pub mod failover;
pub mod forward;
pub mod resources;
pub mod routes;
pub mod trees;
