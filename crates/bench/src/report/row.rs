//! Rows: one figure, or two figures measured in turns, compared with a target.
//!
//! A row names its series in [`Results::series`] by their keys and holds no figures of its own. Invariant: spreads,
//! ratios and verdicts are computed from the series' rounds whenever they are shown, so a table, a page and a JSON
//! file can never disagree.

use super::statistics::{Spread, ratios};
use super::{Axis, Better, DeviceNote, Key, Results, Series, Unit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The target of a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", content = "bound", rename_all = "snake_case")]
pub enum Target {
    /// No target: the row is informative.
    None,
    /// The median ratio of the first arm to the second is at least this.
    RatioAtLeast(f64),
    /// The median ratio of the first arm to the second is below this.
    RatioBelow(f64),
    /// The median of the first arm is at least this.
    AtLeast(f64),
    /// The first arm is at most this in every round.
    NeverOver(f64),
    /// The median of the first arm is below this.
    Below(f64),
}

/// The outcome of comparing a row with its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The target is met.
    Pass,
    /// The target is missed.
    Miss,
    /// There is no target, or the figures do not allow a verdict.
    None,
}

impl Target {
    /// Compares a row's figures with the target. Figures that scatter over more than their own size give a verdict
    /// only where every round is on the same side of the bound.
    #[must_use]
    pub fn verdict(self, first: Option<Spread>, ratio: Option<Spread>) -> Verdict {
        type Met = fn(f64, f64) -> bool;
        let at_least: Met = |value, bound| value >= bound;
        let below: Met = |value, bound| value < bound;
        let (spread, bound, met) = match (self, first, ratio) {
            (Self::RatioAtLeast(bound), _, Some(ratio)) => (ratio, bound, at_least),
            (Self::RatioBelow(bound), _, Some(ratio)) => (ratio, bound, below),
            (Self::AtLeast(bound), Some(first), _) => (first, bound, at_least),
            (Self::Below(bound), Some(first), _) => (first, bound, below),
            (Self::NeverOver(bound), Some(first), _) => {
                return if first.max <= bound { Verdict::Pass } else { Verdict::Miss };
            }
            _ => return Verdict::None,
        };
        if spread.is_wider_than_itself() && met(spread.min, bound) != met(spread.max, bound) {
            return Verdict::None;
        }
        if met(spread.median, bound) { Verdict::Pass } else { Verdict::Miss }
    }

    fn show(self, unit: Unit) -> String {
        match self {
            Self::None => String::new(),
            Self::RatioAtLeast(bound) => format!(">= {bound:.2} x"),
            Self::RatioBelow(bound) => format!("< {bound:.2} x"),
            Self::AtLeast(bound) => format!(">= {}", unit.show(bound)),
            Self::NeverOver(bound) => format!("<= {}", unit.show(bound)),
            Self::Below(bound) => format!("< {}", unit.show(bound)),
        }
    }
}

/// One row of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name on the command line.
    pub id: String,
    /// A description of what it measures.
    pub title: String,
    /// The unit of its figures.
    pub unit: Unit,
    /// Whether higher or lower figures are better.
    pub better: Better,
    /// The test that its series belong to; rows that differ only in their place on an axis share it.
    pub test: String,
    /// The place of its figures on the test's axis, as the row declares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<(Axis, f64)>,
    /// The series of its one or two arms.
    pub arms: Vec<Key>,
    /// The target of the row.
    pub target: Target,
    /// Changes to the bed for this row beyond what `ip link` makes: NAPI, offloads, addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepared: Vec<String>,
    /// The reason why the row was not measured, or not to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// True if the measurement was begun and failed; `skipped` has the reason.
    #[serde(default)]
    pub broken: bool,
    /// Additional keys of this row in JSON, whose names other programs rely on.
    #[serde(flatten)]
    pub facts: BTreeMap<String, serde_json::Value>,
}

/// The figures of one arm, as a bench hands them over.
#[derive(Debug, Clone, Default)]
pub struct Arm {
    /// The device, and how it differs from the other arm in this row.
    pub label: String,
    /// The device's report about itself.
    pub detail: String,
    /// One figure per round.
    pub rounds: Vec<f64>,
}

impl Arm {
    /// An arm of Lanyard alone, for rows without a second device.
    #[must_use]
    pub fn lanyard(rounds: Vec<f64>) -> Self {
        Self { label: "lanyard".to_owned(), detail: String::new(), rounds }
    }
}

/// A row's figures, computed from its series.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The spread of each arm; `None` for an arm without rounds.
    pub arms: Vec<Option<Spread>>,
    /// The spread of the ratios of the first arm to the second, round by round; `None` without a second arm.
    pub ratio: Option<Spread>,
    /// The verdict on the row's target.
    pub verdict: Verdict,
}

impl Row {
    /// A row without an axis and without figures yet. A higher figure counts as better for rates and fractions,
    /// a lower one for everything else; set [`Row::better`] where that is wrong.
    #[must_use]
    pub fn new(id: &str, title: &str, unit: Unit, target: Target) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            unit,
            better: match unit {
                Unit::FramesPerSecond | Unit::BitsPerSecond | Unit::Fraction => Better::Higher,
                _ => Better::Lower,
            },
            test: id.to_owned(),
            at: None,
            arms: Vec::new(),
            target,
            prepared: Vec::new(),
            skipped: None,
            broken: false,
            facts: BTreeMap::new(),
        }
    }

    /// Marks the row as broken for this reason, if there is one.
    #[must_use]
    pub fn broken_by(self, why: Option<String>) -> Self {
        Self { broken: why.is_some(), skipped: why, ..self }
    }

    /// The row's figures in `results`.
    #[must_use]
    pub fn figures(&self, results: &Results) -> Figures {
        let series: Vec<Option<&Series>> = self.arms.iter().map(|key| results.get(key)).collect();
        let arms: Vec<Option<Spread>> =
            series.iter().map(|series| series.and_then(|series| Spread::of(&series.rounds))).collect();
        let ratio = match &series[..] {
            [Some(first), Some(second)] => Spread::of(&ratios(&first.rounds, &second.rounds)),
            _ => None,
        };
        let verdict = match self.target.verdict(arms.first().copied().flatten(), ratio) {
            // A row that was not measured to the end, or whose load fell short, cannot pass.
            _ if self.skipped.is_some() => Verdict::None,
            Verdict::Pass if series.iter().flatten().any(|series| !series.caveats.is_empty()) => {
                Verdict::None
            }
            verdict => verdict,
        };
        Figures { arms, ratio, verdict }
    }

    /// The row as cells of the table that [`header`] begins.
    pub(super) fn cells(&self, results: &Results) -> Vec<String> {
        let Figures { arms, ratio, verdict } = self.figures(results);
        let arm = |n: usize| match (self.arms.get(n), arms.get(n).copied().flatten()) {
            (Some(key), Some(spread)) if spread.is_wider_than_itself() => {
                format!("{} {NOT_MEASURABLE}", key.device)
            }
            (Some(key), Some(spread)) => format!("{} {}", key.device, self.unit.show(spread.median)),
            (Some(key), None) => key.device.clone(),
            (None, _) => String::new(),
        };
        let (middle, range) = match (ratio, arms.first().copied().flatten()) {
            (Some(ratio), _) => {
                let middle = if ratio.is_wider_than_itself() {
                    NOT_MEASURABLE.to_owned()
                } else {
                    format!("{:.2} x", ratio.median)
                };
                (middle, format!("{:.2}-{:.2}", ratio.min, ratio.max))
            }
            (None, Some(s)) => {
                (String::new(), format!("{}-{}", self.unit.show(s.min), self.unit.show(s.max)))
            }
            (None, None) => Default::default(),
        };
        let verdict = match (verdict, &self.skipped) {
            (_, Some(_)) if self.broken => "BROKEN",
            (_, Some(_)) => "skipped",
            (Verdict::Pass, _) => "pass",
            (Verdict::Miss, _) => "MISS",
            (Verdict::None, _) => "",
        };
        let target = self.target.show(self.unit);
        vec![self.id.clone(), self.title.clone(), arm(0), arm(1), middle, range, target, verdict.to_owned()]
    }

    /// Remarks on the row that its cells do not show.
    pub(super) fn remarks(&self, results: &Results) -> Vec<String> {
        let mut remarks = Vec::new();
        let Figures { arms, ratio, .. } = self.figures(results);
        let wide = match ratio {
            Some(ratio) => ratio.is_wider_than_itself(),
            None => arms.iter().flatten().any(|spread| spread.is_wider_than_itself()),
        };
        if wide {
            remarks
                .push(format!("{}: {NOT_MEASURABLE}: the rounds differ by more than their median", self.id));
        }
        let mut caveats: Vec<&str> = Vec::new();
        for caveat in self.arms.iter().filter_map(|key| results.get(key)).flat_map(|series| &series.caveats) {
            if !caveats.contains(&caveat.as_str()) {
                caveats.push(caveat);
            }
        }
        remarks.extend(caveats.iter().map(|caveat| format!("{}: {caveat}", self.id)));
        if let Some(why) = &self.skipped {
            remarks.push(format!("{}: {}: {why}", self.id, if self.broken { "broken" } else { "skipped" }));
        }
        remarks
    }
}

/// Printed instead of digits where repeated measurements differ by more than the figure itself.
pub(super) const NOT_MEASURABLE: &str = "not measurable here";

/// The header of a table of rows.
pub(super) fn header() -> Vec<String> {
    ["Row", "What", "First", "Second", "Ratio", "min-max", "Target", ""].map(str::to_owned).to_vec()
}

/// The preparations of the bed and the rows they were made for, one line per preparation.
pub(super) fn preparations(results: &Results) -> Vec<String> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &results.rows {
        for prepared in &row.prepared {
            match all.iter_mut().find(|(text, _)| *text == prepared.as_str()) {
                Some((_, rows)) => rows.push(&row.id),
                None => all.push((prepared, vec![&row.id])),
            }
        }
    }
    all.iter().map(|(text, rows)| format!("prepared: {text} ({})", rows.join(", "))).collect()
}

impl Results {
    /// Adds a row and the series of its arms. `caveat` is the reason if the figures are less than the row
    /// requires.
    pub fn push_row(&mut self, mut row: Row, arms: Vec<Arm>, caveat: Option<String>) {
        for arm in arms {
            if !self.devices.iter().any(|device| device.name == arm.label) {
                let (name, detail) = (arm.label.clone(), arm.detail.clone());
                self.devices.push(DeviceNote { name, detail, broken: None });
            }
            let key = Key { at: row.at, ..Key::new(&row.test, "", &arm.label) };
            row.arms.push(key.clone());
            if arm.rounds.is_empty() {
                continue;
            }
            let (unit, better) = (row.unit, row.better);
            let series = self.series_mut(key, |key| Series::new(key, "", unit, better));
            series.rounds.extend(arm.rounds);
            series.caveats.extend(caveat.iter().cloned());
        }
        self.rows.push(row);
    }

    /// True when a row misses its target.
    #[must_use]
    pub fn missed(&self) -> bool {
        self.rows.iter().any(|row| row.figures(self).verdict == Verdict::Miss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let check = |target: Target, first: &[f64], ratio: &[f64], expected: Verdict| {
            let found = target.verdict(Spread::of(first), Spread::of(ratio));
            assert_eq!(found, expected, "{target:?} {first:?} {ratio:?}");
        };
        check(Target::None, &[1.0], &[1.0], Verdict::None);
        check(Target::RatioAtLeast(1.35), &[], &[1.2, 1.35, 2.0], Verdict::Pass);
        check(Target::RatioAtLeast(1.35), &[], &[1.34], Verdict::Miss);
        check(Target::RatioAtLeast(1.35), &[9.0], &[], Verdict::None);
        check(Target::RatioBelow(1.0), &[], &[1.0], Verdict::Miss);
        check(Target::RatioBelow(1.0), &[], &[0.99], Verdict::Pass);
        check(Target::AtLeast(0.95), &[0.9, 0.96, 0.97], &[], Verdict::Pass);
        // A single lost frame in a single round is a miss: the bound is checked in every round, not for the
        // median.
        check(Target::NeverOver(0.0), &[0.0, 0.0, 1.0], &[], Verdict::Miss);
        check(Target::NeverOver(0.0), &[0.0, 0.0, 0.0], &[], Verdict::Pass);
        // Rounds that scatter over more than their median decide only where all of them agree.
        check(Target::Below(300.0), &[299.0, 100.0, 900.0], &[], Verdict::None);
        check(Target::Below(1000.0), &[299.0, 100.0, 900.0], &[], Verdict::Pass);
        check(Target::Below(90.0), &[299.0, 100.0, 900.0], &[], Verdict::Miss);
    }

    fn results(rows: &[(&str, &[f64], Option<&str>)]) -> Results {
        let mut results = Results::new("forward");
        for (id, rounds, skipped) in rows {
            let mut row = Row::new(id, "known unicast", Unit::FramesPerSecond, Target::RatioAtLeast(1.35));
            row.skipped = skipped.map(str::to_owned);
            row.prepared = vec!["GRO on at p0".to_owned()];
            let arm = |label: &str, factor: f64| Arm {
                label: label.to_owned(),
                detail: String::new(),
                rounds: rounds.iter().map(|round| round * factor).collect(),
            };
            results.push_row(row, vec![arm("lanyard-tc", 2.0), arm("bridge", 1.0)], None);
        }
        results
    }

    #[test]
    fn a_table_lines_up() {
        let results = results(&[("tc-64", &[1.5e6], None), ("other", &[], Some("no lanyard"))]);
        let table = results.table();
        let widths: Vec<usize> = table.lines().take(4).map(|l| l.chars().count()).collect();
        assert!(widths.iter().all(|w| *w == widths[0]), "{table}");
        for piece in ["lanyard-tc 3.000 Mpps", "bridge 1.500 Mpps", "2.00 x", ">= 1.35 x", "| pass"] {
            assert!(table.contains(piece), "{piece} in\n{table}");
        }
        assert!(table.contains("\nother: skipped: no lanyard\n"), "{table}");
        assert!(table.contains("\nprepared: GRO on at p0 (tc-64, other)\n"), "{table}");
        assert!(!results.missed());
    }

    #[test]
    fn a_figure_that_scatters_over_more_than_itself_has_no_digits() {
        let results = results(&[("tc-64", &[1e6, 4e6, 1.5e6], None)]);
        let table = results.table();
        assert!(table.contains("bridge not measurable here"), "{table}");
        // The ratio was the same in every round, although the machine's speed changed.
        assert!(table.contains("2.00 x"), "{table}");
    }

    #[test]
    fn a_caveat_withholds_a_pass() {
        let mut results = Results::new("overload");
        let row = Row::new("kept", "kept", Unit::Fraction, Target::AtLeast(0.95));
        results.push_row(row, vec![Arm::lanyard(vec![0.99])], Some("the tester offered 130 %".to_owned()));
        assert_eq!(results.rows[0].figures(&results).verdict, Verdict::None);
        assert!(results.table().contains("kept: the tester offered 130 %"));
    }
}
