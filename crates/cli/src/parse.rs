//! From a line to the handler it runs: words, abbreviations, backtracking, and IOS's error messages.
//!
//! Invariant: bounded by [`MAX_LINE`] and [`MAX_TOKENS`]; the words of a refusal point into the line as typed.

use crate::args::{Args, Kind, Names, Take, Value, short, take};
use crate::tree::{Node, Root, Run, Special, Token};

/// Longest line, in bytes.
pub const MAX_LINE: usize = 4096;
/// Most words in a line.
pub const MAX_TOKENS: usize = 128;

/// How a configuration command is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Plain.
    Set,
    /// `no ...`.
    No,
    /// `default ...`.
    Default,
}

/// A word of a line and where it stands, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word<'a> {
    /// Its text.
    pub text: &'a str,
    /// Its first byte's place in the line.
    pub at: usize,
}

/// Why a line was refused before anything ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No such word here: its place in bytes.
    Invalid(usize),
    /// Several keywords begin like this: the place, and the line up to it.
    Ambiguous(usize, String),
    /// More is needed.
    Incomplete(usize),
    /// An argument is wrong: its place and why.
    Reason(usize, String),
}

impl Failure {
    /// Where the line is wrong, in bytes.
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
    /// The better explanation of two: the one that got further, then the one that says more.
    fn better(self, other: Self) -> Self {
        let rank = |f: &Self| {
            let kind = match f {
                Self::Invalid(_) => 0,
                Self::Ambiguous(..) => 1,
                Self::Incomplete(_) => 2,
                Self::Reason(..) => 3,
            };
            (f.at(), kind)
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// A line that the tree accepts.
pub struct Parsed {
    /// What it runs.
    pub run: Run,
    /// With what.
    pub args: Args,
    /// Which of the root's trees it was read by.
    pub tree: usize,
    /// True after `do`.
    pub exec: bool,
}

/// Splits a line into words.
///
/// # Errors
/// When the line is too long, has too many words, or holds a control character.
pub fn words(line: &str) -> Result<Vec<Word<'_>>, Failure> {
    if line.len() > MAX_LINE {
        return Err(Failure::Reason(0, format!("the line is {} bytes long: at most {MAX_LINE}", line.len())));
    }
    if let Some(at) = line.find(|c: char| c.is_control() && c != '\t') {
        return Err(Failure::Reason(at, "the line holds a control character".into()));
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

/// Options still open: which, which are used, and what the line runs when it ends among them.
#[derive(Clone, Copy)]
struct Open {
    options: &'static [Node],
    used: u64,
    run: Option<Run>,
}

/// What has been read so far.
#[derive(Clone)]
struct State {
    form: Form,
    words: Vec<&'static str>,
    values: Vec<Value>,
    open: Option<Open>,
    /// Where the last node stood, to know what may end the line.
    end: Option<Run>,
    exec: bool,
    root: &'static [Node],
}

/// A line being read: the words, and what can be known about names.
pub struct Reader<'a> {
    /// The line.
    pub line: &'a str,
    /// Its words.
    pub words: &'a [Word<'a>],
    /// Netdevs.
    pub names: &'a dyn Names,
    /// False in user exec mode.
    pub privileged: bool,
    /// The exec tree, for `do`.
    pub exec: &'static [Node],
}

/// What may come next at some place of a line.
pub struct Expected {
    /// Nodes.
    pub nodes: Vec<&'static Node>,
    /// True when the line may end here.
    pub cr: bool,
    /// An argument that is not finished: its kind, help and the words it has.
    pub inside: Option<(Kind, &'static str, usize)>,
}

impl Reader<'_> {
    /// Reads the whole line by the first of `root`'s trees that takes it.
    ///
    /// # Errors
    /// The best explanation that any of the trees has.
    pub fn parse(&self, root: &Root) -> Result<Parsed, Failure> {
        let mut failure: Option<Failure> = None;
        for (tree, nodes) in root.iter().enumerate() {
            let mut parsed = None;
            let result = self.walk(0, nodes.iter().collect(), start(nodes), &mut |state, expected| {
                if expected.inside.is_none() {
                    parsed = state.end.map(|run| (run, state.clone()));
                }
                parsed.is_some()
            });
            if let Some((run, State { form, words, values, exec, .. })) = parsed {
                return Ok(Parsed { run, args: Args { form, words, values }, tree, exec });
            }
            let this = result.err().unwrap_or(Failure::Incomplete(self.line.len()));
            // What several commands of the mode itself could mean is not looked for in its parent.
            if matches!(this, Failure::Ambiguous(at, _) if Some(at) == self.words.first().map(|w| w.at)) {
                return Err(this);
            }
            failure = Some(failure.map_or(this.clone(), |before| before.better(this)));
        }
        Err(failure.unwrap_or(Failure::Invalid(0)))
    }

    /// What may follow the whole of the words, for each tree of `root` that takes them.
    ///
    /// # Errors
    /// The best explanation, when none does.
    pub fn expected(&self, root: &Root) -> Result<Vec<Vec<Expected>>, Failure> {
        let mut groups = Vec::new();
        let mut failure: Option<Failure> = None;
        for nodes in root {
            let mut group = Vec::new();
            let result = self.walk(0, nodes.iter().collect(), start(nodes), &mut |_, expected| {
                let stop = expected.inside.is_none();
                group.push(expected);
                stop
            });
            match result {
                Err(this) if group.is_empty() => {
                    failure = Some(failure.map_or(this.clone(), |before| before.better(this)));
                }
                _ => groups.push(group),
            }
        }
        if groups.is_empty() { Err(failure.unwrap_or(Failure::Invalid(0))) } else { Ok(groups) }
    }

    /// Reads on from word `at`; `done` is asked at each way the line can be read to its end, and answers
    /// whether to stop there.
    fn walk(
        &self,
        at: usize,
        nodes: Vec<&'static Node>,
        state: State,
        done: &mut dyn FnMut(&State, Expected) -> bool,
    ) -> Result<(), Failure> {
        let Some(word) = self.words.get(at) else {
            let nodes = nodes.into_iter().filter(|n| self.visible(n, &state)).collect();
            let cr = state.end.is_some();
            let stop = done(&state, Expected { nodes, cr, inside: None });
            return if stop { Ok(()) } else { Err(Failure::Incomplete(self.line.len())) };
        };
        let visible: Vec<&'static Node> = nodes.into_iter().filter(|n| self.visible(n, &state)).collect();
        let (candidates, ambiguous) = self.candidates(word.text, &visible);
        let mut failure =
            if ambiguous { Failure::Ambiguous(word.at, self.upto(at)) } else { Failure::Invalid(word.at) };
        for node in candidates {
            let result = match node.token {
                Token::Word(keyword) => {
                    let mut state = state.clone();
                    if node.special == Special::None {
                        state.words.push(keyword);
                    }
                    state.values.extend(node.choice.map(Value::Choice));
                    self.enter(node, at + 1, state, done)
                }
                Token::Arg(kind) => self.argument(node, kind, at, &state, done),
            };
            match result {
                Ok(()) => return Ok(()),
                Err(this) => failure = failure.better(this),
            }
        }
        Err(failure)
    }

    fn argument(
        &self,
        node: &'static Node,
        kind: Kind,
        at: usize,
        state: &State,
        done: &mut dyn FnMut(&State, Expected) -> bool,
    ) -> Result<(), Failure> {
        let here = self.words.get(at).map_or(self.line.len(), |w| w.at);
        let words: Vec<&str> = self.words[at..].iter().map(|w| w.text).collect();
        let rest = self.line[here..].trim_end();
        let unfinished = match kind {
            Kind::Interface => {
                words.len() == 1 && (words[0].eq_ignore_ascii_case("vlan") || words[0] == "netdev")
            }
            Kind::Line(_) | Kind::InterfaceRange | Kind::Hex => true,
            _ => false,
        };
        if unfinished {
            done(
                state,
                Expected { nodes: Vec::new(), cr: false, inside: Some((kind, node.help, words.len())) },
            );
        }
        match take(kind, &words, rest, self.names) {
            Take::Value(value, n) => {
                let mut state = state.clone();
                state.values.push(value);
                self.enter(node, at + n, state, done)
            }
            Take::Bad(reason) => Err(Failure::Reason(here, reason)),
            Take::Short => Err(Failure::Incomplete(self.line.len())),
            Take::Mismatch => Err(Failure::Invalid(here)),
        }
    }

    /// Goes on behind `node`.
    fn enter(
        &self,
        node: &'static Node,
        at: usize,
        mut state: State,
        done: &mut dyn FnMut(&State, Expected) -> bool,
    ) -> Result<(), Failure> {
        match node.special {
            Special::None => {}
            Special::No | Special::Default => {
                state.form = if node.special == Special::No { Form::No } else { Form::Default };
                return self.walk(at, state.root.iter().collect(), state, done);
            }
            Special::Do => {
                state = State { exec: true, ..start(self.exec) };
                return self.walk(at, self.exec.iter().collect(), state, done);
            }
        }
        let mut next: Vec<&'static Node> = node.next.iter().collect();
        state.end = ending(node, state.form);
        // A node with a handler of its own is no part of an option.
        if node.run.is_some() {
            state.open = None;
        }
        if !node.options.is_empty() {
            state.open = Some(Open { options: node.options, used: 0, run: state.end });
        }
        if let Some(open) = &mut state.open {
            if let Some(at) = open.options.iter().position(|option| std::ptr::eq(option, node)) {
                open.used |= 1 << at;
            }
            if next.is_empty() {
                let unused = |(at, _): &(usize, &'static Node)| open.used >> at & 1 == 0;
                next = open.options.iter().enumerate().filter(unused).map(|(_, option)| option).collect();
                state.end = open.run;
            } else if !node.options.is_empty() {
                next.extend(open.options);
            }
        }
        self.walk(at, next, state, done)
    }

    /// The nodes a word can mean, the likeliest first, and whether keywords were ambiguous.
    fn candidates(&self, word: &str, nodes: &[&'static Node]) -> (Vec<&'static Node>, bool) {
        let lower = word.to_ascii_lowercase();
        let mut exact = Vec::new();
        let mut begun = Vec::new();
        let mut known = Vec::new();
        let mut rest = Vec::new();
        for node in nodes.iter().copied() {
            match node.token {
                Token::Word(keyword) if keyword == lower => exact.push(node),
                Token::Word(keyword) if keyword.starts_with(&lower) => begun.push(node),
                Token::Word(_) => {}
                Token::Arg(kind) if kind.names_exactly(word, self.names) => known.push(node),
                Token::Arg(_) => rest.push(node),
            }
        }
        let ambiguous = exact.is_empty() && begun.len() > 1;
        if ambiguous || !exact.is_empty() {
            begun.clear();
        }
        (exact.into_iter().chain(known).chain(begun).chain(rest).collect(), ambiguous)
    }

    fn visible(&self, node: &Node, state: &State) -> bool {
        (self.privileged || !node.privileged)
            && (state.form == Form::Set
                || (node.special == Special::None && node.negatable())
                || state.open.is_some())
    }

    /// The line up to and with word `at`, single-spaced, for messages.
    fn upto(&self, at: usize) -> String {
        short(&self.words[..=at].iter().map(|w| w.text).collect::<Vec<_>>().join(" "))
    }
}

fn start(root: &'static [Node]) -> State {
    State { form: Form::Set, words: Vec::new(), values: Vec::new(), open: None, end: None, exec: false, root }
}

/// What runs when the line ends at `node`.
fn ending(node: &Node, form: Form) -> Option<Run> {
    match form {
        Form::Set => node.run,
        Form::No | Form::Default => match (node.no, node.run) {
            (Some(no), _) => Some(no),
            (None, Some(run)) if !node.set_only => Some(run),
            _ => None,
        },
    }
}
