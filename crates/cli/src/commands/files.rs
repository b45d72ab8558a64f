//! Configurations as texts: `write`, `copy`, `erase`, `configure replace`.
//!
//! Invariant: a text with a refused line is not applied in part: `copy FILE running-config` and `configure
//! replace` then change nothing and name the refused lines.

use super::need;
use super::shared::{parse, put};
use crate::args::{Args, Kind, MAX_WORD};
use crate::backend::Refusal;
use crate::exec::Exec;
use crate::outcome::{Outcome, lines};
use crate::render::counted;
use crate::text;
use crate::tree::{Node, arg, kw, number};
use lanyard_config::Config;

const TO_STARTUP: &[Node] = &[
    kw("startup-config", "Copy to the startup configuration").exec(save),
    arg(Kind::Word("FILE", MAX_WORD), "Copy to a file").exec(export),
];

/// `configure replace FILE [force] [list] [time MINUTES]`.
pub const REPLACE_OPTIONS: &[Node] = &[
    kw("force", "Replace without a question; the switch never asks one"),
    kw("list", "List the lines that change"),
    kw("time", "Roll back automatically unless confirmed").then(&[number(
        1,
        super::shared::MAX_MINUTES,
        "Minutes within which to confirm",
    )]),
];

/// `copy ...`.
pub const COPY: Node = kw("copy", "Copy from one file to another").privileged().then(&[
    kw("running-config", "Copy the running configuration").then(TO_STARTUP),
    kw("startup-config", "Copy the startup configuration").then(&[
        kw("running-config", "Add to the running configuration").exec(merge),
        arg(Kind::Word("FILE", MAX_WORD), "Copy to a file").exec(export),
    ]),
    arg(Kind::Word("FILE", MAX_WORD), "Copy a file of configuration text").then(&[kw(
        "running-config",
        "Add to the running configuration",
    )
    .exec(merge)]),
]);

/// `write ...`.
pub const WRITE: Node =
    kw("write", "Write running configuration to memory or terminal").privileged().exec(save).then(&[
        kw("erase", "Erase the startup configuration").exec(erase),
        kw("memory", "Write to the startup configuration").exec(save),
        kw("terminal", "Write to terminal").exec(super::show::running),
    ]);

/// `erase ...`.
pub const ERASE: Node = kw("erase", "Erase a configuration").privileged().then(&[kw(
    "startup-config",
    "Erase the startup configuration",
)
.exec(erase)]);

/// Saves the running configuration as startup-config. Refuses to save one that awaits confirmation: after a restart it would be
/// in force without a rollback.
fn save(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    if let Some(seconds) = exec.backend.rollback_in_s() {
        return Err(format!(
            "the running configuration awaits confirmation and is rolled back in {seconds} seconds; the startup \
             configuration is unchanged. Enter configure confirm first"
        )
        .into());
    }
    let text = text::render(exec.backend.running());
    exec.backend.save_startup(&text)?;
    if let Err(reason) = exec.backend.save_checkpoint(&exec.session.login.user) {
        exec.backend.log("SYS", 3, "ARCHIVE", &reason.to_string());
    }
    Ok(Outcome::Text("Building configuration...\n[OK]\n".into()))
}

fn erase(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    exec.backend.save_startup("")?;
    Ok(Outcome::Text("[OK]\n".into()))
}

/// File systems of IOS, by which its users name files and servers.
const FILE_SYSTEMS: &[&str] =
    &["bootflash", "flash", "ftp", "http", "https", "nvram", "rcp", "scp", "sftp", "tftp", "usbflash0"];

/// The name of a file of this machine: any name except the keywords for configurations and the file systems of IOS. `copy
/// running-config tftp:` would otherwise write a file of this name.
fn file(path: String) -> Result<String, Refusal> {
    let system = path.split_once(':').map(|(system, _)| system.to_ascii_lowercase());
    match system.filter(|system| FILE_SYSTEMS.contains(&system.as_str())) {
        Some(system) => Err(format!(
            "{system}: is a file system of IOS, and Lanyard has none: enter the path of a file on this machine, such \
             as /etc/lanyard/copy.cfg"
        )
        .into()),
        None => Ok(path),
    }
}

fn export(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let path = file(need(args.text())?)?;
    let is_running = need(args.among(&[("running-config", true), ("startup-config", false)]))?;
    let text = if is_running { text::render(exec.backend.running()) } else { exec.backend.load_startup()? };
    exec.backend.write_file(&path, &text)?;
    Ok(Outcome::Text(format!("{} bytes copied\n", text.len())))
}

fn source(exec: &mut Exec<'_>, args: &Args) -> Result<String, Refusal> {
    match args.text() {
        Some(path) => exec.backend.read_file(&file(path)?),
        None => exec.backend.load_startup(),
    }
}

fn merge(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let base = exec.backend.running().clone();
    take(exec, args, &base)
}

/// `configure replace`.
pub fn replace(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    take(exec, args, &Config::default())
}

fn take(exec: &mut Exec<'_>, args: &Args, base: &Config) -> Result<Outcome, Refusal> {
    let text = source(exec, args)?;
    let candidate = parse(exec, &text, base)?;
    let listed =
        if args.has("list") { lines(&text::diff(exec.backend.running(), &candidate)) } else { String::new() };
    let hint = put(exec, candidate, args.number_u32())?;
    let taken = counted(text.lines().count() as u64, "line");
    Ok(Outcome::Text(format!("{listed}{taken} taken\n{hint}")))
}
