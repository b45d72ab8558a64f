//! Needs of layer 3 in the kernel besides addresses: namespaces for VRFs, sysctls, static
//! routes, static ARP.
//!
//! Invariants: only a namespace that the switch has created is deleted. A netdev that the switch
//! has moved is recorded and is moved back. A namespace's sysctl that was changed is restored when
//! nothing needs it any more.

use crate::actions::{Action, Actions, Record};
use crate::facts::{Facts, HostStack, Knob};
use crate::identity::Identity;
use crate::names::{alias, made_interfaces};
use crate::refused::Refused;

pub use crate::host_routes::{Hop, Route};

use ipnet::IpNet;
use lanyard_config::layer3::Layer3;
use lanyard_config::names::split_subinterface;
use lanyard_config::{Config, Interface, InterfaceName, Role, StaticRoute};
use lanyard_pipeline::route::Urpf;
use lanyard_types::MacAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// The settings of the kernel's IP stack on a routed interface; `base` are those it had before.
#[must_use]
pub fn host(wanted: &Layer3, forwarding: bool, base: HostStack) -> HostStack {
    HostStack {
        forwarding,
        // Receivers of an ARP request learn its sender's address. This interface must not announce the address of a
        // virtual router or of another interface (RFC 3768, 8.2).
        arp_announce: 2,
        proxy_arp: forwarding && wanted.proxy_arp,
        local_proxy_arp: wanted.local_proxy_arp,
        directed_broadcast: wanted.directed_broadcast,
        redirects: redirects(wanted),
        // A router must not accept redirects while it forwards (RFC 1812, 5.2.7.2).
        accept_redirects: base.accept_redirects && !forwarding,
        rp_filter: match wanted.urpf_ipv4 {
            Urpf::Off => base.rp_filter,
            Urpf::Strict => 1,
            Urpf::Loose => 2,
        },
        // A route out of an interface without link must not be used, so that floating static routes
        // take over.
        ignore_linkdown: true,
        arp_timeout_s: wanted.arp_timeout_s.unwrap_or(base.arp_timeout_s),
        // The kernel cannot forward the segments that the NIC merges as they arrived.
        lro: false,
        ..base
    }
}

/// Whether ICMP redirects are sent. They are not sent where the switch answers ARP between hosts of
/// one subnet, as in IOS.
fn redirects(wanted: &Layer3) -> bool {
    wanted.redirects && !wanted.local_proxy_arp
}

/// The MAC address of an interface that the switch creates. A VLAN interface's is derived from the
/// base address, a subinterface's is its parent's. `None` when the parent does not exist; the
/// kernel then chooses one.
#[must_use]
pub fn made_mac(
    name: &InterfaceName,
    config: &Config,
    facts: &Facts,
    identity: &Identity,
) -> Option<MacAddr> {
    match name {
        InterfaceName::Vlan(vlan) => Some(identity.vlan_mac(*vlan)),
        InterfaceName::Netdev(text) => {
            if let Some(internal) = config.internal_vlan(name) {
                return crate::aggregation::mac(config, internal.channel, identity);
            }
            let (parent, _) = split_subinterface(text)?;
            let configured = config.interfaces.get(&InterfaceName::Netdev(parent.to_string()))?.mac;
            configured.or_else(|| facts.get(&parent).and_then(|link| link.mac))
        }
    }
}

/// The MTU in bytes of an interface that the switch creates and for which none is configured: the parent's for a subinterface, the
/// smallest of the members' for a port-channel, otherwise 1500.
#[must_use]
pub fn default_mtu(name: &InterfaceName, config: &Config, facts: &Facts) -> u32 {
    if let Some(internal) = config.internal_vlan(name) {
        return crate::aggregation::mtu(config, facts, internal.channel);
    }
    let parent = match name {
        InterfaceName::Netdev(text) => split_subinterface(text).and_then(|(parent, _)| facts.get(&parent)),
        InterfaceName::Vlan(_) => None,
    };
    parent.map_or(1500, |link| link.mtu)
}

/// Adds the creation of namespaces, as the first actions, and the deletion of those that the switch
/// created, as the last.
pub(crate) fn namespaces(next: &Config, facts: &Facts, identity: &Identity, list: &mut Actions) {
    let mark = alias(&identity.instance);
    let act = |vrf: &String, add| Action::Namespace { vrf: vrf.clone(), mark: mark.clone(), add };
    for vrf in next.vrfs.keys().filter(|vrf| !facts.namespaces.contains_key(*vrf)) {
        list.before.push(act(vrf, true));
        list.record.namespaces.insert(vrf.clone());
    }
    let gone: Vec<String> =
        list.record.namespaces.iter().filter(|vrf| !next.vrfs.contains_key(*vrf)).cloned().collect();
    for vrf in gone {
        list.record.namespaces.remove(&vrf);
        list.last.push(act(&vrf, false));
    }
}

/// Records the namespace of every moved netdev after the actions.
pub(crate) fn homes(next: &Config, facts: &Facts, list: &mut Actions) {
    let inside = |(name, interface): (&InterfaceName, &Interface)| {
        let here = matches!(name, InterfaceName::Vlan(_)) || interface.is_routed();
        let home = interface.layer3.vrf.clone().filter(|_| here)?;
        let name = name.to_string();
        let known =
            made_interfaces(next).any(|(key, _)| key.to_string() == name) || facts.get(&name).is_some();
        known.then_some((name, home))
    };
    list.record.homes = next.interfaces.iter().filter_map(inside).collect();
}

/// The namespace sysctls that `next` needs, and their values.
fn wanted_knobs(next: &Config) -> BTreeMap<(Option<String>, Knob), bool> {
    let mut wanted = BTreeMap::new();
    if next.ipv6_routing {
        for vrf in std::iter::once(None).chain(next.vrfs.keys().cloned().map(Some)) {
            wanted.insert((vrf, Knob::Ipv6Forwarding), true);
        }
    }
    for (name, interface) in &next.interfaces {
        if matches!(name, InterfaceName::Vlan(_)) || interface.is_routed() {
            let vrf = &interface.layer3.vrf;
            if !redirects(&interface.layer3) {
                wanted.insert((vrf.clone(), Knob::Redirects), false);
            }
            if interface.layer3.directed_broadcast {
                wanted.insert((vrf.clone(), Knob::DirectedBroadcast), true);
            }
        }
    }
    wanted
}

/// Sets namespace sysctls that something needs, and restores those that nothing needs any more.
pub(crate) fn knobs(next: &Config, facts: &Facts, list: &mut Actions) {
    let wanted = wanted_knobs(next);
    // The sysctls of a namespace that existed before are restored. A namespace that the switch created is deleted anyway.
    let foreign = |vrf: &String| facts.namespaces.get(vrf).is_some_and(|found| found.mark.is_none());
    list.record.knobs.retain(|vrf, _| vrf.is_empty() || next.vrfs.contains_key(vrf) || foreign(vrf));
    let left = list.record.knobs.keys().filter(|vrf| !vrf.is_empty() && !next.vrfs.contains_key(*vrf));
    let vrfs: BTreeSet<String> = left.chain(next.vrfs.keys()).cloned().collect();
    let spaces = std::iter::once(None).chain(vrfs.into_iter().map(Some));
    for vrf in spaces {
        for knob in Knob::ALL {
            // A namespace that is about to be created has the kernel's defaults.
            let now = facts.knob(vrf.as_deref(), knob).unwrap_or(knob == Knob::Redirects);
            let original = recall(&list.record, vrf.as_deref(), knob);
            // Another instance in this namespace has changed the sysctl before, and that instance's record has the
            // original value.
            let shared = facts.shared_knobs.get(&knob).copied().filter(|_| vrf.is_none());
            let to = match (wanted.get(&(vrf.clone(), knob)), original) {
                (Some(to), None) => {
                    remember(&mut list.record, vrf.as_deref(), knob, Some(shared.unwrap_or(now)));
                    *to
                }
                (None, Some(original)) => {
                    remember(&mut list.record, vrf.as_deref(), knob, None);
                    if shared.is_some() {
                        // Another instance still needs the value; the last instance restores the sysctl.
                        continue;
                    }
                    original
                }
                _ => continue,
            };
            if to != now {
                list.before.push(Action::Knob { vrf: vrf.clone(), knob, from: now, to });
            }
        }
    }
}

/// The value with which a sysctl was found, if the switch has changed it.
pub(crate) fn recall(record: &Record, vrf: Option<&str>, knob: Knob) -> Option<bool> {
    if vrf.is_none() && knob == Knob::Ipv6Forwarding {
        return record.ipv6_forwarding;
    }
    let found = record.knobs.get(vrf.unwrap_or_default())?;
    found.iter().find(|(other, _)| *other == knob).map(|(_, value)| *value)
}

/// Records the value with which a sysctl was found; `None` when the switch has not changed it.
pub(crate) fn remember(record: &mut Record, vrf: Option<&str>, knob: Knob, value: Option<bool>) {
    if vrf.is_none() && knob == Knob::Ipv6Forwarding {
        record.ipv6_forwarding = value;
        return;
    }
    let key = vrf.unwrap_or_default().to_owned();
    let found = record.knobs.entry(key.clone()).or_default();
    found.retain(|(other, _)| *other != knob);
    found.extend(value.map(|value| (knob, value)));
    if found.is_empty() {
        record.knobs.remove(&key);
    }
}

/// The routes that `config` asks the kernel for, given the state of tracked objects: `up` says
/// which objects are up.
#[must_use]
pub fn routes(config: &Config, facts: &Facts, up: &dyn Fn(u16) -> bool) -> BTreeSet<Route> {
    let mut groups: BTreeMap<(Option<String>, IpNet, u32), Vec<&StaticRoute>> = BTreeMap::new();
    for route in config.routes.iter().filter(|route| route.track.is_none_or(up)) {
        groups.entry((route.vrf.clone(), route.prefix, route.distance.into())).or_default().push(route);
    }
    let whole = |((vrf, prefix, metric), members): (_, Vec<&StaticRoute>)| {
        let hops = hops(&members, config, facts);
        Route { vrf, prefix, metric, hops }
    };
    groups.into_iter().map(whole).collect()
}

/// The next hops that can be used now. The kernel accepts all next hops of a route or none, so
/// those whose interface is down are left out while others remain.
fn hops(members: &[&StaticRoute], config: &Config, facts: &Facts) -> BTreeSet<Hop> {
    let named = |route: &StaticRoute| Hop {
        via: route.via,
        interface: route.interface.as_ref().map(ToString::to_string),
    };
    // A `permanent` route whose interface is down adds no next hop, but stays: without any next hop it drops its packets.
    let alive =
        |route: &&StaticRoute| !route.discard && (!route.permanent || egress_up(route, config, facts));
    let ready = |route: &&StaticRoute| {
        let egress = egress(route, config).and_then(|name| facts.get(&name.to_string()));
        egress.is_some_and(|link| link.admin_up)
    };
    let all: Vec<&StaticRoute> = members.iter().copied().filter(alive).collect();
    let usable: BTreeSet<Hop> = all.iter().copied().filter(ready).map(named).collect();
    if usable.is_empty() { all.into_iter().map(named).collect() } else { usable }
}

/// The interfaces of a VRF, with their addresses.
fn inside<'a>(
    config: &'a Config,
    vrf: Option<&'a str>,
) -> impl Iterator<Item = (&'a InterfaceName, &'a Interface)> {
    config.interfaces.iter().filter(move |(name, interface)| {
        (matches!(name, InterfaceName::Vlan(_)) || interface.is_routed())
            && interface.layer3.vrf.as_deref() == vrf
    })
}

/// The interface with a configured subnet that contains `address`.
#[must_use]
pub fn connected<'a>(config: &'a Config, vrf: Option<&'a str>, address: IpAddr) -> Option<&'a InterfaceName> {
    let has = |interface: &Interface| match address {
        IpAddr::V4(address) => interface.ipv4.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) => interface.ipv6.iter().any(|net| net.contains(&address)),
    };
    inside(config, vrf).find(|(_, interface)| has(interface)).map(|(name, _)| name)
}

/// True for an address of the switch itself in a VRF.
fn is_own(config: &Config, vrf: Option<&str>, address: IpAddr) -> bool {
    inside(config, vrf).any(|(_, interface)| match address {
        IpAddr::V4(address) => interface.ipv4.iter().any(|net| net.addr() == address),
        IpAddr::V6(address) => interface.ipv6.iter().any(|net| net.addr() == address),
    })
}

/// The egress interface of a route, as far as the configuration determines it.
fn egress<'a>(route: &'a StaticRoute, config: &'a Config) -> Option<&'a InterfaceName> {
    let via = || connected(config, route.vrf.as_deref(), route.via?);
    route.interface.as_ref().or_else(via)
}

fn egress_up(route: &StaticRoute, config: &Config, facts: &Facts) -> bool {
    let Some(egress) = egress(route, config) else { return true };
    facts.get(&egress.to_string()).is_some_and(|link| link.admin_up && link.carrier)
}

/// A static ARP entry for the kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arp {
    /// The netdev.
    pub interface: String,
    /// The IPv4 address.
    pub address: Ipv4Addr,
    /// Its MAC address.
    pub mac: MacAddr,
}

/// The permanent neighbours that `config` asks the kernel for: static ARP entries within the subnet
/// of an interface.
#[must_use]
pub fn arps(config: &Config) -> BTreeSet<Arp> {
    let lower = |((vrf, address), mac): (&(Option<String>, Ipv4Addr), &MacAddr)| {
        let interface = connected(config, vrf.as_deref(), (*address).into())?.to_string();
        Some(Arp { interface, address: *address, mac: *mac })
    };
    config.arps.iter().filter_map(lower).collect()
}

/// Checks the layer 3 part of a change, and adds notices.
///
/// # Errors
/// One line that names what is refused.
pub(crate) fn check(
    old: &Config,
    next: &Config,
    facts: &Facts,
    identity: &Identity,
    notices: &mut Vec<String>,
) -> Result<(), Refused> {
    for vrf in next.vrfs.keys().filter(|vrf| !old.vrfs.contains_key(*vrf)) {
        let Some(found) = facts.namespaces.get(vrf) else { continue };
        if found.own {
            return Err(Refused::OwnNamespace(vrf.clone()));
        }
        match found.mark.as_deref().and_then(|mark| mark.strip_prefix("lanyard:")) {
            Some(other) if other != identity.instance => {
                return Err(Refused::NamespaceOfInstance { vrf: vrf.clone(), instance: other.to_owned() });
            }
            Some(_) => {}
            None => notices.push(format!("network namespace {vrf} existed already: it is used unchanged")),
        }
    }
    for (name, interface) in made_interfaces(next) {
        let (InterfaceName::Netdev(text), None) = (name, name.channel()) else { continue };
        if !old.interfaces.contains_key(name) {
            subinterface(text, interface, next, facts, identity)?;
        } else if in_vrf(parent(next, text)) && !in_vrf(parent(old, text)) {
            return Err(Refused::ParentInVrf(text.clone()));
        }
    }
    static_routes(old, next, notices)
}

/// The parent of the subinterface `name`.
fn parent<'a>(config: &'a Config, name: &str) -> Option<&'a Interface> {
    let (parent, _) = split_subinterface(name)?;
    config.interfaces.get(&InterfaceName::Netdev(parent.into_owned()))
}

fn in_vrf(interface: Option<&Interface>) -> bool {
    interface.is_some_and(|interface| interface.layer3.vrf.is_some())
}

fn subinterface(
    name: &str,
    interface: &Interface,
    next: &Config,
    facts: &Facts,
    identity: &Identity,
) -> Result<(), Refused> {
    let mark = alias(&identity.instance);
    for end in [name.to_owned(), format!("ly{name}")] {
        if facts.get(&end).is_some_and(|link| link.alias.as_deref() != Some(&mark)) {
            return Err(Refused::InTheWay(end));
        }
    }
    match parent(next, name) {
        Some(parent) if parent.role == Role::Routed && parent.layer3.vrf.is_some() => {
            Err(Refused::ParentInVrf(name.to_owned()))
        }
        Some(parent) if parent.role == Role::Routed => Ok(()),
        _ if interface.shutdown => Ok(()),
        _ => Err(Refused::NoParent(name.to_owned())),
    }
}

/// At most this many notices about routes for one change.
const MAX_NOTICES: usize = 5;

fn static_routes(old: &Config, next: &Config, notices: &mut Vec<String>) -> Result<(), Refused> {
    let known: BTreeSet<&StaticRoute> = old.routes.iter().collect();
    let mut found = Vec::new();
    for route in next.routes.iter().filter(|route| !known.contains(route)) {
        if let Some(egress) = &route.interface {
            let vrf = next.interfaces.get(egress).and_then(|interface| interface.layer3.vrf.as_ref());
            if vrf != route.vrf.as_ref() {
                return Err(Refused::OtherTable {
                    interface: egress.to_string(),
                    interface_vrf: vrf.cloned(),
                    prefix: route.prefix,
                    route_vrf: route.vrf.clone(),
                });
            }
        }
        if let (Some(via), None) = (route.via, &route.interface)
            && found.len() <= MAX_NOTICES
            && connected(next, route.vrf.as_deref(), via).is_none()
        {
            found.push(format!(
                "next hop {via} is in no subnet of an interface: the route to {} is used once it is",
                route.prefix
            ));
        }
        if let Some(via) = route.via.filter(|via| is_own(next, route.vrf.as_deref(), *via))
            && found.len() <= MAX_NOTICES
        {
            found.push(format!(
                "next hop {via} is an address of this switch: enter that of another router for the route to {}",
                route.prefix
            ));
        }
        if let Some(track) = route.track.filter(|track| !next.tracks.contains_key(track))
            && found.len() <= MAX_NOTICES
        {
            found
                .push(format!("track {track} is not configured: the route to {} waits for it", route.prefix));
        }
    }
    if found.len() > MAX_NOTICES {
        found.truncate(MAX_NOTICES);
        found.push("there are more such routes".into());
    }
    notices.append(&mut found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{config, facts};

    fn route(text: &str) -> StaticRoute {
        let mut words = text.split_whitespace();
        let mut route = StaticRoute::new(words.next().expect("a prefix").parse().expect("a prefix"));
        while let Some(word) = words.next() {
            match word {
                "permanent" => route.permanent = true,
                "null0" => route.discard = true,
                "track" => route.track = words.next().and_then(|n| n.parse().ok()),
                "vrf" => route.vrf = words.next().map(str::to_owned),
                "dev" => route.interface = words.next().map(|name| InterfaceName::Netdev(name.into())),
                word => route.via = word.parse().ok(),
            }
        }
        route
    }

    fn show(route: &Route) -> String {
        let vrf = route.vrf.as_ref().map_or_else(String::new, |vrf| format!("{vrf} "));
        let hop = |hop: &Hop| {
            let via = hop.via.map_or_else(String::new, |via| format!(" {via}"));
            let dev = hop.interface.as_ref().map_or_else(String::new, |dev| format!(" {dev}"));
            via + &dev
        };
        let hops: Vec<String> = route.hops.iter().map(hop).collect();
        format!("{vrf}{}{}", route.prefix, if hops.is_empty() { " null0".into() } else { hops.join(" and") })
    }

    #[test]
    fn equal_cost_static_routes() {
        let base = "eth1: routed ip 10.0.0.1/24\neth2: routed ip 10.1.0.1/24";
        for (texts, links, want) in [
            (
                &["10.9.0.0/16 10.0.0.2", "10.9.0.0/16 10.1.0.2"][..],
                "eth1, eth2",
                "10.9.0.0/16 10.0.0.2 and 10.1.0.2",
            ),
            (&["10.9.0.0/16 10.0.0.2", "10.9.0.0/16 10.1.0.2"], "eth1 down, eth2", "10.9.0.0/16 10.1.0.2"),
            // No interface is known to be usable, so the kernel decides.
            (&["10.9.0.0/16 10.0.0.2", "10.9.0.0/16 10.1.0.2"], "", "10.9.0.0/16 10.0.0.2 and 10.1.0.2"),
            (
                &["10.9.0.0/16 10.0.0.2", "10.9.0.0/16 dev eth2"],
                "eth1, eth2",
                "10.9.0.0/16 eth2 and 10.0.0.2",
            ),
            (
                &["10.9.0.0/16 10.0.0.2 track 1", "10.9.0.0/16 10.1.0.2 track 2"],
                "eth1, eth2",
                "10.9.0.0/16 10.0.0.2",
            ),
            // Packets are dropped only while no next hop is left.
            (&["10.9.0.0/16 10.0.0.2 permanent", "10.9.0.0/16 null0"], "eth1", "10.9.0.0/16 10.0.0.2"),
            (&["10.9.0.0/16 10.0.0.2 permanent", "10.9.0.0/16 null0"], "eth1 down", "10.9.0.0/16 null0"),
        ] {
            let mut config = config(base);
            config.routes.extend(texts.iter().map(|text| route(text)));
            let got: Vec<String> =
                routes(&config, &facts(links), &|track| track == 1).iter().map(show).collect();
            assert_eq!(got.join(", "), want, "{texts:?} | {links}");
        }
    }

    #[test]
    fn static_routes() {
        let base = "eth1: routed ip 10.0.0.1/24";
        for (text, links, want) in [
            ("10.9.0.0/16 10.0.0.2", "eth1 no-carrier", "10.9.0.0/16 10.0.0.2"),
            ("10.9.0.0/16 10.0.0.2 permanent", "eth1", "10.9.0.0/16 10.0.0.2"),
            ("10.9.0.0/16 10.0.0.2 permanent", "eth1 no-carrier", "10.9.0.0/16 null0"),
            ("10.9.0.0/16 dev eth1 permanent", "eth2", "10.9.0.0/16 null0"),
            ("10.9.0.0/16 null0", "", "10.9.0.0/16 null0"),
            ("10.9.0.0/16 10.0.0.2 track 1", "eth1", "10.9.0.0/16 10.0.0.2"),
            ("10.9.0.0/16 10.0.0.2 track 2", "eth1", ""),
            ("10.9.0.0/16 10.0.0.2 vrf red permanent", "eth1 down", "red 10.9.0.0/16 10.0.0.2"),
        ] {
            let mut config = config(base);
            config.routes.push(route(text));
            let got: Vec<String> =
                routes(&config, &facts(links), &|track| track == 1).iter().map(show).collect();
            assert_eq!(got.join(", "), want, "{text} | {links}");
        }
    }

    #[test]
    fn a_switch_that_two_instances_have_turned() {
        let identity = crate::testing::identity();
        let (on, off) = (config("ipv6-routing"), config(""));
        let mut facts = facts("");
        let plan = |next: &Config, facts: &Facts, record: &crate::Record| {
            let list = crate::links::actions(None, next, facts, record, &identity);
            let turned = list.before.iter().filter_map(|action| match action {
                crate::Action::Knob { to, .. } => Some(*to),
                _ => None,
            });
            (turned.collect::<Vec<bool>>(), list.record)
        };
        let (turned, first) = plan(&on, &facts, &Default::default());
        assert_eq!((turned, first.ipv6_forwarding), (vec![true], Some(false)));
        facts.ipv6_forwarding = true;
        facts.shared_knobs.insert(Knob::Ipv6Forwarding, false);
        let (turned, second) = plan(&on, &facts, &Default::default());
        assert_eq!((turned, second.ipv6_forwarding), (vec![], Some(false)), "what it was like before both");
        // The first of two instances to release the sysctl leaves it on; the other one restores it.
        for record in [&first, &second] {
            assert_eq!(plan(&off, &facts, record).0, [false; 0]);
        }
        facts.shared_knobs.clear();
        for record in [&first, &second] {
            assert_eq!(plan(&off, &facts, record).0, [false]);
        }
    }

    #[test]
    fn the_parent_of_a_subinterface_enters_no_vrf() {
        let change = |old: &str, next: &str| {
            let identity = crate::testing::identity();
            let result = check(&config(old), &config(next), &facts("eth1"), &identity, &mut Vec::new());
            result.map_err(|reason| reason.to_string())
        };
        let own = "vrf red\neth1: routed\neth1.7: tag 7 vrf red";
        let inside = "vrf red\neth1: routed vrf red\neth1.7: tag 7 vrf red";
        let refused = change(own, inside).expect_err("refused");
        assert!(refused.starts_with("the parent of eth1.7 is in a VRF"), "{refused}");
        assert_eq!(change(own, own), Ok(()));
    }

    #[test]
    fn notices_and_refusals() {
        let identity = crate::testing::identity();
        for (text, line, want) in [
            ("eth1: routed ip 10.0.0.1/24", "10.9.0.0/16 10.0.0.2", ""),
            (
                "eth1: routed ip 10.0.0.1/24",
                "10.9.0.0/16 10.1.0.2",
                "next hop 10.1.0.2 is in no subnet of an interface: the route to 10.9.0.0/16 is used once it is",
            ),
            (
                "eth1: routed ip 10.0.0.1/24",
                "10.9.0.0/16 10.0.0.1",
                "next hop 10.0.0.1 is an address of this switch: enter that of another router for the route to \
                 10.9.0.0/16",
            ),
            (
                "vrf red\neth1: routed vrf red",
                "10.9.0.0/16 dev eth1",
                "% eth1 is in VRF red, the route to 10.9.0.0/16 is in no VRF: a route leads out of an interface of \
                 its own table",
            ),
            (
                "eth1: routed",
                "10.9.0.0/16 dev eth1 track 9",
                "track 9 is not configured: the route to 10.9.0.0/16 waits for it",
            ),
        ] {
            let mut next = config(text);
            next.routes.push(route(line));
            let mut notices = Vec::new();
            let result = check(&config(text), &next, &facts("eth1"), &identity, &mut notices);
            let got = result.err().map_or(notices.join("; "), |reason| format!("% {reason}"));
            assert_eq!(got, want, "{text} | {line}");
        }
        let mut facts = facts("");
        let mut named = |mark: Option<&str>, own| {
            let found = crate::facts::Namespace { mark: mark.map(str::to_owned), own, ..Default::default() };
            facts.namespaces.insert("red".into(), found);
            let mut notices = Vec::new();
            let result = check(&config(""), &config("vrf red"), &facts, &identity, &mut notices);
            result.err().map_or(notices.join("; "), |reason| format!("% {reason}"))
        };
        assert_eq!(named(None, false), "network namespace red existed already: it is used unchanged");
        assert_eq!(named(Some("lanyard:test"), false), "");
        assert_eq!(named(Some("lanyard:b"), false), "% network namespace red is a VRF of instance b");
        assert!(
            named(None, true).starts_with("% VRF red would be the network namespace that the switch itself")
        );
    }
}
