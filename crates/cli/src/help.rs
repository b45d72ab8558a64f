//! `?` and TAB: the words that may follow an unfinished line.
//!
//! `sh?` lists the words that begin with `sh`; `show ?` lists the words that may follow, with help and
//! `<cr>`.

use crate::args::{Kind, Names, Take, short, take};
use crate::help_rule;
use crate::line::{Failure, Word, words};
use crate::parse::{Expected, Reader};
use crate::pipe;
use crate::privilege::Authority;
use crate::tree::{Node, Root, Token};

/// The maximum number of interface names that `?` lists.
const MAX_NAMES: usize = 64;
/// The maximum number of words that a message about an incomplete or wrong line lists.
const MAX_NEXT: usize = 8;

/// The context in which a line is typed.
pub struct Helper<'a> {
    /// The mode's trees.
    pub root: Root,
    /// The netdevs.
    pub names: &'a dyn Names,
    /// The commands that the session may enter.
    pub authority: Authority<'a>,
    /// True in exec modes.
    pub is_exec: bool,
    /// The kind of the access list in whose mode the line is typed.
    pub list: Option<lanyard_acl::Kind>,
}

/// The completions for TAB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Completion {
    /// The offset in the line from which a candidate replaces the text.
    pub start: usize,
    /// The words that may stand there.
    pub candidates: Vec<String>,
}

/// One line of help.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    /// The text that `?` shows.
    label: String,
    /// False for keywords, which come before interfaces.
    is_name: bool,
    help: String,
    /// The word that TAB inserts; `None` for arguments.
    word: Option<String>,
}

impl Item {
    fn word(word: &str, help: &str) -> Self {
        Self { label: word.into(), is_name: false, help: help.into(), word: Some(word.into()) }
    }
    fn choice((label, help): (String, &'static str)) -> Self {
        if help_rule::is_keyword(&label) { Self::word(&label, help) } else { Self::label(label, help) }
    }
    fn label(label: String, help: &str) -> Self {
        Self { label, is_name: false, help: help.into(), word: None }
    }
}

impl Helper<'_> {
    /// The lines that `?` shows.
    #[must_use]
    pub fn help(&self, line: &str) -> Vec<String> {
        let (start, items) = match self.items(line) {
            Ok(found) => found,
            Err(Failure::Ambiguous(_, text)) => return vec![format!("% Ambiguous command:  \"{text}\"")],
            Err(Failure::Reason(_, reason)) => return vec![format!("% {reason}")],
            Err(_) => return vec!["% Unrecognized command".into()],
        };
        if items.is_empty() {
            return vec!["% Unrecognized command".into()];
        }
        if start < line.len() && items.iter().all(|item| item.word.is_some()) {
            let words: Vec<&str> = items.iter().map(|item| item.label.as_str()).collect();
            return vec![words.join("  ")];
        }
        let width = items.iter().map(|item| item.label.chars().count()).max().unwrap_or(0);
        items.iter().map(|i| format!("  {:width$}  {}", i.label, i.help).trim_end().to_owned()).collect()
    }

    /// The completions of TAB.
    #[must_use]
    pub fn complete(&self, line: &str) -> Completion {
        let (start, items) = self.items(line).unwrap_or((line.len(), Vec::new()));
        Completion { start, candidates: items.into_iter().filter_map(|item| item.word).collect() }
    }

    /// The words that may follow a complete line, in the form of `?`; at most [`MAX_NEXT`].
    #[must_use]
    pub fn next_words(&self, line: &str) -> Vec<String> {
        let (_, items) = self.items(&format!("{} ", line.trim_end())).unwrap_or_default();
        let labels = items.into_iter().filter(|item| !item.is_name && item.label != "<cr>");
        few(labels.map(|item| item.label))
    }

    /// The message about what is valid after `before` in place of `word`, which is invalid there: words, or the end of the line.
    /// `None` if neither is, or if `word` is the first of its line and more than [`MAX_NEXT`] words are valid.
    #[must_use]
    pub fn instead(&self, before: &str, word: &str) -> Option<String> {
        let (_, items) = self.items(&format!("{} ", before.trim_end())).ok()?;
        let word = short(word);
        let ends = items.iter().any(|item| item.label == "<cr>");
        let labels = items.into_iter().filter(|item| !item.is_name && !["<cr>", "|"].contains(&&*item.label));
        let labels = few(labels.map(|item| item.label));
        match labels.as_slice() {
            [] => ends.then(|| format!("% The command ends before {word}.")),
            [one] => Some(format!("% Enter {one} in place of {word}.")),
            some if some.len() <= MAX_NEXT => {
                Some(format!("% Enter one of these in place of {word}: {}", some.join(", ")))
            }
            _ if before.trim().is_empty() => None,
            _ => Some(format!("% Enter ? in place of {word} to list the words that fit.")),
        }
    }

    /// True when the end of the line is within free text.
    #[must_use]
    pub fn is_in_text(&self, line: &str) -> bool {
        let Ok(words) = words(line) else { return false };
        let Some((last, complete)) = words.split_last() else { return false };
        let is_text = |expected: &Expected| {
            matches!(expected.inside, Some((Kind::Line(_), _, _)))
                || (last.text != "?"
                    && expected.nodes.iter().any(|n| matches!(n.token, Token::Arg(Kind::Line(_)))))
        };
        self.expected(line, complete).is_ok_and(|groups| groups.iter().flatten().any(is_text))
    }

    fn expected(&self, line: &str, words: &[Word<'_>]) -> Result<Vec<Vec<Expected>>, Failure> {
        let upto = words.last().map_or(0, |word| word.at + word.text.len());
        let line = line.get(..upto).unwrap_or(line);
        let (names, authority) = (self.names, self.authority);
        Reader { line, words, names, authority, exec: crate::commands::TREES.exec }.expected(&self.root)
    }

    /// The offset of the last word of the line, which is empty after a space, and the items that may stand at this offset.
    fn items(&self, line: &str) -> Result<(usize, Vec<Item>), Failure> {
        let words = words(line)?;
        if let Some(bar) = pipe::position(&words, self.is_exec) {
            return Ok(filters(line, words.get(bar).map_or(0, |word| word.at)));
        }
        let partial = words.last().filter(|_| !line.ends_with([' ', '\t']));
        let start = partial.map_or(line.len(), |word| word.at);
        let partial = partial.map_or("", |word| word.text);
        let complete = &words[..words.len() - usize::from(!partial.is_empty())];
        let shows =
            pipe::position(&[complete, &[Word { text: "|", at: 0 }]].concat(), self.is_exec).is_some();
        let texts: Vec<&str> = complete.iter().map(|word| word.text).collect();
        for group in self.expected(line, complete)? {
            let mut items = Vec::new();
            let mut ends = false;
            for expected in &group {
                if let Some((Kind::Rule(_), _, used)) = expected.inside {
                    let rule = help_rule::rule(self.list, &texts, used, partial);
                    ends = rule.complete;
                    items.extend(rule.choices.into_iter().map(Item::choice));
                    break;
                }
                if let Some((kind, help, used)) = expected.inside {
                    items.extend(inside(kind, help, used, partial, self.names));
                    if kind == Kind::Interface {
                        ends = false;
                        break;
                    }
                }
                ends |= expected.cr && partial.is_empty();
                items.extend(expected.nodes.iter().flat_map(|node| self.node(node, &texts, partial)));
            }
            items.sort();
            items.dedup_by(|a, b| a.label == b.label);
            if ends {
                if shows {
                    items.push(Item::word("|", "Output modifiers"));
                }
                items.push(Item::label("<cr>".into(), ""));
            }
            if !items.is_empty() {
                return Ok((start, items));
            }
        }
        Ok((start, Vec::new()))
    }

    /// The items of a node that fit the partial word `partial`; `before` are the complete words of the line.
    fn node(&self, node: &Node, before: &[&str], partial: &str) -> Vec<Item> {
        match node.token {
            Token::Arg(Kind::Rule(_)) => {
                let rule = help_rule::rule(self.list, before, 0, partial);
                rule.choices.into_iter().map(Item::choice).collect()
            }
            Token::Word(word) if word.starts_with(&partial.to_ascii_lowercase()) => {
                vec![Item::word(word, node.help)]
            }
            Token::Word(_) => Vec::new(),
            Token::Arg(Kind::Interface) => interfaces(node.help, partial, self.names),
            Token::Arg(Kind::InterfaceRange | Kind::InterfaceList) => {
                let names = interfaces("Network device", partial, self.names);
                names.into_iter().chain([Item::label(Kind::InterfaceRange.label(), node.help)]).collect()
            }
            Token::Arg(kind) => {
                let fits = partial.is_empty()
                    || !matches!(take(kind, &[partial], partial, self.names), Take::Mismatch);
                if fits { vec![Item::label(kind.label(), node.help)] } else { Vec::new() }
            }
        }
    }
}

/// The message about a line that ends too early, without `%`; `next` are the words that may follow.
pub(crate) fn incomplete(next: &[String]) -> String {
    match next {
        [] => "Incomplete command.".into(),
        [one] => format!("Incomplete command. Enter {one} next."),
        some => format!("Incomplete command. Enter one of these next: {}", some.join(", ")),
    }
}

/// The first [`MAX_NEXT`] of `labels`, and `...` in place of the others.
pub(crate) fn few(labels: impl Iterator<Item = String>) -> Vec<String> {
    let mut labels: Vec<String> = labels.take(MAX_NEXT + 1).collect();
    if labels.len() > MAX_NEXT {
        labels.truncate(MAX_NEXT);
        labels.push("...".into());
    }
    labels
}

fn interfaces(help: &str, partial: &str, names: &dyn Names) -> Vec<Item> {
    let mut items = Vec::new();
    if partial.is_empty() {
        items.push(Item::label(Kind::Interface.label(), help));
    }
    let fitting = names.netdevs().into_iter().filter(|name| name.starts_with(partial)).take(MAX_NAMES);
    items.extend(fitting.map(|name| Item { is_name: true, ..Item::word(&name, "Network device") }));
    if "vlan".starts_with(&partial.to_ascii_lowercase()) {
        items.push(Item::word("vlan", "VLAN interface"));
    }
    items
}

/// The items for the next word of an argument that has several words, of which `used` are complete.
fn inside(kind: Kind, help: &str, used: usize, partial: &str, names: &dyn Names) -> Vec<Item> {
    match kind {
        Kind::Interface => vec![Item::label(Kind::Vlan.label(), "VLAN ID")],
        Kind::InterfaceRange if used > 0 => interfaces("Network device", partial, names),
        kind => vec![Item::label(kind.label(), help)],
    }
}

/// The filters that may follow a `|`.
fn filters(line: &str, bar: usize) -> (usize, Vec<Item>) {
    let rest = line.get(bar + 1..).unwrap_or("");
    let text = rest.trim_start();
    let start = bar + 1 + (rest.len() - text.len());
    match text.split_once([' ', '\t']) {
        Some(_) => (line.len(), vec![Item::label("LINE".into(), "Regular Expression")]),
        None => {
            let lower = text.to_ascii_lowercase();
            let fitting = pipe::FILTERS.iter().filter(|(name, _)| name.starts_with(&lower));
            (start, fitting.map(|(name, help)| Item::word(name, help)).collect())
        }
    }
}
