//! Derives from a configuration the changes of netdevs: VLAN interfaces created, ports prepared,
//! addresses set. The result is a list of [`Action`]s that the daemon carries out.
//!
//! Invariants: a netdev is changed only when its configuration has changed or when it is new to the
//! switch, so an administrator's own changes stay. The [`Record`] has the state of a port before
//! the switch took it over, which is restored when the switch lets go of it.

use crate::facts::{Facts, HostStack, LinkFacts, LinkMode};
use crate::identity::Identity;
use crate::layer3;
use crate::names::made_interfaces;

pub use crate::actions::*;
pub use crate::names::{alias, host_end, host_end_of, pipeline_end_of, vlan_of};

use ipnet::IpNet;
use lanyard_config::layer3::Layer3;
use lanyard_config::names::split_subinterface;
use lanyard_config::{Config, Duplex, Interface, InterfaceName, Role};
use lanyard_types::MacAddr;
use std::collections::{BTreeMap, BTreeSet};

/// The actions that lead from `old` to `next`. `old` is `None` if the netdevs may be in any state.
#[must_use]
pub fn actions(
    old: Option<&Config>,
    next: &Config,
    facts: &Facts,
    record: &Record,
    identity: &Identity,
) -> Actions {
    let mut list = Actions { record: record.clone(), ..Actions::default() };
    let taken_over = renamed(next, facts, &mut list);
    layer3::namespaces(next, facts, identity, &mut list);
    pairs(old, next, facts, identity, &mut list);
    for name in
        managed(old).chain(managed(Some(next))).chain(record.originals.keys()).collect::<BTreeSet<_>>()
    {
        // A renamed netdev still has the settings for its old name.
        let old = old.filter(|_| !taken_over.contains(name));
        netdev(name, old, next, facts, &mut list);
    }
    addresses(old, next, facts, identity, &mut list);
    layer3::knobs(next, facts, &mut list);
    layer3::homes(next, facts, &mut list);
    let mut last = std::mem::take(&mut list.last);
    list.after.append(&mut last);
    list
}

/// Handles ports whose netdev was renamed; a netdev is identified by its index. If the new name is
/// configured, the port continues under it and its name is returned. Otherwise the netdev is
/// restored under its new name.
fn renamed(next: &Config, facts: &Facts, list: &mut Actions) -> BTreeSet<String> {
    let mut taken_over = BTreeSet::new();
    for (name, original) in list.record.originals.clone() {
        let Some(link) = facts.by_index(original.ifindex).filter(|link| link.name != name) else { continue };
        list.record.originals.remove(&name);
        if managed(Some(next)).any(|managed| *managed == link.name) {
            list.record.originals.insert(link.name.clone(), original);
            taken_over.insert(link.name.clone());
        } else {
            push_link(&mut list.after, &link.name, LinkSettings::of(link), original.settings());
            push_mode(&mut list.after, &link.name, None, original.mode);
        }
    }
    taken_over
}

/// The netdevs that `config` names as ports or routed ports.
fn managed(config: Option<&Config>) -> impl Iterator<Item = &String> {
    config.into_iter().flat_map(|config| &config.interfaces).filter_map(|(name, interface)| match name {
        InterfaceName::Netdev(netdev)
            if matches!(interface.role, Role::Switchport | Role::Routed) && name.channel().is_none() =>
        {
            Some(netdev)
        }
        _ => None,
    })
}

/// The part of an interface's configuration that is set on its netdev.
#[derive(PartialEq, Eq)]
struct Wanted {
    role: Role,
    up: bool,
    mtu: Option<u32>,
    mac: Option<MacAddr>,
    forwarding: bool,
    layer3: Layer3,
}

fn wanted(config: &Config, name: &InterfaceName) -> Option<Wanted> {
    let interface = config.interfaces.get(name)?;
    let svi = matches!(name, InterfaceName::Vlan(_));
    // The members of a routed port-channel carry frames, not packets.
    let member = interface.aggregation.group.is_some();
    let role = match interface.role {
        _ if svi => Role::Routed,
        Role::Routed if member => Role::Switchport,
        role => role,
    };
    // These settings are implemented by the switch, not by the netdev.
    let layer3 = Layer3 {
        helpers: Vec::new(),
        relay_destinations: Vec::new(),
        nd: Default::default(),
        vrrp: BTreeMap::new(),
        ..interface.layer3.clone()
    };
    (role != Role::Unset).then_some(Wanted {
        role,
        up: !interface.shutdown,
        mtu: interface.layer3.ip_mtu.or(interface.mtu),
        mac: interface.mac,
        forwarding: config.ip_routing,
        layer3,
    })
}

/// Whether a routed port has subinterfaces. A NIC with a VLAN filter (`rx-vlan-filter`) drops tags
/// that no 802.1Q device has registered, unless the port is promiscuous. Some drivers do not let the
/// filter be switched off, and some start to filter once a VLAN has been registered. So such a port
/// is promiscuous with every NIC.
fn has_subinterfaces(config: &Config, name: &str) -> bool {
    config.interfaces.keys().any(|key| match key {
        InterfaceName::Netdev(other) => split_subinterface(other).is_some_and(|(parent, _)| parent == name),
        _ => false,
    })
}

fn settings(wanted: &Wanted, original: &Original, tagged: bool) -> LinkSettings {
    let mtu = wanted.mtu.unwrap_or(original.mtu);
    if wanted.role == Role::Switchport {
        return LinkSettings {
            up: wanted.up,
            promisc: true,
            mtu,
            mac: original.mac,
            host: original.host.silenced(),
        };
    }
    let host = layer3::host(&wanted.layer3, wanted.forwarding, original.host);
    let promisc = original.promisc || tagged;
    LinkSettings { up: wanted.up, promisc, mtu, mac: wanted.mac.or(original.mac), host }
}

/// The settings of a netdev that was just moved to another namespace.
fn moved(link: LinkSettings) -> LinkSettings {
    LinkSettings { up: false, host: HostStack::default(), ..link }
}

fn netdev(name: &str, old: Option<&Config>, next: &Config, facts: &Facts, list: &mut Actions) {
    let key = InterfaceName::Netdev(name.to_owned());
    let now = wanted(next, &key);
    let Some(link) = facts.free(name) else {
        if now.is_none() {
            list.record.originals.remove(name);
        }
        return;
    };
    let known = list.record.originals.get(name).filter(|original| original.ifindex == link.ifindex).cloned();
    let mut from = LinkSettings::of(link);
    let Some(now) = now else {
        if let Some(original) = known {
            if link.vrf.is_some() {
                list.after.push(Action::Move { name: name.to_owned(), from: link.vrf.clone(), to: None });
                from = moved(from);
            }
            push_link(&mut list.after, name, from, original.settings());
            push_mode(&mut list.after, name, old.and_then(|old| fixed_mode(old, &key)), original.mode);
        }
        list.record.originals.remove(name);
        return;
    };
    let was = old.and_then(|old| wanted(old, &key));
    let moves = link.vrf != now.layer3.vrf;
    let whole = known.is_none() || moves || was.as_ref() != Some(&now);
    let tagged = has_subinterfaces(next, name);
    if whole || old.is_some_and(|old| has_subinterfaces(old, name) != tagged) {
        let original = known.clone().unwrap_or_else(|| Original::of(link));
        if moves {
            let (here, there) = (link.vrf.clone(), now.layer3.vrf.clone());
            list.before.push(Action::Move { name: name.to_owned(), from: here, to: there });
            from = moved(LinkSettings::of(link));
        }
        let to = settings(&now, &original, tagged);
        // Settings that an administrator has made by hand stay, unless this change concerns the port
        // itself.
        let to = if whole { to } else { LinkSettings { promisc: to.promisc, ..from.clone() } };
        push_link(&mut list.before, name, from, to);
        list.record.originals.insert(name.to_owned(), original);
    }
    let was = old.and_then(|old| fixed_mode(old, &key));
    mode(name, link, (was, fixed_mode(next, &key)), facts, list);
}

/// Sets the configured link mode `now` in place of the previously configured one, `was`. If none is configured now, restores the
/// mode in which the port was found, which the record holds while the switch has set another one.
fn mode(
    name: &str,
    link: &LinkFacts,
    (was, now): (Option<LinkMode>, Option<LinkMode>),
    facts: &Facts,
    list: &mut Actions,
) {
    let Some(original) = list.record.originals.get_mut(name) else { return };
    let recorded = original.mode;
    let found = facts.modes.get(&link.ifindex).copied();
    match now {
        // A restart must not interrupt a link that already has the configured mode.
        Some(_) if recorded.is_some() && [was, found].contains(&now) => {}
        Some(_) => {
            let found = found.unwrap_or(LinkMode::Autonegotiation);
            original.mode = recorded.or(Some(found));
            push_mode(&mut list.before, name, was.filter(|_| recorded.is_some()).or(Some(found)), now);
        }
        None => {
            original.mode = None;
            push_mode(&mut list.before, name, was, recorded);
        }
    }
}

/// Appends the action that sets a netdev's link mode to `to`; nothing if `to` is `None`. `from` is `None` if the present mode is
/// not known, for example after an earlier change that could not be undone.
fn push_mode(actions: &mut Vec<Action>, name: &str, from: Option<LinkMode>, to: Option<LinkMode>) {
    if let Some(to) = to {
        actions.push(Action::Speed { name: name.to_owned(), from: from.unwrap_or(to), to });
    }
}

fn push_link(actions: &mut Vec<Action>, name: &str, from: LinkSettings, to: LinkSettings) {
    if from != to {
        actions.push(Action::Link { name: name.to_owned(), from, to });
    }
}

/// The link mode that a configuration sets; `None` if it leaves the port in the mode in which it was found.
fn fixed_mode(config: &Config, name: &InterfaceName) -> Option<LinkMode> {
    let interface = config.interfaces.get(name)?;
    let full_duplex = interface.duplex != Duplex::Half;
    interface.speed_mbps.map(|speed_mbps| LinkMode::Fixed { speed_mbps, full_duplex })
}

/// Plans VLAN interfaces and subinterfaces: pairs to create and to delete, and the settings of both
/// ends.
fn pairs(old: Option<&Config>, next: &Config, facts: &Facts, identity: &Identity, list: &mut Actions) {
    let mark = alias(&identity.instance);
    let mut links = Vec::new();
    for (key, interface) in made_interfaces(next) {
        let mac = interface.mac.or_else(|| layer3::made_mac(key, next, facts, identity));
        let pair = Pair {
            name: key.to_string(),
            mac,
            mtu: interface.mtu.unwrap_or_else(|| layer3::default_mtu(key, next, facts)),
            alias: mark.clone(),
        };
        let (host_name, inner_name) = (&pair.name, pipeline_end_of(&pair.name));
        let fresh = facts.get(host_name).is_none() || facts.get(&inner_name).is_none();
        let vrf = &interface.layer3.vrf;
        let home = facts.get(host_name).filter(|_| !fresh).and_then(|link| link.vrf.clone());
        let moves = home != *vrf;
        let bare = LinkFacts { mtu: pair.mtu, mac, ..LinkFacts::default() };
        let now = |name: &str| LinkSettings::of(facts.get(name).filter(|_| !fresh).unwrap_or(&bare));
        if fresh || moves || old.and_then(|old| wanted(old, key)) != wanted(next, key) {
            let found = now(host_name);
            let host = if moves { moved(found) } else { found };
            if moves {
                links.push(Action::Move { name: host_name.clone(), from: home, to: vrf.clone() });
            }
            let to = LinkSettings {
                up: !interface.shutdown,
                mtu: interface.layer3.ip_mtu.unwrap_or(pair.mtu),
                mac: mac.or(host.mac),
                host: layer3::host(
                    &interface.layer3,
                    next.ip_routing,
                    HostStack {
                        ipv6_disabled: host.host.ipv6_disabled,
                        arp_ignore: host.host.arp_ignore,
                        ..HostStack::default()
                    },
                ),
                ..host
            };
            push_link(&mut links, host_name, host, to);
            let inner = now(&inner_name);
            let to = LinkSettings { mtu: pair.mtu, host: inner.host.silenced(), ..inner.clone() };
            push_link(&mut links, &inner_name, inner, to);
        }
        if fresh {
            list.before.push(Action::CreatePair(pair));
        }
    }
    list.before.append(&mut links);
    // Every pair that carries this instance's mark and is not wanted is deleted, including those
    // that an earlier run left behind.
    let ours = facts.iter().filter(|link| link.alias.as_deref() == Some(&mark));
    let names: BTreeSet<String> = ours.map(|link| host_end_of(&link.name)).collect();
    for name in names {
        if !made_interfaces(next).any(|(key, _)| key.to_string() == name) {
            let found = facts.get(&pipeline_end_of(&name)).or_else(|| facts.get(&name));
            let (mac, mtu) = found.map_or((None, 1500), |link| (link.mac, link.mtu));
            list.after.push(Action::DeletePair(Pair { name, mac, mtu, alias: mark.clone() }));
        }
    }
}

fn addresses(before: Option<&Config>, next: &Config, facts: &Facts, identity: &Identity, list: &mut Actions) {
    let mark = alias(&identity.instance);
    let mut wanted: BTreeMap<String, BTreeSet<IpNet>> = BTreeMap::new();
    for (name, interface) in &next.interfaces {
        let routed = matches!(name, InterfaceName::Vlan(_)) || interface.is_routed();
        let nets: BTreeSet<IpNet> = addresses_of(interface).collect();
        if routed && !nets.is_empty() {
            wanted.insert(name.to_string(), nets);
        }
    }
    let empty = BTreeSet::new();
    let is_made = |name: &str| made_interfaces(next).any(|(key, _)| key.to_string() == name);
    let here = |name: &str| facts.get(name).is_some() || is_made(name);
    for name in list.record.addresses.keys().chain(wanted.keys()).collect::<BTreeSet<_>>() {
        // A netdev that is created again or moved to another namespace has lost its addresses.
        let moves =
            list.before.iter().any(|action| matches!(action, Action::Move { name: n, .. } if n == name));
        let kept = list.record.addresses.get(name).filter(|_| facts.get(name).is_some() && !moves);
        let old = kept.unwrap_or(&empty);
        let new = wanted.get(name).unwrap_or(&empty);
        // The addresses of a VLAN interface or subinterface disappear with it.
        let goes = facts.get(name).is_some_and(|link| link.alias.as_deref() == Some(&mark)) && !is_made(name);
        if here(name) && !goes {
            let act = |net: &IpNet, add| Action::Address { name: name.clone(), net: *net, add };
            // The kernel removes IPv6 addresses when a netdev goes down.
            let comes_up = list.before.iter().any(|action| brings_up(action, name));
            let order: Vec<IpNet> = in_order(next, name).collect();
            let primary = before.and_then(|config| in_order(config, name).next());
            let again = set_again(&order, old, primary);
            let missing = |net: &&IpNet| {
                !old.contains(*net) || again.contains(*net) || comes_up && matches!(net, IpNet::V6(_))
            };
            list.before.extend(old.difference(new).chain(&again).map(|net| act(net, false)));
            list.before.extend(order.iter().filter(missing).map(|net| act(net, true)));
        }
    }
    list.record.addresses = wanted;
}

/// The IPv4 addresses that are removed and set again, although the interface keeps them, when its addresses change from
/// `old`, the first of which was `primary`, to those of `order`. The kernel uses the first address for packets of its own,
/// so the primary must be set before the others. With the first address of a subnet the kernel removes the others of it.
fn set_again(order: &[IpNet], old: &BTreeSet<IpNet>, primary: Option<IpNet>) -> BTreeSet<IpNet> {
    let gone: Vec<IpNet> = old.iter().filter(|net| !order.contains(net)).map(IpNet::trunc).collect();
    let mut again = BTreeSet::new();
    let mut behind_new = false;
    for (at, net) in order.iter().enumerate().filter(|(_, net)| matches!(net, IpNet::V4(_))) {
        let becomes_primary = at == 0 && primary.is_some_and(|primary| primary != *net);
        let is_kept = old.contains(net) && !becomes_primary;
        let goes_along = at > 0 && gone.contains(&net.trunc());
        if old.contains(net) && (!is_kept || behind_new || goes_along) {
            again.insert(*net);
        }
        behind_new |= !is_kept;
    }
    again
}

fn brings_up(action: &Action, netdev: &str) -> bool {
    matches!(action, Action::Link { name, from, to } if name == netdev && !from.up && to.up)
}

/// The addresses of an interface, the primary first.
fn addresses_of(interface: &Interface) -> impl Iterator<Item = IpNet> + '_ {
    let v4 = interface.ipv4.iter().copied().map(IpNet::V4);
    v4.chain(interface.ipv6.iter().copied().map(IpNet::V6))
}

fn in_order<'a>(config: &'a Config, name: &'a str) -> impl Iterator<Item = IpNet> + 'a {
    let of_name = config.interfaces.iter().filter(move |(key, interface)| {
        key.to_string() == name && (matches!(key, InterfaceName::Vlan(_)) || interface.is_routed())
    });
    of_name.flat_map(|(_, interface)| addresses_of(interface))
}

/// The actions that set the addresses of `name` again. They are needed when the netdev comes up
/// again, because the kernel has removed its IPv6 addresses, or when it is new.
#[must_use]
pub fn restore_addresses(config: &Config, name: &str) -> Vec<Action> {
    in_order(config, name).map(|net| Action::Address { name: name.to_owned(), net, add: true }).collect()
}

/// Restores everything: ports as they were found, VLAN interfaces deleted.
#[must_use]
pub fn release(facts: &Facts, record: &Record, identity: &Identity) -> Vec<Action> {
    let nothing = Config::default();
    let actions = actions(None, &nothing, facts, record, identity);
    actions.before.into_iter().chain(actions.after).collect()
}

/// The pipeline ends of VLAN interfaces, routed port-channels and subinterfaces whose carrier has to change: one end of a
/// veth pair has carrier while the other end is up. `up` has the VLANs of the VLAN interfaces, routed port-channels and their
/// subinterfaces whose line protocol is up; another subinterface follows its parent.
#[must_use]
pub fn carriers(config: &Config, facts: &Facts, up: &lanyard_types::VlanSet) -> Vec<Action> {
    let mut list = Vec::new();
    for (key, interface) in made_interfaces(config) {
        let name = pipeline_end_of(&key.to_string());
        let line = match key {
            InterfaceName::Vlan(vlan) => up.contains(*vlan),
            InterfaceName::Netdev(text) => match config.internal_vlan(key) {
                Some(internal) => up.contains(internal.vlan),
                None => {
                    let parent = split_subinterface(text).and_then(|(parent, _)| facts.usable(&parent));
                    !interface.shutdown && parent.is_some_and(LinkFacts::forwards)
                }
            },
        };
        if let Some(link) = facts.get(&name) {
            let from = LinkSettings::of(link);
            let to = LinkSettings { up: line, ..from.clone() };
            push_link(&mut list, &name, from, to);
        }
    }
    list
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
