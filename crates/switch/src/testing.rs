//! Short notations in which the tests of this crate write configurations and facts.

use crate::facts::{Facts, LinkFacts, LinkMode};
use crate::identity::Identity;
use lanyard_config::{Config, Interface, InterfaceName, Role, StaticTarget, SwitchportMode, Vlan};
use lanyard_pipeline::state::Tpid;
use lanyard_types::{MacAddr, VlanId, VlanSet};

/// The identity of the switch under test.
pub fn identity() -> Identity {
    Identity { instance: "test".into(), base_mac: MacAddr([2, 0xaa, 0xbb, 0xcc, 0xd0, 0]) }
}

/// A netdev that is up and has link.
pub fn link(name: &str, ifindex: u32) -> LinkFacts {
    LinkFacts {
        ifindex,
        name: name.into(),
        mac: Some(MacAddr([2, 0, 0, 1, 0, ifindex as u8])),
        mtu: 1500,
        admin_up: true,
        carrier: true,
        ethernet: true,
        ..LinkFacts::default()
    }
}

/// Netdevs, numbered from 1: `eth1, eth2 down, eth3 master 9, eth4 fixed 100`.
pub fn facts(text: &str) -> Facts {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let mut facts: Facts = parts.clone().zip(1..).map(|(part, ifindex)| one(part, ifindex)).collect();
    for (part, ifindex) in parts.zip(1..) {
        let speed = part.split_once("fixed ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        facts
            .modes
            .extend(speed.map(|speed_mbps| (ifindex, LinkMode::Fixed { speed_mbps, full_duplex: true })));
    }
    facts
}

fn one(text: &str, ifindex: u32) -> LinkFacts {
    let mut words = text.split_whitespace();
    let mut link = link(words.next().expect("a name"), ifindex);
    while let Some(word) = words.next() {
        let mut value = || words.next().expect("a value");
        match word {
            "down" => (link.admin_up, link.carrier) = (false, false),
            "no-carrier" => link.carrier = false,
            "loopback" => link.loopback = true,
            "promisc" => link.promisc = true,
            "lro" => link.host.lro = true,
            "raw" => link.ethernet = false,
            "master" => link.master = value().parse().ok(),
            "mtu" => link.mtu = value().parse().expect("a number"),
            "alias" => link.alias = Some(value().into()),
            "mac" => link.mac = value().parse().ok(),
            "in" => link.vrf = Some(value().into()),
            // `facts` reads the value.
            "fixed" => drop(value()),
            _ => panic!("{word}?"),
        }
    }
    link
}

/// A configuration: `vlan 10 [suspend] [shutdown]`, `tag-native`, `ip-routing`, `static MAC VLAN PORT|drop`, or
/// `INTERFACE: WORDS`, one a line.
pub fn config(text: &str) -> Config {
    let mut config = Config::default();
    for line in text.lines() {
        if let Some((name, words)) = line.split_once(':') {
            let (name, interface) = (interface_name(name), interface(words));
            config.interfaces.insert(name, interface);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["tag-native"] => config.tag_native = true,
            ["vrf", name] => drop(config.vrfs.insert(name.into(), Default::default())),
            ["ip-routing"] => config.ip_routing = true,
            ["ipv6-routing"] => config.ipv6_routing = true,
            ["static", mac, vlan, target] => {
                let key = (vlan.parse().expect("a VLAN"), mac.parse().expect("a MAC address"));
                let port = || StaticTarget::Interface(interface_name(target));
                config.fdb.statics.insert(key, if target == "drop" { StaticTarget::Drop } else { port() });
            }
            ["vlan", vlan, ..] => {
                let (suspended, shutdown) = (words.contains(&"suspend"), words.contains(&"shutdown"));
                config
                    .vlans
                    .insert(vlan.parse().expect("a VLAN"), Vlan { suspended, shutdown, ..Vlan::default() });
            }
            _ => panic!("{line}?"),
        }
    }
    config
}

fn interface_name(name: &str) -> InterfaceName {
    let vlan = name.strip_prefix("vlan").and_then(|n| n.parse::<VlanId>().ok());
    vlan.map_or_else(|| InterfaceName::Netdev(name.into()), InterfaceName::Vlan)
}

fn interface(text: &str) -> Interface {
    let mut interface = Interface::default();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let mut value = || words.next().expect("a value");
        let switchport = &mut interface.switchport;
        match word {
            "unset" => {}
            "routed" => interface.role = Role::Routed,
            "tag" => interface.role = Role::Subinterface(value().parse().expect("a VLAN")),
            "vrf" => interface.layer3.vrf = Some(value().into()),
            "no-redirects" => interface.layer3.redirects = false,
            "broadcast" => interface.layer3.directed_broadcast = true,
            "rx" => interface.layer3.urpf_ipv4 = lanyard_pipeline::route::Urpf::Strict,
            "access" | "tunnel" => {
                interface.role = Role::Switchport;
                switchport.access_vlan = value().parse().expect("a VLAN");
                switchport.mode =
                    if word == "tunnel" { SwitchportMode::Tunnel } else { SwitchportMode::Access };
            }
            "trunk" => (interface.role, switchport.mode) = (Role::Switchport, SwitchportMode::Trunk),
            "allowed" => {
                let list = value();
                switchport.allowed_vlans =
                    if list == "none" { VlanSet::EMPTY } else { list.parse().expect("a VLAN list") };
            }
            "native" => switchport.native_vlan = value().parse().expect("a VLAN"),
            "tpid-88a8" => switchport.tpid = Tpid::Dot1ad,
            "protected" => switchport.protected = true,
            "block-unicast" => switchport.block_unicast = true,
            "block-multicast" => switchport.block_multicast = true,
            "no-learning" => switchport.learning = false,
            "shutdown" => interface.shutdown = true,
            "mtu" => interface.mtu = value().parse().ok(),
            "mac" => interface.mac = value().parse().ok(),
            "speed" => interface.speed_mbps = value().parse().ok(),
            "ip" => interface.ipv4.push(value().parse().expect("an address")),
            "ipv6" => interface.ipv6.push(value().parse().expect("an address")),
            _ => panic!("{word}?"),
        }
    }
    interface
}
