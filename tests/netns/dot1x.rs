//! Access control of ports with FreeRADIUS as the server and `wpa_supplicant` as the host: success, wrong passwords, logoff, VLANs,
//! hosts without a supplicant, dead servers, restarts. What a host sends that has not been authenticated never passes.

use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios, wait_for};
use lanyard_netdev::Reaped;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

scenarios! {
    supplicants: ebpf soft;
    hosts_without_a_supplicant: ebpf soft;
    hosts_of_one_port: ebpf soft;
    a_dead_server: soft;
    a_restart_keeps_ports_open: ebpf;
}

const FREERADIUS: &str = "/usr/sbin/freeradius";
const SUPPLICANT: &str = "/sbin/wpa_supplicant";
/// The lines of the switch, with timers that a test can wait for.
const CONFIG: &str = "dot1x system-auth-control\nradius server R\n address ipv4 127.0.0.1\n key 0 between-us\n timeout 1\n \
    retransmit 1\nvlan 20\nvlan 30\ninterface range p1 - 3\n switchport\ninterface p1\n dot1x timeout tx-period 1\n \
    dot1x max-reauth-req 1\n dot1x timeout quiet-period 1\n authentication timer restart 1\n \
    authentication violation restrict\n authentication port-control auto\n";

/// True if both programs are installed; otherwise the scenario is skipped.
fn possible() -> bool {
    let all = [FREERADIUS, SUPPLICANT].iter().all(|path| Path::new(path).exists());
    if !all {
        println!("skipped: no FreeRADIUS or no wpa_supplicant (packages freeradius, wpasupplicant)");
    }
    all
}

/// FreeRADIUS in the switch's namespace. It knows alice and bob, whose VLAN is 20, and the station 0200.0000.0001, whose VLAN is
/// named `VLAN0020`.
fn server(bed: &Bed) -> Reaped {
    let directory = bed.file("radius");
    std::fs::create_dir_all(&directory).expect("made");
    let at = directory.display();
    let config = format!(
        "name = freeradius\nraddbdir = {at}\nlibdir = /usr/lib/freeradius\nlogdir = {at}\nrun_dir = {at}\ndb_dir = {at}\n\
         pidfile = {at}/pid\nmodules {{\n pap {{\n }}\n files {{\n  filename = {at}/users\n }}\n \
         eap {{\n  default_eap_type = md5\n  md5 {{\n  }}\n }}\n}}\n\
         client switch {{\n ipaddr = 127.0.0.1\n secret = between-us\n require_message_authenticator = yes\n}}\n\
         server default {{\n listen {{\n  type = auth\n  ipaddr = 127.0.0.1\n  port = 1812\n }}\n \
         authorize {{\n  eap {{\n   ok = return\n  }}\n  files\n  pap\n }}\n \
         authenticate {{\n  Auth-Type PAP {{\n   pap\n  }}\n  eap\n }}\n}}\n"
    );
    let vlan = |name: &str| {
        format!(
            "\tTunnel-Type = VLAN,\n\tTunnel-Medium-Type = IEEE-802,\n\tTunnel-Private-Group-Id = \"{name}\"\n"
        )
    };
    let users = format!(
        "alice Cleartext-Password := \"wonder\"\n\nbob Cleartext-Password := \"builder\"\n{}\n\
         020000000001 Cleartext-Password := \"020000000001\"\n{}\n020000000003 Cleartext-Password := \"020000000003\"\n",
        vlan("20"),
        vlan("VLAN0020")
    );
    std::fs::write(directory.join("radiusd.conf"), config).expect("written");
    std::fs::write(directory.join("users"), users).expect("written");
    let log = directory.join("log");
    let _ = std::fs::remove_file(&log);
    let mut command = Command::new(FREERADIUS);
    command.arg("-f").arg("-d").arg(&directory).arg("-l").arg(&log).stdout(Stdio::null());
    let server = Reaped(bed.net.spawn(&mut command));
    wait_for("FreeRADIUS to be ready", || {
        std::fs::read_to_string(&log).ok().filter(|text| text.contains("Ready to process requests"))
    });
    server
}

/// `wpa_supplicant` of a host.
struct Supplicant {
    _program: Reaped,
    control: PathBuf,
}

impl Supplicant {
    fn start(bed: &Bed, n: usize, identity: &str, password: &str) -> Self {
        let control = bed.file(&format!("control-{n}"));
        let file = bed.file(&format!("supplicant-{n}.conf"));
        let text = format!(
            "ctrl_interface={}\nap_scan=0\nnetwork={{\n key_mgmt=IEEE8021X\n eap=MD5\n identity=\"{identity}\"\n \
             password=\"{password}\"\n eapol_flags=0\n}}\n",
            control.display()
        );
        std::fs::write(&file, text).expect("written");
        let mut command = Command::new(SUPPLICANT);
        command.args(["-D", "wired", "-i", "eth0", "-c"]).arg(&file).stdout(Stdio::null());
        let program = Reaped(bed.host(n).net.spawn(&mut command));
        Self { _program: program, control }
    }
    /// Gives `wpa_supplicant` a command, and repeats it until the program accepts it.
    fn order(&self, bed: &Bed, n: usize, words: &[&str]) {
        wait_for("wpa_supplicant", || {
            let mut command = Command::new("/sbin/wpa_cli");
            command.arg("-p").arg(&self.control).args(["-i", "eth0"]).args(words);
            let output = bed.host(n).net.output(&mut command);
            String::from_utf8_lossy(&output.stdout).contains("OK").then_some(())
        });
    }
}

/// The sessions as `USER METHOD STATUS VLAN`.
fn sessions(bed: &Bed) -> Vec<String> {
    let view = bed.ask("show authentication sessions");
    let text = |session: &serde_json::Value| {
        let word = |key: &str| session[key].as_str().unwrap().to_owned();
        let vlan = session["vlan"].as_u64().map_or_else(|| "-".into(), |vlan| vlan.to_string());
        [word("user"), word("method"), word("status"), vlan].join(" ")
    };
    view["sessions"].as_array().unwrap().iter().map(text).collect()
}

fn session(bed: &Bed, want: &str) {
    wait_for(&format!("the session {want}"), || sessions(bed).contains(&want.to_owned()).then_some(()));
}

fn logged(bed: &Bed, text: &str) {
    wait_for(&format!("the message {text}"), || bed.exec(&["show logging"]).contains(text).then_some(()));
}

fn accepts(bed: &Bed) -> u64 {
    bed.ask("show aaa servers")["servers"][0]["accepts"].as_u64().expect("a number")
}

/// Hosts with addresses: 10.0.0.N.
fn with_addresses(plane: Plane, lines: &str) -> Bed {
    let bed = Bed::new(plane, 3, &format!("{CONFIG}{lines}"));
    bed.chatter.set(true);
    bed.exact.set(false);
    for n in 1..=3 {
        bed.host(n).address(&format!("10.0.0.{n}/24"));
    }
    bed
}

fn supplicants(plane: Plane) {
    if !possible() {
        return;
    }
    let bed = with_addresses(plane, " dot1x pae authenticator\n");
    let _server = server(&bed);
    // The closed port forwards in neither direction, while the other ports forward.
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.0.2") && !bed.host(2).ping("-c 1 -W 1 10.0.0.1"));
    assert!(bed.drops(1, "unauthorized") > 0);
    bed.host(2).reaches("10.0.0.3");
    // Host 2 still asks for the address of host 1 by broadcast: flush its entry.
    bed.host(2).net.ip("neigh flush dev eth0");
    bed.expect_at(2, &broadcast(2), &[3]);
    {
        let _wrong = Supplicant::start(&bed, 1, "alice", "blunder");
        logged(&bed, "%DOT1X-5-FAIL: Authentication failed for client");
        assert!(!bed.host(1).ping("-c 1 -W 1 10.0.0.2"));
    }
    bed.exec(&["clear authentication sessions"]);
    let supplicant = Supplicant::start(&bed, 1, "alice", "wonder");
    session(&bed, "alice dot1x authorized 1");
    logged(&bed, "%DOT1X-5-SUCCESS: Authentication successful for client");
    bed.host(1).reaches("10.0.0.2");
    // Frames of another station at the port are dropped; those of the host itself still pass.
    let before = bed.drops(1, "unauthorized");
    bed.expect(1, &frame(BROADCAST, mac(9)), &[]);
    assert_eq!(bed.drops(1, "unauthorized"), before + 1);
    logged(&bed, "%AUTHMGR-5-SECURITY_VIOLATION");
    bed.host(1).reaches("10.0.0.2");
    // The host is authenticated again every second, while the port stays open.
    let before = accepts(&bed);
    bed.configure("interface p1\nauthentication periodic\nauthentication timer reauthenticate 1");
    bed.exec(&["clear authentication sessions"]);
    session(&bed, "alice dot1x authorized 1");
    bed.host(1).reaches("10.0.0.2");
    wait_for("three authentications", || (accepts(&bed) >= before + 3).then_some(()));
    assert!(bed.host(1).ping("-c 20 10.0.0.2"));
    supplicant.order(&bed, 1, &["logoff"]);
    wait_for("the end of the session", || {
        sessions(&bed).iter().all(|session| !session.contains("authorized")).then_some(())
    });
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.0.2") && !bed.host(2).ping("-c 1 -W 1 10.0.0.1"));
    supplicant.order(&bed, 1, &["logon"]);
    session(&bed, "alice dot1x authorized 1");
    bed.host(1).reaches("10.0.0.2");
    // The server assigns another VLAN to bob.
    drop(supplicant);
    bed.configure("interface p3\nswitchport access vlan 20");
    bed.exec(&["clear authentication sessions"]);
    let _bob = Supplicant::start(&bed, 1, "bob", "builder");
    session(&bed, "bob dot1x authorized 20");
    bed.host(1).reaches("10.0.0.3");
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.0.2"));
    let shown = bed.show("show dot1x interface p1");
    assert_eq!(
        (&shown["interfaces"][0]["authorized"], &shown["interfaces"][0]["vlan"]),
        (&true.into(), &20.into())
    );
    bed.configure("interface p1\nauthentication port-control force-unauthorized");
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.0.3"));
    bed.configure("interface p1\nauthentication port-control force-authorized");
    bed.configure("interface p1\nswitchport access vlan 20");
    bed.host(1).reaches("10.0.0.3");
}

fn broadcast(host: u16) -> Frame {
    frame(BROADCAST, mac(host))
}

/// A station is authenticated by its address, once it has sent a frame, which is dropped.
fn hosts_without_a_supplicant(plane: Plane) {
    if !possible() {
        return;
    }
    let lines = " mab\n authentication order mab dot1x\ninterface p2\n switchport access vlan 20\n";
    let bed = Bed::new(plane, 3, &format!("{CONFIG}{lines}"));
    let server = server(&bed);
    bed.expect_drop(1, &broadcast(7), "unauthorized");
    logged(&bed, "%MAB-5-FAIL: Authentication failed for client (0200.0000.0007)");
    bed.expect_drop(1, &broadcast(7), "unauthorized");
    bed.expect_drop(1, &broadcast(1), "unauthorized");
    session(&bed, "020000000001 mab authorized 20");
    logged(&bed, "%MAB-5-SUCCESS: Authentication successful for client (0200.0000.0001)");
    logged(&bed, "%AUTHMGR-5-VLANASSIGN: VLAN 20 assigned to Interface p1");
    // The host is in VLAN 20, where p2 is, and not in VLAN 1.
    bed.expect_at(1, &broadcast(1), &[2]);
    bed.expect_at(2, &frame(mac(1), mac(2)), &[1]);
    bed.expect_at(3, &broadcast(3), &[]);
    bed.expect_drop(1, &broadcast(7), "unauthorized");
    assert_eq!(bed.entry(mac(1), 20), Some(("p1".into(), "static".into())));
    // The address does not move when another port receives a frame from it.
    bed.expect_at(2, &broadcast(1), &[1]);
    assert_eq!(bed.entry(mac(1), 20), Some(("p1".into(), "static".into())));
    let shown = bed.show("show mab interface p1");
    assert_eq!(shown["sessions"][0]["status"], "authorized", "{shown}");
    // After the link has gone down, the next host has to be authenticated.
    bed.host(1).net.ip("link set eth0 down");
    wait_for("the end of the session", || sessions(&bed).is_empty().then_some(()));
    bed.host(1).net.ip("link set eth0 up");
    wait_for("the link", || bed.host(1).is_linked().then_some(()));
    wait_for("the port", || {
        let status = bed.ask("show interfaces p1");
        (status["interfaces"][0]["link_up"] == true).then_some(())
    });
    bed.expect_drop(1, &broadcast(1), "unauthorized");
    session(&bed, "020000000001 mab authorized 20");
    // A host that the server does not know is admitted to a guest VLAN.
    bed.configure("interface p1\nauthentication event no-response action authorize vlan 30\ninterface p3\nswitchport access vlan 30");
    bed.exec(&["clear authentication sessions"]);
    wait_for("no session", || sessions(&bed).is_empty().then_some(()));
    bed.expect_drop(1, &broadcast(7), "unauthorized");
    session(&bed, " mab authorized 30");
    bed.expect_at(1, &broadcast(7), &[3]);
    drop(server);
}

fn hosts_of_one_port(plane: Plane) {
    if !possible() {
        return;
    }
    let bed = Bed::new(plane, 3, &format!("{CONFIG} mab\n authentication host-mode multi-auth\n"));
    let _server = server(&bed);
    bed.expect_drop(1, &broadcast(3), "unauthorized");
    session(&bed, "020000000003 mab authorized 1");
    bed.expect_at(1, &broadcast(3), &[2, 3]);
    // The server assigns another VLAN to this host than to the first one, so it is refused.
    bed.expect_drop(1, &broadcast(1), "unauthorized");
    logged(&bed, "VLAN 20 is not that of the other hosts at the port");
    bed.expect_drop(1, &broadcast(1), "unauthorized");
    bed.expect_drop(1, &broadcast(7), "unauthorized");
    bed.expect_at(1, &broadcast(3), &[2, 3]);
    // In this mode one authenticated host opens the port for all hosts.
    bed.configure("interface p1\nauthentication host-mode multi-host");
    wait_for("the end of the sessions", || sessions(&bed).is_empty().then_some(()));
    bed.expect_drop(1, &broadcast(7), "unauthorized");
    bed.expect_drop(1, &broadcast(3), "unauthorized");
    session(&bed, "020000000003 mab authorized 1");
    bed.expect_at(1, &broadcast(7), &[2, 3]);
    bed.expect_at(1, &broadcast(8), &[2, 3]);
    bed.exec(&["clear authentication sessions interface p1"]);
    bed.expect_drop(1, &broadcast(8), "unauthorized");
    // In this mode a second host at the port shuts the port down.
    bed.configure("interface p1\nauthentication host-mode single-host\nno authentication violation");
    bed.expect_drop(1, &broadcast(3), "unauthorized");
    session(&bed, "020000000003 mab authorized 1");
    bed.chatter.set(true);
    bed.exact.set(false);
    wait_for("err-disable", || {
        // The plane sends up some of the dropped frames only; the port may be down already.
        let _ = bed.host(1).try_send(&broadcast(8));
        (bed.show("show errdisable recovery")["interfaces"][0]["cause"] == "security-violation").then_some(())
    });
}

fn a_dead_server(plane: Plane) {
    if !possible() {
        return;
    }
    let lines = " mab\n authentication event server dead action authorize vlan 30\n \
        authentication event server alive action reinitialize\ninterface p3\n switchport access vlan 30\n";
    let bed = Bed::new(plane, 3, &format!("{CONFIG}{lines}"));
    bed.expect_drop(1, &broadcast(3), "unauthorized");
    session(&bed, " mab authorized 30");
    logged(&bed, "%RADIUS-4-RADIUS_DEAD: RADIUS server 127.0.0.1:1812 is not responding.");
    bed.expect_at(1, &broadcast(3), &[3]);
    let server = server(&bed);
    session(&bed, "020000000003 mab authorized 1");
    logged(&bed, "%RADIUS-4-RADIUS_ALIVE: RADIUS server 127.0.0.1:1812 is being marked alive.");
    bed.expect_at(1, &broadcast(3), &[2]);
    // An authorized host stays authorized while no server answers.
    bed.configure("interface p1\nauthentication periodic\nauthentication timer reauthenticate 1");
    let before = accepts(&bed);
    bed.exec(&["clear authentication sessions"]);
    bed.expect_drop(1, &broadcast(3), "unauthorized");
    wait_for("two authentications", || (accepts(&bed) >= before + 2).then_some(()));
    drop(server);
    let timeouts = || bed.ask("show aaa servers")["servers"][0]["timeouts"].as_u64().expect("a number");
    let before = timeouts();
    wait_for("two failures", || (timeouts() >= before + 2).then_some(()));
    assert_eq!(sessions(&bed), ["020000000003 mab authorized 1"]);
    bed.expect_at(1, &broadcast(3), &[2]);
}

fn a_restart_keeps_ports_open(plane: Plane) {
    if !possible() {
        return;
    }
    let bed = with_addresses(plane, " dot1x pae authenticator\n");
    let _server = server(&bed);
    let _supplicant = Supplicant::start(&bed, 1, "alice", "wonder");
    session(&bed, "alice dot1x authorized 1");
    bed.host(1).reaches("10.0.0.2");
    bed.exec(&["copy running-config startup-config"]);
    let mut ping = Command::new("ping");
    ping.args(["-n", "-i", "0.01", "-c", "500", "-W", "2", "10.0.0.2"]).stdout(Stdio::piped());
    let ping = bed.host(1).net.spawn(&mut ping);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    // While no daemon runs, frames of other stations are still dropped.
    bed.host(2).drain();
    bed.host(1).send(&broadcast(9));
    bed.start();
    let output = ping.wait_with_output().expect("ping ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(" 0% packet loss"), "{text}");
    assert_eq!(sessions(&bed), ["alice dot1x authorized 1"]);
    let foreign = std::iter::from_fn(|| bed.host(2).next()).filter(|got| got.0[6..12] == mac(9)).count();
    assert_eq!(foreign, 0);
    // The new daemon authenticates the host again, and the host stays authorized.
    wait_for("the repeated authentication", || (accepts(&bed) >= 1).then_some(()));
    assert_eq!(sessions(&bed), ["alice dot1x authorized 1"]);
    bed.host(1).reaches("10.0.0.2");
    bed.expect(1, &broadcast(9), &[]);
}
