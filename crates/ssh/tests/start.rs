//! How the program starts and ends. tests/netns/ssh.rs tests it with a switch and OpenSSH's client.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

fn program(directory: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard-sshd"));
    command.arg("--control").arg(directory.join("cli.sock"));
    command.arg("--host-key").arg(directory.join("key"));
    command
}

fn listening_socket() -> (Stdio, u16) {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let port = socket.local_addr().expect("an address").port();
    (Stdio::from(OwnedFd::from(socket)), port)
}

#[test]
fn a_listening_socket_and_a_private_host_key_are_required() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = program(directory.path()).stdin(Stdio::piped()).output().expect("started");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("not a listening socket"), "{text}");
    let key = directory.path().join("key");
    std::fs::write(&key, "secret").expect("written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("opened");
    let child = program(directory.path())
        .stdin(Stdio::piped())
        .stdout(listening_socket().0)
        .stderr(Stdio::piped())
        .spawn();
    let output = child.expect("started").wait_with_output().expect("ended");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("mode 644"), "{text}");
}

#[test]
fn the_server_ends_when_its_standard_input_closes() {
    let directory = tempfile::tempdir().expect("a directory");
    let (socket, port) = listening_socket();
    let mut child = program(directory.path()).stdin(Stdio::piped()).stdout(socket).spawn().expect("started");
    // No switch listens on the control socket, so the server closes the connection before it sends anything.
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connected");
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut bytes).expect("read");
    assert_eq!(bytes, b"");
    drop(child.stdin.take());
    assert!(child.wait().expect("ended").success());
    assert!(directory.path().join("key").exists());
}
