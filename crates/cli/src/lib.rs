//! The IOS-style command line, pure: command tree, sessions, completion, help, parsing and rendering.
//!
//! No I/O and no clock. What the switch is and does comes through [`Backend`]; what it shows comes as the
//! structs of [`view`], whose JSON is the contract with programs.

pub mod backend;
pub mod outcome;
pub mod session;
pub mod sessions;
pub mod view;

pub use backend::{Backend, Refusal};
pub use outcome::{Outcome, Program, Terminal};
pub use session::Session;
