//! mirror: the copies of each port's frames for monitor sessions. See `bpf/stages/mirror.h`.

use crate::abi::{self, constants, structures};
use lanyard_pipeline::state::PortState;
use lanyard_types::{MirrorCopy, PortId, PortMirror};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

constants! {
    PORT_MIRROR_RX: u32 = 0x400_0000;
    PORT_MIRROR_TX: u32 = 0x800_0000;
    PORT_MIRROR_TO: u32 = 0x1000_0000;
    MIRRORS: usize = PortMirror::MAX;
    MIRROR_RX: u32 = 0x01;
    MIRROR_TX: u32 = 0x02;
    MIRROR_KEEP_TAG: u32 = 0x04;
    MIRROR_ALL: u32 = 0x08;
    MIRROR_NAME_VLAN: u32 = 0x10;
}

structures! {
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_mirror = Row {
        pub to: u16,
        pub remote: u16,
        pub how: u32,
        pub vlans: [u64; abi::VLANS / 64],
    }
}

pub(super) const ROWS: usize = MIRRORS * abi::PORTS;

/// No copy.
pub(super) const IDLE: Row = Row { to: 0, remote: 0, how: 0, vlans: [0; abi::VLANS / 64] };

pub(super) fn flags(port: &PortState) -> u32 {
    let mirror = &port.stages.mirror;
    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
    flag(mirror.receives(), PORT_MIRROR_RX)
        | flag(mirror.sends(), PORT_MIRROR_TX)
        | flag(mirror.destination, PORT_MIRROR_TO)
}

pub(super) fn rows(id: PortId, port: Option<&PortState>) -> impl Iterator<Item = (usize, Row)> {
    let copies = port.map_or(&[][..], |port| &port.stages.mirror.copies);
    (0..MIRRORS).map(move |n| (n * abi::PORTS + id.index(), copies.get(n).map_or(IDLE, row)))
}

fn row(copy: &MirrorCopy) -> Row {
    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
    let how = flag(copy.received, MIRROR_RX)
        | flag(copy.sent, MIRROR_TX)
        | flag(copy.keep_tag, MIRROR_KEEP_TAG)
        | flag(copy.vlans.is_none(), MIRROR_ALL)
        | flag(copy.name_vlan, MIRROR_NAME_VLAN);
    Row {
        to: copy.to.get(),
        remote: copy.remote.map_or(0, |vlan| vlan.get()),
        how,
        vlans: copy.vlans.as_ref().map_or(IDLE.vlans, |vlans| *vlans.words()),
    }
}

pub(super) fn same(held: &Row, row: &Row) -> bool {
    (held.to, held.remote, held.how, held.vlans) == (row.to, row.remote, row.how, row.vlans)
}
