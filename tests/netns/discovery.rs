//! Neighbour discovery with a real neighbour: lldpd, which speaks LLDP and CDP.

use crate::harness::frame::text;
use crate::harness::{Bed, Host, Plane, frame, mac, scenarios, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

scenarios! {
    lldpd_and_the_switch_know_each_other: ebpf soft;
    frames_of_discovery_stay_on_their_link: ebpf soft;
    detach_withdraws_from_the_neighbor: ebpf;
}

const LLDP: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0x0e];
const CDP: [u8; 6] = [0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcc];

/// lldpd at a host.
struct Lldpd<'a> {
    child: Child,
    host: &'a Host,
    socket: PathBuf,
}

impl<'a> Lldpd<'a> {
    /// Starts lldpd, which shows a neighbour by each protocol (`-H 0`); `None` when it is not installed.
    fn start(bed: &Bed, host: &'a Host) -> Option<Self> {
        if !Path::new("/usr/sbin/lldpd").exists() {
            println!("skipped: lldpd is not installed");
            return None;
        }
        let socket = bed.file("lldpd.socket");
        let mut command = Command::new("/usr/sbin/lldpd");
        command
            .args(["-d", "-c", "-I", "eth0", "-C", "eth0", "-M", "3", "-H", "0", "-O", "/dev/null", "-u"])
            .arg(&socket);
        let log = std::fs::File::create(bed.file("lldpd.log")).expect("a file");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        let child = host.net.spawn(&mut command);
        let this = Self { child, host, socket };
        wait_for("lldpd answers", || this.try_ask(&["show", "configuration"]));
        Some(this)
    }
    fn try_ask(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("/usr/sbin/lldpcli");
        command.arg("-u").arg(&self.socket).args(["-f", "keyvalue"]).args(arguments);
        let output = self.host.net.output(&mut command);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
    /// True if lldpd knows a neighbour with all of these values.
    fn knows(&self, values: &[&str]) -> bool {
        let known = self.try_ask(&["show", "neighbors", "details"]).unwrap_or_default();
        values.iter().all(|value| known.lines().any(|line| line.ends_with(value)))
    }
    fn end(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

impl Drop for Lldpd<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn neighbors(bed: &Bed, protocol: &str) -> Vec<serde_json::Value> {
    let shown = bed.show(&format!("show {protocol} neighbors detail"));
    shown["neighbors"].as_array().expect("a list").clone()
}

fn lldpd_and_the_switch_know_each_other(plane: Plane) {
    let bed = Bed::new(
        plane,
        2,
        "hostname sw-discovery\nlldp run\ncdp run\nvlan 20\n name guests\nlocation elin-location 4930901820 identifier 7\n\
         location civic-location identifier 1\n country de\n city Berlin\n room 3.11\n\
         interface p1\n description to host 1\n \
         location civic-location-id 1\n location elin-location-id 7\n switchport access vlan 20\n switchport voice vlan 30\ninterface p2\n switchport\ninterface vlan 20\n ip address 10.20.0.1 255.255.255.0\n",
    );
    bed.chatter.set(true);
    bed.exact.set(false);
    let host = bed.host(1);
    let Some(mut lldpd) = Lldpd::start(&bed, host) else { return };
    let known = wait_for("the switch knows lldpd", || {
        let known = neighbors(&bed, "lldp");
        (!known.is_empty()).then_some(known)
    });
    assert_eq!(known.len(), 1, "{known:?}");
    assert_eq!((&known[0]["interface"], &known[0]["chassis_id"]), (&"p1".into(), &text(mac(1)).into()));
    assert!(known[0]["ttl_s"].as_u64().is_some_and(|ttl| (1..=120).contains(&ttl)), "{known:?}");
    assert_eq!(known[0]["protocol"], "lldp");
    let entry = bed.show("show lldp entry *");
    assert_eq!(entry["entries"][0]["med"]["device_type"], 3, "{entry}");
    wait_for("lldpd knows the switch", || {
        lldpd
            .knows(&[
                ".chassis.name=sw-discovery",
                ".port.ifname=p1",
                ".port.descr=to host 1",
                ".chassis.mgmt-ip=10.20.0.1",
                ".vlan.vlan-id=20",
                ".ttl=120",
                ".chassis.Bridge.enabled=on",
                ".lldp-med.device-type=Network Connectivity Device",
                ".policy.apptype=Voice",
                ".policy.vlan.vid=30",
                ".policy.dscp=46",
                ".country=DE",
                ".city=Berlin",
                ".room=3.11",
                ".ecs=4930901820",
            ])
            .then_some(())
    });
    // lldpd speaks CDP once it has heard it, and then shows the same neighbour twice.
    wait_for("lldpd knows the switch by CDP", || lldpd.knows(&[".via=CDPv2"]).then_some(()));
    let known = wait_for("the switch knows lldpd by CDP", || {
        let known = neighbors(&bed, "cdp");
        (!known.is_empty()).then_some(known)
    });
    assert_eq!((&known[0]["interface"], &known[0]["protocol"]), (&"p1".into(), &"cdp".into()));
    lldpd.end();
    wait_for("lldpd's withdrawal", || neighbors(&bed, "lldp").is_empty().then_some(()));
    let state = bed.show("show lldp interface p1");
    let port = &state["interfaces"][0];
    assert_eq!((&port["errors"], &port["frames_discarded"]), (&serde_json::json!({}), &0.into()), "{port}");
}

fn frames_of_discovery_stay_on_their_link(plane: Plane) {
    let bed = Bed::new(plane, 2, "interface p1\n switchport\ninterface p2\n switchport\n");
    let (lldp, cdp) = (frame(LLDP, mac(1)).ethertype(0x88cc), frame(CDP, mac(1)));
    bed.expect_drop(1, &lldp, "reserved_address");
    bed.expect_at(1, &cdp, &[2]);
    bed.configure("lldp run\ncdp run");
    // The switch now sends frames of its own.
    bed.chatter.set(true);
    bed.exact.set(false);
    for sent in [&lldp, &cdp] {
        bed.expect_at(1, sent, &[]);
    }
    let counted = wait_for("both frames are counted", || {
        let traps = bed.show("show platform traps").to_string();
        (traps.contains("\"lldp\"") && traps.contains("\"cdp\"")).then_some(traps)
    });
    assert!(counted.contains("discovery"), "{counted}");
    wait_for("the malformed frames are counted as errors", || {
        let lldp = bed.show("show lldp errors")["errors"].as_array().is_some_and(|errors| !errors.is_empty());
        let cdp = bed.show("show cdp interface p1")["interfaces"][0]["errors"]
            .as_object()
            .is_some_and(|all| !all.is_empty());
        (lldp && cdp).then_some(())
    });
    bed.configure("no lldp run\nno cdp run");
    bed.expect_at(1, &cdp, &[2]);
}

fn detach_withdraws_from_the_neighbor(plane: Plane) {
    let bed = Bed::new(plane, 1, "hostname sw-discovery\nlldp run\ninterface p1\n switchport\n");
    bed.chatter.set(true);
    bed.exact.set(false);
    let Some(lldpd) = Lldpd::start(&bed, bed.host(1)) else { return };
    wait_for("lldpd knows the switch", || lldpd.knows(&[".chassis.name=sw-discovery"]).then_some(()));
    bed.detach().expect("detached");
    wait_for("lldpd has forgotten it", || (!lldpd.knows(&[".chassis.name=sw-discovery"])).then_some(()));
}
