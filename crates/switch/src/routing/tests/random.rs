//! Random sequences of changes: the plane forwards as the kernel does after each of them.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Add { prefix: usize, metric: bool, what: usize, lost: bool },
    Delete { at: prop::sample::Index, lost: bool },
    Neighbour { which: usize, state: Option<(Option<u8>, bool)> },
    Link { ifindex: u32, up: bool },
    Rifs(u8),
    Retry,
}

const PREFIXES: [&str; 10] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.0.1.0/24",
    "10.0.2.0/24",
    "10.0.1.0/25",
    "10.1.0.0/16",
    "10.1.1.0/24",
    "10.1.1.5/32",
    "10.0.1.5/32",
    "10.9.0.0/16",
];
const HOSTS: [(u32, &str); 6] =
    [(1, "10.0.1.5"), (1, "10.0.1.6"), (2, "10.0.2.7"), (2, "10.0.1.5"), (3, "10.0.3.1"), (1, "10.1.1.5")];

/// A route of the simulated kernel, by number.
fn kind_of(prefix: usize, metric: bool, what: usize) -> Known {
    let next_hops: [&[(u32, &str)]; 9] = [
        &[(1, "")],
        &[(2, "")],
        &[(1, "10.0.1.5")],
        &[(1, "10.0.1.6")],
        &[(1, "10.0.1.5"), (2, "10.0.2.7")],
        &[(1, "10.0.1.6"), (2, "10.0.2.7"), (3, "10.0.3.1")],
        &[(7, "10.0.1.5")],
        &[],
        &[],
    ];
    let mut route = Known::new(PREFIXES[prefix], next_hops[what.min(8)]);
    route.metric = if metric { 10 } else { 0 };
    match what {
        7 => route.kind = wire::BLACKHOLE,
        8 => route.kind = wire::UNREACHABLE,
        // A local address.
        9 => (route.kind, route.table, route.prefix) = (wire::LOCAL, 255, net("10.1.1.6/32")),
        _ => {}
    }
    route
}

fn op(lossy: bool) -> impl Strategy<Value = Op> {
    let lost = if lossy { prop::bool::weighted(0.2).boxed() } else { Just(false).boxed() };
    prop_oneof![
        6 => (0..PREFIXES.len(), any::<bool>(), 0..10usize, lost.clone())
            .prop_map(|(prefix, metric, what, lost)| Op::Add { prefix, metric, what, lost }),
        4 => (any::<prop::sample::Index>(), lost).prop_map(|(at, lost)| Op::Delete { at, lost }),
        5 => (0..HOSTS.len(), prop_oneof![
                Just(None), (1u8..3).prop_map(|mac| Some((Some(mac), false))), Just(Some((None, true))),
            ]).prop_map(|(which, state)| Op::Neighbour { which, state }),
        2 => (1u32..=3, any::<bool>()).prop_map(|(ifindex, up)| Op::Link { ifindex, up }),
        1 => (0u8..8).prop_map(Op::Rifs),
        1 => Just(Op::Retry),
    ]
}

/// Applies `ops`. If `exact`, the plane has room for everything, so it must agree with the kernel exactly.
fn run(mut world: World, ops: &[Op], exact: bool) {
    let mut lost_any = false;
    for op in ops {
        let before = world.now();
        match op {
            Op::Add { prefix, metric, what, lost } => {
                world.add(&kind_of(*prefix, *metric, *what), *lost);
                lost_any |= lost;
            }
            Op::Delete { at, lost } if !world.routes.is_empty() => {
                let at = at.index(world.routes.len());
                world.delete(at, *lost);
                lost_any |= lost;
            }
            Op::Delete { .. } => {}
            Op::Neighbour { which, state } => {
                let (ifindex, address) = HOSTS[*which];
                // A neighbour that failed and was then removed stays dead while it is a next hop; the simulated kernel
                // does not know that.
                let failed = world.neighbours.get(&(ip(address), ifindex)).is_some_and(|n| n.failed);
                if !(failed && state.is_none()) {
                    world.neighbour(ifindex, address, *state);
                }
            }
            Op::Link { ifindex, up } => {
                if *up {
                    world.down.remove(ifindex)
                } else {
                    world.down.insert(*ifindex)
                };
                world.mirror.link(VRF, *ifindex, *up);
            }
            Op::Rifs(mask) => {
                if lost_any {
                    let probes = std::mem::take(&mut world.probes);
                    world.audit();
                    world.settle(&[]);
                    (world.probes, lost_any) = (probes, false);
                }
                let list: Vec<u32> = (1..=3).filter(|n| mask >> (n - 1) & 1 == 1).collect();
                world.set_rifs(&list);
            }
            Op::Retry => {
                world.mirror.retry(1 << 40);
            }
        }
        let audit = lost_any && matches!(op, Op::Delete { lost: false, .. });
        if audit {
            world.audit();
            lost_any = false;
        }
        // Before the audit the plane may lag behind, and without room it may leave frames to the kernel.
        let probes = world.probes.clone();
        if lost_any || audit || !exact {
            world.probes.clear();
        }
        world.settle(&before);
        world.probes = probes;
        if !lost_any {
            world.check(exact);
        }
    }
    if exact {
        world.check_clean();
    }
    world.set_rifs(&[]);
    assert!(
        world.plane.routes.is_empty() && world.plane.groups.is_empty() && world.plane.adjacencies.is_empty()
    );
}

proptest! {
    /// After any sequence of changes the plane forwards as the kernel does, and at every moment in between it forwarded
    /// by the old routes or the new.
    #[test]
    fn the_plane_follows(ops in prop::collection::vec(op(false), 1..60)) {
        run(exact(), &ops, true);
    }

    /// After lost events an audit makes the plane agree with the kernel again.
    #[test]
    fn the_plane_follows_after_losses(ops in prop::collection::vec(op(true), 1..60)) {
        run(exact(), &ops, true);
    }

    /// With too few groups and adjacencies and too small a table, frames of routes that do not fit go to the kernel and
    /// never elsewhere.
    #[test]
    fn frames_of_routes_that_do_not_fit_go_to_the_kernel(
        ops in prop::collection::vec(op(false), 1..60),
        groups in 1u32..4, adjacencies in 1u32..4, room in prop::option::of(0usize..6),
    ) {
        run(World::new(Limits { groups, adjacencies }, room), &ops, false);
    }
}
