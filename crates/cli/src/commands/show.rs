//! `show ...`: each command gets a view from the switch or makes one from the configuration, and presents it
//! as text or JSON.

use super::shared::{get_interfaces, unknown};
use super::{
    access, access_list, aggregation, archive, discovery, dot1x, errdisable, fpm, location, monitor, need,
    platform as chip, port_security, qos, sflow, show_access, show_ip, show_stp, system, tacacs,
};
use crate::args::{Args, Kind, short};
use crate::backend::{MacFilter, Refusal};
use crate::config_view as made;
use crate::exec::Exec;
use crate::listing::Listing;
use crate::mac_table::MacTable;
use crate::outcome::Outcome;
use crate::outcome::lines;
use crate::render;
use crate::text;
use crate::tree::{Node, arg, kw};
use crate::view;

const INTERFACE: Node = arg(Kind::Interface, "Interface");

/// `show ...`, without the commands of [`crate::commands::FEATURES`].
pub const TREE: Node = kw("show", "Show running system information").then(&[
    dot1x::SHOW_AAA,
    access_list::SHOW,
    archive::SHOW_ARCHIVE,
    show_ip::ARP,
    dot1x::SHOW_AUTHENTICATION,
    discovery::SHOW_CDP,
    qos::SHOW_CLASS,
    system::CLOCK,
    kw("configuration", "Configuration details").then(&[
        archive::SHOW_LOCK,
        kw("sessions", "Configuration sessions that are pending").exec(sessions),
    ]),
    dot1x::SHOW_DOT1X,
    errdisable::SHOW,
    fpm::SHOW,
    kw("history", "Display the session command history").exec(history),
    INTERFACES,
    system::INVENTORY,
    show_ip::IP,
    show_ip::IPV6,
    aggregation::SHOW_ETHERCHANNEL,
    aggregation::SHOW_LACP,
    discovery::SHOW_LLDP,
    location::SHOW,
    system::LOGGING,
    dot1x::SHOW_MAB,
    kw("mac", "MAC configuration").then(&[MAC]),
    qos::SHOW_MLS,
    monitor::SHOW,
    super::ntp::SHOW,
    show_access::OBJECT_GROUP,
    PLATFORM,
    qos::SHOW_POLICY,
    port_security::SHOW,
    access::SHOW_PRIVILEGE,
    system::PROCESSES,
    archive::SHOW_RELOAD,
    kw("running-config", "Current operating configuration").privileged().exec(running).then(&[
        kw("interface", "Show interface configuration").then(&[INTERFACE.exec(running_interface)]),
        kw("vlan", "Show L2 VLAN configuration")
            .exec(running_vlan)
            .then(&[arg(Kind::VlanList, "VLAN IDs").exec(running_vlan)]),
    ]),
    sflow::SHOW,
    show_stp::TREE,
    kw("startup-config", "Contents of startup configuration").privileged().exec(startup),
    tacacs::SHOW,
    system::TECH_SUPPORT,
    show_access::TIME_RANGE,
    show_ip::TRACK,
    kw("users", "Display information about terminal lines").exec(users),
    kw("version", "System hardware and software status").exec(version),
    kw("vlan", "VLAN status").exec(vlan).then(&[
        show_access::ACCESS_MAP,
        show_access::FILTER,
        kw("brief", "All VLANs in brief").exec(vlan),
        aggregation::SHOW_INTERNAL_VLANS,
        kw("id", "VLAN status by VLAN id").then(&[arg(Kind::VlanList, "VLAN IDs").exec(vlan)]),
        kw("name", "VLAN status by VLAN name").then(&[arg(Kind::Word("WORD", 32), "A VLAN name").exec(vlan)]),
        super::private_vlan::SHOW,
    ]),
    show_ip::VRFS,
    show_ip::VRRP,
]);

const COUNTERS: Node = kw("counters", "Show interface counters").exec(counters).then(&[
    kw("drops", "Frames dropped, by reason").exec(drops),
    kw("errors", "Frames damaged, lost or dropped").exec(errors),
]);

const INTERFACES: Node = kw("interfaces", "Interface status and configuration").exec(interfaces).then(&[
    COUNTERS,
    kw("description", "Show interface description").exec(descriptions),
    kw("status", "Show interface line status").exec(status).then(&[kw(
        "err-disabled",
        "Show interface error disabled state",
    )
    .exec(err_disabled)]),
    kw("switchport", "Show interface switchport information").exec(switchport),
    chip::TRANSCEIVER,
    kw("trunk", "Show interface trunk information").exec(trunk),
    INTERFACE.exec(interfaces).then(&[
        COUNTERS,
        kw("description", "Show interface description").exec(descriptions),
        kw("status", "Show interface line status").exec(status),
        kw("switchport", "Show interface switchport information").exec(switchport),
        chip::TRANSCEIVER,
        kw("trunk", "Show interface trunk information").exec(trunk),
    ]),
]);

/// `[address M] [interface I] [vlan V]`.
pub const MAC_FILTERS: &[Node] = &[
    kw("address", "One address").then(&[arg(Kind::Mac, "MAC address")]),
    kw("interface", "At one interface").then(&[INTERFACE]),
    kw("vlan", "In one VLAN").then(&[arg(Kind::Vlan, "VLAN ID")]),
];

const MAC: Node = kw("address-table", "MAC forwarding table").exec(mac).options(MAC_FILTERS).then(&[
    kw("aging-time", "Time until an address that is not seen is removed").exec(ageing),
    kw("count", "Number of addresses").exec(mac_count).then(&[kw("vlan", "In one VLAN").then(&[arg(
        Kind::Vlan,
        "VLAN ID",
    )
    .exec(mac_count)])]),
    kw("dynamic", "Learned addresses").exec(mac_of_kind).options(MAC_FILTERS),
    kw("learning", "VLANs that learn addresses").exec(learning),
    kw("self", "The switch's own addresses").exec(mac_of_kind).options(MAC_FILTERS),
    kw("static", "Configured addresses").exec(mac_of_kind).options(MAC_FILTERS),
    kw("sticky", "Learned addresses that are kept").exec(mac_of_kind).options(MAC_FILTERS),
]);

const PLATFORM: Node = kw("platform", "The forwarding plane").exec(platform).then(&[
    kw("packet-trace", "Run a frame through the live tables").then(&[kw("interface", "Ingress interface")
        .then(&[INTERFACE.then(&[kw("hex", "The frame").then(&[arg(
            Kind::Hex,
            "Bytes from the destination address on, without FCS, in hexadecimal",
        )
        .exec(packet_trace)])])])]),
    chip::PIPELINE,
    chip::PORTS,
    kw("resources", "Finite tables: size, use, refusals").exec(resources),
    kw("traps", "Frames for the control plane").exec(traps),
]);

/// The filter that the options of a line select. An interface that the switch does not have is refused.
pub fn mac_filter(exec: &mut Exec<'_>, args: &Args) -> Result<MacFilter, Refusal> {
    let interface = args.interface();
    if interface.is_some() {
        get_interfaces(exec, args)?;
    }
    Ok(MacFilter { kind: None, mac: args.mac(), interface, vlan: args.vlan() })
}

fn mac_list(exec: &Exec<'_>, filter: MacFilter) -> Outcome {
    Outcome::Listing(Listing::new(MacTable::new(filter, exec.pipe.json)))
}

fn mac(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let filter = mac_filter(exec, args)?;
    Ok(mac_list(exec, filter))
}

fn mac_of_kind(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    const KINDS: [&str; 4] = ["dynamic", "static", "sticky", "self"];
    let kind = need(args.among(&KINDS.map(|kind| (kind, kind))))?;
    let filter = MacFilter { kind: Some(kind), ..mac_filter(exec, args)? };
    Ok(mac_list(exec, filter))
}

fn mac_count(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.mac_count(args.vlan());
    Ok(exec.present(&view, |view| render::mac_count(view, args.vlan())))
}

fn ageing(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = made::Ageing { ageing_time_s: exec.backend.running().fdb.ageing_s };
    Ok(exec.present(&view, |view| format!("Global Aging Time:  {}\n", view.ageing_time_s)))
}

fn learning(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = made::learning(exec.backend.running());
    Ok(exec.present(&view, render::learning))
}

fn interfaces(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = get_interfaces(exec, args)?;
    let config = exec.backend.running();
    let text = |view: &view::Interfaces| render::interfaces(view, config);
    Ok(exec.present(&view, text))
}

fn counters(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = made::counters(&get_interfaces(exec, args)?);
    Ok(exec.present(&view, render::counters))
}

fn errors(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = made::counters(&get_interfaces(exec, args)?);
    Ok(exec.present(&view, render::errors))
}

fn drops(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let only = args.interface();
    if only.is_some() {
        get_interfaces(exec, args)?;
    }
    let view = exec.backend.drops(only.as_ref());
    Ok(exec.present(&view, render::drops))
}

fn descriptions(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = made::descriptions(&get_interfaces(exec, args)?, exec.backend.running());
    Ok(exec.present(&view, render::descriptions))
}

fn status(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = made::status(&get_interfaces(exec, args)?, exec.backend.running());
    Ok(exec.present(&view, render::status))
}

fn err_disabled(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let mut view = made::status(&get_interfaces(exec, args)?, exec.backend.running());
    view.interfaces.retain(|port| port.status == "err-disabled");
    Ok(exec.present(&view, render::err_disabled))
}

fn switchport(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = made::switchports(&get_interfaces(exec, args)?, exec.backend.running());
    Ok(exec.present(&view, render::switchports))
}

fn trunk(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let view = made::trunks(&get_interfaces(exec, args)?, exec.backend.running(), args.interface().is_some());
    Ok(exec.present(&view, render::trunks))
}

fn sessions(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let rollback_in_s = exec.backend.rollback_in_s();
    let list = exec.backend.config_sessions().list();
    let sessions = list
        .map(|(name, lines)| made::PendingSession { name: name.to_owned(), lines: lines as u64 })
        .collect();
    let view = made::PendingSessions { sessions, rollback_in_s };
    Ok(exec.present(&view, render::sessions))
}

fn history(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = made::History { lines: exec.session.history.iter().cloned().collect() };
    Ok(exec.present(&view, |view| view.lines.iter().map(|line| format!("  {line}\n")).collect()))
}

fn platform(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.platform();
    Ok(exec.present(&view, render::platform))
}

fn resources(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.resources();
    Ok(exec.present(&view, render::resources))
}

fn traps(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.traps();
    Ok(exec.present(&view, render::traps))
}

fn packet_trace(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let (interface, frame) = (need(args.interface())?, need(args.bytes())?);
    let view = exec.backend.packet_trace(&interface, &frame)?;
    Ok(exec.present(&view, render::packet_trace))
}

/// `show running-config`, `write terminal`.
pub fn running(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let text = text::render(exec.backend.running());
    Ok(exec.present_config(text))
}

fn running_interface(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let name = need(args.interface())?;
    let Some(interface) = exec.backend.running().interfaces.get(&name) else { return Err(unknown(&name)) };
    let text = lines(&text::section(&name, interface));
    Ok(exec.present_config(format!("!\n{text}end\n")))
}

fn running_vlan(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let config = exec.backend.running();
    let sections = match args.vlans() {
        None => text::vlans(config),
        Some(set) => {
            let found =
                set.iter().filter_map(|id| config.vlans.get(&id).map(|vlan| text::vlan_section(id, vlan)));
            found.collect()
        }
    };
    let text: String = sections.iter().map(|section| format!("{}!\n", lines(section))).collect();
    Ok(exec.present_config(format!("!\n{text}end\n")))
}

fn startup(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let text = exec.backend.load_startup()?;
    if text.is_empty() && !exec.pipe.json {
        return Ok(Outcome::Text("startup-config is not present\n".into()));
    }
    Ok(exec.present_config(text))
}

fn users(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.users();
    Ok(exec.present(&view, render::users))
}

fn version(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.version();
    Ok(exec.present(&view, render::version))
}

fn vlan(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let mut view = made::vlans(exec.backend.running());
    if let Some(set) = args.vlans() {
        view.vlans.retain(|entry| lanyard_types::VlanId::new(entry.vlan).is_some_and(|id| set.contains(id)));
        if view.vlans.is_empty() {
            return Err(format!("VLAN id {set} not found in current VLAN database").into());
        }
    }
    if let Some(name) = args.text() {
        view.vlans.retain(|entry| entry.name == name);
        if view.vlans.is_empty() {
            return Err(format!("A VLAN with name '{}' does not exist", short(&name)).into());
        }
    }
    let width = exec.width();
    Ok(exec.present(&view, |view| render::vlans(view, width)))
}
