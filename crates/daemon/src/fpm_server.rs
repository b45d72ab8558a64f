//! The sockets of FPM: the listener to which a routing suite connects, and the session with it.
//!
//! Read [`crate::fpm`] first. Invariant: input is read in bounded pieces, between which the rest of the
//! switch runs, however much a client sends. A client that does not read delays nothing.

use crate::core::Core;
use crate::fpm::Event;
use crate::server::Shared;
use lanyard_config::FpmServer;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Bytes read at once: some six hundred routes.
const PIECE: usize = 64 << 10;

/// The reason why a session ends.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the client has closed it")]
    Closed,
    #[error("the server's address was changed")]
    AddressChanged,
    #[error(transparent)]
    Protocol(#[from] lanyard_fpm::Framing),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Serves the clients of the configured socket, forever.
pub(crate) async fn serve(shared: Shared) {
    let changed = shared.core.borrow().fpm.changed();
    loop {
        let config = current(&shared);
        let socket = shared.core.borrow().fpm.socket();
        let Some(Ok(socket)) = socket.map(TcpListener::from_std) else {
            changed.notified().await;
            continue;
        };
        while config == current(&shared) {
            tokio::select! {
                () = changed.notified() => {}
                accepted = socket.accept() => match accepted {
                    Ok((stream, client)) => {
                        shared.core.borrow_mut().fpm_event(Event::Connected(client));
                        shared.changed.notify_one();
                        let Err(why) = session(&shared, &changed, &socket, &stream, config).await;
                        shared.core.borrow_mut().fpm_event(Event::Disconnected(&why.to_string()));
                        shared.changed.notify_one();
                    }
                    // For example when descriptors have run out.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
            }
        }
    }
}

fn current(shared: &Shared) -> Option<FpmServer> {
    shared.core.borrow().fpm.address()
}

/// Serves one client until the session ends.
async fn session(
    shared: &Shared,
    changed: &Notify,
    socket: &TcpListener,
    stream: &TcpStream,
    config: Option<FpmServer>,
) -> Result<std::convert::Infallible, Ended> {
    // A client on a machine that disappeared must not keep its place forever.
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
    let mut piece = vec![0; PIECE];
    loop {
        if current(shared) != config {
            return Err(Ended::AddressChanged);
        }
        let writes = !shared.core.borrow().fpm.output().is_empty();
        tokio::select! {
            ready = stream.readable() => {
                ready?;
                read(shared, stream, &mut piece)?;
            }
            ready = stream.writable(), if writes => {
                ready?;
                write(&mut shared.core.borrow_mut(), stream)?;
            }
            other = socket.accept() => if other.is_ok() {
                shared.core.borrow_mut().fpm_event(Event::TurnedAway);
            },
            () = changed.notified() => {}
        }
        // A deadline may have changed; also let other tasks run.
        shared.changed.notify_one();
        tokio::task::yield_now().await;
    }
}

fn read(shared: &Shared, stream: &TcpStream, piece: &mut [u8]) -> Result<(), Ended> {
    match stream.try_read(piece) {
        Ok(0) => Err(Ended::Closed),
        Ok(length) => Ok(shared.core.borrow_mut().fpm_input(&piece[..length])?),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn write(core: &mut Core, stream: &TcpStream) -> Result<(), Ended> {
    match stream.try_write(core.fpm.output()) {
        Ok(length) => {
            core.fpm.sent(length);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error.into()),
    }
}
