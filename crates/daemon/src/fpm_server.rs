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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config, messages};
    use std::cell::RefCell;
    use std::net::SocketAddr;
    use std::rc::Rc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Runs `work` with a server and the address at which it listens.
    fn served<F: Future<Output = ()>>(work: impl FnOnce(Shared, SocketAddr) -> F) {
        let bench = Bench::new();
        let core = Rc::new(RefCell::new(bench.core()));
        let shared = Shared { core, changed: Rc::default(), detached: Rc::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(serve(shared.clone()));
            let address = listen(&shared);
            let done = tokio::time::timeout(Duration::from_secs(60), work(shared, address)).await;
            done.expect("within a minute");
        });
    }

    /// Has the core listen at a free port.
    fn listen(shared: &Shared) -> SocketAddr {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket").local_addr().expect("bound");
        let text = format!("fpm server port {}", free.port());
        shared.core.borrow_mut().take(config(&text)).expect("taken");
        free
    }

    async fn logged(shared: &Shared, text: &str) {
        while !messages(&shared.core.borrow().ctx).iter().any(|line| line.contains(text)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[test]
    fn one_client_at_a_time() {
        served(|shared, address| async move {
            let mut first = TcpStream::connect(address).await.expect("connected");
            logged(&shared, "is up").await;
            let mut second = TcpStream::connect(address).await.expect("connected");
            assert_eq!(second.read(&mut [0; 16]).await.expect("closed"), 0, "turned away");
            first.shutdown().await.expect("shut down");
            logged(&shared, "is down: the client has closed it").await;
        });
    }

    #[test]
    fn a_frame_that_is_none_ends_the_session_and_the_next_client_is_served() {
        served(|shared, address| async move {
            let mut client = TcpStream::connect(address).await.expect("connected");
            client.write_all(&[9, 9, 0, 8, 0, 0, 0, 0]).await.expect("sent");
            assert_eq!(client.read(&mut [0; 16]).await.unwrap_or(0), 0, "closed");
            logged(&shared, "is down").await;
            let next = TcpStream::connect(address).await.expect("connected");
            let peer = next.local_addr().expect("bound").to_string();
            logged(&shared, &format!("session with {peer} is up")).await;
        });
    }

    #[test]
    fn another_address_ends_the_session() {
        served(|shared, address| async move {
            let mut client = TcpStream::connect(address).await.expect("connected");
            logged(&shared, "is up").await;
            let other = listen(&shared);
            assert_eq!(client.read(&mut [0; 16]).await.unwrap_or(0), 0, "closed");
            logged(&shared, "the server's address was changed").await;
            let again = TcpStream::connect(other).await.expect("the new one");
            let peer = again.local_addr().expect("bound").to_string();
            logged(&shared, &format!("session with {peer} is up")).await;
        });
    }
}
