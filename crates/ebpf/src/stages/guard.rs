//! guard: the rates and settings of each port for first-hop security. See `bpf/stages/guard.h`; `crate::bindings` writes its
//! other tables.

use crate::abi::{self, constants, structures};
use crate::rate::clock;
use lanyard_pipeline::state::{PortKind, PortState, TrapRate};
use lanyard_types::{MAX_BINDINGS, PortGuard, PortId, PortLock, VerifySource};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

constants! {
    PORT_GUARD: u32 = 0x2000_0000;
    GUARD_DHCP_TRUST: u32 = 0x01;
    GUARD_ARP_TRUST: u32 = 0x02;
    GUARD_VERIFY: u32 = 0x04;
    GUARD_VERIFY_MAC: u32 = 0x08;
    GUARD_NO_ROUTERS: u32 = 0x10;
    GUARD_NO_SERVERS: u32 = 0x20;
    GUARD_HOSTS: u32 = 0x40;
    GUARD_CLOSED: u32 = 0x80;
    GUARD_ND_TRUST: u32 = 0x100;
    GUARD_VERIFY6: u32 = 0x200;
    GUARD_ARP: usize = 0;
    GUARD_DHCP: usize = 1;
    GUARD_RATES: usize = 2;
    GUARD_VLAN_DHCP: u8 = 0x01;
    GUARD_VLAN_ARP: u8 = 0x02;
    GUARD_VLAN_SRC_MAC: u8 = 0x04;
    GUARD_VLAN_DST_MAC: u8 = 0x08;
    GUARD_VLAN_IP: u8 = 0x10;
    GUARD_VLAN_ZEROS: u8 = 0x20;
    GUARD_VLAN_ND: u8 = 0x40;
    BINDINGS: usize = MAX_BINDINGS;
}

structures! {
    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_guard = Row {
        pub interval_ns: u64,
        pub tolerance_ns: u64,
        pub arrival_ns: u64,
        pub flags: u32,
        pub pad: u32,
    }
    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_binding6 = Binding6 {
        pub address: [u8; 16],
        pub place: u32,
        pub pad: u32,
    }
}

pub(super) const ROWS: usize = GUARD_RATES * abi::PORTS;

/// No limit and no setting.
pub(super) const IDLE: Row = Row { interval_ns: 1, tolerance_ns: 0, arrival_ns: 0, flags: 0, pad: 0 };

/// The flag for the checks of a port itself; [`crate::lower::port_row`] sets it for the checks of its VLANs.
pub(super) fn flags(port: &PortState) -> u32 {
    let PortGuard { no_routers, no_dhcpv6_servers, lock, .. } = port.stages.guard;
    let checks = no_routers || no_dhcpv6_servers || lock != PortLock::Open;
    if port.kind == PortKind::Netdev && checks { PORT_GUARD } else { 0 }
}

/// The rows of a port: the rate of ARP with the settings, and the rate of DHCP. A bucket whose rate changes begins full.
pub(super) fn rows(id: PortId, port: Option<&PortState>) -> impl Iterator<Item = (usize, Row)> {
    let guard = port.map(of_port);
    let at = |rate: usize| rate * abi::PORTS + id.index();
    let arp = row(guard.and_then(|guard| guard.arp_bucket()));
    let dhcp = row(guard.and_then(|guard| guard.dhcp_bucket()));
    let flags = guard.map_or(0, |guard| settings(&guard));
    [(at(GUARD_ARP), Row { flags, ..arp }), (at(GUARD_DHCP), dhcp)].into_iter()
}

/// The settings of a port; the switch's own stack is trusted.
fn of_port(port: &PortState) -> PortGuard {
    match port.kind {
        PortKind::Svi(_) => {
            PortGuard { dhcp_trust: true, arp_trust: true, nd_trust: true, ..PortGuard::default() }
        }
        _ => port.stages.guard,
    }
}

fn row(bucket: Option<(u32, u32)>) -> Row {
    let Some((rate_pps, burst)) = bucket else { return IDLE };
    let (interval_ns, tolerance_ns) = clock(&TrapRate { rate_pps, burst });
    Row { interval_ns, tolerance_ns, ..IDLE }
}

fn settings(guard: &PortGuard) -> u32 {
    let bits = [
        (guard.dhcp_trust, GUARD_DHCP_TRUST),
        (guard.arp_trust, GUARD_ARP_TRUST),
        (guard.verify != VerifySource::Off, GUARD_VERIFY),
        (guard.verify == VerifySource::IpAndMac, GUARD_VERIFY_MAC),
        (guard.no_routers, GUARD_NO_ROUTERS),
        (guard.no_dhcpv6_servers, GUARD_NO_SERVERS),
        (guard.lock == PortLock::Hosts, GUARD_HOSTS),
        (guard.lock == PortLock::Closed, GUARD_CLOSED),
        (guard.nd_trust, GUARD_ND_TRUST),
        (guard.verify_ipv6, GUARD_VERIFY6),
    ];
    bits.into_iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit)
}

pub(super) fn same(held: &Row, row: &Row) -> bool {
    (held.interval_ns, held.tolerance_ns, held.flags) == (row.interval_ns, row.tolerance_ns, row.flags)
}
