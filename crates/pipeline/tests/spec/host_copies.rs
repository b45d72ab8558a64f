//! Copies for the kernel's stack at a VLAN interface: each is policed by the trap group of its kind, and the other ports of the
//! flood get their copies even if it is dropped.

use crate::support::{BROADCAST, base, describe, host, pipeline, port, vlan};
use lanyard_pipeline::state::{FdbTarget, PlaneState, TrapRate};
use lanyard_pipeline::tables::trap::TrapCounters;
use lanyard_pipeline::{Output, Pipeline, Timestamp};
use lanyard_types::{MacAddr, TrapGroup};
use lanyard_wire::Builder;

/// A frame from host 101 that arrives at port 1.
fn frame(dst: MacAddr, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    Builder::new(dst, host(101)).ethertype(ethertype).payload(packet).build()
}

/// An IPv6 packet with this next header and first octet of payload.
fn ipv6(next: u8, first: u8) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, next, 255];
    packet.resize(40, 0);
    packet.extend([first, 0, 0, 0, 0, 0, 0, 0]);
    packet
}

fn offer(pipeline: &mut Pipeline, frame: &[u8]) -> String {
    let mut out = Output::default();
    let verdict = pipeline.process(Timestamp::default(), port(1), frame, &mut out);
    describe(verdict, &out.sent)
}

const SOLICITED: MacAddr = MacAddr([0x33, 0x33, 0xff, 0, 0, 1]);

#[test]
fn each_copy_counts_in_its_group() {
    let (neighbour, link, flooded) = (TrapGroup::Neighbour, TrapGroup::LinkMulticast, TrapGroup::Flooded);
    let cases = [
        ("ARP to all", frame(BROADCAST, 0x0806, &[0; 28]), Some(neighbour)),
        ("ARP to the interface", frame(host(105), 0x0806, &[0; 28]), Some(neighbour)),
        ("solicitation", frame(SOLICITED, 0x86dd, &ipv6(58, 135)), Some(neighbour)),
        ("first type", frame(SOLICITED, 0x86dd, &ipv6(58, 133)), Some(neighbour)),
        ("last type", frame(SOLICITED, 0x86dd, &ipv6(58, 137)), Some(neighbour)),
        ("type before", frame(SOLICITED, 0x86dd, &ipv6(58, 132)), Some(flooded)),
        ("type behind", frame(SOLICITED, 0x86dd, &ipv6(58, 138)), Some(flooded)),
        ("no ICMPv6", frame(SOLICITED, 0x86dd, &ipv6(17, 135)), Some(flooded)),
        ("cut off", frame(SOLICITED, 0x86dd, &ipv6(58, 135)[..40]), Some(flooded)),
        ("advertisement to the interface", frame(host(105), 0x86dd, &ipv6(58, 136)), Some(neighbour)),
        ("OSPF hello", frame(MacAddr([1, 0, 0x5e, 0, 0, 5]), 0x0800, &[0; 40]), Some(link)),
        ("OSPFv3 hello", frame(MacAddr([0x33, 0x33, 0, 0, 0, 5]), 0x86dd, &ipv6(89, 3)), Some(link)),
        ("another group", frame(MacAddr([1, 0, 0x5e, 0, 1, 5]), 0x0800, &[0; 40]), Some(flooded)),
        ("broadcast", frame(BROADCAST, 0x0800, &[0; 40]), Some(flooded)),
        ("packet to the interface", frame(host(105), 0x0800, &[0; 40]), None),
        ("packet to another host", frame(host(102), 0x0806, &[0; 28]), None),
    ];
    for (what, bytes, want) in cases {
        let mut pipeline = pipeline(&base());
        offer(&mut pipeline, &bytes);
        let counters = pipeline.trap_counters();
        let counted = TrapGroup::ALL.iter().filter(|group| counters[group.index()].passed > 0);
        assert_eq!(counted.copied().collect::<Vec<_>>(), Vec::from_iter(want), "{what}");
    }
}

/// The base switch with room for one frame in each of these groups.
fn one_of(groups: &[TrapGroup]) -> PlaneState {
    let mut state = base();
    for group in groups {
        state.global.trap_port_rate[group.index()] = TrapRate { rate_pps: 1, burst: 1 };
    }
    state
}

#[test]
fn a_copy_over_the_rate_is_left_out() {
    let mut pipeline = pipeline(&one_of(&[TrapGroup::Flooded]));
    let broadcast = frame(BROADCAST, 0x0800, &[0; 40]);
    assert_eq!(offer(&mut pipeline, &broadcast), "2:- 5:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0");
    assert_eq!(offer(&mut pipeline, &broadcast), "2:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0");
    let arp = frame(BROADCAST, 0x0806, &[0; 28]);
    assert_eq!(offer(&mut pipeline, &arp), "2:- 5:- 3:8100.10.0 7:8100.10.0 4:88a8.10.0", "another group");
    let counters = pipeline.trap_counters()[TrapGroup::Flooded.index()];
    assert_eq!(counters, TrapCounters { passed: 1, policed: 1, lost: 0 });
    assert_eq!(pipeline.counters().port(port(5)).tx_dropped, 1);
    assert_eq!(pipeline.counters().port(port(1)).forwarded, 3);
}

#[test]
fn a_frame_whose_only_copy_is_over_the_rate_is_dropped() {
    let mut state = one_of(&[TrapGroup::Neighbour, TrapGroup::Flooded]);
    state.ports.retain(|id, _| [port(1), port(5)].contains(id));
    state.fdb.retain(|_, target| matches!(target, FdbTarget::Static(at) if [port(1), port(5)].contains(at)));
    state.vlans.retain(|id, _| *id == vlan(10));
    let mut pipeline = pipeline(&state);
    for dst in [BROADCAST, host(105)] {
        let arp = frame(dst, 0x0806, &[0; 28]);
        offer(&mut pipeline, &arp);
        assert_eq!(offer(&mut pipeline, &arp), "dropped trap_policed", "{dst}");
    }
    let broadcast = frame(BROADCAST, 0x0800, &[0; 40]);
    assert_eq!(offer(&mut pipeline, &broadcast), "5:-");
    assert_eq!(offer(&mut pipeline, &broadcast), "dropped trap_policed");
}
