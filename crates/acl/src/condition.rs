//! A rule as planes are given it: conditions on the halves of a [`Key`], all of which must hold.
//!
//! The names of object groups and time ranges have been resolved before this point. [`first_match`] is the plain
//! interpretation of a list, rule by rule; the classifier must agree with it.

use crate::key::{FrameFamily, HALVES, Key, PROTOCOL, TRANSPORT};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The values of one half that a rule accepts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Condition {
    /// Those that equal `value` in the bits of `mask`. `value` has no other bits.
    Mask {
        /// The wanted bits.
        value: u16,
        /// The compared bits.
        mask: u16,
    },
    /// Those in one of these ranges, both ends included; ascending, and not adjacent.
    Ranges(Vec<(u16, u16)>),
}

impl Condition {
    /// True when the value is accepted.
    #[must_use]
    pub fn holds(&self, of: u16) -> bool {
        match self {
            Self::Mask { value, mask } => of & mask == *value,
            Self::Ranges(ranges) => ranges.iter().any(|(low, high)| (*low..=*high).contains(&of)),
        }
    }

    /// The accepted values as ascending ranges, both ends included; `None` when there are more than `most` of them.
    #[must_use]
    pub fn ranges(&self, most: usize) -> Option<Vec<(u16, u16)>> {
        let (value, mask) = match self {
            Self::Ranges(ranges) => return (ranges.len() <= most).then(|| ranges.clone()),
            Self::Mask { value, mask } => (*value, *mask),
        };
        // The lowest bits that are not compared make one range; each combination of the others begins one.
        let run = ((1_u32 << mask.trailing_zeros().min(16)) - 1) as u16;
        let scattered = !mask & !run;
        if 1_usize << scattered.count_ones() > most {
            return None;
        }
        let mut ranges = Vec::with_capacity(1 << scattered.count_ones());
        let mut subset = 0_u16;
        loop {
            ranges.push((value | subset, value | subset | run));
            subset = subset.wrapping_sub(scattered) & scattered;
            if subset == 0 {
                return Some(ranges);
            }
        }
    }
}

/// The decision about a frame that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It is dropped.
    Deny,
    /// It passes.
    Permit,
    /// The rules before this index are skipped; it is higher than the rule's own. A VLAN map uses it: a frame that a
    /// list of the map denies goes on to the next entry of the map.
    Skip(u16),
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlatRule {
    /// The decision about a frame that it matches.
    pub verdict: Verdict,
    /// True if later fragments match although they lack the transport header that the rule compares. It is true for the
    /// operator's rules that permit.
    pub fragments: bool,
    /// True if matches are logged.
    pub log: bool,
    /// True if the log also names the interface and the frame's source address.
    #[serde(default)]
    pub log_input: bool,
    /// The list that the rule comes from: an index into [`PlaneList::names`].
    pub list: u16,
    /// The rule's sequence number in the list that it comes from.
    pub seq: u32,
    /// The conditions, by ascending half, at most one for each.
    pub conditions: Vec<(u8, Condition)>,
}

impl FlatRule {
    /// The condition on a half.
    #[must_use]
    pub fn on(&self, half: usize) -> Option<&Condition> {
        self.conditions.iter().find(|(at, _)| usize::from(*at) == half).map(|(_, condition)| condition)
    }
    /// True when the rule matches the frame.
    #[must_use]
    pub fn matches(&self, key: &Key) -> bool {
        self.conditions.iter().all(|(half, condition)| {
            if key.unknown >> half & 1 == 1 {
                self.matches_unknown()
            } else if key.absent >> half & 1 == 1 {
                self.fragments
            } else {
                condition.holds(key.half[usize::from(*half) % HALVES])
            }
        })
    }
    /// True if the rule matches frames in which a field that it compares cannot be read.
    #[must_use]
    pub fn matches_unknown(&self) -> bool {
        self.verdict == Verdict::Deny
    }
    /// The halves that [`Key::absent`] and [`Key::unknown`] can contain, as a set of bits.
    pub(crate) const HALVES_THAT_MAY_BE_MISSING: u32 = TRANSPORT | 1 << PROTOCOL;
}

/// What the rules of a list decide about the frames that they match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// An access list or a VLAN map: a rule permits or drops a frame.
    #[default]
    Filter,
    /// A policy map: a rule names the frame's class, and drops no frame.
    Classify,
}

/// A list as a plane has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaneList {
    /// Its name in the configuration: `access list NAME`, `vlan map NAME` or `policy map NAME`. No two lists of a plane have the
    /// same name and family.
    pub name: String,
    /// What its rules decide.
    #[serde(default)]
    pub purpose: Purpose,
    /// The frames that it judges.
    pub family: FrameFamily,
    /// The lists that the rules come from: one, or those of a VLAN map. For a policy map: its classes.
    pub names: Vec<String>,
    /// The rules, the first one first; at most [`crate::MAX_RULES`].
    pub rules: Vec<FlatRule>,
    /// True if a frame that no rule matches passes.
    pub otherwise_permit: bool,
}

impl PlaneList {
    /// True for the list of a policy map, whose rules name classes and drop no frame.
    #[must_use]
    pub fn classifies(&self) -> bool {
        self.purpose == Purpose::Classify
    }
    /// The name of the access list, or of the class, that a rule of this list comes from; empty for a rule that a VLAN map adds
    /// by itself.
    #[must_use]
    pub fn origin(&self, rule: &FlatRule) -> &str {
        self.names.get(usize::from(rule.list)).map_or("", String::as_str)
    }
    /// For each count of matches, in the order in which planes report them, true if it belongs to the access list `of`. With
    /// `None` all are true; the count of frames that no rule matches, the last one, is true only then.
    pub fn counts_of(&self, of: Option<&str>) -> impl Iterator<Item = bool> {
        let rules = self.rules.iter().map(move |rule| of.is_none_or(|of| self.origin(rule) == of));
        rules.chain([of.is_none()])
    }
    /// True if a frame passes for which a search has found the rule with the index `found`, or none.
    #[must_use]
    pub fn permits(&self, found: Option<usize>) -> bool {
        found.map_or(self.otherwise_permit, |at| self.rules[at].verdict == Verdict::Permit)
    }
}

/// The counts of matches with which `new` begins when it replaces `old`, whose counts are `counts`. A rule keeps its count if
/// `old` has it with the same list, sequence number and conditions; other rules begin with 0. The last count is that of frames
/// that no rule matches; it is kept.
#[must_use]
pub fn carried(old: &PlaneList, counts: &[u64], new: &PlaneList) -> Vec<u64> {
    fn name<'a>(of: &'a PlaneList, rule: &'a FlatRule) -> (&'a str, u32, &'a [(u8, Condition)]) {
        (of.origin(rule), rule.seq, &rule.conditions)
    }
    let mut known: HashMap<_, u64> = HashMap::new();
    for (rule, count) in old.rules.iter().zip(counts) {
        let sum = known.entry(name(old, rule)).or_default();
        *sum = sum.wrapping_add(*count);
    }
    // A VLAN map may have an access list several times: the first of its equal rules gets the sum, so that it is counted once.
    let of = |rule| known.remove(&name(new, rule)).unwrap_or(0);
    new.rules.iter().map(of).chain([counts.last().copied().unwrap_or(0)]).collect()
}

/// The index of the rule that decides about a frame, found by comparing one rule after the other.
#[must_use]
pub fn first_match(rules: &[FlatRule], key: &Key) -> Option<usize> {
    let mut at = 0;
    while let Some(rule) = rules.get(at) {
        match rule.verdict {
            _ if !rule.matches(key) => at += 1,
            Verdict::Skip(to) => at = usize::from(to).max(at + 1),
            Verdict::Deny | Verdict::Permit => return Some(at),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_their_rules() {
        let rule = |seq, value| FlatRule {
            verdict: Verdict::Permit,
            fragments: true,
            log: false,
            log_input: false,
            list: 0,
            seq,
            conditions: vec![(1, Condition::Mask { value, mask: 0xff })],
        };
        let list = |rules| PlaneList {
            name: "it".into(),
            purpose: Purpose::Filter,
            family: FrameFamily::Ipv4,
            names: vec!["a".into()],
            rules,
            otherwise_permit: false,
        };
        let old = list(vec![rule(10, 1), rule(20, 2), rule(30, 3)]);
        let new = list(vec![rule(10, 1), rule(15, 9), rule(20, 5), rule(30, 3)]);
        assert_eq!(carried(&old, &[7, 8, 9, 4], &new), [7, 0, 0, 9, 4]);
        let twice = list(vec![rule(10, 1), rule(20, 2), rule(10, 1)]);
        assert_eq!(carried(&twice, &[7, 8, 0, 4], &twice), [7, 8, 0, 4], "a rule that a VLAN map has twice");
        assert_eq!(carried(&twice, &[7, 8, 1, 4], &new), [8, 0, 0, 0, 4], "in all places together");
    }

    /// An access list may be in a VLAN map several times, each time with a number of its own.
    #[test]
    fn counts_belong_to_the_access_list_of_their_rule() {
        let rule = |list| FlatRule {
            verdict: Verdict::Permit,
            fragments: true,
            log: false,
            log_input: false,
            list,
            seq: 10,
            conditions: Vec::new(),
        };
        let map = PlaneList {
            name: "vlan map m".into(),
            purpose: Purpose::Filter,
            family: FrameFamily::Ipv4,
            names: ["", "a", "b", "a"].map(String::from).to_vec(),
            rules: [1, 2, 3, 0].map(rule).to_vec(),
            otherwise_permit: false,
        };
        for (of, want) in [
            (Some("a"), [true, false, true, false, false]),
            (Some("b"), [false, true, false, false, false]),
            (Some("c"), [false; 5]),
            (None, [true; 5]),
        ] {
            assert_eq!(map.counts_of(of).collect::<Vec<_>>(), want, "{of:?}");
        }
    }

    #[test]
    fn masks_as_ranges() {
        for (value, mask) in
            [(0x1200, 0xff00), (0, 0), (7, 0xffff), (1, 1), (0x0101, 0x0f01), (0x8000, 0x8000)]
        {
            let condition = Condition::Mask { value, mask };
            let ranges = condition.ranges(1 << 16).expect("room for all of them");
            assert!(ranges.windows(2).all(|two| two[0].1 < two[1].0), "{value:#x}/{mask:#x}: {ranges:?}");
            let listed = Condition::Ranges(ranges);
            for of in 0..=u16::MAX {
                assert_eq!(listed.holds(of), condition.holds(of), "{value:#x}/{mask:#x}: {of:#x}");
            }
        }
        assert_eq!(Condition::Mask { value: 1, mask: 1 }.ranges(1 << 14), None);
    }
}
