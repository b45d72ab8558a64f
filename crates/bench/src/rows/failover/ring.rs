//! The ring: switches in namespaces of their own, `right` of each wired to `left` of the next, and hosts at three of
//! them.
//!
//! ```text
//!  host ─ [0 root] ══ the wire that is cut ══ [1] ─ host
//!            ║                                 ║
//!           [7]   ...   [N/2] ─ host   ...    [2]
//! ```
//!
//! Switch N/2 is farthest from the root and blocks its port `right`. When the wire is gone, switches 1 to N/2 are cut
//! off until N/2 unblocks that port, although N/2 itself has lost no link. Invariant: nothing is left behind, however a
//! run ends.

use super::probe::Host;
use crate::dut::{Executable, Lanyard};
use anyhow::{Context, Result};
use lanyard_tester::os::{Netns, wait_until};
use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;

/// The longest time until the ring is whole, or until it has found a path around a cut.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
/// The name of a host's device and of the switch's port for it.
const HOST: &str = "h1";
const HOST_PORT: &str = "p1";

/// How the wire is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Deleted: both ends go at once.
    Gone,
    /// The root's end is set down.
    Down,
}

/// A running ring.
pub struct Ring {
    switches: Vec<Lanyard>,
    netns: Vec<Netns>,
    hosts: Vec<Netns>,
}

impl Ring {
    /// Builds the ring and starts `count` switches. Their configuration has `lines`, and priorities that make the first switch
    /// the root.
    ///
    /// # Errors
    /// Without root or `ip`, or when a switch does not start.
    pub fn up(count: usize, executable: &Executable, lines: &[String]) -> Result<Self> {
        let netns = (0..count).map(|_| Netns::new()).collect::<Result<Vec<_>>>()?;
        let hosts = (0..3).map(|_| Netns::new()).collect::<Result<Vec<_>>>()?;
        let mut ring = Self { switches: Vec::new(), netns, hosts };
        for at in 0..count {
            ring.wire(at)?;
        }
        for (host, at) in ring.hosts.iter().zip(places(count)) {
            ring.netns[at]
                .ip(&format!("link add {HOST_PORT} type veth peer name {HOST} netns {}\n", host.path()))?;
            host.ip(&format!("link set {HOST} up\n"))?;
        }
        for (at, netns) in ring.netns.iter().enumerate() {
            let config = config(at, places(count).contains(&at), lines);
            let switch = Lanyard::with_config(netns, executable, &format!("failover{at}"), &config);
            ring.switches.push(switch.with_context(|| format!("switch {at}"))?);
        }
        Ok(ring)
    }

    /// Joins switch `at` to the next one by a wire.
    fn wire(&self, at: usize) -> Result<()> {
        let next = &self.netns[(at + 1) % self.netns.len()];
        self.netns[at]
            .ip(&format!("link add right type veth peer name left netns {}\n", next.path()))
            .map(drop)
    }

    /// The hosts: at the root, at the next switch, at the farthest.
    pub fn hosts(&self) -> [Host<'_>; 3] {
        [0, 1, 2].map(|at| Host { netns: &self.hosts[at], device: HOST })
    }

    /// Cuts the wire between the first two switches.
    ///
    /// # Errors
    /// When there is none.
    pub fn cut(&self, how: Cut) -> Result<()> {
        let line = match how {
            Cut::Gone => "link del right\n",
            Cut::Down => "link set right down\n",
        };
        self.netns[0].ip(line).map(drop)
    }

    /// Undoes [`Self::cut`].
    ///
    /// # Errors
    /// When the wire cannot be restored.
    pub fn mend(&self, how: Cut) -> Result<()> {
        match how {
            Cut::Gone => self.wire(0),
            Cut::Down => self.netns[0].ip("link set right up\n").map(drop),
        }
    }

    /// Waits until all switches agree on the root and every port is either blocking or forwarding. In a ring
    /// that is `whole`, one port blocks.
    ///
    /// # Errors
    /// When this does not happen in time; the error contains the present state.
    pub fn settle(&self, whole: bool) -> Result<()> {
        let mut last = String::new();
        let settled = wait_until("the ring to settle", SETTLE_LIMIT, || {
            last.clear();
            let mut trees = Vec::new();
            for switch in &self.switches {
                let view: Value = serde_json::from_str(&switch.show("show spanning-tree | json")?)?;
                trees.push(view["instances"][0].clone());
            }
            for tree in &trees {
                let _ = writeln!(last, "{tree}");
            }
            Ok(is_settled(&trees, whole))
        });
        settled.with_context(|| last)
    }
}

/// The numbers of the switches with a host.
fn places(count: usize) -> [usize; 3] {
    [0, 1, count / 2]
}

fn is_settled(trees: &[Value], whole: bool) -> bool {
    let wires = if whole { trees.len() } else { trees.len() - 1 };
    let ports = || trees.iter().flat_map(|tree| tree["ports"].as_array().into_iter().flatten());
    let links = || ports().filter(|port| port["interface"] != HOST_PORT && port["role"] != "disabled");
    let blocked = links().filter(|port| port["state"] == "discarding").count();
    let rests = |port: &Value| (port["role"] == "alternate") == (port["state"] == "discarding");
    trees.iter().all(|tree| tree["root_id"] == trees[0]["root_id"] && !tree["root_id"].is_null())
        && links().count() == 2 * wires
        && blocked == usize::from(whole)
        && links().all(|port| rests(port) && port["state"] != "learning")
}

fn config(at: usize, host: bool, lines: &[String]) -> String {
    let mut text = format!("hostname s{at}\n");
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    let priority = at * 4096;
    for tree in ["vlan 1", "mst 0"] {
        // The line that the mode does not use is kept in the configuration, with a warning.
        let _ = writeln!(text, "spanning-tree {tree} priority {priority}");
    }
    if host {
        let _ = writeln!(text, "interface {HOST_PORT}\n switchport\n spanning-tree portfast");
    }
    text + "interface left\n switchport mode trunk\ninterface right\n switchport mode trunk\n"
}
