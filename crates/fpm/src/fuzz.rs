//! An entry for fuzzers, and what holds whatever a client sends.
//!
//! Invariant: no input panics; who follows the updates knows at every time which way each route goes.

use crate::{Limits, Offload, Route, Server, Timers, Update, Way, WayId};
use ipnet::IpNet;
use std::collections::BTreeMap;

/// Small, so that a fuzzer fills it.
const LIMITS: Limits = Limits { routes: 8, nexthops: 6 };

/// Records of `op, length, bytes`: bytes of the client, time, sessions, the plane's word. Panics only for a bug.
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
                server.tell_again();
                mirror = Mirror::default();
            }
            3 => now += u64::from(*length),
            op => {
                // Mostly with a good header, so that a fuzzer gets past it.
                let framed = if op == 4 { bytes.to_vec() } else { framed(bytes) };
                if server.input(now, &framed).is_err() {
                    server.disconnected(now);
                }
            }
        }
        server.handle_timer(now);
        mirror.follow(server.updates());
        assert_eq!(mirror.routes.len(), server.routes(), "a route was not told");
        assert!(server.routes() <= LIMITS.routes && server.ways() <= LIMITS.nexthops, "unbounded");
        let known =
            [Offload::Offloaded, Offload::Trapped, Offload::Failed].map(|o| server.routes_that_are(o));
        assert!(known.iter().sum::<usize>() <= server.routes(), "{known:?}");
        for (at, dest) in mirror.routes.keys().enumerate() {
            server.offload(*dest, [Offload::Offloaded, Offload::Trapped, Offload::Failed][at % 3]);
        }
    }
}

/// Who follows the updates.
#[derive(Debug, Default)]
struct Mirror {
    ways: BTreeMap<WayId, Way>,
    routes: BTreeMap<IpNet, Route>,
}

impl Mirror {
    fn follow(&mut self, updates: Vec<Update>) {
        for update in updates {
            match update {
                Update::Way(id, way) => drop(self.ways.insert(id, way)),
                Update::Route(dest, Some(route)) => {
                    assert!(self.ways.contains_key(&route.way), "{dest} goes a way nobody has told of");
                    self.routes.insert(dest, route);
                }
                Update::Route(dest, None) => drop(self.routes.remove(&dest)),
                Update::WayGone(id) => {
                    assert!(self.ways.remove(&id).is_some(), "a way ended that never was");
                    let user = self.routes.iter().find(|(_, route)| route.way == id);
                    assert!(user.is_none(), "{user:?} goes a way that has ended");
                }
            }
        }
    }
}

/// A frame around `bytes`, which get a netlink header whose kind is one of the four.
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
