//! `vrf definition V`, and `vrf forwarding V` under an interface.
//!
//! Invariant: every VRF that the configuration refers to is defined.

use super::{forwarding, ip, need};
use crate::args::{Args, Form, Kind, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::mode::ConfigMode;
use crate::setting::{Line, Setting, Target, Text};
use crate::tree::{Node, arg, kw};
use lanyard_config::layer3::{HelperVrf, TrackObject, Vrf};
use lanyard_config::{Config, Interface, MonitorSession};

/// The maximum number of VRFs: planes have one table for each, and one for the switch itself.
const MAX_VRFS: usize = 31;
/// The maximum length of a name, in bytes.
pub const MAX_NAME: usize = 32;
/// The maximum length of a description, in bytes.
const MAX_DESCRIPTION: usize = 240;

/// The name of a VRF as an argument of other commands.
pub const NAME: Node = arg(Kind::Word("VRF-NAME", MAX_NAME), "VRF name");

/// The lines under global configuration, after `vrf`.
pub const ENTRY: Node = kw("definition", "VRF definition configuration").then(&[arg(
    Kind::Word("VRF-NAME", MAX_NAME),
    "VRF name, which is that of its network namespace",
)
.run(definition)]);

/// The lines of the mode `(config-vrf)#`.
pub const LINES: &[Line<Vrf>] = &[
    Setting::of(
        "description",
        "VRF specific description",
        &Text {
            field: field!(Vrf, description),
            kind: Kind::Line(MAX_DESCRIPTION),
            help: "Up to 240 characters describing this VRF",
        },
    )
    .line(),
    Setting::of(
        "rd",
        "Specify Route Distinguisher",
        &Text {
            field: field!(Vrf, rd),
            kind: Kind::Word("ASN:nn or IP-address:nn", 24),
            help: "Route Distinguisher",
        },
    )
    .then(|vrf, _| vrf.rd.as_deref().map_or(Ok(()), check_distinguisher))
    .line(),
    forwarding::VRF,
    Line::own("", FAMILY, print_families),
    // The entry of `address-family` prints this line.
    Line::unprinted(
        "",
        kw("exit-address-family", "Exit from VRF address-family configuration mode").set(exit_family),
    ),
];

/// The help texts of keywords that do not end a line.
pub const GROUPS: &[(&str, &str)] =
    &[("ip", "VRF specific IP configuration"), ("ip forwarding", "Configure IP forwarding")];

const FAMILY: Node = kw("address-family", "Enter Address Family command mode")
    .then(&[kw("ipv4", "Address family").run(family), kw("ipv6", "Address family").run(family)]);

fn print_families(vrf: &Vrf) -> Vec<String> {
    let families = [(vrf.ipv4, "ipv4"), (vrf.ipv6, "ipv6")];
    let on = families.into_iter().filter(|(on, _)| *on);
    on.flat_map(|(_, family)| [format!("address-family {family}"), "exit-address-family".into()]).collect()
}

/// The rest of `vrf forwarding` and `ip vrf forwarding`.
const TABLE: Node = kw("forwarding", "Configure forwarding table").no(forwarding_table).then(&[arg(
    Kind::Word("VRF-NAME", MAX_NAME),
    "VRF name",
)
.run(forwarding_table)]);

/// The older form of `vrf forwarding`.
pub const IP_FORWARDING: Line<Interface> = Line::unprinted("ip vrf", TABLE);

/// `vrf forwarding` under an interface.
pub const FORWARDING: Line<Interface> = Line::Own {
    under: "vrf",
    node: TABLE,
    print: |interface| interface.layer3.vrf.iter().map(|vrf| format!("vrf forwarding {vrf}")).collect(),
};

/// The VRF that a line names; `None` when it names none.
///
/// # Errors
/// When the VRF is not defined.
pub fn known(config: &Config, args: &Args) -> Result<Option<String>, Refusal> {
    let Some(name) = args.has("vrf").then(|| args.text()).flatten() else { return Ok(None) };
    if config.vrfs.contains_key(&name) { Ok(Some(name)) } else { Err(missing(&name)) }
}

/// The refusal of a VRF that is not defined.
pub fn missing(name: &str) -> Refusal {
    format!("VRF {} is not configured", short(name)).into()
}

fn definition(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.text())?;
    if args.form != Form::Set {
        return remove(edit, &name);
    }
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !plain || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        let rule = "letters, digits, -, _ and ., beginning with a letter or digit";
        return Err(format!("{} is not a VRF's name: {rule}", short(&name)).into());
    }
    if edit.config.vrfs.len() >= MAX_VRFS && !edit.config.vrfs.contains_key(&name) {
        return Err(format!("there are {MAX_VRFS} VRFs already").into());
    }
    edit.config.vrfs.entry(name.clone()).or_default();
    *edit.mode = ConfigMode::Vrf { name, family: None };
    Ok(())
}

/// Removes a VRF and everything in it.
fn remove(edit: &mut Edit<'_>, name: &str) -> Result<(), Refusal> {
    if edit.config.vrfs.remove(name).is_none() {
        return Err(missing(name));
    }
    let mut emptied = Vec::new();
    for (key, interface) in &mut edit.config.interfaces {
        if interface.layer3.vrf.as_deref() == Some(name) {
            clear(interface);
            emptied.push(crate::render::ios_name(key));
        }
        interface.layer3.helpers.retain(|helper| helper.vrf != HelperVrf::Named(name.to_owned()));
    }
    edit.config.routes.retain(|route| route.vrf.as_deref() != Some(name));
    edit.config.arps.retain(|(vrf, _), _| vrf.as_deref() != Some(name));
    for of_session in edit.config.monitor.values_mut().filter_map(MonitorSession::vrf_mut) {
        if of_session.as_deref() == Some(name) {
            *of_session = None;
        }
    }
    edit.config.tracks.retain(|_, track| match &track.object {
        TrackObject::Route { vrf, .. } => vrf.as_deref() != Some(name),
        TrackObject::LineProtocol(_) => true,
    });
    if !emptied.is_empty() {
        edit.notices.push(format!(
            "% IP addresses from all interfaces in VRF {name} have been removed: {}",
            emptied.join(", ")
        ));
    }
    Ok(())
}

/// Removes an interface from its VRF, with its addresses and VRRP groups; returns true if it had addresses.
fn clear(interface: &mut Interface) -> bool {
    let had = !interface.ipv4.is_empty() || !interface.ipv6.is_empty();
    interface.ipv4.clear();
    interface.ipv6.clear();
    interface.layer3.vrf = None;
    interface.layer3.vrrp.clear();
    had
}

fn forwarding_table(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let vrf = if args.form == Form::Set { Some(need(args.text())?) } else { None };
    if let Some(name) = vrf.as_deref().filter(|name| !edit.config.vrfs.contains_key(*name)) {
        return Err(missing(name));
    }
    let mut notices = Vec::new();
    edit.each_interface(|interface, name| {
        ip::layer3(interface, name)?;
        let before = interface.layer3.vrf.clone();
        if before != vrf && clear(interface) {
            let (which, verb) = match (&vrf, &before) {
                (Some(vrf), _) => (vrf, "enabling"),
                (None, Some(before)) => (before, "disabling"),
                (None, None) => return Ok(()),
            };
            notices.push(format!(
                "% Interface {} IP addresses removed due to {verb} VRF {which}",
                crate::render::ios_name(name)
            ));
        }
        interface.layer3.vrf.clone_from(&vrf);
        Ok(())
    })?;
    edit.notices.extend(notices);
    Ok(())
}

/// Selects the field of a VRF that is true if an address family is enabled.
type Enabled = fn(&mut Vrf) -> &mut bool;

/// The keywords of `address-family`, each with its name and the field of a VRF.
const FAMILIES: &[(&str, (&str, Enabled))] =
    &[("ipv4", ("ipv4", |vrf| &mut vrf.ipv4)), ("ipv6", ("ipv6", |vrf| &mut vrf.ipv6))];

fn family(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let on = args.form == Form::Set;
    let (name, field) = need(args.among(FAMILIES))?;
    Vrf::each(edit, &mut |vrf, _| {
        *field(vrf) = on;
        Ok(())
    })?;
    if let ConfigMode::Vrf { family, .. } = &mut *edit.mode {
        *family = on.then_some(name);
    }
    Ok(())
}

fn exit_family(edit: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    if let ConfigMode::Vrf { family, .. } = &mut *edit.mode {
        *family = None;
    }
    Ok(())
}

/// Checks a route distinguisher (RFC 4364, 4.2): `ASN:nn` or `IP-address:nn`.
fn check_distinguisher(text: &str) -> Result<(), Refusal> {
    let number = |text: &str| text.parse::<u32>().is_ok() && text.bytes().all(|b| b.is_ascii_digit());
    let is_good = text.split_once(':').is_some_and(|(head, tail)| {
        number(tail) && (number(head) || head.parse::<std::net::Ipv4Addr>().is_ok())
    });
    if is_good {
        return Ok(());
    }
    Err(format!("{} is not a route distinguisher: ASN:nn or IP-address:nn", short(text)).into())
}
