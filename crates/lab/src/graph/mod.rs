//! Draws a lab as text, as SVG, or in Graphviz's language.
//!
//! All three show the same spanning tree, starting from the switch with the most links. A link that
//! closes a loop is drawn in addition and marked. Invariant: every drawing has every node and every
//! link once.

mod svg;
mod text;

pub use svg::svg;
pub use text::text;

use crate::topology::{StartupConfig, Topology};
use std::collections::VecDeque;
use std::fmt::Write;

/// A spanning forest of the lab.
pub(crate) struct Forest {
    /// The top node of every part.
    pub roots: Vec<usize>,
    /// The links of the tree below each node, as indices, in the order of the file.
    pub below: Vec<Vec<usize>>,
    /// The links that close a loop.
    pub closing: Vec<usize>,
    /// The distance of each node from its root.
    pub rank: Vec<usize>,
}

impl Forest {
    pub(crate) fn of(topology: &Topology) -> Self {
        let nodes = topology.nodes.len();
        let degree = |node: usize| topology.interfaces(node).count();
        let mut order: Vec<usize> = (0..nodes).collect();
        order.sort_by_key(|&node| {
            (!topology.nodes[node].kind.is_switch(), std::cmp::Reverse(degree(node)), node)
        });
        let mut forest = Self {
            roots: Vec::new(),
            below: vec![Vec::new(); nodes],
            closing: Vec::new(),
            rank: vec![0; nodes],
        };
        let (mut seen, mut used) = (vec![false; nodes], vec![false; topology.links.len()]);
        for root in order {
            if seen[root] {
                continue;
            }
            seen[root] = true;
            forest.roots.push(root);
            let mut queue = VecDeque::from([root]);
            while let Some(node) = queue.pop_front() {
                for (index, link) in topology.links.iter().enumerate() {
                    let [a, b] = &link.ends;
                    let other = if a.node == node {
                        b.node
                    } else if b.node == node {
                        a.node
                    } else {
                        continue;
                    };
                    if !seen[other] {
                        seen[other] = true;
                        used[index] = true;
                        forest.rank[other] = forest.rank[node] + 1;
                        forest.below[node].push(index);
                        queue.push_back(other);
                    }
                }
            }
        }
        forest.closing = (0..used.len()).filter(|&index| !used[index]).collect();
        forest
    }
}

/// The lines below a node's name: the path of its startup-config, `FRR`, and the addresses that its commands add.
pub(crate) fn details(topology: &Topology, node: usize) -> Vec<String> {
    let node = &topology.nodes[node];
    let mut lines = Vec::new();
    match &node.startup_config {
        Some(StartupConfig::Path(path)) => lines.push(path.clone()),
        Some(StartupConfig::Inline(_)) | None => {}
    }
    lines.extend(node.frr.iter().map(|_| "FRR".to_owned()));
    for command in &node.exec {
        let words: Vec<&str> = command.split_ascii_whitespace().collect();
        let ["ip", rest @ ..] = words.as_slice() else { continue };
        let rest = if matches!(rest.first(), Some(&"-6" | &"-4")) { &rest[1..] } else { rest };
        if let [object, "add" | "a", address, ..] = rest
            && object.starts_with('a')
            && "address".starts_with(object.trim_end_matches("r"))
        {
            lines.push(expand(address, &node.env));
        }
    }
    lines
}

/// Expands `$NAME` and `${NAME}` from the node's `env`; unknown names stay as they are.
fn expand(text: &str, env: &std::collections::BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (braced, after) = match after.strip_prefix('{') {
            Some(inner) => (true, inner),
            None => (false, after),
        };
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let (name, tail) = after.split_at(end);
        let closed = if braced { tail.strip_prefix('}') } else { Some(tail) };
        match (env.get(name), closed) {
            (Some(value), Some(tail)) => {
                out.push_str(value);
                rest = tail;
            }
            _ => {
                out.push_str(if braced { "${" } else { "$" });
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// The groups in alphabetical order; a group's index selects its colour.
pub(crate) fn groups(topology: &Topology) -> Vec<&str> {
    let mut groups: Vec<&str> = Vec::new();
    for group in topology.nodes.iter().filter_map(|node| node.group.as_deref()) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups.sort_unstable();
    groups
}

/// Draws the lab in Graphviz's language, for `dot -Tsvg` and similar programs.
#[must_use]
pub fn dot(topology: &Topology) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut out = format!("graph {} {{\n", quoted(&topology.name));
    out.push_str("  node [fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=9];\n");
    for (index, node) in topology.nodes.iter().enumerate() {
        let label = std::iter::once(node.name.clone()).chain(details(topology, index)).collect::<Vec<_>>();
        let label = quoted(&label.join("\n")).replace('\n', "\\n");
        let shape =
            if node.kind.is_switch() { "box, style=\"filled\", fillcolor=\"#dbe7f5\"" } else { "ellipse" };
        let _ = writeln!(out, "  {} [label={label}, shape={shape}];", quoted(&node.name));
    }
    for link in &topology.links {
        let [a, b] = &link.ends;
        let (from, to) = (&topology.nodes[a.node].name, &topology.nodes[b.node].name);
        let _ = writeln!(
            out,
            "  {} -- {} [taillabel={}, headlabel={}];",
            quoted(from),
            quoted(to),
            quoted(&a.interface),
            quoted(&b.interface)
        );
    }
    out.push_str("}\n");
    out
}
