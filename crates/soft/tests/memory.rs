//! The soft plane with memory ports: states, events, limits, and refusals.

#![allow(clippy::unwrap_used, clippy::panic, clippy::type_complexity)]

use lanyard_pipeline::Timestamp;
use lanyard_pipeline::state::{
    Delivery, FdbTarget, HookChoice, PlaneState, PortKind, PortState, ReservedAction, VlanState,
};
use lanyard_pipeline::trace::Verdict;
use lanyard_plane::{FdbFilter, FdbKind, Hook, Plane, PlaneError, PlaneEvent, Sweep, TreeStates};
use lanyard_soft::{FDB_CAPACITY, MemoryPorts, SoftPlane};
use lanyard_types::{DropReason, InstanceId, MacAddr, PortId, StpState, TrapReason, VlanId};
use lanyard_wire::Builder;

fn port(n: u16) -> PortId {
    PortId::new(n).unwrap()
}

fn vlan(n: u16) -> VlanId {
    VlanId::new(n).unwrap()
}

fn host(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn frame(dst: MacAddr, src: MacAddr) -> Vec<u8> {
    Builder::new(dst, src).ethertype(0x0800).build()
}

/// Three access ports of VLAN 10; BPDUs are trapped.
fn state() -> PlaneState {
    let mut state = PlaneState::default();
    state.vlans.insert(vlan(10), VlanState::default());
    for n in 1..=3 {
        state.ports.insert(port(n), PortState::access(&format!("eth{n}"), 0, vlan(10)));
    }
    state.global.reserved[0] = ReservedAction::Trap;
    state
}

fn plane() -> (SoftPlane, MemoryPorts) {
    let (mut plane, ports) = SoftPlane::in_memory().unwrap();
    plane.apply(&state()).unwrap();
    (plane, ports)
}

fn events(plane: &mut SoftPlane) -> Vec<String> {
    let mut seen = Vec::new();
    plane.poll_events(&mut |event| {
        seen.push(match event {
            PlaneEvent::FdbAdded(e) => format!("added {} {:?}", e.mac.0[5], e.port.map(PortId::get)),
            PlaneEvent::FdbMoved { entry, from } => {
                format!("moved {} {:?} {from}", entry.mac.0[5], entry.port.map(PortId::get))
            }
            PlaneEvent::FdbAged(e) => format!("aged {}", e.mac.0[5]),
            PlaneEvent::FdbDeleted(e) => format!("deleted {}", e.mac.0[5]),
            PlaneEvent::Trapped { port, reason, frame, .. } => {
                format!("trapped {port} {reason} {}", frame.len())
            }
            PlaneEvent::Violation { port, mac, .. } => format!("violation {port} {}", mac.0[5]),
            PlaneEvent::Sampled { port, len, .. } => format!("sampled {port} {len}"),
            PlaneEvent::PortChanged { port, what } => format!("{port} {what}"),
            PlaneEvent::Chip { what, .. } => what,
            PlaneEvent::ListMoved { name, .. } => name,
            PlaneEvent::Lost(n) => format!("lost {n}"),
        });
    });
    seen
}

#[test]
fn a_plane_floods_learns_forwards_and_reports_events() {
    let (mut plane, ports) = plane();
    let (there, back) = (frame(host(2), host(1)), frame(host(1), host(2)));
    assert_eq!(ports.push(port(1), &there), Verdict::Forwarded);
    assert_eq!(
        (ports.take(port(1)).len(), ports.take(port(2)), ports.take(port(3)).len()),
        (0, vec![there], 1)
    );
    assert_eq!(ports.push(port(2), &back), Verdict::Forwarded);
    assert_eq!((ports.take(port(1)), ports.take(port(3)).len()), (vec![back], 0));
    ports.push(port(3), &frame(host(2), host(1)));
    ports.push(port(1), &frame(MacAddr::BRIDGE_GROUP, host(9)));
    assert_eq!(
        events(&mut plane),
        ["added 1 Some(1)", "added 2 Some(2)", "moved 1 Some(3) 1", "trapped 1 bpdu 60"]
    );
    assert_eq!(events(&mut plane), [""; 0]);
    assert_eq!(plane.fdb_dynamic(), 2);
    ports.set_time(Timestamp::from_secs(100));
    assert_eq!(plane.fdb_sweep(Some(300)), Sweep { aged: 0, next_in_s: Some(200) });
    ports.set_time(Timestamp::from_secs(300));
    assert_eq!(plane.fdb_sweep(Some(300)), Sweep { aged: 2, next_in_s: None });
    let mut aged = events(&mut plane);
    aged.sort();
    assert_eq!(aged, ["aged 1", "aged 2"]);
    assert!((1..=3).all(|n| plane.port_counters(port(n)).conserved()));
    assert_eq!(plane.vlan_counters(vlan(10)).frames, 3);
    assert_eq!(plane.port_hook(port(1)), Hook::Soft);
}

#[test]
fn a_state_is_taken_whole_or_not_at_all() {
    let (mut plane, ports) = plane();
    ports.push(port(1), &frame(host(2), host(1)));
    let refused: [(fn(&mut PlaneState), fn(&PlaneError) -> bool); 5] = [
        (|s| s.global.fdb_limit = 0, |e| matches!(e, PlaneError::Invalid(_))),
        (|s| s.global.fdb_limit = FDB_CAPACITY + 1, |e| matches!(e, PlaneError::Invalid(_))),
        (
            |s| s.ports.get_mut(&port(3)).unwrap().hook = HookChoice::Xdp,
            |e| matches!(e, PlaneError::Unsupported { .. }),
        ),
        (
            |s| s.ports.get_mut(&port(3)).unwrap().hook = HookChoice::Tc,
            |e| matches!(e, PlaneError::Unsupported { .. }),
        ),
        (
            |s| s.ports.get_mut(&port(3)).unwrap().delivery = Delivery::Peer,
            |e| matches!(e, PlaneError::Unsupported { .. }),
        ),
    ];
    for (change, right) in refused {
        let mut next = state();
        next.vlans.insert(vlan(20), VlanState::default());
        next.ports.insert(port(4), PortState::access("eth4", 0, vlan(20)));
        next.fdb.insert((vlan(10), host(7)), FdbTarget::Static(port(2)));
        next.ports.get_mut(&port(2)).unwrap().enabled = false;
        change(&mut next);
        let error = plane.apply(&next).unwrap_err();
        assert!(right(&error), "{error}");
        assert_eq!(plane.state(), &state());
        assert_eq!(ports.push(port(4), &frame(host(1), host(2))), Verdict::Dropped(DropReason::PortDown));
        assert_eq!(ports.push(port(2), &frame(host(1), host(2))), Verdict::Forwarded);
        assert_eq!(plane.fdb_dynamic(), 2);
    }
}

#[test]
fn static_entries_and_flushes() {
    let (mut plane, ports) = plane();
    ports.push(port(1), &frame(host(2), host(1)));
    let mut next = state();
    next.fdb.insert((vlan(10), host(1)), FdbTarget::Static(port(3)));
    plane.apply(&next).unwrap();
    assert_eq!(events(&mut plane), ["added 1 Some(1)", "deleted 1"]);
    let mut kinds = Vec::new();
    plane.fdb_walk(&FdbFilter::default(), &mut |e| kinds.push((e.kind, e.port)));
    assert_eq!(kinds, [(FdbKind::Static, Some(port(3)))]);
    ports.push(port(2), &frame(host(9), host(2)));
    assert_eq!(plane.fdb_flush(&FdbFilter { port: Some(port(2)), ..FdbFilter::default() }), 1);
    let fdb = &plane.resources()[0];
    assert_eq!((fdb.name, fdb.used, fdb.high_water, fdb.refused), ("fdb", 1, 2, 0));
    plane.apply(&PlaneState::default()).unwrap();
    assert_eq!(plane.resources().iter().map(|t| t.used).sum::<u64>(), 0);
}

#[test]
fn injected_and_traced() {
    let (mut plane, ports) = plane();
    let bpdu = frame(MacAddr::BRIDGE_GROUP, host(1));
    assert_eq!(plane.inject(port(2), &bpdu), Ok(()));
    assert_eq!((ports.take(port(2)), plane.port_counters(port(2)).tx.frames), (vec![bpdu.clone()], 1));
    assert_eq!(plane.inject(port(9), &bpdu), Err(PlaneError::NoSuchPort(port(9))));
    assert_eq!(plane.trace(port(9), &bpdu).err(), Some(PlaneError::NoSuchPort(port(9))));
    assert_eq!(plane.trace(port(1), &bpdu).unwrap().verdict, Verdict::Trapped(TrapReason::Bpdu));
    assert!(matches!(plane.trace(port(1), &vec![0; 9235]), Err(PlaneError::Invalid(_))));
    let traced = plane.trace(port(1), &frame(host(2), host(1))).unwrap();
    assert_eq!(traced.egress.iter().map(|(port, _)| port.get()).collect::<Vec<_>>(), [2, 3]);
    assert_eq!((plane.fdb_dynamic(), ports.take(port(2)).len()), (0, 0));
}

#[test]
fn queues_are_bounded_and_count_lost_events_and_frames() {
    let (mut plane, ports) = plane();
    plane.poll_events(&mut |_| {});
    let mut next = state();
    next.global.trap_rate = [lanyard_pipeline::state::TrapRate { rate_pps: 1, burst: 1_000_000 };
        lanyard_types::TrapGroup::SLOTS];
    next.global.trap_port_rate = next.global.trap_rate;
    plane.apply(&next).unwrap();
    let mut bpdu = frame(MacAddr::BRIDGE_GROUP, host(1));
    bpdu.resize(1500, 0);
    let pushed = 5000;
    for _ in 0..pushed {
        ports.push(port(1), &bpdu);
    }
    let seen = events(&mut plane);
    let kept = (4 << 20) / 1500;
    assert_eq!(
        (seen.len(), seen.last().unwrap().as_str()),
        (kept + 1, format!("lost {}", pushed - kept).as_str())
    );
    for _ in 0..5000 {
        ports.push(port(1), &frame(MacAddr::BROADCAST, host(1)));
    }
    assert_eq!(ports.take(port(2)).len(), 4096);
    assert_eq!(plane.port_counters(port(2)).tx_dropped, 5000 - 4096);
    assert!(plane.port_counters(port(1)).conserved());
}

/// The hook and delivery of a VLAN interface's port are set by the control plane, not configured, so the
/// plane accepts them.
#[test]
fn a_vlan_interfaces_hook_is_no_choice() {
    let (mut plane, _) = plane();
    let mut next = state();
    let inside = PortState {
        kind: PortKind::Svi(vlan(10)),
        hook: HookChoice::Tc,
        delivery: Delivery::Device,
        ..next.ports[&port(3)].clone()
    };
    next.ports.insert(port(4), inside);
    assert_eq!(plane.apply(&next), Ok(()));
}

#[test]
fn protocols_have_trapped_frames_and_the_states_of_trees_to_themselves() {
    let (mut plane, ports) = plane();
    let mut part = plane.protocols().unwrap();
    let bpdu = Builder::new(MacAddr([1, 0x80, 0xc2, 0, 0, 0]), host(9)).ethertype(0x0027).build();
    ports.push(port(1), &bpdu);
    let mut received = Vec::new();
    part.poll_traps(&mut |trapped| received.push((trapped.port, trapped.reason, trapped.frame.len())));
    assert_eq!(received, [(port(1), TrapReason::Bpdu, bpdu.len())]);
    assert!(!events(&mut plane).iter().any(|event| event.starts_with("trapped")));

    let held = |list: &[u16]| TreeStates {
        stp: list.iter().map(|n| ((InstanceId::default(), port(*n)), StpState::Discarding)).collect(),
        ..TreeStates::default()
    };
    let flooded = |ports: &MemoryPorts| {
        ports.push(port(1), &frame(MacAddr([0xff; 6]), host(1)));
        [2, 3].map(|n| !ports.take(port(n)).is_empty())
    };
    assert_eq!(flooded(&ports), [true, true]);
    part.set_trees(&held(&[2])).unwrap();
    assert_eq!(flooded(&ports), [false, true]);
    // A state that is applied later contains older states of trees; they are ignored.
    let mut next = state();
    next.stp = held(&[3]).stp;
    next.ports.get_mut(&port(1)).unwrap().mtu = 1400;
    plane.apply(&next).unwrap();
    assert_eq!(flooded(&ports), [false, true]);
    assert!(plane.state().stp.is_empty());
    part.inject(port(3), &bpdu).unwrap();
    assert_eq!(ports.take(port(3)), [bpdu]);
    assert_eq!(part.inject(port(9), &[0; 60]), Err(PlaneError::NoSuchPort(port(9))));
}
