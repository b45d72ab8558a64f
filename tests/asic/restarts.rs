//! Ends of the daemon and of the chip: the forwarder afterwards, and the messages about it.

use crate::bridging::BRIDGE;
use crate::harness::{wait_for, wait_until};
use crate::rig::Rig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Has a host ping an address 1,000 times while `meanwhile` runs; answers how many answers came.
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

/// Ends when dropped what it has stopped.
struct Stopped(Pid);

impl Stopped {
    fn go_on(&self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}
impl Drop for Stopped {
    fn drop(&mut self) {
        self.go_on();
    }
}

#[test]
fn a_chip_that_has_hung_forgets_what_was_removed_meanwhile() {
    crate::check(|| {
        let rig = Rig::new(2, BRIDGE);
        rig.reaches(1, "10.0.0.2");
        let address = rig.on_host(2, "cat /sys/class/net/eth0/address").stdout;
        let address = String::from_utf8_lossy(&address).trim().to_owned();
        let entry = format!("mac address-table static {address} vlan 10 drop");
        rig.configure(&entry).expect("a blackhole");
        let pings = |rig: &Rig| rig.on_host(1, "ping -n -c 1 -W 1 10.0.0.2").status.success();
        wait_for("the chip to drop", || (!pings(&rig)).then_some(()));
        let chip = Stopped(Pid::from_raw(rig.chip()));
        kill(chip.0, Signal::SIGSTOP).expect("the chip is there");
        wait_for("the report", || rig.printed().contains("%PLANE-2-CHIPDOWN").then_some(()));
        rig.configure(&format!("no {entry}")).expect("the end of the blackhole");
        rig.reaches(1, "10.0.0.2");
        chip.go_on();
        wait_for("the chip again", || rig.printed().contains("%PLANE-5-CHIPUP").then_some(()));
        rig.reaches(1, "10.0.0.2");
    });
}
