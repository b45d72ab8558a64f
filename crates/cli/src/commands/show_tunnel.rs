//! `show l2protocol-tunnel`: the control frames of customers that each port carries, and those that it has
//! dropped.

use super::shared::get_interfaces;
use crate::args::{Args, Kind};
use crate::backend::Refusal;
use crate::config_view::configured;
use crate::outcome::Outcome;
use crate::render::{columns, ios_netdev};
use crate::session::Exec;
use crate::tree::{Node, arg, kw};
use lanyard_config::SwitchportMode;
use lanyard_types::{DropReason, TunnelledProtocol};
use serde::Serialize;

/// `show l2protocol-tunnel [interface INTERFACE]`.
pub const TREE: Node = kw("l2protocol-tunnel", "Show Layer 2 protocol tunnelling").exec(show).then(&[kw(
    "interface",
    "Show one interface",
)
.then(&[arg(Kind::Interface, "Interface").exec(show)])]);

#[derive(Debug, Serialize)]
struct Tunnels {
    interfaces: Vec<Tunnel>,
}

/// A tunnel port, or a port that is configured to carry protocols.
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
