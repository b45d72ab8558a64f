//! Edits a configuration by commands: the context of configuration handlers, and the application of whole
//! texts.
//!
//! Invariant: a refused line leaves the configuration unchanged. Handlers check everything first;
//! [`Edit::each_interface`] and [`Edit::each_vlan`] edit copies and store them when all edits have succeeded.

use crate::args::Names;
use crate::backend::Refusal;
use crate::commands::{self, banner::Capture};
use crate::mode::ConfigMode;
use crate::parse::{Failure, Parsed, Reader, Word, words};
use crate::section::{RefusedSection, Under, indent};
use crate::setting::{Change, Target};
use crate::tree::Run;
use crate::unsupported::{self, Place, explain, leads_to_mode};
use lanyard_config::layer3::{Track, Vrf};
use lanyard_config::{Config, Interface, InterfaceName, Vlan};
use lanyard_stp::MstRegion;
use lanyard_types::VlanId;
use std::collections::BTreeSet;

/// The context of a configuration handler.
pub struct Edit<'a> {
    /// The candidate configuration.
    pub config: &'a mut Config,
    /// The mode in which the line was entered. A handler of a line that leads to a mode sets that mode.
    pub mode: &'a mut ConfigMode,
    /// Messages to the user about a line that is accepted.
    pub notices: Vec<String>,
    /// Tells whether a netdev exists; `None` for a startup-config, which may name netdevs that do not exist
    /// yet.
    pub exists: Option<&'a dyn Names>,
}

impl Edit<'_> {
    /// Edits every interface of the mode, or none.
    ///
    /// # Errors
    /// The first refusal of `edit`.
    pub fn each_interface(
        &mut self,
        mut edit: impl FnMut(&mut Interface, &InterfaceName) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let ConfigMode::Interface { names, .. } = &*self.mode else {
            return Err("this command needs an interface mode: enter interface first".into());
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
    /// The first refusal of `edit`.
    pub fn each_vlan(
        &mut self,
        mut edit: impl FnMut(&mut Vlan, VlanId) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let ConfigMode::Vlan(set) = &*self.mode else {
            return Err("this command needs a VLAN mode: enter vlan first".into());
        };
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

impl Target for Interface {
    type Key = InterfaceName;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        edit.each_interface(change)
    }
}

impl Target for Config {
    type Key = ();
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let mut next = edit.config.clone();
        change(&mut next, &())?;
        *edit.config = next;
        Ok(())
    }
}

impl Target for Vlan {
    type Key = VlanId;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        edit.each_vlan(|settings, vlan| change(settings, &vlan))
    }
}

impl Target for Vrf {
    type Key = String;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let ConfigMode::Vrf { name, .. } = &*edit.mode else {
            return Err("this command needs a VRF mode: enter vrf definition first".into());
        };
        let mut vrf = edit.config.vrfs.get(name).cloned().unwrap_or_default();
        change(&mut vrf, name)?;
        edit.config.vrfs.insert(name.clone(), vrf);
        Ok(())
    }
}

impl Target for Track {
    type Key = u16;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let ConfigMode::Track(number) = *edit.mode else {
            return Err("this command needs a tracked object's mode: enter track first".into());
        };
        let missing = || Refusal(format!("there is no tracked object {number}"));
        let mut track = edit.config.tracks.get(&number).cloned().ok_or_else(missing)?;
        change(&mut track, &number)?;
        edit.config.tracks.insert(number, track);
        Ok(())
    }
}

impl Target for MstRegion {
    type Key = ();
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let mut region = edit.config.spanning_tree.region.clone();
        change(&mut region, &())?;
        edit.config.spanning_tree.region = region;
        Ok(())
    }
}

/// Stores an interface in the configuration; a netdev without any setting is removed from it.
pub fn put(config: &mut Config, name: InterfaceName, interface: Interface) {
    if matches!(name, InterfaceName::Netdev(_)) && interface == Interface::default() {
        config.interfaces.remove(&name);
    } else {
        config.interfaces.insert(name, interface);
    }
}

/// A refused line of a text whose other lines were applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The column of the wrong character, from 1.
    pub column: usize,
    /// The text of the line.
    pub text: String,
    /// The reason, without the leading `% `.
    pub reason: String,
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = crate::args::short(self.text.trim());
        write!(f, "line {}, column {}: {}: {text}", self.line, self.column, self.reason)
    }
}

/// The names of netdevs in a configuration.
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

/// Applies configuration text to a copy of `base`. Returns the copy with every line that was accepted, and the lines
/// that were refused. Blank lines and comments (`!`) do nothing; `end` and `exit` leave a mode. Lines under a refused
/// line are refused with it, so that they are not applied to something else; and an interface with a refused line that
/// protects the network is left shut down.
#[must_use]
pub fn apply_text(text: &str, base: &Config) -> (Config, Vec<LineError>) {
    let mut applied = Applied {
        config: base.clone(),
        mode: ConfigMode::Global,
        errors: Vec::new(),
        refused: None,
        section: None,
        banner: None,
        held: BTreeSet::new(),
    };
    for (at, line) in text.lines().enumerate() {
        applied.line(at + 1, line);
    }
    applied.finish()
}

/// True for a line of an interface that protects the network: if it is refused, the interface is left shut
/// down.
#[must_use]
pub fn protects(line: &str) -> bool {
    words(line).is_ok_and(|words| is_safety(&words))
}

/// [`protects`] of a line's words.
pub(crate) fn is_safety(words: &[Word<'_>]) -> bool {
    unsupported::is_safety(words, commands::FEATURES)
}

/// A configuration text that is being applied.
struct Applied {
    config: Config,
    mode: ConfigMode,
    errors: Vec<LineError>,
    /// The number and indentation of the last line, if it was refused.
    refused: Option<(usize, usize)>,
    /// A refused line that leads to a mode, and its number.
    section: Option<(usize, RefusedSection)>,
    /// A banner whose text continues, and the number of the line that began it.
    banner: Option<(usize, Capture)>,
    /// The interfaces that are left shut down.
    held: BTreeSet<InterfaceName>,
}

impl Applied {
    fn line(&mut self, number: usize, line: &str) {
        if let Some((first, mut capture)) = self.banner.take() {
            if capture.feed(line) {
                let result = self.finish_banner(&capture);
                self.note(first, &capture.first, result);
            } else {
                self.banner = Some((first, capture));
            }
            return;
        }
        let is_comment = line.trim_start().starts_with('!');
        let list = match words(line) {
            Ok(list) if list.is_empty() => return,
            Ok(list) => list,
            Err(_) if is_comment => return,
            Err(failure) => return self.note(number, line, Err(failure)),
        };
        if let Some(head) = self.stands_under(line, &list) {
            let text = format!("it stands under line {head}, which is refused");
            if !is_comment && head > 0 {
                self.error(number, line, &Failure::Reason(indent(line), text));
            }
            return;
        }
        if is_comment {
            return;
        }
        let result = self.run(number, line, &list);
        self.note(number, line, result);
    }

    /// The number of the refused line above this one that leads to the mode it was meant for; 0 for a line
    /// that only ends such a section.
    fn stands_under(&mut self, line: &str, words: &[Word<'_>]) -> Option<usize> {
        if let Some((head, section)) = &mut self.section {
            match section.takes(line, words) {
                Under::Inside => return Some(*head),
                Under::Ends => {
                    self.section = None;
                    return Some(0);
                }
                Under::Behind => self.section = None,
            }
        }
        self.refused.filter(|(_, of)| indent(line) > *of).map(|(head, _)| head)
    }

    fn run(&mut self, number: usize, line: &str, words: &[Word<'_>]) -> Result<(), Failure> {
        let parsed = parse_line(line, words, &self.config, &self.mode, None)?;
        if let Some(capture) = Capture::begin(line, &parsed) {
            self.banner = Some((number, capture));
            return Ok(());
        }
        run_parsed(words, &parsed, &mut self.config, &mut self.mode, None).map(|_| ())
    }

    fn finish_banner(&mut self, capture: &Capture) -> Result<(), Failure> {
        let list = words(&capture.first)?;
        let mut parsed = parse_line(&capture.first, &list, &self.config, &self.mode, None)?;
        capture.complete(&mut parsed);
        run_parsed(&list, &parsed, &mut self.config, &mut self.mode, None).map(|_| ())
    }

    /// Records the result of a line.
    fn note(&mut self, number: usize, line: &str, result: Result<(), Failure>) {
        self.refused = result.as_ref().err().map(|_| (number, indent(line)));
        let Err(mut failure) = result else { return };
        let list = words(line).unwrap_or_default();
        if leads_to_mode(&list) {
            self.mode = ConfigMode::Global;
            self.section = Some((number, RefusedSection::of(line)));
        } else if let ConfigMode::Interface { names, .. } = &self.mode
            && is_safety(&list)
        {
            self.held.extend(names.iter().cloned());
            let shut = "the interface is left shut down, because the line protects the network";
            failure = Failure::Reason(failure.at(), format!("{}; {shut}", reason(&failure)));
        }
        self.error(number, line, &failure);
    }

    fn error(&mut self, number: usize, line: &str, failure: &Failure) {
        let upto = failure.at().min(line.len());
        self.errors.push(LineError {
            line: number,
            column: line.get(..upto).map_or(0, |before| before.chars().count()) + 1,
            text: line.to_owned(),
            reason: reason(failure),
        });
    }

    fn finish(mut self) -> (Config, Vec<LineError>) {
        if let Some((number, capture)) = self.banner.take() {
            let result = self.finish_banner(&capture);
            self.note(number, &capture.first, result);
        }
        for name in std::mem::take(&mut self.held) {
            let mut interface = self.config.interfaces.get(&name).cloned().unwrap_or_default();
            interface.shutdown = true;
            put(&mut self.config, name, interface);
        }
        (self.config, self.errors)
    }
}

/// Parses one configuration line.
fn parse_line(
    line: &str,
    words: &[Word<'_>],
    config: &Config,
    mode: &ConfigMode,
    exists: Option<&dyn Names>,
) -> Result<Parsed, Failure> {
    let known = ConfigNames(config);
    let names = exists.unwrap_or(&known);
    let reader = Reader { line, words, names, privileged: true, exec: commands::TREES.exec };
    let place = if matches!(mode, ConfigMode::Interface { .. }) { Place::Interface } else { Place::Global };
    reader.parse(&commands::config_root(mode)).map_err(|failure| explain(failure, words, place))
}

/// Runs a parsed configuration line; returns its notices.
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
            ConfigMode::Vrf { name, family: Some(_) } if parsed.args.words.first() == Some(&"exit") => {
                ConfigMode::Vrf { name, family: None }
            }
            _ => ConfigMode::Global,
        };
        return Ok(Vec::new());
    }
    if let Run::Exec(_) = parsed.run {
        return Err(Failure::Reason(first, "an exec command cannot be part of a configuration".into()));
    }
    let is_own_tree = parsed.tree + 1 < commands::config_root(mode).len();
    let mut next = if is_own_tree { mode.clone() } else { ConfigMode::Global };
    let mut edit = Edit { config, mode: &mut next, notices: Vec::new(), exists };
    let result = match parsed.run {
        Run::Edit(handler) => handler(&mut edit, &parsed.args),
        Run::Set(setting) => setting.apply(&mut edit, &parsed.args),
        Run::Exec(_) => Ok(()),
    };
    result.map_err(|refusal| Failure::Reason(first, refusal.0))?;
    let notices = edit.notices;
    *mode = next;
    Ok(notices)
}

/// The reason of a failure, without its position.
fn reason(failure: &Failure) -> String {
    match failure {
        Failure::Invalid(_) => "invalid input".into(),
        other => other.message().trim_start_matches("% ").to_owned(),
    }
}
