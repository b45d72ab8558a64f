//! Decides what routes the packets that a router interface receives: the plane, or the kernel because its packet
//! filter, NAT, connection tracking or IPsec has to see forwarded packets.
//!
//! Read docs/routing.md, "The plane and the host's packet filter", first. Invariants: pure functions. The plane routes
//! a packet only if no hook that the kernel is known to have would have seen it.

use crate::routers::Routers;

pub use crate::packet_filter::{Hook, HookPoint, PacketFilter};

use lanyard_config::layer3::ForwardingPlane;
use lanyard_config::{Config, Interface, InterfaceName};
use lanyard_pipeline::route::RifState;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The forwarder: the plane or the kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forwarder {
    /// Nothing, because the family is not routed here.
    Nothing,
    /// The plane.
    Plane,
    /// The kernel, for this reason.
    Kernel(String),
}

impl fmt::Display for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Plane => f.write_str("the plane"),
            Self::Kernel(reason) => write!(f, "the kernel: {reason}"),
        }
    }
}

/// The forwarder of the packets of a family that are received at the interface `at`; `None` means the VRF as a whole.
#[must_use]
pub fn forwarder(
    config: &Config,
    routers: &Routers,
    vrf: &Option<String>,
    at: Option<(&InterfaceName, &Interface)>,
    ipv6: bool,
) -> Forwarder {
    let routed = if ipv6 { config.ipv6_routing } else { config.ip_routing };
    let Some(router) = routers.vrfs.get(vrf).filter(|_| routed && routers.able) else {
        return Forwarder::Nothing;
    };
    if router.policy[usize::from(ipv6)] {
        return Forwarder::Kernel("rules (ip rule) choose routes by more than the destination".into());
    }
    match setting(config, vrf, at.map(|(_, interface)| interface)) {
        ForwardingPlane::Always => Forwarder::Plane,
        ForwardingPlane::Never => Forwarder::Kernel(ForwardingPlane::Never.line()),
        ForwardingPlane::Auto => {
            let name = at.map(|(name, _)| name.to_string());
            match handler(config, &router.filter, vrf, name.as_deref(), ipv6) {
                Some(reason) => Forwarder::Kernel(reason),
                None => Forwarder::Plane,
            }
        }
    }
}

/// The setting `ip forwarding plane` for packets received at the interface `at`; `None` means the VRF as a whole.
#[must_use]
pub fn setting(config: &Config, vrf: &Option<String>, at: Option<&Interface>) -> ForwardingPlane {
    let of_interface = at.and_then(|interface| interface.layer3.forwarding_plane);
    of_interface.unwrap_or_else(|| config.forwarding_plane(vrf.as_deref()))
}

/// The owner of a kernel hook that sees packets received at this netdev and forwarded, if there is one.
fn handler(
    config: &Config,
    filter: &PacketFilter,
    vrf: &Option<String>,
    netdev: Option<&str>,
    ipv6: bool,
) -> Option<String> {
    if let Some(reason) = &filter.unknown {
        return Some(reason.clone());
    }
    let concerns = |hook: &&Hook| {
        hook.families[usize::from(ipv6)]
            && match &hook.point {
                HookPoint::Forwarding => true,
                HookPoint::Ingress(devices) => netdev.is_some_and(|name| names(devices, name)),
                // The egress netdev of a packet is not known when it is received, so any egress hook counts.
                HookPoint::Egress(devices) => {
                    routed(config, vrf).any(|(name, _)| names(devices, &name.to_string()))
                }
            }
    };
    filter.hooks.iter().find(concerns).map(|hook| hook.owner.clone())
}

fn names(patterns: &[String], netdev: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => netdev.starts_with(prefix),
        None => pattern == netdev,
    })
}

/// The router interfaces of a VRF.
fn routed<'a>(
    config: &'a Config,
    vrf: &'a Option<String>,
) -> impl Iterator<Item = (&'a InterfaceName, &'a Interface)> {
    config.interfaces.iter().filter(move |(name, interface)| {
        (matches!(name, InterfaceName::Vlan(_)) || interface.is_routed()) && interface.layer3.vrf == *vrf
    })
}

/// The forwarders by family (`true` is IPv6) and interface; the input of [`changes`].
pub type Forwarders = BTreeMap<(bool, InterfaceName), Forwarder>;

/// The forwarders of the packets of every router interface, without families that are not routed.
#[must_use]
pub fn forwarders(config: &Config, routers: &Routers) -> Forwarders {
    let mut all = Forwarders::new();
    for vrf in routers.vrfs.keys() {
        for (name, interface) in routed(config, vrf) {
            for ipv6 in [false, true] {
                match forwarder(config, routers, vrf, Some((name, interface)), ipv6) {
                    Forwarder::Nothing => {}
                    forwarder => drop(all.insert((ipv6, name.clone()), forwarder)),
                }
            }
        }
    }
    all
}

/// True if none of `rifs` makes the plane route packets that the kernel has to route.
#[must_use]
pub fn agrees<'a>(forwarders: &Forwarders, rifs: impl IntoIterator<Item = &'a RifState>) -> bool {
    let by_kernel: BTreeSet<(bool, String)> = forwarders
        .iter()
        .filter(|(_, forwarder)| matches!(forwarder, Forwarder::Kernel(_)))
        .map(|((ipv6, name), _)| (*ipv6, name.to_string()))
        .collect();
    let kernel_routes = |ipv6: bool, rif: &RifState| by_kernel.contains(&(ipv6, rif.name.clone()));
    let disagrees =
        |rif: &RifState| rif.ipv4 && kernel_routes(false, rif) || rif.ipv6 && kernel_routes(true, rif);
    !rifs.into_iter().any(disagrees)
}

/// One message names at most this many interfaces.
const NAMED: usize = 4;

/// Messages about what has changed, one for each forwarder. That the plane routes an interface's packets is reported
/// only if the kernel routed them before.
#[must_use]
pub fn changes(before: &Forwarders, after: &Forwarders) -> Vec<String> {
    let mut groups: BTreeMap<(bool, &Forwarder), Vec<&InterfaceName>> = BTreeMap::new();
    for ((ipv6, name), forwarder) in after {
        let was = before.get(&(*ipv6, name.clone()));
        if was != Some(forwarder) && (was.is_some() || *forwarder != Forwarder::Plane) {
            groups.entry((*ipv6, forwarder)).or_default().push(name);
        }
    }
    let message = |((ipv6, forwarder), list): ((bool, &Forwarder), Vec<&InterfaceName>)| {
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        let mut names: Vec<String> = list.iter().take(NAMED).map(ToString::to_string).collect();
        if list.len() > NAMED {
            names.push(format!("{} more", list.len() - NAMED));
        }
        format!("{family} packets received on {} are routed by {forwarder}", names.join(", "))
    };
    groups.into_iter().map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routers::Router;
    use crate::testing::config;
    use lanyard_pipeline::route::{RifAttachment, Urpf};
    use lanyard_types::{MacAddr, PortId, VrfId};
    use std::sync::Arc;

    fn hook(families: [bool; 2], point: HookPoint) -> Hook {
        Hook { families, point, owner: "a chain".into() }
    }

    fn routers(hooks: impl IntoIterator<Item = Hook>) -> Routers {
        let filter = PacketFilter { hooks: Arc::new(hooks.into_iter().collect()), unknown: None };
        let own = Router { filter, ..Router::default() };
        let red = Router::default();
        Routers { able: true, vrfs: [(None, own), (Some("red".into()), red)].into() }
    }

    const TEXT: &str = "ip-routing\nipv6-routing\nvrf red\nvlan10:\nvlan20:\nvlan30: vrf red";

    /// The interfaces and families that the kernel routes, as text: `4 vlan10`.
    fn by_kernel(config: &Config, routers: &Routers) -> Vec<String> {
        let shown = |((ipv6, name), _): (&(bool, InterfaceName), &Forwarder)| {
            format!("{} {name}", if *ipv6 { 6 } else { 4 })
        };
        let all = forwarders(config, routers);
        assert!(all.len() >= 6, "{all:?}");
        all.iter().filter(|(_, forwarder)| matches!(forwarder, Forwarder::Kernel(_))).map(shown).collect()
    }

    #[test]
    fn hooks_of_the_kernel() {
        let config = config(TEXT);
        let check = |hooks: Vec<Hook>, want: &[&str]| {
            assert_eq!(by_kernel(&config, &routers(hooks.clone())), want, "{hooks:?}");
        };
        let at = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        check(vec![], &[]);
        check(vec![hook([true, false], HookPoint::Forwarding)], &["4 vlan10", "4 vlan20"]);
        check(vec![hook([false, true], HookPoint::Forwarding)], &["6 vlan10", "6 vlan20"]);
        check(vec![hook([true, true], HookPoint::Ingress(at(&["vlan10"])))], &["4 vlan10", "6 vlan10"]);
        check(vec![hook([true, false], HookPoint::Ingress(at(&["vlan2*"])))], &["4 vlan20"]);
        check(vec![hook([true, false], HookPoint::Egress(at(&["vlan10"])))], &["4 vlan10", "4 vlan20"]);
        // Netdevs that are not router interfaces of this VRF.
        check(vec![hook([true, true], HookPoint::Egress(at(&["vlan30", "eth1"])))], &[]);
        check(vec![hook([true, true], HookPoint::Ingress(at(&["vlan30", "eth1"])))], &[]);
    }

    #[test]
    fn the_most_specific_forwarding_plane_setting_applies() {
        let mut config = config(TEXT);
        let chain = || routers([hook([true, false], HookPoint::Forwarding)]);
        config.forwarding_plane = ForwardingPlane::Always;
        assert_eq!(by_kernel(&config, &chain()), [""; 0]);
        let vlan10 = config.interfaces.keys().next().expect("one").clone();
        let set = |config: &mut Config, plane| {
            config.interfaces.get_mut(&vlan10).expect("vlan10").layer3.forwarding_plane = plane;
        };
        set(&mut config, Some(ForwardingPlane::Auto));
        assert_eq!(by_kernel(&config, &chain()), ["4 vlan10"]);
        set(&mut config, Some(ForwardingPlane::Never));
        assert_eq!(by_kernel(&config, &chain()), ["4 vlan10", "6 vlan10"]);
        set(&mut config, None);
        config.forwarding_plane = ForwardingPlane::Auto;
        config.vrfs.get_mut("red").expect("red").forwarding_plane = Some(ForwardingPlane::Never);
        assert_eq!(by_kernel(&config, &chain()), ["4 vlan10", "4 vlan20", "4 vlan30", "6 vlan30"]);
        let mut rules = routers([]);
        // `always` does not make the plane route packets that it cannot handle.
        config.forwarding_plane = ForwardingPlane::Always;
        rules.vrfs.get_mut(&None).expect("own").policy = [true, false];
        assert_eq!(by_kernel(&config, &rules), ["4 vlan10", "4 vlan20", "4 vlan30", "6 vlan30"]);
    }

    #[test]
    fn hooks_that_are_not_known() {
        let mut routers = routers([]);
        routers.vrfs.get_mut(&None).expect("own").filter.unknown = Some("no right".into());
        let own = ["4 vlan10", "4 vlan20", "6 vlan10", "6 vlan20"];
        assert_eq!(by_kernel(&config(TEXT), &routers), own);
    }

    #[test]
    fn rifs_that_route_in_place_of_the_kernel_are_detected() {
        let config = config(TEXT);
        let chain = forwarders(&config, &routers([hook([true, false], HookPoint::Forwarding)]));
        let rif = |name: &str, ipv4: bool| RifState {
            name: name.into(),
            vrf: VrfId::DEFAULT,
            attachment: RifAttachment::Port(PortId::new(1).expect("a port")),
            mac: MacAddr([2; 6]),
            virtual_macs: BTreeSet::new(),
            mtu: 1500,
            ipv4,
            ipv6: true,
            urpf_ipv4: Urpf::Off,
            urpf_ipv6: Urpf::Off,
            while_confirmed: true,
        };
        assert!(agrees(&chain, &[rif("vlan10", false), rif("vlan30", true)]));
        assert!(!agrees(&chain, &[rif("vlan10", false), rif("vlan20", true)]));
        assert!(agrees(&forwarders(&config, &routers([])), &[rif("vlan10", true)]));
    }

    #[test]
    fn messages() {
        let config = config(TEXT);
        let plane = forwarders(&config, &routers([]));
        let chain = forwarders(&config, &routers([hook([true, false], HookPoint::Forwarding)]));
        assert_eq!(changes(&Forwarders::new(), &plane), [""; 0]);
        let kernel = "IPv4 packets received on vlan10, vlan20 are routed by the kernel: a chain";
        assert_eq!(changes(&Forwarders::new(), &chain), [kernel]);
        assert_eq!(changes(&plane, &chain), [kernel]);
        assert_eq!(changes(&chain, &chain), [""; 0]);
        assert_eq!(
            changes(&chain, &plane),
            ["IPv4 packets received on vlan10, vlan20 are routed by the plane"]
        );
    }
}
