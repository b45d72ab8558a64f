//! The startup-config at the start: its valid lines are taken, and every refused line is reported.
//!
//! Invariant: the configuration that is taken is the whole file without the refused lines, and it is taken once. A
//! switch that is adopted while it forwards never runs with only a part of its configuration, not even for a moment.
//! Errors that do not depend on netdevs and plane are found by checking prefixes of the file. A refusal that only
//! netdevs or plane can decide on names its interface: that interface's lines are left out one at a time, and all other
//! lines stay in every attempt.

use lanyard_cli::{LineError, apply_text, protects};
use lanyard_config::{Config, InterfaceName};
use std::collections::BTreeSet;
use std::error::Error;
use std::ops::Range;

/// The maximum number of lines that are struck out. At the next refusal only the lines before it are applied, because each search
/// applies the file many times.
const MAX_STRUCK: usize = 200;
/// The maximum number of lines of a refused interface that are left out one at a time, before the whole interface is.
const MAX_TRIALS: usize = 32;

/// The part of a configuration that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// An interface.
    Interface(String),
    /// The FPM listener.
    Fpm,
    /// Not known.
    Unknown,
}

/// The reason why a configuration was not taken.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub(crate) struct Refusal {
    /// The refused part.
    pub part: Part,
    /// The reason.
    #[source]
    pub cause: Box<dyn Error>,
}

impl Refusal {
    /// This part, for this reason.
    #[must_use]
    pub(crate) fn of(part: Part, cause: impl Into<Box<dyn Error>>) -> Self {
        Self { part, cause: cause.into() }
    }
}

/// Takes configurations: the switch, or a test.
pub(crate) trait Taker {
    /// Checks whether `config` would be taken, as far as possible without taking it.
    fn check(&mut self, config: &Config) -> Result<(), Refusal>;
    /// Takes it, or refuses and changes nothing.
    fn take(&mut self, config: &Config) -> Result<(), Refusal>;
}

/// Takes `text` as the configuration and returns the refused lines, in order. `running` is the last running
/// configuration of a switch that is forwarding. It is taken instead if something is refused and no line can be found
/// that causes it.
pub(crate) fn load(text: &str, running: Option<&str>, taker: &mut dyn Taker) -> Vec<LineError> {
    let lines: Vec<&str> = text.lines().collect();
    let mut file = File { kept: lines.clone(), lines, excluded: BTreeSet::new(), struck: Vec::new() };
    loop {
        let (config, errors) = file.apply(&file.kept);
        let checked = taker.check(&config);
        let is_valid = checked.is_ok();
        let Err(refusal) = checked.and_then(|()| taker.take(&config)) else { return file.refused(errors) };
        if file.struck.len() >= MAX_STRUCK {
            return file.give_up(running, taker);
        }
        let done = if is_valid {
            file.mend(&config, &refusal, running, taker)
        } else {
            let (at, reason) =
                first_refused(&file.kept, refusal.to_string(), &mut |kept| taker.check(&file.apply(kept).0));
            file.strike(at, reason)
        };
        match done {
            Next::Again => {}
            Next::Done => {
                let errors = file.apply(&file.kept).1;
                return file.refused(errors);
            }
            Next::Cut(at) => return file.cut(at, taker),
        }
    }
}

/// The next step after a refusal.
enum Next {
    /// A line or an interface was left out: try the rest.
    Again,
    /// A configuration was taken.
    Done,
    /// No line was found whose removal helps: try only the lines before this one.
    Cut(usize),
}

/// The startup-config during the search for its refused lines.
struct File<'a> {
    lines: Vec<&'a str>,
    /// The lines, with the replacements of those that are struck out.
    kept: Vec<&'a str>,
    /// Interfaces that are left out entirely.
    excluded: BTreeSet<InterfaceName>,
    struck: Vec<LineError>,
}

impl File<'_> {
    /// The configuration that these lines describe, without the excluded interfaces, and the syntax errors.
    fn apply(&self, lines: &[&str]) -> (Config, Vec<LineError>) {
        let (mut config, errors) = apply_text(&lines.join("\n"), &Config::default());
        config.interfaces.retain(|name, _| !self.excluded.contains(name));
        (config, errors)
    }

    /// The lines with one of them struck out.
    fn without(&self, at: usize) -> Vec<&str> {
        let mut kept = self.kept.clone();
        kept[at] = struck(kept[at]);
        kept
    }

    /// Records that a line is refused, and why.
    fn report(&mut self, at: usize, reason: String) {
        let line = self.lines.get(at).copied().unwrap_or_default();
        let column = line.len() - line.trim_start().len() + 1;
        self.struck.push(LineError { line: at + 1, column, text: line.to_owned(), reason });
    }

    /// Strikes a line out, and records why.
    fn strike(&mut self, at: usize, reason: String) -> Next {
        self.report(at, reason);
        let line = self.lines.get(at).copied().unwrap_or_default();
        match self.kept.get_mut(at) {
            Some(kept) if *kept == line && !line.is_empty() && line != "end" => *kept = struck(line),
            _ => return Next::Cut(at),
        }
        Next::Again
    }

    /// All refused lines: those left out, and those with syntax errors.
    fn refused(self, mut errors: Vec<LineError>) -> Vec<LineError> {
        let struck = self.struck;
        errors.retain(|error| struck.iter().all(|struck| struck.line != error.line));
        errors.extend(struck);
        errors.sort_by_key(|error| error.line);
        errors
    }

    /// Handles a refusal by netdevs or plane: leaves out the last line of the refused interface without which
    /// the rest of it is taken, otherwise the whole interface.
    fn mend(
        &mut self,
        config: &Config,
        refusal: &Refusal,
        running: Option<&str>,
        taker: &mut dyn Taker,
    ) -> Next {
        let reason = refusal.to_string();
        match &refusal.part {
            Part::Interface(name) => {
                let key = config.interfaces.keys().find(|key| key.to_string() == *name).cloned();
                if let Some(key) = key {
                    return self.mend_interface(config, &key, refusal, taker);
                }
            }
            Part::Fpm if config.fpm.is_some() => {
                let is_set = |end: usize| self.apply(&self.kept[..end]).0.fpm == config.fpm;
                let at = first(self.kept.len(), is_set);
                return self.strike(at, reason);
            }
            Part::Fpm | Part::Unknown => {}
        }
        if self.resume(running, &reason, taker) {
            return Next::Done;
        }
        // Nothing is forwarding yet, so shorter and shorter parts of the file can be tried without
        // loss.
        let (at, reason) = first_refused(&self.kept, reason, &mut |kept| taker.take(&self.apply(kept).0));
        self.strike(at, reason)
    }

    fn mend_interface(
        &mut self,
        config: &Config,
        key: &InterfaceName,
        refusal: &Refusal,
        taker: &mut dyn Taker,
    ) -> Next {
        let role_of = |config: &Config| config.interfaces.get(key).map(|interface| interface.role);
        let role = role_of(config);
        let trials = self.lines_of(config, key).into_iter().rev().take(MAX_TRIALS);
        let mut trials: Vec<(usize, Config)> =
            trials.map(|at| (at, self.apply(&self.without(at)).0)).collect();
        // Try first the lines without which the interface keeps its role.
        trials.sort_by_key(|(_, next)| role_of(next) != role);
        for (at, next) in trials {
            if next == *config || taker.check(&next).is_err() {
                continue;
            }
            let taken = taker.take(&next);
            // Parts are checked in the same order each time. If another part is refused now, leaving out this line has
            // ended the refusal of this part.
            if taken.as_ref().err().is_none_or(|other| other.part != refusal.part) {
                self.strike(at, refusal.to_string());
                return if taken.is_ok() { Next::Done } else { Next::Again };
            }
        }
        let is_made = |end: usize| role_of(&self.apply(&self.kept[..end]).0) == role;
        let at = first(self.kept.len(), is_made);
        self.report(at, format!("{refusal}; the interface is left out"));
        self.excluded.insert(key.clone());
        Next::Again
    }

    /// The lines of those `interface` modes that concern this interface and no other.
    fn lines_of(&self, config: &Config, key: &InterfaceName) -> Vec<usize> {
        let is_about = |range: &Range<usize>| {
            let mut kept = self.kept.clone();
            kept[range.clone()].fill("");
            let without = self.apply(&kept).0.interfaces;
            let changed = |name: &&InterfaceName| without.get(name) != config.interfaces.get(name);
            config.interfaces.keys().filter(changed).eq([key])
        };
        let modes = self.modes().into_iter().filter(is_about);
        modes.flat_map(|range| range.start + 1..range.end).filter(|at| !self.kept[*at].is_empty()).collect()
    }

    /// The lines of each `interface` mode, its first line included.
    fn modes(&self) -> Vec<Range<usize>> {
        let is_first =
            |at: &usize| self.kept[*at].get(..2).is_some_and(|word| word.eq_ignore_ascii_case("in"));
        let ends =
            |at: &usize| !self.kept[*at].is_empty() && !self.kept[*at].starts_with(char::is_whitespace);
        let lines = self.kept.len();
        let end = |start: usize| (start + 1..lines).find(ends).unwrap_or(lines);
        (0..lines).filter(is_first).map(|start| start..end(start)).collect()
    }

    /// Takes the last running configuration of a switch that is forwarding, and reports the reason. Returns false if there is
    /// none, or if it is refused as well.
    fn resume(&mut self, running: Option<&str>, reason: &str, taker: &mut dyn Taker) -> bool {
        let running = running.map(|text| apply_text(text, &Config::default()).0);
        let resumed =
            running.is_some_and(|running| taker.check(&running).is_ok() && taker.take(&running).is_ok());
        if resumed {
            self.report(
                0,
                format!("{reason}; the switch continues with its last running configuration instead"),
            );
        }
        resumed
    }

    /// Ends the search for refused lines: takes the last running configuration, or the lines before the next refused one.
    fn give_up(mut self, running: Option<&str>, taker: &mut dyn Taker) -> Vec<LineError> {
        let reason = format!("more than {MAX_STRUCK} lines are refused");
        if self.resume(running, &reason, taker) {
            let errors = self.apply(&self.kept).1;
            return self.refused(errors);
        }
        // Nothing is forwarding yet, so parts of the file can be tried without loss.
        let (at, _) = first_refused(&self.kept, reason, &mut |kept| {
            let config = self.apply(kept).0;
            taker.check(&config)?;
            taker.take(&config)
        });
        self.cut(at, taker)
    }

    /// Takes the lines before `at` and none after.
    fn cut(mut self, at: usize, taker: &mut dyn Taker) -> Vec<LineError> {
        self.report(at, "nothing from here on is applied".to_owned());
        self.kept.truncate(at);
        let (config, errors) = self.apply(&self.kept);
        if let Err(refusal) = taker.take(&config) {
            self.report(0, refusal.to_string());
        }
        self.refused(errors)
    }
}

/// The replacement of a struck line. Lines below a struck `interface` line must not apply to another
/// interface, and an interface must not forward without a line that protects the network.
fn struck(line: &str) -> &'static str {
    match line.starts_with(char::is_whitespace) {
        _ if line.is_empty() => "",
        true if protects(line) => " shutdown",
        true => "",
        false => "end",
    }
}

/// Finds the shortest prefix of `lines` lines for which `is_so` holds, and returns the index of its last line. `is_so`
/// must hold for all lines together.
fn first(lines: usize, is_so: impl Fn(usize) -> bool) -> usize {
    let (mut no, mut yes) = (0, lines);
    while yes - no > 1 {
        let middle = no + (yes - no) / 2;
        if is_so(middle) { yes = middle } else { no = middle }
    }
    yes.saturating_sub(1)
}

/// Finds the first of `lines` with which `refused` refuses the lines up to and including it, and returns its index and
/// the reason. `reason` is that of the refusal of all lines together.
fn first_refused(
    lines: &[&str],
    mut reason: String,
    refused: &mut dyn FnMut(&[&str]) -> Result<(), Refusal>,
) -> (usize, String) {
    // Invariant: the prefix of `good` lines is accepted, the prefix of `bad` lines is refused.
    let (mut good, mut bad) = (0, lines.len());
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        match refused(&lines[..middle]) {
            Ok(()) => good = middle,
            Err(refusal) => (bad, reason) = (middle, refusal.to_string()),
        }
    }
    (good, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_config::Role;

    /// Refuses ports by name: those in `unusable` when checked, those in `fails` when taken.
    #[derive(Default)]
    struct Fake {
        unusable: &'static str,
        fails: &'static str,
        taken: Config,
        /// Every configuration that was taken.
        all: Vec<Config>,
    }

    fn refuse(config: &Config, names: &str) -> Result<(), Refusal> {
        for name in names.split_whitespace() {
            let key = match name.strip_prefix("vlan") {
                Some(vlan) => InterfaceName::Vlan(vlan.parse().expect("a VLAN")),
                None => InterfaceName::Netdev(name.into()),
            };
            let found = config.interfaces.get(&key);
            if found.is_some_and(|i| i.role != Role::Unset || matches!(key, InterfaceName::Vlan(_))) {
                return Err(Refusal::of(Part::Interface(name.into()), format!("{name} is refused")));
            }
        }
        Ok(())
    }

    impl Taker for Fake {
        fn check(&mut self, config: &Config) -> Result<(), Refusal> {
            refuse(config, self.unusable)
        }
        fn take(&mut self, config: &Config) -> Result<(), Refusal> {
            refuse(config, self.fails)?;
            if let Some((name, _)) = config.interfaces.iter().find(|(_, i)| i.mtu == Some(9000)) {
                return Err(Refusal::of(Part::Interface(name.to_string()), "the driver refuses MTU 9000"));
            }
            if config.fpm.is_some() {
                return Err(Refusal::of(Part::Fpm, "the address is in use"));
            }
            if config.hostname == "odd" {
                return Err(Refusal::of(Part::Unknown, "something is wrong"));
            }
            self.taken = config.clone();
            self.all.push(config.clone());
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
        let mut fake = Fake { unusable, fails, ..Fake::default() };
        let errors = load(text, None, &mut fake);
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
        assert_eq!(fake.all.len(), 1, "a switch that forwards would run by a part of its configuration");
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
    fn lines_under_a_refused_interface_are_not_applied_to_another() {
        check(TEXT, "vlan10", "", &[(6, 1), (7, 5)], "eth1 eth2 eth3");
    }

    #[test]
    fn bad_syntax() {
        let text = format!("nonsense\n{TEXT}\nvlan 4095");
        check(&text, "eth2", "", &[(1, 1), (6, 2), (12, 6)], "eth1 eth3 vlan10");
    }

    #[test]
    fn only_the_line_that_netdevs_or_plane_refuse_is_left_out() {
        let text = TEXT.replace("eth2\n switchport", "eth2\n switchport\n mtu 9000\n description x");
        check(&text, "", "", &[(6, 2)], "eth1 eth2 eth3 vlan10");
        let two = text.replace("eth1\n", "eth1\n mtu 9000\n");
        check(&two, "", "", &[(3, 2), (7, 2)], "eth1 eth2 eth3 vlan10");
        let before = TEXT.replace("eth2\n", "eth2\n mtu 9000\n");
        check(&before, "", "", &[(5, 2)], "eth1 eth2 eth3 vlan10");
        let text = format!("fpm server\n{TEXT}");
        check(&text, "", "eth3", &[(1, 1), (10, 2)], "eth1 eth2 vlan10");
    }

    #[test]
    fn an_interface_that_no_line_less_helps_is_left_out_whole() {
        let text = TEXT.replace("eth2\n switchport", "eth2\n switchport\n switchport mode access");
        check(&text, "", "eth2", &[(5, 2)], "eth1 eth3 vlan10");
        let range = "interface range eth1 - 3\n switchport\nip routing";
        check(range, "", "eth2", &[(2, 2)], "eth1 eth3");
    }

    #[test]
    fn the_lines_before_the_refusal_that_ends_the_search_are_applied() {
        let port = |number: usize| format!("interface p{number}\n switchport\n");
        let text: String = (0..MAX_STRUCK + 10).map(port).collect();
        // Ports 5 and above cannot be used.
        let unusable: Vec<String> = (5..MAX_STRUCK + 10).map(|number| format!("p{number}")).collect();
        let mut fake = Fake { unusable: unusable.join(" ").leak(), ..Fake::default() };
        let errors = load(&text, None, &mut fake);
        assert_eq!(errors.len(), MAX_STRUCK + 1);
        let end = errors.last().expect("errors");
        assert_eq!(
            (end.line, end.reason.as_str()),
            (2 * (MAX_STRUCK + 6), "nothing from here on is applied")
        );
        assert_eq!(fake.taken.interfaces.values().filter(|i| i.role != Role::Unset).count(), 5);
        // A switch that is forwarding continues as it is.
        let errors = load(&text, Some("hostname sw1\n"), &mut fake);
        assert!(
            errors[0].reason.contains("more than 200 lines are refused; the switch continues"),
            "{errors:?}"
        );
        assert_eq!((errors.len(), fake.taken.hostname.as_str()), (MAX_STRUCK + 1, "sw1"));
    }

    #[test]
    fn a_refusal_without_a_line_leaves_a_forwarding_switch_as_it_is() {
        let mut fake = Fake::default();
        let errors = load(&format!("{TEXT}\nhostname odd"), Some(TEXT), &mut fake);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].reason.contains("last running configuration"), "{errors:?}");
        assert_eq!((fake.taken.hostname.as_str(), fake.all.len()), ("sw1", 1));
        let errors = load(&format!("{TEXT}\nhostname odd"), None, &mut fake);
        assert_eq!(errors.iter().map(|error| error.line).collect::<Vec<_>>(), [11]);
    }
}
