//! Output that a command sends in pieces: a listing, events, a packet capture, the output of a program. The client may interrupt
//! each of them.
//!
//! Invariant: while such a command runs, the client's only permitted request is an interrupt; after a listing, whose parts are
//! made one by one, another request is answered when the listing has been sent.

use super::{Connection, Ended, Seat};
use crate::bus::Subscription;
use crate::capture::{Capture, CaptureError};
use crate::ntp;
use crate::protocol::{Reply, Request};
use lanyard_cli::Program;
use lanyard_cli::listing::Listing;
use std::io;
use std::process::{ExitStatus, Stdio};
use tokio::io::AsyncReadExt;

/// Why a program did not run to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramError {
    #[error("no program")]
    Unnamed,
    #[error("{0}: no output")]
    NoOutput(String),
    #[error("{name}: {cause}")]
    System {
        name: String,
        #[source]
        cause: io::Error,
    },
    #[error("{name} failed: {status}")]
    Failed { name: String, status: ExitStatus },
}

/// Sends a listing to its end, or until the client interrupts it. The next part is made when the previous one has been written to
/// the client.
pub(super) async fn list(
    connection: &mut Connection,
    seat: &Seat,
    mut listing: Listing,
) -> Result<(), Ended> {
    while let Some(part) = seat.part(&mut listing) {
        connection.send_text(Reply::Text, &part).await?;
        if connection.interrupted().await {
            break;
        }
    }
    Ok(())
}

/// Asks the program that sets the machine's clock; `None` when the client interrupts.
pub(super) async fn ask_ntp(connection: &mut Connection) -> Result<Option<ntp::Answer>, Ended> {
    tokio::select! {
        answer = ntp::ask() => Ok(Some(answer.unwrap_or_else(|_| Err(ntp::closed())))),
        request = connection.request() => match request? {
            Request::Interrupt => Ok(None),
            _ => Err(Ended::Busy("the clock's program is asked".into())),
        },
    }
}

/// Sends events until the client interrupts or disconnects.
pub(super) async fn stream(connection: &mut Connection, mut subscription: Subscription) -> Result<(), Ended> {
    loop {
        tokio::select! {
            Some(line) = subscription.next() => connection.send(&Reply::Stream(format!("{line}\n"))).await?,
            request = connection.request() => match request? {
                Request::Interrupt => return Ok(()),
                _ => return Err(Ended::Busy("events are streamed".into())),
            },
        }
    }
}

/// Sends a packet capture until the client interrupts or disconnects, or it fails.
pub(super) async fn capture(
    connection: &mut Connection,
    seat: &Seat,
    wanted: &lanyard_cli::outcome::Capture,
) -> Result<Result<(), CaptureError>, Ended> {
    let mut capture = match Capture::start(&seat.shared.core, wanted) {
        Ok(capture) => capture,
        Err(reason) => return Ok(Err(reason)),
    };
    loop {
        tokio::select! {
            piece = capture.next() => match piece {
                Some(Ok(bytes)) => {
                    let digits = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                    connection.send(&Reply::Bytes(digits)).await?;
                }
                Some(Err(reason)) => return Ok(Err(reason)),
                None => return Ok(Ok(())),
            },
            request = connection.request() => match request? {
                Request::Interrupt => return Ok(Ok(())),
                _ => return Err(Ended::Busy("packets are captured".into())),
            },
        }
    }
}

/// Sends a program's output until it ends, or until the client interrupts or disconnects, which
/// kills it.
pub(super) async fn run(
    connection: &mut Connection,
    program: &Program,
) -> Result<Result<(), ProgramError>, Ended> {
    let Some((name, arguments)) = program.argv.split_first() else { return Ok(Err(ProgramError::Unnamed)) };
    let system = |cause| ProgramError::System { name: name.clone(), cause };
    let mut command = tokio::process::Command::new(name);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(cause) => return Ok(Err(system(cause))),
    };
    let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return Ok(Err(ProgramError::NoOutput(name.clone())));
    };
    let (mut out_buffer, mut err_buffer) = ([0u8; 4096], [0u8; 4096]);
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        let (bytes, open) = tokio::select! {
            count = out.read(&mut out_buffer), if out_open => (&out_buffer[..count.unwrap_or(0)], &mut out_open),
            count = err.read(&mut err_buffer), if err_open => (&err_buffer[..count.unwrap_or(0)], &mut err_open),
            request = connection.request() => match request? {
                Request::Interrupt => return Ok(Ok(())),
                _ => return Err(Ended::Busy(format!("{name} runs"))),
            },
        };
        *open = !bytes.is_empty();
        connection.send_text(Reply::Stream, &String::from_utf8_lossy(bytes)).await?;
    }
    match child.wait().await {
        Ok(status) if status.success() => Ok(Ok(())),
        Ok(status) => Ok(Err(ProgramError::Failed { name: name.clone(), status })),
        Err(cause) => Ok(Err(system(cause))),
    }
}
