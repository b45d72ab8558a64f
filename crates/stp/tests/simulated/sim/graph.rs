//! The forwarding graph of a VLAN: bridges and segments are its vertices, forwarding ports its edges.
//!
//! Invariant: a port that has lost its link, or is shut down, is no edge.

use super::{Segment, Sim};
use lanyard_types::{PortId, StpState, VlanId};
use std::collections::HashMap;

impl Sim {
    /// The edges of a VLAN's forwarding graph, from bridge to segment.
    fn edges(&self, vlan: VlanId, forwarding_only: bool) -> Vec<(usize, usize)> {
        let mut edges = Vec::new();
        let states: Vec<HashMap<PortId, StpState>> = self
            .nodes
            .iter()
            .map(|node| {
                let instance = node.bridge.instance_of(vlan);
                let states = node.bridge.states().filter(|(at, _, _)| *at == instance);
                states.map(|(_, port, state)| (port, state)).collect()
            })
            .collect();
        let live = |(_, segment): &(usize, &Segment)| segment.up && segment.loss_percent < 100;
        for (s, segment) in self.segments.iter().enumerate().filter(live) {
            for (n, port) in segment.ends.iter().filter(|end| !self.unplugged.contains(end)) {
                let config = &self.nodes[*n].bridge.config().ports[port];
                let mode = self.nodes[*n].bridge.config().mode;
                let carries = !mode.per_vlan() || config.vlans.carries(vlan);
                let state = states[*n].get(port).copied().unwrap_or_default();
                let err = self.err_disabled.contains(&(*n, *port));
                if carries && !err && (!forwarding_only || state == StpState::Forwarding) {
                    edges.push((*n, self.nodes.len() + s));
                }
            }
        }
        edges
    }

    /// True when all bridges can reach each other without this segment.
    pub fn connected_without(&self, without: usize) -> bool {
        let skipped = self.nodes.len() + without;
        let edges: Vec<_> =
            self.edges(self.vlans[0], false).into_iter().filter(|(_, segment)| *segment != skipped).collect();
        let live =
            self.segments.iter().enumerate().filter(|(s, segment)| segment.up && *s != without).count();
        self.join(&edges).0 + 1 == self.nodes.len() + live
    }

    /// Joins the vertices of the edges; returns the number of joins that changed something, and whether one
    /// closed a cycle.
    fn join(&self, edges: &[(usize, usize)]) -> (usize, bool) {
        let mut parent: Vec<usize> = (0..self.nodes.len() + self.segments.len()).collect();
        fn find(parent: &mut [usize], mut at: usize) -> usize {
            while parent[at] != at {
                parent[at] = parent[parent[at]];
                at = parent[at];
            }
            at
        }
        let (mut joins, mut cycle) = (0, false);
        for (a, b) in edges {
            let (a, b) = (find(&mut parent, *a), find(&mut parent, *b));
            if a == b {
                cycle = true;
            } else {
                parent[a] = b;
                joins += 1;
            }
        }
        (joins, cycle)
    }

    pub fn check_no_loop(&self) {
        for vlan in &self.vlans {
            let edges = self.edges(*vlan, true);
            assert!(!self.join(&edges).1, "a loop in VLAN {vlan} at {} ms", self.now);
        }
    }

    /// Checks that there is exactly one spanning tree for each VLAN: no cycle, and every connected bridge is
    /// included.
    pub fn check_tree(&self) {
        for vlan in &self.vlans {
            let (joined, cycle) = self.join(&self.edges(*vlan, true));
            let (possible, _) = self.join(&self.edges(*vlan, false));
            assert!(!cycle, "a loop in VLAN {vlan}");
            // A segment that any forwarding port reaches is served; blocked ports reach it through that port.
            assert_eq!(joined, possible, "VLAN {vlan} is not spanned\n{}", self.dump());
        }
        for node in &self.nodes {
            assert_eq!(node.bridge.unsettled_runs(), 0);
        }
    }

    pub fn dump(&self) -> String {
        let mut out = String::new();
        for node in &self.nodes {
            for tree in node.bridge.view(self.now) {
                out += &format!(
                    "{} tree {} root {} cost {} port {:?}\n",
                    node.name, tree.instance, tree.root_id, tree.root_cost, tree.root_port
                );
                for port in tree.ports {
                    let name = &node.ports[port.port.index() - 1];
                    out += &format!(
                        "   {name} {} {:?} cost {} edge {} stp {} {:?}\n",
                        port.role.name(),
                        port.state,
                        port.cost,
                        port.edge,
                        port.stp_neighbour,
                        port.inconsistent
                    );
                }
            }
        }
        out
    }
}
