//! Access lists on the chip: they judge, they survive the daemon and the chip, and one that does not fit is refused, or judges in
//! software.

use crate::bridging::BRIDGE;
use crate::harness::wait_for;
use crate::rig::Rig;

/// Denies ICMP packets that `swp1` receives for 10.0.0.2, and nothing else.
const DENY: &str = "ip access-list extended web\n 10 deny icmp any host 10.0.0.2\n 20 permit ip any any\n\
    interface swp1\n ip access-group web in";

fn pings(rig: &Rig) -> bool {
    rig.on_host(1, "ping -n -c 2 -i 0.2 -W 1 10.0.0.2").status.success()
}

/// How often rule 10 has decided.
fn matches(rig: &Rig) -> u64 {
    let view = rig.show("show access-lists web");
    let rules = view["access_lists"][0]["rules"].as_array().unwrap_or_else(|| panic!("{view}"));
    rules.iter().find(|rule| rule["seq"] == 10).and_then(|rule| rule["matches"].as_u64()).unwrap()
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
        // The chip itself holds the list: it judges while no daemon runs, and after a warm boot.
        rig.kill_daemon();
        assert!(!pings(&rig), "without the daemon");
        rig.start();
        assert!(!pings(&rig), "after a warm boot");
        let before = matches(&rig);
        assert!(!pings(&rig) && matches(&rig) >= before + 2, "its counts go on");
        rig.exec(&["clear access-list counters"]);
        assert_eq!(matches(&rig), 0);
        // The software plane has the list as well.
        rig.kill_chip();
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
        // Two rules with a pair of port ranges each take 900 entries each, in a table of 1,024 slots.
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

#[test]
fn a_list_that_does_not_fit_judges_in_software() {
    crate::check(|| {
        // Two rules with a pair of port ranges each take 900 entries each, in a table of 1,024 slots.
        let rule =
            |n: u32, protocol: &str| format!(" {n} permit {protocol} any range 1 65534 any range 1 65534");
        let long = format!("ip access-list extended web\n{}\n{}", rule(5, "tcp"), rule(6, "udp"));
        let policy = "platform policy tcam/rules hybrid\n";
        let third = "interface swp3\n switchport access vlan 10\n";
        let mut rig = Rig::new(3, &format!("{BRIDGE}{third}{policy}{DENY}\n"));
        wait_for("the list to decide", || (!pings(&rig) && matches(&rig) > 0).then_some(()));
        let diverted = |rig: &Rig| rig.show("show platform")["chip"]["diverted_lists"].clone();
        assert_eq!(diverted(&rig), serde_json::json!([]));
        rig.configure(&long).expect("taken, and judged in software");
        assert_eq!(diverted(&rig), serde_json::json!(["access list web"]));
        wait_for("the message", || {
            rig.printed().contains("%RESOURCE-4-DIVERTED: access list web does not fit").then_some(())
        });
        let view = rig.show("show platform resources");
        let tables = view["tables"].as_array().unwrap();
        let row = tables.iter().find(|row| row["name"] == "tcam/rules").unwrap();
        assert_eq!((&row["used"], &row["policy"]), (&serde_json::json!(0), &serde_json::json!("hybrid")));
        // The list judges the frames that its port receives, and no others; its counts continue.
        let before = matches(&rig);
        assert!(!pings(&rig), "the list denies it");
        assert!(matches(&rig) >= before + 2, "{}", rig.exec(&["show access-lists"]));
        rig.reaches(1, "10.0.0.3");
        rig.reaches(2, "10.0.0.3");
        let drops = rig.show("show interfaces counters drops").to_string();
        assert!(drops.contains("acl_port_in"), "{drops}");
        let sent = rig.on_host(1, "ping -n -c 50 -i 0.002 -s 1400 -W 2 10.0.0.3");
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stdout));
        rig.exec(&["write memory"]);
        // Without the daemon no software judges, so no frame of the list's port passes. Ports without the list forward as before.
        rig.kill_daemon();
        assert!(!rig.on_host(1, "ping -n -c 2 -i 0.2 -W 1 10.0.0.3").status.success(), "unjudged");
        rig.reaches(2, "10.0.0.3");
        rig.start();
        rig.reaches(1, "10.0.0.3");
        assert_eq!(diverted(&rig), serde_json::json!(["access list web"]), "after a warm boot");
        assert!(!pings(&rig), "after a warm boot");
        // The list moves into the chip by itself when there is room.
        rig.configure("ip access-list extended web\n no 6").expect("taken");
        wait_for("the list in the chip", || (diverted(&rig) == serde_json::json!([])).then_some(()));
        wait_for("the message", || {
            rig.printed().contains("%RESOURCE-5-OFFLOADED: access list web is in the chip").then_some(())
        });
        assert!(!pings(&rig), "in the chip");
        rig.reaches(1, "10.0.0.3");
    });
}
