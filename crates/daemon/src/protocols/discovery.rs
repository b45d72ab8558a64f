//! LLDP and CDP on the protocol thread: handles frames, links and timers, sends frames and reports events.

use super::work::{Io, Protocol, Report};
use lanyard_lldp::{Action, Config, Discovery};
use lanyard_types::{PortId, TrapGroup};

/// Neighbour discovery on the protocol thread.
#[derive(Default)]
pub(crate) struct LinkDiscovery {
    machines: Discovery,
}

impl LinkDiscovery {
    /// The machines, for views and for `clear`.
    pub(crate) const fn machines(&self) -> &Discovery {
        &self.machines
    }
    pub(crate) const fn machines_mut(&mut self) -> &mut Discovery {
        &mut self.machines
    }
    /// Takes a configuration and the states of the links.
    pub(crate) fn configure(&mut self, now: u64, config: Config, links: &[(PortId, bool)]) {
        self.machines.configure(now, config);
        for (port, up) in links {
            self.machines.handle_link(now, *port, *up);
        }
    }
    /// Withdraws this switch's information from its neighbours, because the plane is being removed.
    pub(crate) fn end(&mut self, io: &mut Io<'_>) {
        self.machines.shutdown(io.now());
        self.act(io);
    }
}

impl Protocol for LinkDiscovery {
    fn takes(&self, group: TrapGroup) -> bool {
        group == TrapGroup::Discovery
    }
    fn handle_frame(&mut self, now: u64, port: PortId, frame: &[u8]) {
        // A refused frame has been counted.
        let _ = self.machines.handle_frame(now, port, frame);
    }
    fn next_ms(&self) -> Option<u64> {
        self.machines.next_timeout()
    }
    fn act(&mut self, io: &mut Io<'_>) {
        let now = io.now();
        if self.machines.next_timeout().is_some_and(|at| at <= now) {
            self.machines.handle_timer(now);
        }
        while let Some(action) = self.machines.poll_action() {
            match action {
                // Sending fails at a port that is being removed. Frames are repeated, so a lost one does no harm.
                Action::Send(port, frame) => drop(io.plane.inject(port, &frame)),
                Action::Event(event) => io.reports.add(Report::Discovery(event)),
            }
        }
    }
}
