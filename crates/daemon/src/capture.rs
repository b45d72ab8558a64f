//! `monitor capture`: writes every frame that a port receives and sends, in the pcapng format, to a file or to the
//! client.
//!
//! Read packet(7) first. While a capture runs, the plane forwards the port at TC and through its device
//! (`Plane::capture`), so that frames of both directions pass the packet socket, whatever hook and delivery the port
//! uses otherwise.
//!
//! Invariant: a capture has a thread of its own, which waits for its file or client. Frames that it cannot process in
//! time are lost at its socket, and counted there; forwarding never waits.

use crate::core::Core;
use crate::files::FileError;
use lanyard_cli::outcome::Capture as Wanted;
use lanyard_config::InterfaceName;
use lanyard_netdev::PacketSocket;
use lanyard_plane::PlaneError;
use lanyard_types::PortId;
use lanyard_wire::pcapng::{self, Direction};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// Bytes sent in one reply, which has twice as many hexadecimal digits.
const PIECE: usize = 12 << 10;
/// Pieces that may wait for the client.
const QUEUE: usize = 64;
/// How often the thread checks whether it has to end, in milliseconds.
const WAIT_MS: u16 = 100;

/// Why there is no capture, or why it ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    #[error("{0} is not a port of the switch: capture there with tcpdump")]
    NoPort(String),
    /// The file that the frames are to be written to cannot be created.
    #[error(transparent)]
    File(#[from] FileError),
    #[error("a packet socket at {interface}: {cause}")]
    Socket {
        interface: String,
        #[source]
        cause: io::Error,
    },
    #[error(transparent)]
    Plane(#[from] PlaneError),
    #[error("a thread for the capture: {0}")]
    Thread(#[source] io::Error),
    #[error("writing the capture: {0}")]
    Write(#[source] io::Error),
}

/// A running capture; it ends when this is dropped.
pub(crate) struct Capture {
    core: Rc<RefCell<Core>>,
    port: PortId,
    stop: Arc<AtomicBool>,
    pieces: mpsc::Receiver<Result<Vec<u8>, CaptureError>>,
}

impl Capture {
    /// Starts a capture at a port of the switch.
    ///
    /// # Errors
    /// One line that names the interface or the file.
    pub(crate) fn start(core: &Rc<RefCell<Core>>, wanted: &Wanted) -> Result<Self, CaptureError> {
        let name = &wanted.interface;
        let mut borrowed = core.borrow_mut();
        let link = borrowed.ctx.facts().usable(name).map(|link| link.ifindex);
        let port = borrowed.ctx.port_of(&InterfaceName::Netdev(name.clone()));
        let (Some(ifindex), Some(port)) = (link, port) else {
            return Err(CaptureError::NoPort(name.clone()));
        };
        let file = match &wanted.file {
            Some(path) => Some(create(path).map_err(FileError::at(path.as_ref()))?),
            None => None,
        };
        let socket = PacketSocket::open(ifindex)
            .map_err(|cause| CaptureError::Socket { interface: name.clone(), cause })?;
        borrowed.ctx.plane.capture(port, true)?;
        drop(borrowed);
        let (sender, pieces) = mpsc::channel(QUEUE);
        let stop = Arc::new(AtomicBool::new(false));
        let capture = Self { core: core.clone(), port, stop: stop.clone(), pieces };
        let begin = pcapng::begin(name);
        let work = move || {
            if let Err(why) = run(&socket, begin, file, &sender, &stop) {
                // Sending fails if the session has ended, which also ends the capture.
                let _ = sender.blocking_send(Err(why));
            }
        };
        let spawned = std::thread::Builder::new().name("capture".into()).spawn(work);
        spawned.map(|_| capture).map_err(CaptureError::Thread)
    }

    /// The next piece for the client; `None` when the capture has ended.
    pub(crate) async fn next(&mut self) -> Option<Result<Vec<u8>, CaptureError>> {
        self.pieces.recv().await
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut core = self.core.borrow_mut();
        if let Err(error) = core.ctx.plane.capture(self.port, false) {
            core.ctx.log("PLANE", 4, "CAPTURE", &format!("ending a packet capture: {error}"));
        }
    }
}

/// Creates the file of a capture. Only its owner may read it, because it holds what hosts send to each other. An existing file
/// is replaced only if it is a capture or empty, because the switch asks no question before it does that.
fn create(path: &str) -> io::Result<File> {
    // A FIFO that is opened for both directions does not wait for its other end.
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let mut head = Vec::new();
    let is_regular = file.metadata()?.is_file();
    if is_regular {
        Read::take(&file, pcapng::MAGIC.len() as u64).read_to_end(&mut head)?;
    }
    if !is_regular || !(head.is_empty() || head == pcapng::MAGIC) {
        let reason = "it exists and is not a packet capture: name another file, or remove it first";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
    }
    file.set_len(0)?;
    file.rewind()?;
    Ok(file)
}

/// Captures frames until the capture ends.
fn run(
    socket: &PacketSocket,
    begin: Vec<u8>,
    mut file: Option<File>,
    sender: &mpsc::Sender<Result<Vec<u8>, CaptureError>>,
    stop: &AtomicBool,
) -> Result<(), CaptureError> {
    let mut bytes = begin;
    while !stop.load(Ordering::Relaxed) && !sender.is_closed() {
        match &mut file {
            Some(file) => file.write_all(&bytes).map_err(CaptureError::Write)?,
            None => {
                for piece in bytes.chunks(PIECE) {
                    if sender.blocking_send(Ok(piece.to_vec())).is_err() {
                        return Ok(());
                    }
                }
            }
        }
        bytes.clear();
        let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        // Interrupted or timed out: there is no frame, and the loop checks whether to end.
        let _ = poll(&mut ready, PollTimeout::from(WAIT_MS));
        while bytes.len() < PIECE {
            match socket.receive() {
                Ok(Some(packet)) => {
                    let direction = if packet.outgoing { Direction::Out } else { Direction::In };
                    pcapng::frame(&mut bytes, now_ns(), direction, &packet.frame);
                }
                Ok(None) => break,
                // The netdev went down; frames continue when it comes up again.
                Err(_) => break,
            }
        }
    }
    Ok(())
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config};

    /// No netdev of a machine has this index.
    const ABSENT: u32 = 0x7fff_fff0;

    fn switch() -> (Bench, Rc<RefCell<Core>>) {
        let bench = Bench::new();
        bench.kernel.add("eth1");
        bench.kernel.change("eth1", |link| link.ifindex = ABSENT);
        let mut core = bench.core();
        core.take(config("interface eth1\n switchport")).expect("taken");
        (bench, Rc::new(RefCell::new(core)))
    }

    fn refusal(interface: &str, file: Option<String>) -> String {
        let (_bench, core) = switch();
        let wanted = Wanted { interface: interface.into(), file };
        Capture::start(&core, &wanted).map(drop).expect_err("refused").to_string()
    }

    #[test]
    fn a_refused_capture_reports_its_reason() {
        assert_eq!(refusal("eth9", None), "eth9 is not a port of the switch: capture there with tcpdump");
        let file = "/nonexistent/a.pcapng";
        let reason = refusal("eth1", Some(file.into()));
        assert!(reason.starts_with(&format!("{file}: No such file or directory")), "{reason}");
        let reason = refusal("eth1", None);
        assert!(reason.starts_with("a packet socket at eth1: "), "{reason}");
    }

    #[test]
    fn an_existing_file_is_replaced_only_if_it_is_a_capture() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.pcapng");
        let name = path.to_str().expect("text");
        create(name).expect("made").write_all(&pcapng::begin("eth1")).expect("written");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        drop(create(name).expect("an earlier capture"));
        assert_eq!(std::fs::read(&path).expect("read"), b"");
        std::fs::write(&path, "hostname sw1\n").expect("written");
        let reason = create(name).map(drop).expect_err("refused").to_string();
        assert!(reason.contains("not a packet capture"), "{reason}");
        assert_eq!(std::fs::read(&path).expect("read"), b"hostname sw1\n");
        let reason = create(directory.path().to_str().expect("text")).map(drop).expect_err("refused");
        assert_eq!(reason.kind(), io::ErrorKind::IsADirectory);
    }

    /// When a capture ends the plane is notified, and forwards the port as before.
    #[test]
    fn the_plane_is_notified_of_the_end_of_a_capture() {
        let (bench, core) = switch();
        let port = core.borrow().ctx.port_of(&InterfaceName::Netdev("eth1".into())).expect("a port");
        let (sender, pieces) = mpsc::channel(QUEUE);
        let stop = Arc::new(AtomicBool::new(false));
        let mut capture = Capture { core: core.clone(), port, stop: stop.clone(), pieces };
        sender.try_send(Ok(vec![1, 2])).expect("room");
        drop(sender);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let got = runtime
            .block_on(async { (capture.next().await.and_then(Result::ok), capture.next().await.is_none()) });
        assert_eq!(got, (Some(vec![1, 2]), true));
        drop(capture);
        assert!(stop.load(Ordering::Relaxed), "the thread ends");
        assert_eq!(*bench.plane.captures.lock(), [(port, false)]);
    }
}
