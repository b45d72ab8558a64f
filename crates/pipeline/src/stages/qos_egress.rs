//! qos_egress: applies the output policy of each port by which a frame leaves: classifies it, polices its class, marks it, and
//! chooses its queue.
//!
//! A port of a flood at which the frame is over its rate is removed from the flood; if none is left, the frame is dropped. Each
//! copy has the marks of its own port.

use super::acl_ingress::Judged;
use super::bridge::Egress;
use super::qos_ingress::{Classed, Colours, classify};
use crate::qos::{Direction, Mark};
use crate::tables::Tables;
use lanyard_types::{DropReason, PortId};

/// The marks of copies, by their port.
pub(super) type Marks = Vec<(PortId, Mark)>;

/// Removes the egress ports at which the frame is dropped.
pub(super) fn run(
    tables: &Tables,
    judged: &mut Judged<'_>,
    egress: Egress,
    colours: &Colours,
    classed: &mut Vec<Classed>,
) -> Result<(Egress, Marks), DropReason> {
    let mut marks = Marks::new();
    match egress {
        Egress::Unicast(port) => {
            straight(tables, judged, port, colours, classed, &mut marks)?;
            Ok((Egress::Unicast(port), marks))
        }
        Egress::Flood(mut ports) => {
            for port in ports.iter().collect::<Vec<_>>() {
                if straight(tables, judged, port, colours, classed, &mut marks).is_err() {
                    ports.remove(port);
                }
            }
            if ports.is_empty() { Err(DropReason::PolicedOut) } else { Ok((Egress::Flood(ports), marks)) }
        }
    }
}

/// Applies the policy of one egress port.
pub(super) fn straight(
    tables: &Tables,
    judged: &mut Judged<'_>,
    port: PortId,
    colours: &Colours,
    classed: &mut Vec<Classed>,
    marks: &mut Marks,
) -> Result<(), DropReason> {
    let Some(policy) = tables.ports.get(port).and_then(|port| port.qos.output.as_ref()) else {
        return Ok(());
    };
    let at = (port, Direction::Output);
    let mark = classify(tables, judged, policy, at, colours, classed).ok_or(DropReason::PolicedOut)?;
    if mark != Mark::default() {
        marks.push((port, mark));
    }
    Ok(())
}
