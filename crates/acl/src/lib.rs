//! Access lists: rules in the grammar of IOS, and the classifier that both pipelines run.
//!
//! A list is a sequence of rules; the first rule that matches a frame decides, and a frame that no rule matches is denied.
//! The crate has three layers, and makes no system call:
//!
//! * [`rule`], [`fields`], [`groups`], [`list`], [`text`], [`time`]: rules as the operator writes them, with sequence numbers, remarks, object
//!   groups and time ranges;
//! * [`condition`]: a rule as conditions on the 16-bit fields of a [`Key`], which is what planes are given;
//! * [`classifier`] and [`compile`]: the flat data structure that finds the first matching rule, as an array of words that
//!   the Rust pipeline and the eBPF programs read alike.
//!
//! Read first: Lakshman and Stiliadis, "High-Speed Policy-based Packet Forwarding Using Efficient Multi-dimensional Range
//! Matching", SIGCOMM 1998 (a bit vector for each field value); Baboescu and Varghese, "Scalable Packet Classification",
//! SIGCOMM 2001 (aggregated bit vectors). For fragments: RFC 1858 and RFC 3128.
//!
//! Invariant: for every key the classifier and [`condition::first_match`] name the same rule.

pub mod classifier;
pub mod compile;
pub mod condition;
pub mod fields;
pub mod groups;
pub mod key;
pub mod list;
pub mod names;
pub mod note;
mod print;
pub mod rule;
pub mod shadow;
pub mod text;
pub mod time;

pub use classifier::{Classifier, Found};
pub use condition::{Condition, FlatRule, PlaneList, Purpose, Verdict};
pub use key::{FrameFamily, Key};
pub use list::{AccessList, Entry, Kind, Lists};
pub use rule::{Action, Rule};

/// The highest number of rules in a list, after object groups have been expanded.
pub const MAX_RULES: usize = 4096;
