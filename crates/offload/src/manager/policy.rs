//! Policies for entries that do not fit: one policy for each kind of object, so for each table.

use lanyard_asic::object::Object;

/// The policy for entries that do not fit into their table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// They are refused, and their batch with them.
    #[default]
    Sync,
    /// They are hidden: the software plane forwards their packets.
    Hybrid,
    /// Nothing is put into the table.
    Bypass,
}

impl Policy {
    /// Every policy, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Sync, Self::Hybrid, Self::Bypass];

    /// The word in commands and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Hybrid => "hybrid",
            Self::Bypass => "bypass",
        }
    }
}

/// The policy of every kind of object.
#[derive(Debug, Clone)]
pub(super) struct Policies([Policy; Object::ALL.len()]);

impl Policies {
    pub(super) fn all(policy: Policy) -> Self {
        Self([policy; Object::ALL.len()])
    }
    pub(super) fn of(&self, object: Object) -> Policy {
        self.0[object as usize]
    }
    pub(super) fn set(&mut self, object: Object, policy: Policy) {
        self.0[object as usize] = policy;
    }
}
