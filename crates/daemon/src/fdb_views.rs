//! `show mac address-table` and `clear mac address-table`.

use crate::context::Context;
use crate::core::Core;
use lanyard_cli::backend::{Fdb, MacFilter};
use lanyard_cli::view::{self, Offload};
use lanyard_cli::window::Window;
use lanyard_plane::{FdbFilter, FdbKind};
use lanyard_types::VlanId;

impl Fdb for Core {
    fn mac_part(&mut self, filter: &MacFilter, from: u32, window: &mut Window) -> Option<u32> {
        part(&mut self.ctx, filter, from, window)
    }
    fn mac_capacity(&self) -> u64 {
        capacity(&self.ctx)
    }
    fn mac_count(&mut self, vlan: Option<VlanId>) -> view::MacCount {
        count(&mut self.ctx, vlan)
    }
    fn clear_mac_table(&mut self, filter: &MacFilter) -> u64 {
        let Some(mut filter) = filter_of(&self.ctx, filter) else { return 0 };
        if filter.kind.is_some_and(|kind| kind != FdbKind::Dynamic) {
            return 0;
        }
        filter.kind = None;
        self.ctx.plane.fdb_flush(&filter)
    }
}

/// The plane's filter; `None` when it can match nothing.
fn filter_of(ctx: &Context, filter: &MacFilter) -> Option<FdbFilter> {
    const KINDS: [FdbKind; 4] = [FdbKind::Dynamic, FdbKind::Static, FdbKind::Sticky, FdbKind::SelfAddress];
    let port = match &filter.interface {
        Some(name) => Some(ctx.port_of(name)?),
        None => None,
    };
    let kind = match filter.kind {
        Some(word) => Some(KINDS.into_iter().find(|kind| kind.name() == word)?),
        None => None,
    };
    Some(FdbFilter { vlan: filter.vlan, port, mac: filter.mac, kind })
}

fn capacity(ctx: &Context) -> u64 {
    ctx.plane.state().global.fdb_limit.min(ctx.plane.capabilities().fdb).into()
}

fn part(ctx: &mut Context, filter: &MacFilter, from: u32, window: &mut Window) -> Option<u32> {
    let filter = filter_of(ctx, filter)?;
    let names = ctx.port_names().to_vec();
    ctx.plane.fdb_part(&filter, from, &mut |entry| {
        if window.wants(entry.vlan.get(), entry.mac) {
            window.offer(view::MacEntry {
                mac: entry.mac,
                vlan: entry.vlan.get(),
                interface: entry.port.and_then(|port| names[port.index()].clone()),
                kind: entry.kind.name(),
                age_s: entry.age_s,
                offload: Offload::Offloaded,
            });
        }
    })
}

fn count(ctx: &mut Context, vlan: Option<VlanId>) -> view::MacCount {
    let mut count = view::MacCount { capacity: capacity(ctx), ..view::MacCount::default() };
    ctx.plane.fdb_walk(&FdbFilter { vlan, ..FdbFilter::default() }, &mut |entry| {
        count.total += 1;
        *match entry.kind {
            FdbKind::Dynamic => &mut count.dynamic,
            FdbKind::Static => &mut count.fixed,
            FdbKind::Sticky => &mut count.sticky,
            FdbKind::SelfAddress => &mut count.own,
        } += 1;
    });
    count.refused =
        ctx.plane.resources().iter().filter(|table| table.name == "fdb").map(|table| table.refused).sum();
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Core;
    use crate::testing::{Bench, config};
    use lanyard_cli::mac_table;
    use lanyard_config::InterfaceName;
    use lanyard_types::MacAddr;

    const TEXT: &str = "vlan 10\nvlan 20\ninterface eth1\n switchport\n switchport access vlan 10\n\
        interface eth2\n switchport\n switchport mode trunk\n\
        mac address-table static 0200.0000.0002 vlan 20 interface eth2\n\
        mac address-table static 0200.0000.0003 vlan 10 drop";

    fn switch() -> (Bench, Core) {
        let bench = Bench::new();
        for name in ["eth1", "eth2"] {
            bench.kernel.add(name);
        }
        let mut core = bench.core();
        core.take(config(TEXT)).expect("taken");
        (bench, core)
    }

    fn shown(core: &mut Core, filter: &MacFilter) -> Vec<String> {
        let line = |entry: &view::MacEntry| {
            let at = entry.interface.as_deref().unwrap_or("-");
            format!("{} {} {at} {}", entry.vlan, entry.mac, entry.kind)
        };
        mac_table::all(filter, core).iter().map(line).collect()
    }

    #[test]
    fn each_mac_address_filter_selects_its_entries() {
        let (_bench, mut core) = switch();
        let (drop, eth2) = ("10 0200.0000.0003 - static", "20 0200.0000.0002 eth2 static");
        let mac = MacAddr([2, 0, 0, 0, 0, 2]);
        let all = MacFilter::default;
        for (filter, want) in [
            (all(), vec![drop, eth2]),
            (MacFilter { vlan: VlanId::new(10), ..all() }, vec![drop]),
            (MacFilter { mac: Some(mac), ..all() }, vec![eth2]),
            (MacFilter { kind: Some("static"), ..all() }, vec![drop, eth2]),
            (MacFilter { kind: Some("dynamic"), ..all() }, vec![]),
            (MacFilter { kind: Some("nonsense"), ..all() }, vec![]),
            (MacFilter { interface: Some(InterfaceName::Netdev("eth2".into())), ..all() }, vec![eth2]),
            (MacFilter { interface: Some(InterfaceName::Netdev("eth1".into())), ..all() }, vec![]),
            (MacFilter { interface: Some(InterfaceName::Netdev("eth9".into())), ..all() }, vec![]),
        ] {
            assert_eq!(shown(&mut core, &filter), want, "{filter:?}");
        }
    }

    #[test]
    fn entries_are_counted_by_kind() {
        let (_bench, mut core) = switch();
        let all = count(&mut core.ctx, None);
        assert_eq!((all.total, all.fixed, all.dynamic, all.sticky, all.own), (2, 2, 0, 0, 0));
        assert_eq!(count(&mut core.ctx, VlanId::new(10)).total, 1);
        assert_eq!(count(&mut core.ctx, VlanId::new(30)).total, 0);
    }

    #[test]
    fn the_mac_capacity_is_the_lesser_of_plane_size_and_limit() {
        let (_bench, mut core) = switch();
        let able = u64::from(core.ctx.plane.capabilities().fdb);
        let limit = u64::from(core.ctx.plane.state().global.fdb_limit);
        assert_eq!(core.mac_capacity(), able.min(limit));
        core.take(config("mac address-table limit 1000")).expect("taken");
        assert_eq!(count(&mut core.ctx, None).capacity, 1000);
    }
}
