//! Port-channels on the chip: LACP with Open vSwitch as the partner, lost members, ends of the daemon and of the chip, and what is
//! refused.

use crate::harness::ovs::Ovs;
use crate::harness::{DEADLINE, wait_for, wait_until};
use crate::restarts::answers_during;
use crate::rig::{Rig, platform};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// The number of conversations of host 1, one for each of its addresses. Host 1 is the LACP partner at swp1 and swp2; host 2 is at
/// swp3.
const FLOWS: u8 = 16;
/// The addresses of a packet select its member.
const BALANCE: &str = "port-channel load-balance src-dst-ip\n";

fn bundle(mode: &str) -> String {
    format!(
        "{BALANCE}interface swp1\n channel-group 1 mode {mode}\ninterface swp2\n channel-group 1 mode {mode}\n\
         interface swp3\n switchport\n"
    )
}
/// A switch with the partner and the host.
fn rig(config: &str) -> Rig {
    let mut rig = Rig::new(0, config);
    rig.plug_together(&[1, 2]);
    rig.plug(3);
    // The partner's kernel must not answer by the links of the bond for the address of the bridge.
    let quiet = || std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1");
    rig.hosts[0].run(quiet).expect("arp_ignore is set");
    rig
}
/// Gives a netdev of the partner an address for each flow.
fn address(rig: &Rig, netdev: &str) {
    rig.hosts[0].ip(&format!("link set {netdev} up"));
    for n in 1..=FLOWS {
        rig.hosts[0].ip(&format!("address add 10.0.0.{}/24 dev {netdev}", 100 + n));
    }
}
fn all_flows_reach(rig: &Rig) {
    (1..=FLOWS).for_each(|n| rig.reaches(2, &format!("10.0.0.{}", 100 + n)));
}
fn channel(rig: &Rig) -> Value {
    rig.show("show etherchannel summary")["channels"][0].clone()
}
fn bundled(rig: &Rig) -> BTreeSet<String> {
    let members = channel(rig)["members"].as_array().cloned().unwrap_or_default();
    let used = members.iter().filter(|member| member["bundled"] == true);
    used.filter_map(|member| member["interface"].as_str().map(str::to_owned)).collect()
}
fn wait_bundled(rig: &Rig, wanted: &[&str]) {
    let wanted: BTreeSet<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
    let done = wait_until(3 * DEADLINE, || (bundled(rig) == wanted).then_some(()));
    assert!(done.is_some(), "in vain: {wanted:?}; {}", rig.exec(&["show etherchannel detail"]));
}
/// The number of frames that have left by a port.
fn sent(rig: &Rig, port: &str) -> u64 {
    let view = rig.show(&format!("show interfaces {port}"));
    view["interfaces"][0]["tx"]["frames"].as_u64().unwrap_or_else(|| panic!("{view}"))
}
/// The number of entries in use of a table.
fn used(rig: &Rig, table: &str) -> Value {
    let view = rig.show("show platform resources");
    let rows = view["tables"].as_array().expect("tables");
    let row = rows.iter().find(|row| row["name"] == table).unwrap_or_else(|| panic!("{table}: {view}"));
    row["used"].clone()
}

/// LACP over both paths of control frames: the switch knows by which member an LACPDU of the partner has arrived, and sends its
/// own LACPDUs by that member.
#[test]
fn a_port_channel_with_a_partner_forwards_by_both_members() {
    crate::check(|| {
        let rig = rig(&bundle("active"));
        let Some(ovs) = Ovs::start(&rig.hosts[0], &["lacp=active", "other_config:lacp-time=fast"]) else {
            return;
        };
        address(&rig, "br0");
        for way in ["kernel", "tun"] {
            rig.configure(&format!("platform control-path {way}")).expect("both paths are there");
            wait_bundled(&rig, &["swp1", "swp2"]);
            wait_for("the partner has negotiated", || ovs.negotiated().then_some(()));
            all_flows_reach(&rig);
        }
        let view = channel(&rig);
        assert_eq!((&view["protocol"], &view["up"]), (&"lacp".into(), &true.into()), "{view}");
        let before = [sent(&rig, "swp1"), sent(&rig, "swp2")];
        all_flows_reach(&rig);
        let after = [sent(&rig, "swp1"), sent(&rig, "swp2")];
        assert!(after[0] > before[0] && after[1] > before[1], "{before:?}, then {after:?}");
        let table = rig.show("show mac address-table dynamic");
        let at = |port: &str| {
            let rows = table["entries"].as_array().expect("entries");
            rows.iter().filter(|row| row["interface"] == port).count()
        };
        assert!(at("port-channel1") >= 1 && at("swp1") == 0 && at("swp2") == 0, "{table}");
        assert_eq!(used(&rig, "aggregation/port_channels"), 1);
        assert_eq!(used(&rig, "aggregation/channel_members"), 2);
        let view = rig.show("show interfaces port-channel 1");
        let shown = &view["interfaces"][0];
        assert_eq!((&shown["kind"], &shown["link_up"]), (&"lag".into(), &true.into()), "{view}");
        assert!(
            shown["rx"]["frames"].as_u64() > Some(0) && shown["tx"]["frames"].as_u64() > Some(0),
            "{view}"
        );
        let traces = |rig: &Rig| -> Vec<String> {
            let trace = |source: u8| {
                let frame = format!("ffffffffffff0200000099{source:02x}88b5{}", "00".repeat(46));
                rig.exec(&[&format!("show platform packet-trace interface swp3 hex {frame}")])
            };
            (1..=FLOWS).map(trace).collect()
        };
        let by = |traces: &[String], port: &str| traces.iter().filter(|trace| trace.contains(port)).count();
        let both = traces(&rig);
        assert!(
            by(&both, "swp1") > 0 && by(&both, "swp2") > 0 && by(&both, "bucket") == both.len(),
            "{both:?}"
        );
        // One of the wires ends, and comes back.
        rig.hosts[0].ip("link set eth1 down");
        wait_bundled(&rig, &["swp1"]);
        assert_eq!(by(&traces(&rig), "swp2"), 0);
        all_flows_reach(&rig);
        rig.hosts[0].ip("link set eth1 up");
        wait_bundled(&rig, &["swp1", "swp2"]);
        all_flows_reach(&rig);
    });
}

#[test]
fn the_kernels_bond_is_a_partner() {
    crate::check(|| {
        let rig = rig(&bundle("active"));
        let bond = "link add bond0 type bond mode 802.3ad lacp_rate fast miimon 10";
        if let Err(said) = rig.hosts[0].try_ip(bond) {
            println!("skipped: this kernel has no bonding driver: {}", said.trim());
            return;
        }
        rig.hosts[0].ip(
            "link set eth0 down\nlink set eth1 down\nlink set eth0 master bond0\nlink set eth1 master bond0",
        );
        address(&rig, "bond0");
        wait_bundled(&rig, &["swp1", "swp2"]);
        all_flows_reach(&rig);
    });
}

/// Without a daemon the chip itself moves the flows of a member that has lost its link to the other one.
#[test]
fn the_chip_replaces_a_lost_member_by_itself() {
    crate::check(|| {
        let mut rig = rig(&bundle("on"));
        // ARP packets have no IP header, so all of them would use one member: static neighbour entries replace ARP.
        let (near, far) = ("02:00:00:00:03:03", "02:00:00:00:01:01");
        rig.hosts[0]
            .ip(&format!("link add br0 type bridge\nlink set br0 address {far}\nlink set eth0 master br0"));
        address(&rig, "br0");
        rig.hosts[0].ip(&format!("neighbour add 10.0.0.3 lladdr {near} dev br0"));
        rig.hosts[1].ip(&format!("link set eth0 address {near}"));
        let known = |n: u8| format!("neighbour add 10.0.0.{} lladdr {far} dev eth0", 100 + n);
        (1..=FLOWS).for_each(|n| rig.hosts[1].ip(&known(n)));
        wait_bundled(&rig, &["swp1", "swp2"]);
        rig.kill_daemon();
        // The partner takes frames at its first link only, so the flows of the other member arrive once that member's link is
        // lost.
        let arrives = |n: u8| {
            let ping = format!("ping -n -c 1 -W 1 10.0.0.{}", 100 + n);
            rig.on_host(2, &ping).status.success()
        };
        let before = (1..=FLOWS).filter(|n| arrives(*n)).count();
        assert!((1..usize::from(FLOWS)).contains(&before), "{before} of {FLOWS} flows use the first member");
        rig.hosts[0].ip("link set eth1 down");
        all_flows_reach(&rig);
        rig.start();
        wait_bundled(&rig, &["swp1"]);
        all_flows_reach(&rig);
    });
}

/// A new daemon continues LACP from the state of the previous one: the partner loses no member, and no frame is lost.
#[test]
fn a_restart_of_the_daemon_loses_no_frame() {
    crate::check(|| {
        let mut rig = rig(&bundle("active"));
        let partner = std::mem::replace(&mut rig.hosts[0], crate::harness::Net::new(false));
        let Some(_ovs) = Ovs::start(&partner, &["lacp=active", "other_config:lacp-time=slow"]) else {
            return;
        };
        partner.ip("link set br0 up\naddress add 10.0.0.101/24 dev br0");
        wait_bundled(&rig, &["swp1", "swp2"]);
        rig.reaches(2, "10.0.0.101");
        let chip = rig.chip();
        let answers = answers_during(&mut rig, 2, "10.0.0.101", |rig| {
            rig.kill_daemon();
            rig.start();
            rig.kill_daemon();
            rig.start();
        });
        assert_eq!(answers, 1000, "frames were lost");
        assert_eq!(rig.chip(), chip, "the chip is the same process");
        wait_bundled(&rig, &["swp1", "swp2"]);
    });
}

#[test]
fn the_software_plane_has_the_port_channels_when_the_chip_is_killed() {
    crate::check(|| {
        let rig = rig(&bundle("active"));
        let Some(_ovs) = Ovs::start(&rig.hosts[0], &["lacp=active", "other_config:lacp-time=slow"]) else {
            return;
        };
        address(&rig, "br0");
        wait_bundled(&rig, &["swp1", "swp2"]);
        all_flows_reach(&rig);
        rig.kill_chip();
        all_flows_reach(&rig);
        wait_bundled(&rig, &["swp1", "swp2"]);
        // A link is lost while the software plane forwards: the chip that starts afterwards does not use it.
        rig.hosts[0].ip("link set eth1 down");
        wait_bundled(&rig, &["swp1"]);
        all_flows_reach(&rig);
        let mut chip = rig.start_chip();
        let back =
            wait_until(Duration::from_secs(20), || rig.printed().contains("%PLANE-5-CHIPUP").then_some(()));
        if back.is_some() {
            all_flows_reach(&rig);
            rig.hosts[0].ip("link set eth1 up");
            wait_bundled(&rig, &["swp1", "swp2"]);
            all_flows_reach(&rig);
        }
        let _ = chip.kill();
        let _ = chip.wait();
        assert!(back.is_some(), "{}", rig.printed());
        let downs = || rig.printed().matches("%PLANE-2-CHIPDOWN").count();
        wait_for("the software plane again", || (downs() == 2).then_some(()));
        all_flows_reach(&rig);
    });
}

/// A routed port-channel: its address answers by either member.
#[test]
fn a_routed_port_channel_answers() {
    crate::check(|| {
        let rig = rig(&format!(
            "{BALANCE}ip routing\ninterface swp1\n no switchport\n channel-group 1 mode active\ninterface swp2\n no switchport\n \
             channel-group 1 mode active\ninterface port-channel 1\n ip address 10.0.0.254 255.255.255.0\n\
             interface swp3\n no switchport\n ip address 10.0.3.254 255.255.255.0\n"
        ));
        let Some(_ovs) = Ovs::start(&rig.hosts[0], &["lacp=active", "other_config:lacp-time=fast"]) else {
            return;
        };
        address(&rig, "br0");
        wait_bundled(&rig, &["swp1", "swp2"]);
        rig.reaches(1, "10.0.0.254");
        rig.hosts[1]
            .ip("address flush dev eth0\naddress add 10.0.3.1/24 dev eth0\nroute add default via 10.0.3.254");
        rig.hosts[0].ip("route add default via 10.0.0.254");
        all_flows_reach(&rig);
        rig.hosts[0].ip("link set eth0 down");
        wait_bundled(&rig, &["swp2"]);
        all_flows_reach(&rig);
        rig.reaches(1, "10.0.0.254");
    });
}

#[test]
fn port_channels_beyond_the_capacity_of_the_chip_are_refused() {
    crate::check(|| {
        let rig = Rig::new(0, "");
        for n in 1..=8_u8 {
            let line = format!("interface swp{n}\nchannel-group {} mode on", n.div_ceil(2));
            rig.configure(&line).expect("four port-channels with two members each");
        }
        let refused = rig.configure("interface swp9\nchannel-group 1 mode on").expect_err("nine members");
        assert!(refused.contains("aggregation/channel_members"), "{refused}");
        rig.configure("interface swp8\nno channel-group").expect("it leaves");
        let refused =
            rig.configure("interface swp9\nchannel-group 9 mode on").expect_err("five port-channels");
        assert!(refused.contains("aggregation/port_channels"), "{refused}");
        rig.configure("interface swp9\nchannel-group 1 mode on").expect("there is room");
        assert_eq!(used(&rig, "aggregation/channel_members"), 8);
    });
}

#[test]
fn a_member_is_not_split() {
    crate::check(|| {
        let rig =
            Rig::on(platform("spectrum-like.toml"), 0, "interface swp1\n channel-group 1 mode active\n");
        let refused = rig.configure("interface swp1\nbreakout 4x25g").expect_err("it is a member");
        assert!(refused.contains("swp1"), "{refused}");
        rig.configure("no interface port-channel 1\ndefault interface swp1").expect("it leaves");
        rig.configure("interface swp1\nbreakout 4x25g").expect("it is free");
        rig.configure("interface swp1s0\nchannel-group 2 mode active").expect("a part is a port");
    });
}
