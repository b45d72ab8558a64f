//! Rows of two sides held against a target, as a table for people.

use crate::results::Results;
use crate::stats::Spread;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// A unit of a measured figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Frames per second that arrived.
    FramesPerSecond,
    /// Bits of TCP payload per second.
    BitsPerSecond,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Frames.
    Frames,
    /// Megabytes of 10^6.
    Megabytes,
    /// A part of one.
    Fraction,
    /// MAC addresses.
    Addresses,
    /// MAC addresses per second.
    AddressesPerSecond,
    /// Cores' worth of processor time.
    Cores,
}

impl Unit {
    /// `value` as people write it.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::FramesPerSecond => format!("{:.3} Mpps", value / 1e6),
            Self::BitsPerSecond => format!("{:.2} Gbit/s", value / 1e9),
            Self::Microseconds => format!("{value:.2} us"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Frames => format!("{value:.0} frames"),
            Self::Megabytes => format!("{value:.1} MB"),
            Self::Fraction => format!("{:.1} %", value * 100.0),
            Self::Addresses => format!("{value:.0} addresses"),
            Self::AddressesPerSecond => format!("{value:.0} addresses/s"),
            Self::Cores => format!("{value:.2} cores"),
        }
    }

    /// Its name on an axis or in a heading, and what a figure is divided by to be written in it.
    #[must_use]
    pub const fn scale(self) -> (&'static str, f64) {
        match self {
            Self::FramesPerSecond => ("Mpps", 1e6),
            Self::BitsPerSecond => ("Gbit/s", 1e9),
            Self::Microseconds => ("us", 1.0),
            Self::Milliseconds => ("ms", 1.0),
            Self::Frames => ("frames", 1.0),
            Self::Megabytes => ("MB", 1.0),
            Self::Fraction => ("%", 0.01),
            Self::Addresses => ("addresses", 1.0),
            Self::AddressesPerSecond => ("addresses/s", 1.0),
            Self::Cores => ("cores", 1.0),
        }
    }
}

/// What a row is held against.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", content = "bound", rename_all = "snake_case")]
pub enum Target {
    /// Nothing: it is there to be read.
    None,
    /// Median ratio of the first to the second at least this.
    RatioAtLeast(f64),
    /// Median ratio of the first to the second below this.
    RatioBelow(f64),
    /// Median of the first at least this.
    AtLeast(f64),
    /// The first at most this, in every round.
    NeverOver(f64),
    /// Median of the first below this.
    Below(f64),
}

/// Pass, miss, or no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The target is met.
    Pass,
    /// It is not.
    Miss,
    /// There is none, or nothing was measured.
    None,
}

impl Target {
    /// Holds a row's figures against it.
    #[must_use]
    pub fn verdict(self, first: Option<Spread>, ratio: Option<Spread>) -> Verdict {
        let met = match (self, first, ratio) {
            (Self::RatioAtLeast(bound), _, Some(ratio)) => ratio.median >= bound,
            (Self::RatioBelow(bound), _, Some(ratio)) => ratio.median < bound,
            (Self::AtLeast(bound), Some(first), _) => first.median >= bound,
            (Self::NeverOver(bound), Some(first), _) => first.max <= bound,
            (Self::Below(bound), Some(first), _) => first.median < bound,
            _ => return Verdict::None,
        };
        if met { Verdict::Pass } else { Verdict::Miss }
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

/// One side of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmResult {
    /// Which device, and what is special about it here.
    pub label: String,
    /// What the device said about itself.
    pub detail: String,
    /// One figure a round.
    pub rounds: Vec<f64>,
    /// Their spread.
    pub spread: Option<Spread>,
}

/// One row of the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// Its name on the command line.
    pub id: String,
    /// What it is.
    pub title: String,
    /// The unit of its figures.
    pub unit: Unit,
    /// One or two sides.
    pub arms: Vec<ArmResult>,
    /// First to second, round by round.
    pub ratio: Option<Spread>,
    /// What it is held against.
    pub target: Target,
    /// How that went.
    pub verdict: Verdict,
    /// Why its figures are less than what was asked for, if they are.
    pub caveat: Option<String>,
    /// Why it was not measured, or not to the end.
    pub skipped: Option<String>,
    /// True when it was begun and something broke.
    pub broken: bool,
}

/// Everything a run found; `results::Results` adds where it was.
#[derive(Debug, Clone)]
pub struct Report {
    /// Rounds asked for.
    pub rounds: usize,
    /// Length of one measurement in milliseconds.
    pub window_ms: u64,
    /// The rows.
    pub rows: Vec<RowResult>,
}

impl Report {
    /// In the form of all reports, found by `lanyard bench COMMAND`.
    #[must_use]
    pub fn results(&self, command: &str) -> Results {
        let mut results = Results::from(self);
        results.bench = command.to_owned();
        results
    }

    /// The table: Markdown, aligned for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        Self::table_of(&self.rows)
    }

    /// The table of some rows.
    #[must_use]
    pub fn table_of(rows: &[RowResult]) -> String {
        let header =
            ["Row", "What", "First", "Second", "Ratio", "min-max", "Target", ""].map(str::to_owned).to_vec();
        let mut lines = vec![header];
        lines.extend(rows.iter().map(table_line));
        let mut text = align(&lines);
        for row in rows {
            if let Some(why) = &row.caveat {
                let _ = writeln!(text, "{}: {why}", row.id);
            }
            if let Some(why) = &row.skipped {
                let _ =
                    writeln!(text, "{}: {}: {why}", row.id, if row.broken { "broken" } else { "skipped" });
            }
        }
        text
    }

    /// True when a row was begun and could not be finished.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.rows.iter().any(|row| row.broken)
    }

    /// True when a row has missed its target.
    #[must_use]
    pub fn missed(&self) -> bool {
        self.rows.iter().any(|row| row.verdict == Verdict::Miss)
    }
}

fn table_line(row: &RowResult) -> Vec<String> {
    let arm = |n: usize| match row.arms.get(n) {
        Some(ArmResult { label, spread: Some(spread), .. }) => {
            format!("{label} {}", row.unit.show(spread.median))
        }
        Some(ArmResult { label, .. }) => label.clone(),
        None => String::new(),
    };
    let (middle, range) = match (row.ratio, row.arms.first().and_then(|a| a.spread)) {
        (Some(r), _) => (format!("{:.2} x", r.median), format!("{:.2}-{:.2}", r.min, r.max)),
        (None, Some(s)) => (String::new(), format!("{}-{}", row.unit.show(s.min), row.unit.show(s.max))),
        (None, None) => Default::default(),
    };
    let verdict = match (row.verdict, &row.skipped) {
        (_, Some(_)) if row.broken => "BROKEN",
        (_, Some(_)) => "skipped",
        (Verdict::Pass, _) => "pass",
        (Verdict::Miss, _) => "MISS",
        (Verdict::None, _) => "",
    };
    let target = row.target.show(row.unit);
    vec![row.id.clone(), row.title.clone(), arm(0), arm(1), middle, range, target, verdict.to_owned()]
}

/// Lines of cells as a Markdown table whose columns line up; the first line is the header.
#[must_use]
pub fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |c: usize| lines.iter().filter_map(|l| l.get(c)).map(|s| s.chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (column, width) in widths.iter().enumerate() {
            let cell = line.get(column).map_or("", String::as_str);
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in &widths {
                let _ = write!(text, "|{:-<w$}", "", w = width + 2);
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64]) -> Option<Spread> {
        Spread::of(values)
    }

    #[test]
    fn targets() {
        let check = |target: Target, first: &[f64], ratio: &[f64], expected: Verdict| {
            assert_eq!(
                target.verdict(spread(first), spread(ratio)),
                expected,
                "{target:?} {first:?} {ratio:?}"
            );
        };
        check(Target::None, &[1.0], &[1.0], Verdict::None);
        check(Target::RatioAtLeast(1.35), &[], &[1.2, 1.35, 2.0], Verdict::Pass);
        check(Target::RatioAtLeast(1.35), &[], &[1.34], Verdict::Miss);
        check(Target::RatioAtLeast(1.35), &[9.0], &[], Verdict::None);
        check(Target::RatioBelow(1.0), &[], &[1.0], Verdict::Miss);
        check(Target::RatioBelow(1.0), &[], &[0.99], Verdict::Pass);
        check(Target::AtLeast(0.95), &[0.9, 0.96, 0.97], &[], Verdict::Pass);
        // One lost frame in one round is a frame lost: no median hides it.
        check(Target::NeverOver(0.0), &[0.0, 0.0, 1.0], &[], Verdict::Miss);
        check(Target::NeverOver(0.0), &[0.0, 0.0, 0.0], &[], Verdict::Pass);
        check(Target::Below(300.0), &[299.0, 100.0, 900.0], &[], Verdict::Pass);
    }

    #[test]
    fn a_table_lines_up() {
        let row = |id: &str, rounds: &[f64], skipped: Option<&str>| RowResult {
            id: id.to_owned(),
            title: "known unicast".to_owned(),
            unit: Unit::FramesPerSecond,
            arms: [("lanyard-tc", 2.0), ("bridge", 1.0)]
                .map(|(label, factor)| {
                    let rounds: Vec<f64> = rounds.iter().map(|r| r * factor).collect();
                    let spread = spread(&rounds);
                    ArmResult { label: label.to_owned(), detail: String::new(), rounds, spread }
                })
                .to_vec(),
            ratio: (!rounds.is_empty()).then_some(Spread { min: 2.0, median: 2.0, max: 2.0 }),
            target: Target::RatioAtLeast(1.35),
            verdict: Target::RatioAtLeast(1.35).verdict(None, spread(rounds)),
            caveat: None,
            skipped: skipped.map(str::to_owned),
            broken: false,
        };
        let report = Report {
            rounds: 1,
            window_ms: 1000,
            rows: vec![row("tc-64", &[1.5e6], None), row("other", &[], Some("no lanyard"))],
        };
        let table = report.table();
        let widths: Vec<usize> = table.lines().take(4).map(|l| l.chars().count()).collect();
        assert!(widths.iter().all(|w| *w == widths[0]), "{table}");
        for piece in ["lanyard-tc 3.000 Mpps", "bridge 1.500 Mpps", "2.00 x", ">= 1.35 x", "| pass"] {
            assert!(table.contains(piece), "{piece} in\n{table}");
        }
        assert!(table.ends_with("other: skipped: no lanyard\n"), "{table}");
        assert!(!report.missed());
    }
}
