//! `lanyard config import`: a Catalyst's configuration becomes one of Lanyard, with a report on every line.
//!
//! Invariant: every line that is neither blank nor a comment is reported exactly once, and a refused line prevents no other line
//! from being taken, except the lines under it.

use crate::apply::{apply_import, apply_text};
use crate::args::netdev;
use crate::commands::banner;
use crate::line::words;
use crate::section::indent;
use crate::sessions::LineError;
use crate::unsupported::begins;
use lanyard_config::Config;
use std::collections::BTreeMap;
use std::fmt;

/// The result for one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Result {
    /// Lanyard has the same line, with the same meaning.
    Taken,
    /// It is replaced by this line of Lanyard.
    Differently(String),
    /// It is left out, because it would have no effect, for this reason.
    WithoutEffect(&'static str),
    /// It is left out, because Lanyard refuses it, for this reason.
    Unsupported(String),
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// The number of the line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// The result.
    pub result: Result,
}

/// The result of an import.
#[derive(Debug, Clone)]
pub struct Import {
    /// The configuration that results from the lines that were taken.
    pub config: Config,
    /// The lines, in order.
    pub lines: Vec<Reported>,
}

/// The reason for causes of err-disable that only a Catalyst has.
const NO_SUCH_CAUSE: &str = "the switch shuts no port down for this cause";

/// The beginnings of lines that are left out because their absence changes nothing in the network, each with the reason.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("boot-end-marker", "it marks a part of the file"),
    ("boot-start-marker", "it marks a part of the file"),
    ("building configuration...", "it is output of the command that printed the file"),
    ("current configuration", "it is output of the command that printed the file"),
    ("diagnostic", "there is no hardware of a Catalyst"),
    ("errdisable detect", "the causes that Lanyard has are always detected"),
    ("errdisable recovery cause channel-misconfig", NO_SUCH_CAUSE),
    ("errdisable recovery cause dtp-flap", NO_SUCH_CAUSE),
    ("errdisable recovery cause gbic-invalid", NO_SUCH_CAUSE),
    ("errdisable recovery cause inline-power", NO_SUCH_CAUSE),
    ("errdisable recovery cause l2ptguard", NO_SUCH_CAUSE),
    ("errdisable recovery cause link-flap", NO_SUCH_CAUSE),
    ("errdisable recovery cause link-monitor-failure", NO_SUCH_CAUSE),
    ("errdisable recovery cause loopback", NO_SUCH_CAUSE),
    ("errdisable recovery cause mac-limit", NO_SUCH_CAUSE),
    ("errdisable recovery cause pagp-flap", NO_SUCH_CAUSE),
    ("errdisable recovery cause port-mode-failure", NO_SUCH_CAUSE),
    ("errdisable recovery cause pppoe-ia-rate-limit", NO_SUCH_CAUSE),
    ("errdisable recovery cause psp", NO_SUCH_CAUSE),
    ("errdisable recovery cause sfp-config-mismatch", NO_SUCH_CAUSE),
    ("errdisable recovery cause small-frame", NO_SUCH_CAUSE),
    ("errdisable recovery cause udld", NO_SUCH_CAUSE),
    ("errdisable recovery cause unicast-flood", NO_SUCH_CAUSE),
    ("errdisable recovery cause vmps", NO_SUCH_CAUSE),
    ("hw-module", "there is no hardware of a Catalyst"),
    ("ip forward-protocol nd", "it is for a protocol of the past"),
    ("license", "there are no licences"),
    ("line aux", "there is no auxiliary port"),
    ("load-interval", "no rates are averaged"),
    ("memory", "there is no hardware of a Catalyst"),
    ("no aaa new-model", "logins are verified by aaa authentication login in any case"),
    ("no ip route-cache", "the plane forwards by its tables in any case"),
    ("no errdisable detect", "the causes that Lanyard has are always detected"),
    ("no logging console", "the console gets no log"),
    ("no mdix auto", "the driver decides"),
    ("no platform punt-keepalive", "there is no hardware of a Catalyst"),
    ("no service password-encryption", "passwords are never stored as text"),
    ("power", "the ports supply no power"),
    ("redundancy", "there is one supervisor"),
    ("sdm prefer", "the tables have one layout"),
    ("service call-home", "there is no such service"),
    ("service compress-config", "the file is not compressed"),
    ("service password-encryption", "passwords are never stored as text"),
    ("service tcp-keepalives-in", "connections to the switch always have keepalives"),
    ("service tcp-keepalives-out", "the switch opens no connections of its own"),
    ("service timestamps", "every message of the log has its time"),
    ("stopbits", "the settings of a serial line are those of getty"),
    ("srr-queue", "there are no queues of a Catalyst's ASIC"),
    ("stack-mac", "there is no stack"),
    ("switch", "there is no stack"),
    ("system mtu", "the MTU is a setting of each interface"),
    ("transceiver", "the driver reads transceivers"),
    ("version", "it is the version of IOS"),
    ("vlan internal allocation policy descending", "internal VLANs are allocated from 1006 upwards"),
    ("vtp", "VLANs are configured on each switch"),
];

/// Replaces a line: the beginning of the line, and a function that makes the new line from the words after the beginning. `None`
/// keeps the line as it is.
type Rule = (&'static str, fn(&[&str]) -> Option<String>);

const DIFFERENTLY: &[Rule] = &[
    ("ip default-gateway", |rest| match rest {
        [gateway] => Some(format!("ip route 0.0.0.0 0.0.0.0 {gateway}")),
        _ => None,
    }),
    // The size in bytes is removed: Lanyard's buffer has a fixed size in messages.
    ("logging buffered", |rest| match rest {
        [size, level @ ..] if size.parse::<u64>().is_ok_and(|bytes| bytes >= 4096) => {
            Some(format!("logging buffered {}", level.join(" ")).trim_end().to_owned())
        }
        _ => None,
    }),
    // Only the sizes are kept: Lanyard chooses the directory of the files, and writes every message at once.
    ("logging persistent", |rest| {
        let value = |name: &str| {
            let at = rest.iter().position(|word| *word == name)?;
            Some(format!(" {name} {}", rest.get(at + 1)?))
        };
        let sizes: String = ["size", "filesize"].into_iter().filter_map(value).collect();
        let others = ["url", "batch", "threshold", "immediate", "protected", "notify"];
        rest.iter().any(|word| others.contains(word)).then(|| format!("logging persistent{sizes}"))
    }),
    ("mac-address-table aging-time", |rest| Some(format!("mac address-table aging-time {}", rest.join(" ")))),
    ("mac-address-table static", |rest| Some(format!("mac address-table static {}", rest.join(" ")))),
    // Lanyard has no DTP, and a port in mode `dynamic` becomes a trunk only by DTP with another Catalyst.
    ("switchport mode dynamic", |_| Some("switchport mode access".to_owned())),
    ("switchport trunk encapsulation negotiate", |_| Some("switchport trunk encapsulation dot1q".to_owned())),
    ("storm-control broadcast level", |rest| rising("broadcast", rest)),
    ("storm-control multicast level", |rest| rising("multicast", rest)),
    ("storm-control unicast level", |rest| rising("unicast", rest)),
    ("switchport host", |_| Some("spanning-tree portfast".to_owned())),
    ("spanning-tree portfast network", |_| Some("no spanning-tree portfast".to_owned())),
    ("no switchport trunk encapsulation", |_| Some("switchport trunk encapsulation dot1q".to_owned())),
];

/// A line of storm control without its falling level: a Catalyst blocks from the rising level down to the falling one, and
/// Lanyard drops what exceeds the rising level.
fn rising(kind: &str, rest: &[&str]) -> Option<String> {
    match rest {
        [unit, level, _] if ["bps", "pps"].contains(unit) => {
            Some(format!("storm-control {kind} level {unit} {level}"))
        }
        [level, _] if !["bps", "pps"].contains(level) => Some(format!("storm-control {kind} level {level}")),
        _ => None,
    }
}

/// The treatment of a line before it is applied.
enum Fate {
    Kept,
    Replaced(String),
    Dropped(&'static str),
}

/// Imports `text`. `map` has pairs of a Catalyst's interface name and a netdev.
///
/// # Errors
/// The pair of `map` that is refused, and why.
pub fn import(text: &str, map: &[(String, String)]) -> std::result::Result<Import, String> {
    let names = name_lines(map)?;
    let (base, errors) = apply_text(&names, &Config::default());
    if let Some(error) = errors.first() {
        return Err(format!("{}: {}", error.text, error.reason));
    }
    let fates = fates(text);
    let kept: Vec<&str> = text
        .lines()
        .zip(&fates)
        .map(|(line, fate)| match fate {
            Fate::Kept => line,
            Fate::Replaced(other) => other.as_str(),
            Fate::Dropped(_) => "",
        })
        .collect();
    let (config, errors) = apply_import(&kept.join("\n"), &base);
    let mut errors: BTreeMap<usize, LineError> =
        errors.into_iter().map(|error| (error.line, error)).collect();
    let mut lines = Vec::new();
    for (at, (text, fate)) in text.lines().zip(fates).enumerate() {
        let refused = errors.remove(&(at + 1));
        if text.trim().is_empty() || text.trim_start().starts_with('!') {
            continue;
        }
        let result = match (refused, fate) {
            (Some(error), _) => Result::Unsupported(error.reason),
            (None, Fate::Kept) => Result::Taken,
            (None, Fate::Replaced(other)) => Result::Differently(other.trim().to_owned()),
            (None, Fate::Dropped(reason)) => Result::WithoutEffect(reason),
        };
        lines.push(Reported { line: at + 1, text: text.trim_end().to_owned(), result });
    }
    Ok(Import { config, lines })
}

/// The `platform interface-name` lines for the pairs of `map`.
fn name_lines(map: &[(String, String)]) -> std::result::Result<String, String> {
    let mut text = String::new();
    for (name, device) in map {
        netdev(device)?;
        text.push_str(&format!("platform interface-name {device} {name}\n"));
    }
    Ok(text)
}

fn fates(text: &str) -> Vec<Fate> {
    let mut fates = Vec::new();
    // The indentation of the last line that was left out, and the reason: the lines under it are left out, too.
    let mut dropped: Option<(usize, &'static str)> = None;
    let mut banner: Option<String> = None;
    for line in text.lines() {
        if let Some(delimiter) = &banner {
            if line.contains(delimiter.as_str()) {
                banner = None;
            }
            fates.push(Fate::Kept);
            continue;
        }
        banner = opens_banner(line);
        if let Some((_, reason)) = dropped.filter(|(of, _)| indent(line) > *of && !line.trim().is_empty()) {
            fates.push(Fate::Dropped(reason));
            continue;
        }
        let fate = fate(line);
        dropped = if let Fate::Dropped(reason) = fate { Some((indent(line), reason)) } else { None };
        fates.push(fate);
    }
    fates
}

/// The delimiter of a banner whose text continues on the next line.
fn opens_banner(line: &str) -> Option<String> {
    let (command, text) = line.trim_start().split_once(' ')?;
    let text = text.split_once(' ').filter(|_| command == "banner").map(|(_, text)| text.trim_start())?;
    let delimiter = banner::delimiter(text);
    (!delimiter.is_empty() && !text[delimiter.len()..].contains(delimiter)).then(|| delimiter.to_owned())
}

fn fate(line: &str) -> Fate {
    let Ok(list) = words(line) else { return Fate::Kept };
    for (command, rule) in DIFFERENTLY {
        if let Some(count) = begins(command, &list) {
            let rest: Vec<&str> = list[count..].iter().map(|word| word.text).collect();
            if let Some(other) = rule(&rest) {
                return Fate::Replaced(format!("{}{other}", " ".repeat(indent(line))));
            }
        }
    }
    let found = WITHOUT_EFFECT.iter().find(|(command, _)| begins(command, &list).is_some());
    found.map_or(Fate::Kept, |(_, reason)| Fate::Dropped(reason))
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, text) = (self.line, &self.text);
        match &self.result {
            Result::Taken => write!(f, "{line:>5}  taken              {text}"),
            Result::Differently(other) => write!(f, "{line:>5}  taken differently  {text}: {other}"),
            Result::WithoutEffect(reason) => write!(f, "{line:>5}  without effect     {text}: {reason}"),
            Result::Unsupported(reason) => write!(f, "{line:>5}  unsupported        {text}: {reason}"),
        }
    }
}

impl Import {
    /// The number of lines with each result: taken, taken differently, without effect, unsupported.
    #[must_use]
    pub fn counts(&self) -> [usize; 4] {
        let mut counts = [0; 4];
        for line in &self.lines {
            let at = match line.result {
                Result::Taken => 0,
                Result::Differently(_) => 1,
                Result::WithoutEffect(_) => 2,
                Result::Unsupported(_) => 3,
            };
            counts[at] += 1;
        }
        counts
    }
}
