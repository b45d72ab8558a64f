//! `logging host`: sends the log to other machines in the format of RFC 5424, over UDP (RFC 5426), TCP (RFC 6587, with octet
//! counting) or TLS (RFC 5425; [`crate::syslog_tls`]).
//!
//! Invariant: [`Receivers::send`] never waits. Each receiver has a thread and a queue of [`QUEUE`] messages; a message beyond the
//! queue or the rate is counted and lost, for that receiver alone.

use crate::log_rate::Bucket;
use crate::syslog_tls::Tls;
use jiff::Timestamp;
use lanyard_cli::view::LogReceiver;
use lanyard_config::{LogHost, LogTransport};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The maximum number of messages that wait for a receiver.
const QUEUE: usize = 1024;
/// The number of messages a second that a receiver gets, and how many at once after a quiet time.
const RATE_PER_S: u64 = 200;
const BURST: u64 = 1000;
/// How long a connection may take to be made, and a write to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first and the longest time between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(60);
/// The facility local7, as IOS sends (RFC 5424, 6.2.1).
const FACILITY: u8 = 23;
/// The maximum lengths of the header's fields (RFC 5424, 6).
const MAX_HOSTNAME: usize = 255;
const MAX_MSGID: usize = 32;

/// The receivers of the log.
#[derive(Debug, Default)]
pub(crate) struct Receivers {
    list: Vec<Host>,
}

/// A message to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) hostname: &'a str,
    pub(crate) facility: &'a str,
    pub(crate) severity: u8,
    pub(crate) mnemonic: &'a str,
    pub(crate) text: &'a str,
}

/// One receiver.
#[derive(Debug)]
struct Host {
    to: LogHost,
    /// `None` when its thread could not be started.
    queue: Option<SyncSender<String>>,
    shared: Arc<Shared>,
    bucket: Bucket,
    /// Messages that were lost because the queue was full, and because of the rate.
    dropped: u64,
    limited: u64,
}

/// The reports of a receiver's thread.
#[derive(Debug, Default)]
struct Shared {
    sent: AtomicU64,
    /// Messages that the system refused to send.
    failed: AtomicU64,
    is_connected: AtomicBool,
    /// Why the last attempt to send failed; empty if it succeeded.
    error: Mutex<String>,
    /// True when the receiver is no longer configured.
    has_ended: AtomicBool,
}

impl Receivers {
    /// Sends to these receivers from now on. A receiver that was there before keeps its queue and counters.
    pub(crate) fn configure(&mut self, now_ms: u64, hosts: &[LogHost]) {
        if self.list.iter().map(|host| &host.to).eq(hosts) {
            return;
        }
        let mut before = std::mem::take(&mut self.list);
        for to in hosts {
            let found = before.iter().position(|host| host.to == *to);
            self.list.push(match found {
                Some(at) => before.swap_remove(at),
                None => Host::start(to.clone(), now_ms),
            });
        }
        before.iter().for_each(|host| host.shared.has_ended.store(true, Ordering::Relaxed));
    }
    /// Queues a message for every receiver.
    pub(crate) fn send(&mut self, now_ms: u64, message: Message<'_>) {
        if self.list.is_empty() {
            return;
        }
        let text = format(message, Timestamp::now());
        for host in &mut self.list {
            if !host.bucket.take(now_ms) {
                host.limited += 1;
            } else if host.queue.as_ref().is_none_or(|queue| queue.try_send(text.clone()).is_err()) {
                host.dropped += 1;
            }
        }
    }
    /// The receivers, for `show logging`.
    pub(crate) fn view(&self) -> Vec<LogReceiver> {
        let view = |host: &Host| LogReceiver {
            host: host.to.address.to_string(),
            transport: host.to.transport.name(),
            port: host.to.port(),
            connected: host.shared.is_connected.load(Ordering::Relaxed),
            error: host.shared.error.lock().ok().map(|text| text.clone()).filter(|text| !text.is_empty()),
            sent: host.shared.sent.load(Ordering::Relaxed),
            dropped: host.dropped + host.shared.failed.load(Ordering::Relaxed),
            rate_limited: host.limited,
        };
        self.list.iter().map(view).collect()
    }
}

impl Host {
    fn start(to: LogHost, now_ms: u64) -> Self {
        let (queue, messages) = sync_channel(QUEUE);
        let shared = Arc::new(Shared::default());
        let (host, state) = (to.clone(), shared.clone());
        let thread = std::thread::Builder::new()
            .name("lanyard-syslog".into())
            .spawn(move || work(&host, &messages, &state));
        let queue = thread.ok().map(|_| queue);
        Self { to, queue, shared, bucket: Bucket::full(now_ms, RATE_PER_S, BURST), dropped: 0, limited: 0 }
    }
}

/// A message in the format of RFC 5424, without structured data.
fn format(message: Message<'_>, time: Timestamp) -> String {
    let printable = |text: &str, limit: usize| -> String {
        let text: String = text.chars().filter(char::is_ascii_graphic).take(limit).collect();
        if text.is_empty() { "-".to_owned() } else { text }
    };
    let Message { hostname, facility, severity, mnemonic, text } = message;
    let priority = FACILITY * 8 + severity.min(7);
    let host = printable(hostname, MAX_HOSTNAME);
    let id = printable(&format!("{facility}-{mnemonic}"), MAX_MSGID);
    let process = std::process::id();
    format!(
        "<{priority}>1 {time:.3} {host} lanyard {process} {id} - %{facility}-{severity}-{mnemonic}: {text}"
    )
}

/// The connection to a receiver.
enum Connection {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Tls(Tls),
}

impl Connection {
    fn open(to: &LogHost) -> io::Result<Self> {
        let address = SocketAddr::new(to.address, to.port());
        match to.transport {
            LogTransport::Udp => {
                let any: IpAddr = match to.address {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                let socket = UdpSocket::bind((any, 0))?;
                socket.connect(address)?;
                Ok(Self::Udp(socket))
            }
            LogTransport::Tcp => {
                let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Self::Tcp(stream))
            }
            LogTransport::Tls => Tls::connect(to, PATIENCE).map(Self::Tls),
        }
    }
    /// Sends a message. After an error it is not known whether a part of the message has been sent, so the connection must not be
    /// used any more.
    fn send(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(text.as_bytes()).map(drop),
            Self::Tcp(stream) => stream.write_all(counted(text).as_bytes()),
            Self::Tls(tls) => tls.send(counted(text).as_bytes(), PATIENCE),
        }
    }
}

/// A message with the number of its octets before it.
fn counted(text: &str) -> String {
    format!("{} {text}", text.len())
}

/// Sends what is queued until the receiver is no longer configured.
fn work(to: &LogHost, messages: &Receiver<String>, shared: &Shared) {
    let mut connection: Option<Connection> = None;
    for text in messages {
        let mut retry = RETRY;
        while !shared.has_ended.load(Ordering::Relaxed) {
            let result = match &mut connection {
                Some(connection) => connection.send(&text),
                None => Connection::open(to).and_then(|opened| connection.insert(opened).send(&text)),
            };
            shared.is_connected.store(result.is_ok(), Ordering::Relaxed);
            if let Ok(mut error) = shared.error.lock() {
                *error = result.as_ref().err().map_or_else(String::new, ToString::to_string);
            }
            if result.is_ok() {
                shared.sent.fetch_add(1, Ordering::Relaxed);
                break;
            }
            connection = None;
            // Do not wait for a UDP receiver: datagrams are lost while no program receives them. Repeat only for a connection.
            if to.transport == LogTransport::Udp {
                shared.failed.fetch_add(1, Ordering::Relaxed);
                break;
            }
            wait(retry, shared);
            retry = (retry * 2).min(MAX_RETRY);
        }
    }
}

/// Waits, unless the receiver is no longer configured.
fn wait(time: Duration, shared: &Shared) {
    let until = Instant::now() + time;
    while !shared.has_ended.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(200)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    const MESSAGE: Message<'static> = Message {
        hostname: "sw 1",
        facility: "LINK",
        severity: 3,
        mnemonic: "UPDOWN",
        text: "Interface eth1",
    };

    fn host(transport: LogTransport, port: u16) -> LogHost {
        LogHost { address: Ipv4Addr::LOCALHOST.into(), transport, port: Some(port), name: None }
    }

    #[test]
    fn the_format_of_rfc_5424() {
        let time = Timestamp::new(1_735_689_599, 7_000_000).expect("a time");
        let process = std::process::id();
        let want = format!(
            "<187>1 2024-12-31T23:59:59.007Z sw1 lanyard {process} LINK-UPDOWN - %LINK-3-UPDOWN: Interface eth1"
        );
        assert_eq!(format(MESSAGE, time), want);
        let odd = Message { hostname: "\u{e9}\n", facility: &"F".repeat(40), ..MESSAGE };
        let text = format(odd, time);
        let fields: Vec<&str> = text.split(' ').collect();
        assert_eq!((fields[2], fields[5].len()), ("-", MAX_MSGID));
    }

    #[test]
    fn datagrams_arrive() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        server.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let mut receivers = Receivers::default();
        receivers.configure(0, &[host(LogTransport::Udp, server.local_addr().expect("bound").port())]);
        receivers.send(0, MESSAGE);
        let mut buffer = [0; 2048];
        let length = server.recv(&mut buffer).expect("received");
        let text = String::from_utf8_lossy(&buffer[..length]);
        assert!(text.starts_with("<187>1 ") && text.ends_with("Interface eth1"), "{text}");
    }

    #[test]
    fn a_connection_counts_octets_and_is_made_again() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let mut receivers = Receivers::default();
        let to = host(LogTransport::Tcp, server.local_addr().expect("bound").port());
        receivers.configure(0, std::slice::from_ref(&to));
        let read = |stream: &mut TcpStream| {
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
            let mut length = Vec::new();
            let mut byte = [0];
            while length.last() != Some(&b' ') {
                stream.read_exact(&mut byte).expect("a digit");
                length.push(byte[0]);
            }
            let length: usize = String::from_utf8_lossy(&length).trim().parse().expect("a length");
            let mut text = vec![0; length];
            stream.read_exact(&mut text).expect("the message");
            String::from_utf8(text).expect("text")
        };
        receivers.send(0, MESSAGE);
        let (mut first, _) = server.accept().expect("connected");
        assert!(read(&mut first).ends_with("Interface eth1"));
        drop(first);
        // A write to the closed connection may succeed once; the messages after it take a new one.
        server.set_nonblocking(true).expect("set");
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut second = loop {
            receivers.send(0, MESSAGE);
            match server.accept() {
                Ok((stream, _)) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        second.set_nonblocking(false).expect("set");
        assert!(read(&mut second).ends_with("Interface eth1"));
        receivers.configure(0, std::slice::from_ref(&to));
        assert!(receivers.view()[0].sent >= 2, "the same receiver goes on");
    }

    #[test]
    fn a_receiver_that_does_not_read_delays_nothing_and_losses_are_counted() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let mut receivers = Receivers::default();
        receivers.configure(0, &[host(LogTransport::Tcp, server.local_addr().expect("bound").port())]);
        let long = "x".repeat(1000);
        let message = Message { text: &long, ..MESSAGE };
        let began = Instant::now();
        // Each message is 100 ms of the clock apart, so the rate limits none of them.
        for number in 0..20_000u64 {
            receivers.send(number * 100, message);
        }
        assert!(began.elapsed() < PATIENCE, "it waited for the receiver");
        let view = receivers.view();
        assert!(view[0].dropped > 0, "more than socket and queue hold: {view:?}");
        assert_eq!(view[0].rate_limited, 0);
    }

    #[test]
    fn the_rate_is_limited() {
        let mut receivers = Receivers::default();
        receivers.configure(0, &[host(LogTransport::Udp, 9)]);
        for _ in 0..BURST + 7 {
            receivers.send(0, MESSAGE);
        }
        assert_eq!(receivers.view()[0].rate_limited, 7);
        for _ in 0..RATE_PER_S + 3 {
            receivers.send(1000, MESSAGE);
        }
        assert_eq!(receivers.view()[0].rate_limited, 10);
    }
}
