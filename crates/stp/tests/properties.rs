//! Random networks: one spanning tree for each VLAN after convergence, and no loop on the way, whatever is cut
//! and restored meanwhile. The simulator checks for loops after every event.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, dead_code)]

mod sim;
use lanyard_stp::{Mode, MstRegion};
use lanyard_types::PortId;
use sim::{Rng, Sim, port, port_names, vlan};

/// `n` bridges, a random tree and `chords` more links, delays of 1 to 3 ms, four speeds, random priorities.
fn random_network(sim: &mut Sim, rng: &mut Rng, n: usize, chords: usize, ring: bool) {
    let first = sim.nodes.len();
    let mut links: Vec<(usize, usize)> = (1..n)
        .map(|at| (at, if ring { at - 1 } else { rng.below(at as u64) as usize }))
        .chain(ring.then_some((0, n - 1)))
        .collect();
    links.extend((0..chords).map(|_| (rng.below(n as u64) as usize, rng.below(n as u64) as usize)));
    let mut degree = vec![0u16; n];
    let ends: Vec<[(usize, PortId); 2]> = links
        .iter()
        .filter(|(a, b)| a != b)
        .map(|(a, b)| {
            [*a, *b].map(|at| {
                degree[at] += 1;
                (first + at, port(degree[at]))
            })
        })
        .collect();
    for (at, degree) in degree.iter().enumerate() {
        let prio = rng.below(16) as u16 * 4096;
        let mac = rng.below(1 << 20) << 8 | (first + at) as u64 + 1;
        sim.add_bridge(&format!("B{at}"), mac, prio, port_names(usize::from(*degree)), true);
    }
    for ends in ends {
        let s = sim.connect(ends.to_vec());
        sim.segments[s].delay_ms = 1 + rng.below(3);
        sim.segments[s].speed = [10, 100, 1000, 10_000][rng.below(4) as usize];
        sim.set_link(s, true);
    }
}

fn mode_line(sim: &mut Sim, mode: Mode, region: Option<MstRegion>) {
    sim.set_mode(mode, region.unwrap_or_default());
}

#[test]
fn random_graphs_converge_to_one_tree_without_a_loop() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut sim = Sim::new(seed);
        let n = 2 + rng.below(14) as usize;
        let chords = rng.below(2 * n as u64) as usize;
        random_network(&mut sim, &mut rng, n, chords, false);
        sim.settle(90_000);
        sim.check_tree();
        for _ in 0..6 {
            let s = rng.below(sim.segments.len() as u64) as usize;
            let up = !sim.segments[s].up;
            sim.set_link(s, up);
            sim.run(rng.below(3000));
        }
        sim.settle(90_000);
        sim.check_tree();
    }
}

#[test]
fn a_hundred_switches_in_a_ring_with_chords() {
    for seed in 0..2 {
        let mut rng = Rng::new(100 + seed);
        let mut sim = Sim::new(seed);
        random_network(&mut sim, &mut rng, 100, 40, true);
        // Cheap paths here are longer than the 20 hops that the default max age allows.
        (0..100).for_each(|n| sim.configure(n, |config| config.max_age_s = 40));
        let took = sim.settle(90_000);
        sim.check_tree();
        println!("100 switches: last change after {took} ms, {} frames", sim.frames_sent);
        // The root dies: the worst case, information must age out hop by hop.
        let root = (0..100).find(|n| sim.nodes[*n].bridge.view(0)[0].root_port.is_none()).unwrap();
        for s in 0..sim.segments.len() {
            if sim.segments[s].ends.iter().any(|(n, _)| *n == root) {
                sim.set_link(s, false);
            }
        }
        let took = sim.settle(90_000);
        println!("root lost: last change after {took} ms");
        sim.check_tree();
    }
    let _ = (vlan, mode_line);
}
