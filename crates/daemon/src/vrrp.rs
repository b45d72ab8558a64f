//! `show vrrp`. keepalived runs the virtual routers; `lanyard_switch::services` decides which, and with which
//! configuration.

use crate::children::Children;
use crate::context::Context;
use crate::tracking::line_up;
use lanyard_cli::view;
use lanyard_switch::services::{self, Service};
use lanyard_types::MacAddr;

pub(crate) fn view(ctx: &Context, children: &Children) -> view::Vrrps {
    let mut groups = Vec::new();
    for (name, interface) in &ctx.switch.config().interfaces {
        let netdev = name.to_string();
        let link = ctx.facts().get(&netdev);
        for (group, vrrp) in &interface.layer3.vrrp {
            let vrf = interface.layer3.vrf.as_deref();
            let vmac = link.map(|link| services::vmac_name(link.ifindex, *group));
            let state = match () {
                () if !services::is_active(interface, vrrp) || !line_up(ctx, name) => "init",
                () if !children.runs(Service::Keepalived, vrf) => "unavailable",
                () if vmac.is_some_and(|vmac| has_addresses(ctx, vrf, &vmac)) => "master",
                () => "backup",
            };
            groups.push(view::VrrpView {
                interface: netdev.clone(),
                group: *group,
                description: vrrp.description.clone(),
                shutdown: vrrp.shutdown,
                state,
                address: vrrp.addresses.first().copied(),
                secondary_addresses: vrrp.addresses.iter().skip(1).copied().collect(),
                // RFC 3768, 7.3.
                mac: MacAddr([0, 0, 0x5e, 0, 1, *group]),
                priority: services::priority(vrrp, &ctx.tracks),
                configured_priority: vrrp.priority,
                preempt: vrrp.preempt,
                advertise_s: vrrp.advertise_s,
                tracks_down: vrrp.tracks.keys().copied().filter(|track| !ctx.tracks.is_up(*track)).collect(),
            });
        }
    }
    view::Vrrps { groups }
}

/// True if a virtual router's netdev has an IPv4 address, which it has while it is the master.
fn has_addresses(ctx: &Context, vrf: Option<&str>, netdev: &str) -> bool {
    let index = ctx.kernel.link(vrf, netdev).map(|link| link.ifindex);
    let addresses = index.and_then(|index| ctx.kernel.addresses(vrf, Some(index))).unwrap_or_default();
    addresses.iter().any(|address| address.net.addr().is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Module;
    use crate::testing::{World, accept, config};
    use std::os::unix::fs::PermissionsExt;

    const TEXT: &str = "track 1 interface eth2 line-protocol\ninterface eth1\n no switchport\n \
        ip address 10.0.0.2 255.255.255.0\n vrrp 7 ip 10.0.0.1\n vrrp 7 ip 10.0.0.3 secondary\n vrrp 7 priority 120\n \
        vrrp 7 track 1 decrement 30";

    fn world(text: &str) -> World {
        let mut world = World::new();
        world.kernel.add("eth1");
        world.kernel.change("eth1", |link| (link.admin_up, link.carrier) = (true, true));
        world.ctx.refresh();
        accept(&mut world.ctx, config(text));
        world
    }

    fn state(world: &World, children: &Children) -> &'static str {
        view(&world.ctx, children).groups[0].state
    }

    #[test]
    fn a_group_is_shown_as_configured() {
        let world = world(TEXT);
        let groups = view(&world.ctx, &Children::default()).groups;
        assert_eq!(groups.len(), 1);
        let group = &groups[0];
        assert_eq!((group.interface.as_str(), group.group), ("eth1", 7));
        assert_eq!(group.mac, MacAddr([0, 0, 0x5e, 0, 1, 7]));
        assert_eq!(group.address, Some([10, 0, 0, 1].into()));
        assert_eq!(group.secondary_addresses, [std::net::Ipv4Addr::new(10, 0, 0, 3)]);
        // The tracked object is down, so its decrement is applied.
        assert_eq!((group.configured_priority, group.priority), (120, 90));
        assert_eq!(group.tracks_down, [1]);
    }

    #[test]
    fn the_state_is_that_of_line_program_and_addresses() {
        let mut world = world(TEXT);
        let mut children = Children::with_programs_in(Vec::new());
        assert_eq!(state(&world, &children), "unavailable", "keepalived does not run");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keepalived");
        std::fs::write(&path, "#!/bin/sh\ntrap '' HUP\nexec sleep 600\n").expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("made a program");
        children = Children::with_programs_in(vec![folder.path().to_owned()]);
        children.configure(&mut world.ctx);
        assert_eq!(state(&world, &children), "backup");
        let vmac = services::vmac_name(world.kernel.get("eth1").ifindex, 7);
        world.kernel.add(&vmac);
        assert_eq!(state(&world, &children), "backup", "its netdev has no address");
        let address = (vmac, "10.0.0.1/32".parse().expect("a net"));
        world.kernel.state().addresses.insert(address);
        assert_eq!(state(&world, &children), "master");
        world.kernel.change("eth1", |link| link.carrier = false);
        world.ctx.refresh();
        assert_eq!(state(&world, &children), "init", "the line is down");
        children.end_all(&mut world.ctx);
    }

    #[test]
    fn a_group_that_cannot_run_is_in_init() {
        for line in ["vrrp 7 shutdown", "shutdown", "no ip address 10.0.0.2 255.255.255.0"] {
            let world = world(&format!("{TEXT}\n {line}"));
            assert_eq!(state(&world, &Children::default()), "init", "{line}");
        }
    }
}
