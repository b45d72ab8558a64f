//! The commands: one tree for each mode, composed of one file for each topic. A configuration line is an entry of its
//! mode's table ([`crate::setting`]); see docs/adding.md.

mod aaa;
mod accepted;
mod access;
mod access_list;
mod access_parts;
pub(crate) mod aggregation;
mod archive;
pub(crate) mod banner;
mod class_map;
mod discovery;
mod dot1x;
mod errdisable;
mod erspan_destination;
mod erspan_source;
mod exec;
mod files;
mod forwarding;
mod fpm;
pub(crate) mod global;
pub mod guard;
pub(crate) mod interface;
mod interface_names;
mod ip;
mod l2protocol_tunnel;
mod layer3;
pub(crate) mod line;
mod location;
mod logging;
mod mac;
mod monitor;
mod monitor_sources;
pub mod nd_inspection;
mod ntp;
mod platform;
mod policy_map;
mod port_security;
mod private_vlan;
mod qos;
pub(crate) mod radius;
mod route;
mod server;
mod session;
mod sflow;
pub(crate) mod shared;
mod show;
mod show_access;
mod show_ip;
mod show_stp;
mod snooping;
pub(crate) mod spanning_tree;
pub(crate) mod ssh;
mod storm_control;
mod system;
pub(crate) mod tacacs;
pub(crate) mod track;
pub(crate) mod vlan;
pub(crate) mod vrf;
mod vrrp;

use crate::backend::Refusal;
use crate::feature::Feature;
use crate::mode::{ConfigMode, Mode};
use crate::parse::Reader;
use crate::setting::{Branch, Line, Target};
use crate::tree::{Node, Root, Special, Token, kw};
use lanyard_config::access::CommandMode;
use std::sync::LazyLock;

/// The commands that every configuration mode has.
const COMMON: &[Node] = &[
    kw("default", "Set a command to its defaults").special(Special::Default),
    kw("do", "To run exec commands in config mode").special(Special::Do),
    kw("end", "Exit from configure mode").level(0).exec(exec::end),
    kw("exit", "Exit from the current mode").level(0).exec(exec::exit),
    kw("no", "Negate a command or set its defaults").special(Special::No),
];

/// The features of switch ports that are declared in a file each, in the order in which the running configuration prints
/// their lines.
pub const FEATURES: &[Feature] = &[storm_control::FEATURE, l2protocol_tunnel::FEATURE];

/// Lines of switch ports that files of their own declare, and that the running configuration prints before those of [`FEATURES`].
pub const PORT_LINES: &[&[Line<lanyard_config::Interface>]] = &[
    private_vlan::PORT,
    port_security::LINES,
    dot1x::PORT,
    dot1x::PORT_MORE,
    guard::PORT,
    nd_inspection::PORT,
];

/// Lines of VLAN interfaces that a file of its own declares.
pub const SVI_LINES: &[Line<lanyard_config::Interface>] = private_vlan::SVI;

/// The trees of the modes. The tree of each configuration mode also has the commands that every configuration mode has.
pub struct Trees {
    /// Exec mode, `>` and `#`.
    pub exec: &'static [Node],
    /// `(config)#`.
    pub global: &'static [Node],
    /// `(config-s-NAME)#`: the lines of `(config)#` and the commands of a configuration session.
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
    /// `(config-ext-nacl)#` and the modes of the other kinds of lists.
    pub access_list: &'static [Node],
    /// `(config-network-group)#`.
    pub network_group: &'static [Node],
    /// `(config-service-group)#`.
    pub service_group: &'static [Node],
    /// `(config-time-range)#`.
    pub time_range: &'static [Node],
    /// `(config-access-map)#`.
    pub access_map: &'static [Node],
    /// `(config-cmap)#`.
    pub class_map: &'static [Node],
    /// `(config-pmap)#`.
    pub policy_map: &'static [Node],
    /// `(config-pmap-c)#`, `(config-pmap-c-police)#`.
    pub policy_class: &'static [Node],
    /// `(config-civic)#`.
    pub civic_location: &'static [Node],
    /// `(config-line)#`.
    pub line: &'static [Node],
    /// `(conf-ssh-pubkey)#`.
    pub ssh_keys: &'static [Node],
    /// `(config-radius-server)#`.
    pub radius_server: &'static [Node],
    /// `(config-server-tacacs)#`.
    pub tacacs_server: &'static [Node],
    /// `(config-mon-erspan-src)#`.
    pub erspan_source: &'static [Node],
    /// `(config-mon-erspan-src-dst)#`.
    pub erspan_source_destination: &'static [Node],
    /// `(config-mon-erspan-dst)#`.
    pub erspan_destination: &'static [Node],
    /// `(config-mon-erspan-dst-src)#`.
    pub erspan_destination_source: &'static [Node],
}

/// The trees, made from the tables of lines at the first use.
pub static TREES: LazyLock<Trees> = LazyLock::new(|| {
    let groups = [
        global::GROUPS,
        aaa::GROUPS,
        access::GROUPS,
        aggregation::GROUPS,
        discovery::GROUPS,
        location::GROUPS,
        platform::GROUPS,
        snooping::GROUPS,
        guard::GROUPS,
        nd_inspection::GROUPS,
        dot1x::GROUPS,
        radius::GROUPS,
        tacacs::GROUPS,
        ssh::GROUPS,
        logging::GROUPS,
        ntp::GROUPS,
        monitor::GROUPS,
        sflow::GROUPS,
        qos::GROUPS,
        accepted::GROUPS,
    ]
    .concat();
    let lines = [global::BEFORE, &[accepted::LINES, global::MODES], global::AFTER].concat();
    let global = || branch(&groups, &lines);
    let own = [
        interface::GROUPS,
        layer3::GROUPS,
        spanning_tree::PORT_GROUPS,
        discovery::PORT_GROUPS,
        location::PORT_GROUPS,
        snooping::PORT_GROUPS,
        guard::PORT_GROUPS,
        nd_inspection::PORT_GROUPS,
        dot1x::PORT_GROUPS,
        aggregation::PORT_GROUPS,
        port_security::GROUPS,
        sflow::PORT_GROUPS,
        qos::PORT_GROUPS,
        private_vlan::PORT_GROUPS,
        accepted::PORT_GROUPS,
    ];
    let interface: Vec<_> =
        own.into_iter().chain(FEATURES.iter().map(|feature| feature.groups)).flatten().copied().collect();
    Trees {
        exec: with_features(exec::TREE),
        global: whole(global(), &[]),
        session: whole(global(), session::TREE),
        interface: whole(branch(&interface, &interface::LINES), &[]),
        vlan: whole(branch(&[vlan::GROUPS, private_vlan::VLAN_GROUPS].concat(), vlan::TABLES), &[]),
        mst: whole(branch(&[], &[spanning_tree::REGION]), &[]),
        vrf: whole(branch(vrf::GROUPS, &[vrf::LINES]), &[]),
        track: whole(branch(&[], &[track::LINES]), &[]),
        access_list: whole(Branch::root(), access_list::RULES),
        network_group: whole(Branch::root(), access_parts::NETWORK),
        service_group: whole(Branch::root(), access_parts::SERVICE),
        time_range: whole(Branch::root(), access_parts::TIME),
        access_map: whole(Branch::root(), access_parts::MAP),
        class_map: whole(Branch::root(), class_map::TREE),
        policy_map: whole(Branch::root(), policy_map::TREE),
        policy_class: whole(Branch::root(), policy_map::CLASS_TREE),
        civic_location: whole(Branch::root(), &location::elements()),
        line: whole(branch(line::GROUPS, &[line::LINES]), &[]),
        ssh_keys: whole(branch(&[], &[ssh::KEYS]), &[]),
        radius_server: whole(branch(radius::SERVER_GROUPS, &[radius::SERVER]), &[]),
        tacacs_server: whole(branch(tacacs::SERVER_GROUPS, &[tacacs::SERVER]), &[]),
        erspan_source: whole(Branch::root(), erspan_source::TREE),
        erspan_source_destination: whole(branch(erspan_source::GROUPS, &[erspan_source::LINES]), &[]),
        erspan_destination: whole(Branch::root(), erspan_destination::TREE),
        erspan_destination_source: whole(
            branch(erspan_destination::GROUPS, &[erspan_destination::LINES]),
            &[],
        ),
    }
});

/// The tree of exec mode, with the `show` commands of the features.
fn with_features(exec: &[Node]) -> &'static [Node] {
    let whole = |node: &Node| {
        if !matches!(node.token, Token::Word("show")) {
            return *node;
        }
        let features = FEATURES.iter().map(|feature| &feature.show);
        let mut next: Vec<Node> = node.next.iter().chain(features).copied().collect();
        next.sort_by_key(Node::label);
        Node { next: Vec::leak(next), ..*node }
    };
    Vec::leak(exec.iter().map(whole).collect())
}

/// The nodes of a mode's tables, with the help texts of keywords that do not end a line.
fn branch<T: Target>(groups: &[(&'static str, &'static str)], lines: &[&'static [Line<T>]]) -> Branch {
    let mut tree = Branch::root();
    for (words, help) in groups {
        tree.group(words, help);
    }
    lines.iter().copied().flatten().for_each(|line| line.plant(&mut tree));
    tree
}

/// Adds a mode's own nodes and the common commands to its tree.
fn whole(mut tree: Branch, own: &[Node]) -> &'static [Node] {
    own.iter().chain(COMMON).for_each(|node| tree.grow(node));
    tree.finish()
}

/// The mode for `privilege` to which a tree's commands belong.
#[must_use]
pub fn mode_of(root: &'static [Node]) -> CommandMode {
    let is = |tree: &'static [Node]| std::ptr::eq(root, tree);
    if is(TREES.exec) {
        CommandMode::Exec
    } else if is(TREES.global) || is(TREES.session) {
        CommandMode::Configure
    } else if is(TREES.interface) {
        CommandMode::Interface
    } else {
        CommandMode::Other
    }
}

/// The trees that parse a line in a mode: its own, then its parent's.
#[must_use]
pub fn root(mode: &Mode) -> Root {
    match mode {
        Mode::User | Mode::Privileged => vec![TREES.exec],
        Mode::Config { at, session: None } => config_root(at),
        Mode::Config { at, session: Some(_) } => own_tree(at).into_iter().chain([TREES.session]).collect(),
    }
}

/// The trees that parse a line in a mode of the running configuration: its own, then that of global
/// configuration.
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
        ConfigMode::AccessList(..) => Some(TREES.access_list),
        ConfigMode::NetworkGroup(_) => Some(TREES.network_group),
        ConfigMode::ServiceGroup(_) => Some(TREES.service_group),
        ConfigMode::TimeRange(_) => Some(TREES.time_range),
        ConfigMode::AccessMap(..) => Some(TREES.access_map),
        ConfigMode::ClassMap(_) => Some(TREES.class_map),
        ConfigMode::PolicyMap(_) => Some(TREES.policy_map),
        ConfigMode::PolicyClass(..) | ConfigMode::Policer(..) => Some(TREES.policy_class),
        ConfigMode::CivicLocation(_) => Some(TREES.civic_location),
        ConfigMode::Line(_) => Some(TREES.line),
        ConfigMode::SshKeys(_) => Some(TREES.ssh_keys),
        ConfigMode::RadiusServer(_) => Some(TREES.radius_server),
        ConfigMode::TacacsServer(_) => Some(TREES.tacacs_server),
        ConfigMode::ErspanSource(_) => Some(TREES.erspan_source),
        ConfigMode::ErspanSourceDestination(_) => Some(TREES.erspan_source_destination),
        ConfigMode::ErspanDestination(_) => Some(TREES.erspan_destination),
        ConfigMode::ErspanDestinationSource(_) => Some(TREES.erspan_destination_source),
    }
}

/// Called when the session's mode has refused the line of `reader`: returns the line that leads to another mode, which accepts
/// the complete line, or `do` for an exec command; `None` if no such mode is found. `in_exec` is true for a session in an exec
/// mode.
pub(crate) fn head_of(reader: &Reader<'_>, in_exec: bool) -> Option<&'static str> {
    let modes: [(&[Node], &str); 13] = [
        (if in_exec { &[] } else { TREES.exec }, "do"),
        (if in_exec { TREES.global } else { &[] }, "configure terminal"),
        (TREES.interface, "interface INTERFACE"),
        (TREES.vlan, "vlan NUMBER"),
        (TREES.line, "line vty 0 15"),
        (TREES.access_list, "ip access-list"),
        (TREES.mst, "spanning-tree mst configuration"),
        (TREES.class_map, "class-map NAME"),
        (TREES.policy_class, "policy-map NAME and class NAME"),
        (TREES.policy_map, "policy-map NAME"),
        (TREES.vrf, "vrf definition NAME"),
        (TREES.radius_server, "radius server NAME"),
        (TREES.tacacs_server, "tacacs server NAME"),
    ];
    modes.into_iter().find(|(tree, _)| reader.parse(&vec![*tree]).is_ok()).map(|(_, head)| head)
}

/// True for a command that every configuration mode has.
pub fn is_common(node: &Node) -> bool {
    COMMON.iter().any(|common| common.label() == node.label())
}

/// Returns a handler's argument. The tree allows lines without it in `no` forms only, so its absence is a
/// usage error.
fn need<T>(value: Option<T>) -> Result<T, Refusal> {
    value.ok_or_else(|| "Incomplete command.".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &str, nodes: &[Node]) {
        for node in nodes {
            let words = format!("{before} {}", node.label());
            assert!(!node.help.is_empty(), "{words} has no help text");
            check(&words, node.next);
        }
    }

    #[test]
    fn every_word_has_a_help_text() {
        let trees = &*TREES;
        check("exec:", trees.exec);
        check("configure:", trees.session);
        check("interface:", trees.interface);
        check("vlan:", trees.vlan);
        check("vrf:", trees.vrf);
        check("line:", trees.line);
        check("ssh:", trees.ssh_keys);
        check("radius:", trees.radius_server);
        check("tacacs:", trees.tacacs_server);
        check("erspan:", trees.erspan_source_destination);
        check("erspan:", trees.erspan_destination_source);
    }
}
