//! Random lists and packets: the classifier, the plain interpretation of its conditions, and a model that judges packets by
//! the words of the rules must name the same rule.

use lanyard_acl::condition::first_match;
use lanyard_acl::fields::{Address, PortMatch, TcpMatch};
use lanyard_acl::key::{Header, Key};
use lanyard_acl::rule::{IpMatch, Matches, Protocol};
use lanyard_acl::{AccessList, Action, Entry, Kind, Lists, Rule, compile, text};
use lanyard_types::{MacAddr, Rng};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn v4(rng: &mut Rng) -> Ipv4Addr {
    // Few different addresses, so that rules often match packets.
    Ipv4Addr::new(10, rng.below(2) as u8, rng.below(4) as u8, rng.below(6) as u8)
}

fn v6(rng: &mut Rng) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, rng.below(2) as u16, 0, 0, 0, rng.below(2) as u16, rng.below(4) as u16)
}

fn port(rng: &mut Rng) -> u64 {
    if rng.percent(80) { 75 + rng.below(10) } else { rng.below(65_536) }
}

fn address(rng: &mut Rng, kind: Kind) -> String {
    match (rng.below(10), kind) {
        (0..=2, _) => "any".into(),
        (3..=5, Kind::Ipv6) => format!("host {}", v6(rng)),
        (_, Kind::Ipv6) => {
            format!("{}/{}", v6(rng), rng.pick(&["32", "48", "64", "112", "127"]).expect("a choice"))
        }
        (3..=5, _) => format!("host {}", v4(rng)),
        (_, _) => {
            let wildcard = rng
                .pick(&["0.0.0.1", "0.0.0.3", "0.0.3.255", "0.1.0.255", "0.0.254.255", "0.0.1.254"])
                .expect("a choice");
            format!("{} {wildcard}", v4(rng))
        }
    }
}

fn ports(rng: &mut Rng) -> String {
    match rng.below(9) {
        0 => format!("eq {}", port(rng)),
        1 => format!("eq {} {} {}", port(rng), port(rng), port(rng)),
        2 => format!("neq {} {}", port(rng), port(rng)),
        3 => format!("gt {}", port(rng).min(65_534)),
        4 => format!("lt {}", port(rng).max(1)),
        5 => format!("range {} {}", port(rng), port(rng)),
        _ => String::new(),
    }
}

fn line(rng: &mut Rng, kind: Kind) -> String {
    let action = rng.pick(&["permit", "deny"]).expect("a choice");
    if kind == Kind::Standard {
        return format!("{action} {}", address(rng, kind));
    }
    let any = if kind == Kind::Ipv6 { "ipv6" } else { "ip" };
    let protocol = rng.pick(&["tcp", "tcp", "tcp", "udp", "udp", "icmp", "47", any, any]).expect("a choice");
    let has_ports = ["tcp", "udp"].contains(&protocol);
    let mut words = vec![action.to_owned(), protocol.to_owned(), address(rng, kind)];
    words.extend(has_ports.then(|| ports(rng)));
    words.push(address(rng, kind));
    words.extend(has_ports.then(|| ports(rng)));
    if protocol == "icmp" && rng.percent(60) {
        words.push(rng.pick(&["echo-reply", "3 1", "3", "unreachable", "128"]).expect("a choice").into());
    }
    if protocol == "tcp" && rng.percent(30) {
        let flags = ["established", "syn", "ack rst", "match-all +syn -ack", "match-any +fin -syn"];
        words.push(rng.pick(&flags).expect("a choice").into());
    }
    if rng.percent(10) {
        words.push(format!("dscp {}", rng.below(64)));
    } else if kind == Kind::Extended && rng.percent(10) {
        words.push(format!("precedence {}", rng.below(8)));
    }
    if rng.percent(10) {
        words.push("log".into());
    }
    let text = words.join(" ");
    let fragments = format!("{text} fragments");
    let parsed = text::parse(kind, &fragments.split_whitespace().collect::<Vec<_>>());
    if rng.percent(15) && parsed.is_ok() { fragments } else { text }
}

/// A packet, as the model sees it.
#[derive(Debug, Clone)]
struct Packet {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    tos: u8,
    /// The offset of a fragment, in units of 8 bytes.
    offset: u16,
    /// The bytes behind the IP headers.
    payload: Vec<u8>,
    /// IPv6 extension headers before the payload.
    extensions: usize,
}

impl Packet {
    fn random(rng: &mut Rng, kind: Kind) -> Self {
        let six = kind == Kind::Ipv6;
        let address = |rng: &mut Rng| if six { v6(rng).into() } else { v4(rng).into() };
        let icmp = if six { 58 } else { 1 };
        let protocol = [6, 6, 6, 17, 17, icmp, 47, 132][rng.below(8) as usize];
        let mut payload: Vec<u8> = (port(rng) as u16).to_be_bytes().into();
        payload.extend((port(rng) as u16).to_be_bytes());
        payload.extend([0; 9]);
        payload.push(rng.below(64) as u8);
        if protocol == icmp {
            payload[0] = [0, 3, 8, 128][rng.below(4) as usize];
            payload[1] = rng.below(3) as u8;
        }
        if rng.percent(6) {
            payload.truncate(rng.below(15) as usize);
        }
        Self {
            src: address(rng),
            dst: address(rng),
            protocol,
            tos: rng.below(256) as u8,
            offset: if rng.percent(15) { rng.below(3) as u16 } else { 0 },
            payload,
            extensions: if six && rng.percent(30) { rng.below(9) as usize } else { 0 },
        }
    }

    fn bytes(&self) -> (u16, Vec<u8>) {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (self.src, self.dst) else { return (0x86dd, self.bytes6()) };
        let mut bytes = vec![0x46, self.tos, 0, 0, 0, 0, 0, 0, 64, self.protocol, 0, 0];
        bytes[6..8].copy_from_slice(&self.offset.to_be_bytes());
        bytes.extend(src.octets());
        bytes.extend(dst.octets());
        bytes.extend([1, 1, 1, 0]); // options
        bytes.extend(&self.payload);
        (0x0800, bytes)
    }

    fn bytes6(&self) -> Vec<u8> {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (self.src, self.dst) else { return Vec::new() };
        let mut kinds = vec![60; self.extensions];
        if self.offset != 0 {
            kinds.push(44);
        }
        let next = |at: usize| kinds.get(at).copied().unwrap_or(self.protocol);
        let mut bytes = vec![0x60 | self.tos >> 4, self.tos << 4, 0, 0, 0, 0, next(0), 64];
        bytes.extend(src.octets());
        bytes.extend(dst.octets());
        for (at, kind) in kinds.iter().enumerate() {
            let [a, b] = if *kind == 44 { (self.offset << 3).to_be_bytes() } else { [0, 0] };
            bytes.extend([next(at + 1), 0, a, b, 0, 0, 0, 0]);
        }
        bytes.extend(&self.payload);
        bytes
    }

    /// The first rule that applies, by the words of the rules.
    fn judge(&self, list: &AccessList) -> Option<(u32, Action)> {
        list.rules().find(|(_, rule)| self.meets(rule)).map(|(seq, rule)| (seq, rule.action))
    }

    fn meets(&self, rule: &Rule) -> bool {
        let Matches::Ip(ip) = &rule.matches else { return false };
        let extended = self.extensions + usize::from(self.offset != 0);
        let protocol_known = extended <= 6;
        let protocol_meets = match &ip.protocol {
            Protocol::Any => true,
            _ if !protocol_known => rule.action == Action::Deny,
            Protocol::Number(number) => *number == self.protocol,
            Protocol::Group(_) => false,
        };
        protocol_meets
            && is_in(self.src, &ip.src)
            && is_in(self.dst, &ip.dst)
            && ip.dscp.is_none_or(|dscp| self.tos >> 2 == dscp)
            && ip.precedence.is_none_or(|precedence| self.tos >> 5 == precedence)
            && (!ip.fragments || (self.offset != 0 && protocol_known))
            && self.transport_meets(ip, rule.action, protocol_known)
    }

    fn transport_meets(&self, ip: &IpMatch, action: Action, protocol_known: bool) -> bool {
        if ip.src_port.is_none() && ip.dst_port.is_none() && ip.icmp.is_none() && ip.tcp.is_none() {
            return true;
        }
        let overlaps = self.offset == 1 && self.protocol == 6;
        let needed = match self.protocol {
            6 => 14,
            1 | 17 | 58 | 132 => 4,
            _ => 0,
        };
        if !protocol_known || overlaps || (self.offset == 0 && self.payload.len() < needed) {
            return action == Action::Deny;
        }
        if self.offset != 0 {
            return action == Action::Permit;
        }
        let port = |at: usize| u16::from_be_bytes([self.payload[at], self.payload[at + 1]]);
        let meets =
            |wanted: &Option<PortMatch>, at| wanted.as_ref().is_none_or(|wanted| port_is(wanted, port(at)));
        meets(&ip.src_port, 0)
            && meets(&ip.dst_port, 2)
            && ip.icmp.is_none_or(|(kind, code)| {
                self.payload[0] == kind && code.is_none_or(|code| self.payload[1] == code)
            })
            && ip.tcp.is_none_or(|tcp| flags_are(tcp, self.payload[13]))
    }
}

fn is_in(address: IpAddr, of: &Address) -> bool {
    match (of, address) {
        (Address::Any, _) => true,
        (Address::V4(net, wildcard), IpAddr::V4(address)) => {
            (address.to_bits() ^ net.to_bits()) & !wildcard.to_bits() == 0
        }
        (Address::V6(net), IpAddr::V6(address)) => net.contains(&address),
        _ => false,
    }
}

fn port_is(wanted: &PortMatch, port: u16) -> bool {
    match wanted {
        PortMatch::Eq(ports) => ports.contains(&port),
        PortMatch::Neq(ports) => !ports.contains(&port),
        PortMatch::Lt(limit) => port < *limit,
        PortMatch::Gt(limit) => port > *limit,
        PortMatch::Range(low, high) => (*low..=*high).contains(&port),
    }
}

fn flags_are(wanted: TcpMatch, flags: u8) -> bool {
    match wanted {
        TcpMatch::Established => flags & 0x10 != 0 || flags & 0x04 != 0,
        TcpMatch::All(set, clear) => (0..8).all(|bit| {
            let on = flags >> bit & 1 == 1;
            (set >> bit & 1 == 0 || on) && (clear >> bit & 1 == 0 || !on)
        }),
        TcpMatch::Any(set, clear) => (0..8).any(|bit| {
            let on = flags >> bit & 1 == 1;
            (set >> bit & 1 == 1 && on) || (clear >> bit & 1 == 1 && !on)
        }),
    }
}

fn random_list(rng: &mut Rng, kind: Kind, rules: u64) -> AccessList {
    let mut list = AccessList::new(kind);
    for _ in 0..rules {
        let line = line(rng, kind);
        let words: Vec<&str> = line.split_whitespace().collect();
        let rule = text::parse(kind, &words).expect(&line);
        let printed = rule.text(kind);
        let again = text::parse(kind, &printed.split_whitespace().collect::<Vec<_>>());
        assert_eq!(again.as_ref(), Ok(&rule), "{line} is printed as {printed}");
        let seq = list.next_seq().expect("a number");
        list.insert(seq, Entry::Rule(rule));
    }
    list
}

fn lists_agree(seed: u64, kind: Kind, rules: u64, packets: u64) {
    let mut rng = Rng::new(seed);
    let list = random_list(&mut rng, kind, rules);
    let mut lists = Lists::default();
    lists.access.insert("it".into(), list.clone());
    let plane = lists.plane_list("it", &|_| true).expect("it has rules");
    let classifier = compile::compile(&plane).expect("it fits");
    for _ in 0..packets {
        let packet = Packet::random(&mut rng, kind);
        let (ethertype, bytes) = packet.bytes();
        let key = Key::read(&Header { ethertype, ..Header::default() }, &bytes).expect("a valid header");
        let (linear, found) = (first_match(&plane.rules, &key), classifier.search(&key));
        assert_eq!((found.rule, found.permit), (linear, plane.permits(linear)), "seed {seed}: {packet:?}");
        let named = found.rule.map(|at| plane.rules[at].seq).filter(|seq| *seq != 0);
        let model = packet.judge(&list);
        assert_eq!(named, model.map(|(seq, _)| seq), "seed {seed}: {packet:?}");
        if let Some((_, action)) = model {
            assert_eq!(found.permit, action == Action::Permit, "seed {seed}: {packet:?}");
        }
    }
}

#[test]
fn classifier_and_model_agree() {
    for seed in 0..400 {
        for (kind, rules) in
            [(Kind::Extended, 1 + seed % 90), (Kind::Ipv6, 1 + seed % 70), (Kind::Standard, 1 + seed % 9)]
        {
            lists_agree(seed, kind, rules, 200);
        }
    }
}

#[test]
fn long_lists_agree() {
    for (seed, rules) in [(1, 4096), (2, 4095), (3, 1000), (4, 65), (5, 64), (6, 257)] {
        lists_agree(seed, Kind::Extended, rules, 2000);
        lists_agree(seed, Kind::Ipv6, rules.min(4094), 500);
    }
}

/// Each field of a rule decides: a packet that differs in one field is not matched.
#[test]
fn near_misses() {
    let check = |kind: Kind, rule: &str, ethertype: u16, packet: &[u8], at: usize, wrong: u8| {
        let words: Vec<&str> = rule.split_whitespace().collect();
        let mut lists = Lists::default();
        let mut list = AccessList::new(kind);
        list.insert(10, Entry::Rule(text::parse(kind, &words).expect("a rule")));
        lists.access.insert("it".into(), list);
        let plane = lists.plane_list("it", &|_| true).expect("it has a rule");
        let classifier = compile::compile(&plane).expect("it fits");
        let finds = |bytes: &[u8]| {
            let mac = |at: usize| MacAddr(bytes[at..at + 6].try_into().expect("six octets"));
            let header = Header { dst: mac(0), src: mac(6), ethertype, vlan: 10, cos: 5 };
            let key = Key::read(&header, &bytes[14..]).expect("a valid header");
            classifier.search(&key).rule == Some(0)
        };
        assert!(finds(packet), "{rule}");
        let mut other = packet.to_vec();
        other[at] ^= wrong;
        assert!(!finds(&other), "{rule}: byte {at}");
    };
    let ethernet = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0];
    let tcp =
        [&ethernet[..], &[0x45, 0xb8, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 1, 2, 3, 10, 4, 5, 6]].concat();
    let tcp = [&tcp[..], &[0x1f, 0x90, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0, 0, 0, 0, 0, 0]].concat();
    for (rule, at, wrong) in [
        ("permit ip 10.1.2.0 0.0.0.255 any", 28, 1),
        ("permit ip host 10.1.2.3 any", 29, 0x80),
        ("permit ip any host 10.4.5.6", 30, 0x40),
        ("permit tcp any any", 23, 1),
        ("permit tcp any eq 8080 any", 35, 1),
        ("permit tcp any any eq www", 37, 1),
        ("permit tcp any any range 80 81", 37, 2),
        ("permit tcp any any lt 81", 36, 1),
        ("permit tcp any any gt 79", 37, 0x40),
        ("permit tcp any any neq 81", 37, 1),
        ("permit tcp any any syn", 47, 2),
        ("permit tcp any any match-all +syn -ack", 47, 0x10),
        ("permit ip any any dscp ef", 15, 4),
        ("permit ip any any precedence critical", 15, 0x20),
    ] {
        check(Kind::Extended, rule, 0x0800, &tcp, at, wrong);
    }
    let arp = [&ethernet[..12], &[8, 6, 0, 1]].concat();
    for (rule, at, wrong) in [
        ("permit host 0200.0000.0008 any", 11, 1),
        ("permit any host 0200.0000.0009", 0, 4),
        ("permit 0200.0000.0000 0000.0000.ffff any", 8, 1),
    ] {
        check(Kind::Mac, rule, 0x0806, &arp, at, wrong);
    }
}

#[test]
fn limits_are_refused() {
    let mut rng = Rng::new(7);
    let mut lists = Lists::default();
    let list = random_list(&mut rng, Kind::Extended, 4097);
    lists.access.insert("long".into(), list);
    let plane = lists.plane_list("long", &|_| true).expect("it has rules");
    assert_eq!(compile::compile(&plane), Err(compile::TooLarge::Rules(4097)));
    let mut scattered = AccessList::new(Kind::Extended);
    for n in 0..64 {
        // Every other address of 64 different parts of the network.
        let rule = format!("permit ip {}.1.0.0 0.0.255.254 any", n + 1);
        let words: Vec<&str> = rule.split_whitespace().collect();
        scattered.insert(10 + n, Entry::Rule(text::parse(Kind::Extended, &words).expect("a rule")));
    }
    lists.access.insert("scattered".into(), scattered);
    let plane = lists.plane_list("scattered", &|_| true).expect("it has rules");
    assert_eq!(compile::compile(&plane), Err(compile::TooLarge::Masks));
}

/// 4,096 rules of different hosts and ports fit, and take little time.
#[test]
fn a_full_list_fits() {
    let mut list = AccessList::new(Kind::Extended);
    let mut rng = Rng::new(11);
    for n in 0..4096_u32 {
        let (a, b, p) = (rng.next_u64() as u32, rng.next_u64() as u32, 1 + rng.below(65_535));
        let rule = format!("permit tcp host {} host {} eq {p}", Ipv4Addr::from(a), Ipv4Addr::from(b));
        let words: Vec<&str> = rule.split_whitespace().collect();
        list.insert(n + 1, Entry::Rule(text::parse(Kind::Extended, &words).expect("a rule")));
    }
    let mut lists = Lists::default();
    lists.access.insert("it".into(), list);
    let began = std::time::Instant::now();
    let plane = lists.plane_list("it", &|_| true).expect("it has rules");
    let classifier = compile::compile(&plane).expect("it fits");
    println!("compiled in {:?}: {} KB", began.elapsed(), classifier.words().len() / 128);
    assert_eq!(compile::reserved_words(&classifier), lanyard_acl::classifier::LARGE_WORDS);
}

#[test]
fn help_and_refusals() {
    let check = |kind: Kind, line: &str, want: Result<(&[&str], bool), text::Wrong>| {
        let found = text::expected(kind, &line.split_whitespace().collect::<Vec<_>>());
        match (found, want) {
            (Ok(found), Ok((choices, complete))) => {
                assert_eq!(found.complete, complete, "{line}");
                for choice in choices {
                    assert!(
                        found.choices.iter().any(|(word, _)| word == choice),
                        "{line}: {choice}: {found:?}"
                    );
                }
            }
            (found, want) => assert_eq!(found.err(), want.err(), "{line}"),
        }
    };
    check(Kind::Extended, "", Ok((&["permit", "deny"], false)));
    check(Kind::Extended, "per tcp an", Ok((&["any", "eq", "range", "A.B.C.D"], false)));
    check(Kind::Extended, "permit tcp any any", Ok((&["eq", "established", "log", "syn", "dscp"], true)));
    check(Kind::Extended, "permit tcp any any eq www", Ok((&["ftp", "established"], true)));
    check(Kind::Standard, "permit 10.0.0.1", Ok((&["A.B.C.D", "log"], true)));
    check(Kind::Extended, "permit tcp any any eq", Ok((&["www", "<0-65535>"], false)));
    check(Kind::Extended, "permit i any any", Err(text::Wrong::Ambiguous(1)));
    check(Kind::Extended, "permit icmp any any eq 80", Err(text::Wrong::Invalid(4)));
    check(Kind::Extended, "permit ip any any established", Err(text::Wrong::Invalid(4)));
    check(Kind::Mac, "permit any host 10.0.0.1", Err(text::Wrong::Invalid(3)));
    check(Kind::Ipv6, "permit tcp 10.0.0.0 0.0.0.255 any", Err(text::Wrong::Invalid(2)));
}
