//! The connection to a receiver of the log over TLS (RFC 5425). The program `openssl` makes it, a process of its own for each
//! receiver: it encrypts, verifies the receiver's certificate, and sends the bytes that it reads from its standard input.
//!
//! Read openssl-s_client(1). Invariant: nothing is sent before the certificate has been verified, by the authorities of [`OWN_CA`]
//! or of the machine and for the receiver's name or address.

use lanyard_config::LogHost;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// The authorities that sign the certificates of receivers; where there is no such file, those of the machine.
const OWN_CA: &str = "/etc/lanyard/log-ca.pem";
const MACHINE_CA: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The program's line on stderr when it has verified the receiver.
const ESTABLISHED: &str = "CONNECTION ESTABLISHED";
/// The maximum length of the program's output that is read before that line, in bytes.
const MAX_PRINTED: usize = 8192;

/// A connection.
#[derive(Debug)]
pub(crate) struct Tls {
    program: Child,
    input: ChildStdin,
}

impl Tls {
    /// Connects to a receiver, and waits for its verification for at most `patience`.
    pub(crate) fn connect(to: &LogHost, patience: Duration) -> io::Result<Self> {
        let ca = if Path::new(OWN_CA).exists() { OWN_CA } else { MACHINE_CA };
        Self::connect_by(to, Path::new(ca), patience)
    }

    fn connect_by(to: &LogHost, ca: &Path, patience: Duration) -> io::Result<Self> {
        let mut command = Command::new("openssl");
        // `-nocommands`: otherwise a letter at the beginning of a piece could be a command for the program.
        command.args(["s_client", "-brief", "-nocommands", "-ign_eof", "-verify_return_error", "-CAfile"]);
        command.arg(ca).arg("-connect").arg(SocketAddr::new(to.address, to.port()).to_string());
        match &to.name {
            Some(name) => command.args(["-verify_hostname", name, "-servername", name]),
            None => command.arg("-noservername").arg("-verify_ip").arg(to.address.to_string()),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut program = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("openssl: {error}: install the package openssl"))
        })?;
        let (Some(input), Some(errors)) = (program.stdin.take(), program.stderr.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        // From here on, dropping this value ends the program.
        let tls = Self { program, input };
        fcntl(&tls.input, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        wait_for(errors, patience).map(|()| tls)
    }

    /// Sends a message. Fails if the program does not read for `patience`.
    pub(crate) fn send(&mut self, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.input.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut room = [PollFd::new(self.input.as_fd(), PollFlags::POLLOUT)];
                    if poll(&mut room, timeout(patience))? == 0 {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn timeout(time: Duration) -> PollTimeout {
    PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)
}

/// Reads until the program reports the connection.
fn wait_for(mut errors: ChildStderr, patience: Duration) -> io::Result<()> {
    let until = Instant::now() + patience;
    let (mut printed, mut piece) = (Vec::new(), [0; 1024]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let ready = poll(&mut [PollFd::new(errors.as_fd(), PollFlags::POLLIN)], timeout(left))?;
        let count = if ready == 0 { 0 } else { errors.read(&mut piece)? };
        printed.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&printed);
        if text.contains(ESTABLISHED) {
            break;
        }
        if count == 0 || printed.len() > MAX_PRINTED {
            let wrong = text.lines().find(|line| line.contains("error")).or_else(|| text.lines().next());
            let reason = wrong.unwrap_or("no answer").to_owned();
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, reason));
        }
    }
    // The program prints a few lines more, and must not be stopped by a pipe without a reader.
    let discard = move || drop(io::copy(&mut errors, &mut io::sink()));
    std::thread::Builder::new().name("lanyard-tls".into()).spawn(discard).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_config::LogTransport;
    use std::io::{BufRead, BufReader};
    use std::net::{Ipv4Addr, TcpListener};

    fn openssl(directory: &Path, arguments: &str) -> bool {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(directory);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// A receiver with a certificate of its own for 127.0.0.1 and `log.example`, which prints what it receives.
    struct Receiver {
        program: Child,
        port: u16,
    }

    impl Receiver {
        fn start(directory: &Path) -> Self {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
            let port = free.expect("a port").port();
            let mut command = Command::new("openssl");
            command.args(["s_server", "-quiet", "-cert", "cert.pem", "-key", "key.pem", "-accept"]);
            command.arg(format!("127.0.0.1:{port}")).current_dir(directory);
            let program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
            Self { program: program.expect("started"), port }
        }
    }

    impl Drop for Receiver {
        fn drop(&mut self) {
            let _ = self.program.kill();
            let _ = self.program.wait();
        }
    }

    #[test]
    fn a_receiver_is_verified_before_it_gets_anything() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        let make = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=log -addext \
                    subjectAltName=IP:127.0.0.1,DNS:log.example -keyout key.pem -out cert.pem";
        if !openssl(at, make) {
            println!("skipped: no openssl (package openssl)");
            return;
        }
        assert!(openssl(
            at,
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -keyout k.pem -out other.pem"
        ));
        let mut receiver = Receiver::start(at);
        let patience = Duration::from_secs(20);
        let host = |name: Option<&str>| LogHost {
            address: Ipv4Addr::LOCALHOST.into(),
            transport: LogTransport::Tls,
            port: Some(receiver.port),
            name: name.map(str::to_owned),
        };
        let until = Instant::now() + patience;
        let mut tls = loop {
            match Tls::connect_by(&host(None), &at.join("cert.pem"), patience) {
                Ok(tls) => break tls,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let error = Tls::connect_by(&host(None), &at.join("other.pem"), patience).map(drop);
        assert!(error.is_err(), "another authority");
        // The server serves one client after the other.
        tls.send(b"5 Q1\nk2\n", patience).expect("sent");
        let output = receiver.program.stdout.take().expect("a pipe");
        let mut lines = BufReader::new(output).lines();
        let mut line = || lines.next().expect("a line").expect("text");
        assert_eq!((line().as_str(), line().as_str()), ("5 Q1", "k2"));
        drop(tls);
        let error = Tls::connect_by(&host(Some("other.example")), &at.join("cert.pem"), patience).map(drop);
        assert!(error.is_err(), "another name");
        let mut tls =
            Tls::connect_by(&host(Some("log.example")), &at.join("cert.pem"), patience).expect("its name");
        tls.send(b"last\n", patience).expect("sent");
        assert_eq!(line(), "last");
    }
}
