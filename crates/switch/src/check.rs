//! Decides whether a configuration may be taken, and produces refusals and notices.
//!
//! Invariant: only what a change touches is judged, so a netdev that became unusable later blocks no other change.

use crate::facts::Facts;
use crate::identity::Identity;
use crate::names::{alias, host_end, pipeline_end, pipeline_end_of, vlan_of};
use crate::refused::{Refused, Unusable};
use lanyard_config::aggregation::InternalVlan;
use lanyard_config::{Config, InterfaceName, Role, StaticTarget};
use lanyard_types::VlanId;
use std::collections::BTreeMap;

/// Judges the step from `old` to `next`. Returns the notices if it may be taken.
///
/// # Errors
/// Why it may not be taken: one line that names the interface.
pub fn check(
    old: &Config,
    next: &Config,
    facts: &Facts,
    identity: &Identity,
) -> Result<Vec<String>, Refused> {
    let mut notices = Vec::new();
    for (name, interface) in &next.interfaces {
        let before = old.interfaces.get(name);
        match name {
            InterfaceName::Netdev(_) if name.channel().is_some() => {}
            InterfaceName::Netdev(name) => {
                let taken = |role: Role| matches!(role, Role::Switchport | Role::Routed);
                if taken(interface.role) && !before.is_some_and(|before| taken(before.role)) {
                    netdev(name, facts, identity, &mut notices)?;
                }
            }
            InterfaceName::Vlan(vlan) if before.is_none() => vlan_interface(*vlan, next, facts, identity)?,
            InterfaceName::Vlan(_) => {}
        }
    }
    routed_channel(old, next, facts, identity)?;
    crate::port_security::check(next)?;
    crate::dot1x::check(next)?;
    crate::monitor::check(next)?;
    crate::private_vlan::check(next)?;
    crate::qos::check(old, next)?;
    crate::layer3::check(old, next, facts, identity, &mut notices)?;
    for (key, target) in &next.fdb.statics {
        if let StaticTarget::Interface(name) = target
            && old.fdb.statics.get(key) != Some(target)
            && !is_port(next, name)
        {
            let (vlan, mac) = key;
            notices.push(format!(
                "{name} is no switch port: {mac} in VLAN {vlan} has no effect until it is one"
            ));
        }
    }
    Ok(notices)
}

fn is_port(config: &Config, name: &InterfaceName) -> bool {
    config.interfaces.get(name).is_some_and(|interface| match name {
        InterfaceName::Netdev(_) => interface.role == Role::Switchport,
        InterfaceName::Vlan(_) => true,
    })
}

/// Why the netdev cannot be a port at the moment; `None` when it can be one, or does not exist.
#[must_use]
pub fn unusable(name: &str, facts: &Facts, identity: &Identity) -> Option<Unusable> {
    let link = facts.get(name)?;
    let netdev = || name.to_owned();
    if link.loopback {
        return Some(Unusable::Loopback(netdev()));
    }
    if let Some(mark) = link.alias.as_deref().and_then(|alias| alias.strip_prefix("lanyard:")) {
        let instance = (mark != identity.instance).then(|| mark.to_owned());
        return Some(Unusable::Made { netdev: netdev(), vlan: vlan_of(name), instance });
    }
    if let Some(master) = link.master {
        let master =
            facts.by_index(master).map_or_else(|| format!("interface index {master}"), |m| m.name.clone());
        return Some(Unusable::Enslaved { netdev: netdev(), master });
    }
    (!link.ethernet).then(|| Unusable::NoEthernet(netdev()))
}

fn netdev(name: &str, facts: &Facts, identity: &Identity, notices: &mut Vec<String>) -> Result<(), Refused> {
    if let Some(reason) = unusable(name, facts, identity) {
        return Err(reason.into());
    }
    if facts.get(name).is_none() {
        notices.push(format!("interface {name} is not present now; it joins when it appears"));
    }
    Ok(())
}

/// The names `vlanN` and `lyN` must be unused, or belong to the pair that this instance created earlier.
fn vlan_interface(vlan: VlanId, next: &Config, facts: &Facts, identity: &Identity) -> Result<(), Refused> {
    let mark = alias(&identity.instance);
    for name in [host_end(vlan), pipeline_end(vlan)] {
        let configured = next.interfaces.get(&InterfaceName::Netdev(name.clone()));
        if configured.is_some_and(|interface| interface.role != Role::Unset) {
            return Err(Refused::NameOfPort { netdev: name, vlan });
        }
        match facts.get(&name).map(|link| link.alias.as_deref()) {
            None => {}
            Some(Some(alias)) if alias == mark => {}
            Some(Some(alias)) if alias.starts_with("lanyard:") => {
                let instance = alias["lanyard:".len()..].to_owned();
                return Err(Refused::OfInstance { netdev: name, instance });
            }
            Some(_) => return Err(Refused::InTheWay(name)),
        }
    }
    Ok(())
}

/// The internal VLANs of routed port-channels must not be configured, nor belong to two interfaces, and the names of a
/// port-channel's pair must be unused or belong to the pair that this instance created earlier.
fn routed_channel(old: &Config, next: &Config, facts: &Facts, identity: &Identity) -> Result<(), Refused> {
    let mut internal = BTreeMap::new();
    for InternalVlan { vlan, name, .. } in next.internal_vlans() {
        if next.vlans.contains_key(&vlan) || next.interfaces.contains_key(&InterfaceName::Vlan(vlan)) {
            return Err(Refused::InternalVlan { vlan, interface: name.to_string() });
        }
        if let Some(other) = internal.insert(vlan, name.clone()) {
            let (interface, other) = (name.to_string(), other.to_string());
            return Err(Refused::TagInUse { vlan, interface, other });
        }
    }
    for (channel, _, _) in next.routed_channels() {
        if old.routed_channels().any(|(before, _, _)| before == channel) {
            continue;
        }
        let name = InterfaceName::of_channel(channel).to_string();
        for end in [pipeline_end_of(&name), name] {
            let found = facts.get(&end);
            if found.is_some_and(|link| link.alias.as_deref() != Some(&alias(&identity.instance))) {
                return Err(Refused::InTheWay(end));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{config, facts, identity};

    fn check_all(old: &str, next: &str, links: &str) -> String {
        match check(&config(old), &config(next), &facts(links), &identity()) {
            Ok(notices) => notices.join("; "),
            Err(reason) => format!("% {reason}"),
        }
    }

    #[test]
    fn ports() {
        for (links, want) in [
            ("eth1", ""),
            ("eth2", "interface eth1 is not present now; it joins when it appears"),
            ("br0, eth1 master 1", "% eth1 is enslaved to br0: release it first (ip link set eth1 nomaster)"),
            (
                "eth1 master 77",
                "% eth1 is enslaved to interface index 77: release it first (ip link set eth1 nomaster)",
            ),
            ("eth1 loopback", "% eth1 is the loopback interface and cannot be a port"),
            ("eth1 raw", "% eth1 is not an Ethernet device and cannot be a port"),
            ("eth1 alias lanyard:x", "% eth1 belongs to VLAN interface of instance x and cannot be a port"),
        ] {
            assert_eq!(check_all("", "eth1: access 1", links), want, "{links}");
            assert_eq!(check_all("", "eth1: routed", links), want, "{links}");
            assert_eq!(check_all("eth1: access 1", "eth1: access 2", links), "", "not judged again: {links}");
            assert_eq!(check_all("", "eth1: unset", links), "", "{links}");
        }
    }

    #[test]
    fn vlan_interfaces_need_their_names() {
        for (next, links, want) in [
            ("vlan10:", "", ""),
            ("vlan10:", "vlan10 alias lanyard:test, ly10 alias lanyard:test", ""),
            ("vlan10:", "vlan10", "% a netdev vlan10 that Lanyard did not create has this name"),
            ("vlan10:", "ly10 alias lanyard:b", "% netdev ly10 belongs to instance b"),
            (
                "vlan10:\nly10: access 1",
                "",
                "% ly10 is configured as a port; VLAN interface 10 needs the name",
            ),
            (
                "ly9: access 1",
                "ly9 alias lanyard:test",
                "% ly9 belongs to VLAN interface 9 and cannot be a port",
            ),
        ] {
            let got = check_all("", next, links);
            let got = got
                .strip_prefix("interface ly10 is not present now; it joins when it appears; ")
                .unwrap_or(&got);
            assert_eq!(got, want, "{next} | {links}");
        }
    }

    #[test]
    fn static_addresses() {
        let notice = "eth1 is no switch port: 0200.0000.0001 in VLAN 1 has no effect until it is one";
        let line = "static 0200.0000.0001 1 eth1";
        assert_eq!(check_all("", line, ""), notice);
        assert_eq!(check_all(line, line, ""), "");
        assert_eq!(check_all("", &format!("{line}\neth1: access 1"), "eth1"), "");
    }
}
