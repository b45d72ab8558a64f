//! The actions for control frames, and the token buckets that protect the control plane from too many of
//! them.
//!
//! Invariant: a bucket never holds more than its burst, and a rate of 0 passes nothing. Its level is counted
//! in frames x 10^9, so that refilling by nanoseconds is exact in integers.

use crate::Timestamp;
use crate::state::{GlobalState, ReservedAction, TrapRate};
use lanyard_types::{PortId, TrapGroup, TrapReason, VlanId};
use std::collections::BTreeMap;

/// The level of one frame.
const FRAME: u64 = 1_000_000_000;

/// A token bucket, full at first.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate: TrapRate,
    level: u64,
    filled: Option<Timestamp>,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: TrapRate) -> Self {
        Self { rate, level: u64::from(rate.burst) * FRAME, filled: None }
    }
    /// Takes one frame's token; false when there is none.
    pub fn take(&mut self, now: Timestamp) -> bool {
        if self.rate == TrapRate::UNLIMITED {
            return true;
        }
        let elapsed_ns = self.filled.map_or(0, |filled| now.as_nanos().saturating_sub(filled.as_nanos()));
        self.filled = Some(self.filled.map_or(now, |filled| filled.max(now)));
        let refill =
            u64::try_from(u128::from(elapsed_ns) * u128::from(self.rate.rate_pps)).unwrap_or(u64::MAX);
        self.level = self.level.saturating_add(refill).min(u64::from(self.rate.burst) * FRAME);
        if self.rate.rate_pps == 0 || self.level < FRAME {
            return false;
        }
        self.level -= FRAME;
        true
    }
}

/// The trap stage's table.
#[derive(Debug)]
pub struct TrapTable {
    global: GlobalState,
    buckets: [TokenBucket; TrapGroup::SLOTS],
    /// The buckets of the ports' shares that have been used, at most one for each port and group.
    shares: [BTreeMap<PortId, TokenBucket>; TrapGroup::SLOTS],
    counters: [TrapCounters; TrapGroup::SLOTS],
    /// The number of frames that passed, by reason.
    reasons: [u64; TrapReason::SLOTS],
}

/// The counters of one trap group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrapCounters {
    /// Frames within the rate.
    pub passed: u64,
    /// Frames over the rate, dropped as `trap_policed`.
    pub policed: u64,
    /// Of those that passed: frames that were lost on the way to the control plane because a queue was full.
    pub lost: u64,
}

impl Default for TrapTable {
    fn default() -> Self {
        let global = GlobalState::default();
        let buckets = global.trap_rate.map(TokenBucket::new);
        Self {
            global,
            buckets,
            shares: Default::default(),
            counters: Default::default(),
            reasons: Default::default(),
        }
    }
}

impl TrapTable {
    /// The action for reserved address 01:80:C2:00:00:0`nibble`.
    #[must_use]
    pub fn reserved(&self, nibble: u8) -> ReservedAction {
        self.global.reserved[usize::from(nibble & 15)]
    }
    /// True when PVST+ BPDUs in this VLAN are trapped; `None` is for a frame that belongs to no VLAN.
    #[must_use]
    pub fn pvst(&self, vlan: Option<VlanId>) -> bool {
        vlan.map_or(!self.global.trap_pvst.is_empty(), |vlan| self.global.trap_pvst.contains(vlan))
    }
    /// The present settings.
    #[must_use]
    pub fn global(&self) -> &GlobalState {
        &self.global
    }
    /// Takes a token of the port's share and then one of the group for a frame trapped for `reason`; false when either
    /// has none. A frame over the port's share takes no token of the group.
    pub fn admit(&mut self, reason: TrapReason, port: PortId, now: Timestamp) -> bool {
        let group = reason.group().index();
        let rate = self.global.trap_port_rate[group];
        let share = self.shares[group].entry(port).or_insert_with(|| TokenBucket::new(rate));
        let admitted = share.take(now) && self.buckets[group].take(now);
        let counters = &mut self.counters[group];
        *if admitted { &mut counters.passed } else { &mut counters.policed } += 1;
        self.reasons[reason.index()] += u64::from(admitted);
        admitted
    }
    /// The counters of each group; `lost` is not known here.
    #[must_use]
    pub const fn counters(&self) -> &[TrapCounters; TrapGroup::SLOTS] {
        &self.counters
    }
    /// Frames that passed, by reason.
    #[must_use]
    pub const fn reasons(&self) -> &[u64; TrapReason::SLOTS] {
        &self.reasons
    }
    /// Replaces the settings. A bucket whose rate changes is full again; the others keep their level.
    pub fn set(&mut self, global: GlobalState) {
        for (bucket, rate) in self.buckets.iter_mut().zip(global.trap_rate) {
            if bucket.rate != rate {
                *bucket = TokenBucket::new(rate);
            }
        }
        let rates = self.global.trap_port_rate.iter().zip(&global.trap_port_rate);
        for (shares, (old, new)) in self.shares.iter_mut().zip(rates) {
            if old != new {
                shares.clear();
            }
        }
        self.global = global;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers frames at these times (ns), and checks which of them pass.
    fn check(rate_pps: u32, burst: u32, offered: &[(u64, bool)]) {
        let mut bucket = TokenBucket::new(TrapRate { rate_pps, burst });
        for (at, (ns, want)) in offered.iter().enumerate() {
            assert_eq!(
                bucket.take(Timestamp::from_nanos(*ns)),
                *want,
                "frame {at} at {ns} ns, {rate_pps}/{burst}"
            );
        }
    }

    #[test]
    fn starts_full_and_refills_by_the_nanosecond() {
        let s = 1_000_000_000;
        check(
            10,
            2,
            &[(0, true), (0, true), (0, false), (s / 10 - 1, false), (s / 10, true), (s / 10, false)],
        );
        check(
            1,
            3,
            &[
                (5, true),
                (5, true),
                (5, true),
                (5, false),
                (100 * s, true),
                (100 * s, true),
                (100 * s, true),
                (100 * s, false),
            ],
        );
        check(3, 1, &[(0, true), (333_333_333, false), (333_333_334, true)]);
    }

    #[test]
    fn a_port_has_a_share() {
        let mut table = TrapTable::default();
        let mut global = GlobalState::default();
        let group = TrapGroup::Stp.index();
        global.trap_rate[group] = TrapRate { rate_pps: 1, burst: 5 };
        global.trap_port_rate[group] = TrapRate { rate_pps: 1, burst: 3 };
        table.set(global);
        let mut offer = |port: u16, times: usize| {
            let port = PortId::new(port).expect("a port");
            (0..times).filter(|_| table.admit(TrapReason::Bpdu, port, Timestamp::from_nanos(0))).count()
        };
        assert_eq!(offer(1, 1000), 3, "a flood has its share");
        assert_eq!(offer(2, 1), 1, "and takes nothing from others");
        assert_eq!(offer(3, 3), 1, "all together have what the group has");
        assert_eq!(table.counters()[group], TrapCounters { passed: 5, policed: 999, lost: 0 });
        assert_eq!(table.counters()[TrapGroup::Slow.index()], TrapCounters::default());
    }

    #[test]
    fn edges() {
        check(0, 5, &[(0, false), (u64::MAX, false)]);
        check(5, 0, &[(0, false), (u64::MAX, false)]);
        check(u32::MAX, u32::MAX, &[(0, true), (u64::MAX, true)]);
        check(1, 1, &[(1000, true), (0, false), (1000, false)]); // a clock that steps back refills nothing
    }
}
