//! Multicast snooping by the chip: real hosts join, and each host's port is watched.

use crate::harness::{DEADLINE, SourceMember, wait_for, wait_until};
use crate::rig::{Rig, platform};
use lanyard_netdev::{PacketSocket, Reaped};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::Value;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(239, 2, 2, 2);
/// The address of host 1, and another one from which it sends.
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER_SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 77);
const GROUP_6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 1, 1);
/// Groups without members go to no port, so that a lost entry shows.
const CONFIG: &str = "hostname sw1\nvlan 10\nip igmp snooping unregistered mrouter\n\
    ip igmp snooping vlan 10 immediate-leave\nipv6 mld snooping\nipv6 mld snooping unregistered mrouter\n\
    ipv6 mld snooping vlan 10 immediate-leave\n";

/// A switch with three hosts in VLAN 10; host 1 sends, and the ports of all are watched.
struct Watched {
    rig: Rig,
    wires: Vec<PacketSocket>,
}

impl Watched {
    fn new(config: &str) -> Self {
        Self::on("appliance.toml", config)
    }
    fn on(chip: &str, config: &str) -> Self {
        // Daemon and chip inherit this: frames that leave one processor stay in their order.
        let mut processor = CpuSet::new();
        processor.set(nix::sched::sched_getcpu().expect("a processor")).expect("its number");
        sched_setaffinity(Pid::from_raw(0), &processor).expect("pinned");
        let ports: String =
            (1..=3).map(|n| format!("interface swp{n}\n switchport access vlan 10\n")).collect();
        let rig = Rig::on(platform(chip), 3, &format!("{CONFIG}{config}\n{ports}"));
        let open = |(n, host): (u8, &crate::harness::Net)| {
            host.ip(&format!("link set eth0 address 02:00:00:00:02:{n:02}\nroute add default dev eth0"));
            host.run(|| {
                std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0").expect("IPv6 on");
                let index = nix::net::if_::if_nametoindex("eth0").expect("the host has its port");
                PacketSocket::open(index).expect("a packet socket")
            })
        };
        let wires = (1..).zip(&rig.hosts).map(open).collect();
        // Exchange frames between all hosts: then their ports forward.
        rig.reaches(1, "10.0.0.2");
        rig.reaches(1, "10.0.0.3");
        Self { rig, wires }
    }
    /// Sends a frame from host 1; returns the hosts that receive it. A mark for each host, sent after the frame, shows when all
    /// copies have arrived.
    fn receivers(&self, frame: &[u8]) -> Vec<usize> {
        static MARKS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let number = MARKS.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_be_bytes();
        let mark = |host: u8| {
            let mut mark = [&[2, 0, 0, 0, 2, host, 2, 0, 0, 0, 0, 0x99, 0x88, 0xb5][..], &number].concat();
            mark.resize(60, 0);
            mark
        };
        let send = |frame: &[u8]| self.wires[0].send(frame).expect("sent");
        send(frame);
        (2..=3).for_each(|host| send(&mark(host)));
        let mut receivers = Vec::new();
        for (host, wire) in (2..).zip(&self.wires[1..]) {
            let (mark, mut got) = (mark(host), false);
            wait_for("the mark", || {
                loop {
                    let packet = wire.receive().expect("a packet socket")?;
                    match packet.frame {
                        bytes if bytes == mark => return Some(()),
                        bytes => got |= !packet.outgoing && bytes == frame,
                    }
                }
            });
            if got {
                receivers.push(usize::from(host));
            }
        }
        receivers
    }
    /// Asserts that a frame of host 1 gets to these hosts.
    fn is_at(&self, frame: &[u8], hosts: &[usize], when: &str) {
        let found = self.receivers(frame);
        let again = if found == hosts { Vec::new() } else { self.receivers(frame) };
        assert_eq!(found, hosts, "{when}; the next frame is at {again:?}");
    }
    /// Waits until a frame of host 1 gets to these hosts.
    fn goes_to(&self, frame: &[u8], hosts: &[usize]) {
        let mut found = Vec::new();
        let reached = wait_until(DEADLINE, || {
            found = self.receivers(frame);
            (found == hosts).then_some(())
        });
        assert!(
            reached.is_some(),
            "the frame is at hosts {found:?}, not at {hosts:?}; {}",
            self.table("mdb")
        );
    }
    fn join(&self, host: usize, group: Ipv4Addr) -> UdpSocket {
        self.rig.hosts[host - 1].run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED).expect("joined");
            socket
        })
    }
    fn join_6(&self, host: usize, group: Ipv6Addr) -> UdpSocket {
        self.rig.hosts[host - 1].run(|| {
            let index = nix::net::if_::if_nametoindex("eth0").expect("the host has its port");
            let socket = UdpSocket::bind("[::]:0").expect("a socket");
            socket.join_multicast_v6(&group, index).expect("joined");
            socket
        })
    }
    /// A row of `show platform resources`.
    fn table(&self, name: &str) -> Value {
        let all = self.rig.show("show platform resources");
        let found = all["tables"].as_array().and_then(|all| all.iter().find(|table| table["name"] == name));
        found.cloned().unwrap_or_else(|| panic!("no table {name}: {all}"))
    }
}

fn sum(bytes: &[u8]) -> [u8; 2] {
    let sum: u32 = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// A UDP packet of host 1 to a group.
fn packet(group: Ipv4Addr) -> Vec<u8> {
    packet_from(SOURCE, group)
}
fn packet_from(source: Ipv4Addr, group: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 8, 17, 0, 0];
    bytes.extend(source.octets());
    bytes.extend(group.octets());
    let checksum = sum(&bytes);
    bytes[10..12].copy_from_slice(&checksum);
    bytes.extend([0x13, 0x88, 0x13, 0x89, 0, 26, 0, 0]);
    bytes.resize(46, 0x5a);
    let [_, b, c, d] = group.octets();
    [&[1, 0, 0x5e, b & 0x7f, c, d, 2, 0, 0, 0, 1, 1, 8, 0][..], &bytes].concat()
}

fn packet_6(group: Ipv6Addr) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 26, 17, 8];
    bytes.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets());
    bytes.extend(group.octets());
    bytes.extend([0x13, 0x88, 0x13, 0x89, 0, 26, 0, 0]);
    bytes.resize(66, 0x5a);
    let octets = group.octets();
    let dst = [0x33, 0x33, octets[12], octets[13], octets[14], octets[15]];
    [&dst[..], &[2, 0, 0, 0, 1, 1, 0x86, 0xdd], &bytes].concat()
}

/// An IGMPv3 report of host 2 with one record of this type for each of `count` groups from `first` on.
fn report(kind: u8, first: u32, count: u16) -> Vec<u8> {
    report_sources(kind, first, count, &[])
}
/// Like [`report`], with these sources in each record.
fn report_sources(kind: u8, first: u32, count: u16, sources: &[Ipv4Addr]) -> Vec<u8> {
    let mut message = vec![0x22, 0, 0, 0, 0, 0];
    message.extend(count.to_be_bytes());
    for number in first..first + u32::from(count) {
        message.extend([kind, 0, 0, sources.len() as u8]);
        message.extend(numbered(number).octets());
        sources.iter().for_each(|source| message.extend(source.octets()));
    }
    let checksum = sum(&message);
    message[2..4].copy_from_slice(&checksum);
    let length = (24 + message.len()) as u16;
    let [high, low] = length.to_be_bytes();
    let mut packet =
        vec![0x46, 0xc0, high, low, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 2, 224, 0, 0, 22, 0x94, 4, 0, 0];
    let checksum = sum(&packet);
    packet[10..12].copy_from_slice(&checksum);
    [&[1, 0, 0x5e, 0, 0, 22, 2, 0, 0, 0, 1, 2, 8, 0][..], &packet, &message].concat()
}
fn numbered(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(239, 3, 0, 0)) + number)
}

#[test]
fn the_chip_sends_a_group_to_its_members() {
    crate::check(|| {
        let bed = Watched::new("");
        let (stream, six) = (packet(GROUP), packet_6(GROUP_6));
        bed.goes_to(&stream, &[]);
        let two = bed.join(2, GROUP);
        bed.goes_to(&stream, &[2]);
        let three = bed.join(3, GROUP);
        bed.goes_to(&stream, &[2, 3]);
        let member = bed.join_6(3, GROUP_6);
        bed.goes_to(&six, &[3]);
        assert_eq!(bed.table("mdb")["used"].as_u64(), Some(2));
        assert_eq!(bed.receivers(&packet(OTHER)), [] as [usize; 0]);
        drop((two, member));
        bed.goes_to(&stream, &[3]);
        bed.goes_to(&six, &[]);
        drop(three);
        bed.goes_to(&stream, &[]);
        // A router port gets the packets of every group, and the reports.
        bed.rig.configure("ip igmp snooping vlan 10 mrouter interface swp3").expect("taken");
        bed.goes_to(&packet(OTHER), &[3]);
        let _two = bed.join(2, GROUP);
        bed.goes_to(&stream, &[2, 3]);
        let is_report = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 2;
        let _four = bed.join(2, OTHER);
        wait_for("the report at the router's port", || {
            std::iter::from_fn(|| bed.wires[2].receive().expect("a socket"))
                .any(|packet| !packet.outgoing && is_report(&packet.frame))
                .then_some(())
        });
    });
}

/// A member that names a source gets the packets of that source only, also while another member accepts all sources.
#[test]
fn sources_that_members_name_decide_in_the_chip() {
    crate::check(|| {
        let bed = Watched::new("");
        let (stream, other) = (packet(GROUP), packet_from(OTHER_SOURCE, GROUP));
        let none: [usize; 0] = [];
        bed.goes_to(&stream, &none);
        let Some(two) = SourceMember::new(&bed.rig.hosts[1], GROUP, "10.0.0.1", false) else { return };
        bed.goes_to(&stream, &[2]);
        for _ in 0..20 {
            bed.is_at(&other, &none, "host 2 has named the other source");
        }
        assert_eq!(bed.table("mdb")["used"].as_u64(), Some(2), "the group, and its source");
        let three = bed.join(3, GROUP);
        bed.goes_to(&other, &[3]);
        for _ in 0..20 {
            bed.is_at(&stream, &[2, 3], "both want this source");
            bed.is_at(&other, &[3], "host 3 wants all sources");
        }
        drop(three);
        bed.goes_to(&other, &none);
        bed.is_at(&stream, &[2], "host 3 has left");
        // A member that excludes a source gets the packets of all other sources.
        let Some(_three) = SourceMember::new(&bed.rig.hosts[2], GROUP, "10.0.0.1", true) else { return };
        bed.goes_to(&other, &[3]);
        bed.goes_to(&stream, &[2]);
        drop(two);
        bed.goes_to(&stream, &none);
        bed.is_at(&other, &[3], "host 2 has left");
    });
}

#[test]
fn a_daemon_that_is_killed_leaves_the_groups_in_the_chip() {
    crate::check(|| {
        let mut bed = Watched::new("");
        let stream = packet(GROUP);
        let _two = bed.join(2, GROUP);
        bed.goes_to(&stream, &[2]);
        for _ in 0..2 {
            bed.rig.kill_daemon();
            for _ in 0..50 {
                bed.is_at(&stream, &[2], "without a daemon");
            }
            bed.rig.start();
            for _ in 0..200 {
                bed.is_at(&stream, &[2], "with a new daemon");
            }
        }
        let groups = bed.rig.show("show ip igmp snooping groups");
        let row =
            groups["groups"].as_array().and_then(|all| all.iter().find(|row| row["group"] == "239.1.1.1"));
        assert_eq!(row.map(|row| row["ports"].clone()), Some(serde_json::json!(["swp2"])), "{groups}");
        // Other hosts can join the group that the new daemon has taken over.
        let _three = bed.join(3, GROUP);
        bed.goes_to(&stream, &[2, 3]);
    });
}

/// When the chip's watchdog expires, it floods groups: members still get each frame, and hosts that join without a daemon get the
/// group as well.
#[test]
fn without_a_daemon_the_chip_floods_groups_in_the_end() {
    crate::check(|| {
        // A querier finds the members after the restart.
        let mut bed = Watched::new(
            "ip igmp snooping querier\nip igmp snooping querier address 10.0.0.254\n\
             ip igmp snooping tcn flood query count 1",
        );
        let stream = packet(GROUP);
        let _two = bed.join(2, GROUP);
        bed.goes_to(&stream, &[2]);
        bed.rig.kill_daemon();
        let begin = Instant::now();
        bed.is_at(&stream, &[2], "the daemon has just ended");
        let mut flooded = None;
        wait_for("the group at both hosts", || {
            let found = bed.receivers(&stream);
            assert!(found.contains(&2), "a member misses a frame: {found:?}");
            flooded = (found == [2, 3]).then(|| begin.elapsed());
            flooded
        });
        // The daemon restarts the watchdog of 10 s every 3 s.
        let flooded = flooded.expect("waited for");
        println!("flooded {flooded:?} after the end of the daemon");
        assert!(flooded > Duration::from_secs(6), "a restart takes no longer");
        bed.rig.start();
        wait_for("the group at host 2 alone", || {
            let found = bed.receivers(&stream);
            assert!(found.contains(&2), "a member misses a frame: {found:?}");
            (found == [2]).then_some(())
        });
        let _three = bed.join(3, GROUP);
        bed.goes_to(&stream, &[2, 3]);
    });
}

#[test]
fn the_software_plane_takes_over_the_groups() {
    crate::check(|| {
        let bed = Watched::new("");
        let stream = packet(GROUP);
        let _two = bed.join(2, GROUP);
        bed.goes_to(&stream, &[2]);
        bed.rig.kill_chip();
        bed.goes_to(&stream, &[2]);
        let _three = bed.join(3, GROUP);
        bed.goes_to(&stream, &[2, 3]);
    });
}

/// More groups than the table has room for: those without an entry are flooded, and get their entries when others leave.
#[test]
fn groups_without_room_are_flooded_until_there_is_room() {
    const A_REPORT: u16 = 100;
    crate::check(|| {
        let bed = Watched::new("");
        let size = bed.table("mdb")["size"].as_u64().expect("a number") as u32;
        // CHANGE_TO_EXCLUDE_MODE without sources joins. The hash table is full before its last entry is used.
        let mut joined = 0;
        let logged = || bed.rig.printed().contains("%SNOOPING-4-TABLE_FULL");
        while !logged() {
            assert!(joined < 2 * size, "{joined} groups in a table of {size}");
            for _ in 0..5 {
                bed.wires[1].send(&report(4, joined, A_REPORT)).expect("sent");
                joined += u32::from(A_REPORT);
            }
            wait_for("the reports to be read", || {
                let all = bed.rig.show("show ip igmp snooping groups");
                let groups = all["groups"].as_array().map_or(0, Vec::len);
                (groups as u32 >= joined).then_some(())
            });
        }
        bed.goes_to(&packet(OTHER), &[2, 3]);
        // Each group with members goes to host 2 alone, or to all hosts.
        let flooded = (0..joined).rev().find(|n| match bed.receivers(&packet(numbered(*n)))[..] {
            [2] => false,
            [2, 3] => true,
            ref other => panic!("group {n} at hosts {other:?}"),
        });
        let flooded = flooded.expect("a group that is flooded");
        assert!(bed.table("mdb")["refused"].as_u64() > Some(0));
        // CHANGE_TO_INCLUDE_MODE leaves: all groups but the flooded one.
        for (first, end) in [(0, flooded), (flooded + 1, joined)] {
            for first in (first..end).step_by(A_REPORT.into()) {
                let count = u16::try_from(end - first).unwrap_or(A_REPORT).min(A_REPORT);
                bed.wires[1].send(&report(3, first, count)).expect("sent");
            }
        }
        bed.goes_to(&packet(numbered(flooded)), &[2]);
        bed.goes_to(&packet(OTHER), &[]);
    });
}

/// The software plane has more room than the chip to which the switch returns. A group for which the chip has no room is flooded
/// for all sources, and limited to its members when there is room.
#[test]
fn a_chip_with_less_room_floods_groups_whole() {
    const A_REPORT: u16 = 100;
    crate::check(|| {
        let bed = Watched::new("");
        let size = bed.table("mdb")["size"].as_u64().expect("a number") as u32;
        bed.rig.kill_chip();
        // ALLOW_NEW_SOURCES: each group takes one entry for the source, and one for all other sources.
        let joined = (size / 2 + 500).next_multiple_of(A_REPORT.into());
        for first in (0..joined).step_by(A_REPORT.into()) {
            bed.wires[1].send(&report_sources(5, first, A_REPORT, &[SOURCE])).expect("sent");
            let used =
                || bed.table("mdb")["used"].as_u64() >= Some(2 * u64::from(first + u32::from(A_REPORT)));
            wait_for("the groups in the software plane", || used().then_some(()));
        }
        let (mine, other) =
            (|n: u32| packet_from(SOURCE, numbered(n)), |n: u32| packet_from(OTHER_SOURCE, numbered(n)));
        let none: [usize; 0] = [];
        bed.is_at(&mine(joined - 1), &[2], "in the software plane");
        bed.is_at(&other(joined - 1), &none, "in the software plane");
        let mut chip = Reaped(bed.rig.start_chip());
        wait_for("the chip", || bed.rig.printed().contains("%PLANE-5-CHIPUP").then_some(()));
        wait_for("the report", || bed.rig.printed().contains("%SNOOPING-4-TABLE_FULL").then_some(()));
        bed.rig.reaches(1, "10.0.0.2");
        bed.rig.reaches(1, "10.0.0.3");
        // A VLAN that floods the groups without room floods all groups without an entry, so those without members as well.
        bed.goes_to(&packet(OTHER), &[2, 3]);
        let mut flooded = Vec::new();
        // The groups that joined last have found less room than the first ones.
        for n in (0..100).chain((0..joined).rev()) {
            match (&bed.receivers(&mine(n))[..], &bed.receivers(&other(n))[..]) {
                ([2], []) => {}
                ([2, 3], [2, 3]) => flooded.push(n),
                found => panic!("group {n} is in the chip in part: {found:?}"),
            }
            if flooded.len() == 20 {
                break;
            }
        }
        assert!(!flooded.is_empty(), "{joined} groups of two entries in a table of {size}");
        // CHANGE_TO_INCLUDE_MODE without sources leaves: all groups but one that is flooded.
        let kept = flooded[0];
        for (first, end) in [(0, kept), (kept + 1, joined)] {
            for first in (first..end).step_by(A_REPORT.into()) {
                let count = u16::try_from(end - first).unwrap_or(A_REPORT).min(A_REPORT);
                bed.wires[1].send(&report(3, first, count)).expect("sent");
            }
        }
        // Wait for the end of the leaves: the queries that they cause fill the queue of host 2's port, and a mark could be lost.
        wait_for("the leaves", || (bed.table("mdb")["used"].as_u64() <= Some(2)).then_some(()));
        bed.goes_to(&mine(kept), &[2]);
        bed.goes_to(&other(kept), &none);
        bed.goes_to(&packet(OTHER), &none);
        chip.kill();
    });
}

/// The figures of docs/offload.md, "Multicast groups".
#[test]
fn ten_thousand_groups_are_joined_on_a_chip() {
    const GROUPS: u32 = 10_000;
    const A_REPORT: u16 = 100;
    crate::check(|| {
        let bed = Watched::on("spectrum-like.toml", "");
        let used = || bed.table("mdb")["used"].as_u64().expect("a number");
        let mut quickest = Duration::MAX;
        for round in 1..=3 {
            let [joined, left] = [(4, u64::from(GROUPS)), (3, 0)].map(|(kind, wanted)| {
                let begin = Instant::now();
                for first in (0..GROUPS).step_by(A_REPORT.into()) {
                    bed.wires[1].send(&report(kind, first, A_REPORT)).expect("sent");
                }
                wait_for("the entries", || (used() == wanted).then(|| begin.elapsed()))
            });
            println!("round {round}: {GROUPS} groups joined in {joined:?}, left in {left:?}");
            quickest = quickest.min(joined);
        }
        let per_second = f64::from(GROUPS) / quickest.as_secs_f64();
        println!("{per_second:.0} joins per second; the bus takes {} us for each", 60);
        // Each entry is a write of 60 us.
        assert!(quickest > Duration::from_micros(60) * GROUPS, "{quickest:?}: faster than the bus");
        assert!(quickest < Duration::from_secs(10), "{quickest:?}");
    });
}
