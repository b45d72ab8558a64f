//! The flows about which rules with `log` have decided, as IOS logs them: a line for the first packet of a flow at once, then one
//! every [`SUMMARY_MS`] with the number of packets since the last line. A flow without packets in that time is forgotten.
//!
//! Invariant: the table has at most [`MAX_FLOWS`] flows. Packets of further flows are counted; one log line reports their number
//! together with that of the notes that the plane's rate limit dropped.

use lanyard_acl::key::{
    DST, ETHERTYPE, ICMP, ICMPV6, IPV4, IPV6, Key, L4_DST, L4_SRC, PROTOCOL, SRC, TCP, UDP,
};
use lanyard_acl::{FlatRule, Verdict};
use lanyard_types::MacAddr;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The time between two lines about a flow, in milliseconds; that of IOS.
pub(crate) const SUMMARY_MS: u64 = 300_000;
/// The most flows.
pub(crate) const MAX_FLOWS: usize = 1_024;

/// A flow, identified by the text of its log line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flow {
    pub(crate) facility: &'static str,
    pub(crate) mnemonic: &'static str,
    /// The text before the number of packets, including the separator.
    text: String,
}

/// The facts about a packet besides its key.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    /// The name of the list.
    pub(crate) list: &'a str,
    /// True if it is a standard list.
    pub(crate) standard: bool,
    /// The rule that has decided.
    pub(crate) rule: &'a FlatRule,
    /// The interface that has received the packet.
    pub(crate) interface: &'a str,
    /// The source address of the frame; zero if an outbound list has decided.
    pub(crate) mac: MacAddr,
}

impl Flow {
    /// The flow of a packet.
    pub(crate) fn of(seen: &Seen<'_>, key: &Key) -> Self {
        let did = if seen.rule.verdict == Verdict::Deny { "denied" } else { "permitted" };
        let input = match (seen.rule.log_input, seen.mac.0 == [0; 6]) {
            (false, _) => String::new(),
            (true, true) => format!(" ({})", seen.interface),
            (true, false) => format!(" ({} {})", seen.interface, seen.mac),
        };
        let list = seen.list;
        match key.half[ETHERTYPE] {
            IPV4 => {
                let of = |at: usize| {
                    Ipv4Addr::from_bits(u32::from(key.half[at]) << 16 | u32::from(key.half[at + 1]))
                };
                let (src, dst) = (of(SRC), of(DST));
                if seen.standard {
                    let text = format!("list {list} {did} {src} ");
                    return Self { facility: "SEC", mnemonic: "IPACCESSLOGS", text };
                }
                let (kind, text) = packet(key, &src.to_string(), &dst.to_string(), &input);
                let mnemonic = match kind {
                    Kind::Ports => "IPACCESSLOGP",
                    Kind::Message => "IPACCESSLOGDP",
                    Kind::Number => "IPACCESSLOGNP",
                };
                Self { facility: "SEC", mnemonic, text: format!("list {list} {did} {text}, ") }
            }
            IPV6 => {
                let of = |at: usize| {
                    let halves: [u16; 8] = std::array::from_fn(|n| key.half[at + n]);
                    Ipv6Addr::from(halves)
                };
                let (kind, text) = packet(key, &of(SRC).to_string(), &of(DST).to_string(), &input);
                let mnemonic = match kind {
                    Kind::Ports => "ACCESSLOGP",
                    Kind::Message => "ACCESSLOGDP",
                    Kind::Number => "ACCESSLOGNP",
                };
                let text = format!("list {list}/{} {did} {text}, ", seen.rule.seq);
                Self { facility: "IPV6_ACL", mnemonic, text }
            }
            ethertype => {
                let of = |at: usize| {
                    let [a, b, c] = [key.half[at], key.half[at + 1], key.half[at + 2]].map(u16::to_be_bytes);
                    MacAddr([a[0], a[1], b[0], b[1], c[0], c[1]])
                };
                let text = format!("list {list} {did} {ethertype:#06x} {}{input} -> {}, ", of(SRC), of(DST));
                Self { facility: "SEC", mnemonic: "MACACCESSLOG", text }
            }
        }
    }

    /// The line about this number of packets.
    pub(crate) fn line(&self, packets: u64) -> String {
        format!("{}{packets} packet{}", self.text, if packets == 1 { "" } else { "s" })
    }
}

/// The fields of a line besides addresses: ports, the type and code of ICMP, or only the protocol.
enum Kind {
    Ports,
    Message,
    Number,
}

/// The text about an IP packet. A fragment without ports has port 0, as in IOS.
fn packet(key: &Key, src: &str, dst: &str, input: &str) -> (Kind, String) {
    let (from, to) = (key.half[L4_SRC], key.half[L4_DST]);
    let (protocol, v6) = (key.half[PROTOCOL], key.half[ETHERTYPE] == IPV6);
    let protocol = u8::try_from(protocol).unwrap_or_default();
    if key.unknown >> PROTOCOL & 1 == 1 {
        return (Kind::Number, format!("ipv6 {src}{input} -> {dst}"));
    }
    match protocol {
        TCP | UDP => {
            let name = if protocol == TCP { "tcp" } else { "udp" };
            (Kind::Ports, format!("{name} {src}({from}){input} -> {dst}({to})"))
        }
        ICMP | ICMPV6 if v6 == (protocol == ICMPV6) => {
            let name = if v6 { "icmpv6" } else { "icmp" };
            (Kind::Message, format!("{name} {src}{input} -> {dst} ({}/{})", from >> 8, from & 0xff))
        }
        _ => (Kind::Number, format!("{protocol} {src}{input} -> {dst}")),
    }
}

#[derive(Debug)]
struct Count {
    /// The packets since the last line.
    packets: u64,
    /// When the next line is due.
    due_ms: u64,
}

/// The flows.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    all: BTreeMap<Flow, Count>,
    /// The earliest time at which a line is due.
    next_ms: Option<u64>,
    /// The packets of flows for which there was no room, until [`Flows::take_missed`].
    missed: u64,
}

impl Flows {
    /// Counts a packet. Returns the number of packets for a log line that is due now: 1 for the first packet of a flow, or the
    /// packets since the last line if they have reached `threshold`.
    pub(crate) fn count(&mut self, now_ms: u64, flow: &Flow, threshold: Option<u32>) -> Option<u64> {
        let Some(count) = self.all.get_mut(flow) else {
            if self.all.len() >= MAX_FLOWS {
                self.missed += 1;
                return None;
            }
            let due_ms = now_ms + SUMMARY_MS;
            self.all.insert(flow.clone(), Count { packets: 0, due_ms });
            self.next_ms = Some(self.next_ms.map_or(due_ms, |at_ms| at_ms.min(due_ms)));
            return Some(1);
        };
        count.packets += 1;
        (threshold.is_some_and(|most| count.packets >= most.into()))
            .then(|| std::mem::take(&mut count.packets))
    }
    /// The flows about which a line is due, with their packets. Those without packets are forgotten.
    pub(crate) fn due(&mut self, now_ms: u64) -> Vec<(Flow, u64)> {
        let mut due = Vec::new();
        if self.next_ms.is_none_or(|at_ms| at_ms > now_ms) {
            return due;
        }
        self.all.retain(|flow, count| {
            if count.due_ms > now_ms {
                return true;
            }
            count.due_ms = now_ms + SUMMARY_MS;
            let packets = std::mem::take(&mut count.packets);
            if packets > 0 {
                due.push((flow.clone(), packets));
            }
            packets > 0
        });
        self.next_ms = self.all.values().map(|count| count.due_ms).min();
        due
    }
    /// Forgets all flows, and returns those with packets that no line has reported.
    pub(crate) fn end(&mut self) -> Vec<(Flow, u64)> {
        self.next_ms = None;
        let all = std::mem::take(&mut self.all);
        all.into_iter()
            .map(|(flow, count)| (flow, count.packets))
            .filter(|(_, packets)| *packets > 0)
            .collect()
    }
    /// When [`Flows::due`] has something to do.
    pub(crate) const fn next_ms(&self) -> Option<u64> {
        self.next_ms
    }
    /// The packets for which there was no room since the last call.
    pub(crate) fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_acl::key::Header;

    fn rule(verdict: Verdict, log_input: bool) -> FlatRule {
        FlatRule { verdict, fragments: true, log: true, log_input, list: 0, seq: 20, conditions: Vec::new() }
    }

    fn flow(ethertype: u16, packet: &[u8], standard: bool, log_input: bool, mac: [u8; 6]) -> Flow {
        let header = Header { ethertype, src: MacAddr([2, 0, 0, 0, 0, 1]), ..Header::default() };
        let key = Key::read(&header, packet).expect("a header");
        let rule = rule(if standard { Verdict::Permit } else { Verdict::Deny }, log_input);
        Flow::of(&Seen { list: "a", standard, rule: &rule, interface: "eth1", mac: MacAddr(mac) }, &key)
    }

    fn ipv4(protocol: u8, rest: &[u8]) -> Vec<u8> {
        let head = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&head[..], rest].concat()
    }

    fn ipv6(protocol: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
        for last in [1, 2] {
            packet.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        packet.extend(rest);
        packet
    }

    const PORTS: [u8; 16] = [1, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0];

    #[test]
    fn messages() {
        let check = |flow: &Flow, mnemonic: &str, line: &str| {
            assert_eq!(
                (format!("{}-{}", flow.facility, flow.mnemonic), flow.line(1)),
                (mnemonic.into(), line.into())
            );
        };
        let v4 = |packet: &[u8], input, mac| flow(IPV4, packet, false, input, mac);
        let tcp = ipv4(TCP, &PORTS);
        check(
            &v4(&tcp, false, [2; 6]),
            "SEC-IPACCESSLOGP",
            "list a denied tcp 10.0.0.1(256) -> 10.0.0.2(80), 1 packet",
        );
        check(
            &v4(&tcp, true, [2; 6]),
            "SEC-IPACCESSLOGP",
            "list a denied tcp 10.0.0.1(256) (eth1 0202.0202.0202) -> 10.0.0.2(80), 1 packet",
        );
        check(
            &v4(&ipv4(UDP, &PORTS), true, [0; 6]),
            "SEC-IPACCESSLOGP",
            "list a denied udp 10.0.0.1(256) (eth1) -> 10.0.0.2(80), 1 packet",
        );
        check(
            &v4(&ipv4(ICMP, &[8, 0, 0, 0]), true, [2; 6]),
            "SEC-IPACCESSLOGDP",
            "list a denied icmp 10.0.0.1 (eth1 0202.0202.0202) -> 10.0.0.2 (8/0), 1 packet",
        );
        check(
            &v4(&ipv4(47, &[]), false, [2; 6]),
            "SEC-IPACCESSLOGNP",
            "list a denied 47 10.0.0.1 -> 10.0.0.2, 1 packet",
        );
        let mut later = ipv4(UDP, &PORTS);
        later[7] = 9;
        check(
            &v4(&later, false, [0; 6]),
            "SEC-IPACCESSLOGP",
            "list a denied udp 10.0.0.1(0) -> 10.0.0.2(0), 1 packet",
        );
        check(
            &flow(IPV4, &tcp, true, false, [2; 6]),
            "SEC-IPACCESSLOGS",
            "list a permitted 10.0.0.1 1 packet",
        );
        let v6 = |packet: &[u8]| flow(IPV6, packet, false, false, [2; 6]);
        check(
            &v6(&ipv6(TCP, &PORTS)),
            "IPV6_ACL-ACCESSLOGP",
            "list a/20 denied tcp 2001:db8::1(256) -> 2001:db8::2(80), 1 packet",
        );
        check(
            &v6(&ipv6(ICMPV6, &[128, 0, 0, 0])),
            "IPV6_ACL-ACCESSLOGDP",
            "list a/20 denied icmpv6 2001:db8::1 -> 2001:db8::2 (128/0), 1 packet",
        );
        check(
            &v6(&ipv6(89, &[])),
            "IPV6_ACL-ACCESSLOGNP",
            "list a/20 denied 89 2001:db8::1 -> 2001:db8::2, 1 packet",
        );
        check(
            &flow(0x0806, &[], false, false, [2; 6]),
            "SEC-MACACCESSLOG",
            "list a denied 0x0806 0200.0000.0001 -> 0000.0000.0000, 1 packet",
        );
    }

    fn numbered(port: u16) -> Flow {
        let [high, low] = port.to_be_bytes();
        flow(IPV4, &ipv4(UDP, &[high, low, 0, 53]), false, false, [0; 6])
    }

    #[test]
    fn a_flow_has_a_line_at_once_and_then_every_five_minutes() {
        let (mut flows, flow) = (Flows::default(), numbered(1));
        assert_eq!(flows.count(1_000, &flow, None), Some(1));
        assert_eq!((1..=7).filter_map(|n| flows.count(1_000 + n, &flow, None)).count(), 0);
        let due_ms = 1_000 + SUMMARY_MS;
        assert_eq!(flows.next_ms(), Some(due_ms));
        assert_eq!(flows.due(due_ms - 1), []);
        assert_eq!(flows.due(due_ms), [(flow.clone(), 7)]);
        // Without packets it is forgotten, and its next packet is the first one again.
        assert_eq!(flows.due(due_ms + SUMMARY_MS), []);
        assert_eq!((flows.all.len(), flows.next_ms()), (0, None));
        assert_eq!(flows.count(due_ms + SUMMARY_MS, &flow, None), Some(1));
    }

    #[test]
    fn a_threshold_makes_a_line_earlier() {
        let (mut flows, flow) = (Flows::default(), numbered(1));
        let lines: Vec<Option<u64>> = (0..7).map(|_| flows.count(0, &flow, Some(3))).collect();
        assert_eq!(lines, [Some(1), None, None, Some(3), None, None, Some(3)]);
        assert_eq!(flows.count(0, &flow, None), None);
        assert_eq!(flows.due(SUMMARY_MS), [(flow, 1)]);
    }

    #[test]
    fn a_full_flow_table_counts_missed_packets_and_known_flows() {
        let mut flows = Flows::default();
        let lines = (0..MAX_FLOWS as u16 + 5).filter_map(|n| flows.count(0, &numbered(n), None)).count();
        assert_eq!((lines, flows.all.len()), (MAX_FLOWS, MAX_FLOWS));
        assert_eq!((flows.take_missed(), flows.take_missed()), (5, 0));
        // A known flow is counted although the table is full.
        assert_eq!(flows.count(0, &numbered(0), Some(1)), Some(1));
        assert_eq!(flows.count(0, &numbered(1), None), None);
        assert_eq!(flows.end(), [(numbered(1), 1)]);
        assert_eq!(flows.count(0, &numbered(MAX_FLOWS as u16 + 1), None), Some(1));
    }
}
