//! Tests of the specification: each stage by tables of cases, the complete pipeline by properties, the FDB against a model.

#![allow(clippy::unwrap_used, clippy::panic, clippy::type_complexity, clippy::drop_non_drop)]

mod channels;
mod fdb;
mod guard;
mod host_copies;
mod properties;
mod route;
mod route_oracle;
mod snoop;
mod stages;
mod support;
mod tunnels;
