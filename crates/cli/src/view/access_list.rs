//! Views of access lists.

use lanyard_acl::Kind;
use serde::Serialize;

/// `show access-lists`.
#[derive(Debug, Clone, Serialize)]
pub struct AccessLists {
    /// The lists, by name.
    pub access_lists: Vec<AccessListView>,
}

/// A list.
#[derive(Debug, Clone, Serialize)]
pub struct AccessListView {
    /// Its name or number.
    pub name: String,
    /// `ipv4`, `ipv6` or `mac`.
    pub family: &'static str,
    /// Its kind, for the text.
    #[serde(skip)]
    pub kind: Kind,
    /// Its rules, by sequence number.
    pub rules: Vec<RuleView>,
}

/// A rule.
#[derive(Debug, Clone, Serialize)]
pub struct RuleView {
    /// Its sequence number.
    pub seq: u32,
    /// Its text as IOS prints it, without number and counter.
    pub text: String,
    /// The frames about which it has decided, at all interfaces and in all VLANs.
    pub matches: u64,
}
