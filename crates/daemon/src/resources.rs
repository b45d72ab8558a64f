//! Watches the plane's finite tables: logs when a table becomes nearly full, when it is no longer nearly
//! full, and when it refuses entries.
//!
//! Invariant: the tables are read at most once in [`GAP_MS`], however many events occur.

use crate::context::{Context, Module};
use lanyard_cli::view::{self, EventKind};
use lanyard_plane::{ChipTable, Strategy, TablePolicy, Thresholds};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Least time between two readings.
const GAP_MS: u64 = 1000;

/// The state of the tables at the last reading.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    /// By table: true if it is nearly full, and the number of entries that it has refused.
    seen: BTreeMap<&'static str, (bool, u64)>,
    next_ms: u64,
    /// True when tables may have changed since the last reading.
    pending: bool,
}

/// Tables may have changed.
pub(crate) struct Changed;

/// True if a table counts as nearly full: from the threshold `raise` on and, if it was nearly full before
/// (`did`), down to the threshold `clear`. Thresholds are percentages of `size`.
fn alarms(used: u64, size: u64, did: bool, at: Thresholds) -> bool {
    size > 0 && used * 100 >= size * u64::from(if did { at.clear } else { at.raise })
}

/// The thresholds of a table.
fn thresholds(ctx: &Context, table: &str) -> Thresholds {
    ctx.switch.config().chip.thresholds.get(table).copied().unwrap_or_default()
}

impl Module for Resources {
    type Event<'a> = Changed;
    fn configure(&mut self, _ctx: &mut Context) {}
    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        self.pending.then_some(self.next_ms)
    }
    fn tick(&mut self, ctx: &mut Context) {
        if self.pending {
            self.handle(ctx, Changed);
        }
    }
    fn handle(&mut self, ctx: &mut Context, Changed: Changed) -> usize {
        let now_ms = ctx.clock.now_ms();
        self.pending = now_ms < self.next_ms;
        if self.pending {
            return 0;
        }
        self.next_ms = now_ms + GAP_MS;
        for table in ctx.plane.resources() {
            let (was_full, refused) = self.seen.get(table.name).copied().unwrap_or_default();
            let at = thresholds(ctx, table.name);
            let nearly_full = alarms(table.used, table.size, was_full, at);
            self.seen.insert(table.name, (nearly_full, table.refused));
            if nearly_full == was_full && table.refused == refused {
                continue;
            }
            if nearly_full && !was_full {
                let text = format!("table {} is filling up: {} of {}", table.name, table.used, table.size);
                ctx.log("RESOURCE", 4, "THRESHOLD", &text);
            }
            if was_full && !nearly_full {
                let text = format!("table {} has room again: {} of {}", table.name, table.used, table.size);
                ctx.log("RESOURCE", 5, "CLEARED", &text);
            }
            if table.refused > refused && refused == 0 {
                let text =
                    format!("table {} refuses entries: {} of {} used", table.name, table.used, table.size);
                ctx.log("RESOURCE", 3, "FULL", &text);
            }
            let details = json!({
                "table": table.name, "size": table.size, "used": table.used, "refused": table.refused,
            });
            ctx.bus.event(EventKind::Resource, "change", || match details {
                Value::Object(details) => details,
                _ => serde_json::Map::new(),
            });
        }
        1
    }
}

/// A strategy as it is configured.
pub(crate) fn strategy(strategy: Strategy) -> String {
    match strategy {
        Strategy::Prefetch(units) => format!("prefetch {units}"),
        other => other.name().to_owned(),
    }
}

/// `show platform resources`.
pub(crate) fn view(ctx: &mut Context) -> view::Resources {
    let chip = ctx.plane.chip();
    let configured = ctx.switch.config().chip.thresholds.clone();
    let at = |name: &str| configured.get(name).copied().unwrap_or_default();
    let of = |name: &str| chip.as_ref()?.tables.iter().find(|table| table.path == name);
    let table = |table: lanyard_plane::TableUsage| {
        let in_chip = of(table.name);
        let unit = |table: &ChipTable| {
            let units = table.holds.iter().map(|(object, units)| format!("{object}={units}"));
            units.collect::<Vec<_>>().join(",")
        };
        view::Resource {
            name: table.name.into(),
            size: table.size,
            used: table.used,
            high_water: table.high_water,
            refused: table.refused,
            bytes: table.bytes,
            shared_with: table.shared_with.iter().map(|name| (*name).to_owned()).collect(),
            unit: in_chip.map_or_else(|| "entry".to_owned(), unit),
            policy: in_chip.and_then(|table| table.policy).map(TablePolicy::name),
            alarm: in_chip
                .map_or_else(|| alarms(table.used, table.size, false, at(table.name)), |table| table.alarm),
        }
    };
    let tables = ctx.plane.resources().into_iter().map(table).collect();
    let manager = chip.as_ref().map_or_else(|| "none".to_owned(), |chip| strategy(chip.strategy));
    view::Resources { tables, manager }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    #[test]
    fn tables_are_read_once_a_second_at_most() {
        let mut world = World::new();
        let mut resources = Resources::default();
        for (now_ms, read) in [(0, 1), (999, 0), (1000, 1), (1500, 0), (2100, 1)] {
            world.clock.set(now_ms);
            assert_eq!(resources.handle(&mut world.ctx, Changed), read, "at {now_ms} ms");
        }
        assert_eq!(resources.next_ms(&world.ctx), None, "what came too early was read since");
        assert!(resources.seen.values().all(|seen| *seen == (false, 0)));
        assert!(!view(&mut world.ctx).tables.is_empty());
    }

    #[test]
    fn a_table_alarms_once_and_clears_once() {
        let mut did = false;
        let mut news = Vec::new();
        let at = Thresholds::default();
        for used in [0, 89, 90, 95, 85, 80, 90, 79, 85, 89, 100] {
            let does = alarms(used, 100, did, at);
            if does != did {
                news.push((used, does));
            }
            did = does;
        }
        assert_eq!(news, [(90, true), (79, false), (100, true)]);
        assert!(!alarms(0, 0, true, at), "a table without a size");
        let at = Thresholds { raise: 50, clear: 20 };
        let does =
            [(49, false), (50, false), (20, true), (19, true)].map(|(used, did)| alarms(used, 100, did, at));
        assert_eq!(does, [false, true, true, false], "configured thresholds");
    }
}
