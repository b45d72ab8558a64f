//! Privilege levels of commands: which lines a session may enter.
//!
//! The command tree declares a level for each command ([`crate::tree::Node::level`]); `privilege` lines of the
//! configuration replace it. A keyword is also visible to a session that may only enter a longer command that begins with it.
//!
//! Invariant: parsing, completion and help use the same [`Authority`], so a session sees exactly what it may enter.

use crate::tree::Node;
use lanyard_config::access::{CommandMode, LEVEL_MAX, LEVEL_USER, Privileges};

/// The rights of a session.
#[derive(Clone, Copy)]
pub struct Authority<'a> {
    /// Its privilege level, 0..=15.
    pub level: u8,
    /// The levels of commands that the configuration changes.
    pub privileges: &'a Privileges,
    /// The mode to which a tree's commands belong, by the tree's root.
    pub mode_of: fn(&'static [Node]) -> CommandMode,
}

/// No `privilege` line.
static NONE: Privileges = Privileges(std::collections::BTreeMap::new());

impl Authority<'static> {
    /// All rights, for configuration texts.
    #[must_use]
    pub const fn full() -> Self {
        Self { level: LEVEL_MAX, privileges: &NONE, mode_of: |_| CommandMode::Other }
    }
}

impl Authority<'_> {
    /// The level that the commands of a tree need unless a node declares another one: 1 in exec mode, 15 in configuration modes.
    #[must_use]
    pub fn base(&self, root: &'static [Node]) -> u8 {
        if (self.mode_of)(root) == CommandMode::Exec { LEVEL_USER } else { LEVEL_MAX }
    }

    /// The level that a line through `node` needs. `words` are the keywords up to and including `node`; `before` is the level
    /// that the nodes before it need, `None` at the beginning of a line. Returns 0 for a session of level 15, which may enter
    /// every line.
    #[must_use]
    pub fn need(&self, root: &'static [Node], words: &[&str], node: &Node, before: Option<u8>) -> u8 {
        if self.level == LEVEL_MAX {
            return 0;
        }
        let is_word = matches!(node.token, crate::tree::Token::Word(_));
        let exact = || self.privileges.exact((self.mode_of)(root), words);
        match (is_word.then(exact).flatten(), before) {
            (Some(level), _) => level,
            (None, None) => node.level.unwrap_or_else(|| self.base(root)),
            (None, Some(before)) => node.level.unwrap_or(0).max(before),
        }
    }

    /// True when the session may enter a line through a node that needs level `need`, or a longer one that needs a lower level.
    /// `words` are the keywords up to and including the node.
    #[must_use]
    pub fn sees(&self, root: &'static [Node], words: &[&str], need: u8) -> bool {
        need <= self.level
            || self
                .privileges
                .lowest_below((self.mode_of)(root), words)
                .is_some_and(|lowest| lowest <= self.level)
    }
}
