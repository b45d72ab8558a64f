//! sample: the chance with which frames of each port are sampled, and the records of the ring `samples`. See
//! `bpf/stages/sample.h`.

use crate::abi::{self, constants, structures};
use lanyard_pipeline::state::PortState;
use lanyard_plane::PlaneEvent;
use lanyard_types::{PortId, SamplingRate};
use lanyard_wire::{Tag, push};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

constants! {
    PORT_SAMPLE: u32 = 0x80_0000;
    SAMPLE_BYTES: usize = SamplingRate::HEAD;
    SAMPLE_INTERVAL_NS: u64 = SamplingRate::INTERVAL_NS;
    SAMPLE_BURST: u64 = SamplingRate::BURST;
}

structures! {
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_sample = Row {
        pub chance: u64,
    }

    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_sampled = Record {
        pub len: u32,
        pub pool: u32,
        pub drops: u32,
        pub port: u16,
        pub size: u16,
        pub tag_proto: u16,
        pub tag_tci: u16,
        pub byte: [u8; SAMPLE_BYTES],
    }
}

pub(super) const ROWS: usize = abi::PORTS;

/// Nothing is sampled.
pub(super) const IDLE: Row = Row { chance: 0 };

pub(super) fn flags(port: &PortState) -> u32 {
    if port.stages.sample.is_some() { PORT_SAMPLE } else { 0 }
}

pub(super) fn rows(id: PortId, port: Option<&PortState>) -> impl Iterator<Item = (usize, Row)> {
    let rate = port.and_then(|port| port.stages.sample);
    [(id.index(), rate.map_or(IDLE, |rate| Row { chance: rate.chance() }))].into_iter()
}

pub(super) fn same(held: &Row, row: &Row) -> bool {
    held.chance == row.chance
}

/// The sample in a record of the ring.
pub(crate) fn sampled(record: &[u8]) -> Option<PlaneEvent> {
    let (record, _) = Record::read_from_prefix(record).ok()?;
    let mut head = record.byte.get(..usize::from(record.size))?.to_vec();
    if record.tag_proto != 0 {
        push(&mut head, record.tag_proto, Tag::from_tci(record.tag_tci)).ok()?;
        head.truncate(SAMPLE_BYTES);
    }
    let (port, len) = (PortId::new(record.port)?, record.len);
    Some(PlaneEvent::Sampled { port, len, pool: record.pool, drops: record.drops, head })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_tag_in_line() {
        let mut record = Record {
            len: 1004,
            pool: 7,
            drops: 2,
            port: 3,
            size: 128,
            tag_proto: 0x8100,
            tag_tci: 0xa00a,
            byte: std::array::from_fn(|n| n as u8),
        };
        let Some(PlaneEvent::Sampled { port, len, pool, drops, head }) = sampled(record.as_bytes()) else {
            unreachable!("a sample")
        };
        assert_eq!((port.get(), len, pool, drops, head.len()), (3, 1004, 7, 2, 128));
        assert_eq!(head[12..18], [0x81, 0, 0xa0, 0x0a, 12, 13]);
        record.size = 129;
        assert_eq!(sampled(record.as_bytes()), None, "longer than its room");
        assert_eq!(sampled(&record.as_bytes()[..60]), None, "too short");
    }
}
