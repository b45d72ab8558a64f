//! Policies by table, the places of hot and cold routes, sizes of tables, access lists and alarms, also after restarts.

use crate::common::{
    APPLIANCE, SALT, acl, agree, bound, denied, hops, list, manager, platform, ports, route,
};
use ipnet::IpNet;
use lanyard_asic::object::Object;
use lanyard_asic::sdk::Operation;
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_offload::manager::Move;
use lanyard_offload::simulated::Simulated;
use lanyard_offload::strategy::{NAMES, by_name};
use lanyard_offload::{Manager, Place, Policy, Refusal};
use lanyard_types::{DropReason, MacAddr, PortId, VrfId};
use std::net::Ipv4Addr;

fn prefix(number: u32) -> IpNet {
    IpNet::new(Ipv4Addr::from(0x0b00_0000 + (number << 8)).into(), 24).expect("a prefix")
}
fn host(number: u32) -> IpNet {
    IpNet::new(Ipv4Addr::from(0x0c00_0000 + number).into(), 32).expect("a host")
}
fn place(manager: &Manager<Simulated>, prefix: IpNet) -> Option<Place> {
    manager.place(VrfId::DEFAULT, prefix)
}
fn size(manager: &mut Manager<Simulated>, path: &str) -> (u32, u32) {
    let usage = manager.hardware().device().chip().usage();
    let table = usage.into_iter().find(|table| table.path == path).expect("a table");
    (table.used, table.size)
}

/// Lets port 1 receive a packet to the first host of the prefix `to`.
fn packet(manager: &mut Manager<Simulated>, to: IpNet) {
    let mac = |number: u64| MacAddr::from_u64(0x0200_0000_0000 | number).0;
    let mut frame =
        [&mac(1)[..], &mac(0x1ff), &[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1]].concat();
    let std::net::IpAddr::V4(network) = to.network() else { unreachable!("IPv4") };
    frame.extend((u32::from(network) + 1).to_be_bytes());
    let sum: u32 =
        frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.resize(60, 0);
    let now = manager.hardware().now();
    manager.hardware().device().frame(now, PortId::new(1).expect("a port"), &frame);
}

/// Lets the manager query the chip's figures, and waits for the answers.
fn sample(manager: &mut Manager<Simulated>) {
    manager.poll();
    manager.drain();
}

#[test]
fn each_table_has_its_own_policy() {
    for strategy in NAMES {
        let mut manager = manager(APPLIANCE, strategy, Policy::Sync);
        manager.set_table_policy("hash/addresses", Policy::Hybrid).expect("a table");
        assert_eq!(manager.policy(Object::Ipv4Host), Policy::Hybrid);
        assert_eq!(manager.policy(Object::Ipv4Prefix), Policy::Sync);
        let unknown = manager.set_table_policy("hash/none", Policy::Hybrid);
        assert!(
            matches!(&unknown, Err(Refusal::Invalid(why)) if why.contains("hash/addresses")),
            "{unknown:?}"
        );
        let mut refused = 0;
        for number in 0..1100 {
            match manager.request(&[route(prefix(number), Some(1))]) {
                Err(Refusal::Full { table, .. }) if table == "tcam/routes" => refused += 1,
                outcome => outcome.expect("room"),
            }
        }
        assert_eq!(refused, 76, "{strategy}: what does not fit the routes' table is refused");
        // A hash table of one bank refuses some of these long before it is full; all are accepted.
        for number in 0..6000 {
            manager.request(&[route(host(number), Some(2))]).expect("accepted");
        }
        assert!(manager.hidden() > 500, "{strategy}: {}", manager.hidden());
        // A batch of a host and a prefix: the prefix is refused, and the host with it.
        let hidden = manager.hidden();
        let batch = [route(host(9000), Some(1)), route(prefix(2000), Some(1))];
        assert!(manager.request(&batch).is_err(), "{strategy}");
        manager.settle().expect("the chip works");
        assert_eq!((place(&manager, host(9000)), manager.hidden()), (None, hidden), "{strategy}");
        agree(&mut manager, 1, strategy);
        // With the policy `bypass` all host routes leave the chip; with `hybrid` they return.
        manager.set_policy(Object::Ipv4Host, Policy::Bypass).expect("the chip works");
        manager.settle().expect("the chip works");
        assert_eq!(size(&mut manager, "hash/addresses").0, 0, "{strategy}");
        assert_eq!(place(&manager, host(1)), Some(Place::Trapped));
        agree(&mut manager, 2, strategy);
        manager.set_policy(Object::Ipv4Host, Policy::Hybrid).expect("the chip works");
        manager.settle().expect("the chip works");
        assert!(size(&mut manager, "hash/addresses").0 > 4500, "{strategy}");
        agree(&mut manager, 3, strategy);
    }
}

#[test]
fn a_hot_hidden_route_takes_the_place_of_a_cold_one() {
    for strategy in NAMES {
        let mut manager = manager(APPLIANCE, strategy, Policy::Hybrid);
        for number in 0..1034 {
            manager.request(&[route(prefix(number), Some(1))]).expect("accepted");
        }
        manager.settle().expect("the chip works");
        assert_eq!(manager.hidden(), 10, "{strategy}");
        // All programmed routes except three are used. Of the hidden routes six are hot, the others are used a little.
        let unused = [100, 500, 900];
        for number in (0..1024).filter(|number| !unused.contains(number)) {
            (0..8).for_each(|_| packet(&mut manager, prefix(number)));
        }
        for number in 1024..1034 {
            let address = prefix(number).hosts().next().expect("a host");
            manager.hit(VrfId::DEFAULT, address, if number < 1030 { 100 } else { 5 });
        }
        sample(&mut manager);
        let moved = manager.rebalance(16);
        manager.settle().expect("the chip works");
        // Three hot routes take the places of the unused ones, the others those of routes that are used less than half as much.
        assert_eq!(moved, 6, "{strategy}");
        for number in 1024..1030 {
            assert_eq!(place(&manager, prefix(number)), Some(Place::Offloaded), "{strategy}: {number}");
        }
        for number in unused.into_iter().chain(1030..1034) {
            assert_eq!(place(&manager, prefix(number)), Some(Place::Trapped), "{strategy}: {number}");
        }
        assert_eq!(manager.hidden(), 10);
        agree(&mut manager, 1, strategy);
        // Without further packets no route moves.
        sample(&mut manager);
        assert_eq!(manager.rebalance(16), 0, "{strategy}");
    }
}

#[test]
fn equal_routes_do_not_change_places_for_ever() {
    let mut manager = manager(APPLIANCE, "hybrid", Policy::Hybrid);
    for number in 0..1025 {
        manager.request(&[route(prefix(number), Some(1))]).expect("accepted");
    }
    let hidden = prefix(1024);
    let mut moved = 0;
    for _ in 0..20 {
        for number in 0..1024 {
            packet(&mut manager, prefix(number));
        }
        manager.hit(VrfId::DEFAULT, hidden.hosts().next().expect("a host"), 1);
        sample(&mut manager);
        moved += manager.rebalance(8);
    }
    assert_eq!((moved, place(&manager, hidden)), (0, Some(Place::Trapped)));
}

#[test]
fn a_grown_table_takes_hidden_routes_and_never_shrinks_below_occupancy() {
    for strategy in NAMES {
        let mut manager = manager(APPLIANCE, strategy, Policy::Hybrid);
        for number in 0..1152 {
            manager.request(&[route(prefix(number), Some(1))]).expect("accepted");
        }
        assert_eq!(manager.hidden(), 128, "{strategy}");
        // The memory has no free units: the table of rules must become smaller first.
        assert!(manager.resize("tcam/routes", 1152).is_err(), "{strategy}");
        manager.resize("tcam/rules", 896).expect("nothing is in it");
        manager.resize("tcam/routes", 1152).expect("room");
        manager.settle().expect("the chip works");
        assert_eq!((manager.hidden(), size(&mut manager, "tcam/routes")), (0, (1152, 1152)), "{strategy}");
        assert!(manager.resize("tcam/routes", 1024).is_err(), "{strategy}: 1,152 routes are in it");
        assert!(manager.resize("tcam/routes", 1000).is_err(), "{strategy}: no multiple of 128");
        agree(&mut manager, 1, strategy);
        // A restarted chip has the sizes of its platform file until the manager restores the configured ones.
        manager.hardware().salt += 1;
        manager.hardware().set_faults(FaultPlan::parse("die operation at 1").expect("a plan"));
        let _ = manager.request(&[route(prefix(0), None)]);
        manager.settle().expect("the chip is back");
        assert_eq!(size(&mut manager, "tcam/routes").1, 1152, "{strategy}");
        agree(&mut manager, 2, strategy);
        manager.request(&[route(prefix(1152), Some(1))]).expect("accepted");
        manager.settle().expect("the chip works");
        assert_eq!(manager.hidden(), usize::from(place(&manager, prefix(0)).is_some()), "{strategy}");
        agree(&mut manager, 3, strategy);
    }
}

#[test]
fn an_access_list_is_in_the_chip_whole_or_diverted_whole() {
    for strategy in NAMES {
        let used = |manager: &mut Manager<Simulated>| size(manager, "tcam/rules").0;
        let set = |number, rules| list(number, Some(rules));
        let mut sync = manager(APPLIANCE, strategy, Policy::Sync);
        sync.setup(&[set(1, 20)]).expect("room");
        assert_eq!((used(&mut sync), sync.list_place(acl(1))), (601, Some(Place::Offloaded)), "{strategy}");
        // Lists of 601 and 451 entries do not fit together: the second one is refused and leaves no trace.
        assert!(matches!(sync.setup(&[set(2, 15)]), Err(Refusal::Full { .. })), "{strategy}");
        assert_eq!((used(&mut sync), sync.list_place(acl(2))), (601, None));
        // If the new rules of a list do not fit, the old list stays.
        assert!(sync.setup(&[set(1, 35)]).is_err(), "{strategy}");
        assert_eq!((used(&mut sync), sync.list_place(acl(1))), (601, Some(Place::Offloaded)));
        let mut hybrid = manager(APPLIANCE, strategy, Policy::Hybrid);
        // A list is diverted even in one transaction with a port that refers to it.
        hybrid.setup(&[set(1, 20), set(2, 15), bound(2)]).expect("diverted");
        assert_eq!(hybrid.list_place(acl(1)), Some(Place::Offloaded), "{strategy}");
        assert_eq!(hybrid.list_place(acl(2)), Some(Place::Trapped), "{strategy}");
        assert_eq!(used(&mut hybrid), 601, "nothing of the second list");
        let moved = |place| vec![Move { name: "access list 2".into(), place }];
        assert_eq!(hybrid.moves(), moved(Place::Trapped));
        judge(&mut hybrid, 2, Place::Trapped, strategy);
        // The second list gets its entries when the first one becomes shorter.
        hybrid.setup(&[set(1, 10)]).expect("room");
        assert_eq!((used(&mut hybrid), hybrid.list_place(acl(2))), (301 + 451, Some(Place::Offloaded)));
        assert_eq!((hybrid.moves(), hybrid.moves()), (moved(Place::Offloaded), Vec::new()));
        judge(&mut hybrid, 2, Place::Offloaded, strategy);
        // A list that grows too much is diverted; a list that is removed makes room for it.
        hybrid.setup(&[set(2, 30)]).expect("diverted");
        assert_eq!((used(&mut hybrid), hybrid.list_place(acl(2))), (301, Some(Place::Trapped)), "{strategy}");
        hybrid.setup(&[list(1, None)]).expect("removed");
        assert_eq!((used(&mut hybrid), hybrid.list_place(acl(2))), (901, Some(Place::Offloaded)));
        hybrid.set_policy(Object::AclIpv4, Policy::Bypass).expect("the chip works");
        assert_eq!((used(&mut hybrid), hybrid.list_place(acl(2))), (0, Some(Place::Trapped)), "{strategy}");
        judge(&mut hybrid, 2, Place::Trapped, strategy);
        hybrid.set_policy(Object::AclIpv4, Policy::Hybrid).expect("the chip works");
        // With the policy `sync`, a diverted list that is changed must fit.
        hybrid.setup(&[set(2, 40)]).expect("diverted");
        hybrid.set_policy(Object::AclIpv4, Policy::Sync).expect("the chip works");
        assert_eq!(hybrid.list_place(acl(2)), Some(Place::Trapped), "it was accepted");
        assert!(matches!(hybrid.setup(&[set(2, 36)]), Err(Refusal::Full { .. })), "{strategy}");
        hybrid.setup(&[set(2, 30)]).expect("room");
        assert_eq!((used(&mut hybrid), hybrid.list_place(acl(2))), (901, Some(Place::Offloaded)));
        // A restarted chip gets both lists again; when the table grows, the diverted one gets its entries.
        hybrid.set_policy(Object::AclIpv4, Policy::Hybrid).expect("the chip works");
        hybrid.setup(&[set(3, 10), bound(3)]).expect("diverted");
        hybrid.hardware().set_faults(FaultPlan::parse("die operation at 1").expect("a plan"));
        let _ = hybrid.request(&[route(prefix(0), Some(1))]);
        hybrid.settle().expect("the chip is back");
        let places = [2, 3].map(|number| hybrid.list_place(acl(number)));
        assert_eq!(places, [Some(Place::Offloaded), Some(Place::Trapped)], "{strategy}");
        judge(&mut hybrid, 3, Place::Trapped, strategy);
        hybrid.resize("tcam/routes", 512).expect("room");
        hybrid.resize("tcam/rules", 1536).expect("room");
        assert_eq!((used(&mut hybrid), hybrid.list_place(acl(3))), (1202, Some(Place::Offloaded)));
        judge(&mut hybrid, 3, Place::Offloaded, strategy);
    }
}

/// Checks that list `number` has this place, and that a frame that port 1 receives and the list denies is dropped by the list
/// itself or diverted accordingly.
fn judge(manager: &mut Manager<Simulated>, number: u16, place: Place, what: &str) {
    let found = manager.list_place(acl(number));
    assert_eq!(found, Some(place), "{what}");
    let (now, port) = (manager.hardware().now(), PortId::new(1).expect("a port"));
    let counted = |manager: &mut Manager<Simulated>, reason: DropReason| {
        manager.hardware().device().chip().pipeline().counters().port(port).dropped[reason.index()]
    };
    let count = |manager: &mut Manager<Simulated>| {
        [DropReason::AclPortIn, DropReason::AclUnjudged].map(|reason| counted(manager, reason))
    };
    let before = count(manager);
    manager.hardware().device().frame(now, port, &denied());
    let after = count(manager);
    // No driver judges here, so a diverted frame is dropped and counted.
    let grown = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(grown, if place == Place::Offloaded { [1, 0] } else { [0, 1] }, "{what}: list {number}");
}

#[test]
fn alarms_are_raised_once_and_cleared_once() {
    for strategy in NAMES {
        let mut manager = manager(APPLIANCE, strategy, Policy::Hybrid);
        let mut news = Vec::new();
        let mut send = |manager: &mut Manager<Simulated>| {
            sample(manager);
            news.extend(manager.alarms().into_iter().map(|alarm| (alarm.path, alarm.raised)));
        };
        for number in 0..1100 {
            manager.request(&[route(prefix(number), Some(1))]).expect("accepted");
            if number % 50 == 0 {
                send(&mut manager);
            }
        }
        for number in 0..1100 {
            manager.request(&[route(prefix(number), None)]).expect("a removal");
            if number % 50 == 0 {
                send(&mut manager);
            }
        }
        let path = || "tcam/routes".to_owned();
        assert_eq!(news, [(path(), true), (path(), false)], "{strategy}");
    }
}

#[test]
fn a_chip_that_comes_back_gets_everything_and_its_new_salt() {
    for strategy in NAMES {
        let mut manager = manager(APPLIANCE, strategy, Policy::Hybrid);
        for number in 0..3000 {
            manager.request(&[route(host(number), Some(1))]).expect("accepted");
        }
        manager.hardware().restarts = false;
        manager.hardware().set_faults(FaultPlan::parse("die operation at 3").expect("a plan"));
        for number in 0..8 {
            manager.request(&[route(prefix(number), Some(2))]).expect("accepted");
        }
        manager.settle().expect("given up");
        assert!(manager.is_down() && manager.written().is_empty(), "{strategy}");
        assert_eq!(place(&manager, prefix(1)), Some(Place::Trapped));
        // Without a chip, set-up, routes and lists are accepted, and `revive` returns false.
        let vlan = lanyard_types::VlanId::new(7).expect("a VLAN");
        manager.setup(&[Operation::Vlan(vlan, Some(Default::default()))]).expect("kept");
        manager.request(&[route(prefix(9), Some(2))]).expect("accepted");
        manager.setup(&[list(1, Some(2))]).expect("kept");
        assert_eq!(manager.list_place(acl(1)), Some(Place::Trapped));
        assert_eq!(manager.revive(), Ok(false));
        manager.hardware().restarts = true;
        manager.hardware().salt += 1;
        assert_eq!(manager.revive(), Ok(true), "{strategy}");
        assert!(!manager.is_down());
        assert_eq!(place(&manager, prefix(9)), Some(Place::Offloaded), "{strategy}");
        assert_eq!(manager.list_place(acl(1)), Some(Place::Offloaded));
        assert!(manager.hardware().truth().contains(&Operation::Vlan(vlan, Some(Default::default()))));
        agree(&mut manager, 1, strategy);
    }
}

#[test]
fn a_warm_boot_writes_nothing_that_is_there() {
    for strategy in NAMES {
        let mut before = manager(APPLIANCE, strategy, Policy::Hybrid);
        for number in 0..1100 {
            before.request(&[route(prefix(number), Some(1 + number % 2))]).expect("accepted");
        }
        before.settle().expect("the chip works");
        let hidden = before.hidden();
        let mut chip = before.into_hardware();
        lanyard_offload::Hardware::reconnect(&mut chip).expect("a chip");
        let truth = chip.truth();
        let again = by_name(strategy, &platform(APPLIANCE), SALT, 64).expect("a strategy");
        let mut after = Manager::warm(chip, again, Policy::Hybrid).expect("read back");
        assert!(after.is_held());
        after.setup(&ports()).expect("kept");
        after.request(&hops()).expect("kept");
        for number in 0..1100 {
            after.request(&[route(prefix(number), Some(1 + number % 2))]).expect("kept");
            assert_eq!(after.hardware().truth().len(), truth.len());
        }
        let start = after.hardware().now_us();
        after.end_warm_boot().expect("the chip works");
        assert!(!after.is_held());
        assert_eq!(after.hardware().truth(), truth, "{strategy}: the same routes are in the chip");
        assert_eq!(after.hidden(), hidden);
        // Reading the chip back takes some queries, and each route that does not fit is tried once.
        let spent = after.hardware().now_us() - start;
        assert!(spent < 60 * (hidden as u64 + 80), "{strategy}: {spent} us");
        agree(&mut after, 1, strategy);
    }
}
