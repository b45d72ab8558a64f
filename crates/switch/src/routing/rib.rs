//! The kernel's routes of one namespace, by prefix, in the kernel's order of preference.
//!
//! Read first: ip-route(8), and the kernel's networking/ip-sysctl. Among several routes to a prefix the kernel uses the
//! one of the lower table (local before main), then the one of the lower metric, and the next one when that is removed.
//!
//! Invariant: a prefix stays here while the kernel has a route to it or the plane still has one. A prefix costs 25
//! bytes (IPv4) or 37 (IPv6) in a B-tree that is two thirds full: about 40 and 55 bytes.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// The value that means no set of next hops, or no target.
pub(super) const NONE: u32 = u32::MAX;

/// Where a candidate comes from. The lower value is preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(super) enum Rank {
    /// Table 255.
    Local,
    /// Received over FPM.
    Fpm,
    /// Table 254.
    Main,
    /// Table 253, which the kernel uses when nothing else matches.
    Default,
    /// A resolved neighbour on a connected network.
    Neighbour,
    /// There is no candidate any more, but the plane still has the prefix.
    Gone,
}

impl Rank {
    /// True for routes of the kernel's tables.
    pub fn is_kernel(self) -> bool {
        matches!(self, Self::Local | Self::Main | Self::Default)
    }
}

/// A candidate's action for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Sends them to a set of next hops.
    Unicast,
    /// An address, or a broadcast address, of the switch.
    Local,
    /// Drops them.
    Blackhole,
    /// Drops them and answers with an ICMP error.
    NoRoute,
    /// Treats packets in a way that the plane cannot.
    Policy,
    /// Depends on more than the destination (type of service, source), so the kernel handles the whole prefix.
    Selective,
}

/// One route to a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub metric: u32,
    /// Its set of next hops; [`NONE`] if it has none.
    pub set: u32,
    pub rank: Rank,
    pub kind: Kind,
    pub tos: u8,
    /// The number of the last audit that has seen the candidate, modulo 256.
    pub seen: u8,
}

impl Candidate {
    pub const GONE: Self =
        Self { metric: 0, set: NONE, rank: Rank::Gone, kind: Kind::Policy, tos: 0, seen: 0 };

    /// True if the kernel treats both as alternatives to one another.
    pub fn same_key(&self, other: &Self) -> bool {
        (self.rank, self.tos, self.metric) == (other.rank, other.tos, other.metric)
    }
    /// True when both are the same route.
    pub fn is(&self, other: &Self) -> bool {
        self.same_key(other) && self.kind == other.kind && self.set == other.set
    }
}

/// The state of one prefix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// The preferred candidate. The others are in [`Rib::more`].
    pub best: Candidate,
    /// The last write to the plane: a packed [`super::Programmed`].
    pub programmed: u32,
    pub flags: u8,
}

/// The prefix is in the queue.
pub(super) const DIRTY: u8 = 1;
/// The prefix has other candidates in [`Rib::more`].
const MORE: u8 = 2;
/// The plane had no room for the prefix's target, so its frames go to the kernel.
pub(super) const REFUSED: u8 = 4;
/// The plane had no room for the prefix itself.
pub(super) const FAILED: u8 = 8;
/// A longer prefix failed, so its frames match this prefix: they must go to the kernel.
pub(super) const FORCED: u8 = 16;

/// A prefix as a key of a map, in the order of [`IpNet`]. Keys are compared as numbers: the order that `Ipv4Net` and `Ipv6Net`
/// have themselves compares octets in a loop, which took a third of the time of a million routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key<Net>(Net);

impl Ord for Key<Ipv4Net> {
    fn cmp(&self, other: &Self) -> Ordering {
        let number = |net: Ipv4Net| (net.addr().to_bits(), net.prefix_len());
        number(self.0).cmp(&number(other.0))
    }
}

impl Ord for Key<Ipv6Net> {
    fn cmp(&self, other: &Self) -> Ordering {
        let number = |net: Ipv6Net| (net.addr().to_bits(), net.prefix_len());
        number(self.0).cmp(&number(other.0))
    }
}

impl<Net: PartialEq> PartialOrd for Key<Net>
where
    Self: Ord,
{
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All prefixes of one namespace.
#[derive(Debug)]
pub(super) struct Rib {
    v4: BTreeMap<Key<Ipv4Net>, Entry>,
    v6: BTreeMap<Key<Ipv6Net>, Entry>,
    more: HashMap<IpNet, Vec<Candidate>>,
    /// The number of prefixes by length, so that a look-up tries only lengths that exist.
    lengths: [Vec<u32>; 2],
    /// Prefixes of the local table that are networks and not host addresses.
    local_networks: BTreeSet<IpNet>,
}

impl Default for Rib {
    fn default() -> Self {
        Self {
            v4: BTreeMap::new(),
            v6: BTreeMap::new(),
            more: HashMap::new(),
            lengths: [vec![0; 33], vec![0; 129]],
            local_networks: BTreeSet::new(),
        }
    }
}

impl Rib {
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
    /// True if the local table, which the kernel consults first, has a network that contains the prefix.
    pub fn is_below_local(&self, prefix: IpNet) -> bool {
        self.local_networks.iter().any(|local| *local != prefix && local.contains(&prefix))
    }
    pub fn get(&self, prefix: IpNet) -> Option<&Entry> {
        match prefix {
            IpNet::V4(net) => self.v4.get(&Key(net)),
            IpNet::V6(net) => self.v6.get(&Key(net)),
        }
    }
    pub fn get_mut(&mut self, prefix: IpNet) -> Option<&mut Entry> {
        match prefix {
            IpNet::V4(net) => self.v4.get_mut(&Key(net)),
            IpNet::V6(net) => self.v6.get_mut(&Key(net)),
        }
    }
    /// Every candidate of a prefix, the preferred one first.
    pub fn candidates(&self, prefix: IpNet) -> impl Iterator<Item = &Candidate> {
        let entry = self.get(prefix);
        let best = entry.map(|entry| &entry.best).filter(|best| best.rank != Rank::Gone);
        let more = entry.filter(|entry| entry.flags & MORE != 0).and_then(|_| self.more.get(&prefix));
        best.into_iter().chain(more.into_iter().flatten())
    }
    /// The only candidate of a prefix, if there is exactly one, as with nearly all prefixes.
    pub fn only(&mut self, prefix: IpNet) -> Option<&mut Candidate> {
        let entry = self.get_mut(prefix)?;
        (entry.flags & MORE == 0 && entry.best.rank != Rank::Gone).then_some(&mut entry.best)
    }
    /// Makes `list`, in order of preference, the candidates of `prefix`. A prefix without candidates stays, as
    /// [`Rank::Gone`], until [`Rib::remove`].
    pub fn set(&mut self, prefix: IpNet, list: &[Candidate]) {
        let (best, more) =
            list.split_first().map_or((Candidate::GONE, &list[..0]), |(best, more)| (*best, more));
        let fresh = Entry { best, programmed: NONE, flags: 0 };
        let mut known = true;
        let entry = match prefix {
            IpNet::V4(net) => self.v4.entry(Key(net)).or_insert_with(|| {
                known = false;
                fresh
            }),
            IpNet::V6(net) => self.v6.entry(Key(net)).or_insert_with(|| {
                known = false;
                fresh
            }),
        };
        if best.rank == Rank::Local && !is_host(prefix) {
            self.local_networks.insert(prefix);
        } else if entry.best.rank == Rank::Local {
            self.local_networks.remove(&prefix);
        }
        entry.best = best;
        let had_more = entry.flags & MORE != 0;
        entry.flags = if more.is_empty() { entry.flags & !MORE } else { entry.flags | MORE };
        if !known {
            self.lengths[family(prefix)][usize::from(prefix.prefix_len())] += 1;
        }
        if !more.is_empty() {
            self.more.insert(prefix, more.to_vec());
        } else if had_more {
            self.more.remove(&prefix);
        }
    }
    pub fn remove(&mut self, prefix: IpNet) {
        let removed = match prefix {
            IpNet::V4(net) => self.v4.remove(&Key(net)),
            IpNet::V6(net) => self.v6.remove(&Key(net)),
        };
        if removed.is_some() {
            self.local_networks.remove(&prefix);
            self.lengths[family(prefix)][usize::from(prefix.prefix_len())] -= 1;
            self.more.remove(&prefix);
        }
    }
    /// The shorter prefixes that contain `prefix`, the longest first.
    pub fn above(&self, prefix: IpNet) -> impl Iterator<Item = (IpNet, &Entry)> {
        self.matches(prefix.addr(), prefix.prefix_len())
    }
    /// The prefixes that contain `address`, the longest first.
    pub fn matching(&self, address: IpAddr) -> impl Iterator<Item = (IpNet, &Entry)> {
        self.matches(address, if address.is_ipv4() { 33 } else { 129 })
    }
    fn matches(&self, address: IpAddr, below: u8) -> impl Iterator<Item = (IpNet, &Entry)> {
        let lengths = &self.lengths[usize::from(address.is_ipv6())];
        let there = (0..below).rev().filter(|length| lengths[usize::from(*length)] > 0);
        there.filter_map(move |length| {
            let prefix = IpNet::new(address, length).ok()?.trunc();
            Some((prefix, self.get(prefix)?))
        })
    }
    /// Up to `most` prefixes in order, after `after`.
    pub fn walk(&self, after: Option<IpNet>, most: usize) -> Vec<IpNet> {
        use std::ops::Bound::{Excluded, Unbounded};
        let (v4, v6) = match after {
            None => (Some(Unbounded), Unbounded),
            Some(IpNet::V4(net)) => (Some(Excluded(Key(net))), Unbounded),
            Some(IpNet::V6(net)) => (None, Excluded(Key(net))),
        };
        let v4 =
            v4.into_iter().flat_map(|from| self.v4.range((from, Unbounded))).map(|(key, _)| IpNet::V4(key.0));
        let v6 = self.v6.range((v6, Unbounded)).map(|(key, _)| IpNet::V6(key.0));
        v4.chain(v6).take(most).collect()
    }
    /// The prefixes inside `prefix`, including itself.
    pub fn inside(&self, prefix: IpNet) -> Vec<IpNet> {
        match prefix {
            IpNet::V4(net) => {
                let last = Ipv4Net::new(net.broadcast(), 32).unwrap_or(net);
                self.v4
                    .range(Key(net)..=Key(last))
                    .map(|(key, _)| IpNet::V4(key.0))
                    .filter(|p| prefix.contains(p))
                    .collect()
            }
            IpNet::V6(net) => {
                let last = Ipv6Net::new(net.broadcast(), 128).unwrap_or(net);
                self.v6
                    .range(Key(net)..=Key(last))
                    .map(|(key, _)| IpNet::V6(key.0))
                    .filter(|p| prefix.contains(p))
                    .collect()
            }
        }
    }
}

fn is_host(prefix: IpNet) -> bool {
    prefix.prefix_len() == prefix.max_prefix_len()
}

fn family(prefix: IpNet) -> usize {
    usize::from(matches!(prefix, IpNet::V6(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_prefixes() {
        let parsed =
            |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a prefix")).collect::<Vec<IpNet>>();
        let all = parsed(&[
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.0.0.0/9",
            "10.1.0.0/8",
            "127.0.0.1/32",
            "200.0.0.0/5",
            "::/0",
            "::1/128",
            "2001:db8::/32",
            "2001:db8::/33",
            "fe80::/10",
            "ff00::/8",
        ]);
        for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b))) {
            match (a, b) {
                (IpNet::V4(left), IpNet::V4(right)) => {
                    assert_eq!(Key(left).cmp(&Key(right)), a.cmp(&b), "{a} {b}")
                }
                (IpNet::V6(left), IpNet::V6(right)) => {
                    assert_eq!(Key(left).cmp(&Key(right)), a.cmp(&b), "{a} {b}")
                }
                _ => {}
            }
        }
    }
}
