//! port: checks that the ingress port exists and is enabled.

use super::Arrival;
use crate::state::PortState;
use crate::tables::Tables;
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, Stage};

/// The state of the ingress port, if it may receive frames.
pub(super) fn run<'t>(
    tables: &'t Tables,
    arrival: &Arrival<'_>,
    notes: &mut Notes,
) -> Result<&'t PortState, Verdict> {
    match tables.ports.get(arrival.port) {
        Some(port) if port.enabled => {
            notes.say(Stage::Port, || Fact::Port { name: port.name.clone(), up: true });
            Ok(port)
        }
        Some(port) => {
            notes.say(Stage::Port, || Fact::Port { name: port.name.clone(), up: false });
            Err(Verdict::Dropped(DropReason::PortDown))
        }
        None => Err(Verdict::Dropped(DropReason::PortDown)),
    }
}
