//! Tests `lanyard bench` as a user runs it: the reports can be read, and an interrupted run leaves its results.
//!
//! These tests do not check figures; crates/bench checks them on simulated devices and on wires with known faults. Each
//! run makes unnamed namespaces only, so nothing remains. Without the rights to measure, a test prints why it is
//! skipped.

#![allow(clippy::panic)] // how a test fails

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LANYARD: &str = env!("CARGO_BIN_EXE_lanyard");
/// The longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(120);

/// Only one run at a time: two would disturb each other, and the program refuses the second.
static ALONE: Mutex<()> = Mutex::new(());

/// Holds the lock for the only run, or prints why this machine cannot measure.
fn alone() -> Option<MutexGuard<'static, ()>> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return None;
    }
    let lock = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Run the program once to learn whether it can measure on this machine.
    let printed = text(&bench(&["rfc2544", "--ports", "no-such-a,no-such-b"]).stderr);
    if let Some((_, why)) = printed.split_once("cannot measure here: ") {
        println!("skipped: {}", why.trim());
        return None;
    }
    Some(lock)
}

fn bench(arguments: &[&str]) -> Output {
    let start = Instant::now();
    loop {
        let out =
            Command::new(LANYARD).arg("bench").args(arguments).stdin(Stdio::null()).output().expect("run");
        // Wait until another run on this machine has ended.
        if !text(&out.stderr).contains("another lanyard bench is running") || start.elapsed() > PATIENCE {
            return out;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The arguments of a short run: one throughput test with the smallest values.
fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut line =
        vec!["rfc2544", "--tests", "throughput", "--sizes", "64", "--window", "50", "--resolution", "10"];
    line.extend(more);
    line
}

fn path(file: &Path) -> &str {
    file.to_str().expect("a name in UTF-8")
}

#[test]
fn a_run_leaves_reports_that_compare_reads() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let files: Vec<PathBuf> =
        ["a.json", "a.csv", "a.html"].iter().map(|name| dir.path().join(name)).collect();
    let [a, csv, html] = [0, 1, 2].map(|n| path(&files[n]));
    let reports = ["--dut", "bridge,bare-tc", "--rounds", "2", "--json", a, "--csv", csv, "--html", html];
    let out = bench(&small(&reports));
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("throughput (RFC 2544, 26.1), Mpps"), "{}", text(&out.stdout));
    let found = json(&files[0]);
    let series = found["series"].as_array().expect("series");
    let devices: Vec<&str> = series.iter().filter_map(|s| s["device"].as_str()).collect();
    assert_eq!(devices, ["bridge", "bare-tc"]);
    assert!(series.iter().all(|s| s["rounds"].as_array().is_some_and(|r| r.len() == 2)), "{found}");
    assert!(found["environment"]["kernel"].as_str().is_some_and(|k| !k.is_empty()));
    let lines = std::fs::read_to_string(csv).expect("written").lines().count();
    assert_eq!(lines, 1 + 2 * 2, "a line a figure and round");
    assert!(std::fs::read_to_string(html).expect("written").contains("<svg"));
    let same = bench(&["compare", a, a]);
    assert!(same.status.success(), "{}", text(&same.stderr));
    assert!(text(&same.stdout).contains("0 slower, 2 no difference shown"), "{}", text(&same.stdout));
}

/// A million frames a second need an idle machine, so only the presence of each flood is asserted.
#[test]
fn a_stream_is_measured_beside_each_flood() {
    let Some(_alone) = alone() else { return };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skipped: a flood needs a core of its own; this machine has one core");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.json");
    let rows = ["forward", "--only", "control-tc-", "--rounds", "1", "--window", "50", "--json", path(&file)];
    let out = bench(&rows);
    let found = json(&file);
    let flooded = |row: &&Value| row["device"].as_str().is_some_and(|device| device.contains(" under "));
    let array = |key: &str| found[key].as_array().cloned().unwrap_or_default();
    let measured =
        array("series").iter().filter(flooded).filter(|s| s["rounds"][0].as_f64() > Some(0.0)).count();
    assert_eq!(measured, 5, "{found}\n{}", text(&out.stderr));
    let named = |device: &&Value| device["name"].as_str().is_some_and(|name| name.contains(" under "));
    let floods: Vec<Value> =
        array("devices").iter().filter(named).map(|device| device["detail"].clone()).collect();
    let runs = |flood: &Value| {
        flood.as_str().is_some_and(|text| text.starts_with("flood ") && text != "flood 0.00 Mpps")
    };
    assert!(floods.len() == 5 && floods.iter().all(runs), "{floods:?}");
}

#[test]
fn an_interrupted_run_keeps_the_finished_rounds() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.json");
    let reports = ["--dut", "bridge", "--rounds", "1000", "--json", path(&file)];
    let mut run = Command::new(LANYARD);
    run.arg("bench").args(small(&reports)).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().expect("run");
    let start = Instant::now();
    while !file.exists() && run.try_wait().expect("a child").is_none() {
        assert!(start.elapsed() < PATIENCE, "no round within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    // If the run was refused, it has ended already, and the assertions below print its output.
    let _ = kill(Pid::from_raw(run.id() as i32), Signal::SIGINT);
    let out = run.wait_with_output().expect("its end");
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("interrupted"), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("INCOMPLETE: interrupted"), "{}", text(&out.stdout));
    let found = json(&file);
    assert_eq!(found["incomplete"], "interrupted");
    assert!(found["series"][0]["rounds"].as_array().is_some_and(|r| !r.is_empty()), "{found}");
}

/// A link that goes down after the first round ends the run: the report names the reason and contains the
/// round.
#[test]
fn a_link_that_goes_down_is_named_and_the_rest_kept() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.json");
    let up = format!(
        "ip link add br9 type bridge && for p in $PORTS; do ip link set $p master br9; done && ip link set br9 up &&
         (for n in $(seq 6000); do test -e {} && break; sleep 0.02; done; ip link set p1 down) >/dev/null 2>&1 &",
        file.display()
    );
    let out =
        bench(&small(&["--dut-up", &up, "--dut-name", "mine", "--rounds", "1000", "--json", path(&file)]));
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stdout));
    let printed = text(&out.stderr);
    assert!(printed.contains("no device is left; the last was mine") && printed.contains("rx1"), "{printed}");
    let found = json(&file);
    assert!(found["devices"][0]["broken"].as_str().is_some_and(|why| why.contains("rx1")), "{found}");
    assert!(found["series"][0]["rounds"].as_array().is_some_and(|r| !r.is_empty()), "{found}");
}

/// `--ports` measures any device between two netdevs: here two veth pairs, and a bridge between their other
/// ends.
#[test]
fn ports_that_are_given_are_measured() {
    let Some(_alone) = alone() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.json");
    let script = format!(
        "set -e
         for n in 0 1; do
             ip link add t$n type veth peer name q$n
             ip link set t$n up; ip link set q$n up; ethtool -K q$n gro on
         done
         {LANYARD} bench {} --ports t0,t1 --dut-name mine --json {} \\
             --dut-up 'ip link add br9 type bridge; ip link set q0 master br9; ip link set q1 master br9; ip link set br9 up' \\
             --dut-down 'ip link del br9; ip link show > {}'",
        small(&["--rounds", "1"]).join(" "),
        file.display(),
        dir.path().join("after").display()
    );
    let out = Command::new("unshare").args(["--net", "sh", "-c", &script]).output().expect("run");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let found = json(&file);
    assert_eq!(found["series"][0]["device"], "mine");
    assert!(found["series"][0]["rounds"][0].as_f64().is_some_and(|rate| rate > 1000.0), "{found}");
    let after = std::fs::read_to_string(dir.path().join("after")).expect("--dut-down was run");
    assert!(!after.contains("br9") && after.contains("t0"), "{after}");
}

#[test]
fn an_impossible_measurement_is_refused_with_its_reason() {
    let Some(_alone) = alone() else { return };
    let check = |arguments: &[&str], why: &str| {
        let out = bench(arguments);
        assert_eq!(out.status.code(), Some(1), "{arguments:?}: {}", text(&out.stdout));
        let printed = text(&out.stderr);
        assert!(printed.starts_with("lanyard: ") && printed.contains(why), "{arguments:?}: {printed}");
    };
    check(&["rfc2544", "--ports", "no-such-a,no-such-b"], "no device no-such-a");
    check(&["rfc2889", "--dut", "brigde"], "no device `brigde`");
    check(&["overload", "--json", "/no/such/dir/a.json"], "cannot write /no/such/dir/a.json");
    check(&["rfc2544", "--dut-up", "false"], "--dut-up");
    check(&["compare", "/no/such.json", "/no/such.json"], "/no/such.json");
}

#[test]
fn a_run_without_privileges_is_refused_with_a_message() {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(LANYARD);
    command.args(["bench", "rfc2544"]).stdin(Stdio::null());
    if nix::unistd::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    match command.output() {
        Ok(out) => {
            assert_eq!(out.status.code(), Some(1));
            assert!(text(&out.stderr).starts_with("lanyard: cannot measure here: "), "{}", text(&out.stderr));
        }
        // Another user may not be able to read the build directory.
        Err(why) => println!("skipped: {why}"),
    }
}
