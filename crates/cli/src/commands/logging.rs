//! `logging ...` and `clock timezone`: the log's buffer, its receivers, and the time of its messages.

use super::need;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::setting::Line;
use crate::tree::{Node, arg, kw, number};
use lanyard_config::{
    Config, LOWEST_SEVERITY, LogHost, LogTransport, MAX_LOG_HOSTS, TRAP_SEVERITY, Timezone,
};

/// In global configuration.
pub const LINES: &[Line<Config>] = &[
    Line::own("clock", TIMEZONE, print_timezone),
    Line::own("logging", BUFFERED, |config| {
        print_level("buffered", config.appliance.log_buffered, LOWEST_SEVERITY)
    }),
    Line::own("logging", TRAP, |config| print_level("trap", config.appliance.log_trap, TRAP_SEVERITY)),
    Line::own("logging", HOST, print_hosts),
    // The older form of `logging host`.
    Line::unprinted("logging", arg(Kind::Ipv4, "IP address of the receiver").run(host)),
];

/// The help texts of keywords that do not end a line.
pub const GROUPS: &[(&str, &str)] =
    &[("clock", "Configure time-of-day clock"), ("logging", "Modify message logging facilities")];

/// The names of the severities (RFC 5424, 6.2.1), as IOS abbreviates them.
const SEVERITIES: &[(&str, u8)] = &[
    ("emergencies", 0),
    ("alerts", 1),
    ("critical", 2),
    ("errors", 3),
    ("warnings", 4),
    ("notifications", 5),
    ("informational", 6),
    ("debugging", 7),
];

macro_rules! levels {
    ($handler:ident $(, $more:expr)?) => {
        &[
            kw("alerts", "Immediate action needed").run($handler),
            kw("critical", "Critical conditions").run($handler),
            kw("debugging", "Debugging messages").run($handler),
            kw("emergencies", "System is unusable").run($handler),
            kw("errors", "Error conditions").run($handler),
            kw("informational", "Informational messages").run($handler),
            kw("notifications", "Normal but significant conditions").run($handler),
            kw("warnings", "Warning conditions").run($handler),
            number(0, 7, "Highest severity").run($handler),
            $($more,)?
        ]
    };
}

/// IOS's size of the buffer in bytes. Lanyard's buffer holds 1,000 messages, whatever the size.
const BUFFER_SIZE: Node =
    number(4096, 2_147_483_647, "Size in bytes; accepted, the buffer holds 1000 messages")
        .run(buffered)
        .then(levels!(buffered));
const BUFFERED: Node = kw("buffered", "Set the severities that the log's buffer gets")
    .run(buffered)
    .then(levels!(buffered, BUFFER_SIZE));
const TRAP: Node =
    kw("trap", "Set the severities that receivers of the log get").run(trap).then(levels!(trap));
const PORT: Node = number(1, 65_535, "Port number");
const HOST: Node = kw("host", "Send the log to another machine, in the format of RFC 5424").then(&[
    arg(Kind::Ipv4, "IP address of the receiver").run(host).options(HOST_OPTIONS),
    arg(Kind::Ipv6, "IPv6 address of the receiver").run(host).options(HOST_OPTIONS),
]);
const HOST_OPTIONS: &[Node] = &[
    kw("name", "The name in the receiver's certificate; by default its address")
        .then(&[arg(Kind::Host, "Name of the receiver")]),
    kw("port", "Another port; by default 514 for UDP, 601 for TCP, 6514 for TLS").then(&[PORT]),
    kw("transport", "Protocol; by default UDP").then(&[
        kw("tcp", "Transport Control Protocol"),
        kw("tls", "Transport Layer Security"),
        kw("udp", "User Datagram Protocol"),
    ]),
];

const HOURS: Kind = Kind::Word("HOURS", 3);
const TIMEZONE: Node = kw("timezone", "Configure time zone").no(timezone).then(&[arg(
    Kind::Word("WORD", 7),
    "Name of time zone",
)
.then(&[arg(HOURS, "Hours offset from UTC, -23 to 23").run(timezone).then(&[number(
    0,
    59,
    "Minutes offset from UTC",
)
.run(timezone)])])]);

/// The severity of a line, or `default` where it names none.
fn level(args: &Args, default: u8) -> u8 {
    args.among(SEVERITIES)
        .or_else(|| {
            args.numbers()
                .into_iter()
                .find_map(|level| u8::try_from(level).ok().filter(|level| *level <= LOWEST_SEVERITY))
        })
        .unwrap_or(default)
}

fn buffered(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.appliance.log_buffered = match args.form {
        Form::No => None,
        Form::Default => Some(LOWEST_SEVERITY),
        Form::Set => Some(level(args, LOWEST_SEVERITY)),
    };
    Ok(())
}

fn trap(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.appliance.log_trap = match args.form {
        Form::No => None,
        Form::Default => Some(TRAP_SEVERITY),
        Form::Set => Some(level(args, TRAP_SEVERITY)),
    };
    Ok(())
}

fn print_level(what: &str, level: Option<u8>, default: u8) -> Vec<String> {
    let name =
        |level: u8| SEVERITIES.iter().find(|(_, of)| *of == level).map_or("debugging", |(name, _)| *name);
    match level {
        Some(level) if level == default => Vec::new(),
        Some(level) => vec![format!("logging {what} {}", name(level))],
        None => vec![format!("no logging {what}")],
    }
}

fn host(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let address = need(args.addresses().first().copied())?;
    let hosts = &mut edit.config.appliance.log_hosts;
    if args.form != Form::Set {
        hosts.retain(|host| host.address != address);
        return Ok(());
    }
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!("{address} is not the address of a host").into());
    }
    let transports = [("tcp", LogTransport::Tcp), ("tls", LogTransport::Tls), ("udp", LogTransport::Udp)];
    let transport = args.among(&transports).unwrap_or_default();
    let name = args.text();
    if name.is_some() && transport != LogTransport::Tls {
        return Err("name is for transport tls: only there the receiver has a certificate".into());
    }
    let mut host = LogHost { address, transport, port: None, name };
    host.port = args.number().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != host.port());
    if let Some(other) = hosts.iter_mut().find(|other| other.address == address) {
        *other = host;
        return Ok(());
    }
    if hosts.len() >= MAX_LOG_HOSTS {
        return Err(
            format!("there are {MAX_LOG_HOSTS} receivers of the log already: remove one first").into()
        );
    }
    hosts.push(host);
    Ok(())
}

fn print_hosts(config: &Config) -> Vec<String> {
    let line = |host: &LogHost| {
        let mut line = format!("logging host {}", host.address);
        if host.transport != LogTransport::Udp {
            line += &format!(" transport {}", host.transport.name());
        }
        if let Some(name) = &host.name {
            line += &format!(" name {name}");
        }
        if let Some(port) = host.port {
            line += &format!(" port {port}");
        }
        line
    };
    config.appliance.log_hosts.iter().map(line).collect()
}

fn timezone(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form != Form::Set {
        edit.config.appliance.timezone = None;
        return Ok(());
    }
    let texts = args.texts();
    let (name, hours) = (need(texts.first())?, need(texts.get(1))?);
    let parsed = hours.parse::<i32>().ok().filter(|hours| (-23..=23).contains(hours));
    let number =
        parsed.ok_or_else(|| Refusal(format!("{hours} is not an offset from UTC: -23 to 23 hours")))?;
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(format!("{name} is not a name of a time zone: letters and digits").into());
    }
    let minutes = args.number().and_then(|minutes| i32::try_from(minutes).ok()).unwrap_or(0);
    let sign = if hours.starts_with('-') { -1 } else { 1 };
    let minutes = sign * (number.abs() * 60 + minutes);
    edit.config.appliance.timezone =
        Some(Timezone { name: name.clone(), minutes }).filter(|zone| zone.minutes != 0 || zone.name != "UTC");
    Ok(())
}

fn print_timezone(config: &Config) -> Vec<String> {
    let line = |zone: &Timezone| {
        let (hours, minutes) = (zone.minutes.abs() / 60, zone.minutes.abs() % 60);
        let sign = if zone.minutes < 0 { "-" } else { "" };
        let minutes = if minutes == 0 { String::new() } else { format!(" {minutes}") };
        format!("clock timezone {} {sign}{hours}{minutes}", zone.name)
    };
    config.appliance.timezone.iter().map(line).collect()
}
