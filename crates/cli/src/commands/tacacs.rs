//! TACACS+ servers: `tacacs server` and the lines under it, `tacacs-server ...`, `ip tacacs source-interface`, `show tacacs`.

use super::need;
use super::server::{self, HIDDEN_KEY, KEY_0, KEY_7};
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::mode::ConfigMode;
use crate::outcome::Outcome;
use crate::render::tacacs as text;
use crate::setting::{Line, Number, Setting, Target};
use crate::tree::{Node, arg, kw, number};
use lanyard_config::tacacs::{MAX_TACACS_KEY, MAX_TACACS_NAME, MAX_TACACS_SERVERS, TacacsServer};
use lanyard_config::text::reference;
use lanyard_config::{Config, InterfaceName};

const CLEAR_KEY: &str = "The UNENCRYPTED (cleartext) shared key";
const KEY: Kind = Kind::Line(MAX_TACACS_KEY);

/// In global configuration.
pub const GLOBAL: &[Line<Config>] = &[
    Setting::of(
        "tacacs-server timeout",
        "Time to wait for a TACACS server to reply",
        &Number::any(field!(Config, tacacs.timeout_s), 1, 1000, "Wait time (default 5 seconds)"),
    )
    .line(),
    Line::own(
        "tacacs-server",
        kw("key", "Set TACACS+ encryption key.").no(default_key).then(&[
            KEY_0.then(&[arg(KEY, CLEAR_KEY).set(default_key)]),
            KEY_7.then(&[HIDDEN_KEY.set(default_key)]),
            arg(KEY, CLEAR_KEY).set(default_key),
        ]),
        |config| config.tacacs.key.iter().map(|key| format!("tacacs-server key 0 {key}")).collect(),
    ),
    Line::unprinted("tacacs", ENTRY),
    // The older form of `tacacs server`: the server's name is its address.
    Line::unprinted(
        "tacacs-server",
        kw("host", "Specify a TACACS server").then(&[
            arg(Kind::Ipv4, "IP address of TACACS server").run(host).options(HOST),
            arg(Kind::Ipv6, "IPv6 address of TACACS server").run(host).options(HOST),
        ]),
    ),
];

const HOST: &[Node] = &[
    kw("key", "per-server encryption key").then(&[
        KEY_0.then(&[arg(KEY, CLEAR_KEY)]),
        KEY_7.then(&[HIDDEN_KEY]),
        arg(KEY, CLEAR_KEY),
    ]),
    kw("port", "TCP port for TACACS+ server (default is 49)").then(&[number(1, 65_535, "Port number")]),
    kw("timeout", "Time to wait for this TACACS server to reply").then(&[number(1, 1000, "Wait time")]),
];

/// In global configuration. The line names an interface, so the running configuration prints it after the interfaces.
pub const AFTER: &[Line<Config>] =
    &[Line::own(
        "ip tacacs",
        kw("source-interface", "Specify interface for source address in TACACS packets")
            .no(source)
            .then(&[arg(Kind::Interface, "Interface").run(source)]),
        |config| {
            let line = |name: &InterfaceName| format!("ip tacacs source-interface {}", reference(name));
            config.tacacs.source.iter().map(line).collect()
        },
    )];

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[
    ("tacacs", "TACACS server configuration command"),
    ("tacacs-server", "Modify TACACS query parameters"),
    ("ip tacacs", "TACACS configuration commands"),
];

const ENTRY: Node = kw("server", "Server configuration").then(&[arg(
    Kind::Word("WORD", MAX_TACACS_NAME),
    "Name for the tacacs server configuration",
)
.run(enter)]);

/// `(config-server-tacacs)#`.
pub const SERVER: &[Line<TacacsServer>] = &[
    Line::own(
        "address",
        kw("ipv4", "IPv4 Address").then(&[arg(Kind::Ipv4, "IPv4 Address of tacacs server").run(address)]),
        |server| {
            let line =
                |at: std::net::IpAddr| format!("address {} {at}", if at.is_ipv4() { "ipv4" } else { "ipv6" });
            server.address.map(line).into_iter().collect()
        },
    ),
    Line::unprinted(
        "address",
        kw("ipv6", "IPv6 Address").then(&[arg(Kind::Ipv6, "IPv6 Address of tacacs server").run(address)]),
    ),
    Line::own(
        "",
        kw("key", "Per-server encryption key").no(key).then(&[
            KEY_0.then(&[arg(KEY, CLEAR_KEY).set(key)]),
            KEY_7.then(&[HIDDEN_KEY.set(key)]),
            arg(KEY, CLEAR_KEY).set(key),
        ]),
        |server| server.key.iter().map(|key| format!("key 0 {key}")).collect(),
    ),
    Setting::of(
        "port",
        "TCP port for TACACS+ server (default is 49)",
        &Number::any(field!(TacacsServer, port), 1, 65_535, "Port number"),
    )
    .line(),
    Setting::of(
        "timeout",
        "Time to wait for this TACACS server to reply (overrides default)",
        &Number::any(field!(TacacsServer, timeout_s), 1, 1000, "Wait time"),
    )
    .line(),
];

/// Help for keywords under a server that end no line.
pub const SERVER_GROUPS: &[(&str, &str)] = &[("address", "Specify the tacacs server address")];

/// `show tacacs`.
pub const SHOW: Node = kw("tacacs", "Shows tacacs+ server statistics").exec(show);

fn show(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.tacacs();
    Ok(exec.present(&view, text::servers))
}

fn enter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let limits = ("TACACS+", "tacacs", MAX_TACACS_SERVERS);
    if let Some(name) = server::enter(&mut edit.config.tacacs.servers, args, limits)? {
        *edit.mode = ConfigMode::TacacsServer(name);
    }
    Ok(())
}

fn each(edit: &mut Edit<'_>, change: impl Fn(&mut TacacsServer)) -> Result<(), Refusal> {
    TacacsServer::each(edit, &mut |server, _| {
        change(server);
        Ok(())
    })
}

fn address(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let made = server::address(args)?;
    let set = args.form == Form::Set;
    each(edit, |server| server.address = set.then_some(made))
}

fn key(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let key = server::key(args)?;
    each(edit, |server| server.key.clone_from(&key))
}

fn default_key(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.tacacs.key = server::key(args)?;
    Ok(())
}

fn host(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let made = server::address(args)?;
    let servers = &mut edit.config.tacacs.servers;
    if args.form != Form::Set {
        servers.retain(|(_, server)| server.address != Some(made));
        return Ok(());
    }
    let mut server = TacacsServer { address: Some(made), ..TacacsServer::default() };
    // `port` and `timeout` are each followed by a number.
    let mut numbers = args.numbers().into_iter();
    for word in &args.words {
        match *word {
            "port" => server.port = need(numbers.next().and_then(|port| u16::try_from(port).ok()))?,
            "timeout" => server.timeout_s = Some(need(numbers.next().and_then(|s| u32::try_from(s).ok()))?),
            "key" => server.key = server::key(args)?,
            _ => {}
        }
    }
    if let Some((_, held)) = servers.iter_mut().find(|(_, held)| held.address == Some(made)) {
        *held = server;
        return Ok(());
    }
    let named = Args { values: vec![crate::args::Value::Text(made.to_string())], ..args.clone() };
    server::enter(servers, &named, ("TACACS+", "tacacs", MAX_TACACS_SERVERS))?;
    if let Some(held) = edit.config.tacacs.server_mut(&made.to_string()) {
        *held = server;
    }
    Ok(())
}

fn source(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.tacacs.source = if args.form == Form::Set { Some(need(args.interface())?) } else { None };
    Ok(())
}
