//! Bridging and routing by the chip, and what the switch reports about it.

use crate::harness::wait_for;
use crate::rig::Rig;
use serde_json::Value;

/// Both hosts in one VLAN.
pub const BRIDGE: &str = "hostname sw1\nvlan 10\ninterface swp1\n switchport access vlan 10\n\
    interface swp2\n switchport access vlan 10\n";

/// Each host in a VLAN of its own, with a VLAN interface.
const ROUTER: &str = "vlan 10,20\ninterface swp1\n switchport access vlan 10\ninterface swp2\n switchport access vlan 20\n\
    interface vlan 10\n ip address 10.0.10.254 255.255.255.0\ninterface vlan 20\n ip address 10.0.20.254 255.255.255.0\n\
    ip routing\n";

fn rows<'a>(view: &'a Value, key: &str) -> &'a [Value] {
    view[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

#[test]
fn two_hosts_talk_through_the_chip() {
    crate::check(|| {
        let rig = Rig::new(2, BRIDGE);
        assert!(rig.printed().contains("sw1 ready: 2 ports, plane asic"), "{}", rig.printed());
        rig.reaches(1, "10.0.0.2");
        let table = rig.show("show mac address-table dynamic");
        let at = |port: &str| rows(&table, "entries").iter().filter(|row| row["interface"] == port).count();
        assert_eq!((at("swp1"), at("swp2")), (1, 1), "{table}");
        assert_eq!(rig.show("show platform")["plane"], "asic");
        let view = rig.show("show interfaces swp1");
        let port = &rows(&view, "interfaces")[0];
        assert_eq!((&port["hook"], &port["mac"]), (&"asic".into(), &"02:08:00:00:00:01".into()), "{port}");
        assert!(port["rx"]["frames"].as_u64().is_some_and(|frames| frames > 0), "{port}");
        // The netdevs of all eight ports and two uplinks exist, whether configured or not.
        let names = rig.net.links();
        assert_eq!(names.iter().filter(|name| name.starts_with("swp") && !name.contains('-')).count(), 10);
        // With a chip only its front-panel ports can be ports of the switch.
        rig.net.ip("link add eth7 type veth peer name eth8");
        let refused = rig.configure("interface eth7\nswitchport").expect_err("it is not on the front panel");
        assert!(refused.contains("eth7, which is not on the front panel"), "{refused}");
        rig.exec(&["clear mac address-table dynamic"]);
        assert_eq!(rig.show("show mac address-table dynamic")["total"], 0);
    });
}

#[test]
fn the_chip_routes_between_vlans() {
    crate::check(|| {
        let rig = Rig::new(2, ROUTER);
        for (host, vlan) in [(0, 10), (1, 20)] {
            rig.hosts[host].ip(&format!(
                "address flush dev eth0\naddress add 10.0.{vlan}.1/24 dev eth0\nroute add default via 10.0.{vlan}.254"
            ));
        }
        rig.reaches(1, "10.0.10.254");
        rig.reaches(1, "10.0.20.1");
        rig.reaches(2, "10.0.10.1");
        let forwarded = || {
            let view = rig.show("show interfaces counters");
            let row =
                rows(&view, "interfaces").iter().find(|row| row["interface"] == "swp1").cloned().unwrap();
            (row["forwarded"].as_u64().unwrap(), row["trapped"].as_u64().unwrap())
        };
        let before = forwarded();
        assert!(rig.on_host(1, "ping -n -q -i 0.01 -c 100 10.0.20.1").status.success());
        let after = forwarded();
        assert!(after.0 - before.0 >= 100 && after.1 - before.1 <= 8, "{before:?} {after:?}");
        let routes = rig.show("show ip route");
        let offload = |prefix: &str| {
            rows(&routes, "routes")
                .iter()
                .find(|row| row["prefix"] == prefix)
                .map(|row| row["offload"].clone())
        };
        assert_eq!(offload("10.0.20.0/24"), Some("offloaded".into()), "{routes}");
        let tables = rig.show("show platform resources");
        let used = |name: &str| {
            rows(&tables, "tables")
                .iter()
                .find(|row| row["name"] == name)
                .and_then(|row| row["used"].as_u64())
        };
        assert!(used("tcam/routes") > Some(0) && used("router/rifs") == Some(2), "{tables}");
    });
}

#[test]
fn a_wire_may_be_plugged_in_later() {
    crate::check(|| {
        let mut rig = Rig::new(1, BRIDGE);
        rig.plug(2);
        rig.reaches(1, "10.0.0.2");
        rig.net.ip("link delete swp2-wire");
        wait_for("the link to be down", || {
            let view = rig.show("show interfaces swp2");
            (rows(&view, "interfaces")[0]["link_up"] == false).then_some(())
        });
    });
}
