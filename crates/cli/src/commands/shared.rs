//! Helpers for commands of several topics.

use crate::args::Args;
use crate::backend::Refusal;
use crate::exec::Exec;
use crate::mode::Mode;
use crate::render::{self, counted};
use crate::sessions::LineError;
use crate::view;
use lanyard_config::{Config, InterfaceName};

/// The maximum time for a confirmation, in minutes.
pub const MAX_MINUTES: u64 = 1440;

/// The maximum number of refused lines that a message names.
const MAX_NAMED: usize = 20;

/// The interfaces that a line names, or all. An interface that the switch does not have is refused.
pub fn get_interfaces(exec: &mut Exec<'_>, args: &Args) -> Result<view::Interfaces, Refusal> {
    let only = args.interface();
    let view = exec.backend.interfaces(only.as_ref());
    match only {
        Some(name) if view.interfaces.is_empty() => Err(unknown(&name)),
        _ => Ok(view),
    }
}

/// The refusal of an interface that the switch does not have.
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

/// Leaves the configuration modes.
pub fn leave_configuration(exec: &mut Exec<'_>) {
    if std::mem::take(&mut exec.session.changed) {
        log_configured(exec);
    }
    exec.backend.unlock_configuration();
    exec.session.mode = Mode::exec(exec.session.level);
}

/// Applies a complete configuration text; names the refused lines if there are any.
///
/// # Errors
/// The refused lines.
pub fn parse(exec: &Exec<'_>, text: &str, base: &Config) -> Result<Config, Refusal> {
    let (candidate, errors) = (exec.apply)(text, base);
    if errors.is_empty() { Ok(candidate) } else { Err(refused(&errors)) }
}

/// Makes `candidate` the running configuration. With `minutes` (1..=[`MAX_MINUTES`]) it is rolled back after this time unless it
/// is confirmed. Returns a text for the user, empty without `minutes`.
///
/// # Errors
/// The switch's refusal; nothing has changed then.
pub fn put(exec: &mut Exec<'_>, candidate: Config, minutes: Option<u32>) -> Result<String, Refusal> {
    let hint = match minutes {
        None => {
            exec.backend.commit(candidate)?;
            String::new()
        }
        Some(minutes) => {
            exec.backend.commit_confirmed(candidate, minutes)?;
            let after = counted(minutes.into(), "minute");
            format!("Rolled back in {after} unless confirmed: enter configure confirm.\n")
        }
    };
    log_configured(exec);
    Ok(hint)
}

fn refused(errors: &[LineError]) -> Refusal {
    let mut text = format!("nothing was changed, {} lines are refused:", errors.len());
    for error in errors.iter().take(MAX_NAMED) {
        text.push_str(&format!("\n%   {error}"));
    }
    text.into()
}
