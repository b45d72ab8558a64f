//! The SSH server: the program `lanyard-sshd` (`crates/ssh`), a process of its own, so that neither its load nor a fault in
//! its code affects the switch. It gets the listening socket and the path of the control socket, over which it asks the switch
//! to verify users and to open their sessions ([`crate::ssh_sessions`]).
//!
//! Invariant: the standard input of the program is closed when SSH is turned off and when the daemon ends, which asks the
//! program to end. It then takes no more clients, and ends with its last session.

use crate::server::Shared;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// The program's name.
const PROGRAM: &str = "lanyard-sshd";
/// How long after its end the program is started again.
const RETRY: Duration = Duration::from_secs(5);

/// The program is not installed.
#[derive(Debug, thiserror::Error)]
#[error("ssh: there is no program {} and no {}: install {PROGRAM}", beside.display(), library.display())]
pub(crate) struct Missing {
    beside: PathBuf,
    library: PathBuf,
}

/// The path of the program: beside `lanyard`, or in `../lib/lanyard`.
///
/// # Errors
/// When it is in neither place.
pub(crate) fn program() -> Result<PathBuf, Missing> {
    let own = std::env::current_exe().unwrap_or_default();
    let directory = own.parent().unwrap_or(Path::new("/"));
    let beside = directory.join(PROGRAM);
    let library = directory.parent().unwrap_or(directory).join("lib/lanyard").join(PROGRAM);
    let found = [&beside, &library].into_iter().find(|path| path.is_file()).cloned();
    found.ok_or(Missing { beside, library })
}

/// Runs the program while SSH is on, for ever.
pub(crate) async fn serve(shared: Shared) {
    let changed = shared.core.borrow().ssh.changed();
    loop {
        let changes = shared.core.borrow().ssh.changes();
        let Some(socket) = shared.core.borrow().ssh.listening() else {
            changed.notified().await;
            continue;
        };
        // A waiting notification may be about the change that turned SSH on, so compare the number of changes.
        let turned_off = async {
            while shared.core.borrow().ssh.changes() == changes {
                changed.notified().await;
            }
        };
        let reason = match start(&shared, socket) {
            Ok(child) => run(child, turned_off).await,
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = reason {
            let text = format!("{PROGRAM} has ended: {reason}; it is started again in {} s", RETRY.as_secs());
            shared.core.borrow_mut().ctx.log("SSH", 3, "SERVER", &text);
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Waits until SSH is turned off, and returns `None`, or until the program ends by itself, and returns the reason.
async fn run(mut child: tokio::process::Child, turned_off: impl Future<Output = ()>) -> Option<String> {
    // Keep the standard input open: `wait` would close it.
    let input = child.stdin.take();
    tokio::select! {
        status = child.wait() => Some(status.map_or_else(|error| error.to_string(), |status| status.to_string())),
        () = turned_off => {
            drop(input);
            // Nothing waits for its last session; this task collects its status.
            tokio::task::spawn_local(async move { child.wait().await });
            None
        }
    }
}

fn start(shared: &Shared, socket: std::net::TcpListener) -> io::Result<tokio::process::Child> {
    let program = program().map_err(io::Error::other)?;
    let core = shared.core.borrow();
    tokio::process::Command::new(program)
        .arg("--control")
        .arg(core.ctx.paths.socket())
        .arg("--host-key")
        .arg(core.ctx.paths.ssh_host_key())
        .stdin(Stdio::piped())
        .stdout(Stdio::from(OwnedFd::from(socket)))
        .spawn()
}
