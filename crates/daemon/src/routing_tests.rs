//! Following the kernel's routing, in memory: the messages that are accepted, the order of listings, and the changes to
//! the plane.

use super::*;
use crate::follower::tests::neighbour_message;
use crate::follower::{AUDIT_GAP_MS, TRIES};
use crate::testing::{FakeNotification, World, accept, config, messages, route};
use lanyard_netdev::NeighbourState;
use lanyard_netdev::follow::{Rule, Table};
use lanyard_plane::RouteTarget;
use lanyard_types::{AdjacencyId, GroupId, MacAddr};

const ROUTED: &str = "ip routing\ninterface eth1\n no switchport\n ip address 10.0.0.1 255.255.255.0";
const ID: VrfId = VrfId::DEFAULT;

/// A world with `eth1`, which runs `text`.
fn world(text: &str) -> (World, Following) {
    let mut world = World::new();
    world.kernel.add("eth1");
    world.kernel.change("eth1", |link| (link.admin_up, link.carrier) = (true, true));
    world.ctx.refresh();
    accept(&mut world.ctx, config(text));
    let mut following = Following::new().expect("a descriptor");
    following.configure(&mut world.ctx);
    let state = world.ctx.switch.state();
    following.apply(&mut world.ctx, &state).expect("taken");
    (world, following)
}

/// Turns until there is nothing left to do; returns their number.
fn follow(world: &mut World, following: &mut Following) -> usize {
    for turns in 0..200 {
        let turn = following.turn(&mut world.ctx);
        following.end_turn(&mut world.ctx, &turn);
        if !turn.any && !following.busy {
            return turns;
        }
    }
    panic!("it does not come to an end");
}

fn target(world: &mut World) -> String {
    let found = world.ctx.plane.route_lookup(ID, [10, 9, 1, 1].into());
    found.target.map(|target| format!("{target:?}")).unwrap_or_default()
}

#[test]
fn no_kernel_routes_are_followed_without_routing() {
    let (mut world, mut following) = world("interface eth1\n switchport");
    assert!(!following.follows_own() && following.vrf(None).is_none());
    assert_eq!(following.next_ms(&world.ctx), None);
    assert_eq!(follow(&mut world, &mut following), 0);
    assert!(!following.own_changed());
    accept(&mut world.ctx, config(ROUTED));
    following.configure(&mut world.ctx);
    assert!(following.follows_own() && following.vrf(None) == Some(ID));
    assert_eq!((following.own_changed(), following.own_changed()), (true, false), "reported once");
    assert_eq!(following.next_ms(&world.ctx), Some(0), "there is work");
    accept(&mut world.ctx, config(""));
    following.configure(&mut world.ctx);
    assert!(!following.follows_own() && following.own_changed());
}

#[test]
fn a_namespace_that_cannot_be_followed_is_named() {
    let mut world = World::new();
    world.kernel.state().unfollowable = true;
    accept(&mut world.ctx, config(ROUTED));
    let mut following = Following::new().expect("a descriptor");
    following.configure(&mut world.ctx);
    let want = "FOLLOW: routing table default is not followed: VRF default has no namespace";
    assert_eq!(messages(&world.ctx), [want]);
    world.kernel.state().unfollowable = false;
    following.configure(&mut world.ctx);
    assert!(following.follows_own(), "tried again at the next configuration");
}

#[test]
fn as_many_vrfs_as_the_plane_has() {
    let (world, mut following) = world("");
    for n in 0..MAX_VRFS {
        following.follow(&world.ctx, Some(format!("v{n}"))).expect("room");
    }
    let ids: BTreeSet<VrfId> = following.follows.values().map(|follow| follow.id).collect();
    assert_eq!(ids.len(), usize::from(MAX_VRFS), "each has a number of its own");
    assert!(!ids.contains(&ID), "0 is the switch's own");
    let error = following.follow(&world.ctx, Some("more".into())).map(drop).expect_err("no number left");
    assert_eq!(error.to_string(), format!("{MAX_VRFS} VRFs are routed already"));
    assert!(following.follow(&world.ctx, None).is_ok(), "the own one has its number");
}

#[test]
fn the_plane_is_synced_after_the_listing_and_the_queued_events() {
    let (mut world, mut following) = world(ROUTED);
    assert!(following.syncs(), "what an adopted plane was left with stays until then");
    world.kernel.say(FakeNotification::Neighbour(neighbour_message(9, NeighbourState::Reachable)));
    world.kernel.say(FakeNotification::Route(route("10.9.0.0/16", &[[10, 0, 0, 9]], 1), false));
    follow(&mut world, &mut following);
    assert!(!following.syncs());
    assert!(target(&mut world).starts_with("Group"), "{}", target(&mut world));
    assert_eq!(following.received(None).audits, 1);
    assert!(following.changes > 0);
    let prefix = "10.9.0.0/16".parse().expect("a prefix");
    assert_eq!(following.route_offload(None, prefix, 0, false), view::Offload::Offloaded);
    assert_eq!(following.route_offload(Some("red"), prefix, 0, false), view::Offload::None);
    assert_eq!(following.neighbour_offload(None, 1, [10, 0, 0, 9].into()), view::Offload::Offloaded);
}

#[test]
fn a_listing_that_changes_interrupt_is_used_after_so_many_tries() {
    let (mut world, mut following) = world(ROUTED);
    world.kernel.state().interrupted = true;
    let mut now_ms = 0;
    for _ in 0..1000 {
        follow(&mut world, &mut following);
        if !following.syncs() {
            break;
        }
        now_ms += AUDIT_GAP_MS;
        world.clock.set(now_ms);
    }
    assert_eq!(following.received(None).audits, u64::from(TRIES));
    assert!(!following.syncs(), "its result is used as it is");
}

/// A table that the kernel does not have is no reason to repeat an audit; a lost answer is one.
#[test]
fn a_table_that_cannot_be_listed() {
    for (errno, consistent) in [(libc::EOPNOTSUPP, true), (libc::ENOBUFS, false)] {
        let (mut world, mut following) = world(ROUTED);
        world.kernel.state().unlistable = Some(errno);
        follow(&mut world, &mut following);
        assert_eq!(!following.syncs(), consistent, "error {errno}");
    }
}

#[test]
fn a_loss_of_events_is_counted_and_audited_after_the_gap() {
    let (mut world, mut following) = world(ROUTED);
    follow(&mut world, &mut following);
    world.kernel.say(FakeNotification::Overrun);
    follow(&mut world, &mut following);
    let received = following.received(None);
    assert_eq!((received.overruns, received.audits), (1, 1), "not at once");
    let due_ms = following.follows[&None].next_audit_ms;
    assert!(following.next_ms(&world.ctx).is_some_and(|at_ms| at_ms <= due_ms));
    world.clock.set(due_ms);
    follow(&mut world, &mut following);
    assert_eq!(following.received(None).audits, 2);
}

/// While events that are older than the loss are waiting, a listing would be out of date.
#[test]
fn an_audit_waits_for_the_events_before_it() {
    let (mut world, mut following) = world(ROUTED);
    follow(&mut world, &mut following);
    world.clock.set(following.follows[&None].next_audit_ms);
    world.kernel.say(FakeNotification::Overrun);
    for _ in 0..2 * TURN {
        world.kernel.say(FakeNotification::Neighbour(neighbour_message(9, NeighbourState::Reachable)));
    }
    following.turn(&mut world.ctx);
    let own = &following.follows[&None];
    assert!(own.behind && own.stage.is_none(), "a turn reads at most {TURN} messages");
    follow(&mut world, &mut following);
    assert_eq!((following.follows[&None].behind, following.received(None).audits), (false, 2));
}

#[test]
fn a_next_hop_that_is_not_known_is_asked_for() {
    let (mut world, mut following) = world(ROUTED);
    world.kernel.say(FakeNotification::Route(route("10.9.0.0/16", &[[10, 0, 0, 9]], 1), false));
    follow(&mut world, &mut following);
    let hop = IpAddr::from([10, 0, 0, 9]);
    assert_eq!(world.kernel.state().asked, [(1, hop)]);
    let mac = |world: &mut World, following: &Following| {
        let found = world.ctx.plane.route_lookup(ID, [10, 9, 1, 1].into());
        following.mirror.adjacency(found.buckets[0]).and_then(|(_, mac)| mac)
    };
    assert_eq!(mac(&mut world, &following), None);
    world.kernel.say(FakeNotification::Neighbour(neighbour_message(9, NeighbourState::Reachable)));
    follow(&mut world, &mut following);
    assert_eq!(mac(&mut world, &following), Some(MacAddr([2, 0, 0, 0, 0, 9])));
    assert_eq!(world.kernel.state().asked.len(), 1, "asked once");
}

/// A plane may refuse every change, so few messages are logged, each with the number of the refused changes. A table without room
/// is the business of `resources`.
#[test]
fn the_reason_of_a_refused_change_is_logged() {
    let (mut world, mut following) = world(ROUTED);
    follow(&mut world, &mut following);
    let full = PlaneError::TableFull { table: "adjacencies", size: 1 };
    let lost = PlaneError::System { what: "writing the table".into(), cause: "no memory".into() };
    let route_of = |n: u8| route(&format!("10.9.{n}.0/24"), &[[10, 0, 0, 100 + n]], 1);
    let mut logged = 0;
    for (n, reason, now_ms, news) in [
        (1, &full, 0, 0),
        (2, &lost, 0, 1),
        (3, &lost, REFUSAL_GAP_MS - 1, 0),
        (4, &lost, REFUSAL_GAP_MS, 1),
        (5, &full, 2 * REFUSAL_GAP_MS, 0),
    ] {
        world.clock.set(now_ms);
        *world.plane.refuses_routes.lock() = Some(reason.clone());
        world.kernel.say(FakeNotification::Route(route_of(n), false));
        follow(&mut world, &mut following);
        assert!(world.plane.refuses_routes.lock().is_none(), "{n}: the plane was given changes");
        let lines = messages(&world.ctx);
        let about: Vec<_> =
            lines.iter().filter(|line| line.starts_with("PLANE: the plane refused ")).collect();
        logged += news;
        assert_eq!(about.len(), logged, "{n}: {lines:?}");
        assert!(about.iter().all(|line| line.ends_with(": writing the table: no memory")), "{lines:?}");
    }
}

#[test]
fn refused_changes_are_named() {
    let (_world, following) = world(ROUTED);
    let prefix = "10.9.0.0/16".parse().expect("a prefix");
    let (adjacency, group) = (AdjacencyId::new(5).expect("valid"), GroupId::new(6).expect("valid"));
    let gone = VrfId::new(7).expect("valid");
    for (change, want) in [
        (RouteChange::Adjacency(adjacency, None), "the removal of adjacency 5"),
        (RouteChange::Group(group, Some(vec![adjacency])), "next-hop group 6"),
        (RouteChange::Route(ID, prefix, Some(RouteTarget::Blackhole)), "route 10.9.0.0/16 of VRF default"),
        (RouteChange::Route(gone, prefix, None), "the removal of route 10.9.0.0/16 of VRF number 7"),
        (RouteChange::VrfGone(gone), "the removal of the routes of VRF number 7"),
    ] {
        assert_eq!(following.describe(&change), want);
    }
}

#[test]
fn a_router_interface_that_goes_takes_its_routes_along() {
    let (mut world, mut following) = world(ROUTED);
    world.kernel.say(FakeNotification::Neighbour(neighbour_message(9, NeighbourState::Reachable)));
    world.kernel.say(FakeNotification::Route(route("10.9.0.0/16", &[[10, 0, 0, 9]], 1), false));
    follow(&mut world, &mut following);
    assert!(target(&mut world).starts_with("Group"));
    let bare = PlaneState { rifs: BTreeMap::new(), ..world.ctx.plane.state().clone() };
    following.apply(&mut world.ctx, &bare).expect("taken");
    assert!(!target(&mut world).starts_with("Group"), "{}", target(&mut world));
    let state = world.ctx.switch.state();
    following.apply(&mut world.ctx, &state).expect("taken");
    follow(&mut world, &mut following);
    assert!(target(&mut world).starts_with("Group"), "it brings them back: {}", target(&mut world));
}

#[test]
fn routing_is_confirmed_while_the_plane_routes_nothing_that_a_hook_sees() {
    let (mut world, mut following) = world(ROUTED);
    let confirmed = |world: &World| world.plane.confirmed.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(confirmed(&world), 0, "nothing has been followed yet");
    follow(&mut world, &mut following);
    following.log_forwarders(&mut world.ctx);
    assert_eq!(confirmed(&world), 1);
    follow(&mut world, &mut following);
    assert_eq!(confirmed(&world), 1, "once a second");
    world.clock.set(CONFIRM_GAP_MS);
    world.plane.ended.store(3, std::sync::atomic::Ordering::Relaxed);
    follow(&mut world, &mut following);
    assert_eq!(confirmed(&world), 2);
    let logged = messages(&world.ctx);
    assert!(
        logged.iter().any(|text| text.starts_with("WATCHDOG: ") && text.contains(" 3 interfaces")),
        "{logged:?}"
    );
    // A policy rule makes the kernel route, and the plane has not taken that change.
    world.kernel.say(FakeNotification::Rule(Rule { ipv6: false, standard: None }, false));
    let turn = following.turn(&mut world.ctx);
    following.log_forwarders(&mut world.ctx);
    world.clock.set(2 * CONFIRM_GAP_MS);
    following.end_turn(&mut world.ctx, &turn);
    assert_eq!(confirmed(&world), 2);
    let state = world.ctx.switch.state();
    following.apply(&mut world.ctx, &state).expect("taken");
    world.clock.set(3 * CONFIRM_GAP_MS);
    following.end_turn(&mut world.ctx, &turn);
    assert_eq!(confirmed(&world), 3);
}

#[test]
fn a_rule_beside_the_default_ones_leaves_the_table_to_the_kernel() {
    let (mut world, mut following) = world(ROUTED);
    let policy = |world: &World| world.ctx.switch.routers().vrfs[&None].policy;
    follow(&mut world, &mut following);
    assert_eq!(policy(&world), [false, false]);
    world.kernel.say(FakeNotification::Rule(Rule { ipv6: false, standard: None }, false));
    let turn = following.turn(&mut world.ctx);
    assert!(turn.routers_changed);
    assert_eq!(policy(&world), [true, false], "at once, before anything is listed");
    following.log_forwarders(&mut world.ctx);
    let logged = messages(&world.ctx);
    assert!(logged.iter().any(|text| text.starts_with("FORWARDER: ")), "{logged:?}");
    following.log_forwarders(&mut world.ctx);
    assert_eq!(messages(&world.ctx), logged, "printed once");
    // The rule is removed; the next listing shows whether others are left.
    world.kernel.say(FakeNotification::Rule(Rule { ipv6: false, standard: None }, true));
    following.turn(&mut world.ctx);
    assert_eq!(policy(&world), [true, false]);
    world.clock.set(20_000);
    follow(&mut world, &mut following);
    assert_eq!(policy(&world), [false, false]);
    // A rule that existed before is found by the listing.
    let rule = (Table::Rules6, FakeNotification::Rule(Rule { ipv6: true, standard: None }, false));
    world.kernel.state().listed.push(rule);
    world.kernel.say(FakeNotification::Overrun);
    world.clock.set(30_000);
    follow(&mut world, &mut following);
    assert_eq!(policy(&world), [false, true]);
}
