//! `line console 0` and `line vty`: the settings of terminal lines. Each setting is an entry in the table of the mode.
//!
//! Lines of the VTY that are configured alike are printed as one section.

use super::need;
use crate::args::{Args, Form};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::mode::ConfigMode;
use crate::outcome::Outcome;
use crate::setting::{Line, Target};
use crate::tree::{Node, kw, number};
use lanyard_config::Config;
use lanyard_config::access::{LineRange, TerminalLine, Transport, VTY_LINES};

const LAST: u64 = VTY_LINES as u64 - 1;

/// `line`, in global configuration.
pub const ENTRY: Node =
    kw("line", "Configure a terminal line").then(&[
        kw("console", "Primary terminal line").then(&[number(0, 0, "Line number").set(enter)]),
        kw("vty", "Virtual terminal").then(&[number(0, LAST, "First line number")
            .set(enter)
            .then(&[number(0, LAST, "Last line number").set(enter)])]),
    ]);

/// The help texts of keywords that do not end a line.
pub const GROUPS: &[(&str, &str)] = &[("logging", "Modify message logging facilities")];

/// `(config-line)#`.
pub const LINES: &[Line<TerminalLine>] = &[
    Line::own("", EXEC_TIMEOUT, print_timeout),
    Line::own("", LOGIN, |line| if line.no_login { vec!["no login".into()] } else { Vec::new() }),
    // Accepted without effect: messages of `terminal monitor` never break a line that is being entered.
    Line::unprinted("logging", kw("synchronous", "Synchronized message output").set(nothing)),
    Line::own("", TRANSPORT, print_transport),
];

/// `clear line`.
pub const CLEAR: Node = kw("line", "Reset a terminal line").then(&[
    kw("console", "Primary terminal line").then(&[number(0, 0, "Line number").exec(clear)]),
    kw("vty", "Virtual terminal").then(&[number(0, 199, "Line number").exec(clear)]),
    number(0, 199, "Line number of a virtual terminal").exec(clear),
]);

const EXEC_TIMEOUT: Node = kw("exec-timeout", "Set the EXEC timeout").no(timeout).then(&[number(
    0,
    35_791,
    "Timeout in minutes (0 and 0 seconds: none)",
)
.set(timeout)
.then(&[number(0, 59, "Timeout in seconds").set(timeout)])]);

const LOGIN: Node = kw("login", "Enable password checking; the same as login local")
    .no(login)
    .set(login)
    .then(&[kw("local", "Local password checking").set(login)]);

const TRANSPORT: Node = kw("transport", "Define transport protocols for line").then(&[kw(
    "input",
    "Define which protocols to use when connecting to the terminal server",
)
.no(transport)
.then(&[
    kw("all", "All protocols").set(transport),
    kw("none", "No protocols").set(transport),
    kw("ssh", "TCP/IP SSH protocol")
        .set(transport)
        .then(&[kw("telnet", "TCP/IP Telnet protocol").set(transport)]),
    kw("telnet", "TCP/IP Telnet protocol")
        .set(transport)
        .then(&[kw("ssh", "TCP/IP SSH protocol").set(transport)]),
])]);

impl Target for TerminalLine {
    type Key = LineRange;
    fn each(edit: &mut Edit<'_>, change: crate::setting::Change<'_, Self>) -> Result<(), Refusal> {
        let range = range(edit)?;
        let mut lines = edit.config.access.lines.clone();
        for line in lines.of_mut(range) {
            change(line, &range)?;
        }
        edit.config.access.lines = lines;
        Ok(())
    }
}

fn range(edit: &Edit<'_>) -> Result<LineRange, Refusal> {
    match &*edit.mode {
        ConfigMode::Line(range) => Ok(*range),
        _ => Err("this command needs a line's mode: enter line console 0 or line vty first".into()),
    }
}

fn enter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let numbers: Vec<u8> =
        args.numbers().into_iter().filter_map(|number| u8::try_from(number).ok()).collect();
    let first = need(numbers.first().copied())?;
    let last = numbers.get(1).copied().unwrap_or(first);
    *edit.mode = ConfigMode::Line(match args.words.contains(&"console") {
        true => LineRange::Console,
        false if first > last => {
            return Err(format!("line vty {first} {last}: the first line is higher than the last one").into());
        }
        false => LineRange::Vty(first, last),
    });
    Ok(())
}

/// Changes every terminal line that the mode configures.
fn change(edit: &mut Edit<'_>, with: impl Fn(&mut TerminalLine)) -> Result<(), Refusal> {
    TerminalLine::each(edit, &mut |line, _| {
        with(line);
        Ok(())
    })
}

fn nothing(_: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    Ok(())
}

fn timeout(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let numbers = args.numbers();
    let seconds = |at: usize| numbers.get(at).and_then(|number| u32::try_from(*number).ok()).unwrap_or(0);
    let timeout_s = match args.form {
        Form::Set => seconds(0) * 60 + seconds(1),
        Form::No => 0,
        Form::Default => TerminalLine::default().exec_timeout_s,
    };
    change(edit, |line| line.exec_timeout_s = timeout_s)
}

fn print_timeout(line: &TerminalLine) -> Vec<String> {
    if line.exec_timeout_s == TerminalLine::default().exec_timeout_s {
        return Vec::new();
    }
    vec![format!("exec-timeout {} {}", line.exec_timeout_s / 60, line.exec_timeout_s % 60)]
}

fn login(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let no_login = args.form == Form::No;
    if no_login {
        edit.notices.push("% Warning: whoever reaches this line has a session without a login".into());
    } else if args.form == Form::Set && !args.words.contains(&"local") {
        edit.notices
            .push("% A line has no password of its own: login local asks for the users of username".into());
    }
    change(edit, |line| line.no_login = no_login)
}

fn transport(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if range(edit)? == LineRange::Console {
        return Err("transport input: the console has no network: enter it under line vty".into());
    }
    let has = |word: &str| args.words.contains(&word);
    let transport = match args.form {
        Form::Set => match (has("ssh") || has("all"), has("telnet") || has("all")) {
            (false, false) => Transport::None,
            (true, false) => Transport::Ssh,
            (false, true) => Transport::Telnet,
            (true, true) => Transport::All,
        },
        Form::No | Form::Default => Transport::default(),
    };
    if transport.telnet() {
        edit.notices.push(
            "% Warning: telnet sends names, secrets and commands in plain text over the network".into(),
        );
    }
    change(edit, |line| line.transport = transport)
}

fn print_transport(line: &TerminalLine) -> Vec<String> {
    let words = match line.transport {
        Transport::None => return Vec::new(),
        Transport::Ssh => "ssh",
        Transport::Telnet => "telnet",
        Transport::All => "ssh telnet",
    };
    vec![format!("transport input {words}")]
}

/// The sections of the running configuration: the line that leads to the mode, and the settings.
pub fn sections(config: &Config) -> Vec<Vec<String>> {
    let lines = &config.access.lines;
    let mut list = Vec::new();
    let mut add = |range: LineRange, line: &TerminalLine| {
        if *line != TerminalLine::default() {
            let under = crate::setting::print(LINES, line);
            list.push(
                std::iter::once(range.words())
                    .chain(under.into_iter().map(|line| format!(" {line}")))
                    .collect(),
            );
        }
    };
    add(LineRange::Console, &lines.console);
    let mut first = 0;
    while let Some(line) = lines.vty.get(first) {
        let alike = lines.vty[first..].iter().take_while(|other| *other == line).count();
        let last = first + alike - 1;
        let number = |at: usize| u8::try_from(at).unwrap_or(u8::MAX);
        add(LineRange::Vty(number(first), number(last)), line);
        first = last + 1;
    }
    list
}

fn clear(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let number = need(args.number())?;
    let name =
        if args.words.contains(&"console") { format!("con {number}") } else { format!("vty {number}") };
    if !exec.backend.clear_line(&name) {
        return Err(format!("there is no session on {name}: see show users").into());
    }
    Ok(Outcome::Text("[OK]\n".into()))
}
