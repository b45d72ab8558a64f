//! tcpdump's view of every wire, from outside the switch.

use crate::harness::{Bed, Net, Plane, scenarios, wait_for};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

scenarios! {
    tcpdump_sees_no_leak: ebpf soft;
}

/// tcpdump on one wire.
pub(crate) struct Dump {
    child: Child,
    seen: Arc<Mutex<String>>,
}

impl Dump {
    /// Starts tcpdump, and returns when it captures.
    pub(crate) fn start(net: &Net, device: &str) -> Self {
        let mut command = Command::new("tcpdump");
        command.args(["--immediate-mode", "-lnnei", device]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = net.spawn(&mut command);
        let (out, err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let this = Self { child, seen: Arc::default() };
        let mut printed = BufReader::new(err);
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert_ne!(printed.read_line(&mut line).unwrap(), 0, "tcpdump does not listen on {device}");
        }
        std::thread::spawn(move || drop(std::io::copy(&mut printed, &mut std::io::sink())));
        let seen = this.seen.clone();
        // A line that begins with the time stands for a frame; lines with its bytes may follow.
        let is_frame = |line: &String| line.starts_with(|c: char| c.is_ascii_digit());
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok).filter(is_frame) {
                let mut seen = seen.lock().unwrap();
                seen.push_str(&line);
                seen.push('\n');
            }
        });
        this
    }
    /// The frames seen so far, one line each, without the marks; and the number of marks.
    pub(crate) fn seen(&self) -> (Vec<String>, usize) {
        let seen = self.seen.lock().unwrap();
        let (marks, frames): (Vec<&str>, Vec<&str>) =
            seen.lines().partition(|line| line.contains("02:ff:ff:ff:ff:ff"));
        (frames.into_iter().map(str::to_owned).collect(), marks.len())
    }
}

/// True if tcpdump is installed.
pub(crate) fn has_tcpdump() -> bool {
    Command::new("tcpdump").arg("--version").output().is_ok()
}

impl Drop for Dump {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tcpdump_sees_no_leak(plane: Plane) {
    if !has_tcpdump() {
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
    let mut marks = 0;
    wait_for("the last acknowledgement to be seen", || {
        marks += 1;
        bed.arrivals().iter().all(Vec::is_empty).then_some(())
    });
    wait_for("tcpdump to catch up", || dumps.iter().all(|dump| dump.seen().1 == marks).then_some(()));
    wait_for("the switch's side of the wire", || {
        ingress.seen().0.iter().any(|line| line.contains("ICMP echo request")).then_some(())
    });
    let seen: Vec<Vec<String>> = dumps.iter().map(|dump| dump.seen().0).collect();
    for (at, frames) in seen.iter().enumerate().take(2) {
        let any = |what: &str| frames.iter().any(|line| line.contains(what));
        assert!(
            any("ICMP echo reply") && any("Flags [S.]") && !any("802.1Q"),
            "host {}: {frames:#?}",
            at + 1
        );
    }
    // The trunk that carries the VLAN got the one broadcast, tagged; the other ports got nothing.
    assert_eq!((&seen[2], &seen[4]), (&Vec::new(), &Vec::new()));
    let trunk = &seen[3];
    assert!(
        !trunk.is_empty() && trunk.iter().all(|line| line.contains("vlan 10") && line.contains("ARP")),
        "{trunk:?}"
    );
}
