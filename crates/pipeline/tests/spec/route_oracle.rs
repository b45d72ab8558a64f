//! Random frames through routing against an oracle: a list of routes that is searched from end to end.

use crate::route::seal;
use ipnet::IpNet;
use lanyard_pipeline::generate::{Rng, State, frame, routes};
use lanyard_pipeline::route::{Adjacency, RifAttachment, RouteChange, RouteTarget};
use lanyard_pipeline::state::{PlaneState, PortKind};
use lanyard_pipeline::trace::Verdict;
use lanyard_pipeline::{Output, Pipeline, Timestamp};
use lanyard_types::{AdjacencyId, GroupId, PortId, VlanId, VrfId};
use lanyard_wire::ip::ones_complement_sum;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Compares every generated frame with the oracle: only frames that may be forwarded are forwarded, by the longest
/// match, and they differ from what arrived in addresses, TTL and checksum only.
#[test]
fn the_oracle_agrees() {
    let mut routed = 0;
    for seed in 0..450 {
        let state = State::new(seed).without_policies().with_all_copies();
        let mut pipeline = Pipeline::new(seed);
        pipeline.set_state(&state.plane, Timestamp::default(), &mut |_| {});
        let mut oracle = Oracle::default();
        let mut rng = Rng::new(!seed);
        for change in &state.routes {
            pipeline.route(change).unwrap();
            oracle.apply(change);
        }
        for _ in 0..200 {
            let churned = rng.percent(30).then(|| routes::churn(&mut rng, &state)).flatten();
            if let Some(change) = churned.filter(|change| pipeline.route(change).is_ok()) {
                oracle.apply(&change);
            }
            let (at, bytes) = frame(&mut rng, &state);
            let trace = pipeline.trace(at, &bytes);
            let mut out = Output::default();
            let verdict = pipeline.process(Timestamp::default(), at, &bytes, &mut out);
            if !matches!(verdict, Verdict::Dropped(reason) if reason.is_over_rate()) {
                assert_eq!((trace.verdict, trace.egress), (verdict, out.sent.clone()));
            }
            let described = trace.stages.iter().any(|step| step.detail().contains("out of rif"));
            if verdict == Verdict::Forwarded && described {
                routed += 1;
                for (_, sent) in &out.sent {
                    oracle.check(&state.plane, at, &bytes, sent);
                }
            }
        }
        for port in PortId::all() {
            assert!(pipeline.counters().port(port).conserved(), "seed {seed} port {port}");
        }
    }
    assert!(routed > 2_500, "only {routed} frames were routed");
}

#[derive(Default)]
struct Oracle {
    routes: BTreeMap<(VrfId, IpNet), RouteTarget>,
    groups: BTreeMap<GroupId, Vec<AdjacencyId>>,
    adjacencies: BTreeMap<AdjacencyId, Adjacency>,
}

impl Oracle {
    fn apply(&mut self, change: &RouteChange) {
        match change.clone() {
            RouteChange::Adjacency(id, new) => put(&mut self.adjacencies, id, new),
            RouteChange::Group(id, new) => put(&mut self.groups, id, new),
            RouteChange::Route(vrf, prefix, new) => put(&mut self.routes, (vrf, prefix), new),
            RouteChange::VrfGone(vrf) => self.routes.retain(|(in_vrf, _), _| *in_vrf != vrf),
        }
    }

    fn check(&self, state: &PlaneState, at: PortId, came: &[u8], sent: &[u8]) {
        let strip = |bytes: &[u8]| -> (Vec<u8>, Option<u16>) {
            match u16::from_be_bytes([bytes[12], bytes[13]]) {
                0x8100 | 0x88a8 | 0x9100 => {
                    (bytes[16..].to_vec(), Some(u16::from_be_bytes([bytes[14], bytes[15]]) & 0xfff))
                }
                _ => (bytes[12..].to_vec(), None),
            }
        };
        let ((before, vid), (after, _)) = (strip(came), strip(sent));
        let vid = vid.filter(|vid| *vid != 0);
        let rif = state
            .rifs
            .values()
            .find(|rif| match rif.attachment {
                RifAttachment::Vlan { vlan, .. } => {
                    state.ports[&at].kind == PortKind::Netdev
                        && vid.or(state.ports[&at].pvid.map(VlanId::get)) == Some(vlan.get())
                }
                RifAttachment::Port(port) => port == at && vid.is_none(),
                RifAttachment::Subinterface { parent, vlan, .. } => parent == at && vid == Some(vlan.get()),
            })
            .expect("the interface it came in at");
        assert!(rif.mac.0 == came[..6] || rif.virtual_macs.iter().any(|mac| mac.0 == came[..6]));
        let (before, after) = (&before[2..], &after[2..]);
        let (mut want, dst) = (before.to_vec(), may_be_forwarded(before));
        let ttl = if before[0] >> 4 == 4 { 8 } else { 7 };
        want[ttl] -= 1;
        if before[0] >> 4 == 4 {
            want = seal(want);
        }
        assert_eq!(want, after);
        let matches =
            self.routes.iter().filter(|((vrf, prefix), _)| *vrf == rif.vrf && prefix.contains(&dst));
        let (_, target) = matches.max_by_key(|((_, prefix), _)| prefix.prefix_len()).expect("a route");
        let RouteTarget::Group(group) = target else { panic!("forwarded by {target:?}") };
        assert!(
            self.groups[group].iter().any(|id| {
                let adjacency = self.adjacencies[id];
                let egress = state.rifs.get(&adjacency.rif);
                adjacency.mac.is_some_and(|mac| mac.0 == sent[..6])
                    && egress.is_some_and(|egress| egress.mac.0 == sent[6..12])
            }),
            "to no next hop of {group}"
        );
    }
}

/// The destination of a packet that a router may forward according to RFC 1812 and RFC 8200; panics for any other
/// packet.
fn may_be_forwarded(packet: &[u8]) -> IpAddr {
    if packet[0] >> 4 == 4 {
        assert!(packet[0] == 0x45 && ones_complement_sum(&packet[..20]) == 0xffff, "{packet:02x?}");
        let len = usize::from(packet[2]) << 8 | usize::from(packet[3]);
        assert!((20..=packet.len()).contains(&len) && packet[8] > 1, "{packet:02x?}");
        for address in [&packet[12..16], &packet[16..20]] {
            assert!(!matches!(address, [0 | 127 | 224.., ..] | [169, 254, ..]), "{address:?}");
        }
        IpAddr::from([packet[16], packet[17], packet[18], packet[19]])
    } else {
        assert!(
            packet[0] >> 4 == 6 && packet.len() >= 40 && packet[7] > 1 && packet[6] != 0,
            "{packet:02x?}"
        );
        assert!(40 + (usize::from(packet[4]) << 8 | usize::from(packet[5])) <= packet.len());
        for address in [&packet[8..24], &packet[24..40]] {
            assert!(!(address[0] == 0xff || address[0] == 0xfe && address[1] & 0xc0 == 0x80), "{address:?}");
            let low = address[..15].iter().all(|b| *b == 0) && address[15] < 2;
            assert!(!low && address[..12] != [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff], "{address:?}");
        }
        let mut octets = [0; 16];
        octets.copy_from_slice(&packet[24..40]);
        IpAddr::from(octets)
    }
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => _ = map.insert(key, value),
        None => _ = map.remove(&key),
    }
}
