//! Class maps as rules of a classifier: each policy map becomes a list for each family of frames, in which the rule that matches a
//! frame names its class.
//!
//! A class map's criteria are combined here, because a rule of a list is a conjunction: `match-all` multiplies the rules of its
//! criteria, `match-any` puts them one behind the other. A frame that a criterion excludes (`match not`, a `deny` of its access
//! list) matches a rule that skips the remaining rules of the criterion or of the class.
//!
//! Invariant: the first rule that permits names the first class of the policy map that matches the frame.

use lanyard_acl::key::{ETHERTYPE, TOS, VLAN};
use lanyard_acl::{Condition, FlatRule, FrameFamily, Lists, MAX_RULES, PlaneList, Purpose, Verdict};
use lanyard_config::{ClassMap, Criterion, Match, PolicyMap, Qos, QosProtocol};
use std::collections::BTreeSet;

/// The error for a policy map whose classes need more rules than a list has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TooManyRules {
    /// The class at which the limit is exceeded.
    pub class: String,
}

/// Decides whether a time range is active.
type Active<'a> = &'a dyn Fn(&str) -> bool;

/// The list that classifies the frames of one family; `None` if all of them are in `class-default`.
pub(crate) fn list(
    qos: &Qos,
    lists: &Lists,
    policy: &PolicyMap,
    (name, family): (&str, FrameFamily),
    active: Active<'_>,
) -> Result<Option<PlaneList>, TooManyRules> {
    let mut builder = Builder { lists, family, active, rules: Vec::new() };
    for (number, (class, _)) in policy.classes.iter().enumerate() {
        let Some(map) = qos.classes.get(class) else { continue };
        builder.class(map, number as u16);
        if builder.rules.len() > MAX_RULES {
            return Err(TooManyRules { class: class.clone() });
        }
    }
    let rules = builder.rules;
    Ok((!rules.is_empty()).then(|| PlaneList {
        name: format!("policy map {name}"),
        purpose: Purpose::Classify,
        family,
        names: policy.actions().map(|(class, _)| class.to_owned()).collect(),
        rules,
        otherwise_permit: true,
    }))
}

/// The conditions of a rule, each with the index of the half of the key that it compares.
type Conditions = Vec<(u8, Condition)>;

/// A rule of a criterion.
struct Part {
    conditions: Conditions,
    /// As `FlatRule::fragments`.
    fragments: bool,
    /// True if a frame that matches this rule fulfils the criterion, false if it does not.
    holds: bool,
}

/// The rules of a criterion; a frame that none of them matches fulfils it if `otherwise`.
struct Parts {
    rules: Vec<Part>,
    otherwise: bool,
}

struct Builder<'a> {
    lists: &'a Lists,
    family: FrameFamily,
    active: Active<'a>,
    rules: Vec<FlatRule>,
}

/// The conditions of a rule so far.
#[derive(Clone)]
struct Prefix {
    conditions: Conditions,
    fragments: bool,
}

impl Prefix {
    const EMPTY: Self = Self { conditions: Vec::new(), fragments: true };

    /// Adds the conditions of `part`; `None` if no frame fulfils both.
    fn and(&self, part: &Part) -> Option<Self> {
        let mut conditions = self.conditions.clone();
        for (half, condition) in &part.conditions {
            match conditions.iter_mut().find(|(at, _)| at == half) {
                Some((_, held)) => *held = both(held, condition)?,
                None => conditions.push((*half, condition.clone())),
            }
        }
        conditions.sort_by_key(|(half, _)| *half);
        Some(Self { conditions, fragments: self.fragments && part.fragments })
    }
}

impl Builder<'_> {
    fn class(&mut self, map: &ClassMap, number: u16) {
        let parts: Vec<Parts> = map.criteria.iter().map(|criterion| self.parts(criterion)).collect();
        match map.any {
            true => parts.chunks(1).for_each(|one| self.block(one, number)),
            false if parts.is_empty() => {}
            false => self.block(&parts, number),
        }
    }
    /// Appends a block of rules that permits the frames that fulfil all of `parts`. Other frames skip to the end of the block.
    fn block(&mut self, parts: &[Parts], number: u16) {
        let begin = self.rules.len();
        self.expand(&Prefix::EMPTY, parts, number);
        let end = self.rules.len().min(usize::from(u16::MAX)) as u16;
        for rule in &mut self.rules[begin..] {
            if rule.verdict != Verdict::Permit {
                rule.verdict = Verdict::Skip(end);
            }
        }
    }
    fn expand(&mut self, prefix: &Prefix, parts: &[Parts], number: u16) {
        // `list` refuses a longer list, so stop here.
        if self.rules.len() > MAX_RULES {
            return;
        }
        let Some((first, rest)) = parts.split_first() else {
            self.push(prefix, number, Verdict::Permit);
            return;
        };
        for part in &first.rules {
            let Some(with) = prefix.and(part) else { continue };
            if part.holds {
                self.expand(&with, rest, number);
            }
            if !part.holds || !rest.is_empty() {
                self.push(&with, number, Verdict::Deny);
            }
        }
        if first.otherwise {
            self.expand(prefix, rest, number);
        }
    }
    /// Appends a rule. The verdict `Deny` is a placeholder for a skip to the end of the block, which is not known yet.
    fn push(&mut self, prefix: &Prefix, number: u16, verdict: Verdict) {
        let Prefix { conditions, fragments } = prefix.clone();
        self.rules.push(FlatRule {
            verdict,
            fragments,
            log: false,
            log_input: false,
            list: number,
            seq: 0,
            conditions,
        });
    }

    fn parts(&self, criterion: &Criterion) -> Parts {
        let Criterion { negated, of } = criterion;
        let rules = match of {
            Match::AccessGroup(name) => self.access_list(name),
            simple => self
                .simple(simple)
                .map_or_else(Vec::new, |conditions| vec![Part { conditions, fragments: true, holds: true }]),
        };
        let rules = rules.into_iter().map(|part| Part { holds: part.holds != *negated, ..part });
        Parts { rules: rules.collect(), otherwise: *negated }
    }
    fn access_list(&self, name: &str) -> Vec<Part> {
        let list = self.lists.plane_list(name, self.active).filter(|list| list.family == self.family);
        // The implicit rules of an IPv6 list, whose number is 0, are no part of a class.
        let rules = list.into_iter().flat_map(|list| list.rules).filter(|rule| rule.seq != 0);
        let part = |rule: FlatRule| Part {
            conditions: rule.conditions,
            fragments: rule.fragments,
            holds: rule.verdict == Verdict::Permit,
        };
        rules.map(part).collect()
    }
    /// The conditions of a criterion other than an access list; `None` if no frame of this family fulfils it.
    fn simple(&self, of: &Match) -> Option<Conditions> {
        let (ip, family) = (self.family != FrameFamily::Mac, self.family);
        let tos = |values: &BTreeSet<u8>, shift: u32, ipv4: bool| {
            let fits = ip && (!ipv4 || family == FrameFamily::Ipv4);
            fits.then(|| vec![(TOS as u8, tos(values, shift))])
        };
        match of {
            Match::Any => Some(Vec::new()),
            Match::AccessGroup(_) => None,
            Match::Dscp { values, ipv4 } => tos(values, 2, *ipv4),
            Match::Precedence { values, ipv4 } => tos(values, 5, *ipv4),
            Match::Cos(values) => {
                let range = |cos: &u8| (u16::from(*cos) << 13, u16::from(*cos) << 13 | 0x1fff);
                Some(vec![(VLAN as u8, Condition::Ranges(merged(values.iter().map(range))))])
            }
            Match::Vlan(vlans) => {
                let each = (0..8_u16).flat_map(|cos| {
                    vlans.iter().map(move |vlan| (cos << 13 | vlan.get(), cos << 13 | vlan.get()))
                });
                Some(vec![(VLAN as u8, Condition::Ranges(merged(each)))])
            }
            Match::Protocol(QosProtocol::Ip) => (family == FrameFamily::Ipv4).then(Vec::new),
            Match::Protocol(QosProtocol::Ipv6) => (family == FrameFamily::Ipv6).then(Vec::new),
            Match::Protocol(QosProtocol::Arp) => (family == FrameFamily::Mac)
                .then(|| vec![(ETHERTYPE as u8, Condition::Mask { value: 0x0806, mask: 0xffff })]),
        }
    }
}

/// Accepts the TOS half if its octet, shifted right by `shift` bits, is one of `values`. The half also has a bit above the octet,
/// for later fragments, which may have either value.
fn tos(values: &BTreeSet<u8>, shift: u32) -> Condition {
    let ranges = [0, lanyard_acl::key::LATER_FRAGMENT].into_iter().flat_map(|above| {
        values.iter().map(move |value| {
            let low = above | u16::from(*value) << shift;
            (low, low | ((1 << shift) - 1))
        })
    });
    Condition::Ranges(merged(ranges))
}

/// Joins those of the ascending `ranges` that adjoin each other.
fn merged(ranges: impl Iterator<Item = (u16, u16)>) -> Vec<(u16, u16)> {
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (low, high) in ranges {
        match merged.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(low) => *end = high,
            _ => merged.push((low, high)),
        }
    }
    merged
}

/// The values that both conditions accept; `None` if there are none.
fn both(one: &Condition, other: &Condition) -> Option<Condition> {
    if one == other {
        return Some(one.clone());
    }
    let (one, other) = (one.ranges(usize::MAX)?, other.ranges(usize::MAX)?);
    let mut all = Vec::new();
    let (mut a, mut b) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        let (low, high) = (x.0.max(y.0), x.1.min(y.1));
        if low <= high {
            all.push((low, high));
        }
        if x.1 < y.1 {
            a.next()
        } else {
            b.next()
        };
    }
    (!all.is_empty()).then_some(Condition::Ranges(merged(all.into_iter())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_acl::condition::first_match;
    use lanyard_acl::key::{Header, Key};
    use lanyard_acl::{AccessList, Entry, Kind, compile, text};
    use lanyard_types::{MacAddr, Rng, VlanId, VlanSet};

    fn access_list(kind: Kind, lines: &[&str]) -> AccessList {
        let mut list = AccessList::new(kind);
        for (at, line) in lines.iter().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            list.insert(at as u32 + 1, Entry::Rule(text::parse(kind, &words).expect("a rule")));
        }
        list
    }

    fn lists() -> Lists {
        let mut lists = Lists::default();
        let lines =
            ["deny udp host 10.0.0.1 any", "permit udp any any eq 5060", "permit tcp 10.0.0.0 0.0.0.255 any"];
        lists.access.insert("voice".into(), access_list(Kind::Extended, &lines));
        lists.access.insert("hosts".into(), access_list(Kind::Extended, &["permit ip host 10.0.0.2 any"]));
        lists.access.insert("six".into(), access_list(Kind::Ipv6, &["permit udp any any"]));
        lists.access.insert("macs".into(), access_list(Kind::Mac, &["permit host 0200.0000.0001 any"]));
        lists
    }

    fn random_match(rng: &mut Rng) -> Match {
        let lists = ["voice", "hosts", "six", "macs", "absent"];
        match rng.below(7) {
            0 => Match::Any,
            1 | 2 => Match::AccessGroup(rng.pick(&lists).unwrap_or("hosts").into()),
            3 => Match::Dscp { values: [10, 11, 46].into(), ipv4: rng.percent(50) },
            4 => Match::Cos([1, 2, 5].into()),
            5 => Match::Vlan([10, 11, 30].into_iter().filter_map(VlanId::new).collect::<VlanSet>()),
            _ => match rng.below(3) {
                0 => Match::Protocol(QosProtocol::Ip),
                1 => Match::Protocol(QosProtocol::Arp),
                _ => Match::Precedence { values: [5].into(), ipv4: false },
            },
        }
    }

    /// The meaning of `match`, without rules.
    fn fulfils(lists: &Lists, of: &Match, family: FrameFamily, key: &Key) -> bool {
        let tos = key.half[TOS] & 0xff;
        let ip = |ipv4: bool| family == FrameFamily::Ipv4 || (family == FrameFamily::Ipv6 && !ipv4);
        match of {
            Match::Any => true,
            Match::AccessGroup(name) => lists.plane_list(name, &|_| true).is_some_and(|list| {
                let rules: Vec<FlatRule> = list.rules.into_iter().filter(|rule| rule.seq != 0).collect();
                let found = first_match(&rules, key).map(|at| rules[at].verdict);
                list.family == family && found == Some(Verdict::Permit)
            }),
            Match::Dscp { values, ipv4 } => ip(*ipv4) && values.contains(&((tos >> 2) as u8)),
            Match::Precedence { values, ipv4 } => ip(*ipv4) && values.contains(&((tos >> 5) as u8)),
            Match::Cos(values) => values.contains(&((key.half[VLAN] >> 13) as u8)),
            Match::Vlan(vlans) => {
                VlanId::new(key.half[VLAN] & 0xfff).is_some_and(|vlan| vlans.contains(vlan))
            }
            Match::Protocol(QosProtocol::Ip) => family == FrameFamily::Ipv4,
            Match::Protocol(QosProtocol::Ipv6) => family == FrameFamily::Ipv6,
            Match::Protocol(QosProtocol::Arp) => key.half[ETHERTYPE] == 0x0806,
        }
    }

    fn random_key(rng: &mut Rng, family: FrameFamily) -> Key {
        let ethertype = match family {
            FrameFamily::Ipv4 => 0x0800,
            FrameFamily::Ipv6 => 0x86dd,
            FrameFamily::Mac => rng.pick(&[0x0806, 0x88b5]).unwrap_or(0x0806),
        };
        let tos = rng.pick(&[0_u8, 40, 44, 184, 187, 160]).unwrap_or(0);
        let protocol = rng.pick(&[6_u8, 17]).unwrap_or(6);
        let mut packet = match family {
            FrameFamily::Ipv4 => vec![
                0x45,
                tos,
                0,
                48,
                0,
                0,
                0,
                0,
                64,
                protocol,
                0,
                0,
                10,
                0,
                0,
                rng.below(3) as u8,
                10,
                0,
                0,
                9,
            ],
            _ => {
                let mut six = vec![0x60 | tos >> 4, tos << 4, 0, 0, 0, 28, protocol, 64];
                six.extend([0; 32]);
                six
            }
        };
        packet.extend([0, 1, 0x13, rng.pick(&[0xc4, 0xc5]).unwrap_or(0)]);
        packet.extend([0; 24]);
        let header = Header {
            dst: MacAddr([2, 0, 0, 0, 0, 9]),
            src: MacAddr([2, 0, 0, 0, 0, rng.below(3) as u8]),
            ethertype,
            vlan: rng.pick(&[10, 11, 12, 30]).unwrap_or(10),
            cos: rng.below(8) as u8,
        };
        Key::read(&header, &packet).expect("a header")
    }

    /// Compares the classes that the compiled classifier finds with the meaning of the lines, for random class maps.
    #[test]
    fn the_rules_name_the_class_that_the_lines_mean() {
        let lists = lists();
        let (mut matched, mut combined) = (0, 0);
        for seed in 0..400 {
            let mut rng = Rng::new(seed);
            let mut qos = Qos::default();
            let mut policy = PolicyMap::default();
            for n in 0..=rng.below(3) {
                let criteria = (0..rng.below(4))
                    .map(|_| Criterion { negated: rng.percent(25), of: random_match(&mut rng) })
                    .collect();
                let name = format!("c{n}");
                qos.classes
                    .insert(name.clone(), ClassMap { any: rng.percent(50), description: None, criteria });
                policy.classes.push((name, Default::default()));
            }
            for family in FrameFamily::ALL {
                let list = list(&qos, &lists, &policy, ("p", family), &|_| true).expect("few rules");
                let compiled = list.as_ref().map(|list| compile::compile(list).expect("compiles"));
                for _ in 0..40 {
                    let key = random_key(&mut rng, family);
                    let holds = |criterion: &Criterion| {
                        fulfils(&lists, &criterion.of, family, &key) != criterion.negated
                    };
                    let wanted = policy.classes.iter().position(|(name, _)| {
                        let ClassMap { any, criteria, .. } = &qos.classes[name];
                        match any {
                            true => criteria.iter().any(holds),
                            false => !criteria.is_empty() && criteria.iter().all(holds),
                        }
                    });
                    let found = compiled.as_ref().map(|compiled| compiled.search(&key));
                    let rule = found.filter(|found| found.permit).and_then(|found| found.rule);
                    let got = rule.zip(list.as_ref()).map(|(rule, list)| usize::from(list.rules[rule].list));
                    assert_eq!(got, wanted, "seed {seed} {family:?}: {:?} {key:?}", qos.classes);
                    matched += usize::from(wanted.is_some());
                    combined += usize::from(
                        wanted.is_some_and(|at| qos.classes[&policy.classes[at].0].criteria.len() > 1),
                    );
                }
            }
        }
        assert!(matched > 10_000 && combined > 3_000, "{matched} {combined}");
    }

    #[test]
    fn too_many_rules_are_refused() {
        let mut lists = Lists::default();
        let lines: Vec<String> = (0..100).map(|n| format!("permit tcp any any eq {}", n * 2)).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lists.access.insert("many".into(), access_list(Kind::Extended, &lines));
        let lines: Vec<String> = (0..100).map(|n| format!("permit ip host 10.0.0.{n} any")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lists.access.insert("hosts".into(), access_list(Kind::Extended, &lines));
        let of = |name: &str| Criterion { negated: false, of: Match::AccessGroup(name.into()) };
        let mut qos = Qos::default();
        let class = ClassMap { any: false, description: None, criteria: vec![of("many"), of("hosts")] };
        qos.classes.insert("c".into(), class);
        let policy = PolicyMap { classes: vec![("c".into(), Default::default())], ..PolicyMap::default() };
        let made = list(&qos, &lists, &policy, ("p", FrameFamily::Ipv4), &|_| true);
        assert_eq!(made, Err(TooManyRules { class: "c".into() }));
    }
}
