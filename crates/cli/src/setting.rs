//! Configuration lines, declared once each: [`Setting`] and [`Line`].
//!
//! One declaration gives everything that the command line does with a line: parsing and abbreviation, the `no` and
//! `default` forms, help, docs/cli, the text of `show running-config`, and the values of the round-trip tests. The lines of
//! a mode are a table in the order in which the running configuration prints them:
//!
//! ```text
//! Setting::of("ip proxy-arp", "Enable proxy ARP", &Flag(field!(Interface, layer3.proxy_arp))).on(layer3).line()
//! ```
//!
//! A line whose value is not one field is a [`Line::Own`]: a node of the command tree with handlers, and the function that
//! prints the line.
//!
//! Invariant: a setting that equals its default is not printed; the default is that of the configuration's struct.

use crate::args::{Args, Form, Kind, Value};
use crate::edit::Edit;
use crate::refusal::Refusal;
use crate::tree::{Applies, Node, Run, Token, arg, kw};
use lanyard_types::{MacAddr, VlanId};

/// Access to a field of a configuration struct. [`field!`](crate::field) makes one.
pub struct Field<T: 'static, V: 'static> {
    /// Reads it.
    pub get: fn(&T) -> &V,
    /// Gives access to it.
    pub get_mut: fn(&mut T) -> &mut V,
}

/// `field!(Interface, layer3.proxy_arp)`: a [`Field`].
#[macro_export]
macro_rules! field {
    ($target:ty, $($path:tt)+) => {
        $crate::setting::Field {
            get: |target: &$target| &target.$($path)+,
            get_mut: |target: &mut $target| &mut target.$($path)+,
        }
    };
}

impl<T: Default, V: Clone + PartialEq> Field<T, V> {
    fn default(&self) -> V {
        (self.get)(&T::default()).clone()
    }
    /// The value; `None` when it equals the default.
    fn changed(&self, target: &T) -> Option<V> {
        let value = (self.get)(target);
        (*value != self.default()).then(|| value.clone())
    }
    fn put(&self, target: &mut T, value: Option<V>) {
        *(self.get_mut)(target) = value.unwrap_or_else(|| self.default());
    }
}

/// A function that changes one target.
pub type Change<'a, T> = &'a mut dyn FnMut(&mut T, &<T as Target>::Key) -> Result<(), Refusal>;

/// The object that a mode configures: an interface, a VLAN, the whole switch.
pub trait Target: Clone + PartialEq + 'static {
    /// The type of a target's name.
    type Key;
    /// Edits every target that the mode names, or none.
    ///
    /// # Errors
    /// The first refusal of `change`.
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal>;
}

/// A keyword or an argument that may follow a setting's keywords, and ends the line.
pub struct Operand {
    /// The keywords or the argument; no keywords when the line ends after those of the setting.
    pub token: Token,
    /// The text that `?` shows.
    pub help: &'static str,
    /// For a keyword: its index in the table of choices.
    pub choice: Option<usize>,
}

/// The syntax of the value of a setting.
pub trait Syntax<T>: Sync {
    /// The operands of which one follows the keywords.
    fn operands(&self) -> Vec<Operand>;
    /// Stores `value`; `None` stores the default.
    ///
    /// # Errors
    /// When the value is not valid; the refusal lists the valid ones.
    fn set(&self, target: &mut T, form: Form, value: Option<&Value>) -> Result<(), Refusal>;
    /// The words of the value in the running configuration: `Err` if the `no` form is printed, `None` if no line is printed, as
    /// for the default. With `always`, [`Choice`] and [`Word`] print the default as well.
    fn print(&self, target: &T, always: bool) -> Option<Result<String, ()>>;
}

/// An on/off value: the plain line turns it on, the `no` form off.
pub struct Flag<T: 'static>(pub Field<T, bool>);

impl<T: Target + Default> Syntax<T> for Flag<T> {
    fn operands(&self) -> Vec<Operand> {
        vec![Operand { token: Token::Word(""), help: "", choice: None }]
    }
    fn set(&self, target: &mut T, form: Form, _: Option<&Value>) -> Result<(), Refusal> {
        let on = match form {
            Form::Set => Some(true),
            Form::No => Some(false),
            Form::Default => None,
        };
        self.0.put(target, on);
        Ok(())
    }
    fn print(&self, target: &T, _: bool) -> Option<Result<String, ()>> {
        self.0.changed(target).map(|on| if on { Ok(String::new()) } else { Err(()) })
    }
}

/// One of several keywords. Of several keywords with the same value the first is printed; `""` means that the line
/// ends after the setting's own keywords.
pub struct Choice<T: 'static, V: 'static> {
    /// The field of the value.
    pub field: Field<T, V>,
    /// Keyword, value and help of each choice.
    pub of: &'static [(&'static str, V, &'static str)],
}

impl<T: Target + Default, V: Copy + PartialEq + Sync> Syntax<T> for Choice<T, V> {
    fn operands(&self) -> Vec<Operand> {
        let operand = |(at, (word, _, help)): (usize, &(&'static str, V, &'static str))| Operand {
            token: Token::Word(word),
            help,
            choice: Some(at),
        };
        self.of.iter().enumerate().map(operand).collect()
    }
    fn set(&self, target: &mut T, _: Form, value: Option<&Value>) -> Result<(), Refusal> {
        let chosen = match value {
            Some(Value::Choice(at)) => self.of.get(*at).map(|(_, value, _)| *value),
            _ => None,
        };
        self.field.put(target, chosen);
        Ok(())
    }
    fn print(&self, target: &T, always: bool) -> Option<Result<String, ()>> {
        let value = (self.field.get)(target);
        let printed = always || self.field.changed(target).is_some();
        let word = self.of.iter().find(|(_, other, _)| other == value).map(|(word, ..)| *word);
        word.filter(|_| printed).map(|word| Ok(word.to_owned()))
    }
}

/// The type of a field for a number; `None` means that the number is not set.
pub trait Numeric: Clone + PartialEq {
    /// The field value for `number`; `None` when the number is too large for it.
    fn from_number(number: u64) -> Option<Self>;
    /// The number in the field.
    fn number(&self) -> Option<u64>;
}

macro_rules! numeric {
    ($($type:ty),*) => { $(
        impl Numeric for $type {
            fn from_number(number: u64) -> Option<Self> {
                number.try_into().ok()
            }
            fn number(&self) -> Option<u64> {
                Some((*self).into())
            }
        }
        impl Numeric for Option<$type> {
            fn from_number(number: u64) -> Option<Self> {
                number.try_into().ok().map(Some)
            }
            fn number(&self) -> Option<u64> {
                self.map(Into::into)
            }
        }
    )* };
}
numeric!(u8, u16, u32, u64);

/// A decimal number.
pub struct Number<T: 'static, V: 'static> {
    /// The field of the value.
    pub field: Field<T, V>,
    /// The lowest and the highest value.
    pub range: (u64, u64),
    /// The text that `?` shows.
    pub help: &'static str,
    /// Keywords that stand for a number, or for the default (`None`), with their help.
    pub words: &'static [(&'static str, Option<u64>, &'static str)],
    /// Refuses numbers within the range that are not valid; the message lists the valid ones.
    pub check: fn(u64) -> Result<(), String>,
}

impl<T: Target, V: Numeric> Number<T, V> {
    /// Accepts any number of a range.
    pub const fn any(field: Field<T, V>, min: u64, max: u64, help: &'static str) -> Self {
        Self { field, range: (min, max), help, words: &[], check: |_| Ok(()) }
    }
}

impl<T: Target + Default, V: Numeric> Syntax<T> for Number<T, V> {
    fn operands(&self) -> Vec<Operand> {
        let (min, max) = self.range;
        let number = Operand { token: Token::Arg(Kind::Number(min, max)), help: self.help, choice: None };
        let word = |(at, (word, _, help)): (usize, &(&'static str, Option<u64>, &'static str))| Operand {
            token: Token::Word(word),
            help,
            choice: Some(at),
        };
        self.words.iter().enumerate().map(word).chain([number]).collect()
    }
    fn set(&self, target: &mut T, _: Form, value: Option<&Value>) -> Result<(), Refusal> {
        let number = match value {
            Some(Value::Number(number)) => {
                (self.check)(*number)?;
                V::from_number(*number)
            }
            Some(Value::Choice(at)) => {
                self.words.get(*at).and_then(|(_, number, _)| *number).and_then(V::from_number)
            }
            _ => None,
        };
        self.field.put(target, number);
        Ok(())
    }
    fn print(&self, target: &T, _: bool) -> Option<Result<String, ()>> {
        self.field.changed(target)?.number().map(|number| Ok(number.to_string()))
    }
}

/// Text: one word, or the rest of the line.
pub struct Text<T: 'static> {
    /// The field of the value.
    pub field: Field<T, Option<String>>,
    /// `Kind::Word` or `Kind::Line`.
    pub kind: Kind,
    /// The text that `?` shows.
    pub help: &'static str,
}

impl<T: Target + Default> Syntax<T> for Text<T> {
    fn operands(&self) -> Vec<Operand> {
        vec![Operand { token: Token::Arg(self.kind), help: self.help, choice: None }]
    }
    fn set(&self, target: &mut T, _: Form, value: Option<&Value>) -> Result<(), Refusal> {
        let text = if let Some(Value::Text(text)) = value { Some(text.clone()) } else { None };
        *(self.field.get_mut)(target) = text;
        Ok(())
    }
    fn print(&self, target: &T, _: bool) -> Option<Result<String, ()>> {
        (self.field.get)(target).clone().map(Ok)
    }
}

/// A word that always has a value: the `no` form stores the default.
pub struct Word<T: 'static> {
    /// The field of the value.
    pub field: Field<T, String>,
    /// `Kind::Word` or `Kind::Line`.
    pub kind: Kind,
    /// The text that `?` shows.
    pub help: &'static str,
}

impl<T: Target + Default> Syntax<T> for Word<T> {
    fn operands(&self) -> Vec<Operand> {
        vec![Operand { token: Token::Arg(self.kind), help: self.help, choice: None }]
    }
    fn set(&self, target: &mut T, _: Form, value: Option<&Value>) -> Result<(), Refusal> {
        let text = if let Some(Value::Text(text)) = value { Some(text.clone()) } else { None };
        self.field.put(target, text);
        Ok(())
    }
    fn print(&self, target: &T, always: bool) -> Option<Result<String, ()>> {
        let printed = always || self.field.changed(target).is_some();
        printed.then(|| Ok((self.field.get)(target).clone()))
    }
}

/// A station's MAC address.
pub struct Station<T: 'static> {
    /// The field of the value.
    pub field: Field<T, Option<MacAddr>>,
}

impl<T: Target + Default> Syntax<T> for Station<T> {
    fn operands(&self) -> Vec<Operand> {
        vec![Operand { token: Token::Arg(Kind::Mac), help: "MAC address", choice: None }]
    }
    fn set(&self, target: &mut T, _: Form, value: Option<&Value>) -> Result<(), Refusal> {
        let mac = if let Some(Value::Mac(mac)) = value { Some(*mac) } else { None };
        if let Some(mac) = mac.filter(|mac| mac.is_group() || mac.is_zero()) {
            return Err(format!("{mac} is not the address of a station: enter a unicast address").into());
        }
        *(self.field.get_mut)(target) = mac;
        Ok(())
    }
    fn print(&self, target: &T, _: bool) -> Option<Result<String, ()>> {
        (self.field.get)(target).map(|mac| Ok(mac.to_string()))
    }
}

/// A single VLAN.
pub struct OneVlan<T: 'static> {
    /// The field of the value.
    pub field: Field<T, VlanId>,
    /// The text that `?` shows.
    pub help: &'static str,
}

impl<T: Target + Default> Syntax<T> for OneVlan<T> {
    fn operands(&self) -> Vec<Operand> {
        vec![Operand { token: Token::Arg(Kind::Vlan), help: self.help, choice: None }]
    }
    fn set(&self, target: &mut T, _: Form, value: Option<&Value>) -> Result<(), Refusal> {
        self.field.put(target, if let Some(Value::Vlan(vlan)) = value { Some(*vlan) } else { None });
        Ok(())
    }
    fn print(&self, target: &T, _: bool) -> Option<Result<String, ()>> {
        self.field.changed(target).map(|vlan| Ok(vlan.to_string()))
    }
}

/// The condition of a setting: decides whether a target may have the setting, whose keywords are the last argument, and prepares
/// the target for it. `Ok(false)` leaves the target unchanged without a refusal: the result for the `no` form of a setting that
/// the target cannot have.
pub type On<T> = fn(&mut T, &<T as Target>::Key, Form, &str) -> Result<bool, Refusal>;

/// One setting: keywords and a value.
pub struct Setting<T: Target> {
    /// The keywords, as the user types them.
    pub words: &'static str,
    /// The text that `?` shows for the last of them.
    pub help: &'static str,
    /// The keywords after which the `no` form may end: `words`, or a beginning of `words`.
    pub undo: &'static str,
    /// The syntax of the value.
    pub value: &'static dyn Syntax<T>,
    /// Decides which targets may have the setting.
    pub on: On<T>,
    /// Checks the target with the new value, and adapts fields that depend on it.
    pub then: fn(&mut T, &T::Key) -> Result<(), Refusal>,
    /// True for targets whose setting is printed even when it is the default.
    pub always: fn(&T) -> bool,
    /// A warning about a new value that is accepted.
    pub warning: fn(&T) -> Option<&'static str>,
    /// True for an alternative syntax of another setting of the table; the running configuration does not
    /// print it.
    pub is_alias: bool,
}

impl<T: Target> Setting<T> {
    /// A setting that every target may have.
    pub const fn of(words: &'static str, help: &'static str, value: &'static dyn Syntax<T>) -> Self {
        Self {
            words,
            help,
            undo: words,
            value,
            on: |_, _, _, _| Ok(true),
            then: |_, _| Ok(()),
            always: |_| false,
            warning: |_| None,
            is_alias: false,
        }
    }
    /// Lets the `no` form end after these keywords, which are a beginning of the setting's keywords.
    pub const fn undo(mut self, undo: &'static str) -> Self {
        self.undo = undo;
        self
    }
    /// Restricts the setting to some targets.
    pub const fn on(mut self, on: On<T>) -> Self {
        self.on = on;
        self
    }
    /// Adds a function that checks or adapts the target afterwards.
    pub const fn then(mut self, then: fn(&mut T, &T::Key) -> Result<(), Refusal>) -> Self {
        self.then = then;
        self
    }
    /// Prints the setting for these targets even when it is the default.
    pub const fn always(mut self, always: fn(&T) -> bool) -> Self {
        self.always = always;
        self
    }
    /// Adds a warning about new values.
    pub const fn warning(mut self, warning: fn(&T) -> Option<&'static str>) -> Self {
        self.warning = warning;
        self
    }
    /// Marks the setting as an alternative syntax of another setting of the table.
    pub const fn alias(mut self) -> Self {
        self.is_alias = true;
        self
    }
    /// Makes the setting an entry of a mode's table.
    pub const fn line(self) -> Line<T> {
        Line::Setting(self)
    }
    fn print(&self, target: &T) -> Option<String> {
        if self.is_alias {
            return None;
        }
        Some(match self.value.print(target, (self.always)(target))? {
            Ok(value) if value.is_empty() => self.words.to_owned(),
            Ok(value) => format!("{} {value}", self.words),
            Err(()) => format!("no {}", self.words),
        })
    }
}

impl<T: Target> Applies for Setting<T> {
    fn apply(&self, edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
        let value = args.values.last().filter(|_| args.form == Form::Set);
        let mut warning = None;
        T::each(edit, &mut |target, key| {
            if !(self.on)(target, key, args.form, self.words)? {
                return Ok(());
            }
            self.value.set(target, args.form, value)?;
            (self.then)(target, key)?;
            warning = (self.warning)(target).filter(|_| args.form == Form::Set);
            Ok(())
        })?;
        edit.notices.extend(warning.map(|text| format!("% Warning: {text}")));
        Ok(())
    }
}

/// One entry of a mode's table.
pub enum Line<T: Target> {
    /// Keywords and one value.
    Setting(Setting<T>),
    /// A line with a grammar and handlers of its own.
    Own {
        /// The keywords before `node`, as the user types them; often none.
        under: &'static str,
        /// The grammar.
        node: Node,
        /// Returns the lines of the running configuration.
        print: fn(&T) -> Vec<String>,
    },
}

impl<T: Target> Line<T> {
    /// The lines of this entry for `target` in the running configuration.
    #[must_use]
    pub fn print(&self, target: &T) -> Vec<String> {
        match self {
            Self::Setting(setting) => setting.print(target).into_iter().collect(),
            Self::Own { print, .. } => print(target),
        }
    }
    /// Adds the entry's grammar to a tree.
    pub(crate) fn plant(&'static self, tree: &mut Branch) {
        match self {
            Self::Own { under, node, .. } => tree.at(under).grow(node),
            Self::Setting(setting) => {
                let branch = tree.at(setting.words);
                branch.node.help = setting.help;
                for operand in setting.value.operands() {
                    match operand.token {
                        Token::Word(words) => {
                            let end = branch.at(words);
                            end.node.run = Some(Run::Set(setting));
                            end.node.choice = operand.choice;
                            if !words.is_empty() {
                                end.node.help = operand.help;
                            }
                        }
                        Token::Arg(kind) => {
                            branch.grow(&Node { run: Some(Run::Set(setting)), ..arg(kind, operand.help) });
                        }
                    }
                }
                let end = tree.at(setting.undo);
                if end.node.run.is_none() {
                    end.node.no = Some(Run::Set(setting));
                }
            }
        }
    }
}

impl<T: Target> Line<T> {
    /// A line with a grammar and handlers of its own, after the keywords `under`.
    pub const fn own(under: &'static str, node: Node, print: fn(&T) -> Vec<String>) -> Self {
        Self::Own { under, node, print }
    }
    /// A line that this entry does not print: it leads to a mode, or another entry prints its value.
    pub const fn unprinted(under: &'static str, node: Node) -> Self {
        Self::Own { under, node, print: |_| Vec::new() }
    }
}

/// The lines of a mode's table for `target` in the running configuration.
#[must_use]
pub fn print<T: Target>(lines: &[Line<T>], target: &T) -> Vec<String> {
    lines.iter().flat_map(|line| line.print(target)).collect()
}

/// A tree of nodes under construction.
pub(crate) struct Branch {
    node: Node,
    next: Vec<Branch>,
}

impl Branch {
    /// An empty tree.
    pub(crate) fn root() -> Self {
        Self { node: kw("", ""), next: Vec::new() }
    }
    /// The branch at the end of the path `words`; creates the branches that are missing.
    pub(crate) fn at(&mut self, words: &'static str) -> &mut Self {
        let mut branch = self;
        for word in words.split(' ').filter(|word| !word.is_empty()) {
            let is = |child: &Self| matches!(child.node.token, Token::Word(other) if other == word);
            let at = branch.next.iter().position(is).unwrap_or_else(|| {
                branch.next.push(Self { node: kw(word, ""), next: Vec::new() });
                branch.next.len() - 1
            });
            branch = &mut branch.next[at];
        }
        branch
    }
    /// Sets the help text of keywords that do not end a line.
    pub(crate) fn group(&mut self, words: &'static str, help: &'static str) {
        self.at(words).node.help = help;
    }
    /// Adds a node and the nodes that follow it; a keyword that exists already is merged with it.
    pub(crate) fn grow(&mut self, node: &Node) {
        let branch = match node.token {
            Token::Word(word) => self.at(word),
            Token::Arg(_) => {
                self.next.push(Self { node: *node, next: Vec::new() });
                let last = self.next.len() - 1;
                &mut self.next[last]
            }
        };
        let was = branch.node;
        branch.node = Node {
            help: if node.help.is_empty() { was.help } else { node.help },
            run: node.run.or(was.run),
            no: node.no.or(was.no),
            ..*node
        };
        for next in node.next {
            branch.grow(next);
        }
    }
    /// Completes the tree. It lives as long as the program, because trees are made once.
    pub(crate) fn finish(mut self) -> &'static [Node] {
        // Keywords come in alphabetical order, as `?` shows them; arguments follow in the order in which they are
        // tried.
        self.next.sort_by_key(|child| match child.node.token {
            Token::Word(word) => (false, word),
            Token::Arg(_) => (true, ""),
        });
        let nodes: Vec<Node> = self
            .next
            .into_iter()
            .map(|child| Node { next: Self::finish_next(child.next), ..child.node })
            .collect();
        Vec::leak(nodes)
    }
    fn finish_next(next: Vec<Self>) -> &'static [Node] {
        Self { node: kw("", ""), next }.finish()
    }
}
