//! replicate: the copies, their tags, and their order: the minimum-copy rule.
//!
//! Ports that want the frame as it arrived come first, then the frame is changed once for each further form, and the
//! ports that want that form follow, in ascending order. N ports take N-1 clones, and as many tag operations as
//! there are forms other than the first one's arrival. A frame whose tag names another VLAN than the one it leaves in
//! (priority-tagged, or routed) is wanted by nobody as it arrived. A routed frame is rewritten once, before all copies. A
//! customer's control frame in a tunnel has its protocol's destination at tunnel ports and the tunnel's elsewhere; that
//! counts as no tag operation.

use super::bridge::Egress;
use super::parse::Parsed;
use super::route::Rewrite;
use super::trap::Tunnelled;
use super::vlan_ingress::Class;
use crate::state::{PortState, Tpid};
use crate::tables::Tables;
use crate::trace::{Fact, Notes};
use lanyard_types::{MacAddr, PortId, Stage, VlanId};
use lanyard_wire::{Tag, Truncated, pop, push, rewrite};

/// How a copy is tagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Without a tag of the switch's.
    Untagged,
    /// With a tag of this TPID, which is not [`Tpid::None`].
    Tagged(Tpid),
}

/// The copies to send and how to make them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The copies in the order they are sent.
    pub copies: Vec<(Form, PortId)>,
    /// The form the frame arrived in; `None` for one that nobody wants so.
    pub arrived: Option<Form>,
    /// True when it arrived with a recognised tag.
    pub has_tag: bool,
    /// The tag for tagged copies.
    pub tag: Tag,
    /// How a routed frame is changed first.
    pub rewrite: Option<Rewrite>,
    /// For a frame with the address of the tunnel (`MacAddr::TUNNEL`): who wants another address.
    pub tunnelled: Option<Tunnelled>,
}

/// Orders the copies.
pub(super) fn run(
    tables: &Tables,
    ingress: &PortState,
    frame: &Parsed,
    class: &Class,
    egress: &Egress,
    notes: &mut Notes,
) -> Plan {
    let arrived = arrived(ingress, frame, class.tag);
    let form = |port: PortId| match tables.ports.get(port) {
        Some(state) if state.tpid != Tpid::None && state.tagged.contains(class.vlan) => {
            Form::Tagged(state.tpid)
        }
        _ => Form::Untagged,
    };
    let copies = match egress {
        Egress::Unicast(port) => vec![(form(*port), *port)],
        Egress::Flood(ports) => {
            let mut copies: Vec<(Form, PortId)> = ports.iter().map(|port| (form(port), port)).collect();
            copies.sort_by_key(|(form, _)| rank(*form, arrived, ingress.tpid));
            copies
        }
    };
    for (form, port) in &copies {
        notes.say(Stage::Replicate, || fact(tables, *port, *form, class.tag));
    }
    Plan { copies, arrived, has_tag: frame.tag.is_some(), tag: class.tag, rewrite: None, tunnelled: None }
}

/// One copy out of a routed port, with a subinterface's tag or without.
pub(super) fn straight(
    tables: &Tables,
    ingress: &PortState,
    frame: &Parsed,
    port: PortId,
    vlan: Option<VlanId>,
    notes: &mut Notes,
) -> Plan {
    let tag = Tag { vid: vlan.map_or(0, VlanId::get), ..frame.tag.unwrap_or_default() };
    let tpid = tables.ports.get(port).map_or(Tpid::None, |port| port.tpid);
    let form = match vlan {
        Some(_) if tpid != Tpid::None => Form::Tagged(tpid),
        _ => Form::Untagged,
    };
    notes.say(Stage::Replicate, || fact(tables, port, form, tag));
    let arrived = arrived(ingress, frame, tag);
    Plan {
        copies: vec![(form, port)],
        arrived,
        has_tag: frame.tag.is_some(),
        tag,
        rewrite: None,
        tunnelled: None,
    }
}

/// The copy that goes up to the host's end of an interface: as it came, without the tag.
pub(super) fn up(ingress: &PortState, frame: &Parsed, port: PortId) -> Plan {
    let tag = frame.tag.unwrap_or_default();
    let arrived = arrived(ingress, frame, tag);
    Plan {
        copies: vec![(Form::Untagged, port)],
        arrived,
        has_tag: frame.tag.is_some(),
        tag,
        rewrite: None,
        tunnelled: None,
    }
}

/// The form it arrived in, if a copy that leaves with `tag` can be had by leaving it as it is.
fn arrived(ingress: &PortState, frame: &Parsed, tag: Tag) -> Option<Form> {
    match frame.tag {
        None => Some(Form::Untagged),
        Some(came) if came.vid == tag.vid => Some(Form::Tagged(ingress.tpid)),
        Some(_) => None,
    }
}

/// As it arrived, untagged, the TPID of a tag it came with, the other TPIDs by number.
fn rank(form: Form, arrived: Option<Form>, ingress: Tpid) -> u8 {
    match form {
        form if Some(form) == arrived => 0,
        Form::Untagged => 1,
        Form::Tagged(tpid) if tpid == ingress && arrived != Some(Form::Untagged) => 2,
        Form::Tagged(tpid) => 3 + tpid as u8,
    }
}

fn fact(tables: &Tables, port: PortId, form: Form, tag: Tag) -> Fact {
    let tag = match form {
        Form::Untagged => None,
        Form::Tagged(tpid) => Some((tpid.ethertype().unwrap_or(0), tag.vid)),
    };
    Fact::Copy { port: tables.ports.name(port), tag }
}

/// Makes the copies and hands each to `send`; answers how many tag operations it took. `scratch` is room to
/// work in, kept by the caller so that forwarding does not allocate.
pub(crate) fn emit(
    plan: &Plan,
    bytes: &[u8],
    scratch: &mut Vec<u8>,
    send: &mut dyn FnMut(PortId, &[u8]),
) -> u64 {
    let mut now = plan.arrived;
    let mut has_tag = plan.has_tag;
    let mut changed = false;
    let mut operations = 0;
    if let Some(rewrite) = &plan.rewrite {
        scratch.clear();
        scratch.extend_from_slice(bytes);
        rewrite.apply(scratch, plan.has_tag);
        changed = true;
    }
    for (form, port) in &plan.copies {
        if now != Some(*form) {
            if !changed {
                scratch.clear();
                scratch.extend_from_slice(bytes);
                changed = true;
            }
            // Parse has seen a whole header, and a whole tag where there is one: this can't be truncated.
            if retag(scratch, *form, has_tag, plan.tag).is_err() {
                return operations;
            }
            operations += 1;
            has_tag = *form != Form::Untagged;
            now = Some(*form);
        }
        if let Some(MacAddr(address)) = plan.tunnelled.as_ref().map(|tunnelled| tunnelled.address(*port)) {
            let current = if changed { scratch.as_slice() } else { bytes };
            if !current.starts_with(&address) {
                if !changed {
                    scratch.clear();
                    scratch.extend_from_slice(bytes);
                    changed = true;
                }
                if let Some(dst) = scratch.first_chunk_mut() {
                    *dst = address;
                }
            }
        }
        send(*port, if changed { scratch } else { bytes });
    }
    operations
}

/// One tag operation: whatever the frame carries, to `form`.
fn retag(frame: &mut Vec<u8>, form: Form, has_tag: bool, tag: Tag) -> Result<(), Truncated> {
    let tpid = match form {
        Form::Untagged => None,
        Form::Tagged(tpid) => tpid.ethertype(),
    };
    match (has_tag, tpid) {
        (true, None) => pop(frame),
        (true, Some(tpid)) => rewrite(frame, tpid, tag),
        (false, Some(tpid)) => push(frame, tpid, tag),
        (false, None) => Ok(()),
    }
}
