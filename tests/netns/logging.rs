//! The log: `logging rate-limit`, and `logging persistent` over deaths of the daemon, on disks that are full, read-only or slow.

use crate::harness::daemon::{Daemon, LANYARD};
use crate::harness::{Bed, Plane, scenarios, wait_for};
use nix::sys::signal::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

scenarios! {
    messages_suppressed_by_a_rate_limit_are_counted: soft;
    lines_outlive_the_daemon: soft;
    a_full_and_a_read_only_disk: soft;
    a_slow_disk_delays_nothing: soft;
}

/// Makes the switch log one message, `%SYS-5-CONFIG_I`.
fn message(bed: &Bed, number: usize) {
    bed.exec(&["configure terminal", "interface p1", &format!("description number {number}"), "end"]);
}

fn number(value: &serde_json::Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn messages_suppressed_by_a_rate_limit_are_counted(plane: Plane) {
    let bed = Bed::new(plane, 1, "interface p1\n switchport\n");
    bed.configure("logging rate-limit 2 except errors\nlogging rate-limit console 1");
    bed.exec(&["clear logging"]);
    let sent = 40;
    for n in 0..sent {
        message(&bed, n);
    }
    let view = || bed.show("show logging");
    // Every message is in the buffer or counted, and every count is reported.
    let of = |view: &serde_json::Value, mnemonic: &str| -> Vec<String> {
        let list = view["messages"].as_array().expect("messages").iter();
        let is = |message: &&serde_json::Value| message["mnemonic"] == mnemonic;
        list.filter(is).map(|message| message["text"].as_str().expect("text").to_owned()).collect()
    };
    let sum = |view: &serde_json::Value, name: &str| -> u64 {
        let end = format!(" messages were suppressed by logging {name}");
        let counts = of(view, "LOGRATE");
        counts
            .iter()
            .filter_map(|text| text.strip_suffix(&end))
            .map(|n| n.parse::<u64>().expect("a number"))
            .sum()
    };
    let last = wait_for("the reports", || {
        let view = view();
        let suppressed = number(&view["rate_limit"]["suppressed"]);
        let console = number(&view["console_rate_limit"]["suppressed"]);
        let done = sum(&view, "rate-limit") == suppressed && sum(&view, "rate-limit console") == console;
        (done && suppressed > 0).then_some(view)
    });
    let suppressed = number(&last["rate_limit"]["suppressed"]);
    assert_eq!(of(&last, "CONFIG_I").len() as u64 + suppressed, sent as u64);
    assert_eq!((&last["rate_limit"]["per_s"], &last["rate_limit"]["except"]), (&2.into(), &3.into()));
    let text = bed.exec(&["show logging"]);
    let line = format!(
        "Rate limit: 2 messages per second, except severities 0 to 3; {suppressed} messages suppressed"
    );
    assert!(text.contains(&line), "{text}");
    bed.configure("no logging rate-limit\nno logging rate-limit console");
    for n in 0..20 {
        message(&bed, n);
    }
    assert_eq!(number(&view()["rate_limit"]["suppressed"]), suppressed, "no limit, no loss");
}

fn lines_outlive_the_daemon(plane: Plane) {
    const KEPT: &str = "interface p1\n switchport\nlogging persistent size 65536 filesize 4096\n";
    let bed = Bed::new(plane, 1, KEPT);
    let lines = || -> Vec<String> {
        let view = bed.show("show logging persistent");
        let list = view["lines"].as_array().expect("lines").iter();
        list.map(|line| line.as_str().expect("text").to_owned()).collect()
    };
    let written = || number(&bed.show("show logging persistent")["written"]);
    // Messages of the start, before the configuration, are kept as well.
    wait_for("the first lines", || (written() > 0).then_some(()));
    let before = lines();
    message(&bed, 1);
    wait_for("the line", || lines().iter().any(|line| line.contains("CONFIG_I")).then_some(()));
    bed.end_daemon(Signal::SIGKILL);
    bed.start();
    // The messages of the killed daemon are kept, in order, and the lines of the new one follow them.
    let after = wait_for("the lines of both", || {
        let lines = lines();
        (written() > 0 && lines.len() > before.len() + 1).then_some(lines)
    });
    assert_eq!(after[..before.len()], before[..]);
    assert!(after[before.len()..].iter().any(|line| line.contains("CONFIG_I")), "{after:?}");
    for n in 0..60 {
        message(&bed, n);
    }
    let view = wait_for("files", || {
        let view = bed.show("show logging persistent");
        (number(&view["files"]) > 1).then_some(view)
    });
    assert!(number(&view["bytes"]) <= 65_536);
    assert_eq!(
        (&view["dropped"], &view["failed"], &view["error"]),
        (&0.into(), &0.into(), &serde_json::Value::Null)
    );
    let directory = PathBuf::from(view["directory"].as_str().expect("a directory"));
    let lengths = fs::read_dir(directory)
        .expect("listed")
        .map(|e| e.expect("an entry").metadata().expect("a file").len());
    assert!(lengths.into_iter().all(|length| length <= 4096));
}

/// A daemon whose log is on a file system of 64 KiB.
fn a_full_and_a_read_only_disk(plane: Plane) {
    let bed = Bed::without_switch(plane, 1, 1500);
    let config = bed.file("startup-config");
    fs::write(&config, "interface p1\n switchport\nlogging persistent size 32768 filesize 8192\n")
        .expect("written");
    let disk = format!("/var/lib/lanyard/{}/log", bed.instance);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c"]);
    command.arg("mkdir -p \"$1\" && mount -t tmpfs -o size=64k tmpfs \"$1\" && shift && exec \"$@\"");
    command.arg("sh").arg(&disk).arg(LANYARD);
    command.args(["run", "--instance", &bed.instance, "--plane", plane.name(), "--config"]).arg(&config);
    bed.adopt(Daemon::spawn_command(&bed.net, &mut command, &bed.file("log")));
    let pid = bed.daemon.borrow().as_ref().expect("a daemon").pid();
    let inside = |script: &str| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{pid}/ns/mnt")).args(["sh", "-c", script, "sh", &disk]);
        let output = command.output().expect("nsenter runs");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let view = || bed.show("show logging persistent");
    wait_for("the first lines", || (number(&view()["written"]) > 0).then_some(()));
    let fails = |reason: &str| {
        let (failed, mut n) = (number(&view()["failed"]), 0);
        let error = wait_for("the error", || {
            n += 1;
            message(&bed, n);
            let view = view();
            (number(&view["failed"]) > failed).then(|| view["error"].as_str().map(str::to_owned)).flatten()
        });
        assert!(error.contains(reason), "{error}");
        let line = format!("SYS-3-LOGFILE: logging persistent: {disk}: {reason}");
        wait_for("the report", || bed.exec(&["show logging"]).contains(&line).then_some(()));
    };
    let works = |reports: usize| {
        let (written, mut n) = (number(&view()["written"]), 0);
        wait_for("lines", || {
            n += 1;
            message(&bed, n);
            let view = view();
            (number(&view["written"]) > written && view["error"].is_null()).then_some(())
        });
        let log = || bed.exec(&["show logging"]);
        wait_for("the report", || {
            (log().matches("files are written again").count() == reports).then_some(())
        });
    };
    inside("dd if=/dev/zero of=\"$1/filler\" bs=1k count=64 2>/dev/null; test -s \"$1/filler\"");
    fails("No space left on device");
    inside("rm \"$1/filler\"");
    works(1);
    // The kernel does not make a file system read-only while a file on it is open for writing. So cover it with a read-only
    // mount, and change the size of the files, so that the daemon opens a file again.
    inside("mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"");
    bed.configure("logging persistent size 32768 filesize 4096");
    fails("Read-only file system");
    inside("umount \"$1\"");
    works(2);
    // No line was written in part only.
    let lines = view()["lines"].clone();
    let whole = |line: &serde_json::Value| {
        line.as_str().is_some_and(|line| line.contains("Z: %") && line.contains(": "))
    };
    assert!(lines.as_array().expect("lines").iter().all(whole), "{lines}");
}

/// While the disk takes five minutes for a line, commands are answered.
fn a_slow_disk_delays_nothing(plane: Plane) {
    let bed = Bed::without_switch(plane, 1, 1500);
    let config = bed.file("startup-config");
    fs::write(&config, "interface p1\n switchport\nlogging persistent\n").expect("written");
    let faults = bed.file("faults");
    fs::create_dir(&faults).expect("made");
    fs::write(faults.join("log"), "300000").expect("written");
    let mut command = Command::new(LANYARD);
    command.args(["run", "--instance", &bed.instance, "--plane", plane.name(), "--config"]).arg(&config);
    bed.adopt(Daemon::spawn_command(&bed.net, command.env("LANYARD_TEST_FAULTS", &faults), &bed.file("log")));
    wait_for("a wait for the disk", || faults.join("log.began").exists().then_some(()));
    let began = Instant::now();
    for n in 0..20 {
        message(&bed, n);
    }
    bed.configure("logging persistent size 8388608");
    bed.configure("no logging persistent");
    assert!(
        began.elapsed() < Duration::from_secs(200),
        "{:?}: commands waited for the disk",
        began.elapsed()
    );
    fs::remove_file(faults.join("log")).expect("removed");
}
