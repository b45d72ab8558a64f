//! The entry point for fuzzers: arbitrary bytes drive two channels of four ports through their public inputs.
//!
//! Invariant: no input panics, every call leaves a bounded number of actions, and a frame that is refused is counted and changes
//! nothing else.

use crate::config::{ChannelConfig, Config, Mode, PortConfig};
use crate::lacp::{Lacp, PortView};
use crate::pdu::{self, Lacpdu};
use crate::port::Counters;
use lanyard_types::{MacAddr, PortId};

const PORTS: u16 = 4;
/// The most actions that one call may leave: for each port a frame, a response and some events, and two channels.
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
            0 => receive(&mut lacp, now, id, bytes),
            1 => {
                let frame = answer(&lacp, id, bytes);
                receive(&mut lacp, now, id, &frame);
            }
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

/// Hands over a frame; one that is refused must not change anything but its counter.
fn receive(lacp: &mut Lacp, now: u64, id: PortId, frame: &[u8]) {
    let errors = |of: &Lacp| of.port(id).map_or(0, |port| port.counters.errors.iter().sum::<u64>());
    let state = |of: &Lacp| {
        let ports = (1..=PORTS).filter_map(PortId::new).filter_map(|id| of.port(id));
        let plain = |mut port: PortView| {
            port.counters = Counters { errors: Default::default(), ..port.counters };
            port
        };
        (ports.map(plain).collect::<Vec<_>>(), of.bundled(), of.next_timeout())
    };
    let (before, counted) = (state(lacp), errors(lacp));
    let refused = lacp.handle_frame(now, id, frame).err();
    assert_eq!(errors(lacp), counted + u64::from(refused.is_some()), "{refused:?} is counted once");
    if refused.is_some() {
        assert!(state(lacp) == before, "{refused:?} has changed the state");
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
