//! Quality of service at interfaces and of the whole switch: `service-policy`, `mls qos`, and their `show` commands.

use super::need;
use crate::args::{Args, Form, Kind, short};
use crate::backend::Refusal;
use crate::config_view as made;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::outcome::Outcome;
use crate::render::{self, ios_name};
use crate::setting::{Choice, Flag, Line, Setting};
use crate::tree::{Node, arg, kw, number};
use lanyard_config::{
    COS_DSCP_DEFAULT, Config, Interface, InterfaceName, QosPort, QosTrust, Role, input_refusal,
};

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] =
    &[("mls", "Global multilayer switching commands"), ("mls qos map", "QoS map configuration")];

/// Help for keywords that end no line, under an interface.
pub const PORT_GROUPS: &[(&str, &str)] = &[
    ("mls", "Interface multilayer switching commands"),
    ("mls qos", "QoS commands"),
    ("service-policy", "Configure QoS Service Policy"),
];

/// Under global configuration, before class maps and policy maps.
pub const LINES: &[Line<Config>] = &[
    Setting::of(
        "mls qos",
        "Set the class of service and the DSCP of frames to 0 at ports that neither trust nor classify",
        &Flag(field!(Config, qos.untrusted)),
    )
    .line(),
    Line::own("mls qos map", COS_DSCP, print_cos_dscp),
];

const DSCP: Node = number(0, 63, "DSCP");
const COS_DSCP: Node = kw("cos-dscp", "DSCP by class of service, at ports with mls qos trust cos")
    .no(cos_dscp)
    .then(&[DSCP.then(&[DSCP.then(&[
        DSCP.then(&[DSCP.then(&[DSCP.then(&[DSCP.then(&[DSCP.then(&[DSCP.run(cos_dscp)])])])])])
    ])])]);

/// Under an interface.
pub const PORT: &[Line<Interface>] = &[
    Setting::of(
        "mls qos trust",
        "Trust a value of the frame",
        &Choice {
            field: field!(Interface, qos.trust),
            of: &[
                ("cos", Some(QosTrust::Cos), "The class of service"),
                ("dscp", Some(QosTrust::Dscp), "The DSCP"),
            ],
        },
    )
    .on(|interface, name, form, words| {
        if form == Form::Set {
            may_classify(interface, name, words)?;
        }
        Ok(true)
    })
    .line(),
    Line::own("service-policy", ATTACH_INPUT, |interface| print_policy("input", &interface.qos.input)),
    Line::own("service-policy", ATTACH_OUTPUT, |interface| print_policy("output", &interface.qos.output)),
];

const ATTACH_INPUT: Node = kw("input", "Assign policy-map to the input of an interface")
    .no(attach)
    .then(&[arg(super::class_map::NAME, "Policy-map name").run(attach)]);
const ATTACH_OUTPUT: Node = kw("output", "Assign policy-map to the output of an interface")
    .no(attach)
    .then(&[arg(super::class_map::NAME, "Policy-map name").run(attach)]);

fn print_policy(way: &str, policy: &Option<String>) -> Vec<String> {
    policy.iter().map(|name| format!("service-policy {way} {name}")).collect()
}

fn print_cos_dscp(config: &Config) -> Vec<String> {
    let map = config.qos.cos_dscp;
    if map == COS_DSCP_DEFAULT {
        return Vec::new();
    }
    let words: Vec<String> = map.iter().map(ToString::to_string).collect();
    vec![format!("mls qos map cos-dscp {}", words.join(" "))]
}

fn cos_dscp(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.qos.cos_dscp = COS_DSCP_DEFAULT;
    if args.form == Form::Set {
        let of = edit.config.qos.cos_dscp.iter_mut();
        of.zip(args.numbers()).for_each(|(dscp, number)| *dscp = u8::try_from(number).unwrap_or_default());
    }
    Ok(())
}

/// Refuses an interface at which frames are not classified, such as a VLAN interface or a member of a port-channel.
fn may_classify(interface: &Interface, name: &InterfaceName, words: &str) -> Result<(), Refusal> {
    if let Some((channel, _)) = interface.aggregation.group {
        return Err(format!(
            "{name} is a member of port-channel {channel}: enter {words} at interface port-channel {channel}"
        )
        .into());
    }
    match (name, interface.role) {
        (InterfaceName::Vlan(_), _) => {
            Err(format!("{} is a VLAN interface: enter {words} at the ports of the VLAN", ios_name(name))
                .into())
        }
        (_, Role::Switchport | Role::Routed) => Ok(()),
        (_, Role::Subinterface(_)) => Err(format!(
            "{name} is a subinterface: enter {words} at its routed port; match vlan tells its frames apart"
        )
        .into()),
        (_, Role::Unset) => {
            Err(format!("{name} is not a port of the switch: enter switchport or no switchport first").into())
        }
    }
}

/// Refuses to add an interface with QoS settings to a port-channel, which has these settings for all its members.
pub(super) fn may_join(interface: &Interface, name: &InterfaceName) -> Result<(), Refusal> {
    if interface.qos == QosPort::default() {
        return Ok(());
    }
    Err(format!(
        "Command rejected: {name} has a service policy or mls qos trust: remove it, and enter it at the port-channel."
    )
    .into())
}

fn attach(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let is_input = need(args.among(&[("input", true), ("output", false)]))?;
    let way = if is_input { "input" } else { "output" };
    let name = args.text();
    if args.form == Form::Set {
        let name = need(name.as_ref())?;
        let missing = || format!("policy map {} not configured", short(name));
        let policy = edit.config.qos.policies.get(name).ok_or_else(missing)?;
        if let Some(reason) = input_refusal(name, policy).filter(|_| is_input) {
            return Err(reason.into());
        }
    }
    edit.each_interface(|interface, of| {
        if args.form == Form::Set {
            may_classify(interface, of, "service-policy")?;
        }
        let slot = if is_input { &mut interface.qos.input } else { &mut interface.qos.output };
        match (args.form, &name, slot.as_ref()) {
            (Form::Set, Some(new), Some(held)) if held != new => {
                return Err(format!(
                    "policy map {held} is already attached at {}: enter no service-policy {way} first",
                    ios_name(of)
                )
                .into());
            }
            (Form::No | Form::Default, Some(old), held) if held != Some(old) => {
                return Err(format!("{} has no service-policy {way} {}", ios_name(of), short(old)).into());
            }
            (Form::Set, _, _) => slot.clone_from(&name),
            (Form::No | Form::Default, ..) => *slot = None,
        }
        Ok(())
    })
}

const INTERFACE: Node = arg(Kind::Interface, "Interface");
const INPUT: Node = kw("input", "Service policies of received frames").exec(show_interfaces);
const OUTPUT: Node = kw("output", "Service policies of sent frames").exec(show_interfaces);

/// `show class-map`.
pub const SHOW_CLASS: Node = kw("class-map", "Show QoS Class Map").exec(show_classes).then(&[arg(
    super::class_map::NAME,
    "Class map name",
)
.exec(show_classes)]);
/// `show policy-map`.
pub const SHOW_POLICY: Node = kw("policy-map", "Show QoS Policy Map").exec(show_policies).then(&[
    kw("interface", "Show Policy-Map on interfaces, with counters").exec(show_interfaces).then(&[
        INPUT,
        OUTPUT,
        INTERFACE.exec(show_interfaces).then(&[INPUT, OUTPUT]),
    ]),
    arg(super::class_map::NAME, "Policy-map name").exec(show_policies),
]);
/// `show mls qos`.
pub const SHOW_MLS: Node =
    kw("mls", "Show multilayer switching information")
        .then(&[kw("qos", "Show QoS information").exec(show_mls)]);

fn show_classes(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = made::class_maps(exec.backend.running(), args.text().as_deref());
    if let Some(name) = args.text().filter(|_| view.class_maps.is_empty()) {
        return Err(format!("class map {} not configured", short(&name)).into());
    }
    Ok(exec.present(&view, render::class_maps))
}

fn show_policies(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = made::policy_maps(exec.backend.running(), args.text().as_deref());
    if let Some(name) = args.text().filter(|_| view.policy_maps.is_empty()) {
        return Err(format!("policy map {} not configured", short(&name)).into());
    }
    Ok(exec.present(&view, render::policy_maps))
}

fn show_interfaces(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let way = args.among(&[("input", "input"), ("output", "output")]);
    let only = args.interface().map(|name| name.to_string());
    let mut view = exec.backend.service_policies();
    view.service_policies.retain(|policy| {
        way.is_none_or(|way| policy.direction == way)
            && only.as_ref().is_none_or(|only| policy.interface == *only)
    });
    let config = exec.backend.running().clone();
    Ok(exec.present(&view, |view| render::service_policies(view, &config)))
}

fn show_mls(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = made::mls_qos(exec.backend.running());
    Ok(exec.present(&view, render::mls_qos))
}
