//! port: checks that the ingress port exists and is enabled, and maps a member of a port-channel to the port-channel.
//!
//! The later stages see the port-channel in place of the member. A member whose frames do not belong to the port-channel (LACP,
//! `min-links`) receives nothing but control frames, which the stage `trap` has handled.

use super::Arrival;
use crate::state::{Aggregation, PortState};
use crate::tables::Tables;
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, PortId, Stage};

/// Returns the port that the later stages use, and its state: the ingress port, or its port-channel.
pub(super) fn run<'t>(
    tables: &'t Tables,
    arrival: &Arrival<'_>,
    notes: &mut Notes,
) -> Result<(PortId, &'t PortState), Verdict> {
    match tables.ports.get(arrival.port) {
        Some(port) if port.enabled => {
            notes.say(Stage::Port, || Fact::Port { name: port.name.clone(), up: true });
            let Aggregation::Member { of, channel } = port.aggregation else {
                return Ok((arrival.port, port));
            };
            match tables.ports.get(of) {
                Some(state) if tables.channels.collects(channel, arrival.port) && !state.enabled => {
                    notes.say(Stage::Port, || Fact::Port { name: state.name.clone(), up: false });
                    Err(Verdict::Dropped(DropReason::PortDown))
                }
                Some(state) if tables.channels.collects(channel, arrival.port) => {
                    notes.say(Stage::Port, || Fact::MemberOf(state.name.clone()));
                    Ok((of, state))
                }
                _ => Err(Verdict::Dropped(DropReason::NotCollecting)),
            }
        }
        Some(port) => {
            notes.say(Stage::Port, || Fact::Port { name: port.name.clone(), up: false });
            Err(Verdict::Dropped(DropReason::PortDown))
        }
        None => Err(Verdict::Dropped(DropReason::PortDown)),
    }
}
