//! Watches the plane's finite tables: messages when one is nearly full, is no longer, or refuses
//! entries.
//!
//! Invariant: the tables are read at most once in [`GAP_MS`], however many events occur.

use crate::context::{Context, Module};
use lanyard_cli::view::{self, EventKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Least time between two readings.
const GAP_MS: u64 = 1000;

/// The state of the tables at the last reading.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    /// By table: whether it was nine tenths full, and its number of refusals.
    seen: BTreeMap<&'static str, (bool, u64)>,
    next_ms: u64,
}

/// Tables may have changed.
pub(crate) struct Changed;

impl Module for Resources {
    type Event<'a> = Changed;
    fn configure(&mut self, _ctx: &mut Context) {}
    fn handle(&mut self, ctx: &mut Context, Changed: Changed) -> usize {
        let now_ms = ctx.clock.now_ms();
        if now_ms < self.next_ms {
            return 0;
        }
        self.next_ms = now_ms + GAP_MS;
        for table in ctx.plane.resources() {
            let nearly_full = table.used >= table.size - table.size / 10 && table.size > 0;
            let (was_full, refused) = self.seen.get(table.name).copied().unwrap_or_default();
            self.seen.insert(table.name, (nearly_full, table.refused));
            if nearly_full == was_full && table.refused == refused {
                continue;
            }
            if nearly_full && !was_full {
                let text = format!("table {} is filling up: {} of {}", table.name, table.used, table.size);
                ctx.log("RESOURCE", 4, "THRESHOLD", &text);
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

/// `show platform resources`.
pub(crate) fn view(ctx: &mut Context) -> view::Resources {
    let table = |table: lanyard_plane::TableUsage| view::Resource {
        name: table.name.into(),
        size: table.size,
        used: table.used,
        high_water: table.high_water,
        refused: table.refused,
        bytes: table.bytes,
        shared_with: table.shared_with.iter().map(|name| (*name).to_owned()).collect(),
    };
    view::Resources { tables: ctx.plane.resources().into_iter().map(table).collect(), manager: "none".into() }
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
        assert!(resources.seen.values().all(|seen| *seen == (false, 0)));
        assert!(!view(&mut world.ctx).tables.is_empty());
    }
}
