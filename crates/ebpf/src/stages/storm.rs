//! storm: the rates of broadcast, multicast and unknown unicast of each port. See `bpf/stages/storm.h`.

use crate::abi::{self, constants, structures};
use crate::rate::clock;
use lanyard_pipeline::state::{PortState, TrapRate};
use lanyard_types::{PortId, StormKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

constants! {
    PORT_STORM: u32 = 0x400;
    STORM_KINDS: usize = 4;
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
    }
}

const _: () = assert!(StormKind::SLOTS <= STORM_KINDS);

pub(super) const ROWS: usize = STORM_KINDS * abi::PORTS;

/// Lets everything pass.
pub(super) const IDLE: Row = Row { interval_ns: 1, tolerance_ns: 0, arrival_ns: 0 };

pub(super) fn flags(port: &PortState) -> u32 {
    if port.stages.storm_pps.iter().any(Option::is_some) { PORT_STORM } else { 0 }
}

/// A bucket holds what one second lets in. One whose rate changes is filled.
pub(super) fn rows(id: PortId, port: Option<&PortState>) -> impl Iterator<Item = (usize, Row)> {
    let rates = port.map(|port| port.stages.storm_pps).unwrap_or_default();
    StormKind::ALL.iter().map(move |kind| {
        let row = rates[kind.index()].map_or(IDLE, |rate_pps| {
            let (interval_ns, tolerance_ns) = clock(&TrapRate { rate_pps, burst: rate_pps });
            Row { interval_ns, tolerance_ns, arrival_ns: 0 }
        });
        (kind.index() * abi::PORTS + id.index(), row)
    })
}

pub(super) fn same(held: &Row, row: &Row) -> bool {
    (held.interval_ns, held.tolerance_ns) == (row.interval_ns, row.tolerance_ns)
}
