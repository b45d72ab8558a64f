//! No circles of imports between the files of a crate.
//!
//! Two files that import each other can only be understood, tested and changed together. The exceptions are families of
//! files that are one state machine or one grammar in several parts; each names its reason.
//!
//! The check reads `use` declarations and `crate::`/`super::` paths as text, without test modules. An import of a crate's
//! root (a re-export in `lib.rs`) does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Crate, a file of the circle, and the reason for allowing it.
const ALLOWED: &[(&str, &str, &str)] = &[(
    "stp",
    "entity",
    "the state machines of IEEE 802.1Q, 13 are defined over the variables of the bridge and of the port, which are \
         one structure, and each machine drives the others",
)];

type Module = Vec<String>;

/// The files of a crate's `src`, by module path.
fn modules(dir: &Path, at: &[String], into: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(dir).expect("a source directory").flatten() {
        let path = entry.path();
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            modules(&path, &[at, &[stem]].concat(), into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("readable");
            match stem.as_str() {
                "mod" | "lib" | "main" => into.insert(at.to_vec(), text),
                _ => into.insert([at, &[stem]].concat(), text),
            };
        }
    }
}

/// The source without comments and without its test module at the end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// `a::{b, c::{d}}` as `a::b` and `a::c::d`.
fn expand(prefix: &str, tree: &str, into: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        into.push(format!("{prefix}{tree}"));
        return;
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if start < at {
                    expand(&format!("{prefix}{head}"), &inner[start..at], into);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// All paths into the crate that a file names.
fn paths(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    for declaration in code.split("use ").skip(1) {
        let tree: String =
            declaration.split(';').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().concat();
        expand("", &tree, &mut all);
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let path = code[at..].split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next();
            all.extend(path.map(str::to_owned));
        }
    }
    all
}

/// The modules of the same crate that a module imports.
fn imports(module: &Module, text: &str, all: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    for path in paths(&code(text)) {
        let mut words = path.split("::").peekable();
        let mut target = match words.peek().copied() {
            Some("crate") => {
                words.next();
                Vec::new()
            }
            Some("super") => {
                let mut base = module.clone();
                while words.next_if_eq(&"super").is_some() {
                    base.pop();
                }
                base
            }
            _ => continue,
        };
        for word in words {
            let next = [&target[..], &[word.to_owned()]].concat();
            if !all.contains_key(&next) {
                break;
            }
            target = next;
        }
        if !target.is_empty() && target != *module {
            found.insert(target);
        }
    }
    found
}

/// All modules that can be reached from `from`.
fn reachable(from: &Module, edges: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from.clone()];
    while let Some(module) = open.pop() {
        for next in edges.get(&module).into_iter().flatten() {
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    seen
}

/// The circles of a crate, each as the sorted names of its files.
fn circles(source: &Path) -> BTreeSet<Vec<String>> {
    let mut files = BTreeMap::new();
    modules(source, &[], &mut files);
    let is_test = |module: &Module| module.iter().any(|part| part.ends_with("tests"));
    let edges: BTreeMap<Module, BTreeSet<Module>> = files
        .iter()
        .filter(|(module, _)| !is_test(module))
        .map(|(module, text)| (module.clone(), imports(module, text, &files)))
        .collect();
    let reach: BTreeMap<&Module, BTreeSet<Module>> =
        edges.keys().map(|module| (module, reachable(module, &edges))).collect();
    let mut found = BTreeSet::new();
    for (module, seen) in &reach {
        if seen.contains(*module) {
            let circle = seen.iter().filter(|other| reach.get(other).is_some_and(|r| r.contains(*module)));
            found.insert(circle.map(|other| other.join("::")).collect());
        }
    }
    found
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(super::root().join("crates")).expect("crates/").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        for circle in circles(&entry.path().join("src")) {
            let allowed =
                ALLOWED.iter().any(|(crate_, file, _)| *crate_ == name && circle.iter().any(|f| f == file));
            if !allowed {
                wrong.push(format!("{name}: {}", circle.join(", ")));
            }
        }
    }
    assert!(wrong.is_empty(), "files that import each other:\n{}", wrong.join("\n"));
}

#[test]
fn a_circle_is_found() {
    let dir = std::env::temp_dir().join(format!("lanyard-circles-{}", std::process::id()));
    fs::create_dir_all(dir.join("b")).expect("a directory");
    for (name, text) in [
        ("lib.rs", "mod a;\nmod b;\nmod d;\n"),
        ("a.rs", "use crate::{b::{c::X, Y}, d};\n"),
        ("b/mod.rs", "mod c;\n// use crate::a;\n"),
        ("b/c.rs", "fn f() { super::super::a::g() }\n#[cfg(test)]\nmod tests { use crate::d; }\n"),
        ("d.rs", "use std::fmt;\n"),
    ] {
        fs::write(dir.join(name), text).expect("written");
    }
    let found = circles(&dir);
    fs::remove_dir_all(&dir).expect("removed");
    assert_eq!(found, BTreeSet::from([vec!["a".to_owned(), "b::c".to_owned()]]));
}
