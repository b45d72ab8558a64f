//! Lanyard's own measurements: what the RFCs have no procedure for, as rows held against targets.

pub mod failover;
pub mod forward;
pub mod resources;
pub mod routes;
pub mod trees;
