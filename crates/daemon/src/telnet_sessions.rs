//! The clients of the telnet server: a task for each.
//!
//! Invariant: at most [`MAX_CLIENTS`] clients are connected; further ones are closed at once and counted.

use crate::remote;
use crate::server::Shared;
use crate::users::{LineName, MAX_USERS, Origin, Protocol};
use nix::sys::socket::{setsockopt, sockopt};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The most clients at the same time, whether they have logged in or not.
const MAX_CLIENTS: usize = MAX_USERS;

/// Serves telnet's clients for ever.
pub(crate) async fn serve(shared: Shared) {
    let changed = shared.core.borrow().telnet.changed();
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let socket = shared.core.borrow().telnet.listening();
        let listener = socket.and_then(|socket| TcpListener::from_std(socket).ok());
        let Some(listener) = listener else {
            changed.notified().await;
            continue;
        };
        loop {
            tokio::select! {
                () = changed.notified() => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, client)) => {
                        let shared = shared.clone();
                        match places.clone().try_acquire_owned() {
                            Ok(place) => drop(tokio::task::spawn_local(async move {
                                client_session(stream, client.ip(), shared).await;
                                drop(place);
                            })),
                            Err(_) => shared.core.borrow_mut().users.turned_away += 1,
                        }
                    }
                    // Probably out of descriptors; try again when some have been released.
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
                },
            }
        }
    }
}

async fn client_session(stream: TcpStream, client: IpAddr, shared: Shared) {
    // A client on a machine that has disappeared must not keep its place for ever.
    let _ = setsockopt(&stream, sockopt::KeepAlive, &true);
    let _ = stream.set_nodelay(true);
    let host = client.to_canonical().to_string();
    let origin = Origin { line: LineName::Vty(0), host, protocol: Protocol::Telnet };
    let (reader, writer) = stream.into_split();
    remote::serve(Box::new(reader), Box::new(writer), origin, shared).await;
}
