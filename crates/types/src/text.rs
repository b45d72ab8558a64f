//! Formats tables as text, with columns as wide as their widest cell.

use std::fmt::Write as _;

/// The width of each of the first `count` columns, in characters.
fn widths(lines: &[Vec<String>], count: usize) -> Vec<usize> {
    let width =
        |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max();
    (0..count).map(|at| width(at).unwrap_or(0)).collect()
}

/// Formats lines in columns with two blanks between them and no blanks at the end of a line. `head` is the first line
/// and gives the number of columns. Columns whose index is in `right` are aligned to the right.
#[must_use]
pub fn columns(head: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let head = head.iter().map(|title| (*title).to_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().cloned()).collect();
    let widths = widths(&lines, lines[0].len());
    let mut out = String::new();
    for line in &lines {
        let mut text = String::new();
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let (gap, width) = (if at > 0 { "  " } else { "" }, *width);
            // Writing to a string cannot fail.
            let _ = if right.contains(&at) {
                write!(text, "{gap}{cell:>width$}")
            } else {
                write!(text, "{gap}{cell:<width$}")
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// Formats lines of cells as a Markdown table whose columns line up; the first line is the header.
#[must_use]
pub fn markdown(lines: &[Vec<String>]) -> String {
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    // Markdown needs at least three dashes below a heading.
    let widths: Vec<usize> = widths(lines, count).into_iter().map(|width| width.max(3)).collect();
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

    fn line(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [line(&["eth1", "7", ""]), line(&["größe", "1234", "x"])];
        assert_eq!(
            columns(&["Port", "N", "Note"], &rows, &[1]),
            "Port      N  Note\neth1      7\ngröße  1234  x\n"
        );
    }

    #[test]
    fn a_markdown_table_fills_missing_cells() {
        let lines = [line(&["a", "bcde"]), line(&["x"])];
        assert_eq!(markdown(&lines), "| a   | bcde |\n|-----|------|\n| x   |      |\n");
    }
}
