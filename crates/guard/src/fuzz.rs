//! The fuzz target of the crate: hostile frames at every kind of port.

use crate::{Action, Config, PortConfig, Snooper, describe};
use lanyard_types::{MAX_BINDINGS, MacAddr, PortId, PortSet, VlanId};

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
            if let Action::Send { ports, frame, from, .. } = action {
                assert!(!ports.contains(from), "a message goes back to its port");
                assert!(frame.len() >= 42, "a message of {} bytes", frame.len());
            }
        }
        assert!(snooper.leases().count() <= MAX_BINDINGS);
        let _ = describe(frame);
    }
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
    }
}
