//! Commands of IOS on Catalyst switches (2960, 3560, 3750, 3850, 9300): each is carried out, refused for a reason, or reported as
//! one that Lanyard does not have. None is answered like a typing error.
//!
//! tests/ios/*.txt has the commands, one a line, by mode. The listed commands are complete, so "Incomplete command" is a wrong
//! answer as well.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Fake, session};
use lanyard_cli::Outcome;

/// True for an answer that no command of a list may get: invalid input, an incomplete or an ambiguous command.
fn like_a_typing_error(text: &str) -> bool {
    ["% Invalid input", "% Incomplete command", "% Ambiguous command"]
        .iter()
        .any(|start| text.contains(start))
}

/// The answer to `line` in a new session that has entered the lines `before`.
fn answer(before: &[&str], line: &str) -> String {
    let mut fake = Fake::new(&["eth0", "eth1"]);
    let mut session = session();
    for line in before {
        let outcome = session.execute(line, &mut fake);
        assert!(!matches!(outcome, Outcome::Refused(_)), "{line}: {outcome:?}");
    }
    match session.execute(line, &mut fake) {
        // `do` returns the refusal of its command as text.
        Outcome::Refused(text) | Outcome::Text(text) => text,
        _ => String::new(),
    }
}

/// The command that an answer reports as missing.
fn missing(answer: &str) -> Option<&str> {
    let line = answer.lines().find(|line| line.ends_with(" is not supported by Lanyard"))?;
    line.strip_prefix("% ")?.strip_suffix(" is not supported by Lanyard")
}

/// Enters every command of a list, after `start`, in a session that has entered the lines `before`. A command that Lanyard
/// reports as missing is entered again after each of `prefixes`, and with its last word abbreviated.
fn check(list: &str, least: usize, before: &[&str], start: &str, prefixes: &[&str]) {
    let commands: Vec<&str> = list.lines().filter(|line| !line.is_empty()).collect();
    assert!(commands.len() >= least, "the list has shrunk to {} commands", commands.len());
    let (mut wrong, mut absent) = (Vec::new(), 0);
    for command in commands {
        let line = format!("{start}{command}");
        let text = answer(before, &line);
        if like_a_typing_error(&text) {
            wrong.push(format!("{line}\n{text}"));
            continue;
        }
        let Some(name) = missing(&text) else { continue };
        absent += 1;
        // `count` is the position in the line, from 1, of the last word of the missing command.
        let count =
            usize::from(start == "do ") + usize::from(command.starts_with("no ")) + name.split(' ').count();
        let last = name.split(' ').next_back().unwrap_or_default();
        // `rout` and `dot1` are abbreviations of `route` and `dot1x`.
        if ["router", "dot11"].contains(&last) {
            continue;
        }
        let short = last.get(..last.len().saturating_sub(2).max(4)).unwrap_or(last);
        let words = line.split(' ').enumerate();
        let short: Vec<&str> = words.map(|(at, word)| if at + 1 == count { short } else { word }).collect();
        for line in prefixes.iter().map(|prefix| format!("{prefix} {line}")).chain([short.join(" ")]) {
            let text = answer(before, &line);
            if like_a_typing_error(&text) {
                wrong.push(format!("{line}\n{text}"));
            }
        }
    }
    assert!(absent > least / 4, "only {absent} commands are reported as missing");
    assert!(wrong.is_empty(), "{} answers:\n{}", wrong.len(), wrong.join("\n"));
}

const CONFIGURATION: &[&str] = &["no", "default"];

#[test]
fn exec() {
    check(include_str!("ios/exec.txt"), 230, &[], "", &[]);
    check(include_str!("ios/exec.txt"), 230, &["configure terminal"], "do ", &[]);
}

#[test]
fn show() {
    check(include_str!("ios/show.txt"), 490, &[], "show ", &[]);
}

#[test]
fn global() {
    check(include_str!("ios/global.txt"), 620, &["configure terminal"], "", CONFIGURATION);
}

#[test]
fn interface() {
    let before = ["configure terminal", "interface eth0"];
    check(include_str!("ios/interface.txt"), 440, &before, "", CONFIGURATION);
}

#[test]
fn vlan() {
    check(include_str!("ios/vlan.txt"), 20, &["configure terminal", "vlan 10"], "", CONFIGURATION);
}

#[test]
fn class_map() {
    let before = ["configure terminal", "class-map VOICE"];
    check(include_str!("ios/class_map.txt"), 40, &before, "", CONFIGURATION);
}

#[test]
fn policy_map() {
    let before = ["configure terminal", "policy-map UPLINK"];
    check(include_str!("ios/policy_map.txt"), 5, &before, "", CONFIGURATION);
}

#[test]
fn class_of_a_policy_map() {
    let before = ["configure terminal", "policy-map UPLINK", "class class-default"];
    check(include_str!("ios/policy_class.txt"), 75, &before, "", CONFIGURATION);
}

#[test]
fn line() {
    check(include_str!("ios/line.txt"), 75, &["configure terminal", "line vty 0 4"], "", CONFIGURATION);
}
