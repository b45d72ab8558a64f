//! `lanyard console`: the switch's login on this terminal, for getty on a serial line.
//!
//! The switch does everything: it asks for name and secret, edits lines and prints pages. This program makes the terminal pass
//! each key, copies bytes in both directions, and reports the size of the window when it begins and when it changes. Input has
//! telnet's framing, in which the size is a command.

use crate::Failure;
use lanyard_access::telnet;
use lanyard_daemon::client::Client;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{InputFlags, SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Mutex;

/// Bytes copied at once.
const PIECE: usize = 4096;

/// Restores the terminal's settings.
struct Raw(Option<Termios>);

impl Raw {
    fn set() -> io::Result<Self> {
        if !io::stdin().is_terminal() {
            return Ok(Self(None));
        }
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        // The flow control of a serial line stays with the line.
        raw.input_flags |= before.input_flags & (InputFlags::IXON | InputFlags::IXOFF);
        tcsetattr(io::stdin(), SetArg::TCSANOW, &raw)?;
        Ok(Self(Some(before)))
    }
    fn restore(&self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, before);
        }
    }
}

/// The connection to the switch. Each write is one whole element of telnet's framing, so the threads that write exclude each
/// other.
struct Link(Mutex<UnixStream>);

impl Link {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stream = self.0.lock().map_err(|_| io::Error::other("a thread has panicked"))?;
        stream.write_all(bytes)
    }
    fn send_window(&self) -> io::Result<()> {
        match crossterm::terminal::size() {
            Ok((columns, rows)) => self.send(&telnet::window(columns, rows)),
            Err(_) => Ok(()),
        }
    }
}

/// Runs one login and its session, and returns when the switch has closed the connection.
pub fn run(instance: &str) -> Result<ExitCode, Failure> {
    let name = nix::unistd::ttyname(io::stdin()).ok();
    let name = name.map_or_else(|| "pipe".into(), |path| path.to_string_lossy().replace("/dev/", ""));
    let socket = |error: io::Error| format!("control socket: {error}");
    let stream = Client::connect(instance)?.console(&name).map_err(socket)?;
    let link: &'static Link = Box::leak(Box::new(Link(Mutex::new(stream.try_clone().map_err(socket)?))));
    // Blocked before there are other threads, so that only the thread that waits for the signal receives it.
    let mut resized = SigSet::empty();
    resized.add(Signal::SIGWINCH);
    resized.thread_block().map_err(|error| format!("signals: {error}"))?;
    let raw = Raw::set().map_err(|error| format!("terminal: {error}"))?;
    // This fails if the switch has already closed the connection; then the switch has sent the reason, which is printed below.
    let _ = link.send_window();
    std::thread::spawn(move || while resized.wait().is_ok() && link.send_window().is_ok() {});
    std::thread::spawn(move || {
        copy(io::stdin(), |bytes| link.send(&telnet::encode(bytes)));
        // The terminal has hung up: the session ends with its input.
        if let Ok(stream) = link.0.lock() {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
    });
    let mut out = io::stdout();
    copy(&stream, |bytes| out.write_all(bytes).and_then(|()| out.flush()));
    raw.restore();
    Ok(ExitCode::SUCCESS)
}

/// Copies until either end is closed.
fn copy(mut from: impl Read, mut to: impl FnMut(&[u8]) -> io::Result<()>) {
    let mut piece = [0; PIECE];
    loop {
        let count = match from.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        if to(&piece[..count]).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_to_the_end() {
        let (mut one, other) = UnixStream::pair().expect("a pair");
        let copying = std::thread::spawn(move || {
            let mut copied = Vec::new();
            copy(&other, |bytes| copied.write_all(bytes));
            copied
        });
        let text = vec![b'x'; 3 * PIECE + 1];
        one.write_all(&text).expect("sent");
        drop(one);
        assert_eq!(copying.join().expect("no panic"), text);
    }
}
