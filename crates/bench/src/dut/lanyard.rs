//! Lanyard itself: `lanyard run` in the switch's namespace, with a configuration written for the
//! bed.
//!
//! Invariant: an instance that this driver started is detached when the driver is dropped, even
//! after a failed start.

use super::filter::rules;
use super::{Device, Hook, Resets, mac_of, router_address};
use crate::bed::Bed;
use anyhow::{Context, Result, bail};
use lanyard_tester::os::{Netns, Reaped, check_interrupted, monotonic_ns};
use lanyard_types::MacAddr;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where the daemon keeps an instance's state.
const STATE: &str = "/var/lib/lanyard";
/// The longest time from the start of `lanyard run` to its `ready:` line.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// The VLAN the bench's ports are in.
pub const VLAN: u16 = 10;

/// The `lanyard` executable to measure.
#[derive(Debug, Clone)]
pub struct Executable(PathBuf, Vec<String>);

impl Executable {
    /// `path`, or this program if it is `None`.
    ///
    /// # Errors
    /// When the path of this program is not known.
    pub fn new(path: Option<&Path>) -> Result<Self> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => std::env::current_exe().context("which program is this?")?,
        };
        Ok(Self(path, Vec::new()))
    }

    /// The same executable, run by another program: `wrapper` and its arguments.
    #[must_use]
    pub fn under(self, wrapper: &[String]) -> Self {
        Self(self.0, wrapper.to_vec())
    }

    fn daemon(&self) -> Command {
        match self.1.split_first() {
            None => Command::new(&self.0),
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args).arg(&self.0);
                command
            }
        }
    }

    /// The reason why this executable cannot be measured, or `None` if it can.
    #[must_use]
    pub fn unavailable(&self) -> Option<String> {
        let help = Command::new(&self.0).args(["run", "--help"]).stdin(Stdio::null()).output();
        match help {
            Ok(out)
                if out.status.success() && String::from_utf8_lossy(&out.stdout).contains("--instance") =>
            {
                None
            }
            Ok(_) => Some(format!("{} has no `run`: give --lanyard PATH", self.0.display())),
            Err(why) => Some(format!("{}: {why}", self.0.display())),
        }
    }
}

/// The configuration of the output ports; `p0` is always an access port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PortMode {
    /// All ports are access ports of one VLAN, so frames leave unchanged.
    #[default]
    Access,
    /// As [`PortMode::Access`], but every second output port is a trunk, where frames leave tagged.
    Mixed,
    /// As [`PortMode::Access`], with multicast snooping; the first output port is a member of a group.
    Snooped,
    /// As [`PortMode::Snooped`], while hosts at the second output port join 10,000 groups during each measurement.
    Joined,
    /// As [`PortMode::Access`], and the switch has an interface in the VLAN, so it receives broadcasts as well. Spanning tree
    /// runs, with edge ports. Snooping runs, as by default.
    Attacked,
    /// As [`PortMode::Attacked`]; storm control lets the second output port broadcast 1,000 frames a second.
    Guarded,
    /// As [`PortMode::Access`], with a list of 1,000 rules for received frames: see `dut::filter`.
    Filtered,
    /// Each port is an access port of a VLAN of its own, which has an interface with addresses: the switch routes.
    Routed,
}

/// The startup-config that a restarted daemon finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Startup {
    /// The configuration that is in force.
    AsBefore,
    /// The configuration that is in force, followed by two bad lines: a syntax error, and a setting that the driver
    /// of the last port refuses.
    BadLines,
    /// There is no file.
    Missing,
}

impl Startup {
    /// The log message by which the daemon reports this startup-config; `None` for one without errors.
    #[must_use]
    pub const fn message(self) -> Option<&'static str> {
        match self {
            Self::AsBefore => None,
            Self::BadLines => Some("%SYS-3-STARTUP"),
            Self::Missing => Some("%SYS-1-STARTUP"),
        }
    }
}

/// A running Lanyard.
pub struct Lanyard {
    daemon: Option<Daemon>,
    executable: Executable,
    netns: Netns,
    instance: String,
    hook: Hook,
    config: PathBuf,
    startup_config: String,
    /// The MAC addresses of the VLAN interfaces, by port; empty unless Lanyard routes.
    macs: Vec<[u8; 6]>,
    _dir: TempDir,
}

struct Daemon {
    process: Reaped,
    ready: String,
    started_ns: u64,
}

/// A name for an instance that no other process uses: `benchPROCESS-NUMBER`.
fn name_instance() -> String {
    static INSTANCES: AtomicU32 = AtomicU32::new(0);
    format!("bench{}-{}", std::process::id(), INSTANCES.fetch_add(1, Ordering::Relaxed))
}

/// Instances left behind by a bench that was killed: those named after a process that no longer
/// exists.
fn left_behind() -> Vec<String> {
    let dead = |name: &String| {
        let process = name.strip_prefix("bench").and_then(|rest| rest.split_once('-'));
        process.is_some_and(|(pid, _)| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
    };
    let entries = std::fs::read_dir("/run/lanyard").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(dead).collect()
}

impl Lanyard {
    /// Starts Lanyard on every port of `bed` and waits for its `ready:` line.
    ///
    /// # Errors
    /// When it does not come up; the error contains its output.
    pub fn up(bed: &Bed, executable: &Executable, hook: Hook, ports: PortMode) -> Result<Self> {
        let instance = name_instance();
        let mut lanyard =
            Self::prepare(&bed.switch, executable, hook, instance, &startup_config(bed, hook, ports))?;
        if ports == PortMode::Routed {
            // The VLAN interfaces use IPv6, unlike the rest of the bed. The file is missing if the
            // kernel has no IPv6.
            let _ = lanyard.netns.sysctl("net/ipv6/conf/default/disable_ipv6", "0");
        }
        lanyard.start()?;
        if ports == PortMode::Routed {
            let interfaces = (0..bed.ports().len()).map(|number| format!("vlan{}", vlan_of(number)));
            lanyard.macs =
                interfaces.map(|device| mac_of(&lanyard.netns, &device)).collect::<Result<Vec<_>>>()?;
        }
        Ok(lanyard)
    }

    /// Starts Lanyard in `netns` with a startup-config and waits for its `ready:` line.
    ///
    /// # Errors
    /// When it does not come up; the error contains its output.
    pub fn with_config(netns: &Netns, executable: &Executable, instance: &str, config: &str) -> Result<Self> {
        let mut lanyard = Self::prepare(netns, executable, Hook::Auto, instance.to_owned(), config)?;
        lanyard.start()?;
        Ok(lanyard)
    }

    fn prepare(
        netns: &Netns,
        executable: &Executable,
        hook: Hook,
        instance: String,
        startup_config: &str,
    ) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("lanyard-bench").tempdir()?;
        let config = dir.path().join("startup-config");
        std::fs::write(&config, startup_config)?;
        let lanyard = Self {
            daemon: None,
            executable: executable.clone(),
            netns: netns.try_clone()?,
            instance,
            hook,
            config,
            startup_config: startup_config.to_owned(),
            macs: Vec::new(),
            _dir: dir,
        };
        for instance in left_behind() {
            // Another process may be detaching it at the same time.
            let _ = lanyard.detach_instance(&instance);
        }
        Ok(lanyard)
    }

    /// Starts the daemon and waits for its `ready:` line.
    ///
    /// # Errors
    /// When the daemon ends, or prints no `ready:` line in time.
    pub fn start(&mut self) -> Result<()> {
        let started_ns = monotonic_ns()?;
        let mut command = self.executable.daemon();
        command.args(["run", "--instance", &self.instance, "--config"]).arg(&self.config);
        if self.hook == Hook::Soft {
            command.args(["--plane", "soft"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Reaped(self.netns.spawn(&mut command).context("starting lanyard")?);
        let lines = follow_stderr(&mut process)?;
        let ready = wait_ready(&lines)?;
        self.daemon = Some(Daemon { process, ready, started_ns });
        Ok(())
    }

    /// Kills the daemon by SIGKILL.
    pub fn kill(&mut self) {
        self.daemon = None;
    }

    /// Writes or removes the startup-config that the next daemon finds. `last_port` is the name of the bed's last port.
    ///
    /// # Errors
    /// When the file cannot be written or removed.
    pub fn startup(&self, found: Startup, last_port: &str) -> Result<()> {
        let text = &self.startup_config;
        match found {
            Startup::AsBefore => std::fs::write(&self.config, text)?,
            Startup::BadLines => {
                // A veth has no speed that could be set, so the driver refuses this line.
                let bad = format!("no such command\ninterface {last_port}\n speed 100\n");
                std::fs::write(&self.config, text.clone() + &bad)?;
            }
            Startup::Missing => std::fs::remove_file(&self.config)?,
        }
        Ok(())
    }

    /// When the daemon was started last, on the clock of `bpf_ktime_get_ns()`.
    #[must_use]
    pub fn started_ns(&self) -> u64 {
        self.daemon.as_ref().map_or(0, |d| d.started_ns)
    }

    /// Resident memory of the daemon in KiB.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resident_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    }

    /// Processor time that the daemon has used, all its threads together.
    ///
    /// # Errors
    /// When it does not run.
    pub fn cpu_time(&self) -> Result<Duration> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid()?))?;
        let mut ns = 0;
        for task in tasks.flatten() {
            // The first figure is the time on a core in nanoseconds (Documentation/scheduler/sched-stats.rst).
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            ns += text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(ns))
    }

    /// The daemon's process.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.daemon.as_ref().context("lanyard does not run")?.process.0.id())
    }

    /// The output of one CLI command.
    ///
    /// # Errors
    /// When the command is refused.
    pub fn show(&self, line: &str) -> Result<String> {
        let mut command = Command::new(&self.executable.0);
        self.netns.output(command.args(["cli", "--instance", &self.instance, "-c", line]), "")
    }

    /// Ends the daemon and removes what it has left in the kernel. Its state directory stays for the next start.
    ///
    /// # Errors
    /// When the instance cannot be detached.
    pub fn stop(&mut self) -> Result<()> {
        self.kill();
        self.detach()
    }

    fn detach(&self) -> Result<()> {
        self.detach_instance(&self.instance)
    }

    fn detach_instance(&self, instance: &str) -> Result<()> {
        let mut command = Command::new(&self.executable.0);
        self.netns.output(command.args(["detach", "--instance", instance]), "").map(drop)
    }
}

impl Device for Lanyard {
    fn detail(&self) -> String {
        self.daemon.as_ref().map(|d| d.ready.clone()).unwrap_or_default()
    }

    fn resets(&mut self) -> Option<&mut dyn Resets> {
        Some(self)
    }

    fn router_mac(&self, port: usize) -> Option<[u8; 6]> {
        self.macs.get(port).copied()
    }
}

/// A reset is `kill -9` of the daemon and the start of a new one. The new daemon ends together with the
/// thread that started it.
impl Resets for Lanyard {
    fn reset(&mut self) -> Result<()> {
        self.kill();
        self.start()
    }

    fn after_reset(&mut self) -> Result<()> {
        self.reset()
    }
}

impl Drop for Lanyard {
    fn drop(&mut self) {
        self.kill();
        if let Err(why) = self.detach() {
            eprintln!("lanyard bench: instance {} may be left behind: {why:#}", self.instance);
        }
        // The directory holds the base MAC address for the next start. This instance has no next start.
        let _ = std::fs::remove_dir_all(Path::new(STATE).join(&self.instance));
    }
}

/// Passes on every line that the daemon writes to stderr, as long as it lives.
fn follow_stderr(process: &mut Reaped) -> Result<Receiver<String>> {
    let stderr = process.0.stderr.take().context("lanyard without stderr")?;
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // After the start the lines have no receiver, but they must be read so that the daemon
            // never blocks.
            let _ = send.send(line);
        }
    });
    Ok(lines)
}

fn wait_ready(lines: &Receiver<String>) -> Result<String> {
    let start = Instant::now();
    let mut printed = String::new();
    while start.elapsed() < READY_LIMIT {
        check_interrupted()?;
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) if line.contains(" ready: ") => return Ok(line),
            Ok(line) => {
                let _ = writeln!(printed, "  {line}");
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("lanyard ended before it was ready:\n{printed}"),
        }
    }
    bail!("lanyard was not ready within {} s:\n{printed}", READY_LIMIT.as_secs())
}

fn startup_config(bed: &Bed, hook: Hook, ports: PortMode) -> String {
    let how = match hook {
        Hook::Tc => " hook tc\n delivery device\n",
        Hook::TcPeer => " hook tc\n delivery peer\n",
        Hook::Xdp => " hook xdp\n",
        Hook::Auto | Hook::Soft => "",
    };
    if ports == PortMode::Routed {
        return router_config(bed, how);
    }
    let mut text = format!("hostname bench\nvlan {VLAN}\n");
    if matches!(ports, PortMode::Snooped | PortMode::Joined) {
        let _ = writeln!(text, "ip igmp snooping vlan {VLAN} static {} interface p1", super::kernel::GROUP);
        // Leaves end memberships at once, so that each measurement begins without them.
        let _ = writeln!(text, "ip igmp snooping vlan {VLAN} immediate-leave");
    }
    if ports == PortMode::Filtered {
        text.push_str("ip access-list extended bench\n");
        for source in rules() {
            let _ = writeln!(text, " permit udp host {source} any");
        }
        text.push_str(" permit ip any any\n");
    }
    let attacked = matches!(ports, PortMode::Attacked | PortMode::Guarded);
    if attacked {
        text.push_str("spanning-tree mode rstp\n");
    }
    for (number, port) in bed.ports().iter().enumerate() {
        let trunk = ports == PortMode::Mixed && number > 0 && number % 2 == 0;
        let mode = if trunk {
            format!(" switchport mode trunk\n switchport trunk allowed vlan {VLAN}\n")
        } else {
            format!(" switchport mode access\n switchport access vlan {VLAN}\n")
        };
        let more = match ports {
            PortMode::Filtered => " ip access-group bench in\n",
            PortMode::Guarded if number == 2 => {
                " spanning-tree portfast\n storm-control broadcast level pps 1000\n"
            }
            PortMode::Attacked | PortMode::Guarded => " spanning-tree portfast\n",
            _ => "",
        };
        let _ = write!(text, "interface {port}\n{mode}{how}{more}");
    }
    if attacked {
        let _ = writeln!(text, "interface vlan {VLAN}\n ip address 10.254.0.254 255.255.255.0");
        if let Some(port) = bed.ports().get(3) {
            let _ = writeln!(text, "mac address-table static {VICTIM} vlan {VLAN} interface {port}");
        }
    }
    text
}

/// The host to which a flood from unknown sources is sent. It is at the third output port, so that the flood uses no port of the
/// measured stream.
pub const VICTIM: MacAddr = MacAddr([0x06, 0x4c, 2, 0, 0, 0]);

/// The VLAN of a port in [`PortMode::Routed`].
const fn vlan_of(port: usize) -> usize {
    VLAN as usize + 1 + port
}

fn router_config(bed: &Bed, how: &str) -> String {
    let mut text = String::from("hostname bench\nip routing\nipv6 unicast-routing\n");
    for (number, port) in bed.ports().iter().enumerate() {
        let vlan = vlan_of(number);
        let (four, six) = router_address(number);
        let _ = write!(
            text,
            "vlan {vlan}\ninterface {port}\n switchport mode access\n switchport access vlan {vlan}\n{how}\
             interface vlan {vlan}\n ip address {four} 255.255.0.0\n ipv6 address {six}/64\n"
        );
    }
    text
}
