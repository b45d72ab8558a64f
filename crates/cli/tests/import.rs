//! Configurations of Catalyst switches in `tests/catalyst`: NAME.cfg is imported with the map in its first line, NAME.report is
//! the report and the configuration that must result. `UPDATE_REPORTS=1` rewrites the reports: read the difference.
#![allow(clippy::unwrap_used)]

use lanyard_cli::import::{Result, import};
use lanyard_cli::{apply_text, text};
use lanyard_config::Config;
use std::path::Path;

/// The pairs in the first line, `! map NAME=NETDEV ...`.
fn map(text: &str) -> Vec<(String, String)> {
    let first = text.lines().next().unwrap_or_default().strip_prefix("! map ").unwrap_or_default();
    let pair = |pair: &str| pair.split_once('=').map(|(name, netdev)| (name.to_owned(), netdev.to_owned()));
    first.split_whitespace().filter_map(pair).collect()
}

#[test]
fn catalysts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/catalyst");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|suffix| suffix == "cfg"));
    assert!(files.len() >= 6, "configurations are missing");
    for file in files {
        let config = std::fs::read_to_string(&file).unwrap();
        let result = import(&config, &map(&config)).unwrap();
        let counts = result.counts();
        let mut got = format!("{counts:?} taken, differently, without effect, unsupported\n");
        result.lines.iter().for_each(|line| got.push_str(&format!("{line}\n")));
        let rendered = text::render(&result.config);
        got.push_str(&rendered);
        let report = file.with_extension("report");
        if std::env::var_os("UPDATE_REPORTS").is_some() {
            std::fs::write(&report, &got).unwrap();
        }
        let wanted = std::fs::read_to_string(&report).unwrap_or_default();
        assert!(
            got == wanted,
            "{} differs: run with UPDATE_REPORTS=1 and read the difference",
            report.display()
        );
        // Every line that is neither blank nor a comment is reported, and Lanyard accepts each line of the resulting
        // configuration.
        let asks = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('!');
        assert_eq!(result.lines.len(), config.lines().filter(asks).count(), "{}", file.display());
        let (again, errors) = apply_text(&rendered, &Config::default());
        assert_eq!((again, errors), (result.config, Vec::new()), "{}", file.display());
    }
}

#[test]
fn common_lines_of_catalysts_are_no_loss() {
    let text = "no service password-encryption\nerrdisable recovery cause udld\nerrdisable recovery cause bpduguard\n\
                interface Gi1/0/1\n switchport mode access\n storm-control broadcast level 10.00 5.00\n \
                storm-control multicast level pps 2k 1k\n";
    let result = import(text, &[("Gi1/0/1".to_owned(), "eth1".to_owned())]).unwrap();
    assert_eq!(result.counts(), [3, 2, 2, 0], "{:?}", result.lines);
    let rendered = text::render(&result.config);
    for line in [" storm-control broadcast level 10.00\n", " storm-control multicast level pps 2000\n"] {
        assert!(rendered.contains(line), "{rendered}");
    }
}

#[test]
fn a_wrong_map_is_named() {
    for (name, netdev) in
        [("Gi1/0/1", "a name that is too long"), ("Gi1/0/1", "e/1"), ("Vlan10", "eth1"), ("x", "eth1")]
    {
        let error = import("", &[(name.into(), netdev.into())]).map(drop).unwrap_err();
        assert!(!error.is_empty());
    }
    let twice = [("Gi1/0/1".to_owned(), "eth1".to_owned()), ("Gi1/0/1".to_owned(), "eth2".to_owned())];
    assert!(import("", &twice).is_err());
}

#[test]
fn hostile_text_is_reported_and_nothing_more() {
    let long = "x".repeat(100_000);
    for text in [
        "banner motd",
        "banner motd ^C\nno end",
        "banner motd \u{3}x\u{3}",
        "\u{0}",
        " ",
        &long,
        "interface",
        "ip default-gateway",
    ] {
        let result = import(text, &[]).unwrap();
        let unsupported = result.lines.iter().filter(|line| matches!(line.result, Result::Unsupported(_)));
        assert!(unsupported.count() <= text.lines().count());
    }
}
