//! Commit and undo with a fault at each step: record, netdevs, plane, static routes, releases, and the undoing of each.
//! The effects of a fault are in the record and in the log, and are removed at the next event, by a restart or by
//! `detach`.

use super::tests::{AFTER, BEFORE, kernel_picture, picture, running};
use super::*;
use crate::testing::{Bench, config, messages};
use lanyard_netdev::Event;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;

/// A configuration that needs every kind of action.
const WIDE: &str = "vlan 10\nvlan 20\nvrf definition red\nip routing\nipv6 unicast-routing\ninterface eth1\n \
    switchport\n switchport access vlan 20\n mtu 1600\n speed 100\ninterface eth2\n no switchport\n vrf forwarding red\n \
    ip address 10.9.0.1 255.255.255.0\ninterface eth3\n no switchport\n ip address 10.3.0.1 255.255.255.0\n \
    no ip redirects\ninterface vlan 10\n ip address 10.0.0.1 255.255.255.0";

/// Delivers an event, after which the switch removes the effects of a fault.
fn event(bench: &Bench, core: &mut Core) {
    let change = bench.kernel.change("eth3", |_| {});
    core.netdev_events(vec![change]);
}

fn has(core: &Core, mnemonic: &str) -> bool {
    messages(&core.ctx).iter().any(|text| text.starts_with(&format!("{mnemonic}: ")))
}

/// Lets action `first` of the change to [`WIDE`] fail, and then, in one run each, every action that undoes the change.
/// Passes each outcome to `settle`, and returns their number.
fn faulty_undoing(first: usize, settle: &mut dyn FnMut(&Bench, Core, &str)) -> usize {
    for second in 1.. {
        let (bench, mut core) = running(BEFORE);
        (bench.kernel.state().fail_at, bench.kernel.state().then_fail_at) = (Some(first), Some(second));
        if core.take(config(WIDE)).is_ok() {
            panic!("step {first} fails");
        }
        let reached = bench.kernel.state().fail_at.take().is_none();
        if !reached {
            return second - 1;
        }
        settle(&bench, core, &format!("step {first}, then {second}"));
    }
    unreachable!("it ends")
}

fn steps(from: &str, to: &str) -> (usize, usize) {
    let (_, core) = running(from);
    let actions = core.ctx.switch.plan(0, config(to)).expect("a plan").actions;
    (actions.before.len(), actions.after.len())
}

#[test]
fn failed_unwind_steps_are_repeated_at_the_next_event() {
    let before = {
        let (bench, core) = running(BEFORE);
        picture(&bench, &core)
    };
    let (steps, _) = steps(BEFORE, WIDE);
    assert!(steps > 10, "{steps} steps");
    let mut undone = 0;
    for step in 1..=steps {
        undone += faulty_undoing(step, &mut |bench, mut core, at| {
            event(bench, &mut core);
            assert_eq!(picture(bench, &core), before, "{at}: {:?}", messages(&core.ctx));
            assert!(!core.ctx.switch.has_leftovers(), "{at}");
        });
    }
    assert!(undone > 50, "{undone} double faults");
}

#[test]
fn restart_and_detach_complete_a_failed_unwind() {
    let (before, found) = {
        let (bench, core) = running(BEFORE);
        let before = kernel_picture(&bench);
        let mut core = core;
        core.detach().expect("undone");
        (before, kernel_picture(&bench))
    };
    let (steps, _) = steps(BEFORE, WIDE);
    for step in 1..=steps {
        faulty_undoing(step, &mut |bench, core, at| {
            drop(core);
            let mut core = bench.core();
            core.take(config(BEFORE)).expect("taken");
            assert_eq!(kernel_picture(bench), before, "{at}");
        });
        faulty_undoing(step, &mut |bench, core, at| {
            drop(core);
            bench.core().detach().expect("undone");
            assert_eq!(kernel_picture(bench), found, "{at}");
            assert!(!bench.paths().record().exists(), "{at}");
        });
    }
}

#[test]
fn a_failed_unwind_is_reported_and_repeated_a_limited_number_of_times() {
    let (steps, _) = steps(BEFORE, WIDE);
    let (bench, mut core) = running(BEFORE);
    (bench.kernel.state().fail_at, bench.kernel.state().then_fail_at) = (Some(steps), Some(2));
    let error = core.take(config(WIDE)).expect_err("refused");
    assert!(error.to_string().contains("; and undoing an earlier step failed: the fault"), "{error}");
    assert!(has(&core, "UNWIND"), "{:?}", messages(&core.ctx));
    assert!(core.ctx.switch.has_leftovers());
    // While it keeps failing it is tried at a limited number of events.
    for _ in 0..20 {
        bench.kernel.state().fail_at = Some(1);
        event(&bench, &mut core);
    }
    let done = bench.kernel.state().done.len();
    bench.kernel.state().fail_at = None;
    event(&bench, &mut core);
    assert_eq!(bench.kernel.state().done.len(), done, "given up");
    core.take(config(BEFORE)).expect("taken");
    assert!(!core.ctx.switch.has_leftovers(), "the next commit settles it all the same");
}

#[test]
fn a_netdev_that_went_meanwhile_leaves_nothing() {
    let (bench, mut core) = running(BEFORE);
    let actions = core.ctx.switch.plan(0, config(AFTER)).expect("a plan").actions;
    let gone =
        Action::Address { name: "eth9".into(), net: "10.0.0.1/24".parse().expect("a net"), add: false };
    let error = KernelError::NoInterface("eth9".into());
    core.not_undone(vec![(gone, error)], &actions.record);
    assert!(!core.ctx.switch.has_leftovers());
    assert!(has(&core, "UNWIND"));
    drop(bench);
}

#[test]
fn the_plane_refuses_each_port() {
    let (_, core) = running(AFTER);
    let ports: Vec<_> = core.ctx.plane.state().ports.values().cloned().collect();
    assert!(ports.len() > 4, "{ports:?}");
    for port in ports.iter().filter(|port| port.name != "eth1") {
        let (bench, mut core) = running(BEFORE);
        let before = picture(&bench, &core);
        *bench.plane.refused_port.lock() = Some(port.name.clone());
        let error = core.take(config(AFTER)).expect_err("refused");
        let want = links::host_end_of(&port.name);
        assert!(matches!(&error, CommitError::Port { interface, .. } if *interface == want), "{error:?}");
        assert_eq!(picture(&bench, &core), before, "{}", port.name);
        *bench.plane.refused_port.lock() = None;
        core.take(config(AFTER)).expect("taken, once nothing is refused");
    }
}

#[test]
fn the_plane_refuses_and_the_undoing_fails_at_each_step() {
    let (steps, _) = steps(BEFORE, WIDE);
    for undo in 1..=steps {
        let (bench, mut core) = running(BEFORE);
        let before = picture(&bench, &core);
        *bench.plane.refused_port.lock() = Some("eth3".into());
        bench.kernel.state().fail_at = Some(steps + undo);
        core.take(config(WIDE)).expect_err("refused");
        assert_eq!(bench.kernel.state().fail_at, None, "the undoing has {steps} steps");
        assert!(has(&core, "UNWIND"), "step {undo}");
        event(&bench, &mut core);
        assert_eq!(picture(&bench, &core), before, "step {undo}: {:?}", messages(&core.ctx));
    }
}

/// The plane refuses one call and every later one, also the one that restores its state.
#[test]
fn the_plane_refuses_to_go_back() {
    let mut refused = 0;
    for call in 1.. {
        let (bench, mut core) = running(BEFORE);
        let before = picture(&bench, &core);
        bench.plane.applied.store(0, Ordering::Relaxed);
        bench.plane.refused_calls.lock().extend(call..call + 100);
        let result = core.take(config(WIDE));
        if bench.plane.applied.load(Ordering::Relaxed) < call {
            break;
        }
        bench.plane.refused_calls.lock().clear();
        if result.is_err() {
            assert!(has(&core, "APPLY"), "call {call}: {:?}", messages(&core.ctx));
            refused += 1;
            event(&bench, &mut core);
            assert_eq!(picture(&bench, &core), before, "call {call}");
        } else {
            event(&bench, &mut core);
            assert_eq!(*core.ctx.plane.state(), core.ctx.switch.state(), "call {call}");
        }
    }
    assert!(refused > 0);
}

#[test]
fn no_change_is_made_without_a_written_record() {
    let (bench, mut core) = running(BEFORE);
    let before = picture(&bench, &core);
    let run = std::mem::replace(&mut core.ctx.paths.run, "/nonexistent".into());
    let done = bench.kernel.state().done.len();
    let error = core.take(config(AFTER)).expect_err("refused");
    assert!(matches!(error, CommitError::Record(_)), "{error:?}");
    assert!(error.to_string().starts_with("/nonexistent/record.json: No such file"), "{error}");
    // A netdev that appears is not set up either.
    bench.kernel.state().links.remove(&(None, "eth1".into()));
    core.netdev_events(vec![Event::LinkGone { ifindex: 1, name: "eth1".into() }]);
    bench.kernel.add("eth1");
    core.netdev_events(vec![bench.kernel.change("eth1", |_| {})]);
    assert_eq!(bench.kernel.state().done.len(), done);
    core.ctx.paths.run = run;
    core.netdev_events(vec![bench.kernel.change("eth1", |_| {})]);
    assert!(bench.kernel.get("eth1").admin_up, "tried again at the next event");
    assert_ne!(picture(&bench, &core), before);
    core.take(config(AFTER)).expect("taken, once it can be recorded");
}

/// The disk fills up after the record of the coming change has been written.
#[test]
fn files_that_cannot_be_written_are_written_at_the_next_event() {
    let (want, kept) = {
        let (bench, core) = running(AFTER);
        let kept = std::fs::read(bench.paths().running_config()).expect("kept");
        (picture(&bench, &core), kept)
    };
    let (bench, mut core) = running(BEFORE);
    let (run, away) = (core.ctx.paths.run.clone(), bench.directory.path().join("away"));
    bench.kernel.state().renames = Some((run.clone(), away.clone()));
    core.take(config(AFTER)).expect("taken");
    assert!(has(&core, "RECORD"));
    let text = std::fs::read(away.join("record.json")).expect("the record of before the change");
    let ahead: Record = serde_json::from_slice(&text).expect("a record");
    assert!(ahead.originals.contains_key("eth3") && ahead.originals.contains_key("eth1"), "{ahead:?}");
    std::fs::rename(away, &run).expect("back");
    event(&bench, &mut core);
    let now = picture(&bench, &core);
    assert_eq!((now, std::fs::read(bench.paths().running_config()).expect("kept")), (want, kept));
    assert!(!core.config_unkept);
}

#[test]
fn a_socket_for_fpm_that_cannot_be_opened() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = taken.local_addr().expect("an address");
    let text = format!("{AFTER}\nfpm server port {}", address.port());
    let (bench, mut core) = running(BEFORE);
    let before = picture(&bench, &core);
    let done = bench.kernel.state().done.len();
    let error = core.take(config(&text)).expect_err("refused");
    assert!(matches!(error, CommitError::Fpm(_)), "{error:?}");
    assert_eq!(error.part(), Part::Fpm);
    assert_eq!((picture(&bench, &core), bench.kernel.state().done.len()), (before, done));
    drop(taken);
    // A later step fails: the socket is closed again.
    bench.kernel.state().fail_at = Some(1);
    core.take(config(&text)).expect_err("refused");
    assert!(TcpStream::connect(address).is_err());
    assert_eq!(core.fpm.address(), None);
    core.take(config(&text)).expect("taken");
    assert!(TcpStream::connect(address).is_ok());
    // The running server stays if a change that moves it is refused.
    let moved = text.replace(&format!("port {}", address.port()), "port 1").replace("20", "30");
    bench.kernel.state().fail_at = Some(1);
    core.take(config(&moved)).expect_err("refused");
    assert!(TcpStream::connect(address).is_ok());
}

const ROUTED: &str = "interface eth3\n no switchport\n ip address 10.3.0.1 255.255.255.0\n\
    ip route 10.20.0.0 255.255.0.0 10.3.0.2\nip route 10.21.0.0 255.255.0.0 10.3.0.2";
/// The address differs, so the kernel removes the routes during the change.
const REROUTED: &str = "interface eth3\n no switchport\n ip address 10.4.0.1 255.255.255.0\n\
    ip route 10.21.0.0 255.255.0.0 10.4.0.2\nip route 10.22.0.0 255.255.0.0 10.4.0.2\n\
    ip route 10.23.0.0 255.255.0.0 10.4.0.2";

fn net(text: &str) -> ipnet::IpNet {
    text.parse().expect("a prefix")
}

/// A switch that runs [`ROUTED`], in a kernel where gateways are reachable by their subnet only.
fn routed() -> (Bench, Core) {
    let (bench, mut core) = running(BEFORE);
    for (via, on) in [("10.3.0.2", "10.3.0.1/24"), ("10.4.0.2", "10.4.0.1/24")] {
        let on = ("eth3".to_owned(), net(on));
        bench.kernel.state().behind.insert(via.parse().expect("an address"), on);
    }
    core.take(config(ROUTED)).expect("taken");
    assert_eq!(bench.kernel.state().routes[&None].len(), 2);
    (bench, core)
}

#[test]
fn the_kernel_refuses_each_static_route() {
    for (prefix, after) in [("10.21.0.0/16", 0), ("10.22.0.0/16", 0), ("10.23.0.0/16", 0)] {
        let (bench, mut core) = routed();
        let before = picture(&bench, &core);
        bench.kernel.state().refused_routes.insert(net(prefix), (after, libc::EINVAL));
        let result = core.take(config(REROUTED));
        let error = result.expect_err("refused");
        assert!(matches!(error, CommitError::Route(_)), "{error:?}");
        let want = format!("the static route to {prefix} is not installed: the fault of the test: Invalid");
        assert!(error.to_string().starts_with(&want), "{error}");
        bench.kernel.state().refused_routes.clear();
        if picture(&bench, &core) != before {
            // Expected only for a route that the kernel refused again when the change was undone.
            assert!(has(&core, "STATIC"), "{prefix}: {:?}", messages(&core.ctx));
            event(&bench, &mut core);
        }
        assert_eq!(picture(&bench, &core), before, "{prefix}");
    }
}

#[test]
fn a_static_route_that_is_not_restored_is_logged_and_retried() {
    let (bench, mut core) = routed();
    let before = picture(&bench, &core);
    bench.kernel.state().refused_routes.insert(net("10.22.0.0/16"), (0, libc::EINVAL));
    // The route is removed, and not added again when the change is undone.
    bench.kernel.state().refused_routes.insert(net("10.20.0.0/16"), (1, libc::ENOMEM));
    core.take(config(REROUTED)).expect_err("refused");
    assert!(has(&core, "STATIC"), "{:?}", messages(&core.ctx));
    assert_ne!(picture(&bench, &core), before);
    bench.kernel.state().refused_routes.clear();
    event(&bench, &mut core);
    assert_eq!(picture(&bench, &core), before);
}

/// As in the test above, but the addresses stay: the route is refused while routes are restored, before the netdevs
/// are.
#[test]
fn a_static_route_refused_during_unwind_is_logged_once() {
    let (bench, mut core) = routed();
    bench.kernel.state().refused_routes.insert(net("10.22.0.0/16"), (0, libc::EINVAL));
    bench.kernel.state().refused_routes.insert(net("10.20.0.0/16"), (1, libc::ENOMEM));
    let next = ROUTED.replace("10.20.0.0", "10.22.0.0");
    core.take(config(&next)).expect_err("refused");
    let want =
        "STATIC: the static route to 10.20.0.0/16 is not installed: the fault of the test: Cannot allocate";
    let printed = messages(&core.ctx).iter().filter(|text| text.starts_with(want)).count();
    assert_eq!(printed, 1, "{:?}", messages(&core.ctx));
}

#[test]
fn a_static_route_that_is_not_removed_is_logged_once_and_retried() {
    let (bench, mut core) = routed();
    bench.kernel.state().refused_routes.insert(net("10.20.0.0/16"), (0, libc::EBUSY));
    let without = ROUTED.replace("\nip route 10.20.0.0 255.255.0.0 10.3.0.2", "\n");
    core.take(config(&without)).expect("taken");
    let printed = |core: &Core| {
        let printed =
            "STATIC: the static route to 10.20.0.0/16 is not removed: the fault of the test: Device";
        messages(&core.ctx).iter().filter(|text| text.starts_with(printed)).count()
    };
    assert_eq!(printed(&core), 1, "{:?}", messages(&core.ctx));
    event(&bench, &mut core);
    assert_eq!(printed(&core), 1);
    let record = core.ctx.switch.record().routes.clone();
    assert!(record.iter().any(|route| route.prefix == net("10.20.0.0/16")), "{record:?}");
    bench.kernel.state().refused_routes.clear();
    event(&bench, &mut core);
    assert_eq!(bench.kernel.state().routes[&None].len(), 1);
    assert_eq!(core.ctx.switch.record().routes.len(), 1);
}

#[test]
fn static_routes_wait_for_the_record() {
    let (bench, mut core) = routed();
    bench.kernel.state().routes.clear();
    core.layer3.handle(&mut core.ctx, layer3::Event::Flushed);
    let run = std::mem::replace(&mut core.ctx.paths.run, "/nonexistent".into());
    // A route that is in the record already is installed again without writing it.
    core.configure_services();
    assert_eq!(bench.kernel.state().routes[&None].len(), 2);
    let more = format!("{ROUTED}\nip route 10.25.0.0 255.255.0.0 10.3.0.2");
    let error = core.take(config(&more)).expect_err("refused");
    assert!(error.to_string().ends_with("the switch's record of routes cannot be written"), "{error}");
    assert_eq!(bench.kernel.state().routes[&None].len(), 2);
    core.ctx.paths.run = run;
    core.take(config(&more)).expect("taken");
    assert_eq!(bench.kernel.state().routes[&None].len(), 3);
}

#[test]
fn a_release_that_fails_is_settled_at_the_next_event() {
    let (before, after) = steps(WIDE, "");
    assert!(after > 4, "{after} releases");
    let released = {
        let (bench, mut core) = running(WIDE);
        core.take(config("")).expect("taken");
        picture(&bench, &core)
    };
    for step in 1..=after {
        for restart in [false, true] {
            let (bench, mut core) = running(WIDE);
            bench.kernel.state().fail_at = Some(before + step);
            core.take(config("")).expect("taken");
            assert!(has(&core, "RELEASE"), "release {step}");
            assert_ne!(picture(&bench, &core), released, "release {step}");
            if restart {
                drop(core);
                core = bench.core();
                core.take(config("")).expect("taken");
                assert_eq!(&kernel_picture(&bench), released.kernel(), "release {step}");
            } else {
                event(&bench, &mut core);
                assert_eq!(picture(&bench, &core), released, "release {step}");
            }
        }
    }
}
