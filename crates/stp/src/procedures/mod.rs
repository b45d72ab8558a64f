//! The procedures that the machines call (IEEE 802.1Q-2018, 13.29), and the conditions that read more than one
//! variable (13.28), under the standard's names. The conditions are here; `receiving`, `tree` and `sending`
//! contain the procedures.
//!
//! Invariant: a procedure changes variables and marks the machines that must run again; only the transmit
//! procedures and the state changes produce effects.

mod counting;
mod receiving;
mod sending;
mod tree;

use crate::bpdu::TICKS_PER_SECOND;
use crate::entity::Entity;
use crate::vars::{Role, Timer, ms};

impl Entity {
    /// HelloTime of the port's designatedTimes, in milliseconds.
    pub(crate) fn hello_time(&self, p: usize) -> u64 {
        ms(self.ports[p].trees[0].designated_times.hello_time.max(TICKS_PER_SECOND))
    }
    /// FwdDelay, in milliseconds.
    pub(crate) fn fwd_delay(&self, p: usize) -> u64 {
        ms(self.ports[p].trees[0].designated_times.forward_delay)
    }
    /// MaxAge, in milliseconds.
    pub(crate) fn max_age(&self, p: usize) -> u64 {
        ms(self.ports[p].trees[0].designated_times.max_age)
    }
    /// forwardDelay: FwdDelay, as in 802.1w-2001 and on a Catalyst. 802.1D-2004 uses HelloTime where the neighbour
    /// speaks RSTP. However, a neighbour that speaks RSTP and does not agree is counting to infinity or does not
    /// receive BPDUs, and forwarding after two hello times would then close a loop.
    pub(crate) fn forward_delay(&self, p: usize) -> u64 {
        self.fwd_delay(p)
    }
    /// EdgeDelay: MigrateTime on a point-to-point link, MaxAge otherwise. It is longer where BPDUs have been
    /// received: a bridge that holds better information than this port proposes is silent until that information
    /// has aged out.
    pub(crate) fn edge_delay(&self, p: usize) -> u64 {
        let port = &self.ports[p];
        let migrate = crate::vars::BridgeVars::MIGRATE_TIME_MS;
        match (port.params.point_to_point, port.heard_bridge) {
            (true, false) => migrate,
            (true, true) => migrate + 3 * self.hello_time(p),
            (false, _) => self.max_age(p),
        }
    }
    /// reRooted: no other port was root port recently.
    pub(crate) fn re_rooted(&self, p: usize, t: usize) -> bool {
        let now = self.now;
        self.ports.iter().enumerate().all(|(q, port)| q == p || port.trees[t].rr_while.is_zero(now))
    }
    /// allSynced (13.28.1), given a valid summary. Backup ports agree as alternate ports do (802.1D-2004).
    pub(crate) fn all_synced(&self, p: usize, t: usize) -> bool {
        let sync = &self.trees[t].sync;
        let port = &self.ports[p].trees[t];
        if !sync.valid || !sync.settled {
            return false;
        }
        match port.role {
            Role::Root | Role::Alternate | Role::Backup => sync.unsynced == sync.unsynced_root,
            Role::Designated | Role::Master => sync.unsynced == u32::from(!port.synced),
            Role::Disabled => false,
        }
    }
    /// Recomputes the summary for allSynced, once per change.
    pub(crate) fn refresh_sync(&mut self, t: usize) {
        if self.trees[t].sync.valid {
            return;
        }
        let mut sync = crate::vars::SyncSummary { valid: true, settled: true, unsynced: 0, unsynced_root: 0 };
        for port in &self.ports {
            let port = &port.trees[t];
            sync.settled &= port.selected && port.role == port.selected_role && !port.updt_info;
            sync.unsynced += u32::from(!port.synced);
            sync.unsynced_root += u32::from(!port.synced && port.role == Role::Root);
        }
        self.trees[t].sync = sync;
    }
    /// True if a guard blocks the port, or if it leads out of the region and the CIST does not forward there:
    /// across the boundary the neighbour takes part only in the CIST's handshakes, so an MSTI must not forward
    /// where the CIST does not.
    pub(crate) fn held_back(&self, p: usize, t: usize) -> bool {
        let port = &self.ports[p];
        let follows =
            t > 0 && if port.boundary { !port.trees[0].forward } else { self.region_in_doubt(p, t) };
        port.trees[t].inconsistent.blocks() || follows
    }
    /// True if the port leads to a bridge of the region that has not yet announced the same path to the CIST root.
    /// An MSTI that is connected there could join two exits of the region that the CIST keeps apart. A designated
    /// port waits for the neighbour's agreement instead; a port of any other role waits here.
    fn region_in_doubt(&self, p: usize, t: usize) -> bool {
        let port = &self.ports[p];
        port.trees[t].role != Role::Designated
            && !port.region_while.is_zero(self.now)
            && port.trees[0].msg_priority.of_region() != self.trees[0].root_priority.of_region()
    }
    /// True if no neighbour has to agree: for an edge port, and, in an MSTI, for a designated port out of the region.
    /// There the neighbour knows only the CIST, and [`Self::held_back`] enforces what the CIST demands.
    pub(crate) fn needs_no_agreement(&self, p: usize, t: usize) -> bool {
        let port = &self.ports[p];
        port.oper_edge || (t > 0 && port.boundary && port.trees[t].role == Role::Designated)
    }
    /// rcvdXstMsg: an MSTI's message waits until the CIST's has been processed.
    pub(crate) fn rcvd_xst_msg(&self, p: usize, t: usize) -> bool {
        let trees = &self.ports[p].trees;
        if t == 0 { trees[0].rcvd_msg } else { !trees[0].rcvd_msg && trees[t].rcvd_msg }
    }
    /// updtXstInfo.
    pub(crate) fn updt_xst_info(&self, p: usize, t: usize) -> bool {
        let trees = &self.ports[p].trees;
        trees[t].updt_info || trees[0].updt_info
    }
    /// True unless the link, the administration or the BPDU filter forbids the port to send.
    pub(crate) fn may_transmit(&self, p: usize) -> bool {
        let port = &self.ports[p];
        let filtered = port.params.filter_when_edge && port.oper_edge && port.sent_since_up >= 10;
        port.params.enabled && port.params.enable_bpdu_tx && !filtered
    }
}

/// How long an agreement may be in flight, in milliseconds: both directions of a link, and the neighbour's
/// processing.
const STALE_AGREEMENT_MS: u64 = 10;

impl crate::vars::PortTreeVars {
    /// True if an agreement that is received now can only refer to what the port now holds, or to something worse.
    fn agreements_count(&self, now: u64) -> bool {
        let advertised = self.conveyed.is_some_and(|(conveyed, _)| conveyed == self.designated_priority);
        advertised && self.stale_while.is_zero(now)
    }

    /// Records a transmission. When a designated port now conveys worse information than a moment ago, or has
    /// agreed as a root or alternate port in between, answers to the earlier information may still be in flight.
    /// `life_ms` is how long the neighbour may act on what the port conveyed: three hello times, after which information ages
    /// out.
    fn note_conveyed(&mut self, now: u64, life_ms: u64) {
        if self.role != Role::Designated {
            self.promised |= self.agree;
            return;
        }
        let recent = self.conveyed.filter(|(_, at)| now < at + life_ms);
        if recent.is_some_and(|(before, _)| self.promised || self.designated_priority > before) {
            self.stale_while = Timer::start(now, STALE_AGREEMENT_MS);
        }
        self.promised = false;
        self.conveyed = Some((self.designated_priority, now));
        self.advertised = Some(
            self.advertised
                .map_or(self.designated_priority, |advertised| advertised.min(self.designated_priority)),
        );
    }

    fn set_agreed(&mut self, agreed: bool) {
        self.agreed = agreed;
        if agreed {
            self.proposing = false;
            // A neighbour that agrees has received this port's BPDU, so the dispute is over.
            self.disputed = false;
            self.dispute_while = Timer::Zero;
        }
    }
}

/// The message age plus one second, rounded to the nearest second (13.29.34).
fn older_by_one(message_age: u16) -> u16 {
    let seconds = (u32::from(message_age) + 256 + 128) / 256;
    u16::try_from(seconds * 256).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vars::{PortTreeVars, Vector};

    /// A neighbour holds what it received for three hello times, also with a hello time of 10 s.
    #[test]
    fn worse_information_makes_agreements_stale_for_three_hello_times() {
        for (hello_ms, silent_ms, is_stale) in
            [(2000, 5_999, true), (2000, 6_000, false), (10_000, 10_000, true), (10_000, 30_000, false)]
        {
            let mut tree = PortTreeVars::new(20_000, Default::default());
            tree.role = Role::Designated;
            tree.note_conveyed(1000, 3 * hello_ms);
            tree.designated_priority = Vector { external_cost: 1, ..Vector::default() };
            tree.note_conveyed(1000 + silent_ms, 3 * hello_ms);
            assert_eq!(!tree.stale_while.is_zero(1000 + silent_ms), is_stale, "{hello_ms} {silent_ms}");
        }
    }
}
