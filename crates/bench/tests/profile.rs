//! The profile of devices whose work is known: the time of a bridge must be attributed to the bridge.

#![allow(clippy::unwrap_used)] // a failed step fails the test

use lanyard_bench::dut::Executable;
use lanyard_bench::profile::{Args, run};
use lanyard_bench::report::Outputs;
use lanyard_tester::os::cannot_measure;
use std::sync::{Mutex, PoisonError};

/// Runs one test at a time: two runs would take the sending core from each other.
static ALONE: Mutex<()> = Mutex::new(());

fn args(devices: &[&str], hosts: &[u32]) -> Args {
    Args {
        devices: devices.iter().map(|d| (*d).to_owned()).collect(),
        hosts: hosts.to_vec(),
        size: 64,
        window: 300,
        core: 0,
        lanyard: None,
        outputs: Outputs::default(),
    }
}

#[test]
fn a_bridge_and_a_wire() {
    if let Some(why) = cannot_measure() {
        println!("skipped: {why}");
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let results = run(&args(&["bridge", "bare-xdp"], &[2, 256])).unwrap();
    for device in &results.devices {
        assert_eq!(device.broken, None, "{}", device.name);
    }
    let whole = &results.bars[0].bars;
    assert_eq!(whole.len(), 4);
    for (title, parts) in whole {
        let sum: f64 = parts.iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{title}: {parts:?}");
    }
    // Functions and programs appear by name.
    let functions = |beginning: &str| -> Vec<&str> {
        let bars = results.bars.iter().filter(|bars| bars.title.starts_with(beginning));
        bars.flat_map(|bars| bars.bars.iter().map(|(name, _)| name.as_str())).collect()
    };
    let bridge = functions("bridge, 2 hosts");
    assert!(bridge.iter().any(|name| name.starts_with("br_")), "{bridge:?}");
    let wire = functions("bare-xdp, 2 hosts");
    assert!(wire.contains(&"bpf:send"), "{wire:?}"); // beside a bridge it need not be among the largest
    let programs: Vec<&str> =
        results.series.iter().filter(|s| s.key.test == "BPF program").map(|s| s.key.case.as_str()).collect();
    for name in ["send", "check_tc", "check_xdp", "wire_xdp"] {
        assert!(programs.contains(&name), "{name} in {programs:?}");
    }
}

#[test]
fn a_device_that_is_a_program() {
    let here = std::env::current_exe().unwrap();
    let lanyard = here.parent().unwrap().with_file_name("lanyard");
    if let Some(why) = cannot_measure().or_else(|| Executable::new(Some(&lanyard)).unwrap().unavailable()) {
        println!("skipped: {why}");
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let results = run(&Args { lanyard: Some(lanyard), ..args(&["lanyard-soft"], &[2]) }).unwrap();
    assert_eq!(results.devices[0].broken, None);
    let of = |what: &str| results.bars.iter().find(|bars| bars.title.contains(what));
    let functions = &of("by function").unwrap().bars;
    assert!(functions.iter().any(|(name, _)| name == "program lanyard"), "{functions:?}");
    match of("callgrind") {
        Some(bars) => {
            assert!(bars.bars.iter().any(|(name, _)| name.contains("lanyard_pipeline")), "{bars:?}")
        }
        None => println!("skipped: callgrind: {:?}", results.notes),
    }
}

#[test]
fn impossible_profile_arguments_are_refused() {
    for (args, word) in [
        (args(&["brigde"], &[2]), "no device `brigde`"),
        (args(&["bridge"], &[1]), "hosts"),
        (Args { window: 1, ..args(&["bridge"], &[2]) }, "window"),
        (Args { core: 4096, ..args(&["bridge"], &[2]) }, "no core 4096"),
    ] {
        let why = run(&args).err().unwrap().to_string();
        assert!(why.contains(word), "{why}");
    }
}
