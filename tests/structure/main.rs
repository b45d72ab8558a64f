//! Rules of the house that the compiler does not check: dependencies run one way, only named crates access the
//! operating system or contain `unsafe`, the stages are the same list in both pipelines, and few files know a stage.

mod circles;
mod limits;
mod prose;

use lanyard_types::Stage;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Layers from the bottom up: a crate depends on crates of lower layers only.
const LAYERS: &[&[&str]] = &[
    &["lanyard-types"],
    &["lanyard-wire", "lanyard-acl", "lanyard-dhcp"],
    &[
        "lanyard-pipeline",
        "lanyard-fib",
        "lanyard-stp",
        "lanyard-lacp",
        "lanyard-lldp",
        "lanyard-snoop",
        "lanyard-fpm",
        "lanyard-sflow",
        "lanyard-guard",
        "lanyard-dot1x",
    ],
    &["lanyard-plane", "lanyard-netdev"],
    &["lanyard-config", "lanyard-asic", "lanyard-tester"],
    &["lanyard-offload"],
    &["lanyard-ebpf", "lanyard-soft", "lanyard-switch", "lanyard-cli", "lanyard-access"],
    &["lanyard-driver"],
    &["lanyard-daemon", "lanyard-lab", "lanyard-bench"],
    &["lanyard", "lanyard-ssh"],
];

/// Crates that may access the operating system, and may contain `unsafe`, each block with its reason.
const OPERATING_SYSTEM: &[&str] = &[
    "lanyard-netdev",
    "lanyard-asic",
    "lanyard-ebpf",
    "lanyard-soft",
    "lanyard-driver",
    "lanyard-daemon",
    "lanyard-lab",
    "lanyard-tester",
    "lanyard-bench",
    "lanyard",
    "lanyard-ssh",
];

/// Crates whose use counts as access to the operating system.
const SYSTEM_CRATES: &[&str] = &["libc", "nix", "tokio", "libbpf-rs", "libbpf-sys", "netlink-sys", "rustix"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every crate's manifest, by the crate's name.
fn manifests() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates/").flatten() {
        let dir = entry.file_name().to_string_lossy().into_owned();
        let name = if dir == "lanyard" { dir.clone() } else { format!("lanyard-{dir}") };
        all.insert(name, read(&format!("crates/{dir}/Cargo.toml")));
    }
    all
}

/// The names in a manifest's `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
        } else if inside && !line.starts_with('#') {
            names.extend(
                line.split(['.', ' ', '=']).next().filter(|name| !name.is_empty()).map(str::to_owned),
            );
        }
    }
    names
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

#[test]
fn dependencies_run_one_way() {
    for (name, manifest) in manifests() {
        let own = layer(&name).unwrap_or_else(|| panic!("{name} has no layer: say where it stands"));
        for dependency in dependencies(&manifest).iter().filter(|name| name.starts_with("lanyard")) {
            let below = layer(dependency).unwrap_or_else(|| panic!("{dependency} has no layer"));
            assert!(below < own, "{name} may not depend on {dependency}");
        }
    }
}

#[test]
fn only_named_crates_touch_the_operating_system() {
    for (name, manifest) in manifests() {
        if OPERATING_SYSTEM.contains(&name.as_str()) {
            continue;
        }
        for dependency in dependencies(&manifest) {
            assert!(!SYSTEM_CRATES.contains(&dependency.as_str()), "{name} may not depend on {dependency}");
        }
        let text = manifest.replace(' ', "");
        assert!(
            text.contains("[lints]\nworkspace=true"),
            "{name} must take the workspace's lints: no `unsafe`"
        );
    }
}

#[test]
fn the_planes_have_the_same_stages() {
    for stage in Stage::ALL {
        for path in [format!("crates/pipeline/src/stages/{stage}.rs"), format!("bpf/stages/{stage}.h")] {
            assert!(root().join(&path).exists(), "{path} is missing");
        }
    }
    for (dir, ending) in [("crates/pipeline/src/stages", ".rs"), ("bpf/stages", ".h")] {
        for entry in fs::read_dir(root().join(dir)).expect("stages").flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let name = file.strip_suffix(ending).unwrap_or(&file).to_owned();
            let known = name == "mod"
                || name.starts_with("tests")
                || Stage::ALL.iter().any(|stage| stage.name() == name);
            assert!(known, "{dir}/{file} is no stage of lanyard_types::Stage");
        }
    }
}

/// The name of the example stage, and the files in the table of the section "A stage" of docs/adding.md. The example
/// is the stage of the first file in `bpf/stages` in that table.
fn files_of_a_stage() -> (String, BTreeSet<String>) {
    let page = read("docs/adding.md");
    let section =
        page.split("## A stage\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("its section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let files: BTreeSet<String> = rows.map(|(file, _)| file.to_owned()).collect();
    let header = files.iter().find_map(|file| file.strip_prefix("bpf/stages/")?.strip_suffix(".h"));
    (header.expect("a header").to_owned(), files)
}

/// True if a text names the stage in a form that source and documentation use: a module, a type, a function, a constant, a
/// command, a reason in quotes. Plain prose with the same word does not count.
fn names_stage(text: &str, stage: &str) -> bool {
    let (upper, title) = (stage.to_uppercase(), stage[..1].to_uppercase() + &stage[1..]);
    let forms = [
        format!("{stage}_"),
        format!("_{stage}"),
        format!("{stage}::"),
        format!("{stage}-control"),
        format!("{stage} control"),
        format!("{stage}.rs"),
        format!("{stage}.h"),
        format!("mod {stage}"),
        format!("`{stage}`"),
        format!("\"{stage}\""),
        format!("\"{title}\""),
        upper,
        title,
    ];
    forms.iter().any(|form| text.contains(form))
}

/// Places in which the word means something else (the random field test, broadcast storms in loops), configurations of Catalyst
/// switches, which are data, and their import, and measurements of a switch that is configured with the feature.
const ELSEWHERE: &[&str] = &[
    "crates/bench",
    "crates/cli/src/import.rs",
    "crates/cli/tests/catalyst",
    "crates/cli/tests/import.rs",
    "tests/field",
    "tests/stp",
    "docs/adding.md",
    "docs/performance.md",
    "docs/performance-notes.md",
    "target",
    ".git",
];

/// The files of the action of the example stage (`storm-control action`), which management carries out: they are no part of the
/// stage.
const ACTION: &[&str] = &[
    "crates/types/src/err_cause.rs",
    "crates/switch/src/err_disable.rs",
    "crates/daemon/src/core.rs",
    "crates/daemon/src/err_disable.rs",
    "crates/daemon/src/lib.rs",
    "crates/daemon/src/storm_control.rs",
    "crates/cli/tests/transcripts/edge.txt",
    "crates/cli/tests/transcripts/spanning-tree.txt",
    "docs/cli/configuration.md",
    "docs/edge.md",
    "tests/structure/main.rs",
    "ARCHITECTURE.md",
    "README.md",
];

/// Everything below `path` that names the stage.
fn naming(path: &Path, stage: &str, into: &mut BTreeSet<String>) {
    let relative = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
    if ELSEWHERE.contains(&relative.as_str()) || ACTION.contains(&relative.as_str()) {
        return;
    }
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("readable").flatten() {
            naming(&entry.path(), stage, into);
        }
    } else if fs::read_to_string(path).is_ok_and(|text| names_stage(&text, stage)) {
        into.insert(relative);
    }
}

/// The maximum number of files that may name one stage without state (issue 12).
const FILES_OF_A_STAGE: usize = 12;

#[test]
fn a_stage_is_known_in_the_files_that_docs_adding_lists() {
    let (stage, listed) = files_of_a_stage();
    let mut found = BTreeSet::new();
    naming(&root(), &stage, &mut found);
    assert_eq!(found, listed, "files that name the stage {stage}, and those that docs/adding.md lists");
    assert!(listed.len() <= FILES_OF_A_STAGE, "{} files know one stage", listed.len());
}
