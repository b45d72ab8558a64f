//! The entry point for fuzzers: arbitrary bytes drive a small bridge through its public inputs.
//!
//! Invariant: no input panics, and every call leaves a bounded number of actions.

use crate::bridge::{Bridge, Duplex};
use crate::config::{Config, Mode, MstRegion, PortConfig, PortVlans};
use lanyard_types::{MacAddr, PortId, VlanId, VlanSet};

/// The number of ports of the bridge under test.
const PORTS: u16 = 4;
/// The maximum number of actions that one input may leave: states, events and BPDUs of 4 ports in 4 trees,
/// several times.
const MAX_ACTIONS: usize = 4096;

/// Runs the input. The first byte selects the mode; records of `op, port, length, bytes` follow. Panics only
/// for a bug.
pub fn fuzz(data: &[u8]) {
    let _ = crate::bpdu::decode(data);
    let _ = crate::bpdu::decode_bpdu(data);
    let Some((mode, mut rest)) = data.split_first() else { return };
    let Some(mut bridge) = bridge(*mode) else { return };
    let mut now = 0u64;
    while let [op, port, length, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        let Some(id) = PortId::new(u16::from(*port) % PORTS + 1) else { continue };
        match op % 6 {
            0 | 1 => drop(bridge.handle_bpdu(now, id, bytes)),
            2 => drop(bridge.handle_bpdu(now, id, &framed(bytes))),
            3 => {
                let half = if length % 2 == 1 { Duplex::Half } else { Duplex::Full };
                bridge.handle_link(now, id, length % 4 != 0, Some(u32::from(*length) * 100), half);
            }
            4 => {
                now += u64::from(*length) * 50;
                bridge.handle_timer(now);
            }
            _ => bridge.handle_mcheck(now, Some(id)),
        }
        let actions = std::iter::from_fn(|| bridge.poll_action()).take(MAX_ACTIONS + 1).count();
        assert!(actions <= MAX_ACTIONS, "unbounded actions");
    }
}

/// Puts valid headers in front of a BPDU, so that a fuzzer gets past them.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = MacAddr::BRIDGE_GROUP.0.to_vec();
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend((bytes.len() as u16 + 3).to_be_bytes());
    frame.extend([0x42, 0x42, 0x03]);
    frame.extend(bytes);
    frame
}

fn bridge(mode: u8) -> Option<Bridge> {
    let mode = [Mode::Stp, Mode::Rstp, Mode::Mst, Mode::Pvst, Mode::RapidPvst][usize::from(mode) % 5];
    let mut config = Config::new(mode, MacAddr([2, 0, 0, 0, 0, 1]));
    let vlan = |id| VlanId::new(id).map(|vlan| [vlan].into_iter().collect::<VlanSet>());
    config.vlans = "1-3".parse().ok()?;
    config.mst = MstRegion {
        name: "fuzz".into(),
        revision: 1,
        instances: [(1, vlan(1)?), (2, vlan(2)?), (3, vlan(3)?)].into(),
    };
    for port in (1..=PORTS).filter_map(PortId::new) {
        let vlans = PortVlans::Trunk { native: VlanId::DEFAULT, allowed: VlanSet::all() };
        config.ports.insert(port, PortConfig { vlans, ..PortConfig::default() });
    }
    let mut bridge = Bridge::new(0, config).ok()?;
    for port in (1..=PORTS).filter_map(PortId::new) {
        bridge.handle_link(0, port, true, Some(1000), Duplex::Full);
    }
    Some(bridge)
}
