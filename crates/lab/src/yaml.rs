//! A YAML document as a tree whose nodes have their line and column.
//!
//! `saphyr-parser` scans the text (YAML 1.2); this file builds the tree from its events. Read first: YAML 1.2.2 chapter
//! 3. serde-saphyr is not used: serde stops at the first error, whereas all errors of a topology file are reported at
//! once, and it types plain scalars, which turns the name `1.10` into the number 1.1. Invariant: whatever the input,
//! the tree has at most [`MAX_NODES`] nodes and [`MAX_DEPTH`] levels, with aliases counted as often as they are used.
//! A small file therefore cannot become a big tree, and deep nesting cannot overflow the stack.

use saphyr_parser::{Event, Parser, ScalarStyle};
use std::collections::HashMap;

/// The maximum number of nodes in a tree, aliases expanded.
pub const MAX_NODES: usize = 50_000;
/// The maximum number of keys in one mapping.
pub const MAX_KEYS: usize = 2_048;
/// The maximum depth of nesting.
pub const MAX_DEPTH: usize = 32;

/// A position in the text: line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Pos {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// A value and its position.
#[derive(Debug, Clone)]
pub struct Node {
    /// Where the value starts.
    pub pos: Pos,
    /// The value.
    pub value: Value,
}

/// A key of a mapping and its position.
#[derive(Debug, Clone)]
pub struct Key {
    /// Where the key starts.
    pub pos: Pos,
    /// The key's text.
    pub text: String,
}

/// The kinds of values. Numbers and booleans are kept as the text of the file.
#[derive(Debug, Clone)]
pub enum Value {
    /// An empty value, `~` or `null`.
    Null,
    /// Any scalar.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file, without repeated keys.
    Map(Vec<(Key, Node)>),
}

impl Value {
    /// The name of this kind of value in messages.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// Why a document was refused, and at which position.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The position.
    pub pos: Pos,
    /// The reason.
    pub message: String,
}

/// A collection whose end has not been read yet.
struct Open {
    node: Node,
    anchor: usize,
    key: Option<Key>,
    depth: usize,
}

/// A parsed node, and the nodes and depth that each further alias of it adds to the document.
#[derive(Clone)]
struct Done {
    node: Node,
    nodes: usize,
    depth: usize,
}

/// Parses `text`, which must be one document. An empty document is `Null` at 1:1.
///
/// # Errors
/// Invalid YAML, a second document, a repeated key, or an exceeded limit.
pub fn parse(text: &str) -> Result<Node, Refused> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| Refused {
            pos: position(error.marker()),
            message: format!("not valid YAML: {}", error.info()),
        })?;
        builder.event(event, position(&span.start))?;
    }
    Ok(builder.root.unwrap_or(Node { pos: Pos { line: 1, column: 1 }, value: Value::Null }))
}

fn position(marker: &saphyr_parser::Marker) -> Pos {
    Pos { line: marker.line().max(1), column: marker.col().saturating_add(1) }
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Done>,
    nodes: usize,
    documents: usize,
    root: Option<Node>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, pos: Pos) -> Result<(), Refused> {
        let refuse = |message: &str| Err(Refused { pos, message: message.into() });
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 { refuse("a second YAML document; a lab is one") } else { Ok(()) }
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(done) => self.place(Done { node: Node { pos, ..done.node }, ..done }, pos),
                None => refuse("an alias to something that is not complete here"),
            },
            Event::Scalar(text, style, anchor, _) => {
                let null =
                    style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = if null { Value::Null } else { Value::Text(text.into_owned()) };
                self.finish(Node { pos, value }, anchor, 1, 1)
            }
            Event::SequenceStart(anchor, _) => self.begin(Value::List(Vec::new()), anchor, pos),
            Event::MappingStart(anchor, _) => self.begin(Value::Map(Vec::new()), anchor, pos),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => {
                    let mut node = open.node;
                    if let Value::Map(entries) = &mut node.value {
                        merge(entries)?;
                    }
                    let size = count(&node);
                    self.finish(node, open.anchor, size, open.depth)
                }
                None => refuse("not valid YAML: an end without a start"),
            },
        }
    }

    fn begin(&mut self, value: Value, anchor: usize, pos: Pos) -> Result<(), Refused> {
        if self.open.len() + 1 >= MAX_DEPTH {
            return Err(Refused { pos, message: format!("nested deeper than {MAX_DEPTH} levels") });
        }
        self.open.push(Open { node: Node { pos, value }, anchor, key: None, depth: 1 });
        Ok(())
    }

    fn finish(&mut self, node: Node, anchor: usize, nodes: usize, depth: usize) -> Result<(), Refused> {
        let pos = node.pos;
        let done = Done { node, nodes, depth };
        if anchor > 0 {
            self.anchors.insert(anchor, done.clone());
        }
        // The contents of a collection were counted when they were placed in it.
        self.place(Done { nodes: 1, ..done }, pos)
    }

    /// Adds a complete node to the innermost open collection.
    fn place(&mut self, done: Done, pos: Pos) -> Result<(), Refused> {
        self.nodes = self.nodes.saturating_add(done.nodes);
        if self.nodes > MAX_NODES {
            return Err(Refused { pos, message: format!("more than {MAX_NODES} values (aliases counted)") });
        }
        if self.open.len() + done.depth > MAX_DEPTH {
            return Err(Refused { pos, message: format!("nested deeper than {MAX_DEPTH} levels") });
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(done.node);
            return Ok(());
        };
        open.depth = open.depth.max(done.depth + 1);
        match &mut open.node.value {
            Value::List(items) => items.push(done.node),
            Value::Map(entries) => match open.key.take() {
                None => open.key = Some(key(done.node)?),
                Some(key) => {
                    if let Some((first, _)) = entries.iter().find(|(k, _)| k.text == key.text) {
                        let line = first.pos.line;
                        let message = format!("`{}` is given twice; first on line {line}", key.text);
                        return Err(Refused { pos: key.pos, message });
                    }
                    if entries.len() >= MAX_KEYS {
                        let message = format!("more than {MAX_KEYS} keys in one mapping");
                        return Err(Refused { pos: key.pos, message });
                    }
                    entries.push((key, done.node));
                }
            },
            Value::Null | Value::Text(_) => {}
        }
        Ok(())
    }
}

fn key(node: Node) -> Result<Key, Refused> {
    match node.value {
        Value::Text(text) => Ok(Key { pos: node.pos, text }),
        other => {
            Err(Refused { pos: node.pos, message: format!("a key must be text, this is {}", other.noun()) })
        }
    }
}

/// `<<: *defaults`: inserts the keys of the named mapping that this mapping does not have.
fn merge(entries: &mut Vec<(Key, Node)>) -> Result<(), Refused> {
    let Some(index) = entries.iter().position(|(key, _)| key.text == "<<") else { return Ok(()) };
    let (key, node) = entries.remove(index);
    let sources = match node.value {
        Value::List(items) => items,
        _ => vec![node],
    };
    for source in sources {
        let Value::Map(inherited) = source.value else {
            return Err(Refused { pos: key.pos, message: "`<<` merges mappings only".into() });
        };
        for (key, value) in inherited {
            if !entries.iter().any(|(k, _)| k.text == key.text) {
                entries.push((key, value));
            }
        }
    }
    Ok(())
}

/// The number of nodes in a complete subtree. The recursion is bounded like the subtree's depth.
fn count(node: &Node) -> usize {
    1 + match &node.value {
        Value::Null | Value::Text(_) => 0,
        Value::List(items) => items.iter().map(count).sum(),
        Value::Map(entries) => entries.iter().map(|(_, node)| 1 + count(node)).sum(),
    }
}
