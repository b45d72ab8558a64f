//! `lanyard-sshd`: the SSH server of a switch (RFC 4251 to 4254). The daemon starts it with the listening socket as its standard
//! output (`lanyard_daemon`, `ssh_server.rs`), and ends it by closing its standard input.
//!
//! The program decides nothing: users and keys are verified by the daemon, over the control socket, and the sessions run there.
//! It performs SSH's cryptography, and copies bytes.
//!
//! Invariant: there are at most [`MAX_CLIENTS`] clients, of which at most [`MAX_LOGINS`] have not logged in. A connection has at
//! most one session.

mod client;
mod connection;
mod host_key;
mod link;
mod session;

use clap::Parser;
use russh::SshId;
use russh::server::Config;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The most clients at the same time: as many as the daemon permits sessions, and those that are logging in.
const MAX_CLIENTS: usize = 200 + MAX_LOGINS;
/// The most clients that have not logged in; the daemon has the same limit.
const MAX_LOGINS: usize = 16;
/// The delay of the answer to a rejected login.
const REJECTION: Duration = Duration::from_secs(1);
/// How many proofs a connection may give, as in OpenSSH.
const MAX_PROOFS: usize = 6;
/// How often a silent client is asked whether it is still there; the third question without an answer ends its connection.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The SSH server of a Lanyard switch; the switch daemon starts it
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// The control socket of the switch
    #[arg(long, value_name = "PATH")]
    control: PathBuf,
    /// The private key of the switch; made if there is none
    #[arg(long, value_name = "FILE")]
    host_key: PathBuf,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("standard output is not a listening socket: {0}; the switch daemon starts this program")]
    Socket(std::io::Error),
    #[error("standard input is not a pipe: {0}; the switch daemon starts this program")]
    Input(std::io::Error),
    #[error(transparent)]
    HostKey(#[from] host_key::HostKeyError),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lanyard-sshd: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves clients until standard input is closed, and then until the last one has gone.
async fn run(options: Options) -> Result<(), StartError> {
    let listener = listening_socket().map_err(StartError::Socket)?;
    let config = Arc::new(settings(host_key::load_or_make(&options.host_key)?));
    let (clients, logins) = (Arc::new(Semaphore::new(MAX_CLIENTS)), Arc::new(Semaphore::new(MAX_LOGINS)));
    let mut tasks = JoinSet::new();
    let mut end = std::pin::pin!(end_of(input().map_err(StartError::Input)?));
    loop {
        tokio::select! {
            () = &mut end => break,
            Some(_) = tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let places = (clients.clone().try_acquire_owned(), logins.clone().try_acquire_owned());
                    if let (Ok(place), Ok(login)) = places {
                        let (config, control) = (config.clone(), options.control.clone());
                        tasks.spawn(async move {
                            client::serve(stream, address.ip().to_canonical(), config, &control, login).await;
                            drop(place);
                        });
                    }
                }
                // Probably out of descriptors; try again when some have been released.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
    Ok(())
}

fn listening_socket() -> std::io::Result<TcpListener> {
    let fd: OwnedFd = std::io::stdout().as_fd().try_clone_to_owned()?;
    let listener = std::net::TcpListener::from(fd);
    listener.local_addr()?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Standard input, a pipe from the daemon.
fn input() -> std::io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?)
}

async fn end_of(mut input: pipe::Receiver) {
    let mut bytes = [0; 64];
    while input.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

fn settings(host_key: russh::keys::PrivateKey) -> Config {
    Config {
        server_id: SshId::Standard(concat!("SSH-2.0-Lanyard_", env!("CARGO_PKG_VERSION")).into()),
        methods: client::methods(),
        auth_rejection_time: REJECTION,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![host_key],
        max_auth_attempts: MAX_PROOFS,
        // The daemon ends idle sessions (`exec-timeout`), and logins that take too long.
        inactivity_timeout: None,
        keepalive_interval: Some(KEEPALIVE),
        nodelay: true,
        window_size: 64 << 10,
        channel_buffer_size: 16,
        ..Config::default()
    }
}
