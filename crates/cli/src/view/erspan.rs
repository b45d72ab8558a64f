//! The state of ERSPAN sessions for `show monitor`, besides their configuration.

use serde::Serialize;

/// The sending side of an ERSPAN session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ErspanState {
    /// True while copies are sent.
    pub running: bool,
    /// Why no copies are sent although all settings that the session needs are configured.
    pub error: Option<String>,
    /// Copies that were sent.
    pub sent: u64,
    /// Copies that were sent, truncated to the length of `mtu`.
    pub truncated: u64,
    /// Copies that were not sent.
    pub dropped: ErspanDrops,
}

/// Copies that were not sent, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ErspanDrops {
    /// The switch has no route to the destination.
    pub no_route: u64,
    /// The configured origin address is not an address of the switch.
    pub no_origin: u64,
    /// The frame carries ERSPAN itself: a copy of it could be copied again without end.
    pub erspan: u64,
    /// The queue of the egress interface or of the socket was full.
    pub queue_full: u64,
    /// The queue of copies that wait for their encapsulation was full.
    pub overflow: u64,
    /// The plane found the session's netdev down, because the daemon was not running.
    pub not_running: u64,
    /// The kernel refused the packet for another reason, such as a packet filter.
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
    /// Why no packets are received although all settings that the session needs are configured.
    pub error: Option<String>,
    /// Copies with the session's identifier.
    pub received: u64,
    /// Copies with the session's identifier that their source has truncated.
    pub truncated: u64,
    /// Copies that were sent, counted at each destination port.
    pub sent: u64,
    /// Copies that were not sent, counted at each destination port.
    pub dropped: ErspanPortDrops,
    /// Packets for the session's address that were dropped, counted for all sessions with this address.
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

/// Packets for the address of a session that were dropped, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ErspanPacketDrops {
    /// No session with this address has the packet's identifier.
    pub unknown_id: u64,
    /// The queue of packets that wait to be read was full.
    pub overflow: u64,
    /// The packet ends within its headers, or the frame is shorter than an Ethernet header.
    pub too_short: u64,
    /// The GRE header has a routing field, a reserved bit, or another version than 0.
    pub gre_header: u64,
    /// The GRE checksum is wrong.
    pub gre_checksum: u64,
    /// The version in the ERSPAN header does not belong to the protocol type in the GRE header.
    pub version: u64,
    /// The packet is ERSPAN type I, which has no identifier.
    pub type_1: u64,
    /// The packet is ERSPAN type III, and its content is no Ethernet frame.
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
