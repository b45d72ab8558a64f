//! The assignment of a group's buckets to its members.
//!
//! Read first: RFC 2992 (why flows should keep their next hop), and ip-nexthop(8) on resilient groups.
//!
//! Invariant: pure functions. When a member leaves, only its buckets are reassigned; when one is added, only the
//! buckets that it receives are. The buckets of a dead member are lent to the others and return to it when it recovers.

use lanyard_plane::BUCKETS;
use std::collections::{BTreeMap, BTreeSet};

/// Buckets per unit of weight. With several of them, one bucket lent or reassigned is a small part of a member's share.
const FINENESS: u64 = 8;
/// The least number of buckets of a group with several members.
const LEAST: u64 = 16;

/// A member: the slot number of its adjacency, and its weight.
pub(super) type Member = (u32, u32);

/// Returns the owner of each bucket. The number of buckets is a power of two, and shares follow the weights to within
/// one bucket. A bucket keeps its owner of `previous` where the owner's share allows it. `members` has 1 to [`BUCKETS`]
/// entries without repetition.
pub(super) fn assign(members: &[Member], previous: &[u32]) -> Vec<u32> {
    if let [(only, _)] = members {
        return vec![*only];
    }
    let total: u64 = members.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let wanted = (total * FINENESS).clamp(LEAST, BUCKETS as u64).max(members.len() as u64);
    let count = (wanted as usize).next_power_of_two().max(previous.len()).min(BUCKETS);
    let mut left = quotas(members, total, count);
    // When the table doubles, bucket N + half takes the same flows as bucket N did before.
    let kept = |at: usize| previous.len().checked_sub(1).map(|mask| previous[at & mask]);
    let mut owners: Vec<Option<u32>> = Vec::with_capacity(count);
    for at in 0..count {
        let owner = kept(at).filter(|owner| left.get(owner).is_some_and(|left| *left > 0));
        if let Some(left) = owner.and_then(|owner| left.get_mut(&owner)) {
            *left -= 1;
        }
        owners.push(owner);
    }
    // There are as many turns as free buckets, so each member gets exactly the number that it is still due.
    let due = |(member, _): &Member| left.get(member).map(|left| (*member, *left));
    let mut turn = Turns::new(members.iter().filter_map(due).filter(|(_, left)| *left > 0));
    owners.into_iter().map(|owner| owner.unwrap_or_else(|| turn.next())).collect()
}

/// Returns `owners` with the buckets of the `dead` members lent to the others. If all are dead, `owners` is returned
/// unchanged.
pub(super) fn lend(owners: &[u32], members: &[Member], dead: &BTreeSet<u32>) -> Vec<u32> {
    let mut alive = members.iter().copied().filter(|(member, _)| !dead.contains(member)).peekable();
    if dead.is_empty() || alive.peek().is_none() {
        return owners.to_vec();
    }
    let mut turn = Turns::new(alive);
    owners.iter().map(|owner| if dead.contains(owner) { turn.next() } else { *owner }).collect()
}

/// Returns each member's number of buckets: its share rounded down, with the remaining buckets given to the largest
/// remainders, but at least one.
fn quotas(members: &[Member], total: u64, count: usize) -> BTreeMap<u32, u32> {
    let count = count as u64;
    let mut quotas: Vec<(u32, u64, u64)> = Vec::with_capacity(members.len());
    for (member, weight) in members {
        let share = u64::from(*weight) * count;
        // A member that was raised to one bucket gets none of the remaining ones.
        let (quota, rest) = if share < total { (1, 0) } else { (share / total, share % total) };
        quotas.push((*member, quota, rest));
    }
    let mut given: u64 = quotas.iter().map(|(_, quota, _)| quota).sum();
    let mut order: Vec<usize> = (0..quotas.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(quotas[*at].2));
    for at in order.iter().cycle() {
        if given >= count {
            break;
        }
        quotas[*at].1 += 1;
        given += 1;
    }
    // The members with the most buckets give up those that the raised members received.
    while given > count {
        let Some(largest) = quotas.iter_mut().max_by_key(|(_, quota, _)| *quota) else { break };
        largest.1 -= 1;
        given -= 1;
    }
    quotas.into_iter().map(|(member, quota, _)| (member, quota as u32)).collect()
}

/// Lets members take turns, each as often as its weight says and as evenly spread as possible.
struct Turns {
    members: Vec<(u32, i64, i64)>,
    total: i64,
}

impl Turns {
    fn new(members: impl Iterator<Item = Member>) -> Self {
        let members: Vec<_> = members.map(|(member, weight)| (member, i64::from(weight), 0)).collect();
        let total = members.iter().map(|(_, weight, _)| weight).sum();
        Self { members, total }
    }
    /// The member whose turn it is. There must be at least one member.
    fn next(&mut self) -> u32 {
        for (_, weight, credit) in &mut self.members {
            *credit += *weight;
        }
        // The first of those with the highest credit.
        let mut best = 0;
        for at in 1..self.members.len() {
            if self.members[at].2 > self.members[best].2 {
                best = at;
            }
        }
        self.members[best].2 -= self.total;
        self.members[best].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(owners: &[u32]) -> BTreeMap<u32, usize> {
        owners.iter().fold(BTreeMap::new(), |mut counts, owner| {
            *counts.entry(*owner).or_default() += 1;
            counts
        })
    }

    fn members() -> impl Strategy<Value = Vec<Member>> {
        prop::collection::btree_map(0u32..300, 1u32..=256, 1..40).prop_map(|map| map.into_iter().collect())
    }

    #[test]
    fn shares() {
        let check = |members: &[Member], buckets: usize, want: &[(u32, usize)]| {
            let owners = assign(members, &[]);
            assert_eq!(owners.len(), buckets, "{members:?}");
            assert_eq!(count(&owners).into_iter().collect::<Vec<_>>(), want, "{members:?}");
        };
        check(&[(7, 200)], 1, &[(7, 1)]);
        check(&[(1, 1), (2, 1)], 16, &[(1, 8), (2, 8)]);
        check(&[(1, 1), (2, 3)], 32, &[(1, 8), (2, 24)]);
        check(&[(1, 1), (2, 1), (3, 1)], 32, &[(1, 11), (2, 11), (3, 10)]);
        check(&[(1, 1), (2, 256)], 256, &[(1, 1), (2, 255)]);
        let many: Vec<Member> = (0..256).map(|n| (n, 1)).collect();
        assert_eq!(count(&assign(&many, &[])).len(), 256);
    }

    proptest! {
        #[test]
        fn weights_are_kept(members in members()) {
            let owners = assign(&members, &[]);
            prop_assert!(owners.len().is_power_of_two() && owners.len() <= BUCKETS);
            let (counts, total) = (count(&owners), members.iter().map(|(_, w)| u64::from(*w)).sum::<u64>());
            let ones = counts.values().filter(|count| **count == 1).count() as u64;
            for (member, weight) in &members {
                let (ideal, got) = (u64::from(*weight) * owners.len() as u64 / total, counts[member] as u64);
                prop_assert!(got >= 1 && got <= ideal + 1 && got + 1 + ones >= ideal, "{member}: {got} of {ideal}");
            }
        }

        #[test]
        fn a_leaving_member_moves_only_its_own_buckets(members in members(), gone in any::<prop::sample::Index>()) {
            prop_assume!(members.len() > 2);
            let before = assign(&members, &[]);
            let gone = members[gone.index(members.len())].0;
            let rest: Vec<Member> = members.iter().copied().filter(|(member, _)| *member != gone).collect();
            let after = assign(&rest, &before);
            prop_assert_eq!(after.len(), before.len());
            let moved = before.iter().zip(&after).filter(|(old, new)| old != new && **old != gone).count();
            // By rounding, each of the other members may lose one bucket.
            prop_assert!(moved <= members.len(), "{moved}");
            let back = assign(&members, &after);
            let moved = after.iter().zip(&back).filter(|(old, new)| old != new && **new != gone).count();
            prop_assert!(moved <= members.len(), "{moved} on the way back");
        }

        #[test]
        fn the_dead_are_replaced_and_come_back(members in members(), dead in prop::collection::btree_set(0u32..300, 0..20)) {
            let owners = assign(&members, &[]);
            let lent = lend(&owners, &members, &dead);
            let all_dead = members.iter().all(|(member, _)| dead.contains(member));
            for (own, lent) in owners.iter().zip(&lent) {
                prop_assert!(all_dead || !dead.contains(lent));
                prop_assert!(own == lent || dead.contains(own) && !all_dead);
            }
            prop_assert_eq!(lend(&owners, &members, &BTreeSet::new()), owners);
        }
    }
}
