//! Loads a lab so that it can be built: the topology, the configurations it names, and their
//! origin.
//!
//! Invariant: every file that the lab needs has been read, within its limit, before anything is
//! created.

use crate::read::{self, Remark};
use crate::topology::{MAX_FILE_BYTES, StartupConfig, Topology};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The files of the LiSA four-port example, built into the program for `lanyard lab demo`.
const DEMO: [(&str, &str); 4] = [
    ("lisa.clab.yml", include_str!("../../../labs/lisa.clab.yml")),
    ("sw1.cfg", include_str!("../../../labs/sw1.cfg")),
    ("sw2.cfg", include_str!("../../../labs/sw2.cfg")),
    ("sw3.cfg", include_str!("../../../labs/sw3.cfg")),
];

/// A lab ready to be built.
#[derive(Debug, Clone)]
pub struct Lab {
    /// Its nodes and links.
    pub topology: Topology,
    /// The startup-config of each switch that has one, by node name.
    pub configs: BTreeMap<String, String>,
    /// FRR's configuration of each node that has one, by node name.
    pub frr: BTreeMap<String, String>,
    /// The platform of each switch that runs on a chip, by node name.
    pub platforms: BTreeMap<String, String>,
    /// The topology file, absolute; empty for the built-in demo.
    pub file: String,
    /// The argument that the user entered for it.
    pub origin: String,
    /// Remarks about keys that were accepted without effect.
    pub notes: Vec<Remark>,
}

/// Reads a topology file alone, without the configurations that it names.
///
/// # Errors
/// The file cannot be read, or has errors.
pub fn topology(path: &Path) -> Result<Topology> {
    let origin = path.display().to_string();
    let text = text(path).with_context(|| format!("can't read the topology file {origin}"))?;
    Ok(read::read(&text, &origin)?.0)
}

/// Reads a lab with its configurations.
///
/// # Errors
/// A file cannot be read, or has errors.
pub fn file(path: &Path) -> Result<Lab> {
    let origin = path.display().to_string();
    let text = text(path).with_context(|| format!("can't read the topology file {origin}"))?;
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let absolute = std::fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
    lab(&text, &origin, absolute.display().to_string(), |name| self::text(&folder.join(name)))
}

/// The built-in LiSA example.
///
/// # Errors
/// Never, while its tests pass.
pub fn demo() -> Result<Lab> {
    let (origin, topology) = DEMO[0];
    lab(topology, origin, String::new(), |name| match DEMO.iter().find(|(file, _)| *file == name) {
        Some((_, text)) => Ok((*text).to_owned()),
        None => bail!("not built in"),
    })
}

fn lab(text: &str, origin: &str, file: String, open: impl Fn(&str) -> Result<String>) -> Result<Lab> {
    let (topology, notes) = read::read(text, origin)?;
    let mut configs = BTreeMap::new();
    for node in &topology.nodes {
        let config = match &node.startup_config {
            None => continue,
            Some(StartupConfig::Inline(text)) => text.clone(),
            Some(StartupConfig::Path(path)) => open(path).with_context(|| {
                format!("can't read the startup-config {path} of node {} ({origin})", node.name)
            })?,
        };
        configs.insert(node.name.clone(), config);
    }
    let (mut frr, mut platforms) = (BTreeMap::new(), BTreeMap::new());
    for node in &topology.nodes {
        if let Some(path) = &node.platform {
            let wrong = || format!("can't read the platform {path} of node {} ({origin})", node.name);
            platforms.insert(node.name.clone(), open(path).with_context(wrong)?);
        }
        if let Some(path) = &node.frr {
            let wrong = || format!("can't read FRR's configuration {path} of node {} ({origin})", node.name);
            frr.insert(node.name.clone(), open(path).with_context(wrong)?);
        }
    }
    Ok(Lab { topology, configs, frr, platforms, file, origin: origin.into(), notes })
}

/// The text of a file, if it is UTF-8 and not too long.
fn text(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let limit = MAX_FILE_BYTES as u64;
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_FILE_BYTES {
        bail!("it has more than {MAX_FILE_BYTES} bytes");
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count() + 1;
            bail!("line {line} is not UTF-8 text")
        }
    }
}

/// The name of the lab for an argument: a topology file, or the name of a lab that is up.
///
/// # Errors
/// The argument is neither.
pub fn name_of(word: &Path) -> Result<String> {
    if let Some(name) = word.to_str()
        && !word.exists()
        && !name.contains('/')
    {
        if crate::state::LabState::load(name)?.is_some() {
            return Ok(name.into());
        }
        bail!("`{name}` is neither a topology file nor a lab that is up (`lanyard lab list` shows those)");
    }
    Ok(topology(word)?.name)
}
