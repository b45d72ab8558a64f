//! Open vSwitch, private to the bench: netdev datapath, AF_XDP ports, its own database and run directory.
//!
//! Read first: Open vSwitch, "Open vSwitch with AF_XDP". Its poll thread spins on a core of its own, the last one.
//! It therefore uses more of the machine than the other devices, which forward on the generator's core.

use super::Device;
use crate::bed::Bed;
use anyhow::{Context, Result};
use lanyard_tester::os::{Netns, Reaped, cores, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const VSWITCHD: [&str; 2] = ["/usr/sbin/ovs-vswitchd", "/usr/lib/openvswitch-switch/ovs-vswitchd"];
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const LIMIT: Duration = Duration::from_secs(20);

/// The reason why this machine cannot run Open vSwitch, or `None` if it can.
pub fn unavailable() -> Option<String> {
    if !Path::new(SCHEMA).exists() || !VSWITCHD.iter().any(|p| Path::new(p).exists()) {
        return Some("no Open vSwitch (Debian: apt-get install openvswitch-switch)".to_owned());
    }
    (!Path::new("/dev/net/tun").exists()).then(|| "Open vSwitch needs /dev/net/tun".to_owned())
}

/// A running Open vSwitch. Fields drop in order, so daemons are killed before their directory is
/// removed.
pub struct Ovs {
    _vswitchd: Reaped,
    _database: Reaped,
    _dir: TempDir,
    version: String,
}

impl Ovs {
    /// Starts Open vSwitch and waits until every port is open.
    pub fn up(bed: &Bed) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("lanyard-bench-ovs").tempdir()?;
        let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let switch = &bed.switch;
        switch.output(command(&dir, "ovsdb-tool").args(["create", &path("conf.db"), SCHEMA]), "")?;
        let mut start = command(&dir, "ovsdb-server");
        start.arg(path("conf.db")).arg(format!("--remote=punix:{}", path("db.sock"))).arg("--no-chdir");
        let database = daemon(switch, &mut start)?;
        wait_until("the database of Open vSwitch", LIMIT, || Ok(dir.path().join("db.sock").exists()))?;
        let vsctl = |args: &[&str]| {
            let db = format!("--db=unix:{}", path("db.sock"));
            switch.output(command(&dir, "ovs-vsctl").arg(db).args(args), "")
        };
        vsctl(&["--no-wait", "init"])?;
        let mask = format!("other_config:pmd-cpu-mask={:#x}", 1u64 << (cores().min(64) - 1));
        vsctl(&["--no-wait", "set", "Open_vSwitch", ".", &mask])?;
        let mut start = command(&dir, "ovs-vswitchd");
        start.arg(format!("unix:{}", path("db.sock"))).arg("--no-chdir").arg("--pidfile");
        let vswitchd = daemon(switch, &mut start)?;
        // One transaction: each waits until Open vSwitch has opened what it added.
        let mut add: Vec<&str> =
            "-t 20 add-br br0 -- set bridge br0 datapath_type=netdev".split(' ').collect();
        let ports = bed.ports();
        for port in &ports {
            add.extend(["--", "add-port", "br0", port, "--", "set", "interface", port, "type=afxdp"]);
            add.extend(["options:xdp-mode=native", "options:n_rxq=1"]);
        }
        vsctl(&add)?;
        for port in &ports {
            let error = vsctl(&["get", "interface", port, "error"])?;
            let open = vsctl(&["get", "interface", port, "ofport"])?;
            anyhow::ensure!(open.trim() != "-1", "Open vSwitch refused {port}: {}", error.trim());
        }
        let version = switch.run("ovs-vswitchd", &["--version"], "").unwrap_or_default();
        let version = version.lines().next().unwrap_or_default().to_owned();
        Ok(Self { _vswitchd: vswitchd, _database: database, _dir: dir, version })
    }
}

fn command(dir: &TempDir, program: &str) -> Command {
    let mut command = Command::new(program);
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
        command.env(variable, dir.path());
    }
    command
}

fn daemon(netns: &Netns, command: &mut Command) -> Result<Reaped> {
    let name = PathBuf::from(command.get_program());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Reaped(netns.spawn(command).with_context(|| format!("cannot start {}", name.display()))?))
}

impl Device for Ovs {
    fn detail(&self) -> String {
        self.version.clone()
    }
}
