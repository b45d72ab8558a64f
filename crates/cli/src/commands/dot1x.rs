//! Access control of ports: `dot1x ...`, `authentication ...` and `mab`; the commands that show and end sessions.

use super::interface::port;
use crate::args::{Args, Form, Kind};
use crate::backend::{AuthenticationFilter, Refusal};
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::outcome::Outcome;
use crate::render::dot1x as text;
use crate::setting::{Choice, Flag, Line, Number, Setting};
use crate::tree::{Node, arg, kw, number};
use crate::view::{AccessControl, AuthenticationSessions, Dot1x, Mab, RadiusServers};
use lanyard_config::{Config, Interface, PortAccess};
use lanyard_dot1x::{Control, Fail, HostMode, Reauthenticate, Violation};
use lanyard_types::VlanId;

/// The longest timer, in seconds.
const MAX_TIMER: u64 = 65_535;

/// In global configuration.
pub const GLOBAL: &[Line<Config>] = &[Setting::of(
    "dot1x system-auth-control",
    "Enable or Disable SysAuthControl",
    &Flag(field!(Config, dot1x)),
)
.line()];

/// Help for keywords that end no line, in global configuration.
pub const GROUPS: &[(&str, &str)] = &[("dot1x", "IEEE 802.1X Global Configuration Commands")];

/// Under an interface.
pub const PORT: &[Line<Interface>] = &[
    Line::own("authentication event", EVENT, print_events),
    Setting::of(
        "authentication host-mode",
        "Set the Host mode for authentication on this interface",
        &Choice {
            field: field!(Interface, access.host_mode),
            of: &[
                ("multi-auth", HostMode::MultiAuth, "Multiple Authentication Mode"),
                ("multi-host", HostMode::Multi, "Multiple Host Mode"),
                ("single-host", HostMode::Single, "SINGLE HOST Mode"),
            ],
        },
    )
    .on(port)
    .line(),
    Line::own("authentication", ORDER, |interface| {
        let first = interface.access.mab_first;
        first.then(|| "authentication order mab dot1x".to_owned()).into_iter().collect()
    }),
    Setting::of(
        "authentication port-control",
        "Set the port-control value",
        &Choice {
            field: field!(Interface, access.control),
            of: &[
                ("auto", Control::Auto, "PortState will be set to AUTO"),
                ("force-authorized", Control::ForceAuthorized, "PortState set to Authorized"),
                ("force-unauthorized", Control::ForceUnauthorized, "PortState set to UnAuthorized"),
            ],
        },
    )
    .on(port)
    .line(),
    Setting::of(
        "authentication periodic",
        "Enable or Disable Reauthentication for this port",
        &Flag(field!(Interface, access.periodic)),
    )
    .on(port)
    .line(),
    Line::own("authentication timer", REAUTHENTICATE, print_reauthenticate),
    Setting::of(
        "authentication timer restart",
        "Interval in seconds after which an attempt should be made to authenticate an unauthorized port",
        &Number::any(field!(Interface, access.restart_s), 1, MAX_TIMER, "Time in seconds"),
    )
    .on(port)
    .line(),
    Setting::of(
        "authentication violation",
        "Configure action to take on security violations",
        &Choice {
            field: field!(Interface, access.violation),
            of: &[
                ("protect", Violation::Protect, "Protect the port"),
                ("restrict", Violation::Restrict, "Restrict the port"),
                ("shutdown", Violation::Shutdown, "Shutdown the port"),
            ],
        },
    )
    .on(port)
    .line(),
    Setting::of(
        "mab",
        "MAC Authentication Bypass Interface Config Commands",
        &Flag(field!(Interface, access.mab)),
    )
    .on(port)
    .line(),
    Setting::of(
        "dot1x pae authenticator",
        "Set pae type as Authenticator",
        &Flag(field!(Interface, access.authenticator)),
    )
    .on(port)
    .line(),
    Setting::of(
        "dot1x timeout quiet-period",
        "QuietPeriod in Seconds",
        &Number::any(field!(Interface, access.quiet_s), 1, MAX_TIMER, "Time in seconds"),
    )
    .on(port)
    .line(),
    Setting::of(
        "dot1x timeout supp-timeout",
        "Timeout for supplicant reply",
        &Number::any(field!(Interface, access.supplicant_s), 1, MAX_TIMER, "Time in seconds"),
    )
    .on(port)
    .line(),
    Setting::of(
        "dot1x timeout tx-period",
        "Timeout for supplicant retries",
        &Number::any(field!(Interface, access.tx_s), 1, MAX_TIMER, "Time in seconds"),
    )
    .on(port)
    .line(),
    Setting::of(
        "dot1x max-req",
        "Max No. of Retries",
        &Number::any(field!(Interface, access.max_req), 1, 10, "Number of retries"),
    )
    .on(port)
    .line(),
    Setting::of(
        "dot1x max-reauth-req",
        "Max No. of Reauthentication Attempts",
        &Number::any(field!(Interface, access.max_reauth_req), 1, 10, "Number of retries"),
    )
    .on(port)
    .line(),
];

/// Help for keywords that end no line, under an interface.
pub const PORT_GROUPS: &[(&str, &str)] = &[
    ("authentication", "Auth Manager Interface Configuration Commands"),
    ("authentication event", "Set action for authentication events"),
    ("authentication timer", "Set authentication timer values"),
    ("dot1x", "Interface Config Commands for IEEE 802.1X"),
    ("dot1x pae", "Set 802.1x interface pae type"),
    ("dot1x timeout", "Various Timeouts"),
];

const VLAN: Node =
    kw("vlan", "Configure authorization VLAN").then(&[arg(Kind::Vlan, "Enter a VLAN ID").set(event)]);
const AUTHORIZE: Node = kw("authorize", "Authorize the port").then(&[VLAN]);
const ACTION: Node = kw("action", "Required action for the event").then(&[AUTHORIZE]);
const FAIL_ACTION: Node = kw("action", "Required action for the event")
    .then(&[AUTHORIZE, kw("next-method", "Move to next authentication method").set(event)]);

const EVENT: Node = kw("fail", "Configure failed authentication actions/parameters").no(event).then(&[
    FAIL_ACTION,
    kw("retry", "Number of times to retry failed authentications")
        .then(&[number(0, 5, "Number of retries").then(&[ACTION])]),
]);
const NO_RESPONSE: Node =
    kw("no-response", "Configure non-responsive host actions").no(event).then(&[ACTION]);
const SERVER: Node = kw("server", "Configure actions for AAA server events").then(&[
    kw("alive", "Configure AAA server alive actions").no(event).then(&[kw(
        "action",
        "Required action for the event",
    )
    .then(&[kw("reinitialize", "Reinitialize all authorized clients").set(event)])]),
    kw("dead", "Configure AAA server dead actions").no(event).then(&[ACTION]),
]);

/// Lines that the entry of `authentication event fail` prints as well.
pub const PORT_MORE: &[Line<Interface>] =
    &[Line::unprinted("authentication event", NO_RESPONSE), Line::unprinted("authentication event", SERVER)];

const ORDER: Node = kw("order", "Add an authentication method to the order list").no(order).then(&[
    kw("dot1x", "Authentication method dot1x allowed").set(order).then(&[kw(
        "mab",
        "Authentication method mab allowed",
    )
    .set(order)]),
    kw("mab", "Authentication method mab allowed").set(order).then(&[kw(
        "dot1x",
        "Authentication method dot1x allowed",
    )
    .set(order)]),
]);

const REAUTHENTICATE: Node =
    kw("reauthenticate", "Time in seconds after which an automatic re-authentication should be initiated")
        .no(reauthenticate)
        .then(&[
            kw("server", "Obtain re-authentication timeout value from the server").set(reauthenticate),
            number(1, MAX_TIMER, "Enter a value between 1 and 65535").set(reauthenticate),
        ]);

/// Edits the access control of every interface of the mode.
fn each(edit: &mut Edit<'_>, args: &Args, set: impl Fn(&mut PortAccess)) -> Result<(), Refusal> {
    edit.each_interface(|interface, name| {
        if port(interface, name, args.form, "")? {
            set(&mut interface.access);
        }
        Ok(())
    })
}

fn event(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vlan: Option<VlanId> = args.vlan().filter(|_| args.form == Form::Set);
    let set = args.form == Form::Set;
    match args.among(&[
        ("fail", "fail"),
        ("no-response", "no-response"),
        ("alive", "alive"),
        ("dead", "dead"),
    ]) {
        Some("no-response") => return each(edit, args, |access| access.no_response = vlan),
        Some("alive") => return each(edit, args, |access| access.reinitialize = set),
        Some("dead") => return each(edit, args, |access| access.server_dead = vlan),
        _ => {}
    }
    let retry = args.number().and_then(|number| u8::try_from(number).ok()).unwrap_or(2);
    let fail = match (set, vlan) {
        (true, Some(vlan)) => Fail::Authorize(vlan, retry),
        (true, None) => Fail::NextMethod,
        (false, _) => Fail::Restart,
    };
    each(edit, args, |access| access.fail = fail)
}

fn print_events(interface: &Interface) -> Vec<String> {
    let access = &interface.access;
    let fail = match access.fail {
        Fail::Restart => None,
        Fail::NextMethod => Some("fail action next-method".to_owned()),
        Fail::Authorize(vlan, 2) => Some(format!("fail action authorize vlan {vlan}")),
        Fail::Authorize(vlan, retry) => Some(format!("fail retry {retry} action authorize vlan {vlan}")),
    };
    let dead = access.server_dead.map(|vlan| format!("server dead action authorize vlan {vlan}"));
    let none = access.no_response.map(|vlan| format!("no-response action authorize vlan {vlan}"));
    let alive = access.reinitialize.then(|| "server alive action reinitialize".to_owned());
    [fail, dead, none, alive]
        .into_iter()
        .flatten()
        .map(|event| format!("authentication event {event}"))
        .collect()
}

fn order(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    // The first method is the word after `order`.
    let first = args.words.iter().skip_while(|word| **word != "order").nth(1);
    let mab_first = args.form == Form::Set && first == Some(&"mab");
    each(edit, args, |access| access.mab_first = mab_first)
}

fn reauthenticate(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let seconds = args.number_u32();
    let value = match (args.form, seconds) {
        (Form::Set, Some(seconds)) => Reauthenticate::After(seconds),
        (Form::Set, None) => Reauthenticate::Server,
        (Form::No | Form::Default, _) => Reauthenticate::default(),
    };
    each(edit, args, |access| access.reauthenticate = value)
}

fn print_reauthenticate(interface: &Interface) -> Vec<String> {
    match interface.access.reauthenticate {
        value if value == Reauthenticate::default() => Vec::new(),
        Reauthenticate::After(seconds) => vec![format!("authentication timer reauthenticate {seconds}")],
        Reauthenticate::Server => vec!["authentication timer reauthenticate server".into()],
    }
}

const INTERFACE: Node = kw("interface", "One interface").then(&[arg(Kind::Interface, "Interface")]);

/// `show authentication ...`.
pub const SHOW_AUTHENTICATION: Node = kw("authentication", "Shows Auth Manager registrations or sessions")
    .then(&[kw("sessions", "Show info of the sessions at all interfaces, or at one")
        .exec(sessions)
        .options(&[
            kw("details", "Show detailed information"),
            INTERFACE,
            kw("mac", "The session of one host").then(&[arg(Kind::Mac, "MAC address")]),
        ])]);
/// `show dot1x ...`.
pub const SHOW_DOT1X: Node = kw("dot1x", "IEEE 802.1X information")
    .exec(dot1x)
    .options(&[kw("all", "Show 802.1x info of all interfaces"), INTERFACE]);
/// `show mab ...`.
pub const SHOW_MAB: Node = kw("mab", "MAC Authentication Bypass information")
    .exec(mab)
    .options(&[kw("all", "Show MAB info of all interfaces"), INTERFACE]);
/// `show aaa ...`.
pub const SHOW_AAA: Node =
    kw("aaa", "Show AAA values").then(&[kw("servers", "State and counters of RADIUS servers").exec(servers)]);
/// `clear authentication ...`.
pub const CLEAR: Node = kw("authentication", "Clear Auth Manager information").then(&[kw(
    "sessions",
    "Clear sessions: their hosts have to be authenticated again",
)
.exec(clear)
.options(&[INTERFACE, kw("mac", "The session of one host").then(&[arg(Kind::Mac, "MAC address")])])]);

/// The ports and sessions that the command shows: those of the interface and of the host that the line names, or all.
fn shown(exec: &mut Exec<'_>, args: &Args) -> AccessControl {
    let mut view = exec.backend.access_control();
    let only = args.interface().map(|name| name.to_string());
    let mac = args.mac();
    view.ports.retain(|port| only.as_ref().is_none_or(|only| *only == port.interface));
    view.sessions.retain(|session| {
        only.as_ref().is_none_or(|only| *only == session.interface)
            && mac.is_none_or(|mac| mac == session.mac)
    });
    view
}

fn sessions(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let sessions = shown(exec, args).sessions;
    let total = sessions.len();
    let details = args.has("details") || args.interface().is_some() || args.mac().is_some();
    let text = if details { text::details } else { text::sessions };
    Ok(exec.present(&AuthenticationSessions { sessions, total }, text))
}

fn dot1x(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = shown(exec, args);
    let all = args.has("all") || args.interface().is_some();
    let interfaces = view.ports.into_iter().filter(|port| port.authenticator).collect();
    let text = if all { text::dot1x } else { text::dot1x_brief };
    Ok(exec.present(&Dot1x { system_auth_control: view.system_auth_control, interfaces }, text))
}

fn mab(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = shown(exec, args);
    let interfaces: Vec<_> = view.ports.into_iter().filter(|port| port.mab).collect();
    let of = |session: &crate::view::AuthenticationSession| session.method == "mab";
    let sessions = view.sessions.into_iter().filter(of).collect();
    Ok(exec.present(&Mab { interfaces, sessions }, text::mab))
}

fn servers(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let servers = exec.backend.access_control().servers;
    Ok(exec.present(&RadiusServers { servers }, text::servers))
}

fn clear(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    exec.backend
        .clear_authentications(&AuthenticationFilter { interface: args.interface(), mac: args.mac() })?;
    Ok(Outcome::Text(String::new()))
}
