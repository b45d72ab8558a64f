//! Helpers for commands of several topics.

use crate::args::Args;
use crate::backend::Refusal;
use crate::exec::Exec;
use crate::render;
use crate::view;
use lanyard_config::InterfaceName;

/// The interfaces that a line names, or all. An interface that the switch does not have is refused.
pub fn get_interfaces(exec: &mut Exec<'_>, args: &Args) -> Result<view::Interfaces, Refusal> {
    let only = args.interface();
    let view = exec.backend.interfaces(only.as_ref());
    match only {
        Some(name) if view.interfaces.is_empty() => Err(unknown(&name)),
        _ => Ok(view),
    }
}

/// Refuses an interface that the switch does not have.
pub fn unknown(name: &InterfaceName) -> Refusal {
    format!("Interface {} is not an interface of this switch", render::ios_name(name)).into()
}

/// Writes a log message that a user has changed the configuration, and saves a checkpoint of the result. A change that awaits
/// confirmation gets its checkpoint when it is confirmed.
pub fn log_configured(exec: &mut Exec<'_>) {
    let login = &exec.session.login;
    let text = format!("Configured from {} by {}", login.line, login.user);
    exec.backend.log("SYS", 5, "CONFIG_I", &text);
    if exec.backend.rollback_in_s().is_some() {
        return;
    }
    if let Err(reason) = exec.backend.save_checkpoint(&exec.session.login.user) {
        exec.backend.log("SYS", 3, "ARCHIVE", &reason.to_string());
    }
}
