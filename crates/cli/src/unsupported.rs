//! IOS commands that Lanyard lacks: a line that begins with one is refused as unsupported, not as a typing error.
//!
//! The command tree decides first: an entry of these tables counts only where the tree does not accept the line.
//! Cisco's "Catalyst 3750-X and 3560-X Switch Command Reference" and the IOS master command list contain the commands.

use crate::feature::Feature;
use crate::line::{Failure, Word};
use crate::mode::ConfigMode;
use std::sync::LazyLock;

/// A table: each line of its file is a command or, after `#`, a comment. `N` stands for a number, `*` for a value with a digit or
/// a colon, `NAME` for any word, and a keyword that ends in a colon for every word that begins with it.
type Table = LazyLock<Vec<&'static str>>;

static EXEC: Table = LazyLock::new(|| entries(include_str!("unsupported/exec.txt")));
static GLOBAL: Table = LazyLock::new(|| entries(include_str!("unsupported/global.txt")));
static MODES: Table = LazyLock::new(|| entries(include_str!("unsupported/modes.txt")));
static INTERFACE: Table = LazyLock::new(|| entries(include_str!("unsupported/interface.txt")));
static VLAN: Table = LazyLock::new(|| entries(include_str!("unsupported/vlan.txt")));
static LINE: Table = LazyLock::new(|| entries(include_str!("unsupported/line.txt")));
static CLASS_MAP: Table = LazyLock::new(|| entries(include_str!("unsupported/class_map.txt")));
static POLICY_MAP: Table = LazyLock::new(|| entries(include_str!("unsupported/policy_map.txt")));
static POLICY_CLASS: Table = LazyLock::new(|| entries(include_str!("unsupported/policy_class.txt")));

fn entries(text: &'static str) -> Vec<&'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// Complete commands of IOS that would be refused as incomplete, because the tree has only longer commands, or only the `no`
/// form.
const WHOLE: &[&str] = &[
    "ip domain lookup",
    "ip domain-lookup",
    "ip http secure-server",
    "ip http server",
    "ip igmp snooping tcn flood",
    "ip source-route",
    "service config",
    "service pad",
];
/// Complete commands of exec modes, like [`WHOLE`].
const WHOLE_OF_EXEC: &[&str] = &["show configuration"];
/// Complete commands under `line`, like [`WHOLE`].
const WHOLE_OF_LINE: &[&str] = &["exec", "monitor"];

/// Commands of exec modes that Lanyard lacks, and whose last word the tree parses as the name of an interface or a VRF.
const TAKEN_OF_EXEC: &[&str] = &[
    "show interfaces accounting",
    "show interfaces capabilities",
    "show interfaces crb",
    "show interfaces dampening",
    "show interfaces debounce",
    "show interfaces etherchannel",
    "show interfaces fair-queue",
    "show interfaces flowcontrol",
    "show interfaces history",
    "show interfaces irb",
    "show interfaces link",
    "show interfaces mac-accounting",
    "show interfaces module",
    "show interfaces mtu",
    "show interfaces precedence",
    "show interfaces private-vlan",
    "show interfaces pruning",
    "show interfaces random-detect",
    "show interfaces rate-limit",
    "show interfaces stats",
    "show interfaces summary",
    "show interfaces switchport module",
    "show vrf detail",
    "show vrf ipv4",
    "show vrf ipv6",
];
/// Commands of a class in a policy map that Lanyard lacks, and whose second word the tree parses as a rate.
const TAKEN_OF_POLICY_CLASS: &[&str] = &["police aggregate", "police flow"];

/// Interface commands that protect the network, in addition to those of features: an interface for which such a command is
/// refused must not forward.
const SAFETY: &[&str] = &[
    "access-session",
    "authentication",
    "channel-group",
    "dot1x",
    "ip access-group",
    "mab",
    "ip arp inspection",
    "ip dhcp snooping",
    "ip verify",
    "ipv6 dhcp guard",
    "ipv6 nd inspection",
    "ipv6 nd raguard",
    "ipv6 snooping",
    "ipv6 source-guard",
    "ipv6 traffic-filter",
    "ipv6 verify",
    "mac access-group",
    "spanning-tree bpdufilter",
    "spanning-tree bpduguard",
    "spanning-tree guard",
    "switchport block",
    "switchport port-security",
    "switchport protected",
];

/// Lines that lead to a mode that Lanyard has.
const OWN_MODES: &[&str] = &[
    "interface",
    "radius server",
    "tacacs server",
    "vlan",
    "vrf definition",
    "track",
    "spanning-tree mst configuration",
    "ip access-list",
    "ipv6 access-list",
    "mac access-list",
    "object-group",
    "time-range",
    "class-map",
    "policy-map",
    "class",
    "monitor session N type erspan-destination",
    "monitor session N type erspan-source",
];

/// Lines that begin like one of those above or of [`MODES`], and lead to no mode.
const NO_MODES: &[&str] = &[
    "ip access-list log-update",
    "ip access-list logging",
    "ip access-list resequence",
    "ip sla responder",
    "ip sla schedule",
    // A line of interfaces.
    "ip vrf forwarding",
    // The word also abbreviates that of `ipv6 router`.
    "ipv6 route",
    "track timer",
    "vlan access-log",
    "vlan accounting",
    "vlan dot1q",
    "vlan filter",
    "vlan group",
    "vlan internal",
];

/// The number of words of the line that the command has, if the line begins with the command; otherwise `None`. Each keyword may
/// be abbreviated to at least three letters.
pub(crate) fn begins(command: &str, words: &[Word<'_>]) -> Option<usize> {
    let mut count = 0;
    for keyword in command.split(' ') {
        let word = words.get(count)?.text.to_ascii_lowercase();
        let fits = match keyword {
            "N" => word.bytes().all(|byte| byte.is_ascii_digit()),
            "*" => word.bytes().any(|byte| byte.is_ascii_digit() || byte == b':'),
            "NAME" => true,
            _ if keyword.ends_with(':') && word.starts_with(keyword) => true,
            _ => keyword.starts_with(&word) && word.len() >= keyword.len().min(3),
        };
        if !fits {
            return None;
        }
        count += 1;
    }
    Some(count)
}

/// The command as the line has it: with the values in place of `N` and `*`.
fn as_entered(command: &'static str, words: &[Word<'_>]) -> String {
    let shown = |(keyword, word): (&'static str, &Word<'_>)| match keyword {
        "N" | "*" | "NAME" => word.text.to_owned(),
        _ => keyword.to_owned(),
    };
    command.split(' ').zip(words).map(shown).collect::<Vec<_>>().join(" ")
}

/// The line's words without `no` or `default` before them.
fn plain<'a, 'b>(words: &'b [Word<'a>]) -> &'b [Word<'a>] {
    match words.split_first() {
        Some((first, rest)) if ["no", "default"].contains(&first.text) => rest,
        _ => words,
    }
}

/// The mode in which a line was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// An exec mode.
    Exec,
    /// An interface mode.
    Interface,
    /// `vlan`.
    Vlan,
    /// `line`.
    Line,
    /// `class-map`.
    ClassMap,
    /// `policy-map`.
    PolicyMap,
    /// `class` in a policy map.
    PolicyClass,
    /// Another configuration mode.
    Global,
}

impl Place {
    /// The place of a configuration mode.
    pub const fn of(mode: &ConfigMode) -> Self {
        match mode {
            ConfigMode::Interface { .. } => Self::Interface,
            ConfigMode::Vlan(_) => Self::Vlan,
            ConfigMode::Line(_) => Self::Line,
            ConfigMode::ClassMap(_) => Self::ClassMap,
            ConfigMode::PolicyMap(_) => Self::PolicyMap,
            ConfigMode::PolicyClass(..) | ConfigMode::Policer(..) => Self::PolicyClass,
            _ => Self::Global,
        }
    }
    fn tables(self) -> Vec<&'static Table> {
        match self {
            Self::Exec => vec![&EXEC],
            Self::Interface => vec![&INTERFACE, &GLOBAL, &MODES],
            Self::Vlan => vec![&VLAN, &GLOBAL, &MODES],
            Self::Line => vec![&LINE, &GLOBAL, &MODES],
            Self::ClassMap => vec![&CLASS_MAP, &GLOBAL, &MODES],
            Self::PolicyMap => vec![&POLICY_MAP, &GLOBAL, &MODES],
            Self::PolicyClass => vec![&POLICY_CLASS, &GLOBAL, &MODES],
            Self::Global => vec![&GLOBAL, &MODES],
        }
    }
    const fn whole(self) -> &'static [&'static str] {
        match self {
            Self::Exec => WHOLE_OF_EXEC,
            Self::Line => WHOLE_OF_LINE,
            _ => WHOLE,
        }
    }
    /// The commands of which the tree parses a keyword as a value. [`explain`] reports them as unsupported at whatever offset the
    /// line is refused.
    const fn taken(self) -> &'static [&'static str] {
        match self {
            Self::Exec => TAKEN_OF_EXEC,
            Self::PolicyClass => TAKEN_OF_POLICY_CLASS,
            _ => &[],
        }
    }
}

/// Replaces a failure by a better explanation if the command is one of IOS that Lanyard does not have.
pub fn explain(failure: Failure, words: &[Word<'_>], place: Place) -> Failure {
    let (words, place) = match words.split_first() {
        Some((first, rest)) if place != Place::Exec && first.text == "do" => (plain(rest), Place::Exec),
        _ => (plain(words), place),
    };
    let first = words.first().map_or(failure.at(), |word| word.at);
    let meant = |command: &&&str| begins(command, words).is_some() && ends_distinct(command, words);
    let taken = || place.taken().iter().find(meant);
    let known = match &failure {
        Failure::Invalid(at) => {
            missing(words, place, *at, begins).or_else(|| taken().map(|command| (*command).to_owned()))
        }
        // A word that abbreviates several keywords of the tree may be a complete keyword of IOS.
        Failure::Ambiguous(at, _) => missing(words, place, *at, |command, words| {
            let count = begins(command, words)?;
            let full = |(keyword, word): (&str, &Word<'_>)| keyword == word.text.to_ascii_lowercase();
            command.split(' ').zip(words).all(full).then_some(count)
        }),
        Failure::Incomplete(_) => {
            let fits = |command: &&&str| begins(command, words) == Some(words.len());
            place.whole().iter().find(fits).map(|command| (*command).to_owned())
        }
        Failure::Reason(..) => taken().map(|command| (*command).to_owned()),
    };
    match known {
        Some(command) => Failure::Reason(first, format!("{command} is not supported by Lanyard")),
        None => failure,
    }
}

/// The longest command of a place's tables with which the line begins, if it reaches at least to offset `at`: a command that ends
/// before it is not the reason of the refusal, because the tree has accepted the words before `at`.
fn missing(
    words: &[Word<'_>],
    place: Place,
    at: usize,
    begins: impl Fn(&str, &[Word<'_>]) -> Option<usize>,
) -> Option<String> {
    let known = place.tables().into_iter().flat_map(|table| table.iter()).filter_map(|command| {
        let count = begins(command, words)?;
        (words.get(count - 1)?.at >= at).then_some((count, *command))
    });
    // Of commands that are equally long, the line means the one whose keywords it has in full: `auto` is not `automate-tester`.
    let (_, command) = known.max_by_key(|(count, command)| (*count, in_full(command, words)))?;
    Some(as_entered(command, words))
}

/// True if the line has the command's last keyword in full or with at least five letters. A shorter abbreviation may mean a
/// keyword of the tree: `show interfaces sta` is `status`, not `stats`.
fn ends_distinct(command: &str, words: &[Word<'_>]) -> bool {
    let last = command.split(' ').zip(words).last();
    last.is_some_and(|(keyword, word)| word.text.len() >= keyword.len().min(5))
}

/// The number of the command's keywords that the line has without abbreviation.
fn in_full(command: &str, words: &[Word<'_>]) -> usize {
    command.split(' ').zip(words).filter(|(keyword, word)| keyword.eq_ignore_ascii_case(word.text)).count()
}

/// True for a line that leads to a mode in Lanyard or in IOS; the lines under it are meant for this mode only.
pub fn leads_to_mode(words: &[Word<'_>]) -> bool {
    let is_in = |commands: &[&str]| commands.iter().any(|command| begins(command, words).is_some());
    (is_in(OWN_MODES) || is_in(&MODES)) && !is_in(NO_MODES)
}

/// True for a line, not its `no` form, that protects the network from the devices that are connected to an interface.
pub fn is_safety(words: &[Word<'_>], features: &[Feature]) -> bool {
    let features = features.iter().filter(|feature| feature.safety).map(|feature| feature.name);
    SAFETY.iter().copied().chain(features).any(|command| begins(command, words).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;
    use crate::line::words;
    use crate::parse::Reader;
    use crate::privilege::Authority;

    #[test]
    fn tables_of_unsupported_commands_contain_no_supported_command() {
        let trees = &commands::TREES;
        let roots = [
            (&EXEC, vec![trees.exec]),
            (&GLOBAL, vec![trees.global]),
            (&MODES, vec![trees.global]),
            (&INTERFACE, vec![trees.interface, trees.global]),
            (&VLAN, vec![trees.vlan, trees.global]),
            (&LINE, vec![trees.line, trees.global]),
            (&CLASS_MAP, vec![trees.class_map, trees.global]),
            (&POLICY_MAP, vec![trees.policy_map, trees.global]),
            (&POLICY_CLASS, vec![trees.policy_class, trees.global]),
        ];
        let mut known = Vec::new();
        for (table, root) in roots {
            for command in table.iter() {
                let list = words(command).expect("words");
                let names = &crate::args::NoNames;
                let reader = Reader {
                    line: command,
                    words: &list,
                    names,
                    authority: Authority::full(),
                    exec: trees.exec,
                };
                if reader.expected(&root).is_ok() {
                    known.push(*command);
                }
            }
        }
        assert!(known.is_empty(), "the command tree has {known:?}: take them from the tables");
    }

    #[test]
    fn a_command_in_full_is_preferred_to_an_abbreviation() {
        for (line, place, expected) in [
            ("auto qos voip cisco-phone", Place::Interface, "auto"),
            ("no snmp trap link-status", Place::Interface, "snmp"),
            ("snmp-s community public", Place::Global, "snmp-server"),
        ] {
            let list = words(line).expect("words");
            let explained = explain(Failure::Invalid(0), &list, place);
            assert_eq!(explained.message(), format!("% {expected} is not supported by Lanyard"), "{line}");
        }
    }

    #[test]
    fn abbreviations() {
        let list = words("swi port-sec maximum 3").expect("words");
        assert!(is_safety(&list, commands::FEATURES) && !leads_to_mode(&list));
        let list = words("int gi1/0/1").expect("words");
        assert!(leads_to_mode(&list) && !is_safety(&list, commands::FEATURES));
        assert!(!leads_to_mode(&words("ip route 0.0.0.0 0.0.0.0 10.0.0.1").expect("words")));
        for line in ["ipv6 router ospf 1", "ip access-list ext a", "vlan access-map M 10", "track 1 list"] {
            assert!(leads_to_mode(&words(line).expect("words")), "{line}");
        }
        for line in ["ipv6 route ::/0 ::1", "ip access-list res a 0 5", "vlan filter M vlan-list 5000"] {
            assert!(!leads_to_mode(&words(line).expect("words")), "{line}");
        }
    }
}
