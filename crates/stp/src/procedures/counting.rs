//! Counting to infinity, and how it is cut short. Not in the standard; read Elmeleegy, Cox and Ng, "On
//! Count-to-Infinity Induced Forwarding Loops in Ethernet Networks" (2006), for what happens without it.
//!
//! When the way to a root is lost, what alternate ports still remember of it can go round in a cycle, a little
//! worse each time, until max age, max hops or a real but costlier way stops it; once the hold count bites, at one
//! BPDU a second and hop. A bridge on the cycle notices: again and again it is told of the same root something that
//! is no better than what it has itself told before. After [`LIMIT`] times it believes no such news for
//! [`HOLD_MS`], claims to be root meanwhile, and so breaks the cycle. What is better than what the bridge told can't
//! have come from itself, and is believed at once.
//!
//! Links that fail one after the other bring worse news, too, and must not be taken for a cycle: news counts only when it
//! follows on other such news within [`MEMORY_MS`], and a way that is as good again as the best there was ends the count.
//! A ring that is cut, mended and cut again never gets beyond one.
//!
//! Invariant: information is left out only while a hold lasts, and a hold always ends.

use crate::bpdu::BridgeId;
use crate::entity::Entity;
use crate::vars::{Counting, Timer, Vector};

/// Times that news is worse than what the bridge told itself, for it to be a cycle. A ring that turns round takes one.
const LIMIT: u8 = 3;
/// How long such news is not believed then: long enough for what circulates to come to an end at the bridge, while
/// each hop takes up to a second.
const HOLD_MS: u64 = 3000;
/// Without such news for as long, what was told before does not matter any more. A cycle begins to turn at the pace of its
/// links, until the hold count slows it down.
const MEMORY_MS: u64 = 3000;

impl Entity {
    /// Whose information it is: the (regional) root's.
    fn claimed(t: usize, vector: &Vector) -> BridgeId {
        if t == 0 { vector.root } else { vector.regional_root }
    }

    /// False while a hold lasts and the vector may be this bridge's own word coming back.
    pub(crate) fn believable(&self, t: usize, vector: &Vector) -> bool {
        let counting = &self.trees[t].counting;
        !self.bridge.counting_guard
            || counting.hold.is_zero(self.now)
            || Self::claimed(t, vector) != Self::claimed(t, &counting.told)
            || *vector < counting.told
    }

    /// Takes note of what the bridge is about to believe: `held`, the root port's information, which makes it tell
    /// `tells`. True when that is once too often, and a hold has begun.
    pub(crate) fn counts_to_infinity(&mut self, t: usize, held: &Vector, tells: &Vector) -> bool {
        if !self.bridge.counting_guard {
            return false;
        }
        let now = self.now;
        let tree = &mut self.trees[t];
        let before = tree.root_priority;
        let counting = &mut tree.counting;
        let root = Self::claimed(t, tells);
        let known = Self::claimed(t, &counting.told);
        let held_back = !counting.hold.is_zero(now);
        let stale = !held_back && now >= counting.last_ms + MEMORY_MS;
        if stale || root < known || (root == known && *tells <= counting.told) {
            *counting = Counting { told: *tells, last_ms: now, ..Counting::default() };
            return false;
        }
        // A root that is not the one watched says nothing about it.
        if root != known || *held < counting.told || *tells == before {
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

    /// Holds that are over: the tree's roles are computed anew, from everything.
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
