//! Neighbour discovery's half on the management thread: passes configuration and links to the protocol thread, handles its
//! reports, and describes neighbours for `show` commands. The machines are in [`crate::protocols::discovery`].

use crate::context::{Context, Module};
use crate::{VERSION, announce, kernel_release};
use lanyard_cli::view::{self, EventKind};
use lanyard_lldp::location::{Location, keyword};
use lanyard_lldp::pdu::{Capabilities, Med, NetworkPolicy};
use lanyard_lldp::{Config, Event, Info, Neighbour, Protocol, System, cdp};
use lanyard_switch::discovery::{Medium, links, lower};
use lanyard_types::PortId;
use serde_json::{Map, Value, json};

/// Names of LLDP-MED's inventory, in the order of its TLVs.
const INVENTORY: [&str; 7] = [
    "hardware_revision",
    "firmware_revision",
    "software_revision",
    "serial_number",
    "manufacturer",
    "model",
    "asset_id",
];

/// The configuration and the links that were last passed to the protocol thread.
#[derive(Debug, Default)]
pub(crate) struct LinkDiscovery {
    given: Option<(Config, Vec<(PortId, bool)>)>,
}

impl Module for LinkDiscovery {
    type Event<'a> = Event;

    fn configure(&mut self, ctx: &mut Context) {
        let Context { switch, kernel, .. } = ctx;
        let system = System {
            description: format!(
                "Lanyard {VERSION}, a multilayer Ethernet switch, on Linux {}",
                kernel_release()
            ),
            platform: "Lanyard".into(),
            software: VERSION.into(),
            ..System::default()
        };
        let medium = &mut |name: &str| {
            let settings = kernel.settings(name).ok();
            Medium {
                speed_mbps: settings.as_ref().and_then(|settings| settings.speed_mbps),
                full_duplex: settings.as_ref().and_then(|settings| {
                    settings.duplex.map(|duplex| duplex == lanyard_netdev::Duplex::Full)
                }),
                autoneg: settings.map(|settings| settings.autoneg),
            }
        };
        let config =
            lower(switch.config(), switch.facts(), switch.ports(), switch.identity(), &system, medium);
        let links = links(&config, switch.facts());
        let given = Some((config.clone(), links.clone()));
        let idle = self.given.is_none() && config.lldp.is_none() && config.cdp.is_none();
        if self.given == given || idle {
            return;
        }
        self.given = given;
        ctx.protocols.change(move |engine| {
            let now = engine.now();
            engine.discovery.configure(now, config, &links);
        });
    }

    fn handle(&mut self, ctx: &mut Context, event: Event) -> usize {
        let name = |port: PortId| ctx.port_name(port).to_string();
        let message = match &event {
            Event::TooMany { port } => Some((
                "LLDP",
                "TABLE_FULL",
                format!(
                    "Interface {}: a neighbor is not kept, because the table is full ({} at a port, {} in all)",
                    name(*port),
                    lanyard_lldp::MAX_PER_PORT,
                    lanyard_lldp::MAX_NEIGHBOURS
                ),
            )),
            Event::NativeVlanMismatch { port, own, theirs, neighbour: (device, at) } => Some((
                "CDP",
                "NATIVE_VLAN_MISMATCH",
                format!(
                    "Native VLAN mismatch discovered on {} ({own}), with {device} {at} ({theirs}).",
                    name(*port)
                ),
            )),
            Event::DuplexMismatch { port, own_full, neighbour: (device, at) } => {
                let (own, theirs) = if *own_full {
                    ("not half duplex", "half duplex")
                } else {
                    ("not full duplex", "full duplex")
                };
                Some((
                    "CDP",
                    "DUPLEX_MISMATCH",
                    format!(
                        "duplex mismatch discovered on {} ({own}), with {device} {at} ({theirs}).",
                        name(*port)
                    ),
                ))
            }
            Event::Added(_) | Event::Changed(_) | Event::Removed { .. } => None,
        };
        if ctx.bus.wants(EventKind::Discovery)
            && let Some((action, details)) = details(ctx, &event)
        {
            ctx.bus.event(EventKind::Discovery, action, || details);
        }
        if let Some((facility, mnemonic, text)) = message {
            ctx.log(facility, 4, mnemonic, &text);
        }
        1
    }
}

/// Withdraws this switch's information from its neighbours.
pub(crate) fn end(ctx: &Context) {
    ctx.protocols.with(|engine| {
        let (discovery, mut io) = engine.discovery_and_io();
        discovery.end(&mut io);
    });
}

/// The action and the JSON object of an event for `monitor events`; `None` for an event that is not sent there.
fn details(ctx: &Context, event: &Event) -> Option<(&'static str, Map<String, Value>)> {
    let now = ctx.protocols.with(|engine| engine.now());
    let about = |neighbour: &Neighbour| {
        let shown = shown(now, neighbour, ctx.port_name(neighbour.port).to_string());
        json!({
            "protocol": shown.protocol,
            "interface": shown.interface,
            "chassis_id": shown.chassis_id,
            "port_id": shown.port_id,
            "system_name": shown.system_name,
        })
    };
    let (action, value) = match event {
        Event::Added(neighbour) => ("add", about(neighbour)),
        Event::Changed(neighbour) => ("change", about(neighbour)),
        Event::Removed { neighbour, aged } => {
            let mut value = about(neighbour);
            value["cause"] = json!(if *aged { "aged" } else { "withdrawn" });
            ("delete", value)
        }
        Event::TooMany { .. } | Event::NativeVlanMismatch { .. } | Event::DuplexMismatch { .. } => {
            return None;
        }
    };
    Some((action, announce::object(value)))
}

/// Converts a neighbour to the form of the views.
pub(crate) fn shown(now: u64, neighbour: &Neighbour, interface: String) -> view::DiscoveryNeighbour {
    let ttl_s = neighbour.expires_ms.saturating_sub(now).div_ceil(1000);
    let hold_time_s = neighbour.info.ttl_s();
    match &neighbour.info {
        Info::Lldp(pdu) => view::DiscoveryNeighbour {
            interface,
            chassis_id: pdu.chassis_id.to_string(),
            port_id: pdu.port_id.to_string(),
            system_name: pdu.system_name.clone(),
            ttl_s,
            protocol: Protocol::Lldp.name(),
            details: view::DiscoveryDetails {
                hold_time_s,
                port_description: pdu.port_description.clone(),
                system_description: pdu.system_description.clone(),
                capabilities: pdu
                    .capabilities
                    .map(|set| Capabilities::letters(set.supported))
                    .unwrap_or_default(),
                enabled_capabilities: pdu
                    .capabilities
                    .map(|set| Capabilities::letters(set.enabled))
                    .unwrap_or_default(),
                management_addresses: pdu.management.iter().map(|(address, _)| *address).collect(),
                vlan: pdu.pvid.filter(|vlan| *vlan != 0),
                auto_negotiation: pdu.mac_phy.map(|phy| view::DiscoveryAutoNegotiation {
                    supported: phy.autoneg_supported,
                    enabled: phy.autoneg_enabled,
                    mau_type: phy.mau_type,
                }),
                link_aggregation: pdu.aggregation.map(|(supported, enabled, port)| {
                    view::DiscoveryAggregation { supported, enabled, port }
                }),
                max_frame_size: pdu.max_frame,
                med: pdu.med.as_ref().map(med),
                ..view::DiscoveryDetails::default()
            },
        },
        Info::Cdp(pdu) => view::DiscoveryNeighbour {
            interface,
            chassis_id: pdu.device_id.clone(),
            port_id: pdu.port_id.clone(),
            system_name: Some(pdu.device_id.clone()),
            ttl_s,
            protocol: Protocol::Cdp.name(),
            details: view::DiscoveryDetails {
                hold_time_s,
                system_description: pdu.software.clone(),
                platform: pdu.platform.clone(),
                capabilities: cdp::capability_letters(pdu.capabilities),
                enabled_capabilities: cdp::capability_letters(pdu.capabilities),
                management_addresses: pdu.management.clone(),
                addresses: pdu.addresses.clone(),
                vlan: pdu.native_vlan,
                full_duplex: pdu.full_duplex,
                version: Some(pdu.version),
                ..view::DiscoveryDetails::default()
            },
        },
    }
}

fn med(med: &Med) -> view::DiscoveryMed {
    let named = INVENTORY.iter().zip(&med.inventory);
    view::DiscoveryMed {
        device_type: med.device_type,
        inventory: named.filter_map(|(name, value)| value.clone().map(|value| (*name, value))).collect(),
        policies: med.policies.iter().map(policy).collect(),
        locations: med.locations.iter().map(location).collect(),
    }
}

fn location(location: &Location) -> String {
    match location {
        Location::Elin(digits) => format!("ELIN {digits}"),
        Location::Coordinates(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("coordinates {hex}")
        }
        Location::Civic(civic) => {
            let element = |(kind, value): &(u8, String)| match keyword(*kind) {
                Some(keyword) => format!(", {keyword} {value}"),
                None => format!(", element {kind} {value}"),
            };
            let elements: String = civic.elements.iter().map(element).collect();
            format!("civic, country {}{elements}", civic.country)
        }
    }
}

fn policy(policy: &NetworkPolicy) -> String {
    let application = match policy.application {
        1 => "voice".to_owned(),
        2 => "voice signaling".to_owned(),
        3 => "guest voice".to_owned(),
        5 => "softphone voice".to_owned(),
        6 => "video conferencing".to_owned(),
        7 => "streaming video".to_owned(),
        8 => "video signaling".to_owned(),
        other => format!("application {other}"),
    };
    if policy.unknown {
        return format!("{application}, unknown");
    }
    let tag = if policy.tagged { "tagged" } else { "untagged" };
    format!("{application}, VLAN {}, {tag}, priority {}, DSCP {}", policy.vlan, policy.priority, policy.dscp)
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
