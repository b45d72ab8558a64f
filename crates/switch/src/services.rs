//! The configurations of programs that provide services for the switch: radvd sends router advertisements, keepalived
//! implements virtual routers.
//!
//! Read first: RFC 4861, section 6.2.1, radvd.conf(5); RFC 3768, keepalived.conf(5). Invariants: pure functions. A
//! service has one configuration for each namespace in which something needs it, and none elsewhere.

use crate::facts::Facts;
use crate::track::Tracks;
use ipnet::Ipv6Net;
use lanyard_config::layer3::{NdPrefix, RaSuppress, Vrrp};
use lanyard_config::{Config, Interface, InterfaceName};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A program that provides a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// radvd(8).
    Radvd,
    /// keepalived(8).
    Keepalived,
}

impl Service {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Radvd, Self::Keepalived];
    /// The name of the program and of its package.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Radvd => "radvd",
            Self::Keepalived => "keepalived",
        }
    }
    /// The consequence of a missing program, for a message.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Radvd => "router advertisements are not sent",
            Self::Keepalived => "VRRP does not run",
        }
    }
}

/// The services that have to run and their configurations, by the VRF in whose namespace they run.
#[must_use]
pub fn wanted(
    config: &Config,
    facts: &Facts,
    tracks: &Tracks,
) -> BTreeMap<(Service, Option<String>), String> {
    let mut all: BTreeMap<(Service, Option<String>), String> = BTreeMap::new();
    for (name, interface) in &config.interfaces {
        if !matches!(name, InterfaceName::Vlan(_)) && !interface.is_routed() {
            continue;
        }
        let vrf = &interface.layer3.vrf;
        if let Some(text) = advertisements(config, name, interface) {
            all.entry((Service::Radvd, vrf.clone())).or_default().push_str(&text);
        }
        for (group, vrrp) in &interface.layer3.vrrp {
            if let Some(text) = virtual_router(name, interface, *group, vrrp, facts, tracks) {
                let head = || "global_defs {\n    dynamic_interfaces allow_if_changes\n}\n".to_owned();
                all.entry((Service::Keepalived, vrf.clone())).or_insert_with(head).push_str(&text);
            }
        }
    }
    all
}

/// IOS's default for the longest interval between router advertisements, in seconds.
const RA_INTERVAL_S: u16 = 200;
/// AdvDefaultLifetime in seconds.
const RA_LIFETIME_S: u16 = 1800;
/// Valid and preferred lifetime of a prefix in seconds.
const PREFIX_LIFETIMES_S: (u32, u32) = (2_592_000, 604_800);

/// The section of an interface in radvd.conf; `None` when it advertises nothing.
fn advertisements(config: &Config, name: &InterfaceName, interface: &Interface) -> Option<String> {
    let nd = &interface.layer3.nd;
    let own = interface.ipv6.iter().filter(|net| !net.addr().is_unicast_link_local()).map(Ipv6Net::trunc);
    let mut prefixes: BTreeMap<Ipv6Net, NdPrefix> = own.map(|net| (net, NdPrefix::default())).collect();
    if !config.ipv6_routing || interface.shutdown || prefixes.is_empty() || nd.suppress == RaSuppress::All {
        return None;
    }
    prefixes.extend(nd.prefixes.iter().map(|(net, settings)| (*net, *settings)));
    let flag = |on: bool| if on { "on" } else { "off" };
    let (max, min) = nd.interval_s.unwrap_or((RA_INTERVAL_S, None));
    let min = min.unwrap_or((u32::from(max) * 3 / 4).max(3) as u16);
    let mut text = format!("interface {name} {{\n    AdvSendAdvert on;\n    IgnoreIfMissing on;\n");
    let lifetime = nd.lifetime_s.unwrap_or(RA_LIFETIME_S.max(max));
    let _ = write!(
        text,
        "    UnicastOnly {};\n    AdvManagedFlag {};\n    AdvOtherConfigFlag {};\n    MaxRtrAdvInterval {max};\n    \
         MinRtrAdvInterval {min};\n    AdvDefaultLifetime {lifetime};\n",
        flag(nd.suppress == RaSuppress::Periodic),
        flag(nd.managed),
        flag(nd.other),
    );
    for (net, settings) in prefixes.iter().filter(|(_, settings)| !settings.no_advertise) {
        let (valid, preferred) = settings.lifetimes_s.unwrap_or(PREFIX_LIFETIMES_S);
        let seconds = |seconds: u32| match seconds {
            u32::MAX => "infinity".to_owned(),
            seconds => seconds.to_string(),
        };
        let _ = write!(
            text,
            "    prefix {net} {{\n        AdvOnLink {};\n        AdvAutonomous {};\n        AdvValidLifetime {};\n        \
             AdvPreferredLifetime {};\n    }};\n",
            flag(!settings.off_link),
            // Autoconfiguration needs a 64-bit interface identifier (RFC 4862, 5.5.3).
            flag(!settings.no_autoconfig && net.prefix_len() == 64),
            seconds(valid),
            seconds(preferred),
        );
    }
    text.push_str("};\n");
    Some(text)
}

/// The name of the netdev that has a virtual router's addresses: a macvlan of the interface with this index.
#[must_use]
pub fn vmac_name(ifindex: u32, group: u8) -> String {
    format!("vr{ifindex}.{group}")
}

/// The effective priority: the configured one minus the decrements of tracked objects that are down.
#[must_use]
pub fn priority(vrrp: &Vrrp, tracks: &Tracks) -> u8 {
    let down = vrrp.tracks.iter().filter(|(object, _)| !tracks.is_up(**object));
    let taken: u32 = down.map(|(_, decrement)| u32::from(*decrement)).sum();
    u8::try_from(u32::from(vrrp.priority).saturating_sub(taken).max(1)).unwrap_or(1)
}

/// True when the group is configured completely enough to run.
#[must_use]
pub fn is_active(interface: &Interface, vrrp: &Vrrp) -> bool {
    !vrrp.addresses.is_empty() && !vrrp.shutdown && !interface.shutdown && !interface.ipv4.is_empty()
}

/// A group's section in keepalived.conf; `None` while the group cannot run.
fn virtual_router(
    name: &InterfaceName,
    interface: &Interface,
    group: u8,
    vrrp: &Vrrp,
    facts: &Facts,
    tracks: &Tracks,
) -> Option<String> {
    let netdev = name.to_string();
    let ifindex = facts.get(&netdev).filter(|_| is_active(interface, vrrp))?.ifindex;
    let vmac = vmac_name(ifindex, group);
    let mut text = format!(
        "vrrp_instance {netdev}-{group} {{\n    state BACKUP\n    version 2\n    interface {netdev}\n    use_vmac {vmac}\n    \
         virtual_router_id {group}\n    priority {}\n    advert_int {}\n",
        priority(vrrp, tracks),
        vrrp.advertise_s,
    );
    if !vrrp.preempt {
        text.push_str("    nopreempt\n");
    }
    if vrrp.preempt_delay_s > 0 {
        let _ = writeln!(text, "    preempt_delay {}", vrrp.preempt_delay_s);
    }
    text.push_str("    virtual_ipaddress {\n");
    for address in &vrrp.addresses {
        let _ = writeln!(text, "        {address}/32");
    }
    text.push_str("    }\n}\n");
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{config, facts};
    use lanyard_config::layer3::{Track, TrackObject};
    use lanyard_types::VlanId;

    fn vlan(config: &mut Config, vlan: u16) -> &mut Interface {
        let id = VlanId::new(vlan).expect("a VLAN");
        config.interfaces.get_mut(&InterfaceName::Vlan(id)).expect("it is there")
    }

    #[test]
    fn advertised() {
        let text = "ipv6-routing\nvrf red\nvlan10: ipv6 2001:db8:1::1/64 ipv6 fe80::1/64\nvlan20: ip 10.0.0.1/24\n\
                    vlan30: vrf red ipv6 2001:db8:3::1/56";
        let mut config = config(text);
        let of = |config: &Config| wanted(config, &facts("vlan10, vlan30"), &Tracks::default());
        let keys: Vec<_> = of(&config).into_keys().collect();
        assert_eq!(keys, [(Service::Radvd, None), (Service::Radvd, Some("red".into()))]);
        let nd = &mut vlan(&mut config, 10).layer3.nd;
        nd.managed = true;
        nd.interval_s = Some((30, None));
        let never = NdPrefix { lifetimes_s: Some((u32::MAX, 600)), off_link: true, ..NdPrefix::default() };
        nd.prefixes.insert("2001:db8:2::/64".parse().expect("a prefix"), never);
        nd.suppress = RaSuppress::Periodic;
        assert_eq!(
            of(&config)[&(Service::Radvd, None)],
            "interface vlan10 {\n    AdvSendAdvert on;\n    IgnoreIfMissing on;\n    UnicastOnly on;\n    AdvManagedFlag on;\n    \
             AdvOtherConfigFlag off;\n    MaxRtrAdvInterval 30;\n    MinRtrAdvInterval 22;\n    AdvDefaultLifetime 1800;\n    \
             prefix 2001:db8:1::/64 {\n        AdvOnLink on;\n        AdvAutonomous on;\n        AdvValidLifetime 2592000;\n        \
             AdvPreferredLifetime 604800;\n    };\n    prefix 2001:db8:2::/64 {\n        AdvOnLink off;\n        AdvAutonomous on;\n        \
             AdvValidLifetime infinity;\n        AdvPreferredLifetime 600;\n    };\n};\n"
        );
        assert!(of(&config)[&(Service::Radvd, Some("red".into()))].contains("AdvAutonomous off"), "no /64");
        vlan(&mut config, 10).layer3.nd.suppress = RaSuppress::All;
        vlan(&mut config, 30).shutdown = true;
        assert_eq!(of(&config).len(), 0);
        vlan(&mut config, 10).layer3.nd.suppress = RaSuppress::No;
        config.ipv6_routing = false;
        assert_eq!(of(&config).len(), 0);
    }

    #[test]
    fn virtual_routers() {
        let mut config = config("vlan10: ip 10.0.0.1/24");
        let object = TrackObject::LineProtocol(InterfaceName::Netdev("eth1".into()));
        config.tracks.insert(5, Track { object, up_s: 0, down_s: 0 });
        let vrrp = Vrrp {
            addresses: vec![[10, 0, 0, 254].into(), [10, 0, 0, 253].into()],
            preempt: false,
            preempt_delay_s: 0,
            priority: 120,
            tracks: [(5, 30)].into(),
            ..Vrrp::default()
        };
        vlan(&mut config, 10).layer3.vrrp.insert(7, vrrp);
        let mut tracks = Tracks::default();
        let mut of = |config: &Config, links: &str, up: bool| {
            tracks.look(0, &config.tracks, &mut |_| up);
            wanted(config, &facts(links), &tracks).remove(&(Service::Keepalived, None))
        };
        assert_eq!(
            of(&config, "eth0, vlan10", true).as_deref(),
            Some(
                "global_defs {\n    dynamic_interfaces allow_if_changes\n}\nvrrp_instance vlan10-7 {\n    state BACKUP\n    \
                 version 2\n    interface vlan10\n    use_vmac vr2.7\n    virtual_router_id 7\n    priority 120\n    \
                 advert_int 1\n    nopreempt\n    virtual_ipaddress {\n        10.0.0.254/32\n        10.0.0.253/32\n    }\n}\n"
            )
        );
        assert!(of(&config, "eth0, vlan10", false).is_some_and(|text| text.contains("priority 90\n")));
        assert_eq!(of(&config, "eth0", true), None, "there is no netdev");
        vlan(&mut config, 10).ipv4.clear();
        assert_eq!(of(&config, "eth0, vlan10", true), None, "there is no address");
    }
}
