//! The entry point for fuzzers: arbitrary bytes drive snooping in one VLAN through its public inputs.
//!
//! Invariant: no input panics, every call leaves a bounded number of actions, and a frame that is refused is counted and changes
//! nothing else.

use crate::config::{Config, Querier, VlanConfig};
use crate::message::Family;
use crate::snooping::Snooping;
use lanyard_types::{MacAddr, PortId, VlanId};
use lanyard_wire::ip::ones_complement_sum;

const PORTS: u16 = 4;
/// The most actions that one call may leave. A report has room for some 180 groups, each of which may be announced with its
/// sources and queried twice.
const MAX_ACTIONS: usize = 4096;

/// Runs records of `op, port, length, bytes`. Panics only for a bug.
pub fn fuzz(data: &[u8]) {
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let mut snooping = Snooping::new();
    let mut config = Config { mac, ..Config::default() };
    let ports = (1..=PORTS).filter_map(PortId::new).collect();
    let settings = VlanConfig { ports, ..VlanConfig::default() };
    for family in [Family::V4, Family::V6] {
        config.vlans.insert((VlanId::DEFAULT, family), settings.clone());
    }
    snooping.configure(0, config.clone());
    let mut now = 0u64;
    let mut rest = data;
    while let [op, port, length, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        let Some(id) = PortId::new(u16::from(*port) % PORTS + 1) else { continue };
        match op % 8 {
            0 => receive(&mut snooping, now, id, bytes),
            1 => receive(&mut snooping, now, id, &igmp(bytes)),
            2 => receive(&mut snooping, now, id, &mld(bytes)),
            3 => {
                now += u64::from(*length) * 500;
                snooping.handle_timer(now);
            }
            4 => snooping.handle_link_down(id),
            5 => snooping.handle_topology_change(now, VlanId::DEFAULT),
            6 => {
                let frame = if length % 2 == 0 { igmp(bytes) } else { mld(bytes) };
                receive(&mut snooping, now, id, &spoil(frame, bytes));
            }
            _ => {
                let mut settings = settings.clone();
                settings.proxy = length % 5 < 2;
                settings.immediate_leave = length % 2 == 0;
                settings.limits.insert(id, u32::from(*length % 8));
                settings.source_limits.insert(id, u32::from(*length % 5));
                settings.querier = (length % 3 == 0)
                    .then_some(Querier { address: [10, 0, 0, 1].into(), version: 1 + length % 3 });
                config.vlans.insert((VlanId::DEFAULT, Family::V4), settings);
                snooping.configure(now, config.clone());
            }
        }
        let actions = std::iter::from_fn(|| snooping.poll_action()).take(MAX_ACTIONS + 1).count();
        assert!(actions <= MAX_ACTIONS, "unbounded actions");
    }
}

/// Hands over a frame; one that is refused must not change anything but its counter.
fn receive(snooping: &mut Snooping, now: u64, id: PortId, frame: &[u8]) {
    let state = |of: &Snooping| {
        let family = |family| {
            let vlan = VlanId::DEFAULT;
            (
                of.groups(vlan, family),
                of.routers(vlan, family),
                of.querier(vlan, family),
                of.flooded(vlan, family),
            )
        };
        (family(Family::V4), family(Family::V6), of.memberships(), of.next_timeout())
    };
    let errors = |of: &Snooping| -> u64 {
        let counters = [Family::V4, Family::V6].map(|family| of.counters(VlanId::DEFAULT, family));
        counters.iter().flatten().flat_map(|counters| counters.errors).sum()
    };
    let (before, counted) = (state(snooping), errors(snooping));
    let refused = snooping.handle_frame(now, VlanId::DEFAULT, id, frame).err();
    assert_eq!(errors(snooping), counted + u64::from(refused.is_some()), "{refused:?} is counted once");
    if refused.is_some() {
        assert!(state(snooping) == before, "{refused:?} has changed the state");
    }
}

/// Changes one bit of a frame, chosen by the first bytes of `by`.
fn spoil(mut frame: Vec<u8>, by: &[u8]) -> Vec<u8> {
    if let [high, low, bit, ..] = by {
        let at = usize::from(u16::from_be_bytes([*high, *low])) % frame.len();
        frame[at] ^= 1 << (bit % 8);
    }
    frame
}

/// Puts headers with right checksums in front of an IGMP message, so that a fuzzer gets past them. The destination is
/// the group in bytes 4 to 7, where messages of versions 1 and 2 have it.
fn igmp(bytes: &[u8]) -> Vec<u8> {
    let mut message = bytes.to_vec();
    message.resize(message.len().max(8), 0);
    message[2..4].fill(0);
    let sum = !ones_complement_sum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let len = (20 + message.len()) as u16;
    let mut packet = vec![0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 9];
    packet.extend(if message[4] == 0 {
        [224, 0, 0, 1]
    } else {
        [message[4], message[5], message[6], message[7]]
    });
    let sum = !ones_complement_sum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(message);
    lanyard_wire::Builder::new(MacAddr([1, 0, 0x5e, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 9]))
        .ethertype(0x0800)
        .payload(&packet)
        .build()
}

/// Puts headers with right checksums in front of an MLD message, as [`igmp`] does.
fn mld(bytes: &[u8]) -> Vec<u8> {
    let mut message = bytes.to_vec();
    message.resize(message.len().max(24), 0);
    message[2..4].fill(0);
    let source = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let mut to = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    if message[8] == 0xff {
        to.copy_from_slice(&message[8..24]);
    }
    let mut pseudo = [source, to].concat();
    pseudo.extend((message.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, 58]);
    pseudo.extend(&message);
    let sum = !ones_complement_sum(&pseudo);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let len = (8 + message.len()) as u16;
    let mut packet = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, 0, 1];
    packet.extend(source);
    packet.extend(to);
    packet.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    packet.extend(message);
    lanyard_wire::Builder::new(MacAddr([0x33, 0x33, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 9]))
        .ethertype(0x86dd)
        .payload(&packet)
        .build()
}
