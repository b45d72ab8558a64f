//! Ends of the daemon and of the chip: the forwarder afterwards, and the messages about it.

use crate::bridging::BRIDGE;
use crate::harness::{wait_for, wait_until};
use crate::rig::Rig;
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
