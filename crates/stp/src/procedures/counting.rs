//! Counting to infinity, and how it is cut short. This is not in the standard. Read Elmeleegy, Cox and Ng, "On
//! Count-to-Infinity Induced Forwarding Loops in Ethernet Networks" (2006), for what happens without it.
//!
//! When the path to a root is lost, the old information that alternate ports still hold can circulate in a cycle of
//! bridges, with a higher cost each time, until max age, max hops or a real but costlier path ends it. Once the hold
//! count limits transmission, each hop takes a second. A bridge on the cycle can notice this: it receives, again and
//! again, information about the same root that is no better than what it has itself sent before. After [`LIMIT`] times
//! it ignores such information for [`HOLD_MS`] and claims to be root, which breaks the cycle. Information that is
//! better than what the bridge sent cannot be its own, and is accepted at once.
//!
//! Links that fail one after the other cause worse information, too, and must not be taken for a cycle: information
//! counts only when it follows other such information within [`MEMORY_MS`], and a path that is as good as the best one
//! so far resets the count. A ring that is cut, repaired and cut again never counts beyond one.
//!
//! Invariant: information is ignored only while a hold lasts, and a hold always ends.

use crate::bpdu::BridgeId;
use crate::entity::Entity;
use crate::vars::{Counting, Timer, Vector};

/// The number of times that information no better than what the bridge has sent itself must arrive before the bridge
/// assumes a cycle. A ring that changes its direction after a failure causes one.
const LIMIT: u8 = 3;
/// The duration of a hold, in which the bridge ignores such information, in milliseconds: long enough for circulating
/// information to end at the bridge although each hop takes up to a second.
const HOLD_MS: u64 = 3000;
/// The time in milliseconds without such information after which the bridge forgets what it has sent. A cycle begins
/// at the speed of its links, until the hold count slows it down.
const MEMORY_MS: u64 = 3000;

impl Entity {
    /// The (regional) root that a vector claims.
    fn claimed(t: usize, vector: &Vector) -> BridgeId {
        if t == 0 { vector.root } else { vector.regional_root }
    }

    /// False while a hold lasts and the vector may derive from information that this bridge sent itself.
    pub(crate) fn believable(&self, t: usize, vector: &Vector) -> bool {
        let counting = &self.trees[t].counting;
        !self.bridge.counting_guard
            || counting.hold.is_zero(self.now)
            || Self::claimed(t, vector) != Self::claimed(t, &counting.advertised)
            || *vector < counting.advertised
    }

    /// Records the information that the bridge is about to use: `held` is the root port's, and `offer` is what the
    /// bridge will send as a result. Returns true when the limit is reached and a hold has begun.
    pub(crate) fn counts_to_infinity(&mut self, t: usize, held: &Vector, offer: &Vector) -> bool {
        if !self.bridge.counting_guard {
            return false;
        }
        let now = self.now;
        let tree = &mut self.trees[t];
        let before = tree.root_priority;
        let counting = &mut tree.counting;
        let root = Self::claimed(t, offer);
        let known = Self::claimed(t, &counting.advertised);
        let held_back = !counting.hold.is_zero(now);
        let stale = !held_back && now >= counting.last_ms + MEMORY_MS;
        if stale || root < known || (root == known && *offer <= counting.advertised) {
            *counting = Counting { advertised: *offer, last_ms: now, ..Counting::default() };
            return false;
        }
        // Only information about the recorded root counts.
        if root != known || *held < counting.advertised || *offer == before {
            return false;
        }
        counting.times += 1;
        counting.last_ms = now;
        if counting.times < LIMIT {
            return false;
        }
        counting.times = 0;
        counting.hold = Timer::start(now, HOLD_MS);
        self.wake_at(now + HOLD_MS);
        true
    }

    /// Ends holds that are over: the tree's roles are computed again from all information.
    pub(crate) fn end_holds(&mut self) {
        for t in 0..self.trees.len() {
            let counting = &mut self.trees[t].counting;
            if counting.hold != Timer::Zero && counting.hold.is_zero(self.now) {
                *counting = Counting::default();
                self.reselect_all(t);
            } else if let Some(at) = counting.hold.deadline(self.now) {
                self.wake_at(at);
            }
        }
    }
}
