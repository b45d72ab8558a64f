//! The switch's own addresses, as the programs check them against a packet's source: `own_addresses`, a bitmap of
//! hashes.
//!
//! Invariants: the bit of every own address is set before the route of the address is in the tables, and is cleared
//! after that route has been removed. A bit that is set without need costs one look-up; a missing bit would let a
//! spoofed packet pass.

use crate::abi;
use crate::tables::Tables;
use ipnet::IpNet;
use lanyard_pipeline::route::RouteTarget;
use lanyard_types::{TrapReason, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

/// The routes to addresses of the switch itself.
#[derive(Debug, Default)]
pub(crate) struct Own(BTreeMap<VrfId, BTreeSet<IpNet>>);

/// True for the target of a route to the switch itself.
pub(crate) fn is_own(target: Option<RouteTarget>) -> bool {
    target == Some(RouteTarget::Up(TrapReason::LocalAddress))
}

impl Own {
    /// Notes a route to the switch itself, before it is written to the tables.
    pub(crate) fn add(&mut self, tables: &Tables, vrf: VrfId, prefix: IpNet) {
        self.0.entry(vrf).or_default().insert(prefix);
        self.set(tables, true);
    }
    /// Notes the removal of one route or of all of a VRF. While an adopted plane still uses other
    /// tables, `exact` is false, and their bits stay.
    pub(crate) fn remove(&mut self, tables: &Tables, vrf: VrfId, prefix: Option<IpNet>, exact: bool) {
        let list = self.0.entry(vrf).or_default();
        match prefix {
            Some(prefix) => drop(list.remove(&prefix)),
            None => list.clear(),
        }
        self.set(tables, !exact);
    }
    /// Writes the bits. With `keep`, bits that are set stay set.
    pub(crate) fn set(&self, tables: &Tables, keep: bool) {
        for (row, word) in self.words().iter().enumerate() {
            let there = tables.own_addresses.u64(row, 0);
            there.store(if keep { there.load(Relaxed) | word } else { *word }, Relaxed);
        }
    }
    fn words(&self) -> [u64; abi::OWN_WORDS] {
        let mut words = [0; abi::OWN_WORDS];
        for prefix in self.0.values().flatten() {
            if prefix.prefix_len() < prefix.max_prefix_len() {
                // There are too many addresses for one bit each: every source is looked up in the
                // FIB.
                return [u64::MAX; abi::OWN_WORDS];
            }
            let bit = bit(prefix.addr());
            words[bit / 64] |= 1 << (bit % 64);
        }
        words
    }
}

/// The bit of an address: own_source_possible() in `bpf/stages/route.h`.
fn bit(address: IpAddr) -> usize {
    let folded = match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (bits >> 64) as u64 ^ bits as u64
        }
    };
    (folded.wrapping_mul(abi::HASH_A) >> abi::OWN_SHIFT) as usize
}
