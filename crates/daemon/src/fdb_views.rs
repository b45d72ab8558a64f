//! `show mac address-table`.

use crate::context::Context;
use lanyard_cli::backend::MacFilter;
use lanyard_cli::view::{self, Offload};
use lanyard_plane::{FdbFilter, FdbKind};
use lanyard_types::VlanId;

/// The plane's filter; `None` when it can match nothing.
pub(crate) fn filter_of(ctx: &Context, filter: &MacFilter) -> Option<FdbFilter> {
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

pub(crate) fn entries(ctx: &mut Context, filter: &MacFilter) -> view::MacTable {
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

pub(crate) fn count(ctx: &mut Context, vlan: Option<VlanId>) -> view::MacCount {
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
