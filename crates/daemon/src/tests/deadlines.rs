//! Deadlines: a tick does what is due, so that nothing stays overdue. An overdue deadline would end every wait at once, and the
//! threads that wait are real-time threads.

use crate::core::Core;
use crate::testing::{Bench, config};
use lanyard_cli::backend::Configuration;

/// More ticks at one time than any module needs.
const MAX_TICKS: usize = 64;

const BRIDGE: &str = "spanning-tree mode rapid-pvst\nvlan 10\ninterface eth1\n switchport mode trunk\n\
    interface eth2\n switchport\n spanning-tree portfast\nmac address-table aging-time 20";
const ROUTER: &str = "ip routing\nip route 10.2.0.0/16 10.0.0.9\nip route 10.3.0.0/16 10.0.0.9 5 track 1\n\
    track 1 interface eth1 line-protocol\n delay up 5 down 3\ninterface eth1\n no switchport\n\
    ip address 10.0.0.1 255.255.255.0\ninterface eth2\n no switchport\n ip address 10.1.0.1 255.255.255.0";

fn switch(text: &str) -> (Bench, Core) {
    let bench = Bench::new();
    for name in ["eth1", "eth2"] {
        bench.kernel.add(name);
        bench.kernel.change(name, |link| (link.admin_up, link.carrier) = (true, true));
    }
    let mut core = bench.core();
    core.take(config(text)).expect("taken");
    (bench, core)
}

/// Ticks at `now_ms` until nothing is due; returns the next deadline.
fn settle(bench: &Bench, core: &mut Core, now_ms: u64, what: &str) -> Option<u64> {
    bench.clock.set(now_ms);
    for _ in 0..MAX_TICKS {
        let next = core.next_ms();
        if next.is_none_or(|at_ms| at_ms > now_ms) {
            return next;
        }
        core.tick();
    }
    unreachable!("{what}: {:?} is still due at {now_ms}", core.next_ms())
}

/// Lets `count` deadlines pass, from `now_ms` on; returns the time of the last.
fn pass(bench: &Bench, core: &mut Core, mut now_ms: u64, count: usize, what: &str) -> u64 {
    for _ in 0..count {
        let Some(next) = settle(bench, core, now_ms, what) else { break };
        now_ms = next;
    }
    settle(bench, core, now_ms, what);
    now_ms
}

#[test]
fn no_deadline_stays_overdue() {
    for (what, text) in [("a bridge", BRIDGE), ("a router", ROUTER)] {
        let (bench, mut core) = switch(text);
        let now_ms = pass(&bench, &mut core, 0, 200, what);
        let event = bench.kernel.change("eth1", |link| link.carrier = false);
        core.netdev_events(vec![event]);
        let now_ms = pass(&bench, &mut core, now_ms, 200, what);
        core.commit_confirmed(config("hostname other"), 1).expect("taken");
        pass(&bench, &mut core, now_ms, 200, what);
        assert!(core.rollback_in_s().is_none(), "{what}: rolled back");
    }
}

/// While the plane refuses the states of ports, they are given to it again after a pause.
#[test]
fn a_plane_that_refuses_is_not_asked_all_the_time() {
    let (bench, mut core) = switch(BRIDGE);
    let now_ms = pass(&bench, &mut core, 0, 20, "a bridge");
    *bench.plane.refuses_trees.lock() = true;
    let event = bench.kernel.change("eth1", |link| link.carrier = false);
    core.netdev_events(vec![event]);
    pass(&bench, &mut core, now_ms, 200, "a plane that refuses");
}

/// Between `detach` and the end of the process nothing keeps the thread busy.
#[test]
fn no_deadline_stays_overdue_after_detach() {
    for (what, text) in [("a bridge", BRIDGE), ("a router", ROUTER)] {
        let (bench, mut core) = switch(text);
        let now_ms = pass(&bench, &mut core, 0, 50, what);
        core.commit_confirmed(config("hostname other"), 1).expect("taken");
        core.detach().expect("detached");
        pass(&bench, &mut core, now_ms, 200, what);
    }
}
