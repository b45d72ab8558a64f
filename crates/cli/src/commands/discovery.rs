//! `lldp ...`, `cdp ...`: settings, `show` and `clear` commands of neighbour discovery.

use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::exec::Exec;
use crate::field;
use crate::outcome::Outcome;
use crate::render::discovery as text;
use crate::setting::{Flag, Line, Number, Setting};
use crate::tree::{Node, arg, kw};
use crate::view::{DiscoveryEntries, DiscoveryErrors, DiscoveryNeighbours, DiscoveryState};
use lanyard_config::{Config, Interface, InterfaceName};
use lanyard_lldp::{Protocol, Tlv};

/// `lldp tlv-select TLV`.
macro_rules! tlv {
    ($words:literal, $tlv:ident, $help:literal) => {
        Setting::of(
            concat!("lldp tlv-select ", $words),
            $help,
            &Flag(field!(Config, discovery.lldp.tlvs[Tlv::$tlv as usize])),
        )
        .line()
    };
}

/// In global configuration.
pub const GLOBAL: &[Line<Config>] = &[
    Setting::of("lldp run", "Enable LLDP", &Flag(field!(Config, discovery.lldp_runs))).line(),
    Setting::of(
        "lldp timer",
        "Specify the rate at which LLDP packets are sent (in sec)",
        &Number::any(
            field!(Config, discovery.lldp.timer_s),
            5,
            65_534,
            "Rate at which LLDP packets are sent (in sec)",
        ),
    )
    .warning(short_lived)
    .line(),
    Setting::of(
        "lldp holdtime",
        "Specify the holdtime (in sec) to be sent in packets",
        &Number::any(
            field!(Config, discovery.lldp.holdtime_s),
            0,
            65_535,
            "Length of time (in sec) that receiver must keep this packet",
        ),
    )
    .warning(short_lived)
    .line(),
    Setting::of(
        "lldp reinit",
        "Delay (in sec) for LLDP initialization on any interface",
        &Number::any(field!(Config, discovery.lldp.reinit_s), 2, 5, "Delay (in sec)"),
    )
    .line(),
    tlv!("link-aggregation", LinkAggregation, "Link Aggregation TLV"),
    tlv!("mac-phy-cfg", MacPhy, "IEEE 802.3 MAC/Phy Configuration/status TLV"),
    tlv!("management-address", ManagementAddress, "Management Address TLV"),
    tlv!("max-frame-size", MaxFrameSize, "IEEE 802.3 Maximum Frame Size TLV"),
    tlv!("med", Med, "LLDP-MED TLVs, to endpoints that send them"),
    tlv!("port-description", PortDescription, "Port Description TLV"),
    tlv!("port-vlan", PortVlan, "Port VLAN ID TLV"),
    tlv!("system-capabilities", SystemCapabilities, "System Capabilities TLV"),
    tlv!("system-description", SystemDescription, "System Description TLV"),
    tlv!("system-name", SystemName, "System Name TLV"),
    tlv!("vlan-name", VlanName, "IEEE 802.1 VLAN Name TLV"),
    Setting::of("cdp run", "Enable CDP", &Flag(field!(Config, discovery.cdp_runs))).line(),
    Setting::of(
        "cdp timer",
        "Specify the rate at which CDP packets are sent (in sec)",
        &Number::any(
            field!(Config, discovery.cdp.timer_s),
            5,
            254,
            "Rate at which CDP packets are sent (in  sec)",
        ),
    )
    .line(),
    Setting::of(
        "cdp holdtime",
        "Specify the holdtime (in sec) to be sent in packets",
        &Number::any(
            field!(Config, discovery.cdp.holdtime_s),
            10,
            255,
            "Length of time (in sec) that receiver must keep this packet",
        ),
    )
    .line(),
];

fn short_lived(config: &Config) -> Option<&'static str> {
    let lldp = &config.discovery.lldp;
    (lldp.holdtime_s <= lldp.timer_s).then_some(
        "neighbors forget this switch between two LLDP packets: the holdtime is not longer than the timer",
    )
}

/// In interface configuration.
pub const PORT: &[Line<Interface>] = &[
    Setting::of(
        "lldp transmit",
        "Enable LLDP transmission on interface",
        &Flag(field!(Interface, discovery.lldp_transmit)),
    )
    .on(on_netdev)
    .line(),
    Setting::of(
        "lldp receive",
        "Enable LLDP reception on interface",
        &Flag(field!(Interface, discovery.lldp_receive)),
    )
    .on(on_netdev)
    .line(),
    Setting::of("cdp enable", "Enable CDP on interface", &Flag(field!(Interface, discovery.cdp)))
        .on(on_netdev)
        .line(),
];

fn on_netdev(_: &mut Interface, name: &InterfaceName, _: Form, words: &str) -> Result<bool, Refusal> {
    physical(name, words)
}

/// The condition of settings of discovery, which VLAN interfaces and port-channels do not have: LLDP and CDP run at the members
/// of a port-channel.
pub(super) fn physical(name: &InterfaceName, words: &str) -> Result<bool, Refusal> {
    match name {
        InterfaceName::Netdev(_) if name.channel().is_some() => {
            Err(format!("{name} is a port-channel: {words} is a setting of its members").into())
        }
        InterfaceName::Netdev(_) => Ok(true),
        InterfaceName::Vlan(vlan) => Err(format!("Vlan{vlan} is a VLAN interface: it has no {words}").into()),
    }
}

/// Help for keywords that end no line, in global configuration.
pub const GROUPS: &[(&str, &str)] = &[
    ("cdp", "Global CDP configuration subcommands"),
    ("lldp", "Global LLDP configuration subcommands"),
    ("lldp tlv-select", "Selection of LLDP TLVs to send"),
];

/// Help for keywords that end no line, in interface configuration.
pub const PORT_GROUPS: &[(&str, &str)] =
    &[("cdp", "CDP interface subcommands"), ("lldp", "LLDP interface subcommands")];

const INTERFACE: Node = arg(Kind::Interface, "Interface");
const ENTRY_NAME: Node = arg(Kind::Word("WORD", 255), "Name of a neighbor, * for all of them");

/// `show lldp ...`.
pub const SHOW_LLDP: Node = kw("lldp", "LLDP information").exec(lldp_settings).then(&[
    kw("entry", "Information for specific neighbor entry").then(&[ENTRY_NAME.exec(lldp_entry)]),
    kw("errors", "LLDP computational errors and overflows").exec(lldp_errors),
    kw("interface", "LLDP interface status and configuration")
        .exec(lldp_interfaces)
        .then(&[INTERFACE.exec(lldp_interfaces)]),
    kw("neighbors", "LLDP neighbor entries").exec(lldp_neighbors).then(&[
        kw("detail", "Show detailed information").exec(lldp_detail),
        INTERFACE.exec(lldp_neighbors).then(&[kw("detail", "Show detailed information").exec(lldp_detail)]),
    ]),
    kw("traffic", "LLDP statistics").exec(lldp_traffic),
]);

/// `show cdp ...`.
pub const SHOW_CDP: Node = kw("cdp", "CDP information").exec(cdp_settings).then(&[
    kw("entry", "Information for specific neighbor entry").then(&[ENTRY_NAME.exec(cdp_entry)]),
    kw("interface", "CDP interface status and configuration")
        .exec(cdp_interfaces)
        .then(&[INTERFACE.exec(cdp_interfaces)]),
    kw("neighbors", "CDP neighbor entries").exec(cdp_neighbors).then(&[
        kw("detail", "Show detailed information").exec(cdp_detail),
        INTERFACE.exec(cdp_neighbors).then(&[kw("detail", "Show detailed information").exec(cdp_detail)]),
    ]),
    kw("traffic", "CDP statistics").exec(cdp_traffic),
]);

/// `clear lldp ...`.
pub const CLEAR_LLDP: Node = kw("lldp", "Reset LLDP information").then(&[
    kw("counters", "Clear LLDP counters").exec(|exec, _| clear_counters(exec, Protocol::Lldp)),
    kw("table", "Clear LLDP table").exec(|exec, _| clear_table(exec, Protocol::Lldp)),
]);

/// `clear cdp ...`.
pub const CLEAR_CDP: Node = kw("cdp", "Reset CDP information").then(&[
    kw("counters", "Clear CDP counters").exec(|exec, _| clear_counters(exec, Protocol::Cdp)),
    kw("table", "Clear CDP table").exec(|exec, _| clear_table(exec, Protocol::Cdp)),
]);

type Shown = Result<Outcome, Refusal>;

/// The message that IOS prints when the protocol does not run.
fn off(protocol: Protocol) -> Outcome {
    let name = if protocol == Protocol::Lldp { "LLDP" } else { "CDP" };
    Outcome::Text(format!("% {name} is not enabled\n"))
}

/// Presents a view of the protocol if it runs, otherwise the message that it does not run.
fn present<T: serde::Serialize>(
    exec: &mut Exec<'_>,
    protocol: Protocol,
    view: &T,
    text: impl FnOnce(&T) -> String,
) -> Shown {
    let discovery = &exec.backend.running().discovery;
    let runs = if protocol == Protocol::Lldp { discovery.lldp_runs } else { discovery.cdp_runs };
    Ok(if runs || exec.pipe.json { exec.present(view, text) } else { off(protocol) })
}

fn neighbours(exec: &mut Exec<'_>, args: &Args, protocol: Protocol) -> DiscoveryNeighbours {
    exec.backend.neighbours_of(protocol, args.interface().as_ref())
}

fn state(exec: &mut Exec<'_>, args: &Args, protocol: Protocol) -> DiscoveryState {
    let mut state = exec.backend.discovery(protocol);
    if let Some(only) = args.interface().map(|name| name.to_string()) {
        state.interfaces.retain(|interface| interface.interface == only);
    }
    state
}

fn entries(exec: &mut Exec<'_>, args: &Args, protocol: Protocol) -> DiscoveryEntries {
    let name = args.texts().into_iter().next().unwrap_or_else(|| "*".into());
    let mut all = exec.backend.neighbours_of(protocol, None);
    let named =
        |neighbour: &crate::view::DiscoveryNeighbour| neighbour.system_name.as_deref() == Some(name.as_str());
    all.neighbors.retain(|neighbour| name == "*" || named(neighbour));
    DiscoveryEntries::of(all)
}

fn lldp_neighbors(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = neighbours(exec, args, Protocol::Lldp);
    present(exec, Protocol::Lldp, &view, text::lldp_neighbors)
}

fn lldp_detail(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = neighbours(exec, args, Protocol::Lldp);
    present(exec, Protocol::Lldp, &view, text::lldp_detail)
}

fn lldp_entry(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = entries(exec, args, Protocol::Lldp);
    present(exec, Protocol::Lldp, &view, text::lldp_entries)
}

fn lldp_settings(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = state(exec, args, Protocol::Lldp);
    present(exec, Protocol::Lldp, &view, text::lldp_settings)
}

fn lldp_interfaces(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = state(exec, args, Protocol::Lldp);
    present(exec, Protocol::Lldp, &view, text::lldp_interfaces)
}

fn lldp_traffic(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = state(exec, args, Protocol::Lldp);
    present(exec, Protocol::Lldp, &view, text::lldp_traffic)
}

fn lldp_errors(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = DiscoveryErrors::of(&state(exec, args, Protocol::Lldp));
    present(exec, Protocol::Lldp, &view, text::errors)
}

fn cdp_neighbors(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = neighbours(exec, args, Protocol::Cdp);
    present(exec, Protocol::Cdp, &view, text::cdp_neighbors)
}

fn cdp_detail(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = neighbours(exec, args, Protocol::Cdp);
    present(exec, Protocol::Cdp, &view, text::cdp_detail)
}

fn cdp_entry(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = entries(exec, args, Protocol::Cdp);
    present(exec, Protocol::Cdp, &view, text::cdp_entries)
}

fn cdp_settings(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = state(exec, args, Protocol::Cdp);
    present(exec, Protocol::Cdp, &view, text::cdp_settings)
}

fn cdp_interfaces(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = state(exec, args, Protocol::Cdp);
    present(exec, Protocol::Cdp, &view, text::cdp_interfaces)
}

fn cdp_traffic(exec: &mut Exec<'_>, args: &Args) -> Shown {
    let view = state(exec, args, Protocol::Cdp);
    present(exec, Protocol::Cdp, &view, text::cdp_traffic)
}

fn clear_counters(exec: &mut Exec<'_>, protocol: Protocol) -> Shown {
    exec.backend.clear_discovery_counters(protocol);
    Ok(Outcome::Text(String::new()))
}

fn clear_table(exec: &mut Exec<'_>, protocol: Protocol) -> Shown {
    exec.backend.clear_discovery_table(protocol);
    Ok(Outcome::Text(String::new()))
}
