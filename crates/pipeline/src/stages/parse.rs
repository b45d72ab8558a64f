//! parse: checks length and source address, and finds the tag that the port recognises.
//!
//! The ingress port's TPID decides whether the EtherType behind the addresses is a tag; a tag of another TPID is
//! payload. Invariant: later stages use fields, never offsets.

use super::Arrival;
use crate::state::Tpid;
use crate::tables::Tables;
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, MacAddr, Stage};
use lanyard_wire::{Frame, TAG_LEN, Tag};

/// The result of parse.
#[derive(Debug, Clone, Copy)]
pub struct Parsed {
    /// The destination address.
    pub dst: MacAddr,
    /// The source address.
    pub src: MacAddr,
    /// The tag, if the frame has one that the ingress port recognises.
    pub tag: Option<Tag>,
    /// The class of service: of that tag, or as an input policy has set it; 0 without a tag.
    pub cos: u8,
    /// The length of the longest frame that it becomes on a wire, in bytes, without the recognised tag.
    pub untagged_len: usize,
}

/// Checks length and source address, and finds the tag. A port that does not exist recognises no tag.
pub(super) fn run(tables: &Tables, arrival: &Arrival<'_>, notes: &mut Notes) -> Result<Parsed, Verdict> {
    let truncated = |_| Verdict::Dropped(DropReason::Truncated);
    let frame = Frame::new(arrival.bytes).map_err(truncated)?;
    let src = frame.src();
    if src.is_group() {
        return Err(Verdict::Dropped(DropReason::SourceGroup));
    }
    if src.is_zero() {
        return Err(Verdict::Dropped(DropReason::SourceZero));
    }
    let tpid = tables.ports.get(arrival.port).map_or(Tpid::None, |port| port.tpid);
    let tag = match tpid.ethertype() {
        Some(tpid) => frame.tag(tpid).map_err(truncated)?,
        None => None,
    };
    notes.say(Stage::Parse, || fact(&frame, tpid, tag));
    let tag_len = if tag.is_some() { TAG_LEN } else { 0 };
    let cos = tag.map_or(0, |tag: Tag| tag.pcp);
    Ok(Parsed { dst: frame.dst(), src, tag, cos, untagged_len: arrival.longest.saturating_sub(tag_len) })
}

fn fact(frame: &Frame<'_>, tpid: Tpid, tag: Option<Tag>) -> Fact {
    let outer = frame.ethertype();
    let inner = tpid.ethertype().and_then(|tpid| frame.inner_ethertype(tpid).ok()).unwrap_or(outer);
    Fact::Frame { tag, outer, inner, len: frame.bytes().len() }
}
