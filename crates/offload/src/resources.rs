//! Accounting: the use of the chip's tables, and alarms with hysteresis.
//!
//! Invariant: a table raises one alarm when it reaches `raise` percent, and clears it once when it falls below `clear`
//! percent. Between the two nothing is reported.

use lanyard_asic::tables::Usage;
use std::collections::BTreeMap;

/// When a table alarms, in percent of its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// The alarm is raised at this use or above. 1 to 100.
    pub raise: u8,
    /// The alarm is cleared below this use. Less than `raise`.
    pub clear: u8,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { raise: 90, clear: 80 }
    }
}

impl Thresholds {
    fn are_valid(self) -> bool {
        (1..=100).contains(&self.raise) && self.clear < self.raise
    }
}

/// A change of a table's alarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// The table: `kvd/hash_single`.
    pub path: String,
    /// True if the alarm was raised, false if it was cleared.
    pub raised: bool,
    /// Units in use.
    pub used: u32,
    /// All units.
    pub size: u32,
}

/// One line of `show platform resources`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The table's figures.
    pub usage: Usage,
    /// Other kinds of objects in the same table, by name, and tables of the same memory, by path.
    pub shared_with: Vec<String>,
    /// True while its alarm is raised.
    pub alarm: bool,
}

/// The alarms of all tables.
#[derive(Debug, Clone, Default)]
pub struct Alarms {
    /// The thresholds of tables that do not have the default ones, by path.
    thresholds: BTreeMap<String, Thresholds>,
    raised: BTreeMap<String, bool>,
}

impl Alarms {
    /// Sets when a table alarms; `None` is the default. An alarm that was raised stays raised until figures clear it.
    ///
    /// # Errors
    /// When the two thresholds contradict each other; nothing has changed then.
    pub fn set(&mut self, path: &str, thresholds: Option<Thresholds>) -> Result<(), String> {
        match thresholds {
            None => _ = self.thresholds.remove(path),
            Some(thresholds) if thresholds.are_valid() => {
                self.thresholds.insert(path.to_owned(), thresholds);
            }
            Some(Thresholds { raise, clear }) => {
                return Err(format!(
                    "thresholds {raise} and {clear} %: an alarm is raised at 1 to 100 % and cleared below a smaller value"
                ));
            }
        }
        Ok(())
    }

    /// Processes new figures; returns the alarms that were raised or cleared.
    pub fn update(&mut self, tables: &[Usage]) -> Vec<Alarm> {
        let mut news = Vec::new();
        for table in tables {
            let percent = u64::from(table.used) * 100 / u64::from(table.size.max(1));
            let was = self.raised.get(&table.path).copied().unwrap_or(false);
            let Thresholds { raise, clear } = self.thresholds.get(&table.path).copied().unwrap_or_default();
            let is = percent >= u64::from(if was { clear } else { raise });
            if was != is {
                self.raised.insert(table.path.clone(), is);
                news.push(Alarm { path: table.path.clone(), raised: is, used: table.used, size: table.size });
            }
        }
        news
    }

    /// The tables, what they share, and whether their alarms are raised.
    #[must_use]
    pub fn resources(&self, tables: &[Usage]) -> Vec<Resource> {
        let memory = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
        let of = |usage: &Usage| {
            let objects = usage
                .holds
                .iter()
                .map(|(object, _)| object.name().to_owned())
                .filter(|_| usage.holds.len() > 1);
            let others = tables
                .iter()
                .filter(|other| other.path != usage.path && memory(&other.path) == memory(&usage.path));
            let shared_with = objects.chain(others.map(|other| other.path.clone())).collect();
            Resource { usage: usage.clone(), shared_with, alarm: self.raised.get(&usage.path) == Some(&true) }
        };
        tables.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(used: u32) -> Vec<Usage> {
        vec![Usage { path: "m/t".into(), size: 100, used, high_water: used, refused: 0, holds: Vec::new() }]
    }

    #[test]
    fn alarms_once_and_clears_once() {
        let mut alarms = Alarms::default();
        let news: Vec<Option<bool>> = [0, 89, 90, 95, 85, 80, 90, 79, 85, 89, 100]
            .map(|used| alarms.update(&table(used)).first().map(|alarm| alarm.raised))
            .into();
        let (raised, cleared) = (Some(true), Some(false));
        assert_eq!(news, [None, None, raised, None, None, None, None, cleared, None, None, raised]);
    }

    #[test]
    fn a_table_may_have_thresholds_of_its_own() {
        let mut alarms = Alarms::default();
        let refused = alarms.set("m/t", Some(Thresholds { raise: 80, clear: 80 })).expect_err("equal");
        assert!(refused.contains("80 and 80"), "{refused}");
        alarms.set("m/t", Some(Thresholds { raise: 50, clear: 20 })).expect("valid");
        alarms.set("m/other", Some(Thresholds { raise: 10, clear: 5 })).expect("valid");
        let mut news = |used| alarms.update(&table(used)).first().map(|alarm| alarm.raised);
        assert_eq!([49, 50, 20, 19].map(&mut news), [None, Some(true), None, Some(false)]);
        alarms.set("m/t", None).expect("the default");
        assert!(alarms.update(&table(89)).is_empty());
    }
}
