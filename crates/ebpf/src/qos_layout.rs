//! The mirror of `bpf/qos.h`.

use crate::abi::{constants, structures};
use lanyard_pipeline::qos::{COST_SHIFT, Direction, MAX_CLASSES, TIME_SHIFT};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

constants! {
    QOS_CLASSES: usize = MAX_CLASSES;
    QOS_BLOCKS: usize = 512;
    QOS_KEEP: u8 = 0xff;
    QOS_COLOURS: usize = 3;
    QOS_COST_SHIFT: u32 = COST_SHIFT;
    QOS_TIME_SHIFT: u32 = TIME_SHIFT;
    QOS_FREE: u8 = 0;
    QOS_ONE_BUCKET: u8 = 1;
    QOS_OVERFLOW: u8 = 2;
    QOS_PEAK: u8 = 3;
    QOS_INPUT: u8 = Direction::Input as u8;
    QOS_OUTPUT: u8 = Direction::Output as u8;
    QOS_LIST_BITS: u32 = 10;
    QOS_BLOCK_SHIFT: u32 = 32;
    QOS_COUNT_SHIFT: u32 = 48;
    QOS_HAS_INPUT: u8 = 0x01;
    QOS_HAS_OUTPUT: u8 = 0x02;
    QOS_QUEUES: u16 = lanyard_pipeline::qos::MAX_QUEUES;
    QOS_MAJOR: u16 = lanyard_pipeline::qos::QUEUE_MAJOR;
}

structures! {
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_qos_row = Row {
        pub kind: u8,
        pub drops: u8,
        pub dscp: [u8; 3],
        pub cos: [u8; 3],
        pub queue: u32,
        pub pad: u32,
        pub byte_cost: [u64; 2],
        pub burst: [u64; 2],
        pub clock: [u64; 2],
        pub frames: [u64; 3],
        pub bytes: [u64; 3],
        pub unused: [u64; 2],
    }
}
