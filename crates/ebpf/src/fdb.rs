//! Decodes FDB entries, as `fdb_key_of` and `fdb_value` in `bpf/fdb.h` do, for reading the whole
//! table.
//!
//! Read first: the layout of an entry in `bpf/abi.h`. Invariant: the hash is a permutation of
//! 59-bit words, so a bucket's number and a tag determine the key.

use crate::abi::{
    self, FDB_KINDS as KINDS, FDB_LONG_AGO as LONG_AGO, FDB_NEAR_BITS as NEAR_BITS,
    FDB_PORT_MASK as PORT_MASK, FDB_SECOND as SECOND, FDB_SEEN_SHIFT as SEEN_SHIFT,
    FDB_TAG_SHIFT as TAG_SHIFT, FdbCall, FdbValue, HASH_A as A,
};
use lanyard_plane::{FdbFilter, FdbKind};
use lanyard_types::PortId;

pub(crate) const MASK: u64 = (1 << 59) - 1;
pub(crate) const A_INVERSE: u64 = 0xf1de_83e1_9937_733d;
pub(crate) const B_INVERSE: u64 = 0xcfee_444d_8b59_a89b;

/// Computes a key from its hash.
const fn unhash(hash: u64, salt: u64) -> u64 {
    let hash = (hash ^ hash >> 30).wrapping_mul(B_INVERSE) & MASK;
    let hash = (hash ^ hash >> 30).wrapping_mul(A_INVERSE) & MASK;
    let key = hash ^ salt & MASK;
    (key >> 47) << 48 | (key & ((1 << 47) - 1)) << 1
}

/// The key and the value of the entry that `word` in `bucket` contains; `None` for a free way.
pub(crate) fn entry(salt: u64, bucket: u32, word: u64, updated_s: u32) -> Option<(u64, FdbValue)> {
    if word == 0 {
        return None;
    }
    let hash = word >> TAG_SHIFT << NEAR_BITS;
    let stride = ((hash >> NEAR_BITS).wrapping_mul(A) >> 40) as u32 | 1;
    let first = if word & SECOND != 0 { bucket ^ stride } else { bucket };
    let key = unhash(hash | u64::from(first & (abi::FDB_NEAR - 1)), salt);
    let seen = (word >> SEEN_SHIFT) as u8;
    let kind = if seen <= LONG_AGO { FdbKind::Dynamic as u8 } else { seen - KINDS };
    Some((key, FdbValue { updated_s, port: (word & PORT_MASK) as u16, kind }))
}

/// The call that flushes the entries that match `filter`; `None` when no entry can match.
pub(crate) fn flush_call(filter: &FdbFilter) -> Option<FdbCall> {
    if filter.kind.is_some_and(|kind| kind != FdbKind::Dynamic) {
        return None;
    }
    let vlan = filter.vlan.map_or(0, |vlan| u64::from(vlan.get()) << 48);
    Some(FdbCall {
        scan: abi::SCAN_FLUSH,
        key: vlan | filter.mac.map_or(0, abi::raw_mac),
        port: filter.port.map_or(0, PortId::get),
        ..FdbCall::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::HASH_B as B;

    #[test]
    fn the_hash_is_a_permutation() {
        assert_eq!((A.wrapping_mul(A_INVERSE), B.wrapping_mul(B_INVERSE)), (1, 1));
        let hash = |key: u64, salt: u64| {
            let word = (key >> 48) << 47 | (key & ((1 << 48) - 1)) >> 1;
            let word = (word ^ salt).wrapping_mul(A) & MASK;
            let word = (word ^ word >> 30).wrapping_mul(B) & MASK;
            word ^ word >> 30
        };
        for (n, salt) in [(1_u64, 0), (0xffff_ffff, u64::MAX), (77, 0x1234_5678_9abc_def0)] {
            let key = (n % 4095) << 48 | n.wrapping_mul(0x1_0001_0001) << 1 & 0xffff_ffff_ffff;
            assert_eq!(unhash(hash(key, salt), salt), key);
        }
    }

    #[test]
    fn free_and_fixed_words() {
        assert_eq!(entry(5, 7, 0, 9), None);
        let word = 0x1234 << TAG_SHIFT | u64::from(KINDS + 4) << SEEN_SHIFT | 9;
        let (_, value) = entry(5, 7, word, 0).expect("an entry");
        assert_eq!(value, FdbValue { updated_s: 0, port: 9, kind: FdbKind::SelfAddress as u8 });
    }
}
