//! A line as words, and why it is refused before it is run.
//!
//! Invariant: bounded by [`MAX_LINE`] and [`MAX_TOKENS`]; positions in a refusal are positions in the line as
//! typed.

/// The maximum length of a line, in bytes.
pub const MAX_LINE: usize = 4096;
/// The maximum number of words in a line.
pub const MAX_TOKENS: usize = 128;
/// The text between the number and the range in the reason for a number that is out of range; [`Failure::better`] splits reasons
/// at this text.
pub(crate) const OUT_OF_RANGE: &str = " is out of range: ";

/// A word of a line and its position in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word<'a> {
    /// The text of the word.
    pub text: &'a str,
    /// The offset of its first byte in the line.
    pub at: usize,
}

/// Why a line was refused before it was run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No keyword or argument matches at this offset.
    Invalid(usize),
    /// Several keywords match the word at this offset. The text is the line up to and including the word.
    Ambiguous(usize, String),
    /// The line ends too early, at this offset.
    Incomplete(usize),
    /// The argument at this offset is invalid, for this reason.
    Reason(usize, String),
}

impl Failure {
    /// The offset of the error in the line.
    #[must_use]
    pub fn at(&self) -> usize {
        match self {
            Self::Invalid(at) | Self::Ambiguous(at, _) | Self::Incomplete(at) | Self::Reason(at, _) => *at,
        }
    }
    /// The message, without the caret line.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Invalid(_) => "% Invalid input detected at '^' marker.".into(),
            Self::Ambiguous(_, text) => format!("% Ambiguous command:  \"{text}\""),
            Self::Incomplete(_) => "% Incomplete command.".into(),
            Self::Reason(_, reason) => format!("% {reason}"),
        }
    }
    /// Returns the better of two explanations: the one further to the right, or else the more specific one.
    #[must_use]
    pub fn better(self, other: Self) -> Self {
        let rank = |f: &Self| {
            let kind = match f {
                Self::Invalid(_) => 0,
                Self::Ambiguous(..) => 1,
                Self::Incomplete(_) => 2,
                Self::Reason(..) => 3,
            };
            (f.at(), kind)
        };
        if rank(&other) == rank(&self)
            && let (Self::Reason(at, one), Self::Reason(_, two)) = (&self, &other)
            && let Some(reason) = both_ranges(one, two)
        {
            return Self::Reason(*at, reason);
        }
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// Joins two reasons that refuse the same number because it is in the range of neither of two arguments: `NUMBER is out of range:
/// RANGE, or RANGE`. `None` if the reasons are of another kind, or have the same range.
fn both_ranges(one: &str, two: &str) -> Option<String> {
    let (number, range) = two.split_once(OUT_OF_RANGE)?;
    let is_new = one.strip_prefix(number)?.strip_prefix(OUT_OF_RANGE)? != range;
    is_new.then(|| format!("{one}, or {range}"))
}

/// Splits a line into words.
///
/// # Errors
/// When the line is too long, has too many words, or contains a control character.
pub fn words(line: &str) -> Result<Vec<Word<'_>>, Failure> {
    if line.len() > MAX_LINE {
        return Err(Failure::Reason(0, format!("the line is {} bytes long: at most {MAX_LINE}", line.len())));
    }
    if let Some(at) = line.find(|c: char| c.is_control() && c != '\t') {
        return Err(Failure::Reason(at, "the line contains a control character".into()));
    }
    let mut list = Vec::new();
    let mut start = None;
    for (at, c) in line.char_indices().chain([(line.len(), ' ')]) {
        match (c.is_whitespace(), start) {
            (true, Some(from)) => {
                list.push(Word { text: &line[from..at], at: from });
                start = None;
            }
            (false, None) => start = Some(at),
            _ => {}
        }
    }
    if let Some(word) = list.get(MAX_TOKENS) {
        return Err(Failure::Reason(
            word.at,
            format!("the line has {} words: at most {MAX_TOKENS}", list.len()),
        ));
    }
    Ok(list)
}
