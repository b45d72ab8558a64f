//! The startup-config at the start: what is good of it is taken, every refused line is named.
//!
//! Invariant: the whole file is one change when netdevs and plane take it. When they don't, the line they refuse
//! is found by trying prefixes, struck out, and the rest is tried again.

use lanyard_cli::edit::{LineError, apply_text, protects};
use lanyard_config::Config;

/// Lines refused by netdevs or plane that are looked for before the rest of the file is given up.
const MAX_STRUCK: usize = 200;

/// Who takes configurations: the switch, or a test.
pub trait Taker {
    /// Would `config` be taken, as far as can be told without doing it?
    fn check(&mut self, config: &Config) -> Result<(), String>;
    /// Takes it, or refuses and changes nothing.
    fn take(&mut self, config: &Config) -> Result<(), String>;
}

/// Has `text` taken as the configuration; answers the refused lines, in order.
pub fn load(text: &str, taker: &mut dyn Taker) -> Vec<LineError> {
    let lines: Vec<&str> = text.lines().collect();
    let mut kept: Vec<&str> = lines.clone();
    let mut struck: Vec<LineError> = Vec::new();
    loop {
        let (config, mut errors) = apply(&kept);
        let checked = taker.check(&config);
        let by_check = checked.is_err();
        let Err(reason) = checked.and_then(|()| taker.take(&config)) else {
            errors.retain(|error| struck.iter().all(|struck| struck.line != error.line));
            errors.extend(struck);
            errors.sort_by_key(|error| error.line);
            return errors;
        };
        let refused = |kept: &[&str], taker: &mut dyn Taker| {
            let config = apply(kept).0;
            if by_check { taker.check(&config) } else { taker.take(&config) }
        };
        let (at, reason) = first_refused(&kept, reason, &mut |kept| refused(kept, taker));
        let line = lines.get(at).copied().unwrap_or_default();
        let column = line.len() - line.trim_start().len() + 1;
        struck.push(LineError { line: at + 1, column, text: line.to_owned(), reason });
        if struck.len() >= MAX_STRUCK || kept.get(at).is_none_or(|line| line.is_empty() || *line == "end") {
            let reason = "nothing from here on is applied".to_owned();
            struck.push(LineError { line: at + 1, column: 1, text: line.to_owned(), reason });
            kept.truncate(at);
            if let Err(reason) = taker.take(&apply(&kept).0) {
                struck.push(LineError { line: 1, column: 1, text: String::new(), reason });
            }
            struck.sort_by_key(|error| error.line);
            return struck;
        }
        // What stands under a struck `interface` line must not become another interface's, and an interface without a line
        // that protects the network must not forward.
        kept[at] = match line.starts_with(char::is_whitespace) {
            true if protects(line) => " shutdown",
            true => "",
            false => "end",
        };
    }
}

fn apply(lines: &[&str]) -> (Config, Vec<LineError>) {
    apply_text(&lines.join("\n"), &Config::default())
}

/// The first line with which `refused` refuses, and its reason; `reason` is the whole's.
fn first_refused(
    lines: &[&str],
    mut reason: String,
    refused: &mut dyn FnMut(&[&str]) -> Result<(), String>,
) -> (usize, String) {
    // The first `good` lines are taken, the first `bad` are not.
    let (mut good, mut bad) = (0, lines.len());
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        match refused(&lines[..middle]) {
            Ok(()) => good = middle,
            Err(text) => (bad, reason) = (middle, text),
        }
    }
    (good, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_config::{InterfaceName, Role};

    /// Refuses ports by name: at the check those in `unusable`, when it comes to it those in `fails`.
    #[derive(Default)]
    struct Fake {
        unusable: &'static str,
        fails: &'static str,
        taken: Config,
    }

    fn refuse(config: &Config, names: &str) -> Result<(), String> {
        for name in names.split_whitespace() {
            let key = match name.strip_prefix("vlan") {
                Some(vlan) => InterfaceName::Vlan(vlan.parse().expect("a VLAN")),
                None => InterfaceName::Netdev(name.into()),
            };
            let found = config.interfaces.get(&key);
            if found.is_some_and(|i| i.role != Role::Unset || matches!(key, InterfaceName::Vlan(_))) {
                return Err(format!("{name} is refused"));
            }
        }
        Ok(())
    }

    impl Taker for Fake {
        fn check(&mut self, config: &Config) -> Result<(), String> {
            refuse(config, self.unusable)
        }
        fn take(&mut self, config: &Config) -> Result<(), String> {
            refuse(config, self.fails)?;
            self.taken = config.clone();
            Ok(())
        }
    }

    const TEXT: &str = "hostname sw1\ninterface eth1\n switchport\ninterface eth2\n switchport\n\
        interface vlan 10\n ip address 10.0.0.1 255.255.255.0\ninterface eth3\n switchport\nip routing";

    fn check(
        text: &str,
        unusable: &'static str,
        fails: &'static str,
        refused: &[(usize, usize)],
        ports: &str,
    ) {
        let mut fake = Fake { unusable, fails, taken: Config::default() };
        let errors = load(text, &mut fake);
        let places: Vec<_> = errors.iter().map(|error| (error.line, error.column)).collect();
        assert_eq!(places, refused, "{errors:?}");
        let mut names: Vec<String> = Vec::new();
        for (name, interface) in &fake.taken.interfaces {
            if interface.role != Role::Unset || matches!(name, InterfaceName::Vlan(_)) {
                names.push(name.to_string());
            }
        }
        assert_eq!(names.join(" "), ports);
        assert!(fake.taken.ip_routing);
    }

    #[test]
    fn all_good() {
        check(TEXT, "", "", &[], "eth1 eth2 eth3 vlan10");
    }

    #[test]
    fn refused_lines_are_found() {
        check(TEXT, "eth2", "", &[(5, 2)], "eth1 eth3 vlan10");
        check(TEXT, "", "eth2", &[(5, 2)], "eth1 eth3 vlan10");
        check(TEXT, "eth1", "eth3", &[(3, 2), (9, 2)], "eth2 vlan10");
        check(TEXT, "eth1 eth2 eth3", "", &[(3, 2), (5, 2), (9, 2)], "vlan10");
    }

    #[test]
    fn what_stands_under_a_refused_interface_is_not_anothers() {
        check(TEXT, "vlan10", "", &[(6, 1), (7, 5)], "eth1 eth2 eth3");
    }

    #[test]
    fn bad_syntax() {
        let text = format!("nonsense\n{TEXT}\nvlan 4095");
        check(&text, "eth2", "", &[(1, 1), (6, 2), (12, 6)], "eth1 eth3 vlan10");
    }
}
