//! Network namespaces and the links between them, made with iproute2's `ip`.
//!
//! Read first: ip-netns(8), network_namespaces(7), and `lanyard_netdev::netns`, which this file adapts to the lab. A
//! namespace has a name under /run/netns, as `ip netns` makes it. Invariant: only [`enter`] changes the namespace of
//! the calling thread.

use anyhow::{Context, Result, bail};
use lanyard_netdev::netns;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The path of a namespace. The names come from a topology that has been checked.
#[must_use]
pub fn path(namespace: &str) -> PathBuf {
    netns::path(namespace).unwrap_or_default()
}

/// Which network namespace something runs in.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// The caller's namespace.
    Here,
    /// The namespace with this name.
    Named(&'a str),
    /// A new, empty namespace, which is removed afterwards.
    Nowhere,
}

/// Runs `work` in `place`, on a thread of its own unless that is the caller's namespace.
///
/// # Errors
/// No such namespace, no rights, and any error of `work`.
pub fn within<T: Send>(place: Place<'_>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    match place {
        Place::Here => work(),
        Place::Named(name) => {
            netns::run_in(&open(name)?, work).with_context(|| format!("can't enter {name}"))?
        }
        Place::Nowhere => netns::run_in_new(work).context("can't make a network namespace")?,
    }
}

/// Moves the calling thread into a namespace, for good.
///
/// # Errors
/// No such namespace, or no rights.
pub fn enter(namespace: &str) -> Result<()> {
    netns::enter(&open(namespace)?).with_context(|| format!("can't enter {namespace}"))
}

fn open(namespace: &str) -> Result<File> {
    netns::open(namespace).with_context(|| format!("no network namespace {namespace}"))
}

/// Runs `ip -batch` on `lines`; does nothing without lines. With `force`, continues after a failed
/// line.
///
/// # Errors
/// The line that failed, and what `ip` printed.
pub fn batch(place: Place<'_>, lines: &[String], force: bool) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut text = lines.join("\n");
    text.push('\n');
    let (status, printed) = within(place, || {
        let mut ip = Command::new("ip");
        if force {
            ip.arg("-force");
        }
        let mut child = ip
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("can't run `ip`; install the package iproute2")?;
        if let Some(mut stdin) = child.stdin.take() {
            // If a line fails, `ip` ends before it has read the rest. Its message is more informative than
            // the broken pipe.
            let _ = stdin.write_all(text.as_bytes());
        }
        let output = child.wait_with_output()?;
        Ok((output.status, String::from_utf8_lossy(&output.stderr).into_owned()))
    })?;
    if status.success() {
        return Ok(());
    }
    let failed = printed
        .lines()
        .find_map(|line| line.strip_prefix("Command failed -:")?.parse::<usize>().ok())
        .and_then(|number| lines.get(number.saturating_sub(1)));
    let printed =
        printed.lines().filter(|line| !line.starts_with("Command failed")).collect::<Vec<_>>().join("; ");
    match failed {
        Some(line) => bail!("{printed} (ip {line})"),
        None => bail!("`ip -batch` failed: {printed}"),
    }
}

/// The processes in any of these namespaces, in no particular order.
#[must_use]
pub fn processes(namespaces: &[String]) -> Vec<i32> {
    let inodes: HashSet<(u64, u64)> = namespaces
        .iter()
        .filter_map(|name| fs::metadata(path(name)).ok())
        .map(|meta| (meta.dev(), meta.ino()))
        .collect();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let meta = fs::metadata(format!("/proc/{pid}/ns/net")).map(|meta| (meta.dev(), meta.ino())).ok();
            meta.is_some_and(|inode| inodes.contains(&inode))
        })
        .collect()
}

/// Checks that namespaces can be made, and makes /run usable where another user owns it.
///
/// In a user namespace (`unshare -Urnm`) /run belongs to the real root; this function mounts a private tmpfs over it,
/// for this mount namespace only. Returns a note for the user if it did so.
///
/// # Errors
/// The right or program that is missing, and the remedy.
pub fn rights() -> Result<Option<&'static str>> {
    if !nix::unistd::geteuid().is_root() || within(Place::Nowhere, || Ok(())).is_err() {
        bail!(
            "no right to make network namespaces. Run it as root, or in a user namespace of your own:\n  \
             unshare -Urnm\nand then the same command (the switches run on the soft plane there)"
        );
    }
    if Command::new("ip").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        bail!("`ip` is missing; install the package iproute2");
    }
    if !in_user_namespace() || writable(Path::new("/run")) {
        return Ok(None);
    }
    let options = Some("mode=755");
    nix::mount::mount(Some("lanyard"), "/run", Some("tmpfs"), nix::mount::MsFlags::empty(), options).context(
        "/run can't be written here, and no private one can be mounted; start with `unshare -Urnm` (with the m)",
    )?;
    Ok(Some("user namespace: /run is a private tmpfs; the lab is seen from this shell only"))
}

/// True in a user namespace whose root is not root outside.
#[must_use]
pub fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().ne(["0", "0", "4294967295"])
}

fn writable(path: &Path) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).is_ok()
}
