//! Writes by others than `apply`: the states of ports in trees, by the protocols and the watchdog, the ends of leases, and the
//! ends of routing.

use super::private;
use crate::abi;
use crate::lower::PortFacts;
use crate::plane::EbpfPlane;
use lanyard_pipeline::route::{RifAttachment, RifState, Urpf};
use lanyard_pipeline::state::{PortKind, PortState, StpState, VlanState};
use lanyard_plane::{Plane, PlaneState, TreeStates};
use lanyard_types::{InstanceId, MacAddr, PortId, RifId, VlanId, VrfId};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// True if the port forwards in the VLAN, by every table that contains this information.
fn forwards(plane: &EbpfPlane, n: u16, v: u16) -> bool {
    let row = plane.tables.port_vlans.get(n.into());
    let bits = row.bits[usize::from(v)] & (abi::PV_FORWARD | abi::PV_LEARN);
    let sets = plane.tables.vlan_ports.get(v.into());
    let flooded = sets.form.iter().any(|set| set[usize::from(n) / 64] >> (n % 64) & 1 == 1);
    assert_eq!(bits == abi::PV_FORWARD | abi::PV_LEARN, flooded, "port {n}, VLAN {v}: {bits:#x}");
    assert!(flooded || bits == 0, "port {n}, VLAN {v}: {bits:#x}");
    flooded
}

/// Once protocols have their part, applying a state never changes the states of ports in trees, even while
/// both threads work at the same time.
#[test]
fn the_states_of_trees_are_the_protocols_alone() {
    let Some(mut plane) = private() else { return };
    let vlan = |n| VlanId::new(n).expect("a VLAN");
    let port = |n| PortId::new(n).expect("a port");
    let trees = [1, 2].map(|n| InstanceId::new(n).expect("an instance"));
    let mut state = PlaneState::default();
    state.global.fdb_limit = 1000;
    let trunk = |n: u16, vlans: &[u16]| {
        let mut trunk = PortState::access(&format!("e{n}"), n.into(), vlan(1));
        trunk.untagged = vlans.iter().copied().map(vlan).collect();
        trunk
    };
    for (n, instance) in [1, 2].into_iter().zip(trees) {
        state.vlans.insert(vlan(n), VlanState { instance, ..VlanState::default() });
    }
    for n in [1, 70] {
        state.ports.insert(port(n), trunk(n, &[1, 2]));
    }
    state.stp.insert((trees[0], port(70)), StpState::Discarding);
    plane.apply(&state).expect("applied");
    let all = |plane: &EbpfPlane| [(1, 1), (1, 2), (70, 1), (70, 2)].map(|(n, v)| forwards(plane, n, v));
    assert_eq!(all(&plane), [true, true, false, true]);
    let mut part = plane.protocols().expect("handed out");
    assert_eq!((part.trees().stp, plane.state().stp.len()), (state.stp.clone(), 0));
    assert_eq!(all(&plane), [true, true, false, true], "as it was");
    part.set_trees(&TreeStates::default()).expect("set");
    assert_eq!(all(&plane), [true; 4]);
    // Applying a state from before does not undo later changes.
    state.ports.get_mut(&port(1)).expect("a port").isolated = true;
    plane.apply(&state).expect("applied");
    assert_eq!(all(&plane), [true; 4]);
    // A port that does not exist yet gets its state when it is created.
    let held = |list: &[(usize, u16)]| TreeStates {
        stp: list.iter().map(|(tree, n)| ((trees[*tree], port(*n)), StpState::Discarding)).collect(),
        ..TreeStates::default()
    };
    part.set_trees(&held(&[(1, 5)])).expect("set");
    state.ports.insert(port(5), trunk(5, &[1, 2]));
    plane.apply(&state).expect("applied");
    assert_eq!([forwards(&plane, 5, 1), forwards(&plane, 5, 2)], [true, false]);
    // Ports join and leave VLANs, and VLANs change trees, while states change.
    let mut other = state.clone();
    other.ports.insert(port(70), trunk(70, &[2]));
    other.ports.remove(&port(5));
    other.vlans.insert(vlan(2), VlanState { instance: trees[0], ..VlanState::default() });
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let lists: [&[(usize, u16)]; 3] = [&[(0, 70), (1, 70)], &[(0, 1), (1, 5)], &[]];
            let mut rounds = 0;
            while !over.load(Relaxed) || rounds < lists.len() {
                part.set_trees(&held(lists[rounds % lists.len()])).expect("set");
                rounds += 1;
            }
            part.set_trees(&held(&[(1, 70), (0, 1)])).expect("set");
            rounds
        });
        for _ in 0..200 {
            plane.apply(&other).expect("applied");
            plane.apply(&state).expect("applied");
        }
        over.store(true, Relaxed);
        println!("{} changes of states meanwhile", changes.join().expect("ended"));
    });
    assert_eq!(all(&plane), [false, true, true, false]);
    assert_eq!([forwards(&plane, 5, 1), forwards(&plane, 5, 2)], [true, true]);
    plane.apply(&other).expect("applied");
    assert_eq!(
        [forwards(&plane, 1, 1), forwards(&plane, 1, 2), forwards(&plane, 70, 2)],
        [false, false, true]
    );
    // A new daemon reads the states back from the tables.
    let mut found = other.clone();
    crate::recover::trees(&plane.tables, &mut found);
    assert_eq!(found.stp, held(&[(0, 1)]).stp, "VLANs of the first tree alone are left");
}

/// Until the watchdog expires nothing changes. Then the watched port discards in its tree's VLANs and in no others,
/// whatever state is applied, until the control plane has acknowledged the expiry.
#[test]
fn the_watchdog_blocks_watched_ports_and_no_others() {
    let Some(mut plane) = private() else { return };
    let vlan = |n| VlanId::new(n).expect("a VLAN");
    let port = |n| PortId::new(n).expect("a port");
    let (none, tree) = (InstanceId::default(), InstanceId::new(1).expect("an instance"));
    let mut state = PlaneState::default();
    state.global.fdb_limit = 1000;
    for (n, instance) in [(1, tree), (2, none)] {
        state.vlans.insert(vlan(n), VlanState { instance, ..VlanState::default() });
    }
    for n in [1, 70] {
        let mut trunk = PortState::access(&format!("e{n}"), n.into(), vlan(1));
        trunk.untagged = [1, 2].into_iter().map(vlan).collect();
        state.ports.insert(port(n), trunk);
    }
    state.watched.insert((tree, port(70)));
    plane.apply(&state).expect("applied");
    let all = |plane: &EbpfPlane| [(1, 1), (1, 2), (70, 1), (70, 2)].map(|(n, v)| forwards(plane, n, v));
    let wait = |plane: &EbpfPlane| {
        let deadline = Instant::now() + Duration::from_secs(20);
        let waits = || plane.tables.watchdog.get(0).phase != abi::WATCHDOG_EXPIRED;
        while waits() && Instant::now() < deadline {
            std::thread::yield_now();
        }
    };
    plane.watchdog(Some(Duration::from_secs(3600))).expect("set");
    plane.watchdog(None).expect("stopped");
    plane.watchdog(Some(Duration::from_secs(3600))).expect("set again");
    assert_eq!(all(&plane), [true; 4]);
    assert!(!plane.watchdog_expired());
    let blocked = [true, true, false, true];
    for _ in 0..3 {
        plane.watchdog(Some(Duration::from_millis(5))).expect("set");
        wait(&plane);
        assert_eq!(all(&plane), blocked);
        // A state applied before the expiry has been acknowledged opens nothing, even if it watches no port any
        // more.
        let mut next = state.clone();
        next.watched.clear();
        next.ports.get_mut(&port(1)).expect("a port").isolated = true;
        plane.apply(&next).expect("applied");
        assert_eq!(all(&plane), blocked);
        plane.apply(&state).expect("applied");
        assert!(plane.watchdog_expired());
        assert!(!plane.watchdog_expired(), "once");
        assert_eq!(plane.state().stp.get(&(tree, port(70))), Some(&StpState::Discarding));
        assert_eq!(all(&plane), blocked);
        plane.apply(&state).expect("applied");
        assert_eq!(all(&plane), [true; 4]);
    }
    plane.watchdog(Some(Duration::from_millis(50))).expect("set");
    plane.watchdog(None).expect("stopped");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(all(&plane), [true; 4]);
}

/// While leases are confirmed nothing changes. After they have ended, XDP sends nothing to veth ports and leaves the frames of
/// NICs that may parse tags to TC, whatever is written, until the leases are confirmed again. Other ports stay as they were.
#[test]
fn leases_end_that_are_not_confirmed() {
    let Some(mut plane) = private() else { return };
    let port = |n| PortId::new(n).expect("a port");
    let vlan = VlanId::new(1).expect("a VLAN");
    let mut state = PlaneState::default();
    state.global.fdb_limit = 1000;
    state.vlans.insert(vlan, VlanState::default());
    let ports = [(1, true), (2, false), (70, true)];
    let parses = |n| n == 2;
    for (n, leased) in ports {
        state.ports.insert(port(n), PortState::access(&format!("e{n}"), n.into(), vlan));
        let facts =
            PortFacts { xdp_tx: true, xdp_sg: true, leased, leased_tags: parses(n), ..PortFacts::default() };
        plane.facts.insert(port(n), facts);
    }
    plane.apply(&state).expect("applied");
    let takes = |plane: &EbpfPlane| {
        let both = abi::PORT_XDP_TX | abi::PORT_XDP_SG;
        ports.map(|(n, _)| plane.tables.ports.get(port(n).index()).flags & both == both)
    };
    let left = |plane: &EbpfPlane| {
        ports.map(|(n, _)| plane.tables.ports.get(port(n).index()).flags & abi::PORT_XDP_ENDED != 0)
    };
    let floods = |plane: &EbpfPlane| plane.tables.global.get(0).xdp_flood;
    let ends = |plane: &EbpfPlane| {
        let soon = Some(Duration::from_millis(5));
        crate::watchdog::set(&plane.programs.watchdog_set, abi::WATCHDOG_LEASES, soon).expect("set");
        let deadline = Instant::now() + Duration::from_secs(20);
        let row = usize::from(abi::WATCHDOG_LEASES);
        while plane.tables.watchdog.get(row).phase != abi::WATCHDOG_EXPIRED && Instant::now() < deadline {
            std::thread::yield_now();
        }
    };
    plane.renew_leases().expect("renewed");
    assert_eq!((takes(&plane), floods(&plane), left(&plane)), ([true; 3], 0b110, [false; 3]));
    for _ in 0..3 {
        ends(&plane);
        let ended = ([false, true, false], 0b100, [false, true, false]);
        assert_eq!((takes(&plane), floods(&plane), left(&plane)), ended);
        assert_eq!(plane.tables.watchdog.get(abi::WATCHDOG_LEASES.into()).affected, 3);
        assert!(!plane.watchdog_expired(), "the watchdog of spanning tree is another one");
        // Applying a state meanwhile starts no lease.
        let mut next = state.clone();
        next.ports.get_mut(&port(1)).expect("a port").isolated = true;
        next.global.fdb_limit = 2000;
        plane.apply(&next).expect("applied");
        assert_eq!((takes(&plane), floods(&plane), left(&plane)), ended);
        plane.apply(&state).expect("applied");
        plane.renew_leases().expect("renewed");
        assert_eq!((takes(&plane), floods(&plane), left(&plane)), ([true; 3], 0b110, [false; 3]));
    }
}

/// While routing is confirmed nothing changes. When it is not confirmed in time, interfaces that depend on the confirmation route
/// nothing, whatever is written, until it is confirmed again. Other interfaces go on routing.
#[test]
fn routing_ends_that_is_not_confirmed() {
    let Some(mut plane) = private() else { return };
    let rif = |n| RifId::new(n).expect("an interface");
    let port = |n| PortId::new(n).expect("a port");
    let mut state = PlaneState::default();
    state.global.fdb_limit = 1000;
    // The last one routes nothing in any case.
    let interfaces = [(1, true, true), (2, true, false), (4095, true, true), (3, false, true)];
    for (n, routes, while_confirmed) in interfaces {
        let routed = PortState {
            kind: PortKind::Routed,
            learning: false,
            flood_unicast: false,
            flood_multicast: false,
            ..PortState::new(&format!("e{n}"), n.into())
        };
        state.ports.insert(port(n.min(1000)), routed);
        let interface = RifState {
            name: format!("e{n}"),
            vrf: VrfId::DEFAULT,
            attachment: RifAttachment::Port(port(n.min(1000))),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            virtual_macs: BTreeSet::new(),
            mtu: 1500,
            ipv4: routes,
            ipv6: routes,
            urpf_ipv4: Urpf::Strict,
            urpf_ipv6: Urpf::Strict,
            while_confirmed,
        };
        state.rifs.insert(rif(n), interface);
    }
    plane.apply(&state).expect("applied");
    let rows = |plane: &EbpfPlane| interfaces.map(|(n, ..)| plane.tables.rifs.get(rif(n).index()));
    let routes = |plane: &EbpfPlane| rows(plane).map(|row| row.flags & (abi::RIF_IPV4 | abi::RIF_IPV6) != 0);
    let hour = Duration::from_secs(3600);
    let whole = rows(&plane);
    assert_eq!(routes(&plane), [true, true, true, false]);
    assert_eq!(plane.confirm_routing(hour).expect("confirmed"), 0);
    for _ in 0..3 {
        plane.confirm_routing(Duration::from_millis(5)).expect("confirmed");
        let row = usize::from(abi::WATCHDOG_ROUTING);
        let deadline = Instant::now() + Duration::from_secs(20);
        while plane.tables.watchdog.get(row).phase != abi::WATCHDOG_EXPIRED && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let ended = [false, true, false, false];
        assert_eq!(routes(&plane), ended);
        for (was, is) in whole.iter().zip(rows(&plane)) {
            let is = abi::Rif { flags: was.flags, ..is };
            assert_eq!(was.as_bytes(), is.as_bytes(), "the rest of the row");
        }
        // Applying a state meanwhile starts nothing.
        let mut next = state.clone();
        next.rifs.get_mut(&rif(1)).expect("an interface").mtu = 1400;
        plane.apply(&next).expect("applied");
        assert_eq!(routes(&plane), ended);
        plane.apply(&state).expect("applied");
        assert_eq!(plane.confirm_routing(hour).expect("confirmed"), 2, "with the number that had ended");
        assert_eq!(rows(&plane).map(|row| row.flags), whole.map(|row| row.flags));
        assert_eq!(plane.confirm_routing(hour).expect("confirmed"), 0, "reported once");
    }
}
