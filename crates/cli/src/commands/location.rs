//! `location ...`: the places that LLDP-MED reports to telephones (ANSI/TIA-1057, 10.2.4), and `show location`.

use super::need;
use crate::args::{Args, Form, Kind, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::mode::ConfigMode;
use crate::outcome::Outcome;
use crate::render::discovery as text;
use crate::setting::{Line, Number, Setting};
use crate::tree::{Node, arg, kw, number};
use crate::view::{CivicEntry, CivicLocations, ElinEntry, ElinLocations};
use lanyard_config::{CivicLocation, Config, Interface, InterfaceName, MAX_LOCATION};
use lanyard_lldp::location::{Civic, ELEMENTS, ELIN_DIGITS, MAX_CIVIC};

const MAX: u64 = MAX_LOCATION as u64;
/// The maximum length of an element, in bytes: a location has at most 255, of which the country and the element's header take 5.
const MAX_ELEMENT: usize = MAX_CIVIC - 5;

const MAX_DIGITS: usize = *ELIN_DIGITS.end();

const IDENTIFIER: Node = kw("identifier", "Identifier of the location");
const COUNTRY: &str = "country";

/// In global configuration.
pub const LINES: &[Line<Config>] = &[
    Line::own(
        "location",
        kw("civic-location", "Civic location information").then(&[IDENTIFIER.then(&[number(
            1,
            MAX,
            "Number of the location",
        )
        .run(enter)])]),
        print_civic,
    ),
    Line::own(
        "location",
        kw("elin-location", "Emergency Line Identification Number (ELIN)").then(&[
            arg(Kind::Word("ELIN", MAX_DIGITS), "Telephone number, 10 to 25 digits")
                .then(&[IDENTIFIER.then(&[number(1, MAX, "Number of the location").run(elin)])]),
            IDENTIFIER.then(&[number(1, MAX, "Number of the location").no(elin)]),
        ]),
        print_elin,
    ),
];

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[("location", "Global location configuration commands")];

/// In interface configuration.
pub const PORT: &[Line<Interface>] = &[
    Setting::of(
        "location civic-location-id",
        "Civic location that LLDP-MED sends",
        &Number::any(field!(Interface, discovery.civic), 1, MAX, "Number of the location"),
    )
    .on(member)
    .line(),
    Setting::of(
        "location elin-location-id",
        "ELIN that LLDP-MED sends",
        &Number::any(field!(Interface, discovery.elin), 1, MAX, "Number of the location"),
    )
    .on(member)
    .line(),
];

/// Help for keywords that end no line, in interface configuration.
pub const PORT_GROUPS: &[(&str, &str)] = &[("location", "Interface location configuration commands")];

/// `show location ...`.
pub const SHOW: Node = kw("location", "Locations that LLDP-MED sends").then(&[
    kw("civic-location", "Civic locations").exec(show_civic),
    kw("elin-location", "Emergency Line Identification Numbers").exec(show_elin),
]);

/// Inside `location civic-location`: the country and the other elements.
pub fn elements() -> Vec<Node> {
    const VALUE: &[Node] = &[arg(Kind::Line(MAX_ELEMENT), "Text").run(element)];
    const LETTERS: &[Node] = &[arg(Kind::Word("XX", 2), "Two letters, as in ISO 3166").run(element)];
    let others = ELEMENTS.iter().map(|(_, keyword, help)| kw(keyword, help).no(element).then(VALUE));
    let mut all: Vec<Node> =
        others.chain([kw(COUNTRY, "Two-letter country code").no(element).then(LETTERS)]).collect();
    all.sort_by_key(Node::label);
    all
}

/// The condition of a location, which VLAN interfaces and port-channels do not have: LLDP runs at the members of a port-channel.
fn member(_: &mut Interface, name: &InterfaceName, _: Form, words: &str) -> Result<bool, Refusal> {
    super::discovery::physical(name, words)
}

fn print_civic(config: &Config) -> Vec<String> {
    let section = |(number, location): (&u16, &CivicLocation)| {
        let mut lines = vec![format!("location civic-location identifier {number}")];
        lines.extend(words(location).into_iter().map(|(keyword, value)| format!(" {keyword} {value}")));
        lines
    };
    config.locations.civic.iter().flat_map(section).collect()
}

fn print_elin(config: &Config) -> Vec<String> {
    let all = config.locations.elin.iter();
    all.map(|(number, digits)| format!("location elin-location {digits} identifier {number}")).collect()
}

/// The keywords and values of a location's elements, in alphabetical order of the keywords.
fn words(location: &CivicLocation) -> Vec<(&'static str, String)> {
    let country = location.country.iter().map(|country| (COUNTRY, country.clone()));
    let value = |(kind, keyword, _): &(u8, &'static str, &str)| {
        location.elements.get(kind).map(|value| (*keyword, value.clone()))
    };
    let mut all: Vec<_> = country.chain(ELEMENTS.iter().filter_map(value)).collect();
    all.sort_unstable();
    all
}

fn numbered(args: &Args) -> Result<u16, Refusal> {
    need(args.number().and_then(|number| u16::try_from(number).ok()))
}

fn enter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = numbered(args)?;
    let all = &mut edit.config.locations.civic;
    if args.form != Form::Set {
        return all.remove(&number).map(drop).ok_or_else(|| unknown("civic location", number));
    }
    all.entry(number).or_default();
    *edit.mode = ConfigMode::CivicLocation(number);
    Ok(())
}

fn elin(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = numbered(args)?;
    let all = &mut edit.config.locations.elin;
    if args.form != Form::Set {
        return all.remove(&number).map(drop).ok_or_else(|| unknown("ELIN", number));
    }
    let digits = need(args.text())?;
    if !ELIN_DIGITS.contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{} is no ELIN: it has 10 to 25 digits, and nothing else", short(&digits)).into());
    }
    all.insert(number, digits);
    Ok(())
}

fn unknown(what: &str, number: u16) -> Refusal {
    format!("there is no {what} with the number {number}").into()
}

fn element(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let ConfigMode::CivicLocation(number) = *edit.mode else {
        return Err("this command needs the mode of a location: enter location civic-location first".into());
    };
    let keyword = need(args.words.first().copied())?;
    let value = args.text().filter(|_| args.form == Form::Set);
    let mut location = edit.config.locations.civic.get(&number).cloned().unwrap_or_default();
    if keyword == COUNTRY {
        if let Some(letters) = value.as_ref().filter(|letters| !is_country(letters)) {
            return Err(format!("{} is no country: it has two letters, such as DE", short(letters)).into());
        }
        location.country = value.map(|letters| letters.to_ascii_uppercase());
    } else {
        let kind = ELEMENTS.iter().find(|(_, other, _)| *other == keyword).map(|(kind, ..)| *kind);
        let kind = need(kind)?;
        match value {
            Some(value) => _ = location.elements.insert(kind, value),
            None => _ = location.elements.remove(&kind),
        }
    }
    let elements = location.elements.iter().map(|(kind, value)| (*kind, value.clone())).collect();
    let bytes = Civic { elements, ..Civic::default() }.bytes();
    if bytes > MAX_CIVIC {
        return Err(format!(
            "location {number} would have {bytes} bytes, and LLDP-MED sends at most {MAX_CIVIC}: shorten it"
        )
        .into());
    }
    edit.config.locations.civic.insert(number, location);
    Ok(())
}

fn is_country(letters: &str) -> bool {
    letters.len() == 2 && letters.bytes().all(|byte| byte.is_ascii_alphabetic())
}

type Shown = Result<Outcome, Refusal>;

/// The names of the interfaces for which `is` returns true.
fn interfaces(config: &Config, is: impl Fn(&Interface) -> bool) -> Vec<String> {
    let having = config.interfaces.iter().filter(|(_, interface)| is(interface));
    having.map(|(name, _)| name.to_string()).collect()
}

fn show_civic(exec: &mut Exec<'_>, _: &Args) -> Shown {
    let config = exec.backend.running();
    let entry = |(number, location): (&u16, &CivicLocation)| CivicEntry {
        identifier: *number,
        elements: words(location).into_iter().collect(),
        interfaces: interfaces(config, |interface| interface.discovery.civic == Some(*number)),
    };
    let view = CivicLocations { civic_locations: config.locations.civic.iter().map(entry).collect() };
    Ok(exec.present(&view, text::civic_locations))
}

fn show_elin(exec: &mut Exec<'_>, _: &Args) -> Shown {
    let config = exec.backend.running();
    let entry = |(number, digits): (&u16, &String)| ElinEntry {
        identifier: *number,
        elin: digits.clone(),
        interfaces: interfaces(config, |interface| interface.discovery.elin == Some(*number)),
    };
    let view = ElinLocations { elin_locations: config.locations.elin.iter().map(entry).collect() };
    Ok(exec.present(&view, text::elin_locations))
}
