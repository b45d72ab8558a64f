//! The fuzz target of the crate: hostile frames at every kind of port, to DHCP snooping and to ND inspection.

use crate::discovery::message;
use crate::{Action, Config, Inspector, NdConfig, NdPort, PortConfig, Snooper, describe};
use lanyard_types::{MAX_BINDINGS, MacAddr, PortId, PortSet, VlanId};
use std::net::Ipv6Addr;

/// Feeds `bytes` as frames, each with a byte for its port and two for its length, and checks the crate's invariants.
///
/// # Panics
/// When an invariant is violated.
pub fn fuzz(bytes: &[u8]) {
    let ports: Vec<PortId> = (1..=4).filter_map(PortId::new).collect();
    let vlan = VlanId::DEFAULT;
    let mut snooper = Snooper::default();
    snooper.configure(Config {
        vlans: [(vlan, ports.iter().copied().collect::<PortSet>())].into(),
        ports: ports.iter().map(|port| (*port, PortConfig { trusted: port.get() > 2 })).collect(),
        insert_option: true,
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        ..Config::default()
    });
    let mut inspector = Inspector::default();
    let nd_port =
        |port: &PortId| (*port, NdPort { trusted: port.get() > 2, limit: 2, private: port.get() == 2 });
    inspector.configure(NdConfig {
        vlans: [(vlan, ports.iter().copied().collect::<PortSet>())].into(),
        ports: ports.iter().map(nd_port).collect(),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        ..NdConfig::default()
    });
    let mut inspected = 0;
    let (mut rest, mut now) = (bytes, 0);
    while let [port, high, low, tail @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        let (frame, next) = tail.split_at(len);
        rest = next;
        now += u64::from(*port) * 1000;
        let from = ports[usize::from(*port) % ports.len()];
        snooper.handle_frame(now, vlan, from, frame);
        snooper.handle_timer(now);
        while let Some(action) = snooper.poll_action() {
            if let Action::Send { ports, frame, from: Some(from), .. } = action {
                assert!(!ports.contains(from), "a message goes back to its port");
                assert!(frame.len() >= 42, "a message of {} bytes", frame.len());
            }
        }
        assert!(snooper.leases().count() <= MAX_BINDINGS);
        // A byte for the port from 128 on makes the frame a valid message, mostly, so that the states are reached.
        let message = if *port < 128 { frame.to_vec() } else { discover(frame) };
        inspector.handle_frame(now, vlan, from, &message);
        inspector.handle_timer(now);
        inspected += 1;
        while let Some(action) = inspector.poll_action() {
            if let Action::Send { ports, from: Some(from), .. } = action {
                assert!(!ports.contains(from), "a message goes back to its port");
            }
        }
        let counted = inspector.counters().forwarded + inspector.counters().dropped.iter().sum::<u64>();
        assert_eq!(counted + inspector.waiting() as u64, inspected, "every message is counted once");
        assert!(
            ports.iter().all(|port| inspector.count(*port) <= 2),
            "a port has no more addresses than its limit"
        );
        let _ = describe(frame);
    }
}

/// A message of neighbour discovery whose kind, addresses and sender are chosen by `bytes`.
fn discover(bytes: &[u8]) -> Vec<u8> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let address = |byte: u8| match byte % 4 {
        0 => Ipv6Addr::UNSPECIFIED,
        n => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n.into()),
    };
    let kind = [133, 135, 136][usize::from(byte(0) % 3)];
    let target = address(byte(3));
    let [.., last] = target.octets();
    let groups = [
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, last.into()),
        address(byte(4)),
    ];
    let to = groups[usize::from(byte(1) % 3)];
    let mac = MacAddr([2, 0, 0, 0, 0, byte(5) % 3]);
    message(kind, mac, [address(byte(2)), to], target, bytes.get(6..14).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::fuzz;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn hostile_frames_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
            fuzz(&bytes);
        }
        #[test]
        fn hosts_that_claim_the_same_addresses(claims in prop::collection::vec((128u8.., any::<[u8; 6]>()), 0..200)) {
            let frames = claims.into_iter().flat_map(|(port, claim)| [vec![port, 0, 6], claim.to_vec()].concat());
            fuzz(&frames.collect::<Vec<u8>>());
        }
    }
}
