//! The model of a lab: nodes, and links between them. `read` makes these values from a topology file.
//!
//! Read first: <https://containerlab.dev/manual/topo-def-file/>. Invariant: a `Topology` is complete and consistent:
//! every endpoint names one of its nodes, no interface is used twice, every name is short enough for the kernel.

use std::collections::BTreeMap;

/// The maximum size of a topology file and of a startup-config, in bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// The maximum number of nodes in a lab.
pub const MAX_NODES: usize = 256;
/// The maximum number of links in a lab.
pub const MAX_LINKS: usize = 1_023;
/// The maximum length of a lab's or a node's name, in bytes: both are in the name of the namespace and of the
/// control socket's directory.
pub const MAX_NAME_BYTES: usize = 32;
/// The maximum length of a switch's `LAB-NODE` in bytes: it is the instance's name, which `lanyard run`
/// limits.
pub const MAX_INSTANCE_BYTES: usize = 40;
/// The maximum number of commands in one `exec` list, of variables in one `env`, and of labels of one node.
pub const MAX_ENTRIES: usize = 256;

/// A lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The value of the key `name`.
    pub name: String,
    /// `topology.nodes`, in the order of the file.
    pub nodes: Vec<Node>,
    /// `topology.links`, in the order of the file.
    pub links: Vec<Link>,
}

/// A node, with the fields that it inherits from `groups`, `kinds` and `defaults` filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its key in `topology.nodes`.
    pub name: String,
    /// The line of its key in the topology file, from 1.
    pub line: usize,
    /// The value of the key `kind`.
    pub kind: Kind,
    /// `startup-config`; switches only.
    pub startup_config: Option<StartupConfig>,
    /// The configuration of the FRR that runs in it: a path, relative to the topology file.
    pub frr: Option<String>,
    /// The platform file of a switch on a chip: a path, relative to the topology file.
    pub platform: Option<String>,
    /// `exec`: inherited commands first, the node's own last.
    pub exec: Vec<String>,
    /// The values of the key `env`.
    pub env: BTreeMap<String, String>,
    /// `group`: selects the node's colour in drawings.
    pub group: Option<String>,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `kind: lanyard`: a switch, with the plane that `type` names.
    Lanyard {
        /// `type`; unset means the plane of `lanyard lab up --plane`.
        plane: Option<PlaneChoice>,
    },
    /// `kind: host` or `kind: linux`: a network namespace with the kernel's own stack.
    Host,
}

impl Kind {
    /// True for a switch.
    #[must_use]
    pub fn is_switch(self) -> bool {
        matches!(self, Self::Lanyard { .. })
    }

    /// The keyword in a topology file.
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
    /// The kernel forwards.
    Ebpf,
    /// The daemon forwards.
    Soft,
    /// A virtual switch chip forwards.
    Asic,
}

impl PlaneChoice {
    /// The keyword of `lanyard run --plane`.
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

/// The source of a switch's configuration.
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

    /// The numbers of nodes and links as text: `3 switches, 8 hosts, 10 links`.
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

/// A number with its noun: `1 switch`, `2 switches`.
#[must_use]
pub fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
