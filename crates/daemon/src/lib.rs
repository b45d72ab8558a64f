//! The switch daemon: the event loop, and all of the control plane's input and output.
//!
//! Read `lanyard_switch` for what is decided and `lanyard_cli` for what is said; here it meets the kernel, the
//! plane, files and sockets. A frame's slow path begins in [`core::Core::plane_events`].
//!
//! Invariant: the daemon is never on the forwarding path. One thread, one [`core::Core`]; whatever a session asks is
//! a synchronous call on it, so no two sessions ever see a configuration half changed.

mod backend;
mod bus;
mod children;
pub mod client;
mod clock;
pub mod core;
mod events;
mod files;
mod fpm;
mod instance;
pub mod kernel;
mod layer3;
pub mod log;
mod loop_safety;
mod os;
mod packet_filter;
pub mod paths;
pub mod planes;
pub mod protocol;
mod relay;
mod routing;
mod routing_views;
mod run;
mod server;
mod spaces;
mod spanning;
mod startup;
mod static_routes;
#[cfg(test)]
#[allow(clippy::panic)]
mod tests;
mod users;
mod views;

pub use run::{Options, check_file, detach, run};

/// Lanyard's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The kernel's release, e.g. `6.18.1`.
#[must_use]
pub fn kernel_release() -> String {
    nix::sys::utsname::uname()
        .map_or_else(|_| "unknown".into(), |name| name.release().to_string_lossy().into_owned())
}
