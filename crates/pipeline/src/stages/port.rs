//! port: is this a port of the switch, and is it up?

use super::Arrival;
use crate::state::PortState;
use crate::tables::Tables;
use crate::trace::{Notes, Verdict};
use lanyard_types::{DropReason, Stage};

/// The ingress port, if frames may come in there.
pub(super) fn run<'t>(
    tables: &'t Tables,
    arrival: &Arrival<'_>,
    notes: &mut Notes,
) -> Result<&'t PortState, Verdict> {
    match tables.ports.get(arrival.port) {
        Some(port) if port.enabled => {
            notes.say(Stage::Port, || format!("{} is up", port.name));
            Ok(port)
        }
        Some(port) => {
            notes.say(Stage::Port, || format!("{} is down", port.name));
            Err(Verdict::Dropped(DropReason::PortDown))
        }
        None => Err(Verdict::Dropped(DropReason::PortDown)),
    }
}
