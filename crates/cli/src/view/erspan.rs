//! The state of ERSPAN sessions for `show monitor`, besides their configuration.

use serde::Serialize;

/// The sending side of an ERSPAN session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ErspanState {
    /// True while copies are sent.
    pub running: bool,
    /// Why none are sent although the session lacks nothing.
    pub error: Option<String>,
    /// Copies that were sent.
    pub sent: u64,
    /// Those of them that were truncated to the length of `mtu`.
    pub truncated: u64,
    /// Copies that were not sent.
    pub dropped: ErspanDrops,
}

/// Copies that were not sent, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ErspanDrops {
    /// The switch has no route to the destination.
    pub no_route: u64,
    /// The origin is no address of the switch.
    pub no_origin: u64,
    /// The frame carries ERSPAN itself: a copy of it could be copied again without end.
    pub erspan: u64,
    /// The interface or the socket by which they would have left had no room.
    pub queue_full: u64,
    /// More copies than are encapsulated in time waited already.
    pub overflow: u64,
    /// The plane found the session's netdev down, because the daemon was not running.
    pub not_running: u64,
    /// The kernel refused them for another reason, such as a packet filter.
    pub refused: u64,
}

impl ErspanDrops {
    /// Name and count of each reason.
    #[must_use]
    pub const fn each(&self) -> [(&'static str, u64); 7] {
        [
            ("no_route", self.no_route),
            ("no_origin", self.no_origin),
            ("erspan", self.erspan),
            ("queue_full", self.queue_full),
            ("overflow", self.overflow),
            ("not_running", self.not_running),
            ("refused", self.refused),
        ]
    }
}

/// The receiving side of an ERSPAN session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ErspanReceived {
    /// True while packets are received.
    pub running: bool,
    /// Why none are received although the session lacks nothing.
    pub error: Option<String>,
    /// Copies with the session's identifier.
    pub received: u64,
    /// Those of them that their source has truncated.
    pub truncated: u64,
    /// Copies that were sent; each destination port counts.
    pub sent: u64,
    /// Copies that a destination port did not send.
    pub dropped: ErspanPortDrops,
    /// Packets for the session's address that no session of the address has received.
    pub packets_dropped: ErspanPacketDrops,
}

/// Copies that a destination port did not send, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ErspanPortDrops {
    /// The port is down, or does not exist.
    pub port_down: u64,
    /// The copy is longer than the port's MTU allows.
    pub too_long: u64,
    /// The port's queue had no room.
    pub queue_full: u64,
    /// The kernel refused it for another reason.
    pub refused: u64,
}

impl ErspanPortDrops {
    /// Name and count of each reason.
    #[must_use]
    pub const fn each(&self) -> [(&'static str, u64); 4] {
        [
            ("port_down", self.port_down),
            ("too_long", self.too_long),
            ("queue_full", self.queue_full),
            ("refused", self.refused),
        ]
    }
}

/// Packets for the address of a session that no session has received, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ErspanPacketDrops {
    /// No session of the address has the identifier.
    pub unknown_id: u64,
    /// More packets than are read in time waited already.
    pub overflow: u64,
    /// The packet ends within its headers, or the frame is shorter than an Ethernet header.
    pub too_short: u64,
    /// GRE has a routing field, a reserved bit, or another version than 0.
    pub gre_header: u64,
    /// GRE's checksum is wrong.
    pub gre_checksum: u64,
    /// ERSPAN's version is not the one of GRE's protocol type.
    pub version: u64,
    /// ERSPAN type I, which has no identifier.
    pub type_1: u64,
    /// Type III with something that is no Ethernet frame.
    pub not_ethernet: u64,
}

impl ErspanPacketDrops {
    /// Name and count of each reason.
    #[must_use]
    pub const fn each(&self) -> [(&'static str, u64); 8] {
        [
            ("unknown_id", self.unknown_id),
            ("overflow", self.overflow),
            ("too_short", self.too_short),
            ("gre_header", self.gre_header),
            ("gre_checksum", self.gre_checksum),
            ("version", self.version),
            ("type_1", self.type_1),
            ("not_ethernet", self.not_ethernet),
        ]
    }
}
