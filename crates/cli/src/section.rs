//! Recognizes the section of a refused line that leads to a mode: the lines after it that are meant for this mode.
//!
//! Invariant: a line that stands under a refused one never runs in another mode.

use crate::line::Word;
use crate::unsupported::leads_to_mode;

/// A refused line that leads to a mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSection {
    /// The line.
    pub line: String,
    indent: usize,
    /// Whether the lines under it are indented; `None` before the first of them.
    is_indented: Option<bool>,
}

/// How a line relates to the section of a refused line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Under {
    /// It belongs to the section.
    Inside,
    /// It ends the section, and has no other effect: `exit`, `!`.
    Ends,
    /// The section ended before this line.
    Behind,
}

/// The width of the white space at the beginning of a line.
#[must_use]
pub fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

impl RefusedSection {
    /// The section of `line`.
    #[must_use]
    pub fn of(line: &str) -> Self {
        Self { line: line.trim().to_owned(), indent: indent(line), is_indented: None }
    }
    /// Classifies the next line. If the lines of the section are indented, the section ends with the indentation. Otherwise it
    /// ends with a line that leads to another mode. `exit`, `end` and a `!` that is not indented always end it.
    pub fn takes(&mut self, line: &str, words: &[Word<'_>]) -> Under {
        let deeper = indent(line) > self.indent;
        let Some(first) = words.first().map(|word| word.text.to_ascii_lowercase()) else {
            return Under::Inside;
        };
        if first.starts_with('!') {
            return if deeper { Under::Inside } else { Under::Ends };
        }
        let is_indented = *self.is_indented.get_or_insert(deeper);
        match first.as_str() {
            "exit" => Under::Ends,
            "end" => Under::Behind,
            _ if is_indented && deeper => Under::Inside,
            _ if is_indented || leads_to_mode(words) => Under::Behind,
            _ => Under::Inside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::words;

    fn check(lines: &[(&str, Under)]) {
        let mut section = RefusedSection::of("interface nowhere0");
        for (line, want) in lines {
            assert_eq!(section.takes(line, &words(line).expect("words")), *want, "{line}");
        }
    }

    #[test]
    fn indented() {
        check(&[(" shutdown", Under::Inside), ("  mtu 1500", Under::Inside), ("hostname a", Under::Behind)]);
        check(&[(" !", Under::Inside), (" shutdown", Under::Inside), ("!", Under::Ends)]);
    }

    #[test]
    fn not_indented() {
        check(&[("shutdown", Under::Inside), ("hostname a", Under::Inside), ("vlan 10", Under::Behind)]);
        check(&[("shutdown", Under::Inside), ("exit", Under::Ends)]);
        check(&[("shutdown", Under::Inside), ("end", Under::Behind)]);
        check(&[("int eth1", Under::Behind)]);
    }
}
