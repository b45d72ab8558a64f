//! Parses arguments: words to values.

use super::{Kind, MAX_RANGE, MAX_WORD, Names, Take, Value};
use crate::line::OUT_OF_RANGE;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lanyard_config::InterfaceName;
use lanyard_types::{ChannelId, MacAddr, VlanId, VlanSet};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The highest number of a port-channel's subinterface: the name of its pipeline end, `lypo255.9999999`, has 15 bytes.
const MAX_CHANNEL_SUBINTERFACE: u32 = 9_999_999;
/// The highest number of an MST instance (IEEE 802.1Q-2018, 13.8).
const MAX_MSTID: u16 = 4094;

/// Parses an argument of `kind` at the beginning of `words` (never empty); `rest` is the line from there on.
pub fn take(kind: Kind, words: &[&str], rest: &str, names: &dyn Names) -> Take {
    let Some(&word) = words.first() else { return Take::Short };
    match kind {
        Kind::Vlan => vlan(word),
        Kind::VlanList => vlan_list(word),
        Kind::Instances => instances(word),
        Kind::Mac => mac(word),
        Kind::Ipv4 | Kind::Ipv6 => address(kind, word),
        Kind::Ipv4Prefix | Kind::Ipv6Prefix => prefix(kind, word),
        Kind::Number(min, max) => number(word, min, max),
        Kind::Lifetime if word.eq_ignore_ascii_case("infinite") => {
            Take::Value(Value::Number(u32::MAX.into()), 1)
        }
        Kind::Lifetime => number(word, 0, u32::MAX.into()),
        Kind::Word(name, max) if word.len() > max => {
            Take::Bad(format!("{name} is {} bytes long: at most {max}", word.len()))
        }
        Kind::Word(..) => Take::Value(Value::Text(word.into()), 1),
        Kind::Line(max) | Kind::Rule(max) | Kind::Command(max) if rest.len() > max => {
            Take::Bad(format!("the text is {} bytes long: at most {max}", rest.len()))
        }
        Kind::Line(_) | Kind::Rule(_) | Kind::Command(_) => {
            Take::Value(Value::Text(rest.into()), words.len())
        }
        Kind::Interface => interface(words, names),
        Kind::InterfaceRange => match range(words, names) {
            Ok(list) => Take::Value(Value::Interfaces(list), words.len()),
            Err(reason) => Take::Bad(reason),
        },
        Kind::InterfaceList => {
            let words = &words[..list_len(words)];
            match range(words, names) {
                Ok(list) => Take::Value(Value::Interfaces(list), words.len()),
                Err(reason) => Take::Bad(reason),
            }
        }
        Kind::Hex => match hex(words) {
            Ok(bytes) => Take::Value(Value::Bytes(bytes), words.len()),
            Err(reason) => Take::Bad(reason),
        },
        Kind::Host => host(word),
    }
}

fn vlan(word: &str) -> Take {
    match word.parse::<VlanId>() {
        Ok(vlan) if digits(word) => Take::Value(Value::Vlan(vlan), 1),
        _ if digits(word) || is_number(word) => {
            Take::Bad(format!("VLAN {} is not a VLAN: 1 to 4094", short(word)))
        }
        _ => Take::Mismatch,
    }
}

/// True for a number in digits, also one with a sign or a point.
fn is_number(word: &str) -> bool {
    word.trim_start_matches(['-', '+']).starts_with(|c: char| c.is_ascii_digit())
        && word.bytes().all(|b| b.is_ascii_digit() || b"+-.".contains(&b))
        && !is_quad(word)
}

fn vlan_list(word: &str) -> Take {
    if !word.starts_with(|c: char| c.is_ascii_digit()) && !is_number(word) {
        return Take::Mismatch;
    }
    if digits(word) || word.starts_with(['-', '+']) {
        return match vlan(word) {
            Take::Value(Value::Vlan(vlan), n) => Take::Value(Value::Vlans([vlan].into_iter().collect()), n),
            other => other,
        };
    }
    match word.parse::<VlanSet>() {
        Ok(set) if word.bytes().all(|b| b.is_ascii_digit() || b == b',' || b == b'-') => {
            Take::Value(Value::Vlans(set), 1)
        }
        Ok(_) => Take::Bad(format!("{} is not a list of VLANs", short(word))),
        Err(error) => Take::Bad(error.to_string()),
    }
}

fn instances(word: &str) -> Take {
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return Take::Mismatch;
    }
    let mut all = BTreeSet::new();
    for part in word.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u16>().ok().filter(|n| digits(text) && *n <= MAX_MSTID);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => all.extend(first..=last),
            _ => {
                return Take::Bad(format!(
                    "{} is not an MST instance or a range of them: 0 to {MAX_MSTID}",
                    short(part)
                ));
            }
        }
    }
    Take::Value(Value::Instances(all), 1)
}

fn mac(word: &str) -> Take {
    match word.parse::<MacAddr>() {
        Ok(mac) => Take::Value(Value::Mac(mac), 1),
        Err(error) if word.contains(['.', ':', '-']) => Take::Bad(error.to_string()),
        Err(_) => Take::Mismatch,
    }
}

/// True for text in the form of an IPv4 address, whatever its numbers: `300.1.1.1`.
pub(crate) fn is_quad(word: &str) -> bool {
    word.split('.').count() == 4 && word.split('.').all(digits)
}

fn bad_quad(word: &str) -> Take {
    Take::Bad(not_ipv4(word))
}

/// The refusal of text that has the form of an IPv4 address but is not one.
pub(crate) fn not_ipv4(word: &str) -> String {
    format!("{} is not an IPv4 address: each of its four numbers is 0 to 255", short(word))
}

fn address(kind: Kind, word: &str) -> Take {
    let address = match kind {
        Kind::Ipv4 => word.parse::<Ipv4Addr>().ok().map(IpAddr::from),
        _ => word.parse::<Ipv6Addr>().ok().map(IpAddr::from),
    };
    match address {
        Some(address) => Take::Value(Value::Address(address), 1),
        None if kind == Kind::Ipv4 && is_quad(word) => bad_quad(word),
        None => other_family(kind == Kind::Ipv4, word, word),
    }
}

/// Refuses `word` if `address`, a part of it, is an address of the family that is not expected; a mismatch if `address` is no
/// address.
fn other_family(wants_v4: bool, word: &str, address: &str) -> Take {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) if wants_v4 => {
            Take::Bad(format!("{} is not an IPv4 address: it belongs to IPv6", short(word)))
        }
        Ok(IpAddr::V4(_)) if !wants_v4 => {
            Take::Bad(format!("{} is not an IPv6 address: it belongs to IPv4", short(word)))
        }
        _ => Take::Mismatch,
    }
}

fn prefix(kind: Kind, word: &str) -> Take {
    let Some((address, length)) = word.split_once('/') else { return Take::Mismatch };
    let (net, known, most) = match kind {
        Kind::Ipv4Prefix => {
            (word.parse::<Ipv4Net>().ok().map(IpNet::from), address.parse::<Ipv4Addr>().is_ok(), 32)
        }
        _ => (word.parse::<Ipv6Net>().ok().map(IpNet::from), address.parse::<Ipv6Addr>().is_ok(), 128),
    };
    match net {
        Some(net) => Take::Value(Value::Prefix(net), 1),
        None if known => {
            Take::Bad(format!("/{} is not a prefix length of {address}: 0 to {most}", short(length)))
        }
        None if kind == Kind::Ipv4Prefix && is_quad(address) => bad_quad(address),
        None => other_family(kind == Kind::Ipv4Prefix, word, address),
    }
}

fn number(word: &str, min: u64, max: u64) -> Take {
    if !digits(word) {
        return if is_number(word) {
            Take::Bad(format!("{} is not a whole number from {min} to {max}", short(word)))
        } else {
            Take::Mismatch
        };
    }
    match word.parse::<u64>() {
        Ok(n) if (min..=max).contains(&n) => Take::Value(Value::Number(n), 1),
        _ => Take::Bad(format!("{}{OUT_OF_RANGE}{min} to {max}", short(word))),
    }
}

fn host(word: &str) -> Take {
    let fits = word.len() <= MAX_WORD
        && word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == ':')
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b".:-_%".contains(&b));
    match fits {
        true if is_quad(word) && word.parse::<Ipv4Addr>().is_err() => bad_quad(word),
        true => Take::Value(Value::Text(word.into()), 1),
        false => Take::Bad(format!("{} is not a host: enter a name or an address", short(word))),
    }
}

fn hex(words: &[&str]) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = words.iter().flat_map(|w| w.bytes()).filter(|b| *b != b':').collect();
    let text = std::str::from_utf8(&digits).unwrap_or_default();
    if text.is_empty() || text.len() != digits.len() || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(format!("{} is not hexadecimal", short(&words.join(" "))));
    }
    if !text.len().is_multiple_of(2) {
        return Err(format!("{} hexadecimal digits are not whole bytes", text.len()));
    }
    Ok(text
        .as_bytes()
        .chunks(2)
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect())
}

/// True for a word that means VLAN interfaces when a number follows: `vlan`, `Vlan`, `Vl`.
fn is_vlan_word(word: &str) -> bool {
    word.len() >= 2 && word.len() <= 4 && "vlan".starts_with(&word.to_ascii_lowercase())
}

/// The number in `vlan10` or `Vlan10`, as text.
fn vlan_number(word: &str) -> Option<&str> {
    let (head, tail) = word.split_at_checked(4)?;
    (head.eq_ignore_ascii_case("vlan") && digits(tail)).then_some(tail)
}

/// The number of a port-channel, as text, and how many words its name has: 2 in `port-channel 1` and `po 1`, 1 in
/// `Port-channel1` and `po1`. The number of a subinterface is `1.100`.
fn channel_number<'a>(word: &'a str, next: Option<&'a str>) -> Option<(&'a str, usize)> {
    let digits = |word: &str| word.split_once('.').map_or(digits(word), |(a, b)| digits(a) && digits(b));
    let lower = word.to_ascii_lowercase();
    if word.len() >= 2
        && "port-channel".starts_with(&lower)
        && let Some(number) = next.filter(|next| digits(next))
    {
        return Some((number, 2));
    }
    let head = ["port-channel", "po"].into_iter().find(|head| lower.starts_with(head))?;
    let number = word.get(head.len()..).filter(|number| digits(number))?;
    Some((number, 1))
}

fn interface(words: &[&str], names: &dyn Names) -> Take {
    let single = |name, n| Take::Value(Value::Interfaces(vec![name]), n);
    let Some(&word) = words.first() else { return Take::Short };
    let number = match (vlan_number(word), words.get(1)) {
        (Some(number), _) => Some((number, 1)),
        (None, Some(next)) if is_vlan_word(word) && digits(next) => Some((*next, 2)),
        _ => None,
    };
    if let Some((number, n)) = number {
        return match vlan(number) {
            Take::Value(Value::Vlan(vlan), _) => single(InterfaceName::Vlan(vlan), n),
            other => other,
        };
    }
    if let Some((number, n)) = channel_number(word, words.get(1).copied()) {
        let (number, sub) =
            number.split_once('.').map_or((number, None), |(number, sub)| (number, Some(sub)));
        let sub = match sub.map(|sub| (sub, sub.parse())) {
            None => None,
            Some((_, Ok(sub @ 1..=MAX_CHANNEL_SUBINTERFACE))) => Some(sub),
            Some((sub, _)) => {
                let most = MAX_CHANNEL_SUBINTERFACE;
                return Take::Bad(format!("{} is no number of a subinterface: 1 to {most}", short(sub)));
            }
        };
        return match number.parse().ok().and_then(ChannelId::new) {
            Some(channel) => {
                let whole = InterfaceName::of_channel(channel);
                single(sub.map_or(whole, |sub| InterfaceName::of_channel_subinterface(channel, sub)), n)
            }
            None => Take::Bad(format!("port-channel {} does not exist: 1 to 255", short(number))),
        };
    }
    if !names.is_netdev(word) {
        let apart = words.get(1).filter(|next| next.starts_with(|c: char| c.is_ascii_digit()));
        let apart =
            apart.and_then(|next| names.netdev_of(&format!("{word}{next}"))).map(|netdev| (netdev, 2));
        if let Some((netdev, n)) = names.netdev_of(word).map(|netdev| (netdev, 1)).or(apart) {
            return single(InterfaceName::Netdev(netdev), n);
        }
    }
    if word.eq_ignore_ascii_case("vlan") && words.len() == 1 && !names.is_netdev(word) {
        return Take::Short;
    }
    let (name, n) = match words.get(1) {
        Some(next) if word.eq_ignore_ascii_case("netdev") => (*next, 2),
        _ => (word, 1),
    };
    if let Some(reason) = names.unmapped(name) {
        return Take::Bad(reason);
    }
    match netdev(name) {
        // A netdev whose name has the form of an IPv4 address has to be entered as `netdev 10.0.0.1`.
        Ok(_) if n == 1 && is_quad(name) => Take::Bad(format!("{} is not an interface", short(name))),
        Ok(name) => single(name, n),
        Err(reason) => Take::Bad(reason),
    }
}

/// Checks a netdev's name by the kernel's rules.
pub fn netdev(name: &str) -> Result<InterfaceName, String> {
    if name.is_empty() {
        return Err("an interface's name is missing".into());
    }
    let bad = name == "." || name == ".." || name.contains(['/', ':']) || name.contains(char::is_whitespace);
    if name.contains('/') && name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        let name = short(name);
        return Err(format!(
            "no netdev stands for {name}: enter platform interface-name NETDEV {name} in global configuration"
        ));
    }
    if bad {
        return Err(format!("{} is not an interface's name", short(name)));
    }
    if name.len() > 15 {
        return Err(format!(
            "{} is {} bytes long: an interface's name has at most 15",
            short(name),
            name.len()
        ));
    }
    Ok(InterfaceName::Netdev(name.into()))
}

/// The number of words at the beginning of `words` that are a list of interfaces: a comma, a hyphen, and the number of a name
/// written apart (`port-channel 1`) continue it.
fn list_len(words: &[&str]) -> usize {
    let joins = |c: char| c == ',' || c == '-';
    let continued = |pair: &[&str]| {
        let apart = pair[1].starts_with(|c: char| c.is_ascii_digit())
            && !pair[0].contains(|c: char| c.is_ascii_digit());
        pair[0].ends_with(joins) || pair[1].starts_with(joins) || apart
    };
    1 + words.windows(2).take_while(|pair| continued(pair)).count()
}

/// Parses a range: `swp1 - 4 , eth7`, `swp1-swp4`, `vlan 10 - 20`.
fn range(words: &[&str], names: &dyn Names) -> Result<Vec<InterfaceName>, String> {
    let mut list: Vec<InterfaceName> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for part in words.concat().split(',') {
        for name in range_part(part, names)? {
            if !seen.insert(name.clone()) {
                return Err(format!("{name} is in the range twice"));
            }
            list.push(name);
            if list.len() > MAX_RANGE {
                return Err(format!("the range is longer than {MAX_RANGE} interfaces"));
            }
        }
    }
    Ok(list)
}

fn range_part(part: &str, names: &dyn Names) -> Result<Vec<InterfaceName>, String> {
    let single = |part: &str| match interface(&[part], names) {
        Take::Value(Value::Interfaces(list), _) => Ok(list),
        Take::Bad(reason) => Err(reason),
        _ => Err(format!("{} is not an interface", short(part))),
    };
    if names.is_netdev(part) {
        return single(part);
    }
    let Some((first, last)) = part.rsplit_once('-') else { return single(part) };
    let (prefix, from) = split_number(first);
    let (last_prefix, to) = split_number(last);
    if from.is_empty()
        || to.is_empty()
        || !(last_prefix.is_empty() || last_prefix.eq_ignore_ascii_case(prefix))
    {
        return single(part);
    }
    let number =
        |text: &str| text.parse::<u32>().map_err(|_| format!("{} is not a range of interfaces", short(part)));
    let (from_number, to_number) = (number(from)?, number(to)?);
    if to_number < from_number {
        return Err(format!("range {} ends before it starts", short(part)));
    }
    if (to_number - from_number) as usize >= MAX_RANGE {
        return Err(format!("range {} is longer than {MAX_RANGE} interfaces", short(part)));
    }
    let width = if from.starts_with('0') { from.len() } else { 0 };
    let mut list = Vec::new();
    for n in from_number..=to_number {
        list.extend(single(&format!("{prefix}{n:0width$}"))?);
    }
    Ok(list)
}

/// Divides a name into its text and the number at its end.
fn split_number(name: &str) -> (&str, &str) {
    name.split_at(name.trim_end_matches(|c: char| c.is_ascii_digit()).len())
}

fn digits(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// Shortens a word for a message.
pub fn short(word: &str) -> String {
    if word.chars().count() <= 40 {
        word.into()
    } else {
        word.chars().take(40).chain("...".chars()).collect()
    }
}
