//! The switch daemon: the event loop, and all input and output of the control plane.
//!
//! Read `lanyard_switch` for the decisions and `lanyard_cli` for the command line; this crate connects them
//! with the kernel, the plane, files and sockets. Read `context` for what a module is, `core` for their order;
//! a frame's slow path begins in `protocols::Engine::turn`.
//!
//! Invariant: the daemon is never on the forwarding path. One thread manages, with one `core::Core`; every
//! request of a session is a synchronous call on it, so no session ever sees a half-changed configuration.
//! Another thread runs the protocols (`protocols`). It never waits for the first thread, for a disk or for the
//! kernel's configuration.

mod accepted;
mod access_control;
mod access_control_views;
mod access_flows;
mod access_list_views;
mod access_lists;
mod access_views;
mod ageing;
mod aggregation;
mod announce;
mod archive;
mod audit;
mod bus;
mod capture;
mod cef_views;
mod children;
pub mod client;
mod clock;
mod commit;
mod config_files;
mod confirm;
mod connections;
mod context;
mod core;
mod discovery;
mod discovery_views;
mod err_disable;
mod erspan;
mod erspan_destination;
mod event_loop;
mod faults;
mod fdb_views;
mod files;
mod follower;
mod fpm;
mod fpm_server;
mod group_socket;
mod guard;
mod guard_views;
mod identity;
mod instance;
mod interface_views;
mod kernel;
mod kernel_views;
mod layer3;
mod linux;
mod listening_port;
mod log;
mod log_files;
mod log_rate;
mod machine;
mod netdevs;
mod ntp;
mod os;
mod packet_filter;
mod pam;
mod pam_logins;
pub mod paths;
mod pending;
pub mod planes;
mod platform_views;
mod port_notes;
mod port_security;
mod programs;
pub mod protocol;
mod protocols;
mod qos_views;
mod queues;
mod record;
mod relay;
mod remote;
mod resources;
mod route_views;
mod routing;
mod run;
mod run_error;
mod safe_change;
mod server;
mod service_views;
mod settle;
mod sflow;
mod snooping;
mod snooping_views;
mod spaces;
mod spanning;
mod spanning_views;
mod ssh_server;
mod ssh_sessions;
mod startup;
mod static_routes;
mod stderr;
mod storm_control;
mod syslog;
mod syslog_tls;
mod system_views;
mod systemd;
mod tacacs;
mod tacacs_logins;
mod telnet_sessions;
mod terminal;
#[cfg(test)]
#[allow(clippy::panic)] // a mistake in a test
mod testing;
#[cfg(test)]
#[allow(clippy::panic)]
mod tests;
mod time_servers;
mod tracking;
mod users;
mod vrrp;

pub use commit::DetachError;
pub use files::FileError;
pub use instance::LockError;
pub use kernel::KernelError;
pub use pam::main as pam_login;
pub use run::{Options, check_file, detach, read_config, run};
pub use run_error::RunError;

/// Lanyard's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The kernel's release, e.g. `6.18.1`.
#[must_use]
pub fn kernel_release() -> String {
    nix::sys::utsname::uname()
        .map_or_else(|_| "unknown".into(), |name| name.release().to_string_lossy().into_owned())
}
