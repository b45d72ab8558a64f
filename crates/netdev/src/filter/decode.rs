//! Decodes nfnetlink and XFRM messages into [`Hook`]s.
//!
//! Read linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h and linux/xfrm.h first. Invariant:
//! an announcement that is truncated or has an unknown form counts as a change, so that a listing
//! follows. In a listing such a message is skipped.

use super::{Hook, HookPoint};
use crate::decode::attributes;
use netlink_packet_core::{NLA_TYPE_MASK, NlaBuffer, NlasIterator, parse_string};

/// The multicast groups of announcements.
pub const NFNLGRP_NFTABLES: u32 = 7;
pub const XFRMNLGRP_EXPIRE: u32 = 2;
pub const XFRMNLGRP_POLICY: u32 = 4;

/// NFNL_SUBSYS_NFTABLES in the upper byte, NFT_MSG_* in the lower.
const NFTABLES: u16 = 10 << 8;
const NEW_TABLE: u16 = NFTABLES;
pub const GET_TABLE: u16 = NFTABLES | 1;
const DEL_TABLE: u16 = NFTABLES | 2;
const NEW_CHAIN: u16 = NFTABLES | 3;
pub const GET_CHAIN: u16 = NFTABLES | 4;
const DEL_CHAIN: u16 = NFTABLES | 5;
/// struct nfgenmsg: family, version, resource.
pub const ANY_FAMILY: [u8; 4] = [0; 4];
const NFGENMSG: usize = 4;

/// NFPROTO_*.
const INET: u8 = 1;
const IPV4: u8 = 2;
const NETDEV: u8 = 5;
const IPV6: u8 = 10;

/// NFTA_TABLE_*.
const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
/// NFT_TABLE_F_DORMANT.
const DORMANT: u32 = 1;
/// NFTA_CHAIN_*, NFTA_HOOK_*, NFTA_DEVICE_*.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const HOOK_NUMBER: u16 = 1;
const HOOK_DEVICE: u16 = 3;
const HOOK_DEVICES: u16 = 4;
const DEVICE_NAME: u16 = 1;
const DEVICE_PREFIX: u16 = 2;

/// XFRM_MSG_*.
const NEW_POLICY: u16 = 0x13;
const DEL_POLICY: u16 = 0x14;
pub const GET_POLICY: u16 = 0x15;
const UPDATE_POLICY: u16 = 0x19;
const POLICY_EXPIRED: u16 = 0x1b;
const FLUSH_POLICY: u16 = 0x1d;
pub const GET_DEFAULT: u16 = 0x28;
/// XFRM_USERPOLICY_BLOCK.
const BLOCK: u8 = 1;
/// struct xfrm_userpolicy_info: the selector's family, and the direction.
const POLICY_FAMILY: std::ops::Range<usize> = 40..42;
const POLICY_DIRECTION: usize = 160;
/// Directions below this value are XFRM_POLICY_IN, _OUT and _FWD; higher ones belong to a socket.
const DIRECTIONS: u8 = 3;

/// Names from the kernel are cut to this many characters.
const NAME_LIMIT: usize = 64;
/// Most netdevs read of one chain.
const DEVICE_LIMIT: usize = 1024;

/// The meaning of an announcement.
#[derive(Debug, PartialEq, Eq)]
pub enum Announced {
    /// A hook was added.
    Hook(Hook),
    /// Something changed that only a listing shows.
    Change,
    /// The announcement does not concern hooks.
    Nothing,
}

/// A base chain, with the family and the name of its table.
#[derive(Debug, PartialEq, Eq)]
pub struct Chain {
    pub table: (u8, String),
    pub hook: Hook,
}

/// Decodes an announcement of nftables.
pub fn nftables(kind: u16, body: &[u8]) -> Announced {
    match kind {
        NEW_CHAIN => chain(kind, body).map_or(Announced::Change, |chain| Announced::Hook(chain.hook)),
        NEW_TABLE | DEL_TABLE | DEL_CHAIN => Announced::Change,
        _ => Announced::Nothing,
    }
}

/// Decodes an announcement of XFRM.
pub fn xfrm(kind: u16, body: &[u8]) -> Announced {
    match kind {
        NEW_POLICY | UPDATE_POLICY => policy(NEW_POLICY, body).map_or(Announced::Change, Announced::Hook),
        DEL_POLICY | POLICY_EXPIRED | FLUSH_POLICY | GET_DEFAULT => Announced::Change,
        _ => Announced::Nothing,
    }
}

/// The table that a listed message describes, if it is dormant: its chains are not registered at
/// any hook.
pub fn dormant(kind: u16, body: &[u8]) -> Option<(u8, String)> {
    let family = *body.first().filter(|_| kind == NEW_TABLE)?;
    let mut flags = 0;
    let mut name = None;
    for nla in attributes(body, NFGENMSG) {
        match nla.kind() & NLA_TYPE_MASK {
            TABLE_NAME => name = text(&nla),
            TABLE_FLAGS => flags = number(&nla)?,
            _ => {}
        }
    }
    (flags & DORMANT != 0).then_some((family, name?))
}

/// The base chain that a listed message describes, if forwarded packets pass it.
pub fn chain(kind: u16, body: &[u8]) -> Option<Chain> {
    let family = *body.first().filter(|_| kind == NEW_CHAIN)?;
    let (mut table, mut name, mut place) = (None, None, None);
    for nla in attributes(body, NFGENMSG) {
        match nla.kind() & NLA_TYPE_MASK {
            CHAIN_TABLE => table = text(&nla),
            CHAIN_NAME => name = text(&nla),
            CHAIN_HOOK => place = point(family, nla.value()),
            _ => {}
        }
    }
    let (table, name, point) = (table?, name?, place?);
    let word = match family {
        INET => "inet",
        IPV4 => "ip",
        IPV6 => "ip6",
        _ => "netdev",
    };
    let owner = format!("nftables chain {word} {} {}", shown(&table), shown(&name));
    let hook = Hook { ipv4: family != IPV6, ipv6: family != IPV4, point, owner };
    Some(Chain { table: (family, table), hook })
}

/// Where a chain's hook is; `None` when no forwarded packet passes it. Chains of the bridge family
/// see what the kernel's bridge forwards, and the switch's ports are not in a bridge.
fn point(family: u8, hook: &[u8]) -> Option<HookPoint> {
    const PREROUTING: u32 = 0;
    const FORWARD: u32 = 2;
    const POSTROUTING: u32 = 4;
    const INET_INGRESS: u32 = 5;
    const NETDEV_INGRESS: u32 = 0;
    const NETDEV_EGRESS: u32 = 1;
    let mut at = None;
    let mut devices = Vec::new();
    for nla in NlasIterator::new(hook).map_while(Result::ok) {
        match nla.kind() & NLA_TYPE_MASK {
            HOOK_NUMBER => at = number(&nla),
            HOOK_DEVICE => devices.extend(text(&nla)),
            HOOK_DEVICES => {
                let list = NlasIterator::new(nla.value()).map_while(Result::ok).take(DEVICE_LIMIT);
                devices.extend(list.filter_map(|nla| match nla.kind() & NLA_TYPE_MASK {
                    DEVICE_NAME => text(&nla),
                    DEVICE_PREFIX => text(&nla).map(|prefix| prefix + "*"),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    devices.sort();
    devices.dedup();
    match (family, at?) {
        (INET | IPV4 | IPV6, PREROUTING | FORWARD | POSTROUTING) => Some(HookPoint::Forwarding),
        (INET, INET_INGRESS) | (NETDEV, NETDEV_INGRESS) => Some(HookPoint::Ingress(devices)),
        (NETDEV, NETDEV_EGRESS) => Some(HookPoint::Egress(devices)),
        _ => None,
    }
}

/// The policy that a listed message describes, unless it belongs to a socket.
pub fn policy(kind: u16, body: &[u8]) -> Option<Hook> {
    let direction = *body.get(POLICY_DIRECTION).filter(|_| kind == NEW_POLICY)?;
    if direction >= DIRECTIONS {
        return None;
    }
    let family = u16::from_ne_bytes(body.get(POLICY_FAMILY)?.try_into().ok()?);
    Some(Hook {
        ipv4: i32::from(family) != libc::AF_INET6,
        ipv6: i32::from(family) != libc::AF_INET,
        point: HookPoint::Forwarding,
        owner: "an IPsec (XFRM) policy".into(),
    })
}

/// The hook for a default policy that blocks.
pub fn default_policy(kind: u16, body: &[u8]) -> Option<Hook> {
    let blocks = kind == GET_DEFAULT && body.get(..3)?.contains(&BLOCK);
    let owner = "the default IPsec (XFRM) policy, which blocks".into();
    blocks.then_some(Hook { ipv4: true, ipv6: true, point: HookPoint::Forwarding, owner })
}

fn number(nla: &NlaBuffer<&[u8]>) -> Option<u32> {
    nla.value().try_into().ok().map(u32::from_be_bytes)
}

fn text(nla: &NlaBuffer<&[u8]>) -> Option<String> {
    parse_string(nla.value()).ok()
}

/// A name, made printable for messages.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_LIMIT).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nla(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// A message for the chain `c` of table `t` in a family, at the hook with this number and these
    /// netdevs.
    fn message(family: u8, number: u32, devices: &[&str]) -> Vec<u8> {
        let mut hook = nla(HOOK_NUMBER, &number.to_be_bytes());
        hook.extend(nla(2, &[0; 4]));
        let list: Vec<u8> = devices.iter().flat_map(|name| nla(DEVICE_NAME, name.as_bytes())).collect();
        hook.extend(nla(HOOK_DEVICES | 0x8000, &list));
        let parts = [nla(CHAIN_TABLE, b"t\0"), nla(CHAIN_NAME, b"c\0"), nla(CHAIN_HOOK | 0x8000, &hook)];
        [vec![family, 0, 0, 0], parts.concat()].concat()
    }

    #[test]
    fn chains() {
        let check = |family, number, devices: &[&str], want: Option<(bool, bool, HookPoint, &str)>| {
            let got = chain(NEW_CHAIN, &message(family, number, devices)).map(|chain| chain.hook);
            let want = want.map(|(ipv4, ipv6, point, owner)| Hook { ipv4, ipv6, point, owner: owner.into() });
            assert_eq!(got, want, "family {family}, hook {number}, {devices:?}");
        };
        let forwarding = HookPoint::Forwarding;
        for number in [0, 2, 4] {
            check(INET, number, &[], Some((true, true, forwarding.clone(), "nftables chain inet t c")));
            check(IPV4, number, &[], Some((true, false, forwarding.clone(), "nftables chain ip t c")));
            check(IPV6, number, &[], Some((false, true, forwarding.clone(), "nftables chain ip6 t c")));
            // NFPROTO_BRIDGE and NFPROTO_ARP.
            check(7, number, &[], None);
            check(3, number, &[], None);
        }
        // Input and output see only what the switch itself receives and sends.
        check(INET, 1, &[], None);
        check(INET, 3, &[], None);
        let ingress = |names: &[&str]| HookPoint::Ingress(names.iter().map(|n| (*n).to_owned()).collect());
        let owner = "nftables chain netdev t c";
        check(NETDEV, 0, &["vlan20", "vlan10"], Some((true, true, ingress(&["vlan10", "vlan20"]), owner)));
        check(NETDEV, 1, &["e"], Some((true, true, HookPoint::Egress(vec!["e".into()]), owner)));
        check(INET, 5, &["e"], Some((true, true, ingress(&["e"]), "nftables chain inet t c")));
        // A regular chain has no hook.
        let regular = [vec![INET, 0, 0, 0], nla(CHAIN_TABLE, b"t\0"), nla(CHAIN_NAME, b"c\0")].concat();
        assert_eq!(chain(NEW_CHAIN, &regular), None);
    }

    #[test]
    fn dormant_tables() {
        let table = |flags: u32| {
            [vec![IPV4, 0, 0, 0], nla(TABLE_NAME, b"t\0"), nla(TABLE_FLAGS, &flags.to_be_bytes())].concat()
        };
        assert_eq!(dormant(NEW_TABLE, &table(1)), Some((IPV4, "t".into())));
        assert_eq!(dormant(NEW_TABLE, &table(2)), None);
    }

    #[test]
    fn policies() {
        let check = |family: u8, direction: u8, want: Option<(bool, bool)>| {
            let mut body = vec![0; 168];
            (body[POLICY_FAMILY.start], body[POLICY_DIRECTION]) = (family, direction);
            let got = policy(NEW_POLICY, &body).map(|hook| (hook.ipv4, hook.ipv6));
            assert_eq!(got, want, "family {family}, direction {direction}");
        };
        check(2, 1, Some((true, false)));
        check(10, 2, Some((false, true)));
        check(0, 0, Some((true, true)));
        check(2, 4, None);
        assert!(default_policy(GET_DEFAULT, &[2, 1, 2]).is_some());
        assert!(default_policy(GET_DEFAULT, &[2, 2, 2]).is_none());
    }

    proptest! {
        /// No input may panic, and what cannot be decoded leads to a listing.
        #[test]
        fn any_bytes(kind in prop::sample::select(vec![NEW_TABLE, DEL_TABLE, NEW_CHAIN, NEW_POLICY, GET_DEFAULT]),
                     bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(nftables(kind, &bytes) != Announced::Nothing || xfrm(kind, &bytes) != Announced::Nothing);
            let _ = (dormant(kind, &bytes), chain(kind, &bytes), policy(kind, &bytes), default_policy(kind, &bytes));
        }
    }
}
