//! Switches that are connected to each other, and queries of their trees.

use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU16, Ordering};

/// The ports of a tree in `show spanning-tree`: role and state.
pub type Ports = BTreeMap<String, (String, String)>;

/// Switches that are connected to each other; all are taken down before the first wire is.
pub struct Beds(pub Vec<Bed>);

impl Deref for Beds {
    type Target = [Bed];
    fn deref(&self) -> &[Bed] {
        &self.0
    }
}

impl Drop for Beds {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for bed in &self.0 {
            bed.detach().unwrap();
        }
    }
}

/// A switch that is not started yet, with `hosts` hosts at `p1`...; every host has an address of its own.
pub fn bare(plane: Plane, hosts: usize) -> Bed {
    static NUMBER: AtomicU16 = AtomicU16::new(100);
    let mut bed = Bed::without_switch(plane, hosts, 1500);
    for host in &mut bed.hosts {
        host.mac = mac(NUMBER.fetch_add(1, Ordering::Relaxed));
    }
    // Do not check counters: other switches send frames that this bed does not know.
    bed.exact.set(false);
    bed.chatter.set(true);
    bed
}

/// Connects port `a` of one switch to port `b` of another.
pub fn wire(a: (&Bed, &str), b: (&Bed, &str)) {
    a.0.net.ip(&format!("link add {} type veth peer name {} netns {}", a.1, b.1, b.0.net.path()));
}

/// Starts a switch with these lines; its hosts' ports have portfast, and `links` are trunks.
pub fn start(bed: &Bed, lines: &str, links: &[&str]) {
    let mut text = format!("{lines}\n");
    for n in 1..=bed.hosts.len() {
        text += &format!("interface p{n}\n switchport\n spanning-tree portfast\n");
    }
    for link in links {
        text += &format!("interface {link}\n switchport mode trunk\n");
    }
    std::fs::write(bed.config_file(), text).unwrap();
    bed.start();
}

/// A ring of `count` switches with a host each; the first is the root. `left` of each is connected to `right` of
/// the one before.
pub fn ring(plane: Plane, count: usize, lines: &str) -> Beds {
    mixed_ring(plane, &vec![lines; count])
}

/// Like [`ring`], with separate lines for each switch.
pub fn mixed_ring(plane: Plane, lines: &[&str]) -> Beds {
    let count = lines.len();
    let beds: Vec<Bed> = (0..count).map(|_| bare(plane, 1)).collect();
    for at in 0..count {
        wire((&beds[at], "right"), (&beds[(at + 1) % count], "left"));
    }
    for (at, (bed, lines)) in beds.iter().zip(lines).enumerate() {
        let tree = if lines.contains("mode mst") { "mst 0" } else { "vlan 1" };
        let priority = (at + 1) * 4096;
        start(bed, &format!("{lines}\nspanning-tree {tree} priority {priority}"), &["left", "right"]);
    }
    Beds(beds)
}

/// The tree of an instance.
pub fn tree(bed: &Bed, instance: u64) -> Value {
    let view = bed.ask("show spanning-tree");
    let trees = view["instances"].as_array().unwrap();
    trees.iter().find(|tree| tree["instance"] == instance).cloned().unwrap_or_default()
}

/// The ports of a tree.
pub fn ports(bed: &Bed, instance: u64) -> Ports {
    let tree = tree(bed, instance);
    let text = |port: &Value, key: &str| port[key].as_str().unwrap().to_owned();
    let rows = tree["ports"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|port| (text(port, "interface"), (text(port, "role"), text(port, "state")))).collect()
}

/// Waits until a port has this role and state.
pub fn becomes(bed: &Bed, instance: u64, port: &str, role: &str, state: &str) {
    let mut last = Ports::new();
    let wanted = (role.to_owned(), state.to_owned());
    let found = crate::harness::wait_until(crate::harness::DEADLINE, || {
        last = ports(bed, instance);
        (last.get(port) == Some(&wanted)).then_some(())
    });
    assert!(found.is_some(), "{port} should be {role} {state}, is {last:?}");
}

/// The number of topology changes, the root and the ports of a tree, which do not change in a quiet network.
pub fn calm(bed: &Bed, instance: u64) -> (u64, String, Ports) {
    let tree = tree(bed, instance);
    (tree["topology_changes"].as_u64().unwrap(), tree["root_id"].to_string(), ports(bed, instance))
}

/// Waits until topology changes have been received everywhere; returns the trees afterwards.
pub fn quiet(beds: &[Bed]) -> Vec<(u64, String, Ports)> {
    let all = || beds.iter().map(|bed| calm(bed, 0)).collect::<Vec<_>>();
    wait_for("topology changes to have been received of everywhere", || {
        let before = all();
        heard_again(beds);
        (all() == before).then_some(before)
    })
}

/// Waits until every switch except the root, which receives none, has received a BPDU.
pub fn heard_again(beds: &[Bed]) {
    for bed in &beds[1..] {
        let before = bed.ask("show platform traps");
        wait_for("a BPDU", || (bed.ask("show platform traps") != before).then_some(()));
    }
}

/// Waits until all switches have the same root, every port is forwarding or discarding, and `blocked` ports
/// are discarding.
pub fn settle(beds: &[Bed], instance: u64, blocked: usize) {
    let mut last = Vec::new();
    let found = crate::harness::wait_until(crate::harness::DEADLINE, || {
        last =
            beds.iter().map(|bed| (tree(bed, instance)["root_id"].clone(), ports(bed, instance))).collect();
        let up = |ports: &Ports| {
            ports.values().filter(|(role, _)| role != "disabled").cloned().collect::<Vec<_>>()
        };
        let states: Vec<(String, String)> = last.iter().flat_map(|(_, ports)| up(ports)).collect();
        let count = |state: &str| states.iter().filter(|(_, s)| s == state).count();
        let rests = |(role, state): &(String, String)| {
            (role == "alternate" || role == "backup") == (state == "discarding") && state != "learning"
        };
        let done = last.iter().all(|(root, _)| *root == last[0].0 && !root.is_null())
            && count("discarding") == blocked
            && states.iter().all(rests);
        done.then_some(())
    });
    assert!(found.is_some(), "{blocked} ports should be blocked: {last:#?}");
}

/// Waits until `sent` arrives at the host; other frames are skipped.
pub fn arrives(to: &Bed, sent: &Frame) {
    wait_for("a frame", || to.host(1).next().filter(|frame| frame == sent));
}

/// Checks that broadcasts arrive exactly once at every host. Each frame is awaited everywhere before the next is sent,
/// so a copy that circulates is seen while any later frame is awaited.
pub fn no_loop(beds: &[Bed]) {
    beds.iter().for_each(|bed| bed.host(1).drain());
    let mut sent = Vec::new();
    let mut seen: Vec<Vec<Frame>> = vec![Vec::new(); beds.len()];
    for round in 0..50 {
        let from = round % beds.len();
        let host = beds[from].host(1);
        let this = frame(BROADCAST, host.mac);
        host.send(&this);
        for (at, bed) in beds.iter().enumerate().filter(|(at, _)| *at != from) {
            wait_for("a broadcast", || {
                seen[at].extend(bed.host(1).next());
                seen[at].contains(&this).then_some(())
            });
        }
        sent.push((from, this));
    }
    for (at, bed) in beds.iter().enumerate() {
        seen[at].extend(std::iter::from_fn(|| bed.host(1).next()));
        let bpdus = |frame: &&Frame| frame.0[..3] != [0x01, 0x80, 0xc2];
        let got: Vec<&Frame> = seen[at].iter().filter(bpdus).collect();
        let wanted: Vec<&Frame> =
            sent.iter().filter(|(from, _)| *from != at).map(|(_, frame)| frame).collect();
        assert_eq!(got, wanted, "at the host of switch {at}");
    }
}
