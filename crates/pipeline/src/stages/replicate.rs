//! replicate: makes the copies, with their tags, in an order that needs the fewest clones and tag operations.
//!
//! Ports that take the frame in the form in which it arrived come first. Then the frame is changed once for each further form,
//! and the ports with that form follow, in ascending order. N ports take N-1 clones, and as many tag operations as there are
//! forms besides the one that arrived. A frame whose tag names another VLAN than its egress VLAN (priority-tagged, or routed) is
//! sent to no port as it arrived. A routed frame is rewritten once, before all copies. A customer's control frame in a tunnel has
//! its protocol's destination address at tunnel ports and the tunnel address elsewhere; changing that is not counted as a tag
//! operation. A copy for a port-channel leaves by the member to which the frame's bucket is assigned. Behind each copy come those
//! that monitor sessions take of it; they count neither as clones nor as tag operations.

use super::bridge::Egress;
use super::mirror;
use super::parse::Parsed;
use super::qos_egress::Marks;
use super::route::Rewrite;
use super::trap::Tunnelled;
use super::vlan_ingress::Class;
use crate::qos::mark_dscp;
use crate::state::{PortState, Tpid};
use crate::tables::Tables;
use crate::trace::{Fact, Notes};
use lanyard_acl::key::FrameFamily;
use lanyard_types::{MacAddr, PortId, Stage, VlanId};
use lanyard_wire::{HEADER_LEN, TAG_LEN, Tag, Truncated, pop, push, rewrite};

/// The tag of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Without a tag of the switch.
    Untagged,
    /// With a tag of this TPID, which is not [`Tpid::None`].
    Tagged(Tpid),
}

/// The copies to send, and how to make them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The copies in the order in which they are sent.
    pub copies: Vec<(Form, PortId)>,
    /// The form in which the frame arrived; `None` if no port takes it in that form.
    pub arrived: Option<Form>,
    /// True when the frame arrived with a recognised tag.
    pub has_tag: bool,
    /// The tag for tagged copies.
    pub tag: Tag,
    /// The rewrite of a routed frame, which precedes all copies.
    pub rewrite: Option<Rewrite>,
    /// For a frame to the tunnel address (`MacAddr::TUNNEL`): the ports where it gets another destination.
    pub tunnelled: Option<Tunnelled>,
    /// The members by which copies for port-channels leave: port-channel and member.
    pub members: Vec<(PortId, PortId)>,
    /// The marks of copies by output policies, by the port of the policy: a port-channel's, not its member's.
    pub marks: Marks,
    /// The family of the packet in which `marks` change the DSCP; `None` without marks, or if the packet's header is not valid.
    pub packet: Option<FrameFamily>,
    /// The copies for monitor sessions: the index of a copy above, and the copy of it.
    pub mirrored: Vec<(usize, mirror::Copy)>,
}

impl Plan {
    /// The port whose netdev sends the copy for `port`.
    fn sender(&self, port: PortId) -> PortId {
        self.members.iter().find(|(channel, _)| *channel == port).map_or(port, |(_, member)| *member)
    }
    /// The copy for a port whose output policy marks it. `has_tag`: the copy has the switch's tag.
    fn marked(&self, port: PortId, copy: &[u8], has_tag: bool) -> Option<Vec<u8>> {
        let (_, mark) = self.marks.iter().find(|(at, _)| *at == port)?;
        let mut bytes = copy.to_vec();
        let at = HEADER_LEN + if has_tag { TAG_LEN } else { 0 };
        if let Some((family, dscp)) = self.packet.zip(mark.dscp) {
            mark_dscp(&mut bytes, at, family, dscp);
        }
        if let (true, Some(cos), Some(priority)) = (has_tag, mark.cos, bytes.get_mut(HEADER_LEN)) {
            *priority = *priority & 0x1f | cos << 5;
        }
        Some(bytes)
    }
    /// Adds the copies that monitor sessions take of frames in `vlan`.
    fn mirror(mut self, tables: &Tables, vlan: Option<VlanId>, untagged_len: usize) -> Self {
        for (at, (form, port)) in self.copies.iter().enumerate() {
            let Some(state) = tables.ports.get(self.sender(*port)).filter(|port| port.stages.mirror.sends())
            else {
                continue;
            };
            let tagged = *form != Form::Untagged;
            let made = mirror::copies(tables, state, |copy| copy.sent, vlan, tagged, untagged_len);
            self.mirrored.extend(made.into_iter().map(|copy| (at, copy)));
        }
        self
    }
    /// Notes the copies: each is followed by those that monitor sessions take of it.
    fn note(&self, tables: &Tables, notes: &mut Notes) {
        for (at, (form, port)) in self.copies.iter().enumerate() {
            notes.say(Stage::Replicate, || fact(tables, self.sender(*port), *form, self.tag));
            for (_, copy) in self.mirrored.iter().filter(|(of, copy)| *of == at && !copy.lost) {
                notes.say(Stage::Replicate, || Fact::Mirrored { to: tables.ports.name(copy.to) });
            }
        }
    }
    /// Removes the copies for these ports, which are no port-channels.
    pub(crate) fn leave_out(&mut self, ports: &[PortId]) {
        let stays: Vec<bool> = self.copies.iter().map(|(_, port)| !ports.contains(port)).collect();
        let moved = |at: usize| stays.iter().take(at).filter(|stays| **stays).count();
        self.mirrored.retain(|(of, _)| stays.get(*of) == Some(&true));
        self.mirrored.iter_mut().for_each(|(of, _)| *of = moved(*of));
        self.copies.retain(|(_, port)| !ports.contains(port));
    }
    /// The port-channel for which `sender` sends a copy.
    pub(crate) fn channel(&self, sender: PortId) -> Option<PortId> {
        self.members.iter().find(|(_, member)| *member == sender).map(|(channel, _)| *channel)
    }
}

/// Orders the copies.
pub(super) fn run(
    tables: &Tables,
    ingress: &PortState,
    frame: &Parsed,
    class: &Class,
    egress: &Egress,
    bucket: Option<usize>,
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
    let member = |port: PortId| Some((port, tables.channels.member(tables.ports.channel(port)?, bucket?)?));
    let plan = Plan {
        members: copies.iter().filter_map(|(_, port)| member(*port)).collect(),
        copies,
        arrived,
        has_tag: frame.tag.is_some(),
        tag: class.tag,
        ..Plan::default()
    };
    let plan = plan.mirror(tables, Some(class.vlan), frame.untagged_len);
    if let Some(bucket) = bucket {
        let by = tables.trap.global().load_balance.keyword();
        notes.say(Stage::Replicate, || Fact::Balanced { bucket, by });
    }
    plan.note(tables, notes);
    plan
}

/// One copy out of a routed port, with or without a subinterface's tag.
pub(super) fn straight(
    tables: &Tables,
    ingress: &PortState,
    frame: &Parsed,
    port: PortId,
    vlan: Option<VlanId>,
    notes: &mut Notes,
) -> Plan {
    let tag = Tag { vid: vlan.map_or(0, VlanId::get), pcp: frame.cos, ..frame.tag.unwrap_or_default() };
    let tpid = tables.ports.get(port).map_or(Tpid::None, |port| port.tpid);
    let form = match vlan {
        Some(_) if tpid != Tpid::None => Form::Tagged(tpid),
        _ => Form::Untagged,
    };
    let arrived = arrived(ingress, frame, tag);
    let plan =
        Plan { copies: vec![(form, port)], arrived, has_tag: frame.tag.is_some(), tag, ..Plan::default() };
    let plan = plan.mirror(tables, vlan, frame.untagged_len);
    plan.note(tables, notes);
    plan
}

/// The copy for the host's end of an interface: the frame as received, without the tag.
pub(super) fn up(ingress: &PortState, frame: &Parsed, port: PortId) -> Plan {
    let tag = frame.tag.unwrap_or_default();
    let arrived = arrived(ingress, frame, tag);
    Plan {
        copies: vec![(Form::Untagged, port)],
        arrived,
        has_tag: frame.tag.is_some(),
        tag,
        ..Plan::default()
    }
}

/// The form in which the frame arrived, if a copy in that form carries the right tag without a change.
fn arrived(ingress: &PortState, frame: &Parsed, tag: Tag) -> Option<Form> {
    match frame.tag {
        None => Some(Form::Untagged),
        Some(came) if (came.vid, came.pcp) == (tag.vid, tag.pcp) => Some(Form::Tagged(ingress.tpid)),
        Some(_) => None,
    }
}

/// The order of forms: as arrived, untagged, the TPID of the tag it arrived with, the other TPIDs by number.
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

/// An output of [`emit`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Emission {
    /// A copy for this port, which is a member of a port-channel or no port-channel.
    Copy(PortId),
    /// A monitor session's copy of the copy before it.
    Mirrored(mirror::Copy),
}

/// Makes the copies and passes each to `send`, which returns false when the copy could not be sent; returns the number of
/// tag operations. `scratch` is a buffer that the caller keeps, so that forwarding does not allocate.
pub(crate) fn emit(
    plan: &Plan,
    bytes: &[u8],
    scratch: &mut Vec<u8>,
    send: &mut dyn FnMut(Emission, &[u8]) -> bool,
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
    for (at, (form, port)) in plan.copies.iter().enumerate() {
        if now != Some(*form) {
            if !changed {
                scratch.clear();
                scratch.extend_from_slice(bytes);
                changed = true;
            }
            // Parse has checked the header and the tag, so the frame cannot be too short here.
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
        let copy = if changed { scratch.as_slice() } else { bytes };
        let marked = plan.marked(*port, copy, has_tag);
        let copy = marked.as_deref().unwrap_or(copy);
        if send(Emission::Copy(plan.sender(*port)), copy) {
            for (_, mirrored) in plan.mirrored.iter().filter(|(of, _)| *of == at) {
                mirror::emit(*mirrored, copy, &mut |mirrored, bytes| {
                    send(Emission::Mirrored(mirrored), bytes);
                });
            }
        }
    }
    operations
}

/// Performs one tag operation: changes the frame from its present form to `form`.
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
