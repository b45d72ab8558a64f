//! The stages, in order. Each is a function from tables and what earlier stages found to what it found itself, or
//! to the frame's end; none of them changes a table, so that a trace runs the very same code.
//!
//! Invariant: [`decide`] is the one place that knows the order, and it is that of `lanyard_types::Stage`.

pub mod bridge;
pub mod count;
pub mod learn;
pub mod parse;
pub mod port;
pub mod replicate;
pub mod trap;
pub mod vlan_egress;
pub mod vlan_ingress;

use crate::tables::Tables;
use crate::trace::{Notes, Verdict};
use lanyard_types::{PortId, VlanId};

/// A frame as it came in.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The port it came in at.
    pub port: PortId,
    /// Its bytes, tags in line.
    pub bytes: &'a [u8],
    /// Length in bytes of the longest frame it will be on a wire: that of `bytes`, unless segmentation is still
    /// ahead of it.
    pub longest: usize,
}

/// Everything the stages decided about one frame.
#[derive(Debug)]
pub struct Decision {
    /// How it ends, unless policing or transmission say otherwise.
    pub verdict: Verdict,
    /// The VLAN it was let into.
    pub vlan: Option<VlanId>,
    /// What becomes of its source address.
    pub learn: learn::Learn,
    /// Ports a flood reached for and the MTU kept it from.
    pub oversize: Vec<PortId>,
    /// The copies to send.
    pub plan: replicate::Plan,
}

/// Runs the stages over one frame.
pub(crate) fn decide(tables: &Tables, arrival: &Arrival<'_>, notes: &mut Notes) -> Decision {
    let mut decision = Decision {
        verdict: Verdict::Forwarded,
        vlan: None,
        learn: learn::Learn::Nothing,
        oversize: Vec::new(),
        plan: replicate::Plan::default(),
    };
    if let Err(end) = run(tables, arrival, &mut decision, notes) {
        decision.verdict = end;
        if let Verdict::Dropped(reason) = end {
            notes.say(reason.stage(), || format!("dropped: {reason}"));
        }
    }
    decision
}

fn run(
    tables: &Tables,
    arrival: &Arrival<'_>,
    decision: &mut Decision,
    notes: &mut Notes,
) -> Result<(), Verdict> {
    let frame = parse::run(tables, arrival, notes)?;
    trap::run(tables, arrival, &frame, notes)?;
    let ingress = port::run(tables, arrival, notes)?;
    let class = vlan_ingress::run(tables, arrival, ingress, &frame, notes)?;
    decision.vlan = Some(class.vlan);
    learn::run(tables, arrival, ingress, &frame, &class, &mut decision.learn, notes)?;
    let egress = bridge::run(tables, arrival, ingress, &frame, &class, &decision.learn, notes)?;
    let egress =
        vlan_egress::run(tables, arrival, ingress, &frame, &class, egress, &mut decision.oversize, notes)?;
    decision.plan = replicate::run(tables, ingress, &frame, &class, &egress, notes);
    Ok(())
}
