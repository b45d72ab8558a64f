//! A client's sessions: the messages of FRR, the answers to them, and the routes that stay when the client
//! disconnects. Time is simulated.

use ipnet::IpNet;
use lanyard_fpm::{
    Framing, Hop, Ignored, Limits, Malformed, NextHopSet, Offload, Phase, Server, Timers, Update, fuzz,
};
use lanyard_wire::rtnetlink::{self, Route as Message, Writer, messages};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;

const TIMERS: Timers = Timers { quiet_ms: 1000, hold_ms: 5000 };

fn server() -> Server {
    let mut server = Server::new(Limits { routes: 1000, nexthops: 100 }, TIMERS);
    server.connected(0);
    server
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn frame(body: &[u8]) -> Vec<u8> {
    let mut frame = vec![1, 1];
    frame.extend((4 + body.len() as u16).to_be_bytes());
    frame.extend(body);
    frame
}

fn message(kind: u16, change: impl FnOnce(&mut Message<'_>), dest: &str, hops: &[Hop]) -> Vec<u8> {
    let mut route = Message::to(net(dest));
    (route.table, route.protocol, route.metric) = (254, 186, 20);
    change(&mut route);
    let mut out = Vec::new();
    let mut writer = Writer::route(&mut out, kind, 0x501, &route);
    writer.hops(route.dest, hops);
    writer.end();
    out
}

fn set(dest: &str, id: u32) -> Vec<u8> {
    message(rtnetlink::NEW_ROUTE, |route| route.nexthop_id = Some(id), dest, &[])
}

fn unset(dest: &str) -> Vec<u8> {
    message(rtnetlink::DEL_ROUTE, |_| {}, dest, &[])
}

fn object(id: u32, attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out, rtnetlink::NEW_NEXTHOP, 0x501, &[2, 0, 11, 0, 0, 0, 0, 0]);
    writer.attribute(1, &id.to_ne_bytes());
    for (kind, value) in attributes {
        writer.attribute(*kind, value);
    }
    writer.end();
    out
}

fn single(id: u32, via: [u8; 4], ifindex: u32) -> Vec<u8> {
    object(id, &[(6, via.to_vec()), (5, ifindex.to_ne_bytes().to_vec())])
}

fn group(id: u32, members: &[(u32, u8)]) -> Vec<u8> {
    let list = members.iter().flat_map(|(id, weight)| {
        let [a, b, c, d] = id.to_ne_bytes();
        [a, b, c, d, weight - 1, 0, 0, 0]
    });
    object(id, &[(2, list.collect())])
}

fn gone(id: u32) -> Vec<u8> {
    let mut bytes = object(id, &[]);
    bytes[4..6].copy_from_slice(&rtnetlink::DEL_NEXTHOP.to_ne_bytes());
    bytes
}

fn hop(via: [u8; 4], ifindex: u32, weight: u32) -> Hop {
    Hop { via: Some(via.into()), ifindex, weight, flags: 0 }
}

/// A receiver of the updates, which keeps the next hops of each route.
#[derive(Default)]
struct Follower {
    next_hop_sets: BTreeMap<u32, NextHopSet>,
    routes: BTreeMap<IpNet, u32>,
}

impl Follower {
    fn take(&mut self, server: &mut Server) -> Vec<Update> {
        let updates = server.updates();
        for update in &updates {
            match update {
                Update::NextHops(id, way) => drop(self.next_hop_sets.insert(id.0, way.clone())),
                Update::Route(dest, Some(route)) => drop(self.routes.insert(*dest, route.next_hops.0)),
                Update::Route(dest, None) => drop(self.routes.remove(dest)),
                Update::NextHopsRemoved(id) => drop(self.next_hop_sets.remove(&id.0)),
            }
        }
        updates
    }
    fn way(&self, dest: &str) -> Option<NextHopSet> {
        self.routes.get(&net(dest)).map(|way| self.next_hop_sets[way].clone())
    }
    fn feed(&mut self, server: &mut Server, now: u64, bodies: &[Vec<u8>]) -> Vec<Update> {
        let bytes: Vec<u8> = bodies.iter().flat_map(|body| frame(body)).collect();
        server.input(now, &bytes).expect("good frames");
        self.take(server)
    }
}

fn hops(list: &[Hop]) -> Option<NextHopSet> {
    Some(NextHopSet::Hops(list.into()))
}

#[test]
fn routes_go_the_way_of_their_group() {
    let (mut server, mut follower) = (server(), Follower::default());
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let sent = [
        single(1, a, 3),
        single(2, b, 4),
        group(3, &[(1, 1), (2, 4)]),
        set("10.9.0.0/16", 3),
        set("10.8.0.0/16", 1),
    ];
    follower.feed(&mut server, 0, &sent);
    assert_eq!(follower.way("10.9.0.0/16"), hops(&[hop(a, 3, 1), hop(b, 4, 4)]));
    assert_eq!(follower.way("10.8.0.0/16"), hops(&[hop(a, 3, 1)]));
    // A member changes: its groups change, but no route does.
    let c = [10, 0, 0, 3];
    let updates = follower.feed(&mut server, 0, &[single(1, c, 5)]);
    assert!(updates.iter().all(|update| matches!(update, Update::NextHops(..))), "{updates:?}");
    assert_eq!(follower.way("10.9.0.0/16"), hops(&[hop(c, 5, 1), hop(b, 4, 4)]));
    // As in the kernel, a deleted member leaves its groups. A route that uses it alone is left to the kernel.
    follower.feed(&mut server, 0, &[gone(1)]);
    assert_eq!(follower.way("10.9.0.0/16"), hops(&[hop(b, 4, 4)]));
    assert_eq!(follower.way("10.8.0.0/16"), Some(NextHopSet::Kernel));
    follower.feed(&mut server, 0, &[unset("10.8.0.0/16"), unset("10.9.0.0/16")]);
    assert!(follower.routes.is_empty() && follower.next_hop_sets.is_empty());
    assert_eq!((server.routes(), server.next_hop_sets(), server.nexthops()), (0, 0, 2));
}

#[test]
fn an_update_has_nothing_between() {
    let (mut server, mut follower) = (server(), Follower::default());
    follower.feed(
        &mut server,
        0,
        &[single(1, [10, 0, 0, 1], 3), single(2, [10, 0, 0, 2], 4), set("10.9.0.0/16", 1)],
    );
    assert!(!server.updates_in_pairs());
    let pair = [unset("10.9.0.0/16"), set("10.9.0.0/16", 2)].concat();
    let updates = follower.feed(&mut server, 0, &[pair]);
    assert!(!updates.contains(&Update::Route(net("10.9.0.0/16"), None)), "{updates:?}");
    assert_eq!(follower.way("10.9.0.0/16"), hops(&[hop([10, 0, 0, 2], 4, 1)]));
    assert!(server.updates_in_pairs(), "as FRR before 10 does");
    assert_eq!(server.counters().messages, 5);
}

#[test]
fn spelled_out_and_special() {
    let (mut server, mut follower) = (server(), Follower::default());
    let (a, b) = (hop([10, 0, 0, 1], 3, 2), hop([10, 0, 0, 2], 4, 1));
    let kind = |kind, dest| message(rtnetlink::NEW_ROUTE, |route| route.kind = kind, dest, &[]);
    let two = |dest| message(rtnetlink::NEW_ROUTE, |_| {}, dest, &[a, b]);
    let sent = [
        two("10.1.0.0/16"),
        two("10.2.0.0/16"),
        kind(6, "10.3.0.0/16"),
        kind(7, "10.4.0.0/16"),
        kind(8, "::/0"),
        kind(2, "10.5.0.0/16"),
    ];
    follower.feed(&mut server, 0, &sent);
    assert_eq!(follower.way("10.2.0.0/16"), hops(&[a, b]));
    assert_eq!(follower.routes[&net("10.1.0.0/16")], follower.routes[&net("10.2.0.0/16")], "kept once");
    assert_eq!(follower.way("10.3.0.0/16"), Some(NextHopSet::Blackhole));
    assert_eq!(follower.way("10.4.0.0/16"), Some(NextHopSet::Unreachable));
    assert_eq!(follower.way("::/0"), Some(NextHopSet::Prohibit));
    assert_eq!(follower.way("10.5.0.0/16"), Some(NextHopSet::Kernel));
    // An object that is not known yet: the route is left to the kernel until the object arrives.
    follower.feed(&mut server, 0, &[set("10.6.0.0/16", 77)]);
    assert_eq!(follower.way("10.6.0.0/16"), Some(NextHopSet::Kernel));
    follower.feed(&mut server, 0, &[single(77, [10, 0, 0, 1], 3)]);
    assert_eq!(follower.way("10.6.0.0/16"), hops(&[hop([10, 0, 0, 1], 3, 1)]));
}

/// The answers that the client reads: the destination, the flags, and the next hops of each frame.
fn answers(server: &mut Server) -> Vec<(IpNet, u32, Vec<Hop>)> {
    let mut bytes = server.output().to_vec();
    server.sent(bytes.len());
    let mut list = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..2], [1, 1]);
        let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        let rest = bytes.split_off(length);
        let all: Vec<_> = messages(&bytes[4..]).collect();
        let [Ok(message)] = all.as_slice() else { unreachable!("one message a frame: {all:?}") };
        assert_eq!((message.kind, message.flags), (rtnetlink::NEW_ROUTE, rtnetlink::FLAG_REQUEST));
        let route = Message::new(message.body).expect("a route");
        assert_eq!((route.table, route.protocol, route.metric), (254, 186, 20));
        list.push((route.dest, route.flags, route.hops().collect()));
        bytes = rest;
    }
    list
}

#[test]
fn the_client_is_answered() {
    let (mut server, mut follower) = (server(), Follower::default());
    let (a, dest) = ([10, 0, 0, 1], net("10.9.0.0/16"));
    let sent = [single(1, a, 3), set("10.9.0.0/16", 1)];
    follower.feed(&mut server, 0, &sent);
    assert!(server.output().is_empty(), "not known yet");
    for (offload, flag) in [
        (Offload::Failed, rtnetlink::ROUTE_OFFLOAD_FAILED),
        (Offload::Trapped, rtnetlink::ROUTE_TRAP),
        (Offload::Offloaded, rtnetlink::ROUTE_OFFLOAD),
    ] {
        server.offload(dest, offload);
        server.offload(dest, offload);
        assert_eq!(answers(&mut server), [(dest, flag, vec![hop(a, 3, 1)])], "once");
        assert_eq!(server.routes_that_are(offload), 1);
    }
    // A route that is sent again without a change is answered again, without asking the switch.
    assert_eq!(follower.feed(&mut server, 0, &sent), []);
    assert_eq!(answers(&mut server), [(dest, rtnetlink::ROUTE_OFFLOAD, vec![hop(a, 3, 1)])]);
    // There is no answer for a route that has been removed.
    follower.feed(&mut server, 0, &[unset("10.9.0.0/16")]);
    server.offload(dest, Offload::Failed);
    assert_eq!(answers(&mut server), []);
}

#[test]
fn a_client_that_does_not_read_holds_nothing_up() {
    let mut server = Server::new(Limits { routes: 100_000, nexthops: 10 }, TIMERS);
    server.connected(0);
    let mut bytes = frame(&single(1, [10, 0, 0, 1], 3));
    let dests: Vec<IpNet> =
        (0..30_000u32).map(|n| IpNet::new(IpAddr::from(n.to_be_bytes()), 32).expect("a prefix")).collect();
    for dest in &dests {
        bytes.extend(frame(&set(&dest.to_string(), 1)));
    }
    server.input(0, &bytes).expect("good frames");
    server.updates();
    for dest in &dests {
        server.offload(*dest, Offload::Offloaded);
    }
    assert!(server.output().len() < (1 << 20) + 200);
    assert!(server.counters().held_back > 0);
    let mut seen = Vec::new();
    while !server.output().is_empty() {
        seen.extend(answers(&mut server).into_iter().map(|(dest, _, _)| dest));
    }
    assert_eq!(seen, dests, "each once, in order");
}

#[test]
fn stale_routes_go_when_the_replay_is_quiet_and_not_before() {
    let (mut server, mut follower) = (server(), Follower::default());
    let dests = ["10.1.0.0/16", "10.2.0.0/16", "2001:db8::/32"];
    let mut sent = vec![single(1, [10, 0, 0, 1], 3), single(2, [10, 0, 0, 2], 3)];
    sent.extend(dests.map(|dest| set(dest, 1)));
    follower.feed(&mut server, 0, &sent);
    server.handle_timer(999);
    assert_eq!(server.phase(), Phase::Replaying);
    server.handle_timer(1000);
    assert_eq!((server.phase(), server.next_ms()), (Phase::Synced, None));
    assert_eq!((follower.take(&mut server), server.nexthops()), (vec![], 2));

    server.disconnected(10_000);
    server.connected(13_000);
    assert_eq!(follower.take(&mut server), []);
    // The client sends its routes slowly; every message postpones the end of the replay.
    for (n, message) in [single(1, [10, 0, 0, 1], 3), set(dests[0], 1)].into_iter().enumerate() {
        let now = 13_900 + 900 * n as u64;
        server.handle_timer(now);
        assert_eq!(follower.feed(&mut server, now, &[message]), [], "nothing has changed yet");
    }
    server.handle_timer(15_799);
    assert_eq!((server.phase(), server.routes()), (Phase::Replaying, 3));
    server.handle_timer(15_800);
    follower.take(&mut server);
    assert_eq!(follower.routes.keys().copied().collect::<Vec<_>>(), [net(dests[0])]);
    assert_eq!((server.counters().swept, server.nexthops(), server.phase()), (2, 1, Phase::Synced));
}

#[test]
fn routes_are_held_for_a_client_to_come_back() {
    let (mut server, mut follower) = (server(), Follower::default());
    follower.feed(&mut server, 0, &[single(1, [10, 0, 0, 1], 3), set("10.1.0.0/16", 1)]);
    server.disconnected(400);
    assert_eq!((server.phase(), server.next_ms()), (Phase::Holding, Some(5400)));
    server.handle_timer(5399);
    assert_eq!(follower.take(&mut server), []);
    server.handle_timer(5400);
    follower.take(&mut server);
    assert!(follower.routes.is_empty() && follower.next_hop_sets.is_empty());
    assert_eq!((server.phase(), server.nexthops()), (Phase::Idle, 0));
    server.offload(net("10.1.0.0/16"), Offload::Offloaded);
    assert!(server.output().is_empty());
}

#[test]
fn announce_all_repeats_all_routes_and_next_hop_sets() {
    let (mut server, mut follower) = (server(), Follower::default());
    let sent = [single(1, [10, 0, 0, 1], 3), set("10.1.0.0/16", 1), set("2001:db8::/32", 1)];
    follower.feed(&mut server, 0, &sent);
    server.announce_all();
    let mut other = Follower::default();
    other.take(&mut server);
    assert_eq!((other.next_hop_sets, other.routes), (follower.next_hop_sets, follower.routes));
    assert_eq!(server.updates(), []);
}

#[test]
fn a_full_table_refuses_routes_and_reports_it() {
    let mut server = Server::new(Limits { routes: 2, nexthops: 2 }, TIMERS);
    server.connected(0);
    let mut follower = Follower::default();
    let sent = [
        single(1, [10, 0, 0, 1], 3),
        single(2, [10, 0, 0, 2], 3),
        single(3, [10, 0, 0, 3], 3),
        set("10.1.0.0/16", 1),
        set("10.2.0.0/16", 1),
        set("10.3.0.0/16", 1),
    ];
    follower.feed(&mut server, 0, &sent);
    assert_eq!(
        (server.routes(), server.counters().routes_refused, server.counters().nexthops_refused),
        (2, 1, 1)
    );
    assert_eq!(answers(&mut server), [(net("10.3.0.0/16"), rtnetlink::ROUTE_OFFLOAD_FAILED, vec![])]);
    // There is no room for a third next-hop set. The client has replaced the route's old next hops, so the
    // route is removed.
    follower.feed(
        &mut server,
        0,
        &[set("10.1.0.0/16", 2), message(rtnetlink::NEW_ROUTE, |r| r.kind = 6, "10.2.0.0/16", &[])],
    );
    assert_eq!(follower.routes.keys().copied().collect::<Vec<_>>(), [net("10.1.0.0/16")]);
    assert_eq!(server.counters().routes_refused, 2);
}

#[test]
fn ignored_and_malformed_messages_are_counted_by_reason() {
    let mut server = server();
    let other_table = message(rtnetlink::NEW_ROUTE, |route| route.table = 1000, "10.0.0.0/8", &[]);
    let with_tos = message(rtnetlink::NEW_ROUTE, |route| route.tos = 8, "10.0.0.0/8", &[]);
    let mut link = Vec::new();
    Writer::begin(&mut link, 16, 1, &[0; 16]).end();
    let mut lie = unset("10.0.0.0/8");
    lie[0] = 200;
    for body in [other_table, with_tos, link, lie, vec![9; 3]] {
        server.input(0, &frame(&body)).expect("good frames");
    }
    let counters = server.counters();
    assert_eq!(counters.ignored, [1, 1, 1]);
    assert_eq!((Ignored::Message as usize, Ignored::Table as usize, Ignored::Selective as usize), (0, 1, 2));
    assert_eq!(counters.malformed[Malformed::Header as usize], 2);
    assert_eq!(server.updates(), []);
}

#[test]
fn a_frame_that_is_none_ends_the_session() {
    for (bytes, why) in
        [([2, 1, 0, 4], Framing::Version), ([1, 2, 0, 4], Framing::Type), ([1, 1, 0, 3], Framing::Length)]
    {
        let mut server = server();
        server.input(0, &frame(&set("10.0.0.0/8", 1))).expect("a good frame");
        assert_eq!(server.input(0, &bytes), Err(why));
        assert_eq!((server.counters().framing[why as usize], server.counters().frames), (1, 1), "{why}");
    }
}

proptest! {
    /// However the stream is divided, the result is the same.
    #[test]
    fn cut_anywhere(cuts in prop::collection::vec(0usize..400, 0..6)) {
        let bodies = [single(1, [10, 0, 0, 1], 3), set("10.1.0.0/16", 1), [unset("10.1.0.0/16"), set("10.1.0.0/16", 1)].concat(), vec![], set("10.2.0.0/16", 1)];
        let bytes: Vec<u8> = bodies.iter().flat_map(|body| frame(body)).collect();
        let (mut whole, mut pieces) = (server(), server());
        whole.input(0, &bytes).expect("good frames");
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % bytes.len()).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        for pair in cuts.windows(2) {
            pieces.input(0, &bytes[pair[0]..pair[1]]).expect("good frames");
        }
        prop_assert_eq!(whole.updates(), pieces.updates());
        prop_assert_eq!(whole.counters(), pieces.counters());
    }

    /// No input panics, and a receiver of the updates has the next hops of every route.
    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..2000)) {
        fuzz(&data);
    }

    /// As `any_bytes`, but with valid messages about next hops and routes, in any order.
    #[test]
    fn any_messages(steps in prop::collection::vec((0u8..7, 0u32..9, prop::collection::vec((1u32..9, 1u8..5), 1..4), any::<bool>()), 0..60)) {
        let mut data = Vec::new();
        for (what, id, members, session) in steps {
            let dest = format!("10.{id}.0.0/16");
            let body = match what {
                0 => single(id, [10, 0, 0, id as u8], id),
                1 => group(id, &members),
                2 => gone(id),
                3 | 4 => set(&dest, members[0].0),
                5 => unset(&dest),
                _ => message(rtnetlink::NEW_ROUTE, |_| {}, &dest, &[hop([10, 0, 0, 9], id, 1)]),
            };
            let framed = frame(&body);
            if framed.len() < 256 {
                data.extend([4, framed.len() as u8]);
                data.extend(framed);
            }
            if session && id < 3 {
                data.extend([[0, 0], [1, 0], [3, 90]][id as usize]);
            }
        }
        fuzz(&data);
    }
}
