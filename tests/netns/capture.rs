//! What a stranger's eyes see: tcpdump on every wire.

use crate::harness::{Bed, Net, Plane, scenarios, wait_for};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

scenarios! {
    tcpdump_sees_no_leak: ebpf soft;
}

/// tcpdump on one wire.
struct Dump(Child);

impl Dump {
    /// Starts it; it listens when this returns.
    fn start(net: &Net, device: &str) -> Self {
        let mut command = Command::new("tcpdump");
        command.args(["--immediate-mode", "-lnnei", device]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = net.spawn(&mut command);
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "tcpdump does not listen on {device}");
        }
        std::thread::spawn(move || drop(std::io::copy(&mut said, &mut std::io::sink())));
        Self(child)
    }
    /// Ends it: what it has seen.
    fn end(mut self) -> String {
        let pid = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        let mut text = String::new();
        self.0.stdout.take().expect("piped").read_to_string(&mut text).unwrap();
        self.0.wait().unwrap();
        text
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tcpdump_sees_no_leak(plane: Plane) {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return println!("skipped: tcpdump is not installed");
    }
    let config = "vlan 10,20\ninterface range p1 - 2\n switchport access vlan 10\ninterface p3\n switchport access vlan 20\n\
        interface p4\n switchport mode trunk\ninterface p5\n switchport mode trunk\n switchport trunk allowed vlan 20\n";
    let bed = Bed::new(plane, 5, config);
    bed.host(1).address("10.0.0.1/24");
    bed.host(2).address("10.0.0.2/24");
    let dumps: Vec<Dump> = bed.hosts.iter().map(|host| Dump::start(&host.net, "eth0")).collect();
    let ingress = Dump::start(&bed.net, "p1");
    bed.host(1).reaches("10.0.0.2");
    bed.host(1).tcp(bed.host(2), "10.0.0.2", 1 << 16);
    wait_for("the last acknowledgement to be seen", || bed.arrivals().iter().all(Vec::is_empty).then_some(()));
    let seen: Vec<String> = dumps.into_iter().map(Dump::end).collect();
    assert!(ingress.end().contains("ICMP echo request"), "the switch's side of the wire");
    let marks = |text: &str| text.lines().filter(|line| line.contains("02:ff:ff:ff:ff:ff")).count();
    for (at, text) in seen.iter().enumerate().take(2) {
        assert!(text.contains("ICMP echo reply") && text.contains("Flags [S.]"), "host {}: {text}", at + 1);
        assert!(!text.contains("802.1Q"), "host {}: {text}", at + 1);
    }
    // The trunk that carries the VLAN got the one broadcast, tagged; the others nothing but our marks.
    // A line that starts with the time is a frame.
    let is_frame = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
    let others =
        |at: usize| -> Vec<&str> { seen[at].lines().filter(is_frame).filter(|line| marks(line) == 0).collect() };
    assert_eq!(others(2), Vec::<&str>::new());
    assert_eq!(others(4), Vec::<&str>::new());
    let trunk = others(3);
    assert!(!trunk.is_empty() && trunk.iter().all(|line| line.contains("vlan 10") && line.contains("ARP")), "{trunk:?}");
}
