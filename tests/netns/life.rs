//! The switch forwards while the daemon ends and starts: kill -9, SIGTERM, restarts, files with errors.

use crate::harness::daemon::{Daemon, LANYARD, lanyard};
use crate::harness::frame::PRIVATE;
use crate::harness::{BROADCAST, Bed, Host, Plane, frame, mac, scenarios, wait_for};
use lanyard_netdev::PacketSocket;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

scenarios! {
    killed_under_load: ebpf;
    killed_under_load_at_xdp: ebpf;
    terminated_under_load: ebpf;
    restarted_with_another_configuration: ebpf;
    netns_exec: ebpf;
    restart_keeps_the_configuration: ebpf soft;
    restart_from_its_own_running_config: ebpf soft;
    mistakes_in_the_startup_file: ebpf soft;
    one_daemon_an_instance: ebpf soft;
    restarted_without_its_startup_file: ebpf;
    started_without_its_startup_file: ebpf soft;
    restarted_with_a_bad_line: ebpf;
    hangup_reopens_the_log: ebpf soft;
    a_detach_that_fails_can_be_repeated: ebpf;
    no_soft_plane_over_a_live_one: ebpf;
    a_port_that_is_renamed: ebpf soft;
    killed_while_grace_periods_are_expedited: ebpf;
}

/// Numbered frames from one host to another, several thousand per second, until the stream is ended.
pub(crate) struct Stream {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u32>,
    next: u32,
}

impl Stream {
    pub(crate) fn start(from: &Host, to: &Host) -> Self {
        let index = from.net.index("eth0");
        let socket = from.net.run(|| PacketSocket::sender(index)).unwrap();
        let head = [&to.mac[..], &from.mac[..], &PRIVATE.to_be_bytes(), b"numb"].concat();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let send = move || {
            let mut number = 0u32;
            while !stopped.load(Ordering::Relaxed) {
                let mut bytes = [&head[..], &number.to_be_bytes()].concat();
                bytes.resize(60, 0);
                socket.send(&bytes).unwrap();
                number += 1;
                // This sleep sets the rate.
                std::thread::sleep(Duration::from_micros(100));
            }
            number
        };
        Self { stop, sender: std::thread::spawn(send), next: 0 }
    }
    /// Processes the frames that have arrived: their numbers must be consecutive.
    pub(crate) fn take(&mut self, to: &Host) {
        while let Some(frame) = to.next() {
            let Some(number) = frame.0.get(14..).and_then(|rest| rest.strip_prefix(b"numb")) else {
                continue;
            };
            assert_eq!(number[..4], self.next.to_be_bytes(), "lost, doubled or overtaken");
            self.next += 1;
        }
    }
    /// Waits until another `count` frames have arrived.
    pub(crate) fn flows(&mut self, to: &Host, count: u32) {
        let wanted = self.next + count;
        wait_for("traffic to flow", || {
            self.take(to);
            (self.next >= wanted).then_some(())
        });
    }
    /// Ends the stream, and waits until everything that was sent has arrived.
    pub(crate) fn end(mut self, to: &Host) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        (self.sender, self.stop) = (std::thread::spawn(|| 0), Arc::default());
        let missing = sent - self.next;
        self.flows(to, missing);
        assert_eq!(to.missed(), 0);
    }
}

const CONFIG: &str = "\
vlan 10,20
mac address-table static 0200.0000.0032 vlan 10 interface p3
interface p1
 switchport access vlan 10
interface p2
 switchport access vlan 10
interface p3
 switchport access vlan 10
interface p4
 switchport mode trunk
interface vlan 10
 ip address 10.0.10.254/24
";

/// The entries of the FDB: address, VLAN, interface, type.
fn table(bed: &Bed) -> BTreeSet<String> {
    let view = bed.show("show mac address-table");
    let row = |e: &Value| format!("{} {} {} {}", e["vlan"], e["mac"], e["interface"], e["type"]);
    view["entries"].as_array().unwrap().iter().map(row).collect()
}

fn survives(plane: Plane, signal: Signal, more: &str) {
    let bed = Bed::new(plane, 4, &format!("{CONFIG}{more}"));
    bed.chatter.set(true);
    for port in 1..=4 {
        let f = frame(BROADCAST, mac(port));
        bed.exchange(port.into(), &[if port == 4 { f.vlan(10) } else { f }]);
    }
    bed.exchange(4, &(100..200).map(|n| frame(BROADCAST, mac(n)).vlan(20)).collect::<Vec<_>>());
    let before = table(&bed);
    assert_eq!(before.len(), 106, "{before:?}");
    bed.host(2).drain();
    let (one, two) = (bed.host(1), bed.host(2));
    let mut stream = Stream::start(one, two);
    stream.flows(two, 200);
    bed.end_daemon(signal);
    stream.flows(two, 500);
    // A second and a third daemon start while frames are forwarded; then come changes that do not concern
    // this traffic.
    bed.start();
    stream.flows(two, 200);
    assert_eq!(table(&bed), before);
    bed.configure("vlan 30\ninterface p4\nswitchport trunk allowed vlan 10,20,30");
    bed.end_daemon(signal);
    bed.start();
    stream.flows(two, 200);
    bed.configure("interface p3\nshutdown\nno shutdown\nswitchport access vlan 20\nno interface vlan 10");
    stream.flows(two, 200);
    stream.end(two);
    bed.expect_at(1, &frame(mac(2), mac(1)), &[2]);
    let f = frame(BROADCAST, mac(1));
    bed.expect(1, &f, &[(2, f.clone()), (4, f.vlan(10))]);
}

fn killed_under_load(plane: Plane) {
    survives(plane, Signal::SIGKILL, "");
}

fn killed_under_load_at_xdp(plane: Plane) {
    survives(plane, Signal::SIGKILL, "interface range p1 - 4\n hook xdp\n");
}

fn terminated_under_load(plane: Plane) {
    survives(plane, Signal::SIGTERM, "");
}

fn restarted_with_another_configuration(plane: Plane) {
    let bed = Bed::new(plane, 4, CONFIG);
    bed.chatter.set(true);
    bed.exchange(2, &[frame(BROADCAST, mac(2))]);
    bed.exchange(3, &[frame(BROADCAST, mac(3))]);
    let (one, two) = (bed.host(1), bed.host(2));
    two.drain();
    let mut stream = Stream::start(one, two);
    stream.flows(two, 100);
    bed.end_daemon(Signal::SIGKILL);
    // p3 moves to VLAN 20, p4 is no longer a port, and the VLAN interface is another one.
    let config = "vlan 10,20\ninterface range p1 - 2\n switchport access vlan 10\ninterface p3\n switchport access vlan 20\ninterface vlan 20\n";
    std::fs::write(bed.config_file(), config).unwrap();
    bed.start();
    stream.flows(two, 100);
    stream.end(two);
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    bed.learned(mac(2), 10, Some("p2"));
    bed.learned(mac(3), 10, None);
    let links = bed.net.links();
    assert!(links.contains(&"vlan20".to_owned()) && !links.contains(&"vlan10".to_owned()), "{links:?}");
    // A port that was removed is as it was found, and its counters are gone.
    bed.exact.set(false);
    let port = bed.netdev.link("p4").unwrap();
    assert!(!port.admin_up && !port.promiscuous);
}

/// A name for a bed's namespace under /run/netns, as `ip netns` makes it, while this value exists.
struct Named(String);

impl Named {
    fn new(bed: &Bed) -> Self {
        let name = format!("ly-{}", bed.instance);
        lanyard_netdev::netns::create(&name).unwrap();
        let this = Self(name);
        // Mount the bed's namespace at the name, in place of the one that `ip netns` has made.
        let nothing: Option<&str> = None;
        nix::mount::umount2(this.path().as_str(), nix::mount::MntFlags::MNT_DETACH).unwrap();
        let from = bed.net.path();
        nix::mount::mount(
            Some(from.as_str()),
            this.path().as_str(),
            nothing,
            nix::mount::MsFlags::MS_BIND,
            nothing,
        )
        .unwrap();
        this
    }
    fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }
    /// The command `ip netns exec NAME lanyard ...`.
    fn lanyard(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, LANYARD]).args(arguments);
        command
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        lanyard_netdev::netns::delete(&self.0).unwrap();
    }
}

/// `ip netns exec` gives its command a mount namespace with a fresh /sys: pins made there would disappear
/// with it.
fn netns_exec(plane: Plane) {
    let bed = Bed::without_switch(plane, 4, 1500);
    let name = Named::new(&bed);
    std::fs::write(bed.config_file(), CONFIG).unwrap();
    let config = bed.config_file().display().to_string();
    let run = || {
        let mut command =
            name.lanyard(&["run", "--instance", &bed.instance, "--plane", plane.name(), "--config", &config]);
        bed.adopt(Daemon::spawn_command(&bed.net, &mut command, &bed.file("log")));
    };
    run();
    bed.chatter.set(true);
    bed.exchange(2, &[frame(BROADCAST, mac(2))]);
    let before = table(&bed);
    let (one, two) = (bed.host(1), bed.host(2));
    two.drain();
    let mut stream = Stream::start(one, two);
    stream.flows(two, 100);
    bed.end_daemon(Signal::SIGKILL);
    stream.flows(two, 100);
    // Start a daemon outside of that mount namespace, then one inside another such mount namespace.
    bed.start();
    stream.flows(two, 100);
    assert!(table(&bed).is_superset(&before), "{:?}, before {before:?}", table(&bed));
    bed.end_daemon(Signal::SIGTERM);
    stream.flows(two, 100);
    run();
    stream.flows(two, 100);
    assert!(table(&bed).is_superset(&before), "{:?}, before {before:?}", table(&bed));
    bed.end_daemon(Signal::SIGKILL);
    stream.end(two);
    let printed = bed.net.output(&mut name.lanyard(&["detach", "--instance", &bed.instance]));
    assert!(printed.status.success(), "{printed:?}");
    bed.detached.set(true);
    assert_eq!(crate::harness::check::left_behind(&bed), Vec::<String>::new());
}

const MUCH: &str = "\
hostname campus
vlan 10
 name users
vlan 20,30-35
vlan 40
 state suspend
 shutdown
mac address-table aging-time 600
mac address-table limit 5000
mac address-table limit 7 vlan 30
no mac address-table learning vlan 20
mac address-table static 0200.0000.0032 vlan 10 interface p1
mac address-table static 0200.0000.0033 vlan 10 drop
reserved-address 14 forward
ip routing
ip route 0.0.0.0 0.0.0.0 10.0.10.1
interface p1
 description the first, of \"three\"
 switchport access vlan 10
 switchport protected
 switchport block unicast
 mac address-table limit 100
interface p2
 switchport mode trunk
 switchport trunk native vlan 20
 switchport trunk allowed vlan 10,20,30-35
 mtu 1400
interface p3
 switchport mode dot1q-tunnel
 switchport access vlan 30
 shutdown
interface vlan 10
 ip address 10.0.10.254 255.255.255.0
 ipv6 address fd00:10::254/64
 mtu 1400
";

fn running(bed: &Bed) -> String {
    bed.show("show running-config")["text"].as_str().unwrap().to_owned()
}

fn restart_keeps_the_configuration(plane: Plane) {
    let bed = Bed::new(plane, 3, "");
    bed.chatter.set(true);
    bed.configure(MUCH);
    let before = running(&bed);
    for line in MUCH.lines().filter(|line| line.starts_with("interface") || line.starts_with("mac")) {
        assert!(before.contains(line), "{line} is not in\n{before}");
    }
    let printed = bed.exec(&["write memory"]);
    assert!(printed.contains("[OK]"), "{printed}");
    bed.configure("hostname unsaved");
    let vlans = bed.show("show vlan");
    bed.end_daemon(Signal::SIGKILL);
    bed.exact.set(plane == Plane::ebpf);
    bed.start();
    assert!(!bed.printed().contains("refused"), "{}", bed.printed());
    assert_eq!(running(&bed), before);
    assert_eq!(bed.show("show vlan"), vlans);
    assert_eq!(bed.show("show startup-config")["text"].as_str(), Some(before.as_str()));
}

fn restart_from_its_own_running_config(plane: Plane) {
    let bed = Bed::new(plane, 3, MUCH);
    bed.chatter.set(true);
    let before = running(&bed);
    bed.end_daemon(Signal::SIGTERM);
    std::fs::write(bed.config_file(), &before).unwrap();
    bed.exact.set(plane == Plane::ebpf);
    bed.start();
    assert!(!bed.printed().contains("refused"), "{}", bed.printed());
    assert_eq!(running(&bed), before);
}

fn mistakes_in_the_startup_file(plane: Plane) {
    let text = "\
hostname sw9
nonsense here
interface p1
 switchport
 switchport access vlan 5000
interface p2
 switchport
 switchport mode sideways
vlan 0
vlan 4095
interface p3
 switchport
interface nowhere9
 switchport
";
    let bed = Bed::without_switch(plane, 3, 1500);
    bed.net.ip("link add br0 type bridge\nlink set p3 master br0");
    std::fs::write(bed.config_file(), text).unwrap();
    let printed = lanyard(None, &["run", "--check", &bed.config_file().display().to_string()]).unwrap_err();
    for place in [
        "line 2, column 1",
        "line 5, column 25",
        "line 8, column 18",
        "line 9, column 6",
        "line 10, column 6",
    ] {
        assert!(printed.contains(place), "{place} is not in\n{printed}");
    }
    bed.start();
    let printed = bed.printed();
    let log = bed.show("show logging").to_string();
    // Lines that the netdevs contradict are refused with their line numbers; lines for a netdev that does not
    // exist are accepted.
    for place in [
        "line 2, column 1",
        "line 5, column 25",
        "line 8, column 18",
        "line 9, ",
        "line 10, ",
        "line 12, column 2",
    ] {
        assert!(printed.contains(place), "{place} is not in\n{printed}");
        assert!(log.contains(place), "{place} is not in\n{log}");
    }
    assert!(printed.contains("br0") && printed.contains("lanyard: sw9 ready"), "{printed}");
    assert!(!printed.contains("line 13") && !printed.contains("line 14"), "{printed}");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    bed.net.ip("link delete br0");
}

fn one_daemon_an_instance(plane: Plane) {
    let bed = Bed::new(plane, 2, "interface range p1 - 2\n switchport\n");
    let pid = bed.daemon.borrow().as_ref().unwrap().pid();
    let mut second = Daemon::spawn(&bed.net, &bed.instance, plane, None, &bed.file("second"));
    let printed = second.ready().unwrap_err();
    assert!(printed.contains("is running already") && printed.contains(&pid.to_string()), "{printed}");
    assert_eq!(second.end().code(), Some(1));
    // The attempt has not disturbed the running daemon: it forwards, and it answers.
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    assert!(bed.show("show version")["instance"] == bed.instance.as_str());
}

/// A switch that forwards is not taken down because its startup-config, named on the command line, is
/// missing.
fn restarted_without_its_startup_file(plane: Plane) {
    let bed = Bed::new(plane, 4, CONFIG);
    bed.chatter.set(true);
    bed.configure("interface p4\ndescription not saved");
    let before = running(&bed);
    bed.exchange(2, &[frame(BROADCAST, mac(2))]);
    let (one, two) = (bed.host(1), bed.host(2));
    two.drain();
    let mut stream = Stream::start(one, two);
    stream.flows(two, 100);
    bed.end_daemon(Signal::SIGKILL);
    std::fs::remove_file(bed.config_file()).unwrap();
    bed.start();
    stream.flows(two, 200);
    let loud = |why: &str| {
        let (file, printed) = (bed.config_file().display().to_string(), bed.printed());
        let log = bed.show("show logging").to_string();
        for part in [file.as_str(), why, "LAST RUNNING CONFIGURATION"] {
            assert!(printed.contains(part) && log.contains(part), "{part} is not in\n{printed}\n{log}");
        }
    };
    loud("No such file");
    assert_eq!(running(&bed), before);
    // The file exists and cannot be read.
    bed.end_daemon(Signal::SIGTERM);
    std::fs::write(bed.config_file(), b"hostname \xff\n").unwrap();
    bed.start();
    stream.flows(two, 200);
    loud("not UTF-8");
    assert_eq!(running(&bed), before);
    // If the copy of the running configuration is missing, too, the daemon does not start, and the plane
    // stays.
    bed.end_daemon(Signal::SIGTERM);
    let kept = format!("/run/lanyard/{}/running-config", bed.instance);
    std::fs::rename(&kept, bed.file("kept")).unwrap();
    let mut daemon =
        Daemon::spawn(&bed.net, &bed.instance, plane, Some(&bed.config_file()), &bed.file("refused"));
    let printed = daemon.ready().unwrap_err();
    assert!(printed.contains(&kept) && printed.contains("lanyard detach"), "{printed}");
    stream.flows(two, 200);
    std::fs::rename(bed.file("kept"), &kept).unwrap();
    bed.start();
    stream.flows(two, 200);
    stream.end(two);
    // `write memory` writes the file again; an empty file means defaults.
    bed.exec(&["write memory"]);
    assert_eq!(std::fs::read_to_string(bed.config_file()).unwrap(), before);
    bed.end_daemon(Signal::SIGTERM);
    std::fs::write(bed.config_file(), "").unwrap();
    bed.exact.set(false);
    bed.start();
    assert!(!running(&bed).contains("interface p1"), "{}", running(&bed));
    assert!(!bed.netdev.link("p1").unwrap().promiscuous);
}

fn started_without_its_startup_file(plane: Plane) {
    let bed = Bed::without_switch(plane, 2, 1500);
    bed.start();
    let printed = bed.printed();
    assert!(printed.contains("No such file") && printed.contains("default configuration"), "{printed}");
    bed.configure("interface range p1 - 2\nswitchport");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
}

/// A line that only the driver can refuse takes neither other ports out of service nor the other lines of its
/// own port.
fn restarted_with_a_bad_line(plane: Plane) {
    let bed = Bed::new(plane, 4, CONFIG);
    bed.chatter.set(true);
    bed.exchange(2, &[frame(BROADCAST, mac(2))]);
    let (one, two) = (bed.host(1), bed.host(2));
    two.drain();
    let mut stream = Stream::start(one, two);
    stream.flows(two, 100);
    let before = table(&bed);
    bed.end_daemon(Signal::SIGKILL);
    // A veth has no speed setting. p1 and p2 carry the traffic, p3 does not.
    let bad = CONFIG.replace("\ninterface p3\n", "\n speed 100\ninterface p3\n speed 1000\n");
    std::fs::write(bed.config_file(), bad).unwrap();
    bed.start();
    stream.flows(two, 300);
    stream.end(two);
    let printed = bed.printed();
    assert!(printed.contains("line 7, column 2") && printed.contains("line 9, column 2"), "{printed}");
    assert!(printed.contains("2 lines refused"), "{printed}");
    assert_eq!(table(&bed), before);
    let f = frame(BROADCAST, mac(1));
    bed.expect(1, &f, &[(2, f.clone()), (3, f.clone()), (4, f.vlan(10))]);
}

fn hangup_reopens_the_log(plane: Plane) {
    let bed = Bed::new(plane, 2, "interface range p1 - 2\n switchport\n");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    for turn in 0..2 {
        std::fs::rename(bed.file("log"), bed.file(&format!("log.{turn}"))).unwrap();
        bed.daemon.borrow().as_ref().unwrap().signal(Signal::SIGHUP);
        wait_for("the new log", || {
            std::fs::read_to_string(bed.file("log")).ok().filter(|text| text.contains("LOGREOPEN"))
        });
        bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    }
    let old = std::fs::read_to_string(bed.file("log.0")).unwrap();
    assert!(old.contains(" ready: "), "{old}");
}

/// The pins cannot be removed while something is mounted among them: the remaining work stays on record.
fn a_detach_that_fails_can_be_repeated(plane: Plane) {
    let bed = Bed::new(plane, 2, "interface range p1 - 2\n switchport\n mtu 1400\n");
    bed.exact.set(false);
    let pins = ["/run/lanyard/bpf", "/sys/fs/bpf/lanyard"].map(|root| format!("{root}/{}", bed.instance));
    let pins = pins.into_iter().find(|pins| std::path::Path::new(pins).exists()).expect("pins");
    let inside = format!("{pins}/busy");
    std::fs::create_dir(&inside).unwrap();
    let nothing: Option<&str> = None;
    nix::mount::mount(Some("none"), inside.as_str(), Some("tmpfs"), nix::mount::MsFlags::empty(), nothing)
        .unwrap();
    let printed = bed.detach();
    let record = format!("/run/lanyard/{}/record.json", bed.instance);
    let kept = std::path::Path::new(&record).exists();
    nix::mount::umount2(inside.as_str(), nix::mount::MntFlags::MNT_DETACH).unwrap();
    let printed = printed.expect_err("the pins are busy");
    assert!(printed.contains("removing"), "{printed}");
    assert!(kept, "{record} is what the next detach goes by");
    bed.daemon.borrow_mut().take().expect("a daemon").end();
    bed.detach().unwrap();
    for name in ["p1", "p2"] {
        let link = bed.netdev.link(name).unwrap();
        assert_eq!((link.mtu, link.promiscuous, link.admin_up), (1500, false, false), "{name}");
    }
}

/// The soft plane must not start without the right to load BPF while an eBPF plane forwards, because both
/// would forward.
fn no_soft_plane_over_a_live_one(plane: Plane) {
    let bed = Bed::new(plane, 3, "interface range p1 - 3\n switchport\n");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
    bed.end_daemon(Signal::SIGKILL);
    let config = bed.config_file().display().to_string();
    for (choice, weak) in [("auto", true), ("soft", false)] {
        let mut command = Command::new(if weak { "setpriv" } else { LANYARD });
        if weak {
            let without = "-bpf,-sys_admin,-perfmon";
            command.args([&format!("--bounding-set={without}"), &format!("--inh-caps={without}"), LANYARD]);
        }
        command.args(["run", "--instance", &bed.instance, "--plane", choice, "--config", &config]);
        let mut daemon = Daemon::spawn_command(&bed.net, &mut command, &bed.file(choice));
        let printed = daemon.ready().expect_err("frames would be forwarded twice");
        assert!(
            printed.contains("twice") && printed.contains("lanyard detach --instance"),
            "{choice}: {printed}"
        );
    }
    bed.start();
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
}

/// A port whose netdev is renamed is no longer a port of the switch and is left as it was found, also when it is
/// renamed while no daemon runs.
fn a_port_that_is_renamed(plane: Plane) {
    let bed = Bed::new(plane, 3, "interface range p1 - 3\n switchport\n mtu 1400\n");
    bed.exact.set(false);
    let found = |name: &str| {
        wait_for(&format!("{name} as it was found"), || {
            let link = bed.netdev.link(name).ok()?;
            (!link.promiscuous && link.mtu == 1500).then_some(())
        });
    };
    let rename = |from: &str, to: &str| {
        bed.net.ip(&format!("link set {from} down\nlink set {from} name {to}"));
    };
    rename("p3", "other");
    found("other");
    bed.net.ip("link set other name p3");
    wait_for("p3 to be a port again", || {
        let link = bed.netdev.link("p3").ok()?;
        (link.promiscuous && link.admin_up && link.mtu == 1400).then_some(())
    });
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
    bed.end_daemon(Signal::SIGKILL);
    rename("p3", "other");
    bed.start();
    found("other");
    bed.net.ip("link set other name p3");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
    rename("p3", "other");
    found("other");
    bed.detach().unwrap();
    found("other");
    bed.net.ip("link set other name p3");
}

/// Expedited grace periods are a setting of the whole machine. A child of the daemon (`lanyard-rcu`) restores it when the daemon
/// is killed; if the child is killed as well, the next daemon restores it at its start.
fn killed_while_grace_periods_are_expedited(plane: Plane) {
    const PORTS: usize = 24;
    let bed = Bed::without_switch(plane, 0, 1500);
    let mut config = String::new();
    for n in 1..=PORTS {
        bed.net.ip(&format!("link add d{n} type veth peer name e{n}"));
        config += &format!("interface d{n}\n switchport\n");
    }
    std::fs::write(bed.config_file(), config).unwrap();
    let guardian = |daemon: u32| {
        let text =
            |pid: u32, name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let child = |pid: &u32| text(*pid, "status").contains(&format!("PPid:\t{daemon}\n"));
        bed.net
            .processes()
            .into_iter()
            .find(|pid| child(pid) && text(*pid, "cmdline").contains("lanyard-rcu"))
    };
    let off = || std::fs::read_to_string("/sys/kernel/rcu_expedited").unwrap().trim() == "0";
    // Only one instance at a time makes the setting, and other tests' switches make it, too.
    for with_guardian in [false, true] {
        wait_for("a daemon that expedites grace periods", || {
            let mut daemon =
                Daemon::spawn(&bed.net, &bed.instance, bed.plane, Some(&bed.config_file()), &bed.file("log"));
            bed.detached.set(false);
            while !daemon.printed().contains(" ready: ") {
                if let Some(pid) = guardian(daemon.pid()) {
                    if with_guardian {
                        let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
                        nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
                    }
                    daemon.kill();
                    return Some(());
                }
            }
            bed.daemon.replace(Some(daemon));
            bed.detach().unwrap();
            None
        });
        if with_guardian {
            // No process is left to restore the setting, so the next start does.
            bed.start();
        }
        wait_for("the setting to be off", || off().then_some(()));
        bed.detach().unwrap();
    }
}
