//! The hash by which a frame's member of a port-channel is chosen (IEEE 802.1AX-2014, 6.2.4: frames of one conversation
//! must not be reordered, so the choice depends only on fields that its frames share), and how the buckets of the hash are
//! assigned to the members.
//!
//! Invariants: the buckets of a member stay with it until it leaves, or until another one has fewer. `bpf/balance.h` computes the
//! same hash for every frame. A header is checked only as far as its fields must be read: one that no router would forward is
//! hashed as well.

use crate::route::{FLOW_HASH, flow_mix};
use crate::state::CHANNEL_BUCKETS;
use lanyard_types::{BalanceFields, LoadBalance, MacAddr, PortId, PortSet};
use lanyard_wire::HEADER_LEN;
use lanyard_wire::ip::{IPV4, IPV6, ports};
use std::collections::BTreeMap;

/// The hash input of one side of a conversation.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    high: u64,
    low: u64,
    port: u16,
}

impl Side {
    fn mac(mac: MacAddr) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        Self { low: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), ..Self::default() }
    }
    fn hash(self, salt: u64) -> u64 {
        flow_mix(flow_mix(salt ^ u64::from(self.port), self.high), self.low)
    }
}

/// The bucket of a frame, below [`CHANNEL_BUCKETS`]. `bytes` are those of the received frame, `has_tag` says that it
/// has a tag that its ingress port recognises; `src` and `dst` are the addresses with which it leaves.
#[must_use]
pub fn bucket(
    salt: u64,
    balance: LoadBalance,
    bytes: &[u8],
    has_tag: bool,
    src: MacAddr,
    dst: MacAddr,
) -> usize {
    let packet = (balance.fields != BalanceFields::Mac).then(|| sides(bytes, has_tag)).flatten();
    let (mut source, mut destination) = packet.unwrap_or((Side::mac(src), Side::mac(dst)));
    let ports = source.port != 0 || destination.port != 0;
    for side in [&mut source, &mut destination] {
        match balance.fields {
            BalanceFields::Ip => side.port = 0,
            BalanceFields::Port if ports => (side.high, side.low) = (0, 0),
            _ => {}
        }
    }
    let (source, destination) = (source.hash(salt), destination.hash(salt));
    let hash = match (balance.source, balance.destination) {
        (true, false) => source,
        (false, _) => destination,
        (true, true) if balance.symmetric => source.wrapping_add(destination),
        (true, true) => flow_mix(source.wrapping_mul(FLOW_HASH[1]), destination),
    };
    (hash.wrapping_mul(FLOW_HASH[1]) >> 56) as usize % CHANNEL_BUCKETS
}

/// The IP addresses and transport ports; `None` for a frame without an IP header.
fn sides(bytes: &[u8], has_tag: bool) -> Option<(Side, Side)> {
    let at = if has_tag { HEADER_LEN + 2 } else { HEADER_LEN - 2 };
    let ethertype = u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
    let packet = bytes.get(at + 2..)?;
    let number = |from: usize| packet.get(from..)?.first_chunk().map(|octets| u64::from_be_bytes(*octets));
    let (source, destination, protocol, l4) = match ethertype {
        IPV4 => {
            let header: &[u8; 20] = packet.first_chunk()?;
            if header[0] >> 4 != 4 || header[0] & 15 < 5 {
                return None;
            }
            let [.., s1, s2, s3, s4, d1, d2, d3, d4] = *header;
            let low = |octets| Side { low: u64::from(u32::from_be_bytes(octets)), ..Side::default() };
            let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
            let l4 = (!fragment).then_some(usize::from(header[0] & 15) * 4);
            (low([s1, s2, s3, s4]), low([d1, d2, d3, d4]), header[9], l4)
        }
        IPV6 => {
            let header: &[u8; 40] = packet.first_chunk()?;
            if header[0] >> 4 != 6 {
                return None;
            }
            let side = |from: usize| Some(Side { high: number(from)?, low: number(from + 8)?, port: 0 });
            (side(8)?, side(24)?, header[6], Some(40))
        }
        _ => return None,
    };
    let ports = l4.and_then(|l4| packet.get(l4..)).map_or(0, |payload| ports(protocol, payload));
    Some((Side { port: (ports >> 16) as u16, ..source }, Side { port: ports as u16, ..destination }))
}

/// Assigns the buckets of a port-channel to `members`, from the assignment `now`: a member keeps its buckets, except those above
/// its share. The numbers of buckets of two members differ by one at most. Returns an empty list if there are no members.
#[must_use]
pub fn spread(now: &[PortId], members: &PortSet) -> Vec<PortId> {
    let list: Vec<PortId> = members.iter().take(CHANNEL_BUCKETS).collect();
    if list.is_empty() {
        return Vec::new();
    }
    let count = |member: &PortId| now.iter().filter(|held| *held == member).count();
    let mut order: Vec<(usize, PortId)> = list.iter().map(|member| (count(member), *member)).collect();
    // Where the shares differ by one, the members with the most buckets get the larger share, so that as few buckets as possible
    // move.
    order.sort_by_key(|(held, member)| (std::cmp::Reverse(*held), *member));
    let (share, more) = (CHANNEL_BUCKETS / list.len(), CHANNEL_BUCKETS % list.len());
    let quota = order.iter().enumerate().map(|(at, (_, member))| (*member, share + usize::from(at < more)));
    let mut room: BTreeMap<PortId, usize> = quota.collect();
    let mut buckets: Vec<Option<PortId>> = vec![None; CHANNEL_BUCKETS];
    for (bucket, held) in buckets.iter_mut().zip(now) {
        if let Some(room) = room.get_mut(held).filter(|room| **room > 0) {
            *room -= 1;
            *bucket = Some(*held);
        }
    }
    // Free buckets go to the members in turn, so that neighbouring buckets do not all move to one member.
    let mut turn = 0;
    for bucket in buckets.iter_mut().filter(|bucket| bucket.is_none()) {
        let next = (turn..turn + list.len()).find(|at| room[&list[at % list.len()]] > 0).unwrap_or(turn);
        let member = list[next % list.len()];
        if let Some(room) = room.get_mut(&member) {
            *room = room.saturating_sub(1);
        }
        *bucket = Some(member);
        turn = next + 1;
    }
    buckets.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_wire::Builder;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn udp(src: [u8; 4], dst: [u8; 4], ports: [u16; 2], protocol: u8) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet.extend(src.iter().chain(&dst));
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        packet.extend([0; 4]);
        Builder::new(B, A).ethertype(IPV4).payload(&packet).build()
    }

    fn by(word: &str) -> LoadBalance {
        LoadBalance::KEYWORDS.iter().find(|(keyword, _)| *keyword == word).expect("a keyword").1
    }

    /// Changes one field of a frame after the other (source and destination MAC address, IP address and port): only the fields of
    /// the keyword may change the bucket.
    #[test]
    fn each_keyword_hashes_its_fields_and_no_others() {
        let (src, dst, ports) = ([10, 0, 0, 1], [10, 0, 0, 2], [1000, 2000]);
        for (word, balance) in LoadBalance::KEYWORDS {
            let of = |frame: Vec<u8>, src, dst| bucket(7, *balance, &frame, false, src, dst);
            let plain = of(udp(src, dst, ports, 17), A, B);
            let changes = |change: &dyn Fn(u8) -> usize| (1..60).any(|n| change(n) != plain);
            let found = [
                changes(&|n| of(udp(src, dst, ports, 17), MacAddr([2, 0, 0, 0, 9, n]), B)),
                changes(&|n| of(udp(src, dst, ports, 17), A, MacAddr([2, 0, 0, 0, 9, n]))),
                changes(&|n| of(udp([10, 0, 9, n], dst, ports, 17), A, B)),
                changes(&|n| of(udp(src, [10, 0, 9, n], ports, 17), A, B)),
                changes(&|n| of(udp(src, dst, [3000 + u16::from(n), 2000], 17), A, B)),
                changes(&|n| of(udp(src, dst, [1000, 3000 + u16::from(n)], 17), A, B)),
            ];
            let (mac, ip, port) = match balance.fields {
                BalanceFields::Mac => (true, false, false),
                BalanceFields::Ip => (false, true, false),
                BalanceFields::Port => (false, false, true),
                BalanceFields::IpPort => (false, true, true),
            };
            let want = [mac, mac, ip, ip, port, port];
            let side = [balance.source, balance.destination].repeat(3);
            let want: Vec<bool> = want.iter().zip(side).map(|(field, side)| *field && side).collect();
            assert_eq!(found.to_vec(), want, "{word}");
        }
    }

    #[test]
    fn both_directions_get_one_bucket_on_request() {
        let balance = LoadBalance { symmetric: true, ..by("src-dst-mixed-ip-port") };
        let mut differ = 0;
        for n in 1..100 {
            let there = udp([10, 0, 0, n], [10, 9, 0, 1], [1000 + u16::from(n), 80], 6);
            let back = udp([10, 9, 0, 1], [10, 0, 0, n], [80, 1000 + u16::from(n)], 6);
            let of = |balance, frame: &[u8]| bucket(1, balance, frame, false, A, B);
            assert_eq!(of(balance, &there), of(balance, &back));
            let plain = by("src-dst-mixed-ip-port");
            differ += usize::from(of(plain, &there) != of(plain, &back));
        }
        assert!(differ > 80, "without `symmetric` the directions are independent: {differ} of 99 differ");
    }

    #[test]
    fn frames_without_the_fields_use_others() {
        // No IP: the MAC addresses. No ports: the IP addresses.
        let arp = Builder::new(B, A).ethertype(0x0806).payload(&[0; 46]).build();
        let of = |word: &str, frame: &[u8], src| bucket(3, by(word), frame, false, src, B);
        assert_eq!(of("src-dst-ip", &arp, A), of("src-dst-mac", &arp, A));
        let icmp = |n| udp([10, 0, 0, n], [10, 0, 0, 2], [0; 2], 1);
        assert!((1..60).any(|n| of("src-dst-port", &icmp(n), A) != of("src-dst-port", &icmp(1), A)));
        // Fragments of one packet get one bucket: the ports in the first fragment are not hashed.
        let mut first = udp([10, 0, 0, 1], [10, 0, 0, 2], [5, 6], 17);
        first[14 + 6] = 0x20;
        let mut later = udp([10, 0, 0, 1], [10, 0, 0, 2], [700, 800], 17);
        later[14 + 7] = 1;
        let word = "src-dst-mixed-ip-port";
        assert_eq!(of(word, &first, A), of(word, &later, A));
    }

    #[test]
    fn ten_thousand_flows_are_spread_evenly() {
        let mut rng = lanyard_types::Rng::new(5);
        let mut counts = [0_u32; 4];
        for _ in 0..10_000 {
            let mut address = || (rng.next_u64() as u32).to_be_bytes();
            let (src, dst) = (address(), address());
            let ports = [rng.next_u64() as u16, rng.next_u64() as u16];
            let bucket = bucket(11, by("src-dst-mixed-ip-port"), &udp(src, dst, ports, 17), false, A, B);
            counts[bucket % 4] += 1;
        }
        let even = counts.iter().all(|count| (2250..=2750).contains(count));
        assert!(even, "10,000 flows over 4 members: {counts:?}");
    }
}
