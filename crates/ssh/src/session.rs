//! The channel of a session: a terminal or a single command, copied between the client and the switch.
//!
//! Invariant: output that a client does not read is not buffered: the switch waits, and ends the session after a minute. Input
//! that the switch does not read is bounded by the channel's window.

use crate::connection::{Connection, Login};
use crate::link::{Link, LinkError};
use lanyard_access::telnet;
use lanyard_daemon::protocol::{Reply, Request};
use russh::server::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How long the client may take for a piece of output. The switch drops a session somewhat earlier.
const STALL: Duration = Duration::from_secs(70);
/// How long the server waits after a session for the client to close the connection, before it closes it itself.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes copied at once.
const PIECE: usize = 4096;
/// The number of the standard error output among a channel's extended data (RFC 4254, section 5.2).
const STDERR: u32 = 1;
/// Ctrl-C.
const INTERRUPT: u8 = 3;

/// Serves the channel, and ends the connection after it.
pub async fn serve(
    mut channel: Channel<Msg>,
    link: Link,
    login: Option<Login>,
    connection: Option<Connection>,
) {
    let mut size = None;
    loop {
        match channel.wait().await {
            Some(ChannelMsg::RequestPty { col_width, row_height, .. }) => {
                size = Some((col_width, row_height))
            }
            Some(ChannelMsg::RequestShell { .. }) => {
                drop(login);
                shell(channel, link, size).await;
                break;
            }
            Some(ChannelMsg::Exec { command, .. }) => {
                drop(login);
                commands(channel, link, &String::from_utf8_lossy(&command)).await;
                break;
            }
            Some(ChannelMsg::Close) | None => break,
            Some(_) => {}
        }
    }
    // OpenSSH's client closes the connection itself, and treats a connection that ends together with its session as broken.
    tokio::time::sleep(GRACE).await;
    if let Some(connection) = connection {
        connection.end();
    }
}

/// The size of a window as telnet's subnegotiation.
fn window((columns, rows): (u32, u32)) -> Vec<u8> {
    let cut = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    telnet::window(cut(columns), cut(rows))
}

/// Serves a terminal: copies bytes in both directions until either end closes.
async fn shell(channel: Channel<Msg>, mut link: Link, size: Option<(u32, u32)>) {
    let (mut from_client, to_client) = channel.split();
    if link.send(&Request::Terminal).await.is_err() {
        return;
    }
    let Link { mut reader, mut writer, .. } = link;
    let input = async {
        if let Some(size) = size {
            writer.write_all(&window(size)).await?;
        }
        while let Some(message) = from_client.wait().await {
            match message {
                ChannelMsg::Data { data } => writer.write_all(&telnet::encode(&data)).await?,
                ChannelMsg::WindowChange { col_width, row_height, .. } => {
                    writer.write_all(&window((col_width, row_height))).await?;
                }
                // The client's input has ended, for example a file (`ssh -T switch < commands`); output still follows.
                ChannelMsg::Eof => writer.shutdown().await?,
                ChannelMsg::Close => break,
                _ => {}
            }
        }
        Ok::<_, std::io::Error>(())
    };
    let output = async {
        let mut out = to_client.make_writer();
        let mut piece = [0; PIECE];
        while let Ok(count) = reader.read(&mut piece).await {
            if count == 0 || put(&mut out, &piece[..count]).await.is_err() {
                break;
            }
        }
    };
    tokio::pin!(output);
    tokio::select! {
        _ = input => {}
        () = &mut output => {}
    }
    finish(&to_client, 0).await;
}

/// Runs the lines of a command in a session until one is refused.
async fn commands(channel: Channel<Msg>, mut link: Link, text: &str) {
    let (mut from_client, to_client) = channel.split();
    let mut result = begin(&mut link).await;
    for line in text.lines() {
        if !matches!(result, Ok(Step::Taken)) {
            break;
        }
        result = command(&mut from_client, &to_client, &mut link, line).await;
    }
    if let Err(LinkError::Refused(reason)) = &result {
        let mut errors = to_client.make_writer_ext(Some(STDERR));
        let _ = put(&mut errors, format!("% {reason}\n").as_bytes()).await;
    }
    finish(&to_client, u32::from(!matches!(result, Ok(Step::Taken | Step::Closed)))).await;
}

/// The state of a session after a line.
enum Step {
    Taken,
    Refused,
    Closed,
}

async fn begin(link: &mut Link) -> Result<Step, LinkError> {
    link.send(&Request::Hello { user: String::new(), interactive: false }).await?;
    loop {
        match link.reply().await? {
            Reply::Done(_) => return Ok(Step::Taken),
            Reply::Error(reason) => return Err(LinkError::Refused(reason)),
            _ => {}
        }
    }
}

async fn command(
    from_client: &mut ChannelReadHalf,
    to_client: &ChannelWriteHalf<Msg>,
    link: &mut Link,
    line: &str,
) -> Result<Step, LinkError> {
    let (mut out, mut errors) = (to_client.make_writer(), to_client.make_writer_ext(Some(STDERR)));
    link.send(&Request::Exec { line: line.to_owned(), pasted: false }).await?;
    loop {
        let reply = tokio::select! {
            reply = link.reply() => reply?,
            message = from_client.wait() => {
                match message {
                    Some(ChannelMsg::Signal { .. }) => link.send(&Request::Interrupt).await?,
                    Some(ChannelMsg::Data { data }) if data.contains(&INTERRUPT) => {
                        link.send(&Request::Interrupt).await?;
                    }
                    Some(ChannelMsg::Close) | None => return Err(LinkError::Closed),
                    Some(_) => {}
                }
                continue;
            }
        };
        match reply {
            Reply::Text(text) | Reply::Stream(text) => put(&mut out, text.as_bytes()).await?,
            Reply::Monitor(text) => put(&mut out, format!("{text}\n").as_bytes()).await?,
            Reply::Bytes(digits) => put(&mut out, &bytes(&digits)).await?,
            Reply::Refusal(text) => put(&mut errors, text.as_bytes()).await?,
            Reply::Error(reason) => return Err(LinkError::Refused(reason)),
            Reply::Done(done) if done.hidden => {
                return Err(LinkError::Refused(
                    "this command asks for a secret, which needs a terminal".into(),
                ));
            }
            Reply::Done(done) if done.close => return Ok(Step::Closed),
            Reply::Done(done) => return Ok(if done.refused { Step::Refused } else { Step::Taken }),
            Reply::Completion { .. } | Reply::Help(_) | Reply::Authenticated(_) => {}
        }
    }
}

/// Bytes from hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len()).step_by(2).filter_map(|at| digits.get(at..at + 2));
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

/// Sends output. A client that has not taken it after [`STALL`] counts as gone: the result is `Closed`.
async fn put(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), LinkError> {
    tokio::time::timeout(STALL, to.write_all(bytes)).await.map_err(|_| LinkError::Closed)??;
    Ok(())
}

async fn finish(to_client: &ChannelWriteHalf<Msg>, status: u32) {
    let closing = async {
        let _ = to_client.exit_status(status).await;
        let _ = to_client.eof().await;
        let _ = to_client.close().await;
    };
    let _ = tokio::time::timeout(STALL, closing).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_windows() {
        assert_eq!(bytes("0a0dff"), [10, 13, 255]);
        assert!(bytes("0").is_empty());
        assert_eq!(window((80, 24)), [255, 250, 31, 0, 80, 0, 24, 255, 240]);
        assert_eq!(window((1 << 20, 0)), telnet::window(u16::MAX, 0));
    }
}
