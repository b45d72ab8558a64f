//! Applies configuration text line by line: accepted lines take effect, refused lines are reported.
//!
//! Invariant: a line that stands under a refused one never runs in another mode, and an interface with a refused line that
//! protects the network is left shut down.

use crate::args::Names;
use crate::commands::{self, banner::Capture};
use crate::edit::{ConfigNames, Edit, MappedNames, put};
use crate::help::Helper;
use crate::line::{Failure, Word, words};
use crate::mode::ConfigMode;
use crate::parse::{Parsed, Reader};
use crate::privilege::Authority;
use crate::section::{RefusedSection, Under, indent};
use crate::sessions::LineError;
use crate::tree::Run;
use crate::unsupported::{self, Place, explain, leads_to_mode};
use lanyard_config::{Config, InterfaceName};
use std::collections::BTreeSet;

/// The refusal of a line that belongs to an exec mode.
const ONLY_EXEC: &str = "an exec command cannot be part of a configuration";

/// Applies configuration text to a copy of `base`. Returns the copy with every line that was accepted, and the lines
/// that were refused. Blank lines and comments (`!`) do nothing; `end` and `exit` leave a mode. Lines under a refused
/// line are refused with it, so that they are not applied to something else; and an interface with a refused line that
/// protects the network is left shut down.
#[must_use]
pub fn apply_text(text: &str, base: &Config) -> (Config, Vec<LineError>) {
    apply(text, base, false)
}

/// Applies a Catalyst's configuration like [`apply_text`]. Its interfaces are only those that `base` names.
pub(crate) fn apply_import(text: &str, base: &Config) -> (Config, Vec<LineError>) {
    apply(text, base, true)
}

fn apply(text: &str, base: &Config, is_import: bool) -> (Config, Vec<LineError>) {
    let mut applied = Applied {
        config: base.clone(),
        is_import,
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

/// Like [`protects`], for a line that is already split into words.
pub(crate) fn is_safety(words: &[Word<'_>]) -> bool {
    unsupported::is_safety(words, commands::FEATURES)
}

/// A configuration text that is being applied.
struct Applied {
    config: Config,
    is_import: bool,
    mode: ConfigMode,
    errors: Vec<LineError>,
    /// The number and indentation of the last line, if it was refused.
    refused: Option<(usize, usize)>,
    /// The last refused line that leads to a mode, until its section ends, and its number.
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

    /// Returns the number of the refused line under which `line` stands: a line that leads to the mode for which `line` is meant,
    /// or a line after which every line up to `line` is indented deeper. Returns 0 if `line` only ends the section of a refused
    /// line, and `None` if it stands under no refused line.
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
        let mapped = MappedNames(&self.config);
        let names = self.is_import.then_some(&mapped as &dyn Names);
        let parsed = parse_line(line, words, &self.config, &self.mode, names)
            .map_err(|failure| self.with_way_out(failure, line, words))?;
        if let Some(capture) = Capture::begin(line, &parsed) {
            self.banner = Some((number, capture));
            return Ok(());
        }
        run_parsed(words, &parsed, &mut self.config, &mut self.mode, None).map(|_| ())
    }

    /// Adds to [`Failure::Invalid`] the words that are valid in place of the invalid one, or the line that is missing before this
    /// one, if either can be determined. In an import the failure stays as it is: a Catalyst's lines are not typing errors.
    fn with_way_out(&self, failure: Failure, line: &str, words: &[Word<'_>]) -> Failure {
        let Failure::Invalid(at) = failure else { return failure };
        if self.is_import {
            return failure;
        }
        let names = ConfigNames(&self.config);
        let reader =
            Reader { line, words, names: &names, authority: Authority::full(), exec: commands::TREES.exec };
        let hint = match commands::head_of(&reader, false) {
            Some("do") => return Failure::Reason(at, ONLY_EXEC.into()),
            Some(head) => Some(format!("enter {head} before this line")),
            None => self.instead(line, at, &names),
        };
        hint.map_or(failure, |hint| Failure::Reason(at, format!("invalid input: {hint}")))
    }

    /// The hint about the words that the mode's trees accept in place of the word at `at`: [`Helper::instead`] without `% `.
    fn instead(&self, line: &str, at: usize, names: &dyn Names) -> Option<String> {
        let (before, rest) = line.split_at_checked(at)?;
        let helper = Helper {
            root: commands::config_root(&self.mode),
            names,
            authority: Authority::full(),
            is_exec: false,
            list: match self.mode {
                ConfigMode::AccessList(kind, _) => Some(kind),
                _ => None,
            },
        };
        let message = helper.instead(before, rest.split_whitespace().next()?)?;
        let message = message.trim_start_matches("% ");
        let first = message.chars().next()?;
        Some(first.to_lowercase().chain(message.chars().skip(1)).collect())
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
            self.mode = std::mem::replace(&mut self.mode, ConfigMode::Global).behind_refused(&list);
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
    let reader = Reader { line, words, names, authority: Authority::full(), exec: commands::TREES.exec };
    reader.parse(&commands::config_root(mode)).map_err(|failure| explain(failure, words, Place::of(mode)))
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
        let left = std::mem::replace(mode, ConfigMode::Global);
        if parsed.args.words.first() == Some(&"exit") {
            *mode = left.outer();
        }
        return Ok(Vec::new());
    }
    if let Run::Exec(_) = parsed.run {
        return Err(Failure::Reason(first, ONLY_EXEC.into()));
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
