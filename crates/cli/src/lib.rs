//! The IOS-style command line, pure: command tree, sessions, completion, help, parsing and rendering.
//!
//! It does no I/O and reads no clock. It reaches the switch through [`Backend`], which returns the structs of
//! [`view`]; their JSON is the contract with programs. Read `tree.rs` to see how a command is declared, then
//! any file of `commands/`.

mod apply;
pub mod args;
pub mod backend;
pub mod brctl;
mod commands;
pub mod config_view;
pub mod docs;
pub mod edit;
mod exec;
mod feature;
mod fuzz;
pub mod generate;
mod help;
mod help_rule;
pub mod import;
pub mod line;
pub mod listing;
pub mod mac_table;
pub mod mode;
pub mod ntp;
mod number;
pub mod outcome;
pub mod parse;
mod pipe;
mod privilege;
mod qos_text;
mod refusal;
pub mod render;
mod section;
pub mod session;
pub mod sessions;
pub mod setting;
mod targets;
pub mod text;
mod tree;
mod unsupported;
pub mod view;
pub mod window;

pub use apply::{apply_text, protects};
pub use backend::{Backend, Refusal};
pub use exec::Login;
pub use fuzz::fuzz_line;
pub use help::Completion;
pub use outcome::{Outcome, Program, Terminal};
pub use session::Session;
pub use sessions::LineError;
