//! Multicast snooping with real hosts: the kernel joins for their sockets, and every port is watched.

use crate::harness::frame::Mac;
use crate::harness::{Bed, Frame, Host, Plane, SourceMember, mac, scenarios, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

scenarios! {
    a_stream_goes_to_the_members_alone: ebpf soft;
    sources_that_members_name_decide: ebpf soft;
    ipv6_groups_are_limited_and_neighbour_discovery_is_not: ebpf soft;
    static_members_and_routers: ebpf soft;
    settings_take_effect_and_go: ebpf soft;
    a_kernel_bridge_is_the_querier: ebpf soft;
    a_kernel_bridge_hears_the_switch_instead_of_hosts: ebpf soft;
    a_restart_keeps_the_members: ebpf;
    without_a_daemon_groups_are_flooded_in_the_end: ebpf;
    a_port_that_goes_down_has_no_members: ebpf soft;
    a_port_channel_is_one_member: ebpf soft;
    ten_thousand_groups_are_joined_and_left: ebpf soft;
    a_stream_stays_where_it_is_while_the_table_grows: ebpf soft;
}

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(239, 2, 2, 2);
const GROUP_6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 1, 1);

/// A UDP packet to a group, from host `n`.
fn packet(n: u16, source: IpAddr, group: IpAddr) -> Frame {
    let (dst, ethertype, mut bytes) = match (source, group) {
        (IpAddr::V4(source), IpAddr::V4(group)) => {
            let mut bytes = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 8, 17, 0, 0];
            bytes.extend(source.octets());
            bytes.extend(group.octets());
            let sum = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum::<u32>();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            let [_, b, c, d] = group.octets();
            ([1, 0, 0x5e, b & 0x7f, c, d], [8, 0], bytes)
        }
        (IpAddr::V6(source), IpAddr::V6(group)) => {
            let mut bytes = vec![0x60, 0, 0, 0, 0, 26, 17, 8];
            bytes.extend(source.octets());
            bytes.extend(group.octets());
            let octets = group.octets();
            ([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]], [0x86, 0xdd], bytes)
        }
        _ => panic!("{source} cannot send to {group}"),
    };
    bytes.extend([0x13, 0x88, 0x13, 0x89, 0, 26, 0, 0]);
    bytes.resize(bytes.len() + 18, 0x5a);
    let dst: Mac = dst;
    Frame([&dst[..], &mac(n)[..], &ethertype[..], &bytes[..]].concat())
}

/// A packet from host 1.
fn from_1(group: impl Into<IpAddr>) -> Frame {
    match group.into() {
        IpAddr::V4(group) => packet(1, [10, 0, 1, 1].into(), group.into()),
        IpAddr::V6(group) => packet(1, Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1).into(), group.into()),
    }
}

/// A switch with four hosts in VLAN 1; hosts 2 to 4 have addresses, and host 1 only sends frames of the tests.
fn bed(plane: Plane, config: &str) -> Bed {
    let ports: String = (1..=4).map(|n| format!("interface p{n}\n switchport\n")).collect();
    let bed = Bed::new(plane, 4, &format!("{config}\n{ports}"));
    bed.chatter.set(true);
    bed.exact.set(false);
    for n in 2..=4 {
        bed.host(n).address(&format!("10.0.1.{n}/24"));
        bed.host(n).net.ip("route add default dev eth0");
    }
    bed
}

/// A socket of a host that is a member of a group.
fn join(host: &Host, group: Ipv4Addr) -> UdpSocket {
    host.net.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED).expect("joined");
        socket
    })
}

fn join_6(host: &Host, group: Ipv6Addr) -> UdpSocket {
    host.net.run(|| {
        let index = nix::net::if_::if_nametoindex("eth0").expect("the host has its port");
        let socket = UdpSocket::bind("[::]:0").expect("a socket");
        socket.join_multicast_v6(&group, index).expect("joined");
        socket
    })
}

/// The group as the switch shows it.
fn shown(bed: &Bed, protocol: &str, group: impl ToString) -> Option<Value> {
    let groups = bed.show(&format!("show {protocol} snooping groups"));
    let group = group.to_string();
    groups["groups"].as_array().expect("a list").iter().find(|shown| shown["group"] == group).cloned()
}

/// Waits until the switch shows these ports for a group.
fn has_ports(bed: &Bed, protocol: &str, group: impl ToString, ports: &[&str]) {
    let group = group.to_string();
    wait_for(&format!("{group} at {ports:?}"), || {
        let found = shown(bed, protocol, &group).map(|shown| shown["ports"].clone());
        (found.unwrap_or(serde_json::json!([])) == serde_json::json!(ports)).then_some(())
    });
}

fn a_stream_goes_to_the_members_alone(plane: Plane) {
    let bed = bed(
        plane,
        "ip igmp snooping vlan 1 immediate-leave\nip igmp snooping vlan 1 last-member-query-interval 200",
    );
    let stream = from_1(GROUP);
    bed.expect_at(1, &stream, &[2, 3, 4]);
    let two = join(bed.host(2), GROUP);
    has_ports(&bed, "ip igmp", GROUP, &["p2"]);
    bed.expect_at(1, &stream, &[2]);
    // Another group, another group with the same MAC address, and one of link scope.
    bed.expect_at(1, &from_1(OTHER), &[2, 3, 4]);
    bed.expect_at(1, &from_1(Ipv4Addr::new(238, 129, 1, 1)), &[2, 3, 4]);
    bed.expect_at(1, &from_1(Ipv4Addr::new(224, 0, 0, 251)), &[2, 3, 4]);
    let three = join(bed.host(3), GROUP);
    has_ports(&bed, "ip igmp", GROUP, &["p2", "p3"]);
    bed.expect_at(1, &stream, &[2, 3]);
    let group = shown(&bed, "ip igmp", GROUP).expect("the group");
    assert_eq!(
        (&group["mode"], &group["sources"], &group["vlan"]),
        (&"any".into(), &serde_json::json!([]), &1.into())
    );
    assert!(group["expires_s"].as_u64().is_some_and(|left| (200..=260).contains(&left)), "{group}");
    drop(two);
    has_ports(&bed, "ip igmp", GROUP, &["p3"]);
    bed.expect_at(1, &stream, &[3]);
    drop(three);
    has_ports(&bed, "ip igmp", GROUP, &[]);
    bed.expect_at(1, &stream, &[2, 3, 4]);
    let trace = bed.ask(&format!("show platform packet-trace interface p1 hex {}", stream.hex()));
    assert_eq!(trace["verdict"], "forwarded", "{trace}");
    let mdb = table(&bed);
    assert_eq!(
        (&mdb["used"], &mdb["size"], &mdb["refused"]),
        (&0.into(), &131_072.into(), &0.into()),
        "{mdb}"
    );
}

fn sources_that_members_name_decide(plane: Plane) {
    let bed = bed(plane, "");
    let named = packet(1, [10, 0, 1, 77].into(), GROUP.into());
    let Some(_include) = SourceMember::new(&bed.host(2).net, GROUP, "10.0.1.77", false) else { return };
    has_ports(&bed, "ip igmp", GROUP, &["p2"]);
    assert_eq!(shown(&bed, "ip igmp", GROUP).expect("the group")["mode"], "include");
    bed.expect_at(1, &named, &[2]);
    bed.expect_drop(1, &from_1(GROUP), "no_egress");
    let Some(_exclude) = SourceMember::new(&bed.host(3).net, GROUP, "10.0.1.77", true) else { return };
    has_ports(&bed, "ip igmp", GROUP, &["p2", "p3"]);
    // The host joins the group first and blocks the source a moment later; then the switch asks at the port whether other hosts
    // want the source.
    wait_for("the source is not sent to host 3 any more", || {
        let arrivals = bed.exchange(1, std::slice::from_ref(&named));
        arrivals[2].is_empty().then_some(())
    });
    bed.expect_at(1, &named, &[2]);
    bed.expect_at(1, &from_1(GROUP), &[3]);
}

fn ipv6_groups_are_limited_and_neighbour_discovery_is_not(plane: Plane) {
    let bed = bed(
        plane,
        "ipv6 mld snooping\nipv6 mld snooping vlan 1 immediate-leave\nipv6 mld snooping unregistered mrouter",
    );
    for n in 2..=4 {
        bed.host(n).address(&format!("fd00:1::{n}/64"));
    }
    let stream = from_1(GROUP_6);
    wait_for("groups without members go to no port", || {
        bed.exchange(1, std::slice::from_ref(&stream)).iter().all(Vec::is_empty).then_some(())
    });
    let member = join_6(bed.host(3), GROUP_6);
    has_ports(&bed, "ipv6 mld", GROUP_6, &["p3"]);
    bed.expect_at(1, &stream, &[3]);
    // Neighbour solicitations go to groups of link scope, so the hosts find each other.
    bed.host(2).reaches("fd00:1::4");
    bed.expect_at(1, &from_1(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 9)), &[2, 3, 4]);
    drop(member);
    has_ports(&bed, "ipv6 mld", GROUP_6, &[]);
    bed.expect_drop(1, &stream, "no_egress");
}

fn static_members_and_routers(plane: Plane) {
    let bed = bed(
        plane,
        "ip igmp snooping vlan 1 static 239.1.1.1 interface p3\nip igmp snooping vlan 1 mrouter interface p4\n\
         ip igmp snooping vlan 1 immediate-leave",
    );
    bed.expect_at(1, &from_1(GROUP), &[3, 4]);
    let group = shown(&bed, "ip igmp", GROUP).expect("the group");
    assert_eq!((&group["ports"], &group["expires_s"]), (&serde_json::json!(["p3"]), &Value::Null), "{group}");
    let routers = bed.show("show ip igmp snooping mrouter");
    assert_eq!(routers, serde_json::json!({"mrouters": [{"vlan": 1, "interface": "p4", "type": "static"}]}));
    // Reports go to the router's port and to no other.
    let member = join(bed.host(2), GROUP);
    has_ports(&bed, "ip igmp", GROUP, &["p2", "p3"]);
    bed.expect_at(1, &from_1(GROUP), &[2, 3, 4]);
    let report = |frame: &Frame| frame.0[12..14] == [8, 0] && frame.0[23] == 2 && frame.0[6..12] == mac(2);
    drop(member);
    wait_for("the leave at the router's port", || bed.arrivals()[3].iter().any(report).then_some(()));
    bed.configure("no ip igmp snooping vlan 1 mrouter interface p4\nno ip igmp snooping vlan 1 static 239.1.1.1 interface p3");
    wait_for("no member and no router", || {
        bed.show("show ip igmp snooping mrouter")["mrouters"]
            .as_array()
            .is_some_and(Vec::is_empty)
            .then_some(())
    });
    has_ports(&bed, "ip igmp", GROUP, &[]);
    bed.expect_at(1, &from_1(GROUP), &[2, 3, 4]);
}

fn settings_take_effect_and_go(plane: Plane) {
    let bed = bed(plane, "");
    let _member = join(bed.host(2), GROUP);
    has_ports(&bed, "ip igmp", GROUP, &["p2"]);
    bed.expect_at(1, &from_1(GROUP), &[2]);
    bed.configure("ip igmp snooping unregistered mrouter");
    bed.expect_drop(1, &from_1(OTHER), "no_egress");
    bed.configure("no ip igmp snooping unregistered");
    bed.expect_at(1, &from_1(OTHER), &[2, 3, 4]);
    bed.configure("no ip igmp snooping vlan 1");
    bed.expect_at(1, &from_1(GROUP), &[2, 3, 4]);
    assert_eq!(bed.show("show ip igmp snooping groups")["groups"], serde_json::json!([]));
    bed.configure("default ip igmp snooping vlan 1\nip igmp snooping querier\nip igmp snooping querier address 10.0.1.9");
    // The host answers the switch's query, and so its membership is known again.
    has_ports(&bed, "ip igmp", GROUP, &["p2"]);
    bed.expect_at(1, &from_1(GROUP), &[2]);
    let querier = bed.show("show ip igmp snooping querier");
    let querier = &querier["queriers"][0];
    assert_eq!(
        (&querier["querier_address"], &querier["querier_is_self"]),
        (&"10.0.1.9".into(), &true.into())
    );
    bed.configure("interface p3\nip igmp max-groups 0");
    let _refused = join(bed.host(3), OTHER);
    wait_for("the refusal is counted and logged", || {
        let all = bed.show("show ip igmp snooping");
        let counted = all["vlans"][0]["counters"]["refused_no_room"].as_u64() > Some(0);
        (counted && bed.exec(&["show logging"]).contains("%SNOOPING-4-LIMIT")).then_some(())
    });
    assert_eq!(shown(&bed, "ip igmp", OTHER), None);
}

fn a_kernel_bridge_is_the_querier(plane: Plane) {
    let bed = bed(plane, "ipv6 mld snooping");
    // Host 4 is a bridge that sends queries.
    let bridge = &bed.host(4).net;
    bridge.ip(
        "address del 10.0.1.4/24 dev eth0\nlink add br0 type bridge mcast_snooping 1 mcast_querier 1 mcast_query_use_ifaddr 1 \
         mcast_startup_query_interval 100 mcast_query_interval 200 mcast_mld_version 2\nlink set eth0 master br0\n\
         address add 10.0.1.4/24 dev br0",
    );
    bridge.run(|| std::fs::write("/proc/sys/net/ipv6/conf/br0/disable_ipv6", "0")).expect("IPv6 on");
    bridge.ip("link set br0 up");
    // Its MLD queries begin when it has a link-local address.
    wait_for("the bridge is the MLD querier", || {
        let querier = bed.show("show ipv6 mld snooping querier");
        let address = querier["queriers"][0]["querier_address"].as_str().unwrap_or_default().to_owned();
        (address.starts_with("fe80::") && querier["queriers"][0]["querier_is_self"] == false).then_some(())
    });
    let routers = bed.show("show ipv6 mld snooping mrouter");
    assert_eq!(routers["mrouters"][0]["interface"], "p4", "{routers}");
    wait_for("the bridge is the querier", || {
        let querier = bed.show("show ip igmp snooping querier");
        (querier["queriers"][0]["querier_address"] == "10.0.1.4").then_some(())
    });
    let routers = bed.show("show ip igmp snooping mrouter");
    assert_eq!(routers["mrouters"][0]["interface"], "p4", "{routers}");
    let _member = join(bed.host(2), GROUP);
    has_ports(&bed, "ip igmp", GROUP, &["p2"]);
    bed.expect_at(1, &from_1(GROUP), &[2, 4]);
    // The querier with the lower address wins: the switch gives way to the bridge, and takes over when its own address is lower.
    bed.configure("ip igmp snooping querier\nip igmp snooping querier address 10.0.1.200");
    assert_eq!(bed.show("show ip igmp snooping querier")["queriers"][0]["querier_is_self"], false);
    bed.configure(
        "ip igmp snooping querier address 10.0.1.3\nno ip igmp snooping querier\nip igmp snooping querier",
    );
    wait_for("the reports pass to the bridge", || {
        let shown = bridge.output(Command::new("bridge").args(["-d", "mdb", "show"]));
        String::from_utf8_lossy(&shown.stdout).contains("239.1.1.1").then_some(())
    });
}

/// Proxy reporting: the bridge learns the switch's groups from the switch's reports, and receives no report of a host.
fn a_kernel_bridge_hears_the_switch_instead_of_hosts(plane: Plane) {
    let bed = bed(
        plane,
        "ip igmp snooping proxy\nip igmp snooping vlan 1 immediate-leave\nip igmp snooping vlan 1 mrouter interface p4",
    );
    let igmp = |frame: &Frame| frame.0[12..14] == [8, 0] && frame.0[23] == 2;
    let sources = |frames: &[Frame]| -> BTreeSet<[u8; 4]> {
        let source = |frame: &Frame| <[u8; 4]>::try_from(&frame.0[26..30]).expect("four bytes");
        frames.iter().filter(|frame| igmp(frame)).map(source).collect()
    };
    let (two, three) = (join(bed.host(2), GROUP), join(bed.host(3), GROUP));
    has_ports(&bed, "ip igmp", GROUP, &["p2", "p3"]);
    let mut seen = BTreeSet::new();
    wait_for("the switch's report at the router's port", || {
        seen.extend(sources(&bed.arrivals()[3]));
        seen.contains(&[0; 4]).then_some(())
    });
    // The hosts repeat their reports within a second (RFC 3376, 8.11); the switch repeats its report a second later.
    wait_for("the reports of both hosts are counted", || {
        seen.extend(sources(&bed.arrivals()[3]));
        let counters = bed.show("show ip igmp snooping")["vlans"][0]["counters"].clone();
        let count = |name: &str| counters[name].as_u64().unwrap_or(0);
        (count("reports_received") >= 4 && count("reports_sent") >= 2).then_some(())
    });
    assert_eq!(seen, [[0; 4]].into(), "no report of a host reaches the router");
    let bridge = &bed.host(4).net;
    bridge.ip(
        "address del 10.0.1.4/24 dev eth0\nlink add br0 type bridge mcast_snooping 1 mcast_igmp_version 3 mcast_query_use_ifaddr 1 \
         mcast_startup_query_interval 100\nlink set eth0 master br0\naddress add 10.0.1.4/24 dev br0\nlink set br0 up\n\
         link set br0 type bridge mcast_querier 1",
    );
    let knows = || {
        let shown = bridge.output(Command::new("bridge").args(["-d", "mdb", "show"]));
        String::from_utf8_lossy(&shown.stdout).contains("grp 239.1.1.1")
    };
    wait_for("the bridge's query is answered", || knows().then_some(()));
    drop((two, three));
    has_ports(&bed, "ip igmp", GROUP, &[]);
    wait_for("the bridge has heard that the last member has left", || (!knows()).then_some(()));
}

fn a_restart_keeps_the_members(plane: Plane) {
    let bed = bed(plane, "ip igmp snooping vlan 1 mrouter interface p4");
    let _member = join(bed.host(2), GROUP);
    has_ports(&bed, "ip igmp", GROUP, &["p2"]);
    let stream = from_1(GROUP);
    bed.expect_at(1, &stream, &[2, 4]);
    bed.end_daemon(Signal::SIGKILL);
    bed.start();
    // The member is known although no host has sent a report since the restart, and there was no query.
    bed.expect_at(1, &stream, &[2, 4]);
    let group = shown(&bed, "ip igmp", GROUP).expect("the group is still there");
    assert_eq!(group["ports"], serde_json::json!(["p2"]));
    // A router port that is removed from the configuration is removed from the plane.
    bed.configure("no ip igmp snooping vlan 1 mrouter interface p4");
    bed.expect_at(1, &stream, &[2]);
}

fn without_a_daemon_groups_are_flooded_in_the_end(plane: Plane) {
    let bed = bed(plane, "ip igmp snooping querier\nip igmp snooping querier address 10.0.1.9");
    let _member = join(bed.host(2), GROUP);
    has_ports(&bed, "ip igmp", GROUP, &["p2"]);
    let stream = from_1(GROUP);
    bed.expect_at(1, &stream, &[2]);
    bed.end_daemon(Signal::SIGKILL);
    let arrives_at = |n: usize| {
        bed.host(1).send(&stream);
        std::iter::from_fn(|| bed.host(n).next()).any(|frame| frame == stream)
    };
    // The plane continues to limit the group to its members, until its watchdog expires after ten seconds.
    wait_for("the watchdog ends the limits", || arrives_at(4).then_some(()));
    bed.start();
    // While no daemon ran, hosts may have joined and left: the group is flooded until they have been asked.
    assert_eq!(bed.show("show ip igmp snooping")["vlans"][0]["flooding"], "all");
    bed.expect_at(1, &stream, &[2, 3, 4]);
    has_ports(&bed, "ip igmp", GROUP, &["p2"]);
}

fn a_port_that_goes_down_has_no_members(plane: Plane) {
    let bed = bed(plane, "");
    let _two = join(bed.host(2), GROUP);
    let _three = join(bed.host(3), GROUP);
    has_ports(&bed, "ip igmp", GROUP, &["p2", "p3"]);
    bed.configure("interface p2\nshutdown");
    has_ports(&bed, "ip igmp", GROUP, &["p3"]);
    bed.expect_at(1, &from_1(GROUP), &[3]);
}

/// A report that any member of a port-channel receives counts for the port-channel. The group's packets leave by one of its
/// links, also after the link is lost by which the report came.
fn a_port_channel_is_one_member(plane: Plane) {
    let group = "channel-group 1 mode on";
    let bed = bed(plane, &format!("interface p3\nswitchport\n{group}\ninterface p4\nswitchport\n{group}"));
    let arrivals = || {
        let arrived = bed.exchange(1, &[from_1(GROUP)]);
        [2, 3, 4].map(|host| arrived[host - 1].iter().filter(|frame| **frame == from_1(GROUP)).count())
    };
    wait_for("both links are used", || {
        let channels = bed.show("show etherchannel summary");
        let members = channels["channels"][0]["members"].as_array()?.clone();
        members.iter().all(|member| member["bundled"] == true).then_some(())
    });
    let _two = join(bed.host(2), GROUP);
    has_ports(&bed, "ip igmp", GROUP, &["p2"]);
    assert_eq!(arrivals(), [1, 0, 0]);
    let _three = join(bed.host(3), GROUP);
    has_ports(&bed, "ip igmp", GROUP, &["p2", "port-channel1"]);
    let [two, three, four] = arrivals();
    assert_eq!((two, three + four), (1, 1), "one copy for the port-channel");
    bed.host(3).net.ip("link set eth0 down");
    wait_for("the other link is used", || (arrivals() == [1, 0, 1]).then_some(()));
}

/// An IGMPv3 report of host `n` with one record of this type for each of `groups` groups from 239.3.0.0 on.
fn report(n: u16, kind: u8, first: u16, groups: u16) -> Frame {
    let mut message = vec![0x22, 0, 0, 0, 0, 0];
    message.extend(groups.to_be_bytes());
    for group in first..first + groups {
        message.extend([kind, 0, 0, 0, 239, 3]);
        message.extend(group.to_be_bytes());
    }
    let sum = |bytes: &[u8]| {
        let sum: u32 = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
    };
    let checksum = sum(&message);
    message[2..4].copy_from_slice(&checksum);
    let len = (24 + message.len()) as u16;
    let mut packet = vec![0x46, 0xc0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 1, n as u8];
    packet.extend([224, 0, 0, 22, 0x94, 4, 0, 0]);
    let checksum = sum(&packet);
    packet[10..12].copy_from_slice(&checksum);
    let dst: Mac = [1, 0, 0x5e, 0, 0, 22];
    Frame([&dst[..], &mac(n)[..], &[8, 0][..], &packet[..], &message[..]].concat())
}

/// The table of groups, as `show platform resources` has it.
fn table(bed: &Bed) -> Value {
    let all = bed.show("show platform resources");
    let mdb = all["tables"].as_array().and_then(|all| all.iter().find(|table| table["name"] == "mdb"));
    mdb.cloned().expect("the table")
}

/// Joins and leaves of 10,000 groups; the times are printed, and depend on what else the machine does.
fn ten_thousand_groups_are_joined_and_left(plane: Plane) {
    const GROUPS: u16 = 10_000;
    const A_REPORT: u16 = 100;
    let bed = bed(plane, "ip igmp snooping vlan 1 immediate-leave");
    let send = |kind: u8| {
        for first in (0..GROUPS).step_by(A_REPORT.into()) {
            bed.host(2).send(&report(2, kind, first, A_REPORT));
        }
    };
    let used = || table(&bed)["used"].as_u64().expect("a number");
    let mut quickest = Duration::MAX;
    for round in ["first", "second"] {
        let begin = Instant::now();
        // CHANGE_TO_EXCLUDE_MODE without sources joins, CHANGE_TO_INCLUDE_MODE leaves.
        send(4);
        wait_for("every group has an entry", || (used() == u64::from(GROUPS)).then_some(()));
        let joined = begin.elapsed();
        println!("{round}: {GROUPS} groups joined in {} ms", joined.as_millis());
        quickest = quickest.min(joined);
        for last in [0, 77, 9999_u16] {
            let [high, low] = last.to_be_bytes();
            bed.expect_at(1, &from_1(Ipv4Addr::new(239, 3, high, low)), &[2]);
        }
        let begin = Instant::now();
        send(3);
        wait_for("no group has an entry", || (used() == 0).then_some(()));
        println!("{round}: {GROUPS} groups left in {} ms", begin.elapsed().as_millis());
    }
    // docs/multicast.md, "Tables". Other work on the machine may delay one of the rounds.
    assert!(quickest < Duration::from_secs(1), "10,000 groups joined in {quickest:?}");
    // The time from a leave to the last frame at the member's port.
    let stream = from_1(Ipv4Addr::new(239, 3, 0, 1));
    let mut times = Vec::new();
    for _ in 0..20 {
        bed.host(2).send(&report(2, 4, 1, 1));
        wait_for("the entry", || (used() == 1).then_some(()));
        bed.host(2).drain();
        let begin = Instant::now();
        bed.host(2).send(&report(2, 3, 1, 1));
        // When the group has no members, it is flooded, and host 3 receives it.
        wait_for("host 3 gets the group", || {
            bed.host(1).send(&stream);
            std::iter::from_fn(|| bed.host(3).next()).any(|frame| frame == stream).then_some(())
        });
        times.push(begin.elapsed().as_micros());
    }
    times.sort_unstable();
    println!("leave to the change of forwarding: median {} us, most {} us", times[10], times[19]);
    assert!(times[10] < 10_000, "from leaves to the change of forwarding: {times:?} us");
}

/// A stream goes to host 2, which meanwhile joins more groups than the table of a plane in the kernel has room for at first:
/// host 2 gets every frame and host 3 none.
fn a_stream_stays_where_it_is_while_the_table_grows(plane: Plane) {
    const GROUPS: u16 = 40_000;
    const A_REPORT: u16 = 100;
    let bed = bed(plane, "");
    let (stream, other) = (from_1(GROUP), from_1(OTHER));
    let _member = join(bed.host(2), GROUP);
    has_ports(&bed, "ip igmp", GROUP, &["p2"]);
    (2..=4).for_each(|n| bed.host(n).drain());
    let (sent, got) = (Cell::new(0), Cell::new(0));
    let receive = || {
        let arrived = std::iter::from_fn(|| bed.host(2).next()).filter(|frame| *frame == stream).count();
        got.set(got.get() + arrived);
        let astray = std::iter::from_fn(|| bed.host(3).next()).find(|frame| *frame == stream);
        assert_eq!(astray, None, "after {} frames of the stream, one at host 3", sent.get());
    };
    let send = || {
        bed.host(1).send(&stream);
        sent.set(sent.get() + 1);
        receive();
    };
    for first in (0..GROUPS).step_by(A_REPORT.into()) {
        bed.host(2).send(&report(2, 4, first, A_REPORT));
        (0..5).for_each(|_| send());
    }
    wait_for("every group has an entry", || {
        send();
        (table(&bed)["used"] == u64::from(GROUPS) + 1).then_some(())
    });
    wait_for("host 2 has every frame of the stream", || {
        receive();
        (got.get() == sent.get()).then_some(())
    });
    // Groups were flooded while their entries waited for room; this has ended. Only the group without members is still flooded.
    for last in [0, 20_000, GROUPS - 1] {
        let [high, low] = last.to_be_bytes();
        bed.expect_at(1, &from_1(Ipv4Addr::new(239, 3, high, low)), &[2]);
    }
    bed.expect_at(1, &other, &[2, 3, 4]);
    assert_eq!(table(&bed)["refused"], 0);
    println!("{} frames of the stream while the table grew", sent.get());
}
