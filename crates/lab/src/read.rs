//! Reads and checks a topology file in containerlab's format.
//!
//! Read first: <https://containerlab.dev/manual/nodes/>. Keys that concern containers only (images, limits,
//! management) are accepted with a note; keys that would change what the nodes do are refused; a word that
//! containerlab does not know is refused with a suggestion. All problems of a file are reported in one reading.
//! Invariant: pure and bounded: no file is opened here, and no input panics.

mod binds;
mod links;

use crate::names::{check_name, guess};
use crate::topology::{
    Kind, Link, MAX_ENTRIES, MAX_FILE_BYTES, MAX_INSTANCE_BYTES, MAX_NODES, Node, PlaneChoice, StartupConfig,
    Topology,
};
use crate::yaml::{self, Key, Pos, Value};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The maximum number of problems of a file that are shown; the others are counted.
const MAX_PROBLEMS: usize = 10;

/// A remark about the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The position in the file.
    pub pos: Pos,
    /// The field, as `topology.nodes.sw1.kind`.
    pub field: String,
    /// The text of the remark.
    pub message: String,
}

/// Why a file was refused: every problem with the line it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    origin: String,
    /// For each problem, the part of its line that is shown, and the column of the problem in that part.
    lines: Vec<(String, usize)>,
    /// The problems, in the order of the file.
    pub remarks: Vec<Remark>,
    more: usize,
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (remark, (line, shown))) in self.remarks.iter().zip(&self.lines).enumerate() {
            let Pos { line: number, column } = remark.pos;
            let width = number.to_string().len();
            let gap = if index == 0 { "" } else { "\n" };
            writeln!(f, "{gap}{}", remark.message)?;
            write!(f, "{:width$}--> {}:{number}:{column}", "", self.origin)?;
            writeln!(f, "{}{}", if remark.field.is_empty() { "" } else { "  " }, remark.field)?;
            writeln!(f, "{:width$} |\n{number} | {line}", "")?;
            write!(f, "{:width$} | {:>shown$}", "", "^")?;
        }
        if self.more > 0 {
            write!(f, "\n\nand {} more", self.more)?;
        }
        Ok(())
    }
}

/// Reads a topology file's text. `origin` is the name of the file in messages.
///
/// # Errors
/// All problems of the file.
pub fn read(text: &str, origin: &str) -> Result<(Topology, Vec<Remark>), Problems> {
    let mut reader = Reader::default();
    let topology = if text.len() > MAX_FILE_BYTES {
        let message = format!("a topology file has at most {MAX_FILE_BYTES} bytes, this has {}", text.len());
        reader.problem(Pos { line: 1, column: 1 }, "", message);
        None
    } else {
        match yaml::parse(text) {
            Ok(root) => reader.document(&root),
            Err(refused) => {
                reader.problem(refused.pos, "", refused.message);
                None
            }
        }
    };
    match topology {
        Some(topology) if reader.problems.is_empty() => Ok((topology, reader.notes)),
        _ => Err(reader.into_problems(text, origin)),
    }
}

/// The entry point for fuzzing: reads arbitrary bytes as a topology file, and draws it if it is accepted.
pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match read(&text, "fuzz") {
        Ok((topology, _)) => {
            let _ = crate::graph::text(&topology, false);
            let _ = crate::graph::svg(&topology);
            let _ = crate::graph::dot(&topology);
        }
        Err(problems) => {
            let _ = problems.to_string();
        }
    }
}

/// How Lanyard treats a key of containerlab.
enum Use {
    /// The key is read here.
    Read,
    /// The key has no meaning in namespaces; a note says so.
    Noted,
    /// Ignoring the key would be wrong; it is refused, with what to do instead.
    Refused(&'static str),
}

fn use_of(key: &str) -> Option<Use> {
    Some(match key {
        "kind" | "type" | "group" | "startup-config" | "binds" | "exec" | "env" | "labels" => Use::Read,
        "image"
        | "image-pull-policy"
        | "restart-policy"
        | "license"
        | "SANs"
        | "certificate"
        | "user"
        | "enforce-startup-config"
        | "auto-remove"
        | "runtime"
        | "mgmt_ipv4"
        | "mgmt_ipv6"
        | "mgmt-ipv4"
        | "mgmt-ipv6"
        | "cpu"
        | "cpu-set"
        | "memory"
        | "shm-size"
        | "sandbox"
        | "kernel"
        | "position"
        | "startup-delay"
        | "wait-for"
        | "healthcheck"
        | "dns"
        | "cap-add"
        | "devices"
        | "extras"
        | "aliases"
        | "credentials" => Use::Noted,
        "cmd" | "entrypoint" => Use::Refused("a node has no container to start; put commands into `exec`"),
        "ports" | "publish" => Use::Refused("a node has no management network to publish ports on"),
        "network-mode" => Use::Refused("a node always has its own network namespace"),
        "config" | "vars" => Use::Refused("there is no templating; put the text into `startup-config`"),
        "env-files" => Use::Refused("put the variables into `env`"),
        "sysctls" => Use::Refused("put `sysctl -w NAME=VALUE` into `exec`"),
        "stages" => Use::Refused("switches are ready before any `exec` runs; there are no other stages"),
        "suppress-startup-config" => Use::Refused("leave `startup-config` out instead"),
        "components" => Use::Refused("a Lanyard switch has no line cards"),
        _ => return None,
    })
}

const NODE_KEYS: [&str; 8] = ["kind", "type", "group", "startup-config", "binds", "exec", "env", "labels"];

/// A node's fields as given at one level (defaults, a kind, a group, the node).
#[derive(Default, Clone)]
struct Fields {
    kind: Option<(String, Pos, String)>,
    plane: Option<(String, Pos, String)>,
    group: Option<String>,
    startup_config: Option<(String, Pos)>,
    frr: Option<(String, Pos)>,
    platform: Option<(String, Pos)>,
    exec: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Fields {
    /// Fills in fields that `over`, the level closer to the node, does not give.
    fn under(mut self, over: &Self) -> Self {
        self.kind = over.kind.clone().or(self.kind);
        self.plane = over.plane.clone().or(self.plane);
        self.group = over.group.clone().or(self.group);
        self.frr = over.frr.clone().or(self.frr);
        self.platform = over.platform.clone().or(self.platform);
        self.startup_config = over.startup_config.clone().or(self.startup_config);
        self.exec.extend(over.exec.iter().cloned());
        self.env.extend(over.env.iter().map(|(k, v)| (k.clone(), v.clone())));
        self
    }
}

#[derive(Default)]
struct Reader {
    problems: Vec<Remark>,
    notes: Vec<Remark>,
}

impl Reader {
    fn problem(&mut self, pos: Pos, field: &str, message: impl Into<String>) {
        self.problems.push(Remark { pos, field: field.into(), message: message.into() });
    }

    fn note(&mut self, pos: Pos, field: &str, message: impl Into<String>) {
        self.notes.push(Remark { pos, field: field.into(), message: message.into() });
    }

    fn into_problems(mut self, text: &str, origin: &str) -> Problems {
        if self.problems.is_empty() {
            self.problem(Pos { line: 1, column: 1 }, "", "not a topology file");
        }
        self.problems.sort_by_key(|remark| remark.pos);
        let more = self.problems.len().saturating_sub(MAX_PROBLEMS);
        self.problems.truncate(MAX_PROBLEMS);
        let line = |remark: &Remark| {
            let line = text.lines().nth(remark.pos.line - 1).unwrap_or_default();
            // Of a long line only the part around the problem is shown.
            let skipped = remark.pos.column.saturating_sub(60);
            let shown = line.chars().skip(skipped).take(100);
            (shown.map(|c| if c.is_control() { ' ' } else { c }).collect(), remark.pos.column - skipped)
        };
        Problems {
            origin: origin.into(),
            lines: self.problems.iter().map(line).collect(),
            remarks: self.problems,
            more,
        }
    }

    fn document(&mut self, root: &yaml::Node) -> Option<Topology> {
        let start = Pos { line: 1, column: 1 };
        let entries = self.map(root, "", "a topology file")?;
        let (mut name, mut topology) = (None, None);
        for (key, node) in entries {
            match key.text.as_str() {
                "name" => name = self.name(node, "name"),
                "topology" => topology = Some(node),
                "mgmt" => self.note(key.pos, "mgmt", "`mgmt` is ignored: a lab has no management network"),
                "prefix" => {
                    self.note(key.pos, "prefix", "`prefix` is ignored: a namespace is called LAB-NODE");
                }
                "settings" | "debug" => {
                    self.note(key.pos, &key.text, format!("`{}` is ignored here", key.text));
                }
                other => self.unknown(key, "", other, &["name", "topology", "mgmt", "prefix"]),
            }
        }
        if !entries.iter().any(|(key, _)| key.text == "name") {
            self.problem(start, "name", "the lab has no `name`");
        }
        let Some(topology) = topology else {
            self.problem(start, "topology", "the lab has no `topology`");
            return None;
        };
        let (nodes, links) = self.topology(topology)?;
        let topology = Topology { name: name?, nodes, links };
        for node in topology.nodes.iter().filter(|node| node.kind.is_switch()) {
            let instance = topology.namespace(node);
            if instance.len() > MAX_INSTANCE_BYTES {
                let message = format!(
                    "the switch instance `{instance}` has {} bytes, {MAX_INSTANCE_BYTES} is the most",
                    instance.len()
                );
                self.problem(start, "name", message);
            }
        }
        Some(topology)
    }

    fn topology(&mut self, node: &yaml::Node) -> Option<(Vec<Node>, Vec<Link>)> {
        let entries = self.map(node, "topology", "`topology`")?;
        let mut defaults = Fields::default();
        let (mut kinds, mut groups) = (HashMap::new(), HashMap::new());
        let (mut nodes, mut links) = (None, None);
        for (key, value) in entries {
            match key.text.as_str() {
                "defaults" => defaults = self.fields(value, "topology.defaults"),
                "kinds" => kinds = self.named_fields(value, "topology.kinds"),
                "groups" => groups = self.named_fields(value, "topology.groups"),
                "nodes" => nodes = Some((key.pos, value)),
                "links" => links = Some(value),
                other => {
                    self.unknown(key, "topology", other, &["defaults", "kinds", "groups", "nodes", "links"]);
                }
            }
        }
        let Some((pos, nodes)) = nodes else {
            self.problem(node.pos, "topology.nodes", "the lab has no `topology.nodes`");
            return None;
        };
        let field = "topology.nodes";
        let entries = self.map(nodes, field, "`nodes`")?;
        if entries.is_empty() || entries.len() > MAX_NODES {
            let message = format!("a lab has 1 to {MAX_NODES} nodes, this has {}", entries.len());
            self.problem(pos, field, message);
            return None;
        }
        let mut built = Vec::new();
        for (key, value) in entries {
            let field = format!("topology.nodes.{}", key.text);
            if let Err(why) = check_name(&key.text) {
                self.problem(key.pos, &field, format!("`{}` can't be a node's name: {why}", key.text));
            }
            let own = if matches!(value.value, Value::Null) {
                Fields::default()
            } else {
                self.fields(value, &field)
            };
            built.push(self.node(key, own, &defaults, &kinds, &groups));
        }
        let links = links.map(|node| self.links(node, &built)).unwrap_or_default();
        Some((built, links))
    }

    /// Builds a node from its own fields and the inherited ones; a group's fields have precedence over those of a kind, these
    /// over `defaults`.
    fn node(
        &mut self,
        key: &Key,
        own: Fields,
        defaults: &Fields,
        kinds: &HashMap<String, Fields>,
        groups: &HashMap<String, Fields>,
    ) -> Node {
        let field = format!("topology.nodes.{}", key.text);
        let group = own.group.clone().or_else(|| defaults.group.clone());
        let group_fields = group.as_ref().and_then(|group| groups.get(group)).cloned().unwrap_or_default();
        let kind = [&own, &group_fields, defaults].into_iter().find_map(|fields| fields.kind.clone());
        let kind_fields = kind.as_ref().and_then(|(kind, _, _)| kinds.get(kind)).cloned().unwrap_or_default();
        let own_config = own.startup_config.clone();
        let all = defaults.clone().under(&kind_fields).under(&group_fields).under(&own);
        let kind = match kind.as_ref().map(|(kind, pos, field)| (kind.as_str(), *pos, field)) {
            Some(("lanyard", _, _)) => {
                let mut plane = None;
                if let Some((word, pos, field)) = &all.plane {
                    plane = PlaneChoice::parse(word);
                    if plane.is_none() {
                        let message =
                            format!("unknown type `{word}`: a switch is `auto`, `ebpf`, `soft` or `asic`");
                        self.problem(*pos, field, message);
                    }
                }
                Kind::Lanyard { plane }
            }
            Some(("host" | "linux", _, _)) => {
                if let Some((_, pos)) = own_config {
                    let field = format!("{field}.startup-config");
                    self.note(pos, &field, "`startup-config` is ignored: a host has none; use `exec`");
                }
                Kind::Host
            }
            Some((other, pos, field)) => {
                let message = format!("unknown kind `{other}`: a node is `lanyard`, `host` or `linux`");
                self.problem(pos, field, message);
                Kind::Host
            }
            None => {
                let message = format!("node `{}` has no `kind`, and `topology.defaults` has none", key.text);
                self.problem(key.pos, &field, message);
                Kind::Host
            }
        };
        let startup_config = all.startup_config.filter(|_| kind.is_switch()).map(|(text, pos)| {
            self.startup_config(&text.replace("__clabNodeName__", &key.text), pos, &field)
        });
        let frr = all.frr.map(|(file, _)| file.replace("__clabNodeName__", &key.text));
        let asic = matches!(kind, Kind::Lanyard { plane: Some(PlaneChoice::Asic) });
        let platform = all.platform.filter(|_| asic).map(|(file, _)| file);
        if asic && platform.is_none() {
            let message =
                "a switch with `type: asic` needs a platform: `binds: [FILE:/etc/lanyard/platform.toml]`";
            self.problem(key.pos, &field, message);
        }
        let (exec, env, group) = (all.exec, all.env, all.group);
        let (name, line) = (key.text.clone(), key.pos.line);
        Node { name, line, kind, startup_config, frr, platform, exec, env, group }
    }

    fn startup_config(&mut self, text: &str, pos: Pos, field: &str) -> StartupConfig {
        let field = format!("{field}.startup-config");
        if text.contains('\n') {
            return StartupConfig::Inline(text.into());
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            self.problem(pos, &field, "a startup-config is a path or the text itself; download it first");
        }
        if text.is_empty() {
            self.problem(pos, &field, "an empty path; leave `startup-config` out for the defaults");
        }
        StartupConfig::Path(text.into())
    }

    fn named_fields(&mut self, node: &yaml::Node, field: &str) -> HashMap<String, Fields> {
        let Some(entries) = self.map(node, field, "this") else { return HashMap::new() };
        entries
            .iter()
            .map(|(key, value)| (key.text.clone(), self.fields(value, &format!("{field}.{}", key.text))))
            .collect()
    }

    fn fields(&mut self, node: &yaml::Node, field: &str) -> Fields {
        let mut fields = Fields::default();
        let Some(entries) = self.map(node, field, "this") else { return fields };
        for (key, value) in entries {
            let path = format!("{field}.{}", key.text);
            match use_of(&key.text) {
                None => self.unknown(key, field, &key.text, &NODE_KEYS),
                Some(Use::Noted) => {
                    let message = format!("`{}` is ignored: nodes are namespaces, not containers", key.text);
                    self.note(key.pos, &path, message);
                }
                Some(Use::Refused(instead)) => {
                    self.problem(key.pos, &path, format!("`{}` is not supported: {instead}", key.text));
                }
                Some(Use::Read) => self.field(&mut fields, key, value, &path),
            }
        }
        fields
    }

    fn field(&mut self, fields: &mut Fields, key: &Key, value: &yaml::Node, path: &str) {
        match key.text.as_str() {
            "kind" => fields.kind = self.text(value, path).map(|text| (text, value.pos, path.into())),
            "type" => fields.plane = self.text(value, path).map(|text| (text, value.pos, path.into())),
            "group" => fields.group = self.text(value, path),
            "startup-config" => {
                fields.startup_config = self.text(value, path).map(|text| (text, value.pos));
            }
            "binds" => self.binds(fields, value, path),
            "exec" => fields.exec = self.exec(value, path),
            "env" => fields.env = self.env(value, path),
            // Labels are for other tools, so only their form is checked.
            _ => {
                let _ = self.map(value, path, "`labels`");
            }
        }
    }

    fn exec(&mut self, node: &yaml::Node, field: &str) -> Vec<String> {
        let Some(items) = self.list(node, field, "`exec`") else { return Vec::new() };
        let mut commands = Vec::new();
        for (index, item) in items.iter().enumerate() {
            commands.extend(self.text(item, &format!("{field}[{index}]")));
        }
        commands
    }

    fn env(&mut self, node: &yaml::Node, field: &str) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        let Some(entries) = self.map(node, field, "`env`") else { return env };
        for (key, value) in entries {
            let path = format!("{field}.{}", key.text);
            if key.text.is_empty() || key.text.contains(['=', '\0']) {
                self.problem(key.pos, &path, format!("`{}` can't be a variable's name", key.text));
            } else if matches!(value.value, Value::Null) {
                env.insert(key.text.clone(), String::new());
            } else if let Some(text) = self.text(value, &path) {
                env.insert(key.text.clone(), text);
            }
        }
        env
    }

    fn name(&mut self, node: &yaml::Node, field: &str) -> Option<String> {
        let name = self.text(node, field)?;
        if let Err(why) = check_name(&name) {
            self.problem(node.pos, field, format!("`{name}` can't be a lab's name: {why}"));
        }
        Some(name)
    }

    fn text(&mut self, node: &yaml::Node, field: &str) -> Option<String> {
        match &node.value {
            Value::Text(text) if text.contains('\0') => {
                self.problem(node.pos, field, "text with a NUL character");
                None
            }
            Value::Text(text) => Some(text.clone()),
            other => {
                self.problem(node.pos, field, format!("this must be text, it is {}", other.noun()));
                None
            }
        }
    }

    fn map<'a>(&mut self, node: &'a yaml::Node, field: &str, what: &str) -> Option<&'a [(Key, yaml::Node)]> {
        match &node.value {
            Value::Map(entries) => Some(entries),
            other => {
                let message = format!("{what} must be a mapping (`key: value`), it is {}", other.noun());
                self.problem(node.pos, field, message);
                None
            }
        }
    }

    fn list<'a>(&mut self, node: &'a yaml::Node, field: &str, what: &str) -> Option<&'a [yaml::Node]> {
        match &node.value {
            Value::List(items) if items.len() > MAX_ENTRIES => {
                let message = format!("{what} has at most {MAX_ENTRIES} entries, it has {}", items.len());
                self.problem(node.pos, field, message);
                None
            }
            Value::List(items) => Some(items),
            other => {
                self.problem(node.pos, field, format!("{what} must be a list, it is {}", other.noun()));
                None
            }
        }
    }

    fn unknown(&mut self, key: &Key, field: &str, word: &str, known: &[&str]) {
        let path = if field.is_empty() { word.to_owned() } else { format!("{field}.{word}") };
        let message = match guess(word, known.iter().copied()) {
            Some(guess) => format!("unknown key `{word}`; is it `{guess}`?"),
            None => format!("unknown key `{word}`; known here: {}", known.join(", ")),
        };
        self.problem(key.pos, &path, message);
    }
}
