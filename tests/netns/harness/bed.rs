//! A switch with hosts: the fixture of every scenario.
//!
//! Host N (from 1) has its `eth0` behind the switch's port `pN`; all namespaces belong to this bed alone. The bed
//! observes exactly what happens to a frame: it sends from one processor, the port's counter shows when the switch has
//! processed the frame, and a mark that is sent afterwards on every wire shows when all copies have arrived.

use super::check;
use super::daemon::{Daemon, cli, lanyard};
use super::frame::{Frame, Mac, frame, mac};
use super::{DEADLINE, Host, Net, Plane, wait_for, wait_until};
use lanyard_daemon::client::{Client, Piece};
use lanyard_netdev::{Netdev, PacketSocket};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The source address of marks.
const MARKER: Mac = [0x02, 0xff, 0xff, 0xff, 0xff, 0xff];

/// A switch with hosts.
pub struct Bed {
    pub plane: Plane,
    pub instance: String,
    /// The namespace of the switch.
    pub net: Net,
    /// Host N is `hosts[N - 1]`; see [`Bed::host`].
    pub hosts: Vec<Host>,
    pub daemon: RefCell<Option<Daemon>>,
    /// True when hosts and switch send frames of their own because they have addresses: only frames with the sender's
    /// address are compared.
    pub chatter: Cell<bool>,
    /// False when arrivals and counters cannot be compared, because counters were cleared or frames were lost
    /// on purpose.
    pub exact: Cell<bool>,
    /// True while there is no plane: before the first start, and after `lanyard detach`.
    pub detached: Cell<bool>,
    senders: RefCell<Vec<PacketSocket>>,
    /// A netlink connection in the switch's namespace.
    pub netdev: Netdev,
    client: RefCell<Option<Client>>,
    directory: tempfile::TempDir,
}

/// The counters of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub rx: u64,
    pub rx_dropped: u64,
    pub tx: u64,
    pub tx_dropped: u64,
    pub forwarded: u64,
    pub trapped: u64,
    pub svi: bool,
}

impl Bed {
    /// A running switch with `hosts` hosts and this startup-config.
    pub fn new(plane: Plane, hosts: usize, config: &str) -> Self {
        Self::with_mtu(plane, hosts, 1500, config)
    }
    /// Like [`Self::new`], with wires of this MTU.
    pub fn with_mtu(plane: Plane, hosts: usize, mtu: u32, config: &str) -> Self {
        let bed = Self::without_switch(plane, hosts, mtu);
        std::fs::write(bed.config_file(), config).expect("a startup-config");
        bed.start();
        bed
    }
    /// Wires and hosts, without a running switch.
    pub fn without_switch(plane: Plane, hosts: usize, mtu: u32) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let net = Net::new(true);
        let hosts = (1..=hosts).map(|n| wire(&net, n as u16, mtu)).collect();
        let bed = Self {
            plane,
            instance: format!("test-{}-{number}", std::process::id()),
            netdev: net.run(|| Netdev::open().expect("netlink")),
            net,
            hosts,
            daemon: RefCell::default(),
            chatter: Cell::new(false),
            exact: Cell::new(true),
            detached: Cell::new(true),
            senders: RefCell::default(),
            client: RefCell::default(),
            directory: tempfile::tempdir().expect("a directory"),
        };
        bed.open_senders();
        bed
    }
    /// Opens the sockets at the wires' near ends again, after netdevs were removed or added.
    pub fn open_senders(&self) {
        let names: Vec<String> = (1..=self.hosts.len()).map(|n| format!("p{n}")).collect();
        let open = |name: &String| {
            let index = nix::net::if_::if_nametoindex(name.as_str()).expect("the port is there");
            PacketSocket::sender(index).expect("a packet socket")
        };
        *self.senders.borrow_mut() = self.net.run(|| names.iter().map(open).collect());
    }
    /// Host N.
    pub fn host(&self, n: usize) -> &Host {
        &self.hosts[n - 1]
    }
    /// The path of a file that belongs to this bed.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
    pub fn config_file(&self) -> PathBuf {
        self.file("startup-config")
    }

    /// Starts the switch and waits until it is ready.
    pub fn start(&self) {
        self.adopt(Daemon::spawn(
            &self.net,
            &self.instance,
            self.plane,
            Some(&self.config_file()),
            &self.file("log"),
        ));
    }
    /// Makes `daemon` the bed's daemon, and waits until it is ready.
    pub fn adopt(&self, daemon: Daemon) {
        self.detached.set(false);
        let daemon = self.daemon.borrow_mut().insert(daemon).ready();
        daemon.unwrap_or_else(|printed| panic!("lanyard run: {printed}"));
    }
    /// Ends the daemon with `signal`, and waits for its end.
    pub fn end_daemon(&self, signal: nix::sys::signal::Signal) {
        self.client.replace(None);
        let mut daemon = self.daemon.borrow_mut().take().expect("a daemon runs");
        daemon.signal(signal);
        daemon.end();
    }
    /// `lanyard detach`, which ends the daemon if one runs.
    pub fn detach(&self) -> Result<(), String> {
        self.client.replace(None);
        lanyard(Some(&self.net), &["detach", "--instance", &self.instance])?;
        self.detached.set(true);
        if let Some(mut daemon) = self.daemon.borrow_mut().take() {
            daemon.end();
        }
        Ok(())
    }
    /// The daemon's output on stderr.
    pub fn printed(&self) -> String {
        self.daemon.borrow().as_ref().map(Daemon::printed).unwrap_or_default()
    }

    /// Runs exec commands, which must be accepted.
    pub fn exec(&self, commands: &[&str]) -> String {
        cli(&self.instance, commands).unwrap_or_else(|printed| panic!("{commands:?}: {printed}"))
    }
    /// Runs configuration lines, which must be accepted.
    pub fn configure(&self, text: &str) {
        self.try_configure(text).unwrap_or_else(|printed| panic!("{text}: {printed}"));
    }
    /// Runs configuration lines; the refusal is the error.
    pub fn try_configure(&self, text: &str) -> Result<String, String> {
        let commands: Vec<&str> = std::iter::once("configure terminal").chain(text.lines()).collect();
        cli(&self.instance, &commands)
    }
    /// The JSON of a command, in a session of its own.
    pub fn show(&self, command: &str) -> Value {
        let text = self.exec(&[&format!("{command} | json")]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command}: {error}: {text}"))
    }
    /// The JSON of a command over a connection that stays open, for repeated queries.
    pub fn ask(&self, command: &str) -> Value {
        let mut text = String::new();
        let mut slot = self.client.borrow_mut();
        let client = slot.get_or_insert_with(|| {
            let mut client = Client::connect(&self.instance).expect("the switch takes connections");
            client.hello("test", false).expect("hello");
            client
        });
        let done = client.exec(&format!("{command} | json"), &mut |piece| {
            let (Piece::Output(piece) | Piece::Refusal(piece)) = piece else { return Ok(()) };
            text.push_str(piece);
            Ok(())
        });
        assert!(done.is_ok_and(|done| !done.refused), "{command}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command}: {error}: {text}"))
    }
    /// The counters of every interface.
    pub fn counters(&self) -> BTreeMap<String, Counted> {
        let view = self.ask("show interfaces counters");
        let number = |row: &Value, path: &str| {
            row.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {row}"))
        };
        let count = |row: &Value| Counted {
            rx: number(row, "/rx/frames"),
            rx_dropped: number(row, "/rx/dropped"),
            tx: number(row, "/tx/frames"),
            tx_dropped: number(row, "/tx/dropped"),
            forwarded: number(row, "/forwarded"),
            trapped: number(row, "/trapped"),
            svi: row["interface"].as_str().is_some_and(|name| name.starts_with("vlan")),
        };
        let rows = view["interfaces"].as_array().expect("interfaces");
        rows.iter().map(|row| (row["interface"].as_str().expect("a name").to_owned(), count(row))).collect()
    }
    /// The number of frames dropped for `reason` at port `pN`.
    pub fn drops(&self, n: usize, reason: &str) -> u64 {
        let view = self.ask(&format!("show interfaces p{n} counters drops"));
        let rows = view["drops"].as_array().expect("drops");
        rows.iter().filter(|row| row["reason"] == reason).filter_map(|row| row["frames"].as_u64()).sum()
    }
    /// The FDB entry of `mac` in `vlan`: the interface and the type.
    pub fn entry(&self, mac: Mac, vlan: u16) -> Option<(String, String)> {
        let view =
            self.ask(&format!("show mac address-table address {} vlan {vlan}", super::frame::text(mac)));
        let entry = view["entries"].as_array().expect("entries").first()?.clone();
        Some((entry["interface"].as_str().unwrap_or("-").to_owned(), entry["type"].as_str()?.to_owned()))
    }
    /// Asserts where `mac` is learned: at an interface, or with `None` nowhere.
    pub fn learned(&self, mac: Mac, vlan: u16, at: Option<&str>) {
        let found = self.entry(mac, vlan).map(|(interface, _)| interface);
        assert_eq!(found.as_deref(), at, "{} in VLAN {vlan}", super::frame::text(mac));
    }

    /// Sends `frames` from a host, one after the other, and returns what every host received: `[N - 1]` is host
    /// N's.
    pub fn exchange(&self, from: usize, frames: &[Frame]) -> Vec<Vec<Frame>> {
        let _core = OneCore::take();
        self.hosts.iter().for_each(Host::drain);
        let port = format!("p{from}");
        wait_for("the host's link", || self.host(from).is_linked().then_some(()));
        let before = self.counters()[&port].rx;
        for frame in frames {
            self.host(from).send(frame);
        }
        let wanted = before + frames.len() as u64;
        let seen = wait_until(DEADLINE, || {
            let now = self.counters()[&port].rx;
            (now >= wanted).then_some(now)
        });
        let right = seen == Some(wanted) || self.chatter.get() && seen.is_some();
        assert!(right, "{port} has received {seen:?} frames, not {wanted}");
        let mut arrivals = self.arrivals();
        if self.chatter.get() {
            let ours = |frame: &Frame| frames.iter().any(|sent| sent.0[6..12] == frame.0[6..12]);
            arrivals.iter_mut().for_each(|list| list.retain(ours));
        }
        arrivals
    }
    /// The frames that every host has received since the last call, once all frames under way have arrived.
    pub fn arrivals(&self) -> Vec<Vec<Frame>> {
        let mark = frame(mac(0), MARKER);
        let senders = self.senders.borrow();
        let linked = |n: usize| {
            !self.host(n).away.get() && self.netdev.link(&format!("p{n}")).is_ok_and(|link| link.link_up)
        };
        let marked: Vec<bool> =
            senders.iter().zip(1..).map(|(sender, n)| linked(n) && sender.send(&mark.0).is_ok()).collect();
        let arrived = |(host, marked): (&Host, bool)| {
            let mut list = Vec::new();
            wait_for("the mark to arrive", || {
                while let Some(frame) = host.next() {
                    if frame == mark {
                        host.arrived.set(host.arrived.get() - 1);
                        return Some(());
                    }
                    list.push(frame);
                }
                (!marked).then_some(())
            });
            list
        };
        self.hosts.iter().zip(marked).map(arrived).collect()
    }
    /// Asserts that a frame from host `from` arrives at these hosts in these forms, and at no other host.
    pub fn expect(&self, from: usize, sent: &Frame, wanted: &[(usize, Frame)]) {
        let got = self.exchange(from, std::slice::from_ref(sent));
        let got: Vec<(usize, Frame)> = got
            .into_iter()
            .enumerate()
            .flat_map(|(at, list)| list.into_iter().map(move |f| (at + 1, f)))
            .collect();
        assert_eq!(got, wanted, "from host {from}: {sent:?}");
    }
    /// Asserts that a frame arrives unchanged at exactly these hosts.
    pub fn expect_at(&self, from: usize, sent: &Frame, hosts: &[usize]) {
        let wanted: Vec<(usize, Frame)> = hosts.iter().map(|host| (*host, sent.clone())).collect();
        self.expect(from, sent, &wanted);
    }
    /// Asserts that a frame is dropped for `reason` and arrives nowhere.
    pub fn expect_drop(&self, from: usize, sent: &Frame, reason: &str) {
        let before = self.drops(from, reason);
        self.expect(from, sent, &[]);
        let view = self.ask("show interfaces counters drops");
        assert_eq!(self.drops(from, reason), before + 1, "{reason} at p{from} for {sent:?}; all: {view}");
    }
}

/// The maximum number of frames that go up while the plane forwards all others: hosts probe the router's address.
pub const FEW: u64 = 8;

impl Bed {
    /// The number of frames from `pN` that the plane forwarded, and the number of those that went up (were trapped).
    pub fn routed(&self, n: usize) -> (u64, u64) {
        let counted = self.counters()[&format!("p{n}")];
        (counted.forwarded, counted.trapped)
    }
    /// Asserts that the plane, and not the kernel, forwards the frames that `traffic` sends into `pN`, and that these
    /// are at least `at_least`.
    pub fn by_the_plane(&self, n: usize, at_least: u64, what: &str, traffic: impl FnOnce()) {
        let before = self.routed(n);
        traffic();
        let after = self.routed(n);
        let (forwarded, up) = (after.0 - before.0, after.1 - before.1);
        assert!(
            forwarded >= at_least && up <= FEW,
            "{what}: the plane forwarded {forwarded} of {at_least} frames, {up} went up; all drops: {}",
            self.ask("show interfaces counters drops")
        );
    }

    /// Replaces host N and its wire by new ones; the old wire must have been removed.
    pub fn rewire(&mut self, n: usize) {
        self.hosts[n - 1] = wire(&self.net, n as u16, 1500);
        self.open_senders();
    }
}

/// Joins port `a` of one switch to port `b` of the other: their far ends become ports of a bridge.
pub fn join(left: &Bed, a: usize, right: &Bed, b: usize) {
    let (near, far) = (left.host(a), right.host(b));
    far.net.ip(&format!("link set eth0 name eth1 netns {}", near.net.path()));
    near.net.ip(
        "link add br0 type bridge\nlink set eth0 master br0\nlink set eth1 master br0\nlink set eth1 up\n\
         link set eth0 up\nlink set br0 up",
    );
    near.away.set(true);
    far.away.set(true);
}

/// Makes a wire from a new host N to the switch's port `pN`, whose end is down.
fn wire(switch: &Net, n: u16, mtu: u32) -> Host {
    let net = Net::new(false);
    let address = super::frame::text(mac(n));
    switch.ip(&format!(
        "link add p{n} mtu {mtu} type veth peer name eth0 mtu {mtu} address {address} netns {}",
        net.path()
    ));
    net.ip("link set eth0 up");
    Host::new(net, n)
}

/// Restricts the calling thread to one processor, so that its frames stay in order in that processor's queues.
struct OneCore(Option<CpuSet>);

impl OneCore {
    fn take() -> Self {
        let this = Pid::from_raw(0);
        let Ok(all) = sched_getaffinity(this) else { return Self(None) };
        let usable: Vec<usize> =
            (0..CpuSet::count()).filter(|core| all.is_set(*core).unwrap_or(false)).collect();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Some(core) = usable.get(NEXT.fetch_add(1, Ordering::Relaxed) as usize % usable.len().max(1))
        else {
            return Self(None);
        };
        let mut one = CpuSet::new();
        let taken = one.set(*core).and_then(|()| sched_setaffinity(this, &one));
        Self(taken.is_ok().then_some(all))
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        if let Some(all) = self.0 {
            // This was allowed before, so it cannot fail.
            let _ = sched_setaffinity(Pid::from_raw(0), &all);
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        let mut wrong = if failed { Vec::new() } else { check::end(self) };
        if failed {
            eprintln!("---- what the daemon of {} printed\n{}----", self.instance, self.printed());
        }
        self.client.replace(None);
        self.daemon.replace(None);
        if !self.detached.get()
            && let Err(printed) = self.detach()
        {
            wrong.push(format!("lanyard detach: {printed}"));
        }
        wrong.extend(check::left_behind(self));
        for place in ["/run/lanyard", "/var/lib/lanyard"] {
            // The directory may not exist.
            let _ = std::fs::remove_dir_all(format!("{place}/{}", self.instance));
        }
        let wrong = wrong.join("\n");
        if failed && !wrong.is_empty() {
            eprintln!("{wrong}");
        }
        assert!(failed || wrong.is_empty(), "{wrong}");
    }
}
