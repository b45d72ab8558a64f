//! `show vrrp`. keepalived runs the virtual routers: which, and with which configuration, `lanyard_switch::services` decides.

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

/// A virtual router's netdev has its addresses while it is the master.
fn has_addresses(ctx: &Context, vrf: Option<&str>, netdev: &str) -> bool {
    let index = ctx.kernel.link(vrf, netdev).map(|link| link.ifindex);
    let addresses = index.and_then(|index| ctx.kernel.addresses(vrf, Some(index))).unwrap_or_default();
    addresses.iter().any(|address| address.net.addr().is_ipv4())
}
