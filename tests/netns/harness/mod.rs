//! The fixtures of the scenarios: namespaces, hosts, frames, and a switch that is the real program.
//!
//! Read `bed` first: a scenario gets a [`Bed`], configures the switch, and asserts what it expects. Invariants: nothing
//! sleeps, every wait is for a condition with a deadline; when a bed is dropped, it removes everything that it made,
//! also after a failure; and a bed that ends well has checked that every frame and every pin is accounted for.

pub mod bed;
pub mod check;
pub mod daemon;
pub mod frame;
pub mod host;
pub mod net;
pub mod ovs;
pub mod source_member;

pub use bed::{Bed, join};
pub use frame::{BROADCAST, Frame, frame, mac};
pub use host::Host;
pub use net::Net;
pub use source_member::SourceMember;

use std::time::{Duration, Instant};

/// The plane of a scenario, under its name in `lanyard run --plane`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types)] // named as on the command line, where the table of scenarios names them
pub enum Plane {
    /// The kernel forwards.
    ebpf,
    /// The daemon forwards.
    soft,
}

impl Plane {
    pub const fn name(self) -> &'static str {
        match self {
            Self::ebpf => "ebpf",
            Self::soft => "soft",
        }
    }
}

/// The longest wait for any condition, far longer than any should take on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// The bounds of the time between two evaluations of a condition. It is a sixteenth of the time waited so far, so that a
/// long wait takes little processor time from the other tests.
const POLL: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// Waits until `condition` returns a value.
pub fn wait_for<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    wait_until(DEADLINE, condition).unwrap_or_else(|| panic!("waited {DEADLINE:?} in vain: {what}"))
}

/// Waits until `condition` returns a value, or the time is up.
pub fn wait_until<T>(time: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let answer = condition();
        let waited = begin.elapsed();
        if answer.is_some() || waited >= time {
            return answer;
        }
        std::thread::sleep((waited / 16).clamp(POLL[0], POLL[1]));
    }
}

/// Why namespace tests cannot run here. Whether the eBPF plane works is not checked besides the rights, so that a
/// broken plane is a failure and not a skipped test.
fn impossible(plane: Option<Plane>) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("namespaces and packet sockets need root".into());
    }
    if plane == Some(Plane::ebpf) && !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Some("the kernel has no BPF type information".into());
    }
    static NAMESPACES: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    NAMESPACES
        .get_or_init(|| {
            let probe = std::process::Command::new("unshare")
                .args(["-n", "ip", "link", "add", "name", "v1", "type", "veth", "peer", "name", "v2"])
                .output();
            match probe {
                Ok(output) if output.status.success() => None,
                Ok(output) => {
                    Some(format!("no veth pairs: {}", String::from_utf8_lossy(&output.stderr).trim()))
                }
                Err(error) => Some(format!("unshare: {error}")),
            }
        })
        .clone()
}

/// Runs a scenario on a plane, or prints why not.
pub fn run(plane: Plane, scenario: fn(Plane)) {
    match impossible(Some(plane)) {
        Some(reason) => println!("skipped: {reason}"),
        None => scenario(plane),
    }
}

/// Defines a table of scenarios with the planes of each: `name: ebpf soft;` makes the tests `name::ebpf` and
/// `name::soft` of the function `name`.
macro_rules! scenarios {
    ($($(#[$doc:meta])* $name:ident: $($plane:ident)+;)*) => { $(
        mod $name {
            $(#[test]
            fn $plane() {
                crate::harness::run(crate::harness::Plane::$plane, super::$name);
            })+
        }
    )* };
}
pub(crate) use scenarios;
