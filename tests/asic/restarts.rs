//! What forwards after the daemon or the chip has ended, and the messages about it.

use crate::bridging::BRIDGE;
use crate::harness::{wait_for, wait_until};
use crate::rig::Rig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Has a host ping an address 1,000 times while `meanwhile` runs; returns the number of answers.
pub fn answers_during(rig: &mut Rig, host: usize, address: &str, meanwhile: impl FnOnce(&mut Rig)) -> u32 {
    let mut command = Command::new("ping");
    command.args(["-n", "-q", "-i", "0.003", "-c", "1000", "-W", "2", address]).stdout(Stdio::piped());
    let ping = rig.hosts[host - 1].spawn(&mut command);
    meanwhile(rig);
    let output = ping.wait_with_output().expect("ping ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = text.split(" packets transmitted, ").nth(1).and_then(|rest| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn a_daemon_that_is_killed_leaves_the_chip_forwarding() {
    crate::check(|| {
        let mut rig = Rig::new(2, BRIDGE);
        rig.reaches(1, "10.0.0.2");
        let chip = rig.chip();
        let answers = answers_during(&mut rig, 1, "10.0.0.2", |rig| {
            rig.kill_daemon();
            rig.start();
            rig.kill_daemon();
            rig.start();
        });
        assert_eq!(answers, 1000, "frames were lost");
        assert_eq!(rig.chip(), chip, "the chip is the same process");
        assert_eq!(rig.show("show mac address-table dynamic")["total"], 2, "what it learned is there");
    });
}

#[test]
fn the_software_plane_takes_over_when_the_chip_is_killed() {
    crate::check(|| {
        let rig = Rig::new(2, BRIDGE);
        rig.reaches(1, "10.0.0.2");
        rig.kill_chip();
        rig.reaches(1, "10.0.0.2");
        assert_eq!(rig.show("show mac address-table dynamic")["total"], 2);
        // A chip that is started again is used again.
        let mut chip = rig.start_chip();
        let back =
            wait_until(Duration::from_secs(20), || rig.printed().contains("%PLANE-5-CHIPUP").then_some(()));
        if back.is_some() {
            rig.reaches(1, "10.0.0.2");
        }
        let _ = chip.kill();
        let _ = chip.wait();
        assert!(back.is_some(), "{}", rig.printed());
        let downs = || rig.printed().matches("%PLANE-2-CHIPDOWN").count();
        wait_for("the software plane again", || (downs() == 2).then_some(()));
        rig.reaches(1, "10.0.0.2");
    });
}

/// A process that is stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(process: i32) -> Self {
        kill(Pid::from_raw(process), Signal::SIGSTOP).expect("it is there");
        Self(Pid::from_raw(process))
    }
}
impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

#[test]
fn entries_removed_while_a_chip_hangs_are_absent_after_it_returns() {
    crate::check(|| {
        let rig = Rig::new(2, BRIDGE);
        rig.reaches(1, "10.0.0.2");
        let link = rig.on_host(2, "ip -o link show eth0").stdout;
        let link = String::from_utf8_lossy(&link).into_owned();
        let address = link.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
        let entry = format!("mac address-table static {} vlan 10 drop", address.expect("an address"));
        rig.configure(&entry).expect("a blackhole");
        let pings = || rig.on_host(1, "ping -n -c 1 -W 1 10.0.0.2").status.success();
        wait_for("the chip to drop", || (!pings()).then_some(()));
        let hangs = Stopped::new(rig.chip());
        wait_for("the report", || rig.printed().contains("%PLANE-2-CHIPDOWN").then_some(()));
        assert!(!pings(), "the software plane has the blackhole, too");
        rig.configure(&format!("no {entry}")).expect("the end of the blackhole");
        rig.reaches(1, "10.0.0.2");
        drop(hangs);
        wait_for("the chip again", || rig.printed().contains("%PLANE-5-CHIPUP").then_some(()));
        rig.reaches(1, "10.0.0.2");
    });
}
