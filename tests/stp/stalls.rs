//! Measures that no hello is late while management waits: for a reader of stderr that has stopped,
//! a slow disk, slow netlink, clients that list every route, and for all of these at once.
//!
//! Each wait is longer than the three hellos after which a neighbour gives a switch up. Two
//! environment variables change the size: `LANYARD_STALL_S` is how long disk and netlink take (4 s),
//! `LANYARD_STALL_ROUTES` the number of routes (20,000).
//!
//! The switch under test is the middle one of three in a row, so it has to receive the root's
//! hellos in time as well as to send its own. The last scenario runs the protocols on the
//! management thread: there hellos must be late, or the waits of this file would prove nothing.

use crate::fixture::{Beds, Ports, bare, quiet, settle, start, wire};
use crate::harness::daemon::{Daemon, LANYARD, cli};
use crate::harness::{Bed, Plane, scenarios, wait_for};
use lanyard_netdev::PacketSocket;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

scenarios! {
    no_hello_is_late_while_management_waits: ebpf soft;
    hellos_sent_by_the_management_thread_are_late: ebpf soft;
}

const HELLO: Duration = Duration::from_secs(1);
/// A hello is late if it comes more than this after the one before.
const LATE: Duration = Duration::from_millis(1500);
/// The number of clients that list the routes.
const CLIENTS: usize = 8;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The other end of the daemon's stderr: a FIFO whose reader can stop.
struct Stderr {
    fifo: PathBuf,
    stopped: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Stderr {
    fn new(fifo: PathBuf) -> Self {
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let (stopped, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut reader = nonblocking(File::options().read(true), &fifo);
        let (stop, end) = (stopped.clone(), over.clone());
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while !end.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) || !reader.read(&mut bytes).is_ok_and(|count| count > 0) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        Self { fifo, stopped, over, reader: Some(reader) }
    }
    /// Stops reading and fills the FIFO, so that the daemon's next line waits.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(50));
        let mut writer = nonblocking(File::options().write(true), &self.fifo);
        while writer.write(&[b'.'; 4096]).is_ok() {}
        while writer.write(b".").is_ok() {}
    }
    fn go_on(&self) {
        self.stopped.store(false, Ordering::Relaxed);
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.reader.take().map(thread::JoinHandle::join);
    }
}

fn nonblocking(options: &mut OpenOptions, fifo: &Path) -> File {
    options.custom_flags(OFlag::O_NONBLOCK.bits()).open(fifo).unwrap()
}

/// The switch whose management thread waits.
struct Stalled {
    instance: String,
    /// The directory of the files that inject faults.
    faults: PathBuf,
    stderr: Stderr,
    stall: Duration,
    /// The number of times that the configuration has been saved.
    saves: AtomicU32,
}

impl Stalled {
    fn run(&self, commands: &[&str]) -> String {
        cli(&self.instance, commands).unwrap()
    }
    /// Runs commands while calls at `place` take as long as a stall (`self.stall`). Only calls that begin in the
    /// first half of the first delayed call are delayed, so that a command with many calls ends.
    fn run_stalled(&self, place: &str, commands: &[&str]) {
        let (fault, start) = (self.faults.join(place), Instant::now());
        std::fs::write(&fault, self.stall.as_millis().to_string()).unwrap();
        thread::scope(|scope| {
            let command = scope.spawn(|| self.run(commands));
            let began = fault.with_extension("began");
            while !began.exists() && !command.is_finished() {
                thread::sleep(Duration::from_millis(5));
            }
            thread::sleep(self.stall / 2);
            std::fs::remove_file(&fault).unwrap();
            command.join().unwrap();
            std::fs::remove_file(began).unwrap();
        });
        assert!(start.elapsed() >= self.stall, "{place} stalled");
    }

    fn block_stderr(&self) {
        self.stderr.stop();
        let until = Instant::now() + self.stall;
        // Each change of a link writes a line to the log.
        while Instant::now() < until {
            for change in ["shutdown", "no shutdown"] {
                self.run(&["configure terminal", "interface p1", change]);
            }
        }
        self.stderr.go_on();
    }
    fn stall_disk(&self) {
        // A startup-config that has not changed is not written again.
        let saves = self.saves.fetch_add(1, Ordering::Relaxed);
        self.run(&["configure terminal", "interface p1", &format!("description {saves}")]);
        self.run_stalled("fsync", &["write memory"]);
    }
    fn stall_netlink(&self) {
        self.run_stalled("netlink", &["configure terminal", "interface p1", "mtu 1400"]);
        self.run(&["configure terminal", "interface p1", "no mtu"]);
    }
    fn list_routes(&self) {
        let until = Instant::now() + self.stall;
        let list = || {
            let mut longest = 0;
            while longest == 0 || Instant::now() < until {
                longest = self.run(&["show ip route"]).len().max(longest);
            }
            longest
        };
        let lengths: Vec<usize> = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(list)).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        println!("bytes of a list of routes, by client: {lengths:?}");
    }
    fn everything(&self) {
        let began = Instant::now();
        self.stderr.stop();
        thread::scope(|scope| {
            scope.spawn(|| self.list_routes());
            scope.spawn(|| self.stall_disk());
            self.stall_netlink();
        });
        assert!(began.elapsed() >= self.stall * 2, "disk and netlink stalled");
        self.stderr.go_on();
    }
}

/// Three switches in a row: the root, the one that stalls, and one that records hellos.
struct Row {
    beds: Beds,
    stalled: Stalled,
    /// The times at which BPDUs arrived at the last switch.
    hellos: Arc<Mutex<Vec<Instant>>>,
    over: Arc<AtomicBool>,
}

impl Drop for Row {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Row {
    /// Makes the row; `faults` are injected from the start.
    fn new(plane: Plane, faults: &[&str]) -> Self {
        let beds = Beds(vec![bare(plane, 1), bare(plane, 1), bare(plane, 1)]);
        let [upper, middle, lower] = &beds[..] else { panic!("three switches") };
        wire((upper, "t1"), (middle, "t1"));
        wire((middle, "t2"), (lower, "t2"));
        let lines = |priority: u16| {
            let tree = "spanning-tree mode rstp\nspanning-tree vlan 1 hello-time 1";
            format!("{tree}\nspanning-tree vlan 1 priority {priority}")
        };
        start(upper, &lines(4096), &["t1"]);
        start(lower, &lines(12288), &["t2"]);
        let stalled = Stalled {
            instance: middle.instance.clone(),
            faults: middle.file("faults"),
            stderr: Stderr::new(middle.file("stderr")),
            stall: Duration::from_secs(setting("LANYARD_STALL_S", 4)),
            saves: AtomicU32::new(0),
        };
        std::fs::create_dir(&stalled.faults).unwrap();
        for fault in faults {
            std::fs::write(stalled.faults.join(fault), "").unwrap();
        }
        let mut text = lines(8192) + "\nip routing\ninterface p1\n switchport\n spanning-tree portfast\n";
        text += "interface vlan 1\n ip address 10.255.0.1/16\n";
        for trunk in ["t1", "t2"] {
            writeln!(text, "interface {trunk}\n switchport mode trunk").unwrap();
        }
        std::fs::write(middle.config_file(), text).unwrap();
        start_with_faults(middle, &stalled);
        settle(&beds, 0, 0);
        let (over, hellos) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let at = || PacketSocket::open(nix::net::if_::if_nametoindex("t2").unwrap()).unwrap();
        let (socket, end, times) = (lower.net.run(at), over.clone(), hellos.clone());
        thread::spawn(move || listen(&socket, &end, &times));
        wait_for("a hello", || hellos.lock().unwrap().first().map(|_| ()));
        Self { beds, stalled, hellos, over }
    }
    /// Adds routes to the kernel, which the middle switch follows.
    fn add_routes(&self, count: u64) {
        let mut batch = String::new();
        for n in 0..count {
            let (a, b, c) = (n >> 16 & 0xff, n >> 8 & 0xff, n & 0xff);
            writeln!(batch, "route add {}.{b}.{c}.0/24 via 10.255.0.2", 20 + a).unwrap();
        }
        self.beds[1].net.ip(&batch);
    }
    /// The trees of all switches once the network is quiet, without the hosts' ports.
    fn trees(&self) -> Vec<(u64, String, Ports)> {
        let mut trees = quiet(&self.beds);
        trees.iter_mut().for_each(|(_, _, ports)| ports.retain(|name, _| name.starts_with('t')));
        trees
    }
    /// The longest time between two hellos during `wait`.
    fn longest_gap(&self, what: &str, wait: impl FnOnce(&Stalled)) -> Duration {
        let began = Instant::now();
        wait(&self.stalled);
        let ended = Instant::now();
        let next = || self.hellos.lock().unwrap().last().filter(|at| **at > ended).map(|_| ());
        wait_for("the hello after the wait", next);
        let hellos = self.hellos.lock().unwrap();
        let meanwhile = hellos.windows(2).filter(|pair| pair[1] >= began && pair[0] <= ended);
        let gaps: Vec<Duration> = meanwhile.map(|pair| pair[1] - pair[0]).collect();
        let longest = gaps.iter().copied().max().unwrap_or(ended - began);
        println!("{what}: {:?}, {} hellos, the longest gap {longest:?}", ended - began, gaps.len());
        longest
    }
}

/// Starts the daemon of `bed` with the FIFO as stderr, and with faults.
fn start_with_faults(bed: &Bed, stalled: &Stalled) {
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec "$@" 2>"$0""#]).arg(&stalled.stderr.fifo).arg(LANYARD);
    command.args(["run", "--instance", &bed.instance, "--plane", bed.plane.name()]);
    command.arg("--config").arg(bed.config_file());
    command.env("LANYARD_TEST_FAULTS", &stalled.faults);
    bed.daemon.replace(Some(Daemon::spawn_command(&bed.net, &mut command, &bed.file("log"))));
    bed.detached.set(false);
    wait_for("the daemon to take commands", || cli(&bed.instance, &["show clock"]).ok());
}

/// Records the times at which BPDUs arrive, until `over`.
fn listen(socket: &PacketSocket, over: &AtomicBool, times: &Mutex<Vec<Instant>>) {
    while !over.load(Ordering::Relaxed) {
        match socket.receive() {
            Ok(Some(packet))
                if !packet.outgoing && packet.frame.starts_with(&[0x01, 0x80, 0xc2, 0, 0, 0]) =>
            {
                times.lock().unwrap().push(Instant::now());
            }
            Ok(Some(_)) => {}
            _ => thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn no_hello_is_late_while_management_waits(plane: Plane) {
    let row = Row::new(plane, &[]);
    row.add_routes(setting("LANYARD_STALL_ROUTES", 20_000));
    let before = row.trees();
    let mut late = Vec::new();
    let mut run = |what: &'static str, wait: fn(&Stalled)| {
        let longest = row.longest_gap(&format!("{}: {what}", plane.name()), wait);
        if longest > LATE {
            late.push((what, longest));
        }
        assert_eq!(row.trees(), before, "{what}: no neighbour gave another up");
    };
    run("stderr that nobody reads", Stalled::block_stderr);
    run("a disk that takes long", Stalled::stall_disk);
    run("netlink that answers late", Stalled::stall_netlink);
    run("clients that list routes", Stalled::list_routes);
    run("all of these at once", Stalled::everything);
    assert_eq!(late, [], "hellos every {HELLO:?} and none later than {LATE:?}");
}

fn hellos_sent_by_the_management_thread_are_late(plane: Plane) {
    let row = Row::new(plane, &["thread"]);
    let longest =
        row.longest_gap(&format!("{}: a disk that takes long, no thread", plane.name()), Stalled::stall_disk);
    assert!(longest > LATE, "{longest:?}");
}
