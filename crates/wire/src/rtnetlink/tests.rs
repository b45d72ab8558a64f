use super::*;
use proptest::prelude::*;

/// Message bodies as FRR 8.4.4 and `ip route` send them, on a little-endian host.
fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16).unwrap_or(0))
        .collect()
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().expect("an address"))
}

#[cfg(target_endian = "little")]
#[test]
fn routes_as_frr_sends_them() {
    let check = |hex: &str, dest: &str, protocol, kind, metric, id| {
        let body = bytes(hex);
        let route = Route::new(&body).expect("a route");
        assert_eq!(
            (route.dest, route.protocol, route.kind, route.metric, route.nexthop_id),
            (net(dest), protocol, kind, metric, id)
        );
        assert_eq!((route.table, route.hops().count(), route.source_specific), (254, 0, false));
    };
    let (with_group, v6) = (
        "02100000fec4000100000000080001000a090000080006001400000008001e000b000000",
        "0a300000fec40001000000001400010020010db8000900000000000000000000080006001400000008001e000e000000",
    );
    check(with_group, "10.9.0.0/16", 196, UNICAST, 20, Some(11));
    check(v6, "2001:db8:9::/48", 196, UNICAST, 20, Some(14));
    check(
        "02000000fec40001000000000800010000000000080006001400000008001e000b000000",
        "0.0.0.0/0",
        196,
        1,
        20,
        Some(11),
    );
    check(
        "02100000fec4000600000000080001000a0b00000800060014000000",
        "10.11.0.0/16",
        196,
        BLACKHOLE,
        20,
        None,
    );
    check("02100000fec4000000000000080001000a0900000800060014000000", "10.9.0.0/16", 196, 0, 20, None);
}

#[cfg(target_endian = "little")]
#[test]
fn next_hops_as_frr_sends_them() {
    let check = |hex: &str, id, want: NextHopAction<'_>| {
        let body = bytes(hex);
        let object = NextHopObject::new(&body).expect("an object");
        assert_eq!((object.id, object.protocol, object.action), (id, 11, want));
    };
    let hop = |via, ifindex| NextHopAction::Hop(Hop { via, ifindex, weight: 1, flags: 0 });
    check("02000b0000000000080001000b000000080006000a0100020800050003000000", 11, hop(ip("10.1.0.2"), 3));
    check("0a000b000000000008000100100000000800050002000000", 16, hop(None, 2));
    check("02000b0000000000080001000a00000004000400", 10, NextHopAction::Blackhole);
    let group = bytes("00000b0000000000080001000c000000140002000b000000000000000d00000000000000");
    let object = NextHopObject::new(&group).expect("a group");
    let members = match object.action {
        NextHopAction::Group(members) if !members.resilient => members.iter().collect(),
        _ => Vec::new(),
    };
    assert_eq!(members, [(11, 1), (13, 1)]);
}

fn written(route: &Route<'_>, hops: &[Hop]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::route(&mut out, NEW_ROUTE, FLAG_REQUEST, route);
    writer.hops(route.dest, hops);
    writer.end();
    out
}

fn any_hop() -> impl Strategy<Value = Hop> {
    let via = prop_oneof![
        Just(None),
        any::<[u8; 4]>().prop_map(|v4| Some(IpAddr::from(v4))),
        any::<[u8; 16]>().prop_map(|v6| Some(IpAddr::from(v6)))
    ];
    (via, 1u32.., 1u32..=256, prop::sample::select(vec![0u8, HOP_DEAD, HOP_ONLINK]))
        .prop_map(|(via, ifindex, weight, flags)| Hop { via, ifindex, weight, flags })
}

proptest! {
    /// `Route` reads unchanged all that `Writer` writes.
    #[test]
    fn round_trip(
        v6: bool, address: u128, length in 0u8..=32, table in 1u32..100_000, metric: u32, protocol: u8,
        id in prop::option::of(1u32..), hops in prop::collection::vec(any_hop(), 0..6),
    ) {
        let address: IpAddr = if v6 { Ipv6Addr::from(address).into() } else { Ipv4Addr::from(address as u32).into() };
        let dest = IpNet::new(address, length).expect("a prefix").trunc();
        let route = Route { table, protocol, flags: ROUTE_OFFLOAD, metric, nexthop_id: id, ..Route::to(dest) };
        let out = written(&route, &hops);
        let all: Vec<_> = messages(&out).collect();
        prop_assert_eq!(all.len(), 1);
        let message = all[0].expect("a message");
        prop_assert_eq!((message.kind, message.flags), (NEW_ROUTE, FLAG_REQUEST));
        let back = Route::new(message.body).expect("a route");
        prop_assert_eq!(
            (back.dest, back.table, back.metric, back.protocol, back.nexthop_id, back.flags),
            (dest, table, metric, protocol, id, ROUTE_OFFLOAD)
        );
        let mut want = hops;
        if let [only] = want.as_mut_slice() {
            // A single next hop has no weight or flags of its own in the message.
            (only.weight, only.flags) = (1, 0);
        }
        prop_assert_eq!(back.hops().collect::<Vec<_>>(), want);
    }

    /// A message that is cut off anywhere gives a named error or a shorter route, and never a panic.
    #[test]
    fn cut_off(hops in prop::collection::vec(any_hop(), 2..5), cut in 0usize..200) {
        let dest = net("10.0.0.0/8");
        let route = Route { table: 254, protocol: 186, metric: 5, ..Route::to(dest) };
        let mut out = written(&route, &hops);
        if cut < out.len() && cut > 0 {
            out.truncate(cut);
            prop_assert_eq!(messages(&out).next(), Some(Err(Malformed::Header)));
            let body = out.get(HEADER_LEN..).unwrap_or_default();
            if let Ok(route) = Route::new(body) {
                prop_assert!(route.hops().count() == 0, "a list that is cut off is no list");
            }
        }
    }

    /// Arbitrary bytes never cause a panic.
    #[test]
    fn any_bytes(
        family in prop::sample::select(vec![0u8, 2, 7, 10, 28]),
        rest in prop::collection::vec(any::<u8>(), 0..24),
        list in prop::collection::vec((0u16..34, prop::collection::vec(any::<u8>(), 0..40)), 0..8),
    ) {
        let mut body = vec![family];
        body.extend(rest);
        for header in [NEXTHOP_HEADER, ROUTE_HEADER] {
            let mut body = body.clone();
            body.resize(header, 0);
            for (kind, value) in &list {
                body.extend((4 + value.len() as u16).to_ne_bytes());
                body.extend(kind.to_ne_bytes());
                body.extend(value);
                body.resize(body.len().next_multiple_of(4), 0);
            }
            if let Ok(route) = Route::new(&body) {
                let _ = route.hops().count();
            }
            if let Ok(NextHopObject { action: NextHopAction::Group(members), .. }) = NextHopObject::new(&body) {
                prop_assert!(members.iter().all(|(_, weight)| (1..=65_536).contains(&weight)));
            }
        }
        let _ = messages(&body).count();
    }
}

#[test]
fn malformed_messages_are_refused_with_their_reason() {
    let route = |body: &[u8]| Route::new(body).expect_err("malformed");
    assert_eq!(route(&[]), Malformed::Short);
    assert_eq!(route(&[2; 11]), Malformed::Short);
    assert_eq!(route(&[28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Malformed::Family);
    assert_eq!(route(&[2, 33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Malformed::Prefix);
    let with = |kind: u16, length: u16, value: &[u8]| {
        let mut body = vec![2, 8, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0];
        body.extend(length.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
        body
    };
    assert_eq!(route(&with(1, 3, &[])), Malformed::Attribute);
    assert_eq!(route(&with(1, 12, &[1, 2, 3, 4])), Malformed::Attribute);
    assert_eq!(route(&with(1, 6, &[1, 2])), Malformed::Value);
    assert_eq!(route(&with(9, 4, &[])), Malformed::Hops);
    assert_eq!(route(&with(9, 8, &[7, 0, 0, 0])), Malformed::Hops);
    assert_eq!(route(&with(18, 6, &[9, 9])), Malformed::Family);
    let object = |body: &[u8]| NextHopObject::new(body).expect_err("malformed");
    assert_eq!(object(&[0; 7]), Malformed::Short);
    assert_eq!(object(&[0; 8]), Malformed::NoId);
    let mut bad_group = vec![0; 8];
    bad_group.extend([8, 0, 1, 0, 1, 0, 0, 0, 8, 0, 2, 0, 1, 0, 0, 0]);
    if cfg!(target_endian = "little") {
        assert_eq!(object(&bad_group), Malformed::Hops);
    }
    for (at, reason) in Malformed::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, at, "{reason}");
    }
}
