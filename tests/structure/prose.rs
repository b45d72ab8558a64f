//! Lines of prose in Markdown wrap at 100 columns, so that they can be read beside code and reviewed as differences.

use crate::root;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum width, in characters.
const WIDTH: usize = 100;

/// The Markdown files below a directory, except those of builds.
fn pages(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            pages(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            into.push(path);
        }
    }
}

/// True for a line that is too wide and could be broken: it has a blank outside of a code span.
fn is_too_wide(line: &str) -> bool {
    let outside: String = line.trim_start().split('`').step_by(2).collect();
    line.chars().count() > WIDTH && outside.trim_start_matches(['-', '*', ' ']).contains(' ')
}

/// The numbers of the lines of prose that are too wide. Tables, code blocks, headings and HTML comments may be wider.
fn wide(text: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        if !is_code && !line.trim_start().starts_with(['|', '#', '<']) && is_too_wide(line) {
            found.push(at + 1);
        }
    }
    found
}

#[test]
fn prose_wraps_at_100_columns() {
    let mut all = Vec::new();
    pages(&root(), &mut all);
    assert!(all.len() > 50, "the pages have moved: {}", all.len());
    let wide: Vec<String> = all
        .iter()
        .flat_map(|path| {
            let text = fs::read_to_string(path).expect("readable");
            wide(&text).into_iter().map(|line| format!("{}:{line}", path.display())).collect::<Vec<_>>()
        })
        .collect();
    assert!(wide.is_empty(), "these lines are wider than {WIDTH} columns:\n{}", wide.join("\n"));
}

#[test]
fn only_prose_is_limited() {
    let long = "word ".repeat(30);
    assert_eq!(wide(&format!("short\n{long}\n| {long} |\n```\n{long}\n```\n- {long}")), [2, 7]);
    assert_eq!(wide(&format!("`{}`", "w ".repeat(60))), [0_usize; 0]);
}
