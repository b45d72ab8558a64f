//! sFlow: `sflow ...`, `show sflow`. IOS has no sFlow; the lines are those of other switches whose command line is like that of
//! IOS.

use super::need;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::outcome::Outcome;
use crate::setting::{Line, Number, Setting};
use crate::tree::{Node, arg, kw, number};
use crate::view::SflowView;
use lanyard_config::text::reference;
use lanyard_config::{Config, MAX_SFLOW_COLLECTORS, MAX_SFLOW_POLLING_S, SFLOW_PORT};
use lanyard_types::SamplingRate;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[("sflow", "Sampling of frames for collectors (sFlow)")];

/// Help for keywords that end no line, under an interface.
pub const PORT_GROUPS: &[(&str, &str)] = &[("sflow", "sFlow interface subcommands")];

/// In global configuration. A line names the source interface, so the running configuration prints these lines after the
/// interfaces.
pub const LINES: &[Line<Config>] = &[
    Line::own("sflow", AGENT, print_agent),
    Line::own("sflow", COLLECTOR, print_collectors),
    Setting::of(
        "sflow polling-interval",
        "Send the counters of each interface so often",
        &Number::any(
            field!(Config, sflow.polling_s),
            0,
            MAX_SFLOW_POLLING_S as u64,
            "Seconds; 0 sends no counters",
        ),
    )
    .line(),
    Setting::of(
        "sflow sampling-rate",
        "Set the sampling rate: one of N received frames is sampled",
        &Number::any(field!(Config, sflow.rate), 1, SamplingRate::MAX as u64, "Frames"),
    )
    .line(),
    Line::own("sflow", SOURCE, print_source),
];

const AGENT: Node = kw("agent-ip", "Address by which collectors know the switch").no(agent).then(&[arg(
    Kind::Ipv4,
    "IP address",
)
.run(agent)]);
const COLLECTOR: Node =
    kw("collector", "Send datagrams to a collector").then(&[arg(Kind::Ipv4, "IP address of the collector")
        .run(collector)
        .options(&[kw("port", "Another UDP port; by default 6343").then(&[number(
            1,
            65_535,
            "Port number",
        )])])]);
const SOURCE: Node = kw("source-interface", "Interface whose address datagrams have")
    .no(source)
    .then(&[arg(Kind::Interface, "Interface").run(source)]);

/// The first address of a line; refuses one that no host can have.
fn host(args: &Args) -> Result<Ipv4Addr, Refusal> {
    match need(args.addresses().first().copied())? {
        IpAddr::V4(address)
            if !(address.is_unspecified() || address.is_multicast() || address.is_broadcast()) =>
        {
            Ok(address)
        }
        other => Err(format!("{other} is not the address of a host").into()),
    }
}

fn agent(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.sflow.agent = if args.form == Form::Set { Some(host(args)?) } else { None };
    Ok(())
}

fn collector(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let address = host(args)?;
    let list = &mut edit.config.sflow.collectors;
    if args.form != Form::Set {
        list.retain(|(held, _)| *held != address);
        return Ok(());
    }
    let port = args.number().and_then(|port| u16::try_from(port).ok()).unwrap_or(SFLOW_PORT);
    if let Some(held) = list.iter_mut().find(|(held, _)| *held == address) {
        held.1 = port;
        return Ok(());
    }
    if list.len() >= MAX_SFLOW_COLLECTORS {
        return Err(
            format!("there are {MAX_SFLOW_COLLECTORS} sFlow collectors already: remove one first").into()
        );
    }
    list.push((address, port));
    Ok(())
}

fn source(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.sflow.source = match args.form {
        Form::Set => Some(need(args.interfaces().and_then(|names| names.into_iter().next()))?),
        Form::No | Form::Default => None,
    };
    Ok(())
}

fn print_agent(config: &Config) -> Vec<String> {
    config.sflow.agent.iter().map(|address| format!("sflow agent-ip {address}")).collect()
}

fn print_collectors(config: &Config) -> Vec<String> {
    let line = |(address, port): &(Ipv4Addr, u16)| {
        let port = if *port == SFLOW_PORT { String::new() } else { format!(" port {port}") };
        format!("sflow collector {address}{port}")
    };
    config.sflow.collectors.iter().map(line).collect()
}

fn print_source(config: &Config) -> Vec<String> {
    config.sflow.source.iter().map(|name| format!("sflow source-interface {}", reference(name))).collect()
}

/// Under `show`.
pub const SHOW: Node = kw("sflow", "Sampling of frames for collectors (sFlow)").exec(show);

fn show(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.sflow();
    Ok(exec.present(&view, text))
}

fn text(view: &SflowView) -> String {
    let mut out = String::new();
    let address = |address: Option<Ipv4Addr>| address.map_or_else(|| "none".into(), |it| it.to_string());
    let mut line = |head: &str, value: String| _ = writeln!(out, "{head:<22}: {value}");
    line("sFlow agent", if view.running { "running" } else { "not running" }.into());
    if let Some(error) = &view.error {
        line("Error", error.clone());
    }
    line("Agent address", address(view.agent_address));
    line(
        "Source address",
        view.source_address.map_or_else(|| "chosen by the kernel".into(), |it| it.to_string()),
    );
    line("Sampling rate", format!("1 in {} received frames", view.sampling_rate));
    line("Polling interval", format!("{} s", view.polling_interval_s));
    let _ = writeln!(out, "\n{:<22}{:>6}{:>12}{:>12}", "Collector", "Port", "Datagrams", "Failed");
    for one in &view.collectors {
        let to = one.address.to_string();
        let _ = writeln!(out, "{to:<22}{:>6}{:>12}{:>12}", one.port, one.datagrams, one.failed);
    }
    let _ = writeln!(
        out,
        "\n{:<18}{:>8}{:>12}{:>12}{:>12}{:>12}",
        "Interface", "Ifindex", "Samples", "Pool", "Drops", "Counters"
    );
    for one in &view.interfaces {
        let _ = writeln!(
            out,
            "{:<18}{:>8}{:>12}{:>12}{:>12}{:>12}",
            one.interface, one.ifindex, one.samples, one.pool, one.drops, one.counter_samples
        );
    }
    out
}
