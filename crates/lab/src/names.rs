//! Checks names, and suggests a known word for a mistyped one.
//!
//! Invariant: a name that passes can be used unchanged in a path, as a namespace and as a netdev.

use crate::topology::{Kind, MAX_NAME_BYTES};

/// Checks a name that becomes a part of the name of a namespace, a directory and a socket.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() {
        Err("it is empty".into())
    } else if name.len() > MAX_NAME_BYTES {
        Err(format!("it has {} bytes, {MAX_NAME_BYTES} is the most", name.len()))
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        Err("it must start with a letter or a digit".into())
    } else if let Some(c) = name.chars().find(|c| !ok(*c)) {
        Err(format!("{c:?} is not a letter, a digit, `-`, `_` or `.`"))
    } else {
        Ok(())
    }
}

/// Checks that the kernel accepts a netdev's name and that a switch does not use it for its own netdevs.
pub(crate) fn check_interface(name: &str, kind: Kind) -> Result<(), String> {
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    if name.is_empty() {
        Err("it is empty".into())
    } else if name.len() > 15 {
        Err(format!("it has {} bytes, the kernel's limit is 15", name.len()))
    } else if matches!(name, "." | ".." | "all" | "default") {
        Err("the kernel reserves this name".into())
    } else if name == "lo" {
        Err("every node already has its loopback device".into())
    } else if let Some(c) = name.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '/' | ':' | '%' | '"'))
    {
        Err(format!("it contains {c:?}"))
    } else if name.starts_with('-') {
        Err("it starts with `-`".into())
    } else if kind.is_switch() && (numbered("vlan") || numbered("ly")) {
        Err("the switch uses such names for its VLAN interfaces".into())
    } else {
        Ok(())
    }
}

/// The known word that is at most two edits away, if there is one.
pub(crate) fn guess<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_NAME_BYTES {
        return None;
    }
    let close = if word.len() < 4 { 1 } else { 2 };
    let known = known.filter(|k| k.len() <= MAX_NAME_BYTES);
    known.map(|k| (strsim::levenshtein(word, k), k)).filter(|(n, _)| *n <= close).min().map(|(_, k)| k)
}
