//! Tests valid and invalid topology files against the messages that they must produce.
//!
//! The comment lines `#! TEXT` in tests/bad/*.yml are the problems that the refusal of the file must list; in
//! tests/good/*.yml they are the notes that reading the file must give. There must be no others. `LANYARD_BLESS=1`
//! rewrites tests/graph.

use lanyard_lab::{graph, read};
use std::fs;
use std::path::{Path, PathBuf};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(&folder).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yml"));
    files.sort();
    assert!(!files.is_empty(), "no files in {}", folder.display());
    files
}

/// Compares the expected messages of a file with the actual ones, each as `LINE:COLUMN FIELD: MESSAGE`.
fn check(path: &Path, good: bool) {
    let text = fs::read_to_string(path).expect("readable");
    let wanted: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#! ")).collect();
    let (accepted, remarks) = match read::read(&text, "FILE") {
        Ok((_, notes)) => (true, notes),
        Err(problems) => (false, problems.remarks),
    };
    let printed: Vec<String> = remarks
        .iter()
        .map(|remark| {
            let colon = if remark.field.is_empty() { "" } else { " " };
            format!("{}:{}{colon}{}: {}", remark.pos.line, remark.pos.column, remark.field, remark.message)
        })
        .collect();
    assert!(printed == wanted && accepted == good, "{}, accepted {accepted}:\n{printed:#?}", path.display());
}

#[test]
fn good_files() {
    files("tests/good").iter().for_each(|path| check(path, true));
    files("../../labs").iter().for_each(|path| check(path, true));
}

#[test]
fn bad_files() {
    files("tests/bad").iter().for_each(|path| check(path, false));
}

/// The printed form of a refusal.
#[test]
fn a_refusal_shows_the_line() {
    let problems = read::read("name: x\ntopology:\n  nodes:\n    a:\n      kind: srl\n", "x.clab.yml");
    let wanted = "unknown kind `srl`: a node is `lanyard`, `host` or `linux`
 --> x.clab.yml:5:13  topology.nodes.a.kind
  |
5 |       kind: srl
  |             ^";
    assert_eq!(problems.expect_err("refused").to_string(), wanted);
}

/// Every quantity that grows with the input is limited: each excess is refused, quickly and without a panic.
#[test]
fn too_much() {
    let many =
        |n: usize, line: &str| -> String { (0..n).map(|i| line.replace('N', &i.to_string())).collect() };
    let lab = |nodes: &str, links: &str| format!("name: x\ntopology:\n  nodes:\n{nodes}  links:\n{links}");
    let laughs: String =
        (1..20).map(|i| format!("l{i}: &l{i} [*l{0}, *l{0}, *l{0}, *l{0}]\n", i - 1)).collect();
    let cases = [
        (lab(&many(257, "    nN: {kind: host}\n"), ""), "a lab has 1 to 256 nodes, this has 257"),
        (
            lab("    a: {kind: host}\n", &many(1_024, "    - endpoints: [\"a:eN\", \"a:fN\"]\n")),
            "a lab has at most 1023 links, this has 1024",
        ),
        ("#".repeat((1 << 20) + 1), "a topology file has at most 1048576 bytes, this has 1048577"),
        (many(2_049, "kN: 1\n"), "more than 2048 keys in one mapping"),
        ("[".repeat(50_000), "recursion limit exceeded"),
        ("[".repeat(40), "nested deeper than 32 levels"),
        ("- ".repeat(50_000), "nested deeper than 32 levels"),
        (format!("l0: &l0 [lol]\n{laughs}"), "more than 50000 values (aliases counted)"),
        (
            format!(
                "name: x\ntopology:\n  nodes:\n    a:\n      kind: host\n      exec: [{}]\n",
                "a,".repeat(257)
            ),
            "`exec` has at most 256 entries, it has 257",
        ),
    ];
    for (text, wanted) in cases {
        let problems = read::read(&text, "FILE").expect_err(wanted);
        assert!(problems.to_string().contains(wanted), "{wanted}: {problems}");
    }
}

/// Compares the text drawing of every accepted file with tests/graph, and checks that the other drawings contain every node
/// and every link.
#[test]
fn graphs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for path in files("tests/good").into_iter().chain(files("../../labs")) {
        let text = fs::read_to_string(&path).expect("readable");
        let (topology, _) = read::read(&text, "FILE").expect("good");
        let drawn = graph::text(&topology, false);
        let stem = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let snapshot = root.join("tests/graph").join(stem).with_extension("txt");
        if std::env::var_os("LANYARD_BLESS").is_some() {
            fs::write(&snapshot, &drawn).expect("writable");
        }
        let wanted = fs::read_to_string(&snapshot).unwrap_or_default();
        assert_eq!(drawn, wanted, "{}", snapshot.display());
        let (svg, dot) = (graph::svg(&topology), graph::dot(&topology));
        assert_eq!(svg.matches("<path ").count(), topology.links.len(), "{stem}: links in the SVG");
        assert_eq!(
            svg.matches("font-weight=\"bold\" text-anchor").count(),
            topology.nodes.len(),
            "{stem}: nodes"
        );
        assert_eq!(dot.matches(" -- ").count(), topology.links.len(), "{stem}: links in dot");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{stem}: numbers");
    }
}

/// Runs the fuzzer's entry point over the files, cut and changed at every position: it must not panic.
#[test]
fn mangled_files() {
    for path in files("tests/good").into_iter().chain(files("tests/bad")) {
        let bytes = fs::read(&path).expect("readable");
        for at in 0..bytes.len() {
            lanyard_lab::fuzz(&bytes[..at]);
            for with in [b'&', b'*', b':', b'\t', b'{', 0, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = with;
                lanyard_lab::fuzz(&changed);
            }
        }
    }
}
