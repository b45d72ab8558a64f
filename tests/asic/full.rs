//! Tables that are full: the kernel forwards for entries that do not fit, with a message, and they move into the chip when there
//! is room.

use crate::harness::daemon::lanyard;
use crate::harness::{wait_for, wait_until};
use crate::rig::Rig;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const ROUTER: &str = "hostname r1\ninterface swp1\n no switchport\n ip address 10.0.1.254 255.255.255.0\n\
    interface swp2\n no switchport\n ip address 10.0.2.254 255.255.255.0\nip routing\n";

/// More than the 1,024 slots of the appliance's table.
const ROUTES: u32 = 1500;

fn prefix(number: u32) -> String {
    format!("10.{}.{}.0/24", 100 + number / 250, number % 250)
}

fn offload_of(routes: &Value, wanted: &str) -> Vec<String> {
    let is = |row: &&Value| row["offload"] == wanted && row["protocol"] != "local";
    routes["routes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(is)
        .map(|row| row["prefix"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn routes_that_do_not_fit_are_forwarded_by_the_kernel() {
    crate::check(|| {
        let rig = Rig::new(2, ROUTER);
        rig.hosts[0]
            .ip("address flush dev eth0\naddress add 10.0.1.1/24 dev eth0\nroute add default via 10.0.1.254");
        rig.hosts[1]
            .ip("address flush dev eth0\naddress add 10.0.2.2/24 dev eth0\nroute add default via 10.0.2.254");
        rig.reaches(1, "10.0.2.2");
        let batch: String =
            (0..ROUTES).map(|n| format!("route add {} via 10.0.2.2 proto 99\n", prefix(n))).collect();
        rig.net.ip(&batch);
        let ours = |list: &[String]| list.iter().filter(|prefix| prefix.starts_with("10.10")).count();
        let routes = wait_for("every route to be placed", || {
            let routes = rig.show("show ip route");
            let placed = ours(&offload_of(&routes, "offloaded")) + ours(&offload_of(&routes, "trapped"));
            (placed == ROUTES as usize).then_some(routes)
        });
        let (inside, outside) = (offload_of(&routes, "offloaded"), offload_of(&routes, "trapped"));
        assert!(ours(&inside) > 900 && ours(&outside) > 400, "{} {}", inside.len(), outside.len());
        wait_for("the alarm", || {
            rig.printed().contains("%RESOURCE-4-THRESHOLD: table tcam/routes").then_some(())
        });
        // A host answers behind a route that is in the chip, and behind a hidden route.
        for list in [&inside, &outside] {
            let prefix = list.iter().find(|prefix| prefix.starts_with("10.10")).unwrap();
            let address = prefix.replace(".0/24", ".7");
            rig.hosts[1].ip(&format!("address add {address}/32 dev lo"));
            rig.reaches(1, &address);
            assert!(rig.on_host(1, &format!("ping -n -q -i 0.01 -c 50 -W 2 {address}")).status.success());
        }
        let hidden = || rig.show("show platform")["chip"]["hidden_routes"].as_u64().unwrap();
        assert_eq!(hidden() as usize, ours(&outside));
        // When routes of the chip are removed, hidden routes move into the chip by themselves.
        let leave: String = inside
            .iter()
            .filter(|prefix| prefix.starts_with("10.10"))
            .map(|prefix| format!("route delete {prefix} proto 99\n"))
            .collect();
        rig.net.ip(&leave);
        wait_for("all routes to be in the chip", || (hidden() == 0).then_some(()));
        wait_for("the end of the alarm", || {
            rig.exec(&["show platform resources"]);
            rig.printed().contains("%RESOURCE-5-CLEARED: table tcam/routes").then_some(())
        });
    });
}

/// The lab `black-hole.clab.yml`: without feedback about the chip packets are lost; with it the kernel forwards them.
#[test]
fn the_black_hole_is_there_without_feedback_and_gone_with_it() {
    crate::check(|| {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../labs/black-hole.clab.yml");
        let file = file.to_str().unwrap();
        let down = Down(file);
        lanyard(None, &["lab", "up", "--quiet", file]).expect("the lab comes up");
        let ping = || {
            lanyard(
                None,
                &[
                    "lab",
                    "exec",
                    file,
                    "h1",
                    "--",
                    "ping",
                    "-n",
                    "-c",
                    "3",
                    "-i",
                    "0.2",
                    "-W",
                    "1",
                    "203.0.113.1",
                ],
            )
        };
        let routes = || {
            lanyard(
                None,
                &[
                    "lab",
                    "exec",
                    file,
                    "r1",
                    "--",
                    "lanyard",
                    "cli",
                    "-c",
                    "show ip route 203.0.113.1 | json",
                ],
            )
        };
        assert!(ping().is_err(), "{:?}", routes());
        // The kernel of r1 has the route, and no message reports that the chip does not have it.
        assert!(
            routes().is_ok_and(|text| text.contains("203.0.113.0/24") && text.contains("offloaded")),
            "{:?}",
            routes()
        );
        let configure = [
            "lab",
            "exec",
            file,
            "r1",
            "--",
            "lanyard",
            "cli",
            "-c",
            "configure terminal",
            "-c",
            "platform feedback",
        ];
        lanyard(None, &configure).expect("taken");
        let whole = wait_until(Duration::from_secs(30), || ping().ok());
        assert!(whole.is_some(), "{:?}", routes());
        assert!(routes().is_ok_and(|text| text.contains("trapped")), "{:?}", routes());
        drop(down);
    });
}

/// Takes a lab down.
struct Down<'a>(&'a str);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let _ = Command::new(crate::harness::daemon::LANYARD).args(["lab", "down", self.0]).output();
    }
}

#[test]
fn sizes_and_thresholds_of_tables_are_configured() {
    crate::check(|| {
        let mut rig = Rig::new(
            2,
            &format!(
                "platform resource tcam/routes size 1536\nplatform resource tcam/rules size 512\n\
                 platform resource tcam/routes threshold 50 20\n{ROUTER}"
            ),
        );
        let row = |rig: &Rig, name: &str, key: &str| {
            let view = rig.show("show platform resources");
            let tables = view["tables"].as_array().unwrap();
            tables.iter().find(|row| row["name"] == name).unwrap()[key].as_u64().unwrap()
        };
        // The table that shrinks has made room for the one that grows.
        assert_eq!((row(&rig, "tcam/routes", "size"), row(&rig, "tcam/rules", "size")), (1536, 512));
        // All routes fit, and the alarm comes at the configured threshold.
        rig.net.ip("neighbour replace 10.0.2.2 lladdr 02:00:00:00:00:22 dev swp2 nud permanent");
        let batch: String =
            (0..900).map(|n| format!("route add {} via 10.0.2.2 proto 99\n", prefix(n))).collect();
        rig.net.ip(&batch);
        wait_for("the routes in the chip", || (row(&rig, "tcam/routes", "used") >= 900).then_some(()));
        wait_for("the alarm", || {
            rig.exec(&["show platform resources"]);
            rig.printed().contains("%RESOURCE-4-THRESHOLD: table tcam/routes").then_some(())
        });
        // A size below the number of entries in use is refused, and a refused size changes nothing.
        let refused = rig.configure("platform resource tcam/routes size 512").expect_err("900 are in use");
        assert!(refused.contains("tcam/routes"), "{refused}");
        let refused = rig.configure("platform resource tcam/routes size 2048").expect_err("no room");
        assert!(refused.contains("tcam/routes") && refused.contains("room for 1536"), "{refused}");
        assert_eq!(row(&rig, "tcam/routes", "size"), 1536);
        let refused = rig.configure("platform resource tcam/nothing size 128").expect_err("there is none");
        assert!(refused.contains("tcam/nothing is no table of this chip: it has "), "{refused}");
        let refused = rig.configure("platform resource tcam/routes threshold 50 50").expect_err("equal");
        assert!(refused.contains("cleared below a smaller value"), "{refused}");
        // A daemon that is started again finds the sizes.
        rig.kill_daemon();
        rig.start();
        assert_eq!((row(&rig, "tcam/routes", "size"), row(&rig, "tcam/rules", "size")), (1536, 512));
        let running = rig.exec(&["show running-config"]);
        assert!(
            running.contains("platform resource tcam/routes size 1536")
                && running.contains("platform resource tcam/routes threshold 50 20"),
            "{running}"
        );
        rig.configure("no platform resource tcam/routes size\nno platform resource tcam/rules size")
            .expect("900 fit");
        assert_eq!((row(&rig, "tcam/routes", "size"), row(&rig, "tcam/rules", "size")), (1024, 1024));
    });
}

#[test]
fn with_policy_sync_the_command_is_refused() {
    crate::check(|| {
        let tiny = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../labs/black-hole/tiny.toml");
        let rig = Rig::on(tiny, 2, &format!("platform policy lpm/ipv4 sync\n{ROUTER}"));
        let route = |n: u32| format!("ip route 10.9.{n}.0 255.255.255.0 10.0.2.2");
        let mut taken = 0;
        let refused = (0..10).find_map(|n| match rig.configure(&route(n)) {
            Ok(_) => {
                taken += 1;
                None
            }
            Err(refused) => Some((n, refused)),
        });
        let (n, refused) = refused.expect("the table has eight entries");
        assert!(refused.contains(&format!("no room for the route to 10.9.{n}.0/24")), "{refused}");
        assert!((4..8).contains(&taken), "{taken} routes were taken");
        let running = rig.exec(&["show running-config"]);
        assert!(!running.contains(&format!("10.9.{n}.0")) && running.contains("10.9.0.0"), "{running}");
        let kernel = rig.show("show ip route");
        assert!(!kernel.to_string().contains(&format!("10.9.{n}.0/24")), "{kernel}");
        // The removal of one route makes room: the command that was refused is now accepted.
        rig.configure(&format!("no {}", route(0))).expect("taken");
        rig.configure(&route(n)).expect("there is room");
    });
}
