//! `logging ...` and `clock timezone`: the log's buffer, its receivers, and the time of its messages.

use super::need;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::setting::Line;
use crate::tree::{Node, arg, kw, number};
use lanyard_config::{
    Config, LOWEST_SEVERITY, LogHost, LogPersistent, LogRate, LogTransport, MAX_LOG_FILES, MAX_LOG_HOSTS,
    TRAP_SEVERITY, Timezone,
};

/// In global configuration.
pub const LINES: &[Line<Config>] = &[
    Line::own("clock", TIMEZONE, print_timezone),
    Line::own("logging", BUFFERED, |config| {
        print_level("buffered", config.appliance.log_buffered, LOWEST_SEVERITY)
    }),
    Line::own("logging", TRAP, |config| print_level("trap", config.appliance.log_trap, TRAP_SEVERITY)),
    Line::own("logging", PERSISTENT, print_persistent),
    Line::own("logging", RATE, print_rates),
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
/// The messages per second, the first number of a line. A severity after `except` may be the second one.
const PER_SECOND: Node = number(1, 10_000, "Messages per second").run(rate).then(&[kw(
    "except",
    "Messages of this severity or higher",
)
.then(levels!(rate))]);
const ALL: Node = kw("all", "(including debugs)").then(&[PER_SECOND]);
const RATE: Node = kw("rate-limit", "Set messages per second limit").no(rate).then(&[
    PER_SECOND,
    ALL,
    kw("console", "Rate limit only what is written to stderr, which the journal keeps")
        .no(rate)
        .then(&[PER_SECOND, ALL]),
]);
const PERSISTENT: Node =
    kw("persistent", "Keep the messages of the buffer in files").run(persistent).options(&[
        kw("filesize", "Maximum length of a file; by default 262144").then(&[number(
            4096,
            16 << 20,
            "Bytes",
        )]),
        kw("size", "Maximum length of all files; by default 4194304").then(&[number(8192, 1 << 30, "Bytes")]),
    ]);
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

/// The severity that a line names, as a keyword or a number; `default` if it names none.
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

fn rate(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let appliance = &mut edit.config.appliance;
    let limit = match args.among(&[("console", ())]) {
        Some(()) => &mut appliance.log_console_rate,
        None => &mut appliance.log_rate,
    };
    *limit = None;
    if args.form == Form::Set {
        let numbers = args.numbers();
        let per_s = need(numbers.first().and_then(|number| u32::try_from(*number).ok()))?;
        let by_number = numbers.get(1).and_then(|level| u8::try_from(*level).ok());
        let except = args.among(SEVERITIES).or(by_number);
        *limit = Some(LogRate { per_s, debugging: args.among(&[("all", ())]).is_some(), except });
    }
    Ok(())
}

fn print_rates(config: &Config) -> Vec<String> {
    let appliance = &config.appliance;
    let line = |(of, limit): (&str, Option<LogRate>)| {
        let LogRate { per_s, debugging, except } = limit?;
        let all = if debugging { "all " } else { "" };
        let except = except.map_or_else(String::new, |level| format!(" except {}", severity(level)));
        Some(format!("logging rate-limit {of}{all}{per_s}{except}"))
    };
    let limits = [("", appliance.log_rate), ("console ", appliance.log_console_rate)];
    limits.into_iter().filter_map(line).collect()
}

fn persistent(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form != Form::Set {
        edit.config.appliance.log_persistent = None;
        return Ok(());
    }
    let mut files = LogPersistent::default();
    let names = args.words.iter().filter(|word| ["size", "filesize"].contains(*word));
    for (name, number) in names.zip(args.numbers()) {
        match *name {
            "size" => files.size = number,
            _ => files.file_size = number,
        }
    }
    let LogPersistent { size, file_size } = files;
    if size < 2 * file_size {
        return Err(format!("size {size} is less than two files of {file_size} bytes").into());
    }
    if size / file_size > MAX_LOG_FILES {
        return Err(format!(
            "size {size} is more than {MAX_LOG_FILES} files of {file_size} bytes: choose a longer filesize"
        )
        .into());
    }
    edit.config.appliance.log_persistent = Some(files);
    Ok(())
}

fn print_persistent(config: &Config) -> Vec<String> {
    let line = |files: LogPersistent| {
        let default = LogPersistent::default();
        let sizes = [("size", files.size, default.size), ("filesize", files.file_size, default.file_size)];
        let sizes = sizes.into_iter().filter(|(_, value, default)| value != default);
        let sizes: String = sizes.map(|(name, value, _)| format!(" {name} {value}")).collect();
        format!("logging persistent{sizes}")
    };
    config.appliance.log_persistent.map(line).into_iter().collect()
}

/// The name of a severity.
pub fn severity(level: u8) -> &'static str {
    SEVERITIES.iter().find(|(_, of)| *of == level).map_or("debugging", |(name, _)| *name)
}

fn print_level(what: &str, level: Option<u8>, default: u8) -> Vec<String> {
    match level {
        Some(level) if level == default => Vec::new(),
        Some(level) => vec![format!("logging {what} {}", severity(level))],
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
