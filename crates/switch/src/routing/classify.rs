//! Turns the kernel's route messages into candidates for a prefix, and orders them as the kernel does.
//!
//! Read first: rtnetlink(7), ip-route(8).
//!
//! Invariant: a route that the plane cannot handle exactly as the kernel does becomes [`Kind::Policy`].

use super::neighbours::Object;
use super::rib::{Candidate, Kind, NONE, Rank};
use super::sets::SetKey;
use ipnet::IpNet;
use lanyard_wire::rtnetlink::{self as wire, NextHopAction, NextHopObject, Route};
use std::net::IpAddr;

/// Returns the candidate for a route, and its next hops. `None` for routes that do not concern a plane: cached
/// exceptions, tables that only rules refer to, multicast, and link-local destinations.
pub(super) fn classify(route: &Route<'_>) -> Option<(Candidate, Option<SetKey>)> {
    let rank = match route.table {
        255 => Rank::Local,
        254 => Rank::Main,
        253 => Rank::Default,
        _ => return None,
    };
    if route.flags & wire::ROUTE_CLONED != 0 || is_apart(route.dest) {
        return None;
    }
    let mut kind = match route.kind {
        wire::UNICAST => Kind::Unicast,
        wire::LOCAL | wire::BROADCAST | wire::ANYCAST => Kind::Local,
        wire::BLACKHOLE => Kind::Blackhole,
        wire::UNREACHABLE | wire::PROHIBIT => Kind::NoRoute,
        wire::MULTICAST => return None,
        _ => Kind::Policy,
    };
    let key = match kind {
        Kind::Unicast => set_key(route),
        _ => None,
    };
    if route.tos != 0 || route.source_specific {
        kind = Kind::Selective;
    } else if kind == Kind::Unicast && (key.is_none() || route.encapsulates || route.limits_mtu) {
        kind = Kind::Policy;
    }
    let candidate = Candidate { metric: route.metric, set: NONE, rank, kind, tos: route.tos, seen: 0 };
    Some((candidate, key))
}

/// True for multicast, IPv6 link-local and loopback prefixes: routers do not forward to them.
pub(super) fn is_apart(prefix: IpNet) -> bool {
    match prefix {
        IpNet::V4(net) => {
            let (address, length) = (net.network(), net.prefix_len());
            length >= 4 && address.is_multicast() || length >= 8 && address.is_loopback()
        }
        IpNet::V6(net) => {
            let (address, length) = (net.network(), net.prefix_len());
            let first = address.segments()[0];
            length >= 8 && first >> 8 == 0xff
                || length >= 10 && first & 0xffc0 == 0xfe80
                || address.is_loopback()
        }
    }
}

fn set_key(route: &Route<'_>) -> Option<SetKey> {
    if let Some(id) = route.nexthop_id {
        return Some(SetKey::Object(id));
    }
    let mut hops = route.hops();
    let first = hops.next()?;
    let Some(second) = hops.next() else { return Some(SetKey::One(first.ifindex, first.via)) };
    let mut members: Vec<(u32, Option<IpAddr>, u32)> = Vec::new();
    for hop in [first, second].into_iter().chain(hops) {
        match members.iter_mut().find(|member| (member.0, member.1) == (hop.ifindex, hop.via)) {
            Some(member) => member.2 += hop.weight,
            None => members.push((hop.ifindex, hop.via, hop.weight)),
        }
    }
    members.sort_unstable();
    Some(SetKey::Many(members.into()))
}

pub(super) fn value_of(object: &NextHopObject<'_>) -> Object {
    match object.action {
        NextHopAction::Hop(hop) => Object::One(hop.ifindex, hop.via),
        NextHopAction::Group(members) => Object::Group(members.iter().collect()),
        NextHopAction::Blackhole => Object::Blackhole,
        NextHopAction::Other => Object::Other,
    }
}

/// Inserts `candidate` at its place in the kernel's order. Returns the next-hop sets whose use has ended: that of a replaced
/// candidate, or that of `candidate` itself if the list already contains this route. `merges` returns true if IPv6 merges
/// another candidate of the same key with this one into a single route; the message then describes the whole route.
pub(super) fn place(
    list: &mut Vec<Candidate>,
    candidate: Candidate,
    flags: u16,
    merges: impl Fn(&Candidate) -> bool,
) -> Vec<u32> {
    if let Some(same) = list.iter_mut().find(|other| other.is(&candidate)) {
        same.seen = candidate.seen;
        return vec![candidate.set];
    }
    let replace = flags & wire::FLAG_REPLACE != 0;
    let old = list.iter().position(|other| other.same_key(&candidate) && (replace || merges(other)));
    if let Some(at) = old {
        return vec![std::mem::replace(&mut list[at], candidate).set];
    }
    let order = |c: &Candidate| (c.rank, c.metric);
    let after = flags & wire::FLAG_APPEND != 0;
    let at = list.partition_point(|other| {
        order(other) < order(&candidate) || after && order(other) == order(&candidate)
    });
    list.insert(at, candidate);
    Vec::new()
}

/// The index of the only candidate with the same key as `candidate`; `None` if there are several or none. A deletion that
/// identifies its route in another way than the mirror does concerns this candidate.
pub(super) fn alone(list: &[Candidate], candidate: &Candidate) -> Option<usize> {
    let mut same = (0..).zip(list).filter(|(_, other)| other.same_key(candidate));
    let first = same.next().map(|(at, _)| at);
    first.filter(|_| same.next().is_none())
}
