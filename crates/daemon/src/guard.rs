//! First-hop security's half on the management thread: passes the configuration to the protocol thread, turns its reports into
//! log lines, and shuts down ports that exceed `ip arp inspection limit` or `ip dhcp snooping limit rate`.
//!
//! The planes drop the frames beyond a rate and count them; this module reads the counters every [`LOOK_EVERY_MS`] while a port
//! has a rate.

use crate::context::{Context, Module};
use crate::protocols::work::GuardEvent as Event;
use lanyard_config::InterfaceName;
use lanyard_guard::{Change, Config, Denied, Denied6, Drop, NdConfig, NdDrop, Neighbour};
use lanyard_pipeline::state::{PortKind, PortState};
use lanyard_plane::PlaneState;
use lanyard_switch::guard::{lower, lower_nd};
use lanyard_switch::snooping::{Classifier, classifiers};
use lanyard_types::{DropReason, ErrCause, PortId};
use std::collections::BTreeMap;

/// The interval between two readings of the counters, in milliseconds.
const LOOK_EVERY_MS: u64 = 1_000;

/// The drop reasons that shut a port down, each with its cause.
const RATES: [(DropReason, ErrCause); 2] =
    [(DropReason::ArpRate, ErrCause::ArpInspection), (DropReason::DhcpRate, ErrCause::DhcpRateLimit)];

type Given = ((Config, NdConfig), BTreeMap<PortId, Classifier>, BTreeMap<PortId, String>);

/// The module.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// The configuration that was last passed to the protocol thread.
    given: Option<Given>,
    /// The ports with a rate, and the frames over each rate of [`RATES`] at the last reading.
    watched: BTreeMap<PortId, [u64; RATES.len()]>,
    /// When the counters are read next; `None` while no port is watched.
    next_ms: Option<u64>,
}

impl Module for Guard {
    type Event<'a> = Event;

    fn configure(&mut self, ctx: &mut Context) {
        let (switch, plane) = (&ctx.switch, &ctx.plane);
        let config = lower(switch.config(), plane.state(), switch.ports(), switch.identity());
        let names = plane.state().ports.iter().map(|(id, port)| (*id, port.name.clone())).collect();
        let nd_config = lower_nd(switch.config(), plane.state(), switch.ports(), switch.identity());
        let given: Given = ((config, nd_config), classifiers(plane.state()), names);
        if self.given.as_ref() != Some(&given) {
            self.given = Some(given.clone());
            ctx.protocols.change(move |engine| {
                let (guard, mut io) = engine.guard_and_io();
                guard.configure(&mut io, given.0, given.1, given.2);
            });
        }
        self.watch(ctx);
    }

    fn handle(&mut self, ctx: &mut Context, event: Event) -> usize {
        let name = |port: PortId| ctx.port_name(port).to_string();
        let (facility, severity, mnemonic, text) = match event {
            Event::Denied { port, vlan, denied, frames } => {
                let on = format!("on {}, vlan {vlan}", name(port));
                let (facility, mnemonic, text) = denied_text(&denied, &on, frames);
                // As in IOS, a message that DHCP snooping drops is logged with severity 5 (notification).
                let severity = if matches!(denied, Denied::DhcpServer { .. }) { 5 } else { 4 };
                (facility, severity, mnemonic, text)
            }
            Event::Dropped { port, vlan, reason, kind, src, client, frames } => {
                let (mnemonic, why) = dropped_text(reason);
                let client = client.map_or_else(|| "none".into(), |mac| mac.to_string());
                let text = format!(
                    "DHCP_SNOOPING drop message {why}, message type: {kind}, MAC sa: {src}, chaddr: {client}, on {}, vlan {vlan} ({frames} since the last report)",
                    name(port)
                );
                ("DHCP_SNOOPING", 5, mnemonic, text)
            }
            Event::Full { lease } => {
                let text = format!(
                    "the switch has {} bindings, and none for {} ({}) on {}, vlan {}: remove bindings with clear ip dhcp snooping binding",
                    lanyard_types::MAX_BINDINGS,
                    lease.address,
                    lease.mac,
                    name(lease.port),
                    lease.vlan
                );
                ("DHCP_SNOOPING", 4, "TABLE_FULL", text)
            }
            Event::Refused { key, reason, frames } => {
                let facility = if key.address.is_ipv4() { "DHCP_SNOOPING" } else { "SISF" };
                let text = format!(
                    "{} on {}, vlan {} has no binding in the plane: {reason} ({frames} since the last report)",
                    key.address,
                    name(key.port),
                    key.vlan
                );
                (facility, 4, "TABLE_FULL", text)
            }
            Event::NdDropped { neighbour, reason, kind, frames } => {
                let text = format!(
                    "Message dropped {} P={kind} Reason={} ({frames} since the last report)",
                    host(&neighbour, &name(neighbour.owner.port)),
                    nd_dropped_text(reason)
                );
                ("SISF", 4, "PAK_DROP", text)
            }
            Event::Neighbour { change, neighbour, changes } => {
                let (mnemonic, verb) = match change {
                    Change::Created => ("ENTRY_CREATED", "created"),
                    Change::Changed => ("ENTRY_CHANGED", "changed"),
                    Change::Deleted => ("ENTRY_DELETED", "deleted"),
                };
                let of = host(&neighbour, &name(neighbour.owner.port));
                ("SISF", 6, mnemonic, format!("Entry {verb} {of} ({changes} since the last report)"))
            }
            Event::NotKept(reason) => {
                let text = format!(
                    "a restart of the daemon would forget the bindings of DHCP snooping and ND inspection: {reason}"
                );
                ("DHCP_SNOOPING", 3, "FILE", text)
            }
        };
        ctx.log(facility, severity, mnemonic, &text);
        1
    }

    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        self.next_ms
    }
}

impl Guard {
    fn watch(&mut self, ctx: &mut Context) {
        let state = ctx.plane.state();
        let limited = state.ports.iter().filter(|(_, port)| is_limited(port, state)).map(|(id, _)| *id);
        let limited: Vec<PortId> = limited.collect();
        self.watched.retain(|port, _| limited.contains(port));
        for port in limited {
            self.watched.entry(port).or_insert_with(|| counts(ctx, port));
        }
        let now_ms = ctx.clock.now_ms();
        self.next_ms = (!self.watched.is_empty()).then(|| self.next_ms.unwrap_or(now_ms + LOOK_EVERY_MS));
    }

    /// Reads the counters if that is due. Returns the ports to be shut down, with the cause.
    pub(crate) fn look(&mut self, ctx: &mut Context) -> Vec<(PortId, ErrCause)> {
        let now_ms = ctx.clock.now_ms();
        if self.next_ms.is_none_or(|at_ms| at_ms > now_ms) {
            return Vec::new();
        }
        self.next_ms = Some(now_ms + LOOK_EVERY_MS);
        let mut shut = Vec::new();
        for (port, before) in &mut self.watched {
            let now = counts(ctx, *port);
            for ((before, now), (_, cause)) in before.iter().zip(now).zip(RATES) {
                // A count that is lower has been cleared.
                if now > *before || (now < *before && now > 0) {
                    let (facility, mnemonic, what) = match cause {
                        ErrCause::ArpInspection => ("SW_DAI", "PACKET_RATE_EXCEEDED", "ARP packets"),
                        _ => ("DHCP_SNOOPING", "DHCP_SNOOPING_RATE_LIMIT_EXCEEDED", "DHCP messages"),
                    };
                    let name = ctx.port_name(*port).to_string();
                    let text = format!(
                        "{name} received more {what} than its limit allows: the interface is disabled."
                    );
                    ctx.log(facility, 4, mnemonic, &text);
                    shut.push((*port, cause));
                }
            }
            *before = now;
        }
        shut
    }
}

/// True if the plane polices ARP or DHCP at the port.
fn is_limited(port: &PortState, state: &PlaneState) -> bool {
    let guard = &port.stages.guard;
    port.kind == PortKind::Netdev
        && ((guard.arp_bucket().is_some() && state.is_guarded(port, |vlan| vlan.arp))
            || (guard.dhcp_bucket().is_some() && state.is_guarded(port, |vlan| vlan.dhcp)))
}

fn counts(ctx: &mut Context, port: PortId) -> [u64; RATES.len()] {
    let dropped = ctx.plane.port_counters(port).dropped;
    RATES.map(|(reason, _)| dropped[reason.index()])
}

/// The facility, the mnemonic and the text of a message about a frame that the plane has dropped.
fn denied_text(denied: &Denied, on: &str, frames: u64) -> (&'static str, &'static str, String) {
    match denied {
        Denied::Arp { reply, sender, address, target, target_address } => {
            let kind = if *reply { "Res" } else { "Req" };
            let pairs = format!("[{sender}/{address}/{target}/{target_address}]");
            ("SW_DAI", "DHCP_SNOOPING_DENY", format!("{frames} Invalid ARPs ({kind}) {on}.({pairs})"))
        }
        Denied::DhcpServer { kind, src } => {
            let text = format!(
                "DHCP_SNOOPING drop message on untrusted port, message type: {kind}, MAC sa: {src}, {on} ({frames} since the last report)"
            );
            ("DHCP_SNOOPING", "DHCP_SNOOPING_UNTRUSTED_PORT", text)
        }
        Denied::Ipv4 { address, src } => {
            let text = format!(
                "{frames} packets without a binding {on}: the last one from {address}, MAC sa: {src}"
            );
            ("SOURCE_GUARD", "DENY", text)
        }
        Denied::Ipv6 { address, src, kind } => {
            let (what, why) = match kind {
                Denied6::Router => ("router advertisements or redirects", "message unauthorized on port"),
                Denied6::DhcpServer => ("DHCPv6 server messages", "message unauthorized on port"),
                Denied6::Hidden => {
                    ("hidden messages of neighbour discovery", "fragment or extension headers")
                }
                Denied6::Source => ("IPv6 packets without a binding", "source not authorized on port"),
            };
            let text =
                format!("{frames} {what} dropped {on}: the last one from {address}, MAC sa: {src}, {why}");
            ("SISF", "PAK_DROP", text)
        }
        Denied::Other { src } => {
            ("SOURCE_GUARD", "DENY", format!("{frames} malformed packets dropped {on}: MAC sa: {src}"))
        }
    }
}

/// The mnemonic and the reason in a message about a dropped DHCP message.
const fn dropped_text(reason: Drop) -> (&'static str, &'static str) {
    match reason {
        Drop::Malformed => ("DHCP_SNOOPING_MALFORMED", "because it is malformed"),
        Drop::Server => ("DHCP_SNOOPING_UNTRUSTED_PORT", "on untrusted port"),
        Drop::MacMismatch => ("DHCP_SNOOPING_MATCH_MAC_FAIL", "because the chaddr doesn't match source mac"),
        Drop::Relayed => ("DHCP_SNOOPING_NONZERO_GIADDR", "with non-zero giaddr on untrusted port"),
        Drop::Option => ("DHCP_SNOOPING_OPTION82", "with option-82 value on untrusted port"),
        Drop::NotOwner => {
            ("DHCP_SNOOPING_FAKE_INTERFACE", "because the address is bound to another interface")
        }
        Drop::NoClient => ("DHCP_SNOOPING_UNKNOWN_CLIENT", "because its client is not known"),
        Drop::NoPort => ("DHCP_SNOOPING_NO_OUTPUT", "because there is no trusted port to send it to"),
    }
}

/// A host as IOS names it in the log.
fn host(Neighbour { vlan, address, owner }: &Neighbour, port: &str) -> String {
    format!("A={address} V={vlan} I={port} M={}", owner.mac)
}

/// The reason in a message about a dropped message of neighbour discovery.
const fn nd_dropped_text(reason: NdDrop) -> &'static str {
    match reason {
        NdDrop::Malformed => "Malformed message",
        NdDrop::LinkAddress => "Link-layer address option differs from the source MAC",
        NdDrop::NotOwner => "Address bound to another host",
        NdDrop::Tentative => "Address is being verified",
        NdDrop::Duplicate => "Address in use behind a trusted port",
        NdDrop::Limit => "Address limit of the port reached",
        NdDrop::Full => "Binding table full",
        NdDrop::Removed => "VLAN or binding removed",
    }
}

/// Ends first-hop security, because the plane is being removed.
pub(crate) fn end(ctx: &Context) {
    ctx.protocols.with(|engine| {
        let (guard, mut io) = engine.guard_and_io();
        guard.configure(&mut io, Default::default(), BTreeMap::new(), BTreeMap::new());
    });
}

/// The port of an interface; `None` if the interface is not a port.
pub(crate) fn port_of(ctx: &Context, name: &InterfaceName) -> Option<PortId> {
    match name {
        InterfaceName::Netdev(name) => ctx.switch.ports().get(name),
        InterfaceName::Vlan(_) => None,
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
