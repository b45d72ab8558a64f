//! Compiles router interfaces: VLAN interfaces, routed ports and subinterfaces as the plane sees them.
//!
//! Read first: RFC 1812, section 2.2.7; RFC 5798, section 8.1.2, on virtual router addresses.
//!
//! Invariants: pure functions. A router interface exists where the configuration asks for routing. Packets that the
//! kernel would not forward, or not by the destination alone, are left to the kernel. A router interface has the number
//! of its port.

use crate::facts::{Facts, LinkFacts};
use crate::forwarding::{self, Forwarder};
use crate::names::{pipeline_end, pipeline_end_of, subinterface_end};
use crate::ports::PortIds;
use crate::routers::Routers;
use lanyard_config::layer3::ForwardingPlane;
use lanyard_config::names::split_subinterface;
use lanyard_config::{Config, Interface, InterfaceName, Role};
use lanyard_pipeline::route::{RifAttachment, RifState, VIRTUAL_MACS};
use lanyard_pipeline::state::{FdbTarget, PlaneState, PortKind, PortState};
use lanyard_types::{PortId, RifId};

/// Adds ports of kind routed and subinterface to `state`, and router interfaces where the plane routes.
pub fn compile(config: &Config, facts: &Facts, ports: &PortIds, routers: &Routers, state: &mut PlaneState) {
    if !routers.able {
        return;
    }
    for (name, interface) in &config.interfaces {
        let InterfaceName::Netdev(text) = name else { continue };
        // The ports of a routed port-channel are switched.
        let is_routed = interface.role == Role::Routed && interface.is_routed() && name.channel().is_none();
        if let Some(id) = ports.get(text).filter(|_| is_routed) {
            state.ports.insert(id, port(text, PortKind::Routed, interface, facts));
        }
    }
    for (name, interface) in &config.interfaces {
        let (InterfaceName::Netdev(text), Role::Subinterface(vlan)) = (name, interface.role) else {
            continue;
        };
        let end = subinterface_end(text);
        let parent = split_subinterface(text).and_then(|(parent, _)| ports.get(&parent));
        let parent =
            parent.filter(|parent| state.ports.get(parent).is_some_and(|p| p.kind == PortKind::Routed));
        if let (Some(parent), Some(id)) = (parent, ports.get(&end)) {
            let mut made = port(&end, PortKind::Subinterface { parent, vlan }, interface, facts);
            made.enabled &= state.ports.get(&parent).is_some_and(|parent| parent.enabled);
            state.ports.insert(id, made);
        }
    }
    if config.ip_routing || config.ipv6_routing {
        for (name, interface) in &config.interfaces {
            if let Some((id, rif)) = rif(config, name, interface, facts, ports, routers, state) {
                self_entries(&rif, state);
                state.rifs.insert(id, rif);
            }
        }
    }
}

fn port(name: &str, kind: PortKind, interface: &Interface, facts: &Facts) -> PortState {
    let link = facts.usable(name);
    PortState {
        kind,
        enabled: !interface.shutdown && link.is_some_and(LinkFacts::forwards),
        learning: false,
        flood_unicast: false,
        flood_multicast: false,
        mtu: link.map_or(interface.mtu.unwrap_or(1500), |link| link.mtu).clamp(68, 65_535),
        hook: interface.hook,
        delivery: interface.delivery,
        ..PortState::new(name, link.map_or(0, |link| link.ifindex))
    }
}

fn rif(
    config: &Config,
    name: &InterfaceName,
    interface: &Interface,
    facts: &Facts,
    ports: &PortIds,
    routers: &Routers,
    state: &PlaneState,
) -> Option<(RifId, RifState)> {
    let here = |id: &PortId| state.ports.contains_key(id);
    let internal = config.internal_vlan(name).map(|it| it.vlan);
    let (id, attachment) = match (name, interface.role) {
        (InterfaceName::Vlan(vlan), _) => {
            let up = ports.get(&pipeline_end(*vlan)).filter(here)?;
            (up, RifAttachment::Vlan { vlan: *vlan, up })
        }
        (InterfaceName::Netdev(text), _) if internal.is_some() => {
            let up = ports.get(&pipeline_end_of(text)).filter(here)?;
            (up, RifAttachment::Vlan { vlan: internal?, up })
        }
        // The plane cannot send by a netdev in the namespace of a VRF: the kernel routes to and from such a port.
        (InterfaceName::Netdev(text), Role::Routed)
            if interface.is_routed() && interface.layer3.vrf.is_none() =>
        {
            let port = ports.get(text).filter(here)?;
            (port, RifAttachment::Port(port))
        }
        (InterfaceName::Netdev(text), Role::Subinterface(vlan)) => {
            let up = ports.get(&subinterface_end(text)).filter(here)?;
            let parent = split_subinterface(text).and_then(|(parent, _)| ports.get(&parent)).filter(here)?;
            (up, RifAttachment::Subinterface { parent, vlan, up })
        }
        _ => return None,
    };
    let link = facts.get(&name.to_string())?;
    let router = routers.vrfs.get(&interface.layer3.vrf)?;
    let virtual_macs = router.virtual_macs.get(&link.ifindex);
    let routes = |ipv6| {
        let at = Some((name, interface));
        router.forwards(link.ifindex, ipv6)
            && forwarding::forwarder(config, routers, &interface.layer3.vrf, at, ipv6) == Forwarder::Plane
    };
    let rif = RifState {
        name: link.name.clone(),
        vrf: router.id?,
        attachment,
        mac: link.mac?,
        virtual_macs: virtual_macs.into_iter().flatten().copied().take(VIRTUAL_MACS).collect(),
        mtu: interface.layer3.ip_mtu.unwrap_or(link.mtu).min(link.mtu).clamp(68, 65_535),
        ipv4: routes(false),
        ipv6: routes(true),
        urpf_ipv4: interface.layer3.urpf_ipv4,
        urpf_ipv6: interface.layer3.urpf_ipv6,
        while_confirmed: forwarding::setting(config, &interface.layer3.vrf, Some(interface))
            == ForwardingPlane::Auto,
    };
    Some((RifId::new(id.get())?, rif))
}

/// Adds the MAC addresses of virtual routers to the FDB as addresses of the VLAN interface, so that frames to them are not
/// flooded, and they are not learned at another port.
fn self_entries(rif: &RifState, state: &mut PlaneState) {
    let RifAttachment::Vlan { vlan, up } = rif.attachment else { return };
    if state.vlans.contains_key(&vlan) {
        for mac in &rif.virtual_macs {
            state.fdb.insert((vlan, *mac), FdbTarget::SelfAddress(up));
        }
    }
}

#[cfg(test)]
#[allow(clippy::panic)] // only a mistake in a test gets here
mod tests {
    use super::*;
    use crate::compile;
    use crate::routers::Router;
    use crate::testing::{config, facts, identity};
    use lanyard_types::{MacAddr, VlanId, VrfId};

    fn routers() -> Routers {
        let own = Router { id: Some(VrfId::DEFAULT), ..Router::default() };
        Routers { able: true, vrfs: [(None, own)].into() }
    }

    fn state(text: &str, links: &str, routers: &Routers) -> PlaneState {
        let config = config(text);
        let ports = PortIds::default().assign(compile::port_names(&config)).expect("few ports");
        let facts = facts(links);
        let mut state = compile::compile(&config, &facts, &ports, &identity());
        compile(&config, &facts, &ports, routers, &mut state);
        state
    }

    fn show(state: &PlaneState) -> Vec<String> {
        let port = |id: PortId| state.ports[&id].name.clone();
        let at = |attachment: RifAttachment| match attachment {
            RifAttachment::Vlan { vlan, up } => format!("vlan {vlan} up {}", port(up)),
            RifAttachment::Port(id) => format!("port {}", port(id)),
            RifAttachment::Subinterface { parent, vlan, up } => {
                format!("{} tag {vlan} up {}", port(parent), port(up))
            }
        };
        let flag = |on: bool, word: &'static str| if on { word } else { "" };
        let line = |rif: &RifState| {
            format!(
                "{} {} mtu {}{}{}",
                rif.name,
                at(rif.attachment),
                rif.mtu,
                flag(rif.ipv4, " v4"),
                flag(rif.ipv6, " v6")
            )
        };
        state.rifs.values().map(line).collect()
    }

    const LINKS: &str = "vlan10, ly10, eth1 mtu 9000, eth2, vlan20, ly20";

    #[test]
    fn where_routing_is_asked_for() {
        let vlans = "vlan 10\nvlan 20\nvlan10:\nvlan20:\neth2: trunk\neth1: routed";
        let check = |globals: &str, routers: &Routers, want: &[&str]| {
            assert_eq!(show(&state(&format!("{globals}{vlans}"), LINKS, routers)), want, "{globals}");
        };
        check("", &routers(), &[]);
        check(
            "ip-routing\n",
            &routers(),
            &[
                "vlan10 vlan 10 up ly10 mtu 1500 v4",
                "vlan20 vlan 20 up ly20 mtu 1500 v4",
                "eth1 port eth1 mtu 9000 v4",
            ],
        );
        check("ip-routing\n", &Routers { able: false, ..routers() }, &[]);
        check("ip-routing\n", &Routers { able: true, ..Routers::default() }, &[]);
        let mut stopped = routers();
        let own = stopped.vrfs.get_mut(&None).expect("the switch's own");
        // vlan10 is the first netdev. IPv6 forwarding also depends on `all`.
        own.forwarding = [((Some(1), false), false), ((None, true), false)].into();
        own.policy = [false, false];
        check(
            "ip-routing\nipv6-routing\n",
            &stopped,
            &[
                "vlan10 vlan 10 up ly10 mtu 1500",
                "vlan20 vlan 20 up ly20 mtu 1500 v4",
                "eth1 port eth1 mtu 9000 v4",
            ],
        );
        stopped.vrfs.get_mut(&None).expect("the switch's own").policy = [true, false];
        let by_the_kernel =
            ["vlan10 vlan 10 up ly10 mtu 1500", "vlan20 vlan 20 up ly20 mtu 1500", "eth1 port eth1 mtu 9000"];
        check("ip-routing\n", &stopped, &by_the_kernel);
        let mut filtered = routers();
        let own = filtered.vrfs.get_mut(&None).expect("the switch's own");
        own.filter.unknown = Some("no right".into());
        check("ip-routing\n", &filtered, &by_the_kernel);
    }

    #[test]
    fn the_kernel_routes_to_a_routed_port_in_a_vrf() {
        let mut routers = routers();
        routers.vrfs.insert(Some("red".into()), Router { id: VrfId::new(1), ..Router::default() });
        let text = "ip-routing\nvrf red\nvlan 10\nvlan10: vrf red\neth2: trunk\neth1: routed vrf red";
        assert_eq!(show(&state(text, LINKS, &routers)), ["vlan10 vlan 10 up ly10 mtu 1500 v4"]);
    }

    #[test]
    fn virtual_routers() {
        let mut routers = routers();
        let mac = MacAddr([0, 0, 0x5e, 0, 1, 7]);
        let own = routers.vrfs.get_mut(&None).expect("the switch's own");
        own.virtual_macs = [(1, [mac].into())].into();
        let state = state("ip-routing\nvlan 10\nvlan10:\neth1: trunk", LINKS, &routers);
        let rif = state.rifs.values().next().expect("one");
        assert_eq!(rif.virtual_macs, [mac].into());
        let ten = VlanId::new(10).expect("a VLAN");
        let RifAttachment::Vlan { up, .. } = rif.attachment else { panic!("a VLAN interface") };
        assert_eq!(state.fdb.get(&(ten, mac)), Some(&FdbTarget::SelfAddress(up)));
    }

    #[test]
    fn numbers_are_the_ports() {
        let state = state("ip-routing\nvlan 10\nvlan10:\neth1: routed\neth2: trunk", LINKS, &routers());
        for (id, rif) in &state.rifs {
            let port = match rif.attachment {
                RifAttachment::Vlan { up, .. } | RifAttachment::Subinterface { up, .. } => up,
                RifAttachment::Port(port) => port,
            };
            assert_eq!(id.get(), port.get());
        }
        let kinds: Vec<_> = state.ports.values().map(|port| (port.name.as_str(), port.kind)).collect();
        assert!(kinds.contains(&("eth1", PortKind::Routed)), "{kinds:?}");
    }
}
