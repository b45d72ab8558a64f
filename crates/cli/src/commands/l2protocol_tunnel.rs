//! Layer 2 protocol tunnelling: `l2protocol-tunnel` under an interface, and `show l2protocol-tunnel`, which prints the
//! control frames of customers that each port carries, and the number of those that it has dropped.

use super::interface::{each_port, port};
use super::shared::get_interfaces;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::config_view::configured;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::feature::Feature;
use crate::field;
use crate::outcome::Outcome;
use crate::render::{columns, ios_netdev};
use crate::setting::{Flag, Line, Setting};
use crate::tree::{Node, arg, kw};
use lanyard_config::{Interface, SwitchportMode};
use lanyard_types::{DropReason, Tunnelled, TunnelledProtocol};
use serde::Serialize;

/// The feature.
pub const FEATURE: Feature = Feature {
    name: "l2protocol-tunnel",
    title: "Layer 2 protocol tunnelling",
    about: "\
`l2protocol-tunnel stp|cdp|lldp` under a port in mode `dot1q-tunnel` carries the customer's control
frames of that protocol through the provider's network; `l2protocol-tunnel` alone: CDP and STP.
Without it they are dropped. [Spanning tree](../spanning-tree.md) describes what happens to them.",
    json: "\
`interfaces`: `interface`, `protocols` (`stp`, `cdp`, `lldp`), `active` (false in other modes than
`dot1q-tunnel`), `dropped` (control frames of customers that the port does not carry).",
    safety: false,
    groups: &[],
    lines: LINES,
    show: kw("l2protocol-tunnel", "Show Layer 2 protocol tunnelling").exec(show).then(SHOW),
};

/// `show l2protocol-tunnel [interface INTERFACE]`.
const SHOW: &[Node] =
    &[kw("interface", "Show one interface").then(&[arg(Kind::Interface, "Interface").exec(show)])];

/// `l2protocol-tunnel PROTOCOL`.
macro_rules! tunnelled {
    ($words:literal, $field:ident, $help:literal) => {
        Setting::of($words, $help, &Flag(field!(Interface, switchport.tunnelled.$field))).on(port).line()
    };
}

const LINES: &[Line<Interface>] = &[
    tunnelled!("l2protocol-tunnel cdp", cdp, "Cisco Discovery Protocol"),
    tunnelled!("l2protocol-tunnel lldp", lldp, "Link Layer Discovery Protocol"),
    tunnelled!("l2protocol-tunnel stp", stp, "Spanning Tree Protocol"),
    Line::Own {
        under: "",
        node: kw("l2protocol-tunnel", "Carry a customer's control frames through the tunnel").run(tunnel_all),
        print: |_| Vec::new(),
    },
];

/// `l2protocol-tunnel` without a protocol: turns CDP and spanning tree on, as in IOS; its `no` form turns all protocols off.
fn tunnel_all(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    each_port(edit, args.form, |port| {
        port.tunnelled = match args.form {
            Form::Set => Tunnelled { cdp: true, stp: true, ..port.tunnelled },
            Form::No | Form::Default => Tunnelled::NONE,
        };
    })
}

#[derive(Debug, Serialize)]
struct Tunnels {
    interfaces: Vec<Tunnel>,
}

/// A tunnel port, or a port that is configured to carry control frames.
#[derive(Debug, Serialize)]
struct Tunnel {
    interface: String,
    protocols: Vec<TunnelledProtocol>,
    /// False while the port is in another mode than `dot1q-tunnel`.
    active: bool,
    /// Control frames of customers dropped because the port does not carry them.
    dropped: u64,
}

fn show(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let found = get_interfaces(exec, args)?;
    let drops = exec.backend.drops(args.interface().as_ref());
    let config = exec.backend.running();
    let mut interfaces = Vec::new();
    for view in &found.interfaces {
        let Some(port) = configured(config, view).map(|interface| &interface.switchport) else { continue };
        let carried = TunnelledProtocol::ALL.iter().copied();
        let protocols: Vec<_> = carried.filter(|protocol| port.tunnelled.carries(*protocol)).collect();
        let active = port.mode == SwitchportMode::Tunnel;
        if protocols.is_empty() && !active {
            continue;
        }
        let frames = |reason: DropReason| {
            let rows = drops.drops.iter();
            rows.filter(|row| row.interface == view.name && row.reason == reason.name())
                .map(|row| row.frames)
                .sum()
        };
        interfaces.push(Tunnel {
            interface: view.name.clone(),
            protocols,
            active,
            dropped: frames(DropReason::TunnelProtocol),
        });
    }
    Ok(exec.present(&Tunnels { interfaces }, text))
}

fn text(view: &Tunnels) -> String {
    let row = |tunnel: &Tunnel| {
        let names: Vec<&str> = tunnel.protocols.iter().map(|protocol| protocol.name()).collect();
        let protocols = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        vec![
            ios_netdev(&tunnel.interface),
            protocols,
            if tunnel.active { "active" } else { "not a tunnel port" }.to_owned(),
            tunnel.dropped.to_string(),
        ]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    let header = &["Port", "Protocols", "State", "Dropped"];
    columns(header, &rows, &[3])
}
