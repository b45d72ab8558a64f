//! Global configuration: the tables of its lines, in the order in which the running configuration has them.

use super::{
    aaa, access, access_list, access_parts, aggregation, banner, class_map, discovery, dot1x, errdisable,
    forwarding, fpm, guard, interface, interface_names, line, location, logging, mac, monitor, nd_inspection,
    need, ntp, platform, policy_map, qos, radius, route, sflow, snooping, spanning_tree, ssh, tacacs, track,
    vlan, vrf,
};
use crate::args::{Args, Form, Kind, MAX_WORD, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::setting::{Flag, Line, Setting, Word};
use crate::tree::{Node, kw, number};
use lanyard_config::Config;
use lanyard_pipeline::state::{GlobalState, ReservedAction};

/// The sections of the running configuration that precede those of VLANs, VRFs, tracked objects and interfaces: lines
/// such as `mac address-table limit` also exist in those modes, so they must be printed before them.
pub const BEFORE: &[&[Line<Config>]] = &[
    HOSTNAME,
    access::LINES,
    aaa::LINES,
    GENERAL,
    interface_names::LINES,
    logging::LINES,
    ntp::LINES,
    platform::LINES,
    ssh::LINES,
    mac::LINES,
    spanning_tree::LINES,
    errdisable::LINES,
    discovery::GLOBAL,
    location::LINES,
    snooping::GLOBAL,
    guard::GLOBAL,
    nd_inspection::GLOBAL,
    dot1x::GLOBAL,
    radius::GLOBAL,
    tacacs::GLOBAL,
    aggregation::GLOBAL,
    access_parts::LINES,
    access_list::LINES,
    qos::LINES,
    class_map::LINES,
    policy_map::LINES,
];

/// The sections that follow: they refer to VLANs, VRFs, tracked objects and interfaces.
pub const AFTER: &[&[Line<Config>]] = &[
    access_parts::FILTERS,
    guard::AFTER,
    nd_inspection::AFTER,
    radius::AFTER,
    tacacs::AFTER,
    monitor::LINES,
    sflow::LINES,
    route::ROUTES,
    route::ARPS,
    fpm::LINES,
    banner::LINES,
];

/// The help texts of keywords that do not end a line.
pub const GROUPS: &[(&str, &str)] = &[
    ("errdisable", "Error disable"),
    ("errdisable recovery", "Error disable recovery"),
    ("ip", "Global IP configuration subcommands"),
    ("ip dhcp", "Configure DHCP server and relay parameters"),
    ("ip dhcp relay", "DHCP relay agent parameters"),
    ("ip dhcp relay information", "DHCP relay agent information option"),
    ("ip forwarding", "Configure IP forwarding"),
    ("ipv6", "Global IPv6 configuration commands"),
    ("mac", "MAC configuration"),
    ("mac address-table", "MAC forwarding table"),
    ("spanning-tree", "Spanning Tree Subsystem"),
    ("spanning-tree guard", "Spanning tree guard options"),
    ("spanning-tree loopguard", "Spanning tree loopguard options"),
    ("spanning-tree mst", "Multiple spanning tree configuration"),
    ("spanning-tree pathcost", "Spanning tree pathcost options"),
    ("spanning-tree portfast", "Spanning tree portfast options"),
    ("spanning-tree portfast bpdufilter", "Enable portfast bdpu filter on this switch"),
    ("spanning-tree portfast bpduguard", "Enable portfast bpdu guard on this switch"),
    ("spanning-tree portfast edge", "Spanning tree portfast edge options"),
    ("spanning-tree portfast edge bpdufilter", "Enable portfast bdpu filter on this switch"),
    ("spanning-tree portfast edge bpduguard", "Enable portfast bpdu guard on this switch"),
    ("spanning-tree transmit", "STP transmit parameters"),
    ("vlan", "VLAN commands"),
    ("vlan dot1q", "802.1Q parameters"),
    ("vlan dot1q tag", "Tagging"),
    ("vrf", "VRF commands"),
];

const HOSTNAME: &[Line<Config>] = &[Setting::of(
    "hostname",
    "Set system's network name",
    &Word {
        field: field!(Config, hostname),
        kind: Kind::Word("WORD", MAX_WORD),
        help: "This system's network name",
    },
)
.then(|config, ()| check_hostname(&config.hostname))
.always(|_| true)
.line()];

const GENERAL: &[Line<Config>] = &[
    Setting::of("ip routing", "Enable IP routing", &Flag(field!(Config, ip_routing))).line(),
    Setting::of("ipv6 unicast-routing", "Enable unicast routing", &Flag(field!(Config, ipv6_routing))).line(),
    forwarding::GLOBAL,
    Setting::of(
        "vlan dot1q tag native",
        "Tag the native VLAN on trunks, and drop untagged frames there",
        &Flag(field!(Config, tag_native)),
    )
    .line(),
    route::RELAY_OPTION,
    route::RELAY_POLICY,
    route::RELAY_TRUST_ALL,
    Line::own("", RESERVED, print_reserved),
];

/// Lines that lead to a mode; the mode's own table prints the section.
pub const MODES: &[Line<Config>] = &[
    Line::unprinted("", interface::ENTRY),
    Line::unprinted("", line::ENTRY),
    Line::unprinted("", track::ENTRY),
    Line::unprinted("vlan", vlan::ENTRY),
    Line::unprinted("vrf", vrf::ENTRY),
];

const RESERVED: Node = kw("reserved-address", "Action for frames with destination 01:80:C2:00:00:0X").then(
    &[number(0, 15, "The address's last digit, as a decimal number").no(reserved).then(&[
        kw("drop", "Drop them").run(reserved),
        kw("forward", "Forward them as multicast").run(reserved),
    ])],
);

/// The keywords of `reserved-address N`.
const ACTIONS: &[(&str, ReservedAction)] =
    &[("drop", ReservedAction::Drop), ("forward", ReservedAction::Forward)];

/// The maximum length of a hostname: that of a DNS label.
const MAX_HOSTNAME: usize = 63;

fn check_hostname(name: &str) -> Result<(), Refusal> {
    // RFC 1123, 2.1, and the underscore, which is in common use.
    let inner = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let ends = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && !name.ends_with(['-', '.']);
    if !inner || !ends || name.len() > MAX_HOSTNAME {
        let rule = "letters, digits, -, _ and ., at most 63, beginning with a letter or digit";
        return Err(format!("{} is not a hostname: {rule}", short(name)).into());
    }
    Ok(())
}

fn print_reserved(config: &Config) -> Vec<String> {
    let word = |action: ReservedAction| ACTIONS.iter().find(|(_, of)| *of == action).map(|(word, _)| *word);
    let line = |(number, action): (&u8, &ReservedAction)| {
        word(*action).map(|word| format!("reserved-address {number} {word}"))
    };
    config.reserved.iter().filter_map(line).collect()
}

fn reserved(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = need(args.number())? as u8;
    let default = GlobalState::default().reserved.get(usize::from(number)).copied().unwrap_or_default();
    let action = match args.form {
        Form::Set => need(args.among(ACTIONS))?,
        Form::No | Form::Default => default,
    };
    if number == 1 && action == ReservedAction::Forward {
        return Err("reserved address 1 is PAUSE, which no bridge forwards (IEEE 802.1Q, 8.6.3)".into());
    }
    if action == default {
        edit.config.reserved.remove(&number);
    } else {
        edit.config.reserved.insert(number, action);
    }
    Ok(())
}
