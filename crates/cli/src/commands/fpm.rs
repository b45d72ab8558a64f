//! `fpm server` and `show fpm`: routes from a routing suite over FPM.

use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::outcome::Outcome;
use crate::render;
use crate::setting::Line;
use crate::tree::{Node, arg, kw, number};
use crate::view::{FpmCounter, FpmCounters};
use lanyard_config::{Config, FpmServer};

/// In global configuration.
pub const LINES: &[Line<Config>] =
    &[Line::own("", ENTRY, |config| lanyard_config::fpm::lines(config.fpm.as_ref()))];

const ENTRY: Node = kw("fpm", "Forwarding plane manager").then(&[kw(
    "server",
    "Take routes from a routing suite (FRR's dplane_fpm_nl); default: 127.0.0.1 port 2620",
)
.run(server)
.options(&[
    kw("address", "Address to listen at").then(&[
        arg(Kind::Ipv4, "An IPv4 address of the switch"),
        arg(Kind::Ipv6, "An IPv6 address of the switch"),
    ]),
    kw("port", "Another TCP port").then(&[number(1, 65_535, "TCP port")]),
])]);

/// Under `show`.
pub const SHOW: Node =
    kw("fpm", "Forwarding plane manager: routes from a routing suite").exec(status).then(&[
        kw("counters", "What was received, answered and refused").exec(counters),
        kw("status", "The session and its routes").exec(status),
    ]);

fn server(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form != Form::Set {
        edit.config.fpm = None;
        return Ok(());
    }
    let mut server = FpmServer::default();
    if let Some(address) = args.addresses().into_iter().next() {
        if address.is_multicast() {
            return Err(format!("{address} is not an address of a host").into());
        }
        server.address = address;
    }
    if let Some(port) = args.number() {
        server.port = u16::try_from(port).map_err(|_| Refusal(format!("{port} is not a TCP port")))?;
    }
    edit.config.fpm = Some(server);
    Ok(())
}

fn status(exec: &mut Exec<'_>, _args: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.fpm();
    Ok(exec.present(&view, render::fpm))
}

fn counters(exec: &mut Exec<'_>, _args: &Args) -> Result<Outcome, Refusal> {
    let counters = exec.backend.fpm().counters;
    let counters = counters.into_iter().map(|(name, count)| FpmCounter { name, count }).collect();
    Ok(exec.present(&FpmCounters { counters }, render::fpm_counters))
}
