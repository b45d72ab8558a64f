//! `| json`, `| include RE` and the other filters after `show`.
//!
//! Invariant: an expression is compiled with a size limit before the command runs, so an invalid one has no
//! cost.

use crate::args::short;
use crate::line::{Failure, Word};
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
        if self.filter.is_none() {
            return text;
        }
        let (mut filtering, mut out) = (self.filtering(), String::new());
        filtering.feed(&text, &mut out);
        filtering.finish(&mut out);
        out
    }

    /// Begins to filter an output that comes in parts.
    #[must_use]
    pub fn filtering(&self) -> Filtering {
        Filtering {
            filter: self.filter.clone(),
            line: String::new(),
            has_begun: false,
            count: 0,
            section: Section::default(),
        }
    }
}

/// The filter on an output that comes in parts, which need not end at line ends.
#[derive(Debug, Clone)]
pub struct Filtering {
    filter: Option<Filter>,
    /// The beginning of a line whose end is in a later part.
    line: String,
    /// True from the first line on that matches [`Filter::Begin`].
    has_begun: bool,
    /// The number of lines that [`Filter::Count`] has counted.
    count: u64,
    section: Section,
}

impl Filtering {
    /// Filters the next part of the output, and appends the lines that are kept to `out`.
    pub fn feed(&mut self, part: &str, out: &mut String) {
        if self.filter.is_none() {
            out.push_str(part);
            return;
        }
        for piece in part.split_inclusive('\n') {
            match piece.strip_suffix('\n') {
                None => self.line.push_str(piece),
                Some(line) if self.line.is_empty() => self.take(line, out),
                Some(rest) => {
                    let mut line = std::mem::take(&mut self.line);
                    line.push_str(rest);
                    self.take(&line, out);
                }
            }
        }
    }
    /// Ends the output: filters a last line without a line end, and appends the number of lines for `| count`.
    pub fn finish(&mut self, out: &mut String) {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.take(&line, out);
        }
        match &self.filter {
            Some(Filter::Count(None)) => out.push_str(&format!("Number of lines = {}\n", self.count)),
            Some(Filter::Count(Some(_))) => {
                out.push_str(&format!("Number of lines which match regexp = {}\n", self.count));
            }
            _ => {}
        }
    }
    /// Handles one line, without its end.
    fn take(&mut self, line: &str, out: &mut String) {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let keeps = match &self.filter {
            None => true,
            Some(Filter::Begin(regex)) => {
                self.has_begun = self.has_begun || regex.is_match(line);
                self.has_begun
            }
            Some(Filter::Exclude(regex)) => !regex.is_match(line),
            Some(Filter::Include(regex)) => regex.is_match(line),
            Some(Filter::Section(regex)) => self.section.takes(line, regex, out),
            Some(Filter::Count(regex)) => {
                self.count += u64::from(regex.as_ref().is_none_or(|regex| regex.is_match(line)));
                false
            }
        };
        if keeps {
            out.push_str(line);
            out.push('\n');
        }
    }
}

fn compile(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text).size_limit(MAX_REGEX).nest_limit(64).build().map_err(|error| {
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or("").trim().trim_start_matches("error: ");
        format!("{} is not a regular expression: {reason}", short(text))
    })
}

/// Chooses the matching lines with all lines that are indented under them, and the head of each section with a
/// matching line.
#[derive(Debug, Clone, Default)]
struct Section {
    /// The last line that is not indented, if it has not been printed as a head.
    head: Option<String>,
    /// The indentation of the matching line that the present line may be under.
    inside: Option<usize>,
}

impl Section {
    /// True when the line is printed. Appends the head of the line's section to `out` if it has to be printed before the line.
    fn takes(&mut self, line: &str, regex: &Regex, out: &mut String) -> bool {
        let depth = line.len() - line.trim_start().len();
        if self.inside.is_some_and(|of| depth <= of) {
            self.inside = None;
        }
        if depth == 0 {
            self.head = Some(line.to_owned());
        }
        if self.inside.is_none() && regex.is_match(line) {
            self.inside = Some(depth);
            if depth > 0
                && let Some(head) = self.head.take()
            {
                out.push_str(&head);
                out.push('\n');
            }
        }
        self.inside.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "interface eth1\n switchport\n mtu 9000\ninterface eth2\n no switchport\n\nend";

    /// The result of a filter does not depend on how the output is divided into parts.
    #[test]
    fn parts_are_filtered_like_the_whole() {
        for (filter, want) in [
            ("include eth", "interface eth1\ninterface eth2\n"),
            ("exclude i", " mtu 9000\n\nend\n"),
            ("begin eth2", "interface eth2\n no switchport\n\nend\n"),
            ("section eth1", "interface eth1\n switchport\n mtu 9000\n"),
            ("section mtu", "interface eth1\n mtu 9000\n"),
            ("count", "Number of lines = 7\n"),
            ("count switch", "Number of lines which match regexp = 2\n"),
        ] {
            let pipe = Pipe::parse(&format!("|{filter}"), 0).unwrap_or_default();
            assert_eq!(pipe.filter(TEXT.to_owned()), want, "{filter}");
            for size in 1..TEXT.len() {
                let (mut filtering, mut out) = (pipe.filtering(), String::new());
                for part in TEXT.as_bytes().chunks(size) {
                    filtering.feed(std::str::from_utf8(part).expect("ASCII"), &mut out);
                }
                filtering.finish(&mut out);
                assert_eq!(out, want, "{filter} in parts of {size}");
            }
        }
    }
}
