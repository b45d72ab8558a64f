//! The entry point for fuzzers: arbitrary bytes drive two channels of four ports through their public inputs.
//!
//! Invariant: no input panics, and every call leaves a bounded number of actions.

use crate::config::{ChannelConfig, Config, Mode, PortConfig};
use crate::lacp::Lacp;
use crate::pdu::{self, Lacpdu};
use lanyard_types::{MacAddr, PortId};

const PORTS: u16 = 4;
/// For each port a frame, a response and some events, and two channels.
const MAX_ACTIONS: usize = 64;

/// Runs records of `op, port, length, bytes`. Panics only for a bug.
pub fn fuzz(data: &[u8]) {
    let _ = pdu::decode(data);
    if let Ok(pdu) = pdu::decode_lacpdu(data) {
        let frame = pdu::encode(MacAddr([2, 0, 0, 0, 0, 1]), &pdu);
        assert_eq!(pdu::decode(&frame).map(|(_, pdu)| pdu), Ok(pdu::Pdu::Lacp(pdu)));
    }
    let mut lacp = Lacp::new();
    let mut config =
        Config { system: MacAddr([2, 0, 0, 0, 0, 1]), system_priority: 32768, ..Config::default() };
    for id in (1..=PORTS).filter_map(PortId::new) {
        let channel = 1 + id.index() as u16 % 2;
        config.ports.insert(id, PortConfig { channel, fast: channel == 1, ..PortConfig::default() });
    }
    lacp.configure(0, config.clone());
    let mut now = 0u64;
    let mut rest = data;
    while let [op, port, length, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        let Some(id) = PortId::new(u16::from(*port) % PORTS + 1) else { continue };
        match op % 5 {
            0 => drop(lacp.handle_frame(now, id, bytes)),
            1 => drop(lacp.handle_frame(now, id, &answer(&lacp, id, bytes))),
            2 => lacp.handle_link(now, id, length % 4 != 0),
            3 => {
                now += u64::from(*length) * 100;
                lacp.handle_timer(now);
            }
            _ => {
                let mode = [Mode::Active, Mode::Passive, Mode::On][usize::from(*length) % 3];
                if let Some(port) = config.ports.get_mut(&id) {
                    (port.mode, port.channel) = (mode, 1 + u16::from(*length) % 3);
                }
                let (min_links, max_bundle) = (1 + length % 2, 1 + length % 8);
                config.channels.insert(1, ChannelConfig { min_links, max_bundle });
                lacp.configure(now, config.clone());
            }
        }
        let actions = std::iter::from_fn(|| lacp.poll_action()).take(MAX_ACTIONS + 1).count();
        assert!(actions <= MAX_ACTIONS, "unbounded actions");
    }
}

/// A frame of a partner that knows the port, with its state and priorities from `bytes`: so a fuzzer gets to COLLECTING
/// and DISTRIBUTING.
fn answer(lacp: &Lacp, id: PortId, bytes: &[u8]) -> Vec<u8> {
    let partner = lacp.port(id).map(|port| port.actor).unwrap_or_default();
    let mut actor = partner;
    actor.system = MacAddr([2, 0, 0, 0, 0, 9]);
    if let [state, priority, key, ..] = bytes {
        actor.state.0 = *state;
        actor.port_priority = u16::from(*priority);
        actor.key = u16::from(key % 2);
    }
    pdu::encode(MacAddr([2, 0, 0, 0, 0, 9]), &Lacpdu { actor, partner, max_delay: 0 })
}
