//! `show platform`: the plane and its tables, traps, and a frame's walk.

use crate::context::Context;
use crate::core::Core;
use crate::resources;
use lanyard_cli::backend::{Platform, Refusal};
use lanyard_cli::view;
use lanyard_config::InterfaceName;
use lanyard_pipeline::trace::Verdict;
use lanyard_plane::TrapCounters;
use lanyard_types::{TrapGroup, TrapReason};

impl Platform for Core {
    fn platform(&mut self) -> view::Platform {
        let able = self.ctx.plane.capabilities();
        view::Platform {
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
        stages: stages.map(|s| view::TraceStage { stage: s.stage.name(), detail: s.detail }).collect(),
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
