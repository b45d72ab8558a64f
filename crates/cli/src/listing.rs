//! Output that may be too long to be made at once: [`Listing`] makes it part by part.
//!
//! Invariant: a part takes the switch about a millisecond, and has little more than [`PART`] bytes before the filter, however
//! long the output is. Between two parts the switch does other work, so the tables may have changed since an earlier part.

use crate::backend::Backend;
use crate::pipe::{Filtering, Pipe};
use serde::Serialize;
use std::fmt;

/// The length of a part, in bytes.
pub const PART: usize = 32 << 10;

/// The objects of a listing.
pub trait Source {
    /// Appends the next part to `out`, or nothing when there is more work to do first; false after the last part.
    fn part(&mut self, backend: &mut dyn Backend, out: &mut String) -> bool;
}

/// The output of a command, in parts.
pub struct Listing {
    /// `None` after the last part.
    source: Option<Box<dyn Source>>,
    filter: Filtering,
}

impl Listing {
    /// The unfiltered output of a source.
    pub fn new(source: impl Source + 'static) -> Self {
        Self { source: Some(Box::new(source)), filter: Pipe::default().filtering() }
    }
    /// Applies the filters of a pipe to the listing.
    #[must_use]
    pub(crate) fn filtered(self, pipe: &Pipe) -> Self {
        Self { filter: pipe.filtering(), ..self }
    }
    /// The next part of the output, which may be empty; `None` after the last one.
    pub fn next(&mut self, backend: &mut dyn Backend) -> Option<String> {
        let source = self.source.as_mut()?;
        let (mut part, mut out) = (String::new(), String::new());
        let goes_on = source.part(backend, &mut part);
        self.filter.feed(&part, &mut out);
        if !goes_on {
            self.source = None;
            self.filter.finish(&mut out);
        }
        Some(out)
    }
    /// The complete output at once; only for short listings.
    pub fn text(mut self, backend: &mut dyn Backend) -> String {
        let mut text = String::new();
        while let Some(part) = self.next(backend) {
            text.push_str(&part);
        }
        text
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").finish_non_exhaustive()
    }
}

/// A listing is equal to itself only.
impl PartialEq for Listing {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Listing {}

/// Writes a JSON object that begins with a list, element by element, in the form of `serde_json::to_string_pretty`.
#[derive(Debug, Default)]
pub(crate) struct JsonList {
    has_elements: bool,
}

impl JsonList {
    /// Appends the beginning of an object whose first key, `name`, has the list.
    pub(crate) fn begin(&self, name: &str, out: &mut String) {
        out.push_str(&format!("{{\n  \"{name}\": ["));
    }
    /// Appends an element of the list.
    pub(crate) fn element(&mut self, element: &impl Serialize, out: &mut String) {
        out.push_str(if self.has_elements { ",\n    " } else { "\n    " });
        self.has_elements = true;
        // A view consists of numbers, texts and lists, whose serialization cannot fail.
        let text = serde_json::to_string_pretty(element).unwrap_or_default();
        for (at, line) in text.lines().enumerate() {
            if at > 0 {
                out.push_str("\n    ");
            }
            out.push_str(line);
        }
    }
    /// Appends the end of the list, the keys of `rest` and the end of the object.
    pub(crate) fn end(&self, rest: &impl Serialize, out: &mut String) {
        let text = serde_json::to_string_pretty(rest).unwrap_or_default();
        out.push_str(if self.has_elements { "\n  ]," } else { "]," });
        out.push_str(text.strip_prefix('{').unwrap_or_default());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn json_has_the_form_of_a_whole_object() {
        for elements in [vec![], vec![json!({"a": [1, 2], "b": null})], vec![json!({"a": "x\ny"}); 3]] {
            let rest = json!({"total": elements.len(), "capacity": 7});
            let (mut list, mut out) = (JsonList::default(), String::new());
            list.begin("entries", &mut out);
            elements.iter().for_each(|element| list.element(element, &mut out));
            list.end(&rest, &mut out);
            #[derive(Serialize)]
            struct Whole<'a> {
                entries: &'a [Value],
                #[serde(flatten)]
                rest: &'a Value,
            }
            let whole = Whole { entries: &elements, rest: &rest };
            assert_eq!(out, serde_json::to_string_pretty(&whole).expect("JSON") + "\n");
        }
    }
}
