//! `configure session NAME`: collects changes, shows them, and commits all of them or none.

use super::files;
use super::shared::{MAX_MINUTES, log_configured};
use crate::args::{Args, Kind};
use crate::backend::Refusal;
use crate::exec::Exec;
use crate::mode::{ConfigMode, Mode};
use crate::outcome::Outcome;
use crate::outcome::lines;
use crate::render::counted;
use crate::text;
use crate::tree::{Node, arg, kw, number};
use serde::Serialize;

/// The commands of `(config-s-NAME)#` besides those of global configuration.
pub const TREE: &[Node] = &[
    kw("abort", "Discard the session").exec(abort),
    kw("commit", "Make the session's changes the running configuration").exec(commit).then(&[kw(
        "confirmed",
        "Roll back automatically unless confirmed",
    )
    .then(&[number(1, MAX_MINUTES, "Minutes within which to confirm").exec(commit)])]),
    kw("show", "Show the session").then(&[
        kw("diff", "Differences from the running configuration").exec(diff),
        kw("running-config", "The configuration after the session's changes").exec(candidate),
    ]),
];

/// `configure ...` in exec mode.
pub const CONFIGURE: Node = kw("configure", "Enter configuration mode").privileged().exec(terminal).then(&[
    kw("confirm", "Confirm the running configuration and cancel its rollback").exec(confirm),
    kw("replace", "Replace the running configuration by another").then(&[
        kw("startup-config", "The startup configuration")
            .exec(files::replace)
            .options(files::REPLACE_OPTIONS),
        arg(Kind::Word("FILE", crate::args::MAX_WORD), "A file of configuration text")
            .exec(files::replace)
            .options(files::REPLACE_OPTIONS),
    ]),
    kw("session", "Collect changes, and commit them together").then(&[arg(
        Kind::Word("NAME", 32),
        "Name of the session, which is created if it does not exist",
    )
    .exec(enter)
    .then(&[
        kw("abort", "Discard the session").exec(enter_abort),
        kw("commit", "Make its changes the running configuration").exec(enter_commit),
    ])]),
    kw("terminal", "Configure from the terminal").exec(terminal).then(&[kw(
        "lock",
        "Allow no other session to change the configuration",
    )
    .exec(lock)]),
]);

fn terminal(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    exec.session.mode = Mode::Config { at: ConfigMode::Global, session: None };
    exec.session.changed = false;
    let hint = "Enter configuration commands, one per line.  End with CNTL/Z.\n";
    Ok(Outcome::Text(if exec.session.login.interactive { hint.into() } else { String::new() }))
}

fn lock(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    exec.backend.lock_configuration()?;
    terminal(exec, args)
}

fn session_name(args: &Args) -> Result<String, Refusal> {
    let name = super::need(args.text())?;
    if name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        Ok(name)
    } else {
        Err(format!("{} is not a session's name: letters, digits, -, _ and .", crate::args::short(&name))
            .into())
    }
}

fn enter(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let name = session_name(args)?;
    exec.backend.config_sessions().open(&name)?;
    exec.session.mode = Mode::Config { at: ConfigMode::Global, session: Some(name) };
    exec.session.changed = false;
    Ok(Outcome::Text(String::new()))
}

fn existing(exec: &mut Exec<'_>, args: &Args) -> Result<String, Refusal> {
    let name = session_name(args)?;
    if exec.backend.config_sessions().contains(&name) {
        Ok(name)
    } else {
        Err(format!("there is no configuration session {name}").into())
    }
}

fn enter_abort(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let name = existing(exec, args)?;
    exec.backend.config_sessions().remove(&name);
    Ok(Outcome::Text(String::new()))
}

fn enter_commit(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let name = existing(exec, args)?;
    commit_session(exec, &name, None)
}

/// The name of the configuration session that is being edited.
fn current(exec: &Exec<'_>) -> Result<String, Refusal> {
    match &exec.session.mode {
        Mode::Config { session: Some(name), .. } => Ok(name.clone()),
        _ => Err("no configuration session is open here".into()),
    }
}

fn abort(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let name = current(exec)?;
    exec.backend.config_sessions().remove(&name);
    exec.session.mode = Mode::exec(exec.session.level);
    Ok(Outcome::Text(waiting(exec)))
}

/// A reminder if the running configuration awaits confirmation; otherwise empty.
fn waiting(exec: &Exec<'_>) -> String {
    match exec.backend.rollback_in_s() {
        Some(seconds) => {
            format!("The running configuration is rolled back in {seconds} seconds unless confirmed.\n")
        }
        None => String::new(),
    }
}

fn commit(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let name = current(exec)?;
    commit_session(exec, &name, args.number_u32())
}

fn commit_session(exec: &mut Exec<'_>, name: &str, minutes: Option<u32>) -> Result<Outcome, Refusal> {
    let running = exec.backend.running().clone();
    let is_empty = exec.backend.config_sessions().len(name) == 0;
    let candidate = exec.backend.config_sessions().candidate(name, &running, exec.apply)?;
    if let Some(minutes) = minutes {
        exec.backend.commit_confirmed(candidate, minutes)?;
        exec.backend.config_sessions().clear(name);
        exec.session.mode = Mode::Config { at: ConfigMode::Global, session: Some(name.to_owned()) };
        log_configured(exec);
        let how = "enter commit here or configure confirm";
        let after = counted(minutes.into(), "minute");
        return Ok(Outcome::Text(format!("Committed; rolled back in {after} unless confirmed: {how}.\n")));
    }
    if !is_empty {
        exec.backend.commit(candidate)?;
        log_configured(exec);
    }
    exec.backend.confirm();
    exec.backend.config_sessions().remove(name);
    exec.session.mode = Mode::exec(exec.session.level);
    Ok(Outcome::Text(String::new()))
}

fn confirm(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    if exec.backend.confirm() {
        Ok(Outcome::Text(String::new()))
    } else {
        Err("no commit is waiting for a confirmation".into())
    }
}

fn diff(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let name = current(exec)?;
    let running = exec.backend.running().clone();
    let candidate = exec.backend.config_sessions().candidate(&name, &running, exec.apply)?;
    let view = Diff { lines: text::diff(&running, &candidate) };
    Ok(exec.present(&view, |view| lines(&view.lines)))
}

/// `show diff | json`.
#[derive(Serialize)]
struct Diff {
    lines: Vec<String>,
}

fn candidate(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let name = current(exec)?;
    let running = exec.backend.running().clone();
    let candidate = exec.backend.config_sessions().candidate(&name, &running, exec.apply)?;
    Ok(exec.present_config(text::render(&candidate)))
}
