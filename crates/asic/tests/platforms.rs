//! The platforms of `platforms/`: each is read, built, filled until it refuses entries, and emptied again.

use lanyard_asic::object::Object;
use lanyard_asic::platform::{Platform, PlatformError};
use lanyard_asic::tables::{AclRule, Item, PortRange, Refusal, Shortage, Tables};
use lanyard_types::{GroupId, MacAddr, VlanId, VrfId};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const APPLIANCE: &str = include_str!("../../../platforms/appliance.toml");
const SPECTRUM: &str = include_str!("../../../platforms/spectrum-like.toml");
const UFT: &str = include_str!("../../../platforms/uft-like.toml");
const SALT: u64 = 0x1a2b_3c4d;

fn platform(text: &str) -> Platform {
    Platform::parse(text).expect("a platform of the repository")
}
fn mac(number: u64) -> Item {
    Item::Mac(VlanId::DEFAULT, MacAddr::from_u64(0x0200_0000_0000 | number))
}
fn host4(number: u32) -> Item {
    Item::Host(VrfId::DEFAULT, IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number)))
}
fn host6(number: u32) -> Item {
    Item::Host(VrfId::DEFAULT, IpAddr::V6(Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(number))))
}
fn prefix(text: &str) -> Item {
    Item::Prefix(VrfId::DEFAULT, text.parse().expect("a prefix"))
}
fn rule(sequence: u32, ports: PortRange) -> Item {
    Item::Rule(AclRule { list: 1, sequence, ipv6: false, source: PortRange::ANY, destination: ports })
}
fn used(tables: &Tables, path: &str) -> u32 {
    tables.usage().into_iter().find(|table| table.path == path).map_or(0, |table| table.used)
}
fn shortage(result: Result<u32, Refusal>) -> Option<(String, Shortage)> {
    match result {
        Err(Refusal::NoRoom { table, shortage, .. }) => Some((table, shortage)),
        _ => None,
    }
}

#[test]
fn the_front_panels() {
    let spectrum = platform(SPECTRUM);
    assert_eq!(spectrum.ports().count(), 32);
    let (number, first) = spectrum.ports().next().expect("a first port");
    assert_eq!((number, first.split_disables, first.split.len()), (1, 1, 2));
    assert_eq!(platform(UFT).ports().count(), 36);
    assert_eq!(
        platform(APPLIANCE).ports().map(|(number, _)| number).collect::<Vec<_>>(),
        Vec::from_iter(1..=10)
    );
}

#[test]
fn kinds_share_a_table_and_wide_ones_take_more() {
    let mut tables = Tables::new(&platform(UFT), SALT);
    tables.insert(&mac(1)).expect("room");
    tables.insert(&host4(1)).expect("room");
    assert_eq!(used(&tables, "uft/exact"), 2);
    tables.insert(&host6(1)).expect("room");
    assert_eq!(used(&tables, "uft/exact"), 4);
    tables.insert(&prefix("10.0.0.0/8")).expect("room");
    tables.insert(&prefix("2001:db8::/48")).expect("room");
    tables.insert(&prefix("2001:db8::1/128")).expect("room");
    assert_eq!(used(&tables, "lpm/prefixes"), 1 + 2 + 4);
    assert!(matches!(tables.insert(&mac(1)), Err(Refusal::Exists(_))));
    assert!(matches!(tables.insert(&prefix("10.0.0.1/8")), Err(Refusal::Invalid(_))));
}

#[test]
fn hash_tables_refuse_before_they_are_full() {
    // The appliance has one bank and moves no entries. The line card has two banks and two moves, and can be
    // filled much more.
    let mut fill = Vec::new();
    for (text, path) in [(APPLIANCE, "hash/addresses"), (UFT, "uft/exact")] {
        let mut tables = Tables::new(&platform(text), SALT);
        let refused = (0..).find_map(|number| shortage(tables.insert(&mac(number)))).expect("a refusal");
        assert_eq!(refused, (path.to_owned(), Shortage::Collision));
        let usage = tables.usage().into_iter().find(|table| table.path == path).expect("the table");
        assert_eq!((usage.refused, usage.high_water), (1, usage.used));
        fill.push(f64::from(usage.used) / f64::from(usage.size));
    }
    assert!(fill[0] < 0.6 && fill[1] > 0.85, "{fill:?}");
}

#[test]
fn ranges_of_ports_expand() {
    let mut tables = Tables::new(&platform(APPLIANCE), SALT);
    tables.insert(&rule(10, PortRange { low: 80, high: 80 })).expect("room");
    assert_eq!(used(&tables, "tcam/rules"), 1);
    tables.insert(&rule(20, PortRange { low: 1, high: 65_534 })).expect("room");
    assert_eq!(used(&tables, "tcam/rules"), 31);
    // Two port ranges need 30 x 30 entries: the 1,024 slots have room for one such rule, but not for two.
    let wide = PortRange { low: 1, high: 65_534 };
    let both =
        |sequence| Item::Rule(AclRule { list: 2, sequence, ipv6: false, source: wide, destination: wide });
    tables.insert(&both(1)).expect("room for 900");
    assert_eq!(shortage(tables.insert(&both(2))), Some(("tcam/rules".to_owned(), Shortage::Full)));
    assert_eq!(used(&tables, "tcam/rules"), 931, "a rule that was refused has left nothing");
    assert!(tables.remove(&both(1)));
    assert_eq!(used(&tables, "tcam/rules"), 31);
}

#[test]
fn a_group_takes_a_run_of_members_or_nothing() {
    let mut tables = Tables::new(&platform(APPLIANCE), SALT);
    let group = |number: u32, members| Item::NextHops(GroupId::new(number).expect("a group"), members);
    tables.insert(&group(1, 200)).expect("room");
    assert_eq!(shortage(tables.insert(&group(2, 57))), Some(("router/members".to_owned(), Shortage::Full)));
    assert_eq!((used(&tables, "router/groups"), used(&tables, "router/members")), (1, 200));
    tables.insert(&group(2, 56)).expect("room");
    assert!(matches!(tables.insert(&group(3, 0)), Err(Refusal::Invalid(_))));
}

#[test]
fn partitions_are_resized_within_their_memory_and_above_occupancy() {
    let mut tables = Tables::new(&platform(SPECTRUM), SALT);
    assert!(
        matches!(tables.resize("kvd/hash_single", 87_040 + 128), Err(Refusal::Invalid(_))),
        "kvd is given out"
    );
    assert!(
        matches!(tables.resize("kvd/linear", 98_304 - 100), Err(Refusal::Invalid(_))),
        "no multiple of 128"
    );
    tables.resize("kvd/linear", 65_536).expect("nothing is in it");
    tables.resize("kvd/hash_single", 87_040 + 32_768).expect("what linear gave up");
    for number in 0..10_000 {
        tables.insert(&host6(number)).expect("room");
    }
    assert_eq!(
        shortage(tables.resize("kvd/hash_double", 12_800).map(|()| 0)).map(|(table, _)| table),
        Some("kvd/hash_double".into())
    );
    assert_eq!(used(&tables, "kvd/hash_double"), 20_000);
    assert!(matches!(tables.resize("kvd/none", 128), Err(Refusal::NoTable(_))));
}

#[test]
fn removed_items_free_all_their_units() {
    for text in [APPLIANCE, SPECTRUM, UFT] {
        let mut tables = Tables::new(&platform(text), SALT);
        let mut items: Vec<Item> = (0..300).flat_map(|n| [mac(u64::from(n)), host4(n), host6(n)]).collect();
        items.extend((0..100).map(|n| prefix(&format!("10.{n}.0.0/16"))));
        items.extend((0..100).map(|n| rule(n, PortRange { low: 100, high: 200 })));
        items.retain(|item| tables.insert(item).is_ok());
        assert!(items.len() > 800, "{}", items.len());
        assert_eq!(tables.len(), items.len());
        assert!(items.iter().all(|item| tables.remove(item)));
        assert!(tables.usage().iter().all(|table| table.used == 0) && tables.is_empty());
    }
}

/// Checks that `text` with one line changed is refused, and that the refusal contains `reason`.
fn refused(from: &str, to: &str, reason: &str) {
    assert!(APPLIANCE.contains(from), "{from}");
    let error = Platform::parse(&APPLIANCE.replacen(from, to, 1)).expect_err(to);
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn errors_name_the_place_and_the_limit() {
    refused("bulk = 1", "bulk = 0", "line 9: bus, bulk: 0 is out of range: 1 to 4096");
    refused("bulk = 1", "bulks = 1", "unknown field `bulks`");
    refused(
        "mac_base = \"02:08:00:00:00:00\"",
        "mac_base = \"01:08:00:00:00:00\"",
        "is not the address of a station",
    );
    refused("size = 8192", "size = 4096", "memory hash: its tables have 8192 units, and the memory 4096");
    refused("ways = 4", "ways = 3", "ways is a power of two");
    refused("ways = 4", "ways = 2", "does not fit a bucket of 2 ways");
    refused("mac = 1, ", "", "no table holds mac");
    refused(
        "ipv4_prefix = 1",
        "acl_ipv4 = 1, ipv4_prefix = 1",
        "acl_ipv4 is held by memory tcam, table routes already",
    );
    refused("ipv4_prefix = 1", "mac = 1, ipv4_prefix = 1", "mac cannot be in a table of this kind");
    refused("count = 8", "count = 9", "swp9 is listed twice");
    refused("first = 1", "first = 0", "ports are numbered 1 to 511");
    refused("connector = \"rj45\"", "connector = \"rj45\"\nsplit_disables = -1", "a split disables swp0");
    let long = " ".repeat(2 << 20);
    assert_eq!(Platform::parse(&long), Err(PlatformError::TooLong(2 << 20)));
    // Every kind of object has a table on every platform.
    for text in [APPLIANCE, SPECTRUM, UFT] {
        let platform = platform(text);
        assert!(Object::ALL.iter().all(|object| platform.table_of(*object).is_some()));
    }
}
