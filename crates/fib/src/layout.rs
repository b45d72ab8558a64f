//! The layout of the tables in memory by the names that `bpf/fib.h` gives it. `lanyard-ebpf` compares both.

use crate::hash::Keys;
use crate::{LINE, blocks, hash, ipv4, ipv6, trie};

/// Bits of an address that a node of a trie consumes.
const NODE_BITS: u8 = 4;
/// The bits of an IPv6 address that are looked up before the deepest trie begins.
const DEEPEST: u8 = ipv6::HASHED[0].0;

/// Multipliers of the hash of a prefix; `LY_HASH_A` and `LY_HASH_B` in `bpf/abi.h`.
pub const HASH_A: u64 = hash::HASH_A;
/// See [`HASH_A`].
pub const HASH_B: u64 = hash::HASH_B;

/// Constants of the header and their values.
pub const CONSTANTS: &[(&str, u64)] = &[
    ("FIB_NODE", trie::NODE as u64),
    ("FIB_SKIP", trie::SKIP as u64),
    ("FIB_LINE_MASK", trie::LINE_MASK as u64),
    // A node for each four bits, and the step that finds the leaf.
    ("FIB_DEPTH", ((128 - DEEPEST) / NODE_BITS + 1) as u64),
    ("FIB4_DEPTH", ((32 - 24) / NODE_BITS + 1) as u64),
    ("FIB_CHAIN", hash::CHAIN as u64),
    ("FIB_NEXT", hash::NEXT as u64),
    ("FIB_BUCKETS", hash::COUNT_SHIFT as u64),
    ("FIB_SLOTS_24", Keys::SHORT.slots as u64),
    ("FIB_SLOTS_48", Keys::MIDDLE.slots as u64),
    ("FIB_SLOTS_64", Keys::LONG.slots as u64),
    ("FIB4_DIVIDED", blocks::DIVIDED as u64),
    ("FIB4_LAYOUT", blocks::LAYOUT_SHIFT as u64),
    ("FIB4_BLOCKS", (ipv4::BLOCKS_AT / LINE) as u64),
    ("FIB4_HASH", ipv4::HASH as u64),
    ("FIB4_WHOLE", blocks::WHOLE as u64),
    ("FIB4_SINGLE", blocks::SINGLE as u64),
    ("FIB4_PAIRS", blocks::SINGLE as u64 + 1),
    ("FIB4_NIBBLES", blocks::NIBBLES as u64),
    ("FIB4_BYTES", blocks::BYTES as u64),
    ("FIB4_WORDS", blocks::WORDS as u64),
    ("FIB4_TO_BYTES", blocks::TO_BYTES as u64),
    ("FIB6_ENTRIES", ipv6::ENTRIES as u64),
];

/// Fields of the header's structures: structure, field, offset in bytes. Each structure is one line.
pub const OFFSETS: &[(&str, &str, usize)] = &[
    ("fib_header", "otherwise", 0),
    ("fib_header", "hash[0]", 4 * ipv6::HASHED[0].1),
    ("fib_header", "hash[1]", 4 * ipv6::HASHED[1].1),
    ("fib_header", "changes", 4 * ipv6::CHANGES),
    ("fib_skip", "match", 4 * trie::MATCH),
    ("fib_skip", "mask", 4 * trie::MASK),
    ("fib_skip", "child", 4 * trie::CHILD),
    ("fib_skip", "otherwise", 4 * trie::OTHERWISE),
    ("fib_skip", "bits", 4 * trie::BITS),
];
