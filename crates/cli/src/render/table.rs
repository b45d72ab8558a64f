//! Text helpers for several tables.

pub use lanyard_types::text::columns;

/// Joins `items` with `, ` to lines of at most `width` bytes; an item that is longer is a line of its own. A line does not end in
/// a comma.
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

/// A duration in IOS's form: `2 days, 3 hours, 4 minutes`.
pub fn duration(seconds: u64) -> String {
    let units = [(seconds / 86_400, "day"), (seconds / 3600 % 24, "hour"), (seconds / 60 % 60, "minute")];
    let part = |(n, unit): &(u64, &str)| format!("{n} {unit}{}", if *n == 1 { "" } else { "s" });
    let parts: Vec<String> = units.iter().filter(|(n, _)| *n > 0).map(part).collect();
    if parts.is_empty() { part(&(seconds, "second")) } else { parts.join(", ") }
}

/// IOS's words for a flag.
pub const fn enabled(on: bool) -> &'static str {
    if on { "Enabled" } else { "Disabled" }
}
