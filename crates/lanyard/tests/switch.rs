//! Tests the program as a user runs it: a switch in a namespace of its own, hosts in theirs, and the command line.
//!
//! Each test removes its namespaces at its end, also when it fails. Without the rights to make them, it prints why
//! it is skipped.

#![allow(clippy::panic)] // how a test fails

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const LANYARD: &str = env!("CARGO_BIN_EXE_lanyard");
/// The longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(20);

/// The namespaces of a switch and of its hosts. Port `ethN` of the switch is one end of a veth pair whose
/// other end is `e0` of host N, with the address 10.0.0.N/24.
struct Bed {
    name: String,
    hosts: usize,
    switch: Option<Child>,
    plane: &'static str,
}

/// Returns a bed, or prints which rights are missing.
fn bed(hosts: usize, plane: &'static str) -> Option<Bed> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("lyt{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    if !ip(&["netns", "add", &name]).status.success() {
        println!("skipped: no right to make network namespaces (or no iproute2)");
        return None;
    }
    let bed = Bed { name, hosts, switch: None, plane };
    for n in 1..=hosts {
        let host = bed.host(n);
        assert!(ip(&["netns", "add", &host]).status.success());
        bed.wire(n);
    }
    if plane == "ebpf" {
        let support = Command::new(LANYARD).arg("version").output().expect("run");
        let support = String::from_utf8_lossy(&support.stdout).into_owned();
        if let Some(line) =
            support.lines().find(|line| line.starts_with("plane ebpf") && line.contains("not available"))
        {
            println!("skipped: {line}");
            return None;
        }
    }
    Some(bed)
}

fn ip(arguments: &[&str]) -> Output {
    Command::new("ip").args(arguments).output().expect("iproute2 is installed")
}

impl Bed {
    fn host(&self, n: usize) -> String {
        format!("{}h{n}", self.name)
    }
    fn wire(&self, n: usize) {
        let (port, host) = (format!("eth{n}"), self.host(n));
        // A host keeps its MAC address, so that the others' ARP entries stay valid when its link is made
        // again.
        let mac = format!("02:00:00:00:00:{n:02x}");
        let near = ["link", "add", &port, "netns", &self.name, "type", "veth"];
        let far = ["peer", "name", "e0", "address", &mac, "netns", &host];
        assert!(ip(&[&near[..], &far[..]].concat()).status.success());
        assert!(
            ip(&["-n", &host, "address", "add", &format!("10.0.0.{n}/24"), "dev", "e0"]).status.success()
        );
        assert!(ip(&["-n", &host, "link", "set", "e0", "up"]).status.success());
    }
    fn file(&self, name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("{}-{name}", self.name))
    }
    fn lanyard(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, LANYARD]).args(arguments).args(["--instance", &self.name]);
        command
    }
    /// Starts the switch with this startup-config, and returns what it printed until it was ready.
    fn start(&mut self, config: Option<&str>) -> String {
        let path = self.file("config");
        if let Some(config) = config {
            std::fs::write(&path, config).expect("written");
        }
        let path = path.to_str().expect("a path");
        let mut command = self.lanyard(&["run", "--plane", self.plane, "--config", path]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("started");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut printed = String::new();
        self.switch = Some(child);
        for line in lines.by_ref().map_while(Result::ok) {
            printed.push_str(&line);
            printed.push('\n');
            if line.contains(" ready: ") {
                // Keep reading, so that the switch never blocks on a full pipe.
                std::thread::spawn(move || lines.for_each(drop));
                return printed;
            }
        }
        panic!("the switch did not start: {printed}");
    }
    /// `ip netns exec` calls exec, so the child process is the switch itself.
    fn stop(&mut self, signal: &str) {
        let mut child = self.switch.take().expect("running");
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
        child.wait().expect("ended");
    }
    fn cli(&self, commands: &[&str]) -> Output {
        let mut command = Command::new(LANYARD);
        command.args(["cli", "--instance", &self.name]);
        for text in commands {
            command.args(["-c", text]);
        }
        command.output().expect("run")
    }
    /// Runs commands that must be accepted.
    fn done(&self, commands: &[&str]) -> String {
        let output = self.cli(commands);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{commands:?}: {printed}");
        String::from_utf8(output.stdout).expect("text")
    }
    /// Runs commands, the last of which must be refused; returns the reason.
    fn refused(&self, commands: &[&str]) -> String {
        let output = self.cli(commands);
        assert_eq!(output.status.code(), Some(1), "{commands:?}");
        String::from_utf8(output.stderr).expect("text")
    }
    fn json(&self, command: &str) -> Value {
        serde_json::from_str(&self.done(&[&format!("{command} | json")])).expect("JSON")
    }
    /// One interface of `show interfaces | json`.
    fn interface(&self, name: &str) -> Value {
        let all = self.json("show interfaces");
        let list = all["interfaces"].as_array().expect("a list");
        list.iter().find(|entry| entry["name"] == name).cloned().unwrap_or(Value::Null)
    }
    fn pings(&self, from: usize, to: &str) -> bool {
        let host = self.host(from);
        let ping = ["netns", "exec", &host, "ping", "-q", "-c", "1", "-W", "1", to];
        ip(&ping).status.success()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(mut child) = self.switch.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.lanyard(&["detach"]).output();
        for n in 1..=self.hosts {
            ip(&["netns", "delete", &self.host(n)]);
        }
        ip(&["netns", "delete", &self.name]);
        let _ = std::fs::remove_file(self.file("config"));
        for root in ["/run/lanyard", "/var/lib/lanyard"] {
            let _ = std::fs::remove_dir_all(PathBuf::from(root).join(&self.name));
        }
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

const TWO_VLANS: &str = "hostname sw1\nvlan 10\n name users\ninterface eth1\n switchport access vlan 10\n\
    interface eth2\n switchport access vlan 10\ninterface eth3\n switchport access vlan 20\nvlan 20\n";

fn bridges(plane: &'static str) {
    let Some(mut bed) = bed(3, plane) else { return };
    let before = ip(&["-n", &bed.name, "-br", "link"]).stdout;
    let printed = bed.start(Some(TWO_VLANS));
    assert!(printed.ends_with(&format!("lanyard: sw1 ready: 3 ports, plane {plane}\n")), "{printed}");
    eventually("hosts of a VLAN reach each other", || bed.pings(1, "10.0.0.2"));
    assert!(!bed.pings(1, "10.0.0.3"), "hosts of different VLANs do not");
    let table = bed.json("show mac address-table dynamic vlan 10");
    let ports: Vec<_> =
        table["entries"].as_array().expect("a list").iter().map(|entry| &entry["interface"]).collect();
    assert!(ports.contains(&&Value::from("eth1")) && ports.contains(&&Value::from("eth2")), "{table}");
    let port = bed.interface("eth1");
    assert_eq!((&port["kind"], &port["link_up"]), (&"switchport".into(), &true.into()), "{port}");

    // A VLAN interface: the kernel answers, and its link state follows the ports of the VLAN.
    bed.done(&["configure terminal", "interface vlan 10", "ip address 10.0.0.254 255.255.255.0"]);
    eventually("the VLAN interface answers", || bed.pings(1, "10.0.0.254"));
    assert_eq!(bed.interface("vlan10")["link_up"], true);
    bed.done(&["configure terminal", "interface range eth1 - 2", "shutdown"]);
    eventually("no port, no line", || bed.interface("vlan10")["link_up"] == false);
    assert!(!bed.pings(1, "10.0.0.2"));
    assert_eq!(bed.json("show mac address-table dynamic vlan 10")["total"], 0, "flushed with the link");
    bed.done(&["configure terminal", "interface range eth1 - 2", "no shutdown"]);
    eventually("the line comes back", || bed.interface("vlan10")["link_up"] == true);
    eventually("and forwards", || bed.pings(1, "10.0.0.254"));
    assert!(ip(&["-n", &bed.name, "link", "delete", "vlan10"]).status.success());
    eventually("a VLAN interface deleted by hand is made anew", || bed.pings(2, "10.0.0.254"));

    // The saved configuration is in force again after a restart.
    bed.done(&["write memory"]);
    let running = bed.done(&["show running-config"]);
    bed.stop("-TERM");
    bed.start(None);
    assert_eq!(bed.done(&["show running-config"]), running);
    eventually("after the restart", || bed.pings(1, "10.0.0.254"));

    // `detach` leaves the netdevs as they were found.
    assert!(bed.lanyard(&["detach"]).output().expect("run").status.success());
    bed.switch.take().expect("running").wait().expect("ended");
    assert_eq!(
        String::from_utf8_lossy(&ip(&["-n", &bed.name, "-br", "link"]).stdout),
        String::from_utf8_lossy(&before)
    );
}

#[test]
fn bridges_on_ebpf() {
    bridges("ebpf");
}

#[test]
fn bridges_on_soft() {
    bridges("soft");
}

#[test]
fn netdevs_vanish_and_come_back() {
    let Some(mut bed) = bed(2, "soft") else { return };
    let printed = bed.start(Some(
        "interface eth1\n switchport\ninterface eth2\n switchport\ninterface eth7\n switchport\n",
    ));
    assert!(printed.contains("interface eth7 is not present now"), "{printed}");
    eventually("forwards", || bed.pings(1, "10.0.0.2"));
    assert!(ip(&["-n", &bed.name, "link", "delete", "eth2"]).status.success());
    eventually("gone", || bed.interface("eth2")["mac"] == Value::Null);
    bed.wire(2);
    eventually("joins again", || bed.pings(1, "10.0.0.2"));
    // A rename removes the port of the old name and makes one of the new name.
    for (from, to) in [("eth2", "eth7"), ("eth7", "eth2")] {
        assert!(ip(&["-n", &bed.name, "link", "set", from, "down"]).status.success());
        assert!(ip(&["-n", &bed.name, "link", "set", from, "name", to]).status.success());
        assert!(ip(&["-n", &bed.name, "link", "set", to, "up"]).status.success());
        eventually("known by its new name", || bed.interface(to)["link_up"] == true);
        assert_eq!(bed.interface(from)["link_up"], false);
        eventually("forwards", || bed.pings(1, "10.0.0.2"));
    }
}

#[test]
fn refusals_change_nothing() {
    let Some(mut bed) = bed(1, "soft") else { return };
    for line in
        ["link add br0 type bridge", "link add ve1 type veth peer name ve2", "link set ve1 master br0"]
    {
        let words: Vec<&str> = ["-n", &bed.name].into_iter().chain(line.split(' ')).collect();
        assert!(ip(&words).status.success(), "{line}");
    }
    let printed = bed.start(Some(
        "hostname sw1\nbogus line\ninterface ve1\n switchport\ninterface eth1\n switchport\nvlan 4095\n",
    ));
    for want in
        ["line 2, column 1: invalid input", "line 4, column 2: ve1 is enslaved to br0", "line 7, column 6"]
    {
        assert!(printed.contains(want), "{want}: {printed}");
    }
    assert!(printed.ends_with("lanyard: sw1 ready: 1 ports, plane soft\n"), "the rest is applied: {printed}");
    assert!(bed.done(&["show logging"]).contains("line 4, column 2: ve1 is enslaved to br0"));

    let running = bed.done(&["show running-config"]);
    let why = bed.refused(&["configure terminal", "interface ve1", "switchport mode access"]);
    assert!(why.starts_with("% ve1 is enslaved to br0"), "{why}");
    let why = bed.refused(&["configure terminal", "interface eth1", "mtu 9000", "speed 100"]);
    assert!(why.contains("setting eth1 to 100 Mbit/s"), "the driver's refusal: {why}");
    assert!(why.contains("no speeds to choose from: enter speed auto (Operation not supported)"), "{why}");
    let why = bed.refused(&["configure terminal", "interface eth1", "mtu 1400", "hook xdp"]);
    assert!(why.contains("hook"), "the plane's refusal: {why}");
    assert_eq!(bed.interface("eth1")["mtu"], 1400);
    bed.done(&["configure terminal", "interface eth1", "no mtu"]);
    assert_eq!(bed.interface("eth1")["mtu"], 1500, "the MTU it was found with");
    bed.refused(&["show nonsense"]);
    let why = bed.refused(&["configure terminal", "banner motd #", "hello"]);
    assert!(why.contains("the banner has no end"), "{why}");
    assert_eq!(bed.done(&["show running-config"]), running);

    let second = bed.lanyard(&["run"]).output().expect("run");
    let why = String::from_utf8_lossy(&second.stderr).into_owned();
    let pid = bed.switch.as_ref().expect("running").id();
    assert_eq!(second.status.code(), Some(1));
    assert!(why.contains(&format!("is running already (process {pid})")), "{why}");
}

#[test]
fn a_crash_loses_nothing() {
    let Some(mut bed) = bed(2, "ebpf") else { return };
    bed.start(Some("interface eth1\n switchport\ninterface eth2\n switchport\n"));
    eventually("forwards", || bed.pings(1, "10.0.0.2"));
    let table = || bed_entries(&bed);
    let before = table();
    let host = bed.host(1);
    let mut ping = Command::new("ip")
        .args(["netns", "exec", &host, "ping", "-q", "-i", "0.005", "-c", "400", "10.0.0.2"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    bed.stop("-KILL");
    assert!(bed.pings(1, "10.0.0.2"), "forwards without the daemon");
    bed.start(None);
    assert_eq!(bed_entries(&bed), before, "the same addresses at the same ports");
    assert!(ping.try_wait().expect("asked").is_none(), "the traffic went on all the while");
    let output = ping.wait_with_output().expect("ended");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("400 received"), "{printed}");
}

/// Address and port of every dynamic entry.
fn bed_entries(bed: &Bed) -> Vec<(String, String)> {
    let table = bed.json("show mac address-table dynamic");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = table["entries"].as_array().expect("a list");
    entries.iter().map(|entry| (text(&entry["mac"]), text(&entry["interface"]))).collect()
}

#[test]
fn events_are_streamed() {
    let Some(mut bed) = bed(1, "soft") else { return };
    bed.start(Some("interface eth1\n switchport\n"));
    let mut monitor = Command::new(LANYARD)
        .args(["cli", "--instance", &bed.name, "-c", "monitor events link"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(monitor.stdout.take().expect("piped")).lines();
    let seen = std::thread::spawn(move || {
        let line = lines.by_ref().map_while(Result::ok).next();
        serde_json::from_str::<Value>(&line.unwrap_or_default())
    });
    // The stream begins some time after the program. Therefore change the link again and again until an event is
    // seen, and wait each time until the switch shows the change: the kernel reports carriers once a second at most,
    // and reports nothing about one that is back by then.
    let host = bed.host(1);
    eventually("an event", || {
        for (state, up) in [("down", false), ("up", true)] {
            ip(&["-n", &host, "link", "set", "e0", state]);
            eventually("the link", || bed.json("show interfaces eth1")["interfaces"][0]["link_up"] == up);
        }
        seen.is_finished()
    });
    let event = seen.join().expect("joined").expect("JSON");
    assert_eq!(
        (&event["type"], &event["action"], &event["interface"]),
        (&"link".into(), &"change".into(), &"eth1".into())
    );
    assert!(event["time"].is_string() && event["link_up"].is_boolean(), "{event}");
    let _ = monitor.kill();
    let _ = monitor.wait();
}

#[test]
fn usage() {
    let run = |arguments: &[&str]| Command::new(LANYARD).args(arguments).output().expect("run");
    for (arguments, code, want) in [
        (&["run", "--plane", "magic"][..], 2, "magic"),
        (&["frobnicate"][..], 2, "frobnicate"),
        (&["run", "--instance", "a/b"][..], 2, "a/b"),
        (
            &["cli", "--instance", "nobody-home", "-c", "show vlan"][..],
            1,
            "instance nobody-home: no switch is running",
        ),
        (&["detach", "--instance", "nobody-home"][..], 1, "instance nobody-home: there is no such switch"),
        (&["run", "--check", "/nonexistent"][..], 1, "/nonexistent"),
    ] {
        let output = run(arguments);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(printed.contains(want), "{arguments:?}: {printed}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("config");
    let path_text = path.to_str().expect("a path");
    for (config, code, want) in
        [(TWO_VLANS, 0, ""), ("vlan 5\nnonsense\n", 1, "line 2, column 1: invalid input")]
    {
        std::fs::write(&path, config).expect("written");
        let output = run(&["run", "--check", path_text]);
        assert_eq!(output.status.code(), Some(code));
        assert!(String::from_utf8_lossy(&output.stderr).contains(want));
    }
}
