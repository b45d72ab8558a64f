//! `show platform`: the plane and its tables, traps, and the trace of a frame.

use crate::context::Context;
use crate::core::Core;
use crate::resources;
use lanyard_cli::backend::{Platform, Refusal};
use lanyard_cli::view;
use lanyard_config::InterfaceName;
use lanyard_pipeline::trace::Verdict;
use lanyard_plane::{ChipPort, ChipTable, TrapCounters};
use lanyard_types::{Stage, TrapGroup, TrapReason};

impl Platform for Core {
    fn platform(&mut self) -> view::Platform {
        let chip = self.ctx.plane.chip().map(|chip| view::ChipState {
            platform: chip.platform,
            forwards: if chip.up { "chip" } else { "software" },
            control_path: chip.control_path.name(),
            manager: resources::strategy(chip.strategy),
            confidence: chip.confidence,
            hidden_routes: chip.hidden_routes,
            diverted_lists: chip.diverted_lists,
        });
        let able = self.ctx.plane.capabilities();
        view::Platform {
            chip,
            plane: able.name.into(),
            survives_daemon: able.survives_daemon,
            max_ports: able.ports as u64,
            max_mac_addresses: able.fdb.into(),
            notes: able.notes.clone(),
        }
    }
    fn resources(&mut self) -> view::Resources {
        resources::view(&mut self.ctx)
    }
    fn pipeline(&mut self) -> view::Pipeline {
        pipeline(&mut self.ctx)
    }
    fn front_panel(&mut self) -> Result<view::FrontPanel, Refusal> {
        let plane = self.ctx.plane.capabilities().name;
        let chip = self.ctx.plane.chip();
        let chip = chip.ok_or_else(|| format!("plane {plane} has no front panel: its ports are netdevs"))?;
        Ok(view::FrontPanel {
            platform: chip.platform,
            ports: chip.ports.into_iter().map(front_port).collect(),
        })
    }
    fn traps(&mut self) -> view::Traps {
        traps(&mut self.ctx)
    }
    fn packet_trace(
        &mut self,
        interface: &InterfaceName,
        frame: &[u8],
    ) -> Result<view::PacketTrace, Refusal> {
        trace(&mut self.ctx, interface, frame)
    }
}

fn front_port(port: ChipPort) -> view::FrontPort {
    view::FrontPort {
        name: port.name,
        number: port.number,
        connector: port.connector,
        speed_mbps: port.speed_mbps,
        speeds_mbps: port.speeds_mbps,
        autoneg: port.settings.speed_mbps.is_none(),
        duplex: if port.settings.half_duplex { "half" } else { "full" },
        fec: port.settings.fec.name(),
        splits: port.splits.iter().map(ToString::to_string).collect(),
        link_up: port.link_up,
        wire: port.wire,
        absent: port.absent,
    }
}

/// For each stage: the fields that it matches on, the kinds of objects that it looks up in a chip, and the
/// tables that it uses in the other planes. A stage that is not listed matches on the settings of the ingress
/// port and has no tables.
const STAGES: &[(Stage, &str, &[&str], &[&str])] = &[
    (Stage::Parse, "lengths, source address, tags", &[], &[]),
    (Stage::Trap, "reserved destinations, EtherType, reason's rate", &[], &[]),
    (Stage::Port, "ingress port", &["port_channel", "port_channel_member"], &["ports", "port_channels"]),
    (Stage::VlanIngress, "ingress port, VLAN, tree state", &[], &["vlans"]),
    (Stage::Learn, "VLAN, source address", &["mac"], &["fdb"]),
    (
        Stage::Route,
        "router interface, VRF, destination's longest prefix",
        &[
            "rif",
            "vrf",
            "ipv4_host",
            "ipv6_host",
            "ipv4_prefix",
            "ipv6_prefix64",
            "ipv6_prefix128",
            "ecmp_group",
            "ecmp_member",
        ],
        &["rifs", "routes_ipv4", "routes_ipv6", "next_hop_groups", "next_hop_buckets", "adjacencies"],
    ),
    (Stage::Bridge, "VLAN, destination address", &["mac"], &["fdb"]),
    (Stage::VlanEgress, "egress port, VLAN, tree state, MTU", &[], &["vlans"]),
    (Stage::Replicate, "egress ports, tag form, bucket", &["port_channel_member"], &["port_channels"]),
    (Stage::Count, "port, VLAN, drop reason", &[], &[]),
];

fn pipeline(ctx: &mut Context) -> view::Pipeline {
    let chip = ctx.plane.chip();
    let here: Vec<&str> = ctx.plane.resources().iter().map(|table| table.name).collect();
    let tables = |objects: &[&str], names: &[&str]| match &chip {
        Some(chip) => {
            let holds = |table: &&ChipTable| table.holds.iter().any(|(object, _)| objects.contains(object));
            chip.tables.iter().filter(holds).map(|table| format!("{} ({})", table.path, table.kind)).collect()
        }
        None => names.iter().filter(|name| here.contains(name)).map(|name| (*name).to_owned()).collect(),
    };
    let stage = |(stage, matches, objects, names): &(Stage, &'static str, &[&str], &[&str])| {
        view::PipelineStage { stage: stage.name(), matches, tables: tables(objects, names) }
    };
    let listed = |of: &Stage| {
        let found = STAGES.iter().find(|(stage, ..)| stage == of);
        found.copied().unwrap_or((*of, "settings of the ingress port", &[], &[]))
    };
    view::Pipeline { stages: Stage::ALL.iter().map(listed).map(|row| stage(&row)).collect() }
}

fn traps(ctx: &mut Context) -> view::Traps {
    let (counters, frames) = (ctx.plane.trap_counters(), ctx.plane.trap_reasons());
    let global = &ctx.plane.state().global;
    let group = |group: &TrapGroup| {
        let (all, port) = (global.trap_rate[group.index()], global.trap_port_rate[group.index()]);
        let TrapCounters { passed, policed, lost } = counters[group.index()];
        view::Trap {
            group: group.name(),
            rate_pps: all.rate_pps,
            burst: all.burst,
            port_rate_pps: port.rate_pps,
            port_burst: port.burst,
            trapped: passed.saturating_sub(lost),
            policed,
            lost,
        }
    };
    let reason = |reason: &TrapReason| view::TrapReason {
        reason: reason.name(),
        group: reason.group().name(),
        frames: frames[reason.index()],
    };
    view::Traps {
        traps: TrapGroup::ALL.iter().map(group).collect(),
        reasons: TrapReason::ALL.iter().map(reason).collect(),
    }
}

fn trace(ctx: &mut Context, interface: &InterfaceName, frame: &[u8]) -> Result<view::PacketTrace, Refusal> {
    let port = ctx.port_of(interface).ok_or_else(|| format!("{interface} is no port of the switch"))?;
    let trace = ctx.plane.trace(port, frame).map_err(|error| Refusal(error.to_string()))?;
    let (verdict, reason) = match trace.verdict {
        Verdict::Forwarded => ("forwarded", None),
        Verdict::Trapped(reason) => ("trapped", Some(reason.name())),
        Verdict::Dropped(reason) => ("dropped", Some(reason.name())),
    };
    let stages = trace.stages.into_iter();
    let egress = trace.egress.iter();
    Ok(view::PacketTrace {
        stages: stages.map(|s| view::TraceStage { stage: s.stage.name(), detail: s.detail() }).collect(),
        verdict,
        reason,
        egress: egress
            .map(|(port, bytes)| view::TraceEgress {
                interface: ctx.port_name(*port).to_string(),
                hex: hex(bytes),
            })
            .collect(),
    })
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Core;
    use crate::testing::{Bench, config};

    fn switch() -> (Bench, Core) {
        let bench = Bench::new();
        for name in ["eth1", "eth2", "eth3"] {
            bench.kernel.add(name);
        }
        let mut core = bench.core();
        let text = "vlan 10\ninterface eth1\n switchport\n switchport access vlan 10\n\
            interface eth2\n switchport\n switchport access vlan 10\ninterface eth3\n switchport";
        core.take(config(text)).expect("taken");
        (bench, core)
    }

    fn walk(interface: &str, frame: &[u8]) -> Result<view::PacketTrace, Refusal> {
        let (_bench, mut core) = switch();
        trace(&mut core.ctx, &InterfaceName::Netdev(interface.into()), frame)
    }

    /// A broadcast frame of 60 bytes from this address.
    fn broadcast(source: [u8; 6]) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend(source);
        frame.extend([0x88, 0xb5]);
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn a_frame_is_walked_to_its_egress() {
        let frame = broadcast([2, 0, 0, 0, 0, 1]);
        let shown = walk("eth1", &frame).expect("a port");
        assert_eq!((shown.verdict, shown.reason), ("forwarded", None));
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        let egress: Vec<_> = shown.egress.iter().map(|e| (e.interface.as_str(), e.hex.as_str())).collect();
        assert_eq!(egress, [("eth2", hex.as_str())], "its VLAN's other port");
        assert_eq!(shown.stages.first().map(|stage| stage.stage), Some("parse"));
    }

    #[test]
    fn a_dropped_and_a_trapped_frame_have_a_reason() {
        let shown = walk("eth1", &broadcast([3, 0, 0, 0, 0, 1])).expect("a port");
        assert_eq!((shown.verdict, shown.egress.len()), ("dropped", 0));
        assert!(shown.reason.is_some());
        let mut bpdu = broadcast([2, 0, 0, 0, 0, 1]);
        bpdu[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0x0e]);
        bpdu[12..14].copy_from_slice(&[0x88, 0xcc]);
        let shown = walk("eth1", &bpdu).expect("a port");
        assert_ne!(shown.verdict, "forwarded", "LLDP stays on its link: {:?}", shown.reason);
    }

    #[test]
    fn an_interface_that_is_no_port_is_named() {
        let error = walk("eth9", &broadcast([2, 0, 0, 0, 0, 1])).expect_err("no port");
        assert_eq!(error.to_string(), "eth9 is no port of the switch");
    }

    #[test]
    fn every_trap_group_and_reason_is_listed() {
        let (_bench, mut core) = switch();
        let shown = traps(&mut core.ctx);
        let groups: Vec<_> = shown.traps.iter().map(|trap| trap.group).collect();
        assert_eq!(groups, TrapGroup::ALL.iter().map(|group| group.name()).collect::<Vec<_>>());
        assert_eq!(shown.reasons.len(), TrapReason::ALL.len());
        for trap in &shown.traps {
            let group = TrapGroup::ALL.iter().find(|group| group.name() == trap.group).expect("a group");
            let rate = core.ctx.plane.state().global.trap_rate[group.index()];
            assert_eq!((trap.rate_pps, trap.burst), (rate.rate_pps, rate.burst), "{}", trap.group);
        }
    }

    #[test]
    fn bytes_as_digits() {
        assert_eq!(hex(&[0, 0x0f, 0xa5, 0xff]), "000fa5ff");
    }
}
