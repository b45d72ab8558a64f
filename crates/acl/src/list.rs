//! Lists of rules with sequence numbers, and VLAN maps: what the configuration holds.
//!
//! Invariant: a list is given to planes whole ([`Lists::plane_list`], [`Lists::vlan_map_list`]), with every name resolved.

use crate::condition::{Condition, FlatRule, PlaneList, Purpose, Verdict};
use crate::groups::Groups;
use crate::key::{FrameFamily, ICMPV6, L4_SRC, PROTOCOL};
use crate::rule::Rule;
use crate::time::TimeRange;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The highest sequence number.
pub const MAX_SEQ: u32 = 2_147_483_647;
/// The first sequence number that a list gives by itself, and the step to the next one.
pub const SEQ_STEP: u32 = 10;

/// The kinds of list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `ip access-list standard`: the source address of IPv4 packets.
    Standard,
    /// `ip access-list extended`.
    Extended,
    /// `ipv6 access-list`.
    Ipv6,
    /// `mac access-list extended`.
    Mac,
}

impl Kind {
    /// The frames that a list of this kind judges.
    #[must_use]
    pub const fn family(self) -> FrameFamily {
        match self {
            Self::Standard | Self::Extended => FrameFamily::Ipv4,
            Self::Ipv6 => FrameFamily::Ipv6,
            Self::Mac => FrameFamily::Mac,
        }
    }
    /// The line that begins the list's section of the configuration, without its name.
    #[must_use]
    pub const fn command(self) -> &'static str {
        match self {
            Self::Standard => "ip access-list standard",
            Self::Extended => "ip access-list extended",
            Self::Ipv6 => "ipv6 access-list",
            Self::Mac => "mac access-list extended",
        }
    }
    /// The title that `show access-lists` has for it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Standard => "Standard IP access list",
            Self::Extended => "Extended IP access list",
            Self::Ipv6 => "IPv6 access list",
            Self::Mac => "Extended MAC access list",
        }
    }
    /// The ranges of the numbers that lists of this kind may have as names; none for IPv6, whose lists have names only.
    #[must_use]
    pub const fn numbers(self) -> &'static [(u16, u16)] {
        match self {
            Self::Standard => &[(1, 99), (1300, 1999)],
            Self::Extended => &[(100, 199), (2000, 2699)],
            Self::Ipv6 => &[],
            Self::Mac => &[(700, 799), (1100, 1199)],
        }
    }
    /// The kind of a numbered list; `None` for other names.
    #[must_use]
    pub fn of_number(name: &str) -> Option<Self> {
        if !name.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let number = name.parse::<u16>().ok()?;
        let has = |kind: &Self| kind.numbers().iter().any(|(low, high)| (*low..=*high).contains(&number));
        [Self::Standard, Self::Extended, Self::Mac].into_iter().find(has)
    }
}

/// An entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A rule.
    Rule(Rule),
    /// `remark`.
    Remark(String),
}

/// A list.
///
/// Invariant: `by_hash` has the hash of every rule in `entries`, with the sequence number of one of the rules that have it.
#[derive(Debug, Clone)]
pub struct AccessList {
    /// Its kind.
    pub kind: Kind,
    /// Its entries, by sequence number, 1..=[`MAX_SEQ`].
    entries: BTreeMap<u32, Entry>,
    /// Finds an equal rule without a comparison with every other, which would make entering a long list quadratic.
    by_hash: HashMap<u64, u32>,
}

impl PartialEq for AccessList {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.entries == other.entries
    }
}

impl Eq for AccessList {}

fn hash_of(rule: &Rule) -> u64 {
    let mut hasher = DefaultHasher::new();
    rule.hash(&mut hasher);
    hasher.finish()
}

impl AccessList {
    /// A list without entries.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self { kind, entries: BTreeMap::new(), by_hash: HashMap::new() }
    }
    /// The entries, by sequence number, 1..=[`MAX_SEQ`].
    #[must_use]
    pub const fn entries(&self) -> &BTreeMap<u32, Entry> {
        &self.entries
    }
    /// Adds an entry; it replaces the entry with the same number, if there is one.
    pub fn insert(&mut self, seq: u32, entry: Entry) {
        self.remove(seq);
        if let Entry::Rule(rule) = &entry {
            self.by_hash.entry(hash_of(rule)).or_insert(seq);
        }
        self.entries.insert(seq, entry);
    }
    /// Removes the entry with this number, if there is one.
    pub fn remove(&mut self, seq: u32) {
        let Some(Entry::Rule(rule)) = self.entries.remove(&seq) else { return };
        let hash = hash_of(&rule);
        if self.by_hash.get(&hash) == Some(&seq) {
            self.by_hash.remove(&hash);
            // Another rule may have the same hash: an equal one, or one whose 64-bit hash collides. Both are rare.
            let other = self.rules().find(|(_, rule)| hash_of(rule) == hash).map(|(seq, _)| seq);
            self.by_hash.extend(other.map(|seq| (hash, seq)));
        }
    }
    /// The number of an equal rule; `None` when the list has none.
    #[must_use]
    pub fn find(&self, rule: &Rule) -> Option<u32> {
        let seq = *self.by_hash.get(&hash_of(rule))?;
        if matches!(self.entries.get(&seq), Some(Entry::Rule(held)) if held == rule) {
            return Some(seq);
        }
        self.rules().find(|(_, held)| *held == rule).map(|(seq, _)| seq)
    }
    /// The rules, with their sequence numbers.
    pub fn rules(&self) -> impl Iterator<Item = (u32, &Rule)> {
        self.entries.iter().filter_map(|(seq, entry)| match entry {
            Entry::Rule(rule) => Some((*seq, rule)),
            Entry::Remark(_) => None,
        })
    }
    /// The sequence number that a new entry at the end gets; `None` when there is none left.
    #[must_use]
    pub fn next_seq(&self) -> Option<u32> {
        let last = self.entries.last_key_value().map_or(0, |(seq, _)| *seq);
        Some((last / SEQ_STEP + 1) * SEQ_STEP).filter(|seq| *seq <= MAX_SEQ)
    }
    /// Numbers the entries anew: the first gets `start`, each other one `step` more than the one before it.
    ///
    /// # Errors
    /// The number that would exceed [`MAX_SEQ`]; nothing has changed then.
    pub fn resequence(&mut self, start: u32, step: u32) -> Result<(), u64> {
        let last = u64::from(start) + self.entries.len().saturating_sub(1) as u64 * u64::from(step);
        if last > MAX_SEQ.into() {
            return Err(last);
        }
        let old = std::mem::replace(self, Self::new(self.kind));
        (0..)
            .map(|n| start + n * step)
            .zip(old.entries.into_values())
            .for_each(|(seq, entry)| self.insert(seq, entry));
        Ok(())
    }
}

/// An entry of a VLAN map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapEntry {
    /// The lists of `match ip|ipv6|mac address`, by [`FrameFamily::index`]. A frame that one of them permits is matched.
    pub lists: [Vec<String>; 3],
    /// `action`: true forwards.
    pub forward: bool,
}

impl Default for MapEntry {
    fn default() -> Self {
        Self { lists: Default::default(), forward: true }
    }
}

impl MapEntry {
    /// True when it has no `match` line, and so matches every frame.
    #[must_use]
    pub fn matches_all(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }
}

/// The access lists of the configuration, and what they use: object groups, time ranges and VLAN maps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    /// The access lists, by name.
    pub access: BTreeMap<String, AccessList>,
    /// `object-group`.
    pub groups: Groups,
    /// `time-range`, by name.
    pub times: BTreeMap<String, TimeRange>,
    /// `vlan access-map`, by name, then by sequence number.
    pub maps: BTreeMap<String, BTreeMap<u32, MapEntry>>,
    /// `ip access-list log-update threshold`: a line about a flow is logged as soon as the flow has had this number of packets
    /// since the last line; `None`: at regular times only.
    pub log_threshold: Option<u32>,
    /// `ip access-list logging interval`: the time in milliseconds after a counted packet in which no other packet is counted
    /// for its flow; the log reports only the number of those packets. 0: every packet is counted.
    pub log_interval_ms: u32,
}

impl Lists {
    /// The list `name` for a plane; `None` when it does not exist or has no rules: it then permits everything. `active`
    /// returns true for the name of a time range that is active now.
    #[must_use]
    pub fn plane_list(&self, name: &str, active: &dyn Fn(&str) -> bool) -> Option<PlaneList> {
        let list = self.access.get(name).filter(|list| list.rules().next().is_some())?;
        let mut rules = self.flat(list, 0, active);
        if list.kind == Kind::Ipv6 {
            // IOS: without these two nothing can be reached over IPv6.
            rules.extend([135, 136].map(neighbour_discovery));
        }
        Some(PlaneList {
            name: format!("access list {name}"),
            purpose: Purpose::Filter,
            family: list.kind.family(),
            names: vec![name.to_owned()],
            rules,
            otherwise_permit: false,
        })
    }

    /// The rules of a list that apply now.
    fn flat(&self, list: &AccessList, number: u16, active: &dyn Fn(&str) -> bool) -> Vec<FlatRule> {
        let applies = |rule: &Rule| rule.time_range.as_deref().is_none_or(active);
        let rules = list.rules().filter(|(_, rule)| applies(rule));
        rules
            .flat_map(|(seq, rule)| rule.lower(seq, number, &self.groups))
            .take(crate::MAX_RULES + 1)
            .collect()
    }

    /// The list that a VLAN map becomes for the frames of one family; `None` when the map lets all of them pass. A frame of a
    /// family that some entry has a list for, and that no entry matches, is dropped.
    #[must_use]
    pub fn vlan_map_list(
        &self,
        map: &str,
        family: FrameFamily,
        active: &dyn Fn(&str) -> bool,
    ) -> Option<PlaneList> {
        let entries = self.maps.get(map)?;
        let mut all = PlaneList {
            name: format!("vlan map {map}"),
            purpose: Purpose::Filter,
            family,
            names: vec![String::new()],
            rules: Vec::new(),
            otherwise_permit: true,
        };
        for entry in entries.values() {
            let verdict = if entry.forward { Verdict::Permit } else { Verdict::Deny };
            let every = |verdict| FlatRule {
                verdict,
                fragments: true,
                log: false,
                log_input: false,
                list: 0,
                seq: 0,
                conditions: Vec::new(),
            };
            if entry.matches_all() {
                all.rules.push(every(verdict));
            }
            for name in &entry.lists[family.index()] {
                all.otherwise_permit = false;
                let list = self.access.get(name).filter(|list| list.rules().next().is_some());
                let Some(list) = list else {
                    all.rules.push(every(verdict));
                    continue;
                };
                let rules = self.flat(list, all.names.len() as u16, active);
                all.names.push(name.clone());
                let end = (all.rules.len() + rules.len()).min(u16::MAX.into()) as u16;
                all.rules.extend(rules.into_iter().map(|rule| FlatRule {
                    verdict: if rule.verdict == Verdict::Permit { verdict } else { Verdict::Skip(end) },
                    ..rule
                }));
            }
        }
        (!all.rules.is_empty()).then_some(all)
    }
}

/// The implicit rule of an IPv6 list for a type of message of neighbour discovery. Its sequence number is 0.
fn neighbour_discovery(kind: u16) -> FlatRule {
    let exactly = |value: u16, mask: u16| Condition::Mask { value, mask };
    FlatRule {
        verdict: Verdict::Permit,
        fragments: false,
        log: false,
        log_input: false,
        list: 0,
        seq: 0,
        conditions: vec![
            (L4_SRC as u8, exactly(kind << 8, 0xff00)),
            (PROTOCOL as u8, exactly(ICMPV6.into(), 0xffff)),
        ],
    }
}

/// The name of an action, in the configuration of VLAN maps.
#[must_use]
pub const fn map_action(forward: bool) -> &'static str {
    if forward { "forward" } else { "drop" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::first_match;
    use crate::key::{Header, Key};
    use crate::text;

    fn list(kind: Kind, lines: &[&str]) -> AccessList {
        let mut list = AccessList::new(kind);
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let rule = text::parse(kind, &words).expect("a rule");
            let seq = list.next_seq().expect("a number");
            list.insert(seq, Entry::Rule(rule));
        }
        list
    }

    #[test]
    fn an_equal_rule_is_found_by_its_hash() {
        let mut of = list(Kind::Standard, &["permit any", "deny any", "permit host 10.0.0.1"]);
        let rule =
            |line: &str| text::parse(Kind::Standard, &line.split(' ').collect::<Vec<_>>()).expect("a rule");
        let deny = rule("deny any");
        assert_eq!(of.find(&deny), Some(20));
        assert_eq!(of.find(&rule("deny host 10.0.0.1")), None);
        assert_eq!(of.resequence(5, 1), Ok(()));
        assert_eq!(of.find(&deny), Some(6));
        // Equal rules occur when a caller inserts them; each is found until the last is removed.
        of.insert(40, Entry::Rule(deny.clone()));
        of.remove(6);
        assert_eq!(of.find(&deny), Some(40));
        of.insert(40, Entry::Remark("no rule".into()));
        assert_eq!(of.find(&deny), None);
    }

    #[test]
    fn rules_with_the_same_hash_are_distinct() {
        let mut of = list(Kind::Standard, &["permit any", "deny any"]);
        let rules: Vec<Rule> = of.rules().map(|(_, rule)| rule.clone()).collect();
        // A collision, made by hand: both rules have the hash of the first.
        of.by_hash = HashMap::from([(hash_of(&rules[0]), 10), (hash_of(&rules[1]), 10)]);
        assert_eq!((of.find(&rules[0]), of.find(&rules[1])), (Some(10), Some(20)));
    }

    #[test]
    fn numbers_of_entries() {
        let mut of = list(Kind::Standard, &["permit any", "deny any", "permit host 10.0.0.1"]);
        assert_eq!(of.entries.keys().copied().collect::<Vec<_>>(), [10, 20, 30]);
        of.insert(15, Entry::Remark("between".into()));
        assert_eq!(of.resequence(100, 5), Ok(()));
        assert_eq!(of.entries.keys().copied().collect::<Vec<_>>(), [100, 105, 110, 115]);
        assert_eq!(of.entries[&105], Entry::Remark("between".into()));
        assert_eq!(of.next_seq(), Some(120));
        let before = of.clone();
        assert!(of.resequence(MAX_SEQ, 1).is_err());
        assert_eq!(of, before);
        assert_eq!(of.resequence(MAX_SEQ - 3, 1), Ok(()));
        assert_eq!(of.next_seq(), None);
    }

    #[test]
    fn a_vlan_map_goes_on_where_a_list_denies() {
        let mut lists = Lists::default();
        lists.access.insert(
            "web".into(),
            list(Kind::Extended, &["deny tcp host 10.0.0.9 any", "permit tcp any any eq 80"]),
        );
        lists.access.insert("ten".into(), list(Kind::Standard, &["permit 10.0.0.0 0.0.0.255"]));
        let entry = |name: &str, forward| MapEntry { lists: [vec![name.into()], vec![], vec![]], forward };
        lists.maps.insert("m".into(), [(10, entry("web", false)), (20, entry("ten", true))].into());
        let all = lists.vlan_map_list("m", FrameFamily::Ipv4, &|_| true).expect("it has IPv4 lists");
        let judge = |src: [u8; 4], port: u8| {
            let [a, b, c, d] = src;
            let packet = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, a, b, c, d, 10, 1, 1, 1, 9, 9, 0, port];
            let packet = [&packet[..], &[0; 20]].concat();
            all.permits(first_match(
                &all.rules,
                &Key::read(&Header { ethertype: 0x0800, ..Header::default() }, &packet).expect("a packet"),
            ))
        };
        assert!(!judge([10, 0, 0, 1], 80), "dropped by the first entry");
        assert!(judge([10, 0, 0, 9], 80), "the list of the first entry denies it, so the second decides");
        assert!(judge([10, 0, 0, 1], 81));
        assert!(!judge([10, 0, 9, 1], 81), "no entry matches");
        assert_eq!(lists.vlan_map_list("m", FrameFamily::Ipv6, &|_| true), None);
    }

    #[test]
    fn a_list_without_rules_permits_everything() {
        let mut lists = Lists::default();
        lists.access.insert("empty".into(), AccessList::new(Kind::Extended));
        assert_eq!(lists.plane_list("empty", &|_| true), None);
        assert_eq!(lists.plane_list("missing", &|_| true), None);
        lists.access.insert("timed".into(), list(Kind::Extended, &["permit ip any any time-range work"]));
        assert_eq!(lists.plane_list("timed", &|_| true).map(|list| list.rules.len()), Some(1));
        let idle = lists.plane_list("timed", &|_| false).expect("it denies what no rule permits");
        assert!(idle.rules.is_empty() && !idle.otherwise_permit);
    }
}
