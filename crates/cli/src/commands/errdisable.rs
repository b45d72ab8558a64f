//! `errdisable recovery ...`, and `show errdisable recovery`: ports that the switch shuts down by itself.

use crate::args::{Args, Form};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::outcome::Outcome;
use crate::render::enabled;
use crate::setting::{Line, Number, Setting};
use crate::tree::{Node, kw};
use crate::view;
use lanyard_config::Config;
use lanyard_types::ErrCause;
use serde::Serialize;
use std::fmt::Write;

/// In global configuration.
pub const LINES: &[Line<Config>] = &[
    Line::own("errdisable recovery", CAUSE, print),
    Setting::of(
        "errdisable recovery interval",
        "Error disable recovery timer value",
        &Number::any(field!(Config, errdisable.interval_s), 30, 86_400, "timer-interval(sec)"),
    )
    .line(),
];

const CAUSE: Node = kw("cause", "Enable error disable recovery for application").then(&CAUSES);

/// `all`, and the keyword of each cause.
const CAUSES: [Node; ErrCause::ALL.len() + 1] = {
    let all = kw("all", "Enable timer to recover from all causes").run(recovery);
    let mut nodes = [all; ErrCause::ALL.len() + 1];
    let mut at = 0;
    while at < ErrCause::ALL.len() {
        let cause = ErrCause::ALL[at];
        nodes[at + 1] = kw(cause.name(), cause.help()).run(recovery);
        at += 1;
    }
    nodes
};

fn recovery(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let choices: Vec<(&str, ErrCause)> = ErrCause::ALL.iter().map(|cause| (cause.name(), *cause)).collect();
    let causes = args.among(&choices).map_or_else(|| ErrCause::ALL.to_vec(), |cause| vec![cause]);
    let recovery = &mut edit.config.errdisable.recovery;
    for cause in causes {
        if args.form == Form::Set {
            recovery.insert(cause);
        } else {
            recovery.remove(&cause);
        }
    }
    Ok(())
}

fn print(config: &Config) -> Vec<String> {
    let line = |cause: &ErrCause| format!("errdisable recovery cause {cause}");
    config.errdisable.recovery.iter().map(line).collect()
}

/// Under `show`.
pub const SHOW: Node =
    kw("errdisable", "Error disable")
        .then(&[kw("recovery", "Error disable recovery timer information").exec(show)]);

#[derive(Debug, Serialize)]
struct Recovery {
    /// All causes.
    causes: Vec<Cause>,
    /// `errdisable recovery interval`.
    interval_s: u32,
    /// The ports that are shut down, in natural order.
    interfaces: Vec<view::ErrDisabledPort>,
}

#[derive(Debug, Serialize)]
struct Cause {
    cause: ErrCause,
    /// True when ports that are shut down for this cause are enabled again after the interval.
    recovery: bool,
}

fn show(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let interfaces = exec.backend.err_disabled();
    let config = &exec.backend.running().errdisable;
    let cause = |cause: &ErrCause| Cause { cause: *cause, recovery: config.recovery.contains(cause) };
    let causes = ErrCause::ALL.iter().map(cause).collect();
    let view = Recovery { causes, interval_s: config.interval_s, interfaces };
    Ok(exec.present(&view, text))
}

fn text(view: &Recovery) -> String {
    let mut out = String::from(
        "ErrDisable Reason            Timer Status\n-----------------            --------------\n",
    );
    for cause in &view.causes {
        let _ = writeln!(out, "{:<28} {}", cause.cause, enabled(cause.recovery));
    }
    let _ = writeln!(out, "\nTimer interval: {} seconds\n", view.interval_s);
    out.push_str("Interfaces that will be enabled at the next timeout:\n\n");
    out.push_str("Interface       Errdisable reason       Time left(sec)\n");
    out.push_str("---------       -----------------       --------------\n");
    for row in &view.interfaces {
        let left = row.time_left_s.map_or_else(|| "never".into(), |left| left.to_string());
        let _ = writeln!(out, "{:<15} {:<23} {left:>14}", row.interface, row.cause);
    }
    out
}
