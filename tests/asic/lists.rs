//! Access lists on the chip: they judge, they survive the daemon and the chip, and one that does not fit is refused.

use crate::bridging::BRIDGE;
use crate::harness::wait_for;
use crate::rig::Rig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Denies what host 1 asks of 10.0.0.2, and nothing else.
const DENY: &str = "ip access-list extended web\n 10 deny icmp any host 10.0.0.2\n 20 permit ip any any\n\
    interface swp1\n ip access-group web in";

fn pings(rig: &Rig) -> bool {
    rig.on_host(1, "ping -n -c 2 -i 0.2 -W 1 10.0.0.2").status.success()
}

/// How often rule 10 has decided.
fn matches(rig: &Rig) -> u64 {
    let view = rig.show("show access-lists web");
    view["access_lists"][0]["rules"][0]["matches"].as_u64().unwrap_or_else(|| panic!("{view}"))
}

#[test]
fn a_list_judges_frames_in_the_chip() {
    crate::check(|| {
        let mut rig = Rig::new(2, &format!("{BRIDGE}{DENY}\n"));
        wait_for("the list to decide", || (!pings(&rig) && matches(&rig) > 0).then_some(()));
        assert!(!pings(&rig), "the list denies it");
        assert!(matches(&rig) >= 2, "{}", rig.exec(&["show access-lists"]));
        let drops = rig.show("show interfaces counters drops").to_string();
        assert!(drops.contains("acl_port_in"), "{drops}");
        // The list is the chip's: it judges while no daemon runs, and after a warm boot.
        rig.kill_daemon();
        assert!(!pings(&rig), "without the daemon");
        rig.start();
        assert!(!pings(&rig), "after a warm boot");
        let before = matches(&rig);
        assert!(!pings(&rig) && matches(&rig) >= before + 2, "its counts go on");
        rig.exec(&["clear access-list counters"]);
        assert_eq!(matches(&rig), 0);
        // The software plane has it, too.
        kill(Pid::from_raw(rig.chip()), Signal::SIGKILL).expect("the chip is there");
        wait_for("the switch to say so", || rig.printed().contains("%PLANE-2-CHIPDOWN").then_some(()));
        wait_for("the list in the software plane", || (!pings(&rig) && matches(&rig) > 0).then_some(()));
        rig.configure("interface swp1\nno ip access-group web in").expect("taken");
        rig.reaches(1, "10.0.0.2");
    });
}

#[test]
fn a_list_that_does_not_fit_is_refused_whole() {
    crate::check(|| {
        let rig = Rig::new(2, BRIDGE);
        rig.configure(DENY).expect("it fits");
        let used = || {
            let view = rig.show("show platform resources");
            let tables = view["tables"].as_array().unwrap();
            tables.iter().find(|row| row["name"] == "tcam/rules").unwrap()["used"].as_u64().unwrap()
        };
        wait_for("the list's entries", || (used() == 3).then_some(()));
        // Two pairs of ranges, 900 entries each, in a table of 1,024 slots.
        let rule =
            |n: u32, protocol: &str| format!("{n} permit {protocol} any range 1 65534 any range 1 65534");
        let list = format!("ip access-list extended web\n{}\n{}", rule(5, "tcp"), rule(6, "udp"));
        let refused = rig.configure(&list).expect_err("1,805 entries with those of the old rules");
        assert!(
            refused.contains("tcam/rules") && refused.contains("access list web takes"),
            "the table and the list are named: {refused}"
        );
        assert!(!pings(&rig), "the old list judges");
        assert!(used() <= 1024, "{}", used());
        rig.configure("interface swp1\nno ip access-group web in").expect("taken");
        wait_for("no entries", || (used() == 0).then_some(()));
        rig.reaches(1, "10.0.0.2");
    });
}
