//! Reads the links of a topology file: <https://containerlab.dev/manual/topo-def-file/>.
//!
//! Invariant: an interface is in one link at most, and both ends of a link are interfaces of nodes that exist.

use super::Reader;
use crate::names::{check_interface, guess};
use crate::topology::{Endpoint, Link, MAX_LINKS, Node};
use crate::yaml::{self, Key, Pos, Value};
use std::collections::HashMap;

impl Reader {
    /// Reads `topology.links`; `nodes` are the nodes that its endpoints may name.
    pub(super) fn links(&mut self, node: &yaml::Node, nodes: &[Node]) -> Vec<Link> {
        let field = "topology.links";
        if matches!(node.value, Value::Null) {
            return Vec::new();
        }
        let Value::List(items) = &node.value else {
            self.problem(node.pos, field, format!("`links` must be a list, this is {}", node.value.noun()));
            return Vec::new();
        };
        if items.len() > MAX_LINKS {
            let message = format!("a lab has at most {MAX_LINKS} links, this has {}", items.len());
            self.problem(node.pos, field, message);
            return Vec::new();
        }
        let mut used = HashMap::new();
        let mut links = Vec::new();
        for (index, item) in items.iter().enumerate() {
            links.extend(self.link(item, &format!("{field}[{index}]"), nodes, &mut used));
        }
        links
    }

    fn link(
        &mut self,
        node: &yaml::Node,
        field: &str,
        nodes: &[Node],
        used: &mut HashMap<Endpoint, Pos>,
    ) -> Option<Link> {
        let entries = self.map(node, field, "a link")?;
        let (mut ends, mut mtu) = (None, None);
        for (key, value) in entries {
            let path = format!("{field}.{}", key.text);
            match key.text.as_str() {
                "endpoints" => ends = Some(value),
                "mtu" => {
                    let number = self.text(value, &path)?.parse().ok();
                    mtu = number.filter(|mtu| (68..=65_535).contains(mtu));
                    if mtu.is_none() {
                        self.problem(value.pos, &path, "an `mtu` is a number from 68 to 65535");
                    }
                }
                "type" => {
                    let kind = self.text(value, &path)?;
                    if kind != "veth" {
                        let message = format!("a link of type `{kind}` is not supported; `veth` is");
                        self.problem(value.pos, &path, message);
                    }
                }
                "labels" => {}
                "vars" => self.problem(key.pos, &path, "`vars` is not supported: there is no templating"),
                other => self.unknown(key, field, other, &["endpoints", "mtu", "type"]),
            }
        }
        let Some(ends) = ends else {
            self.problem(node.pos, field, "a link without `endpoints`");
            return None;
        };
        let path = format!("{field}.endpoints");
        let items = self.list(ends, &path, "`endpoints`")?;
        let [a, b] = items else {
            self.problem(ends.pos, &path, format!("a link has 2 endpoints, this has {}", items.len()));
            return None;
        };
        // Check both ends before failing, so that the problems of both are reported.
        let a = self.endpoint(a, &format!("{path}[0]"), nodes, used);
        let b = self.endpoint(b, &format!("{path}[1]"), nodes, used);
        Some(Link { ends: [a?, b?], mtu })
    }

    fn endpoint(
        &mut self,
        node: &yaml::Node,
        field: &str,
        nodes: &[Node],
        used: &mut HashMap<Endpoint, Pos>,
    ) -> Option<Endpoint> {
        let (name, interface) = match &node.value {
            Value::Map(entries) => self.long_endpoint(node, entries, field)?,
            _ => {
                let text = self.text(node, field)?;
                let Some((name, interface)) = text.split_once(':') else {
                    self.problem(
                        node.pos,
                        field,
                        format!("`{text}` is not an endpoint: write NODE:INTERFACE"),
                    );
                    return None;
                };
                (name.to_owned(), interface.to_owned())
            }
        };
        let Some(index) = nodes.iter().position(|node| node.name == name) else {
            let message = match guess(&name, nodes.iter().map(|node| node.name.as_str())) {
                Some(guess) => format!("no node `{name}`; is it `{guess}`?"),
                None => format!("no node `{name}` in `topology.nodes`"),
            };
            self.problem(node.pos, field, message);
            return None;
        };
        if let Err(why) = check_interface(&interface, nodes[index].kind) {
            self.problem(node.pos, field, format!("`{interface}` can't be an interface's name: {why}"));
            return None;
        }
        let endpoint = Endpoint { node: index, interface };
        if let Some(first) = used.get(&endpoint) {
            let message = format!(
                "`{name}:{}` is in two links; first on line {}, column {}",
                endpoint.interface, first.line, first.column
            );
            self.problem(node.pos, field, message);
            return None;
        }
        used.insert(endpoint.clone(), node.pos);
        Some(endpoint)
    }

    /// Reads an endpoint in the long form, `{node: sw1, interface: eth1}`, which links of `type: veth` have.
    fn long_endpoint(
        &mut self,
        node: &yaml::Node,
        entries: &[(Key, yaml::Node)],
        field: &str,
    ) -> Option<(String, String)> {
        let (mut name, mut interface) = (None, None);
        for (key, value) in entries {
            let path = format!("{field}.{}", key.text);
            match key.text.as_str() {
                "node" => name = self.text(value, &path),
                "interface" => interface = self.text(value, &path),
                "mac" | "ipv4" | "ipv6" => {
                    let message = format!("`{}` is not supported: set it with `ip` in `exec`", key.text);
                    self.problem(key.pos, &path, message);
                }
                other => self.unknown(key, field, other, &["node", "interface"]),
            }
        }
        if name.is_none() || interface.is_none() {
            self.problem(node.pos, field, "an endpoint has a `node` and an `interface`");
        }
        Some((name?, interface?))
    }
}
