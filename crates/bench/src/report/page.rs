//! Results as one HTML page: head, a plot and a table a test, distributions, bars, environment. It loads nothing.

use super::plot::{self, escape};
use super::{Distribution, Results, table};
use std::fmt::Write as _;

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
.clause { font-weight: normal; opacity: .65; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6rem 0 1rem; }
th, td { padding: .18rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; display: block; }
.warning { border-left: 4px solid #d55e00; padding: .3rem .9rem; margin: 1rem 0; }
.pass { color: #009e73; } .miss { color: #d55e00; font-weight: bold; }
dt { float: left; clear: left; width: 9rem; opacity: .65; } dd { margin-left: 9.5rem; overflow-wrap: anywhere; }
";

pub(super) fn page(results: &Results) -> String {
    let title = format!("lanyard bench {}", results.bench);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{0}</title>\n<style>{STYLE}</style></head>\n<body>\n<h1>{0}</h1>\n",
        escape(&title)
    );
    head(&mut html, results);
    for group in table::groups(results) {
        let series = group[0];
        let clause = match series.clause.is_empty() {
            true => String::new(),
            false => format!(" <span class=\"clause\">{}</span>", escape(&series.clause)),
        };
        let _ = writeln!(html, "<h2>{}{clause}</h2>", escape(&series.key.title()));
        html.push_str(&plot::curves(&group).unwrap_or_default());
        html.push_str(&html_table(&table::cells(&group)));
    }
    for group in distribution_groups(results) {
        let at = group[0].key.at.map_or_else(String::new, |(axis, at)| format!(", {}", axis.show(at)));
        let _ = writeln!(html, "<h2>{}{at}: distribution</h2>", escape(&group[0].key.title()));
        html.push_str(&plot::distributions(&group).unwrap_or_default());
        html.push_str(&quantiles(&group));
    }
    for bars in &results.bars {
        let _ = writeln!(html, "<h2>{}</h2>", escape(&bars.title));
        html.push_str(&plot::bars(bars));
        html.push_str(&html_table(&table::bar_cells(bars)));
    }
    rows(&mut html, results);
    foot(&mut html, results);
    html.push_str("</body>\n</html>\n");
    html
}

/// What a reader must see before any figure.
fn head(html: &mut String, results: &Results) {
    let environment = &results.environment;
    let _ = writeln!(
        html,
        "<p>{}; Linux {}; {} ({} cores). Figures are means over the rounds, ± half of a {:.0} % confidence interval.</p>",
        escape(&environment.began),
        escape(&environment.kernel),
        escape(&environment.cpu),
        environment.cores,
        super::CONFIDENCE * 100.0
    );
    if let Some(why) = &results.incomplete {
        let _ = writeln!(html, "<p class=\"warning\"><b>Incomplete:</b> {}</p>", escape(why));
    }
    for device in results.devices.iter().filter(|d| d.broken.is_some()) {
        let why = device.broken.as_deref().unwrap_or_default();
        let _ = writeln!(html, "<p class=\"warning\"><b>{}:</b> {}</p>", escape(&device.name), escape(why));
    }
}

fn foot(html: &mut String, results: &Results) {
    let caveats = table::caveats(results);
    if !(results.notes.is_empty() && caveats.is_empty()) {
        html.push_str("<h2>Notes</h2>\n<ul>\n");
        for note in results.notes.iter().chain(&caveats) {
            let _ = writeln!(html, "<li>{}</li>", escape(note));
        }
        html.push_str("</ul>\n");
    }
    html.push_str("<h2>Environment</h2>\n<dl>\n");
    let devices = results.devices.iter().map(|d| (d.name.as_str(), d.detail.clone()));
    let parameters = results.parameters.iter().map(|(name, value)| (name.as_str(), value.clone()));
    for (name, value) in results.environment.lines().into_iter().chain(devices).chain(parameters) {
        let _ = writeln!(html, "<dt>{}</dt><dd>{}&nbsp;</dd>", escape(name), escape(&value));
    }
    html.push_str("</dl>\n");
}

/// Rows with targets, as their own table.
fn rows(html: &mut String, results: &Results) {
    if results.rows.is_empty() {
        return;
    }
    html.push_str("<h2>Targets</h2>\n");
    let text = crate::report::Report::table_of(&results.rows);
    let lines = text.lines().filter(|line| line.starts_with('|') && !line.starts_with("|-"));
    let cells: Vec<Vec<String>> = lines
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    html.push_str(&html_table(&cells));
    for line in text.lines().filter(|line| !line.starts_with('|')) {
        let _ = writeln!(html, "<p>{}</p>", escape(line));
    }
}

fn html_table(cells: &[Vec<String>]) -> String {
    let mut html = String::from("<table>\n");
    for (number, line) in cells.iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        html.push_str("<tr>");
        for cell in line {
            let class = match cell.as_str() {
                "pass" => " class=\"pass\"",
                "MISS" | "BROKEN" => " class=\"miss\"",
                _ => "",
            };
            let _ = write!(html, "<{tag}{class}>{}</{tag}>", escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    html
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

fn quantiles(group: &[&Distribution]) -> String {
    const PARTS: [(&str, f64); 5] =
        [("50 %", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999), ("largest", 1.0)];
    let (unit, divisor) = group[0].unit.scale();
    let mut cells = vec![vec![format!("at most, {unit}")]];
    cells[0].extend(group.iter().map(|d| d.key.device.clone()));
    for (name, part) in PARTS {
        let value = |d: &&Distribution| {
            d.quantile(part)
                .map_or_else(String::new, |v| format!("{:.*}", table::digits(v / divisor), v / divisor))
        };
        cells.push(std::iter::once(name.to_owned()).chain(group.iter().map(value)).collect());
    }
    html_table(&cells)
}
