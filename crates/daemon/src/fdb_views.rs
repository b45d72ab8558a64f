//! `show mac address-table` and `clear mac address-table`.

use crate::context::Context;
use crate::core::Core;
use lanyard_cli::backend::{Fdb, MacFilter};
use lanyard_cli::view::{self, Offload};
use lanyard_plane::{FdbFilter, FdbKind};
use lanyard_types::VlanId;

impl Fdb for Core {
    fn mac_table(&mut self, filter: &MacFilter) -> view::MacTable {
        entries(&mut self.ctx, filter)
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

fn entries(ctx: &mut Context, filter: &MacFilter) -> view::MacTable {
    let mut entries = Vec::new();
    if let Some(filter) = filter_of(ctx, filter) {
        let names = ctx.port_names().to_vec();
        ctx.plane.fdb_walk(&filter, &mut |entry| {
            entries.push(view::MacEntry {
                mac: entry.mac,
                vlan: entry.vlan.get(),
                interface: entry.port.and_then(|port| names[port.index()].clone()),
                kind: entry.kind.name(),
                age_s: entry.age_s,
                offload: Offload::Offloaded,
            });
        });
    }
    // An entry that moved during the walk may have been seen twice.
    entries.sort_unstable_by_key(|entry| (entry.vlan, entry.mac));
    entries.dedup_by_key(|entry| (entry.vlan, entry.mac));
    view::MacTable { total: entries.len() as u64, entries, capacity: capacity(ctx) }
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
