//! The shape of the command tree: [`Node`], and the functions that declare one.
//!
//! The tree is the only description of the language: parsing, abbreviation, completion, help, the `no` and `default`
//! forms and docs/cli all come from it. A command is one entry in one of `commands/*.rs`:
//!
//! ```text
//! kw("mtu", "Set the interface MTU").no(mtu).then(&[number(68, 9216, "MTU size in bytes").run(mtu)])
//! ```
//!
//! This means: `mtu <68-9216>` runs `mtu`; so do `no mtu` and `default mtu`, with or without the number. Configuration
//! lines are declared as entries of a table ([`crate::setting`]), which makes nodes of them.
//!
//! Invariant: a handler runs only for a line that the tree accepts, so it finds the arguments of its own path.

use crate::args::{Args, Kind};
use crate::edit::Edit;
use crate::exec::Exec;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use lanyard_config::access::LEVEL_MAX;

/// The words that a node matches.
#[derive(Clone, Copy)]
pub enum Token {
    /// A keyword, in upper or lower case, or an unambiguous abbreviation of it.
    Word(&'static str),
    /// A typed argument.
    Arg(Kind),
}

/// The handler of an exec command.
pub type ExecFn = fn(&mut Exec<'_>, &Args) -> Result<Outcome, Refusal>;
/// The handler of a configuration command. It changes the configuration only after all checks have succeeded.
pub type EditFn = fn(&mut Edit<'_>, &Args) -> Result<(), Refusal>;

/// A setting that a complete line changes.
pub trait Applies: Sync {
    /// Stores the value of a line, or the default.
    ///
    /// # Errors
    /// When the value cannot take effect; nothing has changed then.
    fn apply(&self, edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal>;
}

/// The handler of a complete line.
#[derive(Clone, Copy)]
pub enum Run {
    /// An exec command.
    Exec(ExecFn),
    /// A configuration command.
    Edit(EditFn),
    /// A setting of the tables.
    Set(&'static dyn Applies),
}

/// Keywords that change how the rest of the line is parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// An ordinary node.
    None,
    /// `no`: the rest of the line is parsed with the same tree, and undoes the command.
    No,
    /// `default`: the rest of the line is parsed with the same tree, and restores the default.
    Default,
    /// `do`: the rest of the line is parsed with the exec tree.
    Do,
}

/// One word of a command, and the words that may follow it.
#[derive(Clone, Copy)]
pub struct Node {
    /// The words that it matches.
    pub token: Token,
    /// The text that `?` shows.
    pub help: &'static str,
    /// The handler of a line that ends here.
    pub run: Option<Run>,
    /// The handler of a `no` or `default` line that ends here, if it is not `run`.
    pub no: Option<Run>,
    /// True when `run` has no `no` form.
    pub set_only: bool,
    /// The privilege level that the node needs, 0..=15, unless a `privilege` line sets another one. `None` means the level of the
    /// node before it; for the first node of a line, the level of the mode: 1 in exec mode, 15 in configuration modes.
    pub level: Option<u8>,
    /// The effect on parsing the rest of the line.
    pub special: Special,
    /// The nodes that may follow.
    pub next: &'static [Node],
    /// The nodes that may follow in any order, each at most once; the line ends with this node's `run`.
    pub options: &'static [Node],
    /// For a keyword that stands for a value: its index in the table of choices.
    pub choice: Option<usize>,
}

const fn node(token: Token, help: &'static str) -> Node {
    Node {
        token,
        help,
        run: None,
        no: None,
        set_only: false,
        level: None,
        special: Special::None,
        next: &[],
        options: &[],
        choice: None,
    }
}

/// Declares a keyword.
pub const fn kw(word: &'static str, help: &'static str) -> Node {
    node(Token::Word(word), help)
}

/// Declares a typed argument.
pub const fn arg(kind: Kind, help: &'static str) -> Node {
    node(Token::Arg(kind), help)
}

/// Declares a decimal number in `min..=max`.
pub const fn number(min: u64, max: u64, help: &'static str) -> Node {
    node(Token::Arg(Kind::Number(min, max)), help)
}

impl Node {
    /// Lets a configuration command end here, in all its forms.
    pub const fn run(mut self, f: EditFn) -> Self {
        self.run = Some(Run::Edit(f));
        self
    }
    /// Lets a configuration command without `no` form end here.
    pub const fn set(mut self, f: EditFn) -> Self {
        self.run = Some(Run::Edit(f));
        self.set_only = true;
        self
    }
    /// Lets the `no` and `default` forms end here.
    pub const fn no(mut self, f: EditFn) -> Self {
        self.no = Some(Run::Edit(f));
        self
    }
    /// Lets an exec command end here.
    pub const fn exec(mut self, f: ExecFn) -> Self {
        self.run = Some(Run::Exec(f));
        self.set_only = true;
        self
    }
    /// Sets the nodes that may follow.
    pub const fn then(mut self, next: &'static [Node]) -> Self {
        self.next = next;
        self
    }
    /// Sets the nodes that may follow in any order.
    pub const fn options(mut self, options: &'static [Node]) -> Self {
        self.options = options;
        self
    }
    /// Requires the highest privilege level.
    pub const fn privileged(self) -> Self {
        self.level(LEVEL_MAX)
    }
    /// Requires a privilege level.
    pub const fn level(mut self, level: u8) -> Self {
        self.level = Some(level);
        self
    }
    /// Makes the node `no`, `default` or `do`.
    pub const fn special(mut self, special: Special) -> Self {
        self.special = special;
        self
    }
    /// True when a `no` or `default` line can end at this node or after it.
    pub fn negatable(&self) -> bool {
        self.no.is_some() || (self.run.is_some() && !self.set_only) || self.next.iter().any(Self::negatable)
    }
    /// The node in the output of `?`: the keyword, or the form of the argument.
    pub fn label(&self) -> String {
        match self.token {
            Token::Word(word) => word.to_owned(),
            Token::Arg(kind) => kind.label(),
        }
    }
}

/// The trees that may parse a line, in order of preference; the first is the mode's own.
pub type Root = Vec<&'static [Node]>;
