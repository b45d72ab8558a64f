//! `banner motd|login|exec`: text between two delimiters, over any number of lines.
//!
//! Invariant: lines between the delimiters are text; none of them is run as a command. [`Capture`] collects them, both
//! for sessions and for configuration texts.

use super::need;
use crate::args::Form;
use crate::args::{Args, Kind, Value};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::line::MAX_LINE;
use crate::parse::Parsed;
use crate::setting::Line;
use crate::tree::{Node, arg, kw};
use lanyard_config::{Banner, Config};

/// The maximum length of a banner, in bytes.
const MAX_BANNER: usize = 4000;

/// The delimiters that the running configuration uses, `^C` first, as in IOS.
const DELIMITERS: &[&str] = &["^C", "#", "@", "~", "%", "$", "&"];

/// The lines of global configuration.
pub const LINES: &[Line<Config>] = &[Line::own("", ENTRY, print)];

const ENTRY: Node = kw("banner", "Define a login banner").then(&[
    kw("exec", "Set EXEC process creation banner").no(exec).then(&[TEXT.set(exec)]),
    kw("login", "Set login banner").no(login).then(&[TEXT.set(login)]),
    kw("motd", "Set Message of the Day banner").no(motd).then(&[TEXT.set(motd)]),
]);

const TEXT: Node = arg(
    Kind::Line(MAX_LINE),
    "c banner-text c, where 'c' is a delimiting character; the text may have several lines",
);

/// The lines of the banners in the running configuration: one entry, which may have line ends, for each banner.
fn print(config: &Config) -> Vec<String> {
    config.banners.iter().map(|(banner, text)| line(*banner, text)).collect()
}

fn line(banner: Banner, text: &str) -> String {
    let delimiter = DELIMITERS.iter().find(|delimiter| !text.contains(**delimiter)).unwrap_or(&"^C");
    format!("banner {} {delimiter}{text}{delimiter}", banner.name())
}

/// The delimiter at the beginning of the text after `banner motd`: `^C`, or one character.
pub(crate) fn delimiter(text: &str) -> &str {
    match text.char_indices().nth(1) {
        _ if text.starts_with("^C") => "^C",
        Some((at, _)) => &text[..at],
        None => text,
    }
}

/// The text between the delimiters; `None` when the second one is missing.
fn between(text: &str) -> Option<&str> {
    let delimiter = delimiter(text);
    let rest = text.get(delimiter.len()..)?;
    rest.find(delimiter).map(|at| &rest[..at])
}

fn exec(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    put(edit, args, Banner::Exec)
}

fn login(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    put(edit, args, Banner::Login)
}

fn motd(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    put(edit, args, Banner::Motd)
}

fn put(edit: &mut Edit<'_>, args: &Args, banner: Banner) -> Result<(), Refusal> {
    if args.form != Form::Set {
        edit.config.banners.remove(&banner);
        return Ok(());
    }
    let (name, whole) = (banner.name(), need(args.text())?);
    let Some(text) = between(&whole) else {
        let delimiter = delimiter(&whole);
        return Err(format!(
            "the text of banner {name} has no end: enter its delimiter {delimiter} behind it"
        )
        .into());
    };
    if text.is_empty() {
        return Err(format!("the text of banner {name} is empty: enter no banner {name} to remove it").into());
    }
    if text.len() > MAX_BANNER {
        return Err(format!("banner {name} is {} bytes long: at most {MAX_BANNER}", text.len()).into());
    }
    if text.chars().any(|c| c.is_control() && !['\n', '\t'].contains(&c)) {
        return Err(format!("the text of banner {name} contains a control character").into());
    }
    if DELIMITERS.iter().all(|delimiter| text.contains(delimiter)) {
        let all = DELIMITERS.join(" ");
        return Err(format!(
            "the text of banner {name} contains every possible delimiter, {all}: leave one of them out"
        )
        .into());
    }
    edit.config.banners.insert(banner, text.to_owned());
    Ok(())
}

/// A banner whose text is being entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// The line that began the banner.
    pub first: String,
    /// The text after the keywords so far, with the first delimiter.
    text: String,
}

impl Capture {
    /// Begins a capture if the line is a banner whose text continues on the next line.
    pub fn begin(line: &str, parsed: &Parsed) -> Option<Self> {
        let is_banner = parsed.args.form == Form::Set && parsed.args.words.first() == Some(&"banner");
        let text = parsed.args.text().filter(|text| is_banner && !parsed.exec && between(text).is_none())?;
        Some(Self { first: line.to_owned(), text })
    }
    /// Adds a line; returns true when it ends the text.
    pub fn feed(&mut self, line: &str) -> bool {
        let ends = line.contains(delimiter(&self.text));
        // A text that is too long is refused when it is complete; until then its further lines are discarded.
        if self.text.len() <= MAX_BANNER || ends {
            self.text.push('\n');
            self.text.push_str(line);
        }
        ends
    }
    /// The delimiter that ends the text.
    pub fn delimiter(&self) -> &str {
        delimiter(&self.text)
    }
    /// Puts the complete text into the line that began the banner.
    pub fn complete(&self, parsed: &mut Parsed) {
        parsed.args.values = vec![Value::Text(self.text.clone())];
    }
    /// All lines of the banner.
    pub fn lines(&self) -> String {
        let rest = self.text.split_once('\n').map_or("", |(_, rest)| rest);
        format!("{}\n{rest}", self.first)
    }
}
