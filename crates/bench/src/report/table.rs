//! Results as tables for a terminal: one table per test and case, with a row for each place on its axis and a
//! column for each device.

use super::row::{self, NOT_MEASURABLE};
use super::statistics::Estimate;
use super::unit::digits;
use super::{CONFIDENCE, Results, Series, markdown};
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

/// True if a row shows the series and its remarks, so that it needs no table.
fn held_by_row(results: &Results, series: &Series) -> bool {
    results.rows.iter().any(|row| row.arms.contains(&series.key))
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

/// Mean and half of the confidence interval; no digits where the interval is wider than the mean. A `*` marks a series
/// with a caveat.
fn figure(series: &Series) -> String {
    let Some(estimate) = Estimate::of(&series.rounds, series.resolution, CONFIDENCE) else {
        return "-".to_owned();
    };
    let mark = if series.caveats.is_empty() { "" } else { "*" };
    if estimate.is_wider_than_itself() {
        return format!("{NOT_MEASURABLE}{mark}");
    }
    let (_, divisor) = series.unit.scale();
    let digits = digits(estimate.mean / divisor);
    match estimate.half_width {
        Some(half) => {
            format!("{:.digits$} ±{:.digits$}{mark}", estimate.mean / divisor, half / divisor)
        }
        None => format!("{:.digits$}{mark}", estimate.mean / divisor),
    }
}

/// The figures that the table replaces by [`NOT_MEASURABLE`], with their intervals. The reason is shown in the
/// report.
pub(super) fn unmeasurable(results: &Results) -> Vec<String> {
    let line = |series: &Series| {
        let estimate = Estimate::of(&series.rounds, series.resolution, CONFIDENCE)?;
        let half = estimate.half_width.filter(|_| estimate.is_wider_than_itself())?;
        let at = series.key.at.map_or_else(String::new, |(axis, at)| format!(" {}", axis.show(at)));
        let (title, device, unit) = (series.key.title(), &series.key.device, series.unit);
        Some(format!(
            "{title}: {device}{at}: {NOT_MEASURABLE}: {} rounds scatter by ±{} around {}",
            series.rounds.len(),
            unit.show(half),
            unit.show(estimate.mean)
        ))
    };
    results.series.iter().filter(|series| !held_by_row(results, series)).filter_map(line).collect()
}

/// A device of a test, and the places on the axis to which a caveat applies.
type About = (String, Vec<String>);

/// Each caveat once, with the figures to which it applies: `* CAVEAT (TEST: DEVICE PLACE, PLACE; ...)`.
pub(super) fn caveats(results: &Results) -> Vec<String> {
    let mut printed: Vec<(&str, Vec<About>)> = Vec::new();
    for series in results.series.iter().filter(|series| !held_by_row(results, series)) {
        let whom = format!("{}: {}", series.key.title(), series.key.device);
        let place = series.key.at.map_or_else(String::new, |(axis, at)| format!(" {}", axis.show(at)));
        for caveat in &series.caveats {
            let index = printed.iter().position(|(text, _)| text == caveat).unwrap_or_else(|| {
                printed.push((caveat, Vec::new()));
                printed.len() - 1
            });
            let about = &mut printed[index].1;
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
    printed.iter().map(line).collect()
}

pub(super) fn table(results: &Results) -> String {
    let mut text = String::new();
    // A group gets no table if rows show all of its series.
    let is_shown = |group: &[&Series]| group.iter().any(|series| !held_by_row(results, series));
    for group in groups(results).iter().filter(|group| is_shown(group)) {
        let _ = writeln!(text, "{}\n\n{}", heading(group[0]), markdown(&cells(group)));
    }
    if !results.rows.is_empty() {
        let lines = std::iter::once(row::header()).chain(results.rows.iter().map(|row| row.cells(results)));
        text.push_str(&markdown(&lines.collect::<Vec<_>>()));
        for remark in results.rows.iter().flat_map(|row| row.remarks(results)) {
            let _ = writeln!(text, "{remark}");
        }
        for line in row::preparations(results) {
            let _ = writeln!(text, "{line}");
        }
        text.push('\n');
    }
    for line in unmeasurable(results) {
        let _ = writeln!(text, "{line}");
    }
    for bars in &results.bars {
        let _ = writeln!(text, "{}\n\n{}", bars.title, markdown(&bar_cells(bars)));
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

/// Bars as cells: a column for each bar, a row for each part.
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
