//! Editing a configuration by commands: the context handlers work in, and whole texts at once.
//!
//! Invariant: a refused line leaves the configuration as it was. Handlers check everything first;
//! [`Edit::each_interface`] and [`Edit::each_vlan`] edit copies and put them in when all have been taken.

use crate::args::Names;
use crate::backend::Refusal;
use crate::mode::ConfigMode;
use crate::parse::{Failure, Parsed, Reader, Word, words};
use crate::tree::Run;
use lanyard_config::{Config, Interface, InterfaceName, Vlan};
use lanyard_types::VlanId;

/// What a configuration handler works on.
pub struct Edit<'a> {
    /// The candidate.
    pub config: &'a mut Config,
    /// The mode the line was entered in; a handler sets the mode it leads to.
    pub mode: &'a mut ConfigMode,
    /// What is to be said although the line is taken.
    pub notices: Vec<String>,
    /// Asked whether a netdev exists; `None` when a startup-config may name those that are yet to come.
    pub exists: Option<&'a dyn Names>,
}

impl Edit<'_> {
    /// Edits every interface of the mode, or none.
    ///
    /// # Errors
    /// The first that `edit` refuses.
    pub fn each_interface(
        &mut self,
        mut edit: impl FnMut(&mut Interface, &InterfaceName) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let ConfigMode::Interface { names, .. } = &*self.mode else {
            return Err("this is an interface's command".into());
        };
        let mut edited = Vec::with_capacity(names.len());
        for name in names {
            let mut interface = self.config.interfaces.get(name).cloned().unwrap_or_default();
            edit(&mut interface, name)?;
            edited.push((name.clone(), interface));
        }
        for (name, interface) in edited {
            put(self.config, name, interface);
        }
        Ok(())
    }

    /// Edits every VLAN of the mode, or none.
    ///
    /// # Errors
    /// The first that `edit` refuses.
    pub fn each_vlan(
        &mut self,
        mut edit: impl FnMut(&mut Vlan, VlanId) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let ConfigMode::Vlan(set) = &*self.mode else { return Err("this is a VLAN's command".into()) };
        let mut edited = Vec::new();
        for vlan in set.iter() {
            let mut entry = self.config.vlans.get(&vlan).cloned().unwrap_or_default();
            edit(&mut entry, vlan)?;
            edited.push((vlan, entry));
        }
        self.config.vlans.extend(edited);
        Ok(())
    }
}

/// Puts an interface into the configuration; a netdev with nothing configured is no part of it.
pub fn put(config: &mut Config, name: InterfaceName, interface: Interface) {
    if matches!(name, InterfaceName::Netdev(_)) && interface == Interface::default() {
        config.interfaces.remove(&name);
    } else {
        config.interfaces.insert(name, interface);
    }
}

/// A line of a text that was refused. The others were applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// Its number, from 1.
    pub line: usize,
    /// The character that is wrong, from 1.
    pub column: usize,
    /// The line.
    pub text: String,
    /// Why, without the leading `% `.
    pub reason: String,
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = crate::args::short(self.text.trim());
        write!(f, "line {}, column {}: {}: {text}", self.line, self.column, self.reason)
    }
}

/// Names that a configuration knows.
pub struct ConfigNames<'a>(pub &'a Config);

impl Names for ConfigNames<'_> {
    fn is_netdev(&self, name: &str) -> bool {
        self.0.interfaces.contains_key(&InterfaceName::Netdev(name.to_owned()))
    }
    fn netdevs(&self) -> Vec<String> {
        let netdev =
            |name: &InterfaceName| matches!(name, InterfaceName::Netdev(_)).then(|| name.to_string());
        self.0.interfaces.keys().filter_map(netdev).collect()
    }
}

/// Applies configuration text to a copy of `base`: the copy with every line that is accepted, and the lines
/// that are not. Blank lines and comments (`!`) do nothing; `end` and `exit` lead out of a mode. What is
/// indented under a refused line is refused with it, so that it is not taken for something else's.
#[must_use]
pub fn apply_text(text: &str, base: &Config) -> (Config, Vec<LineError>) {
    let mut config = base.clone();
    let mut errors: Vec<LineError> = Vec::new();
    let mut mode = ConfigMode::Global;
    let mut refused: Option<(usize, usize)> = None;
    for (at, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if line.trim_start().starts_with('!') || line.trim().is_empty() {
            continue;
        }
        let under = refused.filter(|(_, of)| indent > *of).map(|(head, _)| head);
        let result = match under {
            Some(head) => {
                Err(Failure::Reason(indent, format!("it stands under line {head}, which is refused")))
            }
            None => apply_line(line, &mut config, &mut mode),
        };
        if under.is_none() {
            refused = result.as_ref().err().map(|_| (at + 1, indent));
        }
        if let Err(failure) = result {
            let upto = failure.at().min(line.len());
            errors.push(LineError {
                line: at + 1,
                column: line.get(..upto).map_or(0, |before| before.chars().count()) + 1,
                text: line.to_owned(),
                reason: reason(&failure),
            });
        }
    }
    (config, errors)
}

/// What leads into a mode.
const LEADS: &[&str] = &["interface", "vlan", "vrf", "track"];

/// Applies one line of configuration text. One that leads into another mode and is refused leads to global
/// configuration mode.
fn apply_line(line: &str, config: &mut Config, mode: &mut ConfigMode) -> Result<(), Failure> {
    let words = words(line)?;
    let Some(first) = words.first() else { return Ok(()) };
    let result = run_line(line, &words, config, mode, None).map(|_| ());
    let leads =
        |keyword: &str| first.text.len() >= 3 && keyword.starts_with(&first.text.to_ascii_lowercase());
    if result.is_err() && (LEADS.iter().any(|keyword| leads(keyword))) {
        *mode = ConfigMode::Global;
    }
    result
}

/// Parses and runs one configuration line; answers its notices.
///
/// # Errors
/// As a [`Failure`]; a handler's refusal points at the line's first word after `no`.
pub fn run_line(
    line: &str,
    words: &[Word<'_>],
    config: &mut Config,
    mode: &mut ConfigMode,
    exists: Option<&dyn Names>,
) -> Result<Vec<String>, Failure> {
    let parsed = {
        let known = ConfigNames(config);
        let names = exists.unwrap_or(&known);
        let reader = Reader { line, words, names, privileged: true, exec: crate::commands::EXEC };
        reader.parse(mode.root())?
    };
    run_parsed(words, &parsed, config, mode, exists)
}

/// Runs a parsed configuration line; answers its notices.
///
/// # Errors
/// The handler's refusal.
pub fn run_parsed(
    words: &[Word<'_>],
    parsed: &Parsed,
    config: &mut Config,
    mode: &mut ConfigMode,
    exists: Option<&dyn Names>,
) -> Result<Vec<String>, Failure> {
    let first = words.first().map_or(0, |word| word.at);
    let leaves = !parsed.exec && matches!(parsed.args.words.first(), Some(&"end" | &"exit"));
    if leaves {
        *mode = match std::mem::replace(mode, ConfigMode::Global) {
            ConfigMode::Vrf { name, family: Some(_) } if parsed.args.has("exit") => {
                ConfigMode::Vrf { name, family: None }
            }
            _ => ConfigMode::Global,
        };
        return Ok(Vec::new());
    }
    let Run::Edit(handler) = parsed.run else {
        return Err(Failure::Reason(first, "an exec command is no part of a configuration".into()));
    };
    let is_own_tree = parsed.tree + 1 < mode.root().len();
    let mut next = if is_own_tree { mode.clone() } else { ConfigMode::Global };
    let mut edit = Edit { config, mode: &mut next, notices: Vec::new(), exists };
    handler(&mut edit, &parsed.args).map_err(|refusal| Failure::Reason(first, refusal.0))?;
    let notices = edit.notices;
    *mode = next;
    Ok(notices)
}

/// The reason alone.
fn reason(failure: &Failure) -> String {
    match failure {
        Failure::Invalid(_) => "invalid input".into(),
        other => other.message().trim_start_matches("% ").to_owned(),
    }
}
