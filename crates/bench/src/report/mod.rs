//! The results of every bench command, in the one form from which all reports are made: table, JSON, CSV, page,
//! comparison.
//!
//! A figure has a key (test, case, device, place on an axis) and one value per round. Invariant: measured values are
//! stored unchanged; means and intervals are computed when they are shown. Two files can be compared where they have
//! the same keys.

pub mod compare;
mod csv;
mod environment;
mod page;
mod plot;
mod row;
pub mod statistics;
mod table;
mod unit;

pub use environment::Environment;
pub use lanyard_types::text::markdown;
pub use row::{Arm, Figures, Row, Target, Verdict};
pub use unit::Unit;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The format of the JSON files and its version: the value of their first field.
pub const FORMAT: &str = "lanyard-bench/2";

/// The confidence of the intervals in tables and plots.
pub const CONFIDENCE: f64 = 0.95;

/// The quantity along which the points of one curve differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Bytes of a frame, FCS included.
    FrameBytes,
    /// Offered load as a part of the test's reference load.
    Load,
    /// The number of hosts between which frames go.
    Hosts,
    /// The time of a query to a switch chip, in microseconds.
    QueryUs,
}

impl Axis {
    /// The axis's name in headings and on plots.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FrameBytes => "frame size",
            Self::Load => "offered load",
            Self::Hosts => "hosts",
            Self::QueryUs => "latency of a query",
        }
    }

    /// A place on the axis, as shown to readers.
    #[must_use]
    pub fn show(self, at: f64) -> String {
        match self {
            Self::FrameBytes => format!("{at} B"),
            Self::Load => format!("{:.0} %", at * 100.0),
            Self::Hosts => format!("{at} hosts"),
            Self::QueryUs => format!("{at} us"),
        }
    }
}

/// Whether a high or a low figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither is better.
    Neither,
}

/// The quantity of a series, its place and its device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Key {
    /// The test: `throughput`.
    pub test: String,
    /// The label that distinguishes one table of the test from another: `routed`, `64 B`. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub case: String,
    /// The device under test.
    pub device: String,
    /// The place of this figure on the test's axis, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<(Axis, f64)>,
}

impl Key {
    /// The key of a figure without an axis.
    #[must_use]
    pub fn new(test: &str, case: &str, device: &str) -> Self {
        Self { test: test.to_owned(), case: case.to_owned(), device: device.to_owned(), at: None }
    }

    /// The same key at a place on an axis.
    #[must_use]
    pub fn at(self, axis: Axis, at: f64) -> Self {
        Self { at: Some((axis, at)), ..self }
    }

    /// Test and case, the heading of the table this figure is in.
    #[must_use]
    pub fn title(&self) -> String {
        match self.case.is_empty() {
            true => self.test.clone(),
            false => format!("{}, {}", self.test, self.case),
        }
    }
}

/// One figure, measured in each round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The key that identifies it.
    #[serde(flatten)]
    pub key: Key,
    /// The clause that defines the figure: `RFC 2544, 26.1`. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub clause: String,
    /// Unit of the figures.
    pub unit: Unit,
    /// Whether higher or lower figures are better.
    pub better: Better,
    /// One figure per round.
    pub rounds: Vec<f64>,
    /// The precision of the figures, in their unit: the step of a search. Noise shows in the rounds.
    #[serde(default)]
    pub resolution: f64,
    /// Remarks that the reader needs to judge these figures, without repetitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caveats: Vec<String>,
}

/// A distribution: the number of samples in each range of values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// The key that identifies it.
    #[serde(flatten)]
    pub key: Key,
    /// Unit of the values.
    pub unit: Unit,
    /// The upper end of a bucket and the samples in it; ascending, empty ones left out.
    pub buckets: Vec<(f64, u64)>,
}

impl Series {
    /// A series without rounds yet; its figures are exact.
    #[must_use]
    pub fn new(key: Key, clause: &str, unit: Unit, better: Better) -> Self {
        let (clause, rounds, caveats) = (clause.to_owned(), Vec::new(), Vec::new());
        Self { key, clause, unit, better, rounds, resolution: 0.0, caveats }
    }
}

impl Distribution {
    /// The value that a part `p` (0..=1) of the samples does not exceed; `None` without samples.
    #[must_use]
    pub fn quantile(&self, p: f64) -> Option<f64> {
        let all: u64 = self.buckets.iter().map(|b| b.1).sum();
        let wanted = ((all as f64 * p).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets.iter().find_map(|(upper, count)| {
            seen += count;
            (seen >= wanted).then_some(*upper)
        })
    }
}

/// Parts of a whole, one bar per label: for example the parts of a frame's processor time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// The heading above the bars.
    pub title: String,
    /// The bars: a label, and the parts by name, 0..=1. Parts of one name have one colour.
    pub bars: Vec<(String, Vec<(String, f64)>)>,
}

/// A device of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceNote {
    /// Its name.
    pub name: String,
    /// Its description of itself: version, hook in use.
    #[serde(default)]
    pub detail: String,
    /// The reason why it was not measured, or not to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// The results of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: String,
    /// The subcommand that produced them: `rfc2544`.
    pub bench: String,
    /// The machine and the time of the run.
    pub environment: Environment,
    /// The parameters of the run, defaults included.
    pub parameters: BTreeMap<String, String>,
    /// The devices under test.
    pub devices: Vec<DeviceNote>,
    /// The figures, in the order in which they were first measured.
    pub series: Vec<Series>,
    /// The distributions of latency.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distributions: Vec<Distribution>,
    /// The shares of processor time or of instructions, by part or function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bars: Vec<Bars>,
    /// Rows that hold series against targets: `lanyard bench forward`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
    /// Remarks for the reader: figures that were not measured and why, figures that the bed makes
    /// meaningless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The reason why the run ended before everything was measured; `None` for a complete run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
}

impl Results {
    /// Empty results of a run that begins now on this machine.
    #[must_use]
    pub fn new(bench: &str) -> Self {
        Self {
            format: FORMAT.to_owned(),
            bench: bench.to_owned(),
            environment: Environment::here(),
            parameters: BTreeMap::new(),
            devices: Vec::new(),
            series: Vec::new(),
            distributions: Vec::new(),
            bars: Vec::new(),
            rows: Vec::new(),
            notes: Vec::new(),
            incomplete: None,
        }
    }

    /// Records a parameter of the run.
    pub fn parameter(&mut self, name: &str, value: impl std::fmt::Display) {
        self.parameters.insert(name.to_owned(), value.to_string());
    }

    /// Adds a remark, unless the results already have it.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// The series of `key`, made with `like` when it is new.
    pub fn series_mut(&mut self, key: Key, like: impl FnOnce(Key) -> Series) -> &mut Series {
        let at = self.series.iter().position(|s| s.key == key).unwrap_or_else(|| {
            self.series.push(like(key));
            self.series.len() - 1
        });
        &mut self.series[at]
    }

    /// Adds samples to the distribution of `key`.
    pub fn add_samples(&mut self, key: Key, unit: Unit, samples: impl Iterator<Item = (f64, u64)>) {
        let at = self.distributions.iter().position(|d| d.key == key).unwrap_or_else(|| {
            self.distributions.push(Distribution { key, unit, buckets: Vec::new() });
            self.distributions.len() - 1
        });
        let buckets = &mut self.distributions[at].buckets;
        for (value, count) in samples {
            match buckets.binary_search_by(|bucket| bucket.0.total_cmp(&value)) {
                Ok(found) => buckets[found].1 += count,
                Err(place) => buckets.insert(place, (value, count)),
            }
        }
    }

    /// The first series of `key`.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Series> {
        self.series.iter().find(|s| s.key == *key)
    }

    /// True when a device or a row broke, or the run ended early.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.incomplete.is_some()
            || self.devices.iter().any(|device| device.broken.is_some())
            || self.rows.iter().any(|row| row.broken)
    }

    /// The exit code of a command that holds rows against targets: 1 when one misses its target or broke.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        if self.missed() || self.broken() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    /// Reads a file that [`Results::save`] wrote.
    ///
    /// # Errors
    /// When it cannot be read, or is something else; the error names the file.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        let value: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("{}: not JSON", path.display()))?;
        match value.get("format").and_then(|format| format.as_str()) {
            Some(FORMAT) => {}
            Some(other) => bail!("{}: format {other}, not {FORMAT}", path.display()),
            None => bail!("{}: not a result of lanyard bench (no `format`)", path.display()),
        }
        let results: Self = serde_json::from_value(value).with_context(|| format!("{}", path.display()))?;
        let finite = results.series.iter().flat_map(|s| &s.rounds).all(|v| v.is_finite());
        ensure!(finite, "{}: a figure that is not a number", path.display());
        Ok(results)
    }

    /// The results as JSON.
    ///
    /// # Errors
    /// When a figure is not a number.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The results as CSV: one line per figure and round.
    ///
    /// # Errors
    /// When a figure cannot be written.
    pub fn csv(&self) -> Result<String> {
        Ok(csv::csv(self)?)
    }

    /// The results as tables for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        table::table(self)
    }

    /// The results as one self-contained HTML page.
    #[must_use]
    pub fn page(&self) -> String {
        page::page(self)
    }
}

/// Where a run's reports go besides the terminal.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Outputs {
    /// Write every figure of every round, and the environment, to FILE; `bench compare` reads it
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub json: Option<PathBuf>,
    /// Write one line a figure and round to FILE
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub csv: Option<PathBuf>,
    /// Write one self-contained page with tables and plots to FILE
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub html: Option<PathBuf>,
}

impl Outputs {
    /// Checks that all files can be written, before anything is measured.
    ///
    /// # Errors
    /// For a file that cannot be made; the error names it.
    pub fn check(&self) -> Result<()> {
        for path in [&self.json, &self.csv, &self.html].into_iter().flatten() {
            let name = || format!("cannot write {}", path.display());
            let new = !path.exists();
            std::fs::OpenOptions::new().append(true).create(true).open(path).with_context(name)?;
            if new {
                std::fs::remove_file(path).with_context(name)?;
            }
        }
        Ok(())
    }

    /// Writes the results so far. Called repeatedly during a run, so that an interrupted run leaves its
    /// results.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, results: &Results) -> Result<()> {
        if let Some(path) = &self.json {
            write(path, &results.json()?)?;
        }
        if let Some(path) = &self.csv {
            write(path, &results.csv()?)?;
        }
        if let Some(path) = &self.html {
            write(path, &results.page())?;
        }
        Ok(())
    }
}

/// Replaces a regular file as a whole, so that no reader sees half of it; writes into anything else
/// (`/dev/stdout`).
fn write(path: &Path, text: &str) -> Result<()> {
    let name = || format!("cannot write {}", path.display());
    let special = std::fs::metadata(path).is_ok_and(|m| !m.is_file());
    if special {
        return std::fs::write(path, text).with_context(name);
    }
    let mut file = tempfile::NamedTempFile::new_in(directory(path)).with_context(name)?;
    file.write_all(text.as_bytes()).with_context(name)?;
    // A temporary file is readable only by its owner; give the report the usual mode.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).with_context(name)?;
    file.persist(path).with_context(name)?;
    Ok(())
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
