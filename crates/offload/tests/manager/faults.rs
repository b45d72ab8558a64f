//! A fault at each operation of the SDK in turn, for every strategy and policy. Afterwards configuration, manager and
//! chip must agree, and no packet may take a shorter prefix because a longer one is missing.

use crate::common::protocols::{Protocols, numbered, random_group_change};
use crate::common::{APPLIANCE, acl, agree, bound, denied, group, list, manager, random_prefix, route};
use ipnet::IpNet;
use lanyard_asic::object::Object;
use lanyard_asic::sdk::Operation;
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_offload::simulated::Simulated;
use lanyard_offload::strategy::NAMES;
use lanyard_offload::{Manager, Place, Policy};
use lanyard_pipeline::generate::Rng;
use lanyard_pipeline::state::{Unregistered, VlanState};
use lanyard_types::{AdjacencyId, PortId, VlanId, VrfId};
use std::net::IpAddr;

/// Makes requests that add, change and remove, alone and in batches; returns how many were accepted.
fn traffic(manager: &mut Manager<Simulated>, seed: u64, requests: u32) -> u32 {
    let mut rng = Rng::new(seed);
    let mut accepted = 0;
    for _ in 0..requests {
        let batch: Vec<Operation> = (0..1 + rng.next_u64() % 4)
            .map(|_| {
                let by = (!rng.next_u64().is_multiple_of(3)).then_some(1 + (rng.next_u64() % 2) as u32);
                match rng.next_u64() % 12 {
                    0 => {
                        let adjacency =
                            AdjacencyId::new(1 + (rng.next_u64() % 2) as u32).expect("an adjacency");
                        Operation::Group(group(1), Some(vec![adjacency; 1 << (rng.next_u64() % 3)]))
                    }
                    _ => route(random_prefix(&mut rng), by),
                }
            })
            .collect();
        accepted += u32::from(manager.request(&batch).is_ok());
    }
    accepted
}

#[test]
fn after_a_fault_at_any_operation_the_three_views_agree() {
    let mut cases = 0;
    for strategy in NAMES {
        for policy in [Policy::Sync, Policy::Hybrid] {
            for fault in ["fail", "cut", "die"] {
                for at in 1..=40 {
                    let mut manager = manager(APPLIANCE, strategy, policy);
                    manager.drain();
                    let plan = format!("{fault} operation at {at}\n{fault} query at {}", at * 3);
                    manager.hardware().set_faults(FaultPlan::parse(&plan).expect("a plan"));
                    traffic(&mut manager, at, 30);
                    let what = format!("{strategy}, {policy:?}, {fault} at {at}");
                    manager.settle().unwrap_or_else(|error| unreachable!("{what}: {error}"));
                    agree(&mut manager, at, &what);
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} cases");
}

#[test]
fn faults_that_go_on_are_survived() {
    for strategy in NAMES {
        for policy in [Policy::Sync, Policy::Hybrid, Policy::Bypass] {
            for plan in [
                "fail operation every 7",
                "fail route every 3",
                "cut operation every 23",
                "fail query every 5",
            ] {
                let mut manager = manager(APPLIANCE, strategy, policy);
                manager.drain();
                manager.hardware().set_faults(FaultPlan::parse(plan).expect("a plan"));
                traffic(&mut manager, 5, 60);
                manager.hardware().set_faults(FaultPlan::default());
                let what = format!("{strategy}, {policy:?}, {plan}");
                manager.settle().unwrap_or_else(|error| unreachable!("{what}: {error}"));
                agree(&mut manager, 9, &what);
            }
        }
    }
}

#[test]
fn a_table_that_overflows_under_faults_leaves_no_black_hole() {
    for strategy in ["lockstep", "credit", "hybrid"] {
        let mut manager = manager(APPLIANCE, strategy, Policy::Hybrid);
        manager.hardware().set_faults(FaultPlan::parse("fail route every 11").expect("a plan"));
        let accepted = traffic(&mut manager, 3, 1500);
        assert!(accepted > 500, "{strategy}: {accepted}");
        manager.hardware().set_faults(FaultPlan::default());
        manager.settle().expect("the chip works");
        agree(&mut manager, 4, strategy);
    }
}

#[test]
fn without_a_chip_the_software_plane_has_everything() {
    let mut manager = manager(APPLIANCE, "hybrid", Policy::Sync);
    assert!(traffic(&mut manager, 1, 20) > 10);
    manager.hardware().restarts = false;
    manager.hardware().set_faults(FaultPlan::parse("die operation at 5").expect("a plan"));
    traffic(&mut manager, 2, 20);
    manager.settle().expect("given up");
    assert!(manager.is_down() && manager.written().is_empty());
    assert!(traffic(&mut manager, 3, 20) > 10, "configuration goes on");
    agree(&mut manager, 5, "down");
}

/// Lists that overflow their table, grow, shrink and are removed, with a fault at each operation in turn: afterwards each list
/// judges in one place, and a frame that it denies is never forwarded.
#[test]
fn after_a_fault_at_any_operation_each_list_judges_in_one_place() {
    let set = |number, rules| list(number, Some(rules));
    let mut diverted = 0;
    for strategy in NAMES {
        for fault in ["fail", "cut", "die"] {
            for at in 1..=16 {
                let mut manager = manager(APPLIANCE, strategy, Policy::Hybrid);
                manager.drain();
                let plan = format!("{fault} operation at {at}");
                manager.hardware().set_faults(FaultPlan::parse(&plan).expect("a plan"));
                let what = format!("{strategy}, {plan}");
                // A request that fails must leave no trace.
                let mut wanted = [None; 3];
                for (number, rules) in [(1, 20), (2, 15), (1, 10), (2, 30), (1, 5)] {
                    if manager.setup(&[set(number, rules)]).is_ok() {
                        wanted[usize::from(number)] = Some(rules);
                    }
                    if number == 2 && wanted[2].is_some() {
                        let _ = manager.setup(&[bound(2)]);
                    }
                }
                if manager.setup(&[list(1, None)]).is_ok() {
                    wanted[1] = None;
                }
                let _ = manager.set_policy(Object::AclIpv4, Policy::Bypass);
                let _ = manager.set_policy(Object::AclIpv4, Policy::Hybrid);
                manager.settle().unwrap_or_else(|error| unreachable!("{what}: {error}"));
                agree(&mut manager, at, &what);
                let truth = manager.hardware().truth();
                for (number, rules) in (1..=2_u16).zip(&wanted[1..]) {
                    let has = truth.contains(&list(number, *rules));
                    assert_eq!(has, rules.is_some(), "{what}: list {number}");
                    let out = truth.contains(&Operation::Divert(acl(number), true));
                    let place = rules.map(|_| if out { Place::Trapped } else { Place::Offloaded });
                    assert_eq!(manager.list_place(acl(number)), place, "{what}: list {number}");
                    diverted += u32::from(out);
                }
                let port = PortId::new(1).expect("a port");
                let now = manager.hardware().now();
                let device = manager.hardware().device();
                device.frame(now, port, &denied());
                let counters = device.chip().pipeline().counters().port(port);
                assert_eq!(counters.forwarded, 0, "{what}: a frame that its list denies");
            }
        }
    }
    println!("{diverted} lists diverted at the end");
}

/// A VLAN with these settings of multicast snooping.
fn snooped(number: u16, unregistered: Option<Unregistered>) -> Operation {
    let state = VlanState { snooping: [unregistered; 2], ..VlanState::default() };
    Operation::Vlan(VlanId::new(number).expect("a VLAN"), Some(state))
}

/// The protocols change groups between requests of the manager, with a fault at each operation in turn: afterwards the chip has
/// the groups, the VLANs with their snooping, and the routes.
#[test]
fn after_a_fault_at_any_operation_the_groups_are_those_of_the_protocols() {
    for strategy in NAMES {
        for fault in ["fail", "cut", "die"] {
            for kind in ["multicast", "routers", "flood", "vlan", "operation"] {
                for at in 1..=12 {
                    let mut manager = manager(APPLIANCE, strategy, Policy::Hybrid);
                    let mut protocols = Protocols::default();
                    manager.drain();
                    let plan = format!("{fault} {kind} at {at}");
                    let what = format!("{strategy}, {plan}");
                    manager.hardware().set_faults(FaultPlan::parse(&plan).expect("a plan"));
                    let mut rng = Rng::new(at);
                    let mut wanted = Vec::new();
                    for round in 0..16 {
                        for _ in 0..4 {
                            protocols.change(manager.hardware(), &random_group_change(&mut rng));
                        }
                        let unregistered = [None, Some(Unregistered::Flood), Some(Unregistered::Routers)];
                        let vlan =
                            snooped(2 + round % 3, unregistered[usize::from(round % 2 + round % 3) % 3]);
                        // A request that fails must leave no trace.
                        if manager.setup(std::slice::from_ref(&vlan)).is_ok() {
                            wanted.retain(|other| !same_vlan(other, &vlan));
                            wanted.push(vlan);
                        }
                        traffic(&mut manager, at + u64::from(round), 1);
                    }
                    manager.settle().unwrap_or_else(|error| unreachable!("{what}: {error}"));
                    agree(&mut manager, at, &what);
                    protocols.agree(manager.hardware(), &what);
                    let truth = manager.hardware().truth();
                    let vlans = truth.iter().filter(|entry| matches!(entry, Operation::Vlan(..))).count();
                    assert_eq!(vlans, wanted.len(), "{what}");
                    wanted.iter().for_each(|vlan| assert!(truth.contains(vlan), "{what}: {vlan:?}"));
                }
            }
        }
    }
}
fn same_vlan(one: &Operation, other: &Operation) -> bool {
    matches!((one, other), (Operation::Vlan(one, _), Operation::Vlan(other, _)) if one == other)
}

/// Groups have filled the table that host routes use as well: with the policy `sync` an accepted route is in the chip
/// nevertheless.
#[test]
fn a_route_without_room_beside_groups_is_refused_at_once() {
    for strategy in NAMES {
        let mut manager = manager(APPLIANCE, strategy, Policy::Sync);
        manager.drain();
        manager.setup(&[snooped(2, Some(Unregistered::Flood))]).expect("a VLAN takes no entry");
        let mut protocols = Protocols::default();
        let mut number = 0;
        while protocols.refused < 50 {
            protocols.change(manager.hardware(), &numbered(number));
            number += 1;
        }
        let (mut accepted, mut refused) = (Vec::new(), 0);
        for number in 0..200_u8 {
            let host = IpNet::from(IpAddr::from([10, 0, 0, number]));
            match manager.request(&[route(host, Some(1))]) {
                Ok(()) => accepted.push(host),
                Err(_) => refused += 1,
            }
        }
        manager.settle().expect("the chip works");
        assert!(refused > 0, "{strategy}: groups have taken the room");
        for host in accepted {
            let place = manager.place(VrfId::DEFAULT, host);
            assert_eq!(place, Some(Place::Offloaded), "{strategy}: {host} was accepted");
        }
        agree(&mut manager, 1, strategy);
        protocols.agree(manager.hardware(), strategy);
    }
}
