//! Safe changes: checkpoints of the configuration (`archive config`, `rollback`, `show archive`), the lock of the configuration,
//! and the return to the startup-config (`reload`).
//!
//! Invariant: `rollback` takes a checkpoint completely, or changes nothing if one of its lines is refused. `reload` takes the
//! startup-config without its refused lines, as the daemon does when it starts.

use super::shared::{MAX_MINUTES, parse, put};
use super::{access, need};
use crate::args::{Args, Kind, MAX_WORD, short};
use crate::backend::{MAX_RELOAD_MINUTES, Refusal, ReloadTime};
use crate::exec::Exec;
use crate::outcome::{Outcome, lines};
use crate::render;
use crate::text;
use crate::tree::{Node, arg, kw, number};
use lanyard_config::Config;
use serde::Serialize;

/// The maximum length of the reason for a reload, in bytes.
const MAX_REASON: usize = 120;
const NUMBER: Node = number(1, u32::MAX as u64, "Number of the checkpoint, as show archive lists it");

/// `archive config`.
pub const ARCHIVE: Node = kw("archive", "Manage archived configurations").privileged().then(&[kw(
    "config",
    "Save the running configuration as a checkpoint",
)
.exec(save)]);

/// `rollback N`.
pub const ROLLBACK: Node = kw("rollback", "Make a checkpoint the running configuration")
    .privileged()
    .then(&[NUMBER.exec(rollback).then(&[kw("confirmed", "Roll back automatically unless confirmed")
        .then(&[number(1, MAX_MINUTES, "Minutes within which to confirm").exec(rollback)])])]);

/// `show archive ...`.
pub const SHOW_ARCHIVE: Node = kw("archive", "Archived configurations").privileged().exec(show).then(&[
    kw("config", "Compare configurations").then(&[kw(
        "differences",
        "From the startup configuration to the running one",
    )
    .exec(differences)
    .then(&[CONFIGURATION.exec(differences).then(&[CONFIGURATION.exec(differences)])])]),
    access::SHOW_AUDIT,
]);

/// The name of a configuration that is compared.
const CONFIGURATION: Node = arg(
    Kind::Word("CONFIG", MAX_WORD),
    "The number of a checkpoint, running-config, startup-config, or a file; the second is by default the running one",
);

/// `show configuration lock`.
pub const SHOW_LOCK: Node = kw("lock", "The session that alone may change the configuration").exec(show_lock);

/// `clear configuration lock`.
pub const CLEAR_LOCK: Node = kw("configuration", "The configuration").then(&[kw(
    "lock",
    "End the lock of a session on the configuration",
)
.exec(clear_lock)]);

const REASON: Node = arg(Kind::Line(MAX_REASON), "Reason").exec(reload_later);

/// `reload ...`.
pub const RELOAD: Node =
    kw("reload", "Return to the startup configuration").privileged().exec(reload).then(&[
        kw("at", "Reload at a time of day")
            .then(&[arg(Kind::Word("HH:MM", 5), "Time of day").exec(reload_later).then(&[REASON])]),
        kw("cancel", "Cancel the scheduled reload").exec(cancel),
        kw("in", "Reload after some time").then(&[arg(
            Kind::Word("MINUTES", 8),
            "Minutes, or HOURS:MINUTES",
        )
        .exec(reload_later)
        .then(&[REASON])]),
    ]);

/// `show reload`.
pub const SHOW_RELOAD: Node = kw("reload", "The scheduled reload").exec(show_reload);

fn save(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let number = exec.backend.save_checkpoint(&exec.session.login.user)?;
    Ok(Outcome::Text(format!("Checkpoint {number} is the running configuration\n")))
}

fn show(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.archive()?;
    Ok(exec.present(&view, render::archive))
}

fn rollback(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let numbers = args.numbers();
    let number = need(numbers.first().and_then(|number| u32::try_from(*number).ok()))?;
    let minutes = numbers.get(1).and_then(|minutes| u32::try_from(*minutes).ok());
    let text = exec.backend.checkpoint(number)?;
    let candidate = parse(exec, &text, &Config::default())?;
    if candidate == *exec.backend.running() {
        return Ok(Outcome::Text(format!("Checkpoint {number} is the running configuration already\n")));
    }
    let hint = put(exec, candidate, minutes)?;
    Ok(Outcome::Text(format!("Checkpoint {number} is the running configuration\n{hint}")))
}

/// `show archive config differences | json`.
#[derive(Serialize)]
struct Differences {
    lines: Vec<String>,
}

fn differences(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let names = args.texts();
    let name = |at: usize, otherwise: &str| names.get(at).cloned().unwrap_or_else(|| otherwise.to_owned());
    let old = named(exec, &name(0, "startup-config"))?;
    let new = named(exec, &name(1, "running-config"))?;
    let view = Differences { lines: text::diff(&old, &new) };
    Ok(exec.present(&view, |view| lines(&view.lines)))
}

/// The configuration with a name: `running-config`, `startup-config`, the number of a checkpoint, or a file.
fn named(exec: &mut Exec<'_>, name: &str) -> Result<Config, Refusal> {
    let text = match name {
        "running-config" => return Ok(exec.backend.running().clone()),
        "startup-config" => exec.backend.load_startup()?,
        name => match name.parse() {
            Ok(number) => exec.backend.checkpoint(number)?,
            Err(_) => exec.backend.read_file(name)?,
        },
    };
    // Lines that are refused now are left out, and so are not shown as differences.
    Ok((exec.apply)(&text, &Config::default()).0)
}

fn show_lock(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.configuration_lock();
    Ok(exec.present(&view, render::configuration_lock))
}

fn clear_lock(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    if exec.backend.clear_configuration_lock() {
        Ok(Outcome::Text(String::new()))
    } else {
        Err("the configuration is not locked".into())
    }
}

fn reload(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let user = exec.session.login.user.clone();
    Ok(Outcome::Text(match exec.backend.reload(&user)? {
        0 => "The startup configuration is the running configuration\n".into(),
        count => format!(
            "The startup configuration is the running configuration without {count} refused lines: see show logging\n"
        ),
    }))
}

fn reload_later(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let texts = args.texts();
    let time = need(texts.first())?;
    let at = if need(args.among(&[("at", true), ("in", false)]))? { time_of_day(time) } else { delay(time) }?;
    let user = exec.session.login.user.clone();
    exec.backend.schedule_reload(at, &user, texts.get(1).cloned())?;
    Ok(Outcome::Text(render::scheduled_reload(&exec.backend.scheduled_reload())))
}

/// The two numbers of `HOURS:MINUTES`; `None` if the text has another form, or 60 minutes or more.
fn pair(text: &str) -> Option<(u32, u32)> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let (hours, minutes) = text.split_once(':')?;
    Some((digits(hours)?, digits(minutes).filter(|minutes| *minutes < 60)?))
}

fn time_of_day(text: &str) -> Result<ReloadTime, Refusal> {
    match pair(text) {
        Some((hour @ 0..24, minute)) => Ok(ReloadTime::At { hour: hour as u8, minute: minute as u8 }),
        _ => Err(format!("{} is not a time of day: 00:00 to 23:59", short(text)).into()),
    }
}

fn delay(text: &str) -> Result<ReloadTime, Refusal> {
    let of_pair = |(hours, minutes): (u32, u32)| hours.checked_mul(60)?.checked_add(minutes);
    let minutes = text.parse().ok().or_else(|| pair(text).and_then(of_pair));
    match minutes {
        Some(minutes @ 1..=MAX_RELOAD_MINUTES) => Ok(ReloadTime::InMinutes(minutes)),
        _ => Err(format!(
            "{} is not a time until a reload: 1 to {MAX_RELOAD_MINUTES} minutes, or HOURS:MINUTES",
            short(text)
        )
        .into()),
    }
}

fn cancel(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    if exec.backend.cancel_reload() {
        Ok(Outcome::Text(String::new()))
    } else {
        Err("no reload is scheduled".into())
    }
}

fn show_reload(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.scheduled_reload();
    Ok(exec.present(&view, render::scheduled_reload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, hour, minute) in [("00:00", 0, 0), ("23:59", 23, 59), ("7:05", 7, 5)] {
            assert_eq!(time_of_day(text), Ok(ReloadTime::At { hour, minute }), "{text}");
        }
        for text in ["24:00", "12:60", "12", "+1:00", "1:", ":", "1:2:3"] {
            assert!(time_of_day(text).is_err(), "{text}");
        }
        for (text, minutes) in [("1", 1), ("90", 90), ("1:30", 90), ("576:00", MAX_RELOAD_MINUTES)] {
            assert_eq!(delay(text), Ok(ReloadTime::InMinutes(minutes)), "{text}");
        }
        for text in ["0", "0:00", "576:01", "34561", "-1", "1h", "99999999999:00"] {
            assert!(delay(text).is_err(), "{text}");
        }
    }
}
