//! Draws a lab as a tree of text.
//!
//! Invariant: a link that closes a loop is written at its upper end only, with an arrow to the node at its
//! other end.

use super::{Forest, details};
use crate::topology::Topology;

/// The escape sequences for colours; empty without colours.
struct Style {
    switch: &'static str,
    host: &'static str,
    dim: &'static str,
    plain: &'static str,
}

const PLAIN: Style = Style { switch: "", host: "", dim: "", plain: "" };
const COLOUR: Style = Style { switch: "\x1b[1;36m", host: "\x1b[1m", dim: "\x1b[2m", plain: "\x1b[0m" };

struct Drawing<'a> {
    topology: &'a Topology,
    forest: Forest,
    style: Style,
    lines: Vec<Line>,
}

/// A line: the tree on the left, and the interfaces aligned to the right of it.
struct Line {
    tree: String,
    name: String,
    switch: bool,
    closing: bool,
    details: String,
}

/// Draws the lab; with `colour`, for a terminal.
#[must_use]
pub fn text(topology: &Topology, colour: bool) -> String {
    let style = if colour { COLOUR } else { PLAIN };
    let forest = Forest::of(topology);
    let mut drawing = Drawing { topology, forest, style, lines: Vec::new() };
    for root in drawing.forest.roots.clone() {
        drawing.line(String::new(), root, false);
        drawing.below(root);
    }
    drawing.render()
}

/// A node whose links are being written.
struct Level {
    node: usize,
    links: Vec<usize>,
    next: usize,
    prefix: String,
}

impl Drawing<'_> {
    /// Draws everything below `root`. The stack is explicit, because a lab may be a chain of any
    /// length.
    fn below(&mut self, root: usize) {
        let mut stack = vec![self.level(root, String::new())];
        while let Some(level) = stack.last_mut() {
            let Some(&link) = level.links.get(level.next) else {
                stack.pop();
                continue;
            };
            level.next += 1;
            let last = level.next == level.links.len();
            let (node, prefix) = (level.node, level.prefix.clone());
            let [a, b] = &self.topology.links[link].ends;
            let (near, far) = if a.node == node { (a, b) } else { (b, a) };
            let wide = |node: usize| {
                self.topology.interfaces(node).map(|(name, _)| name.chars().count()).max().unwrap_or(0)
            };
            let bar = "─".repeat(wide(node).saturating_sub(near.interface.chars().count()));
            let corner = if last { "└─ " } else { "├─ " };
            let tree = format!("{prefix}{corner}{} ─{bar}── {}", near.interface, far.interface);
            let closing = self.forest.closing.contains(&link);
            let far = far.node;
            self.line(tree, far, closing);
            if !closing {
                let below = format!("{prefix}{}", if last { "   " } else { "│  " });
                stack.push(self.level(far, below));
            }
        }
    }

    fn level(&self, node: usize, prefix: String) -> Level {
        let mut links = self.forest.below[node].clone();
        let rank = |node: usize| (self.forest.rank[node], node);
        let upper = |index: &usize| {
            let [a, b] = &self.topology.links[*index].ends;
            if rank(a.node) <= rank(b.node) { a.node == node } else { b.node == node }
        };
        links.extend(self.forest.closing.iter().filter(|index| upper(index)));
        links.sort_unstable();
        Level { node, links, next: 0, prefix }
    }

    fn line(&mut self, tree: String, node: usize, closing: bool) {
        let found = &self.topology.nodes[node];
        let mut details = details(self.topology, node);
        details.extend(found.group.clone());
        self.lines.push(Line {
            tree,
            name: found.name.clone(),
            switch: found.kind.is_switch(),
            closing,
            details: if closing { "(see there)".into() } else { details.join("  ") },
        });
    }

    fn render(self) -> String {
        let topology = self.topology;
        let Style { switch, host, dim, plain } = self.style;
        let mut out = format!("{host}{}{plain}  {dim}{}{plain}\n\n", topology.name, topology.summary());
        let wide = self.lines.iter().map(|line| line.tree.chars().count() + line.name.chars().count()).max();
        let wide = wide.unwrap_or(0) + 4;
        for line in &self.lines {
            let gap = if line.tree.is_empty() { "" } else { " " };
            let arrow = if line.closing { "⤴ " } else { "" };
            let colour = if line.switch { switch } else { host };
            let mark = if line.switch { "▣ " } else { "○ " };
            let used =
                [&line.tree, gap, arrow, mark, &line.name].iter().map(|text| text.chars().count()).sum();
            let space = " ".repeat((wide + 4).saturating_sub(used));
            let end =
                if line.details.is_empty() { String::new() } else { format!("{space}{}", line.details) };
            let text = format!(
                "{dim}{}{plain}{gap}{arrow}{colour}{mark}{}{plain}{dim}{end}{plain}",
                line.tree, line.name
            );
            out.push_str(text.trim_end());
            out.push('\n');
        }
        out
    }
}
