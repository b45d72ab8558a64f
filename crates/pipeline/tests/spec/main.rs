//! The specification, tested: every stage by tables of cases, the whole by properties, the FDB against a model.

#![allow(clippy::unwrap_used, clippy::panic)]

mod fdb;
mod properties;
mod stages;
mod support;
