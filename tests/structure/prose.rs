//! Lines of prose in Markdown wrap at 100 columns, so that they can be read beside code and reviewed as differences. Comments
//! contain no documentation tests, because `make test` does not run them.

use crate::root;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum width, in characters.
const WIDTH: usize = 100;

/// The files with this extension below a directory, except those of builds.
fn files(directory: &Path, extension: &str, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            files(&path, extension, into);
        } else if path.extension().is_some_and(|found| found == extension) {
            into.push(path);
        }
    }
}

/// The numbers of the lines of comments at which a block begins that rustdoc would run as a test.
fn programs(text: &str) -> Vec<usize> {
    let mut is_block = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(comment) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else { continue };
        let Some(language) = comment.trim_start().strip_prefix("```") else { continue };
        is_block = !is_block;
        if is_block && ["", "rust", "no_run", "should_panic"].contains(&language) {
            found.push(at + 1);
        }
    }
    found
}

#[test]
fn comments_contain_no_documentation_tests() {
    let mut all = Vec::new();
    files(&root().join("crates"), "rs", &mut all);
    assert!(all.len() > 300, "the crates have moved: {}", all.len());
    for path in all {
        let lines = programs(&fs::read_to_string(&path).expect("readable"));
        assert!(lines.is_empty(), "{}:{lines:?}: mark a block that is no program as `text`", path.display());
    }
    assert_eq!(programs("//! ```text\n//! a\n//! ```\n/// ```\n/// b();\n/// ```\n// ```\n"), [4]);
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
    files(&root(), "md", &mut all);
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
