//! Bridges in simulated networks (`sim`). This is one program, because `sim` and the bridges would otherwise be compiled for each
//! of its files.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod figures;
mod guards;
mod hostile;
mod properties;
mod scenarios;
mod sim;
mod trees;
