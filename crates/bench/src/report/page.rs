//! Results as one HTML page: head, a plot and a table per test, distributions, bars, environment. The page loads
//! nothing from elsewhere.

use super::{Axis, CONFIDENCE, Distribution, Results, Series, plot, row, table, unit};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
.clause { font-weight: normal; opacity: .65; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6rem 0 1rem; }
th, td { padding: .18rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; display: block; background: white; border-radius: 4px; }
.warning { border-left: 4px solid #d55e00; padding: .3rem .9rem; margin: 1rem 0; }
.pass { color: #009e73; } .miss { color: #d55e00; font-weight: bold; }
dt { float: left; clear: left; width: 9rem; opacity: .65; } dd { margin-left: 9.5rem; overflow-wrap: anywhere; }
";

pub(super) fn page(results: &Results) -> String {
    let title = format!("lanyard bench {}", results.bench);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                (head(results))
                @for group in table::groups(results) { (series(&group)) }
                @for group in distribution_groups(results) { (distribution(&group)) }
                @for bars in &results.bars {
                    h2 { (bars.title) }
                    (picture(plot::bars(bars)))
                    (cells_table(&table::bar_cells(bars)))
                }
                (rows(results))
                (foot(results))
            }
        }
    }
    .into_string()
}

/// The part of the page that comes before any figure.
fn head(results: &Results) -> Markup {
    let environment = &results.environment;
    html! {
        p {
            (environment.began) "; Linux " (environment.kernel) "; " (environment.cpu) " (" (environment.cores)
            " cores). Figures are means over the rounds, ± half of a " (format!("{:.0}", CONFIDENCE * 100.0))
            " % confidence interval."
        }
        @if let Some(why) = &results.incomplete {
            p.warning { b { "Incomplete:" } " " (why) }
        }
        @for (device, why) in results.devices.iter().filter_map(|d| Some((d, d.broken.as_ref()?))) {
            p.warning { b { (device.name) ":" } " " (why) }
        }
    }
}

fn series(group: &[&Series]) -> Markup {
    let Some(first) = group.first() else { return html! {} };
    html! {
        h2 {
            (first.key.title())
            @if !first.clause.is_empty() { " " span.clause { (first.clause) } }
        }
        (picture(plot::curves(group)))
        (cells_table(&table::cells(group)))
    }
}

fn distribution(group: &[&Distribution]) -> Markup {
    let Some(first) = group.first() else { return html! {} };
    let at = first.key.at.map_or_else(String::new, |(axis, at): (Axis, f64)| format!(", {}", axis.show(at)));
    html! {
        h2 { (first.key.title()) (at) ": distribution" }
        (picture(plot::distributions(group)))
        (quantiles(group))
    }
}

/// A plot, or the reason why there is none: a page without a plot still has its table.
fn picture(plot: Result<Option<String>, plot::Error>) -> Markup {
    match plot {
        Ok(Some(svg)) => PreEscaped(svg),
        Ok(None) => html! {},
        Err(why) => html! { p.warning { "This plot could not be drawn: " (why.to_string()) } },
    }
}

/// Rows with targets, as a table of their own.
fn rows(results: &Results) -> Markup {
    if results.rows.is_empty() {
        return html! {};
    }
    let cells: Vec<Vec<String>> =
        std::iter::once(row::header()).chain(results.rows.iter().map(|row| row.cells(results))).collect();
    html! {
        h2 { "Targets" }
        (cells_table(&cells))
        @for remark in results.rows.iter().flat_map(|row| row.remarks(results)) { p { (remark) } }
        @for line in row::preparations(results) { p { (line) } }
    }
}

fn foot(results: &Results) -> Markup {
    let caveats = [table::unmeasurable(results), table::caveats(results)].concat();
    let devices = results.devices.iter().map(|d| (d.name.as_str(), d.detail.clone()));
    let parameters = results.parameters.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let environment = results.environment.lines().into_iter().chain(devices).chain(parameters);
    html! {
        @if !(results.notes.is_empty() && caveats.is_empty()) {
            h2 { "Notes" }
            ul { @for note in results.notes.iter().chain(&caveats) { li { (note) } } }
        }
        h2 { "Environment" }
        dl { @for (name, value) in environment { dt { (name) } dd { (value) (PreEscaped("&nbsp;")) } } }
    }
}

fn cells_table(cells: &[Vec<String>]) -> Markup {
    let class = |cell: &str| match cell {
        "pass" => Some("pass"),
        "MISS" | "BROKEN" => Some("miss"),
        _ => None,
    };
    html! {
        table {
            @for (number, line) in cells.iter().enumerate() {
                tr {
                    @for cell in line {
                        @if number == 0 { th { (cell) } } @else { td class=[class(cell)] { (cell) } }
                    }
                }
            }
        }
    }
}

fn distribution_groups(results: &Results) -> Vec<Vec<&Distribution>> {
    let mut groups: Vec<Vec<&Distribution>> = Vec::new();
    for one in &results.distributions {
        let same = |d: &Distribution| {
            (&d.key.test, &d.key.case, d.key.at, d.unit)
                == (&one.key.test, &one.key.case, one.key.at, one.unit)
        };
        match groups.iter_mut().find(|group| same(group[0])) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

fn quantiles(group: &[&Distribution]) -> Markup {
    const PARTS: [(&str, f64); 5] =
        [("50 %", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999), ("largest", 1.0)];
    let (name, divisor) = group[0].unit.scale();
    let mut cells = vec![vec![format!("at most, {name}")]];
    cells[0].extend(group.iter().map(|d| d.key.device.clone()));
    for (name, part) in PARTS {
        let value = |d: &&Distribution| {
            d.quantile(part)
                .map_or_else(String::new, |v| format!("{:.*}", unit::digits(v / divisor), v / divisor))
        };
        cells.push(std::iter::once(name.to_owned()).chain(group.iter().map(value)).collect());
    }
    cells_table(&cells)
}
