//! What `show monitor` shows of ERSPAN sessions besides their configuration.

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
