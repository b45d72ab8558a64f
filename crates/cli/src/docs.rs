//! Generates docs/cli from the command tree, one page for each mode and each feature. `tests/docs.rs` checks that the
//! pages are up to date.

use crate::commands;
use crate::feature::Feature;
use crate::tree::{Node, Special, Token};
use std::fmt::Write;

/// A page of docs/cli.
pub struct Page {
    /// The name of the file.
    pub file: String,
    /// The text of the page.
    pub text: String,
}

const NOTICE: &str = "<!-- Made from the command tree by crates/cli/src/docs.rs. To write the page anew: -->\n\
    <!-- UPDATE_DOCS=1 cargo test -p lanyard-cli --test docs -->";

/// The maximum width of a line of prose.
const WIDTH: usize = 100;

/// The pages that are generated from the tree.
#[must_use]
pub fn pages() -> Vec<Page> {
    let is_show = |node: &&Node| matches!(node.token, Token::Word("show"));
    let trees = &commands::TREES;
    let is_feature = |node: &&Node| commands::FEATURES.iter().any(|feature| feature.name == node.label());
    let exec: Vec<&Node> = trees.exec.iter().filter(|node| !is_show(node)).collect();
    let shows = trees.exec.iter().filter(is_show).flat_map(|node| node.next);
    let shows: Vec<&Node> = shows.filter(|node| !is_feature(node)).collect();
    let interface: Vec<&Node> = trees.interface.iter().filter(|node| !is_feature(node)).collect();
    let is_global = |node: &&Node| trees.global.iter().any(|other| other.label() == node.label());
    let session: Vec<&Node> = trees.session.iter().filter(|node| !is_global(node)).collect();
    let own = |nodes: &'static [Node]| nodes.iter().collect::<Vec<_>>();
    let modes = vec![
        page("exec.md", "Exec commands", EXEC, "", &exec),
        page("show.md", "show", SHOW, "show ", &shows),
        page("configuration.md", "Global configuration", GLOBAL, "", &own(trees.global)),
        page("interface.md", "Interface configuration", INTERFACE, "", &interface),
        page("vlan.md", "VLAN configuration", VLAN, "", &own(trees.vlan)),
        page("mst.md", "MST configuration", MST, "", &own(trees.mst)),
        page("vrf.md", "VRF configuration", VRF, "", &own(trees.vrf)),
        page("track.md", "Tracked object configuration", TRACK, "", &own(trees.track)),
        page("access-list.md", "Access list configuration", ACCESS_LIST, "", &own(trees.access_list)),
        page(
            "object-group-network.md",
            "Network group configuration",
            NETWORK_GROUP,
            "",
            &own(trees.network_group),
        ),
        page(
            "object-group-service.md",
            "Service group configuration",
            SERVICE_GROUP,
            "",
            &own(trees.service_group),
        ),
        page("time-range.md", "Time range configuration", TIME_RANGE, "", &own(trees.time_range)),
        page("access-map.md", "VLAN map configuration", ACCESS_MAP, "", &own(trees.access_map)),
        page("class-map.md", "Class map configuration", CLASS_MAP, "", &own(trees.class_map)),
        page("policy-map.md", "Policy map configuration", POLICY_MAP, "", &own(trees.policy_map)),
        page(
            "policy-map-class.md",
            "Class configuration in a policy map",
            POLICY_CLASS,
            "",
            &own(trees.policy_class),
        ),
        page(
            "civic-location.md",
            "Civic location configuration",
            CIVIC_LOCATION,
            "",
            &own(trees.civic_location),
        ),
        page("line.md", "Line configuration", LINE, "", &own(trees.line)),
        page("ssh.md", "Public keys of users", SSH, "", &own(trees.ssh_keys)),
        page("radius-server.md", "RADIUS server configuration", RADIUS_SERVER, "", &own(trees.radius_server)),
        page(
            "tacacs-server.md",
            "TACACS+ server configuration",
            TACACS_SERVER,
            "",
            &own(trees.tacacs_server),
        ),
        page(
            "erspan-source.md",
            "ERSPAN source session configuration",
            ERSPAN_SOURCE,
            "",
            &own(trees.erspan_source),
        ),
        page(
            "erspan-source-destination.md",
            "Destination of an ERSPAN source session",
            ERSPAN_SOURCE_DESTINATION,
            "",
            &own(trees.erspan_source_destination),
        ),
        page(
            "erspan-destination.md",
            "ERSPAN destination session configuration",
            ERSPAN_DESTINATION,
            "",
            &own(trees.erspan_destination),
        ),
        page(
            "erspan-destination-source.md",
            "Source of an ERSPAN destination session",
            ERSPAN_DESTINATION_SOURCE,
            "",
            &own(trees.erspan_destination_source),
        ),
        page("session.md", "Configuration sessions", SESSION, "", &session),
    ];
    modes.into_iter().chain(commands::FEATURES.iter().map(feature_page)).collect()
}

const EXEC: &str = "Prompt `HOSTNAME#`; after `disable`, `HOSTNAME>`, which has only commands that change nothing. \
    `show` has [its own page](show.md).";
const CIVIC_LOCATION: &str = "Prompt `HOSTNAME(config-civic)#`; entered by `location civic-location`. \
    [discovery.md](../discovery.md) describes locations.";
const LINE: &str =
    "Prompt `HOSTNAME(config-line)#`; entered by `line`. [access.md](../access.md) describes terminal lines.";
const SSH: &str = "Prompt `HOSTNAME(config-ssh-pubkey)#`, and `HOSTNAME(config-ssh-pubkey-user)#` after `username`; entered by \
    `ip ssh pubkey-chain`. [access.md](../access.md) describes logins over SSH.";
const RADIUS_SERVER: &str = "Prompt `HOSTNAME(config-radius-server)#`; entered by `radius server NAME`. \
    [access-control.md](../access-control.md) describes access control of ports.";
const TACACS_SERVER: &str = "Prompt `HOSTNAME(config-server-tacacs)#`; entered by `tacacs server NAME`. \
    [access.md](../access.md) describes logins.";
const ERSPAN_SOURCE: &str = "Prompt `HOSTNAME(config-mon-erspan-src)#`; entered by `monitor session N type erspan-source`. \
    [edge.md](../edge.md) describes monitor sessions.";
const ERSPAN_SOURCE_DESTINATION: &str = "Prompt `HOSTNAME(config-mon-erspan-src-dst)#`; entered by `destination` in an ERSPAN source session. \
    [edge.md](../edge.md) describes monitor sessions.";
const ERSPAN_DESTINATION: &str = "Prompt `HOSTNAME(config-mon-erspan-dst)#`; entered by `monitor session N type erspan-destination`. \
    [edge.md](../edge.md) describes monitor sessions.";
const ERSPAN_DESTINATION_SOURCE: &str = "Prompt `HOSTNAME(config-mon-erspan-dst-src)#`; entered by `source` in an ERSPAN destination session. \
    [edge.md](../edge.md) describes monitor sessions.";
const SHOW: &str = "Every command here takes `| json`, `| include RE`, `| exclude RE`, `| begin RE`, `| section RE` \
    and `| count [RE]`. [json.md](json.md) describes the JSON. \
    Some features have a page of their own, which is named after their command.";
const GLOBAL: &str = "Entered by `configure terminal`; prompt `HOSTNAME(config)#`. A command takes effect when it is \
    entered, or not at all.";
const INTERFACE: &str = "Entered by `interface NAME`, `interface vlan N` or `interface range LIST`; prompts \
    `HOSTNAME(config-if)#` and `HOSTNAME(config-if-range)#`. A command for a range takes effect on every interface \
    of it or on none. A netdev becomes a port of the switch with `switchport` or any plain `switchport ...` command, \
    a routed port with `no switchport`, and an ordinary netdev again with `default switchport` or `no interface NAME`. \
    Some features have a page of their own, which is named after their command.";
const VLAN: &str = "Entered by `vlan LIST`, which creates the VLANs that do not exist yet; prompt \
    `HOSTNAME(config-vlan)#`.";
const MST: &str = "Entered by `spanning-tree mst configuration`; prompt `HOSTNAME(config-mst)#`. A change takes effect when it \
    is entered and begins every tree anew; to make several changes together, use a configuration session.";
const VRF: &str = "Entered by `vrf definition NAME`; prompts `HOSTNAME(config-vrf)#` and, after `address-family`, \
    `HOSTNAME(config-vrf-af)#`. A VRF is the network namespace of its name.";
const TRACK: &str = "Entered by `track N` with the object to track; prompt `HOSTNAME(config-track)#`.";
const ACCESS_LIST: &str = "Entered by `ip access-list standard|extended NAME`, `ipv6 access-list NAME` and `mac access-list \
    extended NAME`; prompt `HOSTNAME(config-std-nacl)#`, `(config-ext-nacl)#`, `(config-ipv6-acl)#` or \
    `(config-ext-macl)#`. [access-lists.md](../access-lists.md) has the grammar of rules.";
const NETWORK_GROUP: &str =
    "Entered by `object-group network NAME`; prompt `HOSTNAME(config-network-group)#`.";
const SERVICE_GROUP: &str =
    "Entered by `object-group service NAME`; prompt `HOSTNAME(config-service-group)#`.";
const TIME_RANGE: &str = "Entered by `time-range NAME`; prompt `HOSTNAME(config-time-range)#`.";
const ACCESS_MAP: &str =
    "Entered by `vlan access-map NAME [SEQUENCE]`; prompt `HOSTNAME(config-access-map)#`.";
const CLASS_MAP: &str = "Entered by `class-map [match-all|match-any] NAME`; prompt `HOSTNAME(config-cmap)#`. \
    [qos.md](../qos.md) describes class maps.";
const POLICY_MAP: &str = "Entered by `policy-map NAME`; prompt `HOSTNAME(config-pmap)#`. [qos.md](../qos.md) describes \
    policy maps.";
const POLICY_CLASS: &str = "Entered by `class NAME` in a policy map; prompts `HOSTNAME(config-pmap-c)#` and, after `police` \
    without an action, `HOSTNAME(config-pmap-c-police)#`. [qos.md](../qos.md) describes the actions.";
const SESSION: &str = "Entered by `configure session NAME`; prompt `HOSTNAME(config-s-NAME)#`. All configuration \
    commands work as usual and take effect together at `commit`, or never. A session is the list of the lines \
    entered in it: they are applied to the running configuration as it is at `commit`. `end` and `exit` leave it \
    pending. After `commit confirmed MINUTES` the switch rolls back automatically unless `commit` in the session, or \
    `configure confirm`, is entered within that time.";

fn page(file: &'static str, title: &str, intro: &str, prefix: &str, nodes: &[&Node]) -> Page {
    let mut text = format!("{NOTICE}\n\n# {title}\n\n{intro}\n");
    let configures = nodes.iter().any(|node| node.negatable());
    if configures {
        text.push_str("\nRows with `no` in the last column have `no` and `default` forms. For a row that begins with `no`\n");
        text.push_str("the arguments that the other rows of its keyword have may be left out.\n");
    }
    let is_common = |node: &Node| file != "configuration.md" && configures && commands::is_common(node);
    let mut sorted: Vec<&&Node> = nodes.iter().filter(|node| !is_common(node)).collect();
    sorted.sort_by_key(|node| node.label());
    for node in sorted {
        let _ = write!(text, "\n## {prefix}{}\n\n{}.\n", node.label(), node.help);
        if node.special == Special::None {
            table(node, prefix.trim_end(), configures, &mut text);
        }
    }
    Page { file: file.to_owned(), text: filled(&text) }
}

/// The page of a feature: its description, its lines under an interface, its `show` command.
fn feature_page(feature: &Feature) -> Page {
    let Feature { name, title, about, json, .. } = feature;
    let mut text = format!("{NOTICE}\n\n# {title}\n\n{about}\n");
    if feature.safety {
        text.push_str("\nAn interface for which one of these lines is refused is left shut down.\n");
    }
    let _ = write!(text, "\n## Under an interface\n");
    for node in commands::TREES.interface.iter().filter(|node| node.label() == *name) {
        table(node, "", true, &mut text);
    }
    let _ = write!(text, "\n## show {name}\n\n{}.\n", feature.show.help);
    table(&feature.show, "show", false, &mut text);
    let _ = write!(text, "\nThe JSON holds {json}\n");
    Page { file: format!("{name}.md"), text: filled(&text) }
}

/// Fills the paragraphs and list items of a page up to [`WIDTH`]; headings, tables and the notice stay as they are.
fn filled(page: &str) -> String {
    let mut out = String::new();
    let mut block: Vec<&str> = Vec::new();
    for line in page.lines().chain([""]) {
        let is_prose = !line.is_empty() && !line.starts_with(['#', '|', '<']);
        if !is_prose || line.starts_with("- ") {
            fill(&std::mem::take(&mut block), &mut out);
        }
        if is_prose {
            block.push(line.trim());
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Appends one paragraph or list item. Words inside backquotes stay together, for which a library would need a separator of ours.
fn fill(block: &[&str], out: &mut String) {
    if block.is_empty() {
        return;
    }
    let text = block.join(" ");
    let indent = if text.starts_with("- ") { "  " } else { "" };
    let mut words: Vec<String> = Vec::new();
    let mut is_code = false;
    for word in text.split(' ') {
        match words.last_mut().filter(|_| is_code) {
            Some(last) => *last = format!("{last} {word}"),
            None => words.push(word.to_owned()),
        }
        is_code ^= word.matches('`').count() % 2 == 1;
    }
    let mut width = 0;
    for (at, word) in words.iter().enumerate() {
        let length = word.chars().count();
        if at > 0 && width + 1 + length > WIDTH {
            out.push('\n');
            out.push_str(indent);
            width = indent.len();
        } else if at > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
    out.push('\n');
}

/// Appends a table of the ways in which a line through `node` can end.
fn table(node: &Node, before: &str, configures: bool, text: &mut String) {
    text.push_str(if configures {
        "\n| Command | Description | Undo |\n|---|---|---|\n"
    } else {
        "\n| Command | Description |\n|---|---|\n"
    });
    rows(node, before, configures, text);
}

/// Appends a row for each way in which a line through `node` can end.
fn rows(node: &Node, before: &str, configures: bool, text: &mut String) {
    let line = format!("{before} {}", node.label()).trim().to_owned();
    let undo = match (configures, node.set_only) {
        (false, _) => "",
        (true, true) => " |",
        (true, false) => " `no` |",
    };
    if node.run.is_some() {
        let options: String = node.options.iter().map(|option| format!(" [{}]", chain(option))).collect();
        let _ = writeln!(text, "| `{line}{options}` | {} |{undo}", node.help);
    }
    if node.no.is_some() {
        let _ = writeln!(text, "| `no {line}` | {} | |", node.help);
    }
    for next in node.next {
        rows(next, &line, configures, text);
    }
}

/// An option with its arguments.
fn chain(node: &Node) -> String {
    match node.next {
        [] => node.label(),
        [next] => format!("{} {}", node.label(), chain(next)),
        several => {
            let several: Vec<String> = several.iter().map(chain).collect();
            format!("{} {{{}}}", node.label(), several.join("\\|"))
        }
    }
}
