//! Each procedure against a device whose figures are known.

use super::*;
use crate::method::sim::{Model, line_pps, rounds, run};
use crate::report::Key;

fn plan(tests: &[Test], sizes: &[usize]) -> Plan {
    Plan {
        tests: tests.to_vec(),
        sizes: sizes.to_vec(),
        rounds: 1,
        precision: Precision { resolution: 0.01, tolerance: 0.0, votes: 2, trials: 60 },
        hosts: 1,
        addresses: 65_536,
        learning_pps: 10_000,
        ageing: Duration::from_secs(300),
        load_step: 0.05,
    }
}

fn key(test: &str, device: &str, size: usize) -> Key {
    Key::new(test, "", device).at(Axis::FrameBytes, size as f64)
}

#[track_caller]
fn near(found: &[f64], expected: f64, part: f64, what: &str) {
    assert_eq!(found.len(), 1, "{what}: {found:?}");
    let found = found[0];
    assert!((found - expected).abs() <= expected * part, "{what}: {found}, not {expected}");
}

fn four_ports(pps: f64) -> Model {
    Model { ports: 4, ..Model::new(pps) }
}

/// One processor serves all ports: the device forwards a million frames a second in all, in every pattern.
#[test]
fn all_patterns_share_the_capacity_of_the_device() {
    let tests = [Test::Mesh, Test::OneToMany, Test::ManyToOne, Test::Unidirectional];
    let mut run = run(&[("dut", Model { byte_ns: 1.0, ..four_ports(1e6) })], 1);
    measure(&mut run, &plan(&tests, &[64, 512])).expect("measured");
    for size in [64, 512] {
        let capacity = 1e9 / (1000.0 + size as f64);
        for title in ["fully meshed", "one to many", "many to one", "unidirectional"] {
            let of = |what: &str| rounds(&run, &key(&format!("{title} {what}"), "dut", size));
            near(&of("throughput"), capacity * 0.995, 0.012, title);
            near(&of("forwarding rate at maximum load"), capacity, 0.01, title);
            let offered = if title == "one to many" { 1e7 } else { 4e7 };
            assert!(of("frame loss at maximum load")[0] > 1.0 - capacity / offered * 4.1, "{title}");
        }
    }
}

/// A device that forwards only a third of its maximum under overload: the maximum rate is found below the
/// maximum load.
#[test]
fn the_maximum_is_not_at_the_maximum_load() {
    let model = Model { collapse: 0.3, tester_pps: 2e6, ..Model::new(1e6) };
    let mut run = run(&[("collapses", model), ("keeps", Model { tester_pps: 2e6, ..Model::new(1e6) })], 2);
    measure(&mut run, &plan(&[Test::MaxRate], &[64])).expect("measured");
    near(&rounds(&run, &key("forwarding rate at maximum load", "collapses", 64)), 3e5, 0.01, "at 2 Mpps");
    near(&rounds(&run, &key("maximum forwarding rate", "collapses", 64)), 1e6, 0.01, "at 1 Mpps");
    near(&rounds(&run, &key("load of the maximum forwarding rate", "collapses", 64)), 1e6, 0.01, "its load");
    near(&rounds(&run, &key("maximum forwarding rate", "keeps", 64)), 1e6, 0.01, "at any load above");
    assert!(run.results.notes.iter().any(|n| n.contains("forward pressure: not measured")));
}

/// A gigabit port gets 150 % of its rate and loses a third. Whether the other port loses frames too depends on the
/// device.
#[test]
fn head_of_line_blocking_is_distinguished_from_congestion() {
    let line = |head_of_line| Model {
        line_bps: Some(1e9),
        output_pps: Some(line_pps(1e9, 64)),
        head_of_line,
        ..four_ports(1e8)
    };
    let mut run = run(&[("blocks", line(true)), ("free", line(false)), ("veth", four_ports(1e8))], 3);
    measure(&mut run, &plan(&[Test::Congestion], &[64])).expect("measured");
    let loss = |device: &str, case: &str| {
        let key = Key { case: case.to_owned(), ..key("congestion control, loss", device, 64) };
        rounds(&run, &key)
    };
    near(&loss("blocks", "congested port"), 1.0 / 3.0, 0.01, "150 % for one port");
    near(&loss("blocks", "uncongested port"), 1.0 / 3.0, 0.01, "held up");
    near(&loss("free", "congested port"), 1.0 / 3.0, 0.01, "150 % for one port");
    assert_eq!(loss("free", "uncongested port"), [0.0]);
    assert!(loss("veth", "congested port").is_empty(), "nothing is made up");
    let notes = run.results.notes.join("\n");
    for printed in [
        "blocks: head-of-line blocking at 64 B",
        "free: no head-of-line blocking",
        "free: no back pressure",
        "5.5, congestion control: not measured: without a line rate",
    ] {
        assert!(notes.contains(printed), "{printed} in\n{notes}");
    }
}

/// The device learns this many addresses, one of which is the test port's own.
#[test]
fn address_capacity_and_learning_rate() {
    let model = Model { table: 8193, learn_pps: 250_000.0, ..four_ports(5e6) };
    let endless = Model { forgets: false, ..four_ports(5e6) };
    let mut run = run(&[("dut", model), ("endless", endless)], 4);
    let fine = Precision { resolution: 1e-5, tolerance: 0.0, votes: 1, trials: 60 };
    let tests = [Test::Capacity, Test::LearningRate];
    measure(&mut run, &Plan { precision: fine, ..plan(&tests, &[]) }).expect("measured");
    let of = |test: &str, device: &str| rounds(&run, &Key::new(test, "", device));
    assert_eq!(of("address caching capacity", "dut"), [8192.0]);
    near(&of("address learning rate", "dut"), 250_000.0, 0.001, "addresses a second");
    assert_eq!(of("address caching capacity", "endless"), [65_536.0], "it ages between trials");
    let series = run.results.get(&Key::new("address caching capacity", "", "endless")).expect("measured");
    assert!(series.caveats[0].contains("--addresses"), "{:?}", series.caveats);
}

/// Small tables, down to a single entry.
#[test]
fn small_tables_are_counted_exactly() {
    for capacity in [1, 3, 64, 1000] {
        let mut run = run(&[("dut", Model { table: capacity + 1, ..four_ports(5e6) })], 5);
        let fine = Precision { resolution: 1e-6, tolerance: 0.0, votes: 1, trials: 60 };
        measure(&mut run, &Plan { precision: fine, ..plan(&[Test::Capacity], &[]) }).expect("measured");
        assert_eq!(rounds(&run, &Key::new("address caching capacity", "", "dut")), [capacity as f64]);
    }
}

#[test]
fn broadcast_costs_a_copy_a_port() {
    let mut run = run(&[("dut", four_ports(3e6))], 6);
    measure(&mut run, &plan(&[Test::Broadcast], &[64])).expect("measured");
    // Three copies of each.
    near(&rounds(&run, &key("broadcast throughput", "dut", 64)), 1e6 * 0.995, 0.012, "broadcast");
    assert!(rounds(&run, &key("broadcast latency, median", "dut", 64))[0] > 5.0);
}

#[test]
fn forwarded_and_filtered_oversize_frames_are_distinguished() {
    let mut run =
        run(&[("filters", Model { largest: 1518, ..Model::new(1e6) }), ("jumbo", Model::new(1e6))], 7);
    measure(&mut run, &plan(&[Test::Errored], &[])).expect("measured");
    let of = |device: &str, case: &str| rounds(&run, &Key::new("errored frames filtered", case, device));
    assert_eq!(of("filters", "oversize, 1519 B"), [1.0]);
    assert_eq!(of("jumbo", "oversize, 1519 B"), [0.0]);
    assert!(run.results.notes.iter().any(|n| n.contains("CRC errors")), "{:?}", run.results.notes);
}

#[test]
fn tests_that_need_more_ports_are_named() {
    let mut run = run(&[("two ports", Model::new(1e6))], 8);
    measure(&mut run, &plan(&Test::ALL, &[64])).expect("what can be measured is");
    let notes = run.results.notes.join("\n");
    for test in Test::ALL {
        let printed = format!("{}: not measured: needs {} ports, there are 2", name(test), test.ports());
        assert_eq!(notes.contains(&printed), test.ports() > 2, "{printed} in\n{notes}");
    }
    assert!(notes.contains("5.3, partially meshed multiple devices: not measured"), "{notes}");
    assert_eq!(rounds(&run, &key("maximum forwarding rate", "two ports", 64)).len(), 1);
}
