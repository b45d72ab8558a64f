//! Parses the words of a line and finds the handler that runs it: abbreviations, backtracking, and the best explanation of
//! a refusal.
//!
//! Invariant: the time and the memory of parsing are bounded by the limits of [`crate::line`].

use crate::args::{Args, Form, Kind, Names, Take, Value, short, take};
use crate::line::{Failure, Word};
use crate::privilege::Authority;
use crate::tree::{Node, Root, Run, Special, Token};
use lanyard_config::access::LEVEL_MAX;

/// A line that the tree accepts.
pub struct Parsed {
    /// The handler.
    pub run: Run,
    /// The arguments.
    pub args: Args,
    /// The index in [`Root`] of the tree that parsed the line.
    pub tree: usize,
    /// True after `do`.
    pub exec: bool,
}

/// The options that may still follow: all options of a node, a bit mask of those that were used, and the handler of a line that
/// ends after an option.
#[derive(Clone, Copy)]
struct Open {
    options: &'static [Node],
    used: u64,
    run: Option<Run>,
}

/// The state of parsing.
#[derive(Clone)]
struct State {
    form: Form,
    words: Vec<&'static str>,
    values: Vec<Value>,
    open: Option<Open>,
    /// The handler of a line that ends at the present node; `None` if no line may end there.
    end: Option<Run>,
    exec: bool,
    root: &'static [Node],
    /// The privilege level that the nodes so far need; `None` at the beginning.
    need: Option<u8>,
}

/// A line that is parsed: its words, and the context.
pub struct Reader<'a> {
    /// The line.
    pub line: &'a str,
    /// Its words.
    pub words: &'a [Word<'a>],
    /// The netdevs.
    pub names: &'a dyn Names,
    /// The commands that the session may enter.
    pub authority: Authority<'a>,
    /// The exec tree, for `do`.
    pub exec: &'static [Node],
}

/// The items that may follow at one position of a line.
pub struct Expected {
    /// The nodes.
    pub nodes: Vec<&'static Node>,
    /// True when the line may end here.
    pub cr: bool,
    /// The argument in which the words end, if it may have more words: its kind, its help, and the number of its words so far.
    pub inside: Option<(Kind, &'static str, usize)>,
}

impl Reader<'_> {
    /// Parses the whole line with the first of `root`'s trees that accepts it.
    ///
    /// # Errors
    /// The best explanation among those of the trees.
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
            // If the first word abbreviates several commands of the mode, the trees of its parents are not tried.
            if matches!(this, Failure::Ambiguous(at, _) if Some(at) == self.words.first().map(|w| w.at)) {
                return Err(this);
            }
            failure = Some(failure.map_or(this.clone(), |before| before.better(this)));
        }
        Err(failure.unwrap_or(Failure::Invalid(0)))
    }

    /// The items that may follow all the words, for each tree of `root` that accepts them.
    ///
    /// # Errors
    /// The best explanation, when no tree accepts the words.
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

    /// Parses the words from index `at` on. Calls `done` for each way in which the line can be parsed to its end; `done` returns
    /// true to stop.
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
            Kind::Line(_) | Kind::Rule(_) | Kind::Command(_) | Kind::InterfaceRange | Kind::Hex => true,
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

    /// Continues after `node`, which has matched the words before index `at`.
    fn enter(
        &self,
        node: &'static Node,
        at: usize,
        mut state: State,
        done: &mut dyn FnMut(&State, Expected) -> bool,
    ) -> Result<(), Failure> {
        let need = self.authority.need(state.root, &state.words, node, state.need);
        match node.special {
            Special::None => state.need = Some(need),
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
        state.end = ending(node, state.form).filter(|_| need <= self.authority.level);
        // A node with a handler is not an option, so the options of the nodes before it no longer apply.
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

    /// The nodes that a word can match, the most likely first, and whether several keywords match.
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
        self.sees(node, state)
            && (state.form == Form::Set
                || (node.special == Special::None && node.negatable())
                || state.open.is_some())
    }

    /// True when the session's privilege level permits at least one line through `node`.
    fn sees(&self, node: &Node, state: &State) -> bool {
        let level = self.authority.level;
        if level == LEVEL_MAX || node.special != Special::None {
            return true;
        }
        let mut words = state.words.clone();
        if let Token::Word(word) = node.token {
            words.push(word);
        }
        let need = self.authority.need(state.root, &words, node, state.need);
        self.authority.sees(state.root, &words, need)
    }

    /// The line up to and including word `at`, single-spaced, for messages.
    fn upto(&self, at: usize) -> String {
        short(&self.words[..=at].iter().map(|w| w.text).collect::<Vec<_>>().join(" "))
    }
}

fn start(root: &'static [Node]) -> State {
    State {
        form: Form::Set,
        words: Vec::new(),
        values: Vec::new(),
        open: None,
        end: None,
        exec: false,
        root,
        need: None,
    }
}

/// The handler of a line that ends at `node`.
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
