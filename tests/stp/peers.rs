//! Other implementations: the kernel's bridge with its own STP, Open vSwitch with RSTP and with STP. The roles on both
//! sides must agree, and frames must take the other path when a wire is cut.

use crate::fixture::{bare, becomes, ports, start, tree};
use crate::harness::{Bed, DEADLINE, Net, Plane, scenarios, wait_for, wait_until};
use crate::loops::{Beyond, SHORT, kernel_becomes, kernel_bridge};
use std::process::{Child, Command, Stdio};

scenarios! {
    the_kernels_bridge_is_the_root: ebpf soft;
    the_kernels_bridge_is_a_leaf: ebpf;
    open_vswitch_speaks_rstp: ebpf;
    open_vswitch_speaks_stp: ebpf;
}

/// Two wires between a switch, ports `w1` and `w2`, and a namespace for the other implementation, ports `k1`
/// and `k2`. The switch is declared last, so it is taken down before its wires.
pub fn wired(plane: Plane) -> (Net, Bed) {
    let (peer, bed) = (Net::new(false), bare(plane, 1));
    for n in 1..=2 {
        bed.net.ip(&format!("link add w{n} type veth peer name k{n} netns {}", peer.path()));
        peer.ip(&format!("link set k{n} up"));
    }
    (peer, bed)
}

fn the_kernels_bridge_is_the_root(plane: Plane) {
    let (peer, bed) = wired(plane);
    kernel_bridge(&peer, 4096);
    let beyond = Beyond::new(&peer);
    peer.ip("link set k3 master br0");
    start(&bed, "spanning-tree mode rstp", &["w1", "w2"]);
    becomes(&bed, 0, "w1", "root", "forwarding");
    becomes(&bed, 0, "w2", "alternate", "discarding");
    for port in ["k1", "k2"] {
        kernel_becomes(&peer, port, "forwarding");
    }
    // A port that has just come up sends RSTP for three seconds, whatever it receives.
    wait_for("the neighbour to be known for what it is", || {
        bed.exec(&["show spanning-tree"]).contains("P2p Peer(STP)").then_some(())
    });
    kernel_becomes(&peer, "k3", "forwarding");
    beyond.hears(bed.host(1), "the kernel's bridge");
    peer.ip("link set k1 down");
    beyond.hears(bed.host(1), "the kernel's bridge after a cut");
    becomes(&bed, 0, "w2", "root", "forwarding");
    assert_eq!(ports(&bed, 0)["w1"].0, "disabled");
}

fn the_kernels_bridge_is_a_leaf(plane: Plane) {
    let (peer, bed) = wired(plane);
    kernel_bridge(&peer, 61440);
    start(
        &bed,
        &format!("spanning-tree mode stp\nspanning-tree vlan 1 priority 4096\n{SHORT}"),
        &["w1", "w2"],
    );
    for port in ["w1", "w2"] {
        becomes(&bed, 0, port, "designated", "forwarding");
    }
    kernel_becomes(&peer, "k1", "forwarding");
    kernel_becomes(&peer, "k2", "blocking");
    assert!(tree(&bed, 0)["root_port"].is_null());
    bed.net.ip("link set w1 down");
    kernel_becomes(&peer, "k2", "forwarding");
}

/// Open vSwitch in a namespace, with a database of its own. Its processes are killed when this is dropped.
pub struct Ovs {
    directory: tempfile::TempDir,
    children: Vec<Child>,
}

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

impl Ovs {
    fn command(directory: &tempfile::TempDir, program: &str) -> Command {
        let mut command = Command::new(program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, directory.path());
        }
        command
    }
    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
    fn start(peer: &Net) -> Self {
        let mut ovs = Self { directory: tempfile::tempdir().unwrap(), children: Vec::new() };
        let (database, socket) = (ovs.path("conf.db"), ovs.path("db.sock"));
        let made =
            peer.output(Self::command(&ovs.directory, "ovsdb-tool").args(["create", &database, SCHEMA]));
        assert!(made.status.success(), "{made:?}");
        let mut server = Self::command(&ovs.directory, "ovsdb-server");
        server.args([&database, &format!("--remote=punix:{socket}"), "--no-chdir"]);
        ovs.children.push(peer.spawn(server.stdout(Stdio::null()).stderr(Stdio::null())));
        wait_for("the database", || std::path::Path::new(&socket).exists().then_some(()));
        ovs.vsctl(peer, &["--no-wait", "init"]);
        let mut daemon = Self::command(&ovs.directory, "ovs-vswitchd");
        daemon.args([&format!("unix:{socket}"), "--no-chdir", "--pidfile", "--disable-system"]);
        ovs.children.push(peer.spawn(daemon.stdout(Stdio::null()).stderr(Stdio::null())));
        ovs
    }
    fn vsctl(&self, peer: &Net, arguments: &[&str]) -> String {
        let mut command = Self::command(&self.directory, "ovs-vsctl");
        let output = peer.output(command.arg(format!("--db=unix:{}", self.path("db.sock"))).args(arguments));
        assert!(output.status.success(), "ovs-vsctl {arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts Open vSwitch; when that is not possible here, prints the reason and returns `None`.
pub fn ovs(peer: &Net, settings: &[&str]) -> Option<Ovs> {
    if !std::path::Path::new(SCHEMA).exists() || !std::path::Path::new("/dev/net/tun").exists() {
        println!("skipped: Open vSwitch is not installed, or there is no /dev/net/tun");
        return None;
    }
    let ovs = Ovs::start(peer);
    let bridge = ["-t", "20", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"];
    ovs.vsctl(peer, &[&bridge, settings].concat());
    for port in ["k1", "k2", "k3"] {
        ovs.vsctl(peer, &["-t", "20", "add-port", "br0", port]);
    }
    Some(ovs)
}

impl Ovs {
    /// The state of a port in RSTP.
    pub fn port_state(&self, peer: &Net, port: &str) -> String {
        let status = self.vsctl(peer, &["get", "port", port, "rstp_status:rstp_port_state"]);
        status.trim().to_owned()
    }
    /// Waits until `column` of a port contains this role and state under these keys.
    pub fn port_becomes(&self, peer: &Net, port: &str, column: &str, keys: [&str; 2], wanted: [&str; 2]) {
        let mut last = String::new();
        let found = wait_until(2 * DEADLINE, || {
            last = self.vsctl(peer, &["get", "port", port, column]);
            let has = |at: usize| last.contains(&format!("{}={}", keys[at], wanted[at]));
            (has(0) && has(1)).then_some(())
        });
        assert!(found.is_some(), "{port} should be {wanted:?}, is {last}");
    }
}

fn open_vswitch_speaks_rstp(plane: Plane) {
    let (peer, bed) = wired(plane);
    let beyond = Beyond::new(&peer);
    let Some(ovs) = ovs(&peer, &["other_config:rstp-priority=61440", "rstp_enable=true"]) else { return };
    start(&bed, "spanning-tree mode rstp\nspanning-tree vlan 1 priority 4096", &["w1", "w2"]);
    for port in ["w1", "w2"] {
        becomes(&bed, 0, port, "designated", "forwarding");
    }
    let is = |port: &str, role: &str, state: &str| {
        let keys = ["rstp_port_role", "rstp_port_state"];
        ovs.port_becomes(&peer, port, "rstp_status", keys, [role, state]);
    };
    is("k1", "Root", "Forwarding");
    is("k2", "Alternate", "Discarding");
    is("k3", "Designated", "Forwarding");
    assert!(!bed.exec(&["show spanning-tree"]).contains("Peer(STP)"));
    beyond.hears(bed.host(1), "Open vSwitch with RSTP");
    bed.net.ip("link set w1 down");
    beyond.hears(bed.host(1), "Open vSwitch with RSTP after a cut");
    is("k2", "Root", "Forwarding");
    // The other case: Open vSwitch is the root.
    ovs.vsctl(&peer, &["set", "bridge", "br0", "other_config:rstp-priority=0"]);
    bed.net.ip("link set w1 up");
    becomes(&bed, 0, "w1", "root", "forwarding");
    becomes(&bed, 0, "w2", "alternate", "discarding");
    bed.net.ip("link set w1 down");
    beyond.hears(bed.host(1), "Open vSwitch with RSTP as root after a cut");
    becomes(&bed, 0, "w2", "root", "forwarding");
}

fn open_vswitch_speaks_stp(plane: Plane) {
    let (peer, bed) = wired(plane);
    let beyond = Beyond::new(&peer);
    let times = "other_config:stp-hello-time=1 other_config:stp-max-age=6 other_config:stp-forward-delay=4";
    let mut settings = vec!["stp_enable=true", "other_config:stp-priority=61440"];
    settings.extend(times.split(' '));
    let Some(ovs) = ovs(&peer, &settings) else { return };
    start(
        &bed,
        &format!("spanning-tree mode rstp\nspanning-tree vlan 1 priority 4096\n{SHORT}"),
        &["w1", "w2"],
    );
    let is = |port: &str, role: &str, state: &str| {
        ovs.port_becomes(&peer, port, "status", ["stp_role", "stp_state"], [role, state]);
    };
    is("k1", "root", "forwarding");
    is("k2", "alternate", "blocking");
    is("k3", "designated", "forwarding");
    for port in ["w1", "w2"] {
        becomes(&bed, 0, port, "designated", "forwarding");
    }
    wait_for("the neighbour to be known for what it is", || {
        bed.exec(&["show spanning-tree"]).contains("Peer(STP)").then_some(())
    });
    beyond.hears(bed.host(1), "Open vSwitch with STP");
    bed.net.ip("link set w1 down");
    is("k2", "root", "forwarding");
    beyond.hears(bed.host(1), "Open vSwitch with STP after a cut");
    // The other case: Open vSwitch is the root.
    ovs.vsctl(&peer, &["set", "bridge", "br0", "other_config:stp-priority=0"]);
    becomes(&bed, 0, "w2", "root", "forwarding");
}
