//! What a lab is: nodes, and links between them. The values that `read` makes out of a topology file.
//!
//! Read first: <https://containerlab.dev/manual/topo-def-file/>. Invariant: a `Topology` is complete and consistent:
//! every endpoint names a node of it, no interface is used twice, every name fits where the kernel will put it.

use std::collections::BTreeMap;

/// Bytes in a topology file, and in a startup-config.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// Nodes in a lab.
pub const MAX_NODES: usize = 256;
/// Links in a lab.
pub const MAX_LINKS: usize = 1_023;
/// Bytes in a lab's or a node's name: both are in the name of the namespace and of the control socket's folder.
pub const MAX_NAME_BYTES: usize = 32;
/// Bytes in `LAB-NODE` of a switch: it is its instance's name, which `lanyard run` bounds.
pub const MAX_INSTANCE_BYTES: usize = 40;
/// Commands in one `exec` list, variables in one `env`, labels of one node.
pub const MAX_ENTRIES: usize = 256;

/// A lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// `name`.
    pub name: String,
    /// `topology.nodes`, in the order of the file.
    pub nodes: Vec<Node>,
    /// `topology.links`, in the order of the file.
    pub links: Vec<Link>,
}

/// A node, with what it inherits from `groups`, `kinds` and `defaults` filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its key in `topology.nodes`.
    pub name: String,
    /// The line of that key.
    pub line: usize,
    /// `kind`.
    pub kind: Kind,
    /// `startup-config`; switches only.
    pub startup_config: Option<StartupConfig>,
    /// The configuration of the FRR that runs in it: a path, relative to the topology file.
    pub frr: Option<String>,
    /// `exec`: inherited commands first, the node's own last.
    pub exec: Vec<String>,
    /// `env`.
    pub env: BTreeMap<String, String>,
    /// `group`: what the drawing colours it by.
    pub group: Option<String>,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `kind: lanyard`: a switch, with the plane `type` asks for.
    Lanyard {
        /// `type`; unset leaves it to `lanyard lab up --plane`.
        plane: Option<PlaneChoice>,
    },
    /// `kind: host` or `kind: linux`: a network namespace with the kernel's own stack.
    Host,
}

impl Kind {
    /// Is it a switch?
    #[must_use]
    pub fn is_switch(self) -> bool {
        matches!(self, Self::Lanyard { .. })
    }

    /// The word for it in a topology file.
    #[must_use]
    pub fn word(self) -> &'static str {
        if self.is_switch() { "lanyard" } else { "host" }
    }
}

/// `lanyard run --plane`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum PlaneChoice {
    /// `ebpf` if it can be loaded, else `soft`.
    Auto,
    /// In the kernel.
    Ebpf,
    /// In the daemon.
    Soft,
    /// The virtual switch chip.
    Asic,
}

impl PlaneChoice {
    /// As `lanyard run --plane` spells it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ebpf => "ebpf",
            Self::Soft => "soft",
            Self::Asic => "asic",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Auto, Self::Ebpf, Self::Soft, Self::Asic].into_iter().find(|plane| plane.word() == word)
    }
}

/// Where a switch's configuration comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartupConfig {
    /// The text itself (in the topology file as a block of lines).
    Inline(String),
    /// A path, relative to the topology file.
    Path(String),
}

/// A link between two interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its two ends.
    pub ends: [Endpoint; 2],
    /// `mtu` in bytes, 68..=65535; unset is the kernel's 1500.
    pub mtu: Option<u32>,
}

/// An end of a link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Index into [`Topology::nodes`].
    pub node: usize,
    /// The interface's name: 1..=15 bytes.
    pub interface: String,
}

impl Topology {
    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The network namespace of a node, and the instance name of a switch: `LAB-NODE`.
    #[must_use]
    pub fn namespace(&self, node: &Node) -> String {
        format!("{}-{}", self.name, node.name)
    }

    /// The interfaces of a node, in the order of the links: own name, and the other end.
    pub fn interfaces(&self, node: usize) -> impl Iterator<Item = (&str, &Endpoint)> {
        self.links.iter().flat_map(move |link| {
            let [a, b] = &link.ends;
            let one = (a.node == node).then_some((a.interface.as_str(), b));
            let other = (b.node == node).then_some((b.interface.as_str(), a));
            one.into_iter().chain(other)
        })
    }

    /// Counted in words: `3 switches, 8 hosts, 10 links`.
    #[must_use]
    pub fn summary(&self) -> String {
        let switches = self.nodes.iter().filter(|node| node.kind.is_switch()).count();
        let parts = [
            (switches, "switch", "switches"),
            (self.nodes.len() - switches, "host", "hosts"),
            (self.links.len(), "link", "links"),
        ];
        let words: Vec<String> =
            parts.iter().filter(|(n, _, _)| *n > 0).map(|(n, one, many)| counted(*n, one, many)).collect();
        words.join(", ")
    }
}

/// `1 switch`, `2 switches`.
#[must_use]
pub fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
