//! Measures routes that reach a whole switch from outside: by `ip -batch`, by FPM, and by the command line's API.
//!
//! ```text
//!   flows ═ swp1 [switch on a chip] swp2 ═ old next hop, dead from the start
//!                   ║  asker        swp3 ═ new next hop, which counts the flows
//! ```
//!
//! The daemon, the chip's process and the kernel's routing all run. *Users* is the time until the asker has its answers: the
//! kernel answers `ip -batch`, the switch answers a client of FPM for each route, and a client of the API for all routes at once.

use super::network::{EVERY, net, watched};
use crate::rows::chip_switch::ChipSwitch;
use anyhow::{Context, Result};
use lanyard_tester::os::{self, Netns};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the switch may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Longest wait for answers and for flows.
const PATIENCE: Duration = Duration::from_secs(60);
/// UDP port of the flows.
const PORT: u16 = 9;
/// MAC addresses of the next hops.
const OLD_HOP: &str = "02:00:00:00:02:01";
const NEW_HOP: &str = "02:00:00:00:03:01";
const CONFIG: &str = "ip routing\nfpm server\n\
    interface swp1\n no switchport\n ip address 10.255.1.254 255.255.255.0\n\
    interface swp2\n no switchport\n ip address 10.255.2.254 255.255.255.0\n\
    interface swp3\n no switchport\n ip address 10.255.3.254 255.255.255.0\n";

/// The program that requests the routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Asker {
    /// The kernel has them from `ip -batch`; the switch follows.
    IpBatch,
    /// A routing suite sends them over FPM.
    Fpm,
    /// A client of the command line copies a file with them into the running configuration.
    Api,
}

impl Asker {
    /// The asker's name in options, rows and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::IpBatch => "ip-batch",
            Self::Fpm => "fpm",
            Self::Api => "api",
        }
    }
}

impl std::fmt::Display for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Milliseconds from the first request until the asker has all answers, and until the last flow arrives by the new next hop.
pub(super) struct Asked {
    pub(super) users_ms: f64,
    pub(super) outage_ms: f64,
}

/// Starts a switch, has an asker request `routes` routes, and measures. `number` makes the switch's name unique.
pub(super) fn measure(asker: Asker, routes: u32, number: usize) -> Result<Asked> {
    let (netns, source, hop) = (Netns::new()?, Netns::new()?, Netns::new()?);
    netns.ip(&format!(
        "link add swp1-wire type veth peer name eth0 netns {}\n\
         link add swp2-wire type veth peer name dead\nlink set dead up\n\
         link add swp3-wire type veth peer name eth0 address {NEW_HOP} netns {}\n",
        source.path(),
        hop.path()
    ))?;
    source
        .ip("address add 10.255.1.1/24 dev eth0\nlink set eth0 up\nroute add default via 10.255.1.254\n")?;
    hop.ip("address add 10.255.3.1/24 dev eth0\nlink set eth0 up\nroute add default via 10.255.3.254\n\
         route add local 11.0.0.0/8 dev lo\n")?;
    let switch = ChipSwitch::start(netns, &format!("{}-{number}", asker.name()), CONFIG)?;
    for (host, address) in [(&source, "10.255.1.254"), (&hop, "10.255.3.254")] {
        os::wait_until(&format!("an answer from {address}"), READY_WITHIN, || {
            Ok(host.run("ping", &["-n", "-c", "1", "-W", "1", address], "").is_ok())
        })?;
    }
    switch.netns.ip(&format!(
        "neighbour replace 10.255.2.1 lladdr {OLD_HOP} dev swp2 nud permanent\n\
         neighbour replace 10.255.3.1 lladdr {NEW_HOP} dev swp3 nud permanent\n\
         route add 11.0.0.0/8 via 10.255.2.1\n"
    ))?;
    os::wait_until("the route by the old next hop", READY_WITHIN, || {
        let shown = switch.cli(&["show ip route 11.0.0.0 | json"])?;
        Ok(shown.contains("11.0.0.0/8") && shown.contains("offloaded"))
    })?;
    let flows = watched(routes);
    let (sender, receiver) = (inside(&source, 0)?, inside(&hop, PORT)?);
    receiver.set_read_timeout(Some(Duration::from_millis(20)))?;
    let done = AtomicBool::new(false);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| send_flows(&sender, &flows, &done));
        let arrived = scope.spawn(|| arrivals(&receiver, flows.len(), start));
        let asked = ask(asker, &switch, routes);
        let users = start.elapsed();
        let last = arrived.join();
        done.store(true, Ordering::Release);
        asked?;
        let last = last.ok().flatten().context("flows did not return")?;
        Ok(Asked { users_ms: users.as_secs_f64() * 1e3, outage_ms: last.as_secs_f64() * 1e3 })
    })
}

fn inside(netns: &Netns, port: u16) -> Result<UdpSocket> {
    let _inside = netns.enter()?;
    Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?)
}

fn send_flows(socket: &UdpSocket, flows: &[u32], done: &AtomicBool) {
    while !done.load(Ordering::Acquire) {
        for flow in flows {
            // A packet for which a queue has no room is lost, as on a wire.
            let _ = socket.send_to(&flow.to_be_bytes(), (Ipv4Addr::from(u32::from(net(*flow)) + 1), PORT));
        }
        std::thread::sleep(EVERY);
    }
}

/// Receives until a packet of each of `count` flows has arrived; returns the time since `start`. `None` after [`PATIENCE`].
fn arrivals(socket: &UdpSocket, count: usize, start: Instant) -> Option<Duration> {
    let (mut seen, mut buffer) = (BTreeSet::new(), [0; 4]);
    while seen.len() < count && start.elapsed() < PATIENCE {
        if socket.recv(&mut buffer).is_ok() {
            seen.insert(buffer);
        }
    }
    (seen.len() == count).then(|| start.elapsed())
}

/// Requests the routes, and waits for the asker's answers.
fn ask(asker: Asker, switch: &ChipSwitch, routes: u32) -> Result<()> {
    let mut text = String::new();
    match asker {
        Asker::IpBatch => {
            (0..routes).try_for_each(|n| writeln!(text, "route add {}/24 via 10.255.3.1", net(n)))?;
            switch.netns.ip(&text).map(drop)
        }
        Asker::Api => {
            (0..routes).try_for_each(|n| writeln!(text, "ip route {} 255.255.255.0 10.255.3.1", net(n)))?;
            let file = switch.directory().join("routes");
            std::fs::write(&file, text)?;
            switch.cli(&[&format!("copy {} running-config", file.display())]).map(drop)
        }
        Asker::Fpm => by_fpm(switch, routes),
    }
}

fn by_fpm(switch: &ChipSwitch, routes: u32) -> Result<()> {
    const RTM_NEWROUTE: u16 = 24;
    const RTM_NEWNEXTHOP: u16 = 104;
    let ifindex = switch.netns.ifindex("swp3")?;
    let one = 1_u32.to_ne_bytes();
    let hop: [(u16, &[u8]); 3] = [(1, &one), (6, &[10, 255, 3, 1]), (5, &ifindex.to_ne_bytes())];
    let frame = |kind, header: &[u8], attributes: &[(u16, &[u8])]| {
        lanyard_fpm::frame(kind, header, attributes).context("an FPM frame that is too long")
    };
    let mut bytes = frame(RTM_NEWNEXTHOP, &[2, 0, 11, 0, 0, 0, 0, 0], &hop)?;
    for n in 0..routes {
        let destination = net(n).octets();
        // Destination, metric, next-hop group.
        let route: [(u16, &[u8]); 3] = [(1, &destination), (6, &20_u32.to_ne_bytes()), (30, &one)];
        bytes.extend(frame(RTM_NEWROUTE, &[2, 24, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0], &route)?);
    }
    let mut stream = {
        let _inside = switch.netns.enter()?;
        TcpStream::connect("127.0.0.1:2620").context("the FPM server")?
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = stream.try_clone()?;
    std::thread::scope(|scope| {
        let answers = scope.spawn(move || answers(&mut reader, routes));
        stream.write_all(&bytes)?;
        answers.join().unwrap_or_else(|_| Err(std::io::Error::other("the reader panicked")))?;
        Ok(())
    })
}

/// Reads FPM frames until `count` of them have arrived.
fn answers(reader: &mut TcpStream, count: u32) -> std::io::Result<()> {
    let (mut got, mut kept, mut piece) = (0, Vec::new(), vec![0; 1 << 16]);
    while got < count {
        let length = reader.read(&mut piece)?;
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        kept.extend_from_slice(&piece[..length]);
        let mut at = 0;
        while let Some([_, _, high, low]) = kept.get(at..at + 4) {
            let length = usize::from(u16::from_be_bytes([*high, *low])).max(4);
            if kept.len() < at + length {
                break;
            }
            (at, got) = (at + length, got + 1);
        }
        kept.drain(..at);
    }
    Ok(())
}
