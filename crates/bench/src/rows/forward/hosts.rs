//! Two hosts with the kernel's own stack, on both sides of a device: TCP throughput and ping round trip.

use super::rig::{Rig, Settings};
use crate::bed::{Bed, SENDER_IP, SINK_IP, Traffic};
use crate::dut::{Device, Kind, PortMode};
use crate::report::statistics::Spread;
use anyhow::{Context, Result, bail, ensure};
use lanyard_tester::os::{Pinned, Reaped, check_interrupted, wait_until};
use nix::sys::socket::{AddressFamily, SockFlag, SockType};
use std::net::UdpSocket;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const IPERF_PORT: u16 = 5201;
const READY_LIMIT: Duration = Duration::from_secs(10);

/// One TCP stream by iperf3, sender and receiver on a core each: payload bits per second that arrived.
pub struct TcpRig {
    device: Box<dyn Device>,
    bed: Bed,
    cores: (usize, usize),
    window: Duration,
}

impl TcpRig {
    /// Brings `kind` up between two hosts, with segmentation offload or without.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn up(settings: &Settings, kind: Kind, offload: bool) -> Result<Self> {
        let bed = Bed::new(1, Traffic::Hosts { offload })?;
        let device = kind.up(&bed, &settings.lanyard, PortMode::Access).with_context(|| kind.name())?;
        let window = settings.window.max(Duration::from_secs(1));
        Ok(Self { device, bed, cores: (settings.core, settings.other_core), window })
    }
}

impl Rig for TcpRig {
    fn round(&mut self) -> Result<f64> {
        let mut server = Command::new("iperf3");
        server.args(["-s", "-1", "-B", SINK_IP, "-A", &self.cores.1.to_string()]);
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let sink = &self.bed.sink;
        let _server =
            Reaped(sink.spawn(&mut server).context("cannot run iperf3 (Debian: apt-get install iperf3)")?);
        wait_until("iperf3's server", READY_LIMIT, || {
            let _inside = sink.enter()?;
            let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp")?;
            Ok(sockets.contains(&format!(":{IPERF_PORT:04X} 00000000:0000 0A")))
        })?;
        let seconds = self.window.as_secs().to_string();
        let core = self.cores.0.to_string();
        let out = self.bed.sender.run("iperf3", &["-c", SINK_IP, "-J", "-t", &seconds, "-A", &core], "")?;
        let json: serde_json::Value = serde_json::from_str(&out).context("iperf3's report")?;
        let rate = json["end"]["sum_received"]["bits_per_second"].as_f64();
        rate.context("iperf3's report has no end.sum_received.bits_per_second")
    }

    fn prepared(&self) -> Vec<String> {
        self.bed.prepared()
    }

    fn detail(&self) -> String {
        self.device.detail()
    }
}

/// Sends one ICMP echo after the other, with both hosts on one core. The figure is the median round trip in
/// microseconds.
pub struct PingRig {
    device: Box<dyn Device>,
    bed: Bed,
    socket: UdpSocket,
    core: usize,
    window: Duration,
}

impl PingRig {
    /// Brings `kind` up between two hosts.
    ///
    /// # Errors
    /// When something does not come up, or no echo comes back.
    pub fn up(settings: &Settings, kind: Kind) -> Result<Self> {
        let bed = Bed::new(1, Traffic::Hosts { offload: true })?;
        let device = kind.up(&bed, &settings.lanyard, PortMode::Access).with_context(|| kind.name())?;
        let socket = {
            let _inside = bed.sender.enter()?;
            icmp_socket()?
        };
        let mut rig = Self { device, bed, socket, core: settings.core, window: settings.window };
        wait_until("the first echo", READY_LIMIT, || Ok(rig.echo(0).is_ok()))?;
        Ok(rig)
    }

    fn echo(&mut self, seq: u16) -> Result<Duration> {
        let request = echo_request(seq);
        let start = Instant::now();
        self.socket.send(&request).context("ping")?;
        let mut answer = [0; 128];
        // The socket receives every ICMP message to this host; skip those that are not the reply to this
        // request.
        loop {
            check_interrupted()?;
            let length = self.socket.recv(&mut answer).context("no echo within a second")?;
            let took = start.elapsed();
            if length >= 28 && answer[20] == 0 && answer[24..28] == request[4..8] {
                return Ok(took);
            }
        }
    }
}

impl Rig for PingRig {
    fn round(&mut self) -> Result<f64> {
        let _core = Pinned::to(self.core)?;
        let start = Instant::now();
        let mut times = Vec::new();
        let mut lost = 0;
        let mut seq = 0u16;
        while start.elapsed() < self.window {
            seq = seq.wrapping_add(1);
            match self.echo(seq) {
                Ok(took) => times.push(took.as_secs_f64() * 1e6),
                Err(why) => {
                    check_interrupted()?;
                    lost += 1;
                    ensure!(lost < 4, "{why:#}");
                }
            }
        }
        Spread::of(&times).map(|s| s.median).context("no echo at all")
    }

    fn prepared(&self) -> Vec<String> {
        self.bed.prepared()
    }

    fn detail(&self) -> String {
        self.device.detail()
    }
}

/// A raw ICMP socket connected to the sink. The standard library has no such type; its UDP socket makes the
/// same system calls.
#[allow(unsafe_code)]
fn icmp_socket() -> Result<UdpSocket> {
    let (family, kind) = (AddressFamily::Inet as i32, SockType::Raw as i32 | SockFlag::SOCK_CLOEXEC.bits());
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(family, kind, libc::IPPROTO_ICMP) };
    if fd < 0 {
        bail!("a raw socket: {}", std::io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the call just returned, owned by nobody else.
    let socket = UdpSocket::from(unsafe { OwnedFd::from_raw_fd(fd) });
    socket.connect((SINK_IP, 1)).with_context(|| format!("{SENDER_IP} to {SINK_IP}"))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    Ok(socket)
}

/// RFC 792, echo: type 8, code 0, checksum, identifier, sequence number, and 56 bytes as ping(8) sends them.
fn echo_request(seq: u16) -> [u8; 64] {
    let mut packet = [0; 64];
    packet[0] = 8;
    packet[4..6].copy_from_slice(&0x4c59u16.to_be_bytes());
    packet[6..8].copy_from_slice(&seq.to_be_bytes());
    let sum: u32 = packet.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    packet[2..4].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_request_sums_to_all_ones() {
        for seq in [0, 1, 0x1234, 0xffff] {
            let words: u32 =
                echo_request(seq).chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
            assert_eq!((words & 0xffff) + (words >> 16), 0xffff, "sequence {seq}");
        }
    }
}
