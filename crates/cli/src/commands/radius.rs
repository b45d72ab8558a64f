//! RADIUS servers: `radius server` and the lines under it, `radius-server ...`, `ip radius source-interface`.

use super::need;
use super::server::{self, HIDDEN_KEY, KEY_0, KEY_7};
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::mode::ConfigMode;
use crate::setting::{Line, Number, Setting, Target};
use crate::tree::{Node, arg, kw, number};
use lanyard_config::dot1x::{
    MAX_RADIUS_KEY, MAX_RADIUS_NAME, MAX_RADIUS_SERVERS, RadiusAddress, RadiusServer,
};
use lanyard_config::text::reference;
use lanyard_config::{Config, InterfaceName};

/// In global configuration.
pub const GLOBAL: &[Line<Config>] = &[
    Setting::of(
        "radius-server timeout",
        "Time to wait for a RADIUS server to reply",
        &Number::any(field!(Config, radius.timeout_s), 1, 1000, "Wait time (default 5 seconds)"),
    )
    .line(),
    Setting::of(
        "radius-server retransmit",
        "Specify the number of retries to active server",
        &Number::any(
            field!(Config, radius.retransmit),
            0,
            100,
            "Number of retries for a transaction (default is 3)",
        ),
    )
    .line(),
    Setting::of(
        "radius-server deadtime",
        "Time to stop using a server that doesn't respond",
        &Number::any(field!(Config, radius.deadtime_min), 0, 1440, "time in minutes"),
    )
    .line(),
    Line::unprinted("radius", ENTRY),
    // Accepted without effect: requests always have these attributes.
    Line::unprinted(
        "radius-server attribute 6",
        kw("on-for-login-auth", "Send attribute 6 in access requests").set(always),
    ),
    Line::unprinted(
        "radius-server attribute 8",
        kw("include-in-access-req", "Send attribute 8 in access requests").set(always),
    ),
    Line::unprinted("radius-server vsa", kw("send", "Send vendor specific attributes").set(always)),
    // Accepted without effect: access control always queries the servers of `radius server`, and uses the VLANs in their answers.
    Line::unprinted(
        "aaa authentication dot1x default group",
        kw("radius", "Use list of all Radius hosts").set(always),
    ),
    Line::unprinted(
        "aaa authorization network default group",
        kw("radius", "Use list of all Radius hosts").set(always),
    ),
];

/// In global configuration. The line names an interface, so the running configuration prints it after the interfaces.
pub const AFTER: &[Line<Config>] =
    &[Line::own(
        "ip radius",
        kw("source-interface", "Specify interface for source address in RADIUS packets")
            .no(source)
            .then(&[arg(Kind::Interface, "Interface").run(source)]),
        |config| {
            let line = |name: &InterfaceName| format!("ip radius source-interface {}", reference(name));
            config.radius.source.iter().map(line).collect()
        },
    )];

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[
    ("radius", "RADIUS server configuration command"),
    ("radius-server", "Modify defaults RADIUS query parameters"),
    ("radius-server attribute", "Customize selected radius attributes"),
    ("radius-server attribute 6", "Service-Type attribute"),
    ("radius-server attribute 8", "Framed IP address attribute"),
    ("radius-server vsa", "Vendor specific attribute configuration"),
    ("ip radius", "RADIUS configuration commands"),
    ("aaa authentication dot1x", "Set authentication lists for IEEE 802.1x"),
    ("aaa authentication dot1x default", "The default authentication list"),
    ("aaa authentication dot1x default group", "Use Server-group"),
    ("aaa authorization", "Authorization configurations parameters"),
    ("aaa authorization network", "For network services"),
    ("aaa authorization network default", "The default authorization list"),
    ("aaa authorization network default group", "Use Server-group"),
];

const ENTRY: Node = kw("server", "Server configuration").then(&[arg(
    Kind::Word("WORD", MAX_RADIUS_NAME),
    "Name for the radius server configuration",
)
.run(enter)]);

/// `(config-radius-server)#`.
pub const SERVER: &[Line<RadiusServer>] = &[
    Line::own(
        "address",
        kw("ipv4", "IPv4 Address")
            .then(&[arg(Kind::Ipv4, "IPv4 Address of radius server").run(address).then(PORTS)]),
        print_address,
    ),
    Line::unprinted(
        "address",
        kw("ipv6", "IPv6 Address")
            .then(&[arg(Kind::Ipv6, "IPv6 Address of radius server").run(address).then(PORTS)]),
    ),
    Setting::of(
        "retransmit",
        "Number of retries to active server (overrides default)",
        &Number::any(field!(RadiusServer, retransmit), 0, 100, "Number of retries for a transaction"),
    )
    .line(),
    Setting::of(
        "timeout",
        "Time to wait (in seconds) for this radius server to reply",
        &Number::any(
            field!(RadiusServer, timeout_s),
            1,
            1000,
            "Timeout value in seconds to wait for server to reply",
        ),
    )
    .line(),
    Line::own(
        "",
        kw("key", "Per-server encryption key").no(key).then(&[
            KEY_0.then(&[arg(Kind::Line(MAX_RADIUS_KEY), "The UNENCRYPTED (cleartext) shared key").set(key)]),
            KEY_7.then(&[HIDDEN_KEY.set(key)]),
            arg(Kind::Line(MAX_RADIUS_KEY), "The UNENCRYPTED (cleartext) shared key").set(key),
        ]),
        |server| server.key.iter().map(|key| format!("key 0 {key}")).collect(),
    ),
];

/// Help for keywords under a server that end no line.
pub const SERVER_GROUPS: &[(&str, &str)] = &[("address", "Specify the radius server address")];

const ACCT: Node = kw("acct-port", "UDP port for RADIUS accounting server (default is 1813)")
    .then(&[number(1, 65_535, "Port number").run(address)]);
const PORTS: &[Node] = &[
    ACCT,
    kw("auth-port", "UDP port for RADIUS authentication server (default is 1812)").then(&[number(
        1,
        65_535,
        "Port number",
    )
    .run(address)
    .then(&[ACCT])]),
];

fn always(_: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    Ok(())
}

fn enter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let limits = ("RADIUS", "radius", MAX_RADIUS_SERVERS);
    if let Some(name) = server::enter(&mut edit.config.radius.servers, args, limits)? {
        *edit.mode = ConfigMode::RadiusServer(name);
    }
    Ok(())
}

/// Edits the server of the mode.
fn each(edit: &mut Edit<'_>, change: impl Fn(&mut RadiusServer)) -> Result<(), Refusal> {
    RadiusServer::each(edit, &mut |server, _| {
        change(server);
        Ok(())
    })
}

fn address(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let made = server::address(args)?;
    // Each of the keywords is followed by a number.
    let mut numbers = args.numbers().into_iter().filter_map(|number| u16::try_from(number).ok());
    let (mut auth_port, mut acct_port) = RadiusAddress::PORTS;
    for word in &args.words {
        match *word {
            "auth-port" => auth_port = need(numbers.next())?,
            "acct-port" => acct_port = need(numbers.next())?,
            _ => {}
        }
    }
    let set = args.form == Form::Set;
    each(edit, |server| server.address = set.then_some(RadiusAddress { address: made, auth_port, acct_port }))
}

fn print_address(server: &RadiusServer) -> Vec<String> {
    let line = |at: RadiusAddress| {
        let family = if at.address.is_ipv4() { "ipv4" } else { "ipv6" };
        format!("address {family} {} auth-port {} acct-port {}", at.address, at.auth_port, at.acct_port)
    };
    server.address.map(line).into_iter().collect()
}

fn key(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let key = server::key(args)?;
    each(edit, |server| server.key.clone_from(&key))
}

fn source(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.radius.source = if args.form == Form::Set { Some(need(args.interface())?) } else { None };
    Ok(())
}
