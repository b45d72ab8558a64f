//! Access to the command line: secrets, TACACS+, the limits on failed logins, and the terminal of a remote session.
//!
//! Everything here is sans-IO: bytes and times in, bytes and decisions out. The daemon has the sockets and the threads.

pub mod editor;
mod fuzz;
pub mod secret;
pub mod tacacs;
pub mod telnet;
pub mod throttle;

pub use fuzz::{fuzz_ssh, fuzz_tacacs, fuzz_terminal};
