//! learn: the reports of violations of port security. See `bpf/stages/learn.h`.

use crate::abi::{self, constants, structures};
use lanyard_pipeline::stages::learn;
use lanyard_pipeline::state::PortState;
use lanyard_types::PortId;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

constants! {
    PORT_SECURE: u32 = 0x40_0000;
    VIOLATION_INTERVAL_NS: u64 = learn::VIOLATION_INTERVAL_NS;
}

structures! {
    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_learn = Row {
        pub reported_ns: u64,
    }
}

pub(super) const ROWS: usize = abi::PORTS;

/// The next violation is reported.
pub(super) const IDLE: Row = Row { reported_ns: 0 };

pub(super) fn flags(port: &PortState) -> u32 {
    if port.stages.secure { PORT_SECURE } else { 0 }
}

pub(super) fn rows(id: PortId, _port: Option<&PortState>) -> impl Iterator<Item = (usize, Row)> {
    std::iter::once((id.index(), IDLE))
}

/// The row has no settings, so that what the programs have written may stay.
pub(super) const fn same(_held: &Row, _row: &Row) -> bool {
    true
}
