//! Open vSwitch in a host's namespace, as a partner for LACP.

use super::{Net, wait_for};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Open vSwitch in a host's namespace, with a bridge br0 and a bond of eth0 and eth1.
pub struct Ovs<'a> {
    net: &'a Net,
    directory: TempDir,
    children: Vec<Child>,
}

impl<'a> Ovs<'a> {
    /// Starts it; `None`, with the reason on the output, where it cannot run. `settings` are those of the bond.
    pub fn start(net: &'a Net, settings: &[&str]) -> Option<Self> {
        if !Path::new(SCHEMA).exists() || !Path::new("/dev/net/tun").exists() {
            println!("skipped: Open vSwitch is not installed, or there is no /dev/net/tun");
            return None;
        }
        let mut ovs =
            Self { net, directory: tempfile::tempdir().expect("a directory"), children: Vec::new() };
        let (database, socket) = (ovs.path("conf.db"), ovs.path("db.sock"));
        let made = net.output(ovs.command("ovsdb-tool").args(["create", &database, SCHEMA]));
        assert!(made.status.success(), "{made:?}");
        let mut server = ovs.command("ovsdb-server");
        server.args([&database, &format!("--remote=punix:{socket}"), "--no-chdir"]);
        ovs.children.push(net.spawn(server.stdout(Stdio::null()).stderr(Stdio::null())));
        // The socket exists a moment before the server listens.
        wait_for("the database", || UnixStream::connect(&socket).ok());
        ovs.vsctl(&["--no-wait", "init"]);
        let mut daemon = ovs.command("ovs-vswitchd");
        daemon.args([&format!("unix:{socket}"), "--no-chdir", "--pidfile", "--disable-system"]);
        ovs.children.push(net.spawn(daemon.stdout(Stdio::null()).stderr(Stdio::null())));
        ovs.vsctl(&["-t", "20", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]);
        let bond = ["-t", "20", "add-bond", "br0", "bond0", "eth0", "eth1", "bond_mode=balance-tcp"];
        ovs.vsctl(&[&bond, settings].concat());
        Some(ovs)
    }
    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_string_lossy().into_owned()
    }
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, self.directory.path());
        }
        command
    }
    fn vsctl(&self, arguments: &[&str]) -> String {
        let mut command = self.command("ovs-vsctl");
        let output =
            self.net.output(command.arg(format!("--db=unix:{}", self.path("db.sock"))).args(arguments));
        assert!(output.status.success(), "ovs-vsctl {arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
    /// True if its bond has negotiated.
    pub fn negotiated(&self) -> bool {
        let output = self.net.output(self.command("ovs-appctl").args(["lacp/show", "bond0"]));
        String::from_utf8_lossy(&output.stdout).contains("negotiated")
    }
    pub fn end(&mut self) {
        for child in self.children.iter_mut().rev() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.children.clear();
    }
}

impl Drop for Ovs<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
