//! The commands: one tree for each mode, put together from one file for each topic. A configuration line is an entry of its
//! mode's table ([`crate::setting`]); see docs/adding.md.

pub(crate) mod banner;
mod exec;
mod files;
mod forwarding;
mod fpm;
mod global;
pub(crate) mod interface;
mod ip;
mod layer3;
mod mac;
mod route;
mod session;
mod show;
mod show_ip;
mod show_storm;
mod show_stp;
mod show_tunnel;
mod spanning_tree;
mod track;
mod vlan;
mod vrf;
mod vrrp;

use crate::backend::Refusal;
use crate::mode::{ConfigMode, Mode};
use crate::setting::Branch;
use crate::tree::{Node, Root, Special, kw};
use std::sync::LazyLock;

/// What every configuration mode has.
const COMMON: &[Node] = &[
    kw("default", "Set a command to its defaults").special(Special::Default),
    kw("do", "To run exec commands in config mode").special(Special::Do),
    kw("end", "Exit from configure mode").exec(exec::end),
    kw("exit", "Exit from the current mode").exec(exec::exit),
    kw("no", "Negate a command or set its defaults").special(Special::No),
];

/// `>` and `#`.
pub const EXEC: &[Node] = exec::TREE;

/// The trees of the configuration modes, each with what every mode has.
pub struct Trees {
    /// `(config)#`.
    pub global: &'static [Node],
    /// `(config-s-NAME)#`: what `(config)#` has, and the session's own.
    pub session: &'static [Node],
    /// `(config-if)#`.
    pub interface: &'static [Node],
    /// `(config-vlan)#`.
    pub vlan: &'static [Node],
    /// `(config-mst)#`.
    pub mst: &'static [Node],
    /// `(config-vrf)#`, `(config-vrf-af)#`.
    pub vrf: &'static [Node],
    /// `(config-track)#`.
    pub track: &'static [Node],
}

/// The trees, made from the tables of lines when they are first wanted.
pub static TREES: LazyLock<Trees> = LazyLock::new(|| {
    let mut interface = Branch::root();
    for (words, help) in interface::GROUPS.iter().chain(layer3::GROUPS).chain(spanning_tree::GROUPS) {
        interface.group(words, help);
    }
    interface::LINES.iter().copied().flatten().for_each(|line| line.plant(&mut interface));
    Trees {
        global: whole(Branch::root(), &[global::TREE]),
        session: whole(Branch::root(), &[global::TREE, session::TREE]),
        interface: whole(interface, &[]),
        vlan: whole(Branch::root(), &[vlan::TREE]),
        mst: whole(Branch::root(), &[spanning_tree::REGION]),
        vrf: whole(Branch::root(), &[vrf::TREE]),
        track: whole(Branch::root(), &[track::TREE]),
    }
});

/// A mode's tree with the nodes of `lists` and what every configuration mode has.
fn whole(mut tree: Branch, lists: &[&[Node]]) -> &'static [Node] {
    lists.iter().copied().flatten().chain(COMMON).for_each(|node| tree.grow(node));
    tree.finish()
}

/// The trees that read a line in a mode: its own, then its parent's.
#[must_use]
pub fn root(mode: &Mode) -> Root {
    match mode {
        Mode::User | Mode::Privileged => vec![EXEC],
        Mode::Config { at, session: None } => config_root(at),
        Mode::Config { at, session: Some(_) } => own_tree(at).into_iter().chain([TREES.session]).collect(),
    }
}

/// The trees that read a line in a mode of the running configuration: its own, then that of global configuration.
#[must_use]
pub fn config_root(at: &ConfigMode) -> Root {
    own_tree(at).into_iter().chain([TREES.global]).collect()
}

fn own_tree(at: &ConfigMode) -> Option<&'static [Node]> {
    match at {
        ConfigMode::Global => None,
        ConfigMode::Interface { .. } => Some(TREES.interface),
        ConfigMode::Vlan(_) => Some(TREES.vlan),
        ConfigMode::Mst => Some(TREES.mst),
        ConfigMode::Vrf { .. } => Some(TREES.vrf),
        ConfigMode::Track(_) => Some(TREES.track),
    }
}

/// True for what every configuration mode has.
pub fn is_common(node: &Node) -> bool {
    COMMON.iter().any(|common| common.label() == node.label())
}

/// What a handler's argument is when the line does not have it, which the tree allows only in `no` forms.
fn need<T>(value: Option<T>) -> Result<T, Refusal> {
    value.ok_or_else(|| "Incomplete command.".into())
}
