//! The text of rules in the grammar of IOS: [`parse`], and [`expected`] for completion and help. `print.rs` makes text from
//! rules.
//!
//! Keywords may be abbreviated as long as they are unique. Invariant: [`parse`] accepts what [`Rule::text`] prints, and gives
//! the same rule.

use crate::fields::{Address, PortMatch, TcpMatch};
use crate::groups::Service;
use crate::list::Kind;
use crate::names::{self, Names};
use crate::rule::{Action, IpMatch, MacMatch, Matches, Protocol, Rule};
use ipnet::Ipv6Net;
use lanyard_types::{MacAddr, VlanId};
use std::net::Ipv4Addr;
use std::str::FromStr;

/// The longest name of a list, group or time range, in bytes.
pub const MAX_NAME: usize = 64;
/// The most ports that `eq` and `neq` take.
pub const MAX_PORTS: usize = 10;

/// Why words are not a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// More words are needed.
    Incomplete,
    /// The word at this index may not stand there.
    Invalid(usize),
    /// The word at this index abbreviates several keywords.
    Ambiguous(usize),
    /// The word at this index is refused for this reason.
    Refused(usize, String),
}

/// A word that may follow: the keyword or the form of the argument, and the text that `?` shows.
pub type Choice = (String, &'static str);

/// What may follow the words entered so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The words that may follow.
    pub choices: Vec<Choice>,
    /// True if the rule may end here.
    pub complete: bool,
}

/// Parses a rule, from `permit` or `deny` on.
///
/// # Errors
/// Says which word is wrong.
pub fn parse(kind: Kind, words: &[&str]) -> Result<Rule, Wrong> {
    let mut line = Words { words, at: 0, choices: Vec::new() };
    rule(kind, &mut line)
}

/// The words that may follow `words`. The last of `words` counts as complete.
///
/// # Errors
/// When the words do not begin a rule.
pub fn expected(kind: Kind, words: &[&str]) -> Result<Expected, Wrong> {
    let mut line = Words { words, at: 0, choices: Vec::new() };
    let found = rule(kind, &mut line).map(drop);
    line.expected(found)
}

/// Parses a member of a service group: `tcp|udp|... [source PORTS] [PORTS]`, or a protocol.
///
/// # Errors
/// Says which word is wrong.
pub fn parse_service(words: &[&str]) -> Result<Service, Wrong> {
    service(&mut Words { words, at: 0, choices: Vec::new() })
}

/// The words that may follow `words` in a member of a service group. The last of `words` counts as complete.
///
/// # Errors
/// Says which word is wrong.
pub fn expected_service(words: &[&str]) -> Result<Expected, Wrong> {
    let mut line = Words { words, at: 0, choices: Vec::new() };
    let found = service(&mut line).map(drop);
    line.expected(found)
}

fn service(line: &mut Words<'_>) -> Result<Service, Wrong> {
    let protocol = match protocol(Kind::Extended, line)? {
        Protocol::Number(number) => Some(number),
        _ => None,
    };
    let mut service = Service { protocol, src_port: None, dst_port: None };
    if let Some(ports) = protocol.and_then(port_names) {
        if line.keyword(&[("source", "Source port")])?.is_some() {
            service.src_port = Some(line.need_port(ports)?);
        }
        service.dst_port = port(line, ports)?;
    }
    line.end()?;
    Ok(service)
}

struct Words<'a> {
    words: &'a [&'a str],
    at: usize,
    /// The words that are accepted at the position `at`.
    choices: Vec<Choice>,
}

impl Words<'_> {
    /// What may follow the words. `found` is the result of parsing them.
    fn expected(self, found: Result<(), Wrong>) -> Result<Expected, Wrong> {
        match found {
            Ok(()) => Ok(Expected { choices: self.choices, complete: true }),
            Err(Wrong::Incomplete) => Ok(Expected { choices: self.choices, complete: false }),
            Err(wrong) => Err(wrong),
        }
    }
    /// Takes a keyword, if the next word is one of these or abbreviates one.
    fn keyword(&mut self, keywords: &[(&'static str, &'static str)]) -> Result<Option<&'static str>, Wrong> {
        self.choices.extend(keywords.iter().map(|(word, help)| ((*word).to_owned(), *help)));
        let Some(word) = self.words.get(self.at) else { return Ok(None) };
        let lower = word.to_ascii_lowercase();
        let exact = keywords.iter().find(|(keyword, _)| *keyword == lower);
        let mut begun = keywords.iter().filter(|(keyword, _)| keyword.starts_with(&lower));
        let found = exact.or_else(|| begun.next());
        if exact.is_none() && begun.next().is_some() {
            return Err(Wrong::Ambiguous(self.at));
        }
        if found.is_some() {
            self.step();
        }
        Ok(found.map(|(keyword, _)| *keyword))
    }
    /// Takes a name of a table, or a number up to `max`.
    fn value<T: Copy>(
        &mut self,
        names: Names<T>,
        help: &'static str,
        max: u64,
        number: fn(u64) -> T,
    ) -> Result<Option<T>, Wrong> {
        self.choices.push((format!("<0-{max}>"), help));
        if let Some(word) = self.words.get(self.at).filter(|word| word.bytes().all(|b| b.is_ascii_digit())) {
            let parsed = word.parse().ok().filter(|n| *n <= max);
            let parsed = parsed
                .ok_or_else(|| Wrong::Refused(self.at, format!("{word} is not a number from 0 to {max}")))?;
            self.step();
            return Ok(Some(number(parsed)));
        }
        let keywords: Vec<_> = names.iter().map(|(name, _)| (*name, help)).collect();
        Ok(self.keyword(&keywords)?.and_then(|name| names::value(names, name)))
    }
    /// Takes an argument of this form.
    fn argument<T: FromStr>(&mut self, form: &str, help: &'static str) -> Option<T> {
        self.choices.push((form.to_owned(), help));
        let value = self.words.get(self.at).and_then(|word| word.parse().ok());
        if value.is_some() {
            self.step();
        }
        value
    }
    fn step(&mut self) {
        self.at += 1;
        self.choices.clear();
    }
    /// The error when the word at the position `at` is not one that must follow there, or is missing.
    fn wrong(&self) -> Wrong {
        if self.at < self.words.len() { Wrong::Invalid(self.at) } else { Wrong::Incomplete }
    }
    fn need<T>(&self, value: Option<T>) -> Result<T, Wrong> {
        value.ok_or_else(|| self.wrong())
    }
    fn need_port(&mut self, names: Names<u16>) -> Result<PortMatch, Wrong> {
        let found = port(self, names)?;
        self.need(found)
    }
    fn end(&self) -> Result<(), Wrong> {
        if self.at < self.words.len() { Err(Wrong::Invalid(self.at)) } else { Ok(()) }
    }
    fn name(&mut self, help: &'static str) -> Result<String, Wrong> {
        let at = self.at;
        let name: Option<String> = self.argument("WORD", help);
        let name = self.need(name)?;
        if name.len() > MAX_NAME {
            return Err(Wrong::Refused(
                at,
                format!("a name has at most {MAX_NAME} bytes, and this one has {}", name.len()),
            ));
        }
        Ok(name)
    }
}

fn rule(kind: Kind, line: &mut Words<'_>) -> Result<Rule, Wrong> {
    let action =
        line.keyword(&[("deny", "Specify packets to reject"), ("permit", "Specify packets to forward")])?;
    let action = match line.need(action)? {
        "deny" => Action::Deny,
        _ => Action::Permit,
    };
    let matches = match kind {
        Kind::Standard => {
            let src = standard_address(line)?;
            Matches::Ip(IpMatch { src, ..IpMatch::default() })
        }
        Kind::Extended | Kind::Ipv6 => Matches::Ip(ip_match(kind, line)?),
        Kind::Mac => Matches::Mac(mac_match(line)?),
    };
    let mut rule = Rule::new(action, matches);
    options(kind, &mut rule, line)?;
    line.end()?;
    Ok(rule)
}

fn standard_address(line: &mut Words<'_>) -> Result<Address, Wrong> {
    match line.keyword(&[("any", "Any source host"), ("host", "A single host address")])? {
        Some("any") => return Ok(Address::Any),
        Some(_) => {
            let host = line.argument("A.B.C.D", "Host address");
            return Ok(Address::V4(line.need(host)?, Ipv4Addr::UNSPECIFIED));
        }
        None => {}
    }
    let address = line.argument("A.B.C.D", "Address to match");
    let address = line.need(address)?;
    let wildcard = line.argument("A.B.C.D", "Wildcard bits");
    Ok(v4(address, wildcard.unwrap_or(Ipv4Addr::UNSPECIFIED)))
}

/// An address with a wildcard mask. The bits that are not compared are stored as 0, as IOS prints them.
fn v4(address: Ipv4Addr, wildcard: Ipv4Addr) -> Address {
    if wildcard == Ipv4Addr::BROADCAST {
        return Address::Any;
    }
    Address::V4(Ipv4Addr::from_bits(address.to_bits() & !wildcard.to_bits()), wildcard)
}

fn protocol(kind: Kind, line: &mut Words<'_>) -> Result<Protocol, Wrong> {
    let (any, table) = match kind {
        Kind::Ipv6 => (("ipv6", "Any IPv6"), names::PROTOCOLS6),
        _ => (("ip", "Any Internet Protocol"), names::PROTOCOLS),
    };
    let mut keywords: Vec<(&'static str, &'static str)> =
        table.iter().map(|(name, _)| (*name, names::protocol_help(name))).collect();
    keywords.push(any);
    if kind == Kind::Extended {
        keywords.push(("object-group", "Service object group"));
    }
    line.choices.push(("<0-255>".into(), "A protocol number"));
    if let Some(word) = line.words.get(line.at).filter(|word| word.bytes().all(|b| b.is_ascii_digit())) {
        let number = word
            .parse()
            .map_err(|_| Wrong::Refused(line.at, format!("{word} is not a protocol: 0 to 255")))?;
        line.step();
        return Ok(Protocol::Number(number));
    }
    let found = line.keyword(&keywords)?;
    Ok(match line.need(found)? {
        "ip" | "ipv6" => Protocol::Any,
        "object-group" => Protocol::Group(line.name("Service object group name")?),
        name => Protocol::Number(line.need(names::value(table, name))?),
    })
}

/// The names of a protocol's ports; `None` for a protocol without ports.
pub(crate) fn port_names(protocol: u8) -> Option<Names<u16>> {
    match protocol {
        6 => Some(names::TCP_PORTS),
        17 => Some(names::UDP_PORTS),
        132 => Some(&[]),
        _ => None,
    }
}

fn ip_match(kind: Kind, line: &mut Words<'_>) -> Result<IpMatch, Wrong> {
    let protocol = protocol(kind, line)?;
    let number = if let Protocol::Number(number) = protocol { Some(number) } else { None };
    let ports = number.and_then(port_names);
    let mut found = IpMatch { protocol, ..IpMatch::default() };
    found.src = address(kind, line, "source")?;
    if let Some(names) = ports {
        found.src_port = port(line, names)?;
    }
    found.dst = address(kind, line, "destination")?;
    if let Some(names) = ports {
        found.dst_port = port(line, names)?;
    }
    found.icmp = match (number, kind) {
        (Some(1), Kind::Extended) => message(line, names::ICMP)?,
        (Some(58), Kind::Ipv6) => message(line, names::ICMPV6)?,
        (Some(2), Kind::Extended) => {
            line.value(names::IGMP, "IGMP type", 255, |n| n as u8)?.map(|kind| (kind, None))
        }
        _ => None,
    };
    Ok(found)
}

fn message(line: &mut Words<'_>, names: Names<(u8, Option<u8>)>) -> Result<Option<(u8, Option<u8>)>, Wrong> {
    let named = line.words.get(line.at).is_some_and(|word| !word.bytes().all(|b| b.is_ascii_digit()));
    let found = line.value(names, "ICMP message type", 255, |n| (n as u8, None))?;
    Ok(match found {
        Some((kind, None)) if !named => Some((kind, line.value(&[], "ICMP message code", 255, |n| n as u8)?)),
        other => other,
    })
}

fn address(kind: Kind, line: &mut Words<'_>, which: &'static str) -> Result<Address, Wrong> {
    let mut keywords = vec![("any", "Any host"), ("host", "A single host")];
    keywords.push(("object-group", "Network object group"));
    match line.keyword(&keywords)? {
        Some("any") => return Ok(Address::Any),
        Some("object-group") => return Ok(Address::Group(line.name("Network object group name")?)),
        Some(_) if kind == Kind::Ipv6 => {
            let host = line.argument("X:X:X:X::X", "Host address");
            return Ok(Address::V6(Ipv6Net::from(line.need::<std::net::Ipv6Addr>(host)?)));
        }
        Some(_) => {
            let host = line.argument("A.B.C.D", "Host address");
            return Ok(Address::V4(line.need(host)?, Ipv4Addr::UNSPECIFIED));
        }
        None => {}
    }
    let help = if which == "source" { "Source address" } else { "Destination address" };
    if kind == Kind::Ipv6 {
        let net: Option<Ipv6Net> = line.argument("X:X:X:X::X/<0-128>", help);
        let net = line.need(net)?.trunc();
        return Ok(if net.prefix_len() == 0 { Address::Any } else { Address::V6(net) });
    }
    let address = line.argument("A.B.C.D", help);
    let address = line.need(address)?;
    let wildcard = line.argument("A.B.C.D", "Wildcard bits");
    Ok(v4(address, line.need(wildcard)?))
}

fn port(line: &mut Words<'_>, names: Names<u16>) -> Result<Option<PortMatch>, Wrong> {
    const OPERATORS: &[(&str, &str)] = &[
        ("eq", "Match only packets on a given port number"),
        ("gt", "Match only packets with a greater port number"),
        ("lt", "Match only packets with a lower port number"),
        ("neq", "Match only packets not on a given port number"),
        ("range", "Match only packets in the range of port numbers"),
    ];
    let Some(operator) = line.keyword(OPERATORS)? else { return Ok(None) };
    let one = |line: &mut Words<'_>| line.value(names, "Port", 65_535, |n| n as u16);
    let at = line.at;
    let first = one(line)?;
    let first = line.need(first)?;
    Ok(Some(match operator {
        "gt" if first == u16::MAX => return Err(Wrong::Refused(at, "no port is greater than 65535".into())),
        "lt" if first == 0 => return Err(Wrong::Refused(at, "no port is lower than 0".into())),
        "gt" => PortMatch::Gt(first),
        "lt" => PortMatch::Lt(first),
        "range" => {
            let last = one(line)?;
            let last = line.need(last)?;
            PortMatch::Range(first.min(last), first.max(last))
        }
        _ => {
            let mut ports = vec![first];
            while ports.len() < MAX_PORTS {
                // The next word may also be a keyword behind the ports, so the name of a further port is accepted in full
                // only.
                let is_port = line.words.get(line.at).is_none_or(|word| {
                    word.bytes().all(|b| b.is_ascii_digit()) || names::value(names, word).is_some()
                });
                if !is_port {
                    break;
                }
                match one(line)? {
                    Some(port) => ports.push(port),
                    None => break,
                }
            }
            if operator == "eq" { PortMatch::Eq(ports) } else { PortMatch::Neq(ports) }
        }
    }))
}

fn mac_match(line: &mut Words<'_>) -> Result<MacMatch, Wrong> {
    let src = mac_address(line, "Source MAC address")?;
    let dst = mac_address(line, "Destination MAC address")?;
    let mut found = MacMatch { src, dst, ..MacMatch::default() };
    if let Some(Hex(value)) = line.argument("0x<0-FFFF>", "An arbitrary EtherType in hex") {
        let wildcard = line.argument("0x<0-FFFF>", "EtherType wildcard bits");
        let wildcard = wildcard.map_or(0, |Hex(bits)| bits);
        found.ethertype = Some((value & !wildcard, wildcard));
    } else {
        let keywords: Vec<_> = names::ETHERTYPES.iter().map(|(name, _)| (*name, "An EtherType")).collect();
        let name = line.keyword(&keywords)?;
        found.ethertype = name.and_then(|name| names::value(names::ETHERTYPES, name)).map(|value| (value, 0));
    }
    Ok(found)
}

struct Hex(u16);

impl FromStr for Hex {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let digits = digits.or_else(|| text.bytes().all(|b| b.is_ascii_digit()).then_some(text)).ok_or(())?;
        let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16).ok().filter(|_| plain).map(Self).ok_or(())
    }
}

fn mac_address(line: &mut Words<'_>, help: &'static str) -> Result<Option<(MacAddr, MacAddr)>, Wrong> {
    match line.keyword(&[("any", "Any MAC address"), ("host", "A single MAC address")])? {
        Some("any") => return Ok(None),
        Some(_) => {
            let host = line.argument("H.H.H", help);
            return Ok(Some((line.need(host)?, MacAddr::default())));
        }
        None => {}
    }
    let address: Option<MacAddr> = line.argument("H.H.H", help);
    let address = line.need(address)?;
    let wildcard: Option<MacAddr> = line.argument("H.H.H", "Wildcard bits");
    let wildcard = line.need(wildcard)?;
    let compared = MacAddr::from_u64(address.to_u64() & !wildcard.to_u64());
    Ok((wildcard != MacAddr::BROADCAST).then_some((compared, wildcard)))
}

/// The keywords after the addresses, in any order, each at most once.
fn options(kind: Kind, rule: &mut Rule, line: &mut Words<'_>) -> Result<(), Wrong> {
    let mut left: Vec<(&'static str, &'static str)> = vec![("log", "Log matches against this entry")];
    match (&rule.matches, kind) {
        (_, Kind::Standard) => {}
        (Matches::Mac(_), _) => {
            left.extend([("cos", "Match the class of service"), ("vlan", "Match the VLAN")])
        }
        (Matches::Ip(ip), _) => {
            left.extend([
                ("dscp", "Match packets with given dscp value"),
                ("fragments", "Check non-initial fragments"),
                ("log-input", "Log matches against this entry, including input interface"),
                ("time-range", "Specify a time-range"),
            ]);
            if kind == Kind::Extended {
                left.push(("precedence", "Match packets with given precedence value"));
            }
            if ip.protocol == Protocol::Number(6) {
                left.extend(names::TCP_FLAGS.iter().map(|(name, _)| (*name, "Match on this flag")));
                left.extend([
                    ("established", "Match established connections"),
                    ("match-all", "Match if all specified flags are present"),
                    ("match-any", "Match if any specified flag is present"),
                ]);
            }
        }
    }
    while let Some(word) = line.keyword(&left)? {
        left.retain(|(other, _)| *other != word && !(word.starts_with("log") && other.starts_with("log")));
        option(rule, word, line)?;
    }
    if let Matches::Ip(ip) = &rule.matches {
        let transport =
            ip.src_port.is_some() || ip.dst_port.is_some() || ip.icmp.is_some() || ip.tcp.is_some();
        if ip.fragments && (transport || matches!(ip.protocol, Protocol::Group(_))) {
            let why = "later fragments have no ports, flags or message types: leave out these, or fragments";
            return Err(Wrong::Refused(line.words.len().saturating_sub(1), why.into()));
        }
        if ip.dscp.is_some() && ip.precedence.is_some() {
            let why = "dscp and precedence are the same bits: leave out one of them";
            return Err(Wrong::Refused(line.words.len().saturating_sub(1), why.into()));
        }
    }
    Ok(())
}

fn option(rule: &mut Rule, word: &'static str, line: &mut Words<'_>) -> Result<(), Wrong> {
    match (word, &mut rule.matches) {
        ("log" | "log-input", _) => (rule.log, rule.log_input) = (true, word == "log-input"),
        ("time-range", _) => rule.time_range = Some(line.name("Time range name")?),
        ("vlan", Matches::Mac(mac)) => {
            let vlan: Option<VlanId> = line.argument("<1-4094>", "VLAN");
            mac.vlan = Some(line.need(vlan)?);
        }
        ("cos", Matches::Mac(mac)) => {
            let cos = line.value(&[], "Class of service", 7, |n| n as u8)?;
            mac.cos = Some(line.need(cos)?);
        }
        ("dscp", Matches::Ip(ip)) => {
            let dscp = line.value(names::DSCP, "Differentiated services codepoint", 63, |n| n as u8)?;
            ip.dscp = Some(line.need(dscp)?);
        }
        ("precedence", Matches::Ip(ip)) => {
            let precedence = line.value(names::PRECEDENCE, "Precedence", 7, |n| n as u8)?;
            ip.precedence = Some(line.need(precedence)?);
        }
        ("fragments", Matches::Ip(ip)) => ip.fragments = true,
        ("established", Matches::Ip(ip)) => put_flags(ip, line, TcpMatch::Established)?,
        ("match-all" | "match-any", Matches::Ip(ip)) => {
            let (set, clear) = flags(line)?;
            let wanted =
                if word == "match-all" { TcpMatch::All(set, clear) } else { TcpMatch::Any(set, clear) };
            put_flags(ip, line, wanted)?;
        }
        (flag, Matches::Ip(ip)) => {
            let bit = names::value(names::TCP_FLAGS, flag).unwrap_or(0);
            ip.tcp = match ip.tcp {
                None => Some(TcpMatch::Any(bit, 0)),
                Some(TcpMatch::Any(set, 0)) => Some(TcpMatch::Any(set | bit, 0)),
                Some(_) => return Err(conflict(line)),
            };
        }
        (_, Matches::Mac(_)) => {}
    }
    Ok(())
}

fn conflict(line: &Words<'_>) -> Wrong {
    Wrong::Refused(
        line.at.saturating_sub(1),
        "a rule has one condition on the flags: leave out the other".into(),
    )
}

fn put_flags(ip: &mut IpMatch, line: &Words<'_>, wanted: TcpMatch) -> Result<(), Wrong> {
    if ip.tcp.is_some() {
        return Err(conflict(line));
    }
    ip.tcp = Some(wanted);
    Ok(())
}

/// `+ack -fin ...`: the flags that are set, and those that are not.
fn flags(line: &mut Words<'_>) -> Result<(u8, u8), Wrong> {
    let (mut set, mut clear) = (0, 0);
    loop {
        for (name, _) in names::TCP_FLAGS {
            line.choices.push((format!("+{name}"), "Match if this flag is set"));
            line.choices.push((format!("-{name}"), "Match if this flag is not set"));
        }
        let word = line.words.get(line.at).map(|word| word.to_ascii_lowercase());
        let flag = |sign| names::value(names::TCP_FLAGS, word.as_deref()?.strip_prefix(sign)?);
        match (flag('+'), flag('-')) {
            (Some(bit), _) if (set | clear) & bit == 0 => set |= bit,
            (_, Some(bit)) if (set | clear) & bit == 0 => clear |= bit,
            (None, None) if set | clear != 0 => return Ok((set, clear)),
            _ => return Err(line.wrong()),
        }
        line.step();
    }
}
