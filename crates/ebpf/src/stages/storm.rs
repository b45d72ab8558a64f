//! storm: the rates of broadcast, multicast and unknown unicast of each port. See `bpf/stages/storm.h`.

use crate::abi::{self, constants, structures};
use crate::rate::clock;
use lanyard_pipeline::state::{PortState, TrapRate};
use lanyard_types::{PortId, StormKind, StormLevel};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

constants! {
    PORT_STORM: u32 = 0x400;
    STORM_KINDS: usize = 4;
    STORM_COST_SHIFT: u32 = 16;
    STORM_TIME_SHIFT: u32 = 6;
    STORM_BROADCAST: u8 = StormKind::Broadcast as u8;
    STORM_MULTICAST: u8 = StormKind::Multicast as u8;
    STORM_UNICAST: u8 = StormKind::Unicast as u8;
}

structures! {
    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_storm = Row {
        pub interval_ns: u64,
        pub tolerance_ns: u64,
        pub arrival_ns: u64,
        pub byte_cost: u64,
    }
}

const _: () = assert!(StormKind::SLOTS <= STORM_KINDS);

pub(super) const ROWS: usize = STORM_KINDS * abi::PORTS;

/// Lets everything pass.
pub(super) const IDLE: Row = Row { interval_ns: 1, tolerance_ns: 0, arrival_ns: 0, byte_cost: 0 };

pub(super) fn flags(port: &PortState) -> u32 {
    if port.stages.storm.iter().any(Option::is_some) { PORT_STORM } else { 0 }
}

/// The most that a byte may cost, in units of 2^-16 ns, so that the programs' product with the length of any buffer fits into 64
/// bits.
const MAX_BYTE_COST: u64 = u64::MAX >> 20;

/// The rows of a port. A bucket holds the frames or bits of one second. A bucket whose rate changes begins full.
pub(super) fn rows(id: PortId, port: Option<&PortState>) -> impl Iterator<Item = (usize, Row)> {
    let levels = port.map(|port| port.stages.storm).unwrap_or_default();
    StormKind::ALL.iter().map(move |kind| {
        let row = levels[kind.index()].and_then(|level| level.at_speed(None)).map_or(IDLE, row);
        (kind.index() * abi::PORTS + id.index(), row)
    })
}

fn row(level: StormLevel) -> Row {
    match level {
        StormLevel::Pps(rate_pps) => {
            let (interval_ns, tolerance_ns) = clock(&TrapRate { rate_pps, burst: rate_pps });
            Row { interval_ns, tolerance_ns, ..IDLE }
        }
        StormLevel::Bps(0) => Row { interval_ns: 0, ..IDLE },
        StormLevel::Bps(bps) => {
            let cost = (8_000_000_000u128 << STORM_COST_SHIFT) / u128::from(bps);
            let byte_cost = u64::try_from(cost).unwrap_or(u64::MAX).clamp(1, MAX_BYTE_COST);
            // A frame passes while the bucket is not empty.
            Row { tolerance_ns: (1_000_000_000 << STORM_TIME_SHIFT) - 1, byte_cost, ..IDLE }
        }
        // `at_speed` has converted percentages.
        StormLevel::Percent(_) => IDLE,
    }
}

pub(super) fn same(held: &Row, row: &Row) -> bool {
    (held.interval_ns, held.tolerance_ns, held.byte_cost)
        == (row.interval_ns, row.tolerance_ns, row.byte_cost)
}
