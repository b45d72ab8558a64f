//! Results as tables for a terminal: one a test and case, a line a place on its axis, a column a device.

use super::{CONFIDENCE, Results, Series};
use crate::report::{Report, align};
use crate::stats::Estimate;
use std::fmt::Write as _;

/// Series of one test and case, in the order in which they were measured.
pub(super) fn groups(results: &Results) -> Vec<Vec<&Series>> {
    let mut groups: Vec<Vec<&Series>> = Vec::new();
    for series in &results.series {
        let same = |s: &Series| {
            (&s.key.test, &s.key.case, s.unit) == (&series.key.test, &series.key.case, series.unit)
        };
        match groups.iter_mut().find(|group| same(group[0])) {
            Some(group) => group.push(series),
            None => groups.push(vec![series]),
        }
    }
    groups
}

/// The heading of a group: test, case, clause, unit.
pub(super) fn heading(series: &Series) -> String {
    let mut text = series.key.title();
    if !series.clause.is_empty() {
        let _ = write!(text, " ({})", series.clause);
    }
    let _ = write!(text, ", {}", series.unit.scale().0);
    text
}

/// A group as cells; the first line is the header.
pub(super) fn cells(group: &[&Series]) -> Vec<Vec<String>> {
    let mut devices: Vec<&str> = Vec::new();
    let mut places: Vec<Option<(super::Axis, f64)>> = Vec::new();
    for series in group {
        if !devices.contains(&series.key.device.as_str()) {
            devices.push(&series.key.device);
        }
        if !places.contains(&series.key.at) {
            places.push(series.key.at);
        }
    }
    places.sort_by(|a, b| a.map_or(0.0, |p| p.1).total_cmp(&b.map_or(0.0, |p| p.1)));
    let axis = group.iter().find_map(|s| s.key.at).map_or("", |(axis, _)| axis.name());
    let mut lines = vec![std::iter::once(axis).chain(devices.iter().copied()).map(str::to_owned).collect()];
    for place in places {
        let mut line: Vec<String> = vec![place.map_or_else(String::new, |(axis, at)| axis.show(at))];
        for device in &devices {
            let series = group.iter().find(|s| s.key.device == *device && s.key.at == place);
            line.push(series.map_or_else(String::new, |s| figure(s)));
        }
        lines.push(line);
    }
    lines
}

/// Mean and half of the confidence interval. A `*` says that the series has a caveat.
fn figure(series: &Series) -> String {
    let Some(estimate) = Estimate::of(&series.rounds, series.resolution, CONFIDENCE) else {
        return "-".to_owned();
    };
    let (_, divisor) = series.unit.scale();
    let digits = digits(estimate.mean / divisor);
    let mark = if series.caveats.is_empty() { "" } else { "*" };
    match estimate.half_width {
        Some(half) => {
            format!("{:.digits$} ±{:.digits$}{mark}", estimate.mean / divisor, half / divisor)
        }
        None => format!("{:.digits$}{mark}", estimate.mean / divisor),
    }
}

/// Digits behind the point, so that there are three to four in all.
pub(super) fn digits(value: f64) -> usize {
    match value.abs() {
        v if v == 0.0 || v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    }
}

/// A test's device, and the places on the axis.
type About = (String, Vec<String>);

/// Caveats with what they are about, each once: `* CAVEAT (TEST: DEVICE PLACE, PLACE; ...)`.
pub(super) fn caveats(results: &Results) -> Vec<String> {
    let mut said: Vec<(&str, Vec<About>)> = Vec::new();
    for series in &results.series {
        let whom = format!("{}: {}", series.key.title(), series.key.device);
        let place = series.key.at.map_or_else(String::new, |(axis, at)| format!(" {}", axis.show(at)));
        for caveat in &series.caveats {
            let index = said.iter().position(|(text, _)| text == caveat).unwrap_or_else(|| {
                said.push((caveat, Vec::new()));
                said.len() - 1
            });
            let about = &mut said[index].1;
            match about.iter_mut().find(|(known, _)| *known == whom) {
                Some((_, places)) if places.contains(&place) => {}
                Some((_, places)) => places.push(place.clone()),
                None => about.push((whom.clone(), vec![place.clone()])),
            }
        }
    }
    let about = |(whom, places): &About| format!("{whom}{}", places.join(","));
    let line = |(text, all): &(&str, Vec<About>)| {
        format!("* {text} ({})", all.iter().map(about).collect::<Vec<_>>().join("; "))
    };
    said.iter().map(line).collect()
}

pub(super) fn table(results: &Results) -> String {
    let mut text = String::new();
    if results.rows.is_empty() {
        for group in groups(results) {
            let _ = writeln!(text, "{}\n\n{}", heading(group[0]), align(&cells(&group)));
        }
    } else {
        text.push_str(&Report::table_of(&results.rows));
        text.push('\n');
    }
    for bars in &results.bars {
        let _ = writeln!(text, "{}\n\n{}", bars.title, align(&bar_cells(bars)));
    }
    for line in caveats(results) {
        let _ = writeln!(text, "{line}");
    }
    for note in &results.notes {
        let _ = writeln!(text, "note: {note}");
    }
    for device in &results.devices {
        match &device.broken {
            Some(why) => writeln!(text, "{}: not measured to the end: {why}", device.name),
            None if device.detail.is_empty() => Ok(()),
            None => writeln!(text, "{}: {}", device.name, device.detail),
        }
        .unwrap_or_default();
    }
    if let Some(why) = &results.incomplete {
        let _ = writeln!(text, "INCOMPLETE: {why}");
    }
    text
}

/// Bars as cells: a column a bar, a line a part.
pub(super) fn bar_cells(bars: &super::Bars) -> Vec<Vec<String>> {
    let mut parts: Vec<&str> = Vec::new();
    for (name, _) in bars.bars.iter().flat_map(|bar| &bar.1) {
        if !parts.contains(&name.as_str()) {
            parts.push(name);
        }
    }
    let head = std::iter::once(String::new()).chain(bars.bars.iter().map(|bar| bar.0.clone())).collect();
    let mut lines = vec![head];
    for part in parts {
        let cell = |bar: &(String, Vec<(String, f64)>)| {
            let share = bar.1.iter().find(|(name, _)| name == part).map(|p| p.1);
            share.map_or_else(String::new, |share| format!("{:.1} %", share * 100.0))
        };
        lines.push(std::iter::once(part.to_owned()).chain(bars.bars.iter().map(cell)).collect());
    }
    lines
}
