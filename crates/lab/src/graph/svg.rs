//! Draws a lab as SVG: ranks from the top, ports on the edge of their node, links as curves.
//!
//! Read first: the layered method of Sugiyama, Tagawa and Toda (1981). On a tree it needs no
//! crossing reduction, and few links close a loop. Invariant: text from the file is escaped
//! everywhere.

use super::{Forest, details, groups};
use crate::topology::Topology;
use std::fmt::Write;

/// Pixels between two ports of a node.
const PORT: f64 = 54.0;
/// Pixels between neighbours of a rank.
const GAP: f64 = 22.0;
/// Pixels from a rank's top to the next one's.
const RANK: f64 = 168.0;
const MARGIN: f64 = 32.0;
const TITLE: f64 = 58.0;
/// The approximate width of a character of small text, in pixels.
const CHAR: f64 = 6.3;
/// A colour for each group: stroke and fill.
const COLOURS: [(&str, &str); 6] = [
    ("#b4690e", "#fdf0dd"),
    ("#1f6fb5", "#e2effa"),
    ("#2b7d4f", "#e2f3e9"),
    ("#8a3f9e", "#f4e6f7"),
    ("#b0323c", "#fbe5e6"),
    ("#4d5a66", "#e9edf0"),
];

struct Shape {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    details: Vec<String>,
}

impl Shape {
    fn middle(&self) -> f64 {
        self.x + self.width / 2.0
    }
}

/// An end of a link on its node's edge.
#[derive(Clone, Copy, Default)]
struct Port {
    x: f64,
    y: f64,
    below: bool,
}

/// Draws the lab.
#[must_use]
pub fn svg(topology: &Topology) -> String {
    let forest = Forest::of(topology);
    let mut shapes = shapes(topology);
    let right = place(topology, &forest, &mut shapes);
    let ports = ports(topology, &forest, &shapes);
    let legend = groups(topology);
    let bottom = shapes.iter().map(|shape| shape.y + shape.height).fold(0.0, f64::max) + 44.0;
    let legend_height = if legend.is_empty() { 0.0 } else { 26.0 };
    let title_width = (topology.name.len() * 12 + topology.summary().len() * 7 + 40) as f64;
    let width = (right + MARGIN).max(title_width + 2.0 * MARGIN);
    let height = bottom + legend_height + MARGIN / 2.0;
    let mut out = String::new();
    let _ = writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="DejaVu Sans, Verdana, sans-serif">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{MARGIN}" y="38" font-size="20" font-weight="bold" fill="#1d2733">{}<tspan dx="12" font-size="13" font-weight="normal" fill="#66727f">{}</tspan></text>"##,
        escape(&topology.name),
        escape(&topology.summary())
    );
    for (index, link) in topology.links.iter().enumerate() {
        draw_link(&mut out, topology, link, ports[index], forest.closing.contains(&index));
    }
    for (index, shape) in shapes.iter().enumerate() {
        draw_node(&mut out, topology, index, shape, &legend);
    }
    for (link, ends) in topology.links.iter().zip(&ports) {
        for (end, port) in link.ends.iter().zip(ends) {
            draw_port(&mut out, &end.interface, *port);
        }
    }
    let mut x = MARGIN;
    for (index, group) in legend.iter().enumerate() {
        let (stroke, fill) = COLOURS[index % COLOURS.len()];
        let _ = writeln!(
            out,
            r##"<rect x="{x:.1}" y="{:.1}" width="14" height="14" rx="4" fill="{fill}" stroke="{stroke}" stroke-width="1.5"/><text x="{:.1}" y="{:.1}" font-size="12" fill="#3a4550">{}</text>"##,
            bottom - 2.0,
            x + 21.0,
            bottom + 9.5,
            escape(group)
        );
        x += 21.0 + group.chars().count() as f64 * 7.6 + 24.0;
    }
    out.push_str("</svg>\n");
    out
}

/// The size of each node, without its position.
fn shapes(topology: &Topology) -> Vec<Shape> {
    let shape = |index: usize| {
        let details = details(topology, index);
        let node = &topology.nodes[index];
        let links = topology.interfaces(index).count();
        let text = details.iter().map(|line| line.chars().count()).max().unwrap_or(0) as f64 * CHAR;
        let text = text.max(node.name.chars().count() as f64 * 9.0) + 28.0;
        let ports = if node.kind.is_switch() { links as f64 * PORT } else { 0.0 };
        let height = 42.0 + 15.0 * details.len() as f64;
        Shape { x: 0.0, y: 0.0, width: text.max(ports).max(96.0), height, details }
    };
    (0..topology.nodes.len()).map(shape).collect()
}

/// Positions every node below its parent, and parents above the middle of their children. Returns
/// the right edge.
fn place(topology: &Topology, forest: &Forest, shapes: &mut [Shape]) -> f64 {
    let child = |node: usize, link: &usize| {
        let [a, b] = &topology.links[*link].ends;
        if a.node == node { b.node } else { a.node }
    };
    // Children before parents: the walk from the roots in reverse order.
    let mut order = forest.roots.clone();
    let mut next = 0;
    while let Some(&node) = order.get(next) {
        order.extend(forest.below[node].iter().map(|link| child(node, link)));
        next += 1;
    }
    let mut wide = vec![0.0_f64; shapes.len()];
    for &node in order.iter().rev() {
        let below: f64 = forest.below[node].iter().map(|link| wide[child(node, link)] + GAP).sum();
        wide[node] = shapes[node].width.max(below - GAP);
    }
    let mut left = vec![0.0_f64; shapes.len()];
    let mut right = MARGIN;
    for &root in &forest.roots {
        left[root] = right;
        right += wide[root] + 2.0 * GAP;
    }
    for &node in &order {
        let shape = &mut shapes[node];
        shape.x = left[node] + (wide[node] - shape.width) / 2.0;
        shape.y = TITLE + 20.0 + forest.rank[node] as f64 * RANK;
        let below: f64 = forest.below[node].iter().map(|link| wide[child(node, link)] + GAP).sum();
        let mut x = left[node] + (wide[node] - (below - GAP)) / 2.0;
        for link in &forest.below[node] {
            let child = child(node, link);
            left[child] = x;
            x += wide[child] + GAP;
        }
    }
    right - 2.0 * GAP
}

/// The positions of each link's two ends: on top of a node for links from above, otherwise below,
/// in the order of the nodes at the other ends.
fn ports(topology: &Topology, forest: &Forest, shapes: &[Shape]) -> Vec<[Port; 2]> {
    let mut ports = vec![[Port::default(); 2]; topology.links.len()];
    for (node, shape) in shapes.iter().enumerate() {
        for below in [false, true] {
            let mut ends: Vec<(f64, usize, usize)> = Vec::new();
            for (index, link) in topology.links.iter().enumerate() {
                for (side, end) in link.ends.iter().enumerate() {
                    let other = link.ends[1 - side].node;
                    if end.node == node && (forest.rank[other] >= forest.rank[node]) == below {
                        ends.push((shapes[other].middle(), index, side));
                    }
                }
            }
            ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let step = shape.width / ends.len().max(1) as f64;
            for (place, (_, index, side)) in ends.iter().enumerate() {
                let x = shape.x + step * (place as f64 + 0.5);
                let y = if below { shape.y + shape.height } else { shape.y };
                ports[*index][*side] = Port { x, y, below };
            }
        }
    }
    ports
}

fn draw_link(
    out: &mut String,
    topology: &Topology,
    link: &crate::topology::Link,
    ends: [Port; 2],
    closing: bool,
) {
    let [a, b] = ends;
    let bend = |port: Port| if port.below { port.y + RANK * 0.42 } else { port.y - RANK * 0.42 };
    let switches = link.ends.iter().all(|end| topology.nodes[end.node].kind.is_switch());
    let (stroke, width) = if switches { ("#1d2733", 2.6) } else { ("#8793a0", 1.6) };
    let dash = if closing { r#" stroke-dasharray="7 4""# } else { "" };
    let _ = writeln!(
        out,
        r#"<path d="M{:.1},{:.1} C{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}" fill="none" stroke="{stroke}" stroke-width="{width}"{dash}/>"#,
        a.x,
        a.y,
        a.x,
        bend(a),
        b.x,
        bend(b),
        b.x,
        b.y
    );
}

fn draw_node(out: &mut String, topology: &Topology, index: usize, shape: &Shape, legend: &[&str]) {
    let node = &topology.nodes[index];
    let group = node.group.as_deref().and_then(|group| legend.iter().position(|other| *other == group));
    let (stroke, fill, ink, corner) = match (node.kind.is_switch(), group) {
        (true, None) => ("#1d2733", "#26394d", "#ffffff", 6),
        (_, Some(group)) => {
            (COLOURS[group % COLOURS.len()].0, COLOURS[group % COLOURS.len()].1, "#1d2733", 16)
        }
        (false, None) => ("#8793a0", "#f4f6f8", "#1d2733", 16),
    };
    let Shape { x, y, width, height, details } = shape;
    let _ = writeln!(
        out,
        r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="{corner}" fill="{fill}" stroke="{stroke}" stroke-width="1.8"/>"#
    );
    let middle = shape.middle();
    let _ = writeln!(
        out,
        r#"<text x="{middle:.1}" y="{:.1}" font-size="15" font-weight="bold" text-anchor="middle" fill="{ink}">{}</text>"#,
        y + 26.0,
        escape(&node.name)
    );
    for (line, text) in details.iter().enumerate() {
        let _ = writeln!(
            out,
            r#"<text x="{middle:.1}" y="{:.1}" font-size="11" text-anchor="middle" fill="{ink}" opacity="0.8">{}</text>"#,
            y + 43.0 + 15.0 * line as f64,
            escape(text)
        );
    }
}

fn draw_port(out: &mut String, name: &str, port: Port) {
    let text = if port.below { port.y + 20.0 } else { port.y - 11.0 };
    let _ = writeln!(
        out,
        r##"<rect x="{:.1}" y="{:.1}" width="10" height="10" rx="2" fill="#ffffff" stroke="#1d2733" stroke-width="1.4"/><text x="{:.1}" y="{text:.1}" font-size="10.5" text-anchor="middle" fill="#3a4550" stroke="#ffffff" stroke-width="4" stroke-linejoin="round" paint-order="stroke">{}</text>"##,
        port.x - 5.0,
        port.y - 5.0,
        port.x,
        escape(name)
    );
}

fn escape(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            // XML 1.0 does not permit most control characters.
            c if c.is_control() => " ".to_owned(),
            c => c.to_string(),
        })
        .collect()
}
