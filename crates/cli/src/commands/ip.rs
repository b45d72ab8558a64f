//! The addresses of interfaces, which the daemon gives to the kernel.
//!
//! Invariant: no two interfaces of a VRF share a subnet, and every address is a host address.

use super::need;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::mode::ConfigMode;
use crate::setting::Line;
use crate::tree::{Node, arg, kw};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lanyard_config::names::split_subinterface;
use lanyard_config::{Config, Interface, InterfaceName, Role};
use std::net::{IpAddr, Ipv4Addr};

/// The maximum number of addresses of one family on an interface.
const MAX_ADDRESSES: usize = 64;

/// The addresses under an interface.
pub const ADDRESSES: &[Line<Interface>] = &[
    Line::Own { under: "ip", node: ADDRESS_V4, print: print_v4 },
    Line::Own { under: "ipv6", node: ADDRESS_V6, print: print_v6 },
];

fn print_v4(interface: &Interface) -> Vec<String> {
    let line = |(at, net): (usize, &Ipv4Net)| {
        let secondary = if at == 0 { "" } else { " secondary" };
        format!("ip address {} {}{secondary}", net.addr(), net.netmask())
    };
    interface.ipv4.iter().enumerate().map(line).collect()
}

fn print_v6(interface: &Interface) -> Vec<String> {
    interface.ipv6.iter().map(|net| format!("ipv6 address {net}")).collect()
}

const ADDRESS_V4: Node = kw("address", "Set the IP address of an interface").no(address_v4).then(&[
    arg(Kind::Ipv4, "IP address").then(&[arg(Kind::Ipv4, "IP subnet mask").run(address_v4).then(SECONDARY)]),
    arg(Kind::Ipv4Prefix, "IP address and prefix length").run(address_v4).then(SECONDARY),
]);

const SECONDARY: &[Node] = &[kw("secondary", "Make this IP address a secondary address").run(secondary_v4)];

const ADDRESS_V6: Node = kw("address", "Configure IPv6 address on interface").no(address_v6).then(&[arg(
    Kind::Ipv6Prefix,
    "IPv6 address and prefix length",
)
.run(address_v6)]);

/// The prefix length of a mask.
fn mask_len(mask: IpAddr, of: IpAddr) -> Result<u8, Refusal> {
    ipnet::ip_mask_to_prefix(mask).map_err(|_| bad_mask(mask, of))
}

fn bad_mask(mask: IpAddr, of: IpAddr) -> Refusal {
    let bad = format!("Bad mask {mask} for address {of}");
    match mask {
        IpAddr::V4(v4) if ipnet::ipv4_mask_to_prefix(!v4).is_ok() => {
            format!("{bad}: it is a wildcard; the mask is {}", !v4).into()
        }
        _ => format!("{bad}: enter ones before zeros, such as 255.255.255.0").into(),
    }
}

/// The prefix of a line, `A.B.C.D MASK` or `ADDRESS/LENGTH`, with its host bits as typed, and the addresses that follow it.
/// `None` if the line has no prefix.
pub fn prefix(args: &Args) -> Result<Option<(IpNet, Vec<IpAddr>)>, Refusal> {
    let addresses = args.addresses();
    if let Some(prefix) = args.prefix() {
        return Ok(Some((prefix, addresses)));
    }
    let [address, mask, rest @ ..] = addresses.as_slice() else { return Ok(None) };
    let net = IpNet::new(*address, mask_len(*mask, *address)?).map_err(|_| bad_mask(*mask, *address))?;
    Ok(Some((net, rest.to_vec())))
}

/// Refuses settings that only layer-3 interfaces have.
pub fn layer3(interface: &Interface, name: &InterfaceName) -> Result<(), Refusal> {
    match (name, interface.role) {
        (InterfaceName::Vlan(_), _) => Ok(()),
        (_, Role::Routed) if !interface.is_routed() => Err(format!(
            "Command rejected: {name} is a member of a port-channel: enter the command at interface port-channel."
        )
        .into()),
        (_, Role::Routed | Role::Subinterface(_)) => Ok(()),
        (InterfaceName::Netdev(text), Role::Unset) if split_subinterface(text).is_some() => {
            Err(format!("{name} has no tag yet: enter encapsulation dot1q first").into())
        }
        (_, Role::Switchport) => Err("IP addresses may not be configured on L2 links.".into()),
        (_, Role::Unset) => Err(format!("{name} is not a routed port: enter no switchport first").into()),
    }
}

/// Refuses `net` for the interface `name` if it overlaps a subnet of another interface of the same VRF.
fn overlap(config: &Config, name: &InterfaceName, net: IpNet) -> Result<(), Refusal> {
    let vrf = config.interfaces.get(name).and_then(|interface| interface.layer3.vrf.as_ref());
    let beside = |(other, interface): &(&InterfaceName, &Interface)| {
        *other != name && interface.layer3.vrf.as_ref() == vrf
    };
    for (other, interface) in config.interfaces.iter().filter(beside) {
        let nets =
            interface.ipv4.iter().map(|n| IpNet::V4(*n)).chain(interface.ipv6.iter().map(|n| IpNet::V6(*n)));
        let mut nets = nets.filter(|other| !is_link_local(other));
        if nets.any(|other| other.contains(&net.network()) || net.contains(&other.network())) {
            return Err(format!("{} overlaps with {}", net.network(), crate::render::ios_name(other)).into());
        }
    }
    Ok(())
}

pub fn is_link_local(net: &IpNet) -> bool {
    matches!(net.addr(), IpAddr::V6(a) if a.is_unicast_link_local())
}

fn host_v4(net: Ipv4Net) -> Result<(), Refusal> {
    let address = net.addr();
    let bad = format!("Bad mask /{} for address {address}", net.prefix_len());
    if net.prefix_len() == 0 {
        return Err(format!("{bad}: the prefix length is 1 to 32").into());
    }
    if net.prefix_len() < 31 && (address == net.network() || address == net.broadcast()) {
        let what = if address == net.network() { "network" } else { "broadcast" };
        let mut hosts = net.hosts();
        let (first, last) = (hosts.next().unwrap_or(address), hosts.next_back().unwrap_or(address));
        let subnet = net.trunc();
        return Err(format!(
            "{bad}: it is the {what} address of {subnet}, whose hosts are {first} to {last}"
        )
        .into());
    }
    let unusable = address.is_multicast()
        || address.is_loopback()
        || address == Ipv4Addr::BROADCAST
        || address.octets()[0] == 0
        || address.octets()[0] >= 240;
    if unusable { Err(format!("Not a valid host address - {address}").into()) } else { Ok(()) }
}

fn address_v4(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    put_v4(edit, args, false)
}

fn secondary_v4(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    put_v4(edit, args, true)
}

fn put_v4(edit: &mut Edit<'_>, args: &Args, secondary: bool) -> Result<(), Refusal> {
    let net = match prefix(args)? {
        Some((IpNet::V4(net), _)) => Some(net),
        _ => None,
    };
    if args.form != Form::Set {
        return edit.each_interface(|interface, _| remove_v4(interface, net));
    }
    let net = need(net)?;
    host_v4(net)?;
    overlap(edit.config, one_interface(edit)?, net.into())?;
    edit.each_interface(|interface, name| {
        layer3(interface, name)?;
        if let Some((group, _)) =
            interface.layer3.vrrp.iter().find(|(_, v)| v.addresses.contains(&net.addr()))
        {
            return Err(format!("{} is the address of VRRP group {group} of {name}", net.addr()).into());
        }
        let others = interface.ipv4.iter().skip(usize::from(!secondary));
        if others.clone().any(|other| other.addr() == net.addr()) && !secondary {
            return Err(format!("{} is already a secondary address of {name}", net.addr()).into());
        }
        match (secondary, interface.ipv4.first().map(Ipv4Net::addr) == Some(net.addr())) {
            (true, true) => {
                return Err(format!("{} is already the primary address of {name}", net.addr()).into());
            }
            (true, false) if interface.ipv4.is_empty() => {
                return Err(format!("{name} has no primary address yet").into());
            }
            (true, false) => {
                interface.ipv4.retain(|other| other.addr() != net.addr());
                interface.ipv4.push(net);
            }
            (false, _) if interface.ipv4.is_empty() => interface.ipv4.push(net),
            (false, _) => interface.ipv4[0] = net,
        }
        if interface.ipv4.len() > MAX_ADDRESSES {
            return Err(format!("{name} has {MAX_ADDRESSES} IPv4 addresses already").into());
        }
        Ok(())
    })
}

fn remove_v4(interface: &mut Interface, net: Option<Ipv4Net>) -> Result<(), Refusal> {
    let Some(net) = net else {
        interface.ipv4.clear();
        return Ok(());
    };
    match interface.ipv4.iter().position(|other| *other == net) {
        None => Err(format!("Invalid address: {net} is not configured here").into()),
        Some(0) if interface.ipv4.len() > 1 => Err("Must delete secondary before deleting primary".into()),
        Some(at) => {
            interface.ipv4.remove(at);
            Ok(())
        }
    }
}

/// The single interface of the mode: an address cannot be configured on a range.
fn one_interface<'a>(edit: &'a Edit<'_>) -> Result<&'a InterfaceName, Refusal> {
    match &*edit.mode {
        ConfigMode::Interface { names, .. } if names.len() == 1 => Ok(&names[0]),
        _ => Err("an address cannot be configured on several interfaces".into()),
    }
}

fn host_v6(net: Ipv6Net) -> Result<(), Refusal> {
    let address = net.addr();
    if address.is_multicast() || address.is_unspecified() || address.is_loopback() || net.prefix_len() == 0 {
        return Err(format!("{net} is not a host address").into());
    }
    Ok(())
}

fn address_v6(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let net = match args.prefix() {
        Some(IpNet::V6(net)) => Some(net),
        _ => None,
    };
    if args.form != Form::Set {
        return edit.each_interface(|interface, _| match net {
            None => {
                interface.ipv6.clear();
                Ok(())
            }
            Some(net) if !interface.ipv6.contains(&net) => {
                Err(format!("Invalid address: {net} is not configured here").into())
            }
            Some(net) => {
                interface.ipv6.retain(|other| *other != net);
                Ok(())
            }
        });
    }
    let net = need(net)?;
    host_v6(net)?;
    let name = one_interface(edit)?;
    if !is_link_local(&net.into()) {
        overlap(edit.config, name, net.into())?;
    }
    edit.each_interface(|interface, name| {
        layer3(interface, name)?;
        interface.ipv6.retain(|other| other.addr() != net.addr());
        interface.ipv6.push(net);
        if interface.ipv6.len() > MAX_ADDRESSES {
            return Err(format!("{name} has {MAX_ADDRESSES} IPv6 addresses already").into());
        }
        Ok(())
    })
}
