//! `show interfaces`, their counters, and `clear counters`.

use crate::cef_views::routed_by;
use crate::context::Context;
use crate::core::Core;
use crate::err_disable;
use crate::port_notes::PortNotes;
use crate::port_security;
use crate::spanning;
use lanyard_cli::backend::{Interfaces, PortSecurity, Refusal, SecureFilter};
use lanyard_cli::view::{self, Counters, InterfaceKind, InterfaceView};
use lanyard_config::{Interface, InterfaceName, Role};
use lanyard_netdev::{DirectionStats, Link, LinkStats};
use lanyard_plane::{Hook, PortCounters};
use lanyard_switch::{check, forwarding};
use lanyard_types::{DropReason, FrameCount, PortId};
use std::collections::BTreeMap;

impl Interfaces for Core {
    fn netdev_names(&self) -> Vec<String> {
        let ours =
            |alias: &Option<String>| alias.as_deref().is_some_and(|alias| alias.starts_with("lanyard:"));
        let usable =
            self.ctx.facts().iter().filter(|link| link.ethernet && !link.loopback && !ours(&link.alias));
        usable.map(|link| link.name.clone()).collect()
    }
    fn netdev_refusal(&self, name: &str) -> Option<&'static str> {
        let link = self.ctx.facts().iter().find(|link| link.name == name)?;
        if link.loopback {
            Some("is the loopback device: an interface of the switch is an Ethernet device")
        } else if !link.ethernet {
            Some("is no Ethernet device: it can't be an interface of the switch")
        } else {
            let ours = link.alias.as_deref().is_some_and(|alias| alias.starts_with("lanyard:"));
            ours.then_some("is a device that Lanyard made: it can't be a port")
        }
    }
    fn interfaces(&mut self, only: Option<&InterfaceName>) -> view::Interfaces {
        interfaces(&mut self.ctx, &self.ports, only)
    }
    fn drops(&mut self, only: Option<&InterfaceName>) -> view::Drops {
        drops(&mut self.ctx, only)
    }
    fn err_disabled(&mut self) -> Vec<view::ErrDisabledPort> {
        err_disable::view(&self.ctx)
    }
    fn clear_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        clear(&mut self.ctx, &mut self.ports, only)
    }
}

impl PortSecurity for Core {
    fn port_security(&mut self) -> view::PortSecurityView {
        port_security::view(&self.port_security, &mut self.ctx)
    }
    fn clear_port_security(&mut self, filter: &SecureFilter) {
        let outcome = self.port_security.clear(&mut self.ctx, filter);
        self.secure(outcome);
    }
}

/// `clear counters`.
///
/// # Errors
/// When `only` is no interface of the switch.
fn clear(ctx: &mut Context, ports: &mut PortNotes, only: Option<&InterfaceName>) -> Result<(), Refusal> {
    let configured = &ctx.switch.config().interfaces;
    let names: Vec<InterfaceName> = match only {
        Some(name) if !configured.contains_key(name) => {
            return Err(format!("{name} is no interface of the switch").into());
        }
        Some(name) => vec![name.clone()],
        None => configured.keys().cloned().collect(),
    };
    let links = ctx.kernel.links(None).unwrap_or_default();
    for name in names {
        if let Some(port) = ctx.port_of(&name) {
            ctx.plane.clear_counters(port);
        }
        let name = name.to_string();
        if let Some(link) = links.iter().find(|link| link.name == name) {
            ports.cleared.insert(name, link.stats);
        }
    }
    Ok(())
}

fn interfaces(ctx: &mut Context, ports: &PortNotes, only: Option<&InterfaceName>) -> view::Interfaces {
    let listed = |(name, interface): &(&InterfaceName, &Interface)| {
        only.is_none_or(|only| only == *name)
            && (matches!(name, InterfaceName::Vlan(_)) || interface.role != Role::Unset)
    };
    let wanted: Vec<(InterfaceName, Interface)> =
        ctx.switch.config().interfaces.iter().filter(listed).map(|(n, i)| (n.clone(), i.clone())).collect();
    let one = wanted.first().filter(|_| wanted.len() == 1).map(|(name, _)| name.to_string());
    let mut links: BTreeMap<String, Link> = if let Some(name) = one {
        ctx.kernel.link(None, &name).ok().map(|link| (name, link)).into_iter().collect()
    } else {
        ctx.kernel.links(None).unwrap_or_default().into_iter().map(|link| (link.name.clone(), link)).collect()
    };
    let mut homes: BTreeMap<String, String> = BTreeMap::new();
    for (vrf, link) in ctx.kernel.vrf_links() {
        homes.insert(link.name.clone(), vrf);
        links.insert(link.name.clone(), link);
    }
    let mut addresses: BTreeMap<(Option<String>, u32), Vec<ipnet::IpNet>> = BTreeMap::new();
    let vrfs: std::collections::BTreeSet<Option<String>> =
        homes.values().cloned().map(Some).chain([None]).collect();
    for vrf in vrfs {
        for address in ctx.kernel.addresses(vrf.as_deref(), None).unwrap_or_default() {
            addresses.entry((vrf.clone(), address.ifindex)).or_default().push(address.net);
        }
    }
    let chip = ctx.plane.chip();
    let front = |name: &str| chip.as_ref()?.ports.iter().find(|port| port.name == name);
    let view = |(name, interface): &(InterfaceName, Interface)| {
        let link = links.get(&name.to_string());
        let mut view = interface_view(ctx, ports, name, interface, link);
        if let Some(port) = front(&view.name) {
            view.speed_mbps = Some(port.speed_mbps);
            view.duplex = if port.settings.half_duplex { "half" } else { "full" };
        }
        let key = |link: &Link| (homes.get(&link.name).cloned(), link.ifindex);
        view.addresses = link.and_then(|link| addresses.get(&key(link))).cloned().unwrap_or_default();
        view.addresses.sort_by_key(|net| matches!(net, ipnet::IpNet::V6(_)));
        view
    };
    view::Interfaces { interfaces: wanted.iter().map(view).collect() }
}

fn interface_view(
    ctx: &mut Context,
    ports: &PortNotes,
    name: &InterfaceName,
    interface: &Interface,
    link: Option<&Link>,
) -> InterfaceView {
    let text = name.to_string();
    let port = ctx.port_of(name);
    let state = port.and_then(|port| ctx.plane.state().ports.get(&port));
    let kind = match (name, interface.role) {
        (InterfaceName::Vlan(_), _) => InterfaceKind::Svi,
        (_, Role::Routed | Role::Subinterface(_)) => InterfaceKind::Routed,
        _ if name.channel().is_some() => InterfaceKind::Lag,
        _ => InterfaceKind::Switchport,
    };
    let forwards = state.is_some_and(|state| state.enabled);
    let plane_mtu = state.map_or(0, |state| state.mtu);
    let link_up = match kind {
        InterfaceKind::Svi | InterfaceKind::Lag => forwards,
        _ => !interface.shutdown && link.is_some_and(|link| link.admin_up && link.carrier),
    };
    let settings = link.and_then(|_| ctx.kernel.settings(&text).ok()).unwrap_or_default();
    let (rx, tx) = counters(ctx, ports, &text, kind, port, link);
    let passed = port.map(|port| ctx.plane.port_counters(port)).unwrap_or_default();
    let identity = ctx.switch.identity();
    let unusable = || {
        check::unusable(&text, ctx.facts(), identity)
            .filter(|_| kind == InterfaceKind::Switchport)
            .map(|reason| reason.to_string())
    };
    let err_disabled = || {
        let cause = ctx.switch.err_cause(port?)?;
        Some(format!("err-disabled ({cause})"))
    };
    InterfaceView {
        kind,
        admin_up: !interface.shutdown,
        link_up,
        mac: link.map(|link| link.mac).or_else(|| (kind == InterfaceKind::Lag).then_some(identity.base_mac)),
        mtu: match (link, kind) {
            (None, InterfaceKind::Lag) => plane_mtu,
            _ => link.map_or(0, |link| link.mtu),
        },
        speed_mbps: match name.channel() {
            Some(channel) => spanning::channel_speed(ctx, channel),
            None => settings.speed_mbps,
        },
        duplex: match settings.duplex {
            Some(lanyard_netdev::Duplex::Full) => "full",
            Some(lanyard_netdev::Duplex::Half) => "half",
            None => "unknown",
        },
        rx,
        tx,
        hook: port.map(|port| ctx.plane.port_hook(port)).filter(|hook| *hook != Hook::None).map(Hook::name),
        notes: port.map(|port| ctx.plane.port_notes(port)).unwrap_or_default(),
        forwarded: passed.forwarded,
        trapped: passed.trapped,
        present: link.is_some() || kind == InterfaceKind::Lag,
        driver: link.and_then(|_| ctx.kernel.driver(&text).ok()),
        addresses: Vec::new(),
        routed_by: matches!(kind, InterfaceKind::Svi | InterfaceKind::Routed).then(|| {
            let (config, routers) = (ctx.switch.config(), ctx.switch.routers());
            let (vrf, at) = (&interface.layer3.vrf, Some((name, interface)));
            [false, true].map(|ipv6| routed_by(forwarding::forwarder(config, routers, vrf, at, ipv6)))
        }),
        error: ports.faults.get(&text).cloned().or_else(unusable).or_else(err_disabled),
        name: text,
    }
}

/// The counters of both directions: the plane counts a port's frames, and the netdev its errors. The frames
/// that a VLAN interface has received are those that the plane has sent to it.
fn counters(
    ctx: &mut Context,
    ports: &PortNotes,
    name: &str,
    kind: InterfaceKind,
    port: Option<PortId>,
    link: Option<&Link>,
) -> (Counters, Counters) {
    let stats = link.map(|link| since(link.stats, ports.cleared.get(name))).unwrap_or_default();
    let Some(port) = port else {
        let direction = |s: DirectionStats| Counters {
            frames: s.frames,
            bytes: s.bytes,
            dropped: s.dropped,
            errors: s.errors,
        };
        return (direction(stats.rx), direction(stats.tx));
    };
    let counters = ctx.plane.port_counters(port);
    let count = |count: FrameCount, dropped: u64, errors: u64| Counters {
        frames: count.frames,
        bytes: count.bytes,
        dropped,
        errors,
    };
    let dropped = counters.dropped.iter().sum();
    if kind == InterfaceKind::Svi {
        return (
            count(counters.tx, counters.tx_dropped, stats.rx.errors),
            count(counters.rx, dropped, stats.tx.errors),
        );
    }
    (count(counters.rx, dropped, stats.rx.errors), count(counters.tx, counters.tx_dropped, stats.tx.errors))
}

fn drops(ctx: &mut Context, only: Option<&InterfaceName>) -> view::Drops {
    let names: Vec<InterfaceName> = ctx
        .switch
        .config()
        .interfaces
        .keys()
        .filter(|name| only.is_none_or(|only| only == *name))
        .cloned()
        .collect();
    let mut drops = Vec::new();
    for name in names {
        let Some(port) = ctx.port_of(&name) else { continue };
        let counters: PortCounters = ctx.plane.port_counters(port);
        let reasons = DropReason::ALL.iter().map(|reason| (reason.name(), counters.dropped[reason.index()]));
        let counted = reasons.chain([("tx_dropped", counters.tx_dropped)]).filter(|(_, frames)| *frames > 0);
        drops.extend(counted.map(|(reason, frames)| view::DropEntry {
            interface: name.to_string(),
            reason,
            frames,
        }));
    }
    view::Drops { drops }
}

/// The difference to `base`.
fn since(now: LinkStats, base: Option<&LinkStats>) -> LinkStats {
    let Some(base) = base else { return now };
    let direction = |now: DirectionStats, base: DirectionStats| DirectionStats {
        frames: now.frames.saturating_sub(base.frames),
        bytes: now.bytes.saturating_sub(base.bytes),
        errors: now.errors.saturating_sub(base.errors),
        dropped: now.dropped.saturating_sub(base.dropped),
    };
    LinkStats { rx: direction(now.rx, base.rx), tx: direction(now.tx, base.tx), ..now }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Core;
    use crate::testing::{Bench, config};
    use lanyard_types::VlanId;

    const TEXT: &str = "vlan 10\ninterface eth1\n switchport\n switchport access vlan 10\ninterface eth2\n no switchport\n \
        ip address 10.2.0.1 255.255.255.0\n shutdown\ninterface eth9\n switchport\ninterface vlan 10\n \
        ip address 10.0.0.1 255.255.255.0";

    fn switch() -> (Bench, Core) {
        let bench = Bench::new();
        for name in ["eth1", "eth2"] {
            bench.kernel.add(name);
        }
        let mut core = bench.core();
        core.take(config(TEXT)).expect("taken");
        (bench, core)
    }

    fn netdev(name: &str) -> InterfaceName {
        InterfaceName::Netdev(name.into())
    }

    fn one(core: &mut Core, name: &InterfaceName) -> InterfaceView {
        let mut shown = interfaces(&mut core.ctx, &core.ports, Some(name)).interfaces;
        assert_eq!(shown.len(), 1, "{name}");
        shown.remove(0)
    }

    #[test]
    fn every_interface_of_the_switch_is_shown() {
        let (_bench, mut core) = switch();
        let shown = interfaces(&mut core.ctx, &core.ports, None).interfaces;
        let line = |view: &InterfaceView| {
            let (admin, link) = (view.admin_up, view.link_up);
            format!("{} {:?} admin {admin} link {link} present {}", view.name, view.kind, view.present)
        };
        assert_eq!(
            shown.iter().map(line).collect::<Vec<_>>(),
            [
                "eth1 Switchport admin true link true present true",
                "eth2 Routed admin false link false present true",
                "eth9 Switchport admin true link false present false",
                "vlan10 Svi admin true link true present true",
            ]
        );
        let absent = &shown[2];
        assert_eq!((absent.mtu, absent.mac, absent.driver.as_deref()), (0, None, None));
        assert!(shown[0].routed_by.is_none() && shown[1].routed_by.is_some());
    }

    #[test]
    fn an_interface_is_shown_with_netdev_data_addresses_and_link_state() {
        let (bench, mut core) = switch();
        let shown = one(&mut core, &netdev("eth1"));
        assert_eq!(shown.mac, Some(bench.kernel.get("eth1").mac));
        assert_eq!((shown.speed_mbps, shown.driver.as_deref()), (Some(1000), Some("test")));
        let vlan = one(&mut core, &InterfaceName::Vlan(VlanId::new(10).expect("a VLAN")));
        assert_eq!(vlan.addresses, ["10.0.0.1/24".parse().expect("a net")]);
        // The port loses its link; then the plane state takes the link from the VLAN interface as well.
        core.netdev_events(vec![bench.kernel.change("eth1", |link| link.carrier = false)]);
        assert!(!one(&mut core, &netdev("eth1")).link_up);
        let vlan = one(&mut core, &InterfaceName::Vlan(VlanId::new(10).expect("a VLAN")));
        assert!(vlan.admin_up && !vlan.link_up);
    }

    #[test]
    fn an_error_is_shown_until_it_is_gone() {
        let (_bench, mut core) = switch();
        core.ports.faults.insert("eth1".into(), "no room".into());
        assert_eq!(one(&mut core, &netdev("eth1")).error.as_deref(), Some("no room"));
        core.ports.faults.clear();
        assert_eq!(one(&mut core, &netdev("eth1")).error, None);
    }

    #[test]
    fn counters_are_those_since_they_were_cleared() {
        let (bench, mut core) = switch();
        let receive = |bench: &Bench, errors| {
            bench.kernel.change("eth2", |link| {
                link.stats.rx = DirectionStats { frames: 10, errors, ..link.stats.rx }
            });
        };
        receive(&bench, 5);
        assert_eq!(one(&mut core, &netdev("eth2")).rx.errors, 5);
        let Core { ctx, ports, .. } = &mut core;
        clear(ctx, ports, Some(&netdev("eth2"))).expect("an interface");
        assert_eq!(one(&mut core, &netdev("eth2")).rx.errors, 0);
        receive(&bench, 7);
        assert_eq!(one(&mut core, &netdev("eth2")).rx.errors, 2);
        // The netdev has been created again, so its counters begin at zero.
        receive(&bench, 1);
        assert_eq!(one(&mut core, &netdev("eth2")).rx.errors, 0);
        let Core { ctx, ports, .. } = &mut core;
        let error = clear(ctx, ports, Some(&netdev("eth7"))).expect_err("none");
        assert_eq!(error.to_string(), "eth7 is no interface of the switch");
    }

    #[test]
    fn drops_are_named_by_port_and_reason() {
        let (bench, mut core) = switch();
        assert!(drops(&mut core.ctx, None).drops.is_empty());
        let port = core.ctx.port_of(&netdev("eth1")).expect("a port");
        // The source address is a group address, which is an error.
        let mut frame = vec![0xff; 12];
        frame.resize(60, 0);
        bench.ports.borrow().as_ref().expect("a plane").push(port, &frame);
        let shown = drops(&mut core.ctx, None).drops;
        assert_eq!(shown.iter().map(|d| (d.interface.as_str(), d.frames)).collect::<Vec<_>>(), [("eth1", 1)]);
        assert!(drops(&mut core.ctx, Some(&netdev("eth2"))).drops.is_empty());
        assert_eq!(one(&mut core, &netdev("eth1")).rx.dropped, 1);
    }
}
