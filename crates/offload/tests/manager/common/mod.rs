//! Common code of the manager's tests: a router on a simulated chip, and the check that configuration, manager
//! and chip agree.

pub mod protocols;

use ipnet::IpNet;
use lanyard_acl::key::L4_DST;
use lanyard_acl::{Condition, FlatRule, FrameFamily, PlaneList, Purpose, Verdict};
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::Operation;
use lanyard_offload::simulated::Simulated;
use lanyard_offload::strategy::by_name;
use lanyard_offload::{Manager, Policy};
use lanyard_pipeline::generate::Rng;
use lanyard_pipeline::route::{Adjacency, RifAttachment, RifState, RouteTarget, Urpf};
use lanyard_pipeline::state::{Aggregation, PortKind, PortState};
use lanyard_types::{AclId, AdjacencyId, ChannelId, GroupId, MacAddr, PortId, RifId, TrapReason, VrfId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

pub const APPLIANCE: &str = include_str!("../../../../../platforms/appliance.toml");
pub const SPECTRUM: &str = include_str!("../../../../../platforms/spectrum-like.toml");
pub const UFT: &str = include_str!("../../../../../platforms/uft-like.toml");
pub const SALT: u64 = 7;
pub const TRAP: RouteTarget = RouteTarget::Up(TrapReason::RoutePolicy);

pub fn platform(text: &str) -> Platform {
    Platform::parse(text).expect("a platform")
}
pub fn group(number: u32) -> GroupId {
    GroupId::new(number).expect("a group")
}
pub fn route(to: IpNet, by: Option<u32>) -> Operation {
    Operation::Route(VrfId::DEFAULT, to, by.map(|number| RouteTarget::Group(group(number))))
}

/// Two routed ports, and a port-channel whose port number is higher than that of its member.
pub fn ports() -> Vec<Operation> {
    (1..=2_u16)
        .flat_map(|number| {
            let port = PortId::new(number).expect("a port");
            let state = PortState { kind: PortKind::Routed, ..PortState::new(&format!("swp{number}"), 0) };
            let rif = RifState {
                name: format!("swp{number}"),
                vrf: VrfId::DEFAULT,
                attachment: RifAttachment::Port(port),
                mac: MacAddr::from_u64(0x0200_0000_0000 | u64::from(number)),
                virtual_macs: BTreeSet::new(),
                mtu: 1500,
                ipv4: true,
                ipv6: true,
                urpf_ipv4: Urpf::Off,
                urpf_ipv6: Urpf::Off,
                while_confirmed: false,
            };
            let id = RifId::new(number).expect("an interface");
            [Operation::Port(port, Some(Box::new(state))), Operation::Rif(id, Some(Box::new(rif)))]
        })
        .chain(bundle())
        .collect()
}
fn bundle() -> [Operation; 2] {
    let (of, member) = (PortId::new(600).expect("a port"), PortId::new(3).expect("a port"));
    let channel = ChannelId::new(1).expect("a port-channel");
    let set = |port, name: &str, aggregation| {
        Operation::Port(port, Some(Box::new(PortState { aggregation, ..PortState::new(name, 0) })))
    };
    [
        set(of, "port-channel1", Aggregation::Channel(channel)),
        set(member, "swp3", Aggregation::Member { of, channel }),
    ]
}
/// A next hop and a group behind each port.
pub fn hops() -> Vec<Operation> {
    (1..=2_u16)
        .flat_map(|number| {
            let adjacency = AdjacencyId::new(number.into()).expect("an adjacency");
            let mac = MacAddr::from_u64(0x0200_0000_0100 | u64::from(number));
            let hop = Adjacency { rif: RifId::new(number).expect("an interface"), mac: Some(mac) };
            [
                Operation::Adjacency(adjacency, Some(hop)),
                Operation::Group(group(number.into()), Some(vec![adjacency])),
            ]
        })
        .collect()
}

pub fn acl(number: u16) -> AclId {
    AclId::new(number).expect("a list")
}
/// An access list for IPv4 that takes 30 entries for each of its rules and one more; `None` removes it.
pub fn list(number: u16, rules: Option<u32>) -> Operation {
    let rule = |seq| FlatRule {
        verdict: Verdict::Deny,
        fragments: false,
        log: false,
        log_input: false,
        list: 0,
        seq,
        conditions: vec![(L4_DST as u8, Condition::Ranges(vec![(1, 65_534)]))],
    };
    let list = |rules| PlaneList {
        name: format!("access list {number}"),
        purpose: Purpose::Filter,
        family: FrameFamily::Ipv4,
        names: vec![number.to_string()],
        rules: (0..rules).map(rule).collect(),
        otherwise_permit: true,
    };
    Operation::List(acl(number), rules.map(|rules| Arc::new(list(rules))))
}
/// Sets port 1 with the access list `number` for the IPv4 packets that it receives.
pub fn bound(number: u16) -> Operation {
    let mut state = PortState { kind: PortKind::Routed, ..PortState::new("swp1", 0) };
    state.acl_in[FrameFamily::Ipv4.index()] = Some(acl(number));
    Operation::Port(PortId::new(1).expect("a port"), Some(Box::new(state)))
}
/// A UDP packet that every access list of [`list`] denies.
pub fn denied() -> Vec<u8> {
    let mac = |number: u64| MacAddr::from_u64(0x0200_0000_0000 | number).0;
    let mut frame = [mac(1), mac(0x1ff)].concat();
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 10, 0, 0, 1]);
    frame.extend([3, 232, 0, 80]);
    frame.resize(60, 0);
    frame
}

pub fn manager(text: &str, strategy: &str, policy: Policy) -> Manager<Simulated> {
    let platform = platform(text);
    let strategy = by_name(strategy, &platform, SALT, 64).expect("a strategy");
    let mut manager = Manager::new(Simulated::new(&platform, SALT), strategy, policy);
    manager.setup(&ports()).expect("room");
    manager.request(&hops()).expect("room");
    manager
}

/// A random prefix, which is inside other such prefixes about as often as beside them.
pub fn random_prefix(rng: &mut Rng) -> IpNet {
    let bits = rng.next_u64();
    if rng.next_u64().is_multiple_of(4) {
        let length = [0, 32, 48, 64, 96, 128][(rng.next_u64() % 6) as usize];
        let address = Ipv6Addr::new(
            0x2001,
            0xdb8,
            (bits % 3) as u16,
            (bits >> 8) as u16 % 4,
            (bits >> 16) as u16 % 8,
            0,
            0,
            (bits >> 24) as u16 % 8,
        );
        return IpNet::new(address.into(), length).expect("a prefix").trunc();
    }
    let length = [0, 8, 12, 16, 20, 24, 24, 28, 32][(rng.next_u64() % 9) as usize];
    let address = Ipv4Addr::new(10, (bits % 4) as u8, (bits >> 8) as u8 % 64, (bits >> 16) as u8);
    IpNet::new(address.into(), length).expect("a prefix").trunc()
}

/// Panics unless configuration, manager and chip agree, and every packet takes its longest match or goes to the
/// CPU.
pub fn agree(manager: &mut Manager<Simulated>, seed: u64, what: &str) {
    let down = manager.is_down();
    let truth = if down { Vec::new() } else { manager.hardware().truth() };
    let mut chip = BTreeMap::new();
    let (mut groups, mut adjacencies) = (Vec::new(), Vec::new());
    for operation in truth {
        match operation {
            Operation::Route(vrf, prefix, Some(target)) => _ = chip.insert((vrf, prefix), target),
            Operation::Group(id, Some(buckets)) => groups.push((id, buckets)),
            Operation::Adjacency(id, _) => adjacencies.push(id),
            _ => {}
        }
    }
    let written: BTreeMap<_, _> =
        manager.written().iter().map(|(prefix, target)| (prefix, *target)).collect();
    assert_eq!(written, chip, "{what}: manager and chip");
    let routes = manager.routes();
    if !down {
        let wanted: Vec<_> = routes.groups().map(|(id, buckets)| (id, buckets.to_vec())).collect();
        assert_eq!(wanted, groups, "{what}: groups");
        assert_eq!(routes.adjacencies().collect::<Vec<_>>(), adjacencies, "{what}: adjacencies");
    }
    for (prefix, target) in &chip {
        let configured = routes.get(prefix.0, prefix.1);
        assert!(
            configured == Some(*target) || configured.is_some() && *target == TRAP,
            "{what}: {prefix:?} {target:?}"
        );
    }
    let mut rng = Rng::new(seed);
    // Test an address of each route, of every hidden route in particular, and random ones.
    let mut addresses: Vec<IpAddr> = (0..500).map(|_| random_prefix(&mut rng).addr()).collect();
    for (_, tables) in routes.vrfs() {
        addresses.extend(tables.ipv4.iter().map(|(prefix, _)| IpAddr::from(prefix.addr())));
        addresses.extend(tables.ipv6.iter().map(|(prefix, _)| IpAddr::from(prefix.addr())));
    }
    for address in addresses {
        let right = routes.longest(VrfId::DEFAULT, address).map(|(_, target)| target);
        let found = (0..=128)
            .rev()
            .filter_map(|length| IpNet::new(address, length).ok())
            .find_map(|prefix| chip.get(&(VrfId::DEFAULT, prefix.trunc())));
        // A packet without a match goes to the CPU, as with a trap.
        assert!(
            found.is_none() || found == Some(&TRAP) || found.copied() == right,
            "{what}: {address}: {found:?}, not {right:?}"
        );
    }
}
