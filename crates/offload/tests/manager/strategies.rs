//! Tests every strategy on a full table, and measures its cost in simulated time of the bus.

use crate::common::{
    APPLIANCE, SALT, SPECTRUM, UFT, agree, hops, manager, platform, ports, random_prefix, route,
};
use ipnet::IpNet;
use lanyard_asic::chip::{Chip, Effects};
use lanyard_asic::object::Object;
use lanyard_asic::sdk::Operation;
use lanyard_asic::tables::{AclRule, PortRange};
use lanyard_offload::strategy::{Decision, NAMES, Write, by_name};
use lanyard_offload::{Place, Policy, Refusal};
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::generate::Rng;
use lanyard_pipeline::state::FdbTarget;
use lanyard_types::{MacAddr, PortId, VlanId, VrfId};

fn prefix(number: u32) -> IpNet {
    IpNet::new(std::net::Ipv4Addr::from(0x0b00_0000 + (number << 8)).into(), 24).expect("a prefix")
}

#[test]
fn twice_as_many_routes_as_fit_are_each_answered_and_room_is_used_again() {
    for strategy in NAMES {
        let mut manager = manager(APPLIANCE, strategy, Policy::Sync);
        let mut refused = 0;
        for number in 0..2048 {
            match manager.request(&[route(prefix(number), Some(1))]) {
                Ok(()) => {}
                Err(Refusal::Full { table, .. }) => {
                    assert_eq!(table, "tcam/routes");
                    refused += 1;
                }
                Err(other) => unreachable!("{strategy}: {other}"),
            }
        }
        assert_eq!(refused, 1024, "{strategy}");
        manager.settle().expect("the chip works");
        agree(&mut manager, 1, strategy);
        // If one route of a batch does not fit, the batch changes nothing.
        let batch = [route(prefix(0), None), route(prefix(3000), Some(2)), route(prefix(3001), Some(2))];
        assert!(manager.request(&batch).is_err(), "{strategy}");
        manager.settle().expect("the chip works");
        assert_eq!(manager.place(VrfId::DEFAULT, prefix(0)), Some(Place::Offloaded), "{strategy}");
        agree(&mut manager, 2, strategy);
        manager.request(&[route(prefix(0), None)]).expect("a removal");
        manager.request(&[route(prefix(3000), Some(2))]).expect("room again");
        manager.settle().expect("the chip works");
        agree(&mut manager, 3, strategy);
    }
}

#[test]
fn routes_that_do_not_fit_are_hidden_until_room_becomes_free() {
    for strategy in NAMES {
        let mut manager = manager(APPLIANCE, strategy, Policy::Hybrid);
        let default: IpNet = "0.0.0.0/0".parse().expect("a prefix");
        manager.request(&[route(default, Some(2))]).expect("room");
        for number in 0..2048 {
            manager.request(&[route(prefix(number), Some(1))]).expect("hidden where it does not fit");
        }
        manager.settle().expect("the chip works");
        assert_eq!(manager.hidden(), 1025, "{strategy}");
        agree(&mut manager, 1, strategy);
        assert_eq!(
            manager.place(VrfId::DEFAULT, default),
            Some(Place::Trapped),
            "{strategy}: it covers hidden routes"
        );
        // When a route is removed, the most used hidden route takes its place.
        let busy = prefix(2000);
        manager.hit(VrfId::DEFAULT, busy.hosts().next().expect("a host"), 9);
        assert_eq!(manager.place(VrfId::DEFAULT, busy), Some(Place::Trapped));
        manager.request(&[route(prefix(5), None)]).expect("a removal");
        assert_eq!(manager.place(VrfId::DEFAULT, busy), Some(Place::Offloaded), "{strategy}");
        for number in 0..1030 {
            manager.request(&[route(prefix(number), None)]).expect("a removal");
        }
        manager.settle().expect("the chip works");
        assert_eq!(manager.hidden(), 0, "{strategy}: all of them have found room");
        assert_eq!(manager.place(VrfId::DEFAULT, default), Some(Place::Offloaded), "{strategy}");
        agree(&mut manager, 2, strategy);
    }
}

/// Simulated milliseconds until all 5,000 route requests are answered, and until the last route is in the chip.
fn cost(strategy: &str, query_us: u32) -> (f64, f64) {
    let mut platform = platform(UFT);
    platform.bus.query_us = query_us;
    let chip = lanyard_offload::simulated::Simulated::new(&platform, SALT);
    let strategy = by_name(strategy, &platform, SALT, 64).expect("a strategy");
    let mut manager = lanyard_offload::Manager::new(chip, strategy, Policy::Sync);
    manager.setup(&ports()).expect("room");
    manager.request(&hops()).expect("room");
    manager.drain();
    let start = manager.hardware().now_us();
    for number in 0..5000 {
        manager.request(&[route(prefix(number), Some(1))]).expect("room");
    }
    let users = manager.hardware().now_us() - start;
    manager.settle().expect("the chip works");
    let written = manager.hardware().now_us() - start;
    (users as f64 / 1e3, written as f64 / 1e3)
}

#[test]
fn the_cost_of_each_strategy_is_within_its_limits() {
    let mut rows = Vec::new();
    for query_us in [35, 350] {
        for strategy in NAMES {
            let (users, written) = cost(strategy, query_us);
            println!(
                "{strategy:<14} query {query_us:>3} us: users {users:>7.1} ms, in the chip after {written:>7.1} ms"
            );
            rows.push((strategy, query_us, users, written));
        }
    }
    let row = |strategy: &str, us: u32| {
        rows.iter().find(|row| row.0 == strategy && row.1 == us).map(|row| (row.2, row.3)).expect("a row")
    };
    // Lockstep needs a query and a write for each route. With the other strategies nobody waits for writes.
    assert!((row("lockstep", 35).0 - 475.0).abs() < 5.0 && (row("lockstep", 350).0 - 2050.0).abs() < 10.0);
    // The lower limit of the bus itself is 300 ms.
    for us in [35, 350] {
        for strategy in ["predict-model", "hybrid"] {
            assert!(row(strategy, us).0 < 1.0 && row(strategy, us).1 < 301.0, "{strategy}");
        }
        assert!(row("credit", us).1 < 1.1 * 300.0, "credit");
    }
    assert!(
        row("lockstep", 35).1 / row("credit", 35).1 >= 1.3
            && row("lockstep", 350).1 / row("credit", 350).1 >= 4.5
    );
}

fn step(rng: &mut Rng) -> Write {
    let number = rng.next_u64();
    let plain = |operation, adds| Write { operation, adds, removes: Vec::new(), unsure: false };
    let vlan = VlanId::new(10).expect("a VLAN");
    match rng.next_u64() % 8 {
        0..=2 => {
            let target = (!number.is_multiple_of(5)).then_some(1);
            let to = if number.is_multiple_of(3) {
                prefix((number >> 8) as u32 % 100_000)
            } else {
                random_prefix(rng)
            };
            let object = match (to, to.prefix_len()) {
                (IpNet::V4(_), 32) => Object::Ipv4Host,
                (IpNet::V4(_), _) => Object::Ipv4Prefix,
                (IpNet::V6(_), 0..=64) => Object::Ipv6Prefix64,
                (IpNet::V6(_), 128) => Object::Ipv6Host,
                (IpNet::V6(_), _) => Object::Ipv6Prefix128,
            };
            plain(route(to, target), vec![(object, 1)])
        }
        3 => {
            let host =
                IpNet::new(std::net::Ipv4Addr::from(number as u32 % 200_000).into(), 32).expect("a host");
            plain(route(host, Some(1)), vec![(Object::Ipv4Host, 1)])
        }
        4 => {
            let host = IpNet::new(std::net::Ipv6Addr::from(u128::from(number % 100_000)).into(), 128)
                .expect("a host");
            plain(route(host, Some(2)), vec![(Object::Ipv6Host, 1)])
        }
        5 => {
            let port = PortId::new(1).expect("a port");
            let mac = MacAddr::from_u64(0x0200_0000_0000 | (number % 300_000));
            plain(
                Operation::Fdb(
                    vlan,
                    mac,
                    (number >> 40)
                        .is_multiple_of(4)
                        .then_some(FdbTarget::Static(port))
                        .or(Some(FdbTarget::Blackhole)),
                ),
                vec![(Object::Mac, 1)],
            )
        }
        6 => {
            let range =
                PortRange { low: number as u16 / 2, high: number as u16 / 2 + (number >> 20) as u16 % 3000 };
            let rule = AclRule {
                list: 1,
                sequence: (number >> 36) as u32 % 5000,
                ipv6: number.is_multiple_of(3),
                source: range,
                destination: PortRange::ANY,
            };
            plain(Operation::Rule(rule, true), vec![(Object::AclIpv4, 1)])
        }
        _ => {
            let group = std::net::Ipv4Addr::from(0xef00_0000 | (number as u32 % 50_000));
            plain(
                Operation::Multicast(
                    vlan,
                    group.into(),
                    None,
                    (!number.is_multiple_of(7)).then(Box::default),
                ),
                vec![(Object::Ipv4Group, 1)],
            )
        }
    }
}

#[test]
fn predict_model_predicts_which_entries_fit() {
    predicts("predict-model", &[("appliance", APPLIANCE, 40_000), ("spectrum-like", SPECTRUM, 220_000)]);
}

#[test]
fn hybrid_predicts_which_entries_fit() {
    predicts("hybrid", &[("appliance", APPLIANCE, 40_000), ("uft-like", UFT, 220_000)]);
}

/// Fills each of `platforms`, which have a name, a text, and a number of writes that fills their tables. Both strategies ask the
/// same model, so that each large platform is filled once.
fn predicts(strategy: &str, platforms: &[(&str, &str, u32)]) {
    for &(name, text, steps) in platforms {
        for seed in if steps < 100_000 { 1..=3 } else { 1..=1 } {
            let platform = platform(text);
            let mut model = by_name(strategy, &platform, SALT, 1).expect("a strategy");
            let mut chip = Chip::new(&platform, SALT);
            let mut send = |operation: &Operation| {
                chip.commit(Timestamp::default(), std::slice::from_ref(operation), &mut Effects::default())
                    .is_ok()
            };
            for operation in ports().into_iter().chain(hops()) {
                assert!(send(&operation));
                model.wrote(&[operation]);
            }
            let mut rng = Rng::new(seed);
            let (mut fits, mut both, mut wrong) = (0_u32, 0_u32, 0_u32);
            for _ in 0..steps {
                let write = step(&mut rng);
                let accepted = match model.admit(std::slice::from_ref(&write)) {
                    Decision::Accept => true,
                    Decision::Refuse(_) => false,
                    other => unreachable!("{other:?}"),
                };
                let fit = send(&write.operation);
                fits += u32::from(fit);
                both += u32::from(fit && accepted);
                wrong += u32::from(!fit && accepted);
            }
            let refused = steps - fits;
            println!(
                "{name}, mix {seed}: {fits} fit, {both} of them accepted, {refused} did not, {wrong} of them accepted; confidence {}",
                model.confidence()
            );
            assert!(refused > 100, "{name}: the tables never filled: {refused}");
            assert_eq!(wrong, 0);
            assert!(f64::from(both) >= 0.98 * f64::from(fits));
        }
    }
}

#[test]
fn learned_addresses_lower_the_confidence_of_the_model() {
    let mut manager = manager(UFT, "predict-model", Policy::Sync);
    assert!((manager.strategy().confidence() - 1.0).abs() < 1e-9);
    // Let the chip learn an address from a frame.
    let vlan = VlanId::new(10).expect("a VLAN");
    let port = PortId::new(5).expect("a port");
    let learning = [
        Operation::Vlan(vlan, Some(lanyard_pipeline::state::VlanState::default())),
        Operation::Port(port, Some(Box::new(lanyard_pipeline::state::PortState::access("swp5", 0, vlan)))),
    ];
    manager.setup(&learning).expect("room");
    let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &[0; 46]].concat();
    let now = Timestamp::from_nanos(manager.hardware().now_us() * 1000);
    manager.hardware().device().frame(now, port, &frame);
    manager.request(&[route(prefix(1), Some(1))]).expect("room");
    assert!(manager.strategy().confidence() < 1.0);
    // Host routes share the table of learned addresses, so the chip verifies them. Prefixes do not share it.
    let start = manager.hardware().now_us();
    manager.request(&[route(prefix(2), Some(1))]).expect("room");
    assert_eq!(manager.hardware().now_us(), start);
    manager.request(&[route("192.0.2.1/32".parse().expect("a host"), Some(1))]).expect("room");
    assert!(manager.hardware().now_us() > start);
}

/// A strategy that counts units must not count as free those of a write that is still on its way when figures are requested.
#[test]
fn a_table_without_collisions_is_filled_exactly() {
    let mut platform = platform(SPECTRUM);
    for table in platform.memory.iter_mut().flat_map(|memory| &mut memory.table) {
        if table.name == "prefixes" {
            table.size = 2048;
        }
    }
    for strategy in NAMES {
        let chip = lanyard_offload::simulated::Simulated::new(&platform, SALT);
        let by = by_name(strategy, &platform, SALT, 64).expect("a strategy");
        let mut manager = lanyard_offload::Manager::new(chip, by, Policy::Sync);
        manager.setup(&ports()).expect("room");
        manager.request(&hops()).expect("room");
        let mut refused = 0;
        for number in 0..4096 {
            match manager.request(&[route(prefix(number), Some(1))]) {
                Ok(()) => {}
                Err(Refusal::Full { table, .. }) if table == "lpm/prefixes" => refused += 1,
                Err(other) => unreachable!("{strategy}: {other}"),
            }
        }
        manager.settle().expect("the chip works");
        assert_eq!((refused, manager.hidden(), manager.written().len()), (2048, 0, 2048), "{strategy}");
    }
}
