//! `| json`, `| include RE` and the other filters after `show`.
//!
//! Invariant: an expression is compiled with a size limit before the command runs, so an invalid one has no
//! cost.

use crate::args::short;
use crate::line::{Failure, Word};
use crate::outcome::lines;
use regex_lite::{Regex, RegexBuilder};

/// The filters: name and help.
pub const FILTERS: &[(&str, &str)] = &[
    ("begin", "Begin with the line that matches"),
    ("count", "Count number of lines which match regexp"),
    ("exclude", "Exclude lines that match"),
    ("include", "Include lines that match"),
    ("json", "Print one JSON object"),
    ("section", "Filter a section of output"),
];

/// The maximum size of a compiled expression, in bytes.
const MAX_REGEX: usize = 1 << 20;

/// The filters for a command's output.
#[derive(Debug, Clone, Default)]
pub struct Pipe {
    /// True when the output is JSON.
    pub json: bool,
    filter: Option<Filter>,
}

#[derive(Debug, Clone)]
enum Filter {
    Begin(Regex),
    Count(Option<Regex>),
    Exclude(Regex),
    Include(Regex),
    Section(Regex),
}

/// The index of the word that starts the filter, if the output of the line can be filtered.
pub fn position(words: &[Word<'_>], is_exec: bool) -> Option<usize> {
    let is = |word: Option<&Word<'_>>, keyword: &str, min: usize| {
        word.is_some_and(|w| w.text.len() >= min && keyword.starts_with(&w.text.to_ascii_lowercase()))
    };
    let shows = if is_exec { is(words.first(), "show", 2) } else { is(words.first(), "show", 3) };
    let does = !is_exec && is(words.first(), "do", 2) && is(words.get(1), "show", 2);
    let from = if shows { 1 } else { 2 };
    if !shows && !does {
        return None;
    }
    words.iter().skip(from).position(|word| word.text.starts_with('|')).map(|at| at + from)
}

impl Pipe {
    /// Parses the filter whose `|` is at byte `bar` of the line. Another filter may follow `| json`.
    ///
    /// # Errors
    /// When the filter is unknown or incomplete, or its expression is invalid.
    pub fn parse(line: &str, bar: usize) -> Result<Self, Failure> {
        let rest = line.get(bar + 1..).unwrap_or("");
        let text = rest.trim_start();
        let at = bar + 1 + (rest.len() - text.len());
        let word = text.split([' ', '\t', '|']).next().unwrap_or("");
        if word.is_empty() {
            return Err(Failure::Incomplete(line.len()));
        }
        let lower = word.to_ascii_lowercase();
        let mut matching = FILTERS.iter().map(|(name, _)| *name).filter(|name| name.starts_with(&lower));
        let name = matching.next().ok_or(Failure::Invalid(at))?;
        let after = text.get(word.len()..).unwrap_or("");
        let expression = after.trim();
        let place = at + word.len() + (after.len() - after.trim_start().len());
        if name == "json" {
            return match expression.chars().next() {
                None => Ok(Self { json: true, filter: None }),
                Some('|') => Ok(Self { json: true, ..Self::parse(line, place)? }),
                Some(_) => Err(Failure::Invalid(place)),
            };
        }
        let regex = || match expression {
            "" => Err(Failure::Incomplete(line.len())),
            text => compile(text).map_err(|reason| Failure::Reason(place, reason)),
        };
        let filter = match name {
            "begin" => Filter::Begin(regex()?),
            "count" if expression.is_empty() => Filter::Count(None),
            "count" => Filter::Count(Some(regex()?)),
            "exclude" => Filter::Exclude(regex()?),
            "include" => Filter::Include(regex()?),
            _ => Filter::Section(regex()?),
        };
        Ok(Self { json: false, filter: Some(filter) })
    }

    /// Applies the filter to the output.
    #[must_use]
    pub fn filter(&self, text: String) -> String {
        let Some(filter) = &self.filter else { return text };
        let keep = |keep: &dyn Fn(&str) -> bool| text.lines().filter(|line| keep(line)).collect::<Vec<_>>();
        let kept = match filter {
            Filter::Begin(regex) => text.lines().skip_while(|line| !regex.is_match(line)).collect(),
            Filter::Exclude(regex) => keep(&|line| !regex.is_match(line)),
            Filter::Include(regex) => keep(&|line| regex.is_match(line)),
            Filter::Section(regex) => section(&text, regex),
            Filter::Count(None) => return format!("Number of lines = {}\n", text.lines().count()),
            Filter::Count(Some(regex)) => {
                let count = text.lines().filter(|line| regex.is_match(line)).count();
                return format!("Number of lines which match regexp = {count}\n");
            }
        };
        lines(&kept)
    }
}

fn compile(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text).size_limit(MAX_REGEX).nest_limit(64).build().map_err(|error| {
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or("").trim().trim_start_matches("error: ");
        format!("{} is not a regular expression: {reason}", short(text))
    })
}

/// The matching lines with all lines that are indented under them, and the head of each section with a
/// matching line.
fn section<'a>(text: &'a str, regex: &Regex) -> Vec<&'a str> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut kept = Vec::new();
    let mut head: Option<&str> = None;
    let mut inside: Option<usize> = None;
    for line in text.lines() {
        let depth = indent(line);
        if inside.is_some_and(|of| depth <= of) {
            inside = None;
        }
        if depth == 0 {
            head = Some(line);
        }
        if inside.is_none() && regex.is_match(line) {
            inside = Some(depth);
            if depth > 0 {
                kept.extend(head.take());
            }
        }
        if inside.is_some() {
            kept.push(line);
        }
    }
    kept
}
