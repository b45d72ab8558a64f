//! Link aggregation's half on the management thread: passes configuration and links to the protocol thread, handles its
//! reports, and shows port-channels. The machines are in [`crate::protocols::aggregation`].
//!
//! Invariant: when a function here returns, the facts say which port-channels can send (`Facts::channels`), as spanning tree
//! and the plane state need them.

use crate::context::Context;
use crate::core::Core;
use crate::protocols::aggregation::channel_id;
use lanyard_cli::backend;
use lanyard_cli::view::{
    Channel, ChannelBalance, ChannelMember, Channels, EventKind, LacpMember, LacpPort, LacpSystem,
};
use lanyard_config::{Config, InterfaceName};
use lanyard_lacp::pdu::PortInfo;
use lanyard_lacp::{ChurnState, Event, MemberState, Mode, MuxState, PduError, PortView, RxState};
use lanyard_switch::aggregation::{links, lower};
use lanyard_types::{ChannelId, LoadBalance, PortId};
use serde_json::json;
use std::collections::BTreeMap;

/// Passes the configuration and the links to the protocol thread. When this returns, the plane has the resulting members.
pub(crate) fn update(ctx: &mut Context) {
    let config = ctx.switch.config().clone();
    give(ctx, &config);
}

/// Removes the ports that `next` takes out of a port-channel from the channel's members. Called before the plane takes
/// `next`.
pub(crate) fn part(ctx: &mut Context, next: &Config) {
    let mut config = ctx.switch.config().clone();
    let mut leaves = false;
    for (name, interface) in &mut config.interfaces {
        let stays = next.interfaces.get(name).is_some_and(|next| {
            next.role == interface.role && next.aggregation.group == interface.aggregation.group
        });
        if interface.aggregation.group.is_some() && !stays {
            interface.aggregation.group = None;
            leaves = true;
        }
    }
    if leaves {
        give(ctx, &config);
    }
}

fn give(ctx: &mut Context, config: &Config) {
    let Context { switch, kernel, .. } = ctx;
    let lowered = lower(config, switch.facts(), switch.ports(), switch.identity());
    let half = &mut |name: &str| {
        kernel.settings(name).is_ok_and(|settings| settings.duplex == Some(lanyard_netdev::Duplex::Half))
    };
    let links = links(config, switch.facts(), switch.ports(), half);
    let linked = |name: &InterfaceName| {
        let port = switch.ports().get(&name.to_string())?;
        links.contains(&(port, true)).then(|| (port, name.to_string()))
    };
    let watched = config.interfaces.keys().filter_map(linked).collect();
    ctx.protocols.change(move |engine| {
        let (aggregation, mut io) = engine.aggregation_and_io();
        aggregation.configure(&mut io, lowered, &links);
    });
    ctx.protocols.watch_links(watched);
    refresh(ctx);
}

/// Reads which port-channels can send, and which members are in use. Returns true if the set of port-channels that can send
/// has changed.
pub(crate) fn refresh(ctx: &mut Context) -> bool {
    let (up, bundled) =
        ctx.protocols.with(|engine| (engine.aggregation.up(), engine.aggregation.machines().bundled()));
    let changed = ctx.facts().channels != up;
    let facts = ctx.switch.facts_mut();
    (facts.channels, facts.bundled) = (up, bundled);
    changed
}

/// Logs an event, and announces it.
pub(crate) fn announce(ctx: &mut Context, event: &Event) {
    let name = |port: &PortId| ctx.port_name(*port).to_string();
    let (severity, mnemonic, text, details) = match event {
        Event::Bundled { port, channel } => (
            5,
            "BUNDLE",
            format!("Interface {} joined port-channel port-channel{channel}", name(port)),
            json!({"event": "bundled", "interface": name(port), "channel": format!("port-channel{channel}")}),
        ),
        Event::Unbundled { port, channel } => (
            5,
            "UNBUNDLE",
            format!("Interface {} left the port-channel port-channel{channel}", name(port)),
            json!({"event": "unbundled", "interface": name(port), "channel": format!("port-channel{channel}")}),
        ),
        Event::Channel { channel, up } => (
            5,
            if *up { "CHANNELUP" } else { "CHANNELDOWN" },
            format!(
                "port-channel{channel} {}",
                if *up { "has enough members" } else { "has too few members" }
            ),
            json!({"event": if *up { "up" } else { "down" }, "channel": format!("port-channel{channel}")}),
        ),
        Event::Churn { port } => (
            4,
            "CHURN",
            format!(
                "Interface {}: this system and its partner have not agreed on the link for 60 s",
                name(port)
            ),
            json!({"event": "churn", "interface": name(port)}),
        ),
    };
    ctx.log("EC", severity, mnemonic, &text);
    if ctx.bus.wants(EventKind::Link) {
        ctx.bus.event(EventKind::Link, "change", || crate::announce::object(details));
    }
}

/// Logs that the plane has refused the members of a port-channel.
pub(crate) fn refused(ctx: &mut Context, channel: ChannelId, reason: &str) {
    ctx.log("EC", 2, "PLANE", &format!("the plane refused the members of port-channel{channel}: {reason}"));
}

impl backend::Aggregation for Core {
    fn channels(&mut self) -> Channels {
        let config = self.ctx.switch.config().clone();
        let base = self.ctx.switch.identity().base_mac;
        let views = self.ctx.protocols.with(|engine| {
            let machines = engine.aggregation.machines();
            let ports: Vec<PortId> = machines.config().ports.keys().copied().collect();
            let of = |port: PortId| {
                let view = machines.port(port)?;
                let buckets = engine.aggregation.buckets(channel_id(view.config.channel)?, port);
                Some((port, (view, buckets)))
            };
            ports.into_iter().filter_map(of).collect::<BTreeMap<_, _>>()
        });
        let up = &self.ctx.facts().channels;
        let channel = |(number, interface): (ChannelId, &lanyard_config::Interface)| {
            let members = config.members(number).map(|(name, member)| {
                let port = self.ctx.switch.ports().get(&name.to_string());
                let mode = member.aggregation.group.map_or(Mode::On, |(_, mode)| mode);
                member_view(name.to_string(), mode, port.and_then(|port| views.get(&port)))
            });
            let members: Vec<ChannelMember> = members.collect();
            Channel {
                name: format!("port-channel{number}"),
                number: number.get(),
                protocol: if members.iter().any(|member| member.mode == "on") { "static" } else { "lacp" },
                up: !interface.shutdown && up.contains(&number),
                shutdown: interface.shutdown,
                routed: interface.is_routed(),
                min_links: interface.aggregation.min_links,
                max_bundle: interface.aggregation.max_bundle,
                members,
            }
        };
        let balance =
            LoadBalance { symmetric: config.aggregation.symmetric, ..config.aggregation.load_balance };
        Channels {
            system: LacpSystem { priority: config.aggregation.system_priority, mac: base },
            load_balance: ChannelBalance { method: balance.keyword(), symmetric: balance.symmetric },
            channels: config.channels().map(channel).collect(),
        }
    }
    fn clear_lacp_counters(&mut self) {
        self.ctx.protocols.with(|engine| engine.aggregation.machines_mut().clear_counters());
    }
}

fn member_view(interface: String, mode: Mode, port: Option<&(PortView, usize)>) -> ChannelMember {
    let state = port.map_or(MemberState::Down, |(port, _)| port.member);
    let (name, flag) = match state {
        MemberState::Down => ("down", 'D'),
        MemberState::Bundled => ("bundled", 'P'),
        MemberState::Waiting => ("waiting", 'w'),
        MemberState::HotStandby => ("hot_standby", 'H'),
        MemberState::Individual => ("individual", 'I'),
        MemberState::Suspended => ("suspended", 's'),
    };
    ChannelMember {
        interface,
        mode: match mode {
            Mode::Active => "active",
            Mode::Passive => "passive",
            Mode::On => "on",
        },
        bundled: state == MemberState::Bundled,
        state: name,
        flag,
        buckets: port.map_or(0, |(_, buckets)| u16::try_from(*buckets).unwrap_or(u16::MAX)),
        lacp: port.filter(|_| mode != Mode::On).map(|(port, _)| lacp_view(port)),
    }
}

fn lacp_view(port: &PortView) -> LacpMember {
    let errors = PduError::ALL.iter().zip(port.counters.errors).filter(|(_, count)| *count > 0);
    LacpMember {
        actor: side(&port.actor),
        partner: side(&port.partner),
        receive: match port.rx {
            RxState::Initialize => "initialize",
            RxState::PortDisabled => "port_disabled",
            RxState::Expired => "expired",
            RxState::LacpDisabled => "lacp_disabled",
            RxState::Defaulted => "defaulted",
            RxState::Current => "current",
        },
        mux: match port.mux {
            MuxState::Detached => "detached",
            MuxState::Waiting => "waiting",
            MuxState::Attached => "attached",
            MuxState::Collecting => "collecting",
            MuxState::Distributing => "distributing",
        },
        actor_churn: churn(port.churn.0),
        partner_churn: churn(port.churn.1),
        sent: port.counters.sent,
        received: port.counters.received,
        markers: port.counters.markers,
        marker_responses: port.counters.marker_responses,
        errors: errors.map(|(error, count)| (error.name(), count)).collect(),
    }
}

const fn churn(state: ChurnState) -> &'static str {
    match state {
        ChurnState::None => "no_churn",
        ChurnState::Monitor => "churn_monitor",
        ChurnState::Churn => "churn",
    }
}

fn side(info: &PortInfo) -> LacpPort {
    LacpPort {
        system_priority: info.system_priority,
        system: info.system,
        key: info.key,
        port_priority: info.port_priority,
        port: info.port,
        state: info.state.letters(),
        state_bits: info.state.0,
    }
}

#[cfg(test)]
#[path = "aggregation_tests.rs"]
mod tests;
