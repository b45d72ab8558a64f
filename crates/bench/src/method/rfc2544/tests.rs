//! Each procedure against a device whose figures are known.

use super::*;
use crate::method::sim::{Log, Model, line_pps, rounds, run, run_logged};
use crate::report::{Axis, Key};
use std::time::Duration;

fn plan(tests: &[Test], sizes: &[usize]) -> Plan {
    Plan {
        tests: tests.to_vec(),
        sizes: sizes.to_vec(),
        rounds: 1,
        precision: Precision { resolution: 0.01, tolerance: 0.0, votes: 2, trials: 60 },
        pattern: Pattern::Pairs,
        hosts: 1,
        latency_load: 1.0,
        latency_trials: 1,
        loss_step: 0.1,
        verify: false,
    }
}

fn key(test: &str, device: &str, size: usize) -> Key {
    Key::new(test, "", device).at(Axis::FrameBytes, size as f64)
}

#[track_caller]
fn near(found: f64, expected: f64, part: f64, what: &str) {
    assert!((found - expected).abs() <= expected * part, "{what}: {found}, not {expected}");
}

/// A frame costs a fixed time and a time per byte, so each size has another throughput.
#[test]
fn throughput_of_two_devices_at_every_size() {
    let quick = Model { byte_ns: 0.4, noise: 0.001, ..Model::new(2e6) };
    let slow = Model { byte_ns: 2.0, collapse: 0.4, ..Model::new(7e5) };
    let mut run = run(&[("quick", quick.clone()), ("slow", slow.clone())], 1);
    let plan = Plan { rounds: 3, ..plan(&[Test::Throughput], &SIZES) };
    measure(&mut run, &plan).expect("measured");
    for (name, model) in [("quick", quick), ("slow", slow)] {
        for size in SIZES {
            let found = rounds(&run, &key("throughput", name, size));
            assert_eq!(found.len(), 3);
            for rate in found {
                near(rate, model.capacity(size) * 0.995, 0.012, &format!("{name} at {size} B"));
            }
        }
    }
    let results = run.finish(None);
    assert!(results.notes.is_empty() && !results.broken(), "{:?}", results.notes);
    let table = results.table();
    assert!(table.contains("throughput (RFC 2544, 26.1), Mpps"), "{table}");
}

#[test]
fn both_directions_are_counted_together() {
    let mut run = run(&[("dut", Model::new(1e6))], 2);
    let plan = Plan { pattern: Pattern::PairsBoth, ..plan(&[Test::Throughput], &[64]) };
    measure(&mut run, &plan).expect("measured");
    near(rounds(&run, &key("throughput", "dut", 64))[0], 1e6, 0.015, "two ports send");
}

/// The trials of a search take turns between the devices, so that all see the same minutes.
#[test]
fn devices_take_turns_trial_by_trial() {
    let log = Log::default();
    let models = [("a", Model::new(1e6)), ("b", Model::new(1e6)), ("c", Model::new(1e6))];
    let mut run = run_logged(&models, 3, log.clone());
    measure(&mut run, &plan(&[Test::Throughput], &[64])).expect("measured");
    let trials: Vec<String> = log
        .borrow()
        .iter()
        .filter(|(_, offer)| offer.frames.is_none())
        .map(|(name, _)| name.clone())
        .collect();
    assert!(trials.len() > 9, "{trials:?}");
    for turn in trials.chunks_exact(3) {
        assert_eq!(turn, ["a", "b", "c"], "{trials:?}");
    }
}

#[test]
fn the_line_is_the_limit_where_there_is_one() {
    let mut run = run(&[("dut", Model { line_bps: Some(1e9), ..Model::new(5e6) })], 4);
    measure(&mut run, &plan(&[Test::Throughput], &[64, 1518])).expect("measured");
    for (size, expected) in [(64, 1_488_095.0), (1518, 81_274.0)] {
        let series = run.results.get(&key("throughput", "dut", size)).expect("measured");
        near(series.rounds[0], expected, 1e-4, "a gigabit");
        assert!(series.caveats.iter().any(|c| c.contains("the line")), "{:?}", series.caveats);
    }
}

/// A device that needs a rest after overload and gets it (RFC 2544, 23).
#[test]
fn an_overload_is_forgotten_after_a_rest() {
    let model = Model { collapse: 0.5, hysteresis: Duration::from_millis(240), ..Model::new(1e6) };
    let mut run = run(&[("dut", model)], 5);
    measure(&mut run, &plan(&[Test::Throughput], &[64])).expect("measured");
    near(rounds(&run, &key("throughput", "dut", 64))[0], 1e6, 0.012, "after rests");
}

/// A device that does not recover is measured in that state: the search ends, with a result below the original
/// throughput.
#[test]
fn an_overload_that_stays_is_found_as_it_is() {
    let model = Model { collapse: 0.5, hysteresis: Duration::from_secs(1000), ..Model::new(1e6) };
    let mut run = run(&[("dut", model)], 6);
    measure(&mut run, &plan(&[Test::Throughput], &[64])).expect("measured");
    near(rounds(&run, &key("throughput", "dut", 64))[0], 5e5, 0.012, "collapsed");
}

#[test]
fn latency_is_the_devices_own() {
    // 5 us when idle; at half of the throughput the queue doubles that.
    let model = Model { own_ns: Some(700), ..Model::new(1e6) };
    let mut veth = run(&[("dut", model.clone())], 7);
    let half = Plan { latency_load: 0.5, ..plan(&[Test::Latency], &[64]) };
    measure(&mut veth, &half).expect("measured");
    near(rounds(&veth, &key("latency, median", "dut", 64))[0], 10.0, 0.03, "over veth");
    assert!(rounds(&veth, &key("throughput", "dut", 64)).is_empty(), "only what was asked for is reported");
    assert!(
        veth.results.notes.iter().any(|n| n.contains("0.70 us (median), is subtracted")),
        "{:?}",
        veth.results.notes
    );
    assert_eq!(veth.results.distributions.len(), 1);
    // On a line of 100 Mbit/s a frame of 1518 bytes takes 121 us in each direction.
    let mut line = run(&[("dut", Model { line_bps: Some(1e8), ..model })], 8);
    measure(&mut line, &plan(&[Test::Latency], &[1518])).expect("measured");
    let of =
        |case: &str| rounds(&line, &Key { case: case.to_owned(), ..key("latency, median", "dut", 1518) })[0];
    near(of("store and forward"), 5.0, 0.1, "last bit in, first bit out");
    near(of("cut-through"), 5.0 + 1518.0 * 8.0 / 100.0, 0.02, "first bit in, first bit out");
}

#[test]
fn latency_trials_are_averaged_into_one_figure() {
    let log = Log::default();
    let mut run = run_logged(&[("dut", Model::new(1e6))], 9, log.clone());
    let twenty = Plan { latency_trials: 20, ..plan(&[Test::Latency], &[64]) };
    measure(&mut run, &twenty).expect("measured");
    let stamped = log.borrow().iter().filter(|(_, o)| o.streams[0].1.stamp && o.frames.is_none()).count();
    assert_eq!((stamped, rounds(&run, &key("latency, mean", "dut", 64)).len()), (20, 1));
}

/// 10 Mpps offered, 4.5 Mpps forwarded: losses down to 50 %, none at 40 and 30 %, and then it ends.
#[test]
fn frame_loss_goes_down_until_two_trials_lose_nothing() {
    let mut run = run(&[("dut", Model::new(4.5e6))], 10);
    measure(&mut run, &Plan { rounds: 2, ..plan(&[Test::Loss], &[64]) }).expect("measured");
    let loss = |percent: u32| {
        let key = Key::new("frame loss rate", "64 B", "dut").at(Axis::Load, f64::from(percent) / 100.0);
        rounds(&run, &key)
    };
    for percent in [100, 90, 80, 70, 60, 50] {
        let found = loss(percent);
        assert_eq!(found.len(), 2, "{percent} %");
        near(found[0], 1.0 - 45.0 / f64::from(percent), 0.01, &format!("{percent} %"));
    }
    assert_eq!([loss(40), loss(30), loss(20)], [vec![0.0, 0.0], vec![0.0, 0.0], vec![]]);
}

/// A burst of N at rate R into a device that takes C of it leaves N (1 - C / R) in the buffer.
#[test]
fn the_longest_burst_fills_the_buffer_of_the_device() {
    let model = Model { buffer: 1000.0, tester_pps: 4e6, ..Model::new(1e6) };
    let mut run = run(&[("dut", model)], 11);
    measure(&mut run, &plan(&[Test::Throughput, Test::Burst], &[64])).expect("measured");
    let frames = rounds(&run, &key("back-to-back frames", "dut", 64))[0];
    near(frames, 1000.0 / (1.0 - 0.25), 0.011, "frames");
    // RFC 9004: 1000 frames at 4 Mpps are 250 us.
    near(rounds(&run, &key("buffer time", "dut", 64))[0], 250.0, 0.02, "us");
}

#[test]
fn a_burst_that_never_fills_is_at_least_two_seconds() {
    let mut run = run(&[("dut", Model { tester_pps: 5e5, ..Model::new(1e6) })], 12);
    measure(&mut run, &plan(&[Test::Burst], &[64])).expect("measured");
    let series = run.results.get(&key("back-to-back frames", "dut", 64)).expect("measured");
    assert_eq!(series.rounds, [1e6]);
    assert!(series.caveats[0].starts_with("at least this"), "{:?}", series.caveats);
}

#[test]
fn recovery_and_reset_times() {
    let model = Model {
        recovery: Duration::from_millis(120),
        reset: Some(Duration::from_millis(700)),
        ..Model::new(1e6)
    };
    let mut run = run(&[("dut", model), ("other", Model { tester_pps: 5e5, ..Model::new(1e6) })], 13);
    measure(&mut run, &plan(&[Test::Recovery, Test::Reset], &[64, 512])).expect("measured");
    for size in [64, 512] {
        near(rounds(&run, &key("system recovery", "dut", size))[0], 120.0, 1e-6, "recovery");
    }
    near(rounds(&run, &key("reset", "dut", 64))[0], 700.0, 0.01, "reset");
    assert!(rounds(&run, &key("reset", "dut", 512)).is_empty(), "the smallest frames only");
    // The tester can't overload the other device, and there is no way to reset it: the report says so and has
    // no figure.
    assert!(rounds(&run, &key("system recovery", "other", 64)).is_empty());
    let notes = run.results.notes.join("\n");
    assert!(notes.contains("other: no system recovery to measure at 64 B"), "{notes}");
    assert!(notes.contains("other: no reset: give a command"), "{notes}");
}

/// A link goes down in the second device's 23rd trial: the reason is reported, its earlier figures stay, and the other
/// devices continue.
#[test]
fn a_device_that_breaks_leaves_the_others_alone() {
    let models = [
        ("good", Model::new(1e6)),
        ("breaks", Model { breaks_at: Some(22), ..Model::new(2e6) }),
        ("fine", Model::new(3e6)),
    ];
    let mut run = run(&models, 14);
    measure(&mut run, &plan(&[Test::Throughput], &[64, 512, 1518])).expect("two are left");
    let measured =
        |name: &str| SIZES.iter().filter(|s| !rounds(&run, &key("throughput", name, **s)).is_empty()).count();
    assert_eq!((measured("good"), measured("fine")), (3, 3));
    assert!((1..3).contains(&measured("breaks")), "{}", measured("breaks"));
    let results = run.finish(None);
    assert_eq!(results.devices[1].broken.as_deref(), Some("the link of port 1 went down"));
    assert!(
        results.broken()
            && results.table().contains("breaks: not measured to the end: the link of port 1 went down")
    );
}

#[test]
fn a_run_whose_last_device_fails_keeps_its_results_and_is_incomplete() {
    let mut run = run(&[("only", Model { breaks_at: Some(22), ..Model::new(2e6) })], 15);
    let why = measure(&mut run, &plan(&[Test::Throughput], &[64, 512, 1518])).expect_err("nothing is left");
    assert!(
        format!("{why:#}").contains("no device is left; the last was only: the link of port 1 went down"),
        "{why:#}"
    );
    assert_eq!(rounds(&run, &key("throughput", "only", 64)).len(), 1);
    assert!(run.finish(Some(format!("{why:#}"))).broken());
}

#[test]
fn jumbo_frames_are_left_out_where_they_do_not_pass() {
    let small = Model { largest: 1518, ..Model::new(1e6) };
    let mut run = run(&[("small", small), ("large", Model::new(1e6))], 16);
    measure(&mut run, &plan(&[Test::Throughput, Test::Burst], &[1518, 9018])).expect("measured");
    assert!(rounds(&run, &key("throughput", "small", 9018)).is_empty());
    assert_eq!(rounds(&run, &key("throughput", "large", 9018)).len(), 1);
    assert!(
        run.results.notes.iter().any(|n| n == "small: no frames of 9018 B: none arrives"),
        "{:?}",
        run.results.notes
    );
}

#[test]
fn reordered_duplicated_and_corrupted_frames_are_noted() {
    let model = Model { reordered: 0.01, duplicated: 0.02, corrupted: 0.0, ..Model::new(1e6) };
    let mut run = run(&[("odd", model)], 17);
    measure(&mut run, &plan(&[Test::Throughput], &[64])).expect("measured");
    let notes = run.finish(None).notes.join("\n");
    assert!(notes.contains("arrived twice") && notes.contains("arrived after a later one"), "{notes}");
    // A corrupted frame did not arrive, so every load has loss.
    let mut run = run_spoiler();
    measure(&mut run, &plan(&[Test::Throughput], &[64])).expect("measured");
    assert_eq!(rounds(&run, &key("throughput", "spoiler", 64)), [0.0]);
    assert!(run.finish(None).notes[0].contains("arrived spoiled"));
}

fn run_spoiler() -> Run<'static> {
    run(&[("spoiler", Model { corrupted: 0.02, ..Model::new(1e6) })], 18)
}

/// The same command runs twice, on a machine whose speed varies from trial to trial: `bench compare` may show a
/// difference in at most one of twenty pairs.
#[test]
fn the_same_command_twice_agrees() {
    let model = Model { noise: 0.01, disturbed: (0.05, 0.001), ..Model::new(1e6) };
    let plan = Plan { rounds: 5, ..plan(&[Test::Throughput], &[64, 512, 1518]) };
    let once = |seed: u64| {
        let mut run =
            run(&[("dut", model.clone()), ("other", Model { frame_ns: 400.0, ..model.clone() })], seed);
        measure(&mut run, &plan).expect("measured");
        run.finish(None)
    };
    let options = crate::report::compare::Options { confidence: 0.95, ..Default::default() };
    let pairs = 200;
    let differ = (0..pairs).filter(|pair| {
        let found = crate::report::compare::compare(&once(1000 + 2 * pair), &once(1001 + 2 * pair), &options)
            .expect("alike");
        found.any(crate::report::compare::Verdict::Faster)
            || found.any(crate::report::compare::Verdict::Slower)
    });
    let differ = differ.count();
    // Three standard deviations of a binomial above 5 %.
    assert!(differ <= 19, "{differ} of {pairs} pairs of runs differ");
    // And a device that is 8 % faster is found.
    let faster = |seed: u64| {
        let mut run = run(&[("dut", Model { frame_ns: model.frame_ns / 1.08, ..model.clone() })], seed);
        measure(&mut run, &plan).expect("measured");
        run.finish(None)
    };
    let found = (0..50).filter(|n| {
        let found =
            crate::report::compare::compare(&once(5000 + n), &faster(6000 + n), &options).expect("alike");
        found.any(crate::report::compare::Verdict::Faster)
            && !found.any(crate::report::compare::Verdict::Slower)
    });
    let found = found.count();
    assert!(found >= 45, "{found} of 50");
}

#[test]
fn the_sevens_rates_of_a_line() {
    // RFC 2544, appendix B: 10 Mbit/s Ethernet.
    for (size, expected) in [(64, 14_880.0), (512, 2_349.0), (1518, 812.0)] {
        near(line_pps(1e7, size), expected, 1e-3, "appendix B");
    }
}
