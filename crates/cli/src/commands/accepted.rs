//! Lines of IOS that configure what Lanyard does anyway: they are accepted without effect, and the running configuration does
//! not print them. The opposite of such a line is refused.

use crate::args::{Args, Form};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::setting::Line;
use crate::tree::{Node, kw};
use lanyard_config::{Config, Interface};

/// The format of times in the log. They always have a date, milliseconds and a time zone.
const TIMESTAMPS: Node = kw("datetime", "Date and time").run(always).options(&[
    kw("msec", "With milliseconds"),
    kw("show-timezone", "With the time zone"),
    kw("year", "With the year"),
]);

/// In global configuration.
pub const LINES: &[Line<Config>] = &[
    Line::unprinted(
        "ip",
        kw("classless", "Forward packets to unknown subnets by the best route").run(always),
    ),
    Line::unprinted("ip", kw("cef", "Forward packets by the plane's tables").run(always)),
    Line::unprinted("ip", kw("subnet-zero", "Allow subnet zero").run(always)),
    Line::unprinted("ip", kw("source-route", "Process packets with source routing header options").no(never)),
    Line::unprinted(
        "ip",
        kw("domain-lookup", "Look up commands that are not known as names of hosts").no(never),
    ),
    Line::unprinted(
        "ip domain",
        kw("lookup", "Look up commands that are not known as names of hosts").no(never),
    ),
    Line::unprinted("ip http", kw("server", "Enable an HTTP server").no(never)),
    Line::unprinted("ip http", kw("secure-server", "Enable an HTTPS server").no(never)),
    Line::unprinted("service", kw("pad", "Accept X.25 PAD commands").no(never)),
    Line::unprinted("service", kw("config", "Load configurations from the network").no(never)),
    Line::unprinted("service timestamps", kw("log", "Messages of the log").run(always).then(&[TIMESTAMPS])),
    Line::unprinted("spanning-tree extend", kw("system-id", "Put the VLAN into the bridge ID").run(always)),
    // Catalysts print these lines into every configuration.
    Line::unprinted("", kw("boot-start-marker", "Begin of the boot commands").run(always)),
    Line::unprinted("", kw("boot-end-marker", "End of the boot commands").run(always)),
    Line::unprinted(
        "vlan internal allocation policy",
        kw("ascending", "Allocate internal VLANs from 1006 upwards, as Lanyard does").run(always),
    ),
];

/// Under an interface.
pub const PORT: &[Line<Interface>] = &[
    Line::unprinted("switchport", kw("nonegotiate", "Send no DTP frames").run(always)),
    Line::unprinted("switchport trunk encapsulation", kw("dot1q", "Use 802.1Q tags on trunks").run(always)),
    Line::unprinted("mdix", kw("auto", "Detect the cable's type").run(always)),
    Line::unprinted("ip", kw("route-cache", "Forward by the plane's tables").run(always)),
];

/// The help texts of keywords that do not end a line.
pub const GROUPS: &[(&str, &str)] = &[
    ("ip domain", "Domain name system"),
    ("ip http", "HTTP server"),
    ("service", "Services of the switch"),
    ("service timestamps", "Times of messages"),
    ("spanning-tree extend", "Spanning Tree 802.1t extensions"),
    ("vlan internal", "Internal VLANs"),
    ("vlan internal allocation", "Allocation of internal VLANs"),
    ("vlan internal allocation policy", "Order of allocation"),
];

/// The help texts of keywords that do not end a line, under an interface.
pub const PORT_GROUPS: &[(&str, &str)] = &[
    ("mdix", "Media dependent interface with crossover"),
    ("switchport trunk encapsulation", "Tags of the trunk"),
];

/// Handles a line for something that is always on: the plain line is accepted, the `no` form is refused.
fn always(_: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    match args.form {
        Form::Set | Form::Default => Ok(()),
        Form::No => Err(format!("{} can't be turned off", args.words.join(" ")).into()),
    }
}

/// Accepts the `no` form of a line for something that Lanyard does not have; the plain line is not in the tree.
fn never(_: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    Ok(())
}
