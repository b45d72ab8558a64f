//! The resource manager with a simulated chip. This is one program, because the chip and `common` would otherwise be compiled for
//! each of its files.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;
mod faults;
mod policies;
mod random;
mod strategies;
