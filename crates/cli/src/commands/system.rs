//! `show` commands about the system: its clock, its log, its processes, its parts, and all of them for reports of problems.

use crate::args::Args;
use crate::backend::Refusal;
use crate::exec::{Exec, Login};
use crate::outcome::Outcome;
use crate::render;
use crate::tree::{Node, kw};

/// `show clock`.
pub const CLOCK: Node = kw("clock", "Display the system clock").exec(clock);
/// `show processes`.
pub const PROCESSES: Node = kw("processes", "The daemon's threads and its children").exec(processes);
/// `show inventory`.
pub const INVENTORY: Node = kw("inventory", "The machine and its ports").exec(inventory);
/// `show tech-support`.
pub const TECH_SUPPORT: Node = kw("tech-support", "The output of many commands, for reports of problems")
    .privileged()
    .exec(tech_support);

/// `show logging`.
pub const LOGGING: Node = kw("logging", "Show the contents of logging buffers").exec(logging).then(&[kw(
    "persistent",
    "Show the messages that are kept in files",
)
.exec(persistent)]);

fn logging(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.logging();
    Ok(exec.present(&view, render::logging))
}

fn persistent(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.logging_persistent();
    let view =
        view.ok_or_else(|| Refusal("Persistent logging is not configured: logging persistent".into()))?;
    Ok(exec.present(&view, render::log_persistent))
}

fn clock(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.clock();
    Ok(exec.present(&view, render::clock))
}

fn processes(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.processes();
    Ok(exec.present(&view, render::processes))
}

fn inventory(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.inventory();
    Ok(exec.present(&view, render::inventory))
}

/// The commands of `show tech-support`, in order. None of them lists a table that may have a million entries.
const COMMANDS: &[&str] = &[
    "show version",
    "show clock",
    "show inventory",
    "show processes",
    "show running-config",
    "show startup-config",
    "show archive",
    "show configuration sessions",
    "show platform",
    "show platform pipeline",
    "show platform resources",
    "show platform traps",
    "show interfaces",
    "show interfaces status",
    "show interfaces switchport",
    "show interfaces counters drops",
    "show vlan",
    "show etherchannel summary",
    "show access-lists",
    "show spanning-tree",
    "show mac address-table count",
    "show ip interface brief",
    "show ipv6 interface brief",
    "show ip route summary",
    "show lldp neighbors",
    "show users",
    "show logging",
];

fn tech_support(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    if exec.pipe.json {
        return Err("show tech-support is text: each of its commands has JSON of its own".into());
    }
    // The commands run at the level that the session has now, which `enable` may have raised.
    let login = Login { level: exec.session.level, ..exec.session.login.clone() };
    let mut text = String::new();
    for command in COMMANDS {
        text.push_str(&format!("\n------------------ {command} ------------------\n\n"));
        match (exec.execute)(&login, command, exec.backend) {
            Outcome::Text(output) | Outcome::Refused(output) => text.push_str(&output),
            Outcome::Listing(listing) => text.push_str(&listing.text(exec.backend)),
            Outcome::Ntp(_)
            | Outcome::Stream(_)
            | Outcome::Capture(_)
            | Outcome::Run(_)
            | Outcome::Password(_)
            | Outcome::Close => {}
        }
    }
    Ok(Outcome::Text(text))
}
