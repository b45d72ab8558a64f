//! Finds rules that can never match because an earlier rule of the list matches all their frames.
//!
//! Each pair of rules is compared on its own, so a rule that only several earlier ones together cover is not found.
//! Invariant: a rule that is reported never decides about any frame.

use crate::condition::{Condition, FlatRule, Verdict};
use crate::key::{FrameFamily, PROTOCOL, TRANSPORT};

/// The most ranges of a condition that are compared; a rule with more of them counts as not shadowed.
const MAX_RANGES: usize = 64;

/// The shadowed rules: for each its index, and the index of the first rule that shadows it. Only pairs of rules are
/// compared in which `changed` returns true for at least one.
#[must_use]
pub fn shadowed(
    family: FrameFamily,
    rules: &[FlatRule],
    changed: &dyn Fn(&FlatRule) -> bool,
) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (late, hidden) in rules.iter().enumerate() {
        let news = changed(hidden);
        let earlier = rules[..late].iter().enumerate().filter(|(_, rule)| news || changed(rule));
        let hides = earlier.into_iter().find(|(_, rule)| covers(family, rule, hidden));
        found.extend(hides.map(|(early, _)| (late, early)));
    }
    found
}

/// True if `early` decides about every frame that `late` matches.
#[must_use]
pub fn covers(family: FrameFamily, early: &FlatRule, late: &FlatRule) -> bool {
    if matches!(early.verdict, Verdict::Skip(_)) {
        return false;
    }
    let on_transport = |rule: &FlatRule| rule.conditions.iter().any(|(half, _)| TRANSPORT >> half & 1 == 1);
    // A later fragment lacks the transport fields that `early` compares, so it may match `late` and not `early`.
    if on_transport(early) && late.fragments && !early.fragments {
        return false;
    }
    // Only behind the extension headers of IPv6 can the protocol be unknown.
    let may_lack = TRANSPORT | if family == FrameFamily::Ipv6 { 1 << PROTOCOL } else { 0 };
    let fields = early.conditions.iter();
    let same_unknown = early.matches_unknown() || !late.matches_unknown();
    fields.into_iter().all(|(half, condition)| {
        let readable = may_lack >> half & 1 == 0 || same_unknown;
        readable && late.on(usize::from(*half)).is_some_and(|of| includes(condition, of))
    })
}

/// True if `wide` accepts every value that `narrow` accepts.
fn includes(wide: &Condition, narrow: &Condition) -> bool {
    if let (Condition::Mask { value: a, mask: wide }, Condition::Mask { value: b, mask: narrow }) =
        (wide, narrow)
    {
        return wide & narrow == *wide && b & wide == *a;
    }
    let (Some(wide), Some(narrow)) = (wide.ranges(MAX_RANGES), narrow.ranges(MAX_RANGES)) else {
        return false;
    };
    narrow.iter().all(|(low, high)| wide.iter().any(|(from, to)| from <= low && high <= to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::Groups;
    use crate::list::Kind;
    use crate::text;

    fn check(kind: Kind, early: &str, late: &str, want: bool) {
        let flat = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            text::parse(kind, &words).expect(line).lower(1, 0, &Groups::default()).remove(0)
        };
        assert_eq!(covers(kind.family(), &flat(early), &flat(late)), want, "{early} / {late}");
    }

    #[test]
    fn pairs() {
        for (early, late, want) in [
            ("permit ip any any", "deny tcp any any eq 80", true),
            ("permit tcp any any", "permit tcp any any eq 80", true),
            ("permit tcp any any", "deny tcp any any eq 80", true),
            ("permit tcp any any", "permit udp any any", false),
            ("deny tcp any any range 10 20", "deny tcp any any eq 15", true),
            ("deny tcp any any range 10 20", "deny tcp any any range 15 21", false),
            ("permit tcp any any range 10 20", "permit tcp any any lt 15", false),
            ("permit ip 10.0.0.0 0.0.255.255 any", "permit ip 10.0.3.0 0.0.0.255 any", true),
            ("permit ip 10.0.3.0 0.0.0.255 any", "permit ip 10.0.0.0 0.0.255.255 any", false),
            ("permit ip 10.0.0.0 0.0.254.255 any", "permit ip 10.0.2.0 0.0.0.255 any", true),
            ("permit ip 10.0.0.0 0.0.254.255 any", "permit ip 10.0.3.0 0.0.0.255 any", false),
            // The later rule still permits fragments that have no ports.
            ("deny tcp any any eq 80", "permit tcp any any eq 80", false),
            ("permit tcp any any eq 80", "permit tcp any any eq 80", true),
            // The later rule still denies segments whose header is cut off.
            ("permit tcp any any eq 80", "deny tcp any any eq 80", false),
            ("permit ip any any", "permit ip any any fragments", true),
            ("permit ip any any fragments", "permit ip any any", false),
        ] {
            check(Kind::Extended, early, late, want);
        }
        check(Kind::Ipv6, "permit ipv6 2001:db8::/32 any", "deny tcp 2001:db8:1::/48 any", true);
        // A packet with too many extension headers has an unknown protocol, which the later rule denies.
        check(Kind::Ipv6, "permit tcp any any", "deny tcp any any eq 80", false);
        check(Kind::Mac, "permit any any", "deny host 0200.0000.0001 any 0x806 0", true);
    }
}
