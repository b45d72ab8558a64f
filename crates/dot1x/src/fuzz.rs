//! The fuzz target of the crate: frames of hostile hosts, and a server's datagrams with and without the right key.

use crate::radius::{Attributes, Code, respond};
use crate::{Action, Authenticator, Config, Control, HostMode, MAX_HOSTS, PortConfig, Server};
use lanyard_types::{MacAddr, PortId, VlanId};
use std::net::SocketAddr;

const KEY: &[u8] = b"key";

/// Feeds `bytes` as frames of hosts and datagrams of a server, each with a byte for its kind and two for its length, and checks
/// the crate's invariants.
///
/// # Panics
/// When an invariant is violated.
pub fn fuzz(bytes: &[u8]) {
    let ports: Vec<PortId> = (1..=3).filter_map(PortId::new).collect();
    let server = SocketAddr::from(([10, 0, 0, 1], 1812));
    let mut authenticator = Authenticator::new([1; 16]);
    let modes = [HostMode::Single, HostMode::Multi, HostMode::MultiAuth];
    let port = |(id, host_mode): (&PortId, HostMode)| {
        let (control, name) = (Control::Auto, format!("eth{id}"));
        (
            *id,
            PortConfig {
                name,
                up: true,
                control,
                host_mode,
                eap: true,
                mab: id.get() > 1,
                ..PortConfig::default()
            },
        )
    };
    authenticator.configure(
        0,
        Config {
            ports: ports.iter().zip(modes).map(port).collect(),
            servers: vec![Server { address: server, key: KEY.to_vec(), timeout_ms: 5000, retransmit: 1 }],
            vlans: [(VlanId::DEFAULT, "default".into())].into(),
            ..Config::default()
        },
    );
    let (mut rest, mut now) = (bytes, 0);
    let mut asked: Vec<Vec<u8>> = Vec::new();
    while let [kind, high, low, tail @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        let (data, next) = tail.split_at(len);
        rest = next;
        now += u64::from(*kind) * 100;
        let port = ports[usize::from(*kind) % ports.len()];
        match kind >> 5 {
            0 => authenticator.handle_datagram(now, server, data),
            1 => {
                let mac = data.first_chunk().map_or(MacAddr([2, 0, 0, 0, 0, *kind]), |mac| MacAddr(*mac));
                authenticator.handle_host(now, port, mac);
            }
            2 => {
                if let Some(request) = asked.pop() {
                    let code = [Code::Accept, Code::Reject, Code::Challenge][usize::from(*kind) % 3];
                    let mut of = Attributes::default();
                    of.eap(data);
                    authenticator.handle_datagram(now, server, &respond(&request, KEY, code, &of));
                }
            }
            _ => authenticator.handle_eapol(now, port, data),
        }
        authenticator.handle_timer(now);
        while let Some(action) = authenticator.poll_action() {
            match action {
                Action::Ask(to, packet) => {
                    assert_eq!(to, server);
                    asked.push(packet);
                }
                Action::Send(_, frame) => {
                    assert!((60..=1514).contains(&frame.len()), "{} bytes", frame.len())
                }
                Action::Shut(_) | Action::Log(_) => {}
            }
        }
        let sessions = authenticator.sessions();
        for (port, mode) in ports.iter().zip(modes) {
            let here = sessions.iter().filter(|session| session.port == *port);
            assert!(here.clone().count() <= MAX_HOSTS);
            let granted = here.filter(|session| session.grant.is_some()).count();
            assert!(mode == HostMode::MultiAuth || granted <= 1, "{granted} hosts at a port for one");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fuzz;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn hostile_input_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
            fuzz(&bytes);
        }
    }
}
