//! Events that need other programs: TCP between hosts, BPF programs of other tools, and netdevs that are moved between
//! network namespaces.

use crate::harness::{DEADLINE, Host, Net, frame::text, mac};
use crate::model::HOSTS;
use crate::storm::Storm;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The length of a TCP transfer in bytes: several segments of the largest size.
const TRANSFER: usize = 300_000;
/// How long a netdev stays in another namespace.
const AWAY: Duration = Duration::from_millis(20);
/// The hooks that other tools use, and whether the netdev is a host's.
const HOOKS: [(&str, bool); 5] = [
    ("tcx-ingress", false),
    ("tcx-egress", false),
    ("tcx-ingress", true),
    ("tcx-egress", true),
    ("xdp", true),
];

/// The address of host `at` for TCP. The switch has none in this network.
fn address(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, at as u8)
}

/// Gives a host an address, and the neighbours that it needs for TCP.
pub fn give_address(host: &Host, at: usize) {
    let mut lines = format!("address add {}/24 dev eth0\n", address(at));
    for other in (1..=HOSTS).filter(|other| *other != at) {
        let _ = writeln!(
            lines,
            "neigh replace {} lladdr {} nud permanent dev eth0",
            address(other),
            text(mac(other as u16))
        );
    }
    host.net.ip(&lines);
}

/// Another tool's program, which passes everything on. It is detached when this is dropped.
pub struct Program(Child);

impl Program {
    /// `None` when the kernel refuses it, for example because another program is at the hook.
    fn attach(net: &Net, hook: &str, netdev: &str) -> Option<Self> {
        let mut command = Command::new("python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/netns/another_program.py"));
        command.args([hook, netdev]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut program = Self(net.spawn(&mut command));
        let mut line = String::new();
        BufReader::new(program.0.stdout.take()?).read_line(&mut line).ok()?;
        (line == "attached\n").then_some(program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Storm {
    /// Attaches another tool's program to a port or to a host, or detaches it.
    pub fn another_program(&mut self) {
        if self.program.take().is_some() {
            return self.log("another tool's program is detached");
        }
        let (hook, at_host) = HOOKS[self.random.below(HOOKS.len())];
        let at = self.random.host();
        let netdev = if at_host { "eth0".to_owned() } else { format!("p{at}") };
        let net = if at_host { &self.bed.host(at).net } else { &self.bed.net };
        self.program = Program::attach(net, hook, &netdev);
        let answer = if self.program.is_some() { "" } else { ": refused" };
        self.log(&format!("another tool's program at {hook} of {netdev} (host {at}){answer}"));
    }

    /// Moves the netdev of a port to another namespace, with its programs, and back.
    pub fn move_away(&mut self) {
        let at = self.random.host();
        self.log(&format!("ip link set p{at} netns ANOTHER, and back"));
        let elsewhere = Net::new(false);
        let into = |net: &Net| format!("link set p{at} netns {}", net.path());
        self.bed.net.ip(&into(&elsewhere));
        elsewhere.ip(&format!("link set p{at} up"));
        std::thread::sleep(AWAY);
        self.traffic.check(&self.bed.hosts);
        elsewhere.ip(&into(&self.bed.net));
        self.bed.net.ip(&format!("link set p{at} up"));
        self.bed.open_senders();
        self.port_down[at - 1] = false;
    }

    /// A TCP transfer between two hosts of one VLAN, with whatever offloads they have at the moment.
    pub fn tcp(&mut self) {
        let Some((a, b)) = self.pair(Self::same_vlan) else { return self.log("nothing: no hosts for TCP") };
        self.log(&format!("TCP from host {a} to host {b}"));
        if let Err(why) = transfer(self.bed.host(a), self.bed.host(b), address(b)) {
            for at in [a, b] {
                println!(
                    "{}",
                    self.bed.exec(&[&format!("show interfaces p{at}"), "show interfaces counters drops"])
                );
                self.run(Some(at), "true");
                let output = self.bed.host(at).net.output(Command::new("ethtool").args(["-k", "eth0"]));
                println!("{}", String::from_utf8_lossy(&output.stdout));
            }
            panic!("TCP from host {a} to host {b}: {why}");
        }
    }
}

/// Sends [`TRANSFER`] bytes, which must arrive unchanged.
fn transfer(client: &Host, server: &Host, address: Ipv4Addr) -> std::io::Result<()> {
    let to = SocketAddr::from((address, 5001));
    let listener = server.net.run(|| TcpListener::bind(to))?;
    let data: Vec<u8> = (0..TRANSFER).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    let mut out = client.net.run(|| TcpStream::connect_timeout(&to, DEADLINE))?;
    let (mut back, _) = listener.accept()?;
    out.set_write_timeout(Some(DEADLINE))?;
    back.set_read_timeout(Some(DEADLINE))?;
    let received = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut all = Vec::new();
            back.read_to_end(&mut all).map(|_| all)
        });
        let written = out.write_all(&data);
        drop(out);
        let all = reader.join().map_err(|_| std::io::Error::other("the reader has failed"))??;
        written.map(|()| all)
    })?;
    if received == data {
        Ok(())
    } else {
        Err(std::io::Error::other(format!("{} bytes, or others", received.len())))
    }
}
