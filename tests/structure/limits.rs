//! docs/limits.md against the code: the first number of a row is the value of the constant in the row's last column.

use crate::read;

/// The rows of the page that name a constant: the size, the constant's name, what is subtracted from it, and its file.
fn rows(page: &str) -> Vec<(u64, String, u64, String)> {
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').rsplit(" | ");
        let (name, file) = cells.next()?.trim().split_once(" in `")?;
        let (name, less) = name.split_once(" - ").unwrap_or((name, "0"));
        let size = line.split(" | ").nth(1)?;
        let named = |text: &str| text.trim_matches(['`', ' ']).to_owned();
        Some((number(size)?, named(name), less.parse().ok()?, named(file)))
    };
    page.lines().filter(|line| line.starts_with("| ")).filter_map(row).collect()
}

/// A number with separators of thousands.
fn number(text: &str) -> Option<u64> {
    text.replace([',', '_'], "").trim().parse().ok()
}

/// The value of a constant expression of numbers, `<<` and `*`; of a list the last value.
fn value(expression: &str) -> Option<u64> {
    let last = expression.trim().trim_end_matches(']').rsplit([',', '[']).next()?;
    if let Some((left, right)) = last.split_once("<<") {
        return Some(number(left)? << number(right)?);
    }
    last.split('*').map(number).product()
}

/// The value of a name in a file: a constant, a macro of C, the highest number of an index, or a field of a table of limits.
fn defined(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix(&format!("#define {name} ")) {
            return value(rest.split("/*").next()?);
        }
        if let Some(rest) = line.strip_prefix(&format!("{name}(")) {
            return number(rest.split("..=").nth(1)?);
        }
        if let Some(rest) = line.split_once(&format!("const {name}: ")) {
            return value(rest.1.split_once(" = ")?.1.split(';').next()?);
        }
        let rest = line.strip_prefix("Self { ").and_then(|fields| fields.strip_suffix(" }"))?;
        rest.split(", ").find_map(|field| value(field.strip_prefix(&format!("{name}: "))?))
    })
}

#[test]
fn the_limits_of_the_page_are_those_of_the_code() {
    let rows = rows(&read("docs/limits.md"));
    assert!(rows.len() > 60, "only {} rows name a constant", rows.len());
    for (size, name, less, file) in rows {
        let found =
            defined(&read(&file), &name).unwrap_or_else(|| panic!("docs/limits.md: {name} is not in {file}"));
        assert_eq!(size, found - less, "docs/limits.md: {name} in {file}");
    }
}
