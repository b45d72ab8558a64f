//! Access control of ports on the protocol thread: passes EAPOL frames, and the addresses of hosts whose frames
//! were dropped, to management, where the authenticator is ([`crate::access_control`]). Hosts wait seconds for an
//! answer, so the delay by management does no harm.
//!
//! Invariant: the planes limit both kinds of frames for each port, and the reports to management are bounded.

use super::work::{AccessEvent as Event, Io, Report};
use lanyard_types::{MacAddr, PortId, TrapReason};
use lanyard_wire::{Frame, pop};

/// The EtherType of a tag; a host may send EAPOL with a priority tag.
const TPID: u16 = 0x8100;

/// The events that have not been reported.
#[derive(Debug, Default)]
pub(crate) struct Access {
    waiting: Vec<Event>,
}

impl Access {
    /// True for the trap reasons whose frames this module handles.
    pub(crate) const fn takes(&self, reason: TrapReason) -> bool {
        matches!(reason, TrapReason::Eapol | TrapReason::Unauthorized)
    }
    /// Handles a frame that was trapped for a reason that [`Access::takes`].
    pub(crate) fn handle_trapped(&mut self, port: PortId, reason: TrapReason, frame: &[u8]) {
        let Ok(view) = Frame::new(frame) else { return };
        let src: MacAddr = view.src();
        if reason == TrapReason::Unauthorized {
            return self.waiting.push(Event::Host(port, src));
        }
        let mut bare = frame.to_vec();
        if view.ethertype() == TPID && pop(&mut bare).is_err() {
            return;
        }
        self.waiting.push(Event::Eapol(port, bare));
    }
    /// Passes the waiting events to management.
    pub(crate) fn act(&mut self, io: &mut Io<'_>) {
        self.waiting.drain(..).for_each(|event| io.reports.add(Report::Access(event)));
    }
}
