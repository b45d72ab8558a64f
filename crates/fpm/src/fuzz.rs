//! The entry point for fuzzers, and the properties that hold for any input.
//!
//! Invariants: no input panics; a receiver of the updates has the next hops of each route at any time.

use crate::{Limits, NextHopSet, NextHopSetId, Offload, Route, Server, Timers, Update};
use ipnet::IpNet;
use std::collections::BTreeMap;

/// Small limits, so that a fuzzer reaches them.
const LIMITS: Limits = Limits { routes: 8, nexthops: 6 };

/// Runs `data` as records of `op, length, bytes`: bytes from the client, passing time, sessions, and answers of the
/// plane. A panic means a bug.
pub fn fuzz(data: &[u8]) {
    let mut server = Server::new(LIMITS, Timers { quiet_ms: 50, hold_ms: 200 });
    let mut mirror = Mirror::default();
    let (mut now, mut rest) = (0, data);
    server.connected(now);
    while let [op, length, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        match op % 8 {
            0 => server.connected(now),
            1 => server.disconnected(now),
            2 => server.sent(usize::from(*length)),
            3 if *length == 0 => {
                server.announce_all();
                mirror = Mirror::default();
            }
            3 => now += u64::from(*length),
            op => {
                // Most records get a valid frame header, so that the fuzzer reaches the code behind it.
                let framed = if op == 4 { bytes.to_vec() } else { framed(bytes) };
                if server.input(now, &framed).is_err() {
                    server.disconnected(now);
                }
            }
        }
        server.handle_timer(now);
        mirror.follow(server.updates());
        assert_eq!(mirror.routes.len(), server.routes(), "a route was not announced");
        assert!(server.routes() <= LIMITS.routes && server.next_hop_sets() <= LIMITS.nexthops, "unbounded");
        let known =
            [Offload::Offloaded, Offload::Trapped, Offload::Failed].map(|o| server.routes_that_are(o));
        assert!(known.iter().sum::<usize>() <= server.routes(), "{known:?}");
        for (at, dest) in mirror.routes.keys().enumerate() {
            server.offload(*dest, [Offload::Offloaded, Offload::Trapped, Offload::Failed][at % 3]);
        }
    }
}

/// A receiver of the updates, as the switch is.
#[derive(Debug, Default)]
struct Mirror {
    next_hop_sets: BTreeMap<NextHopSetId, NextHopSet>,
    routes: BTreeMap<IpNet, Route>,
}

impl Mirror {
    fn follow(&mut self, updates: Vec<Update>) {
        for update in updates {
            match update {
                Update::NextHops(id, next_hops) => drop(self.next_hop_sets.insert(id, next_hops)),
                Update::Route(dest, Some(route)) => {
                    assert!(
                        self.next_hop_sets.contains_key(&route.next_hops),
                        "{dest} uses an unknown next-hop set"
                    );
                    self.routes.insert(dest, route);
                }
                Update::Route(dest, None) => drop(self.routes.remove(&dest)),
                Update::NextHopsRemoved(id) => {
                    assert!(self.next_hop_sets.remove(&id).is_some(), "an unknown next-hop set was removed");
                    let user = self.routes.iter().find(|(_, route)| route.next_hops == id);
                    assert!(user.is_none(), "{user:?} uses a removed next-hop set");
                }
            }
        }
    }
}

/// Wraps `bytes` in a frame and a netlink header of one of the four message types that the server reads.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let Some((kind, body)) = bytes.split_first() else { return Vec::new() };
    let kind = [24u16, 25, 104, 105][usize::from(kind % 4)];
    let mut frame = vec![1, 1];
    frame.extend((20 + body.len() as u16).to_be_bytes());
    frame.extend((16 + body.len() as u32).to_ne_bytes());
    frame.extend(kind.to_ne_bytes());
    frame.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    frame.extend(body);
    frame
}
