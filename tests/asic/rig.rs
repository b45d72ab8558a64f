//! A switch on a chip, with hosts at its front panel.
//!
//! Host N's `eth0` is the other end of the netdev `swpN-wire` in the switch's namespace, so it is at port `swpN`. Dropping a rig
//! takes the switch down and ends the chip; netdevs or processes that are left then are a failure.

use crate::harness::daemon::{Daemon, LANYARD, cli, lanyard};
use crate::harness::{Net, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A switch on a chip, with hosts at its front panel.
pub struct Rig {
    pub net: Net,
    pub hosts: Vec<Net>,
    pub instance: String,
    pub daemon: Option<Daemon>,
    platform: PathBuf,
    directory: tempfile::TempDir,
}

/// A platform file of the repository.
pub fn platform(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../platforms").join(name)
}

impl Rig {
    /// A switch on the 8-port appliance, with this startup-config and this number of hosts.
    pub fn new(hosts: u8, config: &str) -> Self {
        Self::on(platform("appliance.toml"), hosts, config)
    }
    /// Like [`Self::new`], on another platform.
    pub fn on(platform: PathBuf, hosts: u8, config: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let net = Net::new(true);
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("startup-config"), config).expect("a startup-config");
        let instance = format!("chip-{}-{number}", std::process::id());
        let mut rig = Self { net, hosts: Vec::new(), instance, daemon: None, platform, directory };
        (1..=hosts).for_each(|n| rig.plug(n));
        rig.start();
        rig
    }
    /// Connects a new host with the address 10.0.0.N/24 to port `swpN`.
    pub fn plug(&mut self, n: u8) {
        let host = Net::new(false);
        self.net.ip(&format!("link add swp{n}-wire type veth peer name eth0 netns {}", host.path()));
        host.ip(&format!("address add 10.0.0.{n}/24 dev eth0\nlink set eth0 up"));
        self.hosts.push(host);
    }
    /// Connects a new host with several wires: `eth0` to the first of these ports, `eth1` to the second.
    pub fn plug_together(&mut self, ports: &[u8]) {
        let host = Net::new(false);
        for (n, port) in ports.iter().enumerate() {
            self.net.ip(&format!("link add swp{port}-wire type veth peer name eth{n} netns {}", host.path()));
            host.ip(&format!("link set eth{n} up"));
        }
        self.hosts.push(host);
    }
    /// Kills the chip, and waits until the switch has reported it: the software plane forwards from then on.
    pub fn kill_chip(&self) {
        kill(Pid::from_raw(self.chip()), Signal::SIGKILL).expect("the chip is there");
        wait_for("the report", || self.printed().contains("%PLANE-2-CHIPDOWN").then_some(()));
        // A process that ends closes its connections before its socket, at which another chip is to listen.
        let socket = format!("/run/lanyard/{}/asic.sock", self.instance);
        wait_for("the end of the chip", || UnixStream::connect(&socket).is_err().then_some(()));
    }
    /// Starts a chip in place of one that has ended.
    pub fn start_chip(&self) -> Child {
        let mut command = Command::new(LANYARD);
        command.args(["asic", "--platform"]).arg(&self.platform);
        let socket = format!("/run/lanyard/{}/asic.sock", self.instance);
        let log = format!("/run/lanyard/{}/chip.log", self.instance);
        let log = std::fs::File::options().append(true).open(log).expect("the first chip's log");
        self.net.spawn(command.arg("--socket").arg(socket).stderr(Stdio::from(log)))
    }
    /// Starts a daemon without waiting for it.
    pub fn spawn(&self) -> Daemon {
        let mut command = Command::new(LANYARD);
        command.args(["run", "--instance", &self.instance, "--plane", "asic", "--platform"]);
        command.arg(&self.platform).arg("--config").arg(self.directory.path().join("startup-config"));
        Daemon::spawn_command(&self.net, &mut command, &self.directory.path().join("log"))
    }
    /// Starts the daemon and waits until it is ready.
    pub fn start(&mut self) {
        let mut daemon = self.spawn();
        daemon.ready().unwrap_or_else(|printed| panic!("lanyard run: {printed}"));
        self.daemon = Some(daemon);
    }
    /// Kills the daemon with SIGKILL.
    pub fn kill_daemon(&mut self) {
        self.daemon.take().expect("a daemon runs").kill();
    }
    /// The process ID of the chip.
    pub fn chip(&self) -> i32 {
        let file = format!("/run/lanyard/{}/chip.pid", self.instance);
        std::fs::read_to_string(&file).expect(&file).trim().parse().expect("a number")
    }
    /// The daemon's output on stderr.
    pub fn printed(&self) -> String {
        self.daemon.as_ref().map(Daemon::printed).unwrap_or_default()
    }
    /// Runs commands; they must be accepted.
    pub fn exec(&self, commands: &[&str]) -> String {
        cli(&self.instance, commands).unwrap_or_else(|printed| panic!("{commands:?}: {printed}"))
    }
    /// Runs configuration lines; the refusal is the error.
    pub fn configure(&self, text: &str) -> Result<String, String> {
        let commands: Vec<&str> = std::iter::once("configure terminal").chain(text.lines()).collect();
        cli(&self.instance, &commands)
    }
    /// The JSON of a command.
    pub fn show(&self, command: &str) -> Value {
        let text = self.exec(&[&format!("{command} | json")]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command}: {error}: {text}"))
    }
    /// Runs a command on a host.
    pub fn on_host(&self, host: usize, command: &str) -> std::process::Output {
        let mut words = command.split(' ');
        let mut program = Command::new(words.next().expect("a program"));
        self.hosts[host - 1].output(program.args(words))
    }
    /// Waits until a host has an answer from an address.
    pub fn reaches(&self, host: usize, address: &str) {
        wait_for(&format!("an answer to host {host} from {address}"), || {
            self.on_host(host, &format!("ping -n -c 1 -W 1 {address}")).status.success().then_some(())
        });
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed {
            eprintln!("---- what the daemon of {} printed\n{}----", self.instance, self.printed());
            let log = format!("/run/lanyard/{}/chip.log", self.instance);
            eprintln!("---- the chip\n{}----", std::fs::read_to_string(log).unwrap_or_default());
        }
        let detached = lanyard(Some(&self.net), &["detach", "--instance", &self.instance]);
        self.daemon = None;
        let links = self.net.links();
        let left: Vec<&String> =
            links.iter().filter(|name| name.starts_with("swp") && !name.contains('-')).collect();
        let processes = self.net.processes();
        let _ = std::fs::remove_dir_all(format!("/run/lanyard/{}", self.instance));
        let _ = std::fs::remove_dir_all(format!("/var/lib/lanyard/{}", self.instance));
        if !failed {
            assert!(detached.is_ok(), "lanyard detach: {detached:?}");
            assert!(left.is_empty(), "netdevs are left: {left:?}");
            assert!(processes.is_empty(), "processes are left: {processes:?}");
        }
    }
}
