//! Columns of text.

/// Lines in columns: every column as wide as its widest cell, two blanks between, no blanks at the end of a line.
/// Columns whose place is in `right` are set flush right.
pub fn columns(head: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows);
    let width =
        |at: usize| all().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    for row in all() {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let width = *width;
            if at > 0 {
                line.push_str("  ");
            }
            let cell =
                if right.contains(&at) { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            line.push_str(&cell);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Breaks a list at ", " (or after a comma) so that no line is wider than `width`.
pub fn wrap(items: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut().filter(|line| line.len() + 2 + item.len() <= width) {
            Some(line) => {
                line.push_str(", ");
                line.push_str(item);
            }
            None => lines.push(item.clone()),
        }
    }
    lines
}

/// A duration as IOS writes it: `2 days, 3 hours, 4 minutes`.
pub fn duration(seconds: u64) -> String {
    let units = [(seconds / 86_400, "day"), (seconds / 3600 % 24, "hour"), (seconds / 60 % 60, "minute")];
    let part = |(n, unit): &(u64, &str)| format!("{n} {unit}{}", if *n == 1 { "" } else { "s" });
    let parts: Vec<String> = units.iter().filter(|(n, _)| *n > 0).map(part).collect();
    if parts.is_empty() { part(&(seconds, "second")) } else { parts.join(", ") }
}

/// `yes`/`no` words of IOS.
pub const fn enabled(on: bool) -> &'static str {
    if on { "Enabled" } else { "Disabled" }
}
