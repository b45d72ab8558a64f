//! The command tree's shape: [`Node`] and the words to write one down with.
//!
//! The tree is the only description of the language: parsing, abbreviation, completion, help, the `no` and
//! `default` forms and docs/cli all come from it. A command is one entry in one of `commands/*.rs`:
//!
//! ```text
//! kw("mtu", "Set the interface MTU").no(mtu).then(&[number(68, 9216, "MTU size in bytes").run(mtu)])
//! ```
//!
//! reads: `mtu <68-9216>` runs `mtu`; `no mtu`, `default mtu`, with or without the number, run it as well. Configuration lines
//! are declared as entries of a table ([`crate::setting`]), which makes nodes of them.
//!
//! Invariant: a handler runs only for a line the tree accepts, so it finds the arguments of its own path.

use crate::args::{Args, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::outcome::Outcome;
use crate::session::Exec;

/// What a node matches.
#[derive(Clone, Copy)]
pub enum Token {
    /// A keyword, in any case, or an unambiguous beginning of it.
    Word(&'static str),
    /// A typed argument.
    Arg(Kind),
}

/// Handler of an exec command.
pub type ExecFn = fn(&mut Exec<'_>, &Args) -> Result<Outcome, Refusal>;
/// Handler of a configuration command. It edits only once nothing can be refused any more.
pub type EditFn = fn(&mut Edit<'_>, &Args) -> Result<(), Refusal>;

/// A setting, which a complete line changes.
pub trait Applies: Sync {
    /// Takes the value of a line, or the default.
    ///
    /// # Errors
    /// When it can't take effect; nothing has changed then.
    fn apply(&self, edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal>;
}

/// What a complete line runs.
#[derive(Clone, Copy)]
pub enum Run {
    /// An exec command.
    Exec(ExecFn),
    /// A configuration command.
    Edit(EditFn),
    /// A setting of the tables.
    Set(&'static dyn Applies),
}

/// Words that change how the rest of the line is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// An ordinary node.
    None,
    /// `no`: the same tree again, undoing.
    No,
    /// `default`: the same tree again, back to the default.
    Default,
    /// `do`: the exec tree.
    Do,
}

/// One word of a command, and what may follow it.
#[derive(Clone, Copy)]
pub struct Node {
    /// What it matches.
    pub token: Token,
    /// The text `?` shows.
    pub help: &'static str,
    /// What runs when the line ends here.
    pub run: Option<Run>,
    /// What runs when a `no` or `default` line ends here and `run` does not.
    pub no: Option<Run>,
    /// True when `run` has no `no` form.
    pub set_only: bool,
    /// True when only privileged exec mode has it.
    pub privileged: bool,
    /// Changes how the rest is read.
    pub special: Special,
    /// What may follow.
    pub next: &'static [Node],
    /// What may follow in any order, each at most once; the line ends with this node's `run`.
    pub options: &'static [Node],
    /// For a keyword that is a value: its position in the table of choices.
    pub choice: Option<usize>,
}

const fn node(token: Token, help: &'static str) -> Node {
    Node {
        token,
        help,
        run: None,
        no: None,
        set_only: false,
        privileged: false,
        special: Special::None,
        next: &[],
        options: &[],
        choice: None,
    }
}

/// A keyword.
pub const fn kw(word: &'static str, help: &'static str) -> Node {
    node(Token::Word(word), help)
}

/// A typed argument.
pub const fn arg(kind: Kind, help: &'static str) -> Node {
    node(Token::Arg(kind), help)
}

/// A decimal number in `min..=max`.
pub const fn number(min: u64, max: u64, help: &'static str) -> Node {
    node(Token::Arg(Kind::Number(min, max)), help)
}

impl Node {
    /// A configuration command ends here; its `no` and `default` forms, too.
    pub const fn run(mut self, f: EditFn) -> Self {
        self.run = Some(Run::Edit(f));
        self
    }
    /// A configuration command without `no` form ends here.
    pub const fn set(mut self, f: EditFn) -> Self {
        self.run = Some(Run::Edit(f));
        self.set_only = true;
        self
    }
    /// The `no` and `default` forms may end here.
    pub const fn no(mut self, f: EditFn) -> Self {
        self.no = Some(Run::Edit(f));
        self
    }
    /// An exec command ends here.
    pub const fn exec(mut self, f: ExecFn) -> Self {
        self.run = Some(Run::Exec(f));
        self.set_only = true;
        self
    }
    /// What may follow.
    pub const fn then(mut self, next: &'static [Node]) -> Self {
        self.next = next;
        self
    }
    /// What may follow in any order.
    pub const fn options(mut self, options: &'static [Node]) -> Self {
        self.options = options;
        self
    }
    /// Not in user exec mode.
    pub const fn privileged(mut self) -> Self {
        self.privileged = true;
        self
    }
    /// `no`, `default` or `do`.
    pub const fn special(mut self, special: Special) -> Self {
        self.special = special;
        self
    }
    /// True when a `no` or `default` line can lead through here.
    pub fn negatable(&self) -> bool {
        self.no.is_some() || (self.run.is_some() && !self.set_only) || self.next.iter().any(Self::negatable)
    }
    /// What `?` calls it: the keyword, or the argument's form.
    pub fn label(&self) -> String {
        match self.token {
            Token::Word(word) => word.to_owned(),
            Token::Arg(kind) => kind.label(),
        }
    }
}

/// The trees that a line may be read by, in order of preference, the first being the mode's own.
pub type Root = Vec<&'static [Node]>;
