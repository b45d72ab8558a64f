//! The entry point for fuzzers: arbitrary bytes drive discovery on three ports through its public inputs.
//!
//! Invariant: no input panics, every call leaves a bounded number of actions, and a frame that is refused is counted and changes
//! nothing else.

use crate::config::{Cdp, Config, Lldp, PortConfig};
use crate::discovery::Discovery;
use crate::neighbours::{MAX_NEIGHBOURS, Neighbour, Protocol};
use crate::receive::Counters;
use lanyard_types::{MacAddr, PortId};

const PORTS: u16 = 3;
/// The most actions that one call may leave: frames and events of each port, and all neighbours removed at once.
const MAX_ACTIONS: usize = MAX_NEIGHBOURS + 64;

/// Runs records of `op, port, length, bytes`. Panics only for a bug.
pub fn fuzz(data: &[u8]) {
    let _ = crate::pdu::decode(data);
    let _ = crate::pdu::decode_pdu(data).map(|pdu| crate::pdu::encode_pdu(&pdu));
    let _ = crate::cdp::decode(data);
    let _ = crate::cdp::decode_packet(data).map(|pdu| crate::cdp::encode_packet(&pdu));
    let mut discovery = Discovery::new();
    let mut config = Config { lldp: Some(Lldp::default()), cdp: Some(Cdp::default()), ..Config::default() };
    for id in (1..=PORTS).filter_map(PortId::new) {
        let name = format!("eth{id}");
        config.ports.insert(
            id,
            PortConfig { cdp: true, name, mac: MacAddr([2, 0, 0, 0, 0, 1]), ..PortConfig::default() },
        );
    }
    discovery.configure(0, config.clone());
    let mut now = 0u64;
    let mut rest = data;
    while let [op, port, length, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        let Some(id) = PortId::new(u16::from(*port) % PORTS + 1) else { continue };
        match op % 6 {
            0 => receive(&mut discovery, now, id, bytes),
            1 => receive(&mut discovery, now, id, &lldp_frame(bytes)),
            2 => receive(&mut discovery, now, id, &cdp_frame(bytes)),
            3 => discovery.handle_link(now, id, length % 4 != 0),
            4 => {
                now += u64::from(*length) * 500;
                discovery.handle_timer(now);
            }
            _ => {
                config.lldp = (length % 2 == 0).then(Lldp::default);
                config.cdp = (length % 3 == 0).then(Cdp::default);
                discovery.configure(now, config.clone());
            }
        }
        let actions = std::iter::from_fn(|| discovery.poll_action()).take(MAX_ACTIONS + 1).count();
        assert!(actions <= MAX_ACTIONS, "unbounded actions");
    }
}

/// Hands over a frame; one that is refused must not change anything but its counters.
fn receive(discovery: &mut Discovery, now: u64, id: PortId, frame: &[u8]) {
    let errors = |of: &Discovery| -> u64 {
        let counters = [Protocol::Lldp, Protocol::Cdp].map(|protocol| of.counters(id, protocol));
        counters.iter().flatten().map(Counters::in_error).sum()
    };
    let state = |of: &Discovery| {
        let known: Vec<Neighbour> = of.neighbours().cloned().collect();
        let states: Vec<_> = (1..=PORTS).filter_map(PortId::new).map(|id| of.states(id)).collect();
        (known, states, of.next_timeout())
    };
    let (before, counted) = (state(discovery), errors(discovery));
    let refused = discovery.handle_frame(now, id, frame).err();
    assert_eq!(errors(discovery), counted + u64::from(refused.is_some()), "{refused:?} is counted once");
    if refused.is_some() {
        assert!(state(discovery) == before, "{refused:?} has changed the state");
    }
}

/// Puts valid headers and the mandatory TLVs in front of `bytes`, so that a fuzzer gets past them.
fn lldp_frame(bytes: &[u8]) -> Vec<u8> {
    let mut frame = [MacAddr::LLDP.0, [2, 0, 0, 0, 0, 9]].concat();
    frame.extend([0x88, 0xcc, 2, 2, 7, b'a', 4, 2, 5, b'b', 6, 2, 0, 9]);
    frame.extend(bytes);
    frame
}

/// Puts valid headers, a device ID and a right checksum around `bytes`.
fn cdp_frame(bytes: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, 9, 0, 0, 0, 1, 0, 5, b'a'];
    packet.extend(bytes);
    if packet.len() % 2 == 1 {
        packet.push(0);
    }
    let sum = !lanyard_wire::ip::ones_complement_sum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = [MacAddr::CISCO_DISCOVERY.0, [2, 0, 0, 0, 0, 9]].concat();
    frame.extend((packet.len() as u16 + 8).to_be_bytes());
    frame.extend([0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0]);
    frame.extend(packet);
    frame
}
