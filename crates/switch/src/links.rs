//! What a configuration asks of netdevs: VLAN interfaces made, ports prepared, addresses set, as a list of
//! [`Action`]s that the daemon carries out.
//!
//! Invariants: an action knows the value it replaces, so that it can be undone; [`transact`] undoes what was done
//! when a step fails. A netdev is only touched when its configuration changed, or when it is new to the switch,
//! so what an administrator did to it by hand meanwhile stays. What a port was like before the switch took it
//! is in the [`Record`], and comes back when the switch lets go of it.

use crate::compile::{host_end, made_interfaces, pipeline_end_of};
use crate::facts::{Facts, HostStack, Knob, LinkFacts};
use crate::layer3;
use crate::switch::Identity;
use ipnet::IpNet;
use lanyard_config::layer3::{Layer3, split_subinterface};
use lanyard_config::{Config, Duplex, Interface, InterfaceName, Role};
use lanyard_types::{MacAddr, VlanId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One thing to do to the kernel's network configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Makes a VRF's namespace, its loopback device up and marked; or deletes it.
    Namespace {
        /// The VRF.
        vrf: String,
        /// The mark.
        mark: String,
        /// True makes.
        add: bool,
    },
    /// Makes a VLAN interface or a subinterface: a veth pair, both ends down.
    CreatePair(Pair),
    /// Deletes it.
    DeletePair(Pair),
    /// Moves a netdev to another namespace, where it is down and has nothing of what it had.
    Move {
        /// The netdev.
        name: String,
        /// The VRF it is in.
        from: Option<String>,
        /// The VRF it goes to.
        to: Option<String>,
    },
    /// Changes a netdev's settings; only what differs between `from` and `to` is touched.
    Link {
        /// The netdev.
        name: String,
        /// Before.
        from: LinkSettings,
        /// After.
        to: LinkSettings,
    },
    /// Adds an address (it may be there), or removes one (it may be gone).
    Address {
        /// The netdev.
        name: String,
        /// The address with its prefix length.
        net: IpNet,
        /// True adds.
        add: bool,
    },
    /// Turns a switch of a namespace.
    Knob {
        /// The VRF.
        vrf: Option<String>,
        /// Which.
        knob: Knob,
        /// Before.
        from: bool,
        /// After.
        to: bool,
    },
    /// Speed and duplex; `None` negotiates.
    Speed {
        /// The netdev.
        name: String,
        /// Before: Mbit/s, and whether full duplex.
        from: Option<(u32, bool)>,
        /// After.
        to: Option<(u32, bool)>,
    },
}

/// The veth pair of a VLAN interface or a subinterface. Its pipeline end is called [`pipeline_end_of`] the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The host end's name: `vlan10`, `eth1.100`.
    pub name: String,
    /// The host end's address.
    pub mac: Option<MacAddr>,
    /// Layer-3 MTU of both ends in bytes.
    pub mtu: u32,
    /// The mark both ends carry.
    pub alias: String,
}

/// What is set on a netdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSettings {
    /// Administratively up.
    pub up: bool,
    /// Promiscuous.
    pub promisc: bool,
    /// Layer-3 MTU in bytes.
    pub mtu: u32,
    /// MAC address.
    pub mac: Option<MacAddr>,
    /// The kernel's own stack.
    pub host: HostStack,
}

impl LinkSettings {
    fn of(link: &LinkFacts) -> Self {
        Self { up: link.admin_up, promisc: link.promisc, mtu: link.mtu, mac: link.mac, host: link.host }
    }
}

impl Action {
    /// The action that undoes this one.
    #[must_use]
    pub fn inverse(self) -> Self {
        match self {
            Self::Namespace { vrf, mark, add } => Self::Namespace { vrf, mark, add: !add },
            Self::Move { name, from, to } => Self::Move { name, from: to, to: from },
            Self::CreatePair(pair) => Self::DeletePair(pair),
            Self::DeletePair(pair) => Self::CreatePair(pair),
            Self::Link { name, from, to } => Self::Link { name, from: to, to: from },
            Self::Address { name, net, add } => Self::Address { name, net, add: !add },
            Self::Knob { vrf, knob, from, to } => Self::Knob { vrf, knob, from: to, to: from },
            Self::Speed { name, from, to } => Self::Speed { name, from: to, to: from },
        }
    }
}

/// The netdevs that `actions` take down.
pub fn taken_down(actions: &[Action]) -> impl Iterator<Item = &str> {
    actions.iter().filter_map(|action| match action {
        Action::Link { name, from, to } if from.up && !to.up => Some(name.as_str()),
        _ => None,
    })
}

/// What a netdev was like before the switch took it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Its index: a netdev of the same name and another index is another netdev.
    pub ifindex: u32,
    /// Administratively up.
    pub up: bool,
    /// Promiscuous.
    pub promisc: bool,
    /// Layer-3 MTU in bytes.
    pub mtu: u32,
    /// MAC address.
    pub mac: Option<MacAddr>,
    /// The kernel's own stack.
    pub host: HostStack,
}

impl Original {
    fn of(link: &LinkFacts) -> Self {
        let LinkSettings { up, promisc, mtu, mac, host } = LinkSettings::of(link);
        Self { ifindex: link.ifindex, up, promisc, mtu, mac, host }
    }
    fn settings(&self) -> LinkSettings {
        LinkSettings { up: self.up, promisc: self.promisc, mtu: self.mtu, mac: self.mac, host: self.host }
    }
}

/// What the switch has done to the kernel and must undo some day; the daemon keeps it in its state directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Ports and routed ports as they were found, by name.
    pub originals: BTreeMap<String, Original>,
    /// Addresses the switch has set, by netdev.
    pub addresses: BTreeMap<String, BTreeSet<IpNet>>,
    /// `net.ipv6.conf.all.forwarding` as it was found, once the switch has changed it.
    pub ipv6_forwarding: Option<bool>,
    /// Other switches of namespaces as they were found, by VRF (the switch's own is empty), once the switch has changed them.
    #[serde(default)]
    pub knobs: BTreeMap<String, Vec<(Knob, bool)>>,
    /// The namespaces that the switch has made.
    #[serde(default)]
    pub namespaces: BTreeSet<String>,
    /// The netdevs that the switch has moved to a VRF's namespace.
    #[serde(default)]
    pub homes: BTreeMap<String, String>,
}

/// The mark on the netdevs that an instance makes.
#[must_use]
pub fn alias(instance: &str) -> String {
    format!("lanyard:{instance}")
}

/// What to do, in two parts: before the plane is given its new state, and after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actions {
    /// What has to succeed; undone when a later step fails.
    pub before: Vec<Action>,
    /// Letting go of what the plane no longer uses.
    pub after: Vec<Action>,
    /// Namespaces that nothing is in any more; goes to the end of `after`.
    pub(crate) last: Vec<Action>,
    /// The record once all is done.
    pub record: Record,
}

/// The actions that lead from `old` (`None`: whatever the netdevs look like now) to `next`.
#[must_use]
pub fn actions(
    old: Option<&Config>,
    next: &Config,
    facts: &Facts,
    record: &Record,
    identity: &Identity,
) -> Actions {
    let mut list = Actions { record: record.clone(), ..Actions::default() };
    layer3::namespaces(next, facts, identity, &mut list);
    pairs(old, next, facts, identity, &mut list);
    for name in
        managed(old).chain(managed(Some(next))).chain(record.originals.keys()).collect::<BTreeSet<_>>()
    {
        netdev(name, old, next, facts, &mut list);
    }
    addresses(next, facts, identity, &mut list);
    layer3::knobs(next, facts, &mut list);
    layer3::homes(next, facts, &mut list);
    let mut last = std::mem::take(&mut list.last);
    list.after.append(&mut last);
    list
}

/// The netdevs `config` names as ports or routed ports.
fn managed(config: Option<&Config>) -> impl Iterator<Item = &String> {
    config.into_iter().flat_map(|config| &config.interfaces).filter_map(|(name, interface)| match name {
        InterfaceName::Netdev(name) if matches!(interface.role, Role::Switchport | Role::Routed) => {
            Some(name)
        }
        _ => None,
    })
}

/// The part of an interface's configuration that is set on the netdev itself.
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
    let role = if svi { Role::Routed } else { interface.role };
    // What the switch does itself is no matter of the netdev's.
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

/// Whether a routed port has subinterfaces. A NIC with a VLAN filter (`rx-vlan-filter`) drops tags that no 802.1Q device has
/// registered, unless the port is promiscuous; some drivers do not let the filter be switched off, and some begin to filter only
/// once a VLAN has been registered. So such a port is promiscuous whatever its NIC is.
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

/// What a netdev is like in the namespace it has just been moved to.
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
        // What an administrator has set by hand stays, unless this change is about the port itself.
        let to = if whole { to } else { LinkSettings { promisc: to.promisc, ..from.clone() } };
        push_link(&mut list.before, name, from, to);
        list.record.originals.insert(name.to_owned(), original);
    }
    let speed = |config: &Config| config.interfaces.get(&key).and_then(fixed_speed);
    let (from, to) = (old.and_then(speed), speed(next));
    if from != to || (known.is_none() && to.is_some()) {
        list.before.push(Action::Speed { name: name.to_owned(), from, to });
    }
}

fn push_link(actions: &mut Vec<Action>, name: &str, from: LinkSettings, to: LinkSettings) {
    if from != to {
        actions.push(Action::Link { name: name.to_owned(), from, to });
    }
}

fn fixed_speed(interface: &Interface) -> Option<(u32, bool)> {
    interface.speed_mbps.map(|speed_mbps| (speed_mbps, interface.duplex != Duplex::Half))
}

/// VLAN interfaces and subinterfaces: pairs to make and to delete, and the settings of both ends.
fn pairs(old: Option<&Config>, next: &Config, facts: &Facts, identity: &Identity, list: &mut Actions) {
    let mark = alias(&identity.instance);
    let mut links = Vec::new();
    for (key, interface) in made_interfaces(next) {
        let mac = interface.mac.or_else(|| layer3::made_mac(key, next, facts, identity));
        let pair = Pair {
            name: key.to_string(),
            mac,
            mtu: interface.mtu.unwrap_or_else(|| layer3::parent_mtu(key, facts)),
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
    // Every pair that carries our mark and is not wanted goes: also what an earlier run left behind.
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

/// The host end of the pair that has `name` as one of its ends.
#[must_use]
pub fn host_end_of(name: &str) -> String {
    match (name.strip_prefix("ly"), vlan_of(name)) {
        (Some(_), Some(vlan)) => host_end(vlan),
        (Some(rest), None) => rest.to_owned(),
        (None, _) => name.to_owned(),
    }
}

/// The VLAN whose interface has `name` as one of its ends.
#[must_use]
pub fn vlan_of(name: &str) -> Option<VlanId> {
    let number = name.strip_prefix("vlan").or_else(|| name.strip_prefix("ly"))?;
    number.parse().ok().filter(|vlan: &VlanId| vlan.to_string() == number)
}

fn addresses(next: &Config, facts: &Facts, identity: &Identity, list: &mut Actions) {
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
        // What has to be made anew, or goes to another namespace, has none of the addresses it had.
        let moves =
            list.before.iter().any(|action| matches!(action, Action::Move { name: n, .. } if n == name));
        let kept = list.record.addresses.get(name).filter(|_| facts.get(name).is_some() && !moves);
        let old = kept.unwrap_or(&empty);
        let new = wanted.get(name).unwrap_or(&empty);
        // A VLAN interface or subinterface that goes takes its addresses with it.
        let goes = facts.get(name).is_some_and(|link| link.alias.as_deref() == Some(&mark)) && !is_made(name);
        if here(name) && !goes {
            let act = |net: &IpNet, add| Action::Address { name: name.clone(), net: *net, add };
            // The kernel forgets IPv6 addresses when a netdev goes down.
            let comes_up = list.before.iter().any(|action| brings_up(action, name));
            let missing = |net: &IpNet| !old.contains(net) || comes_up && matches!(net, IpNet::V6(_));
            list.before.extend(old.difference(new).map(|net| act(net, false)));
            list.before.extend(in_order(next, name).filter(missing).map(|net| act(&net, true)));
        }
    }
    list.record.addresses = wanted;
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

/// The addresses `name` should have: set again when the netdev comes (back) up, because the kernel forgets IPv6
/// addresses, and a new netdev has none.
#[must_use]
pub fn restore_addresses(config: &Config, name: &str) -> Vec<Action> {
    in_order(config, name).map(|net| Action::Address { name: name.to_owned(), net, add: true }).collect()
}

/// Puts everything back: ports as they were found, VLAN interfaces deleted.
#[must_use]
pub fn release(facts: &Facts, record: &Record, identity: &Identity) -> Vec<Action> {
    let nothing = Config::default();
    let actions = actions(None, &nothing, facts, record, identity);
    actions.before.into_iter().chain(actions.after).collect()
}

/// The pipeline ends of VLAN interfaces and subinterfaces whose carrier is not what it should be: a veth's end has carrier
/// when the other is up. `up` has the VLAN interfaces' line protocols; a subinterface's is its parent's.
#[must_use]
pub fn carriers(config: &Config, facts: &Facts, up: &lanyard_types::VlanSet) -> Vec<Action> {
    let mut list = Vec::new();
    for (key, interface) in made_interfaces(config) {
        let name = pipeline_end_of(&key.to_string());
        let line = match key {
            InterfaceName::Vlan(vlan) => up.contains(*vlan),
            InterfaceName::Netdev(text) => {
                let parent = split_subinterface(text).and_then(|(parent, _)| facts.usable(parent));
                !interface.shutdown && parent.is_some_and(LinkFacts::forwards)
            }
        };
        if let Some(link) = facts.get(&name) {
            let from = LinkSettings::of(link);
            let to = LinkSettings { up: line, ..from.clone() };
            push_link(&mut list, &name, from, to);
        }
    }
    list
}

/// What carries out actions.
pub trait Netdevs {
    /// Carries out a run of actions of one kind; one answer each. A failed action has changed nothing.
    fn act(&mut self, run: &[Action]) -> Vec<Result<(), String>>;
}

/// Carries out `actions` in order; when one fails, undoes what was done, last first.
///
/// # Errors
/// The first failure's text, with the failures met while undoing added.
pub fn transact(netdevs: &mut dyn Netdevs, actions: &[Action]) -> Result<(), String> {
    let mut done: Vec<&Action> = Vec::new();
    for run in actions.chunk_by(|a, b| std::mem::discriminant(a) == std::mem::discriminant(b)) {
        let mut failure = None;
        for (action, result) in run.iter().zip(netdevs.act(run)) {
            match result {
                Ok(()) => done.push(action),
                Err(text) => failure = failure.or(Some(text)),
            }
        }
        if let Some(mut text) = failure {
            for action in done.into_iter().rev() {
                for error in netdevs.act(&[action.clone().inverse()]).into_iter().filter_map(Result::err) {
                    text = format!("{text}; and undoing an earlier step failed: {error}");
                }
            }
            return Err(text);
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
