//! The structs of `bpf/trial.h`, as they are stored in the BPF maps.
//!
//! Invariant: a struct here has the size and the order of its namesake there.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The most streams of one trial. The stream number of a stamp has the stream's slot in its lower bits and the
/// trial's epoch in its upper bits.
pub const SLOTS_MAX: usize = 1 << SLOT_BITS;
/// Bits of a slot.
pub const SLOT_BITS: u32 = 10;
/// The number of epochs; the number starts again at 0 after the last one.
pub const EPOCHS: u32 = 1 << (16 - SLOT_BITS);
/// The length in bytes of the longest header: Ethernet, a tag, IPv6, UDP, stamp.
pub const HEAD_MAX: usize = 80;
/// The value of every byte of the payload after the stamp.
pub const FILL: u8 = 0xa5;
/// The number of words in the window in which a duplicate can be distinguished from a late frame.
pub const WINDOW_WORDS: usize = 512;

pub const SEND_RANDOM: u16 = 1 << 0;
pub const SEND_STAMP: u16 = 1 << 1;
pub const SEND_VERIFY: u16 = 1 << 2;
pub const SEND_CHECKSUM: u16 = 1 << 3;
pub const SEND_DST_MAC: u16 = 1 << 4;
pub const SEND_DST_IP: u16 = 1 << 5;
pub const SEND_DST_GROUP: u16 = 1 << 6;

/// `struct sender`.
#[derive(Debug, Clone, Copy, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SenderAbi {
    pub head: [u8; HEAD_MAX],
    pub sent: u64,
    pub limit: u64,
    pub due_256: u64,
    pub debt_256: u64,
    pub interval_256: u64,
    pub later_256: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub src_first: u32,
    pub src_count: u32,
    pub next_src: u32,
    pub dst_first: u32,
    pub dst_count: u32,
    pub next_dst: u32,
    pub ip_sum: u32,
    pub udp_sum: u32,
    pub port: u32,
    pub length: u16,
    pub flags: u16,
    pub tagged: u8,
    pub layout: u8,
    pub pad: [u8; 6],
}
const _: () = assert!(size_of::<SenderAbi>() == 192);

/// `struct sending`.
#[derive(Debug, Clone, Copy, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SendingAbi {
    pub start_ns: u64,
    pub end_ns: u64,
    pub change_ns: u64,
    pub now_ns: u64,
    pub runs: u64,
    pub streams: u32,
    pub unfinished: u32,
    pub position: u32,
    pub done: u32,
    pub every_run: u32,
    pub pad: u32,
}
const _: () = assert!(size_of::<SendingAbi>() == 64);

/// `struct flow`.
#[derive(Debug, Clone, Copy, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FlowAbi {
    pub lock: u32,
    pub verify: u32,
    pub received: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub corrupted: u64,
    pub next: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub gap_at_ns: u64,
    pub gap_ns: u64,
    pub loss_ns: u64,
    pub latency_sum: u64,
    pub latency_min: u64,
    pub latency_max: u64,
    pub window: [u64; WINDOW_WORDS],
    pub buckets: [u32; crate::histogram::BUCKETS],
}
const _: () = assert!(size_of::<FlowAbi>() == 112 + 8 * WINDOW_WORDS + 4 * crate::histogram::BUCKETS);

impl FlowAbi {
    /// The state of a flow of which nothing has arrived.
    pub const fn empty(verify: bool) -> Self {
        Self {
            lock: 0,
            verify: verify as u32,
            received: 0,
            duplicated: 0,
            reordered: 0,
            corrupted: 0,
            next: 0,
            first_ns: 0,
            last_ns: 0,
            gap_at_ns: 0,
            gap_ns: 0,
            loss_ns: 0,
            latency_sum: 0,
            latency_min: u64::MAX,
            latency_max: 0,
            window: [0; WINDOW_WORDS],
            buckets: [0; crate::histogram::BUCKETS],
        }
    }
}

/// `struct judging`.
#[derive(Debug, Clone, Copy, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct JudgingAbi {
    pub epoch: u32,
    pub streams: u32,
    pub unidentified: u64,
}
const _: () = assert!(size_of::<JudgingAbi>() == 16);
