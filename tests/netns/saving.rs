//! `write memory` on a disk that fails: the old startup-config is intact, and the error is shown.

use crate::harness::daemon::{Daemon, LANYARD, cli};
use crate::harness::{Bed, Plane, scenarios, wait_for};
use std::fs;
use std::process::Command;

scenarios! {
    killed_while_saving: soft;
    full_and_read_only: soft;
}

const OLD: &str = "hostname old\ninterface p1\n switchport\n";

/// The names of files in the directory of the startup-config that belong to it.
fn files(bed: &Bed) -> Vec<String> {
    let directory = bed.config_file().parent().expect("a directory").to_owned();
    let names = fs::read_dir(directory).expect("listed").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name.contains("startup-config"));
    names.sort();
    names
}

/// A daemon that is killed before it writes the new file, or before it renames a file, leaves the old file, and the next daemon
/// starts with it.
fn killed_while_saving(plane: Plane) {
    let bed = Bed::without_switch(plane, 1, 1500);
    fs::write(bed.config_file(), OLD).expect("written");
    let faults = bed.file("faults");
    fs::create_dir(&faults).expect("made");
    let start = || {
        let mut command = Command::new(LANYARD);
        command.args(["run", "--instance", &bed.instance, "--plane", plane.name()]);
        command.arg("--config").arg(bed.config_file()).env("LANYARD_TEST_FAULTS", &faults);
        bed.adopt(Daemon::spawn_command(&bed.net, &mut command, &bed.file("log")));
    };
    for (place, fault) in [("write", "kill"), ("rename", "kill")] {
        start();
        bed.configure("hostname new");
        fs::write(faults.join(place), fault).expect("written");
        cli(&bed.instance, &["write memory"]).expect_err("the daemon is killed");
        let status = bed.daemon.borrow_mut().take().expect("a daemon").end();
        assert!(!status.success(), "{place}: {status}");
        assert_eq!(fs::read_to_string(bed.config_file()).expect("read"), OLD, "{place}");
        fs::remove_file(faults.join(place)).expect("removed");
    }
    start();
    assert_eq!(bed.show("show version")["hostname"], "old");
    bed.configure("hostname new");
    bed.exec(&["write memory"]);
    assert!(fs::read_to_string(bed.config_file()).expect("read").contains("hostname new"));
    let previous = bed.file("startup-config.previous");
    assert_eq!(fs::read_to_string(previous).expect("read"), OLD);
    assert!(files(&bed).contains(&"startup-config".to_owned()));
}

/// A real file system of 64 KiB without room, and then read-only.
fn full_and_read_only(plane: Plane) {
    let bed = Bed::without_switch(plane, 1, 1500);
    let disk = bed.file("disk");
    fs::create_dir(&disk).expect("made");
    let config = disk.join("startup-config");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c"]);
    command
        .arg("mount -t tmpfs -o size=64k tmpfs \"$1\" && printf %s \"$2\" >\"$3\" && shift 3 && exec \"$@\"");
    command.arg("sh").arg(&disk).arg(OLD).arg(&config).arg(LANYARD);
    command.args(["run", "--instance", &bed.instance, "--plane", plane.name(), "--config"]).arg(&config);
    bed.adopt(Daemon::spawn_command(&bed.net, &mut command, &bed.file("log")));
    let pid = bed.daemon.borrow().as_ref().expect("a daemon").pid();
    // Runs a command in the mount namespace of the daemon.
    let inside = |script: &str| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{pid}/ns/mnt")).args(["sh", "-c", script, "sh"]).arg(&disk);
        let output = command.output().expect("nsenter runs");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    bed.configure("hostname new");
    inside("dd if=/dev/zero of=\"$1/filler\" bs=1k count=64 2>/dev/null; test -s \"$1/filler\"");
    let refused = |reason: &str| {
        let error = cli(&bed.instance, &["write memory"]).expect_err("refused");
        assert!(error.contains(reason), "{error}");
        assert_eq!(inside("cat \"$1/startup-config\""), OLD);
        assert_eq!(inside("ls -A \"$1\" | grep -c startup-config"), "1\n", "nothing is left behind");
    };
    refused("No space left on device");
    inside("rm \"$1/filler\" && mount -o remount,ro \"$1\"");
    refused("Read-only file system");
    inside("mount -o remount,rw \"$1\"");
    wait_for("the startup-config to be saved", || cli(&bed.instance, &["write memory"]).ok());
    assert!(inside("cat \"$1/startup-config\"").contains("hostname new"));
    assert_eq!(inside("cat \"$1/startup-config.previous\""), OLD);
}
