//! Rules of the house that the compiler does not check: dependencies run one way, only named crates access the
//! operating system or contain `unsafe`, the stages are the same list in both pipelines, and numbers shared with C
//! agree.

mod circles;

use lanyard_types::{DropReason, Stage, StormKind, TrapGroup, TrapReason};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Layers from the bottom up: a crate depends on crates of lower layers only.
const LAYERS: &[&[&str]] = &[
    &["lanyard-types"],
    &["lanyard-wire"],
    &[
        "lanyard-pipeline",
        "lanyard-fib",
        "lanyard-stp",
        "lanyard-lacp",
        "lanyard-lldp",
        "lanyard-fpm",
        "lanyard-dhcp",
    ],
    &["lanyard-plane", "lanyard-netdev"],
    &["lanyard-config", "lanyard-asic"],
    &["lanyard-offload"],
    &["lanyard-ebpf", "lanyard-soft", "lanyard-driver", "lanyard-switch", "lanyard-cli"],
    &["lanyard-daemon", "lanyard-lab", "lanyard-bench"],
    &["lanyard"],
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
    "lanyard-bench",
    "lanyard",
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

/// The enumerators of a C enum, numbered from 1, without their prefix and in lower case.
fn c_enum(source: &str, name: &str, prefix: &str) -> Vec<String> {
    let body =
        source.split(&format!("enum {name} {{")).nth(1).and_then(|rest| rest.split('}').next()).expect(name);
    body.split(',')
        .map(|item| item.split('=').next().unwrap_or("").trim().trim_start_matches(prefix).to_lowercase())
        .filter(|item| !item.is_empty())
        .collect()
}

#[test]
fn numbers_shared_with_c_agree() {
    let source = read("bpf/frame.h");
    let names = |all: Vec<(usize, &'static str)>| {
        all.into_iter()
            .enumerate()
            .map(|(at, (index, name))| {
                assert_eq!(index, at + 1, "{name}");
                name.to_owned()
            })
            .collect::<Vec<_>>()
    };
    let drops = names(DropReason::ALL.iter().map(|reason| (reason.index(), reason.name())).collect());
    assert_eq!(c_enum(&source, "drop_reason", "DROP_"), drops);
    let traps = names(TrapReason::ALL.iter().map(|reason| (reason.index(), reason.name())).collect());
    assert_eq!(c_enum(&source, "trap_reason", "TRAP_"), traps);
    let groups = names(TrapGroup::ALL.iter().map(|group| (group.index(), group.name())).collect());
    assert_eq!(c_enum(&source, "trap_group", "GROUP_"), groups);
    let storms = names(StormKind::ALL.iter().map(|kind| (kind.index(), kind.name())).collect());
    assert_eq!(c_enum(&source, "storm_kind", "STORM_"), storms);
}

/// Words that a command line may leave out. A handler may test whether one is present. Between words that exclude each
/// other it must use `Args::among`, which names all of them, so that an unknown word does not silently mean one of
/// them.
const OPTIONAL_WORDS: &[&str] = &[
    "delay",
    "digest",
    "mst",
    "name",
    "no-advertise",
    "no-autoconfig",
    "null0",
    "off-link",
    "permanent",
    "secondary",
    "vrf",
];

#[test]
fn commands_do_not_decide_by_a_missing_keyword() {
    let dir = root().join("crates/cli/src/commands");
    let mut asked = Vec::new();
    for entry in fs::read_dir(&dir).expect("the commands").flatten() {
        let text = fs::read_to_string(entry.path()).expect("readable");
        for part in text.split(".has(\"").skip(1) {
            let word = part.split('"').next().unwrap_or_default();
            if !OPTIONAL_WORDS.contains(&word) {
                asked.push(format!("{}: {word}", entry.path().display()));
            }
        }
    }
    assert!(asked.is_empty(), "ask Args::among for one of several keywords: {asked:#?}");
}
