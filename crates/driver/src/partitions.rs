//! `platform resource`: the sizes of tables that share a memory, and when tables alarm.
//!
//! Invariant: a change of sizes takes effect whole, or is refused and every table has the size that it had.

use lanyard_asic::platform::Platform;
use lanyard_offload::resources::Thresholds;
use lanyard_offload::{Hardware, Manager, Refusal};
use lanyard_plane::ChipSettings;
use std::collections::BTreeMap;

/// The tables of a platform: path and units.
fn tables(platform: &Platform) -> BTreeMap<String, u32> {
    let of = |memory: &lanyard_asic::platform::Memory| {
        let name = memory.name.clone();
        memory
            .table
            .iter()
            .map(move |table| (format!("{name}/{}", table.name), table.size))
            .collect::<Vec<_>>()
    };
    platform.memory.iter().flat_map(of).collect()
}

/// Refuses settings of tables that the platform does not have.
pub(crate) fn check(platform: &Platform, settings: &ChipSettings) -> Result<(), String> {
    let known = tables(platform);
    let stray =
        settings.sizes.keys().chain(settings.thresholds.keys()).find(|path| !known.contains_key(*path));
    match stray {
        Some(path) => {
            let known: Vec<String> = known.into_keys().collect();
            Err(format!("{path} is no table of this chip: it has {}", known.join(", ")))
        }
        None => Ok(()),
    }
}

/// Gives the manager the configured thresholds, and the default ones to tables that have none any more.
pub(crate) fn set_thresholds(
    manager: &mut Manager<dyn Hardware>,
    was: &ChipSettings,
    next: &ChipSettings,
) -> Result<(), String> {
    for path in was.thresholds.keys().filter(|path| !next.thresholds.contains_key(*path)) {
        manager.set_thresholds(path, None)?;
    }
    for (path, at) in &next.thresholds {
        manager.set_thresholds(path, Some(Thresholds { raise: at.raise, clear: at.clear }))?;
    }
    Ok(())
}

/// Changes the sizes of tables. Tables that shrink come first, because they make room for those that grow. If a size is refused,
/// the tables before it get their previous sizes back. The caller calls [`Manager::fill`] when it takes no size back any more.
pub(crate) fn resize(
    manager: &mut Manager<dyn Hardware>,
    wanted: &BTreeMap<String, u32>,
) -> Result<(), Refusal> {
    manager.refresh();
    let had: BTreeMap<String, u32> =
        manager.resources().into_iter().map(|table| (table.usage.path, table.usage.size)).collect();
    let of = |path: &String| had.get(path).copied().unwrap_or(0);
    let mut steps: Vec<(&String, u32)> =
        wanted.iter().filter(|(path, size)| of(path) != **size).map(|(path, size)| (path, *size)).collect();
    steps.sort_by_key(|(path, size)| *size > of(path));
    for (at, (path, size)) in steps.iter().enumerate() {
        let Err(refusal) = manager.set_size(path, *size) else { continue };
        for (path, _) in steps[..at].iter().rev() {
            // The result is ignored: the chip had this size a moment ago, and nothing was added to the table since.
            let _ = manager.set_size(path, of(path));
        }
        return Err(refusal);
    }
    Ok(())
}

/// The sizes to set: the configured ones, and the platform's sizes for tables whose size is no longer configured.
pub(crate) fn wanted(
    platform: &Platform,
    was: &BTreeMap<String, u32>,
    next: &BTreeMap<String, u32>,
) -> BTreeMap<String, u32> {
    let mut wanted = tables(platform);
    wanted.retain(|path, _| was.contains_key(path) || next.contains_key(path));
    wanted.extend(next.clone());
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_offload::Policy;
    use lanyard_offload::simulated::Simulated;
    use lanyard_offload::strategy::by_name;
    use lanyard_plane::Thresholds as At;

    const SPECTRUM: &str = include_str!("../../../platforms/spectrum-like.toml");

    fn manager(platform: &Platform) -> Manager<Simulated> {
        let strategy = by_name("hybrid", platform, 1, 1).expect("a strategy");
        Manager::new(Simulated::new(platform, 1), strategy, Policy::Hybrid)
    }
    fn sizes(manager: &mut Manager<Simulated>) -> BTreeMap<String, u32> {
        manager.refresh();
        manager.resources().into_iter().map(|table| (table.usage.path, table.usage.size)).collect()
    }

    #[test]
    fn tables_that_the_chip_does_not_have_are_refused() {
        let platform = Platform::parse(SPECTRUM).expect("a platform");
        let mut settings = ChipSettings::default();
        settings.thresholds.insert("kvd/nothing".into(), At { raise: 50, clear: 20 });
        let refused = check(&platform, &settings).expect_err("there is none");
        assert!(refused.starts_with("kvd/nothing is no table of this chip: it has "), "{refused}");
    }

    #[test]
    fn a_resize_moves_memory_between_tables_or_changes_nothing() {
        let platform = Platform::parse(SPECTRUM).expect("a platform");
        let mut manager = manager(&platform);
        let before = sizes(&mut manager);
        assert_eq!(before, tables(&platform));
        // Two tables of one memory that has no free units.
        let memory = platform.memory.iter().find(|memory| memory.table.len() > 1).expect("a shared memory");
        let path = |at: usize| format!("{}/{}", memory.name, memory.table[at].name);
        let step = memory.table.iter().map(|table| table.ways * table.banks).max().unwrap_or(1);
        let step = step.max(memory.granularity).max(1024);
        let with = |first: i64, second: i64| {
            let size = |at: usize, by: i64| (i64::from(memory.table[at].size) + by * i64::from(step)) as u32;
            BTreeMap::from([(path(0), size(0, first)), (path(1), size(1, second))])
        };
        resize(&mut manager, &with(1, -1)).expect("the other makes room");
        let after = sizes(&mut manager);
        assert_eq!((after[&path(0)], after[&path(1)]), (before[&path(0)] + step, before[&path(1)] - step));
        resize(&mut manager, &with(-1, 1)).expect("and the other way round");
        // More units than the memory has: nothing changes, although the first step is possible.
        let kept = sizes(&mut manager);
        let refused = resize(&mut manager, &with(-2, 1 << 14)).expect_err("more than the memory has");
        assert!(refused.to_string().contains(&path(1)), "{refused}");
        assert_eq!(sizes(&mut manager), kept);
    }
}
