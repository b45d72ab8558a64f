//! The answers to the FPM client: one route per frame, in the form that FRR 10.4 and later read.
//!
//! Invariant: only whole frames are appended to the output buffer.

use crate::Hop;
use crate::next_hops::NextHopSet;
use crate::rib::{Answer, Offload, TABLE_MAIN};
use lanyard_wire::rtnetlink::{
    FLAG_REQUEST, NEW_ROUTE, ROUTE_OFFLOAD, ROUTE_OFFLOAD_FAILED, ROUTE_TRAP, Route, Writer,
};

/// The frame header: version 1, type 1 (netlink), and two bytes for the length.
const HEADER: [u8; 4] = [1, 1, 0, 0];

/// Appends the frame for `answer`.
pub(crate) fn write(out: &mut Vec<u8>, answer: &Answer<'_>) {
    let flags = match answer.offload {
        Offload::Offloaded => ROUTE_OFFLOAD,
        Offload::Trapped => ROUTE_TRAP,
        Offload::Failed => ROUTE_OFFLOAD_FAILED,
    };
    let Answer { dest, protocol, kind, metric, .. } = *answer;
    let mut route = Route::to(dest);
    (route.table, route.flags) = (TABLE_MAIN, flags);
    (route.protocol, route.kind, route.metric) = (protocol, kind, metric);
    let hops: &[Hop] = if let Some(NextHopSet::Hops(hops)) = answer.next_hops { hops } else { &[] };
    frame(out, &route, hops);
}

/// Appends the frame that reports the route of `message` as failed.
pub(crate) fn refuse(out: &mut Vec<u8>, message: &Route<'_>) {
    let hops: Vec<Hop> = message.hops().collect();
    let mut route = *message;
    route.flags = ROUTE_OFFLOAD_FAILED;
    frame(out, &route, &hops);
}

fn frame(out: &mut Vec<u8>, route: &Route<'_>, hops: &[Hop]) {
    let start = out.len();
    out.extend(HEADER);
    let mut writer = Writer::route(out, NEW_ROUTE, FLAG_REQUEST, route);
    writer.hops(route.dest, hops);
    writer.end();
    match u16::try_from(out.len() - start) {
        Ok(length) => out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes()),
        // The frame would be longer than its length field can say, so the client could not read it.
        Err(_) => out.truncate(start),
    }
}
