//! FRR in a node: the daemons that its configuration needs, with files and sockets of their own.
//!
//! Read first: FRR's user guide, "Basic Setup" and "VTY shell". Invariants: a node's daemons run in its namespace and
//! keep all files in a directory of their own, so they end with the lab and do not meet those of other nodes or of the
//! machine's own FRR; `lab up` ends when they have accepted their configuration, or reports the refused lines.

use crate::netns::{self, Place};
use crate::state;
use anyhow::{Context, Result, bail};
use nix::unistd::{Gid, Uid, User};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The directory of the daemons in Debian's package.
const DAEMONS: &str = "/usr/lib/frr";
/// The user that the daemons run as.
const USER: &str = "frr";
/// Daemons besides zebra and staticd, by the line of the configuration that needs them.
const BY_LINE: [(&str, &str); 8] = [
    ("router bgp", "bgpd"),
    ("router ospf", "ospfd"),
    ("router ospf6", "ospf6d"),
    ("router isis", "isisd"),
    ("router rip", "ripd"),
    ("router ripng", "ripngd"),
    ("ip pim", "pimd"),
    ("bfd", "bfdd"),
];
/// How long daemons may take to accept connections.
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The directory in which FRR's user finds its sockets; a node's subdirectory, LAB-NODE, is what `vtysh -N`
/// calls a pathspace.
const RUN: &str = "/run/frr";

/// The directory of a node's FRR.
#[must_use]
pub fn folder(netns: &str) -> PathBuf {
    Path::new(RUN).join(netns)
}

/// Removes the files of a node's FRR.
///
/// # Errors
/// They cannot be removed.
pub fn forget(netns: &str) -> Result<()> {
    let folder = folder(netns);
    if folder.exists() {
        state::remove(fs::remove_dir_all(&folder))
            .with_context(|| format!("can't remove {}", folder.display()))?;
        // Fails while other FRR instances use the directory.
        let _ = fs::remove_dir(RUN);
    }
    Ok(())
}

/// The options with which `vtysh` connects to a node's daemons.
#[must_use]
pub fn vtysh_options(folder: &Path) -> [std::ffi::OsString; 4] {
    ["--vty_socket".into(), folder.into(), "--config_dir".into(), folder.into()]
}

/// Starts the FRR of a node and waits until it has accepted `configuration`.
///
/// # Errors
/// The missing program, or the line that FRR refused.
pub fn start(node: &str, netns: &str, configuration: &str) -> Result<()> {
    let Some(user) = User::from_name(USER).ok().flatten().filter(|_| Path::new(DAEMONS).is_dir()) else {
        bail!("{node} needs FRR; install the package frr");
    };
    if netns::in_user_namespace() {
        bail!("{node} needs FRR, which needs the machine's root");
    }
    let folder = folder(netns);
    prepare(&folder, &user, configuration)?;
    let daemons = daemons(configuration);
    for (at, daemon) in daemons.iter().enumerate() {
        let module = *daemon == "zebra" && has_line(configuration, "fpm");
        run(&folder, netns, daemon, module)?;
        if at == 0 {
            // A daemon that does not find zebra tries again only after ten seconds.
            wait(&folder, &["zserv.api".to_owned()])?;
        }
    }
    wait(&folder, &daemons.iter().map(|daemon| format!("{daemon}.vty")).collect::<Vec<_>>())?;
    load(&folder, netns)
}

/// Creates the directory, writable by FRR's user, with the configuration in it.
fn prepare(folder: &Path, user: &User, configuration: &str) -> Result<()> {
    let wrong = || format!("can't prepare {}", folder.display());
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).with_context(wrong)?;
    for (name, text) in [("frr.conf", configuration), ("empty.conf", ""), ("vtysh.conf", "")] {
        let path = folder.join(name);
        fs::write(&path, text).with_context(wrong)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).with_context(wrong)?;
        own(&path, user.uid, user.gid)?;
    }
    own(folder, user.uid, user.gid)
}

fn own(path: &Path, uid: Uid, gid: Gid) -> Result<()> {
    nix::unistd::chown(path, Some(uid), Some(gid))
        .with_context(|| format!("can't hand over {}", path.display()))
}

/// The daemons a configuration needs, zebra first.
fn daemons(configuration: &str) -> Vec<&'static str> {
    let needed = BY_LINE.iter().filter(|(line, _)| has_line(configuration, line)).map(|(_, daemon)| *daemon);
    ["zebra", "staticd"].into_iter().chain(needed).collect()
}

/// True if the configuration has a line that begins with these words.
fn has_line(configuration: &str, words: &str) -> bool {
    configuration.lines().any(|line| {
        let mut line = line.split_ascii_whitespace();
        words.split(' ').all(|word| line.next() == Some(word))
    })
}

fn run(folder: &Path, netns: &str, daemon: &str, module: bool) -> Result<()> {
    let mut command = Command::new(Path::new(DAEMONS).join(daemon));
    // No TCP port for its terminal: `vtysh` uses the socket.
    command.args(["-d", "-P", "0", "-i"]).arg(folder.join(format!("{daemon}.pid")));
    command.arg("-z").arg(folder.join("zserv.api")).arg("--vty_socket").arg(folder);
    command.arg("-f").arg(folder.join("empty.conf"));
    command.arg("--log").arg(format!("file:{}", folder.join(format!("{daemon}.log")).display()));
    if module {
        command.args(["-M", "dplane_fpm_nl"]);
    }
    printed(netns, &mut command, daemon).map(drop)
}

/// Runs a command in the namespace to its end and returns its output; a failure contains what it
/// printed.
fn printed(netns: &str, command: &mut Command, what: &str) -> Result<String> {
    let output = netns::within(Place::Named(netns), || {
        command.stdin(Stdio::null()).output().with_context(|| format!("can't run {what}"))
    })?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    if !output.status.success() {
        bail!("{what} failed: {}\n{}", output.status, text.trim());
    }
    Ok(text)
}

fn wait(folder: &Path, files: &[String]) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    while let Some(missing) = files.iter().find(|file| !folder.join(file).exists()) {
        if Instant::now() > deadline {
            bail!("FRR does not come up: there is no {}", folder.join(missing).display());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Makes the daemons read their configuration.
fn load(folder: &Path, netns: &str) -> Result<()> {
    let mut command = Command::new("vtysh");
    let text = printed(netns, command.arg("-b").args(vtysh_options(folder)), "vtysh -b")?;
    let refused: Vec<&str> = text.lines().filter(|line| line.contains("% ")).collect();
    if !refused.is_empty() {
        bail!("FRR refuses its configuration:\n{}", refused.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_of_frr_are_derived_from_its_configuration() {
        let check = |text: &str, want: &[&str]| assert_eq!(daemons(text)[2..], *want, "{text}");
        check("hostname x\n!\nip route 0.0.0.0/0 10.0.0.1", &[]);
        check("router bgp 65000\n neighbor 10.0.0.1 bfd\nrouter ospf6\n", &["bgpd", "ospf6d"]);
        check("interface eth0\n ip ospf area 0\nrouter ospf\n", &["ospfd"]);
        check("bfd\n peer 10.0.0.1", &["bfdd"]);
        assert!(has_line("fpm address 127.0.0.1", "fpm") && !has_line("no fpm use-next-hop-groups", "fpm"));
    }
}
